/* The picture of mist-tune --sweep: four figures of the best plan at each point. */
#include "plots/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define POINT_PIXELS 44
#define MAX_POINTS   64
#define TEXT_COLUMNS 38 /* of a panel, in the terminal */

/* Names of options come first: the columns that say what a point is. */
enum {
    NODES,
    DEVICES_PER_NODE,
    RANKS,
    MEMORY,
    DEVICE_MEMORY,
    BATCH,
    GLOBAL_BATCH,
    SEQ_LEN,
    MODEL,
    DEVICE,
    N_NAMES,
    IS_BEST = N_NAMES,
    ITERATION,
    BAR,
    DEVICE_TOKENS,
    MFU,
    DEVICE_HOURS,
    COST,
    N_COLUMNS
};

#define NAME(text) MIST_PLOT_WORDS(text, 60, MIST_PLOT_MAY_BE_ABSENT)
static const struct mist_plot_column columns[N_COLUMNS] = {
    [NODES] = NAME("nodes"),
    [DEVICES_PER_NODE] = NAME("devices_per_node"),
    [RANKS] = NAME("ranks"),
    [MEMORY] = NAME("memory"),
    [DEVICE_MEMORY] = NAME("device_memory"),
    [BATCH] = NAME("batch"),
    [GLOBAL_BATCH] = NAME("global_batch"),
    [SEQ_LEN] = NAME("seq_len"),
    [MODEL] = NAME("model"),
    [DEVICE] = NAME("device"),
    [IS_BEST] = NAME("is_best"),
    [ITERATION] = MIST_PLOT_NUMBER("iteration_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [BAR] = MIST_PLOT_NUMBER("error_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_ABSENT),
    [DEVICE_TOKENS] =
        MIST_PLOT_NUMBER("tokens_per_s_per_device", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [MFU] = MIST_PLOT_NUMBER("model_flop_utilisation_frac", 0, DBL_MAX,
                             MIST_PLOT_MAY_BE_ABSENT),
    [DEVICE_HOURS] = MIST_PLOT_NUMBER("device_hours", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [COST] = MIST_PLOT_NUMBER("cost", 0, DBL_MAX, MIST_PLOT_MAY_BE_ABSENT),
};

enum { TIME, SPEED, UTILISATION, MONEY, N_PANELS };

/* "4, 64": a point's values of what is swept, or with row 0 and has_names their names. */
static const char *name_point(const struct mist_plot_table *table, size_t i,
                              bool has_names, char text[N_NAMES * 64])
{
    size_t n = 0;

    text[0] = '\0';
    for (int k = 0; k < N_NAMES; k++)
        if (mist_plot_text(table, i, k)[0])
            n += (size_t)snprintf(text + n, N_NAMES * 64 - n, "%s%s", n > 0 ? ", " : "",
                                  has_names ? columns[k].name
                                            : mist_plot_text(table, i, k));
    return text;
}

static void write_points(const struct mist_plot_picture *at, const int of[N_PANELS],
                         const double scale[N_PANELS])
{
    const struct mist_plot_table *table = at->table;
    char name[N_NAMES * 64];
    size_t longest = 0;

    fputs("point_name = ", at->stream);
    mist_plot_write_quoted(at->stream, name_point(table, 0, true, name));
    fputs("\nset xtics (", at->stream);
    for (size_t i = 0; i < table->n; i++) {
        size_t n = strlen(name_point(table, i, false, name));
        longest = n > longest ? n : longest;
    }
    /* the terminal can't turn names: one in so many */
    size_t step = at->is_text ? (longest + 2) * table->n / TEXT_COLUMNS + 1 : 1;
    for (size_t i = 0; i < table->n; i += step)
        mist_plot_write_tic(at->stream, i, name_point(table, i, false, name));
    fprintf(at->stream, ")\nis_turned = %d\n", longest > 6);
    for (size_t i = 0; i < table->n; i++)
        if (isnan(mist_plot_number(table, i, ITERATION)))
            fprintf(at->stream,
                    "set label %zu 'no plan' at first %zu, graph 0.03 rotate by 90\n",
                    i + 1, i + 1);
    fputs("$points << END\n", at->stream);
    for (size_t i = 0; i < table->n; i++) {
        double values[N_PANELS + 3] = {(double)i + 1};
        for (int p = 0; p < N_PANELS; p++)
            values[p + 1] = mist_plot_number(table, i, of[p]) * scale[p];
        values[5] = fmax(0, mist_plot_number(table, i, BAR)) * scale[TIME];
        values[6] = strcmp(mist_plot_text(table, i, IS_BEST), "true") == 0;
        mist_plot_write_numbers(at->stream, N_PANELS + 3, values);
    }
    fputs("-9 0 0 0 0 0 0\n-9 0 0 0 0 0 1\nEND\n", at->stream);
}

static enum mist_status write_rent(const struct mist_plot_picture *at,
                                   struct mist_err *err)
{
    const struct mist_plot_table *table = at->table;
    int n = table->n > 6 ? (int)table->n : 6, rows = at->options->n_text_rows;
    bool has_cost = false;
    double high[N_PANELS] = {0};
    const struct mist_plot_page page =
        at->is_text
            ? (struct mist_plot_page){0, rows, 9, 2, 6, 4}
            : (struct mist_plot_page){2 * (110 + POINT_PIXELS * n), 660, 85, 25, 84, 82};

    (void)err;
    for (size_t i = 0; i < table->n; i++)
        has_cost = has_cost || !isnan(mist_plot_number(table, i, COST));
    const int of[N_PANELS] = {ITERATION, DEVICE_TOKENS, MFU,
                              has_cost ? COST : DEVICE_HOURS};
    for (size_t i = 0; i < table->n; i++)
        for (int p = 0; p < N_PANELS; p++) /* fmax skips NAN */
            high[p] = fmax(
                high[p], mist_plot_number(table, i, of[p]) +
                             (p == TIME ? fmax(0, mist_plot_number(table, i, BAR)) : 0));
    struct mist_plot_axis axis = mist_plot_time_axis(high[TIME]);
    const double scale[N_PANELS] = {axis.scale, 1, 100, 1};
    mist_plot_write_page(at, &page);
    fprintf(at->stream,
            "n_points = %zu\narray panel_names[4] = ['iteration (%s)', 'tokens/s of a "
            "device', 'MFU (%%)', '%s']\narray highs[4]\n",
            table->n, axis.unit,
            has_cost ? "cost of the training" : "device-hours of the training");
    for (int p = 0; p < N_PANELS; p++)
        fprintf(at->stream, "highs[%d] = %.9g\n", p + 1,
                high[p] > 0 ? 1.1 * high[p] * scale[p] : 1);
    write_points(at, of, scale);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_rent = {
    .title = "The best plan at each point",
    .from = "mist-tune --sweep --csv",
    .columns = columns,
    .n_columns = N_COLUMNS,
    .max_rows = MAX_POINTS,
    .takes_others = true,
    .write_table = write_rent,
};
