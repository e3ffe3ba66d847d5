/*
 * bf16 kernels that convert around the fp32 ones: conversion against its definition, the
 * others bit by bit against the rounded result of their fp32 twin on the same inputs;
 * aliasing; equal bits for any number of threads.
 */
#include "exec/operators/cpu_bf16.h"

#include "tests/unit/cpu_bf16_help.h"

static const int64_t lengths[] = {1, 15, 2047, 2049,
                                  7001}; /* around the piece's length */
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* ------------------------------------------------------------------------- conversion */

static float float_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static mist_bf16 rounded(float x)
{
    mist_bf16 y;
    mist_cpu_bf16_from_float(&y, &x, 1);
    return y;
}

/* Every bf16 is itself; what lies between two goes to the nearer, halfway to the even. */
TEST_WITH(test_conversion, help_setup, help_teardown)
{
    for (uint32_t upper = 0; upper < 0x10000; upper++) {
        mist_bf16 x = (mist_bf16)upper;
        float value;
        mist_cpu_bf16_to_float(&value, &x, 1);
        if ((upper & 0x7FFF) > 0x7F80) { /* NaN */
            assert_true(isnan(value));
            assert_int_equal(rounded(value), upper | 0x40);
            assert_int_equal(rounded(float_of_bits(upper << 16 | 0xFFFF)), upper | 0x40);
            continue;
        }
        assert_true(value == float_of_bits(upper << 16));
        assert_int_equal(rounded(value), upper);
        if ((upper & 0x7FFF) == 0x7F80) /* infinity has no neighbour above */
            continue;
        assert_int_equal(rounded(float_of_bits(upper << 16 | 0x7FFF)), upper);
        assert_int_equal(rounded(float_of_bits(upper << 16 | 0x8000)), upper + upper % 2);
        assert_int_equal(rounded(float_of_bits(upper << 16 | 0x8001)), upper + 1);
        assert_int_equal(rounded(float_of_bits(upper << 16 | 0xFFFF)), upper + 1);
    }
    assert_int_equal(rounded(float_of_bits(0x7F800001)), 0x7FC0); /* NaN, not infinity */
    assert_int_equal(rounded(3.4e38f), 0x7F80);
    assert_int_equal(rounded(-3.4e38f), 0xFF80);
}

TEST_WITH(test_conversion_lengths, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_LENGTHS; i++) {
        int64_t n = lengths[i];
        float *x = help_random(h, n, 3.0), *back = help_poisoned(h, n);
        mist_bf16 *y = help_bf16_poisoned(h, n);
        mist_cpu_bf16_from_float(y, x, n);
        mist_cpu_bf16_to_float(back, y, n);
        for (int64_t j = 0; j < n; j++)
            assert_true(fabsf(back[j] - x[j]) <= 0x1p-8f * fabsf(x[j]));
        help_bf16_assert_guard(y, n);
        help_assert_guard(back, n);
    }
}

/* -------------------------------------------------------------------------- embedding */

