/*
 * The CUDA kernels of exec/cuda/kernels_elementwise.cu and kernels_embedding.cu against
 * the CPU's: equal bits where the arithmetic is the same, else close in the 2-norm; at
 * addresses that are aligned and that are not, and in place where that is allowed. Inputs
 * must stay as they are.
 */
#include "tests/unit/cuda_help.h"

static const enum mist_dtype dtypes[] = {MIST_DTYPE_FP32, MIST_DTYPE_BF16};
enum { N_DTYPES = sizeof dtypes / sizeof *dtypes };

static const int64_t lengths[] = {0, 1, 3, 8, 9, 255, 4096, 4103, 20001};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

static bool is_bf16(enum mist_dtype dtype)
{
    return dtype == MIST_DTYPE_BF16;
}

/* ----------------------------------------------------- element by element, conversions */

/* Of one input or two; in place where their names say so. */
struct map {
    enum {
        ACTIVATION,
        D_ACTIVATION = MIST_N_ACTIVATIONS,
        ADD = 2 * MIST_N_ACTIVATIONS,
        SCALE,
        N_MAPS
    } kind; /* the first two plus one of those */
    enum { APART, OVER_A, OVER_B, SKEWED, N_PLACES } place;
    enum mist_dtype dtype;
    int64_t n;
};

static void check_map(struct cuda_help *h, const void *context)
{
    const struct map *c = context;
    bool is_rounded = is_bf16(c->dtype);
    enum mist_activation activation =
        (enum mist_activation)(c->kind % MIST_N_ACTIVATIONS);
    int64_t n = c->n;

    h->skew = c->place == SKEWED;
    struct pair *a = pair_random(h, c->dtype, n, 0.0, 6.0);
    struct pair *b = pair_random(h, c->dtype, n, 0.0, 1.0);
    struct pair *out = c->place == OVER_A || c->kind == SCALE ? a
                       : c->place == OVER_B                   ? b
                                            : pair_empty(h, c->dtype, n);
    if (c->kind < D_ACTIVATION) {
        mist_cuda_activation_forward(NULL, c->dtype, activation, out->device, a->device,
                                     n);
        mist_cpu_activation_forward(is_rounded, activation, out->host, a->host, n, 1);
    } else if (c->kind < ADD) {
        mist_cuda_activation_backward(NULL, c->dtype, activation, out->device, b->device,
                                      a->device, n);
        mist_cpu_activation_backward(is_rounded, activation, out->host, b->host, a->host,
                                     n, 1);
    } else if (c->kind == ADD) {
        mist_cuda_add(NULL, c->dtype, out->device, a->device, b->device, n);
        mist_cpu_add_forward(is_rounded, out->host, a->host, b->host, n, 1);
    } else {
        mist_cuda_scale(NULL, c->dtype, out->device, 6.5f, n);
        mist_cpu_scale(is_rounded, out->host, 6.5f, n, 1);
    }
    if (c->kind == ADD || c->kind == SCALE)
        pair_assert_same(h, out);
    else
        pair_assert_close(h, out, 0, "an activation or its slope");
    if (out != a)
        pair_assert_same(h, a);
    if (out != b)
        pair_assert_same(h, b);
}

TEST(test_maps)
{
    for (unsigned i = 0; i < (unsigned)(N_MAPS * N_PLACES * N_DTYPES * N_LENGTHS); i++)
        cuda_run(check_map, &(struct map){i % N_MAPS, i / N_MAPS % N_PLACES,
                                          dtypes[i / N_MAPS / N_PLACES % N_DTYPES],
                                          lengths[i / N_MAPS / N_PLACES / N_DTYPES]});
}

