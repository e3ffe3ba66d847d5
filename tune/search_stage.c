/*
 * Prices one kind of stage and keeps its frontiers. See search.h, steps 1 to 5.
 *
 * Configurations that are on a frontier are kept as numbers (pack) and priced once more
 * at the end: of millions that are looked at, hundreds stay.
 */
#include "tune/search_filling.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>

/* ------------------------------------------------------------- steps 1 to 3: the base */

static bool is_wanted(const struct mist_search_work *work, int32_t n_layers)
{
    return n_layers >= work->first && n_layers <= work->last &&
           (!work->is_wanted || work->is_wanted[n_layers]);
}

/* Rows that the base may get. */
static size_t count_base(const struct mist_space *space,
                         const struct mist_search_work *work)
{
    size_t n = 0, n_places = space->allows_host_updates ? 2 : 1;

    for (int32_t l = work->layers_min; l <= work->layers_max; l++)
        for (int32_t c = 0; is_wanted(work, l) && c < mist_space_n_checkpointed(space, l);
             c++)
            n += (size_t)mist_space_n_lean(space, l - c) *
                 (size_t)mist_space_n_zero(space, &work->kind.shape) * n_places;
    return n;
}

/* Adds a configuration with the least offloading to the base, with the optimizer updated
 * wherever it may be then. */
static void add_least(struct mist_search_filling *at, int32_t n_layers,
                      struct mist_search_knobs knobs)
{
    int8_t ratio = (int8_t)at->ratios[MIST_OFFLOAD_OPTIMIZER].min;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        knobs.offload[k] = (int8_t)at->ratios[k].min;
    for (int on_host = 0; on_host < 2; on_host++) {
        knobs.updates_on_host = on_host == 1;
        if (mist_space_allows_update(at->space, ratio, on_host))
            mist_search_add_row(&at->base, n_layers, &knobs);
    }
}

/* Everything that is not lean, or lean if it has to be. */
static void list_base(struct mist_search_filling *at)
{
    const struct mist_search_work *work = at->work;
    const struct mist_space *space = at->space;
    int32_t n_zero = mist_space_n_zero(space, &work->kind.shape);

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        if (at->ratios[k].min > at->ratios[k].max)
            return;
    for (int32_t l = work->layers_min; l <= work->layers_max; l++)
        for (int32_t c = 0; is_wanted(work, l) && c < mist_space_n_checkpointed(space, l);
             c++) {
            int32_t n_lean = mist_space_allows_lean(space, l - c, 0) ? 0 : l - c;
            if (!mist_space_allows_blocks(space, l, c) ||
                !mist_space_allows_lean(space, l - c, n_lean))
                continue;
            for (int32_t z = 0; z < n_zero; z++) {
                struct mist_search_knobs knobs = {
                    .n_checkpointed = c, .n_lean = n_lean, .zero = z};
                if (mist_space_allows_value(space, MIST_KNOB_ZERO, z))
                    add_least(at, l, knobs);
            }
        }
}

/* Adds what may be lean beside: what fits without being lean is never made so, as that
 * only costs time. */
static void list_lean(struct mist_search_filling *at)
{
    size_t n = at->base.n;

    for (size_t i = 0; i < n; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(&at->base, i);
        int32_t n_layers = (int32_t)at->base.n_layers[i];
        int32_t n_open = n_layers - knobs.n_checkpointed;
        if (n_open == 0 || knobs.n_lean > 0 || !mist_search_is_open(at, i) ||
            !mist_space_allows_lean(at->space, n_open, n_open))
            continue;
        knobs.n_lean = n_open;
        mist_search_add_row(&at->base, n_layers, &knobs);
    }
}

