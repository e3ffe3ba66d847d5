/* What core/json_*.c share: parsing, and the place of a value in the text. */
#ifndef MIST_CORE_JSON_LOCATE_H
#define MIST_CORE_JSON_LOCATE_H

#include "core/json.h"

/* json_loadb(); NULL and *has_failed also for text of which Jansson has lost a part for
 * want of memory. */
json_t *mist_json_parse(const char *text, size_t n, size_t flags, bool *has_failed,
                        json_error_t *error);

/* 1-based line and column (in characters) of value:
 * of its key when it is a member of an object. */
void mist_json_locate(const struct mist_json *value, long *line, long *column);

#endif
