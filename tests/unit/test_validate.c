/*
 * From candidates to plans, on a made-up cluster: memory by the planner, time by the
 * replay, both asked again here; the loop when the closed form is too optimistic;
 * samples; the search log.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "core/csv.h"
#include "sim/replay.h"
#include "sim/stage_model.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"
#include "tune/sample_plans.h"
#include "tune/search_log.h"
#include "tune/stage_price.h"
#include "tune/validate.h"

#include <math.h>

struct bench {
    struct mist_trace_set traces;
    struct mist_model model;
    struct mist_catalog *catalog;
    struct mist_cost_model *cost_model;
    struct mist_space space;
    struct mist_stage_price *price;
    struct mist_thread_pool *pool;
    struct mist_validate_config config;
    struct mist_search_config search;
};

static struct mist_err err;

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
    traces->cluster.peak_flop_per_s[MIST_TRACE_FP32] = 5e9;
    traces->cluster.memory_bytes_per_s = 1e9;
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

static void init(struct bench *at, int32_t n_ranks, int n_threads)
{
    struct mist_job job = {.global_batch = 8, .seq_len = 32};

    memset(at, 0, sizeof *at);
    make_traces(&at->traces);
    at->model = mist_tiny_model(MIST_FAMILY_GPT, 4);
    assert_int_equal(mist_catalog_new(&at->model, &at->catalog, &err), MIST_OK);
    assert_int_equal(mist_cost_model_new(&at->traces, &at->cost_model, &err), MIST_OK);
    assert_int_equal(
        mist_space_init(&at->space, &at->model, &job, n_ranks, 4, MIST_SPACE_ALL, &err),
        MIST_OK);
    assert_int_equal(mist_stage_price_new(at->catalog, at->cost_model, &at->space, 1,
                                          &at->price, &err),
                     MIST_OK);
    assert_int_equal(mist_thread_pool_new(n_threads, &at->pool, &err), MIST_OK);
    at->config = (struct mist_validate_config){
        .space = &at->space,
        .catalog = at->catalog,
        .cost_model = at->cost_model,
        .trace_set = "traces/quad",
        .fingerprint = 7,
        .limit_bytes = INT64_MAX,
        .threads = 1,
        .n_best = 10,
    };
    at->search = (struct mist_search_config){
        .n_best = 10,
        .keeps_rows = true,
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
    mist_catalog_free(at->catalog);
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
    int64_t most = 0;

    assert_int_equal(mist_plan_check(of->plan, &err), MIST_OK);
    assert_int_equal(mist_plan_n_ranks(of->plan), at->space.n_ranks);
    assert_int_equal(
        mist_replay_run(at->catalog, of->plan, at->cost_model, &options, &replay, &err),
        MIST_OK);
    assert_true(replay.iteration_s == predicted->iteration_s);
    assert_true(replay.error_s == predicted->error_s);
    for (int32_t i = 0; i < of->plan->n_stages; i++) {
        int64_t bytes = replay.stages[i].arena_bytes[MIST_ARENA_DEVICE];
        assert_true(bytes == predicted->peak_bytes[i]);
        assert_true(bytes <= at->config.limit_bytes);
        most = bytes > most ? bytes : most;
    }
    assert_true(most == of->planned_bytes);
    assert_true(of->holds);
    mist_replay_result_fini(&replay);
}

/* t and d of the plan are those that the closed form finds for the whole plan, where all
 * stages have one dp (else it prices transfers between their real sizes). */
static void check_closed_form(const struct bench *at, const struct mist_validated *of)
{
    struct mist_stage_model *model;
    static struct mist_prediction predicted;
    const struct mist_plan *plan = of->plan;

    for (int32_t i = 1; i < plan->n_stages; i++)
        if (plan->stages[i].dp != plan->stages[0].dp)
            return;
    assert_int_equal(mist_stage_model_new(at->catalog, at->cost_model, &at->space.job, 1,
                                          &model, &err),
                     MIST_OK);
    assert_int_equal(mist_stage_model_plan(model, plan, &predicted, &err), MIST_OK);
    assert_true(fabs(predicted.iteration_s - of->closed_s) <= 1e-9 * of->closed_s);
    for (int32_t i = 0; i < plan->n_stages; i++)
        assert_true(fabs(predicted.stable_s[i] - plan->predicted.stable_s[i]) <=
                    1e-9 * predicted.stable_s[i]);
    mist_stage_model_free(model);
}

/* ------------------------------------------------------------------------------ tests */

