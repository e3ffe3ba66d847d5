/* exec/device: order in streams and between them, failures, no allocation in a run; for
 * streams that are threads and for streams that take turns. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/clock.h"
#include "tests/unit/device_tasks.h"

static bool take_turns; /* the streams of the tests that run now */

static struct mist_device *open_device(int64_t device_bytes, int64_t host_bytes)
{
    struct mist_device *device;
    struct mist_err err;
    struct mist_device_config config = {.arena_bytes = {device_bytes, host_bytes},
                                        .threads = 2,
                                        .streams_take_turns = take_turns};

    assert_int_equal(mist_device_open_cpu(&config, &device, &err), MIST_OK);
    return device;
}

static void run_task(void *arg)
{
    struct task *task = arg;

    task->start = ++*task->ticks;
    mist_clock_sleep_s(task->work * 1e-5);
    task->end = ++*task->ticks;
}

static void count(void *arg)
{
    ++*(atomic_long *)arg;
}

struct sequence {
    int n;
    int seen[20000];
};

struct item {
    struct sequence *sequence;
    int value;
};

static void append(void *arg)
{
    struct item *item = arg;

    item->sequence->seen[item->sequence->n++] = item->value;
}

/* More entries than a queue holds, while its worker is slow to begin. */
TEST(test_fifo)
{
    static struct sequence sequences[MIST_N_STREAMS];
    static struct item items[MIST_N_STREAMS][20000];
    atomic_long ticks = 0;
    struct task slow[MIST_N_STREAMS];
    struct mist_device *device = open_device(0, 0);

    mist_device_reset_events(device, 0);
    for (int s = 0; s < MIST_N_STREAMS; s++) {
        slow[s] = (struct task){.work = 500, .ticks = &ticks};
        sequences[s].n = 0;
        mist_device_submit(device, (enum mist_stream)s, run_task, &slow[s]);
    }
    for (int i = 0; i < 20000; i++) {
        for (int s = 0; s < MIST_N_STREAMS; s++) {
            items[s][i] = (struct item){&sequences[s], i};
            mist_device_submit(device, (enum mist_stream)s, append, &items[s][i]);
        }
    }
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
    for (int s = 0; s < MIST_N_STREAMS; s++) {
        assert_int_equal(sequences[s].n, 20000);
        for (int i = 0; i < 20000; i++)
            assert_int_equal(sequences[s].seen[i], i);
    }
    mist_device_close(device);
}

/* Every task starts after its dependencies and its stream's task before; and nothing is
 * allocated from the second graph on. */
TEST(test_random_graphs)
{
    static struct task tasks[N_TASKS];
    struct mist_device *device = open_device(0, 0);
    struct mist_random random;
    const long many = 1L << 60;

    mist_random_init(&random, test_seed(1));
    for (int round = 0; round < 20; round++) {
        atomic_long ticks = 0;
        make_tasks(device, tasks, &ticks, &random);
        fault_arm(FAULT_MALLOC, many);
        dispatch(device, tasks, run_task);
        enum mist_status status = mist_device_synchronize(device, NULL);
        long n_allocations = many - fault_left[FAULT_MALLOC];
        (void)fault_disarm();
        assert_int_equal(status, MIST_OK);
        if (round > 0) /* while the threads begin, libraries allocate for them, too */
            assert_int_equal(n_allocations, 0);
        assert_int_equal(count_mistakes(tasks), 0);
    }
    mist_device_close(device);
}

/* A wait may stand in its queue long before the record does. */
TEST(test_wait_before_record)
{
    struct mist_device *device = open_device(0, 0);
    atomic_long ticks = 0;
    struct task first = {.ticks = &ticks, .work = 100}, then = {.ticks = &ticks};

    for (int round = 0; round < 100; round++) {
        ticks = 0;
        mist_device_reset_events(device, 1);
        mist_device_wait(device, MIST_STREAM_DEVICE_TO_HOST, 0);
        mist_device_submit(device, MIST_STREAM_DEVICE_TO_HOST, run_task, &then);
        if (round % 2)
            mist_clock_sleep_s(1e-4); /* let it fall asleep */
        mist_device_submit(device, MIST_STREAM_COMPUTE, run_task, &first);
        mist_device_record(device, MIST_STREAM_COMPUTE, 0);
        assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
        assert_int_equal(first.end, 2);
        assert_int_equal(then.start, 3);
        first.work = 0;
    }
    mist_device_close(device);
}

