/* The pictures of mist-sim's studies: --what-if and --sweep, --sensitivity. See plot.h. */
#include "core/escape.h"
#include "core/parse.h"
#include "plots/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_TEXT = 200,
    MAX_PLACES = 40,
    MAX_CURVES = 8, /* as there are line types */
    MAX_LEVERS = 64,
};

#define DODGE                                                                            \
    0.06 /* between curves, of the distance of places: bars don't cover each other */

/* ---------------------------------------------------------------------- what-if, sweep */

enum { CHANGE, ITERATION, BAR, N_SWEEP_COLUMNS };

static const struct mist_plot_column sweep_columns[N_SWEEP_COLUMNS] = {
    [CHANGE] = MIST_PLOT_WORDS("change", MAX_TEXT - 1, MIST_PLOT_NEEDED),
    [ITERATION] =
        MIST_PLOT_NUMBER("iteration_s", DBL_MIN, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [BAR] = MIST_PLOT_NUMBER("error_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
};

/* One replay: where it stands, and on which curve. */
struct replay {
    int i_place, i_curve;
    double time_s, bar_s; /* NAN: the plan can't run so */
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
    struct replay *replays;    /* owned */
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

static bool is_baseline(const struct mist_plot_table *table, size_t i)
{
    return strcmp(mist_plot_text(table, i, CHANGE), "baseline") == 0;
}

static enum mist_status add_replay(const struct mist_plot_table *table, size_t i,
                                   struct sweep *out, struct mist_err *err)
{
    const char *change = mist_plot_text(table, i, CHANGE), *rest = "";
    size_t first = strcspn(change, ",");
    struct replay *at = &out->replays[out->n];

    at->time_s = mist_plot_number(table, i, ITERATION);
    at->bar_s = fmax(0, mist_plot_number(table, i, BAR));
    if (is_baseline(table, i)) {
        out->baseline_s = at->time_s;
        out->high_s = fmax(out->high_s, at->time_s + at->bar_s);
        return MIST_OK;
    }
    if (!strchr(change, '='))
        return mist_csv_fail(table->csv, i, CHANGE, err,
                             "'%.60s' is neither the baseline nor an edit, NAME=VALUE",
                             change);
    out->high_s = fmax(out->high_s, at->time_s + at->bar_s);
    if (out->is_sweep) {
        rest = change + first + (change[first] == ',');
    } else {
        change = change[first] ? "all of them" : change;
        first = strlen(change);
    }
    at->i_place = find_text(out->places, &out->n_places, MAX_PLACES, change, first);
    at->i_curve = find_text(out->curves, &out->n_curves, MAX_CURVES, rest, strlen(rest));
    if (at->i_place < 0 || at->i_curve < 0)
        return mist_csv_fail(
            table->csv, i, CHANGE, err,
            "more than %d values of the first edit, or %d of the others: "
            "too many for a picture",
            MAX_PLACES, MAX_CURVES);
    out->n++;
    return MIST_OK;
}

/* Whether all but the baseline edit the same name first, and are several. */
static bool is_sweep(const struct mist_plot_table *table)
{
    const char *first = NULL;
    bool is_one = true;
    int n = 0;

    for (size_t i = 0; i < table->n; i++) {
        const char *change = mist_plot_text(table, i, CHANGE);
        if (is_baseline(table, i))
            continue;
        first = first ? first : change;
        is_one = is_one && strncmp(change, first, strcspn(first, "=") + 1) == 0;
        n++;
    }
    return is_one && n > 1;
}

/* out->replays: owned by the caller also after a failure. */
static enum mist_status read_sweep(const struct mist_plot_table *table, struct sweep *out,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    out->baseline_s = NAN;
    out->is_sweep = is_sweep(table);
    out->replays = calloc(table->n, sizeof *out->replays);
    if (!out->replays)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < table->n && status == MIST_OK; i++)
        status = add_replay(table, i, out, err);
    if (status == MIST_OK && (out->n == 0 || !(out->high_s > 0)))
        status = mist_err_at(err, MIST_ERR_INPUT, mist_csv_path(table->csv), 0, 0,
                             out->n == 0 ? "has no row but the baseline"
                                         : "has no iteration_s: all are empty");
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
    fputs("place_name = ", stream);
    mist_plot_write_quoted(stream, at->name);
    fprintf(stream, "\nn_places = %d\nset xtics (", at->n_places);
    for (int i = 0; i < at->n_places; i++)
        mist_plot_write_tic(stream, (size_t)i, at->places[i]);
    fputs(")\n", stream);
}

static bool has_time_at(const struct sweep *at, int i_place)
{
    for (size_t i = 0; i < at->n; i++)
        if (at->replays[i].i_place == i_place && !isnan(at->replays[i].time_s))
            return true;
    return false;
}

/* Where no curve has a point. */
static void write_gaps(FILE *stream, const struct sweep *at)
{
    for (int i = 0; i < at->n_places; i++)
        if (!has_time_at(at, i))
            fprintf(stream,
                    "set label %d \"can't run\" at %d, 0 center offset 0, 1 font ',8'\n",
                    i + 1, i + 1);
}

static void write_curves(FILE *stream, const struct sweep *at, double scale)
{
    fprintf(stream, "n_curves = %d\nhas_names = %d\narray curve_names[%d]\n",
            at->n_curves, at->n_curves > 1 || at->curves[0][0], at->n_curves);
    for (int c = 0; c < at->n_curves; c++)
        mist_plot_write_item(stream, "curve_names", (size_t)c,
                             at->curves[c][0] ? at->curves[c] : "alone");
    fputs("$points << END\n", stream);
    for (int c = 0; c < at->n_curves; c++) {
        for (size_t i = 0; i < at->n; i++)
            if (at->replays[i].i_curve == c)
                mist_plot_write_numbers(
                    stream, 3,
                    (double[]){at->replays[i].i_place + 1 +
                                   (c - 0.5 * (at->n_curves - 1)) * DODGE,
                               at->replays[i].time_s * scale,
                               at->replays[i].bar_s * scale});
        fputs("\n\n", stream);
    }
    fputs("END\n", stream);
}

/* The key stands below the axis, a line for each curve and one for the baseline. */
static struct mist_plot_page sweep_page(const struct mist_plot_picture *picture,
                                        const struct sweep *at)
{
    int n_lines = (at->n_curves > 1 || at->curves[0][0] ? at->n_curves : 0) +
                  !isnan(at->baseline_s);
    int width, n_rows = picture->options->n_text_rows;
    double em = 4, key_em = 0;

    for (int i = 0; i < at->n_places; i++)
        em = fmax(em, mist_plot_text_em(at->places[i]) + 2);
    for (int i = 0; i < at->n_curves; i++)
        key_em = fmax(key_em, mist_plot_text_em(at->curves[i]) + 6);
    width = 115 + (int)(fmax(em * at->n_places, key_em) * mist_plot_em_pixels(9));
    if (picture->is_text)
        return (struct mist_plot_page){0, n_rows + n_lines, 9, 2, 4, 4 + n_lines};
    return (struct mist_plot_page){
        width < 520 ? 520 : width, 390 + 18 * n_lines, 90, 25, 56, 64 + 18 * n_lines};
}

static enum mist_status write_sweep(const struct mist_plot_picture *picture,
                                    struct mist_err *err)
{
    struct sweep at = {0};
    FILE *stream = picture->stream;
    enum mist_status status = read_sweep(picture->table, &at, err);

    if (status == MIST_OK) {
        struct mist_plot_axis axis = mist_plot_time_axis(at.high_s);
        struct mist_plot_page page = sweep_page(picture, &at);
        name_axis(&at);
        mist_plot_write_page(picture, &page);
        fprintf(stream, "time_unit = '%s'\nhas_baseline = %d\nbaseline = %.9g\n",
                axis.unit, !isnan(at.baseline_s),
                isnan(at.baseline_s) ? 0 : at.baseline_s * axis.scale);
        fprintf(stream, "high = %.9g\nis_sweep = %d\n", 1.1 * at.high_s * axis.scale,
                at.is_sweep);
        write_places(stream, &at);
        write_gaps(stream, &at);
        write_curves(stream, &at, axis.scale);
    }
    free(at.replays);
    return status;
}

const struct mist_plot_kind mist_plot_kind_sweep = {
    .title = "What if",
    .from = "mist-sim --sweep --csv",
    .columns = sweep_columns,
    .n_columns = N_SWEEP_COLUMNS,
    .max_rows = 1000,
    .takes_others = true,
    .write_table = write_sweep,
};

/* ------------------------------------------------------------------------ sensitivity */

/* How much the time changes when a lever is faster and slower, and the best plan's when it
 * is faster. */
enum { LEVER, MORE, LESS, BEST, N_LEVER_COLUMNS };

static const struct mist_plot_column lever_columns[N_LEVER_COLUMNS] = {
    [LEVER] = MIST_PLOT_WORDS("change", MAX_TEXT - 1, MIST_PLOT_NEEDED),
    [MORE] = MIST_PLOT_NUMBER("more_change_frac", -1, 1e6, MIST_PLOT_NEEDED),
    [LESS] = MIST_PLOT_NUMBER("less_change_frac", -1, 1e6, MIST_PLOT_NEEDED),
    [BEST] = MIST_PLOT_NUMBER("retuned_change_frac", -1, 1e6, MIST_PLOT_MAY_BE_ABSENT),
};

static double percent(const struct mist_plot_table *table, size_t i, int column)
{
    return 100 * mist_plot_number(table, i, column);
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
static void write_ends(const struct mist_plot_picture *at, size_t i, double up)
{
    double more = percent(at->table, i, MORE), less = percent(at->table, i, LESS);
    double row = (double)i + 1;

    write_end(at->stream, more, row - up);
    if ((less < 0) != (more < 0))
        write_end(at->stream, less, row - up);
    if (up > 0)
        write_end(at->stream, percent(at->table, i, BEST), row + up);
}

/* The names of rows; in the terminal they say how much. Returns the widest, in em. */
static double write_levers(const struct mist_plot_picture *at, FILE *stream)
{
    double em = 0;

    for (size_t i = 0; i < at->table->n; i++) {
        char text[MAX_TEXT + 2 * MIST_FORMAT_BYTES], change[MIST_FORMAT_BYTES];
        snprintf(text, sizeof text, "%s%s%s", mist_plot_text(at->table, i, LEVER),
                 at->is_text ? "  " : "",
                 at->is_text ? mist_format_percent(change, sizeof change,
                                                   percent(at->table, i, MORE), 1, true)
                             : "");
        em = fmax(em, mist_plot_text_em(text));
        if (stream)
            mist_plot_write_tic(stream, i, text);
    }
    return em;
}

static enum mist_status write_sensitivity(const struct mist_plot_picture *at,
                                          struct mist_err *err)
{
    const struct mist_plot_table *table = at->table;
    int n = (int)table->n;
    double low = -0.1, high = 0.1, em = write_levers(at, NULL);
    bool has_best = true;

    (void)err;
    for (size_t i = 0; i < table->n; i++) {
        for (int c = MORE; c <= BEST; c++) { /* fmin and fmax skip NAN */
            low = fmin(low, percent(table, i, c));
            high = fmax(high, percent(table, i, c));
        }
        has_best = has_best && !isnan(mist_plot_number(table, i, BEST));
    }
    int left = 24 + (int)(em * mist_plot_em_pixels(9)), rows = has_best ? 2 : 1;
    double room = (at->is_text ? 0.04 : 0.15) * (high - low);
    struct mist_plot_page page = {left + 450, 0, left, 20, 56, has_best ? 126 : 96};
    page.height = page.top + page.bottom + (has_best ? 36 : 24) * n;
    if (at->is_text)
        page = (struct mist_plot_page){
            0, 11 + rows * n + rows, 4 + (int)fmin(em / 0.7, 45), 3, 3, 7 + rows};
    mist_plot_write_page(at, &page);
    fprintf(at->stream, "n_rows = %d\nlow = %.6g\nhigh = %.6g\nhas_best = %d\n", n,
            low - room, high + room, has_best);
    fputs("set ytics (", at->stream);
    write_levers(at, at->stream);
    fputs(")\n", at->stream);
    for (size_t i = 0; i < table->n && !at->is_text; i++)
        write_ends(at, i, has_best ? 0.18 : 0);
    fputs("$points << END\n", at->stream);
    for (size_t i = 0; i < table->n; i++)
        mist_plot_write_numbers(at->stream, 4,
                                (double[]){(double)i + 1, percent(table, i, MORE),
                                           percent(table, i, LESS),
                                           has_best ? percent(table, i, BEST) : 0});
    fputs("END\n", at->stream);
    return MIST_OK;
}

const struct mist_plot_kind mist_plot_kind_sensitivity = {
    .title = "What would help most",
    .from = "mist-sim --sensitivity --csv",
    .columns = lever_columns,
    .n_columns = N_LEVER_COLUMNS,
    .max_rows = MAX_LEVERS,
    .takes_others = true,
    .write_table = write_sensitivity,
};
