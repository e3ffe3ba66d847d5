/* core/sweep: names, values, combinations, and what is none. */
#include "tests/unit/test.h"

#include "core/sweep.h"

static struct mist_sweep sweep;
static struct mist_err err;

TEST(test_combinations)
{
    const char *const items[] = {"nodes=1:2:4", "device=l4", "batch=8:16"};
    static const char *const want[][3] = {{"1", "l4", "8"}, {"1", "l4", "16"},
                                          {"2", "l4", "8"}, {"2", "l4", "16"},
                                          {"4", "l4", "8"}, {"4", "l4", "16"}};

    must(mist_sweep_parse(&sweep, items, 3, "a=1", &err), &err);
    assert_int_equal(sweep.n_axes, 3);
    assert_int_equal(sweep.n_points, 6);
    assert_string_equal(sweep.axes[1].name, "device");
    for (int64_t i = 0; i < 6; i++)
        for (int32_t k = 0; k < 3; k++)
            assert_string_equal(mist_sweep_value(&sweep, i, k), want[i][k]);
}

TEST(test_values_may_have_equals_signs)
{
    const char *const items[] = {"model=a=b:c"};

    must(mist_sweep_parse(&sweep, items, 1, "a=1", &err), &err);
    assert_string_equal(mist_sweep_value(&sweep, 0, 0), "a=b");
    assert_string_equal(mist_sweep_value(&sweep, 1, 0), "c");
}

TEST(test_nonsense)
{
    static const char *const items[][2] = {
        {"nodes", NULL},    {"nodes=", NULL},     {"=1", NULL},   {"nodes=1:", NULL},
        {"nodes=:1", NULL}, {"nodes=1::2", NULL}, {"n=1", "n=2"}, {"", NULL},
    };

    for (size_t i = 0; i < sizeof items / sizeof *items; i++)
        assert_int_equal(
            mist_sweep_parse(&sweep, items[i], items[i][1] ? 2 : 1, "nodes=1:2", &err),
            MIST_ERR_USAGE);
    assert_non_null(strstr(err.message, "such as nodes=1:2"));
}

TEST(test_too_many)
{
    static char many[2 * MIST_SWEEP_MAX_VALUES + 8] = "n=1";
    const char *items[MIST_SWEEP_MAX_AXES + 1] = {
        many, "m=1:2:3:4:5:6:7:8:9:10", "k=1:2:3:4", "d=1", "e=1", "f=1", "g=1", "h=1",
        "i=1"};

    assert_int_equal(mist_sweep_parse(&sweep, items, MIST_SWEEP_MAX_AXES, "n=1", &err),
                     MIST_OK);
    assert_int_equal(
        mist_sweep_parse(&sweep, items, MIST_SWEEP_MAX_AXES + 1, "n=1", &err),
        MIST_ERR_USAGE);
    for (int i = 1; i < MIST_SWEEP_MAX_VALUES; i++)
        strcat(many, ":1");
    assert_int_equal(mist_sweep_parse(&sweep, items, 2, "n=1", &err), MIST_OK);
    assert_int_equal(sweep.n_points, 10 * MIST_SWEEP_MAX_VALUES);
    assert_int_equal(mist_sweep_parse(&sweep, items, 3, "n=1", &err), MIST_ERR_USAGE);
    strcat(many, ":1");
    assert_int_equal(mist_sweep_parse(&sweep, items, 1, "n=1", &err), MIST_ERR_USAGE);
}

TEST_MAIN(NULL, NULL)
