/*
 * Every step of the catalogue's programs by the CUDA backend's operators and by the
 * CPU's, on the same random operands: all of them must come out alike, and what a step
 * does not write must stay. Then what happens outside of programs, and failures.
 */
#include "tests/unit/test.h"

#if __has_include(<cublasLt.h>)

#include "core/memory.h"
#include "exec/cuda/context.h"
#include "exec/cuda/operators.h"
#include "exec/operators/cpu_bf16.h"
#include "sim/model/catalog.h"
#include "tests/unit/tiny_models.h"

#include <math.h>

#ifndef MIST_TEST_ON_GPU
#include "tests/emulation/cublaslt.h"
#include "tests/emulation/cudart.h"
#endif

enum { SEQ = 40, BATCH = 2, GUARD_BYTES = 64, GUARD = 0x5A, MAX_BUFFERS = 16 };

/* One operand: the same contents for either backend. */
struct buffer {
    void *cpu, *host; /* the CPU's; a copy of the device's */
    void *cuda;       /* device memory */
    int64_t n;        /* elements */
    size_t element_bytes;
    bool is_float;
};

struct bench {
    enum mist_dtype gradient_dtype;
    struct mist_arena arena;
    struct mist_device *device;
    void *cpu, *cuda; /* backends */
    enum mist_dtype dtype;
    uint64_t seed;
    struct buffer buffers[MAX_BUFFERS]; /* of the step */
    int n_buffers;
    char *at; /* next free device memory */
};

static double uniform(struct bench *bench)
{
    bench->seed = bench->seed * 6364136223846793005u + 1442695040888963407u;
    return 2.0 * (double)(bench->seed >> 11) * 0x1p-53 - 1.0;
}

static void *allocate(struct bench *bench, size_t bytes)
{
    void *memory = mist_arena_alloc(&bench->arena, bytes);

    assert_non_null(memory);
    return memory;
}

static void bench_open(struct bench *bench, enum mist_dtype dtype)
{
    struct mist_device_config config = {.arena_bytes = {16 << 20, 4096},
                                        .result_bytes = 4096,
                                        .threads = 1,
                                        .attention = MIST_ATTENTION_OWN};
    struct mist_err err = {0};

    *bench = (struct bench){.dtype = dtype};
    bench->seed = test_seed(20251103);
    mist_arena_init(&bench->arena);
    must(mist_cuda_device_open(&config, &bench->device, &err), &err);
    must(mist_operators_cuda.open(bench->device, dtype, 0, &bench->cuda, &err), &err);
    must(mist_operators_cpu.open(NULL, dtype, 1, &bench->cpu, &err), &err);
    mist_device_reset_events(bench->device, 1);
}

static void bench_close(struct bench *bench)
{
    mist_operators_cuda.close(bench->cuda);
    mist_operators_cpu.close(bench->cpu);
    mist_device_close(bench->device);
    mist_arena_fini(&bench->arena);
}

/* --------------------------------------------------------------------------- operands */

/* Fresh device memory, guarded, with contents[bytes]; aligned to 64. */
static void *to_device(struct bench *bench, const void *contents, size_t bytes)
{
    char *all = allocate(bench, bytes + GUARD_BYTES);
    void *to = bench->at;
    struct mist_err err = {0};

    memcpy(all, contents, bytes);
    memset(all + bytes, GUARD, GUARD_BYTES);
    must(mist_device_write(bench->device, to, all, (int64_t)(bytes + GUARD_BYTES), &err),
         &err);
    bench->at += mist_align_up((int64_t)(bytes + GUARD_BYTES), 64);
    return to;
}

/* A new operand of random numbers around center. */
static struct buffer *add_floats(struct bench *bench, enum mist_dtype dtype, int64_t n,
                                 double center, double size)
{
    struct buffer *buffer = &bench->buffers[bench->n_buffers++];
    float *values = allocate(bench, (size_t)n * sizeof *values);

    assert_true(bench->n_buffers <= MAX_BUFFERS);
    for (int64_t i = 0; i < n; i++)
        values[i] = (float)(center + size * uniform(bench));
    *buffer = (struct buffer){.cpu = values,
                              .n = n,
                              .element_bytes = (size_t)mist_dtype_weight_bytes(dtype),
                              .is_float = true};
    if (dtype == MIST_DTYPE_BF16) {
        buffer->cpu = allocate(bench, (size_t)n * 2);
        mist_cpu_bf16_from_float(buffer->cpu, values, n);
    }
    buffer->cuda = to_device(bench, buffer->cpu, (size_t)n * buffer->element_bytes);
    return buffer;
}

