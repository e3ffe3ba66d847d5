/*
 * The memory of a stage: largest sums of what lives at once, as formulas. See
 * stage_model.h for what they promise, stage_model_internal.h for the symbols.
 *
 * Live at once on the device: what outlives the iteration; what every micro-batch in
 * flight keeps there; and around the busiest pass, a backward or the optimizer step, what
 * has been brought for it and the next one, and what waits behind it.
 */
#include "sim/stage_model_internal.h"

#define EMBEDDING MIST_LAYER_EMBEDDING
#define BLOCK     MIST_LAYER_BLOCK
#define HEAD      MIST_LAYER_HEAD

typedef struct mist_stage_writer writer;

static mist_expr num(writer *at, double value)
{
    return mist_stage_num(at, value);
}

static mist_expr add(writer *at, mist_expr a, mist_expr b)
{
    return mist_stage_add(at, a, b);
}

static mist_expr sub(writer *at, mist_expr a, mist_expr b)
{
    return mist_stage_sub(at, a, b);
}

static mist_expr mul(writer *at, mist_expr a, mist_expr b)
{
    return mist_stage_mul(at, a, b);
}

static mist_expr max(writer *at, mist_expr a, mist_expr b)
{
    return mist_stage_max(at, a, b);
}

static mist_expr of(writer *at, enum mist_stage_value value, enum mist_layer_kind kind)
{
    return mist_stage_of(at, value, kind);
}

/* -------------------------------------------------------------------------- parameters
 */

static mist_expr by_level(writer *at, enum mist_layer_kind kind, int level,
                          enum mist_stage_value whole, enum mist_stage_value shard)
{
    return mist_stage_by_zero(at, level, of(at, shard, kind), of(at, whole, kind));
}

static mist_expr weights(writer *at, enum mist_layer_kind kind)
{
    return by_level(at, kind, 3, MIST_STAGE_WEIGHTS_0, MIST_STAGE_WEIGHTS_1);
}

static mist_expr gradients(writer *at, enum mist_layer_kind kind)
{
    return by_level(at, kind, 2, MIST_STAGE_GRADIENTS_0, MIST_STAGE_GRADIENTS_1);
}

static mist_expr state(writer *at, enum mist_layer_kind kind)
{
    return by_level(at, kind, 1, MIST_STAGE_STATE_0, MIST_STAGE_STATE_1);
}

/* Share of a module's parameters that is offloaded. */
static mist_expr offloaded(writer *at, enum mist_layer_kind kind, int ratio)
{
    double none;

    if (mist_expr_is_const(at->pool, at->ratio[ratio], &none))
        return at->ratio[ratio];
    mist_expr matrices =
        add(at, of(at, MIST_STAGE_MATRIX_A, kind), of(at, MIST_STAGE_MATRIX_B, kind));

    return mul(at, mist_stage_share(at, kind, ratio),
               mist_expr_div(at->pool, matrices, of(at, MIST_STAGE_ELEMENTS, kind)));
}

static mist_expr homes(writer *at, enum mist_layer_kind kind)
{
    return add(at, add(at, weights(at, kind), gradients(at, kind)), state(at, kind));
}

/* Of these, in the host. */
static mist_expr homes_in_host(writer *at, enum mist_layer_kind kind)
{
    mist_expr w = mul(at, offloaded(at, kind, MIST_RATIO_WEIGHTS), weights(at, kind));
    mist_expr g = mul(at, offloaded(at, kind, MIST_RATIO_GRADIENTS), gradients(at, kind));
    mist_expr s = mul(at, offloaded(at, kind, MIST_RATIO_STATE), state(at, kind));

    return add(at, add(at, w, g), s);
}

static mist_expr persistent(writer *at)
{
    mist_expr tokens = mul(at, at->n_micro_batches, at->value[MIST_STAGE_TOKENS]);
    mist_expr modules =
        sub(at, mist_stage_all(at, homes), mist_stage_all(at, homes_in_host));

    return add(at, add(at, modules, at->value[MIST_STAGE_CONSTANT]), tokens);
}

