/*
 * Prices one kind of stage and keeps its frontiers. See search.h, steps 1 to 5.
 *
 * Configurations that are on a frontier are kept as numbers (pack) and priced once more
 * at the end: of millions that are looked at, hundreds stay.
 */
#include "tune/pareto.h"
#include "tune/search_columns.h"
#include "tune/search_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 4096,    /* configurations priced at once */
    REFINED = 24,    /* points of a frontier whose neighbours are looked at */
    COARSE_STEP = 4, /* of a ratio, in units of 1 / MIST_RATIO_ONE */
    N_CORNERS = 1 << MIST_N_OFFLOADS
};

struct filling {
    const struct mist_space *space;
    const struct mist_search_config *config;
    struct mist_search_work *work;
    struct mist_search_columns base;  /* everything without offloading, by layers, C, Z */
    struct mist_search_columns block; /* what is to be priced next */
    struct mist_pareto_frontier *frontiers; /* [layers_max + 1] */
    struct mist_pareto_point *points;       /* [BLOCK] scratch */
    struct mist_err *err;
};

/* ----------------------------------------------------------------------------- prices */

static enum mist_status price_columns(struct filling *at,
                                      struct mist_search_columns *columns)
{
    struct mist_search_block block = {
        .n = columns->n,
        .n_layers = columns->n_layers,
        .n_checkpointed = columns->n_checkpointed,
        .zero = columns->zero,
        .t_s = columns->t_s,
        .d_s = columns->d_s,
        .peak_bytes = columns->peak_bytes,
        .host_bytes = columns->host_bytes,
    };

    for (int k = 0; k < MIST_N_OFFLOADS && columns != &at->base; k++)
        block.offload[k] = columns->offload[k];
    at->work->n_priced += (int64_t)columns->n;
    if (columns->n == 0)
        return MIST_OK;
    return at->config->price(at->config->price_context, &at->work->kind, &block, at->err);
}

bool mist_search_is_price(double t_s, double d_s, double peak_bytes)
{
    return isfinite(t_s) && isfinite(d_s) && t_s >= 0 && peak_bytes >= 0 &&
           peak_bytes < 0x1p62;
}

double mist_search_seen_t_s(const struct mist_space *space, double t_s, double d_s,
                            int32_t n_micro_batches)
{
    double folded_s = t_s + d_s / n_micro_batches;

    if (mist_space_has(space, MIST_SPACE_IMBALANCE))
        return t_s;
    return folded_s > 0 ? folded_s : 0;
}

static bool is_price(const struct mist_search_columns *from, size_t i)
{
    return mist_search_is_price(from->t_s[i], from->d_s[i], from->peak_bytes[i]) &&
           from->host_bytes[i] >= 0 && from->host_bytes[i] < 0x1p62;
}

static bool fits(const struct filling *at, const struct mist_search_columns *from,
                 size_t i)
{
    return ceil(from->peak_bytes[i]) <= (double)at->config->limit_bytes &&
           ceil(from->host_bytes[i]) <= (double)at->config->host_limit_bytes;
}

/* What the solver is to see of a configuration. */
static struct mist_pareto_point
make_point(const struct filling *at, const struct mist_search_columns *from, size_t i)
{
    struct mist_search_knobs knobs = mist_search_get_row(from, i);

    return (struct mist_pareto_point){
        .t_s = mist_search_seen_t_s(at->space, from->t_s[i], from->d_s[i],
                                    at->work->kind.n_micro_batches),
        .d_s = mist_space_has(at->space, MIST_SPACE_IMBALANCE) ? from->d_s[i] : 0,
        .memory_bytes = (int64_t)ceil(from->peak_bytes[i]),
        .payload = mist_search_pack_knobs(&knobs),
    };
}

