/*
 * What a message costs. See cost_model.h.
 *
 * Per operation, group shape and concurrency the measured sizes form a table; between two
 * of them time is linear in bytes, and the deviation contains what leaving sizes out of
 * the table would have been off by. Below the first and above the last the time counts as
 * extrapolated: from the outer point on by what is declared of the way, where that is, else
 * a line through the two outer points continues (alpha-beta). A group
 * shape that was not measured borrows the table of the same operation whose number of
 * ranks is nearest. Where the ways of both are declared (cost_declared.c), its time goes
 * by what these say of the two: the links that a group has depend on how many of a node's
 * devices are in it. Else what the outer points' line says of no bytes goes by the number
 * of steps from rank to rank, the rest by the volume that a ring moves, (n-1)/n, and both
 * by how many share what groups that run at once share. An operation
 * that was not measured at all is derived from the ones that a ring makes of it: an
 * all-reduce is a reduce-scatter and an all-gather, these two mirror each other, and
 * either is half an all-reduce; copies in the two directions mirror each other, too. All
 * of this counts as extrapolated, and as borrowed.
 *
 * What was measured of another operation on the same kind of way comes first, in proportion
 * to what is declared of both (cost_declared.c), so that a link that is slower than declared
 * is so for all operations; then what is declared; last what was measured on another kind of
 * way: rows of groups inside of a node say nothing of groups across nodes.
 */
#include "sim/cost/cost_internal.h"

#include "core/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h> /* memcmp */

/* ----------------------------------------------------------------------------- tables */

/* Rows of one table: sorted rows begin .. begin + n - 1. */
struct run {
    const struct mist_link_row *first; /* in the trace set */
    size_t begin, n;
};

static int compare_tables(const struct mist_link_row *a, const struct mist_link_row *b)
{
    return MIST_COMPARE_BY(a, b, operation, nodes, ranks_per_node, concurrent_groups);
}

/* By table, then in the order of the trace set. */
static int compare_rows(const void *a_void, const void *b_void)
{
    const struct mist_link_row *a = *(const struct mist_link_row *const *)a_void;
    const struct mist_link_row *b = *(const struct mist_link_row *const *)b_void;
    int order = compare_tables(a, b);

    return order != 0 ? order : MIST_COMPARE(a, b);
}

MIST_COMPARATOR(compare_runs, struct run, first)

MIST_COMPARATOR(compare_points, struct mist_link_point, bytes)

/* Root mean square over the inner sizes of how far the line between their neighbours is
 * off, relative; -1 without an inner size. */
static double leave_one_out(const struct mist_link_table *table)
{
    const struct mist_link_point *p = table->points;
    double sum = 0;

    for (int32_t i = 1; i + 1 < table->n_points; i++) {
        double share = (double)(p[i].bytes - p[i - 1].bytes) /
                       (double)(p[i + 1].bytes - p[i - 1].bytes);
        double time_s = p[i - 1].time_s + share * (p[i + 1].time_s - p[i - 1].time_s);
        double error = time_s / p[i].time_s - 1;
        sum += error * error;
    }
    return table->n_points > 2 ? sqrt(sum / (table->n_points - 2)) : -1;
}

/*
 * Relative deviation of a time between two sizes: the table's residual. Where there is
 * none, the truth is taken to lie anywhere between the two rates (uniform on a
 * logarithmic scale).
 */
static double interpolation_frac(const struct mist_link_table *table,
                                 const struct mist_link_point *a,
                                 const struct mist_link_point *b)
{
    if (table->residual_frac >= 0)
        return table->residual_frac;
    return fabs(log(a->time_s / (double)a->bytes * (double)b->bytes / b->time_s)) /
           sqrt(12);
}