static void test_plans(void **state)
{
    struct bench bench;
    struct mist_validate_result result;

    (void)state;
    for (int32_t n_ranks = 1; n_ranks <= 4; n_ranks++) {
        init(&bench, n_ranks, 2);
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
}

/* With room for twice as many plans as there are cases, every case is replayed. */
static void test_variety(void **state)
{
    struct bench bench;
    struct mist_validate_result result;

    (void)state;
    init(&bench, 4, 1);
    bench.config.n_best = bench.search.n_best = 2 * (size_t)bench.space.n_cases;
    validate(&bench, &result);
    assert_int_equal(result.n_plans, bench.config.n_best);
    assert_true(result.search.n_candidates > result.n_plans);
    for (int32_t i = 0; i < bench.space.n_cases; i++) {
        size_t k = 0;
        while (k < result.n_plans &&
               (result.plans[k].plan->n_stages != bench.space.cases[i].n_stages ||
                result.plans[k].plan->n_micro_batches !=
                    bench.space.cases[i].n_micro_batches))
            k++;
        assert_true(k < result.n_plans);
    }
    mist_validate_result_fini(&result);
    fini(&bench);
}

/* Under any limit all plans hold, until there is none; then the message says what. */
static void test_limits(void **state)
{
    struct bench bench;
    struct mist_validate_result result;
    enum mist_status status = MIST_OK;
    int n_feasible = 0;

    (void)state;
    init(&bench, 4, 1);
    bench.config.n_best = bench.search.n_best = 4;
    validate(&bench, &result);
    int64_t limit = result.plans[0].planned_bytes;
    mist_validate_result_fini(&result);
    for (; status == MIST_OK; limit = limit * 15 / 16) {
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
                                      const struct mist_search_block *block,
                                      struct mist_err *error)
{
    enum mist_status status = mist_stage_price_block(context, kind, block, error);

    for (size_t i = 0; i < block->n; i++)
        block->peak_bytes[i] -= block->peak_bytes[i] / 4;
    return status;
}

/* Whatever the limit: where the honest closed form leads to a plan, the other one does,
 * too, and to one that holds and is not much slower. */
static void test_optimism(void **state)
{
    struct bench bench;
    struct mist_validate_result honest, result;
    int64_t limit;
    int n_cases = 0, n_repeated = 0;

    (void)state;
    init(&bench, 2, 2);
    bench.config.n_best = bench.search.n_best = 1;
    validate(&bench, &honest);
    limit = honest.plans[0].planned_bytes;
    mist_validate_result_fini(&honest);
    for (; n_cases < 40; n_cases++, limit -= limit / 64) {
        bench.config.limit_bytes = limit;
        bench.search.price = mist_stage_price_block;
        if (mist_validate_run(&bench.config, &bench.search, &honest, &err) != MIST_OK)
            break;
        bench.search.price = price_too_low;
        validate(&bench, &result);
        n_repeated += result.n_rounds > 1;
        assert_int_equal(result.n_rounds > 1, result.n_dropped > 0);
        check_plan(&bench, &result.plans[0]);
        assert_true(result.plans[0].plan->predicted.iteration_s <=
                    1.1 * honest.plans[0].plan->predicted.iteration_s);
        mist_validate_result_fini(&honest);
        mist_validate_result_fini(&result);
    }
    assert_true(n_cases > 5);
    assert_true(n_repeated > 3);
    fini(&bench);
}

static void test_threads(void **state)
{
    struct bench one, three;
    struct mist_validate_result a, b;

    (void)state;
    init(&one, 4, 1);
    init(&three, 4, 3);
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

static void test_no_case(void **state)
{
    struct bench bench;
    struct mist_validate_result result;

    (void)state;
    init(&bench, 4, 1);
    bench.space.n_cases = 0;
    assert_int_equal(mist_validate_run(&bench.config, &bench.search, &result, &err),
                     MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "can't be spread over 4 ranks"));
    fini(&bench);
}

/* Stopped at once: nothing was found. Nothing is left behind either. */
static void test_stop(void **state)
{
    struct bench bench;
    struct mist_validate_result result;
    volatile sig_atomic_t is_over = 1;

    (void)state;
    init(&bench, 4, 2);
    bench.search.is_over = &is_over;
    assert_int_equal(mist_validate_run(&bench.config, &bench.search, &result, &err),
                     MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "stopped"));
    fini(&bench);
}

static void test_memory_limit(void **state)
{
    struct mist_cluster cluster = {.backend = MIST_TRACE_CPU,
                                   .runtime_memory_bytes = 300};
    int64_t limit;

    (void)state;
    assert_int_equal(mist_validate_limit(&cluster, 1000, &limit, &err), MIST_OK);
    assert_true(limit == 1000);
    cluster.backend = MIST_TRACE_CUDA;
    assert_int_equal(mist_validate_limit(&cluster, 1000, &limit, &err), MIST_OK);
    assert_true(limit == 700);
    assert_int_equal(mist_validate_limit(&cluster, 300, &limit, &err), MIST_ERR_USAGE);
    assert_int_equal(mist_validate_limit(&cluster, 0, &limit, &err), MIST_OK);
    assert_true(limit == INT64_MAX);
}

static void test_samples(void **state)
{
    enum { N = 24 };
    struct bench bench;
    struct mist_validated plans[2][N];
    size_t n[2];
    int n_same = 0;
    unsigned seen_stages = 0;

    (void)state;
    init(&bench, 4, 1);
    for (int k = 0; k < 2; k++)
        assert_int_equal(mist_sample_plans(&bench.config, mist_stage_price_block,
                                           bench.price, 5, N, plans[k], &n[k], &err),
                         MIST_OK);
    assert_int_equal(n[0], N);
    assert_int_equal(n[1], N);
    for (size_t i = 0; i < N; i++) {
        check_plan(&bench, &plans[0][i]);
        seen_stages |= 1u << plans[0][i].plan->n_stages;
        assert_memory_equal(plans[0][i].plan->stages, plans[1][i].plan->stages,
                            sizeof plans[0][i].plan->stages);
        for (size_t k = 0; k < i; k++) {
            const struct mist_plan *a = plans[0][i].plan, *b = plans[0][k].plan;
            n_same += a->n_micro_batches == b->n_micro_batches &&
                      memcmp(a->stages, b->stages, sizeof a->stages) == 0;
        }
    }
    assert_int_equal(n_same, 0);
    assert_int_equal(seen_stages, 2 | 4 | 8 | 16); /* 1 to 4 stages */
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; i < N; i++)
            free(plans[k][i].plan);
    fini(&bench);
}

