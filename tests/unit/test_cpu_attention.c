/*
 * Attention and rotary embedding against the naive model's, whose forward is
 * differentiated numerically for the backward; equal bits for any number of threads.
 */
#include "exec/operators/cpu_kernels.h"
#include "tests/unit/cpu_kernels_help.h"
#include "tests/unit/naive_model.h"

static const struct mist_cpu_attention shapes[] = {
    {1, 1, 1, 1, 2},   {2, 5, 6, 2, 6},   {1, 63, 2, 2, 4},
    {1, 64, 4, 1, 8},  {2, 65, 3, 3, 10}, {1, 130, 4, 2, 64},
    {3, 67, 5, 5, 16}, {1, 300, 3, 1, 4}, {1, 530, 2, 2, 6},
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int64_t n_qkv_of(const struct mist_cpu_attention *a)
{
    return a->b * a->s * (a->heads + 2 * a->kv_heads) * a->head_dim;
}

static int64_t n_out_of(const struct mist_cpu_attention *a)
{
    return a->b * a->s * a->heads * a->head_dim;
}

static void naive_forward(struct help *h, double *out, const double *in,
                          const void *context)
{
    const struct mist_cpu_attention *a = context;
    double *probs = naive_zeros(a->b * a->heads * a->s * a->s);
    (void)h;
    naive_attention(out, probs, in, (int)a->b, (int)a->s, (int)a->heads, (int)a->kv_heads,
                    (int)a->head_dim);
    free(probs);
}

struct result {
    float *out, *lse, *dqkv;
};

/* Forward and backward with workspaces of exactly the stated size, guarded. */
static struct result run_kernels(struct help *h, const struct mist_cpu_attention *a,
                                 const float *qkv, const float *d_out, int n_threads)
{
    struct result r = {help_poisoned(h, n_out_of(a)),
                       help_poisoned(h, a->b * a->heads * a->s),
                       help_poisoned(h, n_qkv_of(a))};
    int64_t n_forward =
        (int64_t)(mist_cpu_attention_forward_workspace_bytes(a, false, n_threads) / 4);
    int64_t n_backward =
        (int64_t)(mist_cpu_attention_backward_workspace_bytes(a, false, n_threads) / 4);
    float *forward = help_poisoned(h, n_forward),
          *backward = help_poisoned(h, n_backward);
    mist_cpu_attention_forward(NULL, r.out, r.lse, qkv, a, forward, n_threads);
    mist_cpu_attention_backward(NULL, r.dqkv, d_out, qkv, r.out, r.lse, a, backward,
                                n_threads);
    help_assert_guard(forward, n_forward);
    help_assert_guard(backward, n_backward);
    return r;
}

TEST_WITH(test_attention, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_SHAPES; i++) {
        const struct mist_cpu_attention *a = &shapes[i];
        int s = (int)a->s, heads = (int)a->heads;
        float *qkv = help_random(h, n_qkv_of(a), 2.0),
              *d_out = help_random(h, n_out_of(a), 1.0);
        double *qkv_d = help_doubles(h, qkv, n_qkv_of(a));
        double *out_d = help_zeros(h, n_out_of(a)), *dqkv_d = help_zeros(h, n_qkv_of(a));
        double *probs = help_zeros(h, a->b * a->heads * a->s * a->s);
        naive_attention(out_d, probs, qkv_d, (int)a->b, s, heads, (int)a->kv_heads,
                        (int)a->head_dim);
        naive_attention_backward(dqkv_d, help_doubles(h, d_out, n_out_of(a)), probs,
                                 qkv_d, (int)a->b, s, heads, (int)a->kv_heads,
                                 (int)a->head_dim);
        struct result one = run_kernels(h, a, qkv, d_out, 1);
        help_assert_close(one.out, out_d, n_out_of(a), "out");
        help_assert_close(one.dqkv, dqkv_d, n_qkv_of(a), "dqkv");
        for (int n_threads = 2; n_threads <= HELP_N_THREADS; n_threads++) {
            struct result more = run_kernels(h, a, qkv, d_out, n_threads);
            help_assert_same_bits(one.out, more.out, n_out_of(a));
            help_assert_same_bits(one.lse, more.lse, a->b * a->heads * a->s);
            help_assert_same_bits(one.dqkv, more.dqkv, n_qkv_of(a));
        }
    }
}

