/*
 * The CPU's operators that are more than one kernel against those kernels, one after the
 * other: the loss over the whole vocabulary, which goes through its rows some at a time,
 * and linear layers with GELU. The same kernels on the same numbers give the same bits.
 */
#include "tests/unit/test.h"

#include "core/memory.h"
#include "exec/operators/cpu_bf16.h"
#include "exec/operators/operators.h"

#include <math.h>

enum { HIDDEN = 24, VOCAB = 51, N_VALID = 50, GUARD = 16 }; /* one padded column */
enum { LOSS_ROWS = MIST_CATALOG_LOSS_ROWS_CPU };

static const float SCALE = 0.25f;

struct bench {
    struct mist_arena arena;
    void *backend;
    enum mist_dtype dtype;
    uint64_t seed;
};

static void bench_open(struct bench *bench, enum mist_dtype dtype)
{
    struct mist_err err = {0};

    *bench = (struct bench){.dtype = dtype};
    bench->seed = test_seed(20251121);
    mist_arena_init(&bench->arena);
    must(mist_operators_cpu.open(NULL, dtype, 2, &bench->backend, &err), &err);
}

static void bench_close(struct bench *bench)
{
    mist_operators_cpu.close(bench->backend);
    mist_arena_fini(&bench->arena);
}

static double uniform(struct bench *bench)
{
    bench->seed = bench->seed * 6364136223846793005u + 1442695040888963407u;
    return 2.0 * (double)(bench->seed >> 11) * 0x1p-53 - 1.0;
}

static float *new_floats(struct bench *bench, int64_t n)
{
    float *x = mist_arena_alloc(&bench->arena, (size_t)(n + GUARD) * sizeof *x);

    assert_non_null(x);
    for (int64_t i = 0; i < n + GUARD; i++)
        x[i] = (float)uniform(bench);
    return x;
}

/* Random numbers of the bench's format. */
static void *new_elements(struct bench *bench, int64_t n)
{
    float *x = new_floats(bench, n);

    if (bench->dtype == MIST_DTYPE_FP32)
        return x;
    mist_bf16 *rounded =
        mist_arena_alloc(&bench->arena, (size_t)(n + GUARD) * sizeof *rounded);
    assert_non_null(rounded);
    mist_cpu_bf16_from_float(rounded, x, n + GUARD);
    return rounded;
}

static void *copy(struct bench *bench, const void *from, size_t bytes)
{
    void *to = mist_arena_alloc(&bench->arena, bytes);

    assert_non_null(to);
    return memcpy(to, from, bytes);
}

/* ------------------------------------------------------------------------------- loss */

/* What a loss reads and writes; twice, to compare. */
struct loss {
    int64_t rows;
    void *x, *weight, *dx;
    float *losses, *dweight;
    int32_t *targets;
    size_t x_bytes, losses_bytes, dweight_bytes; /* guards included */
};

static struct loss make_loss(struct bench *bench, int64_t rows)
{
    struct loss loss = {.rows = rows};
    size_t element = (size_t)mist_dtype_weight_bytes(bench->dtype);

    loss.x = new_elements(bench, rows * HIDDEN);
    loss.dx = new_elements(bench, rows * HIDDEN);
    loss.weight = new_elements(bench, VOCAB * HIDDEN);
    loss.losses = new_floats(bench, rows);
    loss.dweight = new_floats(bench, VOCAB * HIDDEN);
    loss.x_bytes = (size_t)(rows * HIDDEN + GUARD) * element;
    loss.losses_bytes = (size_t)(rows + GUARD) * sizeof(float);
    loss.dweight_bytes = (size_t)(VOCAB * HIDDEN + GUARD) * sizeof(float);
    loss.targets = mist_arena_alloc(&bench->arena, (size_t)rows * sizeof *loss.targets);
    assert_non_null(loss.targets);
    for (int64_t i = 0; i < rows; i++)
        loss.targets[i] = (int32_t)((uniform(bench) + 1) / 2 * N_VALID);
    return loss;
}

/* The same inputs, and outputs of its own with the same contents. */
static struct loss copy_loss(struct bench *bench, const struct loss *from)
{
    struct loss to = *from;

    to.dx = copy(bench, from->dx, from->x_bytes);
    to.losses = copy(bench, from->losses, from->losses_bytes);
    to.dweight = copy(bench, from->dweight, from->dweight_bytes);
    return to;
}

