/*
 * Attention in bf16 as training runs it on a GPU: by cuDNN, against our own kernels,
 * which test_cuda_attention compares with the CPU's; in the small shapes against the
 * CPU's, too. Shapes of published models, grouped queries, widths 64, 80, 96 and 128, in
 * both forms of the backward; the deterministic one and the forward give the same bits
 * each time, and no operand is written that is only read. Prints MIST_SEED and how far
 * the results are apart. The same of context-parallel ranks' parts, which are compared
 * with the CPU's.
 *
 * Without a GPU cuDNN's interpreter (tests/emulation) stands in for it, with the small
 * shapes alone; then also: what is refused, and in which words.
 */
#include "tests/unit/test.h"

#include "core/memory.h"
#include "core/random.h"
#include "exec/cuda/attention_cudnn.h"
#include "exec/operators/cpu_bf16.h"
#include "exec/operators/paths.h"
#include "sim/model/catalog.h"
#include "tests/emulation/backend.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h> /* readlink */

static const struct mist_cpu_attention shapes[] = {
    {1, 128, 2, 2, 64},     {2, 128, 4, 2, 128},   {1, 256, 4, 1, 80},
    {3, 128, 3, 3, 96},
#ifdef MIST_TEST_ON_GPU
    {2, 2048, 16, 16, 128}, {1, 1024, 32, 8, 128}, {1, 4096, 16, 2, 64},
#endif
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, CPU_MAX_SEQ = 384 };

/* All parts of these are computed. */
static const struct {
    struct mist_cpu_attention shape;
    int n;
} parted[] = {
    {{2, 512, 2, 1, 64}, 2},    {{1, 512, 2, 2, 80}, 2},  {{1, 1024, 2, 1, 64}, 4},
#ifdef MIST_TEST_ON_GPU
    {{2, 2048, 16, 4, 128}, 2}, {{1, 2048, 8, 8, 96}, 4},
#endif
};
enum { N_PARTED = sizeof parted / sizeof *parted };

/* One who computes it, and with what result. */
enum { OWN, CUDNN, CUDNN_AGAIN, CUDNN_ATOMIC, CPU, N_WAYS };
static const char *const ways[] = {"own", "cuDNN", "cuDNN again", "cuDNN, atomic", "CPU"};

enum { GUARD_BYTES = 64 }; /* behind the workspace */

/* In the order of one buffer; the last two of parts alone. */
enum { QKV, OUT, LSE, D_OUT, DQKV, KV, DKV, N_OPERANDS };

struct bench {
    struct mist_device *device;
    void *cpu; /* the CPU's operators' */
    struct mist_layer_layout layout;
    struct mist_model model;
    const struct mist_step *forward, *backward;
    int n, i; /* parts, and which one; 1, 0: whole sequences */
    int64_t elements[N_OPERANDS], bytes[N_OPERANDS];
    unsigned char *input[N_OPERANDS];           /* host */
    unsigned char *results[N_WAYS][N_OPERANDS]; /* host */
};

static void *allocate(int64_t bytes)
{
    void *memory = NULL;

    assert_int_equal(posix_memalign(&memory, 64, (size_t)bytes + 64), 0);
    memset(memory, 0xFF, (size_t)bytes + 64);
    return memory;
}

static const struct mist_step *find_step(const struct mist_step *steps, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (mist_op_is_attention(steps[i].op))
            return &steps[i];
    fail_msg("no attention in a block");
    return NULL;
}

/* The steps of a block whose attention is of this shape, in n parts. */
static void make_steps(struct bench *bench, const struct mist_cpu_attention *shape, int n)
{
    struct mist_model model = {.name = "attention",
                               .family = MIST_FAMILY_LLAMA,
                               .n_layers = 1,
                               .hidden = (int32_t)(shape->heads * shape->head_dim),
                               .n_heads = (int32_t)shape->heads,
                               .n_kv_heads = (int32_t)shape->kv_heads,
                               .head_dim = (int32_t)shape->head_dim,
                               .ffn = 64,
                               .vocab = 64,
                               .norm_epsilon = 1e-5,
                               .rope_theta = 1e4};
    struct mist_layer_shape at = {.micro_batch = (int32_t)shape->b,
                                  .seq = (int32_t)shape->s,
                                  .tp = 1,
                                  .cp = n,
                                  .dtype = MIST_DTYPE_BF16};
    struct mist_err err;

    bench->model = model;
    bench->n = n;
    bench->i = 0;
    must(mist_model_check(&model, &err), &err);
    must(mist_layer_layout_make(&model, MIST_LAYER_BLOCK, at, &bench->layout, &err),
         &err);
    bench->forward = find_step(bench->layout.forward, bench->layout.n_forward);
    bench->backward = find_step(bench->layout.backward, bench->layout.n_backward);
}

