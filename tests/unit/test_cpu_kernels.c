/*
 * exp, linear, norm and embedding kernels against the naive double versions on odd
 * shapes, their backward also against finite differences; aliasing; equal bits for any
 * number of threads.
 */
#include "exec/operators/cpu_kernels.h"

#include "exec/operators/cpu_internal.h"
#include "tests/unit/cpu_kernels_help.h"
#include "tests/unit/naive_operators.h"

/* -------------------------------------------------------------------------------- exp */

MIST_CPU_CLONES static void exp_for_test(float *y, const float *x, int64_t n)
{
#pragma omp simd
    for (int64_t i = 0; i < n; i++)
        y[i] = mist_cpu_exp(x[i]);
}

/*
 * Every 61st float from -86.9 to 88 is within 2 units in the last place of libm's exp.
 */
TEST_WITH(test_exp, help_setup, help_teardown)
{
    enum { N = 4096 };
    float x[N], y[N];
    double worst_ulp = 0.0;
    uint32_t bits = 0;
    while (bits < 0x42B00000u) { /* 88.0f */
        for (int i = 0; i < N; i++, bits += 61) {
            memcpy(&x[i], &bits, sizeof bits);
            x[i] = x[i] < 88.0f ? x[i] : 88.0f;
            x[i] = i % 2 == 0 && x[i] < 86.9f ? -x[i] : x[i];
        }
        exp_for_test(y, x, N);
        for (int i = 0; i < N; i++) {
            double exact = exp((double)x[i]);
            int exponent;
            frexp(exact, &exponent);
            double ulp = fabs((double)y[i] - exact) / ldexp(1.0, exponent - 24);
            worst_ulp = ulp > worst_ulp ? ulp : worst_ulp;
        }
    }
    print_message("exp: at most %.3f ulp\n", worst_ulp);
    assert_true(worst_ulp < 2.0);
}

TEST_WITH(test_exp_edges, help_setup, help_teardown)
{
    float x[] = {0.0f, -0.0f, -87.0f, -1e30f, -INFINITY, NAN}, y[6];
    exp_for_test(y, x, 6);
    assert_true(y[0] == 1.0f && y[1] == 1.0f);
    assert_true(y[2] == 0.0f && y[3] == 0.0f && y[4] == 0.0f);
    assert_true(isnan(y[5]));
}

/*
 * Sums of small whole numbers are exact in any order; every length leaves no element out.
 */
TEST_WITH(test_sums, help_setup, help_teardown)
{
    float x[200], y[200];
    for (int64_t n = 1; n <= 200; n++) {
        float sum = 0.0f, dot = 0.0f, max = -INFINITY;
        for (int64_t i = 0; i < n; i++) {
            x[i] = (float)((i * 37 + n * 11) % 101 - 150);
            y[i] = (float)(i % 7);
            sum += x[i];
            dot += x[i] * y[i];
            max = fmaxf(max, x[i]);
        }
        assert_true(mist_cpu_sum(x, n) == sum);
        assert_true(mist_cpu_dot(x, y, n) == dot);
        assert_true(mist_cpu_max(x, n) == max);
    }
}

/* ----------------------------------------------------------------------------- linear */

static const int linear_shapes[][3] = {/* rows, n_in, n_out */
                                       {1, 1, 1},    {5, 3, 7},     {300, 37, 1100},
                                       {33, 257, 9}, {2000, 3, 5},  {1, 129, 64},
                                       {257, 1, 65}, {70, 1030, 31}};

