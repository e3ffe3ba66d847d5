/* The profiler: drift, the grid, mixtures, and one session on one rank. No test looks
 * at how long anything takes. */
#include "tests/unit/test.h"

#include "core/random.h"
#include "exec/comm/comm.h"
#include "exec/operators/cpu_kernels.h"
#include "profile/drift.h"
#include "profile/output.h"
#include "profile/profile.h"
#include "profile/summary.h"
#include "profile/time_links.h"
#include "profile/time_ops.h"
#include "profile/time_probe.h"
#include "scratch.h"
#include "sim/cost/interference.h"
#include "sim/schedule/module_storage.h"
#include "tests/unit/profile_help.h"
#include "tests/unit/tiny_models.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

static struct mist_model tiny_model(void)
{
    struct mist_model model = mist_small_model(MIST_FAMILY_GPT, 3, 50);

    model.ffn = 128;
    model.max_seq = 16;
    assert_int_equal(mist_model_check(&model, NULL), MIST_OK);
    return model;
}

static void make_grid_on(const struct mist_model *model, int32_t seq_len, int32_t n_nodes,
                         int32_t n_ranks, struct mist_grid *grid)
{
    struct mist_grid_config config = {.model = *model,
                                      .seq_len = seq_len,
                                      .n_micro_batches = 2,
                                      .micro_batches = {1, 4},
                                      .n_nodes = n_nodes,
                                      .n_ranks = n_ranks,
                                      .n_threads = 1,
                                      .is_quick = true};

    assert_int_equal(mist_grid_make(&config, grid, NULL), MIST_OK);
}

static void make_grid(const struct mist_model *model, int32_t seq_len, int32_t n_ranks,
                      struct mist_grid *grid)
{
    make_grid_on(model, seq_len, 1, n_ranks, grid);
}

/* ---- drift ---- */

/* Checks that took 100 where this was predicted; of n_checks mechanisms. */
static void assert_doubt(const double *predicted_us, int n_checks, double drift_frac,
                         const char *expected)
{
    struct mist_trace_set traces;
    struct mist_profile_report report = {.drift_frac = drift_frac};
    char text[256];

    mist_trace_set_init(&traces);
    for (int i = 0; i < n_checks; i++) {
        const struct mist_check_row row = {.mechanism = (enum mist_mechanism)(i + 1),
                                           .predicted_us = predicted_us[i],
                                           .measured_us = 100,
                                           .repetitions = 3};
        assert_int_equal(mist_trace_set_add_check(&traces, &row, NULL), MIST_OK);
    }
    mist_profile_find_doubt(&traces, &report, text, sizeof text);
    if (expected ? !strstr(text, expected) : text[0] != '\0')
        fail_msg("\"%s\", expected \"%s\"", text, expected ? expected : "");
    mist_trace_set_fini(&traces);
}

/* Means and deviations by hand: 109, 111, 110, 104, 116 and 120 have 111.7 +- 5.6, which
 * is 5.1 deviations of the mean from 100; 106, 118, 98 and 106 have 107 +- 8.2, 1.7. */
TEST(a_session_to_repeat_is_said)
{
    const double alike[6] = {109, 111, 110, 104, 116, 120},
                 apart[4] = {106, 118, 98, 106};
    const double slow[3] = {80, 81, 79}, little[4] = {104, 104, 104, 104};

    assert_doubt(alike, 6, 0.02,
                 "took 10 % less than predicted, all alike: the machine was slower");
    assert_doubt(slow, 3, 0.2,
                 "took 25 % more than predicted, all alike: the machine was faster");
    assert_doubt(slow, 2, 0.02, NULL);
    assert_doubt(apart, 4, 0.02, NULL);
    assert_doubt(little, 4, 0.1, NULL);
    assert_doubt(little, 4, 0.14, "14 % faster or slower");
    assert_doubt(NULL, 0, 0.44, "44 % faster or slower");
}

/* Three rounds at 1, 1.1 and 0.9 times the means, with runs in other numbers
 * each time. */
