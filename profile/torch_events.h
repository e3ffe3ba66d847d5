/*
 * The events of a Chrome trace as torch.profiler writes it, one after the other: traces are
 * too large to stand in memory as values.
 *
 *     mist_torch_events_open(&events, path, err);
 *     while (!status && !(status = mist_torch_events_next(&events, &doc, err)) && doc.root)
 *         ... mist_json_fini(&doc);
 *     mist_torch_events_close(&events);
 */
#ifndef MIST_PROFILE_TORCH_EVENTS_H
#define MIST_PROFILE_TORCH_EVENTS_H

#include "core/json.h"

struct mist_torch_events {
    const char *path; /* borrowed */
    char *text;       /* owned */
    size_t n, at;     /* bytes; where the next event is looked for */
    long line;        /* there */
    long event_line;  /* where the last event begins */
    bool has_first;   /* an event was read: a comma stands before the next */
};

/* Reads the file. MIST_ERR_INPUT: compressed, or no "traceEvents"; MIST_ERR_IO,
 * MIST_ERR_MEMORY. close also after a failure. */
MIST_MUST_CHECK enum mist_status mist_torch_events_open(struct mist_torch_events *events,
                                                        const char *path,
                                                        struct mist_err *err);

/* The next event, an object, into doc (the caller's to fini); doc->root NULL: there are no
 * more. MIST_ERR_INPUT with file:line. */
MIST_MUST_CHECK enum mist_status mist_torch_events_next(struct mist_torch_events *events,
                                                        struct mist_json_doc *doc,
                                                        struct mist_err *err);

/* Makes the place of an error inside of the last event, which counts from its begin, that
 * in the file. */
void mist_torch_events_locate(const struct mist_torch_events *events,
                              struct mist_err *err);

void mist_torch_events_close(struct mist_torch_events *events);

#endif
