/* Timelines: words, rows, checks, CSV. See timeline.h. */
#include "traces/timeline.h"

#include "core/csv.h"
#include "core/memory.h"
#include "core/order.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>

static const char *const STREAM_NAMES[] = {
    [MIST_STREAM_COMPUTE] = "compute",
    [MIST_STREAM_GPU_GPU] = "gpu_gpu",
    [MIST_STREAM_HOST_TO_DEVICE] = "host_to_device",
    [MIST_STREAM_DEVICE_TO_HOST] = "device_to_host",
    [MIST_STREAM_SEND] = "send",
    [MIST_STREAM_RECEIVE] = "receive",
    [MIST_STREAM_HOST] = "host",
    [MIST_STREAM_SHARDS] = "shards",
    [MIST_N_STREAMS] = NULL,
};

static const struct {
    const char *name;
    enum mist_task_sort sort;
} KINDS[MIST_N_TASK_KINDS] = {
    [MIST_TASK_FORWARD] = {"forward", MIST_SORT_PROGRAM},
    [MIST_TASK_RECOMPUTE] = {"recompute", MIST_SORT_PROGRAM},
    [MIST_TASK_BACKWARD] = {"backward", MIST_SORT_PROGRAM},
    [MIST_TASK_BACKWARD_INPUT] = {"backward_input", MIST_SORT_PROGRAM},
    [MIST_TASK_BACKWARD_WEIGHT] = {"backward_weight", MIST_SORT_PROGRAM},
    [MIST_TASK_OPTIMIZER] = {"optimizer", MIST_SORT_GRADIENTS},
    [MIST_TASK_SEND_ACTIVATION] = {"send_activation", MIST_SORT_TRANSFER},
    [MIST_TASK_RECV_ACTIVATION] = {"recv_activation", MIST_SORT_TRANSFER},
    [MIST_TASK_SEND_GRADIENT] = {"send_gradient", MIST_SORT_TRANSFER},
    [MIST_TASK_RECV_GRADIENT] = {"recv_gradient", MIST_SORT_TRANSFER},
    [MIST_TASK_REDUCE_GRADIENT] = {"reduce_gradient", MIST_SORT_COLLECTIVE},
    [MIST_TASK_GATHER_PARAMETER] = {"gather_parameter", MIST_SORT_COLLECTIVE},
    [MIST_TASK_TP_ALL_REDUCE] = {"tp_all_reduce", MIST_SORT_COLLECTIVE},
    [MIST_TASK_SWAP_IN_WEIGHT] = {"swap_in_weight", MIST_SORT_COPY},
    [MIST_TASK_SWAP_OUT_WEIGHT] = {"swap_out_weight", MIST_SORT_COPY},
    [MIST_TASK_SWAP_IN_GRADIENT] = {"swap_in_gradient", MIST_SORT_COPY},
    [MIST_TASK_SWAP_OUT_GRADIENT] = {"swap_out_gradient", MIST_SORT_COPY},
    [MIST_TASK_SWAP_IN_OPTIMIZER] = {"swap_in_optimizer", MIST_SORT_COPY},
    [MIST_TASK_SWAP_OUT_OPTIMIZER] = {"swap_out_optimizer", MIST_SORT_COPY},
    [MIST_TASK_SWAP_IN_ACTIVATION] = {"swap_in_activation", MIST_SORT_COPY},
    [MIST_TASK_SWAP_OUT_ACTIVATION] = {"swap_out_activation", MIST_SORT_COPY},
    [MIST_TASK_LOAD_BATCH] = {"load_batch", MIST_SORT_LOAD},
    [MIST_TASK_TP_REDUCE_SCATTER] = {"tp_reduce_scatter", MIST_SORT_COLLECTIVE},
    [MIST_TASK_TP_ALL_GATHER] = {"tp_all_gather", MIST_SORT_COLLECTIVE},
    [MIST_TASK_CP_ALL_GATHER] = {"cp_all_gather", MIST_SORT_COLLECTIVE},
    [MIST_TASK_CP_REDUCE_SCATTER] = {"cp_reduce_scatter", MIST_SORT_COLLECTIVE},
    [MIST_TASK_TP_REDUCE_GRADIENT] = {"tp_reduce_gradient", MIST_SORT_COLLECTIVE},
    [MIST_TASK_TIE_GRADIENT] = {"tie_gradient", MIST_SORT_COLLECTIVE},
    [MIST_TASK_ACCUMULATE_GRADIENT] = {"accumulate_gradient", MIST_SORT_GRADIENTS},
    [MIST_TASK_GRADIENT_NORM] = {"gradient_norm", MIST_SORT_GRADIENTS},
    [MIST_TASK_REDUCE_NORM] = {"reduce_norm", MIST_SORT_COLLECTIVE},
};

