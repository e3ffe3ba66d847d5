/* The pictures of timelines: streams over time, memory over time. See plot.h. */
#include "core/parse.h"
#include "plots/internal.h"
#include "plots/scripts.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#define WIDTH         1500 /* pixels */
#define LEFT          150
#define PAGE_TOP      66 /* title and two rows of legend */
#define PANEL_TITLE   26
#define PAGE_BOTTOM   54
#define LANE_COMPUTE  1.0 /* heights of lanes, in units */
#define LANE_OTHER    0.62
#define RANK_GAP      0.35
#define MERGE_FRAC    (1.0 / 6000) /* gaps that no picture resolves */
#define LABEL_FRAC    (1.0 / 100)  /* gaps inside one micro-batch that carry one label */
#define DIGIT_PIXELS  7
#define MEMORY_PIXELS 330
#define MAX_KEYS      32 /* ranks in the legend of memory */
#define KEYS_PER_ROW  7  /* with the longest names */
#define KEY_ROW       16

/* Where panels and lanes are, in pixels and units. */
struct layout {
    int height;       /* of the page */
    int panel_height; /* of the axes of one panel */
    double *lane_y;   /* owned; [n_lanes] top edge in units */
    double y_max;     /* units of a panel */
    double unit;      /* pixels per unit */
};

static double lane_height(const struct mist_plot_lane *lane)
{
    return lane->stream == MIST_STREAM_COMPUTE ? LANE_COMPUTE : LANE_OTHER;
}

static enum mist_status make_layout(struct layout *layout,
                                    const struct mist_plot_view *view, int n_panels,
                                    struct mist_err *err)
{
    double y = RANK_GAP / 2;

    layout->lane_y = calloc((size_t)view->n_lanes, sizeof *layout->lane_y);
    if (!layout->lane_y)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d lanes",
                            view->n_lanes);
    for (int i = 0; i < view->n_lanes; i++) {
        if (i > 0 && view->lanes[i].rank != view->lanes[i - 1].rank)
            y += RANK_GAP;
        layout->lane_y[i] = y;
        y += lane_height(&view->lanes[i]);
    }
    layout->y_max = y + RANK_GAP / 2;
    layout->unit = fmin(26, fmax(7, 1700 / (layout->y_max * n_panels)));
    layout->panel_height = (int)fmin(12000, fmax(70, layout->unit * layout->y_max));
    layout->unit = layout->panel_height / layout->y_max;
    layout->height =
        PAGE_TOP + PAGE_BOTTOM + n_panels * (PANEL_TITLE + layout->panel_height);
    return MIST_OK;
}

/* Screen coordinates of the panels' edges, the first one on top. */
static void write_panels(FILE *stream, int n_panels, int page_top, int panel_height,
                         int height)
{
    fprintf(stream, "n_panels = %d\narray panel_tops[%d]\narray panel_bottoms[%d]\n",
            n_panels, n_panels, n_panels);
    for (int i = 0; i < n_panels; i++) {
        int top = page_top + i * (PANEL_TITLE + panel_height) + PANEL_TITLE;
        fprintf(stream, "panel_tops[%d] = %.5f\npanel_bottoms[%d] = %.5f\n", i + 1,
                1 - (double)top / height, i + 1,
                1 - (double)(top + panel_height) / height);
    }
    fprintf(stream, "key_y = %.5f\nleft_edge = %.5f\n", 1 - 30.0 / height,
            (double)LEFT / WIDTH);
}

static void write_time_axis(FILE *stream, const struct mist_plot_view *view,
                            const struct mist_plot_axis *axis)
{
    fprintf(stream, "x_min = %.9g\nx_max = %.9g\nx_label = 'time (%s)'\n",
            view->from_s * axis->scale, view->to_s * axis->scale, axis->unit);
}