TEST(test_failure)
{
    struct mist_device *device = open_device(0, 0);
    struct failing first = {device, "first"}, second = {device, "second"};
    struct mist_err err;
    atomic_long n_before = 0, n_after = 0;

    mist_device_reset_events(device, 3);
    mist_device_wait(device, MIST_STREAM_GPU_GPU, 2); /* is never recorded */
    mist_device_submit(device, MIST_STREAM_GPU_GPU, count, &n_after);
    mist_device_submit(device, MIST_STREAM_COMPUTE, count, &n_before);
    mist_device_submit(device, MIST_STREAM_COMPUTE, fail_task, &first);
    mist_device_submit(device, MIST_STREAM_COMPUTE, count, &n_after);
    mist_device_record(device, MIST_STREAM_COMPUTE, 0);
    mist_device_wait(device, MIST_STREAM_HOST_TO_DEVICE, 0);
    mist_device_submit(device, MIST_STREAM_HOST_TO_DEVICE, fail_task, &second);
    mist_device_submit(device, MIST_STREAM_HOST_TO_DEVICE, count, &n_after);
    for (int i = 0; i < 2; i++) { /* it stays failed */
        assert_int_equal(mist_device_synchronize(device, &err), MIST_ERR_VERIFY);
        assert_string_equal(err.message, "first");
    }
    assert_int_equal(n_before, 1);
    assert_int_equal(n_after, 0);
    mist_device_fail(device, MIST_ERR_RUN, NULL);
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_ERR_VERIFY);
    mist_device_close(device);
}

TEST(test_arenas)
{
    struct mist_device *device = open_device(10001, 0);
    char *bytes = mist_device_arena(device, MIST_ARENA_DEVICE);

    assert_non_null(bytes);
    assert_int_equal((uintptr_t)bytes % 4096, 0);
    for (int i = 0; i < 10001; i++)
        assert_int_equal(bytes[i], 0);
    memset(bytes, 1, 10001); /* a sanitizer would see one byte too many */
    assert_null(mist_device_arena(device, MIST_ARENA_HOST));
    assert_int_equal(mist_device_arena_bytes(device, MIST_ARENA_DEVICE), 10001);
    mist_device_close(device);
    device = open_device(1, 5 * 4096);
    memset(mist_device_arena(device, MIST_ARENA_HOST), 1, 5 * 4096);
    mist_device_close(device);
    mist_device_close(NULL);
}

TEST(test_refusals)
{
    struct mist_device *device;
    struct mist_err err;
    struct mist_device_config config = {.threads = 0};

    assert_int_equal(mist_device_open_cpu(&config, &device, &err), MIST_ERR_RANGE);
    config = (struct mist_device_config){.arena_bytes = {0, -1}, .threads = 1};
    assert_int_equal(mist_device_open_cpu(&config, &device, &err), MIST_ERR_RANGE);
    assert_non_null(strstr(err.message, "host"));
    config = (struct mist_device_config){.arena_bytes = {INT64_MAX, 0}, .threads = 1};
    assert_int_equal(mist_device_open_cpu(&config, &device, &err), MIST_ERR_MEMORY);
    assert_non_null(strstr(err.message, "9223372036854775807"));
    assert_null(device);
}

/* Events that can't be allocated fail the device; what follows does not hang. */
TEST(test_out_of_memory)
{
    struct mist_device *device = open_device(0, 0);
    atomic_long n = 0;

    fault_arm(FAULT_MALLOC, 1);
    mist_device_reset_events(device, 10);
    assert_true(fault_disarm());
    mist_device_wait(device, MIST_STREAM_COMPUTE, 9);
    mist_device_submit(device, MIST_STREAM_COMPUTE, count, &n);
    mist_device_record(device, MIST_STREAM_COMPUTE, 8);
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_ERR_MEMORY);
    assert_int_equal(n, 0);
    mist_device_close(device);
}

/* --------------------------------------------------------------------- streams in turns */

/* What a body says it did, in order. */
struct diary {
    struct mist_device *device;
    char text[64];
    int n;
    int waits; /* of communication, before it goes on */
};

static void note(struct diary *diary, char what)
{
    assert_true(diary->n < (int)sizeof diary->text - 1);
    diary->text[diary->n++] = what;
}

