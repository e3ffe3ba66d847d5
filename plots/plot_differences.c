/*
 * The picture of mist-sim --compare: where predicted and measured times of tasks differ, by
 * kind of task, by stage and by rank. See plot.h.
 *
 * A bar is of one rank and iteration, or the mean of them, in the colours of the timeline:
 * what was predicted too slow to the right, too fast to the left.
 */
#include "core/order.h"
#include "core/parse.h"
#include "plots/internal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define AXIS_PIXELS 460
#define POINTS      9 /* size of the letters of names and notes */
#define MOST_ROWS   12

/* Sizes of the page, in pixels and in rows of text. */
static const struct sizes {
    int left, top, title, row, below, bottom; /* below: numbers of an axis */
} sizes[2] = {{170, 84, 30, 19, 32, 24}, {32, 3, 2, 1, 3, 1}};

enum { KIND, STAGE, RANK, N_PANELS };
static const char *const panel_names[N_PANELS] = {"kind of task", "stage", "rank"};

enum { TASK, OF_STAGE, OF_RANK, PREDICTED, MEASURED, WHOLE, MEASURED_WHOLE, N_COLUMNS };

static const struct mist_plot_column columns[N_COLUMNS] = {
    [TASK] = MIST_PLOT_WORDS("task", 63, MIST_PLOT_NEEDED),
    [OF_STAGE] = MIST_PLOT_WHOLE("stage", 0, INT_MAX),
    [OF_RANK] = MIST_PLOT_WHOLE("rank", 0, INT_MAX),
    [PREDICTED] = MIST_PLOT_NUMBER("predicted_s", 0, 1e12, MIST_PLOT_NEEDED),
    [MEASURED] = MIST_PLOT_NUMBER("measured_s", 0, 1e12, MIST_PLOT_NEEDED),
    [WHOLE] = MIST_PLOT_NUMBER("iteration_s", 0, 1e12, MIST_PLOT_MAY_BE_ABSENT),
    [MEASURED_WHOLE] =
        MIST_PLOT_NUMBER("measured_iteration_s", 0, 1e12, MIST_PLOT_MAY_BE_ABSENT),
};

/* A row of the table. */
struct difference {
    int of[N_PANELS];
    int panel; /* that rows are sorted for */
    double predicted_s, measured_s;
};

/* What differs in all rows of one kind, stage or rank, as a mean of its ranks. */
struct bar {
    int of;
    double predicted_s, measured_s;
    double more_s[MIST_N_GROUPS]; /* predicted - measured */
    double size_s;                /* of all these, whatever their sign */
};

struct panel {
    size_t n, n_all; /* drawn; in the table */
    struct bar bars[MOST_ROWS];
};

struct table {
    struct difference *rows; /* owned */
    size_t n;
    struct panel panels[N_PANELS];
};

/* ----------------------------------------------------------------------------- reading */

static enum mist_status read_kind(const struct mist_csv *csv, size_t i, int *out,
                                  struct mist_err *err)
{
    for (int k = 0; k < MIST_N_TASK_KINDS; k++)
        if (strcmp(mist_csv_text(csv, i, TASK),
                   mist_task_kind_name((enum mist_task_kind)k)) == 0) {
            *out = k;
            return MIST_OK;
        }
    return mist_csv_fail(csv, i, TASK, err, "is no kind of task");
}

/* out->rows: owned by the caller also after a failure. */
static enum mist_status read_table(const struct mist_plot_table *table, struct table *out,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    out->n = table->n;
    out->rows = calloc(out->n, sizeof *out->rows);
    if (!out->rows)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < out->n && status == MIST_OK; i++) {
        out->rows[i] = (struct difference){
            .of = {[STAGE] = (int)mist_plot_number(table, i, OF_STAGE),
                   [RANK] = (int)mist_plot_number(table, i, OF_RANK)},
            .predicted_s = mist_plot_number(table, i, PREDICTED),
            .measured_s = mist_plot_number(table, i, MEASURED)};
        status = read_kind(table->csv, i, &out->rows[i].of[KIND], err);
    }
    return status;
}

