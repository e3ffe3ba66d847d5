/*
 * Causal attention with grouped queries, and rotary position embedding.
 *
 * For a block of QUERY_BLOCK queries i0 .. i0 + m - 1 of one head the scores against keys
 * 0 .. i0 + m - 1 are one product on strided views of the packed tensor; keys after the
 * block are never touched, those after the diagonal within it are masked. With P =
 * exp(scores - lse) and delta_i = dot(d_out_i, out_i) (Dao et al. 2022, appendix B.2) the
 * backward is dS = P * (d_out V^T - delta),   dQ = scale dS K,   dK += scale dS^T Q,   dV
 * += P^T d_out.
 *
 * Forward threads share out query blocks, backward threads key-value heads; or, where
 * there are too few of those for the threads (multi-query attention has one), blocks of
 * queries for dQ and tiles of keys for dK and dV, each of which takes P and dS anew: 7
 * products in place of 5. Either way dK and dV are summed over query heads and blocks in
 * the same order from products of the same shapes.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <math.h> /* cos, logf, pow, sin, sqrt */
#include <omp.h>

enum { QUERY_BLOCK = 64, KEY_TILE = 256 }; /* a tile is a whole number of blocks */

struct layout {
    int64_t token;          /* floats of one token of qkv */
    int64_t out_token;      /* floats of one token of out */
    int64_t group;          /* query heads per key-value head */
    int64_t block;          /* queries per block */
    int64_t n_query_blocks; /* blocks per sequence */
    float scale;            /* 1 / sqrt(head_dim) */
};

static struct layout layout_of(const struct mist_cpu_attention *shape)
{
    int64_t block = shape->s < QUERY_BLOCK ? shape->s : QUERY_BLOCK;
    return (struct layout){
        .token = (shape->heads + 2 * shape->kv_heads) * shape->head_dim,
        .out_token = shape->heads * shape->head_dim,
        .group = shape->heads / shape->kv_heads,
        .block = block,
        .n_query_blocks = (shape->s + block - 1) / block,
        .scale = (float)(1.0 / sqrt((double)shape->head_dim)),
    };
}

static struct mist_cpu_operand plain(const float *data, int64_t stride)
{
    return (struct mist_cpu_operand){data, stride, false};
}

static struct mist_cpu_operand transposed(const float *data, int64_t stride)
{
    return (struct mist_cpu_operand){data, stride, true};
}

/* ---------------------------------------------------------------------------- forward */

/* row[0 .. n) = exp(row - max), the rest up to n_keys 0; returns their sum. */
MIST_CPU_CLONES static float exp_scores(float *row, float *max, int64_t n, int64_t n_keys)
{
    float m = mist_cpu_max(row, n);
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row[j] = mist_cpu_exp(row[j] - m);
    for (int64_t j = n; j < n_keys; j++)
        row[j] = 0.0f;
    *max = m;
    return mist_cpu_sum(row, n);
}

MIST_CPU_CLONES static void scale_head(float *row, float factor, int64_t n)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++)
        row[j] *= factor;
}

/* Queries i0 .. i0 + m - 1 of one head; q, k, v, out at the sequence's first token. */
static void attend_block(float *out, float *lse, const float *q, const float *k,
                         const float *v, const struct layout *at, int64_t head_dim,
                         int64_t i0, int64_t m, float *scores)
{
    int64_t n_keys = i0 + m;
    mist_cpu_sgemm(m, n_keys, head_dim, at->scale, plain(q + i0 * at->token, at->token),
                   transposed(k, at->token), 0.0f, scores, n_keys);
    float sums[QUERY_BLOCK];
    for (int64_t i = 0; i < m; i++) {
        float max;
        sums[i] = exp_scores(scores + i * n_keys, &max, i0 + i + 1, n_keys);
        lse[i0 + i] = max + logf(sums[i]);
    }
    out += i0 * at->out_token;
    mist_cpu_sgemm(m, head_dim, n_keys, 1.0f, plain(scores, n_keys), plain(v, at->token),
                   0.0f, out, at->out_token);
    for (int64_t i = 0; i < m; i++)
        scale_head(out + i * at->out_token, 1.0f / sums[i], head_dim);
}

size_t mist_cpu_attention_forward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                  int n_threads)
{
    struct layout at = layout_of(shape);
    return (size_t)n_threads * (size_t)(at.block * shape->s) * sizeof(float);
}

