/* Draws plans. See sample_plans.h. */
#include "tune/sample_plans.h"

#include "core/random.h"
#include "sim/pipeline_order.h"

#include <stdlib.h>
#include <string.h>

enum { DRAWS_PER_PLAN = 100 };

struct sampler {
    const struct mist_validate_config *config;
    mist_search_price *price;
    void *price_context;
    struct mist_random random;
    struct mist_search_choice *stages; /* [MIST_MAX_STAGES] of the plan being drawn */
    int32_t i_case;
    struct mist_search_choice *taken; /* [n_plans][MIST_MAX_STAGES] of all plans */
    int32_t *taken_case;
    size_t n_taken;
};

static int32_t draw(struct sampler *at, int32_t low, int32_t high)
{
    return low + (int32_t)mist_random_below(&at->random, high - low + 1);
}

/* The n-th number of stages that some case has, 0, 1, ... round and round. */
static int32_t pick_n_stages(const struct mist_space *space, size_t n)
{
    int32_t most = 0, n_different = 0;

    for (int32_t i = 0; i < space->n_cases; i++)
        most = space->cases[i].n_stages > most ? space->cases[i].n_stages : most;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t s = 1, k = 0; s <= most; s++) {
            bool has = false;
            for (int32_t i = 0; i < space->n_cases && !has; i++)
                has = space->cases[i].n_stages == s;
            if (has && pass == 1 && k == (int32_t)(n % (size_t)n_different))
                return s;
            k += has;
            n_different = pass == 0 ? k : n_different;
        }
    return most;
}

static int32_t pick_case(struct sampler *at, int32_t n_stages)
{
    const struct mist_space *space = at->config->space;
    int32_t n = 0, i = 0;

    for (int32_t k = 0; k < space->n_cases; k++)
        n += space->cases[k].n_stages == n_stages;
    int32_t skipped = draw(at, 0, n - 1);
    for (; space->cases[i].n_stages != n_stages || skipped > 0; i++)
        skipped -= space->cases[i].n_stages == n_stages;
    return i;
}

/* Layers and dp of all stages; false: this draw does not use up layers and ranks. */
static bool draw_split(struct sampler *at, const struct mist_space_case *of)
{
    const struct mist_space *space = at->config->space;
    int32_t layers = space->model.n_layers, ranks = space->n_ranks;
    bool is_even = ranks % of->n_stages == 0 && draw(at, 0, 1) == 0;

    for (int32_t i = 0; i < of->n_stages; i++) {
        int32_t left = of->n_stages - i - 1;
        int32_t high = layers - left * of->layers_min;
        int32_t even = space->model.n_layers / of->n_stages;
        int32_t dp = of->dps[draw(at, 0, of->n_dps - 1)];
        /* up to twice the even share, so that the last stages get something, too */
        high = high > 2 * even ? 2 * even : high;
        high = high > of->layers_max ? of->layers_max : high;
        if (high < of->layers_min)
            return false;
        for (int32_t k = 0; k < of->n_dps && is_even; k++)
            if (of->dps[k] * of->n_stages == space->n_ranks)
                dp = of->dps[k];
        at->stages[i].n_layers = left == 0 ? layers : draw(at, of->layers_min, high);
        at->stages[i].dp = dp;
        at->stages[i].micro_batch = of->samples / dp;
        layers -= at->stages[i].n_layers;
        ranks -= dp;
    }
    int32_t last = at->stages[of->n_stages - 1].n_layers;
    return layers == 0 && ranks == 0 && last >= of->layers_min && last <= of->layers_max;
}

static void draw_knobs(struct sampler *at, int32_t n_stages)
{
    const struct mist_space *space = at->config->space;
    int32_t mode = draw(at, 0, 2);

    for (int32_t i = 0; i < n_stages; i++) {
        struct mist_search_choice *stage = &at->stages[i];
        int32_t most = mist_space_n_checkpointed(space, stage->n_layers) - 1;
        stage->n_checkpointed = mode == 0 ? 0 : mode == 1 ? most : draw(at, 0, most);
        stage->zero = draw(at, 0, mist_space_n_zero(space, stage->dp) - 1);
    }
}

