/*
 * What a tool says beside its results and its errors: notes and warnings, one line each,
 * on stderr. --quiet silences all of it, here and nowhere else. Control characters are
 * escaped (escape.h), as they are in errors (mist_err_print).
 */
#ifndef MIST_CORE_MESSAGE_H
#define MIST_CORE_MESSAGE_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

struct mist_messages {
    const char *tool; /* borrowed; "mist-sim" */
    FILE *stream;     /* borrowed; NULL: nothing is said */
};

/* To stderr, or nowhere. */
struct mist_messages mist_messages_to_stderr(const char *tool, bool is_quiet);

/* "tool: text" and a newline. Texts beyond 2 KiB are cut. */
void mist_message(const struct mist_messages *to, const char *format, ...)
    MIST_PRINTF(2, 3);

/* The same with a place, as mist_err_print() prints it. */
void mist_message_err(const struct mist_messages *to, const struct mist_err *err);

#endif