TEST(levels_do_not_depend_on_what_ran)
{
    struct mist_estimate estimates[2] = {{.mean = 10, .low = 5, .high = 20},
                                         {.mean = 1000, .low = 500, .high = 2000}};
    static const int n_runs[3][2] = {{5, 1}, {1, 2}, {20, 0}};
    static const double factors[3] = {1, 1.1, 0.9};
    struct mist_drift drift = {0};
    double levels[4];

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
TEST(drift_is_of_rounds_and_ranks)
{
    double rounds[] = {0.98, 1.02, 1.00};            /* variance 4e-4 */
    double ranks[] = {1.01, 1.01, 0.99, 0.99};       /* means 0.01 beside 1 */
    double both[] = {0.99, 1.03, 0.97, 1.01};        /* 8e-4 each; means 1.01, .99 */
    double three[] = {1.1, 1.1, 1.0, 1.0, 0.9, 0.9}; /* ranks: variance 0.01 */

    assert_near(mist_drift_frac(rounds, 1, 3), 0.02, 1e-12);
    assert_near(mist_drift_frac(ranks, 2, 2), sqrt(2e-4), 1e-12);
    assert_near(mist_drift_frac(both, 2, 2), sqrt(8e-4 + 2e-4), 1e-12);
    assert_near(mist_drift_frac(three, 3, 2), 0.1, 1e-12);
    assert_near(mist_drift_frac(rounds, 1, 1), 0, 0);
}

/* A round in a burst is no level; rounds that are slow half of the time are. */
TEST(drift_leaves_bursts_out)
{
    double burst[] = {0.99, 1.01, 3.00, 0.99, 1.01, 0.99, 1.01, 0.99, 1.01};
    double often[] = {1, 1, 1, 1, 1.5, 1.5, 1.5, 1.5};

    assert_near(mist_drift_frac(burst, 1, 9), sqrt(8e-4 / 7), 1e-12);
    assert_near(mist_drift_frac(often, 1, 8), sqrt(0.5 / 7), 1e-12);
}

/* Levels of a machine whose speed wanders by 3 %, measured with noise of 20 % a run. */
TEST(drift_is_found_below_noise)
{
    enum { N_ROUNDS = 400, N_RUNS = 1000 };
    struct mist_drift drift = {0};
    static double levels[N_ROUNDS];
    struct mist_estimate mean = {.mean = 50, .low = -1e9, .high = 1e9};

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

TEST(outputs_are_looked_at_and_not_made)
{
    struct scratch scratch;
    struct mist_err err;

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
             strcmp(mist_phase_words[key->phase], phase) == 0 && strcmp(text, shape) == 0;
    }
    assert_true(n <= 1); /* pooled */
    return n == 1;
}

/* The rows that GPT's definition asks for, written down by hand. */
TEST(grid_has_the_shapes_of_the_model)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    make_grid(&model, 16, 2, &grid);
    assert_true(has_key(&grid, "linear_bias", "forward", "rows=16;n_in=32;n_out=96"));
    assert_true(has_key(&grid, "linear_gelu", "forward", "rows=64;n_in=32;n_out=128"));
    assert_true(
        has_key(&grid, "linear_gelu", "backward_input", "rows=64;n_in=128;n_out=32"));
    assert_true(
        has_key(&grid, "linear_bias", "backward_weight", "rows=64;n_in=128;n_out=32"));
    assert_true(has_key(&grid, "attention", "backward_input",
                        "batch=4;seq=16;heads=2;kv_heads=2;head_dim=16"));
    assert_true(
        has_key(&grid, "embedding", "backward_weight", "rows=16;hidden=32;vocab=50"));
    assert_true(
        has_key(&grid, "linear_cross_entropy", "forward", "rows=64;hidden=32;vocab=50"));
    /* embedding: (50 + 16) * 32 = 2112 elements; shards are padded to multiples of 32 */
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=2112"));
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=1056"));
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=544"));
    assert_true(has_key(&grid, "zero", "optimizer", "elements=2112"));
    assert_true(has_key(&grid, "zero", "optimizer", "elements=2176"));
    assert_true(has_key(&grid, "gradient_norm", "optimizer", "elements=1056"));
    assert_true(has_key(&grid, "gradient_norm", "optimizer", "elements=2176"));
    assert_true(has_key(&grid, "residual", "forward", "elements=544"));
    assert_false(has_key(&grid, "linear_bias", "forward", "rows=32;n_in=32;n_out=96"));
    mist_grid_fini(&grid);
}

/* The same with two tensor-parallel ranks. Three ranks: no tensor parallelism of 3. */
TEST(grid_has_the_shapes_of_tensor_parallelism)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    make_grid(&model, 16, 3, &grid);
    assert_int_equal(grid.n_variants, 3);
    assert_int_equal(grid.variants[1].tp, 2);
    assert_false(grid.variants[1].is_sequence_parallel);
    assert_true(grid.variants[2].is_sequence_parallel);
    assert_true(has_key(&grid, "linear_bias", "forward", "rows=16;n_in=32;n_out=48"));
    assert_true(has_key(&grid, "linear_bias", "forward", "rows=64;n_in=64;n_out=32"));
    assert_true(has_key(&grid, "attention", "forward",
                        "batch=4;seq=16;heads=1;kv_heads=1;head_dim=16"));
    assert_true(has_key(&grid, "layer_norm", "forward", "rows=8;hidden=32"));
    assert_true(has_key(&grid, "residual", "forward", "elements=256")); /* 8 rows */
    assert_true(has_key(&grid, "linear", "backward_input", "rows=16;n_in=32;n_out=25"));
    assert_true(has_key(&grid, "cross_entropy_stats", "forward", "rows=64;vocab=25"));
    assert_true(
        has_key(&grid, "cross_entropy_parallel", "forward", "rows=16;vocab=25;tp=2"));
    assert_true(has_key(&grid, "embedding", "forward", "rows=16;hidden=32;vocab=25"));
    /* (25 + 16) * 32 elements of the embedding */
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=1312"));
    for (int32_t i = 0; i < grid.n_keys; i++)
        assert_false(mist_op_is_communication(grid.keys[i].op));
    mist_grid_fini(&grid);
    model.n_kv_heads = 1; /* on all ranks */
    make_grid(&model, 16, 2, &grid);
    assert_true(has_key(&grid, "attention", "forward",
                        "batch=1;seq=16;heads=1;kv_heads=1;head_dim=16"));
    mist_grid_fini(&grid);
    make_grid(&model, 15, 2, &grid); /* 15 tokens have no halves, 60 have */
    assert_false(mist_grid_has(&grid, 2, 0));
    assert_true(mist_grid_has(&grid, 2, 1) && mist_grid_has(&grid, 1, 0));
    assert_false(has_key(&grid, "layer_norm", "forward", "rows=8;hidden=32"));
    assert_true(has_key(&grid, "layer_norm", "forward", "rows=30;hidden=32"));
    mist_grid_fini(&grid);
}

/* A tied weight is a slab of its own: 50 * 32 elements; the positions are the rest. */
TEST(grid_has_the_slabs_of_tied_weights)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    model.ties_embeddings = true;
    make_grid(&model, 16, 1, &grid);
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=1600"));
    assert_true(has_key(&grid, "adamw", "optimizer", "elements=512"));
    assert_false(has_key(&grid, "adamw", "optimizer", "elements=2112"));
    for (int32_t i = 0; i < grid.n_shards; i++) {
        const struct mist_grid_shard *shard = &grid.shards[i];
        assert_int_equal(shard->n * shard->n_shards, shard->n_whole);
        assert_true(shard->slab_first + shard->n_whole <=
                    mist_grid_parameter_elements(&grid, shard->kind));
    }
    mist_grid_fini(&grid);
}

