/*
 * Searches under random side constraints against brute force: every plan of tiny spaces is
 * tried, and what a constraint says of it is worked out from what was drawn, not from its
 * text. Prices are drawn on a grid of 1/1024 s, so that times can be compared to the digit.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tests/unit/pick.h"
#include "tune/search.h"

#include <math.h>

enum {
    N_PROBLEMS = 1000,
    MAX_LAYERS = 4,
    SEQ_LEN = 8,
    N_DRAWN = 2,
    MAX_TERMS = 3,
    N_NAMES = 7,
    STAGE_NAME = 2 /* from here on of a stage */
};

static const char *const names[N_NAMES] = {
    "stages", "micro-batches", "layers", "devices", "dp", "tp", "micro-batch"};
static const char *const signs[] = {"<=", ">=", "="};

struct term {
    int coefficient, name, scope, i_stage;
};

struct drawn {
    struct term terms[MAX_TERMS];
    int n_terms, sign, bound;
    char text[160];
};

struct stage {
    int layers, dp, tp;
};

struct problem {
    uint64_t seed;
    struct mist_model model;
    int n_ranks, global_batch;
    int64_t limit_bytes;
    struct drawn drawn[N_DRAWN];
    int n_drawn;
    int memory_stage, memory_bytes; /* a limit of that stage's; 0: none */
    char memory_text[40];
    /* brute force */
    int g, n_stages;
    struct stage stages[MAX_LAYERS];
    double t_s[MAX_LAYERS], d_s[MAX_LAYERS];
    bool over[MAX_LAYERS]; /* the limit of the stage's memory */
    double best_s, free_s; /* with and without the constraints; INFINITY: no plan */
};

static struct mist_err err;

/* ----------------------------------------------------------------------------- prices */

static uint64_t index_of(const struct mist_search_kind *kind, int layers,
                         int checkpointed, int zero)
{
    uint64_t index = (uint64_t)kind->role;

    index = index * 64 + (uint64_t)kind->n_micro_batches;
    index = index * 64 + (uint64_t)kind->micro_batch;
    index = index * 16 + (uint64_t)kind->shape.dp;
    index = index * 16 + (uint64_t)kind->shape.tp;
    index = index * 2 + kind->shape.is_sequence_parallel;
    index = index * 16 + (uint64_t)layers;
    index = index * 16 + (uint64_t)checkpointed;
    return index * 4 + (uint64_t)zero;
}

/* Memory: the most that is drawn for no more layers of either sort. */
static void price_one(uint64_t seed, const struct mist_search_kind *kind, int layers,
                      int checkpointed, int zero, double *t_s, double *d_s, double *bytes)
{
    uint64_t index = index_of(kind, layers, checkpointed, zero);
    double work = layers * kind->micro_batch + 1.0, most = 0;

    *t_s = floor(1024 * work * mist_random_uniform_at(seed, 1, index)) / 1024;
    *d_s = floor(2048 * work * mist_random_uniform_at(seed, 2, index)) / 1024 - work / 4;
    for (int c = 0; c <= checkpointed; c++)
        for (int open = 0; open <= layers - checkpointed; open++) {
            index = index_of(kind, c + open, c, zero) * 8 + (uint64_t)kind->in_flight;
            most = fmax(most, mist_random_uniform_at(seed, 3, index));
        }
    *bytes = floor(1000 * most);
}

static enum mist_status price(void *context, const struct mist_search_kind *kind,
                              const struct mist_search_columns *block,
                              struct mist_err *unused)
{
    for (size_t i = 0; i < block->n; i++) {
        price_one(*(const uint64_t *)context, kind, (int)block->n_layers[i],
                  (int)block->n_checkpointed[i], (int)block->zero[i], &block->t_s[i],
                  &block->d_s[i], &block->peak_bytes[i]);
        block->host_bytes[i] = 0;
    }
    return MIST_OK;
}

/* ------------------------------------------------------------------------ constraints */

static void draw_term(struct mist_random *random, struct term *term)
{
    static const int coefficients[] = {1, 1, 1, 2, 3, -1, -2};

    term->coefficient = coefficients[pick(random, 0, 6)];
    term->name = pick(random, 0, N_NAMES - 1);
    term->scope = term->name < STAGE_NAME ? 0 : pick(random, 0, 2);
    term->i_stage = pick(random, -3, 2);
}

