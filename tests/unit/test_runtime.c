/*
 * No allocation during a training step: counts the calls of malloc and its family that
 * come from the program's own code while steps run, on one rank and, started again under
 * mpirun, on two ranks with data parallelism and with a pipeline. What oneDNN, OpenMP and
 * MPI allocate inside is not ours.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* program limits */
#endif
#include "exec/data.h"
#include "exec/runtime.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

enum { SEQ = 32, BATCH = 4, N_WARM = 2, N_COUNTED = 3 };

extern char __executable_start, etext;
static atomic_long n_calls;
static atomic_bool is_counting;

static inline __attribute__((always_inline)) void count(const void *caller)
{
    if (is_counting && (const char *)caller >= &__executable_start &&
        (const char *)caller < &etext)
        n_calls++;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

__attribute__((noinline)) void *malloc(size_t size)
{
    count(__builtin_return_address(0));
    return __libc_malloc(size);
}

__attribute__((noinline)) void *calloc(size_t n, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_calloc(n, size);
}

__attribute__((noinline)) void *realloc(void *memory, size_t size)
{
    count(__builtin_return_address(0));
    return __libc_realloc(memory, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    count(__builtin_return_address(0));
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : 12;
}

static void make_plan(struct mist_plan *plan, int n_stages, int dp)
{
    *plan = (struct mist_plan){
        .model = {.name = "tiny",
                  .family = MIST_FAMILY_GPT,
                  .n_layers = 2,
                  .hidden = 32,
                  .n_heads = 2,
                  .n_kv_heads = 2,
                  .head_dim = 16,
                  .ffn = 64,
                  .vocab = 256,
                  .max_seq = SEQ,
                  .has_bias = true,
                  .norm_epsilon = 1e-5},
        .job = {BATCH, SEQ, MIST_DTYPE_FP32, 0},
        .n_micro_batches = BATCH / dp,
        .n_stages = n_stages,
    };
    for (int i = 0; i < n_stages; i++)
        plan->stages[i] = (struct mist_stage_plan){
            .n_layers = 2 / n_stages,
            .n_nodes = 1,
            .n_devices = dp,
            .micro_batch = 1,
            .dp = dp,
            .tp = 1,
            .shards_optimizer = dp > 1,
            .n_checkpointed = 1,
        };
}

static void must(enum mist_status status, const struct mist_err *err)
{
    if (status != MIST_OK)
        fail_msg("%s", err->message);
}

/* Trains a few steps of the plan on this rank and returns the calls counted. */
static long count_steps(struct mist_comm *comm, int n_stages, int dp)
{
    static struct mist_plan plan;
    static int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    struct mist_err err = {0};
    struct mist_catalog *catalog;
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_runtime *runtime;
    struct mist_train_config config = {
        .adamw = {.lr = 0.001f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f},
        .n_threads = 1,
        .n_timed_iterations = 1,
    };
    double loss;

    make_plan(&plan, n_stages, dp);
    must(mist_plan_check(&plan, &err), &err);
    must(mist_catalog_new(&plan.model, &catalog, &err), &err);
    must(mist_schedule_build(catalog, &plan, mist_comm_rank(comm), 1, &schedule, &err),
         &err);
    struct mist_device_config arenas = {
        .arena_bytes = {schedule->arena_bytes[0], schedule->arena_bytes[1]},
        .threads = 1,
    };
    must(mist_device_open_cpu(&arenas, &device, &err), &err);
    assert_int_equal(mist_device_arena_bytes(device, MIST_ARENA_DEVICE),
                     schedule->arena_bytes[MIST_ARENA_DEVICE]);
    must(mist_runtime_new(&plan, schedule, device, comm, &mist_operators_cpu, &config,
                          N_WARM + N_COUNTED, &runtime, &err),
         &err);
    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = i % 251;
        targets[i] = (i + 1) % 251;
    }
    for (int i = 0; i < N_WARM + N_COUNTED; i++) {
        is_counting = i >= N_WARM;
        must(mist_runtime_step(runtime, tokens, targets, &loss, &err), &err);
    }
    is_counting = false;
    mist_runtime_free(runtime);
    mist_device_close(device);
    mist_schedule_free(schedule);
    mist_catalog_free(catalog);
    return n_calls;
}

static void test_counter_counts(void **state)
{
    (void)state;
    n_calls = 0;
    is_counting = true;
    void *volatile memory = malloc(10);
    is_counting = false;
    free(memory);
    assert_int_equal(n_calls, 1);
}

static void test_one_rank(void **state)
{
    struct mist_comm *comm;
    struct mist_err err = {0};

    (void)state;
    n_calls = 0;
    must(mist_comm_open(&comm, &err), &err);
    assert_int_equal(count_steps(comm, 1, 1), 0);
    mist_comm_close(comm);
}

static void test_two_ranks(void **state)
{
    char self[512] = "", command[1024];

    (void)state;
    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("mpirun is missing\n");
        skip();
    }
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    for (int n_stages = 1; n_stages <= 2; n_stages++) {
        snprintf(command, sizeof command,
                 "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 '%s' "
                 "child %d %d",
                 self, n_stages, 2 / n_stages);
        assert_int_equal(system(command), 0);
    }
}

/* One of two ranks; the exit code says whether anything was allocated. */
static int run_child(int n_stages, int dp)
{
    struct mist_comm *comm;
    struct mist_err err = {0};

    if (mist_comm_open(&comm, &err) != MIST_OK)
        return 1;
    long n = count_steps(comm, n_stages, dp);
    mist_comm_close(comm);
    return n == 0 ? 0 : 3;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counter_counts),
        cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_two_ranks),
    };

    if (argc == 4 && strcmp(argv[1], "child") == 0)
        return run_child(argv[2][0] - '0', argv[3][0] - '0');
    return cmocka_run_group_tests(tests, NULL, NULL);
}
