/*
 * bf16: LayerNorm and RMSNorm, row by row through fp32 copies in the workspace, by the
 * fp32 kernel's row functions and its blocks of weight gradients.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include <omp.h>

/* Workspace of the forward: weight and bias [2, h], then per thread [2, h] for rows. */
size_t mist_cpu_bf16_norm_forward_workspace_bytes(int64_t h, int n_threads)
{
    return (size_t)(2 + 2 * (int64_t)n_threads) * (size_t)h * sizeof(float);
}

/* Loads the parameters into the workspace's beginning; bias NULL stays NULL. */
static const float *load_parameters(float *workspace, const mist_bf16 *weight,
                                    const mist_bf16 *bias, int64_t h)
{
    mist_cpu_bf16_load(workspace, weight, h);
    if (bias == NULL)
        return NULL;
    mist_cpu_bf16_load(workspace + h, bias, h);
    return workspace + h;
}

void mist_cpu_bf16_norm_forward(enum mist_cpu_norm_kind kind, mist_bf16 *out,
                                float *stats, const mist_bf16 *x, const mist_bf16 *weight,
                                const mist_bf16 *bias, float eps, int64_t rows, int64_t h,
                                void *workspace, int n_threads)
{
    float *weight_f = workspace;
    const float *bias_f = load_parameters(weight_f, weight, bias, h);
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float *row = weight_f + (2 + 2 * (int64_t)omp_get_thread_num()) * h;
        mist_cpu_bf16_load(row, x + i * h, h);
        mist_cpu_norm_row(kind, row, stats + 2 * i, row, weight_f, bias_f, eps, h);
        mist_cpu_bf16_store(out + i * h, row, h);
    }
}

void mist_cpu_bf16_residual_norm_forward(enum mist_cpu_norm_kind kind, mist_bf16 *out,
                                         mist_bf16 *residual, float *stats,
                                         const mist_bf16 *a, const mist_bf16 *b,
                                         const mist_bf16 *weight, const mist_bf16 *bias,
                                         float eps, int64_t rows, int64_t h,
                                         void *workspace, int n_threads)
{
    float *weight_f = workspace;
    const float *bias_f = load_parameters(weight_f, weight, bias, h);
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        float *row = weight_f + (2 + 2 * (int64_t)omp_get_thread_num()) * h;
        mist_cpu_bf16_load(row, a + i * h, h);
        mist_cpu_bf16_load(row + h, b + i * h, h);
        mist_cpu_add_chunk(false, row, row, row + h, h);
        mist_cpu_bf16_store(residual + i * h, row, h);
        mist_cpu_bf16_load(row, residual + i * h, h);
        mist_cpu_norm_row(kind, row, stats + 2 * i, row, weight_f, bias_f, eps, h);
        mist_cpu_bf16_store(out + i * h, row, h);
    }
}

/* Workspace of the backward: the fp32 kernel's, then the weight [h], then per thread [3,
 * h] for the rows of d_out, d_residual and x. */
size_t mist_cpu_bf16_norm_backward_workspace_bytes(int64_t rows, int64_t h, int n_threads)
{
    return mist_cpu_norm_backward_workspace_bytes(rows, h) +
           (size_t)(1 + 3 * (int64_t)n_threads) * (size_t)h * sizeof(float);
}

/* What one backward works on. */
struct backward {
    enum mist_cpu_norm_kind kind;
    mist_bf16 *dx;
    const mist_bf16 *d_out, *d_residual, *x; /* d_residual may be NULL */
    const float *stats, *weight;
    int64_t h;
};

/* dx of row i, and its share of the block's sums; row [3, h]. */
static void backward_row(const struct backward *a, int64_t i, float *dweight_sum,
                         float *dbias_sum, float *row)
{
    int64_t h = a->h;
    float *d_residual = a->d_residual == NULL ? NULL : row + h;
    mist_cpu_bf16_load(row, a->d_out + i * h, h);
    mist_cpu_bf16_load(row + 2 * h, a->x + i * h, h);
    if (d_residual != NULL)
        mist_cpu_bf16_load(d_residual, a->d_residual + i * h, h);
    mist_cpu_norm_backward_row(a->kind, row, dweight_sum, dbias_sum, row, d_residual,
                               row + 2 * h, a->stats + 2 * i, a->weight, h);
    mist_cpu_bf16_store(a->dx + i * h, row, h);
}

void mist_cpu_bf16_norm_backward(enum mist_cpu_norm_kind kind, mist_bf16 *dx,
                                 void *dweight, void *dbias, const mist_bf16 *d_out,
                                 const mist_bf16 *d_residual, const mist_bf16 *x,
                                 const float *stats, const mist_bf16 *weight,
                                 int64_t rows, int64_t h, void *workspace, int n_threads,
                                 int how)
{
    float *block_sums = workspace; /* [n_blocks, 2, h] */
    float *weight_f =
        block_sums + mist_cpu_norm_backward_workspace_bytes(rows, h) / sizeof(float);
    const struct backward a = {kind, dx, d_out, d_residual, x, stats, weight_f, h};
    mist_cpu_bf16_load(weight_f, weight, h);
#pragma omp parallel num_threads(n_threads)
    {
        float *row = weight_f + (1 + 3 * (int64_t)omp_get_thread_num()) * h;
#pragma omp for schedule(static)
        for (int64_t begin = 0; begin < rows; begin += MIST_CPU_NORM_BLOCK_ROWS) {
            float *sums = block_sums + begin / MIST_CPU_NORM_BLOCK_ROWS * 2 * h;
            memset(sums, 0, 2 * (size_t)h * sizeof *sums);
            for (int64_t i = begin; i < begin + MIST_CPU_NORM_BLOCK_ROWS && i < rows; i++)
                backward_row(&a, i, sums, dbias == NULL ? NULL : sums + h, row);
        }
        mist_cpu_norm_reduce(dweight, dbias, block_sums, rows, h, how);
    }
}
