/*
 * The CUDA cross-entropy against the CPU's, whole and in slices of the vocabulary: rows
 * that begin at any element, padding of any length, and the bits that must agree.
 */
#include "tests/unit/cuda_help.h"

struct shape {
    enum mist_dtype dtype;
    int64_t rows, vocab, n_valid;
    double middle, size; /* of the logits */
};

static const float scale = 0.37f;

/* Random tokens, and no target in the second row. */
static struct pair *random_targets(struct cuda_help *h, int64_t rows, int64_t vocab)
{
    struct pair *targets = pair_tokens(h, rows, vocab);

    if (rows > 1)
        ((int32_t *)targets->host)[1] = -1;
    pair_upload(targets);
    return targets;
}

static void check_whole(struct cuda_help *h, const void *context)
{
    const struct shape *s = context;
    struct pair *logits =
        pair_random(h, s->dtype, s->rows * s->vocab, s->middle, s->size);
    struct pair *targets = random_targets(h, s->rows, s->n_valid);
    struct pair *losses = pair_empty(h, MIST_DTYPE_FP32, s->rows);

    mist_cuda_cross_entropy(NULL, s->dtype, logits->device, losses->device,
                            targets->device, s->rows, s->vocab, s->n_valid, scale);
    mist_cpu_cross_entropy(s->dtype == MIST_DTYPE_BF16, logits->host, losses->host,
                           targets->host, s->rows, s->vocab, s->n_valid, scale, 1);
    if (s->n_valid > 1) { /* else both are 0 but for rounding */
        pair_assert_close(h, logits, 0, "gradient");
        pair_assert_close(h, losses, 1e-5, "losses");
    }
    const void *got = pair_download(h, logits);
    for (int64_t i = 0; i < s->rows; i++)
        for (int64_t j = s->n_valid; j < s->vocab; j++)
            assert_true(pair_value(logits, got, i * s->vocab + j) == 0.0f);
}

