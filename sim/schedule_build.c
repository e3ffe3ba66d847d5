/*
 * Expands a plan into the task graph of one rank. See schedule.h.
 *
 * The stage's slots (pipeline_order.h) are walked in order; before each slot the
 * transfers whose logical time falls before the slot's end are dispatched
 * (schedule_transfer.c). A slot becomes one compute task per module (two where a
 * checkpointed block is recomputed), with the optimizer step in front of the first
 * micro-batch and the gradient reduction behind the last (see interleaves()).
 */
#include "core/memory.h" /* mist_grow */
#include "sim/memory_planner.h"
#include "sim/schedule_internal.h"

#include <stdlib.h>
#include <string.h>

static enum mist_layer_kind kind_of(const struct mist_schedule_builder *at, int32_t layer)
{
    return mist_schedule_layer_kind(&at->plan->model, layer);
}

static const struct mist_layer_layout *layout_of(const struct mist_schedule_builder *at,
                                                 int32_t layer)
{
    return &at->out->layouts[kind_of(at, layer)];
}

static int64_t padded_bytes(const struct mist_schedule_builder *at, int32_t layer)
{
    return 4 * mist_schedule_padded_elements(layout_of(at, layer)->n_parameters,
                                             at->stage->dp);
}

/* ------------------------------------------------------------------------- persistent */

static void add_persistent(struct mist_schedule_builder *at)
{
    int64_t batch_bytes = (int64_t)4 * at->plan->n_micro_batches *
                          at->stage->micro_batch * at->plan->job.seq_len;
    int32_t n_shards = at->stage->shards_optimizer ? at->stage->dp : 1;

    for (int32_t layer = at->first; layer <= at->last; layer++) {
        int64_t size = padded_bytes(at, layer);
        int64_t state = size / 4 * mist_dtype_state_bytes(at->plan->job.dtype) / n_shards;
        int32_t i = layer - at->first;
        at->weights[i] =
            mist_schedule_add_buffer(at, MIST_ROLE_WEIGHTS, layer, -1, size, true);
        at->gradients[i] =
            mist_schedule_add_buffer(at, MIST_ROLE_GRADIENTS, layer, -1, size, true);
        at->state[i] =
            mist_schedule_add_buffer(at, MIST_ROLE_STATE, layer, -1, state, true);
        at->gather_task[i] = -1;
    }
    at->tokens = at->targets = at->constant = -1;
    if (at->first == 0)
        at->tokens =
            mist_schedule_add_buffer(at, MIST_ROLE_TOKENS, -1, -1, batch_bytes, true);
    if (kind_of(at, at->last) == MIST_LAYER_HEAD)
        at->targets =
            mist_schedule_add_buffer(at, MIST_ROLE_TARGETS, -1, -1, batch_bytes, true);
    int64_t constant_bytes = at->out->layouts[MIST_LAYER_BLOCK].constant_bytes;
    if (constant_bytes > 0)
        at->constant = mist_schedule_add_buffer(at, MIST_ROLE_CONSTANT, -1, -1,
                                                constant_bytes, true);
}

/* Copies the iteration's token ids to the device, where the stage needs any. */
static void add_load(struct mist_schedule_builder *at)
{
    at->load_task = -1;
    if (at->tokens < 0 && at->targets < 0)
        return;
    int32_t task = mist_schedule_add_task(at, MIST_TASK_LOAD_BATCH,
                                          MIST_STREAM_HOST_TO_DEVICE, -1, -1);
    mist_schedule_use(at, task, MIST_ROLE_TOKENS, at->tokens);
    mist_schedule_use(at, task, MIST_ROLE_TARGETS, at->targets);
    if (task >= 0 && !at->is_out_of_memory) {
        int32_t ids[2] = {at->tokens, at->targets};
        for (int i = 0; i < 2; i++)
            if (ids[i] >= 0)
                at->out->tasks[task].bytes += at->out->buffers[ids[i]].size_bytes;
    }
    at->load_task = task;
}

