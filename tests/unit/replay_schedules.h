/* Replays and checks of schedules and prices that a test has made, [n_ranks]. */
#ifndef MIST_TESTS_UNIT_REPLAY_SCHEDULES_H
#define MIST_TESTS_UNIT_REPLAY_SCHEDULES_H

#include "sim/replay/rank_set.h"
#include "sim/replay/replay_graph.h"

static inline enum mist_status
replay_schedules(const struct mist_plan *plan, struct mist_schedule *const *schedules,
                 struct mist_cost *const *costs, int32_t n_ranks, bool is_folded,
                 const struct mist_interference *interference,
                 const struct mist_replay_doubt *doubt,
                 const struct mist_replay_options *options,
                 struct mist_replay_result *out, struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    enum mist_status status = mist_rank_set_borrow(
        (const struct mist_schedule *const *)schedules,
        (const struct mist_cost *const *)costs, n_ranks, &ranks, err);

    if (status == MIST_OK)
        status = mist_replay_run_ranks(plan, &ranks, is_folded, interference, doubt,
                                       options, out, err);
    mist_rank_set_fini(&ranks);
    return status;
}

static inline enum mist_status check_schedules(const struct mist_plan *plan,
                                               struct mist_schedule *const *schedules,
                                               int32_t n_ranks, struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    enum mist_status status = mist_rank_set_borrow(
        (const struct mist_schedule *const *)schedules, NULL, n_ranks, &ranks, err);

    if (status == MIST_OK)
        status = mist_replay_check_ranks(plan, &ranks, err);
    mist_rank_set_fini(&ranks);
    return status;
}

#endif
