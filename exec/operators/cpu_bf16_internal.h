/*
 * What the bf16 kernels share: conversion, for loops that the compiler vectorises and for
 * whole pieces, and products.
 */
#ifndef MIST_EXEC_CPU_BF16_INTERNAL_H
#define MIST_EXEC_CPU_BF16_INTERNAL_H

#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_internal.h"

MIST_CPU_INLINE float mist_cpu_bf16_value(mist_bf16 x)
{
    uint32_t bits = (uint32_t)x << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even: half a unit less one, plus one where the last kept bit is
 * odd. A NaN would be carried into infinity or zero: it keeps its upper half,
 * made quiet. */
MIST_CPU_INLINE mist_bf16 mist_cpu_bf16_round(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40u;
    return (mist_bf16)((bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded);
}

/* out[0 .. n) = x[0 .. n), on the calling thread. */
void mist_cpu_bf16_load(float *out, const mist_bf16 *x, int64_t n);
void mist_cpu_bf16_store(mist_bf16 *out, const float *x, int64_t n);

/*
 * Kernels of both formats work on fp32, on the calling thread, a piece or row at a time:
 * on elements first .. first + n - 1 of x where they lie or, bf16, in room[n].
 *
 * from    converts what is read
 * to      is where results go
 * done    rounds them
 */
static inline const float *mist_cpu_from(bool is_bf16, float *room, const void *x,
                                         int64_t first, int64_t n)
{
    if (!is_bf16)
        return (const float *)x + first;
    mist_cpu_bf16_load(room, (const mist_bf16 *)x + first, n);
    return room;
}
static inline float *mist_cpu_to(bool is_bf16, float *room, void *x, int64_t first)
{
    return is_bf16 ? room : (float *)x + first;
}
static inline void mist_cpu_done(bool is_bf16, void *x, int64_t first, const float *room,
                                 int64_t n)
{
    if (is_bf16)
        mist_cpu_bf16_store((mist_bf16 *)x + first, room, n);
}

/* c[m, n] = a[m, k] b[k, n] + (adds: c) + (has_bias: bias[n]) */
struct mist_cpu_bf16_shape {
    int64_t m, n, k;
    int64_t a_strides[2], b_strides[2];
    int64_t c_stride;
    int64_t is_float; /* c: fp32; else bf16 */
    int64_t adds;
    int64_t has_bias;
}; /* all of one type: no padding, comparable as memory */

/* The number of the product of this shape, compiled at its first use; false: out of
 * memory. By the thread that owns the context. */
bool mist_cpu_bf16_find_product(struct mist_cpu_bf16 *context,
                                const struct mist_cpu_bf16_shape *shape,
                                size_t *i_product);

/* Runs it as thread t < the context's n_threads; bias NULL unless has_bias. False: oneDNN
 * failed. */
bool mist_cpu_bf16_execute(const struct mist_cpu_bf16 *context, size_t i_product, int t,
                           const mist_bf16 *a, const mist_bf16 *b, void *c,
                           const mist_bf16 *bias);

#endif
