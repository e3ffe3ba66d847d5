/*
 * The CPU device. Its seven streams are worker threads, each with a ring of things to do,
 * or they take turns on the thread that waits for them (device_cpu_turns.c).
 *
 * The dispatcher is the only one that puts entries into a ring, its worker the only one
 * that takes them out, so two counters per ring are all the synchronisation there is.
 * Whoever has to wait (a worker for work or for an event, the dispatcher for room or for
 * the end) watches the counter or flag for a few microseconds, giving way to others all
 * the while, and then sleeps at a gate of its own. Whoever changes a counter or flag
 * opens the gate only if someone sleeps there.
 *
 * No wake-up is lost: the sleeper announces itself and then looks at the counter; the
 * other side changes the counter and then looks for sleepers; all of it sequentially
 * consistent, so at least one of them sees the other.
 *
 * Arenas lie in huge pages where the system has them for who asks: with pages of 4 KiB,
 * which lie anywhere, products differ in speed from run to run.
 *
 * Left out: binding threads to processors (the launcher's affinity is inherited), NUMA
 * policies beyond first touch.
 */
#define _DEFAULT_SOURCE /* madvise */
#include "exec/device/device_cpu_internal.h"

#include "core/clock.h"
#include "core/interrupt.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE_BYTES = 4096, HUGE_PAGE_BYTES = 2 << 20 };

static const double spin_s = 5e-6; /* about what falling asleep and waking cost */

static struct cpu_device *cpu(struct mist_device *device)
{
    return (struct cpu_device *)(void *)device;
}

/* ---------------------------------------------------------------------------- gates */

typedef bool condition_fn(struct cpu_stream *stream, uint64_t target);

static void gate_wait(struct cpu_gate *gate, condition_fn *is_met,
                      struct cpu_stream *stream, uint64_t target)
{
    if (is_met(stream, target))
        return;
    for (double end_s = mist_clock_now_s() + spin_s; mist_clock_now_s() < end_s;) {
        sched_yield(); /* the one waited for may be next on this very processor */
        if (is_met(stream, target))
            return;
    }
    pthread_mutex_lock(&gate->mutex);
    atomic_store(&gate->has_sleeper, true);
    while (!is_met(stream, target))
        pthread_cond_wait(&gate->cond, &gate->mutex);
    atomic_store(&gate->has_sleeper, false);
    pthread_mutex_unlock(&gate->mutex);
}

