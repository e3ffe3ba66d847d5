/* core/json: places of errors, types, ranges, both modes, writing,
 * and running out of memory. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "core/json.h"
#include "tests/unit/scratch.h"

#include <math.h>

static enum mist_status load(struct mist_json_doc *doc, const char *text,
                             enum mist_json_mode mode, struct mist_err *err)
{
    return mist_json_load_text(doc, "t.json", text, strlen(text), mode, err);
}

static void expect_place(const struct mist_err *err, long line, long column,
                         const char *part)
{
    assert_string_equal(err->path, "t.json");
    assert_non_null(strstr(err->message, part));
    assert_int_equal(err->line, line);
    assert_int_equal(err->column, column);
}

TEST(test_format_and_syntax)
{
    static const char *const bad[] = {
        "",
        "[1]",
        "{}",
        "{\"a\": 1, \"format\": 1}",
        "{\"format\": 2}",
        "{\"format\": 1.0}",
        "{\"format\": \"1\"}",
        "{\"format\": 1, \"a\": 1, \"a\": 2}",
        "{\"format\": 1} x",
        "{\"format\": 1, \"x\": nan}",
        "{\"format\": 1, \"x\": 1e999}",
        "{\"format\": 1, \"x\": 0x10}",
        NULL,
    };
    struct mist_json_doc doc;
    struct mist_err err;

    for (int i = 0; bad[i]; i++)
        assert_int_equal(load(&doc, bad[i], MIST_JSON_OWN, &err), MIST_ERR_INPUT);
    assert_int_equal(load(&doc, "{\"format\": 1,\n  \"a\" 2}", MIST_JSON_OWN, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(err.line, 2);
    assert_true(err.column > 1);
    assert_int_equal(load(&doc, "{\"format\": 1}", MIST_JSON_OWN, &err), MIST_OK);
    mist_json_fini(&doc);
    assert_int_equal(mist_json_load(&doc, "/nowhere.json", MIST_JSON_OWN, &err),
                     MIST_ERR_IO);
}

/* Jansson itself lets one pass behind a number. */
TEST(test_zero_byte)
{
    static const char text[] = "{\"format\": 1,\n \"a\": 0.5\0}";
    struct mist_json_doc doc;
    struct mist_err err;

    assert_int_equal(
        mist_json_load_text(&doc, "t.json", text, sizeof text - 1, MIST_JSON_OWN, &err),
        MIST_ERR_INPUT);
    expect_place(&err, 2, 0, "zero byte");
}

