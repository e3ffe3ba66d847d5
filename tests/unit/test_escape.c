/* core/escape, core/message: what a terminal must not be sent, and what
 * --quiet silences. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* fopencookie */
#endif
#include "tests/unit/test.h"

#include "core/emit.h"
#include "core/escape.h"
#include "core/message.h"
#include "core/progress.h"

/* Named characters, so that this table depends on no tool that reads it. */
static const struct {
    const char *text, *shown;
} CASES[] = {
    {"", ""},
    {"plan.json", "plan.json"},
    {"a\nb\r\tc", "a\\nb\\r\\tc"},
    {"\x1b[2J", "\\x1b[2J"},
    {"\x01\x7f", "\\x01\\x7f"},
    {"back\\slash", "back\\slash"},
    {"Gr\xc3\xb6\xc3\x9f"
     "e \xe6\xbc\xa2 \xf0\x9f\x98\x80",
     "Gr\xc3\xb6\xc3\x9f"
     "e \xe6\xbc\xa2 \xf0\x9f\x98\x80"},
    {"\xc2\x9b"
     "2J",
     "\\u009b2J"},            /* C1: the control sequence introducer */
    {"\xc2\xa0", "\xc2\xa0"}, /* behind C1: a blank that does not break */
    {"\xe2\x80\xae"
     "txt",
     "\\u202etxt"}, /* right to left override */
    {"\xe2\x80\xa8\xe2\x81\xa6", "\\u2028\\u2066"},
    {"\xff", "\\xff"},
    {"\xc3", "\\xc3"}, /* cut */
    {"\xe6\xbc", "\\xe6\\xbc"},
    {"\xc3(", "\\xc3("},
    {"\xc1\x9b", "\\xc1\\x9b"}, /* longer than need be */
    {"\xe0\x82\x9b", "\\xe0\\x82\\x9b"},
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* surrogate */
    {"\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80"},
    {"\x9b", "\\x9b"}, /* C1 in ISO 8859 */
};

TEST(test_cases)
{
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        char out[64], printed[64] = "", again[128];
        assert_true(strlen(CASES[i].shown) <= MIST_ESCAPED_BYTES(strlen(CASES[i].text)));
        assert_string_equal(mist_escape(CASES[i].text, out), CASES[i].shown);
        assert_string_equal(mist_escape(out, again), out);
        FILE *stream = fmemopen(printed, sizeof printed, "w");
        mist_escape_print(CASES[i].text, stream);
        fclose(stream);
        assert_string_equal(printed, CASES[i].shown);
    }
}

/* Every text of two bytes: nothing that C0 or DEL is comes out, and no invalid UTF-8. */
TEST(test_all_pairs)
{
    for (unsigned pair = 0x101; pair <= 0xffff; pair++) {
        char text[3] = {(char)(pair >> 8), (char)(pair & 0xff), '\0'}, out[16];
        mist_escape(text, out);
        for (const unsigned char *c = (unsigned char *)out; *c; c++) {
            assert_true(*c >= 0x20 && *c != 0x7f);
            assert_true(*c < 0x80 || strcmp(out, text) == 0);
        }
        bool is_pair = (unsigned char)text[0] >= 0xc2 && (unsigned char)text[0] < 0xe0 &&
                       ((unsigned char)text[1] & 0xc0) == 0x80;
        bool is_c1 = text[0] == '\xc2' && (unsigned char)text[1] < 0xa0;
        if (is_pair && !is_c1 && pair != 0xd89c) /* the Arabic letter mark */
            assert_string_equal(out, text);
    }
}

TEST(test_errors_and_messages)
{
    char text[256] = "";
    struct mist_err err;
    FILE *stream = fmemopen(text, sizeof text, "w");
    struct mist_messages loud = {"mist-sim", stream};
    struct mist_messages quiet = mist_messages_to_stderr("mist-sim", true);

    mist_err_at(&err, MIST_ERR_INPUT, "a\x1b.csv", 3, 0, "'%s' is unknown", "x\ny");
    mist_err_print(&err, "mist-sim", stream);
    mist_message(&loud, "%s can be replayed", "b\x9b.json");
    mist_message_err(&loud, &err);
    mist_message(&quiet, "nothing of this");
    mist_message_err(&quiet, &err);
    fclose(stream);
    assert_string_equal(text, "mist-sim: a\\x1b.csv:3: 'x\\ny' is unknown\n"
                              "mist-sim: b\\x9b.json can be replayed\n"
                              "mist-sim: a\\x1b.csv:3: 'x\\ny' is unknown\n");
    assert_null(quiet.stream);
    assert_ptr_equal(mist_messages_to_stderr("mist-sim", false).stream, stderr);
}

/* A progress line without a stream is none, whatever the mode. */
TEST(test_quiet_progress)
{
    struct mist_progress progress;

    mist_progress_init(&progress, MIST_PROGRESS_ALWAYS, false, NULL, "searching");
    assert_false(progress.is_enabled);
    mist_progress_update_at(&progress, 1e9, 1, 2);
    mist_progress_fini(&progress);
}

/* Results: tables and CSV escape for themselves, JSON by its own rules. */
static void expect_print(enum mist_emit_kind kind, const char *value,
                         const char *expected)
{
    char text[128] = "";
    FILE *stream = fmemopen(text, sizeof text, "w");
    struct mist_emit *emit;

    assert_int_equal(mist_emit_begin(&emit, kind, stream, NULL), MIST_OK);
    mist_emit_text(emit, "name", "na\x1bme", value);
    assert_int_equal(mist_emit_end(&emit, NULL), MIST_OK);
    fclose(stream);
    assert_non_null(strstr(text, expected));
}

TEST(test_results)
{
    expect_print(MIST_EMIT_TABLE, "a\x1b\n\xc2\x9b", "na\\x1bme  a\\x1b\\n\\u009b\n");
    expect_print(MIST_EMIT_CSV, "a\x1b\n\xc2\x9b", "name\na\\x1b\\n\\u009b\n");
    expect_print(MIST_EMIT_JSON, "a\x1b\n", "\"a\\u001B\\n\"");
    expect_print(MIST_EMIT_JSON, "a\xff", "\"a\\\\xff\""); /* JSON is UTF-8 */
}

static ssize_t count_write(void *n_writes, const char *bytes, size_t n)
{
    assert_true(n > 1 && bytes[n - 1] == '\n');
    ++*(int *)n_writes;
    return (ssize_t)n;
}

/* Ranks share a terminal, and launchers forward what one write brings. */
TEST(test_one_write)
{
    int n_writes = 0;
    FILE *stream =
        fopencookie(&n_writes, "w", (cookie_io_functions_t){.write = count_write});
    struct mist_messages messages = {.tool = "mist-exec", .stream = stream};
    struct mist_err err = {.path = "a\x1b.csv", .line = 12, .column = 3};

    setvbuf(stream, NULL, _IONBF, 0); /* as stderr is */
    memset(err.message, '\n', sizeof err.message - 1);
    mist_err_print(&err, "mist-exec", stream);
    assert_int_equal(n_writes, 1);
    mist_message(&messages, "%2000s%s", "goes on from ", "run\x1b");
    assert_int_equal(n_writes, 2);
    fclose(stream);
}

TEST_MAIN(NULL, NULL)
