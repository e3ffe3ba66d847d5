/*
 * No allocation during a training step: counts the calls of malloc and its family that
 * come from the program's own code while steps run, the last update is applied and the
 * loss alone is computed; on one rank and, started again under mpirun, on two, under
 * every kind of parallelism, ZeRO and offloading. What oneDNN, OpenMP and MPI allocate
 * inside is not ours.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* program limits */
#endif
#include "exec/data/data.h"
#include "exec/runtime/runtime.h"

#include "tests/unit/count_allocations.h"
#include "tests/unit/test.h"
#include "tests/unit/tiny_models.h"

#include <sys/wait.h>
#include <unistd.h>

enum { SEQ = 32, BATCH = 4, N_LAYERS = 4, N_WARM = 2, N_COUNTED = 3 };

/* A plan: equal stages of N_LAYERS blocks, b = 1. */
struct variant {
    const char *name;
    int32_t n_stages;
    enum mist_pipeline_schedule pipeline;
    enum mist_dtype dtype;
    struct mist_stage_plan stage; /* what is not 0; of all stages */
};

#define ZERO_1 .zero = 1
#define ZERO_2 .zero = 2
#define ZERO_3 .zero = 3
#define OFFLOAD(frac)                                                                    \
    .offload_weights = frac, .offload_gradients = frac, .offload_optimizer = frac,       \
    .offload_activations = frac
#define VARIANT(name, n_stages, pipeline, dtype, ...)                                    \
    {                                                                                    \
        name, n_stages, MIST_PIPELINE_##pipeline, MIST_DTYPE_##dtype,                    \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }

static const struct variant variants[] = {
    VARIANT("plain", 1, 1F1B, FP32, .dp = 1, .tp = 1),
    VARIANT("checkpoints", 1, 1F1B, FP32, .dp = 1, .tp = 1, .n_checkpointed = 3),
    VARIANT("lean", 1, 1F1B, FP32, .dp = 1, .tp = 1, .n_checkpointed = 1, .n_lean = 2),
    VARIANT("lean, in two", 2, ZB_H1, BF16, .dp = 1, .tp = 1, OFFLOAD(0.5), .n_lean = 1),
    VARIANT("half in the host", 1, 1F1B, FP32, .dp = 1, .tp = 1, OFFLOAD(0.5)),
    VARIANT("bf16 in the host", 1, ZB_H1, BF16, .dp = 1, .tp = 1, OFFLOAD(1)),
    VARIANT("updated on the host", 1, 1F1B, BF16, .dp = 1, .tp = 1,
            .offload_optimizer = 0.7, .updates_on_host = true),
    VARIANT("ZeRO-1 on the host", 1, 1F1B, FP32, .dp = 2, .tp = 1, ZERO_1, OFFLOAD(0.5),
            .updates_on_host = true),
    VARIANT("ZeRO-1", 1, 1F1B, FP32, .dp = 2, .tp = 1, ZERO_1, .n_checkpointed = 1),
    VARIANT("ZeRO-2 in the host", 1, 1F1B, FP32, .dp = 2, .tp = 1, ZERO_2, OFFLOAD(1)),
    VARIANT("ZeRO-3", 1, 1F1B, FP32, .dp = 2, .tp = 1, ZERO_3),
    VARIANT("ZeRO-3 in the host", 1, ZB_H1, FP32, .dp = 2, .tp = 1, ZERO_3, OFFLOAD(0.5)),
    VARIANT("ZeRO-3, bf16", 1, 1F1B, BF16, .dp = 2, .tp = 1, ZERO_3, OFFLOAD(0.5)),
    VARIANT("tensors", 1, 1F1B, FP32, .dp = 1, .tp = 2, .n_checkpointed = 1),
    VARIANT("sequences", 1, ZB_H1, BF16, .dp = 1, .tp = 2, .is_sequence_parallel = true,
            OFFLOAD(0.5)),
    VARIANT("pipeline", 2, 1F1B, FP32, .dp = 1, .tp = 1, .n_checkpointed = 1),
    VARIANT("zb_h1", 2, ZB_H1, FP32, .dp = 1, .tp = 1, OFFLOAD(0.5)),
    VARIANT("chunks", 2, INTERLEAVED, FP32, .dp = 1, .tp = 1, OFFLOAD(1)),
    VARIANT("in a V", 2, ZB_V, FP32, .dp = 1, .tp = 1, OFFLOAD(0.5)),
};
enum { N_VARIANTS = sizeof variants / sizeof *variants };

static void make_plan(struct mist_plan *plan, const struct variant *variant)
{
    *plan = (struct mist_plan){
        .model = mist_small_model(MIST_FAMILY_GPT, N_LAYERS, 257),
        .job = {.global_batch = BATCH, .seq_len = SEQ, .dtype = variant->dtype},
        .pipeline = variant->pipeline,
        .n_chunks = variant->pipeline == MIST_PIPELINE_INTERLEAVED ? 2 : 0,
        .n_micro_batches = BATCH / variant->stage.dp,
        .n_stages = variant->n_stages,
    };
    plan->model.ties_embeddings = true;
    plan->model.ffn = 38; /* leaves padding behind parameters */
    for (int i = 0; i < variant->n_stages; i++) {
        plan->stages[i] = variant->stage;
        plan->stages[i].n_layers = N_LAYERS / variant->n_stages;
        plan->stages[i].n_nodes = 1;
        plan->stages[i].n_devices = variant->stage.dp * variant->stage.tp;
        plan->stages[i].micro_batch = 1;
    }
}

/* Steps, the last update and the loss alone; returns the calls counted. */
static long count_calls(struct mist_runtime *runtime)
{
    static int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    struct mist_adamw_args args = {
        .lr = 0.001f, .beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f};
    struct mist_step_result result;
    struct mist_err err = {0};

    for (int i = 0; i < BATCH * SEQ; i++) {
        tokens[i] = i % 251;
        targets[i] = (i + 1) % 251;
    }
    n_calls = 0;
    for (int i = 0; i < N_WARM + N_COUNTED; i++) {
        is_counting = i >= N_WARM;
        must(mist_runtime_step(runtime, tokens, targets, &result, &err), &err);
        args.t = i + 1;
        args.gradient_scale = 1;
        mist_runtime_set_update(runtime, &args, false);
    }
    must(mist_runtime_apply(runtime, &err), &err);
    must(mist_runtime_evaluate(runtime, tokens, targets, &result, &err), &err);
    is_counting = false;
    return n_calls;
}

/* NaN in all buffers that come and go: what they begin with must not show. */
static void poison(const struct mist_device *device, const struct mist_schedule *schedule)
{
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        if (!buffer->is_persistent)
            memset((char *)mist_device_arena(device, buffer->arena) +
                       buffer->offset_bytes,
                   0xff, (size_t)buffer->size_bytes);
    }
}

