/*
 * LayerNorm (Ba et al. 2016) and RMSNorm (Zhang and Sennrich 2019), forward and backward.
 *
 * With xhat = (x - mean) rstd and g = weight * d_out the gradient of a row is
 *     dx = rstd (g - mean(g) - xhat mean(g xhat)),
 * without the mean(g) term for RMS (there mean is 0). The variance is taken in a second
 * pass over the row, which the first has left in the cache: exact enough in fp32 for any
 * mean. Weight gradients are summed over blocks of BLOCK_ROWS rows, each block in a row
 * of the workspace, and then over the blocks in order.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <math.h> /* sqrtf */
#include <omp.h>

enum { BLOCK_ROWS = 32, REDUCE_COLUMNS = 256 };

/* sum of (x[i] - mean)^2 in the fixed lane order */
MIST_CPU_INLINE float sum_centred_squares(const float *x, float mean, int64_t n)
{
    struct mist_cpu_lanes acc = {{0}, {0}};
    float tail[MIST_CPU_LANES];
    int64_t i = 0;
    for (; i + MIST_CPU_LANES <= n; i += MIST_CPU_LANES) {
        mist_cpu_f16 lo = *mist_cpu_at(x + i) - mean,
                     hi = *mist_cpu_at(x + i + 16) - mean;
        acc.lo += lo * lo;
        acc.hi += hi * hi;
    }
    for (int64_t j = i; j < n; j++)
        tail[j - i] = (x[j] - mean) * (x[j] - mean);
    return mist_cpu_lanes_sum(&acc, tail, n - i);
}

/* One row; x may be out. */
MIST_CPU_CLONES static void norm_row(enum mist_cpu_norm_kind kind, float *out,
                                     float *stats, const float *x, const float *weight,
                                     const float *bias, float eps, int64_t h)
{
    float mean = mist_cpu_norm_is_centred(kind) ? mist_cpu_sum(x, h) / (float)h : 0.0f;
    float rstd = 1.0f / sqrtf(sum_centred_squares(x, mean, h) / (float)h + eps);
    float offset = mist_cpu_norm_offset(kind);
    if (bias != NULL) {
#pragma omp simd
        for (int64_t j = 0; j < h; j++)
            out[j] = (x[j] - mean) * rstd * (offset + weight[j]) + bias[j];
    } else {
#pragma omp simd
        for (int64_t j = 0; j < h; j++)
            out[j] = (x[j] - mean) * rstd * (offset + weight[j]);
    }
    stats[0] = mean;
    stats[1] = rstd;
}

/* In bf16 rows of h floats of the workspace, in fp32 nothing. */
static float *room_of(bool is_bf16, void *workspace, int64_t i_row, int64_t h)
{
    return is_bf16 ? (float *)workspace + i_row * h : NULL;
}

/* Of bf16: the weight and bias [h], then per thread rows [2, h]. */
size_t mist_cpu_bf16_norm_forward_workspace_bytes(int64_t h, int n_threads)
{
    return (size_t)(2 + 2 * (int64_t)n_threads) * (size_t)h * sizeof(float);
}

void mist_cpu_norm_forward(bool is_bf16, enum mist_cpu_norm_kind kind, void *out,
                           void *residual, float *stats, const void *a, const void *b,
                           const void *weight, const void *bias, float eps, int64_t rows,
                           int64_t h, void *workspace, int n_threads)
{
    const float *weight_f =
        mist_cpu_from(is_bf16, room_of(is_bf16, workspace, 0, h), weight, 0, h);
    const float *bias_f =
        bias ? mist_cpu_from(is_bf16, room_of(is_bf16, workspace, 1, h), bias, 0, h)
             : NULL;
    const void *x = residual ? residual : a;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t i_room = 2 + 2 * omp_get_thread_num();
        float *room = room_of(is_bf16, workspace, i_room, h);
        float *to = mist_cpu_to(is_bf16, room, out, i * h);
        if (residual) {
            float *other = room_of(is_bf16, workspace, i_room + 1, h);
            float *sum = mist_cpu_to(is_bf16, room, residual, i * h);
            mist_cpu_add_chunk(false, sum, mist_cpu_from(is_bf16, room, a, i * h, h),
                               mist_cpu_from(is_bf16, other, b, i * h, h), h);
            mist_cpu_done(is_bf16, residual, i * h, sum, h);
        }
        norm_row(kind, to, stats + 2 * i, mist_cpu_from(is_bf16, room, x, i * h, h),
                 weight_f, bias_f, eps, h);
        mist_cpu_done(is_bf16, out, i * h, to, h);
    }
}

