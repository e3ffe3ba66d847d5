/*
 * sim/replay_size: the estimate against what malloc hands out at the peak of replays and
 * checks of many shapes, and refusals.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* malloc_usable_size */
#endif
#include "tests/unit/test.h"

#include "core/host_memory.h"
#include "sim/replay/rank_set.h"
#include "sim/replay/replay.h"
#include "tests/unit/flat_cluster.h"
#include "tests/unit/tiny_models.h"

#include <malloc.h>
#include <math.h>
#include <sys/resource.h>

/* ---- bytes that malloc handed out; one thread ---- */

static int64_t live_bytes, peak_bytes;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_BYTES 1
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void __libc_free(void *memory);

static void *count(void *memory)
{
    live_bytes += (int64_t)malloc_usable_size(memory);
    peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
    return memory;
}

void *malloc(size_t size)
{
    return count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
    return count(__libc_calloc(n, size));
}

void *realloc(void *memory, size_t size)
{
    int64_t before = (int64_t)malloc_usable_size(memory);
    void *grown = __libc_realloc(memory, size);

    live_bytes -= grown ? before : 0;
    return grown ? count(grown) : NULL;
}

void free(void *memory)
{
    live_bytes -= (int64_t)malloc_usable_size(memory);
    __libc_free(memory);
}
#else
#define COUNTS_BYTES 0
#endif

/* ---- plans ---- */

static const struct shape {
    int n_stages, dp, tp, n_layers, n_micro_batches, zero, n_iterations;
    bool is_unfolded, has_timeline, offloads;
    bool is_unequal; /* every second stage has tp 1: ranks of the others differ */
    double jitter_frac;
} SHAPES[] = {
    {8, 1, 1, 24, 64, 0, 2, false, true, false, false, 0},
    {4, 1, 1, 8, 128, 0, 50, false, true, false, false, 0},
    {4, 64, 1, 4, 16, 0, 2, true, true, false, false, 0},
    {4, 64, 4, 4, 16, 2, 2, true, false, false, false, 0},
    {2, 32, 4, 6, 8, 3, 4, true, true, false, false, 0},
    {2, 256, 2, 3, 4, 1, 1, true, true, true, false, 0},
    {8, 2, 2, 3, 32, 3, 20, true, true, true, false, 0},
    {1, 1024, 1, 12, 2, 2, 2, true, false, false, false, 0},
    {3, 1, 2, 16, 128, 3, 30, false, false, true, false, 0},
    {4, 16, 4, 8, 64, 1, 2, true, false, false, true, 0},
    {4, 16, 4, 8, 16, 1, 2, true, true, false, true, 0},
    {4, 64, 2, 4, 32, 0, 2, true, false, false, false, 0.1},
};
enum { N_SHAPES = sizeof SHAPES / sizeof *SHAPES };

struct fixture {
    struct mist_plan plan;
    struct mist_trace_set traces;
    struct mist_cost_model *model;
};

static void make_plan(struct mist_plan *plan, const struct shape *shape)
{
    memset(plan, 0, sizeof *plan);
    plan->model = (struct mist_model){
        .name = "small",
        .family = MIST_FAMILY_GPT,
        .n_layers = shape->n_stages * shape->n_layers,
        .hidden = 64,
        .n_heads = 4,
        .n_kv_heads = 4,
        .head_dim = 16,
        .ffn = 128,
        .vocab = 64,
        .max_seq = 16,
        .has_bias = true,
        .norm_epsilon = 1e-5,
    };
    plan->job = (struct mist_job){.global_batch = shape->dp * shape->n_micro_batches,
                                  .seq_len = 8};
    plan->n_micro_batches = shape->n_micro_batches;
    plan->n_stages = shape->n_stages;
    for (int i = 0; i < shape->n_stages; i++) {
        int tp = shape->is_unequal && i % 2 ? 1 : shape->tp;
        plan->stages[i] = mist_tiny_stage(shape->n_layers, 1, shape->dp, tp);
        plan->stages[i].zero = shape->zero;
        plan->stages[i].offload_optimizer = shape->offloads ? 1 : 0;
        plan->stages[i].offload_activations = shape->offloads ? 0.5 : 0;
    }
    assert_int_equal(mist_plan_check(plan, NULL), MIST_OK);
}

static void start(struct fixture *at, const struct shape *shape)
{
    make_plan(&at->plan, shape);
    flat_cluster_init(&at->traces, 64);
    assert_int_equal(mist_cost_model_new(&at->traces, &at->model, NULL), MIST_OK);
}

static void stop(struct fixture *at)
{
    mist_cost_model_free(at->model);
    mist_trace_set_fini(&at->traces);
}