/* Takes the priced rows first .. end, all of one number of layers, into its frontier. */
static enum mist_status merge_run(struct filling *at,
                                  const struct mist_search_columns *from, size_t first,
                                  size_t end)
{
    struct mist_search_work *work = at->work;
    int32_t n_layers = (int32_t)from->n_layers[first];
    int64_t *least = &work->least_bytes[n_layers];
    enum mist_status status = MIST_OK;
    size_t n = 0;

    for (size_t i = first; i < end && status == MIST_OK; i++) {
        if (!is_price(from, i))
            continue;
        struct mist_pareto_point point = make_point(at, from, i);
        if (point.memory_bytes < *least &&
            ceil(from->host_bytes[i]) <= (double)at->config->host_limit_bytes)
            *least = point.memory_bytes;
        if (!fits(at, from, i))
            continue;
        work->n_fitting++;
        if (point.t_s <= work->most_t_s)
            at->points[n++] = point;
        if (n == BLOCK || i + 1 == end) {
            status = mist_pareto_merge(&at->frontiers[n_layers], at->points, n, at->err);
            n = 0;
        }
    }
    return n == 0 || status != MIST_OK
               ? status
               : mist_pareto_merge(&at->frontiers[n_layers], at->points, n, at->err);
}

static enum mist_status merge_columns(struct filling *at,
                                      const struct mist_search_columns *from)
{
    enum mist_status status = MIST_OK;

    for (size_t first = 0, end; first < from->n && status == MIST_OK; first = end) {
        for (end = first + 1;
             end < from->n && from->n_layers[end] == from->n_layers[first];)
            end++;
        status = merge_run(at, from, first, end);
    }
    return status;
}

/* Prices what is in the block and empties it. */
static enum mist_status flush_block(struct filling *at)
{
    enum mist_status status = price_columns(at, &at->block);

    if (status == MIST_OK)
        status = merge_columns(at, &at->block);
    at->block.n = 0;
    return status;
}

static enum mist_status add_to_block(struct filling *at, int32_t n_layers,
                                     const struct mist_search_knobs *knobs)
{
    mist_search_add_row(&at->block, n_layers, knobs);
    return at->block.n < at->block.capacity ? MIST_OK : flush_block(at);
}

/* ------------------------------------------------------------- steps 1 to 3: the base */

static bool is_wanted(const struct mist_search_work *work, int32_t n_layers)
{
    return !work->is_wanted || work->is_wanted[n_layers];
}

static size_t count_base(const struct mist_space *space,
                         const struct mist_search_work *work)
{
    size_t n = 0;

    for (int32_t l = work->layers_min; l <= work->layers_max; l++)
        if (is_wanted(work, l))
            n += (size_t)mist_space_n_checkpointed(space, l) *
                 (size_t)mist_space_n_zero(space, work->kind.shape.dp);
    return n;
}

static void list_base(struct filling *at)
{
    const struct mist_search_work *work = at->work;
    int32_t n_zero = mist_space_n_zero(at->space, work->kind.shape.dp);

    for (int32_t l = work->layers_min; l <= work->layers_max; l++)
        for (int32_t c = 0;
             is_wanted(work, l) && c < mist_space_n_checkpointed(at->space, l); c++)
            for (int32_t z = 0; z < n_zero; z++) {
                struct mist_search_knobs knobs = {.n_checkpointed = c, .zero = z};
                mist_search_add_row(&at->base, l, &knobs);
            }
}

/* ---------------------------------------------------------------- step 4: offloading */

/* Whether a row of the base may be worth offloading: it can be run, is over the limit,
 * and would be on the frontier if it were not. */
static bool is_open(const struct filling *at, size_t i)
{
    if (!is_price(&at->base, i) || fits(at, &at->base, i))
        return false;
    struct mist_pareto_point point = make_point(at, &at->base, i);
    point.payload = INT64_MAX;
    return point.t_s <= at->work->most_t_s &&
           !mist_pareto_covers(&at->frontiers[(int32_t)at->base.n_layers[i]], &point);
}

/* Prices the block, which holds the corners of the rows of the base that can_fit marks
 * among begin .. end, and leaves the marks of those with a corner that fits. */
