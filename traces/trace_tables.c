/*
 * The tables of a trace set as CSV. See trace_set.h and, for the formats,
 * traces/README.md.
 */
#include "core/csv.h"
#include "traces/trace_internal.h"
#include "traces/words.h"

#include <float.h>
#include <inttypes.h>
#include <limits.h>

#define MAX_COLUMNS 16

/* Columns in the order of writing. */
enum {
    KERNEL_OP,
    KERNEL_DTYPE,
    KERNEL_PHASE,
    KERNEL_SHAPE,
    KERNEL_TIME,
    KERNEL_DEVIATION,
    KERNEL_REPETITIONS,
    KERNEL_FLOP,
    KERNEL_BYTES,
    N_KERNEL_COLUMNS
};
static const struct mist_csv_column KERNEL_COLUMNS[N_KERNEL_COLUMNS] = {
    {"op", MIST_CSV_REQUIRED},          {"dtype", MIST_CSV_REQUIRED},
    {"phase", MIST_CSV_REQUIRED},       {"shape", MIST_CSV_REQUIRED},
    {"time_us", MIST_CSV_REQUIRED},     {"deviation_us", MIST_CSV_REQUIRED},
    {"repetitions", MIST_CSV_REQUIRED}, {"flop", MIST_CSV_REQUIRED},
    {"bytes", MIST_CSV_REQUIRED},
};

enum {
    LINK_OPERATION,
    LINK_NODES,
    LINK_RANKS,
    LINK_GROUPS,
    LINK_BYTES,
    LINK_TIME,
    LINK_DEVIATION,
    LINK_REPETITIONS,
    N_LINK_COLUMNS
};
static const struct mist_csv_column LINK_COLUMNS[N_LINK_COLUMNS] = {
    {"operation", MIST_CSV_REQUIRED},      {"nodes", MIST_CSV_REQUIRED},
    {"ranks_per_node", MIST_CSV_REQUIRED}, {"concurrent_groups", MIST_CSV_REQUIRED},
    {"bytes", MIST_CSV_REQUIRED},          {"time_us", MIST_CSV_REQUIRED},
    {"deviation_us", MIST_CSV_REQUIRED},   {"repetitions", MIST_CSV_REQUIRED},
};

enum {
    INTERFERENCE_CHANNELS,
    INTERFERENCE_NODES,
    INTERFERENCE_RANKS,
    INTERFERENCE_ALONE, /* MIST_N_CHANNELS columns in the order of enum mist_stream */
    INTERFERENCE_TOGETHER = INTERFERENCE_ALONE + MIST_N_CHANNELS,
    INTERFERENCE_DEVIATION,
    INTERFERENCE_REPETITIONS,
    N_INTERFERENCE_COLUMNS
};
static const struct mist_csv_column INTERFERENCE_COLUMNS[N_INTERFERENCE_COLUMNS] = {
    {"channels", MIST_CSV_REQUIRED},          {"nodes", MIST_CSV_REQUIRED},
    {"ranks_per_node", MIST_CSV_REQUIRED},    {"compute_us", MIST_CSV_REQUIRED},
    {"gpu_gpu_us", MIST_CSV_REQUIRED},        {"host_to_device_us", MIST_CSV_REQUIRED},
    {"device_to_host_us", MIST_CSV_REQUIRED}, {"together_us", MIST_CSV_REQUIRED},
    {"deviation_us", MIST_CSV_REQUIRED},      {"repetitions", MIST_CSV_REQUIRED},
};

enum {
    CHECK_MECHANISM,
    CHECK_PREDICTED,
    CHECK_BAR,
    CHECK_MEASURED,
    CHECK_DEVIATION,
    CHECK_REPETITIONS,
    N_CHECK_COLUMNS
};
static const struct mist_csv_column CHECK_COLUMNS[N_CHECK_COLUMNS] = {
    {"mechanism", MIST_CSV_REQUIRED},    {"predicted_us", MIST_CSV_REQUIRED},
    {"bar_us", MIST_CSV_REQUIRED},       {"measured_us", MIST_CSV_REQUIRED},
    {"deviation_us", MIST_CSV_REQUIRED}, {"repetitions", MIST_CSV_REQUIRED},
};

/* ---- reading ---- */

/*
 * Gives a message about a row (which begins with the column's name) the row's place.
 * Messages that are about no input (out of memory) pass unchanged.
 */
static enum mist_status at_row(const struct mist_csv *csv, size_t i_row,
                               enum mist_status status, const struct mist_err *message,
                               struct mist_err *err)
{
    if (status == MIST_OK || !err)
        return status;
    *err = *message;
    if (status != MIST_ERR_INPUT)
        return status;
    return mist_err_at(err, status, mist_csv_path(csv), mist_csv_line(csv, i_row), 0,
                       "%s", message->message);
}

