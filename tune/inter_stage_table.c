/* The dynamic programme over (stage, layers placed, sums of rows).
 * See inter_stage_table.h. */
#include "tune/inter_stage_table.h"

#include "core/memory.h"
#include "core/order.h"
#include "core/statistics.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CELLS     INT32_MAX
#define MAX_ROW_CELLS ((int32_t)1 << 22) /* with side constraints */

/* Sums of t are taken in another order in rest_s than in cost_s;
 * this covers the difference. */
#define ROUNDING 1e-12

struct keyed_option {
    int32_t n_layers, i_class, i_option;
    double t_s, d_s;
};

MIST_COMPARATOR(compare_options, struct keyed_option, n_layers, i_class, t_s, d_s,
                i_option)

/* Copies stage i's options that fit L and may be chosen into keyed, sorted; returns how
 * many. i_class: of its options; -1: may not. */
static size_t sort_options(const struct mist_inter_stage_problem *problem, int32_t i,
                           const int32_t *i_class, struct keyed_option *keyed)
{
    size_t n = 0;
    for (size_t o = 0; o < problem->n_options[i]; o++) {
        const struct mist_stage_option *option = &problem->options[i][o];
        if (option->n_layers <= problem->n_layers && i_class[o] >= 0)
            keyed[n++] = (struct keyed_option){option->n_layers, i_class[o], (int32_t)o,
                                               option->t_s, option->d_s};
    }
    if (n > 0)
        qsort(keyed, n, sizeof *keyed, compare_options);
    return n;
}

/* Appends the non-dominated ones of sorted options to the table as stage i's groups. */
static void add_stage(struct mist_stage_table *table, int32_t i,
                      const struct keyed_option *keyed, size_t n)
{
    size_t n_groups = table->group_first[i];
    struct mist_stage_group *group = NULL;
    for (size_t o = 0; o < n; o++) {
        size_t at = table->n_points;
        bool is_new = !group || group->n_layers != keyed[o].n_layers ||
                      group->i_class != keyed[o].i_class;
        if (is_new) {
            group = &table->groups[n_groups++];
            *group =
                (struct mist_stage_group){keyed[o].n_layers, keyed[o].i_class, at, 0, 0};
        }
        table->i_group[i][keyed[o].i_option] = (int32_t)(n_groups - 1);
        if (!is_new && keyed[o].d_s >= table->d_s[at - 1])
            continue;
        double lead = keyed[o].t_s + keyed[o].d_s;
        table->t_s[at] = keyed[o].t_s;
        table->d_s[at] = keyed[o].d_s;
        table->lead_s[at] =
            !is_new && table->lead_s[at - 1] < lead ? table->lead_s[at - 1] : lead;
        table->i_option[at] = keyed[o].i_option;
        group->n_points++;
        table->n_points++;
    }
    table->group_first[i + 1] = n_groups;
}

/*
 * After i stages the layers lie within what the stages so far can place, and leave what the
 * others can place of all. low > high where nothing fits. Every stage has a group.
 */
static void set_window(const struct mist_stage_table *table, int32_t *low, int32_t *high)
{
    int64_t least = 0, most = 0, total = table->n_layers;
    for (int32_t i = 0; i <= table->n_stages; i++) {
        low[i] = (int32_t)(least < total ? least : total);
        high[i] = (int32_t)(most < total ? most : total);
        if (least > total)
            high[i] = low[i] - 1;
        if (i == table->n_stages)
            break;
        /* groups of a stage are sorted by layers */
        least += table->groups[table->group_first[i]].n_layers;
        most += table->groups[table->group_first[i + 1] - 1].n_layers;
    }
    least = most = total; /* before the stages left */
    for (int32_t i = table->n_stages; i >= 0; i--) {
        low[i] = (int32_t)(low[i] < least ? least : low[i]);
        high[i] = (int32_t)(high[i] > most ? (most < -1 ? -1 : most) : high[i]);
        if (i == 0)
            break;
        least -= table->groups[table->group_first[i] - 1].n_layers;
        most -= table->groups[table->group_first[i - 1]].n_layers;
    }
}