/* The share of the visible time in which the compute lanes of a timeline are busy. */
static double busy_frac(const struct mist_plot_view *view, int i_input)
{
    double busy_s = 0;
    int n = 0;

    for (int i = 0; i < view->n_lanes; i++)
        n += view->lanes[i].stream == MIST_STREAM_COMPUTE;
    for (size_t i = 0; i < view->n_spans; i++)
        if (view->spans[i].i_input == i_input &&
            view->lanes[view->spans[i].i_lane].stream == MIST_STREAM_COMPUTE)
            busy_s += view->spans[i].end_s - view->spans[i].start_s;
    return n ? busy_s / (n * (view->to_s - view->from_s)) : 0;
}

/* "run.csv: 1.23 s, compute busy 83 %" */
static void write_panel_titles(FILE *stream, const struct mist_plot_view *view,
                               const struct mist_plot_input *inputs, int n_inputs)
{
    fprintf(stream, "array panel_titles[%d]\n", n_inputs);
    for (int i = 0; i < n_inputs; i++) {
        char time[MIST_FORMAT_BYTES], text[PATH_MAX + 128];
        double start_s, end_s;
        mist_timeline_span(inputs[i].timeline, &start_s, &end_s);
        snprintf(text, sizeof text, "%s: %s, compute busy %.1f %% of the time shown",
                 inputs[i].name, mist_format_time_s(time, sizeof time, end_s - start_s),
                 100 * busy_frac(view, i));
        fprintf(stream, "panel_titles[%d] = ", i + 1);
        mist_plot_write_fitted(stream, text, /* it stands in the middle of the axes */
                               (WIDTH - LEFT) / mist_plot_em_pixels(10));
        fputc('\n', stream);
    }
}

/* Names of lanes; only of ranks where lanes are too thin for a name each. */
static void write_lane_names(FILE *stream, const struct mist_plot_view *view,
                             const struct layout *layout)
{
    static const char *const names[MIST_N_STREAMS] = {
        [MIST_STREAM_COMPUTE] = "compute",
        [MIST_STREAM_GPU_GPU] = "gpu-gpu",
        [MIST_STREAM_HOST_TO_DEVICE] = "host→dev",
        [MIST_STREAM_DEVICE_TO_HOST] = "dev→host",
        [MIST_STREAM_SEND] = "send",
        [MIST_STREAM_RECEIVE] = "receive",
        [MIST_STREAM_HOST] = "host",
    };
    bool is_thin = layout->unit * LANE_OTHER < 11;
    double last = -1e9;

    fputs("set ytics (", stream);
    for (int i = 0, n = 0; i < view->n_lanes; i++) {
        const struct mist_plot_lane *lane = &view->lanes[i];
        bool is_first = i == 0 || lane->rank != view->lanes[i - 1].rank;
        double y = layout->lane_y[i] + lane_height(lane) / 2;
        if (is_thin && (!is_first || (y - last) * layout->unit < 11))
            continue;
        last = y;
        fprintf(stream, "%s'", n++ ? ", " : "");
        if (is_first)
            fprintf(stream, "rank %d  ", lane->rank);
        fprintf(stream, "%s' %.4f", is_thin ? "" : names[lane->stream], y);
    }
    fprintf(stream, ") font ',%d'\n", is_thin ? 8 : 9);
}

static void write_idle(FILE *stream, const struct mist_plot_view *view,
                       const struct layout *layout)
{
    fputs("$idle << END\n", stream);
    for (int i = 0; i < view->n_lanes; i++)
        if (view->lanes[i].stream == MIST_STREAM_COMPUTE)
            fprintf(stream, "%.4f %.4f\n", layout->lane_y[i],
                    layout->lane_y[i] + LANE_COMPUTE);
    fputs("-9 -9\nEND\n", stream); /* gnuplot wants a point even without a compute lane */
}

