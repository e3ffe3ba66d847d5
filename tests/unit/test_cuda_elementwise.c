/*
 * The CUDA kernels of exec/cuda/kernels_elementwise.cu and kernels_embedding.cu against
 * the CPU's: equal bits where the arithmetic is the same, else close in the 2-norm. Each
 * launch is made twice, in two orders of the emulator, and must give the same bits; what
 * lies before and behind a tensor and inputs must stay as they are.
 */
#include "tests/unit/test.h"

#include "exec/cuda/kernels.h"
#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_kernels.h"
#include "tests/emulation/device_memory.h"
#include "tests/emulation/order.h"
#include "tests/unit/cpu_bf16_help.h"
#include "tests/unit/cpu_kernels_help.h"

#include <math.h>

enum { N_ORDERS = 2 };

/* ---------------------------------------------------------------------------- running */

static size_t size_of(enum mist_dtype dtype)
{
    return dtype == MIST_DTYPE_BF16 ? 2 : 4;
}

/* One of a launch. Those that begin with nothing are poisoned. */
struct tensor {
    size_t bytes;
    const void *input;          /* host; NULL: none */
    bool is_output;             /* may change */
    const struct tensor *alias; /* the same memory as an earlier one; NULL: its own */
    size_t offset;              /* bytes by which it misses alignment */
    unsigned char *base;        /* what was allocated; NULL with an alias */
    void *device;
    void *results[N_ORDERS]; /* host */
};

typedef void launch_fn(struct tensor *t, enum mist_dtype dtype, const int64_t *dims);

static void place_tensor(struct tensor *t)
{
    if (t->alias != NULL) {
        t->device = t->alias->device;
        t->base = NULL;
        return;
    }
    t->base = mist_test_device_alloc(t->offset + t->bytes);
    t->device = t->base + t->offset;
    if (t->input != NULL)
        mist_test_device_upload(t->device, t->input, t->bytes);
}

static void check_tensor(struct help *h, struct tensor *t, int i_order)
{
    unsigned char before[16];

    t->results[i_order] = help_alloc(h, (int64_t)t->bytes);
    mist_test_device_download(t->results[i_order], t->device, t->bytes);
    if (i_order == 1)
        assert_memory_equal(t->results[i_order], t->results[0], t->bytes);
    if (t->base == NULL)
        return;
    if (!t->is_output)
        assert_memory_equal(t->results[i_order], t->input, t->bytes);
    assert_true(mist_test_device_guard_is_intact(t->base, t->offset + t->bytes));
    mist_test_device_download(before, t->base, t->offset);
    for (size_t i = 0; i < t->offset; i++)
        assert_int_equal(before[i], 0xFF);
}

/* Launches in each order, on fresh memory. */
static void run(struct help *h, launch_fn *launch, struct tensor *tensors, int n,
                enum mist_dtype dtype, const int64_t *dims)
{
    for (int i = 0; i < N_ORDERS; i++) {
        mist_emulation_set_order(
            i == 0 ? MIST_EMULATION_FORWARD : MIST_EMULATION_SHUFFLED, h->seed);
        for (int j = 0; j < n; j++)
            place_tensor(&tensors[j]);
        launch(tensors, dtype, dims);
        mist_test_device_synchronize();
        for (int j = 0; j < n; j++)
            check_tensor(h, &tensors[j], i);
        for (int j = 0; j < n; j++)
            if (tensors[j].base != NULL)
                mist_test_device_free(tensors[j].base);
    }
}

/* -------------------------------------------------------------------- data, comparing */

/* n random numbers of dtype in [-size, size]. */
static void *random_values(struct help *h, enum mist_dtype dtype, int64_t n, double size)
{
    return dtype == MIST_DTYPE_BF16 ? (void *)help_bf16_random(h, NULL, n, size)
                                    : (void *)help_random(h, n, size);
}

static void *blank(struct help *h, enum mist_dtype dtype, int64_t n)
{
    return help_alloc(h, n * (int64_t)size_of(dtype));
}