/* rest_s, from the last stage back: least sum of t, whatever d. */
static void fill_rest(struct mist_stage_table *table)
{
    size_t last = table->state_first[table->n_stages];
    for (size_t cell = 0; cell < table->n_cells; cell++)
        table->rest_s[cell] = INFINITY;
    table->rest_s[mist_stage_table_cell(table, last, table->n_layers)] = 0;
    for (size_t state = last; state > 0; state--)
        for (size_t e = table->edge_first[state]; e < table->edge_first[state + 1]; e++) {
            const struct mist_stage_edge *edge = &table->edges[e];
            const struct mist_stage_group *group = &table->groups[edge->i_group];
            double t_s = table->t_s[group->first];
            double *to = table->rest_s + mist_stage_table_cell(table, edge->from, 0);
            const double *from =
                table->rest_s + mist_stage_table_cell(table, state, group->n_layers);
            for (int32_t l = 0; l + group->n_layers <= table->n_layers; l++)
                to[l] = t_s + from[l] < to[l] ? t_s + from[l] : to[l];
        }
}

/* tau_s: the different t of all points. */
static void sort_tau(struct mist_stage_table *table)
{
    memcpy(table->tau_s, table->t_s, table->n_points * sizeof *table->tau_s);
    mist_sort_doubles(table->tau_s, table->n_points);
    table->n_tau = 0;
    for (size_t i = 0; i < table->n_points; i++)
        if (i == 0 || table->tau_s[i] > table->tau_s[table->n_tau - 1])
            table->tau_s[table->n_tau++] = table->tau_s[i];
}

/* Allocates what there is one of for every option or stage. */
static bool alloc_options(struct mist_stage_table *table,
                          const struct mist_inter_stage_problem *problem,
                          size_t n_options)
{
    struct mist_arena *arena = &table->arena;
    size_t n_stages = (size_t)table->n_stages, n = n_options ? n_options : 1;
    int32_t *i_group;

    if (!MIST_ARENA_ALLOC(arena, table->groups, n) ||
        !MIST_ARENA_ALLOC(arena, table->group_first, n_stages + 1) ||
        !MIST_ARENA_ALLOC(arena, table->i_group, n_stages) ||
        !MIST_ARENA_ALLOC(arena, i_group, n) || !MIST_ARENA_ALLOC(arena, table->t_s, n) ||
        !MIST_ARENA_ALLOC(arena, table->d_s, n) ||
        !MIST_ARENA_ALLOC(arena, table->lead_s, n) ||
        !MIST_ARENA_ALLOC(arena, table->i_option, n) ||
        !MIST_ARENA_ALLOC(arena, table->tau_s, n) ||
        !MIST_ARENA_ALLOC(arena, table->layers_low, n_stages + 1) ||
        !MIST_ARENA_ALLOC(arena, table->layers_high, n_stages + 1) ||
        !MIST_ARENA_ALLOC(arena, table->state_first, n_stages + 2))
        return false;
    for (size_t i = 0; i < n_stages; i++) {
        table->i_group[i] = i_group;
        i_group += problem->n_options[i];
    }
    return true;
}

/* Fills groups and points from the problem. */
static enum mist_status load_options(struct mist_stage_table *table,
                                     const struct mist_inter_stage_problem *problem,
                                     struct mist_err *err)
{
    size_t n_options = 0, n_widest = 1;
    for (int32_t i = 0; i < problem->n_stages; i++) {
        n_options += problem->n_options[i];
        n_widest = problem->n_options[i] > n_widest ? problem->n_options[i] : n_widest;
    }
    struct keyed_option *keyed = malloc(n_widest * sizeof *keyed);
    int32_t *i_class = malloc(n_widest * sizeof *i_class);
    enum mist_status status =
        keyed && i_class && alloc_options(table, problem, n_options)
            ? mist_stage_rows_init(&table->rows, problem, &table->arena, err)
            : mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu stage options",
                           n_options);
    for (int32_t i = 0; i < problem->n_stages && status == MIST_OK; i++) {
        status = mist_stage_rows_classify(&table->rows, i, i_class, err);
        if (status != MIST_OK)
            break;
        add_stage(table, i, keyed, sort_options(problem, i, i_class, keyed));
        if (table->group_first[i + 1] == table->group_first[i])
            status = mist_err_set(
                err, MIST_ERR_NO_PLAN,
                "stage %d has no option that fits %d layers, the devices and constraints",
                i, problem->n_layers);
    }
    free(keyed);
    free(i_class);
    return status;
}

/* Edges into the states after stage i. fills: false counts them only, into edge_first of the
 * next state; true puts each at edge_first of its state, which moves on. */
