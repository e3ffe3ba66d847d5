/* The profiler: estimates, the grid, mixtures, and one session on one rank. No test looks
 * at how long anything takes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/random.h"
#include "exec/comm.h"
#include "profile/drift.h"
#include "profile/output.h"
#include "profile/profile.h"
#include "scratch.h"
#include "sim/interference.h"
#include "sim/schedule.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%.17g, expected %.17g +- %g", value, expected, tolerance);
}

static struct mist_model tiny_model(void)
{
    struct mist_model model = {.name = "tiny",
                               .family = MIST_FAMILY_GPT,
                               .n_layers = 3,
                               .hidden = 32,
                               .n_heads = 2,
                               .n_kv_heads = 2,
                               .head_dim = 16,
                               .ffn = 128,
                               .vocab = 50,
                               .max_seq = 16,
                               .has_bias = true,
                               .norm_epsilon = 1e-5};

    assert_int_equal(mist_model_check(&model, NULL), MIST_OK);
    return model;
}

static void make_grid(const struct mist_model *model, int32_t seq_len, int32_t n_ranks,
                      struct mist_grid *grid)
{
    struct mist_grid_config config = {.model = *model,
                                      .seq_len = seq_len,
                                      .n_micro_batches = 2,
                                      .micro_batches = {1, 4},
                                      .n_ranks = n_ranks,
                                      .n_threads = 1,
                                      .is_quick = true};
    struct mist_catalog *catalog;

    assert_int_equal(mist_catalog_new(model, &catalog, NULL), MIST_OK);
    assert_int_equal(mist_grid_make(catalog, &config, grid, NULL), MIST_OK);
    mist_catalog_free(catalog);
}

/* ---- statistics ---- */

static void estimates_leave_out_what_is_far(void **state)
{
    double plain[] = {3, 1, 2, 4, 5};
    double spiked[] = {10, 11, 9, 10, 11, 9, 10, 500, 10, 11, 9, 0.1};
    double equal[] = {7, 7, 7, 7, 7.1, 9};
    struct mist_estimate estimate = mist_estimate_make(plain, 5);

    (void)state;
    assert_near(estimate.mean, 3, 1e-12);
    assert_near(estimate.deviation, sqrt(2.5), 1e-12);
    assert_near(estimate.half_width_frac, 1.96 * sqrt(2.5) / sqrt(5) / 3, 1e-12);
    assert_int_equal(estimate.n, 5);
    estimate = mist_estimate_make(spiked, 12);
    assert_int_equal(estimate.n_outliers, 2);
    assert_near(estimate.mean, 10, 1e-12);
    /* no spread at all: 5 % of the median is still near */
    estimate = mist_estimate_make(equal, 6);
    assert_int_equal(estimate.n_outliers, 1);
    assert_true(estimate.low <= 7 && estimate.high >= 7.1 && estimate.high < 9);
    assert_near(estimate.mean, 35.1 / 5, 1e-12);
}

static void estimates_of_little_say_so(void **state)
{
    double one[] = {4};
    struct mist_estimate none = mist_estimate_make(NULL, 0);
    struct mist_estimate single = mist_estimate_make(one, 1);

    (void)state;
    assert_int_equal(none.n, 0);
    assert_near(none.half_width_frac, 1, 0);
    assert_near(single.mean, 4, 0);
    assert_near(single.deviation, 0, 0);
    assert_near(single.half_width_frac, 1, 0);
}

/* Pooling equal parts is, but for n against n - 1, one estimate of all their values. */
static void pooling_is_one_estimate_of_all(void **state)
{
    enum { N_PARTS = 3, N = 2000 };
    struct mist_estimate parts[N_PARTS + 1] = {{0}};
    static double all[N_PARTS * N], part[N];
    struct mist_random random;

    (void)state;
    mist_random_init(&random, 5);
    for (int k = 0; k < N_PARTS; k++) {
        for (int i = 0; i < N; i++)
            all[k * N + i] = part[i] = 100 + k + mist_random_uniform(&random);
        parts[k] = mist_estimate_make(part, N);
    }
    parts[N_PARTS] = mist_estimate_make(NULL, 0); /* a rank that took no part */
    struct mist_estimate pooled = mist_estimate_pool(parts, N_PARTS + 1);
    struct mist_estimate direct = mist_estimate_make(all, N_PARTS * N);
    assert_int_equal(pooled.n, N_PARTS * N);
    assert_near(pooled.mean, direct.mean, 1e-9);
    assert_near(pooled.deviation, direct.deviation, 1e-3);
    assert_near(pooled.half_width_frac, direct.half_width_frac, 1e-6);
    assert_int_equal(mist_estimate_pool(&parts[N_PARTS], 1).n, 0);
}

