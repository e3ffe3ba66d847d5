/*
 * Shared by the tests of the CUDA kernels: the same tensor in the host's memory, for the
 * CPU's kernel, and in the device's, for the CUDA one; comparison of the two; and runs of
 * a case in several orders of threads, which must give the same bits.
 */
#ifndef MIST_TESTS_UNIT_CUDA_HELP_H
#define MIST_TESTS_UNIT_CUDA_HELP_H

#include "exec/cuda/kernels.h"
#include "exec/operators/cpu_bf16.h"
#include "tests/emulation/device_memory.h"
#include "tests/emulation/order.h"
#include "tests/unit/cpu_kernels_help.h"

#include <stdio.h>
#include <stdlib.h>

enum { HELP_MAX_PAIRS = 256 };

struct pair {
    enum mist_dtype dtype;
    int64_t n, skew; /* elements by which the device's misses alignment */
    void *host, *device;
};

struct cuda_help {
    struct help host; /* its seed makes all random numbers */
    struct pair pairs[HELP_MAX_PAIRS];
    int n_pairs;
    int64_t skew;    /* of the pairs to come */
    uint64_t digest; /* of the bits of all results that were looked at */
};

static inline size_t pair_bytes(const struct pair *p)
{
    return (size_t)p->n * (p->dtype == MIST_DTYPE_BF16 ? 2 : 4);
}

static inline size_t pair_skew_bytes(const struct pair *p)
{
    return (size_t)p->skew * (p->dtype == MIST_DTYPE_BF16 ? 2 : 4);
}

/* n elements, all NaN, on both sides. */
static inline struct pair *pair_empty(struct cuda_help *h, enum mist_dtype dtype,
                                      int64_t n)
{
    struct pair *p = &h->pairs[h->n_pairs++];

    assert_true(h->n_pairs <= HELP_MAX_PAIRS);
    *p = (struct pair){dtype, n, h->skew, NULL, NULL};
    p->host = help_alloc(&h->host, (int64_t)pair_bytes(p) + 1);
    memset(p->host, 0xFF, pair_bytes(p));
    p->device = (char *)mist_test_device_alloc(pair_skew_bytes(p) + pair_bytes(p)) +
                pair_skew_bytes(p);
    return p;
}

/* Frees the device's; what lies around it must be as it was. */
static inline void pair_free(const struct pair *p)
{
    size_t skew = pair_skew_bytes(p);
    unsigned char *base = (unsigned char *)p->device - skew, before[16];

    assert_true(mist_test_device_guard_is_intact(base, skew + pair_bytes(p)));
    mist_test_device_download(before, base, skew);
    for (size_t i = 0; i < skew; i++)
        assert_int_equal(before[i], 0xFF);
    mist_test_device_free(base);
}

/* What the host has becomes x, rounded where p is bf16. */
static inline void pair_set(const struct pair *p, const float *x)
{
    if (p->dtype == MIST_DTYPE_BF16)
        mist_cpu_bf16_from_float(p->host, x, p->n);
    else if (p->n > 0)
        memcpy(p->host, x, pair_bytes(p));
}

/* Sends what the host has. */
static inline void pair_upload(const struct pair *p)
{
    mist_test_device_upload(p->device, p->host, pair_bytes(p));
}

static inline struct pair *pair_of(struct cuda_help *h, enum mist_dtype dtype,
                                   const float *x, int64_t n)
{
    struct pair *p = pair_empty(h, dtype, n);

    pair_set(p, x);
    pair_upload(p);
    return p;
}

/* Uniform in [middle - size, middle + size]. */
static inline struct pair *pair_random(struct cuda_help *h, enum mist_dtype dtype,
                                       int64_t n, double middle, double size)
{
    float *x = help_alloc(&h->host, (n + 1) * (int64_t)sizeof *x);

    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(middle + size * help_uniform(&h->host));
    return pair_of(h, dtype, x, n);
}

static inline struct pair *pair_tokens(struct cuda_help *h, int64_t n, int64_t n_tokens)
{
    struct pair *p = pair_empty(h, MIST_DTYPE_FP32, n); /* as wide as an int32_t */

    for (int64_t i = 0; i < n; i++)
        ((int32_t *)p->host)[i] =
            (int32_t)((double)n_tokens * (help_uniform(&h->host) + 1.0) / 2.0);
    pair_upload(p);
    return p;
}

/* What the device has, looked at for the digest. */
static inline void *pair_download(struct cuda_help *h, const struct pair *p)
{
    unsigned char *got = help_alloc(&h->host, (int64_t)pair_bytes(p) + 1);

    mist_test_device_download(got, p->device, pair_bytes(p));
    for (size_t i = 0; i < pair_bytes(p); i++)
        h->digest = (h->digest ^ got[i]) * 1099511628211u;
    return got;
}

static inline void pair_assert_same(struct cuda_help *h, const struct pair *p)
{
    assert_memory_equal(pair_download(h, p), p->host, pair_bytes(p));
}

static inline float pair_value(const struct pair *p, const void *memory, int64_t i)
{
    float value;

    if (p->dtype == MIST_DTYPE_BF16)
        mist_cpu_bf16_to_float(&value, (const mist_bf16 *)memory + i, 1);
    else
        value = ((const float *)memory)[i];
    return value;
}

/* |device - host| <= tolerance |host| in the 2-norm; tolerance 0: what the number format
 * allows. */
static inline void pair_assert_close(struct cuda_help *h, const struct pair *p,
                                     double tolerance, const char *what)
{
    const void *got = pair_download(h, p);
    double error2 = 0.0, norm2 = 0.0;

    tolerance = tolerance > 0 ? tolerance : p->dtype == MIST_DTYPE_BF16 ? 1e-2 : 1e-5;
    for (int64_t i = 0; i < p->n; i++) {
        double expected = (double)pair_value(p, p->host, i);
        double error = (double)pair_value(p, got, i) - expected;
        error2 += error * error;
        norm2 += expected * expected;
    }
    if (!(sqrt(error2) <= tolerance * sqrt(norm2)))
        fail_msg("%s, %s, %lld elements: relative error %g", what,
                 p->dtype == MIST_DTYPE_BF16 ? "bf16" : "fp32", (long long)p->n,
                 sqrt(error2 / norm2));
}

/* Runs a case with the same numbers in so many orders of threads, at most 3; looks after
 * the guards. */
typedef void cuda_case(struct cuda_help *h, const void *context);

static inline void cuda_run_in(cuda_case *run, const void *context, int n_orders)
{
    static const enum mist_emulation_order orders[] = {
        MIST_EMULATION_FORWARD, MIST_EMULATION_SHUFFLED, MIST_EMULATION_REVERSE};
    static struct cuda_help h;
    uint64_t first = 0;

    if (test_is_left_out())
        return;
    for (int i = 0; i < n_orders; i++) {
        h = (struct cuda_help){.digest = 14695981039346656037u};
        h.host.seed = test_seed(20250117);
        mist_arena_init(&h.host.arena);
        mist_emulation_set_order(orders[i], h.host.seed);
        run(&h, context);
        for (int j = 0; j < h.n_pairs; j++)
            pair_free(&h.pairs[j]);
        mist_arena_fini(&h.host.arena);
        first = i == 0 ? h.digest : first;
        assert_true(h.digest == first); /* else some result depends on the order */
    }
    mist_emulation_set_order(MIST_EMULATION_FORWARD, 0);
}

static inline void cuda_run(cuda_case *run, const void *context)
{
    cuda_run_in(run, context, 2);
}

#endif