/* -------------------------------------------------------------------------------- bars */

MIST_COMPARATOR(compare_rows, struct difference, of[a->panel], of[RANK], of[KIND])

/* The sum over rows [first, end), which are sorted by rank, divided by n_ranks; 0: by the
 * number of their ranks. */
static struct bar add_up(const struct difference *rows, size_t first, size_t end,
                         int panel, size_t n_ranks)
{
    struct bar bar = {.of = rows[first].of[panel]};
    size_t n = n_ranks;

    for (size_t i = first; i < end; i++) {
        enum mist_plot_group group =
            mist_plot_group_of((enum mist_task_kind)rows[i].of[KIND]);
        bar.predicted_s += rows[i].predicted_s;
        bar.measured_s += rows[i].measured_s;
        bar.more_s[group] += rows[i].predicted_s - rows[i].measured_s;
        if (n_ranks == 0)
            n += i == first || rows[i].of[RANK] != rows[i - 1].of[RANK];
    }
    bar.predicted_s /= (double)n;
    bar.measured_s /= (double)n;
    for (int g = 0; g < MIST_N_GROUPS; g++) {
        bar.more_s[g] /= (double)n;
        bar.size_s += fabs(bar.more_s[g]);
    }
    return bar;
}

/* Puts a bar among the largest so far. */
static void insert(struct panel *panel, const struct bar *bar)
{
    size_t at = panel->n;

    while (at > 0 && panel->bars[at - 1].size_s < bar->size_s)
        at--;
    if (at == MOST_ROWS)
        return;
    size_t n_behind = (panel->n < MOST_ROWS ? panel->n : MOST_ROWS - 1) - at;
    memmove(&panel->bars[at + 1], &panel->bars[at], n_behind * sizeof *bar);
    panel->bars[at] = *bar;
    panel->n += panel->n < MOST_ROWS;
}

static void make_panels(struct table *table)
{
    /* Ranks come first: all of them divide what a kind sums up. */
    for (int p = N_PANELS - 1; p >= 0; p--) {
        struct panel *panel = &table->panels[p];
        for (size_t i = 0; i < table->n; i++)
            table->rows[i].panel = p;
        qsort(table->rows, table->n, sizeof *table->rows, compare_rows);
        for (size_t first = 0, end; first < table->n; first = end) {
            for (end = first + 1;
                 end < table->n && table->rows[end].of[p] == table->rows[first].of[p];)
                end++;
            struct bar bar = add_up(table->rows, first, end, p,
                                    p == KIND ? table->panels[RANK].n_all : 0);
            insert(panel, &bar);
            panel->n_all++;
        }
    }
}

/* ----------------------------------------------------------------------------- writing */

static size_t name_bar(int panel, int of, char *text, size_t size)
{
    return panel == KIND ? (size_t)snprintf(text, size, "%s",
                                            mist_task_kind_name((enum mist_task_kind)of))
                         : (size_t)snprintf(text, size, "%s %d", panel_names[panel], of);
}

/* "+1.20 ms" */
static const char *format_change(double change_s, char *text, size_t size)
{
    char time[MIST_FORMAT_BYTES];

    snprintf(text, size, "%c%s", change_s < 0 ? '-' : '+',
             mist_format_time_s(time, sizeof time, fabs(change_s)));
    return text;
}

/* "+1.20 ms:  3.40 ms predicted, 2.20 ms measured" */
static const char *write_note(const struct bar *bar, char *text, size_t size)
{
    char change[MIST_FORMAT_BYTES + 1], times[2][MIST_FORMAT_BYTES];

    snprintf(text, size, "%s:  %s predicted, %s measured",
             format_change(bar->predicted_s - bar->measured_s, change, sizeof change),
             mist_format_time_s(times[0], sizeof times[0], bar->predicted_s),
             mist_format_time_s(times[1], sizeof times[1], bar->measured_s));
    return text;
}

/* Texts that the script evaluates: the names of rows and what stands to their right; in the
 * terminal the names say how much. */
