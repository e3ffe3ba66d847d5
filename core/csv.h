/*
 * Strict CSV over libcsv: tables with a header row and a unit in every column name.
 *
 * The reader knows which columns to expect; they may stand in any order. Missing, unknown
 * and duplicate columns, rows of another length, an open quote, a last row without an end
 * of line (the file was cut) and a column with another unit than the expected one
 * (time_ms for time_us) are errors with file and line. libcsv runs in its strict modes,
 * fed line by line, since by default one open quote swallows a whole file and reports
 * success. Blanks around an unquoted cell do not count.
 * A table is kept in memory, or read row by row.
 */
#ifndef MIST_CORE_CSV_H
#define MIST_CORE_CSV_H

#include "core/atomic_file.h"
#include "core/progress.h"
#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_csv_need { MIST_CSV_REQUIRED, MIST_CSV_OPTIONAL };

struct mist_csv_column {
    const char *name;        /* "time_us" */
    enum mist_csv_need need; /* an optional column may be absent: its cells are empty */
};

struct mist_csv; /* a loaded table */

/*
 * columns (borrowed; must outlive the table): i_column of the calls below is an index
 * into it. A last one named "*", optional, lets the file have others, which are left alone.
 * Returns MIST_OK with *out owned by the caller; MIST_ERR_IO, MIST_ERR_INPUT (a table with
 * a header alone is fine, an empty file is not), MIST_ERR_MEMORY.
 */
enum mist_status mist_csv_load(const char *path, const struct mist_csv_column *columns,
                               size_t n_columns, struct mist_csv **out,
                               struct mist_err *err) MIST_MUST_CHECK;

/* The same from n bytes of text (not kept); path only names it in messages. */
enum mist_status mist_csv_load_text(const char *path, const char *text, size_t n,
                                    const struct mist_csv_column *columns,
                                    size_t n_columns, struct mist_csv **out,
                                    struct mist_err *err) MIST_MUST_CHECK;
void mist_csv_free(struct mist_csv *csv); /* NULL allowed */

/* Gets a table that has one row, row 0, which is gone after the call; anything but MIST_OK
 * ends the reading. */
typedef enum mist_status mist_csv_visitor(const struct mist_csv *csv, void *context,
                                          struct mist_err *err);

/* Reads a file of any length row by row, in the memory of its longest row. progress may be
 * NULL. Returns the visitor's status, or as mist_csv_load(): rows before a mistake have
 * been visited. */
enum mist_status mist_csv_visit(const char *path, const struct mist_csv_column *columns,
                                size_t n_columns, mist_csv_visitor *visit, void *context,
                                struct mist_progress *progress,
                                struct mist_err *err) MIST_MUST_CHECK;

size_t mist_csv_n_rows(const struct mist_csv *csv);             /* without the header */
const char *mist_csv_path(const struct mist_csv *csv);          /* as given */
bool mist_csv_has(const struct mist_csv *csv, size_t i_column); /* the file has it */
long mist_csv_line(const struct mist_csv *csv, size_t i_row);   /* where a row begins */

/* The cell's text, "" when empty or absent; lives as long as the table. */
const char *mist_csv_text(const struct mist_csv *csv, size_t i_row, size_t i_column);

/* Typed cells; an empty cell is an error (look at mist_csv_text first).
 * Ends of ranges included. */
enum mist_status mist_csv_get_int64(const struct mist_csv *csv, size_t i_row,
                                    size_t i_column, int64_t min, int64_t max,
                                    int64_t *out, struct mist_err *err) MIST_MUST_CHECK;
enum mist_status mist_csv_get_double(const struct mist_csv *csv, size_t i_row,
                                     size_t i_column, double min, double max, double *out,
                                     struct mist_err *err) MIST_MUST_CHECK;
enum mist_status
mist_csv_get_choice(const struct mist_csv *csv, size_t i_row, size_t i_column,
                    const char *const *choices, int *out,
                    struct mist_err *err) MIST_MUST_CHECK; /* NULL-terminated */

/* An error of the caller's own: MIST_ERR_INPUT at path:line, "column: message". */
enum mist_status mist_csv_fail(const struct mist_csv *csv, size_t i_row, size_t i_column,
                               struct mist_err *err, const char *format, ...)
    MIST_PRINTF(5, 6);

/* Gives an error without a place that of the row; returns status. */
enum mist_status mist_csv_locate(const struct mist_csv *csv, size_t i_row,
                                 enum mist_status status, struct mist_err *err);

/*
 * Writing, whole or not at all. Cells are added from left to right, then the row is
 * ended. The first failure is kept and reported by commit.
 */
struct mist_csv_writer {
    struct mist_atomic_file file;
    size_t n_columns;
    size_t i_column;         /* cells of the current row so far */
    enum mist_status status; /* first failure */
    struct mist_err err;     /* its message */
};

/* names: n_columns column names (read here only). Writes the header row.
 * Errors: atomic_file.h. */
enum mist_status mist_csv_writer_open(struct mist_csv_writer *writer, const char *path,
                                      bool force, const char *const *names,
                                      size_t n_columns,
                                      struct mist_err *err) MIST_MUST_CHECK;
void mist_csv_add_text(struct mist_csv_writer *writer,
                       const char *text); /* quoted if needed */
void mist_csv_add_int64(struct mist_csv_writer *writer, int64_t value);
void mist_csv_add_double(struct mist_csv_writer *writer,
                         double value);                /* not finite: an error */
void mist_csv_end_row(struct mist_csv_writer *writer); /* assert: n_columns cells */
enum mist_status mist_csv_writer_commit(struct mist_csv_writer *writer,
                                        struct mist_err *err) MIST_MUST_CHECK;
void mist_csv_writer_abort(
    struct mist_csv_writer *writer); /* zeroed or closed: nothing */

/*
 * One cell to any stream, quoted when it has a comma, quote, newline or blank at an end.
 */
void mist_csv_write_cell(const char *text, FILE *stream);

#endif
