/*
 * Executes the attention graphs with an interpreter in cuDNN's place
 * (tests/emulation/cudnn_interpreter.c) and compares with the CPU's kernels: the
 * operations, strides, offsets, chunks, and that only outputs and workspace are written.
 *
 * Skips without cuDNN's header, with which the interpreter is built.
 */
#include "exec/cuda/attention_cudnn.h"
#include "exec/operators/cpu_kernels.h"

#include "tests/unit/attention_workspace.h"
#include "tests/unit/test.h"

#include <dlfcn.h>
#include <math.h>
#include <unistd.h> /* readlink */

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define HAS_CUDNN 1
#endif
#endif

#ifndef HAS_CUDNN
TEST_MAIN_SKIPPED("no cudnn.h: the graphs are not tested")
#else

enum { GUARD_BYTES = 256, GUARD = 0xA5 };

static uint64_t seed = 20240917;

static float draw(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(uint32_t)(seed >> 32) / 2147483648.0f;
}

/* n bytes of 0xFF (NaN) with a guard behind. */
static void *guarded(int64_t n)
{
    char *out = aligned_alloc(64, (size_t)(n + GUARD_BYTES + 63) / 64 * 64);
    assert_non_null(out);
    memset(out, 0xFF, (size_t)n);
    memset(out + n, GUARD, GUARD_BYTES);
    return out;
}

static void check_guard(const void *memory, int64_t n)
{
    const unsigned char *guard = (const unsigned char *)memory + n;
    for (int i = 0; i < GUARD_BYTES; i++)
        assert_int_equal(guard[i], GUARD);
}

static float widen(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float out;
    memcpy(&out, &wide, sizeof out);
    return out;
}

/* n values that bf16 has, in both formats. */
static void fill(uint16_t *narrow, float *wide, int64_t n, float scale)
{
    for (int64_t i = 0; i < n; i++) {
        float x = scale * draw();
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        narrow[i] = (uint16_t)(bits >> 16);
        wide[i] = widen(narrow[i]);
    }
}

/* Relative L2 over n rows of width elements that lie token apart. */
static double distance(const uint16_t *x, const float *expected, int64_t n, int64_t width,
                       int64_t token)
{
    double sum = 0.0, norm = 0.0;
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = i * token; j < i * token + width; j++) {
            double d = (double)widen(x[j]) - (double)expected[j];
            sum += d * d;
            norm += (double)expected[j] * (double)expected[j];
        }
    return sqrt(sum / norm);
}

/* All tensors of a shape: x for cuDNN, cpu_x for the kernels it is compared with. */
struct job {
    struct mist_cpu_attention shape;
    struct mist_cpu_attention cpu_shape;
    int64_t n_qkv, n_out, n_lse; /* elements */
    uint16_t *qkv, *out, *d_out, *dqkv;
    float *lse, *cpu_qkv, *cpu_out, *cpu_d_out, *cpu_dqkv, *cpu_lse;
};

static void start(struct job *job, const struct mist_cpu_attention *s)
{
    *job = (struct job){
        .shape = *s,
        .cpu_shape = {s->b, s->s, s->heads, s->kv_heads, s->head_dim},
        .n_qkv = s->b * s->s * (s->heads + 2 * s->kv_heads) * s->head_dim,
        .n_out = s->b * s->s * s->heads * s->head_dim,
        .n_lse = s->b * s->s * s->heads,
    };
    job->qkv = guarded(job->n_qkv * 2), job->dqkv = guarded(job->n_qkv * 2);
    job->out = guarded(job->n_out * 2), job->d_out = guarded(job->n_out * 2);
    job->cpu_qkv = guarded(job->n_qkv * 4), job->cpu_dqkv = guarded(job->n_qkv * 4);
    job->cpu_out = guarded(job->n_out * 4), job->cpu_d_out = guarded(job->n_out * 4);
    job->lse = guarded(job->n_lse * 4), job->cpu_lse = guarded(job->n_lse * 4);
    fill(job->qkv, job->cpu_qkv, job->n_qkv, 2.0f);
    fill(job->d_out, job->cpu_d_out, job->n_out, 1.0f);

    void *scratch = guarded(
        (int64_t)mist_cpu_attention_backward_workspace_bytes(&job->cpu_shape, false, 1));
    mist_cpu_attention_forward(NULL, job->cpu_out, job->cpu_lse, job->cpu_qkv,
                               &job->cpu_shape, scratch, 1);
    mist_cpu_attention_backward(NULL, job->cpu_dqkv, job->cpu_d_out, job->cpu_qkv,
                                job->cpu_out, job->cpu_lse, &job->cpu_shape, scratch, 1);
    free(scratch);
}

