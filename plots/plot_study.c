/* The pictures of mist-sim's studies: --what-if and --sweep, --sensitivity. See plot.h. */
#include "core/csv.h"
#include "core/escape.h"
#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 200,
    MAX_ROWS = 1000,
    MAX_PLACES = 40,
    MAX_CURVES = 8, /* as there are line types */
    MAX_LEVERS = 64,
};

#define DODGE                                                                            \
    0.06 /* between curves, of the distance of places: bars don't cover each other */

/* Where the axis is, above its label and the lines of the key. */
static void write_bottom(FILE *stream, enum mist_plot_format format, int height,
                         int n_lines)
{
    fprintf(stream, "is_text = %d\nbottom_edge = %.5f\n", format == MIST_PLOT_TEXT,
            (70.0 + 18 * n_lines) / height);
}

/* ---------------------------------------------------------------------- what-if, sweep */

/* One replay: where it stands, and on which curve. */
struct replay {
    int i_place, i_curve;
    double time_s, bar_s;
};

/* Of a sweep the first edit of a replay is its place on the axis, the others name its
 * curve; else each edit has a place, and all of them together. */
struct sweep {
    bool is_sweep;
    char places[MAX_PLACES][MIST_ESCAPED_BYTES(MAX_TEXT)];
    char curves[MAX_CURVES][MIST_ESCAPED_BYTES(MAX_TEXT)];
    char name[MIST_ESCAPED_BYTES(MAX_TEXT)]; /* the first edit's */
    int n_places, n_curves;
    double baseline_s, high_s; /* baseline NAN: not known */
    struct replay *replays;
    size_t n;
};

/* The number of a text among n, which it joins if it is new; -1: there are too many. */
static int find_text(char (*texts)[MIST_ESCAPED_BYTES(MAX_TEXT)], int *n, int max,
                     const char *text, size_t length)
{
    char copy[MAX_TEXT], escaped[MIST_ESCAPED_BYTES(MAX_TEXT)];
    int i = 0;

    memcpy(copy, text, length);
    copy[length] = '\0';
    mist_escape(copy, escaped);
    while (i < *n && strcmp(texts[i], escaped) != 0)
        i++;
    if (i == max)
        return -1;
    if (i == *n)
        strcpy(texts[(*n)++], escaped);
    return i;
}

static enum mist_status read_replay(const struct mist_csv *csv, size_t i,
                                    struct sweep *out, struct mist_err *err)
{
    const char *change = mist_csv_text(csv, i, 0);
    size_t first = strcspn(change, ",");
    struct replay *at = &out->replays[out->n];
    bool is_baseline = strcmp(change, "baseline") == 0;
    enum mist_status status = MIST_OK;

    if (!change[0] || strlen(change) >= MAX_TEXT)
        return mist_csv_fail(csv, i, 0, err, "expected 1 to %d bytes", MAX_TEXT - 1);
    if (is_baseline && !mist_csv_text(csv, i, 1)[0])
        return MIST_OK;
    status = mist_csv_get_double(csv, i, 1, DBL_MIN, DBL_MAX, &at->time_s, err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i, 2, 0, DBL_MAX, &at->bar_s, err);
    if (status != MIST_OK)
        return status;
    if (is_baseline) {
        out->baseline_s = at->time_s;
    } else {
        const char *rest = change + first + (change[first] == ',');
        if (!out->is_sweep) {
            change = change[first] ? "all of them" : change;
            first = strlen(change);
            rest = "";
        }
        at->i_place = find_text(out->places, &out->n_places, MAX_PLACES, change, first);
        at->i_curve =
            find_text(out->curves, &out->n_curves, MAX_CURVES, rest, strlen(rest));
        if (at->i_place < 0 || at->i_curve < 0)
            return mist_csv_fail(csv, i, 0, err,
                                 "more than %d values of the first edit, or %d of the "
                                 "others: too many for a picture",
                                 MAX_PLACES, MAX_CURVES);
        out->n++;
    }
    out->high_s = fmax(out->high_s, at->time_s + at->bar_s);
    return MIST_OK;
}