static void gate_open(struct cpu_gate *gate)
{
    if (!atomic_load(&gate->has_sleeper))
        return;
    /* The sleeper holds the mutex from its announcement until it really sleeps. */
    pthread_mutex_lock(&gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
    pthread_cond_signal(&gate->cond);
}

static bool has_work(struct cpu_stream *stream, uint64_t target)
{
    return atomic_load(&stream->n_submitted) >= target;
}

static bool has_done(struct cpu_stream *stream, uint64_t target)
{
    return atomic_load(&stream->n_done) >= target;
}

static bool has_event(struct cpu_stream *stream, uint64_t event)
{
    struct cpu_device *device = stream->device;

    return atomic_load(&device->is_recorded[event]) != 0 ||
           mist_device_has_failed(&device->base);
}

/* ---------------------------------------------------------------------------- worker */

static void record_event(struct cpu_device *device, int32_t event)
{
    atomic_store(&device->is_recorded[event], 1);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (atomic_load(&device->streams[i].awaited_event) == event)
            gate_open(&device->streams[i].gate);
}

static void run_entry(struct cpu_stream *stream, const struct cpu_entry *entry)
{
    switch (entry->kind) {
    case CPU_ENTRY_RUN:
        if (!mist_device_has_failed(&stream->device->base))
            entry->fn(entry->arg);
        break;
    case CPU_ENTRY_RECORD:
        record_event(stream->device, entry->event);
        break;
    case CPU_ENTRY_WAIT:
        atomic_store(&stream->awaited_event, entry->event);
        gate_wait(&stream->gate, has_event, stream, (uint64_t)entry->event);
        atomic_store(&stream->awaited_event, -1);
        break;
    case CPU_ENTRY_STOP:
        break;
    }
}

static void *work(void *arg)
{
    struct cpu_stream *stream = arg;
    uint64_t n_done = 0;
    enum cpu_entry_kind kind;

    do {
        gate_wait(&stream->gate, has_work, stream, n_done + 1);
        struct cpu_entry entry = stream->ring[n_done % CPU_RING_ENTRIES];
        kind = entry.kind;
        run_entry(stream, &entry);
        atomic_store(&stream->n_done, ++n_done);
        if (atomic_load(&stream->awaited_done) == n_done)
            gate_open(&stream->device->gate);
    } while (kind != CPU_ENTRY_STOP);
    return NULL;
}

/* ------------------------------------------------------------------------ dispatcher */

static void wait_until_done(struct cpu_stream *stream, uint64_t target)
{
    if (stream->device->takes_turns) {
        cpu_turns_run(stream->device, stream, target);
        return;
    }
    atomic_store(&stream->awaited_done, target);
    gate_wait(&stream->device->gate, has_done, stream, target);
}

static void enqueue(struct cpu_device *device, enum mist_stream i_stream,
                    struct cpu_entry entry)
{
    struct cpu_stream *stream = &device->streams[i_stream];
    uint64_t n_submitted = atomic_load(&stream->n_submitted);

    /* A full ring is waited for until it is half empty: one wake-up, not thousands. */
    if (n_submitted - atomic_load(&stream->n_done) == CPU_RING_ENTRIES)
        wait_until_done(stream, n_submitted - CPU_RING_ENTRIES / 2);
    stream->ring[n_submitted % CPU_RING_ENTRIES] = entry;
    atomic_store(&stream->n_submitted, n_submitted + 1);
    gate_open(&stream->gate); /* where streams take turns, nobody sleeps there */
}

static void submit(struct mist_device *device, enum mist_stream stream, mist_stream_fn fn,
                   void *arg)
{
    enqueue(cpu(device), stream,
            (struct cpu_entry){.kind = CPU_ENTRY_RUN, .fn = fn, .arg = arg});
}

static void record(struct mist_device *device, enum mist_stream stream, int32_t event)
{
    if (event < cpu(device)->n_events) /* not so after reset_events ran out of memory */
        enqueue(cpu(device), stream,
                (struct cpu_entry){.kind = CPU_ENTRY_RECORD, .event = event});
}

static void wait_for(struct mist_device *device, enum mist_stream stream, int32_t event)
{
    if (event < cpu(device)->n_events)
        enqueue(cpu(device), stream,
                (struct cpu_entry){.kind = CPU_ENTRY_WAIT, .event = event});
}

static void reset_events(struct mist_device *base, int32_t n_events)
{
    struct cpu_device *device = cpu(base);

    device->n_events = 0;
    if (n_events > device->event_capacity) {
        free((void *)device->is_recorded);
        device->is_recorded = malloc((size_t)n_events * sizeof *device->is_recorded);
        device->event_capacity = device->is_recorded ? n_events : 0;
        if (!device->is_recorded) {
            struct mist_err err;
            mist_device_fail(base,
                             mist_err_set(&err, MIST_ERR_MEMORY,
                                          "out of memory for %ld events", (long)n_events),
                             &err);
            return;
        }
    }
    for (int32_t i = 0; i < n_events; i++)
        atomic_store_explicit(&device->is_recorded[i], 0, memory_order_relaxed);
    device->n_events = n_events;
}

static void wake(struct mist_device *device)
{
    for (int i = 0; i < MIST_N_STREAMS; i++)
        gate_open(&cpu(device)->streams[i].gate);
}

static void drain(struct mist_device *device)
{
    if (cpu(device)->takes_turns) {
        cpu_turns_run(cpu(device), NULL, 0);
        return;
    }
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        struct cpu_stream *stream = &cpu(device)->streams[i];
        wait_until_done(stream, atomic_load(&stream->n_submitted));
    }
}

/* --------------------------------------------------- memory: all of it is the host's */

static void copy(struct mist_device *device, void *to, const void *from, int64_t bytes)
{
    (void)device;
    memcpy(to, from, (size_t)bytes);
}

static enum mist_status transfer(struct mist_device *device, void *to, const void *from,
                                 int64_t bytes, const void *own, struct mist_err *err)
{
    (void)device, (void)own, (void)err;
    (void)(from ? memcpy(to, from, (size_t)bytes) : memset(to, 0, (size_t)bytes));
    return MIST_OK;
}

/* ------------------------------------------------------------------- opening, closing */

/* A task of the compute stream: touches the arenas with the thread team that will use
 * them, which also starts that team, of threads that get no signals. Every thread takes
 * one contiguous part. */
static void touch_arenas(void *arg)
{
    struct cpu_device *device = arg;
    const struct mist_device *base = &device->base;
    int64_t n = device->threads;
    sigset_t before;

    mist_interrupt_keep_off(&before);
    for (int i = 0; i < MIST_N_ARENAS; i++) {
        char *bytes = base->arenas[i];
        int64_t n_pages = (base->arena_bytes[i] + PAGE_BYTES - 1) / PAGE_BYTES;
        int64_t part_bytes = (n_pages + n - 1) / n * PAGE_BYTES;

#pragma omp parallel for num_threads(device->threads) schedule(static, 1)
        for (int64_t k = 0; k < n; k++) {
            int64_t left_bytes = base->arena_bytes[i] - k * part_bytes;
            if (left_bytes > 0)
                memset(bytes + k * part_bytes, 0,
                       (size_t)(left_bytes < part_bytes ? left_bytes : part_bytes));
        }
    }
    mist_interrupt_admit(&before);
}

