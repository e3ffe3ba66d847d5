/* Inside of stage_model: the template quantities and the expressions over them. */
#ifndef MIST_SIM_STAGE_MODEL_INTERNAL_H
#define MIST_SIM_STAGE_MODEL_INTERNAL_H

#include "sim/closed_form/stage_model.h"
#include "sim/cost/interference.h"
#include "sim/schedule/schedule_piece.h"
#include "sim/symbolic/expr.h"

#define MIST_STAGE_BY_KIND(name)                                                         \
    MIST_STAGE_##name,                                                                   \
        MIST_STAGE_##name##_LAST = MIST_STAGE_##name + MIST_N_LAYER_KINDS - 1

/* Uniform symbols. */
enum mist_stage_value {
    /*
     * By module kind (embedding, block, head), 0 where the stage has none.
     *
     * Seconds: of a program with the communication inside it, and of what it computes before
     * the first such communication (all of it under tp 1); of zeroing new gradients, but for
     * what TIE has; of the sum over tensor-parallel ranks. Bytes: of parameters, gradients and
     * state (_1: of a shard), of what a block keeps and what programs need inside; elements of
     * the parameters, of the matrices that can be offloaded (the embedding has two, decided one
     * after the other), and of the largest of them.
     */
    MIST_STAGE_BY_KIND(FORWARD),
    MIST_STAGE_BY_KIND(FORWARD_START),
    MIST_STAGE_BY_KIND(RECOMPUTE),
    MIST_STAGE_BY_KIND(RECOMPUTE_START),
    MIST_STAGE_BY_KIND(REMAKE),
    MIST_STAGE_BY_KIND(BACKWARD),
    MIST_STAGE_BY_KIND(BACKWARD_START),
    MIST_STAGE_BY_KIND(BACKWARD_INPUT),
    MIST_STAGE_BY_KIND(BACKWARD_INPUT_START),
    MIST_STAGE_BY_KIND(BACKWARD_WEIGHT),
    MIST_STAGE_BY_KIND(BACKWARD_WEIGHT_START),
    MIST_STAGE_BY_KIND(ZEROING),
    MIST_STAGE_BY_KIND(REDUCE_PARTIAL),
    MIST_STAGE_BY_KIND(WEIGHTS_0),
    MIST_STAGE_BY_KIND(WEIGHTS_1),
    MIST_STAGE_BY_KIND(GRADIENTS_0),
    MIST_STAGE_BY_KIND(GRADIENTS_1),
    MIST_STAGE_BY_KIND(STATE_0),
    MIST_STAGE_BY_KIND(STATE_1),
    MIST_STAGE_BY_KIND(ELEMENTS),
    MIST_STAGE_BY_KIND(MATRIX_A),
    MIST_STAGE_BY_KIND(MATRIX_B),
    MIST_STAGE_BY_KIND(LARGEST),
    MIST_STAGE_BY_KIND(SAVED),
    MIST_STAGE_BY_KIND(SCRATCH_FORWARD),
    MIST_STAGE_BY_KIND(SCRATCH_BACKWARD),

