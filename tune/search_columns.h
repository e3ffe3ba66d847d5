/*
 * Configurations of one kind of stage, as one number each (a point of a frontier carries
 * it) and as columns (a block is priced in them). Internal to the search_*.c files.
 */
#ifndef MIST_TUNE_SEARCH_COLUMNS_H
#define MIST_TUNE_SEARCH_COLUMNS_H

#include "tune/search.h"

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
