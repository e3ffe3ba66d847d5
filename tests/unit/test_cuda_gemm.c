/*
 * The CUDA backend's products of linear layers against the CPU's: all kinds, both number
 * formats, fused and not, added up twice; and how plans are kept, what happens to what
 * cuBLASLt refuses, and how failures come out. Without a GPU cuBLASLt is a stand-in
 * (tests/emulation/cublaslt.c); what needs its knobs is not run on a GPU.
 */
#include "exec/cuda/gemm.h"

#include "exec/operators/cpu_bf16.h"
#include "exec/operators/cpu_kernels.h"
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

/* Of device memory: n elements behind offset ones, and their values where they
 * are known. */
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

    memset(&bench, 0, sizeof bench);
    mist_arena_init(&bench.help.arena);
    bench.help.seed = test_seed(20250917);
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

static void open_gemm(struct bench *bench)
{
    struct mist_err err = {0};

    mist_cuda_gemm_close(bench->gemm);
    must(mist_cuda_gemm_open(WORKSPACE_BYTES, &bench->gemm, &err), &err);
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

        mist_cpu_bf16_from_float(rounded, values, n);
        mist_cpu_bf16_to_float(values, rounded, n);
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
        mist_cpu_bf16_to_float(values, bits, t->n);
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
        open_gemm(bench);
        for (int i = 0; i < N_SHAPES; i++)
            for (int dtype = 0; dtype < MIST_N_RUN_DTYPES; dtype++) {
                struct mist_cuda_linear at =
                    linear_of(bench, (enum mist_dtype)dtype, shapes[i]);

                check_one(bench, &at);
            }
    }
}

/* ----------------------------------------------------------------------- the products */

static void check_forward(struct bench *bench, const struct mist_cuda_linear *at)
{
    int64_t n = at->rows * at->n_out;
    struct tensor x = random_tensor(bench, at->dtype, at->rows * at->n_in);
    struct tensor weight = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor bias = random_tensor(bench, at->dtype, at->n_out);
    struct tensor residual = random_tensor(bench, at->dtype, n);
    float *expected = help_poisoned(&bench->help, n);

    for (int i = 0; i < 4; i++) {
        struct mist_cuda_linear with = *at;
        struct tensor y = output(bench, at->dtype, n);
        bool has_bias = i % 2, adds = i / 2;

        with.residual = adds ? residual.device : NULL;
        mist_cuda_gemm_forward(bench->gemm, &with, y.device, NULL, x.device,
                               weight.device, has_bias ? bias.device : NULL);
        mist_cpu_linear_forward(
            NULL, expected, x.values, weight.values, has_bias ? bias.values : NULL,
            adds ? residual.values : NULL, at->rows, at->n_in, at->n_out, 1);
        check(bench, &y, expected, adds ? "forward with a residual" : "forward");
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

        mist_cuda_gemm_forward(bench->gemm, at, y.device, before.device, x.device,
                               weight.device, has_bias ? bias.device : NULL);
        mist_cpu_linear_forward(NULL, expected, x.values, weight.values,
                                has_bias ? bias.values : NULL, NULL, at->rows, at->n_in,
                                at->n_out, 1);
        check(bench, &before, expected, "before the GELU");
        mist_cpu_activation_forward(false, at->activation, expected, expected, n, 1);
        check(bench, &y, expected, "GELU");
    }
}

