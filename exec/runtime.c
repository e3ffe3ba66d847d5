/* The runtime: life cycle and dispatch. The bodies of tasks are in runtime_task.c.
 * See runtime.h. */
#include "exec/runtime.h"

#include "core/clock.h"
#include "core/random.h" /* initial parameters */
#include "exec/runtime_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ----------------------------------------------------------------- initial parameters */

static double deviation_of(enum mist_init init, const struct mist_model *model)
{
    double deviation = 0.02; /* GPT-2 */

    return init == MIST_INIT_NORMAL_RESIDUAL
               ? deviation / sqrt(2.0 * (double)model->n_layers)
               : deviation;
}

void mist_runtime_fill_parameters(const struct mist_model *model,
                                  const struct mist_layer_layout *layout, int32_t layer,
                                  uint64_t seed, float *out)
{
    for (int32_t i = 0; i < layout->n_params; i++) {
        enum mist_init init = layout->param_init[i];
        float *param = out + layout->param_offset[i];
        double deviation = deviation_of(init, model);
        uint64_t stream = (uint64_t)layer * MIST_MAX_PARAMS + (uint64_t)i;
        for (int64_t k = 0; k < layout->param_elements[i]; k++) {
            if (init == MIST_INIT_ONES || init == MIST_INIT_ZEROS)
                param[k] = init == MIST_INIT_ONES;
            else
                param[k] =
                    (float)(deviation * mist_random_normal_at(seed, stream, (uint64_t)k));
        }
    }
}

static void fill_persistent(struct mist_runtime *runtime)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_model *model = &runtime->plan->model;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        char *at = mist_runtime_address(runtime, i);
        if (!buffer->is_persistent)
            continue;
        memset(at, 0, (size_t)buffer->size_bytes);
        if (buffer->role == MIST_ROLE_WEIGHTS) {
            enum mist_layer_kind kind = mist_schedule_layer_kind(model, buffer->layer);
            mist_runtime_fill_parameters(model, &schedule->layouts[kind], buffer->layer,
                                         runtime->config.seed, (float *)(void *)at);
        }
        if (buffer->role == MIST_ROLE_CONSTANT)
            runtime->operators->fill_rope((float *)(void *)at, runtime->plan->job.seq_len,
                                          model->head_dim, model->rope_theta);
    }
}

/* ------------------------------------------------------------------------- life cycle */

static enum mist_status make_group(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_stage_plan *stage = &runtime->plan->stages[schedule->i_stage];
    int32_t first = mist_plan_first_rank(runtime->plan, schedule->i_stage);
    int64_t largest = 0;

    if (stage->dp == 1)
        return MIST_OK;
    int32_t *ranks = malloc((size_t)stage->dp * sizeof *ranks);
    if (!ranks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < stage->dp; i++)
        ranks[i] = first + i * stage->tp + schedule->i_tp;
    enum mist_status status =
        mist_comm_group(runtime->comm, ranks, stage->dp, 0, &runtime->group, err);
    free(ranks);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].group == MIST_GROUP_DP &&
            schedule->tasks[i].bytes > largest)
            largest = schedule->tasks[i].bytes;
    if (status == MIST_OK)
        status = mist_comm_reserve(runtime->comm, largest, stage->dp, err);
    return status;
}

/* Which tasks somebody on another stream waits for, and the arguments of all bodies. */
static void prepare_bodies(struct mist_runtime *runtime)
{
    const struct mist_schedule *schedule = runtime->schedule;

    for (int32_t i = 0; i < schedule->n_deps; i++)
        runtime->is_awaited[schedule->deps[i]] = true;
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        runtime->bodies[i] = (struct mist_task_body){runtime, i};
}

enum mist_status mist_runtime_new(const struct mist_plan *plan,
                                  const struct mist_schedule *schedule,
                                  struct mist_device *device, struct mist_comm *comm,
                                  const struct mist_operators *operators,
                                  const struct mist_train_config *config,
                                  int32_t n_iterations, struct mist_runtime **out,
                                  struct mist_err *err)
{
    size_t n = (size_t)schedule->n_tasks;
    size_t n_kept = (size_t)config->n_timed_iterations;
    struct mist_runtime *runtime = calloc(1, sizeof *runtime);

    if (!runtime)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    runtime->plan = plan;
    runtime->schedule = schedule;
    runtime->device = device;
    runtime->comm = comm;
    runtime->operators = operators;
    runtime->config = *config;
    runtime->n_iterations = n_iterations;
    runtime->loss_scale =
        (float)(1.0 / ((double)plan->job.global_batch * (double)plan->job.seq_len));
    runtime->bodies = calloc(n + 1, sizeof *runtime->bodies);
    runtime->is_awaited = calloc(n + 1, sizeof *runtime->is_awaited);
    runtime->loss_sums =
        calloc((size_t)plan->n_micro_batches, sizeof *runtime->loss_sums);
    runtime->spans = calloc((size_t)n_iterations + 1, sizeof *runtime->spans);
    runtime->times = calloc(n * (n_kept + 1), sizeof *runtime->times);
    enum mist_status status = MIST_ERR_MEMORY;
    if (!runtime->bodies || !runtime->is_awaited || !runtime->loss_sums ||
        !runtime->spans || !runtime->times)
        mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    else
        status = make_group(runtime, err);
    if (status != MIST_OK) {
        mist_runtime_free(runtime);
        return status;
    }
    prepare_bodies(runtime);
    fill_persistent(runtime);
    mist_device_reset_events(device, schedule->n_tasks);
    *out = runtime;
    return MIST_OK;
}

