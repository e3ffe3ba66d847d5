/*
 * exec/cuda/collectives_nccl: every operation among ranks that are threads, against
 * what one computes by itself; and every fault that NCCL or a peer can have, after which
 * nothing may hang and nothing may stay behind. On a GPU (-DMIST_TEST_ON_GPU) one rank
 * with the real NCCL.
 */
#include "tests/unit/test.h"

#if !__has_include(<nccl.h>) || !__has_include(<cuda_runtime_api.h>)

TEST_MAIN_SKIPPED("no headers of CUDA and NCCL")

#else

#include "core/clock.h"
#include "core/random.h"
#include "exec/cuda/collectives_nccl_internal.h"
#include "tests/emulation/device_memory.h"
#ifndef MIST_TEST_ON_GPU
#include "tests/emulation/cudart.h"
#include "tests/emulation/nccl.h"

#include <sys/wait.h>
#include <unistd.h>
#endif

enum { MAX_N = 600 };

/* ------------------------------------------------------------------------- one rank */

struct rank {
    struct mist_cuda_device device;
    struct mist_collectives *at;
    struct mist_err err;
    int32_t rank, n_ranks;
};

static enum mist_status no_exchange(void *context, const int32_t *ranks, int32_t n,
                                    void *id, struct mist_err *err)
{
    (void)context, (void)ranks, (void)n, (void)id;
    return mist_err_set(err, MIST_ERR_RUN, "nobody to exchange with");
}

/* With a stream where there is a GPU. */
static void init_device(struct mist_cuda_device *device, bool allows_atomics)
{
    static const struct mist_device_ops ops = {.name = "cuda"};

    memset(device, 0, sizeof *device);
    mist_device_init(
        &device->base, &ops,
        &(struct mist_device_config){.threads = 1, .allows_atomics = allows_atomics});
    device->current = MIST_STREAM_GPU_GPU;
#ifdef MIST_TEST_ON_GPU
    mist_test_device_check(cudaStreamCreate(&device->streams[device->current]), "stream");
#endif
}

static void open_in_order(struct rank *rank, double deadline_s, bool allows_atomics)
{
    memset(rank, 0, sizeof *rank);
    rank->n_ranks = 1;
    init_device(&rank->device, allows_atomics);
    assert_int_equal(mist_cuda_collectives_open(&rank->device.base, 0, 1, deadline_s,
                                                no_exchange, NULL, &rank->at, &rank->err),
                     MIST_OK);
    assert_string_equal(rank->at->ops->name, "nccl");
}

static void open_alone(struct rank *rank, double deadline_s)
{
    open_in_order(rank, deadline_s, false);
}

static void close_alone(struct rank *rank)
{
    mist_collectives_close(rank->at);
#ifdef MIST_TEST_ON_GPU
    mist_test_device_check(cudaStreamDestroy(rank->device.streams[rank->device.current]),
                           "stream");
#endif
    mist_device_fini(&rank->device.base);
}

