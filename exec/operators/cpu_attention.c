/*
 * Causal attention with grouped queries.
 *
 * A block of QUERY_BLOCK queries i0 .. i0 + m - 1 of one head, at positions p0 .. p0 + m - 1,
 * meets keys 0 .. p0 + m - 1 in tiles of KEY_TILE; keys after the block are never touched, those
 * after the diagonal within it are masked. Queries are all of a sequence, or the two chunks of a
 * context-parallel rank, whose keys and values are in a tensor of their own.
 *
 * With P = exp(scale scores - lse) and delta_i = dot(d_out_i, out_i) (Dao et al. 2022,
 * appendix B.2) the backward is dS = scale P * (d_out V^T - delta),
 * dQ = dS K,   dK += dS^T Q,   dV += P^T d_out.
 *
 * In bf16 scores, sums and slopes are fp32, P and dS are rounded for the products that
 * read them, and dQ, dK and dV once they are whole.
 *
 * Forward threads share out query blocks, backward threads key-value heads; or, where
 * there are too few of those for the threads (multi-query attention has one), blocks of
 * queries for dQ and tiles of keys for dK and dV, each of which takes P and dS anew: 7
 * products in place of 5. Either way dK and dV are summed over query heads and blocks in
 * the same order from products of the same shapes.
 */
#include "exec/operators/cpu_bf16_internal.h"
#include "exec/operators/cpu_internal.h"

#include <math.h> /* INFINITY, logf, NAN, sqrt */
#include <omp.h>

enum { QUERY_BLOCK = 64, KEY_TILE = 256 }; /* a tile is a whole number of blocks */

/* --------------------------------------------------------------------------- products */

/* Of a block's m queries and a tile's n keys; d: elements of a head. c is fp32. */
enum product {
    SCORES,     /* c [m, n]  = q k^T */
    SLOPES,     /* c [m, n]  = d_out v^T */
    OF_KEYS,    /* c [m, d] += P v, dS k */
    OF_OUT,     /* c [n, d] += P^T d_out */
    OF_QUERIES, /* c [n, d] += dS^T q */
    N_PRODUCTS
};

struct attention {
    const struct mist_cpu_attention *shape;
    bool is_bf16;
    struct mist_cpu_bf16 *context; /* bf16: of its products */
    int64_t token;                 /* elements of one token of qkv */
    int64_t key_token;             /* the same of what has keys and values */
    int64_t first_key;             /* where the keys begin in it */
    int64_t out_token;             /* elements of one token of out */
    int64_t group;                 /* query heads per key-value head */
    struct mist_chunks chunks;     /* of each sequence that are queries */
    int64_t n_chunks, n_queries;   /* of a sequence */
    int64_t block, n_blocks;       /* queries per block, blocks per sequence */
    int64_t tile, n_tiles;         /* the same of keys */
    float scale;                   /* 1 / sqrt(head_dim) */
    /* bf16; of whole blocks, of a chunk's last; by keys. In the context; 0: not found yet */
    size_t products[N_PRODUCTS][2][KEY_TILE + 1];
};

/* part: rank i of n; n 1: the whole, with keys and values in qkv. */
static struct attention attention_of(const struct mist_cpu_attention *shape, int64_t n,
                                     int64_t i, struct mist_cpu_bf16 *context)
{
    int64_t block = mist_cpu_min(shape->s, QUERY_BLOCK), d = shape->head_dim;
    int64_t tile = mist_cpu_min(shape->s, KEY_TILE);
    int64_t token = (shape->heads + 2 * shape->kv_heads) * d;
    struct mist_chunks chunks = mist_chunks_of(shape->s, n, i);
    int64_t n_chunks = n > 1 ? 2 : 1;

    return (struct attention){
        .shape = shape,
        .is_bf16 = context != NULL,
        .context = context,
        .token = token,
        .key_token = n > 1 ? 2 * shape->kv_heads * d : token,
        .first_key = n > 1 ? 0 : shape->heads * d,
        .out_token = shape->heads * d,
        .group = shape->heads / shape->kv_heads,
        .chunks = chunks,
        .n_chunks = n_chunks,
        .n_queries = n_chunks * chunks.length,
        .block = block,
        .n_blocks = n_chunks * mist_cpu_n_chunks(chunks.length, block),
        .tile = tile,
        .n_tiles = mist_cpu_n_chunks(shape->s, tile),
        .scale = (float)(1.0 / sqrt((double)d)),
    };
}

