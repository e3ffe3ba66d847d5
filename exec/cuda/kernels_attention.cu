/*
 * Causal attention over packed projections, tile by tile (attention_tiles.cuh).
 *
 * Query rows walk keys for out and dq, key rows walk queries (of all heads of the group,
 * in order) for dk and dv. Tiles on the far side of the diagonal are never touched. The
 * forward keeps each row's maximum and sum while it goes (online softmax: Dao et al.
 * 2022, algorithm 1); the backward takes the probabilities P = exp(scale Q K^T - lse)
 * anew (appendix B.2):
 *
 *     delta_i = dot(d_out_i, out_i),   dS = P * (d_out V^T - delta)
 *     dQ = scale dS K,   dK = scale dS^T Q,   dV = P^T d_out
 *
 * No sum is split between blocks: the bits are the same every time. Left out: tensor
 * cores, copies that overlap with products, and more blocks for dk and dv where few
 * key-value heads and a short s leave processors idle.
 */
#include "exec/cuda/attention_tiles.cuh"
#include "exec/cuda/kernels.h"

#include <math.h>

namespace
{

/* Which rows of which head a block has. */
struct place {
    int64_t i_head; /* of all sequences' heads, key-value heads for dk and dv */
    int64_t first;  /* token of its sequence */
    int head;       /* in its sequence */
    int row0, n_valid;
    int i_row, lane; /* the thread's first row and column in a tile of scores */
};

/* Blocks run through the heads before they take the next tile; is_last_first: beginning
 * with the last, which has most to do where rows are queries. */
template <int D>
__device__ __forceinline__ place place_of(const shape &at, int heads, unsigned n_heads,
                                          bool is_last_first)
{
    const unsigned i_head = blockIdx.x % n_heads;
    const int i_tile = (int)(blockIdx.x / n_heads);
    const int row0 =
        (is_last_first ? at.n_tiles - 1 - i_tile : i_tile) * tiles<D>::n_rows;
    return {(int64_t)i_head,
            (int64_t)(i_head / (unsigned)heads) * at.s,
            (int)(i_head % (unsigned)heads),
            row0,
            min(tiles<D>::n_rows, at.s - row0),
            (int)threadIdx.x / LANES,
            (int)threadIdx.x % LANES};
}

/* Where the key head of a query head begins in a token; its value head comes kv_heads
 * later. */
__device__ __forceinline__ int key_offset(const shape &at, int head)
{
    return (at.heads + head / (at.heads / at.kv_heads)) * at.head_dim;
}

/* ---------------------------------------------------------------------------- forward */

/*
 * scores [rows i0 .., columns j0 ..] become exp(scale score - maximum), 0 after the
 * diagonal; maximum and sum of each row are brought up to date, and what was summed
 * before is scaled down to the new maximum.
 */
template <int D>
__device__ __forceinline__ void
exp_scores(float (&scores)[PER_ROW][tiles<D>::per_column], float (&maximum)[PER_ROW],
           float (&sum)[PER_ROW], result<D> &out, float scale, int i0, int j0)
{
#pragma unroll
    for (int i = 0; i < PER_ROW; i++) {
        int row = i0 + i * tiles<D>::n_row_threads;
        float top = -INFINITY, total = 0.0f;
#pragma unroll
        for (int j = 0; j < tiles<D>::per_column; j++) {
            scores[i][j] = j0 + j * LANES <= row ? scale * scores[i][j] : -INFINITY;
            top = fmaxf(top, scores[i][j]);
        }
        top = fmaxf(maximum[i], max_lanes(top));
#pragma unroll
        for (int j = 0; j < tiles<D>::per_column; j++) {
            scores[i][j] = expf(scores[i][j] - top);
            total += scores[i][j];
        }
        /* The first tile has column 0, which every row sees: top is finite from then
         * on.*/
        float shrink = expf(maximum[i] - top);
        sum[i] = sum[i] * shrink + sum_lanes(total);
        maximum[i] = top;
#pragma unroll
        for (int c = 0; c < tiles<D>::n_vectors; c++)
#pragma unroll
            for (int e = 0; e < tiles<D>::width; e++)
                out.v[i][c][e] *= shrink;
    }
}

/* out and lse of one tile of queries of one head. */
template <typename T, int D>
__global__ void __launch_bounds__(tiles<D>::n_threads, 2)
    forward(T *__restrict__ out, float *__restrict__ lse, const T *__restrict__ qkv,
            shape at, unsigned n_heads)
{
    using tile = tiles<D>;
    MIST_CUDA_SHARED(shared);
    float *const q_tile = (float *)shared, *const kv_tile = q_tile + tile::row_floats;
    float *const scores_tile = kv_tile + tile::column_floats;
    const place my = place_of<D>(at, at.heads, n_heads, true);
    const int d = at.head_dim, v_offset = at.kv_heads * d;
    const T *const k = qkv + my.first * at.token + key_offset(at, my.head);
    const T *const q = qkv + (my.first + my.row0) * at.token + my.head * d;
    result<D> sum;
    float maximum[PER_ROW], total[PER_ROW], scores[PER_ROW][tile::per_column];

    load_tile<T, D, tile::n_rows>(q_tile, q, at.token, my.n_valid, d);
    clear_result<D>(sum);
#pragma unroll
    for (int i = 0; i < PER_ROW; i++) {
        maximum[i] = -INFINITY;
        total[i] = 0.0f;
    }
    for (int j0 = 0; j0 < my.row0 + my.n_valid; j0 += tile::n_columns) {
        const T *from = k + (int64_t)j0 * at.token;
        __syncthreads();
        load_tile<T, D, tile::n_columns>(kv_tile, from, at.token, at.s - j0, d);
        __syncthreads();
        multiply_rows<D>(scores, q_tile, kv_tile, my.i_row, my.lane, d);
        __syncthreads();
        load_tile<T, D, tile::n_columns>(kv_tile, from + v_offset, at.token, at.s - j0,
                                         d);
        exp_scores<D>(scores, maximum, total, sum, at.scale, my.row0 + my.i_row,
                      j0 + my.lane);
        store_scores<D>(scores_tile, scores, my.i_row, my.lane);
        __syncthreads();
        add_product<D>(sum, scores_tile, kv_tile, my.i_row, my.lane);
    }

    float factor[PER_ROW];
#pragma unroll
    for (int i = 0; i < PER_ROW; i++) {
        int row = my.i_row + i * tile::n_row_threads;
        factor[i] = 1.0f / total[i];
        if (my.lane == 0 && row < my.n_valid)
            lse[my.i_head * at.s + my.row0 + row] = maximum[i] + logf(total[i]);
    }
    store_result<T, D>(out + (my.first + my.row0) * at.out_token + my.head * d,
                       at.out_token, sum, factor, my.i_row, my.lane, my.n_valid, d);
}

/* ----------------------------------------------------------------------- backward: dq */

/* delta[i] = dot(d_out, out) of a thread's rows; out comes in parts through columns. */
template <typename T, int D>
__device__ __forceinline__ void sum_rows(float (&delta)[PER_ROW], const float *d_out_tile,
                                         float *part, const T *out, const shape &at,
                                         int i_row, int lane, int n_valid)
{
    using tile = tiles<D>;
    constexpr int per_part = tile::n_columns / tile::n_row_threads;
#pragma unroll
    for (int i0 = 0; i0 < PER_ROW; i0 += per_part) {
        const int first = i0 * tile::n_row_threads;
        __syncthreads();
        load_tile<T, D, tile::n_columns>(part, out + first * at.out_token, at.out_token,
                                         n_valid - first, at.head_dim);
        __syncthreads();
#pragma unroll
        for (int i = i0; i < i0 + per_part; i++) {
            const float *a =
                d_out_tile + (i_row + i * tile::n_row_threads) * tile::stride;
            const float *b =
                part + (i_row + (i - i0) * tile::n_row_threads) * tile::stride;
            float sum = 0.0f;
#pragma unroll
            for (int e = 0; e < D; e += LANES)
                sum += a[e + lane] * b[e + lane];
            delta[i] = sum_lanes(sum);
        }
    }
}

/* scores become dS, from d_out V^T in slopes; rows i0 .., columns j0 .. */
template <int D>
__device__ __forceinline__ void
slope_rows(float (&scores)[PER_ROW][tiles<D>::per_column],
           const float (&slopes)[PER_ROW][tiles<D>::per_column],
           const float (&lse)[PER_ROW], const float (&delta)[PER_ROW], float scale,
           int i0, int j0)
{
#pragma unroll
    for (int i = 0; i < PER_ROW; i++)
#pragma unroll
        for (int j = 0; j < tiles<D>::per_column; j++) {
            bool is_seen = j0 + j * LANES <= i0 + i * tiles<D>::n_row_threads;
            float p = is_seen ? expf(scale * scores[i][j] - lse[i]) : 0.0f;
            scores[i][j] = is_seen ? p * (slopes[i][j] - delta[i]) : 0.0f;
        }
}

/* dq of one tile of queries of one head, and delta [b, heads, s] for the keys' turn. */
template <typename T, int D>
__global__ void __launch_bounds__(tiles<D>::n_threads, 2)
    backward_queries(T *__restrict__ dqkv, float *__restrict__ deltas,
                     const T *__restrict__ d_out, const T *__restrict__ qkv,
                     const T *__restrict__ out, const float *__restrict__ lse, shape at,
                     unsigned n_heads)
{
    using tile = tiles<D>;
    MIST_CUDA_SHARED(shared);
    float *const q_tile = (float *)shared, *const d_out_tile = q_tile + tile::row_floats;
    float *const kv_tile = d_out_tile + tile::row_floats;
    float *const scores_tile = kv_tile + tile::column_floats;
    const place my = place_of<D>(at, at.heads, n_heads, true);
    const int d = at.head_dim, v_offset = at.kv_heads * d;
    const int64_t q_offset = (my.first + my.row0) * at.token + my.head * d;
    const int64_t out_offset = (my.first + my.row0) * at.out_token + my.head * d;
    const T *const k = qkv + my.first * at.token + key_offset(at, my.head);
    float row_lse[PER_ROW], delta[PER_ROW], factor[PER_ROW];
    float scores[PER_ROW][tile::per_column], slopes[PER_ROW][tile::per_column];
    result<D> sum;

    load_tile<T, D, tile::n_rows>(q_tile, qkv + q_offset, at.token, my.n_valid, d);
    load_tile<T, D, tile::n_rows>(d_out_tile, d_out + out_offset, at.out_token,
                                  my.n_valid, d);
    sum_rows<T, D>(delta, d_out_tile, kv_tile, out + out_offset, at, my.i_row, my.lane,
                   my.n_valid);
    clear_result<D>(sum);
#pragma unroll
    for (int i = 0; i < PER_ROW; i++) {
        int row = my.i_row + i * tile::n_row_threads;
        int64_t at_row = my.i_head * at.s + my.row0 + row;
        row_lse[i] = row < my.n_valid ? lse[at_row] : 0.0f;
        factor[i] = at.scale;
        if (my.lane == 0 && row < my.n_valid)
            deltas[at_row] = delta[i];
    }
    for (int j0 = 0; j0 < my.row0 + my.n_valid; j0 += tile::n_columns) {
        const T *from = k + (int64_t)j0 * at.token;
        __syncthreads();
        load_tile<T, D, tile::n_columns>(kv_tile, from + v_offset, at.token, at.s - j0,
                                         d);
        __syncthreads();
        multiply_rows<D>(slopes, d_out_tile, kv_tile, my.i_row, my.lane, d);
        __syncthreads();
        load_tile<T, D, tile::n_columns>(kv_tile, from, at.token, at.s - j0, d);
        __syncthreads();
        multiply_rows<D>(scores, q_tile, kv_tile, my.i_row, my.lane, d);
        slope_rows<D>(scores, slopes, row_lse, delta, at.scale, my.row0 + my.i_row,
                      j0 + my.lane);
        store_scores<D>(scores_tile, scores, my.i_row, my.lane);
        add_product<D>(sum, scores_tile, kv_tile, my.i_row, my.lane);
    }
    store_result<T, D>(dqkv + q_offset, at.token, sum, factor, my.i_row, my.lane,
                       my.n_valid, d);
}

/* ---------------------------------------------------------------- backward: dk and dv */

/*
 * scores become P^T, slopes (V d_out^T) dS^T; rows are keys j0 .., columns queries i0 ..
 * < s, of whose head lse and delta are.
 */
template <int D>
__device__ __forceinline__ void
slope_columns(float (&scores)[PER_ROW][tiles<D>::per_column],
              float (&slopes)[PER_ROW][tiles<D>::per_column], const float *lse,
              const float *delta, const shape &at, int j0, int i0)
{
#pragma unroll
    for (int j = 0; j < tiles<D>::per_column; j++) {
        const int column = i0 + j * LANES;
        const bool is_valid = column < at.s;
        const float column_lse = is_valid ? lse[column] : 0.0f;
        const float column_delta = is_valid ? delta[column] : 0.0f;
#pragma unroll
        for (int i = 0; i < PER_ROW; i++) {
            bool is_seen = is_valid && j0 + i * tiles<D>::n_row_threads <= column;
            float p = is_seen ? expf(at.scale * scores[i][j] - column_lse) : 0.0f;
            scores[i][j] = p;
            slopes[i][j] = is_seen ? p * (slopes[i][j] - column_delta) : 0.0f;
        }
    }
}

/* dk and dv of one tile of keys of one key-value head. */
template <typename T, int D>
__global__ void __launch_bounds__(tiles<D>::n_threads, D <= 128 ? 2 : 1)
    backward_keys(T *__restrict__ dqkv, const float *__restrict__ deltas,
                  const T *__restrict__ d_out, const T *__restrict__ qkv,
                  const float *__restrict__ lse, shape at, unsigned n_kv_heads)
{
    using tile = tiles<D>;
    MIST_CUDA_SHARED(shared);
    float *const k_tile = (float *)shared, *const v_tile = k_tile + tile::row_floats;
    float *const q_tile = v_tile + tile::row_floats;
    float *const d_out_tile = q_tile + tile::column_floats;
    float *const scores_tile = d_out_tile + tile::column_floats;
    const place my = place_of<D>(at, at.kv_heads, n_kv_heads, false);
    const int d = at.head_dim, v_offset = at.kv_heads * d, group = at.heads / at.kv_heads;
    const int64_t k_offset = (my.first + my.row0) * at.token + (at.heads + my.head) * d;
    result<D> dk, dv;
    float scores[PER_ROW][tile::per_column], slopes[PER_ROW][tile::per_column];

    load_tile<T, D, tile::n_rows>(k_tile, qkv + k_offset, at.token, my.n_valid, d);
    load_tile<T, D, tile::n_rows>(v_tile, qkv + k_offset + v_offset, at.token, my.n_valid,
                                  d);
    clear_result<D>(dk);
    clear_result<D>(dv);
    for (int head = my.head * group; head < (my.head + 1) * group; head++)
        for (int i0 = my.row0; i0 < at.s; i0 += tile::n_columns) {
            const int64_t token = my.first + i0,
                          row0 = my.first * at.heads + (int64_t)head * at.s;
            __syncthreads();
            load_tile<T, D, tile::n_columns>(q_tile, qkv + token * at.token + head * d,
                                             at.token, at.s - i0, d);
            load_tile<T, D, tile::n_columns>(d_out_tile,
                                             d_out + token * at.out_token + head * d,
                                             at.out_token, at.s - i0, d);
            __syncthreads();
            multiply_rows<D>(scores, k_tile, q_tile, my.i_row, my.lane, d);
            multiply_rows<D>(slopes, v_tile, d_out_tile, my.i_row, my.lane, d);
            slope_columns<D>(scores, slopes, lse + row0, deltas + row0, at,
                             my.row0 + my.i_row, i0 + my.lane);
            store_scores<D>(scores_tile, scores, my.i_row, my.lane);
            add_product<D>(dv, scores_tile, d_out_tile, my.i_row, my.lane);
            store_scores<D>(scores_tile, slopes, my.i_row, my.lane);
            add_product<D>(dk, scores_tile, q_tile, my.i_row, my.lane);
        }
    store_result<T, D>(dqkv + k_offset, at.token, dk,
                       {at.scale, at.scale, at.scale, at.scale}, my.i_row, my.lane,
                       my.n_valid, d);
    store_result<T, D>(dqkv + k_offset + v_offset, at.token, dv, {1.0f, 1.0f, 1.0f, 1.0f},
                       my.i_row, my.lane, my.n_valid, d);
}

/* --------------------------------------------------------------------------- launches */

template <int D>
shape shape_of(int64_t s, int64_t heads, int64_t kv_heads, int64_t head_dim)
{
    return {(int)((heads + 2 * kv_heads) * head_dim),
            (int)(heads * head_dim),
            (int)s,
            (int)heads,
            (int)kv_heads,
            (int)head_dim,
            (int)((s + tiles<D>::n_rows - 1) / tiles<D>::n_rows),
            (float)(1.0 / sqrt((double)head_dim))};
}

template <typename T, int D>
void launch_forward(mist_cuda_stream stream, T *out, float *lse, const T *qkv, int64_t b,
                    const shape &at)
{
    constexpr int bytes = tiles<D>::forward_bytes;
    const unsigned n_heads = (unsigned)(b * at.heads);
    if (bytes > FREE_SHARED_BYTES)
        MIST_CUDA_ALLOW_SHARED((forward<T, D>), bytes);
    MIST_CUDA_LAUNCH((forward<T, D>), (unsigned)at.n_tiles * n_heads, tiles<D>::n_threads,
                     bytes, stream, out, lse, qkv, at, n_heads);
}

template <typename T, int D>
void launch_backward(mist_cuda_stream stream, T *dqkv, const T *d_out, const T *qkv,
                     const T *out, const float *lse, int64_t b, const shape &at,
                     float *deltas)
{
    constexpr int queries_bytes = tiles<D>::queries_bytes;
    constexpr int keys_bytes = tiles<D>::keys_bytes;
    const unsigned n_heads = (unsigned)(b * at.heads);
    const unsigned n_kv_heads = (unsigned)(b * at.kv_heads);
    if (queries_bytes > FREE_SHARED_BYTES)
        MIST_CUDA_ALLOW_SHARED((backward_queries<T, D>), queries_bytes);
    if (keys_bytes > FREE_SHARED_BYTES)
        MIST_CUDA_ALLOW_SHARED((backward_keys<T, D>), keys_bytes);
    MIST_CUDA_LAUNCH((backward_queries<T, D>), (unsigned)at.n_tiles * n_heads,
                     tiles<D>::n_threads, queries_bytes, stream, dqkv, deltas, d_out, qkv,
                     out, lse, at, n_heads);
    MIST_CUDA_LAUNCH((backward_keys<T, D>), (unsigned)at.n_tiles * n_kv_heads,
                     tiles<D>::n_threads, keys_bytes, stream, dqkv, (const float *)deltas,
                     d_out, qkv, lse, at, n_kv_heads);
}

/* Runs the rest with D = the size of kernel for head_dim. */
#define BY_HEAD_DIM(head_dim, D, ...)                                                    \
    do {                                                                                 \
        if ((head_dim) <= 32) {                                                          \
            constexpr int D = 32;                                                        \
            __VA_ARGS__;                                                                 \
        } else if ((head_dim) <= 64) {                                                   \
            constexpr int D = 64;                                                        \
            __VA_ARGS__;                                                                 \
        } else if ((head_dim) <= 128) {                                                  \
            constexpr int D = 128;                                                       \
            __VA_ARGS__;                                                                 \
        } else {                                                                         \
            constexpr int D = 256;                                                       \
            __VA_ARGS__;                                                                 \
        }                                                                                \
    } while (0)

} // namespace

extern "C" void mist_cuda_attention_forward(mist_cuda_stream stream,
                                            enum mist_dtype dtype, void *out, float *lse,
                                            const void *qkv, int64_t b, int64_t s,
                                            int64_t heads, int64_t kv_heads,
                                            int64_t head_dim)
{
    if (b == 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        BY_HEAD_DIM(head_dim, D,
                    launch_forward<T, D>(stream, (T *)out, lse, (const T *)qkv, b,
                                         shape_of<D>(s, heads, kv_heads, head_dim))));
}

extern "C" void mist_cuda_attention_backward(mist_cuda_stream stream,
                                             enum mist_dtype dtype, void *dqkv,
                                             const void *d_out, const void *qkv,
                                             const void *out, const float *lse, int64_t b,
                                             int64_t s, int64_t heads, int64_t kv_heads,
                                             int64_t head_dim, void *workspace)
{
    if (b == 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        BY_HEAD_DIM(head_dim, D,
                    launch_backward<T, D>(stream, (T *)dqkv, (const T *)d_out,
                                          (const T *)qkv, (const T *)out, lse, b,
                                          shape_of<D>(s, heads, kv_heads, head_dim),
                                          (float *)workspace)));
}
