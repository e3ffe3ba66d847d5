/*
 * Writing JSON. See json.h.
 *
 * Jansson's dumper prints doubles with a fixed number of digits (0.10000000000000001);
 * people read and edit these files, so the structure is written here and only strings are
 * left to Jansson.
 */
#include "core/atomic_file.h"
#include "core/escape.h"
#include "core/json.h"
#include "core/parse.h"

#include <stdlib.h>
#include <string.h>

static bool write_string(const json_t *string, FILE *stream)
{
    char *text = json_dumps(string, JSON_ENCODE_ANY);

    if (!text)
        return false;
    fputs(text, stream);
    free(text);
    return true;
}

static bool write_key(const char *key, FILE *stream)
{
    json_t *string = json_string(key);
    bool ok = string && write_string(string, stream);

    json_decref(string);
    fputs(": ", stream);
    return ok;
}

static void write_real(double value, FILE *stream)
{
    char text[MIST_FORMAT_BYTES];

    mist_format_double(text, sizeof text, value);
    fputs(text, stream);
    if (!strpbrk(text, ".e")) /* stays a real number for whoever reads it */
        fputs(".0", stream);
}

static void write_line(int depth, FILE *stream)
{
    fprintf(stream, "\n%*s", 2 * depth, "");
}

static bool is_plain_array(const json_t *array)
{
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *element = json_array_get(array, i);
        if (json_is_object(element) || json_is_array(element))
            return false;
    }
    return true;
}

static bool write_value(const json_t *value, int depth, FILE *stream);

static bool write_array(const json_t *array, int depth, FILE *stream)
{
    bool is_plain = is_plain_array(array);
    bool ok = true;

    fputc('[', stream);
    for (size_t i = 0; i < json_array_size(array) && ok; i++) {
        if (i > 0)
            fputs(is_plain ? ", " : ",", stream);
        if (!is_plain)
            write_line(depth + 1, stream);
        ok = write_value(json_array_get(array, i), depth + 1, stream);
    }
    if (!is_plain)
        write_line(depth, stream);
    fputc(']', stream);
    return ok;
}

static bool write_object(const json_t *object, int depth, FILE *stream)
{
    json_t *copy =
        (json_t *)object; /* iteration takes a pointer to what it does not change */
    bool ok = true;
    bool is_first = true;
    const char *key;
    json_t *value;

    if (json_object_size(object) == 0) {
        fputs("{}", stream);
        return true;
    }
    fputc('{', stream);
    json_object_foreach(copy, key, value)
    {
        if (!is_first)
            fputc(',', stream);
        is_first = false;
        write_line(depth + 1, stream);
        ok = ok && write_key(key, stream) && write_value(value, depth + 1, stream);
    }
    write_line(depth, stream);
    fputc('}', stream);
    return ok;
}

static bool write_value(const json_t *value, int depth, FILE *stream)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return write_object(value, depth, stream);
    case JSON_ARRAY:
        return write_array(value, depth, stream);
    case JSON_STRING:
        return write_string(value, stream);
    case JSON_INTEGER:
        fprintf(stream, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
        return true;
    case JSON_REAL:
        write_real(json_real_value(value), stream);
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        fputs(json_is_true(value) ? "true" : "false", stream);
        return true;
    case JSON_NULL:
        break;
    }
    fputs("null", stream);
    return true;
}

enum mist_status mist_json_check_text(const char *what, const char *text,
                                      struct mist_err *err)
{
    return mist_text_is_utf8(text)
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_INPUT, "%s is not UTF-8", what);
}

bool mist_json_write(const json_t *root, FILE *stream)
{
    bool ok = write_value(root, 0, stream);

    fputc('\n', stream);
    return ok;
}

enum mist_status mist_json_write_file(const json_t *root, const char *path, bool force,
                                      struct mist_err *err)
{
    struct mist_atomic_file file;
    enum mist_status status = mist_atomic_file_open(&file, path, force, err);

    if (status)
        return status;
    if (!mist_json_write(root, file.stream)) {
        mist_atomic_file_abort(&file);
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
    }
    return mist_atomic_file_commit(&file, err);
}