/* Queries of a sequence that are taken together. */
struct queries {
    int64_t i0, m; /* the first, in the order in which they lie; how many */
    int64_t p0;    /* position of the first */
};

static struct queries queries_of(const struct attention *at, int64_t i_block)
{
    int64_t n = at->n_blocks / at->n_chunks, i_chunk = i_block / n;
    int64_t first = i_block % n * at->block;

    return (struct queries){
        .i0 = i_chunk * at->chunks.length + first,
        .m = mist_cpu_min(at->block, at->chunks.length - first),
        .p0 = at->chunks.first[i_chunk] + first,
    };
}

/* Where a query head and the key-value head that it reads lie in packed tensors, from the
 * first token of their sequence on; in elements. */
struct place {
    int64_t q;    /* in qkv */
    int64_t k, v; /* there, or in what has keys and values */
    int64_t out;
};

/* Of head g of all batch items' heads. */
static struct place place_of(const struct attention *at, int64_t g)
{
    int64_t heads = at->shape->heads, d = at->shape->head_dim, i_head = g % heads;
    int64_t i_token = g / heads * at->n_queries;
    int64_t k =
        g / heads * at->shape->s * at->key_token + at->first_key + i_head / at->group * d;

    return (struct place){.q = i_token * at->token + i_head * d,
                          .k = k,
                          .v = k + at->shape->kv_heads * d,
                          .out = i_token * at->out_token + i_head * d};
}

static struct mist_cpu_product product_of(const struct attention *at,
                                          enum product product, int64_t m, int64_t n)
{
    int64_t d = at->shape->head_dim, tile = at->tile;
    /* ..., strides, is_float, adds, has_bias */
    const struct mist_cpu_product shapes[N_PRODUCTS] = {
        [SCORES] = {m, n, d, {at->token, 1}, {1, at->key_token}, tile, 1, 0, 0},
        [SLOPES] = {m, n, d, {at->out_token, 1}, {1, at->key_token}, tile, 1, 0, 0},
        [OF_KEYS] = {m, d, n, {tile, 1}, {at->key_token, 1}, d, 1, 1, 0},
        [OF_OUT] = {n, d, m, {1, tile}, {at->out_token, 1}, 2 * d, 1, 1, 0},
        [OF_QUERIES] = {n, d, m, {1, tile}, {at->token, 1}, 2 * d, 1, 1, 0},
    };

    return shapes[product];
}

/* Those that a forward or backward needs, by the thread that owns the context. */
static bool find_products(struct attention *at, bool is_backward)
{
    bool is_ok = true;

    for (int64_t b = 0; at->is_bf16 && b < at->n_blocks; b++) {
        const struct queries of = queries_of(at, b);
        for (int64_t j0 = 0; j0 < of.p0 + of.m; j0 += at->tile)
            for (enum product p = 0; p < N_PRODUCTS && is_ok; p++) {
                int64_t n = mist_cpu_min(of.p0 + of.m - j0, at->tile);
                size_t *found = &at->products[p][of.m < at->block][n];
                const struct mist_cpu_product shape = product_of(at, p, of.m, n);
                if (!*found && (is_backward || p == SCORES || p == OF_KEYS))
                    is_ok = mist_cpu_bf16_find_product(at->context, &shape, found);
            }
    }
    return is_ok;
}

static const void *element(const struct attention *at, const void *x, int64_t i)
{
    return (const char *)x + i * mist_cpu_element_bytes(at->is_bf16);
}

static void *element_to(const struct attention *at, void *x, int64_t i)
{
    return (char *)x + i * mist_cpu_element_bytes(at->is_bf16);
}

static void fill_nan(float *c, int64_t rows, int64_t columns, int64_t stride)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            c[i * stride + j] = NAN;
}

