/* Inside of stage_model: the template quantities and the expressions over them. */
#ifndef MIST_SIM_STAGE_MODEL_INTERNAL_H
#define MIST_SIM_STAGE_MODEL_INTERNAL_H

#include "sim/closed_form/stage_model.h"
#include "sim/cost/interference.h"
#include "sim/symbolic/expr.h"

/*
 * Uniform symbols by module kind (embedding, block, head), 0 where the stage has none.
 *
 * Seconds: of a program with the communication inside it, and of what it computes before
 * the first such communication (all of it under tp 1); of an optimizer step on whole
 * state, on a shard, on shards of state and gradients; of one on the host at ratio 1; of
 * a sum and a gather over
 * data-parallel ranks; of copies at ratio 1, _1: of a shard. Bytes: of parameters,
 * gradients and state (_1: of a shard), of what a block keeps and what programs need
 * inside; elements of the parameters, and of the matrices that can be offloaded (the
 * embedding has two, decided one after the other).
 */
#define MIST_STAGE_BY_KIND(X)                                                            \
    X(FORWARD)                                                                           \
    X(FORWARD_START)                                                                     \
    X(RECOMPUTE)                                                                         \
    X(RECOMPUTE_START)                                                                   \
    X(BACKWARD)                                                                          \
    X(BACKWARD_START)                                                                    \
    X(UPDATE_0)                                                                          \
    X(UPDATE_1)                                                                          \
    X(UPDATE_2)                                                                          \
    X(UPDATE_HOST_0)                                                                     \
    X(UPDATE_HOST_1)                                                                     \
    X(ZEROING)                                                                           \
    X(REDUCE_0)                                                                          \
    X(REDUCE_1)                                                                          \
    X(REDUCE_PARTIAL)                                                                    \
    X(GATHER)                                                                            \
    X(ACCUMULATE)                                                                        \
    X(NORM)                                                                              \
    X(WEIGHTS_IN_0)                                                                      \
    X(WEIGHTS_IN_1)                                                                      \
    X(WEIGHTS_OUT_0)                                                                     \
    X(WEIGHTS_OUT_1)                                                                     \
    X(GRADIENTS_IN_0)                                                                    \
    X(GRADIENTS_IN_1)                                                                    \
    X(GRADIENTS_OUT_0)                                                                   \
    X(GRADIENTS_OUT_1)                                                                   \
    X(STATE_IN_0)                                                                        \
    X(STATE_IN_1)                                                                        \
    X(STATE_OUT_0)                                                                       \
    X(STATE_OUT_1)                                                                       \
    X(WEIGHTS_0)                                                                         \
    X(WEIGHTS_1)                                                                         \
    X(GRADIENTS_0)                                                                       \
    X(GRADIENTS_1)                                                                       \
    X(STATE_0)                                                                           \
    X(STATE_1)                                                                           \
    X(ELEMENTS)                                                                          \
    X(MATRIX_A)                                                                          \
    X(MATRIX_B)                                                                          \
    X(SAVED)                                                                             \
    X(SCRATCH_FORWARD)                                                                   \
    X(SCRATCH_BACKWARD)

/* Of the stage. Seconds: all transfers of one micro-batch in one direction; copies of
 * all that a block keeps, and of its input; the exchange of a tied weight's gradient; the
 * last exchange of an iteration. Bytes: boundary activation, constants, token ids of a
 * micro-batch. IS_UNTIED: 1, or 0 where gradients of the ends can't be
 * offloaded. IS_DP: 1, or 0 under dp 1, where there is nothing to shard. */
#define MIST_STAGE_ONCE(X)                                                               \
    X(RECV_ACTIVATION)                                                                   \
    X(SEND_ACTIVATION)                                                                   \
    X(RECV_GRADIENT)                                                                     \
    X(SEND_GRADIENT)                                                                     \
    X(KEPT_IN)                                                                           \
    X(KEPT_OUT)                                                                          \
    X(INPUT_IN)                                                                          \
    X(INPUT_OUT)                                                                         \
    X(TIE)                                                                               \
    X(EXCHANGE)                                                                          \
    X(IS_UNTIED)                                                                         \
    X(IS_DP)                                                                             \
    X(BOUNDARY)                                                                          \
    X(CONSTANT)                                                                          \
    X(TOKENS)

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
enum {
    MIST_STAGE_STABLE,
    MIST_STAGE_EXTRA,
    MIST_STAGE_PEAK,
    MIST_STAGE_HOST,
    MIST_STAGE_N_OUTPUTS
};