/* mean(g) and mean(g xhat) of a row, g = weight * d_out */
MIST_CPU_INLINE void row_means(float means[2], const float *d_out, const float *x,
                               const float *weight, float offset, float mean, float rstd,
                               int64_t h)
{
    struct mist_cpu_lanes sum = {{0}, {0}}, dot = {{0}, {0}};
    float tail[2][MIST_CPU_LANES];
    int64_t i = 0;
    for (; i + MIST_CPU_LANES <= h; i += MIST_CPU_LANES) {
        mist_cpu_f16 lo = (offset + *mist_cpu_at(weight + i)) * *mist_cpu_at(d_out + i);
        mist_cpu_f16 hi =
            (offset + *mist_cpu_at(weight + i + 16)) * *mist_cpu_at(d_out + i + 16);
        sum.lo += lo;
        sum.hi += hi;
        dot.lo += lo * ((*mist_cpu_at(x + i) - mean) * rstd);
        dot.hi += hi * ((*mist_cpu_at(x + i + 16) - mean) * rstd);
    }
    for (int64_t j = i; j < h; j++) {
        tail[0][j - i] = (offset + weight[j]) * d_out[j];
        tail[1][j - i] = tail[0][j - i] * ((x[j] - mean) * rstd);
    }
    means[0] = mist_cpu_lanes_sum(&sum, tail[0], h - i) / (float)h;
    means[1] = mist_cpu_lanes_sum(&dot, tail[1], h - i) / (float)h;
}

/* dx of one row and its share of the block's sums [h] (dbias_sum NULL: none). */
MIST_CPU_CLONES static void norm_backward_row(enum mist_cpu_norm_kind kind, float *dx,
                                              float *dweight_sum, float *dbias_sum,
                                              const float *d_out, const float *d_residual,
                                              const float *x, const float *stats,
                                              const float *weight, int64_t h)
{
    float mean = stats[0], rstd = stats[1], offset = mist_cpu_norm_offset(kind), means[2];
    row_means(means, d_out, x, weight, offset, mean, rstd, h);
    float mean_g = mist_cpu_norm_is_centred(kind) ? means[0] : 0.0f, mean_gx = means[1];
    if (dbias_sum != NULL) {
#pragma omp simd
        for (int64_t j = 0; j < h; j++)
            dbias_sum[j] += d_out[j];
    }
    if (d_residual != NULL) {
#pragma omp simd
        for (int64_t j = 0; j < h; j++) {
            float d = d_out[j], xhat = (x[j] - mean) * rstd;
            dweight_sum[j] += d * xhat;
            dx[j] = d_residual[j] +
                    ((offset + weight[j]) * d - mean_g - xhat * mean_gx) * rstd;
        }
    } else {
#pragma omp simd
        for (int64_t j = 0; j < h; j++) {
            float d = d_out[j], xhat = (x[j] - mean) * rstd;
            dweight_sum[j] += d * xhat;
            dx[j] = ((offset + weight[j]) * d - mean_g - xhat * mean_gx) * rstd;
        }
    }
}

/* total[0 .. n) = the sum over blocks, in order, of block_sums[block, 0 .. n). */
MIST_CPU_CLONES static void sum_blocks(float total[REDUCE_COLUMNS],
                                       const float *block_sums, int64_t n_blocks,
                                       int64_t stride, int64_t n)
{
    memset(total, 0, REDUCE_COLUMNS * sizeof *total);
    for (int64_t t = 0; t < n_blocks; t++) {
        const float *row = block_sums + t * stride;
#pragma omp simd
        for (int64_t j = 0; j < n; j++)
            total[j] += row[j];
    }
}

/* The calling thread's share of the columns. */
static void reduce(void *dweight, void *dbias, const float *block_sums, int64_t rows,
                   int64_t h, int how)
{
    int64_t n_blocks = mist_cpu_n_chunks(rows, BLOCK_ROWS);
#pragma omp for schedule(static)
    for (int64_t j = 0; j < h; j += REDUCE_COLUMNS) {
        float total[REDUCE_COLUMNS];
        int64_t n = mist_cpu_min(REDUCE_COLUMNS, h - j);
        sum_blocks(total, block_sums + j, n_blocks, 2 * h, n);
        mist_cpu_leave_gradients(dweight, j, total, n, how);
        if (dbias == NULL)
            continue;
        sum_blocks(total, block_sums + h + j, n_blocks, 2 * h, n);
        mist_cpu_leave_gradients(dbias, j, total, n, how);
    }
}

