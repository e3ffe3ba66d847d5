/* Tensor ids to addresses. See bind.h. */
#include "exec/operators/bind.h"

/* A saved tensor's address: on the device all along, swapped in, or made again. */
static void *saved_operand(const struct mist_binding *at, int8_t id)
{
    if (!at->storage)
        return at->base[MIST_ROLE_SAVED] + at->layout->tensors[id].offset_forward;
    return at->base[mist_saved_role(at->storage->saved_place[id])] +
           at->storage->saved_offset[id];
}

/* The tensor's address in the buffer of its class. */
static void *operand(const struct mist_binding *at, bool is_backward, int8_t id)
{
    const struct mist_layer_layout *layout = at->layout;
    const struct mist_tensor *tensor = &layout->tensors[id];
    int64_t offset = is_backward ? tensor->offset_backward : tensor->offset_forward;
    int64_t batch_offset = (int64_t)at->micro_batch * tensor->bytes;

    switch (tensor->tensor_class) {
    case MIST_TENSOR_INPUT:
        return at->base[MIST_ROLE_INPUT];
    case MIST_TENSOR_OUTPUT:
        return at->base[MIST_ROLE_OUTPUT];
    case MIST_TENSOR_SAVED:
        return saved_operand(at, id);
    case MIST_TENSOR_SCRATCH:
        return at->base[MIST_ROLE_SCRATCH] + offset;
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

static int32_t slab_of(const struct mist_module_storage *storage, int32_t i_param)
{
    return storage ? storage->param_slab[i_param] : 0;
}

static int64_t offset_of(const struct mist_layer_layout *layout,
                         const struct mist_module_storage *storage, int32_t i_param)
{
    return storage ? storage->param_offset[i_param] : layout->params[i_param].offset;
}

static void *weight(const struct mist_binding *at, int8_t id)
{
    if (id < 0)
        return NULL;
    int32_t slab = slab_of(at->storage, id);
    bool is_alias = at->storage && at->storage->slabs[slab].is_alias;
    char *base = at->base[is_alias ? MIST_ROLE_TIED_WEIGHTS : MIST_ROLE_WEIGHTS + slab];
    int64_t offset = is_alias ? 0 : offset_of(at->layout, at->storage, id);

    return base ? base + offset * mist_dtype_weight_bytes(at->layout->shape.dtype) : NULL;
}

static void *gradient(const struct mist_binding *at, int8_t id)
{
    if (id < 0)
        return NULL;
    char *base = at->base[MIST_ROLE_GRADIENTS + slab_of(at->storage, id)];

    return base ? base + offset_of(at->layout, at->storage, id) *
                             mist_dtype_gradient_bytes(at->gradient_dtype)
                : NULL;
}

void mist_binding_resolve(const struct mist_binding *binding,
                          enum mist_program_kind program, int32_t i_step,
                          struct mist_step_args *out)
{
    bool is_backward = mist_program_is_backward(program);
    const struct mist_layer_layout *layout = binding->layout;
    const struct mist_step *step = &mist_layer_layout_steps(layout, program)[i_step];
    int32_t cp = mist_layer_shape_cp(&layout->shape);

    *out = (struct mist_step_args){
        .step = step,
        .model = binding->model,
        .dtype = layout->shape.dtype,
        .gradient_dtype = binding->gradient_dtype,
        .chunks = mist_chunks_of(layout->shape.seq, cp, binding->i_cp),
        .cp = cp,
        .i_cp = binding->i_cp,
        .tp = layout->shape.tp,
        .i_tp = binding->i_tp,
        .n_threads = binding->n_threads,
        .loss_scale = binding->loss_scale,
        .only_loss = program == MIST_PROGRAM_EVALUATE,
        .backend = binding->backend,
    };
    for (int i = 0; i < MIST_MAX_OPERANDS; i++)
        if (step->operands[i] >= 0)
            out->operands[i] = operand(binding, is_backward, step->operands[i]);
    if (step->params[0] >= 0) /* all slabs of a step begin with the same micro-batch */
        out->overwrites_gradients =
            binding->overwrites >> slab_of(binding->storage, step->params[0]) & 1;
    for (int i = 0; i < 2; i++) {
        out->params[i] = weight(binding, step->params[i]);
        out->param_gradients[i] = gradient(binding, step->params[i]);
    }
    if (step->adds_bias_once && binding->i_tp > 0)
        out->params[1] = NULL;
    if (step->adds_residual_once && binding->i_tp > 0)
        out->operands[MIST_ARG_LINEAR_RESIDUAL] = NULL;
    if (step->workspace_bytes > 0)
        out->workspace = binding->base[MIST_ROLE_SCRATCH] + step->workspace_offset;
}

enum mist_status mist_binding_prepare(const struct mist_layer_layout *layouts, int32_t n,
                                      int32_t i_cp, const struct mist_model *model,
                                      enum mist_dtype gradient_dtype,
                                      const struct mist_operators *operators,
                                      void *backend, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < n && operators->prepare; i++) {
        const struct mist_layer_layout *layout = &layouts[i];
        int32_t cp = mist_layer_shape_cp(&layout->shape);
        for (int32_t k = 0; k < layout->n_forward + layout->n_backward; k++) {
            struct mist_step_args args = {
                .step = k < layout->n_forward ? &layout->forward[k]
                                              : &layout->backward[k - layout->n_forward],
                .model = model,
                .backend = backend,
                .dtype = layout->shape.dtype,
                .gradient_dtype = gradient_dtype,
                .chunks = mist_chunks_of(layout->shape.seq, cp, i_cp),
                .cp = cp,
                .i_cp = i_cp,
                .tp = layout->shape.tp,
                .loss_scale = 1,
            };
            status = status == MIST_OK ? operators->prepare(&args, err) : status;
        }
    }
    return status == MIST_OK && operators->tune ? operators->tune(backend, err) : status;
}

void mist_binding_run_adamw(const struct mist_binding_update *update,
                            const struct mist_adamw_args *args,
                            const struct mist_operators *operators)
{
    const struct mist_layer_layout *layout = update->layout;
    enum mist_dtype dtype = layout->shape.dtype;
    int64_t last = update->first + update->n;
    struct mist_adamw_span spans[MIST_MAX_PARAMS];
    int32_t n_spans = 0;

    for (int32_t i = 0; i < layout->n_params; i++) {
        if (slab_of(update->storage, i) != update->i_slab)
            continue;
        int64_t start = offset_of(layout, update->storage, i);
        int64_t end = start + layout->params[i].n_elements;
        start = start > update->first ? start : update->first;
        end = end < last ? end : last;
        if (start >= end)
            continue;
        float *state = update->state + (start - update->first);
        spans[n_spans++] = (struct mist_adamw_span){
            .p = (char *)update->weights +
                 (start - update->weights_first) * mist_dtype_weight_bytes(dtype),
            .m = state,
            .v = state + update->n,
            .master = dtype == MIST_DTYPE_BF16 ? state + 2 * update->n : NULL,
            .g = (char *)update->gradients +
                 (start - update->gradients_first) *
                     mist_dtype_gradient_bytes(update->gradient_dtype),
            .gradient_dtype = update->gradient_dtype,
            .n = end - start,
            .decays = layout->params[i].decays,
        };
    }
    if (n_spans > 0)
        operators->adamw(update->backend, dtype, spans, n_spans, args, update->n_threads);
}
