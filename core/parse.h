/*
 * Strict numbers and units in text, and their friendly spelling for people.
 *
 * strtod accepts 0x10, nan, inf and leading blanks, and callers forget trailing text;
 * these parsers accept decimal numbers only, all of the text, or nothing. A number and
 * its unit may have one blank between them. On failure out is untouched and the message
 * names the text and what was expected. All return MIST_OK or MIST_ERR_INPUT (no number,
 * wrong unit, does not fit).
 *
 * Left out: locales (the C locale is assumed), hexadecimal, digit separators.
 */
#ifndef MIST_CORE_PARSE_H
#define MIST_CORE_PARSE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "42", "-7". */
enum mist_status mist_parse_int64(const char *text, int64_t *out,
                                  struct mist_err *err) MIST_MUST_CHECK;

/* "1", "-0.5", "2e-3"; a digit on both sides of a point; finite. */
enum mist_status mist_parse_double(const char *text, double *out,
                                   struct mist_err *err) MIST_MUST_CHECK;

/*
 * "64", "512MiB", "1.5GB", "80 GiB": KiB = 2^10, KB = kB = 1e3, up to T; >= 0. Fractions
 * of a byte are dropped.
 */
enum mist_status mist_parse_bytes(const char *text, int64_t *out_bytes,
                                  struct mist_err *err) MIST_MUST_CHECK;

/* Refuses a memory below 1 MiB, which lacks its unit: 80 is 80 bytes. what: "--limit". */
enum mist_status mist_check_memory_bytes(const char *what, int64_t bytes,
                                         enum mist_status refusal,
                                         struct mist_err *err) MIST_MUST_CHECK;

/* "3ms", "2us", "1.5s", "10ns", "5min", "2h"; >= 0; the unit is required. */
enum mist_status mist_parse_time_s(const char *text, double *out_s,
                                   struct mist_err *err) MIST_MUST_CHECK;

/* "400Gb/s" (bits), "25GB/s", "8GiB/s"; >= 0; the unit is required. */
enum mist_status mist_parse_rate_bytes_per_s(const char *text, double *out_bytes_per_s,
                                             struct mist_err *err) MIST_MUST_CHECK;

/* "2x", "0.7x": a factor >= 0. */
enum mist_status mist_parse_factor(const char *text, double *out,
                                   struct mist_err *err) MIST_MUST_CHECK;

/* "2%", "0.02": a part, >= 0; "100%" is 1, and more is not refused. */
enum mist_status mist_parse_frac(const char *text, double *out,
                                 struct mist_err *err) MIST_MUST_CHECK;

/* Whether text begins with the other; *rest is what comes behind it then. */
bool mist_text_begins(const char *text, const char *with, const char **rest);

/* The place of a word in a NULL-terminated list; -1: it is none of them. */
int mist_word_find(const char *const *words, const char *word);

/* Appends to a text in a buffer of size bytes, behind a separator if there is text; what has
 * no room is cut. Returns text. */
char *mist_text_add(char *text, size_t size, const char *separator, const char *format,
                    ...) MIST_PRINTF(4, 5);

/* Fills buffer (size bytes) with as many of them as it has room for, "a, b, c"; returns it. */
char *mist_words_list(const char *const *words, char *buffer, size_t size);

/* Enough for every formatter below. */
#define MIST_FORMAT_BYTES 40

/*
 * For people: three significant digits and a unit. They fill buffer (size bytes, always
 * terminated) and return it, so that a call can stand in a printf argument.
 */
char *mist_format_bytes(char *buffer, size_t size,
                        int64_t bytes); /* "91.2 GiB", "17 B" */
char *mist_format_time_s(char *buffer, size_t size,
                         double time_s); /* "3.20 ms", "2 h 05 min" */
char *mist_format_count(char *buffer, size_t size, double count); /* "6.74 G", "512" */

/* "-4.2 %", or "+4.2 %" if has_sign; what rounds to zero has no sign: "0.0 %". */
char *mist_format_percent(char *buffer, size_t size, double percent, int n_decimals,
                          bool has_sign);

/* For machines: the shortest of %.15g, %.16g and %.17g
 * that reads back as the same double. */
char *mist_format_double(char *buffer, size_t size, double value);

#endif
