/*
 * bf16 linear layers, attention and rotary embedding against the naive double versions
 * and the fp32 kernels on the same inputs; equal bits for any number of threads.
 *
 * A result rounded to 8 bits is off by up to 2^-8 relatively, by 1.7e-3 in the 2-norm of
 * many.
 */
#include "exec/operators/cpu_bf16_internal.h"

#include "tests/unit/cpu_bf16_help.h"
#include "tests/unit/naive_operators.h"

/* One rounding of n results. */
static double rounding_of(int64_t n)
{
    return n < 100 ? 0x1p-8 : 2e-3;
}

/* ----------------------------------------------------------------------------- linear */

static const int linear_shapes[][3] = {/* rows, n_in, n_out */
                                       {1, 1, 1},    {5, 3, 7},      {300, 37, 600},
                                       {33, 257, 9}, {520, 3, 5},    {1, 129, 64},
                                       {257, 1, 65}, {70, 512, 31},  {300, 9, 800},
                                       {40, 7, 500}, {40, 900, 300}, {64, 1000, 70}};

struct linear {
    int rows, n_in, n_out;
    mist_bf16 *x, *w, *bias, *dy, *y_before, *dx_before;
    float *dw_before, *dbias_before;
};

/* y, y with bias and residual, dx, dx with residual; then dW and dbias. */
struct linear_result {
    mist_bf16 *rounded[4];
    float *exact[2];
};

static struct linear_result run_linear(struct help *h, struct mist_cpu_bf16 *context,
                                       const struct linear *l, int n_threads)
{
    int rows = l->rows, n_in = l->n_in, n_out = l->n_out;
    int64_t n_x = rows * n_in, n_y = rows * n_out;
    bool is_in_place = n_threads == 1;
    struct linear_result r = {
        {help_bf16_poisoned(h, n_y),
         is_in_place ? help_bf16_copy(h, l->y_before, n_y) : help_bf16_poisoned(h, n_y),
         help_bf16_poisoned(h, n_x),
         is_in_place ? help_bf16_copy(h, l->dx_before, n_x) : help_bf16_poisoned(h, n_x)},
        {help_copy(h, l->dw_before, n_in * n_out), help_copy(h, l->dbias_before, n_out)}};
    mist_cpu_linear_forward(context, r.rounded[0], l->x, l->w, NULL, NULL, rows, n_in,
                            n_out, n_threads);
    mist_cpu_linear_forward(context, r.rounded[1], l->x, l->w, l->bias,
                            is_in_place ? r.rounded[1] : l->y_before, rows, n_in, n_out,
                            n_threads);
    mist_cpu_linear_backward_input(context, r.rounded[2], l->dy, l->w, NULL, rows, n_in,
                                   n_out, n_threads);
    mist_cpu_linear_backward_input(context, r.rounded[3], l->dy, l->w,
                                   is_in_place ? r.rounded[3] : l->dx_before, rows, n_in,
                                   n_out, n_threads);
    mist_cpu_linear_backward_weight(context, r.exact[0], r.exact[1], l->dy, l->x, rows,
                                    n_in, n_out, n_threads, 0);
    return r;
}

