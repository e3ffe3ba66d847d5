/* Status codes and error details. See status.h. */
#include "core/status.h"

#include "core/escape.h"

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

void mist_err_locate(struct mist_err *err, const char *path, long line)
{
    if (!err || err->path[0])
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

void mist_err_print(const struct mist_err *err, const char *tool, FILE *stream)
{
    fprintf(stream, "%s: ", tool);
    mist_escape_print(err->path, stream);
    if (err->path[0])
        fputc(':', stream);
    if (err->path[0] && err->line > 0)
        fprintf(stream, "%ld:", err->line);
    if (err->path[0] && err->line > 0 && err->column > 0)
        fprintf(stream, "%ld:", err->column);
    fputs(err->path[0] ? " " : "", stream);
    mist_escape_print(err->message, stream);
    fputc('\n', stream);
}
