/*
 * Expands a plan into the task graph of one rank. See schedule.h.
 *
 * The stage's slots (pipeline_order.h) become passes, one per module. For every pass, in
 * order: transfers between stages that are due, what the next pass needs
 * (schedule_fetch.c), its computation (schedule_pass.c), work on sums that earlier passes
 * left (schedule_leave.c), and what it leaves itself.
 */
#include "core/host_memory.h"
#include "core/memory.h" /* mist_grow */
#include "core/parse.h"
#include "sim/model/framework.h"
#include "sim/schedule/memory_planner.h"
#include "sim/schedule/schedule_internal.h"

#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------------------- passes */

static bool has_program(const struct mist_schedule_builder *at, int32_t layer,
                        enum mist_program_kind program)
{
    return mist_schedule_layout_of(at, layer)->programs[program].n_parts > 0;
}

/* The passes of one slot, appended; modules without work in its direction have none. */
static void list_slot(struct mist_schedule_builder *at, const struct mist_slot *slot)
{
    int32_t first = at->chunk_first[slot->chunk], last = at->chunk_last[slot->chunk];
    int32_t start = at->n_passes;
    bool is_forward = slot->kind == MIST_SLOT_FORWARD;

    for (int32_t i = 0; i <= last - first; i++) {
        int32_t layer = is_forward ? first + i : last - i;
        if (!has_program(at, layer, mist_schedule_slot_program(slot->kind)))
            continue;
        struct mist_schedule_pass pass = {
            .slot = slot,
            .i_in_slot = at->n_passes - start,
            .layer = layer,
            .i_module = mist_schedule_module_of(at, layer),
            .completes_gradients =
                !is_forward && (slot->kind != MIST_SLOT_BACKWARD_INPUT ||
                                !has_program(at, layer, MIST_PROGRAM_BACKWARD_WEIGHT)),
        };
        size_t cell = mist_schedule_cell(at, pass.i_module, slot->micro_batch);
        if (!is_forward && at->backward_pass[cell] < 0)
            at->backward_pass[cell] = at->n_passes;
        at->passes[at->n_passes++] = pass;
    }
}

/* All ranks learn the loss, the norm of all gradients and whether anything is not finite,
 * which decide how the next iteration's optimizer step goes. */
static void add_norm_exchange(struct mist_schedule_builder *at)
{
    if (mist_plan_n_ranks(at->plan) == 1)
        return;
    int32_t task =
        mist_schedule_add_task(at, MIST_TASK_REDUCE_NORM, MIST_STREAM_GPU_GPU, -1, -1);
    mist_schedule_depend(at, task, at->last_compute);
    if (task < 0)
        return;
    at->out->tasks[task].group = MIST_GROUP_ALL;
    at->out->tasks[task].bytes = MIST_NORM_EXCHANGE_BYTES;
}

/* Another framework's fp32 copy of the gradients, for the optimizer step: it lives when
 * activations are gone, beside state that is on the device. */
static void add_gradient_copy(struct mist_schedule_builder *at)
{
    const struct mist_job *job = &at->plan->job;
    int32_t copy_bytes = mist_framework_copy_bytes(job->framework, job->gradient_dtype);
    int64_t state_bytes = 0;

    for (int32_t i = 0; i < at->out->n_buffers; i++) {
        const struct mist_buffer *buffer = &at->out->buffers[i];
        if (buffer->is_persistent && buffer->role == MIST_ROLE_STATE &&
            buffer->arena == MIST_ARENA_DEVICE)
            state_bytes += buffer->size_bytes;
    }
    if (copy_bytes == 0 || state_bytes == 0)
        return;
    int32_t copy = mist_schedule_add_buffer(
        at, MIST_ARENA_DEVICE, MIST_ROLE_STATE, -1, -1,
        state_bytes / mist_dtype_state_bytes(job->dtype) * copy_bytes, false);
    if (copy >= 0)
        at->out->buffers[copy].first_task = at->out->buffers[copy].last_task =
            at->out->n_tasks - 1;
}