/* What the formulas share. A by-kind quantity is value[NAME + kind]. */
struct mist_stage_writer {
    struct mist_expr_pool *pool;
    const struct mist_interference *interference;
    bool is_first, is_last;
    bool offloads; /* whether any of the four ratios may be above 0 */
    bool is_cut;   /* programs communicate inside (tp > 1) */
    mist_expr n_layers, n_checkpointed, zero, in_flight, n_micro_batches;
    mist_expr ratio[4]; /* weights, gradients, state, activations; 0 unless offloads */
    mist_expr on_host;  /* 1: updates of offloaded state; 0 unless offloads */
    const mist_expr *value;
};

enum { MIST_RATIO_WEIGHTS, MIST_RATIO_GRADIENTS, MIST_RATIO_STATE, MIST_RATIO_KEPT };

/*
 * Prices stage i_stage of plan, which is changed on the way: template quantities of its
 * shape, in out (shape included).
 */
MIST_MUST_CHECK enum mist_status
mist_stage_model_price(const struct mist_cost_model *cost_model, int32_t threads,
                       struct mist_plan *plan, int32_t i_stage,
                       struct mist_stage_values *out, struct mist_err *err);

/* Writes the expressions of one role. Errors are the pool's. */
void mist_stage_model_write_time(struct mist_stage_writer *at,
                                 mist_expr outputs[MIST_STAGE_N_OUTPUTS]);
void mist_stage_model_write_memory(struct mist_stage_writer *at,
                                   mist_expr outputs[MIST_STAGE_N_OUTPUTS]);

/*
 * Time of a bundle (interference.h) whose channels take these seconds alone. Two
 * channels: exact. More: the longest of them, and what computation (or the first there
 * is) and each of the others lose beside one another, which leaves out how the others
 * disturb each other and that a third makes two disturb each other more. Channels that
 * are the constant 0 cost nothing.
 */
mist_expr mist_stage_bundle(struct mist_stage_writer *at,
                            const mist_expr isolated[MIST_N_CHANNELS]);

/* Share (0 .. 1) of the matrices of a module kind that is offloaded at a ratio. */
mist_expr mist_stage_share(struct mist_stage_writer *at, enum mist_layer_kind kind,
                           int ratio);

/* Of the share of optimizer state that the host updates, what is above the share of
 * weights or gradients (ratio) in the host: these have copies there. */
mist_expr mist_stage_host_only(struct mist_stage_writer *at, enum mist_layer_kind kind,
                               int ratio);
/* The other way round: offloaded, and not updated by the host. */
mist_expr mist_stage_device_only(struct mist_stage_writer *at, enum mist_layer_kind kind,
                                 int ratio);

/* level <= Z ? yes : no */
mist_expr mist_stage_by_zero(struct mist_stage_writer *at, int level, mist_expr yes,
                             mist_expr no);
/* A value of a module kind; 0 where the stage has no such module. */
mist_expr mist_stage_of(struct mist_stage_writer *at, enum mist_stage_value value,
                        enum mist_layer_kind kind);
/* Sum of f over the modules of the stage. */
typedef mist_expr mist_stage_part(struct mist_stage_writer *at,
                                  enum mist_layer_kind kind);
mist_expr mist_stage_all(struct mist_stage_writer *at, mist_stage_part *part);

/* Short forms, which make formulas readable. */

static inline mist_expr num(struct mist_stage_writer *at, double value)
{
    return mist_expr_const(at->pool, value);
}

static inline mist_expr add(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_add(at->pool, a, b);
}

static inline mist_expr sub(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_sub(at->pool, a, b);
}

static inline mist_expr mul(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_mul(at->pool, a, b);
}

static inline mist_expr max(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_max(at->pool, a, b);
}

static inline mist_expr of(struct mist_stage_writer *at, enum mist_stage_value value,
                           enum mist_layer_kind kind)
{
    return mist_stage_of(at, value, kind);
}

#endif