/* ---- drift ---- */

/* Three rounds at 1, 1.1 and 0.9 times the means, with runs in other numbers each time.
 */
static void levels_do_not_depend_on_what_ran(void **state)
{
    struct mist_estimate estimates[2] = {{.mean = 10, .low = 5, .high = 20},
                                         {.mean = 1000, .low = 500, .high = 2000}};
    static const int n_runs[3][2] = {{5, 1}, {1, 2}, {20, 0}};
    static const double factors[3] = {1, 1.1, 0.9};
    struct mist_drift drift = {0};
    double levels[4];

    (void)state;
    for (int i = 0; i < 3; i++) {
        drift.n_rounds++;
        for (int32_t key = 0; key < 2; key++)
            for (int k = 0; k < n_runs[i][key]; k++)
                assert_true(
                    mist_drift_add(&drift, key, estimates[key].mean * factors[i]));
    }
    assert_true(mist_drift_add(&drift, 0, 20.5)); /* left out, as of the means */
    assert_true(mist_drift_add(&drift, 1, 499));
    drift.n_rounds++; /* nothing ran */
    assert_true(mist_drift_levels(&drift, estimates, levels));
    for (int i = 0; i < 3; i++)
        assert_near(levels[i], factors[i], 1e-12);
    assert_near(levels[3], 1, 0);
    /* a row of a tenth of the time at twice its mean is a tenth more */
    mist_drift_fini(&drift);
    drift.n_rounds = 1;
    for (int i = 0; i < 100; i++)
        assert_true(mist_drift_add(&drift, 0, i < 10 ? 20 : 10));
    assert_true(mist_drift_levels(&drift, estimates, levels));
    assert_near(levels[0], 1.1, 1e-12);
    mist_drift_fini(&drift);
}

/* By hand: deviations of rounds, then of ranks, then both. */
static void drift_is_of_rounds_and_ranks(void **state)
{
    const double rounds[] = {0.98, 1.02, 1.00};      /* variance 4e-4 */
    const double ranks[] = {1.01, 1.01, 0.99, 0.99}; /* means 0.01 beside 1 */
    const double both[] = {0.99, 1.03, 0.97, 1.01};  /* 8e-4 each; means 1.01, .99 */
    const double three[] = {1.1, 1.1, 1.0, 1.0, 0.9, 0.9}; /* ranks: variance 0.01 */

    (void)state;
    assert_near(mist_drift_frac(rounds, 1, 3), 0.02, 1e-12);
    assert_near(mist_drift_frac(ranks, 2, 2), sqrt(2e-4), 1e-12);
    assert_near(mist_drift_frac(both, 2, 2), sqrt(8e-4 + 2e-4), 1e-12);
    assert_near(mist_drift_frac(three, 3, 2), 0.1, 1e-12);
    assert_near(mist_drift_frac(rounds, 1, 1), 0, 0);
}

/* Levels of a machine whose speed wanders by 3 %, measured with noise of 20 % a run. */
static void drift_is_found_below_noise(void **state)
{
    enum { N_ROUNDS = 400, N_RUNS = 1000 };
    struct mist_drift drift = {0};
    static double levels[N_ROUNDS];
    struct mist_estimate mean = {.mean = 50, .low = -1e9, .high = 1e9};

    (void)state;
    for (uint64_t i = 0; i < N_ROUNDS; i++) {
        double speed = 1 + 0.03 * mist_random_normal_at(3, 0, i);
        drift.n_rounds++;
        for (uint64_t k = 0; k < N_RUNS; k++)
            mist_drift_add(&drift, 0,
                           50 * speed *
                               (1 + 0.2 * mist_random_normal_at(3, 1, i * N_RUNS + k)));
    }
    assert_true(mist_drift_levels(&drift, &mean, levels));
    /* 0.03^2 + 0.2^2 / 1000 of the noise; 400 rounds know a deviation to 3.5 % */
    assert_near(mist_drift_frac(levels, 1, N_ROUNDS), sqrt(9.4e-4), 0.003);
    mist_drift_fini(&drift);
}

