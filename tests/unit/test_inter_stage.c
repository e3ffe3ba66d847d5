/*
 * The inter-stage solvers on cases worked out by hand, at their edges, and on bad input.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tune/inter_stage.h"
#include "tune/inter_stage_glpk.h"

#include <math.h>

#define ANY MIST_INTER_STAGE_ANY_DEVICES

/* GLPK's, declared here since only the solver includes its header:
 * a limit in MB on its memory. */
void glp_mem_limit(int limit);

static const struct mist_inter_stage_config best_one = {.n_best = 1};
static const struct mist_inter_stage_glpk_config no_limits = {60, INFINITY};

/* Two stages, 4 layers: {layers, devices, t, d, payload}. */
static const struct mist_stage_option stage_a[] = {{1, 1, 1.0, 0.5, 10},
                                                   {2, 1, 2.0, 0.5, 11},
                                                   {2, 2, 1.5, 3.0, 12},
                                                   {3, 2, 3.0, 0.0, 13}};
static const struct mist_stage_option stage_b[] = {{1, 1, 1.0, 0.0, 20},
                                                   {2, 1, 2.0, 3.0, 21},
                                                   {2, 1, 2.5, 0.0, 22},
                                                   {3, 2, 2.5, 1.0, 23}};
static const struct mist_stage_option *const two_stages[] = {stage_a, stage_b};
static const size_t four_each[] = {4, 4};

static struct mist_inter_stage_problem make_two(int32_t n_layers, int32_t n_devices,
                                                int64_t g)
{
    return (struct mist_inter_stage_problem){.n_stages = 2,
                                             .n_layers = n_layers,
                                             .n_devices = n_devices,
                                             .n_micro_batches = g,
                                             .options = two_stages,
                                             .n_options = four_each};
}

/* Both solvers must give this time. */
static void check_time(const struct mist_inter_stage_problem *problem, double expected_s)
{
    struct mist_inter_stage_result result;
    struct mist_inter_stage_glpk_result glpk;
    int32_t i_option[16];
    assert_int_equal(mist_inter_stage_solve(problem, &best_one, &result, NULL), MIST_OK);
    assert_true(fabs(result.solutions[0].time_s - expected_s) < 1e-12);
    mist_inter_stage_result_fini(&result);
    assert_int_equal(
        mist_inter_stage_solve_glpk(problem, &no_limits, i_option, &glpk, NULL), MIST_OK);
    assert_int_equal(glpk.outcome, MIST_INTER_STAGE_OPTIMAL);
    assert_true(fabs(glpk.time_s - expected_s) < 1e-12);
    assert_true(glpk.bound_s == glpk.time_s);
}

static void check_none(const struct mist_inter_stage_problem *problem)
{
    struct mist_inter_stage_result result;
    struct mist_inter_stage_glpk_result glpk;
    struct mist_err err = {0};
    int32_t i_option[16];
    assert_int_equal(mist_inter_stage_solve(problem, &best_one, &result, &err),
                     MIST_ERR_NO_PLAN);
    assert_true(err.message[0] != '\0');
    assert_int_equal(
        mist_inter_stage_solve_glpk(problem, &no_limits, i_option, &glpk, NULL), MIST_OK);
    assert_int_equal(glpk.outcome, MIST_INTER_STAGE_INFEASIBLE);
    assert_true(glpk.time_s == INFINITY && glpk.bound_s == INFINITY);
}

TEST(test_two_stages_by_hand)
{
    struct mist_inter_stage_problem problem = make_two(4, ANY, 1);
    /* Layers 1 + 3: 1 + 2.5, slack max(0.5, 1 - 1) = 0.5: 4.0 at G = 1.
     * 2 + 2: a 2.0/0.5: with 21: 4 + max(0.5, 3 - 2) = 5; with 22: 4.5 + 0.5 = 5.
     *        a 1.5/3.0: with 21: 3.5 + 3 = 6.5.            3 + 1: 4 + 0 = 4.0 */
    check_time(&problem, 4.0);
    problem.n_micro_batches =
        11; /* 10 max t: 25 + 4; 20 + 5 (2 + 2, option 21); 30 + 4 */
    check_time(&problem, 25.0);
    problem.n_devices = 2; /* 1 + 1: only 2 + 2 with a 2.0/0.5 */
    check_time(&problem, 25.0);
    problem.n_devices =
        3; /* 1 + 3 (1, 2 devices), 3 + 1 (2, 1), 2 + 2 (2, 1): 20 + 6.5 */
    check_time(&problem, 26.5);
    problem.n_devices = 4; /* 2 + 2 layers are 3 devices at most, 3 + 1: 3 */
    check_none(&problem);
}

