/* What options of a replay ask for. See replay.h. */
#include "sim/replay/replay_graph.h"

#include <math.h>

enum { MAX_ITERATIONS = 1000 };

static enum mist_status check_factors(const double *factors, int64_t n, const char *name,
                                      struct mist_err *err)
{
    for (int64_t i = 0; factors && i < n; i++)
        if (!(factors[i] >= 0 && isfinite(factors[i])))
            return mist_err_set(err, MIST_ERR_INPUT,
                                "%s factor %lld is %g, must be finite and >= 0", name,
                                (long long)i, factors[i]);
    return MIST_OK;
}

enum mist_status mist_replay_check_options(const struct mist_plan *plan,
                                           const struct mist_replay_options *options,
                                           struct mist_err *err)
{
    const struct mist_loads *loads = options->loads;
    int32_t n_ranks = mist_plan_n_ranks(plan);
    enum mist_status status = check_factors(options->rank_factor, n_ranks, "rank", err);

    if (status == MIST_OK)
        status = check_factors(options->link_factor, n_ranks, "link", err);
    if (status != MIST_OK)
        return status;
    if (options->n_iterations < 0 || options->n_iterations > MAX_ITERATIONS)
        return mist_err_set(err, MIST_ERR_INPUT, "%d iterations, must be 1 to %d",
                            (int)options->n_iterations, MAX_ITERATIONS);
    if (!(options->jitter_frac >= 0 && options->jitter_frac <= 1))
        return mist_err_set(err, MIST_ERR_INPUT, "jitter is %g, must be 0 to 1",
                            options->jitter_frac);
    if (loads && (loads->n_iterations != mist_replay_n_iterations(options) ||
                  loads->n_micro_batches != plan->n_micro_batches ||
                  loads->n_samples != plan->stages[0].micro_batch * plan->stages[0].dp))
        return mist_err_set(err, MIST_ERR_INPUT, "the loads are those of another replay");
    return MIST_OK;
}

/* NULL if the ranks of every tensor-parallel group are alike, else why they are not. */
static const char *why_apart(const struct mist_plan *plan,
                             const struct mist_replay_options *options)
{
    const struct mist_stage_plan *first = &plan->stages[0];

    for (int32_t i = 1; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        if (stage->dp != first->dp || stage->tp != first->tp ||
            stage->is_sequence_parallel != first->is_sequence_parallel)
            return "stages have different dp, tp or sequence parallelism";
    }
    if (options->rank_factor || options->link_factor)
        return "ranks have factors";
    return options->jitter_frac > 0 ? "there is jitter" : NULL;
}

/* The same of the ranks of every stage. */
static const char *why_not_folded(const struct mist_plan *plan,
                                  const struct mist_replay_options *options)
{
    const char *why = why_apart(plan, options);

    return !why && options->loads && plan->stages[0].dp > 1
               ? "micro-batches differ between data-parallel ranks"
               : why;
}

enum mist_status mist_replay_find_work(const struct mist_plan *plan,
                                       const struct mist_replay_options *options,
                                       struct mist_replay_work *out, struct mist_err *err)
{
    enum mist_status status = mist_replay_check_options(plan, options, err);
    const char *obstacle = why_not_folded(plan, options);

    if (status != MIST_OK)
        return status;
    if (obstacle && options->folding == MIST_REPLAY_FOLD_ALWAYS)
        return mist_err_set(err, MIST_ERR_INPUT, "the replay can't be folded: %s",
                            obstacle);
    if (!obstacle && options->folding == MIST_REPLAY_FOLD_NEVER)
        obstacle = "it is asked for unfolded";
    *out = (struct mist_replay_work){
        .n_iterations = mist_replay_n_iterations(options),
        .has_timeline = !options->skips_timeline && !options->only_stages,
        .has_jitter = options->jitter_frac > 0,
        .limit_bytes = options->limit_bytes,
        .why_all = obstacle,
    };
    out->has_one_of_tp = obstacle && options->folding == MIST_REPLAY_FOLD_AUTO &&
                         !out->has_timeline && !why_apart(plan, options);
    for (int32_t i = 0; options->loads && i < plan->n_stages; i++)
        out->n_unlike += plan->stages[i].dp;
    for (int32_t r = 0; r < mist_plan_n_ranks(plan); r++)
        out->n_unlike += (options->rank_factor && options->rank_factor[r] != 1) ||
                         (options->link_factor && options->link_factor[r] != 1);
    return MIST_OK;
}
