/*
 * exec/train_folder, in jobs of several ranks: a claim has one result on all of them, a
 * folder that they do not share is noticed, all go on from the same whole checkpoint; and
 * a disk that takes longer to flush than the deadline ends no job.
 */
#define _GNU_SOURCE /* syscall */
#include "exec/train/train_folder.h"

#include "tests/unit/test.h"
#include "tests/unit/train_help.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/unit/comm_job.h" /* has globals with names of arguments */

/* --------------------------------------------------------------------- a made-up disk */

static double fsync_s;    /* that every flush takes on this rank */
static double deadline_s; /* of messages from the first flush on; 0: as it is */
static bool is_signaled;  /* a signal comes to this rank while it flushes */
static atomic_int stop_signal;

int fsync(int fd)
{
    if (deadline_s > 0)
        mist_comm_set_deadline(comm, deadline_s);
    deadline_s = 0;
    if (is_signaled)
        atomic_store(&stop_signal, SIGTERM);
    if (fsync_s > 0)
        mist_clock_sleep_s(fsync_s);
    return (int)syscall(SYS_fsync, fd);
}

/* --------------------------------------------------------------------- rank of a job */

static const struct mist_messages nowhere = {"test", NULL};
static char dir[64]; /* of all ranks; empty at first */

static void make_dir(void)
{
    snprintf(dir, sizeof dir, "/tmp/mist_test_XXXXXX");
    CHECK(rank != 0 || mkdtemp(dir));
    CHECK(mist_comm_broadcast_bytes(comm, 0, dir, sizeof dir, &err) == MIST_OK);
}

static void remove_dir(void)
{
    char command[128];

    CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    CHECK(rank != 0 || system(command) == 0);
}

static bool exists(const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

/* The number that all ranks have; -1: they differ. */
static int64_t same_on_all(int64_t value)
{
    int64_t ends[] = {value, -value};

    CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_MIN, ends, 2, &err) == MIST_OK);
    return ends[0] == -ends[1] ? value : -1;
}

static void run_claims(void)
{
    struct mist_train_claim claim;
    char run[128];

    snprintf(run, sizeof run, "%s/run", dir);
    uint64_t before = 0;
    for (int i = 0; i < 3; i++) {
        CHECK(mist_train_claim(comm, run, 10, &nowhere, &claim, &err) == MIST_OK);
        CHECK(claim.run_id != 0 && claim.run_id != before);
        CHECK(same_on_all((int64_t)(claim.run_id >> 1)) != -1);
        CHECK((claim.lock != NULL) == (rank == 0));
        CHECK(exists("run/lock") && mist_checkpoint_sees_lock(run, claim.run_id));
        before = claim.run_id;
        CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
        mist_train_release(&claim);
        CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
        CHECK(!exists("run"));
        CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
    }
}

static void *unlock_later(void *lock)
{
    mist_clock_sleep_s(1.5);
    mist_checkpoint_unlock(lock);
    return NULL;
}

/* The last rank holds the lock of another job. */
static void run_held(void)
{
    struct mist_checkpoint_lock *lock = NULL;
    struct mist_train_claim claim;
    struct mist_err held = {0};
    pthread_t thread;
    bool holds = rank == n_ranks - 1;

    if (holds)
        CHECK(mist_checkpoint_lock(dir, 0, NULL, NULL, &lock, NULL, &err) == MIST_OK);
    CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
    CHECK(mist_train_claim(comm, dir, 0.1, &nowhere, &claim, &held) == MIST_ERR_IO);
    CHECK(strstr(held.message, "another job saves its checkpoints here: run "));
    CHECK(strstr(held.path, "/lock") && !claim.lock);
    /* who waits for it waits longer than for a rank that is gone */
    mist_comm_set_deadline(comm, 0.6);
    if (holds)
        CHECK(pthread_create(&thread, NULL, unlock_later, lock) == 0);
    CHECK(mist_train_claim(comm, dir, 50, &nowhere, &claim, &err) == MIST_OK);
    if (holds)
        CHECK(pthread_join(thread, NULL) == 0);
    mist_train_release(&claim);
}