/* A module that comes twice in a row adds to gradients that the first time leaves. */
static bool follows_itself(const struct mist_schedule_builder *at, int32_t i_pass)
{
    return i_pass > 0 && at->passes[i_pass].i_module == at->passes[i_pass - 1].i_module &&
           at->passes[i_pass].slot->micro_batch !=
               at->passes[i_pass - 1].slot->micro_batch;
}

static void expand(struct mist_schedule_builder *at)
{
    const struct mist_slot *slots =
        at->order.slots + (size_t)at->out->i_stage * (size_t)at->order.n_slots;

    for (int32_t i = 0; i < at->order.n_slots; i++)
        list_slot(at, &slots[i]);
    mist_schedule_add_persistent(at);
    mist_schedule_list_transfers(at);
    if (mist_schedule_steps_in_front(&at->plan->job, at->out->i_stage))
        mist_schedule_add_all_updates(at);
    mist_schedule_fetch(at, 0);
    mist_schedule_fetch_gradients(at, 0);
    for (int32_t i = 0; i < at->n_passes && !at->is_out_of_memory; i++) {
        bool is_late = i + 1 < at->n_passes && follows_itself(at, i + 1);
        if (at->passes[i].i_in_slot == 0)
            mist_schedule_add_due_transfers(at, at->passes[i].slot);
        if (i + 1 < at->n_passes)
            mist_schedule_fetch(at, i + 1);
        if (i + 1 < at->n_passes && !is_late)
            mist_schedule_fetch_gradients(at, i + 1);
        mist_schedule_compute(at, i);
        if (i + 1 >= at->n_passes || at->stepped.i_module != at->passes[i + 1].i_module)
            mist_schedule_swap_out_state(at);
        mist_schedule_settle(at, -1);
        mist_schedule_swap_out(at);
        mist_schedule_leave(at, i);
        if (is_late)
            mist_schedule_fetch_gradients(at, i + 1);
    }
    mist_schedule_add_due_transfers(at, NULL);
    mist_schedule_reduce_rest(at);
    add_norm_exchange(at);
    add_gradient_copy(at);
}

/* ------------------------------------------------------------------------------ costs */

static bool costs_the_same(const struct mist_model *model, const struct mist_task *a,
                           const struct mist_task *b)
{
    return a->kind == b->kind && a->stream == b->stream && a->bytes == b->bytes &&
           a->group == b->group && a->peer == b->peer && a->program == b->program &&
           a->part == b->part && a->n_elements == b->n_elements &&
           a->n_zeroed_elements == b->n_zeroed_elements &&
           (a->layer < 0) == (b->layer < 0) &&
           (a->layer < 0 || mist_schedule_layer_kind(model, a->layer) ==
                                mist_schedule_layer_kind(model, b->layer));
}

/* Gives tasks that cost the same one number; there are a few dozen different ones. */
static enum mist_status number_costs(struct mist_schedule_builder *at)
{
    struct mist_schedule *out = at->out;
    int32_t *first_of = NULL; /* [n_costs] first task of each cost */
    size_t capacity = 0;

