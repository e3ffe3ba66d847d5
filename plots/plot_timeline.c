/* The pictures of timelines: streams over time, memory over time. */
#include "core/parse.h"
#include "plots/internal.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>

#define WIDTH          1500 /* pixels */
#define LEFT           150  /* of the axes, or more where names are long */
#define RIGHT          30
#define PAGE_TOP       66 /* title and two rows of legend */
#define PANEL_TITLE    34
#define PAGE_BOTTOM    54
#define PAGE_LANES     1700 /* for the lanes of all panels */
#define MAX_LANES      110  /* that have room for their names there */
#define LANE_COMPUTE   1.0  /* heights of lanes, in units */
#define LANE_OTHER     0.62
#define RANK_GAP       0.35
#define UNIT_MAX       26.0 /* pixels */
#define UNIT_LABEL     12.0 /* labels fit into a lane */
#define UNIT_THIN      6.0  /* lanes are whole pixels, without gaps */
#define NAME_PIXELS    11
#define NAME_POINTS    9
#define DIGIT_PIXELS   7
#define MIN_RUN_PIXELS 3 /* recomputation is told apart from its backward pass */
#define HAIR_PIXELS    1 /* between neighbours of one colour */
#define HAIR_FROM      8 /* that are wider than so many */
#define HAIR_COLOR     0xFFFFFFu
#define MEMORY_PIXELS  330
#define MAX_KEYS       16 /* ranks in the picture of memory */
#define KEYS_PER_ROW   5  /* with the longest names */
#define KEY_ROW        16

/* Where panels and lanes are, in pixels and units. */
struct layout {
    int left;         /* of the axes */
    int height;       /* of the page */
    int panel_height; /* of the axes of one panel */
    double *lane_y;   /* owned; [n_lanes] top edge in units */
    double y_max;     /* units of a panel */
    double unit;      /* pixels per unit */
    double margin;    /* units above and below what a lane shows */
};

static double lane_height(const struct mist_plot_lane *lane)
{
    return lane->stream == MIST_STREAM_COMPUTE ? LANE_COMPUTE : LANE_OTHER;
}

static bool begins_rank(const struct mist_plot_view *view, int i_lane)
{
    return i_lane == 0 || view->lanes[i_lane].rank != view->lanes[i_lane - 1].rank;
}

/* Stacks the lanes, with a gap between ranks. */
static void stack_lanes(struct layout *layout, const struct mist_plot_view *view,
                        double gap)
{
    double y = gap / 2;

    for (int i = 0; i < view->n_lanes; i++) {
        y += i > 0 && begins_rank(view, i) ? gap : 0;
        layout->lane_y[i] = y;
        y += lane_height(&view->lanes[i]);
    }
    layout->y_max = y + gap / 2;
}

/* The name of a lane: its rank, where a rank begins, and its stream, if there are several. */
static const char *lane_name(const struct mist_plot_view *view, int i_lane,
                             bool has_streams, char *text, size_t size)
{
    const struct mist_plot_lane *lane = &view->lanes[i_lane];
    char rank[64] = "";

    if (begins_rank(view, i_lane))
        mist_plot_rank_name(lane, rank, sizeof rank);
    snprintf(text, size, "%s%s%s", rank, rank[0] && has_streams ? "  " : "",
             has_streams ? mist_stream_name(lane->stream) : "");
    return text;
}

static enum mist_status make_layout(struct layout *layout,
                                    const struct mist_plot_view *view, int n_panels,
                                    struct mist_err *err)
{
    double em = 0;

