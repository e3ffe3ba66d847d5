/*
 * Lower bounds of the cases of one G, whatever the memory. See search.h, "Bounds".
 *
 * Every role and shape is priced without offloading once; the least t by number of layers
 * is what a stage takes at least. From these, by one dynamic programme over (layers,
 * ranks) for all numbers of stages, the least sum and the least maximum of t that a case
 * can have. Where all stages have one shape, rank-seconds per layer say the same.
 */
#include "core/memory.h"
#include "core/order.h"
#include "tune/search_columns.h"
#include "tune/search_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

MIST_COMPARATOR(compare_leasts, struct mist_search_least, n_micro_batches, role, shape.dp,
                shape.cp, shape.tp, shape.is_sequence_parallel)

/* Roles and shapes of a case, to leasts; returns how many. */
static size_t list_case(const struct mist_space_case *of,
                        struct mist_search_least *leasts)
{
    size_t n = 0;

    for (int32_t s = 0; s < of->n_stages && s < 3; s++) {
        int32_t i_stage = s == 2 ? of->n_stages - 1 : s;
        for (int32_t k = 0; k < of->n_shapes; k++)
            if (mist_space_allows(of, i_stage, k))
                leasts[n++] = (struct mist_search_least){
                    .n_micro_batches = of->n_micro_batches,
                    .role = mist_search_stage_role(of->n_stages, i_stage),
                    .shape = of->shapes[k],
                    .layers_min = of->layers_min,
                    .layers_max = of->layers_max,
                };
    }
    return n;
}

/* Makes one of equal neighbours; returns how many are left. */
static size_t join_leasts(struct mist_search_least *leasts, size_t n)
{
    size_t n_left = 0;

    for (size_t i = 0; i < n; i++) {
        struct mist_search_least *last = n_left > 0 ? &leasts[n_left - 1] : NULL;
        if (!last || compare_leasts(last, &leasts[i]) != 0) {
            leasts[n_left++] = leasts[i];
            continue;
        }
        if (leasts[i].layers_min < last->layers_min)
            last->layers_min = leasts[i].layers_min;
        if (leasts[i].layers_max > last->layers_max)
            last->layers_max = leasts[i].layers_max;
    }
    return n_left;
}

/* The different roles and shapes of the cases. */
static enum mist_status list_leasts(struct mist_search_bounds *bounds,
                                    struct mist_err *err)
{
    size_t n = 0, n_layers = (size_t)bounds->space->model.n_layers;

    for (int32_t i = 0; i < bounds->n_cases; i++)
        n += 3 * (size_t)bounds->cases[i].n_shapes;
    if (!MIST_CALLOC(bounds->leasts, n + 1))
        return mist_err_memory(err, NULL);
    n = 0;
    for (int32_t i = 0; i < bounds->n_cases; i++)
        n += list_case(&bounds->cases[i], bounds->leasts + n);
    qsort(bounds->leasts, n, sizeof *bounds->leasts, compare_leasts);
    bounds->n_leasts = join_leasts(bounds->leasts, n);
    for (size_t i = 0; i < bounds->n_leasts; i++) {
        struct mist_search_least *least = &bounds->leasts[i];
        if (!MIST_CALLOC(least->is_wanted, n_layers + 1))
            return mist_err_memory(err, NULL);
    }
    return MIST_OK;
}

/* Everything that a role and shape can be without offloading, to columns that get room for
 * it; false: out of memory. */
static bool list_rows(const struct mist_space *space,
                      const struct mist_search_least *least,
                      struct mist_search_columns *columns)
{
    int32_t n_zero = mist_space_n_zero(space, &least->shape);
    size_t n = 0;

    for (int32_t l = least->layers_min; l <= least->layers_max; l++)
        n += (size_t)mist_space_n_checkpointed(space, l) * (size_t)n_zero;
    if (!mist_search_alloc_columns(columns, n + 1))
        return false;
    for (int32_t l = least->layers_min; l <= least->layers_max; l++)
        for (int32_t c = 0; c < mist_space_n_checkpointed(space, l); c++)
            for (int32_t z = 0; z < n_zero && mist_space_allows_blocks(space, l, c);
                 z++) {
                struct mist_search_knobs knobs = {.n_checkpointed = c, .zero = z};
                if (mist_space_allows_value(space, MIST_KNOB_ZERO, z))
                    mist_search_add_row(columns, l, &knobs);
            }
    return true;
}

static void take_prices(const struct mist_search_columns *columns, double *least_s)
{
    for (size_t i = 0; i < columns->n; i++) {
        double *least = &least_s[(int32_t)columns->n_layers[i]];
        if (mist_search_is_price(columns->t_s[i], columns->d_s[i],
                                 columns->peak_bytes[i]))
            *least = fmin(*least, columns->t_s[i]);
    }
}