/* Sorts the rows by table and finds the tables, in the order of the trace set. */
static int32_t find_runs(const struct mist_trace_set *traces,
                         const struct mist_link_row **sorted, struct run *runs)
{
    int32_t n = 0;

    for (size_t i = 0; i < traces->n_links; i++)
        sorted[i] = &traces->links[i];
    qsort(sorted, traces->n_links, sizeof *sorted, compare_rows);
    for (size_t i = 0; i < traces->n_links; i++) {
        if (i == 0 || compare_tables(sorted[i - 1], sorted[i]) != 0)
            runs[n++] = (struct run){.first = sorted[i], .begin = i};
        runs[n - 1].n++;
    }
    qsort(runs, (size_t)n, sizeof *runs, compare_runs);
    return n;
}

static enum mist_status fill_table(struct mist_link_table *table,
                                   const struct mist_link_row *const *rows, size_t n,
                                   struct mist_err *err)
{
    *table = (struct mist_link_table){
        .operation = rows[0]->operation,
        .shape = {rows[0]->nodes, rows[0]->ranks_per_node, rows[0]->concurrent_groups},
        .n_points = (int32_t)n,
        .points = malloc(n * sizeof *table->points)};
    if (!table->points)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < n; i++)
        table->points[i] = (struct mist_link_point){
            rows[i]->bytes, rows[i]->time_us * 1e-6,
            mist_cost_standard_error_s(rows[i]->deviation_us, rows[i]->repetitions)};
    qsort(table->points, n, sizeof *table->points, compare_points);
    table->residual_frac = leave_one_out(table);
    return MIST_OK;
}

enum mist_status mist_cost_link_init(struct mist_cost_model *model, struct mist_err *err)
{
    const struct mist_trace_set *traces = model->traces;
    const struct mist_link_row **sorted = malloc((traces->n_links + 1) * sizeof *sorted);
    struct run *runs = malloc((traces->n_links + 1) * sizeof *runs);
    int32_t n = sorted && runs ? find_runs(traces, sorted, runs) : 0;
    enum mist_status status = MIST_OK;

    model->tables = calloc((size_t)n + 1, sizeof *model->tables);
    if (!sorted || !runs || !model->tables)
        status = mist_err_memory(err, NULL);
    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        status = fill_table(&model->tables[i], sorted + runs[i].begin, runs[i].n, err);
        model->n_tables += status == MIST_OK;
    }
    free(sorted);
    free(runs);
    return status;
}

void mist_cost_link_fini(struct mist_cost_model *model)
{
    for (int32_t i = 0; i < model->n_tables; i++)
        free(model->tables[i].points);
    free(model->tables);
}

/* ----------------------------------------------------------------------------- prices */

/*
 * Outside of the sizes, from the nearest one on by what is declared; false: nothing is, or
 * the sizes contain this one. Below them a time goes in proportion to what is declared.
 * Above them that grows by as much as it was off at the largest size, but for the part of
 * it that is latency there: short messages say nothing of rates.
 */
static bool price_outside(const struct mist_cluster *cluster,
                          const struct mist_link_table *table, int64_t bytes,
                          struct mist_cost *out)
{
    bool is_below = bytes < table->points[0].bytes;
    const struct mist_link_point *end =
        &table->points[is_below ? 0 : table->n_points - 1];
    struct mist_cost least = {0}, there = {0}, here = {0};

    if ((!is_below && bytes <= end->bytes) ||
        !mist_cost_declared(cluster, table->operation, table->shape, 1, false, &least) ||
        !mist_cost_declared(cluster, table->operation, table->shape, end->bytes, false,
                            &there) ||
        !mist_cost_declared(cluster, table->operation, table->shape, bytes, false, &here))
        return false;
    double off = end->time_s / there.time_s;
    double moving_frac = 1 - least.time_s / there.time_s;
    double time_s =
        is_below ? off * here.time_s
                 : end->time_s + pow(off, moving_frac) * (here.time_s - there.time_s);
    double frac = hypot(end->deviation_s / end->time_s, fmax(table->residual_frac, 0));
    *out = (struct mist_cost){.time_s = time_s,
                              .deviation_s = frac * time_s,
                              .extrapolated_s = time_s,
                              .doubt_s = here.doubt_s / here.time_s * time_s};
    return true;
}

