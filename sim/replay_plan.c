/* Replays a whole plan: decides on folding, builds and prices its ranks. See replay.h. */
#include "sim/replay.h"

#include "sim/mechanism.h"
#include "sim/replay_graph.h"

#include <stdlib.h>

/* Prices of every rank: costs [n_ranks], zeroed; their arrays belong to the caller. */
static enum mist_status price_ranks(const struct mist_cost_model *cost_model,
                                    const struct mist_plan *plan,
                                    const struct mist_rank_set *ranks,
                                    struct mist_cost **costs, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t r = 0; r < ranks->n_ranks && status == MIST_OK; r++) {
        costs[r] = calloc((size_t)ranks->schedules[r]->n_costs + 1, sizeof **costs);
        if (!costs[r])
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        status = mist_cost_schedule(cost_model, plan, ranks->schedules[r], costs[r], err);
    }
    return status;
}

enum mist_status mist_replay_run(const struct mist_catalog *catalog,
                                 const struct mist_plan *plan,
                                 const struct mist_cost_model *cost_model,
                                 const struct mist_replay_options *options,
                                 struct mist_replay_result *out, struct mist_err *err)
{
    struct mist_replay_options defaults = {0};
    struct mist_rank_set ranks = {0};
    struct mist_cost **costs = NULL;
    struct mist_replay_work work;

    options = options ? options : &defaults;
    enum mist_status status = mist_replay_find_work(plan, options, &work, err);
    if (status == MIST_OK)
        status = mist_rank_set_build(catalog, plan, options->threads, &work, &ranks, err);
    if (status != MIST_OK)
        goto out;
    costs = calloc((size_t)ranks.n_ranks, sizeof *costs);
    status = costs ? price_ranks(cost_model, plan, &ranks, costs, err)
                   : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    const struct mist_trace_set *traces = mist_cost_model_traces(cost_model);
    const struct mist_replay_doubt doubt = {
        .drift_frac = traces->cluster.drift_frac,
        .residual_frac = mist_cost_model_interference_residual_frac(cost_model),
        .checks_frac = mist_mechanism_doubt_frac(traces, mist_plan_mechanisms(plan)),
    };
    if (status == MIST_OK)
        status = mist_replay_run_schedules(
            plan, (const struct mist_schedule *const *)ranks.schedules,
            (const struct mist_cost *const *)costs, ranks.n_ranks, !work.why_all,
            mist_cost_model_interference(cost_model), &doubt, options, out, err);
out:
    for (int32_t r = 0; costs && r < ranks.n_ranks; r++)
        free(costs[r]);
    free(costs);
    mist_rank_set_fini(&ranks);
    return status;
}
