/*
 * Activations, cross-entropy and optimizer kernels against the naive double versions, the
 * backward ones also against finite differences; aliasing; equal bits for any number of
 * threads and shards.
 */
#include "exec/operators/cpu_kernels.h"

#include "tests/unit/cpu_kernels_help.h"
#include "tests/unit/naive_operators.h"

static const int64_t lengths[] = {1, 15, 8191, 8193, 20011}; /* around the chunk length */
enum { N_LENGTHS = sizeof lengths / sizeof *lengths };

/* ------------------------------------------------------------------------------- gelu */

static const struct form {
    double (*naive)(double), (*naive_slope)(double);
} forms[MIST_N_ACTIVATIONS] = {
    [MIST_ACTIVATION_GELU] = {naive_gelu, naive_gelu_slope},
    [MIST_ACTIVATION_EXACT_GELU] = {naive_exact_gelu, naive_exact_gelu_slope},
    [MIST_ACTIVATION_SQUARED_RELU] = {naive_squared_relu, naive_squared_relu_slope},
};

static void check_activation(struct help *h, enum mist_activation kind)
{
    const struct form *form = &forms[kind];

    for (int i = 0; i < N_LENGTHS; i++) {
        int64_t n = lengths[i];
        float *x = help_random(h, n, 6.0), *d_out = help_random(h, n, 1.0);
        double *out_d = help_doubles(h, x, n), *dx_d = help_doubles(h, d_out, n);
        for (int64_t j = 0; j < n; j++) {
            dx_d[j] *= form->naive_slope(out_d[j]);
            out_d[j] = form->naive(out_d[j]);
        }
        float *out = help_poisoned(h, n), *dx = help_poisoned(h, n);
        mist_cpu_activation_forward(false, kind, out, x, n, 1);
        mist_cpu_activation_backward(false, kind, dx, d_out, x, n, 1);
        help_assert_close(out, out_d, n, "activation");
        help_assert_close(dx, dx_d, n, "activation backward");
        for (int t = 2; t <= HELP_N_THREADS; t++) {
            float *in_place = help_copy(h, x, n), *over_d = help_copy(h, d_out, n);
            float *over_x = help_copy(h, x, n);
            mist_cpu_activation_forward(false, kind, in_place, in_place, n, t);
            mist_cpu_activation_backward(false, kind, over_d, over_d, x, n, t);
            mist_cpu_activation_backward(false, kind, over_x, d_out, over_x, n, t);
            help_assert_same_bits(in_place, out, n);
            help_assert_same_bits(over_d, dx, n);
            help_assert_same_bits(over_x, dx, n);
        }
    }
}

TEST_WITH(test_activations, help_setup, help_teardown)
{
    for (int i = 0; i < MIST_N_ACTIVATIONS; i++)
        check_activation(*state, (enum mist_activation)i);
}

/* The exact form to some 1e-6 of itself at every point, however small. */
TEST_WITH(test_exact_gelu_points, help_setup, help_teardown)
{
    for (double x = -9.0; x <= 9.0; x += 0.001) {
        float at = (float)x, one = 1.0f, out, dx;
        mist_cpu_activation_forward(false, MIST_ACTIVATION_EXACT_GELU, &out, &at, 1, 1);
        mist_cpu_activation_backward(false, MIST_ACTIVATION_EXACT_GELU, &dx, &one, &at, 1,
                                     1);
        double value = 0.5 * (double)at * erfc(-(double)at / sqrt(2.0));
        if (!(fabs((double)out - value) <= 6e-6 * fabs(value)))
            fail_msg("gelu(%g) is %g, expected %g", x, (double)out, value);
        if (!(fabs((double)dx - naive_exact_gelu_slope((double)at)) <= 1e-6))
            fail_msg("slope of gelu(%g) is %g", x, (double)dx);
    }
}

/* Saturated inputs: exactly x or 0 with slope 1 or 0 (x^2 with 2 x), and NaN stays NaN. */
TEST_WITH(test_extremes, help_setup, help_teardown)
{
    const float x[] = {0.0f, 50.0f, 1e10f, -50.0f, -1e10f, NAN},
                ones[] = {1, 1, 1, 1, 1, 1};
    float out[6], dx[6];
    for (int k = 0; k < MIST_N_ACTIVATIONS; k++) {
        bool is_relu = k == MIST_ACTIVATION_SQUARED_RELU;
        mist_cpu_activation_forward(false, (enum mist_activation)k, out, x, 6, 1);
        mist_cpu_activation_backward(false, (enum mist_activation)k, dx, ones, x, 6, 1);
        for (int i = 0; i < 3 && is_relu; i++)
            assert_true(out[i] == x[i] * x[i] && dx[i] == 2 * x[i]);
        for (int i = 0; i < 3 && !is_relu; i++)
            assert_true(out[i] == x[i] && fabsf(dx[i] - (i == 0 ? 0.5f : 1.0f)) < 1e-6f);
        for (int i = 3; i < 5; i++)
            assert_true(fabsf(out[i]) < 1e-20f && fabsf(dx[i]) < 1e-10f);
        assert_true(isnan(out[5]) && isnan(dx[5]));
    }
}

