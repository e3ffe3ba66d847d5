/* The picture of how far predictions are off, run by run. */
#include "core/parse.h"
#include "plots/internal.h"

#include <float.h>
#include <math.h>

#define AXIS_PIXELS 420
#define ROW_PIXELS  19
#define GAP_PIXELS  14
#define LIMIT       15.0
#define MOST_DRAWN  100.0 /* percent, unless an error is larger: bars go on beyond it */

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

/* How far the axis goes to both sides, in percent. */
static double find_limit(const struct mist_plot_table *table)
{
    double most = LIMIT;

    for (size_t i = 0; i < table->n; i++) {
        double size = fabs(error_of(table, i));
        most = fmax(most, fmax(size, fmin(size + bar_of(table, i), MOST_DRAWN)));
    }
    return 5 * ceil(most / 5 + 0.2);
}

/* "+3 %  a note", or "+3 %, bar 400 %  a note" of a bar that goes on beyond the axis. */
static const char *note_of(const struct mist_plot_table *table, size_t i, char text[300])
{
    char error[MIST_FORMAT_BYTES], bar[MIST_FORMAT_BYTES];
    bool is_cut = fabs(error_of(table, i)) + bar_of(table, i) > find_limit(table);

    mist_format_percent(error, sizeof error, fmin(error_of(table, i), 1e6), 0, true);
    mist_format_percent(bar, sizeof bar, fmin(bar_of(table, i), 1e6), 0, false);
    snprintf(text, 300, "%s%s%s  %s", error, is_cut ? ", bar " : "", is_cut ? bar : "",
             mist_plot_text(table, i, NOTE));
    return text;
}

static void write_settings(const struct mist_plot_picture *at)
{
    const struct mist_plot_table *table = at->table;
    double sum = 0, worst = 0;
    size_t n_inside = 0;

    for (size_t i = 0; i < table->n; i++) {
        double size = fabs(error_of(table, i));
        sum += size;
        worst = fmax(worst, size);
        n_inside += size <= LIMIT;
    }
    fprintf(at->stream,
            "summary = 'off by %.1f %% in the mean, %.1f %% at worst, %zu of %zu within "
            "%.0f %%'\n",
            sum / (double)table->n, worst, n_inside, table->n, LIMIT);
    fprintf(at->stream, "n_rows = %zu\nlimit = %.0f\nhas_inside = %d\nhas_outside = %d\n",
            table->n, find_limit(table), n_inside > 0, n_inside < table->n);
}

/* Heads of arrows where bars go on beyond the axis. */
static void write_cuts(const struct mist_plot_picture *at)
{
    double limit = find_limit(at->table);

    for (size_t i = 0; i < at->table->n; i++)
        for (int side = -1; side <= 1; side += 2) {
            double end = error_of(at->table, i) * side + bar_of(at->table, i);
            if (end <= limit)
                continue;
            int color = fabs(error_of(at->table, i)) <= LIMIT ? 1 : 2;
            if (at->is_text)
                fprintf(at->stream, "set label '%c' at %g, %zu center front\n",
                        side < 0 ? '<' : '>', side * limit, i + 1);
            else
                fprintf(
                    at->stream,
                    "set arrow from %g, %zu to %g, %zu size char 1.2, 20 fixed filled "
                    "front linetype %d\n",
                    side * 0.99 * limit, i + 1, side * limit, i + 1, color);
        }
}

static void write_rows(const struct mist_plot_picture *at)
{
    char note[300];

    fputs("set ytics (", at->stream);
    for (size_t i = 0; i < at->table->n; i++)
        mist_plot_write_tic(at->stream, i, mist_plot_text(at->table, i, PLAN));
    fputs(")\n", at->stream);
    for (size_t i = 0; i < at->table->n && !at->is_text; i++) {
        fprintf(at->stream, "set label %zu ", i + 1);
        mist_plot_write_quoted(at->stream, note_of(at->table, i, note));
        fprintf(at->stream, " at graph 1, first %zu left offset 1, 0 @note\n", i + 1);
    }
    write_cuts(at);
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
    char note[300];

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
