/* Draws plans. See sample_plans.h. */
#include "tune/sample_plans.h"

#include "core/random.h"
#include "sim/plan/plan_fields.h"

#include <stdlib.h>
#include <string.h>

enum { DRAWS_PER_PLAN = 100, DRAWS_PER_THEME = 25 };

/* What a plan is drawn for; MIST_OFFLOAD_WEIGHTS .. follow OFFLOAD, the pipeline schedules
 * but the first follow PIPELINE. */
enum theme {
    THEME_PLAIN,
    THEME_CHECKPOINTING,
    THEME_ZERO_1,
    THEME_ZERO_2,
    THEME_ZERO_3,
    THEME_OFFLOAD,
    THEME_OFFLOAD_ALL = THEME_OFFLOAD + MIST_N_OFFLOADS,
    THEME_TENSOR,
    THEME_SEQUENCE,
    THEME_PIPELINE,
    THEME_ANY = THEME_PIPELINE + MIST_N_PIPELINES - 1,
    N_THEMES
};

struct sampler {
    const struct mist_validate_config *config;
    struct mist_random random;
    enum theme theme;
    bool draws_all;                     /* the knobs that the theme leaves open, too */
    struct mist_search_choice *stages;  /* [MIST_MAX_STAGES] of the plan being drawn */
    const struct mist_validated *taken; /* [n_taken] */
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

/* A shape for a stage, of the first stage's number of devices (is_even) or of any. */
static struct mist_space_shape draw_shape(struct sampler *at,
                                          const struct mist_space_case *of,
                                          int32_t i_stage, bool is_even)
{
    int32_t even = at->config->space->n_ranks / of->n_stages, n = 0, i = 0;

    for (int32_t k = 0; k < of->n_shapes; k++)
        n += mist_space_allows(of, i_stage, k) &&
             (!is_even || mist_space_n_devices(&of->shapes[k]) == even);
    if (n == 0)
        return (struct mist_space_shape){0};
    int32_t skipped = draw(at, 0, n - 1);
    for (;; i++)
        if (mist_space_allows(of, i_stage, i) &&
            (!is_even || mist_space_n_devices(&of->shapes[i]) == even) && skipped-- == 0)
            return of->shapes[i];
}

/* Layers and shapes of all stages; false: this draw does not use up layers and ranks. */
static bool draw_split(struct sampler *at, const struct mist_space_case *of)
{
    const struct mist_space *space = at->config->space;
    int32_t layers = space->model.n_layers, ranks = space->n_ranks;
    bool is_even = ranks % of->n_stages == 0 && draw(at, 0, 1) == 0;
    bool has_even_layers = layers % of->n_stages == 0 && draw(at, 0, 1) == 0;

    for (int32_t i = 0; i < of->n_stages; i++) {
        int32_t left = of->n_stages - i - 1;
        int32_t high = layers - left * of->layers_min;
        int32_t even = space->model.n_layers / of->n_stages;
        struct mist_space_shape shape = draw_shape(at, of, i, is_even);
        /* up to twice the even share, so that the last stages get something, too */
        high = high > 2 * even ? 2 * even : high;
        high = high > of->layers_max ? of->layers_max : high;
        if (high < of->layers_min || shape.dp == 0)
            return false;
        at->stages[i] = (struct mist_search_choice){
            .n_layers = has_even_layers ? even
                        : left == 0     ? layers
                                        : draw(at, of->layers_min, high),
            .shape = shape,
            .micro_batch = of->samples / shape.dp,
        };
        layers -= at->stages[i].n_layers;
        ranks -= mist_space_n_devices(&shape);
    }
    int32_t last = at->stages[of->n_stages - 1].n_layers;
    return layers == 0 && ranks == 0 && last >= of->layers_min && last <= of->layers_max;
}

/* A ratio that is not 0. */
static int8_t draw_ratio(struct sampler *at)
{
    int32_t step = at->config->space->ratio_step;

    return (int8_t)(step * draw(at, 1, MIST_RATIO_ONE / step));
}

/* The knobs of one stage, where they are open. */
static void draw_open(struct sampler *at, struct mist_search_choice *stage, int mode)
{
    const struct mist_space *space = at->config->space;
    int32_t most = mist_space_n_checkpointed(space, stage->n_layers) - 1;

    stage->knobs.n_checkpointed = mode == 0 ? 0 : mode == 1 ? most : draw(at, 0, most);
    int32_t n_open = stage->n_layers - stage->knobs.n_checkpointed;
    stage->knobs.n_lean = draw(at, 0, mist_space_n_lean(space, n_open) - 1) * n_open;
    stage->knobs.zero = draw(at, 0, mist_space_n_zero(space, &stage->shape) - 1);
    for (int k = 0; k < MIST_N_OFFLOADS && mist_space_offloads(space); k++)
        if (draw(at, 0, 3) == 0)
            stage->knobs.offload[k] = draw_ratio(at);
    if (space->allows_host_updates && stage->knobs.offload[MIST_OFFLOAD_OPTIMIZER] > 0)
        stage->knobs.updates_on_host = draw(at, 0, 1);
}

/* What the theme is about; false: no stage can have it. */
static bool draw_themed(struct sampler *at, int32_t n_stages)
{
    const struct mist_space *space = at->config->space;
    bool has = false;

    for (int32_t i = 0; i < n_stages; i++) {
        struct mist_search_choice *stage = &at->stages[i];
        int32_t zero = (int32_t)at->theme - THEME_ZERO_1 + 1;
        if (at->theme == THEME_CHECKPOINTING) {
            stage->knobs.n_checkpointed =
                draw(at, 1, mist_space_n_checkpointed(space, stage->n_layers) - 1);
            stage->knobs.n_lean = 0;
        } else if (at->theme <= THEME_ZERO_3 && at->theme >= THEME_ZERO_1 &&
                   zero < mist_space_n_zero(space, &stage->shape))
            stage->knobs.zero = zero;
        else if (at->theme >= THEME_OFFLOAD && at->theme < THEME_OFFLOAD_ALL)
            stage->knobs.offload[at->theme - THEME_OFFLOAD] = draw_ratio(at);
        else if (at->theme == THEME_OFFLOAD_ALL)
            for (int k = 0; k < MIST_N_OFFLOADS; k++)
                stage->knobs.offload[k] = draw_ratio(at);
        has = has ||
              (at->theme != THEME_TENSOR && at->theme != THEME_SEQUENCE &&
               (at->theme < THEME_ZERO_1 || at->theme > THEME_ZERO_3)) ||
              (at->theme == THEME_TENSOR && stage->shape.tp > 1 &&
               !stage->shape.is_sequence_parallel) ||
              (at->theme == THEME_SEQUENCE && stage->shape.is_sequence_parallel) ||
              (at->theme >= THEME_ZERO_1 && at->theme <= THEME_ZERO_3 &&
               stage->knobs.zero == zero);
    }
    return has;
}

/* Themes of a group of knobs that the space lacks are passed over. */
static bool has_theme(const struct mist_space *space, enum theme theme)
{
    if (theme == THEME_CHECKPOINTING)
        return mist_space_has(space, MIST_SPACE_CKPT);
    if (theme >= THEME_ZERO_1 && theme <= THEME_ZERO_3)
        return mist_space_has(space, MIST_SPACE_ZERO);
    if (theme >= THEME_OFFLOAD && theme <= THEME_OFFLOAD_ALL)
        return mist_space_has(space, MIST_SPACE_OFFLOAD);
    if (theme >= THEME_PIPELINE && theme < THEME_ANY)
        return mist_space_has(space, MIST_SPACE_SCHEDULE);
    return theme != THEME_SEQUENCE || mist_space_has(space, MIST_SPACE_SEQUENCE);
}

/* Another pipeline schedule where theme or chance want one; false: the theme's
 * can't be. */
static bool draw_pipeline(struct sampler *at, struct mist_plan *plan)
{
    bool is_themed = at->theme >= THEME_PIPELINE && at->theme < THEME_ANY;
    bool is_open = mist_space_has(at->config->space, MIST_SPACE_SCHEDULE) &&
                   at->draws_all && plan->n_stages > 1 && draw(at, 0, 1) == 0;
    int32_t i = is_themed ? (int32_t)at->theme - THEME_PIPELINE + 1 : 0;

    if (!is_themed && is_open)
        i = draw(at, 1, MIST_N_PIPELINES - 1);
    return i == 0 ||
           mist_validate_set_pipeline(plan, (enum mist_pipeline_schedule)i,
                                      draw(at, 2, 4)) ||
           !is_themed;
}

static bool is_taken(const struct sampler *at, const struct mist_plan *plan)
{
    for (size_t k = 0; k < at->n_taken; k++)
        if (mist_plan_is_same(at->taken[k].plan, plan))
            return true;
    return false;
}

/* A plan of the theme; false: not this time. n: draws so far. */
static bool draw_plan(struct sampler *at, size_t n, struct mist_plan *plan)
{
    const struct mist_space *space = at->config->space;

    const struct mist_space_case *of =
        &space->cases[pick_case(at, pick_n_stages(space, n))];
    at->draws_all =
        at->theme == THEME_ANY || (at->theme != THEME_PLAIN && draw(at, 0, 2) == 0);
    if (!draw_split(at, of))
        return false;
    int mode = draw(at, 0, 2);
    for (int32_t i = 0; i < of->n_stages && at->draws_all; i++)
        draw_open(at, &at->stages[i], mode);
    if (!draw_themed(at, of->n_stages))
        return false;
    struct mist_search_candidate candidate = {.n_micro_batches = of->n_micro_batches,
                                              .n_stages = of->n_stages,
                                              .stages = at->stages};
    mist_validate_make_plan(at->config, &candidate, plan);
    return draw_pipeline(at, plan) && !is_taken(at, plan);
}

/* Draws once; *out has a plan afterwards if it was taken. */
static enum mist_status try_once(struct sampler *at, size_t n, struct mist_validated *out,
                                 struct mist_err *err)
{
    struct mist_validated plan = {.plan = malloc(sizeof *plan.plan),
                                  .i_looked = at->n_taken};
    enum mist_status status = MIST_OK;