static void write_boxes(FILE *stream, const struct mist_plot_view *view,
                        const struct layout *layout, const struct mist_plot_axis *axis)
{
    double pixel_s = (view->to_s - view->from_s) / (WIDTH - LEFT);

    fputs("$boxes << END\n", stream);
    for (size_t i = 0; i < view->n_spans; i++) {
        const struct mist_plot_span *span = &view->spans[i];
        double y = layout->lane_y[span->i_lane];
        double end_s = span->end_s;
        /* A hair of background tells neighbours of one colour apart. */
        if (end_s - span->start_s > 4 * pixel_s)
            end_s -= 0.7 * pixel_s;
        fprintf(stream, "%d %.9g %.9g %.4f %.4f %u\n", span->i_input + 1,
                span->start_s * axis->scale, end_s * axis->scale, y + 0.04,
                y + lane_height(&view->lanes[span->i_lane]) - 0.04,
                mist_plot_groups[span->group].color);
    }
    fputs("END\n", stream);
}

/* Numbers of micro-batches on the compute lanes, where they fit. */
static enum mist_status
write_labels(FILE *stream, const struct mist_plot_input *inputs, int n_inputs,
             const struct mist_plot_options *options, const struct layout *layout,
             const struct mist_plot_axis *axis, struct mist_err *err)
{
    struct mist_plot_view view;
    enum mist_status status =
        mist_plot_view_init(&view, inputs, n_inputs, options, LABEL_FRAC, true, err);

    if (status != MIST_OK)
        return status;
    double pixel_s = (view.to_s - view.from_s) / (WIDTH - LEFT);
    fputs("$labels << END\n", stream);
    for (size_t i = 0; i < view.n_spans; i++) {
        const struct mist_plot_span *span = &view.spans[i];
        int n = snprintf(NULL, 0, "%d", span->micro_batch);
        if (span->micro_batch < 0 || layout->unit < 10 ||
            view.lanes[span->i_lane].stream != MIST_STREAM_COMPUTE ||
            span->end_s - span->start_s < (n * DIGIT_PIXELS + 2) * pixel_s)
            continue;
        fprintf(stream, "%d %.9g %.4f %d %u\n", span->i_input + 1,
                (span->start_s + span->end_s) / 2 * axis->scale,
                layout->lane_y[span->i_lane] + LANE_COMPUTE / 2, span->micro_batch,
                mist_plot_groups[span->group].text_color);
    }
    for (int i = 0; i < n_inputs; i++) /* gnuplot 5.4 crashes on labels without a point */
        fprintf(stream, "%d %.9g -9 0 0\n", i + 1, view.from_s * axis->scale);
    fputs("END\n", stream);
    mist_plot_view_fini(&view);
    return MIST_OK;
}

static void write_key(FILE *stream, const struct mist_plot_view *view)
{
    bool is_used[MIST_N_GROUPS] = {false};
    int n = 1;

    for (size_t i = 0; i < view->n_spans; i++)
        is_used[view->spans[i].group] = true;
    for (int i = 0; i < MIST_N_GROUPS; i++)
        n += is_used[i];
    fprintf(stream, "n_keys = %d\narray key_names[%d]\narray key_colors[%d]\n", n, n, n);
    n = 0;
    for (int i = 0; i < MIST_N_GROUPS; i++)
        if (is_used[i]) {
            n++;
            fprintf(stream, "key_names[%d] = '%s'\nkey_colors[%d] = '#%06X'\n", n,
                    mist_plot_groups[i].name, n, mist_plot_groups[i].color);
        }
    fprintf(stream,
            "key_names[%d] = 'bubble (compute idle)'\nkey_colors[%d] = '#E6E6E6'\n",
            n + 1, n + 1);
}

enum mist_status
mist_plot_write_timeline(FILE *stream, const struct mist_plot_input *inputs, int n_inputs,
                         const struct mist_plot_options *options,
                         enum mist_plot_format format, struct mist_err *err)
{
    struct mist_plot_view view = {0};
    struct layout layout = {0};
    enum mist_status status =
        mist_plot_view_init(&view, inputs, n_inputs, options, MERGE_FRAC, false, err);

