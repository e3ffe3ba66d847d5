/*
 * Cross-entropy of logits on the GPU, turned into its gradient in place; formulas and
 * slices of the vocabulary as in exec/operators/cpu_loss.c.
 *
 * A block of threads has one row and goes over it twice. The first time every thread
 * keeps the maximum of what it has seen and the sum of exp relative to it, which it
 * scales when the maximum rises (Milakov and Gimelshein 2018, "Online normalizer
 * calculation for softmax"); the second time it reads, and writes the gradient. A row is
 * as large as a block's share of the second-level cache, so one block of many threads
 * reads it from memory once.
 *
 * A row may begin at any element: what comes before the first and after the last whole
 * pack of 16 bytes goes element by element.
 */
#include "exec/cuda/launch.cuh"

#include <float.h> /* FLT_MAX */
#include <math.h>  /* INFINITY, expf, logf */

enum {
    WARP = 32,
    MAX_THREADS = 1024,
    AT_ONCE = 4, /* packs that a thread loads before it uses them */
};

/* ----------------------------------------------------------------------- exp and sums */

/* exp(x) for x <= 0, NaN for NaN: relative error 2^-22 + |x| 2^-24; no denormals. */
static __device__ __forceinline__ float exp_of(float x)
{
#ifdef __CUDA_ARCH__
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.44269504088896341f));
    return y;
#else
    return expf(x);
#endif
}

/* Of all threads of the block, which all get it; partial: one per warp, of its own. */
static __device__ __forceinline__ float block_max(float value, float *partial)
{
    value = mist_warp_max(value);
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = value;
    __syncthreads();
    for (int w = 0; w < (int)blockDim.x / WARP; w++)
        value = fmaxf(value, partial[w]);
    return value;
}

static __device__ __forceinline__ float block_sum(float value, float *partial)
{
    value = mist_warp_sum(value);
    if (threadIdx.x % WARP == 0)
        partial[threadIdx.x / WARP] = value;
    __syncthreads();
    value = 0.0f;
    for (int w = 0; w < (int)blockDim.x / WARP; w++)
        value += partial[w];
    return value;
}

/* ------------------------------------------------------------------- a row, in pieces */

/* [0, n_head), then whole packs, then n_tail elements; both below a pack's length. */
template <typename T> struct row_parts {
    int n_head, n_packs, n_tail;
    int64_t tail; /* where the tail begins */
};

template <typename T>
static __device__ __forceinline__ row_parts<T> parts_of(const T *row, int64_t n)
{
    constexpr int n_pack = mist_pack<T>::n;
    int64_t head = (int64_t)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
    row_parts<T> parts;

    parts.n_head = (int)(head < n ? head : n);
    parts.n_packs = (int)((n - parts.n_head) / n_pack);
    parts.tail = parts.n_head + (int64_t)parts.n_packs * n_pack;
    parts.n_tail = (int)(n - parts.tail);
    return parts;
}

/* The element that the calling thread takes besides packs; -1: none. */
template <typename T>
static __device__ __forceinline__ int64_t single_of(const row_parts<T> &parts)
{
    int t = (int)threadIdx.x;

    if (t < parts.n_head)
        return t;
    return t - parts.n_head < parts.n_tail ? parts.tail + t - parts.n_head : -1;
}

/* What a thread knows of a row: below -FLT_MAX is no maximum, so that exp() of the
 * difference to it is a number. */
struct online {
    float max, sum;
};

template <typename T, int n_at_once>
static __device__ __forceinline__ void add_packs(online *seen, const mist_pack<T> *packs)
{
    float max = seen->max, sum = 0.0f;

#pragma unroll
    for (int k = 0; k < n_at_once; k++)
#pragma unroll
        for (int e = 0; e < mist_pack<T>::n; e++)
            max = fmaxf(max, mist_to_float(packs[k].v[e]));
#pragma unroll
    for (int k = 0; k < n_at_once; k++)
#pragma unroll
        for (int e = 0; e < mist_pack<T>::n; e++)
            sum += exp_of(mist_to_float(packs[k].v[e]) - max);
    seen->sum = seen->sum * exp_of(seen->max - max) + sum;
    seen->max = max;
}

