/*
 * From candidates to plans, on a made-up cluster: memory by the planner, time by the
 * replay, both asked again here; the loop when the closed form is too optimistic;
 * samples; the search log.
 */
#include "tests/unit/test.h"

#include "core/csv.h"
#include "core/random.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan_fields.h"
#include "sim/replay/replay.h"
#include "tests/unit/closed_plan.h"
#include "tests/unit/plan_passes.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"
#include "tune/alike.h"
#include "tune/plan_label.h"
#include "tune/sample_plans.h"
#include "tune/search_log.h"
#include "tune/stage_price.h"
#include "tune/validate.h"

#include <math.h>

struct bench {
    struct mist_trace_set traces;
    struct mist_model model;
    struct mist_cost_model *cost_model;
    struct mist_space space;
    struct mist_stage_price *price;
    struct mist_thread_pool *pool;
    struct mist_validate_config config;
    struct mist_search_config search;
};

static struct mist_err err;

/* AdamW on the host of a machine that is no CPU. 0: not measured, and it is one. */
static double host_us_per_element;

static void add_host(struct mist_trace_set *traces)
{
    traces->cluster.backend = MIST_TRACE_DATASHEET;
    for (int i = 0; i < 2; i++) {
        struct mist_kernel_row row = {
            .op = "adamw_host",
            .dtype = MIST_TRACE_FP32,
            .phase = MIST_PHASE_OPTIMIZER,
            .time_us = (i ? 1 << 20 : 32) * host_us_per_element,
            .repetitions = 10,
        };
        assert_int_equal(
            mist_shape_parse(i ? "elements=1048576" : "elements=32", &row.shape, &err),
            MIST_OK);
        assert_int_equal(mist_trace_set_add_kernel(traces, &row, &err), MIST_OK);
    }
}

static void make_traces(struct mist_trace_set *traces)
{
    static const enum mist_link_operation operations[] = {
        MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER,     MIST_LINK_REDUCE_SCATTER,
        MIST_LINK_SEND_RECV,  MIST_LINK_HOST_TO_DEVICE, MIST_LINK_DEVICE_TO_HOST};

    mist_trace_set_init(traces);
    snprintf(traces->cluster.name, sizeof traces->cluster.name, "quad");
    traces->cluster.backend = MIST_TRACE_CPU;
    traces->cluster.nodes = 1;
    traces->cluster.devices_per_node = 4;
    traces->cluster.device_memory_bytes = 1 << 20;
    traces->cluster.device_threads = 1;
    traces->cluster.probe_us = 12500;
    traces->cluster.peak_flop_per_s[MIST_TRACE_FP32] = 5e9;
    traces->cluster.memory_bytes_per_s = 1e9;
    if (host_us_per_element > 0)
        add_host(traces);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int k = 0; k < 2; k++) {
                struct mist_link_row row = {
                    .operation = operations[i],
                    .nodes = 1,
                    .ranks_per_node = ranks,
                    .concurrent_groups = 1,
                    .bytes = k == 0 ? 1024 : 1 << 20,
                    .time_us = (k == 0 ? 3.0 : 900.0) * (ranks + (double)i),
                    .deviation_us = 1,
                    .repetitions = 10,
                };
                assert_int_equal(mist_trace_set_add_link(traces, &row, &err), MIST_OK);
            }
}

/* Searches of brief runs are small. */
static int32_t most_ranks(void)
{
    return getenv("MIST_BRIEF") ? 2 : 4;
}

static void init(struct bench *at, int32_t n_ranks, int n_threads)
{
    struct mist_job job = {.global_batch = 8, .seq_len = 32};

    memset(at, 0, sizeof *at);
    make_traces(&at->traces);
    at->model = mist_tiny_model(MIST_FAMILY_GPT, 4);
    assert_int_equal(mist_cost_model_new(&at->traces, &at->cost_model, &err), MIST_OK);
    assert_int_equal(mist_space_init(&at->space, &at->model, &job, n_ranks, 4,
                                     MIST_SPACE_ALL, NULL, &err),
                     MIST_OK);
    at->space.allows_host_updates = host_us_per_element > 0;
    assert_int_equal(
        mist_stage_price_new(at->cost_model, &at->space, 1, &at->price, &err), MIST_OK);
    assert_int_equal(mist_thread_pool_new(n_threads, &at->pool, &err), MIST_OK);
    at->config = (struct mist_validate_config){
        .space = &at->space,
        .cost_model = at->cost_model,
        .trace_set = "traces/quad",
        .fingerprint = 7,
        .limit_bytes = INT64_MAX,
        .host_limit_bytes = INT64_MAX,
        .threads = 1,
        .n_best = 10,
        .price = at->price,
    };
    at->search = (struct mist_search_config){
        .host_limit_bytes = INT64_MAX,
        .slack_frac = 0.05,
        .n_best = 10,
        .price = mist_stage_price_block,
        .price_context = at->price,
        .pool = at->pool,
    };
}

static void fini(struct bench *at)
{
    mist_thread_pool_free(at->pool);
    mist_stage_price_free(at->price);
    mist_space_fini(&at->space);
    mist_cost_model_free(at->cost_model);
    mist_trace_set_fini(&at->traces);
}

static void validate(struct bench *at, struct mist_validate_result *result)
{
    enum mist_status status = mist_validate_run(&at->config, &at->search, result, &err);

    if (status != MIST_OK)
        print_message("%s\n", err.message);
    assert_int_equal(status, MIST_OK);
}

