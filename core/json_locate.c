/*
 * Finds the place of a value in the text of a JSON document. See json_locate.h.
 *
 * The text has been parsed before, so it is valid and the walk needs no error handling:
 * it steps over tokens, counting brackets to skip values.
 */
#include "core/json_locate.h"

#include <string.h>

/* All positions are offsets into text;
 * the text ends with '\0', which no function steps over. */

static size_t skip_blanks(const char *text, size_t at)
{
    return at + strspn(text + at, " \t\r\n");
}

/* Behind the string that begins at text[at]. */
static size_t skip_string(const char *text, size_t at)
{
    for (at++; text[at] && text[at] != '"'; at++) {
        if (text[at] == '\\' && text[at + 1])
            at++;
    }
    return at + (text[at] == '"');
}

/* Behind the value that begins at text[at]. */
static size_t skip_value(const char *text, size_t at)
{
    long depth = 0;

    do {
        at = skip_blanks(text, at);
        if (!text[at])
            return at;
        if (text[at] == '"') {
            at = skip_string(text, at);
        } else if (strchr("{[", text[at])) {
            depth++;
            at++;
        } else if (strchr("]}", text[at])) {
            depth--;
            at++;
        } else if (strchr(",:", text[at])) {
            at++;
        } else {
            at += strcspn(text + at, ",:]}[{\" \t\r\n");
        }
    } while (depth > 0);
    return at;
}

/* Whether the string token text[at .. end-1], escapes and all, spells key. */
static bool token_is(const char *text, size_t at, size_t end, const char *key)
{
    bool has_failed;
    json_t *token =
        mist_json_parse(text + at, end - at, JSON_DECODE_ANY, &has_failed, NULL);
    bool is_key = json_is_string(token) && strcmp(json_string_value(token), key) == 0;

    json_decref(token);
    return is_key;
}

/*
 * From the object that begins at text[at] to its member key. *at_key becomes the place of
 * the key, the result that of the value; false when there is no such member.
 */
static bool find_member(const char *text, size_t *at, size_t *at_key, const char *key)
{
    size_t i = skip_blanks(text, *at + 1);

    while (text[i] == '"') {
        size_t end = skip_string(text, i);
        size_t value = skip_blanks(text, skip_blanks(text, end) + 1);
        if (token_is(text, i, end, key)) {
            *at_key = i;
            *at = value;
            return true;
        }
        i = skip_blanks(text, skip_value(text, value));
        if (text[i] == ',')
            i = skip_blanks(text, i + 1);
    }
    return false;
}

/* From the array that begins at text[at] to its element index. */
static size_t find_element(const char *text, size_t at, size_t index)
{
    size_t i = skip_blanks(text, at + 1);

    while (index-- > 0 && text[i] && text[i] != ']') {
        i = skip_blanks(text, skip_value(text, i));
        if (text[i] == ',')
            i = skip_blanks(text, i + 1);
    }
    return i;
}

/* The value's offset; *at_name is where to point: its key, or the value of an element. */
static size_t find_value(const struct mist_json *value, size_t *at_name)
{
    const char *text = value->doc->text;

    if (!value->parent)
        return *at_name = skip_blanks(text, 0);
    size_t ignored;
    size_t at = find_value(value->parent, &ignored);
    *at_name = at;
    if (value->key) {
        find_member(text, &at, at_name, value->key);
        return at;
    }
    return *at_name = find_element(text, at, value->index);
}

void mist_json_locate(const struct mist_json *value, long *line, long *column)
{
    const char *text = value->doc->text;
    size_t at;

    find_value(value, &at);
    *line = 1;
    *column = 1;
    for (size_t i = 0; i < at; i++) {
        if (text[i] == '\n') {
            ++*line;
            *column = 1;
        } else if (((unsigned char)text[i] & 0xc0) !=
                   0x80) { /* not inside a UTF-8 character */
            ++*column;
        }
    }
}
