/* Tables as pictures read them: texts and numbers of named columns. See internal.h. */
#include "plots/internal.h"

#include "core/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void mist_plot_table_fini(struct mist_plot_table *table)
{
    mist_csv_free(table->csv);
    free(table->numbers);
    *table = (struct mist_plot_table){0};
}

static enum mist_status read_cell(struct mist_plot_table *table, size_t i, size_t c,
                                  struct mist_err *err)
{
    const struct mist_plot_column *column = &table->columns[c];
    const char *text = mist_csv_text(table->csv, i, c);
    double *out = &table->numbers[i * table->n_columns + c];
    int64_t whole = 0;

    *out = NAN;
    if (!text[0] && column->need != MIST_PLOT_NEEDED)
        return MIST_OK;
    if (column->max_bytes > 0)
        return text[0] && strlen(text) <= (size_t)column->max_bytes
                   ? MIST_OK
                   : mist_csv_fail(table->csv, i, c, err, "expected 1 to %d bytes",
                                   column->max_bytes);
    if (!column->is_whole)
        return mist_csv_get_double(table->csv, i, c, column->min, column->max, out, err);
    enum mist_status status = mist_csv_get_int64(table->csv, i, c, (int64_t)column->min,
                                                 (int64_t)column->max, &whole, err);
    *out = (double)whole;
    return status;
}

/* Where columns are not those of the kind: what prints them. */
static void name_source(const struct mist_plot_kind *kind, struct mist_err *err)
{
    if (err && err->line == 1 && kind->from)
        mist_text_add(err->message, sizeof err->message, " ", "(the table is that of %s)",
                      kind->from);
}

enum mist_status mist_plot_table_load(struct mist_plot_table *table, const char *path,
                                      const struct mist_plot_kind *kind,
                                      struct mist_err *err)
{
    *table =
        (struct mist_plot_table){.columns = kind->columns, .n_columns = kind->n_columns};
    for (size_t c = 0; c < kind->n_columns; c++)
        table->csv_columns[c] = (struct mist_csv_column){
            kind->columns[c].name, kind->columns[c].need == MIST_PLOT_MAY_BE_ABSENT
                                       ? MIST_CSV_OPTIONAL
                                       : MIST_CSV_REQUIRED};
    table->csv_columns[kind->n_columns] =
        (struct mist_csv_column){"*", MIST_CSV_OPTIONAL};
    enum mist_status status = mist_csv_load(
        path, table->csv_columns, kind->n_columns + kind->takes_others, &table->csv, err);
    if (status == MIST_ERR_INPUT)
        name_source(kind, err);
    if (status != MIST_OK)
        return status;
    table->n = mist_csv_n_rows(table->csv);
    table->numbers = calloc(table->n * table->n_columns + 1, sizeof *table->numbers);
    if (!table->numbers)
        status = mist_err_memory(err, path);
    else if (table->n == 0)
        status =
            mist_err_at(err, MIST_ERR_INPUT, path, 0, 0, "has no rows, nothing to draw");
    else if (table->n > kind->max_rows)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %zu rows, expected %zu at most: too many for a picture",
                             table->n, kind->max_rows);
    for (size_t i = 0; i < table->n && status == MIST_OK; i++)
        for (size_t c = 0; c < table->n_columns && status == MIST_OK; c++)
            status = read_cell(table, i, c, err);
    return status;
}

/* ------------------------------------------------------------- what programs say of them */

void mist_plot_write_tic(FILE *stream, size_t i, const char *text)
{
    char format[1024]; /* gnuplot takes the text of a tic for a format */
    size_t n = 0;

    for (; *text && n + 2 < sizeof format; text++) {
        format[n++] = *text;
        if (*text == '%')
            format[n++] = '%';
    }
    format[n] = '\0';
    fputs(i > 0 ? ", " : "", stream);
    mist_plot_write_quoted(stream, format);
    fprintf(stream, " %zu", i + 1);
}

void mist_plot_write_item(FILE *stream, const char *array, size_t i, const char *text)
{
    fprintf(stream, "%s[%zu] = ", array, i + 1);
    mist_plot_write_quoted(stream, text);
    fputc('\n', stream);
}

void mist_plot_write_numbers(FILE *stream, size_t n, const double *values)
{
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? " " : "", stream);
        if (isfinite(values[i]))
            fprintf(stream, "%.9g", values[i]);
        else
            fputs("NaN", stream);
    }
    fputc('\n', stream);
}