/* The log holds every configuration once, and those of the best plan are marked. */
static void test_log(void **state)
{
    static const struct mist_csv_column columns[] = {
        {"role", MIST_CSV_REQUIRED},
        {"in_flight", MIST_CSV_REQUIRED},
        {"micro_batches", MIST_CSV_REQUIRED},
        {"micro_batch", MIST_CSV_REQUIRED},
        {"dp", MIST_CSV_REQUIRED},
        {"layers", MIST_CSV_REQUIRED},
        {"checkpointed_layers", MIST_CSV_REQUIRED},
        {"zero", MIST_CSV_REQUIRED},
        {"stable_s", MIST_CSV_REQUIRED},
        {"extra_s", MIST_CSV_REQUIRED},
        {"peak_bytes", MIST_CSV_REQUIRED},
        {"on_frontier", MIST_CSV_REQUIRED},
        {"chosen", MIST_CSV_REQUIRED},
        {"why", MIST_CSV_REQUIRED}};
    static const struct mist_csv_column pareto[] = {{"stage", MIST_CSV_REQUIRED},
                                                    {"t_s", MIST_CSV_REQUIRED},
                                                    {"d_s", MIST_CSV_REQUIRED},
                                                    {"chosen", MIST_CSV_REQUIRED}};
    struct bench bench;
    struct mist_validate_result result;
    struct scratch scratch;
    struct mist_csv *csv;
    int32_t n_chosen = 0;

    (void)state;
    init(&bench, 4, 1);
    validate(&bench, &result);
    const struct mist_plan *best = result.plans[0].plan;
    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "log.csv");
    assert_int_equal(mist_search_log_save(result.search.rows, result.search.n_rows,
                                          bench.config.limit_bytes, best, path, false,
                                          &err),
                     MIST_OK);
    assert_int_equal(mist_csv_load(path, columns, 14, &csv, &err), MIST_OK);
    assert_int_equal(mist_csv_n_rows(csv), result.search.n_priced);
    for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
        bool chosen = strcmp(mist_csv_text(csv, i, 12), "1") == 0;
        n_chosen += chosen;
        assert_int_equal(chosen, mist_csv_text(csv, i, 13)[0] == '\0');
    }
    assert_true(n_chosen > 0 && n_chosen <= best->n_stages);
    mist_csv_free(csv);
    path = scratch_path(&scratch, "pareto.csv");
    assert_int_equal(mist_search_log_save_pareto(result.search.rows, result.search.n_rows,
                                                 best, path, false, &err),
                     MIST_OK);
    assert_int_equal(mist_csv_load(path, pareto, 4, &csv, &err), MIST_OK);
    n_chosen = 0;
    for (size_t i = 0; i < mist_csv_n_rows(csv); i++)
        n_chosen += strcmp(mist_csv_text(csv, i, 3), "1") == 0;
    assert_int_equal(n_chosen, best->n_stages);
    mist_csv_free(csv);
    scratch_fini(&scratch);
    mist_validate_result_fini(&result);
    fini(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_variety), cmocka_unit_test(test_optimism),
        cmocka_unit_test(test_threads), cmocka_unit_test(test_no_case),
        cmocka_unit_test(test_stop),    cmocka_unit_test(test_memory_limit),
        cmocka_unit_test(test_samples), cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
