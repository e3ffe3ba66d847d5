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

/* So small that what is to be rounded is still in the first cache. */
enum { PIECE = 512 };

MIST_CPU_CLONES static void update_piece(float *p, float *m, float *v, const float *g,
                                         int64_t n, const struct mist_cpu_adamw *config)
{
    const struct mist_cpu_adamw c = *config;
    float fresh1 = 1.0f - c.beta1, fresh2 = 1.0f - c.beta2;
    float inverse1 = 1.0f / c.correction1, inverse2 = 1.0f / c.correction2;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        float gradient = g[i] * c.grad_scale;
        m[i] = c.beta1 * m[i] + fresh1 * gradient;
        v[i] = c.beta2 * v[i] + fresh2 * (gradient * gradient);
        float update = m[i] * inverse1 / (sqrtf(v[i] * inverse2) + c.eps);
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