/* Maximum and sum of exp(l - maximum) of row[0 .. n), n >= 1, for all threads. */
template <typename T>
static __device__ __forceinline__ online scan_row(const T *row, int64_t n, float *partial)
{
    const row_parts<T> parts = parts_of(row, n);
    const mist_pack<T> *packs = (const mist_pack<T> *)(const void *)(row + parts.n_head);
    int n_threads = (int)blockDim.x, i = (int)threadIdx.x;
    online seen = {-FLT_MAX, 0.0f};

    for (; i + (AT_ONCE - 1) * n_threads < parts.n_packs; i += AT_ONCE * n_threads) {
        mist_pack<T> held[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            held[k] = packs[i + k * n_threads];
        add_packs<T, AT_ONCE>(&seen, held);
    }
    for (; i < parts.n_packs; i += n_threads) {
        mist_pack<T> held = packs[i];
        add_packs<T, 1>(&seen, &held);
    }
    int64_t single = single_of(parts);
    if (single >= 0) {
        float x = mist_to_float(row[single]), max = fmaxf(seen.max, x);
        seen.sum = seen.sum * exp_of(seen.max - max) + exp_of(x - max);
        seen.max = max;
    }
    float max = block_max(seen.max, partial);
    return {max, block_sum(seen.sum * exp_of(seen.max - max), partial + WARP)};
}

/* ----------------------------------------------------------------------- the gradient */

/* What makes a gradient of a logit. */
struct slope {
    float max, factor; /* scale / sum of exp(l - max) */
    float scale;
    float target_logit; /* of this row; any number where target is not in it */
    int64_t target;     /* its column here; below 0 or from n_valid on: not in it */
};

template <typename T>
static __device__ __forceinline__ T gradient_of(float logit, const slope &s)
{
    return mist_from_float<T>(exp_of(logit - s.max) * s.factor);
}

template <typename T>
static __device__ __forceinline__ mist_pack<T> gradients_of(const mist_pack<T> &logits,
                                                            const slope &s)
{
    mist_pack<T> out;

#pragma unroll
    for (int e = 0; e < mist_pack<T>::n; e++)
        out.v[e] = gradient_of<T>(mist_to_float(logits.v[e]), s);
    return out;
}

/*
 * row[0 .. n_valid) = its gradient, the padding up to n = 0. The thread that overwrites
 * the target's logit takes off scale there, from s.target_logit, which it has read
 * before; what others have in it may be overwritten already, and they don't look.
 */
template <typename T>
static __device__ __forceinline__ void finish_row(T *row, int64_t n, int64_t n_valid,
                                                  const slope &s)
{
    constexpr int n_pack = mist_pack<T>::n;
    const row_parts<T> parts = parts_of((const T *)row, n_valid);
    mist_pack<T> *packs = (mist_pack<T> *)(void *)(row + parts.n_head);
    int n_threads = (int)blockDim.x, i = (int)threadIdx.x;
    bool has_target = false;

    for (; i + (AT_ONCE - 1) * n_threads < parts.n_packs; i += AT_ONCE * n_threads) {
        mist_pack<T> held[AT_ONCE];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++)
            held[k] = packs[i + k * n_threads];
#pragma unroll
        for (int k = 0; k < AT_ONCE; k++) {
            int64_t first = parts.n_head + (int64_t)(i + k * n_threads) * n_pack;
            packs[i + k * n_threads] = gradients_of(held[k], s);
            has_target |= (uint64_t)(s.target - first) < (uint64_t)n_pack;
        }
    }
    for (; i < parts.n_packs; i += n_threads) {
        int64_t first = parts.n_head + (int64_t)i * n_pack;
        packs[i] = gradients_of(packs[i], s);
        has_target |= (uint64_t)(s.target - first) < (uint64_t)n_pack;
    }
    int64_t single = single_of(parts);
    if (single >= 0) {
        row[single] = gradient_of<T>(mist_to_float(row[single]), s);
        has_target |= single == s.target;
    }
    if (has_target)
        row[s.target] =
            mist_from_float<T>(fmaf(exp_of(s.target_logit - s.max), s.factor, -s.scale));
    for (int64_t j = n_valid + threadIdx.x; j < n; j += n_threads)
        row[j] = mist_from_float<T>(0.0f);
}

/* A row without target takes no part: no loss, no gradient. */
static __device__ __forceinline__ float loss_of(int32_t target, float max, float sum,
                                                float target_logit)
{
    return target < 0 ? 0.0f : logf(sum) + (max - target_logit);
}

static __device__ __forceinline__ float slope_of(int32_t target, float scale)
{
    return target < 0 ? 0.0f : scale;
}

/* ---------------------------------------------------------------------------- kernels */

template <typename T> struct loss_args {
    T *logits;
    float *losses, *stats;
    const int32_t *targets;
    const float *all_stats;
    int64_t rows, n, n_valid, first_token, tp;
    float scale;
};

