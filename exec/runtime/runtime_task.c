/* The bodies of tasks: what each kind does on its stream. See runtime.h. */
#include "core/random.h"
#include "exec/operators/bind.h"
#include "exec/runtime/runtime_internal.h"

#include <math.h> /* isfinite */
#include <stdio.h>
#include <string.h>
#include <time.h> /* nanosleep */

char *mist_runtime_address(const struct mist_runtime *runtime, int32_t buffer)
{
    const struct mist_buffer *at = &runtime->schedule->buffers[buffer];

    return (char *)mist_device_arena(runtime->device, at->arena) + at->offset_bytes;
}

static char *role_address(const struct mist_runtime *runtime,
                          const struct mist_task *task, enum mist_role role)
{
    return task->buffers[role] < 0 ? NULL
                                   : mist_runtime_address(runtime, task->buffers[role]);
}

static float *floats(char *address)
{
    return (float *)(void *)address;
}

static const struct mist_layer_layout *layout_of(const struct mist_runtime *runtime,
                                                 const struct mist_task *task)
{
    return &runtime->schedule
                ->layouts[mist_schedule_layer_kind(&runtime->plan->model, task->layer)];
}

static enum mist_dtype gradient_dtype_of(const struct mist_runtime *runtime)
{
    return runtime->plan->job.gradient_dtype;
}

static int32_t gradient_bytes(const struct mist_runtime *runtime)
{
    return mist_dtype_gradient_bytes(gradient_dtype_of(runtime));
}

static int64_t buffer_elements(const struct mist_runtime *runtime,
                               const struct mist_task *task, enum mist_role role,
                               int32_t element_bytes)
{
    return runtime->schedule->buffers[task->buffers[role]].size_bytes / element_bytes;
}

/* ----------------------------------------------------------------------------- faults */

/* Something is not finite on this rank: the first such thing of the iteration is noted;
 * an error unless such iterations are skipped. Streams come here at once: one of them
 * writes runtime->where, and it is read when all are idle. */
static enum mist_status note_fault(struct mist_runtime *runtime,
                                   const struct mist_task *task, const char *what,
                                   const char *name, struct mist_err *err)
{
    char where[sizeof runtime->where];
    bool validates = runtime->walk == MIST_WALK_EVALUATION;

    snprintf(where, sizeof where, "rank %d, %s %lld, layer %d: %s%s%s is not finite",
             (int)runtime->schedule->rank, validates ? "validation after step" : "step",
             (long long)(runtime->config.n_steps_before + runtime->n_done + !validates),
             (int)task->layer, what, name[0] ? " of " : "", name);
    if (atomic_fetch_add(&runtime->n_faults, 1) == 0)
        memcpy(runtime->where, where, strlen(where) + 1);
    if (runtime->config.skips_nonfinite)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_RUN,
                        "%s; lower --lr, clip gradients, or go on without such steps by "
                        "--on-nan skip",
                        where);
}

/* The parameter that has element index of a slab; "" padding. */
static const char *name_of_element(const struct mist_runtime *runtime,
                                   const struct mist_task *task, int64_t index)
{
    const struct mist_layer_layout *layout = layout_of(runtime, task);
    const struct mist_module_storage *storage =
        mist_schedule_storage(runtime->schedule, task->layer);

    for (int32_t i = 0; i < layout->n_params; i++)
        if (storage->param_slab[i] == task->slab && index >= storage->param_offset[i] &&
            index < storage->param_offset[i] + layout->params[i].n_elements)
            return layout->params[i].name;
    return "";
}

static struct mist_tally *tally_of(const struct mist_runtime *runtime,
                                   const struct mist_task *task)
{
    return (struct mist_tally *)mist_device_results(runtime->device) +
           (task - runtime->schedule->tasks);
}

/* Whether what a task left for the host is finite. */
static enum mist_status check_tally(struct mist_runtime *runtime,
                                    const struct mist_task *task, struct mist_err *err)
{
    const struct mist_tally *tally =
        (const struct mist_tally *)mist_device_host_results(runtime->device) +
        (task - runtime->schedule->tasks);

    if (!isfinite(tally->loss_sum))
        return note_fault(runtime, task, "the loss", "", err);
    if (tally->n_nonfinite > 0)
        return note_fault(
            runtime, task, "the gradient",
            name_of_element(runtime, task, mist_tally_first_nonfinite(tally)), err);
    return MIST_OK;
}

