/* tune/verify_choice: medians, spreads, ties, plans that fail, rounds that are missing. */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tune/verify_choice.h"

#include <math.h>
#include <string.h>

enum { N = 4 };

/* Plans of these times, in ms; a negative first one: the plan fails. */
static void fill(struct mist_verified *plans, size_t n, int n_rounds,
                 const double times_ms[][MIST_VERIFY_ROUNDS])
{
    for (size_t i = 0; i < n; i++) {
        plans[i] = (struct mist_verified){.n_rounds = n_rounds};
        for (int k = 0; k < n_rounds; k++)
            plans[i].times_s[k] = 1e-3 * times_ms[i][k];
        if (times_ms[i][0] < 0)
            snprintf(plans[i].failure, sizeof plans[i].failure, "it fails");
    }
}

#define assert_equals(value, expected) assert_near(value, expected, 1e-12)

static size_t choose(struct mist_verified *plans, size_t n,
                     struct mist_verify_choice *choice)
{
    assert_true(mist_verify_choose(plans, n, choice));
    return choice->i_chosen;
}

TEST(test_medians)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {{90, 110, 100}, {300, 250, 200}};
    struct mist_verified plans[2];
    struct mist_verify_choice choice;

    fill(plans, 2, 3, times_ms);
    assert_int_equal(choose(plans, 2, &choice), 0);
    assert_int_equal(choice.i_fastest, 0);
    assert_int_equal(choice.i_other, 0);
    assert_int_equal(choice.n_rounds, 3);
    assert_true(isnan(choice.ahead_s));
    assert_equals(plans[0].measured_s, 0.100);
    assert_equals(plans[0].spread_s, 0.010);
    assert_equals(plans[1].measured_s, 0.250);
    assert_equals(plans[1].spread_s, 0.050);
}

TEST(test_measured_beats_predicted)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {
        {100, 101, 102}, {90, 90, 93}, {110, 110, 110}};
    struct mist_verified plans[3];
    struct mist_verify_choice choice;

    fill(plans, 3, 3, times_ms);
    assert_int_equal(choose(plans, 3, &choice), 1);
    assert_int_equal(choice.i_other, 0);
    assert_equals(choice.ahead_s, 0.010); /* of 10, 11, 9 */
    assert_equals(choice.ahead_spread_s, 0.001);
}

/* The lead of the fastest is within its spread: the first in the order of prediction
 * stays. */
TEST(test_ties)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {{100, 108, 100}, {98, 98, 102}};
    const double equal_ms[][MIST_VERIFY_ROUNDS] = {{100, 100, 100}, {100, 100, 100}};
    const double near_ms[][MIST_VERIFY_ROUNDS] = {{99.5, 104, 107}, {100, 100, 100}};
    struct mist_verified plans[2];
    struct mist_verify_choice choice;

    fill(plans, 2, 3, times_ms); /* differences 2, 10, -2 */
    assert_int_equal(choose(plans, 2, &choice), 0);
    assert_int_equal(choice.i_fastest, 1);
    assert_int_equal(choice.i_other, 1);
    assert_equals(choice.ahead_s, -0.002);
    assert_equals(choice.ahead_spread_s, 0.006);
    fill(plans, 2, 3, equal_ms);
    assert_int_equal(choose(plans, 2, &choice), 0);
    assert_int_equal(choice.i_fastest, 0);
    fill(plans, 2, 3, near_ms); /* differences -0.5, 4, 7: 4 +- 3.75 */
    assert_int_equal(choose(plans, 2, &choice), 1);
    plans[0].times_s[0] = 0.1 - 0.0015; /* differences -1.5, 4, 7: 4 +- 4.25 */
    assert_int_equal(choose(plans, 2, &choice), 0);
}

/* A machine that is slow in one round is slow for all: what lies within the spread of
 * each plan's own times is still told apart. */
TEST(test_rounds_are_compared)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {{100, 200, 150}, {95, 194, 145}};
    struct mist_verified plans[2];
    struct mist_verify_choice choice;

    fill(plans, 2, 3, times_ms);
    assert_int_equal(choose(plans, 2, &choice), 1);
    assert_equals(plans[0].spread_s, 0.050);
    assert_equals(choice.ahead_s, 0.005);
    assert_equals(choice.ahead_spread_s, 0.0005);
}

