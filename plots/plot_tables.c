/*
 * The pictures of small tables: predicted against measured, Pareto frontiers, link fits.
 * See plot.h. The tables are made by the tools that search, run and fit; nothing is
 * computed here but residuals.
 */
#include "core/csv.h"
#include "core/escape.h"
#include "core/memory.h"
#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH     900 /* pixels */
#define HEIGHT    640
#define MAX_NAMED 24 /* more names than this would cover each other */

/* Predicted against measured: its axes and the margins left and right of them. */
#define COMPARE_LEFT   95
#define COMPARE_WIDTH  580
#define COMPARE_RIGHT  25
#define COMPARE_BOTTOM 57
#define COMPARE_HEIGHT 536
#define NAME_POINTS    8    /* size of its letters */
#define NAME_HEIGHT    14.0 /* pixels */

/* Links: edges of their axes, with their names to the right. */
#define LINKS_LEFT  103
#define LINKS_RIGHT 760
#define KEY_POINTS  9

/* A row of any of the tables: a name and three numbers. */
struct point {
    char name[64];
    size_t i_name; /* of the distinct names, in the order in which they come */
    double x, y, z;
    size_t i_row;
};

struct points {
    struct point *items; /* owned */
    size_t n;
    size_t n_names;
    struct mist_csv *csv; /* owned */
};

static void free_points(struct points *points)
{
    free(points->items);
    mist_csv_free(points->csv);
    *points = (struct points){0};
}

/* Loads the table and makes room for its rows; names and numbers are the caller's to
 * fill. */
static enum mist_status load_points(struct points *points, const char *path,
                                    const struct mist_csv_column *columns,
                                    size_t n_columns, struct mist_err *err)
{
    enum mist_status status = mist_csv_load(path, columns, n_columns, &points->csv, err);

    if (status != MIST_OK)
        return status;
    points->n = mist_csv_n_rows(points->csv);
    if (points->n == 0)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "has no rows, nothing to draw");
    points->items = calloc(points->n, sizeof *points->items);
    if (!points->items)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu rows",
                            points->n);
    return MIST_OK;
}

static int compare_names(const void *a_any, const void *b_any)
{
    const struct point *a = a_any, *b = b_any;
    int order = strcmp(a->name, b->name);

    return order ? order : (a->i_row > b->i_row) - (a->i_row < b->i_row);
}

static int compare_points(const void *a_any, const void *b_any)
{
    const struct point *a = a_any, *b = b_any;

    if (a->i_name != b->i_name)
        return a->i_name < b->i_name ? -1 : 1;
    if (a->x != b->x)
        return a->x < b->x ? -1 : 1;
    return (a->i_row > b->i_row) - (a->i_row < b->i_row);
}

/* Numbers the distinct names, and sorts the points by these numbers and x. */
static void sort_points(struct points *points)
{
    struct point *items = points->items;

    /* a name's first row stands for it, until the rows stand in that order */
    qsort(items, points->n, sizeof *items, compare_names);
    for (size_t i = 0; i < points->n; i++)
        items[i].i_name = i > 0 && strcmp(items[i].name, items[i - 1].name) == 0
                              ? items[i - 1].i_name
                              : items[i].i_row;
    qsort(items, points->n, sizeof *items, compare_points);
    points->n_names = 0;
    for (size_t i = 0, last = 0; i < points->n; i++) {
        size_t first_row = items[i].i_name;
        points->n_names += i == 0 || first_row != last;
        items[i].i_name = points->n_names - 1;
        last = first_row;
    }
}

/* array NAME[n] with the distinct names, after sorting. */
static void write_names(FILE *stream, const char *array, const char *prefix,
                        const struct points *points)
{
    fprintf(stream, "array %s[%zu]\n", array, points->n_names);
    for (size_t i = 0; i < points->n; i++) {
        char text[96];
        if (i > 0 && points->items[i].i_name == points->items[i - 1].i_name)
            continue;
        snprintf(text, sizeof text, "%s%s", prefix, points->items[i].name);
        fprintf(stream, "%s[%zu] = ", array, points->items[i].i_name + 1);
        mist_plot_write_quoted(stream, text);
        fputc('\n', stream);
    }
}

