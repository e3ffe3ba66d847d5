/*
 * The cost model against closed forms: machines whose operators and links follow a known
 * law, so that what is between and beyond the measured sizes is known, too. Schedules are
 * priced a second time here, task by task, from the law. Rules of interpolation are
 * compared on the reference link tables, where these are at hand.
 */
#include "tests/unit/test.h"

#include "sim/cost/cost_internal.h"
#include "sim/cost/cost_model.h"
#include "tests/unit/reference_path.h"
#include "tests/unit/tiny_models.h"

#include <dirent.h>
#include <math.h>

static const double PEAK = 1e12, BANDWIDTH = 1e11, LAUNCH_S = 5e-6;

#define equals(value, expected) near_to(value, expected, 1e-9)

static void start(struct mist_trace_set *set)
{
    mist_trace_set_init(set);
    set->cluster = (struct mist_cluster){.name = "law",
                                         .backend = MIST_TRACE_CPU,
                                         .nodes = 4,
                                         .devices_per_node = 2,
                                         .device_memory_bytes = 1 << 30,
                                         .memory_bytes_per_s = BANDWIDTH,
                                         .launch_us = LAUNCH_S * 1e6};
    set->cluster.peak_flop_per_s[MIST_TRACE_FP32] = PEAK;
}

static struct mist_cost_model *model_of(const struct mist_trace_set *set)
{
    struct mist_cost_model *model = NULL;
    struct mist_err err = {0};

    must(mist_cost_model_new(set, &model, &err), &err);
    return model;
}

/* ------------------------------------------------------------------------- operators */

/* A linear layer of this machine: a constant, and 40 % of the peak (of its FLOP). */
static double linear_s(int64_t rows, int64_t n_in, int64_t n_out)
{
    return 20e-6 + 2.0 * (double)(rows * n_in * n_out) / (0.4 * PEAK);
}

