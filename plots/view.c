/*
 * What a picture of timelines shows: lanes, spans, the time axis. See internal.h.
 *
 * Tasks of one lane that would look like one are merged before they are drawn, which
 * bounds the size of a picture by its resolution instead of by the number of tasks.
 */
#include "plots/internal.h"

#include "core/memory.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

const struct mist_plot_group_look mist_plot_groups[MIST_N_GROUPS] = {
    [MIST_GROUP_FORWARD] = {"forward", 'f', 0x0072B2, 0xFFFFFF},
    [MIST_GROUP_RECOMPUTE] = {"recompute", 'r', 0x56B4E9, 0x000000},
    [MIST_GROUP_BACKWARD] = {"backward", 'b', 0xE69F00, 0x000000},
    [MIST_GROUP_BACKWARD_WEIGHT] = {"backward_weight", 'w', 0xD55E00, 0xFFFFFF},
    [MIST_GROUP_OPTIMIZER] = {"optimizer", 'o', 0xF0E442, 0x000000},
    [MIST_GROUP_PIPELINE] = {"send/recv", 's', 0xCC79A7, 0x000000},
    [MIST_GROUP_COLLECTIVE] = {"collective", 'c', 0x009E73, 0xFFFFFF},
    [MIST_GROUP_SWAP] = {"swap", 'x', 0x8A8A8A, 0xFFFFFF},
    [MIST_GROUP_LOAD_BATCH] = {"load_batch", 'l', 0x333333, 0xFFFFFF},
};

enum mist_plot_group mist_plot_group_of(enum mist_task_kind kind)
{
    static const enum mist_plot_group groups[] = {
        [MIST_SORT_GRADIENTS] = MIST_GROUP_OPTIMIZER,
        [MIST_SORT_TRANSFER] = MIST_GROUP_PIPELINE,
        [MIST_SORT_COLLECTIVE] = MIST_GROUP_COLLECTIVE,
        [MIST_SORT_COPY] = MIST_GROUP_SWAP,
        [MIST_SORT_LOAD] = MIST_GROUP_LOAD_BATCH,
    };

    switch (kind) {
    case MIST_TASK_FORWARD:
        return MIST_GROUP_FORWARD;
    case MIST_TASK_RECOMPUTE:
        return MIST_GROUP_RECOMPUTE;
    case MIST_TASK_BACKWARD:
    case MIST_TASK_BACKWARD_INPUT:
        return MIST_GROUP_BACKWARD;
    case MIST_TASK_BACKWARD_WEIGHT:
        return MIST_GROUP_BACKWARD_WEIGHT;
    default:
        return groups[mist_task_kind_sort(kind)];
    }
}

struct mist_plot_axis mist_plot_time_axis(double span_s)
{
    if (span_s >= 2)
        return (struct mist_plot_axis){1, "s"};
    if (span_s >= 2e-3)
        return (struct mist_plot_axis){1e3, "ms"};
    return (struct mist_plot_axis){1e6, "us"};
}

void mist_plot_view_fini(struct mist_plot_view *view)
{
    free(view->lanes);
    free(view->spans);
    free(view->origin_s);
    *view = (struct mist_plot_view){0};
}

/* Spans before lanes are known carry the row's lane as rank and stream. */
static int compare_lanes(const void *a_any, const void *b_any)
{
    const struct mist_plot_lane *a = a_any, *b = b_any;

    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return (a->stream > b->stream) - (a->stream < b->stream);
}

static int compare_spans(const void *a_any, const void *b_any)
{
    const struct mist_plot_span *a = a_any, *b = b_any;

    if (a->i_input != b->i_input)
        return a->i_input < b->i_input ? -1 : 1;
    if (a->i_lane != b->i_lane)
        return a->i_lane < b->i_lane ? -1 : 1;
    if (a->start_s != b->start_s)
        return a->start_s < b->start_s ? -1 : 1;
    return (a->end_s > b->end_s) - (a->end_s < b->end_s);
}

static bool is_visible(const struct mist_plot_view *view,
                       const struct mist_timeline_row *row, double origin_s,
                       const struct mist_plot_ranks *ranks)
{
    return row->end_s > row->start_s && row->end_s - origin_s > view->from_s &&
           row->start_s - origin_s < view->to_s && mist_plot_has_rank(ranks, row->rank);
}

/* Sets origins and the end of the time axis. */
static enum mist_status find_times(struct mist_plot_view *view,
                                   const struct mist_plot_input *inputs, int n_inputs,
                                   const struct mist_plot_options *options,
                                   struct mist_err *err)
{
    view->origin_s = calloc((size_t)n_inputs, sizeof *view->origin_s);
    if (!view->origin_s)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d timelines",
                            n_inputs);
    view->from_s = options->from_s;
    view->to_s = options->to_s;
    for (int i = 0; i < n_inputs; i++) {
        double end_s;
        mist_timeline_span(inputs[i].timeline, &view->origin_s[i], &end_s);
        if (options->to_s <= 0)
            view->to_s = fmax(view->to_s, end_s - view->origin_s[i]);
    }
    return MIST_OK;
}

