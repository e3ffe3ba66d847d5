/*
 * Initial parameters, drawn where they will be: the arithmetic of core/random_draw.h,
 * each operation correctly rounded and none contracted, so the bits are the CPU's. A
 * block of threads takes a tile of a run.
 */
#define MIST_DRAW_INLINE    static __device__ __forceinline__
#define MIST_DRAW_ADD(a, b) __dadd_rn(a, b)
#define MIST_DRAW_MUL(a, b) __dmul_rn(a, b)
#define MIST_DRAW_DIV(a, b) __ddiv_rn(a, b)
#include "exec/cuda/launch.cuh"

#include "core/random_draw.h"
#include "exec/operators/cpu_kernels.h" /* struct mist_draw */

enum { DRAW_THREADS = 256, DRAW_TILE = 1024 };

template <typename T>
static __global__ void __launch_bounds__(DRAW_THREADS)
    draw_tiles(T *x, struct mist_draw draw, int64_t n_tiles)
{
    int64_t run = blockIdx.x / n_tiles, begin = blockIdx.x % n_tiles * DRAW_TILE;
    int64_t rest = draw.run_length - begin;
    int n = rest < DRAW_TILE ? (int)rest : (int)DRAW_TILE;
    uint64_t key = mist_draw_key(draw.seed, draw.stream);
    uint64_t first = (uint64_t)(draw.first + run * draw.run_stride + begin);
    T *out = x + run * draw.run_length + begin;

    for (int i = (int)threadIdx.x; i < n; i += DRAW_THREADS) {
        struct mist_draw_polar polar = mist_draw_polar_at(key, first + (uint64_t)i);
        double normal = __dmul_rn(__dsqrt_rn(polar.square), polar.cosine);
        out[i] = mist_from_float<T>(
            (float)__dadd_rn(draw.mean, __dmul_rn(draw.deviation, normal)));
    }
}

void mist_cuda_draw(mist_cuda_stream stream, enum mist_dtype dtype, void *x,
                    const struct mist_draw *draw)
{
    int64_t n_tiles = (draw->run_length + DRAW_TILE - 1) / DRAW_TILE;
    dim3 blocks((unsigned)(draw->n_runs * n_tiles));

    if (draw->n_runs * n_tiles > 0)
        MIST_CUDA_BY_DTYPE(dtype, T,
                           MIST_CUDA_LAUNCH((draw_tiles<T>), blocks, dim3(DRAW_THREADS),
                                            0, stream, (T *)x, *draw, n_tiles));
}
