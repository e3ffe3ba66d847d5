/* Builds the schedules of many ranks; checks and memory that need no prices.
 * See replay.h. */
#include "sim/replay.h"

#include "sim/replay_graph.h"

#include <stdlib.h>
#include <string.h>

void mist_rank_set_fini(struct mist_rank_set *ranks)
{
    for (int32_t r = 0; ranks->schedules && r < ranks->n_ranks; r++)
        mist_schedule_free(ranks->schedules[r]);
    free(ranks->schedules);
    *ranks = (struct mist_rank_set){0};
}

enum mist_status mist_rank_set_build(const struct mist_catalog *catalog,
                                     const struct mist_plan *plan, int32_t threads,
                                     bool is_folded, struct mist_rank_set *out,
                                     struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    out->n_ranks = is_folded ? plan->n_stages : mist_plan_n_ranks(plan);
    out->schedules = calloc((size_t)out->n_ranks, sizeof *out->schedules);
    if (!out->schedules)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t r = 0; r < out->n_ranks && status == MIST_OK; r++) {
        int32_t rank = is_folded ? mist_plan_first_rank(plan, r) : r;
        status =
            mist_schedule_build(catalog, plan, rank, threads, &out->schedules[r], err);
    }
    return status;
}

enum mist_status mist_replay_check_schedules(const struct mist_plan *plan,
                                             const struct mist_schedule *const *schedules,
                                             int32_t n_ranks, struct mist_err *err)
{
    struct mist_arena arena;
    struct mist_replay_graph graph;

    mist_arena_init(&arena);
    enum mist_status status =
        mist_replay_graph_link(plan, schedules, n_ranks, false, 1, &arena, &graph, err);
    if (status == MIST_OK)
        status = mist_replay_graph_check(&graph, &arena, err);
    mist_arena_fini(&arena);
    return status;
}

enum mist_status mist_replay_check(const struct mist_catalog *catalog,
                                   const struct mist_plan *plan, int32_t threads,
                                   struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    enum mist_status status =
        mist_rank_set_build(catalog, plan, threads, false, &ranks, err);

    if (status == MIST_OK)
        status = mist_replay_check_schedules(
            plan, (const struct mist_schedule *const *)ranks.schedules, ranks.n_ranks,
            err);
    mist_rank_set_fini(&ranks);
    return status;
}

enum mist_status mist_replay_memory(const struct mist_catalog *catalog,
                                    const struct mist_plan *plan, int32_t threads,
                                    int64_t (*arena_bytes)[MIST_N_ARENAS],
                                    struct mist_err *err)
{
    for (int32_t i = 0; i < plan->n_stages; i++) {
        struct mist_schedule *schedule;
        enum mist_status status = mist_schedule_build(
            catalog, plan, mist_plan_first_rank(plan, i), threads, &schedule, err);
        if (status != MIST_OK)
            return status;
        memcpy(arena_bytes[i], schedule->arena_bytes, sizeof arena_bytes[i]);
        mist_schedule_free(schedule);
    }
    return MIST_OK;
}
