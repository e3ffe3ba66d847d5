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

/* The blocks of dimension y or z that n of anything get; kernels go on in steps of
 * gridDim. */
static inline unsigned mist_grid_extent(int64_t n)
{
    return (unsigned)(n < 65535 ? n : 65535);
}

/* Blocks and threads: x goes over a row's units, y over rows. */
struct mist_row_launch {
    dim3 grid, block;
};

static inline mist_row_launch mist_lay_out_rows(int64_t rows, int64_t n_units,
                                                unsigned n_threads)
{
    unsigned x = 1;
    while (x < 32 && x < n_units)
        x *= 2;
    unsigned y = n_threads / x;
    return {dim3((unsigned)mist_ceil_div(n_units, x),
                 mist_grid_extent(mist_ceil_div(rows, y))),
            dim3(x, y)};
}

/* MIST_CUDA_BY_DTYPE() with unit = 16 bytes of T where all is aligned to that and rows of
 * n_row elements are made of it, else one element. */
#define MIST_CUDA_BY_UNIT(dtype, is_aligned, n_row, T, unit, ...)                        \
    MIST_CUDA_BY_DTYPE(dtype, T, {                                                       \
        if ((is_aligned) && (n_row) % mist_pack<T>::n == 0) {                            \
            constexpr int unit = mist_pack<T>::n;                                        \
            __VA_ARGS__;                                                                 \
        } else {                                                                         \
            constexpr int unit = 1;                                                      \
            __VA_ARGS__;                                                                 \
        }                                                                                \
    })

#endif