static const float *floats_of(struct help *h, enum mist_dtype dtype, const void *x,
                              int64_t n)
{
    return dtype == MIST_DTYPE_BF16 ? help_floats_of(h, x, n) : x;
}

static void assert_close(struct help *h, enum mist_dtype dtype, const void *got,
                         const void *expected, int64_t n, const char *what)
{
    help_assert_within(floats_of(h, dtype, got, n),
                       help_doubles(h, floats_of(h, dtype, expected, n), n), n,
                       dtype == MIST_DTYPE_BF16 ? 1e-2 : 1e-5, what);
}

static void assert_equal_bits(enum mist_dtype dtype, const void *got,
                              const void *expected, int64_t n)
{
    assert_memory_equal(got, expected, (size_t)n * size_of(dtype));
}

static const enum mist_dtype dtypes[] = {MIST_DTYPE_FP32, MIST_DTYPE_BF16};
#define N_DTYPES ((int)(sizeof dtypes / sizeof dtypes[0]))

static const int64_t lengths[] = {0, 1, 3, 8, 9, 255, 4096, 4103, 20001};
#define N_LENGTHS ((int)(sizeof lengths / sizeof lengths[0]))

/* ------------------------------------------------------------- gelu, add, conversions */

/* dims: elements, is_exact */
static void launch_gelu_forward(struct tensor *t, enum mist_dtype dtype,
                                const int64_t *dims)
{
    mist_cuda_gelu_forward(NULL, dtype, dims[1], t[1].device, t[0].device, dims[0]);
}

static void launch_gelu_backward(struct tensor *t, enum mist_dtype dtype,
                                 const int64_t *dims)
{
    mist_cuda_gelu_backward(NULL, dtype, dims[1], t[2].device, t[1].device, t[0].device,
                            dims[0]);
}

static void launch_add(struct tensor *t, enum mist_dtype dtype, const int64_t *dims)
{
    mist_cuda_add(NULL, dtype, t[2].device, t[0].device, t[1].device, dims[0]);
}

/* out over dims[0] elements of one or two inputs: apart, in place of each, and misaligned. */
static void check_map(struct help *h, launch_fn *launch, enum mist_dtype dtype,
                      const void *a, const void *b, const void *expected,
                      const int64_t *dims, bool is_exact, const char *what)
{
    int64_t n = dims[0];
    size_t bytes = (size_t)n * size_of(dtype);
    int i_out = b == NULL ? 1 : 2;

    for (int variant = -1; variant < i_out + 1; variant++) {
        struct tensor t[] = {
            {.bytes = bytes, .input = a}, {.bytes = bytes, .input = b}, {0}};
        t[i_out] = (struct tensor){.bytes = bytes, .is_output = true};
        if (variant == i_out)
            t[0].offset = t[i_out].offset = size_of(dtype);
        else if (variant >= 0) {
            t[i_out].alias = &t[variant];
            t[variant].is_output = true;
        }
        run(h, launch, t, i_out + 1, dtype, dims);
        if (is_exact)
            assert_equal_bits(dtype, t[i_out].results[0], expected, n);
        else
            assert_close(h, dtype, t[i_out].results[0], expected, n, what);
    }
}

/* The tanh form or the exact one beside the CPU's. */
static void check_gelu(struct help *h, bool is_exact)
{
    const char *name = is_exact ? "exact gelu" : "gelu";

    for (int i = 0; i < N_LENGTHS * N_DTYPES; i++) {
        enum mist_dtype dtype = dtypes[i % N_DTYPES];
        int64_t n = lengths[i / N_DTYPES], dims[] = {n, is_exact};
        void *x = random_values(h, dtype, n, 6.0), *d = random_values(h, dtype, n, 1.0);
        void *out = blank(h, dtype, n), *dx = blank(h, dtype, n);
        mist_cpu_gelu_forward(dtype == MIST_DTYPE_BF16, is_exact, out, x, n, 1);
        mist_cpu_gelu_backward(dtype == MIST_DTYPE_BF16, is_exact, dx, d, x, n, 1);
        check_map(h, launch_gelu_forward, dtype, x, NULL, out, dims, false, name);
        check_map(h, launch_gelu_backward, dtype, x, d, dx, dims, false, name);
    }
}

