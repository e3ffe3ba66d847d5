/*
 * The CPU device: four worker threads as streams, each with a ring of things to do.
 *
 * The dispatcher is the only one that puts entries into a ring, its worker the only one
 * that takes them out, so two counters per ring are all the synchronisation there is.
 * Whoever has to wait (a worker for work or for an event, the dispatcher for room or for
 * the end) watches the counter or flag for a few microseconds, giving way to others all
 * the while, and then sleeps at a gate of its own, so that a machine with fewer
 * processors than threads is left to those that compute. Whoever changes a counter or
 * flag opens the gate only if someone sleeps there.
 *
 * No wake-up is lost: the sleeper announces itself and then looks at the counter; the
 * other side changes the counter and then looks for sleepers; all of it sequentially
 * consistent, so at least one of them sees the other.
 *
 * Left out: binding threads to processors (the launcher's affinity is inherited), huge
 * pages, NUMA policies beyond first touch.
 */
#include "exec/device.h"

#include "core/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { RING_ENTRIES = 4096, PAGE_BYTES = 4096, LINE_BYTES = 64 };

static const double spin_s = 5e-6; /* about what falling asleep and waking cost */

enum entry_kind { ENTRY_RUN, ENTRY_RECORD, ENTRY_WAIT, ENTRY_STOP };

struct entry {
    enum entry_kind kind;
    int32_t event;
    mist_stream_fn fn;
    void *arg;
};

struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t cond;
    atomic_bool has_sleeper;
};

struct stream {
    struct mist_device *device;
    pthread_t thread;
    struct gate gate; /* where the worker sleeps */

    _Alignas(LINE_BYTES) _Atomic uint64_t n_submitted; /* entries put in, ever */
    _Atomic uint64_t awaited_done; /* n_done at which the dispatcher wants to wake up */
    _Alignas(LINE_BYTES) _Atomic uint64_t n_done; /* entries dealt with, ever */
    _Atomic int32_t awaited_event;                /* of the worker; -1: none */
    struct entry ring[RING_ENTRIES];
};

struct mist_device {
    int32_t threads;
    int64_t arena_bytes[MIST_N_ARENAS];
    void *arenas[MIST_N_ARENAS];
    _Atomic uint8_t *is_recorded; /* of every event */
    int32_t n_events, event_capacity;
    struct gate gate; /* where the dispatcher sleeps */
    atomic_bool has_failed;
    pthread_mutex_t failure_mutex; /* guards the next two */
    enum mist_status failure;
    struct mist_err failure_err;
    int n_started; /* streams with a thread */
    struct stream streams[MIST_N_STREAMS];
};

/* ---------------------------------------------------------------------------- gates */

typedef bool condition_fn(struct stream *stream, uint64_t target);

static void gate_wait(struct gate *gate, condition_fn *is_met, struct stream *stream,
                      uint64_t target)
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

static void gate_open(struct gate *gate)
{
    if (!atomic_load(&gate->has_sleeper))
        return;
    /* The sleeper holds the mutex from its announcement until it really sleeps. */
    pthread_mutex_lock(&gate->mutex);
    pthread_mutex_unlock(&gate->mutex);
    pthread_cond_signal(&gate->cond);
}

static bool has_work(struct stream *stream, uint64_t target)
{
    return atomic_load(&stream->n_submitted) >= target;
}

static bool has_done(struct stream *stream, uint64_t target)
{
    return atomic_load(&stream->n_done) >= target;
}

static bool has_event(struct stream *stream, uint64_t event)
{
    struct mist_device *device = stream->device;

    return atomic_load(&device->is_recorded[event]) != 0 ||
           atomic_load(&device->has_failed);
}

/* ---------------------------------------------------------------------------- worker */

static void record_event(struct mist_device *device, int32_t event)
{
    atomic_store(&device->is_recorded[event], 1);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (atomic_load(&device->streams[i].awaited_event) == event)
            gate_open(&device->streams[i].gate);
}

static void run_entry(struct stream *stream, const struct entry *entry)
{
    switch (entry->kind) {
    case ENTRY_RUN:
        if (!atomic_load(&stream->device->has_failed))
            entry->fn(entry->arg);
        break;
    case ENTRY_RECORD:
        record_event(stream->device, entry->event);
        break;
    case ENTRY_WAIT:
        atomic_store(&stream->awaited_event, entry->event);
        gate_wait(&stream->gate, has_event, stream, (uint64_t)entry->event);
        atomic_store(&stream->awaited_event, -1);
        break;
    case ENTRY_STOP:
        break;
    }
}

