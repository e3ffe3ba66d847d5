/*
 * More freedom is never slower: of random small problems, the time by replay of the plan
 * that mist-tune would choose, over all pairs of nested spaces and over rising limits of
 * memory. Every space differs from the next smaller ones by one group of knobs, so pairs
 * of neighbours stand for all. And of tiny problems it is the best of all plans. What is
 * chosen of them has ratios in eighths only where these gain more than 1 %. Where nothing
 * fits, the memory that is said to be needed is enough.
 *
 * MIST_PROBLEMS=300 for more; a problem is named by its seed. Under MIST_BRIEF one in so
 * many, and the first few groups of knobs alone.
 */
#include "tests/unit/test.h"

#include "core/parse.h"
#include "core/random.h"
#include "tests/prop/made_up_machines.h"
#include "tests/unit/pick.h"
#include "tests/unit/tiny_models.h"
#include "tune/alike.h"
#include "tune/plan_label.h"
#include "tune/stage_price.h"
#include "tune/validate.h"

#include <math.h>

enum {
    SEED = 4711,
    /* problems where the closed form takes a plan a third too short, or takes the memory of
       the best too large; where one plan alone fits, which needs nearly all of the memory;
       and where the fastest does and others are a fifth slower */
    TOO_SHORT = 4805,
    TOO_LARGE = 9182,
    TRADED = 9173, /* a layer for a ratio: each alone is slower or too large */
    BESIDE = 4881, /* the best is in no search, but beside a plan that is */
    AT_LIMIT = 4894,
    NEAR_LIMIT = 4792,
    ONE_OFFLOADS =
        6164, /* with little memory in the host: two stages, of which one offloads */
    N_SPECIAL = 7,
    N_PROBLEMS = 2,
    N_SPACES = 1 << MIST_N_SPACE_GROUPS,
    N_LIMITS = 16,
    MAX_STAGES = 4
};

/* One question but for the space and the limit. */
struct problem {
    uint64_t seed;
    struct mist_trace_set traces;
    struct mist_cost_model *cost_model;
    struct mist_model model;
    struct mist_job job;
    struct mist_thread_pool *pool;
    struct mist_stage_price *price; /* NULL: not asked for yet */
    struct mist_space space;        /* what it borrows */
    int32_t n_ranks;
    bool allows_host_updates;
    int64_t host_limit_bytes; /* of a node; 0: none */
    int32_t ratio_step;       /* of offloading */
};

static struct mist_err err;

static void init(struct problem *at, uint64_t seed)
{
    struct mist_random random;
    struct machine machine;

    mist_random_init(&random, seed);
    machine = machines[pick(&random, 0, N_MACHINES - 1)];
    machine.us_per_byte *= pow(4, pick(&random, -1, 1));
    *at = (struct problem){
        .seed = seed,
        .model =
            mist_tiny_model(pick(&random, 0, 1) ? MIST_FAMILY_GPT : MIST_FAMILY_LLAMA,
                            pick(&random, 2, 4)),
        .job = {.global_batch = 2 * pick(&random, 1, 4),
                .seq_len = 32 * pick(&random, 1, 3)},
        .n_ranks = pick(&random, 2, 4),
        .allows_host_updates = pick(&random, 0, 1),
        .ratio_step = 1,
    };
    at->model.hidden = 24 * (1 << pick(&random, 0, 4));
    at->model.head_dim = at->model.hidden / at->model.n_heads;
    at->model.ffn = 4 * at->model.hidden;
    at->model.ties_embeddings = pick(&random, 0, 1);
    make_machine(&at->traces, &machine);
    at->traces.cluster.devices_per_node = 4;
    must(mist_cost_model_new(&at->traces, &at->cost_model, &err), &err);
    must(mist_thread_pool_new(1, &at->pool, &err), &err);
}

/* The prices of all spaces and limits: those of a space depend on its job alone. */
static struct mist_stage_price *find_prices(struct problem *at)
{
    if (at->price)
        return at->price;
    must(mist_space_init(&at->space, &at->model, &at->job, at->n_ranks, 4, MIST_SPACE_ALL,
                         NULL, &err),
         &err);
    must(mist_stage_price_new(at->cost_model, &at->space, 1, &at->price, &err), &err);
    return at->price;
}