/* ----------------------------------------------------------------------- collectives */

static int32_t add_collective(struct mist_schedule_builder *at, enum mist_task_kind kind,
                              int32_t layer, int32_t micro_batch, int32_t after)
{
    int32_t task =
        mist_schedule_add_task(at, kind, MIST_STREAM_GPU_GPU, layer, micro_batch);

    if (task < 0)
        return -1;
    at->out->tasks[task].group = MIST_GROUP_DP;
    at->out->tasks[task].tag = at->n_collectives++;
    at->out->tasks[task].bytes = padded_bytes(at, layer);
    mist_schedule_depend(at, task, after);
    return task;
}

/* The optimizer step of a module and, where its state is sharded, the gather of its new
 * parameters. */
static void add_update(struct mist_schedule_builder *at, int32_t layer)
{
    int32_t i = layer - at->first;
    int32_t task =
        mist_schedule_add_task(at, MIST_TASK_OPTIMIZER, MIST_STREAM_COMPUTE, layer, -1);

    mist_schedule_use(at, task, MIST_ROLE_WEIGHTS, at->weights[i]);
    mist_schedule_use(at, task, MIST_ROLE_GRADIENTS, at->gradients[i]);
    mist_schedule_use(at, task, MIST_ROLE_STATE, at->state[i]);
    if (task >= 0)
        at->out->tasks[task].is_update = true;
    at->gather_task[i] = task;
    if (!at->stage->shards_optimizer || at->stage->dp == 1)
        return;
    int32_t gather = add_collective(at, MIST_TASK_GATHER_PARAMETER, layer, -1, task);
    mist_schedule_use(at, gather, MIST_ROLE_WEIGHTS, at->weights[i]);
    if (gather >= 0)
        at->out->tasks[gather].is_update = true;
    at->gather_task[i] = gather;
}

static void add_reduce(struct mist_schedule_builder *at, int32_t layer, int32_t after)
{
    if (at->stage->dp == 1)
        return;
    int32_t task = add_collective(at, MIST_TASK_REDUCE_GRADIENT, layer,
                                  at->plan->n_micro_batches - 1, after);
    mist_schedule_use(at, task, MIST_ROLE_GRADIENTS, at->gradients[layer - at->first]);
}

/* ----------------------------------------------------------------------------- slots */

/* Operands that forward, recomputation and backward of a module share. */
static void use_module(struct mist_schedule_builder *at, int32_t task, int32_t layer,
                       int32_t micro_batch)
{
    enum mist_layer_kind kind = kind_of(at, layer);

    mist_schedule_use(at, task, MIST_ROLE_WEIGHTS, at->weights[layer - at->first]);
    if (kind == MIST_LAYER_EMBEDDING)
        mist_schedule_use(at, task, MIST_ROLE_TOKENS, at->tokens);
    else
        mist_schedule_use(at, task, MIST_ROLE_INPUT,
                          mist_schedule_activation(at, layer, micro_batch));
    if (kind == MIST_LAYER_HEAD)
        mist_schedule_use(at, task, MIST_ROLE_TARGETS, at->targets);
    if (kind == MIST_LAYER_BLOCK)
        mist_schedule_use(at, task, MIST_ROLE_CONSTANT, at->constant);
}

/* A buffer that only this task uses. */
static void use_scratch(struct mist_schedule_builder *at, int32_t task, int32_t layer,
                        int32_t micro_batch, int64_t size_bytes)
{
    if (size_bytes > 0)
        mist_schedule_use(at, task, MIST_ROLE_SCRATCH,
                          mist_schedule_add_buffer(at, MIST_ROLE_SCRATCH, layer,
                                                   micro_batch, size_bytes, false));
}

static int32_t new_saved(struct mist_schedule_builder *at, int32_t layer,
                         int32_t micro_batch)
{
    int64_t size = layout_of(at, layer)->saved_bytes;

    if (size == 0)
        return -1;
    return mist_schedule_add_buffer(at, MIST_ROLE_SAVED, layer, micro_batch, size, false);
}