/* bf16: adds as the product says, and c_stride is as there. */
static void multiply(const struct attention *at, enum product product, int64_t m,
                     int64_t n, const void *a, const void *b, float *c, int64_t c_stride,
                     bool adds)
{
    struct mist_cpu_product of = product_of(at, product, m, n);

    if (!at->is_bf16) {
        of.c_stride = c_stride;
        of.adds = adds;
        mist_cpu_sgemm(&of, a, b, c);
        return;
    }
    if (!mist_cpu_bf16_execute(at->context, at->products[product][m < at->block][n],
                               omp_get_thread_num(), a, b, c, NULL))
        fill_nan(c, of.m, of.n, of.c_stride); /* no memory */
}

/* [rows, columns] to read in a product: x, or rounded in room, which is as x. */
static const void *for_product(const struct attention *at, const float *x,
                               mist_bf16 *room, int64_t rows, int64_t columns)
{
    if (!at->is_bf16)
        return x;
    for (int64_t i = 0; i < rows; i++)
        mist_cpu_bf16_from_float(room + i * at->tile, x + i * at->tile, columns);
    return room;
}

/* Rows of n elements into a tensor of bf16. */
static void round_rows(mist_bf16 *out, int64_t out_stride, const float *x, int64_t stride,
                       int64_t rows, int64_t n)
{
    for (int64_t i = 0; i < rows; i++)
        mist_cpu_bf16_from_float(out + i * out_stride, x + i * stride, n);
}

/* ---------------------------------------------------------------------------- forward */

MIST_CPU_CLONES static float max_score(const float *row, int64_t n)
{
    return mist_cpu_max(row, n);
}

/* Of the keys in a tile, those that a query sees which sees n_seen of all. */
static int32_t n_seen_of(int64_t n_seen, int64_t j0, int64_t n)
{
    return n_seen < j0 ? 0 : (int32_t)mist_cpu_min(n_seen - j0, n);
}

/* row[0 .. n) = exp(scale row - max), 0 from n_seen on; returns their sum. Takes whole
 * rows, also where keys are not seen: full vectors cost less than the ends of loops. */
MIST_CPU_CLONES static float exp_scores(float *row, float scale, float max,
                                        int32_t n_seen, int32_t n)
{
#pragma omp simd
    for (int32_t j = 0; j < n; j++) {
        float p = mist_cpu_exp(row[j] * scale - max);
        row[j] = j < n_seen ? p : 0.0f;
    }
    return mist_cpu_sum(row, n);
}

/* scores, tile after tile of [block, tile]: to exp(scale scores - max), in row i of which
 * the first p0 + i + 1 are seen; returns the row's sum. */
static float soften(const struct attention *at, float *scores, int64_t p0, int64_t m,
                    int64_t i, float *lse)
{
    int64_t n_keys = p0 + m, n_seen = p0 + i + 1;
    float max = -INFINITY, sum = 0;

    scores += i * at->tile;
    for (int64_t j0 = 0; j0 < n_seen; j0 += at->tile)
        max = fmaxf(
            max, max_score(scores + j0 * at->block, mist_cpu_min(n_seen - j0, at->tile)));
    max *= at->scale;
    int64_t j0 = 0;
    do {
        int64_t n = mist_cpu_min(n_keys - j0, at->tile);
        sum += exp_scores(scores + j0 * at->block, at->scale, max,
                          n_seen_of(n_seen, j0, n), (int32_t)n);
        j0 += at->tile;
    } while (j0 < n_keys);
    *lse = max + logf(sum);
    return sum;
}

/* Queries of a head; q, k, v, out and lse at the sequence's first token. */
static void attend_block(const struct attention *at, void *out, float *lse, const void *q,
                         const void *k, const void *v, const struct queries *of,
                         float *scores)
{
    int64_t i0 = of->i0, m = of->m, n_keys = of->p0 + m;
    int64_t d = at->shape->head_dim, stride = at->is_bf16 ? d : at->out_token;
    float sums[QUERY_BLOCK], *room = scores + at->n_tiles * at->block * at->tile;
    float *sum = at->is_bf16 ? room + (at->block * at->tile + 1) / 2
                             : (float *)out + i0 * at->out_token;

    for (int64_t j0 = 0; j0 < n_keys; j0 += at->tile)
        multiply(at, SCORES, m, mist_cpu_min(n_keys - j0, at->tile),
                 element(at, q, i0 * at->token), element(at, k, j0 * at->key_token),
                 scores + j0 * at->block, at->tile, false);
    for (int64_t i = 0; i < m; i++)
        sums[i] = soften(at, scores, of->p0, m, i, &lse[i0 + i]);
    if (at->is_bf16)
        memset(sum, 0, (size_t)(m * d) * sizeof *sum);
    for (int64_t j0 = 0; j0 < n_keys; j0 += at->tile) {
        int64_t n = mist_cpu_min(n_keys - j0, at->tile);
        multiply(at, OF_KEYS, m, n,
                 for_product(at, scores + j0 * at->block, (void *)room, m, n),
                 element(at, v, j0 * at->key_token), sum, stride, j0 > 0);
    }
    for (int64_t i = 0; i < m; i++)
        mist_cpu_scale_chunk(sum + i * stride, 1.0f / sums[i], d);
    if (at->is_bf16)
        round_rows((mist_bf16 *)out + i0 * at->out_token, at->out_token, sum, d, m, d);
}

