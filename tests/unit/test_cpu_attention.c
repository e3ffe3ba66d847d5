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

TEST_MAIN(NULL, NULL)
