/*
 * What norms on the GPU share: a row is read once and stays in the
 * registers of its threads, n_packs packs of 16 bytes each, in the number format it came
 * in. Threads of one row are blockDim.x, rows at a time blockDim.y.
 *
 * Rows that are not made of whole packs, or too long to be held, take kernels that read
 * them again from the cache, element by element.
 */
#ifndef MIST_EXEC_CUDA_NORM_ROWS_CUH
#define MIST_EXEC_CUDA_NORM_ROWS_CUH

#include "exec/cuda/launch.cuh"

enum {
    WARP = 32,
    MAX_THREADS = 1024,
    ANY_THREADS = 256, /* of the kernels for any row */
    ADD_PARTS = 16,    /* threads that share a column's blocks */
};

/* ---------------------------------------------------------------------- sums of a row */

/*
 * Sums over the threads of a row, which all of them get. Every thread of the block must
 * come; partial: n per warp, which may be written again once everyone has passed another
 * __syncthreads().
 */
template <int n>
static __device__ __forceinline__ void row_sums(float values[n], float *partial)
{
    int n_warps = (int)blockDim.x / WARP;
    float *mine = partial + (int)threadIdx.y * n_warps * n;

#pragma unroll
    for (int i = 0; i < n; i++) {
        values[i] = mist_warp_sum(values[i]);
        if (threadIdx.x % WARP == 0)
            mine[(int)threadIdx.x / WARP * n + i] = values[i];
        values[i] = 0.0f;
    }
    __syncthreads();
    for (int w = 0; w < n_warps; w++)
#pragma unroll
        for (int i = 0; i < n; i++)
            values[i] += mine[w * n + i];
}

static __device__ __forceinline__ float row_sum(float value, float *partial)
{
    row_sums<1>(&value, partial);
    return value;
}

template <typename T>
static __device__ __forceinline__ mist_pack<T> load_pack(const T *x, int i_pack)
{
    return ((const mist_pack<T> *)(const void *)x)[i_pack];
}

template <typename T>
static __device__ __forceinline__ void store_pack(T *x, int i_pack,
                                                  const mist_pack<T> &pack)
{
    ((mist_pack<T> *)(void *)x)[i_pack] = pack;
}

/* ----------------------------------------------------------------------------- launch */

/* Threads of a row of h_packs packs, n_packs for each. */
static inline int row_threads(int64_t h_packs, int n_packs)
{
    return (int)mist_ceil_div(h_packs, (int64_t)WARP * n_packs) * WARP;
}

/* ------------------------------------------------ the second stage of weights' sums */

/* dweight (blockIdx.y 0) or dbias (1) += (overwrites: =) the sums of all blocks:
 * ADD_PARTS runs of blocks, each in order, then the runs in order. */
template <typename G>
static __global__ void add_blocks(G *dweight, G *dbias, const float *sums,
                                  int64_t n_blocks, int64_t h, bool overwrites)
{
    __shared__ float parts[ADD_PARTS][WARP];
    int64_t column = (int64_t)blockIdx.x * WARP + threadIdx.x;
    int64_t length = (n_blocks + ADD_PARTS - 1) / ADD_PARTS;
    int64_t begin = (int64_t)threadIdx.y * length;
    int64_t end = begin + length < n_blocks ? begin + length : n_blocks;
    float total = 0.0f;

    if (column < h) {
        const float *from = sums + (int64_t)blockIdx.y * n_blocks * h + column;
#pragma unroll 8
        for (int64_t t = begin; t < end; t++)
            total += from[t * h];
    }
    parts[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y > 0 || column >= h)
        return;
    total = 0.0f;
    for (int t = 0; t < ADD_PARTS; t++)
        total += parts[t][threadIdx.x];
    G *to = (blockIdx.y == 0 ? dweight : dbias) + column;
    *to = mist_from_float<G>(overwrites ? total : mist_to_float(*to) + total);
}

/* dbias NULL: none. */
template <typename G>
static void launch_add_blocks(mist_cuda_stream stream, G *dweight, G *dbias,
                              const float *sums, int64_t n_blocks, int64_t h,
                              bool overwrites)
{
    MIST_CUDA_LAUNCH(
        (add_blocks<G>), dim3((unsigned)((h + WARP - 1) / WARP), dbias ? 2 : 1),
        dim3(WARP, ADD_PARTS), 0, stream, dweight, dbias, sums, n_blocks, h, overwrites);
}

#endif
