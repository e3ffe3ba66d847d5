/* Reduces a timeline to what can be compared. See compare.h. */
#include "sim/compare.h"

#include "core/order.h"
#include "core/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static enum mist_status check_ranks(const struct mist_plan *plan,
                                    const struct mist_timeline *timeline,
                                    struct mist_err *err)
{
    int32_t n_ranks = mist_plan_n_ranks(plan);

    if (timeline->n_rows == 0)
        return mist_err_set(err, MIST_ERR_INPUT, "the timeline is empty");
    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        if (row->rank >= n_ranks)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "the timeline has rank %d, the plan has ranks 0 to %d",
                                row->rank, (int)n_ranks - 1);
        if (row->layer > plan->model.n_layers + 1)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "the timeline has layer %d, the plan has layers 0 to %d",
                                row->layer, (int)plan->model.n_layers + 1);
    }
    return MIST_OK;
}

/* Distances of the latest ends of consecutive iterations;
 * the median is the iteration time. */
static enum mist_status iteration_time(const struct mist_timeline *timeline,
                                       struct mist_compare_side *out,
                                       struct mist_err *err)
{
    int first = timeline->rows[0].iteration, last = first;
    double start_s = timeline->rows[0].start_s;

    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        first = row->iteration < first ? row->iteration : first;
        last = row->iteration > last ? row->iteration : last;
        start_s = row->start_s < start_s ? row->start_s : start_s;
    }
    int n = last - first + 1;
    if (n > 1000000)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "the timeline has iterations %d to %d: too many", first,
                            last);
    double *ends = calloc((size_t)n, sizeof *ends);
    if (!ends)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < timeline->n_rows; i++) {
        double *end = &ends[timeline->rows[i].iteration - first];
        *end = timeline->rows[i].end_s > *end ? timeline->rows[i].end_s : *end;
    }
    out->n_iterations = n;
    if (n == 1) {
        out->iteration_s = ends[0] - start_s;
    } else {
        for (int i = 0; i < n - 1; i++)
            ends[i] = ends[i + 1] - ends[i];
        mist_sort_doubles(ends, (size_t)n - 1);
        out->iteration_s = (ends[(n - 1) / 2] + ends[(n - 2) / 2]) / 2;
    }
    free(ends);
    return MIST_OK;
}

/* Rows of one rank by start time. */
MIST_COMPARATOR(compare_starts, struct mist_timeline_row, rank, start_s)

/* Adds the time of one rank's communication, by start time. Of what several streams
 * communicate at once each instant counts once. */
static void add_communication(const struct mist_timeline_row *rows, size_t n,
                              struct mist_compare_stage *stage, double weight)
{
    double counted_until_s = -INFINITY;

    for (size_t i = 0; i < n; i++) {
        double from_s = fmax(rows[i].start_s, counted_until_s);
        if (mist_stream_channel(rows[i].stream) != MIST_STREAM_GPU_GPU ||
            rows[i].end_s <= from_s)
            continue;
        counted_until_s = rows[i].end_s;
        stage->communication_s += (rows[i].end_s - from_s) * weight;
    }
}

/* Adds one rank's rows to its stage. */
static void add_rank(const struct mist_timeline_row *rows, size_t n,
                     struct mist_compare_stage *stage, double weight)
{
    for (size_t i = 0; i < n; i++) {
        double time_s = (rows[i].end_s - rows[i].start_s) * weight;
        if (rows[i].stream == MIST_STREAM_COMPUTE)
            stage->compute_s += time_s;
        if (rows[i].device_live_bytes > stage->peak_bytes)
            stage->peak_bytes = rows[i].device_live_bytes;
    }
    add_communication(rows, n, stage, weight);
}

static void count_ranks(const struct mist_timeline_row *rows, size_t n,
                        const struct mist_plan *plan, int *by_stage)
{
    for (size_t i = 0; i < n; i++)
        if (i == 0 || rows[i].rank != rows[i - 1].rank)
            by_stage[mist_plan_stage_of(plan, rows[i].rank)]++;
}

