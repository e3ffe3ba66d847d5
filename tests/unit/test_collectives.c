/*
 * exec/collectives: random batches of collectives and messages on 3 and 4 ranks, over MPI
 * and through staging memory, on the CPU device and on one that works behind the caller's
 * back; every result compared bit by bit with a serial computation. Then calls that must
 * be refused, and a communication that fails inside a function of the host. MIST_SEED
 * chooses the sequence.
 */
#include "tests/unit/test.h"

#include "exec/comm/collectives.h"
#include "tests/unit/comm_job.h"

#include <pthread.h>

enum { MAX_RANKS = 4, MAX_N = 1500, N_BATCHES = 16, BATCH = 8, MANY = 9000 };

/* The same on all ranks. */
static int64_t draw(int32_t step, uint64_t what, int64_t below)
{
    return (int64_t)(mist_random_at(test_seed(1), 100 + what, (uint64_t)step) %
                     (uint64_t)below);
}

/* ------------------------------------------------------- a device with its own thread */

/* What its one stream has to do: call fn, or copy. */
struct job {
    mist_stream_fn fn;
    void *arg, *to;
    const void *from;
    int64_t bytes;
    size_t arg_bytes; /* of copy; 0: arg is meant */
    char copy[MIST_DEVICE_MAX_CALL_BYTES];
};

enum { MAX_JOBS = 1 << 16 };

struct slow_device {
    struct mist_device base;
    pthread_t worker;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct job jobs[MAX_JOBS];
    int64_t n_given, n_done; /* under mutex */
    bool is_closing;         /* under mutex */
};

static void run_one(struct job *job, int64_t i)
{
    if (i % 16 == 0)
        sleep_a_little((uint64_t)i);
    if (job->fn)
        job->fn(job->arg_bytes > 0 ? job->copy : job->arg);
    else
        memcpy(job->to, job->from, (size_t)job->bytes);
}

static void *work(void *arg)
{
    struct slow_device *at = arg;

    pthread_mutex_lock(&at->mutex);
    for (;;) {
        while (at->n_given == at->n_done && !at->is_closing)
            pthread_cond_wait(&at->changed, &at->mutex);
        if (at->n_given == at->n_done)
            break;
        struct job job = at->jobs[at->n_done % MAX_JOBS];
        int64_t i = at->n_done;
        pthread_mutex_unlock(&at->mutex);
        run_one(&job, i);
        pthread_mutex_lock(&at->mutex);
        at->n_done++;
        pthread_cond_broadcast(&at->changed);
    }
    pthread_mutex_unlock(&at->mutex);
    return NULL;
}

static void give(struct mist_device *device, struct job job)
{
    struct slow_device *at = (struct slow_device *)device;

    pthread_mutex_lock(&at->mutex);
    while (at->n_given - at->n_done >= MAX_JOBS)
        pthread_cond_wait(&at->changed, &at->mutex);
    at->jobs[at->n_given++ % MAX_JOBS] = job;
    pthread_cond_broadcast(&at->changed);
    pthread_mutex_unlock(&at->mutex);
}

static void slow_copy(struct mist_device *device, void *to, const void *from,
                      int64_t bytes)
{
    give(device, (struct job){.to = to, .from = from, .bytes = bytes});
}

static void slow_call_host(struct mist_device *device, mist_stream_fn fn, void *arg,
                           size_t arg_bytes)
{
    struct job job = {.fn = fn, .arg = arg, .arg_bytes = arg_bytes};

    memcpy(job.copy, arg, arg_bytes);
    give(device, job);
}

static void slow_drain(struct mist_device *device)
{
    struct slow_device *at = (struct slow_device *)device;

    pthread_mutex_lock(&at->mutex);
    while (at->n_given > at->n_done)
        pthread_cond_wait(&at->changed, &at->mutex);
    pthread_mutex_unlock(&at->mutex);
}

static void slow_close(struct mist_device *device)
{
    struct slow_device *at = (struct slow_device *)device;

    pthread_mutex_lock(&at->mutex);
    at->is_closing = true;
    pthread_cond_broadcast(&at->changed);
    pthread_mutex_unlock(&at->mutex);
    pthread_join(at->worker, NULL);
    mist_device_fini(device);
    free(at);
}