static void run_operator(struct bench *bench, const struct loss *loss, bool only_loss,
                         bool overwrites)
{
    const struct mist_model model = {.vocab = N_VALID};
    int64_t n_at_once = loss->rows < LOSS_ROWS ? loss->rows : LOSS_ROWS;
    int64_t n_bytes = n_at_once * VOCAB * mist_dtype_weight_bytes(bench->dtype);
    const struct mist_step step = {
        .op = MIST_OP_LINEAR_CROSS_ENTROPY,
        .phase = MIST_PHASE_FORWARD,
        .n_dims = 3,
        .dims = {loss->rows, HIDDEN, VOCAB},
        .workspace_bytes = n_bytes,
    };
    struct mist_step_args args = {
        .step = &step,
        .model = &model,
        .operands = {[MIST_ARG_OUT] = loss->dx,
                     [MIST_ARG_LOSS_LOSSES] = loss->losses,
                     [MIST_ARG_LOSS_TARGETS] = loss->targets,
                     [MIST_ARG_LOSS_X] = loss->x},
        .params = {loss->weight},
        .param_gradients = {loss->dweight},
        .backend = bench->backend,
        .dtype = bench->dtype,
        .chunks = {1, {0, 0}},
        .cp = 1,
        .tp = 1,
        .n_threads = 2,
        .loss_scale = SCALE,
        .only_loss = only_loss,
        .overwrites_gradients = overwrites,
    };

    /* logits of so many rows, and nothing behind them */
    char *workspace = mist_arena_alloc(&bench->arena, (size_t)n_bytes + GUARD);
    assert_non_null(workspace);
    memset(workspace, 0xA5, (size_t)n_bytes + GUARD);
    args.workspace = workspace;
    mist_operators_cpu.run_step(&args);
    for (int i = 0; i < GUARD; i++)
        assert_int_equal((unsigned char)workspace[n_bytes + i], 0xA5);
}

/* Logits of all rows at once. */
static void run_kernels(struct bench *bench, const struct loss *loss)
{
    void *logits = new_elements(bench, loss->rows * VOCAB);

    if (bench->dtype == MIST_DTYPE_FP32) {
        mist_cpu_linear_forward(NULL, logits, loss->x, loss->weight, NULL, NULL,
                                loss->rows, HIDDEN, VOCAB, 2);
        mist_cpu_cross_entropy(false, logits, loss->losses, loss->targets, loss->rows,
                               VOCAB, N_VALID, SCALE, 2);
        mist_cpu_linear_backward_input(NULL, loss->dx, logits, loss->weight, NULL,
                                       loss->rows, HIDDEN, VOCAB, 2);
        mist_cpu_linear_backward_weight(NULL, loss->dweight, NULL, logits, loss->x,
                                        loss->rows, HIDDEN, VOCAB, 2, 0);
        return;
    }
    mist_cpu_linear_forward(bench->backend, logits, loss->x, loss->weight, NULL, NULL,
                            loss->rows, HIDDEN, VOCAB, 2);
    mist_cpu_cross_entropy(true, logits, loss->losses, loss->targets, loss->rows, VOCAB,
                           N_VALID, SCALE, 2);
    mist_cpu_linear_backward_input(bench->backend, loss->dx, logits, loss->weight, NULL,
                                   loss->rows, HIDDEN, VOCAB, 2);
    mist_cpu_linear_backward_weight(bench->backend, loss->dweight, NULL, logits, loss->x,
                                    loss->rows, HIDDEN, VOCAB, 2, 0);
}

/* Relative L2 error of got. */
static double distance(const float *got, const float *expected, int64_t n)
{
    double error2 = 0, norm2 = 0;

    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)expected[i];
        error2 += d * d;
        norm2 += (double)expected[i] * (double)expected[i];
    }
    return sqrt(error2 / norm2);
}

static const float *floats_of(struct bench *bench, const void *x, int64_t n)
{
    if (bench->dtype == MIST_DTYPE_FP32)
        return x;
    float *out = new_floats(bench, n);
    mist_cpu_bf16_to_float(out, x, n);
    return out;
}

/* Up to so many rows the bits are those of the kernels; beyond, sums over rows and the
 * products' blocks differ. */
static void check_loss(struct bench *bench, int64_t rows)
{
    struct loss got = make_loss(bench, rows), expected = copy_loss(bench, &got);
    int64_t n = rows * HIDDEN;

    run_operator(bench, &got, false, false);
    run_kernels(bench, &expected);
    if (rows <= LOSS_ROWS) {
        assert_memory_equal(got.losses, expected.losses, got.losses_bytes);
        assert_memory_equal(got.dx, expected.dx, got.x_bytes);
        assert_memory_equal(got.dweight, expected.dweight, got.dweight_bytes);
        return;
    }
    assert_true(distance(got.losses, expected.losses, rows) < 1e-6);
    assert_true(distance(floats_of(bench, got.dx, n), floats_of(bench, expected.dx, n),
                         n) < (bench->dtype == MIST_DTYPE_FP32 ? 1e-6 : 1e-3));
    assert_true(distance(got.dweight, expected.dweight, VOCAB * HIDDEN) < 1e-6);
    assert_memory_equal(got.losses + rows, expected.losses + rows, GUARD * sizeof(float));
    assert_memory_equal(got.dweight + VOCAB * HIDDEN, expected.dweight + VOCAB * HIDDEN,
                        GUARD * sizeof(float));
}

