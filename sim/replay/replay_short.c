/* An iteration of many micro-batches from one of few. See replay.h. */
#include "sim/replay/replay_graph.h"
#include "sim/schedule/pipeline_order.h"

#include <stdlib.h>

/* Of schedules that repeat themselves after each, and whose stages wait for one another
 * twice. */
enum { N_IN_STEP = 2 };

int32_t mist_replay_n_in_step(const struct mist_plan *plan)
{
    const struct mist_pipeline_kind *kind = &mist_pipeline_kinds[plan->pipeline];
    bool is_long = kind->groups_micro_batches || kind->splits_backward;

    return is_long && plan->n_stages > N_IN_STEP ? plan->n_stages : N_IN_STEP;
}

/* Whether the order of a schedule is that of fewer micro-batches, with more of the same. */
static bool repeats_itself(const struct mist_plan *plan)
{
    return mist_pipeline_kinds[plan->pipeline].n_kept_per_stage == 0;
}

/* Micro-batches behind which a stable rhythm has been seen: as many as stages keep
 * activations of, and two steps more. All, if the plan has no more. */
static enum mist_status find_enough(const struct mist_plan *plan, int32_t *out,
                                    struct mist_err *err)
{
    int32_t g = plan->n_micro_batches, step = mist_replay_n_in_step(plan), n = 0;
    struct mist_pipeline_order order = {0};

    *out = g;
    if (!repeats_itself(plan))
        return MIST_OK;
    enum mist_status status = mist_pipeline_order_init(
        &order, plan->pipeline, plan->n_stages, mist_plan_n_chunks(plan), g, NULL, err);
    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++) {
        int32_t kept = mist_pipeline_in_flight(&order, i);
        n = kept > n ? kept : n;
    }
    mist_pipeline_order_fini(&order);
    n = (n + step - 1) / step * step + 2 * step;
    *out = n < g ? n : g;
    return status;
}

enum mist_status mist_replay_short(const struct mist_plan *plan,
                                   const struct mist_cost_model *cost_model,
                                   int32_t threads, double *iteration_s,
                                   struct mist_err *err)
{
    const struct mist_replay_options options = {.n_iterations = 1,
                                                .threads = threads,
                                                .skips_timeline = true,
                                                .only_times = true};
    struct mist_plan *few = malloc(sizeof *few); /* large */
    struct mist_replay_result result;

    if (!few)
        return mist_err_memory(err, NULL);
    *few = *plan;
    enum mist_status status = find_enough(plan, &few->n_micro_batches, err);
    int32_t n_left = plan->n_micro_batches - few->n_micro_batches;
    few->job.global_batch -= few->job.global_batch / plan->n_micro_batches * n_left;
    if (status == MIST_OK)
        status = mist_replay_run(few, cost_model, &options, &result, err);
    if (status == MIST_OK) {
        *iteration_s = result.iteration_s + n_left * result.pace_s;
        mist_replay_result_fini(&result);
    }
    free(few);
    return status;
}
