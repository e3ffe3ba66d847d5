/*
 * The picture of --explain: bars of time and of device memory, stage by stage.
 *
 * Parts come from the table by their names. A part has one colour in all pictures, that of
 * the timeline's tasks where these are the same. The terminal, which has few letters for
 * bars, shows those with most in them over all stages, the others as one.
 */
#include "plots/internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_STAGES 512
#define MAX_PARTS  64
#define MAX_DRAWN  16 /* parts; as the key has room for */
#define MAX_TEXT   7  /* as the terminal has letters */

enum { STAGE, OF, PART, TIME, BYTES, N_COLUMNS };

static const struct mist_plot_column columns[N_COLUMNS] = {
    [STAGE] = MIST_PLOT_WHOLE("stage", 0, MAX_STAGES - 1),
    [OF] = MIST_PLOT_WORDS("of", 63, MIST_PLOT_NEEDED),
    [PART] = MIST_PLOT_WORDS("part", 63, MIST_PLOT_NEEDED),
    [TIME] = MIST_PLOT_NUMBER("time_s", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
    [BYTES] = MIST_PLOT_NUMBER("bytes", 0, DBL_MAX, MIST_PLOT_MAY_BE_EMPTY),
};

/* Parts of one sort, time or memory. */
struct parts {
    int n;
    struct part {
        char name[64];
        double of[MAX_STAGES]; /* seconds or bytes */
    } at[MAX_PARTS + 1];       /* one more for the rest */
};

static enum mist_status add(struct parts *parts, const struct mist_plot_table *table,
                            size_t i_row, double value, struct mist_err *err)
{
    const char *name = mist_plot_text(table, i_row, PART);
    int i = 0;

    while (i < parts->n && strcmp(parts->at[i].name, name) != 0)
        i++;
    if (i == MAX_PARTS)
        return mist_csv_fail(table->csv, i_row, PART, err, "is one part too many");
    if (i == parts->n)
        memcpy(parts->at[parts->n++].name, name, strlen(name) + 1);
    parts->at[i].of[(int)mist_plot_number(table, i_row, STAGE)] += value;
    return MIST_OK;
}

/* The highest bar. */
static double highest(const struct parts *parts, int n_stages)
{
    double most = 0;

    for (int s = 0; s < n_stages; s++) {
        double sum = 0;
        for (int i = 0; i < parts->n; i++)
            sum += parts->at[i].of[s];
        most = fmax(most, sum);
    }
    return most;
}

/* Rows of host memory are left out. */
static enum mist_status read_parts(const struct mist_plot_table *table,
                                   struct parts *time, struct parts *memory,
                                   int *n_stages, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < table->n && status == MIST_OK; i++) {
        bool is_time = strcmp(mist_plot_text(table, i, OF), "time") == 0;
        int column = is_time ? TIME : BYTES;
        double value = mist_plot_number(table, i, column);
        if (strcmp(mist_plot_text(table, i, OF), "host memory") == 0)
            continue;
        *n_stages = (int)fmax(*n_stages, mist_plot_number(table, i, STAGE) + 1);
        status = isnan(value)
                     ? mist_csv_fail(table->csv, i, (size_t)column, err, "is empty")
                     : add(is_time ? time : memory, table, i, value, err);
    }
    if (status == MIST_OK &&
        (highest(time, *n_stages) <= 0 || highest(memory, *n_stages) <= 0))
        status = mist_err_at(err, MIST_ERR_INPUT, mist_csv_path(table->csv), 0, 0,
                             "has no rows of time and of memory, nothing to draw");
    return status;
}

static double total(const struct parts *parts, int i, int n_stages)
{
    double sum = 0;

    for (int s = 0; s < n_stages; s++)
        sum += parts->at[i].of[s];
    return sum;
}

/* Leaves max parts at most, in their order: those with most in them, and the rest in one.
 * Parts without anything go. */
static void merge_small(struct parts *parts, int n_stages, int max)
{
    int n_kept = 0;

    for (int i = 0; i < parts->n; i++)
        if (total(parts, i, n_stages) > 0)
            parts->at[n_kept++] = parts->at[i];
    parts->n = n_kept;
    while (parts->n > max) {
        bool has_rest = strcmp(parts->at[parts->n - 1].name, "other") == 0;
        int n = parts->n - has_rest, least = 0;
        for (int i = 1; i < n; i++)
            if (total(parts, i, n_stages) < total(parts, least, n_stages))
                least = i;
        if (!has_rest) /* the rest begins with two */
            parts->at[parts->n++] = (struct part){.name = "other"};
        for (int s = 0; s < n_stages; s++)
            parts->at[parts->n - 1].of[s] += parts->at[least].of[s];
        size_t n_behind = (size_t)(--parts->n - least);
        memmove(&parts->at[least], &parts->at[least + 1], n_behind * sizeof(struct part));
    }
}

/* Of parts that are tasks of the timeline, its colours; those that no table of ours has take
 * turns. */