static struct buffer *add_tokens(struct bench *bench, int64_t n, int32_t vocab)
{
    struct buffer *buffer = &bench->buffers[bench->n_buffers++];
    int32_t *ids = allocate(bench, (size_t)n * sizeof *ids);

    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)((uniform(bench) + 1) / 2 * vocab);
    *buffer = (struct buffer){.cpu = ids, .n = n, .element_bytes = sizeof *ids};
    buffer->cuda = to_device(bench, ids, (size_t)n * sizeof *ids);
    return buffer;
}

/* Which operands are fp32 whatever the format, and which tokens, by MIST_ARG_*: bits. */
static unsigned fp32_operands(enum mist_op op, bool is_forward)
{
    switch (op) {
    case MIST_OP_LAYER_NORM:
    case MIST_OP_RMS_NORM:
        return is_forward ? 1u << MIST_ARG_NORM_STATS : 1u << MIST_ARG_DNORM_STATS;
    case MIST_OP_RESIDUAL_LAYER_NORM:
    case MIST_OP_RESIDUAL_RMS_NORM:
        return 1u << MIST_ARG_RNORM_STATS;
    case MIST_OP_ATTENTION:
        return is_forward ? 1u << MIST_ARG_ATTENTION_LSE : 1u << MIST_ARG_DATTENTION_LSE;
    case MIST_OP_ROPE:
        return 1u << MIST_ARG_ROPE_TABLE;
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        return 1u << MIST_ARG_LOSS_LOSSES;
    case MIST_OP_CROSS_ENTROPY_STATS:
        return 1u << MIST_ARG_OUT;
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return 1u << MIST_ARG_LOSS_LOSSES | 1u << MIST_ARG_LOSS_STATS;
    default:
        return 0;
    }
}

static unsigned token_operands(enum mist_op op)
{
    switch (op) {
    case MIST_OP_EMBEDDING:
        return 1u << MIST_ARG_EMBEDDING_TOKENS; /* MIST_ARG_DW_X is the same */
    case MIST_OP_LINEAR_CROSS_ENTROPY:
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return 1u << MIST_ARG_LOSS_TARGETS;
    case MIST_OP_CROSS_ENTROPY_STATS:
        return 1u << MIST_ARG_STATS_TARGETS;
    default:
        return 0;
    }
}

/* Gives both backends' arguments of a step operands of their own. */
static void make_operands(struct bench *bench, const struct mist_layer_layout *layout,
                          const struct mist_model *model, struct mist_step_args *cpu,
                          struct mist_step_args *cuda)
{
    const struct mist_step *step = cpu->step;
    bool is_forward = step->phase == MIST_PHASE_FORWARD;

    for (int i = 0; i < MIST_MAX_OPERANDS; i++) {
        if (step->operands[i] < 0)
            continue;
        int64_t bytes = layout->tensors[step->operands[i]].bytes;
        bool is_fp32 = fp32_operands(step->op, is_forward) >> i & 1;
        enum mist_dtype dtype = is_fp32 ? MIST_DTYPE_FP32 : bench->dtype;
        /* statistics: positive, as deviations and sums of exp are; lse: large enough */
        struct buffer *buffer =
            token_operands(step->op) >> i & 1
                ? add_tokens(bench, bytes / 4, model->vocab)
                : add_floats(bench, dtype, bytes / mist_dtype_weight_bytes(dtype),
                             is_fp32 ? 3 : 0, 1);
        cpu->operands[i] = buffer->cpu;
        cuda->operands[i] = buffer->cuda;
    }
    for (int i = 0; i < 2; i++) {
        if (step->params[i] < 0)
            continue;
        int64_t n = layout->params[step->params[i]].n_elements;
        struct buffer *weight = add_floats(bench, bench->dtype, n, 0, 1);
        cpu->params[i] = weight->cpu;
        cuda->params[i] = weight->cuda;
        struct buffer *gradient = add_floats(bench, cpu->gradient_dtype, n, 0, 1);
        cpu->param_gradients[i] = gradient->cpu;
        cuda->param_gradients[i] = gradient->cuda;
    }
    cpu->workspace = allocate(bench, (size_t)cpu->step->workspace_bytes + 1);
    if (cuda->step->workspace_bytes > 0)
        cuda->workspace =
            to_device(bench, allocate(bench, (size_t)cuda->step->workspace_bytes),
                      (size_t)cuda->step->workspace_bytes);
}

