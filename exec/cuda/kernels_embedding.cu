/*
 * Token and position embedding on the GPU.
 *
 * Forward: threads go over a row's units, several rows to a block.
 *
 * Backward: rows of d_out that belong to one token are added up by one block, in token
 * order, and then to what there is, so the bits are those of the CPU: there is a block
 * for every position, and it goes on only if no earlier position has its token. It looks
 * for the token piece by piece, lists the places in shared memory and, when that is full
 * or all are found, adds the rows listed, threads side by side over the columns. The
 * search reads all tokens once per different token, which costs less than the rows do.
 * The position gradient is a kernel of its own, which adds up the samples of each
 * position in order.
 */
#include "exec/cuda/vector.cuh"
#include "sim/model/chunks.h"

namespace
{

constexpr int N_THREADS = 256, N_LANES = 32, N_WARPS = N_THREADS / N_LANES;
constexpr int N_REPEATS = 2; /* units of a forward thread */
constexpr int N_TOKENS = 8;  /* that a thread looks at at once */
constexpr int PIECE = N_THREADS * N_TOKENS;
constexpr int N_ROWS = 4; /* that are read at once */

struct embedding {
    const int32_t *tokens;
    int64_t rows, s, h; /* s: tokens of a sequence that are there */
    int64_t first_token, n_local;
    mist_chunks chunks;
};

embedding embedding_of(const int32_t *tokens, int64_t rows, const mist_chunks *chunks,
                       int64_t h, int64_t first_token, int64_t n_local)
{
    return {tokens, rows, mist_chunks_n_tokens(chunks), h, first_token, n_local, *chunks};
}

/* mist_chunks_position() */
__device__ __forceinline__ int64_t position_of(const embedding &at, int64_t p)
{
    int64_t length = at.chunks.length;
    return p < length ? at.chunks.first[0] + p : at.chunks.first[1] + p - length;
}

/* The row of a token in the slice; -1 if it lies in another. */
__device__ __forceinline__ int64_t row_of_token(const embedding &at, int32_t token)
{
    int64_t row = token - at.first_token;
    return row >= 0 && row < at.n_local ? row : -1;
}

/* ---------------------------------------------------------------------------- forward */

template <typename T, int unit>
__device__ __forceinline__ void clear(mist_unit<T, unit> *x)
{
#pragma unroll
    for (int j = 0; j < unit; j++)
        x->set(j, 0.0f);
}

template <typename To, typename From, int unit>
__device__ __forceinline__ void add(mist_unit<To, unit> *sum,
                                    const mist_unit<From, unit> &x)
{
#pragma unroll
    for (int j = 0; j < unit; j++)
        sum->set(j, sum->get(j) + x.get(j));
}

template <typename To, typename From, int unit>
__device__ __forceinline__ void copy(mist_unit<To, unit> *to,
                                     const mist_unit<From, unit> &from)
{
#pragma unroll
    for (int j = 0; j < unit; j++)
        to->set(j, from.get(j));
}

/* Blocks: tiles of columns, positions, samples. wpe NULL: none. */
template <typename T, int unit>
__global__ void __launch_bounds__(N_THREADS)
    look_up(T *out, const T *wte, const T *wpe, embedding at)
{
    int64_t first = (int64_t)blockIdx.x * (blockDim.x * N_REPEATS) + threadIdx.x;
    int64_t n_units = at.h / unit, step = (int64_t)gridDim.y * blockDim.y;

#pragma unroll 1
    for (int64_t sample = (int64_t)blockIdx.z * at.s; sample < at.rows;
         sample += (int64_t)gridDim.z * at.s)
#pragma unroll 1
        for (int64_t p = (int64_t)blockIdx.y * blockDim.y + threadIdx.y;
             p < at.s && sample + p < at.rows; p += step) {
            int64_t row = row_of_token(at, __ldg(at.tokens + sample + p));
            mist_unit<T, unit> token[N_REPEATS], position[N_REPEATS];
#pragma unroll
            for (int r = 0; r < N_REPEATS; r++) {
                int64_t i = first + (int64_t)r * blockDim.x;
                if (i < n_units && row >= 0)
                    token[r].load(wte + row * at.h + i * unit);
                if (i < n_units && wpe != nullptr)
                    position[r].load(wpe + position_of(at, p) * at.h + i * unit);
            }
#pragma unroll
            for (int r = 0; r < N_REPEATS; r++) {
                int64_t i = first + (int64_t)r * blockDim.x;
                if (i >= n_units)
                    break;
                if (row < 0)
                    clear(&token[r]);
                if (wpe != nullptr && row < 0)
                    token[r] = position[r];
                else if (wpe != nullptr)
                    add(&token[r], position[r]);
                token[r].store(out + (sample + p) * at.h + i * unit);
            }
        }
}

template <typename T, int unit>
void launch_look_up(mist_cuda_stream stream, T *out, const T *wte, const T *wpe,
                    const embedding &at)
{
    int64_t n_units = at.h / unit;
    unsigned x = 1;
    while (x < N_THREADS / 4 && x < n_units)
        x *= 2;
    unsigned y = N_THREADS / x;
    dim3 grid((unsigned)mist_ceil_div(n_units, x * N_REPEATS),
              mist_grid_extent(mist_ceil_div(at.s, y)),
              mist_grid_extent(mist_ceil_div(at.rows, at.s)));

    MIST_CUDA_LAUNCH((look_up<T, unit>), grid, dim3(x, y), 0, stream, out, wte, wpe, at);
}

/* --------------------------------------------------------------------------- backward */

/* total += n rows of d_out, which is the first column's of the thread; place(i): which. */
template <typename T, int unit, typename Place>
__device__ __forceinline__ void add_rows(mist_unit<float, unit> *total, const T *d_out,
                                         int64_t h, int64_t n, Place place)
{
#pragma unroll 1
    for (int64_t i = 0; i < n; i += N_ROWS) {
        mist_unit<T, unit> d[N_ROWS];
#pragma unroll
        for (int r = 0; r < N_ROWS; r++)
            if (i + r < n)
                d[r].load(d_out + place(i + r) * h);
#pragma unroll
        for (int r = 0; r < N_ROWS; r++)
            if (i + r < n)
                add(total, d[r]);
    }
}

/* sum += total, rounded before where gradients are. */
template <typename G, int unit>
__device__ __forceinline__ void add_total(G *sum, const mist_unit<float, unit> &total)
{
    mist_unit<G, unit> held, rounded;

    held.load(sum);
    copy(&rounded, total);
    add(&held, rounded);
    held.store(sum);
}

/* Which of the N_TOKENS positions from i on (a multiple of that) are in begin .. end - 1
 * and have the token, as bits. */
__device__ __forceinline__ unsigned find_token(const int32_t *tokens, int32_t token,
                                               int64_t i, int64_t begin, int64_t end)
{
    unsigned found = 0;

    if (i >= begin && i + N_TOKENS <= end && (uintptr_t)tokens % 16 == 0) {
        constexpr int n = mist_pack<int32_t>::n;
        mist_pack<int32_t> packs[N_TOKENS / n];
#pragma unroll
        for (int k = 0; k < N_TOKENS / n; k++)
            packs[k] = *(const mist_pack<int32_t> *)(tokens + i + k * n);
#pragma unroll
        for (int k = 0; k < N_TOKENS; k++)
            found |= (unsigned)(packs[k / n].v[k % n] == token) << k;
    } else if (i < end && i + N_TOKENS > begin) {
        for (int k = 0; k < N_TOKENS; k++)
            if (i + k >= begin && i + k < end)
                found |= (unsigned)(tokens[i + k] == token) << k;
    }
    return found;
}

/* Lists i + k for all bits k found, threads in order; returns how many there are. Every
 * thread of the block calls it. */
__device__ __forceinline__ int list_places(int32_t *places, int *warp_counts,
                                           unsigned found, int64_t i)
{
    int lane = (int)threadIdx.x % N_LANES, warp = (int)threadIdx.x / N_LANES;
    int own = __popc(found), before = own;

#pragma unroll
    for (int d = 1; d < N_LANES; d *= 2) {
        int other = __shfl_up_sync(0xFFFFFFFFu, before, (unsigned)d);
        before += lane >= d ? other : 0;
    }
    if (lane == N_LANES - 1)
        warp_counts[warp] = before;
    __syncthreads();
    int at = before - own, n = 0;
    for (int w = 0; w < N_WARPS; w++) {
        at += w < warp ? warp_counts[w] : 0;
        n += warp_counts[w];
    }
    for (int k = 0; k < N_TOKENS; k++)
        if (found >> k & 1)
            places[at++] = (int32_t)(i + k);
    __syncthreads();
    return n;
}

/* A block per position. Columns that threads have no room for come in another round, which
 * looks for the places again if they were too many to keep. */
template <typename T, typename G, int unit>
__global__ void __launch_bounds__(N_THREADS)
    add_up_tokens(G *dwte, const T *d_out, embedding at)
{
    __shared__ int32_t places[2 * PIECE];
    __shared__ int warp_counts[N_WARPS];
    int n = 0; /* places found that are not added yet */
    int64_t own = blockIdx.x, offset = (int64_t)threadIdx.x * N_TOKENS;
    int32_t token = at.tokens[own];
    int64_t row = row_of_token(at, token);
    int64_t begin = own / PIECE * PIECE; /* where places are to be looked for */
    const int32_t *listed = places;
    auto place = [listed](int64_t i) { return (int64_t)listed[i]; };

    if (row < 0)
        return;
#pragma unroll 1
    for (int64_t i = 0; i < own; i += PIECE)
        if (__syncthreads_or(find_token(at.tokens, token, i + offset, 0, own) != 0))
            return;
#pragma unroll 1
    for (int64_t first = 0; first < at.h; first += N_THREADS * unit) {
        int64_t column = first + (int64_t)threadIdx.x * unit;
        int64_t i = begin;
        mist_unit<float, unit> total;
        clear(&total);
        n = begin < at.rows ? 0 : n;
        begin = at.rows;
#pragma unroll 1
        for (; i < at.rows; i += PIECE) {
            unsigned found = find_token(at.tokens, token, i + offset, own, at.rows);
            if (__syncthreads_or(found != 0))
                n += list_places(places + n, warp_counts, found, i + offset);
            if (n <= PIECE) /* there is room for what the next piece may bring */
                continue;
            if (column < at.h)
                add_rows<T, unit>(&total, d_out + column, at.h, n, place);
            n = 0;
            begin = own / PIECE * PIECE;
        }
        if (column < at.h) {
            add_rows<T, unit>(&total, d_out + column, at.h, n, place);
            add_total<G, unit>(dwte + row * at.h + column, total);
        }
    }
}

/* Blocks: tiles of columns, positions. */
template <typename T, typename G, int unit>
__global__ void __launch_bounds__(N_THREADS)
    add_up_positions(G *dwpe, const T *d_out, embedding at)
{
    int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * unit;

    if (column >= at.h)
        return;
#pragma unroll 1
    for (int64_t p = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; p < at.s;
         p += (int64_t)gridDim.y * blockDim.y) {
        mist_unit<float, unit> total;
        clear(&total);
        add_rows<T, unit>(&total, d_out + column, at.h, (at.rows - p + at.s - 1) / at.s,
                          [=](int64_t i) { return p + i * at.s; });
        add_total<G, unit>(dwpe + position_of(at, p) * at.h + column, total);
    }
}

template <typename T, typename G, int unit>
void launch_backward(mist_cuda_stream stream, G *dwte, G *dwpe, const T *d_out,
                     const embedding &at)
{
    if (at.n_local > 0)
        MIST_CUDA_LAUNCH((add_up_tokens<T, G, unit>), (unsigned)at.rows, N_THREADS, 0,
                         stream, dwte, d_out, at);
    if (dwpe == nullptr)
        return;
    mist_row_launch over = mist_lay_out_rows(at.s, at.h / unit, N_THREADS);
    MIST_CUDA_LAUNCH((add_up_positions<T, G, unit>), over.grid, over.block, 0, stream,
                     dwpe, d_out, at);
}

} // namespace

