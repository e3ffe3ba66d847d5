/*
 * The CUDA backend's own attention against the CPU's, in both number formats: out, lse,
 * and the parts of dqkv each for itself. Also: the same bits in any order of threads and
 * blocks, later tokens without a trace in earlier ones, scores far from 0.
 */
#include "tests/unit/cuda_help.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static const enum mist_dtype dtypes[] = {MIST_DTYPE_FP32, MIST_DTYPE_BF16};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };
static struct mist_cpu_bf16 *context;

static int make_context(void **state)
{
    return mist_cpu_bf16_new(&context, 1, NULL) != MIST_OK;
}

static int free_context(void **state)
{
    mist_cpu_bf16_free(context);
    return 0;
}

struct attention {
    struct mist_cpu_attention shape;
    enum mist_dtype dtype;
    double size;          /* of q, k and v */
    bool has_own_forward; /* the backward reads its out and lse, not the CPU's */
};

/* ------------------------------------------------------------------------- comparison */

static const float *floats_of(struct cuda_help *h, const struct pair *p,
                              const void *memory)
{
    float *values = help_alloc(&h->host, (p->n + 1) * (int64_t)sizeof *values);

    for (int64_t i = 0; i < p->n; i++)
        values[i] = pair_value(p, memory, i);
    return values;
}

/*
 * Columns first .. first + n - 1 of rows of width: |device - host| <= tolerance |host| in
 * the 2-norm. Where the part is nearly nothing (dq and dk of a lone token) a tenth of the
 * whole's norm counts.
 */
static void assert_columns_close(struct cuda_help *h, const struct pair *p, int64_t width,
                                 int64_t first, int64_t n, double tolerance,
                                 const char *what, const struct mist_cpu_attention *a)
{
    const float *got = floats_of(h, p, pair_download(h, p));
    const float *expected = floats_of(h, p, p->host);
    double error2 = 0.0, part2 = 0.0, whole2 = 0.0;

    for (int64_t i = 0; i < p->n; i++) {
        double x = (double)expected[i], error = (double)got[i] - x;
        bool is_in = i % width >= first && i % width < first + n;
        error2 += is_in ? error * error : 0.0;
        part2 += is_in ? x * x : 0.0;
        whole2 += x * x;
    }
    if (!(sqrt(error2) <= tolerance * fmax(sqrt(part2), 0.1 * sqrt(whole2))))
        fail_msg("%s of b %lld, s %lld, heads %lld/%lld, head_dim %lld: error %g of %g",
                 what, (long long)a->b, (long long)a->s, (long long)a->heads,
                 (long long)a->kv_heads, (long long)a->head_dim, sqrt(error2),
                 sqrt(part2));
}

/* Forward and backward beside the CPU's; large scores: the gradients are finite. */
static void check_shape(struct cuda_help *h, const void *of)
{
    const struct attention *c = of;
    const struct mist_cpu_attention *a = &c->shape;
    bool is_bf16 = c->dtype == MIST_DTYPE_BF16, is_large = c->size > 10;
    struct mist_cpu_bf16 *products = is_bf16 ? context : NULL;
    /* where heads are narrow, few numbers share the error of a rounding */
    double tolerance = !is_bf16 ? 1e-5 : a->head_dim < 8 ? 1e-2 : 4e-3;
    int64_t q = a->heads * a->head_dim, kv = a->kv_heads * a->head_dim;
    int64_t n = a->b * a->s, n_lse = n * a->heads, width = q + 2 * kv;
    struct pair *qkv = pair_random(h, c->dtype, n * width, 0.0, c->size);
    struct pair *d_out = pair_random(h, c->dtype, n * q, 0.0, 1.0);
    struct pair *out = pair_empty(h, c->dtype, n * q);
    struct pair *lse = pair_empty(h, MIST_DTYPE_FP32, n_lse);
    struct pair *dqkv = pair_empty(h, c->dtype, n * width);
    struct pair *workspace = pair_empty(h, MIST_DTYPE_FP32, n_lse);
    size_t room = mist_cpu_attention_forward_workspace_bytes(a, is_bf16, 1);
    size_t room_back = mist_cpu_attention_backward_workspace_bytes(a, is_bf16, 1);

    mist_cpu_attention_forward(products, out->host, lse->host, qkv->host, a,
                               help_alloc(&h->host, (int64_t)room), 1);
    mist_cpu_attention_backward(products, dqkv->host, d_out->host, qkv->host, out->host,
                                lse->host, a, help_alloc(&h->host, (int64_t)room_back),
                                1);
    mist_cuda_attention_forward(NULL, c->dtype, out->device, lse->device, qkv->device, a);
    assert_columns_close(h, out, q, 0, q, is_large ? 1e-3 : tolerance, "out", a);
    assert_columns_close(h, lse, 1, 0, 1, 1e-5, "lse", a);
    if (!c->has_own_forward) {
        pair_upload(out);
        pair_upload(lse);
    }
    mist_cuda_attention_backward(NULL, c->dtype, dqkv->device, d_out->device, qkv->device,
                                 out->device, lse->device, a, workspace->device);
    const float *slopes = floats_of(h, dqkv, pair_download(h, dqkv));
    for (int64_t i = 0; i < dqkv->n; i++)
        assert_true(isfinite(slopes[i]));
    if (!is_large) {
        assert_columns_close(h, dqkv, width, 0, q, tolerance, "dq", a);
        assert_columns_close(h, dqkv, width, q, kv, tolerance, "dk", a);
        assert_columns_close(h, dqkv, width, q + kv, kv, tolerance, "dv", a);
    }
    pair_assert_same(h, qkv);
    pair_assert_same(h, d_out);
    if (!c->has_own_forward) {
        pair_assert_same(h, out);
        pair_assert_same(h, lse);
    }
}

