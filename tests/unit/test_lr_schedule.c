/* The learning rate by step, against values computed by hand and by its definition. */
#include "exec/train/train_settings.h"

#include "tests/unit/test.h"

#include <math.h>

static void expect(const struct mist_train_settings *schedule, int64_t i, double expected)
{
    double found = mist_train_settings_lr(schedule, i);

    if (!(fabs(found - expected) <= 1e-12 * fabs(expected) + 1e-15))
        fail_msg("step %lld: %.17g, expected %.17g", (long long)i, found, expected);
}

TEST(test_constant)
{
    struct mist_train_settings schedule = {.lr = 0.5};

    expect(&schedule, 0, 0.5);
    expect(&schedule, 1000000, 0.5);
}

TEST(test_warm_up)
{
    struct mist_train_settings schedule = {.lr = 0.8, .warm_up_steps = 4};

    expect(&schedule, 0, 0.2);
    expect(&schedule, 1, 0.4);
    expect(&schedule, 2, 0.6);
    expect(&schedule, 3, 0.8);
    expect(&schedule, 4, 0.8);
    expect(&schedule, 400, 0.8);
}

/* Warm-up 2, end 6: a quarter of the cosine's way per step. */
TEST(test_cosine)
{
    struct mist_train_settings schedule = {
        .lr = 1, .lr_min = 0.2, .warm_up_steps = 2, .lr_decay_steps = 6};

    expect(&schedule, 0, 0.5);
    expect(&schedule, 1, 1);
    expect(&schedule, 2, 1);
    expect(&schedule, 3, 0.2 + 0.4 * (1 + sqrt(0.5)));
    expect(&schedule, 4, 0.6);
    expect(&schedule, 5, 0.2 + 0.4 * (1 - sqrt(0.5)));
    expect(&schedule, 6, 0.2);
    expect(&schedule, 7, 0.2);
    expect(&schedule, INT64_MAX, 0.2);
}

/* Down all the way, never up, and symmetric about the middle. */
TEST(test_shape)
{
    struct mist_train_settings schedule = {
        .lr = 3e-4, .lr_min = 3e-5, .lr_decay_steps = 1000};

    for (int64_t i = 0; i < 1000; i++) {
        assert_true(mist_train_settings_lr(&schedule, i + 1) <=
                    mist_train_settings_lr(&schedule, i));
        assert_true(fabs(mist_train_settings_lr(&schedule, i) +
                         mist_train_settings_lr(&schedule, 1000 - i) - 3.3e-4) < 1e-15);
    }
}

TEST_MAIN(NULL, NULL)
