/*
 * The CUDA backend's products of linear layers against the CPU's: all kinds, both number
 * formats, fused and not, added up twice; and how plans are kept, chosen by time, written
 * to a file, and how failures come out. Without a GPU cuBLASLt is a stand-in
 * (tests/emulation/cublaslt.c); what needs its knobs is not run on a GPU.
 */
#include "exec/cuda/gemm.h"

#include "exec/cpu_bf16.h"
#include "exec/cpu_kernels.h"
#include "tests/emulation/cublaslt.h"
#include "tests/emulation/device_memory.h"
#include "tests/unit/cpu_kernels_help.h"
#include "tests/unit/scratch.h"

#include <stdio.h>
#include <stdlib.h>

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>

enum { MAX_TENSORS = 4096, WORKSPACE_BYTES = 1 << 20 };

struct bench {
    struct help help; /* first: help_teardown */
    struct mist_cuda_gemm *gemm;
    void *workspace;
    void *tensors[MAX_TENSORS]; /* to be freed */
    int n_tensors;
};

/* Of device memory: n elements behind offset ones, and their values where they are known.
 */
struct tensor {
    void *base, *device;
    float *values;
    int64_t n;
    size_t bytes;
    enum mist_dtype dtype;
};

static const struct shape {
    int64_t rows, n_in, n_out;
} shapes[] = {{1, 1, 1},    {1, 8, 16},  {5, 7, 3},   {33, 40, 24},
              {64, 48, 96}, {17, 1, 10}, {3, 129, 66}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static int setup(void **state)
{
    static struct bench bench;
    const char *seed = getenv("MIST_SEED");

    memset(&bench, 0, sizeof bench);
    mist_arena_init(&bench.help.arena);
    bench.help.seed = seed ? strtoull(seed, NULL, 10) : 20250917;
    bench.workspace = mist_test_device_alloc(WORKSPACE_BYTES);
    *state = &bench;
#ifndef MIST_TEST_ON_GPU
    memset(&mist_test_cublaslt, 0, sizeof mist_test_cublaslt);
#endif
    return 0;
}

static int teardown(void **state)
{
    struct bench *bench = *state;

    mist_cuda_gemm_close(bench->gemm);
    for (int i = 0; i < bench->n_tensors; i++)
        mist_test_device_free(bench->tensors[i]);
    mist_test_device_free(bench->workspace);
    mist_arena_fini(&bench->help.arena);
#ifndef MIST_TEST_ON_GPU
    assert_int_equal(mist_test_cublaslt.n_alive, 0);
#endif
    return 0;
}

static void open_gemm(struct bench *bench, const char *path)
{
    struct mist_cuda_gemm_config config = {
        .workspace_bytes = WORKSPACE_BYTES, .device_name = "a GPU", .path = path};
    struct mist_err err = {0};

    mist_cuda_gemm_close(bench->gemm);
    if (mist_cuda_gemm_open(&config, &bench->gemm, &err) != MIST_OK)
        fail_msg("%s", err.message);
}

static struct tensor new_tensor(struct bench *bench, enum mist_dtype dtype, int64_t n,
                                int64_t offset)
{
    size_t element = (size_t)mist_dtype_weight_bytes(dtype);
    struct tensor t = {.n = n, .dtype = dtype};

    t.bytes = (size_t)(n + offset) * element;
    t.base = mist_test_device_alloc(t.bytes);
    t.device = (char *)t.base + (size_t)offset * element;
    assert_true(bench->n_tensors < MAX_TENSORS);
    bench->tensors[bench->n_tensors++] = t.base;
    return t;
}

/* Values as the device has them, from values (rounded in place) of any. */
static struct tensor upload(struct bench *bench, enum mist_dtype dtype, float *values,
                            int64_t n, int64_t offset)
{
    struct tensor t = new_tensor(bench, dtype, n, offset);
    const void *from = values;

    t.values = values;
    if (dtype == MIST_DTYPE_BF16) {
        mist_bf16 *rounded = help_alloc(&bench->help, n * (int64_t)sizeof *rounded);

        mist_cpu_bf16_from_float(rounded, values, n, 1);
        mist_cpu_bf16_to_float(values, rounded, n, 1);
        from = rounded;
    }
    mist_test_device_upload(t.device, from,
                            (size_t)n * (size_t)mist_dtype_weight_bytes(dtype));
    return t;
}

static struct tensor random_tensor(struct bench *bench, enum mist_dtype dtype, int64_t n)
{
    return upload(bench, dtype, help_random(&bench->help, n, 1.0), n, 0);
}

static struct tensor output(struct bench *bench, enum mist_dtype dtype, int64_t n)
{
    return new_tensor(bench, dtype, n, 0);
}

static float *values_of(struct bench *bench, const struct tensor *t)
{
    float *values = help_poisoned(&bench->help, t->n);

    if (t->dtype == MIST_DTYPE_BF16) {
        mist_bf16 *bits = help_alloc(&bench->help, t->n * (int64_t)sizeof *bits);

        mist_test_device_download(bits, t->device, (size_t)t->n * sizeof *bits);
        mist_cpu_bf16_to_float(values, bits, t->n, 1);
    } else {
        mist_test_device_download(values, t->device, (size_t)t->n * sizeof *values);
    }
    return values;
}

/* dtype is that of the operands: fp32 results of bf16 ones are exact but for fp32. */
static void check(struct bench *bench, const struct tensor *t, const float *expected,
                  const char *what)
{
    double tolerance = t->dtype == MIST_DTYPE_BF16 ? 1e-2 : 1e-5;
    struct mist_err err = {0};

    if (mist_cuda_gemm_status(bench->gemm, &err) != MIST_OK)
        fail_msg("%s: %s", what, err.message);
    help_assert_within(values_of(bench, t), help_doubles(&bench->help, expected, t->n),
                       t->n, tolerance, what);
    assert_true(mist_test_device_guard_is_intact(t->base, t->bytes));
    assert_true(mist_test_device_guard_is_intact(bench->workspace, WORKSPACE_BYTES));
}

static struct mist_cuda_linear linear_of(const struct bench *bench, enum mist_dtype dtype,
                                         struct shape shape)
{
    return (struct mist_cuda_linear){.workspace = bench->workspace,
                                     .dtype = dtype,
                                     .rows = shape.rows,
                                     .n_in = shape.n_in,
                                     .n_out = shape.n_out};
}

/* Calls check_one for all shapes and formats, fused (where there is such a thing) and
 * not. */
static void for_all(struct bench *bench,
                    void (*check_one)(struct bench *, const struct mist_cuda_linear *))
{
    for (int unfused = 0; unfused < 2; unfused++) {
#ifdef MIST_TEST_ON_GPU
        if (unfused)
            break;
#else
        mist_test_cublaslt.refuses_fusion = unfused;
#endif
        open_gemm(bench, NULL);
        for (int i = 0; i < N_SHAPES; i++)
            for (int dtype = 0; dtype < MIST_N_DTYPES; dtype++) {
                struct mist_cuda_linear at =
                    linear_of(bench, (enum mist_dtype)dtype, shapes[i]);

                check_one(bench, &at);
            }
    }
}

/* ------------------------------------------------------------------------ the products
 */

static void check_forward(struct bench *bench, const struct mist_cuda_linear *at)
{
    int64_t n = at->rows * at->n_out;
    struct tensor x = random_tensor(bench, at->dtype, at->rows * at->n_in);
    struct tensor weight = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor bias = random_tensor(bench, at->dtype, at->n_out);
    float *expected = help_poisoned(&bench->help, n);

    for (int has_bias = 0; has_bias < 2; has_bias++) {
        struct tensor y = output(bench, at->dtype, n);

        mist_cuda_gemm_forward(bench->gemm, at, y.device, x.device, weight.device,
                               has_bias ? bias.device : NULL);
        mist_cpu_linear_forward(expected, x.values, weight.values,
                                has_bias ? bias.values : NULL, at->rows, at->n_in,
                                at->n_out, 0, 1);
        check(bench, &y, expected, "forward");
    }
}

static void check_forward_gelu(struct bench *bench, const struct mist_cuda_linear *at)
{
    int64_t n = at->rows * at->n_out;
    struct tensor x = random_tensor(bench, at->dtype, at->rows * at->n_in);
    struct tensor weight = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor bias = random_tensor(bench, at->dtype, at->n_out);
    float *expected = help_poisoned(&bench->help, n);

    for (int has_bias = 0; has_bias < 2; has_bias++) {
        struct tensor y = output(bench, at->dtype, n),
                      before = output(bench, at->dtype, n);

        mist_cuda_gemm_forward_gelu(bench->gemm, at, y.device, before.device, x.device,
                                    weight.device, has_bias ? bias.device : NULL);
        mist_cpu_linear_forward(expected, x.values, weight.values,
                                has_bias ? bias.values : NULL, at->rows, at->n_in,
                                at->n_out, 0, 1);
        check(bench, &before, expected, "before the GELU");
        mist_cpu_gelu_forward(expected, expected, n, 1);
        check(bench, &y, expected, "GELU");
    }
}

static void check_backward_input(struct bench *bench, const struct mist_cuda_linear *at)
{
    int64_t n = at->rows * at->n_in;
    struct tensor dy = random_tensor(bench, at->dtype, at->rows * at->n_out);
    struct tensor weight = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor dx = output(bench, at->dtype, n);
    float *expected = help_poisoned(&bench->help, n);

    mist_cuda_gemm_backward_input(bench->gemm, at, dx.device, dy.device, weight.device);
    mist_cpu_linear_backward_input(expected, dy.values, weight.values, at->rows, at->n_in,
                                   at->n_out, 0, 1);
    check(bench, &dx, expected, "backward_input");
}

static void check_backward_input_gelu(struct bench *bench,
                                      const struct mist_cuda_linear *at)
{
    int64_t n = at->rows * at->n_in;
    struct tensor dy = random_tensor(bench, at->dtype, at->rows * at->n_out);
    struct tensor weight = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor before = random_tensor(bench, at->dtype, n);
    struct tensor dx = output(bench, at->dtype, n);
    float *expected = help_poisoned(&bench->help, n);

    mist_cpu_linear_backward_input(expected, dy.values, weight.values, at->rows, at->n_in,
                                   at->n_out, 0, 1);
    mist_cpu_gelu_backward(expected, expected, before.values, n, 1);
    mist_cuda_gemm_backward_input_gelu(bench->gemm, at, dx.device, dy.device,
                                       weight.device, before.device);
    check(bench, &dx, expected, "backward of GELU");
}

/* What a tensor is expected to hold: the values of its format. */
static void expect(struct bench *bench, struct tensor *t, const float *values)
{
    for (int64_t i = 0; i < t->n; i++)
        t->values[i] = values[i];
    if (t->dtype != MIST_DTYPE_BF16)
        return;
    mist_bf16 *rounded = help_alloc(&bench->help, t->n * (int64_t)sizeof *rounded);
    mist_cpu_bf16_from_float(rounded, t->values, t->n, 1);
    mist_cpu_bf16_to_float(t->values, rounded, t->n, 1);
}

/* Random, or what must be overwritten: NaN where zeros are expected to have been. */
static struct tensor begin_gradient(struct bench *bench,
                                    const struct mist_cuda_linear *at, int64_t n,
                                    bool is_lost)
{
    struct tensor t;

    if (!is_lost)
        return random_tensor(bench, at->gradient_dtype, n);
    t = upload(bench, at->gradient_dtype, help_poisoned(&bench->help, n), n, 0);
    memset(t.values, 0, (size_t)n * sizeof *t.values);
    return t;
}

/* Twice: the first call adds or overwrites, the second adds. */
static void check_gradients(struct bench *bench, const struct mist_cuda_linear *at,
                            bool has_bias)
{
    int64_t n = at->n_out * at->n_in;
    struct tensor dy = random_tensor(bench, at->dtype, at->rows * at->n_out);
    struct tensor x = random_tensor(bench, at->dtype, at->rows * at->n_in);
    struct tensor dweight = begin_gradient(bench, at, n, at->overwrites);
    struct tensor dbias =
        begin_gradient(bench, at, at->n_out, at->overwrites && has_bias);
    struct mist_cuda_linear next = *at;

    for (int time = 0; time < 2; time++, next.overwrites = false) {
        float *sums = help_copy(&bench->help, dweight.values, n),
              *bias_sums = help_copy(&bench->help, dbias.values, at->n_out);

        mist_cuda_gemm_backward_weight(bench->gemm, &next, dweight.device,
                                       has_bias ? dbias.device : NULL, dy.device,
                                       x.device);
        mist_cpu_linear_backward_weight(sums, has_bias ? bias_sums : NULL, dy.values,
                                        x.values, at->rows, at->n_in, at->n_out, 1);
        expect(bench, &dweight, sums);
        expect(bench, &dbias, bias_sums);
        check(bench, &dweight, dweight.values, "backward_weight");
        check(bench, &dbias, dbias.values, "bias gradient"); /* or untouched */
    }
}

static void check_backward_weight(struct bench *bench, const struct mist_cuda_linear *at)
{
    for (int way = 0; way < 8; way++) {
        struct mist_cuda_linear one = *at;

        one.overwrites = way & 1;
        one.gradient_dtype = way & 2 ? at->dtype : MIST_DTYPE_FP32;
        check_gradients(bench, &one, way & 4);
    }
}

static void test_forward(void **state)
{
    for_all(*state, check_forward);
}

static void test_forward_gelu(void **state)
{
    for_all(*state, check_forward_gelu);
}

static void test_backward_input(void **state)
{
    for_all(*state, check_backward_input);
}

static void test_backward_input_gelu(void **state)
{
    for_all(*state, check_backward_input_gelu);
}

static void test_backward_weight(void **state)
{
    for_all(*state, check_backward_weight);
}

/* --------------------------------------------------------------------------- the plans
 */

/* One of each product, on fresh operands that begin offset elements behind a boundary. */
static void run_each(struct bench *bench, const struct mist_cuda_linear *at,
                     int64_t offset)
{
    struct help *h = &bench->help;
    int64_t n_x = at->rows * at->n_in, n_y = at->rows * at->n_out;
    int64_t n_w = at->n_out * at->n_in;
    struct tensor x = upload(bench, at->dtype, help_random(h, n_x, 1), n_x, offset);
    struct tensor w = upload(bench, at->dtype, help_random(h, n_w, 1), n_w, offset);
    struct tensor b = random_tensor(bench, at->dtype, at->n_out);
    struct tensor y = new_tensor(bench, at->dtype, n_y, offset);
    struct tensor dx = new_tensor(bench, at->dtype, n_x, offset);
    struct tensor dw = random_tensor(bench, MIST_DTYPE_FP32, n_w);
    struct tensor db = random_tensor(bench, MIST_DTYPE_FP32, at->n_out);
    float *expected = help_poisoned(h, n_y);

    mist_cuda_gemm_forward(bench->gemm, at, y.device, x.device, w.device, b.device);
    mist_cuda_gemm_backward_input(bench->gemm, at, dx.device, y.device, w.device);
    mist_cuda_gemm_backward_weight(bench->gemm, at, dw.device, db.device, y.device,
                                   x.device);
    mist_cpu_linear_forward(expected, x.values, w.values, b.values, at->rows, at->n_in,
                            at->n_out, 0, 1);
    check(bench, &y, expected, "forward");
}

static void test_plans_are_kept(void **state)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){16, 32, 48});
    struct mist_cuda_gemm_counts first, again, moved;

    open_gemm(bench, NULL);
    run_each(bench, &at, 0);
    first = mist_cuda_gemm_counts(bench->gemm);
    assert_true(first.n_plans >= 3);
    run_each(bench, &at, 0);
    run_each(bench, &at, 8); /* 16 bytes further: no other alignment */
    again = mist_cuda_gemm_counts(bench->gemm);
    assert_int_equal(again.n_plans, first.n_plans);
    assert_true(again.n_hits >= first.n_hits + 6);
    run_each(bench, &at, 3); /* an alignment that the first plans don't fit */
    moved = mist_cuda_gemm_counts(bench->gemm);
    assert_true(moved.n_plans >= first.n_plans + 3);
    at.rows = 15;
    run_each(bench, &at, 0);
    assert_true(mist_cuda_gemm_counts(bench->gemm).n_plans >= moved.n_plans + 3);
}