/* On the host the result is there at once, and what is not finite spreads no further. */
static enum mist_status check_at_once(struct mist_runtime *runtime,
                                      const struct mist_task *task, struct mist_err *err)
{
    return runtime->device->ops->is_host ? check_tally(runtime, task, err) : MIST_OK;
}

/* ----------------------------------------------------------------------- computation */

static void make_binding(const struct mist_runtime *runtime, const struct mist_task *task,
                         struct mist_binding *out)
{
    *out = (struct mist_binding){
        .layout = layout_of(runtime, task),
        .storage = mist_schedule_storage(runtime->schedule, task->layer),
        .model = &runtime->plan->model,
        .micro_batch = task->micro_batch,
        .i_tp = runtime->schedule->at[MIST_AXIS_TP],
        .i_cp = runtime->schedule->at[MIST_AXIS_CP],
        .n_threads = runtime->config.n_threads,
        .loss_scale = runtime->loss_scale,
        .overwrites = task->overwrites,
        .gradient_dtype = gradient_dtype_of(runtime),
        .backend = runtime->backend,
    };
    for (int i = 0; i < MIST_N_ROLES; i++)
        out->base[i] = role_address(runtime, task, (enum mist_role)i);
}

static void zero_elements(struct mist_runtime *runtime, char *gradients, int64_t first,
                          int64_t end)
{
    if (first < end)
        runtime->operators->zero(runtime->backend, gradient_dtype_of(runtime),
                                 gradients + first * gradient_bytes(runtime), end - first,
                                 runtime->config.n_threads);
}

/* What lies behind each parameter of a slab, up to the next. */
static void zero_padding(struct mist_runtime *runtime, const struct mist_task *task,
                         int32_t i_slab, char *gradients)
{
    const struct mist_layer_layout *layout = layout_of(runtime, task);
    const struct mist_module_storage *storage =
        mist_schedule_storage(runtime->schedule, task->layer);

    for (int32_t i = 0; i < layout->n_params; i++) {
        int64_t next = storage->slabs[i_slab].n_elements;
        if (storage->param_slab[i] != i_slab)
            continue;
        for (int32_t k = 0; k < layout->n_params; k++)
            if (storage->param_slab[k] == i_slab &&
                storage->param_offset[k] > storage->param_offset[i] &&
                storage->param_offset[k] < next)
                next = storage->param_offset[k];
        zero_elements(runtime, gradients,
                      storage->param_offset[i] + layout->params[i].n_elements, next);
    }
}

static void zero_gradients(struct mist_runtime *runtime, const struct mist_task *task)
{
    for (int s = 0; s < MIST_MAX_SLABS; s++) {
        enum mist_role role = (enum mist_role)(MIST_ROLE_GRADIENTS + s);
        if (!(task->zeroes >> s & 1))
            continue;
        char *gradients = role_address(runtime, task, role);
        if (task->overwrites >> s & 1)
            zero_padding(runtime, task, s, gradients);
        else
            zero_elements(runtime, gradients, 0,
                          buffer_elements(runtime, task, role, gradient_bytes(runtime)));
    }
}

/* One part of a program; when only the loss is wanted, up to there. */
static enum mist_status run_part(struct mist_runtime *runtime,
                                 const struct mist_task *task, struct mist_err *err)
{
    struct mist_task_body *body = &runtime->bodies[task - runtime->schedule->tasks];
    struct mist_binding binding;
    enum mist_status status = MIST_OK;

    make_binding(runtime, task, &binding);
    const struct mist_program *program = &binding.layout->programs[task->program];
    const struct mist_part *part = &program->parts[task->part];
    int32_t end = part->first_step + part->n_steps;
    int32_t n_evaluated = binding.layout->programs[MIST_PROGRAM_EVALUATE].n_steps;
    enum mist_program_kind kind = task->program;
    if (runtime->walk == MIST_WALK_EVALUATION)
        kind = MIST_PROGRAM_EVALUATE; /* the first steps of the forward program */
    if (kind == MIST_PROGRAM_EVALUATE && end > n_evaluated)
        end = n_evaluated;
    zero_gradients(runtime, task);
    for (int32_t i = part->first_step; i < end && status == MIST_OK; i++) {
        struct mist_step_args args;
        mist_binding_resolve(&binding, kind, i, &args);
        mist_runtime_enter_step(body, i);
        runtime->operators->run_step(&args);
        if (mist_op_has_losses(args.step->op)) {
            mist_runtime_enter_step(body, -1);
            runtime->operators->sum_losses(runtime->backend,
                                           args.operands[MIST_ARG_LOSS_LOSSES],
                                           args.step->dims[0], tally_of(runtime, task));
            status = check_at_once(runtime, task, err);
        }
    }
    mist_runtime_enter_step(body, -1);
    return status;
}