static void price(const struct mist_cluster *cluster, const struct mist_link_table *table,
                  int64_t bytes, struct mist_cost *out)
{
    const struct mist_link_point *p = table->points;
    int32_t n = table->n_points, i = 0;

    if (price_outside(cluster, table, bytes, out))
        return;
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
    double near = fmin(fmax(share, 0), 1); /* weight of the second point */
    out->deviation_s = hypot((1 - near) * p[i].deviation_s, near * p[i + 1].deviation_s);
    if (bytes < p[0].bytes) /* a line may pass below zero: no faster than in proportion */
        out->time_s = fmax(out->time_s, p[0].time_s * (double)bytes / (double)p[0].bytes);
    if (bytes > p[n - 1].bytes) /* nor one that falls: no faster than less */
        out->time_s = fmax(out->time_s, p[n - 1].time_s);
    double frac = fmax(table->residual_frac, 0);
    if (bytes < p[0].bytes || bytes > p[n - 1].bytes)
        out->extrapolated_s = out->time_s;
    else
        frac = interpolation_frac(table, &p[i], &p[i + 1]);
    if (bytes != p[i].bytes && bytes != p[i + 1].bytes)
        out->deviation_s = hypot(out->deviation_s, frac * out->time_s);
}

/* others: room for all points but one. */
static struct mist_link_fit fit_without(const struct mist_cluster *cluster,
                                        const struct mist_link_table *table, int32_t i,
                                        struct mist_link_point *others)
{
    const struct mist_link_point *point = &table->points[i];
    struct mist_link_table rest = *table;
    struct mist_cost cost;

    rest.points = others;
    rest.n_points = table->n_points - 1;
    memcpy(others, table->points, (size_t)i * sizeof *others);
    memcpy(others + i, point + 1, (size_t)(rest.n_points - i) * sizeof *others);
    rest.residual_frac = leave_one_out(&rest);
    price(cluster, &rest, point->bytes, &cost);
    return (struct mist_link_fit){.operation = table->operation,
                                  .group = table->shape,
                                  .bytes = point->bytes,
                                  .measured_s = point->time_s,
                                  .fitted_s = cost.time_s};
}

enum mist_status mist_cost_link_fits(const struct mist_cost_model *model,
                                     struct mist_link_fit **out, size_t *n,
                                     struct mist_err *err)
{
    size_t n_all = model->traces->n_links + 1;
    struct mist_link_point *others = malloc(n_all * sizeof *others);

    *n = 0;
    *out = malloc(n_all * sizeof **out);
    for (int32_t t = 0; t < model->n_tables && others && *out; t++)
        for (int32_t i = 0; i < model->tables[t].n_points; i++)
            if (model->tables[t].n_points > 2)
                (*out)[(*n)++] =
                    fit_without(&model->traces->cluster, &model->tables[t], i, others);
    bool has_all = others && *out;
    free(others);
    if (has_all)
        return MIST_OK;
    free(*out);
    *out = NULL;
    return mist_err_memory(err, NULL);
}

static bool is_copy(enum mist_link_operation operation)
{
    return operation == MIST_LINK_HOST_TO_DEVICE || operation == MIST_LINK_DEVICE_TO_HOST;
}

/*
 * The table of exactly this shape, or the nearest number of ranks of the same operation.
 * A collective of one rank says nothing of others.
 */
static const struct mist_link_table *find_table(const struct mist_cost_model *model,
                                                enum mist_link_operation operation,
                                                struct mist_group_shape group)
{
    const struct mist_link_table *best = NULL;
    double best_distance = INFINITY;

    for (int32_t i = 0; i < model->n_tables; i++) {
        const struct mist_link_table *table = &model->tables[i];
        struct mist_group_shape its = table->shape;
        if (table->operation != operation ||
            (!is_copy(operation) && its.nodes * its.ranks_per_node == 1))
            continue;
        double distance =
            fabs(log((double)(its.nodes * its.ranks_per_node) /
                     (group.nodes * group.ranks_per_node))) +
            8 * ((its.nodes > 1) != (group.nodes > 1)) +
            2 * fabs(log((double)its.nodes / group.nodes)) +
            fabs(log((double)its.concurrent_groups / group.concurrent_groups));
        if (distance < best_distance) {
            best = table;
            best_distance = distance;
        }
    }
    return best;
}