TEST(test_alone)
{
    static const int32_t self = 0;
    static const float values[5] = {1, 2, -3, 4, 0.5f};
    float back[5] = {0};
    struct mist_collective_group *group;
    struct rank rank;
    char says[32];

#ifndef MIST_TEST_ON_GPU
    mist_test_nccl_reset();
#endif
    open_alone(&rank, 60);
    rank.at->ops->describe(rank.at, says, sizeof says);
    assert_int_equal(strncmp(says, "NCCL 2.", 7), 0);
    float *buffer = mist_test_device_alloc(sizeof values);
    float *other = mist_test_device_alloc(sizeof values);
    mist_test_device_upload(buffer, values, sizeof values);
    assert_int_equal(mist_collectives_reserve(rank.at, 100, &rank.err), MIST_OK);
    assert_int_equal(mist_collectives_group(rank.at, &self, 1, 0, 20, &group, &rank.err),
                     MIST_OK);
    assert_int_equal(
        mist_collective_all_reduce(group, MIST_DTYPE_FP32, buffer, 5, &rank.err),
        MIST_OK);
    assert_int_equal(mist_collective_reduce_scatter(group, MIST_DTYPE_BF16, buffer, other,
                                                    10, &rank.err),
                     MIST_OK);
    assert_int_equal(mist_collective_all_gather(group, other, buffer, 20, &rank.err),
                     MIST_OK);
    assert_int_equal(mist_collective_all_gather(group, NULL, NULL, 0, &rank.err),
                     MIST_OK);
    assert_int_equal(mist_collectives_send(rank.at, 0, 0, buffer, 4, &rank.err),
                     MIST_ERR_RANGE);
    assert_int_equal(mist_collectives_recv(rank.at, 1, 0, buffer, 4, &rank.err),
                     MIST_ERR_RANGE);
    mist_test_device_download(back, buffer, sizeof back);
    assert_memory_equal(back, values, sizeof back);
    /* what the device wrote of what it has done */
    const struct mist_cuda_marks *marks = mist_cuda_nccl_of(rank.at)->marks;
    assert_int_equal(marks[MIST_CUDA_COLLECTIVES].n_begun, 3);
    assert_int_equal(marks[MIST_CUDA_COLLECTIVES].n_ended, 3);
    assert_int_equal(marks[MIST_CUDA_SENDS].n_begun, 0);
    assert_int_equal(marks[MIST_CUDA_RECEIVES].n_begun, 0);
    close_alone(&rank);
    mist_test_device_free(buffer);
    mist_test_device_free(other);
#ifndef MIST_TEST_ON_GPU
    struct mist_test_nccl_counts counts = mist_test_nccl_counts();
    assert_int_equal(counts.n_made, 1);
    assert_int_equal(counts.n_destroyed, 1);
    assert_int_equal(counts.n_aborted + counts.n_misused, 0);
#endif
}

static enum mist_status keep_id(void *context, const int32_t *ranks, int32_t n, void *id,
                                struct mist_err *err)
{
    (void)context, (void)ranks, (void)n, (void)id, (void)err;
    return MIST_OK;
}

/* A peer that never comes to make a communicator; the one that was made before is
 * aborted, too. This ends a call of the real NCCL from outside, where there is a GPU. */
TEST(test_peer_never_comes)
{
    static const int32_t self = 0;
    struct mist_collective_group *group;
    struct rank rank = {.n_ranks = 2};

#ifdef MIST_TEST_ON_GPU
    const double deadline_s = 10; /* NCCL takes seconds to start */
#else
    const double deadline_s = 0.05;
    mist_test_nccl_reset();
#endif
    init_device(&rank.device, false);
    assert_int_equal(mist_cuda_collectives_open(&rank.device.base, 0, 2, deadline_s,
                                                keep_id, NULL, &rank.at, &rank.err),
                     MIST_OK);
    assert_int_equal(mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err),
                     MIST_OK);
    assert_int_equal(mist_collectives_reserve(rank.at, 8, &rank.err), MIST_ERR_RUN);
    assert_non_null(strstr(rank.err.message, "communicator: rank 0: has waited"));
    close_alone(&rank);
#ifndef MIST_TEST_ON_GPU
    assert_int_equal(mist_test_nccl_counts().n_aborted, 2);
    assert_int_equal(mist_test_nccl_counts().n_misused, 0);
#endif
}

#ifndef MIST_TEST_ON_GPU

/* ------------------------------------------------------------- ranks that are threads */

enum { N_RANKS = 4, N_STEPS = 150, N_TEAMS = 3 };

/* Ids on their way, found by the members' list; each is read by all but the first. */
struct board {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int n_posts;
    struct {
        int32_t ranks[N_RANKS], n, n_left;
        char id[MIST_COLLECTIVES_ID_BYTES];
    } posts[64];
    atomic_int n_failed;
};

static struct board board = {.mutex = PTHREAD_MUTEX_INITIALIZER,
                             .changed = PTHREAD_COND_INITIALIZER};

static enum mist_status exchange(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err)
{
    const struct rank *rank = context;
    size_t bytes = (size_t)n * sizeof *ranks;