TEST_WITH(test_embedding, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { S = 9, ROWS = 2 * S, H = 75, FIRST = 4, N_LOCAL = 6, N = ROWS * H };
    enum { N_WTE = N_LOCAL * H, N_WPE = S * H };
    int32_t tokens[ROWS];
    float *wte_f, *wpe_f, *d_out_f;
    mist_bf16 *wte = help_bf16_random(h, &wte_f, N_WTE, 1.0);
    mist_bf16 *wpe = help_bf16_random(h, &wpe_f, N_WPE, 1.0);
    mist_bf16 *d_out = help_bf16_random(h, &d_out_f, N, 1.0);
    void *work =
        help_alloc(h, (int64_t)mist_cpu_embedding_slice_backward_workspace_bytes(ROWS));
    for (int i = 0; i < ROWS; i++)
        tokens[i] = i * i % 13;
    for (int t = 1; t <= HELP_N_THREADS; t++)
        for (int has_wpe = 0; has_wpe < 2; has_wpe++) {
            mist_bf16 *out = help_bf16_poisoned(h, N);
            float *out_f = help_poisoned(h, N);
            float *dwte = help_copy(h, wte_f, N_WTE),
                  *dwte_f = help_copy(h, wte_f, N_WTE);
            float *dwpe = help_copy(h, wpe_f, N_WPE),
                  *dwpe_f = help_copy(h, wpe_f, N_WPE);
            mist_cpu_embedding_slice_forward(true, out, tokens, wte, has_wpe ? wpe : NULL,
                                             ROWS, MIST_WHOLE_CHUNKS(S), H, FIRST,
                                             N_LOCAL, t);
            mist_cpu_embedding_slice_forward(false, out_f, tokens, wte_f,
                                             has_wpe ? wpe_f : NULL, ROWS,
                                             MIST_WHOLE_CHUNKS(S), H, FIRST, N_LOCAL, 1);
            help_bf16_assert_rounded(h, out, out_f, N);
            mist_cpu_embedding_slice_backward(true, dwte, has_wpe ? dwpe : NULL, tokens,
                                              d_out, ROWS, MIST_WHOLE_CHUNKS(S), H, FIRST,
                                              N_LOCAL, work, t, 0);
            mist_cpu_embedding_slice_backward(false, dwte_f, has_wpe ? dwpe_f : NULL,
                                              tokens, d_out_f, ROWS, MIST_WHOLE_CHUNKS(S),
                                              H, FIRST, N_LOCAL, work, 1, 0);
            help_assert_same_bits(dwte, dwte_f, N_WTE + HELP_GUARD);
            help_assert_same_bits(dwpe, dwpe_f, N_WPE + HELP_GUARD);
            /* gradients in bf16: the same sums, rounded, are added to what there is */
            mist_bf16 *dwte_b = help_bf16_copy(h, wte, N_WTE);
            mist_bf16 *dwpe_b = help_bf16_copy(h, wpe, N_WPE);
            memset(dwte_f, 0, N_WTE * sizeof *dwte_f);
            memset(dwpe_f, 0, N_WPE * sizeof *dwpe_f);
            mist_cpu_embedding_slice_backward(false, dwte_f, has_wpe ? dwpe_f : NULL,
                                              tokens, d_out_f, ROWS, MIST_WHOLE_CHUNKS(S),
                                              H, FIRST, N_LOCAL, work, 1, 0);
            for (int i = 0; i < N_WTE; i++)
                dwte_f[i] = wte_f[i] + mist_bf16_value(mist_bf16_round(dwte_f[i]));
            for (int i = 0; i < N_WPE; i++)
                dwpe_f[i] = wpe_f[i] + mist_bf16_value(mist_bf16_round(dwpe_f[i]));
            mist_cpu_embedding_slice_backward(true, dwte_b, has_wpe ? dwpe_b : NULL,
                                              tokens, d_out, ROWS, MIST_WHOLE_CHUNKS(S),
                                              H, FIRST, N_LOCAL, work, t,
                                              MIST_CPU_BF16_GRADIENTS);
            help_bf16_assert_rounded(h, dwte_b, dwte_f, N_WTE);
            help_bf16_assert_rounded(h, dwpe_b, dwpe_f, N_WPE);
        }
}

/* ------------------------------------------------------------------------------- norm */

struct norm_case {
    enum mist_cpu_norm_kind kind;
    int has_bias, rows, h;
};

static const struct norm_case norm_cases[] = {{MIST_CPU_NORM_LAYER, 1, 70, 67},
                                              {MIST_CPU_NORM_LAYER, 0, 33, 31},
                                              {MIST_CPU_NORM_RMS, 0, 5, 300},
                                              {MIST_CPU_NORM_RMS, 0, 64, 1025}};
enum { N_NORM_CASES = sizeof norm_cases / sizeof *norm_cases };

/* A workspace of exactly n_bytes, guarded. */
static float *workspace_of(struct help *h, size_t n_bytes)
{
    return help_poisoned(h, (int64_t)(n_bytes / sizeof(float)));
}

static void assert_workspace(const float *workspace, size_t n_bytes)
{
    help_assert_guard(workspace, (int64_t)(n_bytes / sizeof(float)));
}

