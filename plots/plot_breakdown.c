/*
 * The picture of --explain: bars of time and of device memory, stage by stage. See plot.h.
 *
 * Parts come from the table by their names; those with most in them over all stages have a
 * colour each, the others share one.
 */
#include "core/csv.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HEIGHT     640 /* pixels */
#define LEFT       80
#define RIGHT      230 /* the keys */
#define MAX_STAGES 512
#define MAX_PARTS  64

enum { N_COLORS = 8 };                         /* the last for all other parts */
enum { STAGE, OF, PART, TIME, BYTES, N_USED }; /* of columns; the rest is known only */

/* Parts of one sort, time or memory. */
struct parts {
    int n;
    char names[MAX_PARTS + 1][64];        /* one more for the rest */
    double of[MAX_PARTS + 1][MAX_STAGES]; /* seconds or bytes */
};

static enum mist_status add(struct parts *parts, const struct mist_csv *csv, size_t i_row,
                            int64_t stage, double value, struct mist_err *err)
{
    const char *name = mist_csv_text(csv, i_row, PART);
    int i = 0;

    while (i < parts->n && strcmp(parts->names[i], name) != 0)
        i++;
    if (i == MAX_PARTS || strlen(name) >= sizeof parts->names[0])
        return mist_csv_fail(csv, i_row, PART, err, "is one part too many, or too long");
    if (i == parts->n)
        memcpy(parts->names[parts->n++], name, strlen(name) + 1);
    parts->of[i][stage] += value;
    return MIST_OK;
}

/* One row; those of host memory are left out. */
static enum mist_status read_row(const struct mist_csv *csv, size_t i, struct parts *time,
                                 struct parts *memory, int *n_stages,
                                 struct mist_err *err)
{
    bool is_time = strcmp(mist_csv_text(csv, i, OF), "time") == 0;
    bool is_host = strcmp(mist_csv_text(csv, i, OF), "host memory") == 0;
    int64_t stage = 0;
    double value = 0;
    enum mist_status status =
        mist_csv_get_int64(csv, i, STAGE, 0, MAX_STAGES - 1, &stage, err);

    if (status == MIST_OK && !is_host)
        status =
            mist_csv_get_double(csv, i, is_time ? TIME : BYTES, 0, DBL_MAX, &value, err);
    if (status != MIST_OK || is_host)
        return status;
    *n_stages = stage >= *n_stages ? (int)stage + 1 : *n_stages;
    return add(is_time ? time : memory, csv, i, stage, value, err);
}

static enum mist_status read_table(const char *path, struct parts *time,
                                   struct parts *memory, int *n_stages,
                                   struct mist_err *err)
{
    static const struct mist_csv_column columns[] = {
        [STAGE] = {"stage", MIST_CSV_REQUIRED}, [OF] = {"of", MIST_CSV_REQUIRED},
        [PART] = {"part", MIST_CSV_REQUIRED},   [TIME] = {"time_s", MIST_CSV_REQUIRED},
        [BYTES] = {"bytes", MIST_CSV_REQUIRED}, {"rank", MIST_CSV_OPTIONAL},
        {"tensor", MIST_CSV_OPTIONAL},          {"frac", MIST_CSV_OPTIONAL},
        {"iteration_s", MIST_CSV_OPTIONAL},     MIST_PLOT_SIM_COLUMNS,
    };
    struct mist_csv *csv = NULL;
    enum mist_status status =
        mist_csv_load(path, columns, sizeof columns / sizeof *columns, &csv, err);

    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < mist_csv_n_rows(csv) && status == MIST_OK; i++)
        status = read_row(csv, i, time, memory, n_stages, err);
    if (status == MIST_OK && (time->n == 0 || memory->n == 0))
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has no rows of time and of memory, nothing to draw");
    mist_csv_free(csv);
    return status;
}

static double total(const struct parts *parts, int i, int n_stages)
{
    double sum = 0;

    for (int s = 0; s < n_stages; s++)
        sum += parts->of[i][s];
    return sum;
}

/* Leaves N_COLORS parts at most, in their order: those with most in them, and the rest in
 * one. Parts without anything go. */
