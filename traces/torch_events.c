/* Events of a trace of torch.profiler. See torch_events.h. */
#include "traces/torch_events.h"

#include "core/memory.h"
#include "core/parse.h"

#include <stdlib.h>
#include <string.h>

#define READ_BYTES      ((size_t)1 << 18)
#define EVENT_BYTES_MAX ((size_t)1 << 26)
#define MAX_RANKS       (1 << 20)

enum { EVENTS_PER_UPDATE = 4096 }; /* of the progress line */

/* Of a trace's clock: a thousand years, a year. */
#define MAX_TIME_US     3.2e16
#define MAX_DURATION_US 3.2e13

static enum mist_status fail(const struct mist_torch_events *events, struct mist_err *err,
                             const char *message)
{
    return mist_err_at(err, MIST_ERR_INPUT, events->path, events->line, 0, "%s", message);
}

/* ------------------------------------------------------------------------------- text */

/* Forgets what was passed, and reads on behind the rest. */
static enum mist_status read_on(struct mist_torch_events *events, struct mist_err *err)
{
    size_t rest = events->n - events->at, got;
    size_t wanted = rest > READ_BYTES ? rest : READ_BYTES;

    if (rest > EVENT_BYTES_MAX)
        return fail(events, err, "64 MiB without an event's end, expected one before");
    if (rest > 0)
        memmove(events->text, events->text + events->at, rest);
    events->at = 0;
    events->n = rest;
    if (!MIST_RESERVE(events->text, events->capacity, rest + wanted + 1))
        return mist_err_memory(err, events->path);
    enum mist_status status =
        mist_packed_file_read(&events->file, events->text + rest, wanted, &got, err);
    events->n += got;
    events->text[events->n] = '\0';
    events->is_at_end = got < wanted;
    return status;
}

/* To byte at, counting lines. */
static void go_to(struct mist_torch_events *events, size_t at)
{
    for (; events->at < at; events->at++)
        events->line += events->text[events->at] == '\n';
}

/* *next: what stands behind blanks; '\0' behind the end. */
static enum mist_status skip_blanks(struct mist_torch_events *events, char *next,
                                    struct mist_err *err)
{
    for (;;) {
        while (events->at < events->n && events->text[events->at] != '\0' &&
               strchr(" \t\r\n", events->text[events->at]))
            go_to(events, events->at + 1);
        if (events->at < events->n || events->is_at_end)
            break;
        enum mist_status status = read_on(events, err);
        if (status != MIST_OK)
            return status;
    }
    *next = events->text[events->at];
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- header */

static enum mist_status read_members(const struct mist_json *root,
                                     struct mist_torch_header *header,
                                     struct mist_err *err)
{
    struct mist_json job = {0};
    enum mist_status status =
        mist_json_get_int64(root, "baseTimeNanoseconds", MIST_JSON_OPTIONAL, 0, INT64_MAX,
                            &header->base_ns, err);

    if (status == MIST_OK)
        status =
            mist_json_get_object(root, "distributedInfo", MIST_JSON_OPTIONAL, &job, err);
    if (status != MIST_OK || !job.value)
        return status;
    status = mist_json_get_int64(&job, "rank", MIST_JSON_OPTIONAL, 0, MAX_RANKS - 1,
                                 &header->rank, err);
    return status == MIST_OK ? mist_json_get_int64(&job, "world_size", MIST_JSON_OPTIONAL,
                                                   1, MAX_RANKS, &header->n_ranks, err)
                             : status;
}

/* The first n bytes, up to "traceEvents", are an object if it is ended there. */
static enum mist_status read_header(struct mist_torch_events *events, size_t n,
                                    struct mist_err *err)
{
    struct mist_json_doc doc = {0};
    char *text = malloc(n + 1);

    if (!text)
        return mist_err_memory(err, events->path);
    memcpy(text, events->text, n);
    while (n > 0 && strchr(" \t\r\n,", text[n - 1]))
        n--;
    text[n++] = '}';
    enum mist_status status =
        mist_json_load_text(&doc, events->path, text, n, MIST_JSON_FOREIGN, err);
    if (status == MIST_OK) {
        struct mist_json root = mist_json_root(&doc);
        status = read_members(&root, &events->header, err);
    }
    mist_json_fini(&doc);
    free(text);
    return status;
}

enum mist_status mist_torch_events_open(struct mist_torch_events *events,
                                        const char *path, struct mist_err *err)
{
    static const char key[] = "\"traceEvents\"";
    const char *found = NULL;
    char next;

    *events = (struct mist_torch_events){.path = path, .header.rank = -1, .line = 1};
    enum mist_status status = mist_packed_file_open(&events->file, path, err);
    while (status == MIST_OK && !found && !events->is_at_end) {
        status = read_on(events, err);
        found = status == MIST_OK ? strstr(events->text, key) : NULL;
    }
    if (status == MIST_OK && !found)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "has no \"traceEvents\", expected a Chrome trace as "
                           "torch.profiler's export_chrome_trace() writes it");
    if (status == MIST_OK)
        status = read_header(events, (size_t)(found - events->text), err);
    if (status != MIST_OK)
        return status;
    go_to(events, (size_t)(found - events->text) + strlen(key));
    for (const char *c = ":["; *c; c++) {
        status = skip_blanks(events, &next, err);
        if (status == MIST_OK && next != *c)
            status = fail(events, err, "\"traceEvents\" is no list of events");
        if (status != MIST_OK)
            return status;
        go_to(events, events->at + 1);
    }
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- events */

/* Bytes of the object that begins at the place; 0: it does not end in text. */
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

/* The same; 0: it does not end. */
static enum mist_status find_object(struct mist_torch_events *events, size_t *n,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    *n = object_bytes(events);
    while (status == MIST_OK && *n == 0 && !events->is_at_end) {
        status = read_on(events, err);
        *n = status == MIST_OK ? object_bytes(events) : 0;
    }
    return status;
}

/* Makes the place of an error inside of the last event, which counts from its begin, that
 * in the file. */
static void locate(const struct mist_torch_events *events, struct mist_err *err)
{
    if (!err)
        return;
    err->line = events->event_line + (err->line > 0 ? err->line - 1 : 0);
    err->column = 0;
}

/* The next event, an object, into doc (the caller's to fini); doc->root NULL: there are no
 * more. MIST_ERR_INPUT with file:line. */
static enum mist_status next_event(struct mist_torch_events *events,
                                   struct mist_json_doc *doc, struct mist_err *err)
{
    char next = '\0';
    size_t n = 0;