static void fini(struct problem *at)
{
    mist_stage_price_free(at->price);
    mist_space_fini(&at->space);
    mist_thread_pool_free(at->pool);
    mist_cost_model_free(at->cost_model);
    mist_trace_set_fini(&at->traces);
}

static struct mist_validate_config
make_config(const struct problem *at, const struct mist_space *space, int64_t limit_bytes)
{
    return (struct mist_validate_config){
        .space = space,
        .cost_model = at->cost_model,
        .limit_bytes = limit_bytes,
        .host_limit_bytes = at->host_limit_bytes > 0 ? at->host_limit_bytes : INT64_MAX,
        .threads = 1,
        .n_best = 16,
    };
}

/* What a search finds; n_plans 0: nothing fits. */
static struct mist_validate_result search(struct problem *at, unsigned groups,
                                          int64_t limit_bytes)
{
    struct mist_space space;
    struct mist_stage_price *price = find_prices(at);
    struct mist_validate_result result = {0};

    must(
        mist_space_init(&space, &at->model, &at->job, at->n_ranks, 4, groups, NULL, &err),
        &err);
    space.allows_host_updates =
        at->allows_host_updates && mist_space_has(&space, MIST_SPACE_OFFLOAD);
    space.ratio_step = at->ratio_step;
    struct mist_validate_config config = make_config(at, &space, limit_bytes);
    config.price = price;
    struct mist_search_config how = {
        .host_limit_bytes =
            at->host_limit_bytes > 0 ? at->host_limit_bytes / at->n_ranks : INT64_MAX,
        .slack_frac = MIST_VALIDATE_SLACK_FRAC,
        .n_best = 16,
        .price = mist_stage_price_block,
        .price_context = price,
        .pool = at->pool,
    };
    enum mist_status status = mist_validate_run(&config, &how, &result, &err);
    if (status != MIST_ERR_NO_PLAN)
        must(status, &err);
    mist_space_fini(&space);
    return result;
}

/* The time of the fastest plan, INFINITY when there is none; *arena_bytes of it. */
static double ask(struct problem *at, unsigned groups, int64_t limit_bytes,
                  int64_t *arena_bytes)
{
    struct mist_validate_result result = search(at, groups, limit_bytes);
    double time_s = INFINITY;

    if (result.n_plans > 0) {
        time_s = result.plans[0].plan->predicted.iteration_s;
        *arena_bytes = result.plans[0].planned_bytes;
    }
    mist_validate_result_fini(&result);
    return time_s;
}

static bool is_slower(double time_s, double than_s)
{
    return time_s > than_s && time_s > than_s * (1 + 1e-9);
}

static const char *name_groups(unsigned groups, char *text)
{
    text[0] = '\0';
    for (int i = 0; i < MIST_N_SPACE_GROUPS; i++)
        if (groups >> i & 1u) {
            strcat(text, i > 0 ? "," : "");
            strcat(text, mist_space_group_name((enum mist_space_group)i));
        }
    return text;
}

static uint64_t n_problems(void)
{
    const char *wanted = getenv("MIST_PROBLEMS");

    return wanted ? strtoull(wanted, NULL, 10) : N_PROBLEMS;
}

/* A limit of memory that binds: between a third and all of what the fastest plan needs. */
static int64_t draw_limit(struct problem *at)
{
    int64_t needed = 0;

    if (ask(at, MIST_SPACE_ALL, INT64_MAX, &needed) == INFINITY)
        return INT64_MAX; /* these layers and samples can't be spread over the ranks */
    return (int64_t)((double)needed *
                     (0.35 + 0.7 * mist_random_uniform_at(at->seed, 1, 1)));
}

/* A limit of the host's memory that binds: a part of what the fastest plan needs. */
static int64_t draw_host_limit(struct problem *at, int64_t limit_bytes)
{
    struct mist_validate_result result = search(at, MIST_SPACE_ALL, limit_bytes);
    int64_t needed = result.n_plans > 0 ? result.plans[0].host_bytes : 0;

    mist_validate_result_fini(&result);
    return needed * (int64_t)(3 + at->seed % 7) / 10;
}

/* Asks in all spaces, every second problem with little memory in the host, and returns how
 * many are slower than one with a group less. */
