/*
 * What exec/device.h promises, on a GPU through the plugin: order in streams and between
 * them in random graphs, copies, functions of the host, both arenas, failures, spans.
 *
 * The twin of tests/unit/test_cuda_device.c, which looks at the host code on emulated
 * streams. Here the work of a task is a large copy, so that a stream runs well behind the
 * host, and a function of the host that reads a logical clock. Prints MIST_SEED.
 */
#include "tests/unit/test.h"

#include "core/clock.h"
#include "core/random.h"
#include "tests/emulation/backend.h"

enum { N_TASKS = 400, MAX_DEPS = 4, N_ROUNDS = 5, MIB = 1 << 20 };

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

struct task {
    struct mist_device *device;
    enum mist_stream stream;
    int n_deps;
    int deps[MAX_DEPS]; /* earlier tasks, any stream */
    int64_t copy_bytes; /* of the work before the tick */
    atomic_long *ticks; /* one counter for all: a logical clock */
    long at;            /* when its work ran; 0: has not */
};

static void tick(void *arg)
{
    struct task *task = arg;

    task->at = atomic_fetch_add(task->ticks, 1) + 1;
}

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
    if (task->copy_bytes > 0)
        mist_device_copy(task->device, to, from, task->copy_bytes);
    mist_device_call_host(task->device, tick, task);
}

static void make_tasks(struct mist_device *device, struct task *tasks, atomic_long *ticks,
                       struct mist_random *random)
{
    for (int i = 0; i < N_TASKS; i++) {
        tasks[i] = (struct task){
            .device = device,
            .stream = (enum mist_stream)mist_random_below(random, MIST_N_STREAMS),
            .copy_bytes = (int64_t)mist_random_below(random, 9) * MIB,
            .ticks = ticks};
        while (i > 0 && tasks[i].n_deps < MAX_DEPS && mist_random_below(random, 3) > 0) {
            int reach = i < 20 ? i : 20;
            tasks[i].deps[tasks[i].n_deps++] =
                i - 1 - (int)mist_random_below(random, reach);
        }
    }
}

static void dispatch(struct mist_device *device, struct task *tasks)
{
    struct mist_err err;

    mist_device_reset_events(device, N_TASKS);
    for (int i = 0; i < N_TASKS; i++) {
        for (int k = 0; k < tasks[i].n_deps; k++)
            mist_device_wait(device, tasks[i].stream, tasks[i].deps[k]);
        mist_device_submit(device, tasks[i].stream, launch_tick, &tasks[i]);
        mist_device_record(device, tasks[i].stream, i);
    }
    must(mist_device_synchronize(device, &err), &err);
}

static int count_mistakes(const struct task *tasks)
{
    long last[MIST_N_STREAMS] = {0};
    int n_mistakes = 0;

    for (int i = 0; i < N_TASKS; i++) {
        n_mistakes += tasks[i].at <= last[tasks[i].stream];
        last[tasks[i].stream] = tasks[i].at;
        for (int k = 0; k < tasks[i].n_deps; k++)
            n_mistakes += tasks[i].at <= tasks[tasks[i].deps[k]].at;
    }
    return n_mistakes;
}

static void test_random_graphs(void **state)
{
    static struct task tasks[N_TASKS];
    struct mist_device *device =
        open_device((1 + MIST_N_STREAMS) * (int64_t)8 * MIB, 0, false);
    struct mist_random random;

    mist_random_init(&random, test_seed(1));
    for (int round = 0; round < N_ROUNDS; round++) {
        atomic_long ticks = 0;
        make_tasks(device, tasks, &ticks, &random);
        dispatch(device, tasks);
        assert_int_equal(atomic_load(&ticks), N_TASKS);
        assert_int_equal(count_mistakes(tasks), 0);
    }
    mist_device_close(device);
}

/* ------------------------------------------------------------------ bodies of tasks */

struct trip {
    struct mist_device *device;
    char *to;
    const char *from;
    int64_t bytes;
};

static void run_trip(void *arg)
{
    struct trip *trip = arg;

    mist_device_copy(trip->device, trip->to, trip->from, trip->bytes);
}

static void fetch(void *device)
{
    mist_device_fetch_results(device);
}

/* Host memory to the device, there to the results, to the host's copy of them. */
static void test_copies(void **state)
{
    struct mist_device *device = open_device(4096, 4096, false);
    char *on_device = mist_device_arena(device, MIST_ARENA_DEVICE);
    static char source[64];
    struct trip in = {device, on_device, source, 64};
    struct trip on = {device, mist_device_results(device), on_device, 64};

    for (int round = 0; round < 20; round++) {
        for (int k = 0; k < 64; k++)
            source[k] = (char)(k + round);
        mist_device_reset_events(device, 2);
        mist_device_submit(device, MIST_STREAM_HOST_TO_DEVICE, run_trip, &in);
        mist_device_record(device, MIST_STREAM_HOST_TO_DEVICE, 0);
        mist_device_wait(device, MIST_STREAM_COMPUTE, 0);
        mist_device_submit(device, MIST_STREAM_COMPUTE, run_trip, &on);
        mist_device_record(device, MIST_STREAM_COMPUTE, 1);
        mist_device_wait(device, MIST_STREAM_GPU_GPU, 1);
        mist_device_submit(device, MIST_STREAM_GPU_GPU, fetch, device);
        assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
        assert_memory_equal(mist_device_host_results(device), source, 64);
    }
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

static void test_host_calls(void **state)
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
            assert_int_equal(calls[k].at, k + 1);
    }
    mist_device_close(device);
}

/* From the host: both arenas, zeroed, of odd sizes. */
static void test_memory(void **state)
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
        memset(bytes, 'x', sizeof bytes);
        assert_int_equal(mist_device_write(device, arena + 100, bytes, 300, &err), 0);
        assert_int_equal(mist_device_clear(device, arena + 200, 100, &err), MIST_OK);
        assert_int_equal(mist_device_read(device, bytes, arena, 500, &err), MIST_OK);
        for (int k = 0; k < 500; k++)
            assert_int_equal(bytes[k],
                             k < 100 || k >= 400 || (k >= 200 && k < 300) ? 0 : 'x');
    }
    mist_device_close(device);
}

/* More than there is: said with numbers, and nothing is left behind. */
static void test_too_much_memory(void **state)
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

static void fail_task(void *arg)
{
    struct mist_err err;
    enum mist_status status = mist_err_set(&err, MIST_ERR_VERIFY, "on purpose");

    mist_device_fail(arg, status, &err);
}

static void call_fail_task(void *arg)
{
    mist_device_call_host(arg, fail_task, arg);
}

/* What fails in a function of the host is told, and it stays. */
static void test_failure(void **state)
{
    struct mist_device *device = open_device(4096, 0, false);
    struct mist_err err;

    mist_device_reset_events(device, 1);
    mist_device_submit(device, MIST_STREAM_COMPUTE, call_fail_task, device);
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
static void test_spans(void **state)
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
        tasks[i] = (struct task){.device = device,
                                 .n_deps = i,
                                 .ticks = &ticks,
                                 .copy_bytes = (int64_t)8 * MIB};
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_graphs),   cmocka_unit_test(test_copies),
        cmocka_unit_test(test_host_calls),      cmocka_unit_test(test_memory),
        cmocka_unit_test(test_too_much_memory), cmocka_unit_test(test_failure),
        cmocka_unit_test(test_spans),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
