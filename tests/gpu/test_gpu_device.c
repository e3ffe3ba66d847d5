/*
 * What exec/device/device.h promises, on a GPU through the plugin: order in streams and between
 * them in random graphs, copies, functions of the host, both arenas, failures, spans.
 *
 * The twin of tests/unit/test_cuda_device.c, which looks at the host code on emulated
 * streams. Here the work of a task is a large copy, so that a stream runs well behind the
 * host, and a function of the host that reads a logical clock. Prints MIST_SEED.
 */
#include "tests/unit/test.h"

#include "core/clock.h"
#include "tests/emulation/backend.h"
#include "tests/unit/device_tasks.h"

enum { N_ROUNDS = 5, MIB = 1 << 20 };

static struct mist_device *open_device(int64_t device_bytes, int64_t host_bytes,
                                       bool records)
{
    struct mist_device *device;
    struct mist_err err;
    struct mist_device_config config = {.arena_bytes = {device_bytes, host_bytes},
                                        .result_bytes = 64,
                                        .threads = 1,
                                        .records = records};

    must(mist_emulated_backend()->open_device(&config, &device, &err), &err);
    return device;
}

/* ---------------------------------------------------------------------------- order */

/* Half of the device arena has its place for each stream. */
static void launch_tick(void *arg)
{
    struct task *task = arg;
    char *from = mist_device_arena(task->device, MIST_ARENA_DEVICE);
    char *to = from + (1 + (int)task->stream) * (int64_t)8 * MIB;

    if (task->stream == MIST_STREAM_HOST) { /* computes itself, in its own thread */
        tick(task);
        return;
    }
    if (task->work > 0)
        mist_device_copy(task->device, to, from, task->work * (int64_t)MIB);
    mist_device_call_host(task->device, tick, task);
}

TEST(test_random_graphs)
{
    static struct task tasks[N_TASKS];
    struct mist_device *device =
        open_device((1 + MIST_N_STREAMS) * (int64_t)8 * MIB, 0, false);
    struct mist_random random;
    struct mist_err err;

    mist_random_init(&random, test_seed(1));
    for (int round = 0; round < N_ROUNDS; round++) {
        atomic_long ticks = 0;
        make_tasks(device, tasks, &ticks, &random);
        dispatch(device, tasks, launch_tick);
        must(mist_device_synchronize(device, &err), &err);
        assert_int_equal(atomic_load(&ticks), N_TASKS);
        assert_int_equal(count_mistakes(tasks), 0);
    }
    mist_device_close(device);
}

/* ------------------------------------------------------------------ bodies of tasks */

TEST(test_copies)
{
    struct mist_device *device = open_device(4096, 4096, false);

    for (int round = 0; round < 20; round++)
        check_copies(device, round);
    mist_device_close(device);
}

enum { N_CALLS = 3000 }; /* more than are under way at once */

static void tick_copy(void *arg)
{
    tick(*(struct task **)arg);
}

/* Every other one with an argument that is gone when it runs. */
static void launch_calls(void *arg)
{
    struct task *calls = arg;

    for (int i = 0; i < N_CALLS; i++) {
        struct task *call = &calls[i];
        if (i % 2 == 0)
            mist_device_call_host(call->device, tick, call);
        else
            mist_device_call_host_copy(call->device, tick_copy, &call, sizeof call);
    }
}

TEST(test_host_calls)
{
    static struct task calls[N_CALLS];
    struct mist_device *device = open_device(0, 0, false);

    for (int round = 0; round < 3; round++) {
        atomic_long ticks = 0;
        for (int k = 0; k < N_CALLS; k++)
            calls[k] = (struct task){.device = device, .ticks = &ticks};
        mist_device_reset_events(device, 0);
        mist_device_submit(device, MIST_STREAM_GPU_GPU, launch_calls, calls);
        assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
        for (int k = 0; k < N_CALLS; k++)
            assert_int_equal(calls[k].end, k + 1);
    }
    mist_device_close(device);
}

