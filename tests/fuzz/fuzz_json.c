/*
 * core/json: values that are read are written and read as the same values; a refusal
 * finds its line by walking the text once more.
 */
#include "core/json.h"
#include "tests/fuzz/fuzz.h"

/* Asks for every member as what it is not: messages with a place. */
static void look(const struct mist_json *value, int depth)
{
    static const char *const choices[] = {"one", "two", NULL};
    static const char *const known[] = {"a", "b", NULL};
    struct mist_err err = {0};
    int64_t whole;
    double real;
    bool truth;
    const char *text;
    int choice;

    if (mist_json_as_int64(value, -5, 5, &whole, &err) != MIST_OK)
        fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    if (mist_json_as_double(value, 0, 1, &real, &err) != MIST_OK)
        fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    if (mist_json_as_bool(value, &truth, &err) != MIST_OK)
        fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    if (mist_json_as_string(value, &text, &err) != MIST_OK)
        fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    if (mist_json_as_choice(value, choices, &choice, &err) != MIST_OK)
        fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    if (depth < 4 && mist_json_as_array(value, &err) == MIST_OK)
        for (size_t i = 0; i < mist_json_size(value) && i < 8; i++) {
            struct mist_json element = mist_json_element(value, i);
            look(&element, depth + 1);
        }
    if (mist_json_as_object(value, &err) == MIST_OK) {
        struct mist_json child;
        if (mist_json_check_keys(value, known, &err) != MIST_OK)
            fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
        if (mist_json_get_object(value, "a", MIST_JSON_REQUIRED, &child, &err) == MIST_OK)
            look(&child, depth + 1);
        if (mist_json_get_array(value, "b", MIST_JSON_OPTIONAL, &child, &err) ==
                MIST_OK &&
            child.value && depth < 4)
            look(&child, depth + 1);
        if (mist_json_get_double(value, "c", MIST_JSON_REQUIRED, 0, 1, &real, &err) !=
            MIST_OK)
            fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    }
}

static void check_round_trip(const struct mist_json_doc *doc)
{
    char path[FUZZ_PATH_BYTES];
    struct mist_json_doc again;
    struct mist_err err = {0};

    fuzz_must(mist_json_write_file(doc->root, fuzz_path(path, "out.json"), true, &err),
              &err);
    fuzz_must(mist_json_load(&again, path, doc->mode, &err), &err);
    FUZZ_CHECK(json_equal(doc->root, again.root), "other values in %s", path);
    mist_json_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    enum mist_json_mode mode =
        fuzz_take(&input) % 2 == 0 ? MIST_JSON_OWN : MIST_JSON_FOREIGN;
    struct mist_json_doc doc;
    struct mist_err err = {0};
    enum mist_status status = mist_json_load_text(
        &doc, "in.json", (const char *)input.bytes, input.n, mode, &err);

    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!doc.root && !doc.text && !doc.path, "something is left");
        return 0;
    }
    struct mist_json root = mist_json_root(&doc);
    look(&root, 0);
    check_round_trip(&doc);
    mist_json_fini(&doc);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("own", "0{\"format\": 1, \"a\": {\"c\": 0.5}, \"b\": [1, [2, -3e4]]}");
    fuzz_seed_text("foreign", "1{\"a\": {\"a\": {}},\n \"b\": [true, null, \"one\"],\n"
                              " \"c\": 1e-300, \"d\": \"\\u00e4\\n\\\"\"}");
    fuzz_seed_text("array", "1[[[[[[[[\"two\", 12345678901234567890]]]]]]]]");
}