static void add_linear(struct mist_trace_set *set, int64_t rows, int64_t n_in,
                       int64_t n_out, double time_s)
{
    struct mist_kernel_row row = {.op = "linear",
                                  .dtype = MIST_TRACE_FP32,
                                  .phase = MIST_PHASE_FORWARD,
                                  .time_us = time_s * 1e6,
                                  .deviation_us = 8,
                                  .repetitions = 16,
                                  .flop = 2.0 * (double)(rows * n_in * n_out),
                                  .bytes = 1};
    char shape[128];

    snprintf(shape, sizeof shape, "rows=%lld;n_in=%lld;n_out=%lld", (long long)rows,
             (long long)n_in, (long long)n_out);
    assert_int_equal(mist_shape_parse(shape, &row.shape, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_add_kernel(set, &row, NULL), MIST_OK);
}

static struct mist_cost linear_cost(const struct mist_cost_model *model, int64_t rows,
                                    int64_t n_in, int64_t n_out)
{
    int64_t dims[MIST_MAX_DIMS] = {rows, n_in, n_out};
    struct mist_cost cost = {.time_s = -1, .deviation_s = -1, .extrapolated_s = -1};
    struct mist_err err = {0};

    must(mist_cost_op(model, MIST_OP_LINEAR, MIST_PHASE_FORWARD, MIST_DTYPE_FP32, dims,
                      2.0 * (double)(rows * n_in * n_out), 1, &cost, &err),
         &err);
    return cost;
}

/* A measured shape is what was measured, with the standard error 8 us / sqrt(16). */
TEST(test_hit)
{
    struct mist_trace_set set;
    start(&set);
    add_linear(&set, 512, 64, 64, 123e-6);
    add_linear(&set, 64, 64, 64, 45e-6);
    add_linear(&set, 64, 128, 64, 67e-6);
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost cost = linear_cost(model, 512, 64, 64);

    equals(cost.time_s, 123e-6);
    equals(cost.deviation_s, 2e-6);
    equals(cost.extrapolated_s, 0);
    equals(linear_cost(model, 64, 128, 64).time_s, 67e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Between sizes of one line the law holds exactly; its residual is 0. */
TEST(test_line)
{
    static const int64_t sizes[] = {4096, 64, 1024, 256};
    struct mist_trace_set set;
    start(&set);
    for (int i = 0; i < 4; i++) {
        add_linear(&set, sizes[i], 256, 512, linear_s(sizes[i], 256, 512));
        add_linear(&set, sizes[i], 256, 1024, linear_s(sizes[i], 256, 1024));
    }
    struct mist_cost_model *model = model_of(&set);
    for (int64_t rows = 65; rows < 4096; rows += 63) {
        struct mist_cost cost = linear_cost(model, rows, 256, 512);
        equals(cost.time_s, linear_s(rows, 256, 512));
        assert_true(cost.deviation_s <= 2.0001e-6);
        equals(cost.extrapolated_s, 0);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* The residual is what leaving the middle row out would have been off by. */
TEST(test_line_residual)
{
    struct mist_trace_set set;
    start(&set);
    add_linear(&set, 100, 8, 8, 100e-6);
    add_linear(&set, 200, 8, 8, 250e-6); /* 200 by its neighbours: 20 % less */
    add_linear(&set, 300, 8, 8, 300e-6);
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost cost = linear_cost(model, 150, 8, 8);

    equals(cost.time_s, 175e-6);
    equals(cost.deviation_s, sqrt(2 * 1e-12 + pow(0.2 * 175e-6, 2)));
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Off every line: one efficiency everywhere is found again, inside and outside; only
 * outside is extrapolated, in whichever dimension. */
TEST(test_near)
{
    struct mist_trace_set set;
    start(&set);
    for (int64_t n = 64; n <= 1024; n *= 2)
        for (int64_t rows = 64; rows <= 1024; rows *= 4)
            add_linear(&set, rows, n, n, 2.0 * (double)(rows * n * n) / (0.3 * PEAK));
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost inside = linear_cost(model, 100, 300, 200);
    equals(inside.time_s, 2.0 * 100 * 300 * 200 / (0.3 * PEAK));
    equals(inside.extrapolated_s, 0);
    const int64_t outside[][3] = {
        {32, 64, 64}, {2048, 64, 64}, {64, 32, 64}, {64, 64, 2048}};
    for (int i = 0; i < 4; i++) {
        const int64_t *d = outside[i];
        struct mist_cost cost = linear_cost(model, d[0], d[1], d[2]);
        equals(cost.time_s, 2.0 * (double)(d[0] * d[1] * d[2]) / (0.3 * PEAK));
        equals(cost.extrapolated_s, cost.time_s);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Rows of a constant and a rate: found again inside and outside, a hundred times below and
 * above what was measured. */
TEST(test_near_law)
{
    struct mist_trace_set set;
    start(&set);
    for (int64_t n = 64; n <= 1024; n *= 2)
        for (int64_t rows = 64; rows <= 1024; rows *= 2)
            add_linear(&set, rows, n, n, linear_s(rows, n, n));
    struct mist_cost_model *model = model_of(&set);
    for (int64_t n = 5; n < 50000; n = n * 3 + 1) {
        struct mist_cost cost = linear_cost(model, n, n + 1, n + 2);
        if (fabs(cost.time_s / linear_s(n, n + 1, n + 2) - 1) > 1e-6)
            fail_msg("%g s, expected %g s", cost.time_s, linear_s(n, n + 1, n + 2));
        assert_true(cost.deviation_s > 0);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Rows that say nothing of a constant, as all are of one size or there are two: in
 * proportion to the nearest. */
TEST(test_near_few)
{
    struct mist_trace_set set;
    start(&set);
    add_linear(&set, 64, 256, 256, linear_s(64, 256, 256));
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost cost = linear_cost(model, 64, 256, 512);

    equals(cost.time_s, 2 * linear_s(64, 256, 256));
    equals(cost.extrapolated_s, cost.time_s);
    assert_true(cost.deviation_s > 0.1 * cost.time_s); /* nothing is known of it */
    mist_cost_model_free(model);
    add_linear(&set, 64, 512, 128, linear_s(64, 512, 128));
    add_linear(&set, 64, 128, 512, linear_s(64, 128, 512));
    model = model_of(&set);
    equals(linear_cost(model, 128, 256, 256).time_s, 2 * linear_s(64, 256, 256));
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

TEST(test_roofline)
{
    struct mist_trace_set set;
    start(&set);
    struct mist_cost_model *model = model_of(&set);
    int64_t dims[MIST_MAX_DIMS] = {10};
    struct mist_cost cost;
    struct mist_err err = {0};

    assert_int_equal(mist_cost_op(model, MIST_OP_GELU, MIST_PHASE_FORWARD,
                                  MIST_DTYPE_FP32, dims, 3e6, 1e6, &cost, &err),
                     MIST_OK);
    equals(cost.time_s, 1e6 / BANDWIDTH); /* 10 us; FLOP: 3 us */
    equals(cost.extrapolated_s, cost.time_s);
    assert_int_equal(mist_cost_op(model, MIST_OP_GELU, MIST_PHASE_FORWARD,
                                  MIST_DTYPE_FP32, dims, 3e7, 1e6, &cost, &err),
                     MIST_OK);
    equals(cost.time_s, 3e7 / PEAK);
    assert_int_equal(mist_cost_op(model, MIST_OP_GELU, MIST_PHASE_FORWARD,
                                  MIST_DTYPE_BF16, dims, 3e7, 1e6, &cost, &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "bf16"));
    dims[0] = 0;
    assert_int_equal(mist_cost_op(model, MIST_OP_GELU, MIST_PHASE_FORWARD,
                                  MIST_DTYPE_FP32, dims, 0, 0, &cost, &err),
                     MIST_ERR_INPUT);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

static void add_row(struct mist_trace_set *set, const char *op, enum mist_phase phase,
                    const char *shape, double time_us)
{
    struct mist_kernel_row row = {.dtype = MIST_TRACE_FP32,
                                  .phase = phase,
                                  .time_us = time_us,
                                  .deviation_us = 8,
                                  .repetitions = 16};

    snprintf(row.op, sizeof row.op, "%s", op);
    assert_int_equal(mist_shape_parse(shape, &row.shape, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_add_kernel(set, &row, NULL), MIST_OK);
}

static struct mist_cost gelu_cost(const struct mist_trace_set *set, enum mist_phase phase)
{
    const int64_t dims[MIST_MAX_DIMS] = {64, 16, 32};
    struct mist_cost_model *model = model_of(set);
    struct mist_cost cost = {.time_s = -1, .deviation_s = -1, .extrapolated_s = -1};
    struct mist_err err = {0};

    must(mist_cost_op(model, MIST_OP_LINEAR_GELU, phase, MIST_DTYPE_FP32, dims, 1e6, 1e6,
                      &cost, &err),
         &err);
    mist_cost_model_free(model);
    return cost;
}

/* An operator without rows costs what its parts cost, and of them those that have no rows
 * their parts or the roofline; its own rows come first. */
TEST(test_operator_of_parts)
{
    struct mist_trace_set set;
    const double gelu_s = fmax(18 * 64 * 16 / PEAK, 4 * 3 * 64 * 16 / BANDWIDTH);
    struct mist_cost cost;

    start(&set);
    cost = gelu_cost(&set, MIST_PHASE_BACKWARD_INPUT); /* nothing is known */
    equals(cost.time_s, fmax(1e6 / PEAK, 1e6 / BANDWIDTH));
    equals(cost.extrapolated_s, cost.time_s);
    add_row(&set, "linear", MIST_PHASE_BACKWARD_INPUT, "rows=64;n_in=16;n_out=32", 40);
    cost = gelu_cost(&set, MIST_PHASE_BACKWARD_INPUT);
    equals(cost.time_s, 40e-6 + gelu_s);
    equals(cost.extrapolated_s, gelu_s);
    add_row(&set, "gelu", MIST_PHASE_BACKWARD_INPUT, "elements=1024",
            7); /* rows x n_in */
    add_row(&set, "gelu", MIST_PHASE_FORWARD, "elements=2048", 5);
    cost = gelu_cost(&set, MIST_PHASE_BACKWARD_INPUT);
    equals(cost.time_s, 47e-6);
    equals(cost.deviation_s, sqrt(8) * 1e-6); /* 2 us each */
    equals(cost.extrapolated_s, 0);
    add_row(&set, "linear_bias", MIST_PHASE_BACKWARD_INPUT, "rows=64;n_in=16;n_out=32",
            30);
    add_row(&set, "linear_bias", MIST_PHASE_FORWARD, "rows=64;n_in=16;n_out=32", 20);
    equals(gelu_cost(&set, MIST_PHASE_BACKWARD_INPUT).time_s, 37e-6);
    equals(gelu_cost(&set, MIST_PHASE_FORWARD).time_s, 25e-6);
    add_row(&set, "linear_gelu", MIST_PHASE_FORWARD, "rows=64;n_in=16;n_out=32", 21);
    equals(gelu_cost(&set, MIST_PHASE_FORWARD).time_s, 21e-6);
    equals(gelu_cost(&set, MIST_PHASE_BACKWARD_INPUT).time_s, 37e-6);
    mist_trace_set_fini(&set);
}

/* Three products and the loss; shapes that were not measured from each one's rows. */
TEST(test_loss_of_parts)
{
    struct mist_trace_set set;
    struct mist_cost cost;
    struct mist_err err = {0};
    const int64_t dims[MIST_MAX_DIMS] = {96, 16, 50};
    static const enum mist_phase phases[] = {
        MIST_PHASE_FORWARD, MIST_PHASE_BACKWARD_INPUT, MIST_PHASE_BACKWARD_WEIGHT};

    start(&set);
    for (int i = 0; i < 3; i++) {
        add_row(&set, "linear", phases[i], "rows=64;n_in=16;n_out=50", 100 << i);
        add_row(&set, "linear", phases[i], "rows=128;n_in=16;n_out=50", 200 << i);
    }
    add_row(&set, "cross_entropy", MIST_PHASE_FORWARD, "rows=96;vocab=50", 11);
    struct mist_cost_model *model = model_of(&set);
    assert_int_equal(mist_cost_op(model, MIST_OP_LINEAR_CROSS_ENTROPY, MIST_PHASE_FORWARD,
                                  MIST_DTYPE_FP32, dims, 1, 1, &cost, &err),
                     MIST_OK);
    equals(cost.time_s, (150 + 300 + 600 + 11) * 1e-6);
    equals(cost.extrapolated_s, 0);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

TEST(test_wrong_shape)
{
    struct mist_trace_set set;
    struct mist_cost_model *model = NULL;
    struct mist_err err = {0};
    struct mist_kernel_row row = {.op = "linear", .time_us = 1, .repetitions = 1};

    start(&set);
    assert_int_equal(mist_shape_parse("m=1;n=2;k=3", &row.shape, NULL), MIST_OK);
    assert_int_equal(mist_trace_set_add_kernel(&set, &row, NULL), MIST_OK);
    assert_int_equal(mist_cost_model_new(&set, &model, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "m=1;n=2;k=3"));
    assert_null(model);
    mist_trace_set_fini(&set);
}

/* --------------------------------------------------------------------------- programs */

static struct mist_step linear_step(int64_t rows)
{
    return (struct mist_step){.op = MIST_OP_LINEAR,
                              .phase = MIST_PHASE_FORWARD,
                              .n_dims = 3,
                              .dims = {rows, 8, 8},
                              .flop = 1,
                              .bytes = 1};
}

/* Equal steps share one measurement (their errors add), others are independent; the
 * all-reduce of tensor parallelism is no compute. */
TEST(test_program)
{
    struct mist_trace_set set;
    struct mist_cost cost;
    start(&set);
    add_linear(&set, 1, 8, 8, 10e-6);
    add_linear(&set, 2, 8, 8, 30e-6);
    struct mist_cost_model *model = model_of(&set);
    struct mist_step steps[] = {linear_step(1),
                                linear_step(2),
                                linear_step(1),
                                {.op = MIST_OP_TP_ALL_REDUCE, .n_dims = 1}};

    assert_int_equal(mist_cost_program(model, steps, 4, MIST_DTYPE_FP32, &cost, NULL),
                     MIST_OK);
    equals(cost.time_s, 50e-6);
    equals(cost.deviation_s, sqrt(4.0 * 4 + 2 * 2) * 1e-6);
    assert_int_equal(mist_cost_program(model, steps, 0, MIST_DTYPE_FP32, &cost, NULL),
                     MIST_OK);
    equals(cost.time_s, 0);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

static double optimizer_s(int64_t shard, int64_t padded)
{
    return (28.0 * (double)shard + 4.0 * (double)padded) / BANDWIDTH;
}

TEST(test_optimizer)
{
    struct mist_trace_set set;
    start(&set);
    struct mist_cost_model *model = model_of(&set);

    struct mist_cost cost = {0};
    assert_int_equal(mist_cost_add_elements(model, MIST_OP_ADAMW, MIST_DTYPE_FP32,
                                            MIST_DTYPE_FP32, 1000, &cost, NULL),
                     MIST_OK);
    assert_int_equal(mist_cost_add_elements(model, MIST_OP_ZERO, MIST_DTYPE_FP32,
                                            MIST_DTYPE_FP32, 4000, &cost, NULL),
                     MIST_OK);
    equals(cost.time_s, optimizer_s(1000, 4000));
    equals(cost.extrapolated_s, cost.time_s);
    cost = (struct mist_cost){0};
    assert_int_equal(mist_cost_add_elements(model, MIST_OP_ADAMW, MIST_DTYPE_FP32,
                                            MIST_DTYPE_FP32, 0, &cost, NULL),
                     MIST_OK);
    equals(cost.time_s, 0);
    /* bf16 gradients: 26 bytes of AdamW instead of 28, 2 of a norm, 6 of a sum */
    static const struct {
        enum mist_op op;
        double bytes;
    } uses[] = {{MIST_OP_ADAMW, 26},
                {MIST_OP_GRADIENT_NORM, 2},
                {MIST_OP_RESIDUAL, 6},
                {MIST_OP_ZERO, 2}};
    for (size_t i = 0; i < sizeof uses / sizeof *uses; i++) {
        cost = (struct mist_cost){0};
        assert_int_equal(mist_cost_add_elements(model, uses[i].op, MIST_DTYPE_FP32,
                                                MIST_DTYPE_BF16, 28000, &cost, NULL),
                         MIST_OK);
        equals(cost.time_s, uses[i].bytes * 28000 / BANDWIDTH);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* ------------------------------------------------------------------------------ links */

struct link_law {
    enum mist_link_operation operation;
    int nodes, ranks_per_node, concurrent_groups;
    double alpha_s, s_per_byte;
};

static void add_law(struct mist_trace_set *set, const struct link_law *law)
{
    for (int64_t bytes = 1 << 10; bytes <= 1 << 22; bytes *= 8) {
        struct mist_link_row row = {
            .operation = law->operation,
            .nodes = law->nodes,
            .ranks_per_node = law->ranks_per_node,
            .concurrent_groups = law->concurrent_groups,
            .bytes = bytes,
            .time_us = (law->alpha_s + law->s_per_byte * (double)bytes) * 1e6,
            .deviation_us = 3,
            .repetitions = 9};
        assert_int_equal(mist_trace_set_add_link(set, &row, NULL), MIST_OK);
    }
}

static const struct link_law laws[] = {
    {MIST_LINK_ALL_REDUCE, 1, 2, 1, 11e-6, 3e-10},
    {MIST_LINK_ALL_GATHER, 1, 2, 1, 7e-6, 2e-10},
    {MIST_LINK_REDUCE_SCATTER, 1, 2, 1, 8e-6, 2.5e-10},
    {MIST_LINK_SEND_RECV, 1, 2, 1, 5e-6, 1e-10},
    {MIST_LINK_SEND_RECV, 2, 1, 1, 25e-6, 1e-9},
    {MIST_LINK_HOST_TO_DEVICE, 1, 1, 1, 4e-6, 5e-11},
    {MIST_LINK_ALL_REDUCE, 2, 2, 1, 40e-6, 2e-9},
    {MIST_LINK_DEVICE_TO_HOST, 1, 1, 1, 6e-6, 7e-11},
};

enum { N_LAWS = sizeof laws / sizeof *laws };

static double law_s(const struct link_law *law, int64_t bytes)
{
    return law->alpha_s + law->s_per_byte * (double)bytes;
}

static struct mist_cost link_cost(const struct mist_cost_model *model,
                                  enum mist_link_operation operation, int nodes,
                                  int ranks_per_node, int groups, int64_t bytes)
{
    struct mist_cost cost = {.time_s = -1, .deviation_s = -1, .extrapolated_s = -1};
    struct mist_err err = {0};

    must(mist_cost_link(model, operation,
                        (struct mist_group_shape){nodes, ranks_per_node, groups}, bytes,
                        &cost, &err),
         &err);
    return cost;
}

/* The law at, between and beyond the sizes; only beyond is extrapolated. */
TEST(test_link)
{
    struct mist_trace_set set;
    start(&set);
    for (int i = 0; i < N_LAWS; i++)
        add_law(&set, &laws[i]);
    struct mist_cost_model *model = model_of(&set);
    for (int i = 0; i < N_LAWS; i++)
        for (int64_t bytes = 512; bytes <= 1 << 25; bytes = bytes * 2 + bytes / 4) {
            const struct link_law *law = &laws[i];
            struct mist_cost cost = link_cost(model, law->operation, law->nodes,
                                              law->ranks_per_node, 1, bytes);
            equals(cost.time_s, law_s(law, bytes));
            equals(cost.extrapolated_s,
                   bytes < 1 << 10 || bytes > 1 << 22 ? cost.time_s : 0);
        }
    equals(link_cost(model, MIST_LINK_ALL_REDUCE, 1, 2, 1, 1 << 10).deviation_s, 1e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A machine that was disturbed: times that fall. What is longer than all is never faster
 * than the longest, nor is any of the sizes as the others say it. */
TEST(test_link_falls)
{
    static const double times_us[] = {50, 900, 400, 100};
    struct mist_trace_set set;
    start(&set);
    for (int i = 0; i < 4; i++) {
        struct mist_link_row row = {.operation = MIST_LINK_SEND_RECV,
                                    .nodes = 1,
                                    .ranks_per_node = 2,
                                    .concurrent_groups = 1,
                                    .bytes = 1000 * (i + 1),
                                    .time_us = times_us[i],
                                    .repetitions = 9};
        assert_int_equal(mist_trace_set_add_link(&set, &row, NULL), MIST_OK);
    }
    struct mist_cost_model *model = model_of(&set);
    struct mist_link_fit *fits;
    size_t n;
    must(mist_cost_link_fits(model, &fits, &n, NULL), NULL);

    equals(link_cost(model, MIST_LINK_SEND_RECV, 1, 2, 1, 100000).time_s, 100e-6);
    assert_int_equal(n, 4);
    equals(fits[0].fitted_s, 1400e-6);
    equals(fits[3].fitted_s, 400e-6);
    free(fits);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

TEST(test_link_for_nothing)
{
    struct mist_trace_set set;
    start(&set);
    add_law(&set, &laws[0]);
    add_law(&set, &laws[5]);
    struct mist_cost_model *model = model_of(&set);

    equals(link_cost(model, MIST_LINK_ALL_REDUCE, 1, 2, 1, 0).time_s, 0);
    equals(link_cost(model, MIST_LINK_ALL_REDUCE, 1, 1, 1, 1 << 20).time_s, 0);
    assert_true(link_cost(model, MIST_LINK_HOST_TO_DEVICE, 1, 1, 1, 1 << 20).time_s > 0);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A shape that was not measured: the ring's volume, 2 (n - 1) / n of the message. */
TEST(test_link_stand_in)
{
    struct mist_trace_set set;
    start(&set);
    struct link_law pure = {MIST_LINK_ALL_REDUCE, 1, 2, 1, 0, 3e-10};
    add_law(&set, &pure);
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost cost = link_cost(model, MIST_LINK_ALL_REDUCE, 1, 8, 1, 1 << 20);

    equals(cost.time_s, law_s(&pure, 1 << 20) * (7.0 / 8) / (1.0 / 2));
    equals(cost.extrapolated_s, cost.time_s);
    equals(cost.borrowed_s, cost.time_s);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A latency goes by the steps from rank to rank: 1 of two ranks, 7 of eight, and of an
 * all-reduce over nodes those of a tree, 2 (7 + 2) against 2. */
TEST(test_link_steps)
{
    static const struct link_law two[] = {{MIST_LINK_ALL_GATHER, 1, 2, 1, 10e-6, 3e-10},
                                          {MIST_LINK_ALL_REDUCE, 1, 2, 1, 20e-6, 4e-10},
                                          {MIST_LINK_SEND_RECV, 1, 2, 1, 30e-6, 5e-10}};
    struct mist_trace_set set;
    start(&set);
    for (int i = 0; i < 3; i++)
        add_law(&set, &two[i]);
    struct mist_cost_model *model = model_of(&set);

    for (int64_t bytes = 100; bytes < 1 << 25; bytes *= 7) {
        double n = (double)bytes;
        equals(link_cost(model, MIST_LINK_ALL_GATHER, 1, 8, 1, bytes).time_s,
               7 * 10e-6 + (7.0 / 8) / (1.0 / 2) * 3e-10 * n);
        equals(link_cost(model, MIST_LINK_ALL_REDUCE, 4, 8, 1, bytes).time_s,
               9 * 20e-6 + (31.0 / 32) / (1.0 / 2) * 4e-10 * n);
        equals(link_cost(model, MIST_LINK_SEND_RECV, 2, 1, 1, bytes).time_s,
               30e-6 + 5e-10 * n);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Groups that run at once: of a node as fast as its devices, whose links all work in a ring
 * of eight, too; between nodes they share what one of them has alone. Of pure bandwidth, so
 * that a ring's volume, (n-1)/n, is all that differs. */
TEST(test_groups_at_once)
{
    static const struct {
        int of[3], by[3]; /* nodes, ranks in each, groups */
        double ratio;
    } cases[] = {
        {{1, 2, 4}, {1, 8, 1}, (1.0 / 2) / (7.0 / 8)},
        {{1, 4, 2}, {1, 8, 1}, (3.0 / 4) / (7.0 / 8)},
        {{1, 8, 1}, {1, 2, 4}, (7.0 / 8) / (1.0 / 2)},
        {{1, 2, 4}, {1, 2, 1}, 4},
        {{1, 8, 1}, {1, 2, 1}, (7.0 / 8) / (1.0 / 2)},
        {{2, 1, 8}, {2, 8, 1}, 8 * (1.0 / 2) / (15.0 / 16)},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int *of = cases[i].of, *by = cases[i].by;
        const struct link_law law = {MIST_LINK_ALL_REDUCE, by[0], by[1], by[2], 0, 1e-9};
        struct mist_trace_set set;
        struct mist_err err = {0};
        struct mist_cost there, here;
        start(&set);
        add_law(&set, &law);
        struct mist_cost_model *model = model_of(&set);
        must(mist_cost_link(model, law.operation,
                            (struct mist_group_shape){by[0], by[1], by[2]}, 1 << 20,
                            &there, &err),
             &err);
        must(mist_cost_link(model, law.operation,
                            (struct mist_group_shape){of[0], of[1], of[2]}, 1 << 20,
                            &here, &err),
             &err);
        if (fabs(here.time_s / there.time_s / cases[i].ratio - 1) > 1e-6)
            fail_msg("case %zu: %g, expected %g", i, here.time_s / there.time_s,
                     cases[i].ratio);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

TEST(test_link_missing)
{
    struct mist_trace_set set;
    struct mist_cost cost;
    struct mist_err err = {0};
    start(&set);
    add_law(&set, &laws[1]);
    add_law(&set, &laws[2]);
    struct mist_cost_model *model = model_of(&set);

    cost = link_cost(model, MIST_LINK_ALL_REDUCE, 1, 2, 1, 1 << 20);
    equals(cost.time_s, law_s(&laws[1], 1 << 20) + law_s(&laws[2], 1 << 20));
    equals(cost.extrapolated_s, cost.time_s);
    assert_int_equal(mist_cost_link(model, MIST_LINK_SEND_RECV,
                                    (struct mist_group_shape){1, 2, 1}, 1 << 20, &cost,
                                    &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "send_recv"));
    assert_non_null(strstr(err.message, "mist-profile"));
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* The middle size, left out, would have been off by 20 %: between sizes that is the
 * deviation, beside the spread of the two rows; at a measured size it is not. */
TEST(test_link_residual)
{
    struct mist_trace_set set;
    static const double times_us[] = {100, 250, 300};
    start(&set);
    for (int i = 0; i < 3; i++) {
        struct mist_link_row row = {.operation = MIST_LINK_ALL_GATHER,
                                    .nodes = 1,
                                    .ranks_per_node = 2,
                                    .concurrent_groups = 1,
                                    .bytes = 100 * (i + 1),
                                    .time_us = times_us[i],
                                    .deviation_us = 6,
                                    .repetitions = 9};
        assert_int_equal(mist_trace_set_add_link(&set, &row, NULL), MIST_OK);
    }
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost cost = link_cost(model, MIST_LINK_ALL_GATHER, 1, 2, 1, 150);

    equals(cost.time_s, 175e-6);
    equals(cost.deviation_s, hypot(sqrt(2) * 1e-6, 0.2 * 175e-6));
    equals(link_cost(model, MIST_LINK_ALL_GATHER, 1, 2, 1, 200).deviation_s, 2e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* What was not measured comes from what a ring does alike; all of it extrapolated. */
TEST(test_link_mirrors)
{
    struct mist_trace_set set;
    start(&set);
    add_law(&set, &laws[1]); /* all_gather alone */
    add_law(&set, &laws[5]); /* host_to_device alone */
    struct mist_cost_model *model = model_of(&set);
    struct mist_cost cost = link_cost(model, MIST_LINK_REDUCE_SCATTER, 1, 2, 1, 1 << 20);

    equals(cost.time_s, law_s(&laws[1], 1 << 20));
    equals(cost.extrapolated_s, cost.time_s);
    equals(link_cost(model, MIST_LINK_ALL_REDUCE, 1, 2, 1, 1 << 20).time_s,
           2 * law_s(&laws[1], 1 << 20));
    equals(link_cost(model, MIST_LINK_DEVICE_TO_HOST, 1, 1, 1, 1 << 20).time_s,
           law_s(&laws[5], 1 << 20));
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
    start(&set);
    add_law(&set, &laws[0]); /* all_reduce alone: either half of it */
    model = model_of(&set);
    equals(link_cost(model, MIST_LINK_ALL_GATHER, 1, 2, 1, 1 << 20).time_s,
           law_s(&laws[0], 1 << 20) / 2);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* -------------------------------------------------------------------------- schedules */

/* Two stages of two ranks, each on its own node; the first shards its optimizer. */
static void make_plan(struct mist_plan *plan)
{
    struct mist_err err = {0};

    *plan = (struct mist_plan){.model = mist_tiny_model(MIST_FAMILY_GPT, 3),
                               .job = {.global_batch = 12, .seq_len = 8},
                               .n_micro_batches = 3,
                               .n_stages = 2};
    for (int i = 0; i < 2; i++) {
        plan->stages[i] = mist_tiny_stage(1 + i, 2, 2, 1);
        plan->stages[i].zero = i == 0;
        plan->stages[i].n_checkpointed = i;
        plan->stages[i].n_lean = 1;
    }
    must(mist_plan_check(plan, &err), &err);
}

static double bound_s(double flop, double bytes)
{
    return fmax(flop / PEAK, bytes / BANDWIDTH);
}

static double zero_s(int64_t elements)
{
    return bound_s(0, 4.0 * (double)elements);
}

static double norm_s(int64_t elements)
{
    return bound_s(2.0 * (double)elements, 4.0 * (double)elements);
}

/* One part of a program, computation only. */
static double part_s(const struct mist_layer_layout *layout, const struct mist_task *task)
{
    const struct mist_part *part = &layout->programs[task->program].parts[task->part];
    bool is_backward = task->program != MIST_PROGRAM_FORWARD &&
                       task->program != MIST_PROGRAM_RECOMPUTE &&
                       task->program != MIST_PROGRAM_REMAKE;
    double sum = zero_s(task->n_zeroed_elements);

    for (int32_t i = part->first_step; i < part->first_step + part->n_steps; i++) {
        const struct mist_step *step =
            is_backward ? &layout->backward[i] : &layout->forward[i];
        if (step->op == MIST_OP_ATTENTION_PART) { /* half of that of whole sequences */
            struct mist_work whole = mist_op_work(MIST_OP_ATTENTION, step->phase,
                                                  step->dims, layout->shape.dtype);
            equals((double)whole.flop, 2 * (double)step->flop);
            sum += bound_s((double)whole.flop, (double)whole.bytes) / 2;
            continue;
        }
        sum += bound_s((double)step->flop, (double)step->bytes);
    }
    return sum;
}

/* What a task should cost on the machine of the laws, without launch. Stages are a node
 * each, of two ranks: data-parallel in the one case, tensor-parallel in the other. */
static double expected_s(const struct mist_plan *plan, const struct mist_schedule *at,
                         const struct mist_task *task)
{
    const struct mist_layer_layout *layout =
        task->layer < 0
            ? NULL
            : &at->layouts[mist_schedule_layer_kind(&plan->model, task->layer)];
    const struct mist_stage_plan *stage = &plan->stages[at->i_stage];

    switch (task->kind) {
    case MIST_TASK_FORWARD:
    case MIST_TASK_RECOMPUTE:
    case MIST_TASK_BACKWARD:
    case MIST_TASK_BACKWARD_INPUT:
    case MIST_TASK_BACKWARD_WEIGHT:
        return part_s(layout, task);
    case MIST_TASK_OPTIMIZER:
        return optimizer_s(task->n_elements, task->n_zeroed_elements);
    case MIST_TASK_GRADIENT_NORM:
        return norm_s(task->n_elements);
    case MIST_TASK_ACCUMULATE_GRADIENT:
        return bound_s((double)task->n_elements, 12.0 * (double)task->n_elements);
    case MIST_TASK_REDUCE_GRADIENT:
        return law_s(&laws[stage->zero ? 2 : 0], task->bytes) + norm_s(task->bytes / 4);
    case MIST_TASK_GATHER_PARAMETER:
    case MIST_TASK_TP_ALL_GATHER:
    case MIST_TASK_CP_ALL_GATHER:
        return law_s(&laws[1], task->bytes);
    case MIST_TASK_TP_REDUCE_SCATTER:
    case MIST_TASK_CP_REDUCE_SCATTER:
        return law_s(&laws[2], task->bytes);
    case MIST_TASK_TP_ALL_REDUCE:
    case MIST_TASK_TP_REDUCE_GRADIENT:
        return law_s(&laws[0], task->bytes);
    case MIST_TASK_REDUCE_NORM:
        return law_s(&laws[plan->n_stages > 1 ? 6 : 0], task->bytes);
    case MIST_TASK_TIE_GRADIENT:
        if (task->stream == MIST_STREAM_COMPUTE)
            return bound_s((double)task->n_elements, 12.0 * (double)task->n_elements) +
                   zero_s(task->n_zeroed_elements);
        break;
    default:
        break;
    }
    if (task->stream == MIST_STREAM_HOST_TO_DEVICE)
        return law_s(&laws[5], task->bytes);
    if (task->stream == MIST_STREAM_DEVICE_TO_HOST)
        return law_s(&laws[7], task->bytes);
    return 2 * law_s(&laws[4], task->bytes); /* transfers: all between the two nodes, two
                                                at once, one by one */
}

/* Computing takes longer than rows say; differently for those who wait often. */
static double skewed_s(const struct mist_plan *plan, const struct mist_schedule *schedule,
                       const struct mist_task *task)
{
    double time_s = expected_s(plan, schedule, task);

    if (task->stream != MIST_STREAM_COMPUTE)
        return time_s;
    return time_s * (plan->stages[schedule->i_stage].tp > 1 ? 1.25
                     : mist_plan_n_ranks(plan) > 1          ? 1.125
                                                            : 1.0625);
}

/* Every task of every rank; returns the kinds seen. */
static uint64_t check_schedules(const struct mist_cost_model *model,
                                const struct mist_plan *plan)
{
    struct mist_err err = {0};
    uint64_t kinds = 0;

    for (int32_t rank = 0; rank < mist_plan_n_ranks(plan); rank++) {
        struct mist_schedule *schedule = NULL;
        struct mist_cost costs[256];
        assert_int_equal(mist_schedule_build(plan, rank, 1, &schedule, &err), MIST_OK);
        assert_true(schedule->n_costs <= 256);
        must(mist_cost_schedule(model, plan, schedule, costs, &err), &err);
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            equals(costs[task->cost].time_s, LAUNCH_S + skewed_s(plan, schedule, task));
            kinds |= (uint64_t)1 << task->kind;
        }
        mist_schedule_free(schedule);
    }
    return kinds;
}

/* Data-, tensor-, sequence- and context-parallel, all pipelines, tied and offloaded;
 * all task kinds occur. */
TEST(test_schedule)
{
    static struct mist_plan plan;
    struct mist_trace_set set;
    struct mist_err err = {0};
    uint64_t kinds = 0;
    start(&set);
    set.cluster.skew = (struct mist_trace_skew){0.0625, 0.125, 0.25};
    for (int i = 0; i < N_LAWS; i++)
        add_law(&set, &laws[i]);
    struct mist_cost_model *model = model_of(&set);
    for (int kind = 0; kind <= 3; kind++) /* 0: one rank; 3: cp 2 */
        for (int bits = kind > 0 ? 0 : 16; bits < 32; bits++) {
            int tp = kind < 3 ? kind : 1;
            make_plan(&plan);
            plan.model.ties_embeddings = bits & 2;
            plan.pipeline = bits & 4 ? MIST_PIPELINE_ZB_H1 : MIST_PIPELINE_1F1B;
            plan.reduces_each_micro_batch = bits & 8;
            if (bits & 16) { /* one stage, both ends on one node */
                plan.n_stages = 1;
                plan.stages[0].n_layers = 3;
            }
            for (int i = 0; i < plan.n_stages; i++) {
                struct mist_stage_plan *stage = &plan.stages[i];
                stage->cp = kind == 3 ? 2 : 0;
                stage->dp = tp > 0 && kind < 3 ? 2 / tp : 1;
                stage->tp = tp > 0 ? tp : 1;
                stage->micro_batch = 4 / stage->dp;
                if (tp == 0)
                    stage->n_nodes = stage->n_devices = 1;
                stage->is_sequence_parallel = tp > 1 && (bits & 1);
                if (bits & 1)
                    stage->offload_weights = stage->offload_gradients =
                        stage->offload_optimizer = stage->offload_activations = 0.5;
            }
            must(mist_plan_check(&plan, &err), &err);
            kinds |= check_schedules(model, &plan);
        }
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        if (!(kinds >> i & 1))
            fail_msg("%s did not occur", mist_task_kind_name((enum mist_task_kind)i));
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A sum over ranks is priced with a look at every gradient, whatever weights and
 * gradients are stored as: the bytes of the message, read once. */
TEST(test_scans)
{
    static const enum mist_dtype dtypes[] = {MIST_DTYPE_FP32, MIST_DTYPE_BF16};
    static struct mist_plan plan;
    struct mist_trace_set set;
    struct mist_err err = {0};
    int n_seen = 0;

    start(&set);
    set.cluster.peak_flop_per_s[MIST_TRACE_BF16] = PEAK;
    for (int i = 0; i < N_LAWS; i++)
        add_law(&set, &laws[i]);
    struct mist_cost_model *model = model_of(&set);
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        struct mist_schedule *schedule = NULL;
        struct mist_cost costs[256];
        make_plan(&plan);
        plan.job.dtype = MIST_DTYPE_BF16;
        plan.job.gradient_dtype = dtypes[k];
        must(mist_plan_check(&plan, &err), &err);
        must(mist_schedule_build(&plan, 0, 1, &schedule, &err), &err);
        assert_true(schedule->n_costs <= 256);
        must(mist_cost_schedule(model, &plan, schedule, costs, &err), &err);
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            if (task->kind != MIST_TASK_REDUCE_GRADIENT)
                continue;
            equals(costs[task->cost].time_s, LAUNCH_S + law_s(&laws[2], task->bytes) +
                                                 (double)task->bytes / BANDWIDTH);
            n_seen++;
        }
        mist_schedule_free(schedule);
    }
    assert_true(n_seen > 0);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Prices of the host's steps of a plan; NULL: refused for want of rows. */
static void check_host(const struct mist_trace_set *set, const struct mist_plan *plan,
                       double (*wanted_s)(int64_t n))
{
    struct mist_cost_model *model = model_of(set);
    struct mist_schedule *schedule = NULL;
    struct mist_err err = {0};
    int n_steps = 0;

    assert_int_equal(mist_schedule_build(plan, 0, 1, &schedule, &err), MIST_OK);
    struct mist_cost *costs = calloc((size_t)schedule->n_costs, sizeof *costs);
    enum mist_status status = mist_cost_schedule(model, plan, schedule, costs, &err);
    assert_int_equal(mist_cost_model_prices_host(model, plan->job.dtype),
                     wanted_s != NULL);
    assert_int_equal(status, wanted_s ? MIST_OK : MIST_ERR_INPUT);
    if (!wanted_s)
        assert_non_null(strstr(err.message, "adamw_host"));
    for (int32_t i = 0; i < schedule->n_tasks && wanted_s; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->stream != MIST_STREAM_HOST)
            continue;
        assert_int_equal(task->kind, MIST_TASK_OPTIMIZER);
        equals(costs[task->cost].time_s, wanted_s(task->n_elements));
        n_steps++;
    }
    assert_true(!wanted_s || n_steps > 1);
    free(costs);
    mist_schedule_free(schedule);
    mist_cost_model_free(model);
}

static double measured_s(int64_t n)
{
    return 1e-6 + 2e-9 * (double)n;
}

static double device_s(int64_t n)
{
    return optimizer_s(n, 0);
}

static double declared_s(int64_t n)
{
    return 4 * (double)n / 2e9; /* four devices share a node's processors */
}

/* By its own rows; on a CPU as the device's; by a declared rate; else not at all. */
TEST(test_update_on_host)
{
    static struct mist_plan plan;
    struct mist_trace_set set;

    make_plan(&plan);
    for (int i = 0; i < plan.n_stages; i++) {
        plan.stages[i].offload_optimizer = 1;
        plan.stages[i].updates_on_host = true;
    }
    start(&set);
    for (int i = 0; i < N_LAWS; i++)
        add_law(&set, &laws[i]);
    set.cluster.backend = MIST_TRACE_CPU;
    check_host(&set, &plan, device_s);
    set.cluster.backend = MIST_TRACE_DATASHEET;
    check_host(&set, &plan, NULL);
    int devices_per_node = set.cluster.devices_per_node;
    set.cluster.devices_per_node = 4;
    set.cluster.curve.host_adamw_elements_per_s = 2e9;
    check_host(&set, &plan, declared_s);
    set.cluster.devices_per_node = devices_per_node;
    for (int64_t n = 1; n <= 1 << 24; n *= 1 << 24) {
        struct mist_kernel_row row = {
            .op = "adamw_host",
            .dtype = MIST_TRACE_FP32,
            .phase = MIST_PHASE_OPTIMIZER,
            .time_us = measured_s(n) * 1e6,
            .repetitions = 10,
        };
        assert_int_equal(mist_shape_parse(n > 1 ? "elements=16777216" : "elements=1",
                                          &row.shape, NULL),
                         MIST_OK);
        assert_int_equal(mist_trace_set_add_kernel(&set, &row, NULL), MIST_OK);
    }
    check_host(&set, &plan, measured_s);
    mist_trace_set_fini(&set);
}

/* Where groups lie: ranks of four devices, two on each node. */
TEST(test_placement)
{
    static struct mist_plan plan;
    /* nodes, ranks per node and groups at once, with a price of its own each */
    static const struct link_law places[] = {
        {MIST_LINK_ALL_REDUCE, 1, 2, 1, 1e-6, 0},
        {MIST_LINK_ALL_REDUCE, 2, 1, 2, 2e-6, 0},
        {MIST_LINK_ALL_REDUCE, 2, 2, 1, 3e-6, 0},
        {MIST_LINK_ALL_REDUCE, 4, 1, 2, 4e-6, 0},
        {MIST_LINK_ALL_REDUCE, 1, 2, 2, 5e-6, 0},
        {MIST_LINK_HOST_TO_DEVICE, 1, 1, 1, 0, 0},
        {MIST_LINK_ALL_REDUCE, 4, 2, 1, 6e-6, 0},
    };
    /* dp, tp, devices per node: the index of the groups over dp and over tp */
    static const int cases[][5] = {
        {2, 2, 2, 1, 0}, /* tp inside nodes, dp across: two groups share each node */
        {2, 2, 4, 4, 4}, /* all on one node: two groups each */
        {4, 2, 2, 3, 0},
        {1, 4, 2, -1, 2},
    };

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct mist_trace_set set;
        struct mist_err err = {0};
        int dp = cases[c][0], tp = cases[c][1];
        start(&set);
        set.cluster.devices_per_node = cases[c][2];
        set.cluster.launch_us = 0;
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            struct link_law law = places[i];
            law.s_per_byte = 1e-30;
            law.alpha_s += 1e-12;
            add_law(&set, &law);
        }
        struct mist_cost_model *model = model_of(&set);
        plan = (struct mist_plan){.model = mist_tiny_model(MIST_FAMILY_GPT, 1),
                                  .job = {.global_batch = 4, .seq_len = 8},
                                  .n_micro_batches = 1,
                                  .n_stages = 1};
        plan.stages[0] = mist_tiny_stage(1, 4 / dp, dp, tp);
        plan.model.ffn = 40;
        assert_int_equal(mist_plan_check(&plan, &err), MIST_OK);
        for (int32_t rank = 0; rank < dp * tp; rank++) {
            struct mist_schedule *schedule = NULL;
            struct mist_cost costs[256];
            int n_seen[2] = {0};
            assert_int_equal(mist_schedule_build(&plan, rank, 1, &schedule, &err),
                             MIST_OK);
            must(mist_cost_schedule(model, &plan, schedule, costs, &err), &err);
            for (int32_t i = 0; i < schedule->n_tasks; i++) {
                const struct mist_task *task = &schedule->tasks[i];
                bool is_tp = task->kind == MIST_TASK_TP_ALL_REDUCE;
                if (!is_tp && task->kind != MIST_TASK_REDUCE_GRADIENT)
                    continue;
                double time_s = costs[task->cost].time_s;
                if (!is_tp)
                    time_s -= norm_s(task->bytes / 4);
                double expected = places[cases[c][3 + is_tp]].alpha_s;
                if (fabs(time_s - expected) > 1e-9)
                    fail_msg("case %zu: %g, expected %g", c, time_s, expected);
                n_seen[is_tp]++;
            }
            assert_true((n_seen[0] > 0) == (dp > 1) && n_seen[1] > 0);
            mist_schedule_free(schedule);
        }
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

/* Two stages of eight ranks, each stage a node (of 8), the first of dp0 x tp0: on all
 * ranks a transfer takes time_s[is_gradient] for the bytes of one. */
static void check_sends(const struct mist_trace_set *set, int dp0, int tp0,
                        double (*const time_s[2])(double bytes))
{
    static struct mist_plan plan;
    struct mist_cost_model *model = model_of(set);
    struct mist_err err = {0};
    int n_seen = 0;

    plan = (struct mist_plan){.model = mist_tiny_model(MIST_FAMILY_GPT, 2),
                              .job = {.global_batch = 8, .seq_len = 8},
                              .n_micro_batches = 1,
                              .n_stages = 2};
    for (int i = 0; i < 2; i++)
        plan.stages[i] =
            i ? mist_tiny_stage(1, 1, 8, 1) : mist_tiny_stage(1, 8 / dp0, dp0, tp0);
    must(mist_plan_check(&plan, &err), &err);
    for (int32_t rank = 0; rank < 16; rank++) {
        struct mist_schedule *schedule = NULL;
        struct mist_cost costs[256];
        must(mist_schedule_build(&plan, rank, 1, &schedule, &err), &err);
        assert_true(schedule->n_costs <= 256);
        must(mist_cost_schedule(model, &plan, schedule, costs, &err), &err);
        for (int32_t i = 0; i < schedule->n_tasks; i++) {
            const struct mist_task *task = &schedule->tasks[i];
            bool is_gradient = task->kind == MIST_TASK_SEND_GRADIENT ||
                               task->kind == MIST_TASK_RECV_GRADIENT;
            if (task->group != MIST_GROUP_PEER)
                continue;
            equals(costs[task->cost].time_s,
                   LAUNCH_S + time_s[is_gradient]((double)task->bytes));
            n_seen++;
        }
        mist_schedule_free(schedule);
    }
    assert_true(n_seen >= 4 * 8);
    mist_cost_model_free(model);
}

static double one_s(double bytes)
{
    return 10e-6 + bytes / 10e9;
}

static double four_s(double bytes)
{
    return 10e-6 + 4 * bytes / 10e9;
}

static double eight_s(double bytes)
{
    return 10e-6 + 8 * bytes / 10e9;
}

static double measured_one_s(double bytes)
{
    return bytes / 5e9;
}

static double measured_eight_s(double bytes)
{
    return 8 * measured_one_s(bytes);
}

static double together_s(double bytes)
{
    return 3e-6 + bytes / 2e9;
}

static double within_s(double bytes)
{
    return law_s(&laws[3], (int64_t)bytes);
}

/* Ranks of a node send at once through one adapter or eight, by what is declared, by one
 * pair that was measured, and by as many pairs. */
TEST(test_sends_at_once)
{
    const struct link_law one = {MIST_LINK_SEND_RECV, 2, 1, 1, 0, 1 / 5e9};
    const struct link_law eight = {MIST_LINK_SEND_RECV, 2, 1, 8, 3e-6, 1 / 2e9};
    struct mist_trace_set set;

    start(&set);
    set.cluster.devices_per_node = 8;
    for (int i = 0; i < N_LAWS; i++)
        if (i != 4)
            add_law(&set, &laws[i]);
    set.cluster.declared = (struct mist_trace_declared){
        .device = {100e9, 2}, .node = {10e9, 10}, .adapters = 1};
    check_sends(&set, 8, 1, (double (*const[2])(double)){eight_s, eight_s});
    /* one of two ranks with the same rows sends them, and both get the gradient */
    check_sends(&set, 4, 2, (double (*const[2])(double)){four_s, eight_s});
    set.cluster.declared.node.bytes_per_s = 80e9;
    set.cluster.declared.adapters = 8;
    check_sends(&set, 8, 1, (double (*const[2])(double)){one_s, one_s});
    add_law(&set, &one);
    set.cluster.declared.node.latency_us = 0; /* as the law, also below its sizes */
    check_sends(&set, 8, 1, (double (*const[2])(double)){measured_one_s, measured_one_s});
    set.cluster.declared = (struct mist_trace_declared){0}; /* what they share */
    check_sends(&set, 8, 1,
                (double (*const[2])(double)){measured_eight_s, measured_eight_s});
    add_law(&set, &eight);
    check_sends(&set, 8, 1, (double (*const[2])(double)){together_s, together_s});
    set.cluster.devices_per_node = 16; /* nobody leaves the node */
    check_sends(&set, 8, 1, (double (*const[2])(double)){within_s, within_s});
    mist_trace_set_fini(&set);
}

TEST(test_interference)
{
    struct mist_trace_set set;
    start(&set);
    for (int i = 1; i <= 4; i++) { /* compute 1.5 x and gpu_gpu 2 x slower together */
        double a = 100, b = 60.0 * i;
        double both = fmin(1.5 * a, 2 * b);
        double together = both + fmax(a - both / 1.5, b - both / 2);
        struct mist_interference_row row = {.channels = 1u << MIST_STREAM_COMPUTE |
                                                        1u << MIST_STREAM_GPU_GPU,
                                            .nodes = 1,
                                            .ranks_per_node = 2,
                                            .alone_us = {a, b},
                                            .together_us = together,
                                            .repetitions = 1};
        assert_int_equal(mist_trace_set_add_interference(&set, &row, NULL), MIST_OK);
    }
    struct mist_cost_model *model = model_of(&set);
    const struct mist_interference *fit = mist_cost_model_interference(model);
    assert_true(fabs(fit->slowdown[3][MIST_STREAM_COMPUTE] - 1.5) < 1e-3);
    assert_true(fabs(fit->slowdown[3][MIST_STREAM_GPU_GPU] - 2) < 1e-3);
    assert_true(mist_cost_model_interference_residual_frac(model) < 1e-3);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* One mixture measured twice (but for rounding), 200 and 100 us: whatever the factors,
 * one time x answers both. (x/200 - 1)^2 + (x/100 - 1)^2 is least at 120: 40 and 20 %. */
TEST(test_interference_residual)
{
    struct mist_trace_set set;
    start(&set);
    struct mist_cost_model *model = model_of(&set);
    assert_true(mist_cost_model_interference_residual_frac(model) == 0);
    mist_cost_model_free(model);
    for (int i = 1; i <= 2; i++) {
        struct mist_interference_row row = {.channels = 1u << MIST_STREAM_COMPUTE |
                                                        1u << MIST_STREAM_GPU_GPU,
                                            .nodes = 1,
                                            .ranks_per_node = 2,
                                            .alone_us = {100, 100 + 1e-9 * i},
                                            .together_us = 100 * i,
                                            .repetitions = 1};
        assert_int_equal(mist_trace_set_add_interference(&set, &row, NULL), MIST_OK);
    }
    model = model_of(&set);
    double residual_frac = mist_cost_model_interference_residual_frac(model);
    if (!(fabs(residual_frac - 0.3) < 0.01))
        fail_msg("%g, expected 0.3", residual_frac);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* ------------------------------------------------------------------- reference tables */

enum { MAX_SIZES = 64 };

struct table {
    int n;
    double bytes[MAX_SIZES], time_us[MAX_SIZES];
};

/* Reads "size_B,...,time_us,..." tables of nccl-tests; false for other ones. */
static bool read_table(const char *path, struct table *out)
{
    char line[512];
    bool is_header_read = false;
    FILE *file = fopen(path, "r");

    out->n = 0;
    if (!file)
        return false;
    while (fgets(line, sizeof line, file) && out->n < MAX_SIZES) {
        double bytes, time_us;
        if (line[0] == '#')
            continue;
        if (!is_header_read) {
            is_header_read = true;
            if (strncmp(line, "size_B,count,dtype,redop,time_us,", 33) != 0)
                break;
        } else if (sscanf(line, "%lf,%*[^,],%*[^,],%*[^,],%lf", &bytes, &time_us) == 2 &&
                   (out->n == 0 || bytes > out->bytes[out->n - 1])) {
            out->bytes[out->n] = bytes;
            out->time_us[out->n++] = time_us;
        }
    }
    fclose(file);
    return out->n >= 3;
}

/* Mean relative error of leaving each inner size out; by the cost model itself. */
static double leave_out_model(const struct table *table)
{
    double sum = 0;

    for (int out = 1; out + 1 < table->n; out++) {
        struct mist_trace_set set;
        start(&set);
        for (int i = 0; i < table->n; i++) {
            struct mist_link_row row = {.operation = MIST_LINK_ALL_REDUCE,
                                        .nodes = 1,
                                        .ranks_per_node = 2,
                                        .concurrent_groups = 1,
                                        .bytes = (int64_t)table->bytes[i],
                                        .time_us = table->time_us[i],
                                        .repetitions = 1};
            if (i != out)
                assert_int_equal(mist_trace_set_add_link(&set, &row, NULL), MIST_OK);
        }
        struct mist_cost_model *model = model_of(&set);
        struct mist_cost cost =
            link_cost(model, MIST_LINK_ALL_REDUCE, 1, 2, 1, (int64_t)table->bytes[out]);
        sum += fabs(cost.time_s * 1e6 / table->time_us[out] - 1);
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
    return sum / (table->n - 2);
}

/* The same for a rule that was not taken: straight in f(bytes), g(time). */
static double leave_out_rule(const struct table *table, bool logs_time)
{
    double sum = 0;

    for (int i = 1; i + 1 < table->n; i++) {
        double w = log(table->bytes[i] / table->bytes[i - 1]) /
                   log(table->bytes[i + 1] / table->bytes[i - 1]);
        double a = table->time_us[i - 1], b = table->time_us[i + 1];
        double time_us = logs_time ? a * pow(b / a, w) : a + w * (b - a);
        sum += fabs(time_us / table->time_us[i] - 1);
    }
    return sum / (table->n - 2);
}

TEST(test_reference_links)
{
    char folder[REFERENCE_PATH_BYTES], path[2 * REFERENCE_PATH_BYTES];
    double sums[3] = {0};
    int n = 0;

    if (!find_reference("links", folder))
        skip();
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir)) {
        struct table table;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (!strstr(entry->d_name, ".csv") || strstr(entry->d_name, "repeats") ||
            !read_table(path, &table))
            continue;
        sums[0] += leave_out_model(&table);
        sums[1] += leave_out_rule(&table, true);
        sums[2] += leave_out_rule(&table, false);
        n++;
    }
    closedir(dir);
    assert_true(n >= 10);
    print_message("%d tables, leave one out, mean error: straight in bytes %.1f %%, "
                  "in log-log %.1f %%, in log(bytes) %.1f %%\n",
                  n, 100 * sums[0] / n, 100 * sums[1] / n, 100 * sums[2] / n);
    assert_true(sums[0] < sums[1] && sums[1] < sums[2]);
}

TEST_MAIN(NULL, NULL)
