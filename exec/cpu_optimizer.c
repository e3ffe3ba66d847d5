/*
 * AdamW and the sum of squares behind the gradient norm.
 *
 * Both cut the flat arrays into blocks of a fixed length, so that neither threads nor
 * shards change a bit of the result.
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

MIST_CPU_CLONES static void adamw_chunk(float *p, float *m, float *v, const float *g,
                                        int64_t n, const struct mist_cpu_adamw *config)
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

void mist_cpu_adamw_step(float *p, float *m, float *v, const float *g, int64_t n,
                         const struct mist_cpu_adamw *config, int n_threads)
{
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n; i += CHUNK)
        adamw_chunk(p + i, m + i, v + i, g + i, n - i < CHUNK ? n - i : CHUNK, config);
}

typedef double f8 __attribute__((vector_size(64)));
typedef float half_f8 __attribute__((vector_size(32), aligned(4), may_alias));

/* Element i goes to lane i mod 32; the lanes are added as a tree. */
MIST_CPU_CLONES static double sum_squares_block(const float *x, int64_t n)
{
    f8 acc[4] = {{0}, {0}, {0}, {0}};
    double lane[MIST_CPU_LANES];
    int64_t i = 0;
    for (; i + MIST_CPU_LANES <= n; i += MIST_CPU_LANES)
        for (int part = 0; part < 4; part++) {
            f8 value = __builtin_convertvector(
                *(const half_f8 *)(const void *)(x + i + 8 * part), f8);
            acc[part] += value * value;
        }
    /* The sizes are equal; cppcheck does not know vector types. */
    /* cppcheck-suppress bufferAccessOutOfBounds */
    memcpy(lane, acc, sizeof lane);
    for (int64_t j = i; j < n; j++)
        lane[j - i] += (double)x[j] * (double)x[j];
    for (int w = MIST_CPU_LANES / 2; w > 0; w /= 2)
        for (int l = 0; l < w; l++)
            lane[l] += lane[l + w];
    return lane[0];
}

double mist_cpu_sum_squares(const float *x, int64_t n, double *block_sums, int n_threads)
{
    int64_t n_blocks = mist_cpu_sum_squares_n_blocks(n);
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t t = 0; t < n_blocks; t++) {
        int64_t i = t * MIST_CPU_SUM_BLOCK;
        block_sums[t] = sum_squares_block(
            x + i, n - i < MIST_CPU_SUM_BLOCK ? n - i : MIST_CPU_SUM_BLOCK);
    }
    double sum = 0.0;
    for (int64_t t = 0; t < n_blocks; t++)
        sum += block_sums[t];
    return sum;
}
