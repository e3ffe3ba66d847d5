/*
 * Offloading: the ratios that bring a configuration below the limit of memory. See
 * search.h, step 4.
 *
 * A configuration is worth a look if it is over the limit, would be on the frontier if it
 * were not, and fits with some of the four wholly offloaded. Then a coarse grid of
 * ratios, and finer and finer steps around what that puts on the frontiers.
 */
#include "tune/search_filling.h"

#include <math.h>
#include <stdlib.h>

enum {
    REFINED = 24,    /* points of a frontier whose neighbours are looked at */
    COARSE_STEP = 4, /* of a ratio, in units of 1 / MIST_RATIO_ONE */
    N_CORNERS = 1 << MIST_N_OFFLOADS,
    MAX_CORNERS = N_CORNERS + N_CORNERS / 2 /* those with optimizer state twice */
};

static int n_corners(const struct mist_search_filling *at)
{
    return at->space->allows_host_updates ? MAX_CORNERS : N_CORNERS;
}

/* The ratios' 0 and 1; behind N_CORNERS those that are updated on the host. */
static void set_corner(struct mist_search_knobs *knobs, int corner)
{
    const int state = 1 << MIST_OFFLOAD_OPTIMIZER;
    int rest = corner - N_CORNERS, low = rest & (state - 1);
    int bits = rest < 0 ? corner : low | state | (rest - low) << 1;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        knobs->offload[k] = bits >> k & 1 ? MIST_RATIO_ONE : 0;
    knobs->updates_on_host = rest >= 0;
}

/* Adds a configuration to the block, updated on the device and, where that may be, on the
 * host; but for the one that is there (NULL: neither is). */
static enum mist_status add_both(struct mist_search_filling *at, int32_t n_layers,
                                 struct mist_search_knobs knobs,
                                 const struct mist_search_knobs *there)
{
    bool may_host =
        at->space->allows_host_updates && knobs.offload[MIST_OFFLOAD_OPTIMIZER] > 0;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < (may_host ? 2 : 1) && status == MIST_OK; i++) {
        knobs.updates_on_host = i == 1;
        if (!there || mist_search_pack_knobs(there) != mist_search_pack_knobs(&knobs))
            status = mist_search_add_to_block(at, n_layers, &knobs);
    }
    return status;
}

/* Whether a row of the base may be worth offloading: it can be run, is over the limit,
 * and would be on the frontier if it were not. */
static bool is_open(const struct mist_search_filling *at, size_t i)
{
    if (!mist_search_is_priced(&at->base, i) || mist_search_fits(at, &at->base, i))
        return false;
    struct mist_pareto_point point = mist_search_make_point(&at->base, i);
    point.payload = INT64_MAX;
    return point.t_s <= at->work->most_t_s &&
           !mist_pareto_covers(&at->frontiers[(int32_t)at->base.n_layers[i]], &point);
}

/* Prices the block, which holds the corners of the rows of the base that can_fit marks
 * among begin .. end, and leaves the marks of those with a corner that fits. */
static enum mist_status flush_corners(struct mist_search_filling *at, size_t begin,
                                      size_t end, bool *can_fit)
{
    enum mist_status status = mist_search_price_columns(at, &at->block);
    size_t row = 0;

    for (size_t i = begin; i < end && status == MIST_OK; i++) {
        bool is_open_row = can_fit[i];
        can_fit[i] = false;
        for (int k = 1; k < n_corners(at) && is_open_row; k++, row++)
            can_fit[i] = can_fit[i] || (mist_search_is_priced(&at->block, row) &&
                                        ceil(at->block.peak_bytes[row]) <=
                                            (double)at->config->limit_bytes);
    }
    if (status == MIST_OK)
        status = mist_search_merge_columns(at, &at->block);
    at->block.n = 0;
    return status;
}

/* Whether open rows of the base fit with any of the four wholly offloaded: can_fit[i].
 * All of it is not always the least: what moves needs room on its way. */
static enum mist_status try_corners(struct mist_search_filling *at, bool *can_fit)
{
    enum mist_status status = MIST_OK;
    size_t begin = 0;