    layout->lane_y = calloc((size_t)view->n_lanes, sizeof *layout->lane_y);
    if (!layout->lane_y)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d lanes",
                            view->n_lanes);
    stack_lanes(layout, view, RANK_GAP);
    layout->margin = 0.04;
    layout->unit = fmin(UNIT_MAX, PAGE_LANES / (layout->y_max * n_panels));
    if (layout->unit < UNIT_THIN) {
        stack_lanes(layout, view, 0);
        layout->margin = 0;
        layout->unit = fmax(1, floor(PAGE_LANES / (layout->y_max * n_panels)));
    }
    layout->panel_height = (int)fmax(70, ceil(layout->unit * layout->y_max));
    layout->y_max = layout->panel_height / layout->unit;
    layout->height =
        PAGE_TOP + PAGE_BOTTOM + n_panels * (PANEL_TITLE + layout->panel_height);
    for (int i = 0; i < view->n_lanes; i++) {
        char name[96];
        lane_name(view, i, !view->is_compute_only, name, sizeof name);
        em = fmax(em, mist_plot_text_em(name));
    }
    layout->left =
        (int)fmax(LEFT, ceil(0.85 * em * mist_plot_em_pixels(NAME_POINTS)) + 20);
    return MIST_OK;
}

/* Edges of the panels, which are alike, the first one on top. */
static enum mist_status write_panels(const struct mist_plot_picture *at,
                                     const struct mist_plot_page *page, int panel_title,
                                     int panel_height, struct mist_err *err)
{
    int *edges = calloc((size_t)at->n_inputs, 2 * sizeof *edges);

    if (!edges)
        return mist_err_memory(err, NULL);
    for (int i = 0; i < at->n_inputs; i++) {
        edges[i] = page->top + i * (panel_title + panel_height) + panel_title;
        edges[at->n_inputs + i] = edges[i] + panel_height;
    }
    mist_plot_write_panels(at, page, at->n_inputs, edges, edges + at->n_inputs);
    free(edges);
    return MIST_OK;
}

static void write_time_axis(FILE *stream, const struct mist_plot_view *view,
                            const struct mist_plot_axis *axis)
{
    fprintf(stream, "x_min = %.9g\nx_max = %.9g\nx_label = 'time (%s)'\n",
            view->from_s * axis->scale, view->to_s * axis->scale, axis->unit);
}

/* "run.csv: 1.23 s, compute busy 83 %"; note: what is left out, or "". */
static void write_panel_titles(const struct mist_plot_picture *at,
                               const struct mist_plot_view *view, const double *busy,
                               const char *note)
{
    fprintf(at->stream, "array panel_titles[%d]\n", view->n_inputs);
    for (int i = 0; i < view->n_inputs; i++) {
        char time[MIST_FORMAT_BYTES], share[64] = "", text[PATH_MAX + 256];
        if (busy)
            snprintf(share, sizeof share, ", compute busy %.1f %% of the time shown",
                     100 * busy[i]);
        snprintf(text, sizeof text, "%s: %s%s%s%s", at->inputs[i].name,
                 mist_format_time_s(time, sizeof time, view->end_s[i]), share,
                 note[0] ? "; " : "", note);
        fprintf(at->stream, "panel_titles[%d] = ", i + 1);
        mist_plot_write_fitted(at->stream, text, /* it stands in the middle of the axes */
                               at->is_text ? at->options->n_text_columns * 0.6
                                           : (WIDTH - LEFT) / mist_plot_em_pixels(10));
        fputc('\n', at->stream);
    }
}

/* "Timeline of 8 ranks" */
static const char *name_ranks(const struct mist_plot_view *view, const char *what,
                              char *text, size_t size)
{
    int64_t n = 0;

    for (int i = 0; i < view->n_lanes; i = mist_plot_view_rank_end(view, i))
        n += view->lanes[i].n_ranks;
    snprintf(text, size, "%s of %lld rank%s", what, (long long)n, n == 1 ? "" : "s");
    return text;
}

