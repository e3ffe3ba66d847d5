/*
 * The CUDA norms against the CPU's: rows of one pack, of many, too long to be held, and
 * of no whole packs; in place where that is allowed.
 */
#include "tests/unit/cuda_help.h"

struct shape {
    enum mist_dtype dtype, gradient_dtype;
    enum mist_cpu_norm_kind kind;
    int64_t rows, h;
    bool has_bias, in_place, overwrites;
    double mean;
};

static const float epsilon = 1e-5f;

static void *host_of(const struct pair *p)
{
    return p == NULL ? NULL : p->host;
}

static void *device_of(const struct pair *p)
{
    return p == NULL ? NULL : p->device;
}

/* Scratch for the CPU's kernels, one thread. */
static void *scratch(struct cuda_help *h, const struct shape *s)
{
    size_t forward = mist_cpu_bf16_norm_forward_workspace_bytes(s->h, 1);
    size_t backward = mist_cpu_bf16_norm_backward_workspace_bytes(s->rows, s->h, 1);

    return help_alloc(&h->host, (int64_t)(forward > backward ? forward : backward));
}

static void check_forward(struct cuda_help *h, const void *context)
{
    const struct shape *s = context;
    struct pair *x = pair_random(h, s->dtype, s->rows * s->h, s->mean, 1.5);
    struct pair *weight = pair_random(h, s->dtype, s->h, 1.0, 0.5);
    struct pair *bias = s->has_bias ? pair_random(h, s->dtype, s->h, 0.0, 0.5) : NULL;
    struct pair *stats = pair_empty(h, MIST_DTYPE_FP32, 2 * s->rows);
    struct pair *out = s->in_place ? x : pair_empty(h, s->dtype, s->rows * s->h);

    mist_cuda_norm_forward(NULL, s->dtype, s->kind, out->device, NULL, stats->device,
                           x->device, NULL, weight->device, device_of(bias), epsilon,
                           s->rows, s->h);
    mist_cpu_norm_forward(s->dtype == MIST_DTYPE_BF16, s->kind, out->host, NULL,
                          stats->host, x->host, NULL, weight->host, host_of(bias),
                          epsilon, s->rows, s->h, scratch(h, s), 1);
    pair_assert_close(h, out, 0, "norm");
    pair_assert_close(h, stats, 1e-5, "statistics");
}

/* in_place: residual over a, out over b. */
static void check_residual(struct cuda_help *h, const void *context)
{
    const struct shape *s = context;
    int64_t n = s->rows * s->h;
    struct pair *a = pair_random(h, s->dtype, n, s->mean, 1.0);
    struct pair *b = pair_random(h, s->dtype, n, 0.0, 1.0);
    struct pair *weight = pair_random(h, s->dtype, s->h, 1.0, 0.5);
    struct pair *bias = s->has_bias ? pair_random(h, s->dtype, s->h, 0.0, 0.5) : NULL;
    struct pair *stats = pair_empty(h, MIST_DTYPE_FP32, 2 * s->rows);
    struct pair *residual = s->in_place ? a : pair_empty(h, s->dtype, n);
    struct pair *out = s->in_place ? b : pair_empty(h, s->dtype, n);

    mist_cuda_norm_forward(NULL, s->dtype, s->kind, out->device, residual->device,
                           stats->device, a->device, b->device, weight->device,
                           device_of(bias), epsilon, s->rows, s->h);
    mist_cpu_norm_forward(s->dtype == MIST_DTYPE_BF16, s->kind, out->host, residual->host,
                          stats->host, a->host, b->host, weight->host, host_of(bias),
                          epsilon, s->rows, s->h, scratch(h, s), 1);
    pair_assert_same(h, residual);
    pair_assert_close(h, out, 0, "residual norm");
    pair_assert_close(h, stats, 1e-5, "statistics"); /* of the rounded residual */
}