/* AdamW on this rank's shard of a slab. On the host the CPU's kernel, in the stream's
 * thread. */
static void run_optimizer(struct mist_runtime *runtime, const struct mist_task *task)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_module_storage *storage =
        mist_schedule_storage(schedule, task->layer);
    enum mist_role weights = (enum mist_role)(MIST_ROLE_WEIGHTS + task->slab);
    enum mist_role gradients = (enum mist_role)(MIST_ROLE_GRADIENTS + task->slab);
    int64_t n_whole = storage->slabs[task->slab].n_elements, n = task->n_elements;
    int64_t first = n < n_whole ? n * schedule->i_replica : 0;
    int32_t weight_bytes = mist_dtype_weight_bytes(runtime->plan->job.dtype);
    bool on_host = task->stream == MIST_STREAM_HOST;
    struct mist_binding_update update = {
        .layout = layout_of(runtime, task),
        .storage = storage,
        .i_slab = task->slab,
        .first = first,
        .n = n,
        .weights = role_address(runtime, task, weights),
        .gradients = role_address(runtime, task, gradients),
        .gradient_dtype = gradient_dtype_of(runtime),
        .state = floats(role_address(runtime, task, MIST_ROLE_STATE)),
        .backend = on_host ? NULL : runtime->backend,
        .n_threads = on_host ? runtime->n_host_threads : runtime->config.n_threads,
    };

    /* buffers have the whole slab or the shard alone */
    if (buffer_elements(runtime, task, weights, weight_bytes) < n_whole)
        update.weights_first = first;
    if (buffer_elements(runtime, task, gradients, gradient_bytes(runtime)) < n_whole)
        update.gradients_first = first;
    if (!runtime->skips_update)
        mist_binding_run_adamw(&update, &runtime->update,
                               on_host ? &mist_operators_cpu : runtime->operators);
}

static void run_accumulate(struct mist_runtime *runtime, const struct mist_task *task)
{
    const char *from = role_address(runtime, task, MIST_ROLE_INPUT);
    char *to = role_address(runtime, task, MIST_ROLE_OUTPUT);

    runtime->operators->add(runtime->backend, gradient_dtype_of(runtime),
                            to + task->to_offset_bytes, from + task->from_offset_bytes,
                            task->n_elements, runtime->config.n_threads);
}

/*
 * Squares of this rank's shard of a slab's gradients, without what other tensor-parallel
 * ranks hold, too, and count, and without the head's copy of a tied weight.
 */
static enum mist_status run_norm(struct mist_runtime *runtime,
                                 const struct mist_task *task, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_layer_layout *layout = layout_of(runtime, task);
    const struct mist_module_storage *storage =
        mist_schedule_storage(schedule, task->layer);
    enum mist_role role = (enum mist_role)(MIST_ROLE_GRADIENTS + task->slab);
    const char *at = role_address(runtime, task, role) + task->from_offset_bytes;
    int64_t first = task->n_elements * schedule->i_replica,
            end = first + task->n_elements;

    for (int32_t i = 0; i < layout->n_params; i++) {
        int64_t start = storage->param_offset[i];
        int64_t stop = start + layout->params[i].n_elements;
        if (storage->param_slab[i] != task->slab || layout->params[i].is_tied)
            continue;
        if (schedule->at[MIST_AXIS_TP] > 0 &&
            layout->params[i].shape.split == MIST_SPLIT_NONE)
            continue;
        if (schedule->at[MIST_AXIS_TP] > 0 && layout->params[i].partial_elements > 0)
            stop = start + layout->params[i].partial_first;
        start = start > first ? start : first;
        stop = stop < end ? stop : end;
        if (start >= stop)
            continue;
        runtime->operators->sum_squares(runtime->backend, gradient_dtype_of(runtime),
                                        at + (start - first) * gradient_bytes(runtime),
                                        stop - start, start, tally_of(runtime, task),
                                        runtime->config.n_threads);
    }
    return check_at_once(runtime, task, err);
}

