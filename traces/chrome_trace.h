/*
 * Writes a timeline as a Chrome trace (JSON), for Perfetto and chrome://tracing.
 *
 * One complete event ("ph":"X") per task: process = rank, thread = stream, ts and dur in
 * microseconds, layer, micro-batch, iteration, task and bytes as arguments; and one
 * counter event of the live device memory where it is known.
 */
#ifndef MIST_TRACES_CHROME_TRACE_H
#define MIST_TRACES_CHROME_TRACE_H

#include "core/status.h"
#include "traces/timeline.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * Writes to a stream, which stays open; whether it could be written shows when it is
 * flushed. timeline and stream are borrowed. MIST_OK or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_chrome_trace_write(const struct mist_timeline *timeline, FILE *stream,
                        struct mist_err *err);

/*
 * The same to a file.
 *
 * timeline  borrowed; must have passed mist_timeline_check().
 * path      written atomically; an existing file is an error unless overwrite.
 *
 * MIST_OK, MIST_ERR_IO or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_chrome_trace_save(const struct mist_timeline *timeline, const char *path,
                       bool overwrite, struct mist_err *err);

#endif