/* Everything that a plan says of itself, asked again. */
static void check_plan(const struct bench *at, const struct mist_validated *of)
{
    struct mist_replay_options options = {.threads = 1, .skips_timeline = true};
    const struct mist_prediction *predicted = &of->plan->predicted;
    struct mist_replay_result replay;
    struct mist_model_count count;
    int64_t most = 0, all = 0;

    assert_int_equal(mist_plan_check(of->plan, &err), MIST_OK);
    assert_int_equal(mist_plan_n_ranks(of->plan), at->space.n_ranks);
    assert_int_equal(mist_replay_run(of->plan, at->cost_model, &options, &replay, &err),
                     MIST_OK);
    assert_true(replay.iteration_s == predicted->iteration_s);
    assert_true(replay.error_s == predicted->error_s);
    /* what 4 ranks of a thread took says nothing of other jobs */
    assert_true(predicted->probe_s ==
                (at->space.n_ranks == 4 && at->traces.cluster.device_threads == 1
                     ? 12500 * 1e-6
                     : 0));
    assert_true(of->host_bytes <= at->config.host_limit_bytes);
    for (int32_t i = 0; i < of->plan->n_stages; i++) {
        int64_t bytes = replay.stages[i].arena_bytes[MIST_ARENA_DEVICE];
        assert_true(bytes == predicted->peak_bytes[i]);
        assert_true(bytes <= at->config.limit_bytes);
        most = bytes > most ? bytes : most;
        all += mist_stage_n_ranks(&of->plan->stages[i]) *
               (bytes + replay.stages[i].arena_bytes[MIST_ARENA_HOST]);
    }
    assert_true(most == of->planned_bytes);
    /* without which nobody asks what stages may share of a host */
    must(mist_model_count(&of->plan->model, of->plan->job.seq_len, &count, &err), &err);
    assert_true(all >=
                count.n_parameters * (mist_dtype_weight_bytes(of->plan->job.dtype) +
                                      mist_dtype_state_bytes(of->plan->job.dtype)));
    assert_true(of->holds);
    mist_replay_result_fini(&replay);
}

/* t and d of the plan are those that the closed form finds for the whole plan, where all
 * stages have one shape (else it prices transfers between their real sizes). */
static void check_closed_form(const struct bench *at, const struct mist_validated *of)
{
    struct mist_stage_model *model;
    static struct mist_prediction predicted;
    static struct mist_plan simple; /* what the closed form knows */
    const struct mist_plan *plan = &simple;

    simple = *of->plan;
    simple.pipeline = MIST_PIPELINE_1F1B;
    simple.n_chunks = 0;

    for (int32_t i = 1; i < plan->n_stages; i++)
        if (plan->stages[i].dp != plan->stages[0].dp ||
            plan->stages[i].tp != plan->stages[0].tp ||
            plan->stages[i].is_sequence_parallel != plan->stages[0].is_sequence_parallel)
            return;
    assert_int_equal(
        mist_stage_model_new(&at->model, at->cost_model, &at->space.job, 1, &model, &err),
        MIST_OK);
    closed_plan(model, plan, &predicted);
    /* what all ranks do together is priced with at most two stages by the search */
    assert_true(fabs(predicted.iteration_s - of->closed_s) <=
                (plan->n_stages > 2 ? 1e-2 : 1e-9) * of->closed_s);
    for (int32_t i = 0; i < plan->n_stages; i++)
        assert_true(fabs(predicted.stable_s[i] - plan->predicted.stable_s[i]) <=
                    1e-9 * predicted.stable_s[i]);
    mist_stage_model_free(model);
}

/* ------------------------------------------------------------------------------ tests */

TEST(test_plans)
{
    struct bench bench;
    struct mist_validate_result result;

    for (int32_t n_ranks = 1; n_ranks <= most_ranks(); n_ranks++) {
        init(&bench, n_ranks, 1);
        validate(&bench, &result);
        assert_true(result.n_plans > 0 && result.n_plans <= 10);
        assert_int_equal(result.n_dropped, 0);
        for (size_t i = 0; i < result.n_plans; i++) {
            check_plan(&bench, &result.plans[i]);
            check_closed_form(&bench, &result.plans[i]);
            assert_true(i == 0 || result.plans[i].plan->predicted.iteration_s >=
                                      result.plans[i - 1].plan->predicted.iteration_s);
        }
        mist_validate_result_fini(&result);
        fini(&bench);
    }
    init(&bench, most_ranks(), 2);
    bench.space.groups = 1u << MIST_SPACE_3D;
    bench.traces.cluster.device_threads = 2;
    validate(&bench, &result);
    check_plan(&bench, &result.plans[0]);
    mist_validate_result_fini(&result);
    fini(&bench);
}

/* What plans of one kind have in common here: all stages have one shape. */
static bool is_alike(const struct mist_plan *a, const struct mist_plan *b)
{
    return a->n_micro_batches == b->n_micro_batches && a->n_stages == b->n_stages &&
           a->stages[0].dp == b->stages[0].dp && a->stages[0].tp == b->stages[0].tp &&
           a->stages[0].is_sequence_parallel == b->stages[0].is_sequence_parallel;
}

/* The first of every kind comes first, in the order of before; so do the others. */
TEST(test_vary)
{
    static struct mist_plan plans[12]; /* large */
    struct mist_validated list[12];
    size_t expected[12], n = 0;

    for (int i = 0; i < 12; i++) {
        plans[i].n_micro_batches = 1 << i % 3;
        plans[i].n_stages = 1;
        plans[i].stages[0].dp = 1 + (i / 2) % 2;
        list[i] = (struct mist_validated){.plan = &plans[i]};
    }
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < 12; i++) {
            bool is_first = true;
            for (size_t k = 0; k < i; k++)
                is_first &= !is_alike(&plans[k], &plans[i]);
            if (is_first == (pass == 0))
                expected[n++] = i;
        }
    mist_validate_vary(list, 12);
    for (size_t i = 0; i < 12; i++)
        assert_ptr_equal(list[i].plan, &plans[expected[i]]);
}

/* A plan of as many techniques as there are bits (of four) and one, in so much time. */
static struct mist_validated make_simple(unsigned bits, double time_s)
{
    struct mist_validated out = {.plan = calloc(1, sizeof *out.plan), .closed_s = time_s};

    assert_non_null(out.plan);
    out.plan->n_stages = 1;
    out.plan->n_micro_batches = 1;
    out.plan->predicted.iteration_s = time_s;
    out.plan->stages[0] = (struct mist_stage_plan){
        .n_layers = 4,
        .dp = 2,
        .tp = bits & 1 ? 2 : 1,
        .n_checkpointed = bits & 2 ? 1 : 0,
        .n_lean = bits & 4 ? 1 : 0,
        .zero = bits & 8 ? 1 : 0,
    };
    return out;
}

/* Whatever is dropped, the simplest plan that is no slower than a part stays, and so do
 * the fastest half of those that are wanted but one. */