static enum mist_status price_least(const struct mist_search_bounds *bounds,
                                    struct mist_search_least *least, struct mist_err *err)
{
    const struct mist_search_config *config = bounds->config;
    struct mist_search_kind kind = {
        .role = least->role,
        .in_flight = 1,
        .n_micro_batches = bounds->cases->n_micro_batches,
        .micro_batch = bounds->cases->samples / least->shape.dp,
        .shape = least->shape,
    };
    size_t n_layers = (size_t)bounds->space->model.n_layers;
    struct mist_search_columns columns = {0};

    if (!MIST_MALLOC(least->t_s, n_layers + 1) ||
        !list_rows(bounds->space, least, &columns)) {
        free(least->t_s);
        least->t_s = NULL;
        return mist_err_memory(err, NULL);
    }
    for (size_t l = 0; l <= n_layers; l++)
        least->t_s[l] = INFINITY;
    enum mist_status status = config->price(config->price_context, &kind, &columns, err);
    least->n_priced = (int64_t)columns.n;
    if (status == MIST_OK)
        take_prices(&columns, least->t_s);
    mist_search_free_columns(&columns);
    return status;
}

static enum mist_status price_one(void *context, int64_t i, struct mist_err *err)
{
    const struct mist_search_bounds *bounds = context;

    return bounds->leasts[i].t_s ? MIST_OK : price_least(bounds, &bounds->leasts[i], err);
}

/* Takes the prices of leasts that have been priced before, and prices the others. */
static enum mist_status price_leasts(struct mist_search_bounds *bounds,
                                     struct mist_err *err)
{
    struct mist_search_floors *floors = bounds->config->floors;
    size_t n = floors->n;

    if (!MIST_RESERVE(floors->leasts, floors->capacity, n + bounds->n_leasts + 1))
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < bounds->n_leasts; i++) {
        const struct mist_search_least *known =
            bsearch(&bounds->leasts[i], floors->leasts, n, sizeof *known, compare_leasts);
        bounds->leasts[i].t_s = known ? known->t_s : NULL;
        bounds->leasts[i].is_new = !known;
    }
    enum mist_status status = mist_thread_pool_for(
        bounds->config->pool, (int64_t)bounds->n_leasts, price_one, bounds, err);
    for (size_t i = 0; i < bounds->n_leasts; i++) {
        struct mist_search_least *of = &bounds->leasts[i];
        if (of->is_new && of->t_s)
            floors->leasts[floors->n++] = *of;
        of->rank_s = INFINITY;
        for (int32_t l = of->layers_min; l <= of->layers_max && status == MIST_OK; l++)
            of->rank_s =
                fmin(of->rank_s, of->t_s[l] * mist_space_n_devices(&of->shape) / l);
    }
    qsort(floors->leasts, floors->n, sizeof *floors->leasts, compare_leasts);
    return status;
}

void mist_search_floors_fini(struct mist_search_floors *floors)
{
    for (size_t i = 0; i < floors->n; i++)
        free(floors->leasts[i].t_s);
    for (size_t i = 0; i < floors->n_mixed; i++)
        free(floors->mixed[i].by_stages_s);
    free(floors->leasts);
    free(floors->mixed);
    *floors = (struct mist_search_floors){0};
}

const struct mist_search_least *
mist_search_find_least(const struct mist_search_bounds *bounds,
                       enum mist_search_role role, const struct mist_space_shape *shape)
{
    struct mist_search_least key = {
        .n_micro_batches = bounds->cases->n_micro_batches, .role = role, .shape = *shape};

    return bsearch(&key, bounds->leasts, bounds->n_leasts, sizeof key, compare_leasts);
}

/* -------------------------------------------------------------------------- the cases */

void mist_search_add_stage(const struct mist_space *space, const double *least,
                           const double *from, double *to, bool is_sum)
{
    int32_t n_layers = space->model.n_layers, n_ranks = space->n_ranks;
    size_t row = (size_t)n_layers + 1, n = row * ((size_t)n_ranks + 1);

    for (size_t i = 0; i < n; i++)
        to[i] = INFINITY;
    for (int32_t size = 1; size <= n_ranks; size++)
        for (int32_t x = 1; x <= n_layers; x++) {
            double one = least[(size_t)size * row + (size_t)x];
            for (int32_t d = 0; one < INFINITY && d + size <= n_ranks; d++) {
                const double *before = from + (size_t)d * row;
                double *all = to + (size_t)(d + size) * row + x;
                for (int32_t l = 0; is_sum && l + x <= n_layers; l++) {
                    double value = before[l] + one;
                    all[l] = value < all[l] ? value : all[l];
                }
                for (int32_t l = 0; !is_sum && l + x <= n_layers; l++) {
                    double value = before[l] > one ? before[l] : one;
                    all[l] = value < all[l] ? value : all[l];
                }
            }
        }
}