/* ---- output ---- */

static void outputs_are_looked_at_and_not_made(void **state)
{
    struct scratch scratch;
    struct mist_err err;

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(mist_profile_check_output(scratch.folder, false, &err), MIST_OK);
    assert_int_equal(
        mist_profile_check_output(scratch_path(&scratch, "a/b//c/"), false, &err),
        MIST_OK);
    assert_int_equal(mist_profile_check_output("nowhere", false, &err), MIST_OK);
    assert_int_equal(mist_profile_check_output("/nowhere", false, &err),
                     access("/", W_OK) == 0 ? MIST_OK : MIST_ERR_IO);
    assert_int_equal(mist_profile_check_output("", false, &err), MIST_ERR_IO);
    assert_int_equal(scratch_count(&scratch), 0);
    scratch_write(scratch_path(&scratch, "links.csv"), "x");
    assert_int_equal(mist_profile_check_output(scratch.folder, false, &err),
                     MIST_ERR_USAGE);
    assert_int_equal(mist_profile_check_output(scratch.folder, true, &err), MIST_OK);
    assert_int_equal(
        mist_profile_check_output(scratch_path(&scratch, "links.csv"), true, &err),
        MIST_ERR_IO);
    assert_int_equal(
        mist_profile_check_output(scratch_path(&scratch, "links.csv/a"), true, &err),
        MIST_ERR_IO);
    scratch_fini(&scratch);
}

/* ---- grid ---- */

static bool has_key(const struct mist_grid *grid, const char *op, const char *phase,
                    const char *shape)
{
    int n = 0;
    char text[MIST_SHAPE_TEXT_MAX];

    for (int32_t i = 0; i < grid->n_keys; i++) {
        const struct mist_grid_key *key = &grid->keys[i];
        mist_op_shape_text(key->op, key->dims, text, sizeof text);
        n += strcmp(mist_op_name(key->op), op) == 0 &&
             strcmp(mist_phase_name(key->phase), phase) == 0 && strcmp(text, shape) == 0;
    }
    assert_true(n <= 1); /* pooled */
    return n == 1;
}

/* The rows that GPT's definition asks for, written down by hand. */
static void grid_has_the_shapes_of_the_model(void **state)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    (void)state;
    make_grid(&model, 16, 2, &grid);
    assert_true(has_key(&grid, "linear_bias", "forward", "rows=16;n_in=32;n_out=96"));
    assert_true(has_key(&grid, "linear_bias", "forward", "rows=64;n_in=32;n_out=128"));
    assert_true(
        has_key(&grid, "linear_bias", "backward_weight", "rows=64;n_in=128;n_out=32"));
    assert_true(has_key(&grid, "linear", "backward_input", "rows=16;n_in=32;n_out=50"));
    assert_true(has_key(&grid, "attention", "backward_input",
                        "batch=4;seq=16;heads=2;kv_heads=2;head_dim=16"));
    assert_true(
        has_key(&grid, "embedding", "backward_weight", "rows=16;hidden=32;vocab=50"));
    assert_true(has_key(&grid, "gelu", "forward", "elements=2048"));
    assert_true(has_key(&grid, "cross_entropy", "forward", "rows=64;vocab=50"));
    /* embedding: (50 + 16) * 32 = 2112 elements; a quarter is 528, a multiple of 16 */
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=2112"));
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=1056"));
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=528"));
    assert_true(has_key(&grid, "zero", "optimizer", "elements=2112"));
    assert_false(has_key(&grid, "linear_bias", "forward", "rows=32;n_in=32;n_out=96"));
    mist_grid_fini(&grid);
}