/* ------------------------------------------------------------------------------ tests */

/* Every length with every head_dim; groups of heads and b take turns. */
TEST(test_shapes)
{
    static const int64_t lengths[] = {1, 7, 64, 65, 96, 130};
    static const int64_t head_dims[] = {8, 20, 64, 80, 128};
    static const int64_t heads[][2] = {{1, 1}, {4, 2}, {6, 1}};
    int turn = 0;

    for (int i = 0; i < COUNT(lengths); i++)
        for (int j = 0; j < COUNT(head_dims); j++)
            for (int k = 0; k < N_DTYPES; k++, turn++) {
                const int64_t *n_heads = heads[(i + j + 2 * k) % COUNT(heads)];
                struct attention c = {
                    {1 + turn % 5 % 2, lengths[i], n_heads[0], n_heads[1], head_dims[j]},
                    dtypes[k],
                    2.0,
                    false};
                cuda_run_in(check_shape, &c, 1);
            }
}

/* Bounds of the kernels' sizes, and what fits no vector. */
TEST(test_odd_shapes)
{
    static const struct mist_cpu_attention shapes[] = {
        {1, 33, 2, 1, 1},   {2, 66, 3, 3, 3},  {1, 70, 2, 2, 32},  {1, 67, 2, 1, 33},
        {1, 100, 1, 1, 63}, {1, 65, 2, 1, 65}, {1, 34, 2, 2, 127}, {1, 33, 2, 1, 129},
        {1, 50, 1, 1, 250}, {2, 49, 2, 1, 256}};

    for (int i = 0; i < COUNT(shapes); i++)
        for (int k = 0; k < N_DTYPES; k++)
            cuda_run_in(check_shape,
                        &(struct attention){shapes[i], dtypes[k], 2.0, false}, 1);
}

/* The backward after its own forward, in three orders. */
TEST(test_orders)
{
    static const struct mist_cpu_attention shapes[] = {
        {2, 66, 4, 2, 20}, {1, 130, 2, 1, 64}, {1, 70, 2, 1, 128}, {1, 40, 2, 2, 256}};

    for (int i = 0; i < COUNT(shapes); i++)
        for (int k = 0; k < N_DTYPES; k++)
            cuda_run_in(check_shape, &(struct attention){shapes[i], dtypes[k], 2.0, true},
                        3);
}

/* Scores of thousands, at which exp of a score alone would overflow. */
TEST(test_large_scores)
{
    for (int k = 0; k < N_DTYPES; k++)
        cuda_run_in(check_shape,
                    &(struct attention){{1, 100, 2, 1, 64}, dtypes[k], 40.0, false}, 1);
}

/* Other numbers from token 70 on, from 128 on (tiles ahead, never touched) none at all:
 * out and lse of the tokens before 70 keep their bits. */
