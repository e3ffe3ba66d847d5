/*
 * The recorder: when the kernels and copies of a span of work ran on the GPU.
 *
 * CUPTI's activity API notes every kernel, copy and fill with start and end, and, for
 * every API call made while an external correlation id is pushed, a record that ties the
 * call's correlation id to that external id. A span of exec/device.h pushes its id, so
 * joining both kinds of records on the correlation id gives the span's interval. The
 * clock of the records (CLOCK_REALTIME) is brought to mist_clock_now_s() by pairs of
 * readings of both.
 *
 * Three parts: records from CUPTI's buffers (recorder_cupti.c, the one file that knows
 * CUPTI's structs), the join and the clock (recorder_match.c, plain C, no CUPTI), and the
 * life cycle (recorder.c). CUPTI's callbacks carry no context, so a process has at most
 * one open recorder. Left out: names of kernels, hardware counters.
 *
 * Losing a record would make a span too short, so no loss is silent: see struct
 * mist_cuda_losses.
 */
#ifndef MIST_EXEC_CUDA_RECORDER_H
#define MIST_EXEC_CUDA_RECORDER_H

#include "core/status.h"
#include "exec/device.h" /* mist_span_fn */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a span's work took, on the clock of mist_clock_now_s(). */
struct mist_cuda_span {
    int64_t id;
    double start_s, end_s; /* of the first work to start, of the last to end */
    double busy_s;     /* sum of the durations; above end - start where they overlap */
    int64_t n_kernels; /* kernels, copies and fills */
};
typedef void mist_cuda_span_fn(void *context, const struct mist_cuda_span *span);

/* Records that did not make it into a span. */
struct mist_cuda_losses {
    int64_t n_dropped; /* CUPTI had no room for them */
    int64_t n_untimed; /* work of a span without times: no device memory for its record */
    int64_t n_late;    /* work that came after its span was collected */
    int64_t n_broken;  /* buffers with an invalid record; what follows it is lost */
};

/* ----------------------------------------------------------- life cycle: recorder.c */

struct mist_cuda_recorder;

/*
 * Starts to record. Call it before the process creates a CUDA context: only then the
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

/*
 * What the calling thread launches between the two belongs to span id (>= 0, used once
 * between two collects). Spans don't nest. An error is told by the next collect.
 */
void mist_cuda_recorder_begin(struct mist_cuda_recorder *recorder, int64_t id);
void mist_cuda_recorder_end(struct mist_cuda_recorder *recorder);

/*
 * Calls fn for every span since the last time that had work, each once, by ascending id;
 * the streams must be idle. MIST_OK; MIST_ERR_RUN: CUPTI failed, the time of day was set
 * while recording, or (after fn was called for all spans) records were lost since the
 * last time; or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_recorder_collect(struct mist_cuda_recorder *recorder, mist_span_fn *fn,
                           void *context, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_cuda_recorder_collect_spans(struct mist_cuda_recorder *recorder,
                                 mist_cuda_span_fn *fn, void *context,
                                 struct mist_err *err);

/* All losses since the recorder was opened, as of the last collect. */
struct mist_cuda_losses
mist_cuda_recorder_losses(const struct mist_cuda_recorder *recorder);

/* ----------------------------------------------------------- join: recorder_match.c */

enum mist_cuda_record_kind {
    MIST_CUDA_RECORD_EXTERNAL, /* ties correlation_id to external_id */
    MIST_CUDA_RECORD_WORK,     /* a kernel, copy or fill; both times 0: unknown */
    MIST_CUDA_RECORD_API       /* a call; ignored */
};

struct mist_cuda_record {
    enum mist_cuda_record_kind kind;
    uint32_t correlation_id; /* of the call that launched the work */
    int64_t external_id;
    uint64_t start_ns, end_ns; /* CUPTI's clock */
};

/* A span on CUPTI's clock. */
struct mist_cuda_interval {
    int64_t id;
    uint64_t start_ns, end_ns, busy_ns;
    int64_t n_kernels;
};

/* All that is known of one call. */
struct mist_cuda_call {
    uint32_t correlation_id;
    bool is_used; /* the slot holds a call */
    bool has_id;
    int64_t external_id;
    uint64_t start_ns, end_ns, busy_ns; /* of its work */
    int64_t n_kernels, n_untimed;
};

/* Calls by correlation id: open addressing, at most half full. */
struct mist_cuda_calls {
    struct mist_cuda_call *slots; /* owned; [n_slots], a power of two or 0 */
    size_t n_slots, n_used;
};

struct mist_cuda_matcher {
    struct mist_cuda_calls now;    /* since the last take */
    struct mist_cuda_calls before; /* the period before: to notice what comes too late */
    struct mist_cuda_interval *intervals; /* owned; of the last take */
    size_t capacity;                      /* of intervals */
    struct mist_cuda_losses losses; /* n_untimed, n_late; the rest is the caller's */
};

void mist_cuda_matcher_init(struct mist_cuda_matcher *matcher);
void mist_cuda_matcher_fini(struct mist_cuda_matcher *matcher);

/*
 * Adds records[n]. Any order does: the result depends only on which records were added
 * between two takes. Several works of one call (a graph) count together. If a call has
 * two external ids, the larger holds. Memory: some 100 bytes per call of two periods,
 * since a call may always get more work. MIST_OK or MIST_ERR_MEMORY (the record is lost).
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_matcher_add(struct mist_cuda_matcher *matcher,
                      const struct mist_cuda_record *records, size_t n,
                      struct mist_err *err);

/*
 * Ends a period: *intervals[*n] by ascending id, each id once, borrowed until the next
 * take or fini. Ids without work and work without an id are left out.
 * MIST_OK or MIST_ERR_MEMORY (nothing changed).
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_matcher_take(struct mist_cuda_matcher *matcher,
                       const struct mist_cuda_interval **intervals, size_t *n,
                       struct mist_err *err);

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
 * through b with slope 1, because then the readings' own error would dominate.
 * MIST_OK or MIST_ERR_RUN: between them one clock went 1 ms + 0.1 % further than the
 * other, as when the time of day is set.
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_clock_through(const struct mist_cuda_clock_pair *a,
                        const struct mist_cuda_clock_pair *b, struct mist_cuda_clock *out,
                        struct mist_err *err);

double mist_cuda_clock_at(const struct mist_cuda_clock *clock, uint64_t cupti_ns);

/* An interval on the clock of mist_clock_now_s(). */
struct mist_cuda_span mist_cuda_clock_span(const struct mist_cuda_clock *clock,
                                           const struct mist_cuda_interval *interval);

#endif