/* Where sigmoid or erfc ends: as on the CPU, infinity and NaN included. */
static void check_activation_of_extremes(struct cuda_help *h, const void *context)
{
    static const float extremes[] = {0.0f,    -0.0f, -4.0f,    -6.0f,    -12.0f,
                                     -100.0f, 12.0f, 100.f,    1e30f,    -1e30f,
                                     1e-38f,  NAN,   INFINITY, -INFINITY};
    enum { N = sizeof extremes / sizeof *extremes };
    enum mist_activation kind = *(const enum mist_activation *)context;
    struct pair *x = pair_of(h, MIST_DTYPE_FP32, extremes, N);
    struct pair *ones = pair_random(h, MIST_DTYPE_FP32, N, 1.0, 0.0);
    struct pair *results[] = {pair_empty(h, MIST_DTYPE_FP32, N),
                              pair_empty(h, MIST_DTYPE_FP32, N)};

    mist_cuda_activation_forward(NULL, MIST_DTYPE_FP32, kind, results[0]->device,
                                 x->device, N);
    mist_cpu_activation_forward(false, kind, results[0]->host, x->host, N, 1);
    mist_cuda_activation_backward(NULL, MIST_DTYPE_FP32, kind, results[1]->device,
                                  ones->device, x->device, N);
    mist_cpu_activation_backward(false, kind, results[1]->host, ones->host, x->host, N,
                                 1);
    for (int k = 0; k < 2; k++) {
        const float *got = pair_download(h, results[k]), *expected = results[k]->host;
        for (int i = 0; i < N; i++) {
            float bound = 1e-6f + 1e-6f * fabsf(expected[i]);
            assert_true(isnan(expected[i]) ? isnan(got[i])
                                           : got[i] == expected[i] ||
                                                 fabsf(got[i] - expected[i]) <= bound);
        }
    }
}

TEST(test_activations_of_extremes)
{
    for (int i = 0; i < MIST_N_ACTIVATIONS; i++)
        cuda_run(check_activation_of_extremes,
                 &(enum mist_activation){(enum mist_activation)i});
}

struct conversion {
    const float *x; /* NULL: random */
    int64_t n, skew;
};

/* To bf16 and back, as sums of one row: its elements, in the other number format. */
static void check_conversion(struct cuda_help *h, const void *context)
{
    const enum mist_dtype fp32 = MIST_DTYPE_FP32, bf16 = MIST_DTYPE_BF16;
    const struct conversion *c = context;

    h->skew = c->skew;
    struct pair *x =
        c->x ? pair_of(h, fp32, c->x, c->n) : pair_random(h, fp32, c->n, 0.0, 1e3);
    struct pair *rounded = pair_empty(h, bf16, c->n), *wide = pair_empty(h, fp32, c->n);
    mist_cuda_column_sum(NULL, fp32, bf16, rounded->device, x->device, 1, c->n, true);
    mist_cuda_column_sum(NULL, bf16, fp32, wide->device, rounded->device, 1, c->n, true);
    if (c->n == 1 && c->x) { /* which NaN is the device's matter */
        assert_true(isnan(pair_value(rounded, pair_download(h, rounded), 0)));
        return;
    }
    pair_set(rounded, x->host);
    mist_cpu_bf16_to_float(wide->host, rounded->host, c->n);
    pair_assert_same(h, rounded);
    pair_assert_same(h, wide);
    pair_assert_same(h, x);
}

TEST(test_conversions)
{
    /* ties go to even, the largest become infinite, denormals stay */
    static const float special[] = {1.00390625f, 1.01171875f, 3.4e38f,   -3.4e38f, 1e-40f,
                                    -1e-40f,     INFINITY,    -INFINITY, 0.1f};
    static const float nan_value = NAN;

    for (int i = 0; i < 2 * N_LENGTHS; i++)
        cuda_run(check_conversion, &(struct conversion){NULL, lengths[i / 2], i % 2});
    cuda_run(check_conversion,
             &(struct conversion){special, sizeof special / sizeof *special, 0});
    cuda_run(check_conversion, &(struct conversion){&nan_value, 1, 0});
}

/* ----------------------------------------------------------------------------- swiglu */

struct gate {
    enum mist_dtype dtype;
    int64_t rows, f, skew;
    bool is_geglu, in_place;
};

