/*
 * Builds attention plans with cuDNN for a described H200, on a machine without a GPU: a
 * stand-in for the driver (tests/emulation/libcuda_stand_in.c) takes the kernels that
 * cuDNN compiles. Every plan's workspace has to stay within the closed form that memory
 * is planned with.
 *
 * A plan takes about half a second, so the default is a few shapes; MIST_ALL_PLANS=1
 * builds those of every preset, some minutes. Skips without the CUDA toolkit, or where
 * libcudnn.so.9 can't be loaded.
 */
#include "exec/cuda/attention_cudnn.h"
#include "sim/model/model.h"

#include "tests/unit/attention_workspace.h"
#include "tests/unit/test.h"

#include <dlfcn.h>
#include <unistd.h> /* readlink */

/* What cuDNN 9.19 was seen to want, for 4 x 32/8 x 4096 x 128 268,435,712 bytes in the
 * fast form and 4,563,403,008 in the deterministic one, and our own buffers. */
TEST(test_closed_form)
{
    int64_t dq = 4LL * 32 * 4096 * 128 * 4, delta = 4LL * 32 * 4096 * 4;

    /* 5 parts, as 4 are larger than 1 GiB */
    assert_int_equal(mist_cuda_attention_workspace_bytes(4, 4096, 32, 8, 128, true),
                     256 + delta + (4563403008 - 256 + 4) / 5);
    /* exactly 1 GiB */
    assert_int_equal(mist_cuda_attention_workspace_bytes(8, 2048, 16, 16, 128, true),
                     256 + 8 * 2048 * 16 * 4 + (1 << 30));
    /* a short sequence has less of dS than of the fast form's dq, dk and dv */
    assert_int_equal(mist_cuda_attention_workspace_bytes(4, 128, 32, 8, 128, true),
                     256 + (268435456 + dq + delta) / 32);
    /* a group of 8 heads is more than 1 GiB; of 16 times as much it is too much */
    assert_int_equal(mist_cuda_attention_workspace_bytes(2, 8192, 8, 1, 128, true),
                     256 + 2 * 8 * 8192 * 4 + 8LL * 8192 * (2 * 8192 + 512));
    assert_int_equal(mist_cuda_attention_workspace_bytes(1, 32768, 8, 1, 128, true),
                     256 + 8 * 32768 * 4 + 8LL * 32768 * (2 * 32768 + 512) / 17 + 1);
    assert_int_equal(mist_cuda_attention_workspace_bytes(4, 4096, 32, 8, 128, false),
                     256);
}

static int64_t planned_bytes(const struct mist_layer_layout *layout, bool is_backward)
{
    const struct mist_step *steps = is_backward ? layout->backward : layout->forward;
    int32_t n = mist_layer_layout_n_steps(layout, is_backward);

    for (int32_t i = 0; i < n; i++)
        if (mist_op_is_attention(steps[i].op))
            return steps[i].workspace_bytes;
    return -1;
}

/* The catalogue plans that of parts; in fp32, where attention is the own kernels', what
 * their sums take. */
TEST(test_planned_for_parts)
{
    static const struct mist_cpu_attention shapes[] = {{1, 1024, 4, 2, 64},
                                                       {4, 8192, 32, 8, 128},
                                                       {2, 65536, 8, 1, 128},
                                                       {3, 512, 2, 2, 64}};
    static struct mist_layer_layout layout;
    struct mist_err err;

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int32_t n = 2; n <= 4; n *= 2) {
            const struct mist_cpu_attention *s = &shapes[i];
            struct mist_model model = {.name = "attention",
                                       .family = MIST_FAMILY_LLAMA,
                                       .n_layers = 1,
                                       .hidden = (int32_t)(s->heads * s->head_dim),
                                       .n_heads = (int32_t)s->heads,
                                       .n_kv_heads = (int32_t)s->kv_heads,
                                       .head_dim = (int32_t)s->head_dim,
                                       .ffn = 64,
                                       .vocab = 64,
                                       .norm_epsilon = 1e-5,
                                       .rope_theta = 1e4};
            struct mist_layer_shape at = {.micro_batch = (int32_t)s->b,
                                          .seq = (int32_t)s->s,
                                          .tp = 1,
                                          .cp = n,
                                          .dtype = MIST_DTYPE_BF16};
            must(mist_model_check(&model, &err), &err);
            for (int k = 0; k < 2; k++) {
                must(mist_layer_layout_make(&model, MIST_LAYER_BLOCK, at, &layout, &err),
                     &err);
                assert_int_equal(planned_bytes(&layout, k == 1),
                                 mist_cuda_attention_part_bytes(s->b, s->s, s->heads,
                                                                s->kv_heads, s->head_dim,
                                                                n, k == 1));
            }
            at.dtype = MIST_DTYPE_FP32;
            must(mist_layer_layout_make(&model, MIST_LAYER_BLOCK, at, &layout, &err),
                 &err);
            assert_int_equal(planned_bytes(&layout, false), 0);
            assert_int_equal(planned_bytes(&layout, true),
                             4 * s->b * s->heads * s->s / n);
        }
}

