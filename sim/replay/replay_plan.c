/* Replays a whole plan: decides on folding, builds and prices its ranks. See replay.h. */
#include "sim/replay/replay.h"

#include "sim/model/framework.h"
#include "sim/plan/mechanism.h"
#include "sim/replay/replay_graph.h"

/* No prediction for a machine that nobody profiled is better than that. */
#define UNPROFILED_LEAST_FRAC 0.005

/* The ranks that a replay needs, priced; to be freed whatever the result. */
static enum mist_status build_and_price(const struct mist_plan *plan,
                                        const struct mist_cost_model *cost_model,
                                        const struct mist_replay_options *options,
                                        struct mist_replay_work *work,
                                        struct mist_rank_set *ranks, struct mist_err *err)
{
    enum mist_status status = mist_replay_find_work(plan, options, work, err);

    if (status == MIST_OK)
        status = mist_rank_set_build(plan, options->threads, work, ranks, err);
    return status == MIST_OK ? mist_rank_set_price(ranks, cost_model, plan, err) : status;
}

enum mist_status mist_replay_check_prices(const struct mist_plan *plan,
                                          const struct mist_cost_model *cost_model,
                                          const struct mist_replay_options *options,
                                          struct mist_err *err)
{
    struct mist_rank_set ranks = {0};
    struct mist_replay_work work;
    enum mist_status status =
        build_and_price(plan, cost_model, options, &work, &ranks, err);

    mist_rank_set_fini(&ranks);
    return status;
}

enum mist_status mist_replay_run(const struct mist_plan *plan,
                                 const struct mist_cost_model *cost_model,
                                 const struct mist_replay_options *options,
                                 struct mist_replay_result *out, struct mist_err *err)
{
    struct mist_replay_options defaults = {0};
    struct mist_rank_set ranks = {0};
    struct mist_replay_work work;

    options = options ? options : &defaults;
    enum mist_status status =
        build_and_price(plan, cost_model, options, &work, &ranks, err);
    const struct mist_trace_set *traces = mist_cost_model_traces(cost_model);
    const struct mist_replay_doubt doubt = {
        .drift_frac = traces->cluster.drift_frac,
        .residual_frac = mist_cost_model_interference_residual_frac(cost_model),
        .checks_frac = mist_mechanism_doubt_frac(traces, mist_plan_mechanisms(plan)),
        .least_frac =
            traces->cluster.backend == MIST_TRACE_DATASHEET ? UNPROFILED_LEAST_FRAC : 0,
    };
    struct mist_interference interference = *mist_cost_model_interference(cost_model);
    if (mist_framework_get(plan->job.framework)->takes_turns && !plan->job.overlaps)
        mist_interference_take_turns(&interference);
    if (status == MIST_OK)
        status = mist_replay_run_ranks(plan, &ranks, !work.why_all, &interference, &doubt,
                                       options, out, err);
    mist_rank_set_fini(&ranks);
    return status;
}