void mist_cpu_attention_forward(float *out, float *lse, const float *qkv,
                                const struct mist_cpu_attention *shape, void *workspace,
                                int n_threads)
{
    struct layout at = layout_of(shape);
    int64_t s = shape->s;
    int64_t n_tasks = shape->b * shape->heads * at.n_query_blocks;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t t = 0; t < n_tasks; t++) {
        float *scores = (float *)workspace + omp_get_thread_num() * at.block * s;
        int64_t i0 = t % at.n_query_blocks * at.block, head = t / at.n_query_blocks;
        const struct mist_cpu_head lies = mist_cpu_head_of(shape, head);
        attend_block(out + lies.out, lse + head * s, qkv + lies.q, qkv + lies.k,
                     qkv + lies.v, &at, shape->head_dim, i0,
                     s - i0 < at.block ? s - i0 : at.block, scores);
    }
}

/* --------------------------------------------------------------------------- backward */

MIST_CPU_CLONES static float dot_heads(const float *a, const float *b, int64_t n)
{
    return mist_cpu_dot(a, b, n);
}

/* In: scores and d_out V^T; out: P and dS; [0 .. n), both 0 from there to n_keys. */
MIST_CPU_CLONES static void backward_scores(float *p, float *ds, float lse, float delta,
                                            int64_t n, int64_t n_keys)
{
#pragma omp simd
    for (int64_t j = 0; j < n; j++) {
        p[j] = mist_cpu_exp(p[j] - lse);
        ds[j] = p[j] * (ds[j] - delta);
    }
    for (int64_t j = n; j < n_keys; j++)
        p[j] = ds[j] = 0.0f;
}

/* One head's tensors at its sequence's first token. */
struct head_view {
    const float *q, *k, *v, *out, *d_out, *lse;
    float *dq, *dk, *dv;
};

/* All tensors of a backward, and where head g (of all batch items) lies in them. */
struct backward {
    float *dqkv;
    const float *d_out, *qkv, *out, *lse;
    const struct mist_cpu_attention *shape;
    struct layout at;
};

static struct head_view head_of(const struct backward *a, int64_t g)
{
    const struct mist_cpu_head at = mist_cpu_head_of(a->shape, g);

    return (struct head_view){
        .q = a->qkv + at.q,
        .k = a->qkv + at.k,
        .v = a->qkv + at.v,
        .out = a->out + at.out,
        .d_out = a->d_out + at.out,
        .lse = a->lse + g * a->shape->s,
        .dq = a->dqkv + at.q,
        .dk = a->dqkv + at.k,
        .dv = a->dqkv + at.v,
    };
}

static void zero_keys(const struct head_view *head, const struct backward *a,
                      int64_t begin, int64_t end)
{
    size_t n_bytes = (size_t)a->shape->head_dim * sizeof *head->dk;
    for (int64_t j = begin; j < end; j++) {
        memset(head->dk + j * a->at.token, 0, n_bytes);
        memset(head->dv + j * a->at.token, 0, n_bytes);
    }
}

/* A block of queries i0 .. i0 + m - 1 of one head: its dS, and a tile for P. */
struct block_view {
    int64_t i0, m;
    float *ds; /* [m, i0 + m] */
    float *p;  /* [m, KEY_TILE] */
};

static struct block_view block_of(const struct backward *a, int64_t i0, float *ds,
                                  float *p)
{
    return (struct block_view){i0, mist_cpu_min(a->at.block, a->shape->s - i0), ds, p};
}

/* P and dS of a block's queries against the tile of keys from j0 on. */
static void score_keys(const struct head_view *head, const struct backward *a,
                       const struct block_view *b, int64_t j0)
{
    int64_t token = a->at.token, out_token = a->at.out_token, d = a->shape->head_dim;
    int64_t m = b->m, n_keys = b->i0 + m, n = mist_cpu_min(n_keys - j0, KEY_TILE);
    const float *out = head->out + b->i0 * out_token;
    const float *d_out = head->d_out + b->i0 * out_token;
    float *p = b->p, *ds = b->ds + j0;
    mist_cpu_sgemm(m, n, d, a->at.scale, plain(head->q + b->i0 * token, token),
                   transposed(head->k + j0 * token, token), 0.0f, p, n);
    mist_cpu_sgemm(m, n, d, 1.0f, plain(d_out, out_token),
                   transposed(head->v + j0 * token, token), 0.0f, ds, n_keys);
    for (int64_t i = 0; i < m; i++) {
        int64_t n_seen = b->i0 + i + 1 - j0;
        backward_scores(p + i * n, ds + i * n_keys, head->lse[b->i0 + i],
                        dot_heads(d_out + i * out_token, out + i * out_token, d),
                        n_seen < 0 ? 0 : mist_cpu_min(n_seen, n), n);
    }
}