void mist_runtime_free(struct mist_runtime *runtime)
{
    if (!runtime)
        return;
    free(runtime->bodies);
    free(runtime->is_awaited);
    free(runtime->loss_sums);
    free(runtime->spans);
    free(runtime->times);
    free(runtime);
}

/* --------------------------------------------------------------------------- dispatch */

/* Submits one task behind its dependencies; skipped ones only fire their event. */
static enum mist_status dispatch(struct mist_runtime *runtime, int32_t i_task,
                                 bool is_skipped, bool waits_for_updates_only,
                                 struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    const struct mist_task *task = &schedule->tasks[i_task];

    for (int32_t i = 0; i < task->n_deps; i++) {
        int32_t on = schedule->deps[task->dep_first + i];
        if (!waits_for_updates_only || schedule->tasks[on].is_update)
            mist_device_wait(runtime->device, task->stream, on);
    }
    if (!is_skipped)
        mist_device_submit(runtime->device, task->stream, mist_runtime_run_task,
                           &runtime->bodies[i_task]);
    if (runtime->is_awaited[i_task])
        mist_device_record(runtime->device, task->stream, i_task);
    return runtime->config.is_serial ? mist_device_synchronize(runtime->device, err)
                                     : MIST_OK;
}

/* Where the task times of the running iteration go. */
static struct mist_task_time *times_of(struct mist_runtime *runtime, int32_t i_iteration)
{
    int32_t first_kept = runtime->n_iterations - runtime->config.n_timed_iterations;
    size_t n = (size_t)runtime->schedule->n_tasks;

    /* the last row takes what is not kept */
    size_t row = i_iteration >= first_kept && i_iteration < runtime->n_iterations
                     ? (size_t)(i_iteration - first_kept)
                     : (size_t)runtime->config.n_timed_iterations;
    return runtime->times + row * n;
}

enum mist_status mist_runtime_step(struct mist_runtime *runtime, const int32_t *tokens,
                                   const int32_t *targets, double *loss_sum,
                                   struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int32_t i_iteration = runtime->n_done;
    enum mist_status status = MIST_OK;

    runtime->tokens = tokens;
    runtime->targets = targets;
    runtime->current_times = times_of(runtime, i_iteration);
    runtime->config.adamw.t = i_iteration; /* gradients of the iteration before */
    mist_device_reset_events(runtime->device, schedule->n_tasks);
    if (i_iteration < runtime->n_iterations)
        runtime->spans[i_iteration].start_s = mist_clock_now_s();
    for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++)
        status = dispatch(runtime, i, i_iteration == 0 && schedule->tasks[i].is_update,
                          false, err);
    enum mist_status end = mist_device_synchronize(runtime->device, err);
    if (i_iteration < runtime->n_iterations)
        runtime->spans[i_iteration].end_s = mist_clock_now_s();
    runtime->n_done++;
    *loss_sum = 0;
    for (int32_t i = 0; i < runtime->plan->n_micro_batches; i++)
        *loss_sum += runtime->loss_sums[i];
    return status == MIST_OK ? end : status;
}

enum mist_status mist_runtime_finish(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    enum mist_status status = MIST_OK;

    runtime->current_times = times_of(runtime, runtime->n_iterations);
    runtime->config.adamw.t = runtime->n_done;
    mist_device_reset_events(runtime->device, schedule->n_tasks);
    for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++)
        if (schedule->tasks[i].is_update)
            status = dispatch(runtime, i, false, true, err);
    enum mist_status end = mist_device_synchronize(runtime->device, err);
    return status == MIST_OK ? end : status;
}

/* ---------------------------------------------------------------------------- results */

const float *mist_runtime_parameters(const struct mist_runtime *runtime, int32_t layer,
                                     int64_t *n)
{
    const struct mist_schedule *schedule = runtime->schedule;

    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        if (schedule->buffers[i].role != MIST_ROLE_WEIGHTS ||
            schedule->buffers[i].layer != layer)
            continue;
        *n = schedule->layouts[mist_schedule_layer_kind(&runtime->plan->model, layer)]
                 .n_parameters;
        return (const float *)(const void *)mist_runtime_address(runtime, i);
    }
    *n = 0;
    return NULL;
}

void mist_runtime_span(const struct mist_runtime *runtime, int32_t i_iteration,
                       double *start_s, double *end_s)
{
    *start_s = runtime->spans[i_iteration].start_s;
    *end_s = runtime->spans[i_iteration].end_s;
}

enum mist_status mist_runtime_timeline(const struct mist_runtime *runtime,
                                       const int64_t *live_bytes,
                                       struct mist_timeline *out, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int32_t n_kept = runtime->config.n_timed_iterations;

    for (int32_t k = 0; k < n_kept; k++) {
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            const struct mist_task_time *time =
                &runtime->times[(size_t)k * (size_t)schedule->n_tasks + (size_t)i];
            if (time->end_s == 0) /* skipped: an update in the first iteration */
                continue;
            struct mist_timeline_row row = {
                .rank = schedule->rank,
                .stream = task->stream,
                .kind = task->kind,
                .layer = task->layer,
                .micro_batch = task->micro_batch,
                .iteration = runtime->n_iterations - n_kept + k,
                .task = i,
                .start_s = time->start_s,
                .end_s = time->end_s,
                .bytes = task->bytes,
                .device_live_bytes = live_bytes[i],
            };
            enum mist_status status = mist_timeline_add(out, &row, err);
            if (status != MIST_OK)
                return status;
        }
    }
    return MIST_OK;
}
