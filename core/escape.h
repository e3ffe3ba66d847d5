/*
 * Texts of others (names of files, of operators, of models) as a terminal may show them.
 *
 * What would move the cursor, change colours, end the line or turn the reading direction
 * is spelt out: \n, \r, \t, \x1b; \u0085 for such characters beyond ASCII; \xff for bytes
 * that are no UTF-8. All other text stays as it is, backslashes included, so that
 * escaping twice is escaping once.
 */
#ifndef MIST_CORE_ESCAPE_H
#define MIST_CORE_ESCAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Bytes that n bytes of text take at most, without the end mark. */
#define MIST_ESCAPED_BYTES(n) (4 * (n))

/* Writes text to out[MIST_ESCAPED_BYTES(strlen(text)) + 1]; returns out. */
char *mist_escape(const char *text, char *out);

bool mist_text_is_utf8(const char *text);

/* What is shown for the first character of text (not empty); returns its length. */
#define MIST_ESCAPED_FIRST_BYTES 8 /* "\u202e" with the end mark */
size_t mist_escape_first(const char *text, char out[MIST_ESCAPED_FIRST_BYTES]);

/* Prints text. */
void mist_escape_print(const char *text, FILE *stream);

#endif