size_t mist_cpu_norm_backward_workspace_bytes(int64_t rows, int64_t h)
{
    return (size_t)mist_cpu_n_chunks(rows, BLOCK_ROWS) * 2 * (size_t)h * sizeof(float);
}

/* Of bf16: behind that the weight [h], then per thread rows of d_out, d_residual and x. */
size_t mist_cpu_bf16_norm_backward_workspace_bytes(int64_t rows, int64_t h, int n_threads)
{
    return mist_cpu_norm_backward_workspace_bytes(rows, h) +
           (size_t)(1 + 3 * (int64_t)n_threads) * (size_t)h * sizeof(float);
}

/* What one backward works on. */
struct backward {
    bool is_bf16;
    enum mist_cpu_norm_kind kind;
    void *dx;
    const void *d_out, *d_residual, *x; /* d_residual may be NULL */
    const float *stats, *weight;
    int64_t h;
    void *rooms; /* [h] for the weight, then [3, h] per thread */
};

/* dx of row i, and its share of the block's sums; dbias_sum may be NULL. */
static void backward_row(const struct backward *a, int64_t i, float *dweight_sum,
                         float *dbias_sum)
{
    int64_t h = a->h, at = i * h, i_room = 1 + 3 * omp_get_thread_num();
    float *rooms[3];

    for (int k = 0; k < 3; k++)
        rooms[k] = room_of(a->is_bf16, a->rooms, i_room + k, h);
    float *to = mist_cpu_to(a->is_bf16, rooms[0], a->dx, at);
    norm_backward_row(
        a->kind, to, dweight_sum, dbias_sum,
        mist_cpu_from(a->is_bf16, rooms[0], a->d_out, at, h),
        a->d_residual ? mist_cpu_from(a->is_bf16, rooms[1], a->d_residual, at, h) : NULL,
        mist_cpu_from(a->is_bf16, rooms[2], a->x, at, h), a->stats + 2 * i, a->weight, h);
    mist_cpu_done(a->is_bf16, a->dx, at, to, h);
}

void mist_cpu_norm_backward(bool is_bf16, enum mist_cpu_norm_kind kind, void *dx,
                            void *dweight, void *dbias, const void *d_out,
                            const void *d_residual, const void *x, const float *stats,
                            const void *weight, int64_t rows, int64_t h, void *workspace,
                            int n_threads, int how)
{
    int64_t n_blocks = mist_cpu_n_chunks(rows, BLOCK_ROWS);
    float *block_sums = workspace; /* [n_blocks, 2, h]: weight, bias */
    void *rooms = is_bf16 ? block_sums + n_blocks * 2 * h : NULL;
    const float *weight_f =
        mist_cpu_from(is_bf16, room_of(is_bf16, rooms, 0, h), weight, 0, h);
    const struct backward a = {is_bf16, kind,  dx,       d_out, d_residual,
                               x,       stats, weight_f, h,     rooms};

#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < n_blocks; t++) {
            float *sums = block_sums + t * 2 * h;
            memset(sums, 0, 2 * (size_t)h * sizeof *sums);
            for (int64_t i = t * BLOCK_ROWS; i < mist_cpu_min((t + 1) * BLOCK_ROWS, rows);
                 i++)
                backward_row(&a, i, sums, dbias == NULL ? NULL : sums + h);
        }
        reduce(dweight, dbias, block_sums, rows, h, how);
    }
}

/* -------------------------------------------------------------------------- of heads */

/* Where the heads of packed qkv lie, and their weights. */
struct heads {
    bool is_bf16;
    int64_t n_tokens, n_queries, n_normed, d, token; /* elements of a token */
    const float *weights[2];                         /* of q, of k */
    float *rooms; /* bf16: [2, d] for the weights, then rows of threads */
    float eps;
};