enum { N_SLOPES = 101 };

static void activate(struct help *h, double *out, const double *in, const void *context)
{
    const struct form *form = context;

    (void)h;
    for (int64_t i = 0; i < N_SLOPES; i++)
        out[i] = form->naive(in[i]);
}

TEST_WITH(test_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    int64_t n = N_SLOPES;
    float *x = help_random(h, n, 3.0), *d_out = help_random(h, n, 1.0),
          *dx = help_poisoned(h, n);

    for (int k = 0; k < MIST_N_ACTIVATIONS; k++) {
        double *slopes =
            help_slopes(h, activate, help_doubles(h, x, n), n, d_out, n, &forms[k]);
        mist_cpu_activation_backward(false, (enum mist_activation)k, dx, d_out, x, n, 1);
        help_assert_close(dx, slopes, n, "activation backward");
    }
}

/* ----------------------------------------------------------------------------- swiglu */

TEST_WITH(test_swiglu, help_setup, help_teardown)
{
    struct help *h = *state;
    static const int shapes[][2] = {{1, 1}, {7, 33}, {65, 200}};
    for (int i = 0; i < 3; i++) {
        int rows = shapes[i][0], f = shapes[i][1];
        int64_t n = rows * f;
        float *x = help_random(h, 2 * n, 8.0), *d_out = help_random(h, n, 1.0);
        double *xd = help_doubles(h, x, 2 * n), *out_d = help_zeros(h, n);
        double *dx_d = help_zeros(h, 2 * n);
        naive_gate(&naive_swiglu, out_d, xd, rows, f);
        naive_gate_backward(&naive_swiglu, dx_d, help_doubles(h, d_out, n), xd, rows, f);
        float *out = help_poisoned(h, n), *dx = help_poisoned(h, 2 * n);
        mist_cpu_swiglu_forward(false, false, out, x, rows, f, 1);
        mist_cpu_swiglu_backward(false, false, dx, d_out, x, rows, f, 1);
        help_assert_close(out, out_d, n, "swiglu");
        help_assert_close(dx, dx_d, 2 * n, "swiglu backward");
        for (int t = 2; t <= HELP_N_THREADS; t++) {
            float *out2 = help_poisoned(h, n), *alias = help_copy(h, x, 2 * n);
            mist_cpu_swiglu_forward(false, false, out2, x, rows, f, t);
            mist_cpu_swiglu_backward(false, false, alias, d_out, alias, rows, f, t);
            help_assert_same_bits(out2, out, n);
            help_assert_same_bits(alias, dx, 2 * n);
        }
    }
}

TEST_WITH(test_swiglu_extremes, help_setup, help_teardown)
{
    const float x[] = {-1000.0f, 1000.0f, 2.0f, 2.0f}, ones[] = {1.0f, 1.0f};
    float out[2], dx[4];
    mist_cpu_swiglu_forward(false, false, out, x, 1, 2, 1);
    mist_cpu_swiglu_backward(false, false, dx, ones, x, 1, 2, 1);
    assert_true(fabsf(out[0]) < 1e-20f && out[1] == 2000.0f);
    assert_true(fabsf(dx[0]) < 1e-20f && dx[1] == 2.0f);
    assert_true(fabsf(dx[2]) < 1e-20f && dx[3] == 1000.0f);
}

struct swiglu_shape {
    int rows, f;
};

static void swiglu_forward(struct help *h, double *out, const double *in,
                           const void *context)
{
    const struct swiglu_shape *c = context;
    (void)h;
    naive_gate(&naive_swiglu, out, in, c->rows, c->f);
}

TEST_WITH(test_swiglu_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct swiglu_shape c = {3, 19};
    int64_t n = 3 * 19;
    float *x = help_random(h, 2 * n, 3.0), *d_out = help_random(h, n, 1.0);
    float *dx = help_poisoned(h, 2 * n);
    double *slopes =
        help_slopes(h, swiglu_forward, help_doubles(h, x, 2 * n), 2 * n, d_out, n, &c);
    mist_cpu_swiglu_backward(false, false, dx, d_out, x, c.rows, c.f, 1);
    help_assert_close(dx, slopes, 2 * n, "swiglu backward");
}

/* -------------------------------------------------------------------------- add, zero */

