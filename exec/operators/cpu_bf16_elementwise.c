/* bf16: conversion, and how gradients of parameters are left in it or in fp32. */
#include "exec/operators/cpu_bf16_internal.h"

/* ------------------------------------------------------------------------- conversion */

MIST_CPU_CLONES static void load_bf16_clones(float *out, const mist_bf16 *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = mist_bf16_value(x[i]);
}

void mist_cpu_bf16_to_float(float *out, const mist_bf16 *x, int64_t n)
{
    load_bf16_clones(out, x, n);
}

MIST_CPU_CLONES static void store_bf16_clones(mist_bf16 *out, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = mist_bf16_round(x[i]);
}

void mist_cpu_bf16_from_float(mist_bf16 *out, const float *x, int64_t n)
{
    store_bf16_clones(out, x, n);
}

/* ----------------------------------------------------------- gradients of parameters */

MIST_CPU_CLONES static void leave_gradients(void *d, int64_t first, const float *x,
                                            int64_t n, int how)
{
    bool overwrites = how & MIST_CPU_OVERWRITES;

    if (how & MIST_CPU_BF16_GRADIENTS) {
        mist_bf16 *to = (mist_bf16 *)d + first;
        for (int64_t j = 0; j < n; j++)
            to[j] = mist_bf16_round(overwrites ? x[j] : mist_bf16_value(to[j]) + x[j]);
    } else {
        float *to = (float *)d + first;
        for (int64_t j = 0; j < n; j++)
            to[j] = overwrites ? x[j] : to[j] + x[j];
    }
}

/* Clones are static: not every compiler calls those of another file. */
void mist_cpu_leave_gradients(void *d, int64_t first, const float *x, int64_t n, int how)
{
    leave_gradients(d, first, x, n, how);
}