/* Its losses, and no gradient. */
static void check_only_loss(struct bench *bench, int64_t rows)
{
    struct loss with = make_loss(bench, rows), without = copy_loss(bench, &with);
    struct loss before = copy_loss(bench, &with);

    run_operator(bench, &with, false, false);
    run_operator(bench, &without, true, false);
    assert_memory_equal(without.losses, with.losses, with.losses_bytes);
    assert_memory_equal(without.dx, before.dx, before.x_bytes);
    assert_memory_equal(without.dweight, before.dweight, before.dweight_bytes);
}

/* Overwritten, by its first rows alone, is added to zeros. */
static void check_overwriting(struct bench *bench, int64_t rows)
{
    struct loss added = make_loss(bench, rows), over = copy_loss(bench, &added);

    memset(added.dweight, 0, VOCAB * HIDDEN * sizeof(float));
    memset(over.dweight, 0xFF, VOCAB * HIDDEN * sizeof(float));
    run_operator(bench, &added, false, false);
    run_operator(bench, &over, false, true);
    for (int64_t i = 0; i < VOCAB * HIDDEN; i++)
        assert_true(over.dweight[i] == added.dweight[i]);
}

static void check_losses(enum mist_dtype dtype)
{
    static const int64_t rows[] = {1, 77, LOSS_ROWS, LOSS_ROWS + 1, 2 * LOSS_ROWS + 300};
    struct bench bench;

    bench_open(&bench, dtype);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        check_loss(&bench, rows[i]);
        check_only_loss(&bench, rows[i]);
        check_overwriting(&bench, rows[i]);
    }
    bench_close(&bench);
}

TEST(test_loss)
{
    check_losses(MIST_DTYPE_FP32);
    check_losses(MIST_DTYPE_BF16);
}

/* ------------------------------------------------------------------------------- GELU */

/* rows, n_in = HIDDEN, n_out = VOCAB */
static void check_gelu(bool has_bias, enum mist_activation kind)
{
    enum { ROWS = 37, N = ROWS * VOCAB };
    struct bench bench;
    bench_open(&bench, MIST_DTYPE_FP32);
    float *x = new_floats(&bench, ROWS * HIDDEN), *dy = new_floats(&bench, N);
    float *weight = new_floats(&bench, VOCAB * HIDDEN);
    float *bias = has_bias ? new_floats(&bench, VOCAB) : NULL;
    float *before[2], *y[2], *dx[2];
    for (int i = 0; i < 2; i++) {
        before[i] = new_floats(&bench, N);
        y[i] = new_floats(&bench, N);
        dx[i] = new_floats(&bench, ROWS * HIDDEN);
    }
    struct mist_step step = {.op = MIST_OP_LINEAR_GELU,
                             .phase = MIST_PHASE_FORWARD,
                             .n_dims = 3,
                             .dims = {ROWS, HIDDEN, VOCAB}};
    const struct mist_model model = {
        .family =
            kind == MIST_ACTIVATION_SQUARED_RELU ? MIST_FAMILY_NEMOTRON : MIST_FAMILY_GPT,
        .has_exact_gelu = kind == MIST_ACTIVATION_EXACT_GELU,
    };
    struct mist_step_args args = {.step = &step,
                                  .model = &model,
                                  .operands = {[MIST_ARG_OUT] = y[0],
                                               [MIST_ARG_LINEAR_GELU_BEFORE] = before[0],
                                               [MIST_ARG_LINEAR_GELU_X] = x},
                                  .params = {weight, bias},
                                  .dtype = MIST_DTYPE_FP32,
                                  .n_threads = 2};

    mist_operators_cpu.run_step(&args);
    mist_cpu_linear_forward(NULL, before[1], x, weight, bias, NULL, ROWS, HIDDEN, VOCAB,
                            2);
    mist_cpu_activation_forward(false, kind, y[1], before[1], N, 2);
    assert_memory_equal(before[0], before[1], N * sizeof(float));
    assert_memory_equal(y[0], y[1], N * sizeof(float));

    /* x as what gelu was taken of before this layer */
    step.phase = MIST_PHASE_BACKWARD_INPUT;
    args.operands[MIST_ARG_DX] = dx[0];
    args.operands[MIST_ARG_DY] = dy;
    args.operands[MIST_ARG_DUNARY_X] = x;
    mist_operators_cpu.run_step(&args);
    mist_cpu_linear_backward_input(NULL, dx[1], dy, weight, NULL, ROWS, HIDDEN, VOCAB, 2);
    mist_cpu_activation_backward(false, kind, dx[1], dx[1], x, ROWS * HIDDEN, 2);
    assert_memory_equal(dx[0], dx[1], ROWS * HIDDEN * sizeof(float));
    bench_close(&bench);
}

TEST(test_gelu)
{
    for (int i = 0; i < 2 * MIST_N_ACTIVATIONS; i++)
        check_gelu(i % 2, (enum mist_activation)(i / 2));
}

TEST_MAIN(NULL, NULL)
