/*
 * Shared by the tests of the bf16 CPU kernels: random and poisoned bf16 tensors with a
 * guard behind them, and comparison with an fp32 kernel's result on the same inputs.
 */
#ifndef MIST_TESTS_UNIT_CPU_BF16_HELP_H
#define MIST_TESTS_UNIT_CPU_BF16_HELP_H

#include "exec/operators/cpu_bf16.h"
#include "tests/unit/cpu_kernels_help.h"

enum { HELP_BF16_GUARD = 0x1234 };

static inline mist_bf16 *help_bf16_poisoned(struct help *h, int64_t n)
{
    mist_bf16 *x = help_alloc(h, (n + HELP_GUARD) * (int64_t)sizeof *x);
    for (int64_t i = 0; i < n + HELP_GUARD; i++)
        x[i] = i < n ? 0x7FC0 : HELP_BF16_GUARD; /* NaN */
    return x;
}

static inline void help_bf16_assert_guard(const mist_bf16 *x, int64_t n)
{
    for (int64_t i = n; i < n + HELP_GUARD; i++)
        assert_int_equal(x[i], HELP_BF16_GUARD);
}

/* x, rounded; guarded. */
static inline mist_bf16 *help_bf16_of(struct help *h, const float *x, int64_t n)
{
    mist_bf16 *y = help_bf16_poisoned(h, n);
    mist_cpu_bf16_from_float(y, x, n);
    return y;
}

static inline mist_bf16 *help_bf16_copy(struct help *h, const mist_bf16 *x, int64_t n)
{
    mist_bf16 *y = help_bf16_poisoned(h, n);
    memcpy(y, x, (size_t)n * sizeof *y);
    return y;
}

/* The values of x; guarded. */
static inline float *help_floats_of(struct help *h, const mist_bf16 *x, int64_t n)
{
    float *y = help_poisoned(h, n);
    mist_cpu_bf16_to_float(y, x, n);
    return y;
}

/* n random bf16 in [-size, size], and their values in *values (NULL: not wanted). */
static inline mist_bf16 *help_bf16_random(struct help *h, float **values, int64_t n,
                                          double size)
{
    mist_bf16 *x = help_bf16_of(h, help_random(h, n, size), n);
    if (values != NULL)
        *values = help_floats_of(h, x, n);
    return x;
}

/* got is expected, rounded: bit by bit; guard intact. */
static inline void help_bf16_assert_rounded(struct help *h, const mist_bf16 *got,
                                            const float *expected, int64_t n)
{
    assert_memory_equal(got, help_bf16_of(h, expected, n), (size_t)n * sizeof *got);
    help_bf16_assert_guard(got, n);
}

/* |got - expected| <= tolerance |expected| in the 2-norm; guard intact. */
static inline void help_bf16_assert_within(struct help *h, const mist_bf16 *got,
                                           const float *expected, int64_t n,
                                           double tolerance, const char *what)
{
    help_assert_within(help_floats_of(h, got, n), help_doubles(h, expected, n), n,
                       tolerance, what);
    help_bf16_assert_guard(got, n);
}

#endif