/* Whether all but the baseline edit the same name first, and are several. */
static bool is_sweep(const struct mist_csv *csv)
{
    const char *first = NULL;
    bool is_one = true;
    int n = 0;

    for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
        const char *change = mist_csv_text(csv, i, 0);
        if (strcmp(change, "baseline") == 0)
            continue;
        first = first ? first : change;
        is_one = is_one && strncmp(change, first, strcspn(first, "=") + 1) == 0;
        n++;
    }
    return is_one && n > 1;
}

/* out->replays: owned by the caller also after a failure. */
static enum mist_status read_sweep(const char *path, struct sweep *out,
                                   struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        {"change", MIST_CSV_REQUIRED},
        {"iteration_s", MIST_CSV_REQUIRED},
        {"error_s", MIST_CSV_REQUIRED},
        {"iteration_change_s", MIST_CSV_OPTIONAL},
        {"iteration_change_frac", MIST_CSV_OPTIONAL},
        {"tokens_per_s", MIST_CSV_OPTIONAL},
        {"tokens_per_s_change_frac", MIST_CSV_OPTIONAL},
        {"model_flop_utilisation_frac", MIST_CSV_OPTIONAL},
        {"device_bytes", MIST_CSV_OPTIONAL},
        {"device_bytes_change", MIST_CSV_OPTIONAL},
        {"device_memory_bytes", MIST_CSV_OPTIONAL},
    };
    struct mist_csv *csv = NULL;
    enum mist_status status =
        mist_csv_load(path, columns, sizeof columns / sizeof *columns, &csv, err);

    if (status != MIST_OK)
        return status;
    size_t n = mist_csv_n_rows(csv);
    out->baseline_s = NAN;
    out->is_sweep = is_sweep(csv);
    out->replays = calloc(n + 1, sizeof *out->replays);
    if (n > MAX_ROWS)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %zu rows, expected 1 to %d", n, MAX_ROWS);
    else if (!out->replays)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu rows", n);
    for (size_t i = 0; i < n && status == MIST_OK; i++)
        status = read_replay(csv, i, out, err);
    if (status == MIST_OK && out->n == 0)
        status =
            mist_err_at(err, MIST_ERR_INPUT, path, 0, 0, "has no row but the baseline");
    mist_csv_free(csv);
    return status;
}

/* The name of a sweep's places is the axis', and stands there alone. */
static void name_axis(struct sweep *at)
{
    size_t n = strcspn(at->places[0], "=");

    if (!at->is_sweep)
        return;
    memcpy(at->name, at->places[0], n);
    at->name[n] = '\0';
    for (int i = 0; i < at->n_places; i++)
        memmove(at->places[i], at->places[i] + n + 1, strlen(at->places[i] + n + 1) + 1);
}

static void write_places(FILE *stream, const struct sweep *at)
{
    fprintf(stream, "n_places = %d\nset xlabel ", at->n_places);
    mist_plot_write_quoted(stream, at->name);
    fputs("\nset xtics (", stream);
    for (int i = 0; i < at->n_places; i++) {
        fputs(i > 0 ? ", " : "", stream);
        mist_plot_write_quoted(stream, at->places[i]);
        fprintf(stream, " %d", i + 1);
    }
    fputs(") font ',9'\n", stream);
}

static void write_curves(FILE *stream, const struct sweep *at, double scale)
{
    bool has_names = at->n_curves > 1 || at->curves[0][0];

    fprintf(stream, "n_curves = %d\nhas_names = %d\narray curve_names[%d]\n",
            at->n_curves, has_names, at->n_curves);
    for (int c = 0; c < at->n_curves; c++) {
        fprintf(stream, "curve_names[%d] = ", c + 1);
        mist_plot_write_quoted(stream, at->curves[c][0] ? at->curves[c] : "alone");
        fputc('\n', stream);
    }
    fputs("$points << END\n", stream);
    for (int c = 0; c < at->n_curves; c++) {
        for (size_t i = 0; i < at->n; i++)
            if (at->replays[i].i_curve == c)
                fprintf(stream, "%.9g %.9g %.9g\n",
                        at->replays[i].i_place + 1 +
                            (c - 0.5 * (at->n_curves - 1)) * DODGE,
                        at->replays[i].time_s * scale, at->replays[i].bar_s * scale);
        fputs("\n\n", stream);
    }
    fputs("END\n", stream);
}

