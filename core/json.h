/*
 * Strict JSON over Jansson: our own formats and foreign ones.
 *
 * Jansson keeps no positions, so the text is kept and an error finds its line and column
 * by walking the tokens along the path of the value (only when there is an error; reading
 * costs nothing). Our formats: "format": 1 comes first, unknown keys are errors. Foreign
 * formats: what is needed and missing is named, the rest is ignored, null counts as
 * missing. In both, numbers are finite, a key comes once and there is no zero byte.
 *
 * Use:  mist_json_load(&doc, path, MIST_JSON_OWN, err); root = mist_json_root(&doc);
 *       mist_json_check_keys(&root, keys, err); mist_json_get_int64(&root, "n_nodes",
 * ...);
 *       ... mist_json_fini(&doc);
 */
#ifndef MIST_CORE_JSON_H
#define MIST_CORE_JSON_H

#include "core/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_json_mode {
    MIST_JSON_OWN,     /* "format": 1 first, unknown keys are errors */
    MIST_JSON_FOREIGN, /* unknown keys and missing formats are fine */
};

enum mist_json_need {
    MIST_JSON_REQUIRED, /* missing is an error */
    MIST_JSON_OPTIONAL, /* missing leaves out untouched */
};

struct mist_json_doc {
    json_t *root; /* owned */
    char *text;   /* owned; what was parsed */
    size_t n;     /* bytes of text */
    char *path;   /* owned; for messages */
    enum mist_json_mode mode;
};

/*
 * A value and the way to it. Copies freely; the document and the parent must outlive it.
 */
struct mist_json {
    const struct mist_json_doc *doc;
    const struct mist_json *parent; /* NULL: the root */
    const char *key;                /* in a parent object */
    size_t index;                   /* in a parent array */
    json_t *value;                  /* borrowed from doc; NULL: absent */
};

/* MIST_ERR_IO, MIST_ERR_INPUT (syntax, format) or MIST_ERR_MEMORY;
 * after a failure doc is empty. */
enum mist_status mist_json_load(struct mist_json_doc *doc, const char *path,
                                enum mist_json_mode mode,
                                struct mist_err *err) MIST_MUST_CHECK;

/* The same from n bytes of text (copied); path only names it in messages. */
enum mist_status mist_json_load_text(struct mist_json_doc *doc, const char *path,
                                     const char *text, size_t n, enum mist_json_mode mode,
                                     struct mist_err *err) MIST_MUST_CHECK;
void mist_json_fini(struct mist_json_doc *doc); /* a zeroed or empty doc is fine */

struct mist_json mist_json_root(const struct mist_json_doc *doc);

/* keys ends with NULL. An unknown key of an object is an error in our formats ("format"
 * is known). */
enum mist_status mist_json_check_keys(const struct mist_json *object,
                                      const char *const *keys,
                                      struct mist_err *err) MIST_MUST_CHECK;

bool mist_json_has(const struct mist_json *object, const char *key);

/*
 * Children. An optional one that is absent gives child->value NULL. Elements: 0 .. size-1
 * of an array; the element may have any type.
 */
enum mist_status mist_json_get_object(const struct mist_json *object, const char *key,
                                      enum mist_json_need need, struct mist_json *child,
                                      struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_get_array(const struct mist_json *object, const char *key,
                                     enum mist_json_need need, struct mist_json *child,
                                     struct mist_err *err) MIST_MUST_CHECK;
size_t mist_json_size(const struct mist_json *array); /* 0 for an absent array */
struct mist_json mist_json_element(const struct mist_json *array, size_t index);

/*
 * Members of an object, checked for type and range (ends included). A double may be
 * written as a whole number. Strings are borrowed from the document. choices ends with
 * NULL; out = index.
 */
enum mist_status mist_json_get_int64(const struct mist_json *object, const char *key,
                                     enum mist_json_need need, int64_t min, int64_t max,
                                     int64_t *out, struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_get_double(const struct mist_json *object, const char *key,
                                      enum mist_json_need need, double min, double max,
                                      double *out, struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_get_bool(const struct mist_json *object, const char *key,
                                    enum mist_json_need need, bool *out,
                                    struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_get_string(const struct mist_json *object, const char *key,
                                      enum mist_json_need need, const char **out,
                                      struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_get_choice(const struct mist_json *object, const char *key,
                                      enum mist_json_need need,
                                      const char *const *choices, int *out,
                                      struct mist_err *err) MIST_MUST_CHECK;

/* The same checks on a value itself, such as an element of an array. */
enum mist_status mist_json_as_object(const struct mist_json *value,
                                     struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_as_array(const struct mist_json *value,
                                    struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_as_int64(const struct mist_json *value, int64_t min,
                                    int64_t max, int64_t *out,
                                    struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_as_double(const struct mist_json *value, double min,
                                     double max, double *out,
                                     struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_as_bool(const struct mist_json *value, bool *out,
                                   struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_as_string(const struct mist_json *value, const char **out,
                                     struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_json_as_choice(const struct mist_json *value,
                                     const char *const *choices, int *out,
                                     struct mist_err *err) MIST_MUST_CHECK;

/* An error of the caller's own at the place of value; returns status. */
enum mist_status mist_json_fail(const struct mist_json *value, enum mist_status status,
                                struct mist_err *err, const char *format, ...)
    MIST_PRINTF(4, 5);

/* The same at a member of object (at the object itself when it has no such key). */
enum mist_status mist_json_fail_key(const struct mist_json *object, const char *key,
                                    enum mist_status status, struct mist_err *err,
                                    const char *format, ...) MIST_PRINTF(5, 6);

/* Jansson refuses texts that are not UTF-8: MIST_ERR_INPUT, naming what it is. */
enum mist_status mist_json_check_text(const char *what, const char *text,
                                      struct mist_err *err) MIST_MUST_CHECK;

/*
 * Writes a value: keys in the order they were set, indent 2, an array of plain values on
 * one line, doubles as the shortest text that reads back the same, a newline at the end.
 * Returns false when out of memory; write errors stay in the stream.
 */
bool mist_json_write(const json_t *root, FILE *stream);

/* The same to a file, whole or not at all (core/atomic_file.h). root is borrowed. */
enum mist_status mist_json_write_file(const json_t *root, const char *path, bool force,
                                      struct mist_err *err) MIST_MUST_CHECK;

#endif