static void make_input(struct bench *bench, const struct mist_cpu_attention *shape,
                       struct mist_random *random)
{
    int64_t rows = shape->b * shape->s / bench->n, width = shape->heads * shape->head_dim;
    int64_t keys = 2 * shape->kv_heads * shape->head_dim, packed = width + keys;
    int64_t all_keys = bench->n > 1 ? shape->b * shape->s * keys : 0;
    const int64_t elements[N_OPERANDS] = {
        rows * packed, rows * width, rows * shape->heads, rows * width, rows * packed,
        all_keys,      all_keys};

    for (int i = 0; i < N_OPERANDS; i++) {
        bench->elements[i] = elements[i];
        bench->bytes[i] = elements[i] * (i == LSE ? 4 : 2);
        bench->input[i] = allocate(bench->bytes[i]);
        if (i != QKV && i != D_OUT && i != KV)
            continue;
        float *values = allocate(4 * elements[i]);
        for (int64_t k = 0; k < elements[i]; k++)
            values[k] = (float)(4 * mist_random_uniform(random) - 2);
        mist_cpu_bf16_from_float((mist_bf16 *)(void *)bench->input[i], values,
                                 elements[i]);
        free(values);
    }
}

/* --------------------------------------------------------------------------- running */

struct job {
    const struct mist_operators *operators;
    struct mist_step_args steps[2];
};

static void run_job(void *arg)
{
    struct job *job = arg;

    job->operators->run_step(&job->steps[0]);
    job->operators->run_step(&job->steps[1]);
}

static struct job make_job(const struct bench *bench, void *backend,
                           char *const *operands, void *workspace)
{
    bool is_cpu = backend == bench->cpu;
    struct mist_step_args step = {
        .model = &bench->model,
        .backend = backend,
        .workspace = workspace,
        .dtype = MIST_DTYPE_BF16,
        .chunks = mist_chunks_of(bench->layout.shape.seq, bench->n, bench->i),
        .cp = bench->n,
        .i_cp = bench->i,
        .tp = 1,
        .n_threads = is_cpu};
    struct job job = {.operators = is_cpu ? &mist_operators_cpu
                                          : mist_emulated_backend()->operators,
                      .steps = {step, step}};

    job.steps[0].step = bench->forward;
    job.steps[0].operands[MIST_ARG_OUT] = operands[OUT];
    job.steps[0].operands[MIST_ARG_ATTENTION_LSE] = operands[LSE];
    job.steps[0].operands[MIST_ARG_ATTENTION_QKV] = operands[QKV];
    job.steps[1].step = bench->backward;
    job.steps[1].operands[MIST_ARG_DX] = operands[DQKV];
    if (bench->n > 1) {
        job.steps[0].operands[MIST_ARG_PART_KV] = operands[KV];
        job.steps[1].operands[MIST_ARG_DPART_DKV] = operands[DKV];
        job.steps[1].operands[MIST_ARG_DPART_DY] = operands[D_OUT];
        job.steps[1].operands[MIST_ARG_DPART_QKV] = operands[QKV];
        job.steps[1].operands[MIST_ARG_DPART_KV] = operands[KV];
        job.steps[1].operands[MIST_ARG_DPART_OUT] = operands[OUT];
        job.steps[1].operands[MIST_ARG_DPART_LSE] = operands[LSE];
        return job;
    }
    job.steps[1].operands[MIST_ARG_DY] = operands[D_OUT];
    job.steps[1].operands[MIST_ARG_DATTENTION_QKV] = operands[QKV];
    job.steps[1].operands[MIST_ARG_DATTENTION_OUT] = operands[OUT];
    job.steps[1].operands[MIST_ARG_DATTENTION_LSE] = operands[LSE];
    return job;
}

