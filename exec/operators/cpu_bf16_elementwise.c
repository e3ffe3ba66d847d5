/*
 * bf16: conversion, AdamW, and how gradients of parameters are left.
 *
 * Elements are taken in pieces of PIECE, each converted into fp32 on the stack, worked on
 * by the fp32 kernel's own loop, and rounded back.
 */
#include "exec/operators/cpu_bf16_internal.h"

enum { PIECE = 2048 };

static int64_t piece_length(int64_t begin, int64_t n)
{
    return n - begin < PIECE ? n - begin : PIECE;
}

/* ------------------------------------------------------------------------- conversion */

MIST_CPU_CLONES static void load_bf16_clones(float *out, const mist_bf16 *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = mist_cpu_bf16_value(x[i]);
}

void mist_cpu_bf16_load(float *out, const mist_bf16 *x, int64_t n)
{
    load_bf16_clones(out, x, n);
}

MIST_CPU_CLONES static void store_bf16_clones(mist_bf16 *out, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = mist_cpu_bf16_round(x[i]);
}

void mist_cpu_bf16_store(mist_bf16 *out, const float *x, int64_t n)
{
    store_bf16_clones(out, x, n);
}

void mist_cpu_bf16_from_float(mist_bf16 *out, const float *x, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += PIECE)
        mist_cpu_bf16_store(out + i, x + i, piece_length(i, n));
}

void mist_cpu_bf16_to_float(float *out, const mist_bf16 *x, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += PIECE)
        mist_cpu_bf16_load(out + i, x + i, piece_length(i, n));
}

/* -------------------------------------------------------------------------- optimizer */

/* Pieces so small that the master weights are still in the first cache to be rounded. */
enum { ADAMW_PIECE = 512 };

void mist_cpu_bf16_adamw_step(mist_bf16 *weights, float *master, float *m, float *v,
                              const void *g, int64_t n,
                              const struct mist_cpu_adamw *config, int n_threads, int how)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += ADAMW_PIECE) {
        int64_t length = n - i < ADAMW_PIECE ? n - i : ADAMW_PIECE;
        float wide[ADAMW_PIECE];
        const float *gradients = wide;
        if (how & MIST_CPU_BF16_GRADIENTS)
            mist_cpu_bf16_load(wide, (const mist_bf16 *)g + i, length);
        else
            gradients = (const float *)g + i;
        mist_cpu_adamw_chunk(master + i, m + i, v + i, gradients, length, config);
        mist_cpu_bf16_store(weights + i, master + i, length);
    }
}

/* ----------------------------------------------------------- gradients of parameters */

MIST_CPU_CLONES static void leave_gradients(void *d, int64_t first, const float *x,
                                            int64_t n, int how)
{
    bool overwrites = how & MIST_CPU_OVERWRITES;

    if (how & MIST_CPU_BF16_GRADIENTS) {
        mist_bf16 *to = (mist_bf16 *)d + first;
        for (int64_t j = 0; j < n; j++)
            to[j] = mist_cpu_bf16_round(overwrites ? x[j]
                                                   : mist_cpu_bf16_value(to[j]) + x[j]);
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