TEST(test_time_is_the_formula)
{
    struct mist_inter_stage_problem problem = make_two(4, ANY, 3);
    /* 2 max(2, 2) + 4 + max(0, 0.5, 3 - 2) */
    assert_true(mist_inter_stage_time(&problem, (int32_t[]){1, 1}) == 9.0);
    /* 2 max(3, 1) + 4 + max(0, 0, 0 - 3) */
    assert_true(mist_inter_stage_time(&problem, (int32_t[]){3, 0}) == 10.0);
}

TEST(test_single_stage)
{
    static const struct mist_stage_option options[] = {
        {5, 0, 2.0, 1.0, 0}, {5, 0, 1.0, 6.0, 1}, {4, 0, 0.1, 0.1, 2}};
    const struct mist_stage_option *stages[] = {options};
    size_t n[] = {3};
    struct mist_inter_stage_problem problem = {1, 5, ANY, 4, stages, n, NULL, 0};
    check_time(&problem, 9.0); /* 3 * 2 + 2 + 1; the other: 3 * 1 + 1 + 6 */
    problem.n_micro_batches = 6;
    check_time(&problem, 12.0); /* 5 * 1 + 1 + 6; the other: 5 * 2 + 2 + 1 */
}

TEST(test_infeasible)
{
    struct mist_inter_stage_problem problem = make_two(7, ANY, 4);
    size_t none_in_second[] = {4, 0};
    check_none(&problem); /* at most 3 + 3 */
    problem.n_layers = 1; /* at least 1 + 1 */
    check_none(&problem);
    problem.n_layers = 4;
    problem.n_options = none_in_second;
    check_none(&problem);
}

TEST(test_gap_in_lengths_is_infeasible)
{
    /* Within the window of sums, but no sum: 1 or 5 layers each, 4 asked for. */
    static const struct mist_stage_option options[] = {{1, 0, 1, 0, 0}, {5, 0, 5, 0, 1}};
    const struct mist_stage_option *stages[] = {options, options};
    size_t n[] = {2, 2};
    struct mist_inter_stage_problem problem = {2, 4, ANY, 4, stages, n, NULL, 0};
    check_none(&problem);
}

TEST(test_zero_layers_and_zero_times)
{
    static const struct mist_stage_option options[] = {{0, 0, 0, 0, 0}, {1, 0, 0, 0, 1}};
    const struct mist_stage_option *stages[] = {options, options};
    size_t n[] = {2, 2};
    struct mist_inter_stage_problem problem = {2, 0, 0, 4, stages, n, NULL, 0};
    check_time(&problem, 0);
    problem.n_layers = 1;
    check_time(&problem, 0);
}

TEST(test_ties_come_in_order_of_options)
{
    /* Three equal stages, one of which takes the second layer:
     * three splits of the same time. */
    static const struct mist_stage_option options[] = {
        {1, 0, 1, 0, 0}, {2, 0, 1, 0, 1}, {1, 0, 1, 0, 2}};
    const struct mist_stage_option *stages[] = {options, options, options};
    size_t n[] = {3, 3, 3};
    struct mist_inter_stage_problem problem = {3, 4, ANY, 2, stages, n, NULL, 0};
    struct mist_inter_stage_config config = {.n_best = 10};
    struct mist_inter_stage_result result;
    const int32_t expected[3][3] = {{0, 0, 1}, {0, 1, 0}, {1, 0, 0}};
    assert_int_equal(mist_inter_stage_solve(&problem, &config, &result, NULL), MIST_OK);
    assert_int_equal(result.n_solutions, 3); /* the copy, option 2, is dominated */
    assert_int_equal(result.n_tau, 1);
    for (int k = 0; k < 3; k++) {
        assert_true(result.solutions[k].time_s == 4.0);
        assert_memory_equal(result.solutions[k].i_option, expected[k],
                            sizeof expected[k]);
    }
    mist_inter_stage_result_fini(&result);
}

