/*
 * When the tasks of the timed iterations ran, and what their operators took. See
 * runtime.h.
 *
 * Where the device records, a task is a span, whose id is its place in times. When
 * operators are asked for, each step of a task's program has a span of its own and ids
 * are MIST_MAX_STEPS + 1 times as far apart: the first is of what the task does beside
 * its steps. Elsewhere bodies look at the clock.
 */
#include "core/clock.h"
#include "core/memory.h"
#include "core/parse.h" /* sizes for people */
#include "exec/runtime/runtime_internal.h"
#include "sim/cost/cost_model.h" /* mist_cost_gradient_op */

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Of all times of a rank. */
static const int64_t most_bytes = (int64_t)1 << 30;

/* ------------------------------------------------------------------------ preparation */

/* FLOP and bytes of a task that is no part of a program. */
static void count_task(const struct mist_task *task, struct mist_op_row *key)
{
    struct mist_work work =
        mist_op_gradient_work(mist_cost_gradient_op(task->kind), task->n_elements);
    struct mist_work zero = mist_op_gradient_work(MIST_OP_ZERO, task->n_zeroed_elements);

    key->flop = (double)work.flop;
    key->bytes = (double)work.bytes + (double)zero.bytes;
}

/* The row of a task: of what is beside its steps, if it has any. */
static int32_t row_of_task(struct mist_op_table *ops, const struct mist_task *task)
{
    bool computes =
        task->stream == MIST_STREAM_COMPUTE || task->stream == MIST_STREAM_HOST;
    struct mist_op_row key = {.is_link = !computes};

    snprintf(key.op, sizeof key.op, "%s%s", mist_task_kind_name(task->kind),
             task->stream == MIST_STREAM_HOST ? "_host" : "");
    if (key.is_link) {
        key.bytes = (double)task->bytes;
        snprintf(key.shape, sizeof key.shape, "bytes=%" PRId64, task->bytes);
    } else if (task->part >= 0) {
        snprintf(key.phase, sizeof key.phase, "beside operators");
    } else {
        count_task(task, &key);
        snprintf(key.shape, sizeof key.shape, "elements=%" PRId64, task->n_elements);
    }
    return mist_op_table_row(ops, &key);
}

static enum mist_status make_rows(struct mist_runtime *runtime, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    struct mist_op_table *ops = runtime->config.ops;

    if (!MIST_CALLOC(runtime->task_rows, (size_t)schedule->n_tasks + 1))
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        runtime->task_rows[i] = row_of_task(ops, &schedule->tasks[i]);
    for (int k = 0; k < 2 * MIST_N_LAYER_KINDS; k++) {
        const struct mist_layer_layout *layout = &schedule->layouts[k / 2];
        const struct mist_step *steps = k % 2 ? layout->backward : layout->forward;
        for (int32_t i = 0; i < mist_layer_layout_n_steps(layout, k % 2); i++)
            runtime->step_rows[k / 2][k % 2][i] =
                mist_op_table_op(ops, steps[i].op, steps[i].phase, steps[i].dims,
                                 (double)steps[i].flop, (double)steps[i].bytes);
    }
    return ops->is_out_of_memory ? mist_err_memory(err, NULL) : MIST_OK;
}

enum mist_status mist_runtime_prepare_times(struct mist_runtime *runtime,
                                            struct mist_err *err)
{
    int32_t n_tasks = runtime->schedule->n_tasks;
    int32_t n_kept = runtime->config.n_timed_iterations;
    int64_t n = (n_kept + (int64_t)1) * n_tasks;
    char text[MIST_FORMAT_BYTES];

    if (n_kept > 0 && n > most_bytes / (int64_t)sizeof *runtime->times)
        return mist_err_set(
            err, MIST_ERR_RANGE,
            "--timed-iterations %d: the times of %d tasks each take more than %s, lower "
            "it",
            (int)n_kept, (int)n_tasks, mist_format_bytes(text, sizeof text, most_bytes));
    if (!MIST_CALLOC(runtime->times, (size_t)n + 1) ||
        !MIST_CALLOC(runtime->losses, (size_t)n_kept + 1))
        return mist_err_memory(err, NULL);
    return runtime->config.ops ? make_rows(runtime, err) : MIST_OK;
}

void mist_runtime_free_times(struct mist_runtime *runtime)
{
    free(runtime->times);
    free(runtime->losses);
    free(runtime->task_rows);
}

/* ------------------------------------------------------------------------------ walks */

static int32_t row_of_iteration(const struct mist_runtime *runtime)
{
    return (int32_t)((runtime->current_times - runtime->times) /
                     runtime->schedule->n_tasks);
}

/* Whether the running walk is one whose times are kept. */
static bool is_timed(const struct mist_runtime *runtime)
{
    return runtime->current_times <
           runtime->times + (size_t)runtime->config.n_timed_iterations *
                                (size_t)runtime->schedule->n_tasks;
}

static bool is_recorded(const struct mist_runtime *runtime)
{
    return mist_device_records(runtime->device) && is_timed(runtime);
}

/* Spans of a task. */
static int64_t spans_per_task(const struct mist_runtime *runtime)
{
    return runtime->config.ops ? MIST_MAX_STEPS + 1 : 1;
}

static int32_t row_of_step(const struct mist_runtime *runtime, int32_t i_task,
                           int32_t i_step)
{
    const struct mist_task *task = &runtime->schedule->tasks[i_task];

    if (i_step < 0)
        return runtime->task_rows[i_task];
    return runtime
        ->step_rows[mist_schedule_layer_kind(&runtime->plan->model, task->layer)]
                   [mist_program_is_backward(task->program)][i_step];
}

