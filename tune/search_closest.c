/* How much memory a case needs at the very least: a bottleneck path.
 * See search_internal.h. */
#include "tune/search_internal.h"

#include <math.h>
#include <stdlib.h>

/* Least bytes of a stage over the shapes that have so many ranks, by ranks, then layers. */
static void fill_stage(const struct mist_space *space, const struct mist_space_case *of,
                       struct mist_search_work *const *works, double *least)
{
    size_t row = (size_t)space->model.n_layers + 1;
    size_t n = row * ((size_t)space->n_ranks + 1);

    for (size_t i = 0; i < n; i++)
        least[i] = INFINITY;
    for (int32_t k = 0; k < of->n_shapes; k++) {
        double *to = least + (size_t)mist_space_n_devices(&of->shapes[k]) * row;
        for (int32_t l = of->layers_min; works[k] && l <= of->layers_max; l++)
            if (works[k]->least_bytes[l] < INT64_MAX)
                to[l] = fmin(to[l], (double)works[k]->least_bytes[l]);
    }
}

enum mist_status mist_search_closest_of(const struct mist_space *space,
                                        const struct mist_space_case *of,
                                        struct mist_search_work *const *works,
                                        int64_t *out, struct mist_err *err)
{
    if (mist_search_n_alike(space, of) > 1) {
        *out = works[0] ? works[0]->least_bytes[of->layers_min] : INT64_MAX;
        return MIST_OK;
    }
    size_t n = ((size_t)space->model.n_layers + 1) * ((size_t)space->n_ranks + 1);
    double *all = malloc(3 * n * sizeof *all), *stage = all;

    if (!all)
        return mist_err_memory(err, NULL);
    double *least = all + n, *next = least + n;
    for (size_t i = 0; i < n; i++)
        least[i] = i == 0 ? 0 : INFINITY;
    for (int32_t i = 0; i < of->n_stages; i++) {
        fill_stage(space, of, works + (size_t)i * (size_t)of->n_shapes, stage);
        mist_search_add_stage(space, stage, least, next, false);
        double *swapped = least;
        least = next;
        next = swapped;
    }
    *out = least[n - 1] < INFINITY ? (int64_t)least[n - 1] : INT64_MAX;
    free(all);
    return MIST_OK;
}