    if (!plan.plan)
        return mist_err_memory(err, NULL);
    if (draw_plan(at, n, plan.plan))
        status = mist_validate_plan(at->config, NULL, &plan, err);
    if (status != MIST_OK || !plan.holds) {
        free(plan.plan);
        return status;
    }
    *out = plan;
    at->n_taken++;
    return MIST_OK;
}

enum mist_status mist_sample_plans(const struct mist_validate_config *config,
                                   uint64_t seed, size_t n_plans,
                                   struct mist_validated *out, size_t *n_out,
                                   struct mist_err *err)
{
    struct sampler at = {
        .config = config,
        .stages = calloc(MIST_MAX_STAGES, sizeof *at.stages),
        .taken = out,
    };
    enum mist_status status = MIST_OK;
    size_t tried = 0; /* with this theme */

    *n_out = 0;
    mist_random_init(&at.random, seed);
    if (!at.stages)
        status = mist_err_memory(err, NULL);
    for (size_t i = 0; i < DRAWS_PER_PLAN * n_plans && config->space->n_cases > 0 &&
                       at.n_taken < n_plans && status == MIST_OK;
         i++) {
        /* the number of stages moves on with every draw, as some may have no plan */
        size_t n = at.n_taken;
        if (has_theme(config->space, at.theme))
            status = try_once(&at, i, &out[at.n_taken], err);
        else
            tried = DRAWS_PER_THEME;
        if (at.n_taken > n || ++tried > DRAWS_PER_THEME) {
            at.theme = (enum theme)((at.theme + 1) % N_THEMES);
            tried = 0;
        }
    }
    *n_out = at.n_taken;
    if (status != MIST_OK) {
        for (size_t i = 0; i < at.n_taken; i++)
            free(out[i].plan);
        *n_out = 0;
    }
    free(at.stages);
    return status;
}
