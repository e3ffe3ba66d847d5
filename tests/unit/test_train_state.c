/*
 * exec/train_state: a checkpoint and an export of a run whose memory the host may not
 * touch read it and write nothing there; loading the checkpoint brings back every bit.
 */
#include "tests/unit/test.h"

#include "exec/train/train_state.h"
#include "tests/unit/remote_device.h"
#include "tests/unit/scratch.h"
#include "tests/unit/tiny_models.h"

static struct mist_plan plan;
static struct scratch scratch;

/* One rank on the CPU. */
struct job {
    struct mist_comm *comm;
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_collectives *collectives;
    struct mist_runtime *runtime;
    struct remote_device remote;
};

static void open_job(struct job *at, uint64_t seed, enum mist_dtype dtype)
{
    struct mist_device_config arenas = {.threads = 1};
    struct mist_train_config config = {.seed = seed, .n_threads = 1};
    struct mist_err err = {0};

    *at = (struct job){0};
    plan = (struct mist_plan){
        .model = mist_tiny_model(MIST_FAMILY_GPT, 2),
        .job = {.global_batch = 1, .seq_len = 4, .dtype = dtype},
        .n_micro_batches = 1,
        .n_stages = 1,
        .stages = {mist_tiny_stage(2, 1, 1, 1)},
    };
    must(mist_comm_open(&at->comm, &err), &err);
    must(mist_schedule_build(&plan, 0, 1, &at->schedule, &err), &err);
    memcpy(arenas.arena_bytes, at->schedule->arena_bytes, sizeof arenas.arena_bytes);
    arenas.result_bytes = mist_runtime_result_bytes(at->schedule);
    must(mist_device_open_cpu(&arenas, &at->device, &err), &err);
    must(mist_collectives_open_host(at->comm, NULL, &at->collectives, &err), &err);
    struct mist_runtime_parts parts = {at->device, at->comm, at->collectives,
                                       &mist_operators_cpu};
    must(mist_runtime_new(&plan, at->schedule, &parts, &config, 1, &at->runtime, &err),
         &err);
    remote_device_set(&at->remote, at->device);
}

static void close_job(struct job *at)
{
    remote_device_unset(&at->remote);
    mist_runtime_free(at->runtime);
    mist_collectives_close(at->collectives);
    mist_device_close(at->device);
    mist_schedule_free(at->schedule);
    mist_comm_close(at->comm);
}

/* The device's arena as it is. Owned by the caller. */
static char *copy_arena(const struct job *at)
{
    int64_t n = mist_device_arena_bytes(at->device, MIST_ARENA_DEVICE);
    char *copy = malloc((size_t)n);

    assert_non_null(copy);
    return memcpy(copy, mist_device_arena(at->device, MIST_ARENA_DEVICE), (size_t)n);
}

static void check_saving(enum mist_dtype dtype)
{
    char folder[128], name[32];
    const struct mist_train_saving saving = {folder, 0, 1, NULL};
    struct job at;
    struct mist_err err = {0}, warning;
    json_t *training = json_object();

    snprintf(folder, sizeof folder, "%s",
             scratch_path(&scratch, mist_dtype_words[dtype]));
    snprintf(name, sizeof name, "weights of %s", mist_dtype_words[dtype]);
    open_job(&at, 1, dtype);
    char *before = copy_arena(&at);
    at.remote.refuses_writes = true;
    must(mist_train_save(at.runtime, at.comm, &saving, 1, &plan.model, training, &warning,
                         &err),
         &err);
    int n_reads = at.remote.n_reads;
    must(mist_train_export(at.runtime, at.comm, &plan.model, 0,
                           scratch_path(&scratch, name), MIST_DTYPE_FP32, false, &err),
         &err);
    assert_true(n_reads > 0 && at.remote.n_reads > n_reads);
    assert_int_equal(at.remote.n_writes, 0);
    char *after = copy_arena(&at);
    int64_t n = mist_device_arena_bytes(at.device, MIST_ARENA_DEVICE);
    assert_memory_equal(before, after, (size_t)n);
    free(after);
    close_job(&at);

    struct mist_checkpoint *checkpoint;
    char *path;
    open_job(&at, 2, dtype); /* other weights */
    must(mist_checkpoint_find(folder, NULL, &path, NULL, &err), &err);
    must(mist_checkpoint_open(path, &checkpoint, &err), &err);
    must(mist_train_load(at.runtime, checkpoint, &err), &err);
    assert_true(at.remote.n_writes > 0);
    after = copy_arena(&at);
    assert_memory_equal(before, after, (size_t)n);
    mist_checkpoint_close(checkpoint);
    close_job(&at);
    free(path);
    free(before);
    free(after);
    json_decref(training);
}

TEST(test_saving_only_reads)
{
    check_saving(MIST_DTYPE_FP32);
}

/* Both the masters and the weights that are computed with. */
TEST(test_saving_in_bf16)
{
    check_saving(MIST_DTYPE_BF16);
}

static int set_up(void **state)
{
    scratch_init(&scratch);
    return 0;
}

/* With the folders in it. */
static int tear_down(void **state)
{
    char command[128];

    snprintf(command, sizeof command, "rm -r '%s'", scratch.folder);
    return system(command);
}

TEST_MAIN(set_up, tear_down)