static int count_slower_spaces(struct problem *at, int *n_pairs)
{
    double times_s[N_SPACES];
    const unsigned n_spaces = getenv("MIST_BRIEF") ? N_SPACES / 16 : N_SPACES;
    int64_t limit = draw_limit(at), arena;
    char text[128];
    int n_slower = 0;

    if (at->seed % 2 == 0)
        at->host_limit_bytes = draw_host_limit(at, limit);
    for (unsigned groups = 1; groups < n_spaces; groups += 2) {
        times_s[groups] = ask(at, groups, limit, &arena);
        for (int i = 1; i < MIST_N_SPACE_GROUPS; i++) {
            unsigned fewer = groups & ~(1u << i);
            if (fewer == groups)
                continue;
            ++*n_pairs;
            if (!is_slower(times_s[groups], times_s[fewer]))
                continue;
            print_message("problem %llu: %s takes %.9g s, %.9g s without %s\n",
                          (unsigned long long)at->seed, name_groups(groups, text),
                          times_s[groups], times_s[fewer],
                          mist_space_group_name((enum mist_space_group)i));
            n_slower++;
        }
    }
    return n_slower;
}

TEST(test_spaces)
{
    uint64_t first = test_seed(SEED);
    int n_slower = 0, n_pairs = 0;

    for (uint64_t seed = first; seed < first + n_problems(); seed++) {
        struct problem problem;
        if (test_is_left_out())
            continue;
        init(&problem, seed);
        n_slower += count_slower_spaces(&problem, &n_pairs);
        fini(&problem);
    }
    print_message("%d pairs of spaces, %d slower with more freedom\n", n_pairs, n_slower);
    assert_int_equal(n_slower, 0);
}

/* Asks with rising limits, and returns how many answers are slower than one before. */
static int count_slower_limits(struct problem *at, unsigned groups)
{
    int64_t needed = 0, arena;
    double best_s = INFINITY;
    char text[128];
    int n_slower = 0;

    if (ask(at, groups, INT64_MAX, &needed) == INFINITY)
        return 0;
    for (int i = 0; i <= N_LIMITS; i++) {
        int64_t limit = needed / 4 + needed * i / N_LIMITS * 13 / 16;
        double time_s = ask(at, groups, limit, &arena);
        if (is_slower(time_s, best_s)) {
            print_message("problem %llu: %s with %lld bytes takes %.9g s, with less %.9g "
                          "s\n",
                          (unsigned long long)at->seed, name_groups(groups, text),
                          (long long)limit, time_s, best_s);
            n_slower++;
        }
        best_s = fmin(best_s, time_s);
    }
    return n_slower;
}

TEST(test_limits)
{
    uint64_t first = test_seed(SEED);
    int n_slower = 0;

    for (uint64_t seed = first; seed < first + 2 * n_problems(); seed++) {
        struct problem problem;
        if (test_is_left_out())
            continue;
        unsigned drawn = (unsigned)(mist_random_uniform_at(seed, 2, 1) * N_SPACES);
        init(&problem, seed);
        n_slower += count_slower_limits(&problem, MIST_SPACE_ALL);
        n_slower += count_slower_limits(&problem, drawn | 1u);
        fini(&problem);
    }
    print_message("%llu series of limits, %d answers slower than with less memory\n",
                  (unsigned long long)(4 * n_problems()), n_slower);
    assert_int_equal(n_slower, 0);
}

/* ---------------------------------------------------------------------------- eighths */

/* Of rising limits: a plan that is chosen has ratios in eighths only where a search without
 * them finds nothing as fast, but for half a percent: plans without that take 1 % longer are
 * chosen if they were looked at. */
TEST(test_eighths)
{
    uint64_t first = test_seed(SEED);
    int n_fine = 0, n_rounded = 0, n_vain = 0;

    for (uint64_t seed = first; seed < first + 2 * n_problems(); seed++) {
        struct problem at;
        int64_t needed = 0;
        if (test_is_left_out())
            continue;
        init(&at, seed);
        ask(&at, MIST_SPACE_ALL, INT64_MAX, &needed);
        for (int i = 0; i <= N_LIMITS; i++) {
            int64_t arena, limit = needed / 4 + needed * i / N_LIMITS * 13 / 16;
            at.ratio_step = 1;
            struct mist_validate_result of = search(&at, MIST_SPACE_ALL, limit);
            if (of.n_plans == 0)
                continue;
            double fastest_s = of.plans[0].plan->predicted.iteration_s;
            bool had_eighths = mist_alike_n_eighths(of.plans[0].plan) > 0;
            mist_alike_prefer(&at.traces, 0, of.plans, of.n_plans);
            const struct mist_plan *chosen = of.plans[0].plan;
            assert_true(chosen->predicted.iteration_s <= 1.01 * fastest_s);
            n_rounded += had_eighths && mist_alike_n_eighths(chosen) == 0;
            if (mist_alike_n_eighths(chosen) > 0) {
                at.ratio_step = 2;
                n_fine++;
                n_vain += ask(&at, MIST_SPACE_ALL, limit, &arena) <= 1.005 * fastest_s;
            }
            mist_validate_result_fini(&of);
        }
        fini(&at);
    }
    print_message("# %d plans in eighths, %d of them for 0.5 %% or less; %d without\n",
                  n_fine, n_vain, n_rounded);
    assert_int_equal(n_vain, 0);
}

