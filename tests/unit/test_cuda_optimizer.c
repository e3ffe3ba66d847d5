/*
 * The CUDA AdamW, draws and sums against the CPU's, bit by bit: spans of any length at
 * any address, squares of any size, and what is not finite.
 */
#include "tests/unit/cuda_help.h"

/* ------------------------------------------------------------------------------ AdamW */

struct step {
    enum mist_dtype dtype, gradient_dtype;
    int32_t t;
    int64_t offset; /* of every span from an aligned address, elements */
};

static const int64_t span_lengths[] = {1, 0, 3, 2047, 2048, 2049, 5003, 40001};

enum { N_SPANS = sizeof span_lengths / sizeof *span_lengths };

/* In the order p, m, v, master, g; each offset + n + 5 long. */
struct span_pairs {
    struct pair *p, *m, *v, *master, *g;
};

static struct span_pairs make_span(struct cuda_help *h, const struct step *s, int64_t n)
{
    const enum mist_dtype fp32 = MIST_DTYPE_FP32;
    int64_t all = s->offset + n + 5;

    return (struct span_pairs){
        .p = pair_random(h, s->dtype, all, 0.0, 1.0),
        .m = pair_random(h, fp32, all, 0.0, 1e-3),
        .v = pair_random(h, fp32, all, 2e-6, 2e-6),
        .master = s->dtype == fp32 ? NULL : pair_random(h, fp32, all, 0.0, 1.0),
        .g = pair_random(h, s->gradient_dtype, all, 0.0, 1e-2),
    };
}

static void *at(void *memory, const struct pair *p, int64_t offset)
{
    return (char *)memory + offset * (p->dtype == MIST_DTYPE_BF16 ? 2 : 4);
}

static struct mist_adamw_span span_of(const struct span_pairs *s, int64_t offset,
                                      int64_t n, bool decays, bool is_device)
{
    struct pair *p = s->p;

    return (struct mist_adamw_span){
        .p = at(is_device ? p->device : p->host, p, offset),
        .m = (float *)(is_device ? s->m->device : s->m->host) + offset,
        .v = (float *)(is_device ? s->v->device : s->v->host) + offset,
        .master =
            s->master == NULL
                ? NULL
                : (float *)(is_device ? s->master->device : s->master->host) + offset,
        .g = at(is_device ? s->g->device : s->g->host, s->g, offset),
        .gradient_dtype = s->g->dtype,
        .n = n,
        .decays = decays,
    };
}

/* The numbers of a step, in device memory. */
static const struct mist_cuda_adamw_numbers *prepare(struct cuda_help *h,
                                                     const struct mist_adamw_args *args)
{
    struct mist_cuda_adamw_numbers *numbers =
        pair_empty(h, MIST_DTYPE_FP32, sizeof *numbers / sizeof(float))->device;

    mist_cuda_adamw_prepare(NULL, numbers, args);
    return numbers;
}

static void check_adamw(struct cuda_help *h, const void *context)
{
    const struct step *s = context;
    const struct mist_adamw_args args = {3e-4f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.73f, s->t};
    struct span_pairs pairs[N_SPANS];
    struct mist_adamw_span spans[N_SPANS];

    for (int i = 0; i < N_SPANS; i++) {
        pairs[i] = make_span(h, s, span_lengths[i]);
        spans[i] = span_of(&pairs[i], s->offset, span_lengths[i], i % 3 != 0, true);
        struct mist_adamw_span host =
            span_of(&pairs[i], s->offset, span_lengths[i], i % 3 != 0, false);
        mist_operators_cpu.adamw(NULL, s->dtype, &host, 1, &args, 1);
    }
    mist_cuda_adamw(NULL, s->dtype, spans, N_SPANS, prepare(h, &args));
    for (int i = 0; i < N_SPANS; i++) {
        pair_assert_same(h, pairs[i].p);
        pair_assert_same(h, pairs[i].m);
        pair_assert_same(h, pairs[i].v);
        pair_assert_same(h, pairs[i].g);
        if (pairs[i].master != NULL)
            pair_assert_same(h, pairs[i].master);
    }
}

