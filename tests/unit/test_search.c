/*
 * The search against plain enumeration. Prices are drawn at random on a grid of 1/1024 s,
 * so that every sum is exact and the formula of the iteration time can be compared digit
 * by digit with the recursion that the search uses. The enumeration below shares nothing
 * with the space or the search: it tries every G, every number of stages, every dp, every
 * split and every knob.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "core/random.h"
#include "tune/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_STAGES = 4, LAYERS = 4, MAX_PLANS = 400000 };

static const struct mist_model model = {
    .name = "four", .n_layers = LAYERS, .hidden = 8, .n_heads = 1, .n_kv_heads = 1};

static uint64_t get_seed(void)
{
    const char *text = getenv("MIST_SEED");
    return text ? strtoull(text, NULL, 10) : 20252;
}

/* ----------------------------------------------------------------------------- prices */

static double draw(uint64_t seed, const struct mist_search_kind *kind, int32_t n_layers,
                   int32_t n_checkpointed, int32_t zero, uint64_t what)
{
    uint64_t index = (uint64_t)kind->role;

    index = index * 16 + (uint64_t)kind->in_flight;
    index = index * 64 + (uint64_t)kind->n_micro_batches;
    index = index * 64 + (uint64_t)kind->micro_batch;
    index = index * 16 + (uint64_t)kind->dp;
    index = index * 16 + (uint64_t)n_layers;
    index = index * 16 + (uint64_t)n_checkpointed;
    index = index * 2 + (uint64_t)zero;
    return mist_random_uniform_at(seed, what, index);
}

static void price_one(uint64_t seed, const struct mist_search_kind *kind,
                      int32_t n_layers, int32_t n_checkpointed, int32_t zero, double *t_s,
                      double *d_s, int64_t *peak_bytes)
{
    double work = n_layers * kind->micro_batch + 1.0;

    *t_s =
        floor(1024 * work * draw(seed, kind, n_layers, n_checkpointed, zero, 1)) / 1024;
    *d_s =
        floor(2048 * work * draw(seed, kind, n_layers, n_checkpointed, zero, 2)) / 1024 -
        work / 4;
    *peak_bytes = (int64_t)(1000 * draw(seed, kind, n_layers, n_checkpointed, zero, 3));
}

static enum mist_status price(void *context, const struct mist_search_kind *kind,
                              const struct mist_search_block *block, struct mist_err *err)
{
    (void)err;
    for (size_t i = 0; i < block->n; i++)
        price_one(*(const uint64_t *)context, kind, block->n_layers[i],
                  block->n_checkpointed[i], block->zero[i], &block->t_s[i],
                  &block->d_s[i], &block->peak_bytes[i]);
    return MIST_OK;
}

/* ------------------------------------------------------------------------ brute force */

struct brute {
    uint64_t seed;
    unsigned groups;
    int32_t n_ranks, global_batch;
    int64_t limit_bytes;
    int32_t g, n_stages;
    double t_s[MAX_STAGES], d_s[MAX_STAGES], folded_s[MAX_STAGES];
    int32_t layers[MAX_STAGES], dps[MAX_STAGES];
    double n_plans;
    double best_s, best_folded_s; /* INFINITY: no plan */
    int64_t closest_bytes;        /* whatever the limit */
    double split_s[1 << 16];      /* best by (g, stages, layers, dp): hashed exactly */
    int32_t split_key[1 << 16][2 * MAX_STAGES + 2];
    size_t n_splits;
};

static bool has(const struct brute *at, enum mist_space_group group)
{
    return (at->groups >> group & 1u) != 0;
}

static void note_split(struct brute *at, double time_s)
{
    int32_t key[2 * MAX_STAGES + 2] = {at->g, at->n_stages};
    size_t i = 0;

    for (int32_t s = 0; s < at->n_stages; s++) {
        key[2 + s] = at->layers[s];
        key[2 + MAX_STAGES + s] = at->dps[s];
    }
    while (i < at->n_splits && memcmp(at->split_key[i], key, sizeof key) != 0)
        i++;
    if (i == at->n_splits) {
        memcpy(at->split_key[at->n_splits++], key, sizeof key);
        at->split_s[i] = INFINITY;
    }
    at->split_s[i] = time_s < at->split_s[i] ? time_s : at->split_s[i];
}