    *doc = (struct mist_json_doc){0};
    enum mist_status status = skip_blanks(events, &next, err);
    if (status != MIST_OK || next == ']')
        return status;
    if (events->has_first && next != ',')
        return fail(
            events, err,
            "expected ',' or ']' behind an event: the file was cut, or is no JSON");
    if (events->has_first) {
        go_to(events, events->at + 1);
        status = skip_blanks(events, &next, err);
    }
    if (status == MIST_OK && next == '{')
        status = find_object(events, &n, err);
    if (status == MIST_OK && n == 0)
        status = fail(events, err,
                      next == '{' ? "the file ends inside of this event: it was cut"
                                  : "expected an event, which begins with '{'");
    if (status != MIST_OK)
        return status;
    events->has_first = true;
    events->event_line = events->line;
    status = mist_json_load_text(doc, events->path, events->text + events->at, n,
                                 MIST_JSON_FOREIGN, err);
    locate(events, status == MIST_ERR_INPUT ? err : NULL);
    go_to(events, events->at + n);
    return status;
}

/* Hands an event to fn if it took time and has args. */
static enum mist_status read_event(const struct mist_json_doc *doc, long line,
                                   mist_torch_event_fn *fn, void *context,
                                   struct mist_err *err)
{
    struct mist_torch_event event = {
        .object = mist_json_root(doc), .category = "", .name = "", .line = line};
    const struct mist_json *object = &event.object;
    const char *phase = "";
    enum mist_status status =
        mist_json_get_string(object, "ph", MIST_JSON_OPTIONAL, &phase, err);

    if (status == MIST_OK)
        status =
            mist_json_get_string(object, "cat", MIST_JSON_OPTIONAL, &event.category, err);
    if (status != MIST_OK || strcmp(phase, "X") != 0)
        return status;
    status = mist_json_get_string(object, "name", MIST_JSON_OPTIONAL, &event.name, err);
    if (status == MIST_OK)
        status =
            mist_json_get_object(object, "args", MIST_JSON_OPTIONAL, &event.args, err);
    return status == MIST_OK && event.args.value ? fn(context, &event, err) : status;
}

enum mist_status mist_torch_events_visit(struct mist_torch_events *events,
                                         mist_torch_event_fn *fn, void *context,
                                         struct mist_progress *progress,
                                         struct mist_err *err)
{
    struct mist_json_doc doc = {0};
    enum mist_status status = MIST_OK;

    for (int64_t n = 1; status == MIST_OK; n++) {
        status = next_event(events, &doc, err);
        if (status != MIST_OK || !doc.root)
            break;
        status = read_event(&doc, events->event_line, fn, context, err);
        if (status == MIST_ERR_INPUT) {
            mist_err_locate(err, events->path, 0);
            locate(events, err);
        }
        mist_json_fini(&doc);
        if (progress && n % EVENTS_PER_UPDATE == 0)
            mist_progress_update(progress, mist_packed_file_done(&events->file),
                                 events->file.n_bytes);
    }
    return status;
}

void mist_torch_events_close(struct mist_torch_events *events)
{
    mist_packed_file_close(&events->file);
    free(events->text);
    events->text = NULL;
}

static enum mist_status get_us(const struct mist_json *event, const char *key,
                               double max_us, double *out, struct mist_err *err)
{
    const char *text = mist_torch_get_text(event, key);
    double us;

    if (!*text)
        return mist_json_get_double(event, key, MIST_JSON_REQUIRED, 0, max_us, out, err);
    if (mist_parse_double(text, &us, NULL) != MIST_OK || us < 0 || us > max_us)
        return mist_json_fail(event, MIST_ERR_INPUT, err,
                              "%s: expected a time in us, found \"%.40s\"", key, text);
    *out = us;
    return MIST_OK;
}

enum mist_status mist_torch_get_ts_us(const struct mist_json *event, double *out,
                                      struct mist_err *err)
{
    return get_us(event, "ts", MAX_TIME_US, out, err);
}

enum mist_status mist_torch_get_dur_us(const struct mist_json *event, double *out,
                                       struct mist_err *err)
{
    return get_us(event, "dur", MAX_DURATION_US, out, err);
}

int64_t mist_torch_get_id(const struct mist_json *args, const char *key)
{
    int64_t id = -1;

    return mist_json_get_int64(args, key, MIST_JSON_REQUIRED, 0, INT64_MAX, &id, NULL) ==
                   MIST_OK
               ? id
               : -1;
}

const char *mist_torch_get_text(const struct mist_json *args, const char *key)
{
    const char *text = "";

    return mist_json_get_string(args, key, MIST_JSON_REQUIRED, &text, NULL) == MIST_OK
               ? text
               : "";
}
