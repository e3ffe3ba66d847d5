#include "exec/cuda/attention_graph.h"

#include <stddef.h> /* NULL */

typedef cudnnBackendDescriptor_t descriptor;

/* What the functions below share. */
struct sdpa {
    struct mist_cudnn_graph *graph;
    const struct mist_sdpa_chunk *chunk;
    int64_t b, heads, kv_heads, queries, keys, d; /* of the chunk */
};

static struct sdpa sdpa_of(struct mist_cudnn_graph *graph,
                           const struct mist_sdpa_chunk *chunk)
{
    return (struct sdpa){graph,
                         chunk,
                         chunk->b,
                         chunk->heads,
                         chunk->kv_heads,
                         chunk->whole.queries,
                         chunk->whole.keys,
                         chunk->whole.head_dim};
}

/* ---------------------------------------------------------------------------- tensors */

/* Where tokens of one kind are: of each sample so many, out of those that it takes. */
struct tokens {
    int64_t n, of;
    int64_t elements; /* of a token with all its heads */
};

static struct tokens queries_of(const struct sdpa *a)
{
    const struct mist_sdpa_shape *whole = &a->chunk->whole;

    return (struct tokens){a->queries, whole->query_tokens,
                           (whole->heads + 2 * whole->kv_heads) * a->d};
}

static struct tokens outputs_of(const struct sdpa *a)
{
    const struct mist_sdpa_shape *whole = &a->chunk->whole;

    return (struct tokens){a->queries, whole->query_tokens, whole->heads * a->d};
}

static struct tokens keys_of(const struct sdpa *a)
{
    const struct mist_sdpa_shape *whole = &a->chunk->whole;

    return (struct tokens){a->keys, whole->key_tokens, whole->key_heads * a->d};
}

static struct tokens gradients_of(const struct sdpa *a)
{
    const struct mist_sdpa_shape *whole = &a->chunk->whole;

    return (struct tokens){a->keys, whole->gradient_tokens, whole->key_heads * a->d};
}

/* [b, n_heads, tokens, d] of bf16 in memory. */
static struct mist_cudnn_tensor heads_in(const struct sdpa *a, int64_t id,
                                         int64_t n_heads, struct tokens at)
{
    return (struct mist_cudnn_tensor){
        .place = MIST_CUDNN_IN_MEMORY,
        .type = CUDNN_DATA_BFLOAT16,
        .id = id,
        .dims = {a->b, n_heads, at.n, a->d},
        .strides = {at.elements * at.of, a->d, at.elements, 1}};
}

/* Q or its gradient */
static descriptor query(const struct sdpa *a, int64_t id)
{
    struct mist_cudnn_tensor tensor = heads_in(a, id, a->heads, queries_of(a));
    return mist_cudnn_tensor(a->graph, &tensor);
}

static descriptor key(const struct sdpa *a, int64_t id, struct tokens at)
{
    struct mist_cudnn_tensor tensor = heads_in(a, id, a->kv_heads, at);
    return mist_cudnn_tensor(a->graph, &tensor);
}

/* K or V as [b, kv_heads, d, keys]: no data moves, the product reads it that way. */
static descriptor key_transposed(const struct sdpa *a, int64_t id)
{
    struct tokens at = keys_of(a);
    struct mist_cudnn_tensor tensor = heads_in(a, id, a->kv_heads, at);
    tensor.dims[2] = a->d, tensor.dims[3] = at.n;
    tensor.strides[2] = 1, tensor.strides[3] = at.elements;
    return mist_cudnn_tensor(a->graph, &tensor);
}

/* out or its gradient */
static descriptor output(const struct sdpa *a, int64_t id)
{
    struct mist_cudnn_tensor tensor = heads_in(a, id, a->heads, outputs_of(a));
    return mist_cudnn_tensor(a->graph, &tensor);
}

/* fp32 [b, heads, queries, 1] in memory; n_heads of a sample. */
static descriptor rows_in(const struct sdpa *a, int64_t id, int64_t n_heads)
{
    int64_t n = a->queries;
    struct mist_cudnn_tensor tensor = {.place = MIST_CUDNN_IN_MEMORY,
                                       .type = CUDNN_DATA_FLOAT,
                                       .id = id,
                                       .dims = {a->b, a->heads, n, 1},
                                       .strides = {n_heads * n, n, 1, 1}};
    return mist_cudnn_tensor(a->graph, &tensor);
}

/* Dense [b, heads, n, m] between operations. */
static descriptor between(const struct sdpa *a, cudnnDataType_t type, int64_t n,
                          int64_t m)
{
    struct mist_cudnn_tensor tensor = {.place = MIST_CUDNN_VIRTUAL,
                                       .type = type,
                                       .dims = {a->b, a->heads, n, m},
                                       .strides = {a->heads * n * m, n * m, m, 1}};
    return mist_cudnn_tensor(a->graph, &tensor);
}