    (void)err;
    pthread_mutex_lock(&board.mutex);
    if (rank->rank == ranks[0]) {
        int i = board.n_posts++;
        memcpy(board.posts[i].ranks, ranks, bytes);
        memcpy(board.posts[i].id, id, sizeof board.posts[i].id);
        board.posts[i].n = n;
        board.posts[i].n_left = n - 1;
        pthread_cond_broadcast(&board.changed);
    }
    for (bool has = rank->rank == ranks[0]; !has;) {
        for (int i = 0; i < board.n_posts && !has; i++) {
            has = board.posts[i].n_left > 0 && board.posts[i].n == n &&
                  memcmp(board.posts[i].ranks, ranks, bytes) == 0;
            if (has) {
                memcpy(id, board.posts[i].id, sizeof board.posts[i].id);
                board.posts[i].n_left--;
            }
        }
        if (!has)
            pthread_cond_wait(&board.changed, &board.mutex);
    }
    pthread_mutex_unlock(&board.mutex);
    return MIST_OK;
}

static int64_t draw(int32_t step, uint64_t what, int64_t below)
{
    return (int64_t)(mist_random_at(test_seed(1), 200 + what, (uint64_t)step) %
                     (uint64_t)below);
}

/* Sums of small whole numbers, which bf16 has, are the same in any order. */
static float value(int32_t rank, int32_t step, int64_t i)
{
    return (float)(mist_random_at(test_seed(1) + (uint64_t)rank, (uint64_t)step,
                                  (uint64_t)i) %
                   32) -
           12.0f;
}

static void put(void *at, enum mist_dtype dtype, int64_t i, float x)
{
    uint32_t bits;

    memcpy(&bits, &x, 4);
    if (dtype == MIST_DTYPE_BF16)
        ((uint16_t *)at)[i] = (uint16_t)(bits >> 16);
    else
        ((float *)at)[i] = x;
}

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what)) {                                                                   \
            fprintf(stderr, "rank %d: line %d: not true: %s (%s)\n", rank->rank,         \
                    __LINE__, #what, rank->err.message);                                 \
            atomic_fetch_add(&board.n_failed, 1);                                        \
            return;                                                                      \
        }                                                                                \
    } while (0)

struct team {
    struct mist_collective_group *group;
    int32_t ranks[N_RANKS], n, index;
};

static void run_sum(struct rank *rank, const struct team *team, int32_t step, bool is_all)
{
    static _Thread_local float buffer[MAX_N + 1], own[MAX_N + 1], expected[MAX_N + 1];
    enum mist_dtype dtype = draw(step, 2, 2) ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32;
    int64_t n = draw(step, 3, MAX_N), bytes = dtype == MIST_DTYPE_BF16 ? 2 : 4;
    int64_t shard = is_all ? n : n / team->n, first = is_all ? 0 : team->index * shard;
    bool is_apart = draw(step, 4, 2);

    n = is_all ? n : shard * team->n;
    memset(own, 0xff, sizeof own);
    memset(expected, 0xff, sizeof expected);
    for (int64_t i = 0; i < n; i++)
        put(buffer, dtype, i, value(rank->rank, step, i));
    for (int64_t i = 0; i < shard; i++) {
        float sum = 0;
        for (int32_t k = 0; k < team->n; k++)
            sum += value(team->ranks[k], step, first + i);
        put(expected, dtype, i, sum);
    }
    char *at = (char *)buffer + first * bytes;
    if (is_all)
        CHECK(mist_collective_all_reduce(team->group, dtype, buffer, n, &rank->err) ==
              MIST_OK);
    else
        CHECK(mist_collective_reduce_scatter(team->group, dtype, buffer,
                                             is_apart ? (char *)own : at, n,
                                             &rank->err) == MIST_OK);
    if (!is_all && is_apart)
        CHECK(memcmp(own, expected, sizeof own) == 0);
    else
        CHECK(memcmp(at, expected, (size_t)(shard * bytes)) == 0);
}

