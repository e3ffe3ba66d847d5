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

#define MIN_RANK_COLUMNS 10
#define STREAM_COLUMNS   15 /* "host_to_device " */
#define MAX_LANES        120
#define MAX_ROWS         64

/* The page: cells to the right of names. */
struct page {
    int n_rank_columns;
    struct mist_plot_cells cells;
    char *text; /* owned; [cells.n + 1] */
};

/* Writes letters, and on compute lanes the numbers of micro-batches. */
static void letter_cells(struct page *page, const struct mist_plot_view *view,
                         bool has_numbers)
{
    const size_t *i_span = page->cells.i_span;
    size_t previous = MIST_PLOT_IDLE;
    int n_cells = page->cells.n;

    for (int i = 0; i < n_cells; i++)
        page->text[i] = i_span[i] == MIST_PLOT_IDLE
                            ? '.'
                            : mist_plot_groups[view->spans[i_span[i]].group].letter;
    page->text[n_cells] = '\0';
    for (int i = 0; i < n_cells && has_numbers; i++) {
        char number[16];
        int room = 1;
        if (i_span[i] == MIST_PLOT_IDLE ||
            (previous != MIST_PLOT_IDLE &&
             mist_plot_same_pass(view, previous, i_span[i])))
            continue;
        previous = i_span[i];
        while (i + room < n_cells && i_span[i + room] != MIST_PLOT_IDLE &&
               mist_plot_same_pass(view, previous, i_span[i + room]))
            room++;
        int n = snprintf(number, sizeof number, "%d", view->spans[previous].micro_batch);
        if (view->spans[previous].micro_batch >= 0 && n < room)
            memcpy(page->text + i, number, (size_t)n);
    }
}

static void print_cells(FILE *stream, const struct page *page,
                        const struct mist_plot_view *view, bool has_colors)
{
    for (int i = 0, end; i < page->cells.n; i = end) {
        size_t i_span = page->cells.i_span[i];
        bool has_color = has_colors && i_span != MIST_PLOT_IDLE;
        end = mist_plot_cells_run_end(&page->cells, view, i);
        if (has_color) {
            const struct mist_plot_group_look *look =
                &mist_plot_groups[view->spans[i_span].group];
            fprintf(stream, "\033[48;2;%u;%u;%um\033[%dm", look->color >> 16,
                    look->color >> 8 & 255, look->color & 255,
                    look->text_color ? 97 : 30);
        }
        fprintf(stream, "%.*s%s", end - i, page->text + i, has_color ? "\033[0m" : "");
    }
    fputc('\n', stream);
}

static void print_name(FILE *stream, const struct page *page,
                       const struct mist_plot_view *view, int i_lane)
{
    const struct mist_plot_lane *lane = &view->lanes[i_lane];
    char text[64] = "";

    if (i_lane == 0 || view->lanes[i_lane - 1].rank != lane->rank)
        mist_plot_rank_name(lane, text, sizeof text);
    fprintf(stream, "%-*s %-*s", page->n_rank_columns, text, STREAM_COLUMNS,
            mist_stream_name(lane->stream));
}

/* Numbers under the cells, about every 12 columns, at round times. */
static void print_axis(FILE *stream, const struct mist_plot_view *view,
                       const struct page *page)
{
    int n_cells = page->cells.n;
    struct mist_plot_axis axis = mist_plot_time_axis(view->to_s - view->from_s);
    double span = (view->to_s - view->from_s) * axis.scale;
    double raw = span * 12 / n_cells, magnitude = pow(10, floor(log10(raw)));
    double step = raw <= magnitude       ? magnitude
                  : raw <= 2 * magnitude ? 2 * magnitude
                  : raw <= 5 * magnitude ? 5 * magnitude
                                         : 10 * magnitude;
    int column = 0;

    fprintf(stream, "%*s", page->n_rank_columns + 1 + STREAM_COLUMNS, "");
    for (double tic = ceil(view->from_s * axis.scale / step - 1e-9) * step + 0.0;
         tic <= view->to_s * axis.scale; tic += step) {
        int at = (int)((tic / axis.scale - view->from_s) / (view->to_s - view->from_s) *
                       n_cells);
        char text[32];
        int n = snprintf(text, sizeof text, "|%g%s", tic, column ? "" : axis.unit);
        if (at + n > n_cells)
            break;
        column += fprintf(stream, "%*s%s", at - column, "", text);
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
                        const struct mist_plot_input *input, struct page *page,
                        bool has_colors)
{
    char time[MIST_FORMAT_BYTES];

    mist_escape_print(input->name, stream);
    fprintf(stream, ": %s\n",
            mist_format_time_s(time, sizeof time, view->end_s[i_input]));
    for (int i = 0; i < view->n_lanes; i++) {
        mist_plot_cells_fill(&page->cells, view, i_input, i);
        letter_cells(page, view, view->lanes[i].stream == MIST_STREAM_COMPUTE);
        print_name(stream, page, view, i);
        print_cells(stream, page, view, has_colors);
    }
}

static void print_all(FILE *stream, const struct mist_plot_view *view,
                      const struct mist_plot_input *inputs,
                      const struct mist_plot_options *options, struct page *page)
{
    char note[128];

    mist_escape_print(options->title ? options->title : "", stream);
    fputs(options->title ? "\n" : "", stream);
    for (int i = 0; i < view->n_inputs; i++)
        print_input(stream, view, i, &inputs[i], page, options->has_colors);
    print_axis(stream, view, page);
    print_legend(stream, view);
    if (mist_plot_view_note(view, note, sizeof note)[0])
        fprintf(stream, "%s\n", note);
}

enum mist_status mist_plot_print_gantt(FILE *stream, const struct mist_plot_input *inputs,
                                       int n_inputs,
                                       const struct mist_plot_options *options,
                                       struct mist_err *err)
{
    struct mist_plot_view view;
    struct page page = {.n_rank_columns = MIN_RANK_COLUMNS};
    enum mist_status status =
        mist_plot_view_init(&view, inputs, n_inputs, options, false, err);

    if (status != MIST_OK)
        return status;
    mist_plot_view_fit(&view, MAX_LANES / n_inputs, MAX_ROWS);
    for (int i = 0; i < view.n_lanes; i++) {
        char name[64];
        int n = (int)strlen(mist_plot_rank_name(&view.lanes[i], name, sizeof name));
        page.n_rank_columns = n > page.n_rank_columns ? n : page.n_rank_columns;
    }
    int n_cells = options->n_text_columns - page.n_rank_columns - 1 - STREAM_COLUMNS;
    n_cells = n_cells < 20 ? 20 : n_cells;
    status = mist_plot_cells_init(&page.cells, n_cells, 1, err);
    page.text = calloc((size_t)n_cells + 1, 1);
    if (status == MIST_OK && !page.text)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        print_all(stream, &view, inputs, options, &page);
    free(page.text);
    mist_plot_cells_fini(&page.cells);
    mist_plot_view_fini(&view);
    return status;
}