static void check_backward_input(struct bench *bench, const struct mist_cuda_linear *at)
{
    int64_t n = at->rows * at->n_in;
    struct tensor dy = random_tensor(bench, at->dtype, at->rows * at->n_out);
    struct tensor weight = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor residual = random_tensor(bench, at->dtype, n);
    float *expected = help_poisoned(&bench->help, n);

    for (int adds = 0; adds < 2; adds++) {
        struct mist_cuda_linear with = *at;
        struct tensor dx = output(bench, at->dtype, n);

        with.residual = adds ? residual.device : NULL;
        mist_cuda_gemm_backward_input(bench->gemm, &with, dx.device, dy.device,
                                      weight.device, NULL);
        mist_cpu_linear_backward_input(NULL, expected, dy.values, weight.values,
                                       adds ? residual.values : NULL, at->rows, at->n_in,
                                       at->n_out, 1);
        check(bench, &dx, expected, "backward_input");
    }
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

    mist_cpu_linear_backward_input(NULL, expected, dy.values, weight.values, NULL,
                                   at->rows, at->n_in, at->n_out, 1);
    mist_cpu_activation_backward(false, at->activation, expected, expected, before.values,
                                 n, 1);
    mist_cuda_gemm_backward_input(bench->gemm, at, dx.device, dy.device, weight.device,
                                  before.device);
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
    mist_cpu_bf16_from_float(rounded, t->values, t->n);
    mist_cpu_bf16_to_float(t->values, rounded, t->n);
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
        mist_cpu_linear_backward_weight(NULL, sums, has_bias ? bias_sums : NULL,
                                        dy.values, x.values, at->rows, at->n_in,
                                        at->n_out, 1, 0);
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

TEST_WITH(test_forward, setup, teardown)
{
    for_all(*state, check_forward);
}

static void check_activations(struct bench *bench, const struct mist_cuda_linear *at)
{
    struct mist_cuda_linear other = *at;

    if (at->rows * at->n_in == 1) /* beside the slope's zero one number says nothing */
        return;
    for (int i = 0; i < MIST_N_ACTIVATIONS; i++) {
        other.activation = (enum mist_activation)i;
        check_forward_gelu(bench, &other);
        check_backward_input_gelu(bench, &other);
    }
}

TEST_WITH(test_activations, setup, teardown)
{
    for_all(*state, check_activations);
}

TEST_WITH(test_forward_gelu, setup, teardown)
{
    for_all(*state, check_forward_gelu);
}

TEST_WITH(test_backward_input, setup, teardown)
{
    for_all(*state, check_backward_input);
}

TEST_WITH(test_backward_input_gelu, setup, teardown)
{
    for_all(*state, check_backward_input_gelu);
}

TEST_WITH(test_backward_weight, setup, teardown)
{
    for_all(*state, check_backward_weight);
}

/* -------------------------------------------------------------------------- the plans */

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

    mist_cuda_gemm_forward(bench->gemm, at, y.device, NULL, x.device, w.device, b.device);
    mist_cuda_gemm_backward_input(bench->gemm, at, dx.device, y.device, w.device, NULL);
    mist_cuda_gemm_backward_weight(bench->gemm, at, dw.device, db.device, y.device,
                                   x.device);
    mist_cpu_linear_forward(NULL, expected, x.values, w.values, b.values, NULL, at->rows,
                            at->n_in, at->n_out, 1);
    check(bench, &y, expected, "forward");
}

/* Aligned worse than the result it is added to: an algorithm for the worse. */
TEST_WITH(test_residual_alignment, setup, teardown)
{
    enum { ROWS = 16, N_IN = 32, N_OUT_OF = 48, N = ROWS * N_OUT_OF };
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){ROWS, N_IN, N_OUT_OF});
    struct tensor x = random_tensor(bench, at.dtype, ROWS * N_IN);
    struct tensor w = random_tensor(bench, at.dtype, N_OUT_OF * N_IN);
    struct tensor residual =
        upload(bench, at.dtype, help_random(&bench->help, N, 1), N, 1);
    struct tensor y = output(bench, at.dtype, N);
    float *expected = help_poisoned(&bench->help, N);

    open_gemm(bench);
    at.residual = residual.device;
    mist_cuda_gemm_forward(bench->gemm, &at, y.device, NULL, x.device, w.device, NULL);
    mist_cpu_linear_forward(NULL, expected, x.values, w.values, NULL, residual.values,
                            ROWS, N_IN, N_OUT_OF, 1);
    check(bench, &y, expected, "forward with a residual");
}

TEST_WITH(test_plans_are_kept, setup, teardown)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){16, 32, 48});
    struct mist_cuda_gemm_counts first, again, moved;

    open_gemm(bench);
    run_each(bench, &at, 0);
    first = mist_cuda_gemm_counts(bench->gemm);
    assert_int_equal(first.n_products, 3);
