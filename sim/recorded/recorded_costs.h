/*
 * Where the time of a job that was recorded rank by rank went: by rank, and what each kind of
 * operations costs. A kind costs what the job takes longer than with it in no time.
 */
#ifndef MIST_SIM_RECORDED_RECORDED_COSTS_H
#define MIST_SIM_RECORDED_RECORDED_COSTS_H

#include "sim/recorded/recorded.h"

struct mist_recorded_rank {
    int64_t n_ops;                 /* 0: nothing of it was recorded */
    double recorded_s, replayed_s; /* from its first start to its last end */
    double computing_s;            /* of its computations, together */
    double waiting_s;              /* in messages, for the other ranks */
    int64_t n_last;                /* messages that waited for it */
};

/* Arrays lie in the arena. */
struct mist_recorded_costs {
    double recorded_s;
    double replayed_s;       /* as it was */
    double worst_frac;       /* by which a rank's replay misses what was recorded */
    double without_launch_s; /* calls and gaps take no time */
    struct mist_recorded_rank *ranks; /* [n_replicas] */
    double *without_kind_s;           /* [n_kinds] */
    int64_t n_late; /* began on the device 50 us or more behind all that they wait for */
    double late_s;  /* of their gaps, together */
};

/* Of a prepared job. MIST_ERR_MEMORY. O(kinds * (operations + dependencies)). */
enum mist_status mist_recorded_find_costs(const struct mist_recorded_job *job,
                                          struct mist_recorded_costs *out,
                                          struct mist_arena *arena,
                                          struct mist_err *err) MIST_MUST_CHECK;

#endif
