/*
 * What a picture of timelines shows: lanes, tasks, the time axis. See internal.h.
 *
 * Ranks that do the same at the same times are one row, whether a replay left the others
 * out (mist_timeline_row.n_ranks) or wrote all of them.
 */
#include "plots/internal.h"

#include "core/memory.h"
#include "core/order.h"
#include "core/parse.h"

#include <math.h>
#include <stdlib.h>

#define EQUAL_FRAC                                                                       \
    1e-6 /* of the time axis: times that are no further apart are the same */

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

void mist_plot_write_key(FILE *stream, const bool is_used[MIST_N_GROUPS], bool has_bubble)
{
    int n = has_bubble;

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
    if (has_bubble)
        fprintf(stream,
                "key_names[%d] = 'bubble (compute idle)'\nkey_colors[%d] = '#%06X'\n",
                n + 1, n + 1, MIST_PLOT_IDLE_COLOR);
}

void mist_plot_view_fini(struct mist_plot_view *view)
{
    free(view->lanes);
    free(view->spans);
    free(view->first_span);
    free(view->origin_s);
    free(view->end_s);
    *view = (struct mist_plot_view){0};
}

/* ------------------------------------------------------------------------------- tasks */

/* A rank of the picture, and for how many it stands. */
struct rank {
    int rank, n_ranks;
};

struct ranks {
    size_t n, capacity;
    struct rank *items;           /* owned; ascending */
    int (*lanes)[MIST_N_STREAMS]; /* owned; [n] into the view's lanes; -1: none */
};

static int64_t behind_ranks(const struct mist_timeline_row *row)
{
    return (int64_t)row->rank + (row->n_ranks > 1 ? row->n_ranks : 1);
}

static bool is_chosen(const struct mist_plot_ranks *ranks,
                      const struct mist_timeline_row *row)
{
    for (int i = 0; i < ranks->n_ranges; i++)
        if (ranks->low[i] < behind_ranks(row) && ranks->high[i] >= row->rank)
            return true;
    return ranks->n_ranges == 0;
}

static bool is_visible(const struct mist_plot_view *view,
                       const struct mist_timeline_row *row, double origin_s,
                       const struct mist_plot_ranks *ranks)
{
    return row->end_s > row->start_s && row->end_s - origin_s > view->from_s &&
           row->start_s - origin_s < view->to_s && is_chosen(ranks, row);
}

/* Sets origins, ends and the end of the time axis. */
static enum mist_status find_times(struct mist_plot_view *view,
                                   const struct mist_plot_input *inputs,
                                   const struct mist_plot_options *options,
                                   struct mist_err *err)
{
    if (!MIST_CALLOC(view->origin_s, view->n_inputs) ||
        !MIST_CALLOC(view->end_s, view->n_inputs))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %d timelines",
                            view->n_inputs);
    view->from_s = options->from_s;
    view->to_s = options->to_s;
    for (int i = 0; i < view->n_inputs; i++) {
        mist_timeline_span(inputs[i].timeline, &view->origin_s[i], &view->end_s[i]);
        view->end_s[i] -= view->origin_s[i];
        if (options->to_s <= 0)
            view->to_s = fmax(view->to_s, view->end_s[i]);
    }
    return MIST_OK;
}

/* By rank; the one that stands for most first. */
MIST_COMPARATOR_OF(compare_ranks, struct rank,
                   MIST_COMPARE_OR(a->rank, b->rank,
                                   MIST_COMPARE(b->n_ranks, a->n_ranks)))

/* Each rank once; those that another timeline has stand for themselves. */
static void unite_ranks(struct ranks *ranks)
{
    size_t n = 0;

    qsort(ranks->items, ranks->n, sizeof *ranks->items, compare_ranks);
    for (size_t i = 0; i < ranks->n; i++)
        if (n == 0 || ranks->items[n - 1].rank != ranks->items[i].rank)
            ranks->items[n++] = ranks->items[i];
    ranks->n = n;
    for (size_t i = 0; i < n; i++) {
        struct rank *rank = &ranks->items[i];
        int64_t behind = (int64_t)rank->rank + rank->n_ranks;
        for (size_t k = i + 1; k < n && ranks->items[k].rank < behind; k++)
            rank->n_ranks--;
    }
}

