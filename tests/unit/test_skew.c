/*
 * profile/skew: pieces by hand, and what four ranks find (started again under mpirun)
 * against the same sums over the same draws, made in one process.
 */
#include "tests/unit/test.h"

#include "profile/skew.h"
#include "tests/unit/comm_job.h"

#include <string.h>

enum { N_RUNS = 4000, N_RANKS = 4, N_PIECE = 100 };

/* Rank r is always r % slower, and one run in ten takes 30 % longer. */
static double time_of(int32_t r, int i)
{
    bool is_slow = mist_random_uniform_at(1, (uint64_t)r, (uint64_t)i) < 0.1;

    return 100 * (1 + 0.01 * r) * (is_slow ? 1.3 : 1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of pieces of n runs the slowest of ranks first to last; the mean of those between a fifth
 * and four fifths of all in their order, over what is expected, less 1. */
static double slowest_frac(int32_t first, int32_t last, int n)
{
    double pieces_us[N_RUNS] = {0}, sum_us = 0;
    int n_pieces = N_RUNS / n, cut = n_pieces / 5;

    for (int i = 0; i < n_pieces; i++) {
        for (int32_t r = first; r <= last; r++) {
            double piece_us = 0;
            for (int k = i * n; k < (i + 1) * n; k++)
                piece_us += time_of(r, k);
            pieces_us[i] = fmax(pieces_us[i], piece_us);
        }
    }
    qsort(pieces_us, (size_t)n_pieces, sizeof *pieces_us, compare);
    for (int i = cut; i < n_pieces - cut; i++)
        sum_us += pieces_us[i];
    return sum_us / (n_pieces - 2 * cut) / (100.0 * n) - 1;
}

static bool is_near(double value, double expected)
{
    return fabs(value - expected) <= 1e-9;
}

static int run_rank(const char *mode)
{
    const struct mist_estimate estimates[] = {{.mean = 100}, {.mean = 100}};
    struct mist_drift drift = {.n_rounds = 1};
    struct mist_trace_skew skew;
    double own_frac = 0;

    join_job();
    for (int i = 0; i < N_RUNS; i++)
        CHECK(mist_drift_add(&drift, 0, time_of(rank, i)));
    for (int32_t r = 0; r < n_ranks; r++)
        own_frac += slowest_frac(r, r, N_PIECE) / n_ranks;
    CHECK(mist_skew_find(comm, &drift, estimates, 100 * N_PIECE, 100, &skew, &err) ==
          MIST_OK);
    CHECK(is_near(skew.alone_frac, own_frac));
    CHECK(is_near(skew.pass_frac, slowest_frac(0, n_ranks - 1, N_PIECE)));
    CHECK(is_near(skew.step_frac, slowest_frac(0, n_ranks - 1, 1)));
    if (n_ranks > 1)
        CHECK(skew.alone_frac < skew.pass_frac && skew.pass_frac < skew.step_frac);
    if (n_ranks == 1) /* one run in ten is slow: none of the middle */
        CHECK(is_near(skew.step_frac, 0) && skew.alone_frac > 0.02);
    if (rank == 1) /* has another operator: nothing can be said */
        drift.runs[7].key = 1;
    CHECK(mist_skew_find(comm, &drift, estimates, 100 * N_PIECE, 100, &skew, &err) ==
          MIST_OK);
    CHECK((skew.pass_frac == 0) == (n_ranks > 1));
    mist_drift_fini(&drift);
    mist_comm_close(comm);
    return 0;
}

/* Unusual runs count; a last piece that is too short does not. */
TEST(skew_cuts_runs_into_pieces)
{
    const struct mist_estimate estimates[] = {{.mean = 10, .low = 9, .high = 11},
                                              {.mean = 25, .low = 20, .high = 30}};
    const double times_us[] = {10, 50, 26, 9, 11, 24, 10, 10};
    const int32_t keys[] = {0, 0, 1, 0, 0, 1, 0, 0};
    struct mist_drift drift = {.n_rounds = 1};
    double pieces[8];

    for (int i = 0; i < 8; i++)
        assert_true(mist_drift_add(&drift, keys[i], times_us[i]));
    assert_int_equal(mist_skew_cut(&drift, estimates, 40, pieces), 2);
    assert_near(pieces[0], 86 / 45.0, 1e-9); /* 10 + 10 + 25 are expected */
    assert_near(pieces[1], 44 / 45.0, 1e-9);
    assert_int_equal(mist_skew_cut(&drift, estimates, 1000, pieces), 0);
    assert_int_equal(mist_skew_cut(&drift, estimates, 0, pieces), 8);
    assert_near(pieces[1], 5, 1e-9);
    mist_drift_fini(&drift);
}

TEST(skew_is_of_the_slowest)
{
    need_mpirun();
    run_good_job(1, "", "skew");
    run_good_job(N_RANKS, "", "skew");
}

JOB_MAIN
