/*
 * Causal attention over packed projections: the reference for cuDNN's, and the path in
 * fp32. Queries are all of a sequence, or the two chunks of a context-parallel rank, whose keys
 * and values lie apart.
 *
 * A block holds a few rows of one head in shared memory and walks the rows of the other
 * side 32 at a time: lane j of a warp has the scores of column j with the warp's rows. In
 * the forward and for dq rows are queries, which walk keys; for dk and dv rows are keys,
 * which walk the queries of all heads of their group, in order. Tiles on the far side of
 * the diagonal are never touched. The forward keeps each row's maximum and sum while it
 * goes (online softmax: Dao et al. 2022, algorithm 1); the backward takes the
 * probabilities P = exp(scale Q K^T - lse) anew (appendix B.2):
 *
 *     delta_i = dot(d_out_i, out_i),   dS = P * (d_out V^T - delta)
 *     dQ = scale dS K,   dK = scale dS^T Q,   dV = P^T d_out
 *
 * No sum is split between blocks: the bits are the same every time. Shared memory is fp32
 * and below the 48 KiB that every GPU gives without being asked. Left out: tensor cores,
 * copies that overlap with products.
 */
#include "exec/cuda/kernels.h"
#include "exec/cuda/launch.cuh"
#include "exec/operators/cpu_kernels.h" /* struct mist_cpu_attention */

#include <math.h>