static void run_gather(struct rank *rank, const struct team *team, int32_t step)
{
    static _Thread_local char whole[MAX_N + 1], expected[MAX_N + 1], own[MAX_N];
    int64_t shard = draw(step, 3, MAX_N / N_RANKS);
    bool is_apart = draw(step, 4, 2);
    char *from = is_apart ? own : whole + team->index * shard;

    memset(whole, 0xff, sizeof whole);
    memset(expected, 0xff, sizeof expected);
    for (int64_t i = 0; i < shard; i++)
        from[i] = (char)value(rank->rank, step, i);
    for (int64_t i = 0; i < shard * team->n; i++)
        expected[i] = (char)value(team->ranks[i / shard], step, i % shard);
    CHECK(mist_collective_all_gather(team->group, from, whole, shard, &rank->err) ==
          MIST_OK);
    CHECK(memcmp(whole, expected, sizeof whole) == 0);
}

/* Two messages around the ring of all ranks; a size of 0 among them. */
static void run_messages(struct rank *rank, int32_t step)
{
    int32_t next = (rank->rank + 1) % N_RANKS, last = (rank->rank + 3) % N_RANKS;

    for (int32_t side = 0; side < 2; side++)
        for (int32_t i = 0; i < 3; i++) {
            int64_t sent[2] = {rank->rank, i}, got[2] = {-1, -1};
            int64_t bytes = i == 1 ? 0 : (int64_t)sizeof sent;
            if ((side == 0) == (rank->rank > 0)) {
                CHECK(mist_collectives_recv(rank->at, last, step, got, bytes,
                                            &rank->err) == MIST_OK);
                CHECK(i == 1 || (got[0] == last && got[1] == i));
            } else {
                CHECK(mist_collectives_send(rank->at, next, step, sent, bytes,
                                            &rank->err) == MIST_OK);
            }
        }
}

static void make_teams(struct rank *rank, struct team *teams)
{
    static const int32_t same[N_TEAMS] = {0, 2, 1};

    for (int32_t k = 0; k < N_TEAMS; k++) {
        struct team *team = &teams[k];
        for (int32_t i = 0; i < N_RANKS; i++) {
            int32_t r = k == 0 ? N_RANKS - 1 - i : i;
            if ((r & same[k]) != (rank->rank & same[k]))
                continue;
            if (r == rank->rank)
                team->index = team->n;
            team->ranks[team->n++] = r;
        }
        CHECK(mist_collectives_group(rank->at, team->ranks, team->n, k, 4 * MAX_N,
                                     &team->group, &rank->err) == MIST_OK);
    }
    CHECK(mist_collectives_reserve(rank->at, 64, &rank->err) == MIST_OK);
}

static void *run_rank(void *arg)
{
    struct rank *rank = arg;
    struct team teams[N_TEAMS] = {0};

    init_device(&rank->device, false);
    if (mist_cuda_collectives_open(&rank->device.base, rank->rank, N_RANKS, 30, exchange,
                                   rank, &rank->at, &rank->err) != MIST_OK) {
        atomic_fetch_add(&board.n_failed, 1);
        return NULL;
    }
    make_teams(rank, teams);
    for (int32_t step = 0; step < N_STEPS && atomic_load(&board.n_failed) == 0; step++) {
        const struct team *team = &teams[draw(step, 0, N_TEAMS)];
        int64_t kind = draw(step, 1, 4);
        if (kind < 2)
            run_sum(rank, team, step, kind == 0);
        else if (kind == 2)
            run_gather(rank, team, step);
        else
            run_messages(rank, step);
    }
    if (atomic_load(&rank->device.base.has_failed))
        atomic_fetch_add(&board.n_failed, 1);
    mist_collectives_close(rank->at);
    mist_device_fini(&rank->device.base);
    return NULL;
}

TEST(test_threads)
{
    static struct rank ranks[N_RANKS];
    pthread_t threads[N_RANKS];

    mist_test_nccl_reset();
    for (int32_t i = 0; i < N_RANKS; i++) {
        ranks[i].rank = i;
        assert_int_equal(pthread_create(&threads[i], NULL, run_rank, &ranks[i]), 0);
    }
    for (int32_t i = 0; i < N_RANKS; i++)
        pthread_join(threads[i], NULL);
    struct mist_test_nccl_counts counts = mist_test_nccl_counts();
    assert_int_equal(atomic_load(&board.n_failed), 0);
    assert_int_equal(counts.n_made, N_RANKS * (N_TEAMS + MIST_CUDA_N_WORLDS));
    assert_int_equal(counts.n_destroyed, counts.n_made);
    assert_int_equal(counts.n_aborted + counts.n_misused, 0);
}

