/*
 * Runs one rank's schedule on what buffers hold instead of on bytes.
 *
 * Every range of every buffer holds a value: which parameter, gradient or activation, of
 * which module and micro-batch, in which state (weights before or after the update; which
 * micro-batches a gradient has summed up on this rank, over the tensor-parallel ranks,
 * over the data-parallel ranks, with the other holder of a tied weight), and where in the
 * whole it lies. Tasks are taken down to the operands of single steps; each read must
 * find exactly what the step needs. What other ranks contribute to a collective is what
 * this rank contributes, at their place.
 *
 * Every access is also a range with a task: two that overlap, one of them a write, must
 * be ordered by streams and dependencies.
 */
#ifndef MIST_TESTS_PROP_SCHEDULE_FLOW_H
#define MIST_TESTS_PROP_SCHEDULE_FLOW_H

#include "tests/prop/flow_contents.h"

/* -------------------------------------------------------------------------- programs */

enum { READS = 1, WRITES = 2, LOSES = 4 }; /* LOSES: holds nothing useful afterwards */

/* What a step does to operand k. */
static inline int operand_use(const struct mist_step *step, int k)
{
    switch (step->op) {
    case MIST_OP_TP_ALL_REDUCE:
        return READS | WRITES;
    case MIST_OP_TP_REDUCE_SCATTER:
    case MIST_OP_CP_REDUCE_SCATTER:
        return k == 0 ? WRITES : READS | LOSES;
    case MIST_OP_TP_ALL_GATHER:
    case MIST_OP_CP_ALL_GATHER:
        return k == 0 ? WRITES : READS;
    case MIST_OP_KV_PACK: /* backward: beside what queries have */
        return k == 0 ? (step->phase == MIST_PHASE_FORWARD ? WRITES : READS | WRITES)
                      : READS;
    case MIST_OP_ATTENTION_PART:
        return k <= 1 ? WRITES : READS;
    case MIST_OP_ROPE:
        return k == 0 ? READS | WRITES : READS;
    case MIST_OP_HEAD_NORM:
        return k == 0                              ? READS | WRITES
               : step->phase == MIST_PHASE_FORWARD ? WRITES
                                                   : READS;
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        return k <= 1 ? WRITES : READS;
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return k == 0 ? READS | WRITES : k == 1 ? WRITES : READS;
    default:
        break;
    }
    if (step->phase == MIST_PHASE_BACKWARD_WEIGHT)
        return READS;
    if (step->phase == MIST_PHASE_BACKWARD_INPUT)
        return k == 0 ? WRITES : READS;
    switch (step->op) {
    case MIST_OP_RESIDUAL_LAYER_NORM:
    case MIST_OP_RESIDUAL_RMS_NORM:
        return k <= 2 ? WRITES : READS;
    case MIST_OP_LAYER_NORM:
    case MIST_OP_RMS_NORM:
    case MIST_OP_ATTENTION:
    case MIST_OP_LINEAR_GELU:
        return k <= 1 ? WRITES : READS;
    default:
        return k == 0 ? WRITES : READS;
    }
}

/* Where an operand lies, and what it holds. */
struct place {
    int32_t buffer;
    int64_t from, to;
    struct value value;
};

static inline struct place place_of(const struct flow *at, const struct mist_task *task,
                                    int32_t tensor)
{
    const struct mist_layer_layout *layout = flow_layout(at, task->layer);
    int32_t m = 0, k = task->micro_batch, layer = task->layer;
    const struct mist_module_storage *storage = flow_storage(at, layer, &m);
    int64_t bytes = layout->tensors[tensor].bytes, from = 0;
    bool is_backward = mist_program_is_backward(task->program);
    enum mist_role role = MIST_ROLE_INPUT;
    struct value value = {.layer = layer, .micro_batch = k};

    switch (layout->tensors[tensor].tensor_class) {
    case MIST_TENSOR_INPUT:
        value.what = ACTIVATION;
        break;
    case MIST_TENSOR_OUTPUT:
        role = MIST_ROLE_OUTPUT;
        value.what = ACTIVATION;
        value.layer = layer + 1;
        break;
    case MIST_TENSOR_GRAD_OUTPUT:
        role = MIST_ROLE_GRAD_OUTPUT;
        value.what = ACTIVATION_GRADIENT;
        value.layer = layer + 1;
        break;
    case MIST_TENSOR_GRAD_INPUT:
        role = MIST_ROLE_GRAD_INPUT;
        value.what = ACTIVATION_GRADIENT;
        break;
    case MIST_TENSOR_SAVED:
        role = mist_saved_role(storage->saved_place[tensor]);
        from = storage->saved_offset[tensor];
        value.what = TENSOR;
        value.id = tensor;
        break;
    case MIST_TENSOR_SCRATCH:
        role = MIST_ROLE_SCRATCH;
        from = is_backward ? layout->tensors[tensor].offset_backward
                           : layout->tensors[tensor].offset_forward;
        value.what = TENSOR;
        value.id = tensor;
        break;
    case MIST_TENSOR_TOKENS:
    case MIST_TENSOR_TARGETS:
        role = layout->tensors[tensor].tensor_class == MIST_TENSOR_TOKENS
                   ? MIST_ROLE_TOKENS
                   : MIST_ROLE_TARGETS;
        value = (struct value){.what = IDS, .id = role == MIST_ROLE_TARGETS};
        from = k * bytes;
        return (struct place){task->buffers[role], from, from + bytes, value};
    case MIST_TENSOR_CONSTANT:
        value = (struct value){.what = TABLE};
        return (struct place){task->buffers[MIST_ROLE_CONSTANT], 0, bytes, value};
    }
    value.origin = -from;
    return (struct place){task->buffers[role], from, from + bytes, value};
}