static enum mist_status flush_corners(struct filling *at, size_t begin, size_t end,
                                      bool *can_fit)
{
    enum mist_status status = price_columns(at, &at->block);
    size_t row = 0;

    for (size_t i = begin; i < end && status == MIST_OK; i++) {
        bool is_open_row = can_fit[i];
        can_fit[i] = false;
        for (int k = 1; k < N_CORNERS && is_open_row; k++, row++)
            can_fit[i] = can_fit[i] || (is_price(&at->block, row) &&
                                        ceil(at->block.peak_bytes[row]) <=
                                            (double)at->config->limit_bytes);
    }
    if (status == MIST_OK)
        status = merge_columns(at, &at->block);
    at->block.n = 0;
    return status;
}

/* Whether open rows of the base fit with any of the four wholly offloaded: can_fit[i].
 * All of it is not always the least: what moves needs room on its way. */
static enum mist_status try_corners(struct filling *at, bool *can_fit)
{
    enum mist_status status = MIST_OK;
    size_t begin = 0;

    for (size_t i = 0; i < at->base.n && status == MIST_OK; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(&at->base, i);
        can_fit[i] = is_open(at, i);
        for (int corner = 1; corner < N_CORNERS && can_fit[i]; corner++) {
            for (int k = 0; k < MIST_N_OFFLOADS; k++)
                knobs.offload[k] = corner >> k & 1 ? MIST_RATIO_ONE : 0;
            mist_search_add_row(&at->block, (int32_t)at->base.n_layers[i], &knobs);
        }
        if (at->block.n + N_CORNERS > at->block.capacity || i + 1 == at->base.n) {
            status = flush_corners(at, begin, i + 1, can_fit);
            begin = i + 1;
        }
    }
    return status;
}

/* All ratios of the grid for a row of the base, but the corners. */
static enum mist_status add_grid(struct filling *at, size_t i_base, int8_t step)
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
            status = add_to_block(at, n_layers, &knobs);
    }
    return status;
}

/* The neighbours of a point whose ratios are one step up, down or the same. */
static enum mist_status add_neighbours(struct filling *at, int32_t n_layers,
                                       const struct mist_search_knobs *of, int step)
{
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 81 && status == MIST_OK; i++) {
        struct mist_search_knobs knobs = *of;
        bool is_inside = i != 40; /* which is the point itself */
        for (int k = 0, rest = i; k < MIST_N_OFFLOADS; k++, rest /= 3) {
            int ratio = of->offload[k] + (rest % 3 - 1) * step;
            is_inside = is_inside && ratio >= 0 && ratio <= MIST_RATIO_ONE;
            knobs.offload[k] = (int8_t)ratio;
        }
        if (is_inside)
            status = add_to_block(at, n_layers, &knobs);
    }
    return status;
}

/* Looks around the offloaded points of all frontiers. */
static enum mist_status refine(struct filling *at, int step)
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
            status = flush_block(at);
    }
    return status;
}

static enum mist_status offload(struct filling *at)
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
        status = flush_block(at);
    for (int32_t s = COARSE_STEP / 2; s >= step && status == MIST_OK; s /= 2)
        status = refine(at, s);
    free(can_fit);
    return status;
}

/* ---------------------------------------------------------------------------- results */

static bool is_kept(const struct mist_search_columns *kept, int32_t n_layers,
                    int64_t payload)
{
    for (size_t i = 0; i < kept->n; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(kept, i);
        if ((int32_t)kept->n_layers[i] == n_layers &&
            mist_search_pack_knobs(&knobs) == payload)
            return true;
    }
    return false;
}