/* The columns of the file, in the order in which they are written. */
enum {
    COLUMN_RANK,
    COLUMN_STREAM,
    COLUMN_KIND,
    COLUMN_LAYER,
    COLUMN_MICRO_BATCH,
    COLUMN_ITERATION,
    COLUMN_TASK,
    COLUMN_START,
    COLUMN_END,
    COLUMN_BYTES,
    COLUMN_LIVE_BYTES,
    COLUMN_N_RANKS, /* written only where a row speaks of several */
    N_COLUMNS
};

/* What a cell holds, and what of it is right beside `least`. */
enum cell {
    INT,
    INT64,
    TIME_S, /* the end not before the start */
    STREAM,
    KIND,
    N_RANKS, /* in memory 0 is 1 */
};

#define ROW(member) offsetof(struct mist_timeline_row, member)
static const struct column {
    const char *name;
    enum cell cell;
    size_t offset;        /* in a row */
    int least;            /* of whole numbers in a file */
    const char *expected; /* what is said of another value in memory */
} COLUMNS[N_COLUMNS] = {
    [COLUMN_RANK] = {"rank", INT, ROW(rank), 0, "must be 0 or more"},
    [COLUMN_STREAM] = {"stream", STREAM, ROW(stream), 0, "is no stream"},
    [COLUMN_KIND] = {"kind", KIND, ROW(kind), 0, "is no task kind"},
    [COLUMN_LAYER] = {"layer", INT, ROW(layer), -1, "must be -1 (none) or more"},
    [COLUMN_MICRO_BATCH] = {"micro_batch", INT, ROW(micro_batch), -1,
                            "must be -1 (none) or more"},
    [COLUMN_ITERATION] = {"iteration", INT, ROW(iteration), 0, "must be 0 or more"},
    [COLUMN_TASK] = {"task", INT64, ROW(task), 0, "must be 0 or more"},
    [COLUMN_START] = {"start_s", TIME_S, ROW(start_s), 0,
                      "must be a time from 0 to 1e12 s"},
    [COLUMN_END] = {"end_s", TIME_S, ROW(end_s), 0,
                    "must be at most 1e12 s and not before start_s"},
    [COLUMN_BYTES] = {"bytes", INT64, ROW(bytes), 0, "must be 0 or more"},
    [COLUMN_LIVE_BYTES] = {"device_live_bytes", INT64, ROW(device_live_bytes), 0,
                           "must be 0 or more"},
    [COLUMN_N_RANKS] = {"n_ranks", N_RANKS, ROW(n_ranks), 1, "is no number of ranks"},
};

/* ---- words ---- */

const char *mist_stream_name(enum mist_stream stream)
{
    assert((int)stream >= 0 && stream < MIST_N_STREAMS);
    return STREAM_NAMES[stream];
}

const char *mist_task_kind_name(enum mist_task_kind kind)
{
    assert((int)kind >= 0 && kind < MIST_N_TASK_KINDS);
    return KINDS[kind].name;
}

enum mist_task_sort mist_task_kind_sort(enum mist_task_kind kind)
{
    assert((int)kind >= 0 && kind < MIST_N_TASK_KINDS);
    return KINDS[kind].sort;
}

/* ---- rows ---- */

