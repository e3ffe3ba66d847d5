/*
 * What a message costs. See cost_model.h.
 *
 * Per operation, group shape and concurrency the measured sizes form a table; between two
 * of them time is linear in bytes. Below the first and above the last a line through the
 * two outer points continues (alpha-beta), and the time counts as extrapolated. A group
 * shape that was not measured borrows the table of the same operation whose number of
 * ranks is nearest, scaled by the volume that a ring moves, (n-1)/n; an all-reduce that
 * was not measured is a reduce-scatter and an all-gather. Both count as extrapolated.
 */
#include "sim/cost_internal.h"

#include <math.h>
#include <stdlib.h>

/* ----------------------------------------------------------------------------- tables */

static bool is_of_table(const struct mist_link_table *table,
                        const struct mist_link_row *row)
{
    return table->operation == row->operation && table->nodes == row->nodes &&
           table->ranks_per_node == row->ranks_per_node &&
           table->concurrent_groups == row->concurrent_groups;
}

static int compare_points(const void *a_void, const void *b_void)
{
    const struct mist_link_point *a = a_void, *b = b_void;

    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

static void add_row(struct mist_cost_model *model, const struct mist_link_row *row)
{
    int32_t i = 0;

    while (i < model->n_tables && !is_of_table(&model->tables[i], row))
        i++;
    struct mist_link_table *table = &model->tables[i];
    if (i == model->n_tables) {
        table->operation = row->operation;
        table->nodes = row->nodes;
        table->ranks_per_node = row->ranks_per_node;
        table->concurrent_groups = row->concurrent_groups;
        model->n_tables++;
    }
    if (table->points)
        table->points[table->n_points] = (struct mist_link_point){
            row->bytes, row->time_us * 1e-6,
            row->deviation_us * 1e-6 / sqrt((double)row->repetitions)};
    table->n_points++;
}

enum mist_status mist_cost_link_init(struct mist_cost_model *model, struct mist_err *err)
{
    const struct mist_trace_set *traces = model->traces;

    model->tables = calloc(traces->n_links + 1, sizeof *model->tables);
    if (!model->tables)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < traces->n_links; i++) /* counts */
        add_row(model, &traces->links[i]);
    for (int32_t i = 0; i < model->n_tables; i++) {
        struct mist_link_table *table = &model->tables[i];
        table->points = calloc((size_t)table->n_points, sizeof *table->points);
        table->n_points = 0;
        if (!table->points)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < traces->n_links; i++) /* fills */
        add_row(model, &traces->links[i]);
    for (int32_t i = 0; i < model->n_tables; i++)
        qsort(model->tables[i].points, (size_t)model->tables[i].n_points,
              sizeof *model->tables[i].points, compare_points);
    return MIST_OK;
}

void mist_cost_link_fini(struct mist_cost_model *model)
{
    for (int32_t i = 0; i < model->n_tables; i++)
        free(model->tables[i].points);
    free(model->tables);
}

/* ----------------------------------------------------------------------------- prices */

static void price(const struct mist_link_table *table, int64_t bytes,
                  struct mist_cost *out)
{
    const struct mist_link_point *p = table->points;
    int32_t n = table->n_points, i = 0;

    *out = (struct mist_cost){0};
    if (n == 1) { /* one size: its rate, no latency known */
        out->time_s = p[0].time_s * (double)bytes / (double)p[0].bytes;
        out->deviation_s = p[0].deviation_s;
        out->extrapolated_s = bytes == p[0].bytes ? 0 : out->time_s;
        return;
    }
    while (i < n - 2 && p[i + 1].bytes < bytes)
        i++;
    double share = (double)(bytes - p[i].bytes) / (double)(p[i + 1].bytes - p[i].bytes);
    out->time_s = p[i].time_s + share * (p[i + 1].time_s - p[i].time_s);
    out->deviation_s = p[i].deviation_s + fmin(fmax(share, 0), 1) *
                                              (p[i + 1].deviation_s - p[i].deviation_s);
    if (bytes < p[0].bytes) /* a line may pass below zero: no faster than in proportion */
        out->time_s = fmax(out->time_s, p[0].time_s * (double)bytes / (double)p[0].bytes);
    if (bytes < p[0].bytes || bytes > p[n - 1].bytes)
        out->extrapolated_s = out->time_s;
}

