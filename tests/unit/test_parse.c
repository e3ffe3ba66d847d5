/* core/parse: what is accepted, what is refused, and how numbers look. */
#include "tests/unit/test.h"

#include "core/parse.h"

#include <math.h>

TEST(test_int64)
{
    static const char *const bad[] = {"",    " 1",  "1 ",  "+1", "0x10",
                                      "1.0", "1e3", "--1", "-",  "9223372036854775808",
                                      NULL};
    struct mist_err err;
    int64_t out = 5;

    assert_int_equal(mist_parse_int64("-42", &out, NULL), MIST_OK);
    assert_true(out == -42);
    assert_int_equal(mist_parse_int64("-9223372036854775808", &out, NULL), MIST_OK);
    assert_true(out == INT64_MIN);
    for (int i = 0; bad[i]; i++) {
        out = 5;
        assert_int_equal(mist_parse_int64(bad[i], &out, &err), MIST_ERR_INPUT);
        assert_true(out == 5);
        assert_non_null(strstr(err.message, bad[i]));
        assert_non_null(strstr(err.message, "expected"));
    }
}

TEST(test_double)
{
    static const char *const good[] = {
        "0", "1", "-0.5", "2e-3", "1E+5", "1.7976931348623157e308", "0.1", "123456789.25",
        NULL};
    static const char *const bad[] = {"",    " 1",    "1 ",     "+1", "0x10", "nan",
                                      "inf", "-inf",  ".5",     "5.", "1e",   "1e400",
                                      "1,5", "1.5.2", "1e-400", NULL};
    double out = 5;

    for (int i = 0; good[i]; i++) {
        assert_int_equal(mist_parse_double(good[i], &out, NULL), MIST_OK);
        assert_true(out == strtod(good[i], NULL));
    }
    for (int i = 0; bad[i]; i++) {
        out = 5;
        assert_int_equal(mist_parse_double(bad[i], &out, NULL), MIST_ERR_INPUT);
        assert_true(out == 5);
    }
}

TEST(test_bytes)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {
        {"64", 64},
        {"0", 0},
        {"512MiB", 536870912},
        {"8GiB", 8589934592},
        {"80 GiB", 85899345920},
        {"1.5GB", 1500000000},
        {"2KB", 2000},
        {"2kB", 2000},
        {"1.5KiB", 1536},
        {"0.7B", 0},
        {"9223372036854775807", INT64_MAX},
        {"9007199254740993", 9007199254740993}, /* no double in between */
    };
    static const char *const bad[] = {"",       "-1",          "1 ",     "GiB",
                                      "1gib",   "1Gb",         "1  GiB", "1.GiB",
                                      "1e30GB", "16777216TiB", "nanB",   NULL};
    int64_t out;

    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(mist_parse_bytes(good[i].text, &out, NULL), MIST_OK);
        assert_true(out == good[i].bytes);
    }
    for (int i = 0; bad[i]; i++)
        assert_int_equal(mist_parse_bytes(bad[i], &out, NULL), MIST_ERR_INPUT);
}

TEST(test_quantities)
{
    double out;

    assert_int_equal(mist_parse_time_s("3ms", &out, NULL), MIST_OK);
    assert_true(out == 3 * 1e-3);
    assert_int_equal(mist_parse_time_s("2us", &out, NULL), MIST_OK);
    assert_true(out == 2 * 1e-6);
    assert_int_equal(mist_parse_time_s("1.5s", &out, NULL), MIST_OK);
    assert_true(out == 1.5);
    assert_int_equal(mist_parse_time_s("3", &out, NULL), MIST_ERR_INPUT);
    assert_int_equal(mist_parse_rate_bytes_per_s("400Gb/s", &out, NULL), MIST_OK);
    assert_true(out == 50e9);
    assert_int_equal(mist_parse_rate_bytes_per_s("25GB/s", &out, NULL), MIST_OK);
    assert_true(out == 25e9);
    assert_int_equal(mist_parse_rate_bytes_per_s("25GB", &out, NULL), MIST_ERR_INPUT);
    assert_int_equal(mist_parse_factor("0.7x", &out, NULL), MIST_OK);
    assert_true(out == 0.7);
    assert_int_equal(mist_parse_factor("0x", &out, NULL), MIST_OK);
    assert_true(out == 0);
    for (const char *const *wrong =
             (const char *const[]){"2", "x", "-2x", "2xx", "", NULL};
         *wrong; wrong++)
        assert_int_equal(mist_parse_factor(*wrong, &out, NULL), MIST_ERR_INPUT);
    assert_int_equal(mist_parse_frac("7%", &out, NULL), MIST_OK);
    assert_true(out == 0.07);
    assert_int_equal(mist_parse_frac("0.02", &out, NULL), MIST_OK);
    assert_true(out == 0.02);
    for (const char *const *wrong = (const char *const[]){"%", "-1%", "2x", "", NULL};
         *wrong; wrong++)
        assert_int_equal(mist_parse_frac(*wrong, &out, NULL), MIST_ERR_INPUT);
}

