/* The runtime: life cycle and dispatch. The bodies of tasks are in runtime_task.c.
 * See runtime.h. */
#include "exec/runtime/runtime.h"

#include "core/clock.h"
#include "core/memory.h"
#include "exec/operators/bind.h"
#include "exec/operators/cpu_kernels.h" /* the rotary table, values of sums */
#include "exec/runtime/initial.h"
#include "exec/runtime/runtime_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- persistent buffers */

/* The rotary table. */
static enum mist_status fill_constant(struct mist_runtime *runtime, void *at,
                                      int64_t size_bytes, struct mist_err *err)
{
    const struct mist_model *model = &runtime->plan->model;
    float *table = malloc((size_t)size_bytes);

    if (!table)
        return mist_err_memory(err, NULL);
    const struct mist_chunks chunks =
        mist_schedule_chunks(runtime->plan, runtime->schedule);
    mist_cpu_rope_fill(table, &chunks, model);
    enum mist_status status =
        mist_device_write(runtime->device, at, table, size_bytes, err);
    free(table);
    return status;
}

/* The memory of a fresh device is zero. */
static enum mist_status fill_persistent(struct mist_runtime *runtime,
                                        struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int32_t n_processors = runtime->config.n_processors;
    struct mist_initial_parts parts = {runtime->device, runtime->operators,
                                       runtime->backend,
                                       n_processors > 1 ? n_processors : 1};
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < schedule->n_buffers && status == MIST_OK; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        if (buffer->is_persistent && buffer->role == MIST_ROLE_CONSTANT)
            status = fill_constant(runtime, mist_runtime_address(runtime, i),
                                   buffer->size_bytes, err);
    }
    return status == MIST_OK ? mist_initial_fill(runtime->plan, schedule, &parts,
                                                 runtime->config.seed, err)
                             : status;
}

enum mist_status mist_runtime_read_state(const struct mist_runtime *runtime,
                                         const struct mist_state_choice *choice,
                                         mist_state_read_fn *fn, void *context,
                                         struct mist_err *err)
{
    return mist_state_read(runtime->plan, runtime->schedule, runtime->device, choice, fn,
                           context, err);
}

enum mist_status mist_runtime_write_state(const struct mist_runtime *runtime,
                                          enum mist_state_kind kind,
                                          mist_state_write_fn *fn, void *context,
                                          struct mist_err *err)
{
    return mist_state_write(runtime->plan, runtime->schedule, runtime->device, kind,
                            false, fn, context, err);
}

/* ------------------------------------------------------------------------- life cycle */

/* The largest message of the tasks of a sort (in a group, unless that is NONE). */
static int64_t largest_message(const struct mist_schedule *schedule,
                               enum mist_task_sort sort, enum mist_group group)
{
    int64_t largest = 0;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (mist_task_kind_sort(task->kind) == sort &&
            (task->group == group || group == MIST_GROUP_NONE) && task->bytes > largest)
            largest = task->bytes;
    }
    return largest;
}

/* The group in which this rank does a task; its tags are those of its set of axes. */
static enum mist_status make_group(struct mist_runtime *runtime,
                                   const struct mist_task *task, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int32_t n = mist_rank_mesh_size(&schedule->mesh, task->group), rank = schedule->rank;
    int32_t *ranks = malloc((size_t)n * sizeof *ranks);

    if (!ranks)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < n; i++)
        ranks[i] = task->group != MIST_GROUP_PEER
                       ? mist_rank_mesh_member(&schedule->mesh, task->group, rank, i)
                   : (rank < task->peer) == (i == 0) ? rank
                                                     : task->peer;
    enum mist_status status = mist_collectives_group(
        runtime->collectives, ranks, n, (int32_t)task->group,
        largest_message(schedule, MIST_SORT_COLLECTIVE, task->group),
        &runtime->groups[task->group], err);
    free(ranks);
    return status;
}

/* One for each set of axes that has collectives, on all ranks in the same order. */
static enum mist_status make_groups(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    enum mist_status status = MIST_OK;

    for (int group = MIST_GROUP_NONE + 1; group < MIST_GROUP_ALL; group++)
        for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++)
            if ((int)schedule->tasks[i].group == group && !runtime->groups[group] &&
                mist_task_kind_sort(schedule->tasks[i].kind) == MIST_SORT_COLLECTIVE)
                status = make_group(runtime, &schedule->tasks[i], err);
    if (status != MIST_OK)
        return status;
    return mist_collectives_reserve(
        runtime->collectives,
        largest_message(schedule, MIST_SORT_TRANSFER, MIST_GROUP_NONE), err);
}

/* Which tasks somebody on another stream waits for, and the arguments of all bodies. */
static void prepare_bodies(struct mist_runtime *runtime)
{
    const struct mist_schedule *schedule = runtime->schedule;

    for (int32_t i = 0; i < schedule->n_deps; i++)
        runtime->is_awaited[schedule->deps[i]] = true;
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        runtime->bodies[i] = (struct mist_task_body){.runtime = runtime, .i_task = i};
}