static void check_linear(struct help *h, int rows, int n_in, int n_out)
{
    int64_t n_x = rows * n_in, n_y = rows * n_out, n_w = n_in * n_out;
    float *x = help_random(h, n_x, 1.0), *w = help_random(h, n_w, 1.0);
    float *bias = help_random(h, n_out, 1.0), *dy = help_random(h, n_y, 1.0);
    float *y_before = help_random(h, n_y, 1.0), *dx_before = help_random(h, n_x, 1.0);
    float *dw_before = help_random(h, n_w, 1.0),
          *dbias_before = help_random(h, n_out, 1.0);
    double *xd = help_doubles(h, x, n_x), *wd = help_doubles(h, w, n_w);
    double *y_plain = help_zeros(h, n_y), *y_sum = help_zeros(h, n_y);
    double *dx = help_zeros(h, n_x), *dx_sum = help_doubles(h, dx_before, n_x);
    double *dw = help_doubles(h, dw_before, n_w),
           *dbias = help_doubles(h, dbias_before, n_out);
    naive_linear(y_plain, xd, wd, NULL, rows, n_in, n_out);
    naive_linear(y_sum, xd, wd, help_doubles(h, bias, n_out), rows, n_in, n_out);
    for (int64_t i = 0; i < n_y; i++)
        y_sum[i] += (double)y_before[i];
    naive_linear_backward(dx, dw, dbias, help_doubles(h, dy, n_y), xd, wd, rows, n_in,
                          n_out);
    for (int64_t i = 0; i < n_x; i++)
        dx_sum[i] += dx[i];

    float *first[6];
    for (int n_threads = 1; n_threads <= HELP_N_THREADS; n_threads++) {
        bool is_in_place = n_threads == 1;
        float *got[6] = {
            help_poisoned(h, n_y),
            is_in_place ? help_copy(h, y_before, n_y) : help_poisoned(h, n_y),
            help_poisoned(h, n_x),
            is_in_place ? help_copy(h, dx_before, n_x) : help_poisoned(h, n_x),
            help_copy(h, dw_before, n_w),
            help_copy(h, dbias_before, n_out)};
        const double *expected[6] = {y_plain, y_sum, dx, dx_sum, dw, dbias};
        const int64_t sizes[6] = {n_y, n_y, n_x, n_x, n_w, n_out};
        static const char *const names[6] = {
            "y", "y with bias and residual", "dx", "dx with residual", "dW", "dbias"};
        mist_cpu_linear_forward(NULL, got[0], x, w, NULL, NULL, rows, n_in, n_out,
                                n_threads);
        mist_cpu_linear_forward(NULL, got[1], x, w, bias, is_in_place ? got[1] : y_before,
                                rows, n_in, n_out, n_threads);
        mist_cpu_linear_backward_input(NULL, got[2], dy, w, NULL, rows, n_in, n_out,
                                       n_threads);
        mist_cpu_linear_backward_input(NULL, got[3], dy, w,
                                       is_in_place ? got[3] : dx_before, rows, n_in,
                                       n_out, n_threads);
        mist_cpu_linear_backward_weight(NULL, got[4], got[5], dy, x, rows, n_in, n_out,
                                        n_threads, 0);
        for (int k = 0; k < 6; k++) {
            if (n_threads == 1)
                first[k] = got[k];
            help_assert_close(got[k], expected[k], sizes[k], names[k]);
            help_assert_same_bits(got[k], first[k], sizes[k]);
        }
    }
    float *dw_only = help_copy(h, dw_before, n_w);
    mist_cpu_linear_backward_weight(NULL, dw_only, NULL, dy, x, rows, n_in, n_out, 1, 0);
    help_assert_same_bits(dw_only, first[4], n_w);
    /* overwritten: what was added less what was there */
    float *over[2] = {help_poisoned(h, n_w), help_poisoned(h, n_out)};
    for (int64_t i = 0; i < n_w; i++)
        dw[i] -= (double)dw_before[i];
    for (int64_t i = 0; i < n_out; i++)
        dbias[i] -= (double)dbias_before[i];
    mist_cpu_linear_backward_weight(NULL, over[0], over[1], dy, x, rows, n_in, n_out, 2,
                                    MIST_CPU_OVERWRITES);
    help_assert_close(over[0], dw, n_w, "dW overwritten");
    help_assert_close(over[1], dbias, n_out, "dbias overwritten");
}

TEST_WITH(test_linear, help_setup, help_teardown)
{
    for (size_t i = 0; i < sizeof linear_shapes / sizeof *linear_shapes; i++)
        check_linear(*state, linear_shapes[i][0], linear_shapes[i][1],
                     linear_shapes[i][2]);
}