/* Per thread: the scores of a block; bf16: a tile of them rounded, and out of the block. */
static size_t forward_floats(const struct attention *at)
{
    int64_t d = at->shape->head_dim;
    int64_t rounded = at->is_bf16 ? (at->block * at->tile + 1) / 2 + at->block * d : 0;

    return (size_t)(at->n_tiles * at->block * at->tile + rounded);
}

static void attend(struct attention *at, void *out, float *lse, const void *qkv,
                   const void *kv, void *workspace, int n_threads)
{
    const struct mist_cpu_attention *shape = at->shape;
    int64_t n_tasks = shape->b * shape->heads * at->n_blocks;

    if (!find_products(at, false)) {
        memset(out, 0xFF,
               (size_t)(shape->b * at->n_queries * at->out_token) * 2); /* NaN */
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        float *scratch =
            (float *)workspace + (size_t)omp_get_thread_num() * forward_floats(at);
        omp_set_num_threads(1); /* of this task: oneDNN starts no threads within */
#pragma omp for schedule(dynamic, 1)
        for (int64_t t = 0; t < n_tasks; t++) {
            int64_t g = t / at->n_blocks;
            const struct queries of = queries_of(at, t % at->n_blocks);
            const struct place lies = place_of(at, g);
            attend_block(at, element_to(at, out, lies.out), lse + g * at->n_queries,
                         element(at, qkv, lies.q), element(at, kv, lies.k),
                         element(at, kv, lies.v), &of, scratch);
        }
    }
}

size_t mist_cpu_attention_forward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                  bool is_bf16, int n_threads)
{
    struct attention at = attention_of(shape, 1, 0, NULL);

    at.is_bf16 = is_bf16;
    return (size_t)n_threads * forward_floats(&at) * sizeof(float);
}

void mist_cpu_attention_forward(struct mist_cpu_bf16 *context, void *out, float *lse,
                                const void *qkv, const struct mist_cpu_attention *shape,
                                void *workspace, int n_threads)
{
    struct attention at = attention_of(shape, 1, 0, context);

    attend(&at, out, lse, qkv, qkv, workspace, n_threads);
}

void mist_cpu_attention_part_forward(struct mist_cpu_bf16 *context, void *out, float *lse,
                                     const void *qkv, const void *kv,
                                     const struct mist_cpu_attention_part *part,
                                     void *workspace, int n_threads)
{
    struct attention at = attention_of(&part->whole, part->n, part->i, context);

    attend(&at, out, lse, qkv, part->n > 1 ? kv : qkv, workspace, n_threads);
}

/* --------------------------------------------------------------------------- backward */

/* In: scores and d_out V^T; out: P and dS; [0 .. n), both 0 from n_seen on. */
MIST_CPU_CLONES static void backward_scores(float *p, float *ds, float scale, float lse,
                                            float delta, int32_t n_seen, int32_t n)
{
#pragma omp simd
    for (int32_t j = 0; j < n; j++) {
        float share = mist_cpu_exp(p[j] * scale - lse);
        float slope = share * (ds[j] - delta) * scale;
        p[j] = j < n_seen ? share : 0.0f;
        ds[j] = j < n_seen ? slope : 0.0f;
    }
}

MIST_CPU_CLONES static float dot_heads(const float *a, const float *b, int64_t n)
{
    return mist_cpu_dot(a, b, n);
}

struct backward {
    struct attention at;
    void *dqkv, *dkv; /* of queries; of keys and values: the same tensor, or another */
    const void *d_out, *qkv, *kv, *out;
    const float *lse;
};