#if defined(__has_include)
#if __has_include(<cudnn.h>)
#define HAS_CUDNN 1
#endif
#endif

#ifndef HAS_CUDNN
TEST(test_plans)
{
    print_message("# no cudnn.h: the plans are not tested\n");
    skip();
}

TEST_MAIN(NULL, NULL)
#else

/* What NVIDIA publishes about the H200 (compute capability 9.0), in cuDNN's keys. */
static const char h200[] =
    "{\"deviceName\": \"NVIDIA H200\", \"deviceVer\": 900, \"driverVer\": 13000,"
    " \"cudaDeviceId\": 0, \"pciDeviceId\": 0, \"isTccDriver\": 0,"
    " \"multiProcessorCount\": 132, \"warpSize\": 32, \"supportCoopLaunch\": 1,"
    " \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
    " \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"maxCtasPerSM\": 32,"
    " \"regsPerBlock\": 65536, \"maxRegistersPerSM\": 65536,"
    " \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 232448,"
    " \"reservedSharedMemoryPerBlock\": 1024, \"l2CacheSize\": 62914560,"
    " \"smClockRateKHz\": 1980000, \"memClockRateKHz\": 3201000,"
    " \"totalGlobalMem\": 150754820096}";

/* The A100, likewise. */
static const char a100[] =
    "{\"deviceName\": \"NVIDIA A100-SXM4-80GB\", \"deviceVer\": 800,"
    " \"driverVer\": 13000,"
    " \"cudaDeviceId\": 0, \"pciDeviceId\": 0, \"isTccDriver\": 0,"
    " \"multiProcessorCount\": 108, \"warpSize\": 32, \"supportCoopLaunch\": 1,"
    " \"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64],"
    " \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 2048, \"maxCtasPerSM\": 32,"
    " \"regsPerBlock\": 65536, \"maxRegistersPerSM\": 65536,"
    " \"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": 166912,"
    " \"reservedSharedMemoryPerBlock\": 1024, \"l2CacheSize\": 41943040,"
    " \"smClockRateKHz\": 1410000, \"memClockRateKHz\": 1593000,"
    " \"totalGlobalMem\": 85899345920}";

/* ../emulation/libcuda.so.1 from this program: cuDNN finds a library of that name loaded
 * and looks for no other. */
static bool load_driver(void)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 64);

    if (n <= 0)
        return false;
    path[n] = '\0';
    strcpy(strrchr(path, '/'), "/../emulation/libcuda.so.1");
    return dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
}

static int open_context(void **state)
{
    struct mist_cuda_sdpa *sdpa = NULL;
    struct mist_err err = {.message = "the stand-in for libcuda.so.1 can't be loaded"};

    if (!load_driver() || mist_cuda_sdpa_open(NULL, h200, &sdpa, &err) != MIST_OK)
        print_message("# the plans are not tested: %s\n", err.message);
    else
        print_message("# cuDNN %lld\n", (long long)mist_cuda_sdpa_version(sdpa));
    *state = sdpa;
    return 0;
}

static int close_context(void **state)
{
    mist_cuda_sdpa_close(*state);
    return 0;
}

static void print_plan(const struct mist_cpu_attention *shape, const char *name,
                       const struct mist_cuda_sdpa_plan *plan, int64_t limit_bytes)
{
    print_message("# b %lld, s %4lld, heads %3lld/%3lld x %3lld, %-13s engine %lld,"
                  " %11lld bytes of %11lld, cuDNN's %11lld, chunk %lld x %lld\n",
                  (long long)shape->b, (long long)shape->s, (long long)shape->heads,
                  (long long)shape->kv_heads, (long long)shape->head_dim, name,
                  (long long)plan->engine, (long long)plan->workspace_bytes,
                  (long long)limit_bytes, (long long)plan->engine_bytes,
                  (long long)plan->chunk_b, (long long)plan->chunk_heads);
}

