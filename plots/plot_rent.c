/* The picture of mist-tune --sweep: four figures of the best plan at each point. */
#include "plots/internal.h"

#include "core/parse.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define POINT_PIXELS 44
#define MAX_POINTS   64
#define TEXT_COLUMNS 38 /* of a panel, in the terminal */

/* Pixels of the page: from the left edge to the axes, above the upper panels, of an axis, of
 * the title of a lower one, of the name of an axis. */
#define LEFT         85
#define TOP          84
#define PANEL_HEIGHT 204
#define PANEL_TITLE  40
#define AXIS_NAME    36

/* Names of points that have no room beside each other are turned. */
#define TURN        40.0 /* degrees */
#define NAME_POINTS 9    /* size of their letters */
#define NAME_EM     30.0 /* of those that are longer the middle is left out */

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
    text[0] = '\0';
    for (int k = 0; k < N_NAMES; k++)
        if (mist_plot_text(table, i, k)[0])
            mist_text_add(text, N_NAMES * 64, ", ", "%s",
                          has_names ? columns[k].name : mist_plot_text(table, i, k));
    return text;
}

/* The name of a point as it is drawn. */
static const char *fit_point(const struct mist_plot_table *table, size_t i,
                             char text[N_NAMES * 64])
{
    char whole[N_NAMES * 64];

    return mist_plot_fit(name_point(table, i, false, whole), NAME_EM, text, N_NAMES * 64);
}

/* Where panels are, two above two, in pixels or rows and columns. */
struct layout {
    struct mist_plot_page page;
    int panel_height, gap; /* between an upper panel and a lower one */
    double gap_frac;       /* between left and right, of the page's width */
    double name_em;        /* room for the name of the axis */
    bool is_turned;
};

static struct layout text_layout(const struct mist_plot_options *options)
{
    struct layout layout = {.page = {0, options->n_text_rows, 9, 2, 6, 4},
                            .gap = options->n_text_rows / 5,
                            .gap_frac = 0.1,
                            .name_em = 0.7 * TEXT_COLUMNS};

    layout.panel_height =
        (layout.page.height - layout.page.top - layout.page.bottom - layout.gap) / 2;
    return layout;
}

/* The page has room for the longest name below and right of each point. */
static struct layout pixel_layout(const struct mist_plot_table *table)
{
    const double turn = TURN * 3.14159265 / 180,
                 letter = mist_plot_em_pixels(NAME_POINTS);
    int n = table->n > 6 ? (int)table->n : 6, panel_width = POINT_PIXELS * n + 12;
    char name[N_NAMES * 64];
    double em = 0, down = 20, right = 0; /* pixels from the middle of the axis */

    for (size_t i = 0; i < table->n; i++)
        em = fmax(em, mist_plot_text_em(fit_point(table, i, name)));
    bool is_turned = em * letter > POINT_PIXELS;
    if (is_turned) {
        down = 10 + em * letter * sin(turn) + letter * cos(turn);
        right = em * letter * cos(turn) + letter;
    }
    int gap = (int)fmax(LEFT, right);
    struct layout layout = {
        .page = {LEFT + 2 * panel_width + gap, 0, LEFT, 0, TOP, (int)down + AXIS_NAME},
        .panel_height = PANEL_HEIGHT,
        .gap = (int)down + PANEL_TITLE,
        .name_em = panel_width / mist_plot_em_pixels(10),
        .is_turned = is_turned};
    layout.page.right = (int)fmax(25, right - POINT_PIXELS / 2.0);
    layout.page.width += layout.page.right;
    layout.gap_frac = (double)gap / layout.page.width;
    layout.page.height = TOP + 2 * PANEL_HEIGHT + layout.gap + layout.page.bottom;
    return layout;
}

static void write_layout(const struct mist_plot_picture *at, const struct layout *layout)
{
    int upper = layout->page.top + layout->panel_height;
    char name[N_NAMES * 64];

    mist_plot_write_page(at, &layout->page);
    mist_plot_write_panels(
        at, &layout->page, 2, (const int[]){layout->page.top, upper + layout->gap},
        (const int[]){upper, layout->page.height - layout->page.bottom});
    fprintf(at->stream, "gap_x = %.7f\nturn = %g\npoint_name_y = %.7f\npoint_name = ",
            layout->gap_frac, layout->is_turned ? TURN : 0,
            AXIS_NAME / 2.0 / layout->page.height);
    mist_plot_write_fitted(at->stream, name_point(at->table, 0, true, name),
                           layout->name_em);
    fputc('\n', at->stream);
}

/* The names of points, and where there is no plan. */
static void write_names(const struct mist_plot_picture *at)
{
    const struct mist_plot_table *table = at->table;
    char name[N_NAMES * 64];
    size_t longest = 0;

    for (size_t i = 0; i < table->n; i++) {
        size_t n = strlen(fit_point(table, i, name));
        longest = n > longest ? n : longest;
    }
    /* the terminal can't turn names: one in so many */
    size_t step = at->is_text ? (longest + 2) * table->n / TEXT_COLUMNS + 1 : 1;
    fputs("set xtics (", at->stream);
    for (size_t i = 0; i < table->n; i += step)
        mist_plot_write_tic(at->stream, i, fit_point(table, i, name));
    fputs(")\n", at->stream);
    for (size_t i = 0; i < table->n; i++)
        if (isnan(mist_plot_number(table, i, ITERATION)))
            fprintf(at->stream,
                    "set label %zu 'no plan' at first %zu, graph 0.03 rotate by 90\n",
                    i + 1, i + 1);
}

static void write_points(const struct mist_plot_picture *at, const int of[N_PANELS],
                         const double scale[N_PANELS])
{
    const struct mist_plot_table *table = at->table;

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
    const struct layout layout =
        at->is_text ? text_layout(at->options) : pixel_layout(table);
    bool has_cost = false;
    double high[N_PANELS] = {0};

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
    write_layout(at, &layout);
    fprintf(at->stream,
            "n_points = %zu\narray panel_names[4] = ['iteration (%s)', 'tokens/s of a "
            "device', 'MFU (%%)', '%s']\narray highs[4]\n",
            table->n, axis.unit,
            has_cost ? "cost of the training" : "device-hours of the training");
    for (int p = 0; p < N_PANELS; p++)
        fprintf(at->stream, "highs[%d] = %.9g\n", p + 1,
                high[p] > 0 ? 1.1 * high[p] * scale[p] : 1);
    write_names(at);
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
