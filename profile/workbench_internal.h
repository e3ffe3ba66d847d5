/* What workbench.c and workbench_fill.c share. */
#ifndef MIST_PROFILE_WORKBENCH_INTERNAL_H
#define MIST_PROFILE_WORKBENCH_INTERNAL_H

#include "profile/workbench.h"

/* At the largest micro-batch, whole. */
static inline const struct mist_layer_layout *
mist_workbench_largest_layout(const struct mist_grid *grid, enum mist_layer_kind kind)
{
    return mist_grid_layout(grid, 0, grid->config.n_micro_batches - 1, kind);
}

/* Fills parameters, constants and tokens of an open device. */
MIST_MUST_CHECK enum mist_status mist_workbench_fill(struct mist_workbench *bench,
                                                     struct mist_err *err);

#endif
