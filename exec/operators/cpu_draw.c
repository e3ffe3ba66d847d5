/*
 * Normal draws into flat arrays: each element on its own, so that neither threads nor the
 * parts that a parameter is cut into change a bit (core/random_draw.h).
 */
#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_internal.h"
#include "exec/operators/cpu_kernels.h"

#include "core/random_draw.h"

#include <math.h> /* sqrt */

enum { BLOCK = 1024 };

/* Draws first .. first + n - 1 of a key. */
MIST_CPU_CLONES static void draw_block_clones(float *out, uint64_t key, uint64_t first,
                                              int64_t n, double mean, double deviation)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        struct mist_draw_polar polar = mist_draw_polar_at(key, first + (uint64_t)i);
        out[i] = (float)(mean + deviation * (sqrt(polar.square) * polar.cosine));
    }
}

/* Elements first .. first + n - 1 of a run; x is fp32, or bf16 rounded from it. */
static void draw_block(void *x, bool is_bf16, int64_t i_run, int64_t first, int64_t n,
                       const struct mist_draw *draw)
{
    float values[BLOCK];
    int64_t at = i_run * draw->run_length + first;

    draw_block_clones(is_bf16 ? values : (float *)x + at,
                      mist_draw_key(draw->seed, draw->stream),
                      (uint64_t)(draw->first + i_run * draw->run_stride + first), n,
                      draw->mean, draw->deviation);
    if (is_bf16)
        mist_cpu_bf16_from_float((mist_bf16 *)x + at, values, n);
}

void mist_cpu_draw(void *x, bool is_bf16, const struct mist_draw *draw, int n_threads)
{
    int64_t length = draw->run_length, n_blocks = (length + BLOCK - 1) / BLOCK;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < draw->n_runs * n_blocks; i++) {
        int64_t first = i % n_blocks * BLOCK;
        draw_block(x, is_bf16, i / n_blocks, first,
                   length - first < BLOCK ? length - first : BLOCK, draw);
    }
}
