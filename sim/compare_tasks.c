/* Two timelines task by task: whether they are of one plan, and where they differ. See
 * compare.h. */
#include "sim/compare.h"

#include "core/memory.h"
#include "core/order.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* Predicted rows by rank and number of the task. */
struct tasks {
    const struct mist_timeline_row **rows; /* owned; NULL: there is no such task */
    size_t *first;     /* owned; [n_ranks + 1] in rows; of a rank without any: empty */
    int32_t *stand_in; /* owned; [n_ranks] the rank itself, or the one of its stage that
                          there is */
};

static void free_tasks(struct tasks *at)
{
    free(at->rows);
    free(at->first);
    free(at->stand_in);
}

static enum mist_status index_tasks(const struct mist_plan *plan,
                                    const struct mist_timeline *timeline,
                                    struct tasks *out, struct mist_err *err)
{
    size_t n_ranks = (size_t)mist_plan_n_ranks(plan);
    int32_t of_stage[MIST_MAX_STAGES];

    *out = (struct tasks){.first = calloc(n_ranks + 1, sizeof *out->first),
                          .stand_in = calloc(n_ranks, sizeof *out->stand_in)};
    if (!out->first || !out->stand_in)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        size_t *n = &out->first[row->rank + 1];
        *n = (size_t)row->task >= *n ? (size_t)row->task + 1 : *n;
    }
    for (size_t r = n_ranks; r-- > 0;)
        if (out->first[r + 1] > 0)
            of_stage[mist_plan_stage_of(plan, (int32_t)r)] = (int32_t)r;
    for (size_t r = 0; r < n_ranks; r++) {
        out->stand_in[r] = out->first[r + 1] > 0
                               ? (int32_t)r
                               : of_stage[mist_plan_stage_of(plan, (int32_t)r)];
        out->first[r + 1] += out->first[r];
    }
    if (!MIST_CALLOC(out->rows, out->first[n_ranks] + 1))
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < timeline->n_rows; i++)
        out->rows[out->first[timeline->rows[i].rank] + (size_t)timeline->rows[i].task] =
            &timeline->rows[i];
    return MIST_OK;
}

/* The predicted row of a measured one; NULL: there is none. */
static const struct mist_timeline_row *find_task(const struct tasks *at,
                                                 const struct mist_timeline_row *row)
{
    size_t first = at->first[at->stand_in[row->rank]];
    size_t n = at->first[at->stand_in[row->rank] + 1] - first;

    return (size_t)row->task < n ? at->rows[first + (size_t)row->task] : NULL;
}

static enum mist_status check_tasks(const struct tasks *at,
                                    const struct mist_timeline *measured,
                                    struct mist_err *err)
{
    for (size_t i = 0; i < measured->n_rows; i++) {
        const struct mist_timeline_row *row = &measured->rows[i];
        const struct mist_timeline_row *of = find_task(at, row);
        if (!of)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "rank %d has a task %lld, which the plan's has not: the "
                                "timeline is of another plan",
                                row->rank, (long long)row->task);
        if (of->kind != row->kind || of->stream != row->stream ||
            of->layer != row->layer || of->micro_batch != row->micro_batch)
            return mist_err_set(
                err, MIST_ERR_INPUT,
                "task %lld of rank %d is %s of layer %d, micro-batch %d, in the plan it "
                "is %s of layer %d, micro-batch %d: the timeline is of another plan",
                (long long)row->task, row->rank, mist_task_kind_name(row->kind),
                row->layer, row->micro_batch, mist_task_kind_name(of->kind), of->layer,
                of->micro_batch);
        if (of->bytes != row->bytes)
            return mist_err_set(err, MIST_ERR_INPUT,
                                "task %lld of rank %d, %s, has %lld bytes, in the plan "
                                "%lld: the timeline is of another model or job",
                                (long long)row->task, row->rank,
                                mist_task_kind_name(row->kind), (long long)row->bytes,
                                (long long)of->bytes);
    }
    return MIST_OK;
}

