/*
 * Embedding and cross-entropy over slices of the vocabulary: against the whole kernels,
 * the naive double versions and finite differences; equal bits for any number of threads.
 */
#include "exec/operators/cpu_kernels.h"

#include "tests/unit/cpu_kernels_help.h"
#include "tests/unit/naive_operators.h"

/* How a vocabulary is cut: slices of n_local tokens; padding from n_valid on. */
struct cut {
    int tp, n_local, n_valid;
};

static const struct cut cuts[] = {
    {1, 37, 37},     {2, 20, 37},
    {4, 10, 37},     {3, 16, 33}, /* one token in the third */
    {5, 9, 33},      {3, 2048, 4100},
    {2, 2500, 4999}, {4, 64, 100}, /* two slices of padding */
    {7, 1, 7},       {3, 5000, 15000},
};
enum { N_CUTS = sizeof cuts / sizeof *cuts };

static int64_t n_valid_of(const struct cut *c, int slice)
{
    int64_t n = c->n_valid - slice * c->n_local;
    return n < 0 ? 0 : n > c->n_local ? c->n_local : n;
}

static int32_t *random_tokens(struct help *h, int64_t n, int vocab)
{
    int32_t *tokens = help_alloc(h, n * (int64_t)sizeof *tokens);
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)((help_uniform(h) * 0.5 + 0.5) * vocab) % vocab;
    return tokens;
}

/* -------------------------------------------------------------------------- embedding */

enum { S = 11, ROWS = 3 * S, H = 70 };

static void *embedding_workspace(struct help *h, int64_t rows)
{
    return help_alloc(h,
                      (int64_t)mist_cpu_embedding_slice_backward_workspace_bytes(rows));
}

/* The sum over slices, in order, of each slice's forward; only the first has wpe. */
static void check_embedding(struct help *h, const struct cut *c, int n_threads)
{
    int64_t n = ROWS * H, n_w = (int64_t)c->tp * c->n_local * H;
    int32_t *tokens = random_tokens(h, ROWS, c->n_valid);
    float *wte = help_random(h, n_w, 1.0), *wpe = help_random(h, S * H, 1.0);
    float *d_out = help_random(h, n, 1.0), *sum = help_random(h, n, 0.0);
    float *out = help_poisoned(h, n), *dwte = help_copy(h, wte, n_w);
    float *dwpe = help_copy(h, wpe, S * H);
    float *dwte2 = help_copy(h, wte, n_w), *dwpe2 = help_copy(h, wpe, S * H);
    void *work = embedding_workspace(h, ROWS);
    for (int t = 0; t < c->tp; t++) {
        float *part = help_poisoned(h, n);
        int64_t first = (int64_t)t * c->n_local;
        mist_cpu_embedding_slice_forward(false, part, tokens, wte + first * H,
                                         t == 0 ? wpe : NULL, ROWS, MIST_WHOLE_CHUNKS(S),
                                         H, first, c->n_local, n_threads);
        mist_cpu_embedding_slice_backward(false, dwte2 + first * H, t == 0 ? dwpe2 : NULL,
                                          tokens, d_out, ROWS, MIST_WHOLE_CHUNKS(S), H,
                                          first, c->n_local, work, n_threads, 0);
        help_assert_guard(part, n);
        for (int64_t i = 0; i < n; i++)
            sum[i] += part[i];
    }
    mist_cpu_embedding_slice_forward(false, out, tokens, wte, wpe, ROWS,
                                     MIST_WHOLE_CHUNKS(S), H, 0, INT64_MAX, 1);
    mist_cpu_embedding_slice_backward(false, dwte, dwpe, tokens, d_out, ROWS,
                                      MIST_WHOLE_CHUNKS(S), H, 0, INT64_MAX, work, 1, 0);
    for (int64_t i = 0; i < n; i++)
        assert_true(sum[i] == out[i]); /* a + b + 0: exact whichever comes first */
    help_assert_same_bits(dwte2, dwte, n_w);
    help_assert_same_bits(dwpe2, dwpe, S * H);
    help_assert_guard(dwte2, n_w);
}