static descriptor scores(const struct sdpa *a, cudnnDataType_t type)
{
    return between(a, type, a->queries, a->keys);
}

static descriptor rows(const struct sdpa *a)
{
    return between(a, CUDNN_DATA_FLOAT, a->queries, 1);
}

static descriptor value(const struct sdpa *a, int64_t id)
{
    struct mist_cudnn_tensor tensor = {.place = MIST_CUDNN_BY_VALUE,
                                       .type = CUDNN_DATA_FLOAT,
                                       .id = id,
                                       .dims = {1, 1, 1, 1},
                                       .strides = {1, 1, 1, 1}};
    return mist_cudnn_tensor(a->graph, &tensor);
}

/* ------------------------------------------------------------------------- operations */

static descriptor combine(const struct sdpa *a, cudnnPointwiseMode_t mode, descriptor x,
                          descriptor b, descriptor y)
{
    return mist_cudnn_pointwise(a->graph, mode, x, b, NULL, y);
}

/* Positions of queries among the keys, from their numbers. Said by one addition and
 * one subtraction, as in NVIDIA's frontend, this is a mask that cuDNN knows: it takes
 * both numbers from the shape, and skips what nobody sees. (There all is in whole
 * numbers; cuDNN 9.19 makes the same kernels of these, byte by byte.) */
static descriptor shift(const struct sdpa *a, descriptor rows_of_queries)
{
    descriptor ends = combine(a, CUDNN_POINTWISE_ADD, rows_of_queries,
                              value(a, MIST_SDPA_N_KEYS), scores(a, CUDNN_DATA_INT32));
    return combine(a, CUDNN_POINTWISE_SUB, ends, value(a, MIST_SDPA_N_QUERIES),
                   scores(a, CUDNN_DATA_INT32));
}

/* x where the query is not before the key, else minus infinity. */
static descriptor mask(const struct sdpa *a, descriptor x)
{
    descriptor of_query = mist_cudnn_index(a->graph, 2, x, scores(a, CUDNN_DATA_INT32));
    descriptor of_key = mist_cudnn_index(a->graph, 3, x, scores(a, CUDNN_DATA_INT32));
    if (a->keys > a->queries)
        of_query = shift(a, of_query);
    descriptor is_seen = combine(a, CUDNN_POINTWISE_CMP_GE, of_query, of_key,
                                 scores(a, CUDNN_DATA_BOOLEAN));
    return mist_cudnn_pointwise(a->graph, CUDNN_POINTWISE_BINARY_SELECT, x,
                                value(a, MIST_SDPA_MASKED), is_seen,
                                scores(a, CUDNN_DATA_FLOAT));
}

void mist_sdpa_graph_forward(struct mist_cudnn_graph *graph,
                             const struct mist_sdpa_chunk *chunk)
{
    const struct sdpa shared = sdpa_of(graph, chunk), *a = &shared;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;

    descriptor product = mist_cudnn_matmul(
        graph, query(a, MIST_SDPA_Q), key_transposed(a, MIST_SDPA_K), scores(a, f32));
    descriptor scaled = combine(a, CUDNN_POINTWISE_MUL, product,
                                value(a, MIST_SDPA_SCALE), scores(a, f32));
    descriptor seen = mask(a, scaled);

    descriptor max = mist_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_MAX, seen, rows(a));
    descriptor less = combine(a, CUDNN_POINTWISE_SUB, seen, max, scores(a, f32));
    descriptor p = combine(a, CUDNN_POINTWISE_EXP, less, NULL, scores(a, f32));
    descriptor sum = mist_cudnn_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, p, rows(a));
    descriptor log_sum = combine(a, CUDNN_POINTWISE_LOG, sum, NULL, rows(a));
    combine(a, CUDNN_POINTWISE_ADD, max, log_sum,
            rows_in(a, MIST_SDPA_LSE, chunk->whole.heads));

    descriptor normal =
        combine(a, CUDNN_POINTWISE_DIV, p, sum, scores(a, CUDNN_DATA_BFLOAT16));
    mist_cudnn_matmul(graph, normal, key(a, MIST_SDPA_V, keys_of(a)),
                      output(a, MIST_SDPA_OUT));
}

/* gradient (K's or V's) = x^T y, where x [.., queries, keys] is rounded to bf16 as it is
 * turned; summed over the query heads of a group. */