/* Once, in front, and places are those of the text behind it. */
TEST(test_byte_order_mark)
{
    struct mist_json_doc doc;
    struct mist_err err;

    must(load(&doc, "\xef\xbb\xbf{\"format\": 1}", MIST_JSON_OWN, &err), &err);
    mist_json_fini(&doc);
    assert_int_equal(load(&doc, "\xef\xbb\xbf{\"format\": 1, 2}", MIST_JSON_OWN, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(err.line, 1);
    assert_int_equal(err.column, 15);
    assert_int_equal(
        load(&doc, "\xef\xbb\xbf\xef\xbb\xbf{\"format\": 1}", MIST_JSON_OWN, &err),
        MIST_ERR_INPUT);
    assert_int_equal(load(&doc, "\xef\xbb\xbf", MIST_JSON_OWN, &err), MIST_ERR_INPUT);
    assert_int_equal(load(&doc, "\xef\xbb", MIST_JSON_OWN, &err), MIST_ERR_INPUT);
}

TEST(test_unknown_keys)
{
    static const char text[] =
        "{\"format\": 1,\n"
        " \"a \\\"]}\": [1, {\"z\": [[]], \"k\": \"\\\\\"}, -2e3],\n"
        " \"stages\": [\n"
        "  {\"layers\": 3},\n"
        "  {\"layers\": 4, \"\\u006cayer\": 5}]}";
    static const char *const root_keys[] = {"a \"]}", "stages", NULL};
    static const char *const stage_keys[] = {"layers", NULL};
    struct mist_json_doc doc;
    struct mist_json list;
    struct mist_err err;

    assert_int_equal(load(&doc, text, MIST_JSON_OWN, &err), MIST_OK);
    struct mist_json root = mist_json_root(&doc);
    assert_int_equal(mist_json_check_keys(&root, root_keys, &err), MIST_OK);
    assert_int_equal(mist_json_check_keys(&root, stage_keys, &err), MIST_ERR_INPUT);
    expect_place(&err, 2, 2, "unknown key");
    assert_int_equal(
        mist_json_get_array(&root, "stages", MIST_JSON_REQUIRED, &list, &err), MIST_OK);
    assert_int_equal(mist_json_size(&list), 2);
    struct mist_json stage = mist_json_element(&list, 0);
    assert_int_equal(mist_json_check_keys(&stage, stage_keys, &err), MIST_OK);
    stage = mist_json_element(&list, 1);
    assert_int_equal(mist_json_check_keys(&stage, stage_keys, &err), MIST_ERR_INPUT);
    expect_place(&err, 5, 17, "\"layer\"");
    mist_json_fail(&stage, MIST_ERR_RANGE, &err, "stage %d", 1);
    expect_place(&err, 5, 3, "stage 1");
    mist_json_fail_key(&stage, "layers", MIST_ERR_RANGE, &err, "x");
    expect_place(&err, 5, 4, "x");
    mist_json_fini(&doc);
}

TEST(test_values)
{
    static const char text[] =
        "{\"format\": 1, \"i\": 7, \"d\": 0.5, \"b\": true, \"s\": \"é\",\n"
        "\"é\": 1, \"n\": null, \"c\": \"cuda\"}";
    static const char *const choices[] = {"cpu", "cuda", NULL};
    struct mist_json_doc doc;
    struct mist_json child;
    struct mist_err err;
    int64_t i = -1;
    double d = -1;
    bool b = false;
    const char *s = NULL;
    int c = -1;
    enum mist_json_need need = MIST_JSON_REQUIRED;

    assert_int_equal(load(&doc, text, MIST_JSON_OWN, &err), MIST_OK);
    struct mist_json root = mist_json_root(&doc);
    assert_int_equal(mist_json_get_int64(&root, "i", need, 7, 7, &i, &err), MIST_OK);
    assert_true(i == 7);
    assert_int_equal(mist_json_get_int64(&root, "i", need, 8, 9, &i, &err),
                     MIST_ERR_INPUT);
    expect_place(&err, 1, 15, "8 .. 9");
    assert_int_equal(mist_json_get_int64(&root, "i", need, 8, 8, &i, &err),
                     MIST_ERR_INPUT);
    expect_place(&err, 1, 15, "7, expected 8");
    assert_int_equal(mist_json_get_double(&root, "d", need, 2, 2, &d, &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "0.5, expected 2"));
    assert_int_equal(mist_json_get_int64(&root, "d", need, 0, 9, &i, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(mist_json_get_double(&root, "d", need, 0, 1, &d, &err), MIST_OK);
    assert_true(d == 0.5);
    assert_int_equal(mist_json_get_double(&root, "i", need, 0, INFINITY, &d, &err),
                     MIST_OK);
    assert_true(d == 7);
    assert_int_equal(mist_json_get_double(&root, "i", need, 8, INFINITY, &d, &err),
                     MIST_ERR_INPUT);
    assert_int_equal(mist_json_get_bool(&root, "b", need, &b, &err), MIST_OK);
    assert_true(b);
    assert_int_equal(mist_json_get_string(&root, "s", need, &s, &err), MIST_OK);
    assert_string_equal(s, "é");
    assert_int_equal(mist_json_get_choice(&root, "c", need, choices, &c, &err), MIST_OK);
    assert_int_equal(c, 1);
    assert_int_equal(mist_json_get_choice(&root, "s", need, choices, &c, &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "cpu, cuda"));
    assert_int_equal(mist_json_get_bool(&root, "n", need, &b, &err), MIST_ERR_INPUT);
    expect_place(&err, 2, 9, "found null"); /* characters, not bytes */
    assert_int_equal(mist_json_get_int64(&root, "x", need, 0, 9, &i, &err),
                     MIST_ERR_INPUT);
    expect_place(&err, 1, 1, "missing key \"x\"");
    i = 42;
    assert_int_equal(mist_json_get_int64(&root, "x", MIST_JSON_OPTIONAL, 0, 9, &i, &err),
                     MIST_OK);
    assert_true(i == 42);
    assert_int_equal(mist_json_get_object(&root, "x", MIST_JSON_OPTIONAL, &child, &err),
                     MIST_OK);
    assert_null(child.value);
    assert_int_equal(mist_json_get_object(&root, "i", need, &child, &err),
                     MIST_ERR_INPUT);
    mist_json_fini(&doc);
}

TEST(test_foreign)
{
    static const char *const keys[] = {"a", NULL};
    struct mist_json_doc doc;
    struct mist_err err;
    int64_t i = 3;

    assert_int_equal(
        load(&doc, "{\"a\": null,\n\"b\": 1,\n\"b\": 2}", MIST_JSON_FOREIGN, &err),
        MIST_ERR_INPUT);
    assert_int_equal(err.line, 3);
    assert_non_null(strstr(err.message, "duplicate"));
    assert_int_equal(load(&doc, "{\"b\": 1, \"a\": null}", MIST_JSON_FOREIGN, &err),
                     MIST_OK);
    struct mist_json root = mist_json_root(&doc);
    assert_int_equal(mist_json_check_keys(&root, keys, &err), MIST_OK);
    assert_false(mist_json_has(&root, "a"));
    assert_int_equal(mist_json_get_int64(&root, "a", MIST_JSON_OPTIONAL, 0, 9, &i, &err),
                     MIST_OK);
    assert_true(i == 3);
    assert_int_equal(mist_json_get_int64(&root, "a", MIST_JSON_REQUIRED, 0, 9, &i, &err),
                     MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "missing key \"a\""));
    mist_json_fini(&doc);
}

static json_t *make_document(void)
{
    return json_pack("{s:i, s:f, s:[i, f], s:[{s:s}], s:{}, s:[], s:b, s:n, s:s, s:f}",
                     "format", 1, "z", 0.1, "list", 1, 2.0, "objects", "name",
                     "a\"\n\t\\é", "empty", "none", "yes", 1, "null", "long",
                     "a string that Jansson's buffer has to grow for", "tiny", 1e-310);
}

static const char written[] = "{\n"
                              "  \"format\": 1,\n"
                              "  \"z\": 0.1,\n"
                              "  \"list\": [1, 2.0],\n"
                              "  \"objects\": [\n"
                              "    {\n"
                              "      \"name\": \"a\\\"\\n\\t\\\\é\"\n"
                              "    }\n"
                              "  ],\n"
                              "  \"empty\": {},\n"
                              "  \"none\": [],\n"
                              "  \"yes\": true,\n"
                              "  \"null\": null,\n"
                              "  \"long\": "
                              "\"a string that Jansson's buffer has to grow for\",\n"
                              "  \"tiny\": 9.99999999999997e-311\n"
                              "}\n";

TEST(test_writing)
{
    struct scratch scratch;
    struct mist_json_doc doc;
    struct mist_err err;
    char text[1024];
    json_t *document = make_document();

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.json");
    assert_int_equal(mist_json_write_file(document, path, false, &err), MIST_OK);
    scratch_read(path, text, sizeof text);
    assert_string_equal(text, written);
    assert_int_equal(mist_json_load(&doc, path, MIST_JSON_OWN, &err), MIST_OK);
    assert_true(json_equal(doc.root, document)); /* by Jansson's own parser */
    mist_json_fini(&doc);
    assert_int_equal(mist_json_write_file(document, path, false, &err), MIST_ERR_USAGE);
    assert_int_equal(mist_json_write_file(document, "/dev/full", false, &err),
                     MIST_ERR_IO);
    json_decref(document);
    scratch_fini(&scratch);
}

TEST(test_types)
{
    static const char *const found[][2] = {
        {"{}", "an object"},   {"[1]", "an array"},
        {"\"1\"", "a string"}, {"1.5", "a number with a fraction"},
        {"true", "true"},      {"false", "false"},
        {"null", "null"},
    };

    for (size_t i = 0; i < sizeof found / sizeof found[0]; i++) {
        struct mist_json_doc doc;
        struct mist_err err = {0};
        char text[64], expected[64];
        int64_t number = 7;
        snprintf(text, sizeof text, "{\"format\": 1, \"n\": %s}", found[i][0]);
        snprintf(expected, sizeof expected, "n: expected a whole number, found %s",
                 found[i][1]);
        must(load(&doc, text, MIST_JSON_OWN, &err), &err);
        struct mist_json root = mist_json_root(&doc);
        assert_int_equal(
            mist_json_get_int64(&root, "n", MIST_JSON_REQUIRED, 0, 9, &number, &err),
            MIST_ERR_INPUT);
        assert_string_equal(err.message, expected);
        assert_int_equal(number, 7);
        mist_json_fini(&doc);
    }
}

/* Strings of every length around those at which Jansson's buffer grows: the document is
 * read or is not, and its messages come, without a place where there is no memory. */
TEST(test_faults_in_strings)
{
    for (int length = 1; length < 80; length++) {
        struct mist_json_doc doc;
        struct mist_err err;
        char text[256], key[81] = "";
        int64_t number;
        memset(key, 'k', (size_t)length);
        snprintf(text, sizeof text, "{\"format\": 1, \"%s\": \"%s\"}", key, key);
        long n_live = fault_n_live();
        bool has_fired = true;
        for (long n = 1; has_fired; n++) {
            fault_arm(FAULT_MALLOC, n);
            enum mist_status status = load(&doc, text, MIST_JSON_OWN, &err);
            has_fired = fault_disarm();
            if (status == MIST_OK)
                mist_json_fini(&doc);
            else
                assert_int_equal(status, MIST_ERR_MEMORY);
            assert_int_equal(fault_n_live(), n_live);
        }
        must(load(&doc, text, MIST_JSON_OWN, &err), &err);
        struct mist_json root = mist_json_root(&doc);
        has_fired = true;
        for (long n = 1; has_fired; n++) {
            fault_arm(FAULT_MALLOC, n);
            enum mist_status status =
                mist_json_get_int64(&root, key, MIST_JSON_REQUIRED, 0, 9, &number, &err);
            has_fired = fault_disarm();
            assert_int_equal(status, MIST_ERR_INPUT);
            assert_non_null(strstr(err.message, "expected a whole number"));
        }
        assert_int_equal(err.column, 15);
        mist_json_fini(&doc);
    }
}

TEST(test_faults)
{
    struct scratch scratch;
    struct mist_json_doc doc;
    struct mist_err err;
    json_t *document = make_document();

    scratch_init(&scratch);
    const char *path = scratch_path(&scratch, "a.json");
    long n_live = fault_n_live();
    for (long n = 1; n < 1000; n++) {
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = load(&doc, written, MIST_JSON_OWN, &err);
        bool has_fired = fault_disarm();
        if (status == MIST_OK) { /* also when Jansson gets along with less memory */
            assert_true(json_equal(doc.root, document));
            mist_json_fini(&doc);
        } else {
            assert_int_equal(status, MIST_ERR_MEMORY);
        }
        assert_int_equal(fault_n_live(), n_live);
        if (!has_fired) {
            assert_int_equal(status, MIST_OK);
            assert_true(n > 10);
            break;
        }
    }
    for (long n = 1; n < 1000; n++) {
        fault_arm(FAULT_MALLOC, n);
        enum mist_status status = mist_json_write_file(document, path, true, &err);
        bool has_fired = fault_disarm();
        assert_int_equal(fault_n_live(), n_live);
        assert_int_equal(scratch_count(&scratch),
                         status == MIST_OK || strstr(err.message, "directory"));
        if (status == MIST_OK || strstr(err.message, "directory"))
            assert_int_equal(remove(path), 0);
        if (!has_fired) {
            assert_int_equal(status, MIST_OK);
            assert_true(n > 10);
            break;
        }
    }
    json_decref(document);
    scratch_fini(&scratch);
}

/* What is UTF-8 is what Jansson takes: all pairs, and longer ones of telling bytes. */
TEST(test_text)
{
    static const char bytes[] =
        "\x41\x7f\x80\x8f\x90\x9f\xa0\xbf\xc0\xc1\xc2\xdf\xe0\xe1\xec\xed\xee\xef"
        "\xf0\xf1\xf3\xf4\xf5\xf7\xf8\xff";
    enum { N = sizeof bytes - 1 };
    char text[5] = "";
    int n_good = 0;

    for (int i = 0; i < 256 * 256 + N * N * N * N; i++) {
        int k = i - 256 * 256;
        text[0] = (char)(k < 0 ? i / 256 : bytes[k / (N * N * N)]);
        text[1] = (char)(k < 0 ? i : bytes[k / (N * N) % N]);
        text[2] = k < 0 ? '\0' : bytes[k / N % N];
        text[3] = k < 0 ? '\0' : bytes[k % N];
        json_t *value = json_string(text);
        struct mist_err err;
        if (mist_json_check_text("it", text, &err) != (value ? MIST_OK : MIST_ERR_INPUT))
            fail_msg("%02x %02x %02x %02x", text[0] & 255, text[1] & 255, text[2] & 255,
                     text[3] & 255);
        n_good += value != NULL;
        json_decref(value);
    }
    assert_true(n_good > 256);
}

TEST_MAIN(NULL, NULL)
