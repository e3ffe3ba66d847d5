/* core/random: published sequences, moments, and independence of order. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "core/random.h"

#include <math.h>
#include <stdlib.h>

#define N 200000

/* xoshiro256** from the state 1, 2, 3, 4 (published test vector). */
static void test_vectors(void **state)
{
    static const uint64_t expected[] = {11520, 0, 1509978240,
                                        UINT64_C(1215971899390074240)};
    struct mist_random random = {{1, 2, 3, 4}};

    (void)state;
    for (int i = 0; i < 4; i++)
        assert_true(mist_random_next(&random) == expected[i]);
    mist_random_init(&random, 0); /* splitmix64 from 0 */
    assert_true(random.state[0] == UINT64_C(0xe220a8397b1dcdaf));
    assert_true(random.state[1] == UINT64_C(0x6e789e6aa1b965f4));
    assert_true(random.state[2] == UINT64_C(0x06c45d188009454f));
}

static void expect_moments(const double *x, double mean, double variance, double fourth)
{
    double sums[4] = {0};

    for (int i = 0; i < N; i++) {
        sums[0] += x[i] / N;
        sums[1] += (x[i] - mean) * (x[i] - mean) / N;
        sums[2] += pow(x[i] - mean, 4) / N;
        sums[3] += i ? (x[i] - mean) * (x[i - 1] - mean) / N : 0;
    }
    /* Five standard errors and more of each estimate. */
    assert_true(fabs(sums[0] - mean) < 6 * sqrt(variance / N));
    assert_true(fabs(sums[1] - variance) < 6 * sqrt(fourth / N));
    assert_true(fabs(sums[2] - fourth) < 0.1 * fourth);
    assert_true(fabs(sums[3]) < 6 * variance / sqrt(N));
}

static void test_moments(void **state)
{
    static double x[N];
    struct mist_random random;

    (void)state;
    mist_random_init(&random, 42);
    for (int i = 0; i < N; i++) {
        x[i] = mist_random_uniform(&random);
        assert_true(x[i] >= 0 && x[i] < 1);
    }
    expect_moments(x, 0.5, 1.0 / 12, 1.0 / 80);
    for (int i = 0; i < N; i++)
        x[i] = mist_random_normal(&random);
    expect_moments(x, 0, 1, 3);
    for (int i = 0; i < N; i++)
        x[i] = mist_random_normal_at(42, 7, (uint64_t)i);
    expect_moments(x, 0, 1, 3);
    for (int i = 0; i < N; i++) /* neighbouring streams */
        x[i] = mist_random_uniform_at(42, (uint64_t)i, 3);
    expect_moments(x, 0.5, 1.0 / 12, 1.0 / 80);
    for (int i = 0; i < N; i++) /* neighbouring seeds */
        x[i] = mist_random_uniform_at((uint64_t)i, 0, 0);
    expect_moments(x, 0.5, 1.0 / 12, 1.0 / 80);
}

static void test_below(void **state)
{
    struct mist_random random;
    int counts[6] = {0};

    (void)state;
    mist_random_init(&random, 1);
    for (int i = 0; i < 60000; i++)
        counts[mist_random_below(&random, 6)]++;
    for (int i = 0; i < 6; i++)
        assert_true(abs(counts[i] - 10000) < 600);
    assert_true(mist_random_below(&random, 1) == 0);
}

static void test_stateless(void **state)
{
    (void)state;
    assert_true(mist_random_at(1, 2, 3) == mist_random_at(1, 2, 3));
    assert_true(mist_random_at(1, 2, 3) != mist_random_at(1, 3, 2));
    assert_true(mist_random_at(2, 1, 3) != mist_random_at(1, 2, 3));
    assert_true(mist_random_at(1, 2, 4) != mist_random_at(1, 2, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_vectors),
        cmocka_unit_test(test_moments),
        cmocka_unit_test(test_below),
        cmocka_unit_test(test_stateless),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