static void add_forward(struct mist_schedule_builder *at, int32_t layer,
                        int32_t micro_batch)
{
    const struct mist_layer_layout *layout = layout_of(at, layer);
    int32_t task = mist_schedule_add_task(at, MIST_TASK_FORWARD, MIST_STREAM_COMPUTE,
                                          layer, micro_batch);
    int32_t saved = new_saved(at, layer, micro_batch);

    use_module(at, task, layer, micro_batch);
    mist_schedule_use(at, task, MIST_ROLE_SAVED, saved);
    use_scratch(at, task, layer, micro_batch, layout->scratch_forward_bytes);
    if (!mist_schedule_is_checkpointed(at->plan, at->out->i_stage, layer))
        at->saved[mist_schedule_cell(at, layer, micro_batch)] = saved;
    if (layout->kind == MIST_LAYER_HEAD) /* its weight gradient is part of its forward */
        mist_schedule_use(at, task, MIST_ROLE_GRADIENTS,
                          at->gradients[layer - at->first]);
    else
        mist_schedule_use(at, task, MIST_ROLE_OUTPUT,
                          mist_schedule_activation(at, layer + 1, micro_batch));
    if (layout->kind != MIST_LAYER_BLOCK && micro_batch == 0)
        mist_schedule_depend(at, task, at->load_task);
    if (micro_batch == 0)
        mist_schedule_depend(at, task, at->gather_task[layer - at->first]);
    if (layer == at->first && layer > 0)
        mist_schedule_depend(at, task, at->produced_by[micro_batch]);
    if (layer == at->last)
        at->made_by[micro_batch] = task;
}

static void add_recompute(struct mist_schedule_builder *at, int32_t layer,
                          int32_t micro_batch)
{
    int32_t task = mist_schedule_add_task(at, MIST_TASK_RECOMPUTE, MIST_STREAM_COMPUTE,
                                          layer, micro_batch);
    int32_t saved = new_saved(at, layer, micro_batch);

    use_module(at, task, layer, micro_batch);
    mist_schedule_use(at, task, MIST_ROLE_SAVED, saved);
    use_scratch(at, task, layer, micro_batch,
                layout_of(at, layer)->scratch_forward_bytes);
    at->saved[mist_schedule_cell(at, layer, micro_batch)] = saved;
}

static int32_t add_backward(struct mist_schedule_builder *at, int32_t layer,
                            int32_t micro_batch)
{
    const struct mist_layer_layout *layout = layout_of(at, layer);

    if (mist_schedule_is_checkpointed(at->plan, at->out->i_stage, layer))
        add_recompute(at, layer, micro_batch);
    int32_t task = mist_schedule_add_task(at, MIST_TASK_BACKWARD, MIST_STREAM_COMPUTE,
                                          layer, micro_batch);
    use_module(at, task, layer, micro_batch);
    mist_schedule_use(at, task, MIST_ROLE_SAVED,
                      at->saved[mist_schedule_cell(at, layer, micro_batch)]);
    use_scratch(at, task, layer, micro_batch, layout->scratch_backward_bytes);
    mist_schedule_use(at, task, MIST_ROLE_GRADIENTS, at->gradients[layer - at->first]);
    if (layout->kind != MIST_LAYER_HEAD)
        mist_schedule_use(at, task, MIST_ROLE_GRAD_OUTPUT,
                          mist_schedule_activation_gradient(at, layer + 1, micro_batch));
    if (layout->kind != MIST_LAYER_EMBEDDING)
        mist_schedule_use(at, task, MIST_ROLE_GRAD_INPUT,
                          mist_schedule_activation_gradient(at, layer, micro_batch));
    if (layer == at->last && layout->kind != MIST_LAYER_HEAD)
        mist_schedule_depend(at, task,
                             at->produced_by[at->plan->n_micro_batches + micro_batch]);
    if (layer == at->first)
        at->made_by[at->plan->n_micro_batches + micro_batch] = task;
    return task;
}

