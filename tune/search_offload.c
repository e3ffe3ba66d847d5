/*
 * Offloading: the ratios that bring a configuration below the limit of memory. See
 * search.h, step 4.
 *
 * A configuration is worth a look if it is over the limit, would be on the frontier if it
 * were not, and fits with some of the four wholly offloaded. Then, of a coarse grid of
 * ratios, for every choice of the four the least that it offloads; more of the same is
 * only looked at where that is not turned away by the frontier. In the end finer and finer
 * steps around what is on the frontiers.
 */
#include "tune/search_filling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    REFINED = 24,    /* points of a frontier whose neighbours are looked at */
    COARSE_STEP = 4, /* of a ratio, in units of 1 / MIST_RATIO_ONE */
    N_SETS = 1 << MIST_N_OFFLOADS,
    MAX_SETTINGS = N_SETS + N_SETS / 2, /* those with optimizer state twice */
    N_NEIGHBOURS = 81,                  /* of a point: each ratio less, the same, more */
};

/* The values of the four ratios on the grid, from what has to be offloaded to the most. */
struct grid {
    int8_t values[MIST_N_OFFLOADS][MIST_RATIO_ONE + 1];
    int n[MIST_N_OFFLOADS];
};

/* For every set of the four that may be offloaded further than it has to be: one setting
 * of the ratios, with the optimizer updated on the device and on the host. */
struct settings {
    struct mist_search_knobs of[MAX_SETTINGS]; /* ratios and where the optimizer is */
    int set[MAX_SETTINGS];                     /* which of the four: bits */
    int n;
};

/* n equal steps of a ratio, from its least to its largest value; returns how many differ. */
static int list_values(const struct mist_search_filling *at, int k, int n, int8_t *values)
{
    struct mist_knob_range of = at->ratios[k];
    int32_t unit = at->space->ratio_step;
    int n_values = 0;

    for (int i = 0; i < n; i++) {
        int32_t value = (of.min + (of.max - of.min) * i / (n - 1)) / unit * unit;
        if (n_values == 0 || value > values[n_values - 1])
            values[n_values++] = (int8_t)value;
    }
    return n_values;
}

static struct grid make_grid(const struct mist_search_filling *at)
{
    int32_t step =
        at->space->ratio_step > COARSE_STEP ? at->space->ratio_step : COARSE_STEP;
    struct grid grid = {0};

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        grid.n[k] = list_values(at, k, MIST_RATIO_ONE / step + 1, grid.values[k]);
    return grid;
}

/* Every set at the most of the grid, or at the least where that is something else. */
static void list_settings(const struct mist_search_filling *at, const struct grid *grid,
                          bool is_most, struct settings *out)
{
    out->n = 0;
    for (int set = 1; set < N_SETS; set++) {
        struct mist_search_knobs knobs = {0};
        bool can_be = true, is_new = is_most;
        for (int k = 0; k < MIST_N_OFFLOADS; k++) {
            bool is_in = set >> k & 1;
            can_be = can_be && (!is_in || grid->n[k] > 1);
            is_new = is_new || (is_in && grid->n[k] > 2);
            knobs.offload[k] = grid->values[k][!is_in ? 0 : is_most ? grid->n[k] - 1 : 1];
        }
        for (int on_host = 0; on_host < 2 && can_be && is_new; on_host++) {
            knobs.updates_on_host = on_host == 1;
            if (mist_space_allows_update(at->space, knobs.offload[MIST_OFFLOAD_OPTIMIZER],
                                         on_host)) {
                out->set[out->n] = set;
                out->of[out->n++] = knobs;
            }
        }
    }
}

/* What is asked and known of a row of the base: sets of the four. */
struct row {
    uint16_t asked;    /* settings of these are priced */
    uint16_t found[2]; /* that are worth more, updated on the device and on the host */
};

static bool is_asked(const struct row *row, int set)
{
    return row->asked >> set & 1u;
}

/* Whether some of the set brings a row below the limit: the most of it has been priced. All
 * of the four is not always the least: what moves needs room on its way. */
static bool can_fit(const struct mist_search_filling *at, size_t i)
{
    return mist_search_is_priced(&at->block, i) &&
           ceil(at->block.peak_bytes[i]) <= (double)at->work->limit_bytes;
}