TEST_WITH(test_gelu, help_setup, help_teardown)
{
    check_gelu(*state, false);
    check_gelu(*state, true);
}

TEST_WITH(test_add, help_setup, help_teardown)
{
    struct help *h = *state;

    for (int i = 0; i < N_LENGTHS * N_DTYPES; i++) {
        enum mist_dtype dtype = dtypes[i % N_DTYPES];
        int64_t n = lengths[i / N_DTYPES];
        void *a = random_values(h, dtype, n, 1.0), *b = random_values(h, dtype, n, 1.0);
        void *out = blank(h, dtype, n);
        if (dtype == MIST_DTYPE_BF16)
            mist_cpu_add_forward(true, out, a, b, n, 1);
        else
            mist_cpu_add_forward(false, out, a, b, n, 1);
        check_map(h, launch_add, dtype, a, b, out, &n, true, "add");
    }
}

/* Where sigmoid or erfc ends: as on the CPU, infinity and NaN included. */
static void check_gelu_of_extremes(struct help *h, bool is_exact)
{
    const float x[] = {0.0f,  -0.0f, -4.0f,  -6.0f,  -12.0f, -100.0f,  12.0f,
                       100.f, 1e30f, -1e30f, 1e-38f, NAN,    INFINITY, -INFINITY};
    enum { N = sizeof x / sizeof x[0] };
    const int64_t dims[] = {N, is_exact};
    float out[N], dx[N], ones[N];

    for (int i = 0; i < N; i++)
        ones[i] = 1.0f;
    mist_cpu_gelu_forward(false, is_exact, out, x, N, 1);
    mist_cpu_gelu_backward(false, is_exact, dx, ones, x, N, 1);
    for (int backward = 0; backward < 2; backward++) {
        struct tensor t[3] = {{.bytes = sizeof x, .input = x},
                              {.bytes = sizeof x, .input = ones},
                              {.bytes = sizeof x, .is_output = true}};
        if (!backward)
            t[1] = t[2];
        run(h, backward ? launch_gelu_backward : launch_gelu_forward, t, 2 + backward,
            MIST_DTYPE_FP32, dims);
        const float *got = t[1 + backward].results[0], *expected = backward ? dx : out;
        for (int i = 0; i < N; i++) {
            float bound = 1e-6f + 1e-6f * fabsf(expected[i]);
            assert_true(isnan(expected[i]) ? isnan(got[i])
                                           : got[i] == expected[i] ||
                                                 fabsf(got[i] - expected[i]) <= bound);
        }
    }
}

TEST_WITH(test_gelu_of_extremes, help_setup, help_teardown)
{
    check_gelu_of_extremes(*state, false);
    check_gelu_of_extremes(*state, true);
}

/* The sums of one row: its elements, in the other number format. */
static void launch_conversion(struct tensor *t, enum mist_dtype dtype,
                              const int64_t *dims)
{
    enum mist_dtype other = dtype == MIST_DTYPE_BF16 ? MIST_DTYPE_FP32 : MIST_DTYPE_BF16;

    mist_cuda_column_sum(NULL, dtype, other, t[1].device, t[0].device, 1, dims[0], true);
}

static void check_conversion(struct help *h, const float *x, int64_t n, size_t is_odd)
{
    size_t bytes = (size_t)n * sizeof *x;
    mist_bf16 *rounded = help_bf16_of(h, x, n);
    float *widened = help_floats_of(h, rounded, n);
    struct tensor down[] = {
        {.bytes = bytes, .input = x, .offset = is_odd * 4},
        {.bytes = bytes / 2, .is_output = true, .offset = is_odd * 2}};
    struct tensor up[] = {{.bytes = bytes / 2, .input = rounded, .offset = is_odd * 2},
                          {.bytes = bytes, .is_output = true}};

    run(h, launch_conversion, down, 2, MIST_DTYPE_FP32, &n);
    assert_memory_equal(down[1].results[0], rounded, bytes / 2);
    run(h, launch_conversion, up, 2, MIST_DTYPE_BF16, &n);
    assert_memory_equal(up[1].results[0], widened, bytes);
}