/* What became of a row of the base that can be run. */
static void judge_row(const struct filling *at, size_t i,
                      const struct mist_search_columns *kept, struct mist_search_row *row)
{
    struct mist_pareto_point point = make_point(at, &at->base, i);
    const struct mist_pareto_frontier *frontier = &at->frontiers[row->n_layers];

    row->fate = MIST_FATE_DOMINATED;
    if (!fits(at, &at->base, i))
        row->fate = MIST_FATE_OVER_LIMIT;
    else if (point.t_s > at->work->most_t_s)
        row->fate = MIST_FATE_TOO_SLOW;
    for (size_t k = 0; k < frontier->n && row->fate == MIST_FATE_DOMINATED; k++) {
        const struct mist_pareto_point *other = &frontier->points[k];
        struct mist_search_knobs knobs = mist_search_unpack_knobs(other->payload);
        if (other->payload == point.payload) {
            row->fate = is_kept(kept, row->n_layers, point.payload) ? MIST_FATE_FRONTIER
                                                                    : MIST_FATE_THINNED;
        } else if (other->t_s <= point.t_s && other->d_s <= point.d_s) {
            row->better_checkpointed = knobs.n_checkpointed;
            row->better_zero = knobs.zero;
            break;
        }
    }
}

static struct mist_search_row make_row(const struct filling *at,
                                       const struct mist_search_columns *of, size_t i)
{
    struct mist_search_knobs knobs = mist_search_get_row(of, i);
    bool has_price = is_price(of, i);
    struct mist_search_row row = {
        .kind = at->work->kind,
        .n_layers = (int32_t)of->n_layers[i],
        .n_checkpointed = knobs.n_checkpointed,
        .zero = knobs.zero,
        .t_s = has_price ? of->t_s[i] : 0,
        .d_s = has_price ? of->d_s[i] : 0,
        .peak_bytes = has_price ? (int64_t)ceil(of->peak_bytes[i]) : 0,
        .host_bytes = has_price ? (int64_t)ceil(of->host_bytes[i]) : 0,
        .fate = has_price ? MIST_FATE_FRONTIER : MIST_FATE_NO_PRICE,
    };

    memcpy(row.offload, knobs.offload, sizeof row.offload);
    return row;
}

/* Rows of the log: all of the base, and what is kept of the rest. */
static enum mist_status describe(struct filling *at,
                                 const struct mist_search_columns *kept)
{
    struct mist_search_work *work = at->work;

    work->rows = malloc((at->base.n + kept->n + 1) * sizeof *work->rows);
    if (!work->rows)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < at->base.n; i++) {
        struct mist_search_row *row = &work->rows[work->n_rows++];
        *row = make_row(at, &at->base, i);
        if (row->fate != MIST_FATE_NO_PRICE)
            judge_row(at, i, kept, row);
    }
    for (size_t i = 0; i < kept->n; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(kept, i);
        if (mist_search_is_offloaded(&knobs))
            work->rows[work->n_rows++] = make_row(at, kept, i);
    }
    return MIST_OK;
}

/* Thins the frontiers out to kept, which gets room for them. */
static enum mist_status thin(struct filling *at, struct mist_search_columns *kept)
{
    const struct mist_search_work *work = at->work;
    size_t max_points = at->config->max_points, n_all = 0, most = 1;
    enum mist_status status = MIST_OK;

    for (int32_t l = work->layers_min; l <= work->layers_max; l++) {
        n_all += at->frontiers[l].n;
        most = at->frontiers[l].n > most ? at->frontiers[l].n : most;
    }
    struct mist_pareto_point *points = malloc(most * sizeof *points);
    if (!points || !mist_search_alloc_columns(kept, n_all + 1))
        status = mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t l = work->layers_min; l <= work->layers_max && status == MIST_OK; l++) {
        const struct mist_pareto_frontier *from = &at->frontiers[l];
        size_t n = 0;
        status = mist_pareto_sample(from->points, from->n,
                                    max_points > 0 ? max_points : from->n,
                                    work->kind.n_micro_batches, points, &n, at->err);
        for (size_t i = 0; i < n && status == MIST_OK; i++) {
            struct mist_search_knobs knobs = mist_search_unpack_knobs(points[i].payload);
            mist_search_add_row(kept, l, &knobs);
        }
    }
    free(points);
    return status;
}

