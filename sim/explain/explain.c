/* Explains all stages of a replay. See explain.h. */
#include "sim/explain/explain.h"

#include <assert.h>
#include <stdlib.h>

/* The rows of the rank that stands for a stage: its busiest, or the only one there is. */
static const struct mist_timeline_row *find_rows(const struct mist_plan *plan,
                                                 const struct mist_replay_result *replay,
                                                 int32_t i_stage)
{
    const struct mist_timeline *timeline = &replay->timeline;
    const struct mist_timeline_row *found = NULL;
    int rank = -1;

    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        if (row->rank == rank)
            continue;
        rank = row->rank;
        if (rank == replay->stages[i_stage].rank)
            return row;
        if (!found && mist_plan_stage_of(plan, rank) == i_stage)
            found = row;
    }
    assert(found); /* every stage has a rank in the timeline */
    return found;
}

/* A stage, of which rows is the first row of a rank. */
static enum mist_status
explain_stage(const struct mist_plan *plan, const struct mist_cost_model *model,
              int32_t threads, const struct mist_replay_result *replay,
              const struct mist_timeline_row *rows, struct mist_explained_stage *out,
              struct mist_err *err)
{
    struct mist_schedule *schedule = NULL;
    struct mist_cost *costs = NULL;

    out->rank = rows->rank;
    enum mist_status status =
        mist_schedule_build(plan, out->rank, threads, &schedule, err);
    if (status != MIST_OK)
        return status;
    costs = calloc((size_t)schedule->n_costs + 1, sizeof *costs);
    status = costs ? mist_cost_schedule(model, plan, schedule, costs, err)
                   : mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = mist_explain_time(plan, model, schedule, costs, rows, replay->begin_s,
                                   replay->begin_s + replay->last_s, out->time_s, err);
    for (int k = 0; k < MIST_N_ARENAS && status == MIST_OK; k++)
        status = mist_explain_memory(plan, schedule, (enum mist_buffer_arena)k,
                                     &out->memory[k], err);
    free(costs);
    mist_schedule_free(schedule);
    return status;
}

static void find_mean(const struct mist_plan *plan, struct mist_explanation *out)
{
    double n_ranks = mist_plan_n_ranks(plan);

    for (int32_t i = 0; i < out->n_stages; i++) {
        double share = (double)mist_stage_n_ranks(&plan->stages[i]) / n_ranks;
        for (int c = 0; c < MIST_N_TIME_CLASSES; c++)
            out->mean_s[c] += share * out->stages[i].time_s[c];
    }
}

enum mist_status mist_explain(const struct mist_plan *plan,
                              const struct mist_cost_model *model, int32_t threads,
                              const struct mist_replay_result *replay,
                              struct mist_explanation *out, struct mist_err *err)
{
    struct mist_explanation explanation = {
        .iteration_s = replay->last_s,
        .has_equal_ranks = replay->is_folded,
        .n_stages = plan->n_stages,
        .stages = calloc((size_t)plan->n_stages, sizeof *explanation.stages),
    };
    enum mist_status status = explanation.stages ? MIST_OK : mist_err_memory(err, NULL);

    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++) {
        explanation.stages[i].beside = mist_beside_arena_find(
            plan, &mist_cost_model_traces(model)->cluster, &replay->stages[i]);
        status = explain_stage(plan, model, threads, replay, find_rows(plan, replay, i),
                               &explanation.stages[i], err);
    }
    if (status != MIST_OK) {
        mist_explanation_fini(&explanation);
        return status;
    }
    find_mean(plan, &explanation);
    *out = explanation;
    return MIST_OK;
}

enum mist_status mist_explain_plan(const struct mist_plan *plan,
                                   const struct mist_cost_model *model, int32_t threads,
                                   struct mist_explanation *out, struct mist_err *err)
{
    const struct mist_replay_options options = {.threads = threads, .only_stages = true};
    struct mist_replay_result replay;
    enum mist_status status = mist_replay_run(plan, model, &options, &replay, err);

    if (status != MIST_OK)
        return status;
    status = mist_explain(plan, model, threads, &replay, out, err);
    mist_replay_result_fini(&replay);
    return status;
}

void mist_explanation_fini(struct mist_explanation *explanation)
{
    for (int32_t i = 0; explanation->stages && i < explanation->n_stages; i++)
        for (int k = 0; k < MIST_N_ARENAS; k++)
            mist_explained_memory_fini(&explanation->stages[i].memory[k]);
    free(explanation->stages);
    *explanation = (struct mist_explanation){0};
}