static enum mist_status read_name(const struct mist_csv *csv, size_t i_row,
                                  size_t i_column, struct point *point,
                                  struct mist_err *err)
{
    const char *text = mist_csv_text(csv, i_row, i_column);

    if (!text[0])
        return mist_csv_fail(csv, i_row, i_column, err, "is empty, expected a name");
    if (strlen(text) >= sizeof point->name)
        return mist_csv_fail(csv, i_row, i_column, err,
                             "is too long, expected fewer than %zu bytes",
                             sizeof point->name);
    memcpy(point->name, text, strlen(text) + 1);
    point->i_row = i_row;
    return MIST_OK;
}

/* ---- predicted against measured ---- */

static enum mist_status read_compare(struct points *points, const char *path,
                                     struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        {"plan", MIST_CSV_REQUIRED},
        {"predicted_s", MIST_CSV_REQUIRED},
        {"measured_s", MIST_CSV_REQUIRED},
        {"error_bar_s", MIST_CSV_OPTIONAL},
    };
    enum mist_status status = load_points(points, path, columns, 4, err);

    for (size_t i = 0; i < points->n && status == MIST_OK; i++) {
        struct point *point = &points->items[i];
        status = read_name(points->csv, i, 0, point, err);
        if (status == MIST_OK)
            status =
                mist_csv_get_double(points->csv, i, 1, DBL_MIN, DBL_MAX, &point->y, err);
        if (status == MIST_OK)
            status =
                mist_csv_get_double(points->csv, i, 2, DBL_MIN, DBL_MAX, &point->x, err);
        if (status == MIST_OK && mist_csv_text(points->csv, i, 3)[0])
            status = mist_csv_get_double(points->csv, i, 3, 0, DBL_MAX, &point->z, err);
    }
    return status;
}

/* One axis; the other one is the same. */
struct axis {
    double low, high;
    bool is_log;
};

/* Where the name of a point is, in pixels from the page's lower left corner. */
struct label {
    int side; /* of the point: 1 right, -1 left, 0: there is no room for it */
    double left, right, y;
    char text[MIST_ESCAPED_BYTES(sizeof((struct point *)0)->name)];
};

/* 0 to 1: how far along the axis a value is. */
static double along(const struct axis *axis, double value)
{
    return axis->is_log ? log(value / axis->low) / log(axis->high / axis->low)
                        : (value - axis->low) / (axis->high - axis->low);
}

static double point_x(const struct axis *axis, const struct point *point)
{
    return COMPARE_LEFT + COMPARE_WIDTH * along(axis, point->x);
}

static double point_y(const struct axis *axis, const struct point *point)
{
    return COMPARE_BOTTOM + COMPARE_HEIGHT * along(axis, point->y);
}