/* ----------------------------------------------------- what needs the stand-in's knobs
 */

#ifndef MIST_TEST_ON_GPU

static void test_epilogues_are_fused(void **state)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_FP32, (struct shape){16, 32, 48});
    struct tensor dw = random_tensor(bench, MIST_DTYPE_FP32, 48 * 32);
    struct tensor x = random_tensor(bench, MIST_DTYPE_FP32, 16 * 48);
    uint32_t *last = &mist_test_cublaslt.last_epilogue;
    void *p = x.device, *sums = x.device;

    open_gemm(bench, NULL);
    mist_cuda_gemm_forward(bench->gemm, &at, p, p, dw.device, dw.device);
    assert_int_equal(*last, CUBLASLT_EPILOGUE_BIAS);
    mist_cuda_gemm_forward_gelu(bench->gemm, &at, p, p, p, dw.device, dw.device);
    assert_int_equal(*last, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    mist_cuda_gemm_backward_input_gelu(bench->gemm, &at, p, p, dw.device, p);
    assert_int_equal(*last, CUBLASLT_EPILOGUE_DGELU);
    mist_cuda_gemm_backward_weight(bench->gemm, &at, dw.device, sums, p, p);
    assert_int_equal(*last, CUBLASLT_EPILOGUE_BGRADB);
    assert_int_equal(mist_cuda_gemm_counts(bench->gemm).n_fallbacks, 0);
    assert_int_equal(mist_test_cublaslt.last_schemes, CUBLASLT_REDUCTION_SCHEME_NONE);
    mist_test_cublaslt.refuses = CUBLASLT_EPILOGUE_BGRADB;
    open_gemm(bench, NULL);
    mist_cuda_gemm_backward_weight(bench->gemm, &at, dw.device, sums, p, p);
    assert_int_equal(*last, CUBLASLT_EPILOGUE_DEFAULT);
    assert_int_equal(mist_cuda_gemm_counts(bench->gemm).n_fallbacks, 1);
}