static void run_on_gpu(struct bench *bench, int way)
{
    char *at = mist_device_arena(bench->device, MIST_ARENA_DEVICE);
    const struct mist_operators *operators = mist_emulated_backend()->operators;
    char *operands[N_OPERANDS];
    struct mist_paths paths;
    struct mist_err err;
    char guards[2][GUARD_BYTES];
    void *backend;

    memset(guards[0], 0xA5, GUARD_BYTES);
    for (int i = 0; i < N_OPERANDS; i++) {
        operands[i] = at;
        at += mist_align_up(bench->bytes[i] + 64, 256);
        must(mist_device_write(bench->device, operands[i], bench->input[i],
                               bench->bytes[i] + 64, &err),
             &err);
    }
    bench->device->attention = way == OWN ? MIST_ATTENTION_OWN : MIST_ATTENTION_AUTO;
    bench->device->allows_atomics = way == CUDNN_ATOMIC;
    must(operators->open(bench->device, MIST_DTYPE_BF16, 0, &backend, &err), &err);
    operators->describe(backend, 0, &paths);
    const char *said = way == OWN            ? "own kernels, as asked for"
                       : way == CUDNN_ATOMIC ? "fast (atomic) backward"
                                             : "deterministic backward";
    if (!strstr(paths.attention, said) ||
        !strstr(paths.attention, "cuDNN") != (way == OWN))
        fail_msg("%s: attention by %s", ways[way], paths.attention);
    struct job job = make_job(bench, backend, operands, at);
    char *guard = at + bench->backward->workspace_bytes; /* the forward has less */
    must(mist_device_write(bench->device, guard, guards[0], GUARD_BYTES, &err), &err);
    for (int i = 0; i < 2; i++)
        must(operators->prepare(&job.steps[i], &err), &err);
    mist_device_reset_events(bench->device, 0);
    mist_device_submit(bench->device, MIST_STREAM_COMPUTE, run_job, &job);
    must(mist_device_synchronize(bench->device, &err), &err);
    operators->close(backend);
    must(mist_device_read(bench->device, guards[1], guard, GUARD_BYTES, &err), &err);
    assert_memory_equal(guards[1], guards[0], GUARD_BYTES);
    for (int i = 0; i < N_OPERANDS; i++) {
        bench->results[way][i] = allocate(bench->bytes[i]);
        must(mist_device_read(bench->device, bench->results[way][i], operands[i],
                              bench->bytes[i] + 64, &err),
             &err);
    }
}

static void run_on_cpu(struct bench *bench)
{
    char *operands[N_OPERANDS];
    int64_t workspace_bytes = (int64_t)64 << 20;
    void *workspace = allocate(workspace_bytes);

    for (int i = 0; i < N_OPERANDS; i++) {
        bench->results[CPU][i] = allocate(bench->bytes[i]);
        memcpy(bench->results[CPU][i], bench->input[i], (size_t)bench->bytes[i] + 64);
        operands[i] = (char *)bench->results[CPU][i];
    }
    struct job job = make_job(bench, bench->cpu, operands, workspace);
    run_job(&job);
    free(workspace);
}

/* ------------------------------------------------------------------------- comparing */

static float value_at(const void *memory, bool is_bf16, int64_t i)
{
    float value;

    if (is_bf16)
        mist_cpu_bf16_to_float(&value, (const mist_bf16 *)memory + i, 1);
    else
        value = ((const float *)memory)[i];
    return value;
}

/* Relative error in the 2-norm of columns first .. end - 1 of rows. */
static double difference(const void *got, const void *expected, bool is_bf16, int64_t n,
                         int64_t width, int64_t first, int64_t end)
{
    double error2 = 0, norm2 = 0;

    for (int64_t i = 0; i < n; i++) {
        if (i % width < first || i % width >= end)
            continue;
        double b = (double)value_at(expected, is_bf16, i);
        double a = (double)value_at(got, is_bf16, i);
        error2 += (a - b) * (a - b);
        norm2 += b * b;
    }
    return sqrt(error2 / norm2);
}

static void check_unwritten(const struct bench *bench, int way)
{
    for (int i = 0; i < N_OPERANDS; i++) {
        assert_memory_equal(bench->results[way][i] + bench->bytes[i],
                            bench->input[i] + bench->bytes[i], 64); /* the guard */
        if (i == QKV || i == D_OUT || i == KV)
            assert_memory_equal(bench->results[way][i], bench->input[i],
                                (size_t)bench->bytes[i]);
    }
}

