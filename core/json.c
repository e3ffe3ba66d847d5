/* Strict reading of JSON over Jansson. See json.h; writing is in json_write.c. */
#include "core/json.h"

#include "core/atomic_file.h"
#include "core/json_locate.h"
#include "core/parse.h" /* words */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX                                                                   \
    ((size_t)1 << 30) /* far above any plan or config; guards against mix-ups */

/* ---- errors ---- */

MIST_PRINTF(4, 0)
static enum mist_status fail_va(const struct mist_json *value, enum mist_status status,
                                struct mist_err *err, const char *format, va_list args)
{
    char message[sizeof err->message];
    long line;
    long column;

    if (!err)
        return status;
    vsnprintf(message, sizeof message, format, args);
    mist_json_locate(value, &line, &column);
    return mist_err_at(err, status, value->doc->path, line, column, "%s", message);
}

enum mist_status mist_json_fail(const struct mist_json *value, enum mist_status status,
                                struct mist_err *err, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fail_va(value, status, err, format, args);
    va_end(args);
    return status;
}

static struct mist_json member(const struct mist_json *object, const char *key)
{
    json_t *value = json_object_get(object->value, key);

    if (json_is_null(value) && object->doc->mode == MIST_JSON_FOREIGN)
        value = NULL;
    return (struct mist_json){
        .doc = object->doc, .parent = object, .key = key, .value = value};
}

enum mist_status mist_json_fail_key(const struct mist_json *object, const char *key,
                                    enum mist_status status, struct mist_err *err,
                                    const char *format, ...)
{
    struct mist_json child = member(object, key);
    va_list args;

    va_start(args, format);
    fail_va(&child, status, err, format, args);
    va_end(args);
    return status;
}

/* How messages call a value: its key, "element 3 of layers", or "the document". */
static const char *describe(const struct mist_json *value, char *buffer, size_t size)
{
    if (!value->parent)
        snprintf(buffer, size, "the document");
    else if (value->key)
        snprintf(buffer, size, "%.100s", value->key);
    else
        snprintf(buffer, size, "element %zu of %.100s", value->index,
                 value->parent->key ? value->parent->key : "the array");
    return buffer;
}

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "a whole number";
    case JSON_REAL:
        return "a number with a fraction";
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        break;
    }
    return "null";
}

static enum mist_status wrong_type(const struct mist_json *value, const char *expected,
                                   struct mist_err *err)
{
    char name[160];

    return mist_json_fail(value, MIST_ERR_INPUT, err, "%s: expected %s, found %s",
                          describe(value, name, sizeof name), expected,
                          type_name(value->value));
}

/* ---- loading ---- */

static enum mist_status check_format(const struct mist_json_doc *doc,
                                     struct mist_err *err)
{
    struct mist_json root = mist_json_root(doc);
    int64_t format;
    enum mist_status status = mist_json_as_object(&root, err);

    if (status)
        return status;
    const char *first = json_object_iter_key(json_object_iter(doc->root));
    if (!first || strcmp(first, "format") != 0)
        return mist_json_fail(&root, MIST_ERR_INPUT, err,
                              "expected \"format\": 1 as the first key");
    return mist_json_get_int64(&root, "format", MIST_JSON_REQUIRED, 1, 1, &format, err);
}

/*
 * Jansson calls a failed malloc "invalid token", or goes on: a byte that its buffer has
 * no room for is lost, and behind a closing quote that was lost it reads and writes on,
 * unless it gets no memory for the string's value either. So once one call has failed in
 * a document, all do.
 */
static _Thread_local enum { NOT_PARSING, PARSING, HAS_FAILED } parse_state;

static void *watched_malloc(size_t n)
{
    void *memory = parse_state == HAS_FAILED ? NULL : malloc(n);

    if (!memory && parse_state == PARSING)
        parse_state = HAS_FAILED;
    return memory;
}

json_t *mist_json_parse(const char *text, size_t n, size_t flags, bool *has_failed,
                        json_error_t *error)
{
    json_set_alloc_funcs(watched_malloc, free);
    parse_state = PARSING;
    json_t *root = json_loadb(text, n, flags, error);
    *has_failed = parse_state == HAS_FAILED;
    parse_state = NOT_PARSING;
    if (*has_failed) {
        json_decref(root);
        root = NULL;
    }
    return root;
}

/* Jansson skips a zero byte behind a number; who looks for places takes it for
 * the end. */
static enum mist_status check_zeros(const struct mist_json_doc *doc, struct mist_err *err)
{
    const char *zero = memchr(doc->text, '\0', doc->n);
    long line = 1;

    if (!zero)
        return MIST_OK;
    for (const char *c = doc->text; c < zero; c++)
        line += *c == '\n';
    return mist_err_at(err, MIST_ERR_INPUT, doc->path, line, 0,
                       "a zero byte: this is no text");
}

