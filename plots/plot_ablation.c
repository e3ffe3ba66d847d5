/* The picture of mist-tune --ablate: a bar for each group of knobs. */
#include "core/parse.h"
#include "plots/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define ROW_PIXELS 95 /* or more where names are long */

enum { ADDED, ITERATION, BAR, SPEEDUP, SEARCH, N_COLUMNS };

static const struct mist_plot_column columns[N_COLUMNS] = {
    [ADDED] = MIST_PLOT_WORDS("added", 40, MIST_PLOT_NEEDED),
    [ITERATION] =
        MIST_PLOT_NUMBER("iteration_s", DBL_MIN, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [BAR] = MIST_PLOT_NUMBER("error_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [SPEEDUP] = MIST_PLOT_NUMBER("speedup", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [SEARCH] = MIST_PLOT_NUMBER("search_s", 0, DBL_MAX, MIST_PLOT_NEEDED),
};

/* The upper end of a row's error bar; 0: no plan fits. */
static double top_s(const struct mist_plot_table *table, size_t i)
{
    return fmax(0, mist_plot_number(table, i, ITERATION) +
                       fmax(0, mist_plot_number(table, i, BAR)));
}

/* Above a bar; the terminal is too narrow for the time of the search. */
static void write_label(const struct mist_plot_picture *at, size_t i, double scale)
{
    char search[MIST_FORMAT_BYTES], speedup[32] = "none fits";

    mist_format_time_s(search, sizeof search, mist_plot_number(at->table, i, SEARCH));
    if (top_s(at->table, i) > 0)
        snprintf(speedup, sizeof speedup, "%.2fx",
                 mist_plot_number(at->table, i, SPEEDUP));
    fprintf(at->stream,
            "set label %zu '%s%s%s' at %zu, %.9g center offset 0, 1 font ',8'\n", i + 1,
            speedup, at->is_text ? "" : ", ", at->is_text ? "" : search, i + 1,
            top_s(at->table, i) * scale);
}

/* Of a row, in letters' heights or, in the terminal, columns. */
static double widest_name(const struct mist_plot_picture *at)
{
    double most = 0;

    for (size_t i = 0; i < at->table->n; i++) {
        const char *name = mist_plot_text(at->table, i, ADDED);
        most =
            fmax(most, at->is_text ? (double)strlen(name) : mist_plot_text_em(name) + 2);
    }
    return most;
}

/* Below the bars; is_staggered: every other one a line lower. */
static void write_names(const struct mist_plot_picture *at, bool is_staggered)
{
    fprintf(at->stream, "is_staggered = %d\nset xtics (", is_staggered);
    for (size_t i = 0; i < at->table->n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", i > 0 && !at->is_text ? "+ " : "",
                 mist_plot_text(at->table, i, ADDED));
        mist_plot_write_tic(at->stream, i, is_staggered && i % 2 ? "" : name);
    }
    fputs(")\n", at->stream);
    for (size_t i = 1; i < at->table->n && is_staggered; i += 2) {
        fprintf(at->stream, "set label %zu ", at->table->n + i);
        mist_plot_write_quoted(at->stream, mist_plot_text(at->table, i, ADDED));
        fprintf(at->stream, " at %zu, graph 0 center offset 0, -3\n", i + 1);
    }
}

static enum mist_status write_ablation(const struct mist_plot_picture *at,
                                       struct mist_err *err)
{
    const struct mist_plot_table *table = at->table;
    int n = (int)table->n;
    int room = at->options->n_text_columns - 11;
    bool is_staggered = at->is_text && n * (widest_name(at) + 1) > room;
    /* letters are narrower than their widest, in the mean */
    int row = (int)fmax(ROW_PIXELS, 0.75 * widest_name(at) * mist_plot_em_pixels(9));
    const struct mist_plot_page page =
        at->is_text
            ? (struct mist_plot_page){0, at->options->n_text_rows, 9, 2,
                                      4, 5 + is_staggered}
            : (struct mist_plot_page){110 + row * (n > 5 ? n : 5), 470, 90, 25, 56, 68};
    double high_s = 0;

    (void)err;
    for (size_t i = 0; i < table->n; i++)
        high_s = fmax(high_s, top_s(table, i));
    struct mist_plot_axis axis = mist_plot_time_axis(high_s);
    mist_plot_write_page(at, &page);
    fprintf(at->stream, "time_unit = '%s'\nn_rows = %d\nhigh = %.9g\n", axis.unit, n,
            (high_s > 0 ? 1.15 * high_s : 1) * axis.scale);
    write_names(at, is_staggered);
    for (size_t i = 0; i < table->n; i++)
        write_label(at, i, axis.scale);
    fputs("$points << END\n", at->stream);
    for (size_t i = 0; i < table->n; i++)
        mist_plot_write_numbers(
            at->stream, 3,
            (double[]){(double)i + 1, mist_plot_number(table, i, ITERATION) * axis.scale,
                       mist_plot_number(table, i, BAR) * axis.scale});
    fputs("-9 0 0\nEND\n", at->stream);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_ablation = {
    .title = "The best plan, group by group",
    .from = "mist-tune --ablate --csv",
    .columns = columns,
    .n_columns = N_COLUMNS,
    .max_rows = 32,
    .takes_others = true,
    .write_table = write_ablation,
};
