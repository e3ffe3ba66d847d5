/*
 * tune/alike: bars of differences by hand, and which plan is preferred: by a naive search
 * for it over random plans (the seed is printed).
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tune/alike.h"

#include <math.h>
#include <stdlib.h>

enum { MOST = 6 };

static struct mist_plan plans[MOST];

/* One stage of so many ranks, or a pipeline; times in ms. */
static void make(struct mist_plan *out, int32_t n_stages, int32_t dp, double time_ms,
                 double error_ms)
{
    *out = (struct mist_plan){
        .n_stages = n_stages,
        .predicted = {.iteration_s = 1e-3 * time_ms, .error_s = 1e-3 * error_ms}};
    for (int32_t i = 0; i < n_stages; i++)
        out->stages[i] =
            (struct mist_stage_plan){.n_layers = 1, .micro_batch = 1, .dp = dp, .tp = 1};
}

static void check_of(struct mist_trace_set *traces, enum mist_mechanism mechanism,
                     double error_frac)
{
    const struct mist_check_row row = {.mechanism = mechanism,
                                       .predicted_us = 100 * (1 + error_frac),
                                       .measured_us = 100,
                                       .repetitions = 4};

    assert_int_equal(mist_trace_set_add_check(traces, &row, NULL), MIST_OK);
}

#define assert_equals(value, expected) assert_near(value, expected, 1e-12)

/* Drift is shared, and so is what a check says of what both do. */
TEST(what_plans_share_is_left_out)
{
    struct mist_trace_set traces;

    mist_trace_set_init(&traces);
    traces.cluster.drift_frac = 0.03;
    check_of(&traces, MIST_MECHANISM_DATA_PARALLEL, 0.04);
    /* own deviations of 3 and 4 ms beside drift and doubt of 3 and 4 % */
    make(&plans[0], 1, 2, 100, 2 * sqrt(9 + 25));
    make(&plans[1], 1, 2, 200, 2 * sqrt(16 + 100));
    assert_equals(mist_alike_bar_s(&traces, &plans[0], &plans[1]), 2 * 5e-3);
    assert_equals(mist_alike_bar_s(&traces, &plans[1], &plans[0]), 2 * 5e-3);
    /* a pipeline: not checked, as uncertain as the mean, 4 % of the faster one's time */
    make(&plans[1], 2, 1, 200, 2 * sqrt(16 + 100));
    assert_equals(mist_alike_bar_s(&traces, &plans[0], &plans[1]),
                  2e-3 * sqrt(9 + 16 + 16));
    mist_trace_set_fini(&traces);
}

TEST(without_checks_time_decides)
{
    struct mist_validated at[2] = {{.plan = &plans[0]}, {.plan = &plans[1]}};
    struct mist_trace_set traces;

    mist_trace_set_init(&traces);
    make(&plans[0], 2, 2, 100, 50);
    make(&plans[1], 1, 2, 101, 50);
    assert_int_equal(mist_alike_prefer(&traces, 0, at, 2), 1);
    assert_ptr_equal(at[0].plan, &plans[0]);
    check_of(&traces, MIST_MECHANISM_PIPELINE, 0);
    assert_int_equal(mist_alike_prefer(&traces, 0, at, 2), 2);
    assert_ptr_equal(at[0].plan, &plans[1]);
    assert_ptr_equal(at[1].plan, &plans[0]);
    mist_trace_set_fini(&traces);
}

/* Ratios of weights and activations that are odd numbers of eighths somewhere. */
static int count_eighths(const struct mist_plan *plan)
{
    int n = 0;

    for (int k = 0; k < 2; k++) {
        bool is_in_eighths = false;
        for (int32_t i = 0; i < plan->n_stages; i++) {
            const struct mist_stage_plan *s = &plan->stages[i];
            int eighths =
                (int)(8 * (k ? s->offload_activations : s->offload_weights) + 0.5);
            is_in_eighths = is_in_eighths || eighths % 2 == 1;
        }
        n += is_in_eighths;
    }
    return n;
}