/* One cell of a table; the first failure stays in status, later reads do nothing. */
struct row_reader {
    const struct mist_csv *csv;
    size_t i_row;
    enum mist_status status;
    struct mist_err *err;
};

static int64_t read_count(struct row_reader *reader, size_t i_column, int64_t max)
{
    int64_t value = 1;

    if (reader->status == MIST_OK)
        reader->status = mist_csv_get_int64(reader->csv, reader->i_row, i_column, 1, max,
                                            &value, reader->err);
    return value;
}

static double read_number(struct row_reader *reader, size_t i_column)
{
    double value = 0;

    if (reader->status == MIST_OK)
        reader->status = mist_csv_get_double(reader->csv, reader->i_row, i_column, 0,
                                             DBL_MAX, &value, reader->err);
    return value;
}

static int read_choice(struct row_reader *reader, size_t i_column,
                       const char *const *choices)
{
    int value = 0;

    if (reader->status == MIST_OK)
        reader->status = mist_csv_get_choice(reader->csv, reader->i_row, i_column,
                                             choices, &value, reader->err);
    return value;
}

static enum mist_status read_kernel(const struct mist_csv *csv, size_t i,
                                    struct mist_trace_set *set, struct mist_err *err)
{
    struct row_reader reader = {csv, i, MIST_OK, err};
    struct mist_kernel_row row = {0};
    struct mist_err message = {0};
    const char *dtypes[MIST_TRACE_MAX_WORDS], *phases[MIST_TRACE_MAX_WORDS];
    const char *op = mist_csv_text(csv, i, KERNEL_OP);

    MIST_TRACE_FILL_WORDS(dtypes, MIST_N_TRACE_DTYPES, mist_trace_dtype_name,
                          enum mist_trace_dtype);
    MIST_TRACE_FILL_WORDS(phases, MIST_N_TRACE_PHASES, mist_trace_phase_name,
                          enum mist_trace_phase);
    row.line = mist_csv_line(csv, i);
    if (!mist_words_is_name(op, sizeof row.op))
        return mist_csv_fail(csv, i, KERNEL_OP, err,
                             "'%.63s', expected a name of a-z, 0-9 and _", op);
    memcpy(row.op, op, strlen(op) + 1);
    row.dtype = (enum mist_trace_dtype)read_choice(&reader, KERNEL_DTYPE, dtypes);
    row.phase = (enum mist_trace_phase)read_choice(&reader, KERNEL_PHASE, phases);
    row.time_us = read_number(&reader, KERNEL_TIME);
    row.deviation_us = read_number(&reader, KERNEL_DEVIATION);
    row.repetitions = read_count(&reader, KERNEL_REPETITIONS, INT64_MAX);
    row.flop = read_number(&reader, KERNEL_FLOP);
    row.bytes = read_number(&reader, KERNEL_BYTES);
    if (reader.status != MIST_OK)
        return reader.status;
    enum mist_status status =
        mist_shape_parse(mist_csv_text(csv, i, KERNEL_SHAPE), &row.shape, &message);
    if (status == MIST_OK)
        status = mist_trace_set_add_kernel(set, &row, &message);
    if (status == MIST_OK)
        status = mist_trace_judge_kernel(&row, &set->cluster, &message);
    return at_row(csv, i, status, &message, err);
}

static enum mist_status read_link(const struct mist_csv *csv, size_t i,
                                  struct mist_trace_set *set, struct mist_err *err)
{
    struct row_reader reader = {csv, i, MIST_OK, err};
    struct mist_link_row row = {0};
    struct mist_err message = {0};
    const char *words[MIST_TRACE_MAX_WORDS];

    MIST_TRACE_FILL_WORDS(words, MIST_N_LINK_OPERATIONS, mist_link_operation_name,
                          enum mist_link_operation);
    row.operation = (enum mist_link_operation)read_choice(&reader, LINK_OPERATION, words);
    row.nodes = (int)read_count(&reader, LINK_NODES, INT_MAX);
    row.ranks_per_node = (int)read_count(&reader, LINK_RANKS, INT_MAX);
    row.concurrent_groups = (int)read_count(&reader, LINK_GROUPS, INT_MAX);
    row.bytes = read_count(&reader, LINK_BYTES, INT64_MAX);
    row.time_us = read_number(&reader, LINK_TIME);
    row.deviation_us = read_number(&reader, LINK_DEVIATION);
    row.repetitions = read_count(&reader, LINK_REPETITIONS, INT64_MAX);
    if (reader.status != MIST_OK)
        return reader.status;
    enum mist_status status = mist_trace_set_add_link(set, &row, &message);
    if (status == MIST_OK)
        status = mist_trace_judge_link(&row, &set->cluster, &message);
    return at_row(csv, i, status, &message, err);
}

