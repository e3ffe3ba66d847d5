/*
 * The backward of LayerNorm and RMSNorm on the GPU; formulas as in exec/operators/cpu_norm.c. See
 * norm_rows.cuh.
 *
 * A block of threads gets some rows, so that the sums for weight and bias come out of the
 * same pass: each thread adds to its own columns in shared memory. A second kernel adds
 * up the blocks. How many rows depends on the shape alone (mist_catalog_norm_blocks()),
 * and blocks are small enough for several on a multiprocessor: while one waits for a row,
 * others compute.
 */
#include "exec/cuda/norm_rows.cuh"

enum {
    BLOCK_THREADS = 256,      /* unless a row needs more */
    ROW_THREADS = 512,        /* at most for rows of up to 2 packs per thread */
    MAX_SUM_BYTES = 96 << 10, /* of shared memory: 8.6, 8.9 and 12.0 give 99 KiB */
    TILE_ROWS = 8,            /* sums of any rows: threads that share a column */
};

template <typename T> struct backward_args {
    T *dx;
    float *sums;                              /* [2, n_blocks, h]: weight, bias */
    const T *d_out, *d_residual, *x, *weight; /* d_residual may be NULL */
    const float *stats;
    float offset; /* added to every weight */
    bool is_layer, has_bias;
    int64_t rows, h, n_blocks, block_rows;
};

/* d_residual waits in memory: 64 registers, of which there are enough for 1024 threads,
 * have no room for it. */
template <typename T, int n_packs> struct held_row {
    mist_pack<T> d_out[n_packs], x[n_packs];
    float mean, rstd;
};

/* One thread's part; zeros, which add nothing to any sum, beyond the row and the rows. */
template <typename T, int n_packs>
static __device__ __forceinline__ void
hold_row(held_row<T, n_packs> *held, const backward_args<T> &at, int64_t row, bool is_row)
{
    int h_packs = is_row ? (int)(at.h / mist_pack<T>::n) : 0;

    held->mean = is_row ? at.stats[2 * row] : 0.0f;
    held->rstd = is_row ? at.stats[2 * row + 1] : 0.0f;
#pragma unroll
    for (int k = 0; k < n_packs; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        held->d_out[k] = held->x[k] = mist_pack<T>{};
        if (i >= h_packs)
            continue;
        held->d_out[k] = load_pack(at.d_out + row * at.h, i);
        held->x[k] = load_pack(at.x + row * at.h, i);
    }
}

/* The thread's share of the sums of g and of g xhat; adds to its columns' sums, which are
 * blockDim.x apart, those of the bias sum_stride behind those of the weight. */
template <typename T, int n_packs>
static __device__ __forceinline__ void
add_row(float shares[2], float *sums, int sum_stride, const held_row<T, n_packs> &held,
        const backward_args<T> &at)
{
    constexpr int n = mist_pack<T>::n;
    int h_packs = (int)(at.h / n);

    shares[0] = shares[1] = 0.0f;
#pragma unroll
    for (int k = 0; k < n_packs; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= h_packs)
            continue;
        mist_pack<T> weight = load_pack(at.weight, i);
#pragma unroll
        for (int e = 0; e < n; e++) {
            float d = mist_to_float(held.d_out[k].v[e]);
            float xhat = (mist_to_float(held.x[k].v[e]) - held.mean) * held.rstd;
            float g = (at.offset + mist_to_float(weight.v[e])) * d;
            float *sum = sums + (k * n + e) * (int)blockDim.x;
            shares[0] += g;
            shares[1] += g * xhat;
            sum[0] += d * xhat;
            if (at.has_bias)
                sum[sum_stride] += d;
        }
    }
}

template <typename T, int n_packs>
static __device__ __forceinline__ void store_dx(const held_row<T, n_packs> &held,
                                                const backward_args<T> &at, int64_t row,
                                                bool is_row, float mean_g, float mean_gx)
{
    int h_packs = is_row ? (int)(at.h / mist_pack<T>::n) : 0;

#pragma unroll
    for (int k = 0; k < n_packs; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= h_packs)
            continue;
        mist_pack<T> weight = load_pack(at.weight, i), d_residual = {}, dx;
        if (at.d_residual)
            d_residual = load_pack(at.d_residual + row * at.h, i);
#pragma unroll
        for (int e = 0; e < mist_pack<T>::n; e++) {
            float xhat = (mist_to_float(held.x[k].v[e]) - held.mean) * held.rstd;
            float g = (at.offset + mist_to_float(weight.v[e])) *
                      mist_to_float(held.d_out[k].v[e]);
            dx.v[e] = mist_from_float<T>(mist_to_float(d_residual.v[e]) +
                                         (g - mean_g - xhat * mean_gx) * held.rstd);
        }
        store_pack(at.dx + row * at.h, i, dx);
    }
}