static void check_linear(struct help *h, struct mist_cpu_bf16 *context,
                         const int shape[3])
{
    int rows = shape[0], n_in = shape[1], n_out = shape[2];
    int64_t n_x = rows * n_in, n_y = rows * n_out, n_w = n_in * n_out;
    float *x, *w, *bias, *dy, *y_before, *dx_before;
    const struct linear l = {rows,
                             n_in,
                             n_out,
                             help_bf16_random(h, &x, n_x, 1.0),
                             help_bf16_random(h, &w, n_w, 1.0),
                             help_bf16_random(h, &bias, n_out, 1.0),
                             help_bf16_random(h, &dy, n_y, 1.0),
                             help_bf16_random(h, &y_before, n_y, 1.0),
                             help_bf16_random(h, &dx_before, n_x, 1.0),
                             help_random(h, n_w, 1.0),
                             help_random(h, n_out, 1.0)};
    double *xd = help_doubles(h, x, n_x), *wd = help_doubles(h, w, n_w);
    double *y = help_zeros(h, n_y), *y_sum = help_zeros(h, n_y), *dx = help_zeros(h, n_x);
    double *dx_sum = help_doubles(h, dx_before, n_x);
    double *dw = help_doubles(h, l.dw_before, n_w);
    double *dbias = help_doubles(h, l.dbias_before, n_out);
    naive_linear(y, xd, wd, NULL, rows, n_in, n_out);
    naive_linear(y_sum, xd, wd, help_doubles(h, bias, n_out), rows, n_in, n_out);
    naive_linear_backward(dx, dw, dbias, help_doubles(h, dy, n_y), xd, wd, rows, n_in,
                          n_out);
    for (int64_t i = 0; i < n_y; i++)
        y_sum[i] += (double)y_before[i];
    for (int64_t i = 0; i < n_x; i++)
        dx_sum[i] += dx[i];
    const double *expected[4] = {y, y_sum, dx, dx_sum};
    const int64_t sizes[4] = {n_y, n_y, n_x, n_x};
    static const char *const names[4] = {"y", "y with bias and residual", "dx",
                                         "dx with residual"};
    struct linear_result one = run_linear(h, context, &l, 1);
    for (int k = 0; k < 4; k++) {
        help_assert_within(help_floats_of(h, one.rounded[k], sizes[k]), expected[k],
                           sizes[k], rounding_of(sizes[k]), names[k]);
        help_bf16_assert_guard(one.rounded[k], sizes[k]);
    }
    help_assert_close(one.exact[0], dw, n_w, "dW");
    help_assert_close(one.exact[1], dbias, n_out, "dbias");
    float *over[2] = {help_poisoned(h, n_w), help_poisoned(h, n_out)};
    for (int64_t i = 0; i < n_w; i++)
        dw[i] -= (double)l.dw_before[i];
    for (int64_t i = 0; i < n_out; i++)
        dbias[i] -= (double)l.dbias_before[i];
    mist_cpu_linear_backward_weight(context, over[0], over[1], l.dy, l.x, rows, n_in,
                                    n_out, 2, MIST_CPU_OVERWRITES);
    help_assert_close(over[0], dw, n_w, "dW overwritten");
    float *added[2] = {help_copy(h, over[0], n_w), help_copy(h, over[1], n_out)};
    memset(added[0], 0, (size_t)n_w * sizeof *added[0]);
    memset(added[1], 0, (size_t)n_out * sizeof *added[1]);
    mist_cpu_linear_backward_weight(context, added[0], added[1], l.dy, l.x, rows, n_in,
                                    n_out, 1, 0);
    help_assert_same_bits(added[0], over[0], n_w);
    help_assert_same_bits(added[1], over[1], n_out);
    help_assert_close(over[1], dbias, n_out, "dbias overwritten");
    /* gradients in bf16: overwritten, then added to; within their rounding */
    mist_bf16 *rounded[2] = {help_bf16_poisoned(h, n_w), help_bf16_poisoned(h, n_out)};
    for (int how = MIST_CPU_OVERWRITES; how >= 0; how--) {
        mist_cpu_linear_backward_weight(context, rounded[0], rounded[1], l.dy, l.x, rows,
                                        n_in, n_out, 2, how | MIST_CPU_BF16_GRADIENTS);
        help_assert_within(help_floats_of(h, rounded[0], n_w), dw, n_w, rounding_of(n_w),
                           "dW in bf16");
        help_assert_within(help_floats_of(h, rounded[1], n_out), dbias, n_out,
                           rounding_of(n_out), "dbias in bf16");
        help_bf16_assert_guard(rounded[0], n_w);
        help_bf16_assert_guard(rounded[1], n_out);
        for (int64_t i = 0; i < n_w; i++) /* what adding doubles */
            dw[i] = 2 * dw[i];
        for (int64_t i = 0; i < n_out; i++)
            dbias[i] = 2 * dbias[i];
    }
    for (int t = 2; t <= HELP_N_THREADS; t++) {
        struct linear_result more = run_linear(h, context, &l, t);
        for (int k = 0; k < 4; k++)
            assert_memory_equal(more.rounded[k], one.rounded[k],
                                (size_t)sizes[k] * sizeof(mist_bf16));
        help_assert_same_bits(more.exact[0], one.exact[0], n_w);
        help_assert_same_bits(more.exact[1], one.exact[1], n_out);
    }
}

static struct mist_cpu_bf16 *new_context(int n_threads)
{
    struct mist_cpu_bf16 *context = NULL;
    assert_int_equal(mist_cpu_bf16_new(&context, n_threads, NULL), MIST_OK);
    return context;
}

