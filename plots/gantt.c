/*
 * Timelines as text. See plot.h.
 *
 *   run.csv: 21.0 ms
 *   rank 0 compute  0fff1fff........0bbbbb1bbbbbooo
 *          gpu_gpu  ......................ccccccccc
 *          send     ....s...s......................
 *          receive  ................s.....s........
 *   rank 1 compute  ....0fff1fff0bbbbb1bbbbb....ooo
 *          gpu_gpu  ..........................ccccc
 *          send     ................s.....s........
 *          receive  ....s...s......................
 *                   0 ms         10         20
 *
 * A cell shows what covers most of it. A run of cells of one micro-batch begins with its
 * number where the number leaves a letter to be seen.
 */
#include "plots/internal.h"

#include "core/escape.h"
#include "core/parse.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_COLUMNS 25 /* "rank 12345 host_to_device " */
#define NO_SPAN      ((size_t)-1)

/* One line of cells being filled. */
struct line {
    int n_cells;
    double *covered_s; /* [n_cells] of the span that covers most so far */
    double *busy_s;    /* [n_cells] of all spans */
    size_t *i_span;    /* [n_cells] that span, or NO_SPAN */
    char *text;        /* [n_cells + 1] */
};

static void fill_line(struct line *line, const struct mist_plot_view *view,
                      size_t i_first, size_t i_end)
{
    double cell_s = (view->to_s - view->from_s) / line->n_cells;

    for (int i = 0; i < line->n_cells; i++) {
        line->covered_s[i] = line->busy_s[i] = 0;
        line->i_span[i] = NO_SPAN;
    }
    for (size_t i = i_first; i < i_end; i++) {
        const struct mist_plot_span *span = &view->spans[i];
        int first = (int)((span->start_s - view->from_s) / cell_s);
        int last = (int)((span->end_s - view->from_s) / cell_s);
        for (int cell = first; cell <= last && cell < line->n_cells; cell++) {
            double left_s = view->from_s + cell * cell_s;
            double covered_s =
                fmin(span->end_s, left_s + cell_s) - fmax(span->start_s, left_s);
            line->busy_s[cell] += fmax(covered_s, 0);
            if (covered_s > line->covered_s[cell]) {
                line->covered_s[cell] = covered_s;
                line->i_span[cell] = i;
            }
        }
    }
    /* A cell that is idle for most of its time is a bubble, unless that would hide a
     * task. */
    for (int i = 1; i + 1 < line->n_cells; i++)
        if (line->i_span[i] != NO_SPAN && line->busy_s[i] < 0.5 * cell_s &&
            (line->i_span[i] == line->i_span[i - 1] ||
             line->i_span[i] == line->i_span[i + 1]))
            line->i_span[i] = NO_SPAN;
}

static bool same_run(const struct mist_plot_view *view, size_t a, size_t b)
{
    if (a == b || a == NO_SPAN || b == NO_SPAN)
        return a == b;
    return view->spans[a].group == view->spans[b].group &&
           view->spans[a].micro_batch == view->spans[b].micro_batch &&
           view->spans[a].iteration == view->spans[b].iteration;
}

/* Whether two spans are of one pass of one micro-batch; recomputation is of the backward
 * pass. */
static bool same_pass(const struct mist_plot_view *view, size_t a, size_t b)
{
    const struct mist_plot_span *x = &view->spans[a], *y = &view->spans[b];

    return x->micro_batch == y->micro_batch && x->iteration == y->iteration &&
           (x->group == MIST_GROUP_FORWARD) == (y->group == MIST_GROUP_FORWARD);
}

/* Writes letters, and on compute lanes the numbers of micro-batches. */
static void letter_line(struct line *line, const struct mist_plot_view *view,
                        bool has_numbers)
{
    size_t previous = NO_SPAN;

    for (int i = 0; i < line->n_cells; i++) {
        size_t i_span = line->i_span[i];
        line->text[i] =
            i_span == NO_SPAN ? '.' : mist_plot_groups[view->spans[i_span].group].letter;
    }
    line->text[line->n_cells] = '\0';
    for (int i = 0; i < line->n_cells && has_numbers; i++) {
        size_t i_span = line->i_span[i];
        char number[16];
        int room = 1;
        if (i_span == NO_SPAN ||
            (previous != NO_SPAN && same_pass(view, previous, i_span)))
            continue;
        previous = i_span;
        while (i + room < line->n_cells && line->i_span[i + room] != NO_SPAN &&
               same_pass(view, i_span, line->i_span[i + room]))
            room++;
        int n = snprintf(number, sizeof number, "%d", view->spans[i_span].micro_batch);
        if (view->spans[i_span].micro_batch >= 0 && n < room)
            memcpy(line->text + i, number, (size_t)n);
    }
}

static void print_cells(FILE *stream, const struct line *line,
                        const struct mist_plot_view *view, bool has_colors)
{
    if (!has_colors) {
        fprintf(stream, "%s\n", line->text);
        return;
    }
    for (int i = 0, end; i < line->n_cells; i = end) {
        size_t i_span = line->i_span[i];
        for (end = i + 1;
             end < line->n_cells && same_run(view, i_span, line->i_span[end]);)
            end++;
        if (i_span != NO_SPAN) {
            const struct mist_plot_group_look *look =
                &mist_plot_groups[view->spans[i_span].group];
            fprintf(stream, "\033[48;2;%u;%u;%um\033[%dm", look->color >> 16,
                    look->color >> 8 & 255, look->color & 255,
                    look->text_color ? 97 : 30);
        }
        fprintf(stream, "%.*s%s", end - i, line->text + i,
                i_span != NO_SPAN ? "\033[0m" : "");
    }
    fputc('\n', stream);
}