static inline bool writes_gradient(const struct mist_step *step)
{
    return step->phase == MIST_PHASE_BACKWARD_WEIGHT ||
           step->op == MIST_OP_LINEAR_CROSS_ENTROPY ||
           (step->phase == MIST_PHASE_BACKWARD_INPUT &&
            (step->op == MIST_OP_LAYER_NORM || step->op == MIST_OP_RMS_NORM ||
             step->op == MIST_OP_HEAD_NORM));
}

/* A step reads a parameter: it must be that of this iteration, all of it. */
static inline void read_param(struct flow *at, const struct mist_task *task, int32_t p)
{
    const struct mist_layer_layout *layout = flow_layout(at, task->layer);
    int32_t m = 0;
    const struct mist_module_storage *storage = flow_storage(at, task->layer, &m);
    int32_t s = storage->param_slab[p], layer = task->layer;
    int32_t buffer = task->buffers[MIST_ROLE_WEIGHTS + s];
    int64_t from = storage->param_offset[p] * 4;

    if (storage->slabs[s].is_alias) {
        const struct mist_module_storage *embedding = flow_storage(at, 0, &m);
        layer = 0;
        s = embedding->param_slab[0];
        from = embedding->param_offset[0] * 4;
        buffer = task->buffers[MIST_ROLE_TIED_WEIGHTS];
    }
    struct value value = {.what = WEIGHT, .layer = layer, .id = s, .version = 1};
    flow_read(at, buffer, from, from + layout->params[p].n_elements * 4, value,
              "the weights are not there, or not up to date");
}

/* What gradients of a slab are before a micro-batch: a tied head's are the embedding's
 * where each micro-batch is summed up by itself. */
static inline struct value no_gradient(const struct flow *at,
                                       const struct mist_task *task, int32_t s,
                                       bool *is_joined)
{
    int32_t m = 0;
    bool is_alias = flow_storage(at, task->layer, &m)->slabs[s].is_alias;
    bool sums_each = flow_cuts(at, at->stage->zero >= 2) ||
                     flow_cuts(at, at->plan->reduces_each_micro_batch);

    *is_joined = is_alias && (at->plan->n_micro_batches == 1 || sums_each);
    return (struct value){.what = GRADIENT,
                          .layer = *is_joined ? 0 : task->layer,
                          .id = *is_joined ? 0 : s};
}

/* A step adds a micro-batch to a parameter's gradient, or overwrites it. */
static inline void add_gradient(struct flow *at, const struct mist_task *task, int32_t p)
{
    static struct segment pieces[MAX_PIECES];
    const struct mist_layer_layout *layout = flow_layout(at, task->layer);
    int32_t m = 0;
    const struct mist_module_storage *storage = flow_storage(at, task->layer, &m);
    int32_t s = storage->param_slab[p];
    int32_t buffer = task->buffers[MIST_ROLE_GRADIENTS + s];
    uint32_t bit = 1u << task->micro_batch;
    bool is_joined;
    struct value none = no_gradient(at, task, s, &is_joined);
    int64_t from = storage->param_offset[p] * 4;
    int64_t to = from + layout->params[p].n_elements * 4;

    flow_require(at, buffer >= 0, "no buffer for a gradient");
    flow_touch(at, buffer, from, to, true);
    int n = flow_collect(at, buffer, from, to, pieces);
    for (int i = 0; i < n; i++) /* one step of a micro-batch has the parameter */
        flow_require(at,
                     pieces[i].value.what != GRADIENT || !(pieces[i].value.local & bit),
                     "a gradient is added to twice");
    if (task->overwrites >> s & 1)
        flow_put(at, buffer, from, to, none);
    n = flow_collect(at, buffer, from, to, pieces);
    for (int i = 0; i < n; i++) {
        struct value value = pieces[i].value;
        uint32_t *half = is_joined ? &value.other : &value.local;
        if (value.what != GRADIENT || value.layer != none.layer || value.id != none.id ||
            value.origin != 0 || ((value.local | value.reduced | *half) & bit))
            flow_fail(at, "the gradient can't be added to", buffer, pieces[i].from,
                      &value);
        *half |= bit;
        flow_put(at, buffer, pieces[i].from, pieces[i].to, value);
    }
}