static void add_edges(struct mist_stage_table *table, int32_t i, bool fills)
{
    const int32_t *next = table->rows.next[i];
    int32_t n_states = table->rows.n_states[i], n_classes = table->rows.n_classes[i];
    for (size_t g = table->group_first[i]; g < table->group_first[i + 1]; g++)
        for (int32_t from = 0; from < n_states; from++) {
            int32_t to = next[from * n_classes + table->groups[g].i_class];
            size_t state = table->state_first[i + 1] + (size_t)to;
            if (to >= 0 && fills)
                table->edges[table->edge_first[state]++] =
                    (struct mist_stage_edge){g, table->state_first[i] + (size_t)from};
            else if (to >= 0)
                table->edge_first[state + 1]++;
        }
}

/* Numbers the states over all stages and lists the edges between them. */
static enum mist_status link_states(struct mist_stage_table *table, int64_t n_most,
                                    struct mist_err *err)
{
    struct mist_arena *arena = &table->arena;
    int32_t n_stages = table->n_stages;
    enum mist_status status = mist_stage_rows_link(&table->rows, n_most, err);
    if (status != MIST_OK)
        return status;
    for (int32_t i = 0; i <= n_stages; i++)
        table->state_first[i + 1] =
            table->state_first[i] + (size_t)table->rows.n_states[i];
    size_t n_states = table->state_first[n_stages + 1];
    table->edge_first = mist_arena_alloc(arena, (n_states + 2) * sizeof(size_t));
    if (!table->edge_first)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu states", n_states);
    for (int32_t i = 0; i < n_stages; i++)
        add_edges(table, i, false);
    for (size_t state = 0; state < n_states; state++)
        table->edge_first[state + 1] += table->edge_first[state];
    size_t n_edges = table->edge_first[n_states];
    if (!MIST_ARENA_ALLOC(arena, table->edges, n_edges + 1))
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu edges", n_edges);
    for (int32_t i = 0; i < n_stages; i++)
        add_edges(table, i, true);
    memmove(table->edge_first + 1, table->edge_first, n_states * sizeof(size_t));
    table->edge_first[0] = 0; /* each began where the one before has ended */
    return MIST_OK;
}

static enum mist_status alloc_cells(struct mist_stage_table *table, struct mist_err *err)
{
    size_t n_states = table->state_first[table->n_stages + 1];
    table->n_cells = n_states * ((size_t)table->n_layers + 1);
    if (!MIST_ARENA_ALLOC(&table->arena, table->cost_s, table->n_cells) ||
        !MIST_ARENA_ALLOC(&table->arena, table->rest_s, table->n_cells))
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu table cells",
                            table->n_cells);
    return MIST_OK;
}

enum mist_status mist_stage_table_init(struct mist_stage_table *table,
                                       const struct mist_inter_stage_problem *problem,
                                       struct mist_err *err)
{
    int64_t n_most = (problem->n_rows > 0 ? MAX_ROW_CELLS : MAX_CELLS) /
                     ((int64_t)problem->n_layers + 1);
    *table =
        (struct mist_stage_table){.n_stages = problem->n_stages,
                                  .n_layers = problem->n_layers,
                                  .weight_t = (double)(problem->n_micro_batches - 1)};
    mist_arena_init(&table->arena);
    enum mist_status status = load_options(table, problem, err);
    if (status == MIST_OK)
        status = link_states(table, n_most, err);
    if (status == MIST_OK)
        status = alloc_cells(table, err);
    if (status != MIST_OK) {
        mist_stage_table_fini(table);
        return status;
    }
    set_window(table, table->layers_low, table->layers_high);
    sort_tau(table);
    fill_rest(table);
    return MIST_OK;
}

void mist_stage_table_fini(struct mist_stage_table *table)
{
    mist_arena_fini(&table->arena);
    *table = (struct mist_stage_table){0};
}

/* ----------------------------------------------------------------- one bound on max t */

/*
 * Least cost from prefix c among the group's points; *hint is where the last search ended
 * and where this one starts, since neighbouring prefixes cost about the same.
 */
static inline double find_cost(const double *t_s, const double *d_s, const double *lead_s,
                               int32_t n_usable, double c_s, int32_t *hint)
{
    int32_t p = *hint; /* becomes the first point with d <= c */
    while (p > 0 && d_s[p - 1] <= c_s)
        p--;
    while (p < n_usable && d_s[p] > c_s)
        p++;
    *hint = p;
    double hidden = p < n_usable ? t_s[p] + c_s : INFINITY;
    double exposed = p > 0 ? lead_s[p - 1] : INFINITY;
    return hidden < exposed ? hidden : exposed;
}