TEST_WITH(test_add_zero, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_LENGTHS; i++) {
        int64_t n = lengths[i];
        float *a = help_random(h, n, 1.0), *b = help_random(h, n, 1.0);
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            float *out = help_poisoned(h, n), *on_a = help_copy(h, a, n);
            float *on_b = help_copy(h, b, n);
            float *zero = help_poisoned(h, n);
            mist_cpu_add_forward(false, out, a, b, n, t);
            mist_cpu_add_forward(false, on_a, on_a, b, n, t);
            mist_cpu_add_forward(false, on_b, a, on_b, n, t);
            mist_cpu_zero(zero, n * (int64_t)sizeof *zero, t);
            for (int64_t j = 0; j < n; j++)
                assert_true(out[j] == a[j] + b[j] && on_a[j] == out[j] &&
                            on_b[j] == out[j] && zero[j] == 0.0f);
            help_assert_guard(out, n);
            help_assert_guard(zero, n);
        }
    }
    mist_cpu_zero(NULL, 0, 2); /* nothing to do is fine */
}

/* ------------------------------------------------------------------------------- loss */

static void check_cross_entropy(struct help *h, int rows, int vocab, int n_valid,
                                double size)
{
    int64_t n = rows * vocab;
    float *logits = help_random(h, n, size);
    double *grad = help_zeros(h, n), *loss_d = help_zeros(h, rows), scale = 1.0 / 77.0;
    int32_t *targets = help_alloc(h, rows * (int64_t)sizeof *targets);
    for (int i = 0; i < rows; i++) {
        targets[i] = i == 1 ? -1 : (i * 31 + n_valid - 1) % n_valid;
        for (int j = 0; j < n_valid; j++)
            grad[i * vocab + j] = (double)logits[i * vocab + j];
        for (int j = n_valid; j < vocab; j++)
            logits[i * vocab + j] =
                j % 2 == 0 ? NAN : 1000.0f; /* padding may hold anything */
        loss_d[i] = naive_cross_entropy(grad + i * vocab, targets[i], n_valid, scale);
    }
    float *first = NULL, *first_losses = NULL;
    for (int t = 1; t <= HELP_N_THREADS; t++) {
        float *got = help_copy(h, logits, n), *losses = help_poisoned(h, rows);
        mist_cpu_cross_entropy(false, got, losses, targets, rows, vocab, n_valid,
                               (float)scale, t);
        help_assert_close(got, grad, n, "gradient");
        help_assert_close(losses, loss_d, rows, "losses");
        first = first == NULL ? got : first;
        first_losses = first_losses == NULL ? losses : first_losses;
        help_assert_same_bits(got, first, n);
        help_assert_same_bits(losses, first_losses, rows);
        for (int64_t j = 0; j < n; j++)
            assert_true(j % vocab < n_valid || got[j] == 0.0f);
    }
}

TEST_WITH(test_cross_entropy, help_setup, help_teardown)
{
    check_cross_entropy(*state, 9, 37, 37, 3.0);
    check_cross_entropy(*state, 5, 64, 50, 3.0);
    check_cross_entropy(*state, 3, 5001, 4999, 3.0);
    check_cross_entropy(*state, 4, 33, 2, 3.0);
    check_cross_entropy(*state, 6, 100, 97, 40.0);
}

struct loss_case {
    int rows, vocab;
    const int32_t *targets;
};

static void loss_forward(struct help *h, double *out, const double *in,
                         const void *context)
{
    const struct loss_case *c = context;
    double row[64];
    (void)h;
    for (int i = 0; i < c->rows; i++) {
        memcpy(row, in + i * c->vocab, (size_t)c->vocab * sizeof *row);
        out[i] = naive_cross_entropy(row, c->targets[i], c->vocab, 1.0);
    }
}

TEST_WITH(test_cross_entropy_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const int32_t targets[] = {0, 40, 17};
    const struct loss_case c = {3, 41, targets};
    float *logits = help_random(h, 3 * 41, 2.0), d_out[] = {0.25f, 0.25f, 0.25f},
          losses[3];
    double *slopes = help_slopes(h, loss_forward, help_doubles(h, logits, 3 * 41), 3 * 41,
                                 d_out, 3, &c);
    float *grad = help_copy(h, logits, 3 * 41);
    mist_cpu_cross_entropy(false, grad, losses, targets, 3, 41, 41, 0.25f, 1);
    help_assert_close(grad, slopes, 3 * 41, "gradient");
}

/* -------------------------------------------------------------------------- optimizer */