TEST_WITH(test_embedding_slices, help_setup, help_teardown)
{
    for (int i = 0; i < N_CUTS; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++)
            check_embedding(*state, &cuts[i], t);
}

/* A slice without a single token needs no weights. */
TEST_WITH(test_embedding_empty_slice, help_setup, help_teardown)
{
    struct help *h = *state;
    int32_t *tokens = random_tokens(h, ROWS, 7);
    float *wpe = help_random(h, S * H, 1.0), *out = help_poisoned(h, ROWS * H);
    float *dwpe = help_copy(h, wpe, S * H);
    void *work = embedding_workspace(h, ROWS);
    mist_cpu_embedding_slice_forward(false, out, tokens, NULL, wpe, ROWS,
                                     MIST_WHOLE_CHUNKS(S), H, 7, 0, 2);
    for (int i = 0; i < ROWS; i++)
        help_assert_same_bits(out + i * H, wpe + i % S * H, H);
    mist_cpu_embedding_slice_forward(false, out, tokens, NULL, NULL, ROWS,
                                     MIST_WHOLE_CHUNKS(S), H, 7, 0, 2);
    mist_cpu_embedding_slice_backward(false, NULL, NULL, tokens, out, ROWS,
                                      MIST_WHOLE_CHUNKS(S), H, 7, 0, work, 2, 0);
    mist_cpu_embedding_slice_backward(false, NULL, dwpe, tokens, out, ROWS,
                                      MIST_WHOLE_CHUNKS(S), H, 7, 0, work, 2, 0);
    for (int i = 0; i < ROWS * H; i++)
        assert_true(out[i] == 0.0f);
    help_assert_same_bits(dwpe, wpe, S * H);
}

struct embedding_case {
    const int32_t *tokens;
    int rows, s, h, first_token, n_local;
};

/* in: wte [n_local, h], wpe [s, h] */
static void naive_embedding(struct help *h, double *out, const double *in,
                            const void *context)
{
    const struct embedding_case *c = context;
    (void)h;
    for (int i = 0; i < c->rows; i++)
        for (int j = 0; j < c->h; j++) {
            out[i * c->h + j] = in[(c->n_local + i % c->s) * c->h + j];
            for (int k = 0; k < c->n_local; k++)
                if (c->tokens[i] == c->first_token + k)
                    out[i * c->h + j] += in[k * c->h + j];
        }
}

TEST_WITH(test_embedding_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct embedding_case c = {random_tokens(h, 12, 9), 12, 4, 5, 3, 4};
    int64_t n_wte = c.n_local * c.h, n_wpe = c.s * c.h, n = c.rows * c.h;
    float *in = help_random(h, n_wte + n_wpe, 1.0), *d_out = help_random(h, n, 1.0);
    float *zeros = help_random(h, n_wte + n_wpe, 0.0), *out = help_poisoned(h, n);
    float *d_in = help_copy(h, zeros, n_wte + n_wpe);
    double *in_d = help_doubles(h, in, n_wte + n_wpe), *out_d = help_zeros(h, n);
    double *slopes = help_slopes(h, naive_embedding, in_d, n_wte + n_wpe, d_out, n, &c);
    void *work = embedding_workspace(h, c.rows);
    naive_embedding(h, out_d, in_d, &c);
    mist_cpu_embedding_slice_forward(false, out, c.tokens, in, in + n_wte, c.rows,
                                     MIST_WHOLE_CHUNKS(c.s), c.h, c.first_token,
                                     c.n_local, 1);
    mist_cpu_embedding_slice_backward(false, d_in, d_in + n_wte, c.tokens, d_out, c.rows,
                                      MIST_WHOLE_CHUNKS(c.s), c.h, c.first_token,
                                      c.n_local, work, 1, 0);
    help_assert_close(out, out_d, n, "embedding");
    help_assert_close(d_in, slopes, n_wte + n_wpe, "embedding backward");
}