static void write_names(FILE *stream, const struct panel *panel, int p, bool is_text)
{
    char name[80], change[MIST_FORMAT_BYTES + 1], note[4 * MIST_FORMAT_BYTES];

    fprintf(stream, "row_names[%d] = \"set ytics (", p + 1);
    for (size_t i = 0; i < panel->n; i++) {
        const struct bar *bar = &panel->bars[i];
        size_t n = name_bar(p, bar->of, name, sizeof name);
        if (is_text)
            snprintf(
                name + n, sizeof name - n, "  %s",
                format_change(bar->predicted_s - bar->measured_s, change, sizeof change));
        mist_plot_write_tic(stream, i, name);
    }
    fprintf(stream, ")\"\nrow_notes[%d] = \"", p + 1);
    for (size_t i = 0; i < panel->n && !is_text; i++)
        fprintf(stream,
                "set label %zu '%s' at graph 1, first %zu left offset 1, 0 @note; ",
                i + 1, write_note(&panel->bars[i], note, sizeof note), i + 1);
    fputs("\"\n", stream);
}

/* Of one bar what is too slow goes to the right, what is too fast to the left. */
static void write_bar(FILE *stream, const struct bar *bar, int p, size_t row,
                      double scale, double hair)
{
    double right = 0, left = 0;

    for (int g = 0; g < MIST_N_GROUPS; g++) {
        double *edge = bar->more_s[g] < 0 ? &left : &right;
        double from = *edge;
        if (bar->more_s[g] == 0)
            continue;
        *edge += bar->more_s[g] * scale;
        fprintf(stream, "%d %zu %.9g %.9g %u\n", p + 1, row, fmin(from, *edge),
                fmax(from, *edge), mist_plot_groups[g].color);
    }
    if (bar->size_s == 0) /* gnuplot wants a box */
        fprintf(stream, "%d %zu %.9g %.9g 0\n", p + 1, row, -hair, hair);
}

/* How far the bars of a panel reach to both sides. */
static void find_reach(const struct panel *panel, double *low_s, double *high_s)
{
    *low_s = *high_s = 0;
    for (size_t i = 0; i < panel->n; i++) {
        double left_s = 0, right_s = 0;
        for (int g = 0; g < MIST_N_GROUPS; g++) {
            double more_s = panel->bars[i].more_s[g];
            *(more_s < 0 ? &left_s : &right_s) += more_s;
        }
        *low_s = fmin(*low_s, left_s);
        *high_s = fmax(*high_s, right_s);
    }
    if (*low_s == *high_s) { /* nothing differs */
        *low_s = -1e-6;
        *high_s = 1e-6;
    }
}

static void write_bars(FILE *stream, const struct table *table, bool is_text)
{
    struct mist_plot_axis axis;
    double low_s[N_PANELS], high_s[N_PANELS], most_s = 0;

    for (int p = 0; p < N_PANELS; p++) {
        find_reach(&table->panels[p], &low_s[p], &high_s[p]);
        most_s = fmax(most_s, high_s[p] - low_s[p]);
    }
    axis = mist_plot_time_axis(most_s);
    fputs("array lows[3]\narray highs[3]\n", stream);
    for (int p = 0; p < N_PANELS; p++) {
        double room_s = 0.04 * (high_s[p] - low_s[p]);
        fprintf(stream, "lows[%d] = %.9g\nhighs[%d] = %.9g\n", p + 1,
                (low_s[p] - room_s) * axis.scale, p + 1,
                (high_s[p] + room_s) * axis.scale);
    }
    fprintf(stream, "x_label = 'predicted - measured (%s), of a rank and iteration'\n",
            axis.unit);
    fputs("$bars << END\n", stream);
    for (int p = 0; p < N_PANELS; p++)
        for (size_t i = 0; i < table->panels[p].n; i++)
            write_bar(stream, &table->panels[p].bars[i], p, i + 1, axis.scale,
                      is_text ? 0 : 0.001 * (high_s[p] - low_s[p]) * axis.scale);
    fputs("END\n", stream);
}