/* Collects the ranks that have a visible task. */
static enum mist_status find_ranks(const struct mist_plot_view *view,
                                   const struct mist_plot_input *inputs,
                                   const struct mist_plot_options *options,
                                   struct ranks *ranks, struct mist_err *err)
{
    for (int i = 0; i < view->n_inputs; i++) {
        const struct mist_timeline *timeline = inputs[i].timeline;
        for (size_t j = 0; j < timeline->n_rows; j++) {
            const struct mist_timeline_row *row = &timeline->rows[j];
            if (!is_visible(view, row, view->origin_s[i], &options->ranks) ||
                (ranks->n > 0 && ranks->items[ranks->n - 1].rank == row->rank))
                continue;
            if (!MIST_RESERVE(ranks->items, ranks->capacity, ranks->n + 1))
                return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for ranks");
            ranks->items[ranks->n++] =
                (struct rank){row->rank, (int)(behind_ranks(row) - row->rank)};
        }
    }
    if (ranks->n == 0 && view->from_s > 0 && view->from_s >= view->to_s)
        return mist_err_set(err, MIST_ERR_INPUT, "--from %gs: all ends at %g s",
                            view->from_s, view->to_s);
    if (ranks->n == 0)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "no task of the chosen ranks takes time between %g s and %g s", view->from_s,
            view->to_s);
    unite_ranks(ranks);
    if (!MIST_CALLOC(ranks->lanes, ranks->n))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for ranks");
    return MIST_OK;
}

/* The first of the ranks from `rank` on. */
static size_t first_rank(const struct ranks *ranks, int rank)
{
    MIST_BISECT(low, 0, ranks->n, i, ranks->items[i].rank < rank);
    return low;
}

/* Adds a task to the lanes of the ranks that it speaks of. */
static enum mist_status add_task(struct mist_plot_view *view, int i_input,
                                 const struct mist_timeline_row *row,
                                 const struct ranks *ranks, enum mist_stream stream,
                                 struct mist_err *err)
{
    for (size_t k = first_rank(ranks, row->rank);
         k < ranks->n && ranks->items[k].rank < behind_ranks(row); k++) {
        if (!MIST_RESERVE(view->spans, view->spans_capacity, view->n_spans + 1))
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %zu tasks",
                                view->n_spans + 1);
        view->spans[view->n_spans++] = (struct mist_plot_span){
            .i_input = i_input,
            .i_lane = (int)k * MIST_N_STREAMS + (int)stream, /* until lanes are known */
            .group = mist_plot_group_of(row->kind),
            .micro_batch = row->micro_batch,
            .iteration = row->iteration,
            .task = row->task,
            .live_bytes = row->device_live_bytes,
            .start_s = fmax(row->start_s - view->origin_s[i_input], view->from_s),
            .end_s = fmin(row->end_s - view->origin_s[i_input], view->to_s)};
        ranks->lanes[k][stream] = 1;
    }
    return MIST_OK;
}

/* The lanes that have a task. */
static enum mist_status make_lanes(struct mist_plot_view *view, struct ranks *ranks,
                                   struct mist_err *err)
{
    if (!MIST_CALLOC(view->lanes, ranks->n * MIST_N_STREAMS))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for lanes");
    for (size_t k = 0; k < ranks->n; k++)
        for (int s = 0; s < MIST_N_STREAMS; s++)
            if (ranks->lanes[k][s]) {
                ranks->lanes[k][s] = view->n_lanes;
                view->lanes[view->n_lanes++] =
                    (struct mist_plot_lane){.rank = ranks->items[k].rank,
                                            .n_ranks = ranks->items[k].n_ranks,
                                            .stream = (enum mist_stream)s};
            }
    for (size_t i = 0; i < view->n_spans; i++) {
        int at = view->spans[i].i_lane;
        view->spans[i].i_lane = ranks->lanes[at / MIST_N_STREAMS][at % MIST_N_STREAMS];
    }
    return MIST_OK;
}

MIST_COMPARATOR(compare_spans, struct mist_plot_span, i_input, i_lane, start_s, task)

/* Sorts the tasks, and notes where those of each lane begin. */
static enum mist_status sort_spans(struct mist_plot_view *view, struct mist_err *err)
{
    size_t n = (size_t)view->n_inputs * (size_t)view->n_lanes, i = 0;