/* ----------------------------------------------------------------------------- closest */

/* What the message of a search without a plan says is needed, rounded up by what is not
 * printed of it; 0: it says something else. */
static int64_t read_needed(void)
{
    const char *at = strstr(err.message, "the closest needs ");
    char number[32], unit[8], text[48];
    int64_t bytes;

    if (!at || sscanf(at, "the closest needs %31s %7[A-Za-z]", number, unit) != 2)
        return 0;
    snprintf(text, sizeof text, "%s%s", number, unit);
    struct mist_err other;
    must(mist_parse_bytes(text, &bytes, &other), &other);
    return bytes + bytes / 200 + 1;
}

/* Memory that no plan fits, but the closest needs little more, and then there is one. */
TEST(test_closest)
{
    uint64_t first = test_seed(SEED);
    int n_short = 0, n_asked = 0;

    for (uint64_t seed = first; seed < first + 4 * n_problems(); seed++) {
        struct problem at;
        int64_t needed = 0, arena;
        if (test_is_left_out())
            continue;
        init(&at, seed);
        ask(&at, MIST_SPACE_ALL, INT64_MAX, &needed);
        for (int i = 1; i <= 64 && needed > 0; i *= 4) {
            if (isfinite(ask(&at, MIST_SPACE_ALL, needed / i, &arena)))
                continue;
            int64_t enough = read_needed();
            assert_true(enough > needed / i);
            n_asked++;
            if (isfinite(ask(&at, MIST_SPACE_ALL, enough, &arena)))
                continue;
            print_message("problem %llu: %lld bytes are not enough: %s\n",
                          (unsigned long long)seed, (long long)enough, err.message);
            n_short++;
        }
        fini(&at);
    }
    print_message("%d of %d answers without a plan ask for too little\n", n_short,
                  n_asked);
    assert_true(n_asked > 0);
    assert_int_equal(n_short, 0);
}

/* ------------------------------------------------------------------------- all plans */

/* Every plan of a space, replayed. */
struct brute {
    struct mist_validate_config config;
    struct mist_search_choice stages[MAX_STAGES];
    double best_s; /* of those that hold */
    char label[MIST_PLAN_LABEL_BYTES];
    int n_plans;
};

static void try_plan(struct brute *at, const struct mist_space_case *of)
{
    static struct mist_plan plan;
    struct mist_validated validated = {.plan = &plan};
    struct mist_search_candidate candidate = {.n_micro_batches = of->n_micro_batches,
                                              .n_stages = of->n_stages,
                                              .stages = at->stages};

    mist_validate_make_plan(&at->config, &candidate, &plan);
    must(mist_validate_plan(&at->config, NULL, &validated, &err), &err);
    if (validated.holds)
        must(mist_validate_pipelines(&at->config, INFINITY, &validated, &err), &err);
    at->n_plans++;
    if (!validated.holds || plan.predicted.iteration_s >= at->best_s)
        return;
    at->best_s = plan.predicted.iteration_s;
    mist_plan_label(&plan, at->label);
}

static void try_stage(struct brute *at, const struct mist_space_case *of, int32_t i_stage,
                      int32_t layers, int32_t ranks);

