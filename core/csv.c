/*
 * Strict reading of CSV over libcsv. See csv.h; writing is in csv_write.c.
 *
 * The text goes to libcsv line by line. That gives every row its line, and shows a quote
 * that stays open while it is still near its row.
 */
#include "core/csv.h"

#include "core/memory.h"
#include "core/packed_file.h"
#include "core/parse.h"

#include <csv.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define FILE_BYTES_MAX   ((size_t)4 << 30)
#define ROW_BYTES_MAX    ((size_t)1 << 20) /* also bounds what an open quote can swallow */
#define PIECE_BYTES      ((size_t)1 << 18) /* of a file that is read row by row */
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
    struct csv_parser parser;
    struct mist_csv *csv;
    struct mist_err *err;
    enum mist_status status; /* first failure; nothing happens after it */
    long line;               /* fed last */
    long row_line;           /* where the current row begins */
    size_t row_bytes;        /* of its lines so far */
    size_t row_cells;        /* its first cell */
    bool is_between;         /* no row has begun */
    mist_csv_visitor
        *visit; /* of each row, which is then forgotten; NULL: all are kept */
    void *context;
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

enum mist_status mist_csv_locate(const struct mist_csv *csv, size_t i_row,
                                 enum mist_status status, struct mist_err *err)
{
    if (status != MIST_OK)
        mist_err_locate(err, csv->path, csv->rows[i_row + 1].line);
    return status;
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

    for (size_t i = 0; i < csv->n_columns; i++)
        mist_text_add(names, sizeof names, ", ", "%s", csv->columns[i].name);
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

static bool takes_others(const struct mist_csv *csv)
{
    return strcmp(csv->columns[csv->n_columns - 1].name, "*") == 0;
}

static enum mist_status map_columns(struct mist_csv *csv, struct mist_err *err)
{
    long line = csv->rows[0].line;