TEST(test_keep)
{
    enum { N = 24 };
    struct mist_random random;

    mist_random_init(&random, test_seed(77));
    for (int round = 0; round < 200; round++) {
        struct mist_validate_result result = {.n_plans = N};
        double frac = (double)mist_random_below(&random, 50) / 100, least_s = INFINITY;
        size_t n = 1 + (size_t)mist_random_below(&random, N), n_fastest = 0;
        double times_s[N];
        int words[N], fewest = 99;
        result.plans = calloc(N, sizeof *result.plans);
        assert_non_null(result.plans);
        for (int i = 0; i < N; i++) {
            unsigned bits = (unsigned)mist_random_below(&random, 16);
            times_s[i] = 1 + (double)mist_random_below(&random, 1000) / 1000;
            words[i] = 1 + (int)(bits & 1) + (int)(bits >> 1 & 1) + (int)(bits >> 2 & 1) +
                       (int)(bits >> 3);
            result.plans[i] = make_simple(bits, times_s[i]);
            least_s = fmin(least_s, times_s[i]);
        }
        for (int i = 0; i < N; i++)
            if (times_s[i] <= least_s + frac * least_s && words[i] < fewest)
                fewest = words[i];
        mist_validate_keep(&result, n, frac);
        assert_int_equal(result.n_plans, n);
        size_t simplest = mist_alike_simplest(result.plans, n, n > 1 ? frac : 0);
        assert_int_equal(mist_alike_n_techniques(result.plans[simplest].plan), fewest);
        for (size_t i = 0; i < n; i++) {
            double time_s = result.plans[i].plan->predicted.iteration_s;
            size_t n_faster = 0;
            for (int k = 0; k < N; k++)
                n_faster += times_s[k] < time_s;
            n_fastest += n_faster < (n + 1) / 2;
            assert_true(i == 0 ||
                        time_s >= result.plans[i - 1].plan->predicted.iteration_s);
        }
        assert_true(n_fastest + 1 >= (n + 1) / 2);
        mist_validate_result_fini(&result);
    }
}

/* The plan of test_add()'s round that has this number. */
static struct mist_validated make_numbered(uint64_t seed, uint64_t number)
{
    struct mist_random random;

    mist_random_init(&random, seed ^ (number * 0x9e3779b97f4a7c15));
    unsigned bits = (unsigned)mist_random_below(&random, 16);
    double time_s = 1 + (double)mist_random_below(&random, 300) / 1000;
    struct mist_validated out = make_simple(bits, time_s);
    out.plan->n_micro_batches = 1 << mist_random_below(&random, 6);
    out.closed_s = 1 + (double)mist_random_below(&random, 300) / 1000;
    out.holds = mist_random_below(&random, 3) > 0;
    return out;
}

/* Whatever leaves the lists while plans come, in the end they have those that they had without
 * it; of dropped ones the plans that reports show. */
TEST(test_add)
{
    enum { N = 600 };
    uint64_t seed = test_seed(78);

    for (int round = 0; round < 40; round++, seed += N) {
        struct mist_validate_config config = {.n_best = 1 + (size_t)round % 7};
        struct mist_validate_result result = {0}, all = {0};
        size_t fastest = 0, n_kept = 0, n_held = 0;
        all.plans = calloc(N, sizeof *all.plans);
        assert_non_null(all.plans);
        for (uint64_t i = 0; i < N; i++) {
            struct mist_validated plan = make_numbered(seed, i), same = plan;
            if (plan.holds) {
                same = make_numbered(seed, i);
                same.i_looked = i;
                all.plans[all.n_plans++] = same;
                n_held++;
            }
            assert_int_equal(mist_validate_add(&config, &result, &plan, &err), MIST_OK);
            assert_null(plan.plan);
        }
        assert_int_equal(result.n_looked, N);
        assert_int_equal(result.n_dropped, N - n_held);
        assert_true(result.n_plans < n_held); /* or this tests nothing */
        mist_validate_keep(&result, config.n_best, 0);
        mist_validate_keep(&all, config.n_best, 0);
        assert_int_equal(result.n_plans, all.n_plans);
        for (size_t i = 0; i < all.n_plans; i++)
            assert_int_equal(result.plans[i].i_looked, all.plans[i].i_looked);
        for (size_t i = 0; i < result.n_dropped; i++) {
            n_kept += result.dropped[i].plan != NULL;
            assert_true(i >= config.n_best || result.dropped[i].plan);
            if (result.dropped[i].closed_s < result.dropped[fastest].closed_s)
                fastest = i;
        }
        assert_non_null(result.dropped[fastest].plan);
        assert_true(n_kept <= config.n_best + 1);
        mist_validate_result_fini(&result);
        mist_validate_result_fini(&all);
    }
}

/* Under any limit all plans hold, until there is none; then the message says what. */
TEST(test_limits)
{
    struct bench bench;
    struct mist_validate_result result;
    enum mist_status status = MIST_OK;
    int n_feasible = 0;

    if (getenv("MIST_BRIEF"))
        skip(); /* the searches of test_threads */
    init(&bench, 4, 1);
    bench.space.ratio_step = MIST_RATIO_ONE / 2;
    bench.config.n_best = bench.search.n_best = 4;
    validate(&bench, &result);
    int64_t limit = result.plans[0].planned_bytes;
    mist_validate_result_fini(&result);
    for (; status == MIST_OK; limit = limit * 3 / 4) {
        bench.config.limit_bytes = limit;
        status = mist_validate_run(&bench.config, &bench.search, &result, &err);
        if (status != MIST_OK)
            break;
        n_feasible++;
        for (size_t i = 0; i < result.n_plans; i++)
            check_plan(&bench, &result.plans[i]);
        for (size_t i = 0; i < result.n_dropped; i++)
            assert_true(result.dropped[i].planned_bytes > limit);
        mist_validate_result_fini(&result);
    }
    assert_true(n_feasible > 2);
    assert_int_equal(status, MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "needs "));
    assert_non_null(strstr(err.message, "limit "));
    fini(&bench);
}

/* A closed form that forgets a part of the memory. */
static enum mist_status price_too_low(void *context, const struct mist_search_kind *kind,
                                      const struct mist_search_columns *block,
                                      struct mist_err *error)
{
    enum mist_status status = mist_stage_price_block(context, kind, block, error);

    for (size_t i = 0; i < block->n; i++)
        block->peak_bytes[i] = floor(block->peak_bytes[i] * 3 / 4);
    return status;
}

/* Whatever the limit: where the honest closed form leads to a plan, the other one does,
 * too, and to one that holds and is not much slower. */