static void check_format(const char *found, const char *expected)
{
    assert_string_equal(found, expected);
}

TEST(test_words)
{
    static const char *const words[] = {"fp32", "bf16", "fp", NULL};
    char list[13];

    assert_int_equal(mist_word_find(words, "fp32"), 0);
    assert_int_equal(mist_word_find(words, "fp"), 2);
    assert_int_equal(mist_word_find(words, "fp3"), -1);
    assert_int_equal(mist_word_find(words, ""), -1);
    assert_string_equal(mist_words_list(words, list, sizeof list), "fp32, bf16, ");
    assert_string_equal(mist_words_list(words, list, 7), "fp32, ");
    assert_string_equal(mist_words_list(words + 3, list, sizeof list), "");
}

TEST(test_formats)
{
    char text[MIST_FORMAT_BYTES];
    size_t n = sizeof text;

    check_format(mist_format_bytes(text, n, 17), "17 B");
    check_format(mist_format_bytes(text, n, 1024), "1.00 KiB");
    check_format(mist_format_bytes(text, n, 97924145152), "91.2 GiB");
    check_format(mist_format_bytes(text, n, 1023 * INT64_C(1024)), "1023 KiB");
    check_format(mist_format_bytes(text, n, (1 << 20) - 1), "1.00 MiB");
    check_format(mist_format_percent(text, n, -0.04, 1, false), "0.0 %");
    check_format(mist_format_percent(text, n, -0.06, 1, false), "-0.1 %");
    check_format(mist_format_percent(text, n, 0.04, 1, true), "0.0 %");
    check_format(mist_format_percent(text, n, -0.0, 0, true), "0 %");
    check_format(mist_format_percent(text, n, 4.21, 1, true), "+4.2 %");
    check_format(mist_format_percent(text, n, -10, 0, true), "-10 %");
    check_format(mist_format_time_s(text, n, 0.0032), "3.20 ms");
    check_format(mist_format_time_s(text, n, 0.99999), "1.00 s");
    check_format(mist_format_time_s(text, n, 0), "0 s");
    check_format(mist_format_time_s(text, n, 61), "61.0 s");
    check_format(mist_format_time_s(text, n, 125), "2 min 05 s");
    check_format(mist_format_time_s(text, n, 7500), "2 h 05 min");
    check_format(mist_format_time_s(text, n, 2e-9), "2.00 ns");
    check_format(mist_format_time_s(text, n, (double)NAN), "-");
    check_format(mist_format_time_s(text, n, -7500), "-2 h 05 min");
    check_format(mist_format_time_s(text, n, 3.6e9), "1e+06 h");
    check_format(mist_format_count(text, n, (double)INFINITY), "-");
    check_format(mist_format_count(text, n, 512), "512");
    check_format(mist_format_count(text, n, 6738415616.0), "6.74 G");
    check_format(mist_format_count(text, n, 999999), "1.00 M");
    check_format(mist_format_count(text, n, -1500), "-1.50 k");
    check_format(mist_format_count(text, n, 2e20), "200 E");
    check_format(mist_format_count(text, n, -2e170), "-2e+170");
}

TEST(test_text_add)
{
    char text[8] = "";

    assert_string_equal(mist_text_add(text, sizeof text, ", ", "%d", 12), "12");
    assert_string_equal(mist_text_add(text, sizeof text, "", "+"), "12+");
    assert_string_equal(mist_text_add(text, sizeof text, ", ", "%s", "abc"), "12+, ab");
    assert_string_equal(mist_text_add(text, sizeof text, ", ", "%d", 3), "12+, ab");
    text[6] = '\0'; /* room for half of the separator */
    assert_string_equal(mist_text_add(text, sizeof text, ", ", "%d", 3), "12+, a,");
}

/* Whatever the bits: the text reads back the same,
 * and no 15-digit text does where 16 are printed. */
TEST(test_round_trip)
{
    char text[MIST_FORMAT_BYTES];
    uint64_t bits = 1;
    double out;

    check_format(mist_format_double(text, sizeof text, 0.1), "0.1");
    for (int i = 0; i < 20000; i++) {
        double value;
        bits = bits * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value))
            continue;
        mist_format_double(text, sizeof text, value);
        assert_true(strtod(text, NULL) == value);
        if (fabs(value) >= 1e-300)
            assert_int_equal(mist_parse_double(text, &out, NULL), MIST_OK);
    }
}

TEST_MAIN(NULL, NULL)