#ifndef MIST_TEST_ON_GPU
    int64_t n_heuristics = mist_test_cublaslt.n_heuristics;
#endif
    run_each(bench, &at, 0);
    run_each(bench, &at, 8); /* 16 bytes further: no other alignment */
    again = mist_cuda_gemm_counts(bench->gemm);
    assert_int_equal(again.n_products, first.n_products);
#ifndef MIST_TEST_ON_GPU
    assert_int_equal(mist_test_cublaslt.n_heuristics, n_heuristics);
#endif
    run_each(bench, &at, 3); /* an alignment that the first plans don't fit */
    moved = mist_cuda_gemm_counts(bench->gemm);
    assert_int_equal(moved.n_products, first.n_products + 3);
    at.rows = 15;
    run_each(bench, &at, 0);
    assert_int_equal(mist_cuda_gemm_counts(bench->gemm).n_products, moved.n_products + 3);
}

/* ------------------------------------------------------------------- chosen by time */

static int n_timed;

static double count_times(void *context, mist_cuda_stream stream,
                          void (*launch)(void *arg), void *arg)
{
    n_timed++;
    return mist_cuda_gemm_clock_events.time(context, stream, launch, arg);
}

/* Whatever is found fastest is right, and the next process makes the same of the file. */
TEST_WITH(test_chosen_products, setup, teardown)
{
    struct bench *bench = *state;
    struct mist_cuda_gemm_clock clock = mist_cuda_gemm_clock_events;
    struct mist_cuda_gemm_tuning tuning = {.device_name = "a GPU",
                                           .memory_bytes = 1 << 20,
                                           .memory = mist_test_device_alloc(1 << 20),
                                           .budget_s = 1000,
                                           .clock = &clock};
    struct scratch scratch;
    struct mist_err err = {0};

    scratch_init(&scratch);
    tuning.path = scratch_path(&scratch, "choices.csv");
    clock.time = count_times;
    for (int process = 0; process < 2; process++) {
        open_gemm(bench);
        n_timed = 0;
        for (int i = 0; i < 4 * MIST_CUDA_N_GEMM_PRODUCTS; i++) {
            struct mist_cuda_linear at =
                linear_of(bench, i % 2 ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32,
                          (struct shape){64, 48, 96});

            at.gradient_dtype = i / 2 % 2 ? at.dtype : MIST_DTYPE_FP32;
            mist_cuda_gemm_expect(bench->gemm, &at, (enum mist_cuda_gemm_product)(i / 4));
        }
        if (mist_cuda_gemm_tune(bench->gemm, NULL, bench->workspace, &tuning, &err) !=
            MIST_OK)
            fail_msg("%s", err.message);
        assert_true(process == 0 ? n_timed > 0 : n_timed == 0);
        struct mist_cuda_gemm_counts counts = mist_cuda_gemm_counts(bench->gemm);
        assert_int_equal(counts.n_products, 2 * MIST_CUDA_N_GEMM_PRODUCTS + 2);
        assert_int_equal(counts.n_timed + counts.n_refused, counts.n_products);
        for (int dtype = 0; dtype < MIST_N_RUN_DTYPES; dtype++) {
            struct mist_cuda_linear at =
                linear_of(bench, (enum mist_dtype)dtype, (struct shape){64, 48, 96});

            check_forward(bench, &at);
            check_forward_gelu(bench, &at);
            check_backward_input(bench, &at);
            check_backward_input_gelu(bench, &at);
            check_backward_weight(bench, &at);
        }
        assert_int_equal(mist_cuda_gemm_counts(bench->gemm).n_products,
                         counts.n_products);
        char text[300];
        mist_cuda_gemm_describe(bench->gemm, text, sizeof text);
        print_message("# %s\n", text);
    }
    mist_test_device_free(tuning.memory);
    scratch_visit(&scratch, 1);
    assert_int_equal(rmdir(scratch.folder), 0);
}

