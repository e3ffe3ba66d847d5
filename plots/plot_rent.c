/* The picture of mist-tune --sweep. See plot.h. */
#include "core/csv.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define HEIGHT       620 /* pixels */
#define POINT_PIXELS 44
#define MAX_POINTS   64

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
    DEVICES,
    ITERATION,
    BAR,
    TOKENS,
    DEVICE_TOKENS,
    MFU,
    PEAK,
    TRAINING,
    DEVICE_HOURS,
    COST,
    KIND,
    WHY,
    N_COLUMNS
};

static const struct mist_csv_column columns[N_COLUMNS] = {
    [NODES] = {"nodes", MIST_CSV_OPTIONAL},
    [DEVICES_PER_NODE] = {"devices_per_node", MIST_CSV_OPTIONAL},
    [RANKS] = {"ranks", MIST_CSV_OPTIONAL},
    [MEMORY] = {"memory", MIST_CSV_OPTIONAL},
    [DEVICE_MEMORY] = {"device_memory", MIST_CSV_OPTIONAL},
    [BATCH] = {"batch", MIST_CSV_OPTIONAL},
    [GLOBAL_BATCH] = {"global_batch", MIST_CSV_OPTIONAL},
    [SEQ_LEN] = {"seq_len", MIST_CSV_OPTIONAL},
    [MODEL] = {"model", MIST_CSV_OPTIONAL},
    [DEVICE] = {"device", MIST_CSV_OPTIONAL},
    [IS_BEST] = {"is_best", MIST_CSV_OPTIONAL},
    [DEVICES] = {"devices", MIST_CSV_OPTIONAL},
    [ITERATION] = {"iteration_s", MIST_CSV_REQUIRED},
    [BAR] = {"error_s", MIST_CSV_OPTIONAL},
    [TOKENS] = {"tokens_per_s", MIST_CSV_OPTIONAL},
    [DEVICE_TOKENS] = {"tokens_per_s_per_device", MIST_CSV_REQUIRED},
    [MFU] = {"model_flop_utilisation_frac", MIST_CSV_OPTIONAL},
    [PEAK] = {"peak_bytes", MIST_CSV_OPTIONAL},
    [TRAINING] = {"training_s", MIST_CSV_OPTIONAL},
    [DEVICE_HOURS] = {"device_hours", MIST_CSV_REQUIRED},
    [COST] = {"cost", MIST_CSV_OPTIONAL},
    [KIND] = {"kind", MIST_CSV_OPTIONAL},
    [WHY] = {"why", MIST_CSV_OPTIONAL},
};

/* The four figures; NAN: there is no plan. */
enum { TIME, SPEED, UTILISATION, MONEY, N_PANELS };

struct point {
    char name[96]; /* "4" or "4, 64" */
    double of[N_PANELS], bar_s;
    bool is_best;
};

struct table {
    size_t n;
    struct point points[MAX_POINTS];
    char names[128]; /* what points are called by: "nodes, batch" */
    bool has_cost;   /* else device-hours */
};

static size_t append(char *text, size_t size, size_t n, const char *word)
{
    return n < size ? n + (size_t)snprintf(text + n, size - n, "%s%.60s",
                                           n > 0 ? ", " : "", word)
                    : n;
}

/* An empty cell leaves *out alone. */
static enum mist_status read_cell(const struct mist_csv *csv, size_t i, size_t column,
                                  double *out, struct mist_err *err)
{
    return mist_csv_text(csv, i, column)[0]
               ? mist_csv_get_double(csv, i, column, 0, DBL_MAX, out, err)
               : MIST_OK;
}

static enum mist_status read_point(const struct mist_csv *csv, size_t i,
                                   struct table *table, struct mist_err *err)
{
    struct point *point = &table->points[i];
    const size_t of[N_PANELS] = {ITERATION, DEVICE_TOKENS, MFU,
                                 table->has_cost ? COST : DEVICE_HOURS};
    enum mist_status status = MIST_OK;
    size_t n = 0;

    point->name[0] = '\0';
    point->bar_s = 0;
    for (size_t k = 0; k < N_NAMES; k++)
        if (mist_csv_text(csv, i, k)[0])
            n = append(point->name, sizeof point->name, n, mist_csv_text(csv, i, k));
    for (size_t p = 0; p < N_PANELS && status == MIST_OK; p++) {
        point->of[p] = NAN;
        status = read_cell(csv, i, of[p], &point->of[p], err);
    }
    if (status == MIST_OK)
        status = read_cell(csv, i, BAR, &point->bar_s, err);
    point->is_best = strcmp(mist_csv_text(csv, i, IS_BEST), "true") == 0;
    return status;
}

