/* Launch cost, memory rate, resident memory. See time_host.h. */
#include "profile/time_host.h"

#include "core/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { N_TASKS = 1000, N_ROUNDS = 15, N_COPIES = 12 };

/* A task as the runtime makes one, with nothing in it. */
struct empty_task {
    double start_s, end_s;
};

static void run_empty(void *arg)
{
    struct empty_task *task = arg;

    task->start_s = mist_clock_now_s();
    task->end_s = mist_clock_now_s();
}

/* N_TASKS one behind the other on a stream; us per task. */
static enum mist_status time_launch(struct mist_workbench *bench,
                                    struct empty_task *tasks, double *out_us,
                                    struct mist_err *err)
{
    struct mist_device *device = bench->device;

    mist_device_reset_events(device, N_TASKS);
    double start_s = mist_clock_now_s();
    for (int32_t i = 0; i < N_TASKS; i++) {
        mist_device_submit(device, MIST_STREAM_COMPUTE, run_empty, &tasks[i]);
        mist_device_record(device, MIST_STREAM_COMPUTE, i);
    }
    enum mist_status status = mist_device_synchronize(device, err);
    *out_us = (mist_clock_now_s() - start_s) / N_TASKS * 1e6;
    return status;
}

/* Two streams take turns, each waiting for the other; us per change. */
static enum mist_status time_hand_over(struct mist_workbench *bench,
                                       struct empty_task *tasks, double *out_us,
                                       struct mist_err *err)
{
    static const enum mist_stream streams[2] = {MIST_STREAM_COMPUTE, MIST_STREAM_GPU_GPU};
    struct mist_device *device = bench->device;

    mist_device_reset_events(device, N_TASKS);
    double start_s = mist_clock_now_s();
    for (int32_t i = 0; i < N_TASKS; i++) {
        if (i > 0)
            mist_device_wait(device, streams[i % 2], i - 1);
        mist_device_submit(device, streams[i % 2], run_empty, &tasks[i]);
        mist_device_record(device, streams[i % 2], i);
    }
    enum mist_status status = mist_device_synchronize(device, err);
    *out_us = (mist_clock_now_s() - start_s) / N_TASKS * 1e6;
    return status;
}

static void copy_half(void *arg)
{
    struct mist_workbench *bench = arg;
    int64_t half_bytes = bench->message_bytes / 2;

    mist_device_copy(bench->device, bench->message + half_bytes, bench->message,
                     half_bytes);
}

static enum mist_status time_copy(struct mist_workbench *bench, double *out_bytes_per_s,
                                  struct mist_err *err)
{
    double times_s[N_COPIES];

    for (int i = -1; i < N_COPIES; i++) { /* the first does not count */
        double start_s = mist_clock_now_s();
        enum mist_status status = mist_comm_barrier(bench->comm, err);
        if (status != MIST_OK)
            return status;
        start_s = mist_clock_now_s();
        mist_device_submit(bench->device, MIST_STREAM_COMPUTE, copy_half, bench);
        status = mist_device_synchronize(bench->device, err);
        if (status != MIST_OK)
            return status;
        if (i >= 0)
            times_s[i] = mist_clock_now_s() - start_s;
    }
    struct mist_estimate estimate = mist_estimate_make(times_s, N_COPIES);
    enum mist_status status = mist_workbench_pool(bench, &estimate, 1, err);
    *out_bytes_per_s = (double)(bench->message_bytes / 2 * 2) / estimate.mean;
    return status;
}

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

typedef enum mist_status timing_fn(struct mist_workbench *bench, struct empty_task *tasks,
                                   double *out_us, struct mist_err *err);

static enum mist_status repeat(struct mist_workbench *bench, timing_fn *timing,
                               double *out_us, struct mist_err *err)
{
    double times_us[N_ROUNDS];
    struct empty_task *tasks = calloc(N_TASKS, sizeof *tasks);
    enum mist_status status = MIST_OK;

    if (!tasks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
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

enum mist_status mist_time_host(struct mist_workbench *bench, struct mist_host_costs *out,
                                struct mist_err *err)
{
    int64_t resident_bytes = 0;
    enum mist_status status = repeat(bench, time_launch, &out->launch_us, err);

    if (status == MIST_OK)
        status = repeat(bench, time_hand_over, &out->hand_over_us, err);
    if (status == MIST_OK)
        status = time_copy(bench, &out->memory_bytes_per_s, err);
    if (status == MIST_OK)
        status = read_resident(&resident_bytes, err);
    if (status != MIST_OK)
        return status;
    double beside_bytes = (double)(resident_bytes - bench->arena_bytes);
    status = mist_workbench_max(bench, &beside_bytes, err);
    out->runtime_memory_bytes = beside_bytes > 0 ? (int64_t)beside_bytes : 0;
    return status;
}

double mist_time_host_flop_per_s(const struct mist_operators *operators,
                                 int32_t n_threads)
{
    enum { N = 256, N_TRIALS = 8 };
    float *x = calloc((size_t)3 * N * N, sizeof *x);
    struct mist_concrete_step step = {.op = MIST_OP_LINEAR,
                                      .phase = MIST_PHASE_FORWARD,
                                      .n_dims = 3,
                                      .dims = {N, N, N}};
    struct mist_step_args args = {.step = &step, .n_threads = n_threads};
    double best_s = 1;

    if (!x)
        return 1e9;
    args.operands[MIST_ARG_OUT] = x;
    args.operands[MIST_ARG_LINEAR_X] = x + N * N;
    args.params[0] = x + 2 * N * N;
    for (int i = 0; i < N_TRIALS; i++) {
        double start_s = mist_clock_now_s();
        operators->run_step(&args);
        double time_s = mist_clock_now_s() - start_s;
        best_s = time_s < best_s ? time_s : best_s;
    }
    free(x);
    return 2.0 * N * N * N / best_s;
}