/* Bits do not depend on where tensors lie: offloading brings them back elsewhere. */
TEST_WITH(test_linear_addresses, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { ROWS = 70, IN = 97, OUT = 130, N_X = ROWS * IN, N_W = OUT * IN };
    float *x = help_random(h, N_X, 1.0), *w = help_random(h, N_W, 1.0);
    float *dy = help_random(h, ROWS * OUT, 1.0), *zeros = help_random(h, N_W, 0.0);
    float *first[3] = {NULL, NULL, NULL};
    for (int64_t shift = 0; shift < 24; shift += 5) {
        float *x2 = help_alloc(h, (N_X + shift) * 4),
              *w2 = help_alloc(h, (N_W + shift) * 4);
        float *y = help_alloc(h, (ROWS * OUT + shift) * 4), *dx = help_copy(h, x, N_X);
        float *dw = help_copy(h, zeros, N_W);
        memcpy(x2 + shift, x, N_X * sizeof *x);
        memcpy(w2 + shift, w, N_W * sizeof *w);
        mist_cpu_linear_forward(NULL, y + shift, x2 + shift, w2 + shift, NULL, NULL, ROWS,
                                IN, OUT, 1);
        mist_cpu_linear_backward_input(NULL, dx, dy, w2 + shift, NULL, ROWS, IN, OUT, 1);
        mist_cpu_linear_backward_weight(NULL, dw, NULL, dy, x2 + shift, ROWS, IN, OUT, 1,
                                        0);
        if (shift == 0)
            first[0] = y, first[1] = dx, first[2] = dw;
        help_assert_same_bits(y + shift, first[0], ROWS * OUT);
        help_assert_same_bits(dx, first[1], N_X);
        help_assert_same_bits(dw, first[2], N_W);
    }
}

struct linear_case {
    int rows, n_in, n_out;
};

/* in: x [rows, n_in], W [n_out, n_in], bias [n_out] */
static void naive_linear_forward(struct help *h, double *out, const double *in,
                                 const void *context)
{
    const struct linear_case *c = context;
    const double *w = in + c->rows * c->n_in;
    (void)h;
    naive_linear(out, in, w, w + c->n_in * c->n_out, c->rows, c->n_in, c->n_out);
}

TEST_WITH(test_linear_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct linear_case c = {5, 7, 6};
    int64_t n_x = c.rows * c.n_in, n_w = c.n_in * c.n_out, n = n_x + n_w + c.n_out;
    float *in = help_random(h, n, 1.0), *dy = help_random(h, c.rows * c.n_out, 1.0);
    float *zeros = help_random(h, n, 0.0), *dx = help_poisoned(h, n_x);
    float *dw = help_copy(h, zeros, n_w), *dbias = help_copy(h, zeros, c.n_out);
    double *slopes = help_slopes(h, naive_linear_forward, help_doubles(h, in, n), n, dy,
                                 c.rows * c.n_out, &c);
    mist_cpu_linear_backward_input(NULL, dx, dy, in + n_x, NULL, c.rows, c.n_in, c.n_out,
                                   1);
    mist_cpu_linear_backward_weight(NULL, dw, dbias, dy, in, c.rows, c.n_in, c.n_out, 1,
                                    0);
    help_assert_close(dx, slopes, n_x, "dx");
    help_assert_close(dw, slopes + n_x, n_w, "dW");
    help_assert_close(dbias, slopes + n_x + n_w, c.n_out, "dbias");
}

/* ------------------------------------------------------------------------------- norm */

struct norm_case {
    enum mist_cpu_norm_kind kind;
    int has_bias, rows, h;
};

static const struct norm_case norm_cases[] = {
    {MIST_CPU_NORM_LAYER, 1, 70, 67}, {MIST_CPU_NORM_LAYER, 1, 3, 300},
    {MIST_CPU_NORM_LAYER, 0, 33, 31}, {MIST_CPU_NORM_LAYER, 1, 2, 2},
    {MIST_CPU_NORM_RMS, 0, 70, 67},   {MIST_CPU_NORM_RMS, 0, 1, 1},
    {MIST_CPU_NORM_RMS, 0, 64, 1025},
};
#define NORM_EPS 1e-5

