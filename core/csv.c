/*
 * Strict reading of CSV over libcsv. See csv.h; writing is in csv_write.c.
 *
 * The text goes to libcsv line by line. That gives every row its line, and shows a quote
 * that stays open while it is still near its row.
 */
#include "core/csv.h"

#include "core/memory.h"
#include "core/parse.h"

#include <csv.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX   ((size_t)4 << 30)
#define ROW_BYTES_MAX    ((size_t)1 << 20) /* also bounds what an open quote can swallow */
#define FILE_COLUMNS_MAX 256
#define ABSENT           SIZE_MAX

struct row {
    size_t cells; /* index of the row's first cell; cells are in the file's order */
    long line;    /* where the row begins */
};

struct mist_csv {
    const struct mist_csv_column *columns; /* borrowed */
    size_t n_columns;
    size_t *i_file; /* [n_columns] place of a column in the file's rows, or ABSENT */
    char *path;
    size_t n_file; /* columns of the file; 0 before the header is read */
    char *text;    /* all cells, each ended by '\0' */
    size_t n_text, text_capacity;
    size_t *cells; /* offsets into text */
    size_t n_cells, cells_capacity;
    struct row *rows; /* rows[0] is the header */
    size_t n_rows, rows_capacity;
};

/* What the callbacks of libcsv see. */
struct reader {
    struct mist_csv *csv;
    struct mist_err *err;
    enum mist_status status; /* first failure; nothing happens after it */
    long row_line;           /* where the current row begins */
    size_t row_cells;        /* its first cell */
    bool is_between;         /* no row has begun */
};

/* ---- errors ---- */

enum mist_status mist_csv_fail(const struct mist_csv *csv, size_t i_row, size_t i_column,
                               struct mist_err *err, const char *format, ...)
{
    char message[sizeof err->message];
    va_list args;

    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return mist_err_at(err, MIST_ERR_INPUT, csv->path, csv->rows[i_row + 1].line, 0,
                       "%.60s: %.400s", csv->columns[i_column].name, message);
}

/* ---- the header ---- */

/* Units at the end of column names, longest first where one ends with another. */
static const char *const units[] = {
    "_tflop_per_s", "_gflop_per_s", "_mflop_per_s", "_flop_per_s", "_gbytes_per_s",
    "_bytes_per_s", "_gib_per_s",   "_mib_per_s",   "_gb_per_s",   "_mb_per_s",
    "_gbit_per_s",  "_bit_per_s",   "_per_s",       "_bytes",      "_kib",
    "_mib",         "_gib",         "_tib",         "_kb",         "_mb",
    "_gb",          "_tb",          "_tflop",       "_gflop",      "_mflop",
    "_flop",        "_frac",        "_percent",     "_pct",        "_min",
    "_ms",          "_us",          "_ns",          "_s",          NULL};

/* Length of name without its unit; *unit is "" when it has none. */
static size_t split_unit(const char *name, const char **unit)
{
    size_t n = strlen(name);

    for (int i = 0; units[i]; i++) {
        size_t n_unit = strlen(units[i]);
        if (n > n_unit && strcmp(name + n - n_unit, units[i]) == 0) {
            *unit = name + n - n_unit + 1;
            return n - n_unit;
        }
    }
    *unit = "";
    return n;
}

/* The expected column that has name's stem but another unit; NULL when there is none. */
static const struct mist_csv_column *find_other_unit(const struct mist_csv *csv,
                                                     const char *name)
{
    const char *unit;
    const char *expected;
    size_t n = split_unit(name, &unit);

    for (size_t i = 0; i < csv->n_columns; i++) {
        size_t n_stem = split_unit(csv->columns[i].name, &expected);
        if (n_stem == n && expected[0] && strncmp(csv->columns[i].name, name, n) == 0)
            return &csv->columns[i];
    }
    return NULL;
}

static enum mist_status unknown_column(const struct mist_csv *csv, const char *name,
                                       long line, struct mist_err *err)
{
    const struct mist_csv_column *other = find_other_unit(csv, name);
    const char *unit;
    char names[300] = "";

    for (size_t i = 0, n = 0; i < csv->n_columns && n < sizeof names; i++)
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i > 0 ? ", " : "",
                              csv->columns[i].name);
    if (!other)
        return mist_err_at(err, MIST_ERR_INPUT, csv->path, line, 0,
                           "unknown column \"%.80s\", expected %s", name, names);
    split_unit(other->name, &unit);
    return mist_err_at(err, MIST_ERR_INPUT, csv->path, line, 0,
                       "column \"%.80s\": expected \"%s\" (in %s)", name, other->name,
                       unit);
}

static const char *file_cell(const struct mist_csv *csv, size_t i_row, size_t i_file)
{
    return csv->text + csv->cells[csv->rows[i_row].cells + i_file];
}

static enum mist_status map_columns(struct mist_csv *csv, struct mist_err *err)
{
    long line = csv->rows[0].line;

