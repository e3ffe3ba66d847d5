/*
 * Timelines of mist-exec (or mist-sim) as recorded jobs, iteration by iteration. What a task
 * waited for is not in the file but in the plan's schedule: tasks of other streams that it
 * names, those before it on its stream, and of the iteration before, everything on its rank.
 *
 * The members of a transfer or collective begin when the last of them is there (that is
 * what the file says), so each is taken to be there as soon as it has nothing else to do.
 */
#ifndef MIST_SIM_SIM_TIMELINE_H
#define MIST_SIM_SIM_TIMELINE_H

#include "core/progress.h"
#include "core/sorter.h"
#include "sim/plan/plan.h"
#include "sim/recorded/recorded.h"
#include "sim/replay/rank_set.h"

/* What came last on a lane, which is a stream of a rank. */
struct mist_sim_timeline_lane {
    double end_s;
    int64_t task; /* -1: nothing yet */
};

/* An open timeline, in the memory of its longest iteration however long it is: its rows,
 * whatever their order, are sorted by core/sorter.h. */
struct mist_sim_timeline {
    const char *path;             /* borrowed */
    const struct mist_plan *plan; /* borrowed */
    int64_t n_ops;
    int32_t n_lanes;
    /* The rest is its own. */
    struct mist_rank_set ranks;    /* all of the plan */
    bool *has_rank;                /* [ranks of the plan] */
    int strange_rank;              /* the first that the plan does not have; -1 */
    double first_s;                /* of all starts */
    struct mist_sorter sorter;     /* of rows */
    struct mist_timeline_row next; /* the first row of the iteration behind it */
    bool has_next;
    struct mist_timeline rows;            /* of an iteration, by rank and task */
    double *before_s;                     /* [n_lanes] as recorded (recorded.h) */
    struct mist_sim_timeline_lane *lanes; /* [n_lanes] */
};

/*
 * Reads all rows of a timeline of all ranks of the plan, or of one of each stage; then the
 * first iteration is the next one. job: what all parts have in common, without operations.
 * progress may be NULL. MIST_ERR_INPUT (a timeline of
 * another plan, a rank is missing: with the file), MIST_ERR_IO, MIST_ERR_MEMORY,
 * MIST_ERR_RANGE or MIST_ERR_NO_PLAN (mist_rank_set_build()); then timeline is closed.
 */
enum mist_status mist_sim_timeline_open(struct mist_sim_timeline *timeline,
                                        const char *path, const struct mist_plan *plan,
                                        struct mist_recorded_job *job,
                                        struct mist_progress *progress,
                                        struct mist_err *err) MIST_MUST_CHECK;

/*
 * The next iteration as a prepared part of a job (recorded.h), whose replicas are ranks;
 * job->n_ops 0: there are no more. job lies in the arena; recorded.before_s is good until
 * the next call. MIST_ERR_INPUT (a task twice, missing or of another plan: with the file),
 * MIST_ERR_IO, MIST_ERR_MEMORY.
 */
enum mist_status mist_sim_timeline_next(struct mist_sim_timeline *timeline,
                                        struct mist_recorded_job *job,
                                        struct mist_arena *arena,
                                        struct mist_err *err) MIST_MUST_CHECK;

/* A zeroed or closed timeline is left alone. */
void mist_sim_timeline_close(struct mist_sim_timeline *timeline);

#endif