/*
 * lse belongs to the scaled scores: exp(score of the first key - lse) is its probability.
 */
TEST_WITH(test_attention_lse, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention *a = &shapes[4];
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim, d = a->head_dim;
    float *qkv = help_random(h, n_qkv_of(a), 2.0),
          *d_out = help_random(h, n_out_of(a), 1.0);
    struct result r = run_kernels(h, a, qkv, d_out, 1);
    double *lse = help_zeros(h, a->b * a->heads * a->s);
    for (int64_t t = 0; t < a->b * a->heads * a->s; t++) {
        int64_t i = t % a->s, head = t / a->s % a->heads, b = t / a->s / a->heads;
        for (int64_t j = 0; j <= i; j++) {
            double score = 0.0;
            for (int64_t e = 0; e < d; e++)
                score += (double)qkv[(b * a->s + i) * width + head * d + e] *
                         (double)qkv[(b * a->s + j) * width + (a->heads + head) * d + e];
            lse[t] += exp(score / sqrt((double)d));
        }
        lse[t] = log(lse[t]);
    }
    help_assert_close(r.lse, lse, a->b * a->heads * a->s, "lse");
}

/* Grouped queries; multi-query over more than one block, which threads share out. */
TEST_WITH(test_attention_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention cases[] = {{2, 5, 6, 2, 6}, {1, 67, 2, 1, 2}};
    for (int i = 0; i < 2; i++) {
        const struct mist_cpu_attention *a = &cases[i];
        float *qkv = help_random(h, n_qkv_of(a), 1.0),
              *d_out = help_random(h, n_out_of(a), 1.0);
        double *slopes = help_slopes(h, naive_forward, help_doubles(h, qkv, n_qkv_of(a)),
                                     n_qkv_of(a), d_out, n_out_of(a), a);
        struct result r = run_kernels(h, a, qkv, d_out, 1 + i);
        help_assert_close(r.dqkv, slopes, n_qkv_of(a), "dqkv");
    }
}

/* Scores far from 0 neither overflow nor lose the softmax. */
TEST_WITH(test_attention_large_scores, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention a = {1, 40, 1, 1, 4};
    float *qkv = help_random(h, n_qkv_of(&a), 30.0),
          *d_out = help_random(h, n_out_of(&a), 1.0);
    double *out = help_zeros(h, n_out_of(&a));
    naive_forward(h, out, help_doubles(h, qkv, n_qkv_of(&a)), &a);
    struct result r = run_kernels(h, &a, qkv, d_out, 1);
    help_assert_within(r.out, out, n_out_of(&a), 1e-4,
                       "out"); /* scores of 1000: fp32 rounding */
    for (int64_t i = 0; i < n_qkv_of(&a); i++)
        assert_true(isfinite(r.dqkv[i]));
}

TEST_WITH(test_rope, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_SHAPES; i++) {
        const struct mist_cpu_attention *a = &shapes[i];
        int64_t n = n_qkv_of(a);
        float *qkv = help_random(h, n, 1.0),
              *table = help_poisoned(h, a->s * a->head_dim);
        double *expected = help_doubles(h, qkv, n), *back = help_doubles(h, qkv, n);
        fill_rope_table(table, a->s, a->head_dim, 10000.0);
        help_assert_guard(table, a->s * a->head_dim);
        naive_rope(expected, (int)a->b, (int)a->s, (int)a->heads, (int)a->kv_heads,
                   (int)a->head_dim, 10000.0, 1.0);
        naive_rope(back, (int)a->b, (int)a->s, (int)a->heads, (int)a->kv_heads,
                   (int)a->head_dim, 10000.0, -1.0);
        float *forward = help_copy(h, qkv, n), *backward = help_copy(h, qkv, n);
        float *forward2 = help_copy(h, qkv, n), *backward2 = help_copy(h, qkv, n);
        mist_cpu_rope(false, forward, table, a, false, 1);
        mist_cpu_rope(false, backward, table, a, true, 1);
        mist_cpu_rope(false, forward2, table, a, false, 2);
        mist_cpu_rope(false, backward2, table, a, true, 2);
        help_assert_close(forward, expected, n, "rope");
        help_assert_close(backward, back, n, "rope backward");
        help_assert_same_bits(forward, forward2, n);
        help_assert_same_bits(backward, backward2, n);
    }
}

