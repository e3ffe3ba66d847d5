/*
 * How much of this machine's memory a replay takes, known before it is taken.
 *
 * The programs of a stage (rank_set.h) have schedules of about equal size, so that one of
 * each stage tells the size of all, of the graph that links the ranks, of the event
 * engine over it and of the timeline. Counted are the arrays that grow with tasks and
 * dependencies of programs, with ranks, and what a timeline takes; the estimate is within 0.8 and 1.25 times what malloc hands out at the peak
 * (tests/unit/test_replay_size.c) once a replay takes more than a few megabytes.
 */
#ifndef MIST_SIM_REPLAY_SIZE_H
#define MIST_SIM_REPLAY_SIZE_H

#include "core/status.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

#include <stdbool.h>
#include <stdint.h>

/* What is done with the schedules. */
struct mist_replay_work {
    bool is_check;        /* linked once and proved to end; nothing else below counts */
    int32_t n_iterations; /* of the replay */
    bool has_timeline, has_jitter;
    int64_t n_unlike;    /* ranks that factors make differ from others of their stage */
    int64_t limit_bytes; /* of a rank's device arena; 0: none */
    const char *why_all; /* why every rank is replayed; NULL: one of each stage is */
    bool has_one_of_tp;  /* not every rank, but the first of each tensor-parallel group */
};

/* Ranks of a stage that are replayed. */
int64_t mist_replay_work_n_ranks(const struct mist_plan *plan, int32_t i_stage,
                                 const struct mist_replay_work *work);

struct mist_replay_stage_size {
    const struct mist_schedule *schedule; /* of one of its programs */
    int32_t n_lanes;                      /* of that */
    int32_t n_programs;
};

/*
 * Bytes, schedules included. stages: [plan->n_stages]. A double, as what does not fit is
 * to be told, too.
 */
double mist_replay_size_bytes(const struct mist_plan *plan,
                              const struct mist_replay_stage_size *stages,
                              const struct mist_replay_work *work);

/* MIST_OK, or MIST_ERR_NO_PLAN with what is needed, what is available and what needs
 * less. */
MIST_MUST_CHECK enum mist_status
mist_replay_size_check(double bytes, const struct mist_plan *plan,
                       const struct mist_replay_work *work, struct mist_err *err);

#endif
