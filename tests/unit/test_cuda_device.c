/*
 * exec/cuda/device.c on the emulated runtime: order in streams and between them whatever
 * order the streams choose, failures of every call, what is said when memory is short.
 */
#include "tests/unit/test.h"

#if __has_include(<cuda_runtime_api.h>)

#include "exec/cuda/context.h"
#include "tests/emulation/cudart.h"
#include "tests/emulation/streams.h"
#include "tests/unit/device_tasks.h"

enum { MIB = 1 << 20 };

static const enum mist_emulated_order orders[] = {
    MIST_EMULATED_AT_ONCE, MIST_EMULATED_LAZY, MIST_EMULATED_LAZY_FORWARD};
enum { N_ORDERS = sizeof orders / sizeof *orders };

static struct mist_device *open_device(int64_t device_bytes, int64_t host_bytes)
{
    struct mist_device *device;
    struct mist_err err;
    struct mist_device_config config = {
        .arena_bytes = {device_bytes, host_bytes}, .result_bytes = 64, .threads = 1};

    must(mist_cuda_device_open(&config, &device, &err), &err);
    return device;
}

static void check_nothing_is_left(void)
{
    assert_int_equal(mist_emulated_cuda.used_bytes, 0);
    assert_int_equal(mist_emulated_cuda.locked_bytes, 0);
    assert_int_equal(mist_emulated_streams_count(), 0);
    assert_int_equal(mist_emulated_events_count(), 0);
}

static int setup(void **state)
{
    mist_emulated_cuda_reset();
    return 0;
}

static int teardown(void **state)
{
    mist_emulated_streams_set(MIST_EMULATED_AT_ONCE);
    check_nothing_is_left();
    return 0;
}

/* ---------------------------------------------------------------------------- order */

static void tick_pointed_at(void *arg)
{
    tick(*(struct task **)arg);
}

/* A body: launches its "kernel" into the stream it was submitted to. */
static void launch_tick(void *arg)
{
    struct task *task = arg;
    struct mist_cuda_device *device = mist_cuda_device_of(task->device);

    if (task->stream == MIST_STREAM_HOST) { /* computes itself, in its own thread */
        tick(task);
        return;
    }
    assert_int_equal(device->current, task->stream);
    mist_emulated_stream_run(mist_cuda_current_stream(device), tick_pointed_at, &task,
                             sizeof task);
}

TEST_WITH(test_random_graphs, setup, teardown)
{
    static struct task tasks[N_TASKS];
    struct mist_device *device = open_device(0, 0);
    struct mist_random random;

    mist_random_init(&random, test_seed(1));
    for (int round = 0; round < 12; round++) {
        atomic_long ticks = 0;
        mist_emulated_streams_set(orders[round % N_ORDERS]);
        make_tasks(device, tasks, &ticks, &random);
        dispatch(device, tasks, launch_tick);
        assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
        assert_int_equal(ticks, N_TASKS);
        assert_int_equal(count_mistakes(tasks), 0);
        /* used again; two milestones for each stream */
        assert_int_equal(mist_emulated_events_count(), N_TASKS + 2 * MIST_N_STREAMS);
    }
    mist_device_close(device);
}

/* What the lazy orders are for: a wait that is missing is seen, though the host's order
 * was right. */
TEST_WITH(test_missing_wait_is_seen, setup, teardown)
{
    struct mist_device *device = open_device(0, 0);

    for (int i = 0; i < N_ORDERS; i++) {
        atomic_long ticks = 0;
        /* lazy runs the later streams first, lazy-forward the one that is waited for */
        bool is_forward = orders[i] == MIST_EMULATED_LAZY_FORWARD;
        enum mist_stream first =
            is_forward ? MIST_STREAM_HOST_TO_DEVICE : MIST_STREAM_COMPUTE;
        enum mist_stream then =
            is_forward ? MIST_STREAM_COMPUTE : MIST_STREAM_DEVICE_TO_HOST;
        struct task a = {.device = device, .stream = first, .ticks = &ticks};
        struct task b = {.device = device, .stream = then, .ticks = &ticks};
        for (int waits = 0; waits < 2; waits++) {
            mist_emulated_streams_set(orders[i]);
            mist_device_reset_events(device, 1);
            mist_device_submit(device, first, launch_tick, &a);
            mist_device_record(device, first, 0);
            if (waits)
                mist_device_wait(device, then, 0);
            mist_device_submit(device, then, launch_tick, &b);
            assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
            assert_int_equal(a.end < b.start,
                             waits || orders[i] == MIST_EMULATED_AT_ONCE);
        }
    }
    mist_device_close(device);
}

