/*
 * RMS norms of each head of queries and keys on the GPU; formulas as in
 * exec/operators/cpu_norm.c. A warp has a head at a time.
 *
 * The backward's blocks have some tokens each. Every lane adds up its columns' share of
 * both weights' gradients in registers, the block adds those of its warps in their order,
 * and a second kernel adds the blocks in theirs.
 */
#include "exec/cuda/norm_rows.cuh"

#include <math.h> /* sqrtf */

namespace
{

constexpr int N_WARPS = 8;
constexpr int MAX_COLUMNS = 256, N_COLUMNS = MAX_COLUMNS / WARP; /* of a lane, at most */

template <typename T> struct heads {
    T *x, *kept; /* packed qkv or its gradient; [rows, n_normed, d] */
    const T *q_weight, *k_weight;
    float eps;
    int64_t rows, n_queries, n_normed, d, token; /* elements of a token */
};

/* Sum of squares of a head, which all lanes get, as 1 / sqrt(mean + eps). */
template <typename T>
__device__ __forceinline__ float inverse_root(const T *x, const heads<T> &of)
{
    float squares = 0.0f;

    for (int64_t j = threadIdx.x; j < of.d; j += WARP)
        squares += mist_to_float(x[j]) * mist_to_float(x[j]);
    return 1.0f / sqrtf(mist_warp_sum(squares) / (float)of.d + of.eps);
}

template <typename T>
__global__ void __launch_bounds__(WARP *N_WARPS) norm_heads(heads<T> of)
{
    int64_t i = (int64_t)blockIdx.x * N_WARPS + threadIdx.y;

    if (i >= of.rows * of.n_normed)
        return;
    int64_t head = i % of.n_normed;
    T *x = of.x + i / of.n_normed * of.token + head * of.d, *kept = of.kept + i * of.d;
    const T *weight = head < of.n_queries ? of.q_weight : of.k_weight;
    float rstd = inverse_root(x, of);
    for (int64_t j = threadIdx.x; j < of.d; j += WARP) {
        kept[j] = x[j];
        x[j] = mist_from_float<T>(mist_to_float(x[j]) * rstd * mist_to_float(weight[j]));
    }
}

/* A head's dx in place; its lane's share of the weight's gradient is added to sums. */
template <typename T>
__device__ __forceinline__ void head_backward(T *dx, const T *x, const T *weight,
                                              const heads<T> &of, float sums[N_COLUMNS])
{
    float rstd = inverse_root(x, of), share = 0.0f;

    for (int64_t j = threadIdx.x; j < of.d; j += WARP)
        share += mist_to_float(weight[j]) * mist_to_float(dx[j]) *
                 (mist_to_float(x[j]) * rstd);
    float mean = mist_warp_sum(share) / (float)of.d;
#pragma unroll
    for (int k = 0; k < N_COLUMNS; k++) {
        int64_t j = threadIdx.x + (int64_t)k * WARP;
        if (j >= of.d)
            break;
        float d = mist_to_float(dx[j]), xhat = mist_to_float(x[j]) * rstd;
        sums[k] += d * xhat;
        dx[j] = mist_from_float<T>((mist_to_float(weight[j]) * d - xhat * mean) * rstd);
    }
}

/* block_sums: [2, n_blocks, d], of q and of k */
template <typename T>
__global__ void __launch_bounds__(WARP *N_WARPS)
    heads_backward(heads<T> of, float *block_sums, int64_t block_rows)
{
    __shared__ float partial[2][N_WARPS][MAX_COLUMNS];
    int64_t first = (int64_t)blockIdx.x * block_rows;
    int64_t end = first + block_rows < of.rows ? first + block_rows : of.rows;
    float q_sums[N_COLUMNS] = {0.0f}, k_sums[N_COLUMNS] = {0.0f};

    for (int64_t i = first * of.n_normed + threadIdx.y; i < end * of.n_normed;
         i += N_WARPS) {
        int64_t head = i % of.n_normed;
        T *dx = of.x + i / of.n_normed * of.token + head * of.d;
        if (head < of.n_queries)
            head_backward(dx, of.kept + i * of.d, of.q_weight, of, q_sums);
        else
            head_backward(dx, of.kept + i * of.d, of.k_weight, of, k_sums);
    }
#pragma unroll
    for (int k = 0; k < N_COLUMNS; k++) {
        partial[0][threadIdx.y][threadIdx.x + k * WARP] = q_sums[k];
        partial[1][threadIdx.y][threadIdx.x + k * WARP] = k_sums[k];
    }
    __syncthreads();
    for (int64_t j = threadIdx.y * WARP + threadIdx.x; j < of.d; j += WARP * N_WARPS)
        for (int s = 0; s < 2; s++) {
            float total = 0.0f;
            for (int w = 0; w < N_WARPS; w++)
                total += partial[s][w][j];
            block_sums[((int64_t)s * gridDim.x + blockIdx.x) * of.d + j] = total;
        }
}

template <typename T>
heads<T> heads_of(void *x, void *kept, const void *q_weight, const void *k_weight,
                  float eps, int64_t rows, int64_t n_queries, int64_t n_keys, int64_t d)
{
    return {(T *)x,
            (T *)kept,
            (const T *)q_weight,
            (const T *)k_weight,
            eps,
            rows,
            n_queries,
            n_queries + n_keys,
            d,
            (n_queries + 2 * n_keys) * d};
}

} // namespace

void mist_cuda_head_norm_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                 void *qkv, void *kept, const void *q_weight,
                                 const void *k_weight, float eps, int64_t rows,
                                 int64_t heads_q, int64_t heads_k, int64_t head_dim)
{
    int64_t n = rows * (heads_q + heads_k);

    if (n == 0)
        return;
    MIST_CUDA_BY_DTYPE(dtype, T,
                       MIST_CUDA_LAUNCH((norm_heads<T>),
                                        dim3((unsigned)((n + N_WARPS - 1) / N_WARPS)),
                                        dim3(WARP, N_WARPS), 0, stream,
                                        heads_of<T>(qkv, kept, q_weight, k_weight, eps,
                                                    rows, heads_q, heads_k, head_dim)));
}

void mist_cuda_head_norm_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  enum mist_dtype gradient_dtype, void *d_qkv,
                                  void *d_q_weight, void *d_k_weight, const void *kept,
                                  const void *q_weight, const void *k_weight, float eps,
                                  int64_t rows, int64_t heads_q, int64_t heads_k,
                                  int64_t head_dim, void *workspace, bool overwrites)
{
    int64_t n_blocks = mist_catalog_norm_blocks(rows);
    float *sums = (float *)workspace;

    if (rows == 0)
        return;
    MIST_CUDA_BY_DTYPE(
        dtype, T,
        MIST_CUDA_LAUNCH((heads_backward<T>), dim3((unsigned)n_blocks),
                         dim3(WARP, N_WARPS), 0, stream,
                         heads_of<T>(d_qkv, (void *)kept, q_weight, k_weight, eps, rows,
                                     heads_q, heads_k, head_dim),
                         sums, (rows + n_blocks - 1) / n_blocks));
    MIST_CUDA_BY_DTYPE(gradient_dtype, G,
                       launch_add_blocks(stream, (G *)d_q_weight, (G *)d_k_weight, sums,
                                         n_blocks, head_dim, overwrites));
}
