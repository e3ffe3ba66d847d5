/*
 * exec/comm: one rank in place, and every operation in jobs of 2, 3 and 4 ranks, on one
 * node and on two. Failures are in test_comm_failures.c, groups that overlap in
 * test_comm_groups.c.
 */
#include "tests/unit/test.h"

#include "tests/unit/comm_job.h"

#include <fcntl.h>

#define PIECE ((int64_t)1 << 18) /* floats in a piece of a sum; see comm_sum.c */

static float sum_of(const int32_t *ranks, int32_t n, int64_t i)
{
    float sum = value_of(ranks[0], i);

    for (int32_t k = 1; k < n; k++)
        sum += value_of(ranks[k], i);
    return sum;
}

/* The same with the own shard somewhere else; work[n] is overwritten. */
static void check_apart(struct mist_comm_group *group, const float *mine,
                        const float *sum, float *work, int64_t shard)
{
    int64_t n = shard * mist_comm_group_size(group);
    int64_t begin = shard * mist_comm_group_index(group);
    float *own = calloc((size_t)(shard + 1), sizeof *own);

    CHECK(own);
    memcpy(work, mine, (size_t)n * sizeof *work);
    CHECK(mist_comm_reduce_scatter(group, MIST_DTYPE_FP32, work, own, n, &err) ==
          MIST_OK);
    CHECK(is_same(own, sum + begin, shard) && own[shard] == 0);
    CHECK(is_same(work, mine, n));
    CHECK(mist_comm_reduce_scatter(group, MIST_DTYPE_FP32, work, work + begin, n, &err) ==
          MIST_OK);
    CHECK(is_same(work + begin, sum + begin, shard));
    memset(work, 0, (size_t)n * sizeof *work);
    CHECK(mist_comm_all_gather(group, own, work, shard * 4, &err) == MIST_OK);
    CHECK(is_same(work, sum, n));
    CHECK(mist_comm_all_gather(group, work + begin, work, shard * 4, &err) == MIST_OK);
    CHECK(is_same(work, sum, n));
    free(own);
}

/* All collectives of floats, for one size, bit for bit. */
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
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_FP32, work, n, &err) == MIST_OK);
    CHECK(is_same(work, sum, n + 1));

    memcpy(work, mine, (size_t)(n + 1) * sizeof *work);
    CHECK(mist_comm_reduce_scatter(group, MIST_DTYPE_FP32, work, work + index * shard, n,
                                   &err) == MIST_OK);
    CHECK(is_same(work, mine, index * shard));
    CHECK(is_same(work + index * shard, sum + index * shard, shard));
    CHECK(is_same(work + (index + 1) * shard, mine + (index + 1) * shard,
                  n + 1 - (index + 1) * shard));

    for (int64_t i = 0; i < n; i++)
        if (i / (shard ? shard : 1) != index)
            work[i] = -1;
    sleep_a_little((uint64_t)shard + 1);
    CHECK(mist_comm_all_gather(group, work + index * shard, work, shard * 4, &err) ==
          MIST_OK);
    CHECK(is_same(work, sum, n + 1));
    check_apart(group, mine, sum, work, shard);
    free(mine);
    free(sum);
    free(work);
}

static void check_group(const int32_t *ranks, int32_t n, int32_t tag_space)
{
    static const int64_t shards[] = {
        0, 1, 2, 3, 17, 2047, 2048, 2049, 5000,
        /* what the window of a node holds of 3 ranks and of 2, and one more */
        65536, 65537, 131072, 131073};
    struct mist_comm_group *group;

    CHECK(mist_comm_group(comm, ranks, n, tag_space, &group, &err) == MIST_OK);
    CHECK(ranks[mist_comm_group_index(group)] == rank);
    for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
        check_sums(group, ranks, shards[i]);
}

/* Every pair of these is added up: where rounding to bf16 has to decide. */
static const uint16_t odd_values[] = {
    0x0000, 0x8000, 0x3f80, 0x3f81, 0x3f82, 0xbf80, 0x3b80, 0x3b81, 0x3b00, 0xbb80,
    0x3bc0, 0x3bc1, 0x7f7f, 0xff7f, 0x7e80, 0x7e7f, 0x7b00, 0x7f80, 0xff80, 0x7fc0,
    0xffff, 0x0001, 0x8001, 0x007f, 0x0080, 0x00ff, 0x0040, 0x4049, 0x4248, 0xc2f7};