static void rope_forward(struct help *h, double *out, const double *in,
                         const void *context)
{
    const struct mist_cpu_attention *a = context;
    (void)h;
    memcpy(out, in, (size_t)n_qkv_of(a) * sizeof *out);
    naive_rope(out, (int)a->b, (int)a->s, (int)a->heads, (int)a->kv_heads,
               (int)a->head_dim, 500.0, 1.0);
}

TEST_WITH(test_rope_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention a = {1, 5, 2, 1, 4};
    int64_t n = n_qkv_of(&a);
    float *d_out = help_random(h, n, 1.0), *table = help_poisoned(h, a.s * a.head_dim);
    double *in = help_doubles(h, help_random(h, n, 1.0), n);
    double *slopes = help_slopes(h, rope_forward, in, n, d_out, n, &a);
    float *dqkv = help_copy(h, d_out, n);
    fill_rope_table(table, a.s, a.head_dim, 500.0);
    mist_cpu_rope(false, dqkv, table, &a, true, 1);
    help_assert_close(dqkv, slopes, n, "rope backward");
}

/* ---------------------------------------------------------------- context parallelism */

static float *float_zeros(struct help *h, int64_t n)
{
    float *out = help_poisoned(h, n);

    memset(out, 0, (size_t)n * sizeof *out);
    return out;
}

/* Rows of width floats of a rank's tokens, from those of all or back. */
static void take_part(const struct mist_cpu_attention *a, int64_t n, int64_t i,
                      int64_t width, float *all, float *part, bool is_back)
{
    int64_t length = a->s / (2 * n), k = 0;

    for (int64_t t = 0; t < a->b * a->s; t++) {
        int64_t chunk = t % a->s / length;
        if (chunk != i && chunk != 2 * n - 1 - i)
            continue;
        if (is_back)
            memcpy(all + t * width, part + k * width, (size_t)width * sizeof *all);
        else
            memcpy(part + k * width, all + t * width, (size_t)width * sizeof *all);
        k++;
    }
}

/* n ranks, one after the other, with what they exchange: keys and values, and the sums of
 * their gradients, in all of the result the tokens where they are in the sequence. */
static struct result run_parts(struct help *h, const struct mist_cpu_attention *a,
                               int64_t n, float *qkv, float *d_out, int n_threads)
{
    int64_t width = (a->heads + 2 * a->kv_heads) * a->head_dim;
    int64_t kv_width = 2 * a->kv_heads * a->head_dim, out_width = a->heads * a->head_dim;
    int64_t n_part = a->b * a->s / n, n_kv = n_part * kv_width;
    struct result r = {float_zeros(h, n_out_of(a)), NULL, float_zeros(h, n_qkv_of(a))};
    float *ranks = help_poisoned(h, n * n_kv), *sums = float_zeros(h, n * n_kv);

    for (int64_t i = 0; i < n; i++) {
        const struct mist_cpu_attention_part part = {*a, n, i};
        float *mine = help_poisoned(h, n_part * width);
        take_part(a, n, i, width, qkv, mine, false);
        mist_cpu_kv_pack(false, ranks + i * n_kv, mine, &part, n_threads);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct mist_cpu_attention_part part = {*a, n, i};
        float *mine = help_poisoned(h, n_part * width), *kv = help_poisoned(h, n * n_kv);
        float *out = help_poisoned(h, n_part * out_width);
        float *lse = help_poisoned(h, n_part * a->heads);
        float *slopes = help_poisoned(h, n_part * out_width);
        float *dqkv = help_poisoned(h, n_part * width), *dkv = help_poisoned(h, n * n_kv);
        float *given = help_poisoned(h, n * n_kv);
        int64_t n_work =
            (int64_t)(mist_cpu_attention_backward_workspace_bytes(a, false, n_threads) +
                      mist_cpu_attention_forward_workspace_bytes(a, false, n_threads));
        void *work = help_alloc(h, n_work);
        take_part(a, n, i, width, qkv, mine, false);
        take_part(a, n, i, out_width, d_out, slopes, false);
        mist_cpu_kv_order(false, kv, ranks, &part, n_threads);
        mist_cpu_attention_part_forward(NULL, out, lse, mine, kv, &part, work, n_threads);
        mist_cpu_attention_part_backward(NULL, dqkv, dkv, slopes, mine, kv, out, lse,
                                         &part, work, n_threads);
        mist_cpu_kv_disorder(false, given, dkv, &part, n_threads);
        help_assert_guard(out, n_part * out_width);
        help_assert_guard(lse, n_part * a->heads);
        help_assert_guard(dqkv, n_part * width);
        help_assert_guard(dkv, n * n_kv);
        for (int64_t k = 0; k < n * n_kv; k++)
            sums[k] += given[k];
        take_part(a, n, i, out_width, r.out, out, true);
        take_part(a, n, i, width, r.dqkv, dqkv, true);
    }
    for (int64_t i = 0; i < n; i++) {
        const struct mist_cpu_attention_part part = {*a, n, i};
        float *dqkv = help_poisoned(h, n_part * width);
        take_part(a, n, i, width, r.dqkv, dqkv, false);
        mist_cpu_kv_unpack(false, dqkv, sums + i * n_kv, &part, n_threads);
        help_assert_guard(dqkv, n_part * width);
        take_part(a, n, i, width, r.dqkv, dqkv, true);
    }
    return r;
}