static void check_norm_forward(struct help *h, const struct norm_case *c, int n_threads)
{
    int64_t n = c->rows * c->h;
    float *a_f, *b_f, *weight_f, *bias_f, *sum_f = help_poisoned(h, n);
    mist_bf16 *a = help_bf16_random(h, &a_f, n, 2.0);
    mist_bf16 *b = help_bf16_random(h, &b_f, n, 2.0);
    mist_bf16 *weight = help_bf16_random(h, &weight_f, c->h, 1.0);
    mist_bf16 *bias = help_bf16_random(h, &bias_f, c->h, 1.0);
    size_t n_work = mist_cpu_bf16_norm_forward_workspace_bytes(c->h, n_threads);
    float *work = workspace_of(h, n_work), *out_f = help_poisoned(h, n);
    float *stats = help_poisoned(h, 2 * c->rows),
          *stats_f = help_poisoned(h, 2 * c->rows);
    mist_bf16 *out = help_bf16_copy(h, a, n), *residual = help_bf16_copy(h, b, n);
    if (!c->has_bias)
        bias = NULL, bias_f = NULL;
    mist_cpu_norm_forward(false, c->kind, out_f, NULL, stats_f, a_f, NULL, weight_f,
                          bias_f, 1e-5f, c->rows, c->h, NULL, 1);
    mist_cpu_norm_forward(true, c->kind, out, NULL, stats, out, NULL, weight, bias, 1e-5f,
                          c->rows, c->h, work, n_threads);
    help_bf16_assert_rounded(h, out, out_f, n);
    help_assert_same_bits(stats, stats_f, 2 * c->rows + HELP_GUARD);

    mist_cpu_add_forward(false, sum_f, a_f, b_f, n, 1);
    sum_f = help_floats_of(h, help_bf16_of(h, sum_f, n), n);
    mist_cpu_norm_forward(false, c->kind, out_f, NULL, stats_f, sum_f, NULL, weight_f,
                          bias_f, 1e-5f, c->rows, c->h, NULL, 1);
    out = help_bf16_copy(h, a, n);
    mist_cpu_norm_forward(true, c->kind, out, residual, stats, out, residual, weight,
                          bias, 1e-5f, c->rows, c->h, work, n_threads);
    help_bf16_assert_rounded(h, out, out_f, n);
    help_bf16_assert_rounded(h, residual, sum_f, n);
    help_assert_same_bits(stats, stats_f, 2 * c->rows);
    assert_workspace(work, n_work);
}

/* Gradients in bf16 are those in fp32, rounded: added to bf16, or overwritten. */
static void check_rounded_norm(struct help *h, const struct norm_case *c,
                               const mist_bf16 *d_out, const mist_bf16 *x,
                               const float *stats, const mist_bf16 *weight, int n_threads,
                               void *work)
{
    for (int how = 0; how < 2; how++) {
        float *dw_f, *db_f;
        mist_bf16 *dw = help_bf16_random(h, &dw_f, c->h, 1.0);
        mist_bf16 *db = help_bf16_random(h, &db_f, c->h, 1.0);
        mist_bf16 *dx = help_bf16_poisoned(h, c->rows * c->h);
        mist_cpu_norm_backward(true, c->kind, dx, dw_f, c->has_bias ? db_f : NULL, d_out,
                               NULL, x, stats, weight, c->rows, c->h, work, n_threads,
                               how);
        mist_cpu_norm_backward(true, c->kind, dx, dw, c->has_bias ? db : NULL, d_out,
                               NULL, x, stats, weight, c->rows, c->h, work, n_threads,
                               how | MIST_CPU_BF16_GRADIENTS);
        help_bf16_assert_rounded(h, dw, dw_f, c->h);
        help_bf16_assert_rounded(h, db, db_f, c->h);
    }
}