static void add_kinds(const struct mist_timeline *timeline, struct mist_compare_side *out)
{
    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        out->kinds[row->kind].n_tasks++;
        out->kinds[row->kind].mean_s += row->end_s - row->start_s;
    }
    for (int i = 0; i < MIST_N_TASK_KINDS; i++)
        if (out->kinds[i].n_tasks > 0)
            out->kinds[i].mean_s /= (double)out->kinds[i].n_tasks;
}

enum mist_status mist_compare_reduce(const struct mist_plan *plan,
                                     const struct mist_timeline *timeline,
                                     struct mist_compare_side *out, struct mist_err *err)
{
    int by_stage[MIST_MAX_STAGES] = {0};
    enum mist_status status = check_ranks(plan, timeline, err);

    *out = (struct mist_compare_side){0};
    if (status == MIST_OK)
        status = iteration_time(timeline, out, err);
    if (status != MIST_OK)
        return status;
    struct mist_timeline_row *rows = malloc(timeline->n_rows * sizeof *rows);
    if (!rows)
        return mist_err_memory(err, NULL);
    memcpy(rows, timeline->rows, timeline->n_rows * sizeof *rows);
    qsort(rows, timeline->n_rows, sizeof *rows, compare_starts);
    count_ranks(rows, timeline->n_rows, plan, by_stage);
    for (size_t i = 0, end; i < timeline->n_rows; i = end) {
        int32_t i_stage = mist_plan_stage_of(plan, rows[i].rank);
        for (end = i; end < timeline->n_rows && rows[end].rank == rows[i].rank;)
            end++;
        add_rank(rows + i, end - i, &out->stages[i_stage],
                 1.0 / by_stage[i_stage] / out->n_iterations);
    }
    add_kinds(timeline, out);
    free(rows);
    return MIST_OK;
}

/* ---- rows that are missing ---- */

/* n_ends: [ranks] iterations of which the last task is there; -1: no row at all. */
static enum mist_status check_ends(const struct mist_plan *plan, const int *n_ends,
                                   int n_iterations, struct mist_err *err)
{
    int32_t n_ranks = mist_plan_n_ranks(plan);

    for (int32_t rank = 0; rank < n_ranks; rank++)
        if (n_ends[rank] >= 0 && n_ends[rank] != n_iterations)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "the timeline has the end of %d of %d iterations on "
                                "rank %d: was the file cut?",
                                n_ends[rank], n_iterations, (int)rank);
    return MIST_OK;
}

enum mist_status mist_compare_check_whole(const struct mist_plan *plan,
                                          const struct mist_timeline *predicted,
                                          const struct mist_timeline *measured,
                                          struct mist_err *err)
{
    int64_t last[MIST_MAX_STAGES] = {0};
    int first_iteration = measured->rows[0].iteration, last_iteration = first_iteration;
    size_t n_ranks = (size_t)mist_plan_n_ranks(plan);
    int *n_ends = malloc(n_ranks * sizeof *n_ends);

    if (!n_ends)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < n_ranks; i++)
        n_ends[i] = -1;
    for (size_t i = 0; i < predicted->n_rows; i++) {
        int64_t *task = &last[mist_plan_stage_of(plan, predicted->rows[i].rank)];
        *task = predicted->rows[i].task > *task ? predicted->rows[i].task : *task;
    }
    for (size_t i = 0; i < measured->n_rows; i++) {
        const struct mist_timeline_row *row = &measured->rows[i];
        int *n = &n_ends[row->rank];
        *n = (*n < 0 ? 0 : *n) + (row->task == last[mist_plan_stage_of(plan, row->rank)]);
        if (row->iteration < first_iteration)
            first_iteration = row->iteration;
        if (row->iteration > last_iteration)
            last_iteration = row->iteration;
    }
    enum mist_status status =
        check_ends(plan, n_ends, last_iteration - first_iteration + 1, err);
    free(n_ends);
    return status;
}
