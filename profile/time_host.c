/* Launch cost, memory rate, resident memory. See time_host.h. */
#include "profile/time_host.h"

#include "core/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    N_TASKS = 1000,
    N_GPU_TASKS = MIST_DEVICE_ALWAYS_TAKES, /* all of them held before they begin */
    N_ROUNDS = 15,
    N_COPIES = 12,
    N_TOUCHED = 1024, /* elements that the kernel of a task writes */
};

/* A task as the runtime makes one: with nothing in it on the host, with a small kernel on
 * a GPU, where one without any takes no time. */
struct small_task {
    struct mist_workbench *bench;
    int32_t id;
};

static void run_small(void *arg)
{
    struct small_task *task = arg;
    struct mist_workbench *bench = task->bench;

    if (task->id == 0)
        mist_workbench_hold(bench);
    mist_stopwatch_begin(&bench->watch, task->id, MIST_WORK_OF_DEVICE);
    if (!mist_workbench_is_on_host(bench))
        bench->operators->zero(bench->backend, MIST_DTYPE_FP32, bench->message, N_TOUCHED,
                               bench->grid->config.n_threads);
    mist_stopwatch_end(&bench->watch, task->id);
}

/* Mean time between the end of a task's work and the begin of the next one's. */
static double mean_gap_us(const struct mist_stopwatch *watch)
{
    double sum_s = 0;

    for (int64_t i = 1; i < watch->n; i++)
        sum_s += watch->spans[i].start_s - watch->spans[i - 1].end_s;
    return sum_s / (double)(watch->n - 1) * 1e6;
}

/* Tasks that take turns on two streams, each waiting for the one before, or all on one
 * stream. */
struct small_tasks {
    const enum mist_stream *streams; /* [2] */
    struct small_task *tasks;        /* [n] */
    int32_t n;
    double start_s;
};

static void submit_tasks(struct mist_workbench *bench, void *arg)
{
    struct small_tasks *at = arg;

    at->start_s = mist_clock_now_s();
    for (int32_t i = 0; i < at->n; i++) {
        enum mist_stream stream = at->streams[i % 2];
        at->tasks[i] = (struct small_task){bench, i};
        if (i > 0 && at->streams[0] != at->streams[1])
            mist_device_wait(bench->device, stream, i - 1);
        mist_device_submit(bench->device, stream, run_small, &at->tasks[i]);
        mist_device_record(bench->device, stream, i);
    }
}

/* us per task: of everything on the host, between their work on a GPU. */
static enum mist_status time_tasks(struct mist_workbench *bench,
                                   const enum mist_stream streams[2],
                                   struct small_task *tasks, double *out_us,
                                   struct mist_err *err)
{
    bool is_on_host = mist_workbench_is_on_host(bench);
    struct small_tasks at = {streams, tasks, is_on_host ? N_TASKS : N_GPU_TASKS, 0};
    enum mist_status status =
        mist_workbench_run_held(bench, at.n, at.n, submit_tasks, &at, err);

    *out_us = is_on_host ? (mist_clock_now_s() - at.start_s) / at.n * 1e6
                         : fmax(0, mean_gap_us(&bench->watch));
    return status;
}

static enum mist_status time_launch(struct mist_workbench *bench,
                                    struct small_task *tasks, double *out_us,
                                    struct mist_err *err)
{
    static const enum mist_stream streams[2] = {MIST_STREAM_COMPUTE, MIST_STREAM_COMPUTE};

    return time_tasks(bench, streams, tasks, out_us, err);
}

static enum mist_status time_hand_over(struct mist_workbench *bench,
                                       struct small_task *tasks, double *out_us,
                                       struct mist_err *err)
{
    static const enum mist_stream streams[2] = {MIST_STREAM_COMPUTE, MIST_STREAM_GPU_GPU};

    return time_tasks(bench, streams, tasks, out_us, err);
}

