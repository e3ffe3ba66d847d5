/*
 * Offloading: the ratios that bring a configuration below the limit of memory. See
 * search.h, step 4.
 *
 * A configuration is worth a look if it is over the limit, and would be on the frontier if
 * it were not. More of a ratio takes no less time and no more memory, so a box of ratios
 * holds nothing new if its most does not fit, or if the frontier turns its least away. Every
 * other box is halved until there is none: branch and bound, which loses nothing. The ratio
 * that saves the most memory over the width of the box is halved first, as the lower half
 * then rarely fits. It begins with a box for every set of the four that are offloaded at all:
 * all of the four is not always the least memory, as what moves needs room on its way.
 *
 * Numbers of layers come one after the other, as a layer more takes no less memory: what is
 * over the limit with all its ratios is so with another layer, and needs no look.
 *
 * The least memory of all ratios is found the same way, with a limit that sinks to what was
 * found, and no frontier. Where it is the host's that sinks, one number of layers says nothing
 * of the next.
 */
#include "tune/search_filling.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_SETS = 1 << MIST_N_OFFLOADS,
    N_FEW = 1024 /* boxes that are not worth pricing by themselves */
};

/* Configurations of one row of the base that differ in their ratios. */
struct box {
    size_t i_base;
    int8_t least[MIST_N_OFFLOADS], most[MIST_N_OFFLOADS];
    bool updates_on_host;
    bool asks_for_most; /* to be priced next; else the least, and the most has been */
    bool has_least;     /* which has been priced */
    double t_s, d_s;    /* none of them takes less */
    double bytes;       /* likewise, of device memory */
    double host_bytes;  /* and of the host's */
};

struct boxes {
    struct box *of; /* owned; [n] */
    size_t n, capacity;
};

struct offloading {
    struct mist_search_filling *filling;
    struct boxes boxes; /* that may hold something new */
    /* by row of the base: what all of one ratio alone saves */
    double (*saved_bytes)[MIST_N_OFFLOADS];
    /* likewise: none of its ratios that the host holds takes less device memory */
    double *floor_bytes;
    /* the same by what else a row is (find_class()), with a layer less; -1: there is none */
    double *floors;
    size_t n_floors;
};

static enum mist_status add_box(struct boxes *to, const struct box *box,
                                struct mist_err *err)
{
    return MIST_APPEND(to->of, to->capacity, to->n, *box) ? MIST_OK
                                                          : mist_err_memory(err, NULL);
}

static bool is_one(const struct box *box)
{
    return memcmp(box->least, box->most, sizeof box->least) == 0;
}

/* Whether nothing is known yet that is as good as all of the box. */
static bool is_hopeful(const struct mist_search_filling *filling, const struct box *box)
{
    struct mist_pareto_point bound = {
        .t_s = box->t_s, .d_s = box->d_s, .payload = INT64_MAX};
    int32_t n_layers = (int32_t)filling->base.n_layers[box->i_base];

    if (filling->work->finds_least)
        return box->bytes <= (double)mist_search_device_limit(filling, n_layers) &&
               box->host_bytes <= (double)mist_search_host_limit(filling, n_layers);
    return mist_search_is_fast(filling->work, box->t_s, box->d_s) &&
           !mist_pareto_covers(&filling->frontiers[n_layers], &bound);
}

/* Keeps what is saved if one ratio alone is offloaded, all of it; row i of the block. */
static void note_saved(struct offloading *at, const struct box *box, size_t i)
{
    const struct mist_search_filling *filling = at->filling;
    int n_offloaded = 0, which = 0;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        if (box->most[k] > filling->ratios[k].min) {
            n_offloaded++;
            which = k;
        }
    if (n_offloaded == 1 && box->most[which] == filling->ratios[which].max)
        at->saved_bytes[box->i_base][which] =
            filling->base.peak_bytes[box->i_base] - filling->block.peak_bytes[i];
}

