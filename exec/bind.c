/* Tensor ids to addresses. See bind.h. */
#include "exec/bind.h"

/* The tensor's address in the buffer of its class. */
static void *operand(const struct mist_binding *at, bool is_backward, int8_t id)
{
    const struct mist_layer_layout *layout = at->layout;
    const int64_t *offsets =
        is_backward ? layout->offset_backward : layout->offset_forward;
    int64_t batch_offset = (int64_t)at->micro_batch * layout->tensor_bytes[id];

    switch (layout->tensor_class[id]) {
    case MIST_TENSOR_INPUT:
        return at->base[MIST_ROLE_INPUT];
    case MIST_TENSOR_OUTPUT:
        return at->base[MIST_ROLE_OUTPUT];
    case MIST_TENSOR_SAVED:
        return at->base[MIST_ROLE_SAVED] + offsets[id];
    case MIST_TENSOR_SCRATCH:
        return at->base[MIST_ROLE_SCRATCH] + offsets[id];
    case MIST_TENSOR_GRAD_OUTPUT:
        return at->base[MIST_ROLE_GRAD_OUTPUT];
    case MIST_TENSOR_GRAD_INPUT:
        return at->base[MIST_ROLE_GRAD_INPUT];
    case MIST_TENSOR_TOKENS:
        return at->base[MIST_ROLE_TOKENS] + batch_offset;
    case MIST_TENSOR_TARGETS:
        return at->base[MIST_ROLE_TARGETS] + batch_offset;
    case MIST_TENSOR_CONSTANT:
        return at->base[MIST_ROLE_CONSTANT];
    }
    return NULL;
}

static float *parameter(const struct mist_binding *at, enum mist_role role, int8_t id)
{
    if (id < 0 || !at->base[role])
        return NULL;
    return (float *)(void *)at->base[role] + at->layout->param_offset[id];
}

int32_t mist_binding_n_steps(const struct mist_layer_layout *layout,
                             enum mist_program_kind program)
{
    switch (program) {
    case MIST_PROGRAM_FORWARD:
        return layout->n_forward;
    case MIST_PROGRAM_RECOMPUTE:
        return layout->n_recompute;
    case MIST_PROGRAM_BACKWARD:
        break;
    }
    return layout->n_backward;
}

void mist_binding_resolve(const struct mist_binding *binding,
                          enum mist_program_kind program, int32_t i_step,
                          struct mist_step_args *out)
{
    bool is_backward = program == MIST_PROGRAM_BACKWARD;
    const struct mist_concrete_step *step = is_backward
                                                ? &binding->layout->backward[i_step]
                                                : &binding->layout->forward[i_step];

    *out = (struct mist_step_args){
        .step = step,
        .model = binding->model,
        .seq = binding->layout->shape.seq,
        .n_threads = binding->n_threads,
        .loss_scale = binding->loss_scale,
    };
    for (int i = 0; i < MIST_MAX_OPERANDS; i++)
        if (step->operands[i] >= 0)
            out->operands[i] = operand(binding, is_backward, step->operands[i]);
    for (int i = 0; i < 2; i++) {
        out->params[i] = parameter(binding, MIST_ROLE_WEIGHTS, step->params[i]);
        out->param_gradients[i] =
            parameter(binding, MIST_ROLE_GRADIENTS, step->params[i]);
    }
    if (step->workspace_bytes > 0)
        out->workspace = binding->base[MIST_ROLE_SCRATCH] + step->workspace_offset;
}

void mist_binding_run(const struct mist_binding *binding, enum mist_program_kind program,
                      const struct mist_operators *operators)
{
    int32_t n = mist_binding_n_steps(binding->layout, program);

    for (int32_t i = 0; i < n; i++) {
        struct mist_step_args args;
        mist_binding_resolve(binding, program, i, &args);
        operators->run_step(&args);
    }
}

void mist_binding_run_adamw(const struct mist_layer_layout *layout, float *weights,
                            const float *gradients, float *state, int64_t first,
                            int64_t n_shard, const struct mist_adamw_args *args,
                            int32_t n_threads, const struct mist_operators *operators)
{
    for (int32_t i = 0; i < layout->n_params; i++) {
        int64_t start = layout->param_offset[i];
        int64_t end = start + layout->param_elements[i];
        start = start > first ? start : first;
        end = end < first + n_shard ? end : first + n_shard;
        if (start >= end)
            continue;
        struct mist_adamw_args mine = *args;
        mine.weight_decay = layout->param_decays[i] ? args->weight_decay : 0;
        operators->adamw(weights + start, state + (start - first),
                         state + n_shard + (start - first), gradients + start,
                         end - start, &mine, n_threads);
    }
}
