/*
 * What the CPU kernels share: one binary for every x86-64, sums whose order is fixed,
 * exp().
 *
 * Three rules make a kernel's bits independent of threads and of the processor's vector
 * width: threads only share out independent outputs; a sum over a row is taken in
 * MIST_CPU_LANES partial sums (element i goes to lane i mod MIST_CPU_LANES) that are
 * added up as a fixed tree; and what is a fused multiply-add is written as one, fmaf():
 * the compiler makes none (-ffp-contract=off). Matrix products are oneDNN's and hence may
 * differ between processors, but not between thread counts.
 *
 * Function clones: MIST_CPU_CLONES compiles a function for AVX-512, for AVX2 with fused
 * multiply-adds (x86-64-v3) and for plain x86-64, where fmaf() is a slow call, and picks
 * at load time. It must sit on the innermost function that has the loop: the body of an
 * OpenMP parallel region is outlined before cloning and would stay at the baseline. That
 * function must be static, with a plain one around it for other files, and its name must
 * be the only one among all files: clang 14 hides the function but not what picks the
 * clone. Helpers the clones call are MIST_CPU_INLINE, so they are compiled with the
 * clone's instructions. Sanitizers get no clones, because a resolver runs before their
 * run-time library is ready.
 */
#ifndef MIST_EXEC_CPU_INTERNAL_H
#define MIST_EXEC_CPU_INTERNAL_H

#include "exec/operators/cpu_kernels.h"

#include <math.h> /* fmaf */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__has_feature)
#define MIST_CPU_HAS_FEATURE(x) __has_feature(x)
#else
#define MIST_CPU_HAS_FEATURE(x) 0
#endif

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_THREAD__) &&    \
    !defined(__SANITIZE_ADDRESS__) && !MIST_CPU_HAS_FEATURE(thread_sanitizer) &&         \
    !MIST_CPU_HAS_FEATURE(address_sanitizer) && !MIST_CPU_HAS_FEATURE(memory_sanitizer)
#define MIST_CPU_CLONES                                                                  \
    __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define MIST_CPU_CLONES
#endif
#define MIST_CPU_INLINE static inline __attribute__((always_inline))

/* ------------------------------------------------------------------- fixed-order sums */

#define MIST_CPU_LANES 32

/* 16 floats at any address; the compiler splits it into what the processor has. */
typedef float mist_cpu_f16 __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t mist_cpu_i16 __attribute__((vector_size(64), aligned(4), may_alias));

struct mist_cpu_lanes {
    mist_cpu_f16 lo, hi; /* lanes 0-15 and 16-31 */
};

MIST_CPU_INLINE mist_cpu_f16 *mist_cpu_at(const float *x)
{
    return (mist_cpu_f16 *)(uintptr_t)x;
}

/* Halves of vectors, which a tree adds or compares. */
typedef float mist_cpu_f8 __attribute__((vector_size(32)));
typedef float mist_cpu_f4 __attribute__((vector_size(16)));
#define MIST_CPU_LOWER_8(x) __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7)
#define MIST_CPU_UPPER_8(x) __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15)
#define MIST_CPU_LOWER_4(x) __builtin_shufflevector(x, x, 0, 1, 2, 3)
#define MIST_CPU_UPPER_4(x) __builtin_shufflevector(x, x, 4, 5, 6, 7)

/* Adds tail[0 .. n) (n < MIST_CPU_LANES) to the first lanes and all lanes in one tree. */
MIST_CPU_INLINE float mist_cpu_lanes_sum(const struct mist_cpu_lanes *acc,
                                         const float *tail, int64_t n)
{
    struct mist_cpu_lanes all = *acc;
    if (n > 0) {
        float lane[MIST_CPU_LANES];
        memcpy(lane, acc, sizeof lane);
        for (int64_t i = 0; i < n; i++)
            lane[i] += tail[i];
        memcpy(&all, lane, sizeof lane);
    }
    mist_cpu_f16 sum16 = all.lo + all.hi;
    mist_cpu_f8 sum8 = MIST_CPU_LOWER_8(sum16) + MIST_CPU_UPPER_8(sum16);
    mist_cpu_f4 sum4 = MIST_CPU_LOWER_4(sum8) + MIST_CPU_UPPER_4(sum8);
    return (sum4[0] + sum4[2]) + (sum4[1] + sum4[3]);
}

/* sum of x[0 .. n) */
MIST_CPU_INLINE float mist_cpu_sum(const float *x, int64_t n)
{
    struct mist_cpu_lanes acc = {{0}, {0}};
    int64_t i = 0;
    for (; i + MIST_CPU_LANES <= n; i += MIST_CPU_LANES) {
        acc.lo += *mist_cpu_at(x + i);
        acc.hi += *mist_cpu_at(x + i + 16);
    }
    return mist_cpu_lanes_sum(&acc, x + i, n - i);
}

