/* core/statistics: means, intervals and what they leave out, against numbers by hand. */
#include "tests/unit/test.h"

#include "core/random.h"
#include "core/statistics.h"

#include <math.h>

TEST(estimates_leave_out_what_is_far)
{
    double plain[] = {3, 1, 2, 4, 5};
    double spiked[] = {10, 11, 9, 10, 11, 9, 10, 500, 10, 11, 9, 0.1};
    double equal[] = {7, 7, 7, 7, 7.1, 9};
    struct mist_estimate estimate = mist_estimate_make(plain, 5);

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

TEST(estimates_of_little_say_so)
{
    double one[] = {4};
    struct mist_estimate none = mist_estimate_make(NULL, 0);
    struct mist_estimate single = mist_estimate_make(one, 1);

    assert_int_equal(none.n, 0);
    assert_near(none.half_width_frac, 1, 0);
    assert_near(single.mean, 4, 0);
    assert_near(single.deviation, 0, 0);
    assert_near(single.half_width_frac, 1, 0);
}

/* Pooling equal parts is, but for n against n - 1, one estimate of all their values. */
TEST(pooling_is_one_estimate_of_all)
{
    enum { N_PARTS = 3, N = 2000 };
    struct mist_estimate parts[N_PARTS + 1] = {{0}};
    static double all[N_PARTS * N], part[N];
    struct mist_random random;

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

TEST(middles_leave_out_a_fifth_at_each_end)
{
    double few[] = {9, 1, 5, 3};
    double plain[] = {500, 12, 10, 11, 0.1};
    double many[] = {4, 900, 1, 2, 3, 5, 6, 800, 7, 8, 9};

    assert_near(mist_middle_mean(NULL, 0), 0, 0);
    assert_near(mist_middle_mean(few, 1), 9, 0);
    assert_near(mist_middle_mean(few, 4), 4.5, 1e-15);
    assert_near(mist_middle_mean(plain, 5), 11, 1e-15);
    assert_near(mist_middle_mean(many, 11), 6, 1e-15); /* 3 to 9 */
}

TEST(shortest_halves_are_where_values_are_dense)
{
    double alike[] = {7, 1, 3, 5};                      /* all halves are as short */
    double slow[] = {900, 10, 12, 800, 11, 13, 14};     /* four of seven */
    double often[] = {30, 10, 50, 11, 70, 12, 90, 100}; /* more than the half are slow */

    assert_near(mist_shortest_half_mean(NULL, 0), 0, 0);
    assert_near(mist_shortest_half_mean(alike, 1), 7, 0);
    assert_near(mist_shortest_half_mean(alike, 4), 2, 1e-15);
    assert_near(mist_shortest_half_mean(slow, 7), 11.5, 1e-15);
    assert_near(mist_shortest_half_mean(often, 8), 15.75, 1e-15);
}

/* Any half, by trying all of them. */
TEST(shortest_halves_are_the_shortest)
{
    enum { MOST = 24 };
    uint64_t seed = test_seed(77);
    double values[MOST];

    for (uint64_t k = 0; k < 200; k++) {
        size_t n = 1 + k % MOST, n_half = n / 2 + n % 2;
        double least = INFINITY, mean = 0;
        for (size_t i = 0; i < n; i++)
            values[i] = floor(64 * mist_random_uniform_at(seed, k, i));
        double got = mist_shortest_half_mean(values, n);
        for (size_t i = 0; i < n; i++) { /* as the lowest of a half: those next to it */
            double sum = 0, top = -1;
            size_t n_above = 0;
            for (size_t j = i; j < n && n_above < n_half; j++, n_above++) {
                sum += values[j];
                top = values[j];
            }
            if (n_above == n_half && top - values[i] < least) {
                least = top - values[i];
                mean = sum / (double)n_half;
            }
        }
        assert_near(got, mean, 1e-12);
    }
}

/* Between neighbours of what is sorted. */
TEST(quantiles_are_places_in_the_order)
{
    const double sorted[] = {1, 2, 4, 8, 16};

    for (int i = 0; i < 5; i++)
        assert_near(mist_quantile(sorted, 5, 0.25 * i), sorted[i], 0);
    assert_near(mist_quantile(sorted, 5, 0.625), 6, 0);
    assert_near(mist_quantile(sorted, 5, 0.99), 8 + 0.96 * 8, 1e-12);
    assert_near(mist_quantile(sorted, 1, 0.9), 1, 0);
}

TEST_MAIN(NULL, NULL)