TEST_WITH(test_wait_before_record, setup, teardown)
{
    struct mist_device *device = open_device(0, 0);
    struct mist_err err;

    mist_device_reset_events(device, 4);
    mist_device_record(device, MIST_STREAM_COMPUTE, 3);
    mist_device_wait(device, MIST_STREAM_DEVICE_TO_HOST, 3);
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
    mist_device_reset_events(device, 4); /* the record was of the iteration before */
    mist_device_wait(device, MIST_STREAM_DEVICE_TO_HOST, 3);
    assert_int_equal(mist_device_synchronize(device, &err), MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "event 3"));
    assert_non_null(strstr(err.message, mist_stream_name(MIST_STREAM_DEVICE_TO_HOST)));
    mist_device_close(device);
}

/* ------------------------------------------------------------------ bodies of tasks */

TEST_WITH(test_copies, setup, teardown)
{
    for (int i = 0; i < N_ORDERS; i++) {
        mist_emulated_streams_set(orders[i]);
        struct mist_device *device = open_device(4096, 4096);
        check_copies(device, i);
        mist_device_close(device);
    }
}

enum { N_CALLS = 3000 }; /* more than are under way at once */

struct call {
    struct mist_device *device;
    int *n_seen;
    int index, seen_at;
};

static void note_call(void *arg)
{
    struct call *call = arg;

    call->seen_at = ++*call->n_seen;
}

/* And asks CUDA something, as an MPI does that was built for it; the streams here end the
 * program if a function calls CUDA where a stream called it. */
static void note_copy(void *arg)
{
    struct call *call = *(struct call **)arg;
    int priority;

    note_call(call);
    if (cudaDeviceGetStreamPriorityRange(&priority, &priority) != cudaSuccess)
        call->seen_at = -1;
}

/* Every other one with an argument that is gone when it runs. */
static void launch_calls(void *arg)
{
    struct call *calls = arg;

    for (int i = 0; i < N_CALLS; i++) {
        struct call *call = &calls[i];
        if (i % 2 == 0)
            mist_device_call_host(call->device, note_call, call);
        else
            mist_device_call_host_copy(call->device, note_copy, &call, sizeof call);
    }
}

TEST_WITH(test_host_calls, setup, teardown)
{
    static struct call calls[N_CALLS];

    for (int i = 0; i < N_ORDERS; i++) {
        mist_emulated_streams_set(orders[i]);
        struct mist_device *device = open_device(0, 0);
        for (int round = 0; round < 3; round++) {
            int n_seen = 0;
            for (int k = 0; k < N_CALLS; k++)
                calls[k] = (struct call){.device = device, .n_seen = &n_seen};
            mist_device_reset_events(device, 0);
            mist_device_submit(device, MIST_STREAM_GPU_GPU, launch_calls, calls);
            if (orders[i] != MIST_EMULATED_AT_ONCE)
                assert_true(n_seen < N_CALLS);
            assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
            for (int k = 0; k < N_CALLS; k++)
                assert_int_equal(calls[k].seen_at, k + 1);
        }
        mist_device_close(device);
    }
}

/* From the host: both arenas. */
TEST_WITH(test_memory, setup, teardown)
{
    struct mist_device *device = open_device(10001, 5 * MIB + 1);

    assert_string_equal(device->ops->name, "cuda");
    assert_false(mist_device_is_addressable(device, MIST_ARENA_DEVICE));
    assert_true(mist_device_is_addressable(device, MIST_ARENA_HOST));
    assert_int_equal(mist_emulated_cuda.used_bytes,
                     10001 + 64 + MIST_CUDA_WORKSPACE_BYTES);
    assert_int_equal(mist_device_used_bytes(device), mist_emulated_cuda.used_bytes);
    assert_int_equal(mist_emulated_cuda.locked_bytes, 5 * MIB + 1 + 64);
    for (int i = 0; i < MIST_N_ARENAS; i++) {
        char *arena = mist_device_arena(device, (enum mist_buffer_arena)i);
        assert_int_equal(mist_device_arena_bytes(device, (enum mist_buffer_arena)i),
                         i == 0 ? 10001 : 5 * MIB + 1);
        for (int64_t k = 0; k < (i == 0 ? 10001 : 5 * MIB + 1); k++)
            if (arena[k] != 0)
                fail_msg("byte %lld of arena %d is not zero", (long long)k, i);
        check_access(device, arena);
    }
    mist_device_close(device);
    device = open_device(0, 0);
    assert_null(mist_device_arena(device, MIST_ARENA_DEVICE));
    assert_null(mist_device_arena(device, MIST_ARENA_HOST));
    mist_device_close(device);
}