static const struct mist_device_ops slow_ops = {.name = "slow",
                                                .close = slow_close,
                                                .drain = slow_drain,
                                                .copy = slow_copy,
                                                .call_host = slow_call_host};

static const struct mist_device_config no_arenas = {.threads = 1};

static struct mist_device *open_slow(void)
{
    struct slow_device *at = calloc(1, sizeof *at);

    if (!at)
        abort();
    mist_device_init(&at->base, &slow_ops, &no_arenas);
    pthread_mutex_init(&at->mutex, NULL);
    pthread_cond_init(&at->changed, NULL);
    if (pthread_create(&at->worker, NULL, work, at) != 0)
        abort();
    return &at->base;
}

/* --------------------------------------------------------------------- rank of a job */

/* Members of a group, in its order. */
struct team {
    struct mist_collective_group *group;
    int32_t ranks[MAX_RANKS], n, index;
};

enum { ALL, PAIR, CROSS, N_TEAMS };
enum { MPI, STAGED, SLOW, N_SUBJECTS };

/* What is tested: collectives and their device, with groups of their own. */
struct subject {
    struct mist_device *device;
    struct mist_collectives *at;
    struct team teams[N_TEAMS];
    int32_t n_teams;
};

static void make_teams(struct subject *subject, int32_t tag_space)
{
    static const int32_t same[N_TEAMS] = {[ALL] = 0, [PAIR] = 2, [CROSS] = 1};

    subject->n_teams = n_ranks == 4 ? N_TEAMS : 1;
    for (int32_t k = 0; k < subject->n_teams; k++) {
        struct team *team = &subject->teams[k];
        for (int32_t i = 0; i < n_ranks; i++) {
            int32_t r = k == ALL ? n_ranks - 1 - i : i; /* one in the other direction */
            if ((r & same[k]) != (rank & same[k]))
                continue;
            if (r == rank)
                team->index = team->n;
            team->ranks[team->n++] = r;
        }
        CHECK(mist_collectives_group(subject->at, team->ranks, team->n, tag_space + k,
                                     MAX_N * (int64_t)sizeof(float), &team->group,
                                     &err) == MIST_OK);
    }
    CHECK(mist_collectives_reserve(subject->at, MAX_N * (int64_t)sizeof(float), &err) ==
          MIST_OK);
}

static void open_subjects(struct subject *subjects)
{
    static const char *const names[] = {"mpi", "staged", "staged"};

    for (int32_t i = 0; i < N_SUBJECTS; i++) {
        struct subject *subject = &subjects[i];
        *subject = (struct subject){0};
        if (i == SLOW)
            subject->device = open_slow();
        else
            CHECK(mist_device_open_cpu(&no_arenas, &subject->device, &err) == MIST_OK);
        CHECK(mist_collectives_open_host(
                  comm, i == STAGED || i == SLOW ? subject->device : NULL, &subject->at,
                  &err) == MIST_OK);
        CHECK(strcmp(subject->at->ops->name, names[i]) == 0);
        make_teams(subject, i * N_TEAMS);
    }
}

static void close_subjects(struct subject *subjects)
{
    for (int32_t i = 0; i < N_SUBJECTS; i++) {
        mist_collectives_close(subjects[i].at);
        mist_device_close(subjects[i].device);
    }
}

enum kind { REDUCE, SCATTER, SCATTER_APART, GATHER, GATHER_APART, MESSAGE, N_KINDS };

/* One call of a batch, with memory of its own. One element behind stays as it was. */
struct call {
    enum kind kind;
    enum mist_dtype dtype;
    int32_t step;
    const struct team *team;
    int64_t n, shard, element_bytes;
    char whole[(MAX_N + 1) * sizeof(float)], own[(MAX_N + 1) * sizeof(float)];
};

static void put(struct call *call, char *at, int64_t i, float x)
{
    uint16_t half = naive_narrow(x);

    memcpy(at + i * call->element_bytes,
           call->dtype == MIST_DTYPE_BF16 ? (void *)&half : (void *)&x,
           (size_t)call->element_bytes);
}