/* (G - 1) max t + sum t + max(0, max (d_i - sum_{j<i} t_j)), as it is written. */
static double formula(int32_t g, int32_t n, const double *t_s, const double *d_s)
{
    double most = 0, sum = 0, late = 0;

    for (int32_t i = 0; i < n; i++) {
        most = fmax(most, t_s[i]);
        late = fmax(late, d_s[i] - sum);
        sum += t_s[i];
    }
    return (g - 1) * most + sum + late;
}

static void finish_plan(struct brute *at, int64_t peak_bytes)
{
    static const double none[MAX_STAGES];
    double time_s = formula(at->g, at->n_stages, at->t_s, at->d_s);
    double folded_s = formula(at->g, at->n_stages, at->folded_s, none);

    at->n_plans++;
    if (peak_bytes < at->closest_bytes)
        at->closest_bytes = peak_bytes;
    if (peak_bytes > at->limit_bytes)
        return;
    at->best_s = fmin(at->best_s, time_s);
    at->best_folded_s = fmin(at->best_folded_s, folded_s);
    note_split(at, time_s);
}

static void try_stage(struct brute *at, int32_t i, int32_t layers, int32_t ranks,
                      int64_t peak_bytes)
{
    int32_t samples = at->global_batch / at->g, left = at->n_stages - i - 1;

    if (i == at->n_stages) {
        if (layers == 0 && ranks == 0)
            finish_plan(at, peak_bytes);
        return;
    }
    for (int32_t l = 1; l <= layers - left; l++)
        for (int32_t dp = 1; dp <= ranks - left; dp++) {
            if (samples % dp != 0)
                continue;
            if (!has(at, MIST_SPACE_IMBALANCE) && l * at->n_stages != LAYERS)
                continue;
            if (!has(at, MIST_SPACE_MESH) && dp * at->n_stages != at->n_ranks)
                continue;
            struct mist_search_kind kind = {
                .role = at->n_stages == 1       ? MIST_SEARCH_ONLY
                        : i == 0                ? MIST_SEARCH_FIRST
                        : i == at->n_stages - 1 ? MIST_SEARCH_LAST
                                                : MIST_SEARCH_MIDDLE,
                .in_flight = at->n_stages - i < at->g ? at->n_stages - i : at->g,
                .n_micro_batches = at->g,
                .micro_batch = samples / dp,
                .dp = dp,
            };
            for (int32_t c = 0; c <= (has(at, MIST_SPACE_CKPT) ? l : 0); c++)
                for (int32_t z = 0; z <= (has(at, MIST_SPACE_ZERO) && dp > 1 ? 1 : 0);
                     z++) {
                    int64_t bytes;
                    price_one(at->seed, &kind, l, c, z, &at->t_s[i], &at->d_s[i], &bytes);
                    at->folded_s[i] = fmax(at->t_s[i] + at->d_s[i] / at->g, 0);
                    at->layers[i] = l;
                    at->dps[i] = dp;
                    try_stage(at, i + 1, layers - l, ranks - dp,
                              bytes > peak_bytes ? bytes : peak_bytes);
                }
        }
}

static void enumerate(struct brute *at)
{
    at->n_plans = 0;
    at->n_splits = 0;
    at->best_s = at->best_folded_s = INFINITY;
    at->closest_bytes = INT64_MAX;
    for (at->g = 1; at->g <= at->global_batch; at->g++)
        for (at->n_stages = 1; at->n_stages <= MAX_STAGES; at->n_stages++)
            if (at->global_batch % at->g == 0)
                try_stage(at, 0, LAYERS, at->n_ranks, 0);
}

/* ---------------------------------------------------------------------------- helpers */

static void init_space(struct mist_space *space, int32_t n_ranks, int32_t global_batch,
                       unsigned groups)
{
    struct mist_job job = {.global_batch = global_batch, .seq_len = 8};
    struct mist_err err;

    assert_int_equal(mist_space_init(space, &model, &job, n_ranks, 64, groups, &err),
                     MIST_OK);
}

static void search(const struct mist_space *space, uint64_t seed, int64_t limit_bytes,
                   size_t n_best, int n_threads, struct mist_search_result *result)
{
    struct mist_thread_pool *pool;
    struct mist_err err;

    assert_int_equal(mist_thread_pool_new(n_threads, &pool, &err), MIST_OK);
    struct mist_search_config config = {
        .limit_bytes = limit_bytes,
        .n_best = n_best,
        .price = price,
        .price_context = &seed,
        .pool = pool,
        .keeps_rows = true,
    };
    assert_int_equal(mist_search_run(space, &config, result, &err), MIST_OK);
    mist_thread_pool_free(pool);
}

