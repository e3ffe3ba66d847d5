/* Configurations as numbers and as columns. See search_columns.h. */
#include "tune/search_columns.h"

#include <stddef.h> /* offsetof */
#include <stdlib.h>

/* Of a number of layers, and of all that stands below the ratios. */
enum { LAYER_BITS = 20, KNOB_BITS = 2 * LAYER_BITS + 2 };

int64_t mist_search_pack_knobs(const struct mist_search_knobs *knobs)
{
    int64_t number = 0;

    number = knobs->updates_on_host;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        number = number << 4 | knobs->offload[k];
    return number << KNOB_BITS | (int64_t)knobs->n_checkpointed << (LAYER_BITS + 2) |
           (int64_t)knobs->n_lean << 2 | knobs->zero;
}

struct mist_search_knobs mist_search_unpack_knobs(int64_t number)
{
    const int64_t layers = ((int64_t)1 << LAYER_BITS) - 1;
    struct mist_search_knobs knobs = {.n_checkpointed =
                                          (int32_t)(number >> (LAYER_BITS + 2) & layers),
                                      .n_lean = (int32_t)(number >> 2 & layers),
                                      .zero = (int32_t)(number & 3)};

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        knobs.offload[k] =
            (int8_t)(number >> (KNOB_BITS + 4 * (MIST_N_OFFLOADS - 1 - k)) & 15);
    knobs.updates_on_host = number >> (KNOB_BITS + 4 * MIST_N_OFFLOADS) != 0;
    return knobs;
}

void mist_search_free_columns(struct mist_search_columns *columns)
{
    free(columns->n_layers); /* all columns are one piece */
}

_Static_assert(offsetof(struct mist_search_columns, n) ==
                   MIST_SEARCH_N_COLUMNS * sizeof(double *),
               "all columns are there by number, too");

bool mist_search_alloc_columns(struct mist_search_columns *columns, size_t capacity)
{
    double *all = malloc(capacity * MIST_SEARCH_N_COLUMNS * sizeof *all);

    for (size_t i = 0; i < MIST_SEARCH_N_COLUMNS; i++)
        columns->all[i] = all ? all + i * capacity : NULL;
    columns->n = 0;
    columns->capacity = capacity;
    return all;
}

void mist_search_add_row(struct mist_search_columns *to, int32_t n_layers,
                         const struct mist_search_knobs *knobs)
{
    size_t i = to->n++;

    to->n_layers[i] = n_layers;
    to->n_checkpointed[i] = knobs->n_checkpointed;
    to->n_lean[i] = knobs->n_lean;
    to->zero[i] = knobs->zero;
    to->on_host[i] = knobs->updates_on_host;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        to->offload[k][i] = knobs->offload[k] / (double)MIST_RATIO_ONE;
}

struct mist_search_knobs mist_search_get_row(const struct mist_search_columns *from,
                                             size_t i)
{
    struct mist_search_knobs knobs = {.n_checkpointed = (int32_t)from->n_checkpointed[i],
                                      .n_lean = (int32_t)from->n_lean[i],
                                      .zero = (int32_t)from->zero[i],
                                      .updates_on_host = from->on_host[i] > 0};

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        knobs.offload[k] = (int8_t)(from->offload[k][i] * MIST_RATIO_ONE);
    return knobs;
}
