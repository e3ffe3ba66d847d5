/*
 * AdamW over flat arrays: each element on its own, so that neither threads nor shards
 * change a bit of the result.
 *
 * Ordinary stores: everything that is written has been read, so non-temporal ones save no
 * traffic, and they were slower by a third where it was measured (Zen 4).
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <math.h> /* sqrtf */
#if defined(__x86_64__)
#include <immintrin.h> /* square roots of vectors */
#endif

/* So small that what is to be rounded is still in the first cache. */
enum { PIECE = 512 };

/*
 * Correctly rounded square roots of whole vectors from x on; return how many. Intrinsics,
 * because sqrtf() may set errno and so keeps a loop scalar; as wide as the processor has
 * them, because four at a time take longer than the memory traffic.
 */
#if defined(__x86_64__)
__attribute__((target("avx512f"))) static int64_t take_roots_avx512(float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(x + i, _mm512_sqrt_ps(_mm512_loadu_ps(x + i)));
    return i;
}

__attribute__((target("avx"))) static int64_t take_roots_avx(float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(x + i, _mm256_sqrt_ps(_mm256_loadu_ps(x + i)));
    return i;
}

static int64_t take_roots_sse(float *x, int64_t n)
{
    int64_t i = 0;

    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(x + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
    return i;
}

static int64_t take_vector_roots(float *x, int64_t n)
{
    if (__builtin_cpu_supports("avx512f"))
        return take_roots_avx512(x, n);
    return __builtin_cpu_supports("avx") ? take_roots_avx(x, n) : take_roots_sse(x, n);
}
#else
static int64_t take_vector_roots(float *x, int64_t n)
{
    (void)x;
    (void)n;
    return 0;
}
#endif

static void take_roots(float *x, int64_t n)
{
    for (int64_t i = take_vector_roots(x, n); i < n; i++)
        x[i] = sqrtf(x[i]);
}

/* n <= PIECE */
MIST_CPU_CLONES static void update_piece(float *p, float *m, float *v, const float *g,
                                         int64_t n, const struct mist_cpu_adamw *config)
{
    const struct mist_cpu_adamw c = *config;
    float fresh1 = 1.0f - c.beta1, fresh2 = 1.0f - c.beta2;
    float inverse1 = 1.0f / c.correction1, inverse2 = 1.0f / c.correction2;
    float root[PIECE];
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * c.grad_scale;
        m[i] = c.beta1 * m[i] + fresh1 * gradient;
        v[i] = c.beta2 * v[i] + fresh2 * (gradient * gradient);
        root[i] = v[i] * inverse2;
    }
    take_roots(root, n);
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float update = m[i] * inverse1 / (root[i] + c.eps);
        p[i] -= c.lr * (update + c.weight_decay * p[i]);
    }
}

void mist_cpu_adamw_step(void *weights, float *p, float *m, float *v, const void *g,
                         int64_t n, const struct mist_cpu_adamw *config, int n_threads,
                         int how)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += PIECE) {
        float room[PIECE];
        int64_t length = mist_cpu_min(PIECE, n - i);
        update_piece(p + i, m + i, v + i,
                     mist_cpu_from(how & MIST_CPU_BF16_GRADIENTS, room, g, i, length),
                     length, config);
        mist_cpu_done(weights != NULL, weights, i, p + i, length);
    }
}