/* Names of lanes; where they are too thin for a name each, one in 2, 4, 8 .. ranks. */
static void write_lane_names(FILE *stream, const struct mist_plot_view *view,
                             const struct layout *layout)
{
    bool is_thin = layout->unit * LANE_OTHER < NAME_PIXELS;
    bool has_streams = !view->is_compute_only && !is_thin;
    double rank_pixels = layout->unit * layout->y_max / mist_plot_view_n_ranks(view);
    int step = 1, i_rank = -1;

    while (is_thin && step * rank_pixels < NAME_PIXELS)
        step *= 2;
    fputs("set ytics (", stream);
    for (int i = 0, n = 0; i < view->n_lanes; i++) {
        char name[96];
        i_rank += begins_rank(view, i);
        if ((!has_streams && !begins_rank(view, i)) || i_rank % step != 0)
            continue;
        fprintf(stream, "%s'%s' %.4f", n++ ? ", " : "",
                lane_name(view, i, has_streams, name, sizeof name),
                layout->lane_y[i] + lane_height(&view->lanes[i]) / 2);
    }
    fprintf(stream, ") font ',%d'\n", is_thin ? NAME_POINTS - 1 : NAME_POINTS);
}

/* ---- what lanes show ---- */

/* Writes boxes and labels of one timeline. */
struct drawing {
    FILE *stream;
    const struct mist_plot_view *view;
    const struct layout *layout;
    const struct mist_plot_axis *axis;
    struct mist_plot_cells cells;
    int i_input;
};

/* Cells from the left, on the axis. */
static double cell_x(const struct drawing *at, double cells)
{
    const struct mist_plot_view *view = at->view;

    return (view->from_s + cells * (view->to_s - view->from_s) / at->cells.n) *
           at->axis->scale;
}

static void write_box(const struct drawing *at, int i_lane, double first, double end,
                      unsigned color)
{
    double y = at->layout->lane_y[i_lane];

    fprintf(at->stream, "%d %.9g %.9g %.4f %.4f %u\n", at->i_input + 1, cell_x(at, first),
            cell_x(at, end), y + at->layout->margin,
            y + lane_height(&at->view->lanes[i_lane]) - at->layout->margin, color);
}

/* The colour of a cell; 0: it is idle or outside. */
static unsigned cell_color(const struct drawing *at, int i_cell)
{
    size_t i_span = i_cell < at->cells.n ? at->cells.i_span[i_cell] : MIST_PLOT_IDLE;

    return i_span == MIST_PLOT_IDLE
               ? 0
               : mist_plot_groups[at->view->spans[i_span].group].color;
}

/* A box for each run of cells that look the same; bubbles behind those of computation, from
 * the timeline's begin to its end. */
static void write_lane_boxes(const struct drawing *at, int i_lane)
{
    const struct mist_plot_view *view = at->view;
    double cells_per_s = at->cells.n / (view->to_s - view->from_s);

    if (view->lanes[i_lane].stream == MIST_STREAM_COMPUTE)
        write_box(
            at, i_lane, 0,
            fmin(at->cells.n, (view->end_s[at->i_input] - view->from_s) * cells_per_s),
            MIST_PLOT_IDLE_COLOR);
    for (int i = 0, end; i < at->cells.n; i = end) {
        unsigned color = cell_color(at, i);
        end = mist_plot_cells_run_end(&at->cells, view, i);
        if (!color)
            continue;
        write_box(at, i_lane, i, end, color);
        if (cell_color(at, end) == color && end - i > HAIR_FROM)
            write_box(at, i_lane, end - HAIR_PIXELS, end, HAIR_COLOR);
    }
}

/* The run of cells [first, end) as a label's place, if it is wider than the one so far. */
static void widen(int place[2], int first, int end)
{
    if (end - first > place[1] - place[0]) {
        place[0] = first;
        place[1] = end;
    }
}

static void write_label(const struct drawing *at, int i_lane, size_t i_span,
                        const int place[2])
{
    const struct mist_plot_span *span = &at->view->spans[i_span];
    int n = snprintf(NULL, 0, "%d", span->micro_batch);

    if (span->micro_batch >= 0 && place[1] - place[0] >= n * DIGIT_PIXELS + 4)
        fprintf(at->stream, "%d %.9g %.4f %d %u\n", at->i_input + 1,
                cell_x(at, (place[0] + place[1]) / 2.0),
                at->layout->lane_y[i_lane] + LANE_COMPUTE / 2, span->micro_batch,
                mist_plot_groups[at->view->spans[at->cells.i_span[place[0]]].group]
                    .text_color);
}