/* Without checks time decides, but for ratios in eighths that gain 1 % or less: of what is
 * left the fewest, then the fastest. */
TEST(eighths_have_to_gain)
{
    uint64_t seed = test_seed(1);
    struct mist_trace_set traces;
    struct mist_random random;
    int n_changed = 0;

    mist_random_init(&random, seed);
    mist_trace_set_init(&traces);
    for (int k = 0; k < 2000; k++) {
        size_t n = 1 + (size_t)mist_random_below(&random, MOST), i_best = 0;
        struct mist_validated at[MOST] = {0};
        double time_ms = 100;
        for (size_t i = 0; i < n; i++, time_ms += mist_random_uniform(&random)) {
            make(&plans[i], 1 + (int32_t)mist_random_below(&random, 2), 2, time_ms, 0);
            for (int32_t s = 0; s < plans[i].n_stages; s++) {
                plans[i].stages[s].offload_weights =
                    (double)mist_random_below(&random, 9) / 8;
                plans[i].stages[s].offload_activations =
                    (double)mist_random_below(&random, 5) / 4 +
                    (mist_random_below(&random, 4) == 0 ? -0.125 : 0);
                if (plans[i].stages[s].offload_activations < 0)
                    plans[i].stages[s].offload_activations = 0;
            }
            at[i].plan = &plans[i];
        }
        for (size_t i = 1; i < n; i++)
            if (plans[i].predicted.iteration_s <= 1.01 * plans[0].predicted.iteration_s &&
                count_eighths(&plans[i]) < count_eighths(&plans[i_best]))
                i_best = i;
        assert_int_equal(mist_alike_simplest(at, n, 0), i_best);
        mist_alike_prefer(&traces, 0, at, n);
        assert_ptr_equal(at[0].plan, &plans[i_best]);
        n_changed += i_best > 0;
    }
    assert_true(n_changed > 200);
    mist_trace_set_fini(&traces);
}

/* Of those within the bar of the fastest: none has fewer techniques, none with as few is
 * faster; the others keep their order. */
TEST(the_simplest_is_preferred)
{
    uint64_t seed = test_seed(1);
    struct mist_random random;

    mist_random_init(&random, seed);
    for (int k = 0; k < 2000; k++) {
        size_t n = 1 + (size_t)mist_random_below(&random, MOST), n_alike = 0;
        struct mist_validated at[MOST] = {0};
        struct mist_trace_set traces;
        double time_ms = 100;
        mist_trace_set_init(&traces);
        traces.cluster.drift_frac = 0.01;
        check_of(&traces, MIST_MECHANISM_PIPELINE,
                 0.02 * mist_random_normal_at(seed, 0, (uint64_t)k));
        check_of(&traces, MIST_MECHANISM_OFFLOAD,
                 0.05 * mist_random_normal_at(seed, 1, (uint64_t)k));
        for (size_t i = 0; i < n; i++, time_ms += 3 * mist_random_uniform(&random)) {
            make(&plans[i], 1 + (int32_t)mist_random_below(&random, 2), 2, time_ms,
                 4 * mist_random_uniform(&random));
            if (mist_random_below(&random, 2))
                plans[i].stages[0].offload_weights = 0.5;
            at[i].plan = &plans[i];
        }
        const struct mist_plan *best = &plans[0];
        for (size_t i = 0; i < n; i++) {
            bool is_alike =
                plans[i].predicted.iteration_s - plans[0].predicted.iteration_s <=
                mist_alike_bar_s(&traces, &plans[0], &plans[i]);
            n_alike += is_alike;
            if (is_alike &&
                mist_alike_n_techniques(&plans[i]) < mist_alike_n_techniques(best))
                best = &plans[i];
        }
        assert_int_equal(mist_alike_prefer(&traces, 0, at, n), n_alike);
        assert_ptr_equal(at[0].plan, best);
        for (size_t i = 1; i < n; i++)
            assert_ptr_equal(at[i].plan, &plans[i <= (size_t)(best - plans) ? i - 1 : i]);
        mist_trace_set_fini(&traces);
    }
}

TEST_MAIN(NULL, NULL)