    for (size_t i = 0; i < at->base.n && status == MIST_OK; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(&at->base, i);
        can_fit[i] = is_open(at, i);
        for (int corner = 1; corner < n_corners(at) && can_fit[i]; corner++) {
            set_corner(&knobs, corner);
            mist_search_add_row(&at->block, (int32_t)at->base.n_layers[i], &knobs);
        }
        if (at->block.n + MAX_CORNERS > at->block.capacity || i + 1 == at->base.n) {
            status = flush_corners(at, begin, i + 1, can_fit);
            begin = i + 1;
        }
    }
    return status;
}

/* All ratios of the grid for a row of the base, but the corners. */
static enum mist_status add_grid(struct mist_search_filling *at, size_t i_base,
                                 int8_t step)
{
    struct mist_search_knobs knobs = mist_search_get_row(&at->base, i_base);
    int32_t n_layers = (int32_t)at->base.n_layers[i_base];
    int n = MIST_RATIO_ONE / step + 1, n_all = n * n * n * n;
    enum mist_status status = MIST_OK;

    for (int i = 1; i < n_all && status == MIST_OK; i++) {
        bool is_corner = true;
        for (int k = 0, rest = i; k < MIST_N_OFFLOADS; k++, rest /= n) {
            knobs.offload[k] = (int8_t)(rest % n * step);
            is_corner = is_corner && knobs.offload[k] % MIST_RATIO_ONE == 0;
        }
        if (!is_corner)
            status = add_both(at, n_layers, knobs, NULL);
    }
    return status;
}

/* The neighbours of a point whose ratios are one step up, down or the same. */
static enum mist_status add_neighbours(struct mist_search_filling *at, int32_t n_layers,
                                       const struct mist_search_knobs *of, int step)
{
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 81 && status == MIST_OK; i++) {
        struct mist_search_knobs knobs = *of;
        bool is_inside = true; /* 40: the point itself, updated elsewhere */
        for (int k = 0, rest = i; k < MIST_N_OFFLOADS; k++, rest /= 3) {
            int ratio = of->offload[k] + (rest % 3 - 1) * step;
            is_inside = is_inside && ratio >= 0 && ratio <= MIST_RATIO_ONE;
            knobs.offload[k] = (int8_t)ratio;
        }
        if (is_inside)
            status = add_both(at, n_layers, knobs, of);
    }
    return status;
}

/* Looks around the offloaded points of all frontiers. */
static enum mist_status refine(struct mist_search_filling *at, int step)
{
    struct mist_pareto_point points[REFINED];
    enum mist_status status = MIST_OK;

    for (int32_t l = at->work->layers_min; l <= at->work->layers_max; l++) {
        const struct mist_pareto_frontier *from = &at->frontiers[l];
        size_t n = 0;
        if (status == MIST_OK)
            status =
                mist_pareto_sample(from->points, from->n, REFINED,
                                   at->work->kind.n_micro_batches, points, &n, at->err);
        for (size_t i = 0; i < n && status == MIST_OK; i++) {
            struct mist_search_knobs knobs = mist_search_unpack_knobs(points[i].payload);
            if (mist_search_is_offloaded(&knobs))
                status = add_neighbours(at, l, &knobs, step);
        }
        if (status == MIST_OK)
            status = mist_search_flush_block(at);
    }
    return status;
}

enum mist_status mist_search_offload(struct mist_search_filling *at)
{
    int32_t step = at->space->ratio_step;
    bool *can_fit = calloc(at->base.n + 1, sizeof *can_fit);
    enum mist_status status = MIST_OK;

    if (!can_fit)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    status = try_corners(at, can_fit);
    /* the most checkpointed first: they need the least offloading, and what they reach
     * may cover others */
    for (size_t i = at->base.n; i-- > 0 && status == MIST_OK;)
        if (can_fit[i] && is_open(at, i))
            status = add_grid(at, i, (int8_t)(step > COARSE_STEP ? step : COARSE_STEP));
    if (status == MIST_OK)
        status = mist_search_flush_block(at);
    for (int32_t s = COARSE_STEP / 2; s >= step && status == MIST_OK; s /= 2)
        status = refine(at, s);
    free(can_fit);
    return status;
}