static inline void run_step(struct flow *at, const struct mist_task *task,
                            const struct mist_step *step)
{
    struct place places[MIST_MAX_OPERANDS];
    /* evaluation wants its losses alone */
    bool only_loss =
        at->walk == WALK_EVALUATE && step->op == MIST_OP_LINEAR_CROSS_ENTROPY;

    for (int k = 0; k < MIST_MAX_OPERANDS; k++) {
        if (step->operands[k] < 0)
            continue;
        places[k] = place_of(at, task, step->operands[k]);
        flow_require(at, places[k].buffer >= 0, "an operand has no buffer");
        if (operand_use(step, k) & READS)
            flow_read(at, places[k].buffer, places[k].from, places[k].to, places[k].value,
                      "an operand is not there");
    }
    if (step->workspace_bytes > 0)
        flow_write(at, task->buffers[MIST_ROLE_SCRATCH], step->workspace_offset,
                   step->workspace_offset + step->workspace_bytes,
                   (struct value){.what = NOTHING});
    for (int k = 0; k < 2; k++)
        if (step->params[k] >= 0) {
            if (step->phase != MIST_PHASE_BACKWARD_WEIGHT)
                read_param(at, task, step->params[k]);
            if (writes_gradient(step) && !only_loss)
                add_gradient(at, task, step->params[k]);
        }
    for (int k = 0; k < MIST_MAX_OPERANDS; k++) {
        int use = step->operands[k] < 0 || (only_loss && k == MIST_ARG_OUT)
                      ? 0
                      : operand_use(step, k);
        if (use & LOSES)
            flow_write(at, places[k].buffer, places[k].from, places[k].to,
                       (struct value){.what = NOTHING});
        if (use & WRITES)
            flow_write(at, places[k].buffer, places[k].from, places[k].to,
                       places[k].value);
    }
}

/* All of a slab's gradients, or the padding of those that are overwritten. */
static inline void zero_gradients(struct flow *at, const struct mist_task *task)
{
    struct param_range ranges[3 * MIST_MAX_PARAMS];
    int32_t m = 0;
    const struct mist_module_storage *storage = flow_storage(at, task->layer, &m);
    int64_t n_zeroed = 0;

    for (int32_t s = 0; s < MIST_MAX_SLABS; s++) {
        if (!(task->zeroes >> s & 1))
            continue;
        flow_require(at, s < storage->n_slabs, "zeroes a slab that is not there");
        int64_t bytes = storage->slabs[s].n_elements * 4;
        int32_t buffer = task->buffers[MIST_ROLE_GRADIENTS + s];
        bool is_padding = task->overwrites >> s & 1;
        bool is_joined;
        flow_write(at, buffer, 0, bytes, no_gradient(at, task, s, &is_joined));
        n_zeroed += is_padding ? 0 : storage->slabs[s].n_elements;
        int n_ranges = is_padding ? flow_params(at, task->layer, s, ranges) : 0;
        for (int i = 0; i < n_ranges; i++)
            flow_put(at, buffer, ranges[i].from, ranges[i].to,
                     (struct value){.what = NOTHING});
    }
    flow_require(at, n_zeroed == task->n_zeroed_elements,
                 "zeroed elements are miscounted");
}

static inline void run_part(struct flow *at, const struct mist_task *task)
{
    const struct mist_layer_layout *layout = flow_layout(at, task->layer);
    const struct mist_program *program = &layout->programs[task->program];
    bool is_backward = mist_program_is_backward(task->program);
    const struct mist_step *steps = is_backward ? layout->backward : layout->forward;
    int32_t m = 0;

    flow_storage(at, task->layer, &m);
    flow_require(at, task->part >= 0 && task->part < program->n_parts, "no such part");
    int32_t *n_run =
        &at->n_parts_run[(m * at->plan->n_micro_batches + task->micro_batch) *
                             MIST_N_PROGRAM_KINDS +
                         (int)task->program];
    flow_require(at, task->part == (*n_run)++, "parts are not in order");
    const struct mist_part *part = &program->parts[task->part];
    flow_require(at, part->is_communication == (task->stream == MIST_STREAM_GPU_GPU),
                 "a part is on the wrong stream");
    bool is_cp = strncmp(mist_task_kind_name(task->kind), "cp_", 3) == 0;
    if (part->is_communication)
        flow_require(at,
                     task->group == (is_cp ? MIST_GROUP_CP : MIST_GROUP_TP) &&
                         task->bytes == steps[part->first_step].dims[0],
                     "communication inside a module has the wrong group or size");
    if (at->walk != WALK_EVALUATE && !part->is_communication)
        zero_gradients(at, task);
    for (int32_t i = part->first_step; i < part->first_step + part->n_steps; i++)
        if (at->walk != WALK_EVALUATE ||
            i < layout->programs[MIST_PROGRAM_EVALUATE].n_steps)
            run_step(at, task, &steps[i]);
}

/* ---------------------------------------------------------------------- other tasks */

