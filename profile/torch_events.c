/* Events of a trace of torch.profiler. See torch_events.h. */
#include "profile/torch_events.h"

#include "core/atomic_file.h"

#include <stdlib.h>
#include <string.h>

#define TRACE_BYTES_MAX ((size_t)1 << 30)

static enum mist_status fail(const struct mist_torch_events *events, struct mist_err *err,
                             const char *message)
{
    return mist_err_at(err, MIST_ERR_INPUT, events->path, events->line, 0, "%s", message);
}

/* To byte at, counting lines. */
static void go_to(struct mist_torch_events *events, size_t at)
{
    for (; events->at < at; events->at++)
        events->line += events->text[events->at] == '\n';
}

static char skip_blanks(struct mist_torch_events *events)
{
    while (events->at < events->n && events->text[events->at] != '\0' &&
           strchr(" \t\r\n", events->text[events->at]))
        go_to(events, events->at + 1);
    return events->text[events->at]; /* '\0' behind the end */
}

enum mist_status mist_torch_events_open(struct mist_torch_events *events,
                                        const char *path, struct mist_err *err)
{
    static const char key[] = "\"traceEvents\"";

    *events = (struct mist_torch_events){.path = path};
    enum mist_status status =
        mist_file_read_all(path, TRACE_BYTES_MAX, &events->text, &events->n, err);
    if (status != MIST_OK)
        return status;
    const char *found = strstr(events->text, key);
    if (!found)
        return fail(events, err,
                    "has no \"traceEvents\", expected a Chrome trace as torch.profiler's "
                    "export_chrome_trace() writes it");
    events->line = 1;
    go_to(events, (size_t)(found - events->text) + strlen(key));
    for (const char *c = ":["; *c; c++) {
        if (skip_blanks(events) != *c)
            return fail(events, err, "\"traceEvents\" is no list of events");
        go_to(events, events->at + 1);
    }
    return MIST_OK;
}

/* Bytes of the object that begins at the place; 0: it does not end. */
static size_t object_bytes(const struct mist_torch_events *events)
{
    const char *text = events->text;
    bool is_in_string = false;
    size_t depth = 0;

    for (size_t i = events->at; i < events->n; i++) {
        if (text[i] == '\\' && is_in_string)
            i++;
        else if (text[i] == '"')
            is_in_string = !is_in_string;
        else if (text[i] == '{' && !is_in_string)
            depth++;
        else if (text[i] == '}' && !is_in_string && --depth == 0)
            return i + 1 - events->at;
    }
    return 0;
}

enum mist_status mist_torch_events_next(struct mist_torch_events *events,
                                        struct mist_json_doc *doc, struct mist_err *err)
{
    char next = skip_blanks(events);

    *doc = (struct mist_json_doc){0};
    if (next == ']')
        return MIST_OK;
    if (events->has_first && next == ',') {
        go_to(events, events->at + 1);
        next = skip_blanks(events);
    } else if (events->has_first) {
        return fail(
            events, err,
            "expected ',' or ']' behind an event: the file was cut, or is no JSON");
    }
    size_t n = next == '{' ? object_bytes(events) : 0;
    if (n == 0)
        return fail(events, err,
                    next == '{' ? "the file ends inside of this event: it was cut"
                                : "expected an event, which begins with '{'");
    events->has_first = true;
    events->event_line = events->line;
    enum mist_status status = mist_json_load_text(
        doc, events->path, events->text + events->at, n, MIST_JSON_FOREIGN, err);
    mist_torch_events_locate(events, status == MIST_ERR_INPUT ? err : NULL);
    go_to(events, events->at + n);
    return status;
}

void mist_torch_events_locate(const struct mist_torch_events *events,
                              struct mist_err *err)
{
    if (!err)
        return;
    err->line = events->event_line + (err->line > 0 ? err->line - 1 : 0);
    err->column = 0;
}

void mist_torch_events_close(struct mist_torch_events *events)
{
    free(events->text);
    events->text = NULL;
}