TEST(test_optimism)
{
    struct bench bench;
    struct mist_validate_result honest, result;
    int64_t limit;
    int n_cases = 0, n_dropping = 0;

    if (getenv("MIST_BRIEF"))
        skip(); /* the searches of test_threads */
    init(&bench, 2, 1);
    bench.space.ratio_step = MIST_RATIO_ONE / 2;
    bench.config.n_best = bench.search.n_best = 1;
    validate(&bench, &honest);
    limit = honest.plans[0].planned_bytes;
    mist_validate_result_fini(&honest);
    for (; n_cases < 7; n_cases++, limit -= limit / 12) {
        bench.config.limit_bytes = limit;
        bench.search.price = mist_stage_price_block;
        if (mist_validate_run(&bench.config, &bench.search, &honest, &err) != MIST_OK)
            break;
        bench.search.price = price_too_low;
        validate(&bench, &result);
        n_dropping += result.n_dropped > 0;
        check_plan(&bench, &result.plans[0]);
        assert_true(result.plans[0].plan->predicted.iteration_s <=
                    1.1 * honest.plans[0].plan->predicted.iteration_s);
        mist_validate_result_fini(&honest);
        mist_validate_result_fini(&result);
    }
    assert_true(n_cases > 5);
    assert_true(n_dropping > 3);
    fini(&bench);
}

/* A closed form that takes all memory too high. */
static enum mist_status price_too_high(void *context, const struct mist_search_kind *kind,
                                       const struct mist_search_columns *block,
                                       struct mist_err *error)
{
    enum mist_status status = mist_stage_price_block(context, kind, block, error);

    for (size_t i = 0; i < block->n; i++)
        block->peak_bytes[i] = floor(block->peak_bytes[i] * 1.2);
    return status;
}

/* Whatever the limit, a search finds beside its plans what the closed form takes too high: its
 * plan is no slower than that of an honest closed form. */
TEST(test_pessimism)
{
    struct bench bench;
    struct mist_validate_result honest, result;
    int64_t limit;

    if (getenv("MIST_BRIEF"))
        skip(); /* the searches of test_threads */
    init(&bench, 2, 1);
    bench.space.ratio_step = MIST_RATIO_ONE / 2;
    bench.config.n_best = bench.search.n_best = 4;
    validate(&bench, &honest);
    limit = honest.plans[0].planned_bytes;
    mist_validate_result_fini(&honest);
    for (int i = 0; i < 5; i++, limit -= limit / 10) {
        bench.config.limit_bytes = limit;
        bench.search.price = mist_stage_price_block;
        validate(&bench, &honest);
        bench.search.price = price_too_high;
        validate(&bench, &result);
        double honest_s = honest.plans[0].plan->predicted.iteration_s;
        check_plan(&bench, &result.plans[0]);
        assert_true(result.plans[0].plan->predicted.iteration_s <= 1.005 * honest_s);
        mist_validate_result_fini(&honest);
        mist_validate_result_fini(&result);
    }
    fini(&bench);
}

TEST(test_threads)
{
    struct bench one, three;
    struct mist_validate_result a, b;

    init(&one, most_ranks(), 1);
    init(&three, most_ranks(), 3);
    validate(&one, &a);
    validate(&three, &b);
    assert_int_equal(a.n_plans, b.n_plans);
    for (size_t i = 0; i < a.n_plans; i++) {
        assert_true(a.plans[i].closed_s == b.plans[i].closed_s);
        assert_memory_equal(a.plans[i].plan->predicted.peak_bytes,
                            b.plans[i].plan->predicted.peak_bytes,
                            sizeof a.plans[i].plan->predicted.peak_bytes);
        assert_true(a.plans[i].plan->predicted.iteration_s ==
                    b.plans[i].plan->predicted.iteration_s);
    }
    mist_validate_result_fini(&a);
    mist_validate_result_fini(&b);
    fini(&one);
    fini(&three);
}

/* -------------------------------------------------------------- every knob, one stage */

/* All configurations of one stage on a grid of ratios, priced by kind of stage. */
struct priced {
    double *time_s, *peak_bytes; /* [n] */
    size_t n, time_capacity, peak_capacity;
};

enum { N_COLUMNS = 13, MOST_ROWS = 1 << 13 };

/* Columns of a kind of stage with all of its knobs [MOST_ROWS] behind one another. */
static size_t list_knobs(const struct bench *at, const struct mist_search_kind *kind,
                         double *columns)
{
    const struct mist_space *space = &at->space;
    int32_t step = space->ratio_step, n_layers = space->model.n_layers;
    int n = MIST_RATIO_ONE / step + 1, n_places = space->allows_host_updates ? 2 : 1;
    size_t row = 0;

    for (int c = 0; c <= n_layers; c++)
        for (int z = 0; z < (kind->shape.dp > 1 ? 4 : 1); z++)
            for (int way = 0; way < 2 * n_places * n * n * n * n; way++) {
                int ratios = way / 2 % (n * n * n * n);
                bool is_on_host = way / 2 >= n * n * n * n;
                const double knobs[] = {n_layers, c, way % 2 * (n_layers - c), z,
                                        is_on_host};
                if (is_on_host && ratios / (n * n) % n == 0)
                    continue;
                assert_true(row < MOST_ROWS);
                for (int k = 0; k < 5; k++)
                    columns[(size_t)k * MOST_ROWS + row] = knobs[k];
                for (int k = 0, rest = ratios; k < 4; k++, rest /= n)
                    columns[(size_t)(5 + k) * MOST_ROWS + row] =
                        rest % n * step / (double)MIST_RATIO_ONE;
                row++;
            }
    return row;
}

static void price_knobs(const struct bench *at, const struct mist_search_kind *kind,
                        struct priced *out)
{
    double *columns = malloc(N_COLUMNS * MOST_ROWS * sizeof *columns), *column[N_COLUMNS];