/* Large enough for several threads; every byte is touched by exactly one of them. */
TEST_WITH(test_large_host_arena, setup, teardown)
{
    int64_t bytes = (int64_t)130 * MIB + 12345;
    struct mist_device *device = open_device(0, bytes);
    const char *arena = mist_device_arena(device, MIST_ARENA_HOST);
    int64_t n_not_zero = 0;

    for (int64_t k = 0; k < bytes; k++)
        n_not_zero += arena[k] != 0;
    assert_int_equal(n_not_zero, 0);
    mist_device_close(device);
}

/* ------------------------------------------------------------------------- failures */

static void count(void *arg)
{
    ++*(int *)arg;
}

static void call_count(void *arg)
{
    struct call *call = arg;

    mist_device_call_host(call->device, count, call->n_seen);
}

TEST_WITH(test_failure, setup, teardown)
{
    for (int i = 0; i < N_ORDERS; i++) {
        mist_emulated_streams_set(orders[i]);
        struct mist_device *device = open_device(4096, 0);
        struct failing first = {device, "first"}, second = {device, "second"};
        int n_before = 0, n_after = 0;
        struct call after = {.device = device, .n_seen = &n_after};
        struct mist_err err;
        mist_device_reset_events(device, 3);
        mist_device_submit(device, MIST_STREAM_COMPUTE, count, &n_before);
        /* From a function of the host, and what the streams have behind it. */
        mist_device_submit(device, MIST_STREAM_COMPUTE, call_fail_task, &first);
        mist_device_submit(device, MIST_STREAM_COMPUTE, call_count, &after);
        for (int k = 0; k < 2; k++) { /* it stays failed */
            assert_int_equal(mist_device_synchronize(device, &err), MIST_ERR_VERIFY);
            assert_string_equal(err.message, "first");
            mist_device_submit(device, MIST_STREAM_COMPUTE, fail_task, &second);
            mist_device_submit(device, MIST_STREAM_COMPUTE, count, &n_after);
            mist_device_submit(device, MIST_STREAM_GPU_GPU, call_count, &after);
            mist_device_wait(device, MIST_STREAM_GPU_GPU, 2); /* never recorded */
            mist_device_record(device, MIST_STREAM_GPU_GPU, 1);
        }
        assert_int_equal(n_before, 1);
        assert_int_equal(n_after, 0);
        mist_device_close(device);
    }
}

static void launch_badly(void *arg)
{
    /* What a kernel's launch does: nobody looks at it. */
    (void)cudaMemsetAsync(NULL, 0, 1, mist_cuda_current_stream(arg));
}