/* True when the name covers no other point and no name that is there already. */
static bool is_free(const struct points *points, const struct axis *axis,
                    const struct label *labels, size_t i)
{
    const struct label *a = &labels[i];

    for (size_t j = 0; j < points->n; j++) {
        double x = point_x(axis, &points->items[j]), y = point_y(axis, &points->items[j]);
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
static int place_names(const struct points *points, const struct axis *axis,
                       struct label *labels)
{
    const double page = COMPARE_LEFT + COMPARE_WIDTH + COMPARE_RIGHT;
    double width = page;

    for (size_t i = 0; i < points->n; i++) {
        struct label *label = &labels[i];
        double x = point_x(axis, &points->items[i]), y = point_y(axis, &points->items[i]);
        mist_escape(points->items[i].name, label->text);
        double length = mist_plot_text_em(label->text) * mist_plot_em_pixels(NAME_POINTS);
        for (int try = 0; try < 3 && !label->side; try++) {
            int side = try == 1 ? -1 : 1;
            /* a little below its point on the right, above on the left */
            label->left = side > 0 ? x + NAME_HEIGHT / 2 : x - NAME_HEIGHT / 2 - length;
            label->right = label->left + length;
            label->y = y - side * 0.7 * NAME_HEIGHT;
            bool fits = label->left > COMPARE_LEFT && (try == 2 || label->right < page);
            if (fits && is_free(points, axis, labels, i))
                label->side = side;
        }
        if (label->side)
            width = fmax(width, ceil(label->right) + NAME_HEIGHT);
    }
    return (int)width;
}

static void write_compare_settings(FILE *stream, const struct points *points,
                                   const struct axis *axis, enum mist_plot_format format,
                                   bool has_names, int width)
{
    double sum = 0, worst = 0;

    for (size_t i = 0; i < points->n; i++) {
        double error = fabs(points->items[i].y / points->items[i].x - 1);
        sum += error;
        worst = fmax(worst, error);
    }
    fprintf(stream, "is_log = %d\nlow = %.9g\nhigh = %.9g\n", axis->is_log, axis->low,
            axis->high);
    fprintf(stream,
            "summary = '%zu plans: error %.2f %% in the mean, %.2f %% at worst'\n",
            points->n, 100 * sum / (double)points->n, 100 * worst);
    fprintf(stream, "has_edges = %d\nleft_edge = %.5f\nright_edge = %.5f\n",
            format != MIST_PLOT_TEXT, (double)COMPARE_LEFT / width,
            (double)(COMPARE_LEFT + COMPARE_WIDTH) / width);
    fprintf(stream, "bottom_edge = %.5f\ntop_edge = %.5f\n",
            (double)COMPARE_BOTTOM / HEIGHT,
            (double)(COMPARE_BOTTOM + COMPARE_HEIGHT) / HEIGHT);
    fprintf(stream, "has_band = %d\nhas_names = %d\npoint_size = %g\n",
            format != MIST_PLOT_TEXT, has_names, points->n <= 60 ? 0.9 : 0.4);
}

/* Both axes: zero and room above, or the powers of ten when values are far apart. */
static struct axis compare_axis(const struct points *points)
{
    double low = DBL_MAX, high = 0;

    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        low = fmin(low, fmin(point->x, point->y));
        high = fmax(high, fmax(point->x, point->y + point->z));
    }
    if (high > 20 * low)
        return (struct axis){low / 1.5, high * 1.5, true};
    return (struct axis){0, high * 1.12, false};
}

static void write_compare_points(FILE *stream, const struct points *points,
                                 struct label *labels, bool has_names)
{
    fputs("$points << END\n", stream);
    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        char *text = has_names ? labels[i].text : "";
        /* A data block takes names in double quotes, which a name must not have. */
        for (char *c = text; *c; c++)
            if (*c == '"' || *c == '\\')
                *c = ' ';
        fprintf(stream, "%.12g %.12g %.9g \"%s\" %d\n", point->x, point->y, point->z,
                text, has_names ? labels[i].side : 0);
    }
    /* gnuplot 5.4 crashes on labels without a point: two outside of the picture. */
    fputs("-9 -9 0 \"\" 1\n-9 -9 0 \"\" -1\nEND\n", stream);
}

enum mist_status mist_plot_write_compare(FILE *stream, const char *path,
                                         const struct mist_plot_options *options,
                                         enum mist_plot_format format,
                                         struct mist_err *err)
{
    struct points points = {0};
    enum mist_status status = read_compare(&points, path, err);

    if (status == MIST_OK) {
        struct label labels[MAX_NAMED] = {0};
        bool has_names = format != MIST_PLOT_TEXT && points.n <= MAX_NAMED;
        struct axis axis = compare_axis(&points);
        int width = COMPARE_LEFT + COMPARE_WIDTH + COMPARE_RIGHT;
        if (has_names)
            width = place_names(&points, &axis, labels);
        mist_plot_write_head(stream, format, options, width, HEIGHT);
        mist_plot_write_title(stream, format, options,
                              "Iteration time, predicted against measured",
                              COMPARE_WIDTH + COMPARE_RIGHT, 10);
        write_compare_settings(stream, &points, &axis, format, has_names, width);
        write_compare_points(stream, &points, labels, has_names);
        fputs(mist_script_compare, stream);
    }
    free_points(&points);
    return status;
}