/* The earliest start and the latest end of the task's work. */
static void keep_work(void *context, const struct mist_span_work *work)
{
    struct mist_runtime *runtime = context;
    struct mist_op_table *ops = runtime->config.ops;
    int64_t n = spans_per_task(runtime), i_time = work->id / n;
    struct mist_task_time *time = &runtime->times[i_time];

    if (time->end_s == 0 || work->start_s < time->start_s)
        time->start_s = work->start_s;
    if (work->end_s > time->end_s)
        time->end_s = work->end_s;
    if (!ops)
        return;
    int32_t row = row_of_step(runtime, (int32_t)(i_time % runtime->schedule->n_tasks),
                              (int32_t)(work->id % n) - 1);
    mist_op_table_add_kernel(ops, row, work->name, work->end_s - work->start_s);
    mist_op_table_add_calls(ops, row, work->id != runtime->last_span,
                            work->end_s - work->start_s);
    runtime->last_span = work->id;
}

enum mist_status mist_runtime_begin_times(struct mist_runtime *runtime,
                                          int32_t i_iteration, struct mist_err *err)
{
    int32_t n_kept = runtime->config.n_timed_iterations;
    int32_t row = i_iteration - (runtime->n_iterations - n_kept);

    if (row < 0 || i_iteration >= runtime->n_iterations)
        row = n_kept; /* the last row takes what is not kept */
    runtime->current_times =
        runtime->times + (size_t)row * (size_t)runtime->schedule->n_tasks;
    return is_recorded(runtime) ? mist_device_start_spans(runtime->device, err) : MIST_OK;
}

enum mist_status mist_runtime_end_times(struct mist_runtime *runtime,
                                        struct mist_err *err)
{
    if (!is_recorded(runtime))
        return MIST_OK;
    runtime->last_span = -1;
    return mist_device_collect_spans(runtime->device, keep_work, runtime,
                                     &runtime->losses[row_of_iteration(runtime)], err);
}

/* ------------------------------------------------------------------------------ tasks */

/* Whether the device times the task: what the host stream does it can't see. */
static bool is_span(const struct mist_task_body *body)
{
    const struct mist_runtime *runtime = body->runtime;

    return is_recorded(runtime) &&
           runtime->schedule->tasks[body->i_task].stream != MIST_STREAM_HOST;
}

static void begin_span(struct mist_task_body *body, int32_t i_step)
{
    const struct mist_runtime *runtime = body->runtime;
    int64_t i_time = runtime->current_times + body->i_task - runtime->times;

    mist_device_begin_span(runtime->device,
                           i_time * spans_per_task(runtime) + 1 + i_step);
}

void mist_runtime_begin_task(struct mist_task_body *body)
{
    struct mist_runtime *runtime = body->runtime;

    if (is_span(body)) {
        begin_span(body, -1);
        return;
    }
    body->since_s = mist_clock_now_s();
    runtime->current_times[body->i_task].start_s = body->since_s;
    if (runtime->config.ops)
        body->row = runtime->task_rows[body->i_task];
}

void mist_runtime_enter_step(struct mist_task_body *body, int32_t i_step)
{
    struct mist_runtime *runtime = body->runtime;

    if (!runtime->config.ops || !is_timed(runtime))
        return;
    if (is_span(body)) {
        mist_device_end_span(runtime->device);
        begin_span(body, i_step);
        return;
    }
    double now_s = mist_clock_now_s();
    mist_op_table_add_calls(runtime->config.ops, body->row,
                            body->row != runtime->task_rows[body->i_task],
                            now_s - body->since_s);
    body->row = row_of_step(runtime, body->i_task, i_step);
    body->since_s = now_s;
}

void mist_runtime_end_task(struct mist_task_body *body)
{
    struct mist_runtime *runtime = body->runtime;

    if (is_span(body)) {
        mist_device_end_span(runtime->device);
        return;
    }
    double now_s = mist_clock_now_s();
    runtime->current_times[body->i_task].end_s = now_s;
    if (runtime->config.ops && is_timed(runtime))
        mist_op_table_add_calls(runtime->config.ops, body->row, 1, now_s - body->since_s);
}

/* ---------------------------------------------------------------------------- results */

void mist_runtime_losses(const struct mist_runtime *runtime, int64_t *losses)
{
    for (int32_t i = 0; i < runtime->config.n_timed_iterations; i++)
        losses[i] = runtime->losses[i];
}

enum mist_status mist_runtime_timeline(const struct mist_runtime *runtime,
                                       const int64_t *losses, const int64_t *live_bytes,
                                       struct mist_timeline *out, struct mist_err *err)
{
    const struct mist_schedule *schedule = runtime->schedule;
    int32_t n_tasks = schedule->n_tasks, n_kept = runtime->config.n_timed_iterations;

    for (int64_t k = 0; k < (int64_t)n_kept * n_tasks; k++) {
        const struct mist_task *task = &schedule->tasks[k % n_tasks];
        const struct mist_task_time *time = &runtime->times[k];
        /* skipped: an update in the first iteration */
        if (time->end_s == 0 || losses[k / n_tasks] != MIST_SPANS_WHOLE)
            continue;
        struct mist_timeline_row row = {
            .rank = schedule->rank,
            .stream = task->stream,
            .kind = task->kind,
            .layer = task->layer,
            .micro_batch = task->micro_batch,
            .iteration = runtime->n_iterations - n_kept + (int32_t)(k / n_tasks),
            .task = k % n_tasks,
            .start_s = time->start_s,
            .end_s = time->end_s,
            .bytes = task->bytes,
            .device_live_bytes = live_bytes[k % n_tasks],
        };
        enum mist_status status = mist_timeline_add(out, &row, err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}
