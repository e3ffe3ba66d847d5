/*
 * exec/runtime: numbers that are not finite are named by rank, step, layer and tensor,
 * also when two streams find some at once. Rank 0 of two data-parallel ranks has
 * operators that say so of one slab in the sum of squares, on compute, and of another
 * slab of the same block in the look before the sum over ranks, on gpu_gpu. Where both
 * do, each waits inside for the other, by atomics that order nothing else: so a thread
 * sanitizer sees whatever the two streams share without being told to.
 */
#include "tests/unit/test.h"

#include "exec/runtime/runtime.h"
#include "tests/unit/comm_job.h"
#include "tests/unit/tiny_models.h"

#include <sched.h>

enum { SEQ = 16, N_LAYERS = 2 };

/* Half of a block's optimizer state lies in the host's memory: so it has two slabs. Rank
 * 0 sums the squares of the first halves. */
enum { LAYER = 2, NORM_SLAB = 0, REDUCE_SLAB = 1 };
#define NORM_PARAM   "qkv.weight"
#define REDUCE_PARAM "down.weight"
#define NORM_FAULT   "rank 0, step 1, layer 2: the gradient of qkv.weight is not finite"
#define REDUCE_FAULT "rank 0, step 1, layer 2: the gradient of down.weight is not finite"
#define ADVICE                                                                           \
    "; lower --lr, clip gradients, or go on without such steps by --on-nan skip"

/* --------------------------------------------------------------------- rank of a job */

static struct mist_plan plan;
static struct mist_schedule *schedule;
static struct mist_device *device;
static bool norm_finds, reduce_finds;
static atomic_int n_there;

static void meet(void)
{
    double give_up_s = mist_clock_now_s() + 30;

    atomic_fetch_add_explicit(&n_there, 1, memory_order_relaxed);
    while (norm_finds && reduce_finds &&
           atomic_load_explicit(&n_there, memory_order_relaxed) < 2) {
        CHECK(mist_clock_now_s() < give_up_s);
        sched_yield();
    }
}

/* Whether a task leaves its results here. */
static bool is_of(const struct mist_tally *tally, enum mist_task_kind kind, int32_t slab)
{
    const struct mist_tally *tallies = mist_device_results(device);
    const struct mist_task *task = &schedule->tasks[tally - tallies];

    return task->kind == kind && task->layer == LAYER && task->slab == slab;
}

/* The first element of a parameter in its slab. */
static int64_t element_of(const char *param)
{
    const struct mist_layer_layout *layout =
        &schedule->layouts[mist_schedule_layer_kind(&plan.model, LAYER)];
    int32_t i = 0;

    while (i < layout->n_params && strcmp(layout->params[i].name, param) != 0)
        i++;
    CHECK(i < layout->n_params);
    return mist_schedule_storage(schedule, LAYER)->param_offset[i];
}

static void note(struct mist_tally *tally, int64_t index)
{
    tally->n_nonfinite++;
    mist_tally_note_nonfinite(tally, index);
}

static void find_nonfinite(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                           struct mist_tally *tally, int32_t n_threads)
{
    mist_operators_cpu.find_nonfinite(backend, dtype, x, n, tally, n_threads);
    if (!reduce_finds || !is_of(tally, MIST_TASK_REDUCE_GRADIENT, REDUCE_SLAB))
        return;
    note(tally, element_of(REDUCE_PARAM));
    meet();
}

/* Called once for each parameter of the rank's shard. */
static void sum_squares(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                        int64_t index_offset, struct mist_tally *tally, int32_t n_threads)
{
    mist_operators_cpu.sum_squares(backend, dtype, x, n, index_offset, tally, n_threads);
    if (!norm_finds || !is_of(tally, MIST_TASK_GRADIENT_NORM, NORM_SLAB) ||
        index_offset != element_of(NORM_PARAM))
        return;
    note(tally, index_offset + n - 1);
    meet();
}

static void make_plan(void)
{
    plan = (struct mist_plan){
        .model = mist_small_model(MIST_FAMILY_GPT, N_LAYERS, 257),
        .job = {.global_batch = 2, .seq_len = SEQ},
        .n_micro_batches = 1,
        .n_stages = 1,
        .stages = {mist_tiny_stage(N_LAYERS, 1, 2, 1)},
    };
    plan.stages[0].offload_optimizer = 0.5;
    CHECK(mist_plan_check(&plan, &err) == MIST_OK);
}