/* sum of x[i] * y[i] */
MIST_CPU_INLINE float mist_cpu_dot(const float *x, const float *y, int64_t n)
{
    struct mist_cpu_lanes acc = {{0}, {0}};
    float tail[MIST_CPU_LANES];
    int64_t i = 0;
    for (; i + MIST_CPU_LANES <= n; i += MIST_CPU_LANES) {
        acc.lo += *mist_cpu_at(x + i) * *mist_cpu_at(y + i);
        acc.hi += *mist_cpu_at(x + i + 16) * *mist_cpu_at(y + i + 16);
    }
    for (int64_t j = i; j < n; j++)
        tail[j - i] = x[j] * y[j];
    return mist_cpu_lanes_sum(&acc, tail, n - i);
}

/* m = x > m ? x : m in every lane */
MIST_CPU_INLINE void mist_cpu_raise(mist_cpu_f16 *m, const mist_cpu_f16 *x)
{
    mist_cpu_i16 greater = *x > *m;
    *m = (mist_cpu_f16)((greater & (mist_cpu_i16)*x) | (~greater & (mist_cpu_i16)*m));
}

/* The largest element (a NaN may be passed over); exact, so its order does not matter, and
 * some may be seen twice. n >= 1. */
MIST_CPU_INLINE float mist_cpu_max(const float *x, int64_t n)
{
    float max = x[0], lane[16];
    if (n < 16) {
        for (int64_t i = 1; i < n; i++)
            max = x[i] > max ? x[i] : max;
        return max;
    }
    mist_cpu_f16 lo = *mist_cpu_at(x + n - 16);
    mist_cpu_f16 hi = *mist_cpu_at(n < 32 ? x : x + n - 32);
    for (int64_t i = 0; i + 32 <= n; i += 32) {
        mist_cpu_raise(&lo, mist_cpu_at(x + i));
        mist_cpu_raise(&hi, mist_cpu_at(x + i + 16));
    }
    mist_cpu_raise(&lo, &hi);
    hi = __builtin_shufflevector(lo, lo, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5,
                                 6, 7);
    mist_cpu_raise(&lo, &hi);
    memcpy(lane, &lo, sizeof lane);
    for (int l = 0; l < 8; l++)
        max = lane[l] > max ? lane[l] : max;
    return max;
}

/* -------------------------------------------------------------------------------- exp */

/*
 * exp(x) for x from -86.9 to 88, which compilers vectorise, within 2 ulp (measured:
 * tests/unit/test_cpu_kernels.c); NaN for NaN.
 *
 * x = k ln 2 + r with |r| <= ln 2 / 2, exp(x) = 2^k (1 + r + r^2 p(r)); coefficients of p
 * from Cephes expf (Moshier 1992), ln 2 split in two (Cody and Waite 1980).
 */
MIST_CPU_INLINE float mist_cpu_exp_inside(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float shifted = fmaf(x, 1.44269504088896341f, shift);
    float k = shifted - shift;
    float r = fmaf(k, 2.12194440e-4f, fmaf(k, -0.693359375f, x));
    float p = 1.9875691500e-4f;
    p = fmaf(p, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p, r * r, r) + 1.0f;
    uint32_t bits;
    float scale; /* 2^k */
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4B400000u + 127u) << 23;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

/* exp(x) for all x up to 88; 0 below -86.9, where it is 1.8e-38: no denormal results. */
MIST_CPU_INLINE float mist_cpu_exp(float x)
{
    float y = mist_cpu_exp_inside(x < -86.9f ? -86.9f : x);
    return x < -86.9f ? 0.0f : y;
}

/* ------------------------------------------------- parts, on the calling thread alone */

/* x *= factor */
void mist_cpu_scale_chunk(float *x, float factor, int64_t n);

/* out = a + b, which may be out. */
void mist_cpu_add_chunk(bool is_bf16, void *out, const void *a, const void *b, int64_t n);

/* Elements first .. first + n - 1 of d, gradients of parameters, += x (how: or =). */
void mist_cpu_leave_gradients(void *d, int64_t first, const float *x, int64_t n, int how);

/* -------------------------------------------------------------------- matrix products */

/* c[m, n] = a[m, k] b[k, n] + (adds: c) + (has_bias: bias[n]); strides of rows and of
 * columns, one of which is 1. */
struct mist_cpu_product {
    int64_t m, n, k;
    int64_t a_strides[2], b_strides[2];
    int64_t c_stride;
    int64_t is_float; /* c: fp32; else bf16 */
    int64_t adds;
    int64_t has_bias;
}; /* all of one type: no padding, comparable as memory */

/* Whether an operand of so many columns is read as its transpose. */
static inline bool mist_cpu_is_turned(const int64_t strides[2], int64_t columns)
{
    return strides[1] != 1 || columns > strides[0];
}

/*
 * A product of fp32 without bias, on the calling thread alone. Bits depend on the shape,
 * not on the addresses: a row's may change with m, a column's with n (remainders of
 * oneDNN's register tiles sum in another order), so whoever cuts a product cuts it the
 * same whatever the number of threads. Should the library run out of memory, c becomes
 * NaN: the step's finiteness check then ends the run.
 */
void mist_cpu_sgemm(const struct mist_cpu_product *of, const float *a, const float *b,
                    float *c);

static inline int64_t mist_cpu_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Pieces of chunk that n is cut into, the last of which may be smaller. */
static inline int64_t mist_cpu_n_chunks(int64_t n, int64_t chunk)
{
    return (n + chunk - 1) / chunk;
}

#endif