static void check_gate(struct cuda_help *h, const void *context)
{
    const struct gate *c = context;
    int64_t n = c->rows * c->f;

    h->skew = c->skew;
    struct pair *x = pair_random(h, c->dtype, 2 * n, 0.0, 6.0);
    struct pair *d = pair_random(h, c->dtype, n, 0.0, 1.0);
    struct pair *out = pair_empty(h, c->dtype, n);
    struct pair *dx = c->in_place ? x : pair_empty(h, c->dtype, 2 * n);
    mist_cuda_swiglu_forward(NULL, c->dtype, c->is_geglu, out->device, x->device, c->rows,
                             c->f);
    mist_cpu_swiglu_forward(is_bf16(c->dtype), c->is_geglu, out->host, x->host, c->rows,
                            c->f, 1);
    pair_assert_close(h, out, 0, "gate");
    pair_assert_same(h, x);
    mist_cuda_swiglu_backward(NULL, c->dtype, c->is_geglu, dx->device, d->device,
                              x->device, c->rows, c->f);
    mist_cpu_swiglu_backward(is_bf16(c->dtype), c->is_geglu, dx->host, d->host, x->host,
                             c->rows, c->f, 1);
    pair_assert_close(h, dx, 0, "slope of a gate");
    pair_assert_same(h, d);
    if (!c->in_place)
        pair_assert_same(h, x);
}

TEST(test_gates)
{
    static const int64_t dims[][2] = {{1, 1},   {0, 8},    {3, 5},    {7, 8},   {300, 12},
                                      {5, 344}, {2, 1000}, {70, 264}, {9, 1023}};

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int k = 0; k < 8 * N_DTYPES; k++)
            cuda_run(check_gate, &(struct gate){dtypes[k / 8], dims[i][0], dims[i][1],
                                                k % 2, k / 2 % 2, k / 4 % 2});
}

/* ------------------------------------------------------------------------------- rope */

struct rope {
    struct mist_cpu_attention shape;
    enum mist_dtype dtype;
    bool is_backward;
    int64_t skew;
};

static void check_rope(struct cuda_help *h, const void *context)
{
    const struct rope *c = context;
    const struct mist_cpu_attention *a = &c->shape;

    h->skew = c->skew;
    struct pair *qkv = pair_random(
        h, c->dtype, a->b * a->s * (a->heads + 2 * a->kv_heads) * a->head_dim, 0.0, 1.0);
    /* not of real angles: position 0 would not be turned */
    struct pair *table = pair_random(h, MIST_DTYPE_FP32, a->s * a->head_dim, 0.0, 1.0);
    mist_cuda_rope(NULL, c->dtype, qkv->device, table->device, a, c->is_backward);
    mist_cpu_rope(is_bf16(c->dtype), qkv->host, table->host, a, c->is_backward, 1);
    pair_assert_close(h, qkv, 0, "rope");
    pair_assert_same(h, table);
}

TEST(test_rope)
{
    static const struct mist_cpu_attention shapes[] = {
        {1, 1, 1, 1, 2},   {0, 4, 2, 1, 8},     {2, 5, 3, 1, 16},    {3, 7, 4, 2, 64},
        {2, 3, 5, 5, 80},  {1, 4, 40, 8, 96},   {2, 9, 32, 8, 128},  {1, 2, 2, 1, 6},
        {1, 3, 1, 1, 600}, {70000, 1, 1, 1, 2}, {1, 70000, 1, 1, 2},
    };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int k = 0; k < 3 * N_DTYPES; k++)
            cuda_run(check_rope,
                     &(struct rope){shapes[i], dtypes[k / 3], k % 3 == 1, k % 3 / 2});
}

/* ---------------------------------------------------------------- bias and column sum */

struct columns {
    enum mist_dtype dtype, out_dtype; /* the latter: of sums */
    int64_t rows, n, skew;
    bool overwrites; /* sums */
};

static void check_add_bias(struct cuda_help *h, const void *context)
{
    const struct columns *c = context;
    int64_t n = c->rows * c->n;

    h->skew = c->skew;
    struct pair *bias = pair_random(h, c->dtype, c->n, 0.0, 1.0);
    struct pair *x = pair_random(h, c->dtype, n, 0.0, 1.0);
    float *expected = help_alloc(&h->host, (n + 1) * (int64_t)sizeof *expected);
    for (int64_t i = 0; i < n; i++)
        expected[i] = pair_value(x, x->host, i) + pair_value(bias, bias->host, i % c->n);
    pair_set(x, expected);
    mist_cuda_add_bias(NULL, c->dtype, x->device, bias->device, c->rows, c->n);
    pair_assert_close(h, x, is_bf16(c->dtype) ? 4e-3 : 1e-6, "bias");
    pair_assert_same(h, bias);
}

