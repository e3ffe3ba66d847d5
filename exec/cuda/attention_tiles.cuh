/*
 * Tiles of attention in shared memory, and the products a block of threads makes of them.
 *
 * A tile holds rows of head_dim numbers as fp32. A block of threads keeps one or two
 * tiles of n_rows rows and walks tiles of n_columns rows of the other side; between them
 * it makes n_rows x n_columns scores. A thread has 4 rows and every 16th column of the
 * scores, and 4 rows and head_dim / 16 columns of each result, all in registers; half a
 * warp shares its rows, so that what it writes to the tile of scores it alone reads.
 *
 * For head_dim up to 32, 64, 128 and 256; what is missing in between is zeros in shared
 * memory. More than 48 KiB of that: launches have to ask (MIST_CUDA_ALLOW_SHARED).
 */
#ifndef MIST_EXEC_CUDA_ATTENTION_TILES_CUH
#define MIST_EXEC_CUDA_ATTENTION_TILES_CUH

#include "exec/cuda/launch.cuh"

#include <math.h>

namespace
{

constexpr unsigned ALL_LANES = 0xFFFFFFFFu;
constexpr int LANES = 16;  /* threads that share rows: half a warp */
constexpr int PER_ROW = 4; /* rows of a thread: i_row + n_row_threads * 0 .. 3 */
constexpr int FREE_SHARED_BYTES = 48 * 1024; /* of which no launch has to ask */

/* The sizes for head_dim up to D. */
template <int D> struct tiles {
    static constexpr int n_rows = D <= 128 ? 64 : 32;                   /* held */
    static constexpr int n_columns = D <= 64 ? 64 : D <= 128 ? 32 : 16; /* walked */
    static constexpr int n_row_threads = n_rows / PER_ROW;
    static constexpr int n_threads = n_row_threads * LANES;
    static constexpr int per_column = n_columns / LANES;
    /* Floats between rows in shared memory: 4 more than a multiple of 16 keeps vectors of
     * neighbouring rows in different banks. */
    static constexpr int stride = D + 4;
    static constexpr int score_stride = n_columns + 4;
    static constexpr int row_floats = n_rows * stride;
    static constexpr int column_floats = n_columns * stride;
    static constexpr int score_floats = n_rows * score_stride;
    /* A thread's columns of a result: vectors of width floats, LANES * width apart. */
    static constexpr int width = D >= 64 ? 4 : 2;
    static constexpr int n_vectors = D / (LANES * width);
    static constexpr int forward_bytes =
        (row_floats + column_floats + score_floats) * (int)sizeof(float);
    static constexpr int queries_bytes =
        (2 * row_floats + column_floats + score_floats) * (int)sizeof(float);
    static constexpr int keys_bytes =
        (2 * row_floats + 2 * column_floats + score_floats) * (int)sizeof(float);
};

struct shape {
    int token;     /* elements of a token of qkv */
    int out_token; /* elements of a token of out */
    int s, heads, kv_heads, head_dim;
    int n_tiles; /* tiles of rows in a sequence */
    float scale; /* 1 / sqrt(head_dim) */
};

template <typename T, int N> struct alignas(N * sizeof(T)) vector {
    T v[N];
};

/* ------------------------------------------------------------------------------ tiles */

/*
 * tile[n_rows, D + 4] = n_valid rows of head_dim elements, stride apart, the rest zeros.
 * Rows begin at multiples of head_dim elements from something aligned to 16 bytes.
 */
template <typename T, int D, int N_ROWS>
__device__ __forceinline__ void load_tile(float *tile, const T *from, int stride,
                                          int n_valid, int head_dim)
{
    constexpr int n = mist_pack<T>::n, n_packs = D / n;
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < N_ROWS * n_packs; i += tiles<D>::n_threads) {
        int row = i / n_packs, column = i % n_packs * n;
        const T *source = from + row * stride + column;
        float value[n];
        if (row >= n_valid || column >= head_dim) {
#pragma unroll
            for (int j = 0; j < n; j++)
                value[j] = 0.0f;
        } else if (head_dim % n == 0) {
            const uint4 bits = *(const uint4 *)source;
            mist_pack<T> pack;
            memcpy(&pack, &bits, sizeof pack);
#pragma unroll
            for (int j = 0; j < n; j++)
                value[j] = mist_to_float(pack.v[j]);
        } else {
#pragma unroll
            for (int j = 0; j < n; j++)
                value[j] = column + j < head_dim ? mist_to_float(source[j]) : 0.0f;
        }
        float *to = tile + row * tiles<D>::stride + column;
#pragma unroll
        for (int j = 0; j < n; j += 4)
            *(float4 *)(to + j) =
                make_float4(value[j], value[j + 1], value[j + 2], value[j + 3]);
    }
}

/* out[i][j] = dot of row i_row + n_row_threads i of rows and row lane + LANES j of
 * columns, both [.., D + 4] in shared memory. */