/* What rank r has at i, as it is stored. */
static float value(const struct call *call, int32_t r, int64_t i)
{
    float x = value_of(r + MAX_RANKS * call->step, i);

    return call->dtype == MIST_DTYPE_BF16 ? naive_widen(naive_narrow(x)) : x;
}

static float serial_sum(const struct call *call, int64_t i)
{
    float sum = value(call, call->team->ranks[0], i);

    for (int32_t k = 1; k < call->team->n; k++)
        sum += value(call, call->team->ranks[k], i);
    return sum;
}

static void init_call(struct call *call, const struct subject *subject, int32_t step)
{
    int64_t most = draw(step, 0, 2) ? MAX_N : 7; /* also less than a group has members */

    call->step = step;
    call->kind = (enum kind)draw(step, 1, N_KINDS);
    call->dtype = draw(step, 2, 2) ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32;
    call->element_bytes = call->dtype == MIST_DTYPE_BF16 ? 2 : 4;
    call->team = &subject->teams[draw(step, 3, subject->n_teams)];
    call->n = draw(step, 4, most + 1);
    if (call->kind != REDUCE && call->kind != MESSAGE)
        call->n -= call->n % call->team->n;
    call->shard = call->n / call->team->n;
    memset(call->whole, 0xff, sizeof call->whole);
    memset(call->own, 0xff, sizeof call->own);
    if (call->kind == GATHER || call->kind == GATHER_APART) {
        int64_t begin = call->team->index * call->shard;
        for (int64_t i = 0; i < call->shard; i++)
            put(call, call->kind == GATHER ? call->whole : call->own,
                call->kind == GATHER ? begin + i : i, value(call, rank, begin + i));
        return;
    }
    for (int64_t i = 0; i < call->n; i++)
        put(call, call->whole, i, value(call, rank, i));
}

/* Every member of the team sends to the next; own gets what the one before has. */
static enum mist_status pass_on(const struct subject *subject, struct call *call)
{
    const struct team *team = call->team;
    int32_t next = team->ranks[(team->index + 1) % team->n];
    int32_t last = team->ranks[(team->index + team->n - 1) % team->n];
    int32_t tag = (int32_t)draw(call->step, 5, 3);
    int64_t bytes = call->n * call->element_bytes;
    enum mist_status status = MIST_OK;

    for (int side = 0; side < 2 && status == MIST_OK; side++)
        status =
            (side == 0) == (team->index != 0)
                ? mist_collectives_recv(subject->at, last, tag, call->own, bytes, &err)
                : mist_collectives_send(subject->at, next, tag, call->whole, bytes, &err);
    return status;
}

static enum mist_status run_call(const struct subject *subject, struct call *call)
{
    struct mist_collective_group *group = call->team->group;
    int64_t shard_bytes = call->shard * call->element_bytes;
    char *own = call->kind == SCATTER || call->kind == GATHER
                    ? call->whole + call->team->index * shard_bytes
                    : call->own;

    switch (call->kind) {
    case REDUCE:
        return mist_collective_all_reduce(group, call->dtype, call->whole, call->n, &err);
    case SCATTER:
    case SCATTER_APART:
        return mist_collective_reduce_scatter(group, call->dtype, call->whole, own,
                                              call->n, &err);
    case GATHER:
    case GATHER_APART:
        return mist_collective_all_gather(group, own, call->whole, shard_bytes, &err);
    default:
        return pass_on(subject, call);
    }
}

/* Elements begin .. end - 1 of expected, and the one behind them untouched if it is the
 * last of its buffer. */