TEST(test_splits_are_diverse)
{
    struct mist_inter_stage_problem problem = make_two(4, ANY, 11);
    struct mist_inter_stage_config config = {.n_best = 3};
    struct mist_inter_stage_result result;
    /* Best of 2 + 2, 1 + 3, 3 + 1 at 10 max t: 25, 29, 34 (see above); runners-up of 2 +
     * 2 are not listed though they are better than 34 (26.5, 30). */
    assert_int_equal(mist_inter_stage_solve(&problem, &config, &result, NULL), MIST_OK);
    assert_int_equal(result.n_solutions, 3);
    assert_true(result.solutions[0].time_s == 25.0);
    assert_true(result.solutions[1].time_s == 29.0);
    assert_true(result.solutions[2].time_s == 34.0);
    mist_inter_stage_result_fini(&result);
}

static void check_input_error(const struct mist_inter_stage_problem *problem)
{
    struct mist_inter_stage_result result;
    struct mist_inter_stage_glpk_result glpk;
    struct mist_err err = {0};
    int32_t i_option[16];
    assert_int_equal(mist_inter_stage_solve(problem, &best_one, &result, &err),
                     MIST_ERR_INPUT);
    assert_true(err.message[0] != '\0');
    assert_int_equal(
        mist_inter_stage_solve_glpk(problem, &no_limits, i_option, &glpk, NULL),
        MIST_ERR_INPUT);
}

TEST(test_bad_input_is_named)
{
    struct mist_inter_stage_problem problem = make_two(4, ANY, 4);
    struct mist_inter_stage_config none = {.n_best = 0};
    struct mist_inter_stage_result result;
    struct mist_err err = {0};
    struct mist_stage_option bad[4];
    const struct mist_stage_option *stages[] = {stage_a, bad};
    assert_int_equal(mist_inter_stage_solve(&problem, &none, &result, NULL),
                     MIST_ERR_INPUT);
    problem.n_micro_batches = 0;
    check_input_error(&problem);
    problem = make_two(-1, ANY, 4);
    check_input_error(&problem);
    problem = make_two(4, -2, 4);
    check_input_error(&problem);
    for (int field = 0; field < 5; field++) {
        memcpy(bad, stage_b, sizeof bad);
        problem = make_two(4, 2, 4);
        problem.options = stages;
        bad[2].t_s = field == 0 ? NAN : field == 1 ? -1 : bad[2].t_s;
        bad[2].d_s = field == 2 ? INFINITY : bad[2].d_s;
        bad[2].n_layers = field == 3 ? -1 : bad[2].n_layers;
        bad[2].n_devices = field == 4 ? -1 : bad[2].n_devices;
        check_input_error(&problem);
        assert_int_equal(mist_inter_stage_check(&problem, &err), MIST_ERR_INPUT);
        assert_non_null(strstr(err.message, "stage 1 option 2"));
    }
    problem = make_two(INT32_MAX, ANY, 4);
    assert_int_equal(mist_inter_stage_solve(&problem, &best_one, &result, NULL),
                     MIST_ERR_RANGE);
}

/* -------------------------------------------------------------------- side constraints */

static struct mist_inter_stage_problem make_held(const struct mist_inter_stage_row *row)
{
    struct mist_inter_stage_problem problem = make_two(4, ANY, 11);

    problem.rows = row;
    problem.n_rows = 1;
    return problem;
}

static void check_row(struct mist_inter_stage_row row, double expected_s)
{
    struct mist_inter_stage_problem problem = make_held(&row);

    if (expected_s == INFINITY)
        check_none(&problem);
    else
        check_time(&problem, expected_s);
}