    for (size_t k = 0; k < csv->n_file; k++) {
        const char *name = file_cell(csv, 0, k);
        size_t i = 0;
        while (i < csv->n_columns && strcmp(csv->columns[i].name, name) != 0)
            i++;
        if (i == csv->n_columns)
            return unknown_column(csv, name, line, err);
        if (csv->i_file[i] != ABSENT)
            return mist_err_at(err, MIST_ERR_INPUT, csv->path, line, 0,
                               "column \"%s\" is there twice", name);
        csv->i_file[i] = k;
    }
    for (size_t i = 0; i < csv->n_columns; i++) {
        if (csv->i_file[i] == ABSENT && csv->columns[i].need == MIST_CSV_REQUIRED)
            return mist_err_at(err, MIST_ERR_INPUT, csv->path, line, 0,
                               "missing column \"%s\"", csv->columns[i].name);
    }
    return MIST_OK;
}

/* ---- callbacks of libcsv ---- */

static void add_cell(void *data, size_t n, void *context)
{
    struct reader *reader = context;
    struct mist_csv *csv = reader->csv;

    if (reader->status)
        return;
    if (csv->n_file == 0 && csv->n_cells == FILE_COLUMNS_MAX) {
        reader->status =
            mist_err_at(reader->err, MIST_ERR_INPUT, csv->path, reader->row_line, 0,
                        "more than %d columns", FILE_COLUMNS_MAX);
        return;
    }
    if (!MIST_RESERVE(csv->text, csv->text_capacity, csv->n_text + n + 1) ||
        !MIST_RESERVE(csv->cells, csv->cells_capacity, csv->n_cells + 1)) {
        reader->status = mist_err_memory(reader->err, csv->path);
        return;
    }
    if (n > 0)
        memcpy(csv->text + csv->n_text, data, n);
    csv->text[csv->n_text + n] = '\0';
    csv->cells[csv->n_cells++] = csv->n_text;
    csv->n_text += n + 1;
}

static void end_row(int separator, void *context)
{
    struct reader *reader = context;
    struct mist_csv *csv = reader->csv;
    size_t n = csv->n_cells - reader->row_cells;

    (void)separator;
    if (reader->status)
        return;
    if (!MIST_RESERVE(csv->rows, csv->rows_capacity, csv->n_rows + 1)) {
        reader->status = mist_err_memory(reader->err, csv->path);
        return;
    }
    csv->rows[csv->n_rows++] =
        (struct row){.cells = reader->row_cells, .line = reader->row_line};
    if (csv->n_file == 0) {
        csv->n_file = n;
        reader->status = map_columns(csv, reader->err);
    } else if (n != csv->n_file) {
        reader->status =
            mist_err_at(reader->err, MIST_ERR_INPUT, csv->path, reader->row_line, 0,
                        "%zu cells, expected %zu as in the header", n, csv->n_file);
    }
    reader->row_cells = csv->n_cells;
    reader->is_between = true;
}

/* ---- reading ---- */

static bool is_blank(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!strchr(" \t\r\n", text[i]))
            return false;
    }
    return true;
}

static enum mist_status parser_error(struct csv_parser *parser,
                                     const struct reader *reader, long line,
                                     struct mist_err *err)
{
    if (csv_error(parser) == CSV_ENOMEM || csv_error(parser) == CSV_ETOOBIG)
        return mist_err_memory(err, reader->csv->path);
    return mist_err_at(
        err, MIST_ERR_INPUT, reader->csv->path, line, 0,
        "a quote stands inside a cell that is not quoted, or a quoted cell "
        "goes on behind its end");
}

static enum mist_status open_quote(const struct reader *reader, struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_INPUT, reader->csv->path, reader->row_line, 0,
                       "a quote is opened in this row and not closed");
}

/* True when a row stands behind the last end of line: who writes a table ends its rows,
 * so that this is how one looks that was cut inside of its last number. */
static bool is_cut(const char *line, size_t n)
{
    return line[n - 1] != '\n' && line[n - 1] != '\r' && !is_blank(line, n);
}

/* Feeds the lines of text to parser. */
static enum mist_status feed(struct csv_parser *parser, struct reader *reader,
                             const char *text, size_t n, struct mist_err *err)
{
    size_t row_at = 0; /* where the current row begins */
    long line = 0;

    for (size_t at = 0; at < n;) {
        const char *newline = memchr(text + at, '\n', n - at);
        size_t length = newline ? (size_t)(newline - text) + 1 - at : n - at;
        line++;
        if (reader->is_between) {
            reader->row_line = line;
            row_at = at;
        }
        if (memchr(text + at, '\0', length))
            return mist_err_at(err, MIST_ERR_INPUT, reader->csv->path, line, 0,
                               "a zero byte: this is no text");
        if (at + length - row_at > ROW_BYTES_MAX)
            return open_quote(reader, err);
        if (is_cut(text + at, length))
            return mist_err_at(err, MIST_ERR_INPUT, reader->csv->path, line, 0,
                               "the file ends inside of this row: it was cut, or the row "
                               "was written without a newline at its end");
        reader->is_between = reader->is_between && is_blank(text + at, length);
        if (csv_parse(parser, text + at, length, add_cell, end_row, reader) != length)
            return parser_error(parser, reader, line, err);
        if (reader->status)
            return reader->status;
        at += length;
    }
    if (csv_fini(parser, add_cell, end_row, reader) != 0)
        return csv_error(parser) == CSV_EPARSE ? open_quote(reader, err)
                                               : parser_error(parser, reader, line, err);
    return reader->status;
}

