/*
 * exec/comm: random sequences of collectives over overlapping groups (data-parallel,
 * tensor-parallel, a stage, all) and of transfers, on 4 and 8 ranks, every result
 * compared bit by bit with what one rank computes by itself. MIST_SEED chooses the
 * sequence.
 */
#include "tests/unit/test.h"

#include "tests/unit/comm_job.h"

enum { MAX_RANKS = 8, MAX_SHARD = 700, MAX_N = MAX_SHARD * MAX_RANKS, N_STEPS = 120 };

/* The same on all ranks. */
static int64_t draw(int32_t step, uint64_t what, int64_t below)
{
    return (int64_t)(mist_random_at(test_seed(1), 100 + what, (uint64_t)step) %
                     (uint64_t)below);
}

static float value(int32_t r, int32_t step, int64_t i)
{
    return value_of(r + MAX_RANKS * step, i);
}

static uint16_t value_bf16(int32_t r, int32_t step, int64_t i)
{
    return naive_narrow(value(r, step, i));
}

/* A group and its members, which the serial computation knows by itself. */
struct team {
    struct mist_comm_group *group;
    int32_t ranks[MAX_RANKS], n, index;
};

enum { DP, TP, STAGE, ALL, N_TEAMS };

/* rank = (pp * 2 + dp) * 2 + tp. Groups of a kind that have no common rank share
 * a tag. */
static void make_teams(struct team *teams)
{
    static const int32_t same[N_TEAMS] = {[DP] = 5, [TP] = 6, [STAGE] = 4, [ALL] = 0};

    for (int32_t k = 0; k < N_TEAMS; k++) {
        struct team *team = &teams[k];
        for (int32_t i = 0; i < n_ranks; i++) {
            int32_t r = k == STAGE ? n_ranks - 1 - i : i; /* one in the other direction */
            if ((r & same[k]) != (rank & same[k]))
                continue;
            if (r == rank)
                team->index = team->n;
            team->ranks[team->n++] = r;
        }
        CHECK(mist_comm_group(comm, team->ranks, team->n, k, &team->group, &err) ==
              MIST_OK);
    }
}

static float serial_sum(const struct team *team, int32_t step, int64_t i)
{
    float sum = value(team->ranks[0], step, i);

    for (int32_t k = 1; k < team->n; k++)
        sum += value(team->ranks[k], step, i);
    return sum;
}

static uint16_t serial_sum_bf16(const struct team *team, int32_t step, int64_t i)
{
    float sum = naive_widen(value_bf16(team->ranks[0], step, i));

    for (int32_t k = 1; k < team->n; k++)
        sum += naive_widen(value_bf16(team->ranks[k], step, i));
    return naive_narrow(sum);
}

/* kind: 0 all-reduce, 1 reduce-scatter in place, 2 to somewhere else. */
static void run_sum_f32(const struct team *team, int32_t step, int kind, int64_t shard)
{
    static float buffer[MAX_N], expected[MAX_N], own[MAX_SHARD];
    int64_t n = shard * team->n, begin = team->index * shard;

    for (int64_t i = 0; i < n; i++) {
        buffer[i] = value(rank, step, i);
        bool is_own = i >= begin && i < begin + shard;
        expected[i] =
            kind == 0 || (kind == 1 && is_own) ? serial_sum(team, step, i) : buffer[i];
    }
    if (kind == 0)
        CHECK(mist_comm_all_reduce(team->group, MIST_DTYPE_FP32, buffer, n, &err) ==
              MIST_OK);
    else if (kind == 1)
        CHECK(mist_comm_reduce_scatter(team->group, MIST_DTYPE_FP32, buffer,
                                       buffer + begin, n, &err) == MIST_OK);
    else
        CHECK(mist_comm_reduce_scatter(team->group, MIST_DTYPE_FP32, buffer, own, n,
                                       &err) == MIST_OK);
    CHECK(is_same(buffer, expected, n));
    for (int64_t i = 0; i < shard && kind == 2; i++) {
        float sum = serial_sum(team, step, begin + i);
        CHECK(is_same(&own[i], &sum, 1));
    }
}