static void add_key_gradient(const struct sdpa *a, descriptor x, descriptor y, int64_t id)
{
    int64_t m = a->keys, n = a->queries;
    struct mist_cudnn_tensor turned = {.place = MIST_CUDNN_VIRTUAL,
                                       .type = CUDNN_DATA_BFLOAT16,
                                       .dims = {a->b, a->heads, m, n},
                                       .strides = {a->heads * m * n, m * n, 1, m}};
    descriptor x_t =
        mist_cudnn_reshape(a->graph, x, mist_cudnn_tensor(a->graph, &turned));
    descriptor gradient = key(a, id, gradients_of(a));

    if (a->heads == a->kv_heads) {
        mist_cudnn_matmul(a->graph, x_t, y, gradient);
        return;
    }
    descriptor by_head =
        mist_cudnn_matmul(a->graph, x_t, y, between(a, CUDNN_DATA_BFLOAT16, m, a->d));
    mist_cudnn_reduce(a->graph, CUDNN_REDUCE_TENSOR_ADD, by_head, gradient);
}

/* dQ = dS K */
static void add_query_gradient(const struct sdpa *a, descriptor ds, descriptor k_t,
                               enum mist_cuda_sdpa_form form)
{
    struct mist_cudnn_tensor turned = heads_in(a, 0, a->kv_heads, keys_of(a));
    turned.place = MIST_CUDNN_VIRTUAL;
    descriptor k =
        mist_cudnn_reshape(a->graph, k_t, mist_cudnn_tensor(a->graph, &turned));
    descriptor dq = query(a, MIST_SDPA_DQ);

    if (form == MIST_CUDA_SDPA_DETERMINISTIC) {
        mist_cudnn_matmul(a->graph, ds, k, dq);
        return;
    }
    int64_t n = a->queries;
    struct mist_cudnn_tensor sum = {.place = MIST_CUDNN_IN_MEMORY,
                                    .type = CUDNN_DATA_FLOAT,
                                    .id = MIST_SDPA_DQ_SUM,
                                    .dims = {a->b, a->heads, n, a->d},
                                    .strides = {a->heads * n * a->d, n * a->d, a->d, 1}};
    descriptor dq_sum =
        mist_cudnn_matmul(a->graph, ds, k, mist_cudnn_tensor(a->graph, &sum));
    combine(a, CUDNN_POINTWISE_IDENTITY, dq_sum, NULL, dq);
}

/* delta = rowsum(dO * out), described as cuDNN knows it from NVIDIA's frontend: times 1,
 * where dropout would scale, and with these strides, though nothing is stored. */
static descriptor add_delta(const struct sdpa *a, descriptor d_out)
{
    int64_t n = a->queries;
    struct mist_cudnn_tensor terms = {
        .place = MIST_CUDNN_VIRTUAL,
        .type = CUDNN_DATA_FLOAT,
        .dims = {a->b, a->heads, n, a->d},
        .strides = {a->heads * n * a->d, n * a->d, a->heads * a->d, 1}};
    descriptor product = combine(a, CUDNN_POINTWISE_MUL, d_out, output(a, MIST_SDPA_OUT),
                                 mist_cudnn_tensor(a->graph, &terms));
    descriptor sum =
        mist_cudnn_reduce(a->graph, CUDNN_REDUCE_TENSOR_ADD, product, rows(a));
    return combine(a, CUDNN_POINTWISE_MUL, sum, value(a, MIST_SDPA_ONE),
                   rows_in(a, MIST_SDPA_DELTA, a->heads));
}

void mist_sdpa_graph_backward(struct mist_cudnn_graph *graph,
                              const struct mist_sdpa_chunk *chunk,
                              enum mist_cuda_sdpa_form form)
{
    const struct sdpa shared = sdpa_of(graph, chunk), *a = &shared;
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    descriptor q = query(a, MIST_SDPA_Q), d_out = output(a, MIST_SDPA_D_OUT);
    descriptor k_t = key_transposed(a, MIST_SDPA_K);
    descriptor scale = value(a, MIST_SDPA_SCALE);

    descriptor delta = add_delta(a, d_out);

    descriptor product = mist_cudnn_matmul(graph, q, k_t, scores(a, f32));
    descriptor scaled = combine(a, CUDNN_POINTWISE_MUL, product, scale, scores(a, f32));
    descriptor less =
        combine(a, CUDNN_POINTWISE_SUB, scaled,
                rows_in(a, MIST_SDPA_LSE, chunk->whole.heads), scores(a, f32));
    descriptor p = combine(a, CUDNN_POINTWISE_EXP, mask(a, less), NULL, scores(a, f32));
    add_key_gradient(a, p, d_out, MIST_SDPA_DV);

    descriptor dp =
        mist_cudnn_matmul(graph, d_out, key_transposed(a, MIST_SDPA_V), scores(a, f32));
    descriptor centred = combine(a, CUDNN_POINTWISE_SUB, dp, delta, scores(a, f32));
    descriptor unscaled = combine(a, CUDNN_POINTWISE_MUL, centred, p, scores(a, f32));
    descriptor ds =
        combine(a, CUDNN_POINTWISE_MUL, unscaled, scale, scores(a, CUDNN_DATA_BFLOAT16));
    add_key_gradient(a, ds, q, MIST_SDPA_DK);
    add_query_gradient(a, ds, k_t, form);
}