static double estimate(const struct fixture *at, const struct mist_replay_work *work)
{
    struct mist_rank_set set = {0};
    struct mist_replay_stage_size stages[8] = {{0}};
    struct mist_err err;

    must(mist_rank_set_build(&at->plan, 1, work, &set, &err), &err);
    for (int32_t i = 0; i < set.n_programs; i++) {
        struct mist_replay_stage_size *of = &stages[set.programs[i].schedule->i_stage];
        of->schedule = of->n_programs ? of->schedule : set.programs[i].schedule;
        of->n_lanes = of->n_programs++ ? of->n_lanes : set.programs[i].n_lanes;
    }
    double bytes = mist_replay_size_bytes(&at->plan, stages, work);
    mist_rank_set_fini(&set);
    return bytes;
}

/* ---- tests ---- */

static void expect_near(const char *what, size_t i, double estimated, int64_t real)
{
    print_message("%s of shape %zu: %.1f MiB estimated, %.1f MiB taken, %.3f\n", what, i,
                  estimated / 0x1p20, (double)real / 0x1p20, estimated / (double)real);
    assert_true(estimated > 5e5); /* small ones prove little */
    if (COUNTS_BYTES)
        assert_true(estimated > 0.8 * (double)real && estimated < 1.25 * (double)real);
}

TEST(test_replays)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct fixture at;
        struct mist_replay_result result;
        struct mist_err err;
        const struct mist_replay_options options = {
            .n_iterations = SHAPES[i].n_iterations,
            .folding =
                SHAPES[i].is_unfolded ? MIST_REPLAY_FOLD_NEVER : MIST_REPLAY_FOLD_AUTO,
            .threads = 1,
            .skips_timeline = !SHAPES[i].has_timeline,
            .jitter_frac = SHAPES[i].jitter_frac,
        };
        const struct mist_replay_work work = {
            .n_iterations = SHAPES[i].n_iterations,
            .has_timeline = SHAPES[i].has_timeline,
            .has_jitter = SHAPES[i].jitter_frac > 0,
            .why_all = SHAPES[i].is_unfolded ? "asked for" : NULL,
        };
        start(&at, &SHAPES[i]);
        double estimated = estimate(&at, &work);
        int64_t before = live_bytes;
        peak_bytes = before;
        if (mist_replay_run(&at.plan, at.model, &options, &result, &err) != MIST_OK)
            fail_msg("shape %zu: %s", i, err.message);
        assert_int_equal(result.is_folded, !SHAPES[i].is_unfolded);
        expect_near("replay", i, estimated, peak_bytes - before);
        mist_replay_result_fini(&result);
        stop(&at);
    }
}

TEST(test_checks)
{
    const struct mist_replay_work work = {.is_check = true};

    for (size_t i = 0; i < N_SHAPES; i++) {
        struct fixture at;
        start(&at, &SHAPES[i]);
        double estimated = estimate(&at, &work);
        int64_t before = live_bytes;
        peak_bytes = before;
        assert_int_equal(mist_replay_check(&at.plan, 1, NULL), MIST_OK);
        expect_near("check", i, estimated, peak_bytes - before);
        stop(&at);
    }
}

/* More than there is, and schedules that could never be built. */
TEST(test_refusals)
{
    struct fixture at;
    struct mist_err err = {0};
    struct mist_replay_work work = {.n_iterations = 2, .why_all = "there is jitter"};

    start(&at, &SHAPES[2]);
    assert_int_equal(mist_replay_size_check(1e6, &at.plan, &work, &err), MIST_OK);
    assert_int_equal(mist_replay_size_check(1e18, &at.plan, &work, &err),
                     MIST_ERR_NO_PLAN);
    assert_int_equal(mist_exit_code(MIST_ERR_NO_PLAN), 4);
    assert_non_null(
        strstr(err.message, "replaying 2 iterations of 256 ranks takes about 888 PiB"));
    assert_non_null(strstr(err.message, "there is jitter"));
    work.why_all = NULL;
    assert_int_equal(mist_replay_size_check(1e30, &at.plan, &work, &err),
                     MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "of 4 ranks"));
    at.plan.n_micro_batches = 1 << 30;
    at.plan.job.global_batch = 8 << 27;
    at.plan.stages[0].n_layers = 1 << 20; /* no schedule of these could be built */
    int64_t before = live_bytes;
    peak_bytes = before;
    assert_int_equal(mist_replay_check(&at.plan, 1, &err), MIST_ERR_NO_PLAN);
    assert_non_null(strstr(err.message, "the schedule of a rank takes"));
    assert_true(peak_bytes - before < 100000);
    stop(&at);
}

/* What a limit of the address space leaves is what is available. */
TEST(test_available)
{
    struct rlimit limit, less;
    int64_t before = mist_host_memory_available_bytes();

    assert_true(before > 1 << 20);
    if (!COUNTS_BYTES) /* sanitizers reserve terabytes */
        return;
    assert_int_equal(getrlimit(RLIMIT_AS, &limit), 0);
    less = limit;
    less.rlim_cur = (rlim_t)1 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    int64_t after = mist_host_memory_available_bytes();
    assert_int_equal(setrlimit(RLIMIT_AS, &limit), 0);
    assert_true(after < 1 << 30 && after > 1 << 26);
}

TEST_MAIN(NULL, NULL)