    out->n_costs = 0;
    for (int32_t i = 0; i < out->n_tasks; i++) {
        struct mist_task *task = &out->tasks[i];
        int32_t cost = 0;
        while (first_of && cost < out->n_costs &&
               !costs_the_same(&at->plan->model, &out->tasks[first_of[cost]], task))
            cost++;
        task->cost = cost;
        if (cost < out->n_costs)
            continue;
        if (!MIST_RESERVE(first_of, capacity, out->n_costs + 1)) {
            free(first_of);
            return mist_err_memory(at->err, NULL);
        }
        first_of[out->n_costs++] = i;
    }
    free(first_of);
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- tables */

/* Modules of the rank, chunk by chunk. */
static bool list_modules(struct mist_schedule_builder *at)
{
    struct mist_schedule *out = at->out;
    size_t n_chunks = (size_t)mist_plan_n_chunks(at->plan);

    at->n_chunks = (int32_t)n_chunks;
    if (!MIST_CALLOC(at->chunk_first, n_chunks) ||
        !MIST_CALLOC(at->chunk_last, n_chunks) || !MIST_CALLOC(at->chunk_base, n_chunks))
        return false;
    for (int32_t c = 0; c < at->n_chunks; c++) {
        mist_schedule_chunk_layers(at->plan, out->i_stage, c, &at->chunk_first[c],
                                   &at->chunk_last[c]);
        if (c > 0 && at->chunk_first[c] == at->chunk_last[c - 1] + 1)
            at->n_boundaries--; /* the chunk before hands its output on */
        at->chunk_base[c] = at->n_boundaries;
        out->n_modules += at->chunk_last[c] - at->chunk_first[c] + 1;
        at->n_boundaries += at->chunk_last[c] - at->chunk_first[c] + 2;
    }
    if (!MIST_CALLOC(out->modules, out->n_modules) ||
        !MIST_CALLOC(out->storage, out->n_modules))
        return false;
    for (int32_t c = 0, n = 0; c < at->n_chunks; c++)
        for (int32_t layer = at->chunk_first[c]; layer <= at->chunk_last[c]; layer++)
            out->modules[n++] = layer;
    return true;
}

static bool alloc_tables(struct mist_schedule_builder *at)
{
    size_t n = (size_t)at->out->n_modules, g = (size_t)at->plan->n_micro_batches;
    size_t b = (size_t)at->n_boundaries;
    const struct {
        int32_t **table;
        size_t size;
    } tables[] = {{&at->fresh, n * MIST_MAX_SLABS * g},
                  {&at->is_touched, n * MIST_MAX_SLABS * g},
                  {&at->activation, b * g},
                  {&at->gradient, b * g},
                  {&at->input_host, b * g},
                  {&at->saved[MIST_SAVED_HERE], n * g},
                  {&at->saved[MIST_SAVED_SWAPPED], n * g},
                  {&at->saved[MIST_SAVED_REMADE], n * g},
                  {&at->swapped_host, n * g},
                  {&at->deferred, n * g},
                  {&at->backward_pass, n * g}};

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++) {
        size_t bytes = tables[i].size * sizeof **tables[i].table;
        *tables[i].table = malloc(bytes);
        if (!*tables[i].table)
            return false;
        memset(*tables[i].table, -1, bytes);
    }
    /* every slot has a pass for each module of a chunk at most */
    if (!MIST_CALLOC(at->passes, (size_t)at->order.n_slots * n + 1) ||
        !MIST_MALLOC(at->slabs, n * MIST_MAX_SLABS))
        return false;
    memset(at->slabs, -1, n * MIST_MAX_SLABS * sizeof *at->slabs);
    return true;
}

static void free_tables(struct mist_schedule_builder *at)
{
    int32_t *tables[] = {
        at->fresh,
        at->is_touched,
        at->activation,
        at->gradient,
        at->input_host,
        at->saved[MIST_SAVED_HERE],
        at->saved[MIST_SAVED_SWAPPED],
        at->saved[MIST_SAVED_REMADE],
        at->swapped_host,
        at->deferred,
        at->backward_pass,
        at->chunk_first,
        at->chunk_last,
        at->chunk_base,
    };

    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        free(tables[i]);
    free(at->passes);
    free(at->slabs);
    mist_waits_fini(&at->waits);
    free(at->writers);
    free(at->transfers);
    mist_pipeline_order_fini(&at->order);
}

/* ----------------------------------------------------------------------------- whole */

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

