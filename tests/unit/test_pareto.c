/* Pareto frontiers against the O(n^2) definition, merges against one filter, sampling. */
#include "tests/unit/test.h"

#include "core/random.h"
#include "tune/pareto.h"

#include <math.h>

enum { MAX_POINTS = 400 };

static int pick(struct mist_random *random, int n)
{
    return (int)mist_random_below(random, n);
}

/* The definition: does a keep b off the frontier? */
static bool naive_beats(const struct mist_pareto_point *a,
                        const struct mist_pareto_point *b)
{
    bool no_worse = a->t_s <= b->t_s && a->d_s <= b->d_s;
    bool better = a->t_s < b->t_s || a->d_s < b->d_s;
    return no_worse && (better || a->payload < b->payload);
}

static bool naive_keeps(const struct mist_pareto_point *all, size_t n, size_t i)
{
    for (size_t j = 0; j < n; j++)
        if (naive_beats(&all[j], &all[i]))
            return false;
    return true;
}

/* Values on a coarse grid, so that there are ties; payload = place. */
static size_t make_points(struct mist_random *random, struct mist_pareto_point *points)
{
    size_t n = (size_t)pick(random, MAX_POINTS);
    int grid = 1 + pick(random, 200), anti = pick(random, 2);
    for (size_t i = 0; i < n; i++) {
        int t = pick(random, grid), d = pick(random, grid);
        d = anti ? grid - t + d / 8 : d; /* long frontiers too */
        points[i] =
            (struct mist_pareto_point){t * 0.5, d * 0.25, pick(random, grid), (int64_t)i};
    }
    return n;
}

static void check_frontier(const struct mist_pareto_point *all, size_t n,
                           const struct mist_pareto_point *kept, size_t n_kept)
{
    size_t n_expected = 0;
    for (size_t i = 0; i < n; i++) {
        bool found = false;
        for (size_t k = 0; k < n_kept; k++)
            found |= kept[k].payload == all[i].payload && kept[k].t_s == all[i].t_s &&
                     kept[k].d_s == all[i].d_s &&
                     kept[k].memory_bytes == all[i].memory_bytes;
        assert_int_equal(found, naive_keeps(all, n, i));
        n_expected += found;
    }
    assert_int_equal(n_kept, n_expected);
    for (size_t k = 1; k < n_kept; k++)
        assert_true(kept[k - 1].t_s <= kept[k].t_s);
}

TEST(test_filter_equals_definition)
{
    uint64_t seed = test_seed(20250);
    struct mist_random random;
    struct mist_pareto_point all[MAX_POINTS], kept[MAX_POINTS];
    mist_random_init(&random, seed);
    print_message("seed %" PRIu64 ", 400 sets\n", seed);
    for (int round = 0; round < 400; round++) {
        size_t n = make_points(&random, all);
        memcpy(kept, all, sizeof all);
        size_t n_kept = mist_pareto_filter(kept, n);
        check_frontier(all, n, kept, n_kept);
    }
}

TEST(test_merge_equals_filter_whatever_the_blocks)
{
    struct mist_random random;
    struct mist_pareto_point all[MAX_POINTS], shuffled[MAX_POINTS];
    mist_random_init(&random, test_seed(20250) + 1);
    for (int round = 0; round < 400; round++) {
        struct mist_pareto_frontier frontier = {0};
        size_t n = make_points(&random, all);
        memcpy(shuffled, all, sizeof all);
        for (size_t i = n; i > 1; i--) {
            size_t j = (size_t)pick(&random, (int)i);
            struct mist_pareto_point point = shuffled[i - 1];
            shuffled[i - 1] = shuffled[j];
            shuffled[j] = point;
        }
        for (size_t i = 0, size; i < n; i += size) {
            size = 1 + (size_t)pick(&random, 60);
            size = size > n - i ? n - i : size;
            assert_int_equal(mist_pareto_merge(&frontier, shuffled + i, size, NULL),
                             MIST_OK);
        }
        check_frontier(all, n, frontier.points, frontier.n);
        for (size_t i = 0; i < n; i++)
            assert_true(
                mist_pareto_covers(&frontier, &all[i])); /* the second time all go */
        mist_pareto_fini(&frontier);
    }
}

TEST(test_ties_keep_lowest_payload)
{
    struct mist_pareto_point points[] = {
        {1, 2, 0, 9}, {1, 2, 5, 3}, {1, 2, 1, 7}, {2, 2, 0, 1}};
    assert_int_equal(mist_pareto_filter(points, 4), 1);
    assert_int_equal(points[0].payload, 3);
}