int64_t mist_runtime_result_bytes(const struct mist_schedule *schedule)
{
    return schedule->n_tasks * (int64_t)sizeof(struct mist_tally);
}

enum mist_status mist_runtime_new(const struct mist_plan *plan,
                                  const struct mist_schedule *schedule,
                                  const struct mist_runtime_parts *parts,
                                  const struct mist_train_config *config,
                                  int32_t n_iterations, struct mist_runtime **out,
                                  struct mist_err *err)
{
    size_t n = (size_t)schedule->n_tasks;
    struct mist_runtime *runtime = calloc(1, sizeof *runtime);

    if (!runtime)
        return mist_err_memory(err, NULL);
    runtime->plan = plan;
    runtime->schedule = schedule;
    runtime->device = parts->device;
    runtime->comm = parts->comm;
    runtime->collectives = parts->collectives;
    runtime->operators = parts->operators;
    runtime->config = *config;
    runtime->n_iterations = n_iterations;
    runtime->n_spans = config->n_spans > 0 && config->n_spans < n_iterations
                           ? config->n_spans
                           : n_iterations;
    runtime->n_host_threads =
        mist_runtime_host_threads(config->n_threads, config->n_processors);
    runtime->loss_scale =
        (float)(1.0 / ((double)plan->job.global_batch * (double)plan->job.seq_len));
    enum mist_status status = MIST_OK;
    if (!MIST_CALLOC(runtime->bodies, n + 1) ||
        !MIST_CALLOC(runtime->is_awaited, n + 1) ||
        !MIST_CALLOC(runtime->spans, (size_t)runtime->n_spans + 1))
        status = mist_err_memory(err, NULL);
    if (status || (status = mist_runtime_prepare_times(runtime, err)) ||
        (status = mist_runtime_prepare_graph(runtime, err)) ||
        (status = make_groups(runtime, err)) ||
        (status = parts->operators->open(parts->device, plan->job.dtype,
                                         config->n_threads, &runtime->backend, err)) ||
        (status = mist_binding_prepare(schedule->layouts, MIST_N_LAYER_KINDS,
                                       schedule->at[MIST_AXIS_CP], &plan->model,
                                       plan->job.gradient_dtype, parts->operators,
                                       runtime->backend, err)))
        goto out;
    prepare_bodies(runtime);
    status = fill_persistent(runtime, err);
out:
    if (status != MIST_OK) {
        mist_runtime_free(runtime);
        return status;
    }
    mist_device_reset_events(parts->device, schedule->n_tasks);
    *out = runtime;
    return MIST_OK;
}

void mist_runtime_describe(const struct mist_runtime *runtime, int32_t i_device,
                           bool is_alone, struct mist_paths *out)
{
    *out = (struct mist_paths){.n_fallbacks = 0};
    runtime->operators->describe(runtime->backend, runtime->config.n_threads, out);
    mist_paths_describe_collectives(runtime->collectives, runtime->comm, i_device,
                                    is_alone, out);
    memcpy(out->graphs, runtime->graph.text, sizeof out->graphs);
}

void mist_runtime_free(struct mist_runtime *runtime)
{
    if (!runtime)
        return;
    runtime->operators->close(runtime->backend);
    free(runtime->bodies);
    free(runtime->is_awaited);
    free(runtime->spans);
    mist_runtime_free_times(runtime);
    free(runtime);
}

/* --------------------------------------------------------------------------- dispatch */

/* Whether a walk leaves a task out; it then only fires its event. */
static bool is_skipped(const struct mist_runtime *runtime, const struct mist_task *task)
{
    switch (runtime->walk) {
    case MIST_WALK_UPDATE:
        return !task->is_update && !task->feeds_update;
    case MIST_WALK_EVALUATION:
        return !task->is_forward;
    case MIST_WALK_ITERATION:
        break;
    }
    return task->is_update && !runtime->has_update;
}

/* Submits one task behind its dependencies. */
static enum mist_status dispatch(struct mist_runtime *runtime, int32_t i_task,
                                 struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_task *task = &schedule->tasks[i_task];
    enum mist_stream stream = mist_collectives_stream(runtime->collectives, task->stream);

    for (int32_t i = 0; i < task->n_deps; i++)
        mist_device_wait(runtime->device, stream, schedule->deps[task->dep_first + i]);
    if (!is_skipped(runtime, task))
        mist_device_submit(runtime->device, stream, mist_runtime_run_task,
                           &runtime->bodies[i_task]);
    if (runtime->is_awaited[i_task])
        mist_device_record(runtime->device, stream, i_task);
    return runtime->config.is_serial ? mist_device_synchronize(runtime->device, err)
                                     : MIST_OK;
}

enum mist_status mist_runtime_dispatch(struct mist_runtime *runtime, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < runtime->schedule->n_tasks && status == MIST_OK; i++)
        status = dispatch(runtime, i, err);
    return status;
}

