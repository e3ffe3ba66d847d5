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

enum { CHUNK = 2048 };

MIST_CPU_INLINE float min_of(float x, float limit)
{
    return x > limit ? limit : x;
}
MIST_CPU_INLINE float max_of(float x, float limit)
{
    return x < limit ? limit : x;
}

/* sigmoid(x), x from -80 to 80, and 1 - sigmoid(x), the latter without cancellation. */
MIST_CPU_INLINE void sigmoid(float x, float *value, float *complement)
{
    float e = mist_cpu_exp_inside(-x);
    *value = 1.0f / (1.0f + e);
    *complement = e * *value;
}

/* ------------------------------------------------------------------------- activations */

/* Those of models, and the one that only gates have. */
enum activation {
    GELU = MIST_ACTIVATION_GELU,
    EXACT_GELU = MIST_ACTIVATION_EXACT_GELU,
    SQUARED_RELU = MIST_ACTIVATION_SQUARED_RELU,
    SILU = MIST_N_ACTIVATIONS
};

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
    p = fmaf(p, t, 1.4922297e-1f);
    p = fmaf(p, t, -5.8208506e-2f);
    p = fmaf(p, t, 1.1014897e-1f);
    p = fmaf(p, t, 6.8530772e-2f);
    p = fmaf(p, t, 9.1027081e-2f);
    p = fmaf(p, t, 9.5857100e-2f);
    p = fmaf(p, t, 9.5728793e-2f);
    float below = e * (p * t);
    *value = x < 0 ? below : 1.0f - below;
    *density = 3.9894228e-1f * e;
}

#define SILU_LIMIT 80.0f
#define GELU_LIMIT 9.5f /* 2 u = 76 */

/*
 * *y, which is x times a share, and its slope. Below -limit both are nearer than 1e-32 to
 * 0 and stay as they are; above limit the share is 1, whatever else x does.
 */
MIST_CPU_INLINE void activate(enum activation kind, float x, float *y, float *slope)
{
    float share, rest, limit = kind == SILU ? SILU_LIMIT : GELU_LIMIT;

    if (kind == SQUARED_RELU) {
        float above = max_of(x, 0.0f); /* NaN stays */
        *y = above * above;
        *slope = 2.0f * above;
        return;
    }
    if (kind == EXACT_GELU) {
        normal(x, &share, &rest);
        *y = x * share;
        *slope = fmaf(x, rest, share);
        return;
    }
    x = max_of(x, -limit);
    float inside = min_of(x, limit);
    if (kind == SILU) {
        sigmoid(inside, &share, &rest);
        *slope = share * fmaf(inside, rest, 1.0f);
    } else {
        float square = inside * inside;
        sigmoid(inside * fmaf(GELU_SLOPE * GELU_CUBIC, square, GELU_SLOPE), &share,
                &rest);
        float inner = fmaf(3.0f * GELU_SLOPE * GELU_CUBIC, square, GELU_SLOPE);
        *slope = fmaf(inside * inner, share * rest, share);
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
    else if (kind == SQUARED_RELU)
        activate_all(SQUARED_RELU, false, out, x, x, n);
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
    else if (kind == SQUARED_RELU)
        backward_all(SQUARED_RELU, false, dx, dx, d_out, x, x, n);
    else if (up)
        backward_all(GELU, true, dx, d_up, d_out, x, up, n);
    else
        backward_all(GELU, false, dx, dx, d_out, x, x, n);
}

void mist_cpu_activation_forward(bool is_bf16, enum mist_activation kind, void *out,
                                 const void *x, int64_t n, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float room[CHUNK], *to = mist_cpu_to(is_bf16, room, out, i);
        int64_t length = mist_cpu_min(CHUNK, n - i);
        activate_chunk((enum activation)kind, to,
                       mist_cpu_from(is_bf16, room, x, i, length), NULL, length);
        mist_cpu_done(is_bf16, out, i, to, length);
    }
}

void mist_cpu_activation_backward(bool is_bf16, enum mist_activation kind, void *dx,
                                  const void *d_out, const void *x, int64_t n,
                                  int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK) {
        float room[2][CHUNK], *to = mist_cpu_to(is_bf16, room[0], dx, i);
        int64_t length = mist_cpu_min(CHUNK, n - i);
        backward_chunk((enum activation)kind, to, NULL,
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

/* A thread's share at once: memset() then writes without reading. */
void mist_cpu_zero(void *x, int64_t n_bytes, int n_threads)
{
    int64_t share = mist_cpu_n_chunks(n_bytes, n_threads) + 1;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n_bytes; i += share)
        memset((char *)x + i, 0, (size_t)mist_cpu_min(share, n_bytes - i));
}