    if (status == MIST_OK)
        status = make_layout(&layout, &view, n_inputs, err);
    if (status != MIST_OK)
        goto out;
    struct mist_plot_axis axis = mist_plot_time_axis(view.to_s - view.from_s);
    mist_plot_write_head(stream, format, options, WIDTH, layout.height);
    mist_plot_write_title(stream, format, options, "Timeline", WIDTH, 12);
    write_panels(stream, n_inputs, PAGE_TOP, layout.panel_height, layout.height);
    write_time_axis(stream, &view, &axis);
    fprintf(stream, "y_max = %.4f\n", layout.y_max);
    write_panel_titles(stream, &view, inputs, n_inputs);
    write_lane_names(stream, &view, &layout);
    write_key(stream, &view);
    write_idle(stream, &view, &layout);
    write_boxes(stream, &view, &layout, &axis);
    status = write_labels(stream, inputs, n_inputs, options, &layout, &axis, err);
    fputs(mist_script_timeline, stream);
out:
    mist_plot_view_fini(&view);
    free(layout.lane_y);
    return status;
}

/* ---- memory ---- */

static int compare_rows(const void *a_any, const void *b_any)
{
    const struct mist_timeline_row *a = *(const struct mist_timeline_row *const *)a_any;
    const struct mist_timeline_row *b = *(const struct mist_timeline_row *const *)b_any;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    if (a->start_s != b->start_s)
        return a->start_s < b->start_s ? -1 : 1;
    return (a->task > b->task) - (a->task < b->task);
}

/* One line per rank: points where the live bytes change. Returns the largest
 * bytes drawn. */
static int64_t write_lines(FILE *stream, const struct mist_timeline_row **rows,
                           size_t n_rows, const struct mist_plot_view *view, int i_input,
                           const struct mist_plot_axis *axis, int n_ranks,
                           const int *ranks)
{
    const double gib = 1024.0 * 1024 * 1024;
    int64_t max = 0;

    for (size_t i = 0, end; i < n_rows; i = end) {
        int i_rank = 0;
        double last_s = view->from_s;
        int64_t live = 0;
        while (i_rank < n_ranks && ranks[i_rank] != rows[i]->rank)
            i_rank++;
        for (end = i; end < n_rows && rows[end]->rank == rows[i]->rank; end++) {
            const struct mist_timeline_row *row = rows[end];
            double start_s = row->start_s - view->origin_s[i_input];
            if (i_rank == n_ranks || row->device_live_bytes == 0 || start_s > view->to_s)
                continue;
            last_s = fmax(row->end_s - view->origin_s[i_input], last_s);
            if (row->device_live_bytes == live)
                continue;
            live = row->device_live_bytes;
            /* Before the view only the last value counts, which gnuplot cuts at
             * the edge. */
            fprintf(stream, "%d %d %.9g %.6g\n", i_input + 1, i_rank + 1,
                    start_s * axis->scale, (double)live / gib);
            max = live > max ? live : max;
        }
        if (live)
            fprintf(stream, "%d %d %.9g %.6g\n\n", i_input + 1, i_rank + 1,
                    fmin(last_s, view->to_s) * axis->scale, (double)live / gib);
    }
    return max;
}

/* The data block of all timelines. *max_bytes: the largest value in it. */
static enum mist_status
write_memory_data(FILE *stream, const struct mist_plot_input *inputs, int n_inputs,
                  const struct mist_plot_view *view, const struct mist_plot_axis *axis,
                  int n_ranks, const int *ranks, int64_t *max_bytes, struct mist_err *err)
{
    *max_bytes = 0;
    fputs("$memory << END\n", stream);
    for (int i = 0; i < n_inputs; i++) {
        const struct mist_timeline *timeline = inputs[i].timeline;
        const struct mist_timeline_row **rows =
            calloc(timeline->n_rows + 1, sizeof *rows);
        if (!rows)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu tasks",
                                timeline->n_rows);
        for (size_t j = 0; j < timeline->n_rows; j++)
            rows[j] = &timeline->rows[j];
        qsort(rows, timeline->n_rows, sizeof *rows, compare_rows);
        int64_t max =
            write_lines(stream, rows, timeline->n_rows, view, i, axis, n_ranks, ranks);
        *max_bytes = max > *max_bytes ? max : *max_bytes;
        free(rows);
    }
    fputs("END\n", stream);
    if (*max_bytes == 0)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "no task of the chosen ranks and times has device_live_bytes");
    return MIST_OK;
}

