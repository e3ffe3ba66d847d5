/*
 * LayerNorm and RMSNorm on the GPU; formulas as in exec/operators/cpu_norm.c. See norm_rows.cuh;
 * the backward is in kernels_norm_backward.cu.
 *
 * Mean and variance are two sums over what is held, as exact as the CPU's.
 */
#include "exec/cuda/norm_rows.cuh"

#include <math.h> /* sqrtf */

enum { FORWARD_THREADS = 256 };

template <typename T> struct forward_args {
    T *out, *residual; /* residual NULL: norm of a */
    float *stats;
    const T *a, *b, *weight, *bias; /* bias may be NULL */
    float eps, offset;              /* the latter is added to every weight */
    bool is_layer;
    int64_t rows, h;
};

/* The row's packs of this thread: a, or a + b, which is also stored. Zeros elsewhere. */
template <typename T, int n_packs>
static __device__ __forceinline__ void hold_input(mist_pack<T> x[n_packs],
                                                  const forward_args<T> &at, int64_t row)
{
    constexpr int n = mist_pack<T>::n;
    int h_packs = row < at.rows ? (int)(at.h / n) : 0;

#pragma unroll
    for (int k = 0; k < n_packs; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        x[k] = mist_pack<T>{};
        if (i < h_packs)
            x[k] = load_pack(at.a + row * at.h, i);
    }
    if (!at.residual)
        return;
#pragma unroll
    for (int k = 0; k < n_packs; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i >= h_packs)
            continue;
        mist_pack<T> b = load_pack(at.b + row * at.h, i);
#pragma unroll
        for (int e = 0; e < n; e++)
            x[k].v[e] =
                mist_from_float<T>(mist_to_float(x[k].v[e]) + mist_to_float(b.v[e]));
        store_pack(at.residual + row * at.h, i, x[k]);
    }
}

template <typename T>
static __device__ __forceinline__ mist_pack<T>
normalise_pack(const mist_pack<T> &x, const forward_args<T> &at, int i_pack, float mean,
               float rstd)
{
    mist_pack<T> weight = load_pack(at.weight, i_pack), bias = {}, out;

    if (at.bias)
        bias = load_pack(at.bias, i_pack);
#pragma unroll
    for (int e = 0; e < mist_pack<T>::n; e++)
        out.v[e] = mist_from_float<T>((mist_to_float(x.v[e]) - mean) * rstd *
                                          (at.offset + mist_to_float(weight.v[e])) +
                                      mist_to_float(bias.v[e]));
    return out;
}

template <typename T, int n_packs>
static __global__ void __launch_bounds__(MAX_THREADS) forward_held(forward_args<T> at)
{
    __shared__ float partial[2][MAX_THREADS / WARP];
    constexpr int n = mist_pack<T>::n;
    int64_t row = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int h_packs = row < at.rows ? (int)(at.h / n) : 0;
    float sum = 0.0f, squares = 0.0f, mean = 0.0f;
    mist_pack<T> x[n_packs];

    hold_input<T, n_packs>(x, at, row);
    if (at.is_layer) {
#pragma unroll
        for (int k = 0; k < n_packs; k++)
#pragma unroll
            for (int e = 0; e < n; e++)
                sum += mist_to_float(x[k].v[e]);
        mean = row_sum(sum, partial[0]) / (float)at.h;
    }
#pragma unroll
    for (int k = 0; k < n_packs; k++)
#pragma unroll
        for (int e = 0; e < n; e++) {
            float centred = mist_to_float(x[k].v[e]) - mean;
            if ((int)threadIdx.x + k * (int)blockDim.x < h_packs)
                squares += centred * centred;
        }
    float rstd = 1.0f / sqrtf(row_sum(squares, partial[1]) / (float)at.h + at.eps);
#pragma unroll
    for (int k = 0; k < n_packs; k++) {
        int i = (int)threadIdx.x + k * (int)blockDim.x;
        if (i < h_packs)
            store_pack(at.out + row * at.h, i, normalise_pack(x[k], at, i, mean, rstd));
    }
    if (threadIdx.x == 0 && row < at.rows) {
        at.stats[2 * row] = mean;
        at.stats[2 * row + 1] = rstd;
    }
}