/* One step of this rank; skips: one that is not finite is no error. */
static enum mist_status run_step(bool skips, struct mist_step_result *result)
{
    static int32_t tokens[SEQ];
    struct mist_collectives *collectives;
    struct mist_runtime *runtime;
    struct mist_operators operators = mist_operators_cpu;
    struct mist_train_config config = {
        .seed = 1, .n_threads = 1, .skips_nonfinite = skips};
    struct mist_device_config arenas = {.threads = 1};

    make_plan();
    operators.find_nonfinite = find_nonfinite;
    operators.sum_squares = sum_squares;
    CHECK(mist_schedule_build(&plan, rank, 1, &schedule, &err) == MIST_OK);
    memcpy(arenas.arena_bytes, schedule->arena_bytes, sizeof arenas.arena_bytes);
    arenas.result_bytes = mist_runtime_result_bytes(schedule);
    CHECK(mist_device_open_cpu(&arenas, &device, &err) == MIST_OK);
    CHECK(mist_collectives_open_host(comm, NULL, &collectives, &err) == MIST_OK);
    struct mist_runtime_parts parts = {device, comm, collectives,
                                       rank == 0 ? &operators : &mist_operators_cpu};
    CHECK(mist_runtime_new(&plan, schedule, &parts, &config, 1, &runtime, &err) ==
          MIST_OK);
    enum mist_status status = mist_runtime_step(runtime, tokens, tokens, result, &err);
    mist_runtime_free(runtime);
    mist_collectives_close(collectives);
    mist_device_close(device);
    mist_schedule_free(schedule);
    return status;
}

/* The mode says who finds something, and whether such steps are skipped. */
static int run_rank(const char *mode)
{
    struct mist_step_result result;
    bool skips = strcmp(mode, "skip") == 0;

    join_job();
    norm_finds = strcmp(mode, "reduce") != 0;
    reduce_finds = strcmp(mode, "norm") != 0;
    enum mist_status status = run_step(skips, &result);
    if (skips) {
        CHECK(status == MIST_OK && !result.is_finite);
        CHECK(rank == 0 ? strcmp(result.where, NORM_FAULT) == 0 ||
                              strcmp(result.where, REDUCE_FAULT) == 0
                        : result.where[0] == '\0');
        mist_comm_close(comm);
        return 0;
    }
    if (rank != 0)
        mist_clock_sleep_s(60); /* until rank 0 ends the job */
    CHECK(status == MIST_ERR_RUN);
    printf("%s\n%s\n", result.where, err.message);
    fflush(stdout);
    mist_comm_abort(comm, 7);
}

/* -------------------------------------------------------------------------- the tests */

/* What a job ended with: its output is the first fault and the error of the step. */
static void run_failing(const char *mode, struct job_end *end)
{
    need_mpirun();
    run_job(2, "", mode, end);
    if (end->code != 7)
        print_error("%s: %s\n", mode, end->errors);
    assert_int_equal(end->code, 7);
}

TEST(test_one)
{
    struct job_end end;

    run_failing("norm", &end);
    assert_string_equal(end.output, NORM_FAULT "\n" NORM_FAULT ADVICE "\n");
    run_failing("reduce", &end);
    assert_string_equal(end.output, REDUCE_FAULT "\n" REDUCE_FAULT ADVICE "\n");
}

/* Whose is noted, and whose ends the step, is open; but each is whole. */
TEST(test_two_at_once)
{
    static const char *const expected[] = {NORM_FAULT "\n" NORM_FAULT ADVICE "\n",
                                           NORM_FAULT "\n" REDUCE_FAULT ADVICE "\n",
                                           REDUCE_FAULT "\n" NORM_FAULT ADVICE "\n",
                                           REDUCE_FAULT "\n" REDUCE_FAULT ADVICE "\n"};
    struct job_end end;
    int n_same = 0;

    run_failing("both", &end);
    for (int i = 0; i < 4; i++)
        n_same += strcmp(end.output, expected[i]) == 0;
    if (n_same != 1)
        print_error("%s\n", end.output);
    assert_int_equal(n_same, 1);
}

TEST(test_skipped_step)
{
    need_mpirun();
    run_good_job(2, "", "skip");
}

JOB_MAIN
