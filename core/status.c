/* Status codes and error details. See status.h. */
#include "core/status.h"

#include "core/escape.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

MIST_PRINTF(5, 0)
static void fill(struct mist_err *err, const char *path, long line, long column,
                 const char *format, va_list args)
{
    if (!err)
        return;
    snprintf(err->path, sizeof err->path, "%s", path ? path : "");
    err->line = line;
    err->column = column;
    vsnprintf(err->message, sizeof err->message, format, args);
}

enum mist_status mist_err_set(struct mist_err *err, enum mist_status status,
                              const char *format, ...)
{
    va_list args;

    va_start(args, format);
    fill(err, NULL, 0, 0, format, args);
    va_end(args);
    return status;
}

enum mist_status mist_err_at(struct mist_err *err, enum mist_status status,
                             const char *path, long line, long column, const char *format,
                             ...)
{
    va_list args;

    va_start(args, format);
    fill(err, path, line, column, format, args);
    va_end(args);
    return status;
}

enum mist_status mist_err_memory(struct mist_err *err, const char *path)
{
    return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
}

enum mist_status mist_err_io(struct mist_err *err, const char *path, const char *verb,
                             int code)
{
    return mist_err_at(err, code == ENOMEM ? MIST_ERR_MEMORY : MIST_ERR_IO, path, 0, 0,
                       "can't %s: %s", verb, strerror(code));
}

void mist_err_locate(struct mist_err *err, const char *path, long line)
{
    if (!err || !path || err->path[0])
        return;
    snprintf(err->path, sizeof err->path, "%s", path);
    err->line = line;
}

int mist_exit_code(enum mist_status status)
{
    switch (status) {
    case MIST_OK:
        return 0;
    case MIST_ERR_USAGE:
        return 2;
    case MIST_ERR_INPUT:
    case MIST_ERR_RANGE:
        return 3;
    case MIST_ERR_NO_PLAN:
        return 4;
    case MIST_ERR_IO:
        return 5;
    case MIST_ERR_VERIFY:
        return 6;
    case MIST_ERR_MEMORY:
    case MIST_ERR_RUN:
        break;
    }
    return 1;
}

/* One write: lines of several ranks stay apart. */
void mist_err_print(const struct mist_err *err, const char *tool, FILE *stream)
{
    char line[MIST_ESCAPED_BYTES(sizeof err->path + sizeof err->message) + 128];
    char *at = line + snprintf(line, 64, "%.60s: ", tool);

    if (err->path[0]) {
        mist_escape(err->path, at);
        at += strlen(at);
        at += sprintf(at, ":");
        if (err->line > 0)
            at += sprintf(at, "%ld:", err->line);
        if (err->line > 0 && err->column > 0)
            at += sprintf(at, "%ld:", err->column);
        at += sprintf(at, " ");
    }
    mist_escape(err->message, at);
    strcat(at, "\n");
    fputs(line, stream);
}