TEST_WITH(test_errors_of_cuda, setup, teardown)
{
    static const struct {
        const char *call;
        int code;
        const char *says[2];
    } cases[] = {
        {"cudaStreamSynchronize", cudaErrorIllegalAddress, {"compute", "sanitizer"}},
        {"cudaEventRecord", cudaErrorLaunchFailure, {"cudaEventRecord", "unspecified"}},
        {"cudaStreamWaitEvent",
         cudaErrorInvalidValue,
         {"cudaStreamWaitEvent", "invalid"}},
        {"cudaMemcpyAsync", cudaErrorInvalidValue, {"cudaMemcpyAsync", "invalid"}},
        {"cudaLaunchHostFunc", cudaErrorInvalidValue, {"cudaLaunchHostFunc", "invalid"}},
        {"cudaEventCreateWithFlags", cudaErrorMemoryAllocation, {"cudaEvent", "out of"}},
        {"cudaMemsetAsync", cudaErrorInvalidValue, {"clearing", "invalid"}},
        {"", 0, {"a launch", "invalid"}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_device *device = open_device(4096, 4096);
        int n_calls = 0;
        struct call call = {.device = device, .n_seen = &n_calls};
        struct trip trip = {.device = device,
                            .to = mist_device_arena(device, MIST_ARENA_DEVICE),
                            .from = mist_device_arena(device, MIST_ARENA_HOST),
                            .bytes = 4096};
        struct mist_err err;
        mist_emulated_cuda.fails = cases[i].call;
        mist_emulated_cuda.fails_in = 1;
        mist_emulated_cuda.fails_with = cases[i].code;
        if (strcmp(cases[i].call, "cudaStreamSynchronize") == 0)
            mist_emulated_cuda.fails_in = 2; /* the first is the zeroing of results */
        mist_device_reset_events(device, 1);
        mist_device_submit(device, MIST_STREAM_COMPUTE, run_trip, &trip);
        mist_device_submit(device, MIST_STREAM_COMPUTE, call_count, &call);
        if (*cases[i].call == '\0')
            mist_device_submit(device, MIST_STREAM_COMPUTE, launch_badly, device);
        mist_device_record(device, MIST_STREAM_COMPUTE, 0);
        mist_device_wait(device, MIST_STREAM_GPU_GPU, 0);
        assert_int_equal(mist_device_synchronize(device, &err),
                         cases[i].code == cudaErrorMemoryAllocation ? MIST_ERR_MEMORY
                                                                    : MIST_ERR_RUN);
        for (int k = 0; k < 2; k++)
            if (!strstr(err.message, cases[i].says[k]))
                fail_msg("case %zu: %s", i, err.message);
        mist_device_close(device);
        mist_emulated_cuda_reset();
    }
}

/* Every call that opening makes fails once; nothing may be left. */
TEST_WITH(test_opening_fails, setup, teardown)
{
    static const char *const calls[] = {"cudaGetDeviceCount",
                                        "cudaSetDevice",
                                        "cudaDeviceGetAttribute",
                                        "cudaMemGetInfo",
                                        "cudaMalloc",
                                        "cudaStreamCreateWithPriority",
                                        "cudaMemsetAsync",
                                        "cudaHostRegister",
                                        "cudaStreamSynchronize",
                                        "cudaEventCreateWithFlags",
                                        "cudaDeviceGetStreamPriorityRange"};
    struct mist_device_config config = {
        .arena_bytes = {4096, 4096}, .result_bytes = 64, .threads = 1};
    int n_failures = 0;

    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        for (int n = 1;; n++) {
            struct mist_device *device;
            struct mist_err err;
            mist_emulated_cuda.fails = calls[i];
            mist_emulated_cuda.fails_in = n;
            mist_emulated_cuda.fails_with = cudaErrorLaunchFailure;
            enum mist_status status = mist_cuda_device_open(&config, &device, &err);
            bool has_failed = mist_emulated_cuda.fails == NULL;
            mist_emulated_cuda_reset();
            mist_device_close(device);
            check_nothing_is_left();
            if (!has_failed)
                break;
            n_failures++;
            assert_int_equal(status, MIST_ERR_RUN);
            assert_non_null(strstr(err.message, "unspecified launch failure"));
            assert_null(device);
        }
    }
    assert_true(n_failures >= 23);
}

static void refuse(const struct mist_device_config *config, enum mist_status status,
                   const char *says, const char *says_too)
{
    struct mist_device *device;
    struct mist_err err = {.message = ""};

    assert_int_equal(mist_cuda_device_open(config, &device, &err), status);
    if (!strstr(err.message, says) || !strstr(err.message, says_too))
        fail_msg("%s", err.message);
    assert_null(device);
    check_nothing_is_left();
}

TEST_WITH(test_refusals, setup, teardown)
{
    struct mist_device_config config = {.arena_bytes = {0, -1}};

    refuse(&config, MIST_ERR_RANGE, "host arena", "-1");
    config = (struct mist_device_config){.arena_bytes = {-7, 0}};
    refuse(&config, MIST_ERR_RANGE, "device arena", "-7");
    config = (struct mist_device_config){.result_bytes = -3};
    refuse(&config, MIST_ERR_RANGE, "results", "-3");
    config = (struct mist_device_config){.arena_bytes = {INT64_MAX, 0}};
    refuse(&config, MIST_ERR_RANGE, "device arena", "9223372036854775807");
    config = (struct mist_device_config){.i_device = 1};
    refuse(&config, MIST_ERR_RANGE, "no GPU 1", "sees 1");
    /* 1 GiB there is; a half of it and the workspace are missing */
    config = (struct mist_device_config){.arena_bytes = {(int64_t)3 << 29, 0}};
    refuse(&config, MIST_ERR_MEMORY, "needs 1.50 GiB", "0.53 GiB are missing");
    config = (struct mist_device_config){.arena_bytes = {(int64_t)1 << 29, 0}};
    mist_emulated_cuda.hidden_bytes = (int64_t)3 << 28;
    refuse(&config, MIST_ERR_MEMORY, "0.50 GiB of GPU 0 for the plan", "out of memory");
    mist_emulated_cuda.hidden_bytes = 0;
    config = (struct mist_device_config){.arena_bytes = {0, 5 * MIB}};
    mist_emulated_cuda.max_locked_bytes = 4 * MIB;
    refuse(&config, MIST_ERR_MEMORY, "can't be locked", "ulimit -l");
    mist_emulated_cuda.n_devices = 0;
    refuse(&config, MIST_ERR_RUN, "looking for GPUs", "CUDA_VISIBLE_DEVICES");
}