static void run_backward(struct cuda_help *h, const struct shape *s, bool has_residual)
{
    int64_t n = s->rows * s->h;
    int64_t n_blocks = mist_catalog_norm_blocks(s->rows);
    enum mist_cpu_norm_kind kind = s->kind;
    struct pair *x = pair_random(h, s->dtype, n, s->mean, 1.0);
    struct pair *d_out = pair_random(h, s->dtype, n, 0.0, 1.0);
    struct pair *d_residual = has_residual ? pair_random(h, s->dtype, n, 0.0, 0.5) : NULL;
    struct pair *weight = pair_random(h, s->dtype, s->h, 1.0, 0.5);
    struct pair *stats = pair_random(h, MIST_DTYPE_FP32, 2 * s->rows, 1.1, 0.2);
    struct pair *dweight = pair_random(h, s->gradient_dtype, s->h, 0.0, 1.0);
    struct pair *dbias =
        s->has_bias ? pair_random(h, s->gradient_dtype, s->h, 0.0, 1.0) : NULL;
    bool is_rounded = s->gradient_dtype == MIST_DTYPE_BF16;
    int how = (s->overwrites ? MIST_CPU_OVERWRITES : 0) |
              (is_rounded ? MIST_CPU_BF16_GRADIENTS : 0);
    struct pair *in_place = has_residual ? d_residual : d_out;
    struct pair *dx = s->in_place ? in_place : pair_empty(h, s->dtype, n);
    struct pair *workspace = pair_empty(h, MIST_DTYPE_FP32, 2 * n_blocks * s->h);

    mist_cuda_norm_backward(
        NULL, s->dtype, s->gradient_dtype, s->kind, dx->device, dweight->device,
        device_of(dbias), d_out->device, device_of(d_residual), x->device, stats->device,
        weight->device, s->rows, s->h, workspace->device, s->overwrites);
    mist_cpu_norm_backward(s->dtype == MIST_DTYPE_BF16, kind, dx->host, dweight->host,
                           host_of(dbias), d_out->host, host_of(d_residual), x->host,
                           stats->host, weight->host, s->rows, s->h, scratch(h, s), 1,
                           how);
    pair_assert_close(h, dx, 0, "dx");
    pair_assert_close(h, dweight, is_rounded ? 0 : 1e-5, "dweight");
    if (dbias != NULL)
        pair_assert_close(h, dbias, is_rounded ? 0 : 1e-5, "dbias");
}

static void check_backward(struct cuda_help *h, const void *context)
{
    run_backward(h, context, true);
}

static void check_backward_alone(struct cuda_help *h, const void *context)
{
    run_backward(h, context, false);
}

/* Rows and columns that meet every kernel and edge; all that varies besides turns with
 * them. */
static void for_all_shapes(cuda_case *run)
{
    static const int64_t sizes[][2] = {
        {1, 1},     {3, 7},    {33, 8},    {40, 100}, {65, 128},  {70, 264},  {33, 768},
        {32, 1032}, {9, 2560}, {35, 4096}, {2, 8200}, {2, 16384}, {2, 20008}, {4500, 8},
    };
    int turn = 0;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (int dtype = 0; dtype < 2; dtype++) {
            struct shape shape = {.dtype = (enum mist_dtype)dtype,
                                  .kind = (enum mist_cpu_norm_kind)((turn + dtype) % 2),
                                  .rows = sizes[i][0],
                                  .h = sizes[i][1],
                                  .has_bias = turn % 3 != 0,
                                  .in_place = turn / 2 % 2 == 1,
                                  .overwrites = turn % 2 == 1,
                                  .mean = 0.25 * (turn % 4)};
            cuda_run(run, &shape);
            shape.kind = (enum mist_cpu_norm_kind)(1 - (int)shape.kind);
            shape.in_place = !shape.in_place;
            shape.overwrites = !shape.overwrites;
            shape.gradient_dtype = shape.dtype;
            if (shape.rows * shape.h < 50000)
                cuda_run(run, &shape);
            shape.kind =
                turn % 4 == 1 ? MIST_CPU_NORM_OFFSET_LAYER : MIST_CPU_NORM_OFFSET_RMS;
            shape.has_bias = turn % 8 == 5;
            if (shape.rows * shape.h < 50000)
                cuda_run(run, &shape);
            turn++;
        }
}

TEST(test_forward)
{
    for_all_shapes(check_forward);
}

TEST(test_residual)
{
    for_all_shapes(check_residual);
}

TEST(test_backward)
{
    for_all_shapes(check_backward);
}

TEST(test_backward_without_residual)
{
    for_all_shapes(check_backward_alone);
}

/* A variance that a difference of large squares would lose. */
static void check_large_mean(struct cuda_help *h, const void *context)
{
    const struct shape *s = context;
    struct pair *x = pair_random(h, s->dtype, s->rows * s->h, s->mean, 1.0);
    struct pair *weight = pair_random(h, s->dtype, s->h, 1.0, 0.0);
    struct pair *stats = pair_empty(h, MIST_DTYPE_FP32, 2 * s->rows);
    struct pair *out = pair_empty(h, s->dtype, s->rows * s->h);
    float *expected = stats->host;
    const float *at = x->host;

    mist_cuda_norm_forward(NULL, s->dtype, 0, out->device, NULL, stats->device, x->device,
                           NULL, weight->device, NULL, epsilon, s->rows, s->h);
    for (int64_t i = 0; i < s->rows; i++) {
        double sum = 0.0, squares = 0.0;
        for (int64_t j = 0; j < s->h; j++)
            sum += (double)at[i * s->h + j];
        for (int64_t j = 0; j < s->h; j++)
            squares += pow((double)at[i * s->h + j] - sum / (double)s->h, 2);
        expected[2 * i] = (float)(sum / (double)s->h);
        expected[2 * i + 1] =
            (float)(1.0 / sqrt(squares / (double)s->h + (double)epsilon));
        for (int64_t j = 0; j < s->h; j++)
            ((float *)out->host)[i * s->h + j] =
                (float)((double)at[i * s->h + j] - sum / (double)s->h) *
                expected[2 * i + 1];
    }
    pair_assert_close(h, stats, 1e-6, "statistics");
    pair_assert_close(h, out, s->mean * 1e-6, "norm");
}