/* Every rank is in a folder of its own. */
static void run_apart(void)
{
    struct mist_train_claim claim;
    struct mist_err apart = {0};
    char own[128];

    snprintf(own, sizeof own, "%s/%d", dir, (int)rank);
    CHECK(mkdir(own, 0700) == 0 && chdir(own) == 0);
    CHECK(mist_train_claim(comm, "run", 0.2, &nowhere, &claim, &apart) == MIST_ERR_IO);
    CHECK(strstr(apart.message, "rank 1 on ") &&
          strstr(apart.message, "/1 does not see"));
    CHECK(same_on_all(access("run", F_OK) != 0) == 1);
    CHECK(chdir("/") == 0);
}

/* A checkpoint of one tensor, a part on each rank. */
static void save(int64_t step)
{
    const struct mist_checkpoint_save at = {dir, 1, step, n_ranks};
    const struct mist_param_span span = {
        .global_first = 8 * rank, .length = 8, .n_runs = 1};
    const float values[8] = {(float)step, (float)rank};
    struct mist_model model = mist_tiny_model(MIST_FAMILY_GPT, 2);
    struct mist_checkpoint_writer *writer;
    json_t *training = json_object();

    CHECK(mist_checkpoint_writer_open(&at, rank, &writer, &err) == MIST_OK);
    CHECK(mist_checkpoint_add_piece(writer, "a", 8 * n_ranks, &span, 1, values, &err) ==
          MIST_OK);
    CHECK(mist_checkpoint_writer_close(writer, &err) == MIST_OK);
    CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
    if (rank == 0)
        CHECK(mist_checkpoint_commit(&at, &model, training, 0, NULL, &err) == MIST_OK);
    CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
    json_decref(training);
}

/* Changes a byte of the payload of rank i's file. */
static void damage(int64_t step, int32_t i)
{
    char path[256];

    snprintf(path, sizeof path, "%s/step-%08lld/rank-%05d.bin", dir, (long long)step,
             (int)i);
    FILE *file = rank == 0 ? fopen(path, "r+") : NULL;
    CHECK(rank != 0 || (file && fseek(file, 64 + 5, SEEK_SET) == 0 &&
                        fputc(77, file) == 77 && fclose(file) == 0));
    CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
}

/* The step that all go on from, 0 for none; said: what rank 0 was told. */
static int64_t find(enum mist_status expected, char *said, size_t size)
{
    struct mist_messages messages = {"test", rank == 0 ? tmpfile() : NULL};
    struct mist_checkpoint *checkpoint;
    char *path;

    said[0] = '\0';
    CHECK(mist_train_find(comm, dir, &messages, &path, &checkpoint, &err) == expected);
    int64_t step = checkpoint ? mist_checkpoint_step(checkpoint) : 0;
    CHECK((path != NULL) == (checkpoint != NULL));
    if (rank == 0) {
        rewind(messages.stream);
        said[fread(said, 1, size - 1, messages.stream)] = '\0';
        fclose(messages.stream);
    }
    mist_checkpoint_close(checkpoint);
    free(path);
    CHECK(same_on_all(step) == step);
    return step;
}