/* The ranks of a view, ascending. Returns how many. */
static int find_ranks(const struct mist_plot_view *view, int *ranks)
{
    int n = 0;

    for (int i = 0; i < view->n_lanes; i++)
        if (n == 0 || ranks[n - 1] != view->lanes[i].rank)
            ranks[n++] = view->lanes[i].rank;
    return n;
}

static void write_memory_settings(FILE *stream, const struct mist_plot_options *options,
                                  int64_t max_bytes, int n_ranks, const int *ranks)
{
    const double gib = 1024.0 * 1024 * 1024;
    char limit[MIST_FORMAT_BYTES];
    int64_t top = options->limit_bytes > max_bytes ? options->limit_bytes : max_bytes;

    fprintf(stream, "y_max = %.6g\nhas_limit = %d\nlimit_gib = %.6g\n",
            (double)top / gib * 1.08, options->limit_bytes > 0,
            (double)options->limit_bytes / gib);
    fprintf(stream, "limit_name = 'limit %s'\n",
            mist_format_bytes(limit, sizeof limit, options->limit_bytes));
    fprintf(stream, "n_ranks = %d\narray rank_names[%d]\n", n_ranks, n_ranks);
    for (int i = 0; i < n_ranks; i++)
        if (i < MAX_KEYS)
            fprintf(stream, "rank_names[%d] = 'rank %d'\n", i + 1, ranks[i]);
        else /* a longer legend helps nobody */
            fprintf(stream, "rank_names[%d] = ''\n", i + 1);
}

enum mist_status
mist_plot_write_memory(FILE *stream, const struct mist_plot_input *inputs, int n_inputs,
                       const struct mist_plot_options *options,
                       enum mist_plot_format format, struct mist_err *err)
{
    struct mist_plot_view view = {0};
    int *ranks = NULL, n_ranks;
    int64_t max_bytes;
    enum mist_status status =
        mist_plot_view_init(&view, inputs, n_inputs, options, MERGE_FRAC, false, err);

    if (status != MIST_OK)
        return status;
    ranks = calloc((size_t)view.n_lanes, sizeof *ranks);
    if (!ranks) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for ranks");
        goto out;
    }
    n_ranks = find_ranks(&view, ranks);
    struct mist_plot_axis axis = mist_plot_time_axis(view.to_s - view.from_s);
    int n_key_rows = (n_ranks < MAX_KEYS ? n_ranks : MAX_KEYS) / KEYS_PER_ROW + 1;
    int page_top = PAGE_TOP + (n_key_rows > 2 ? n_key_rows - 2 : 0) * KEY_ROW;
    int height = page_top + PAGE_BOTTOM + n_inputs * (PANEL_TITLE + MEMORY_PIXELS);
    mist_plot_write_head(stream, format, options, WIDTH, height);
    mist_plot_write_title(stream, format, options, "Device memory", WIDTH, 10);
    write_panels(stream, n_inputs, page_top, MEMORY_PIXELS, height);
    fprintf(stream, "left_edge = %s\n", format == MIST_PLOT_TEXT ? "0.12" : "0.06");
    write_time_axis(stream, &view, &axis);
    write_panel_titles(stream, &view, inputs, n_inputs);
    status = write_memory_data(stream, inputs, n_inputs, &view, &axis, n_ranks, ranks,
                               &max_bytes, err);
    if (status != MIST_OK)
        goto out;
    write_memory_settings(stream, options, max_bytes, n_ranks, ranks);
    fputs(mist_script_memory, stream);
out:
    free(ranks);
    mist_plot_view_fini(&view);
    return status;
}