/* From the host: both arenas, zeroed, of odd sizes. */
TEST(test_memory)
{
    struct mist_device *device = open_device(10001, 130 * (int64_t)MIB + 1, false);
    static char bytes[4096];
    struct mist_err err;

    assert_string_equal(device->ops->name, "cuda");
    assert_true(mist_device_is_addressable(device, MIST_ARENA_HOST));
    assert_true(mist_device_used_bytes(device) > 10001);
    for (int i = 0; i < MIST_N_ARENAS; i++) {
        char *arena = mist_device_arena(device, (enum mist_buffer_arena)i);
        int64_t n = mist_device_arena_bytes(device, (enum mist_buffer_arena)i);
        memset(bytes, 1, sizeof bytes);
        assert_int_equal(mist_device_read(device, bytes, arena + n - 4096, 4096, &err),
                         0);
        for (int k = 0; k < 4096; k++)
            assert_int_equal(bytes[k], 0);
        check_access(device, arena);
    }
    mist_device_close(device);
}

/* More than there is: said with numbers, and nothing is left behind. */
TEST(test_too_much_memory)
{
    struct mist_device_config config = {.arena_bytes = {(int64_t)1 << 42, 0}};
    struct mist_device *device;
    struct mist_err err = {.message = ""};

    assert_int_equal(mist_emulated_backend()->open_device(&config, &device, &err),
                     MIST_ERR_MEMORY);
    assert_non_null(strstr(err.message, "4096.00 GiB"));
    assert_null(device);
    mist_device_close(open_device(64 * MIB, 0, false));
}

/* ------------------------------------------------------------------ failures, spans */

/* What fails in a function of the host is told, and it stays. */
TEST(test_failure)
{
    struct mist_device *device = open_device(4096, 0, false);
    struct failing failing = {device, "on purpose"};
    struct mist_err err;

    mist_device_reset_events(device, 1);
    mist_device_submit(device, MIST_STREAM_COMPUTE, call_fail_task, &failing);
    for (int k = 0; k < 2; k++) {
        assert_int_equal(mist_device_synchronize(device, &err), MIST_ERR_VERIFY);
        assert_string_equal(err.message, "on purpose");
        mist_device_wait(device, MIST_STREAM_GPU_GPU, 0); /* never recorded */
    }
    mist_device_close(device);
}

enum { N_SPANS = 20 };

struct spans {
    int n, n_copies;
    double first_s, last_s, busy_s;
};

static void run_span(void *arg)
{
    struct task *task = arg;

    mist_device_begin_span(task->device, task->n_deps);
    launch_tick(task);
    mist_device_end_span(task->device);
}

static void note_work(void *context, const struct mist_span_work *work)
{
    struct spans *spans = context;

    assert_in_range(work->id - spans->n + 1, 0, 1); /* of the latest span or the next */
    assert_true(work->end_s >= work->start_s);
    spans->first_s = spans->n == 0 ? work->start_s : spans->first_s;
    assert_true(work->start_s >= spans->last_s - 2e-6); /* one stream */
    spans->n = (int)work->id + 1;
    spans->last_s = work->end_s;
    spans->busy_s += work->end_s - work->start_s;
    spans->n_copies += strcmp(work->name, "copy device to device") == 0;
}

/* Copies of 32 MiB: their spans lie within the host's clock, in order, and no copy is
 * faster than any memory. */
TEST(test_spans)
{
    struct mist_device *device = open_device((int64_t)64 * MIB, 0, true);
    static struct task tasks[N_SPANS];
    struct spans spans = {0};
    enum mist_span_loss loss;
    atomic_long ticks = 0;
    struct mist_err err;

    assert_true(mist_device_records(device));
    must(mist_device_start_spans(device, &err), &err);
    for (int i = 0; i < N_SPANS; i++)
        tasks[i] =
            (struct task){.device = device, .n_deps = i, .ticks = &ticks, .work = 8};
    mist_device_reset_events(device, 0);
    double before_s = mist_clock_now_s();
    for (int i = 0; i < N_SPANS; i++)
        mist_device_submit(device, MIST_STREAM_COMPUTE, run_span, &tasks[i]);
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
    double after_s = mist_clock_now_s();
    must(mist_device_collect_spans(device, note_work, &spans, &loss, &err), &err);
    assert_int_equal(loss, MIST_SPANS_WHOLE);
    assert_int_equal(spans.n, N_SPANS);
    assert_true(spans.n_copies >= N_SPANS);
    print_message("# spans: %.1f us of %.1f us, %.1f us after the start\n",
                  spans.busy_s * 1e6, (after_s - before_s) * 1e6,
                  (spans.first_s - before_s) * 1e6);
    assert_true(spans.first_s >= before_s - 20e-6 && spans.last_s <= after_s + 20e-6);
    assert_true(spans.busy_s > N_SPANS * 16e6 / 20e12);
    mist_device_close(device);
}

TEST_MAIN(NULL, NULL)
