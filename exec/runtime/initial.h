/*
 * Initial parameters: normal draws by number, so that an element depends on the seed, the
 * parameter and its place there alone, whatever the plan and the device. Each piece is
 * drawn where it lies: by the device in its memory, by the host in the host's.
 */
#ifndef MIST_EXEC_INITIAL_H
#define MIST_EXEC_INITIAL_H

#include "core/status.h"
#include "exec/device/device.h"
#include "exec/operators/cpu_kernels.h" /* struct mist_draw */
#include "exec/operators/operators.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

#include <stdint.h>

/* The draws of a whole parameter of n elements, as one run from its first element on. */
struct mist_draw mist_initial_draw(const struct mist_model *model, enum mist_init init,
                                   int32_t layer, int32_t i_param, uint64_t seed,
                                   int64_t n);

/* What draws. */
struct mist_initial_parts {
    struct mist_device *device;
    const struct mist_operators *operators;
    void *backend;     /* of the operators */
    int32_t n_threads; /* of the host, >= 1; no stream needs a processor meanwhile */
};

/*
 * Fills the weights of a rank, in both number formats with bf16; padding stays as it is.
 * Streams idle. MIST_OK or an error of the device.
 */
MIST_MUST_CHECK enum mist_status mist_initial_fill(const struct mist_plan *plan,
                                                   const struct mist_schedule *schedule,
                                                   const struct mist_initial_parts *parts,
                                                   uint64_t seed, struct mist_err *err);

#endif