enum { N_ODD = sizeof odd_values / sizeof *odd_values };

enum { PERIOD = 5003 }; /* of the values; it divides no length */

/* The first pair of ranks has the odd values, all others -0, which changes no sum; then
 * random ones. */
static uint16_t bf16_of(int32_t r, int64_t i)
{
    if (i < N_ODD * N_ODD)
        return r < 2 ? odd_values[r == 0 ? i / N_ODD : i % N_ODD] : 0x8000;
    return naive_narrow(value_of(r, i));
}

static void check_bf16(void)
{
    int64_t shard = 2 * PIECE + 77, n = shard * n_ranks, begin = rank * shard;
    uint16_t mine[PERIOD], sums[PERIOD];
    uint16_t *sum = malloc((size_t)n * 2), *work = malloc((size_t)n * 2);
    uint16_t *own = malloc((size_t)shard * 2);
    int32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct mist_comm_group *group;

    CHECK(sum && work && own);
    CHECK(mist_comm_group(comm, all, n_ranks, 20, &group, &err) == MIST_OK);
    for (int64_t i = 0; i < PERIOD; i++) {
        float total = naive_widen(bf16_of(0, i));
        for (int32_t r = 1; r < n_ranks; r++)
            total += naive_widen(bf16_of(r, i));
        sums[i] = naive_narrow(total);
        mine[i] = bf16_of(rank, i);
    }
    for (int64_t i = 0; i < n; i++) {
        sum[i] = sums[i % PERIOD];
        work[i] = mine[i % PERIOD];
    }
    CHECK(mist_comm_reduce_scatter(group, MIST_DTYPE_BF16, work, own, n, &err) ==
          MIST_OK);
    CHECK(is_same_bf16(own, sum + begin, shard));
    CHECK(mist_comm_reduce_scatter(group, MIST_DTYPE_BF16, work, work + begin, n, &err) ==
          MIST_OK);
    CHECK(is_same_bf16(work + begin, sum + begin, shard));
    for (int64_t i = 0; i < n; i++)
        CHECK(i / shard == rank || work[i] == mine[i % PERIOD]);
    for (int64_t i = 0; i < n; i++)
        work[i] = mine[i % PERIOD];
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_BF16, work, n, &err) == MIST_OK);
    CHECK(is_same_bf16(work, sum, n));
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_BF16, work, n + 1, &err) ==
          MIST_ERR_RANGE);
    free(sum);
    free(work);
    free(own);
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
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_FP32, few, n_ranks, &err) ==
          MIST_ERR_RANGE);
    CHECK(strstr(err.message, "reserved"));
    int64_t max_bytes = (2 * PIECE + 5) * n_ranks * 4;
    CHECK(mist_comm_reserve(comm, max_bytes, n_ranks, &err) == MIST_OK);
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_FP32, few, n_ranks + 1, &err) ==
          MIST_ERR_RANGE);
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

/* Transfers around the ring of ranks, large and small; sends and receives in a thread
 * each, so that nobody has to begin. */
enum { N_ROUND = 300000, N_ROUNDS = 60 };

static int64_t n_in_round(int32_t tag)
{
    return tag % 3 == 0 ? N_ROUND : 1 + tag;
}

static void *send_round(void *arg)
{
    static int32_t out[N_ROUND];
    struct mist_err why = {0};

    (void)arg;
    for (int32_t tag = 0; tag < N_ROUNDS; tag++) {
        int64_t n = n_in_round(tag);
        for (int64_t i = 0; i < n; i++)
            out[i] = rank * N_ROUND + tag + (int32_t)i;
        sleep_a_little((uint64_t)tag);
        CHECK(mist_comm_send(comm, (rank + 1) % n_ranks, tag, out, 4 * n, &why) ==
              MIST_OK);
    }
    return NULL;
}

