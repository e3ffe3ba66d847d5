/*
 * The exact sum of squares: the same integers for any order, cut and number of threads;
 * against a long double sum within the stated bound; what is out of range is found and
 * named. The search for values that are not finite against a plain loop.
 */
#include "exec/operators/cpu_kernels.h"

#include "tests/unit/cpu_kernels_help.h"

static const int64_t lengths[] = {0, 1, 7, 15, 16, 17, 4095, 4096, 4097, 3 * 4096 + 31};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static void assert_same_sum(const struct mist_cpu_sum *a, const struct mist_cpu_sum *b)
{
    assert_int_equal(a->coarse, b->coarse);
    assert_int_equal(a->fine, b->fine);
    assert_int_equal(a->n_nonfinite, b->n_nonfinite);
    assert_int_equal(a->first_nonfinite, b->first_nonfinite);
}

static long double long_sum(const float *x, int64_t n)
{
    long double sum = 0.0L;
    for (int64_t i = 0; i < n; i++)
        sum += (long double)x[i] * (long double)x[i];
    return sum;
}

static double value_of(const struct mist_cpu_sum *sum)
{
    return mist_cpu_sum_value(sum->coarse, sum->fine);
}

/* Sizes spread over many binades, as gradients have them. */
static float *spread(struct help *h, int64_t n, double largest)
{
    float *x = help_alloc(h, (n + 1) * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] =
            (float)(largest * help_uniform(h) * pow(10.0, 4.0 * help_uniform(h) - 4.0));
    return x;
}

static void shuffle(struct help *h, float *x, int64_t n)
{
    for (int64_t i = n - 1; i > 0; i--) {
        int64_t j = (int64_t)((help_uniform(h) * 0.5 + 0.5) * (double)(i + 1));
        float swap = x[i];
        x[i] = x[j];
        x[j] = swap;
    }
}

TEST_WITH(test_any_order, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int k = 0; k < N_LENGTHS; k++) {
        int64_t n = lengths[k];
        float *x = spread(h, n, 10.0);
        struct mist_cpu_sum first, again;
        mist_cpu_sum_squares_exact(false, x, n, &first, 1);
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            mist_cpu_sum_squares_exact(false, x, n, &again, t);
            assert_same_sum(&again, &first);
            shuffle(h, x, n);
            mist_cpu_sum_squares_exact(false, x, n, &again, t);
            assert_same_sum(&again, &first);
        }
    }
}

TEST_WITH(test_any_cut, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { N = 20011 };
    float *x = spread(h, N, 10.0);
    struct mist_cpu_sum whole;
    x[4242] = NAN;
    x[17000] = 9000.0f;
    mist_cpu_sum_squares_exact(false, x, N, &whole, 1);
    assert_int_equal(whole.first_nonfinite, 4242);
    assert_int_equal(whole.n_nonfinite, 2);
    for (int64_t width = 1; width <= N; width = width * 3 + 1) {
        struct mist_cpu_sum up, down, part;
        int64_t coarse = 0, fine = 0, n_parts = (N + width - 1) / width;
        mist_cpu_sum_clear(&up);
        mist_cpu_sum_clear(&down);
        for (int64_t k = 0; k < n_parts; k++) {
            int64_t i = k * width, j = (n_parts - 1 - k) * width;
            mist_cpu_sum_squares_exact(false, x + i, N - i < width ? N - i : width, &part,
                                       1);
            mist_cpu_sum_add(&up, &part, i);
            coarse += part.coarse;
            fine += part.fine;
            mist_cpu_sum_squares_exact(false, x + j, N - j < width ? N - j : width, &part,
                                       2);
            mist_cpu_sum_add(&down, &part, j);
        }
        assert_same_sum(&up, &whole);
        assert_same_sum(&down, &whole);
        assert_true(mist_cpu_sum_value(coarse, fine) == value_of(&whole));
    }
}

/* Every grid unit is where it belongs: squares that are on the grid sum without error. */
TEST_WITH(test_grid, help_setup, help_teardown)
{
    const float x[] = {1.0f, -3.0f, 0x1p-12f, 0x1p-30f, 0x1.8p-29f, 8192.0f, -0.0f};
    struct mist_cpu_sum sum;
    mist_cpu_sum_squares_exact(false, x, 7, &sum, 1);
    assert_int_equal(sum.coarse, (10LL << 24) + 1 + (1LL << 50));
    assert_int_equal(sum.fine, 1 + 9);
    assert_int_equal(sum.n_nonfinite, 0);
    mist_cpu_sum_squares_exact(false, x, 2, &sum, 1);
    assert_true(value_of(&sum) == 10.0);
    mist_cpu_sum_squares_exact(false, x + 2, 3, &sum, 1);
    assert_true(value_of(&sum) == 0x1p-24 + 10 * 0x1p-60);
    mist_cpu_sum_squares_exact(false, NULL, 0, &sum, 2);
    assert_true(sum.coarse == 0 && sum.fine == 0 && sum.first_nonfinite == -1);
}

/*
 * A block of small values is summed by a shorter way: with and without one large value
 * beside them the units are the same, at the limit of smallness (2^-5) and below.
 */