TEST_WITH(test_conversions, help_setup, help_teardown)
{
    struct help *h = *state;

    for (int i = 0; i < N_LENGTHS; i++)
        for (size_t is_odd = 0; is_odd < 2; is_odd++)
            check_conversion(h, help_random(h, lengths[i], 1e3), lengths[i], is_odd);
    /* ties go to even, the largest become infinite, denormals stay */
    const float x[] = {1.00390625f, 1.01171875f, 3.4e38f,   -3.4e38f, 1e-40f,
                       -1e-40f,     INFINITY,    -INFINITY, 0.1f};
    check_conversion(h, x, sizeof x / sizeof x[0], 0);

    const float nan_value = NAN;
    const int64_t one = 1;
    struct tensor t[] = {{.bytes = 4, .input = &nan_value},
                         {.bytes = 2, .is_output = true}};
    run(h, launch_conversion, t, 2, MIST_DTYPE_FP32, &one);
    assert_true(isnan(*help_floats_of(h, t[1].results[0], 1)));
}

/* ----------------------------------------------------------------------------- swiglu */

/* dims: rows, columns, is_geglu */
static void launch_swiglu_forward(struct tensor *t, enum mist_dtype dtype,
                                  const int64_t *dims)
{
    mist_cuda_swiglu_forward(NULL, dtype, dims[2], t[1].device, t[0].device, dims[0],
                             dims[1]);
}

static void launch_swiglu_backward(struct tensor *t, enum mist_dtype dtype,
                                   const int64_t *dims)
{
    mist_cuda_swiglu_backward(NULL, dtype, dims[2], t[2].device, t[1].device, t[0].device,
                              dims[0], dims[1]);
}

/* Beside the CPU's. */
static void check_gate(struct help *h, bool is_geglu, enum mist_dtype dtype, int64_t rows,
                       int64_t f, size_t offset)
{
    const int64_t n = rows * f, dims[] = {rows, f, is_geglu};
    const char *name = is_geglu ? "geglu" : "swiglu";
    bool is_bf16 = dtype == MIST_DTYPE_BF16;
    size_t bytes = (size_t)n * size_of(dtype);
    void *x = random_values(h, dtype, 2 * n, 6.0), *d = random_values(h, dtype, n, 1.0);
    void *out = blank(h, dtype, n), *dx = blank(h, dtype, 2 * n);

    mist_cpu_swiglu_forward(is_bf16, is_geglu, out, x, rows, f, 1);
    mist_cpu_swiglu_backward(is_bf16, is_geglu, dx, d, x, rows, f, 1);
    struct tensor forward[] = {{.bytes = 2 * bytes, .input = x, .offset = offset},
                               {.bytes = bytes, .is_output = true}};
    run(h, launch_swiglu_forward, forward, 2, dtype, dims);
    assert_close(h, dtype, forward[1].results[0], out, n, name);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct tensor backward[] = {
            {.bytes = 2 * bytes, .input = x, .is_output = in_place, .offset = offset},
            {.bytes = bytes, .input = d},
            {.bytes = 2 * bytes, .is_output = true}};
        backward[2].alias = in_place ? &backward[0] : NULL;
        run(h, launch_swiglu_backward, backward, 3, dtype, dims);
        assert_close(h, dtype, backward[2].results[0], dx, 2 * n, name);
    }
}

static void launch_scale(struct tensor *t, enum mist_dtype dtype, const int64_t *dims)
{
    mist_cuda_scale(NULL, dtype, t[0].device, 6.5f, dims[0]);
}