/* Every step of every program points at the key that is its own. */
static void grid_keys_are_those_of_the_steps(void **state)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;
    char text[2][MIST_SHAPE_TEXT_MAX];
    int n_seen = 0;

    (void)state;
    make_grid(&model, 16, 2, &grid);
    for (int32_t b = 0; b < 2; b++)
        for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
            const struct mist_layer_layout *layout =
                mist_grid_layout(&grid, b, (enum mist_layer_kind)kind);
            assert_int_equal(layout->shape.micro_batch, b ? 4 : 1);
            for (int32_t i = 0; i < layout->n_forward + layout->n_backward; i++) {
                bool back = i >= layout->n_forward;
                int32_t k = back ? i - layout->n_forward : i;
                const struct mist_concrete_step *step =
                    back ? &layout->backward[k] : &layout->forward[k];
                int32_t key = grid.key_of_step[b][kind][back][k];
                if (step->op == MIST_OP_TP_ALL_REDUCE) {
                    assert_int_equal(key, -1);
                    continue;
                }
                assert_in_range(key, 0, grid.n_keys - 1);
                assert_int_equal(grid.keys[key].op, step->op);
                assert_int_equal(grid.keys[key].phase, step->phase);
                assert_string_equal(
                    mist_op_shape_text(step->op, step->dims, text[0], sizeof text[0]),
                    mist_op_shape_text(step->op, grid.keys[key].dims, text[1],
                                       sizeof text[1]));
                assert_near(grid.keys[key].flop, step->flop, 0);
                n_seen++;
            }
        }
    assert_true(n_seen > 40);
    mist_grid_fini(&grid);
}

static bool has_message(const struct mist_grid *grid, enum mist_link_operation operation,
                        int32_t n_ranks, int64_t bytes)
{
    int n = 0;

    for (int32_t i = 0; i < grid->n_messages; i++)
        n += grid->messages[i].operation == operation &&
             grid->messages[i].n_ranks == n_ranks && grid->messages[i].bytes == bytes;
    assert_true(n <= 1);
    return n == 1;
}

static void grid_has_the_messages_of_the_model(void **state)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    (void)state;
    make_grid(&model, 16, 5, &grid);
    for (int32_t n = 2; n <= 4; n *= 2) {
        int64_t block = mist_schedule_padded_elements(
            mist_grid_layout(&grid, 0, MIST_LAYER_BLOCK)->n_parameters, n);
        assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, n, 4 * block));
        assert_true(has_message(&grid, MIST_LINK_REDUCE_SCATTER, n, 4 * block));
        assert_true(has_message(&grid, MIST_LINK_ALL_GATHER, n, 4 * block));
        assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, n, 4096));
    }
    assert_true(has_message(&grid, MIST_LINK_SEND_RECV, 2, 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_SEND_RECV, 2, 4 * 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_HOST_TO_DEVICE, 1, 16 << 20));
    for (int32_t i = 0; i < grid.n_messages; i++) {
        assert_true(grid.messages[i].bytes > 0);
        assert_int_equal(grid.messages[i].bytes % (4 * grid.messages[i].n_ranks), 0);
        assert_in_range(grid.messages[i].n_ranks, 1, 4); /* 5 ranks: no group of 8 */
    }
    mist_grid_fini(&grid);
    make_grid(&model, 16, 1, &grid);
    for (int32_t i = 0; i < grid.n_messages; i++)
        assert_int_equal(grid.messages[i].n_ranks, 1);
    mist_grid_fini(&grid);
}

static void grid_refuses_long_sequences(void **state)
{
    struct mist_grid_config config = {.model = tiny_model(),
                                      .seq_len = 17,
                                      .n_micro_batches = 1,
                                      .micro_batches = {1},
                                      .n_ranks = 1,
                                      .n_threads = 1};
    struct mist_catalog *catalog;
    struct mist_grid grid;
    struct mist_err err;

    (void)state;
    assert_int_equal(mist_catalog_new(&config.model, &catalog, NULL), MIST_OK);
    assert_int_equal(mist_grid_make(catalog, &config, &grid, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "17 tokens"));
    mist_grid_fini(&grid);
    mist_catalog_free(catalog);
}

/* ---- workbench ---- */