/* All of these shapes have deterministic plans, in one piece where that is small. */
static void check_deterministic(struct mist_cuda_sdpa *sdpa,
                                const struct mist_cpu_attention *shape, int64_t limit)
{
    struct mist_cuda_sdpa_plan plan;
    struct mist_err err;
    int64_t group = shape->heads / shape->kv_heads, head_bytes = 2 * shape->s * shape->s;
    enum mist_status status =
        mist_cuda_sdpa_plan(sdpa, shape, MIST_CUDA_SDPA_BACKWARD,
                            MIST_CUDA_SDPA_DETERMINISTIC, limit, &plan, &err);

    if (status != MIST_OK)
        fail_msg("deterministic: %s", err.message);
    print_plan(shape, "deterministic", &plan, limit);
    assert_true(plan.workspace_bytes <= limit);
    assert_int_equal(shape->b % plan.chunk_b, 0);
    assert_int_equal(shape->kv_heads % plan.chunk_kv_heads, 0);
    assert_int_equal(plan.chunk_heads, plan.chunk_kv_heads * group);
    if (group == 1 && shape->b * shape->heads * head_bytes <= 1 << 30)
        assert_int_equal(plan.chunk_b * plan.chunk_heads, shape->b * shape->heads);
}

static void check_shape(struct mist_cuda_sdpa *sdpa,
                        const struct mist_cpu_attention *shape)
{
    static const char *const names[] = {"forward", "backward"};
    struct mist_cuda_sdpa_plan plan, again;
    struct mist_err err;
    int64_t limit = 0;

    assert_true(mist_cuda_sdpa_is_trusted(shape));
    for (int i = 0; i < 2; i++) {
        limit = mist_cuda_attention_workspace_bytes(
            shape->b, shape->s, shape->heads, shape->kv_heads, shape->head_dim, i == 1);
        if (mist_cuda_sdpa_plan(sdpa, shape, (enum mist_cuda_sdpa_direction)i,
                                MIST_CUDA_SDPA_FAST, limit, &plan, &err) != MIST_OK)
            fail_msg("%s: %s", names[i], err.message);
        print_plan(shape, names[i], &plan, limit);
        assert_true(plan.workspace_bytes <= limit);
        assert_in_range(plan.engine_bytes, 0, plan.workspace_bytes);
        assert_int_equal(plan.chunk_b, shape->b);
        assert_int_equal(plan.chunk_heads, shape->heads);
        assert_int_equal(mist_cuda_sdpa_plan(sdpa, shape,
                                             (enum mist_cuda_sdpa_direction)i,
                                             MIST_CUDA_SDPA_FAST, limit, &again, NULL),
                         MIST_OK);
        assert_memory_equal(&again, &plan, sizeof plan);
    }
    check_deterministic(sdpa, shape, limit);
}

/* The widths of head, grouped queries, and shards of tensor parallelism. */
TEST(test_some_plans)
{
    static const struct mist_cpu_attention shapes[] = {
        {1, 128, 4, 2, 64},     /* the least that is trusted */
        {4, 2048, 12, 12, 64},  /* gpt3-125m */
        {1, 2048, 16, 16, 96},  /* gpt3-760m */
        {2, 4096, 32, 32, 80},  /* gpt3-2.7b */
        {1, 4096, 32, 32, 128}, /* llama-7b */
        {2, 4096, 64, 8, 128},  /* llama2-70b */
        {1, 2048, 16, 1, 128},  /* llama3-405b over 8 ranks */
        {2, 8192, 8, 1, 128},   /* llama3-70b over 8 ranks: a group is more than 1 GiB */
    };

    if (!*state)
        skip();
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!test_is_left_out())
            check_shape(*state, &shapes[i]);
}

