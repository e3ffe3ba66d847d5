/*
 * Activations and other element-by-element operators.
 *
 * GELU's tanh form is written with the sigmoid, 0.5 (1 + tanh u) = sigmoid(2 u), which
 * needs one exp and loses no digits for negative x. Every function cuts its elements into
 * chunks that fit the first-level cache's working set and shares the chunks out; SwiGLU
 * shares out rows.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"
#include "exec/operators/cpu_kernels.h"

enum { CHUNK = 2048, ZEROS = 8192 };

/* sigmoid(x) and 1 - sigmoid(x), the latter without cancellation; below -80 (2e-35) they
 * count as 0 and 1, so that exp stays finite and 0 stays 0 however large its factor. */
MIST_CPU_INLINE void sigmoid(float x, float *value, float *complement)
{
    float e = mist_cpu_exp(x < -80.0f ? 80.0f : -x), inverse = 1.0f / (1.0f + e);
    *value = x < -80.0f ? 0.0f : inverse;
    *complement = e * inverse;
}

/* ------------------------------------------------------------------------- activations */

enum activation { SILU, GELU, EXACT_GELU };

#define GELU_SLOPE 1.5957691216057308f /* 2 sqrt(2 / pi) */
#define GELU_CUBIC 0.044715f

/*
 * The normal distribution's Phi(x), by which the exact gelu is x Phi(x), and its density
 * phi(x), by which the slope is Phi(x) + x phi(x). With t = 1 / (1 + 0.24 |x|) a
 * polynomial in t times exp(-x^2 / 2) is Phi(-|x|) to 3e-7 of itself, for all x at which
 * it is not 0 in fp32: interpolated at Chebyshev's points from the error function.
 */
MIST_CPU_INLINE void normal(float x, float *value, float *density)
{
    float size = x < 0 ? -x : x, t = 1.0f / (1.0f + 0.24f * size);
    float e = mist_cpu_exp(-0.5f * size * size);
    float p = -5.2307274e-2f;
    p = p * t + 1.4922297e-1f;
    p = p * t - 5.8208506e-2f;
    p = p * t + 1.1014897e-1f;
    p = p * t + 6.8530772e-2f;
    p = p * t + 9.1027081e-2f;
    p = p * t + 9.5857100e-2f;
    p = p * t + 9.5728793e-2f;
    float below = e * (p * t);
    *value = x < 0 ? below : 1.0f - below;
    *density = 3.9894228e-1f * e;
}

/* *y, which is x times a share, and its slope. */
MIST_CPU_INLINE void activate(enum activation kind, float x, float *y, float *slope)
{
    float share, rest;

    if (kind == SILU) {
        sigmoid(x, &share, &rest);
        *slope = share * (1.0f + x * rest);
    } else if (kind == GELU) {
        sigmoid(GELU_SLOPE * (x + GELU_CUBIC * (x * x * x)), &share, &rest);
        float inner = GELU_SLOPE * (1.0f + 3.0f * GELU_CUBIC * (x * x));
        *slope = share + x * (share * rest) * inner;
    } else {
        normal(x, &share, &rest);
        *slope = share + x * rest;
    }
    *y = x * share;
}

/* The activation of x, times up if it is a gate; up and d_up are not touched else. */
MIST_CPU_INLINE void activate_all(enum activation kind, bool is_gate, float *out,
                                  const float *x, const float *up, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float y, slope;
        activate(kind, x[i], &y, &slope);
        out[i] = is_gate ? y * up[i] : y;
    }
}

MIST_CPU_INLINE void backward_all(enum activation kind, bool is_gate, float *dx,
                                  float *d_up, const float *d_out, const float *x,
                                  const float *up, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float y, slope, d = d_out[i];
        activate(kind, x[i], &y, &slope);
        dx[i] = is_gate ? d * up[i] * slope : d * slope;
        if (is_gate)
            d_up[i] = d * y;
    }
}

/* Those that models have, each as a loop of its own. up NULL: no gate. */
MIST_CPU_CLONES static void activate_chunk(enum activation kind, float *out,
                                           const float *x, const float *up, int64_t n)
{
    if (kind == SILU)
        activate_all(SILU, true, out, x, up, n);
    else if (kind == EXACT_GELU)
        activate_all(EXACT_GELU, false, out, x, x, n);
    else if (up)
        activate_all(GELU, true, out, x, up, n);
    else
        activate_all(GELU, false, out, x, x, n);
}

MIST_CPU_CLONES static void backward_chunk(enum activation kind, float *dx, float *d_up,
                                           const float *d_out, const float *x,
                                           const float *up, int64_t n)
{
    if (kind == SILU)
        backward_all(SILU, true, dx, d_up, d_out, x, up, n);
    else if (kind == EXACT_GELU)
        backward_all(EXACT_GELU, false, dx, dx, d_out, x, x, n);
    else if (up)
        backward_all(GELU, true, dx, d_up, d_out, x, up, n);
    else
        backward_all(GELU, false, dx, dx, d_out, x, x, n);
}