/* A row of the base has ratios that take no more, or may. */
static void lower_floor(struct offloading *at, size_t i_base, double bytes)
{
    at->floor_bytes[i_base] = fmin(at->floor_bytes[i_base], bytes);
}

/* Whether the box may hold something new, now that the corner that it asks for is row i of
 * the block. */
static bool judge(struct offloading *at, struct box *box, size_t i)
{
    const struct mist_search_filling *filling = at->filling;
    const struct mist_search_columns *block = &filling->block;
    bool is_priced = mist_search_is_priced(block, i);
    bool is_held = is_priced && mist_search_is_held(filling, block, i);
    double bytes = is_priced ? ceil(block->peak_bytes[i]) : 0;
    double limit_bytes = (double)mist_search_device_limit(
        filling, (int32_t)filling->base.n_layers[box->i_base]);
    bool is_kept;

    if (box->asks_for_most) {
        if (is_priced)
            note_saved(at, box, i);
        box->bytes = bytes;
        is_kept = is_priced && !is_one(box) && bytes <= limit_bytes;
    } else {
        box->has_least = true;
        if (is_priced) {
            box->t_s = block->t_s[i];
            box->d_s = block->d_s[i];
            box->host_bytes = block->host_bytes[i];
        }
        is_kept = !is_priced || is_held;
    }
    if (is_held)
        lower_floor(at, box->i_base, bytes);
    if (!is_kept && (!is_priced || box->bytes > limit_bytes))
        lower_floor(at, box->i_base, box->bytes);
    return is_kept;
}

/* Prices the block, the corners that the boxes [n] ask for, takes it into the frontiers, and
 * keeps the boxes that may hold something new. */
static enum mist_status flush(struct offloading *at, struct box *boxes, size_t n,
                              struct boxes *kept)
{
    struct mist_search_filling *filling = at->filling;
    enum mist_status status = mist_search_price_columns(filling, &filling->block, 0);

    if (status == MIST_OK)
        status = mist_search_merge_columns(filling, &filling->block, 0);
    for (size_t i = 0; i < n && status == MIST_OK; i++)
        if (judge(at, &boxes[i], i))
            status = add_box(kept, &boxes[i], filling->err);
    filling->block.n = 0;
    return status;
}

/* Prices the corners that the boxes ask for, and leaves those that may hold something new. */
static enum mist_status price(struct offloading *at)
{
    struct mist_search_filling *filling = at->filling;
    const struct boxes boxes = at->boxes;
    struct mist_search_knobs knobs = {0};
    enum mist_status status = MIST_OK;
    size_t first = 0;

    at->boxes = (struct boxes){0};
    for (size_t i = 0; i < boxes.n && status == MIST_OK; i++) {
        const struct box *box = &boxes.of[i];
        if (i == 0 || box->i_base != box[-1].i_base)
            knobs = mist_search_get_row(&filling->base, box->i_base);
        knobs.updates_on_host = box->updates_on_host;
        memcpy(knobs.offload, box->asks_for_most ? box->most : box->least,
               sizeof knobs.offload);
        mist_search_add_row(&filling->block, (int32_t)filling->base.n_layers[box->i_base],
                            &knobs);
        if (filling->block.n == filling->block.capacity || i + 1 == boxes.n) {
            status = flush(at, &boxes.of[first], i + 1 - first, &at->boxes);
            first = i + 1;
        }
    }
    free(boxes.of);
    return status;
}

/* The ratio to halve. */
static int find_widest(const struct offloading *at, const struct box *box)
{
    double most = -1;
    int widest = 0;

    for (int k = 0; k < MIST_N_OFFLOADS; k++) {
        double bytes =
            (box->most[k] - box->least[k]) * fmax(1, at->saved_bytes[box->i_base][k]);
        if (bytes > most)
            widest = k;
        most = fmax(most, bytes);
    }
    return widest;
}