TEST(test_add_bias)
{
    static const int64_t dims[][2] = {{1, 1}, {0, 16}, {64, 96},
                                      {5, 8}, {70, 3}, {33, 520}};

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int k = 0; k < 2 * N_DTYPES; k++)
            cuda_run(check_add_bias, &(struct columns){.dtype = dtypes[k / 2],
                                                       .rows = dims[i][0],
                                                       .n = dims[i][1],
                                                       .skew = k % 2});
}

static void check_column_sum(struct cuda_help *h, const void *context)
{
    const struct columns *c = context;

    h->skew = c->skew;
    struct pair *x = pair_random(h, c->dtype, c->rows * c->n, 0.0, 1.0);
    struct pair *out = pair_random(h, c->out_dtype, c->n, 0.0, 1.0);
    float *expected = help_alloc(&h->host, c->n * (int64_t)sizeof *expected);
    for (int64_t j = 0; j < c->n; j++) {
        double sum = c->overwrites ? 0.0 : (double)pair_value(out, out->host, j);
        for (int64_t i = 0; i < c->rows; i++)
            sum += (double)pair_value(x, x->host, i * c->n + j);
        expected[j] = (float)sum;
    }
    pair_set(out, expected);
    mist_cuda_column_sum(NULL, c->dtype, c->out_dtype, out->device, x->device, c->rows,
                         c->n, c->overwrites);
    pair_assert_close(h, out, is_bf16(c->out_dtype) ? 4e-3 : 1e-5, "column sum");
    pair_assert_same(h, x);
}

TEST(test_column_sum)
{
    /* the widths that blocks have, ends of rows and of columns within a block */
    static const int64_t dims[][2] = {{1, 1},      {0, 16},    {64, 96},   {5, 8},
                                      {1000, 3},   {5000, 24}, {33, 1000}, {257, 2048},
                                      {130, 4136}, {600, 8200}};

    for (size_t i = 0; i < sizeof dims / sizeof *dims; i++)
        for (int k = 0; k < 16; k++)
            cuda_run(check_column_sum,
                     &(struct columns){dtypes[k % 2], dtypes[k / 2 % 2], dims[i][0],
                                       dims[i][1], k / 8, k / 4 % 2});
}

/* -------------------------------------------------------------------------- embedding */

struct embedding {
    int64_t rows, s, h, vocab;
    int64_t first_token, n_local;
};

/* A whole vocabulary, slices of it, one with no token; rows that end within a sample;
 * more tokens than a block looks at at once; few and many different tokens. */
static const struct embedding embeddings[] = {
    {1, 1, 1, 1, 0, 1},      {0, 4, 8, 5, 0, 5},          {6, 3, 8, 5, 0, 5},
    {40, 8, 24, 50, 10, 15}, {40, 8, 24, 50, 40, 10},     {35, 8, 7, 11, 0, 11},
    {33, 16, 1032, 9, 3, 4}, {20, 5, 2100, 7, 0, 7},      {64, 16, 16, 100, 50, 0},
    {2100, 525, 8, 3, 0, 3}, {2500, 100, 4, 400, 0, 400}, {130, 13, 515, 40, 20, 20},
};
enum { N_EMBEDDINGS = sizeof embeddings / sizeof *embeddings };

struct embedding_case {
    const struct embedding *shape;
    enum mist_dtype dtype, gradient_dtype;
    bool has_wpe;
    int64_t skew;
};

static void check_embedding_forward(struct cuda_help *h, const void *context)
{
    const struct embedding_case *c = context;
    const struct embedding *e = c->shape;

    h->skew = c->skew;
    struct pair *tokens = pair_tokens(h, e->rows, e->vocab);
    struct pair *wte = pair_random(h, c->dtype, e->n_local * e->h, 0.0, 1.0);
    struct pair *wpe = pair_random(h, c->dtype, e->s * e->h, 0.0, 1.0);
    struct pair *out = pair_empty(h, c->dtype, e->rows * e->h);
    mist_cuda_embedding_forward(NULL, c->dtype, out->device, tokens->device, wte->device,
                                c->has_wpe ? wpe->device : NULL, e->rows,
                                MIST_WHOLE_CHUNKS(e->s), e->h, e->first_token,
                                e->n_local);
    mist_cpu_embedding_slice_forward(is_bf16(c->dtype), out->host, tokens->host,
                                     wte->host, c->has_wpe ? wpe->host : NULL, e->rows,
                                     MIST_WHOLE_CHUNKS(e->s), e->h, e->first_token,
                                     e->n_local, 1);
    pair_assert_same(h, out);
    pair_assert_same(h, tokens);
    pair_assert_same(h, wte);
    pair_assert_same(h, wpe);
}

