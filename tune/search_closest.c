/* How much memory a case needs at the very least: a bottleneck path.
 * See search_internal.h. */
#include "tune/search_internal.h"

#include <stdlib.h>

/* least_bytes of a number of layers over all shapes of that many devices. */
static int64_t find_least(const struct mist_space_case *of,
                          const struct mist_search_work *const *works, int32_t n_devices,
                          int32_t n_layers)
{
    int64_t least = INT64_MAX;

    for (int32_t k = 0; k < of->n_shapes; k++)
        if (works[k] && mist_space_n_devices(&of->shapes[k]) == n_devices &&
            works[k]->least_bytes[n_layers] < least)
            least = works[k]->least_bytes[n_layers];
    return least;
}

/* The next stage: least[d][l] of the stages so far to next[d][l] with one more. */
static void add_stage(const struct mist_space *space, const struct mist_space_case *of,
                      const struct mist_search_work *const *works, const int64_t *least,
                      int64_t *next)
{
    int32_t n_layers = space->model.n_layers, n_ranks = space->n_ranks;
    size_t row = (size_t)n_layers + 1, n = row * ((size_t)n_ranks + 1);

    for (size_t i = 0; i < n; i++)
        next[i] = INT64_MAX;
    for (int32_t k = 0, size; k < of->n_shapes; k++) {
        size = mist_space_n_devices(&of->shapes[k]);
        if (k > 0 && size == mist_space_n_devices(&of->shapes[k - 1]))
            continue;
        for (int32_t x = of->layers_min; x <= of->layers_max; x++) {
            int64_t bytes = find_least(of, works, size, x);
            for (int32_t d = 0; bytes < INT64_MAX && d + size <= n_ranks; d++)
                for (int32_t l = 0; l + x <= n_layers; l++) {
                    int64_t from = least[(size_t)d * row + (size_t)l];
                    int64_t *to = &next[(size_t)(d + size) * row + (size_t)(l + x)];
                    from = bytes > from ? bytes : from;
                    *to = from < *to ? from : *to;
                }
        }
    }
}

enum mist_status mist_search_find_closest(const struct mist_space *space,
                                          const struct mist_space_case *of,
                                          const struct mist_search_work *const *works,
                                          int64_t *out, struct mist_err *err)
{
    size_t n = ((size_t)space->model.n_layers + 1) * ((size_t)space->n_ranks + 1);
    int64_t *least = malloc(n * sizeof *least), *next = malloc(n * sizeof *next);
    enum mist_status status = MIST_OK;

    if (!least || !next) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        least[i] = INT64_MAX;
    least[0] = 0;
    for (int32_t i = 0; i < of->n_stages; i++) {
        add_stage(space, of, works + (size_t)i * (size_t)of->n_shapes, least, next);
        int64_t *swapped = least;
        least = next;
        next = swapped;
    }
    *out = least[n - 1];
out:
    free(least);
    free(next);
    return status;
}