/* What a thread works in; the last five for bf16 alone. */
struct scratch {
    float *p, *ds;         /* [block, tile] */
    float *delta;          /* [block] */
    float *rooms;          /* [2, d] rows in fp32 */
    mist_bf16 *p16, *ds16; /* [block, tile] P and dS, rounded */
    float *dq;             /* [block, d] */
    float *sums;           /* [s, 2 d] dk and dv */
};

static size_t backward_floats(const struct attention *at)
{
    int64_t d = at->shape->head_dim, tile = at->block * at->tile;
    int64_t rounded = tile + 2 * d + at->block * d + 2 * at->shape->s * d;

    return (size_t)(2 * tile + at->block + (at->is_bf16 ? rounded : 0));
}

static struct scratch scratch_of(const struct attention *at, void *workspace)
{
    int64_t d = at->shape->head_dim, tile = at->block * at->tile;
    float *mine = (float *)workspace + (size_t)omp_get_thread_num() * backward_floats(at);
    struct scratch to = {.p = mine, .ds = mine + tile, .delta = mine + 2 * tile};

    if (!at->is_bf16)
        return to;
    to.p16 = (void *)(to.delta + at->block);
    to.ds16 = to.p16 + tile;
    to.dq = to.delta + at->block + tile;
    to.rooms = to.dq + at->block * d;
    to.sums = to.rooms + 2 * d;
    return to;
}

/* One query head's tensors at its sequence's first token, and the sums of its keys' and
 * values' gradients from first_key on. */
struct head_view {
    const void *q, *k, *v, *out, *d_out;
    const float *lse;
    void *dq;
    float *dk, *dv;
    int64_t stride; /* of rows of dk and dv */
    int64_t first_key;
};

/* Head g of all batch items. */
static struct head_view head_of(const struct backward *a, int64_t g, int64_t first_key,
                                const struct scratch *scratch)
{
    const struct attention *at = &a->at;
    const struct place lies = place_of(at, g);
    int64_t d = at->shape->head_dim;
    float *dkv = a->dkv;
    struct head_view head = {
        .q = element(at, a->qkv, lies.q),
        .k = element(at, a->kv, lies.k),
        .v = element(at, a->kv, lies.v),
        .out = element(at, a->out, lies.out),
        .d_out = element(at, a->d_out, lies.out),
        .lse = a->lse + g * at->n_queries,
        .dq = element_to(at, a->dqkv, lies.q),
        .first_key = first_key,
    };

    if (scratch->sums) { /* bf16 */
        head.dk = scratch->sums;
        head.dv = scratch->sums + d;
        head.stride = 2 * d;
    } else {
        head.dk = dkv + lies.k + first_key * at->key_token;
        head.dv = dkv + lies.v + first_key * at->key_token;
        head.stride = at->key_token;
    }
    return head;
}

static void zero_keys(const struct head_view *head, int64_t n, int64_t d)
{
    for (int64_t j = 0; j < n; j++) {
        memset(head->dk + j * head->stride, 0, (size_t)d * sizeof *head->dk);
        memset(head->dv + j * head->stride, 0, (size_t)d * sizeof *head->dv);
    }
}

/* Of the n keys that were summed: bf16 has its gradients yet to be rounded. */
static void finish_keys(const struct backward *a, int64_t g, const struct head_view *head,
                        int64_t n)
{
    const struct attention *at = &a->at;
    const struct place lies = place_of(at, g);
    int64_t d = at->shape->head_dim, first = head->first_key * at->key_token;
    mist_bf16 *dkv = a->dkv;

    if (!at->is_bf16)
        return;
    round_rows(dkv + lies.k + first, at->key_token, head->dk, head->stride, n, d);
    round_rows(dkv + lies.v + first, at->key_token, head->dv, head->stride, n, d);
}

/* A block of queries of one head. */
struct block_view {
    const struct attention *at;
    const struct head_view *head;
    const struct scratch *scratch;
    int64_t i0, m;
    int64_t n_keys; /* that they see together: p0 + m */
};