static const unsigned all_groups[] = {
    MIST_SPACE_ALL,
    1u << MIST_SPACE_3D,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_ZERO,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_CKPT,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_IMBALANCE,
    1u << MIST_SPACE_3D | 1u << MIST_SPACE_MESH | 1u << MIST_SPACE_ZERO,
    MIST_SPACE_ALL & ~(1u << MIST_SPACE_MESH),
    MIST_SPACE_ALL & ~(1u << MIST_SPACE_IMBALANCE),
};
enum { N_GROUPS = sizeof all_groups / sizeof *all_groups };

/* ------------------------------------------------------------------------------ tests */

/* Optimum, number of plans and least memory, over groups, ranks, batches and limits. */
static void test_optimum(void **state)
{
    static struct brute brute;
    static const int64_t limits[] = {INT64_MAX, 800, 500, 250, 60, 0};
    uint64_t seed = get_seed();
    int n_feasible = 0;

    (void)state;
    printf("# MIST_SEED=%" PRIu64 "\n", seed);
    for (int i = 0; i < 120; i++) {
        struct mist_space space;
        struct mist_search_result result;
        brute.seed = seed + (uint64_t)i;
        brute.groups = all_groups[i % N_GROUPS];
        brute.n_ranks = 1 + i % 5;
        brute.global_batch = i % 3 == 0 ? 4 : i % 3 == 1 ? 6 : 3;
        brute.limit_bytes = limits[i / N_GROUPS % 6];
        enumerate(&brute);
        init_space(&space, brute.n_ranks, brute.global_batch, brute.groups);
        search(&space, brute.seed, brute.limit_bytes, 3, 1, &result);
        assert_true(mist_space_n_plans(&space) == brute.n_plans);
        assert_true(result.closest_bytes == brute.closest_bytes);
        if (isinf(brute.best_s)) {
            assert_int_equal(result.n_candidates, 0);
        } else {
            n_feasible++;
            assert_true(result.n_candidates > 0);
            if (has(&brute, MIST_SPACE_IMBALANCE))
                assert_true(result.candidates[0].time_s == brute.best_s);
            else /* t + d / G is no longer on the grid */
                assert_true(fabs(result.candidates[0].rank_s - brute.best_folded_s) <=
                            1e-12 * brute.best_folded_s);
        }
        mist_search_result_fini(&result);
        mist_space_fini(&space);
    }
    assert_true(n_feasible > 30);
}

/* With room for all splits, the candidates are the best plans of all splits. */
static void test_splits(void **state)
{
    static struct brute brute;

    (void)state;
    for (uint64_t i = 0; i < 6; i++) {
        struct mist_space space;
        struct mist_search_result result;
        brute.seed = get_seed() + 1000 + i;
        brute.groups = MIST_SPACE_ALL;
        brute.n_ranks = 3 + (int32_t)(i % 2);
        brute.global_batch = 4;
        brute.limit_bytes = i % 2 == 0 ? 700 : INT64_MAX;
        enumerate(&brute);
        init_space(&space, brute.n_ranks, brute.global_batch, brute.groups);
        search(&space, brute.seed, brute.limit_bytes, 1000, 2, &result);
        assert_int_equal(result.n_candidates, brute.n_splits);
        for (size_t k = 0; k < result.n_candidates; k++) {
            const struct mist_search_candidate *of = &result.candidates[k];
            int32_t key[2 * MAX_STAGES + 2] = {space.cases[of->i_case].n_micro_batches,
                                               of->n_stages};
            size_t found = 0;
            for (int32_t s = 0; s < of->n_stages; s++) {
                key[2 + s] = of->stages[s].n_layers;
                key[2 + MAX_STAGES + s] = of->stages[s].dp;
                assert_true(of->stages[s].peak_bytes <= brute.limit_bytes);
            }
            while (found < brute.n_splits &&
                   memcmp(brute.split_key[found], key, sizeof key) != 0)
                found++;
            assert_true(found < brute.n_splits);
            assert_true(of->time_s == brute.split_s[found]);
            assert_true(k == 0 || of->rank_s >= of[-1].rank_s);
        }
        mist_search_result_fini(&result);
        mist_space_fini(&space);
    }
}