/* ---------------------------------------------------- what needs the stand-in's knobs */

#ifndef MIST_TEST_ON_GPU

static const struct {
    enum mist_cuda_gemm_product product;
    uint32_t epilogue;
    uint32_t behind; /* what runs where that is refused, */
    const char *name;
    bool overwrites;
} fused[] = {
    {MIST_CUDA_FORWARD_BIAS, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_DEFAULT, "BIAS",
     false},
    {MIST_CUDA_FORWARD_GELU, CUBLASLT_EPILOGUE_GELU_AUX, CUBLASLT_EPILOGUE_DEFAULT,
     "GELU_AUX", false},
    {MIST_CUDA_FORWARD_BIAS_GELU, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, CUBLASLT_EPILOGUE_BIAS,
     "GELU_AUX_BIAS", false},
    {MIST_CUDA_BACKWARD_INPUT_GELU, CUBLASLT_EPILOGUE_DGELU, CUBLASLT_EPILOGUE_DEFAULT,
     "DGELU", false},
    {MIST_CUDA_BACKWARD_WEIGHT_BIAS, CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_DEFAULT,
     "BGRADB", false},
    {MIST_CUDA_BACKWARD_WEIGHT_BIAS, CUBLASLT_EPILOGUE_BGRADB, CUBLASLT_EPILOGUE_DEFAULT,
     "BGRADB", true},
};
enum { N_FUSED = sizeof fused / sizeof *fused, N_OUT = 2, N_CALLS = 3 };

/* The same numbers at every call with the same seed; out: what is written,
 * two tensors. */
static void run_fused(struct bench *bench, const struct mist_cuda_linear *at,
                      enum mist_cuda_gemm_product product, struct tensor *out)
{
    struct tensor x = random_tensor(bench, at->dtype, at->rows * at->n_in);
    struct tensor y = random_tensor(bench, at->dtype, at->rows * at->n_out);
    struct tensor w = random_tensor(bench, at->dtype, at->n_out * at->n_in);
    struct tensor b = random_tensor(bench, at->dtype, at->n_out);
    struct tensor dw = random_tensor(bench, at->gradient_dtype, at->n_out * at->n_in);
    struct tensor db = random_tensor(bench, at->gradient_dtype, at->n_out);
    struct tensor aux = random_tensor(bench, at->dtype, at->rows * at->n_out);

    for (int i = 0; i < N_CALLS; i++)
        switch (product) {
        case MIST_CUDA_FORWARD_BIAS:
            mist_cuda_gemm_forward(bench->gemm, at, y.device, NULL, x.device, w.device,
                                   b.device);
            break;
        case MIST_CUDA_FORWARD_GELU:
        case MIST_CUDA_FORWARD_BIAS_GELU:
            mist_cuda_gemm_forward(
                bench->gemm, at, y.device, aux.device, x.device, w.device,
                product == MIST_CUDA_FORWARD_BIAS_GELU ? b.device : NULL);
            break;
        case MIST_CUDA_BACKWARD_INPUT_GELU:
            mist_cuda_gemm_backward_input(bench->gemm, at, aux.device, y.device, w.device,
                                          x.device);
            break;
        default:
            mist_cuda_gemm_backward_weight(bench->gemm, at, dw.device, db.device,
                                           y.device, x.device);
        }
    bool is_weight = product == MIST_CUDA_BACKWARD_WEIGHT_BIAS;
    out[0] = is_weight ? dw : y;
    out[1] = is_weight ? db : aux;
}

/* A shape whose x is as large as its y, so that buffers can stand for each other. */
static struct mist_cuda_linear square_of(struct bench *bench, int i)
{
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){16, 32, 32});

    at.overwrites = fused[i].overwrites;
    return at;
}

