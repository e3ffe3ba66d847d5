/*
 * What every test includes: cmocka with the headers that it wants before it, those of the
 * C library that nearly all tests use, and what many tests do.
 */
#ifndef MIST_TESTS_UNIT_TEST_H
#define MIST_TESTS_UNIT_TEST_H

#include "core/status.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* cmocka hands every test a state, and few want it. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

/* For calls that are not what is tested. */
static inline void must(enum mist_status status, const struct mist_err *err)
{
    if (status != MIST_OK)
        fail_msg("%s", err->message);
}

/* assert_near: |value - expected| <= tolerance; near_to: of |expected| a part. (cmocka's own
 * comparison is in single precision.) */
static inline void fail_unless_near(double value, double expected, double tolerance,
                                    const char *what, int line)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("line %d: %s is %.17g, expected %.17g +- %g", line, what, value,
                 expected, tolerance);
}
static inline void fail_unless_near_to(double value, double expected, double frac,
                                       const char *what, int line)
{
    fail_unless_near(value, expected, frac * fabs(expected), what, line);
}
#define assert_near(value, expected, tolerance)                                          \
    fail_unless_near(value, expected, tolerance, #value, __LINE__)
#define near_to(value, expected, frac)                                                   \
    fail_unless_near_to(value, expected, frac, #value, __LINE__)

/* What random cases begin with: MIST_SEED, else the test's own; said once. */
static inline uint64_t test_seed(uint64_t own)
{
    static atomic_bool is_said;
    const char *text = getenv("MIST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 10) : own;

    if (!atomic_exchange(&is_said, true))
        print_message("# MIST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

/* MIST_BRIEF=13: of many cases every thirteenth is enough, since all run elsewhere. */
static inline bool test_is_left_out(void)
{
    static atomic_long n_cases;
    const char *text = getenv("MIST_BRIEF");
    long n_each = text ? strtol(text, NULL, 10) : 1;

    return n_each > 1 && atomic_fetch_add(&n_cases, 1) % n_each != 0;
}

/* The tests of the program, in the order of its source. */
enum { MOST_TESTS = 64 };
static struct CMUnitTest listed_tests[MOST_TESTS];
static size_t n_listed_tests;

static inline void list_test(const struct CMUnitTest *test)
{
    if (n_listed_tests == MOST_TESTS)
        abort();
    listed_tests[n_listed_tests++] = *test;
}

/*
 * TEST(name) { ... } is a test, TEST_WITH one with functions in front of it and behind it
 * (NULL: none), which get the same void **state; TEST_AGAIN(name, set_up, tear_down) runs
 * one once more. Constructors run by their priority, of which the first 100 are the
 * compiler's.
 */
#define TEST(name) TEST_WITH(name, NULL, NULL)
#define TEST_WITH(name, set_up, tear_down)                                               \
    static void name(void **state);                                                      \
    TEST_LISTED(name, name##_is_listed, set_up, tear_down)                               \
    static void name(void **state)
#define TEST_AGAIN(name, set_up, tear_down)                                              \
    TEST_LISTED(name, name##_is_listed_again, set_up, tear_down)
#define TEST_LISTED(name, constructor_name, set_up, tear_down)                           \
    __attribute__((constructor(101 + __COUNTER__))) static void constructor_name(void)   \
    {                                                                                    \
        list_test(&(struct CMUnitTest){#name, name, set_up, tear_down, NULL});           \
    }

/* Runs them, between two functions for all of them (NULL: none): what main() returns. */
static inline int run_listed_tests(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    return _cmocka_run_group_tests("tests", listed_tests, n_listed_tests, set_up,
                                   tear_down);
}

/* A main function that does nothing else. */
#define TEST_MAIN(set_up, tear_down)                                                     \
    int main(void)                                                                       \
    {                                                                                    \
        return run_listed_tests(set_up, tear_down);                                      \
    }

static inline void test_skipped(void **state)
{
    print_message("# %s\n", (const char *)*state);
    skip();
}

/* The main function of a program that can't test anything here. */
static inline int test_skip_all(const char *why)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_skipped, (void *)(uintptr_t)why)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}

#define TEST_MAIN_SKIPPED(why)                                                           \
    int main(void)                                                                       \
    {                                                                                    \
        return test_skip_all(why);                                                       \
    }

#endif