static void check_norm_backward(struct help *h, const struct norm_case *c, int n_threads)
{
    int64_t n = c->rows * c->h;
    float *x_f, *d_out_f, *d_residual_f, *weight_f;
    mist_bf16 *x = help_bf16_random(h, &x_f, n, 2.0);
    mist_bf16 *d_out = help_bf16_random(h, &d_out_f, n, 1.0);
    mist_bf16 *d_residual = help_bf16_random(h, &d_residual_f, n, 1.0);
    mist_bf16 *weight = help_bf16_random(h, &weight_f, c->h, 1.0);
    float *stats = help_poisoned(h, 2 * c->rows), *dx_f = help_poisoned(h, n);
    float *before = help_random(h, c->h, 1.0);
    size_t n_work = mist_cpu_bf16_norm_backward_workspace_bytes(c->rows, c->h, n_threads);
    float *work = workspace_of(h, n_work);
    void *work_f =
        help_alloc(h, (int64_t)mist_cpu_norm_backward_workspace_bytes(c->rows, c->h));
    mist_cpu_norm_forward(false, c->kind, dx_f, NULL, stats, x_f, NULL, weight_f, NULL,
                          1e-5f, c->rows, c->h, NULL, 1);
    for (int k = 0; k < 3; k++) { /* no residual; dx over d_residual; dx over d_out */
        float *dw = help_copy(h, before, c->h), *dw_f = help_copy(h, before, c->h);
        float *db = help_copy(h, before, c->h), *db_f = help_copy(h, before, c->h);
        mist_bf16 *d_out2 = help_bf16_copy(h, d_out, n);
        mist_bf16 *d_residual2 = help_bf16_copy(h, d_residual, n);
        mist_bf16 *dx = k == 0 ? help_bf16_poisoned(h, n) : k == 1 ? d_residual2 : d_out2;
        mist_cpu_norm_backward(false, c->kind, dx_f, dw_f, c->has_bias ? db_f : NULL,
                               d_out_f, k == 0 ? NULL : d_residual_f, x_f, stats,
                               weight_f, c->rows, c->h, work_f, 1, 0);
        mist_cpu_norm_backward(true, c->kind, dx, dw, c->has_bias ? db : NULL, d_out2,
                               k == 0 ? NULL : d_residual2, x, stats, weight, c->rows,
                               c->h, work, n_threads, 0);
        help_bf16_assert_rounded(h, dx, dx_f, n);
        help_assert_same_bits(dw, dw_f, c->h + HELP_GUARD);
        help_assert_same_bits(db, db_f, c->h + HELP_GUARD);
        assert_workspace(work, n_work);
    }
    float *zeros = help_random(h, c->h, 0.0), *over = help_poisoned(h, c->h);
    for (int k = 0; k < 2; k++)
        mist_cpu_norm_backward(true, c->kind, help_bf16_poisoned(h, n), k ? over : zeros,
                               NULL, d_out, NULL, x, stats, weight, c->rows, c->h, work,
                               n_threads, k ? MIST_CPU_OVERWRITES : 0);
    for (int64_t j = 0; j < c->h; j++)
        assert_true(over[j] == zeros[j]);
    check_rounded_norm(h, c, d_out, x, stats, weight, n_threads, work);
}

TEST_WITH(test_norm, help_setup, help_teardown)
{
    for (int i = 0; i < N_NORM_CASES; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            check_norm_forward(*state, &norm_cases[i], t);
            check_norm_backward(*state, &norm_cases[i], t);
        }
}

/* ------------------------------------------------------------------------ activations */

TEST_WITH(test_gelu_and_add, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            int64_t n = lengths[i];
            float *x_f, *d_f, *out_f = help_poisoned(h, n), *dx_f = help_poisoned(h, n);
            float *sum_f = help_poisoned(h, n);
            mist_bf16 *x = help_bf16_random(h, &x_f, n, 6.0);
            mist_bf16 *d = help_bf16_random(h, &d_f, n, 1.0);
            mist_bf16 *out = help_bf16_copy(h, x, n), *dx = help_bf16_copy(h, d, n);
            mist_bf16 *sum = help_bf16_copy(h, x, n);
            mist_cpu_activation_forward(false, MIST_ACTIVATION_GELU, out_f, x_f, n, 1);
            mist_cpu_activation_backward(false, MIST_ACTIVATION_GELU, dx_f, d_f, x_f, n,
                                         1);
            mist_cpu_add_forward(false, sum_f, x_f, d_f, n, 1);
            mist_cpu_activation_forward(true, MIST_ACTIVATION_GELU, out, out, n, t);
            mist_cpu_activation_backward(true, MIST_ACTIVATION_GELU, dx, dx, x, n, t);
            mist_cpu_add_forward(true, sum, sum, d, n, t);
            help_bf16_assert_rounded(h, out, out_f, n);
            help_bf16_assert_rounded(h, dx, dx_f, n);
            help_bf16_assert_rounded(h, sum, sum_f, n);
            mist_cpu_activation_backward(true, MIST_ACTIVATION_GELU, x, d, x, n, t);
            help_bf16_assert_rounded(h, x, dx_f, n);
        }
}