/* The number of each pass' micro-batch, in the pass' widest box, if it fits there. Tasks of
 * no micro-batch, such as updates of the optimizer, don't end a pass that they interrupt. */
static void write_lane_labels(const struct drawing *at, int i_lane)
{
    size_t pass = MIST_PLOT_IDLE;
    int place[2] = {0, 0};

    if (at->view->lanes[i_lane].stream != MIST_STREAM_COMPUTE ||
        at->layout->unit < UNIT_LABEL)
        return;
    for (int i = 0, end; i < at->cells.n; i = end) {
        size_t i_span = at->cells.i_span[i];
        end = mist_plot_cells_run_end(&at->cells, at->view, i);
        if (i_span == MIST_PLOT_IDLE || at->view->spans[i_span].micro_batch < 0)
            continue;
        if (pass == MIST_PLOT_IDLE || !mist_plot_same_pass(at->view, pass, i_span)) {
            if (pass != MIST_PLOT_IDLE)
                write_label(at, i_lane, pass, place);
            pass = i_span;
            place[0] = place[1] = i;
        }
        widen(place, i, end);
    }
    if (pass != MIST_PLOT_IDLE)
        write_label(at, i_lane, pass, place);
}

/* A data block of what write_lane says of all lanes that a timeline has. */
static void write_lanes(struct drawing *at, const char *name,
                        void (*write_lane)(const struct drawing *at, int i_lane))
{
    fprintf(at->stream, "$%s << END\n", name);
    for (at->i_input = 0; at->i_input < at->view->n_inputs; at->i_input++) {
        for (int i = 0; i < at->view->n_lanes; i++) {
            size_t n;
            mist_plot_lane_spans(at->view, at->i_input, i, &n);
            if (n == 0)
                continue;
            mist_plot_cells_fill(&at->cells, at->view, at->i_input, i);
            write_lane(at, i);
        }
        /* gnuplot 5.4 crashes on labels without a point: one outside of the picture. */
        fprintf(at->stream, "%d %.9g -9 -9 -9 0\n", at->i_input + 1, cell_x(at, 0));
    }
    fputs("END\n", at->stream);
}

static bool has_compute(const struct mist_plot_view *view)
{
    for (int i = 0; i < view->n_lanes; i++)
        if (view->lanes[i].stream == MIST_STREAM_COMPUTE)
            return true;
    return false;
}

static void write_key(FILE *stream, const struct mist_plot_view *view)
{
    bool is_used[MIST_N_GROUPS] = {false};

    for (size_t i = 0; i < view->n_spans; i++)
        is_used[view->spans[i].group] = true;
    mist_plot_write_key(stream, is_used, has_compute(view));
}

/* Cells are pixels, also of what can be enlarged: an SVG's boxes that are narrower than a
 * pixel are not seen. */
static enum mist_status write_data(FILE *stream, const struct mist_plot_view *view,
                                   const struct layout *layout,
                                   const struct mist_plot_axis *axis,
                                   struct mist_err *err)
{
    struct drawing at = {.stream = stream, .view = view, .layout = layout, .axis = axis};
    enum mist_status status = mist_plot_cells_init(
        &at.cells, WIDTH - RIGHT - layout->left, MIN_RUN_PIXELS, err);

    if (status != MIST_OK)
        return status;
    write_lanes(&at, "boxes", write_lane_boxes);
    write_lanes(&at, "labels", write_lane_labels);
    mist_plot_cells_fini(&at.cells);
    return MIST_OK;
}

static enum mist_status write_timeline(const struct mist_plot_picture *given,
                                       struct mist_err *err)
{
    struct mist_plot_picture at = *given;
    struct mist_plot_view view;
    struct layout layout = {0};
    double *busy = calloc((size_t)at.n_inputs, sizeof *busy);
    char note[128], title[64];
    enum mist_status status =
        mist_plot_view_init(&view, at.inputs, at.n_inputs, at.options, false, err);