TEST_WITH(test_scale, help_setup, help_teardown)
{
    struct help *h = *state;

    for (int i = 0; i < N_LENGTHS * N_DTYPES * 2; i++) {
        enum mist_dtype dtype = dtypes[i % N_DTYPES];
        int64_t n = lengths[i / N_DTYPES / 2];
        size_t bytes = (size_t)n * size_of(dtype), is_odd = (size_t)i / N_DTYPES % 2;
        void *x = random_values(h, dtype, n, 6.0), *scaled = blank(h, dtype, n);
        memcpy(scaled, x, bytes);
        mist_cpu_scale(dtype == MIST_DTYPE_BF16, scaled, 6.5f, n, 1);
        struct tensor t[] = {{.bytes = bytes,
                              .input = x,
                              .is_output = true,
                              .offset = is_odd * size_of(dtype)}};
        run(h, launch_scale, t, 1, dtype, &n);
        assert_equal_bits(dtype, t[0].results[0], scaled, n);
    }
}

TEST_WITH(test_gates, help_setup, help_teardown)
{
    static const int64_t dims[][2] = {{1, 1},   {0, 8},    {3, 5},    {7, 8},   {300, 12},
                                      {5, 344}, {2, 1000}, {70, 264}, {9, 1023}};

    for (int i = 0; i < (int)(sizeof dims / sizeof dims[0]) * N_DTYPES; i++)
        for (size_t is_odd = 0; is_odd < 2; is_odd++)
            for (int is_geglu = 0; is_geglu < 2; is_geglu++)
                check_gate(*state, is_geglu, dtypes[i % N_DTYPES], dims[i / N_DTYPES][0],
                           dims[i / N_DTYPES][1], is_odd * size_of(dtypes[i % N_DTYPES]));
}

/* ------------------------------------------------------------------------------- rope */

struct rope_case {
    int64_t b, s, heads, kv_heads, head_dim;
};

static void launch_rope(struct tensor *t, enum mist_dtype dtype, const int64_t *dims)
{
    const struct mist_cpu_attention shape = {dims[0], dims[1], dims[2], dims[3], dims[4]};

    mist_cuda_rope(NULL, dtype, t[0].device, t[1].device, &shape, (int)dims[5]);
}

static void turn_on_cpu(enum mist_dtype dtype, void *qkv, const float *table,
                        const struct mist_cpu_attention *shape, int64_t is_backward)
{
    mist_cpu_rope(dtype == MIST_DTYPE_BF16, qkv, table, shape, is_backward != 0, 1);
}

static void check_rope(struct help *h, enum mist_dtype dtype, const struct rope_case *c,
                       int64_t is_backward, size_t offset)
{
    const struct mist_cpu_attention shape = {c->b, c->s, c->heads, c->kv_heads,
                                             c->head_dim};
    const int64_t dims[] = {c->b, c->s, c->heads, c->kv_heads, c->head_dim, is_backward};
    int64_t n = c->b * c->s * (c->heads + 2 * c->kv_heads) * c->head_dim;
    void *x = random_values(h, dtype, n, 1.0), *expected = blank(h, dtype, n);
    /* not of real angles: position 0 would not be turned */
    const float *table = help_random(h, c->s * c->head_dim, 1.0);

    memcpy(expected, x, (size_t)n * size_of(dtype));
    turn_on_cpu(dtype, expected, table, &shape, is_backward);
    struct tensor t[] = {{.bytes = (size_t)n * size_of(dtype),
                          .input = x,
                          .is_output = true,
                          .offset = offset},
                         {.bytes = (size_t)(c->s * c->head_dim) * 4, .input = table}};
    run(h, launch_rope, t, 2, dtype, dims);
    assert_close(h, dtype, t[0].results[0], expected, n, "rope");
}

TEST_WITH(test_rope, help_setup, help_teardown)
{
    static const struct rope_case cases[] = {
        {1, 1, 1, 1, 2},   {0, 4, 2, 1, 8},     {2, 5, 3, 1, 16},    {3, 7, 4, 2, 64},
        {2, 3, 5, 5, 80},  {1, 4, 40, 8, 96},   {2, 9, 32, 8, 128},  {1, 2, 2, 1, 6},
        {1, 3, 1, 1, 600}, {70000, 1, 1, 1, 2}, {1, 70000, 1, 1, 2},
    };

    for (int i = 0; i < (int)(sizeof cases / sizeof cases[0]) * N_DTYPES; i++)
        for (size_t k = 0; k < 3; k++)
            check_rope(*state, dtypes[i % N_DTYPES], &cases[i / N_DTYPES], (int64_t)k % 2,
                       k / 2 * size_of(dtypes[i % N_DTYPES]));
}