/* ------------------------------------------------------- priorities, run-ahead, spans */

TEST_WITH(test_priorities, setup, teardown)
{
    struct mist_device *device = open_device(0, 0);
    int least = 1, greatest = 1, priority = 1;

    assert_int_equal(cudaDeviceGetStreamPriorityRange(&least, &greatest), cudaSuccess);
    assert_true(greatest < least);
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        assert_int_equal(
            cudaStreamGetPriority(mist_cuda_device_of(device)->streams[i], &priority),
            cudaSuccess);
        enum mist_stream channel = mist_stream_channel((enum mist_stream)i);
        assert_int_equal(priority, channel == MIST_STREAM_GPU_GPU ? greatest : least);
    }
    mist_device_close(device);
}

struct ahead {
    struct task task; /* first */
    int *n_given;
    long *most;
};

static void launch_ahead(void *arg)
{
    struct ahead *ahead = arg;
    long now = ++*ahead->n_given - *ahead->task.ticks;

    *ahead->most = now > *ahead->most ? now : *ahead->most;
    launch_tick(&ahead->task);
}

/* On a device that does nothing before it is waited for, the host is never further ahead
 * of a stream than it says, and goes that far; whatever the other streams do. */
TEST_WITH(test_run_ahead, setup, teardown)
{
    enum { N_AHEAD = 10 * MIST_CUDA_RUN_AHEAD + 3 };
    static struct ahead tasks[MIST_N_CHANNELS][N_AHEAD];
    struct mist_device *device = open_device(0, 0);
    atomic_long ticks[MIST_N_CHANNELS] = {0};
    long most[MIST_N_CHANNELS] = {0};
    int n_given[MIST_N_CHANNELS] = {0};

    mist_emulated_streams_set(MIST_EMULATED_LAZY_FORWARD);
    mist_device_reset_events(device, 0);
    for (int i = 0; i < N_AHEAD; i++)
        for (int k = 0; k < MIST_N_CHANNELS; k++) {
            enum mist_stream stream = (enum mist_stream)k;
            if (i % (k + 1) != 0)
                continue;
            tasks[k][i] =
                (struct ahead){{.device = device, .stream = stream, .ticks = &ticks[k]},
                               &n_given[k],
                               &most[k]};
            mist_device_submit(device, stream, launch_ahead, &tasks[k][i]);
        }
    for (int k = 0; k < MIST_N_CHANNELS; k++)
        assert_int_equal(most[k], MIST_CUDA_RUN_AHEAD);
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
    for (int k = 0; k < MIST_N_CHANNELS; k++)
        assert_int_equal(ticks[k], n_given[k]);
    mist_device_close(device);
}

static void run_span(void *arg)
{
    struct task *task = arg;

    mist_device_begin_span(task->device, task->n_deps);
    launch_tick(task);
    mist_device_end_span(task->device);
}

static void note_span(void *context, const struct mist_span_work *work)
{
    int *n = context;

    assert_int_equal(work->id, ++*n);
    assert_true(work->end_s >= work->start_s && work->name);
}

TEST_WITH(test_spans, setup, teardown)
{
    struct mist_device *device = open_device(0, 0), *recording;
    struct mist_device_config config = {.records = true};
    enum mist_span_loss loss = MIST_SPANS_TOO_MANY;
    atomic_long ticks = 0;
    int n_spans = 0;

    assert_false(mist_device_records(device));
    mist_device_close(device);
    assert_int_equal(mist_cuda_device_open(&config, &recording, NULL), MIST_OK);
    assert_true(mist_device_records(recording));
    struct task a = {.device = recording, .n_deps = 2, .ticks = &ticks}, b = a;
    b.n_deps = 1;
    assert_int_equal(mist_device_start_spans(recording, NULL), MIST_OK);
    mist_device_reset_events(recording, 0);
    mist_device_submit(recording, MIST_STREAM_COMPUTE, run_span, &a);
    mist_device_submit(recording, MIST_STREAM_COMPUTE, run_span, &b);
    assert_int_equal(mist_device_synchronize(recording, NULL), MIST_OK);
    for (int i = 0; i < 2; i++) { /* each once */
        assert_int_equal(
            mist_device_collect_spans(recording, note_span, &n_spans, &loss, NULL),
            MIST_OK);
        assert_int_equal(loss, MIST_SPANS_WHOLE);
        assert_int_equal(n_spans, 2);
    }
    mist_device_close(recording);
}

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("CUDA's headers are not installed")

#endif