/* cuDNN's lse of a part is [2, b, heads, length]: into [b, heads, 2, length]. */
static void order_lse(struct bench *bench, int way)
{
    int64_t c = bench->layout.shape.seq / bench->n / 2;
    int64_t n_rows = bench->elements[LSE] / 2 / c; /* of a chunk */
    float *lse = (float *)(void *)bench->results[way][LSE];
    float *ordered = allocate(bench->bytes[LSE]);

    for (int64_t i = 0; i < 2 * n_rows; i++)
        memcpy(ordered + i * c, lse + (i % 2 * n_rows + i / 2) * c,
               (size_t)c * sizeof *lse);
    memcpy(lse, ordered, (size_t)bench->bytes[LSE]);
    free(ordered);
}

static void compare_ways(const struct bench *bench,
                         const struct mist_cpu_attention *shape, int way, int with)
{
    int64_t q = shape->heads * shape->head_dim, kv = shape->kv_heads * shape->head_dim;
    unsigned char *const *a = bench->results[way], *const *b = bench->results[with];
    bool is_part = bench->n > 1;
    int64_t packed = q + 2 * kv, n = bench->elements[DQKV];
    int keys = is_part ? DKV : DQKV; /* what has their gradients: in which columns */
    int64_t width = is_part ? 2 * kv : packed, first = is_part ? 0 : q;
    const double errors[5] = {
        difference(a[OUT], b[OUT], true, bench->elements[OUT], q, 0, q),
        difference(a[LSE], b[LSE], false, bench->elements[LSE], 1, 0, 1),
        difference(a[DQKV], b[DQKV], true, n, packed, 0, q),
        difference(a[keys], b[keys], true, bench->elements[keys], width, first,
                   first + kv),
        difference(a[keys], b[keys], true, bench->elements[keys], width, first + kv,
                   width)};
    const double bars[5] = {1e-2, 1e-4, 1.5e-2, 1.5e-2, 1.5e-2};

    print_message("# %lld x %lld, %lld/%lld heads of %lld, part %d of %d, %s and %s: out "
                  "%.1e lse %.1e dq %.1e dk %.1e dv %.1e\n",
                  (long long)shape->b, (long long)shape->s, (long long)shape->heads,
                  (long long)shape->kv_heads, (long long)shape->head_dim, bench->i,
                  bench->n, ways[way], ways[with], errors[0], errors[1], errors[2],
                  errors[3], errors[4]);
    for (int i = 0; i < 5; i++)
        assert_true(errors[i] <= bars[i]);
}

/* Of a part: the columns of keys and values of dqkv are not written, and the gradients of
 * keys that it does not see are 0. */
static void check_rest(const struct bench *bench, const struct mist_cpu_attention *shape,
                       int way)
{
    int64_t q = shape->heads * shape->head_dim * 2,
            kv = shape->kv_heads * shape->head_dim * 4;
    const unsigned char *dqkv = bench->results[way][DQKV];
    const unsigned char *dkv = bench->results[way][DKV];
    int64_t n_seen = (2 * bench->n - bench->i) * (shape->s / (2 * bench->n));

    for (int64_t i = 0; i < bench->bytes[DQKV]; i += q + kv)
        assert_memory_equal(dqkv + i + q, bench->input[DQKV] + i + q, (size_t)kv);
    for (int64_t i = 0; i < bench->bytes[DKV]; i++)
        if (i / kv % shape->s >= n_seen && dkv[i] != 0)
            fail_msg("%s: key %lld has a gradient", ways[way],
                     (long long)(i / kv % shape->s));
}

static void finish(struct bench *bench)
{
    for (int i = 0; i < N_OPERANDS; i++) {
        free(bench->input[i]);
        for (int way = 0; way < N_WAYS; way++) {
            free(bench->results[way][i]);
            bench->results[way][i] = NULL;
        }
    }
}

static void check_shape(struct bench *bench, const struct mist_cpu_attention *shape,
                        struct mist_random *random)
{
    bool has_cpu = shape->s <= CPU_MAX_SEQ;

    make_steps(bench, shape, 1);
    make_input(bench, shape, random);
    for (int way = OWN; way < CPU; way++) {
        run_on_gpu(bench, way);
        check_unwritten(bench, way);
    }
    compare_ways(bench, shape, CUDNN, OWN);
    compare_ways(bench, shape, CUDNN_ATOMIC, OWN);
    for (int i = 0; i < N_OPERANDS; i++)
        assert_memory_equal(bench->results[CUDNN_AGAIN][i], bench->results[CUDNN][i],
                            (size_t)bench->bytes[i]);
    if (has_cpu) {
        run_on_cpu(bench);
        compare_ways(bench, shape, OWN, CPU);
        compare_ways(bench, shape, CUDNN, CPU);
    }
    finish(bench);
}