/* ---- Pareto frontiers ---- */

static enum mist_status read_pareto(struct points *points, const char *path,
                                    struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        {"stage", MIST_CSV_REQUIRED},
        {"t_s", MIST_CSV_REQUIRED},
        {"d_s", MIST_CSV_REQUIRED},
        {"chosen", MIST_CSV_REQUIRED},
    };
    enum mist_status status = load_points(points, path, columns, 4, err);

    for (size_t i = 0; i < points->n && status == MIST_OK; i++) {
        struct point *point = &points->items[i];
        int64_t stage = 0, chosen = 0;
        status = mist_csv_get_int64(points->csv, i, 0, 0, INT_MAX, &stage, err);
        if (status == MIST_OK)
            status = mist_csv_get_double(points->csv, i, 1, 0, DBL_MAX, &point->x, err);
        if (status ==
            MIST_OK) /* d may be negative: the first micro-batch can be shorter */
            status =
                mist_csv_get_double(points->csv, i, 2, -DBL_MAX, DBL_MAX, &point->y, err);
        if (status == MIST_OK)
            status = mist_csv_get_int64(points->csv, i, 3, 0, 1, &chosen, err);
        snprintf(point->name, sizeof point->name, "%d", (int)stage);
        point->z = (double)chosen;
        point->i_row = i;
    }
    return status;
}

enum mist_status mist_plot_write_pareto(FILE *stream, const char *path,
                                        const struct mist_plot_options *options,
                                        enum mist_plot_format format,
                                        struct mist_err *err)
{
    struct points points = {0};
    enum mist_status status = read_pareto(&points, path, err);
    double max_t_s = 0, max_d_s = 0;
    bool has_chosen = false;

    if (status != MIST_OK)
        goto out;
    sort_points(&points);
    for (size_t i = 0; i < points.n; i++) {
        max_t_s = fmax(max_t_s, points.items[i].x);
        max_d_s = fmax(max_d_s, fabs(points.items[i].y));
        has_chosen = has_chosen || points.items[i].z > 0;
    }
    struct mist_plot_axis t = mist_plot_time_axis(max_t_s);
    struct mist_plot_axis d = mist_plot_time_axis(max_d_s);
    mist_plot_write_head(stream, format, options, WIDTH, HEIGHT);
    mist_plot_write_title(stream, format, options, "Pareto frontiers of the stages",
                          WIDTH * 2 / 3, 10);
    fprintf(stream, "t_unit = '%s'\nd_unit = '%s'\nhas_chosen = %d\nn_stages = %zu\n",
            t.unit, d.unit, has_chosen, points.n_names);
    write_names(stream, "stage_names", "stage ", &points);
    fputs("$points << END\n", stream);
    for (size_t i = 0; i < points.n; i++)
        fprintf(stream, "%zu %.9g %.9g %g\n", points.items[i].i_name + 1,
                points.items[i].x * t.scale, points.items[i].y * d.scale,
                points.items[i].z);
    fprintf(stream, "END\n%s", mist_script_pareto);
out:
    free_points(&points);
    return status;
}

/* ---- link fits ---- */