void mist_timeline_init(struct mist_timeline *timeline)
{
    *timeline = (struct mist_timeline){0};
}

void mist_timeline_fini(struct mist_timeline *timeline)
{
    free(timeline->rows);
    *timeline = (struct mist_timeline){0};
}

enum mist_status mist_timeline_add(struct mist_timeline *timeline,
                                   const struct mist_timeline_row *row,
                                   struct mist_err *err)
{
    struct mist_timeline_row copy = *row; /* row may lie in the array that moves */
    return MIST_APPEND(timeline->rows, timeline->capacity, timeline->n_rows, copy)
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu timeline rows",
                              timeline->n_rows + 1);
}

void mist_timeline_span(const struct mist_timeline *timeline, double *start_s,
                        double *end_s)
{
    *start_s = timeline->n_rows ? timeline->rows[0].start_s : 0;
    *end_s = timeline->n_rows ? timeline->rows[0].end_s : 0;
    for (size_t i = 1; i < timeline->n_rows; i++) {
        *start_s = fmin(*start_s, timeline->rows[i].start_s);
        *end_s = fmax(*end_s, timeline->rows[i].end_s);
    }
}

/* ---- checks ---- */

/* Where a check failed and why: the caller knows the place
 * (a file's line or a row number). */
struct fault {
    size_t i_row;
    int i_column;
    char message[160];
};

/* Fills fault and returns false, so that a check can return it. */
static bool fail(struct fault *fault, int i_column, const char *message)
{
    fault->i_column = i_column;
    snprintf(fault->message, sizeof fault->message, "%s", message);
    return false;
}

static bool cell_is_sound(const struct mist_timeline_row *row, int i_column)
{
    const struct column *column = &COLUMNS[i_column];
    const void *cell = (const char *)row + column->offset;

    switch (column->cell) {
    case INT:
        return *(const int *)cell >= column->least && *(const int *)cell < INT_MAX;
    case INT64:
        return *(const int64_t *)cell >= column->least;
    case TIME_S:
        return *(const double *)cell >= (i_column == COLUMN_END ? row->start_s : 0) &&
               *(const double *)cell <= MIST_TIMELINE_MAX_S;
    case STREAM:
        return (int)row->stream >= 0 && row->stream < MIST_N_STREAMS;
    case KIND:
        return (int)row->kind >= 0 && row->kind < MIST_N_TASK_KINDS;
    case N_RANKS:
        return row->n_ranks >= 0 && row->n_ranks <= INT_MAX - row->rank;
    }
    return false;
}

static bool row_is_sound(const struct mist_timeline_row *row, struct fault *fault)
{
    for (int i = 0; i < N_COLUMNS; i++)
        if (!cell_is_sound(row, i))
            return fail(fault, i, COLUMNS[i].expected);
    return true;
}

static int compare_tasks(const void *a_, const void *b_)
{
    const struct mist_timeline_row *const *a = a_, *const *b = b_;
    int order = MIST_COMPARE_BY(*a, *b, rank, iteration, task);

    return order ? order : MIST_COMPARE(*a, *b);
}

static int compare_times(const void *a_, const void *b_)
{
    const struct mist_timeline_row *const *a = a_, *const *b = b_;
    int order = MIST_COMPARE_BY(*a, *b, rank, stream, start_s, end_s);

    return order ? order : MIST_COMPARE(*a, *b);
}

static bool tasks_are_unique(const struct mist_timeline *timeline,
                             const struct mist_timeline_row **order, struct fault *fault)
{
    qsort(order, timeline->n_rows, sizeof *order, compare_tasks);
    for (size_t i = 1; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *a = order[i - 1], *b = order[i];
        if (a->rank == b->rank && a->iteration == b->iteration && a->task == b->task) {
            fault->i_row = (size_t)(b - timeline->rows);
            return fail(fault, COLUMN_TASK,
                        "comes twice in this rank and iteration, expected once");
        }
    }
    return true;
}

