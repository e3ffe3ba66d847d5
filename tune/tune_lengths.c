/* Plans for sequences of many lengths. See tune_lengths.h. */
#include "tune/tune_lengths.h"

#include "sim/replay/replay.h"

enum mist_status mist_tune_lengths_draw(const struct mist_tune_lengths *at,
                                        const struct mist_plan *plan,
                                        struct mist_loads *out, struct mist_err *err)
{
    return mist_loads_make(plan, &at->of, at->packing, at->seed,
                           MIST_TUNE_LENGTHS_ITERATIONS, out, err);
}

struct choosing {
    const struct mist_tune_lengths *lengths;
    const struct mist_validate_config *config;
    struct mist_validated *plans;
};

static enum mist_status replay_one(const struct choosing *at, struct mist_plan *plan,
                                   struct mist_err *err)
{
    struct mist_loads loads;
    struct mist_replay_options options = {
        .n_iterations = MIST_TUNE_LENGTHS_ITERATIONS,
        .threads = at->config->threads,
        .loads = &loads,
        .skips_timeline = true,
    };
    struct mist_replay_result replay;
    enum mist_status status = mist_tune_lengths_draw(at->lengths, plan, &loads, err);

    if (status != MIST_OK)
        return status;
    status = mist_replay_run(plan, at->config->cost_model, &options, &replay, err);
    mist_loads_fini(&loads);
    if (status != MIST_OK)
        return status;
    plan->predicted.iteration_s = replay.iteration_s;
    plan->predicted.error_s = replay.error_s;
    mist_replay_result_fini(&replay);
    return MIST_OK;
}

static enum mist_status replay_some(void *context, int64_t begin, int64_t end,
                                    int i_thread, struct mist_err *err)
{
    struct choosing *at = context;
    enum mist_status status = MIST_OK;

    (void)i_thread;
    for (int64_t i = begin; i < end && status == MIST_OK; i++)
        status = replay_one(at, at->plans[i].plan, err);
    return status;
}

enum mist_status mist_tune_lengths_choose(const struct mist_tune_lengths *at,
                                          const struct mist_validate_config *config,
                                          struct mist_thread_pool *pool, size_t n_best,
                                          struct mist_validate_result *result,
                                          struct mist_err *err)
{
    struct choosing choosing = {at, config, result->plans};
    enum mist_status status = mist_thread_pool_for(pool, (int64_t)result->n_plans, 1,
                                                   replay_some, &choosing, err);

    if (status == MIST_OK)
        mist_validate_keep(result, n_best, config->slower_frac);
    return status;
}
