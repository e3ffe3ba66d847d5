/*
 * The pictures of small tables: predicted against measured, Pareto frontiers, link fits.
 * The tables are made by the tools that search, run and fit; nothing is computed here but
 * residuals.
 */
#include "core/order.h"
#include "core/parse.h"
#include "plots/internal.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 63, MAX_ROWS = 100000 };

/* ------------------------------------------------------------ predicted against measured */

#define MAX_NAMED 24 /* more names than this would cover each other */

/* The axes and the margins around them, in pixels. */
#define COMPARE_LEFT   95
#define COMPARE_WIDTH  580
#define COMPARE_RIGHT  25
#define COMPARE_BOTTOM 57
#define COMPARE_HEIGHT 536
#define COMPARE_TOP    56
#define NAME_POINTS    8    /* size of its letters */
#define NAME_HEIGHT    14.0 /* pixels */
#define NAME_EM        45.0 /* of those that are longer the middle is left out */

enum { PLAN, PREDICTED, MEASURED, BAR, NOTE, N_COMPARE_COLUMNS };

static const struct mist_plot_column compare_columns[N_COMPARE_COLUMNS] = {
    [PLAN] = MIST_PLOT_WORDS("plan", 119, MIST_PLOT_NEEDED),
    [PREDICTED] = MIST_PLOT_NUMBER("predicted_s", DBL_MIN, DBL_MAX, MIST_PLOT_NEEDED),
    [MEASURED] = MIST_PLOT_NUMBER("measured_s", DBL_MIN, DBL_MAX, MIST_PLOT_NEEDED),
    [BAR] = MIST_PLOT_NUMBER("error_bar_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_ABSENT),
    [NOTE] = MIST_PLOT_WORDS("note", INT_MAX, MIST_PLOT_MAY_BE_ABSENT),
};

/* One axis; the other one is the same. */
struct axis {
    double low, high;
    bool is_log;
};

/* Where the name of a point is, in pixels from the page's lower left corner. */
struct label {
    int side; /* of the point: 1 right, -1 left, 0: there is no room for it */
    double left, right, y;
    char text[320];
};

/* 0 to 1: how far along the axis a value is. */
static double along(const struct axis *axis, double value)
{
    return axis->is_log ? log(value / axis->low) / log(axis->high / axis->low)
                        : (value - axis->low) / (axis->high - axis->low);
}

static double point_x(const struct mist_plot_table *table, const struct axis *axis,
                      size_t i)
{
    return COMPARE_LEFT +
           COMPARE_WIDTH * along(axis, mist_plot_number(table, i, MEASURED));
}

static double point_y(const struct mist_plot_table *table, const struct axis *axis,
                      size_t i)
{
    return COMPARE_BOTTOM +
           COMPARE_HEIGHT * along(axis, mist_plot_number(table, i, PREDICTED));
}

/* True when the name covers no other point and no name that is there already. */
static bool is_free(const struct mist_plot_table *table, const struct axis *axis,
                    const struct label *labels, size_t i)
{
    const struct label *a = &labels[i];

    for (size_t j = 0; j < table->n; j++) {
        double x = point_x(table, axis, j), y = point_y(table, axis, j);
        if (j != i && x > a->left && x < a->right && fabs(y - a->y) < 0.7 * NAME_HEIGHT)
            return false;
        if (j < i && labels[j].side && labels[j].left < a->right &&
            labels[j].right > a->left && fabs(labels[j].y - a->y) < NAME_HEIGHT)
            return false;
    }
    return true;
}

/*
 * Where the names go: right of the points where the page has room, else left of them,
 * else right of them on a page that is wider. Returns the page's width in pixels.
 */
static int place_names(const struct mist_plot_table *table, const struct axis *axis,
                       struct label *labels)
{
    const double page = COMPARE_LEFT + COMPARE_WIDTH + COMPARE_RIGHT;
    double width = page;

    for (size_t i = 0; i < table->n; i++) {
        struct label *label = &labels[i];
        double x = point_x(table, axis, i), y = point_y(table, axis, i);
        mist_plot_fit(mist_plot_text(table, i, PLAN), NAME_EM, label->text,
                      sizeof label->text);
        double length = mist_plot_text_em(label->text) * mist_plot_em_pixels(NAME_POINTS);
        for (int try = 0; try < 3 && !label->side; try++) {
            int side = try == 1 ? -1 : 1;
            /* a little below its point on the right, above on the left */
            label->left = side > 0 ? x + NAME_HEIGHT / 2 : x - NAME_HEIGHT / 2 - length;
            label->right = label->left + length;
            label->y = y - side * 0.7 * NAME_HEIGHT;
            bool fits = label->left > COMPARE_LEFT && (try == 2 || label->right < page);
            if (fits && is_free(table, axis, labels, i))
                label->side = side;
        }
        if (label->side)
            width = fmax(width, ceil(label->right) + NAME_HEIGHT);
    }
    return (int)width;
}

/* Both axes: zero and room above, or the powers of ten when values are far apart. */
static struct axis compare_axis(const struct mist_plot_table *table)
{
    double low = DBL_MAX, high = 0;

    for (size_t i = 0; i < table->n; i++) {
        double x = mist_plot_number(table, i, MEASURED);
        double y = mist_plot_number(table, i, PREDICTED);
        low = fmin(low, fmin(x, y));
        high = fmax(high, fmax(x, y + fmax(0, mist_plot_number(table, i, BAR))));
    }
    if (high > 20 * low)
        return (struct axis){low / 1.5, high * 1.5, true};
    return (struct axis){0, high * 1.12, false};
}

static void write_summary(const struct mist_plot_picture *at)
{
    const struct mist_plot_table *table = at->table;
    double sum = 0, worst = 0;

    for (size_t i = 0; i < table->n; i++) {
        double x = mist_plot_number(table, i, MEASURED);
        double y = mist_plot_number(table, i, PREDICTED);
        double error = fabs(y / x - 1);
        sum += error;
        worst = fmax(worst, error);
    }
    fprintf(at->stream,
            "summary = '%zu plans: error %.2f %% in the mean, %.2f %% at worst'\n",
            table->n, 100 * sum / (double)table->n, 100 * worst);
}

static void write_compare_points(const struct mist_plot_picture *at, double scale)
{
    fputs("$points << END\n", at->stream);
    for (size_t i = 0; i < at->table->n; i++)
        fprintf(at->stream, "%.12g %.12g %.9g\n",
                mist_plot_number(at->table, i, MEASURED) * scale,
                mist_plot_number(at->table, i, PREDICTED) * scale,
                fmax(0, mist_plot_number(at->table, i, BAR)) * scale);
    fputs("END\n", at->stream);
}

/* Labels instead of data, in which gnuplot takes backslashes and quotes for its own. */
static void write_compare_names(const struct mist_plot_picture *at,
                                const struct label *labels, double scale)
{
    for (size_t i = 0; i < at->table->n; i++) {
        if (!labels[i].side)
            continue;
        fprintf(at->stream, "set label %zu ", i + 1);
        mist_plot_write_quoted(at->stream, labels[i].text);
        fprintf(at->stream, " at %.12g, %.12g %s front @note\n",
                mist_plot_number(at->table, i, MEASURED) * scale,
                mist_plot_number(at->table, i, PREDICTED) * scale,
                labels[i].side > 0 ? "left offset 0.9, -0.5" : "right offset -0.9, 0.5");
    }
}

static enum mist_status write_compare(const struct mist_plot_picture *at,
                                      struct mist_err *err)
{
    struct label labels[MAX_NAMED] = {0};
    bool has_names = !at->is_text && at->table->n <= MAX_NAMED;
    struct axis axis = compare_axis(at->table);
    struct mist_plot_axis time = mist_plot_time_axis(axis.high);
    struct mist_plot_page page = {COMPARE_LEFT + COMPARE_WIDTH + COMPARE_RIGHT,
                                  COMPARE_BOTTOM + COMPARE_HEIGHT + COMPARE_TOP,
                                  COMPARE_LEFT,
                                  COMPARE_RIGHT,
                                  COMPARE_TOP,
                                  COMPARE_BOTTOM};

    (void)err;
    if (at->is_text)
        page = (struct mist_plot_page){0, at->options->n_text_rows, 10, 2, 4, 4};
    if (has_names) {
        page.width = place_names(at->table, &axis, labels);
        page.right = page.width - COMPARE_LEFT - COMPARE_WIDTH;
    }
    mist_plot_write_page(at, &page);
    fprintf(at->stream, "is_log = %d\nlow = %.9g\nhigh = %.9g\ntime_unit = '%s'\n",
            axis.is_log, axis.low * time.scale, axis.high * time.scale, time.unit);
    write_summary(at);
    fprintf(at->stream, "point_size = %g\n", at->table->n <= 60 ? 0.9 : 0.4);
    write_compare_points(at, time.scale);
    if (has_names)
        write_compare_names(at, labels, time.scale);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_compare = {
    .title = "Iterations, predicted against measured",
    .columns = compare_columns,
    .n_columns = N_COMPARE_COLUMNS,
    .max_rows = MAX_ROWS,
    .write_table = write_compare,
};

/* --------------------------------------------------------------------- curves by a name */

/* A row as a point of a curve, which all rows of one name are. */
struct point {
    const char *name;
    size_t i_row;   /* into the table */
    size_t i_curve; /* in the order in which names come */
    double x;
    bool is_apart; /* the curve's line does not go through it */
};

struct curves {
    struct point *points; /* owned; by curve, then x, behind them those apart */
    size_t n_curves;
};

static int compare_names(const void *a_any, const void *b_any)
{
    const struct point *a = a_any, *b = b_any;
    int order = strcmp(a->name, b->name);

    return order ? order : MIST_COMPARE(a->i_row, b->i_row);
}

MIST_COMPARATOR(compare_points, struct point, is_apart, i_curve, x, i_row)

/* out->points: owned by the caller on MIST_OK. */
static enum mist_status find_curves(const struct mist_plot_table *table, int name, int x,
                                    struct curves *out, struct mist_err *err)
{
    struct point *points = calloc(table->n, sizeof *points);

    if (!points)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < table->n; i++)
        points[i] = (struct point){mist_plot_text(table, i, name), i, i,
                                   mist_plot_number(table, i, x), false};
    /* a name's first row stands for it, until the rows stand in that order */
    qsort(points, table->n, sizeof *points, compare_names);
    for (size_t i = 1; i < table->n; i++)
        if (strcmp(points[i].name, points[i - 1].name) == 0)
            points[i].i_curve = points[i - 1].i_curve;
    qsort(points, table->n, sizeof *points, compare_points);
    out->n_curves = 0;
    for (size_t i = 0, last = 0; i < table->n; i++) {
        size_t first_row = points[i].i_curve;
        out->n_curves += i == 0 || first_row != last;
        points[i].i_curve = out->n_curves - 1;
        last = first_row;
    }
    out->points = points;
    return MIST_OK;
}

/* Sets n_curves and curve_names; returns the widest name in pixels. */
static int write_names(const struct mist_plot_picture *at, const struct curves *curves,
                       const char *prefix, FILE *stream)
{
    double em = 0;

    if (stream)
        fprintf(stream, "n_curves = %zu\narray curve_names[%zu]\n", curves->n_curves,
                curves->n_curves);
    for (size_t i = 0; i < at->table->n; i++) {
        char text[NAME_BYTES + 16];
        if (i > 0 && curves->points[i].i_curve == curves->points[i - 1].i_curve)
            continue;
        snprintf(text, sizeof text, "%s%s", prefix, curves->points[i].name);
        em = fmax(em, mist_plot_text_em(text));
        if (stream)
            mist_plot_write_item(stream, "curve_names", curves->points[i].i_curve, text);
    }
    return (int)(em * mist_plot_em_pixels(9));
}

/* An empty line stands before a point apart, so that no line leads to it. */
static void write_curve_points(const struct mist_plot_picture *at,
                               const struct curves *curves, int n_columns,
                               const int *columns, const double *scales)
{
    fputs("$points << END\n", at->stream);
    for (size_t i = 0; i < at->table->n; i++) {
        const struct point *point = &curves->points[i];
        double values[4] = {(double)point->i_curve + 1};
        if (point->is_apart)
            fputc('\n', at->stream);
        for (int c = 0; c < n_columns; c++)
            values[c + 1] =
                mist_plot_number(at->table, point->i_row, columns[c]) * scales[c];
        mist_plot_write_numbers(at->stream, (size_t)n_columns + 1, values);
    }
    fputs("END\n", at->stream);
}

/* ---------------------------------------------------------------------- Pareto frontiers */

enum { STAGE, T, D, CHOSEN, N_PARETO_COLUMNS };

static const struct mist_plot_column pareto_columns[N_PARETO_COLUMNS] = {
    [STAGE] = MIST_PLOT_WHOLE("stage", 0, INT_MAX),
    [T] = MIST_PLOT_NUMBER("t_s", 0, DBL_MAX, MIST_PLOT_NEEDED),
    [D] = MIST_PLOT_NUMBER("d_s", -DBL_MAX, DBL_MAX,
                           MIST_PLOT_NEEDED), /* the first micro-batch can be shorter */
    [CHOSEN] = MIST_PLOT_WHOLE("chosen", 0, 1),
};

/* What was chosen and is no better in t or d than another of its stage is off the frontier. */
static void set_apart(const struct mist_plot_table *table, struct curves *curves)
{
    const struct point *lowest = &curves->points[0];

    for (size_t i = 1; i < table->n; i++) {
        struct point *point = &curves->points[i];
        bool is_lower = mist_plot_number(table, point->i_row, D) <
                        mist_plot_number(table, lowest->i_row, D);
        if (is_lower || point->i_curve != lowest->i_curve)
            lowest = point;
        else
            point->is_apart = mist_plot_number(table, point->i_row, CHOSEN) > 0;
    }
    qsort(curves->points, table->n, sizeof *curves->points, compare_points);
}

static enum mist_status write_pareto(const struct mist_plot_picture *at,
                                     struct mist_err *err)
{
    const struct mist_plot_table *table = at->table;
    struct curves curves;
    double max_t_s = 0, max_d_s = 0, n_chosen = 0;
    enum mist_status status = find_curves(table, STAGE, T, &curves, err);

    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < table->n; i++) {
        max_t_s = fmax(max_t_s, mist_plot_number(table, i, T));
        max_d_s = fmax(max_d_s, fabs(mist_plot_number(table, i, D)));
        n_chosen += mist_plot_number(table, i, CHOSEN);
    }
    struct mist_plot_axis t = mist_plot_time_axis(max_t_s);
    struct mist_plot_axis d = mist_plot_time_axis(max_d_s);
    int key = write_names(at, &curves, "stage ", NULL) + 70;
    int n_keys = (int)curves.n_curves + 1, key_height = 80 + 18 * n_keys;
    int rows = at->options->n_text_rows;
    struct mist_plot_page page = {
        790 + key, key_height > 660 ? key_height : 660, 90, key, 56, 58};
    if (at->is_text)
        page = (struct mist_plot_page){
            0, rows > n_keys + 9 ? rows : n_keys + 9, 10, 22, 4, 4};
    mist_plot_write_page(at, &page);
    fprintf(at->stream, "t_unit = '%s'\nd_unit = '%s'\nhas_chosen = %d\n", t.unit, d.unit,
            n_chosen > 0);
    write_names(at, &curves, "stage ", at->stream);
    set_apart(table, &curves);
    write_curve_points(at, &curves, 3, (const int[]){T, D, CHOSEN},
                       (const double[]){t.scale, d.scale, 1});
    free(curves.points);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_pareto = {
    .title = "Pareto frontiers of the stages",
    .from = "mist-tune --pareto",
    .columns = pareto_columns,
    .n_columns = N_PARETO_COLUMNS,
    .max_rows = MAX_ROWS,
    .write_table = write_pareto,
};

/* ------------------------------------------------------------------------------ link fits */

enum { BYTES, TIME, FITTED, NAME, N_LINK_COLUMNS };

static const struct mist_plot_column link_columns[N_LINK_COLUMNS] = {
    [BYTES] = MIST_PLOT_WHOLE("bytes", 1, 0x1p62),
    [TIME] = MIST_PLOT_NUMBER("measured_us", DBL_MIN, DBL_MAX, MIST_PLOT_NEEDED),
    [FITTED] = MIST_PLOT_NUMBER("fitted_us", DBL_MIN, DBL_MAX, MIST_PLOT_NEEDED),
    [NAME] = MIST_PLOT_WORDS("name", NAME_BYTES, MIST_PLOT_NEEDED),
};

/* Tics at powers of two, ten at most, as a text that the script evaluates. */
static void write_size_tics(FILE *stream, const char *variable, double low, double high,
                            bool has_names)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    int first = (int)floor(log2(low)), last = (int)ceil(log2(high));
    int step = (last - first) / 10 + 1;

    fprintf(stream, "%s = \"set xtics (", variable);
    for (int i = first; i <= last; i += step) {
        char text[MIST_FORMAT_BYTES] = "";
        if (has_names)
            snprintf(text, sizeof text, "%d %s", 1 << i % 10, units[i / 10]);
        fprintf(stream, "%s'%s' %.0f", i > first ? ", " : "", text, ldexp(1, i));
    }
    fputs(")\"\n", stream);
}

