/* core/status: messages, places and exit codes. */
#include "tests/unit/test.h"

#include "core/status.h"

TEST(test_set_and_print)
{
    struct mist_err err;
    char text[256] = "";

    assert_int_equal(mist_err_set(&err, MIST_ERR_RANGE, "stage %d", 3), MIST_ERR_RANGE);
    assert_string_equal(err.message, "stage 3");
    assert_string_equal(err.path, "");
    mist_err_locate(&err, NULL, 0);
    mist_err_locate(&err, "plan.json", 7);
    mist_err_locate(&err, "other.json", 8); /* keeps the first place */
    assert_string_equal(err.path, "plan.json");
    assert_int_equal(err.line, 7);
    FILE *stream = fmemopen(text, sizeof text, "w");
    mist_err_print(&err, "mist-sim", stream);
    fclose(stream);
    assert_string_equal(text, "mist-sim: plan.json:7: stage 3\n");
    assert_int_equal(mist_err_set(NULL, MIST_ERR_IO, "no place for details"),
                     MIST_ERR_IO);
}

TEST(test_long_messages_are_cut)
{
    struct mist_err err;
    char text[2000];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    mist_err_at(&err, MIST_ERR_INPUT, text, 1, 2, "%s", text);
    assert_int_equal(strlen(err.path), sizeof err.path - 1);
    assert_int_equal(strlen(err.message), sizeof err.message - 1);
}

TEST(test_exit_codes)
{
    assert_int_equal(mist_exit_code(MIST_OK), 0);
    assert_int_equal(mist_exit_code(MIST_ERR_MEMORY), 1);
    assert_int_equal(mist_exit_code(MIST_ERR_RUN), 1);
    assert_int_equal(mist_exit_code(MIST_ERR_USAGE), 2);
    assert_int_equal(mist_exit_code(MIST_ERR_INPUT), 3);
    assert_int_equal(mist_exit_code(MIST_ERR_RANGE), 3);
    assert_int_equal(mist_exit_code(MIST_ERR_NO_PLAN), 4);
    assert_int_equal(mist_exit_code(MIST_ERR_IO), 5);
    assert_int_equal(mist_exit_code(MIST_ERR_VERIFY), 6);
}

TEST_MAIN(NULL, NULL)