/* ----------------------------------------------------------------------------- faults */

/* How far a rank with a fault gets, and what it says. */
struct fault {
    const char *name;
    struct mist_test_nccl faults;
    const char *fails; /* a call of CUDA that fails; NULL: none */
    enum { AT_GROUP, AT_CALL, BEHIND, AT_CLOSE } fails_at;
    const char *message;
};

static const struct fault faults[] = {
    {.name = "id",
     .faults = {.id_error = ncclSystemError},
     .fails_at = AT_GROUP,
     .message = "communicator: rank 0: NCCL: system error"},
    {.name = "init",
     .faults = {.init_error = ncclInvalidUsage},
     .fails_at = AT_GROUP,
     .message = "NCCL: invalid usage: the last words"},
    {.name = "no good communicator",
     .faults = {.init_result = ncclRemoteError},
     .fails_at = AT_GROUP,
     .message = "communicator: rank 0: NCCL: remote error"},
    {.name = "init never ends",
     .faults = {.blocks = MIST_TEST_NCCL_INIT},
     .fails_at = AT_GROUP,
     .message = "communicator: rank 0: has waited 0.05 s to start with its group"},
    {.name = "call",
     .faults = {.call_error = ncclInternalError},
     .fails_at = AT_CALL,
     .message = "all_reduce: rank 0: NCCL: internal error"},
    {.name = "call never ends",
     .faults = {.blocks = MIST_TEST_NCCL_CALL},
     .fails_at = AT_CALL,
     .message =
         "all_reduce: rank 0: has waited 0.05 s to start with its group, 12 bytes"},
    {.name = "mark",
     .fails = "cuStreamWriteValue32",
     .fails_at = AT_CALL,
     .message = "cuStreamWriteValue32: invalid argument (cudaErrorInvalidValue)"},
    {.name = "operation never ends",
     .faults = {.n_before_hang = 1},
     .fails_at = BEHIND,
     .message = "all_reduce: rank 0: has waited 0.05 s for its group, 12 bytes"},
    {.name = "asynchronous",
     .faults = {.async_error = ncclRemoteError},
     .fails_at = BEHIND,
     .message = "communication: rank 0: NCCL: remote error"},
    {.name = "end never ends",
     .faults = {.blocks = MIST_TEST_NCCL_END},
     .fails_at = AT_CLOSE,
     .message = "end: rank 0: has waited 0.05 s to start with its group"},
};

/* After a failure everything is refused, with the reason. */
static void check_refused(struct rank *rank, struct mist_collective_group *group,
                          const char *message)
{
    static const int32_t self = 0;
    struct mist_collective_group *another;
    float value = 1;

    for (int64_t n = 0; n < 2 && group; n++) {
        assert_int_equal(
            mist_collective_all_reduce(group, MIST_DTYPE_FP32, &value, n, &rank->err),
            MIST_ERR_RUN);
        assert_int_equal(mist_collective_all_gather(group, &value, &value, n, &rank->err),
                         MIST_ERR_RUN);
    }
    assert_int_equal(mist_collectives_reserve(rank->at, 8, &rank->err), MIST_ERR_RUN);
    assert_int_equal(
        mist_collectives_group(rank->at, &self, 1, 1, 4, &another, &rank->err),
        MIST_ERR_RUN);
    if (!strstr(rank->err.message, message))
        fail_msg("%s", rank->err.message);
}

static void wait_for_failure(struct rank *rank)
{
    double start_s = mist_clock_now_s();

    while (!atomic_load(&rank->device.base.has_failed) &&
           mist_clock_now_s() - start_s < 20)
        mist_clock_sleep_s(1e-3);
}