/* ---------------------------------------------------------------------- communication */

/* This rank's token ids of the iteration, from the caller's memory to the device. */
static void run_load(struct mist_runtime *runtime, const struct mist_task *task)
{
    const int32_t *sources[2] = {runtime->tokens, runtime->targets};
    enum mist_role roles[2] = {MIST_ROLE_TOKENS, MIST_ROLE_TARGETS};

    for (int i = 0; i < 2; i++) {
        int32_t buffer = task->buffers[roles[i]];
        if (buffer >= 0 && sources[i])
            mist_device_copy(runtime->device, mist_runtime_address(runtime, buffer),
                             sources[i], runtime->schedule->buffers[buffer].size_bytes);
    }
}

/* An update that is skipped has nothing to bring and nothing new to take away. */
static void run_copy(struct mist_runtime *runtime, const struct mist_task *task)
{
    const char *from = role_address(runtime, task, MIST_ROLE_INPUT);
    char *to = role_address(runtime, task, MIST_ROLE_OUTPUT);

    if (task->is_update && runtime->skips_update)
        return;
    mist_device_copy(runtime->device, to + task->to_offset_bytes,
                     from + task->from_offset_bytes, task->bytes);
}

static enum mist_status run_transfer(struct mist_runtime *runtime,
                                     const struct mist_task *task, struct mist_err *err)
{
    if (mist_task_kind_sends(task->kind))
        return mist_collectives_send(runtime->collectives, task->peer, task->tag,
                                     role_address(runtime, task, MIST_ROLE_INPUT) +
                                         task->from_offset_bytes,
                                     task->bytes, err);
    return mist_collectives_recv(runtime->collectives, task->peer, task->tag,
                                 role_address(runtime, task, MIST_ROLE_OUTPUT) +
                                     task->to_offset_bytes,
                                 task->bytes, err);
}

/* This rank's part of what its group has together. */
static char *own_shard(const struct mist_schedule *schedule, const struct mist_task *task,
                       char *whole)
{
    const struct mist_rank_mesh *mesh = &schedule->mesh;

    return whole + task->bytes / mist_rank_mesh_size(mesh, task->group) *
                       mist_rank_mesh_index(mesh, task->group, schedule->rank);
}

/* Sums a slab's gradients over the data-parallel ranks: everywhere, or this rank's shard,
 * in place or to its home. What is not finite is found before it spreads. */
static enum mist_status run_reduce(struct mist_runtime *runtime,
                                   const struct mist_task *task, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_stage_plan *stage = &runtime->plan->stages[schedule->i_stage];
    struct mist_collective_group *group = runtime->groups[task->group];
    enum mist_role role = (enum mist_role)(MIST_ROLE_GRADIENTS + task->slab);
    enum mist_dtype dtype = gradient_dtype_of(runtime);
    char *whole = role_address(runtime, task, role);
    char *home = role_address(runtime, task, MIST_ROLE_OUTPUT);
    int64_t n = task->bytes / gradient_bytes(runtime);

    runtime->operators->find_nonfinite(runtime->backend, dtype, whole, n,
                                       tally_of(runtime, task), 1);
    enum mist_status status = check_at_once(runtime, task, err);
    if (status != MIST_OK)
        return status;
    if (stage->zero >= 1)
        return mist_collective_reduce_scatter(
            group, dtype, whole, home ? home : own_shard(schedule, task, whole), n, err);
    return mist_collective_all_reduce(group, dtype, whole, n, err);
}

static enum mist_status run_gather(struct mist_runtime *runtime,
                                   const struct mist_task *task, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int64_t shard_bytes = task->bytes / mist_rank_mesh_size(&schedule->mesh, task->group);
    char *whole =
        role_address(runtime, task, (enum mist_role)(MIST_ROLE_WEIGHTS + task->slab));
    const char *home = role_address(runtime, task, MIST_ROLE_INPUT);

    return mist_collective_all_gather(runtime->groups[task->group],
                                      home ? home : own_shard(schedule, task, whole),
                                      whole, shard_bytes, err);
}

