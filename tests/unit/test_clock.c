/* core/clock: it goes forward, and sleeping takes at least its time. */
#include "tests/unit/test.h"

#include "core/clock.h"

#include <math.h>

static void test_clock(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clock)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