static void check_call(struct call *call)
{
    static struct call expected;
    const struct team *team = call->team;
    int64_t first = team->index * call->shard, n = call->n;
    int32_t last = team->ranks[(team->index + team->n - 1) % team->n];
    char *result = call->whole;

    expected.dtype = call->dtype;
    expected.element_bytes = call->element_bytes;
    memset(expected.whole, 0xff, sizeof expected.whole);
    for (int64_t i = 0; i < n; i++) {
        if (call->kind == REDUCE)
            put(&expected, expected.whole, i, serial_sum(call, i));
        else if (call->kind == GATHER || call->kind == GATHER_APART)
            put(&expected, expected.whole, i,
                value(call, team->ranks[i / call->shard], i));
        else if (call->kind == MESSAGE)
            put(&expected, expected.whole, i, value(call, last, i));
        else if (i < call->shard)
            put(&expected, expected.whole, i, serial_sum(call, first + i));
    }
    if (call->kind == MESSAGE)
        result = call->own;
    if (call->kind == SCATTER || call->kind == SCATTER_APART)
        n = call->shard;
    if (call->kind == SCATTER)
        result = call->whole + first * call->element_bytes;
    else if (call->kind == SCATTER_APART)
        result = call->own;
    CHECK(memcmp(result, expected.whole,
                 (size_t)((n + (call->kind != SCATTER)) * call->element_bytes)) == 0);
}

static void run_batches(struct subject *subjects)
{
    static struct call calls[BATCH];

    for (int32_t batch = 0; batch < N_BATCHES; batch++)
        for (int32_t k = 0; k < N_SUBJECTS; k++) {
            for (int32_t i = 0; i < BATCH; i++)
                init_call(&calls[i], &subjects[k], batch * BATCH + i);
            for (int32_t i = 0; i < BATCH; i++)
                CHECK(run_call(&subjects[k], &calls[i]) == MIST_OK);
            CHECK(mist_device_synchronize(subjects[k].device, &err) == MIST_OK);
            for (int32_t i = 0; i < BATCH; i++)
                check_call(&calls[i]);
        }
}

/* More messages than there are records, while the first one keeps all waiting. */
static void run_many(const struct subject *subject)
{
    static int64_t values[MANY];

    for (int64_t i = 0; i < MANY; i++)
        values[i] = rank == 0 ? i * i : -1;
    if (rank == 0)
        mist_clock_sleep_s(0.05);
    for (int32_t i = 0; i < MANY && rank < 2; i++)
        if (rank == 0)
            CHECK(mist_collectives_send(subject->at, 1, i % 3, &values[i], 8, &err) ==
                  MIST_OK);
        else
            CHECK(mist_collectives_recv(subject->at, 0, i % 3, &values[i], 8, &err) ==
                  MIST_OK);
    CHECK(mist_device_synchronize(subject->device, &err) == MIST_OK);
    for (int64_t i = 0; i < MANY && rank < 2; i++)
        CHECK(values[i] == i * i);
}

/* What is refused before anything is sent. */
static void run_refused(const struct subject *subject, bool has_limits)
{
    static float values[2 * MAX_N];
    struct mist_collective_group *group = subject->teams[ALL].group, *none;
    enum mist_dtype fp32 = MIST_DTYPE_FP32, no_dtype = MIST_N_DTYPES;
    int64_t too_many = 2 * MAX_N - 2 * MAX_N % n_ranks;
    const int32_t others[] = {(rank + 1) % n_ranks, (rank + 2) % n_ranks};

#define REFUSED(call) CHECK((call) == MIST_ERR_RANGE)
    REFUSED(mist_collective_all_reduce(group, fp32, values, -1, &err));
    REFUSED(mist_collective_all_reduce(group, fp32, values, INT64_MAX / 2, &err));
    REFUSED(mist_collective_all_reduce(group, no_dtype, values, 1, &err));
    REFUSED(mist_collective_reduce_scatter(group, fp32, values, values, -1, &err));
    REFUSED(
        mist_collective_reduce_scatter(group, fp32, values, values, n_ranks + 1, &err));
    REFUSED(mist_collective_all_gather(group, values, values, -1, &err));
    REFUSED(mist_collectives_send(subject->at, others[0], 0, values, -1, &err));
    REFUSED(mist_collectives_recv(subject->at, others[0], 0, values, -1, &err));
    REFUSED(mist_collectives_group(subject->at, others, 0, 90, 4, &none, &err));
    REFUSED(mist_collectives_group(subject->at, others, 2, 90, -1, &none, &err));
    REFUSED(mist_collectives_reserve(subject->at, -1, &err));
    CHECK(mist_collectives_group(subject->at, others, 2, 90, 4, &none, &err) ==
              MIST_ERR_INPUT &&
          !none);
    if (has_limits) {
        REFUSED(mist_collective_all_reduce(group, fp32, values, too_many, &err));
        REFUSED(
            mist_collective_reduce_scatter(group, fp32, values, values, too_many, &err));
        REFUSED(mist_collective_all_gather(group, values, values, 2 * MAX_N, &err));
        REFUSED(mist_collectives_send(subject->at, others[0], 0, values, sizeof values,
                                      &err));
        REFUSED(mist_collectives_recv(subject->at, others[0], 0, values, sizeof values,
                                      &err));
    }
#undef REFUSED
    CHECK(mist_device_synchronize(subject->device, &err) == MIST_OK);
}