TEST_WITH(test_adamw, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { STEPS = 4 };
    for (int i = 0; i < N_LENGTHS; i++) {
        int64_t n = lengths[i];
        float *p0 = help_random(h, n, 1.0), *zeros = help_random(h, n, 0.0),
              *first = NULL;
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            float *p = help_copy(h, p0, n), *m = help_copy(h, zeros, n);
            float *v = help_copy(h, zeros, n);
            double *pd = help_doubles(h, p0, n), *md = help_zeros(h, n),
                   *vd = help_zeros(h, n);
            h->seed = 5; /* the same gradients for each t */
            for (int step = 1; step <= STEPS; step++) {
                float *g = help_random(h, n, 0.1);
                double *gd = help_doubles(h, g, n);
                const struct mist_cpu_adamw config = {
                    .lr = 0.01f,
                    .beta1 = 0.9f,
                    .beta2 = 0.95f,
                    .eps = 1e-8f,
                    .weight_decay = 0.1f,
                    .correction1 = (float)(1.0 - pow((double)0.9f, step)),
                    .correction2 = (float)(1.0 - pow((double)0.95f, step)),
                    .grad_scale = 0.5f};
                for (int64_t j = 0; j < n; j++)
                    gd[j] *= 0.5;
                mist_cpu_adamw_step(NULL, p, m, v, g, n, &config, t, 0);
                naive_adamw(pd, md, vd, gd, n, step, (double)0.01f, (double)0.9f,
                            (double)0.95f, (double)1e-8f, (double)0.1f);
            }
            help_assert_close(p, pd, n, "p");
            help_assert_close(m, md, n, "m");
            help_assert_close(v, vd, n, "v");
            first = first == NULL ? p : first;
            help_assert_same_bits(p, first, n);
        }
    }
}

/* Any shard of the arrays gets the same bits as the whole. */
TEST_WITH(test_adamw_shards, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { N = 10007 };
    const struct mist_cpu_adamw config = {1e-3f, 0.9f, 0.999f, 1e-8f,
                                          0.1f,  0.1f, 0.001f, 1.0f};
    float *p = help_random(h, N, 1.0), *m = help_random(h, N, 0.1),
          *g = help_random(h, N, 1.0);
    float *v = help_random(h, N, 0.1);
    for (int64_t i = 0; i < N; i++)
        v[i] *= v[i];
    float *p2 = help_copy(h, p, N), *m2 = help_copy(h, m, N), *v2 = help_copy(h, v, N);
    mist_cpu_adamw_step(NULL, p, m, v, g, N, &config, 1, 0);
    for (int64_t i = 0; i < N; i += 1237) {
        int64_t n = N - i < 1237 ? N - i : 1237;
        mist_cpu_adamw_step(NULL, p2 + i, m2 + i, v2 + i, g + i, n, &config, 1, 0);
    }
    help_assert_same_bits(p2, p, N);
    help_assert_same_bits(m2, m, N);
    help_assert_same_bits(v2, v, N);
}

TEST_WITH(test_geglu, help_setup, help_teardown)
{
    enum { ROWS = 3, F = 2053 };
    struct help *h = *state;
    float *x = help_random(h, 2 * ROWS * F, 6.0), *d = help_random(h, ROWS * F, 1.0);
    double *out_d = help_doubles(h, d, ROWS * F),
           *dx_d = help_doubles(h, x, 2 * ROWS * F);
    float *out[2], *dx[2];

    naive_gate(&naive_geglu, out_d, help_doubles(h, x, 2 * ROWS * F), ROWS, F);
    naive_gate_backward(&naive_geglu, dx_d, help_doubles(h, d, ROWS * F),
                        help_doubles(h, x, 2 * ROWS * F), ROWS, F);
    for (int t = 0; t < 2; t++) {
        out[t] = help_poisoned(h, ROWS * F);
        dx[t] = help_copy(h, x, 2 * ROWS * F);
        mist_cpu_swiglu_forward(false, true, out[t], x, ROWS, F, 1 + t);
        mist_cpu_swiglu_backward(false, true, dx[t], d, dx[t], ROWS, F, 1 + t);
        help_assert_close(out[t], out_d, ROWS * F, "geglu");
        help_assert_close(dx[t], dx_d, 2 * ROWS * F, "geglu backward");
    }
    help_assert_same_bits(out[0], out[1], ROWS * F);
    help_assert_same_bits(dx[0], dx[1], 2 * ROWS * F);
}

TEST_WITH(test_scale, help_setup, help_teardown)
{
    struct help *h = *state;

    for (int i = 0; i < N_LENGTHS; i++) {
        float *x = help_random(h, lengths[i], 6.0), *y = help_copy(h, x, lengths[i]);
        mist_cpu_scale(false, y, 1.7f, lengths[i], 2);
        for (int64_t k = 0; k < lengths[i]; k++)
            assert_true(y[k] == 1.7f * x[k]);
    }
}

TEST_MAIN(NULL, NULL)
