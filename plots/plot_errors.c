/* The picture of how far predictions are off, run by run. */
#include "core/parse.h"
#include "plots/internal.h"

#include <float.h>
#include <math.h>

#define AXIS_PIXELS 420
#define ROW_PIXELS  19
#define GAP_PIXELS  14
#define LIMIT       15.0

enum { PLAN, PREDICTED, MEASURED, BAR, NOTE, N_COLUMNS };

static const struct mist_plot_column columns[N_COLUMNS] = {
    [PLAN] = MIST_PLOT_WORDS("plan", 119, MIST_PLOT_MAY_BE_EMPTY),
    [PREDICTED] = MIST_PLOT_NUMBER("predicted_s", DBL_MIN, DBL_MAX, MIST_PLOT_NEEDED),
    [MEASURED] = MIST_PLOT_NUMBER("measured_s", DBL_MIN, DBL_MAX, MIST_PLOT_NEEDED),
    [BAR] = MIST_PLOT_NUMBER("error_bar_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_ABSENT),
    [NOTE] = MIST_PLOT_WORDS("note", 119, MIST_PLOT_MAY_BE_ABSENT),
};

/* Percent. */
static double error_of(const struct mist_plot_table *table, size_t i)
{
    return 100 *
           (mist_plot_number(table, i, PREDICTED) / mist_plot_number(table, i, MEASURED) -
            1);
}

static double bar_of(const struct mist_plot_table *table, size_t i)
{
    return 100 * fmax(0, mist_plot_number(table, i, BAR)) /
           mist_plot_number(table, i, MEASURED);
}

/* "+3 %  a note" */
static const char *note_of(const struct mist_plot_table *table, size_t i, char text[256])
{
    char error[MIST_FORMAT_BYTES];

    snprintf(
        text, 256, "%s  %s",
        mist_format_percent(error, sizeof error, fmin(error_of(table, i), 1e6), 0, true),
        mist_plot_text(table, i, NOTE));
    return text;
}

static void write_settings(const struct mist_plot_picture *at)
{
    const struct mist_plot_table *table = at->table;
    double sum = 0, worst = 0, most = LIMIT;
    size_t n_inside = 0;

    for (size_t i = 0; i < table->n; i++) {
        double size = fabs(error_of(table, i));
        sum += size;
        worst = fmax(worst, size);
        most = fmax(most, fmin(size + bar_of(table, i), 100));
        n_inside += size <= LIMIT;
    }
    fprintf(at->stream,
            "summary = 'off by %.1f %% in the mean, %.1f %% at worst, %zu of %zu within "
            "%.0f %%'\n",
            sum / (double)table->n, worst, n_inside, table->n, LIMIT);
    fprintf(at->stream, "n_rows = %zu\nlimit = %.0f\nhas_inside = %d\nhas_outside = %d\n",
            table->n, 5 * ceil(fmax(most, worst) / 5 + 0.2), n_inside > 0,
            n_inside < table->n);
}

static void write_rows(const struct mist_plot_picture *at)
{
    char note[256];

    fputs("set ytics (", at->stream);
    for (size_t i = 0; i < at->table->n; i++)
        mist_plot_write_tic(at->stream, i, mist_plot_text(at->table, i, PLAN));
    fputs(")\n", at->stream);
    for (size_t i = 0; i < at->table->n && !at->is_text; i++) {
        fprintf(at->stream, "set label %zu ", i + 1);
        mist_plot_write_quoted(at->stream, note_of(at->table, i, note));
        fprintf(at->stream, " at graph 1, first %zu left offset 1, 0 @note\n", i + 1);
    }
    fputs("$points << END\n", at->stream);
    for (size_t i = 0; i < at->table->n; i++)
        mist_plot_write_numbers(at->stream, 4,
                                (double[]){(double)i + 1, error_of(at->table, i),
                                           bar_of(at->table, i),
                                           fabs(error_of(at->table, i)) <= LIMIT});
    fputs("END\n", at->stream);
}

static enum mist_status write_errors(const struct mist_plot_picture *at,
                                     struct mist_err *err)
{
    const struct mist_plot_table *table = at->table;
    struct mist_plot_page page = {0, (int)table->n + 11, 0, 3, 3, 7};
    double left_em = 0, right_em = 0;
    char note[256];

    (void)err;
    for (size_t i = 0; i < table->n; i++) {
        left_em = fmax(left_em, mist_plot_text_em(mist_plot_text(table, i, PLAN)));
        right_em = fmax(right_em, mist_plot_text_em(note_of(table, i, note)));
    }
    page.left = 4 + (int)fmin(left_em / 0.7, 40);
    if (!at->is_text) {
        page.left = 2 * GAP_PIXELS + (int)(left_em * mist_plot_em_pixels(8));
        page.right = 2 * GAP_PIXELS + (int)(right_em * mist_plot_em_pixels(8));
        page.top = 48;
        page.bottom = 92;
        page.width = page.left + AXIS_PIXELS + page.right;
        page.height = page.top + page.bottom + ROW_PIXELS * (int)table->n;
    }
    mist_plot_write_page(at, &page);
    write_settings(at);
    write_rows(at);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_errors = {
    .title = "How far predictions are off",
    .columns = columns,
    .n_columns = N_COLUMNS,
    .max_rows = 200,
    .write_table = write_errors,
};