static void run_sum_bf16(const struct team *team, int32_t step, int kind, int64_t shard)
{
    static uint16_t buffer[MAX_N], expected[MAX_N], own[MAX_SHARD];
    int64_t n = shard * team->n, begin = team->index * shard;

    for (int64_t i = 0; i < n; i++) {
        buffer[i] = value_bf16(rank, step, i);
        bool is_own = i >= begin && i < begin + shard;
        expected[i] = kind == 0 || (kind == 1 && is_own) ? serial_sum_bf16(team, step, i)
                                                         : buffer[i];
    }
    if (kind == 0)
        CHECK(mist_comm_all_reduce(team->group, MIST_DTYPE_BF16, buffer, n, &err) ==
              MIST_OK);
    else if (kind == 1)
        CHECK(mist_comm_reduce_scatter(team->group, MIST_DTYPE_BF16, buffer,
                                       buffer + begin, n, &err) == MIST_OK);
    else
        CHECK(mist_comm_reduce_scatter(team->group, MIST_DTYPE_BF16, buffer, own, n,
                                       &err) == MIST_OK);
    CHECK(is_same_bf16(buffer, expected, n));
    for (int64_t i = 0; i < shard && kind == 2; i++) {
        uint16_t sum = serial_sum_bf16(team, step, begin + i);
        CHECK(is_same_bf16(&own[i], &sum, 1));
    }
}

static void run_gather(const struct team *team, int32_t step, bool is_in_place,
                       int64_t shard)
{
    static float buffer[MAX_N], own[MAX_SHARD];
    float *from = is_in_place ? buffer + team->index * shard : own;

    memset(buffer, 0, sizeof buffer);
    for (int64_t i = 0; i < shard; i++)
        from[i] = value(rank, step, i);
    CHECK(mist_comm_all_gather(team->group, from, buffer, shard * 4, &err) == MIST_OK);
    for (int64_t i = 0; i < shard * team->n; i++)
        CHECK(buffer[i] == value(team->ranks[i / shard], step, i % shard));
}

/* Everybody with the rank across: a message each way. */
static void run_two(int32_t step, int64_t n)
{
    static float mine[MAX_N], theirs[MAX_N];
    int32_t peer = rank ^ (int32_t)(1 + draw(step, 5, n_ranks - 1));
    int32_t tag = (int32_t)draw(step, 6, 4);
    bool is_first = (rank < peer) == (draw(step, 7, 2) == 0);

    for (int64_t i = 0; i < n; i++)
        mine[i] = value(rank, step, i);
    for (int k = 0; k < 2; k++)
        if (is_first == (k == 0))
            CHECK(mist_comm_send(comm, peer, tag, mine, n * 4, &err) == MIST_OK);
        else
            CHECK(mist_comm_recv(comm, peer, tag, theirs, n * 4, &err) == MIST_OK);
    for (int64_t i = 0; i < n; i++)
        CHECK(theirs[i] == value(peer, step, i));
}

static void run_control(int32_t step)
{
    int64_t largest = INT64_MIN,
            mine = (int64_t)mist_random_at(9, (uint64_t)rank, (uint64_t)step);
    double sum = 0, part = (double)value(rank, step, 0);

    for (int32_t r = 0; r < n_ranks; r++) {
        int64_t theirs = (int64_t)mist_random_at(9, (uint64_t)r, (uint64_t)step);
        largest = theirs > largest ? theirs : largest;
        sum += (double)value(r, step, 0);
    }
    CHECK(mist_comm_all_reduce_i64(comm, MIST_COMM_MAX, &mine, 1, &err) == MIST_OK);
    CHECK(mine == largest);
    CHECK(mist_comm_all_reduce_f64(comm, MIST_COMM_SUM, &part, 1, &err) == MIST_OK);
    CHECK(memcmp(&part, &sum, sizeof sum) == 0);
    if (step % 2)
        CHECK(mist_comm_barrier(comm, &err) == MIST_OK);
}

static void run_step(const struct team *teams, int32_t step)
{
    const struct team *team = &teams[draw(step, 0, N_TEAMS)];
    int64_t shard =
        draw(step, 1, 3) ? 1 + draw(step, 2, 40) : 1 + draw(step, 2, MAX_SHARD);
    int kind = (int)draw(step, 3, 11);

    sleep_a_little((uint64_t)step);
    if (kind < 3)
        run_sum_f32(team, step, kind, shard);
    else if (kind < 6)
        run_sum_bf16(team, step, kind - 3, shard);
    else if (kind < 8)
        run_gather(team, step, kind == 6, shard);
    else if (kind < 10)
        run_two(step, shard * n_ranks);
    else
        run_control(step);
}

static int run_rank(const char *mode)
{
    struct team teams[N_TEAMS] = {0};

    if (mist_comm_open_deadline(&comm, 50, &err) != MIST_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 98;
    }
    rank = mist_comm_rank(comm);
    n_ranks = mist_comm_n_ranks(comm);
    make_teams(teams);
    CHECK(mist_comm_reserve(comm, 2 * MAX_N * 4, n_ranks, &err) == MIST_OK);
    for (int32_t step = 0; step < N_STEPS; step++)
        run_step(teams, step);
    mist_comm_close(comm);
    return 0;
}

TEST(test_sequences)
{
    need_mpirun();
    test_seed(1);
    run_good_job(4, "", "sequence");
    run_good_job(8, "", "sequence");
}

JOB_MAIN
