/* Inside of stage_model: the template quantities and the expressions over them. */
#ifndef MIST_SIM_STAGE_MODEL_INTERNAL_H
#define MIST_SIM_STAGE_MODEL_INTERNAL_H

#include "sim/expr.h"
#include "sim/stage_model.h"

/*
 * Uniform symbols. By module kind (embedding, block, head), 0 where the stage has none:
 * seconds alone of each task, bytes of what lives as long as the run (weights, gradients,
 * state), is kept for the backward, and is needed inside a program. _0 and _1: without
 * and with sharded optimizer state. A later knob adds its lines here.
 */
#define MIST_STAGE_BY_KIND(X)                                                            \
    X(FORWARD)                                                                           \
    X(RECOMPUTE)                                                                         \
    X(BACKWARD)                                                                          \
    X(OPTIMIZER_0)                                                                       \
    X(OPTIMIZER_1)                                                                       \
    X(REDUCE_0)                                                                          \
    X(REDUCE_1)                                                                          \
    X(GATHER)                                                                            \
    X(PERSISTENT_0)                                                                      \
    X(PERSISTENT_1)                                                                      \
    X(SAVED)                                                                             \
    X(SCRATCH_FORWARD)                                                                   \
    X(SCRATCH_BACKWARD)

/* Of the stage: seconds alone of all transfers of one micro-batch in one direction, and
 * bytes: boundary activation, constants, token ids of a micro-batch, how many times (0,
 * 1, 2) a stage holds such ids; slowdown of computation and of communication beside one
 * another. */
#define MIST_STAGE_ONCE(X)                                                               \
    X(RECV_ACTIVATION)                                                                   \
    X(SEND_ACTIVATION)                                                                   \
    X(RECV_GRADIENT)                                                                     \
    X(SEND_GRADIENT)                                                                     \
    X(BOUNDARY)                                                                          \
    X(CONSTANT)                                                                          \
    X(TOKENS)                                                                            \
    X(SLOW_COMPUTE)                                                                      \
    X(SLOW_TRANSFER)

#define MIST_STAGE_ENUM_BY_KIND(name)                                                    \
    MIST_STAGE_##name,                                                                   \
        MIST_STAGE_##name##_LAST = MIST_STAGE_##name + MIST_N_LAYER_KINDS - 1,
#define MIST_STAGE_ENUM_ONCE(name) MIST_STAGE_##name,

enum mist_stage_value {
    MIST_STAGE_BY_KIND(MIST_STAGE_ENUM_BY_KIND) MIST_STAGE_ONCE(MIST_STAGE_ENUM_ONCE)
        MIST_STAGE_VALUES_USED
};

_Static_assert((int)MIST_STAGE_VALUES_USED <= (int)MIST_STAGE_N_VALUES,
               "struct mist_stage_values is too small");

/* Outputs of the expressions, in this order. */
enum { MIST_STAGE_STABLE, MIST_STAGE_EXTRA, MIST_STAGE_PEAK, MIST_STAGE_N_OUTPUTS };

/*
 * Writes the expressions of one role. symbols: [MIST_STAGE_N_COLUMNS] and
 * [MIST_STAGE_VALUES_USED] of the pool. Errors are the pool's.
 */
void mist_stage_model_write(struct mist_expr_pool *pool, bool is_first, bool is_last,
                            const mist_expr *columns, const mist_expr *values,
                            mist_expr outputs[MIST_STAGE_N_OUTPUTS]);

#endif