static enum mist_status read_links(struct points *points, const char *path,
                                   struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        {"bytes", MIST_CSV_REQUIRED},         {"measured_us", MIST_CSV_REQUIRED},
        {"fitted_us", MIST_CSV_REQUIRED},     {"name", MIST_CSV_REQUIRED},
        {"residual_frac", MIST_CSV_OPTIONAL},
    };
    enum mist_status status = load_points(points, path, columns, 5, err);

    for (size_t i = 0; i < points->n && status == MIST_OK; i++) {
        struct point *point = &points->items[i];
        int64_t bytes = 0;
        status = read_name(points->csv, i, 3, point, err);
        if (status == MIST_OK)
            status = mist_csv_get_int64(points->csv, i, 0, 1, INT64_MAX, &bytes, err);
        if (status == MIST_OK)
            status =
                mist_csv_get_double(points->csv, i, 1, DBL_MIN, DBL_MAX, &point->y, err);
        if (status == MIST_OK)
            status =
                mist_csv_get_double(points->csv, i, 2, DBL_MIN, DBL_MAX, &point->z, err);
        point->x = (double)bytes;
    }
    return status;
}

/* Tics at powers of two, ten at most, as a text that the script evaluates. */
static void write_size_tics(FILE *stream, const char *variable, double low, double high,
                            bool has_names)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int first = (int)floor(log2(low)), last = (int)ceil(log2(high));
    int step = (last - first) / 10 + 1;

    fprintf(stream, "%s = \"set xtics (", variable);
    for (int i = first; i <= last; i += step) {
        char text[MIST_FORMAT_BYTES] = "";
        if (has_names && i >= 0 && i < 60)
            snprintf(text, sizeof text, "%d %s", 1 << i % 10, units[i / 10]);
        fprintf(stream, "%s'%s' %.0f", i > first ? ", " : "", text, ldexp(1, i));
    }
    fputs(")\"\n", stream);
}

static void write_links_settings(FILE *stream, const struct points *points,
                                 enum mist_plot_format format, int width)
{
    double low = DBL_MAX, high = 0, residual = 0;

    for (size_t i = 0; i < points->n; i++) {
        const struct point *point = &points->items[i];
        low = fmin(low, point->x);
        high = fmax(high, point->x);
        residual = fmax(residual, 100 * fabs(point->z / point->y - 1));
    }
    fprintf(stream, "x_min = %.0f\nx_max = %.0f\nresidual_max = %.6g\n", floor(low / 1.3),
            ceil(high * 1.3), fmax(1, residual * 1.1));
    fprintf(stream, "left_edge = %.5f\nright_edge = %.5f\n",
            format == MIST_PLOT_TEXT ? 0.12 : (double)LINKS_LEFT / width,
            format == MIST_PLOT_TEXT ? 0.65 : (double)LINKS_RIGHT / width);
    write_size_tics(stream, "x_tics", low, high, true);
    write_size_tics(stream, "x_tics_blank", low, high, false);
}

/* The widest name of a link, in pixels. */
static int name_pixels(const struct points *points)
{
    double em = 0;

    for (size_t i = 0; i < points->n; i++)
        em = fmax(em, mist_plot_text_em(points->items[i].name));
    return (int)(em * mist_plot_em_pixels(KEY_POINTS));
}

enum mist_status mist_plot_write_links(FILE *stream, const char *path,
                                       const struct mist_plot_options *options,
                                       enum mist_plot_format format, struct mist_err *err)
{
    struct points points = {0};
    enum mist_status status = read_links(&points, path, err);

    if (status == MIST_OK) {
        int width = LINKS_RIGHT + 60 + name_pixels(&points);
        sort_points(&points);
        mist_plot_write_head(stream, format, options, width, HEIGHT + 80);
        mist_plot_write_title(stream, format, options, "Links: measurements and fits",
                              width, 10);
        write_links_settings(stream, &points, format, width);
        fprintf(stream, "n_names = %zu\n", points.n_names);
        write_names(stream, "link_names", "", &points);
        fputs("$points << END\n", stream);
        for (size_t i = 0; i < points.n; i++)
            fprintf(stream, "%zu %.0f %.9g %.9g\n", points.items[i].i_name + 1,
                    points.items[i].x, points.items[i].y, points.items[i].z);
        fprintf(stream, "END\n%s", mist_script_links);
    }
    free_points(&points);
    return status;
}
