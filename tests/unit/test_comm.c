/*
 * exec/comm: one rank in place, and jobs of 2, 3 and 4 ranks.
 *
 * Started without arguments it is a cmocka test, which starts mpirun with itself and the
 * hidden arguments "MODE FILE"; then it is one rank of a job, and exits with 0 only if
 * all of its checks passed. FILE is memory that the ranks share.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "tests/unit/scratch.h"

#include "core/clock.h"
#include "core/random.h"
#include "exec/comm.h"

#include <fcntl.h>
#include <math.h>
#include <sys/wait.h>

/* --------------------------------------------------------------------- rank of a job */

#define PIECE ((int64_t)1 << 18) /* floats in a piece of a sum; see comm_collective.c */

static struct mist_comm *comm;
static int32_t rank, n_ranks;
static struct mist_err err;

static _Noreturn void give_up(const char *what, int line)
{
    fprintf(stderr, "rank %d: test_comm.c:%d: not true: %s (%s)\n", rank, line, what,
            err.message);
    fflush(stderr);
    mist_comm_abort(comm, 99);
}

#define CHECK(what)                                                                      \
    do {                                                                                 \
        if (!(what))                                                                     \
            give_up(#what, __LINE__);                                                    \
    } while (0)

/* What rank r brings to a sum: of very different sizes, so that the order shows. */
static float value_of(int32_t r, int64_t i)
{
    uint64_t bits = mist_random_at(1, (uint64_t)r, (uint64_t)i);

    return ldexpf((float)(bits >> 40) - 8388608.0f, (int)(bits % 24) - 36);
}

static float sum_of(const int32_t *ranks, int32_t n, int64_t i)
{
    float sum = value_of(ranks[0], i);

    for (int32_t k = 1; k < n; k++)
        sum += value_of(ranks[k], i);
    return sum;
}

static bool is_same(const float *values, const float *expected, int64_t n)
{
    return memcmp(values, expected, (size_t)n * sizeof *values) == 0;
}

static void sleep_a_little(uint64_t i)
{
    if (mist_random_at(2, (uint64_t)rank, i) % 3 == 0)
        mist_clock_sleep_s(1e-3 * mist_random_uniform_at(3, (uint64_t)rank, i));
}

/* All three collectives, for one size, bit for bit. */
static void check_sums(struct mist_comm_group *group, const int32_t *ranks, int64_t shard)
{
    int32_t size = mist_comm_group_size(group), index = mist_comm_group_index(group);
    int64_t n = shard * size;
    float *mine = malloc((size_t)(n + 1) * sizeof *mine);
    float *sum = malloc((size_t)(n + 1) * sizeof *sum);
    float *work = malloc((size_t)(n + 1) * sizeof *work);

    CHECK(mine && sum && work);
    for (int64_t i = 0; i <= n; i++) {
        mine[i] = work[i] = value_of(rank, i);
        sum[i] = sum_of(ranks, size, i);
    }
    sum[n] = mine[n]; /* a guard behind the end */
    sleep_a_little((uint64_t)shard);
    CHECK(mist_comm_all_reduce_sum_f32(group, work, n, &err) == MIST_OK);
    CHECK(is_same(work, sum, n + 1));

    memcpy(work, mine, (size_t)(n + 1) * sizeof *work);
    CHECK(mist_comm_reduce_scatter_sum_f32(group, work, n, &err) == MIST_OK);
    CHECK(is_same(work, mine, index * shard));
    CHECK(is_same(work + index * shard, sum + index * shard, shard));
    CHECK(is_same(work + (index + 1) * shard, mine + (index + 1) * shard,
                  n + 1 - (index + 1) * shard));

    for (int64_t i = 0; i < n; i++)
        if (i / (shard ? shard : 1) != index)
            work[i] = -1;
    sleep_a_little((uint64_t)shard + 1);
    CHECK(mist_comm_all_gather(group, work, shard * 4, &err) == MIST_OK);
    CHECK(is_same(work, sum, n + 1));
    free(mine);
    free(sum);
    free(work);
}

static void check_group(const int32_t *ranks, int32_t n, int32_t tag_space)
{
    static const int64_t shards[] = {0, 1, 2, 3, 17, 2047, 2048, 2049, 5000};
    struct mist_comm_group *group;

    CHECK(mist_comm_group(comm, ranks, n, tag_space, &group, &err) == MIST_OK);
    CHECK(ranks[mist_comm_group_index(group)] == rank);
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        check_sums(group, ranks, shards[i]);
}

static void check_groups(void)
{
    static const int64_t shards[] = {PIECE - 1, PIECE, PIECE + 1, 2 * PIECE + 5};
    int32_t all[8], reversed[8], halves[8];
    int32_t n_half = 0;
    struct mist_comm_group *group;
    float few[8] = {0};

    for (int32_t i = 0; i < n_ranks; i++) {
        all[i] = i;
        reversed[i] = n_ranks - 1 - i;
        if (i % 2 == rank % 2) /* even and odd ranks at the same time */
            halves[n_half++] = i;
    }
    CHECK(mist_comm_group(comm, all, n_ranks, 0, &group, &err) == MIST_OK);
    CHECK(mist_comm_all_reduce_sum_f32(group, few, n_ranks, &err) == MIST_ERR_RANGE);
    CHECK(strstr(err.message, "reserved"));
    int64_t max_bytes = (2 * PIECE + 5) * n_ranks * 4;
    CHECK(mist_comm_reserve(comm, max_bytes, n_ranks, &err) == MIST_OK);
    CHECK(mist_comm_all_reduce_sum_f32(group, few, n_ranks + 1, &err) == MIST_ERR_RANGE);
    check_group(all, n_ranks, 7);
    check_group(reversed, n_ranks, 8);
    check_group(halves, n_half, 9);
    check_group(&rank, 1, 10);
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        check_sums(group, all, shards[i]);
    CHECK(mist_comm_group(comm, halves, 0, 0, &group, &err) == MIST_ERR_INPUT);
    int32_t other = (rank + 1) % n_ranks, twice[] = {rank, rank}, far[] = {rank, n_ranks};
    CHECK(mist_comm_group(comm, &other, 1, 0, &group, &err) == MIST_ERR_INPUT);
    CHECK(mist_comm_group(comm, twice, 2, 0, &group, &err) == MIST_ERR_INPUT);
    CHECK(mist_comm_group(comm, far, 2, 0, &group, &err) == MIST_ERR_INPUT);
    CHECK(mist_comm_group(comm, all, n_ranks, -1, &group, &err) == MIST_ERR_RANGE);
}

/* A pipeline: every rank gets from the one before and sends on, with several tags and
 * lengths around where MPI changes from copying to asking first. */
static void check_transfers(void)
{
    static const int64_t sizes[] = {0, 1, 4095, 4096, 4097, 65537, 5000000};
    static char bytes[5000001];

    for (int32_t tag = 0; tag < 21; tag++) {
        int64_t n = sizes[tag % 7];
        memset(bytes, rank == 0 ? tag + 1 : 0, sizeof bytes);
        if (rank > 0) {
            CHECK(mist_comm_recv(comm, rank - 1, tag, bytes, n, &err) == MIST_OK);
            CHECK(bytes[n] == 0);
            for (int64_t i = 0; i < n; i++)
                CHECK(bytes[i] == tag + 1);
        }
        sleep_a_little((uint64_t)tag);
        if (rank < n_ranks - 1)
            CHECK(mist_comm_send(comm, rank + 1, tag, bytes, n, &err) == MIST_OK);
    }
    CHECK(mist_comm_send(comm, rank, 0, bytes, 1, &err) == MIST_ERR_RANGE);
    CHECK(mist_comm_send(comm, n_ranks, 0, bytes, 1, &err) == MIST_ERR_RANGE);
    CHECK(mist_comm_recv(comm, -1, 0, bytes, 1, &err) == MIST_ERR_RANGE);
    CHECK(mist_comm_recv(comm, (rank + 1) % n_ranks, -1, bytes, 1, &err) ==
          MIST_ERR_RANGE);
}

/* Small messages are on their way before anyone asks for them; tags sort them, and sums
 * with the number of a tag don't meet them. */
static void check_tags(void)
{
    int32_t all[8];
    struct mist_comm_group *group;
    int32_t got[2];
    float sum[8] = {0};

    for (int32_t i = 0; i < n_ranks; i++)
        all[i] = i;
    CHECK(mist_comm_group(comm, all, n_ranks, 5, &group, &err) == MIST_OK);
    for (int32_t k = 5; k < 7 && rank == 0; k++)
        CHECK(mist_comm_send(comm, 1, k, &k, sizeof k, &err) == MIST_OK);
    sum[0] = (float)(rank + 1);
    CHECK(mist_comm_all_reduce_sum_f32(group, sum, n_ranks, &err) == MIST_OK);
    CHECK(sum[0] == (float)(n_ranks * (n_ranks + 1)) / 2);
    for (int32_t k = 1; k >= 0 && rank == 1; k--) {
        CHECK(mist_comm_recv(comm, 0, 5 + k, &got[k], sizeof *got, &err) == MIST_OK);
        CHECK(got[k] == 5 + k);
    }
}

/* Nobody leaves a barrier before all have come: everyone leaves a mark first. */
static void check_barrier(const char *shared)
{
    int file = open(shared, O_RDWR);

    CHECK(file >= 0);
    for (int round = 0; round < 20; round++) {
        char marks[8] = {0}, mark = 1;
        sleep_a_little((uint64_t)round);
        CHECK(pwrite(file, &mark, 1, round * n_ranks + rank) == 1);
        CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
        CHECK(pread(file, marks, (size_t)n_ranks, round * n_ranks) == n_ranks);
        for (int i = 0; i < n_ranks; i++)
            CHECK(marks[i] == 1);
    }
    close(file);
}

static void check_gather(void)
{
    char mine[16], *all;
    int64_t sizes[8], n = rank == 1 ? 0 : 3 + rank;

    memset(mine, 'a' + rank, sizeof mine);
    CHECK(mist_comm_gather_bytes(comm, mine, n, &all, rank ? NULL : sizes, &err) ==
          MIST_OK);
    CHECK((all != NULL) == (rank == 0));
    if (rank == 0) {
        int64_t at = 0;
        for (int32_t r = 0; r < n_ranks; r++) {
            CHECK(sizes[r] == (r == 1 ? 0 : 3 + r));
            for (int64_t i = 0; i < sizes[r]; i++)
                CHECK(all[at++] == 'a' + r);
        }
        CHECK(all[at] == '\0');
    }
    free(all);
}

static void check_broadcast(void)
{
    static const int64_t sizes[] = {0, 1, 100003};
    static char bytes[100004];

    for (int32_t root = 0; root < n_ranks; root++) {
        for (int k = 0; k < 3; k++) {
            memset(bytes, rank == root ? root + 1 : 0, sizeof bytes);
            CHECK(mist_comm_broadcast_bytes(comm, root, bytes, sizes[k], &err) ==
                  MIST_OK);
            for (int64_t i = 0; i < sizes[k]; i++)
                CHECK(bytes[i] == root + 1);
            CHECK(bytes[sizes[k]] == (rank == root ? root + 1 : 0));
        }
    }
}

static void check_control(void)
{
    for (int kind = MIST_COMM_SUM; kind <= MIST_COMM_MIN; kind++) {
        double values[3] = {(double)value_of(rank, 0), rank, rank == 1 ? NAN : 0};
        double expected = (double)value_of(0, 0);
        for (int32_t r = 1; r < n_ranks; r++) {
            double next = (double)value_of(r, 0);
            expected = kind == MIST_COMM_SUM   ? expected + next
                       : kind == MIST_COMM_MAX ? fmax(expected, next)
                                               : fmin(expected, next);
        }
        CHECK(mist_comm_all_reduce_f64(comm, (enum mist_comm_reduction)kind, values, 3,
                                       &err) == MIST_OK);
        CHECK(memcmp(&values[0], &expected, sizeof expected) == 0);
        CHECK(values[1] == (kind == MIST_COMM_SUM   ? n_ranks * (n_ranks - 1) / 2
                            : kind == MIST_COMM_MAX ? n_ranks - 1
                                                    : 0));
        CHECK(isnan(values[2]));
    }
    CHECK(mist_comm_node(comm) == 0);
    CHECK(mist_comm_n_node_ranks(comm) == n_ranks);
    CHECK(mist_comm_node_rank(comm) == rank);
}

/* Ends the job with the message of an expected error; the test looks at both. */
static void run_failing(const char *mode)
{
    char byte = 0;
    float values[2] = {0};
    struct mist_comm_group *group;
    const int32_t both[] = {0, 1};
    enum mist_status status = MIST_OK;

    if (rank == 1) {
        if (strcmp(mode, "short") == 0)
            CHECK(mist_comm_send(comm, 0, 3, &byte, 1, &err) == MIST_OK);
        mist_clock_sleep_s(60); /* until rank 0 ends the job */
        return;
    }
    mist_comm_set_deadline(comm, strcmp(mode, "short") == 0 ? 30 : 0.25);
    if (strcmp(mode, "late_sum") == 0) {
        CHECK(mist_comm_group(comm, both, 2, 4, &group, &err) == MIST_OK);
        CHECK(mist_comm_reserve(comm, 8, 2, &err) == MIST_OK);
        status = mist_comm_all_reduce_sum_f32(group, values, 2, &err);
    } else {
        status = mist_comm_recv(comm, 1, 3, values, 8, &err);
    }
    CHECK(status == MIST_ERR_RUN);
    printf("%s\n", err.message);
    status = mist_comm_recv(comm, 1, 3, values, 8, &err); /* it stays failed */
    CHECK(status == MIST_ERR_RUN && strstr(err.message, "failed before"));
    fflush(stdout);
    mist_comm_abort(comm, 7);
}

static int run_rank(const char *mode, const char *shared)
{
    if (mist_comm_open(&comm, &err) != MIST_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 98;
    }
    rank = mist_comm_rank(comm);
    n_ranks = mist_comm_n_ranks(comm);
    if (strcmp(mode, "all") != 0) {
        run_failing(mode);
    } else {
        mist_comm_set_deadline(comm, 60);
        check_groups();
        check_tags();
        check_transfers();
        check_barrier(shared);
        check_gather();
        check_broadcast();
        check_control();
    }
    mist_comm_close(comm);
    return 0;
}

/* -------------------------------------------------------------------------- the tests */

static const char *program; /* path of this test; set once by main */

static bool has_mpirun(void)
{
    return system("command -v mpirun >/dev/null 2>&1") == 0;
}

/* Starts a job and returns its exit status, and up to size - 1 bytes of its stdout. */
static int run_job(int n, const char *mode, char *output, size_t size)
{
    struct scratch scratch;
    char shared[128], printed[128], command[1024];

    scratch_init(&scratch);
    snprintf(shared, sizeof shared, "%s", scratch_path(&scratch, "shared"));
    snprintf(printed, sizeof printed, "%s", scratch_path(&scratch, "printed"));
    scratch_write(shared, "");
    snprintf(command, sizeof command,
             "mpirun --allow-run-as-root --oversubscribe -n %d '%s' %s '%s' >'%s' %s", n,
             program, mode, shared, printed,
             strcmp(mode, "all") == 0 ? "" : "2>/dev/null");
    int status = system(command);
    scratch_read(printed, output, size);
    scratch_fini(&scratch);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_jobs(void **state)
{
    char output[4096];

    (void)state;
    if (!has_mpirun()) {
        print_message("no mpirun: jobs of several ranks are not tested\n");
        skip();
    }
    for (int n = 2; n <= 4; n++)
        assert_int_equal(run_job(n, "all", output, sizeof output), 0);
}

static void test_failures(void **state)
{
    char output[4096];

    (void)state;
    if (!has_mpirun()) {
        print_message("no mpirun: failures of other ranks are not tested\n");
        skip();
    }
    assert_int_equal(run_job(2, "late", output, sizeof output), 7);
    assert_string_equal(output, "recv: rank 0 has waited 0.25 s for receiving from rank "
                                "1, tag 3, 8 bytes (1 of 1 messages are late)\n");
    assert_int_equal(run_job(2, "late_sum", output, sizeof output), 7);
    assert_non_null(strstr(output, "all_reduce: rank 0 has waited 0.25 s for receiving "
                                   "from rank 1, tag 4, 4 bytes"));
    assert_int_equal(run_job(2, "short", output, sizeof output), 7);
    assert_string_equal(output, "recv: rank 1 sent 1 bytes with tag 3, not 8\n");
}

/* Without a launcher: a job of one, whose operations change nothing. */
static void test_alone(void **state)
{
    struct mist_comm *alone;
    struct mist_comm_group *group;
    const int32_t ranks[] = {0, 1};
    float values[] = {1, 2, 3};
    double numbers[] = {4, 5};
    char *all;
    int64_t size;

    (void)state;
    for (int i = 0; i < 2; i++) { /* can be opened again */
        assert_int_equal(mist_comm_open(&alone, &err), MIST_OK);
        assert_int_equal(mist_comm_rank(alone), 0);
        assert_int_equal(mist_comm_n_ranks(alone), 1);
        assert_int_equal(mist_comm_n_node_ranks(alone), 1);
        assert_int_equal(mist_comm_group(alone, ranks, 1, 0, &group, &err), MIST_OK);
        assert_int_equal(mist_comm_group(alone, ranks, 2, 0, &group, &err),
                         MIST_ERR_INPUT);
        assert_int_equal(mist_comm_group(alone, ranks, 1, 0, &group, &err), MIST_OK);
        assert_int_equal(mist_comm_reserve(alone, 12, 1, &err), MIST_OK);
        assert_int_equal(mist_comm_all_reduce_sum_f32(group, values, 3, &err), MIST_OK);
        assert_int_equal(mist_comm_reduce_scatter_sum_f32(group, values, 3, &err),
                         MIST_OK);
        assert_int_equal(mist_comm_all_gather(group, values, 12, &err), MIST_OK);
        assert_true(values[0] == 1 && values[1] == 2 && values[2] == 3);
        assert_int_equal(mist_comm_send(alone, 0, 0, values, 4, &err), MIST_ERR_RANGE);
        assert_int_equal(mist_comm_recv(alone, 1, 0, values, 4, &err), MIST_ERR_RANGE);
        assert_int_equal(mist_comm_barrier(alone, &err), MIST_OK);
        assert_int_equal(mist_comm_all_reduce_f64(alone, MIST_COMM_MAX, numbers, 2, &err),
                         MIST_OK);
        assert_true(numbers[0] == 4 && numbers[1] == 5);
        assert_int_equal(mist_comm_broadcast_bytes(alone, 0, values, 12, &err), MIST_OK);
        assert_int_equal(mist_comm_gather_bytes(alone, "hello", 5, &all, &size, &err),
                         MIST_OK);
        assert_string_equal(all, "hello");
        assert_int_equal(size, 5);
        free(all);
        mist_comm_close(alone);
    }
    mist_comm_close(NULL);
}

/* Bounded however large the message is, and enough for every smaller group. */
static void test_workspace(void **state)
{
    (void)state;
    assert_int_equal(mist_comm_workspace_bytes(1000, 1), 0);
    assert_int_equal(mist_comm_workspace_bytes(0, 4), 0);
    assert_int_equal(mist_comm_workspace_bytes(1600, 4), 2 * 3 * 400);
    assert_int_equal(mist_comm_workspace_bytes((int64_t)1 << 40, 8), 2 * 7 * PIECE * 4);
    for (int32_t n = 3; n < 70; n++)
        for (int64_t bytes = 4; bytes < 30000000; bytes = bytes * 3 + 4)
            for (int32_t k = 2; k < n; k++) /* a message that divides over k ranks */
                assert_true(mist_comm_workspace_bytes(bytes, n) >=
                            mist_comm_workspace_bytes(bytes / k * k, k));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),
        cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_failures),
    };

    if (argc == 3)
        return run_rank(argv[1], argv[2]);
    program = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