    if (status == MIST_OK && !busy)
        status = mist_err_memory(err, NULL);
    if (status != MIST_OK)
        goto out;
    for (int i = 0; i < at.n_inputs; i++)
        busy[i] = mist_plot_busy_frac(&view, i);
    at.title = name_ranks(&view, "Timeline", title, sizeof title);
    mist_plot_view_fit(&view, MAX_LANES / at.n_inputs, PAGE_LANES / at.n_inputs);
    status = make_layout(&layout, &view, at.n_inputs, err);
    if (status != MIST_OK)
        goto out;
    struct mist_plot_axis axis = mist_plot_time_axis(view.to_s - view.from_s);
    const struct mist_plot_page page = {WIDTH, layout.height, layout.left,
                                        RIGHT, PAGE_TOP,      PAGE_BOTTOM};
    mist_plot_write_page(&at, &page);
    status = write_panels(&at, &page, PANEL_TITLE, layout.panel_height, err);
    if (status != MIST_OK)
        goto out;
    write_time_axis(at.stream, &view, &axis);
    fprintf(at.stream, "y_max = %.4f\n", layout.y_max);
    write_panel_titles(&at, &view, has_compute(&view) ? busy : NULL,
                       mist_plot_view_note(&view, note, sizeof note));
    write_lane_names(at.stream, &view, &layout);
    write_key(at.stream, &view);
    status = write_data(at.stream, &view, &layout, &axis, err);
out:
    mist_plot_view_fini(&view);
    free(layout.lane_y);
    free(busy);
    return status;
}

const struct mist_plot_kind mist_plot_kind_timeline = {
    .write_timelines = write_timeline,
};

/* ---- memory ---- */

/* Leaves the fullest ranks, MAX_KEYS at most. Of ranks that are equally full at their peaks,
 * as those of a stage are, the first is enough where others would be left out. */
static void keep_fullest(struct mist_plot_view *view)
{
    bool is_crowded = view->n_lanes > MAX_KEYS;

    for (int lane = 0; lane < view->n_lanes; lane++)
        for (int i = 0; i < view->n_inputs; i++) {
            size_t n;
            const struct mist_plot_span *spans = mist_plot_lane_spans(view, i, lane, &n);
            int64_t *peak = &view->lanes[lane].peak_bytes;
            for (size_t k = 0; k < n; k++)
                *peak = spans[k].live_bytes > *peak ? spans[k].live_bytes : *peak;
        }
    for (int i = 0; i < view->n_lanes; i++) {
        view->lanes[i].is_kept = true;
        for (int k = 0; k < i && is_crowded; k++)
            if (view->lanes[k].peak_bytes == view->lanes[i].peak_bytes)
                view->lanes[i].is_kept = false;
    }
    mist_plot_view_keep(view);
    for (int i = 0; i < view->n_lanes; i++) {
        int n_fuller = 0;
        for (int k = 0; k < view->n_lanes; k++)
            n_fuller += view->lanes[k].peak_bytes > view->lanes[i].peak_bytes;
        view->lanes[i].is_kept = n_fuller < MAX_KEYS;
    }
    mist_plot_view_keep(view);
}

/* Points where the live bytes of a rank change. */
static void write_curve(FILE *stream, const struct mist_plot_view *view, int i_input,
                        int i_lane, const struct mist_plot_axis *axis)
{
    size_t n;
    const struct mist_plot_span *spans = mist_plot_lane_spans(view, i_input, i_lane, &n);
    double last_s = view->from_s;
    int64_t live = 0;

    for (size_t k = 0; k < n; k++) {
        if (spans[k].live_bytes == 0)
            continue;
        last_s = fmax(spans[k].end_s, last_s);
        if (spans[k].live_bytes == live)
            continue;
        live = spans[k].live_bytes;
        fprintf(stream, "%d %d %.9g %.6g\n", i_input + 1, i_lane + 1,
                spans[k].start_s * axis->scale, (double)live / 0x1p30);
    }
    if (live)
        fprintf(stream, "%d %d %.9g %.6g\n\n", i_input + 1, i_lane + 1,
                last_s * axis->scale, (double)live / 0x1p30);
}

