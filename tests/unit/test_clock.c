/* core/clock: it goes forward, and sleeping takes at least its time. */
#include "tests/unit/test.h"

#include "core/clock.h"

#include <errno.h>
#include <math.h>

TEST(test_clock)
{
    double before_s = mist_clock_now_s();

    for (int i = 0; i < 1000; i++) {
        double now_s = mist_clock_now_s();
        assert_true(now_s >= before_s);
        before_s = now_s;
    }
    mist_clock_sleep_s(0.002);
    assert_true(mist_clock_now_s() - before_s >= 0.002);
    mist_clock_sleep_s(0);
    mist_clock_sleep_s(-1);
    mist_clock_sleep_s((double)NAN);
}

TEST(test_conditions)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition;

    mist_clock_init_condition(&condition);
    for (int i = -1; i <= 1; i++) {
        double end_s = mist_clock_now_s() + 0.002 * i;
        int code = 0;
        pthread_mutex_lock(&mutex);
        while (code == 0) /* it may wake by itself */
            code = mist_clock_wait_until(&condition, &mutex, end_s);
        pthread_mutex_unlock(&mutex);
        assert_int_equal(code, ETIMEDOUT);
        assert_true(mist_clock_now_s() >= end_s - 1e-6); /* end_s is rounded */
    }
    pthread_cond_destroy(&condition);
}

TEST_MAIN(NULL, NULL)