static void *receive_round(void *arg)
{
    static int32_t in[N_ROUND];
    int32_t last = (rank + n_ranks - 1) % n_ranks;
    struct mist_err why = {0};

    (void)arg;
    for (int32_t tag = 0; tag < N_ROUNDS; tag++) {
        int64_t n = n_in_round(tag);
        CHECK(mist_comm_recv(comm, last, tag, in, 4 * n, &why) == MIST_OK);
        for (int64_t i = 0; i < n; i++)
            CHECK(in[i] == last * N_ROUND + tag + (int32_t)i);
        sleep_a_little((uint64_t)tag + N_ROUNDS);
    }
    return NULL;
}

/* Sums meanwhile: through the window of the node, and by messages in pieces. */
static void check_threads(void)
{
    static const int64_t shards[] = {1, 5000, 131073, 2 * PIECE + 3};
    int32_t all[8] = {0, 1, 2, 3, 4, 5, 6, 7};
    struct mist_comm_group *group;
    pthread_t sender, receiver;

    CHECK(mist_comm_group(comm, all, n_ranks, 30, &group, &err) == MIST_OK);
    CHECK(mist_comm_reserve(comm, 4 * n_ranks * (2 * PIECE + 3), n_ranks, &err) ==
          MIST_OK);
    CHECK(pthread_create(&sender, NULL, send_round, NULL) == 0);
    CHECK(pthread_create(&receiver, NULL, receive_round, NULL) == 0);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof shards / sizeof *shards; i++)
            check_sums(group, all, shards[i]);
    CHECK(pthread_join(sender, NULL) == 0);
    CHECK(pthread_join(receiver, NULL) == 0);
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
    CHECK(mist_comm_all_reduce(group, MIST_DTYPE_FP32, sum, n_ranks, &err) == MIST_OK);
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
}

/* More values than are sent at once, all of them different, and sums that do not fit. */
static void check_integers(void)
{
    enum { N = 600 };
    int64_t values[N], far[2] = {INT64_MAX - (rank == 0), rank == 0 ? 1 : 5};
    double numbers[N];

    for (int kind = MIST_COMM_SUM; kind <= MIST_COMM_MIN; kind++) {
        for (int64_t i = 0; i < N; i++) {
            values[i] = (int64_t)mist_random_at(5, (uint64_t)rank, (uint64_t)i) / 8;
            numbers[i] = (double)value_of(rank, i);
        }
        CHECK(mist_comm_all_reduce_i64(comm, (enum mist_comm_reduction)kind, values, N,
                                       &err) == MIST_OK);
        CHECK(mist_comm_all_reduce_f64(comm, (enum mist_comm_reduction)kind, numbers, N,
                                       &err) == MIST_OK);
        for (int64_t i = 0; i < N; i++) {
            int64_t sum = 0, largest = INT64_MIN, least = INT64_MAX;
            double total = (double)value_of(0, i);
            for (int32_t r = 0; r < n_ranks; r++) {
                int64_t x = (int64_t)mist_random_at(5, (uint64_t)r, (uint64_t)i) / 8;
                sum += x;
                largest = x > largest ? x : largest;
                least = x < least ? x : least;
                total += r ? (double)value_of(r, i) : 0;
            }
            CHECK(values[i] == (kind == MIST_COMM_SUM   ? sum
                                : kind == MIST_COMM_MAX ? largest
                                                        : least));
            CHECK(kind != MIST_COMM_SUM || numbers[i] == total);
        }
    }
    CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_SUM, far, 2, &err) == MIST_ERR_RANGE);
    CHECK(strstr(err.message, "value 0 up to rank 1"));
    far[0] = rank == 0 ? INT64_MIN : rank == 1 ? INT64_MAX : 1; /* fits on the way */
    far[1] = rank;
    CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_SUM, far, 2, &err) == MIST_OK);
    CHECK(far[0] == n_ranks - 3 && far[1] == n_ranks * (n_ranks - 1) / 2);
    CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_MAX, far, 0, &err) == MIST_OK);
}

static void check_nodes(int32_t n_nodes)
{
    CHECK(mist_comm_node(comm) == rank % n_nodes); /* dealt out in turn */
    CHECK(mist_comm_node_rank(comm) == rank / n_nodes);
    CHECK(mist_comm_n_node_ranks(comm) == n_ranks / n_nodes);
}

