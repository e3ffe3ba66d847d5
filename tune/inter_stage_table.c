/* The dynamic programme over (stage, layers placed, devices used).
 * See inter_stage_table.h. */
#include "tune/inter_stage_table.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CELLS ((int64_t)1 << 31)

/* Sums of t are taken in another order in rest_s than in cost_s;
 * this covers the difference. */
#define ROUNDING 1e-12

struct keyed_option {
    int32_t n_layers, n_devices, i_option;
    double t_s, d_s;
};

static int compare_options(const void *a, const void *b)
{
    const struct keyed_option *p = a, *q = b;
    int order = (p->n_layers > q->n_layers) - (p->n_layers < q->n_layers);
    order = order ? order : (p->n_devices > q->n_devices) - (p->n_devices < q->n_devices);
    order = order ? order : (p->t_s > q->t_s) - (p->t_s < q->t_s);
    order = order ? order : (p->d_s > q->d_s) - (p->d_s < q->d_s);
    return order ? order : (p->i_option > q->i_option) - (p->i_option < q->i_option);
}

static int compare_doubles(const void *a, const void *b)
{
    const double *p = a, *q = b;
    return (*p > *q) - (*p < *q);
}

static int32_t find_gcd(int32_t a, int32_t b)
{
    while (b != 0) {
        int32_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/*
 * The largest count that divides every stage's and the budget's: makes the table smaller.
 */
static int32_t find_device_unit(const struct mist_inter_stage_problem *problem)
{
    int32_t unit = problem->n_devices;
    for (int32_t i = 0; i < problem->n_stages; i++)
        for (size_t o = 0; o < problem->n_options[i]; o++)
            unit = find_gcd(unit, problem->options[i][o].n_devices);
    return unit > 0 ? unit : 1;
}

/* Copies stage i's options that fit L and D into keyed, sorted; returns how many. */
static size_t sort_options(const struct mist_inter_stage_problem *problem, int32_t i,
                           int32_t device_unit, struct keyed_option *keyed)
{
    size_t n = 0;
    int32_t budget = problem->n_devices;
    for (size_t o = 0; o < problem->n_options[i]; o++) {
        const struct mist_stage_option *option = &problem->options[i][o];
        if (option->n_layers > problem->n_layers ||
            (budget >= 0 && option->n_devices > budget))
            continue;
        keyed[n++] = (struct keyed_option){
            option->n_layers, budget < 0 ? 0 : option->n_devices / device_unit,
            (int32_t)o, option->t_s, option->d_s};
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
                      group->n_devices != keyed[o].n_devices;
        if (is_new) {
            group = &table->groups[n_groups++];
            *group = (struct mist_stage_group){keyed[o].n_layers, keyed[o].n_devices, at,
                                               0, 0};
        } else if (keyed[o].d_s >= table->d_s[at - 1]) {
            continue;
        }
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

struct range {
    int64_t low, high;
};

/* What one option of stage i places (or, devices true, uses). */
static struct range find_stage_range(const struct mist_stage_table *table, int32_t i,
                                     bool devices)
{
    struct range range = {INT32_MAX, -1};
    for (size_t g = table->group_first[i]; g < table->group_first[i + 1]; g++) {
        const struct mist_stage_group *group = &table->groups[g];
        int32_t value = devices ? group->n_devices : group->n_layers;
        range.low = value < range.low ? value : range.low;
        range.high = value > range.high ? value : range.high;
    }
    return range;
}

/*
 * After i stages the sum lies within what the stages so far can place, and leaves what
 * the others can place of total. low > high where nothing fits. Every stage has a group.
 */
static void set_window(const struct mist_stage_table *table, bool devices, int32_t total,
                       int32_t *low, int32_t *high)
{
    struct range sum = {0, 0};
    for (int32_t i = 0; i <= table->n_stages; i++) {
        low[i] = (int32_t)(sum.low < total ? sum.low : total);
        high[i] = (int32_t)(sum.high < total ? sum.high : total);
        if (sum.low > total)
            high[i] = low[i] - 1;
        if (i == table->n_stages)
            break;
        struct range range = find_stage_range(table, i, devices);
        sum = (struct range){sum.low + range.low, sum.high + range.high};
    }
    sum = (struct range){0, 0};
    for (int32_t i = table->n_stages; i >= 0; i--) {
        int64_t least = total - sum.high, most = total - sum.low;
        low[i] = (int32_t)(low[i] < least ? least : low[i]);
        high[i] = (int32_t)(high[i] > most ? (most < -1 ? -1 : most) : high[i]);
        if (i == 0)
            break;
        struct range range = find_stage_range(table, i - 1, devices);
        sum = (struct range){sum.low + range.low, sum.high + range.high};
    }
}

/* rest_s, from the last stage back: least sum of t, whatever d. */
static void fill_rest(struct mist_stage_table *table)
{
    int32_t n_stages = table->n_stages;
    size_t n_all = ((size_t)n_stages + 1) * table->n_cells;
    for (size_t cell = 0; cell < n_all; cell++)
        table->rest_s[cell] = INFINITY;
    table->rest_s[mist_stage_table_cell(table, n_stages, table->n_layers,
                                        table->n_devices)] = 0;
    for (int32_t i = n_stages - 1; i >= 0; i--) {
        for (size_t g = table->group_first[i]; g < table->group_first[i + 1]; g++) {
            const struct mist_stage_group *group = &table->groups[g];
            double t_s = table->t_s[group->first];
            for (int32_t dev = 0; dev + group->n_devices <= table->n_devices; dev++) {
                double *to = table->rest_s + mist_stage_table_cell(table, i, 0, dev);
                const double *from =
                    table->rest_s + mist_stage_table_cell(table, i + 1, group->n_layers,
                                                          dev + group->n_devices);
                for (int32_t l = 0; l + group->n_layers <= table->n_layers; l++)
                    to[l] = t_s + from[l] < to[l] ? t_s + from[l] : to[l];
            }
        }
    }
}

/* tau_s: the different t of all points. */
static void sort_tau(struct mist_stage_table *table)
{
    memcpy(table->tau_s, table->t_s, table->n_points * sizeof *table->tau_s);
    qsort(table->tau_s, table->n_points, sizeof *table->tau_s, compare_doubles);
    table->n_tau = 0;
    for (size_t i = 0; i < table->n_points; i++)
        if (i == 0 || table->tau_s[i] > table->tau_s[table->n_tau - 1])
            table->tau_s[table->n_tau++] = table->tau_s[i];
}

/* Allocates everything but cost_s and rest_s, for n_options options in all. */
static bool alloc_options(struct mist_stage_table *table, size_t n_options)
{
    struct mist_arena *arena = &table->arena;
    size_t n_ends = (size_t)table->n_stages + 1, n = n_options ? n_options : 1;
    table->groups = mist_arena_alloc(arena, n * sizeof *table->groups);
    table->group_first = mist_arena_alloc(arena, n_ends * sizeof *table->group_first);
    table->t_s = mist_arena_alloc(arena, n * sizeof *table->t_s);
    table->d_s = mist_arena_alloc(arena, n * sizeof *table->d_s);
    table->lead_s = mist_arena_alloc(arena, n * sizeof *table->lead_s);
    table->i_option = mist_arena_alloc(arena, n * sizeof *table->i_option);
    table->tau_s = mist_arena_alloc(arena, n * sizeof *table->tau_s);
    table->layers_low = mist_arena_alloc(arena, n_ends * sizeof *table->layers_low);
    table->layers_high = mist_arena_alloc(arena, n_ends * sizeof *table->layers_high);
    table->devices_low = mist_arena_alloc(arena, n_ends * sizeof *table->devices_low);
    table->devices_high = mist_arena_alloc(arena, n_ends * sizeof *table->devices_high);
    return table->groups && table->group_first && table->t_s && table->d_s &&
           table->lead_s && table->i_option && table->tau_s && table->layers_low &&
           table->layers_high && table->devices_low && table->devices_high;
}

static enum mist_status alloc_cells(struct mist_stage_table *table, struct mist_err *err)
{
    int64_t n_cells, n_all;
    if (!mist_size_mul((int64_t)table->n_layers + 1, (int64_t)table->n_devices + 1,
                       &n_cells) ||
        !mist_size_mul((int64_t)table->n_stages + 1, n_cells, &n_all) ||
        n_all > MAX_CELLS)
        return mist_err_set(
            err, MIST_ERR_RANGE,
            "%d stages x %d layers x %d device units: table over 2^31 cells",
            table->n_stages, table->n_layers, table->n_devices);
    table->n_cells = (size_t)n_cells;
    table->cost_s = mist_arena_alloc(&table->arena, (size_t)n_all * sizeof(double));
    table->rest_s = mist_arena_alloc(&table->arena, (size_t)n_all * sizeof(double));
    if (!table->cost_s || !table->rest_s)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %lld table cells",
                            (long long)n_all);
    return MIST_OK;
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
    if (!keyed || !alloc_options(table, n_options)) {
        free(keyed);
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for %zu stage options",
                            n_options);
    }
    int32_t device_unit = problem->n_devices < 0 ? 1 : find_device_unit(problem);
    table->n_devices = problem->n_devices < 0 ? 0 : problem->n_devices / device_unit;
    enum mist_status status = MIST_OK;
    for (int32_t i = 0; i < problem->n_stages && status == MIST_OK; i++) {
        add_stage(table, i, keyed, sort_options(problem, i, device_unit, keyed));
        if (table->group_first[i + 1] == table->group_first[i])
            status =
                mist_err_set(err, MIST_ERR_NO_PLAN,
                             "stage %d has no option that fits %d layers and the devices",
                             i, problem->n_layers);
    }
    free(keyed);
    return status;
}

enum mist_status mist_stage_table_init(struct mist_stage_table *table,
                                       const struct mist_inter_stage_problem *problem,
                                       struct mist_err *err)
{
    *table =
        (struct mist_stage_table){.n_stages = problem->n_stages,
                                  .n_layers = problem->n_layers,
                                  .weight_t = (double)(problem->n_micro_batches - 1)};
    mist_arena_init(&table->arena);
    enum mist_status status = load_options(table, problem, err);
    if (status == MIST_OK)
        status = alloc_cells(table, err);
    if (status != MIST_OK) {
        mist_stage_table_fini(table);
        return status;
    }
    set_window(table, false, table->n_layers, table->layers_low, table->layers_high);
    set_window(table, true, table->n_devices, table->devices_low, table->devices_high);
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
    int32_t low = 0, high = group->n_points;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (t_s[mid] <= tau_s)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
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

/* Extends all prefixes of stage i (0-based) by one group. */
static void extend_group(struct mist_stage_table *table, int32_t i,
                         const struct mist_stage_group *group, double from_least_s)
{
    int32_t low = table->layers_low[i], high = table->layers_high[i], n = group->n_layers;
    low = low + n < table->layers_low[i + 1] ? table->layers_low[i + 1] - n : low;
    high = high + n > table->layers_high[i + 1] ? table->layers_high[i + 1] - n : high;
    if (low > high)
        return;
    for (int32_t dev = table->devices_low[i]; dev <= table->devices_high[i]; dev++) {
        int32_t dev_to = dev + group->n_devices;
        if (dev_to < table->devices_low[i + 1] || dev_to > table->devices_high[i + 1])
            continue;
        extend_row(table, group,
                   table->cost_s + mist_stage_table_cell(table, i, low, dev),
                   table->cost_s + mist_stage_table_cell(table, i + 1, low + n, dev_to),
                   high - low + 1, from_least_s);
    }
}

/* Drops prefixes of i stages that can't end at or below limit;
 * returns the least cost left. */
static double prune_stage(struct mist_stage_table *table, int32_t i, double limit_s)
{
    double least_s = INFINITY;
    for (int32_t dev = table->devices_low[i]; dev <= table->devices_high[i]; dev++) {
        size_t row = mist_stage_table_cell(table, i, 0, dev);
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
    size_t last =
        mist_stage_table_cell(table, n_stages, table->n_layers, table->n_devices);
    double limit = limit_s + fabs(limit_s) * ROUNDING;
    for (size_t cell = 0; cell < ((size_t)n_stages + 1) * table->n_cells; cell++)
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
        for (size_t g = table->group_first[i]; g < table->group_first[i + 1]; g++)
            if (table->groups[g].n_usable > 0)
                extend_group(table, i, &table->groups[g], least_s);
    }
    prune_stage(table, n_stages, limit);
    return table->cost_s[last];
}