/* dk and dv of the tile += what P and dS give. */
static void backward_keys(const struct head_view *head, const struct backward *a,
                          const struct block_view *b, int64_t j0)
{
    int64_t token = a->at.token, out_token = a->at.out_token, d = a->shape->head_dim;
    int64_t m = b->m, n_keys = b->i0 + m, n = mist_cpu_min(n_keys - j0, KEY_TILE);
    mist_cpu_sgemm(n, d, m, 1.0f, transposed(b->p, n),
                   plain(head->d_out + b->i0 * out_token, out_token), 1.0f,
                   head->dv + j0 * token, token);
    mist_cpu_sgemm(n, d, m, a->at.scale, transposed(b->ds + j0, n_keys),
                   plain(head->q + b->i0 * token, token), 1.0f, head->dk + j0 * token,
                   token);
}

/* dq of a block's queries from their dS against all keys they see. */
static void backward_queries(const struct head_view *head, const struct backward *a,
                             const struct block_view *b)
{
    int64_t n_keys = b->i0 + b->m, token = a->at.token;
    mist_cpu_sgemm(b->m, a->shape->head_dim, n_keys, a->at.scale, plain(b->ds, n_keys),
                   plain(head->k, token), 0.0f, head->dq + b->i0 * token, token);
}

/* One key-value head by the calling thread; scratch [2, block, s]. */
static void backward_alone(const struct backward *a, int64_t i_kv_head, float *scratch)
{
    int64_t s = a->shape->s, first = i_kv_head * a->at.group;
    for (int64_t g = first; g < first + a->at.group; g++) {
        struct head_view head = head_of(a, g);
        if (g == first)
            zero_keys(&head, a, 0, s);
        for (int64_t i0 = 0; i0 < s; i0 += a->at.block) {
            struct block_view b = block_of(a, i0, scratch, scratch + a->at.block * s);
            for (int64_t j = 0; j < i0 + b.m; j += KEY_TILE) {
                score_keys(&head, a, &b, j);
                backward_keys(&head, a, &b, j);
            }
            backward_queries(&head, a, &b);
        }
    }
}

/* dq of one block of queries; scratch [2, block, s]. */
static void backward_query_block(const struct backward *a, const struct head_view *head,
                                 int64_t i0, float *scratch)
{
    struct block_view b = block_of(a, i0, scratch, scratch + a->at.block * a->shape->s);
    for (int64_t j = 0; j < i0 + b.m; j += KEY_TILE)
        score_keys(head, a, &b, j);
    backward_queries(head, a, &b);
}

/* dk and dv of one tile of a key-value head's keys; scratch [2, block, s]. */
static void backward_key_tile(const struct backward *a, int64_t i_kv_head, int64_t j0,
                              float *scratch)
{
    int64_t s = a->shape->s, first = i_kv_head * a->at.group;
    for (int64_t g = first; g < first + a->at.group; g++) {
        struct head_view head = head_of(a, g);
        if (g == first)
            zero_keys(&head, a, j0, mist_cpu_min(s, j0 + KEY_TILE));
        for (int64_t i0 = j0 / a->at.block * a->at.block; i0 < s; i0 += a->at.block) {
            struct block_view b = block_of(a, i0, scratch, scratch + a->at.block * s);
            score_keys(&head, a, &b, j0);
            backward_keys(&head, a, &b, j0);
        }
    }
}