/* Any row. Every thread reads again what it has written or nobody writes. */
template <typename T> static __global__ void forward_any(forward_args<T> at)
{
    __shared__ float partial[2][ANY_THREADS / WARP];
    int64_t row = blockIdx.x, begin = row * at.h;
    const T *x = at.residual ? at.residual + begin : at.a + begin;
    float sum = 0.0f, squares = 0.0f, mean = 0.0f;

    for (int64_t j = threadIdx.x; at.residual && j < at.h; j += blockDim.x)
        at.residual[begin + j] = mist_from_float<T>(mist_to_float(at.a[begin + j]) +
                                                    mist_to_float(at.b[begin + j]));
    if (at.is_layer) {
        for (int64_t j = threadIdx.x; j < at.h; j += blockDim.x)
            sum += mist_to_float(x[j]);
        mean = row_sum(sum, partial[0]) / (float)at.h;
    }
    for (int64_t j = threadIdx.x; j < at.h; j += blockDim.x) {
        float centred = mist_to_float(x[j]) - mean;
        squares += centred * centred;
    }
    float rstd = 1.0f / sqrtf(row_sum(squares, partial[1]) / (float)at.h + at.eps);
    for (int64_t j = threadIdx.x; j < at.h; j += blockDim.x)
        at.out[begin + j] =
            mist_from_float<T>((mist_to_float(x[j]) - mean) * rstd *
                                   (at.offset + mist_to_float(at.weight[j])) +
                               (at.bias ? mist_to_float(at.bias[j]) : 0.0f));
    if (threadIdx.x == 0) {
        at.stats[2 * row] = mean;
        at.stats[2 * row + 1] = rstd;
    }
}

template <typename T, int n_packs>
static void launch_forward_held(mist_cuda_stream stream, const forward_args<T> &at)
{
    int threads = row_threads(at.h / mist_pack<T>::n, n_packs);
    int n_rows = threads < FORWARD_THREADS ? FORWARD_THREADS / threads : 1;

    MIST_CUDA_LAUNCH((forward_held<T, n_packs>),
                     dim3((unsigned)((at.rows + n_rows - 1) / n_rows)),
                     dim3((unsigned)threads, (unsigned)n_rows), 0, stream, at);
}

template <typename T>
static void launch_forward(mist_cuda_stream stream, const forward_args<T> &at)
{
    int64_t h_packs = at.h / mist_pack<T>::n;
    bool is_whole = at.h % mist_pack<T>::n == 0 &&
                    mist_are_aligned(at.out, at.residual, at.a, at.b, at.weight, at.bias);

    if (at.rows <= 0 || at.h <= 0)
        return;
    if (!is_whole || h_packs > 4 * MAX_THREADS)
        MIST_CUDA_LAUNCH((forward_any<T>), dim3((unsigned)at.rows), dim3(ANY_THREADS), 0,
                         stream, at);
    else if (h_packs <= WARP)
        launch_forward_held<T, 1>(stream, at);
    else if (h_packs <= 2 * WARP)
        launch_forward_held<T, 2>(stream, at);
    else
        launch_forward_held<T, 4>(stream, at);
}

void mist_cuda_norm_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                            enum mist_cpu_norm_kind kind, void *out, void *residual,
                            float *stats, const void *a, const void *b,
                            const void *weight, const void *bias, float eps, int64_t rows,
                            int64_t h)
{
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        launch_forward<T>(stream, {(T *)out, (T *)residual, stats, (const T *)a,
                                   (const T *)b, (const T *)weight, (const T *)bias, eps,
                                   mist_cpu_norm_offset(kind),
                                   mist_cpu_norm_is_centred(kind), rows, h}));
}