    /* Of the stage. Seconds: all transfers of one micro-batch in one direction; copies of
     * all that a block keeps, a lean one, and of its input; the exchange of a tied weight's
     * gradient, or on one rank, where head and embedding have one each, the sum of the two and
     * zeroing the second; the last exchange of an iteration. Bytes: what a lean block keeps,
     * and what it makes again; what blocks may keep beyond a ratio; gradients of a tied weight
     * on one rank, which the head's do not count; gradients of a weight that another stage has,
     * too, and of these what is no shard of this rank, which no ZeRO cuts (the sum over ranks
     * takes EXCHANGED_SUM seconds); boundary activation, constants, token ids of a micro-batch.
     * IS_UNTIED: 1, or 0 where gradients of the ends can't be offloaded. */
    MIST_STAGE_RECV_ACTIVATION,
    MIST_STAGE_SEND_ACTIVATION,
    MIST_STAGE_RECV_GRADIENT,
    MIST_STAGE_SEND_GRADIENT,
    MIST_STAGE_KEPT_IN,
    MIST_STAGE_KEPT_OUT,
    MIST_STAGE_LEAN_IN,
    MIST_STAGE_LEAN_OUT,
    MIST_STAGE_INPUT_IN,
    MIST_STAGE_INPUT_OUT,
    MIST_STAGE_TIE,
    MIST_STAGE_EXCHANGE,
    MIST_STAGE_IS_UNTIED,
    MIST_STAGE_SAVED_LEAN,
    MIST_STAGE_REMADE,
    MIST_STAGE_KEPT_OFF,
    MIST_STAGE_TIED_GRADIENTS,
    MIST_STAGE_EXCHANGED,
    MIST_STAGE_EXCHANGED_OTHERS,
    MIST_STAGE_EXCHANGED_SUM,
    MIST_STAGE_BOUNDARY,
    MIST_STAGE_CONSTANT,
    MIST_STAGE_TOKENS,
    MIST_STAGE_VALUES_NAMED,
    /* Seconds of every piece (schedule_piece.h) on all of a module, or on its matrices
     * where the piece is for what is in the host: with ZeRO 0, with ZeRO 3. */
    MIST_STAGE_PIECES = MIST_STAGE_VALUES_NAMED,
    MIST_STAGE_VALUES_USED = MIST_STAGE_PIECES + MIST_N_PIECES * 2 * MIST_N_LAYER_KINDS
};

/* A piece's value for the embedding; those of the other kinds follow. */
static inline enum mist_stage_value mist_stage_piece(int i_piece, bool is_sharded)
{
    return (enum mist_stage_value)(MIST_STAGE_PIECES +
                                   (2 * i_piece + is_sharded) * MIST_N_LAYER_KINDS);
}

/* Bytes of a quantity of a module that outlives the iteration: whole, a shard. */
extern const enum mist_stage_value mist_stage_homes[MIST_N_QUANTITIES][2];

_Static_assert((int)MIST_STAGE_VALUES_USED <= (int)MIST_STAGE_N_VALUES,
               "struct mist_stage_values is too small");

/* What the formulas share. A by-kind quantity is value[NAME + kind]. */
struct mist_stage_writer {
    struct mist_expr_pool *pool;
    const struct mist_interference *interference;
    bool is_first, is_last;
    bool is_of_first; /* first, or a later chunk on its devices */
    bool is_ahead;    /* mist_schedule_steps_in_front() */
    bool puts_off;    /* mist_schedule_sums_behind() */
    bool offloads;    /* whether any of the four ratios is above 0 */
    bool is_cut;      /* programs communicate inside (tp > 1) */
    bool has_lean;    /* whether any block is */
    bool on_host;     /* updates of offloaded state; with offloads */
    int zero;         /* level of ZeRO; 0 under dp 1, where there is nothing to shard */
    double copy_frac; /* of the state, another framework's copy of the gradients */
    mist_expr n_layers, n_checkpointed, in_flight, n_micro_batches;
    mist_expr n_lean;   /* 0 unless has_lean */
    mist_expr ratio[4]; /* weights, gradients, state, activations; 0 unless offloads */
    bool is_split;      /* first parts of split backwards are meant */
    uint32_t which;     /* passes that are meant, as bits; 0: all */
    int n_in_row;       /* blocks in a row the most of which is meant; 0: all of them */
    const mist_expr *value;
};

enum { MIST_RATIO_WEIGHTS, MIST_RATIO_GRADIENTS, MIST_RATIO_STATE, MIST_RATIO_KEPT };

/*
 * Prices stage i_stage of plan, which is changed on the way: template quantities of its
 * shape, in out (all but the shape itself).
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

/* yes where gradients of several micro-batches add up on a rank, so that a tied head and
 * embedding there have some each (mist_piece_joins_embedding()). */
mist_expr mist_stage_if_apart(struct mist_stage_writer *at, mist_expr yes, mist_expr no);

/*
 * Time of a bundle (interference.h) whose channels take these seconds alone. Up to three
 * channels: exact. Four: the longest of them, where the last two count as what they take
 * together, and what computation and each of the others lose beside one another; which
 * leaves out that a third makes two disturb each other more.
 * Channels that are the constant 0 cost nothing.
 */
