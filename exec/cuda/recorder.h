/*
 * The recorder: when the kernels and copies of a span of work ran on the GPU.
 *
 * CUPTI's activity API notes every kernel, copy and fill with name, start and end, and,
 * for every API call made while an external correlation id is pushed, a record that ties
 * the call's correlation id to that external id. A span of exec/device/device.h pushes its id,
 * so joining both kinds of records on the correlation id tells what ran for the span. The
 * clock of the records (CLOCK_REALTIME) is brought to mist_clock_now_s() by pairs of
 * readings of both.
 *
 * Three parts: records from CUPTI's buffers (recorder_cupti.c, the one file that knows
 * CUPTI's structs), the join and the clock (recorder_match.c, plain C, no CUPTI), and the
 * life cycle (recorder.c). CUPTI's callbacks carry no context, so a process has at most
 * one open recorder. Left out: hardware counters.
 *
 * Until the first start CUPTI notes nothing and costs nothing. From then on it goes on
 * until the close, since stopping it may hang (CUDA 13.0); what runs outside of periods
 * is dropped as it comes. A period with too many launches, with a record lost (which
 * would make a span too short) or in which the time of day was set has no spans at all.
 */
#ifndef MIST_EXEC_CUDA_RECORDER_H
#define MIST_EXEC_CUDA_RECORDER_H

#include "core/status.h"
#include "exec/device/device.h" /* mist_span_fn */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ----------------------------------------------------------- life cycle: recorder.c */

struct mist_cuda_recorder;

/*
 * Readies to record. Call it before the process creates a CUDA context: only then the
 * sizes of CUPTI's device buffers count. *out is owned by the caller
 * (mist_cuda_recorder_close).
 * MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN: CUPTI refuses (with its words; another
 * profiler is attached, no driver) or a recorder is open.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_recorder_open(struct mist_cuda_recorder **out,
                                                         struct mist_err *err);

/* Stops; streams must be idle. NULL allowed. */
void mist_cuda_recorder_close(struct mist_cuda_recorder *recorder);

/* Device memory that CUPTI sets aside in a context; it may be somewhat more. */
int64_t mist_cuda_recorder_device_bytes(const struct mist_cuda_recorder *recorder);

/* Begins a period: see mist_device_start_spans(). */
MIST_MUST_CHECK enum mist_status
mist_cuda_recorder_start(struct mist_cuda_recorder *recorder, struct mist_err *err);

/* What the calling thread launches between the two belongs to span id (>= 0). Spans don't
 * nest. An error is told by the next collect. */
void mist_cuda_recorder_begin(struct mist_cuda_recorder *recorder, int64_t id);
void mist_cuda_recorder_end(struct mist_cuda_recorder *recorder);

/* Ends a period and begins the next: see mist_device_collect_spans(). MIST_OK or
 * MIST_ERR_RUN: CUPTI failed. fn may not use the recorder. */
MIST_MUST_CHECK enum mist_status
mist_cuda_recorder_collect(struct mist_cuda_recorder *recorder, mist_span_fn *fn,
                           void *context, enum mist_span_loss *loss,
                           struct mist_err *err);

/* ----------------------------------------------------------- join: recorder_match.c */

enum {
    /* of a period, each at most 48 bytes with what ties it to its span: 192 MiB */
    MIST_CUDA_MAX_LAUNCHES = 4 << 20,
    MIST_CUDA_MAX_NAMES = 1024,     /* different ones; all others are one more */
    MIST_CUDA_MAX_NAME_BYTES = 4096 /* of one; longer ones are cut */
};

/* Ties a call to a span. */
struct mist_cuda_mark {
    int64_t id;
    uint32_t call; /* correlation id */
};

struct mist_cuda_work {
    int64_t id;                /* once joined; -1: of no span */
    uint64_t start_ns, end_ns; /* CUPTI's clock */
    uint32_t call;             /* that launched it */
    uint16_t name;
};

/* What was recorded in a period. */
struct mist_cuda_records {
    struct mist_cuda_mark *marks; /* owned */
    struct mist_cuda_work *works; /* owned */
    size_t n_marks, n_works, marks_capacity, works_capacity;
    size_t max_launches;             /* MIST_CUDA_MAX_LAUNCHES, or fewer for tests */
    uint64_t period_ns, previous_ns; /* begin of the period; end of the one before */
    bool has_no_room;                /* something was left out */
    int64_t n_lost;                  /* without times, too late, or unreadable */
    char **names; /* owned; [n_names], 0: all that there is no room for */
    uint32_t n_names;
    uint16_t slots[2 * MIST_CUDA_MAX_NAMES]; /* by hash: a name's index; 0: free */
};

/* Frees, and all is empty; it may be all zero before. */
void mist_cuda_records_clear(struct mist_cuda_records *records);

/* Forgets all but the names; what began before now_ns is of no interest, and if it began
 * before previous_ns, too, it is missing in the period that ended then. */
void mist_cuda_records_begin(struct mist_cuda_records *records, uint64_t previous_ns,
                             uint64_t now_ns);

/*
 * In any order: the call belongs to span id (of several the largest); a kernel, copy or
 * fill of a call, which may have several (start 0, or the end before it: the times are
 * not known). What there is no room for sets has_no_room.
 */
void mist_cuda_records_add_mark(struct mist_cuda_records *records, uint32_t call,
                                int64_t id);
void mist_cuda_records_add_work(struct mist_cuda_records *records, uint32_t call,
                                const char *name, uint64_t start_ns, uint64_t end_ns);

/* Gives works[0 .. n - 1] of spans their ids, ascending, then by start; returns n. Those
 * without times are counted in n_lost and left out. */
size_t mist_cuda_records_join(struct mist_cuda_records *records);

/* ---------------------------------------------------------- clock: recorder_match.c */

/* Both clocks in the same instant. */
struct mist_cuda_clock_pair {
    uint64_t cupti_ns;
    double clock_s;
};

/* The straight line through two pairs. */
struct mist_cuda_clock {
    struct mist_cuda_clock_pair from;
    double s_per_ns;
};

/*
 * The line through two pairs, a before b; if they are less than 10 ms apart, the one
 * through b with slope 1, because then the readings' own error would dominate. False:
 * between them one clock went 1 ms + 0.1 % further than the other, as when the time of
 * day is set.
 */
bool mist_cuda_clock_through(const struct mist_cuda_clock_pair *a,
                             const struct mist_cuda_clock_pair *b,
                             struct mist_cuda_clock *out);

double mist_cuda_clock_at(const struct mist_cuda_clock *clock, uint64_t cupti_ns);

#endif