/*
 * The table of exactly this shape, or the nearest number of ranks of the same operation.
 */
static const struct mist_link_table *find_table(const struct mist_cost_model *model,
                                                enum mist_link_operation operation,
                                                int nodes, int ranks_per_node,
                                                int concurrent_groups, bool *is_exact)
{
    const struct mist_link_table *best = NULL;
    double best_distance = INFINITY;

    for (int32_t i = 0; i < model->n_tables; i++) {
        const struct mist_link_table *table = &model->tables[i];
        if (table->operation != operation)
            continue;
        double distance = fabs(log((double)(table->nodes * table->ranks_per_node) /
                                   (nodes * ranks_per_node))) +
                          8 * ((table->nodes > 1) != (nodes > 1)) +
                          2 * fabs(log((double)table->nodes / nodes)) +
                          fabs(log((double)table->concurrent_groups / concurrent_groups));
        if (distance < best_distance) {
            best = table;
            best_distance = distance;
        }
    }
    *is_exact = best_distance == 0;
    return best;
}

static bool is_copy(enum mist_link_operation operation)
{
    return operation == MIST_LINK_HOST_TO_DEVICE || operation == MIST_LINK_DEVICE_TO_HOST;
}

/* Volume that a rank moves in a ring of n, relative to the message. */
static double ring_volume(enum mist_link_operation operation, int n)
{
    return is_copy(operation) || operation == MIST_LINK_SEND_RECV ? 1
                                                                  : (double)(n - 1) / n;
}

static enum mist_status all_reduce_of_halves(const struct mist_cost_model *model,
                                             int32_t nodes, int32_t ranks_per_node,
                                             int32_t concurrent_groups, int64_t bytes,
                                             struct mist_cost *out, struct mist_err *err)
{
    struct mist_cost gather;
    enum mist_status status =
        mist_cost_link(model, MIST_LINK_REDUCE_SCATTER, nodes, ranks_per_node,
                       concurrent_groups, bytes, out, err);

    if (status == MIST_OK)
        status = mist_cost_link(model, MIST_LINK_ALL_GATHER, nodes, ranks_per_node,
                                concurrent_groups, bytes, &gather, err);
    if (status != MIST_OK)
        return status;
    mist_cost_add(out, &gather);
    out->extrapolated_s = out->time_s;
    return MIST_OK;
}

enum mist_status mist_cost_link(const struct mist_cost_model *model,
                                enum mist_link_operation operation, int32_t nodes,
                                int32_t ranks_per_node, int32_t concurrent_groups,
                                int64_t bytes, struct mist_cost *out,
                                struct mist_err *err)
{
    bool is_exact;
    int n_ranks = nodes * ranks_per_node;
    const struct mist_link_table *table =
        find_table(model, operation, nodes, ranks_per_node, concurrent_groups, &is_exact);

    *out = (struct mist_cost){0};
    if (bytes == 0 || (n_ranks == 1 && !is_copy(operation)))
        return MIST_OK;
    if (!table && operation == MIST_LINK_ALL_REDUCE)
        return all_reduce_of_halves(model, nodes, ranks_per_node, concurrent_groups,
                                    bytes, out, err);
    if (!table)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "cluster %s: the trace set has no %s in links.csv; measure it "
            "with mist-profile on %d ranks",
            model->traces->cluster.name, mist_link_operation_name(operation), n_ranks);
    price(table, bytes, out);
    if (is_exact || is_copy(operation))
        return MIST_OK;
    double scale = ring_volume(operation, n_ranks) /
                   ring_volume(operation, table->nodes * table->ranks_per_node) *
                   concurrent_groups / table->concurrent_groups;
    out->time_s *= scale;
    out->deviation_s *= scale;
    out->extrapolated_s = out->time_s;
    return MIST_OK;
}