enum mist_status mist_plot_write_sweep(FILE *stream, const char *path,
                                       const struct mist_plot_options *options,
                                       enum mist_plot_format format, struct mist_err *err)
{
    struct sweep at = {0};
    enum mist_status status = read_sweep(path, &at, err);

    if (status == MIST_OK) {
        struct mist_plot_axis axis = mist_plot_time_axis(at.high_s);
        double em = 4;
        name_axis(&at);
        for (int i = 0; i < at.n_places; i++)
            em = fmax(em, mist_plot_text_em(at.places[i]) + 2);
        int width = 140 + (int)(em * mist_plot_em_pixels(9) * at.n_places);
        width = width < 520 ? 520 : width;
        mist_plot_write_head(stream, format, options, width, 420);
        mist_plot_write_title(stream, format, options, "What if", width, 10);
        fprintf(stream, "time_unit = '%s'\nhas_baseline = %d\nbaseline = %.9g\n",
                axis.unit, isfinite(at.baseline_s),
                isfinite(at.baseline_s) ? at.baseline_s * axis.scale : 0);
        fprintf(stream, "high = %.9g\nis_sweep = %d\n", 1.1 * at.high_s * axis.scale,
                at.is_sweep);
        write_places(stream, &at);
        write_curves(stream, &at, axis.scale);
        write_bottom(stream, format, 420, 1 + at.n_curves / 2);
        fputs(mist_script_sweep, stream);
    }
    free(at.replays);
    return status;
}

/* ------------------------------------------------------------------------ sensitivity */

struct lever {
    char name[MIST_ESCAPED_BYTES(MAX_TEXT)];
    /* change of the time when it is faster and slower, and of the best plan's when it is
     * faster, percent */
    double more, less, best; /* best NAN: not known */
};

static enum mist_status read_levers(const char *path, struct lever levers[MAX_LEVERS],
                                    size_t *n, struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        {"change", MIST_CSV_REQUIRED},
        {"more_change_frac", MIST_CSV_REQUIRED},
        {"less_change_frac", MIST_CSV_REQUIRED},
        {"retuned_change_frac", MIST_CSV_OPTIONAL},
        {"iteration_s", MIST_CSV_OPTIONAL},
        {"best_iteration_s", MIST_CSV_OPTIONAL},
        {"retuned_change_s", MIST_CSV_OPTIONAL},
        {"retuned_iteration_s", MIST_CSV_OPTIONAL},
        {"error_s", MIST_CSV_OPTIONAL},
        {"tokens_per_s", MIST_CSV_OPTIONAL},
        {"more_iteration_s", MIST_CSV_OPTIONAL},
        {"more_change_s", MIST_CSV_OPTIONAL},
        {"less_iteration_s", MIST_CSV_OPTIONAL},
        {"less_change_s", MIST_CSV_OPTIONAL},
    };
    struct mist_csv *csv = NULL;
    enum mist_status status =
        mist_csv_load(path, columns, sizeof columns / sizeof *columns, &csv, err);

    if (status != MIST_OK)
        return status;
    *n = mist_csv_n_rows(csv);
    if (*n == 0 || *n > MAX_LEVERS)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %zu rows, expected 1 to %d", *n, MAX_LEVERS);
    for (size_t i = 0; i < *n && status == MIST_OK; i++) {
        const char *name = mist_csv_text(csv, i, 0);
        if (!name[0] || strlen(name) >= MAX_TEXT)
            status =
                mist_csv_fail(csv, i, 0, err, "expected 1 to %d bytes", MAX_TEXT - 1);
        else
            mist_escape(name, levers[i].name);
        if (status == MIST_OK)
            status = mist_csv_get_double(csv, i, 1, -1, 1e6, &levers[i].more, err);
        if (status == MIST_OK)
            status = mist_csv_get_double(csv, i, 2, -1, 1e6, &levers[i].less, err);
        levers[i].best = NAN;
        if (status == MIST_OK && mist_csv_text(csv, i, 3)[0])
            status = mist_csv_get_double(csv, i, 3, -1, 1e6, &levers[i].best, err);
        levers[i].more *= 100;
        levers[i].less *= 100;
        levers[i].best *= 100;
    }
    mist_csv_free(csv);
    return status;
}

