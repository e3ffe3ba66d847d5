/* Replays and checks of schedules and prices that a test has made, [n_ranks]. */
#ifndef MIST_TESTS_UNIT_REPLAY_SCHEDULES_H
#define MIST_TESTS_UNIT_REPLAY_SCHEDULES_H

#include "sim/replay/rank_set.h"
#include "sim/replay/replay_graph.h"

#include <stdlib.h>

/* Schedules, ascending by rank: every rank has its own program. costs may be NULL. */
static inline enum mist_status rank_set_of(struct mist_schedule *const *schedules,
                                           struct mist_cost *const *costs,
                                           int32_t n_ranks, struct mist_rank_set *out,
                                           struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    size_t n_lanes = 0;

    out->ranks = calloc((size_t)n_ranks + 1, sizeof *out->ranks);
    out->programs = calloc((size_t)n_ranks + 1, sizeof *out->programs);
    if (!out->ranks || !out->programs)
        return mist_err_memory(err, NULL);
    out->n_ranks = out->n_programs = n_ranks;
    for (int32_t r = 0; r < n_ranks && status == MIST_OK; r++) {
        out->ranks[r] = (struct mist_rank){
            .rank = schedules[r]->rank, .program = r, .costs = costs ? costs[r] : NULL};
        out->programs[r].schedule = schedules[r];
        status = mist_rank_program_find_lanes(&out->programs[r], err);
    }
    if (status == MIST_OK) {
        out->peers = calloc(mist_rank_set_n_lanes(out) + 1, sizeof *out->peers);
        status = out->peers ? MIST_OK : mist_err_memory(err, NULL);
    }
    for (int32_t r = 0; r < n_ranks && status == MIST_OK; r++) {
        out->ranks[r].peer = out->peers + n_lanes;
        n_lanes += (size_t)out->programs[r].n_lanes;
        for (int32_t k = 0; k < out->programs[r].n_lanes; k++)
            out->ranks[r].peer[k] = out->programs[r].lanes[k].peer;
    }
    return status;
}

static inline enum mist_status
replay_schedules(const struct mist_plan *plan, struct mist_schedule *const *schedules,
                 struct mist_cost *const *costs, int32_t n_ranks, bool is_folded,
                 const struct mist_interference *interference,
                 const struct mist_replay_doubt *doubt,
                 const struct mist_replay_options *options,
                 struct mist_replay_result *out, struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    enum mist_status status = rank_set_of(schedules, costs, n_ranks, &ranks, err);

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
    enum mist_status status = rank_set_of(schedules, NULL, n_ranks, &ranks, err);

    if (status == MIST_OK)
        status = mist_replay_check_ranks(plan, &ranks, err);
    mist_rank_set_fini(&ranks);
    return status;
}

#endif