    assert_non_null(columns);
    for (size_t k = 0; k < N_COLUMNS; k++)
        column[k] = columns + k * MOST_ROWS;
    size_t n = list_knobs(at, kind, columns);
    struct mist_search_columns block = {
        .n = n,
        .n_layers = column[0],
        .n_checkpointed = column[1],
        .n_lean = column[2],
        .zero = column[3],
        .on_host = at->space.allows_host_updates ? column[4] : NULL,
        .offload = {column[5], column[6], column[7], column[8]},
        .t_s = column[9],
        .d_s = column[10],
        .peak_bytes = column[11],
        .host_bytes = column[12],
    };
    must(mist_stage_price_block(at->price, kind, &block, &err), &err);
    assert_true(MIST_RESERVE(out->time_s, out->time_capacity, out->n + n) &&
                MIST_RESERVE(out->peak_bytes, out->peak_capacity, out->n + n));
    for (size_t i = 0; i < n; i++, out->n++) {
        out->time_s[out->n] = (kind->n_micro_batches - 1) * block.t_s[i] + block.t_s[i] +
                              fmax(block.d_s[i], 0);
        out->peak_bytes[out->n] = ceil(block.peak_bytes[i]);
    }
    free(columns);
}

static struct priced price_all_knobs(const struct bench *at)
{
    struct priced out = {0};

    for (int32_t i = 0; i < at->space.n_cases; i++)
        for (int32_t k = 0; k < at->space.cases[i].n_shapes; k++) {
            const struct mist_space_case *of = &at->space.cases[i];
            struct mist_search_kind kind = {
                .role = MIST_SEARCH_ONLY,
                .in_flight = 1,
                .n_micro_batches = of->n_micro_batches,
                .micro_batch = of->samples / of->shapes[k].dp,
                .shape = of->shapes[k],
            };
            if (of->n_stages == 1)
                price_knobs(at, &kind, &out);
        }
    return out;
}

/* INFINITY: nothing fits. */
static double find_fastest(const struct priced *of, int64_t limit_bytes)
{
    double best_s = INFINITY;

    for (size_t i = 0; i < of->n; i++)
        if (of->peak_bytes[i] <= (double)limit_bytes)
            best_s = fmin(best_s, of->time_s[i]);
    return best_s;
}

static void hold_to_one_stage(struct mist_space *space)
{
    struct mist_space whole = *space;
    struct mist_bounds bounds = whole.bounds;

    must(mist_bounds_add(&bounds, "pp=1", true, &err), &err);
    must(mist_space_part(space, &whole, whole.groups, &bounds, &err), &err);
    mist_space_fini(&whole);
}

/* The prices of a cluster keep what the search assumes of them: skipping offloading where
 * it is not needed, and bounds, lose nothing. */
static int check_all_knobs(void)
{
    struct bench bench;
    int n_offloaded = 0, n_on_host = 0;

    init(&bench, 2, 2);
    bench.search.n_best = 1;
    hold_to_one_stage(&bench.space);
    bench.space.ratio_step = MIST_RATIO_ONE / 2;
    struct priced priced = price_all_knobs(&bench);
    for (int64_t limit = 400000; limit > 20000; limit -= limit / 5) {
        struct mist_search_result result;
        double fastest_s = find_fastest(&priced, limit);
        bench.search.limit_bytes = limit;
        assert_int_equal(mist_search_run(&bench.space, &bench.search, &result, &err),
                         MIST_OK);
        if (isinf(fastest_s)) {
            assert_int_equal(result.n_candidates, 0);
        } else {
            assert_true(result.n_candidates > 0);
            assert_true(fabs(result.candidates[0].time_s - fastest_s) <=
                        1e-12 * fastest_s);
            const int8_t *offload = result.candidates[0].stages[0].knobs.offload;
            n_offloaded += offload[0] || offload[1] || offload[2] || offload[3];
            n_on_host += result.candidates[0].stages[0].knobs.updates_on_host;
        }
        mist_search_result_fini(&result);
    }
    assert_true(n_offloaded > 2);
    free(priced.time_s);
    free(priced.peak_bytes);
    fini(&bench);
    return n_on_host;
}

TEST(test_all_knobs)
{
    assert_int_equal(check_all_knobs(), 0);
}

/* Copies take some nanoseconds a byte: 12 bytes of state there and back are
 * worth more than a fast host takes, and less than a slow one. */
TEST(test_updates_on_host)
{
    if (getenv("MIST_BRIEF"))
        skip(); /* test_all_knobs twice more */
    host_us_per_element = 1e-3;
    int n_fast = check_all_knobs();
    host_us_per_element = 10;
    int n_slow = check_all_knobs();
    host_us_per_element = 0;
    assert_true(n_fast > 2);
    assert_int_equal(n_slow, 0);
}

/* --------------------------------------------------------------------- several nodes */

/* The largest tp of the fastest plan of a batch of one sample, on two nodes of two
 * devices. slow: times are that much longer between the nodes. */
static int32_t find_tp(double slow)
{
    struct mist_job job = {.global_batch = 1, .seq_len = 64};
    struct bench bench;
    struct mist_validate_result result;
    int32_t tp = 0;

    init(&bench, 4, 1);
    mist_stage_price_free(bench.price);
    mist_cost_model_free(bench.cost_model);
    mist_space_fini(&bench.space);
    bench.model.ffn = 40; /* can be cut in four */
    bench.traces.cluster.nodes = 2;
    bench.traces.cluster.devices_per_node = 2;
    bench.traces.cluster.peak_flop_per_s[MIST_TRACE_FP32] = 5e7; /* worth to be split */
    for (int operation = 0; operation < MIST_LINK_HOST_TO_DEVICE; operation++)
        for (int per_node = 1; per_node <= 2; per_node++)
            for (int k = 0; k < 2; k++) {
                struct mist_link_row row = {
                    .operation = (enum mist_link_operation)operation,
                    .nodes = 2,
                    .ranks_per_node = per_node,
                    .concurrent_groups = 1,
                    .bytes = k == 0 ? 1024 : 1 << 20,
                    .time_us = slow * (k == 0 ? 3.0 : 900.0),
                    .repetitions = 10,
                };
                assert_int_equal(mist_trace_set_add_link(&bench.traces, &row, &err),
                                 MIST_OK);
            }
    assert_int_equal(mist_cost_model_new(&bench.traces, &bench.cost_model, &err),
                     MIST_OK);
    assert_int_equal(mist_space_init(&bench.space, &bench.model, &job, 4, 2,
                                     MIST_SPACE_ALL, NULL, &err),
                     MIST_OK);
    assert_int_equal(
        mist_stage_price_new(bench.cost_model, &bench.space, 1, &bench.price, &err),
        MIST_OK);
    bench.config.cost_model = bench.cost_model;
    bench.config.price = bench.search.price_context = bench.price;
    validate(&bench, &result);
    for (int32_t i = 0; i < result.plans[0].plan->n_stages; i++)
        if (result.plans[0].plan->stages[i].tp > tp)
            tp = result.plans[0].plan->stages[i].tp;
    mist_validate_result_fini(&result);
    fini(&bench);
    return tp;
}

