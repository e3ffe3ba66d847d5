/*
 * Importer of traces of torch.profiler. See import_torch.h.
 *
 * One pass over the file keeps what the rest needs: spans (operators of ours, each on a
 * thread, from when to when), launches (calls of CUDA's runtime, with the id that they
 * share with what they launched) and kernels. Spans of a thread lie in one another or side
 * by side, so the innermost one around a launch is found from the last that began before
 * it, going out from there.
 */
#include "profile/import_torch.h"

#include "core/memory.h"
#include "core/order.h"
#include "profile/torch_links.h"
#include "profile/torch_words.h"
#include "traces/torch_events.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct span {
    int64_t thread;
    double start_us, end_us;
    size_t i_outer; /* of the span around it, from 1; 0: none */
    long line;
    struct mist_torch_use use;
    double kernels_us; /* what it launched */
};

struct launch {
    int64_t correlation, thread;
    double start_us;
};

struct kernel {
    int64_t correlation;
    double time_us;
};

struct import {
    const struct mist_import_rows *rows;
    struct mist_import_torch_report *report;
    struct span *spans; /* owned, as the others */
    struct launch *launches;
    struct kernel *kernels;
    size_t n_spans, n_launches, n_kernels;
    size_t spans_capacity, launches_capacity, kernels_capacity;
    size_t n_used; /* times that are in rows */
};

/* ---------------------------------------------------------------------------- reading */

static enum mist_status out_of_memory(struct mist_err *err)
{
    return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for the events of a trace");
}

static enum mist_status read_operator(struct import *at, const struct mist_json *event,
                                      const char *name, const struct mist_json *args,
                                      long line, struct mist_err *err)
{
    struct span span = {.line = line};
    double duration_us = 0;

    if (!mist_torch_read_use(name, args, &span.use))
        return MIST_OK;
    enum mist_status status = mist_json_get_int64(
        event, "tid", MIST_JSON_REQUIRED, INT64_MIN, INT64_MAX, &span.thread, err);
    if (status == MIST_OK)
        status = mist_torch_get_ts_us(event, &span.start_us, err);
    if (status == MIST_OK)
        status = mist_torch_get_dur_us(event, &duration_us, err);
    if (status != MIST_OK)
        return status;
    span.end_us = span.start_us + duration_us;
    return MIST_APPEND(at->spans, at->spans_capacity, at->n_spans, span)
               ? MIST_OK
               : out_of_memory(err);
}

static enum mist_status read_launch(struct import *at, const struct mist_json *event,
                                    const struct mist_json *args, struct mist_err *err)
{
    struct launch launch = {.correlation = mist_torch_get_id(args, "correlation")};

    if (launch.correlation < 0)
        return MIST_OK;
    enum mist_status status = mist_json_get_int64(
        event, "tid", MIST_JSON_REQUIRED, INT64_MIN, INT64_MAX, &launch.thread, err);
    if (status == MIST_OK)
        status = mist_torch_get_ts_us(event, &launch.start_us, err);
    if (status != MIST_OK)
        return status;
    return MIST_APPEND(at->launches, at->launches_capacity, at->n_launches, launch)
               ? MIST_OK
               : out_of_memory(err);
}

static enum mist_status add_kernel(struct import *at, int64_t correlation, double time_us,
                                   struct mist_err *err)
{
    if (!MIST_APPEND(at->kernels, at->kernels_capacity, at->n_kernels,
                     (struct kernel){correlation, time_us}))
        return out_of_memory(err);
    at->report->kernels_s += time_us * 1e-6;
    return MIST_OK;
}

static enum mist_status add_link(struct import *at, struct mist_link_row *row,
                                 double time_us, enum mist_import_keep keep,
                                 struct mist_err *err)
{
    row->time_us = time_us;
    if (time_us <= 0) /* shorter than the clock's step */
        return MIST_OK;
    at->n_used++;
    return mist_import_rows_add_link(at->rows, row, keep, err);
}

/* A kernel, of NCCL or not, or a copy. */
static enum mist_status read_work(struct import *at, const struct mist_json *event,
                                  const char *name, bool is_copy,
                                  const struct mist_json *args, struct mist_err *err)
{
    enum mist_torch_link kind = MIST_TORCH_LINK_NONE;
    struct mist_link_row row;
    double time_us = 0;
    enum mist_status status = mist_torch_get_dur_us(event, &time_us, err);

    if (status == MIST_OK && is_copy) {
        kind = mist_torch_read_copy(name, args, &row);
        return kind == MIST_TORCH_LINK_ROW
                   ? add_link(at, &row, time_us, MIST_IMPORT_MEAN, err)
                   : MIST_OK;
    }
    if (status == MIST_OK)
        status = mist_torch_read_message(name, args, &at->rows->set->cluster, &kind, &row,
                                         err);
    if (status != MIST_OK)
        return status;
    at->report->n_messages += kind != MIST_TORCH_LINK_NONE;
    at->report->n_nameless += kind == MIST_TORCH_LINK_NAMELESS;
    at->report->n_other += kind == MIST_TORCH_LINK_OTHER;
    if (kind == MIST_TORCH_LINK_ROW)
        return add_link(at, &row, time_us, MIST_IMPORT_SHORTEST, err);
    return strncmp(name, "nccl", 4) == 0
               ? MIST_OK
               : add_kernel(at, mist_torch_get_id(args, "correlation"), time_us, err);
}

static enum mist_status read_event(void *context, const struct mist_torch_event *event,
                                   struct mist_err *err)
{
    const char *category = event->category, *name = event->name;