TEST(test_side_constraints)
{
    struct mist_inter_stage_term both[] = {{0, 1, 1.0}, {1, 1, 1.0}};
    struct mist_inter_stage_term decimals[] = {{0, 1, 0.1}, {0, 3, 0.3}, {1, 1, 0.2}};
    struct mist_inter_stage_result result;
    /* 25 needs both; a 1.5/3.0 with 21 is next */
    check_row((struct mist_inter_stage_row){"pair", -INFINITY, 1, 2, both}, 26.5);
    /* 1 + 3; 2 + 2 with options 2, 2 is 25 + 7 */
    check_row((struct mist_inter_stage_row){"none of them", 0, 0, 2, both}, 29);
    check_row((struct mist_inter_stage_row){NULL, 3, INFINITY, 2, both}, INFINITY);
    check_row((struct mist_inter_stage_row){NULL, 1, INFINITY, 0, NULL}, INFINITY);
    /* of one stage alone: not a 2.0/0.5, then a 3.0/0.0 alone */
    check_row((struct mist_inter_stage_row){NULL, 0, 0, 1, both}, 26.5);
    check_row((struct mist_inter_stage_row){NULL, 0.2, 0.3, 2, decimals}, 34);
    /* 0.1 + 0.2 is not 0.3 to the last bit */
    check_row((struct mist_inter_stage_row){NULL, 0.3, 0.3, 3, decimals}, 25);
    struct mist_inter_stage_row row = {"pair", -INFINITY, 1, 2, both};
    struct mist_inter_stage_problem problem = make_held(&row);
    assert_int_equal(mist_inter_stage_solve(&problem, &best_one, &result, NULL), MIST_OK);
    assert_int_equal(result.solutions[0].i_option[0], 2);
    assert_int_equal(result.solutions[0].i_option[1], 1);
    mist_inter_stage_result_fini(&result);
}

TEST(test_bad_rows_are_named)
{
    struct mist_inter_stage_term twice[] = {{0, 1, 1.0}, {0, 1, 1.0}},
                                 back[] = {{1, 0, 1.0}, {0, 1, 1.0}},
                                 outside[] = {{2, 0, 1.0}}, beyond[] = {{1, 4, 1.0}},
                                 nan[] = {{1, 1, NAN}};
    struct mist_inter_stage_row rows[] = {
        {"bad", 0, 1, 2, twice},  {"bad", 0, 1, 2, back}, {"bad", 0, 1, 1, outside},
        {"bad", 0, 1, 1, beyond}, {"bad", 0, 1, 1, nan},  {"bad", 1, 0, 0, NULL},
        {"bad", NAN, 0, 0, NULL}};
    struct mist_err err = {0};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        struct mist_inter_stage_problem problem = make_held(&rows[r]);
        check_input_error(&problem);
        assert_int_equal(mist_inter_stage_check(&problem, &err), MIST_ERR_INPUT);
        assert_non_null(strstr(err.message, "row 0 bad"));
    }
}

enum { TYING_STAGES = 8, TYING_OPTIONS = 10, TYING_ROWS = 4 };

/* Sums that are never the same: 10^7 states before the last stage. */
TEST(test_too_many_states_are_refused)
{
    static struct mist_inter_stage_term terms[TYING_ROWS][TYING_STAGES * TYING_OPTIONS];
    struct mist_stage_option options[TYING_OPTIONS];
    const struct mist_stage_option *stages[TYING_STAGES];
    struct mist_inter_stage_row rows[TYING_ROWS];
    struct mist_inter_stage_result result;
    struct mist_err err = {0};
    struct mist_random random;
    size_t n[TYING_STAGES];
    mist_random_init(&random, 6);
    for (int o = 0; o < TYING_OPTIONS; o++)
        options[o] = (struct mist_stage_option){1, 0, 1 + o, 0, 0};
    for (int i = 0; i < TYING_STAGES; i++) {
        stages[i] = options;
        n[i] = TYING_OPTIONS;
    }
    for (int r = 0; r < TYING_ROWS; r++) {
        for (int k = 0; k < TYING_STAGES * TYING_OPTIONS; k++)
            terms[r][k] = (struct mist_inter_stage_term){
                k / TYING_OPTIONS, k % TYING_OPTIONS, mist_random_uniform(&random)};
        rows[r] = (struct mist_inter_stage_row){NULL, 3, 5, TYING_STAGES * TYING_OPTIONS,
                                                terms[r]};
    }
    struct mist_inter_stage_problem problem = {
        TYING_STAGES, TYING_STAGES, ANY, 4, stages, n, rows, TYING_ROWS};
    assert_int_equal(mist_inter_stage_solve(&problem, &best_one, &result, &err),
                     MIST_ERR_RANGE);
    assert_non_null(strstr(err.message, "side constraints"));
}