/* Column sums that don't fit the workspace are not fused. */
static void test_small_workspace(void **state)
{
    struct bench *bench = *state;
    struct mist_cuda_gemm_config config = {.workspace_bytes = 256, .n_processors = 100};
    struct mist_err err;

    for (int64_t n_out = 64; n_out <= 65; n_out++) {
        struct mist_cuda_linear at =
            linear_of(bench, MIST_DTYPE_BF16, (struct shape){9, 7, n_out});

        mist_cuda_gemm_close(bench->gemm);
        bench->gemm = NULL;
        assert_int_equal(mist_cuda_gemm_open(&config, &bench->gemm, &err), MIST_OK);
        check_backward_weight(bench, &at);
        assert_int_equal(mist_test_cublaslt.last_epilogue,
                         n_out == 64 ? CUBLASLT_EPILOGUE_BGRADB
                                     : CUBLASLT_EPILOGUE_DEFAULT);
        assert_int_equal(mist_test_cublaslt.last_processors, 100);
    }
}

/* The N-th call of the library fails, for all N. */
static void test_failures(void **state)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){4, 8, 16});
    struct mist_cuda_gemm_config config = {.workspace_bytes = WORKSPACE_BYTES};
    struct tensor x = random_tensor(bench, MIST_DTYPE_FP32, 16 * 16);
    struct tensor dw = random_tensor(bench, MIST_DTYPE_FP32, 16 * 8);
    struct mist_err err;
    int64_t n = 0, n_failed = 0, n_matmuls;
    enum mist_status status, later;

    do {
        mist_test_cublaslt.fail_at = ++n;
        status = mist_cuda_gemm_open(&config, &bench->gemm, &err);
        if (status != MIST_OK) {
            assert_null(bench->gemm);
            assert_int_equal(mist_test_cublaslt.n_alive, 0);
            n_failed++;
            continue;
        }
        mist_cuda_gemm_forward(bench->gemm, &at, x.device, x.device, dw.device, x.device);
        status = mist_cuda_gemm_status(bench->gemm, &err);
        if (status != MIST_OK) {
            n_failed++;
            assert_non_null(strstr(err.message, "forward of a bf16"));
            assert_non_null(strstr(err.message, "rows=4;n_in=8;n_out=16"));
            assert_non_null(strstr(err.message, "CUBLAS_STATUS_"));
            n_matmuls = mist_test_cublaslt.n_matmuls;
            mist_cuda_gemm_backward_weight(bench->gemm, &at, dw.device, dw.device,
                                           x.device, x.device);
            assert_int_equal(mist_test_cublaslt.n_matmuls, n_matmuls);
            later = mist_cuda_gemm_status(bench->gemm, &err);
            assert_int_equal(later, status);
            assert_non_null(strstr(err.message, "forward of a bf16"));
        }
        mist_cuda_gemm_close(bench->gemm);
        bench->gemm = NULL;
        assert_int_equal(mist_test_cublaslt.n_alive, 0);
    } while (status != MIST_OK);
    assert_true(n_failed > 15);
}