static void print_name(FILE *stream, const struct mist_plot_view *view, int i_lane)
{
    const struct mist_plot_lane *lane = &view->lanes[i_lane];
    char text[64] = "";

    if (i_lane == 0 || view->lanes[i_lane - 1].rank != lane->rank)
        snprintf(text, sizeof text, "rank %d", lane->rank);
    fprintf(stream, "%-10s %-*s", text, NAME_COLUMNS - 11,
            mist_stream_name(lane->stream));
    fputc(' ', stream);
}

/* Numbers under the cells, about every 12 columns, at round times. */
static void print_axis(FILE *stream, const struct mist_plot_view *view, int n_cells)
{
    struct mist_plot_axis axis = mist_plot_time_axis(view->to_s - view->from_s);
    double span = (view->to_s - view->from_s) * axis.scale;
    double raw = span * 12 / n_cells, magnitude = pow(10, floor(log10(raw)));
    double step = raw <= magnitude       ? magnitude
                  : raw <= 2 * magnitude ? 2 * magnitude
                  : raw <= 5 * magnitude ? 5 * magnitude
                                         : 10 * magnitude;
    int column = 0;

    fprintf(stream, "%*s ", NAME_COLUMNS, "");
    for (double tic = ceil(view->from_s * axis.scale / step - 1e-9) * step + 0.0;
         tic <= view->to_s * axis.scale; tic += step) {
        int at = (int)((tic / axis.scale - view->from_s) / (view->to_s - view->from_s) *
                       n_cells);
        if (at + 8 > n_cells)
            break;
        column +=
            fprintf(stream, "%*s|%g%s", at - column, "", tic, column ? "" : axis.unit);
    }
    fputc('\n', stream);
}

static void print_legend(FILE *stream, const struct mist_plot_view *view)
{
    bool is_used[MIST_N_GROUPS] = {false};

    for (size_t i = 0; i < view->n_spans; i++)
        is_used[view->spans[i].group] = true;
    for (int i = 0; i < MIST_N_GROUPS; i++)
        if (is_used[i])
            fprintf(stream, "%c %s  ", mist_plot_groups[i].letter,
                    mist_plot_groups[i].name);
    fputs(". idle  (numbers: micro-batches)\n", stream);
}

static void print_input(FILE *stream, const struct mist_plot_view *view, int i_input,
                        const struct mist_plot_input *input, struct line *line,
                        bool has_colors)
{
    char time[MIST_FORMAT_BYTES];
    double start_s, end_s;
    size_t i = 0;

    mist_timeline_span(input->timeline, &start_s, &end_s);
    mist_escape_print(input->name, stream);
    fprintf(stream, ": %s\n", mist_format_time_s(time, sizeof time, end_s - start_s));
    while (i < view->n_spans && view->spans[i].i_input < i_input)
        i++;
    for (int i_lane = 0; i_lane < view->n_lanes; i_lane++) {
        size_t i_first = i;
        while (i < view->n_spans && view->spans[i].i_input == i_input &&
               view->spans[i].i_lane == i_lane)
            i++;
        fill_line(line, view, i_first, i);
        letter_line(line, view, view->lanes[i_lane].stream == MIST_STREAM_COMPUTE);
        print_name(stream, view, i_lane);
        print_cells(stream, line, view, has_colors);
    }
}

enum mist_status mist_plot_print_gantt(FILE *stream, const struct mist_plot_input *inputs,
                                       int n_inputs,
                                       const struct mist_plot_options *options,
                                       struct mist_err *err)
{
    struct mist_plot_view view = {0};
    struct line line = {.n_cells = options->n_text_columns - NAME_COLUMNS - 1};
    enum mist_status status =
        mist_plot_view_init(&view, inputs, n_inputs, options, 0, false, err);

    if (status != MIST_OK)
        return status;
    if (line.n_cells < 20)
        line.n_cells = 20;
    line.covered_s = calloc((size_t)line.n_cells, sizeof *line.covered_s);
    line.busy_s = calloc((size_t)line.n_cells, sizeof *line.busy_s);
    line.i_span = calloc((size_t)line.n_cells, sizeof *line.i_span);
    line.text = calloc((size_t)line.n_cells + 1, 1);
    if (!line.covered_s || !line.busy_s || !line.i_span || !line.text) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    mist_escape_print(options->title ? options->title : "", stream);
    fputs(options->title ? "\n" : "", stream);
    for (int i = 0; i < n_inputs; i++)
        print_input(stream, &view, i, &inputs[i], &line, options->has_colors);
    print_axis(stream, &view, line.n_cells);
    print_legend(stream, &view);
out:
    free(line.covered_s);
    free(line.busy_s);
    free(line.i_span);
    free(line.text);
    mist_plot_view_fini(&view);
    return status;
}