/* "2 * layers[0] - tp <= 3": the first terms on the left, the others, if that was drawn, on
 * the right with the bound. */
static void draw_constraint(struct mist_random *random, struct drawn *out)
{
    bool is_left = true;
    size_t n = 0;

    out->n_terms = pick(random, 1, MAX_TERMS);
    out->sign = pick(random, 0, 5) == 0 ? 2 : pick(random, 0, 1);
    out->bound = pick(random, -2, 8);
    for (int i = 0; i < out->n_terms; i++) {
        struct term *term = &out->terms[i];
        char name[40];
        draw_term(random, term);
        if (i > 0 && is_left && pick(random, 0, 2) == 0) {
            n += (size_t)sprintf(out->text + n, " %s ", signs[out->sign]);
            is_left = false;
        }
        int shown = is_left ? term->coefficient : -term->coefficient;
        if (term->scope == 1)
            snprintf(name, sizeof name, "%s[%d]", names[term->name], term->i_stage);
        else
            snprintf(name, sizeof name, "%s%s%s", term->scope == 2 ? "sum(" : "",
                     names[term->name], term->scope == 2 ? ")" : "");
        n += (size_t)sprintf(out->text + n, "%s%d * %s",
                             shown < 0                                  ? "- "
                             : n > 0 && strchr("<>=", out->text[n - 2]) ? ""
                             : n > 0                                    ? " + "
                                                                        : "",
                             abs(shown), name);
    }
    if (is_left)
        sprintf(out->text + n, " %s%s%d", signs[out->sign], out->bound < 0 ? " -" : " ",
                abs(out->bound));
    else
        sprintf(out->text + n, " %c %d", out->bound < 0 ? '-' : '+', abs(out->bound));
}

static int value_of(const struct problem *at, const struct term *term, int i)
{
    const struct stage *stage = &at->stages[i];

    switch (term->name) {
    case 0:
        return at->n_stages;
    case 1:
        return at->g;
    case 2:
        return stage->layers;
    case 3:
        return stage->dp * stage->tp;
    case 4:
        return stage->dp;
    case 5:
        return stage->tp;
    default:
        return at->global_batch / at->g / stage->dp;
    }
}

/* The left side less the bound, where terms of every stage mean stage i. */
static bool holds_for(const struct problem *at, const struct drawn *of, int i)
{
    int sum = 0;

    for (int k = 0; k < of->n_terms; k++) {
        const struct term *term = &of->terms[k];
        int one = term->i_stage < 0 ? at->n_stages + term->i_stage : term->i_stage;
        if (term->scope == 0)
            sum += term->coefficient * value_of(at, term, i);
        for (int s = 0; s < at->n_stages && term->scope > 0; s++)
            if (term->scope == 2 || s == one)
                sum += term->coefficient * value_of(at, term, s);
    }
    return of->sign == 0   ? sum <= of->bound
           : of->sign == 1 ? sum >= of->bound
                           : sum == of->bound;
}

static int memory_stage_of(const struct problem *at)
{
    return at->memory_stage + (at->memory_stage < 0 ? at->n_stages : 0);
}

static bool holds(const struct problem *at)
{
    for (int i = 0; i < at->n_stages; i++)
        if (at->over[i])
            return false;
    for (int k = 0; k < at->n_drawn; k++)
        for (int i = 0; i < at->n_stages; i++)
            if (!holds_for(at, &at->drawn[k], i))
                return false;
    return true;
}

/* ------------------------------------------------------------------------ brute force */

static void finish_plan(struct problem *at)
{
    double most = 0, sum = 0, late = 0;

    for (int i = 0; i < at->n_stages; i++) {
        most = fmax(most, at->t_s[i]);
        late = fmax(late, at->d_s[i] - sum);
        sum += at->t_s[i];
    }
    double time_s = (at->g - 1) * most + sum + late;
    at->free_s = fmin(at->free_s, time_s);
    if (holds(at))
        at->best_s = fmin(at->best_s, time_s);
}

