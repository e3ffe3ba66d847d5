/*
 * bf16: conversion, embedding, activations, sums and AdamW.
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

/* -------------------------------------------------------------------------- embedding */

MIST_CPU_CLONES static void add_bf16_rows(void *out, const void *a, const void *b,
                                          int64_t n)
{
    const mist_bf16 *x = a, *y = b;
    mist_bf16 *to = out;

#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        to[j] =
            mist_cpu_bf16_round(mist_cpu_bf16_value(x[j]) + mist_cpu_bf16_value(y[j]));
}

MIST_CPU_CLONES static void add_bf16_to(float *sum, const void *x, int64_t n)
{
    const mist_bf16 *d = x;

#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        sum[j] += mist_cpu_bf16_value(d[j]);
}

static const struct mist_cpu_embedding_format bf16 = {sizeof(mist_bf16), add_bf16_rows,
                                                      add_bf16_to};

void mist_cpu_bf16_embedding_slice_forward(mist_bf16 *out, const int32_t *tokens,
                                           const mist_bf16 *wte, const mist_bf16 *wpe,
                                           int64_t rows, int64_t s, int64_t h,
                                           int64_t first_token, int64_t n_local,
                                           int n_threads)
{
    const struct mist_cpu_embedding of = {&bf16, tokens,      rows,   s,
                                          h,     first_token, n_local};

    mist_cpu_embed(&of, out, wte, wpe, n_threads);
}

/* sum[0 .. h) += the rows of d_out in bf16, summed in fp32 piece by piece: those of
 * positions i, i + step, ..., or of them those that have token i's (is_token). */
static void add_positions(const struct mist_cpu_embedding *of, mist_bf16 *sum,
                          const mist_bf16 *d_out, int64_t i, int64_t step, bool is_token)
{
    for (int64_t j = 0; j < of->h; j += PIECE) {
        float total[PIECE];
        int64_t n = piece_length(j, of->h);
        mist_cpu_bf16_load(total, sum + j, n);
        for (int64_t k = i; k < of->rows; k += step)
            if (!is_token || of->tokens[k] == of->tokens[i])
                add_bf16_to(total, d_out + k * of->h + j, n);
        mist_cpu_bf16_store(sum + j, total, n);
    }
}

static bool occurs_before(const int32_t *tokens, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (tokens[k] == tokens[i])
            return true;
    return false;
}

/* Where gradients are bf16, all rows of a token are added up before they are rounded:
 * threads share out the tokens, by the first place of each. */
static void scatter_bf16(const struct mist_cpu_embedding *of, mist_bf16 *dwte,
                         mist_bf16 *dwpe, const mist_bf16 *d_out, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(dynamic, 16) nowait
        for (int64_t i = 0; i < of->rows; i++) {
            int64_t row = mist_cpu_embedding_row(of, i);
            if (row >= 0 && !occurs_before(of->tokens, i))
                add_positions(of, dwte + row * of->h, d_out, i, 1, true);
        }
#pragma omp for schedule(static)
        for (int64_t i = 0; i < of->s; i++)
            if (dwpe != NULL && i < of->rows)
                add_positions(of, dwpe + i * of->h, d_out, i, of->s, false);
    }
}

void mist_cpu_bf16_embedding_slice_backward(void *dwte, void *dwpe, const int32_t *tokens,
                                            const mist_bf16 *d_out, int64_t rows,
                                            int64_t s, int64_t h, int64_t first_token,
                                            int64_t n_local, int n_threads, int how)
{
    const struct mist_cpu_embedding of = {&bf16, tokens,      rows,   s,
                                          h,     first_token, n_local};

    if (how & MIST_CPU_BF16_GRADIENTS)
        scatter_bf16(&of, dwte, dwpe, d_out, n_threads);
    else
        mist_cpu_embed_backward(&of, dwte, dwpe, d_out, n_threads);
}

/* ------------------------------------------------------------------------ activations */

void mist_cpu_bf16_gelu_forward(mist_bf16 *out, const mist_bf16 *x, int64_t n,
                                int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += PIECE) {
        float a[PIECE];
        int64_t length = piece_length(i, n);
        mist_cpu_bf16_load(a, x + i, length);
        mist_cpu_gelu_chunk(a, a, length);
        mist_cpu_bf16_store(out + i, a, length);
    }
}

void mist_cpu_bf16_gelu_backward(mist_bf16 *dx, const mist_bf16 *d_out,
                                 const mist_bf16 *x, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += PIECE) {
        float a[PIECE], d[PIECE];
        int64_t length = piece_length(i, n);
        mist_cpu_bf16_load(a, x + i, length);
        mist_cpu_bf16_load(d, d_out + i, length);
        mist_cpu_gelu_backward_chunk(d, d, a, length);
        mist_cpu_bf16_store(dx + i, d, length);
    }
}

static void swiglu_row(mist_bf16 *out, const mist_bf16 *gate_up, int64_t f)
{
    for (int64_t j = 0; j < f; j += PIECE) {
        float gate[PIECE], up[PIECE];
        int64_t length = piece_length(j, f);
        mist_cpu_bf16_load(gate, gate_up + j, length);
        mist_cpu_bf16_load(up, gate_up + f + j, length);
        mist_cpu_swiglu_chunk(up, gate, up, length);
        mist_cpu_bf16_store(out + j, up, length);
    }
}

static void swiglu_backward_row(mist_bf16 *d_gate_up, const mist_bf16 *d_out,
                                const mist_bf16 *gate_up, int64_t f)
{
    for (int64_t j = 0; j < f; j += PIECE) {
        float gate[PIECE], up[PIECE], d[PIECE];
        int64_t length = piece_length(j, f);
        mist_cpu_bf16_load(gate, gate_up + j, length);
        mist_cpu_bf16_load(up, gate_up + f + j, length);
        mist_cpu_bf16_load(d, d_out + j, length);
        mist_cpu_swiglu_backward_chunk(gate, up, d, gate, up, length);
        mist_cpu_bf16_store(d_gate_up + j, gate, length);
        mist_cpu_bf16_store(d_gate_up + f + j, up, length);
    }
}

void mist_cpu_bf16_swiglu_forward(mist_bf16 *out, const mist_bf16 *gate_up, int64_t rows,
                                  int64_t f, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        swiglu_row(out + i * f, gate_up + i * 2 * f, f);
}

void mist_cpu_bf16_swiglu_backward(mist_bf16 *d_gate_up, const mist_bf16 *d_out,
                                   const mist_bf16 *gate_up, int64_t rows, int64_t f,
                                   int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        swiglu_backward_row(d_gate_up + i * 2 * f, d_out + i * f, gate_up + i * 2 * f, f);
}

void mist_cpu_bf16_add_forward(mist_bf16 *out, const mist_bf16 *a, const mist_bf16 *b,
                               int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += PIECE)
        add_bf16_rows(out + i, a + i, b + i, piece_length(i, n));
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