mist_expr mist_stage_bundle(struct mist_stage_writer *at,
                            const mist_expr isolated[MIST_N_CHANNELS]);

/* Share (0 .. 1) of a module kind's parameters for which all of some conditions hold and
 * none of others (MIST_IF_..._AWAY, MIST_IF_HOST_UPDATES). */
mist_expr mist_stage_share_of_all(struct mist_stage_writer *at, enum mist_layer_kind kind,
                                  uint32_t if_all, uint32_t if_none);

/* A size where a ratio is between 0 and 1; 0 where it is one of these. */
mist_expr mist_stage_if_cut(struct mist_stage_writer *at, int ratio, mist_expr size);

/* Bytes of the rooms of a module that last until then; of n blocks in a row. */
mist_expr mist_stage_rooms(struct mist_stage_writer *at, enum mist_layer_kind kind,
                           enum mist_until until, int n);

/* Seconds by stream, alone. */
struct mist_stage_work {
    mist_expr seconds[MIST_N_STREAMS];
};

/* Gradients: all; in stages without ZeRO-2 those that leave the device, that stay. */
enum mist_stage_which { MIST_STAGE_ALL, MIST_STAGE_THAT_LEAVE, MIST_STAGE_THAT_STAY };

/* Which pieces: of a moment, due under its conditions (MIST_IF_STEPS .. MIST_IF_LAST). */
struct mist_stage_when {
    enum mist_moment moment;
    uint32_t conditions;
    uint32_t only; /* those that ask for these conditions of a slab */
    uint32_t none; /* of slabs for which these don't hold */
    enum mist_stage_which which;
};

/* What they come to for one module of a kind. */
struct mist_stage_work mist_stage_pieces(struct mist_stage_writer *at,
                                         enum mist_layer_kind kind,
                                         struct mist_stage_when when);
struct mist_stage_work mist_stage_no_work(struct mist_stage_writer *at);
struct mist_stage_work mist_stage_add_work(struct mist_stage_writer *at,
                                           struct mist_stage_work a,
                                           struct mist_stage_work b);

/* level <= Z ? yes : no */
mist_expr mist_stage_by_zero(struct mist_stage_writer *at, int level, mist_expr yes,
                             mist_expr no);
/* Blocks that are not checkpointed, and those of them that are not lean: the last ones. */
mist_expr mist_stage_n_kept(struct mist_stage_writer *at);
mist_expr mist_stage_n_full(struct mist_stage_writer *at);

/* Seconds of a block, in the mean over those of its sort: what a kept one makes again as it
 * is lean; swapping out and in what a kept one keeps, or (is_kept at most 0) the input of a
 * checkpointed one; swapping out in the mean over all. */
mist_expr mist_stage_remake(struct mist_stage_writer *at);
mist_expr mist_stage_kept_out(struct mist_stage_writer *at, mist_expr is_kept);
mist_expr mist_stage_kept_in(struct mist_stage_writer *at, mist_expr is_kept);
mist_expr mist_stage_mean_kept_out(struct mist_stage_writer *at);

/* A value of a module kind; 0 where the stage has no such module. */
mist_expr mist_stage_of(struct mist_stage_writer *at, enum mist_stage_value value,
                        enum mist_layer_kind kind);
/* Sum over the modules of the stage: what one of each kind has. */
mist_expr mist_stage_total(struct mist_stage_writer *at,
                           const mist_expr of_kind[MIST_N_LAYER_KINDS]);

/* Short forms, which make formulas readable. */

static inline mist_expr num(struct mist_stage_writer *at, double value)
{
    return mist_expr_const(at->pool, value);
}

static inline mist_expr add(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_add(at->pool, a, b);
}

/* Of several, from the left. */
#define SUM(at, ...)                                                                     \
    mist_stage_sum(at, (const mist_expr[]){__VA_ARGS__},                                 \
                   sizeof((const mist_expr[]){__VA_ARGS__}) / sizeof(mist_expr))
mist_expr mist_stage_sum(struct mist_stage_writer *at, const mist_expr *terms, size_t n);

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
