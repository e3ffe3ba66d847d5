/* What grid.c and grid_messages.c share. */
#ifndef MIST_PROFILE_GRID_INTERNAL_H
#define MIST_PROFILE_GRID_INTERNAL_H

#include "profile/grid.h"

/* Storage of a module's parameters without offloading, for tp as in the variant and dp
 * data-parallel ranks. plan: scratch memory; slabs come out padded. */
struct mist_module_storage;
struct mist_plan;
void mist_grid_store(const struct mist_grid *grid, int32_t i_variant,
                     enum mist_layer_kind kind, int32_t dp, struct mist_plan *plan,
                     struct mist_module_storage *out);

/* Adds shapes and messages. plan: scratch memory. False: out of memory. */
bool mist_grid_add_messages(struct mist_grid *grid, struct mist_plan *plan);

#endif
