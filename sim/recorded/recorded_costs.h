/*
 * Where the time of a job that was recorded rank by rank went: by rank, and what each kind of
 * operations costs. A kind costs what the job takes longer than with it in no time.
 *
 * A job comes as a whole or part by part (recorded.h), of which one is in memory at a time.
 * Each of the replays, with one kind after the other in no time, goes on where it ended in
 * the part before.
 */
#ifndef MIST_SIM_RECORDED_RECORDED_COSTS_H
#define MIST_SIM_RECORDED_RECORDED_COSTS_H

#include "core/options.h" /* MIST_OPTION_LIST_MAX */
#include "sim/recorded/recorded.h"

struct mist_recorded_span {
    double first_s, last_s; /* of all starts and ends; infinite: there are none */
};

struct mist_recorded_rank {
    int64_t n_ops;                 /* 0: nothing of it was recorded */
    double recorded_s, replayed_s; /* from its first start to its last end */
    double computing_s;            /* of its computations, together */
    double waiting_s;              /* in messages, for the other ranks */
    int64_t n_last;                /* messages that waited for it */
    struct mist_recorded_span recorded, replayed;
};

/* One of the replays: where it ended in the parts so far. */
struct mist_recorded_replayed {
    struct mist_recorded_span span;
    double *before_s; /* [n_lanes] */
};

/* Arrays lie in the arena. */
struct mist_recorded_costs {
    int32_t n_replicas, n_kinds, n_lanes;
    int64_t n_ops, n_meetings, n_contradictions, n_unlaunched, n_unmatched;
    double clock_shift_s;
    double recorded_s;
    double replayed_s;       /* as it was */
    double worst_frac;       /* by which a rank's replay misses what was recorded */
    double without_launch_s; /* calls and gaps take no time */
    double edited_s;         /* replayed with the edits */
    struct mist_recorded_rank *ranks; /* [n_replicas] */
    struct mist_recorded_kind *kinds; /* [n_kinds] */
    double *without_kind_s;           /* [n_kinds] */
    int64_t n_late; /* began on the device 50 us or more behind all that they wait for */
    double late_s;  /* of their gaps, together */
    /* The rest is its own. */
    const char *const *edits; /* borrowed */
    int n_edits;
    int64_t n_edited[MIST_OPTION_LIST_MAX]; /* operations that an edit changed */
    struct mist_recorded_span recorded;
    struct mist_recorded_replayed unchanged, without_launch, edited;
    struct mist_recorded_replayed *without_kind; /* [n_kinds] */
};

/*
 * Begins with a job of which n_replicas, n_kinds and n_lanes are known, that is also to be
 * replayed with edits [n_edits <= MIST_OPTION_LIST_MAX] (mist_recorded_edit()). edits are
 * borrowed, arena until the end. MIST_ERR_MEMORY.
 */
enum mist_status mist_recorded_costs_begin(struct mist_recorded_costs *costs,
                                           const struct mist_recorded_job *job,
                                           const char *const *edits, int n_edits,
                                           struct mist_arena *arena,
                                           struct mist_err *err) MIST_MUST_CHECK;

/* Adds a prepared job, or the next part of one, which the edits then have changed.
 * MIST_ERR_MEMORY; MIST_ERR_USAGE: an edit is wrong. O(kinds * (operations +
 * dependencies)). */
enum mist_status mist_recorded_costs_add(struct mist_recorded_costs *costs,
                                         struct mist_recorded_job *job,
                                         struct mist_err *err) MIST_MUST_CHECK;

/* All has been added. MIST_ERR_USAGE: an edit has changed nothing. */
enum mist_status mist_recorded_costs_end(struct mist_recorded_costs *costs,
                                         struct mist_err *err) MIST_MUST_CHECK;

#endif