static void compare(struct bench *bench, const struct buffer *buffer, const char *what)
{
    size_t bytes = (size_t)buffer->n * buffer->element_bytes;
    unsigned char *got = allocate(bench, bytes + GUARD_BYTES);
    double error2 = 0, norm2 = 0;
    struct mist_err err = {0};

    must(mist_device_read(bench->device, got, buffer->cuda,
                          (int64_t)(bytes + GUARD_BYTES), &err),
         &err);
    for (size_t i = bytes; i < bytes + GUARD_BYTES; i++)
        assert_int_equal(got[i], GUARD);
    if (!buffer->is_float) {
        assert_memory_equal(got, buffer->cpu, bytes);
        return;
    }
    for (int64_t i = 0; i < buffer->n; i++) {
        float a, b;
        if (buffer->element_bytes == 2) {
            mist_cpu_bf16_to_float(&a, (const mist_bf16 *)(const void *)got + i, 1);
            mist_cpu_bf16_to_float(&b, (const mist_bf16 *)buffer->cpu + i, 1);
        } else {
            a = ((const float *)(const void *)got)[i];
            b = ((const float *)buffer->cpu)[i];
        }
        if (a == b || (isnan(a) && isnan(b))) /* infinities, too */
            a = b = isfinite(b) ? b : 0;
        error2 += ((double)a - (double)b) * ((double)a - (double)b);
        norm2 += (double)b * (double)b;
    }
    if (!(sqrt(error2) <= (bench->dtype == MIST_DTYPE_BF16 ? 1e-2 : 1e-5) * sqrt(norm2)))
        fail_msg("%s, operand %d: relative error %g", what,
                 (int)(buffer - bench->buffers), sqrt(error2 / norm2));
}

/* ------------------------------------------------------------------------------ steps */

/* Of a CPU and of a GPU: the same steps, with workspaces of their own. */
static struct mist_layer_layout layouts[2];

static void lay_out(const struct mist_model *model, enum mist_layer_kind kind,
                    struct mist_layer_shape shape)
{
    struct mist_err err;

    for (int i = 0; i < 2; i++) {
        shape.threads = 1 - i;
        must(mist_layer_layout_make(model, kind, shape, &layouts[i], &err), &err);
    }
}

static void check_step(struct bench *bench, const struct mist_model *model,
                       bool is_backward, int i_step, bool only_loss, bool overwrites)
{
    const struct mist_layer_layout *layout = &layouts[0];
    const struct mist_step *step =
        is_backward ? &layout->backward[i_step] : &layout->forward[i_step];
    int32_t cp = layout->shape.cp > 1 ? layout->shape.cp : 1;
    struct mist_step_args cpu = {.step = step,
                                 .model = model,
                                 .backend = bench->cpu,
                                 .dtype = bench->dtype,
                                 .gradient_dtype = bench->gradient_dtype,
                                 .chunks = mist_chunks_of(layout->shape.seq, cp, cp - 1),
                                 .cp = cp,
                                 .i_cp = cp - 1,
                                 .tp = layout->shape.tp,
                                 .i_tp = layout->shape.tp - 1,
                                 .n_threads = 1,
                                 .loss_scale = 0.5f,
                                 .only_loss = only_loss,
                                 .overwrites_gradients = overwrites};
    struct mist_step_args cuda = cpu;
    struct mist_err err = {0};
    char shape[128], what[256];

    if (mist_op_is_communication(step->op))
        return;
    cuda.step = is_backward ? &layouts[1].backward[i_step] : &layouts[1].forward[i_step];
    bench->n_buffers = 0;
    bench->at = mist_device_arena(bench->device, MIST_ARENA_DEVICE);
    make_operands(bench, layout, model, &cpu, &cuda);
    cuda.backend = bench->cuda;
    mist_operators_cpu.run_step(&cpu);
    mist_operators_cuda.run_step(&cuda);
    must(mist_device_synchronize(bench->device, &err), &err);
    snprintf(what, sizeof what, "%s %s %s", mist_op_name(step->op),
             mist_phase_words[step->phase],
             mist_op_shape_text(step->op, step->dims, shape, sizeof shape));
    for (int i = 0; i < bench->n_buffers; i++)
        compare(bench, &bench->buffers[i], what);
}

static void check_catalog(enum mist_family family, enum mist_layer_variant variant,
                          int32_t cp, enum mist_dtype dtype,
                          enum mist_dtype gradient_dtype)
{
    struct mist_model model = mist_tiny_model(family, 2);
    struct mist_err err = {0};
    struct bench bench;