static struct heads heads_of(bool is_bf16, const struct mist_cpu_attention *shape,
                             const void *q_weight, const void *k_weight, float eps,
                             void *rooms)
{
    int64_t d = shape->head_dim;

    return (struct heads){
        .is_bf16 = is_bf16,
        .n_tokens = shape->b * shape->s,
        .n_queries = shape->heads,
        .n_normed = shape->heads + shape->kv_heads,
        .d = d,
        .token = (shape->heads + 2 * shape->kv_heads) * d,
        .weights = {mist_cpu_from(is_bf16, room_of(is_bf16, rooms, 0, d), q_weight, 0, d),
                    mist_cpu_from(is_bf16, room_of(is_bf16, rooms, 1, d), k_weight, 0,
                                  d)},
        .rooms = rooms,
        .eps = eps,
    };
}

void mist_cpu_head_norm_forward(bool is_bf16, void *qkv, void *kept, const void *q_weight,
                                const void *k_weight, float eps,
                                const struct mist_cpu_attention *shape, void *workspace,
                                int n_threads)
{
    struct heads of = heads_of(is_bf16, shape, q_weight, k_weight, eps, workspace);
    int64_t size = mist_cpu_element_bytes(is_bf16);

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < of.n_tokens; i++) {
        float *room = room_of(is_bf16, of.rooms, 2 + omp_get_thread_num(), of.d);
        for (int64_t h = 0; h < of.n_normed; h++) {
            int64_t at = i * of.token + h * of.d;
            float *to = mist_cpu_to(is_bf16, room, qkv, at), stats[2];
            memcpy((char *)kept + (i * of.n_normed + h) * of.d * size,
                   (const char *)qkv + at * size, (size_t)(of.d * size));
            norm_row(MIST_CPU_NORM_RMS, to, stats,
                     mist_cpu_from(is_bf16, room, qkv, at, of.d),
                     of.weights[h >= of.n_queries], NULL, eps, of.d);
            mist_cpu_done(is_bf16, qkv, at, to, of.d);
        }
    }
}

/* One token; sums [2, d]: of q, of k. */
static void heads_backward(const struct heads *of, void *d_qkv, const void *kept,
                           int64_t i, float *sums)
{
    float *rooms[2];

    for (int k = 0; k < 2; k++)
        rooms[k] =
            room_of(of->is_bf16, of->rooms, 2 + 2 * omp_get_thread_num() + k, of->d);
    for (int64_t h = 0; h < of->n_normed; h++) {
        int64_t at = i * of->token + h * of->d, is_key = h >= of->n_queries;
        float *to = mist_cpu_to(of->is_bf16, rooms[0], d_qkv, at);
        const float *x = mist_cpu_from(of->is_bf16, rooms[1], kept,
                                       (i * of->n_normed + h) * of->d, of->d);
        float squares = sum_centred_squares(x, 0, of->d);
        const float stats[2] = {0, 1.0f / sqrtf(squares / (float)of->d + of->eps)};
        norm_backward_row(MIST_CPU_NORM_RMS, to, sums + is_key * of->d, NULL,
                          mist_cpu_from(of->is_bf16, rooms[0], d_qkv, at, of->d), NULL, x,
                          stats, of->weights[is_key], of->d);
        mist_cpu_done(of->is_bf16, d_qkv, at, to, of->d);
    }
}

void mist_cpu_head_norm_backward(bool is_bf16, void *d_qkv, void *d_q_weight,
                                 void *d_k_weight, const void *kept, const void *q_weight,
                                 const void *k_weight, float eps,
                                 const struct mist_cpu_attention *shape, void *workspace,
                                 int n_threads, int how)
{
    int64_t n_tokens = shape->b * shape->s, d = shape->head_dim;
    int64_t n_blocks = mist_cpu_n_chunks(n_tokens, BLOCK_ROWS);
    float *block_sums = workspace; /* [n_blocks, 2, d] */
    struct heads of = heads_of(is_bf16, shape, q_weight, k_weight, eps,
                               is_bf16 ? block_sums + n_blocks * 2 * d : NULL);

#pragma omp parallel num_threads(n_threads)
    {
#pragma omp for schedule(static)
        for (int64_t t = 0; t < n_blocks; t++) {
            float *sums = block_sums + t * 2 * d;
            memset(sums, 0, 2 * (size_t)d * sizeof *sums);
            for (int64_t i = t * BLOCK_ROWS;
                 i < mist_cpu_min((t + 1) * BLOCK_ROWS, n_tokens); i++)
                heads_backward(&of, d_qkv, kept, i, sums);
        }
        reduce(d_q_weight, d_k_weight, block_sums, n_tokens, d, how);
    }
}