/* Volume that a rank moves in a ring of n, relative to the message. */
static double ring_volume(enum mist_link_operation operation, int n)
{
    return is_copy(operation) || operation == MIST_LINK_SEND_RECV ? 1
                                                                  : (double)(n - 1) / n;
}

/* Steps from rank to rank, one after the other: around the ring, or, of an all-reduce
 * between many nodes, up and down a tree of them. */
static double n_steps(enum mist_link_operation operation, struct mist_group_shape group)
{
    double n_ring = group.nodes * group.ranks_per_node - 1;

    if (operation == MIST_LINK_SEND_RECV)
        return 1;
    return operation == MIST_LINK_ALL_REDUCE
               ? 2 * fmin(n_ring, group.ranks_per_node - 1 + ceil(log2(group.nodes)))
               : n_ring;
}

/* Time of a table's shortest message that does not go with its bytes. */
static double latency_s(const struct mist_link_table *table)
{
    const struct mist_link_point *p = table->points;

    if (table->n_points == 1)
        return 0;
    return fmin(p[0].time_s,
                fmax(0, p[0].time_s - (double)p[0].bytes * (p[1].time_s - p[0].time_s) /
                                          (double)(p[1].bytes - p[0].bytes)));
}

/* Makes a price that of what is declared to take "to", where its own is declared to take
 * from_s: in proportion, and as doubtful as what is declared. */
static void scale_to(const struct mist_cost *to, double from_s, struct mist_cost *cost)
{
    mist_cost_scale(cost, to->time_s / from_s);
    cost->doubt_s = to->doubt_s / to->time_s * cost->time_s;
}

/* Makes the price of a table's group that of another, by what is declared of their ways;
 * false: nothing is. */
static bool scale_as_declared(const struct mist_cluster *cluster,
                              const struct mist_link_table *table,
                              struct mist_group_shape group, int64_t bytes,
                              struct mist_cost *cost)
{
    struct mist_cost to = {0}, from = {0};

    if (!mist_cost_declared(cluster, table->operation, group, bytes, false, &to) ||
        !mist_cost_declared(cluster, table->operation, table->shape, bytes, false, &from))
        return false;
    scale_to(&to, from.time_s, cost);
    return true;
}

/* How many times as many share what groups share. Between nodes that are groups, as one alone
 * has all adapters of its nodes. Within a node each device brings its own link: groups of
 * two share no more than one of eight does, as no more devices send. */
static double sharing_ratio(struct mist_group_shape group, struct mist_group_shape by)
{
    double groups = (double)group.concurrent_groups / by.concurrent_groups;
    double devices = groups * group.ranks_per_node / by.ranks_per_node;

    if (group.nodes > 1 || by.nodes > 1)
        return groups;
    return groups > 1 ? fmin(groups, fmax(devices, 1)) : fmax(groups, fmin(devices, 1));
}

/* The same by what a ring does. time_s: what the table says of the message. */
static double ring_ratio(const struct mist_link_table *table,
                         struct mist_group_shape group, double time_s)
{
    struct mist_group_shape by = table->shape;
    double waiting_frac = fmin(1, latency_s(table) / time_s);
    double waiting = n_steps(table->operation, group) / n_steps(table->operation, by);
    double moving = ring_volume(table->operation, group.nodes * group.ranks_per_node) /
                    ring_volume(table->operation, by.nodes * by.ranks_per_node);

    return (waiting_frac * waiting + (1 - waiting_frac) * moving) *
           sharing_ratio(group, by);
}

