/* Notes and warnings of tools. See message.h. */
#include "core/message.h"

#include "core/escape.h"

#include <stdarg.h>
#include <string.h>

struct mist_messages mist_messages_to_stderr(const char *tool, bool is_quiet)
{
    return (struct mist_messages){.tool = tool, .stream = is_quiet ? NULL : stderr};
}

void mist_message(const struct mist_messages *to, const char *format, ...)
{
    char text[2048], line[MIST_ESCAPED_BYTES(sizeof text) + 64];
    va_list args;

    if (!to->stream)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    char *at = line + snprintf(line, 64, "%.60s: ", to->tool);
    strcat(mist_escape(text, at), "\n");
    fputs(line, to->stream); /* one write: lines of several ranks stay apart */
}

void mist_message_err(const struct mist_messages *to, const struct mist_err *err)
{
    if (to->stream)
        mist_err_print(err, to->tool, to->stream);
}