/* Parts of gradients that tensor-parallel ranks add up. */
static enum mist_status run_tp_reduce(struct mist_runtime *runtime,
                                      const struct mist_task *task, struct mist_err *err)
{
    const struct mist_layer_layout *layout = layout_of(runtime, task);
    const struct mist_module_storage *storage =
        mist_schedule_storage(runtime->schedule, task->layer);
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < layout->n_params && status == MIST_OK; i++) {
        enum mist_role role =
            (enum mist_role)(MIST_ROLE_GRADIENTS + storage->param_slab[i]);
        if (layout->params[i].partial_elements > 0)
            status = mist_collective_all_reduce(
                runtime->groups[task->group], gradient_dtype_of(runtime),
                role_address(runtime, task, role) +
                    (storage->param_offset[i] + layout->params[i].partial_first) *
                        gradient_bytes(runtime),
                layout->params[i].partial_elements, err);
    }
    return status;
}

/* Communication inside a module, of tensor- or context-parallel ranks. */
static enum mist_status run_communication(struct mist_runtime *runtime,
                                          const struct mist_task *task,
                                          struct mist_err *err)
{
    struct mist_collective_group *group = runtime->groups[task->group];
    enum mist_dtype dtype = runtime->plan->job.dtype;
    struct mist_binding binding;
    struct mist_step_args args;

    make_binding(runtime, task, &binding);
    mist_binding_resolve(
        &binding, task->program,
        binding.layout->programs[task->program].parts[task->part].first_step, &args);
    void *to = args.operands[MIST_ARG_OUT], *from = args.operands[MIST_ARG_TP_FROM];
    int64_t n = task->bytes / mist_dtype_weight_bytes(dtype);
    int32_t n_ranks = mist_rank_mesh_size(&runtime->schedule->mesh, task->group);
    switch (task->kind) {
    case MIST_TASK_TP_ALL_GATHER:
    case MIST_TASK_CP_ALL_GATHER:
        return mist_collective_all_gather(group, from, to, task->bytes / n_ranks, err);
    case MIST_TASK_TP_REDUCE_SCATTER:
    case MIST_TASK_CP_REDUCE_SCATTER:
        return mist_collective_reduce_scatter(group, dtype, from, to, n, err);
    default:
        return mist_collective_all_reduce(group, dtype, to, n, err);
    }
}

/* Units of the fine grid in one of the coarse: 2^36 (exec/operators/cpu_kernels.h). */
enum { FINE_BITS = 36 };

enum mist_status mist_runtime_exchange(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_tally *tallies = mist_device_host_results(runtime->device);
    const struct mist_schedule *schedule = runtime->schedule;
    double loss_sum = 0;
    const atomic_int *stop_signal = runtime->config.stop_signal;
    int64_t values[4] = {0};

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        enum mist_status status = MIST_OK;
        if (!runtime->device->ops->is_host)
            status = check_tally(runtime, &schedule->tasks[i], err);
        if (status != MIST_OK)
            return status;
        /* tensor-parallel ranks compute the same losses */
        loss_sum += schedule->at[MIST_AXIS_TP] == 0 ? tallies[i].loss_sum : 0;
        values[0] += tallies[i].coarse + (tallies[i].fine >> FINE_BITS);
        values[1] += tallies[i].fine & (((int64_t)1 << FINE_BITS) - 1);
    }
    values[2] = atomic_load(&runtime->n_faults);
    values[3] = runtime->stops || (stop_signal && atomic_load(stop_signal) != 0);
    enum mist_status status =
        mist_comm_all_reduce_f64(runtime->comm, MIST_COMM_SUM, &loss_sum, 1, err);
    if (status == MIST_OK)
        status = mist_comm_all_reduce_i64(runtime->comm, MIST_COMM_SUM, values, 4, err);
    runtime->loss_sum = loss_sum;
    memcpy(runtime->exchanged, values, sizeof values);
    return status;
}

/* Something went wrong on this rank, in whatever thread: nobody waits for it. */
static void fail(struct mist_runtime *runtime, enum mist_status status,
                 const struct mist_err *err)
{
    mist_device_fail(runtime->device, status, err);
    mist_comm_cancel(runtime->comm); /* what never comes is not waited for */
}