/* What a message of a group costs by a table of the same operation. */
static void price_by(const struct mist_cost_model *model,
                     const struct mist_link_table *table, struct mist_group_shape group,
                     int64_t bytes, struct mist_cost *out)
{
    price(&model->traces->cluster, table, bytes, out);
    if (is_copy(table->operation) || memcmp(&group, &table->shape, sizeof group) == 0)
        return;
    if (!scale_as_declared(&model->traces->cluster, table, group, bytes, out))
        mist_cost_scale(out, ring_ratio(table, group, out->time_s));
    out->extrapolated_s = out->borrowed_s = out->time_s;
}

/* Ways to put an operation together from one or two others. */
struct derivation {
    enum mist_link_operation of, first, second;
    bool has_second;
    double factor;
};

static const struct derivation derivations[] = {
    {MIST_LINK_ALL_REDUCE, MIST_LINK_REDUCE_SCATTER, MIST_LINK_ALL_GATHER, true, 1},
    {MIST_LINK_ALL_REDUCE, MIST_LINK_REDUCE_SCATTER, MIST_LINK_REDUCE_SCATTER, false, 2},
    {MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER, MIST_LINK_ALL_GATHER, false, 2},
    {MIST_LINK_REDUCE_SCATTER, MIST_LINK_ALL_GATHER, MIST_LINK_ALL_GATHER, false, 1},
    {MIST_LINK_REDUCE_SCATTER, MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_REDUCE, false, 0.5},
    {MIST_LINK_ALL_GATHER, MIST_LINK_REDUCE_SCATTER, MIST_LINK_REDUCE_SCATTER, false, 1},
    {MIST_LINK_ALL_GATHER, MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_REDUCE, false, 0.5},
    {MIST_LINK_HOST_TO_DEVICE, MIST_LINK_DEVICE_TO_HOST, MIST_LINK_DEVICE_TO_HOST, false,
     1},
    {MIST_LINK_DEVICE_TO_HOST, MIST_LINK_HOST_TO_DEVICE, MIST_LINK_HOST_TO_DEVICE, false,
     1},
};

/* Whether a table was measured on the kind of way that a group of so many nodes takes. */
static bool is_same_way(const struct mist_link_table *table, int nodes)
{
    return is_copy(table->operation) || (table->shape.nodes > 1) == (nodes > 1);
}

/* Nothing says what a message costs: what to measure or to declare. */
static enum mist_status refuse(const struct mist_cost_model *model,
                               enum mist_link_operation operation, int nodes, int n_ranks,
                               struct mist_err *err)
{
    const struct mist_cluster *cluster = &model->traces->cluster;
    const char *key = is_copy(operation) ? "host" : nodes > 1 ? "node" : "device";
    const char *option = is_copy(operation) ? "pcie=25GB/s"
                         : nodes > 1        ? "nic=8x400Gb/s"
                                            : "link=300GB/s";

    if (!model->traces->folder && cluster->backend == MIST_TRACE_DATASHEET)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "cluster %s: nothing says how fast %s is%s; declare it behind "
            "the name: --cluster %s:%dx%d,%s",
            cluster->name, mist_link_operation_words[operation],
            nodes > 1 ? " between nodes" : "", cluster->name, cluster->nodes,
            cluster->devices_per_node, option);
    return mist_err_set(err, MIST_ERR_INPUT,
                        "cluster %s: the trace set has no %s in links.csv; measure it "
                        "with mist-profile on %d rank%s, or declare it as "
                        "\"declared\": {\"%s\": ..} in cluster.json",
                        cluster->name, mist_link_operation_words[operation], n_ranks,
                        n_ranks == 1 ? "" : "s", key);
}

/*
 * What the operation costs by what others of one derivation cost the group, in proportion
 * to what is declared of both, or, without that, by its factor. others_s: what is declared
 * of the others.
 */
static void turn_into(const struct mist_cost_model *model,
                      enum mist_link_operation operation, struct mist_group_shape group,
                      int64_t bytes, double factor, double others_s,
                      struct mist_cost *cost)
{
    struct mist_cost declared = {0};