/* ---------------------------------------------------------------- bias and column sum */

static void launch_add_bias(struct tensor *t, enum mist_dtype dtype, const int64_t *dims)
{
    mist_cuda_add_bias(NULL, dtype, t[1].device, t[0].device, dims[0], dims[1]);
}

static void check_add_bias(struct help *h, enum mist_dtype dtype, const int64_t *dims,
                           size_t offset)
{
    int64_t rows = dims[0], n = dims[1];
    void *bias = random_values(h, dtype, n, 1.0),
         *x = random_values(h, dtype, rows * n, 1.0);
    double *expected = help_doubles(h, floats_of(h, dtype, x, rows * n), rows * n);

    for (int64_t i = 0; i < rows * n; i++)
        expected[i] += (double)floats_of(h, dtype, bias, n)[i % n];
    struct tensor t[] = {
        {.bytes = (size_t)n * size_of(dtype), .input = bias, .offset = offset},
        {.bytes = (size_t)(rows * n) * size_of(dtype), .input = x, .is_output = true}};
    run(h, launch_add_bias, t, 2, dtype, dims);
    help_assert_within(floats_of(h, dtype, t[1].results[0], rows * n), expected, rows * n,
                       dtype == MIST_DTYPE_BF16 ? 4e-3 : 1e-6, "bias");
}

TEST_WITH(test_add_bias, help_setup, help_teardown)
{
    static const int64_t dims[][2] = {{1, 1}, {0, 16}, {64, 96},
                                      {5, 8}, {70, 3}, {33, 520}};

    for (int i = 0; i < (int)(sizeof dims / sizeof dims[0]) * N_DTYPES; i++) {
        enum mist_dtype dtype = dtypes[i % N_DTYPES];

        check_add_bias(*state, dtype, dims[i / N_DTYPES], 0);
        check_add_bias(*state, dtype, dims[i / N_DTYPES], size_of(dtype));
    }
}

/* dims: rows, columns, enum mist_dtype of the sums, whether they are overwritten */
static void launch_column_sum(struct tensor *t, enum mist_dtype dtype,
                              const int64_t *dims)
{
    mist_cuda_column_sum(NULL, dtype, (enum mist_dtype)dims[2], t[1].device, t[0].device,
                         dims[0], dims[1], dims[3]);
}

static void check_column_sum(struct help *h, enum mist_dtype dtype, const int64_t *dims,
                             size_t offset)
{
    enum mist_dtype out = (enum mist_dtype)dims[2];
    int64_t rows = dims[0], n = dims[1];
    void *x = random_values(h, dtype, rows * n, 1.0),
         *begin = random_values(h, out, n, 1.0);
    const float *values = floats_of(h, dtype, x, rows * n);
    double *expected = help_doubles(h, floats_of(h, out, begin, n), n);

    for (int64_t i = 0; i < n && dims[3]; i++)
        expected[i] = 0;
    for (int64_t i = 0; i < rows * n; i++)
        expected[i % n] += (double)values[i];
    struct tensor t[] = {
        {.bytes = (size_t)(rows * n) * size_of(dtype), .input = x, .offset = offset},
        {.bytes = (size_t)n * size_of(out), .input = begin, .is_output = true}};
    run(h, launch_column_sum, t, 2, dtype, dims);
    help_assert_within(floats_of(h, out, t[1].results[0], n), expected, n,
                       out == MIST_DTYPE_BF16 ? 4e-3 : 1e-5, "column sum");
}

TEST_WITH(test_column_sum, help_setup, help_teardown)
{
    /* the widths that blocks have, ends of rows and of columns within a block */
    static const int64_t dims[][2] = {{1, 1},      {0, 16},    {64, 96},   {5, 8},
                                      {1000, 3},   {5000, 24}, {33, 1000}, {257, 2048},
                                      {130, 4136}, {600, 8200}};

    for (int i = 0; i < (int)(sizeof dims / sizeof dims[0]) * N_DTYPES; i++)
        for (int64_t way = 0; way < 4; way++) {
            const int64_t *d = dims[i / N_DTYPES], all[] = {d[0], d[1], way / 2, way % 2};

            check_column_sum(*state, dtypes[i % N_DTYPES], all, 0);
            check_column_sum(*state, dtypes[i % N_DTYPES], all,
                             size_of(dtypes[i % N_DTYPES]));
        }
}