/* Nothing forbids tensor parallelism between nodes; a slow link does. */
TEST(test_nodes)
{
    assert_int_equal(find_tp(1), 4);
    assert_int_equal(find_tp(1e4), 2);
}

/* Blocks are lean where nothing else fits, and nowhere else: that costs time. */
TEST(test_lean)
{
    const unsigned plain = 1u << MIST_SPACE_3D, lean = plain | 1u << MIST_SPACE_LEAN;
    struct bench bench;
    struct mist_validate_result result;
    int64_t least_bytes = INT64_MAX;

    init(&bench, 1, 1);
    bench.search.slack_frac = 0;
    bench.space.groups = lean;
    validate(&bench, &result);
    assert_int_equal(result.plans[0].plan->stages[0].n_lean, 0);
    mist_validate_result_fini(&result);
    bench.space.groups = plain;
    validate(&bench, &result);
    for (size_t i = 0; i < result.n_plans; i++)
        if (result.plans[i].planned_bytes < least_bytes)
            least_bytes = result.plans[i].planned_bytes;
    mist_validate_result_fini(&result);
    bench.config.limit_bytes = least_bytes - 1;
    assert_int_equal(mist_validate_run(&bench.config, &bench.search, &result, &err),
                     MIST_ERR_NO_PLAN);
    bench.space.groups = lean;
    validate(&bench, &result);
    assert_int_equal(result.plans[0].plan->stages[0].n_lean, bench.model.n_layers);
    check_plan(&bench, &result.plans[0]);
    mist_validate_result_fini(&result);
    fini(&bench);
}

/* A closed form that takes one number of micro-batches too long. */
struct slow_price {
    struct mist_stage_price *price;
    int32_t n_micro_batches;
    double times;
};

static enum mist_status price_slow(void *context, const struct mist_search_kind *kind,
                                   const struct mist_search_columns *block,
                                   struct mist_err *e)
{
    const struct slow_price *at = context;
    enum mist_status status = mist_stage_price_block(at->price, kind, block, e);

    for (size_t i = 0; i < block->n; i++)
        if (kind->n_micro_batches == at->n_micro_batches) {
            block->t_s[i] *= at->times;
            block->d_s[i] *= at->times;
        }
    return status;
}

/* What the closed form takes up to a quarter longer than the best plan is looked at, also
 * where it is more than a tenth behind the closed form's best and needs the most memory, so
 * that no smaller question finds it. */
TEST(test_far_behind)
{
    struct bench bench;
    struct mist_validate_result result;
    struct slow_price slow;
    double least_s = INFINITY, slow_s = 0;
    int64_t slow_bytes = 0, most_bytes = 0;

    init(&bench, 1, 1);
    bench.space.groups = 1u << MIST_SPACE_3D;
    bench.search.slack_frac = MIST_VALIDATE_SLACK_FRAC;
    slow = (struct slow_price){.price = bench.price, .n_micro_batches = 1};
    validate(&bench, &result);
    for (size_t i = 0; i < result.n_plans; i++) {
        const struct mist_validated *of = &result.plans[i];
        if (of->plan->n_micro_batches == 1) {
            slow_s = of->closed_s;
            slow_bytes = of->planned_bytes;
            continue;
        }
        least_s = fmin(least_s, of->closed_s);
        most_bytes = of->planned_bytes > most_bytes ? of->planned_bytes : most_bytes;
    }
    assert_true(slow_s > 0 && isfinite(least_s) && slow_bytes > most_bytes);
    mist_validate_result_fini(&result);

    bench.search.price = price_slow;
    bench.search.price_context = &slow;
    for (int i = 0; i < 2; i++) {
        bool was_looked = false;
        slow.times = (i == 0 ? 1.15 : 1.4) * least_s / slow_s;
        validate(&bench, &result);
        for (size_t k = 0; k < result.n_plans; k++)
            was_looked |= result.plans[k].plan->n_micro_batches == 1;
        assert_int_equal(was_looked, i == 0);
        mist_validate_result_fini(&result);
    }
    fini(&bench);
}

/* The schedule of a plan is the fastest of those that hold, asked again here. */
TEST(test_pipelines)
{
    struct bench bench;
    struct mist_validate_result result;
    int n_other = 0, n_tried = 0;

    init(&bench, 2, 2);
    bench.space.groups = 1u << MIST_SPACE_3D | 1u << MIST_SPACE_SCHEDULE;
    for (int32_t i = 0; i < bench.space.n_cases; i++)
        if (bench.space.cases[i].n_stages == 1)
            bench.space.cases[i--] = bench.space.cases[--bench.space.n_cases];
    bench.config.n_best = 100;
    bench.search.slack_frac = 0;
    validate(&bench, &result);
    for (size_t i = 0; i < result.n_plans; i++) {
        const struct mist_validated *of = &result.plans[i];
        static struct mist_plan plan;
        double best_s = of->pipelines[MIST_PIPELINE_1F1B].time_s;
        bool is_tried = of->pipelines[MIST_PIPELINE_ZB_H1].tried != MIST_TRIED_NOT;
        if (of->plan->n_stages == 1) {
            assert_false(is_tried);
            continue;
        }
        /* all of one number of chunks, interleaved with 2, 3 and 4 */
        for (int32_t k = 1; k < MIST_N_PIPELINES + 2; k++) {
            struct mist_validated again = {.plan = &plan};
            bool is_more = k >= MIST_N_PIPELINES;
            plan = *of->plan;
            plan.pipeline =
                is_more ? MIST_PIPELINE_INTERLEAVED : (enum mist_pipeline_schedule)k;
            plan.n_chunks = is_more                          ? 3 + k - MIST_N_PIPELINES
                            : k == MIST_PIPELINE_INTERLEAVED ? 2
                                                             : 0;
            set_plan_passes(&plan);
            if (mist_plan_check(&plan, &err) != MIST_OK)
                continue;
            assert_int_equal(mist_validate_plan(&bench.config, NULL, &again, &err),
                             MIST_OK);
            n_tried++;
            if (again.holds)
                best_s = fmin(best_s, plan.predicted.iteration_s);
        }
        assert_true(is_tried);
        for (int k = 0; k < MIST_N_PIPELINES; k++)
            is_tried &= of->pipelines[k].tried != MIST_TRIED_PRICED;
        if (is_tried)
            assert_true(of->plan->predicted.iteration_s == best_s);
        else /* one was too slow to be replayed */
            assert_true(best_s >= result.plans[0].plan->predicted.iteration_s);
        n_other += of->plan->pipeline != MIST_PIPELINE_1F1B;
        check_plan(&bench, of);
    }
    assert_true(n_tried > 5 && n_other > 0);
    mist_validate_result_fini(&result);
    fini(&bench);
}

