/*
 * Activations and other element-by-element operators.
 *
 * GELU's tanh form is written with the sigmoid, 0.5 (1 + tanh u) = sigmoid(2 u), which
 * needs one exp and loses no digits for negative x. Every function cuts its elements into
 * chunks that fit the first-level cache's working set and shares the chunks out; SwiGLU
 * shares out rows.
 */
#include "exec/operators/cpu_internal.h"
#include "exec/operators/cpu_kernels.h"

enum { CHUNK = 8192 };

static int64_t chunk_length(int64_t begin, int64_t n)
{
    return n - begin < CHUNK ? n - begin : CHUNK;
}

/* sigmoid(x) and 1 - sigmoid(x), the latter without cancellation; below -80 (2e-35) they
 * count as 0 and 1, so that exp stays finite and 0 stays 0 however large its factor. */
MIST_CPU_INLINE void sigmoid(float x, float *value, float *complement)
{
    float e = mist_cpu_exp(x < -80.0f ? 80.0f : -x), inverse = 1.0f / (1.0f + e);
    *value = x < -80.0f ? 0.0f : inverse;
    *complement = e * inverse;
}

/* ------------------------------------------------------------------------------- gelu */

#define GELU_SLOPE 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f

MIST_CPU_CLONES static void gelu_chunk_clones(float *out, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = x[i], value, complement;
        sigmoid(GELU_SLOPE * (v + GELU_CUBIC * (v * v * v)), &value, &complement);
        out[i] = v * value;
    }
}

void mist_cpu_gelu_chunk(float *out, const float *x, int64_t n)
{
    gelu_chunk_clones(out, x, n);
}

MIST_CPU_CLONES static void gelu_backward_chunk_clones(float *dx, const float *d_out,
                                                       const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float v = x[i], value, complement;
        sigmoid(GELU_SLOPE * (v + GELU_CUBIC * (v * v * v)), &value, &complement);
        float slope = GELU_SLOPE * (1.0f + 3.0f * GELU_CUBIC * (v * v));
        dx[i] = d_out[i] * (value + v * (value * complement) * slope);
    }
}

void mist_cpu_gelu_backward_chunk(float *dx, const float *d_out, const float *x,
                                  int64_t n)
{
    gelu_backward_chunk_clones(dx, d_out, x, n);
}

void mist_cpu_gelu_forward(float *out, const float *x, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        mist_cpu_gelu_chunk(out + i, x + i, chunk_length(i, n));
}

void mist_cpu_gelu_backward(float *dx, const float *d_out, const float *x, int64_t n,
                            int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        mist_cpu_gelu_backward_chunk(dx + i, d_out + i, x + i, chunk_length(i, n));
}

/* ----------------------------------------------------------------------------- swiglu */

MIST_CPU_CLONES static void swiglu_chunk_clones(float *out, const float *gate,
                                                const float *up, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float value, complement;
        sigmoid(gate[j], &value, &complement);
        out[j] = gate[j] * value * up[j];
    }
}

void mist_cpu_swiglu_chunk(float *out, const float *gate, const float *up, int64_t n)
{
    swiglu_chunk_clones(out, gate, up, n);
}

MIST_CPU_CLONES static void swiglu_backward_chunk_clones(float *d_gate, float *d_up,
                                                         const float *d_out,
                                                         const float *gate,
                                                         const float *up, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        float g = gate[j], u = up[j], value, complement;
        sigmoid(g, &value, &complement);
        d_gate[j] = d_out[j] * u * (value * (1.0f + g * complement));
        d_up[j] = d_out[j] * (g * value);
    }
}

void mist_cpu_swiglu_backward_chunk(float *d_gate, float *d_up, const float *d_out,
                                    const float *gate, const float *up, int64_t n)
{
    swiglu_backward_chunk_clones(d_gate, d_up, d_out, gate, up, n);
}

void mist_cpu_swiglu_forward(float *out, const float *gate_up, int64_t rows, int64_t f,
                             int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        mist_cpu_swiglu_chunk(out + i * f, gate_up + i * 2 * f, gate_up + i * 2 * f + f,
                              f);
}

void mist_cpu_swiglu_backward(float *d_gate_up, const float *d_out, const float *gate_up,
                              int64_t rows, int64_t f, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const float *row = gate_up + i * 2 * f;
        float *d_row = d_gate_up + i * 2 * f;
        mist_cpu_swiglu_backward_chunk(d_row, d_row + f, d_out + i * f, row, row + f, f);
    }
}

/* ------------------------------------------------------------------- add, scale, zero */

MIST_CPU_CLONES static void add_chunk_clones(float *out, const float *a, const float *b,
                                             int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

void mist_cpu_add_chunk(float *out, const float *a, const float *b, int64_t n)
{
    add_chunk_clones(out, a, b, n);
}

MIST_CPU_CLONES static void scale_chunk(float *x, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

void mist_cpu_add_forward(float *out, const float *a, const float *b, int64_t n,
                          int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        mist_cpu_add_chunk(out + i, a + i, b + i, chunk_length(i, n));
}

void mist_cpu_scale(float *x, float factor, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        scale_chunk(x + i, factor, chunk_length(i, n));
}

void mist_cpu_zero(void *x, int64_t n_bytes, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n_bytes; i += CHUNK)
        memset((char *)x + i, 0, (size_t)chunk_length(i, n_bytes));
}
