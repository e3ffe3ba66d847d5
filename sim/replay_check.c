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

/* One rank of each stage, into its place among all or, when they do, alone; refuses work
 * that takes more memory than there is. */
static enum mist_status build_first(const struct mist_catalog *catalog,
                                    const struct mist_plan *plan, int32_t threads,
                                    const struct mist_replay_work *work,
                                    struct mist_rank_set *out, struct mist_err *err)
{
    const struct mist_schedule *first[MIST_MAX_STAGES];
    bool has_all = work->is_check || work->why_all;
    enum mist_status status = MIST_OK;

    out->n_ranks = has_all ? mist_plan_n_ranks(plan) : plan->n_stages;
    out->schedules = calloc((size_t)out->n_ranks, sizeof *out->schedules);
    if (!out->schedules)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++) {
        int32_t rank = mist_plan_first_rank(plan, i);
        struct mist_schedule **schedule = &out->schedules[has_all ? rank : i];
        status = mist_schedule_build(catalog, plan, rank, threads, schedule, err);
        first[i] = *schedule;
    }
    if (status != MIST_OK)
        return status;
    return mist_replay_size_check(mist_replay_size_bytes(plan, first, work), plan, work,
                                  err);
}

enum mist_status mist_rank_set_build(const struct mist_catalog *catalog,
                                     const struct mist_plan *plan, int32_t threads,
                                     const struct mist_replay_work *work,
                                     struct mist_rank_set *out, struct mist_err *err)
{
    enum mist_status status = build_first(catalog, plan, threads, work, out, err);

    for (int32_t r = 0; r < out->n_ranks && status == MIST_OK; r++)
        if (!out->schedules[r])
            status =
                mist_schedule_build(catalog, plan, r, threads, &out->schedules[r], err);
    return status;
}

enum mist_status mist_replay_check_memory(const struct mist_catalog *catalog,
                                          const struct mist_plan *plan,
                                          const struct mist_replay_options *options,
                                          struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    struct mist_replay_work work;
    enum mist_status status = mist_replay_find_work(plan, options, &work, err);

    if (status == MIST_OK)
        status = build_first(catalog, plan, options->threads, &work, &ranks, err);
    mist_rank_set_fini(&ranks);
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
    const struct mist_replay_work work = {.is_check = true};
    enum mist_status status =
        mist_rank_set_build(catalog, plan, threads, &work, &ranks, err);

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