    if (others_s > 0 && mist_cost_declared(&model->traces->cluster, operation, group,
                                           bytes, false, &declared))
        scale_to(&declared, others_s, cost);
    else
        mist_cost_scale(cost, factor);
    cost->extrapolated_s = cost->borrowed_s = cost->time_s;
}

/* Whether rows of one operation say nothing of the other, as a switch of the node makes one
 * of them, which sums, but not the other. */
static bool is_apart(const struct mist_cluster *cluster, struct mist_group_shape group,
                     enum mist_link_operation a, enum mist_link_operation b)
{
    return cluster->declared.switch_bytes_per_s > 0 && group.nodes == 1 &&
           (a == MIST_LINK_ALL_REDUCE) != (b == MIST_LINK_ALL_REDUCE);
}

/* False: nothing was measured that the operation could be derived from, or, on_way: nothing
 * on the same kind of way. */
static bool derive(const struct mist_cost_model *model,
                   enum mist_link_operation operation, struct mist_group_shape group,
                   int64_t bytes, bool on_way, struct mist_cost *out)
{
    const struct mist_cluster *cluster = &model->traces->cluster;

    for (size_t i = 0; i < sizeof derivations / sizeof *derivations; i++) {
        const struct derivation *from = &derivations[i];
        const struct mist_link_table *tables[2];
        double others_s = 0;
        if (from->of != operation ||
            (on_way && is_apart(cluster, group, operation, from->first)))
            continue;
        for (int k = 0; k < 2; k++)
            tables[k] = find_table(model, k ? from->second : from->first, group);
        if (!tables[0] || !tables[1] ||
            (on_way && !(is_same_way(tables[0], group.nodes) &&
                         is_same_way(tables[1], group.nodes))))
            continue;
        *out = (struct mist_cost){0};
        for (int k = 0; k < 1 + from->has_second; k++) {
            struct mist_cost cost, declared = {0};
            price_by(model, tables[k], group, bytes, &cost);
            mist_cost_add(out, &cost);
            if (mist_cost_declared(cluster, tables[k]->operation, group, bytes, false,
                                   &declared))
                others_s += declared.time_s;
        }
        turn_into(model, operation, group, bytes, from->factor, others_s, out);
        return true;
    }
    return false;
}

static enum mist_status price_link(const struct mist_cost_model *model,
                                   enum mist_link_operation operation,
                                   struct mist_group_shape group, int64_t bytes,
                                   bool in_rings, struct mist_cost *out,
                                   struct mist_err *err)
{
    int n_ranks = group.nodes * group.ranks_per_node;
    const struct mist_link_table *table = find_table(model, operation, group);

    *out = (struct mist_cost){0};
    if (bytes == 0 || (n_ranks == 1 && !is_copy(operation)))
        return MIST_OK;
    if (!(table && is_same_way(table, group.nodes)) &&
        (derive(model, operation, group, bytes, true, out) ||
         mist_cost_declared(&model->traces->cluster, operation, group, bytes, in_rings,
                            out)))
        return MIST_OK;
    if (table)
        price_by(model, table, group, bytes, out);
    else if (!derive(model, operation, group, bytes, false, out))
        return refuse(model, operation, group.nodes, n_ranks, err);
    return MIST_OK;
}

enum mist_status mist_cost_link(const struct mist_cost_model *model,
                                enum mist_link_operation operation,
                                struct mist_group_shape group, int64_t bytes,
                                struct mist_cost *out, struct mist_err *err)
{
    return price_link(model, operation, group, bytes, false, out, err);
}

enum mist_status mist_cost_link_in_rings(const struct mist_cost_model *model,
                                         enum mist_link_operation operation,
                                         struct mist_group_shape group, int64_t bytes,
                                         struct mist_cost *out, struct mist_err *err)
{
    return price_link(model, operation, group, bytes, true, out, err);
}

bool mist_cost_model_prices_copies(const struct mist_cost_model *model)
{
    struct mist_cost cost;

    return mist_cost_link(model, MIST_LINK_HOST_TO_DEVICE,
                          (struct mist_group_shape){1, 1, 1}, 1, &cost, NULL) == MIST_OK;
}