static void merge_small(struct parts *parts, int n_stages)
{
    int n_kept = 0;

    for (int i = 0; i < parts->n; i++)
        if (total(parts, i, n_stages) > 0) {
            memmove(parts->names[n_kept], parts->names[i], sizeof parts->names[0]);
            memmove(parts->of[n_kept++], parts->of[i], sizeof parts->of[0]);
        }
    parts->n = n_kept;
    while (parts->n > N_COLORS) {
        bool has_rest = strcmp(parts->names[parts->n - 1], "other") == 0;
        int n = parts->n - has_rest, least = 0;
        for (int i = 1; i < n; i++)
            if (total(parts, i, n_stages) < total(parts, least, n_stages))
                least = i;
        if (!has_rest) { /* the rest begins with two */
            snprintf(parts->names[parts->n], sizeof parts->names[0], "other");
            memset(parts->of[parts->n++], 0, sizeof parts->of[0]);
        }
        for (int s = 0; s < n_stages; s++)
            parts->of[parts->n - 1][s] += parts->of[least][s];
        size_t n_behind = (size_t)(parts->n - 1 - least);
        memmove(parts->names[least], parts->names[least + 1],
                n_behind * sizeof parts->names[0]);
        memmove(parts->of[least], parts->of[least + 1], n_behind * sizeof parts->of[0]);
        parts->n--;
    }
}

/* Bubbles look as in a timeline; what is left over is grey; the others take turns. */
static const char *part_color(const char *name, int *n_taken)
{
    static const char *const colors[N_COLORS] = {"#0072B2", "#56B4E9", "#009E73",
                                                 "#E69F00", "#D55E00", "#CC79A7",
                                                 "#777777", "#F0E442"};

    if (strcmp(name, "bubble") == 0)
        return "#E6E6E6";
    return strcmp(name, "other") == 0 ? "#BBBBBB" : colors[(*n_taken)++];
}

static void write_parts(FILE *stream, const char *name, const char *number,
                        const struct parts *parts, int n_stages, double scale)
{
    int n_taken = 0;

    fprintf(stream, "%s = %d\narray %s_names[%d]\narray %s_colors[%d]\n", number,
            parts->n, name, parts->n, name, parts->n);
    for (int i = 0; i < parts->n; i++)
        fprintf(stream, "%s_colors[%d] = '%s'\n", name, i + 1,
                part_color(parts->names[i], &n_taken));
    for (int i = 0; i < parts->n; i++) {
        fprintf(stream, "%s_names[%d] = ", name, i + 1);
        mist_plot_write_quoted(stream, parts->names[i]);
        fputc('\n', stream);
    }
    fprintf(stream, "$%s << END\n", name);
    for (int s = 0; s < n_stages; s++) {
        double sum = 0;
        fprintf(stream, "%d", s);
        for (int i = 0; i < parts->n; i++)
            fprintf(stream, " %.9g", scale * (sum += parts->of[i][s]));
        fputc('\n', stream);
    }
    fputs("END\n", stream);
}

/* The highest bar. */
static double highest(const struct parts *parts, int n_stages)
{
    double most = 0;

    for (int s = 0; s < n_stages; s++) {
        double sum = 0;
        for (int i = 0; i < parts->n; i++)
            sum += parts->of[i][s];
        most = fmax(most, sum);
    }
    return most;
}

static void write_picture(FILE *stream, struct parts *time, struct parts *memory,
                          int n_stages, const struct mist_plot_options *options,
                          enum mist_plot_format format)
{
    int width = LEFT + RIGHT + (n_stages < 12 ? 40 * n_stages + 160 : 640);
    struct mist_plot_axis axis = mist_plot_time_axis(highest(time, n_stages));
    bool is_small = highest(memory, n_stages) < 0x1p30;

    merge_small(time, n_stages);
    merge_small(memory, n_stages);
    mist_plot_write_head(stream, format, options, width, HEIGHT);
    mist_plot_write_title(stream, format, options, "An iteration, and memory at its peak",
                          width, 10);
    fprintf(stream, "time_unit = '%s'\nmemory_unit = '%s'\nn_stages = %d\n", axis.unit,
            is_small ? "MiB" : "GiB", n_stages);
    fprintf(stream, "left_edge = %.5f\nright_edge = %.5f\n",
            format == MIST_PLOT_TEXT ? 0.12 : (double)LEFT / width,
            format == MIST_PLOT_TEXT ? 0.65 : 1 - (double)RIGHT / width);
    write_parts(stream, "time", "n_times", time, n_stages, axis.scale);
    write_parts(stream, "memory", "n_parts", memory, n_stages,
                is_small ? 0x1p-20 : 0x1p-30);
    fputs(mist_script_breakdown, stream);
}

enum mist_status mist_plot_write_breakdown(FILE *stream, const char *path,
                                           const struct mist_plot_options *options,
                                           enum mist_plot_format format,
                                           struct mist_err *err)
{
    struct parts *parts = calloc(2, sizeof *parts); /* time and memory */
    int n_stages = 0;
    enum mist_status status = parts
                                  ? read_table(path, &parts[0], &parts[1], &n_stages, err)
                                  : mist_err_memory(err, NULL);

    if (status == MIST_OK)
        write_picture(stream, &parts[0], &parts[1], n_stages, options, format);
    free(parts);
    return status;
}
