/* The picture of mist-tune --ablate: a bar for each group of knobs. */
#include "core/parse.h"
#include "plots/internal.h"

#include <float.h>
#include <math.h>

#define ROW_PIXELS 95

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
    fprintf(at->stream, "set label %zu '%s%s%s' at %zu, %.9g center offset 0, 1\n", i + 1,
            speedup, at->is_text ? "" : ", ", at->is_text ? "" : search, i + 1,
            top_s(at->table, i) * scale);
}

static enum mist_status write_ablation(const struct mist_plot_picture *at,
                                       struct mist_err *err)
{
    const struct mist_plot_table *table = at->table;
    int n = (int)table->n;
    const struct mist_plot_page page =
        at->is_text ? (struct mist_plot_page){0, at->options->n_text_rows, 9, 2, 4, 5}
                    : (struct mist_plot_page){
                          110 + ROW_PIXELS * (n > 5 ? n : 5), 470, 90, 25, 56, 68};
    double high_s = 0;

    (void)err;
    for (size_t i = 0; i < table->n; i++)
        high_s = fmax(high_s, top_s(table, i));
    struct mist_plot_axis axis = mist_plot_time_axis(high_s);
    mist_plot_write_page(at, &page);
    fprintf(at->stream, "time_unit = '%s'\nn_rows = %d\nhigh = %.9g\nset xtics (",
            axis.unit, n, (high_s > 0 ? 1.15 * high_s : 1) * axis.scale);
    for (size_t i = 0; i < table->n; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s%s", i > 0 && !at->is_text ? "+ " : "",
                 mist_plot_text(table, i, ADDED));
        mist_plot_write_tic(at->stream, i, name);
    }
    fputs(")\n", at->stream);
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
    .columns = columns,
    .n_columns = N_COLUMNS,
    .max_rows = 32,
    .takes_others = true,
    .write_table = write_ablation,
};
