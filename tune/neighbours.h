/*
 * Plans beside a plan: one knob of one stage, or of all stages at once, a step further, or a
 * checkpointed layer traded for a step of offloading.
 *
 * The closed form errs, so the fastest plan by replay may be none of those that are best
 * by it; but it is near them.
 */
#ifndef MIST_TUNE_NEIGHBOURS_H
#define MIST_TUNE_NEIGHBOURS_H

#include "tune/search.h"

/* Takes a candidate; what it says of time and memory means nothing. */
typedef enum mist_status
mist_neighbours_take(void *context, const struct mist_search_candidate *candidate,
                     struct mist_err *err);

/*
 * Gives take every plan of the space that differs from a candidate in a checkpointed layer
 * more or less, in whether layers are lean, in a level of ZeRO, in a step of one offload ratio
 * (of eighths in two, too), or in where the optimizer is updated; or in a checkpointed layer
 * more and a step of one ratio less, or the other way round: each alone may be slower, or not
 * fit. Layers and shapes stay. MIST_ERR_MEMORY, and what take returns.
 */
MIST_MUST_CHECK enum mist_status
mist_neighbours_list(const struct mist_space *space,
                     const struct mist_search_candidate *of, mist_neighbours_take *take,
                     void *context, struct mist_err *err);

#endif