    if (!MIST_CALLOC(view->first_span, n + 1))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for lanes");
    qsort(view->spans, view->n_spans, sizeof *view->spans, compare_spans);
    for (size_t k = 0; k < n; k++) {
        view->first_span[k] = i;
        while (i < view->n_spans &&
               (size_t)view->spans[i].i_input * (size_t)view->n_lanes +
                       (size_t)view->spans[i].i_lane ==
                   k)
            i++;
    }
    view->first_span[n] = i;
    return MIST_OK;
}

static enum mist_status collect(struct mist_plot_view *view,
                                const struct mist_plot_input *inputs,
                                const struct mist_plot_options *options, bool by_rank,
                                struct ranks *ranks, struct mist_err *err)
{
    enum mist_status status = find_times(view, inputs, options, err);

    if (status == MIST_OK)
        status = find_ranks(view, inputs, options, ranks, err);
    for (int i = 0; i < view->n_inputs && status == MIST_OK; i++)
        for (size_t j = 0; j < inputs[i].timeline->n_rows && status == MIST_OK; j++) {
            const struct mist_timeline_row *row = &inputs[i].timeline->rows[j];
            if (is_visible(view, row, view->origin_s[i], &options->ranks))
                status = add_task(view, i, row, ranks,
                                  by_rank ? MIST_STREAM_COMPUTE : row->stream, err);
        }
    if (status == MIST_OK)
        status = make_lanes(view, ranks, err);
    return status == MIST_OK ? sort_spans(view, err) : status;
}

/* --------------------------------------------------------------------------- rows less */

int mist_plot_view_rank_end(const struct mist_plot_view *view, int i_lane)
{
    int rank = view->lanes[i_lane].rank;

    while (i_lane < view->n_lanes && view->lanes[i_lane].rank == rank)
        i_lane++;
    return i_lane;
}

int mist_plot_view_n_ranks(const struct mist_plot_view *view)
{
    int n = 0;

    for (int i = 0; i < view->n_lanes; i = mist_plot_view_rank_end(view, i))
        n++;
    return n;
}

void mist_plot_view_keep(struct mist_plot_view *view)
{
    size_t n_spans = 0, at = 0;
    int n_all = view->n_lanes;

    /* What is written never passes what is still to be read. */
    for (int i = 0; i < view->n_inputs; i++)
        for (int lane = 0, kept = 0; lane < n_all; lane++) {
            size_t k = (size_t)i * (size_t)n_all + (size_t)lane;
            size_t first = view->first_span[k], end = view->first_span[k + 1];
            if (!view->lanes[lane].is_kept)
                continue;
            view->first_span[at++] = n_spans;
            for (size_t s = first; s < end; s++) {
                view->spans[n_spans] = view->spans[s];
                view->spans[n_spans++].i_lane = kept;
            }
            kept++;
        }
    view->first_span[at] = view->n_spans = n_spans;
    view->n_lanes = 0;
    for (int i = 0; i < n_all; i++)
        if (view->lanes[i].is_kept)
            view->lanes[view->n_lanes++] = view->lanes[i];
}

static bool has_same_spans(const struct mist_plot_view *view, int a, int b, bool by_rank)
{
    double near_s = EQUAL_FRAC * (view->to_s - view->from_s);

    for (int i = 0; i < view->n_inputs; i++) {
        size_t n_a, n_b;
        const struct mist_plot_span *x = mist_plot_lane_spans(view, i, a, &n_a);
        const struct mist_plot_span *y = mist_plot_lane_spans(view, i, b, &n_b);
        if (n_a != n_b)
            return false;
        for (size_t k = 0; k < n_a; k++)
            if (x[k].group != y[k].group || x[k].micro_batch != y[k].micro_batch ||
                x[k].iteration != y[k].iteration ||
                !(fabs(x[k].start_s - y[k].start_s) <= near_s) ||
                !(fabs(x[k].end_s - y[k].end_s) <= near_s) ||
                (by_rank && x[k].live_bytes != y[k].live_bytes))
                return false;
    }
    return true;
}

/* a, b: the first lanes of two ranks. */
static bool are_equal(const struct mist_plot_view *view, int a, int b, bool by_rank)
{
    int n = mist_plot_view_rank_end(view, a) - a;

    if (mist_plot_view_rank_end(view, b) - b != n)
        return false;
    for (int i = 0; i < n; i++)
        if (view->lanes[a + i].stream != view->lanes[b + i].stream ||
            !has_same_spans(view, a + i, b + i, by_rank))
            return false;
    return true;
}