/* Both chunks of a part, within what is planned for any part. */
static void check_part(struct mist_cuda_sdpa *sdpa,
                       const struct mist_cpu_attention *shape, int64_t n, int64_t i)
{
    static const char *const names[] = {"forward", "backward", "deterministic"};
    const struct mist_cpu_attention_part part = {*shape, n, i};
    struct mist_cuda_sdpa_plan plan;
    struct mist_err err;

    print_message("# part %lld of %lld:\n", (long long)i, (long long)n);
    for (int k = 0; k < 6; k++) {
        int i_chunk = k / 3, what = k % 3;
        bool is_backward = what > 0;
        int64_t keys = mist_cuda_sdpa_part_keys(&part, i_chunk);
        int64_t limit = mist_cuda_attention_part_bytes(shape->b, shape->s, shape->heads,
                                                       shape->kv_heads, shape->head_dim,
                                                       n, is_backward);
        if (is_backward && i_chunk == 0)
            limit -= mist_cuda_attention_room_bytes(shape->b, keys, shape->kv_heads,
                                                    shape->head_dim);
        if (mist_cuda_sdpa_plan_part(
                sdpa, &part, i_chunk,
                is_backward ? MIST_CUDA_SDPA_BACKWARD : MIST_CUDA_SDPA_FORWARD,
                what == 2 ? MIST_CUDA_SDPA_DETERMINISTIC : MIST_CUDA_SDPA_FAST, limit,
                &plan, &err) != MIST_OK)
            fail_msg("%s: %s", names[what], err.message);
        print_plan(&(struct mist_cpu_attention){shape->b, keys, shape->heads,
                                                shape->kv_heads, shape->head_dim},
                   names[what], &plan, limit);
        assert_true(plan.workspace_bytes <= limit);
        if (what < 2)
            assert_int_equal(plan.chunk_b * plan.chunk_heads, shape->b * shape->heads);
    }
}

TEST(test_plans_of_parts)
{
    const char *wish = getenv("MIST_ALL_PLANS");
    bool is_all = wish && strcmp(wish, "1") == 0;
    static const struct {
        struct mist_cpu_attention shape;
        int64_t n, i;
    } cases[] = {
        {{1, 1024, 4, 2, 64}, 4, 1}, /* the least that is trusted */
        {{2, 4096, 32, 32, 80}, 2, 0},
        {{2, 8192, 32, 8, 128}, 2, 1},
        {{1, 16384, 8, 1, 128}, 4, 3},
    };

    if (!*state)
        skip();
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (int64_t i = 0; i < cases[k].n; i++)
            if (is_all || (i == cases[k].i && !test_is_left_out()))
                check_part(*state, &cases[k].shape, cases[k].n, i);
}

static bool is_listed(const char *name)
{
    return strncmp(name, "gpt3-", 5) == 0 || strncmp(name, "llama", 5) == 0;
}

TEST(test_all_plans)
{
    const char *wish = getenv("MIST_ALL_PLANS");
    int64_t seen[64], n_seen = 0;

    if (!*state || !wish || strcmp(wish, "1") != 0)
        skip();
    const char *name;
    for (int32_t i = 0; (name = mist_model_preset_name(i)); i++) {
        struct mist_model model;
        assert_int_equal(mist_model_load_preset(name, &model, NULL), MIST_OK);
        int64_t key =
            (int64_t)model.n_heads * 1000000 + model.n_kv_heads * 1000 + model.head_dim;
        bool is_new = is_listed(name) && n_seen < 64;
        for (int64_t j = 0; j < n_seen; j++)
            is_new = is_new && seen[j] != key;
        if (!is_new)
            continue;
        seen[n_seen++] = key;
        print_message("# %s\n", name);
        for (int64_t s = 2048; s <= 4096; s *= 2)
            for (int64_t b = 1; b <= 4; b *= 2)
                check_shape(*state, &(struct mist_cpu_attention){b, s, model.n_heads,
                                                                 model.n_kv_heads,
                                                                 model.head_dim});
    }
}

/* Chunks of a context-parallel rank. */
static void check_ampere_part(struct mist_cuda_sdpa *sdpa)
{
    const struct mist_cpu_attention_part part = {{2, 1024, 8, 2, 128}, 2, 1};
    const struct mist_cpu_attention *s = &part.whole;
    int64_t limit = mist_cuda_attention_part_bytes(s->b, s->s, s->heads, s->kv_heads,
                                                   s->head_dim, part.n, true);
    struct mist_cuda_sdpa_plan plan;
    struct mist_err err;

    for (int i = 0; i < 2; i++)
        for (int form = 0; form < 2; form++) {
            int64_t keys = mist_cuda_sdpa_part_keys(&part, i);
            int64_t room = i == 1 ? 0
                                  : mist_cuda_attention_room_bytes(
                                        s->b, keys, s->kv_heads, s->head_dim);
            must(mist_cuda_sdpa_plan_part(sdpa, &part, i, MIST_CUDA_SDPA_BACKWARD,
                                          (enum mist_cuda_sdpa_form)form, limit - room,
                                          &plan, &err),
                 &err);
            print_plan(s, form ? "deterministic" : "fast", &plan, limit - room);
            assert_true(plan.workspace_bytes <= limit - room);
        }
}