/* Whether more of the set may come onto the frontier: the least of it has been priced. */
static bool is_hopeful(const struct mist_search_filling *at, size_t i)
{
    struct mist_pareto_point point = mist_search_make_point(&at->block, i);

    point.payload = INT64_MAX;
    return !mist_search_is_priced(&at->block, i) ||
           (point.t_s <= at->work->most_t_s &&
            !mist_pareto_covers(&at->frontiers[(int32_t)at->block.n_layers[i]], &point));
}

/* Prices the block, which holds the settings that are asked of rows begin - 1 .. end of the
 * base, and notes what is found. */
static enum mist_status flush_settings(struct mist_search_filling *at,
                                       const struct settings *settings, bool is_most,
                                       size_t begin, size_t end, struct row *rows)
{
    enum mist_status status = mist_search_price_columns(at, &at->block, 0);
    size_t n = 0;

    if (status == MIST_OK)
        status = mist_search_merge_columns(at, &at->block, 0);
    for (size_t i = begin; i-- > end && status == MIST_OK;)
        for (int k = 0; k < settings->n; k++) {
            uint16_t *found = &rows[i].found[settings->of[k].updates_on_host];
            if (!is_asked(&rows[i], settings->set[k]))
                continue;
            if (is_most ? can_fit(at, n) : is_hopeful(at, n))
                *found = (uint16_t)(*found | 1u << settings->set[k]);
            n++;
        }
    at->block.n = 0;
    return status;
}

/* Prices the settings that are asked of the rows of the base. The most checkpointed first:
 * they need the least offloading, and what they reach may cover others. */
static enum mist_status try_settings(struct mist_search_filling *at,
                                     const struct settings *settings, bool is_most,
                                     struct row *rows)
{
    enum mist_status status = MIST_OK;
    size_t begin = at->base.n;

    for (size_t i = at->base.n; i-- > 0 && status == MIST_OK;) {
        struct mist_search_knobs knobs = mist_search_get_row(&at->base, i);
        if (rows[i].asked && !mist_search_is_open(at, i))
            rows[i].asked = 0;
        for (int k = 0; k < settings->n; k++) {
            memcpy(knobs.offload, settings->of[k].offload, sizeof knobs.offload);
            knobs.updates_on_host = settings->of[k].updates_on_host;
            if (is_asked(&rows[i], settings->set[k]))
                mist_search_add_row(&at->block, (int32_t)at->base.n_layers[i], &knobs);
        }
        if (at->block.n + MAX_SETTINGS > at->block.capacity || i == 0) {
            status = flush_settings(at, settings, is_most, begin, i, rows);
            begin = i;
        }
    }
    return status;
}

/* What is between the least and the most of the sets that were found. */
static enum mist_status add_between(struct mist_search_filling *at,
                                    const struct grid *grid, size_t i_base,
                                    const struct row *row)
{
    struct mist_search_knobs knobs = mist_search_get_row(&at->base, i_base);
    enum mist_status status = MIST_OK;
    int n_all = 1;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        n_all *= grid->n[k];
    for (int i = 1; i < n_all; i++) {
        bool is_most = true, is_least = true;
        int set = 0;
        for (int k = 0, rest = i; k < MIST_N_OFFLOADS; rest /= grid->n[k++]) {
            int step = rest % grid->n[k];
            knobs.offload[k] = grid->values[k][step];
            set |= (step > 0) << k;
            is_most = is_most && (step == 0 || step == grid->n[k] - 1);
            is_least = is_least && step <= 1;
        }
        for (int on_host = 0; on_host < 2 && status == MIST_OK; on_host++) {
            knobs.updates_on_host = on_host == 1;
            if (!is_most && !is_least && row->found[on_host] >> set & 1u)
                status = mist_search_add_to_block(at, (int32_t)at->base.n_layers[i_base],
                                                  &knobs);
        }
    }
    return status;
}

/* The grid of ratios, of all rows of the base that are worth it. */
static enum mist_status try_grid(struct mist_search_filling *at, struct row *rows)
{
    const struct grid grid = make_grid(at);
    struct settings settings;

    list_settings(at, &grid, true, &settings);
    for (size_t i = 0; i < at->base.n; i++)
        rows[i].asked = UINT16_MAX;
    enum mist_status status = try_settings(at, &settings, true, rows);
    list_settings(at, &grid, false, &settings);
    for (size_t i = 0; i < at->base.n; i++)
        rows[i] = (struct row){.asked = rows[i].found[0] | rows[i].found[1]};
    if (status == MIST_OK)
        status = try_settings(at, &settings, false, rows);
    for (size_t i = at->base.n; i-- > 0 && status == MIST_OK;)
        if ((rows[i].found[0] || rows[i].found[1]) && mist_search_is_open(at, i))
            status = add_between(at, &grid, i, &rows[i]);
    return status == MIST_OK ? mist_search_flush_block(at) : status;
}