static void *work(void *arg)
{
    struct stream *stream = arg;
    uint64_t n_done = 0;
    enum entry_kind kind;

    do {
        gate_wait(&stream->gate, has_work, stream, n_done + 1);
        struct entry entry = stream->ring[n_done % RING_ENTRIES];
        kind = entry.kind;
        run_entry(stream, &entry);
        atomic_store(&stream->n_done, ++n_done);
        if (atomic_load(&stream->awaited_done) == n_done)
            gate_open(&stream->device->gate);
    } while (kind != ENTRY_STOP);
    return NULL;
}

/* ------------------------------------------------------------------------ dispatcher */

static void wait_until_done(struct stream *stream, uint64_t target)
{
    atomic_store(&stream->awaited_done, target);
    gate_wait(&stream->device->gate, has_done, stream, target);
}

static void enqueue(struct mist_device *device, enum mist_stream i_stream,
                    struct entry entry)
{
    struct stream *stream = &device->streams[i_stream];
    uint64_t n_submitted = atomic_load(&stream->n_submitted);

    /* A full ring is waited for until it is half empty: one wake-up, not thousands. */
    if (n_submitted - atomic_load(&stream->n_done) == RING_ENTRIES)
        wait_until_done(stream, n_submitted - RING_ENTRIES / 2);
    stream->ring[n_submitted % RING_ENTRIES] = entry;
    atomic_store(&stream->n_submitted, n_submitted + 1);
    gate_open(&stream->gate);
}

void mist_device_submit(struct mist_device *device, enum mist_stream stream,
                        mist_stream_fn fn, void *arg)
{
    enqueue(device, stream, (struct entry){.kind = ENTRY_RUN, .fn = fn, .arg = arg});
}

void mist_device_record(struct mist_device *device, enum mist_stream stream,
                        int32_t event)
{
    if (event < device->n_events) /* not so after reset_events ran out of memory */
        enqueue(device, stream, (struct entry){.kind = ENTRY_RECORD, .event = event});
}

void mist_device_wait(struct mist_device *device, enum mist_stream stream, int32_t event)
{
    if (event < device->n_events)
        enqueue(device, stream, (struct entry){.kind = ENTRY_WAIT, .event = event});
}