/* in: x [rows, h], weight [h], bias [h] */
static void naive_norm_forward(struct help *h, double *out, const double *in,
                               const void *context)
{
    const struct norm_case *c = context;
    const double *weight = in + c->rows * c->h;
    (void)h;
    naive_norm(out, in, weight, c->has_bias ? weight + c->h : NULL,
               c->kind == MIST_CPU_NORM_RMS, NORM_EPS, c->rows, c->h);
}

static void check_norm(struct help *h, const struct norm_case *c)
{
    int64_t n = c->rows * c->h, n_in = n + 2 * c->h;
    float *in = help_random(h, n_in, 1.0), *d_out = help_random(h, n, 1.0);
    float *d_residual = help_random(h, n, 1.0);
    for (int64_t i = 0; i < n; i++)
        in[i] = in[i] * 2.0f + 1.5f; /* a mean that matters */
    const float *weight = in + n, *bias = c->has_bias ? weight + c->h : NULL;
    double *ind = help_doubles(h, in, n_in), *out_d = help_zeros(h, n);
    double *d_in = help_zeros(h, n_in);
    naive_norm_forward(h, out_d, ind, c);
    naive_norm_backward(d_in, d_in + n, c->has_bias ? d_in + n + c->h : NULL,
                        help_doubles(h, d_out, n), ind, ind + n,
                        c->kind == MIST_CPU_NORM_RMS, NORM_EPS, c->rows, c->h);
    double *dx_sum = help_doubles(h, d_residual, n);
    for (int64_t i = 0; i < n; i++)
        dx_sum[i] += d_in[i];

    float *first = NULL;
    for (int n_threads = 1; n_threads <= HELP_N_THREADS; n_threads++) {
        int64_t n_work = (int64_t)(mist_cpu_norm_backward_workspace_bytes(c->rows, c->h) /
                                   sizeof(float));
        float *out = help_poisoned(h, n), *stats = help_poisoned(h, 2 * c->rows);
        float *dx = help_poisoned(h, n), *work = help_poisoned(h, n_work);
        float *alias = help_copy(h, d_residual, n), *alias_out = help_copy(h, d_out, n);
        float *before = help_random(h, c->h, 1.0), *dw = help_copy(h, before, c->h);
        double *dw_d = help_doubles(h, before, c->h),
               *db_d = help_doubles(h, before, c->h);
        float *db = help_copy(h, before, c->h), *ignored = help_copy(h, before, c->h);
        for (int64_t j = 0; j < c->h; j++) {
            dw_d[j] += d_in[n + j];
            db_d[j] += d_in[n + c->h + j];
        }
        mist_cpu_norm_forward(false, c->kind, out, NULL, stats, in, NULL, weight, bias,
                              (float)NORM_EPS, c->rows, c->h, NULL, n_threads);
        mist_cpu_norm_backward(false, c->kind, dx, dw, bias == NULL ? NULL : db, d_out,
                               NULL, in, stats, weight, c->rows, c->h, work, n_threads,
                               0);
        mist_cpu_norm_backward(false, c->kind, alias, ignored, NULL, d_out, alias, in,
                               stats, weight, c->rows, c->h, work, n_threads, 0);
        mist_cpu_norm_backward(false, c->kind, alias_out, ignored, NULL, alias_out,
                               d_residual, in, stats, weight, c->rows, c->h, work,
                               n_threads, 0);
        help_assert_guard(work, n_work);
        help_assert_guard(stats, 2 * c->rows);
        help_assert_close(out, out_d, n, "norm");
        if (c->h > 2) { /* with h <= 2 the gradient is a difference of equal terms */
            help_assert_close(dx, d_in, n, "dx");
            help_assert_close(dw, dw_d, c->h, "dweight");
        }
        help_assert_close(alias, dx_sum, n, "dx + d_residual");
        help_assert_same_bits(alias, alias_out, n);
        if (bias != NULL)
            help_assert_close(db, db_d, c->h, "dbias");
        /* overwritten has the bits of added to zeros */
        float *zeros = help_random(h, 2 * c->h, 0.0), *over = help_poisoned(h, 2 * c->h);
        for (int k = 0; k < 2; k++)
            mist_cpu_norm_backward(false, c->kind, alias, k ? over : zeros,
                                   (k ? over : zeros) + c->h, d_out, d_residual, in,
                                   stats, weight, c->rows, c->h, work, n_threads,
                                   k ? MIST_CPU_OVERWRITES : 0);
        for (int64_t j = 0; j < 2 * c->h; j++)
            assert_true(over[j] == zeros[j]);
        float *all = help_poisoned(h, 2 * n);
        memcpy(all, out, (size_t)n * sizeof *all);
        memcpy(all + n, dx, (size_t)n * sizeof *all);
        first = first == NULL ? all : first;
        help_assert_same_bits(all, first, 2 * n);
    }
}