/* All knobs of a stage whose layers and shape are set. */
static void try_knobs(struct brute *at, const struct mist_space_case *of, int32_t i_stage,
                      int32_t layers, int32_t ranks)
{
    const struct mist_space *space = at->config.space;
    struct mist_search_choice *stage = &at->stages[i_stage];
    int32_t n_ckpt = mist_space_n_checkpointed(space, stage->n_layers);
    int32_t n_zero = mist_space_n_zero(space, &stage->shape);

    for (int32_t i = 0; i < n_ckpt * n_zero << MIST_N_OFFLOADS; i++) {
        stage->knobs.n_checkpointed = (i >> MIST_N_OFFLOADS) % n_ckpt;
        stage->knobs.zero = (i >> MIST_N_OFFLOADS) / n_ckpt;
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            stage->knobs.offload[k] = i >> k & 1 ? MIST_RATIO_ONE : 0;
        if (i_stage + 1 == of->n_stages)
            try_plan(at, of);
        else
            try_stage(at, of, i_stage + 1, layers - stage->n_layers,
                      ranks - mist_space_n_devices(&stage->shape));
    }
}

static void try_stage(struct brute *at, const struct mist_space_case *of, int32_t i_stage,
                      int32_t layers, int32_t ranks)
{
    bool is_last = i_stage + 1 == of->n_stages;

    for (int32_t k = 0; k < of->n_shapes; k++)
        for (int32_t l = is_last ? layers : 1; l <= layers; l++) {
            int32_t n = mist_space_n_devices(&of->shapes[k]);
            if (!mist_space_allows(of, i_stage, k) || l < of->layers_min ||
                l > of->layers_max || (is_last ? n != ranks : n >= ranks || l == layers))
                continue;
            at->stages[i_stage] = (struct mist_search_choice){
                .shape = of->shapes[k],
                .n_layers = l,
                .micro_batch = of->samples / of->shapes[k].dp};
            try_knobs(at, of, i_stage, layers, ranks);
        }
}

/* A problem so small that all plans can be tried; ratios are 0 or 1. */
static void init_tiny(struct problem *out, uint64_t seed)
{
    init(out, seed);
    out->model.n_layers = 2;
    out->n_ranks = 2;
    out->allows_host_updates = false;
    out->ratio_step = MIST_RATIO_ONE;
}

/* Whether a search misses the best of all plans of a tiny problem; *n_plans rises by these. */
static bool misses_best(uint64_t seed, bool lacks_host, int *n_plans)
{
    struct problem problem;
    struct mist_space space;
    int64_t arena;

    init_tiny(&problem, seed);
    unsigned groups = MIST_SPACE_ALL;
    int64_t limit = draw_limit(&problem);
    if (lacks_host)
        problem.host_limit_bytes = draw_host_limit(&problem, limit);
    must(mist_space_init(&space, &problem.model, &problem.job, 2, 4, groups, NULL, &err),
         &err);
    struct brute brute = {.config = make_config(&problem, &space, limit),
                          .best_s = INFINITY};
    brute.config.price = find_prices(&problem);
    for (int32_t i = 0; i < space.n_cases; i++)
        try_stage(&brute, &space.cases[i], 0, 2, 2);
    double time_s = ask(&problem, groups, limit, &arena);
    bool misses = time_s > 1.005 * brute.best_s;
    if (misses)
        print_message("problem %llu: %.9g s, and %s takes %.9g s\n",
                      (unsigned long long)seed, time_s, brute.label, brute.best_s);
    *n_plans += brute.n_plans;
    mist_space_fini(&space);
    fini(&problem);
    return misses;
}

/* A search finds the fastest plan of all, with any schedule, but for half a percent. */
TEST(test_all_plans)
{
    static const struct {
        uint64_t seed;
        bool lacks_host;
    } special[N_SPECIAL] = {{TOO_SHORT, false}, {BESIDE, false},     {TOO_LARGE, false},
                            {AT_LIMIT, false},  {NEAR_LIMIT, false}, {ONE_OFFLOADS, true},
                            {TRADED, false}};
    uint64_t first = test_seed(SEED), n = 3 * n_problems();
    int n_plans = 0, n_done = 0, n_worse = 0;

    for (uint64_t i = 0; i < n + N_SPECIAL; i++) {
        if (test_is_left_out())
            continue;
        n_worse +=
            i < n ? misses_best(first + i, false, &n_plans)
                  : misses_best(special[i - n].seed, special[i - n].lacks_host, &n_plans);
        n_done++;
    }
    print_message("%d plans, %d of %d answers slower than the best\n", n_plans, n_worse,
                  n_done);
    assert_int_equal(n_worse, 0);
}

TEST_MAIN(NULL, NULL)
