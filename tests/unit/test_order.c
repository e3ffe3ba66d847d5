/* core/order.h: bisection against looking at each place. */
#include "tests/unit/test.h"

#include "core/order.h"

TEST(test_bisection)
{
    for (size_t n = 0; n <= 20; n++)
        for (size_t first = 0; first <= n; first++)
            for (size_t n_before = first; n_before <= n; n_before++) {
                size_t n_asked = 0;
                MIST_BISECT(found, first, n, i, (n_asked++, i < n_before));
                assert_int_equal(found, n_before);
                assert_true(n_asked <= 5);
            }
}

TEST(test_comparing)
{
    const int64_t keys[][2] = {{1, 1}, {2, 3}, {5, 4}};

    assert_int_equal(mist_compare_keys(keys, 1), 0);
    assert_true(mist_compare_keys(keys, 3) < 0);
    assert_true(mist_compare_keys(keys + 2, 1) > 0);
    assert_true(MIST_COMPARE(1.5, 2) < 0 && MIST_COMPARE(3, 2) > 0);
    assert_int_equal(MIST_COMPARE(2, 2.0), 0);
}

TEST_MAIN(NULL, NULL)