    for (size_t k = 0; k < csv->n_file; k++) {
        const char *name = file_cell(csv, 0, k);
        size_t i = 0;
        while (i < csv->n_columns && strcmp(csv->columns[i].name, name) != 0)
            i++;
        if (i == csv->n_columns && takes_others(csv))
            continue;
        if (i == csv->n_columns)
            return unknown_column(csv, name, line, err);
        if (csv->i_file[i] != ABSENT)
            return mist_err_at(err, MIST_ERR_INPUT, csv->path, line, 0,
                               "column \"%s\" is there twice", name);
        csv->i_file[i] = k;
    }
    for (size_t i = 0; i < csv->n_columns; i++) {
        if (csv->i_file[i] != ABSENT || csv->columns[i].need != MIST_CSV_REQUIRED)
            continue;
        for (size_t k = 0; k < csv->n_file; k++) /* among others, in another unit */
            if (find_other_unit(csv, file_cell(csv, 0, k)) == &csv->columns[i])
                return unknown_column(csv, file_cell(csv, 0, k), line, err);
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
    } else if (reader->visit) {
        reader->status = reader->visit(csv, reader->context, reader->err);
        csv->n_rows = 1;
        csv->n_cells = reader->row_cells;
        csv->n_text = csv->cells[reader->row_cells];
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

static enum mist_status parser_error(struct reader *reader)
{
    int code = csv_error(&reader->parser);

    if (code == CSV_ENOMEM || code == CSV_ETOOBIG)
        return mist_err_memory(reader->err, reader->csv->path);
    return mist_err_at(
        reader->err, MIST_ERR_INPUT, reader->csv->path, reader->line, 0,
        "a quote stands inside a cell that is not quoted, or a quoted cell "
        "goes on behind its end");
}

static enum mist_status open_quote(const struct reader *reader)
{
    return mist_err_at(reader->err, MIST_ERR_INPUT, reader->csv->path, reader->row_line,
                       0, "a quote is opened in this row and not closed");
}

/* True when a row stands behind the last end of line: who writes a table ends its rows,
 * so that this is how one looks that was cut inside of its last number. */
static bool is_cut(const char *line, size_t n)
{
    return line[n - 1] != '\n' && line[n - 1] != '\r' && !is_blank(line, n);
}

/* Feeds the next line to the parser. */
static enum mist_status feed_line(struct reader *reader, const char *text, size_t length)
{
    const char *path = reader->csv->path;

    reader->line++;
    if (reader->is_between) {
        reader->row_line = reader->line;
        reader->row_bytes = 0;
    }
    reader->row_bytes += length;
    if (memchr(text, '\0', length))
        return mist_err_at(reader->err, MIST_ERR_INPUT, path, reader->line, 0,
                           "a zero byte: this is no text");
    if (reader->row_bytes > ROW_BYTES_MAX)
        return open_quote(reader);
    if (is_cut(text, length))
        return mist_err_at(reader->err, MIST_ERR_INPUT, path, reader->line, 0,
                           "the file ends inside of this row: it was cut, or the row "
                           "was written without a newline at its end");
    reader->is_between = reader->is_between && is_blank(text, length);
    if (csv_parse(&reader->parser, text, length, add_cell, end_row, reader) != length)
        return parser_error(reader);
    return reader->status;
}

/* Feeds the whole lines of text; *used: their bytes. */
static enum mist_status feed_lines(struct reader *reader, const char *text, size_t n,
                                   size_t *used)
{
    enum mist_status status = MIST_OK;
    const char *newline = text;

    *used = 0;
    if (reader->line == 0 && n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        *used = 3; /* byte order mark */
    while (status == MIST_OK && (newline = memchr(text + *used, '\n', n - *used))) {
        size_t length = (size_t)(newline - text) + 1 - *used;
        status = feed_line(reader, text + *used, length);
        *used += length;
    }
    return status;
}

/* Feeds the n bytes of the last line, and ends. */
static enum mist_status feed_end(struct reader *reader, const char *text, size_t n)
{
    enum mist_status status = n > 0 ? feed_line(reader, text, n) : MIST_OK;

    if (status != MIST_OK)
        return status;
    if (csv_fini(&reader->parser, add_cell, end_row, reader) != 0)
        return csv_error(&reader->parser) == CSV_EPARSE ? open_quote(reader)
                                                        : parser_error(reader);
    if (reader->status == MIST_OK && reader->csv->n_file == 0)
        return mist_err_at(
            reader->err, MIST_ERR_INPUT, reader->csv->path, 1, 0,
            "is empty: expected a header row with the names of the columns");
    return reader->status;
}

/* Feeds a file piece by piece; what a piece has of a line stays for the next one. */
static enum mist_status feed_file(struct reader *reader, const char *path,
                                  struct mist_progress *progress)
{
    struct mist_packed_file file;
    enum mist_status status = mist_packed_file_open(&file, path, reader->err);
    size_t n = 0, capacity = 0, used, got = PIECE_BYTES;
    char *text = NULL;

    while (status == MIST_OK && got == PIECE_BYTES) {
        if (!MIST_RESERVE(text, capacity, n + PIECE_BYTES))
            status = mist_err_memory(reader->err, path);
        if (status == MIST_OK)
            status =
                mist_packed_file_read(&file, text + n, PIECE_BYTES, &got, reader->err);
        if (status != MIST_OK)
            break;
        status = feed_lines(reader, text, n + got, &used);
        n += got - used;
        memmove(text, text + used, n);
        if (status == MIST_OK && n > ROW_BYTES_MAX)
            status = feed_line(reader, text, n); /* which is too long */
        if (progress)
            mist_progress_update(progress, mist_packed_file_done(&file), file.n_bytes);
    }
    if (status == MIST_OK)
        status = feed_end(reader, text, n);
    free(text);
    mist_packed_file_close(&file);
    return status;
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

/* Ready to be fed. */
static enum mist_status begin(struct reader *reader, const char *path,
                              const struct mist_csv_column *columns, size_t n_columns,
                              struct mist_err *err)
{
    reader->csv = new_table(path, columns, n_columns);
    reader->err = err;
    reader->is_between = true;
    if (reader->csv && csv_init(&reader->parser, CSV_STRICT | CSV_STRICT_FINI) == 0)
        return MIST_OK;
    mist_csv_free(reader->csv);
    return mist_err_memory(err, path);
}

enum mist_status mist_csv_load_text(const char *path, const char *text, size_t n,
                                    const struct mist_csv_column *columns,
                                    size_t n_columns, struct mist_csv **out,
                                    struct mist_err *err)
{
    struct reader reader = {0};
    size_t used;
    enum mist_status status = begin(&reader, path, columns, n_columns, err);

    if (status != MIST_OK)
        return status;
    status = feed_lines(&reader, text, n, &used);
    if (status == MIST_OK)
        status = feed_end(&reader, text + used, n - used);
    csv_free(&reader.parser);
    if (status != MIST_OK)
        mist_csv_free(reader.csv);
    else
        *out = reader.csv;
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

enum mist_status mist_csv_visit(const char *path, const struct mist_csv_column *columns,
                                size_t n_columns, mist_csv_visitor *visit, void *context,
                                struct mist_progress *progress, struct mist_err *err)
{
    struct reader reader = {.visit = visit, .context = context};
    enum mist_status status = begin(&reader, path, columns, n_columns, err);

    if (status != MIST_OK)
        return status;
    status = feed_file(&reader, path, progress);
    csv_free(&reader.parser);
    mist_csv_free(reader.csv);
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

bool mist_csv_has(const struct mist_csv *csv, size_t i_column)
{
    return csv->i_file[i_column] != ABSENT;
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
    if (value < min && min == DBL_MIN)
        return mist_csv_fail(csv, i_row, i_column, err, "%g is not above 0", value);
    if (value < min && max == DBL_MAX)
        return mist_csv_fail(csv, i_row, i_column, err, "%g is below %g", value, min);
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
    int i = mist_word_find(choices, text);
    char list[256];

    if (i < 0)
        return mist_csv_fail(csv, i_row, i_column, err, "'%.60s' is none of %s", text,
                             mist_words_list(choices, list, sizeof list));
    *out = i;
    return MIST_OK;
}