static void try_stage(struct problem *at, int i, int layers, int ranks);

static void try_shape(struct problem *at, int i, int layers, int ranks, int l, int dp,
                      int tp, int sequence)
{
    int samples = at->global_batch / at->g, left = at->n_stages - i;
    struct mist_search_kind kind = {
        .role = at->n_stages == 1 ? MIST_SEARCH_ONLY
                : i == 0          ? MIST_SEARCH_FIRST
                : left == 1       ? MIST_SEARCH_LAST
                                  : MIST_SEARCH_MIDDLE,
        .in_flight = left < at->g ? left : at->g,
        .n_micro_batches = at->g,
        .micro_batch = samples / dp,
        .shape = {dp, tp, sequence == 1, 0},
    };

    at->stages[i] = (struct stage){l, dp, tp};
    for (int c = 0; c <= l; c++)
        for (int z = 0; z <= (dp > 1 ? 3 : 0); z++) {
            double bytes;
            bool is_limited = at->memory_bytes > 0 && i == memory_stage_of(at);
            price_one(at->seed, &kind, l, c, z, &at->t_s[i], &at->d_s[i], &bytes);
            at->over[i] = is_limited && bytes > at->memory_bytes;
            if (bytes <= (double)at->limit_bytes)
                try_stage(at, i + 1, layers - l, ranks - dp * tp);
        }
}

static void try_stage(struct problem *at, int i, int layers, int ranks)
{
    int samples = at->global_batch / at->g;

    if (i == at->n_stages) {
        if (layers == 0 && ranks == 0)
            finish_plan(at);
        return;
    }
    for (int l = 1; l <= layers; l++)
        for (int tp = 1; tp <= 2; tp++)
            for (int dp = 1; dp * tp <= ranks; dp++)
                for (int sequence = 0; sequence < tp && samples % dp == 0; sequence++)
                    if (!sequence || samples / dp * SEQ_LEN % tp == 0)
                        try_shape(at, i, layers, ranks, l, dp, tp, sequence);
}

static void try_all(struct problem *at)
{
    at->best_s = at->free_s = INFINITY;
    for (at->g = 1; at->g <= at->global_batch; at->g++)
        for (at->n_stages = 1; at->n_stages <= at->model.n_layers; at->n_stages++)
            if (at->global_batch % at->g == 0)
                try_stage(at, 0, at->model.n_layers, at->n_ranks);
}

/* ----------------------------------------------------------------------------- compare */

static void init(struct problem *at, struct mist_random *random, uint64_t seed)
{
    *at = (struct problem){
        .seed = seed,
        .model = {.name = "tiny",
                  .n_layers = pick(random, 2, MAX_LAYERS),
                  .hidden = 8,
                  .n_heads = 2,
                  .n_kv_heads = 2,
                  .ffn = 6},
        .n_ranks = pick(random, 1, 4),
        .global_batch = pick(random, 1, 4),
        .limit_bytes = pick(random, 0, 2) ? INT64_MAX : pick(random, 200, 900),
        .n_drawn = pick(random, 1, N_DRAWN),
    };
    for (int k = 0; k < at->n_drawn; k++)
        draw_constraint(random, &at->drawn[k]);
    at->memory_stage = pick(random, -2, 1);
    at->memory_bytes = pick(random, 0, 2) ? 0 : pick(random, 200, 900);
    sprintf(at->memory_text, "memory[%d] <= %d B", at->memory_stage, at->memory_bytes);
}

/* *n_glpk: cases that GLPK was asked, too. */
static void search(struct problem *at, double slack_frac, struct mist_thread_pool *pool,
                   enum mist_search_solver solver, int *n_glpk)
{
    static struct mist_constraints constraints;
    struct mist_job job = {.global_batch = at->global_batch, .seq_len = SEQ_LEN};
    unsigned groups =
        MIST_SPACE_ALL & ~(1u << MIST_SPACE_OFFLOAD | 1u << MIST_SPACE_LEAN);
    struct mist_search_result result;
    struct mist_space space;