TEST_WITH(test_small_values, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { N = 4096 };
    for (int k = 0; k < 4; k++) {
        float *x = help_random(h, N, k == 0 ? 0x1p-5 : pow(10.0, -2.0 * k));
        struct mist_cpu_sum small, mixed;
        x[0] = 0.0f;
        for (int i = 1; i < N; i++)
            x[i] = k == 0 && i % 3 != 0 ? 0x1p-5f : x[i];
        mist_cpu_sum_squares_exact(false, x, N, &small, 1);
        x[0] = 1.0f;
        mist_cpu_sum_squares_exact(false, x, N, &mixed, 1);
        assert_int_equal(mixed.coarse, small.coarse + (1 << 24));
        assert_int_equal(mixed.fine, small.fine);
    }
}

/* |error| <= n 2^-61, and what follows for the relative error of one magnitude. */
TEST_WITH(test_error_bound, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { N = 30000 };
    for (double size = 1e-7; size < 20.0; size *= 10.0) {
        float *x = help_random(h, N, size), *same = help_alloc(h, N * 4);
        struct mist_cpu_sum sum;
        for (int i = 0; i < N; i++)
            same[i] = (float)size; /* all errors of one sign */
        for (int k = 0; k < 2; k++) {
            const float *y = k == 0 ? x : same;
            long double exact = long_sum(y, N), rms2 = exact / N;
            mist_cpu_sum_squares_exact(false, y, N, &sum, 2);
            long double error = fabsl((long double)value_of(&sum) - exact);
            assert_true(error <= N * 0x1p-61L + exact * 0x1p-52L);
            assert_true(error <= exact * (0x1p-61L / rms2 + 0x1p-52L));
            if (k == 0) /* errors of random signs average out */
                assert_true(error <= exact * (size < 1e-6 ? 2e-6L : 1e-7L));
        }
    }
}

TEST_WITH(test_out_of_range, help_setup, help_teardown)
{
    struct help *h = *state;
    static const float bad[] = {NAN,   -NAN,   INFINITY,       -INFINITY, 0x1.000002p13f,
                                1e30f, -3e38f, -0x1.000002p13f};
    enum { N = 9000 };
    float *x = help_random(h, N, 2.0);
    struct mist_cpu_sum sum, without;
    x[1] = x[N - 2] = 8192.0f; /* the largest that counts, beside one that does not */
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++)
        for (int64_t at = 0; at < N; at += 1 + N / 7) {
            float before = x[at];
            x[at] = 0.0f;
            mist_cpu_sum_squares_exact(false, x, N, &without, 1);
            x[at] = bad[k];
            mist_cpu_sum_squares_exact(false, x, N, &sum, 2);
            assert_int_equal(sum.n_nonfinite, 1);
            assert_int_equal(sum.first_nonfinite, at);
            assert_true(sum.coarse == without.coarse && sum.fine == without.fine);
            assert_int_equal(mist_cpu_find_nonfinite(false, x, N, 2),
                             isfinite(bad[k]) ? -1 : at);
            x[at] = before;
        }
}

/* The largest squares saturate in any order and never wrap. */
TEST_WITH(test_saturation, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { N = 3 * 4096 };
    float *x = help_random(h, N, 1.0);
    struct mist_cpu_sum all, part, parts;
    for (int i = 0; i < N; i++)
        x[i] = 8192.0f;
    mist_cpu_sum_squares_exact(false, x, 7, &all, 1);
    assert_true(value_of(&all) == 7.0 * 8192.0 * 8192.0);
    mist_cpu_sum_squares_exact(false, x, 8, &all, 1);
    assert_true(isinf(value_of(&all)));
    mist_cpu_sum_squares_exact(false, x, N, &all, 2);
    assert_true(isinf(value_of(&all)) && all.n_nonfinite == 0);
    mist_cpu_sum_clear(&parts);
    for (int i = 0; i < N; i += 5) {
        mist_cpu_sum_squares_exact(false, x + i, N - i < 5 ? N - i : 5, &part, 1);
        mist_cpu_sum_add(&parts, &part, i);
    }
    assert_same_sum(&parts, &all);
}

TEST_WITH(test_find_nonfinite, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int k = 1; k < N_LENGTHS; k++) {
        int64_t n = lengths[k];
        float *x = help_random(h, n, 3e38);
        for (int t = 1; t <= HELP_N_THREADS; t++)
            assert_int_equal(mist_cpu_find_nonfinite(false, x, n, t), -1);
        for (int trial = 0; trial < 30; trial++) {
            int64_t a = (int64_t)((help_uniform(h) * 0.5 + 0.5) * (double)n);
            int64_t b = (int64_t)((help_uniform(h) * 0.5 + 0.5) * (double)n);
            float before_a = x[a], before_b = x[b];
            x[a] = trial % 2 == 0 ? -NAN : INFINITY;
            x[b] = trial % 3 == 0 ? NAN : -INFINITY;
            assert_int_equal(
                mist_cpu_find_nonfinite(false, x, n, 1 + trial % HELP_N_THREADS),
                a < b ? a : b);
            x[b] = before_b;
            x[a] = before_a;
        }
    }
    assert_int_equal(mist_cpu_find_nonfinite(false, NULL, 0, 2), -1);
}

TEST_MAIN(NULL, NULL)
