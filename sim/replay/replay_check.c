/* Checks and memory that need no prices. See replay.h. */
#include "sim/replay/replay.h"

#include "sim/replay/replay_graph.h"

#include <stdio.h> /* snprintf */
#include <string.h>

enum mist_status mist_replay_check_memory(const struct mist_plan *plan,
                                          const struct mist_replay_options *options,
                                          struct mist_err *err)
{
    struct mist_replay_work work;
    enum mist_status status = mist_replay_find_work(plan, options, &work, err);

    return status == MIST_OK
               ? mist_rank_set_check_memory(plan, options->threads, &work, err)
               : status;
}

static void name_task(const void *context, int32_t i_rank, int32_t task, char *text,
                      size_t size)
{
    char whole[MIST_REPLAY_TASK_TEXT];

    snprintf(text, size, "%s", mist_replay_task_text(context, i_rank, task, whole));
}

/* Lets everything run that can. How long it takes does not matter: no time at all. */
static enum mist_status run_once(const struct mist_rank_set *ranks,
                                 const struct mist_replay_graph *graph,
                                 struct mist_arena *arena, struct mist_err *err)
{
    struct mist_event_device *devices =
        mist_arena_alloc(arena, ((size_t)ranks->n_ranks + 1) * sizeof *devices);
    const struct mist_event_graph events = {
        .n_programs = ranks->n_programs,
        .n_devices = ranks->n_ranks,
        .n_groups = graph->n_groups,
        .n_iterations = 1,
        .program = graph->programs,
        .device = devices,
        .name_task = name_task,
        .context = ranks,
    };
    struct mist_event_engine *engine;
    struct mist_event_result result;

    if (!devices)
        return mist_err_memory(err, NULL);
    for (int32_t r = 0; r < ranks->n_ranks; r++)
        devices[r] = (struct mist_event_device){
            .program = ranks->ranks[r].program,
            .group = graph->group + (ranks->ranks[r].peer - ranks->peers),
        };
    enum mist_status status = mist_event_engine_prepare(&engine, &events, arena, err);
    return status == MIST_OK ? mist_event_engine_run(engine, &result, err) : status;
}

enum mist_status mist_replay_check_ranks(const struct mist_plan *plan,
                                         const struct mist_rank_set *ranks,
                                         struct mist_err *err)
{
    struct mist_arena arena;
    struct mist_replay_graph graph;

    mist_arena_init(&arena);
    enum mist_status status =
        mist_replay_graph_link(plan, ranks, false, &arena, &graph, err);
    if (status == MIST_OK)
        status = run_once(ranks, &graph, &arena, err);
    mist_arena_fini(&arena);
    return status;
}

enum mist_status mist_replay_check(const struct mist_plan *plan, int32_t threads,
                                   struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    const struct mist_replay_work work = {.is_check = true};
    enum mist_status status = mist_rank_set_build(plan, threads, &work, &ranks, err);

    if (status == MIST_OK)
        status = mist_replay_check_ranks(plan, &ranks, err);
    mist_rank_set_fini(&ranks);
    return status;
}

enum mist_status mist_replay_memory(const struct mist_plan *plan, int32_t threads,
                                    int64_t (*arena_bytes)[MIST_N_ARENAS],
                                    struct mist_err *err)
{
    for (int32_t i = 0; i < plan->n_stages; i++) {
        struct mist_schedule *schedule;
        enum mist_status status = mist_schedule_build(plan, mist_plan_first_rank(plan, i),
                                                      threads, &schedule, err);
        if (status != MIST_OK)
            return status;
        memcpy(arena_bytes[i], schedule->arena_bytes, sizeof arena_bytes[i]);
        mist_schedule_free(schedule);
    }
    return MIST_OK;
}