/* NULL: out of memory. */
static void *alloc_arena(int64_t size_bytes)
{
    bool is_large = size_bytes >= HUGE_PAGE_BYTES;
    void *memory;

    if (posix_memalign(&memory, is_large ? HUGE_PAGE_BYTES : PAGE_BYTES,
                       (size_t)size_bytes) != 0)
        return NULL;
    if (is_large) /* a wish: whatever comes of it, the memory is there */
        (void)madvise(memory, (size_t)(size_bytes / PAGE_BYTES * PAGE_BYTES),
                      MADV_HUGEPAGE);
    return memory;
}

static enum mist_status allocate(struct mist_device *device, struct mist_err *err)
{
    static const char *const names[MIST_N_ARENAS] = {"device", "host"};

    for (int i = 0; i < MIST_N_ARENAS; i++) {
        int64_t size_bytes = device->arena_bytes[i];
        device->arenas[i] = size_bytes > 0 ? alloc_arena(size_bytes) : NULL;
        if (size_bytes > 0 && !device->arenas[i])
            return mist_err_set(err, MIST_ERR_MEMORY,
                                "out of memory for a %s arena of %lld bytes", names[i],
                                (long long)size_bytes);
    }
    device->results = calloc(1, (size_t)device->result_bytes + 1);
    device->host_results = device->results;
    if (!device->results)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for results");
    return MIST_OK;
}

static void gate_init(struct cpu_gate *gate)
{
    pthread_mutex_init(&gate->mutex, NULL); /* neither of the two can fail on Linux */
    pthread_cond_init(&gate->cond, NULL);
    atomic_init(&gate->has_sleeper, false);
}

static void gate_fini(struct cpu_gate *gate)
{
    pthread_cond_destroy(&gate->cond);
    pthread_mutex_destroy(&gate->mutex);
}

static enum mist_status start_threads(struct cpu_device *device, struct mist_err *err)
{
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        struct cpu_stream *stream = &device->streams[i];
        int code = mist_interrupt_start_thread(&stream->thread, work, stream);
        if (code != 0)
            return mist_err_set(err, MIST_ERR_RUN,
                                "can't start the thread of a stream: %s", strerror(code));
        device->n_started++;
    }
    return MIST_OK;
}

static void close_device(struct mist_device *base)
{
    struct cpu_device *device = cpu(base);

    for (int i = 0; i < device->n_started; i++)
        enqueue(device, (enum mist_stream)i, (struct cpu_entry){.kind = CPU_ENTRY_STOP});
    for (int i = 0; i < device->n_started; i++)
        pthread_join(device->streams[i].thread, NULL);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        gate_fini(&device->streams[i].gate);
    gate_fini(&device->gate);
    cpu_turns_end(device);
    mist_device_fini(base);
    for (int i = 0; i < MIST_N_ARENAS; i++)
        free(base->arenas[i]);
    free(base->results);
    free((void *)device->is_recorded);
    free(device);
}

static const struct mist_device_ops cpu_ops = {
    .name = "cpu",
    .is_host = true,
    .close = close_device,
    .reset_events = reset_events,
    .submit = submit,
    .record = record,
    .wait = wait_for,
    .pause = cpu_turns_pause,
    .wake = wake,
    .drain = drain,
    .copy = copy,
    .transfer = transfer,
};

enum mist_status mist_device_open_cpu(const struct mist_device_config *config,
                                      struct mist_device **out, struct mist_err *err)
{
    enum mist_status status = mist_device_check(config, err);
    struct cpu_device *device;
    void *memory;

    *out = NULL;
    if (status != MIST_OK)
        return status;
    if (config->threads < 1)
        return mist_err_set(err, MIST_ERR_RANGE, "%ld threads for the compute stream",
                            (long)config->threads);
    if (posix_memalign(&memory, CPU_LINE_BYTES, sizeof *device) != 0)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a device");
    device = memset(memory, 0, sizeof *device);
    mist_device_init(&device->base, &cpu_ops, config);
    device->threads = config->threads;
    gate_init(&device->gate);
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        device->streams[i].device = device;
        atomic_init(&device->streams[i].awaited_event, -1);
        gate_init(&device->streams[i].gate);
    }
    status = allocate(&device->base, err);
    if (status == MIST_OK)
        status = config->streams_take_turns ? cpu_turns_start(device, err)
                                            : start_threads(device, err);
    if (status == MIST_OK) {
        submit(&device->base, MIST_STREAM_COMPUTE, touch_arenas, device);
        status = mist_device_synchronize(&device->base, err);
    }
    if (status != MIST_OK) {
        close_device(&device->base);
        return status;
    }
    *out = &device->base;
    return MIST_OK;
}
