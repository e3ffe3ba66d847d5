/*
 * What the .cu sources share: number formats, vectors of 16 bytes, and the launch.
 *
 * The sources compile with nvcc and, for tests, as plain C++17: there
 * tests/emulation/emulation.h, included first, gives __global__, threadIdx,
 * __syncthreads(), warp shuffles, atomics and the launch, with a fiber for each thread of
 * a block. So use only what that header has; write MIST_CUDA_LAUNCH for <<< >>> and
 * MIST_CUDA_SHARED for dynamic shared memory.
 */
#ifndef MIST_EXEC_CUDA_LAUNCH_CUH
#define MIST_EXEC_CUDA_LAUNCH_CUH

#include "core/bf16.h"
#include "exec/cuda/kernels.h"

#include <math.h> /* fmaxf */
#include <stdint.h>
#include <string.h>

/* A kernel on the list mist_cuda_kernels, from the program's start on: what a launch
 * names is there, without a second place to write it down. */
extern "C" {
inline const mist_cuda_kernel *mist_cuda_kernels;
}
template <auto kernel> struct mist_cuda_listed : mist_cuda_kernel {
    static const mist_cuda_listed entry;
    mist_cuda_listed() : mist_cuda_kernel{(const void *)kernel, mist_cuda_kernels}
    {
        mist_cuda_kernels = this;
    }
};
template <auto kernel> const mist_cuda_listed<kernel> mist_cuda_listed<kernel>::entry;

/* MIST_CUDA_LAUNCH((kernel<T>), blocks, threads, shared_bytes, stream, arguments...);
 * kernel is a name, not a variable. */
#define MIST_CUDA_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                 \
    do {                                                                                 \
        (void)&mist_cuda_listed<(kernel)>::entry;                                        \
        MIST_CUDA_START(kernel, grid, block, shared_bytes, stream, __VA_ARGS__);         \
    } while (0)

#ifdef __CUDACC__
#include <cuda_bf16.h>
#define MIST_CUDA_START(kernel, grid, block, shared_bytes, stream, ...)                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
/* Before the first launch of a kernel with more than 48 KiB of dynamic shared memory. */
#define MIST_CUDA_ALLOW_SHARED(kernel, bytes)                                            \
    ((void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,     \
                                (int)(bytes)))
/* unsigned char name[]: the shared_bytes of the launch, aligned to 16 */
#define MIST_CUDA_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

/* The upper half of an fp32. */
struct mist_cuda_bf16 {
    uint16_t bits;
};

static __device__ __forceinline__ float mist_to_float(float x)
{
    return x;
}

static __device__ __forceinline__ float mist_to_float(mist_cuda_bf16 x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

template <typename T> __device__ __forceinline__ T mist_from_float(float x);

template <> __device__ __forceinline__ float mist_from_float<float>(float x)
{
    return x;
}

/* To nearest, ties to even; NaN stays NaN. */
template <>
__device__ __forceinline__ mist_cuda_bf16 mist_from_float<mist_cuda_bf16>(float x)
{
#ifdef __CUDA_ARCH__
    return {__bfloat16_as_ushort(__float2bfloat16_rn(x))};
#else
    return {mist_bf16_round(x)};
#endif
}

/* As many elements as are moved at once. */
template <typename T> struct alignas(16) mist_pack {
    static constexpr int n = 16 / (int)sizeof(T);
    T v[n];
};

/* Whether all pointers allow that; NULL does. */
template <typename... P> static inline bool mist_are_aligned(const P *...pointers)
{
    return (... && ((uintptr_t)pointers % 16 == 0));
}

static inline int64_t mist_ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

/* Of all threads of a warp, which all get it; every one of them must come. */
template <typename V> static __device__ __forceinline__ V mist_warp_sum(V value)
{
    for (int w = 16; w > 0; w /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, w);
    return value;
}

static __device__ __forceinline__ float mist_warp_max(float value)
{
    for (int w = 16; w > 0; w /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, w));
    return value;
}

/* Runs call with T = float or mist_cuda_bf16 as dtype says: MIST_CUDA_BY_DTYPE(dtype, T,
 * launch<T>(stream, (T *)out, n)) */
#define MIST_CUDA_BY_DTYPE(dtype, T, ...)                                                \
    do {                                                                                 \
        if ((dtype) == MIST_DTYPE_BF16) {                                                \
            using T = mist_cuda_bf16;                                                    \
            __VA_ARGS__;                                                                 \
        } else {                                                                         \
            using T = float;                                                             \
            __VA_ARGS__;                                                                 \
        }                                                                                \
    } while (0)

#endif