/* The groups of bars, in the colours of the timeline. */
static void write_key(FILE *stream, const struct table *table)
{
    bool is_used[MIST_N_GROUPS] = {false};

    for (size_t i = 0; i < table->n; i++)
        is_used[mist_plot_group_of((enum mist_task_kind)table->rows[i].of[KIND])] = true;
    mist_plot_write_key(stream, is_used, false);
}

/* The widest note, in pixels. */
static int note_pixels(const struct table *table)
{
    double em = 0;

    for (int p = 0; p < N_PANELS; p++)
        for (size_t i = 0; i < table->panels[p].n; i++) {
            char note[4 * MIST_FORMAT_BYTES];
            write_note(&table->panels[p].bars[i], note, sizeof note);
            em = fmax(em, mist_plot_text_em(note));
        }
    return (int)(em * mist_plot_em_pixels(POINTS)) + 20;
}

/* Edges, titles and rows of the panels; returns where the last one ends. */
static int write_panels(const struct mist_plot_picture *at, const struct table *table,
                        const struct mist_plot_page *page)
{
    const struct sizes *size = &sizes[at->is_text];
    int tops[N_PANELS], bottoms[N_PANELS], y = size->top;

    for (int p = 0; p < N_PANELS; p++) {
        tops[p] = y + size->title;
        bottoms[p] = tops[p] + size->row * (int)table->panels[p].n + at->is_text;
        y = bottoms[p] + size->below;
    }
    if (!page)
        return y + size->bottom;
    mist_plot_write_panels(at, page, N_PANELS, tops, bottoms);
    fputs("array panel_titles[3]\narray n_rows[3]\narray row_names[3]\narray "
          "row_notes[3]\n",
          at->stream);
    for (int p = 0; p < N_PANELS; p++) {
        const struct panel *panel = &table->panels[p];
        char all[64] = "";
        if (panel->n < panel->n_all)
            snprintf(all, sizeof all, ", the %zu largest of %zu", panel->n, panel->n_all);
        fprintf(at->stream, "panel_titles[%d] = 'by %s%s'\nn_rows[%d] = %zu\n", p + 1,
                panel_names[p], all, p + 1, panel->n);
        write_names(at->stream, panel, p, at->is_text);
    }
    return y;
}

static void write_picture(const struct mist_plot_picture *at, const struct table *table)
{
    struct mist_plot_picture titled = *at;
    char title[PATH_MAX], times[2][MIST_FORMAT_BYTES];
    double predicted_s = mist_plot_number(at->table, 0, WHOLE);
    double measured_s = mist_plot_number(at->table, 0, MEASURED_WHOLE);
    const struct sizes *size = &sizes[at->is_text];
    int notes = at->is_text ? 3 : note_pixels(table);
    struct mist_plot_page page = {size->left + AXIS_PIXELS + notes,
                                  write_panels(at, table, NULL),
                                  size->left,
                                  notes,
                                  size->top,
                                  size->bottom};

    titled.title = title;
    snprintf(title, sizeof title, "%s", at->title);
    if (predicted_s > 0 && measured_s > 0)
        snprintf(title, sizeof title, "%s: %s predicted, %s measured", at->title,
                 mist_format_time_s(times[0], sizeof times[0], predicted_s),
                 mist_format_time_s(times[1], sizeof times[1], measured_s));
    mist_plot_write_page(&titled, &page);
    write_panels(at, table, &page);
    write_key(at->stream, table);
    write_bars(at->stream, table, at->is_text);
}

static enum mist_status write_differences(const struct mist_plot_picture *at,
                                          struct mist_err *err)
{
    struct table table = {0};
    enum mist_status status = read_table(at->table, &table, err);

    if (status == MIST_OK) {
        make_panels(&table);
        write_picture(at, &table);
    }
    free(table.rows);
    return status;
}

const struct mist_plot_kind mist_plot_kind_differences = {
    .title = "Where predicted and measured differ",
    .from = "mist-sim --compare FILE --csv",
    .columns = columns,
    .n_columns = N_COLUMNS,
    .max_rows = 10000000,
    .takes_others = true,
    .write_table = write_differences,
};
