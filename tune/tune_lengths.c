/* Plans for sequences of many lengths. See tune_lengths.h. */
#include "tune/tune_lengths.h"

#include "core/memory.h" /* mist_grow */
#include "core/thread_pool.h"
#include "sim/plan/plan_fields.h"
#include "sim/replay/replay.h"

#include <stdlib.h>

enum mist_status mist_tune_lengths_draw(const struct mist_tune_lengths *at,
                                        const struct mist_plan *plan,
                                        struct mist_loads *out, struct mist_err *err)
{
    return mist_loads_make(plan, &at->of, at->packing, at->seed,
                           MIST_TUNE_LENGTHS_ITERATIONS, out, err);
}

/* ------------------------------------------------------------------------------- search */

/* Moves plans that are new from one result to the other. */
static enum mist_status move_plans(struct mist_validate_result *to,
                                   struct mist_validate_result *from,
                                   struct mist_err *err)
{
    for (size_t i = 0; i < from->n_plans; i++) {
        size_t k = 0;
        while (k < to->n_plans &&
               !mist_plan_is_same(to->plans[k].plan, from->plans[i].plan))
            k++;
        if (k < to->n_plans)
            continue;
        if (!MIST_RESERVE(to->plans, to->plans_capacity, k + 1))
            return mist_err_memory(err, NULL);
        to->plans[to->n_plans++] = from->plans[i];
        from->plans[i].plan = NULL;
    }
    return MIST_OK;
}

/* The part of the search with one size of tensor parallelism; it may have no plan. */
static enum mist_status search_tp(const struct mist_validate_config *config,
                                  const struct mist_search_config *search, int32_t tp,
                                  struct mist_validate_result *result,
                                  struct mist_err *err)
{
    const struct mist_space *whole = config->space;
    struct mist_bounds bounds = whole->bounds;
    struct mist_validate_config part = *config;
    struct mist_search_config how = *search;
    struct mist_validate_result found;
    struct mist_space space;

    bounds.of[MIST_KNOB_TP] = (struct mist_knob_range){tp, tp};
    enum mist_status status = mist_space_part(&space, whole, whole->groups, &bounds, err);
    part.space = &space;
    part.price = NULL;
    if (status == MIST_OK)
        status = mist_stage_price_new(config->cost_model, &space, config->threads,
                                      &part.price, err);
    how.price_context = part.price;
    how.rows = NULL;
    if (status == MIST_OK && space.n_cases > 0)
        status = mist_validate_run(&part, &how, &found, err);
    else if (status == MIST_OK)
        status = MIST_ERR_NO_PLAN;
    if (status == MIST_OK) {
        status = move_plans(result, &found, err);
        mist_validate_result_fini(&found);
    }
    mist_stage_price_free(part.price);
    mist_space_fini(&space);
    return status == MIST_ERR_NO_PLAN ? MIST_OK : status;
}

enum mist_status mist_tune_lengths_search(const struct mist_validate_config *config,
                                          const struct mist_search_config *search,
                                          struct mist_validate_result *result,
                                          struct mist_err *err)
{
    struct mist_knob_range tp = config->space->bounds.of[MIST_KNOB_TP];
    enum mist_status status = MIST_OK;

    for (int32_t n = 1; n <= config->space->devices_per_node && tp.min < tp.max; n *= 2)
        if (status == MIST_OK && n >= tp.min && n <= tp.max &&
            !(search->is_over && *search->is_over))
            status = search_tp(config, search, n, result, err);
    return status;
}

/* ------------------------------------------------------------------------------- choice */

struct choosing {
    const struct mist_tune_lengths *lengths;
    const struct mist_validate_config *config;
    struct mist_validated *plans;
};

static enum mist_status replay_one(void *context, int64_t i, struct mist_err *err)
{
    const struct choosing *at = context;
    struct mist_plan *plan = at->plans[i].plan;
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
    mist_replay_predict(&replay, &mist_cost_model_traces(at->config->cost_model)->cluster,
                        &plan->predicted);
    mist_replay_result_fini(&replay);
    return MIST_OK;
}

enum mist_status mist_tune_lengths_choose(const struct mist_tune_lengths *at,
                                          const struct mist_validate_config *config,
                                          struct mist_thread_pool *pool, size_t n_best,
                                          struct mist_validate_result *result,
                                          struct mist_err *err)
{
    struct choosing choosing = {at, config, result->plans};
    enum mist_status status =
        mist_thread_pool_for(pool, (int64_t)result->n_plans, replay_one, &choosing, err);

    if (status == MIST_OK)
        mist_validate_keep(result, n_best, config->slower_frac);
    return status;
}
