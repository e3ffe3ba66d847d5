/* The picture of how far predictions are off, run by run. See plot.h. */
#include "core/csv.h"
#include "core/escape.h"
#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AXIS_PIXELS   420
#define ROW_PIXELS    19
#define ENDS_PIXELS   130 /* title, axis and key */
#define BOTTOM_PIXELS 80
#define GAP_PIXELS    14
#define POINTS        8 /* size of the letters of names and notes */
#define LIMIT         15.0
#define MAX_ROWS      200
#define MAX_TEXT      120

struct row {
    char name[MIST_ESCAPED_BYTES(MAX_TEXT)];
    char note[MIST_ESCAPED_BYTES(MAX_TEXT) + 16]; /* behind the error */
    double error, bar;                            /* percent */
};

static enum mist_status read_text(const struct mist_csv *csv, size_t i_row,
                                  size_t i_column, char *out, struct mist_err *err)
{
    const char *text = mist_csv_text(csv, i_row, i_column);

    if (strlen(text) >= MAX_TEXT)
        return mist_csv_fail(csv, i_row, i_column, err,
                             "is too long, expected fewer than %d bytes", MAX_TEXT);
    mist_escape(text, out);
    return MIST_OK;
}

static enum mist_status read_row(const struct mist_csv *csv, size_t i, struct row *row,
                                 struct mist_err *err)
{
    double predicted_s = 0, measured_s = 1, bar_s = 0;
    enum mist_status status = read_text(csv, i, 0, row->name, err);

    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i, 1, DBL_MIN, DBL_MAX, &predicted_s, err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i, 2, DBL_MIN, DBL_MAX, &measured_s, err);
    if (status == MIST_OK && mist_csv_text(csv, i, 3)[0])
        status = mist_csv_get_double(csv, i, 3, 0, DBL_MAX, &bar_s, err);
    row->error = 100 * (predicted_s / measured_s - 1);
    row->bar = 100 * bar_s / measured_s;
    mist_format_percent(row->note, 16, fmin(row->error, 1e6), 0, true);
    strcat(row->note, "  ");
    return status == MIST_OK ? read_text(csv, i, 4, row->note + strlen(row->note), err)
                             : status;
}

/* rows: owned by the caller also after a failure. */
static enum mist_status read_rows(const char *path, struct row **rows, size_t *n,
                                  struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        {"plan", MIST_CSV_REQUIRED},       {"predicted_s", MIST_CSV_REQUIRED},
        {"measured_s", MIST_CSV_REQUIRED}, {"error_bar_s", MIST_CSV_OPTIONAL},
        {"note", MIST_CSV_OPTIONAL},
    };
    struct mist_csv *csv = NULL;
    enum mist_status status = mist_csv_load(path, columns, 5, &csv, err);

    if (status != MIST_OK)
        return status;
    *n = mist_csv_n_rows(csv);
    *rows = calloc(*n + 1, sizeof **rows);
    if (*n == 0 || *n > MAX_ROWS)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %zu rows, expected 1 to %d", *n, MAX_ROWS);
    else if (!*rows)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu rows", *n);
    for (size_t i = 0; i < *n && status == MIST_OK; i++)
        status = read_row(csv, i, &(*rows)[i], err);
    mist_csv_free(csv);
    return status;
}

/* The widest of some texts, in pixels. */
static double widest(const struct row *rows, size_t n, bool of_notes)
{
    double em = 0;

    for (size_t i = 0; i < n; i++)
        em = fmax(em, mist_plot_text_em(of_notes ? rows[i].note : rows[i].name));
    return em * mist_plot_em_pixels(POINTS);
}

static void write_settings(FILE *stream, const struct row *rows, size_t n,
                           enum mist_plot_format format, double left, double width)
{
    double sum = 0, worst = 0, most = LIMIT;
    size_t n_inside = 0;

    for (size_t i = 0; i < n; i++) {
        sum += fabs(rows[i].error);
        worst = fmax(worst, fabs(rows[i].error));
        most = fmax(most, fmin(fabs(rows[i].error) + rows[i].bar, 100));
        n_inside += fabs(rows[i].error) <= LIMIT;
    }
    fprintf(
        stream,
        "summary = 'predicted time against measured (%%); off by %.1f %% in the mean, "
        "%.1f %% at worst, %zu of %zu within %.0f %%'\n",
        sum / (double)n, worst, n_inside, n, LIMIT);
    fprintf(stream, "n_rows = %zu\nlimit = %.0f\nhas_band = %d\n", n,
            5 * ceil(fmax(most, worst) / 5 + 0.2), format != MIST_PLOT_TEXT);
    fprintf(stream, "bottom_edge = %.5f\n",
            (double)BOTTOM_PIXELS / (ENDS_PIXELS + ROW_PIXELS * (double)n));
    fprintf(stream, "left_edge = %.5f\nright_edge = %.5f\n",
            format == MIST_PLOT_TEXT ? 0.35 : left / width,
            format == MIST_PLOT_TEXT ? 0.97 : (left + AXIS_PIXELS) / width);
}

static void write_rows(FILE *stream, const struct row *rows, size_t n,
                       enum mist_plot_format format)
{
    fputs("set ytics (", stream);
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stream);
        mist_plot_write_quoted(stream, rows[i].name);
        fprintf(stream, " %zu", i + 1);
    }
    fprintf(stream, ") font ',%d'\n", POINTS);
    for (size_t i = 0; i < n && format != MIST_PLOT_TEXT; i++) {
        fprintf(stream, "set label %zu ", i + 1);
        mist_plot_write_quoted(stream, rows[i].note);
        fprintf(stream,
                " at graph 1, first %zu left offset 1, 0 font ',%d' textcolor rgb "
                "'#444444'\n",
                i + 1, POINTS);
    }
    fputs("$points << END\n", stream);
    for (size_t i = 0; i < n; i++)
        fprintf(stream, "%zu %.6g %.6g %d\n", i + 1, rows[i].error, rows[i].bar,
                fabs(rows[i].error) <= LIMIT);
    fputs("END\n", stream);
}

enum mist_status mist_plot_write_errors(FILE *stream, const char *path,
                                        const struct mist_plot_options *options,
                                        enum mist_plot_format format,
                                        struct mist_err *err)
{
    struct row *rows = NULL;
    size_t n = 0;
    enum mist_status status = read_rows(path, &rows, &n, err);

    if (status == MIST_OK) {
        double left = widest(rows, n, false) + 2 * GAP_PIXELS;
        double width = left + AXIS_PIXELS + widest(rows, n, true) + 2 * GAP_PIXELS;
        mist_plot_write_head(stream, format, options, (int)width,
                             ENDS_PIXELS + ROW_PIXELS * (int)n);
        mist_plot_write_title(stream, format, options, "How far predictions are off",
                              (int)width, 10);
        write_settings(stream, rows, n, format, left, width);
        write_rows(stream, rows, n, format);
        fputs(mist_script_errors, stream);
    }
    free(rows);
    return status;
}