/* Beside the end of a bar, where it points to. */
static void write_end(FILE *stream, double change, double row)
{
    char text[MIST_FORMAT_BYTES];

    fprintf(stream, "set label '%s' at %.6g, %.6g %s offset %s, 0 font ',8'\n",
            mist_format_percent(text, sizeof text, change, 1, true), change, row,
            change < 0 ? "right" : "left", change < 0 ? "-0.5" : "0.5");
}

/* up: how far the bars of a row are above the best plan's; 0: that has none. */
static void write_ends(FILE *stream, const struct lever *lever, size_t row, double up)
{
    write_end(stream, lever->more, (double)row - up);
    if ((lever->less < 0) != (lever->more < 0))
        write_end(stream, lever->less, (double)row - up);
    if (up > 0)
        write_end(stream, lever->best, (double)row + up);
}

/* What all bars and their labels have room in: levers' names, in em, and percent. */
static bool measure(const struct lever *levers, size_t n, double *em, double *low,
                    double *high)
{
    bool has_best = n > 0;

    for (size_t i = 0; i < n; i++) {
        *low = fmin(*low, fmin(fmin(levers[i].more, levers[i].less), levers[i].best));
        *high = fmax(*high, fmax(fmax(levers[i].more, levers[i].less), levers[i].best));
        *em = fmax(*em, mist_plot_text_em(levers[i].name));
        has_best = has_best && !isnan(levers[i].best);
    }
    return has_best;
}

enum mist_status mist_plot_write_sensitivity(FILE *stream, const char *path,
                                             const struct mist_plot_options *options,
                                             enum mist_plot_format format,
                                             struct mist_err *err)
{
    struct lever levers[MAX_LEVERS];
    size_t n = 0;
    double low = -0.1, high = 0.1, em = 0;
    enum mist_status status = read_levers(path, levers, &n, err);

    if (status != MIST_OK)
        return status;
    bool has_best = measure(levers, n, &em, &low, &high);
    int height = has_best ? 166 + 36 * (int)n : 130 + 24 * (int)n;
    double left = em * mist_plot_em_pixels(9) + 40, room = 0.15 * (high - low);
    int width = (int)left + 460;
    mist_plot_write_head(stream, format, options, width, height);
    mist_plot_write_title(stream, format, options, "What would help most", width, 10);
    fprintf(stream,
            "n_rows = %zu\nlow = %.6g\nhigh = %.6g\nleft_edge = %.5f\nhas_best = %d\n", n,
            low - room, high + room, format == MIST_PLOT_TEXT ? 0.3 : left / width,
            has_best);
    fputs("set ytics (", stream);
    for (size_t i = 0; i < n; i++) {
        fputs(i > 0 ? ", " : "", stream);
        mist_plot_write_quoted(stream, levers[i].name);
        fprintf(stream, " %zu", i + 1);
    }
    fputs(") font ',9'\n", stream);
    for (size_t i = 0; i < n && format != MIST_PLOT_TEXT; i++)
        write_ends(stream, &levers[i], i + 1, has_best ? 0.18 : 0);
    fputs("$points << END\n", stream);
    for (size_t i = 0; i < n; i++)
        fprintf(stream, "%zu %.6g %.6g %.6g\n", i + 1, levers[i].more, levers[i].less,
                has_best ? levers[i].best : 0);
    fputs("END\n", stream);
    write_bottom(stream, format, height, has_best ? 3 : 1);
    fputs(mist_script_sensitivity, stream);
    return MIST_OK;
}