static void write_sizes(const struct mist_plot_picture *at)
{
    double low = DBL_MAX, high = 1, residual = 0; /* a size is a byte at least */

    for (size_t i = 0; i < at->table->n; i++) {
        double measured = mist_plot_number(at->table, i, TIME);
        low = fmin(low, mist_plot_number(at->table, i, BYTES));
        high = fmax(high, mist_plot_number(at->table, i, BYTES));
        residual = fmax(
            residual, 100 * fabs(mist_plot_number(at->table, i, FITTED) / measured - 1));
    }
    fprintf(at->stream, "x_min = %.0f\nx_max = %.0f\nresidual_max = %.6g\n",
            floor(low / 1.3), ceil(high * 1.3), fmax(1, residual * 1.1));
    write_size_tics(at->stream, "x_tics", low, high, true);
    write_size_tics(at->stream, "x_tics_blank", low, high, false);
}

static enum mist_status write_links(const struct mist_plot_picture *at,
                                    struct mist_err *err)
{
    struct curves curves;
    enum mist_status status = find_curves(at->table, NAME, BYTES, &curves, err);

    if (status != MIST_OK)
        return status;
    int key = write_names(at, &curves, "", NULL) + 60, rows = at->options->n_text_rows;
    int n_keys = (int)curves.n_curves, height = 96 + 18 * n_keys;
    height = height > 720 ? height : 720;
    struct mist_plot_page page = {700 + 103 + key, height, 103, key, 60, 60};
    if (at->is_text) {
        height = rows > n_keys + 9 ? rows : n_keys + 9;
        page = (struct mist_plot_page){0, height, 10, 36, 4, 4};
    }
    int low = height - page.bottom, middle = page.top + (low - page.top) * 3 / 5;
    int gap = at->is_text ? 3 : 26;
    mist_plot_write_page(at, &page);
    mist_plot_write_panels(at, &page, 2, (const int[]){page.top, middle + gap},
                           (const int[]){middle, low});
    write_sizes(at);
    write_names(at, &curves, "", at->stream);
    write_curve_points(at, &curves, 3, (const int[]){BYTES, TIME, FITTED},
                       (const double[]){1, 1, 1});
    free(curves.points);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_links = {
    .title = "Links, measured and fitted",
    .from = "mist-sim --list --cluster CLUSTER --csv",
    .columns = link_columns,
    .n_columns = N_LINK_COLUMNS,
    .max_rows = MAX_ROWS,
    .takes_others = true,
    .write_table = write_links,
};