/* Whether one of the points offloads no more of anything and is else the same: what offloads
 * more is no faster. */
static bool is_covered(const struct mist_search_knobs *points, size_t n,
                       const struct mist_search_knobs *knobs)
{
    for (size_t i = 0; i < n; i++) {
        const struct mist_search_knobs *of = &points[i];
        bool covers = of->n_checkpointed == knobs->n_checkpointed &&
                      of->n_lean == knobs->n_lean && of->zero == knobs->zero &&
                      of->updates_on_host == knobs->updates_on_host;
        for (int k = 0; k < MIST_N_OFFLOADS && covers; k++)
            covers = of->offload[k] <= knobs->offload[k];
        if (covers)
            return true;
    }
    return false;
}

/* The neighbours of point i whose ratios are one step up, down or the same, updated wherever
 * that may be, which the points do not cover. As numbers; returns how many. */
static size_t list_neighbours(const struct mist_search_filling *at,
                              const struct mist_search_knobs *points, size_t n_points,
                              size_t i_point, int step, int64_t *numbers)
{
    size_t n = 0;

    for (int i = 0; i < N_NEIGHBOURS; i++) {
        struct mist_search_knobs knobs = points[i_point];
        bool is_inside = true;
        for (int k = 0, rest = i; k < MIST_N_OFFLOADS; k++, rest /= 3) {
            int ratio = knobs.offload[k] + (rest % 3 - 1) * step;
            is_inside =
                is_inside && ratio >= at->ratios[k].min && ratio <= at->ratios[k].max;
            knobs.offload[k] = (int8_t)ratio;
        }
        for (int on_host = 0; on_host < 2 && is_inside; on_host++) {
            knobs.updates_on_host = on_host == 1;
            if (mist_space_allows_update(at->space, knobs.offload[MIST_OFFLOAD_OPTIMIZER],
                                         on_host) &&
                !is_covered(points, n_points, &knobs))
                numbers[n++] = mist_search_pack_knobs(&knobs);
        }
    }
    return n;
}

static int compare_numbers(const void *a_void, const void *b_void)
{
    const int64_t *a = a_void, *b = b_void;

    return (*a > *b) - (*a < *b);
}

/* Looks around the offloaded points of a frontier; numbers: room for their neighbours. */
static enum mist_status refine(struct mist_search_filling *at, int32_t n_layers, int step,
                               int64_t *numbers)
{
    const struct mist_pareto_frontier *from = &at->frontiers[n_layers];
    struct mist_pareto_point sample[REFINED];
    struct mist_search_knobs points[REFINED];
    size_t n_sample = 0, n_points = 0, n = 0;
    enum mist_status status =
        mist_pareto_sample(from->points, from->n, REFINED, at->work->kind.n_micro_batches,
                           sample, &n_sample, at->err);

    for (size_t i = 0; i < n_sample && status == MIST_OK; i++) {
        points[n_points] = mist_search_unpack_knobs(sample[i].payload);
        n_points += mist_search_offloads(at, &points[n_points]);
    }
    for (size_t i = 0; i < n_points; i++)
        n += list_neighbours(at, points, n_points, i, step, numbers + n);
    qsort(numbers, n, sizeof *numbers, compare_numbers);
    for (size_t i = 0; i < n && status == MIST_OK; i++) {
        struct mist_search_knobs knobs = mist_search_unpack_knobs(numbers[i]);
        if (i == 0 || numbers[i] != numbers[i - 1])
            status = mist_search_add_to_block(at, n_layers, &knobs);
    }
    return status == MIST_OK ? mist_search_flush_block(at) : status;
}

enum mist_status mist_search_offload(struct mist_search_filling *at)
{
    struct row *rows = calloc(at->base.n + 1, sizeof *rows);
    int64_t *numbers = malloc((size_t)REFINED * 2 * N_NEIGHBOURS * sizeof *numbers);
    enum mist_status status =
        rows && numbers ? try_grid(at, rows) : mist_err_memory(at->err, NULL);

    for (int step = COARSE_STEP / 2; step >= at->space->ratio_step; step /= 2)
        for (int32_t l = at->work->layers_min;
             l <= at->work->layers_max && status == MIST_OK; l++)
            status = refine(at, l, step, numbers);
    free(rows);
    free(numbers);
    return status;
}