/* A byte order mark, as editors of Windows write it, may be ignored (RFC 8259, 8.1). */
static void skip_mark(struct mist_json_doc *doc)
{
    static const char mark[] = {'\xef', '\xbb', '\xbf'};

    if (doc->n < sizeof mark || memcmp(doc->text, mark, sizeof mark) != 0)
        return;
    doc->n -= sizeof mark;
    memmove(doc->text, doc->text + sizeof mark, doc->n + 1);
}

/* Parses doc->text; on failure the caller cleans up. */
static enum mist_status parse_text(struct mist_json_doc *doc, const char *path,
                                   struct mist_err *err)
{
    json_error_t error = {0};
    bool has_failed = false;

    doc->path = malloc(strlen(path) + 1);
    if (!doc->path)
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
    memcpy(doc->path, path, strlen(path) + 1);
    skip_mark(doc);
    enum mist_status status = check_zeros(doc, err);
    if (status)
        return status;
    doc->root =
        mist_json_parse(doc->text, doc->n, JSON_REJECT_DUPLICATES, &has_failed, &error);
    if (has_failed)
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
    if (!doc->root)
        return mist_err_at(err, MIST_ERR_INPUT, path, error.line, error.column, "%s",
                           error.text);
    return doc->mode == MIST_JSON_OWN ? check_format(doc, err) : MIST_OK;
}

enum mist_status mist_json_load(struct mist_json_doc *doc, const char *path,
                                enum mist_json_mode mode, struct mist_err *err)
{
    *doc = (struct mist_json_doc){.mode = mode};
    enum mist_status status =
        mist_file_read_all(path, FILE_BYTES_MAX, &doc->text, &doc->n, err);
    if (!status)
        status = parse_text(doc, path, err);
    if (status)
        mist_json_fini(doc);
    return status;
}

enum mist_status mist_json_load_text(struct mist_json_doc *doc, const char *path,
                                     const char *text, size_t n, enum mist_json_mode mode,
                                     struct mist_err *err)
{
    *doc = (struct mist_json_doc){.mode = mode, .n = n};
    doc->text = malloc(n + 1);
    if (!doc->text)
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
    memcpy(doc->text, text, n);
    doc->text[n] = '\0';
    enum mist_status status = parse_text(doc, path, err);
    if (status)
        mist_json_fini(doc);
    return status;
}

void mist_json_fini(struct mist_json_doc *doc)
{
    json_decref(doc->root);
    free(doc->text);
    free(doc->path);
    *doc = (struct mist_json_doc){0};
}

/* ---- navigation ---- */

struct mist_json mist_json_root(const struct mist_json_doc *doc)
{
    return (struct mist_json){.doc = doc, .value = doc->root};
}

enum mist_status mist_json_check_keys(const struct mist_json *object,
                                      const char *const *keys, struct mist_err *err)
{
    const char *key;
    json_t *value;

    if (object->doc->mode == MIST_JSON_FOREIGN)
        return MIST_OK;
    json_object_foreach(object->value, key, value)
    {
        if (mist_word_find(keys, key) < 0 &&
            !(object->parent == NULL && strcmp(key, "format") == 0))
            return mist_json_fail_key(object, key, MIST_ERR_INPUT, err,
                                      "unknown key \"%.80s\"", key);
    }
    return MIST_OK;
}

bool mist_json_has(const struct mist_json *object, const char *key)
{
    return member(object, key).value != NULL;
}

size_t mist_json_size(const struct mist_json *array)
{
    return json_array_size(array->value);
}

struct mist_json mist_json_element(const struct mist_json *array, size_t index)
{
    return (struct mist_json){.doc = array->doc,
                              .parent = array,
                              .index = index,
                              .value = json_array_get(array->value, index)};
}

/* ---- values ---- */

enum mist_status mist_json_as_object(const struct mist_json *value, struct mist_err *err)
{
    return json_is_object(value->value) ? MIST_OK : wrong_type(value, "an object", err);
}

enum mist_status mist_json_as_array(const struct mist_json *value, struct mist_err *err)
{
    return json_is_array(value->value) ? MIST_OK : wrong_type(value, "an array", err);
}

enum mist_status mist_json_as_int64(const struct mist_json *value, int64_t min,
                                    int64_t max, int64_t *out, struct mist_err *err)
{
    char name[160];

    if (!json_is_integer(value->value))
        return wrong_type(value, "a whole number", err);
    int64_t number = json_integer_value(value->value);
    if (number >= min && number <= max) {
        *out = number;
        return MIST_OK;
    }
    describe(value, name, sizeof name);
    if (max == INT64_MAX)
        return mist_json_fail(value, MIST_ERR_INPUT, err,
                              "%s: %" PRId64 " is less than %" PRId64, name, number, min);
    if (min == max)
        return mist_json_fail(value, MIST_ERR_INPUT, err,
                              "%s: %" PRId64 ", expected %" PRId64, name, number, min);
    return mist_json_fail(value, MIST_ERR_INPUT, err,
                          "%s: %" PRId64 " is not within %" PRId64 " .. %" PRId64, name,
                          number, min, max);
}