/* Steps of a program whose kernels are timed; they point at the keys that are
 * their own. */
static int check_steps(const struct mist_grid *grid, const struct mist_step *steps,
                       int32_t n, const int32_t *keys)
{
    char text[2][MIST_SHAPE_TEXT_MAX];
    int n_timed = 0;

    for (int32_t i = 0; i < n; i++) {
        if (mist_op_is_communication(steps[i].op)) {
            assert_int_equal(keys[i], -1);
            continue;
        }
        assert_in_range(keys[i], 0, grid->n_keys - 1);
        const struct mist_grid_key *key = &grid->keys[keys[i]];
        assert_int_equal(key->op, steps[i].op);
        assert_int_equal(key->phase, steps[i].phase);
        assert_string_equal(
            mist_op_shape_text(steps[i].op, steps[i].dims, text[0], sizeof text[0]),
            mist_op_shape_text(steps[i].op, key->dims, text[1], sizeof text[1]));
        n_timed++;
    }
    return n_timed;
}

TEST(grid_keys_are_those_of_the_steps)
{
    static const enum mist_family families[] = {MIST_FAMILY_GPT, MIST_FAMILY_LLAMA,
                                                MIST_FAMILY_FALCON};
    struct mist_grid grid;

    for (int f = 0; f < 3; f++) {
        struct mist_model model = tiny_model();
        int n_timed = 0;
        model.family = families[f];
        if (model.family != MIST_FAMILY_GPT) {
            model.max_seq = 0;
            model.rope_theta = 1e4;
        }
        make_grid(&model, 16, 2, &grid);
        for (int32_t i = 0; i < 3 * 2 * MIST_N_LAYER_KINDS; i++) {
            int32_t v = i / (2 * MIST_N_LAYER_KINDS), b = i / MIST_N_LAYER_KINDS % 2;
            enum mist_layer_kind kind = (enum mist_layer_kind)(i % MIST_N_LAYER_KINDS);
            const struct mist_layer_layout *layout = mist_grid_layout(&grid, v, b, kind);
            const struct mist_grid_step_keys *keys = mist_grid_keys(&grid, v, b, kind);
            assert_int_equal(layout->shape.micro_batch, b ? 4 : 1);
            assert_int_equal(layout->shape.tp, v ? 2 : 1);
            n_timed +=
                check_steps(&grid, layout->forward, layout->n_forward, keys->of[0]);
            n_timed +=
                check_steps(&grid, layout->backward, layout->n_backward, keys->of[1]);
        }
        assert_true(n_timed > 120);
        mist_grid_fini(&grid);
    }
}

static bool has_message(const struct mist_grid *grid, enum mist_link_operation operation,
                        struct mist_group_shape shape, int64_t bytes)
{
    int n = 0;

    for (int32_t i = 0; i < grid->n_messages; i++)
        n +=
            grid->messages[i].operation == operation &&
            memcmp(&grid->shapes[grid->messages[i].i_shape], &shape, sizeof shape) == 0 &&
            grid->messages[i].bytes == bytes;
    assert_true(n <= 1);
    return n == 1;
}

TEST(grid_has_the_messages_of_the_model)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;
    const struct mist_group_shape pair = {1, 2, 1}, one = {1, 1, 1}, all = {1, 5, 1};

    make_grid(&model, 16, 5, &grid);
    for (int32_t n = 2; n <= 5; n++)
        for (int32_t c = 1; c <= 5 / n; c++) {
            struct mist_group_shape shape = {1, n, c};
            int64_t block = mist_storage_padded_elements(
                mist_grid_layout(&grid, 0, 0, MIST_LAYER_BLOCK)->n_parameters, n);
            assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, shape, 4 * block));
            assert_true(has_message(&grid, MIST_LINK_REDUCE_SCATTER, shape, 4 * block));
            assert_true(has_message(&grid, MIST_LINK_ALL_GATHER, shape, 4 * block));
        }
    assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, pair, 4096));
    assert_true(has_message(&grid, MIST_LINK_SEND_RECV, pair, 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_SEND_RECV, pair, 4 * 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_HOST_TO_DEVICE, one, 4 << 20));
    /* tensor parallelism: activations; three numbers per row and rank of the loss; the
     * norms' gradients under sequence parallelism */
    assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, pair, 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_REDUCE_SCATTER, pair, 4 * 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_ALL_GATHER, pair, 4 * 16 * 32));
    assert_true(has_message(&grid, MIST_LINK_ALL_GATHER, pair, 4 * 3 * 2 * 64));
    assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, pair, 4 * 4 * 32));
    assert_true(has_message(&grid, MIST_LINK_ALL_REDUCE, all, 64));
    for (int32_t i = 0; i < grid.n_messages; i++) {
        int32_t n = mist_grid_group_ranks(&grid.shapes[grid.messages[i].i_shape]);
        assert_true(grid.messages[i].bytes > 0);
        if (!grid.messages[i].is_exchange)
            assert_int_equal(grid.messages[i].bytes % (4 * n), 0);
        assert_in_range(n, 1, 5);
    }
    mist_grid_fini(&grid);
    make_grid(&model, 16, 1, &grid);
    for (int32_t i = 0; i < grid.n_messages; i++)
        assert_int_equal(grid.messages[i].i_shape, 0);
    mist_grid_fini(&grid);
}