/* Trains a few steps of the plan on this rank and returns the calls counted. */
static long count_plan(struct mist_comm *comm, const struct variant *variant)
{
    static struct mist_plan plan;
    struct mist_err err = {0};
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_collectives *collectives;
    struct mist_runtime *runtime;
    struct mist_train_config config = {
        .seed = 1, .n_threads = 1, .n_timed_iterations = 1};
    struct mist_device_config arenas = {.threads = 1};

    make_plan(&plan, variant);
    must(mist_plan_check(&plan, &err), &err);
    must(mist_schedule_build(&plan, mist_comm_rank(comm), 1, &schedule, &err), &err);
    memcpy(arenas.arena_bytes, schedule->arena_bytes, sizeof arenas.arena_bytes);
    arenas.result_bytes = mist_runtime_result_bytes(schedule);
    must(mist_device_open_cpu(&arenas, &device, &err), &err);
    must(mist_collectives_open_host(comm, NULL, &collectives, &err), &err);
    struct mist_runtime_parts parts = {device, comm, collectives, &mist_operators_cpu};
    must(mist_runtime_new(&plan, schedule, &parts, &config, N_WARM + N_COUNTED, &runtime,
                          &err),
         &err);
    poison(device, schedule);
    long n = count_calls(runtime);
    mist_runtime_free(runtime);
    mist_collectives_close(collectives);
    mist_device_close(device);
    mist_schedule_free(schedule);
    return n;
}

/* All plans of so many ranks; returns how many allocated. */
static int count_plans(struct mist_comm *comm)
{
    int n_wrong = 0;

    for (int i = 0; i < N_VARIANTS; i++) {
        const struct variant *at = &variants[i];
        if (at->n_stages * at->stage.dp * at->stage.tp != mist_comm_n_ranks(comm))
            continue;
        long n = count_plan(comm, at);
        if (n > 0)
            fprintf(stderr, "%s, rank %d: %ld allocations\n", at->name,
                    (int)mist_comm_rank(comm), n);
        n_wrong += n > 0;
    }
    return n_wrong;
}

TEST(test_counter_counts)
{
    n_calls = 0;
    is_counting = true;
    void *volatile memory = malloc(10);
    is_counting = false;
    free(memory);
    assert_int_equal(n_calls, 1);
}

TEST(test_one_rank)
{
    struct mist_comm *comm;
    struct mist_err err = {0};

    must(mist_comm_open(&comm, &err), &err);
    assert_int_equal(count_plans(comm), 0);
    mist_comm_close(comm);
}

TEST(test_two_ranks)
{
    char self[512] = "", command[1024];

    if (system("command -v mpirun >/dev/null 2>&1") != 0) {
        print_message("mpirun is missing\n");
        skip();
    }
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    snprintf(command, sizeof command,
             "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 '%s' child",
             self);
    assert_int_equal(system(command), 0);
}

/* One of two ranks; the exit code says whether anything was allocated. */
static int run_child(void)
{
    struct mist_comm *comm;
    struct mist_err err = {0};

    if (mist_comm_open(&comm, &err) != MIST_OK)
        return 1;
    int n_wrong = count_plans(comm);
    mist_comm_close(comm);
    return n_wrong == 0 ? 0 : 3;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "child") == 0)
        return run_child();
    return run_listed_tests(NULL, NULL);
}
