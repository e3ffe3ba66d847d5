/*
 * Configurations of one kind of stage, as one number each (a point of a frontier carries
 * it) and as columns (a block is priced in them). Internal to the search_*.c files.
 */
#ifndef MIST_TUNE_SEARCH_COLUMNS_H
#define MIST_TUNE_SEARCH_COLUMNS_H

#include "tune/space.h"

/* Knobs of a configuration beside its layers. */
struct mist_search_knobs {
    int32_t n_checkpointed, n_lean, zero; /* layers below 2^20 */
    int8_t offload[MIST_N_OFFLOADS];      /* in units of 1 / MIST_RATIO_ONE */
    bool updates_on_host;                 /* with offloaded optimizer state */
};

/* Columns of configurations and their prices; all [capacity], the first n are used. */
struct mist_search_columns {
    double *n_layers, *n_checkpointed, *n_lean, *zero;
    double *offload[MIST_N_OFFLOADS], *on_host;
    double *t_s, *d_s, *peak_bytes, *host_bytes;
    size_t n, capacity;
};

/* Knobs as a number and back. Of points that are equal the one with the lowest number
 * stays: on the device, the least offloaded, then the least checkpointed, the least lean,
 * the least sharded. */
int64_t mist_search_pack_knobs(const struct mist_search_knobs *knobs);
struct mist_search_knobs mist_search_unpack_knobs(int64_t number);

/* Empty columns; false: out of memory. Freed in any case, also when all zero. */
bool mist_search_alloc_columns(struct mist_search_columns *columns, size_t capacity);
void mist_search_free_columns(struct mist_search_columns *columns);

/* Adds a row, for which there is room; reads the knobs of row i. */
void mist_search_add_row(struct mist_search_columns *to, int32_t n_layers,
                         const struct mist_search_knobs *knobs);
struct mist_search_knobs mist_search_get_row(const struct mist_search_columns *from,
                                             size_t i);

#endif