static enum mist_status make_layouts(const struct mist_schedule_builder *at,
                                     int32_t threads)
{
    struct mist_layer_shape shape =
        mist_schedule_shape(at->plan, at->out->i_stage, threads);

    for (int i = 0; i < MIST_N_LAYER_KINDS; i++) {
        enum mist_status status =
            mist_layer_layout_make(&at->plan->model, (enum mist_layer_kind)i, shape,
                                   &at->out->layouts[i], at->err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}

/* Tasks of ours wait for room in an arena; PyTorch's allocator gives other memory than what
 * is still in use on another stream. */
static enum mist_status build(struct mist_schedule_builder *at, int32_t threads)
{
    enum mist_status status = make_layouts(at, threads);

    if (status != MIST_OK)
        return status;
    if (!list_modules(at))
        return mist_err_memory(at->err, NULL);
    mist_storage_make(at->plan, at->out->i_stage, at->out->layouts, at->out->modules,
                      at->out->n_modules, at->out->storage);
    status = mist_pipeline_order_init(&at->order, at->plan->pipeline, at->plan->n_stages,
                                      at->n_chunks, at->plan->n_micro_batches,
                                      at->plan->passes, at->err);
    if (status != MIST_OK)
        return status;
    if (!alloc_tables(at))
        return mist_err_memory(at->err, NULL);
    expand(at);
    if (at->is_out_of_memory)
        return mist_err_memory(at->err, NULL);
    stretch_persistent(at->out);
    status = number_costs(at);
    if (status != MIST_OK)
        return status;
    status = mist_schedule_set_deps(at->out, at->waits.deps, at->waits.n, at->err);
    return status == MIST_OK
               ? mist_memory_plan(at->out, at->plan->job.framework == MIST_FRAMEWORK_OURS,
                                  at->err)
               : status;
}

/* Gives back what the arrays grew beyond their ends: many schedules live at once. */
static enum mist_status trim(struct mist_schedule *out, struct mist_err *err)
{
    struct mist_task *tasks =
        realloc(out->tasks, ((size_t)out->n_tasks + 1) * sizeof *tasks);
    if (!tasks)
        return mist_err_memory(err, NULL);
    out->tasks = tasks;
    struct mist_buffer *buffers =
        realloc(out->buffers, ((size_t)out->n_buffers + 1) * sizeof *buffers);
    if (!buffers)
        return mist_err_memory(err, NULL);
    out->buffers = buffers;
    return MIST_OK;
}

/* Refuses what can't be held: each micro-batch passes each block twice, and a pass is one
 * task at least. */
static enum mist_status check_memory(const struct mist_schedule_builder *at)
{
    double bytes = 2.0 * at->plan->n_micro_batches * at->stage->n_layers *
                   (double)sizeof(struct mist_task);
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES];

    if (bytes < 0x1p30) /* asking takes longer than building most schedules */
        return MIST_OK;
    int64_t available_bytes = mist_host_memory_available_bytes();
    if (bytes <= (double)available_bytes)
        return MIST_OK;
    mist_format_bytes(needed, sizeof needed, bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX);
    mist_format_bytes(there, sizeof there, available_bytes);
    return mist_err_set(at->err, MIST_ERR_NO_PLAN,
                        "the schedule of a rank takes %s of memory at least, %s are "
                        "available; fewer micro-batches need less",
                        needed, there);
}

enum mist_status mist_schedule_build(const struct mist_plan *plan, int32_t rank,
                                     int32_t threads, struct mist_schedule **out,
                                     struct mist_err *err)
{
    struct mist_schedule *schedule = calloc(1, sizeof *schedule);

    if (!schedule)
        return mist_err_memory(err, NULL);
    schedule->rank = rank;
    schedule->i_stage = mist_plan_stage_of(plan, rank);
    schedule->mesh = mist_rank_mesh_make(plan, schedule->i_stage);
    for (int axis = 0; axis < MIST_N_AXES; axis++)
        schedule->at[axis] =
            mist_rank_mesh_at(&schedule->mesh, (enum mist_axis)axis, rank);
    schedule->i_replica = mist_rank_mesh_index(&schedule->mesh, MIST_GROUP_DP, rank);
    struct mist_schedule_builder at = {
        .plan = plan,
        .stage = &plan->stages[schedule->i_stage],
        .out = schedule,
        .err = err,
        .last_compute = -1,
        .last_transfer = -1,
        .collectives_behind = -1,
        .swapping_pass = -1,
        .stepped = {.i_module = -1},
    };
    mist_waits_init(&at.waits);
    enum mist_status status = check_memory(&at);
    if (status == MIST_OK)
        status = build(&at, threads);
    if (status == MIST_OK)
        status = trim(schedule, err);
    free_tables(&at);
    if (status != MIST_OK) {
        mist_schedule_free(schedule);
        return status;
    }
    *out = schedule;
    return MIST_OK;
}