static struct block_view block_of(const struct attention *at,
                                  const struct head_view *head,
                                  const struct scratch *scratch, int64_t i_block)
{
    const struct queries of = queries_of(at, i_block);
    struct block_view b = {at, head, scratch, of.i0, of.m, of.p0 + of.m};
    int64_t d = at->shape->head_dim;

    for (int64_t i = 0; i < b.m; i++) {
        int64_t row = (b.i0 + i) * at->out_token;
        scratch->delta[i] = dot_heads(
            mist_cpu_from(at->is_bf16, scratch->rooms, head->d_out, row, d),
            mist_cpu_from(at->is_bf16, scratch->rooms + d, head->out, row, d), d);
    }
    return b;
}

/* P and dS of a block's queries against the tile of keys from j0 on; the dS to read. */
static const void *score_keys(const struct block_view *b, int64_t j0)
{
    const struct attention *at = b->at;
    const struct head_view *head = b->head;
    const struct scratch *to = b->scratch;
    int64_t n = mist_cpu_min(b->n_keys - j0, at->tile);

    multiply(at, SCORES, b->m, n, element(at, head->q, b->i0 * at->token),
             element(at, head->k, j0 * at->key_token), to->p, at->tile, false);
    multiply(at, SLOPES, b->m, n, element(at, head->d_out, b->i0 * at->out_token),
             element(at, head->v, j0 * at->key_token), to->ds, at->tile, false);
    for (int64_t i = 0; i < b->m; i++)
        backward_scores(to->p + i * at->tile, to->ds + i * at->tile, at->scale,
                        head->lse[b->i0 + i], to->delta[i],
                        n_seen_of(b->n_keys - b->m + i + 1, j0, n), (int32_t)n);
    return for_product(at, to->ds, to->ds16, b->m, n);
}

/* dk and dv of the tile += what P and dS give. */
static void backward_keys(const struct block_view *b, const void *ds, int64_t j0)
{
    const struct attention *at = b->at;
    const struct head_view *head = b->head;
    int64_t n = mist_cpu_min(b->n_keys - j0, at->tile);
    int64_t first = (j0 - head->first_key) * head->stride;
    const void *p = for_product(at, b->scratch->p, b->scratch->p16, b->m, n);

    multiply(at, OF_OUT, b->m, n, p, element(at, head->d_out, b->i0 * at->out_token),
             head->dv + first, head->stride, true);
    multiply(at, OF_QUERIES, b->m, n, ds, element(at, head->q, b->i0 * at->token),
             head->dk + first, head->stride, true);
}

/* dq of a block's queries, and the keys it sees: dk and dv, if these are summed here. */
static void backward_block(const struct block_view *b, bool sums_keys)
{
    const struct attention *at = b->at;
    int64_t d = at->shape->head_dim, stride = at->is_bf16 ? d : at->token;
    void *dq = element_to(at, b->head->dq, b->i0 * at->token);
    float *sum = at->is_bf16 ? b->scratch->dq : dq;

    if (at->is_bf16)
        memset(sum, 0, (size_t)(b->m * d) * sizeof *sum);
    for (int64_t j0 = 0; j0 < b->n_keys; j0 += at->tile) {
        const void *ds = score_keys(b, j0);
        if (sums_keys)
            backward_keys(b, ds, j0);
        multiply(at, OF_KEYS, b->m, mist_cpu_min(b->n_keys - j0, at->tile), ds,
                 element(at, b->head->k, j0 * at->key_token), sum, stride, j0 > 0);
    }
    if (at->is_bf16)
        round_rows(dq, at->token, sum, d, b->m, d);
}

/* One key-value head by the calling thread. */
static void backward_alone(const struct backward *a, int64_t i_kv_head,
                           const struct scratch *scratch)
{
    const struct attention *at = &a->at;
    int64_t s = at->shape->s, first = i_kv_head * at->group;
    struct head_view head = head_of(a, first, 0, scratch);

    zero_keys(&head, s, at->shape->head_dim);
    for (int64_t g = first; g < first + at->group; g++) {
        head = head_of(a, g, 0, scratch);
        for (int64_t i = 0; i < at->n_blocks; i++) {
            struct block_view b = block_of(at, &head, scratch, i);
            backward_block(&b, true);
        }
    }
    finish_keys(a, first, &head, s);
}