/* ------------------------------------------------------------------- what GLPK adds */

TEST(test_glpk_cutoff)
{
    struct mist_inter_stage_problem problem = make_two(4, ANY, 11);
    struct mist_inter_stage_glpk_config config = {60, 25.0};
    struct mist_inter_stage_glpk_result result;
    int32_t i_option[2];
    assert_int_equal(
        mist_inter_stage_solve_glpk(&problem, &config, i_option, &result, NULL), MIST_OK);
    assert_int_equal(result.outcome, MIST_INTER_STAGE_OPTIMAL);
    assert_true(result.time_s == 25.0);
    config.cutoff_s = 24.9;
    assert_int_equal(
        mist_inter_stage_solve_glpk(&problem, &config, i_option, &result, NULL), MIST_OK);
    assert_int_equal(result.outcome, MIST_INTER_STAGE_INFEASIBLE);
    config.time_limit_s = 0;
    assert_int_equal(
        mist_inter_stage_solve_glpk(&problem, &config, i_option, &result, NULL),
        MIST_ERR_INPUT);
}

enum { WIDE_STAGES = 8, WIDE_OPTIONS = 300 };

struct wide {
    struct mist_stage_option options[WIDE_STAGES][WIDE_OPTIONS];
    const struct mist_stage_option *stages[WIDE_STAGES];
    size_t n_options[WIDE_STAGES];
    struct mist_inter_stage_problem problem;
};

/* Far beyond what GLPK can finish in a second. */
static void make_wide(struct wide *wide)
{
    struct mist_random random;
    mist_random_init(&random, 5);
    for (int i = 0; i < WIDE_STAGES; i++) {
        for (int o = 0; o < WIDE_OPTIONS; o++)
            wide->options[i][o] = (struct mist_stage_option){
                1 + o / 30, 1, (1 + o / 30) * (1 + mist_random_uniform(&random)),
                (1 + o / 30) * 3 * mist_random_uniform(&random), o};
        wide->stages[i] = wide->options[i];
        wide->n_options[i] = WIDE_OPTIONS;
    }
    wide->problem = (struct mist_inter_stage_problem){
        WIDE_STAGES, 40, ANY, 8, wide->stages, wide->n_options, NULL, 0};
}

TEST(test_glpk_time_limit)
{
    static struct wide wide;
    struct mist_inter_stage_glpk_config config = {0.3, INFINITY};
    struct mist_inter_stage_glpk_result glpk;
    struct mist_inter_stage_result result;
    int32_t i_option[WIDE_STAGES];
    make_wide(&wide);
    assert_int_equal(mist_inter_stage_solve(&wide.problem, &best_one, &result, NULL),
                     MIST_OK);
    double best_s = result.solutions[0].time_s;
    mist_inter_stage_result_fini(&result);
    /* Whatever it got to, it must not contradict the optimum. */
    assert_int_equal(
        mist_inter_stage_solve_glpk(&wide.problem, &config, i_option, &glpk, NULL),
        MIST_OK);
    assert_int_not_equal(glpk.outcome, MIST_INTER_STAGE_INFEASIBLE);
    assert_true(glpk.time_s >= best_s * (1 - 1e-12));
    assert_true(glpk.bound_s <= best_s * (1 + 1e-6));
    config.time_limit_s = 1e-9;
    assert_int_equal(
        mist_inter_stage_solve_glpk(&wide.problem, &config, i_option, &glpk, NULL),
        MIST_OK);
    assert_int_equal(glpk.outcome, MIST_INTER_STAGE_TIMEOUT);
    assert_true(glpk.time_s == INFINITY);
}

TEST(test_glpk_error_does_not_abort)
{
    static struct wide wide;
    struct mist_inter_stage_glpk_result glpk;
    struct mist_inter_stage_problem small = make_two(4, ANY, 11);
    struct mist_err err = {0};
    int32_t i_option[WIDE_STAGES];
    make_wide(&wide);
    glp_mem_limit(1);
    assert_int_equal(
        mist_inter_stage_solve_glpk(&wide.problem, &no_limits, i_option, &glpk, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "memory"));
    check_time(&small, 25.0); /* and it works again, with a fresh environment */
}

TEST_MAIN(NULL, NULL)
