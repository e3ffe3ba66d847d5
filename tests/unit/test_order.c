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
    const struct {
        int m[9];
    } a = {{1, 2, 3, 4, 5, 6, 7, 8, 9}}, b = {{1, 2, 3, 4, 5, 6, 7, 8, 10}};
    const struct {
        int32_t rank;
        double start_s;
    } c = {3, 0.5}, d = {4, 0.25};

    assert_int_equal(MIST_COMPARE_BY(&a, &b, m[0]), 0);
    assert_int_equal(MIST_COMPARE_BY(&a, &b, m[7], m[6], m[5]), 0);
    assert_true(MIST_COMPARE_BY(&a, &b, m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[7],
                                m[8]) < 0);
    assert_true(MIST_COMPARE_BY(&b, &a, m[8], m[0]) > 0);
    assert_true(MIST_COMPARE_BY(&c, &d, rank, start_s) < 0);
    assert_true(MIST_COMPARE_BY(&c, &d, start_s, rank) > 0);
    assert_true(MIST_COMPARE(1.5, 2) < 0 && MIST_COMPARE(3, 2) > 0);
    assert_int_equal(MIST_COMPARE(2, 2.0), 0);
}

TEST_MAIN(NULL, NULL)