/* dk and dv of one tile of a key-value head's keys. */
static void backward_key_tile(const struct backward *a, int64_t i_kv_head, int64_t j0,
                              const struct scratch *scratch)
{
    const struct attention *at = &a->at;
    int64_t s = at->shape->s, first = i_kv_head * at->group;
    int64_t n = mist_cpu_min(s - j0, at->tile);
    struct head_view head = head_of(a, first, j0, scratch);

    zero_keys(&head, n, at->shape->head_dim);
    for (int64_t g = first; g < first + at->group; g++) {
        head = head_of(a, g, j0, scratch);
        for (int64_t i = 0; i < at->n_blocks; i++) {
            const struct queries of = queries_of(at, i);
            if (of.p0 + of.m <= j0)
                continue;
            struct block_view b = block_of(at, &head, scratch, i);
            backward_keys(&b, score_keys(&b, j0), j0);
        }
    }
    finish_keys(a, first, &head, n);
}

/* The calling thread's share, in tasks that need no other's result; large ones first. */
static void backward_apart(const struct backward *a, const struct scratch *scratch)
{
    const struct attention *at = &a->at;
    int64_t n_heads = at->shape->b * at->shape->heads;
    int64_t n_kv_heads = at->shape->b * at->shape->kv_heads;
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t t = 0; t < n_kv_heads * at->n_tiles; t++)
        backward_key_tile(a, t % n_kv_heads, t / n_kv_heads * at->tile, scratch);
#pragma omp for schedule(dynamic, 1) nowait
    for (int64_t t = 0; t < n_heads * at->n_blocks; t++) {
        struct head_view head = head_of(a, t % n_heads, 0, scratch);
        struct block_view b =
            block_of(at, &head, scratch, at->n_blocks - 1 - t / n_heads);
        backward_block(&b, false);
    }
}

static void attend_backward(struct backward *a, void *workspace, int n_threads)
{
    const struct mist_cpu_attention *shape = a->at.shape;
    int64_t n_kv_heads = shape->b * shape->kv_heads;
    bool are_enough = n_kv_heads % n_threads == 0 || n_kv_heads >= 4 * n_threads;

    if (!find_products(&a->at, true)) {
        memset(a->dqkv, 0xFF,
               (size_t)(shape->b * a->at.n_queries * a->at.token) *
                   sizeof(mist_bf16)); /* NaN */
        if (a->dkv != a->dqkv)
            memset(a->dkv, 0xFF,
                   (size_t)(shape->b * shape->s * a->at.key_token) * sizeof(mist_bf16));
        return;
    }
#pragma omp parallel num_threads(n_threads)
    {
        struct scratch scratch = scratch_of(&a->at, workspace);
        omp_set_num_threads(1); /* of this task: oneDNN starts no threads within */
        if (are_enough) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t t = 0; t < n_kv_heads; t++)
                backward_alone(a, t, &scratch);
        } else {
            backward_apart(a, &scratch);
        }
    }
}

size_t mist_cpu_attention_backward_workspace_bytes(const struct mist_cpu_attention *shape,
                                                   bool is_bf16, int n_threads)
{
    struct attention at = attention_of(shape, 1, 0, NULL);

    at.is_bf16 = is_bf16;
    return (size_t)n_threads * backward_floats(&at) * sizeof(float);
}

void mist_cpu_attention_backward(struct mist_cpu_bf16 *context, void *dqkv,
                                 const void *d_out, const void *qkv, const void *out,
                                 const float *lse, const struct mist_cpu_attention *shape,
                                 void *workspace, int n_threads)
{
    struct backward a = {
        attention_of(shape, 1, 0, context), dqkv, dqkv, d_out, qkv, qkv, out, lse};

    attend_backward(&a, workspace, n_threads);
}

void mist_cpu_attention_part_backward(struct mist_cpu_bf16 *context, void *dqkv,
                                      void *dkv, const void *d_out, const void *qkv,
                                      const void *kv, const void *out, const float *lse,
                                      const struct mist_cpu_attention_part *part,
                                      void *workspace, int n_threads)
{
    bool is_whole = part->n == 1;
    struct backward a = {attention_of(&part->whole, part->n, part->i, context),
                         dqkv,
                         is_whole ? dqkv : dkv,
                         d_out,
                         qkv,
                         is_whole ? qkv : kv,
                         out,
                         lse};

    attend_backward(&a, workspace, n_threads);
}