/* ------------------------------------------------------------------------------- loss */

/* Columns first .. first + n_local - 1 of [rows, width], guarded. */
static float *columns_of(struct help *h, const float *x, int64_t rows, int64_t width,
                         int64_t first, int64_t n_local)
{
    float *y = help_poisoned(h, rows * n_local);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < n_local; j++)
            y[i * n_local + j] = x[i * width + first + j];
    return y;
}

struct parallel_result {
    float *gradient; /* [rows, tp * n_local] */
    float *losses;   /* [rows] */
};

static struct parallel_result run_parallel(struct help *h, const struct cut *c,
                                           const float *logits, const int32_t *targets,
                                           int rows, float scale, int n_threads)
{
    int64_t n_local = c->n_local, width = c->tp * n_local;
    struct parallel_result r = {help_poisoned(h, rows * width), help_poisoned(h, rows)};
    float *all_stats = help_poisoned(h, c->tp * rows * 3);
    for (int t = 0; t < c->tp; t++) {
        float *slice = columns_of(h, logits, rows, width, t * n_local, n_local);
        mist_cpu_cross_entropy_stats(false, all_stats + t * rows * 3, slice, targets,
                                     rows, n_local, n_valid_of(c, t), t * n_local,
                                     n_threads);
    }
    help_assert_guard(all_stats, c->tp * rows * 3);
    for (int t = 0; t < c->tp; t++) {
        float *slice = columns_of(h, logits, rows, width, t * n_local, n_local);
        float *losses = help_poisoned(h, rows);
        mist_cpu_cross_entropy_parallel(false, slice, losses, targets, all_stats, rows,
                                        n_local, n_valid_of(c, t), t * n_local, c->tp,
                                        scale, n_threads);
        help_assert_guard(slice, rows * n_local);
        help_assert_guard(losses, rows);
        if (t > 0)
            help_assert_same_bits(losses, r.losses, rows);
        memcpy(r.losses, losses, (size_t)rows * sizeof *losses);
        for (int64_t i = 0; i < rows; i++)
            memcpy(r.gradient + i * width + t * n_local, slice + i * n_local,
                   (size_t)n_local * sizeof *slice);
    }
    return r;
}

static void check_loss(struct help *h, const struct cut *c, double size)
{
    enum { N_ROWS = 6 };
    int64_t width = (int64_t)c->tp * c->n_local, n = N_ROWS * width;
    float *logits = help_random(h, n, size), scale = 0.125f;
    int32_t *targets = random_tokens(h, N_ROWS, c->n_valid);
    double *gradient = help_zeros(h, n), *losses = help_zeros(h, N_ROWS);
    targets[0] = c->n_valid - 1;
    targets[1] = -1;
    for (int i = 0; i < N_ROWS; i++) {
        for (int64_t j = 0; j < c->n_valid; j++)
            gradient[i * width + j] = (double)logits[i * width + j];
        for (int64_t j = c->n_valid; j < width; j++)
            logits[i * width + j] = j % 2 == 0 ? NAN : 1000.0f;
        losses[i] = naive_cross_entropy(gradient + i * width, targets[i], c->n_valid,
                                        (double)scale);
    }
    float *whole = help_copy(h, logits, n), *whole_losses = help_poisoned(h, N_ROWS);
    mist_cpu_cross_entropy(false, whole, whole_losses, targets, N_ROWS, width, c->n_valid,
                           scale, 1);
    struct parallel_result one = run_parallel(h, c, logits, targets, N_ROWS, scale, 1);
    /* Far-apart logits: exp magnifies their difference's rounding. */
    double bound = size > 10.0 ? 1e-5 : 1e-6;
    help_assert_within(one.gradient, gradient, n, bound, "gradient");
    help_assert_within(one.losses, losses, N_ROWS, bound, "losses");
    help_assert_within(one.gradient, help_doubles(h, whole, n), n, bound, "whole");
    help_assert_within(one.losses, help_doubles(h, whole_losses, N_ROWS), N_ROWS, bound,
                       "whole losses");
    for (int64_t j = 0; j < n; j++)
        assert_true(j % width < c->n_valid || one.gradient[j] == 0.0f);
    if (c->tp == 1) {
        help_assert_same_bits(one.gradient, whole, n);
        help_assert_same_bits(one.losses, whole_losses, N_ROWS);
    }
    for (int t = 2; t <= HELP_N_THREADS; t++) {
        struct parallel_result more =
            run_parallel(h, c, logits, targets, N_ROWS, scale, t);
        help_assert_same_bits(more.gradient, one.gradient, n);
        help_assert_same_bits(more.losses, one.losses, N_ROWS);
    }
}