TEST_WITH(test_epilogues_are_fused, setup, teardown)
{
    struct bench *bench = *state;
    struct tensor out[N_OUT];
    char text[128], small[9];

    open_gemm(bench);
    for (int i = 0; i < N_FUSED; i++) {
        struct mist_cuda_linear at = square_of(bench, i);

        run_fused(bench, &at, fused[i].product, out);
        assert_int_equal(mist_test_cublaslt.last_epilogue, fused[i].epilogue);
    }
    assert_int_equal(mist_test_cublaslt.last_schemes, CUBLASLT_REDUCTION_SCHEME_NONE);
    mist_cuda_gemm_forward(
        bench->gemm,
        &(struct mist_cuda_linear){
            .workspace = bench->workspace, .rows = 1, .n_in = 1, .n_out = 1},
        out[0].device, NULL, out[0].device, out[0].device, NULL);
    mist_cuda_gemm_describe(bench->gemm, text, sizeof text);
    assert_non_null(strstr(text, ": 6 products, 1 plain, 5 fused; 0 chosen by time"));
    assert_int_equal(strncmp(text, "cuBLASLt ", 9), 0);
    mist_cuda_gemm_describe(bench->gemm, small, sizeof small);
    assert_string_equal(small, "cuBLASLt");
    assert_int_equal(mist_cuda_gemm_counts(bench->gemm).n_fallbacks, 0);
}

/* Refused when asked for an algorithm, or at the first launch, with any of the codes: the
 * same numbers, and never tried again. */
TEST_WITH(test_refused_epilogues, setup, teardown)
{
    static const cublasStatus_t codes[] = {CUBLAS_STATUS_NOT_SUPPORTED,
                                           CUBLAS_STATUS_INVALID_VALUE,
                                           CUBLAS_STATUS_ARCH_MISMATCH};
    struct bench *bench = *state;
    uint64_t seed = bench->help.seed;
    char text[200], expected[64];

    for (int i = 0; i < N_FUSED; i++) {
        struct mist_cuda_linear at = square_of(bench, i);
        struct tensor plain[N_OUT], refused[N_OUT];

        mist_test_cublaslt.refuses = fused[i].epilogue;
        open_gemm(bench);
        bench->help.seed = seed;
        run_fused(bench, &at, fused[i].product, plain);
        assert_int_equal(mist_test_cublaslt.last_epilogue, fused[i].behind);
        mist_test_cublaslt.refuses = 0;
        for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
            mist_test_cublaslt.launch_refuses = fused[i].epilogue;
            mist_test_cublaslt.launch_status = (int)codes[c];
            mist_test_cublaslt.n_launches_refused = 1;
            open_gemm(bench);
            bench->help.seed = seed;
            run_fused(bench, &at, fused[i].product, refused);
            assert_int_equal(mist_test_cublaslt.last_epilogue, fused[i].behind);
            for (int k = 0; k < N_OUT; k++) {
                help_assert_same_bits(values_of(bench, &refused[k]),
                                      values_of(bench, &plain[k]), plain[k].n);
                assert_true(
                    mist_test_device_guard_is_intact(refused[k].base, refused[k].bytes));
            }
            struct mist_cuda_gemm_counts counts = mist_cuda_gemm_counts(bench->gemm);
            assert_int_equal(counts.n_products, 1);
            assert_int_equal(counts.n_fused, 0);
            assert_int_equal(counts.n_refused, 1);
            assert_int_equal(counts.n_fallbacks, N_CALLS);
            mist_cuda_gemm_describe(bench->gemm, text, sizeof text);
            snprintf(expected, sizeof expected,
                     "1 products, 0 plain, 0 fused, 1 not "
                     "fused (%s refused);",
                     fused[i].name);
            assert_non_null(strstr(text, expected));
        }
    }
}

/* What is no refusal is an error, also of a fused product; a plain one has no
 * other way. */