static enum mist_status read_interference(const struct mist_csv *csv, size_t i,
                                          struct mist_trace_set *set,
                                          struct mist_err *err)
{
    struct row_reader reader = {csv, i, MIST_OK, err};
    struct mist_interference_row row = {0};
    struct mist_err message = {0};
    const char *channels = mist_csv_text(csv, i, INTERFERENCE_CHANNELS);

    if (!mist_channels_from_text(channels, &row.channels))
        return mist_csv_fail(csv, i, INTERFERENCE_CHANNELS, err,
                             "'%.80s', expected names joined by + in the order compute, "
                             "gpu_gpu, host_to_device, device_to_host",
                             channels);
    row.nodes = (int)read_count(&reader, INTERFERENCE_NODES, INT_MAX);
    row.ranks_per_node = (int)read_count(&reader, INTERFERENCE_RANKS, INT_MAX);
    for (size_t j = 0; j < MIST_N_CHANNELS; j++)
        row.alone_us[j] = read_number(&reader, INTERFERENCE_ALONE + j);
    row.together_us = read_number(&reader, INTERFERENCE_TOGETHER);
    row.deviation_us = read_number(&reader, INTERFERENCE_DEVIATION);
    row.repetitions = read_count(&reader, INTERFERENCE_REPETITIONS, INT64_MAX);
    if (reader.status != MIST_OK)
        return reader.status;
    enum mist_status status = mist_trace_set_add_interference(set, &row, &message);
    if (status == MIST_OK)
        status = mist_trace_judge_interference(&row, &message);
    return at_row(csv, i, status, &message, err);
}

static enum mist_status read_check(const struct mist_csv *csv, size_t i,
                                   struct mist_trace_set *set, struct mist_err *err)
{
    struct row_reader reader = {csv, i, MIST_OK, err};
    struct mist_check_row row = {0};
    struct mist_err message = {0};
    const char *words[MIST_TRACE_MAX_WORDS];

    MIST_TRACE_FILL_WORDS(words, MIST_N_MECHANISMS, mist_mechanism_name,
                          enum mist_mechanism);
    row.mechanism = (enum mist_mechanism)read_choice(&reader, CHECK_MECHANISM, words);
    row.predicted_us = read_number(&reader, CHECK_PREDICTED);
    row.bar_us = read_number(&reader, CHECK_BAR);
    row.measured_us = read_number(&reader, CHECK_MEASURED);
    row.deviation_us = read_number(&reader, CHECK_DEVIATION);
    row.repetitions = read_count(&reader, CHECK_REPETITIONS, INT64_MAX);
    if (reader.status != MIST_OK)
        return reader.status;
    enum mist_status status = mist_trace_set_add_check(set, &row, &message);
    if (status == MIST_OK)
        status = mist_trace_judge_check(&row, &message);
    return at_row(csv, i, status, &message, err);
}

/* ---- writing ---- */

static void write_kernels(struct mist_csv_writer *writer,
                          const struct mist_trace_set *set)
{
    for (size_t i = 0; i < set->n_kernels; i++) {
        const struct mist_kernel_row *row = &set->kernels[i];
        char shape[MIST_SHAPE_TEXT_MAX];
        mist_shape_format(&row->shape, shape);
        mist_csv_add_text(writer, row->op);
        mist_csv_add_text(writer, mist_trace_dtype_name(row->dtype));
        mist_csv_add_text(writer, mist_trace_phase_name(row->phase));
        mist_csv_add_text(writer, shape);
        mist_csv_add_double(writer, row->time_us);
        mist_csv_add_double(writer, row->deviation_us);
        mist_csv_add_int64(writer, row->repetitions);
        mist_csv_add_double(writer, row->flop);
        mist_csv_add_double(writer, row->bytes);
        mist_csv_end_row(writer);
    }
}

static void write_links(struct mist_csv_writer *writer, const struct mist_trace_set *set)
{
    for (size_t i = 0; i < set->n_links; i++) {
        const struct mist_link_row *row = &set->links[i];
        mist_csv_add_text(writer, mist_link_operation_name(row->operation));
        mist_csv_add_int64(writer, row->nodes);
        mist_csv_add_int64(writer, row->ranks_per_node);
        mist_csv_add_int64(writer, row->concurrent_groups);
        mist_csv_add_int64(writer, row->bytes);
        mist_csv_add_double(writer, row->time_us);
        mist_csv_add_double(writer, row->deviation_us);
        mist_csv_add_int64(writer, row->repetitions);
        mist_csv_end_row(writer);
    }
}

