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
#include <string.h>

enum {
    REFINED = 24,    /* points of a frontier whose neighbours are looked at */
    COARSE_STEP = 4, /* of a ratio, in units of 1 / MIST_RATIO_ONE */
    N_CORNERS = 1 << MIST_N_OFFLOADS,
    MAX_CORNERS = N_CORNERS + N_CORNERS / 2 /* those with optimizer state twice */
};

/* What is wholly offloaded beside what has to be: every choice of the four. */
struct corners {
    struct mist_search_knobs of[MAX_CORNERS]; /* ratios and where the optimizer is */
    int bits[MAX_CORNERS];                    /* which of the four */
    int n;
};

static void list_corners(const struct mist_search_filling *at, struct corners *out)
{
    out->n = 0;
    for (int bits = 1; bits < N_CORNERS; bits++) {
        struct mist_search_knobs knobs = {0};
        bool is_new = true;
        for (int k = 0; k < MIST_N_OFFLOADS; k++) {
            struct mist_knob_range ratio = at->ratios[k];
            is_new = is_new && (!(bits >> k & 1) || ratio.min < ratio.max);
            knobs.offload[k] = (int8_t)(bits >> k & 1 ? ratio.max : ratio.min);
        }
        for (int on_host = 0; on_host < 2 && is_new; on_host++) {
            knobs.updates_on_host = on_host == 1;
            if (mist_space_allows_update(at->space, knobs.offload[MIST_OFFLOAD_OPTIMIZER],
                                         on_host)) {
                out->bits[out->n] = bits;
                out->of[out->n++] = knobs;
            }
        }
    }
}

/* Adds a configuration to the block, updated wherever it may be; but for the one that is
 * there (NULL: neither is). */
static enum mist_status add_both(struct mist_search_filling *at, int32_t n_layers,
                                 struct mist_search_knobs knobs,
                                 const struct mist_search_knobs *there)
{
    int8_t ratio = knobs.offload[MIST_OFFLOAD_OPTIMIZER];
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 2 && status == MIST_OK; i++) {
        knobs.updates_on_host = i == 1;
        if (mist_space_allows_update(at->space, ratio, i) &&
            (!there || mist_search_pack_knobs(there) != mist_search_pack_knobs(&knobs)))
            status = mist_search_add_to_block(at, n_layers, &knobs);
    }
    return status;
}

/* Prices the block, which holds the corners of the rows of the base that can_fit marks
 * among begin .. end, and leaves in can_fit one bit for each choice of the four that
 * fits. */
static enum mist_status flush_corners(struct mist_search_filling *at,
                                      const struct corners *corners, size_t begin,
                                      size_t end, uint16_t *can_fit)
{
    enum mist_status status = mist_search_price_columns(at, &at->block, 0);
    size_t row = 0;

    for (size_t i = begin; i < end && status == MIST_OK; i++) {
        bool is_open = can_fit[i] != 0;
        can_fit[i] = 0;
        for (int k = 0; k < corners->n && is_open; k++, row++)
            if (mist_search_is_priced(&at->block, row) &&
                ceil(at->block.peak_bytes[row]) <= (double)at->config->limit_bytes)
                can_fit[i] = (uint16_t)(can_fit[i] | 1u << corners->bits[k]);
    }
    if (status == MIST_OK)
        status = mist_search_merge_columns(at, &at->block, 0);
    at->block.n = 0;
    return status;
}

/* With which of the four wholly offloaded open rows of the base fit: can_fit[i]. All of it
 * is not always the least: what moves needs room on its way. */
static enum mist_status try_corners(struct mist_search_filling *at, uint16_t *can_fit)
{
    enum mist_status status = MIST_OK;
    struct corners corners;
    size_t begin = 0;

    list_corners(at, &corners);
    for (size_t i = 0; i < at->base.n && status == MIST_OK; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(&at->base, i);
        can_fit[i] = mist_search_is_open(at, i);
        for (int k = 0; k < corners.n && can_fit[i]; k++) {
            memcpy(knobs.offload, corners.of[k].offload, sizeof knobs.offload);
            knobs.updates_on_host = corners.of[k].updates_on_host;
            mist_search_add_row(&at->block, (int32_t)at->base.n_layers[i], &knobs);
        }
        if (at->block.n + MAX_CORNERS > at->block.capacity || i + 1 == at->base.n) {
            status = flush_corners(at, &corners, begin, i + 1, can_fit);
            begin = i + 1;
        }
    }
    return status;
}

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

/* The ratios of the grid for a row of the base, but the corners; can_fit: as above. */
static enum mist_status add_grid(struct mist_search_filling *at, size_t i_base,
                                 int8_t step, uint16_t can_fit)
{
    struct mist_search_knobs knobs = mist_search_get_row(&at->base, i_base);
    int32_t n_layers = (int32_t)at->base.n_layers[i_base];
    int8_t values[MIST_N_OFFLOADS][MIST_RATIO_ONE + 1];
    int n[MIST_N_OFFLOADS], n_all = 1;
    enum mist_status status = MIST_OK;

    for (int k = 0; k < MIST_N_OFFLOADS; k++) {
        n[k] = list_values(at, k, MIST_RATIO_ONE / step + 1, values[k]);
        n_all *= n[k];
    }
    for (int i = 1; i < n_all && status == MIST_OK; i++) {
        bool is_corner = true;
        int bits = 0;
        for (int k = 0, rest = i; k < MIST_N_OFFLOADS; rest /= n[k++]) {
            knobs.offload[k] = values[k][rest % n[k]];
            bits |= (knobs.offload[k] > at->ratios[k].min) << k;
            is_corner = is_corner && (knobs.offload[k] == at->ratios[k].min ||
                                      knobs.offload[k] == at->ratios[k].max);
        }
        if (!is_corner && can_fit >> bits & 1u)
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
            is_inside =
                is_inside && ratio >= at->ratios[k].min && ratio <= at->ratios[k].max;
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
            if (mist_search_offloads(at, &knobs))
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
    uint16_t *can_fit = calloc(at->base.n + 1, sizeof *can_fit);
    enum mist_status status = MIST_OK;

    if (!can_fit)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    status = try_corners(at, can_fit);
    /* the most checkpointed first: they need the least offloading, and what they reach
     * may cover others */
    for (size_t i = at->base.n; i-- > 0 && status == MIST_OK;)
        if (can_fit[i] && mist_search_is_open(at, i))
            status = add_grid(at, i, (int8_t)(step > COARSE_STEP ? step : COARSE_STEP),
                              can_fit[i]);
    if (status == MIST_OK)
        status = mist_search_flush_block(at);
    for (int32_t s = COARSE_STEP / 2; s >= step && status == MIST_OK; s /= 2)
        status = refine(at, s);
    free(can_fit);
    return status;
}
