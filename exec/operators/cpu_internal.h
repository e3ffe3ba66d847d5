/*
 * What the CPU kernels share: one binary for every x86-64, sums whose order is fixed,
 * exp().
 *
 * Three rules make a kernel's bits independent of threads and of the processor's vector
 * width: threads only share out independent outputs; a sum over a row is taken in
 * MIST_CPU_LANES partial sums (element i goes to lane i mod MIST_CPU_LANES) that are
 * added up as a fixed tree; and nothing is contracted to a fused multiply-add
 * (-ffp-contract=off). Matrix products are oneDNN's and hence may differ between
 * processors, but not between thread counts.
 *
 * Function clones: MIST_CPU_CLONES compiles a function for AVX-512, AVX2 and plain x86-64
 * and picks at load time. It must sit on the innermost function that has the loop: the
 * body of an OpenMP parallel region is outlined before cloning and would stay at the
 * baseline. That function must be static, with a plain one around it for other files, and
 * its name must be the only one among all files: clang 14 hides the function but not what
 * picks the clone. Helpers the clones call are MIST_CPU_INLINE, so they are compiled with
 * the clone's instructions. Sanitizers get no clones, because a resolver runs before
 * their run-time library is ready.
 */
#ifndef MIST_EXEC_CPU_INTERNAL_H
#define MIST_EXEC_CPU_INTERNAL_H

#include "exec/operators/cpu_kernels.h"

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
#define MIST_CPU_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
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

/* Adds tail[0 .. n) (n < MIST_CPU_LANES) to the first lanes and all lanes in one tree. */
MIST_CPU_INLINE float mist_cpu_lanes_sum(const struct mist_cpu_lanes *acc,
                                         const float *tail, int64_t n)
{
    float lane[MIST_CPU_LANES];
    memcpy(lane, acc, sizeof lane);
    for (int64_t i = 0; i < n; i++)
        lane[i] += tail[i];
    for (int w = MIST_CPU_LANES / 2; w > 0; w /= 2)
        for (int i = 0; i < w; i++)
            lane[i] += lane[i + w];
    return lane[0];
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

/* The largest element (a NaN may be passed over); exact, so its order does not matter. n
 * >= 1. */
MIST_CPU_INLINE float mist_cpu_max(const float *x, int64_t n)
{
    float max = x[0], lane[MIST_CPU_LANES];
    int64_t i = 0;
    if (n >= MIST_CPU_LANES) {
        mist_cpu_f16 lo = *mist_cpu_at(x), hi = *mist_cpu_at(x + 16);
        for (i = MIST_CPU_LANES; i + MIST_CPU_LANES <= n; i += MIST_CPU_LANES) {
            mist_cpu_raise(&lo, mist_cpu_at(x + i));
            mist_cpu_raise(&hi, mist_cpu_at(x + i + 16));
        }
        memcpy(lane, &lo, sizeof lo);
        memcpy(lane + 16, &hi, sizeof hi);
        for (int l = 0; l < MIST_CPU_LANES; l++)
            max = lane[l] > max ? lane[l] : max;
    }
    for (; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

/* -------------------------------------------------------------------------------- exp */

/*
 * exp(x) that compilers vectorise, within 2 ulp (measured:
 * tests/unit/test_cpu_kernels.c). 0 below -86.9 (where exp is 1.8e-38: no denormal
 * results), +inf above 88.73, NaN for NaN.
 *
 * x = k ln 2 + r with |r| <= ln 2 / 2, exp(x) = 2^k (1 + r + r^2 p(r)); coefficients of p
 * from Cephes expf (Moshier 1992), ln 2 split so that k * hi is exact (Cody and Waite
 * 1980).
 */
MIST_CPU_INLINE float mist_cpu_exp(float x)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float c = x > 89.0f ? 89.0f : x;
    c = c < -86.9f ? -86.9f : c;
    float shifted = c * 1.44269504088896341f + shift;
    float k = shifted - shift;
    float r = (c - k * 0.693359375f) - k * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    uint32_t bits;
    float scale; /* 2^(k - 1): 2^128 would be no float */
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits - 0x4B400000u + 126u) << 23;
    memcpy(&scale, &bits, sizeof scale);
    float y = p * scale * 2.0f;
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