void mist_cpu_gelu_forward(bool is_bf16, bool is_exact, void *out, const void *x,
                           int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float room[CHUNK], *to = mist_cpu_to(is_bf16, room, out, i);
        int64_t length = mist_cpu_min(CHUNK, n - i);
        activate_chunk(is_exact ? EXACT_GELU : GELU, to,
                       mist_cpu_from(is_bf16, room, x, i, length), NULL, length);
        mist_cpu_done(is_bf16, out, i, to, length);
    }
}

void mist_cpu_gelu_backward(bool is_bf16, bool is_exact, void *dx, const void *d_out,
                            const void *x, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float room[2][CHUNK], *to = mist_cpu_to(is_bf16, room[0], dx, i);
        int64_t length = mist_cpu_min(CHUNK, n - i);
        backward_chunk(is_exact ? EXACT_GELU : GELU, to, NULL,
                       mist_cpu_from(is_bf16, room[0], d_out, i, length),
                       mist_cpu_from(is_bf16, room[1], x, i, length), NULL, length);
        mist_cpu_done(is_bf16, dx, i, to, length);
    }
}

void mist_cpu_swiglu_forward(bool is_bf16, bool is_geglu, void *out, const void *gate_up,
                             int64_t rows, int64_t f, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < f; j += CHUNK) {
            float room[2][CHUNK], *to = mist_cpu_to(is_bf16, room[0], out, i * f + j);
            int64_t length = mist_cpu_min(CHUNK, f - j), gate = i * 2 * f + j;
            activate_chunk(is_geglu ? GELU : SILU, to,
                           mist_cpu_from(is_bf16, room[0], gate_up, gate, length),
                           mist_cpu_from(is_bf16, room[1], gate_up, gate + f, length),
                           length);
            mist_cpu_done(is_bf16, out, i * f + j, to, length);
        }
}

void mist_cpu_swiglu_backward(bool is_bf16, bool is_geglu, void *d_gate_up,
                              const void *d_out, const void *gate_up, int64_t rows,
                              int64_t f, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < f; j += CHUNK) {
            float room[3][CHUNK];
            int64_t length = mist_cpu_min(CHUNK, f - j), gate = i * 2 * f + j,
                    up = gate + f;
            float *d_gate = mist_cpu_to(is_bf16, room[0], d_gate_up, gate);
            float *d_up = mist_cpu_to(is_bf16, room[1], d_gate_up, up);
            backward_chunk(is_geglu ? GELU : SILU, d_gate, d_up,
                           mist_cpu_from(is_bf16, room[2], d_out, i * f + j, length),
                           mist_cpu_from(is_bf16, room[0], gate_up, gate, length),
                           mist_cpu_from(is_bf16, room[1], gate_up, up, length), length);
            mist_cpu_done(is_bf16, d_gate_up, gate, d_gate, length);
            mist_cpu_done(is_bf16, d_gate_up, up, d_up, length);
        }
}

/* ------------------------------------------------------------------------------ scale */

MIST_CPU_CLONES static void scale_chunk_clones(float *x, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

void mist_cpu_scale_chunk(float *x, float factor, int64_t n)
{
    scale_chunk_clones(x, factor, n);
}

void mist_cpu_scale(bool is_bf16, void *x, float factor, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float room[CHUNK], *to = mist_cpu_to(is_bf16, room, x, i);
        int64_t length = mist_cpu_min(CHUNK, n - i);
        if (is_bf16)
            mist_cpu_from(is_bf16, room, x, i, length);
        mist_cpu_scale_chunk(to, factor, length);
        mist_cpu_done(is_bf16, x, i, to, length);
    }
}

/* -------------------------------------------------------------------------- add, zero */

MIST_CPU_CLONES static void add_chunk_clones(float *out, const float *a, const float *b,
                                             int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = a[i] + b[i];
}

MIST_CPU_CLONES static void add_bf16_clones(mist_bf16 *out, const mist_bf16 *a,
                                            const mist_bf16 *b, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        out[i] = mist_bf16_round(mist_bf16_value(a[i]) + mist_bf16_value(b[i]));
}

void mist_cpu_add_chunk(bool is_bf16, void *out, const void *a, const void *b, int64_t n)
{
    if (is_bf16)
        add_bf16_clones(out, a, b, n);
    else
        add_chunk_clones(out, a, b, n);
}

void mist_cpu_add_forward(bool is_bf16, void *out, const void *a, const void *b,
                          int64_t n, int n_threads)
{
    int64_t size = mist_cpu_element_bytes(is_bf16);

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        mist_cpu_add_chunk(is_bf16, (char *)out + i * size, (const char *)a + i * size,
                           (const char *)b + i * size, mist_cpu_min(CHUNK, n - i));
}

void mist_cpu_zero(void *x, int64_t n_bytes, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n_bytes; i += ZEROS)
        memset((char *)x + i, 0, (size_t)mist_cpu_min(ZEROS, n_bytes - i));
}