TEST_WITH(test_loss_slices, help_setup, help_teardown)
{
    for (int i = 0; i < N_CUTS; i++) {
        check_loss(*state, &cuts[i], 3.0);
        check_loss(*state, &cuts[i], 40.0);
    }
}

TEST_WITH(test_loss_stats, help_setup, help_teardown)
{
    const float logits[2][3] = {{1.0f, 3.0f, 100.0f}, {-2.0f, -5.0f, 100.0f}};
    const int32_t targets[] = {11, 9};
    float stats[2][3];
    mist_cpu_cross_entropy_stats(false, stats[0], logits[0], targets, 2, 3, 2, 10, 1);
    assert_true(stats[0][0] == 3.0f && stats[0][2] == 3.0f);
    assert_true(stats[1][0] == -2.0f && stats[1][2] == 0.0f);
    assert_true(fabs((double)stats[0][1] - (1.0 + exp(-2.0))) < 1e-6);
    assert_true(fabs((double)stats[1][1] - (1.0 + exp(-3.0))) < 1e-6);
    mist_cpu_cross_entropy_stats(false, stats[0], logits[0], targets, 2, 3, 0, 10, 1);
    for (int i = 0; i < 2; i++)
        assert_true(stats[i][0] == -INFINITY && stats[i][1] == 0.0f &&
                    stats[i][2] == 0.0f);
}

/* A NaN anywhere reaches every slice's losses: the step's finiteness check sees it. */
TEST_WITH(test_loss_nan, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int at = 0; at < 37; at++) {
        float *logits = help_random(h, 40, 1.0);
        const int32_t target = 5;
        logits[at] = NAN;
        struct parallel_result r = run_parallel(h, &cuts[1], logits, &target, 1, 1.0f, 1);
        assert_true(isnan(r.losses[0]));
    }
}

struct loss_case {
    int rows, vocab;
    const int32_t *targets;
};

static void naive_losses(struct help *h, double *out, const double *in,
                         const void *context)
{
    const struct loss_case *c = context;
    (void)h;
    for (int i = 0; i < c->rows; i++) {
        double row[64];
        memcpy(row, in + i * c->vocab, (size_t)c->vocab * sizeof *row);
        out[i] = naive_cross_entropy(row, c->targets[i], c->vocab, 1.0);
    }
}

TEST_WITH(test_loss_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct cut c = {3, 14, 42};
    const struct loss_case naive = {3, 42, random_tokens(h, 3, 42)};
    float *logits = help_random(h, 3 * 42, 2.0), d_out[] = {0.25f, 0.25f, 0.25f};
    double *slopes = help_slopes(h, naive_losses, help_doubles(h, logits, 3 * 42), 3 * 42,
                                 d_out, 3, &naive);
    struct parallel_result r = run_parallel(h, &c, logits, naive.targets, 3, 0.25f, 1);
    help_assert_close(r.gradient, slopes, 3 * 42, "gradient");
}

TEST_MAIN(NULL, NULL)