/* Adds the sums of the block's groups in order and puts them into the workspace. */
template <typename T, int n_packs>
static __device__ __forceinline__ void store_sums(const float *sums, int sum_stride,
                                                  const backward_args<T> &at)
{
    constexpr int n = mist_pack<T>::n;
    int h_packs = (int)(at.h / n), n_threads = (int)blockDim.x * (int)blockDim.y;
    int n_sums = at.has_bias ? 2 : 1;

    for (int s = 0; s < n_sums; s++)
        for (int i = (int)(threadIdx.y * blockDim.x + threadIdx.x); i < h_packs;
             i += n_threads) {
            const float *first = sums + s * sum_stride +
                                 i / (int)blockDim.x * n * (int)blockDim.x +
                                 i % (int)blockDim.x;
            float *to =
                at.sums + ((int64_t)s * at.n_blocks + blockIdx.x) * at.h + (int64_t)i * n;
#pragma unroll
            for (int e = 0; e < n; e += 4) {
                mist_pack<float> total = {};
                for (int g = 0; g < (int)blockDim.y; g++)
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        total.v[c] +=
                            first[g * 2 * sum_stride + (e + c) * (int)blockDim.x];
                store_pack(to, e / 4, total);
            }
        }
}

/* Shared memory: [rows at a time, 2, n_packs * n, blockDim.x] floats. */
template <typename T, int n_packs>
static __global__ void
__launch_bounds__(n_packs *(int)sizeof(T) <= 8 ? ROW_THREADS : MAX_THREADS,
                  n_packs <= 2 ? 2 : 1) backward_held(backward_args<T> at)
{
    __shared__ float partial[2][2 * MAX_THREADS / WARP];
    MIST_CUDA_SHARED(memory);
    int sum_stride = n_packs * mist_pack<T>::n * (int)blockDim.x;
    float *sums =
        (float *)(void *)memory + (int)threadIdx.y * 2 * sum_stride + threadIdx.x;
    int64_t first = (int64_t)blockIdx.x * at.block_rows;
    int64_t end = first + at.block_rows < at.rows ? first + at.block_rows : at.rows;
    int parity = 0;

    for (int j = 0; j < 2 * n_packs * mist_pack<T>::n; j++)
        sums[j * (int)blockDim.x] = 0.0f;
    for (int64_t begin = first; begin < end; begin += blockDim.y) {
        int64_t row = begin + threadIdx.y;
        held_row<T, n_packs> held;
        float shares[2];
        hold_row(&held, at, row, row < end);
        add_row(shares, sums, sum_stride, held, at);
        row_sums<2>(shares, partial[parity]);
        store_dx(held, at, row, row < end, at.is_layer ? shares[0] / (float)at.h : 0.0f,
                 shares[1] / (float)at.h);
        parity ^= 1;
    }
    __syncthreads(); /* a block without rows has not waited for its zeros */
    store_sums<T, n_packs>((const float *)(const void *)memory, sum_stride, at);
}

/* ---------------------------------------------------------- the backward, for any row */

/* Sums of a block's rows, a thread for one column of TILE_ROWS-th part of the rows. */
template <typename T> static __global__ void sum_rows_any(backward_args<T> at)
{
    __shared__ float parts[2][TILE_ROWS][WARP];
    int64_t column = (int64_t)blockIdx.y * WARP + threadIdx.x;
    int64_t begin = (int64_t)blockIdx.x * at.block_rows;
    int64_t end = begin + at.block_rows < at.rows ? begin + at.block_rows : at.rows;
    float sums[2] = {0.0f, 0.0f};

    for (int64_t i = begin + threadIdx.y; column < at.h && i < end; i += TILE_ROWS) {
        float d = mist_to_float(at.d_out[i * at.h + column]);
        float x = mist_to_float(at.x[i * at.h + column]);
        sums[0] += d * ((x - at.stats[2 * i]) * at.stats[2 * i + 1]);
        sums[1] += d;
    }
    for (int s = 0; s < 2; s++)
        parts[s][threadIdx.y][threadIdx.x] = sums[s];
    __syncthreads();
    if (threadIdx.y >= (at.has_bias ? 2 : 1) || column >= at.h)
        return;
    float total = 0.0f;
    for (int t = 0; t < TILE_ROWS; t++)
        total += parts[threadIdx.y][t][threadIdx.x];
    at.sums[((int64_t)threadIdx.y * at.n_blocks + blockIdx.x) * at.h + column] = total;
}

