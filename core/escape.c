/* Texts of others as a terminal may show them. See escape.h. */
#include "core/escape.h"

#include <stdint.h>
#include <string.h>

/* The character that text begins with and its length in bytes; 0: no UTF-8. RFC 3629:
 * neither longer than need be, nor a surrogate, nor beyond 10ffff. */
static size_t read_character(const unsigned char *text, uint32_t *out)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t n = text[0] < 0x80             ? 1
               : (text[0] & 0xe0) == 0xc0 ? 2
               : (text[0] & 0xf0) == 0xe0 ? 3
               : (text[0] & 0xf8) == 0xf0 ? 4
                                          : 0;
    uint32_t value = n == 1 ? text[0] : n == 0 ? 0 : text[0] & (0xffu >> (n + 1));

    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80) /* the end mark, too */
            return 0;
        value = value << 6 | (text[i] & 0x3f);
    }
    if (n == 0 || value < least[n] || value > 0x10ffff ||
        (value >= 0xd800 && value <= 0xdfff))
        return 0;
    *out = value;
    return n;
}

/* C0, DEL and C1; marks, embeddings and isolates of direction; separators of lines. */
static bool is_control(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || (c >= 0x200e && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069) || c == 0x61c;
}

size_t mist_escape_first(const char *text, char out[MIST_ESCAPED_FIRST_BYTES])
{
    const unsigned char *bytes = (const unsigned char *)text;
    uint32_t c = 0;
    size_t n = read_character(bytes, &c);

    if (n == 0)
        snprintf(out, MIST_ESCAPED_FIRST_BYTES, "\\x%02x", bytes[0]);
    else if (c == '\n' || c == '\r' || c == '\t')
        snprintf(out, MIST_ESCAPED_FIRST_BYTES, "\\%c",
                 c == '\n'   ? 'n'
                 : c == '\r' ? 'r'
                             : 't');
    else if (is_control(c) && c < 0x80)
        snprintf(out, MIST_ESCAPED_FIRST_BYTES, "\\x%02x", (unsigned)c);
    else if (is_control(c))
        snprintf(out, MIST_ESCAPED_FIRST_BYTES, "\\u%04x", (unsigned)c & 0xffffu);
    else
        snprintf(out, MIST_ESCAPED_FIRST_BYTES, "%.*s", (int)n, text);
    return n > 0 ? n : 1;
}

bool mist_text_is_utf8(const char *text)
{
    uint32_t c;

    while (*text) {
        size_t n = read_character((const unsigned char *)text, &c);
        if (n == 0)
            return false;
        text += n;
    }
    return true;
}

char *mist_escape(const char *text, char *out)
{
    char *at = out;

    for (char piece[MIST_ESCAPED_FIRST_BYTES]; *text;) {
        text += mist_escape_first(text, piece);
        size_t n = strlen(piece);
        memcpy(at, piece, n);
        at += n;
    }
    *at = '\0';
    return out;
}

void mist_escape_print(const char *text, FILE *stream)
{
    for (char piece[MIST_ESCAPED_FIRST_BYTES]; *text;) {
        text += mist_escape_first(text, piece);
        fputs(piece, stream);
    }
}
