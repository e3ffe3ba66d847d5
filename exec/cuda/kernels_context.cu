/*
 * Keys and values of context-parallel ranks: out of what a rank projects and into the
 * gradient of it, from the order of ranks into that of the sequence and back. Copies of rows;
 * a thread has a unit of one.
 */
#include "exec/cuda/kernels.h"
#include "exec/cuda/vector.cuh"
#include "exec/operators/cpu_kernels.h" /* struct mist_cpu_attention_part */

namespace
{

constexpr int N_THREADS = 256;

struct kv {
    int64_t rows;         /* tokens: a rank's, or all */
    int64_t width, token; /* elements of keys and values of a token; of all of it */
    int64_t b, s, n;
    int64_t length; /* tokens of a chunk */
};

kv kv_of(const mist_cpu_attention_part *of, bool is_all)
{
    const mist_cpu_attention &whole = of->whole;
    const int64_t d = whole.head_dim;

    return {whole.b * whole.s / (is_all ? 1 : of->n),
            2 * whole.kv_heads * d,
            (whole.heads + 2 * whole.kv_heads) * d,
            whole.b,
            whole.s,
            of->n,
            whole.s / (2 * of->n)};
}

/* Where keys and values of token i of a rank begin in what it projects. */
__device__ __forceinline__ int64_t in_packed(const kv &at, int64_t i)
{
    return (i + 1) * at.token - at.width;
}

/* Where row i of [n, b, 2 chunks, length] stands in [b, s]. */
__device__ __forceinline__ int64_t in_order(const kv &at, int64_t i)
{
    const int64_t i_chunk = i / at.length, i_in = i % at.length;
    const int64_t i_rank = i_chunk / 2 / at.b, i_sample = i_chunk / 2 % at.b;
    const int64_t place = i_chunk % 2 ? 2 * at.n - 1 - i_rank : i_rank;
    return i_sample * at.s + place * at.length + i_in;
}

/* to and from: the first dense rows; the others lie elsewhere. */
enum move { PACK, UNPACK, ORDER, DISORDER };

template <typename T, int unit>
__global__ void __launch_bounds__(N_THREADS)
    move_rows(T *__restrict__ to, const T *__restrict__ from, kv at, move how)
{
    const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * unit;

    if (column >= at.width)
        return;
#pragma unroll 1
    for (int64_t i = (int64_t)blockIdx.y * blockDim.y + threadIdx.y; i < at.rows;
         i += (int64_t)gridDim.y * blockDim.y) {
        const int64_t dense = i * at.width;
        const int64_t other =
            how <= UNPACK ? in_packed(at, i) : in_order(at, i) * at.width;
        const bool is_to_dense = how == PACK || how == DISORDER;
        mist_unit<T, unit> x;
        x.load(from + (is_to_dense ? other : dense) + column);
        x.store(to + (is_to_dense ? dense : other) + column);
    }
}

template <typename T, int unit>
void launch(mist_cuda_stream stream, T *to, const T *from, const kv &at, move how)
{
    mist_row_launch over = mist_lay_out_rows(at.rows, at.width / unit, N_THREADS);

    MIST_CUDA_LAUNCH((move_rows<T, unit>), over.grid, over.block, 0, stream, to, from, at,
                     how);
}

void run(mist_cuda_stream stream, enum mist_dtype dtype, void *to, const void *from,
         const mist_cpu_attention_part *of, move how)
{
    const kv at = kv_of(of, how >= ORDER);

    if (at.rows == 0)
        return;
    MIST_CUDA_BY_UNIT(dtype, mist_are_aligned(to, from), of->whole.head_dim, T, unit,
                      launch<T, unit>(stream, (T *)to, (const T *)from, at, how));
}

} // namespace

extern "C" void mist_cuda_kv_pack(mist_cuda_stream stream, enum mist_dtype dtype,
                                  void *kv, const void *qkv,
                                  const struct mist_cpu_attention_part *part)
{
    run(stream, dtype, kv, qkv, part, PACK);
}

extern "C" void mist_cuda_kv_unpack(mist_cuda_stream stream, enum mist_dtype dtype,
                                    void *dqkv, const void *dkv,
                                    const struct mist_cpu_attention_part *part)
{
    run(stream, dtype, dqkv, dkv, part, UNPACK);
}

extern "C" void mist_cuda_kv_order(mist_cuda_stream stream, enum mist_dtype dtype,
                                   void *kv, const void *ranks,
                                   const struct mist_cpu_attention_part *part)
{
    run(stream, dtype, kv, ranks, part, ORDER);
}

extern "C" void mist_cuda_kv_disorder(mist_cuda_stream stream, enum mist_dtype dtype,
                                      void *ranks, const void *kv,
                                      const struct mist_cpu_attention_part *part)
{
    run(stream, dtype, ranks, kv, part, DISORDER);
}