TEST_WITH(test_norm, help_setup, help_teardown)
{
    for (size_t i = 0; i < sizeof norm_cases / sizeof *norm_cases; i++)
        check_norm(*state, &norm_cases[i]);
}

/* Weight gradients have the same bits for any number of threads. */
TEST_WITH(test_norm_threads, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { ROWS = 200, H = 600 };
    float *x = help_random(h, ROWS * H, 1.0), *d_out = help_random(h, ROWS * H, 1.0);
    float *w = help_random(h, H, 1.0), *stats = help_poisoned(h, 2 * ROWS);
    float *out = help_poisoned(h, ROWS * H), *sums[HELP_N_THREADS];
    void *work = help_alloc(h, (int64_t)mist_cpu_norm_backward_workspace_bytes(ROWS, H));
    mist_cpu_norm_forward(false, MIST_CPU_NORM_LAYER, out, NULL, stats, x, NULL, w, w,
                          1e-5f, ROWS, H, NULL, 1);
    for (int t = 0; t < HELP_N_THREADS; t++) {
        sums[t] = help_alloc(h, 2 * H * (int64_t)sizeof(float));
        memset(sums[t], 0, 2 * H * sizeof(float));
        mist_cpu_norm_backward(false, MIST_CPU_NORM_LAYER, out, sums[t], sums[t] + H,
                               d_out, NULL, x, stats, w, ROWS, H, work, t + 1, 0);
        help_assert_same_bits(sums[t], sums[0], 2 * H);
    }
}

TEST_WITH(test_norm_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct norm_case cases[] = {{MIST_CPU_NORM_LAYER, 1, 3, 37},
                                      {MIST_CPU_NORM_RMS, 0, 3, 37}};
    for (int k = 0; k < 2; k++) {
        const struct norm_case *c = &cases[k];
        int64_t n = c->rows * c->h, n_in = n + 2 * c->h;
        float *in = help_random(h, n_in, 1.0), *d_out = help_random(h, n, 1.0);
        float *out = help_poisoned(h, n), *stats = help_poisoned(h, 2 * c->rows);
        float *zeros = help_random(h, 2 * c->h, 0.0);
        float *dx = help_poisoned(h, n), *dw = help_copy(h, zeros, c->h);
        float *db = help_copy(h, zeros, c->h);
        double *slopes = help_slopes(h, naive_norm_forward, help_doubles(h, in, n_in),
                                     n_in, d_out, n, c);
        mist_cpu_norm_forward(false, c->kind, out, NULL, stats, in, NULL, in + n,
                              c->has_bias ? in + n + c->h : NULL, (float)NORM_EPS,
                              c->rows, c->h, NULL, 1);
        mist_cpu_norm_backward(
            false, c->kind, dx, dw, c->has_bias ? db : NULL, d_out, NULL, in, stats,
            in + n, c->rows, c->h,
            help_alloc(h, (int64_t)mist_cpu_norm_backward_workspace_bytes(c->rows, c->h)),
            1, 0);
        help_assert_close(dx, slopes, n, "dx");
        help_assert_close(dw, slopes + n, c->h, "dweight");
        if (c->has_bias)
            help_assert_close(db, slopes + n + c->h, c->h, "dbias");
    }
}

