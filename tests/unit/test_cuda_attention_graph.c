/*
 * Executes the attention graphs with an interpreter in cuDNN's place
 * (tests/emulation/cudnn_interpreter.c) and compares with the CPU's kernels: the
 * operations, strides, offsets, chunks, and that only outputs and workspace are written;
 * of whole sequences and of context-parallel ranks' parts. Also looks at what a graph
 * consists of, as cuDNN knows attention by that.
 *
 * Skips without cuDNN's header, with which the interpreter is built.
 */
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

#include "exec/cuda/attention_cudnn.h"
#include "exec/cuda/attention_graph.h"

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

/* ------------------------------------------------------------------- parts of ranks */

enum { CHUNKS = 2 };

/* A part's tensors: x for cuDNN, cpu_x for the kernels it is compared with. */
struct part_job {
    struct mist_cpu_attention_part part;
    int64_t c, n_qkv, n_kv, n_out, n_lse; /* tokens of a chunk; elements */
    uint16_t *qkv, *kv, *out, *d_out, *dqkv, *dkv;
    float *lse, *cpu_qkv, *cpu_kv, *cpu_out, *cpu_d_out, *cpu_dqkv, *cpu_dkv, *cpu_lse;
};

static void start_part(struct part_job *job, const struct mist_cpu_attention *s,
                       int64_t n, int64_t i)
{
    int64_t rows = s->b * (s->s / n), width = s->heads * s->head_dim;
    struct mist_cpu_attention_part part = {*s, n, i};

    *job = (struct part_job){.part = part,
                             .c = s->s / n / 2,
                             .n_qkv = rows * (s->heads + 2 * s->kv_heads) * s->head_dim,
                             .n_kv = s->b * s->s * 2 * s->kv_heads * s->head_dim,
                             .n_out = rows * width,
                             .n_lse = rows * s->heads};
    job->qkv = guarded(job->n_qkv * 2), job->dqkv = guarded(job->n_qkv * 2);
    job->kv = guarded(job->n_kv * 2), job->dkv = guarded(job->n_kv * 2);
    job->out = guarded(job->n_out * 2), job->d_out = guarded(job->n_out * 2);
    job->cpu_qkv = guarded(job->n_qkv * 4), job->cpu_dqkv = guarded(job->n_qkv * 4);
    job->cpu_kv = guarded(job->n_kv * 4), job->cpu_dkv = guarded(job->n_kv * 4);
    job->cpu_out = guarded(job->n_out * 4), job->cpu_d_out = guarded(job->n_out * 4);
    job->lse = guarded(job->n_lse * 4), job->cpu_lse = guarded(job->n_lse * 4);
    fill(job->qkv, job->cpu_qkv, job->n_qkv, 2.0f);
    fill(job->kv, job->cpu_kv, job->n_kv, 2.0f);
    fill(job->d_out, job->cpu_d_out, job->n_out, 1.0f);

    void *scratch =
        guarded((int64_t)mist_cpu_attention_forward_workspace_bytes(s, false, 1) +
                (int64_t)mist_cpu_attention_backward_workspace_bytes(s, false, 1));
    mist_cpu_attention_part_forward(NULL, job->cpu_out, job->cpu_lse, job->cpu_qkv,
                                    job->cpu_kv, &part, scratch, 1);
    mist_cpu_attention_part_backward(NULL, job->cpu_dqkv, job->cpu_dkv, job->cpu_d_out,
                                     job->cpu_qkv, job->cpu_kv, job->cpu_out,
                                     job->cpu_lse, &part, scratch, 1);
    free(scratch);
}