    if (test_is_left_out())
        return;
    bench_open(&bench, dtype);
    bench.gradient_dtype = gradient_dtype;
    must(mist_model_check(&model, &err), &err);
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        struct mist_layer_shape shape = {.micro_batch = BATCH,
                                         .seq = SEQ,
                                         .tp = variant == MIST_VARIANT_PLAIN ? 1 : 2,
                                         .cp = cp,
                                         .is_sequence_parallel =
                                             variant == MIST_VARIANT_SEQUENCE,
                                         .splits_backward = true,
                                         .dtype = dtype};

        lay_out(&model, (enum mist_layer_kind)kind, shape);
        for (int i = 0; i < layouts[0].n_forward; i++)
            check_step(&bench, &model, false, i, false, i % 2 == 0);
        for (int i = 0; i < 2 * layouts[0].n_backward; i++)
            check_step(&bench, &model, true, i / 2, false, i % 2);
    }
    bench_close(&bench);
}

TEST(test_fp32)
{
    for (int i = 0; i < MIST_N_VARIANTS; i++) {
        enum mist_layer_variant variant = (enum mist_layer_variant)i;
        check_catalog(MIST_FAMILY_GPT, variant, 0, MIST_DTYPE_FP32, MIST_DTYPE_FP32);
        check_catalog(MIST_FAMILY_LLAMA, variant, 0, MIST_DTYPE_FP32, MIST_DTYPE_FP32);
        check_catalog(MIST_FAMILY_GPT, variant, 2, MIST_DTYPE_FP32, MIST_DTYPE_FP32);
        check_catalog(MIST_FAMILY_LLAMA, variant, 2, MIST_DTYPE_FP32, MIST_DTYPE_FP32);
    }
}

TEST(test_bf16)
{
    for (int i = 0; i < MIST_N_VARIANTS; i++) {
        enum mist_layer_variant variant = (enum mist_layer_variant)i;
        check_catalog(MIST_FAMILY_GPT, variant, 0, MIST_DTYPE_BF16, MIST_DTYPE_FP32);
        check_catalog(MIST_FAMILY_LLAMA, variant, 0, MIST_DTYPE_BF16, MIST_DTYPE_FP32);
        check_catalog(MIST_FAMILY_GPT, variant, 0, MIST_DTYPE_BF16, MIST_DTYPE_BF16);
        check_catalog(MIST_FAMILY_LLAMA, variant, 0, MIST_DTYPE_BF16, MIST_DTYPE_BF16);
        check_catalog(MIST_FAMILY_LLAMA, variant, 2, MIST_DTYPE_BF16, MIST_DTYPE_FP32);
    }
}

/* More rows than the loss takes at once, and its losses alone. */
static void check_loss(enum mist_dtype dtype)
{
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_layer_shape shape = {
        .micro_batch = 3, .seq = 1400, .tp = 1, .dtype = dtype};
    struct bench bench;

    bench_open(&bench, dtype);
    lay_out(&model, MIST_LAYER_HEAD, shape);
    int i_loss = layouts[0].n_forward - 1;
    const struct mist_step *loss = &layouts[0].forward[i_loss];
    assert_int_equal(loss->op, MIST_OP_LINEAR_CROSS_ENTROPY);
    assert_true(loss->dims[0] > MIST_CATALOG_LOSS_ROWS_GPU);
    check_step(&bench, &model, false, i_loss, false, true);
    check_step(&bench, &model, false, i_loss, true, true);
    bench_close(&bench);
}

TEST(test_loss)
{
    check_loss(MIST_DTYPE_FP32);
    check_loss(MIST_DTYPE_BF16);
}

/* ---------------------------------------------------------------- outside of programs */