TEST(test_adamw)
{
    for (int i = 0; i < 3; i++) /* fp32, bf16, bf16 with its gradients */
        for (int64_t offset = 0; offset < 5; offset++)
            cuda_run(check_adamw,
                     &(struct step){i > 0 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
                                    i > 1 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
                                    (int32_t)(1 + 10 * offset), offset});
}

/* As many spans as fit into a launch, each of one element; and none. */
static void check_many_spans(struct cuda_help *h, const void *context)
{
    const struct step *s = context;
    const struct mist_adamw_args args = {1e-3f, 0.9f, 0.999f, 1e-8f, 0.01f, 1.0f, 1};
    struct span_pairs all = make_span(h, s, MIST_MAX_PARAMS);
    struct mist_adamw_span spans[MIST_MAX_PARAMS];

    for (int i = 0; i < MIST_MAX_PARAMS; i++) {
        struct mist_adamw_span host = span_of(&all, i, 1, true, false);
        spans[i] = span_of(&all, i, 1, true, true);
        mist_operators_cpu.adamw(NULL, s->dtype, &host, 1, &args, 1);
    }
    const struct mist_cuda_adamw_numbers *numbers = prepare(h, &args);
    mist_cuda_adamw(NULL, s->dtype, spans, MIST_MAX_PARAMS, numbers);
    mist_cuda_adamw(NULL, s->dtype, spans, 0, numbers);
    pair_assert_same(h, all.p);
    pair_assert_same(h, all.m);
    pair_assert_same(h, all.v);
}

TEST(test_many_spans)
{
    for (int dtype = 0; dtype < 2; dtype++)
        cuda_run(check_many_spans,
                 &(struct step){(enum mist_dtype)dtype, (enum mist_dtype)dtype, 1, 0});
}

/* ----------------------------------------------------------------- initial parameters */

struct drawing {
    enum mist_dtype dtype;
    int64_t n_runs, run_length;
    double mean, deviation;
};

/* Runs that lie apart, from a large number on, between elements that stay. */
static void check_draw(struct cuda_help *h, const void *context)
{
    const struct drawing *s = context;
    int64_t n = s->n_runs * s->run_length;
    struct pair *x = pair_random(h, s->dtype, n + 10, 0.0, 1.0);
    const struct mist_draw draw = {.seed = test_seed(20250117),
                                   .stream = 77,
                                   .first = ((int64_t)1 << 40) + 3,
                                   .run_stride = s->run_length + 1001,
                                   .n_runs = s->n_runs,
                                   .run_length = s->run_length,
                                   .mean = s->mean,
                                   .deviation = s->deviation};

    mist_cpu_draw(at(x->host, x, 5), s->dtype == MIST_DTYPE_BF16, &draw, 2);
    mist_cuda_draw(NULL, s->dtype, at(x->device, x, 5), &draw);
    pair_assert_same(h, x);
}