TEST_WITH(test_errors_are_no_refusals, setup, teardown)
{
    static const struct {
        cublasStatus_t code;
        bool is_plain;
    } cases[] = {{CUBLAS_STATUS_INTERNAL_ERROR, false},
                 {CUBLAS_STATUS_EXECUTION_FAILED, false},
                 {CUBLAS_STATUS_NOT_SUPPORTED, true}};
    struct bench *bench = *state;
    struct mist_cuda_linear at = square_of(bench, 0);
    struct tensor x = random_tensor(bench, MIST_DTYPE_BF16, 32 * 32);
    struct mist_err err = {0};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mist_test_cublaslt.launch_refuses =
            cases[i].is_plain ? CUBLASLT_EPILOGUE_DEFAULT : CUBLASLT_EPILOGUE_BIAS;
        mist_test_cublaslt.launch_status = (int)cases[i].code;
        mist_test_cublaslt.n_launches_refused = 1;
        open_gemm(bench);
        mist_cuda_gemm_forward(bench->gemm, &at, x.device, NULL, x.device, x.device,
                               cases[i].is_plain ? NULL : x.device);
        assert_int_equal(mist_cuda_gemm_status(bench->gemm, &err), MIST_ERR_RUN);
        assert_non_null(strstr(err.message, "rows=16;n_in=32;n_out=32: the product"));
        assert_int_equal(mist_cuda_gemm_counts(bench->gemm).n_fallbacks, 0);
    }
}

/* Column sums that don't fit the workspace are not fused. */
TEST_WITH(test_small_workspace, setup, teardown)
{
    struct bench *bench = *state;
    struct mist_err err;

    for (int64_t n_out = 64; n_out <= 65; n_out++) {
        struct mist_cuda_linear at =
            linear_of(bench, MIST_DTYPE_BF16, (struct shape){9, 7, n_out});

        mist_cuda_gemm_close(bench->gemm);
        bench->gemm = NULL;
        assert_int_equal(mist_cuda_gemm_open(256, &bench->gemm, &err), MIST_OK);
        check_backward_weight(bench, &at);
        assert_int_equal(mist_test_cublaslt.last_epilogue,
                         n_out == 64 ? CUBLASLT_EPILOGUE_BGRADB
                                     : CUBLASLT_EPILOGUE_DEFAULT);
    }
}

/* The N-th call of the library fails, for all N. */
TEST_WITH(test_failures, setup, teardown)
{
    struct bench *bench = *state;
    struct mist_cuda_linear at =
        linear_of(bench, MIST_DTYPE_BF16, (struct shape){4, 8, 16});
    struct tensor x = random_tensor(bench, MIST_DTYPE_FP32, 16 * 16);
    struct tensor dw = random_tensor(bench, MIST_DTYPE_FP32, 16 * 8);
    struct mist_err err;
    int64_t n = 0, n_failed = 0, n_matmuls;
    enum mist_status status, later;

    do {
        mist_test_cublaslt.fail_at = ++n;
        status = mist_cuda_gemm_open(WORKSPACE_BYTES, &bench->gemm, &err);
        if (status != MIST_OK) {
            assert_null(bench->gemm);
            assert_int_equal(mist_test_cublaslt.n_alive, 0);
            n_failed++;
            continue;
        }
        mist_cuda_gemm_forward(bench->gemm, &at, x.device, NULL, x.device, dw.device,
                               x.device);
        status = mist_cuda_gemm_status(bench->gemm, &err);
        if (status != MIST_OK) {
            n_failed++;
            assert_non_null(strstr(err.message, "forward_bias of a bf16"));
            assert_non_null(strstr(err.message, "rows=4;n_in=8;n_out=16"));
            assert_non_null(strstr(err.message, "CUBLAS_STATUS_"));
            n_matmuls = mist_test_cublaslt.n_matmuls;
            mist_cuda_gemm_backward_weight(bench->gemm, &at, dw.device, dw.device,
                                           x.device, x.device);
            assert_int_equal(mist_test_cublaslt.n_matmuls, n_matmuls);
            later = mist_cuda_gemm_status(bench->gemm, &err);
            assert_int_equal(later, status);
            assert_non_null(strstr(err.message, "forward_bias of a bf16"));
        }
        mist_cuda_gemm_close(bench->gemm);
        bench->gemm = NULL;
        assert_int_equal(mist_test_cublaslt.n_alive, 0);
    } while (mist_test_cublaslt.fail_at == 0); /* it has failed */
    assert_true(n_failed > 10);
}

#endif

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("no CUDA headers here")

#endif