/* Least t of a role over all shapes, by ranks, then layers. */
static void fill_role(const struct mist_search_bounds *bounds, enum mist_search_role role,
                      double *least_s)
{
    size_t row = (size_t)bounds->space->model.n_layers + 1;
    size_t n = row * ((size_t)bounds->space->n_ranks + 1);

    for (size_t i = 0; i < n; i++)
        least_s[i] = INFINITY;
    for (size_t i = 0; i < bounds->n_leasts; i++) {
        const struct mist_search_least *of = &bounds->leasts[i];
        double *to = least_s + (size_t)mist_space_n_devices(&of->shape) * row;
        for (int32_t l = of->layers_min; of->role == role && l <= of->layers_max; l++)
            to[l] = fmin(to[l], of->t_s[l]);
    }
}

/* Least of the stages so far closed by a stage of least_s; layers and ranks used up. */
static double close_stages(const struct mist_space *space, const double *least_s,
                           const double *from, bool is_sum)
{
    size_t row = (size_t)space->model.n_layers + 1;
    double least = INFINITY;

    for (int32_t size = 1; size <= space->n_ranks; size++)
        for (int32_t x = 1; x <= space->model.n_layers; x++) {
            double t_s = least_s[(size_t)size * row + (size_t)x];
            double before_s = from[(size_t)(space->n_ranks - size) * row +
                                   (size_t)(space->model.n_layers - x)];
            double both_s = is_sum ? t_s + before_s : fmax(t_s, before_s);
            least = fmin(least, both_s);
        }
    return least;
}

static void swap(double **a, double **b)
{
    double *swapped = *a;

    *a = *b;
    *b = swapped;
}

/* Where shapes may differ: by_stages_s[S], S = 1 .. most. */
static enum mist_status bound_mixed(const struct mist_search_bounds *bounds, int32_t most,
                                    double *by_stages_s, struct mist_err *err)
{
    const struct mist_space *space = bounds->space;
    size_t n = ((size_t)space->model.n_layers + 1) * ((size_t)space->n_ranks + 1);
    double *all = malloc((MIST_N_SEARCH_ROLES + 4) * n * sizeof *all), *roles = all;
    double v = bounds->config->n_chunks, g = bounds->cases->n_micro_batches;

    if (!all)
        return mist_err_memory(err, NULL);
    double *sum_s = all + MIST_N_SEARCH_ROLES * n, *most_s = sum_s + n;
    double *next_sum_s = most_s + n, *next_most_s = next_sum_s + n;
    for (int role = 0; role < MIST_N_SEARCH_ROLES; role++)
        fill_role(bounds, (enum mist_search_role)role, roles + (size_t)role * n);
    for (size_t i = 0; i < n; i++)
        sum_s[i] = most_s[i] = i == 0 ? 0 : INFINITY;
    by_stages_s[1] = g * close_stages(space, roles + MIST_SEARCH_ONLY * n, sum_s, true);
    for (int32_t s = 2; s <= most; s++) {
        enum mist_search_role role = s == 2 ? MIST_SEARCH_FIRST : MIST_SEARCH_MIDDLE;
        const double *least_s = roles + (size_t)role * n;
        mist_search_add_stage(space, least_s, sum_s, next_sum_s, true);
        mist_search_add_stage(space, least_s, most_s, next_most_s, false);
        swap(&sum_s, &next_sum_s);
        swap(&most_s, &next_most_s);
        const double *last_s = roles + MIST_SEARCH_LAST * n;
        by_stages_s[s] = close_stages(space, last_s, sum_s, true) / v +
                         (g - 1 / v) * close_stages(space, last_s, most_s, false);
    }
    free(all);
    return MIST_OK;
}

/* The same, done once: what a part of a space takes is no less than what all of it does. */
static enum mist_status find_mixed(const struct mist_search_bounds *bounds, int32_t most,
                                   const double **by_stages_s, struct mist_err *err)
{
    struct mist_search_floors *floors = bounds->config->floors;
    int32_t g = bounds->cases->n_micro_batches, v = bounds->config->n_chunks;

    for (size_t i = 0; i < floors->n_mixed; i++)
        if (floors->mixed[i].n_micro_batches == g && floors->mixed[i].n_chunks == v) {
            *by_stages_s = floors->mixed[i].by_stages_s;
            return MIST_OK;
        }
    double *all = calloc(MIST_MAX_STAGES + 1, sizeof *all);
    if (!all ||
        !MIST_RESERVE(floors->mixed, floors->mixed_capacity, floors->n_mixed + 1)) {
        free(all);
        return mist_err_memory(err, NULL);
    }
    floors->mixed[floors->n_mixed++] = (struct mist_search_mixed){g, v, all};
    *by_stages_s = all;
    return bound_mixed(bounds, most, all, err);
}