TEST_WITH(test_linear, help_setup, help_teardown)
{
    struct mist_cpu_bf16 *context = new_context(HELP_N_THREADS);
    for (int again = 0; again < 2; again++) /* compiled, then found */
        for (size_t i = 0; i < sizeof linear_shapes / sizeof *linear_shapes; i++)
            check_linear(*state, context, linear_shapes[i]);
    mist_cpu_bf16_free(context);
    mist_cpu_bf16_free(NULL);
}

/* Bits do not depend on where tensors lie: offloading brings them back elsewhere. */
TEST_WITH(test_linear_addresses, help_setup, help_teardown)
{
    struct help *h = *state;
    enum { ROWS = 70, IN = 97, OUT = 130, N_X = ROWS * IN, N_W = OUT * IN };
    struct mist_cpu_bf16 *context = new_context(1);
    mist_bf16 *x = help_bf16_random(h, NULL, N_X, 1.0), *first = NULL;
    mist_bf16 *w = help_bf16_random(h, NULL, N_W, 1.0);
    for (int64_t shift = 0; shift < 48; shift += 9) {
        mist_bf16 *x2 = help_alloc(h, (N_X + shift) * 2);
        mist_bf16 *w2 = help_alloc(h, (N_W + shift) * 2);
        mist_bf16 *y = help_alloc(h, (ROWS * OUT + shift) * 2);
        memcpy(x2 + shift, x, N_X * sizeof *x);
        memcpy(w2 + shift, w, N_W * sizeof *w);
        mist_cpu_linear_forward(context, y + shift, x2 + shift, w2 + shift, NULL, NULL,
                                ROWS, IN, OUT, 1);
        first = first == NULL ? y : first;
        assert_memory_equal(y + shift, first, ROWS * OUT * sizeof *y);
    }
    mist_cpu_bf16_free(context);
}

/* Nothing to do is fine, and leaves accumulated gradients alone. */
TEST_WITH(test_linear_empty, help_setup, help_teardown)
{
    struct help *h = *state;
    struct mist_cpu_bf16 *context = new_context(1);
    mist_bf16 *w = help_bf16_random(h, NULL, 6, 1.0), none = 0;
    float *dw = help_random(h, 6, 1.0), *before = help_copy(h, dw, 6);
    mist_cpu_linear_forward(context, &none, &none, w, NULL, NULL, 0, 3, 2, 1);
    mist_cpu_linear_backward_input(context, &none, &none, w, NULL, 0, 3, 2, 1);
    mist_cpu_linear_backward_weight(context, dw, NULL, &none, &none, 0, 3, 2, 1, 0);
    help_assert_same_bits(dw, before, 6);
    assert_int_equal(none, 0);
    mist_cpu_bf16_free(context);
}

/* -------------------------------------------------------------------- packed products */

static int64_t n_spanned(int64_t rows, int64_t columns, const int64_t strides[2])
{
    return (rows - 1) * strides[0] + (columns - 1) * strides[1] + 1;
}

/* With operands of bf16, or of fp32. */
static void check_packed(struct help *h, const struct mist_cpu_product *of, bool is_bf16)
{
    int64_t n_a = n_spanned(of->m, of->k, of->a_strides), n_c = of->m * of->c_stride;
    int64_t n_b = n_spanned(of->k, of->n, of->b_strides);
    float *a_f, *b_f, *bias_f, *c_f;
    mist_bf16 *a = help_bf16_random(h, &a_f, n_a, 1.0);
    mist_bf16 *b = help_bf16_random(h, &b_f, n_b, 1.0);
    mist_bf16 *bias = help_bf16_random(h, &bias_f, of->n, 1.0);
    mist_bf16 *c_b = help_bf16_random(h, &c_f, n_c, 1.0);
    double *expected = help_doubles(h, c_f, n_c);
    float *result = help_copy(h, c_f, n_c);
    int64_t n_room = (int64_t)(mist_cpu_packed_bytes(of) / sizeof(float));
    float *room = help_poisoned(h, n_room);
    for (int64_t i = 0; i < of->m; i++)
        for (int64_t j = 0; j < of->n; j++) {
            double *c = &expected[i * of->c_stride + j], sum = 0;
            for (int64_t k = 0; k < of->k; k++)
                sum += (double)a_f[i * of->a_strides[0] + k * of->a_strides[1]] *
                       (double)b_f[k * of->b_strides[0] + j * of->b_strides[1]];
            *c = sum + (of->adds ? *c : 0) + (of->has_bias ? (double)bias_f[j] : 0);
        }
    mist_cpu_multiply_packed(of, is_bf16, is_bf16 ? (void *)a : a_f,
                             is_bf16 ? (void *)b : b_f,
                             of->is_float ? (void *)result : c_b,
                             !of->has_bias ? NULL
                             : is_bf16     ? (void *)bias
                                           : bias_f,
                             room);
    help_assert_guard(room, n_room);
    if (of->is_float) {
        help_assert_close(result, expected, n_c, "fp32");
        return;
    }
    float *rounded = help_floats_of(h, c_b, n_c);
    for (int64_t i = 0; i < of->m; i++) /* what lies between the rows stays */
        help_assert_same_bits(rounded + i * of->c_stride + of->n,
                              c_f + i * of->c_stride + of->n, of->c_stride - of->n);
    help_assert_within(rounded, expected, n_c, rounding_of(n_c), "bf16");
}

