/*
 * Objects of our own JSON files as tables of fields, one for each member of a struct, by
 * which they are read and written: what is written is what can be read.
 *
 *     static const struct mist_json_field fields[] = {
 *         MIST_JSON_FIELD(mist_link, bytes_per_s, .type = MIST_FIELD_DOUBLE), ..,
 *         {.key = NULL}};
 */
#ifndef MIST_CORE_JSON_FIELDS_H
#define MIST_CORE_JSON_FIELDS_H

#include "core/json.h"

enum mist_field_type {
    MIST_FIELD_WHOLE, /* int32_t or int64_t */
    MIST_FIELD_DOUBLE,
    MIST_FIELD_NUMBER,   /* double; written as a whole number where it is one: 312e12 */
    MIST_FIELD_FRACTION, /* double; 0 when missing */
    MIST_FIELD_BOOL,
    MIST_FIELD_WORD,   /* an enum, or a bool, by its words */
    MIST_FIELD_CHARS,  /* char[size] */
    MIST_FIELD_HEX64,  /* uint64_t as 16 hexadecimal digits */
    MIST_FIELD_OBJECT, /* a struct with fields of its own */
    MIST_FIELD_OTHER,  /* a key that is read and written by code of its own */
};

/* What a file's numbers are held to; usually any that the type holds. Of a double ABOVE_0
 * is FROM_0 there. */
enum { MIST_FIELD_FROM_0 = 1, MIST_FIELD_ABOVE_0 = 2, MIST_FIELD_TO_1 = 4 };

struct mist_json_field {
    const char *key; /* NULL ends a table */
    enum mist_field_type type;
    bool is_optional;         /* may be missing: the member is left as it is */
    bool is_left_out;         /* the same, and not written when it is none */
    int none;                 /* a whole number that is none, like 0 */
    unsigned limits;          /* MIST_FIELD_FROM_0 .. */
    int64_t most;             /* of a whole number; 0: what its type holds */
    int check;                /* for whom the table is of: what more is right */
    size_t offset, size;      /* in the struct the object stands for */
    const char *const *words; /* of MIST_FIELD_WORD */
    const struct mist_json_field *members; /* of MIST_FIELD_OBJECT */
};

/* A row; its key is the member's name, or another. */
#define MIST_JSON_FIELD(of, member, ...) MIST_JSON_KEYED(of, #member, member, __VA_ARGS__)
#define MIST_JSON_KEYED(of, i_key, member, ...)                                          \
    {                                                                                    \
        .key = i_key, .offset = offsetof(struct of, member),                             \
        .size = sizeof(((struct of *)0)->member), __VA_ARGS__                            \
    }

/* The value of a field in the struct that its table is of: of doubles, and of what counts
 * (whole numbers, booleans, words). */
double mist_json_field_double(const struct mist_json_field *field, const void *base);
int64_t mist_json_field_whole(const struct mist_json_field *field, const void *base);

/* Whether it is what its absence stands for: 0 or none, false, the first word, empty, or
 * an object whose first field is. */
bool mist_json_field_is_none(const struct mist_json_field *field, const void *base);

/* Reads an object that has the keys of a table and no others into the struct at base, up
 * to the first fault: MIST_ERR_INPUT. */
MIST_MUST_CHECK enum mist_status
mist_json_read_fields(const struct mist_json *object,
                      const struct mist_json_field *fields, void *base,
                      struct mist_err *err);

/* A string member into out[size]; one that is absent leaves it. */
MIST_MUST_CHECK enum mist_status mist_json_get_chars(const struct mist_json *object,
                                                     const char *key,
                                                     enum mist_json_need need, char *out,
                                                     size_t size, struct mist_err *err);

/* The struct at base as an object, in the table's order. others (NULL: none): the values
 * of MIST_FIELD_OTHER, of which it may lack some. NULL: out of memory. */
json_t *mist_json_write_fields(const struct mist_json_field *fields, const void *base,
                               const json_t *others);

/* As MIST_FIELD_NUMBER is written. */
json_t *mist_json_number(double value);

#endif