static bool streams_do_not_overlap(const struct mist_timeline *timeline,
                                   const struct mist_timeline_row **order,
                                   struct fault *fault)
{
    qsort(order, timeline->n_rows, sizeof *order, compare_times);
    for (size_t i = 1; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *a = order[i - 1], *b = order[i];
        if (a->rank != b->rank || a->stream != b->stream || b->start_s >= a->end_s)
            continue;
        char text[sizeof fault->message];
        snprintf(text, sizeof text,
                 "%.9f is before %.9f, where task %lld of the same rank and stream ends",
                 b->start_s, a->end_s, (long long)a->task);
        fault->i_row = (size_t)(b - timeline->rows);
        return fail(fault, COLUMN_START, text);
    }
    return true;
}

/* MIST_ERR_INPUT with fault filled, MIST_ERR_MEMORY with err filled, or MIST_OK. */
static enum mist_status find_fault(const struct mist_timeline *timeline,
                                   struct fault *fault, struct mist_err *err)
{
    size_t n = timeline->n_rows;
    bool is_sound = true;

    for (size_t i = 0; i < n && is_sound; i++) {
        fault->i_row = i;
        is_sound = row_is_sound(&timeline->rows[i], fault);
    }
    if (!is_sound)
        return MIST_ERR_INPUT;
    if (n == 0)
        return MIST_OK;

    const struct mist_timeline_row **order = calloc(n, sizeof *order);
    if (!order)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory checking %zu timeline rows", n);
    for (size_t i = 0; i < n; i++)
        order[i] = &timeline->rows[i];
    is_sound = tasks_are_unique(timeline, order, fault) &&
               streams_do_not_overlap(timeline, order, fault);
    free(order);
    return is_sound ? MIST_OK : MIST_ERR_INPUT;
}

enum mist_status mist_timeline_check(const struct mist_timeline *timeline,
                                     const char *path, struct mist_err *err)
{
    struct fault fault = {0};
    enum mist_status status = find_fault(timeline, &fault, err);

    if (status != MIST_ERR_INPUT)
        return status;
    const char *name = COLUMNS[fault.i_column].name;
    if (!path)
        return mist_err_set(err, status, "timeline row %zu: %s: %s", fault.i_row + 1,
                            name, fault.message);
    return mist_err_at(err, status, path, timeline->rows[fault.i_row].line, 0, "%s: %s",
                       name, fault.message);
}

/* ---- CSV ---- */

static enum mist_status read_cell(const struct mist_csv *csv, size_t i,
                                  const char *const *kinds, struct mist_timeline_row *row,
                                  struct mist_err *err)
{
    const struct column *column = &COLUMNS[i];
    void *out = (char *)row + column->offset;
    enum mist_status status;
    int64_t whole = 0;

    switch (column->cell) {
    case INT64:
        return mist_csv_get_int64(csv, 0, i, column->least, INT64_MAX, out, err);
    case TIME_S:
        return mist_csv_get_double(csv, 0, i, 0, MIST_TIMELINE_MAX_S, out, err);
    case STREAM:
        return mist_csv_get_choice(csv, 0, i, STREAM_NAMES, out, err);
    case KIND:
        return mist_csv_get_choice(csv, 0, i, kinds, out, err);
    case INT:
    case N_RANKS:
        break;
    }
    status = mist_csv_get_int64(csv, 0, i, column->least, INT_MAX - 1, &whole, err);
    *(int *)out = (int)whole;
    return status;
}

static enum mist_status read_row(const struct mist_csv *csv, const char *const *kinds,
                                 struct mist_timeline_row *row, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    long line = mist_csv_line(csv, 0);

    row->line = line < INT_MAX ? (int)line : INT_MAX;
    for (size_t i = 0; i < N_COLUMNS && status == MIST_OK; i++)
        if (i != COLUMN_N_RANKS || mist_csv_text(csv, 0, i)[0])
            status = read_cell(csv, i, kinds, row, err);
    return status;
}

struct visiting {
    const char *kinds[MIST_N_TASK_KINDS + 1];
    mist_timeline_visitor *visit;
    void *context;
    bool has_rows;
};