static inline void run_copy(struct flow *at, const struct mist_task *task)
{
    static struct segment pieces[MAX_PIECES];
    int32_t from = task->buffers[MIST_ROLE_INPUT], to = task->buffers[MIST_ROLE_OUTPUT];
    int64_t shift = task->to_offset_bytes - task->from_offset_bytes;
    const struct mist_buffer *buffers = at->schedule->buffers;
    bool to_host = task->stream == MIST_STREAM_DEVICE_TO_HOST;

    flow_require(at, from >= 0 && to >= 0 && task->bytes > 0, "copies nothing");
    flow_require(at,
                 buffers[from].arena == (to_host ? MIST_ARENA_DEVICE : MIST_ARENA_HOST) &&
                     buffers[to].arena == (to_host ? MIST_ARENA_HOST : MIST_ARENA_DEVICE),
                 "copies in the wrong direction");
    flow_touch(at, from, task->from_offset_bytes, task->from_offset_bytes + task->bytes,
               false);
    flow_touch(at, to, task->to_offset_bytes, task->to_offset_bytes + task->bytes, true);
    int n = flow_collect(at, from, task->from_offset_bytes,
                         task->from_offset_bytes + task->bytes, pieces);
    bool is_empty = true;
    for (int i = 0; i < n; i++)
        is_empty = is_empty && pieces[i].value.what == NOTHING;
    flow_require(at, !is_empty, "copies what nobody wrote");
    for (int i = 0; i < n; i++) {
        struct value value = pieces[i].value;
        value.origin -= shift;
        flow_put(at, to, pieces[i].from + shift, pieces[i].to + shift, value);
    }
}

static inline void run_optimizer(struct flow *at, const struct mist_task *task)
{
    int32_t m = 0, s = task->slab;
    const struct mist_slab *slab = &flow_storage(at, task->layer, &m)->slabs[s];
    int32_t weights = task->buffers[MIST_ROLE_WEIGHTS + s];
    int32_t gradients = task->buffers[MIST_ROLE_GRADIENTS + s];
    int32_t state = task->buffers[MIST_ROLE_STATE];
    int64_t from, to;

    bool on_host = at->stage->updates_on_host && slab->offloads_state;
    const struct mist_buffer *buffers = at->schedule->buffers;

    flow_part(at, slab, &from, &to);
    flow_require(at, weights >= 0 && gradients >= 0 && state >= 0 && !slab->is_alias,
                 "the optimizer lacks a buffer");
    flow_require(at, task->n_elements * 4 == to - from, "the optimizer's part is wrong");
    flow_require(at,
                 task->stream == (on_host ? MIST_STREAM_HOST : MIST_STREAM_COMPUTE) &&
                     (buffers[weights].arena == MIST_ARENA_HOST) == on_host &&
                     (buffers[gradients].arena == MIST_ARENA_HOST) == on_host &&
                     (buffers[state].arena == MIST_ARENA_HOST) == on_host,
                 "the optimizer is in the wrong place");
    int64_t w = flow_origin(at, slab, weights), g = flow_origin(at, slab, gradients);
    struct value weight = {
        .what = WEIGHT, .layer = task->layer, .id = s, .version = 0, .origin = w};
    struct value moments = {.what = STATE, .layer = task->layer, .id = s};
    flow_read(at, weights, from - w, to - w, weight, "the update lacks the weights");
    flow_read(
        at, gradients, from - g, to - g,
        (struct value){.what = OLD_GRADIENT, .layer = task->layer, .id = s, .origin = g},
        "the update lacks the gradients");
    flow_read(at, state, 0, 2 * (to - from), moments, "the update lacks the state");
    weight.version = moments.version = 1;
    flow_write(at, weights, from - w, to - w, weight);
    flow_write(at, state, 0, 2 * (to - from), moments);
}

static inline void run_gather(struct flow *at, const struct mist_task *task)
{
    static struct segment pieces[MAX_PIECES];
    int32_t m = 0, s = task->slab, to = task->buffers[MIST_ROLE_WEIGHTS + s];
    const struct mist_slab *slab = &flow_storage(at, task->layer, &m)->slabs[s];
    int32_t from = task->buffers[MIST_ROLE_INPUT];
    int64_t shard = flow_shard(at, slab), first = at->schedule->i_replica * shard;

    flow_require(at,
                 to >= 0 && task->group == MIST_GROUP_DP &&
                     mist_stage_n_replicas(at->stage) > 1 &&
                     task->bytes == slab->n_elements * 4,
                 "a gather is wrong");
    int64_t start = from >= 0 ? 0 : first;
    from = from >= 0 ? from : to;
    int n = flow_collect(at, from, start, start + shard, pieces);
    struct value value = pieces[0].value;
    flow_touch(at, from, start, start + shard, false);
    if (n != 1 || value.what != WEIGHT || value.layer != task->layer || value.id != s ||
        value.origin + start != first)
        flow_fail(at, "the shard to gather is not there", from, pieces[0].from, &value);
    value.origin = 0;
    /* in place, this rank's shard stays as it is */
    int64_t end = slab->n_elements * 4;
    if (from == to) {
        if (first > 0)
            flow_write(at, to, 0, first, value);
        if (first + shard < end)
            flow_write(at, to, first + shard, end, value);
    } else {
        flow_write(at, to, 0, end, value);
    }
}