static void copy_half(void *arg)
{
    struct mist_workbench *bench = arg;
    int64_t half_bytes = bench->message_bytes / 2;

    mist_stopwatch_begin(&bench->watch, 0, MIST_WORK_OF_DEVICE);
    mist_device_copy(bench->device, bench->message + half_bytes, bench->message,
                     half_bytes);
    mist_stopwatch_end(&bench->watch, 0);
}

static enum mist_status time_copy(struct mist_workbench *bench, double *out_bytes_per_s,
                                  struct mist_err *err)
{
    double times_s[N_COPIES];

    for (int i = -1; i < N_COPIES; i++) { /* the first does not count */
        enum mist_status status =
            mist_workbench_run(bench, MIST_STREAM_COMPUTE, copy_half, bench, 1, err);
        if (status != MIST_OK)
            return status;
        if (i >= 0)
            times_s[i] = mist_stopwatch_time_s(&bench->watch, 0);
    }
    struct mist_estimate estimate = mist_estimate_make(times_s, N_COPIES);
    enum mist_status status = mist_workbench_pool(bench, &estimate, 1, err);
    int64_t copied_bytes = bench->message_bytes / 2 * 2;
    *out_bytes_per_s = (double)copied_bytes / estimate.mean;
    return status;
}

/* ----------------------------------------------------------------------------- memory */

/* Resident memory of this process. */
static enum mist_status read_resident(int64_t *out_bytes, struct mist_err *err)
{
    FILE *stream = fopen("/proc/self/statm", "r");
    long total = 0, resident = 0;

    int n = stream ? fscanf(stream, "%ld %ld", &total, &resident) : 0;
    if (stream)
        fclose(stream);
    if (n != 2)
        return mist_err_set(err, MIST_ERR_IO,
                            "/proc/self/statm can't be read, so resident memory is not "
                            "known");
    *out_bytes = (int64_t)resident * sysconf(_SC_PAGESIZE);
    return MIST_OK;
}

typedef enum mist_status timing_fn(struct mist_workbench *bench, struct small_task *tasks,
                                   double *out_us, struct mist_err *err);

static enum mist_status repeat(struct mist_workbench *bench, timing_fn *timing,
                               double *out_us, struct mist_err *err)
{
    double times_us[N_ROUNDS];
    struct small_task *tasks = calloc(N_TASKS, sizeof *tasks);
    enum mist_status status = MIST_OK;

    if (!tasks)
        return mist_err_memory(err, NULL);
    for (int i = 0; i < N_ROUNDS && status == MIST_OK; i++) {
        status = mist_comm_barrier(bench->comm, err);
        if (status == MIST_OK)
            status = timing(bench, tasks, &times_us[i], err);
    }
    free(tasks);
    if (status != MIST_OK)
        return status;
    struct mist_estimate estimate = mist_estimate_make(times_us, N_ROUNDS);
    status = mist_workbench_pool(bench, &estimate, 1, err);
    *out_us = estimate.mean;
    return status;
}

/* Memory of this rank beside its arenas. */
static enum mist_status find_memory_beside(struct mist_workbench *bench,
                                           int64_t *out_bytes, struct mist_err *err)
{
    const int64_t *arena_bytes = bench->arena_bytes;
    int64_t n_sharing = bench->place.n_sharing, used_bytes;

    if (mist_workbench_is_on_host(bench)) {
        enum mist_status status = read_resident(out_bytes, err);
        *out_bytes -= arena_bytes[MIST_ARENA_DEVICE] + arena_bytes[MIST_ARENA_HOST];
        return status;
    }
    used_bytes = mist_device_used_bytes(bench->device);
    *out_bytes =
        used_bytes < 0
            ? 0
            : (used_bytes - n_sharing * arena_bytes[MIST_ARENA_DEVICE]) / n_sharing;
    return MIST_OK;
}

enum mist_status mist_time_host(struct mist_workbench *bench, struct mist_host_costs *out,
                                struct mist_err *err)
{
    int64_t beside_bytes = 0;
    enum mist_status status = repeat(bench, time_launch, &out->launch_us, err);