static enum mist_status add_options(struct filling *at,
                                    const struct mist_search_columns *kept)
{
    struct mist_search_work *work = at->work;

    work->choices = malloc((kept->n + 1) * sizeof *work->choices);
    work->options = malloc((kept->n + 1) * sizeof *work->options);
    if (!work->choices || !work->options)
        return mist_err_set(at->err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < kept->n; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(kept, i);
        struct mist_pareto_point point = make_point(at, kept, i);
        struct mist_search_choice *choice = &work->choices[work->n_options];
        *choice = (struct mist_search_choice){
            .shape = work->kind.shape,
            .n_layers = (int32_t)kept->n_layers[i],
            .n_checkpointed = knobs.n_checkpointed,
            .zero = knobs.zero,
            .micro_batch = work->kind.micro_batch,
            .t_s = kept->t_s[i],
            .d_s = kept->d_s[i],
            .peak_bytes = point.memory_bytes,
            .host_bytes = (int64_t)ceil(kept->host_bytes[i]),
        };
        memcpy(choice->offload, knobs.offload, sizeof choice->offload);
        work->options[work->n_options++] = (struct mist_stage_option){
            .n_layers = choice->n_layers,
            .n_devices = mist_space_n_devices(&choice->shape),
            .t_s = point.t_s,
            .d_s = point.d_s,
        };
    }
    return MIST_OK;
}

/* What the frontiers kept, priced again; not counted twice. */
static enum mist_status finish(struct filling *at)
{
    struct mist_search_columns kept = {0};
    int64_t n_priced = at->work->n_priced;
    enum mist_status status = thin(at, &kept);

    if (status == MIST_OK)
        status = price_columns(at, &kept);
    at->work->n_priced = n_priced;
    if (status == MIST_OK)
        status = add_options(at, &kept);
    if (status == MIST_OK && at->config->keeps_rows)
        status = describe(at, &kept);
    mist_search_free_columns(&kept);
    return status;
}

static bool alloc_filling(struct filling *at)
{
    struct mist_search_work *work = at->work;
    size_t n = (size_t)work->layers_max + 1;

    work->least_bytes = malloc(n * sizeof *work->least_bytes);
    at->frontiers = calloc(n, sizeof *at->frontiers);
    at->points = malloc(BLOCK * sizeof *at->points);
    if (!work->least_bytes || !at->frontiers || !at->points)
        return false;
    for (size_t l = 0; l < n; l++)
        work->least_bytes[l] = INT64_MAX;
    return mist_search_alloc_columns(&at->block, BLOCK) &&
           mist_search_alloc_columns(&at->base, count_base(at->space, work) + 1);
}

enum mist_status mist_search_fill_work(const struct mist_space *space,
                                       const struct mist_search_config *config,
                                       struct mist_search_work *work,
                                       struct mist_err *err)
{
    struct filling at = {.space = space, .config = config, .work = work, .err = err};
    enum mist_status status = alloc_filling(&at)
                                  ? MIST_OK
                                  : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");

    if (status == MIST_OK) {
        list_base(&at);
        status = price_columns(&at, &at.base);
    }
    if (status == MIST_OK)
        status = merge_columns(&at, &at.base);
    if (status == MIST_OK && mist_space_n_ratios(space) > 1)
        status = offload(&at);
    if (status == MIST_OK)
        status = finish(&at);
    for (int32_t l = 0; at.frontiers && l <= work->layers_max; l++)
        mist_pareto_fini(&at.frontiers[l]);
    free(at.frontiers);
    free(at.points);
    mist_search_free_columns(&at.base);
    mist_search_free_columns(&at.block);
    return status;
}

void mist_search_fini_work(struct mist_search_work *work)
{
    free(work->choices);
    free(work->options);
    free(work->least_bytes);
    free(work->rows);
    *work = (struct mist_search_work){0};
}