/* On an A100 the fast form wants more than is planned; it gets by with parts. */
TEST(test_ampere)
{
    static const struct mist_cpu_attention shapes[] = {{1, 128, 4, 2, 64},
                                                       {64, 512, 32, 8, 128}};
    struct mist_cuda_sdpa *sdpa = NULL;
    struct mist_cuda_sdpa_plan plan;
    struct mist_err err;

    if (!*state)
        skip();
    must(mist_cuda_sdpa_open(NULL, a100, &sdpa, &err), &err);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct mist_cpu_attention *shape = &shapes[i];
        int64_t limit = mist_cuda_attention_workspace_bytes(
            shape->b, shape->s, shape->heads, shape->kv_heads, shape->head_dim, true);
        must(mist_cuda_sdpa_plan(sdpa, shape, MIST_CUDA_SDPA_BACKWARD,
                                 MIST_CUDA_SDPA_FAST, limit, &plan, &err),
             &err);
        print_plan(shape, "fast", &plan, limit);
        assert_true(plan.workspace_bytes <= limit);
        assert_int_equal(plan.chunk_b * plan.chunk_heads * 2, shape->b * shape->heads);
        check_deterministic(sdpa, shape, limit);
    }
    check_ampere_part(sdpa);
    mist_cuda_sdpa_close(sdpa);
}

TEST(test_refusals)
{
    static const struct mist_cpu_attention untrusted[] = {
        {1, 2000, 16, 16, 64},   {1, 1, 16, 16, 64},   {1, 2048, 16, 16, 72},
        {1, 2048, 16, 16, 256},  {128, 128, 4, 4, 64}, {1, 2048, 16, 3, 64},
        {64, 8192, 64, 64, 128}, {0, 128, 1, 1, 64},   {1, 128, 0, 0, 64},
    };
    const struct mist_cpu_attention shape = {1, 1024, 1, 1, 64};
    const struct mist_cpu_attention_part part = {{1, 1024, 1, 1, 64}, 8, 0};
    int64_t need = 256 + 1024 * 4 * (1 + 64);
    struct mist_err err;

    if (!*state)
        skip();
    for (size_t i = 0; i < sizeof untrusted / sizeof *untrusted; i++)
        assert_int_equal(mist_cuda_sdpa_plan(*state, &untrusted[i],
                                             MIST_CUDA_SDPA_FORWARD, MIST_CUDA_SDPA_FAST,
                                             INT64_MAX, NULL, NULL),
                         MIST_ERR_NO_PLAN);
    assert_int_equal(mist_cuda_sdpa_plan_part(*state, &part, 0, MIST_CUDA_SDPA_FORWARD,
                                              MIST_CUDA_SDPA_FAST, INT64_MAX, NULL, &err),
                     MIST_ERR_NO_PLAN);
    print_message("# %s\n", err.message);
    /* 256 bytes less than a head needs */
    assert_int_equal(mist_cuda_sdpa_plan(*state, &shape, MIST_CUDA_SDPA_BACKWARD,
                                         MIST_CUDA_SDPA_FAST, need - 256, NULL, &err),
                     MIST_ERR_NO_PLAN);
    print_message("# %s\n", err.message);
    /* not to be executed: there is no device */
    assert_int_equal(mist_cuda_sdpa_plan(*state, &shape, MIST_CUDA_SDPA_FORWARD,
                                         MIST_CUDA_SDPA_FAST, need, NULL, NULL),
                     MIST_OK);
    assert_int_equal(
        mist_cuda_sdpa_forward(*state, NULL, NULL, NULL, NULL, &shape, NULL, need, &err),
        MIST_ERR_RUN);
}

/* A device that cuDNN can't make sense of, and a library that is not there. */
TEST(test_failing_to_open)
{
    struct mist_cuda_sdpa *sdpa = NULL;
    struct mist_err err;

    assert_int_equal(mist_cuda_sdpa_open("/nowhere/libcudnn.so.9", h200, &sdpa, &err),
                     MIST_ERR_RUN);
    print_message("# %s\n", err.message);
    if (!*state)
        skip();
    assert_int_equal(mist_cuda_sdpa_open(NULL, "{\"deviceVer\": ", &sdpa, &err),
                     MIST_ERR_RUN);
    print_message("# %s\n", err.message);
    assert_int_equal(mist_cuda_sdpa_open(NULL, NULL, &sdpa, &err), MIST_ERR_RUN);
    print_message("# %s\n", err.message);
    assert_null(sdpa);
}

TEST_MAIN(open_context, close_context)
#endif