namespace
{

constexpr int N_WARPS = 4, N_COLUMNS = 32, N_THREADS = N_WARPS * N_COLUMNS;

/* Sizes for head_dim up to D; what is missing of a row is zeros. */
template <int D> struct sizes {
    static constexpr int per_warp = D <= 128 ? 4 : 1; /* rows that a warp has */
    static constexpr int n_rows = N_WARPS * per_warp;
    static constexpr int stride = D + 4; /* vectors of 8 neighbours: different banks */
    static constexpr int rows_floats = n_rows * stride;
    static constexpr int columns_floats = N_COLUMNS * stride;
    static constexpr int scores_floats = n_rows * N_COLUMNS;
    static constexpr int bytes(int n_held)
    {
        return (n_held * rows_floats + columns_floats + scores_floats) * 4;
    }
};

struct shape {
    int token, out_token; /* elements of a token of qkv, of out */
    int key_token;        /* of what has keys and values */
    int first_key;        /* where keys begin in it */
    int s, heads, kv_heads, head_dim;
    int n_queries; /* of a sequence: n_chunks of length */
    int n_chunks, length;
    int first[2];     /* positions of chunks */
    unsigned n_heads; /* b times those whose rows a launch has */
    int n_tiles;      /* tiles of rows in a sequence, chunk by chunk */
    float scale;      /* 1 / sqrt(head_dim) */
};

/* What a block and a thread have. */
struct place {
    int64_t i_head; /* of all samples' heads */
    int64_t query;  /* first one of its sample */
    int64_t key;    /* likewise */
    int head;       /* in its sample */
    int row0;       /* first row of the block */
    int end;        /* of the rows of its chunk, or of all keys */
    int position;   /* of row0 in the sequence */
    int warp_row;   /* first row of the warp, in the block */
    int lane;
};

/* Blocks run through the heads before they take the next tile, queries' last tiles first:
 * they have most to do. */
template <int D>
__device__ __forceinline__ place place_of(const shape &at, bool is_of_keys)
{
    const unsigned i_head = blockIdx.x % at.n_heads;
    const unsigned heads = (unsigned)(is_of_keys ? at.kv_heads : at.heads);
    const int i_block = (int)(blockIdx.x / at.n_heads);
    const int i_tile = is_of_keys ? i_block : at.n_tiles - 1 - i_block;
    const int n_tiles = is_of_keys ? at.n_tiles : at.n_tiles / at.n_chunks;
    const int i_chunk = i_tile / n_tiles, row = i_tile % n_tiles * sizes<D>::n_rows;
    const int before = i_chunk * at.length;
    return {(int64_t)i_head,
            (int64_t)(i_head / heads) * at.n_queries,
            (int64_t)(i_head / heads) * at.s,
            (int)(i_head % heads),
            before + row,
            is_of_keys ? at.s : before + at.length,
            is_of_keys ? row : at.first[i_chunk] + row,
            (int)threadIdx.x / N_COLUMNS * sizes<D>::per_warp,
            (int)threadIdx.x % N_COLUMNS};
}

/* Where a query head's keys begin in a token; its values come kv_heads later. */
__device__ __forceinline__ int key_offset(const shape &at, int head)
{
    return at.first_key + head / (at.heads / at.kv_heads) * at.head_dim;
}

/* tile[n] = n_valid rows of head_dim elements, stride apart, the rest zeros. */
template <typename T, int D>
__device__ __forceinline__ void load_tile(float *tile, int n, const T *from, int stride,
                                          int n_valid, int head_dim)
{
#pragma unroll 4
    for (int i = (int)threadIdx.x; i < n * D; i += N_THREADS) {
        const int row = i / D, column = i % D;
        tile[row * sizes<D>::stride + column] =
            row < n_valid && column < head_dim
                ? mist_to_float(from[(int64_t)row * stride + column])
                : 0.0f;
    }
}

/* The tile that is walked, once all are done with the one before. */
template <typename T, int D>
__device__ __forceinline__ void load_columns(float *tile, const T *from, int stride,
                                             int n_valid, int head_dim)
{
    __syncthreads();
    load_tile<T, D>(tile, N_COLUMNS, from, stride, n_valid, head_dim);
    __syncthreads();
}

/* A number of each row of a warp in each lane: scores with column lane, or sums. */
template <int D> using row_values = float[sizes<D>::per_warp];

/* out[r] = dot of the warp's row r and row lane of columns. */
template <int D>
__device__ __forceinline__ void multiply(row_values<D> &out, const float *rows,
                                         const float *columns, const place &my)
{
    constexpr int n = sizes<D>::per_warp, stride = sizes<D>::stride;
    rows += my.warp_row * stride;
    columns += my.lane * stride;
#pragma unroll
    for (int r = 0; r < n; r++)
        out[r] = 0.0f;
#pragma unroll 4
    for (int d = 0; d < D; d += 4) {
        const float4 b = *(const float4 *)(columns + d);
#pragma unroll
        for (int r = 0; r < n; r++) {
            const float4 a = *(const float4 *)(rows + r * stride + d);
            out[r] += a.x * b.x;
            out[r] += a.y * b.y;
            out[r] += a.z * b.z;
            out[r] += a.w * b.w;
        }
    }
}

/* The warp's rows of a result [n_rows, D]: a lane has columns lane, lane + 32 .. */
template <int D> struct result {
    float v[sizes<D>::per_warp][D / N_COLUMNS];
};

/* sum += scores columns[N_COLUMNS, D]; scores go through the warp's rows of tile. */
template <int D>
__device__ __forceinline__ void add_product(result<D> &sum, const row_values<D> &scores,
                                            float *tile, const float *columns,
                                            const place &my)
{
    constexpr int n = sizes<D>::per_warp;
    tile += my.warp_row * N_COLUMNS;
    __syncwarp(); /* all have read what was there */
#pragma unroll
    for (int r = 0; r < n; r++)
        tile[r * N_COLUMNS + my.lane] = scores[r];
    __syncwarp();
#pragma unroll 4
    for (int j = 0; j < N_COLUMNS; j++)
#pragma unroll
        for (int c = 0; c < D / N_COLUMNS; c++) {
            const float x = columns[j * sizes<D>::stride + c * N_COLUMNS + my.lane];
#pragma unroll
            for (int r = 0; r < n; r++)
                sum.v[r][c] += tile[r * N_COLUMNS + j] * x;
        }
}

/* Rows of to, stride apart, = factor[r] sum */
template <typename T, int D>
__device__ __forceinline__ void store_result(T *to, int stride, const result<D> &sum,
                                             const row_values<D> &factor, const shape &at,
                                             const place &my)
{
    for (int r = 0; r < sizes<D>::per_warp; r++)
        for (int c = 0; c < D / N_COLUMNS; c++) {
            const int row = my.warp_row + r, column = c * N_COLUMNS + my.lane;
            if (my.row0 + row < my.end && column < at.head_dim)
                to[(int64_t)row * stride + column] =
                    mist_from_float<T>(factor[r] * sum.v[r][c]);
        }
}

/* ---------------------------------------------------------------------------- forward */

/* out and lse of some queries of a head. */
template <typename T, int D>
__global__ void __launch_bounds__(N_THREADS, 3)
    forward(T *__restrict__ out, float *__restrict__ lse, const T *__restrict__ qkv,
            const T *__restrict__ kv, shape at)
{
    constexpr int n = sizes<D>::per_warp, n_rows = sizes<D>::n_rows;
    MIST_CUDA_SHARED(shared);
    float *const q_tile = (float *)shared, *const tile = q_tile + sizes<D>::rows_floats;
    float *const scores_tile = tile + sizes<D>::columns_floats;
    const place my = place_of<D>(at, false);
    const int d = at.head_dim, end = my.position + min(n_rows, my.end - my.row0);
    const T *const k = kv + my.key * at.key_token + key_offset(at, my.head);
    result<D> sum = {};
    row_values<D> scores, maximum, total, factor;

    load_tile<T, D>(q_tile, n_rows, qkv + (my.query + my.row0) * at.token + my.head * d,
                    at.token, my.end - my.row0, d);
    for (int r = 0; r < n; r++) {
        maximum[r] = -INFINITY;
        total[r] = 0.0f; /* of this lane's columns */
    }
    for (int j0 = 0; j0 < end; j0 += N_COLUMNS) {
        const T *from = k + (int64_t)j0 * at.key_token;
        load_columns<T, D>(tile, from, at.key_token, at.s - j0, d);
        multiply<D>(scores, q_tile, tile, my);
#pragma unroll
        for (int r = 0; r < n; r++) {
            const int row = my.position + my.warp_row + r;
            const float score = j0 + my.lane <= row ? at.scale * scores[r] : -INFINITY;
            /* Every row sees column 0 of the first tile: finite from then on. */
            const float top = fmaxf(maximum[r], mist_warp_max(score));
            const float shrink = expf(maximum[r] - top);
            scores[r] = expf(score - top);
            total[r] = total[r] * shrink + scores[r];
            maximum[r] = top;
#pragma unroll
            for (int c = 0; c < D / N_COLUMNS; c++)
                sum.v[r][c] *= shrink;
        }
        load_columns<T, D>(tile, from + at.kv_heads * d, at.key_token, at.s - j0, d);
        add_product<D>(sum, scores, scores_tile, tile, my);
    }
    for (int r = 0; r < n; r++) {
        const int row = my.row0 + my.warp_row + r;
        const float whole = mist_warp_sum(total[r]);
        factor[r] = 1.0f / whole;
        if (my.lane == 0 && row < my.end)
            lse[my.i_head * at.n_queries + row] = maximum[r] + logf(whole);
    }
    store_result<T, D>(out + (my.query + my.row0) * at.out_token + my.head * d,
                       at.out_token, sum, factor, at, my);
}

/* --------------------------------------------------------------------------- backward */

/* score becomes P, slope (d_out V^T) dS. */
__device__ __forceinline__ void differentiate(float &score, float &slope, bool is_seen,
                                              float lse, float delta, float scale)
{
    score = is_seen ? expf(scale * score - lse) : 0.0f;
    slope = is_seen ? score * (slope - delta) : 0.0f;
}

/* dq of some queries of a head, and their delta [b, heads, n_queries] for the keys' turn. */
template <typename T, int D>
__global__ void __launch_bounds__(N_THREADS, 3)
    backward_queries(T *__restrict__ dqkv, float *__restrict__ deltas,
                     const T *__restrict__ d_out, const T *__restrict__ qkv,
                     const T *__restrict__ kv, const T *__restrict__ out,
                     const float *__restrict__ lse, shape at)
{
    constexpr int n = sizes<D>::per_warp, n_rows = sizes<D>::n_rows;
    MIST_CUDA_SHARED(shared);
    float *const q_tile = (float *)shared;
    float *const d_out_tile = q_tile + sizes<D>::rows_floats;
    float *const tile = d_out_tile + sizes<D>::rows_floats;
    float *const scores_tile = tile + sizes<D>::columns_floats;
    const place my = place_of<D>(at, false);
    const int d = at.head_dim, n_valid = my.end - my.row0;
    const int end = my.position + min(n_rows, n_valid);
    const T *const k = kv + my.key * at.key_token + key_offset(at, my.head);
    const int64_t q_offset = (my.query + my.row0) * at.token + my.head * d;
    const int64_t out_offset = (my.query + my.row0) * at.out_token + my.head * d;
    result<D> sum = {};
    row_values<D> scores, slopes, row_lse, delta, factor;

    load_tile<T, D>(q_tile, n_rows, qkv + q_offset, at.token, n_valid, d);
    load_tile<T, D>(d_out_tile, n_rows, d_out + out_offset, at.out_token, n_valid, d);
    __syncthreads();
    for (int r = 0; r < n; r++) {
        const int row = my.warp_row + r;
        const int64_t i = my.i_head * at.n_queries + my.row0 + row;
        float terms = 0.0f;
        for (int column = my.lane; row < n_valid && column < d; column += N_COLUMNS)
            terms +=
                d_out_tile[row * sizes<D>::stride + column] *
                mist_to_float(out[out_offset + (int64_t)row * at.out_token + column]);
        delta[r] = mist_warp_sum(terms);
        row_lse[r] = row < n_valid ? lse[i] : 0.0f;
        factor[r] = at.scale;
        if (my.lane == 0 && row < n_valid)
            deltas[i] = delta[r];
    }
    for (int j0 = 0; j0 < end; j0 += N_COLUMNS) {
        const T *from = k + (int64_t)j0 * at.key_token;
        load_columns<T, D>(tile, from + at.kv_heads * d, at.key_token, at.s - j0, d);
        multiply<D>(slopes, d_out_tile, tile, my);
        load_columns<T, D>(tile, from, at.key_token, at.s - j0, d);
        multiply<D>(scores, q_tile, tile, my);
#pragma unroll
        for (int r = 0; r < n; r++)
            differentiate(scores[r], slopes[r],
                          j0 + my.lane <= my.position + my.warp_row + r, row_lse[r],
                          delta[r], at.scale);
        add_product<D>(sum, slopes, scores_tile, tile, my);
    }
    store_result<T, D>(dqkv + q_offset, at.token, sum, factor, at, my);
}

/* dk and dv of some keys of a key-value head, where keys and values lie. */
template <typename T, int D>
__global__ void __launch_bounds__(N_THREADS, 3)
    backward_keys(T *__restrict__ dkv, const float *__restrict__ deltas,
                  const T *__restrict__ d_out, const T *__restrict__ qkv,
                  const T *__restrict__ kv, const float *__restrict__ lse, shape at)
{
    constexpr int n = sizes<D>::per_warp, n_rows = sizes<D>::n_rows;
    MIST_CUDA_SHARED(shared);
    float *const k_tile = (float *)shared, *const v_tile = k_tile + sizes<D>::rows_floats;
    float *const tile = v_tile + sizes<D>::rows_floats;
    float *const scores_tile = tile + sizes<D>::columns_floats;
    const place my = place_of<D>(at, true);
    const int d = at.head_dim, v_offset = at.kv_heads * d, group = at.heads / at.kv_heads;
    const int n_walked = group * at.n_chunks;
    const int64_t k_offset =
        (my.key + my.row0) * at.key_token + at.first_key + my.head * d;
    result<D> dk = {}, dv = {};
    row_values<D> scores, slopes, factor, one;

    load_tile<T, D>(k_tile, n_rows, kv + k_offset, at.key_token, at.s - my.row0, d);
    load_tile<T, D>(v_tile, n_rows, kv + k_offset + v_offset, at.key_token,
                    at.s - my.row0, d);
    for (int r = 0; r < n; r++) {
        factor[r] = at.scale;
        one[r] = 1.0f;
    }
    for (int walked = 0; walked < n_walked; walked++) {
        const int head = my.head * group + walked / at.n_chunks;
        const int i_chunk = walked % at.n_chunks, first = at.first[i_chunk];
        const int64_t query = my.query + i_chunk * at.length;
        for (int i0 = max(0, my.row0 - first); i0 < at.length; i0 += N_COLUMNS) {
            const T *q = qkv + (query + i0) * at.token + head * d;
            const T *from = d_out + (query + i0) * at.out_token + head * d;
            const int column = i0 + my.lane;
            const int64_t i = my.query * at.heads + (int64_t)head * at.n_queries +
                              i_chunk * at.length + column;
            const float column_lse = column < at.length ? lse[i] : 0.0f;
            const float delta = column < at.length ? deltas[i] : 0.0f;

            load_columns<T, D>(tile, q, at.token, at.length - i0, d);
            multiply<D>(scores, k_tile, tile, my);
            load_columns<T, D>(tile, from, at.out_token, at.length - i0, d);
            multiply<D>(slopes, v_tile, tile, my);
#pragma unroll
            for (int r = 0; r < n; r++)
                differentiate(scores[r], slopes[r],
                              column < at.length &&
                                  my.row0 + my.warp_row + r <= first + column,
                              column_lse, delta, at.scale);
            add_product<D>(dv, scores, scores_tile, tile, my);
            load_columns<T, D>(tile, q, at.token, at.length - i0, d);
            add_product<D>(dk, slopes, scores_tile, tile, my);
        }
    }
    store_result<T, D>(dkv + k_offset, at.key_token, dk, factor, at, my);
    store_result<T, D>(dkv + k_offset + v_offset, at.key_token, dv, one, at, my);
}

/* --------------------------------------------------------------------------- launches */

/* is_of_keys: whose rows a launch has. */
template <int D> shape shape_of(const mist_cpu_attention_part *of, bool is_of_keys)
{
    const mist_cpu_attention &whole = of->whole;
    const mist_chunks chunks = mist_chunks_of(whole.s, of->n, of->i);
    const int d = (int)whole.head_dim, n_chunks = of->n > 1 ? 2 : 1;
    const int token = (int)(whole.heads + 2 * whole.kv_heads) * d;
    const int64_t n_rows = is_of_keys ? whole.s : chunks.length;
    const int n_tiles = (int)((n_rows + sizes<D>::n_rows - 1) / sizes<D>::n_rows);

    return {token,
            (int)whole.heads * d,
            of->n > 1 ? 2 * (int)whole.kv_heads * d : token,
            of->n > 1 ? 0 : (int)whole.heads * d,
            (int)whole.s,
            (int)whole.heads,
            (int)whole.kv_heads,
            d,
            n_chunks * (int)chunks.length,
            n_chunks,
            (int)chunks.length,
            {(int)chunks.first[0], (int)chunks.first[1]},
            (unsigned)(whole.b * (is_of_keys ? whole.kv_heads : whole.heads)),
            is_of_keys ? n_tiles : n_chunks * n_tiles,
            (float)(1.0 / sqrt((double)whole.head_dim))};
}

/* Runs the rest with D = the size of kernel for head_dim. */
#define BY_HEAD_DIM(head_dim, D, ...)                                                    \
    do {                                                                                 \
        if ((head_dim) <= 64) {                                                          \
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

template <typename T, int D>
void launch_forward(mist_cuda_stream stream, T *out, float *lse, const T *qkv,
                    const T *kv, const shape &at)
{
    MIST_CUDA_LAUNCH((forward<T, D>), (unsigned)at.n_tiles * at.n_heads, N_THREADS,
                     sizes<D>::bytes(1), stream, out, lse, qkv, kv, at);
}

template <typename T, int D>
void launch_backward(mist_cuda_stream stream, T *dqkv, T *dkv, const T *d_out,
                     const T *qkv, const T *kv, const T *out, const float *lse,
                     float *deltas, const shape &queries, const shape &keys)
{
    MIST_CUDA_LAUNCH(
        (backward_queries<T, D>), (unsigned)queries.n_tiles * queries.n_heads, N_THREADS,
        sizes<D>::bytes(2), stream, dqkv, deltas, d_out, qkv, kv, out, lse, queries);
    MIST_CUDA_LAUNCH((backward_keys<T, D>), (unsigned)keys.n_tiles * keys.n_heads,
                     N_THREADS, sizes<D>::bytes(2), stream, dkv, (const float *)deltas,
                     d_out, qkv, kv, lse, keys);
}

} // namespace

extern "C" void mist_cuda_attention_part_forward(mist_cuda_stream stream,
                                                 enum mist_dtype dtype, void *out,
                                                 float *lse, const void *qkv,
                                                 const void *kv,
                                                 const struct mist_cpu_attention_part *of)
{
    if (of->whole.b == 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        BY_HEAD_DIM(of->whole.head_dim, D,
                    launch_forward<T, D>(stream, (T *)out, lse, (const T *)qkv,
                                         (const T *)kv, shape_of<D>(of, false))));
}

extern "C" void mist_cuda_attention_part_backward(
    mist_cuda_stream stream, enum mist_dtype dtype, void *dqkv, void *dkv,
    const void *d_out, const void *qkv, const void *kv, const void *out, const float *lse,
    const struct mist_cpu_attention_part *of, void *workspace)
{
    if (of->whole.b == 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        BY_HEAD_DIM(of->whole.head_dim, D,
                    launch_backward<T, D>(stream, (T *)dqkv, (T *)dkv, (const T *)d_out,
                                          (const T *)qkv, (const T *)kv, (const T *)out,
                                          lse, (float *)workspace, shape_of<D>(of, false),
                                          shape_of<D>(of, true))));
}

extern "C" void mist_cuda_attention_forward(mist_cuda_stream stream,
                                            enum mist_dtype dtype, void *out, float *lse,
                                            const void *qkv,
                                            const struct mist_cpu_attention *of)
{
    const mist_cpu_attention_part whole = {*of, 1, 0};

    mist_cuda_attention_part_forward(stream, dtype, out, lse, qkv, qkv, &whole);
}

extern "C" void mist_cuda_attention_backward(mist_cuda_stream stream,
                                             enum mist_dtype dtype, void *dqkv,
                                             const void *d_out, const void *qkv,
                                             const void *out, const float *lse,
                                             const struct mist_cpu_attention *of,
                                             void *workspace)
{
    const mist_cpu_attention_part whole = {*of, 1, 0};

    mist_cuda_attention_part_backward(stream, dtype, dqkv, dqkv, d_out, qkv, qkv, out,
                                      lse, &whole, workspace);
}