static void check_part(struct bench *bench, const struct mist_cpu_attention *shape, int n,
                       int i, struct mist_random *random)
{
    make_steps(bench, shape, n);
    bench->i = i;
    make_input(bench, shape, random);
    run_on_cpu(bench);
    for (int way = OWN; way < CPU; way++) {
        run_on_gpu(bench, way);
        check_unwritten(bench, way);
        check_rest(bench, shape, way);
        if (way != OWN)
            order_lse(bench, way);
        compare_ways(bench, shape, way, CPU);
    }
    for (int k = 0; k < N_OPERANDS; k++)
        assert_memory_equal(bench->results[CUDNN_AGAIN][k], bench->results[CUDNN][k],
                            (size_t)bench->bytes[k]);
    finish(bench);
}

/* The interpreter is found as cuDNN is, by its name, once it is loaded. */
static bool has_cudnn(void)
{
#ifdef MIST_TEST_ON_GPU
    return true;
#else
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);

    if (n <= 0 || !mist_emulated_backend())
        return false;
    path[n] = '\0';
    strcpy(strrchr(path, '/'), "/../emulation/libcudnn_interpreter.so");
    return dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL;
#endif
}

static void open_device(struct bench *bench)
{
#ifdef MIST_TEST_ON_GPU
    int64_t bytes = (int64_t)2 << 30;
#else
    int64_t bytes = (int64_t)64 << 20;
#endif
    struct mist_device_config config = {
        .arena_bytes = {bytes, 4096}, .result_bytes = 4096, .threads = 1};
    struct mist_err err;

    must(mist_emulated_backend()->open_device(&config, &bench->device, &err), &err);
}

/* Opens both; false: there is no cuDNN. */
static bool start(struct bench *bench)
{
    struct mist_err err;

    if (!has_cudnn()) {
        print_message("# neither cuDNN nor its interpreter is here\n");
        return false;
    }
    open_device(bench);
    must(mist_operators_cpu.open(NULL, MIST_DTYPE_BF16, 1, &bench->cpu, &err), &err);
    return true;
}

TEST(test_attention)
{
    static struct bench bench;
    struct mist_random random;

    if (!start(&bench))
        skip();
    mist_random_init(&random, test_seed(20251121));
    for (int i = 0; i < N_SHAPES; i++)
        if (!test_is_left_out())
            check_shape(&bench, &shapes[i], &random);
    mist_operators_cpu.close(bench.cpu);
    mist_device_close(bench.device);
}

TEST(test_parts)
{
    static struct bench bench;
    struct mist_random random;

    if (!start(&bench))
        skip();
    mist_random_init(&random, test_seed(20261004));
    for (int k = 0; k < N_PARTED; k++)
        for (int i = 0; i < parted[k].n; i++)
            if (!test_is_left_out())
                check_part(&bench, &parted[k].shape, parted[k].n, i, &random);
    mist_operators_cpu.close(bench.cpu);
    mist_device_close(bench.device);
}

/* ------------------------------------------------------------------------ refusals */

#ifndef MIST_TEST_ON_GPU

/* What prepare() says of a shape's two steps under a choice; MIST_OK if nothing. */
static enum mist_status prepare(struct bench *bench, enum mist_attention_choice choice,
                                const struct mist_cpu_attention *shape, int n,
                                struct mist_err *err)
{
    const struct mist_operators *operators = mist_emulated_backend()->operators;
    char *operands[N_OPERANDS] = {NULL};
    void *backend;

    make_steps(bench, shape, n);
    bench->device->attention = choice;
    enum mist_status status =
        operators->open(bench->device, MIST_DTYPE_BF16, 0, &backend, err);
    if (status != MIST_OK)
        return status;
    struct job job = make_job(bench, backend, operands, NULL);
    for (int i = 0; i < 2 && status == MIST_OK; i++)
        status = operators->prepare(&job.steps[i], err);
    operators->close(backend);
    return status;
}

