/* Structs to and from JSON by tables. See json_fields.h. */
#include "core/json_fields.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>   /* INFINITY */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* strtoull */
#include <string.h>

enum { MAX_KEYS = 32 }; /* of an object */

double mist_json_field_double(const struct mist_json_field *field, const void *base)
{
    return *(const double *)(const void *)((const char *)base + field->offset);
}

int64_t mist_json_field_whole(const struct mist_json_field *field, const void *base)
{
    const void *in = (const char *)base + field->offset;

    switch (field->size) {
    case sizeof(bool):
        return *(const bool *)in;
    case sizeof(int32_t): /* also an enum */
        return *(const int32_t *)in;
    default:
        return *(const int64_t *)in;
    }
}

bool mist_json_field_is_none(const struct mist_json_field *field, const void *base)
{
    switch (field->type) {
    case MIST_FIELD_DOUBLE:
    case MIST_FIELD_NUMBER:
    case MIST_FIELD_FRACTION:
        return mist_json_field_double(field, base) == 0;
    case MIST_FIELD_CHARS:
        return !((const char *)base)[field->offset];
    case MIST_FIELD_OBJECT:
        return mist_json_field_is_none(field->members,
                                       (const char *)base + field->offset);
    default:
        return mist_json_field_whole(field, base) == 0 ||
               mist_json_field_whole(field, base) == field->none;
    }
}

/* ---------------------------------------------------------------------------- reading */

enum mist_status mist_json_get_chars(const struct mist_json *object, const char *key,
                                     enum mist_json_need need, char *out, size_t size,
                                     struct mist_err *err)
{
    const char *text = NULL;
    enum mist_status status = mist_json_get_string(object, key, need, &text, err);

    if (status || !text)
        return status;
    if (strlen(text) >= size)
        return mist_json_fail_key(object, key, MIST_ERR_INPUT, err,
                                  "%s: %zu bytes long, expected at most %zu", key,
                                  strlen(text), size - 1);
    memcpy(out, text, strlen(text) + 1);
    return MIST_OK;
}

static enum mist_status read_hex64(const struct mist_json *object, const char *key,
                                   enum mist_json_need need, uint64_t *out,
                                   struct mist_err *err)
{
    const char *text = NULL;
    enum mist_status status = mist_json_get_string(object, key, need, &text, err);

    if (status || !text)
        return status;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return mist_json_fail_key(object, key, MIST_ERR_INPUT, err,
                                  "%s: \"%.40s\" is not 16 hexadecimal digits", key,
                                  text);
    *out = strtoull(text, NULL, 16);
    return MIST_OK;
}

static enum mist_status read_whole(const struct mist_json *object,
                                   const struct mist_json_field *f,
                                   enum mist_json_need need, void *out,
                                   struct mist_err *err)
{
    bool is_long = f->size == sizeof(int64_t);
    int64_t most = is_long ? INT64_MAX : INT32_MAX;
    int64_t least = f->limits & MIST_FIELD_ABOVE_0  ? 1
                    : f->limits & MIST_FIELD_FROM_0 ? 0
                                                    : -most - 1;
    int64_t value = is_long ? *(int64_t *)out : *(int32_t *)out;
    enum mist_status status = mist_json_get_int64(object, f->key, need, least,
                                                  f->most ? f->most : most, &value, err);

    if (is_long)
        *(int64_t *)out = value;
    else
        *(int32_t *)out = (int32_t)value;
    return status;
}

static enum mist_status read_word(const struct mist_json *object,
                                  const struct mist_json_field *f,
                                  enum mist_json_need need, void *out,
                                  struct mist_err *err)
{
    bool is_bool = f->size == sizeof(bool);
    int choice = is_bool ? *(bool *)out : *(int *)out;
    enum mist_status status =
        mist_json_get_choice(object, f->key, need, f->words, &choice, err);

    if (is_bool)
        *(bool *)out = choice;
    else
        *(int *)out = choice;
    return status;
}