static void messages_take_turns_inside_the_region(void **state)
{
    char region[1000];
    const int64_t sizes[] = {1, 64, 100, 300, 500, 990, 1000};

    (void)state;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t turn = 0; turn < 40; turn++) {
            char *at = mist_workbench_turn(region, sizeof region, sizes[i], turn);
            assert_true(at >= region && at + sizes[i] <= region + sizeof region);
            if (sizes[i] <= 300) /* the next one is elsewhere */
                assert_ptr_not_equal(
                    at, mist_workbench_turn(region, sizeof region, sizes[i], turn + 1));
        }
}

static void the_stage_fits_the_memory(void **state)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    (void)state;
    model.n_layers = 12;
    make_grid(&model, 16, 2, &grid);
    assert_int_equal(mist_workbench_n_copies(&grid, INT64_MAX), 6); /* a pipeline of 2 */
    int64_t five = mist_workbench_bytes(&grid, 5);
    assert_int_equal(mist_workbench_n_copies(&grid, five), 5);
    assert_int_equal(mist_workbench_n_copies(&grid, five - 1), 4);
    assert_int_equal(mist_workbench_n_copies(&grid, 1), 0);
    /* one more block: weights, gradients, two moments, saved and one boundary */
    const struct mist_layer_layout *block = mist_grid_layout(&grid, 1, MIST_LAYER_BLOCK);
    assert_int_equal(mist_workbench_bytes(&grid, 6) - five,
                     16 * mist_grid_padded_elements(&grid, MIST_LAYER_BLOCK, 4) +
                         block->saved_bytes + block->input_bytes);
    mist_grid_fini(&grid);
}

/* ---- mixtures ---- */

static void mixtures_cover_all_sets(void **state)
{
    struct mist_mixture all[MIST_MIXTURES_MAX];
    int n_of_set[1 << MIST_N_STREAMS] = {0};

    (void)state;
    /* 6 pairs of 3, 4 triples of 4, 1 of 5; the exchange again in 3, 3 and 1 sets */
    assert_int_equal(mist_mixtures_make(2, false, all), 18 + 16 + 5 + 9 + 12 + 5);
    assert_int_equal(mist_mixtures_make(1, true, all), 3 * 3 + 4);
    int32_t n = mist_mixtures_make(2, true, all);
    assert_int_equal(n, 18 + 16 + 5 + 3);
    for (int32_t i = 0; i < n; i++) {
        n_of_set[all[i].channels]++;
        for (int c = 0; c < MIST_N_STREAMS; c++)
            assert_int_equal(all[i].ratio[c] > 0, all[i].channels >> c & 1u);
        for (int32_t k = 0; k < i; k++)
            assert_false(all[i].channels == all[k].channels &&
                         all[i].exchanges == all[k].exchanges &&
                         memcmp(all[i].ratio, all[k].ratio, sizeof all[i].ratio) == 0);
    }
    for (unsigned set = 0; set < 1u << MIST_N_STREAMS; set++) {
        int n_channels = __builtin_popcount(set);
        assert_true(n_channels < 2 ? n_of_set[set] == 0 : n_of_set[set] >= n_channels);
    }
}

/* Measurements of a machine with known factors give these factors back. */
static void mixtures_determine_the_factors(void **state)
{
    struct mist_mixture all[MIST_MIXTURES_MAX];
    struct mist_interference truth, fitted;
    struct mist_interference_sample samples[MIST_MIXTURES_MAX];
    struct mist_random random;
    int32_t n = mist_mixtures_make(2, true, all);

    (void)state;
    mist_random_init(&random, 3);
    mist_interference_init(&truth);
    for (unsigned set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_STREAMS; c++)
            if (__builtin_popcount(set) > 1 && set >> c & 1u)
                truth.slowdown[set][c] =
                    __builtin_popcount(set) - 0.5 + 0.4 * mist_random_uniform(&random);
    for (int32_t i = 0; i < n; i++) {
        for (int c = 0; c < MIST_N_STREAMS; c++)
            samples[i].isolated_s[c] = 6e-3 * all[i].ratio[c];
        samples[i].together_s = mist_interference_bundle_s(&truth, samples[i].isolated_s);
    }
    assert_int_equal(mist_interference_fit(&fitted, NULL, samples, n, NULL), MIST_OK);
    for (unsigned set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_STREAMS; c++)
            if (__builtin_popcount(set) == 2 && set >> c & 1u)
                assert_near(fitted.slowdown[set][c], truth.slowdown[set][c], 1e-3);
}

