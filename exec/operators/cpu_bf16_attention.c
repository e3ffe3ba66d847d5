/*
 * bf16: causal attention.
 *
 * One query head at a time, with the key-value head it reads, becomes a small fp32
 * attention of its own in the workspace, [s, 3 * head_dim], on which the fp32 kernel
 * runs. Forward threads share out heads; backward threads key-value heads, whose dK and
 * dV are summed in fp32 over their query heads in order. Where there are too few of those
 * for the threads the fp32 kernel shares out each small attention instead, which gives
 * the same bits.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include <omp.h>

static struct mist_cpu_attention one_head(const struct mist_cpu_attention *shape)
{
    return (struct mist_cpu_attention){1, shape->s, 1, 1, shape->head_dim};
}

/* Rows of n elements, stride apart. */
static void load_rows(float *out, int64_t out_stride, const mist_bf16 *x, int64_t stride,
                      int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        mist_cpu_bf16_to_float(out + i * out_stride, x + i * stride, n);
}

static void store_rows(mist_bf16 *out, int64_t out_stride, const float *x, int64_t stride,
                       int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        mist_cpu_bf16_from_float(out + i * out_stride, x + i * stride, n);
}

/* packed [s, 3 d]: q, k and v of the head. */
static void load_head(float *packed, const mist_bf16 *qkv, const struct mist_cpu_head *at)
{
    load_rows(packed, 3 * at->d, qkv + at->q, at->token, at->s, at->d);
    load_rows(packed + at->d, 3 * at->d, qkv + at->k, at->token, at->s, at->d);
    load_rows(packed + 2 * at->d, 3 * at->d, qkv + at->v, at->token, at->s, at->d);
}

/* ---------------------------------------------------------------------------- forward */

/* Per thread: packed [s, 3 d], out [s, d], the fp32 kernel's own. */
static size_t forward_floats(const struct mist_cpu_attention *shape)
{
    const struct mist_cpu_attention head = one_head(shape);
    return (size_t)(4 * shape->s * shape->head_dim) +
           mist_cpu_attention_forward_workspace_bytes(&head, 1) / sizeof(float);
}

size_t
mist_cpu_bf16_attention_forward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                int n_threads)
{
    return (size_t)n_threads * forward_floats(shape) * sizeof(float);
}

void mist_cpu_bf16_attention_forward(mist_bf16 *out, float *lse, const mist_bf16 *qkv,
                                     const struct mist_cpu_attention *shape,
                                     void *workspace, int n_threads)
{
    const struct mist_cpu_attention head = one_head(shape);
    int64_t n_head = shape->s * shape->head_dim, n_heads = shape->b * shape->heads;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t g = 0; g < n_heads; g++) {
        const struct mist_cpu_head at = mist_cpu_head_of(shape, g);
        float *packed =
            (float *)workspace + (size_t)omp_get_thread_num() * forward_floats(shape);
        float *out_f = packed + 3 * n_head;
        load_head(packed, qkv, &at);
        mist_cpu_attention_forward(out_f, lse + g * at.s, packed, &head, out_f + n_head,
                                   1);
        store_rows(out + at.out, at.out_token, out_f, at.d, at.s, at.d);
    }
}

/* --------------------------------------------------------------------------- backward */

/* Per thread: packed and its gradient [s, 3 d], out and d_out [s, d], the sums of dk and
 * dv [s, 2 d]; the fp32 kernel's own comes behind. */
static size_t backward_floats(const struct mist_cpu_attention *shape)
{
    return (size_t)(10 * shape->s * shape->head_dim);
}

static size_t inner_floats(const struct mist_cpu_attention *shape, int n_threads)
{
    const struct mist_cpu_attention head = one_head(shape);
    return mist_cpu_attention_backward_workspace_bytes(&head, n_threads) / sizeof(float);
}

size_t
mist_cpu_bf16_attention_backward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                 int n_threads)
{
    return (size_t)n_threads * (backward_floats(shape) + inner_floats(shape, 1)) *
           sizeof(float);
}

struct backward {
    mist_bf16 *dqkv;
    const mist_bf16 *d_out, *qkv, *out;
    const float *lse;
    const struct mist_cpu_attention *shape;
};

/* sum [s, 2 d] = or += the dk and dv of d_packed [s, 3 d] */
static void add_keys(float *sum, const float *d_packed, const struct mist_cpu_head *at,
                     bool is_first)
{
    int64_t d = at->d;
    for (int64_t i = 0; i < at->s; i++) {
        const float *row = d_packed + i * 3 * d + d;
        if (is_first)
            memcpy(sum + i * 2 * d, row, 2 * (size_t)d * sizeof *sum);
        else
            mist_cpu_add_chunk(false, sum + i * 2 * d, sum + i * 2 * d, row, 2 * d);
    }
}

/* One key-value head, n_threads in each small attention. */
static void backward_head(const struct backward *a, int64_t i_kv_head, float *scratch,
                          float *inner, int n_threads)
{
    const struct mist_cpu_attention *shape = a->shape, head = one_head(shape);
    int64_t n = shape->s * shape->head_dim, group = shape->heads / shape->kv_heads;
    float *packed = scratch, *d_packed = packed + 3 * n, *out = d_packed + 3 * n;
    float *d_out = out + n, *sum = d_out + n;
    struct mist_cpu_head at = mist_cpu_head_of(shape, i_kv_head * group);
    for (int64_t g = i_kv_head * group; g < (i_kv_head + 1) * group; g++) {
        at = mist_cpu_head_of(shape, g);
        load_head(packed, a->qkv, &at);
        load_rows(out, at.d, a->out + at.out, at.out_token, at.s, at.d);
        load_rows(d_out, at.d, a->d_out + at.out, at.out_token, at.s, at.d);
        mist_cpu_attention_backward(d_packed, d_out, packed, out, a->lse + g * at.s,
                                    &head, inner, n_threads);
        store_rows(a->dqkv + at.q, at.token, d_packed, 3 * at.d, at.s, at.d);
        add_keys(sum, d_packed, &at, g == i_kv_head * group);
    }
    store_rows(a->dqkv + at.k, at.token, sum, 2 * at.d, at.s, at.d);
    store_rows(a->dqkv + at.v, at.token, sum + at.d, 2 * at.d, at.s, at.d);
}

void mist_cpu_bf16_attention_backward(mist_bf16 *dqkv, const mist_bf16 *d_out,
                                      const mist_bf16 *qkv, const mist_bf16 *out,
                                      const float *lse,
                                      const struct mist_cpu_attention *shape,
                                      void *workspace, int n_threads)
{
    const struct backward a = {dqkv, d_out, qkv, out, lse, shape};
    int64_t n_kv_heads = shape->b * shape->kv_heads;
    size_t n_scratch = backward_floats(shape), n_inner = inner_floats(shape, 1);
    float *scratch = workspace;
    if (n_kv_heads % n_threads != 0 && n_kv_heads < 4 * n_threads) {
        for (int64_t t = 0; t < n_kv_heads; t++)
            backward_head(&a, t, scratch, scratch + n_scratch, n_threads);
        return;
    }
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < n_kv_heads; t++) {
        float *mine = scratch + (size_t)omp_get_thread_num() * (n_scratch + n_inner);
        backward_head(&a, t, mine, mine + n_scratch, 1);
    }
}