static struct mist_csv *new_table(const char *path, const struct mist_csv_column *columns,
                                  size_t n_columns)
{
    struct mist_csv *csv = calloc(1, sizeof *csv);

    if (!csv)
        return NULL;
    csv->columns = columns;
    csv->n_columns = n_columns;
    csv->path = malloc(strlen(path) + 1);
    csv->i_file = malloc((n_columns + 1) * sizeof *csv->i_file);
    if (!csv->path || !csv->i_file) {
        mist_csv_free(csv);
        return NULL;
    }
    memcpy(csv->path, path, strlen(path) + 1);
    for (size_t i = 0; i < n_columns; i++)
        csv->i_file[i] = ABSENT;
    return csv;
}

enum mist_status mist_csv_load_text(const char *path, const char *text, size_t n,
                                    const struct mist_csv_column *columns,
                                    size_t n_columns, struct mist_csv **out,
                                    struct mist_err *err)
{
    struct csv_parser parser;
    struct mist_csv *csv = new_table(path, columns, n_columns);
    struct reader reader = {.csv = csv, .err = err, .is_between = true};

    if (!csv)
        return mist_err_memory(err, path);
    if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) {
        mist_csv_free(csv);
        return mist_err_memory(err, path);
    }
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* byte order mark */
        text += 3;
        n -= 3;
    }
    enum mist_status status = feed(&parser, &reader, text, n, err);
    if (!status && csv->n_file == 0)
        status =
            mist_err_at(err, MIST_ERR_INPUT, path, 1, 0,
                        "is empty: expected a header row with the names of the columns");
    csv_free(&parser);
    if (status)
        mist_csv_free(csv);
    else
        *out = csv;
    return status;
}

enum mist_status mist_csv_load(const char *path, const struct mist_csv_column *columns,
                               size_t n_columns, struct mist_csv **out,
                               struct mist_err *err)
{
    char *text;
    size_t n;
    enum mist_status status = mist_file_read_all(path, FILE_BYTES_MAX, &text, &n, err);

    if (status)
        return status;
    status = mist_csv_load_text(path, text, n, columns, n_columns, out, err);
    free(text);
    return status;
}

void mist_csv_free(struct mist_csv *csv)
{
    if (!csv)
        return;
    free(csv->rows);
    free(csv->cells);
    free(csv->text);
    free(csv->i_file);
    free(csv->path);
    free(csv);
}

/* ---- cells ---- */

size_t mist_csv_n_rows(const struct mist_csv *csv)
{
    return csv->n_rows - 1;
}

const char *mist_csv_path(const struct mist_csv *csv)
{
    return csv->path;
}

long mist_csv_line(const struct mist_csv *csv, size_t i_row)
{
    return csv->rows[i_row + 1].line;
}

const char *mist_csv_text(const struct mist_csv *csv, size_t i_row, size_t i_column)
{
    size_t i_file = csv->i_file[i_column];

    return i_file == ABSENT ? "" : file_cell(csv, i_row + 1, i_file);
}

enum mist_status mist_csv_get_int64(const struct mist_csv *csv, size_t i_row,
                                    size_t i_column, int64_t min, int64_t max,
                                    int64_t *out, struct mist_err *err)
{
    struct mist_err detail;
    int64_t value = 0;

    if (mist_parse_int64(mist_csv_text(csv, i_row, i_column), &value, &detail))
        return mist_csv_fail(csv, i_row, i_column, err, "%s", detail.message);
    if (value != min && min == max)
        return mist_csv_fail(csv, i_row, i_column, err, "%" PRId64 ", expected %" PRId64,
                             value, min);
    if (value < min || value > max)
        return mist_csv_fail(csv, i_row, i_column, err,
                             "%" PRId64 " is not within %" PRId64 " .. %" PRId64, value,
                             min, max);
    *out = value;
    return MIST_OK;
}

enum mist_status mist_csv_get_double(const struct mist_csv *csv, size_t i_row,
                                     size_t i_column, double min, double max, double *out,
                                     struct mist_err *err)
{
    struct mist_err detail;
    double value = 0;

    if (mist_parse_double(mist_csv_text(csv, i_row, i_column), &value, &detail))
        return mist_csv_fail(csv, i_row, i_column, err, "%s", detail.message);
    if (!(value >= min && value <= max))
        return mist_csv_fail(csv, i_row, i_column, err, "%g is not within %g .. %g",
                             value, min, max);
    *out = value;
    return MIST_OK;
}

enum mist_status mist_csv_get_choice(const struct mist_csv *csv, size_t i_row,
                                     size_t i_column, const char *const *choices,
                                     int *out, struct mist_err *err)
{
    const char *text = mist_csv_text(csv, i_row, i_column);
    char list[256] = "";

    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return MIST_OK;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", choices[i]);
    }
    return mist_csv_fail(csv, i_row, i_column, err, "'%.60s' is none of %s", text, list);
}