/* Halves the boxes, and asks for the corners that have not been priced. */
static enum mist_status halve(struct offloading *at)
{
    struct mist_search_filling *filling = at->filling;
    const struct boxes boxes = at->boxes;
    enum mist_status status = MIST_OK;
    int unit = filling->space->ratio_step;

    at->boxes = (struct boxes){0};
    for (size_t i = 0; i < boxes.n && status == MIST_OK; i++) {
        struct box lower = boxes.of[i], upper = lower;
        int k = find_widest(at, &lower);
        if (!is_hopeful(filling, &lower)) {
            lower_floor(at, lower.i_base, lower.bytes);
            continue;
        }
        lower.most[k] =
            (int8_t)(lower.least[k] + (lower.most[k] - lower.least[k]) / unit / 2 * unit);
        lower.asks_for_most = true;
        upper.least[k] = (int8_t)(lower.most[k] + unit);
        upper.asks_for_most = false;
        upper.has_least = false;
        if (!is_one(&lower) || !lower.has_least)
            status = add_box(&at->boxes, &lower, filling->err);
        if (!is_one(&upper) && status == MIST_OK)
            status = add_box(&at->boxes, &upper, filling->err);
    }
    free(boxes.of);
    return status;
}

/* A box of a row of the base for every set of the four. */
static enum mist_status add_sets(struct offloading *at, size_t i_base)
{
    const struct mist_search_filling *filling = at->filling;
    enum mist_status status = MIST_OK;

    for (int set = 1; set < N_SETS; set++) {
        struct box box = {.i_base = i_base,
                          .asks_for_most = true,
                          .t_s = filling->base.t_s[i_base],
                          .d_s = filling->base.d_s[i_base]};
        bool can_be = true;
        for (int k = 0; k < MIST_N_OFFLOADS; k++) {
            struct mist_knob_range of = filling->ratios[k];
            bool is_in = set >> k & 1;
            can_be = can_be && (!is_in || of.min < of.max);
            box.least[k] = (int8_t)(of.min + (is_in ? filling->space->ratio_step : 0));
            box.most[k] = (int8_t)(is_in ? of.max : of.min);
        }
        for (int on_host = 0; on_host < 2 && can_be && status == MIST_OK; on_host++) {
            box.updates_on_host = on_host == 1;
            if (mist_space_allows_update(filling->space,
                                         box.least[MIST_OFFLOAD_OPTIMIZER], on_host))
                status = add_box(&at->boxes, &box, filling->err);
        }
    }
    return status;
}

/* What takes memory alike beside its layers: of those of floors, as a number. */
static size_t find_class(const struct mist_search_knobs *knobs, int32_t n_checkpointed)
{
    return ((size_t)n_checkpointed * 4 + (size_t)knobs->zero) * 2 + (knobs->n_lean > 0);
}

/* The floor of a row of the base from those that lack a layer, checkpointed or not, and are
 * known to hold no more (search.h). Some checkpointed layers are not none: with the first comes
 * what blocks are made again in. */
static double inherit_floor(const struct offloading *at, size_t i_base)
{
    const struct mist_search_filling *filling = at->filling;
    struct mist_search_knobs knobs = mist_search_get_row(&filling->base, i_base);
    int32_t c = knobs.n_checkpointed;
    double floor_bytes = at->floors[find_class(&knobs, c)];

    if (c > 1)
        floor_bytes = fmax(floor_bytes, at->floors[find_class(&knobs, c - 1)]);
    return fmax(0, floor_bytes);
}

/* The first row behind those of so many layers. */
static size_t end_layers(const struct mist_search_columns *base, size_t first, size_t end,
                         int32_t n_layers)
{
    while (first < end && (int32_t)base->n_layers[first] == n_layers)
        first++;
    return first;
}

/* The boxes of rows of one number of layers, those with the most checkpointed first: they
 * need the least offloading, and what they reach may cover others. */
static enum mist_status add_rows(struct offloading *at, size_t first, size_t end)
{
    const struct mist_search_filling *filling = at->filling;
    enum mist_status status = MIST_OK;