TEST(test_draws)
{
    static const int64_t shapes[][2] = {{1, 1},    {1, 1024}, {1, 100003}, {7, 1023},
                                        {3, 1025}, {2000, 3}, {0, 5},      {5, 0}};

    for (int dtype = 0; dtype < 2; dtype++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            cuda_run(check_draw,
                     &(struct drawing){(enum mist_dtype)dtype, shapes[i][0], shapes[i][1],
                                       i == 3 ? 1.0 : 0.0, i == 3 ? 0.0 : 0.02});
}

/* ---------------------------------------------------------------------------- tallies */

static struct mist_tally *new_tally(void)
{
    return mist_test_device_copy(&(struct mist_tally){0}, sizeof(struct mist_tally));
}

/* Reads and frees it. */
static struct mist_tally take_tally(struct cuda_help *h, struct mist_tally *device)
{
    struct mist_tally tally;

    assert_true(mist_test_device_guard_is_intact(device, sizeof tally));
    mist_test_device_download(&tally, device, sizeof tally);
    mist_test_device_free(device);
    h->digest = (h->digest ^ (uint64_t)tally.coarse) * 1099511628211u;
    h->digest = (h->digest ^ (uint64_t)tally.fine) * 1099511628211u;
    return tally;
}

static void assert_tally(const struct mist_tally *tally, const struct mist_cpu_sum *sum)
{
    const struct mist_cpu_sum got = {tally->coarse, tally->fine, tally->n_nonfinite,
                                     mist_tally_first_nonfinite(tally)};
    struct mist_cpu_sum normalised;

    assert_true(got.coarse >= 0 && got.coarse <= MIST_CPU_SUM_MAX_COARSE);
    assert_true(got.fine >= 0);
    mist_cpu_sum_clear(&normalised);
    mist_cpu_sum_add(&normalised, &got, 0);
    assert_int_equal(normalised.coarse, sum->coarse);
    assert_int_equal(normalised.fine, sum->fine);
    assert_int_equal(normalised.n_nonfinite, sum->n_nonfinite);
    assert_int_equal(normalised.first_nonfinite, sum->first_nonfinite);
}

struct squares {
    int64_t n, offset; /* offset: of the first element from an aligned address */
    double size;
    int kind; /* of contents, see fill_squares() */
};

/* Kinds: 0 uniform; 1 of all sizes; 2 with some that are not finite or too large; 3 all
 * at the largest that counts; 4 none that is finite. */
static void fill_squares(struct cuda_help *h, const struct squares *s, float *x)
{
    static const float odd[] = {NAN, INFINITY, -INFINITY, 8193.0f, -1e30f};

    for (int64_t i = 0; i < s->n; i++) {
        double u = help_uniform(&h->host);
        if (s->kind == 0)
            x[i] = (float)(s->size * u);
        else if (s->kind == 3)
            x[i] = u < 0 ? -MIST_CPU_SUM_MAX_ABS : MIST_CPU_SUM_MAX_ABS;
        else
            x[i] = (float)(u * exp2(26.0 * help_uniform(&h->host) - 13.0));
        if (s->kind == 4 || (s->kind == 2 && i % 97 == 41))
            x[i] = odd[i % 5];
    }
}

/* Twice into one tally, the second time as what follows. */
static void check_squares(struct cuda_help *h, const void *context)
{
    const struct squares *s = context;
    struct pair *x = pair_random(h, MIST_DTYPE_FP32, s->offset + s->n, 0.0, 1e6);
    struct mist_tally *tally = new_tally();
    struct mist_cpu_sum sum, first;

    fill_squares(h, s, (float *)x->host + s->offset);
    pair_upload(x);
    mist_cuda_sum_squares(NULL, MIST_DTYPE_FP32, (float *)x->device + s->offset, s->n,
                          1000, tally);
    mist_cuda_sum_squares(NULL, MIST_DTYPE_FP32, (float *)x->device + s->offset, s->n / 2,
                          1000 + s->n, tally);
    mist_cpu_sum_clear(&sum);
    mist_cpu_sum_squares_exact(false, (float *)x->host + s->offset, s->n, &first, 1);
    mist_cpu_sum_add(&sum, &first, 1000);
    mist_cpu_sum_squares_exact(false, (float *)x->host + s->offset, s->n / 2, &first, 1);
    mist_cpu_sum_add(&sum, &first, 1000 + s->n);
    struct mist_tally got = take_tally(h, tally);
    assert_tally(&got, &sum);
    pair_assert_same(h, x);
}

/* bf16, at any address: squares, and what is not finite, as of the values in fp32. */
static void check_rounded_squares(struct cuda_help *h, const void *context)
{
    const struct squares *s = context;
    float *values = help_alloc(&h->host, (s->n + 1) * (int64_t)sizeof *values);

    fill_squares(h, s, values);
    struct pair *wide = pair_random(h, MIST_DTYPE_FP32, s->offset + s->n, 0.0, 1.0);
    memcpy((float *)wide->host + s->offset, values, (size_t)s->n * sizeof *values);
    struct pair *x = pair_of(h, MIST_DTYPE_BF16, wide->host, s->offset + s->n);
    const mist_bf16 *host = (const mist_bf16 *)x->host + s->offset;
    const mist_bf16 *device = (const mist_bf16 *)x->device + s->offset;
    struct mist_cpu_sum sum;

    for (int is_sum = 0; is_sum < 2; is_sum++) {
        struct mist_tally *tally = new_tally();
        if (is_sum)
            mist_cuda_sum_squares(NULL, MIST_DTYPE_BF16, device, s->n, 0, tally);
        else
            mist_cuda_find_nonfinite(NULL, MIST_DTYPE_BF16, device, s->n, tally);
        struct mist_tally got = take_tally(h, tally);
        mist_cpu_sum_squares_exact(true, host, s->n, &sum, 1);
        if (is_sum)
            assert_tally(&got, &sum);
        else
            assert_int_equal(mist_tally_first_nonfinite(&got),
                             mist_cpu_find_nonfinite(true, host, s->n, 1));
    }
}

TEST(test_squares)
{
    static const int64_t lengths[] = {0, 1, 2, 5, 31, 1000, 8192, 20003, 100001};
    static const double sizes[] = {1e-12, 1e-9, 1e-4, 0.06, 1.0, 8192.0};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < 5; kind++)
            cuda_run(check_squares,
                     &(struct squares){lengths[i], (int64_t)i % 4, sizes[i % 6], kind});
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        for (int kind = 0; kind < 5; kind++)
            cuda_run(check_rounded_squares,
                     &(struct squares){lengths[i], kind % 4, sizes[i % 6], kind});
    for (int i = 0; i < 6; i++)
        cuda_run(check_squares, &(struct squares){3001, (i + 1) % 4, sizes[i], 0});
}