/* ---- a session ---- */

/* True for a library whose version is one line of text with a number in it. */
static bool names_library(const struct mist_cluster *cluster, const char *name)
{
    for (int i = 0; i < cluster->n_libraries; i++)
        if (strcmp(cluster->libraries[i].name, name) == 0)
            return strpbrk(cluster->libraries[i].version, "0123456789") &&
                   !strpbrk(cluster->libraries[i].version, "\n\r\t,");
    return false;
}

static void the_library_of_messages_is_known(void **state)
{
    char text[64] = "unset", little[4], one[1] = {'x'};

    (void)state;
    mist_comm_describe(text, sizeof text);
    assert_true(strlen(text) >= 3 && strcmp(text, "unset") != 0);
    mist_comm_describe(little, sizeof little);
    assert_int_equal(strlen(little), 3);
    assert_memory_equal(little, text, 3);
    mist_comm_describe(one, sizeof one);
    assert_int_equal(one[0], 0);
}

static void a_session_fills_a_trace_set(void **state)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;
    struct mist_machine machine;
    struct mist_profile_plan plan;
    struct mist_profile_report report;
    struct mist_trace_set traces, loaded;
    struct mist_comm *comm;
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    make_grid(&model, 16, 1, &grid);
    assert_int_equal(mist_machine_read(&machine, NULL), MIST_OK);
    assert_int_equal(mist_profile_plan(&grid, &machine, 1e10, &plan, NULL), MIST_OK);
    assert_int_equal(plan.n_copies, 4);                  /* more than the model's 3 */
    plan.ops_s = plan.links_s = plan.interference_s = 0; /* the least of everything */
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    mist_trace_set_init(&traces);
    assert_int_equal(
        mist_profile_run(&grid, &machine, &plan, comm, NULL, &traces, &report, NULL),
        MIST_OK);
    mist_comm_close(comm);
    assert_int_equal(traces.n_kernels, grid.n_keys);
    assert_int_equal(traces.n_links, grid.n_messages);
    assert_int_equal(traces.n_interferences, 13);
    assert_true(traces.cluster.launch_us > 0);
    assert_true(traces.cluster.runtime_memory_bytes > 0);
    assert_true(traces.cluster.drift_frac > 0); /* no two rounds take the same time */
    assert_true(traces.cluster.drift_frac == report.drift_frac);
    assert_true(names_library(&traces.cluster, "mpi"));
    assert_true(report.n_runs > 100);
    assert_int_equal(mist_trace_set_save(&traces, scratch.folder, false, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_load(&loaded, scratch.folder, NULL), MIST_OK);
    assert_true(mist_trace_set_fingerprint(&loaded) ==
                mist_trace_set_fingerprint(&traces));
    mist_trace_set_fini(&loaded);
    mist_trace_set_fini(&traces);
    mist_grid_fini(&grid);
    scratch_fini(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(estimates_leave_out_what_is_far),
        cmocka_unit_test(estimates_of_little_say_so),
        cmocka_unit_test(pooling_is_one_estimate_of_all),
        cmocka_unit_test(levels_do_not_depend_on_what_ran),
        cmocka_unit_test(drift_is_of_rounds_and_ranks),
        cmocka_unit_test(drift_is_found_below_noise),
        cmocka_unit_test(outputs_are_looked_at_and_not_made),
        cmocka_unit_test(the_library_of_messages_is_known),
        cmocka_unit_test(grid_has_the_shapes_of_the_model),
        cmocka_unit_test(grid_keys_are_those_of_the_steps),
        cmocka_unit_test(grid_has_the_messages_of_the_model),
        cmocka_unit_test(grid_refuses_long_sequences),
        cmocka_unit_test(messages_take_turns_inside_the_region),
        cmocka_unit_test(the_stage_fits_the_memory),
        cmocka_unit_test(mixtures_cover_all_sets),
        cmocka_unit_test(mixtures_determine_the_factors),
        cmocka_unit_test(a_session_fills_a_trace_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