/* A reduction over data-parallel ranks. */
static inline void run_reduce(struct flow *at, const struct mist_task *task)
{
    static struct segment pieces[MAX_PIECES];
    struct param_range ranges[3 * MIST_MAX_PARAMS];
    int32_t m = 0, s = task->slab, buffer = task->buffers[MIST_ROLE_GRADIENTS + s];
    int32_t home = task->buffers[MIST_ROLE_OUTPUT];
    const struct mist_slab *slab = &flow_storage(at, task->layer, &m)->slabs[s];
    int64_t bytes = slab->n_elements * 4, shard = flow_shard(at, slab);
    int64_t first = at->schedule->i_replica * shard;
    bool scatters = flow_cuts(at, at->stage->zero >= 1);
    int n_ranges = flow_params(at, task->layer, s, ranges);

    flow_require(at, buffer >= 0 && task->group == MIST_GROUP_DP && task->bytes == bytes,
                 "a reduction is wrong");
    flow_touch(at, buffer, 0, bytes, true);
    int n_pieces = flow_collect(at, buffer, 0, bytes, pieces);
    for (int i = 0; i < n_pieces; i++) /* padding, too: faults are looked for in it */
        flow_require(at, pieces[i].value.what != NOTHING, "a gradient has a gap");
    for (int i = 0; i < n_ranges; i++) {
        int n = flow_collect(at, buffer, ranges[i].from, ranges[i].to, pieces);
        for (int k = 0; k < n; k++) {
            struct value value = pieces[k].value;
            bool is_tied = flow_is_tied(at, task->layer, ranges[i].i_param);
            if (value.what != GRADIENT || value.layer != task->layer || value.id != s ||
                value.origin != 0 || value.local == 0 || (value.local & value.reduced) ||
                (ranges[i].is_partial && !(value.tp & value.local)) ||
                (value.tp & ~value.local) || (value.other & ~value.local) ||
                (ranges[i].is_partial && value.tp != value.local) ||
                (is_tied && value.other != value.local))
                flow_fail(at, "the gradient is not ready to be reduced", buffer,
                          pieces[k].from, &value);
            value.reduced |= value.local;
            value.local = 0;
            flow_put(at, buffer, pieces[k].from, pieces[k].to, value);
        }
    }
    if (home >= 0) {
        flow_require(at, scatters, "a sum over all ranks leaves its buffer");
        flow_touch(at, home, 0, shard, true);
        int n = flow_collect(at, buffer, first, first + shard, pieces);
        for (int k = 0; k < n; k++) {
            struct value value = pieces[k].value;
            value.origin += first;
            flow_put(at, home, pieces[k].from - first, pieces[k].to - first, value);
        }
        flow_put(at, buffer, 0, bytes, (struct value){.what = NOTHING});
    } else if (scatters) {
        if (first > 0)
            flow_put(at, buffer, 0, first, (struct value){.what = NOTHING});
        if (first + shard < bytes)
            flow_put(at, buffer, first + shard, bytes, (struct value){.what = NOTHING});
    }
}

/* Partial gradients of all slabs of a module over the tensor-parallel ranks. */
static inline void run_tp_reduce(struct flow *at, const struct mist_task *task)
{
    static struct segment pieces[MAX_PIECES];
    struct param_range ranges[3 * MIST_MAX_PARAMS];
    int32_t m = 0;
    const struct mist_module_storage *storage = flow_storage(at, task->layer, &m);
    int64_t bytes = 0;

    flow_require(at, task->group == MIST_GROUP_TP && at->stage->tp > 1, "wrong group");
    for (int32_t s = 0; s < storage->n_slabs; s++) {
        int n_ranges = flow_params(at, task->layer, s, ranges);
        int32_t buffer = task->buffers[MIST_ROLE_GRADIENTS + s];
        for (int i = 0; i < n_ranges; i++) {
            if (!ranges[i].is_partial)
                continue;
            flow_require(at, buffer >= 0, "no buffer for a partial gradient");
            flow_touch(at, buffer, ranges[i].from, ranges[i].to, true);
            bytes += ranges[i].to - ranges[i].from;
            int n = flow_collect(at, buffer, ranges[i].from, ranges[i].to, pieces);
            for (int k = 0; k < n; k++) {
                struct value value = pieces[k].value;
                if (value.what != GRADIENT || value.layer != task->layer ||
                    value.id != s || value.origin != 0 || value.local == 0 ||
                    value.tp != 0 || value.reduced != 0)
                    flow_fail(at, "a partial gradient is not ready to be summed", buffer,
                              pieces[k].from, &value);
                value.tp = value.local;
                flow_put(at, buffer, pieces[k].from, pieces[k].to, value);
            }
        }
    }
    flow_require(at, bytes == task->bytes, "partial gradients are miscounted");
}