/* Collects the lanes that have a visible task, sorted, each once. */
static enum mist_status find_lanes(struct mist_plot_view *view,
                                   const struct mist_plot_input *inputs, int n_inputs,
                                   const struct mist_plot_options *options,
                                   struct mist_err *err)
{
    for (int i = 0; i < n_inputs; i++) {
        const struct mist_timeline *timeline = inputs[i].timeline;
        for (size_t j = 0; j < timeline->n_rows; j++) {
            const struct mist_timeline_row *row = &timeline->rows[j];
            struct mist_plot_lane lane = {row->rank, row->stream};
            if (!is_visible(view, row, view->origin_s[i], &options->ranks) ||
                (view->n_lanes > 0 &&
                 compare_lanes(&lane, &view->lanes[view->n_lanes - 1]) == 0))
                continue;
            struct mist_plot_lane *lanes =
                mist_grow(view->lanes, &view->lanes_capacity, (size_t)view->n_lanes + 1,
                          sizeof *lanes);
            if (!lanes)
                return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for lanes");
            view->lanes = lanes;
            lanes[view->n_lanes++] = lane;
        }
    }
    if (view->n_lanes == 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "no task of the chosen ranks is between %g s and %g s",
                            view->from_s, view->to_s);
    qsort(view->lanes, (size_t)view->n_lanes, sizeof *view->lanes, compare_lanes);
    int n = 1;
    for (int i = 1; i < view->n_lanes; i++)
        if (compare_lanes(&view->lanes[i], &view->lanes[n - 1]) != 0)
            view->lanes[n++] = view->lanes[i];
    view->n_lanes = n;
    return MIST_OK;
}

/* One span per visible task. */
static enum mist_status collect_spans(struct mist_plot_view *view,
                                      const struct mist_plot_input *inputs, int n_inputs,
                                      const struct mist_plot_options *options,
                                      struct mist_err *err)
{
    for (int i = 0; i < n_inputs; i++) {
        for (size_t j = 0; j < inputs[i].timeline->n_rows; j++) {
            const struct mist_timeline_row *row = &inputs[i].timeline->rows[j];
            struct mist_plot_lane key = {row->rank, row->stream};
            if (!is_visible(view, row, view->origin_s[i], &options->ranks))
                continue;
            const struct mist_plot_lane *lane = bsearch(
                &key, view->lanes, (size_t)view->n_lanes, sizeof key, compare_lanes);
            assert(lane);
            struct mist_plot_span *spans = mist_grow(view->spans, &view->spans_capacity,
                                                     view->n_spans + 1, sizeof *spans);
            if (!spans)
                return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu tasks",
                                    view->n_spans + 1);
            view->spans = spans;
            spans[view->n_spans++] = (struct mist_plot_span){
                .i_input = i,
                .i_lane = (int)(lane - view->lanes),
                .group = mist_plot_group_of(row->kind),
                .micro_batch = row->micro_batch,
                .iteration = row->iteration,
                .start_s = fmax(row->start_s - view->origin_s[i], view->from_s),
                .end_s = fmin(row->end_s - view->origin_s[i], view->to_s)};
        }
    }
    return MIST_OK;
}

static void merge_spans(struct mist_plot_view *view, double gap_s)
{
    size_t n = 0;

    qsort(view->spans, view->n_spans, sizeof *view->spans, compare_spans);
    for (size_t i = 0; i < view->n_spans; i++) {
        struct mist_plot_span *last = n ? &view->spans[n - 1] : NULL;
        const struct mist_plot_span *span = &view->spans[i];
        if (last && last->i_input == span->i_input && last->i_lane == span->i_lane &&
            last->group == span->group && last->micro_batch == span->micro_batch &&
            last->iteration == span->iteration && span->start_s - last->end_s <= gap_s)
            last->end_s = span->end_s;
        else
            view->spans[n++] = *span;
    }
    view->n_spans = n;
}

enum mist_status mist_plot_view_init(struct mist_plot_view *view,
                                     const struct mist_plot_input *inputs, int n_inputs,
                                     const struct mist_plot_options *options,
                                     double gap_frac, bool joins_backward,
                                     struct mist_err *err)
{
    *view = (struct mist_plot_view){0};
    enum mist_status status = find_times(view, inputs, n_inputs, options, err);

    if (status == MIST_OK)
        status = find_lanes(view, inputs, n_inputs, options, err);
    if (status == MIST_OK)
        status = collect_spans(view, inputs, n_inputs, options, err);
    if (status != MIST_OK) {
        mist_plot_view_fini(view);
        return status;
    }
    for (size_t i = 0; joins_backward && i < view->n_spans; i++)
        if (view->spans[i].group == MIST_GROUP_RECOMPUTE ||
            view->spans[i].group == MIST_GROUP_BACKWARD_WEIGHT)
            view->spans[i].group = MIST_GROUP_BACKWARD;
    merge_spans(view, gap_frac * (view->to_s - view->from_s));
    return MIST_OK;
}
