/*
 * The state of a training run on a rank, as pieces of whole parameters: what initial
 * values, checkpoints, foreign formats and fingerprints work with, whatever the plan.
 *
 * A rank holds parts of parameters: cut by tensor parallelism, collected in slabs, cut
 * again by ZeRO, on the device or in the host. A piece is a regular part of one whole
 * parameter (struct mist_param_span) that lies contiguously in memory.
 */
#ifndef MIST_EXEC_STATE_H
#define MIST_EXEC_STATE_H

#include "core/status.h"
#include "exec/device.h"
#include "sim/plan.h"
#include "sim/schedule.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_state_kind {
    MIST_STATE_WEIGHT, /* fp32; with bf16 weights their master copy */
    MIST_STATE_MOMENT1,
    MIST_STATE_MOMENT2,
    MIST_STATE_COMPUTE_WEIGHT, /* bf16 weights as computed with (fp32: none) */
    MIST_N_STATE_KINDS
};

/* A head's weight that is the embedding's appears as that, "wte" of module 0. */
struct mist_state_piece {
    int32_t layer, i_param;
    const char *param_name;
    const struct mist_param_shape *shape; /* of the whole parameter */
    enum mist_init init;
    enum mist_state_kind kind;
    struct mist_param_span span; /* global_*: in the whole parameter; local_first 0 */
    void *data; /* n_runs * length elements, one run behind the other; fp32, or bf16 for
                   COMPUTE_WEIGHT */
};

/* Gets every piece in turn and may change its data. */
typedef enum mist_status
mist_state_fn(void *context, const struct mist_state_piece *piece, struct mist_err *err);

/*
 * Walks the pieces of one kind on this rank; streams idle, nothing left to update. Memory
 * that the host can't use is brought to it and back, slab by slab.
 *
 * is_owned_only   each element of the job exactly once: of what several ranks hold, the
 *                 share of this one. Otherwise everything that lies here.
 * Stops at the first status that is not MIST_OK and returns it.
 */
MIST_MUST_CHECK enum mist_status
mist_state_walk(const struct mist_plan *plan, const struct mist_schedule *schedule,
                struct mist_device *device, enum mist_state_kind kind, bool is_owned_only,
                mist_state_fn *fn, void *context, struct mist_err *err);

/* Writes n values at element first of a piece's data, rounded to its number format. */
void mist_state_write(const struct mist_state_piece *piece, int64_t first,
                      const float *values, int64_t n);

/* Elements of a piece. */
static inline int64_t mist_state_piece_elements(const struct mist_state_piece *piece)
{
    return piece->span.n_runs * piece->span.length;
}

#endif
