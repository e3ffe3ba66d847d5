/* core/random: published sequences, moments, and independence of order. */
#include "tests/unit/test.h"

#include "core/random.h"

#include <math.h>

#define N 200000

/* xoshiro256** from the state 1, 2, 3, 4 (published test vector). */
TEST(test_vectors)
{
    static const uint64_t expected[] = {11520, 0, 1509978240,
                                        UINT64_C(1215971899390074240)};
    struct mist_random random = {{1, 2, 3, 4}};

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

TEST(test_moments)
{
    static double x[N];
    struct mist_random random;

    mist_random_init(&random, 42);
    for (int i = 0; i < N; i++) {
        x[i] = mist_random_uniform(&random);
        assert_true(x[i] >= 0 && x[i] < 1);
    }
    expect_moments(x, 0.5, 1.0 / 12, 1.0 / 80);
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

TEST(test_below)
{
    struct mist_random random;
    int counts[6] = {0};

    mist_random_init(&random, 1);
    for (int i = 0; i < 60000; i++)
        counts[mist_random_below(&random, 6)]++;
    for (int i = 0; i < 6; i++)
        assert_true(abs(counts[i] - 10000) < 600);
    assert_true(mist_random_below(&random, 1) == 0);
}

TEST(test_stateless)
{
    assert_true(mist_random_at(1, 2, 3) == mist_random_at(1, 2, 3));
    assert_true(mist_random_at(1, 2, 3) != mist_random_at(1, 3, 2));
    assert_true(mist_random_at(2, 1, 3) != mist_random_at(1, 2, 3));
    assert_true(mist_random_at(1, 2, 4) != mist_random_at(1, 2, 3));
}

/* Right to a few units in the last place, and the same bits everywhere: the two at the
 * end were computed with 60 digits. */
TEST(test_normal_bits)
{
    double worst = 0, square = 0;

    for (uint64_t i = 0; i < N; i++) {
        uint64_t bits = mist_random_at(9, 2, i);
        long double u1 = (long double)mist_random_uniform_at(9, 2, i), u2;
        uint64_t z = bits + UINT64_C(0x9e3779b97f4a7c15); /* splitmix64's next output */
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
        u2 = (long double)(z >> 11) * 0x1p-53L;
        long double exact =
            sqrtl(-2 * logl(1 - u1)) * cosl(6.283185307179586476925286766559L * u2);
        double got = mist_random_normal_at(9, 2, i);
        double error = (double)fabsl((long double)got - exact);
        double size = (double)fabsl(exact) + 1e-3; /* near 0 the cosine's zero counts */
        worst = error / size > worst ? error / size : worst;
        square += (got > 3.5) + (got < -3.5);
    }
    printf("# off by %.2g at most, %.0f beyond 3.5\n", worst, square);
    assert_true(worst < 8 * 0x1p-53);
    assert_true(square > 40 && square < 160); /* 93 of 200,000 on average */
    assert_true(mist_random_normal_at(1, 2, 3) == 0x1.9fa595b73b3fep-1);
    assert_true(mist_random_normal_at(42, 0, UINT64_C(1) << 40) == 0x1.7d6cd73862c0cp-3);
}

TEST_MAIN(NULL, NULL)
