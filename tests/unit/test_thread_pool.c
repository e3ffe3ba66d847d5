/* core/thread_pool: every index once, the same errors for every number of threads. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/thread_pool.h"

struct work {
    int n_visits[1000];
    int64_t fail_from; /* indices from this one on fail */
};

static enum mist_status visit(void *context, int64_t i, struct mist_err *err)
{
    struct work *work = context;

    work->n_visits[i]++;
    return i < work->fail_from ? MIST_OK
                               : mist_err_set(err, MIST_ERR_RUN, "index %d", (int)i);
}

TEST(test_every_index_once)
{
    static const int64_t sizes[] = {0, 1, 6, 7, 8, 999, 1000};
    struct mist_thread_pool *pool;

    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        assert_int_equal(mist_thread_pool_new(n_threads, &pool, NULL), MIST_OK);
        for (int repeat = 0; repeat < 50; repeat++) {
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                struct work work = {.fail_from = 1000};
                assert_int_equal(mist_thread_pool_for(pool, sizes[k], visit, &work, NULL),
                                 MIST_OK);
                for (int i = 0; i < 1000; i++)
                    assert_int_equal(work.n_visits[i], i < sizes[k]);
            }
        }
        mist_thread_pool_free(pool);
    }
}

TEST(test_lowest_failure_wins)
{
    struct mist_thread_pool *pool;
    struct mist_err err;

    for (int n_threads = 1; n_threads <= 4; n_threads++) {
        assert_int_equal(mist_thread_pool_new(n_threads, &pool, NULL), MIST_OK);
        for (int repeat = 0; repeat < 200; repeat++) {
            struct work work = {.fail_from = 301};
            assert_int_equal(mist_thread_pool_for(pool, 1000, visit, &work, &err),
                             MIST_ERR_RUN);
            assert_string_equal(err.message, "index 301");
            for (int i = 0; i <= 301; i++)
                assert_int_equal(work.n_visits[i], 1);
        }
        mist_thread_pool_free(pool);
    }
}

TEST(test_life)
{
    struct mist_thread_pool *pool;

    mist_thread_pool_free(NULL);
    assert_int_equal(mist_thread_pool_new(0, &pool, NULL), MIST_OK);
    mist_thread_pool_free(pool);
    fault_arm(FAULT_MALLOC, 1);
    assert_int_equal(mist_thread_pool_new(2, &pool, NULL), MIST_ERR_MEMORY);
    assert_true(fault_disarm());
}

TEST_MAIN(NULL, NULL)
