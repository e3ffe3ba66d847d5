/*
 * The stopwatch: from when to when pieces of work ran on the streams of a device.
 *
 * Bodies of tasks put work into spans 0 .. n - 1; once the streams are idle, the spans'
 * times can be read. Where bodies compute themselves (a CPU) a span's ends are looks at
 * the clock around the work. A device that records its own work (mist_device_records)
 * says when that ran: from the start of its first kernel or copy to the end of its last.
 * On any other device the ends are looks at the clock by functions of the host, in the
 * stream's order; so is, on every device with streams of its own, what functions of the
 * host do in a stream, such as communication through memory of the host.
 */
#ifndef MIST_PROFILE_STOPWATCH_H
#define MIST_PROFILE_STOPWATCH_H

#include "core/status.h"
#include "exec/device/device.h"

#include <stdint.h>

/* Who does the work of a span. */
enum mist_stopwatch_work {
    MIST_WORK_OF_DEVICE,
    MIST_WORK_OF_HOST /* functions of the host take part */
};

struct mist_span {
    double start_s, end_s; /* on the clock of mist_clock_now_s(); end_s 0: no work */
    enum mist_stopwatch_work work;
};

struct mist_stopwatch {
    struct mist_device *device; /* borrowed */
    struct mist_span *spans;    /* owned; [capacity] */
    int64_t n, capacity;
    enum mist_span_loss loss;     /* why the latest times are not known after all */
    bool keeps_works;             /* the next two are wanted */
    struct mist_span_work *works; /* owned; what the device recorded since the reset */
    size_t n_works, works_capacity;
};

void mist_stopwatch_init(struct mist_stopwatch *watch, struct mist_device *device);
void mist_stopwatch_fini(struct mist_stopwatch *watch);

/* Forgets what there was and makes room for spans 0 .. n - 1; streams are idle. MIST_OK
 * or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_stopwatch_reset(struct mist_stopwatch *watch,
                                                      int64_t n, struct mist_err *err);

/*
 * In the body of a task: what goes into the stream between the two is span id, used once
 * after a reset; spans of a body don't nest.
 */
void mist_stopwatch_begin(struct mist_stopwatch *watch, int64_t id,
                          enum mist_stopwatch_work work);
void mist_stopwatch_end(struct mist_stopwatch *watch, int64_t id);

/* Streams idle: makes the times known, or says in watch->loss why they are not. MIST_OK,
 * MIST_ERR_MEMORY or an error of the device. */
MIST_MUST_CHECK enum mist_status mist_stopwatch_collect(struct mist_stopwatch *watch,
                                                        struct mist_err *err);

/* How long a span's work took; 0: there was none. */
double mist_stopwatch_time_s(const struct mist_stopwatch *watch, int64_t id);

/*
 * The same with the time in which the stream went over to it from the span before: where
 * the device records, from the end of the last of spans first .. id - 1 that had work (of
 * the same stream, back to back). Elsewhere that time is inside the span as it is.
 */
double mist_stopwatch_time_since_s(const struct mist_stopwatch *watch, int64_t first,
                                   int64_t id);

#endif
