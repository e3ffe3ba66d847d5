/*
 * A job that ran elsewhere, or a step of it: the operations that its workers recorded, as
 * a graph.
 *
 * A worker is one stage of one replica (data-parallel rank); of what profilers record, a
 * rank is a replica of one stage. Every operation took some time at some time; what it
 * waited for is rebuilt (operators_file.h, torch_job.h). From the two follows what the
 * recording does not say:
 *   gap_s   from the end of everything that the operation waited for to its start: what
 *           nobody recorded, launches and loading of data for instance;
 *   work_s  of an operation its duration; of one that passes a message with others from
 *           the latest start of all who take part to its own end, so that waiting for one
 *           another is not work.
 * Replaying gaps and work gives back the recorded times; replaying others answers what
 * the job would have taken. Nothing here knows prices, models or plans: what runs at once
 * slowed one another down when it was recorded, and stays as slow.
 *
 * A recording that is too long for memory is replayed part by part. Of the parts before, an
 * operation waits for what came last on lanes (streams of ranks), so that the ends of these
 * are all that a replay takes from one part to the next.
 */
#ifndef MIST_SIM_RECORDED_RECORDED_H
#define MIST_SIM_RECORDED_RECORDED_H

#include "core/memory.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_recorded_sort {
    MIST_RECORDED_COMPUTATION,
    MIST_RECORDED_MESSAGE, /* between workers, or between host and device */
    MIST_RECORDED_CALL     /* of the host: launches something, or waits for it */
};

struct mist_recorded_kind {
    const char *name; /* "forward-compute"; static */
    enum mist_recorded_sort sort;
    int64_t n;     /* operations */
    double work_s; /* their work, together */
};

struct mist_recorded_op {
    int32_t replica, stage; /* indices */
    int32_t kind;           /* index */
    int32_t meeting;        /* those with the same number pass one message; -1 */
};

/* Where every operation begins and ends, since the first start: [n_ops]. */
struct mist_recorded_times {
    double *start_s, *end_s;
    double *before_s; /* [n_lanes] when the parts before ended on each lane; 0 where there
                         was none */
};

/* Arrays lie in the arena that the job was read into. */
struct mist_recorded_job {
    int32_t n_replicas, n_stages, n_kinds, n_meetings;
    int64_t n_ops;
    int64_t step;                     /* as the file numbers it */
    struct mist_recorded_kind *kinds; /* [n_kinds] */
    struct mist_recorded_op *ops;     /* [n_ops] */
    struct mist_recorded_times recorded;
    const int64_t *dep_offset; /* [n_ops + 1] op i waits for dep[dep_offset[i] ..] */
    const int64_t *dep;        /* below 0: for what came last on lane -1 - dep before */
    int32_t n_lanes;           /* 0: this is no part */
    const int64_t *lane_last;  /* [n_lanes] the last operation of each, -1 none */
    /* Filled by mist_recorded_prepare(). */
    int64_t *order; /* [n_ops] an order to replay in: those of a meeting side by side */
    double *gap_s, *work_s; /* [n_ops] */
    /* Began or ended over 10 ms before the graph lets them, whose gap or work counts as 0. */
    int64_t n_contradictions;
    /* Of profilers' recordings. */
    int64_t n_unlaunched; /* works of a device without the call that launched them */
    int64_t n_unmatched;  /* messages between ranks whose other ends are not known */
    double clock_shift_s; /* by which a rank's clock was moved, at most */
};

/*
 * Finds an order, gaps and work for a job whose graph is complete; arena owns what is
 * made. MIST_ERR_INPUT: operations wait for one another in a ring (the message names
 * one); MIST_ERR_MEMORY. O(operations + dependencies).
 */
enum mist_status mist_recorded_prepare(struct mist_recorded_job *job,
                                       struct mist_arena *arena,
                                       struct mist_err *err) MIST_MUST_CHECK;

/*
 * Replays a prepared job with gap_s (NULL: none) and work_s, [n_ops] each, into times,
 * whose arrays are the caller's. O(operations + dependencies).
 */
void mist_recorded_replay(const struct mist_recorded_job *job, const double *gap_s,
                          const double *work_s, struct mist_recorded_times *times);

/* When everything that operation i waits for has ended. */
double mist_recorded_ready_s(const struct mist_recorded_job *job, int64_t i,
                             const struct mist_recorded_times *times);

/* What the next part takes from these times of a part: before_s. */
void mist_recorded_go_on(const struct mist_recorded_job *job,
                         struct mist_recorded_times *times);

/* From the first start to the last end. */
double mist_recorded_span_s(const struct mist_recorded_job *job,
                            const struct mist_recorded_times *times);

/* Times for one replay after another, but before_s; false: no memory. */
bool mist_recorded_times_alloc(const struct mist_recorded_job *job,
                               struct mist_arena *arena,
                               struct mist_recorded_times *times);

/* Room for kinds, operations and their recorded times, of which there are n_kinds and n_ops;
 * false: no memory. */
bool mist_recorded_job_alloc(struct mist_recorded_job *job, struct mist_arena *arena);

#endif
