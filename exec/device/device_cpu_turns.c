/*
 * Streams of the CPU device that take turns on one thread.
 *
 * A rank that has no processor to spare gains nothing from threads: they take the
 * processor from each other, in slices of milliseconds, and a message that is ready waits
 * for its slice. Here the thread that waits for the streams (mist_device_synchronize(), a
 * full ring) runs them. Communication goes before copies, these before computation.
 * Bodies run to their end, with two exceptions: a computation offers its turn between
 * its steps and tiles (mist_device_give_turn()), and each stream that communicates has a
 * fiber, which it leaves whenever it would wait for another rank (mist_device_pause()).
 * So what streams do adds up, message by message, and nobody is waited for while there is
 * work; nor does one message wait for another.
 *
 * Left out: turns inside of copies.
 */
#include "exec/device/device_cpu_internal.h"

#include "core/clock.h"

#include <math.h> /* INFINITY */
#include <sched.h>

/* How long a rank without work looks for a message all the time: longer than ranks that
 * work alike are apart, since who sleeps is late for the next one, too. Most messages come
 * sooner than it begins to offer the processor to whoever shares it, between looks. */
static const double look_s = 1e-3, offer_s = 100e-6;

static const enum mist_stream by_priority[MIST_N_STREAMS] = {
    MIST_STREAM_GPU_GPU,        MIST_STREAM_SEND,
    MIST_STREAM_RECEIVE,        MIST_STREAM_SHARDS,
    MIST_STREAM_HOST_TO_DEVICE, MIST_STREAM_DEVICE_TO_HOST,
    MIST_STREAM_COMPUTE,        MIST_STREAM_HOST};
enum { N_BEFORE_COMPUTE = 6 };

/* The device whose computation this thread is in, where it may offer its turn. */
static _Thread_local struct cpu_device *computing;

static struct cpu_entry *head_of(struct cpu_stream *stream)
{
    uint64_t n_done = atomic_load(&stream->n_done);

    return n_done == atomic_load(&stream->n_submitted)
               ? NULL
               : &stream->ring[n_done % CPU_RING_ENTRIES];
}

static void drop_head(struct cpu_stream *stream)
{
    atomic_fetch_add(&stream->n_done, 1);
}

/* The function of a fiber: bodies of its stream, one each time it is resumed. */
static void communicate(void *arg)
{
    struct cpu_stream *stream = arg;

    for (;;) {
        struct cpu_entry entry = *head_of(stream);
        stream->is_in_body = true;
        entry.fn(entry.arg);
        stream->is_in_body = false;
        mist_fiber_yield(stream->fiber);
    }
}

enum mist_status cpu_turns_start(struct cpu_device *device, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    device->takes_turns = true;
    for (int i = 0; i < MIST_N_STREAMS && status == MIST_OK; i++)
        if (mist_stream_channel((enum mist_stream)i) == MIST_STREAM_GPU_GPU)
            status = mist_fiber_new(communicate, &device->streams[i],
                                    &device->streams[i].fiber, err);
    return status;
}

void cpu_turns_end(struct cpu_device *device)
{
    for (int i = 0; i < MIST_N_STREAMS; i++)
        mist_fiber_free(device->streams[i].fiber);
}

bool cpu_turns_pause(struct mist_device *base, double waited_s)
{
    struct cpu_stream *stream = ((struct cpu_device *)(void *)base)->inside_fiber;

    if (!stream)
        return false;
    stream->waited_s = waited_s;
    mist_fiber_yield(stream->fiber);
    return true;
}

/* Runs the body at the head of a stream, communication as far as it comes. Whether the
 * body has ended. */
static bool run_body(struct cpu_device *device, enum mist_stream i_stream,
                     const struct cpu_entry *entry)
{
    struct cpu_stream *stream = &device->streams[i_stream];
    struct cpu_device *before = computing;
    bool has_ended = true;

    if (stream->fiber) {
        if (mist_device_has_failed(&device->base) && !stream->is_in_body)
            return true;
        computing = NULL;
        device->inside_fiber = stream;
        mist_fiber_resume(stream->fiber);
        device->inside_fiber = NULL;
        has_ended = !stream->is_in_body;
    } else if (!mist_device_has_failed(&device->base)) {
        bool computes = i_stream == MIST_STREAM_COMPUTE || i_stream == MIST_STREAM_HOST;
        computing = computes ? device : NULL;
        entry->fn(entry->arg);
    }
    computing = before;
    return has_ended;
}

/* Goes through a stream up to the end of one body; whether it came any further. */
static bool take_turn(struct cpu_device *device, enum mist_stream i_stream)
{
    struct cpu_stream *stream = &device->streams[i_stream];
    const struct cpu_entry *entry;
    bool has_moved = false;

    while ((entry = head_of(stream))) {
        enum cpu_entry_kind kind = entry->kind;
        if (kind == CPU_ENTRY_WAIT && !atomic_load(&device->is_recorded[entry->event]) &&
            !mist_device_has_failed(&device->base))
            break;
        if (kind == CPU_ENTRY_RECORD)
            atomic_store(&device->is_recorded[entry->event], 1);
        if (kind == CPU_ENTRY_RUN && !run_body(device, i_stream, entry))
            break;
        drop_head(stream);
        has_moved = true;
        if (kind == CPU_ENTRY_RUN)
            break;
    }
    return has_moved;
}

/* A turn of the first of n streams that has something to do; whether one had. */
static bool take_first_turn(struct cpu_device *device, int n)
{
    for (int i = 0; i < n; i++)
        if (take_turn(device, by_priority[i]))
            return true;
    return false;
}

static bool is_over(struct cpu_device *device, const struct cpu_stream *stream,
                    uint64_t target)
{
    if (stream)
        return atomic_load(&stream->n_done) >= target;
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (head_of(&device->streams[i]))
            return false;
    return true;
}

/* How long the stream has waited for another rank that began last to do so. */
static double shortest_wait_s(const struct cpu_device *device)
{
    double shortest_s = INFINITY;

    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (device->streams[i].is_in_body && device->streams[i].waited_s < shortest_s)
            shortest_s = device->streams[i].waited_s;
    return shortest_s;
}

void cpu_turns_run(struct cpu_device *device, struct cpu_stream *stream, uint64_t target)
{
    while (!is_over(device, stream, target)) {
        if (take_first_turn(device, MIST_N_STREAMS))
            continue;
        double waited_s = shortest_wait_s(device);
        if (waited_s > look_s)
            mist_clock_rest(waited_s);
        else if (waited_s > offer_s)
            sched_yield();
    }
}

void mist_device_give_turn(void)
{
    struct cpu_device *device = computing;

    if (!device)
        return;
    computing = NULL; /* copies and communication keep their turn */
    while (take_first_turn(device, N_BEFORE_COMPUTE))
        continue;
    computing = device;
}