static unsigned part_color(const char *name, int *n_taken)
{
    static const struct {
        const char *name;
        enum mist_plot_group group;
    } tasks[] = {
        {"recomputation", MIST_GROUP_RECOMPUTE},
        {"optimizer step", MIST_GROUP_OPTIMIZER},
        {"tensor-parallel sums", MIST_GROUP_COLLECTIVE},
        {"between stages", MIST_GROUP_PIPELINE},
        {"copies from the host", MIST_GROUP_SWAP},
    };
    static const struct {
        const char *name;
        unsigned color;
    } known[] = {
        {"matrix products", 0x0072B2},
        {"attention", 0x00A0B0},
        {"norms and activations", 0x5D3A9B},
        {"embedding and loss", 0x882255},
        {"launches and host", 0x333333},
        {"keys and values of others", 0x1B7F5F},
        {"sums of gradients", 0x66C5A5},
        {"gathers of parameters", 0xB3E2D2},
        {"copies to the host", 0xAAAAAA},
        {"updates on the host", 0xB8AC2E},
        {"bubble", MIST_PLOT_IDLE_COLOR},
        {"weights", 0x0072B2},
        {"gradients", 0x66C5A5},
        {"optimizer state", 0xF0E442},
        {"activations", 0xE69F00},
        {"workspaces", 0xD55E00},
        {"ids and constants", 0xCC79A7},
        {"rounding and holes", 0xBBBBBB},
        {"kept by the framework", 0x8C6D31},
        {"held by the allocator", 0x9E9AC8},
        {"runtime", 0x777777},
        {"other", 0xBBBBBB},
    };
    enum { N_OTHERS = 8 };
    static const unsigned others[N_OTHERS] = {0x0072B2, 0x56B4E9, 0x009E73, 0xE69F00,
                                              0xD55E00, 0xCC79A7, 0x777777, 0xF0E442};

    for (size_t i = 0; i < sizeof tasks / sizeof *tasks; i++)
        if (strcmp(tasks[i].name, name) == 0)
            return mist_plot_groups[tasks[i].group].color;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].color;
    return others[(*n_taken)++ % N_OTHERS];
}

static void write_parts(FILE *stream, const char *name, const char *number,
                        const struct parts *parts, int n_stages, double scale)
{
    char array[32];
    int n_taken = 0;

    snprintf(array, sizeof array, "%s_names", name);
    fprintf(stream, "%s = %d\narray %s[%d]\narray %s_colors[%d]\n", number, parts->n,
            array, parts->n, name, parts->n);
    for (int i = 0; i < parts->n; i++)
        fprintf(stream, "%s_colors[%d] = '#%06X'\n", name, i + 1,
                part_color(parts->at[i].name, &n_taken));
    for (int i = 0; i < parts->n; i++)
        mist_plot_write_item(stream, array, (size_t)i, parts->at[i].name);
    fprintf(stream, "$%s << END\n", name);
    for (int s = 0; s < n_stages; s++) {
        double row[MAX_DRAWN + 1] = {s}, sum = 0;
        for (int i = 0; i < parts->n; i++)
            row[i + 1] = scale * (sum += parts->at[i].of[s]);
        mist_plot_write_numbers(stream, (size_t)parts->n + 1, row);
    }
    fputs("END\n", stream);
}

static void write_picture(const struct mist_plot_picture *at, struct parts *time,
                          struct parts *memory, int n_stages)
{
    int axis_pixels = n_stages < 12 ? 40 * n_stages + 260 : 740, gap = 5;
    struct mist_plot_axis axis = mist_plot_time_axis(highest(time, n_stages));
    bool is_small = highest(memory, n_stages) < 0x1p30;
    struct mist_plot_page page = {90 + axis_pixels + 230, 700, 90, 230, 56, 62};

    if (at->is_text) {
        page = (struct mist_plot_page){0, at->options->n_text_rows, 9, 32, 4, 4};
    } else
        gap = 50;
    int panel = (page.height - page.top - page.bottom - gap) / 2;
    merge_small(time, n_stages, at->is_text ? MAX_TEXT : MAX_DRAWN);
    merge_small(memory, n_stages, at->is_text ? MAX_TEXT : MAX_DRAWN);
    mist_plot_write_page(at, &page);
    mist_plot_write_panels(at, &page, 2, (const int[]){page.top, page.top + panel + gap},
                           (const int[]){page.top + panel, page.top + 2 * panel + gap});
    fprintf(at->stream, "time_unit = '%s'\nmemory_unit = '%s'\nn_stages = %d\n",
            axis.unit, is_small ? "MiB" : "GiB", n_stages);
    write_parts(at->stream, "time", "n_times", time, n_stages, axis.scale);
    write_parts(at->stream, "memory", "n_parts", memory, n_stages,
                is_small ? 0x1p-20 : 0x1p-30);
}

static enum mist_status write_breakdown(const struct mist_plot_picture *at,
                                        struct mist_err *err)
{
    struct parts *parts = calloc(2, sizeof *parts); /* time and memory */
    int n_stages = 0;
    enum mist_status status =
        parts ? read_parts(at->table, &parts[0], &parts[1], &n_stages, err)
              : mist_err_memory(err, NULL);

    if (status == MIST_OK)
        write_picture(at, &parts[0], &parts[1], n_stages);
    free(parts);
    return status;
}

const struct mist_plot_kind mist_plot_kind_breakdown = {
    .title = "An iteration, and memory at its peak",
    .from = "mist-sim --explain --csv",
    .columns = columns,
    .n_columns = N_COLUMNS,
    .max_rows = 1000000,
    .takes_others = true,
    .write_table = write_breakdown,
};