static void check_finite(struct cuda_help *h, const void *context)
{
    const int64_t n = *(const int64_t *)context;
    const int64_t bad[] = {-1, 0, n / 3, n - 1};

    for (int i = 0; i < 4; i++)
        for (int64_t offset = 0; offset < 4; offset += 3) {
            struct pair *x = pair_random(h, MIST_DTYPE_FP32, offset + n, 0.0, 3e38);
            struct mist_tally *tally = new_tally();
            float *first = (float *)x->host + offset;
            if (bad[i] >= 0) {
                first[bad[i]] = i % 2 == 0 ? NAN : -INFINITY;
                first[n - 1] = INFINITY;
            }
            pair_upload(x);
            mist_cuda_find_nonfinite(NULL, MIST_DTYPE_FP32, (float *)x->device + offset,
                                     n, tally);
            struct mist_tally got = take_tally(h, tally);
            assert_int_equal(mist_tally_first_nonfinite(&got),
                             mist_cpu_find_nonfinite(false, first, n, 1));
            assert_int_equal(got.n_nonfinite > 0, bad[i] >= 0);
            assert_true(got.coarse == 0 && got.fine == 0);
        }
}

TEST(test_finite)
{
    static const int64_t lengths[] = {1, 2, 7, 4096, 50021};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        cuda_run(check_finite, &lengths[i]);
}

/* ----------------------------------------------------------------------------- losses */

static void check_losses(struct cuda_help *h, const void *context)
{
    const int64_t n = *(const int64_t *)context;
    struct pair *losses = pair_random(h, MIST_DTYPE_FP32, n, 5.0, 5.0);
    struct mist_tally begin = {.loss_sum = 17.25};
    struct mist_tally *tally = mist_test_device_copy(&begin, sizeof begin);
    long double expected = 17.25L;

    for (int64_t i = 0; i < n; i++)
        expected += (long double)((float *)losses->host)[i];
    mist_cuda_sum_losses(NULL, losses->device, n, tally);
    struct mist_tally got = take_tally(h, tally);
    uint64_t bits;
    memcpy(&bits, &got.loss_sum, sizeof bits);
    h->digest = (h->digest ^ bits) * 1099511628211u;
    assert_true(fabsl((long double)got.loss_sum - expected) <= 1e-14L * expected);
    assert_true(got.coarse == 0 && got.fine == 0 && got.n_nonfinite == 0 &&
                got.nonfinite_mark == 0);
}

TEST(test_losses)
{
    static const int64_t lengths[] = {0, 1, 31, 1024, 1025, 70001};

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++)
        cuda_run(check_losses, &lengths[i]);
}

TEST_MAIN(NULL, NULL)