/* Chunks shorter and longer than blocks, and no multiples of them. */
TEST_WITH(test_attention_parts, help_setup, help_teardown)
{
    static const struct {
        struct mist_cpu_attention shape;
        int64_t n;
    } cases[] = {
        {{1, 4, 1, 1, 2}, 2},    {{2, 12, 6, 2, 6}, 3},   {{1, 256, 2, 2, 4}, 2},
        {{2, 320, 4, 1, 8}, 2},  {{1, 520, 3, 3, 10}, 2}, {{2, 264, 4, 2, 16}, 4},
        {{1, 1024, 2, 1, 6}, 4},
    };
    struct help *h = *state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct mist_cpu_attention *a = &cases[i].shape;
        float *qkv = help_random(h, n_qkv_of(a), 2.0);
        float *d_out = help_random(h, n_out_of(a), 1.0);
        double *qkv_d = help_doubles(h, qkv, n_qkv_of(a));
        double *out_d = help_zeros(h, n_out_of(a)), *dqkv_d = help_zeros(h, n_qkv_of(a));
        double *probs = help_zeros(h, a->b * a->heads * a->s * a->s);
        naive_attention(out_d, probs, qkv_d, (int)a->b, (int)a->s, (int)a->heads,
                        (int)a->kv_heads, (int)a->head_dim);
        naive_attention_backward(dqkv_d, help_doubles(h, d_out, n_out_of(a)), probs,
                                 qkv_d, (int)a->b, (int)a->s, (int)a->heads,
                                 (int)a->kv_heads, (int)a->head_dim);
        struct result one = run_parts(h, a, cases[i].n, qkv, d_out, 1);
        help_assert_close(one.out, out_d, n_out_of(a), "out");
        help_assert_close(one.dqkv, dqkv_d, n_qkv_of(a), "dqkv");
        struct result more = run_parts(h, a, cases[i].n, qkv, d_out, HELP_N_THREADS);
        help_assert_same_bits(one.out, more.out, n_out_of(a));
        help_assert_same_bits(one.dqkv, more.dqkv, n_qkv_of(a));
    }
}

/* Of one rank it is the whole. */
TEST_WITH(test_attention_of_one_part, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_attention *a = &shapes[5];
    const struct mist_cpu_attention_part part = {*a, 1, 0};
    float *qkv = help_random(h, n_qkv_of(a), 2.0);
    float *d_out = help_random(h, n_out_of(a), 1.0);
    struct result r = run_kernels(h, a, qkv, d_out, 1);
    float *out = help_poisoned(h, n_out_of(a)), *dqkv = help_poisoned(h, n_qkv_of(a));
    float *lse = help_poisoned(h, a->b * a->heads * a->s);
    void *work =
        help_alloc(h, (int64_t)(mist_cpu_attention_backward_workspace_bytes(a, false, 1) +
                                mist_cpu_attention_forward_workspace_bytes(a, false, 1)));

    mist_cpu_attention_part_forward(NULL, out, lse, qkv, NULL, &part, work, 1);
    mist_cpu_attention_part_backward(NULL, dqkv, NULL, d_out, qkv, NULL, out, lse, &part,
                                     work, 1);
    help_assert_same_bits(r.out, out, n_out_of(a));
    help_assert_same_bits(r.lse, lse, a->b * a->heads * a->s);
    help_assert_same_bits(r.dqkv, dqkv, n_qkv_of(a));
}

TEST_MAIN(NULL, NULL)
