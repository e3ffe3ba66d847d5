/*
 * Timelines as Chrome traces. See chrome_trace.h.
 *
 * Format: "Trace Event Format" (Google, 2016): an object with traceEvents; "M" events
 * name processes and threads, "X" events are tasks, "C" events are counters. Events are
 * written one by one, so that a timeline of millions of tasks needs no tree in memory.
 */
#include "traces/chrome_trace.h"

#include "core/atomic_file.h"
#include "core/order.h"

#include <jansson.h>
#include <stdlib.h>

/* The stream being written and whether an event came before. */
struct event_writer {
    FILE *stream;
    bool has_events;
    bool is_out_of_memory;
};

/* Writes one event and releases it; NULL counts as out of memory. */
static void write_event(struct event_writer *writer, json_t *event)
{
    if (!event) {
        writer->is_out_of_memory = true;
        return;
    }
    fputs(writer->has_events ? ",\n" : "\n", writer->stream);
    /* A full disk shows in the stream, which the commit looks at. */
    if (json_dumpf(event, writer->stream, JSON_COMPACT | JSON_REAL_PRECISION(15)) != 0 &&
        !ferror(writer->stream))
        writer->is_out_of_memory = true;
    writer->has_events = true;
    json_decref(event);
}

/* Names rank and streams, and has viewers keep their order. */
static void write_names(struct event_writer *writer, int rank)
{
    char name[32];

    snprintf(name, sizeof name, "rank %d", rank);
    write_event(writer, json_pack("{s:s, s:s, s:i, s:{s:s}}", "ph", "M", "name",
                                  "process_name", "pid", rank, "args", "name", name));
    write_event(writer,
                json_pack("{s:s, s:s, s:i, s:{s:i}}", "ph", "M", "name",
                          "process_sort_index", "pid", rank, "args", "sort_index", rank));
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        write_event(writer, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name",
                                      "thread_name", "pid", rank, "tid", i, "args",
                                      "name", mist_stream_name((enum mist_stream)i)));
        write_event(writer, json_pack("{s:s, s:s, s:i, s:i, s:{s:i}}", "ph", "M", "name",
                                      "thread_sort_index", "pid", rank, "tid", i, "args",
                                      "sort_index", i));
    }
}

static void write_task(struct event_writer *writer, const struct mist_timeline_row *row)
{
    write_event(
        writer,
        json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:f, s:{s:i, s:i, s:i, s:I, s:I}}",
                  "ph", "X", "name", mist_task_kind_name(row->kind), "cat",
                  mist_stream_name(row->stream), "pid", row->rank, "tid",
                  (int)row->stream, "ts", row->start_s * 1e6, "dur",
                  (row->end_s - row->start_s) * 1e6, "args", "layer", row->layer,
                  "micro_batch", row->micro_batch, "iteration", row->iteration, "task",
                  (json_int_t)row->task, "bytes", (json_int_t)row->bytes));
    if (row->device_live_bytes > 0)
        write_event(writer, json_pack("{s:s, s:s, s:i, s:f, s:{s:I}}", "ph", "C", "name",
                                      "device_live_bytes", "pid", row->rank, "ts",
                                      row->start_s * 1e6, "args", "bytes",
                                      (json_int_t)row->device_live_bytes));
}

MIST_COMPARATOR_OF(compare_ints, int, MIST_COMPARE(*a, *b))

/* Names every rank that has a row, each once, in ascending order. */
static void write_all_names(struct event_writer *writer,
                            const struct mist_timeline *timeline)
{
    int *ranks = malloc((timeline->n_rows + 1) * sizeof *ranks);

    if (!ranks) {
        writer->is_out_of_memory = true;
        return;
    }
    for (size_t i = 0; i < timeline->n_rows; i++)
        ranks[i] = timeline->rows[i].rank;
    qsort(ranks, timeline->n_rows, sizeof *ranks, compare_ints);
    for (size_t i = 0; i < timeline->n_rows; i++)
        if (i == 0 || ranks[i] != ranks[i - 1])
            write_names(writer, ranks[i]);
    free(ranks);
}

enum mist_status mist_chrome_trace_write(const struct mist_timeline *timeline,
                                         FILE *stream, struct mist_err *err)
{
    struct event_writer writer = {.stream = stream};

    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", stream);
    write_all_names(&writer, timeline);
    for (size_t i = 0; i < timeline->n_rows && !writer.is_out_of_memory; i++)
        write_task(&writer, &timeline->rows[i]);
    fputs("\n]}\n", stream);
    if (writer.is_out_of_memory)
        return mist_err_memory(err, NULL);
    return MIST_OK;
}

enum mist_status mist_chrome_trace_save(const struct mist_timeline *timeline,
                                        const char *path, bool overwrite,
                                        struct mist_err *err)
{
    struct mist_atomic_file file = {0};
    enum mist_status status = mist_atomic_file_open(&file, path, overwrite, err);

    if (status != MIST_OK)
        return status;
    status = mist_chrome_trace_write(timeline, file.stream, err);
    if (status == MIST_OK)
        return mist_atomic_file_commit(&file, err);
    mist_atomic_file_abort(&file);
    mist_err_locate(err, path, 0);
    return status;
}