static void check_causality(struct cuda_help *h, const void *of)
{
    const struct mist_cpu_attention *a = of;
    const enum mist_dtype fp32 = MIST_DTYPE_FP32;
    int64_t q = a->heads * a->head_dim, token = q + 2 * a->kv_heads * a->head_dim;
    int64_t n_before = 70, n = a->b * a->s;
    struct pair *qkv[] = {pair_random(h, fp32, n * token, 0.0, 2.0),
                          pair_random(h, fp32, n * token, 0.0, 20.0)};
    const float *out[2], *lse[2];

    memcpy(qkv[1]->host, qkv[0]->host, (size_t)(n_before * token) * sizeof(float));
    for (int64_t i = 128 * token; i < n * token; i++)
        ((float *)qkv[1]->host)[i] = NAN;
    pair_upload(qkv[1]);
    for (int i = 0; i < 2; i++) {
        struct pair *to = pair_empty(h, fp32, n * q);
        struct pair *sums = pair_empty(h, fp32, n * a->heads);
        mist_cuda_attention_forward(NULL, fp32, to->device, sums->device, qkv[i]->device,
                                    a);
        out[i] = pair_download(h, to);
        lse[i] = pair_download(h, sums);
    }
    help_assert_same_bits(out[0], out[1], n_before * q);
    for (int64_t i = 0; i < a->heads; i++)
        help_assert_same_bits(lse[0] + i * a->s, lse[1] + i * a->s, n_before);
    assert_memory_not_equal(out[0], out[1], (size_t)(n * q) * sizeof(float));
}

TEST(test_causality)
{
    cuda_run(check_causality, &(struct mist_cpu_attention){1, 130, 4, 2, 80});
}

/* ---------------------------------------------------------------- context parallelism */

struct part {
    struct mist_cpu_attention_part of;
    enum mist_dtype dtype;
};

/* Columns before first are the host's. */
static void assert_rest_is_kept(struct cuda_help *h, const struct pair *p, int64_t width,
                                int64_t first)
{
    const float *got = floats_of(h, p, pair_download(h, p));
    const float *kept = floats_of(h, p, p->host);

    for (int64_t i = 0; i < p->n; i++)
        if (i % width >= first)
            assert_true(got[i] == kept[i]);
}

static void check_part(struct cuda_help *h, const void *of)
{
    const struct part *c = of;
    const struct mist_cpu_attention_part *part = &c->of;
    const struct mist_cpu_attention *a = &part->whole;
    bool is_bf16 = c->dtype == MIST_DTYPE_BF16;
    struct mist_cpu_bf16 *products = is_bf16 ? context : NULL;
    double tolerance = !is_bf16 ? 1e-5 : a->head_dim < 8 ? 1e-2 : 4e-3;
    int64_t q = a->heads * a->head_dim, kv_width = 2 * a->kv_heads * a->head_dim;
    int64_t n = a->b * a->s / part->n, n_all = a->b * a->s, width = q + kv_width;
    struct pair *qkv = pair_random(h, c->dtype, n * width, 0.0, 2.0);
    struct pair *kv = pair_random(h, c->dtype, n_all * kv_width, 0.0, 2.0);
    struct pair *d_out = pair_random(h, c->dtype, n * q, 0.0, 1.0);
    struct pair *out = pair_empty(h, c->dtype, n * q);
    struct pair *lse = pair_empty(h, MIST_DTYPE_FP32, n * a->heads);
    struct pair *dqkv = pair_random(h, c->dtype, n * width, 0.0, 1.0);
    struct pair *dkv = pair_empty(h, c->dtype, n_all * kv_width);
    struct pair *workspace = pair_empty(h, MIST_DTYPE_FP32, n * a->heads);
    size_t room = mist_cpu_attention_forward_workspace_bytes(a, is_bf16, 1);
    size_t room_back = mist_cpu_attention_backward_workspace_bytes(a, is_bf16, 1);

    mist_cpu_attention_part_forward(products, out->host, lse->host, qkv->host, kv->host,
                                    part, help_alloc(&h->host, (int64_t)room), 1);
    mist_cpu_attention_part_backward(products, dqkv->host, dkv->host, d_out->host,
                                     qkv->host, kv->host, out->host, lse->host, part,
                                     help_alloc(&h->host, (int64_t)room_back), 1);
    mist_cuda_attention_part_forward(NULL, c->dtype, out->device, lse->device,
                                     qkv->device, kv->device, part);
    assert_columns_close(h, out, q, 0, q, tolerance, "out", a);
    assert_columns_close(h, lse, 1, 0, 1, 1e-5, "lse", a);
    pair_upload(out);
    pair_upload(lse);
    mist_cuda_attention_part_backward(NULL, c->dtype, dqkv->device, dkv->device,
                                      d_out->device, qkv->device, kv->device, out->device,
                                      lse->device, part, workspace->device);
    assert_columns_close(h, dqkv, width, 0, q, tolerance, "dq", a);
    assert_rest_is_kept(h, dqkv, width, q);
    assert_columns_close(h, dkv, kv_width, 0, kv_width / 2, tolerance, "dk", a);
    assert_columns_close(h, dkv, kv_width, kv_width / 2, kv_width / 2, tolerance, "dv",
                         a);
    pair_assert_same(h, qkv);
    pair_assert_same(h, kv);
    pair_assert_same(h, d_out);
}