/* Weights of a module that are put together for each pass. */
static mist_expr brought(writer *at, enum mist_layer_kind kind)
{
    mist_expr whole = of(at, MIST_STAGE_WEIGHTS_0, kind);
    mist_expr swapped = mul(at, offloaded(at, kind, MIST_RATIO_WEIGHTS), whole);

    return mist_stage_by_zero(at, 3, whole, swapped);
}

/* Gradients of a module that are new for each micro-batch. */
static mist_expr fresh(writer *at, enum mist_layer_kind kind)
{
    mist_expr whole = of(at, MIST_STAGE_GRADIENTS_0, kind);
    mist_expr swapped = mul(at, offloaded(at, kind, MIST_RATIO_GRADIENTS), whole);

    return mist_stage_by_zero(at, 2, whole, swapped);
}

/* The sum so far while a micro-batch's is added to it. */
static mist_expr sum_so_far(writer *at, enum mist_layer_kind kind)
{
    mist_expr shard = mul(at, offloaded(at, kind, MIST_RATIO_GRADIENTS),
                          of(at, MIST_STAGE_GRADIENTS_1, kind));

    return mist_stage_by_zero(at, 2, shard, num(at, 0));
}

/* Buffers of an optimizer step. */
static mist_expr stepping(writer *at, enum mist_layer_kind kind)
{
    mist_expr s = mul(at, offloaded(at, kind, MIST_RATIO_STATE), state(at, kind));
    mist_expr g =
        mul(at, offloaded(at, kind, MIST_RATIO_GRADIENTS),
            by_level(at, kind, 1, MIST_STAGE_GRADIENTS_0, MIST_STAGE_GRADIENTS_1));

    return add(at, s, g);
}

/* ------------------------------------------------------------------------- activations
 */

/* Kept by each micro-batch in flight, wherever. */
static mist_expr kept(writer *at)
{
    mist_expr u = at->value[MIST_STAGE_BOUNDARY];
    mist_expr n_kept = sub(at, at->n_layers, at->n_checkpointed);

    return add(at, mul(at, add(at, at->n_layers, num(at, at->is_last)), u),
               add(at, mul(at, n_kept, of(at, MIST_STAGE_SAVED, BLOCK)),
                   of(at, MIST_STAGE_SAVED, HEAD)));
}

/* What a block keeps, the last or the first of the stage. */
static mist_expr kept_by_one(writer *at, bool is_last)
{
    mist_expr n_kept = sub(at, at->n_layers, at->n_checkpointed);
    mist_expr saved = of(at, MIST_STAGE_SAVED, BLOCK), none = num(at, 0);
    mist_expr more =
        is_last ? mist_expr_select_le(at->pool, n_kept, none, none, saved)
                : mist_expr_select_le(at->pool, at->n_checkpointed, none, saved, none);

    return add(at, at->value[MIST_STAGE_BOUNDARY], more);
}

/* Blocks of a micro-batch whose backward is too near to swap in between. */
static mist_expr n_near(writer *at)
{
    return mist_expr_select_le(at->pool, at->in_flight, num(at, 1),
                               num(at, at->is_last ? 1 : 2), num(at, 0));
}

/* Of what all micro-batches in flight keep, the part that can be in the host. */
static mist_expr swappable(writer *at)
{
    mist_expr blocks = sub(at, kept(at), num(at, 0));

    if (at->is_last)
        blocks =
            sub(at, blocks,
                add(at, at->value[MIST_STAGE_BOUNDARY], of(at, MIST_STAGE_SAVED, HEAD)));
    mist_expr near = mul(at, n_near(at), kept_by_one(at, true));
    return max(at, num(at, 0), sub(at, mul(at, at->in_flight, blocks), near));
}

/* ------------------------------------------------------------------------------ device
 */

