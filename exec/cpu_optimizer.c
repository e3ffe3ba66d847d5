/*
 * AdamW over flat arrays: each element on its own, so that neither threads nor shards
 * change a bit of the result.
 */
#include "exec/cpu_internal.h"
#include "exec/cpu_kernels.h"

#include <math.h> /* sqrtf */
#if defined(__SSE2__)
#include <emmintrin.h> /* _mm_sqrt_ps */
#endif

enum { CHUNK = 8192, PIECE = 512 };

/*
 * Correctly rounded square roots (a GPU's AdamW must agree). Intrinsics, because sqrtf()
 * may set errno and so keeps a loop scalar; four at a time already hide behind the memory
 * traffic.
 */
MIST_CPU_INLINE void take_roots(float *x, int64_t n)
{
    int64_t i = 0;
#if defined(__SSE2__)
    for (; i + 4 <= n; i += 4)
        _mm_storeu_ps(x + i, _mm_sqrt_ps(_mm_loadu_ps(x + i)));
#endif
    for (; i < n; i++)
        x[i] = sqrtf(x[i]);
}

MIST_CPU_CLONES static void adamw_chunk_clones(float *p, float *m, float *v,
                                               const float *g, int64_t n,
                                               const struct mist_cpu_adamw *config)
{
    const struct mist_cpu_adamw c = *config;
    float fresh1 = 1.0f - c.beta1, fresh2 = 1.0f - c.beta2;
    float inverse1 = 1.0f / c.correction1, inverse2 = 1.0f / c.correction2;
    float root[PIECE];
    for (int64_t begin = 0; begin < n; begin += PIECE) {
        int64_t length = n - begin < PIECE ? n - begin : PIECE;
#pragma omp simd
        for (int64_t i = 0; i < length; i++) {
            float gradient = g[i + begin] * c.grad_scale;
            m[i + begin] = c.beta1 * m[i + begin] + fresh1 * gradient;
            v[i + begin] = c.beta2 * v[i + begin] + fresh2 * (gradient * gradient);
            root[i] = v[i + begin] * inverse2;
        }
        take_roots(root, length);
#pragma omp simd
        for (int64_t i = 0; i < length; i++) {
            float update = m[i + begin] * inverse1 / (root[i] + c.eps);
            p[i + begin] -= c.lr * (update + c.weight_decay * p[i + begin]);
        }
    }
}

void mist_cpu_adamw_chunk(float *p, float *m, float *v, const float *g, int64_t n,
                          const struct mist_cpu_adamw *config)
{
    adamw_chunk_clones(p, m, v, g, n, config);
}

void mist_cpu_adamw_step(float *p, float *m, float *v, const float *g, int64_t n,
                         const struct mist_cpu_adamw *config, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        mist_cpu_adamw_chunk(p + i, m + i, v + i, g + i, n - i < CHUNK ? n - i : CHUNK,
                             config);
}