/*
 * Where the update and the reduction go. The first stage has no pause around its
 * micro-batches: there both are taken apart by module and run beside the first forward
 * and the last backward. A later stage pauses before its first input arrives and after
 * its last gradient has left: there the whole update comes before the first transfer, the
 * whole reduction behind the last, and neither stands in the way of the pipeline.
 */
static bool interleaves(const struct mist_schedule_builder *at)
{
    return at->out->i_stage == 0;
}

static void add_forward_slot(struct mist_schedule_builder *at, int32_t micro_batch)
{
    bool updates = interleaves(at) && micro_batch == 0;

    if (updates)
        add_update(at, at->first);
    for (int32_t layer = at->first; layer <= at->last; layer++) {
        if (updates && layer < at->last)
            add_update(at, layer + 1);
        add_forward(at, layer, micro_batch);
    }
}

static void add_backward_slot(struct mist_schedule_builder *at, int32_t micro_batch)
{
    bool reduces = interleaves(at) && micro_batch == at->plan->n_micro_batches - 1;

    for (int32_t layer = at->last; layer >= at->first; layer--) {
        int32_t task = add_backward(at, layer, micro_batch);
        if (reduces)
            add_reduce(at, layer, task);
    }
}

/* ----------------------------------------------------------------------------- whole */

static bool costs_the_same(const struct mist_model *model, const struct mist_task *a,
                           const struct mist_task *b)
{
    return a->kind == b->kind && a->bytes == b->bytes && a->peer == b->peer &&
           (a->layer < 0 || mist_schedule_layer_kind(model, a->layer) ==
                                mist_schedule_layer_kind(model, b->layer));
}

/* Gives tasks that cost the same one number; there are a few dozen different ones. */
static enum mist_status number_costs(struct mist_schedule_builder *at)
{
    struct mist_schedule *out = at->out;
    int32_t *first_of = NULL; /* [n_costs] first task of each cost */
    size_t capacity = 0;

    for (int32_t i = 0; i < out->n_tasks; i++) {
        struct mist_task *task = &out->tasks[i];
        int32_t cost = 0;
        while (cost < out->n_costs &&
               !costs_the_same(&at->plan->model, &out->tasks[first_of[cost]], task))
            cost++;
        task->cost = cost;
        if (cost < out->n_costs)
            continue;
        int32_t *grown =
            mist_grow(first_of, &capacity, (size_t)out->n_costs + 1, sizeof *first_of);
        if (!grown) {
            free(first_of);
            return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
        }
        first_of = grown;
        first_of[out->n_costs++] = i;
    }
    free(first_of);
    return MIST_OK;
}

static bool alloc_tables(struct mist_schedule_builder *at)
{
    size_t n = (size_t)at->n_layers, g = (size_t)at->plan->n_micro_batches;
    int32_t **tables[] = {&at->weights,     &at->gradients,   &at->state,
                          &at->gather_task, &at->boundary,    &at->grad,
                          &at->saved,       &at->produced_by, &at->made_by};
    size_t sizes[] = {n, n, n, n, (n + 1) * g, (n + 1) * g, (n + 1) * g, 2 * g, 2 * g};

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        *tables[i] = malloc(sizes[i] * sizeof **tables[i]);
        if (!*tables[i])
            return false;
        memset(*tables[i], -1, sizes[i] * sizeof **tables[i]);
    }
    return true;
}

static void free_tables(struct mist_schedule_builder *at)
{
    free(at->weights);
    free(at->gradients);
    free(at->state);
    free(at->gather_task);
    free(at->boundary);
    free(at->grad);
    free(at->saved);
    free(at->produced_by);
    free(at->made_by);
    free(at->deps);
    free(at->transfers);
    mist_pipeline_order_fini(&at->order);
}