static void must_say(const struct mist_err *err, const char *words)
{
    print_message("# %s\n", err->message);
    if (!strstr(err->message, words))
        fail_msg("not \"%s\"", words);
}

/* Nothing goes to the own kernels that is not asked to. */
TEST(test_refusals)
{
    static const struct mist_cpu_attention known = {1, 128, 2, 2, 64},
                                           odd = {2, 100, 4, 2, 64},
                                           wide = {1, 128, 2, 2, 264},
                                           long_one = {1, 512, 4, 2, 64};
    static struct bench bench;
    struct mist_err err;

    if (!has_cudnn())
        skip();
    open_device(&bench);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_AUTO, &known, 1, &err), MIST_OK);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_CUDNN, &known, 1, &err), MIST_OK);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_AUTO, &odd, 1, &err), MIST_ERR_RUN);
    must_say(&err, "2 samples of 100 tokens, 4 heads (2 of keys) of 64, forward");
    must_say(&err, "--attention own");
    assert_int_equal(prepare(&bench, MIST_ATTENTION_CUDNN, &odd, 1, &err), MIST_ERR_RUN);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_OWN, &odd, 1, &err), MIST_OK);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_OWN, &wide, 1, &err), MIST_ERR_RUN);
    must_say(&err, "264");
    /* parts: chunks of 128 tokens are known, those of 64 are not */
    assert_int_equal(prepare(&bench, MIST_ATTENTION_AUTO, &long_one, 2, &err), MIST_OK);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_AUTO, &long_one, 4, &err),
                     MIST_ERR_RUN);
    must_say(&err, "1 samples of 512 tokens, 64 of them from position 0 on, 4 heads");
    must_say(&err, "chunks of a multiple of 128 tokens");
    must_say(&err, "--attention own");
    assert_int_equal(prepare(&bench, MIST_ATTENTION_OWN, &long_one, 4, &err), MIST_OK);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_OWN, &wide, 2, &err), MIST_ERR_RUN);
    must_say(&err, "264");
    /* less than the catalogue plans: no chunk is small enough */
    make_steps(&bench, &known, 1);
    struct mist_step small = *bench.backward;
    small.workspace_bytes = 1 << 14;
    const struct mist_operators *operators = mist_emulated_backend()->operators;
    struct mist_step_args args = {.step = &small, .dtype = MIST_DTYPE_BF16};
    bench.device->attention = MIST_ATTENTION_AUTO;
    must(operators->open(bench.device, MIST_DTYPE_BF16, 0, &args.backend, &err), &err);
    assert_int_equal(operators->prepare(&args, &err), MIST_ERR_RUN);
    must_say(&err, "within 16384 bytes");
    must_say(&err, "--allow-atomics");
    operators->close(args.backend);
    mist_device_close(bench.device);
}

/* cuDNN is there, but can't be used. */
TEST(test_unusable)
{
    static const struct mist_cpu_attention shape = {1, 128, 2, 2, 64};
    const struct mist_operators *operators;
    static struct bench bench;
    struct mist_paths paths;
    struct mist_err err;
    void *backend;

    if (!has_cudnn())
        skip();
    open_device(&bench);
    setenv("MIST_CUDNN_INTERPRETER", "refuses", 1);
    assert_int_equal(prepare(&bench, MIST_ATTENTION_AUTO, &shape, 1, &err), MIST_ERR_RUN);
    must_say(&err, "cuDNN can't use the device");
    must_say(&err, "--attention own");
    assert_int_equal(prepare(&bench, MIST_ATTENTION_OWN, &shape, 1, &err), MIST_OK);
    /* in fp32 nobody asks for it */
    operators = mist_emulated_backend()->operators;
    bench.device->attention = MIST_ATTENTION_AUTO;
    must(operators->open(bench.device, MIST_DTYPE_FP32, 0, &backend, &err), &err);
    operators->describe(backend, 0, &paths);
    assert_non_null(strstr(paths.attention, "own kernels"));
    assert_non_null(strstr(paths.products, "cuBLASLt"));
    operators->close(backend);
    unsetenv("MIST_CUDNN_INTERPRETER");
    bench.device->attention = MIST_ATTENTION_CUDNN;
    assert_int_equal(operators->open(bench.device, MIST_DTYPE_FP32, 0, &backend, &err),
                     MIST_ERR_RUN);
    must_say(&err, "bf16");
    mist_device_close(bench.device);
}

#endif

TEST_MAIN(NULL, NULL)