/* Rank 1 sends too little. The device of rank 0 fails, and later calls don't hang. */
static void run_failing(const struct subject *subject)
{
    int64_t values[2] = {0};

    if (rank == 1) {
        CHECK(mist_collectives_send(subject->at, 0, 2, values, 8, &err) == MIST_OK);
        mist_clock_sleep_s(60); /* until rank 0 ends the job */
    }
    CHECK(mist_collectives_recv(subject->at, 1, 2, values, 16, &err) == MIST_OK);
    CHECK(mist_device_synchronize(subject->device, &err) == MIST_ERR_RUN);
    for (int32_t i = 0; i < MANY; i++) { /* refused when there is no room to skip it in */
        struct mist_err after;
        enum mist_status status =
            mist_collectives_send(subject->at, 1, 0, values, 8, &after);
        CHECK(status == MIST_OK || status == MIST_ERR_RUN);
    }
    printf("%s\n", err.message);
    CHECK(mist_device_synchronize(subject->device, &err) == MIST_ERR_RUN);
    fflush(stdout);
    mist_comm_abort(comm, 7);
}

static int run_rank(const char *mode)
{
    struct subject subjects[N_SUBJECTS];

    join_job();
    open_subjects(subjects);
    if (strcmp(mode, "failing") == 0)
        run_failing(&subjects[STAGED]);
    if (strcmp(mode, "failing_later") == 0)
        run_failing(&subjects[SLOW]);
    for (int32_t k = 0; k < N_SUBJECTS; k++)
        run_refused(&subjects[k], k != MPI);
    run_batches(subjects);
    run_many(&subjects[SLOW]);
    close_subjects(subjects);
    mist_comm_close(comm);
    return 0;
}

/* -------------------------------------------------------------------------- the tests */

/* In a job of one rank there is nobody to talk to, and a group of one. */
TEST(test_alone)
{
    struct subject subjects[N_SUBJECTS];

    assert_int_equal(mist_comm_open(&comm, &err), MIST_OK);
    n_ranks = 1;
    open_subjects(subjects);
    for (int32_t k = 0; k < N_SUBJECTS; k++) {
        struct mist_collective_group *group = subjects[k].teams[ALL].group;
        float values[3] = {1, 2, 3}, own[3] = {0}, all[3] = {0};
        assert_int_equal(
            mist_collective_all_reduce(group, MIST_DTYPE_FP32, values, 3, &err), MIST_OK);
        assert_int_equal(
            mist_collective_reduce_scatter(group, MIST_DTYPE_FP32, values, own, 3, &err),
            MIST_OK);
        assert_int_equal(mist_collective_all_gather(group, own, all, 12, &err), MIST_OK);
        assert_int_equal(mist_device_synchronize(subjects[k].device, &err), MIST_OK);
        assert_true(all[0] == 1 && all[1] == 2 && all[2] == 3);
    }
    close_subjects(subjects);
    mist_collectives_close(NULL);
    mist_comm_close(comm);
}

TEST(test_jobs)
{
    need_mpirun();
    test_seed(1);
    run_good_job(3, "", "batches");
    run_good_job(4, "", "batches");
}

TEST(test_failures)
{
    static const char *const modes[] = {"failing", "failing_later"};
    struct job_end end;

    need_mpirun();
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        run_job(2, "", modes[i], &end);
        if (end.code != 7)
            print_error("%s: %s\n", modes[i], end.errors);
        assert_int_equal(end.code, 7);
        assert_non_null(strstr(end.output, "rank 1 sent 8 bytes with tag 2, not 16"));
    }
}

JOB_MAIN