    if (strcmp(category, "cpu_op") == 0)
        return read_operator(context, &event->object, name, &event->args, event->line,
                             err);
    if (strcmp(category, "cuda_runtime") == 0 || strcmp(category, "cuda_driver") == 0)
        return read_launch(context, &event->object, &event->args, err);
    bool is_copy = strcmp(category, "gpu_memcpy") == 0;
    return is_copy || strcmp(category, "kernel") == 0
               ? read_work(context, &event->object, name, is_copy, &event->args, err)
               : MIST_OK;
}

/* ------------------------------------------------------------------ who launched what */

/* By thread and begin; one that another lies in comes before it. */
MIST_COMPARATOR_OF(compare_spans, struct span,
                   a->thread == b->thread && a->start_us == b->start_us
                       ? MIST_COMPARE_OR(b->end_us, a->end_us,
                                         MIST_COMPARE(a->line, b->line))
                       : MIST_COMPARE_BY(a, b, thread, start_us))

MIST_COMPARATOR(compare_launches, struct launch, correlation, start_us, thread)

static void nest_spans(struct span *spans, size_t n)
{
    size_t i_open = 0; /* the innermost one that may go on, from 1 */

    for (size_t i = 0; i < n; i++) {
        while (i_open > 0 && (spans[i_open - 1].thread != spans[i].thread ||
                              spans[i_open - 1].end_us <= spans[i].start_us))
            i_open = spans[i_open - 1].i_outer;
        spans[i].i_outer = i_open;
        i_open = i + 1;
    }
}

/* The first launch of an id; NULL: none was recorded. */
static const struct launch *find_launch(const struct import *at, int64_t correlation)
{
    MIST_BISECT(low, 0, at->n_launches, i, at->launches[i].correlation < correlation);
    return low < at->n_launches && at->launches[low].correlation == correlation
               ? &at->launches[low]
               : NULL;
}

/* The innermost span around a launch; NULL: no operator of ours is. */
static struct span *find_span(const struct import *at, const struct launch *launch)
{
    const struct span *spans = at->spans;

    MIST_BISECT(
        n, 0, at->n_spans, i, /* that began before it, from 1 */
        spans[i].thread < launch->thread ||
            (spans[i].thread == launch->thread && spans[i].start_us <= launch->start_us));
    while (n > 0 && spans[n - 1].thread == launch->thread &&
           spans[n - 1].end_us < launch->start_us)
        n = spans[n - 1].i_outer;
    return n > 0 && spans[n - 1].thread == launch->thread ? &at->spans[n - 1] : NULL;
}

static void assign_kernels(struct import *at)
{
    if (at->n_spans > 0)
        qsort(at->spans, at->n_spans, sizeof *at->spans, compare_spans);
    if (at->n_launches > 0)
        qsort(at->launches, at->n_launches, sizeof *at->launches, compare_launches);
    nest_spans(at->spans, at->n_spans);
    for (size_t i = 0; i < at->n_kernels; i++) {
        const struct launch *launch = find_launch(at, at->kernels[i].correlation);
        struct span *span = launch ? find_span(at, launch) : NULL;
        if (span)
            span->kernels_us += at->kernels[i].time_us;
    }
}

/* ------------------------------------------------------------------------------- rows */

static enum mist_status add_span(const struct import *at, const struct span *span,
                                 struct mist_err *err)
{
    const struct mist_torch_use *use = &span->use;
    struct mist_kernel_row row = {
        .dtype = use->dtype, .time_us = span->kernels_us, .repetitions = 1};

    if (use->is_product)
        return mist_import_rows_add_product(at->rows, &row, use->dims[0], use->dims[1],
                                            use->dims[2], err);
    struct mist_work work =
        mist_op_work(use->op, use->phase, use->dims,
                     use->dtype == MIST_TRACE_FP32 ? MIST_DTYPE_FP32 : MIST_DTYPE_BF16);
    const char *const *names = mist_op_dims(use->op);
    snprintf(row.op, sizeof row.op, "%s", mist_op_name(use->op));
    row.phase = use->phase;
    row.flop = (double)work.flop;
    row.bytes = (double)work.bytes;
    for (int i = 0; names[i]; i++) {
        snprintf(row.shape.dims[i].name, sizeof row.shape.dims[i].name, "%s", names[i]);
        row.shape.dims[i].value = use->dims[i];
        row.shape.n_dims = i + 1;
    }
    return mist_import_rows_add_kernel(at->rows, &row, err);
}

static enum mist_status add_spans(struct import *at, const char *path,
                                  struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < at->n_spans && status == MIST_OK; i++) {
        const struct span *span = &at->spans[i];
        if (span->kernels_us <= 0)
            continue;
        status = add_span(at, span, err);
        if (status != MIST_OK)
            mist_err_locate(err, path, span->line);
        at->report->used_s += span->kernels_us * 1e-6;
        at->n_used++;
    }
    if (status == MIST_OK && at->n_used == 0)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "has nothing to import: no product, attention, norm or GELU "
                           "with its kernels and input shapes (record_shapes=True), no "
                           "message with its group, no copy of pinned memory");
    return status;
}

enum mist_status mist_import_torch(const struct mist_import_rows *rows, const char *path,
                                   struct mist_import_torch_report *report,
                                   struct mist_err *err)
{
    struct import at = {.rows = rows, .report = report};
    struct mist_torch_events events;
    enum mist_status status = mist_torch_events_open(&events, path, err);

    if (status == MIST_OK)
        status = mist_torch_events_visit(&events, read_event, &at, NULL, err);
    mist_torch_events_close(&events);
    if (status == MIST_OK) {
        assign_kernels(&at);
        status = add_spans(&at, path, err);
    }
    free(at.spans);
    free(at.launches);
    free(at.kernels);
    return status;
}