static bool is_taken(const struct sampler *at, int32_t n_stages)
{
    for (size_t k = 0; k < at->n_taken; k++) {
        const struct mist_search_choice *other = at->taken + k * MIST_MAX_STAGES;
        int32_t i = 0;
        if (at->taken_case[k] != at->i_case)
            continue;
        while (i < n_stages && other[i].n_layers == at->stages[i].n_layers &&
               other[i].dp == at->stages[i].dp &&
               other[i].n_checkpointed == at->stages[i].n_checkpointed &&
               other[i].zero == at->stages[i].zero)
            i++;
        if (i == n_stages)
            return true;
    }
    return false;
}

/* t, d and bytes of each stage, one block of one configuration each. */
static enum mist_status price_stages(struct sampler *at, const struct mist_space_case *of,
                                     struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < of->n_stages && status == MIST_OK; i++) {
        struct mist_search_choice *stage = &at->stages[i];
        struct mist_search_kind kind = {
            .role = mist_search_stage_role(of->n_stages, i),
            .in_flight = mist_pipeline_in_flight(of->n_stages, i, of->n_micro_batches),
            .n_micro_batches = of->n_micro_batches,
            .micro_batch = stage->micro_batch,
            .dp = stage->dp,
        };
        struct mist_search_block block = {
            .n = 1,
            .n_layers = &stage->n_layers,
            .n_checkpointed = &stage->n_checkpointed,
            .zero = &stage->zero,
            .t_s = &stage->t_s,
            .d_s = &stage->d_s,
            .peak_bytes = &stage->peak_bytes,
        };
        status = at->price(at->price_context, &kind, &block, err);
    }
    return status;
}

/* Draws once; *out has a plan afterwards if it was taken. */
static enum mist_status try_once(struct sampler *at, size_t n, struct mist_validated *out,
                                 struct mist_err *err)
{
    const struct mist_space *space = at->config->space;

    at->i_case = pick_case(at, pick_n_stages(space, n));
    const struct mist_space_case *of = &space->cases[at->i_case];
    if (!draw_split(at, of))
        return MIST_OK;
    draw_knobs(at, of->n_stages);
    if (is_taken(at, of->n_stages))
        return MIST_OK;
    enum mist_status status = price_stages(at, of, err);
    if (status != MIST_OK)
        return status;
    struct mist_search_candidate candidate = {
        .time_s = mist_search_time_s(of->n_micro_batches, of->n_stages, at->stages),
        .i_case = at->i_case,
        .n_stages = of->n_stages,
        .stages = at->stages,
    };
    struct mist_validated plan = {.closed_s = candidate.time_s, .i_looked = at->n_taken};
    plan.plan = malloc(sizeof *plan.plan);
    if (!plan.plan)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    mist_validate_make_plan(at->config, &candidate, plan.plan);
    status = mist_validate_plan(at->config, NULL, &plan, err);
    if (status != MIST_OK || !plan.holds) {
        free(plan.plan);
        return status;
    }
    memcpy(at->taken + at->n_taken * MIST_MAX_STAGES, at->stages,
           (size_t)of->n_stages * sizeof *at->stages);
    at->taken_case[at->n_taken++] = at->i_case;
    *out = plan;
    return MIST_OK;
}

enum mist_status mist_sample_plans(const struct mist_validate_config *config,
                                   mist_search_price *price, void *price_context,
                                   uint64_t seed, size_t n_plans,
                                   struct mist_validated *out, size_t *n_out,
                                   struct mist_err *err)
{
    struct sampler at = {
        .config = config,
        .price = price,
        .price_context = price_context,
        .stages = calloc(MIST_MAX_STAGES, sizeof *at.stages),
        .taken = calloc(n_plans * MIST_MAX_STAGES + 1, sizeof *at.taken),
        .taken_case = calloc(n_plans + 1, sizeof *at.taken_case),
    };
    enum mist_status status = MIST_OK;

    *n_out = 0;
    mist_random_init(&at.random, seed);
    if (!at.stages || !at.taken || !at.taken_case)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < DRAWS_PER_PLAN * n_plans && config->space->n_cases > 0 &&
                       at.n_taken < n_plans && status == MIST_OK;
         i++) {
        /* the number of stages moves on with every draw, as some may have no plan */
        status = try_once(&at, i, &out[at.n_taken], err);
    }
    *n_out = at.n_taken;
    if (status != MIST_OK) {
        for (size_t i = 0; i < at.n_taken; i++)
            free(out[i].plan);
        *n_out = 0;
    }
    free(at.stages);
    free(at.taken);
    free(at.taken_case);
    return status;
}