static void write_interferences(struct mist_csv_writer *writer,
                                const struct mist_trace_set *set)
{
    for (size_t i = 0; i < set->n_interferences; i++) {
        const struct mist_interference_row *row = &set->interferences[i];
        char channels[MIST_CHANNELS_TEXT_MAX];
        mist_channels_to_text(row->channels, channels);
        mist_csv_add_text(writer, channels);
        mist_csv_add_int64(writer, row->nodes);
        mist_csv_add_int64(writer, row->ranks_per_node);
        for (int j = 0; j < MIST_N_CHANNELS; j++)
            mist_csv_add_double(writer, row->alone_us[j]);
        mist_csv_add_double(writer, row->together_us);
        mist_csv_add_double(writer, row->deviation_us);
        mist_csv_add_int64(writer, row->repetitions);
        mist_csv_end_row(writer);
    }
}

static void write_checks(struct mist_csv_writer *writer, const struct mist_trace_set *set)
{
    for (size_t i = 0; i < set->n_checks; i++) {
        const struct mist_check_row *row = &set->checks[i];
        mist_csv_add_text(writer, mist_mechanism_name(row->mechanism));
        mist_csv_add_double(writer, row->predicted_us);
        mist_csv_add_double(writer, row->bar_us);
        mist_csv_add_double(writer, row->measured_us);
        mist_csv_add_double(writer, row->deviation_us);
        mist_csv_add_int64(writer, row->repetitions);
        mist_csv_end_row(writer);
    }
}

/* ---- tables ---- */

typedef enum mist_status read_row_function(const struct mist_csv *csv, size_t i_row,
                                           struct mist_trace_set *set,
                                           struct mist_err *err);
typedef void write_rows_function(struct mist_csv_writer *writer,
                                 const struct mist_trace_set *set);

static const struct {
    const struct mist_csv_column *columns;
    size_t n_columns;
    read_row_function *read_row;
    write_rows_function *write_rows;
} TABLES[] = {
    [MIST_TRACE_TABLE_KERNELS] = {KERNEL_COLUMNS, N_KERNEL_COLUMNS, read_kernel,
                                  write_kernels},
    [MIST_TRACE_TABLE_LINKS] = {LINK_COLUMNS, N_LINK_COLUMNS, read_link, write_links},
    [MIST_TRACE_TABLE_INTERFERENCE] = {INTERFERENCE_COLUMNS, N_INTERFERENCE_COLUMNS,
                                       read_interference, write_interferences},
    [MIST_TRACE_TABLE_CHECKS] = {CHECK_COLUMNS, N_CHECK_COLUMNS, read_check,
                                 write_checks},
};

/* A table whose end was lost between two rows looks whole but for their number. */
static enum mist_status check_n_rows(const struct mist_csv *csv, int64_t n_expected,
                                     struct mist_err *err)
{
    size_t n = mist_csv_n_rows(csv);

    if (n_expected < 0 || n == (size_t)n_expected)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, mist_csv_path(csv),
                       n > 0 ? mist_csv_line(csv, n - 1) : 1, 0,
                       "the file ends after %zu rows, expected %" PRId64
                       " as \"rows\" of cluster.json says: was it cut? After an edit by "
                       "hand put %zu there, or leave \"rows\" out",
                       n, n_expected, n);
}

enum mist_status mist_trace_table_load(enum mist_trace_table table, const char *path,
                                       int64_t n_rows, struct mist_trace_set *set,
                                       struct mist_err *err)
{
    struct mist_csv *csv = NULL;
    enum mist_status status =
        mist_csv_load(path, TABLES[table].columns, TABLES[table].n_columns, &csv, err);

    for (size_t i = 0; status == MIST_OK && i < mist_csv_n_rows(csv); i++)
        status = TABLES[table].read_row(csv, i, set, err);
    if (status == MIST_OK)
        status = check_n_rows(csv, n_rows, err);
    mist_csv_free(csv);
    return status;
}

size_t mist_trace_table_n_rows(enum mist_trace_table table,
                               const struct mist_trace_set *set)
{
    const size_t n_rows[MIST_N_TRACE_TABLES] = {
        [MIST_TRACE_TABLE_KERNELS] = set->n_kernels,
        [MIST_TRACE_TABLE_LINKS] = set->n_links,
        [MIST_TRACE_TABLE_INTERFERENCE] = set->n_interferences,
        [MIST_TRACE_TABLE_CHECKS] = set->n_checks,
    };

    return n_rows[table];
}

enum mist_status mist_trace_table_save(enum mist_trace_table table, const char *path,
                                       const struct mist_trace_set *set, bool overwrite,
                                       struct mist_err *err)
{
    struct mist_csv_writer writer = {0};
    const char *names[MAX_COLUMNS];
    enum mist_status status;

    for (size_t i = 0; i < TABLES[table].n_columns; i++)
        names[i] = TABLES[table].columns[i].name;
    status = mist_csv_writer_open(&writer, path, overwrite, names,
                                  TABLES[table].n_columns, err);
    if (status != MIST_OK)
        return status;
    TABLES[table].write_rows(&writer, set);
    return mist_csv_writer_commit(&writer, err);
}
