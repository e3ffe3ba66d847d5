/*
 * The part of CUDA C++ that the sources of exec/cuda use, for a plain C++17 compiler.
 *
 *     g++ -std=c++17 -fno-exceptions -fno-rtti -I. -include tests/emulation/emulation.h \
 *         -Wno-unknown-pragmas -x c++ -c exec/cuda/kernels_x.cu
 *
 * A launch runs at once, in the caller: blocks one after another, every thread of a block
 * as a fiber that gives way at barriers (emulation.cc). Whole-block barriers and
 * operations of a whole warp are there; what a GPU would not define aborts with a
 * message: a barrier that some threads never reach, a mask that is not full, a warp with
 * fewer than 32 lanes, a launch of no blocks, too many threads or too much shared memory,
 * and writing behind dynamic shared memory, which is 0xFF bytes before each block.
 *
 * Left out: atomics' order in memory, textures, streams that run side by side, and
 * anything about time. Static shared memory keeps what the block before left.
 */
#ifndef MIST_TESTS_EMULATION_EMULATION_H
#define MIST_TESTS_EMULATION_EMULATION_H

#include "tests/emulation/streams.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef __cplusplus
#error "emulation.h is for the .cu sources; tests include order.h and device_memory.h"
#endif

#define MIST_EMULATION

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __shared__      static
#define __align__(n)    __attribute__((aligned(n)))
#define __launch_bounds__(...)

/* --------------------------------------------------------------------- types, indices */

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1)
        : x(x_), y(y_), z(z_)
    {
    }
};

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};
struct alignas(16) int4 {
    int x, y, z, w;
};

static inline float2 make_float2(float x, float y)
{
    return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w)
{
    return {x, y, z, w};
}
static inline uint2 make_uint2(unsigned x, unsigned y)
{
    return {x, y};
}
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w)
{
    return {x, y, z, w};
}
static inline int4 make_int4(int x, int y, int z, int w)
{
    return {x, y, z, w};
}

/* Those of the thread that runs. */
extern dim3 threadIdx, blockIdx, blockDim, gridDim;
static constexpr int warpSize = 32;

/* --------------------------------------------------------------------------- launches */

extern unsigned char *mist_emulation_shared;

void mist_emulation_run(const char *name, const void *kernel, dim3 grid, dim3 block,
                        size_t shared_bytes, void (*body)(void *), void *context);
void mist_emulation_allow_shared(const void *kernel, size_t bytes);

template <typename K, typename... A>
void mist_emulation_launch(const char *name, K *kernel, dim3 grid, dim3 block,
                           size_t shared_bytes, A... arguments)
{
    auto body = [&] { kernel(arguments...); };
    mist_emulation_run(
        name, (const void *)kernel, grid, block, shared_bytes,
        [](void *context) { (*(decltype(body) *)context)(); }, &body);
}

template <typename K> void mist_emulation_allow(K *kernel, size_t bytes)
{
    mist_emulation_allow_shared((const void *)kernel, bytes);
}

/* Into an emulated stream, which runs it at once or as late as may be (streams.h). */
template <typename K, typename... A>
void mist_emulation_enqueue(struct CUstream_st *stream, const char *name, K *kernel,
                            dim3 grid, dim3 block, size_t shared_bytes, A... arguments)
{
    if (mist_emulated_watch) {
        mist_emulated_watch(name);
        return;
    }
    auto launch = [=] {
        mist_emulation_launch(name, kernel, grid, block, shared_bytes, arguments...);
    };
    mist_emulated_stream_run(
        stream, [](void *context) { (*(decltype(launch) *)context)(); }, &launch,
        sizeof launch);
}

#define MIST_CUDA_START(kernel, grid, block, shared_bytes, stream, ...)                  \
    mist_emulation_enqueue((stream), #kernel, kernel, (grid), (block),                   \
                           (size_t)(shared_bytes), __VA_ARGS__)
#define MIST_CUDA_ALLOW_SHARED(kernel, bytes)                                            \
    mist_emulation_allow(kernel, (size_t)(bytes))
#define MIST_CUDA_SHARED(name) unsigned char *const name = mist_emulation_shared

/* --------------------------------------------------------------------------- barriers */

/* How many threads of the block gave a predicate that is not 0. */
int mist_emulation_sync_block(int predicate);
/* Leaves value for the other lanes and returns all 32, valid until the next operation but
 * one of this warp. what must be the same text in all lanes. */
const uint64_t *mist_emulation_sync_warp(const char *what, unsigned mask, uint64_t value);
unsigned mist_emulation_lane();

static inline void __syncthreads()
{
    mist_emulation_sync_block(0);
}
static inline int __syncthreads_count(int predicate)
{
    return mist_emulation_sync_block(predicate);
}
static inline int __syncthreads_or(int predicate)
{
    return mist_emulation_sync_block(predicate) > 0;
}
static inline int __syncthreads_and(int predicate)
{
    return mist_emulation_sync_block(!predicate) == 0;
}

static inline void __syncwarp(unsigned mask = 0xFFFFFFFFu)
{
    mist_emulation_sync_warp("__syncwarp", mask, 0);
}

