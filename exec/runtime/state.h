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
#include "exec/device/device.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_state_kind {
    MIST_STATE_WEIGHT, /* fp32; with bf16 weights their master copy */
    MIST_STATE_MOMENT1,
    MIST_STATE_MOMENT2,
    MIST_STATE_COMPUTE_WEIGHT, /* bf16 weights as computed with (fp32: none) */
};

/* A head's weight that is the embedding's appears as that, "wte" of module 0. */
struct mist_state_piece {
    int32_t layer, i_param;
    const char *param_name;
    const struct mist_param_shape *shape; /* of the whole parameter */
    enum mist_init init;
    enum mist_state_kind kind;
    struct mist_param_span span; /* global_*: in the whole parameter; local_first 0 */
    bool is_remote;              /* its data is not for the host to touch */
};

/* Get every piece in turn, with its data: n_runs * length elements, one run behind the
 * other; fp32, or bf16 for COMPUTE_WEIGHT. */
typedef enum mist_status mist_state_read_fn(void *context,
                                            const struct mist_state_piece *piece,
                                            const void *data, struct mist_err *err);
typedef enum mist_status mist_state_write_fn(void *context,
                                             const struct mist_state_piece *piece,
                                             void *data, struct mist_err *err);

/* Which pieces are read. */
struct mist_state_choice {
    enum mist_state_kind kind;
    bool is_owned_only;     /* each element of the job exactly once: of what several ranks
                               hold, the share of this one. Otherwise all that lies here */
    int32_t layer;          /* of param_name */
    const char *param_name; /* NULL: all */
};

/*
 * Walk the pieces on this rank; streams idle, nothing left to update. Memory that the
 * host can't use is copied slab by slab, once: reading writes nothing there, and writing
 * reads nothing, so fn must set every element. Padding is zero. is_in_place: nothing is
 * copied, and fn gets pieces that are remote, too. They stop at the first status that is
 * not MIST_OK and return it.
 */
MIST_MUST_CHECK enum mist_status
mist_state_read(const struct mist_plan *plan, const struct mist_schedule *schedule,
                struct mist_device *device, const struct mist_state_choice *choice,
                mist_state_read_fn *fn, void *context, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_state_write(const struct mist_plan *plan, const struct mist_schedule *schedule,
                 struct mist_device *device, enum mist_state_kind kind, bool is_in_place,
                 mist_state_write_fn *fn, void *context, struct mist_err *err);

/* Elements of a piece. */
static inline int64_t mist_state_piece_elements(const struct mist_state_piece *piece)
{
    return piece->span.n_runs * piece->span.length;
}

#endif