/* The exchange as a function of the host, behind the results. */
static void exchange_on_host(void *arg)
{
    struct mist_runtime *runtime = arg;
    struct mist_err err = {0};
    enum mist_status status = mist_runtime_exchange(runtime, &err);

    if (status != MIST_OK)
        fail(runtime, status, &err);
}

/* ----------------------------------------------------------------------------- switch */

static enum mist_status run_gradients(struct mist_runtime *runtime,
                                      const struct mist_task *task, struct mist_err *err)
{
    if (task->kind == MIST_TASK_GRADIENT_NORM)
        return run_norm(runtime, task, err);
    if (task->kind == MIST_TASK_OPTIMIZER)
        run_optimizer(runtime, task);
    else
        run_accumulate(runtime, task);
    return MIST_OK;
}

static enum mist_status run_collective(struct mist_runtime *runtime,
                                       const struct mist_task *task, struct mist_err *err)
{
    switch (task->kind) {
    case MIST_TASK_REDUCE_GRADIENT:
        return run_reduce(runtime, task, err);
    case MIST_TASK_GATHER_PARAMETER:
        return run_gather(runtime, task, err);
    case MIST_TASK_TP_REDUCE_GRADIENT:
        return run_tp_reduce(runtime, task, err);
    case MIST_TASK_TIE_GRADIENT:
        if (task->stream == MIST_STREAM_GPU_GPU)
            return mist_collective_all_reduce(
                runtime->groups[task->group], gradient_dtype_of(runtime),
                role_address(runtime, task, MIST_ROLE_OUTPUT), task->n_elements, err);
        run_accumulate(runtime, task); /* the head's, on the same rank */
        return MIST_OK;
    case MIST_TASK_REDUCE_NORM:
        mist_device_fetch_results(runtime->device);
        mist_device_call_host(runtime->device, exchange_on_host, runtime);
        return MIST_OK;
    default:
        return run_communication(runtime, task, err);
    }
}

static enum mist_status run(struct mist_runtime *runtime, const struct mist_task *task,
                            struct mist_err *err)
{
    switch (mist_task_kind_sort(task->kind)) {
    case MIST_SORT_PROGRAM:
        return run_part(runtime, task, err);
    case MIST_SORT_GRADIENTS:
        return run_gradients(runtime, task, err);
    case MIST_SORT_TRANSFER:
        return run_transfer(runtime, task, err);
    case MIST_SORT_COLLECTIVE:
        return run_collective(runtime, task, err);
    case MIST_SORT_COPY:
        run_copy(runtime, task);
        return MIST_OK;
    case MIST_SORT_LOAD:
        run_load(runtime, task);
        return MIST_OK;
    }
    return mist_err_set(err, MIST_ERR_RUN, "task %s is not executable",
                        mist_task_kind_name(task->kind));
}

/* A random pause of up to a millisecond. */
static void pause_at_random(void *arg)
{
    const struct mist_task_body *body = arg;
    const struct mist_runtime *runtime = body->runtime;
    uint64_t stream = (uint64_t)runtime->schedule->rank << 32 | (uint32_t)body->i_task;
    uint64_t bits =
        mist_random_at(runtime->config.delay_seed, stream, (uint64_t)runtime->n_done);
    struct timespec pause = {.tv_nsec = (long)(bits % 1000000)};

    if (bits >> 62 == 0) /* every fourth task */
        nanosleep(&pause, NULL);
}

void mist_runtime_run_task(void *arg)
{
    struct mist_task_body *body = arg;
    struct mist_runtime *runtime = body->runtime;
    const struct mist_task *task = &runtime->schedule->tasks[body->i_task];
    bool on_host = task->stream == MIST_STREAM_HOST;
    struct mist_err err = {0};

    if (runtime->config.delay_seed != 0 && on_host)
        pause_at_random(body);
    else if (runtime->config.delay_seed != 0)
        mist_device_call_host(runtime->device, pause_at_random, body);
    mist_device_begin_range(runtime->device, mist_task_kind_name(task->kind),
                            task->layer);
    mist_runtime_begin_task(body);
    enum mist_status status = run(runtime, task, &err);
    mist_runtime_end_task(body);
    mist_device_end_range(runtime->device);
    if (status != MIST_OK)
        fail(runtime, status, &err);
}