/* The logit of the target; 0 where it is not one of the valid columns. */
template <typename T>
static __device__ __forceinline__ float target_logit_of(const loss_args<T> &at,
                                                        const T *row, int64_t target)
{
    return target >= 0 && target < at.n_valid ? mist_to_float(row[target]) : 0.0f;
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS) cross_entropy(loss_args<T> at)
{
    __shared__ float partial[2 * WARP];
    T *row = at.logits + blockIdx.x * at.n;
    int32_t target = at.targets[blockIdx.x];
    float target_logit = target_logit_of(at, row, target);
    float scale = slope_of(target, at.scale);
    online all = scan_row((const T *)row, at.n_valid, partial);

    if (threadIdx.x == 0)
        at.losses[blockIdx.x] = loss_of(target, all.max, all.sum, target_logit);
    finish_row(row, at.n, at.n_valid,
               {all.max, scale / all.sum, scale, target_logit, target});
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS) cross_entropy_stats(loss_args<T> at)
{
    __shared__ float partial[2 * WARP];
    const T *row = at.logits + blockIdx.x * at.n;
    float *stats = at.stats + 3 * (int64_t)blockIdx.x;
    online all = scan_row(row, at.n_valid, partial);

    if (threadIdx.x == 0) {
        stats[0] = at.n_valid > 0 ? all.max : -INFINITY;
        stats[1] = all.sum;
        stats[2] = target_logit_of(at, row, at.targets[blockIdx.x] - at.first_token);
    }
}

/* Slices in order. */
template <typename T>
static __device__ __forceinline__ online combine_slices(const loss_args<T> &at,
                                                        float *target_logit)
{
    online all = {-FLT_MAX, 0.0f};

    *target_logit = 0.0f;
    for (int64_t t = 0; t < at.tp; t++)
        all.max = fmaxf(all.max, at.all_stats[(t * at.rows + blockIdx.x) * 3]);
    for (int64_t t = 0; t < at.tp; t++) {
        const float *slice = at.all_stats + (t * at.rows + blockIdx.x) * 3;
        all.sum += slice[1] * exp_of(slice[0] - all.max);
        *target_logit += slice[2];
    }
    return all;
}

template <typename T>
static __global__ void __launch_bounds__(MAX_THREADS)
    cross_entropy_parallel(loss_args<T> at)
{
    T *row = at.logits + blockIdx.x * at.n;
    int32_t token = at.targets[blockIdx.x];
    int64_t target = token - at.first_token;
    float own_logit = target_logit_of(at, row, target), target_logit;
    float scale = slope_of(token, at.scale);
    online all = combine_slices(at, &target_logit);

    if (threadIdx.x == 0)
        at.losses[blockIdx.x] = loss_of(token, all.max, all.sum, target_logit);
    finish_row(row, at.n, at.n_valid,
               {all.max, scale / all.sum, scale, own_logit, target});
}

/* ----------------------------------------------------------------------------- launch */

/* Enough to hide memory's latency, few enough that all of them have something to do. */
static unsigned threads_for(int64_t row_bytes)
{
    if (row_bytes >= 128 << 10)
        return MAX_THREADS;
    return row_bytes >= 32 << 10 ? 512 : 256;
}

template <typename T, void (*kernel)(loss_args<T>)>
static void launch(mist_cuda_stream stream, const loss_args<T> &at)
{
    if (at.rows > 0)
        MIST_CUDA_LAUNCH(kernel, dim3((unsigned)at.rows),
                         dim3(threads_for(at.n * (int64_t)sizeof(T))), 0, stream, at);
}

void mist_cuda_cross_entropy(mist_cuda_stream stream, enum mist_dtype dtype, void *logits,
                             float *losses, const int32_t *targets, int64_t rows,
                             int64_t vocab, int64_t n_valid_vocab, float scale)
{
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        launch<T, cross_entropy<T>>(stream, {(T *)logits, losses, NULL, targets, NULL,
                                             rows, vocab, n_valid_vocab, 0, 1, scale}));
}

void mist_cuda_cross_entropy_stats(mist_cuda_stream stream, enum mist_dtype dtype,
                                   float *stats, const void *logits,
                                   const int32_t *targets, int64_t rows, int64_t n_local,
                                   int64_t n_valid_local, int64_t first_token)
{
    MIST_CUDA_BY_DTYPE(dtype, T,
                       launch<T, cross_entropy_stats<T>>(
                           stream, {(T *)(uintptr_t)logits, NULL, stats, targets, NULL,
                                    rows, n_local, n_valid_local, first_token, 1, 0.0f}));
}

void mist_cuda_cross_entropy_parallel(mist_cuda_stream stream, enum mist_dtype dtype,
                                      void *logits, float *losses, const int32_t *targets,
                                      const float *all_stats, int64_t rows,
                                      int64_t n_local, int64_t n_valid_local,
                                      int64_t first_token, int64_t tp, float scale)
{
    MIST_CUDA_BY_DTYPE(dtype, T,
                       launch<T, cross_entropy_parallel<T>>(
                           stream, {(T *)logits, losses, NULL, targets, all_stats, rows,
                                    n_local, n_valid_local, first_token, tp, scale}));
}