    for (size_t i = end; i-- > first && status == MIST_OK;) {
        int64_t limit_bytes =
            mist_search_device_limit(filling, (int32_t)filling->base.n_layers[i]);
        at->floor_bytes[i] = inherit_floor(at, i);
        if (at->floor_bytes[i] > (double)limit_bytes)
            continue;
        bool is_least = filling->work->finds_least == MIST_SEARCH_HOST_MEMORY &&
                        filling->base.peak_bytes[i] <= (double)limit_bytes;
        at->floor_bytes[i] =
            !is_least && mist_search_is_open(filling, i) ? (double)INFINITY : 0;
        if (at->floor_bytes[i] > 0)
            status = add_sets(at, i);
    }
    return status;
}

/* Looks at all ratios of the boxes there are. */
static enum mist_status explore(struct offloading *at)
{
    enum mist_status status = price(at);

    while (at->boxes.n > 0 && status == MIST_OK) {
        status = halve(at);
        if (status == MIST_OK)
            status = price(at);
    }
    return status;
}

static void clear_floors(struct offloading *at)
{
    for (size_t i = 0; i < at->n_floors; i++)
        at->floors[i] = -1;
}

/* What is known of rows, for those with a layer more; was_explored: also of those that were
 * not left out. */
static void note_floors(struct offloading *at, size_t first, size_t end,
                        bool was_explored)
{
    if (at->filling->work->finds_least == MIST_SEARCH_HOST_MEMORY)
        return;
    for (size_t i = first; i < end; i++) {
        struct mist_search_knobs knobs = mist_search_get_row(&at->filling->base, i);
        double *to = &at->floors[find_class(&knobs, knobs.n_checkpointed)];
        double floor_bytes =
            isinf(at->floor_bytes[i]) && !was_explored ? 0 : at->floor_bytes[i];
        *to = *to < 0 ? floor_bytes : fmin(*to, floor_bytes);
    }
}

/* The rows of one number of layers, from first[0] on what is not lean, from first[1] on what
 * is; behind the last. They are explored together with the next ones until there are many,
 * as pricing few at once takes longer. */
static enum mist_status offload_layers(struct offloading *at, const size_t first[2],
                                       const size_t end[2], bool is_last)
{
    enum mist_status status = MIST_OK;

    for (int k = 2; k-- > 0 && status == MIST_OK;)
        status = add_rows(at, first[k], end[k]);
    bool explores = at->boxes.n >= N_FEW || is_last;
    if (status == MIST_OK && explores)
        status = explore(at);
    clear_floors(at);
    for (int k = 0; k < 2; k++)
        note_floors(at, first[k], end[k], explores);
    return status;
}

static enum mist_status alloc_offloading(struct offloading *at)
{
    size_t n = at->filling->base.n;

    at->n_floors = ((size_t)at->filling->work->layers_max + 1) * 8;
    if (!MIST_CALLOC(at->saved_bytes, n + 1) ||
        !MIST_MALLOC(at->floor_bytes, n + at->n_floors))
        return mist_err_memory(at->filling->err, NULL);
    at->floors = at->floor_bytes + n;
    clear_floors(at);
    return MIST_OK;
}

enum mist_status mist_search_offload(struct mist_search_filling *filling)
{
    const struct mist_search_columns *base = &filling->base;
    const struct mist_search_work *work = filling->work;
    struct offloading at = {.filling = filling};
    size_t first[2] = {0, filling->first_lean}, end[2];
    enum mist_status status = alloc_offloading(&at);

    for (int32_t l = work->layers_min; l <= work->layers_max && status == MIST_OK; l++) {
        end[0] = end_layers(base, first[0], filling->first_lean, l);
        end[1] = end_layers(base, first[1], base->n, l);
        status = offload_layers(&at, first, end, l == work->layers_max);
        memcpy(first, end, sizeof first);
    }
    free(at.boxes.of);
    free(at.saved_bytes);
    free(at.floor_bytes);
    return status;
}