/* Whether the tasks of the walk have a gradient to apply. */
static bool updates(const struct mist_runtime *runtime)
{
    return !runtime->skips_update &&
           (runtime->walk == MIST_WALK_UPDATE ||
            (runtime->walk == MIST_WALK_ITERATION && runtime->has_update));
}

/* Dispatches the tasks of one walk and waits for them. */
static enum mist_status walk(struct mist_runtime *runtime, enum mist_walk kind,
                             struct mist_err *err)
{
    enum mist_status status = mist_runtime_begin_times(
        runtime, kind == MIST_WALK_ITERATION ? runtime->n_done : runtime->n_iterations,
        err);

    if (status != MIST_OK)
        return status;
    runtime->walk = kind;
    runtime->where[0] = '\0';
    atomic_store(&runtime->n_faults, 0);
    mist_device_reset_events(runtime->device, runtime->schedule->n_tasks);
    if (updates(runtime))
        mist_operators_prepare_update(runtime->operators, runtime->backend,
                                      &runtime->update);
    status = updates(runtime) && mist_runtime_is_steady(runtime)
                 ? mist_runtime_walk_steady(runtime, err)
                 : mist_runtime_dispatch(runtime, err);
    enum mist_status end = mist_device_synchronize(runtime->device, err);
    status = status == MIST_OK ? end : status;
    return status == MIST_OK ? mist_runtime_end_times(runtime, err) : status;
}

/* What the walk left for the host, all streams idle. */
static enum mist_status fetch_and_exchange(struct mist_runtime *runtime,
                                           struct mist_err *err)
{
    mist_device_fetch_results(runtime->device);
    enum mist_status status = mist_device_synchronize(runtime->device, err);
    return status == MIST_OK ? mist_runtime_exchange(runtime, err) : status;
}

void mist_runtime_stop(struct mist_runtime *runtime)
{
    runtime->stops = true;
}

void mist_runtime_set_update(struct mist_runtime *runtime,
                             const struct mist_adamw_args *args, bool is_skipped)
{
    runtime->update = *args;
    runtime->skips_update = is_skipped;
}

/* A plan of one rank has no exchange among its tasks. */
static enum mist_status exchange_alone(struct mist_runtime *runtime, struct mist_err *err)
{
    return mist_comm_n_ranks(runtime->comm) == 1 ? fetch_and_exchange(runtime, err)
                                                 : MIST_OK;
}

/* What the ranks have told each other of a walk. */
static void read_result(const struct mist_runtime *runtime,
                        struct mist_step_result *result)
{
    *result = (struct mist_step_result){
        .loss_sum = runtime->loss_sum,
        .gradient_norm =
            sqrt(mist_cpu_sum_value(runtime->exchanged[0], runtime->exchanged[1])),
        .is_finite = runtime->exchanged[2] == 0,
        .stops = runtime->exchanged[3] > 0,
    };
    memcpy(result->where, runtime->where, sizeof result->where);
}

enum mist_status mist_runtime_step(struct mist_runtime *runtime, const int32_t *tokens,
                                   const int32_t *targets,
                                   struct mist_step_result *result, struct mist_err *err)
{
    int32_t i_iteration = runtime->n_done;
    bool was_chosen = runtime->graph.is_chosen;

    runtime->tokens = tokens;
    runtime->targets = targets;
    if (i_iteration < runtime->n_iterations)
        runtime->spans[i_iteration % runtime->n_spans].start_s = mist_clock_now_s();
    enum mist_status status = walk(runtime, MIST_WALK_ITERATION, err);
    if (status == MIST_OK)
        status = exchange_alone(runtime, err);
    if (i_iteration < runtime->n_iterations)
        runtime->spans[i_iteration % runtime->n_spans].end_s = mist_clock_now_s();
    runtime->n_done++;
    runtime->has_update = true;
    read_result(runtime, result);
    result->graphs = runtime->graph.is_chosen && !was_chosen ? runtime->graph.text : NULL;
    return status;
}

enum mist_status mist_runtime_apply(struct mist_runtime *runtime, struct mist_err *err)
{
    if (!runtime->has_update)
        return MIST_OK;
    runtime->has_update = false;
    return walk(runtime, MIST_WALK_UPDATE, err);
}

enum mist_status mist_runtime_evaluate(struct mist_runtime *runtime,
                                       const int32_t *tokens, const int32_t *targets,
                                       struct mist_step_result *result,
                                       struct mist_err *err)
{
    runtime->tokens = tokens;
    runtime->targets = targets;
    enum mist_status status = walk(runtime, MIST_WALK_EVALUATION, err);
    if (status == MIST_OK)
        status = fetch_and_exchange(runtime, err);
    read_result(runtime, result);
    return status;
}

/* ---------------------------------------------------------------------------- results */

void mist_runtime_span(const struct mist_runtime *runtime, int32_t i_iteration,
                       double *start_s, double *end_s)
{
    const struct mist_task_time *span = &runtime->spans[i_iteration % runtime->n_spans];

    *start_s = span->start_s;
    *end_s = span->end_s;
}