/* The first of equal ranks stands for all of them. */
static void unite_equal(struct mist_plot_view *view, bool by_rank)
{
    for (int b = 0, end; b < view->n_lanes; b = end) {
        int a = 0;
        end = mist_plot_view_rank_end(view, b);
        while (a < b && !(view->lanes[a].is_kept && are_equal(view, a, b, by_rank)))
            a = mist_plot_view_rank_end(view, a);
        for (int i = b; i < end; i++) {
            view->lanes[i].is_kept = a == b;
            if (a < b)
                view->lanes[a + i - b].n_ranks += view->lanes[i].n_ranks;
        }
    }
    mist_plot_view_keep(view);
}

/* ------------------------------------------------------------------------------- views */

enum mist_status mist_plot_view_init(struct mist_plot_view *view,
                                     const struct mist_plot_input *inputs, int n_inputs,
                                     const struct mist_plot_options *options,
                                     bool by_rank, struct mist_err *err)
{
    struct ranks ranks = {0};

    *view = (struct mist_plot_view){.n_inputs = n_inputs, .every = 1};
    enum mist_status status = collect(view, inputs, options, by_rank, &ranks, err);
    free(ranks.items);
    free(ranks.lanes);
    if (status != MIST_OK) {
        mist_plot_view_fini(view);
        return status;
    }
    unite_equal(view, by_rank);
    view->n_rows = mist_plot_view_n_ranks(view);
    return MIST_OK;
}

void mist_plot_view_fit(struct mist_plot_view *view, int max_lanes, int max_rows)
{
    int n_compute = 0, i_row = 0;

    for (int i = 0; i < view->n_lanes; i++)
        n_compute += view->lanes[i].stream == MIST_STREAM_COMPUTE;
    if (view->n_lanes > max_lanes && n_compute > 0 && n_compute < view->n_lanes) {
        view->is_compute_only = true;
        for (int i = 0; i < view->n_lanes; i++)
            view->lanes[i].is_kept = view->lanes[i].stream == MIST_STREAM_COMPUTE;
        mist_plot_view_keep(view);
    }
    int n_rows = mist_plot_view_n_ranks(view);
    if (n_rows <= max_rows)
        return;
    view->every = (n_rows + max_rows - 1) / max_rows;
    for (int i = 0, end; i < view->n_lanes; i = end, i_row++)
        for (end = mist_plot_view_rank_end(view, i); i < end; i++)
            view->lanes[i].is_kept = i_row % view->every == 0;
    mist_plot_view_keep(view);
}

const char *mist_plot_view_note(const struct mist_plot_view *view, char *text,
                                size_t size)
{
    char every[40] = "";

    text[0] = '\0';
    if (view->every > 1)
        snprintf(every, sizeof every, ", one in %d", view->every);
    if (view->is_compute_only || view->every > 1)
        snprintf(text, size, "of %d ranks that differ%s%s", view->n_rows, every,
                 view->is_compute_only ? ", the compute streams alone" : "");
    return text;
}

const char *mist_plot_rank_name(const struct mist_plot_lane *lane, char *text,
                                size_t size)
{
    snprintf(text, size, "rank %d", lane->rank);
    if (lane->n_ranks > 1)
        mist_text_add(text, size, ", ", "of %lld", (long long)lane->n_ranks);
    return text;
}

double mist_plot_busy_frac(const struct mist_plot_view *view, int i_input)
{
    double busy_s = 0, n_ranks = 0;

    for (int i = 0; i < view->n_lanes; i++) {
        const struct mist_plot_lane *lane = &view->lanes[i];
        size_t n;
        const struct mist_plot_span *spans = mist_plot_lane_spans(view, i_input, i, &n);
        if (lane->stream != MIST_STREAM_COMPUTE || n == 0)
            continue;
        for (size_t k = 0; k < n; k++)
            busy_s += (spans[k].end_s - spans[k].start_s) * (double)lane->n_ranks;
        n_ranks += (double)lane->n_ranks;
    }
    double shown_s = fmin(view->to_s, view->end_s[i_input]) - view->from_s;
    return n_ranks > 0 && shown_s > 0 ? busy_s / (n_ranks * shown_s) : 0;
}