/* What only one run met, its probes met, too. */
TEST(test_levels_are_taken_out)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {{100, 100, 150}, {95, 190, 95}};
    const double levels[][MIST_VERIFY_ROUNDS] = {{1, 1, 1.5}, {1, 2, 1}};
    static const struct mist_plan plan, half_alone = {.predicted.alone_frac = 0.5};
    struct mist_verified plans[2];
    struct mist_verify_choice choice;

    fill(plans, 2, 3, times_ms);
    plans[0].plan = plans[1].plan = &plan;
    memcpy(plans[0].levels, levels[0], sizeof levels[0]);
    memcpy(plans[1].levels, levels[1], sizeof levels[1]);
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(choose(plans, 2, &choice), 1);
        assert_equals(plans[0].measured_s, 0.1 * 1.25); /* the mean of all levels */
        assert_equals(plans[1].measured_s, 0.095 * 1.25);
        assert_equals(choice.ahead_s, 0.005 * 1.25);
        assert_equals(choice.ahead_spread_s, 0);
    }
    /* of what is computed alone no level is taken out: 95 ms that took 142.5 at a level of 2 */
    fill(plans, 2, 3, times_ms);
    plans[0].plan = &plan;
    plans[1].plan = &half_alone;
    plans[1].times_s[1] = 0.1425;
    memcpy(plans[0].levels, levels[0], sizeof levels[0]);
    memcpy(plans[1].levels, levels[1], sizeof levels[1]);
    assert_int_equal(choose(plans, 2, &choice), 1);
    assert_equals(plans[0].measured_s, 0.1 * 1.25);
    assert_equals(plans[1].measured_s, 0.095 * 1.125);
    /* a round of which one is not known: times as they are, -90 apart once */
    fill(plans, 2, 3, times_ms);
    memcpy(plans[0].levels, levels[0], sizeof levels[0]);
    assert_int_equal(choose(plans, 2, &choice), 0);
    assert_equals(plans[1].measured_s, 0.095);
}

/* The first may be beaten while the second is not told apart from the fastest. */
TEST(test_second_ties)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {
        {200, 200, 200}, {101, 99, 101}, {100, 100, 100}};
    struct mist_verified plans[3];
    struct mist_verify_choice choice;

    fill(plans, 3, 3, times_ms);
    assert_int_equal(choose(plans, 3, &choice), 1);
    assert_int_equal(choice.i_fastest, 2);
    assert_int_equal(choice.i_other, 2);
}

TEST(test_failures)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {
        {-1, 1, 1}, {100, 100, 100}, {-1, 1, 1}, {90, 90, 90}};
    const double none_ms[][MIST_VERIFY_ROUNDS] = {{-1, 1, 1}, {-1, 1, 1}};
    struct mist_verified plans[N];
    struct mist_verify_choice choice = {.i_chosen = 77};

    fill(plans, 4, 3, times_ms);
    plans[0].n_rounds = 0;
    plans[2].n_rounds = 1;
    assert_int_equal(choose(plans, 4, &choice), 3);
    assert_int_equal(choice.n_rounds, 3);
    assert_int_equal(choice.i_other, 1);
    assert_true(isnan(plans[0].measured_s));
    assert_true(isnan(plans[2].measured_s));
    fill(plans, 2, 3, none_ms);
    choice.i_chosen = 77;
    assert_false(mist_verify_choose(plans, 2, &choice));
    assert_int_equal(choice.i_chosen, 77);
}

/* Stopped by a signal: whole rounds count. */
TEST(test_rounds)
{
    const double times_ms[][MIST_VERIFY_ROUNDS] = {{100, 10, 1}, {90, 95, 95}};
    struct mist_verified plans[2];
    struct mist_verify_choice choice;

    fill(plans, 2, 3, times_ms);
    plans[1].n_rounds = 0;
    assert_int_equal(choose(plans, 2, &choice), 0);
    assert_int_equal(choice.n_rounds, 0);
    assert_true(isnan(plans[0].measured_s));
    plans[1].n_rounds = 1;
    assert_int_equal(choose(plans, 2, &choice), 1);
    assert_int_equal(choice.n_rounds, 1);
    assert_equals(choice.ahead_s, 0.010);
    assert_equals(choice.ahead_spread_s, 0);
    plans[1].n_rounds = 2; /* medians 55 and 92.5, the differences 10 and -85 */
    assert_int_equal(choose(plans, 2, &choice), 0);
    assert_equals(plans[0].measured_s, 0.055);
    assert_equals(plans[1].measured_s, 0.0925);
    assert_equals(plans[1].spread_s, 0.0025);
}

/* Without noise, the least is chosen wherever it stands; its place in the rounds, and a
 * plan that fails, change nothing. */
TEST(test_random)
{
    struct mist_random random;
    struct mist_verified plans[N];
    struct mist_verify_choice choice;

    mist_random_init(&random, test_seed(5));
    for (int i_case = 0; i_case < 1000; i_case++) {
        size_t least = 0, failed = (size_t)mist_random_below(&random, N + 1);
        for (size_t i = 0; i < N; i++) {
            plans[i] = (struct mist_verified){.n_rounds = MIST_VERIFY_ROUNDS};
            double time_s = 1 + mist_random_uniform(&random);
            for (int k = 0; k < MIST_VERIFY_ROUNDS; k++)
                plans[i].times_s[k] = time_s;
            if (i == failed)
                plans[i].failure[0] = 'x';
            if (least == failed || (i != failed && time_s < plans[least].times_s[0]))
                least = i;
        }
        assert_int_equal(choose(plans, N, &choice), least);
        assert_int_equal(choice.i_fastest, least);
    }
}

TEST_MAIN(NULL, NULL)