/* Around a pass of a block, with everything kept on the device. */
static mist_expr around_pass(writer *at, bool is_backward)
{
    mist_expr u = at->value[MIST_STAGE_BOUNDARY];
    mist_expr n_kept = sub(at, at->n_layers, at->n_checkpointed);
    mist_expr saved = of(at, MIST_STAGE_SAVED, BLOCK);
    /* a checkpointed block's saved tensors while it runs */
    mist_expr sum = mist_expr_select_le(at->pool, n_kept, num(at, 0), saved, num(at, 0));

    if (is_backward)
        sum = add(
            at, sum,
            add(at, mul(at, num(at, 2), u), of(at, MIST_STAGE_SCRATCH_BACKWARD, BLOCK)));
    else
        sum = add(at, sum, add(at, u, of(at, MIST_STAGE_SCRATCH_FORWARD, BLOCK)));
    if (at->is_last) /* the head's input and saved tensors are gone when the blocks' turn
                        comes, or not there yet */
        sum = sub(at, sum, add(at, u, of(at, MIST_STAGE_SAVED, HEAD)));
    if (is_backward && !at->is_first) /* the next micro-batch's input has come */
        sum = add(at, sum,
                  mist_expr_select_le(at->pool, at->n_micro_batches, at->in_flight,
                                      num(at, 0), u));
    return sum;
}

/* More around a backward: two modules' weights, and gradients. */
static mist_expr moved_backward(writer *at)
{
    mist_expr two = num(at, 2);
    mist_expr three = mist_stage_by_zero(at, 2, num(at, 3), two);
    mist_expr n = at->n_layers;

    return add(at,
               add(at, mul(at, mist_expr_min(at->pool, n, two), brought(at, BLOCK)),
                   mul(at, mist_expr_min(at->pool, n, three), fresh(at, BLOCK))),
               sum_so_far(at, BLOCK));
}

/* What the head's turn has: its weights and gradients, and those of the block below. */
static mist_expr around_head(writer *at)
{
    mist_expr u = at->value[MIST_STAGE_BOUNDARY];
    mist_expr moved = add(at, add(at, brought(at, HEAD), brought(at, BLOCK)),
                          add(at, fresh(at, HEAD), fresh(at, BLOCK)));
    mist_expr backward =
        add(at, moved, add(at, u, of(at, MIST_STAGE_SCRATCH_BACKWARD, HEAD)));
    mist_expr forward = add(at, moved, of(at, MIST_STAGE_SCRATCH_FORWARD, HEAD));

    if (!at->is_first)
        backward = add(at, backward,
                       mist_expr_select_le(at->pool, at->n_micro_batches, at->in_flight,
                                           num(at, 0), u));
    return max(at, backward, forward);
}

/* Swapped activations that are on the device around a backward: of the block and of the
 * one before it. */
static mist_expr swapped_near(writer *at)
{
    mist_expr two = mist_expr_min(at->pool, at->n_layers, num(at, 2));
    mist_expr one = kept_by_one(at, true);

    return mul(at, at->ratio[MIST_RATIO_KEPT], mul(at, two, one));
}

static mist_expr device(writer *at)
{
    mist_expr all = mul(at, at->in_flight, kept(at));
    mist_expr away = mul(at, at->ratio[MIST_RATIO_KEPT], swappable(at));
    mist_expr here = sub(at, all, away);
    mist_expr two_weights =
        mul(at, mist_expr_min(at->pool, at->n_layers, num(at, 2)), brought(at, BLOCK));
    mist_expr backward =
        add(at, add(at, around_pass(at, true), swapped_near(at)), moved_backward(at));
    mist_expr forward = add(at, around_pass(at, false), two_weights);
    mist_expr most = max(at, forward, backward);
    mist_expr step = add(at, stepping(at, BLOCK), two_weights);

    if (at->is_last)
        most = max(at, most, around_head(at));
    most = add(at, here, most);
    if (at->offloads) {
        /* during the first forward one micro-batch is in flight */
        mist_expr one = mist_expr_div(at->pool, here, at->in_flight);
        step = add(at, one, add(at, around_pass(at, false), step));
        if (at->is_last)
            step = max(at, step,
                       add(at, one, add(at, stepping(at, HEAD), brought(at, HEAD))));
        if (at->is_first)
            step =
                max(at, step, add(at, stepping(at, EMBEDDING), brought(at, EMBEDDING)));
        most = max(at, most, step);
    }
    return add(at, persistent(at), most);
}

static mist_expr host(writer *at)
{
    mist_expr away = mul(at, at->ratio[MIST_RATIO_KEPT], swappable(at));

    return add(at, mist_stage_all(at, homes_in_host), away);
}

void mist_stage_model_write_memory(struct mist_stage_writer *at,
                                   mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    outputs[MIST_STAGE_PEAK] = device(at);
    outputs[MIST_STAGE_HOST] = host(at);
}