/* Tied weight: the sum with the other holder's gradient, which has as many. */
static inline void run_tie(struct flow *at, const struct mist_task *task)
{
    static struct segment pieces[MAX_PIECES], others[MAX_PIECES];
    const struct mist_layer_layout *layout = flow_layout(at, task->layer);
    int32_t m = 0, to = task->buffers[MIST_ROLE_OUTPUT],
            from = task->buffers[MIST_ROLE_INPUT];
    const struct mist_module_storage *storage = flow_storage(at, task->layer, &m);
    int64_t bytes = storage->slabs[task->slab].n_elements * 4;
    int32_t p = 0;
    bool is_alone = mist_plan_head_stage(at->plan) == 0;

    while (p < layout->n_params && !flow_is_tied(at, task->layer, p))
        p++;
    flow_require(at,
                 p < layout->n_params && storage->param_slab[p] == task->slab &&
                     storage->param_offset[p] == 0 && to >= 0 &&
                     task->n_elements * 4 == bytes,
                 "the tied slab is wrong");
    flow_require(at, is_alone == (from >= 0) && (is_alone || task->bytes == bytes),
                 "an exchange of tied gradients is wrong");
    int64_t end = layout->params[p].n_elements * 4;
    flow_touch(at, to, 0, bytes, true);
    int n = flow_collect(at, to, 0, end, pieces);
    uint32_t mine = pieces[0].value.local;
    if (is_alone) {
        flow_touch(at, from, 0, bytes, true);
        int k = flow_collect(at, from, 0, end, others);
        struct value value = others[0].value;
        if (k != 1 || value.what != GRADIENT || value.reduced || value.local != mine ||
            value.origin != 0)
            flow_fail(at, "the head's half is not there", from, 0, &value);
        flow_put(
            at, from, 0, bytes,
            (struct value){.what = OLD_GRADIENT, .layer = value.layer, .id = value.id});
    }
    for (int i = 0; i < n; i++) {
        struct value value = pieces[i].value;
        if (value.what != GRADIENT || value.layer != task->layer ||
            value.id != task->slab || value.origin != 0 || value.local != mine ||
            value.local == 0 || value.other != 0 || value.reduced != 0)
            flow_fail(at, "a tied gradient is not ready", to, pieces[i].from, &value);
        value.other = value.local;
        flow_put(at, to, pieces[i].from, pieces[i].to, value);
    }
}

static inline void run_accumulate(struct flow *at, const struct mist_task *task)
{
    static struct segment pieces[MAX_PIECES], sums[MAX_PIECES];
    int32_t from = task->buffers[MIST_ROLE_INPUT], to = task->buffers[MIST_ROLE_OUTPUT];
    int32_t m = 0, s = task->slab;
    int64_t bytes = task->n_elements * 4, first, end;
    const struct mist_slab *slab = &flow_storage(at, task->layer, &m)->slabs[s];
    struct param_range ranges[3 * MIST_MAX_PARAMS];
    int n_ranges = flow_params(at, task->layer, s, ranges);

    flow_require(at, from >= 0 && to >= 0 && from != to, "accumulates nothing");
    flow_part(at, slab, &first, &end);
    flow_require(at, bytes == end - first, "accumulates something else than its part");
    flow_touch(at, from, task->from_offset_bytes, task->from_offset_bytes + bytes, false);
    flow_touch(at, to, task->to_offset_bytes, task->to_offset_bytes + bytes, true);
    int64_t a = task->from_offset_bytes - first, b = task->to_offset_bytes - first;
    for (int i = 0; i < n_ranges; i++) {
        int64_t low = ranges[i].from > first ? ranges[i].from : first;
        int64_t high = ranges[i].to < end ? ranges[i].to : end;
        if (low >= high)
            continue;
        int n = flow_collect(at, from, low + a, high + a, pieces);
        int k = flow_collect(at, to, low + b, high + b, sums);
        struct value value = pieces[0].value, sum = sums[0].value;
        if (n != 1 || value.what != GRADIENT || value.layer != task->layer ||
            value.id != s || value.origin != -a || value.local != 0)
            flow_fail(at, "what is to be accumulated is not there", from, low + a,
                      &value);
        if (k != 1 || sum.what != GRADIENT || sum.layer != task->layer || sum.id != s ||
            sum.origin != -b || sum.local != 0 || (sum.reduced & value.reduced) ||
            (sum.tp & value.tp) || (sum.other & value.other))
            flow_fail(at, "the sum so far is not there", to, low + b, &sum);
        sum.reduced |= value.reduced;
        sum.tp |= value.tp;
        sum.other |= value.other;
        flow_put(at, to, low + b, high + b, sum);
    }
}

static inline void run_norm(struct flow *at, const struct mist_task *task)
{
    int32_t m = 0, s = task->slab, buffer = task->buffers[MIST_ROLE_GRADIENTS + s];
    const struct mist_slab *slab = &flow_storage(at, task->layer, &m)->slabs[s];
    int64_t shard = flow_shard(at, slab), first = at->schedule->i_replica * shard;
    int64_t part_from, part_to, origin = first - task->from_offset_bytes;

    flow_require(at, buffer >= 0 && task->n_elements * 4 == shard, "norms nothing");
    flow_touch(at, buffer, task->from_offset_bytes, task->from_offset_bytes + shard,
               false);
    flow_part(at, slab, &part_from, &part_to);
    (void)part_to;
    flow_require(at, origin == 0 || origin == part_from || origin == first,
                 "the norm's offset is wrong");
    flow_expect_final(at, task->layer, s, buffer, first, first + shard);
    at->n_norms[m * MIST_MAX_SLABS + s]++;
}