static void expand(struct mist_schedule_builder *at)
{
    const struct mist_slot *slots =
        at->order.slots +
        (size_t)at->out->i_stage * 2 * (size_t)at->plan->n_micro_batches;

    add_persistent(at);
    add_load(at);
    mist_schedule_list_transfers(at);
    if (!interleaves(at))
        for (int32_t layer = at->first; layer <= at->last; layer++)
            add_update(at, layer);
    for (int32_t i = 0; i < 2 * at->plan->n_micro_batches && !at->is_out_of_memory; i++) {
        mist_schedule_add_transfers_before(at, slots[i].end);
        if (slots[i].is_backward)
            add_backward_slot(at, slots[i].micro_batch);
        else
            add_forward_slot(at, slots[i].micro_batch);
    }
    mist_schedule_add_transfers_before(at, INT32_MAX);
    if (!interleaves(at)) /* behind the last compute task of all */
        for (int32_t layer = at->last; layer >= at->first; layer--)
            add_reduce(at, layer, at->made_by[2 * at->plan->n_micro_batches - 1]);
}

/* Buffers that outlive the iteration live from its first to its last task. */
static void stretch_persistent(struct mist_schedule *out)
{
    for (int32_t i = 0; i < out->n_buffers; i++) {
        if (!out->buffers[i].is_persistent)
            continue;
        out->buffers[i].first_task = 0;
        out->buffers[i].last_task = out->n_tasks - 1;
    }
}

static enum mist_status make_layouts(const struct mist_catalog *catalog,
                                     const struct mist_schedule_builder *at,
                                     int32_t threads)
{
    struct mist_layer_shape shape = {
        .micro_batch = at->stage->micro_batch,
        .seq = at->plan->job.seq_len,
        .tp = at->stage->tp,
        .threads = threads,
    };

    for (int i = 0; i < MIST_N_LAYER_KINDS; i++) {
        enum mist_status status = mist_layer_layout_make(
            catalog, (enum mist_layer_kind)i, shape, &at->out->layouts[i], at->err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}

static enum mist_status build(struct mist_schedule_builder *at,
                              const struct mist_catalog *catalog, int32_t threads)
{
    enum mist_status status = make_layouts(catalog, at, threads);

    if (status != MIST_OK)
        return status;
    status = mist_pipeline_order_init(&at->order, at->plan->n_stages,
                                      at->plan->n_micro_batches, at->err);
    if (status != MIST_OK)
        return status;
    if (!alloc_tables(at))
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    expand(at);
    if (at->is_out_of_memory)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    stretch_persistent(at->out);
    status = number_costs(at);
    if (status != MIST_OK)
        return status;
    status = mist_schedule_set_deps(at->out, at->deps, at->n_deps, at->err);
    return status == MIST_OK ? mist_memory_plan(at->out, at->err) : status;
}

enum mist_status mist_schedule_build(const struct mist_catalog *catalog,
                                     const struct mist_plan *plan, int32_t rank,
                                     int32_t threads, struct mist_schedule **out,
                                     struct mist_err *err)
{
    enum mist_status status = mist_schedule_supports(plan, err);

    if (status != MIST_OK)
        return status;
    struct mist_schedule *schedule = calloc(1, sizeof *schedule);
    if (!schedule)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    schedule->rank = rank;
    mist_plan_locate_rank(plan, rank, &schedule->i_stage, &schedule->i_dp,
                          &schedule->i_tp);
    struct mist_schedule_builder at = {
        .plan = plan,
        .stage = &plan->stages[schedule->i_stage],
        .out = schedule,
        .err = err,
    };
    mist_schedule_stage_layers(plan, schedule->i_stage, &at.first, &at.last);
    at.n_layers = at.last - at.first + 1;
    status = build(&at, catalog, threads);
    free_tables(&at);
    if (status != MIST_OK) {
        mist_schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return MIST_OK;
}