/* What the device says that failed. */
static void check_device(struct rank *rank, const char *message)
{
    struct mist_device *device = &rank->device.base;

    pthread_mutex_lock(&device->failure_mutex);
    assert_int_equal(device->failure, MIST_ERR_RUN);
    if (!strstr(device->failure_err.message, message))
        fail_msg("%s", device->failure_err.message);
    assert_null(strchr(device->failure_err.message, '\n'));
    pthread_mutex_unlock(&device->failure_mutex);
}

static void check_fault(const struct fault *fault)
{
    static const int32_t self = 0;
    float values[3] = {1, 2, 3};
    struct mist_collective_group *group = NULL;
    struct rank rank;

    mist_test_nccl_reset();
    *mist_test_nccl() = fault->faults;
    mist_test_nccl()->n_before_hang--; /* 0 in the table: none hangs */
    open_alone(&rank, 0.05);
    enum mist_status status =
        mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err);
    assert_int_equal(status == MIST_OK, fault->fails_at > AT_GROUP);
    if (fault->fails) {
        mist_emulated_cuda.fails = fault->fails;
        mist_emulated_cuda.fails_in = 1;
    }
    if (status == MIST_OK && strcmp(fault->name, "asynchronous") != 0)
        status = mist_collective_all_reduce(group, MIST_DTYPE_FP32, values, 3, &rank.err);
    assert_int_equal(status == MIST_OK, fault->fails_at > AT_CALL);
    if (fault->fails_at == AT_CLOSE) {
        mist_collectives_close(rank.at);
        check_device(&rank, fault->message);
        mist_device_fini(&rank.device.base);
    } else {
        wait_for_failure(&rank);
        if (fault->fails_at < BEHIND && !strstr(rank.err.message, fault->message))
            fail_msg("%s", rank.err.message);
        check_device(&rank, fault->message);
        check_refused(&rank, group, fault->message);
        close_alone(&rank);
    }
    struct mist_test_nccl_counts counts = mist_test_nccl_counts();
    assert_int_equal(counts.n_aborted, counts.n_made);
    assert_int_equal(counts.n_destroyed + counts.n_misused, 0);
}

TEST(test_faults)
{
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        print_message("%s\n", faults[i].name);
        check_fault(&faults[i]);
    }
}

TEST_AGAIN(test_peer_never_comes, NULL, NULL)

/* A collective, a send and a receive fit on a GPU together. */
TEST(test_room)
{
    static const int32_t self = 0, cases[][2] = {{1, 1}, {41, 13}, {96, 32}, {132, 32}};
    struct mist_collective_group *group;
    struct rank rank;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mist_test_nccl_reset();
        open_alone(&rank, 60);
        rank.device.n_processors = cases[i][0];
        assert_int_equal(
            mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err), MIST_OK);
        assert_int_equal(mist_test_nccl_counts().max_blocks, cases[i][1]);
        close_alone(&rank);
    }
}

/* Sums of NVLink switches have no order: only where any will do, or who knows better asks
 * for them. */
TEST(test_order_of_sums)
{
    static const char variable[] = "NCCL_NVLS_ENABLE";
    static const int32_t self = 0;
    static const struct {
        const char *set; /* by the user; NULL: not */
        bool allows_atomics, has_nvls;
    } cases[] = {
        {NULL, false, false}, {NULL, true, true}, {"2", false, true}, {"0", true, false}};
    struct mist_collective_group *group;
    struct rank rank;
    char says[64];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mist_test_nccl_reset();
        unsetenv(variable);
        if (cases[i].set)
            setenv(variable, cases[i].set, 1);
        open_in_order(&rank, 60, cases[i].allows_atomics);
        assert_int_equal(
            mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err), MIST_OK);
        assert_int_equal(mist_test_nccl_counts().has_nvls, cases[i].has_nvls);
        rank.at->ops->describe(rank.at, says, sizeof says);
        assert_int_equal(strstr(says, ", without NVLS") == NULL, cases[i].has_nvls);
        close_alone(&rank);
    }
    unsetenv(variable);
}

/* An operation hangs on the device, and the dispatcher in a launch behind it, since the
 * stream is full. The deadline comes all the same, and the watchdog called nothing of
 * CUDA, which that launch might have kept it out of. */