static inline void run_transfer(struct flow *at, const struct mist_task *task)
{
    bool is_send =
        task->kind == MIST_TASK_SEND_ACTIVATION || task->kind == MIST_TASK_SEND_GRADIENT;
    bool is_gradient =
        task->kind == MIST_TASK_SEND_GRADIENT || task->kind == MIST_TASK_RECV_GRADIENT;
    int32_t buffer = task->buffers[is_send ? MIST_ROLE_INPUT : MIST_ROLE_OUTPUT];
    int64_t from = is_send ? task->from_offset_bytes : task->to_offset_bytes;
    struct value value = {.what = is_gradient ? ACTIVATION_GRADIENT : ACTIVATION,
                          .layer = task->layer,
                          .micro_batch = task->micro_batch};

    flow_require(at, buffer >= 0, "a transfer has no buffer");
    if (is_send) {
        flow_read(at, buffer, from, from + task->bytes, value, "nothing there to send");
    } else {
        flow_expect(at, buffer, from, from + task->bytes, (struct value){.what = NOTHING},
                    "something is received twice");
        flow_write(at, buffer, from, from + task->bytes, value);
    }
}

static inline void run_load(struct flow *at, const struct mist_task *task)
{
    int64_t bytes = 0;

    for (int i = 0; i < 2; i++) {
        int32_t buffer = task->buffers[i ? MIST_ROLE_TARGETS : MIST_ROLE_TOKENS];
        if (buffer < 0)
            continue;
        bytes += at->schedule->buffers[buffer].size_bytes;
        flow_write(at, buffer, 0, at->schedule->buffers[buffer].size_bytes,
                   (struct value){.what = IDS, .id = i});
    }
    flow_require(at, bytes == task->bytes && bytes > 0, "loads something else");
}

static inline void run_task(struct flow *at, int32_t i)
{
    const struct mist_task *task = &at->schedule->tasks[i];

    at->task = i;
    if (task->part >= 0) {
        run_part(at, task);
        return;
    }
    switch (task->kind) {
    case MIST_TASK_OPTIMIZER:
        run_optimizer(at, task);
        break;
    case MIST_TASK_GATHER_PARAMETER:
        run_gather(at, task);
        break;
    case MIST_TASK_REDUCE_GRADIENT:
        run_reduce(at, task);
        break;
    case MIST_TASK_TP_REDUCE_GRADIENT:
        run_tp_reduce(at, task);
        break;
    case MIST_TASK_TIE_GRADIENT:
        run_tie(at, task);
        break;
    case MIST_TASK_ACCUMULATE_GRADIENT:
        run_accumulate(at, task);
        break;
    case MIST_TASK_GRADIENT_NORM:
        run_norm(at, task);
        break;
    case MIST_TASK_LOAD_BATCH:
        run_load(at, task);
        break;
    case MIST_TASK_REDUCE_NORM: /* of all losses, norms and faults found */
        flow_require(at, i == at->schedule->n_tasks - 1,
                     "the norm is not exchanged last");
        for (int32_t k = 0; k < i; k++)
            if (at->schedule->tasks[k].stream == MIST_STREAM_COMPUTE ||
                at->schedule->tasks[k].kind == MIST_TASK_REDUCE_GRADIENT)
                flow_require(at, at->before[i][at->schedule->tasks[k].stream] >= k,
                             "the norm is exchanged too early");
        break;
    case MIST_TASK_SEND_ACTIVATION:
    case MIST_TASK_RECV_ACTIVATION:
    case MIST_TASK_SEND_GRADIENT:
    case MIST_TASK_RECV_GRADIENT:
        run_transfer(at, task);
        break;
    default:
        flow_require(at,
                     task->stream == MIST_STREAM_HOST_TO_DEVICE ||
                         task->stream == MIST_STREAM_DEVICE_TO_HOST,
                     "a task of an unknown kind");
        run_copy(at, task);
        break;
    }
}

/* ------------------------------------------------------------------------------ walks */

static inline bool flow_skips(const struct flow *at, const struct mist_task *task)
{
    switch (at->walk) {
    case WALK_FIRST:
        return task->is_update;
    case WALK_UPDATE:
        return !task->is_update && !task->feeds_update;
    case WALK_EVALUATE:
        return !task->is_forward;
    default:
        return false;
    }
}

/* What persistent buffers hold before the walk. */
static inline void flow_begin(struct flow *at)
{
    const struct mist_schedule *schedule = at->schedule;
    bool has_update = at->walk == WALK_STEADY || at->walk == WALK_UPDATE;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        struct value value = {.layer = buffer->layer, .id = buffer->slab};
        int32_t m = 0;
        if (!buffer->is_persistent)
            continue;
        if (buffer->role == MIST_ROLE_CONSTANT) {
            flow_put(at, i, 0, buffer->size_bytes, (struct value){.what = TABLE});
            continue;
        }
        if (buffer->slab < 0)
            continue;
        const struct mist_slab *slab =
            &flow_storage(at, buffer->layer, &m)->slabs[buffer->slab];
        if (buffer->role == MIST_ROLE_STATE) {
            value.what = STATE;
            value.version = !has_update;
        } else if (buffer->role >= MIST_ROLE_GRADIENTS) {
            value.what = OLD_GRADIENT;
            value.origin = flow_origin(at, slab, i);
        } else {
            value.what = WEIGHT;
            value.version = !has_update;
            value.origin = flow_origin(at, slab, i);
        }
        flow_put(at, i, 0, buffer->size_bytes, value);
    }
}