/* in: a [rows, h], b [rows, h], weight [h], bias [h]; out: a + b, then its norm */
static void naive_residual_norm(struct help *h, double *out, const double *in,
                                const void *context)
{
    const struct norm_case *c = context;
    int n = c->rows * c->h;
    (void)h;
    for (int i = 0; i < n; i++)
        out[i] = in[i] + in[n + i];
    naive_norm(out + n, out, in + 2 * n, c->has_bias ? in + 2 * n + c->h : NULL,
               c->kind == MIST_CPU_NORM_RMS, NORM_EPS, c->rows, c->h);
}

/* Both outputs of residual_norm are used: their gradients meet in one dx. */
TEST_WITH(test_residual_norm_slopes, help_setup, help_teardown)
{
    struct help *h = *state;
    const struct norm_case cases[] = {{MIST_CPU_NORM_LAYER, 1, 3, 21},
                                      {MIST_CPU_NORM_RMS, 0, 3, 21}};
    for (int k = 0; k < 2; k++) {
        const struct norm_case *c = &cases[k];
        int64_t n = c->rows * c->h, n_in = 2 * n + 2 * c->h;
        float *in = help_random(h, n_in, 1.0), *d_out = help_random(h, 2 * n, 1.0);
        float *zeros = help_random(h, c->h, 0.0), *dx = help_poisoned(h, n);
        float *dw = help_copy(h, zeros, c->h), *db = help_copy(h, zeros, c->h);
        float *out = help_poisoned(h, n), *sum = help_poisoned(h, n);
        float *stats = help_poisoned(h, 2 * c->rows), *weight = in + 2 * n;
        double *slopes = help_slopes(h, naive_residual_norm, help_doubles(h, in, n_in),
                                     n_in, d_out, 2 * n, c);
        size_t n_work = mist_cpu_norm_backward_workspace_bytes(c->rows, c->h);
        mist_cpu_norm_forward(false, c->kind, out, sum, stats, in, in + n, weight,
                              c->has_bias ? weight + c->h : NULL, (float)NORM_EPS,
                              c->rows, c->h, NULL, 1);
        mist_cpu_norm_backward(false, c->kind, dx, dw, c->has_bias ? db : NULL, d_out + n,
                               d_out, sum, stats, weight, c->rows, c->h,
                               help_alloc(h, (int64_t)n_work), 1, 0);
        help_assert_close(dx, slopes, n, "da");
        help_assert_close(dx, slopes + n, n, "db");
        help_assert_close(dw, slopes + 2 * n, c->h, "dweight");
        if (c->has_bias)
            help_assert_close(db, slopes + 2 * n + c->h, c->h, "dbias");
    }
}

/* The fused kernel equals add then norm bit by bit, whichever input is overwritten. */
TEST_WITH(test_residual_norm, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { ROWS = 13, H = 77, N = ROWS * H };
    float *a = help_random(h, N, 1.0), *b = help_random(h, N, 1.0);
    float *w = help_random(h, H, 1.0), *bias = help_random(h, H, 1.0);
    for (int kind = 0; kind < 2; kind++) {
        float *sum = help_poisoned(h, N), *out = help_poisoned(h, N);
        float *stats = help_poisoned(h, 2 * ROWS), *stats2 = help_poisoned(h, 2 * ROWS);
        const float *has_bias = kind == MIST_CPU_NORM_LAYER ? bias : NULL;
        mist_cpu_add_forward(false, sum, a, b, N, 1);
        mist_cpu_norm_forward(false, (enum mist_cpu_norm_kind)kind, out, NULL, stats, sum,
                              NULL, w, has_bias, 1e-5f, ROWS, H, NULL, 1);
        for (int alias = 0; alias < 3; alias++) {
            float *a2 = help_copy(h, a, N), *b2 = help_copy(h, b, N);
            float *sum2 = alias == 1 ? a2 : alias == 2 ? b2 : help_poisoned(h, N);
            float *out2 = alias == 1 ? b2 : alias == 2 ? a2 : help_poisoned(h, N);
            mist_cpu_norm_forward(false, (enum mist_cpu_norm_kind)kind, out2, sum2,
                                  stats2, a2, b2, w, has_bias, 1e-5f, ROWS, H, NULL,
                                  1 + alias);
            help_assert_same_bits(sum2, sum, N);
            help_assert_same_bits(out2, out, N);
            help_assert_same_bits(stats2, stats, 2 * ROWS);
        }
        float *in_place = help_copy(h, sum, N);
        mist_cpu_norm_forward(false, (enum mist_cpu_norm_kind)kind, in_place, NULL,
                              stats2, in_place, NULL, w, has_bias, 1e-5f, ROWS, H, NULL,
                              1);
        help_assert_same_bits(in_place, out, N);
    }
}