void mist_device_reset_events(struct mist_device *device, int32_t n_events)
{
    device->n_events = 0;
    if (n_events > device->event_capacity) {
        free(device->is_recorded);
        device->is_recorded = malloc((size_t)n_events * sizeof *device->is_recorded);
        device->event_capacity = device->is_recorded ? n_events : 0;
        if (!device->is_recorded) {
            struct mist_err err;
            mist_device_fail(device,
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

void mist_device_fail(struct mist_device *device, enum mist_status status,
                      const struct mist_err *err)
{
    pthread_mutex_lock(&device->failure_mutex);
    if (device->failure == MIST_OK) {
        device->failure = status;
        if (err)
            device->failure_err = *err;
        else
            mist_err_set(&device->failure_err, status, "a task failed");
    }
    pthread_mutex_unlock(&device->failure_mutex);
    atomic_store(&device->has_failed, true);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        gate_open(&device->streams[i].gate);
}

enum mist_status mist_device_synchronize(struct mist_device *device, struct mist_err *err)
{
    enum mist_status status;

    for (int i = 0; i < MIST_N_STREAMS; i++)
        wait_until_done(&device->streams[i],
                        atomic_load(&device->streams[i].n_submitted));
    pthread_mutex_lock(&device->failure_mutex);
    status = device->failure;
    if (status != MIST_OK && err)
        *err = device->failure_err;
    pthread_mutex_unlock(&device->failure_mutex);
    return status;
}

/* ------------------------------------------------------------------- opening, closing */

void *mist_device_arena(const struct mist_device *device, enum mist_buffer_arena arena)
{
    return device->arenas[arena];
}

int64_t mist_device_arena_bytes(const struct mist_device *device,
                                enum mist_buffer_arena arena)
{
    return device->arenas[arena] ? device->arena_bytes[arena] : 0;
}

bool mist_device_is_computing(const void *device)
{
    const struct mist_device *at = device;

    return !atomic_load(&at->streams[MIST_STREAM_COMPUTE].gate.has_sleeper);
}

/* A task of the compute stream: touches the arenas with the thread team that will use
 * them, which also starts that team. Every thread takes one contiguous part. */
static void touch_arenas(void *arg)
{
    struct mist_device *device = arg;
    int64_t n = device->threads;

    for (int i = 0; i < MIST_N_ARENAS; i++) {
        char *bytes = device->arenas[i];
        int64_t n_pages = (device->arena_bytes[i] + PAGE_BYTES - 1) / PAGE_BYTES;
        int64_t part_bytes = (n_pages + n - 1) / n * PAGE_BYTES;

#pragma omp parallel for num_threads(device->threads) schedule(static, 1)
        for (int64_t k = 0; k < n; k++) {
            int64_t left_bytes = device->arena_bytes[i] - k * part_bytes;
            if (left_bytes > 0)
                memset(bytes + k * part_bytes, 0,
                       (size_t)(left_bytes < part_bytes ? left_bytes : part_bytes));
        }
    }
}

static enum mist_status allocate_arenas(struct mist_device *device, struct mist_err *err)
{
    static const char *const names[MIST_N_ARENAS] = {"device", "host"};

    for (int i = 0; i < MIST_N_ARENAS; i++) {
        int64_t size_bytes = device->arena_bytes[i];
        if (size_bytes < 0)
            return mist_err_set(err, MIST_ERR_RANGE, "a %s arena of %lld bytes", names[i],
                                (long long)size_bytes);
        if (size_bytes > 0 &&
            posix_memalign(&device->arenas[i], PAGE_BYTES, (size_t)size_bytes) != 0) {
            device->arenas[i] = NULL;
            return mist_err_set(err, MIST_ERR_MEMORY,
                                "out of memory for a %s arena of %lld bytes", names[i],
                                (long long)size_bytes);
        }
    }
    return MIST_OK;
}

static void gate_init(struct gate *gate)
{
    pthread_mutex_init(&gate->mutex, NULL); /* neither of the two can fail on Linux */
    pthread_cond_init(&gate->cond, NULL);
    atomic_init(&gate->has_sleeper, false);
}

static void gate_fini(struct gate *gate)
{
    pthread_cond_destroy(&gate->cond);
    pthread_mutex_destroy(&gate->mutex);
}

static enum mist_status start_streams(struct mist_device *device, struct mist_err *err)
{
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        struct stream *stream = &device->streams[i];
        int code = pthread_create(&stream->thread, NULL, work, stream);
        if (code != 0)
            return mist_err_set(err, MIST_ERR_RUN,
                                "can't start the thread of a stream: %s", strerror(code));
        device->n_started++;
    }
    return MIST_OK;
}

enum mist_status mist_device_open_cpu(const struct mist_device_config *config,
                                      struct mist_device **out, struct mist_err *err)
{
    struct mist_device *device;
    void *memory;

    *out = NULL;
    if (config->threads < 1)
        return mist_err_set(err, MIST_ERR_RANGE, "%ld threads for the compute stream",
                            (long)config->threads);
    if (posix_memalign(&memory, LINE_BYTES, sizeof *device) != 0)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a device");
    device = memset(memory, 0, sizeof *device);
    device->threads = config->threads;
    memcpy(device->arena_bytes, config->arena_bytes, sizeof device->arena_bytes);
    pthread_mutex_init(&device->failure_mutex, NULL);
    gate_init(&device->gate);
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        device->streams[i].device = device;
        atomic_init(&device->streams[i].awaited_event, -1);
        gate_init(&device->streams[i].gate);
    }
    enum mist_status status = allocate_arenas(device, err);
    if (status == MIST_OK)
        status = start_streams(device, err);
    if (status == MIST_OK) {
        mist_device_submit(device, MIST_STREAM_COMPUTE, touch_arenas, device);
        status = mist_device_synchronize(device, err);
    }
    if (status != MIST_OK) {
        mist_device_close(device);
        return status;
    }
    *out = device;
    return MIST_OK;
}

void mist_device_close(struct mist_device *device)
{
    if (!device)
        return;
    for (int i = 0; i < device->n_started; i++)
        enqueue(device, (enum mist_stream)i, (struct entry){.kind = ENTRY_STOP});
    for (int i = 0; i < device->n_started; i++)
        pthread_join(device->streams[i].thread, NULL);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        gate_fini(&device->streams[i].gate);
    gate_fini(&device->gate);
    pthread_mutex_destroy(&device->failure_mutex);
    for (int i = 0; i < MIST_N_ARENAS; i++)
        free(device->arenas[i]);
    free((void *)device->is_recorded);
    free(device);
}