template <int D>
__device__ __forceinline__ void multiply_rows(float (&out)[PER_ROW][tiles<D>::per_column],
                                              const float *rows, const float *columns,
                                              int i_row, int lane, int head_dim)
{
    constexpr int stride = tiles<D>::stride, per_column = tiles<D>::per_column;
    rows += i_row * stride;
    columns += lane * stride;
#pragma unroll
    for (int i = 0; i < PER_ROW; i++)
#pragma unroll
        for (int j = 0; j < per_column; j++)
            out[i][j] = 0.0f;
#pragma unroll 1
    for (int k = 0; k < head_dim; k += 4) {
        float4 a[PER_ROW];
#pragma unroll
        for (int i = 0; i < PER_ROW; i++)
            a[i] = *(const float4 *)(rows + i * tiles<D>::n_row_threads * stride + k);
#pragma unroll
        for (int j = 0; j < per_column; j++) {
            const float4 b = *(const float4 *)(columns + j * LANES * stride + k);
#pragma unroll
            for (int i = 0; i < PER_ROW; i++) {
                out[i][j] += a[i].x * b.x;
                out[i][j] += a[i].y * b.y;
                out[i][j] += a[i].z * b.z;
                out[i][j] += a[i].w * b.w;
            }
        }
    }
}

/* A thread's part of a result [n_rows, D]. */
template <int D> struct result {
    float v[PER_ROW][tiles<D>::n_vectors][tiles<D>::width];
};

template <int D> __device__ __forceinline__ void clear_result(result<D> &sum)
{
#pragma unroll
    for (int i = 0; i < PER_ROW; i++)
#pragma unroll
        for (int c = 0; c < tiles<D>::n_vectors; c++)
#pragma unroll
            for (int e = 0; e < tiles<D>::width; e++)
                sum.v[i][c][e] = 0.0f;
}

/* sum.v[i][c] += weight b[c], vectors of a row of columns */
template <int D>
__device__ __forceinline__ void add_row(result<D> &sum, const float (&weight)[PER_ROW],
                                        const float *row, int lane)
{
    constexpr int width = tiles<D>::width;
#pragma unroll
    for (int c = 0; c < tiles<D>::n_vectors; c++) {
        const vector<float, width> b =
            *(const vector<float, width> *)(row + (c * LANES + lane) * width);
#pragma unroll
        for (int i = 0; i < PER_ROW; i++)
#pragma unroll
            for (int e = 0; e < width; e++)
                sum.v[i][c][e] += weight[i] * b.v[e];
    }
}

/* sum += scores[n_rows, n_columns] columns[n_columns, D] */
template <int D>
__device__ __forceinline__ void add_product(result<D> &sum, const float *scores,
                                            const float *columns, int i_row, int lane)
{
    constexpr int stride = tiles<D>::stride, score_stride = tiles<D>::score_stride;
    scores += i_row * score_stride;
#pragma unroll 1
    for (int k = 0; k < tiles<D>::n_columns; k += 4) {
        float4 p[PER_ROW];
#pragma unroll
        for (int i = 0; i < PER_ROW; i++)
            p[i] = *(const float4 *)(scores + i * tiles<D>::n_row_threads * score_stride +
                                     k);
        const float *row = columns + k * stride;
        add_row<D>(sum, {p[0].x, p[1].x, p[2].x, p[3].x}, row, lane);
        add_row<D>(sum, {p[0].y, p[1].y, p[2].y, p[3].y}, row + stride, lane);
        add_row<D>(sum, {p[0].z, p[1].z, p[2].z, p[3].z}, row + 2 * stride, lane);
        add_row<D>(sum, {p[0].w, p[1].w, p[2].w, p[3].w}, row + 3 * stride, lane);
    }
}

/* Leaves a thread's part of the tile of scores for the half warp of its rows. */
template <int D>
__device__ __forceinline__ void
store_scores(float *scores, const float (&values)[PER_ROW][tiles<D>::per_column],
             int i_row, int lane)
{
    constexpr int score_stride = tiles<D>::score_stride;
    __syncwarp(); /* all have read what was there */
#pragma unroll
    for (int i = 0; i < PER_ROW; i++)
#pragma unroll
        for (int j = 0; j < tiles<D>::per_column; j++)
            scores[(i_row + i * tiles<D>::n_row_threads) * score_stride + lane +
                   j * LANES] = values[i][j];
    __syncwarp();
}

/* to[n_valid rows, stride apart][head_dim] = factor[i] sum */
template <typename T, int D>
__device__ __forceinline__ void store_result(T *to, int stride, const result<D> &sum,
                                             const float (&factor)[PER_ROW], int i_row,
                                             int lane, int n_valid, int head_dim)
{
    constexpr int width = tiles<D>::width;
#pragma unroll
    for (int i = 0; i < PER_ROW; i++) {
        int row = i_row + i * tiles<D>::n_row_threads;
        if (row >= n_valid)
            continue;
#pragma unroll
        for (int c = 0; c < tiles<D>::n_vectors; c++) {
            int column = (c * LANES + lane) * width;
            T *at = to + row * stride + column;
            vector<T, width> values;
#pragma unroll
            for (int e = 0; e < width; e++)
                values.v[e] = mist_from_float<T>(factor[i] * sum.v[i][c][e]);
            if (head_dim % width == 0) {
                if (column < head_dim)
                    *(vector<T, width> *)at = values;
            } else {
#pragma unroll
                for (int e = 0; e < width; e++)
                    if (column + e < head_dim)
                        at[e] = values.v[e];
            }
        }
    }
}

/* Over the half warp that shares rows; all lanes get the result. */
__device__ __forceinline__ float sum_lanes(float x)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, mask);
    return x;
}

__device__ __forceinline__ float max_lanes(float x)
{
#pragma unroll
    for (int mask = LANES / 2; mask > 0; mask /= 2)
        x = fmaxf(x, __shfl_xor_sync(ALL_LANES, x, mask));
    return x;
}

} // namespace

#endif