/* The calling thread's share, in tasks that need no other's result; large ones first. */
static void backward_apart(const struct backward *a, float *scratch)
{
    int64_t s = a->shape->s, n_heads = a->shape->b * a->shape->heads;
    int64_t n_kv_heads = a->shape->b * a->shape->kv_heads;
    int64_t n_tiles = (s + KEY_TILE - 1) / KEY_TILE, n_blocks = a->at.n_query_blocks;
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t t = 0; t < n_kv_heads * n_tiles; t++)
        backward_key_tile(a, t % n_kv_heads, t / n_kv_heads * KEY_TILE, scratch);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t t = 0; t < n_heads * n_blocks; t++) {
        struct head_view head = head_of(a, t % n_heads);
        backward_query_block(a, &head, (n_blocks - 1 - t / n_heads) * a->at.block,
                             scratch);
    }
}

size_t mist_cpu_attention_backward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                   int n_threads)
{
    return 2 * mist_cpu_attention_forward_workspace_bytes(shape, n_threads);
}

void mist_cpu_attention_backward(float *dqkv, const float *d_out, const float *qkv,
                                 const float *out, const float *lse,
                                 const struct mist_cpu_attention *shape, void *workspace,
                                 int n_threads)
{
    const struct backward a = {dqkv, d_out, qkv, out, lse, shape, layout_of(shape)};
    int64_t n_kv_heads = shape->b * shape->kv_heads;
    bool are_enough = n_kv_heads % n_threads == 0 || n_kv_heads >= 4 * n_threads;
#pragma omp parallel num_threads(n_threads)
    {
        float *scratch =
            (float *)workspace + omp_get_thread_num() * 2 * a.at.block * shape->s;
        if (are_enough) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t t = 0; t < n_kv_heads; t++)
                backward_alone(&a, t, scratch);
        } else {
            backward_apart(&a, scratch);
        }
    }
}

/* ------------------------------------------------------------------------------- rope */

void mist_cpu_rope_fill(float *table, int64_t s, const struct mist_model *model)
{
    int64_t head_dim = model->head_dim, half = head_dim / 2;
    for (int64_t j = 0; j < half; j++) {
        double frequency = mist_model_rope_frequency(model, (int32_t)j);
        for (int64_t i = 0; i < s; i++) {
            table[i * head_dim + j] = (float)cos((double)i * frequency);
            table[i * head_dim + half + j] = (float)sin((double)i * frequency);
        }
    }
}

/* Turns n_heads consecutive heads of one token; direction -1 turns back. */
MIST_CPU_CLONES static void rotate_heads(float *x, const float *table, int64_t n_heads,
                                         int64_t half, float direction)
{
    const float *cosine = table, *sine = table + half;
    for (int64_t i = 0; i < n_heads; i++) {
        float *lo = x + i * 2 * half, *hi = lo + half;
#pragma omp simd
        for (int64_t j = 0; j < half; j++) {
            float a = lo[j], b = hi[j], c = cosine[j], d = direction * sine[j];
            lo[j] = a * c - b * d;
            hi[j] = b * c + a * d;
        }
    }
}

MIST_CPU_CLONES static void rotate_bf16_heads(mist_bf16 *x, const float *table,
                                              int64_t n_heads, int64_t half,
                                              float direction)
{
    const float *cosine = table, *sine = table + half;
    for (int64_t i = 0; i < n_heads; i++) {
        mist_bf16 *lo = x + i * 2 * half, *hi = lo + half;
#pragma omp simd
        for (int64_t j = 0; j < half; j++) {
            float a = mist_bf16_value(lo[j]), b = mist_bf16_value(hi[j]);
            float c = cosine[j], d = direction * sine[j];
            lo[j] = mist_bf16_round(a * c - b * d);
            hi[j] = mist_bf16_round(b * c + a * d);
        }
    }
}

void mist_cpu_rope(bool is_bf16, void *qkv, const float *table,
                   const struct mist_cpu_attention *shape, bool is_backward,
                   int n_threads)
{
    float direction = is_backward ? -1.0f : 1.0f;
    struct layout at = layout_of(shape);
    int64_t n_tokens = shape->b * shape->s, half = shape->head_dim / 2;
    int64_t n_heads = shape->heads + shape->kv_heads;

#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int64_t i = 0; i < n_tokens; i++) {
        const float *turns = table + i % shape->s * shape->head_dim;
        if (is_bf16)
            rotate_bf16_heads((mist_bf16 *)qkv + i * at.token, turns, n_heads, half,
                              direction);
        else
            rotate_heads((float *)qkv + i * at.token, turns, n_heads, half, direction);
    }
}