static double find_best(uint64_t seed, unsigned groups, int64_t limit_bytes)
{
    struct mist_space space;
    struct mist_search_result result;

    init_space(&space, 4, 4, groups);
    search(&space, seed, limit_bytes, 1, 1, &result);
    double best_s = result.n_candidates > 0 ? result.candidates[0].time_s : INFINITY;
    mist_search_result_fini(&result);
    mist_space_fini(&space);
    return best_s;
}

/* A tighter limit and fewer knobs are never faster. */
static void test_monotony(void **state)
{
    (void)state;
    for (uint64_t seed = get_seed(); seed < get_seed() + 10; seed++) {
        double last_s = 0;
        for (int64_t limit = 1000; limit >= 0; limit -= 50) {
            double best_s = find_best(seed, MIST_SPACE_ALL, limit);
            assert_true(best_s >= last_s);
            last_s = best_s;
        }
        assert_true(isinf(last_s));
        for (int i = 1; i < N_GROUPS; i++)
            assert_true(find_best(seed, all_groups[i], 700) >=
                        find_best(seed, MIST_SPACE_ALL, 700));
    }
}

static void test_threads(void **state)
{
    struct mist_space space;
    struct mist_search_result one, many;

    (void)state;
    init_space(&space, 4, 4, MIST_SPACE_ALL);
    search(&space, get_seed(), 700, 8, 1, &one);
    for (int n_threads = 2; n_threads <= 5; n_threads++) {
        search(&space, get_seed(), 700, 8, n_threads, &many);
        assert_int_equal(one.n_candidates, many.n_candidates);
        assert_int_equal(one.n_rows, many.n_rows);
        for (size_t i = 0; i < one.n_candidates; i++) {
            assert_true(one.candidates[i].time_s == many.candidates[i].time_s);
            assert_int_equal(one.candidates[i].i_case, many.candidates[i].i_case);
            for (int32_t s = 0; s < one.candidates[i].n_stages; s++) {
                const struct mist_search_choice *a = &one.candidates[i].stages[s];
                const struct mist_search_choice *b = &many.candidates[i].stages[s];
                assert_int_equal(a->n_layers, b->n_layers);
                assert_int_equal(a->n_checkpointed, b->n_checkpointed);
                assert_int_equal(a->zero, b->zero);
                assert_int_equal(a->dp, b->dp);
            }
        }
        for (size_t i = 0; i < one.n_rows; i++)
            assert_true(one.rows[i].t_s == many.rows[i].t_s &&
                        one.rows[i].fate == many.rows[i].fate);
        mist_search_result_fini(&many);
    }
    mist_search_result_fini(&one);
    mist_space_fini(&space);
}

/* The log says of every configuration what is true of it. */
static void test_rows(void **state)
{
    struct mist_space space;
    struct mist_search_result result;
    int64_t n_fitting = 0, n_frontier = 0;

    (void)state;
    init_space(&space, 4, 4, MIST_SPACE_ALL);
    search(&space, get_seed(), 700, 2, 2, &result);
    assert_int_equal(result.n_rows, result.n_priced);
    for (size_t i = 0; i < result.n_rows; i++) {
        const struct mist_search_row *row = &result.rows[i];
        bool is_dominated = false;
        n_fitting += row->peak_bytes <= 700;
        n_frontier += row->fate == MIST_FATE_FRONTIER;
        assert_int_equal(row->fate == MIST_FATE_OVER_LIMIT, row->peak_bytes > 700);
        if (row->peak_bytes > 700)
            continue;
        for (size_t k = 0; k < result.n_rows; k++) {
            const struct mist_search_row *other = &result.rows[k];
            if (memcmp(&other->kind, &row->kind, sizeof row->kind) != 0 ||
                other->n_layers != row->n_layers || other->peak_bytes > 700 || k == i)
                continue;
            bool is_equal = other->t_s == row->t_s && other->d_s == row->d_s;
            is_dominated =
                is_dominated || (other->t_s <= row->t_s && other->d_s <= row->d_s &&
                                 (!is_equal || k < i));
        }
        assert_int_equal(row->fate,
                         is_dominated ? MIST_FATE_DOMINATED : MIST_FATE_FRONTIER);
    }
    assert_int_equal(n_fitting, result.n_fitting);
    assert_int_equal(n_frontier, result.n_frontier);
    mist_search_result_fini(&result);
    mist_space_fini(&space);
}

