/*
 * What the cells of a lane show, columns of text or pixels. See internal.h.
 *
 * A cell shows one thing, the kind of tasks that covers most of it or that the lane is idle, so that a
 * bubble looks the same however much time a cell stands for, and a picture is bounded by
 * its resolution instead of by the number of tasks.
 */
#include "plots/internal.h"

#include <math.h>
#include <stdlib.h>

enum mist_status mist_plot_cells_init(struct mist_plot_cells *cells, int n, int min_run,
                                      struct mist_err *err)
{
    *cells = (struct mist_plot_cells){.n = n,
                                      .min_run = min_run,
                                      .parts = calloc((size_t)n, sizeof *cells->parts),
                                      .i_span = calloc((size_t)n, sizeof(size_t))};
    if (cells->parts && cells->i_span)
        return MIST_OK;
    mist_plot_cells_fini(cells);
    return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d cells", n);
}

void mist_plot_cells_fini(struct mist_plot_cells *cells)
{
    free(cells->parts);
    free(cells->i_span);
    *cells = (struct mist_plot_cells){0};
}

/* Whether two cells' tasks have one colour and micro-batch. */
static bool same_look(const struct mist_plot_view *view, size_t a, size_t b)
{
    if (a == b || a == MIST_PLOT_IDLE || b == MIST_PLOT_IDLE)
        return a == b;
    return view->spans[a].group == view->spans[b].group &&
           view->spans[a].micro_batch == view->spans[b].micro_batch &&
           view->spans[a].iteration == view->spans[b].iteration;
}

bool mist_plot_same_pass(const struct mist_plot_view *view, size_t a, size_t b)
{
    const struct mist_plot_span *x = &view->spans[a], *y = &view->spans[b];

    return x->micro_batch == y->micro_batch && x->iteration == y->iteration &&
           (x->group == MIST_GROUP_FORWARD) == (y->group == MIST_GROUP_FORWARD);
}

/* Adds a task's time to the cells that it covers, of which the first goes on with name's. */
static void add_time(struct mist_plot_cells *cells, const struct mist_plot_view *view,
                     double start_s, double end_s, size_t name)
{
    double cell_s = (view->to_s - view->from_s) / cells->n;
    int cell = (int)((start_s - view->from_s) / cell_s);
    int last = (int)((end_s - view->from_s) / cell_s);

    for (; cell <= last && cell < cells->n; cell++) {
        double left_s = view->from_s + cell * cell_s;
        struct mist_plot_part *part = &cells->parts[cell][view->spans[name].group];
        double time_s = fmax(fmin(end_s, left_s + cell_s) - fmax(start_s, left_s), 0);
        part->busy_s += time_s;
        if (part->i_span == name)
            part->longest_s += time_s;
        else if (time_s > part->longest_s) {
            part->i_span = name;
            part->longest_s = time_s;
        }
    }
}

static double busy_s(const struct mist_plot_cells *cells, int i)
{
    double sum_s = 0;

    for (int g = 0; g < MIST_N_GROUPS; g++)
        sum_s += cells->parts[i][g].busy_s;
    return sum_s;
}

/* The kind that covers most of each cell. One that is idle for most of its time is idle,
 * unless that would hide a task: if the cell before shows it, or that behind has more. */
static void choose(struct mist_plot_cells *cells, double cell_s)
{
    for (int i = 0; i < cells->n; i++) {
        const struct mist_plot_part *most = cells->parts[i];
        for (int g = 1; g < MIST_N_GROUPS; g++)
            if (cells->parts[i][g].busy_s > most->busy_s)
                most = &cells->parts[i][g];
        cells->i_span[i] = most->busy_s > 0 ? most->i_span : MIST_PLOT_IDLE;
    }
    for (int i = 0; i < cells->n; i++) {
        size_t now = cells->i_span[i];
        bool is_before = i > 0 && cells->i_span[i - 1] == now;
        bool is_after = i + 1 < cells->n && cells->i_span[i + 1] == now &&
                        busy_s(cells, i + 1) > busy_s(cells, i);
        if (now != MIST_PLOT_IDLE && busy_s(cells, i) < 0.5 * cell_s &&
            (is_before || is_after))
            cells->i_span[i] = MIST_PLOT_IDLE;
    }
}

/* Runs of cells [first, end), all of one pass, that are too short to be told apart show the
 * kind of tasks that takes most of the pass. */
static void join_short(struct mist_plot_cells *cells, const struct mist_plot_view *view,
                       int first, int end)
{
    double sums_s[MIST_N_GROUPS] = {0};
    int most = first;

    for (int i = first; i < end; i++)
        for (int g = 0; g < MIST_N_GROUPS; g++)
            sums_s[g] += cells->parts[i][g].busy_s;
    for (int i = first; i < end; i++)
        if (sums_s[view->spans[cells->i_span[i]].group] >
            sums_s[view->spans[cells->i_span[most]].group])
            most = i;
    for (int i = first, run_end; i < end; i = run_end) {
        run_end = mist_plot_cells_run_end(cells, view, i);
        run_end = run_end < end ? run_end : end;
        for (int k = i; k < run_end && run_end - i < cells->min_run; k++)
            cells->i_span[k] = cells->i_span[most];
    }
}

static void join_passes(struct mist_plot_cells *cells, const struct mist_plot_view *view)
{
    for (int i = 0, end; i < cells->n; i = end) {
        const size_t *at = cells->i_span;
        for (end = i + 1; end < cells->n && at[i] != MIST_PLOT_IDLE &&
                          at[end] != MIST_PLOT_IDLE &&
                          mist_plot_same_pass(view, at[i], at[end]);)
            end++;
        if (at[i] != MIST_PLOT_IDLE)
            join_short(cells, view, i, end);
    }
}

void mist_plot_cells_fill(struct mist_plot_cells *cells,
                          const struct mist_plot_view *view, int i_input, int i_lane)
{
    double cell_s = (view->to_s - view->from_s) / cells->n;
    size_t n, name = MIST_PLOT_IDLE;
    const struct mist_plot_span *spans = mist_plot_lane_spans(view, i_input, i_lane, &n);

    for (int i = 0; i < cells->n; i++)
        for (int g = 0; g < MIST_N_GROUPS; g++)
            cells->parts[i][g] = (struct mist_plot_part){.i_span = MIST_PLOT_IDLE};
    for (size_t k = 0; k < n; k++) {
        size_t i = (size_t)(&spans[k] - view->spans);
        /* Tasks that look the same are one where no cell shows the gap between them. */
        bool goes_on = k > 0 && same_look(view, i, name) &&
                       spans[k].start_s - spans[k - 1].end_s <= 0.5 * cell_s;
        name = goes_on ? name : i;
        add_time(cells, view,
                 goes_on ? fmin(spans[k].start_s, spans[k - 1].end_s) : spans[k].start_s,
                 spans[k].end_s, name);
    }
    choose(cells, cell_s);
    join_passes(cells, view);
}

int mist_plot_cells_run_end(const struct mist_plot_cells *cells,
                            const struct mist_plot_view *view, int i_cell)
{
    size_t look = cells->i_span[i_cell];

    while (i_cell < cells->n && same_look(view, look, cells->i_span[i_cell]))
        i_cell++;
    return i_cell;
}
