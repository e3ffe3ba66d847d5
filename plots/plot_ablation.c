/* The picture of mist-tune --ablate. See plot.h. */
#include "core/csv.h"
#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define HEIGHT     460 /* pixels */
#define ROW_PIXELS 95
#define MAX_ROWS   32

enum { ADDED, KIND, ITERATION, BAR, GAIN, SPEEDUP, PEAK, SEARCH, N_COLUMNS };

struct row {
    char name[64], label[64];
    double time_s, bar_s; /* NAN: no plan fits */
};

static enum mist_status read_row(const struct mist_csv *csv, size_t i, struct row *row,
                                 struct mist_err *err)
{
    char search[MIST_FORMAT_BYTES];
    double speedup = 0, search_s = 0;
    bool fits = mist_csv_text(csv, i, ITERATION)[0] != '\0';
    enum mist_status status = MIST_OK;

    row->time_s = row->bar_s = NAN;
    if (strlen(mist_csv_text(csv, i, ADDED)) > 40)
        return mist_csv_fail(csv, i, ADDED, err, "is too long for the name of a group");
    snprintf(row->name, sizeof row->name, "%s%s", i > 0 ? "+ " : "",
             mist_csv_text(csv, i, ADDED));
    if (fits)
        status =
            mist_csv_get_double(csv, i, ITERATION, DBL_MIN, DBL_MAX, &row->time_s, err);
    if (fits && status == MIST_OK)
        status = mist_csv_get_double(csv, i, BAR, 0, DBL_MAX, &row->bar_s, err);
    if (fits && status == MIST_OK)
        status = mist_csv_get_double(csv, i, SPEEDUP, 0, DBL_MAX, &speedup, err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i, SEARCH, 0, DBL_MAX, &search_s, err);
    mist_format_time_s(search, sizeof search, search_s);
    if (fits)
        snprintf(row->label, sizeof row->label, "%.2fx, %s", speedup, search);
    else
        snprintf(row->label, sizeof row->label, "none fits, %s", search);
    return status;
}

static enum mist_status read_rows(const char *path, struct row rows[MAX_ROWS], size_t *n,
                                  struct mist_err *err)
{
    static const struct mist_csv_column columns[N_COLUMNS] = {
        [ADDED] = {"added", MIST_CSV_REQUIRED},
        [KIND] = {"kind", MIST_CSV_OPTIONAL},
        [ITERATION] = {"iteration_s", MIST_CSV_REQUIRED},
        [BAR] = {"error_s", MIST_CSV_REQUIRED},
        [GAIN] = {"gain_frac", MIST_CSV_OPTIONAL},
        [SPEEDUP] = {"speedup", MIST_CSV_REQUIRED},
        [PEAK] = {"peak_bytes", MIST_CSV_OPTIONAL},
        [SEARCH] = {"search_s", MIST_CSV_REQUIRED},
    };
    struct mist_csv *csv = NULL;
    enum mist_status status = mist_csv_load(path, columns, N_COLUMNS, &csv, err);

    if (status != MIST_OK)
        return status;
    *n = mist_csv_n_rows(csv);
    if (*n == 0 || *n > MAX_ROWS)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %zu rows, expected 1 to %d", *n, MAX_ROWS);
    for (size_t i = 0; i < *n && status == MIST_OK; i++)
        status = read_row(csv, i, &rows[i], err);
    mist_csv_free(csv);
    return status;
}

enum mist_status mist_plot_write_ablation(FILE *stream, const char *path,
                                          const struct mist_plot_options *options,
                                          enum mist_plot_format format,
                                          struct mist_err *err)
{
    struct row rows[MAX_ROWS];
    size_t n = 0;
    double high_s = 0;
    bool is_text = format == MIST_PLOT_TEXT;
    enum mist_status status = read_rows(path, rows, &n, err);

    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < n; i++)
        high_s =
            fmax(high_s, isfinite(rows[i].time_s) ? rows[i].time_s + rows[i].bar_s : 0);
    struct mist_plot_axis axis = mist_plot_time_axis(high_s);
    int width = 110 + ROW_PIXELS * (int)(n > 4 ? n : 4);
    mist_plot_write_head(stream, format, options, width, HEIGHT);
    mist_plot_write_title(stream, format, options, "The best plan, group by group", width,
                          10);
    fprintf(stream, "is_text = %d\n", is_text);
    fprintf(stream, "time_unit = '%s'\nn_rows = %zu\nhigh = %.9g\nset xtics (", axis.unit,
            n, (high_s > 0 ? 1.15 * high_s : 1) * axis.scale);
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stream);
        mist_plot_write_quoted(stream, rows[i].name + (is_text && i > 0 ? 2 : 0));
        fprintf(stream, " %zu", i + 1);
    }
    fputs(") font ',9'\n", stream);
    for (size_t i = 0; i < n; i++) {
        double top_s = isfinite(rows[i].time_s) ? rows[i].time_s + rows[i].bar_s : 0;
        fprintf(stream, "set label %zu ", i + 1);
        if (is_text) /* too narrow for the time of the search */
            rows[i].label[strcspn(rows[i].label, ",")] = '\0';
        mist_plot_write_quoted(stream, rows[i].label);
        fprintf(stream, " at %zu, %.9g center offset 0, 1 font ',8'\n", i + 1,
                top_s * axis.scale);
    }
    fputs("$points << END\n", stream);
    for (size_t i = 0; i < n; i++)
        if (isfinite(rows[i].time_s))
            fprintf(stream, "%zu %.9g %.9g\n", i + 1, rows[i].time_s * axis.scale,
                    rows[i].bar_s * axis.scale);
    fprintf(stream, "-9 0 0\nEND\n%s", mist_script_ablation);
    return MIST_OK;
}
