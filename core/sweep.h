/*
 * Sweeps: "nodes=1:2:4", "global-batch=64:128": every name takes each of its values, and
 * several names all combinations, the last one changing fastest.
 *
 * What a name and a value mean is for the tool to say.
 */
#ifndef MIST_CORE_SWEEP_H
#define MIST_CORE_SWEEP_H

#include "core/status.h"

#include <stdint.h>

enum {
    MIST_SWEEP_MAX_AXES = 8,
    MIST_SWEEP_MAX_VALUES = 256,
    MIST_SWEEP_MAX_POINTS = 10000
};

struct mist_sweep_axis {
    const char *name;
    int32_t n_values;
    const char *values[MIST_SWEEP_MAX_VALUES];
};

/* Points into itself: don't copy or move. */
struct mist_sweep {
    int32_t n_axes;
    int64_t n_points;
    struct mist_sweep_axis axes[MIST_SWEEP_MAX_AXES];
    char texts[4608]; /* names and values, each ended by '\0' */
};

/*
 * items: [n], each "NAME=V1:V2:..", as an option that is a list has them. example: of such
 * an item, for messages. MIST_ERR_USAGE: an item that is none, a name twice, too many.
 */
MIST_MUST_CHECK enum mist_status mist_sweep_parse(struct mist_sweep *out,
                                                  const char *const *items, int n,
                                                  const char *example,
                                                  struct mist_err *err);

/* What an axis is at a point, 0 .. n_points - 1. */
const char *mist_sweep_value(const struct mist_sweep *sweep, int64_t i_point,
                             int32_t i_axis);

#endif