/* -------------------------------------------------------------------------- embedding */

TEST_WITH(test_embedding, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { B = 3, S = 11, ROWS = B * S, H = 133, VOCAB = 7 };
    int32_t tokens[ROWS];
    float *wte = help_random(h, VOCAB * H, 1.0), *wpe = help_random(h, S * H, 1.0);
    float *d_out = help_random(h, ROWS * H, 1.0);
    for (int i = 0; i < ROWS; i++)
        tokens[i] = i * i % (VOCAB - 1); /* repeats; the last one never occurs */
    double *out_d = help_zeros(h, ROWS * H);
    double *dwte_d = help_doubles(h, wte, VOCAB * H),
           *dwpe_d = help_doubles(h, wpe, S * H);
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < H; j++) {
            out_d[i * H + j] =
                (double)wte[tokens[i] * H + j] + (double)wpe[i % S * H + j];
            dwte_d[tokens[i] * H + j] += (double)d_out[i * H + j];
            dwpe_d[i % S * H + j] += (double)d_out[i * H + j];
        }
    float *first[3];
    for (int t = 1; t <= HELP_N_THREADS; t++) {
        float *out = help_poisoned(h, ROWS * H), *no_wpe = help_poisoned(h, ROWS * H);
        float *dwte = help_copy(h, wte, VOCAB * H), *dwpe = help_copy(h, wpe, S * H);
        float *only = help_copy(h, wte, VOCAB * H);
        void *work = help_alloc(
            h, (int64_t)mist_cpu_embedding_slice_backward_workspace_bytes(ROWS));
        mist_cpu_embedding_slice_forward(false, out, tokens, wte, wpe, ROWS,
                                         MIST_WHOLE_CHUNKS(S), H, 0, INT64_MAX, t);
        mist_cpu_embedding_slice_forward(false, no_wpe, tokens, wte, NULL, ROWS,
                                         MIST_WHOLE_CHUNKS(S), H, 0, INT64_MAX, t);
        mist_cpu_embedding_slice_backward(false, dwte, dwpe, tokens, d_out, ROWS,
                                          MIST_WHOLE_CHUNKS(S), H, 0, INT64_MAX, work, t,
                                          0);
        mist_cpu_embedding_slice_backward(false, only, NULL, tokens, d_out, ROWS,
                                          MIST_WHOLE_CHUNKS(S), H, 0, INT64_MAX, work, t,
                                          0);
        if (t == 1) {
            first[0] = out;
            first[1] = dwte;
            first[2] = dwpe;
        }
        help_assert_close(out, out_d, ROWS * H, "out");
        help_assert_close(dwte, dwte_d, VOCAB * H, "dwte");
        help_assert_close(dwpe, dwpe_d, S * H, "dwpe");
        help_assert_same_bits(out, first[0], ROWS * H);
        help_assert_same_bits(dwte, first[1], VOCAB * H);
        help_assert_same_bits(dwpe, first[2], S * H);
        help_assert_same_bits(only, dwte, VOCAB * H);
        for (int i = 0; i < ROWS; i++)
            help_assert_same_bits(no_wpe + i * H, wte + tokens[i] * H, H);
    }
}