/* ------------------------------------------------------------------------------- times
 */

struct clock {
    const double *times_s;
    int n_calls;
};

static double tell_time(void *context, mist_cuda_stream stream, void (*launch)(void *arg),
                        void *arg)
{
    struct clock *clock = context;

    (void)stream;
    launch(arg);
    assert_int_equal(mist_test_cublaslt.i_last_algorithm,
                     clock->n_calls % MIST_TEST_CUBLASLT_N_ALGORITHMS);
    return clock->times_s[clock->n_calls++];
}

static int tune(struct bench *bench, const struct mist_cuda_linear *at,
                enum mist_cuda_gemm_kind kind, bool has_bias, const double *times_s)
{
    struct clock clock = {times_s, 0};
    size_t bytes = (size_t)mist_cuda_gemm_tune_bytes(at);
    void *scratch = mist_test_device_alloc(bytes);
    struct mist_err err;

    assert_int_equal(mist_cuda_gemm_tune(bench->gemm, at, kind, has_bias, tell_time,
                                         &clock, scratch, &err),
                     MIST_OK);
    assert_true(mist_test_device_guard_is_intact(scratch, bytes));
    assert_true(mist_test_device_guard_is_intact(bench->workspace, WORKSPACE_BYTES));
    mist_test_device_free(scratch);
    return clock.n_calls;
}

