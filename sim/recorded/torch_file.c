/* A rank's trace. See torch_file.h. */
#include "sim/recorded/torch_file.h"

#include "core/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reading {
    struct mist_torch_trace *trace;
    struct mist_torch_texts *texts;
    const char *path;
    struct mist_err *err;
};

/* ------------------------------------------------------------------------------ parts */

/* The number of text; -1: no memory. */
static int32_t enter_text(struct mist_torch_texts *texts, const char *text)
{
    for (size_t i = 0; i < texts->n; i++)
        if (strcmp(texts->items[i], text) == 0)
            return (int32_t)i;
    if (!MIST_RESERVE(texts->items, texts->capacity, texts->n + 1))
        return -1;
    texts->items[texts->n] = strdup(text);
    return texts->items[texts->n] ? (int32_t)texts->n++ : -1;
}

/* -1 as the group where the trace does not name it. */
static enum mist_status read_group(struct reading *at, const struct mist_json *args,
                                   int32_t *out)
{
    const char *name = mist_torch_get_text(args, "Process Group Name");
    const char *ranks = mist_torch_get_text(args, "Process Group Ranks");
    size_t n = strlen(name) + strlen(ranks) + 2;

    if (!*name && !*ranks)
        return MIST_OK;
    char *text = malloc(n);
    if (text) {
        snprintf(text, n, "%s %s", name, ranks);
        *out = enter_text(at->texts, text);
        free(text);
    }
    return *out >= 0 ? MIST_OK : mist_err_memory(at->err, at->path);
}

/* is_required: what has no duration is refused, else it took no time. */
static enum mist_status read_times(struct reading *at, const struct mist_json *event,
                                   bool is_required, double *start_us, double *end_us)
{
    double duration_us = 0;
    enum mist_status status = mist_torch_get_ts_us(event, start_us, at->err);

    if (status == MIST_OK && (is_required || json_object_get(event->value, "dur")))
        status = mist_torch_get_dur_us(event, &duration_us, at->err);
    *end_us = *start_us + duration_us;
    return status;
}

static enum mist_status read_thread(struct reading *at, const struct mist_json *event,
                                    int64_t *out)
{
    return mist_json_get_int64(event, "tid", MIST_JSON_REQUIRED, INT64_MIN, INT64_MAX,
                               out, at->err);
}

static enum mist_status read_call(struct reading *at, const struct mist_json *event,
                                  const char *name, const struct mist_json *args)
{
    struct mist_torch_trace *trace = at->trace;
    struct mist_torch_call call = {.kind = mist_torch_call_kind_of(name),
                                   .correlation = mist_torch_get_id(args, "correlation")};

    if (call.kind == MIST_TORCH_CALL_NONE)
        return MIST_OK;
    enum mist_status status = read_thread(at, event, &call.thread);
    if (status == MIST_OK)
        status = read_times(at, event, false, &call.start_us, &call.end_us);
    if (status != MIST_OK)
        return status;
    return MIST_APPEND(trace->calls, trace->calls_capacity, trace->n_calls, call)
               ? MIST_OK
               : mist_err_memory(at->err, at->path);
}

static enum mist_status read_work(struct reading *at, const struct mist_json *event,
                                  const char *name, const struct mist_json *args)
{
    struct mist_torch_trace *trace = at->trace;
    struct mist_torch_work work = {.kind = (int32_t)mist_torch_kind_of(name),
                                   .stream = mist_torch_get_id(args, "stream"),
                                   .correlation = mist_torch_get_id(args, "correlation"),
                                   .group = -1};
    enum mist_status status = read_times(at, event, true, &work.start_us, &work.end_us);

    if (status == MIST_OK && work.stream < 0)
        status = mist_json_fail(event, MIST_ERR_INPUT, at->err,
                                "%.60s has no \"stream\" among its args", name);
    if (status == MIST_OK && mist_torch_kind_is_between_ranks(work.kind))
        status = read_group(at, args, &work.group);
    if (status != MIST_OK)
        return status;
    return MIST_APPEND(trace->works, trace->works_capacity, trace->n_works, work)
               ? MIST_OK
               : mist_err_memory(at->err, at->path);
}

static enum mist_status read_sync(struct reading *at, const struct mist_json *args)
{
    struct mist_torch_trace *trace = at->trace;
    const struct mist_torch_sync sync = {
        .correlation = mist_torch_get_id(args, "correlation"),
        .stream = mist_torch_get_id(args, "stream"),
        .source = mist_torch_get_id(args, "wait_on_stream"),
        .record_correlation =
            mist_torch_get_id(args, "wait_on_cuda_event_record_corr_id"),
    };

    return MIST_APPEND(trace->syncs, trace->syncs_capacity, trace->n_syncs, sync)
               ? MIST_OK
               : mist_err_memory(at->err, at->path);
}

static enum mist_status read_span(struct reading *at, const struct mist_json *event)
{
    struct mist_torch_trace *trace = at->trace;
    struct mist_torch_span span = {0};
    enum mist_status status = read_thread(at, event, &span.thread);

    if (status == MIST_OK)
        status = read_times(at, event, false, &span.start_us, &span.end_us);
    if (status != MIST_OK)
        return status;
    return MIST_APPEND(trace->spans, trace->spans_capacity, trace->n_spans, span)
               ? MIST_OK
               : mist_err_memory(at->err, at->path);
}

/* ----------------------------------------------------------------------------- events */

static enum mist_status read_event(void *context, const struct mist_torch_event *event,
                                   struct mist_err *err)
{
    struct reading *at = context;
    const char *category = event->category, *name = event->name;

    (void)err; /* at has the same */
    if (strcmp(category, "cuda_runtime") == 0 || strcmp(category, "cuda_driver") == 0)
        return read_call(at, &event->object, name, &event->args);
    if (strcmp(category, "kernel") == 0 || strcmp(category, "gpu_memcpy") == 0 ||
        strcmp(category, "gpu_memset") == 0)
        return read_work(at, &event->object, name, &event->args);
    if (strcmp(category, "cuda_sync") == 0)
        return read_sync(at, &event->args);
    return strcmp(category, "user_annotation") == 0 && strncmp(name, "nccl:", 5) == 0
               ? read_span(at, &event->object)
               : MIST_OK;
}

enum mist_status mist_torch_trace_load(const char *path, struct mist_torch_trace *trace,
                                       struct mist_torch_texts *texts,
                                       struct mist_progress *progress,
                                       struct mist_err *err)
{
    struct reading at = {.trace = trace, .texts = texts, .path = path, .err = err};
    struct mist_torch_events events;

    *trace = (struct mist_torch_trace){0};
    enum mist_status status = mist_torch_events_open(&events, path, err);
    if (status == MIST_OK)
        status = mist_torch_events_visit(&events, read_event, &at, progress, err);
    trace->header = events.header;
    mist_torch_events_close(&events);
    if (status == MIST_OK && trace->n_works == 0)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "has nothing that ran on a device, expected a trace with "
                           "ProfilerActivity.CUDA");
    return status;
}

void mist_torch_trace_free(struct mist_torch_trace *trace)
{
    free(trace->calls);
    free(trace->works);
    free(trace->syncs);
    free(trace->spans);
    *trace = (struct mist_torch_trace){0};
}

void mist_torch_texts_free(struct mist_torch_texts *texts)
{
    for (size_t i = 0; i < texts->n; i++)
        free(texts->items[i]);
    free(texts->items);
    *texts = (struct mist_torch_texts){0};
}