static void write_memory_data(FILE *stream, const struct mist_plot_view *view,
                              const struct mist_plot_axis *axis)
{
    fputs("$memory << END\n", stream);
    for (int i = 0; i < view->n_inputs; i++)
        for (int lane = 0; lane < view->n_lanes; lane++)
            write_curve(stream, view, i, lane, axis);
    fputs("END\n", stream);
}

static void write_memory_settings(FILE *stream, const struct mist_plot_view *view,
                                  const struct mist_plot_options *options)
{
    char text[MIST_FORMAT_BYTES + 64];
    int64_t top = options->limit_bytes;

    for (int i = 0; i < view->n_lanes; i++)
        top = view->lanes[i].peak_bytes > top ? view->lanes[i].peak_bytes : top;
    fprintf(stream, "y_max = %.6g\nhas_limit = %d\nlimit_gib = %.6g\n",
            (double)top / 0x1p30 * 1.08, options->limit_bytes > 0,
            (double)options->limit_bytes / 0x1p30);
    fprintf(stream, "limit_name = 'limit %s'\n",
            mist_format_bytes(text, sizeof text, options->limit_bytes));
    fprintf(stream, "n_ranks = %d\narray rank_names[%d]\n", view->n_lanes, view->n_lanes);
    for (int i = 0; i < view->n_lanes; i++)
        mist_plot_write_item(stream, "rank_names", (size_t)i,
                             mist_plot_rank_name(&view->lanes[i], text, sizeof text));
}

static bool has_bytes(const struct mist_plot_view *view)
{
    for (int i = 0; i < view->n_lanes; i++)
        if (view->lanes[i].peak_bytes > 0)
            return true;
    return false;
}

static enum mist_status write_memory(const struct mist_plot_picture *given,
                                     struct mist_err *err)
{
    struct mist_plot_picture at = *given;
    struct mist_plot_view view;
    char note[64] = "", title[64];
    enum mist_status status =
        mist_plot_view_init(&view, at.inputs, at.n_inputs, at.options, true, err);

    if (status != MIST_OK)
        return status;
    at.title = name_ranks(&view, "Device memory", title, sizeof title);
    keep_fullest(&view);
    if (!has_bytes(&view)) {
        status =
            mist_err_set(err, MIST_ERR_INPUT,
                         "no task of the chosen ranks and times has device_live_bytes");
        goto out;
    }
    if (view.n_lanes < view.n_rows)
        snprintf(note, sizeof note, "of %d ranks that differ %s", view.n_rows,
                 view.n_lanes < MAX_KEYS ? "one for each peak" : "the fullest");
    struct mist_plot_axis axis = mist_plot_time_axis(view.to_s - view.from_s);
    int n_key_rows = view.n_lanes / KEYS_PER_ROW + 1;
    int panel_title = at.is_text ? 3 : PANEL_TITLE;
    int panel_height = at.is_text ? 15 : MEMORY_PIXELS;
    struct mist_plot_page page = {
        WIDTH,
        0,
        90,
        RIGHT,
        PAGE_TOP + (n_key_rows > 2 ? n_key_rows - 2 : 0) * KEY_ROW,
        PAGE_BOTTOM};
    if (at.is_text)
        page = (struct mist_plot_page){0, 0, 8, 3, 3 + n_key_rows, 4};
    page.height = page.top + page.bottom + at.n_inputs * (panel_title + panel_height);
    mist_plot_write_page(&at, &page);
    status = write_panels(&at, &page, panel_title, panel_height, err);
    if (status != MIST_OK)
        goto out;
    write_time_axis(at.stream, &view, &axis);
    write_panel_titles(&at, &view, NULL, note);
    write_memory_data(at.stream, &view, &axis);
    write_memory_settings(at.stream, &view, at.options);
out:
    mist_plot_view_fini(&view);
    return status;
}

const struct mist_plot_kind mist_plot_kind_memory = {
    .write_timelines = write_memory,
};