template <typename T> static __global__ void dx_any(backward_args<T> at)
{
    __shared__ float partial[2 * ANY_THREADS / WARP];
    int64_t row = blockIdx.x, begin = row * at.h;
    float mean = at.stats[2 * row], rstd = at.stats[2 * row + 1];
    float sums[2] = {0.0f, 0.0f};

    for (int64_t j = threadIdx.x; j < at.h; j += blockDim.x) {
        float g = (at.offset + mist_to_float(at.weight[j])) *
                  mist_to_float(at.d_out[begin + j]);
        sums[0] += g;
        sums[1] += g * ((mist_to_float(at.x[begin + j]) - mean) * rstd);
    }
    row_sums<2>(sums, partial);
    float mean_g = at.is_layer ? sums[0] / (float)at.h : 0.0f;
    float mean_gx = sums[1] / (float)at.h;
    for (int64_t j = threadIdx.x; j < at.h; j += blockDim.x) {
        float g = (at.offset + mist_to_float(at.weight[j])) *
                  mist_to_float(at.d_out[begin + j]);
        float xhat = (mist_to_float(at.x[begin + j]) - mean) * rstd;
        float residual = at.d_residual ? mist_to_float(at.d_residual[begin + j]) : 0.0f;
        at.dx[begin + j] =
            mist_from_float<T>(residual + (g - mean_g - xhat * mean_gx) * rstd);
    }
}

/* ------------------------------------------------------- the second stage, and launch */

template <typename T>
static void launch_any(mist_cuda_stream stream, const backward_args<T> &at)
{
    MIST_CUDA_LAUNCH((sum_rows_any<T>),
                     dim3((unsigned)at.n_blocks, (unsigned)((at.h + WARP - 1) / WARP)),
                     dim3(WARP, TILE_ROWS), 0, stream, at);
    MIST_CUDA_LAUNCH((dx_any<T>), dim3((unsigned)at.rows), dim3(ANY_THREADS), 0, stream,
                     at);
}

/* Falls back on launch_any() where the sums are more than shared memory holds. */
template <typename T, int n_packs>
static void launch_held(mist_cuda_stream stream, const backward_args<T> &at)
{
    int threads = row_threads(at.h / mist_pack<T>::n, n_packs);
    int n_rows = threads < BLOCK_THREADS ? BLOCK_THREADS / threads : 1;
    int bytes = 2 * n_rows * n_packs * mist_pack<T>::n * threads * (int)sizeof(float);

    if (bytes > MAX_SUM_BYTES) {
        launch_any(stream, at);
        return;
    }
    MIST_CUDA_ALLOW_SHARED((backward_held<T, n_packs>), bytes);
    MIST_CUDA_LAUNCH((backward_held<T, n_packs>), dim3((unsigned)at.n_blocks),
                     dim3((unsigned)threads, (unsigned)n_rows), (size_t)bytes, stream,
                     at);
}

template <typename T, typename G>
static void launch_backward(mist_cuda_stream stream, const backward_args<T> &at,
                            G *dweight, G *dbias, bool overwrites)
{
    int64_t h_packs = at.h / mist_pack<T>::n;
    bool is_whole =
        at.h % mist_pack<T>::n == 0 &&
        mist_are_aligned(at.dx, at.sums, at.d_out, at.d_residual, at.x, at.weight);

    if (!is_whole || h_packs > 4 * MAX_THREADS)
        launch_any(stream, at);
    else if (h_packs <= WARP)
        launch_held<T, 1>(stream, at);
    else if (h_packs <= 2 * ROW_THREADS)
        launch_held<T, 2>(stream, at);
    else
        launch_held<T, 4>(stream, at);
    launch_add_blocks(stream, dweight, dbias, at.sums, at.n_blocks, at.h, overwrites);
}

void mist_cuda_norm_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                             enum mist_dtype gradient_dtype, enum mist_cpu_norm_kind kind,
                             void *dx, void *dweight, void *dbias, const void *d_out,
                             const void *d_residual, const void *x, const float *stats,
                             const void *weight, int64_t rows, int64_t h, void *workspace,
                             bool overwrites)
{
    int64_t n_blocks = mist_catalog_norm_blocks(rows);

    if (rows <= 0 || h <= 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        const backward_args<T> at = {(T *)dx, (float *)workspace, (const T *)d_out,
                                     (const T *)d_residual, (const T *)x,
                                     (const T *)weight, stats, mist_cpu_norm_offset(kind),
                                     mist_cpu_norm_is_centred(kind), dbias != NULL, rows,
                                     h, n_blocks, (rows + n_blocks - 1) / n_blocks};
        MIST_CUDA_BY_DTYPE(
            gradient_dtype, G,
            launch_backward(stream, at, (G *)dweight, (G *)dbias, overwrites)));
}