TEST(test_large_mean)
{
    cuda_run(check_large_mean, &(struct shape){MIST_DTYPE_FP32, MIST_DTYPE_FP32, 0, 5,
                                               1024, false, false, false, 10.0});
    cuda_run(check_large_mean, &(struct shape){MIST_DTYPE_FP32, MIST_DTYPE_FP32, 0, 5,
                                               1023, false, false, false, 1000.0});
}

/* No rows: nothing is launched or written. */
static void check_nothing(struct cuda_help *h, const void *context)
{
    (void)context;
    struct pair *dweight = pair_random(h, MIST_DTYPE_FP32, 8, 0.0, 1.0);

    mist_cuda_norm_forward(NULL, MIST_DTYPE_FP32, 0, NULL, NULL, NULL, NULL, NULL, NULL,
                           NULL, epsilon, 0, 8);
    mist_cuda_norm_backward(NULL, MIST_DTYPE_FP32, MIST_DTYPE_FP32, 0, NULL,
                            dweight->device, NULL, NULL, NULL, NULL, NULL, NULL, 0, 8,
                            NULL, true);
    pair_assert_same(h, dweight);
}

/* ---------------------------------------------------------------------------- heads */

struct heads {
    struct mist_cpu_attention shape;
    enum mist_dtype dtype, gradient_dtype;
    bool overwrites;
};

/* Forward and backward beside the CPU's. */
static void check_heads(struct cuda_help *h, const void *context)
{
    const struct heads *of = context;
    const struct mist_cpu_attention *a = &of->shape;
    bool is_bf16 = of->dtype == MIST_DTYPE_BF16;
    int64_t rows = a->b * a->s, d = a->head_dim, n_normed = a->heads + a->kv_heads;
    int64_t n = rows * (a->heads + 2 * a->kv_heads) * d;
    int64_t n_sums = 2 * mist_catalog_norm_blocks(rows) * d;
    struct pair *qkv = pair_random(h, of->dtype, n, 0.0, 1.5);
    struct pair *d_qkv = pair_random(h, of->dtype, n, 0.0, 1.0);
    struct pair *kept = pair_empty(h, of->dtype, rows * n_normed * d);
    struct pair *weights[2], *gradients[2];
    struct pair *workspace = pair_empty(h, MIST_DTYPE_FP32, n_sums);
    void *room = help_alloc(&h->host, 4 * d * (rows / 16 + 8));
    int how = (of->overwrites ? MIST_CPU_OVERWRITES : 0) |
              (of->gradient_dtype == MIST_DTYPE_BF16 ? MIST_CPU_BF16_GRADIENTS : 0);

    for (int i = 0; i < 2; i++) {
        weights[i] = pair_random(h, of->dtype, d, 1.0, 0.5);
        gradients[i] = pair_random(h, of->gradient_dtype, d, 0.0, 1.0);
    }
    mist_cuda_head_norm_forward(NULL, of->dtype, qkv->device, kept->device,
                                weights[0]->device, weights[1]->device, epsilon, rows,
                                a->heads, a->kv_heads, d);
    mist_cpu_head_norm_forward(is_bf16, qkv->host, kept->host, weights[0]->host,
                               weights[1]->host, epsilon, a, room, 1);
    pair_assert_close(h, qkv, 0, "norms of heads");
    pair_assert_same(h, kept);
    mist_cuda_head_norm_backward(
        NULL, of->dtype, of->gradient_dtype, d_qkv->device, gradients[0]->device,
        gradients[1]->device, kept->device, weights[0]->device, weights[1]->device,
        epsilon, rows, a->heads, a->kv_heads, d, workspace->device, of->overwrites);
    mist_cpu_head_norm_backward(is_bf16, d_qkv->host, gradients[0]->host,
                                gradients[1]->host, kept->host, weights[0]->host,
                                weights[1]->host, epsilon, a, room, 1, how);
    pair_assert_close(h, d_qkv, 0, "dx of heads");
    for (int i = 0; i < 2; i++)
        pair_assert_close(h, gradients[i], is_bf16 ? 0 : 1e-5, "dweight of heads");
}

TEST(test_heads)
{
    static const struct mist_cpu_attention shapes[] = {{1, 1, 1, 1, 2},
                                                       {2, 5, 6, 2, 6},
                                                       {3, 70, 4, 1, 128},
                                                       {1, 9, 2, 2, 256},
                                                       {2, 33, 3, 3, 100}};

    for (size_t i = 0; i < 4 * (sizeof shapes / sizeof *shapes); i++) {
        struct heads of = {.shape = shapes[i / 4],
                           .dtype = i % 2 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
                           .gradient_dtype =
                               i % 4 == 1 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
                           .overwrites = i % 4 >= 2};
        cuda_run(check_heads, &of);
    }
}

TEST(test_nothing)
{
    cuda_run(check_nothing, NULL);
}

TEST_MAIN(NULL, NULL)