static void check_embedding_backward(struct cuda_help *h, const void *context)
{
    const struct embedding_case *c = context;
    const struct embedding *e = c->shape;
    size_t work_bytes = mist_cpu_embedding_slice_backward_workspace_bytes(e->rows);

    h->skew = c->skew;
    struct pair *tokens = pair_tokens(h, e->rows, e->vocab);
    struct pair *d_out = pair_random(h, c->dtype, e->rows * e->h, 0.0, 1.0);
    struct pair *dwte = pair_random(h, c->gradient_dtype, e->n_local * e->h, 0.0, 1.0);
    struct pair *dwpe = pair_random(h, c->gradient_dtype, e->s * e->h, 0.0, 1.0);
    mist_cuda_embedding_backward(NULL, c->dtype, c->gradient_dtype, dwte->device,
                                 c->has_wpe ? dwpe->device : NULL, tokens->device,
                                 d_out->device, e->rows, MIST_WHOLE_CHUNKS(e->s), e->h,
                                 e->first_token, e->n_local);
    mist_cpu_embedding_slice_backward(
        is_bf16(c->dtype), dwte->host, c->has_wpe ? dwpe->host : NULL, tokens->host,
        d_out->host, e->rows, MIST_WHOLE_CHUNKS(e->s), e->h, e->first_token, e->n_local,
        help_alloc(&h->host, (int64_t)work_bytes), 1,
        is_bf16(c->gradient_dtype) ? MIST_CPU_BF16_GRADIENTS : 0);
    pair_assert_same(h, dwte);
    pair_assert_same(h, dwpe);
    pair_assert_same(h, tokens);
    pair_assert_same(h, d_out);
}

static void run_embedding(cuda_case *run, const struct embedding *shape,
                          enum mist_dtype dtype, enum mist_dtype gradient_dtype,
                          bool has_wpe, int64_t skew)
{
    cuda_run(run, &(struct embedding_case){shape, dtype, gradient_dtype, has_wpe, skew});
}

TEST(test_embedding_forward)
{
    static const struct embedding many = {70000, 1, 1, 10, 2, 6};

    for (int i = 0; i < N_EMBEDDINGS * N_DTYPES; i++)
        for (int k = 0; k < 3; k++)
            run_embedding(check_embedding_forward, &embeddings[i / N_DTYPES],
                          dtypes[i % N_DTYPES], MIST_DTYPE_FP32, k % 2 == 0, k / 2);
    run_embedding(check_embedding_forward, &many, MIST_DTYPE_BF16, MIST_DTYPE_FP32, true,
                  0);
}

TEST(test_embedding_backward)
{
    /* more than fit a list; in a row of several rounds, too */
    static const struct embedding often = {7000, 100, 4, 2, 0, 2},
                                  wide = {4500, 100, 259, 1, 0, 1};

    for (int i = 0; i < N_EMBEDDINGS * N_DTYPES; i++)
        for (int k = 0; k < 4; k++)
            run_embedding(check_embedding_backward, &embeddings[i / N_DTYPES],
                          dtypes[i % N_DTYPES],
                          k < 3 ? MIST_DTYPE_FP32 : dtypes[i % N_DTYPES],
                          k % 2 == 0 || k == 3, k / 2);
    run_embedding(check_embedding_backward, &often, MIST_DTYPE_BF16, MIST_DTYPE_FP32,
                  true, 0);
    run_embedding(check_embedding_backward, &wide, MIST_DTYPE_BF16, MIST_DTYPE_BF16, true,
                  0);
}

TEST_MAIN(NULL, NULL)