void mist_cuda_embedding_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                 void *out, const int32_t *tokens, const void *wte,
                                 const void *wpe, int64_t rows,
                                 const struct mist_chunks *chunks, int64_t h,
                                 int64_t first_token, int64_t n_local)
{
    const embedding at = embedding_of(tokens, rows, chunks, h, first_token, n_local);

    if (rows == 0)
        return;
    MIST_CUDA_BY_UNIT(
        dtype, mist_are_aligned(out, wte, wpe), h, T, unit,
        launch_look_up<T, unit>(stream, (T *)out, (const T *)wte, (const T *)wpe, at));
}

void mist_cuda_embedding_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  enum mist_dtype gradient_dtype, void *dwte, void *dwpe,
                                  const int32_t *tokens, const void *d_out, int64_t rows,
                                  const struct mist_chunks *chunks, int64_t h,
                                  int64_t first_token, int64_t n_local)
{
    const embedding at = embedding_of(tokens, rows, chunks, h, first_token, n_local);

    if (rows == 0)
        return;
    MIST_CUDA_BY_UNIT(
        dtype, mist_are_aligned(d_out, dwte, dwpe), h, T, unit,
        MIST_CUDA_BY_DTYPE(gradient_dtype, G,
                           launch_backward<T, G, unit>(stream, (G *)dwte, (G *)dwpe,
                                                       (const T *)d_out, at)));
}