/* -------------------------------------------------------------------------- embedding */

struct embedding_case {
    int64_t rows, s, h, vocab;
    int64_t first_token, n_local;
};

/* A whole vocabulary, slices of it, one with no token; rows that end within a sample;
 * more tokens than a block looks at at once; few and many different tokens. */
static const struct embedding_case embedding_cases[] = {
    {1, 1, 1, 1, 0, 1},      {0, 4, 8, 5, 0, 5},          {6, 3, 8, 5, 0, 5},
    {40, 8, 24, 50, 10, 15}, {40, 8, 24, 50, 40, 10},     {35, 8, 7, 11, 0, 11},
    {33, 16, 1032, 9, 3, 4}, {20, 5, 2100, 7, 0, 7},      {64, 16, 16, 100, 50, 0},
    {2100, 525, 8, 3, 0, 3}, {2500, 100, 4, 400, 0, 400}, {130, 13, 515, 40, 20, 20},
};
#define N_EMBEDDING_CASES ((int)(sizeof embedding_cases / sizeof embedding_cases[0]))

static void launch_embedding_forward(struct tensor *t, enum mist_dtype dtype,
                                     const int64_t *dims)
{
    mist_cuda_embedding_forward(NULL, dtype, t[3].device, t[0].device, t[1].device,
                                dims[5] ? t[2].device : NULL, dims[0], dims[1], dims[2],
                                dims[3], dims[4]);
}

static void launch_embedding_backward(struct tensor *t, enum mist_dtype dtype,
                                      const int64_t *dims)
{
    mist_cuda_embedding_backward(NULL, dtype, (enum mist_dtype)dims[6], t[2].device,
                                 dims[5] ? t[3].device : NULL, t[0].device, t[1].device,
                                 dims[0], dims[1], dims[2], dims[3], dims[4]);
}

static int32_t *random_tokens(struct help *h, const struct embedding_case *c)
{
    int32_t *tokens = help_alloc(h, c->rows * (int64_t)sizeof *tokens);

    for (int64_t i = 0; i < c->rows; i++)
        tokens[i] = (int32_t)((help_uniform(h) + 1.0) / 2.0 * (double)c->vocab);
    return tokens;
}

static void check_embedding_forward(struct help *h, enum mist_dtype dtype,
                                    const struct embedding_case *c, bool has_wpe,
                                    size_t offset)
{
    const int64_t dims[] = {c->rows, c->s, c->h, c->first_token, c->n_local, has_wpe};
    int64_t n = c->rows * c->h;
    const int32_t *tokens = random_tokens(h, c);
    void *wte = random_values(h, dtype, c->n_local * c->h, 1.0);
    void *wpe = random_values(h, dtype, c->s * c->h, 1.0), *out = blank(h, dtype, n);
    void *given = has_wpe ? wpe : NULL;

    if (dtype == MIST_DTYPE_BF16)
        mist_cpu_embedding_slice_forward(true, out, tokens, wte, given, c->rows, c->s,
                                         c->h, c->first_token, c->n_local, 1);
    else
        mist_cpu_embedding_slice_forward(false, out, tokens, wte, given, c->rows, c->s,
                                         c->h, c->first_token, c->n_local, 1);
    struct tensor t[] = {
        {.bytes = (size_t)c->rows * 4, .input = tokens},
        {.bytes = (size_t)(c->n_local * c->h) * size_of(dtype), .input = wte},
        {.bytes = (size_t)(c->s * c->h) * size_of(dtype), .input = wpe},
        {.bytes = (size_t)n * size_of(dtype), .is_output = true, .offset = offset}};
    run(h, launch_embedding_forward, t, 4, dtype, dims);
    assert_equal_bits(dtype, t[3].results[0], out, n);
}