/* All ranks of the plan were measured, or those that were predicted. sums: [n_ranks] of
 * all kinds. */
static enum mist_status check_n_ranks(const struct mist_plan *plan,
                                      const struct tasks *at,
                                      const struct mist_compare_difference *sums,
                                      struct mist_err *err)
{
    int32_t n_ranks = mist_plan_n_ranks(plan), n_measured = 0;
    bool are_predicted = true;

    for (int32_t r = 0; r < n_ranks; r++) {
        bool is_measured = false;
        for (int k = 0; k < MIST_N_TASK_KINDS; k++)
            is_measured = is_measured ||
                          sums[(size_t)r * MIST_N_TASK_KINDS + (size_t)k].n_tasks > 0;
        n_measured += is_measured;
        are_predicted = are_predicted && is_measured == (at->stand_in[r] == r);
    }
    if (n_measured == n_ranks || are_predicted)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_INPUT,
                        "the timeline has %d of the plan's %d ranks: is it of another "
                        "plan, or was the file cut?",
                        (int)n_measured, (int)n_ranks);
}

/* ------------------------------------------------------------------------ differences */

static int compare_differences(const void *a_, const void *b_)
{
    const struct mist_compare_difference *a = a_, *b = b_;
    double x = fabs(a->predicted_s - a->measured_s),
           y = fabs(b->predicted_s - b->measured_s);

    return MIST_COMPARE_OR(y, x, MIST_COMPARE_BY(a, b, rank, kind));
}

/* Adds up the tasks that were measured, and those that were predicted for them. */
static void add_differences(const struct tasks *at, const struct mist_timeline *measured,
                            double per_iteration, struct mist_compare_difference *sums)
{
    for (size_t i = 0; i < measured->n_rows; i++) {
        const struct mist_timeline_row *row = &measured->rows[i];
        const struct mist_timeline_row *of = find_task(at, row);
        assert(of); /* check_tasks() */
        struct mist_compare_difference *sum =
            &sums[(size_t)row->rank * MIST_N_TASK_KINDS + (size_t)row->kind];
        sum->n_tasks++;
        sum->measured_s += (row->end_s - row->start_s) * per_iteration;
        sum->predicted_s += (of->end_s - of->start_s) * per_iteration;
    }
}

static size_t keep_known(struct mist_compare_difference *sums, size_t n)
{
    size_t n_kept = 0;

    for (size_t i = 0; i < n; i++)
        if (sums[i].n_tasks > 0)
            sums[n_kept++] = sums[i];
    return n_kept;
}

enum mist_status
mist_compare_tasks(const struct mist_plan *plan, const struct mist_timeline *predicted,
                   const struct mist_timeline *measured, int n_iterations,
                   struct mist_compare_difference **out, size_t *n, struct mist_err *err)
{
    size_t n_all = (size_t)mist_plan_n_ranks(plan) * MIST_N_TASK_KINDS;
    struct mist_compare_difference *sums = calloc(n_all, sizeof *sums);
    struct tasks tasks;
    enum mist_status status = index_tasks(plan, predicted, &tasks, err);

    if (status == MIST_OK && !sums)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = check_tasks(&tasks, measured, err);
    if (status == MIST_OK) {
        for (size_t i = 0; i < n_all; i++) {
            sums[i].rank = (int32_t)(i / MIST_N_TASK_KINDS);
            sums[i].stage = mist_plan_stage_of(plan, sums[i].rank);
            sums[i].kind = (enum mist_task_kind)(i % MIST_N_TASK_KINDS);
        }
        add_differences(&tasks, measured, 1.0 / n_iterations, sums);
        status = check_n_ranks(plan, &tasks, sums, err);
    }
    if (status == MIST_OK) {
        *n = keep_known(sums, n_all);
        qsort(sums, *n, sizeof *sums, compare_differences);
        *out = sums;
        sums = NULL;
    }
    free(sums);
    free_tasks(&tasks);
    return status;
}
