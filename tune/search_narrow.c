/*
 * What the memory leaves of a search before it is searched. See search_internal.h.
 *
 * A layer more takes no less memory, so what does not hold some layers holds no more. In a
 * plan some stage has its share of the layers by its ranks, or more: where no kind of stage
 * holds its share, there is no plan, which takes one number of layers of each. Of the others
 * halving finds the most layers that they hold. What the other stages of a case hold at the
 * most then says how many layers are left to one at the least; a case whose stages can't hold
 * all layers has no plan.
 */
#include "tune/search_internal.h"

#include <stdint.h>
#include <stdlib.h>

/* Whether so many layers are within the limits; of none that can be priced nothing is
 * known, which counts as yes. */
static enum mist_status hold(const struct mist_space *space,
                             const struct mist_search_config *config,
                             struct mist_search_work *of, int32_t n_layers, bool *holds,
                             struct mist_err *err)
{
    struct mist_search_config how = *config;
    struct mist_search_work one = *of;

    one.n_priced = 0;
    how.rows = NULL;
    one.layers_min = one.first = one.layers_max = one.last = n_layers;
    one.finds_least = MIST_SEARCH_DEVICE_MEMORY;
    one.enough_bytes = of->limit_bytes;
    enum mist_status status = mist_search_fill_work(space, &how, &one, err);
    if (status == MIST_OK)
        *holds = one.least_bytes[n_layers] <= of->limit_bytes || !one.has_prices;
    of->n_priced += one.n_priced;
    mist_search_fini_work(&one);
    return status;
}

/* Whether it holds n_layers says what it holds at the least and at the most. */
static enum mist_status try_layers(const struct mist_space *space,
                                   const struct mist_search_config *config,
                                   struct mist_search_work *work, int32_t n_layers,
                                   struct mist_err *err)
{
    bool holds = false;
    enum mist_status status = hold(space, config, work, n_layers, &holds, err);

    if (status == MIST_OK && holds)
        work->held = n_layers;
    else if (status == MIST_OK)
        work->last = n_layers - 1;
    return status;
}

enum mist_status mist_search_try_share(const struct mist_space *space,
                                       const struct mist_search_config *config,
                                       struct mist_search_work *work,
                                       struct mist_err *err)
{
    int64_t ranks = mist_space_n_devices(&work->kind.shape);
    int32_t share =
        (int32_t)((space->model.n_layers * ranks + space->n_ranks - 1) / space->n_ranks);

    if (share < work->layers_min)
        share = work->layers_min;
    return share > work->layers_max ? MIST_OK
                                    : try_layers(space, config, work, share, err);
}

enum mist_status mist_search_find_most(const struct mist_space *space,
                                       const struct mist_search_config *config,
                                       struct mist_search_work *work,
                                       struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    while (work->held < work->last && status == MIST_OK)
        status = try_layers(space, config, work,
                            work->held + (work->last - work->held + 1) / 2, err);
    return status;
}

/* The most layers of stages that use so many ranks, with a stage more; less than 0: there
 * are none. */
static void add_stage(const struct mist_space *space, const struct mist_space_case *of,
                      struct mist_search_work *const *works, const int32_t *from,
                      int32_t *to)
{
    for (int32_t r = 0; r <= space->n_ranks; r++)
        to[r] = -1;
    for (int32_t k = 0; k < of->n_shapes; k++) {
        int32_t size = mist_space_n_devices(&of->shapes[k]);
        if (!works[k] || works[k]->last < of->layers_min)
            continue;
        int32_t most = works[k]->last < of->layers_max ? works[k]->last : of->layers_max;
        for (int32_t r = size; r <= space->n_ranks; r++)
            if (from[r - size] >= 0 && from[r - size] + most > to[r])
                to[r] = from[r - size] + most;
    }
}

/* The most that stages beside one of a shape hold; less than 0: there are none. before,
 * behind: of the stages there. */
static int32_t find_others(const struct mist_space *space, int32_t size,
                           const int32_t *before, const int32_t *behind)
{
    int32_t most = -1;

    for (int32_t r = 0; r + size <= space->n_ranks; r++) {
        int32_t rest = space->n_ranks - size - r;
        if (before[r] >= 0 && behind[rest] >= 0 && before[r] + behind[rest] > most)
            most = before[r] + behind[rest];
    }
    return most;
}

/* Layers from first on are wanted, too. */
static void want(struct mist_search_work *work, const struct mist_space_case *of,
                 int32_t first)
{
    if (first < of->layers_min)
        first = of->layers_min;
    if (first < work->first)
        work->first = first;
}

enum mist_status mist_search_narrow_case(const struct mist_space *space,
                                         const struct mist_space_case *of,
                                         struct mist_search_work *const *works,
                                         bool *can_be, struct mist_err *err)
{
    size_t row = (size_t)space->n_ranks + 1, n = (size_t)of->n_stages;
    int32_t n_layers = space->model.n_layers;

    *can_be = true;
    if (mist_search_n_alike(space, of) > 1) { /* one stage has them all */
        *can_be = works[0] && works[0]->last >= of->layers_min;
        if (*can_be)
            want(works[0], of, of->layers_min);
        return MIST_OK;
    }
    int32_t *before = malloc(2 * (n + 1) * row * sizeof *before);
    if (!before)
        return mist_err_memory(err, NULL);
    int32_t *behind = before + (n + 1) * row;
    for (size_t r = 0; r < row; r++)
        before[r] = behind[n * row + r] = r == 0 ? 0 : -1;
    for (size_t s = 0; s < n; s++) {
        size_t i = n - 1 - s;
        add_stage(space, of, works + s * (size_t)of->n_shapes, before + s * row,
                  before + (s + 1) * row);
        add_stage(space, of, works + i * (size_t)of->n_shapes, behind + (i + 1) * row,
                  behind + i * row);
    }
    *can_be = before[(n + 1) * row - 1] >= n_layers;
    for (size_t s = 0; s < n && *can_be; s++)
        for (int32_t k = 0; k < of->n_shapes; k++) {
            struct mist_search_work *work = works[s * (size_t)of->n_shapes + (size_t)k];
            int32_t others = find_others(space, mist_space_n_devices(&of->shapes[k]),
                                         before + s * row, behind + (s + 1) * row);
            if (work && others >= 0)
                want(work, of, n_layers - others);
        }
    free(before);
    return MIST_OK;
}