/* Algorithms of the forward and of the weight gradient, and whether that one is fused. */
static void assert_chosen(struct bench *bench, const struct mist_cuda_linear *at,
                          int i_forward, int i_weight, bool is_fused)
{
    int64_t n = at->rows * at->n_in + at->rows * at->n_out + at->n_in * at->n_out;
    struct tensor x = random_tensor(bench, MIST_DTYPE_FP32, n);
    struct tensor w = random_tensor(bench, MIST_DTYPE_FP32, n);
    struct tensor y = random_tensor(bench, MIST_DTYPE_FP32, n);

    mist_cuda_gemm_forward(bench->gemm, at, y.device, x.device, w.device, w.device);
    assert_int_equal(mist_test_cublaslt.i_last_algorithm, i_forward);
    mist_cuda_gemm_backward_weight(bench->gemm, at, y.device, y.device, x.device,
                                   w.device);
    assert_int_equal(mist_test_cublaslt.i_last_algorithm, i_weight);
    assert_int_equal(mist_test_cublaslt.last_epilogue == CUBLASLT_EPILOGUE_BGRADB,
                     is_fused);
    check_forward(bench, at);
    check_backward_weight(bench, at);
}

static const double third_s[] = {5, 4, 1, 1, 9, /* plain sums: */ 6, 5, 4, 3, 2};
static const double unfused_s[] = {5, 4, 3, 2, 9, /* plain sums: */ 6, 1, 4, 3, 2};