static void finish(struct job *job)
{
    void *all[] = {job->qkv,       job->dqkv,    job->out,      job->d_out,
                   job->lse,       job->cpu_qkv, job->cpu_dqkv, job->cpu_out,
                   job->cpu_d_out, job->cpu_lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ../emulation/libcudnn_interpreter.so from this program. */
static const char *interpreter_path(void)
{
    static char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);

    assert_true(n > 0);
    path[n] = '\0';
    strcpy(strrchr(path, '/'), "/../emulation/libcudnn_interpreter.so");
    return path;
}

/* A context of its own for each plan: one that fits a limit would be found again for a
 * smaller one, since the interpreter's plans all take the same workspace. */
static struct mist_cuda_sdpa *open_interpreter(void)
{
    struct mist_cuda_sdpa *sdpa = NULL;
    struct mist_err err;

    must(mist_cuda_sdpa_open(interpreter_path(), NULL, &sdpa, &err), &err);
    return sdpa;
}

static void check_forward(struct job *job)
{
    struct mist_cuda_sdpa *sdpa = open_interpreter();
    struct mist_cuda_sdpa_plan plan;
    struct mist_err err;

    must(mist_cuda_sdpa_plan(sdpa, &job->shape, MIST_CUDA_SDPA_FORWARD,
                             MIST_CUDA_SDPA_FAST, 256, &plan, &err),
         &err);
    void *workspace = guarded(plan.workspace_bytes);
    must(mist_cuda_sdpa_forward(sdpa, NULL, job->out, job->lse, job->qkv, &job->shape,
                                workspace, plan.workspace_bytes, &err),
         &err);
    double out = distance(job->out, job->cpu_out, 1, job->n_out, 0), lse = 0.0;
    for (int64_t i = 0; i < job->n_lse; i++)
        lse = fmax(lse, fabs((double)job->lse[i] - (double)job->cpu_lse[i]));
    print_message("# forward: out %.1e, lse %.1e\n", out, lse);
    assert_true(out < 1e-2);
    assert_true(lse < 1e-4);
    check_guard(job->out, job->n_out * 2);
    check_guard(job->lse, job->n_lse * 4);
    check_guard(workspace, plan.workspace_bytes);
    free(workspace);
    mist_cuda_sdpa_close(sdpa);
}

/* Every gradient of every sample must be near: they are of different size. The worst. */
static double compare_gradients(const struct job *job)
{
    const struct mist_cpu_attention *s = &job->shape;
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    int64_t from[] = {0, q, q + kv}, width[] = {q, kv, kv}, token = q + 2 * kv;
    double worst = 0.0;

    for (int64_t i = 0; i < s->b; i++)
        for (int k = 0; k < 3; k++) {
            int64_t first = i * s->s * token + from[k];
            double d =
                distance(job->dqkv + first, job->cpu_dqkv + first, s->s, width[k], token);
            if (!(d < 1e-2))
                fail_msg("sample %lld, gradient of %c: %.1e", (long long)i, "qkv"[k], d);
            worst = fmax(worst, d);
        }
    return worst;
}

static void check_backward(struct job *job, enum mist_cuda_sdpa_form form,
                           int64_t limit_bytes, int64_t n_chunks)
{
    const struct mist_cpu_attention *s = &job->shape;
    struct mist_cuda_sdpa *sdpa = open_interpreter();
    struct mist_cuda_sdpa_plan plan;
    struct mist_err err;

    must(mist_cuda_sdpa_plan(sdpa, s, MIST_CUDA_SDPA_BACKWARD, form, limit_bytes, &plan,
                             &err),
         &err);
    assert_true(plan.workspace_bytes <= limit_bytes);
    assert_int_equal(s->b / plan.chunk_b * (s->kv_heads / plan.chunk_kv_heads), n_chunks);
    memset(job->dqkv, 0xFF, (size_t)job->n_qkv * 2);
    void *workspace = guarded(plan.workspace_bytes);
    must(mist_cuda_sdpa_backward(sdpa, NULL, job->dqkv, job->d_out, job->qkv, job->out,
                                 job->lse, s, form, workspace, plan.workspace_bytes,
                                 &err),
         &err);
    print_message("# backward, %lld chunks: %.1e\n", (long long)n_chunks,
                  compare_gradients(job));
    check_guard(job->dqkv, job->n_qkv * 2);
    check_guard(workspace, plan.workspace_bytes);
    free(workspace);
    mist_cuda_sdpa_close(sdpa);
}

/* Both directions, both forms, and chunks of any size, which all give the same bits. */
static void check_shape(const struct mist_cpu_attention *s)
{
    struct job job;
    int64_t is_grouped = s->heads > s->kv_heads;
    int64_t head = s->s * (2 * s->s + 4 + is_grouped * 4 * s->head_dim);
    int64_t fast_head = s->s * (4 + (4 + is_grouped * 4) * s->head_dim);

    print_message("# b %lld, s %lld, heads %lld/%lld x %lld\n", (long long)s->b,
                  (long long)s->s, (long long)s->heads, (long long)s->kv_heads,
                  (long long)s->head_dim);
    start(&job, s);
    check_forward(&job);
    check_backward(&job, MIST_CUDA_SDPA_FAST,
                   mist_cuda_attention_workspace_bytes(s->b, s->s, s->heads, s->kv_heads,
                                                       s->head_dim, true),
                   1);

    /* limits for all heads, those of a sample, those of a group */
    int64_t n_heads[] = {s->b * s->heads, s->heads, s->heads / s->kv_heads};
    uint16_t *whole = guarded(job.n_qkv * 2);
    for (int i = 0; i < 3; i++) {
        if (i > 0 && n_heads[i] == n_heads[i - 1])
            continue;
        check_backward(&job, MIST_CUDA_SDPA_FAST, n_heads[i] * fast_head + 256,
                       s->b * s->heads / n_heads[i]);
        check_backward(&job, MIST_CUDA_SDPA_DETERMINISTIC, n_heads[i] * head + 256,
                       s->b * s->heads / n_heads[i]);
        if (i == 0)
            memcpy(whole, job.dqkv, (size_t)job.n_qkv * 2);
        assert_memory_equal(whole, job.dqkv, (size_t)job.n_qkv * 2);
    }
    free(whole);
    finish(&job);
}

/* Closing a context, or asking for the version alone, unloads nothing: threads and exit
 * handlers of cuDNN's would be left behind. The first of tests, since it wants nothing
 * loaded before. */
TEST(test_stays_loaded)
{
    const char *path = interpreter_path();

    assert_null(dlopen(path, RTLD_LAZY | RTLD_NOLOAD));
    assert_int_equal(mist_cuda_sdpa_library_version(path), 91900);
    assert_non_null(dlopen(path, RTLD_LAZY | RTLD_NOLOAD));
    assert_int_equal(mist_cuda_sdpa_library_version("/nowhere/libcudnn.so.9"), 0);
}

TEST(test_shapes)
{
    static const struct mist_cpu_attention shapes[] = {
        {2, 128, 2, 2, 64},
        {2, 128, 4, 2, 80},
        {1, 256, 3, 1, 64},
    };

    seed = test_seed(seed);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        check_shape(&shapes[i]);
}

TEST_MAIN(NULL, NULL)
#endif