TEST_WITH(test_embedding_forward, help_setup, help_teardown)
{
    static const struct embedding_case many = {70000, 1, 1, 10, 2, 6};

    for (int i = 0; i < N_EMBEDDING_CASES * N_DTYPES; i++)
        for (size_t k = 0; k < 3; k++)
            check_embedding_forward(*state, dtypes[i % N_DTYPES],
                                    &embedding_cases[i / N_DTYPES], k % 2 == 0,
                                    k / 2 * size_of(dtypes[i % N_DTYPES]));
    check_embedding_forward(*state, MIST_DTYPE_BF16, &many, true, 0);
}

static void check_embedding_backward(struct help *h, enum mist_dtype dtype,
                                     enum mist_dtype gradient_dtype,
                                     const struct embedding_case *c, bool has_wpe,
                                     size_t offset)
{
    const int64_t dims[] = {c->rows,    c->s,    c->h,          c->first_token,
                            c->n_local, has_wpe, gradient_dtype};
    size_t wte_bytes = (size_t)(c->n_local * c->h) * size_of(gradient_dtype),
           wpe_bytes = (size_t)(c->s * c->h) * size_of(gradient_dtype);
    const int32_t *tokens = random_tokens(h, c);
    void *d_out = random_values(h, dtype, c->rows * c->h, 1.0);
    void *dwte = random_values(h, gradient_dtype, c->n_local * c->h, 1.0),
         *dwpe = random_values(h, gradient_dtype, c->s * c->h, 1.0);
    struct tensor t[] = {{.bytes = (size_t)c->rows * 4, .input = tokens},
                         {.bytes = (size_t)(c->rows * c->h) * size_of(dtype),
                          .input = d_out,
                          .offset = offset},
                         {.bytes = wte_bytes, .input = dwte, .is_output = true},
                         {.bytes = wpe_bytes, .input = dwpe, .is_output = has_wpe}};

    void *work = help_alloc(
        h, (int64_t)mist_cpu_embedding_slice_backward_workspace_bytes(c->rows));

    run(h, launch_embedding_backward, t, 4, dtype, dims);
    if (dtype == MIST_DTYPE_BF16)
        mist_cpu_embedding_slice_backward(
            true, dwte, has_wpe ? dwpe : NULL, tokens, d_out, c->rows, c->s, c->h,
            c->first_token, c->n_local, work, 1,
            gradient_dtype == MIST_DTYPE_BF16 ? MIST_CPU_BF16_GRADIENTS : 0);
    else
        mist_cpu_embedding_slice_backward(false, dwte, has_wpe ? dwpe : NULL, tokens,
                                          d_out, c->rows, c->s, c->h, c->first_token,
                                          c->n_local, work, 1, 0);
    assert_memory_equal(t[2].results[0], dwte, wte_bytes);
    assert_memory_equal(t[3].results[0], dwpe, wpe_bytes);
}

TEST_WITH(test_embedding_backward, help_setup, help_teardown)
{
    /* more than fit a list; in a row of several rounds, too */
    static const struct embedding_case often = {7000, 100, 4, 2, 0, 2},
                                       wide = {4500, 100, 259, 1, 0, 1};

    for (int i = 0; i < N_EMBEDDING_CASES * N_DTYPES; i++)
        for (size_t k = 0; k < 4; k++)
            check_embedding_backward(*state, dtypes[i % N_DTYPES],
                                     k < 3 ? MIST_DTYPE_FP32 : dtypes[i % N_DTYPES],
                                     &embedding_cases[i / N_DTYPES], k % 2 == 0 || k == 3,
                                     k / 2 * size_of(dtypes[i % N_DTYPES]));
    check_embedding_backward(*state, MIST_DTYPE_BF16, MIST_DTYPE_FP32, &often, true, 0);
    check_embedding_backward(*state, MIST_DTYPE_BF16, MIST_DTYPE_BF16, &wide, true, 0);
}

/* ------------------------------------------------------------------------------- main */

TEST_MAIN(NULL, NULL)
