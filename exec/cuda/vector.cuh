/*
 * Units of a few elements that move between memory and fp32 registers at once.
 *
 * A unit's bytes are moved 16 at a time, so its address has to be a multiple of 16, or of
 * its size where that is smaller; a unit of one element goes anywhere.
 */
#ifndef MIST_EXEC_CUDA_VECTOR_CUH
#define MIST_EXEC_CUDA_VECTOR_CUH

#include "exec/cuda/launch.cuh"

/* At most 16 bytes of T. */
template <typename T, int n> struct alignas(n * sizeof(T)) mist_piece {
    T v[n];
};

template <typename T, int n> struct mist_unit {
    static constexpr int n_piece = n * (int)sizeof(T) <= 16 ? n : 16 / (int)sizeof(T);
    mist_piece<T, n_piece> piece[n / n_piece];

    __device__ __forceinline__ void load(const T *from)
    {
#pragma unroll
        for (int i = 0; i < n / n_piece; i++)
            piece[i] = *(const mist_piece<T, n_piece> *)(from + i * n_piece);
    }
    __device__ __forceinline__ void store(T *to) const
    {
#pragma unroll
        for (int i = 0; i < n / n_piece; i++)
            *(mist_piece<T, n_piece> *)(to + i * n_piece) = piece[i];
    }
    __device__ __forceinline__ float get(int i) const
    {
        return mist_to_float(piece[i / n_piece].v[i % n_piece]);
    }
    __device__ __forceinline__ void set(int i, float x)
    {
        piece[i / n_piece].v[i % n_piece] = mist_from_float<T>(x);
    }
};

static inline bool mist_is_aligned(const void *ptr) /* NULL is */
{
    return (uintptr_t)ptr % 16 == 0;
}

static inline int64_t mist_ceil_div(int64_t n, int64_t d)
{
    return (n + d - 1) / d;
}

/* The blocks of dimension y or z that n of anything get; kernels go on in steps of
 * gridDim. */
static inline unsigned mist_grid_extent(int64_t n)
{
    return (unsigned)(n < 65535 ? n : 65535);
}

#endif
