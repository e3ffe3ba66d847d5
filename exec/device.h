/*
 * A device: two memory arenas, four streams, and events that order them.
 *
 * This is the one interface behind which the backends stand. The runtime's dispatcher
 * (one thread) enqueues the tasks of a schedule; every stream works on its own queue in
 * order; events order tasks of different streams. On the CPU a stream is a worker thread
 * and the body of a task does the work. A backend of a device with streams of its own
 * calls the body at once, in the dispatcher's thread, and the body launches kernels.
 *
 * Nothing here allocates memory between mist_device_reset_events() and
 * mist_device_synchronize(). Left out: priorities, more than one dispatcher thread,
 * changing the CPU affinity (workers inherit it).
 */
#ifndef MIST_EXEC_DEVICE_H
#define MIST_EXEC_DEVICE_H

#include "core/status.h"
#include "sim/schedule.h"    /* enum mist_buffer_arena */
#include "traces/timeline.h" /* enum mist_stream */

#include <stdbool.h>
#include <stdint.h>

struct mist_device;

struct mist_device_config {
    int64_t arena_bytes[MIST_N_ARENAS]; /* exact sizes, >= 0 */
    int32_t threads; /* OpenMP threads of the compute stream's kernels, >= 1 */
};

/* The body of a task. Errors go to mist_device_fail(). */
typedef void (*mist_stream_fn)(void *arg);

/*
 * Opens the CPU backend: allocates both arenas (4096-byte aligned, zeroed, every page
 * touched by the thread team of the compute stream) and starts the four workers.
 * *out is owned by the caller (mist_device_close). MIST_OK, MIST_ERR_RANGE (a size or
 * threads out of range), MIST_ERR_MEMORY or MIST_ERR_RUN (no threads).
 */
MIST_MUST_CHECK enum mist_status
mist_device_open_cpu(const struct mist_device_config *config, struct mist_device **out,
                     struct mist_err *err);

/* Waits for the streams, stops them and frees everything. NULL allowed. */
void mist_device_close(struct mist_device *device);

/* First byte of an arena; NULL when it has size 0. Lives as long as the device. */
void *mist_device_arena(const struct mist_device *device, enum mist_buffer_arena arena);

/* Bytes that were allocated for an arena. */
int64_t mist_device_arena_bytes(const struct mist_device *device,
                                enum mist_buffer_arena arena);

/*
 * True while the compute stream of a struct mist_device has something to run, false while
 * it waits. From any thread; fits mist_comm_set_busy_probe().
 */
bool mist_device_is_computing(const void *device);

/*
 * Starts an iteration with events 0 .. n_events-1, none of them recorded. All streams
 * must be idle. Allocates only when n_events is larger than ever before; running out of
 * memory counts as mist_device_fail(), which the next synchronize returns.
 */
void mist_device_reset_events(struct mist_device *device, int32_t n_events);

/*
 * The three things a stream can do, enqueued behind what it has already: run fn(arg);
 * mark an event as recorded (once all that was enqueued before on this stream is done);
 * wait until an event is recorded. arg must live until the stream is idle. An event is
 * recorded at most once per iteration. A call blocks while the stream's queue (4096
 * entries) is full; so that it can't block forever, enqueue the record of an event
 * before the waits for it.
 */
void mist_device_submit(struct mist_device *device, enum mist_stream stream,
                        mist_stream_fn fn, void *arg);
void mist_device_record(struct mist_device *device, enum mist_stream stream,
                        int32_t event);
void mist_device_wait(struct mist_device *device, enum mist_stream stream, int32_t event);

/*
 * Reports that something went wrong; for bodies of tasks and for the dispatcher. The
 * first report stays. From then on tasks are skipped and waits don't wait, so nobody
 * hangs; the device stays failed until it is closed. err may be NULL.
 */
void mist_device_fail(struct mist_device *device, enum mist_status status,
                      const struct mist_err *err);

/* Waits until all streams are idle. MIST_OK or what mist_device_fail() got first. */
MIST_MUST_CHECK enum mist_status mist_device_synchronize(struct mist_device *device,
                                                         struct mist_err *err);

#endif