static void communicate(void *arg)
{
    struct diary *diary = arg;

    note(diary, 'm');
    for (int i = 0; i < diary->waits; i++)
        assert_true(mist_device_pause(diary->device, 0));
    note(diary, 'M');
}

static void load(void *arg)
{
    note(arg, 'l');
    mist_device_give_turn(); /* a copy keeps its turn */
    note(arg, 'L');
}

static void compute(void *arg)
{
    struct diary *diary = arg;

    for (int i = 0; i < 4; i++) {
        note(diary, (char)('0' + i));
        mist_device_give_turn();
    }
    assert_false(mist_device_pause(diary->device, 0)); /* who computes waits for nobody */
}

static void submit_all(struct diary *diary)
{
    mist_device_reset_events(diary->device, 2);
    mist_device_submit(diary->device, MIST_STREAM_COMPUTE, compute, diary);
    mist_device_submit(diary->device, MIST_STREAM_HOST_TO_DEVICE, load, diary);
    mist_device_submit(diary->device, MIST_STREAM_GPU_GPU, communicate, diary);
    mist_device_record(diary->device, MIST_STREAM_GPU_GPU, 0);
    mist_device_wait(diary->device, MIST_STREAM_DEVICE_TO_HOST, 0);
    mist_device_submit(diary->device, MIST_STREAM_DEVICE_TO_HOST, load, diary);
}

static int take_one_thread(void **state)
{
    take_turns = true;
    return 0;
}

/* Communication first, one look between steps of the computation; then copies; what waited
 * for communication comes as soon as that has ended. */
TEST_WITH(test_priorities, take_one_thread, NULL)
{
    static const char *const expected[] = {"mMlLlL0123", "mlLMlL0123", "mlL0MlL123",
                                           "mlL01MlL23"};
    struct diary diary = {.device = open_device(0, 0)};

    for (int i = 0; i < 4; i++) {
        diary = (struct diary){.device = diary.device, .waits = i};
        submit_all(&diary);
        assert_string_equal(diary.text, ""); /* nobody has waited for it yet */
        assert_int_equal(mist_device_synchronize(diary.device, NULL), MIST_OK);
        assert_string_equal(diary.text, expected[i]);
    }
    mist_device_give_turn(); /* outside of bodies there is none to give */
    assert_false(mist_device_pause(diary.device, 0));
    mist_device_close(diary.device);
}

/* A message that takes so many looks; letters of its own. */
struct message {
    struct diary *diary;
    int waits;
    char begins, ends;
};

static void carry(void *arg)
{
    const struct message *message = arg;

    note(message->diary, message->begins);
    for (int i = 0; i < message->waits; i++)
        assert_true(mist_device_pause(message->diary->device, 0));
    note(message->diary, message->ends);
}

/* A message that comes late keeps no other from going or coming, and computation goes on
 * beside all of them. */
TEST_WITH(test_messages, take_one_thread, NULL)
{
    struct diary diary = {.device = open_device(0, 0)};
    struct message first = {&diary, 3, 'r', 'R'}, second = {&diary, 0, 'q', 'Q'};
    struct message sum = {&diary, 1, 'g', 'G'}, late = {&diary, 2, 'h', 'H'};
    struct message send = {&diary, 2, 's', 'S'};

    mist_device_reset_events(diary.device, 0);
    mist_device_submit(diary.device, MIST_STREAM_COMPUTE, compute, &diary);
    mist_device_submit(diary.device, MIST_STREAM_RECEIVE, carry, &first);
    mist_device_submit(diary.device, MIST_STREAM_RECEIVE, carry, &second);
    mist_device_submit(diary.device, MIST_STREAM_SEND, carry, &send);
    mist_device_submit(diary.device, MIST_STREAM_GPU_GPU, carry, &sum);
    mist_device_submit(diary.device, MIST_STREAM_GPU_GPU, carry, &late);
    assert_int_equal(mist_device_synchronize(diary.device, NULL), MIST_OK);
    assert_string_equal(diary.text, "gsr0Gh1SH2RqQ3");
    mist_device_close(diary.device);
}

TEST_AGAIN(test_fifo, take_one_thread, NULL)
TEST_AGAIN(test_random_graphs, take_one_thread, NULL)
TEST_AGAIN(test_wait_before_record, take_one_thread, NULL)
TEST_AGAIN(test_failure, take_one_thread, NULL)
TEST_AGAIN(test_out_of_memory, take_one_thread, NULL)

TEST_MAIN(NULL, NULL)