/* Prices the base and takes it into the frontiers. */
static enum mist_status fill_base(struct mist_search_filling *at)
{
    list_base(at);
    size_t n = at->first_lean = at->base.n;
    enum mist_status status = mist_search_price_columns(at, &at->base, 0);
    if (status == MIST_OK)
        status = mist_search_merge_columns(at, &at->base, 0);
    if (status != MIST_OK || mist_space_range(at->space, MIST_KNOB_LEAN).max == 0)
        return status;
    list_lean(at);
    status = mist_search_price_columns(at, &at->base, n);
    return status == MIST_OK ? mist_search_merge_columns(at, &at->base, n) : status;
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
static void judge_row(const struct mist_search_filling *at, size_t i,
                      const struct mist_search_columns *kept, struct mist_search_row *row)
{
    struct mist_pareto_point point = mist_search_make_point(&at->base, i);
    const struct mist_pareto_frontier *frontier = &at->frontiers[row->choice.n_layers];

    row->fate = MIST_FATE_DOMINATED;
    if (!mist_search_fits(at, &at->base, i))
        row->fate = MIST_FATE_OVER_LIMIT;
    else if (!mist_search_is_fast(at->work, point.t_s, point.d_s))
        row->fate = MIST_FATE_TOO_SLOW;
    for (size_t k = 0; k < frontier->n && row->fate == MIST_FATE_DOMINATED; k++) {
        const struct mist_pareto_point *other = &frontier->points[k];
        struct mist_search_knobs knobs = mist_search_unpack_knobs(other->payload);
        if (other->payload == point.payload) {
            row->fate = is_kept(kept, row->choice.n_layers, point.payload)
                            ? MIST_FATE_FRONTIER
                            : MIST_FATE_THINNED;
        } else if (other->t_s <= point.t_s && other->d_s <= point.d_s) {
            row->better_checkpointed = knobs.n_checkpointed;
            row->better_zero = knobs.zero;
            break;
        }
    }
}

/* Row i of what was priced. */
static struct mist_search_choice make_choice(const struct mist_search_filling *at,
                                             const struct mist_search_columns *of,
                                             size_t i)
{
    struct mist_search_choice choice = {
        .shape = at->work->kind.shape,
        .n_layers = (int32_t)of->n_layers[i],
        .micro_batch = at->work->kind.micro_batch,
        .knobs = mist_search_get_row(of, i),
    };

    if (mist_search_is_priced(of, i)) {
        choice.t_s = of->t_s[i];
        choice.d_s = of->d_s[i];
        choice.peak_bytes = (int64_t)ceil(of->peak_bytes[i]);
        choice.host_bytes = (int64_t)ceil(of->host_bytes[i]);
    }
    return choice;
}

static struct mist_search_row make_row(const struct mist_search_filling *at,
                                       const struct mist_search_columns *of, size_t i)
{
    return (struct mist_search_row){
        .kind = at->work->kind,
        .choice = make_choice(at, of, i),
        .fate = mist_search_is_priced(of, i) ? MIST_FATE_FRONTIER : MIST_FATE_NO_PRICE,
    };
}

/* Rows of the log: all of the base, and what is kept of the rest. */
static enum mist_status describe(struct mist_search_filling *at,
                                 const struct mist_search_columns *kept)
{
    struct mist_search_work *work = at->work;

    if (!MIST_MALLOC(work->rows, at->base.n + kept->n + 1))
        return mist_err_memory(at->err, NULL);
    for (size_t i = 0; i < at->base.n; i++) {
        struct mist_search_row *row = &work->rows[work->n_rows++];
        *row = make_row(at, &at->base, i);
        if (row->fate != MIST_FATE_NO_PRICE)
            judge_row(at, i, kept, row);
    }
    for (size_t i = 0; i < kept->n; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(kept, i);
        if (mist_search_offloads(at, &knobs))
            work->rows[work->n_rows++] = make_row(at, kept, i);
    }
    return MIST_OK;
}

/* Thins the frontiers out to kept, which gets room for them. */
static enum mist_status thin(struct mist_search_filling *at,
                             struct mist_search_columns *kept)
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
        status = mist_err_memory(at->err, NULL);
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

static enum mist_status add_options(struct mist_search_filling *at,
                                    const struct mist_search_columns *kept)
{
    struct mist_search_work *work = at->work;

    if (!MIST_MALLOC(work->choices, kept->n + 1) ||
        !MIST_MALLOC(work->options, kept->n + 1))
        return mist_err_memory(at->err, NULL);
    for (size_t i = 0; i < kept->n; i++) {
        struct mist_search_choice choice = make_choice(at, kept, i);
        work->choices[work->n_options] = choice;
        work->options[work->n_options++] = (struct mist_stage_option){
            .n_layers = choice.n_layers,
            .n_devices = mist_space_n_devices(&choice.shape),
            .t_s = choice.t_s,
            .d_s = choice.d_s,
        };
    }
    return MIST_OK;
}

/* What the frontiers kept, priced again; not counted twice. */
static enum mist_status finish(struct mist_search_filling *at)
{
    struct mist_search_columns kept = {0};
    int64_t n_priced = at->work->n_priced;
    enum mist_status status = thin(at, &kept);