static void test_tuning(void **state)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){16, 24, 40});
    struct mist_cuda_linear other = at;

    other.rows = 8;
    open_gemm(bench, NULL);
    assert_chosen(bench, &at, 0, 0, true);
    assert_int_equal(tune(bench, &at, MIST_CUDA_GEMM_FORWARD, true, third_s), 5);
    assert_int_equal(tune(bench, &at, MIST_CUDA_GEMM_BACKWARD_WEIGHT, true, third_s), 10);
    assert_chosen(bench, &at, 2, 2, true);
    assert_int_equal(tune(bench, &at, MIST_CUDA_GEMM_FORWARD, true, third_s), 0);
    tune(bench, &other, MIST_CUDA_GEMM_BACKWARD_WEIGHT, true, unfused_s);
    assert_chosen(bench, &other, 0, 1, false);
}

static void test_file(void **state)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_FP32, (struct shape){16, 24, 40});
    struct mist_cuda_gemm_config config = {.workspace_bytes = WORKSPACE_BYTES,
                                           .device_name = "another GPU"};
    struct scratch scratch;
    struct mist_err err = {0};
    const char *path;

    scratch_init(&scratch);
    config.path = path = scratch_path(&scratch, "gemm.json");
    open_gemm(bench, path);
    tune(bench, &at, MIST_CUDA_GEMM_FORWARD, true, third_s);
    tune(bench, &at, MIST_CUDA_GEMM_BACKWARD_WEIGHT, true, unfused_s);
    assert_int_equal(mist_cuda_gemm_save(bench->gemm, &err), MIST_OK);
    open_gemm(bench, path);
    assert_chosen(bench, &at, 2, 1, false);
    assert_int_equal(tune(bench, &at, MIST_CUDA_GEMM_FORWARD, true, third_s), 0);
    mist_cuda_gemm_close(bench->gemm);
    assert_int_equal(mist_cuda_gemm_open(&config, &bench->gemm, &err), MIST_OK);
    assert_chosen(bench, &at, 0, 0, true);
    scratch_write(path, "{\"format\": 1, \"gpu\": \"another GPU\", \"products\": []}");
    mist_cuda_gemm_close(bench->gemm);
    assert_int_equal(mist_cuda_gemm_open(&config, &bench->gemm, &err), MIST_ERR_INPUT);
    assert_null(bench->gemm);
    scratch_fini(&scratch);
}

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_forward, setup, teardown),
        cmocka_unit_test_setup_teardown(test_forward_gelu, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_input, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_input_gelu, setup, teardown),
        cmocka_unit_test_setup_teardown(test_backward_weight, setup, teardown),
        cmocka_unit_test_setup_teardown(test_plans_are_kept, setup, teardown),
#ifndef MIST_TEST_ON_GPU
        cmocka_unit_test_setup_teardown(test_epilogues_are_fused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_small_workspace, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failures, setup, teardown),
        cmocka_unit_test_setup_teardown(test_tuning, setup, teardown),
        cmocka_unit_test_setup_teardown(test_file, setup, teardown),
#endif
    };
    const char *seed = getenv("MIST_SEED");

    print_message("# MIST_SEED=%s\n", seed ? seed : "20250917");
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#else

static void test_without_cuda(void **state)
{
    (void)state;
    print_message("# no CUDA headers here\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_without_cuda)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
