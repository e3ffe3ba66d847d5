/* Finds the place of a value in the text of a JSON document. Private to core/json. */
#ifndef MIST_CORE_JSON_LOCATE_H
#define MIST_CORE_JSON_LOCATE_H

#include "core/json.h"

/* 1-based line and column (in characters) of value:
 * of its key when it is a member of an object. */
void mist_json_locate(const struct mist_json *value, long *line, long *column);

#endif