/* What they must hold after it. */
static inline void flow_end(struct flow *at)
{
    const struct mist_schedule *schedule = at->schedule;
    bool has_gradients = at->walk == WALK_STEADY || at->walk == WALK_FIRST;

    at->task = schedule->n_tasks - 1;
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        struct value value = {.layer = buffer->layer, .id = buffer->slab};
        int32_t m = 0;
        if (!buffer->is_persistent || buffer->slab < 0)
            continue;
        const struct mist_slab *slab =
            &flow_storage(at, buffer->layer, &m)->slabs[buffer->slab];
        int64_t from, to;
        flow_part(at, slab, &from, &to);
        if (buffer->role == MIST_ROLE_STATE) {
            value.what = STATE;
            value.version = 1;
            flow_expect(at, i, 0, buffer->size_bytes, value, "state at the end");
        } else if (buffer->role >= MIST_ROLE_GRADIENTS) {
            value.origin = flow_origin(at, slab, i);
            value.what = GRADIENT;
            if (has_gradients && !slab->is_alias)
                flow_expect_final(at, buffer->layer, buffer->slab, i, from, to);
        } else {
            value.what = WEIGHT;
            value.version = 1;
            value.origin = flow_origin(at, slab, i);
            flow_expect(at, i, 0, buffer->size_bytes, value, "weights at the end");
        }
    }
}

/* Every program of every module has run for every micro-batch, once; every norm, too. */
static inline void flow_check_counts(struct flow *at)
{
    bool is_whole = at->walk == WALK_STEADY || at->walk == WALK_FIRST;

    for (int32_t m = 0; m < at->schedule->n_modules; m++) {
        int32_t layer = at->schedule->modules[m];
        const struct mist_layer_layout *layout = flow_layout(at, layer);
        bool is_checkpointed =
            mist_schedule_is_checkpointed(at->plan, at->schedule->i_stage, layer);
        bool is_lean = mist_schedule_is_lean(at->plan, at->schedule->i_stage, layer);
        for (int32_t k = 0; k < at->plan->n_micro_batches; k++)
            for (int p = 0; p < MIST_N_PROGRAM_KINDS; p++) {
                int32_t n = at->n_parts_run[(m * at->plan->n_micro_batches + k) *
                                                MIST_N_PROGRAM_KINDS +
                                            p];
                int32_t n_expected = layout->programs[p].n_parts;
                if ((p == MIST_PROGRAM_RECOMPUTE && !is_checkpointed) ||
                    (p == MIST_PROGRAM_REMAKE && !is_lean))
                    n_expected = 0;
                if (p == MIST_PROGRAM_EVALUATE || at->walk == WALK_UPDATE ||
                    (at->walk == WALK_EVALUATE && p != MIST_PROGRAM_FORWARD))
                    n_expected = 0;
                if (at->walk == WALK_EVALUATE && n_expected > 0)
                    for (n_expected = 0;
                         n_expected < layout->programs[p].n_parts &&
                         layout->programs[p].parts[n_expected].first_step <
                             layout->programs[MIST_PROGRAM_EVALUATE].n_steps;)
                        n_expected++;
                if (n != n_expected)
                    fail_msg("%s: rank %d layer %d micro-batch %d program %d: %d of %d "
                             "parts",
                             walk_names[at->walk], (int)at->schedule->rank, (int)layer,
                             (int)k, p, (int)n, (int)n_expected);
            }
        for (int32_t s = 0; s < at->schedule->storage[m].n_slabs && is_whole; s++)
            assert_int_equal(at->n_norms[m * MIST_MAX_SLABS + s],
                             !at->schedule->storage[m].slabs[s].is_alias);
    }
}

/* All of one walk over a rank's schedule; before: the closure of its order. */
static inline void check_flow(const struct mist_plan *plan,
                              const struct mist_schedule *schedule,
                              int32_t (*before)[MIST_N_STREAMS], enum walk walk)
{
    static struct flow at;
    size_t n_counts =
        (size_t)(schedule->n_modules * plan->n_micro_batches) * MIST_N_PROGRAM_KINDS;

    at = (struct flow){
        .plan = plan,
        .stage = &plan->stages[schedule->i_stage],
        .schedule = schedule,
        .walk = walk,
        .before = before,
        .cells = calloc((size_t)schedule->n_buffers + 1, sizeof *at.cells),
        .n_parts_run = calloc(n_counts + 1, sizeof *at.n_parts_run),
        .task = -1,
    };
    assert_true(at.cells && at.n_parts_run);
    assert_true(schedule->n_modules * MIST_MAX_SLABS <= 512);
    flow_begin(&at);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (!flow_skips(&at, &schedule->tasks[i]))
            run_task(&at, i);
    if (walk != WALK_EVALUATE)
        flow_end(&at);
    flow_check_counts(&at);
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        free(at.cells[i].segments);
        free(at.cells[i].accesses);
    }
    free(at.cells);
    free(at.n_parts_run);
}

#endif