enum mist_status mist_json_as_double(const struct mist_json *value, double min,
                                     double max, double *out, struct mist_err *err)
{
    char name[160];

    if (!json_is_number(value->value))
        return wrong_type(value, "a number", err);
    double number = json_number_value(value->value);
    if (isfinite(number) && number >= min && number <= max) {
        *out = number;
        return MIST_OK;
    }
    describe(value, name, sizeof name);
    if (isinf(max))
        return mist_json_fail(value, MIST_ERR_INPUT, err, "%s: %g is less than %g", name,
                              number, min);
    if (min == max)
        return mist_json_fail(value, MIST_ERR_INPUT, err, "%s: %g, expected %g", name,
                              number, min);
    return mist_json_fail(value, MIST_ERR_INPUT, err, "%s: %g is not within %g .. %g",
                          name, number, min, max);
}

enum mist_status mist_json_as_bool(const struct mist_json *value, bool *out,
                                   struct mist_err *err)
{
    if (!json_is_boolean(value->value))
        return wrong_type(value, "true or false", err);
    *out = json_is_true(value->value);
    return MIST_OK;
}

enum mist_status mist_json_as_string(const struct mist_json *value, const char **out,
                                     struct mist_err *err)
{
    if (!json_is_string(value->value))
        return wrong_type(value, "a string", err);
    *out = json_string_value(value->value);
    return MIST_OK;
}

enum mist_status mist_json_as_choice(const struct mist_json *value,
                                     const char *const *choices, int *out,
                                     struct mist_err *err)
{
    const char *text = NULL;
    char name[160], list[256];
    enum mist_status status = mist_json_as_string(value, &text, err);
    int i = status ? 0 : mist_word_find(choices, text);

    if (i < 0)
        return mist_json_fail(value, MIST_ERR_INPUT, err, "%s: \"%.60s\" is none of %s",
                              describe(value, name, sizeof name), text,
                              mist_words_list(choices, list, sizeof list));
    if (!status)
        *out = i;
    return status;
}

/* ---- members ---- */

/* Fills child; MIST_ERR_INPUT when it is required and absent. */
static enum mist_status need_member(const struct mist_json *object, const char *key,
                                    enum mist_json_need need, struct mist_json *child,
                                    struct mist_err *err)
{
    *child = member(object, key);
    if (child->value || need == MIST_JSON_OPTIONAL)
        return MIST_OK;
    return mist_json_fail(object, MIST_ERR_INPUT, err, "missing key \"%s\"", key);
}

enum mist_status mist_json_get_object(const struct mist_json *object, const char *key,
                                      enum mist_json_need need, struct mist_json *child,
                                      struct mist_err *err)
{
    enum mist_status status = need_member(object, key, need, child, err);

    return status || !child->value ? status : mist_json_as_object(child, err);
}

enum mist_status mist_json_get_array(const struct mist_json *object, const char *key,
                                     enum mist_json_need need, struct mist_json *child,
                                     struct mist_err *err)
{
    enum mist_status status = need_member(object, key, need, child, err);

    return status || !child->value ? status : mist_json_as_array(child, err);
}

enum mist_status mist_json_get_int64(const struct mist_json *object, const char *key,
                                     enum mist_json_need need, int64_t min, int64_t max,
                                     int64_t *out, struct mist_err *err)
{
    struct mist_json child;
    enum mist_status status = need_member(object, key, need, &child, err);

    return status || !child.value ? status
                                  : mist_json_as_int64(&child, min, max, out, err);
}

enum mist_status mist_json_get_double(const struct mist_json *object, const char *key,
                                      enum mist_json_need need, double min, double max,
                                      double *out, struct mist_err *err)
{
    struct mist_json child;
    enum mist_status status = need_member(object, key, need, &child, err);

    return status || !child.value ? status
                                  : mist_json_as_double(&child, min, max, out, err);
}

enum mist_status mist_json_get_bool(const struct mist_json *object, const char *key,
                                    enum mist_json_need need, bool *out,
                                    struct mist_err *err)
{
    struct mist_json child;
    enum mist_status status = need_member(object, key, need, &child, err);

    return status || !child.value ? status : mist_json_as_bool(&child, out, err);
}

enum mist_status mist_json_get_string(const struct mist_json *object, const char *key,
                                      enum mist_json_need need, const char **out,
                                      struct mist_err *err)
{
    struct mist_json child;
    enum mist_status status = need_member(object, key, need, &child, err);

    return status || !child.value ? status : mist_json_as_string(&child, out, err);
}

enum mist_status mist_json_get_choice(const struct mist_json *object, const char *key,
                                      enum mist_json_need need,
                                      const char *const *choices, int *out,
                                      struct mist_err *err)
{
    struct mist_json child;
    enum mist_status status = need_member(object, key, need, &child, err);

    return status || !child.value ? status
                                  : mist_json_as_choice(&child, choices, out, err);
}