    if (status == MIST_OK)
        status = mist_search_price_columns(at, &kept, 0);
    at->work->n_priced = n_priced;
    if (status == MIST_OK)
        status = add_options(at, &kept);
    if (status == MIST_OK && at->config->rows)
        status = describe(at, &kept);
    mist_search_free_columns(&kept);
    return status;
}

static bool alloc_filling(struct mist_search_filling *at)
{
    struct mist_search_work *work = at->work;
    size_t n = (size_t)work->layers_max + 1;

    if (work->finds_least) {
        if (!MIST_MALLOC(work->least_bytes, n))
            return false;
        for (size_t l = 0; l < n; l++)
            work->least_bytes[l] = INT64_MAX;
    }
    if (!MIST_CALLOC(at->frontiers, n) || !MIST_MALLOC(at->points, MIST_SEARCH_BLOCK))
        return false;
    return mist_search_alloc_columns(&at->block, MIST_SEARCH_BLOCK) &&
           mist_search_alloc_columns(&at->base, count_base(at->space, work) + 1);
}

enum mist_status mist_search_fill_work(const struct mist_space *space,
                                       const struct mist_search_config *config,
                                       struct mist_search_work *work,
                                       struct mist_err *err)
{
    struct mist_search_filling at = {
        .space = space, .config = config, .work = work, .err = err};
    enum mist_status status = alloc_filling(&at) ? MIST_OK : mist_err_memory(err, NULL);

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        at.ratios[k] = mist_space_ratios(space, k);
    if (status == MIST_OK)
        status = fill_base(&at);
    if (status == MIST_OK && mist_space_offloads(space))
        status = mist_search_offload(&at);
    if (status == MIST_OK && !work->finds_least)
        status = finish(&at);
    for (int32_t l = 0; at.frontiers && l <= work->layers_max; l++)
        mist_pareto_fini(&at.frontiers[l]);
    free(at.frontiers);
    free(at.points);
    mist_search_free_columns(&at.base);
    mist_search_free_columns(&at.block);
    return status;
}

enum mist_status mist_search_price_choice(const struct mist_search_config *config,
                                          const struct mist_search_kind *kind,
                                          struct mist_search_choice *choice,
                                          struct mist_err *err)
{
    struct mist_search_columns row;

    if (!mist_search_alloc_columns(&row, 1))
        return mist_err_memory(err, NULL);
    mist_search_add_row(&row, choice->n_layers, &choice->knobs);
    enum mist_status status = config->price(config->price_context, kind, &row, err);
    choice->t_s = row.t_s[0];
    choice->d_s = row.d_s[0];
    choice->peak_bytes = (int64_t)ceil(row.peak_bytes[0]);
    choice->host_bytes = (int64_t)ceil(row.host_bytes[0]);
    mist_search_free_columns(&row);
    return status;
}

enum mist_status mist_search_frontier(const struct mist_space *space,
                                      const struct mist_search_config *config,
                                      const struct mist_search_kind *kind,
                                      int32_t n_layers, struct mist_search_choice **out,
                                      size_t *n, struct mist_err *err)
{
    struct mist_search_work work = {.kind = *kind,
                                    .limit_bytes = config->limit_bytes,
                                    .layers_min = n_layers,
                                    .layers_max = n_layers,
                                    .first = n_layers,
                                    .last = n_layers,
                                    .most_t_s = INFINITY};
    enum mist_status status = mist_search_fill_work(space, config, &work, err);

    if (status == MIST_OK) {
        *out = work.choices;
        *n = work.n_options;
        work.choices = NULL;
    }
    mist_search_fini_work(&work);
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