TEST(test_no_case)
{
    struct bench bench;
    struct mist_validate_result result;

    init(&bench, 4, 1);
    bench.space.n_cases = 0;
    assert_int_equal(mist_validate_run(&bench.config, &bench.search, &result, &err),
                     MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "can't be spread over 4 ranks"));
    fini(&bench);
}

/* Stopped at once: nothing was found. Nothing is left behind either. */
TEST(test_stop)
{
    struct bench bench;
    struct mist_validate_result result;
    atomic_int is_over = 1;

    init(&bench, 4, 2);
    bench.search.is_over = &is_over;
    assert_int_equal(mist_validate_run(&bench.config, &bench.search, &result, &err),
                     MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "stopped"));
    fini(&bench);
}

TEST(test_memory_limit)
{
    struct mist_cluster cluster = {.backend = MIST_TRACE_CPU,
                                   .runtime_memory_bytes = 300};
    int64_t limit;

    assert_int_equal(mist_validate_limit(&cluster, 1000, &limit, &err), MIST_OK);
    assert_true(limit == 1000);
    cluster.backend = MIST_TRACE_CUDA;
    assert_int_equal(mist_validate_limit(&cluster, 1000, &limit, &err), MIST_OK);
    assert_true(limit == 700);
    assert_int_equal(mist_validate_limit(&cluster, 300, &limit, &err), MIST_ERR_USAGE);
    assert_int_equal(mist_validate_limit(&cluster, 0, &limit, &err), MIST_OK);
    assert_true(limit == INT64_MAX);
}

TEST(test_samples)
{
    enum { N = 48 };
    struct bench bench;
    struct mist_validated plans[2][N];
    static const char *const words[] = {"dp", "tp2",   "sp",   "z1",         "z2",
                                        "z3", "ow",    "og",   "oo",         "oa",
                                        "ck", "zb_h1", "zb_v", "interleaved"};
    char label[MIST_PLAN_LABEL_BYTES];
    size_t n[2];
    int n_same = 0;
    unsigned seen_stages = 0;

    init(&bench, 4, 1);
    for (int k = 0; k < 2; k++)
        assert_int_equal(mist_sample_plans(&bench.config, 5, N, plans[k], &n[k], &err),
                         MIST_OK);
    assert_int_equal(n[0], N);
    assert_int_equal(n[1], N);
    for (size_t i = 0; i < N; i++) {
        check_plan(&bench, &plans[0][i]);
        seen_stages |= 1u << plans[0][i].plan->n_stages;
        assert_true(mist_plan_is_same(plans[0][i].plan, plans[1][i].plan));
        for (size_t k = 0; k < i; k++)
            n_same += mist_plan_is_same(plans[0][i].plan, plans[0][k].plan);
    }
    assert_int_equal(n_same, 0);
    assert_int_equal(seen_stages, 2 | 4 | 8 | 16); /* 1 to 4 stages */
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        bool has = false;
        for (size_t i = 0; i < N && !has; i++)
            has = strstr(mist_plan_label(plans[0][i].plan, label), words[w]);
        if (!has)
            print_message("no plan with %s\n", words[w]);
        assert_true(has);
    }
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < N; i++)
            free(plans[k][i].plan);
    fini(&bench);
}

/* How many different stages a plan has: of one kind and with the same knobs. */
static int32_t count_different(const struct mist_plan *plan)
{
    int32_t n = 0;

    for (int32_t i = 0; i < plan->n_stages; i++) {
        bool is_new = true;
        for (int32_t k = 0; k < i; k++)
            if (mist_plan_stages_are_same(&plan->stages[k], &plan->stages[i]) &&
                mist_search_stage_role(plan->n_stages, k) ==
                    mist_search_stage_role(plan->n_stages, i) &&
                fmin(plan->n_stages - k, plan->n_micro_batches) ==
                    fmin(plan->n_stages - i, plan->n_micro_batches))
                is_new = false;
        n += is_new;
    }
    return n;
}

/* The log holds every configuration once, and those of a plan are marked, the last found
 * ones' as well. */
TEST(test_log)
{
    static const struct mist_csv_column columns[] = {
        {"role", MIST_CSV_REQUIRED},
        {"in_flight", MIST_CSV_REQUIRED},
        {"micro_batches", MIST_CSV_REQUIRED},
        {"micro_batch", MIST_CSV_REQUIRED},
        {"dp", MIST_CSV_REQUIRED},
        {"tp", MIST_CSV_REQUIRED},
        {"cp", MIST_CSV_REQUIRED},
        {"sequence_parallel", MIST_CSV_REQUIRED},
        {"layers", MIST_CSV_REQUIRED},
        {"checkpointed_layers", MIST_CSV_REQUIRED},
        {"lean_layers", MIST_CSV_REQUIRED},
        {"zero", MIST_CSV_REQUIRED},
        {"offload_weights_frac", MIST_CSV_REQUIRED},
        {"offload_gradients_frac", MIST_CSV_REQUIRED},
        {"offload_optimizer_frac", MIST_CSV_REQUIRED},
        {"offload_activations_frac", MIST_CSV_REQUIRED},
        {"update_on", MIST_CSV_REQUIRED},
        {"stable_s", MIST_CSV_REQUIRED},
        {"extra_s", MIST_CSV_REQUIRED},
        {"peak_bytes", MIST_CSV_REQUIRED},
        {"host_bytes", MIST_CSV_REQUIRED},
        {"on_frontier", MIST_CSV_REQUIRED},
        {"chosen", MIST_CSV_REQUIRED},
        {"why", MIST_CSV_REQUIRED}};
    struct bench bench;
    struct mist_validate_result result;
    struct scratch scratch;
    struct mist_search_rows rows;
    struct mist_csv *csv;
    size_t n_added = 0;

    init(&bench, 4, 1);
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "log.csv");
    must(mist_search_rows_open(&rows, path, &err), &err);
    assert_int_equal(scratch_count(&scratch), 0);
    bench.search.rows = &rows;
    validate(&bench, &result);
    bench.search.limit_bytes = bench.config.limit_bytes;
    for (size_t p = 0; p < result.n_plans; p++) {
        const struct mist_plan *plan = result.plans[p].plan;
        int32_t n_chosen = 0;
        must(mist_search_log_save(&rows, &bench.search, plan, path, true, &err), &err);
        assert_int_equal(mist_csv_load(path, columns, 24, &csv, &err), MIST_OK);
        for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
            bool chosen = strcmp(mist_csv_text(csv, i, 22), "1") == 0;
            n_chosen += chosen;
            assert_int_equal(chosen, mist_csv_text(csv, i, 23)[0] == '\0');
        }
        assert_int_equal(n_chosen, count_different(plan));
        n_added += mist_csv_n_rows(csv) - (size_t)rows.n;
        mist_csv_free(csv);
    }
    print_message("%zu plans, %zu stages that other searches found\n", result.n_plans,
                  n_added);
    assert_true(n_added > 0);
    must(mist_search_rows_close(&rows, &err), &err);
    scratch_fini(&scratch);
    mist_validate_result_fini(&result);
    fini(&bench);
}