/* Two nodes of four ranks: the groups that plans have there, by hand. */
TEST(groups_are_those_of_plans)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;
    static const struct {
        struct mist_group_shape shape;
        int32_t rank, n, members[4];
    } cases[] = {
        {{1, 2, 1}, 1, 2, {0, 1}},       {{1, 2, 1}, 5, 2, {4, 5}},
        {{1, 2, 1}, 2, 0, {0}},          {{1, 2, 2}, 7, 2, {6, 7}},
        {{2, 1, 1}, 4, 2, {0, 4}},       {{2, 1, 1}, 5, 0, {0}},
        {{2, 1, 4}, 3, 2, {3, 7}},       /* dp 2, tp 4 */
        {{2, 2, 2}, 6, 4, {0, 2, 4, 6}}, /* dp 4, tp 2 */
        {{2, 2, 1}, 5, 4, {0, 1, 4, 5}}, {{1, 3, 1}, 6, 3, {4, 5, 6}},
    };

    make_grid_on(&model, 16, 2, 8, &grid);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int32_t members[8];
        assert_int_equal(
            mist_grid_members(&grid.config, &cases[i].shape, cases[i].rank, members),
            cases[i].n);
        for (int32_t k = 0; k < cases[i].n; k++)
            assert_int_equal(members[k], cases[i].members[k]);
    }
    for (int32_t i = 0; i < grid.n_shapes; i++) /* a rank is in the group it is in */
        for (int32_t rank = 0; rank < 8; rank++) {
            int32_t members[8], others[8], n_here = 0;
            int32_t n = mist_grid_members(&grid.config, &grid.shapes[i], rank, members);
            for (int32_t k = 0; k < n; k++) {
                n_here += members[k] == rank;
                assert_int_equal(
                    mist_grid_members(&grid.config, &grid.shapes[i], members[k], others),
                    n);
                assert_memory_equal(members, others, (size_t)n * sizeof *members);
            }
            assert_int_equal(n_here, n > 0);
        }
    assert_true(has_message(&grid, MIST_LINK_SEND_RECV,
                            (struct mist_group_shape){2, 1, 1}, 4096));
    assert_true(has_message(&grid, MIST_LINK_SEND_RECV,
                            (struct mist_group_shape){2, 1, 4}, 4096));
    assert_true(
        has_message(&grid, MIST_LINK_ALL_REDUCE, (struct mist_group_shape){2, 4, 1}, 64));
    mist_grid_fini(&grid);
}

TEST(grid_refuses_long_sequences)
{
    struct mist_grid_config config = {.model = tiny_model(),
                                      .seq_len = 17,
                                      .n_micro_batches = 1,
                                      .micro_batches = {1},
                                      .n_nodes = 1,
                                      .n_ranks = 1,
                                      .n_threads = 1};
    struct mist_grid grid;
    struct mist_err err;

    assert_int_equal(mist_grid_make(&config, &grid, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "17 tokens"));
    mist_grid_fini(&grid);
}

/* ---- workbench ---- */

TEST(messages_take_turns_inside_the_region)
{
    char region[1000];
    const int64_t sizes[] = {1, 64, 100, 300, 500, 990, 1000};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int64_t turn = 0; turn < 40; turn++) {
            char *at = mist_workbench_turn(region, sizeof region, sizes[i], turn);
            assert_true(at >= region && at + sizes[i] <= region + sizeof region);
            if (sizes[i] <= 300) /* the next one is elsewhere */
                assert_ptr_not_equal(
                    at, mist_workbench_turn(region, sizeof region, sizes[i], turn + 1));
        }
}

TEST(the_stage_fits_the_memory)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;

    model.n_layers = 12;
    make_grid(&model, 16, 2, &grid);
    assert_int_equal(mist_workbench_n_copies(&grid, INT64_MAX), 6); /* a pipeline of 2 */
    int64_t five = mist_workbench_bytes(&grid, 5);
    assert_int_equal(mist_workbench_n_copies(&grid, five), 5);
    assert_int_equal(mist_workbench_n_copies(&grid, five - 1), 4);
    assert_int_equal(mist_workbench_n_copies(&grid, 1), 0);
    /* one more block: weights, gradients, two moments, saved and one boundary; none of
     * the variants needs more than the whole */
    const struct mist_layer_layout *block =
        mist_grid_layout(&grid, 0, 1, MIST_LAYER_BLOCK);
    assert_int_equal(mist_workbench_bytes(&grid, 6) - five,
                     16 * mist_grid_parameter_elements(&grid, MIST_LAYER_BLOCK) +
                         block->saved_bytes + block->input_bytes);
    mist_grid_fini(&grid);
}

/* ---- mixtures ---- */

TEST(mixtures_cover_all_sets)
{
    struct mist_mixture all[MIST_MIXTURES_MAX];
    int n_of_set[1 << MIST_N_CHANNELS] = {0};

    /* 6 pairs of 3, 4 triples of 4, 1 of 5; the exchange again in 3, 3 and 1 sets, gather
     * and reduce-scatter in one */
    assert_int_equal(mist_mixtures_make(2, false, all), 18 + 16 + 5 + 9 + 12 + 5 + 6);
    assert_int_equal(mist_mixtures_make(1, true, all), 3 * 3 + 4);
    int32_t n = mist_mixtures_make(2, true, all);
    assert_int_equal(n, 18 + 16 + 5 + 3 + 6);
    for (int32_t i = 0; i < n; i++) {
        n_of_set[all[i].channels]++;
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            assert_int_equal(all[i].ratio[c] > 0, all[i].channels >> c & 1u);
        for (int32_t k = 0; k < i; k++)
            assert_false(all[i].channels == all[k].channels &&
                         all[i].message == all[k].message &&
                         memcmp(all[i].ratio, all[k].ratio, sizeof all[i].ratio) == 0);
    }
    for (unsigned set = 0; set < 1u << MIST_N_CHANNELS; set++) {
        int n_channels = __builtin_popcount(set);
        assert_true(n_channels < 2 ? n_of_set[set] == 0 : n_of_set[set] >= n_channels);
    }
}