static enum mist_status visit_row(const struct mist_csv *csv, void *context,
                                  struct mist_err *err)
{
    struct visiting *at = context;
    struct mist_timeline_row row = {0};
    struct fault fault;
    enum mist_status status = read_row(csv, at->kinds, &row, err);

    at->has_rows = true;
    if (status != MIST_OK)
        return status;
    if (!row_is_sound(&row, &fault))
        return mist_csv_fail(csv, 0, (size_t)fault.i_column, err, "%s", fault.message);
    return at->visit(&row, at->context, err);
}

enum mist_status mist_timeline_visit(const char *path, mist_timeline_visitor *visit,
                                     void *context, struct mist_progress *progress,
                                     struct mist_err *err)
{
    struct visiting at = {.visit = visit, .context = context};
    struct mist_csv_column columns[N_COLUMNS];

    for (int i = 0; i < N_COLUMNS; i++)
        columns[i] = (struct mist_csv_column){
            COLUMNS[i].name, i == COLUMN_N_RANKS ? MIST_CSV_OPTIONAL : MIST_CSV_REQUIRED};
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        at.kinds[i] = KINDS[i].name;
    enum mist_status status =
        mist_csv_visit(path, columns, N_COLUMNS, visit_row, &at, progress, err);
    if (status == MIST_OK && !at.has_rows)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 1, 0,
                             "no task follows the header, expected at least one row");
    return status;
}

static enum mist_status add_row(const struct mist_timeline_row *row, void *context,
                                struct mist_err *err)
{
    return mist_timeline_add(context, row, err);
}

enum mist_status mist_timeline_load(struct mist_timeline *timeline, const char *path,
                                    struct mist_err *err)
{
    mist_timeline_init(timeline);
    enum mist_status status = mist_timeline_visit(path, add_row, timeline, NULL, err);
    if (status == MIST_OK)
        status = mist_timeline_check(timeline, path, err);
    if (status != MIST_OK)
        mist_timeline_fini(timeline);
    return status;
}

static bool has_several_ranks(const struct mist_timeline *timeline)
{
    for (size_t i = 0; i < timeline->n_rows; i++)
        if (timeline->rows[i].n_ranks > 1)
            return true;
    return false;
}

static void write_row(struct mist_csv_writer *writer, const struct mist_timeline_row *row,
                      bool has_n_ranks)
{
    mist_csv_add_int64(writer, row->rank);
    mist_csv_add_text(writer, STREAM_NAMES[row->stream]);
    mist_csv_add_text(writer, KINDS[row->kind].name);
    mist_csv_add_int64(writer, row->layer);
    mist_csv_add_int64(writer, row->micro_batch);
    mist_csv_add_int64(writer, row->iteration);
    mist_csv_add_int64(writer, row->task);
    mist_csv_add_double(writer, row->start_s);
    mist_csv_add_double(writer, row->end_s);
    mist_csv_add_int64(writer, row->bytes);
    mist_csv_add_int64(writer, row->device_live_bytes);
    if (has_n_ranks)
        mist_csv_add_int64(writer, row->n_ranks > 1 ? row->n_ranks : 1);
    mist_csv_end_row(writer);
}

enum mist_status mist_timeline_save(const struct mist_timeline *timeline,
                                    const char *path, bool overwrite,
                                    struct mist_err *err)
{
    struct mist_csv_writer writer = {0};
    const char *names[N_COLUMNS];
    bool has_n_ranks = has_several_ranks(timeline);
    enum mist_status status = mist_timeline_check(timeline, NULL, err);

    if (status != MIST_OK)
        return status;
    for (int i = 0; i < N_COLUMNS; i++)
        names[i] = COLUMNS[i].name;
    status = mist_csv_writer_open(&writer, path, overwrite, names,
                                  has_n_ranks ? N_COLUMNS : COLUMN_N_RANKS, err);
    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < timeline->n_rows; i++)
        write_row(&writer, &timeline->rows[i], has_n_ranks);
    return mist_csv_writer_commit(&writer, err);
}