template <typename T>
T mist_emulation_shuffle(const char *what, unsigned mask, T value, int lane)
{
    uint64_t bits = 0;
    static_assert(sizeof value <= sizeof bits, "a shuffle moves at most 8 bytes");
    memcpy(&bits, &value, sizeof value);
    const uint64_t *all = mist_emulation_sync_warp(what, mask, bits);
    memcpy(&value, &all[lane], sizeof value);
    return value;
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = warpSize)
{
    int own = (int)mist_emulation_lane();
    return mist_emulation_shuffle("__shfl_sync", mask, value,
                                  (own & ~(width - 1)) + (source & (width - 1)));
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = warpSize)
{
    int own = (int)mist_emulation_lane(), from = own ^ lane_mask;
    return mist_emulation_shuffle("__shfl_xor_sync", mask, value,
                                  from > (own | (width - 1)) ? own : from);
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    int own = (int)mist_emulation_lane(), from = own + (int)delta;
    return mist_emulation_shuffle("__shfl_down_sync", mask, value,
                                  from > (own | (width - 1)) ? own : from);
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = warpSize)
{
    int own = (int)mist_emulation_lane(), from = own - (int)delta;
    return mist_emulation_shuffle("__shfl_up_sync", mask, value,
                                  from < (own & ~(width - 1)) ? own : from);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *all = mist_emulation_sync_warp("__ballot_sync", mask, predicate != 0);
    unsigned out = 0;
    for (int i = 0; i < warpSize; i++)
        out |= (unsigned)all[i] << i;
    return out;
}

static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}

static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) == 0xFFFFFFFFu;
}

static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

/* ---------------------------------------------------------------------------- atomics */

/* All return the old value. */
#define MIST_EMULATION_ATOMIC(name, type, expression)                                    \
    static inline type name(type *address, type value)                                   \
    {                                                                                    \
        type old = *address;                                                             \
        *address = (type)(expression);                                                   \
        return old;                                                                      \
    }
#define MIST_EMULATION_ATOMICS(type)                                                     \
    MIST_EMULATION_ATOMIC(atomicAdd, type, old + value)                                  \
    MIST_EMULATION_ATOMIC(atomicMax, type, value > old ? value : old)                    \
    MIST_EMULATION_ATOMIC(atomicMin, type, value < old ? value : old)                    \
    MIST_EMULATION_ATOMIC(atomicExch, type, value)
MIST_EMULATION_ATOMICS(int)
MIST_EMULATION_ATOMICS(unsigned)
MIST_EMULATION_ATOMICS(unsigned long long)
MIST_EMULATION_ATOMIC(atomicMax, long long, value > old ? value : old)
MIST_EMULATION_ATOMIC(atomicMin, long long, value < old ? value : old)
MIST_EMULATION_ATOMIC(atomicAdd, float, old + value)
MIST_EMULATION_ATOMIC(atomicOr, unsigned, old | value)
MIST_EMULATION_ATOMIC(atomicOr, int, old | value)
#undef MIST_EMULATION_ATOMICS
#undef MIST_EMULATION_ATOMIC

template <typename T> T atomicCAS(T *address, T compare, T value)
{
    T old = *address;
    if (old == compare)
        *address = value;
    return old;
}

/* ----------------------------------------------------------------- memory and numbers */

template <typename T> static inline T __ldg(const T *address)
{
    return *address;
}
template <typename T> static inline T __ldcs(const T *address)
{
    return *address;
}
template <typename T> static inline void __stcs(T *address, T value)
{
    *address = value;
}

template <typename T> static inline T min(T a, T b)
{
    return b < a ? b : a;
}
template <typename T> static inline T max(T a, T b)
{
    return a < b ? b : a;
}

/* Macros, as the C library has functions of these names. */
#define __expf(x) expf(x)
#define __logf(x) logf(x)

static inline float rsqrtf(float x)
{
    return 1.0f / sqrtf(x);
}
static inline float __fdividef(float a, float b)
{
    return a / b;
}

/* Never contracted to a fused multiply-add. */
static inline float __fadd_rn(float a, float b)
{
    return a + b;
}
static inline float __fsub_rn(float a, float b)
{
    return a - b;
}
static inline float __fmul_rn(float a, float b)
{
    return a * b;
}
static inline float __fdiv_rn(float a, float b)
{
    return a / b;
}
static inline float __fsqrt_rn(float x)
{
    return sqrtf(x);
}
static inline float __frcp_rn(float x)
{
    return 1.0f / x;
}
static inline float __fmaf_rn(float a, float b, float c)
{
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b)
{
    return a + b;
}
static inline double __dmul_rn(double a, double b)
{
    return a * b;
}
static inline double __ddiv_rn(double a, double b)
{
    return a / b;
}
static inline double __dsqrt_rn(double x)
{
    return sqrt(x);
}
static inline long long __double2ll_rn(double x)
{
    return llrint(x);
}
static inline long long __float2ll_rn(float x)
{
    return llrintf(x);
}
static inline int __float2int_rn(float x)
{
    return (int)lrintf(x);
}

template <typename To, typename From> To mist_emulation_bits(From from)
{
    To to;
    static_assert(sizeof to == sizeof from, "the same number of bits");
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x)
{
    return mist_emulation_bits<unsigned>(x);
}
static inline int __float_as_int(float x)
{
    return mist_emulation_bits<int>(x);
}
static inline float __uint_as_float(unsigned x)
{
    return mist_emulation_bits<float>(x);
}
static inline float __int_as_float(int x)
{
    return mist_emulation_bits<float>(x);
}
static inline long long __double_as_longlong(double x)
{
    return mist_emulation_bits<long long>(x);
}
static inline double __longlong_as_double(long long x)
{
    return mist_emulation_bits<double>(x);
}
static inline int __popc(unsigned x)
{
    return __builtin_popcount(x);
}
static inline int __clz(int x)
{
    return x == 0 ? 32 : __builtin_clz((unsigned)x);
}
static inline int __ffs(int x)
{
    return __builtin_ffs(x);
}

#endif