static const int64_t packed_sizes[][3] = {/* m, n, k */
                                          {1, 1, 1},
                                          {3, 5, 7},
                                          {64, 48, 256},
                                          {33, 800, 70},
                                          {9, 11, 700}};
enum { N_PACKED_SIZES = sizeof packed_sizes / sizeof *packed_sizes };

/* Of fp32, dense but for a gap between the rows of c. */
static struct mist_cpu_product packed_product(int i, int64_t gap)
{
    int64_t m = packed_sizes[i][0], n = packed_sizes[i][1], k = packed_sizes[i][2];

    return (struct mist_cpu_product){.m = m,
                                     .n = n,
                                     .k = k,
                                     .a_strides = {k, 1},
                                     .b_strides = {n, 1},
                                     .c_stride = n + gap,
                                     .is_float = 1};
}

/* What processors without a product of bf16 run, on every processor: both operands as they
 * are and turned, k in one block and in three. */
TEST_WITH(test_widened, help_setup, help_teardown)
{
    for (int i = 0; i < N_PACKED_SIZES; i++)
        for (int how = 0; how < 32; how++) {
            struct mist_cpu_product of = packed_product(i, 3 * (how & 1));
            of.is_float = how >> 1 & 1;
            of.adds = how >> 2 & 1;
            of.has_bias = how >> 3 & 1;
            if (how & 16) {
                of.a_strides[0] = of.b_strides[0] = 1;
                of.a_strides[1] = of.m;
                of.b_strides[1] = of.k;
            }
            check_packed(*state, &of, true);
        }
}

/* fp32, each operand near and so far apart along k that it is packed without AVX-512. */
TEST_WITH(test_far, help_setup, help_teardown)
{
    for (int i = 0; i < N_PACKED_SIZES; i++)
        for (int how = 0; how < 16; how++) {
            struct mist_cpu_product of = packed_product(i, 0);
            of.adds = how >> 2 & 1;
            of.has_bias = how >> 3 & 1;
            if (how & 1) {
                of.a_strides[0] = 1;
                of.a_strides[1] = 1030;
            }
            if (how & 2)
                of.b_strides[0] = 1100;
            check_packed(*state, &of, false);
        }
}

/* -------------------------------------------------------------------------- attention */