static const struct shape shapes[] = {
    {.rows = 1, .vocab = 1, .n_valid = 1, .size = 5.0},
    {.rows = 3, .vocab = 5, .n_valid = 4, .size = 5.0},
    {.rows = 5, .vocab = 257, .n_valid = 257, .size = 5.0},
    {.rows = 9, .vocab = 1003, .n_valid = 1000, .middle = 100.0, .size = 8.0},
    {.rows = 4, .vocab = 2048, .n_valid = 1025, .middle = -300.0, .size = 3.0},
    {.rows = 2, .vocab = 33001, .n_valid = 33001, .size = 1.0},
    {.rows = 2, .vocab = 50304, .n_valid = 50257, .size = 10.0},
    {.rows = 1, .vocab = 70007, .n_valid = 70001, .size = 2.0},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void for_all_shapes(cuda_case *run)
{
    for (int i = 0; i < 2 * N_SHAPES; i++) {
        struct shape shape = shapes[i / 2];
        shape.dtype = i % 2 == 0 ? MIST_DTYPE_FP32 : MIST_DTYPE_BF16;
        cuda_run(run, &shape);
    }
}

TEST(test_whole)
{
    for_all_shapes(check_whole);
}

/* ----------------------------------------------------------------------------- slices */

enum { N_SLICES = 3 };

/* Three slices of s->vocab columns: full, s->n_valid of them, and none but padding. */
static void check_slices(struct cuda_help *h, const void *context)
{
    const struct shape *s = context;
    bool is_bf16 = s->dtype == MIST_DTYPE_BF16;
    const int64_t n_valid[N_SLICES] = {s->vocab, s->n_valid, 0};
    struct pair *logits[N_SLICES], *losses[N_SLICES];
    struct pair *targets = random_targets(h, s->rows, s->vocab + s->n_valid);
    struct pair *stats = pair_empty(h, MIST_DTYPE_FP32, N_SLICES * s->rows * 3);

    for (int t = 0; t < N_SLICES; t++) {
        logits[t] = pair_random(h, s->dtype, s->rows * s->vocab, s->middle - t, s->size);
        losses[t] = pair_empty(h, MIST_DTYPE_FP32, s->rows);
        mist_cpu_cross_entropy_stats(is_bf16, (float *)stats->host + 3 * s->rows * t,
                                     logits[t]->host, targets->host, s->rows, s->vocab,
                                     n_valid[t], t * s->vocab, 1);
        mist_cuda_cross_entropy_stats(
            NULL, s->dtype, (float *)stats->device + 3 * s->rows * t, logits[t]->device,
            targets->device, s->rows, s->vocab, n_valid[t], t * s->vocab);
        pair_assert_same(h, logits[t]); /* only looked at */
    }
    const float *got = pair_download(h, stats), *expected = stats->host;
    for (int64_t i = 0; i < stats->n; i++)
        if (isinf(expected[i]) || i % 3 != 1)
            assert_true(got[i] == expected[i]);
        else
            assert_true(fabsf(got[i] - expected[i]) <= 1e-5f * fabsf(expected[i]));
    for (int t = 0; t < N_SLICES; t++) {
        mist_cpu_cross_entropy_parallel(is_bf16, logits[t]->host, losses[t]->host,
                                        targets->host, stats->host, s->rows, s->vocab,
                                        n_valid[t], t * s->vocab, N_SLICES, scale, 1);
        mist_cuda_cross_entropy_parallel(
            NULL, s->dtype, logits[t]->device, losses[t]->device, targets->device,
            stats->device, s->rows, s->vocab, n_valid[t], t * s->vocab, N_SLICES, scale);
        pair_assert_close(h, logits[t], 0, "gradient of a slice");
        pair_assert_close(h, losses[t], 1e-5, "losses of a slice");
        assert_memory_equal(pair_download(h, losses[t]), pair_download(h, losses[0]),
                            pair_bytes(losses[0]));
    }
}

TEST(test_slices)
{
    for_all_shapes(check_slices);
}

/* One slice gives the bits of the whole. */
static void check_one_slice(struct cuda_help *h, const void *context)
{
    const struct shape *s = context;
    struct pair *whole = pair_random(h, s->dtype, s->rows * s->vocab, 0.0, s->size);
    struct pair *slice = pair_empty(h, s->dtype, s->rows * s->vocab);
    struct pair *targets = random_targets(h, s->rows, s->n_valid);
    struct pair *stats = pair_empty(h, MIST_DTYPE_FP32, s->rows * 3);
    struct pair *losses[2] = {pair_empty(h, MIST_DTYPE_FP32, s->rows),
                              pair_empty(h, MIST_DTYPE_FP32, s->rows)};

    memcpy(slice->host, whole->host, pair_bytes(whole));
    pair_upload(slice);
    mist_cuda_cross_entropy(NULL, s->dtype, whole->device, losses[0]->device,
                            targets->device, s->rows, s->vocab, s->n_valid, scale);
    mist_cuda_cross_entropy_stats(NULL, s->dtype, stats->device, slice->device,
                                  targets->device, s->rows, s->vocab, s->n_valid, 0);
    mist_cuda_cross_entropy_parallel(NULL, s->dtype, slice->device, losses[1]->device,
                                     targets->device, stats->device, s->rows, s->vocab,
                                     s->n_valid, 0, 1, scale);
    assert_memory_equal(pair_download(h, slice), pair_download(h, whole),
                        pair_bytes(whole));
    assert_memory_equal(pair_download(h, losses[1]), pair_download(h, losses[0]),
                        pair_bytes(losses[0]));
}

TEST(test_one_slice)
{
    for_all_shapes(check_one_slice);
}

/* ----------------------------------------------------------------------- odd contents */

/* A NaN makes its row's loss NaN, and no other's; -inf is a probability of 0. */
static void check_odd_logits(struct cuda_help *h, const void *context)
{
    enum { VOCAB = 700 };
    const enum mist_dtype *dtype = context;
    float *x = help_random(&h->host, 3 * VOCAB, 1.0);
    for (int j = 0; j < VOCAB - 4; j++)
        x[j] = -INFINITY;
    x[VOCAB + 77] = NAN;
    struct pair *logits = pair_of(h, *dtype, x, 3 * VOCAB);
    struct pair *targets = pair_of(h, MIST_DTYPE_FP32, x, 3);
    struct pair *losses = pair_empty(h, MIST_DTYPE_FP32, 3);

    for (int i = 0; i < 3; i++)
        ((int32_t *)targets->host)[i] = VOCAB - 1 - i;
    pair_upload(targets);
    mist_cuda_cross_entropy(NULL, *dtype, logits->device, losses->device, targets->device,
                            3, VOCAB, VOCAB, scale);
    const float *got = pair_download(h, losses);
    const void *gradient = pair_download(h, logits);
    assert_true(isfinite(got[0]) && isnan(got[1]) && isfinite(got[2]));
    for (int j = 0; j < VOCAB; j++) {
        float slope = pair_value(logits, gradient, j);
        assert_true(j < VOCAB - 4 ? slope == 0.0f : isfinite(slope) && slope != 0.0f);
        assert_true(isnan(pair_value(logits, gradient, VOCAB + j)));
    }
}

TEST(test_odd_logits)
{
    for (int dtype = 0; dtype < 2; dtype++)
        cuda_run(check_odd_logits, &(enum mist_dtype){(enum mist_dtype)dtype});
}

/* No rows: nothing happens. */
TEST(test_nothing)
{
    mist_cuda_cross_entropy(NULL, MIST_DTYPE_FP32, NULL, NULL, NULL, 0, 8, 8, scale);
    mist_cuda_cross_entropy_stats(NULL, MIST_DTYPE_BF16, NULL, NULL, NULL, 0, 8, 8, 0);
    mist_cuda_cross_entropy_parallel(NULL, MIST_DTYPE_FP32, NULL, NULL, NULL, NULL, 0, 8,
                                     8, 0, 2, scale);
    mist_test_device_synchronize();
}

TEST_MAIN(NULL, NULL)