/* One shape: S stages of the ranks, each as good as the best role. */
static double bound_equal(const struct mist_search_bounds *bounds,
                          const struct mist_space_case *of)
{
    const struct mist_space *space = bounds->space;
    double rank_s = INFINITY, v = bounds->config->n_chunks;

    for (int32_t s = 0; s < of->n_stages && s < 3; s++) {
        int32_t i_stage = s == 2 ? of->n_stages - 1 : s;
        const struct mist_search_least *least = mist_search_find_least(
            bounds, mist_search_stage_role(of->n_stages, i_stage), of->shapes);
        rank_s = least ? fmin(rank_s, least->rank_s) : rank_s;
    }
    return (of->n_micro_batches + (of->n_stages - 1) / v) * rank_s *
           space->model.n_layers / space->n_ranks;
}

static enum mist_status bound_cases(struct mist_search_bounds *bounds,
                                    struct mist_err *err)
{
    const double *by_stages_s = NULL;
    enum mist_status status = MIST_OK;
    int32_t most = 0;

    if (!MIST_CALLOC(bounds->case_s, bounds->n_cases))
        status = mist_err_memory(err, NULL);
    for (int32_t i = 0; i < bounds->n_cases; i++)
        if (bounds->cases[i].n_shapes > 1 && bounds->cases[i].n_stages > most)
            most = bounds->cases[i].n_stages;
    if (status == MIST_OK && most > 0)
        status = find_mixed(bounds, most, &by_stages_s, err);
    bounds->least_s = INFINITY;
    for (int32_t i = 0; i < bounds->n_cases && status == MIST_OK; i++) {
        const struct mist_space_case *of = &bounds->cases[i];
        /* the same sums in another order: a bit less is still a bound */
        bounds->case_s[i] = (1 - 1e-9) * (of->n_shapes > 1 ? by_stages_s[of->n_stages]
                                                           : bound_equal(bounds, of));
        bounds->least_s = fmin(bounds->least_s, bounds->case_s[i]);
    }
    return status;
}

enum mist_status mist_search_bounds_init(struct mist_search_bounds *bounds,
                                         struct mist_err *err)
{
    enum mist_status status = list_leasts(bounds, err);

    if (status == MIST_OK)
        status = price_leasts(bounds, err);
    if (status == MIST_OK)
        status = bound_cases(bounds, err);
    return status;
}

/* Least rank-seconds per layer of what may stand beside a shape: the same shape in any
 * role, or, where they may differ, anything. */
static double find_rank_s(const struct mist_search_bounds *bounds,
                          const struct mist_space_shape *shape, bool is_mixed)
{
    double rank_s = INFINITY;

    for (size_t k = 0; k < bounds->n_leasts; k++) {
        const struct mist_search_least *of = &bounds->leasts[k];
        if (is_mixed || mist_space_shapes_are_same(&of->shape, shape))
            rank_s = fmin(rank_s, of->rank_s);
    }
    return rank_s;
}

void mist_search_bounds_set(struct mist_search_bounds *bounds, double cutoff_s)
{
    const struct mist_space *space = bounds->space;
    double v = bounds->config->n_chunks, g = bounds->cases->n_micro_batches;
    bool is_mixed = false;

    for (int32_t i = 0; i < bounds->n_cases; i++)
        is_mixed = is_mixed || bounds->cases[i].n_shapes > 1;
    for (size_t i = 0; i < bounds->n_leasts; i++) {
        struct mist_search_least *of = &bounds->leasts[i];
        int32_t left = space->n_ranks - mist_space_n_devices(&of->shape);
        double rank_s = find_rank_s(bounds, &of->shape, is_mixed);
        for (int32_t l = of->layers_min; l <= of->layers_max; l++) {
            /* the others share their layers at best */
            double others_s =
                rank_s * (space->model.n_layers - l) / (left > 0 ? left : 1);
            double most_s = fmax(of->t_s[l], others_s);
            of->is_wanted[l] =
                (1 - 1e-9) * ((g - 1 / v) * most_s + (of->t_s[l] + others_s) / v) <=
                cutoff_s;
        }
    }
}

void mist_search_bounds_fini(struct mist_search_bounds *bounds)
{
    for (size_t i = 0; i < bounds->n_leasts; i++)
        free(bounds->leasts[i].is_wanted);
    free(bounds->leasts);
    free(bounds->case_s);
}