TEST(test_full_stream)
{
    static const int32_t self = 0;
    struct mist_collective_group *group;
    struct rank rank;
    float values[5] = {1};

    mist_test_nccl_reset();
    mist_test_nccl()->n_before_hang = 3;
    open_alone(&rank, 0.05);
    assert_int_equal(mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err),
                     MIST_OK);
    for (int n = 0; n < 10; n++)
        assert_int_equal(
            mist_collective_all_reduce(group, MIST_DTYPE_BF16, values, 1 + n, &rank.err),
            MIST_OK);
    long long n_calls = __atomic_load_n(&mist_emulated_cuda.n_calls, __ATOMIC_RELAXED);
    mist_test_nccl_wait_for_abort();
    assert_int_equal(mist_test_nccl_counts().n_cuda_calls, n_calls);
    check_device(&rank, "all_reduce: rank 0: has waited 0.05 s for its group, 8 bytes");
    close_alone(&rank);
    assert_int_equal(mist_test_nccl_counts().n_misused, 0);
}

/* A rank of the node that ended before it freed its communicators: the others end with
 * their processes. */
TEST(test_never_destroyed)
{
    static const int32_t self = 0;
    char says[300] = "";
    int ends[2], code = -1;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        struct mist_collective_group *group;
        struct rank rank;

        alarm(20);
        dup2(ends[1], STDERR_FILENO);
        mist_test_nccl_reset();
        open_alone(&rank, 0.05);
        if (mist_collectives_group(rank.at, &self, 1, 0, 16, &group, NULL) != MIST_OK)
            _exit(99);
        mist_test_nccl()->blocks = MIST_TEST_NCCL_DESTROY;
        close_alone(&rank);
        _exit(0);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_true(read(ends[0], says, sizeof says - 1) > 0);
    close(ends[0]);
    assert_true(WIFEXITED(code));
    assert_int_equal(WEXITSTATUS(code), mist_exit_code(MIST_ERR_RUN));
    assert_non_null(strstr(says, "end of NCCL's communicators: rank"));
}

/* As if the first of the ranks could not make an id. */
static enum mist_status bring_nothing(void *context, const int32_t *ranks, int32_t n,
                                      void *id, struct mist_err *err)
{
    (void)context, (void)ranks, (void)n, (void)err;
    memset(id, 0, MIST_COLLECTIVES_ID_BYTES);
    return MIST_OK;
}

TEST(test_no_id)
{
    struct rank rank = {0};

    for (int is_lost = 0; is_lost < 2; is_lost++) {
        mist_test_nccl_reset();
        init_device(&rank.device, false);
        assert_int_equal(mist_cuda_collectives_open(&rank.device.base, 1, 2, 60,
                                                    is_lost ? no_exchange : bring_nothing,
                                                    NULL, &rank.at, &rank.err),
                         MIST_OK);
        assert_int_equal(mist_collectives_reserve(rank.at, 0, &rank.err), MIST_OK);
        assert_int_equal(mist_collectives_reserve(rank.at, 8, &rank.err), MIST_ERR_RUN);
        assert_non_null(
            strstr(rank.err.message, is_lost ? "nobody to exchange with" : "has no id"));
        assert_int_equal(mist_collectives_send(rank.at, 0, 0, &rank, 8, &rank.err),
                         is_lost ? MIST_ERR_RANGE : MIST_ERR_RUN);
        close_alone(&rank);
        assert_int_equal(mist_test_nccl_counts().n_made, 0);
    }
}

static void *fail_device(void *arg)
{
    struct mist_err err;

    mist_clock_sleep_s(20e-3);
    mist_device_fail(arg, mist_err_set(&err, MIST_ERR_VERIFY, "elsewhere"), &err);
    return NULL;
}

/* What fails elsewhere ends the communication, too: a call under way, and what the device
 * is at. */