static const struct mist_cpu_attention shapes[] = {
    {1, 1, 1, 1, 2},    {2, 5, 6, 2, 6},   {1, 64, 4, 1, 8},  {2, 65, 3, 3, 10},
    {1, 130, 4, 2, 64}, {1, 300, 3, 1, 4}, {3, 67, 5, 5, 16},
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

struct attention_result {
    mist_bf16 *out, *dqkv;
    float *lse;
};

static struct attention_result run_attention(struct help *h,
                                             struct mist_cpu_bf16 *context,
                                             const struct mist_cpu_attention *a,
                                             const mist_bf16 *qkv, const mist_bf16 *d_out,
                                             int n_threads)
{
    struct attention_result r = {help_bf16_poisoned(h, n_out_of(a)),
                                 help_bf16_poisoned(h, n_qkv_of(a)),
                                 help_poisoned(h, a->b * a->heads * a->s)};
    int64_t n_forward =
        (int64_t)mist_cpu_attention_forward_workspace_bytes(a, true, n_threads) / 4;
    int64_t n_backward =
        (int64_t)mist_cpu_attention_backward_workspace_bytes(a, true, n_threads) / 4;
    float *forward = help_poisoned(h, n_forward),
          *backward = help_poisoned(h, n_backward);
    mist_cpu_attention_forward(context, r.out, r.lse, qkv, a, forward, n_threads);
    mist_cpu_attention_backward(context, r.dqkv, d_out, qkv, r.out, r.lse, a, backward,
                                n_threads);
    help_assert_guard(forward, n_forward);
    help_assert_guard(backward, n_backward);
    help_assert_guard(r.lse, a->b * a->heads * a->s);
    return r;
}

static void check_attention(struct help *h, struct mist_cpu_bf16 *context,
                            const struct mist_cpu_attention *a)
{
    int64_t n_qkv = n_qkv_of(a), n_out = n_out_of(a), n_lse = a->b * a->heads * a->s;
    float *qkv_f, *d_out_f, *out_f = help_poisoned(h, n_out);
    float *lse_f = help_poisoned(h, n_lse), *dqkv_f = help_poisoned(h, n_qkv);
    mist_bf16 *qkv = help_bf16_random(h, &qkv_f, n_qkv, 2.0);
    mist_bf16 *d_out = help_bf16_random(h, &d_out_f, n_out, 1.0);
    void *work =
        help_alloc(h, (int64_t)mist_cpu_attention_backward_workspace_bytes(a, false, 1));
    struct attention_result one = run_attention(h, context, a, qkv, d_out, 1);
    mist_cpu_attention_forward(NULL, out_f, lse_f, qkv_f, a, work, 1);
    help_bf16_assert_within(h, one.out, out_f, n_out, rounding_of(n_out), "out");
    help_assert_within(one.lse, help_doubles(h, lse_f, n_lse), n_lse, 1e-5, "lse");
    /* The backward sees the rounded out, which dS = P (dP - d_out . out) feels. */
    mist_cpu_attention_backward(NULL, dqkv_f, d_out_f, qkv_f, out_f, lse_f, a, work, 1);
    if (a->s > 1) /* else dq and dk are differences of equal terms */
        help_bf16_assert_within(h, one.dqkv, dqkv_f, n_qkv, 5e-3, "dqkv");
    help_bf16_assert_guard(one.dqkv, n_qkv);
    mist_cpu_attention_backward(NULL, dqkv_f, d_out_f, qkv_f,
                                help_floats_of(h, one.out, n_out), lse_f, a, work, 1);
    /* P and dS are rounded, too. */
    help_bf16_assert_within(h, one.dqkv, dqkv_f, n_qkv, 1.5 * rounding_of(n_qkv),
                            "dqkv, same out");
    for (int t = 2; t <= HELP_N_THREADS; t++) {
        struct attention_result more = run_attention(h, context, a, qkv, d_out, t);
        assert_memory_equal(more.out, one.out, (size_t)n_out * sizeof(mist_bf16));
        assert_memory_equal(more.dqkv, one.dqkv, (size_t)n_qkv * sizeof(mist_bf16));
        help_assert_same_bits(more.lse, one.lse, n_lse);
    }
}

TEST_WITH(test_attention, help_setup, help_teardown)
{
    struct mist_cpu_bf16 *context = new_context(HELP_N_THREADS);

    for (int i = 0; i < N_SHAPES; i++)
        check_attention(*state, context, &shapes[i]);
    mist_cpu_bf16_free(context);
}

TEST_WITH(test_rope, help_setup, help_teardown)
{
    struct help *h = *state;
    for (int i = 0; i < N_SHAPES; i++)
        for (int t = 1; t <= HELP_N_THREADS; t++) {
            const struct mist_cpu_attention *a = &shapes[i];
            int64_t n = n_qkv_of(a);
            float *forward_f, *backward_f, *table = help_poisoned(h, a->s * a->head_dim);
            mist_bf16 *forward = help_bf16_random(h, &forward_f, n, 1.0);
            mist_bf16 *backward = help_bf16_random(h, &backward_f, n, 1.0);
            fill_rope_table(table, a->s, a->head_dim, 10000.0);
            mist_cpu_rope(false, forward_f, table, a, false, 1);
            mist_cpu_rope(false, backward_f, table, a, true, 1);
            mist_cpu_rope(true, forward, table, a, false, t);
            mist_cpu_rope(true, backward, table, a, true, t);
            help_bf16_assert_rounded(h, forward, forward_f, n);
            help_bf16_assert_rounded(h, backward, backward_f, n);
        }
}

TEST_MAIN(NULL, NULL)