/* Keys and values: copies, to the bit. */
static void check_kv(struct cuda_help *h, const void *of)
{
    const struct part *c = of;
    const struct mist_cpu_attention_part *part = &c->of;
    const struct mist_cpu_attention *a = &part->whole;
    bool is_bf16 = c->dtype == MIST_DTYPE_BF16;
    int64_t kv_width = 2 * a->kv_heads * a->head_dim;
    int64_t width = a->heads * a->head_dim + kv_width, n = a->b * a->s / part->n;
    struct pair *qkv = pair_random(h, c->dtype, n * width, 0.0, 1.0);
    struct pair *mine = pair_empty(h, c->dtype, n * kv_width);
    struct pair *kv = pair_empty(h, c->dtype, part->n * n * kv_width);
    struct pair *back = pair_empty(h, c->dtype, part->n * n * kv_width);
    struct pair *ranks = pair_random(h, c->dtype, part->n * n * kv_width, 0.0, 1.0);
    struct pair *gradients = pair_random(h, c->dtype, n * kv_width, 0.0, 1.0);

    mist_cpu_kv_pack(is_bf16, mine->host, qkv->host, part, 1);
    mist_cuda_kv_pack(NULL, c->dtype, mine->device, qkv->device, part);
    pair_assert_same(h, mine);
    mist_cpu_kv_unpack(is_bf16, qkv->host, gradients->host, part, 1);
    mist_cuda_kv_unpack(NULL, c->dtype, qkv->device, gradients->device, part);
    pair_assert_same(h, qkv);
    mist_cpu_kv_order(is_bf16, kv->host, ranks->host, part, 1);
    mist_cuda_kv_order(NULL, c->dtype, kv->device, ranks->device, part);
    pair_assert_same(h, kv);
    mist_cpu_kv_disorder(is_bf16, back->host, kv->host, part, 1);
    mist_cuda_kv_disorder(NULL, c->dtype, back->device, kv->device, part);
    pair_assert_same(h, back);
    assert_memory_equal(back->host, ranks->host,
                        (size_t)(back->n * mist_dtype_weight_bytes(c->dtype)));
}

/* All ranks of some numbers of them; chunks of less and more than tiles, and no multiples. */
TEST(test_parts)
{
    static const struct {
        struct mist_cpu_attention shape;
        int64_t n;
    } cases[] = {
        {{1, 4, 2, 1, 8}, 2},    {{2, 36, 4, 2, 20}, 3},  {{1, 128, 6, 1, 64}, 2},
        {{2, 264, 2, 2, 16}, 4}, {{1, 140, 2, 1, 80}, 2}, {{1, 96, 1, 1, 129}, 2},
    };

    for (int i = 0; i < COUNT(cases); i++)
        for (int k = 0; k < N_DTYPES; k++)
            for (int64_t rank = 0; rank < cases[i].n; rank++) {
                struct part c = {{cases[i].shape, cases[i].n, rank}, dtypes[k]};
                cuda_run_in(check_part, &c, 1);
                cuda_run(check_kv, &c);
            }
}

/* b = 0 launches nothing. */
TEST(test_nothing)
{
    const struct mist_cpu_attention shape = {0, 8, 2, 1, 16};
    const struct mist_cpu_attention_part part = {shape, 2, 1};

    mist_cuda_attention_part_forward(NULL, MIST_DTYPE_BF16, NULL, NULL, NULL, NULL,
                                     &part);
    mist_cuda_attention_part_backward(NULL, MIST_DTYPE_FP32, NULL, NULL, NULL, NULL, NULL,
                                      NULL, NULL, &part, NULL);
    mist_cuda_kv_pack(NULL, MIST_DTYPE_FP32, NULL, NULL, &part);

    mist_cuda_attention_forward(NULL, MIST_DTYPE_FP32, NULL, NULL, NULL, &shape);
    mist_cuda_attention_backward(NULL, MIST_DTYPE_BF16, NULL, NULL, NULL, NULL, NULL,
                                 &shape, NULL);
    mist_test_device_synchronize();
}

TEST_MAIN(make_context, free_context)