TEST(test_device_failed)
{
    static const int32_t self = 0;
    struct mist_collective_group *group;
    float value = 1;

    for (int is_call = 0; is_call < 2; is_call++) {
        struct rank rank;
        pthread_t thread;
        mist_test_nccl_reset();
        open_alone(&rank, 1000);
        assert_int_equal(
            mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err), MIST_OK);
        mist_test_nccl()->blocks = is_call ? MIST_TEST_NCCL_CALL : MIST_TEST_NCCL_NOTHING;
        mist_test_nccl()->n_before_hang = is_call ? -1 : 0;
        assert_int_equal(pthread_create(&thread, NULL, fail_device, &rank.device.base),
                         0);
        enum mist_status status =
            mist_collective_all_reduce(group, MIST_DTYPE_FP32, &value, 1, &rank.err);
        assert_int_equal(status, is_call ? MIST_ERR_RUN : MIST_OK);
        mist_test_nccl_wait_for_abort();
        pthread_join(thread, NULL);
        check_refused(&rank, group, "something else failed");
        close_alone(&rank);
        assert_int_equal(mist_test_nccl_counts().n_aborted, 1);
        assert_int_equal(mist_test_nccl_counts().n_misused, 0);
    }
}

/* A device that gets on after a while. */
static void *go_on(void *arg)
{
    struct mist_cuda_nccl *at = mist_cuda_nccl_of(arg);

    mist_clock_sleep_s(20e-3);
    pthread_mutex_lock(&at->mutex);
    uint32_t n_given = at->queues[MIST_CUDA_COLLECTIVES].n_given;
    __atomic_store_n(&at->marks[MIST_CUDA_COLLECTIVES].n_begun, n_given,
                     __ATOMIC_RELEASE);
    __atomic_store_n(&at->marks[MIST_CUDA_COLLECTIVES].n_ended, n_given,
                     __ATOMIC_RELEASE);
    pthread_mutex_unlock(&at->mutex);
    return NULL;
}

/* More operations than are watched at once: the dispatcher waits for the oldest, and no
 * longer than the deadline if that hangs. Counts wrap around meanwhile. */
TEST(test_many)
{
    enum { N_BEFORE = 100 };
    static const int32_t self = 0;
    struct mist_collective_group *group;
    float value = 1;

    for (int hangs = 0; hangs < 2; hangs++) {
        struct rank rank;
        enum mist_status status = MIST_OK;
        int n = 0;
        pthread_t thread;
        mist_test_nccl_reset();
        mist_test_nccl()->n_before_hang = N_BEFORE;
        open_alone(&rank, hangs ? 0.1 : 1000);
        struct mist_cuda_nccl *at = mist_cuda_nccl_of(rank.at);
        assert_int_equal(
            mist_collectives_group(rank.at, &self, 1, 0, 16, &group, &rank.err), MIST_OK);
        pthread_mutex_lock(&at->mutex);
        struct mist_cuda_marks *marks = &at->marks[MIST_CUDA_COLLECTIVES];
        at->queues[MIST_CUDA_COLLECTIVES].n_given = marks->n_begun = marks->n_ended =
            UINT32_MAX - N_BEFORE / 2;
        pthread_mutex_unlock(&at->mutex);
        int most = N_BEFORE + MIST_CUDA_N_WATCHED + (hangs ? 0 : 1);
        for (; n <= most && status == MIST_OK; n++) {
            if (n == N_BEFORE + MIST_CUDA_N_WATCHED && !hangs)
                assert_int_equal(pthread_create(&thread, NULL, go_on, rank.at), 0);
            status =
                mist_collective_all_reduce(group, MIST_DTYPE_FP32, &value, 1, &rank.err);
        }
        assert_int_equal(status, hangs ? MIST_ERR_RUN : MIST_OK);
        assert_int_equal(n, most + 1);
        if (hangs)
            assert_non_null(strstr(rank.err.message, "has waited 0.1 s for its group"));
        else
            pthread_join(thread, NULL);
        close_alone(&rank);
        assert_int_equal(mist_test_nccl_counts().n_aborted, hangs);
        assert_int_equal(mist_test_nccl_counts().n_destroyed, !hangs);
    }
}

#endif

TEST_MAIN(NULL, NULL)

#endif
