/*
 * Shared by the tests of the CPU kernels: random data, poisoned outputs with a guard
 * behind them, comparison with double precision, finite differences. Memory is one arena
 * per test.
 */
#ifndef MIST_TESTS_UNIT_CPU_KERNELS_HELP_H
#define MIST_TESTS_UNIT_CPU_KERNELS_HELP_H

#include "tests/unit/test.h"

#include "core/memory.h"
#include "exec/operators/cpu_kernels.h"

#include <math.h>

enum { HELP_GUARD = 16, HELP_N_THREADS = 3 };

struct help {
    struct mist_arena arena;
    uint64_t seed;
};

/* The table of whole heads with frequencies of this base. */
static inline void fill_rope_table(float *table, int64_t s, int64_t head_dim,
                                   double theta)
{
    const struct mist_model model = {.head_dim = (int32_t)head_dim, .rope_theta = theta};

    mist_cpu_rope_fill(table, MIST_WHOLE_CHUNKS(s), &model);
}

static inline int help_setup(void **state)
{
    static struct help help;
    help.seed = test_seed(20240607);
    mist_arena_init(&help.arena);
    *state = &help;
    return 0;
}

static inline int help_teardown(void **state)
{
    mist_arena_fini(&((struct help *)*state)->arena);
    return 0;
}

static inline void *help_alloc(struct help *h, int64_t n_bytes)
{
    void *p = mist_arena_alloc(&h->arena, (size_t)n_bytes);
    assert_non_null(p);
    return p;
}

static inline double help_uniform(struct help *h)
{
    h->seed = h->seed * 6364136223846793005u + 1442695040888963407u;
    return 2.0 * (double)(h->seed >> 11) * 0x1p-53 - 1.0;
}

/* n floats in [-size, size] */
static inline float *help_random(struct help *h, int64_t n, double size)
{
    float *x = help_alloc(h, n * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(size * help_uniform(h));
    return x;
}

/* n NaNs for an output, with a guard behind that help_assert_guard() checks. */
static inline float *help_poisoned(struct help *h, int64_t n)
{
    float *x = help_alloc(h, (n + HELP_GUARD) * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n + HELP_GUARD; i++)
        x[i] = i < n ? NAN : 12345.0f;
    return x;
}

static inline void help_assert_guard(const float *x, int64_t n)
{
    for (int64_t i = n; i < n + HELP_GUARD; i++)
        assert_true(x[i] == 12345.0f);
}

/* A guarded copy, for outputs that are accumulated or changed in place. */
static inline float *help_copy(struct help *h, const float *x, int64_t n)
{
    float *y = help_poisoned(h, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i];
    return y;
}

static inline double *help_zeros(struct help *h, int64_t n)
{
    return help_alloc(h, n * (int64_t)sizeof(double)); /* the arena's memory is zeroed */
}

static inline double *help_doubles(struct help *h, const float *x, int64_t n)
{
    double *y = help_zeros(h, n);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

static inline void help_assert_same_bits(const float *a, const float *b, int64_t n)
{
    assert_memory_equal(a, b, (size_t)n * sizeof *a);
}

/* |got - expected| <= tolerance |expected| in the 2-norm, guard intact. */
static inline void help_assert_within(const float *got, const double *expected, int64_t n,
                                      double tolerance, const char *what)
{
    double error2 = 0.0, norm2 = 0.0;
    for (int64_t i = 0; i < n; i++) {
        error2 += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
        norm2 += expected[i] * expected[i];
    }
    if (!(sqrt(error2) <= tolerance * sqrt(norm2)))
        fail_msg("%s: relative error %g", what, sqrt(error2 / norm2));
}

static inline void help_assert_close(const float *got, const double *expected, int64_t n,
                                     const char *what)
{
    help_assert_within(got, expected, n, 1e-5, what);
    help_assert_guard(got, n);
}

/*
 * grad[n_in] = d/d in of sum(d_out * forward(in)) by central differences with
 * Richardson's extrapolation.
 */
typedef void help_forward(struct help *h, double *out, const double *in,
                          const void *context);

static inline double *help_slopes(struct help *h, help_forward *forward, const double *in,
                                  int64_t n_in, const float *d_out, int64_t n_out,
                                  const void *context)
{
    double *grad = help_zeros(h, n_in), *at = help_zeros(h, n_in),
           *out = help_zeros(h, n_out);
    memcpy(at, in, (size_t)n_in * sizeof *at);
    for (int64_t i = 0; i < n_in; i++) {
        double slope[2] = {0.0, 0.0};
        for (int k = 0; k < 4; k++) {
            double step = k < 2 ? 2e-3 : 1e-3, sign = k % 2 == 0 ? 1.0 : -1.0;
            at[i] = in[i] + sign * step;
            forward(h, out, at, context);
            for (int64_t j = 0; j < n_out; j++)
                slope[k / 2] += sign * (double)d_out[j] * out[j] / (2.0 * step);
        }
        at[i] = in[i];
        grad[i] = slope[1] + (slope[1] - slope[0]) / 3.0;
    }
    return grad;
}

#endif