static void finish_part(struct part_job *job)
{
    void *all[] = {job->qkv,       job->kv,       job->out,     job->d_out,  job->dqkv,
                   job->dkv,       job->lse,      job->cpu_qkv, job->cpu_kv, job->cpu_out,
                   job->cpu_d_out, job->cpu_dqkv, job->cpu_dkv, job->cpu_lse};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* lse [2, b, heads, c] is compared with [b, heads, 2, c]. */
static void check_part_forward(struct part_job *job)
{
    const struct mist_cpu_attention *s = &job->part.whole;
    struct mist_cuda_sdpa *sdpa = open_interpreter();
    int64_t n_heads = s->b * s->heads, c = job->c;
    struct mist_err err;
    void *workspace = guarded(256);
    double lse = 0;

    for (int k = 0; k < CHUNKS; k++) {
        must(mist_cuda_sdpa_plan_part(sdpa, &job->part, k, MIST_CUDA_SDPA_FORWARD,
                                      MIST_CUDA_SDPA_FAST, 256, NULL, &err),
             &err);
        must(mist_cuda_sdpa_forward_part(sdpa, NULL, job->out, job->lse, job->qkv,
                                         job->kv, &job->part, k, workspace, 256, &err),
             &err);
    }
    for (int64_t k = 0; k < job->n_lse; k++) {
        int64_t i = k / c % n_heads, of_cpu = (i * CHUNKS + k / c / n_heads) * c + k % c;
        lse = fmax(lse, fabs((double)job->lse[k] - (double)job->cpu_lse[of_cpu]));
    }
    double out = distance(job->out, job->cpu_out, 1, job->n_out, 0);
    print_message("#   forward: out %.1e, lse %.1e\n", out, lse);
    assert_true(out < 1e-2);
    assert_true(lse < 1e-4);
    check_guard(job->out, job->n_out * 2);
    check_guard(job->lse, job->n_lse * 4);
    check_guard(workspace, 256);
    free(workspace);
    mist_cuda_sdpa_close(sdpa);
}

static void assert_nan(const uint16_t *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        assert_int_equal(x[i], 0xFFFF);
}

/* Adds what chunk 0 left in its room to dkv and puts 0 where no query of the part sees,
 * which nobody has written; and the keys' part of dqkv is as it was, too. */
static void gather_gradients(struct part_job *job, const uint16_t *room)
{
    const struct mist_cpu_attention *s = &job->part.whole;
    int64_t token = 2 * s->kv_heads * s->head_dim, q = s->heads * s->head_dim;
    int64_t n_both = mist_cuda_sdpa_part_keys(&job->part, 0) * token;
    int64_t n_seen = mist_cuda_sdpa_part_keys(&job->part, 1) * token;

    for (int64_t b = 0; b < s->b; b++) {
        uint16_t *dkv = job->dkv + b * s->s * token;
        for (int64_t i = 0; i < n_both; i++) {
            float sum = widen(dkv[i]) + widen(room[b * n_both + i]);
            uint32_t bits;
            memcpy(&bits, &sum, sizeof bits);
            dkv[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        }
        assert_nan(dkv + n_seen, s->s * token - n_seen);
        memset(dkv + n_seen, 0, (size_t)(s->s * token - n_seen) * 2);
    }
    for (int64_t i = 0; i < job->n_qkv; i += q + token)
        assert_nan(job->dqkv + i + q, token);
}

static void check_part_gradients(const struct part_job *job, const char *name)
{
    const struct mist_cpu_attention *s = &job->part.whole;
    int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, c = job->c;
    double worst = 0;

    for (int64_t i = 0; i < s->b * CHUNKS; i++) { /* dq of each chunk */
        int64_t first = i * c * (q + 2 * kv);
        worst = fmax(
            worst, distance(job->dqkv + first, job->cpu_dqkv + first, c, q, q + 2 * kv));
    }
    for (int64_t i = 0; i < s->b * CHUNKS; i++) { /* dk, then dv of each sample */
        int64_t first = i / 2 * s->s * 2 * kv + i % 2 * kv;
        worst = fmax(worst,
                     distance(job->dkv + first, job->cpu_dkv + first, s->s, kv, 2 * kv));
        for (int64_t k = 0; k < s->s * 2 * kv; k++)
            if (job->cpu_dkv[i / 2 * s->s * 2 * kv + k] == 0.0f)
                assert_int_equal(job->dkv[i / 2 * s->s * 2 * kv + k] & 0x7FFF, 0);
    }
    print_message("#   backward, %s: %.1e\n", name, worst);
    assert_true(worst < 1e-2);
    check_guard(job->dqkv, job->n_qkv * 2);
    check_guard(job->dkv, job->n_kv * 2);
}

/* limit_bytes: of one execution. */
static void check_part_backward(struct part_job *job, enum mist_cuda_sdpa_form form,
                                int64_t limit_bytes, const char *name)
{
    const struct mist_cpu_attention *s = &job->part.whole;
    struct mist_cuda_sdpa *sdpa = open_interpreter();
    int64_t room_bytes = mist_cuda_attention_room_bytes(
        s->b, mist_cuda_sdpa_part_keys(&job->part, 0), s->kv_heads, s->head_dim);
    uint16_t *room = guarded(room_bytes);
    void *workspace = guarded(limit_bytes);
    struct mist_err err;

    memset(job->dqkv, 0xFF, (size_t)job->n_qkv * 2);
    memset(job->dkv, 0xFF, (size_t)job->n_kv * 2);
    for (int k = 0; k < CHUNKS; k++) {
        must(mist_cuda_sdpa_plan_part(sdpa, &job->part, k, MIST_CUDA_SDPA_BACKWARD, form,
                                      limit_bytes, NULL, &err),
             &err);
        must(mist_cuda_sdpa_backward_part(sdpa, NULL, job->dqkv, k == 0 ? room : job->dkv,
                                          job->d_out, job->qkv, job->kv, job->out,
                                          job->lse, &job->part, k, form, workspace,
                                          limit_bytes, &err),
             &err);
    }
    check_guard(room, room_bytes);
    check_guard(workspace, limit_bytes);
    gather_gradients(job, room);
    check_part_gradients(job, name);
    free(room);
    free(workspace);
    mist_cuda_sdpa_close(sdpa);
}

static void check_part(const struct mist_cpu_attention *s, int64_t n, int64_t i)
{
    int64_t group = s->heads / s->kv_heads, c = s->s / n / 2;
    int64_t head = s->s * (2 * c + (group > 1) * 4 * s->head_dim) + 4 * c;
    struct part_job job;

    print_message("# b %lld, s %lld, heads %lld/%lld x %lld, part %lld of %lld\n",
                  (long long)s->b, (long long)s->s, (long long)s->heads,
                  (long long)s->kv_heads, (long long)s->head_dim, (long long)i,
                  (long long)n);
    start_part(&job, s, n, i);
    check_part_forward(&job);
    check_part_backward(&job, MIST_CUDA_SDPA_FAST,
                        mist_cuda_attention_backward_bytes(s->b, c, s->s, s->heads,
                                                           s->kv_heads, s->head_dim),
                        "fast");
    check_part_backward(&job, MIST_CUDA_SDPA_DETERMINISTIC, s->b * s->heads * head + 256,
                        "deterministic");
    if (s->b * s->heads > group)
        check_part_backward(&job, MIST_CUDA_SDPA_DETERMINISTIC, group * head + 256,
                            "deterministic, by groups of heads");
    finish_part(&job);
}

TEST(test_parts)
{
    static const struct {
        struct mist_cpu_attention shape;
        int64_t n;
    } cases[] = {
        {{2, 512, 2, 1, 64}, 2},
        {{1, 512, 2, 2, 80}, 2},
        {{1, 1024, 2, 1, 64}, 4},
    };

    seed = test_seed(seed);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int64_t i = 0; i < cases[k].n; i++)
            if (!test_is_left_out())
                check_part(&cases[k].shape, cases[k].n, i);
}

/* ------------------------------------------------------------- what graphs consist of */

/* A descriptor, as far as it is looked at. */
struct noted {
    cudnnBackendDescriptorType_t type;
    int64_t id, dims[4], strides[4];
    cudnnPointwiseMode_t mode;
};

/* cuDNN as it is seen while a graph is described. */
static struct notes {
    struct noted *all[MIST_CUDNN_MAX_DESCRIPTORS];
    int n;
    char operations[256]; /* a word each */
} notes;

static void forget_notes(void)
{
    while (notes.n > 0)
        free(notes.all[--notes.n]);
    notes.operations[0] = '\0';
}

static cudnnStatus_t note_create(cudnnBackendDescriptorType_t type,
                                 cudnnBackendDescriptor_t *descriptor)
{
    struct noted *noted = calloc(1, sizeof *noted);

    assert_non_null(noted);
    *noted = (struct noted){.type = type, .id = -1};
    notes.all[notes.n++] = noted;
    *descriptor = noted;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t note_attribute(cudnnBackendDescriptor_t descriptor,
                                    cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, int64_t n,
                                    const void *values)
{
    struct noted *noted = descriptor;

    (void)type;
    if (name == CUDNN_ATTR_TENSOR_UNIQUE_ID)
        memcpy(&noted->id, values, sizeof noted->id);
    else if (name == CUDNN_ATTR_TENSOR_DIMENSIONS)
        memcpy(noted->dims, values, (size_t)n * sizeof(int64_t));
    else if (name == CUDNN_ATTR_TENSOR_STRIDES)
        memcpy(noted->strides, values, (size_t)n * sizeof(int64_t));
    else if (name == CUDNN_ATTR_POINTWISE_MODE)
        memcpy(&noted->mode, values, sizeof noted->mode);
    else if (name == CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)
        noted->mode = (*(struct noted *const *)values)->mode;
    return CUDNN_STATUS_SUCCESS;
}

static const char *word_of(const struct noted *noted)
{
    static const struct {
        cudnnPointwiseMode_t mode;
        const char *word;
    } modes[] = {
        {CUDNN_POINTWISE_ADD, " add"},           {CUDNN_POINTWISE_SUB, " sub"},
        {CUDNN_POINTWISE_MUL, " mul"},           {CUDNN_POINTWISE_DIV, " div"},
        {CUDNN_POINTWISE_EXP, " exp"},           {CUDNN_POINTWISE_LOG, " log"},
        {CUDNN_POINTWISE_GEN_INDEX, " index"},   {CUDNN_POINTWISE_CMP_GE, " >="},
        {CUDNN_POINTWISE_IDENTITY, " identity"}, {CUDNN_POINTWISE_BINARY_SELECT, " ?"},
    };

    if (noted->type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        return " matmul";
    if (noted->type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        return " reduce";
    if (noted->type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        return " turn";
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (noted->type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
            modes[i].mode == noted->mode)
            return modes[i].word;
    return "";
}

static cudnnStatus_t note_end(cudnnBackendDescriptor_t descriptor)
{
    strcat(notes.operations, word_of(descriptor));
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t note_nothing(cudnnBackendDescriptor_t descriptor)
{
    (void)descriptor;
    return CUDNN_STATUS_SUCCESS;
}

/* Describes the graph of all samples and heads of a shape. */
static void describe(const struct mist_sdpa_shape *shape,
                     enum mist_cuda_sdpa_direction direction,
                     enum mist_cuda_sdpa_form form)
{
    const struct mist_cudnn_api api = {.cudnnBackendCreateDescriptor = note_create,
                                       .cudnnBackendSetAttribute = note_attribute,
                                       .cudnnBackendFinalize = note_end,
                                       .cudnnBackendDestroyDescriptor = note_nothing};
    const struct mist_sdpa_chunk chunk = {*shape, shape->b, shape->heads,
                                          shape->kv_heads};
    struct mist_cudnn_graph graph;

    forget_notes();
    mist_cudnn_graph_init(&graph, &api, MIST_SDPA_N);
    if (direction == MIST_CUDA_SDPA_FORWARD)
        mist_sdpa_graph_forward(&graph, &chunk);
    else
        mist_sdpa_graph_backward(&graph, &chunk, form);
    assert_int_equal(graph.status, MIST_OK);
    mist_cudnn_graph_fini(&graph);
}

/* n: dims, then strides. All tensors of an id are the same. */
static void check_tensor(int64_t id, const int64_t n[8])
{
    int n_found = 0;

    for (int i = 0; i < notes.n; i++)
        if (notes.all[i]->id == id) {
            assert_memory_equal(notes.all[i]->dims, n, 4 * sizeof *n);
            assert_memory_equal(notes.all[i]->strides, n + 4, 4 * sizeof *n);
            n_found++;
        }
    assert_true(n_found > 0);
}
#define CHECK_TENSOR(id, ...) check_tensor((id), (const int64_t[8]){__VA_ARGS__})

/* Between the mask's parts and the rest. */
#define FORWARD_TAIL          " >= ? reduce sub exp reduce log add div matmul"
#define BACKWARD_HEAD         " mul reduce mul matmul mul sub index index"
#define SLOPES                " matmul sub mul mul turn matmul"
#define BACKWARD_TAIL         " >= ? exp turn matmul" SLOPES " turn matmul"
#define GROUPED_TAIL          " >= ? exp turn matmul reduce" SLOPES " reduce turn matmul"

/* Of whole sequences there is no shift. */
TEST(test_graph_of_whole)
{
    const struct mist_sdpa_shape shape = {.b = 2,
                                          .heads = 4,
                                          .kv_heads = 4,
                                          .head_dim = 64,
                                          .queries = 256,
                                          .keys = 256,
                                          .query_tokens = 256,
                                          .key_tokens = 256,
                                          .gradient_tokens = 256,
                                          .key_heads = 12};

    describe(&shape, MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST);
    assert_string_equal(notes.operations, " matmul mul index index" FORWARD_TAIL);
    CHECK_TENSOR(MIST_SDPA_Q, 2, 4, 256, 64, 256 * 768, 64, 768, 1);
    CHECK_TENSOR(MIST_SDPA_K, 2, 4, 64, 256, 256 * 768, 64, 1, 768);
    CHECK_TENSOR(MIST_SDPA_V, 2, 4, 256, 64, 256 * 768, 64, 768, 1);
    CHECK_TENSOR(MIST_SDPA_OUT, 2, 4, 256, 64, 256 * 256, 64, 256, 1);
    CHECK_TENSOR(MIST_SDPA_LSE, 2, 4, 256, 1, 4 * 256, 256, 1, 1);
    describe(&shape, MIST_CUDA_SDPA_BACKWARD, MIST_CUDA_SDPA_DETERMINISTIC);
    assert_string_equal(notes.operations, BACKWARD_HEAD BACKWARD_TAIL);
    CHECK_TENSOR(MIST_SDPA_DQ, 2, 4, 256, 64, 256 * 768, 64, 768, 1);
    CHECK_TENSOR(MIST_SDPA_DK, 2, 4, 256, 64, 256 * 768, 64, 768, 1);
    describe(&shape, MIST_CUDA_SDPA_BACKWARD, MIST_CUDA_SDPA_FAST);
    assert_string_equal(notes.operations, BACKWARD_HEAD BACKWARD_TAIL " identity");
    CHECK_TENSOR(MIST_SDPA_DQ_SUM, 2, 4, 256, 64, 4 * 256 * 64, 256 * 64, 64, 1);
    forget_notes();
}

/* Chunk 0 of part 1 of 2, of sequences of 512 tokens: queries from 128 on. */
TEST(test_graph_of_part)
{
    const struct mist_sdpa_shape shape = {.b = 2,
                                          .heads = 4,
                                          .kv_heads = 2,
                                          .head_dim = 64,
                                          .queries = 128,
                                          .keys = 256,
                                          .query_tokens = 256,
                                          .key_tokens = 512,
                                          .gradient_tokens = 256,
                                          .key_heads = 4};
    struct mist_sdpa_shape first = shape;

    describe(&shape, MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST);
    assert_string_equal(notes.operations, " matmul mul index index add sub" FORWARD_TAIL);
    CHECK_TENSOR(MIST_SDPA_Q, 2, 4, 128, 64, 256 * 512, 64, 512, 1);
    CHECK_TENSOR(MIST_SDPA_K, 2, 2, 64, 256, 512 * 256, 64, 1, 256);
    CHECK_TENSOR(MIST_SDPA_V, 2, 2, 256, 64, 512 * 256, 64, 256, 1);
    CHECK_TENSOR(MIST_SDPA_OUT, 2, 4, 128, 64, 256 * 256, 64, 256, 1);
    CHECK_TENSOR(MIST_SDPA_LSE, 2, 4, 128, 1, 4 * 128, 128, 1, 1);
    CHECK_TENSOR(MIST_SDPA_N_KEYS, 1, 1, 1, 1, 1, 1, 1, 1);
    CHECK_TENSOR(MIST_SDPA_N_QUERIES, 1, 1, 1, 1, 1, 1, 1, 1);
    describe(&shape, MIST_CUDA_SDPA_BACKWARD, MIST_CUDA_SDPA_FAST);
    assert_string_equal(notes.operations,
                        BACKWARD_HEAD " add sub" GROUPED_TAIL " identity");
    CHECK_TENSOR(MIST_SDPA_D_OUT, 2, 4, 128, 64, 256 * 256, 64, 256, 1);
    CHECK_TENSOR(MIST_SDPA_DQ, 2, 4, 128, 64, 256 * 512, 64, 512, 1);
    CHECK_TENSOR(MIST_SDPA_DK, 2, 2, 256, 64, 256 * 256, 64, 256, 1);
    CHECK_TENSOR(MIST_SDPA_DV, 2, 2, 256, 64, 256 * 256, 64, 256, 1);
    CHECK_TENSOR(MIST_SDPA_DELTA, 2, 4, 128, 1, 4 * 128, 128, 1, 1);
    CHECK_TENSOR(MIST_SDPA_DQ_SUM, 2, 4, 128, 64, 4 * 128 * 64, 128 * 64, 64, 1);
    /* that of part 0 begins where the keys do */
    first.keys = first.gradient_tokens = 128;
    describe(&first, MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST);
    assert_string_equal(notes.operations, " matmul mul index index" FORWARD_TAIL);
    forget_notes();
}

TEST_MAIN(NULL, NULL)
#endif