    if (status == MIST_OK)
        status = repeat(bench, time_hand_over, &out->hand_over_us, err);
    if (status == MIST_OK)
        status = time_copy(bench, &out->memory_bytes_per_s, err);
    if (status == MIST_OK)
        status = find_memory_beside(bench, &beside_bytes, err);
    if (status != MIST_OK)
        return status;
    double most_bytes = (double)beside_bytes;
    status = mist_workbench_max(bench, &most_bytes, err);
    out->runtime_memory_bytes = most_bytes > 0 ? (int64_t)most_bytes : 0;
    return status;
}

/* ------------------------------------------------------------------------------ trial */

/* Products of square matrices, several in a span. */
struct trial {
    const struct mist_operators *operators;
    struct mist_stopwatch watch;
    struct mist_step_args args;
    int32_t n_products;
};

static void run_trial(void *arg)
{
    struct trial *trial = arg;

    mist_stopwatch_begin(&trial->watch, 0, MIST_WORK_OF_DEVICE);
    for (int32_t i = 0; i < trial->n_products; i++)
        trial->operators->run_step(&trial->args);
    mist_stopwatch_end(&trial->watch, 0);
}

/* The shortest of a few runs, on a device that is open. */
static enum mist_status repeat_trial(struct mist_device *device, struct trial *trial,
                                     double *best_s, struct mist_err *err)
{
    enum { N_TRIALS = 8 };
    enum mist_status status = MIST_OK;

    *best_s = INFINITY;
    for (int i = 0; i < N_TRIALS && status == MIST_OK; i++) {
        status = mist_stopwatch_reset(&trial->watch, 1, err);
        if (status != MIST_OK)
            return status;
        mist_device_reset_events(device, 0);
        mist_device_submit(device, MIST_STREAM_COMPUTE, run_trial, trial);
        status = mist_device_synchronize(device, err);
        *best_s = fmin(*best_s, mist_stopwatch_time_s(&trial->watch, 0));
    }
    return status;
}

enum mist_status mist_time_host_flop_per_s(const struct mist_backend *backend,
                                           int32_t i_device, enum mist_dtype dtype,
                                           int32_t n_threads, double *flop_per_s,
                                           struct mist_err *err)
{
    int64_t n = n_threads > 0 ? 256 : 4096;
    int64_t matrix_bytes = n * n * mist_dtype_weight_bytes(dtype);
    struct mist_step step = {.op = MIST_OP_LINEAR,
                             .phase = MIST_PHASE_FORWARD,
                             .n_dims = 3,
                             .dims = {n, n, n}};
    struct mist_device_config config = {
        .arena_bytes = {[MIST_ARENA_DEVICE] = 3 * matrix_bytes},
        .threads = n_threads,
        .i_device = i_device,
        .attention = MIST_ATTENTION_OWN}; /* none runs here */
    struct trial trial = {.operators = backend->operators,
                          .n_products = n_threads > 0 ? 1 : 4};
    struct mist_device *device = NULL;
    double best_s = 0;

    *flop_per_s = 0;
    enum mist_status status = backend->open_device(&config, &device, err);
    if (status != MIST_OK)
        return status;
    char *x = mist_device_arena(device, MIST_ARENA_DEVICE);
    mist_stopwatch_init(&trial.watch, device);
    trial.args = (struct mist_step_args){.step = &step,
                                         .operands = {x, x + matrix_bytes},
                                         .params = {x + 2 * matrix_bytes},
                                         .dtype = dtype,
                                         .n_threads = n_threads};
    status = backend->operators->open(device, dtype, n_threads, &trial.args.backend, err);
    if (status == MIST_OK)
        status = repeat_trial(device, &trial, &best_s, err);
    if (status == MIST_OK)
        *flop_per_s = 2.0 * (double)(n * n * n) * trial.n_products / best_s;
    mist_stopwatch_fini(&trial.watch);
    backend->operators->close(trial.args.backend);
    mist_device_close(device);
    return status;
}
