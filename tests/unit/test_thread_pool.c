/* core/thread_pool: every index once, the same errors for every number of threads. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/thread_pool.h"

struct work {
    int n_visits[1000];
    int64_t chunk, n;
    int64_t fail_from; /* chunks that end behind this index fail */
    int n_threads;
};

static enum mist_status visit(void *context, int64_t begin, int64_t end, int i_thread,
                              struct mist_err *err)
{
    struct work *work = context;

    if (i_thread < 0 || i_thread >= work->n_threads || begin % work->chunk != 0 ||
        (end - begin != work->chunk && end != work->n))
        return mist_err_set(err, MIST_ERR_VERIFY, "wrong chunk");
    for (int64_t i = begin; i < end; i++)
        work->n_visits[i]++;
    if (end > work->fail_from)
        return mist_err_set(err, MIST_ERR_RUN, "chunk at %ld", (long)begin);
    return MIST_OK;
}

TEST(test_every_index_once)
{
    static const int64_t sizes[] = {0, 1, 6, 7, 8, 999, 1000};
    struct mist_thread_pool *pool;

    for (int n_threads = 1; n_threads <= 5; n_threads += 2) {
        assert_int_equal(mist_thread_pool_new(n_threads, &pool, NULL), MIST_OK);
        for (int repeat = 0; repeat < 50; repeat++) {
            for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
                struct work work = {
                    .chunk = 7, .n = sizes[k], .fail_from = 1000, .n_threads = n_threads};
                assert_int_equal(
                    mist_thread_pool_for(pool, work.n, 7, visit, &work, NULL), MIST_OK);
                for (int i = 0; i < 1000; i++)
                    assert_int_equal(work.n_visits[i], i < work.n);
            }
        }
        struct work work = {
            .chunk = 15, .n = 1000, .fail_from = 1000, .n_threads = n_threads};
        assert_int_equal(mist_thread_pool_for(pool, 1000, 0, visit, &work, NULL),
                         MIST_OK);
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
            struct work work = {
                .chunk = 3, .n = 1000, .fail_from = 301, .n_threads = n_threads};
            assert_int_equal(mist_thread_pool_for(pool, 1000, 3, visit, &work, &err),
                             MIST_ERR_RUN);
            assert_string_equal(err.message, "chunk at 300");
            for (int i = 0; i < 303; i++)
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