/* Measurements of a machine with known factors give these factors back. */
TEST(mixtures_determine_the_factors)
{
    struct mist_mixture all[MIST_MIXTURES_MAX];
    struct mist_interference truth, fitted;
    struct mist_interference_sample samples[MIST_MIXTURES_MAX];
    struct mist_random random;
    int32_t n = mist_mixtures_make(2, true, all);

    mist_random_init(&random, 3);
    mist_interference_init(&truth);
    for (unsigned set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if (__builtin_popcount(set) > 1 && set >> c & 1u)
                truth.slowdown[set][c] =
                    __builtin_popcount(set) - 0.5 + 0.4 * mist_random_uniform(&random);
    for (int32_t i = 0; i < n; i++) {
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            samples[i].isolated_s[c] = 6e-3 * all[i].ratio[c];
        samples[i].together_s = mist_interference_bundle_s(&truth, samples[i].isolated_s);
    }
    assert_int_equal(mist_interference_fit(&fitted, NULL, samples, n, NULL), MIST_OK);
    for (unsigned set = 0; set < MIST_N_STREAM_SETS; set++)
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            if (__builtin_popcount(set) == 2 && set >> c & 1u)
                assert_near(fitted.slowdown[set][c], truth.slowdown[set][c], 1e-3);
}

/* A mixture that was disturbed beyond reason is left out and said; the rest become rows. */
TEST(mixtures_beyond_reason_are_left_out)
{
    const struct mist_grid_config config = {.n_nodes = 1, .n_ranks = 2};
    struct mist_mixture all[MIST_MIXTURES_MAX];
    struct mist_trace_set traces;
    struct mist_err err;
    char *said = NULL;
    size_t size = 0;
    int32_t n = mist_mixtures_make(2, true, all);

    for (int32_t i = 0; i < n; i++) {
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            all[i].alone_us[c] = all[i].ratio[c] > 0 ? 4000.0 * all[i].ratio[c] + i : 0;
        all[i].together = (struct mist_estimate){.median = 9000, .mean = 9000, .n = 5};
    }
    all[1].alone_us[MIST_STREAM_COMPUTE] = 200205; /* somebody else had the processor */
    struct mist_messages messages = {"mist-profile", open_memstream(&said, &size)};
    mist_trace_set_init(&traces);
    must(mist_mixtures_add_rows(all, n, &config, &messages, &traces, &err), &err);
    fclose(messages.stream);
    assert_int_equal(traces.n_interferences, n - 1);
    assert_string_equal(said, "mist-profile: a mixture of compute+gpu_gpu is left out: "
                              "together_us is 9000, beyond reason: one of them takes "
                              "200205 alone\n");
    free(said);
    mist_trace_set_fini(&traces);
}

/* ---- journal ---- */

static struct mist_journal *open_journal(struct mist_comm *comm, const char *output,
                                         bool resumes, enum mist_status expected)
{
    struct mist_journal *journal = NULL;

    assert_int_equal(mist_journal_open(comm, output, 42, resumes, &journal, NULL),
                     expected);
    return journal;
}

static void assert_takes(struct mist_journal *journal, enum mist_journal_part part,
                         const char *text)
{
    int64_t n = 0;
    const char *bytes = mist_journal_take(journal, part, &n);

    assert_non_null(bytes);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(bytes, text, (size_t)n);
}

/* Whatever is cut off the end or damaged there, the records before it come back. */
TEST(journals_keep_what_is_whole)
{
    struct scratch scratch;
    struct mist_comm *comm;
    char output[128], path[160], text[512];
    int64_t n;

    scratch_init(&scratch);
    snprintf(output, sizeof output, "%s/set/", scratch.folder);
    snprintf(path, sizeof path, "%s/set.partial/journal", scratch.folder);
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    struct mist_journal *journal = open_journal(comm, output, true, MIST_OK);
    assert_true(mist_journal_exists(output));
    assert_null(mist_journal_take(journal, MIST_JOURNAL_OPS, &n));
    assert_int_equal(mist_journal_add(journal, MIST_JOURNAL_OPS, "one", 3, NULL),
                     MIST_OK);
    assert_int_equal(mist_journal_add(journal, MIST_JOURNAL_OPS, "", 0, NULL), MIST_OK);
    assert_int_equal(mist_journal_add(journal, MIST_JOURNAL_LINKS, "three", 5, NULL),
                     MIST_OK);
    mist_journal_close(journal, false);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    size_t size = fread(text, 1, sizeof text, stream);
    fclose(stream);
    for (size_t cut = size; cut + 30 > size; cut--) {
        stream = fopen(path, "wb");
        assert_int_equal(fwrite(text, 1, cut, stream), cut);
        fclose(stream);
        journal = open_journal(comm, output, true, MIST_OK);
        assert_null(mist_journal_take(journal, MIST_JOURNAL_LINKS, &n)); /* not yet */
        assert_takes(journal, MIST_JOURNAL_OPS, "one");
        assert_takes(journal, MIST_JOURNAL_OPS, "");
        assert_null(mist_journal_take(journal, MIST_JOURNAL_OPS, &n));
        if (cut == size)
            assert_takes(journal, MIST_JOURNAL_LINKS, "three");
        assert_null(mist_journal_take(journal, MIST_JOURNAL_LINKS, &n));
        assert_int_equal(mist_journal_add(journal, MIST_JOURNAL_LINKS, "four", 4, NULL),
                         MIST_OK);
        mist_journal_close(journal, false);
        journal = open_journal(comm, output, true, MIST_OK);
        assert_takes(journal, MIST_JOURNAL_OPS, "one");
        assert_takes(journal, MIST_JOURNAL_OPS, "");
        if (cut == size)
            assert_takes(journal, MIST_JOURNAL_LINKS, "three");
        assert_takes(journal, MIST_JOURNAL_LINKS, "four");
        mist_journal_close(journal, false);
    }
    for (size_t flip = size - 1; flip + 30 > size; flip--) { /* the last has 40 */
        stream = fopen(path, "wb");
        text[flip] ^= 4;
        assert_int_equal(fwrite(text, 1, size, stream), size);
        text[flip] ^= 4;
        fclose(stream);
        journal = open_journal(comm, output, true, MIST_OK);
        assert_takes(journal, MIST_JOURNAL_OPS, "one");
        assert_takes(journal, MIST_JOURNAL_OPS, "");
        assert_null(mist_journal_take(journal, MIST_JOURNAL_LINKS, &n));
        mist_journal_close(journal, false);
    }
    assert_int_equal(mist_journal_open(comm, output, 43, true, &journal, NULL),
                     MIST_ERR_INPUT); /* of something else */
    mist_journal_close(journal, false);
    journal = open_journal(comm, output, false, MIST_OK); /* anew */
    assert_null(mist_journal_take(journal, MIST_JOURNAL_OPS, &n));
    mist_journal_close(journal, true);
    assert_false(mist_journal_exists(output));
    assert_int_equal(scratch_count(&scratch), 0);
    mist_comm_close(comm);
    scratch_fini(&scratch);
}

static void limit_files(rlim_t n_bytes)
{
    struct rlimit limit;

    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    limit.rlim_cur = n_bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void refuse_journal(struct mist_comm *comm, const char *output,
                           const char *message)
{
    struct mist_journal *journal = NULL;
    struct mist_err err = {0};

    assert_int_equal(mist_journal_open(comm, output, 42, false, &journal, &err),
                     MIST_ERR_IO);
    if (!strstr(err.message, message))
        fail_msg("%s: %s", err.path, err.message);
    mist_journal_close(journal, false);
}

/* Where there is no folder, no file, or no room; what was begun goes again. */
TEST(journals_that_can_not_be_kept)
{
    struct scratch scratch;
    struct mist_comm *comm;
    struct mist_journal *journal = NULL;
    struct mist_err err = {0};
    char output[128], path[160], endless[PATH_MAX + 1];

    scratch_init(&scratch);
    snprintf(output, sizeof output, "%s/set", scratch.folder);
    must(mist_comm_open(&comm, &err), &err);
    memset(endless, 'a', PATH_MAX);
    endless[PATH_MAX] = '\0';
    refuse_journal(comm, endless, "no path of a folder");
    refuse_journal(comm, "/dev/null/set", "");
    snprintf(path, sizeof path, "%s.partial", output);
    assert_int_equal(mkdir(path, 0777), 0);
    snprintf(path, sizeof path, "%s.partial/journal", output);
    assert_int_equal(mkdir(path, 0777), 0);
    refuse_journal(comm, output, strerror(EISDIR));
    assert_int_equal(rmdir(path), 0);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(4);
    refuse_journal(comm, output, "can't write");
    limit_files(RLIM_INFINITY);
    assert_int_equal(scratch_count(&scratch), 0);
    must(mist_journal_open(comm, output, 42, false, &journal, &err), &err);
    limit_files(40);
    assert_int_equal(mist_journal_add(journal, MIST_JOURNAL_OPS, "one", 3, &err),
                     MIST_ERR_IO);
    limit_files(RLIM_INFINITY);
    assert_non_null(strstr(err.message, "can't be written"));
    assert_string_equal(err.path, path);
    mist_journal_close(journal, true);
    mist_comm_close(comm);
    scratch_fini(&scratch);
}

/* ---- links ---- */

static struct mist_bench_place cpu_place(void)
{
    struct mist_bench_place place = {.is_alone = true, .n_sharing = 1};

    assert_int_equal(
        mist_backend_find(MIST_BACKEND_CPU, &place.backend, NULL, NULL, 0, NULL),
        MIST_OK);
    return place;
}

/* One message of a grid alone. */
static void keep_message(struct mist_grid *grid, enum mist_link_operation operation)
{
    for (int32_t i = 0; i < grid->n_messages; i++)
        if (grid->messages[i].operation == operation)
            grid->messages[0] = grid->messages[i]; /* the largest comes last */
    grid->n_messages = 1;
}

TEST(copies_move_bytes_between_the_arenas)
{
    static const enum mist_link_operation operations[] = {MIST_LINK_HOST_TO_DEVICE,
                                                          MIST_LINK_DEVICE_TO_HOST};
    struct mist_model model = tiny_model();
    struct mist_comm *comm;

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    for (int k = 0; k < 2; k++) {
        struct mist_grid grid;
        struct mist_workbench bench;
        struct mist_estimate estimate;
        make_grid(&model, 16, 1, &grid);
        struct mist_bench_place place = cpu_place();
        assert_int_equal(mist_workbench_open(&grid, 1, comm, &place, &bench, NULL),
                         MIST_OK);
        keep_message(&grid, operations[k]);
        char *from = k ? bench.message : bench.host, *to = k ? bench.host : bench.message;
        int64_t n = grid.messages[0].bytes;
        assert_true(n >= 4 << 20);
        memset(from, 0x5a, (size_t)bench.host_bytes);
        time_all_links(&bench, &estimate);
        assert_true(estimate.n > 0 && estimate.mean > 0);
        for (int64_t i = 0; i < n; i++)
            assert_true(to[i] == 0x5a);
        mist_workbench_close(&bench);
        mist_grid_fini(&grid);
    }
    mist_comm_close(comm);
}

/* ---- operators ---- */

/* A gather gives every rank's part what this rank has; a scatter takes its own part. */
TEST(stand_ins_fill_what_others_would_send)
{
    struct mist_device_config config = {.threads = 1};
    struct mist_workbench bench = {.operators = &mist_operators_cpu};
    struct mist_step step = {.op = MIST_OP_TP_ALL_GATHER, .dims = {12}};
    char whole[13] = "............", shard[5] = "abcd";
    struct mist_step_args args = {
        .step = &step, .tp = 3, .i_tp = 1, .operands = {whole, shard}};

    assert_int_equal(mist_device_open_cpu(&config, &bench.device, NULL), MIST_OK);
    mist_workbench_stand_in(&bench, &args);
    assert_string_equal(whole, "abcdabcdabcd");
    memcpy(whole, "ABCDEFGHIJKL", 12);
    step.op = MIST_OP_TP_REDUCE_SCATTER;
    args.operands[0] = shard;
    args.operands[1] = whole;
    mist_workbench_stand_in(&bench, &args);
    assert_string_equal(shard, "EFGH");
    mist_device_close(bench.device);
}

/* All variants of all families, one rank of two: everything is timed, and what is
 * computed stays finite however often it runs. */
TEST(variants_run_on_one_rank)
{
    static const enum mist_family families[] = {MIST_FAMILY_GPT, MIST_FAMILY_LLAMA,
                                                MIST_FAMILY_FALCON};
    struct mist_comm *comm;

    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    for (int f = 0; f < 3; f++) {
        struct mist_model model = tiny_model();
        struct mist_grid grid;
        struct mist_workbench bench;
        model.family = families[f];
        if (model.family != MIST_FAMILY_GPT) {
            model.max_seq = 0;
            model.rope_theta = 1e4;
            model.n_kv_heads = 1;
            model.ties_embeddings = true;
        }
        make_grid(&model, 16, 2, &grid);
        struct mist_estimate *steps = calloc((size_t)grid.n_keys, sizeof *steps);
        assert_non_null(steps);
        struct mist_bench_place place = cpu_place();
        assert_int_equal(mist_workbench_open(&grid, 8, comm, &place, &bench, NULL),
                         MIST_OK);
        time_all_ops(&bench, steps);
        for (int32_t i = 0; i < grid.n_keys; i++)
            assert_true(steps[i].n >= mist_time_ops_least_rounds() - steps[i].n_outliers);
        for (int32_t i = 0; i < bench.n_copies + 2; i++) {
            const struct mist_bench_module *module = &bench.modules[i];
            int64_t n = mist_grid_parameter_elements(&grid, module->kind);
            assert_int_equal(
                mist_cpu_find_nonfinite(
                    false, (const float *)(const void *)module->weights, n, 1),
                -1);
        }
        for (int32_t i = 0; i <= bench.n_copies; i++)
            assert_int_equal(mist_cpu_find_nonfinite(
                                 false, (const float *)(const void *)bench.boundary[i],
                                 4 * 16 * 32, 1),
                             -1);
        free(steps);
        mist_workbench_close(&bench);
        mist_grid_fini(&grid);
    }
    mist_comm_close(comm);
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

TEST(the_library_of_messages_is_known)
{
    char text[64] = "unset", little[4], one[1] = {'x'};

    mist_comm_describe(text, sizeof text);
    assert_true(strlen(text) >= 3 && strcmp(text, "unset") != 0);
    mist_comm_describe(little, sizeof little);
    assert_int_equal(strlen(little), 3);
    assert_memory_equal(little, text, 3);
    mist_comm_describe(one, sizeof one);
    assert_int_equal(one[0], 0);
}

/* Of one rank, by hand: the level of all times, and how their means differ. */
TEST(probes_have_a_level_and_a_drift)
{
    struct mist_workbench bench = {.n_ranks = 1};
    struct mist_time_probe probes = {0};
    double probe_us, drift_frac;

    assert_int_equal(mist_comm_open(&bench.comm, NULL), MIST_OK);
    assert_int_equal(mist_time_probe(&bench, NULL), MIST_OK); /* nobody asked for any */
    assert_int_equal(mist_time_probe_find(&bench, &probe_us, &drift_frac, NULL), MIST_OK);
    assert_true(probe_us == 0 && drift_frac == 0);
    bench.probes = &probes;
    assert_int_equal(mist_time_probe_find(&bench, &probe_us, &drift_frac, NULL), MIST_OK);
    assert_true(probe_us == 0 && drift_frac == 0); /* none has run */
    for (int i = 0; i < 5; i++)
        assert_true(mist_samples_add(&probes.means_us, 9000 + 500 * i));
    for (int i = 0; i < 7; i++)
        assert_true(
            mist_samples_add(&probes.times_us, i < 3 ? 14000 + 900 * i : 9000 + 100 * i));
    assert_int_equal(mist_time_probe_find(&bench, &probe_us, &drift_frac, NULL), MIST_OK);
    assert_near(probe_us, 9450, 1e-9); /* 9300, 9400, 9500, 9600 */
    assert_near(drift_frac, sqrt(2 * (0.1 * 0.1 + 0.05 * 0.05) / 4), 1e-12);
    mist_comm_close(bench.comm);
    mist_time_probe_close(&bench, &probes);
}

/* A probe that takes no time worth mentioning. */
static const struct mist_probe_work small_probe = {.rows = 16,
                                                   .width = 64,
                                                   .sum_bytes = 4096,
                                                   .region_bytes = 4 * 4096,
                                                   .message_bytes = 1024,
                                                   .n_at_once = 1};

TEST(a_session_fills_a_trace_set)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;
    struct mist_machine machine;
    struct mist_profile_plan plan;
    struct mist_profile_report report;
    struct mist_trace_set traces, loaded;
    struct mist_comm *comm;
    struct scratch scratch;

    scratch_init(&scratch);
    make_grid(&model, 16, 1, &grid);
    assert_int_equal(mist_machine_read(MIST_BACKEND_CPU, &machine, NULL, 0, NULL),
                     MIST_OK);
    assert_int_equal(mist_profile_plan(&grid, &machine, 1e10, 0, &plan, NULL), MIST_OK);
    assert_int_equal(plan.n_copies, 4);                  /* more than the model's 3 */
    plan.ops_s = plan.links_s = plan.interference_s = 0; /* the least of everything */
    plan.probe = small_probe;
    plan.probe_s = 0;
    plan.checks_s = 1e-9;
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    mist_trace_set_init(&traces);
    const struct mist_profile_config config = {
        .grid = &grid, .machine = &machine, .plan = &plan, .comm = comm};
    assert_int_equal(mist_profile_run(&config, &traces, &report, NULL), MIST_OK);
    mist_comm_close(comm);
    assert_int_equal(traces.n_kernels, grid.n_keys);
    assert_int_equal(traces.n_links, grid.n_messages);
    assert_int_equal(traces.n_interferences, 13);
    assert_int_equal(traces.n_checks, 2); /* what one rank can do */
    assert_int_equal(traces.checks[0].mechanism, MIST_MECHANISM_COMPUTE);
    assert_int_equal(traces.checks[1].mechanism, MIST_MECHANISM_OFFLOAD);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(traces.checks[i].repetitions, 3);
        assert_true(traces.checks[i].bar_us > 0);
    }
    assert_true(traces.cluster.launch_us > 0);
    assert_true(traces.cluster.runtime_memory_bytes > 0);
    assert_true(traces.cluster.drift_frac > 0); /* no two rounds take the same time */
    assert_true(traces.cluster.drift_frac == report.drift_frac);
    assert_true(traces.cluster.probe_us > 0);
    assert_true(traces.cluster.probe_us == report.probe_us);
    /* before six turns, in each, after each; behind each of four rounds */
    assert_int_equal(report.n_probes, 17);
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

/* A session on one rank that takes as little time as it may. */
static void run_session(struct mist_comm *comm, const struct mist_grid *grid,
                        struct mist_journal *journal, struct mist_trace_set *traces)
{
    struct mist_machine machine;
    struct mist_profile_plan plan;
    struct mist_profile_report report;

    assert_int_equal(mist_machine_read(MIST_BACKEND_CPU, &machine, NULL, 0, NULL),
                     MIST_OK);
    assert_int_equal(mist_profile_plan(grid, &machine, 1e10, 0, &plan, NULL), MIST_OK);
    plan.ops_s = plan.links_s = plan.interference_s = 0;
    plan.probe = small_probe;
    plan.probe_s = 0;
    mist_trace_set_init(traces);
    plan.checks_s = 1e-9;
    const struct mist_profile_config config = {.grid = grid,
                                               .machine = &machine,
                                               .plan = &plan,
                                               .comm = comm,
                                               .journal = journal};
    assert_int_equal(mist_profile_run(&config, traces, &report, NULL), MIST_OK);
    /* whatever of it was measured in an earlier session */
    assert_int_equal(report.n_probes, 17);
}

/* What the journal of a whole session has is not measured again: the same bits. Half of
 * a journal gives the same rows. */
TEST(sessions_go_on_from_their_journal)
{
    struct mist_model model = tiny_model();
    struct mist_grid grid;
    struct mist_trace_set first, second;
    struct mist_comm *comm;
    struct scratch scratch;
    char output[128], path[160];

    scratch_init(&scratch);
    snprintf(output, sizeof output, "%s/set", scratch.folder);
    snprintf(path, sizeof path, "%s.partial/journal", output);
    make_grid(&model, 16, 1, &grid);
    assert_int_equal(mist_comm_open(&comm, NULL), MIST_OK);
    struct mist_journal *journal = open_journal(comm, output, false, MIST_OK);
    run_session(comm, &grid, journal, &first);
    mist_journal_close(journal, false);
    journal = open_journal(comm, output, true, MIST_OK);
    run_session(comm, &grid, journal, &second);
    mist_journal_close(journal, false);
    assert_int_equal(first.n_kernels, second.n_kernels);
    for (size_t i = 0; i < first.n_kernels; i++)
        assert_true(first.kernels[i].time_us == second.kernels[i].time_us &&
                    first.kernels[i].repetitions == second.kernels[i].repetitions);
    for (size_t i = 0; i < first.n_links; i++)
        assert_true(first.links[i].time_us == second.links[i].time_us);
    for (size_t i = 0; i < first.n_interferences; i++)
        assert_true(first.interferences[i].together_us ==
                    second.interferences[i].together_us);
    assert_true(first.cluster.drift_frac == second.cluster.drift_frac);
    assert_true(first.cluster.probe_us == second.cluster.probe_us);
    mist_trace_set_fini(&second);
    /* cut inside the operators, the messages and the mixtures */
    for (int part = 9; part >= 1; part -= 4) {
        struct stat info;
        assert_int_equal(stat(path, &info), 0);
        assert_int_equal(truncate(path, info.st_size * part / 10), 0);
        journal = open_journal(comm, output, true, MIST_OK);
        run_session(comm, &grid, journal, &second);
        mist_journal_close(journal, false);
        assert_int_equal(first.n_kernels, second.n_kernels);
        assert_int_equal(first.n_links, second.n_links);
        assert_int_equal(first.n_interferences, second.n_interferences);
        mist_trace_set_fini(&second);
    }
    journal = open_journal(comm, output, true, MIST_OK);
    mist_journal_close(journal, true);
    mist_trace_set_fini(&first);
    mist_grid_fini(&grid);
    mist_comm_close(comm);
    scratch_fini(&scratch);
}

TEST_MAIN(NULL, NULL)