static enum mist_status read_table(const char *path, struct table *table,
                                   struct mist_err *err)
{
    struct mist_csv *csv = NULL;
    enum mist_status status = mist_csv_load(path, columns, N_COLUMNS, &csv, err);
    size_t n = 0;

    if (status != MIST_OK)
        return status;
    table->n = mist_csv_n_rows(csv);
    table->names[0] = '\0';
    table->has_cost = false;
    if (table->n == 0 || table->n > MAX_POINTS)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "has %zu rows, expected 1 to %d", table->n, MAX_POINTS);
    for (size_t k = 0; k < N_NAMES && status == MIST_OK; k++)
        if (mist_csv_text(csv, 0, k)[0])
            n = append(table->names, sizeof table->names, n, columns[k].name);
    for (size_t i = 0; i < table->n && status == MIST_OK; i++)
        table->has_cost = table->has_cost || mist_csv_text(csv, i, COST)[0];
    for (size_t i = 0; i < table->n && status == MIST_OK; i++)
        status = read_point(csv, i, table, err);
    mist_csv_free(csv);
    return status;
}

/* A number for gnuplot; NaN draws nothing. */
static void write_number(FILE *stream, double value)
{
    if (isfinite(value))
        fprintf(stream, " %.9g", value);
    else
        fputs(" NaN", stream);
}

static void write_points(FILE *stream, const struct table *table,
                         const double scale[N_PANELS])
{
    size_t longest = 0;

    for (size_t i = 0; i < table->n; i++) {
        size_t n = strlen(table->points[i].name);
        longest = n > longest ? n : longest;
    }
    fprintf(stream, "set xtics scale 0 font ',8' %s(",
            longest > 6 ? "rotate by -40 " : "");
    for (size_t i = 0; i < table->n; i++) {
        fputs(i > 0 ? ", " : "", stream);
        mist_plot_write_quoted(stream, table->points[i].name);
        fprintf(stream, " %zu", i + 1);
    }
    fputs(")\n", stream);
    for (size_t i = 0; i < table->n; i++)
        if (!isfinite(table->points[i].of[TIME]))
            fprintf(stream,
                    "set label %zu 'no plan' at first %zu, graph 0.03 rotate by 90 "
                    "font ',8' textcolor rgb '#777777'\n",
                    i + 1, i + 1);
    fputs("$points << END\n", stream);
    for (size_t i = 0; i < table->n; i++) {
        const struct point *point = &table->points[i];
        fprintf(stream, "%zu", i + 1);
        for (int p = 0; p < N_PANELS; p++)
            write_number(stream, point->of[p] * scale[p]);
        write_number(stream, point->bar_s * scale[TIME]);
        fprintf(stream, " %d\n", point->is_best);
    }
    fputs("-9 0 0 0 0 0 0\n-9 0 0 0 0 0 1\nEND\n", stream);
}

enum mist_status mist_plot_write_rent(FILE *stream, const char *path,
                                      const struct mist_plot_options *options,
                                      enum mist_plot_format format, struct mist_err *err)
{
    struct table table;
    double high[N_PANELS] = {0};
    enum mist_status status = read_table(path, &table, err);

    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < table.n; i++)
        for (int p = 0; p < N_PANELS; p++) {
            double bar_s = p == TIME ? table.points[i].bar_s : 0;
            high[p] = fmax(high[p], table.points[i].of[p] + bar_s); /* fmax skips NAN */
        }
    struct mist_plot_axis axis = mist_plot_time_axis(high[TIME]);
    const double scale[N_PANELS] = {axis.scale, 1, 100, 1};
    int width = 2 * (110 + POINT_PIXELS * (int)(table.n > 6 ? table.n : 6));
    mist_plot_write_head(stream, format, options, width, HEIGHT);
    mist_plot_write_title(stream, format, options, "The best plan at each point", width,
                          10);
    fprintf(stream, "n_points = %zu\npoint_name = ", table.n);
    mist_plot_write_quoted(stream, table.names);
    fprintf(stream,
            "\narray panel_names[4] = ['iteration (%s)', 'tokens/s of a device', "
            "'MFU (%%)', '%s']\narray highs[4] = [",
            axis.unit,
            table.has_cost ? "cost of the training" : "device-hours of the training");
    for (int p = 0; p < N_PANELS; p++)
        fprintf(stream, "%s%.9g", p > 0 ? ", " : "",
                high[p] > 0 ? 1.1 * high[p] * scale[p] : 1);
    fputs("]\n", stream);
    write_points(stream, &table, scale);
    fputs(mist_script_rent, stream);
    return MIST_OK;
}
