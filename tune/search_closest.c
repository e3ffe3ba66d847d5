/* How much memory a case needs at the very least: a bottleneck path.
 * See search_internal.h. */
#include "tune/search_internal.h"

#include <stdlib.h>

/* The next stage: least[d][l] of the stages so far to next[d][l] with one more. */
static void add_stage(const struct mist_space *space, const struct mist_space_case *of,
                      const struct mist_search_work *const *works, const int64_t *least,
                      int64_t *next)
{
    int32_t n_layers = space->model.n_layers, n_ranks = space->n_ranks;
    size_t row = (size_t)n_layers + 1, n = row * ((size_t)n_ranks + 1);

    for (size_t i = 0; i < n; i++)
        next[i] = INT64_MAX;
    for (size_t i = 0; i < n; i++) {
        int32_t d = (int32_t)(i / row), l = (int32_t)(i % row);
        if (least[i] == INT64_MAX)
            continue;
        for (int32_t k = 0; k < of->n_dps && d + of->dps[k] <= n_ranks; k++)
            for (int32_t x = of->layers_min; x <= of->layers_max && l + x <= n_layers;
                 x++) {
                int64_t *to = &next[(size_t)(d + of->dps[k]) * row + (size_t)(l + x)];
                int64_t bytes = works[k]->least_bytes[x];
                bytes = bytes > least[i] ? bytes : least[i];
                *to = bytes < *to ? bytes : *to;
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
        add_stage(space, of, works + (size_t)i * (size_t)of->n_dps, least, next);
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