/* GLPK finds what the exact solver finds. */
static void test_glpk(void **state)
{
    struct mist_space space;
    struct mist_search_result exact, result;
    struct mist_thread_pool *pool;
    struct mist_err err;
    uint64_t seed = get_seed();

    (void)state;
    init_space(&space, 3, 6, MIST_SPACE_ALL);
    search(&space, seed, 800, 1, 1, &exact);
    assert_int_equal(mist_thread_pool_new(2, &pool, &err), MIST_OK);
    struct mist_search_config config = {
        .limit_bytes = 800,
        .n_best = 1,
        .solver = MIST_SOLVER_BOTH,
        .glpk_time_limit_s = 60,
        .price = price,
        .price_context = &seed,
        .pool = pool,
    };
    assert_int_equal(mist_search_run(&space, &config, &result, &err), MIST_OK);
    assert_true(result.glpk.n_cases > 3);
    assert_int_equal(result.glpk.n_optimal, result.glpk.n_cases);
    assert_int_equal(result.glpk.n_differ, 0);
    mist_search_result_fini(&result);
    config.solver = MIST_SOLVER_GLPK;
    assert_int_equal(mist_search_run(&space, &config, &result, &err), MIST_OK);
    assert_true(fabs(result.candidates[0].time_s - exact.candidates[0].time_s) <=
                1e-6 * exact.candidates[0].time_s);
    mist_search_result_fini(&result);
    mist_search_result_fini(&exact);
    mist_thread_pool_free(pool);
    mist_space_fini(&space);
}

static void test_stop(void **state)
{
    struct mist_space space;
    struct mist_search_result result;
    struct mist_thread_pool *pool;
    struct mist_err err;
    uint64_t seed = get_seed();
    volatile sig_atomic_t is_over = 1;

    (void)state;
    init_space(&space, 3, 6, MIST_SPACE_ALL);
    assert_int_equal(mist_thread_pool_new(1, &pool, &err), MIST_OK);
    struct mist_search_config config = {
        .limit_bytes = 800,
        .n_best = 1,
        .price = price,
        .price_context = &seed,
        .pool = pool,
        .is_over = &is_over,
    };
    assert_int_equal(mist_search_run(&space, &config, &result, &err), MIST_OK);
    assert_int_equal(result.n_cases_done, 0);
    assert_int_equal(result.n_candidates, 0);
    mist_search_result_fini(&result);
    mist_thread_pool_free(pool);
    mist_space_fini(&space);
}

static void test_groups(void **state)
{
    struct mist_err err;
    unsigned groups = 0;

    (void)state;
    assert_int_equal(mist_space_add_group("ckpt", &groups, &err), MIST_OK);
    assert_int_equal(groups, 1u << MIST_SPACE_CKPT);
    assert_int_equal(mist_space_add_group("offload", &groups, &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "can't be searched yet"));
    assert_int_equal(mist_space_add_group("tp", &groups, &err), MIST_ERR_USAGE);
    assert_int_equal(mist_space_add_group("4d", &groups, &err), MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "'4d'"));
    assert_int_equal(groups, 1u << MIST_SPACE_CKPT);
}

/* Meshes on several nodes: whole nodes or equal parts of one. */
static void test_nodes(void **state)
{
    struct mist_space space;
    struct mist_job job = {.global_batch = 12, .seq_len = 8};
    struct mist_err err;

    (void)state;
    assert_int_equal(mist_space_init(&space, &model, &job, 12, 4, MIST_SPACE_ALL, &err),
                     MIST_OK);
    for (int32_t i = 0; i < space.n_cases; i++)
        for (int32_t k = 0; k < space.cases[i].n_dps; k++)
            assert_true(space.cases[i].dps[k] != 3 && space.cases[i].dps[k] != 6);
    assert_true(space.n_cases > 0);
    mist_space_fini(&space);
    assert_int_equal(mist_space_init(&space, &model, &job, 0, 4, MIST_SPACE_ALL, &err),
                     MIST_ERR_USAGE);
    mist_space_fini(&space);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_optimum),  cmocka_unit_test(test_splits),
        cmocka_unit_test(test_monotony), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_rows),     cmocka_unit_test(test_glpk),
        cmocka_unit_test(test_stop),     cmocka_unit_test(test_groups),
        cmocka_unit_test(test_nodes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