static enum mist_status read_field(const struct mist_json *object,
                                   const struct mist_json_field *f, void *out,
                                   struct mist_err *err)
{
    bool is_optional = f->is_optional || f->is_left_out || f->type == MIST_FIELD_FRACTION;
    enum mist_json_need need = is_optional ? MIST_JSON_OPTIONAL : MIST_JSON_REQUIRED;
    double most = f->limits & MIST_FIELD_TO_1 ? 1 : f->limits ? DBL_MAX : INFINITY;
    struct mist_json child;
    enum mist_status status = MIST_OK;

    switch (f->type) {
    case MIST_FIELD_WHOLE:
        return read_whole(object, f, need, out, err);
    case MIST_FIELD_DOUBLE:
    case MIST_FIELD_NUMBER:
    case MIST_FIELD_FRACTION:
        return mist_json_get_double(object, f->key, need, f->limits ? 0 : -INFINITY, most,
                                    out, err);
    case MIST_FIELD_BOOL:
        return mist_json_get_bool(object, f->key, need, out, err);
    case MIST_FIELD_WORD:
        return read_word(object, f, need, out, err);
    case MIST_FIELD_CHARS:
        return mist_json_get_chars(object, f->key, need, out, f->size, err);
    case MIST_FIELD_HEX64:
        return read_hex64(object, f->key, need, out, err);
    case MIST_FIELD_OBJECT:
        status = mist_json_get_object(object, f->key, need, &child, err);
        return status || !child.value
                   ? status
                   : mist_json_read_fields(&child, f->members, out, err);
    case MIST_FIELD_OTHER:
        break;
    }
    return status;
}

enum mist_status mist_json_read_fields(const struct mist_json *object,
                                       const struct mist_json_field *fields, void *base,
                                       struct mist_err *err)
{
    const char *keys[MAX_KEYS + 1] = {NULL};

    for (int i = 0; i < MAX_KEYS && fields[i].key; i++)
        keys[i] = fields[i].key;
    enum mist_status status = mist_json_check_keys(object, keys, err);
    for (; fields->key && status == MIST_OK; fields++)
        status = read_field(object, fields, (char *)base + fields->offset, err);
    return status;
}

/* ---------------------------------------------------------------------------- writing */

json_t *mist_json_number(double value)
{
    if (value >= 0 && value < 9007199254740992.0 && value == (double)(int64_t)value)
        return json_integer((int64_t)value);
    return json_real(value);
}

static json_t *write_field(const struct mist_json_field *f, const void *base)
{
    const void *in = (const char *)base + f->offset;
    char digits[17];

    switch (f->type) {
    case MIST_FIELD_WHOLE:
        return json_integer(mist_json_field_whole(f, base));
    case MIST_FIELD_DOUBLE:
    case MIST_FIELD_FRACTION:
        return json_real(mist_json_field_double(f, base));
    case MIST_FIELD_NUMBER:
        return mist_json_number(mist_json_field_double(f, base));
    case MIST_FIELD_BOOL:
        return json_boolean(mist_json_field_whole(f, base));
    case MIST_FIELD_WORD:
        return json_string(f->words[mist_json_field_whole(f, base)]);
    case MIST_FIELD_CHARS:
        return json_string(in);
    case MIST_FIELD_HEX64:
        snprintf(digits, sizeof digits, "%016" PRIx64, *(const uint64_t *)in);
        return json_string(digits);
    case MIST_FIELD_OBJECT:
        return mist_json_write_fields(f->members, in, NULL);
    case MIST_FIELD_OTHER:
        break;
    }
    return NULL;
}

json_t *mist_json_write_fields(const struct mist_json_field *fields, const void *base,
                               const json_t *others)
{
    json_t *object = json_object();
    int failed = 0;

    for (const struct mist_json_field *f = fields; f->key; f++) {
        json_t *other = json_object_get(others, f->key);
        if (other)
            failed |= json_object_set(object, f->key, other);
        else if (f->type != MIST_FIELD_OTHER &&
                 !(f->is_left_out && mist_json_field_is_none(f, base)))
            failed |= json_object_set_new(object, f->key, write_field(f, base));
    }
    if (!failed)
        return object;
    json_decref(object);
    return NULL;
}