/* What the picture of frontiers is made from. */
struct frontier_csv {
    double t_s, d_s;
    int i_stage, is_chosen;
};

static size_t load_frontiers(const char *path, struct frontier_csv *points, size_t most)
{
    FILE *file = fopen(path, "r");
    char line[256];
    size_t n = 0;

    assert_non_null(file);
    assert_non_null(fgets(line, sizeof line, file));
    assert_string_equal(line, "stage,t_s,d_s,chosen\n");
    while (fgets(line, sizeof line, file)) {
        assert_true(n < most);
        assert_int_equal(sscanf(line, "%d,%lf,%lf,%d", &points[n].i_stage, &points[n].t_s,
                                &points[n].d_s, &points[n].is_chosen),
                         4);
        n++;
    }
    fclose(file);
    return n;
}

/* Whether a point of a stage is as good as (or, strictly, better than) t and d. */
static bool has_better(const struct frontier_csv *points, size_t n, int i_stage,
                       double t_s, double d_s, bool is_strict)
{
    for (size_t i = 0; i < n; i++)
        if (points[i].i_stage == i_stage && points[i].t_s <= t_s &&
            points[i].d_s <= d_s &&
            (!is_strict ||
             (!points[i].is_chosen && (points[i].t_s < t_s || points[i].d_s < d_s))))
            return true;
    return false;
}

/* All that a stage can be without offloading is on its frontier, below it, or does not fit. */
static int compare_frontier(const struct bench *bench, const struct mist_plan *plan,
                            int32_t i_stage, const struct frontier_csv *points, size_t n)
{
    struct mist_search_choice choice = mist_validate_choice(&plan->stages[i_stage]);
    struct mist_search_kind kind = mist_search_stage_kind(
        plan->n_micro_batches, plan->n_stages, i_stage, choice.micro_batch, choice.shape);
    int n_fitting = 0;

    memset(choice.knobs.offload, 0, sizeof choice.knobs.offload);
    choice.knobs.updates_on_host = false;
    for (choice.knobs.n_checkpointed = 0; choice.knobs.n_checkpointed <= choice.n_layers;
         choice.knobs.n_checkpointed++)
        for (choice.knobs.zero = 0; choice.knobs.zero < (choice.shape.dp > 1 ? 4 : 1);
             choice.knobs.zero++)
            for (int lean = 0; lean < 2; lean++) {
                choice.knobs.n_lean =
                    lean * (choice.n_layers - choice.knobs.n_checkpointed);
                must(mist_search_price_choice(&bench->search, &kind, &choice, &err),
                     &err);
                if (choice.peak_bytes > bench->config.limit_bytes ||
                    choice.host_bytes > bench->search.host_limit_bytes)
                    continue;
                n_fitting++;
                assert_true(
                    has_better(points, n, i_stage, choice.t_s, choice.d_s, false));
                break; /* what fits is never made lean */
            }
    return n_fitting;
}

/* Per stage its whole frontier and what is chosen, once, whether that is on it or not. */
TEST(test_frontiers)
{
    enum { MOST = 4096 };
    static struct frontier_csv points[MOST];
    struct bench bench;
    struct mist_validate_result result;
    struct scratch scratch;
    int n_fitting = 0, n_off = 0;

    init(&bench, 4, 1);
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "pareto.csv");
    validate(&bench, &result);
    bench.config.limit_bytes = result.plans[0].planned_bytes * 3 / 4;
    mist_validate_result_fini(&result);
    validate(&bench, &result);
    bench.search.limit_bytes = bench.config.limit_bytes;
    for (size_t p = 0; p < result.n_plans; p++) {
        const struct mist_plan *plan = result.plans[p].plan;
        int n_chosen = 0;
        must(mist_search_log_save_pareto(bench.config.space, &bench.search, plan, path,
                                         true, &err),
             &err);
        size_t n = load_frontiers(path, points, MOST);
        for (size_t i = 0; i < n; i++) {
            const struct frontier_csv *at = &points[i];
            bool is_off = has_better(points, n, at->i_stage, at->t_s, at->d_s, true);
            assert_true(at->is_chosen || !is_off);
            assert_true(i == 0 || at[-1].i_stage < at->i_stage ||
                        (at[-1].i_stage == at->i_stage && at[-1].t_s <= at->t_s));
            n_off += is_off;
            if (!at->is_chosen)
                continue;
            n_chosen++;
            assert_true(fabs(at->t_s / plan->predicted.stable_s[at->i_stage] - 1) < 1e-9);
        }
        assert_int_equal(n_chosen, plan->n_stages);
        for (int32_t i = 0; i < plan->n_stages; i++)
            n_fitting += compare_frontier(&bench, plan, i, points, n);
    }
    print_message("%d configurations without offloading, %d chosen off their frontier\n",
                  n_fitting, n_off);
    assert_true(n_fitting > 0 && n_off > 0);
    scratch_fini(&scratch);
    mist_validate_result_fini(&result);
    fini(&bench);
}

TEST_MAIN(NULL, NULL)
