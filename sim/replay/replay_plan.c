/* Replays a whole plan: decides on folding, builds and prices its ranks. See replay.h. */
#include "sim/replay/replay.h"

#include "sim/model/framework.h"
#include "sim/plan/mechanism.h"
#include "sim/replay/replay_graph.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* No prediction for a machine that nobody profiled is better than that. */
#define UNPROFILED_LEAST_FRAC 0.005

struct mist_replay_built {
    const struct mist_plan *plan;
    struct mist_replay_options options;
    struct mist_replay_work work;
    struct mist_rank_set ranks;
    bool is_priced;
};

enum mist_status mist_replay_build(const struct mist_plan *plan,
                                   const struct mist_replay_options *options,
                                   struct mist_replay_built **out, struct mist_err *err)
{
    struct mist_replay_built *built = calloc(1, sizeof *built);

    if (!built)
        return mist_err_memory(err, NULL);
    built->plan = plan;
    if (options)
        built->options = *options;
    enum mist_status status =
        mist_replay_find_work(plan, &built->options, &built->work, err);
    if (status == MIST_OK)
        status = mist_rank_set_build(plan, built->options.threads, &built->work,
                                     &built->ranks, err);
    if (status == MIST_OK)
        *out = built;
    else
        mist_replay_built_free(built);
    return status;
}

void mist_replay_built_free(struct mist_replay_built *built)
{
    if (built)
        mist_rank_set_fini(&built->ranks);
    free(built);
}

void mist_replay_built_stages(const struct mist_replay_built *built,
                              struct mist_replay_stage *stages)
{
    const struct mist_plan *plan = built->plan;

    memset(stages, 0, (size_t)plan->n_stages * sizeof *stages);
    for (int32_t i = 0; i < built->ranks.n_programs; i++) {
        const struct mist_schedule *schedule = built->ranks.programs[i].schedule;
        if (!schedule)
            continue;
        struct mist_replay_stage *stage = &stages[schedule->i_stage];
        stage->rank = mist_plan_first_rank(plan, schedule->i_stage);
        memcpy(stage->arena_bytes, schedule->arena_bytes, sizeof stage->arena_bytes);
        stage->n_parameters = mist_schedule_n_parameters(schedule, plan);
    }
}

enum mist_status mist_replay_check_prices(const struct mist_plan *plan,
                                          const struct mist_cost_model *cost_model,
                                          const struct mist_replay_options *options,
                                          struct mist_err *err)
{
    struct mist_replay_built *built = NULL;
    enum mist_status status = mist_replay_build(plan, options, &built, err);

    if (status == MIST_OK)
        status = mist_rank_set_price(&built->ranks, cost_model, plan,
                                     built->options.loads != NULL, err);
    mist_replay_built_free(built);
    return status;
}

struct mist_interference
mist_replay_interference(const struct mist_plan *plan,
                         const struct mist_cost_model *cost_model)
{
    const struct mist_framework *framework = mist_framework_get(plan->job.framework);
    struct mist_interference interference = *mist_cost_model_interference(cost_model);

    if (framework->takes_turns && !mist_plan_overlaps(plan))
        mist_interference_take_turns(&interference);
    interference.blocks_transfers =
        framework->blocks_transfers && !mist_plan_overlaps(plan);
    return interference;
}

enum mist_status mist_replay_run_built(struct mist_replay_built *built,
                                       const struct mist_cost_model *cost_model,
                                       const struct mist_replay_options *options,
                                       struct mist_replay_result *out,
                                       struct mist_err *err)
{
    const struct mist_plan *plan = built->plan;
    const struct mist_trace_set *traces = mist_cost_model_traces(cost_model);
    const struct mist_replay_doubt doubt = {
        .drift_frac = traces->cluster.drift_frac,
        .residual_frac = mist_cost_model_interference_residual_frac(cost_model),
        .checks_frac = mist_mechanism_doubt_frac(traces, mist_plan_mechanisms(plan)),
        .least_frac =
            traces->cluster.backend == MIST_TRACE_DATASHEET ? UNPROFILED_LEAST_FRAC : 0,
    };
    const struct mist_interference interference =
        mist_replay_interference(plan, cost_model);
    assert(!built->ranks.is_over);
    enum mist_status status = MIST_OK;
    if (!built->is_priced)
        status = mist_rank_set_price(&built->ranks, cost_model, plan,
                                     built->options.loads != NULL, err);
    built->is_priced = status == MIST_OK;
    if (status == MIST_OK)
        status = mist_replay_run_ranks(plan, &built->ranks, !built->work.why_all,
                                       &interference, &doubt,
                                       options ? options : &built->options, out, err);
    return status;
}

enum mist_status mist_replay_run(const struct mist_plan *plan,
                                 const struct mist_cost_model *cost_model,
                                 const struct mist_replay_options *options,
                                 struct mist_replay_result *out, struct mist_err *err)
{
    struct mist_replay_built *built = NULL;
    enum mist_status status = mist_replay_build(plan, options, &built, err);

    if (status == MIST_OK)
        status = mist_replay_run_built(built, cost_model, NULL, out, err);
    mist_replay_built_free(built);
    return status;
}
