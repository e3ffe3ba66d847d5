/*
 * What the tests of devices give them to do: random graphs of tasks over all streams that
 * note on a logical clock when they ran, copies, failures. A test says what a task does.
 */
#ifndef MIST_TESTS_UNIT_DEVICE_TASKS_H
#define MIST_TESTS_UNIT_DEVICE_TASKS_H

#include "core/random.h"
#include "exec/device/device.h"
#include "tests/unit/test.h"

enum { N_TASKS = 400, MAX_DEPS = 4 };

struct task {
    struct mist_device *device;
    enum mist_stream stream;
    int n_deps;
    int deps[MAX_DEPS]; /* earlier tasks, any stream */
    int work;           /* before the tick: 0 .. 8, in the test's own unit */
    atomic_long *ticks; /* one counter for all: a logical clock */
    long start, end;    /* when its work ran; 0: has not */
};

/* All of the work of a task that takes no time. */
static inline void tick(void *arg)
{
    struct task *task = arg;

    task->start = task->end = atomic_fetch_add(task->ticks, 1) + 1;
}

static inline void make_tasks(struct mist_device *device, struct task *tasks,
                              atomic_long *ticks, struct mist_random *random)
{
    for (int i = 0; i < N_TASKS; i++) {
        tasks[i] = (struct task){
            .device = device,
            .stream = (enum mist_stream)mist_random_below(random, MIST_N_STREAMS),
            .work = (int)mist_random_below(random, 9),
            .ticks = ticks};
        while (i > 0 && tasks[i].n_deps < MAX_DEPS && mist_random_below(random, 3) > 0) {
            int reach = i < 20 ? i : 20;
            tasks[i].deps[tasks[i].n_deps++] =
                i - 1 - (int)mist_random_below(random, reach);
        }
    }
}

static inline void dispatch(struct mist_device *device, struct task *tasks,
                            void (*body)(void *task))
{
    mist_device_reset_events(device, N_TASKS);
    for (int i = 0; i < N_TASKS; i++) {
        for (int k = 0; k < tasks[i].n_deps; k++)
            mist_device_wait(device, tasks[i].stream, tasks[i].deps[k]);
        mist_device_submit(device, tasks[i].stream, body, &tasks[i]);
        mist_device_record(device, tasks[i].stream, i);
    }
}

/* Tasks that did not run, or before what they depend on, or before an earlier one of
 * their stream. */
static inline int count_mistakes(const struct task *tasks)
{
    long last[MIST_N_STREAMS] = {0};
    int n_mistakes = 0;

    for (int i = 0; i < N_TASKS; i++) {
        n_mistakes += tasks[i].start <= last[tasks[i].stream];
        last[tasks[i].stream] = tasks[i].end;
        for (int k = 0; k < tasks[i].n_deps; k++)
            n_mistakes += tasks[i].start <= tasks[tasks[i].deps[k]].end;
    }
    return n_mistakes;
}

struct trip {
    struct mist_device *device;
    char *to;
    const char *from;
    int64_t bytes;
};

static inline void run_trip(void *arg)
{
    struct trip *trip = arg;

    mist_device_copy(trip->device, trip->to, trip->from, trip->bytes);
}

static inline void fetch(void *device)
{
    mist_device_fetch_results(device);
}

/* Host memory to the device, there to the results, to the host's copy of them; which the
 * next iteration begins with zeros. On a device with 64 bytes of both at least. */
static inline void check_copies(struct mist_device *device, int first)
{
    char source[64];
    char *on_device = mist_device_arena(device, MIST_ARENA_DEVICE);
    struct trip in = {device, on_device, source, 64};
    struct trip on = {device, mist_device_results(device), on_device, 64};

    for (int k = 0; k < 64; k++)
        source[k] = (char)(k + first);
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
    mist_device_reset_events(device, 2); /* also zeroes the results */
    mist_device_submit(device, MIST_STREAM_COMPUTE, fetch, device);
    assert_int_equal(mist_device_synchronize(device, NULL), MIST_OK);
    for (int k = 0; k < 64; k++)
        assert_int_equal(((const char *)mist_device_host_results(device))[k], 0);
}

/* Writes to bytes 100 to 399 of an arena that was zeroed, clears 100 in their middle, and
 * reads 500. */
static inline void check_access(struct mist_device *device, char *arena)
{
    static char bytes[501];
    struct mist_err err;

    memset(bytes, 'x', sizeof bytes);
    must(mist_device_write(device, arena + 100, bytes, 300, &err), &err);
    must(mist_device_clear(device, arena + 200, 100, &err), &err);
    must(mist_device_clear(device, arena + 150, 0, &err), &err);
    memset(bytes, 1, sizeof bytes);
    must(mist_device_read(device, bytes, arena, 500, &err), &err);
    for (int k = 0; k < 500; k++)
        assert_int_equal(bytes[k],
                         k < 100 || k >= 400 || (k >= 200 && k < 300) ? 0 : 'x');
    assert_int_equal(bytes[500], 1);
}

struct failing {
    struct mist_device *device;
    const char *message;
};

static inline void fail_task(void *arg)
{
    struct failing *failing = arg;
    struct mist_err err;
    enum mist_status status = mist_err_set(&err, MIST_ERR_VERIFY, "%s", failing->message);

    mist_device_fail(failing->device, status, &err);
}

static inline void call_fail_task(void *arg)
{
    mist_device_call_host(((struct failing *)arg)->device, fail_task, arg);
}

#endif