static int run_rank(const char *mode, const char *shared)
{
    if (mist_comm_open_deadline(&comm, 50, &err) != MIST_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 98;
    }
    rank = mist_comm_rank(comm);
    n_ranks = mist_comm_n_ranks(comm);
    check_nodes(strcmp(mode, "two_nodes") == 0 ? 2 : 1);
    check_groups();
    check_bf16();
    check_tags();
    check_transfers();
    check_threads();
    check_barrier(shared);
    check_gather();
    check_broadcast();
    check_control();
    check_integers();
    mist_comm_close(comm);
    return 0;
}

/* -------------------------------------------------------------------------- the tests */

TEST(test_jobs)
{
    need_mpirun();
    for (int n = 2; n <= 4; n++)
        run_good_job(n, "", "one_node");
}

/*
 * Two nodes on one machine: mpirun starts its daemons with a script instead of ssh, which
 * gives each of them a host name of its own; nodes with different names share no memory
 * and talk through sockets.
 */
TEST(test_nodes)
{
    struct scratch scratch;
    char options[512], command[1024];

    need_mpirun();
    if (system("unshare --uts hostname node-a 2>/dev/null") != 0) {
        print_message("no right to change a host name: two nodes are not tested\n");
        skip();
    }
    scratch_init(&scratch);
    scratch_write(scratch_path(&scratch, "agent"),
                  "host=$1; shift\nexec unshare --uts sh -c \"hostname $host; $*\"\n");
    snprintf(options, sizeof options,
             "--mca plm_rsh_agent 'sh %s' --host node-a:2,node-b:2 --map-by node "
             "--mca btl_tcp_if_include lo --mca oob_tcp_if_include lo",
             scratch.path);
    snprintf(command, sizeof command,
             "timeout 30 mpirun --allow-run-as-root %s -n 4 true >/dev/null 2>&1",
             options);
    bool can_run = system(command) == 0;
    if (can_run)
        run_good_job(4, options, "two_nodes");
    scratch_fini(&scratch);
    if (!can_run) {
        print_message("no daemons under other host names: two nodes are not tested\n");
        skip();
    }
}

/* Without a launcher: a job of one, whose operations change nothing. */
TEST(test_alone)
{
    struct mist_comm *alone;
    struct mist_comm_group *group;
    const int32_t ranks[] = {0, 1};
    float values[] = {1, 2, 3};
    double numbers[] = {4, 5};
    int64_t counts[] = {6, INT64_MAX};
    uint16_t halves[] = {0x3f81, 0x4000}, half[2];
    float shard[3];
    char *all;
    int64_t size;

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
        assert_int_equal(mist_comm_all_reduce(group, MIST_DTYPE_FP32, values, 3, &err),
                         MIST_OK);
        assert_int_equal(
            mist_comm_reduce_scatter(group, MIST_DTYPE_FP32, values, values, 3, &err),
            MIST_OK);
        assert_int_equal(mist_comm_all_gather(group, values, values, 12, &err), MIST_OK);
        assert_int_equal(mist_comm_all_gather(group, halves + 1, half, 2, &err), MIST_OK);
        assert_int_equal(half[0], 0x4000);
        assert_int_equal(mist_comm_all_reduce(group, MIST_DTYPE_BF16, halves, 2, &err),
                         MIST_OK);
        assert_int_equal(
            mist_comm_reduce_scatter(group, MIST_DTYPE_BF16, halves, halves, 2, &err),
            MIST_OK);
        assert_int_equal(
            mist_comm_reduce_scatter(group, MIST_DTYPE_BF16, halves, half, 2, &err),
            MIST_OK);
        assert_memory_equal(half, halves, sizeof half);
        assert_int_equal(
            mist_comm_reduce_scatter(group, MIST_DTYPE_FP32, values, shard, 3, &err),
            MIST_OK);
        assert_memory_equal(shard, values, sizeof shard);
        assert_true(values[0] == 1 && values[1] == 2 && values[2] == 3);
        assert_int_equal(mist_comm_all_reduce_i64(alone, MIST_COMM_SUM, counts, 2, &err),
                         MIST_OK);
        assert_true(counts[0] == 6 && counts[1] == INT64_MAX);
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
TEST(test_workspace)
{
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
    if (argc == 3)
        return run_rank(argv[1], argv[2]);
    program = argv[0];
    return run_listed_tests(NULL, NULL);
}