    constraints = (struct mist_constraints){0};
    for (int k = 0; k < at->n_drawn; k++)
        must(mist_constraints_add(&constraints, at->drawn[k].text, &err), &err);
    if (at->memory_bytes > 0)
        must(mist_constraints_add(&constraints, at->memory_text, &err), &err);
    must(mist_space_init(&space, &at->model, &job, at->n_ranks, 8, groups, NULL, &err),
         &err);
    struct mist_search_config config = {
        .limit_bytes = at->limit_bytes,
        .host_limit_bytes = INT64_MAX,
        .slack_frac = slack_frac,
        .n_best = 3,
        .constraints = &constraints,
        .solver = solver,
        .glpk_time_limit_s = 600,
        .price = price,
        .price_context = &at->seed,
        .pool = pool,
    };
    must(mist_search_run(&space, &config, &result, &err), &err);
    const char *texts[] = {at->drawn[0].text, at->n_drawn > 1 ? at->drawn[1].text : "",
                           at->memory_bytes > 0 ? at->memory_text : ""};
    if (isinf(at->best_s) != (result.n_candidates == 0))
        fail_msg("seed %" PRIu64 ", '%s' '%s' '%s': %zu candidates, brute force %g s",
                 at->seed, texts[0], texts[1], texts[2], result.n_candidates, at->best_s);
    for (size_t i = 0; i < result.n_candidates; i++) {
        const struct mist_search_candidate *of = &result.candidates[i];
        at->g = of->n_micro_batches;
        at->n_stages = of->n_stages;
        for (int s = 0; s < of->n_stages; s++) {
            at->stages[s] = (struct stage){of->stages[s].n_layers, of->stages[s].shape.dp,
                                           of->stages[s].shape.tp};
            at->over[s] = at->memory_bytes > 0 && s == memory_stage_of(at) &&
                          of->stages[s].peak_bytes > at->memory_bytes;
        }
        if (!holds(at))
            fail_msg("seed %" PRIu64
                     ", '%s' '%s' '%s': candidate %zu does not keep to them",
                     at->seed, texts[0], texts[1], texts[2], i);
    }
    if (result.n_candidates > 0 && result.candidates[0].time_s != at->best_s)
        fail_msg("seed %" PRIu64 ", '%s' '%s' '%s': %.17g s, brute force %.17g s",
                 at->seed, texts[0], texts[1], texts[2], result.candidates[0].time_s,
                 at->best_s);
    if (result.n_candidates > 0)
        assert_true(mist_search_gap_frac(&result) == 0); /* proven */
    assert_int_equal(result.glpk.n_optimal, result.glpk.n_cases);
    assert_int_equal(result.glpk.n_differ, 0);
    *n_glpk += result.glpk.n_cases;
    mist_search_result_fini(&result);
    mist_space_fini(&space);
}

TEST(test_brute_force)
{
    struct mist_thread_pool *pool = NULL;
    uint64_t seed = test_seed(20254);
    int n_solved = 0, n_none = 0, n_bind = 0, n_glpk = 0, n_run = 0;
    struct mist_random random;

    mist_random_init(&random, seed);
    must(mist_thread_pool_new(2, &pool, &err), &err);
    for (uint64_t i = 0; i < N_PROBLEMS; i++) {
        static struct problem at;
        init(&at, &random, seed + i);
        if (test_is_left_out())
            continue;
        n_run++;
        try_all(&at);
        double best_s = at.best_s, free_s = at.free_s;
        search(&at, 0, pool, MIST_SOLVER_BOTH, &n_glpk);
        search(&at, 0.25, pool, MIST_SOLVER_EXACT, &n_glpk);
        n_solved += isfinite(best_s);
        n_none += isfinite(free_s) && isinf(best_s);
        n_bind += isfinite(best_s) && best_s > free_s;
    }
    mist_thread_pool_free(pool);
    print_message("seed %" PRIu64 ": %d problems, %d with a plan, slower by constraints "
                  "in %d, without a plan by them %d; %d cases for GLPK\n",
                  seed, n_run, n_solved, n_bind, n_none, n_glpk);
    if (n_run == N_PROBLEMS)
        assert_true(n_solved > 300 && n_bind > 60 && n_none > 100 && n_glpk > 2000);
}

TEST_MAIN(NULL, NULL)
