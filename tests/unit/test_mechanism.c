/*
 * sim/mechanism: what a plan's mechanisms are, and what checks add to its error bar,
 * against numbers worked out by hand.
 */
#include "tests/unit/test.h"

#include "sim/plan/mechanism.h"

#include <math.h>

enum { A = 1u << MIST_MECHANISM_PIPELINE, B = 1u << MIST_MECHANISM_ZERO3 };

static void add(struct mist_trace_set *traces, enum mist_mechanism mechanism,
                double predicted_us, double bar_us, double measured_us)
{
    const struct mist_check_row row = {.mechanism = mechanism,
                                       .predicted_us = predicted_us,
                                       .bar_us = bar_us,
                                       .measured_us = measured_us,
                                       .repetitions = 4};

    assert_int_equal(mist_trace_set_add_check(traces, &row, NULL), MIST_OK);
}

#define assert_equals(value, expected) assert_near(value, expected, 1e-12)

TEST(plans_have_their_mechanisms)
{
    static struct mist_plan plan; /* zeros */
    struct mist_stage_plan *stage = &plan.stages[0];

    plan.n_stages = 1;
    *stage = (struct mist_stage_plan){.n_layers = 1, .micro_batch = 1, .dp = 1, .tp = 1};
    assert_int_equal(mist_plan_mechanisms(&plan), 1u << MIST_MECHANISM_COMPUTE);
    stage->n_checkpointed = 1;
    assert_int_equal(mist_plan_mechanisms(&plan), 1u << MIST_MECHANISM_COMPUTE);
    stage->dp = 2;
    stage->zero = 2;
    assert_int_equal(mist_plan_mechanisms(&plan), 1u << MIST_MECHANISM_DATA_PARALLEL);
    stage->zero = 3;
    assert_int_equal(mist_plan_mechanisms(&plan), 1u << MIST_MECHANISM_ZERO3);
    plan.n_stages = 2;
    plan.stages[1] = (struct mist_stage_plan){
        .n_layers = 1, .micro_batch = 1, .dp = 1, .tp = 2, .offload_gradients = 0.125};
    assert_int_equal(mist_plan_mechanisms(&plan),
                     1u << MIST_MECHANISM_ZERO3 | 1u << MIST_MECHANISM_PIPELINE |
                         1u << MIST_MECHANISM_TENSOR_PARALLEL |
                         1u << MIST_MECHANISM_OFFLOAD);
    plan.stages[1].is_sequence_parallel = true;
    plan.stages[1].offload_gradients = 0;
    assert_int_equal(mist_plan_mechanisms(&plan),
                     1u << MIST_MECHANISM_ZERO3 | 1u << MIST_MECHANISM_PIPELINE |
                         1u << MIST_MECHANISM_SEQUENCE_PARALLEL);
}

TEST(no_checks_no_doubt)
{
    struct mist_trace_set traces;

    mist_trace_set_init(&traces);
    assert_equals(mist_mechanism_doubt_frac(&traces, A | B), 0);
    mist_trace_set_fini(&traces);
}

/* r = 0.1 and -0.02; without bars v = (r^2 + 0.0052) / 2. */
TEST(residuals_are_shared)
{
    struct mist_trace_set traces;

    mist_trace_set_init(&traces);
    add(&traces, MIST_MECHANISM_PIPELINE, 110, 0, 100);
    add(&traces, MIST_MECHANISM_ZERO3, 98, 0, 100);
    assert_equals(mist_mechanism_doubt_frac(&traces, A), sqrt((0.01 + 0.0052) / 2));
    assert_equals(mist_mechanism_doubt_frac(&traces, B), sqrt((0.0004 + 0.0052) / 2));
    assert_equals(mist_mechanism_doubt_frac(&traces, A | B), sqrt((0.01 + 0.0052) / 2));
    assert_equals(mist_mechanism_doubt_frac(&traces, 1u << MIST_MECHANISM_OFFLOAD),
                  sqrt(0.0052));
    assert_equals(mist_mechanism_doubt_frac(&traces, 1u << MIST_MECHANISM_COMPUTE),
                  sqrt(0.0052));
    mist_trace_set_fini(&traces);
}

/* What the bars explain is not added again. */
TEST(bars_explain_residuals)
{
    struct mist_trace_set traces;

    mist_trace_set_init(&traces);
    add(&traces, MIST_MECHANISM_PIPELINE, 110, 11, 100); /* a deviation of 0.05 */
    add(&traces, MIST_MECHANISM_ZERO3, 98, 98, 100);     /* of 0.5 */
    assert_equals(mist_mechanism_doubt_frac(&traces, A),
                  sqrt((0.01 + 0.0052) / 2 - 0.0025));
    assert_equals(mist_mechanism_doubt_frac(&traces, B), 0);
    assert_equals(mist_mechanism_doubt_frac(&traces, 1u << MIST_MECHANISM_OFFLOAD), 0);
    mist_trace_set_fini(&traces);
}

TEST_MAIN(NULL, NULL)