TEST(test_outside_of_programs)
{
    const struct mist_operators *operators[] = {&mist_operators_cpu,
                                                &mist_operators_cuda};
    enum { N = 1000 };
    struct mist_adamw_args args = {.lr = 0.1f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .weight_decay = 0.1f,
                                   .gradient_scale = 0.5f,
                                   .t = 3};
    const struct mist_draw draw = {
        .seed = 3, .n_runs = 2, .run_stride = N, .run_length = N / 4, .deviation = 0.02};
    struct mist_tally tallies[2] = {{0}, {0}};
    struct bench bench;
    struct mist_err err = {0};

    bench_open(&bench, MIST_DTYPE_FP32);
    bench.at = mist_device_arena(bench.device, MIST_ARENA_DEVICE);
    for (int i = 0; i < 6; i++)
        add_floats(&bench, MIST_DTYPE_FP32, N, i == 2 ? 1 : 0, 0.5);
    void *device_tally = to_device(&bench, &tallies[0], sizeof tallies[0]);
    ((float *)bench.buffers[5].cpu)[700] = INFINITY;
    must(mist_device_write(bench.device, bench.buffers[5].cuda, bench.buffers[5].cpu,
                           N * 4, &err),
         &err);
    for (int i = 0; i < 2; i++) {
        float *x[6];
        struct mist_tally *tally = i == 0 ? &tallies[0] : device_tally;
        void *backend = i == 0 ? bench.cpu : bench.cuda;
        for (int k = 0; k < 6; k++)
            x[k] = i == 0 ? bench.buffers[k].cpu : bench.buffers[k].cuda;
        struct mist_adamw_span span = {
            .p = x[0], .m = x[1], .v = x[2], .g = x[3], .n = N, .decays = true};
        mist_operators_prepare_update(operators[i], backend, &args);
        operators[i]->adamw(backend, MIST_DTYPE_FP32, &span, 1, &args, 1);
        operators[i]->adamw(backend, MIST_DTYPE_FP32, &span, 0, &args, 1);
        operators[i]->add(backend, MIST_DTYPE_FP32, x[3], x[0], N, 1);
        operators[i]->sum_squares(backend, MIST_DTYPE_FP32, x[3], N, 5, tally, 1);
        operators[i]->sum_squares(backend, MIST_DTYPE_FP32, x[3], 0, 5, tally, 1);
        operators[i]->find_nonfinite(backend, MIST_DTYPE_FP32, x[5], N, tally, 1);
        operators[i]->sum_losses(backend, x[2], N, tally);
        operators[i]->zero(backend, MIST_DTYPE_FP32, x[4], N - 1, 1);
        operators[i]->draw(backend, MIST_DTYPE_FP32, x[4], &draw, 1);
        operators[i]->zero(backend, MIST_DTYPE_FP32, x[3], 0, 1);
    }
    must(mist_device_synchronize(bench.device, &err), &err);
    for (int i = 0; i < 6; i++)
        compare(&bench, &bench.buffers[i], "outside of programs");
    must(mist_device_read(bench.device, &tallies[1], device_tally, sizeof tallies[1],
                          &err),
         &err);
    assert_true(fabs(tallies[0].loss_sum - tallies[1].loss_sum) < 1e-3);
    assert_int_equal(tallies[1].nonfinite_mark, tallies[0].nonfinite_mark);
    assert_int_equal(mist_tally_first_nonfinite(&tallies[1]), 700);
    assert_true(tallies[1].n_nonfinite > 0);
    bench_close(&bench);
}

/* --------------------------------------------------------------------------- failures */

/* They need faults of the emulation, and nothing to record. */
#if !defined(MIST_TEST_ON_GPU) && !defined(MIST_TEST_RECORDS)

/* Runs a linear layer that fails; what the device says. */
static void fail_linear(struct bench *bench, struct mist_err *err)
{
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 1);
    struct mist_step step = {.op = MIST_OP_LINEAR,
                             .phase = MIST_PHASE_FORWARD,
                             .n_dims = 3,
                             .dims = {4, 5, 6}};
    struct mist_step_args args = {
        .step = &step, .model = &model, .backend = bench->cuda, .dtype = MIST_DTYPE_FP32};

    for (int i = 0; i < 2; i++)
        args.operands[i] = mist_device_arena(bench->device, MIST_ARENA_DEVICE);
    args.params[0] = args.operands[0];
    mist_operators_cuda.run_step(&args);
    assert_int_equal(mist_device_synchronize(bench->device, err), MIST_ERR_RUN);
}

TEST(test_failures)
{
    struct bench bench;
    struct mist_err err = {0};
    void *memory;

    bench_open(&bench, MIST_DTYPE_FP32);
    mist_test_cublaslt.refuses = 1; /* CUBLASLT_EPILOGUE_DEFAULT */
    fail_linear(&bench, &err);
    mist_test_cublaslt.refuses = 0;
    assert_non_null(strstr(err.message, "rows=4;n_in=5;n_out=6"));
    bench_close(&bench);

    bench_open(&bench, MIST_DTYPE_FP32);
    /* an error as a launch would leave it */
    mist_emulated_cuda.fails = "cudaMalloc";
    mist_emulated_cuda.fails_in = 1;
    mist_emulated_cuda.fails_with = cudaErrorLaunchFailure;
    assert_int_not_equal(cudaMalloc(&memory, 8), cudaSuccess);
    fail_linear(&bench, &err);
    assert_non_null(strstr(err.message, "linear forward"));
    assert_non_null(strstr(err.message, "cudaErrorLaunchFailure"));
    assert_non_null(strstr(err.message, "rows=4;n_in=5;n_out=6"));
    assert_int_equal(cudaPeekAtLastError(), cudaSuccess);
    bench_close(&bench);
}

#endif

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("no CUDA headers here")

#endif