/* Whatever the tokens have in common, each one's rows are summed in order. */
TEST_WITH(test_embedding_sums, help_setup, help_teardown)
{
    enum { S = 257, ROWS = 3 * S, H = 5, VOCAB = 8 * ROWS };
    struct help *h = *state;
    const float *wte = help_random(h, VOCAB * H, 1.0);
    const float *d_out = help_random(h, ROWS * H, 1.0);
    size_t n_bytes = mist_cpu_embedding_slice_backward_workspace_bytes(ROWS);

    for (int kind = 0; kind < 4; kind++) {
        float *expected = help_copy(h, wte, VOCAB * H);
        int32_t tokens[ROWS];
        for (int i = 0; i < ROWS; i++)
            tokens[i] = kind == 0   ? 11                /* one */
                        : kind == 1 ? i                 /* all different */
                        : kind == 2 ? i * i % 7 * ROWS  /* of one remainder */
                                    : i * 7919 % VOCAB; /* any */
        for (int token = 0; token < VOCAB; token++)
            for (int j = 0; j < H; j++) {
                float sum = 0;
                for (int i = 0; i < ROWS; i++)
                    sum += tokens[i] == token ? d_out[i * H + j] : 0;
                expected[token * H + j] += sum;
            }
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            float *dwte = help_copy(h, wte, VOCAB * H);
            mist_cpu_embedding_slice_backward(false, dwte, NULL, tokens, d_out, ROWS,
                                              MIST_WHOLE_CHUNKS(S), H, 0, VOCAB,
                                              help_alloc(h, (int64_t)n_bytes), t, 0);
            help_assert_same_bits(dwte, expected, VOCAB * H);
        }
    }
}

TEST_WITH(test_describe, help_setup, help_teardown)
{
    char text[128], cut[8];
    mist_cpu_describe(text, sizeof text, 3);
    assert_non_null(strstr(text, "oneDNN "));
    assert_non_null(strstr(text, " 3 of "));
    mist_cpu_describe(cut, sizeof cut, 3);
    assert_string_equal(cut, "oneDNN ");
}

/* Bit by bit as with weights that are larger by 1. */
static void check_offset(struct help *h, enum mist_cpu_norm_kind plain,
                         enum mist_cpu_norm_kind with_offset, const float *bias)
{
    enum { ROWS = 70, H = 67 };
    float *x = help_random(h, ROWS * H, 2), *d_out = help_random(h, ROWS * H, 1);
    float *w = help_random(h, H, 1), *shifted = help_copy(h, w, H);
    float *out[2], *dx[2], *dw[2], *db = bias ? help_poisoned(h, H) : NULL,
                                   *stats = help_poisoned(h, 2 * ROWS);
    void *workspace =
        help_alloc(h, (int64_t)mist_cpu_norm_backward_workspace_bytes(ROWS, H));

    for (int j = 0; j < H; j++)
        shifted[j] += 1.0f;
    for (int i = 0; i < 2; i++) {
        enum mist_cpu_norm_kind kind = i ? with_offset : plain;
        const float *weight = i ? w : shifted;
        out[i] = help_poisoned(h, ROWS * H);
        dx[i] = help_poisoned(h, ROWS * H);
        dw[i] = help_poisoned(h, H);
        mist_cpu_norm_forward(false, kind, out[i], NULL, stats, x, NULL, weight, bias,
                              1e-6f, ROWS, H, NULL, 2);
        mist_cpu_norm_backward(false, kind, dx[i], dw[i], db, d_out, NULL, x, stats,
                               weight, ROWS, H, workspace, 2, MIST_CPU_OVERWRITES);
    }
    help_assert_same_bits(out[1], out[0], ROWS * H);
    help_assert_same_bits(dx[1], dx[0], ROWS * H);
    help_assert_same_bits(dw[1], dw[0], H);
}

TEST_WITH(test_offset_norms, help_setup, help_teardown)
{
    const float *bias = help_random(*state, 67, 1);

    check_offset(*state, MIST_CPU_NORM_RMS, MIST_CPU_NORM_OFFSET_RMS, NULL);
    check_offset(*state, MIST_CPU_NORM_LAYER, MIST_CPU_NORM_OFFSET_LAYER, bias);
}

TEST_MAIN(NULL, NULL)