double mist_stage_group_cost(const struct mist_stage_table *table,
                             const struct mist_stage_group *group, double c_s)
{
    int32_t hint = 0;
    if (c_s == INFINITY || group->n_usable == 0)
        return INFINITY;
    return find_cost(table->t_s + group->first, table->d_s + group->first,
                     table->lead_s + group->first, group->n_usable, c_s, &hint);
}

/* How many of the group's points have t <= tau. */
static int32_t count_usable(const struct mist_stage_table *table,
                            const struct mist_stage_group *group, double tau_s)
{
    const double *t_s = table->t_s + group->first;

    MIST_BISECT(n, 0, (size_t)group->n_points, i, t_s[i] <= tau_s);
    return (int32_t)n;
}

/* Extends prefixes from[0 .. n) by the group into to[0 .. n). */
static void extend_row(const struct mist_stage_table *table,
                       const struct mist_stage_group *group, const double *restrict from,
                       double *restrict to, int32_t n, double from_least_s)
{
    const double *t_s = table->t_s + group->first, *d_s = table->d_s + group->first;
    const double *lead_s = table->lead_s + group->first;
    /* Every d hidden by every prefix: the least t wins. */
    if (d_s[0] <= from_least_s) {
        double t_least_s = t_s[0];
        for (int32_t l = 0; l < n; l++) {
            double cost = t_least_s + from[l];
            to[l] = cost < to[l] ? cost : to[l];
        }
        return;
    }
    int32_t hint = 0;
    for (int32_t l = 0; l < n; l++) {
        if (from[l] == INFINITY)
            continue;
        double cost = find_cost(t_s, d_s, lead_s, group->n_usable, from[l], &hint);
        to[l] = cost < to[l] ? cost : to[l];
    }
}

/* Extends all prefixes of stage i (0-based) by one edge, to a state after it. */
static void extend_edge(struct mist_stage_table *table, int32_t i,
                        const struct mist_stage_edge *edge, size_t to,
                        double from_least_s)
{
    const struct mist_stage_group *group = &table->groups[edge->i_group];
    int32_t low = table->layers_low[i], high = table->layers_high[i], n = group->n_layers;
    low = low + n < table->layers_low[i + 1] ? table->layers_low[i + 1] - n : low;
    high = high + n > table->layers_high[i + 1] ? table->layers_high[i + 1] - n : high;
    if (low <= high && group->n_usable > 0)
        extend_row(table, group,
                   table->cost_s + mist_stage_table_cell(table, edge->from, low),
                   table->cost_s + mist_stage_table_cell(table, to, low + n),
                   high - low + 1, from_least_s);
}

/* Drops prefixes of i stages that can't end at or below limit;
 * returns the least cost left. */
static double prune_stage(struct mist_stage_table *table, int32_t i, double limit_s)
{
    double least_s = INFINITY;
    for (size_t state = table->state_first[i]; state < table->state_first[i + 1];
         state++) {
        size_t row = mist_stage_table_cell(table, state, 0);
        for (int32_t l = table->layers_low[i]; l <= table->layers_high[i]; l++) {
            double *cost_s = &table->cost_s[row + (size_t)l];
            if (*cost_s + table->rest_s[row + (size_t)l] > limit_s)
                *cost_s = INFINITY;
            least_s = *cost_s < least_s ? *cost_s : least_s;
        }
    }
    return least_s;
}

double mist_stage_table_fill(struct mist_stage_table *table, double tau_s, double limit_s)
{
    int32_t n_stages = table->n_stages;
    double limit = limit_s + fabs(limit_s) * ROUNDING;
    for (size_t cell = 0; cell < table->n_cells; cell++)
        table->cost_s[cell] = INFINITY;
    for (size_t g = 0; g < table->group_first[n_stages]; g++)
        table->groups[g].n_usable = count_usable(table, &table->groups[g], tau_s);
    if (table->rest_s[0] == INFINITY)
        return INFINITY;
    table->cost_s[0] = 0;
    for (int32_t i = 0; i < n_stages; i++) {
        double least_s = prune_stage(table, i, limit);
        if (least_s == INFINITY)
            return INFINITY;
        for (size_t to = table->state_first[i + 1]; to < table->state_first[i + 2]; to++)
            for (size_t e = table->edge_first[to]; e < table->edge_first[to + 1]; e++)
                extend_edge(table, i, &table->edges[e], to, least_s);
    }
    prune_stage(table, n_stages, limit);
    return table->cost_s[table->n_cells - 1];
}