TEST_WITH(test_swiglu, help_setup, help_teardown)
{
    struct help *h = *state;
    static const int shapes[][2] = {{1, 1}, {7, 33}, {5, 2048}, {3, 5000}};
    for (int i = 0; i < 4; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            int64_t rows = shapes[i][0], f = shapes[i][1], n = rows * f;
            float *x_f, *d_f, *out_f = help_poisoned(h, n);
            float *dx_f = help_poisoned(h, 2 * n);
            mist_bf16 *x = help_bf16_random(h, &x_f, 2 * n, 6.0);
            mist_bf16 *d = help_bf16_random(h, &d_f, n, 1.0);
            mist_bf16 *out = help_bf16_poisoned(h, n);
            mist_cpu_swiglu_forward(false, false, out_f, x_f, rows, f, 1);
            mist_cpu_swiglu_backward(false, false, dx_f, d_f, x_f, rows, f, 1);
            mist_cpu_swiglu_forward(true, false, out, x, rows, f, t);
            mist_cpu_swiglu_backward(true, false, x, d, x, rows, f, t);
            help_bf16_assert_rounded(h, out, out_f, n);
            help_bf16_assert_rounded(h, x, dx_f, 2 * n);
        }
}

/* ------------------------------------------------------------------------------- loss */

static void check_loss(struct help *h, int64_t vocab, int64_t n_valid, int n_threads)
{
    enum { ROWS = 5, TP = 2 };
    int64_t n = ROWS * vocab, half = vocab / TP;
    float *logits_f, *losses_f = help_poisoned(h, ROWS), *losses = help_poisoned(h, ROWS);
    mist_bf16 *logits = help_bf16_random(h, &logits_f, n, 5.0);
    mist_bf16 *whole = help_bf16_copy(h, logits, n);
    float *whole_f = help_copy(h, logits_f, n);
    float *stats = help_poisoned(h, TP * ROWS * 3),
          *stats_f = help_poisoned(h, TP * ROWS * 3);
    int32_t targets[ROWS];
    for (int i = 0; i < ROWS; i++)
        targets[i] = (int32_t)((i * 977 + n_valid - 1) % n_valid);
    targets[ROWS - 1] = -1;
    if (n_valid > 2048) /* at a piece's end */
        targets[1] = 2047, targets[2] = 2048;
    mist_cpu_cross_entropy(false, whole_f, losses_f, targets, ROWS, vocab, n_valid, 0.2f,
                           1);
    mist_cpu_cross_entropy(true, whole, losses, targets, ROWS, vocab, n_valid, 0.2f,
                           n_threads);
    help_bf16_assert_rounded(h, whole, whole_f, n);
    help_assert_same_bits(losses, losses_f, ROWS + HELP_GUARD);

    mist_bf16 *part[TP];
    float *part_f[TP];
    int64_t n_valids[TP] = {n_valid < half ? n_valid : half,
                            n_valid < half ? 0 : n_valid - half};
    for (int t = 0; t < TP; t++) {
        part[t] = help_bf16_poisoned(h, ROWS * half);
        for (int64_t i = 0; i < ROWS; i++)
            memcpy(part[t] + i * half, logits + i * vocab + t * half,
                   (size_t)half * sizeof *logits);
        part_f[t] = help_floats_of(h, part[t], ROWS * half);
        mist_cpu_cross_entropy_stats(false, stats_f + t * ROWS * 3, part_f[t], targets,
                                     ROWS, half, n_valids[t], t * half, 1);
        mist_cpu_cross_entropy_stats(true, stats + t * ROWS * 3, part[t], targets, ROWS,
                                     half, n_valids[t], t * half, n_threads);
    }
    help_assert_same_bits(stats, stats_f, TP * ROWS * 3 + HELP_GUARD);
    for (int t = 0; t < TP; t++) {
        mist_cpu_cross_entropy_parallel(false, part_f[t], losses_f, targets, stats, ROWS,
                                        half, n_valids[t], t * half, TP, 0.2f, 1);
        mist_cpu_cross_entropy_parallel(true, part[t], losses, targets, stats, ROWS, half,
                                        n_valids[t], t * half, TP, 0.2f, n_threads);
        help_bf16_assert_rounded(h, part[t], part_f[t], ROWS * half);
        help_assert_same_bits(losses, losses_f, ROWS + HELP_GUARD);
    }
}