static void run_finds(void)
{
    char said[2048];

    CHECK(find(MIST_OK, said, sizeof said) == 0 && !said[0]);
    for (int64_t step = 1; step <= 4; step++)
        save(step);
    CHECK(find(MIST_OK, said, sizeof said) == 4 && !said[0]);
    damage(4, n_ranks - 1);
    CHECK(find(MIST_OK, said, sizeof said) == 3);
    CHECK(rank != 0 ||
          strstr(said, "bin: damaged: the checksum of block 0 of a differs"));
    damage(3, 0);
    damage(2, 0);
    CHECK(find(MIST_OK, said, sizeof said) == 1);
    CHECK(rank != 0 || strstr(said, "/step-00000002/rank-00000.bin: damaged: "));
    damage(1, 0);
    CHECK(find(MIST_ERR_INPUT, said, sizeof said) == 0);
    CHECK(strstr(err.message, "holds no whole checkpoint"));
    /* one of them by name */
    size_t n = strlen(dir);
    snprintf(dir + n, sizeof dir - n, "/step-00000004");
    CHECK(find(MIST_ERR_INPUT, said, sizeof said) == 0 && !said[0]);
    CHECK(strstr(err.message, "damaged: the checksum of block 0 of a differs"));
    dir[n] = '\0';
}

/* n_steps, of which each is saved; the one that a signal stopped behind, 0: none. */
static int64_t train(int64_t n_steps)
{
    const struct mist_train_log log = {0};
    struct mist_train_report report;
    struct mist_plan plan = small_plan(1, 1, n_ranks);
    struct mist_train_claim claim;
    const struct mist_backend *backend;
    struct mist_backend_info info;
    char note[256];

    CHECK(mist_backend_find(MIST_BACKEND_CPU, &backend, &info, note, sizeof note, &err) ==
          MIST_OK);
    CHECK(mist_train_claim(comm, dir, 10, &nowhere, &claim, &err) == MIST_OK);
    struct mist_train_job job = {.backend = backend,
                                 .plan = &plan,
                                 .config.n_threads = 1,
                                 .config.stop_signal = &stop_signal,
                                 .save_every = 1,
                                 .saving = {dir, 0, claim.run_id, claim.lock}};
    CHECK(run_steps(comm, &job, n_steps, &log, &report, &err) == MIST_OK);
    int64_t stopped_after = report.stopped_after;
    mist_train_report_fini(&report);
    mist_train_release(&claim);
    return stopped_after;
}

/* The flushes of one rank take longer than the deadline. */
static void run_slow_disk(int32_t slow_rank)
{
    deadline_s = 5; /* the steps before may take longer on a busy machine */
    fsync_s = rank == slow_rank ? 6 : 0;
    CHECK(train(1) == 0);
    CHECK(exists("step-00000001/manifest.json"));
    fsync_s = 0;
}

/* A signal that comes to one rank while all save: no step is done any more. */
static void run_signal(void)
{
    is_signaled = rank == n_ranks - 1;
    CHECK(train(3) == 1);
    CHECK(exists("step-00000001/manifest.json") && !exists("step-00000002"));
    CHECK(train(1) == 0); /* nothing is left to stop */
}

static int run_rank(const char *mode)
{
    join_job();
    make_dir();
    if (strcmp(mode, "claims") == 0)
        run_claims();
    else if (strcmp(mode, "held") == 0)
        run_held();
    else if (strcmp(mode, "apart") == 0)
        run_apart();
    else if (strcmp(mode, "finds") == 0)
        run_finds();
    else if (strcmp(mode, "signal") == 0)
        run_signal();
    else
        run_slow_disk(strcmp(mode, "slow_first") == 0 ? 0 : n_ranks - 1);
    remove_dir();
    mist_comm_close(comm);
    return 0;
}

/* -------------------------------------------------------------------------- the tests */

TEST(test_claims)
{
    need_mpirun();
    run_good_job(3, "", "claims");
    run_good_job(3, "", "held");
    run_good_job(3, "", "apart");
}

TEST(test_finds)
{
    need_mpirun();
    run_good_job(3, "", "finds");
}

TEST(test_slow_disk)
{
    need_mpirun();
    run_good_job(2, "", "slow_first");
    run_good_job(2, "", "slow_last");
}

TEST(test_signal_while_saving)
{
    need_mpirun();
    run_good_job(2, "", "signal");
}

JOB_MAIN