TEST(test_nan_never_enters)
{
    struct mist_pareto_frontier frontier = {0};
    struct mist_pareto_point points[] = {{NAN, 1, 0, 0}, {1, NAN, 0, 1}, {3, 3, 0, 2}};
    assert_int_equal(mist_pareto_merge(&frontier, points, 3, NULL), MIST_OK);
    assert_int_equal(frontier.n, 1);
    assert_int_equal(frontier.points[0].payload, 2);
    assert_int_equal(mist_pareto_filter(points, 3), 1);
    mist_pareto_fini(&frontier);
    assert_int_equal(mist_pareto_filter(points, 0), 0);
}

TEST(test_block_bound_is_covered)
{
    struct mist_pareto_frontier frontier = {0};
    struct mist_pareto_point points[] = {{1, 4, 10, 0}, {2, 2, 10, 1}};
    struct mist_pareto_point above = {2, 3, 10, INT64_MAX},
                             below = {1.5, 2, 0, INT64_MAX};
    assert_int_equal(mist_pareto_merge(&frontier, points, 2, NULL), MIST_OK);
    assert_true(mist_pareto_covers(&frontier, &above));
    assert_false(mist_pareto_covers(&frontier, &below));
    mist_pareto_fini(&frontier);
}

TEST(test_sample_keeps_ends_and_minima)
{
    struct mist_random random;
    struct mist_pareto_point all[MAX_POINTS], out[MAX_POINTS];
    mist_random_init(&random, test_seed(20250) + 2);
    for (int round = 0; round < 300; round++) {
        size_t n = make_points(&random, all), n_out;
        n = mist_pareto_filter(all, n);
        size_t k = 2 + (size_t)pick(&random, 20);
        int64_t n_micro_batches = 1 + pick(&random, 64);
        assert_int_equal(
            mist_pareto_sample(all, n, k, n_micro_batches, out, &n_out, NULL), MIST_OK);
        assert_int_equal(n_out, n < k ? n : k);
        if (n == 0)
            continue;
        assert_int_equal(out[0].payload, all[0].payload);
        assert_int_equal(out[n_out - 1].payload, all[n - 1].payload);
        for (size_t i = 1; i < n_out; i++)
            assert_true(out[i - 1].t_s < out[i].t_s);
        for (size_t j = 0; j < k && n_micro_batches > 1; j++) {
            /*
             * Every alpha's minimum is among the points kept, as far as there was room.
             */
            double alpha = (double)j / (double)(k - 1), least = INFINITY,
                   least_out = INFINITY;
            double weight_t = alpha * (double)(n_micro_batches - 1);
            for (size_t i = 0; i < n; i++)
                least = fmin(least, weight_t * all[i].t_s + (1 - alpha) * all[i].d_s);
            for (size_t i = 0; i < n_out; i++)
                least_out =
                    fmin(least_out, weight_t * out[i].t_s + (1 - alpha) * out[i].d_s);
            assert_true(least_out == least);
        }
    }
}

TEST(test_sample_by_hand)
{
    /* Convex hull: 0, 3 (by t + d), 5;
     * point 1 is nobody's minimum, it halves the widest gap. */
    struct mist_pareto_point points[] = {{0, 10, 0, 0}, {4, 7, 0, 1},   {4.2, 6.9, 0, 2},
                                         {5, 1, 0, 3},  {9, 0.9, 0, 4}, {10, 0, 0, 5}};
    struct mist_pareto_point out[6];
    size_t n_out;
    assert_int_equal(mist_pareto_sample(points, 6, 4, 2, out, &n_out, NULL), MIST_OK);
    assert_int_equal(n_out, 4);
    assert_int_equal(out[0].payload, 0);
    assert_int_equal(out[1].payload, 1);
    assert_int_equal(out[2].payload, 3);
    assert_int_equal(out[3].payload, 5);
    assert_int_equal(mist_pareto_sample(points, 6, 1, 2, out, &n_out, NULL), MIST_OK);
    assert_int_equal(n_out, 1);
    assert_int_equal(out[0].payload, 3);
    assert_int_equal(mist_pareto_sample(points, 6, 0, 2, out, &n_out, NULL), MIST_OK);
    assert_int_equal(n_out, 0);
}

TEST_MAIN(NULL, NULL)