TEST_WITH(test_cross_entropy, help_setup, help_teardown)
{
    for (int t = 1; t <= HELP_N_THREADS; t++) {
        check_loss(*state, 38, 38, t);
        check_loss(*state, 64, 50, t);
        check_loss(*state, 64, 20, t); /* the second slice is padding */
        check_loss(*state, 10002, 9999, t);
    }
}

TEST_WITH(test_cross_entropy_nan, help_setup, help_teardown)
{
    for (int at = 0; at < 3; at++) {
        mist_bf16 logits[3] = {0x3F80, 0x4000, 0xBF80};
        const int32_t target = 0;
        float loss;
        logits[at] = 0x7FC0;
        mist_cpu_cross_entropy(true, logits, &loss, &target, 1, 3, 3, 1.0f, 1);
        assert_true(isnan(loss));
    }
}

/* -------------------------------------------------------------------------- optimizer */

TEST_WITH(test_adamw, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct mist_cpu_adamw config = {1e-2f, 0.9f, 0.999f, 1e-8f,
                                          0.1f,  0.1f, 0.001f, 0.5f};
    for (int i = 0; i < N_LENGTHS; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            int64_t n = lengths[i];
            float *master = help_random(h, n, 1.0), *m = help_random(h, n, 0.1);
            float *v = help_random(h, n, 0.1), *g = help_random(h, n, 1.0);
            mist_bf16 *weights = help_bf16_poisoned(h, n);
            for (int64_t j = 0; j < n; j++)
                v[j] *= v[j];
            float *p = help_copy(h, master, n), *m2 = help_copy(h, m, n);
            float *v2 = help_copy(h, v, n), *master2 = help_copy(h, master, n);
            mist_cpu_adamw_step(NULL, p, m, v, g, n, &config, 1, 0);
            mist_cpu_adamw_step(weights, master2, m2, v2, g, n, &config, t, 0);
            help_assert_same_bits(master2, p, n + HELP_GUARD);
            help_assert_same_bits(m2, m, n);
            help_assert_same_bits(v2, v, n);
            help_bf16_assert_rounded(h, weights, p, n);
            /* gradients in bf16: as their values in fp32 */
            mist_bf16 *g16 = help_bf16_random(h, &g, n, 1.0);
            mist_cpu_adamw_step(NULL, p, m, v, g, n, &config, 1, 0);
            mist_cpu_adamw_step(weights, master2, m2, v2, g16, n, &config, t,
                                MIST_CPU_BF16_GRADIENTS);
            help_assert_same_bits(master2, p, n + HELP_GUARD);
            help_assert_same_bits(v2, v, n);
            help_bf16_assert_rounded(h, weights, p, n);
        }
}

/* Squares and what is not finite: those of the values in fp32. */
TEST_WITH(test_sums, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_LENGTHS; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            int64_t n = lengths[i], bad = n / 3;
            float *x_f;
            mist_bf16 *x = help_bf16_random(h, &x_f, n, i % 2 == 0 ? 1e-4 : 3.0);
            struct mist_cpu_sum sum, sum_f;
            assert_int_equal(mist_cpu_find_nonfinite(true, x, n, t), -1);
            if (n > 0 && i % 3 == 0) {
                x[bad] = 0x7F80;
                x_f[bad] = INFINITY;
                assert_int_equal(mist_cpu_find_nonfinite(true, x, n, t), bad);
            }
            mist_cpu_sum_squares_exact(false, x_f, n, &sum_f, 1);
            mist_cpu_sum_squares_exact(true, x, n, &sum, t);
            assert_memory_equal(&sum, &sum_f, sizeof sum);
        }
}

TEST_MAIN(NULL, NULL)
