/*
 * The events of a Chrome trace as torch.profiler writes it, one after the other, packed by
 * gzip or not: traces are too large to stand in memory, as text or as values.
 *
 *     status = mist_torch_events_open(&events, path, err);
 *     if (!status)
 *         status = mist_torch_events_visit(&events, read_event, &reading, NULL, err);
 *     mist_torch_events_close(&events);
 */
#ifndef MIST_TRACES_TORCH_EVENTS_H
#define MIST_TRACES_TORCH_EVENTS_H

#include "core/json.h"
#include "core/packed_file.h"
#include "core/progress.h"

/* What stands before the events. */
struct mist_torch_header {
    int64_t rank;    /* -1: not said */
    int64_t n_ranks; /* of the job; 0: not said */
    int64_t base_ns; /* the clock's time where the times of events are 0 */
};

struct mist_torch_events {
    const char *path; /* borrowed */
    struct mist_torch_header header;
    struct mist_packed_file file;
    char *text;      /* owned; what has been read and not yet been passed */
    size_t capacity; /* of text */
    size_t n, at;    /* bytes of text; where the next event is looked for */
    bool is_at_end;  /* there is nothing behind text */
    long line;       /* where at is */
    long event_line; /* where the last event begins */
    bool has_first;  /* an event was read: a comma stands before the next */
};

/* Goes to the first event. MIST_ERR_INPUT: no "traceEvents", or what stands before them is
 * no JSON; MIST_ERR_IO, MIST_ERR_MEMORY. close also after a failure. */
MIST_MUST_CHECK enum mist_status mist_torch_events_open(struct mist_torch_events *events,
                                                        const char *path,
                                                        struct mist_err *err);

/* Something that took time. */
struct mist_torch_event {
    struct mist_json object, args;
    const char *category, *name; /* "": it has none */
    long line;                   /* where it begins */
};
typedef enum mist_status mist_torch_event_fn(void *context,
                                             const struct mist_torch_event *event,
                                             struct mist_err *err);

/* Calls fn for each event that took time and has args, until one fails. progress: NULL or
 * the caller's. MIST_ERR_INPUT, also of fn, gets its file:line. */
MIST_MUST_CHECK enum mist_status mist_torch_events_visit(struct mist_torch_events *events,
                                                         mist_torch_event_fn *fn,
                                                         void *context,
                                                         struct mist_progress *progress,
                                                         struct mist_err *err);

void mist_torch_events_close(struct mist_torch_events *events);

/* An event's "ts" or "dur", in us, a number or the text of one. MIST_ERR_INPUT: none, or one
 * that can't be true. */
MIST_MUST_CHECK enum mist_status mist_torch_get_ts_us(const struct mist_json *event,
                                                      double *out, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_torch_get_dur_us(const struct mist_json *event,
                                                       double *out, struct mist_err *err);

/* An id in an event's args, such as the "correlation" that a call shares with what it
 * launched; -1: the event has none. */
int64_t mist_torch_get_id(const struct mist_json *args, const char *key);

/* A text there; "": the event has none. */
const char *mist_torch_get_text(const struct mist_json *args, const char *key);

#endif
