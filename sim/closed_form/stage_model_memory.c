/*
 * The memory of a stage: largest sums of what lives at once, as formulas. See
 * stage_model.h for what they promise, stage_model_internal.h for the symbols.
 *
 * Live at once on the device: what outlives the iteration; what every micro-batch in
 * flight keeps there; and around the busiest pass, a backward or the optimizer step, what
 * has been brought for it and the next one, and what waits behind it.
 */
#include "sim/closed_form/stage_model_internal.h"

#define EMBEDDING MIST_LAYER_EMBEDDING
#define BLOCK     MIST_LAYER_BLOCK
#define HEAD      MIST_LAYER_HEAD

typedef struct mist_stage_writer writer;

/* ------------------------------------------------------------------------ parameters */

static mist_expr by_level(writer *at, enum mist_layer_kind kind, int level,
                          enum mist_stage_value whole, enum mist_stage_value shard)
{
    return mist_stage_by_zero(at, level, of(at, shard, kind), of(at, whole, kind));
}

/* Sum over the modules of the stage. */
static mist_expr all(writer *at, mist_expr part(writer *at, enum mist_layer_kind kind))
{
    const mist_expr of_kind[] = {part(at, EMBEDDING), part(at, BLOCK), part(at, HEAD)};

    return mist_stage_total(at, of_kind);
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

/* The share of a module's matrices as one of its parameters. */
static mist_expr of_parameters(writer *at, enum mist_layer_kind kind, mist_expr share)
{
    double none;

    if (mist_expr_is_const(at->pool, share, &none) && none == 0)
        return share;
    mist_expr matrices =
        add(at, of(at, MIST_STAGE_MATRIX_A, kind), of(at, MIST_STAGE_MATRIX_B, kind));

    return mul(at, share,
               mist_expr_div(at->pool, matrices, of(at, MIST_STAGE_ELEMENTS, kind)));
}

/* Share of a module's parameters that is offloaded. */
static mist_expr offloaded(writer *at, enum mist_layer_kind kind, int ratio)
{
    return of_parameters(at, kind, mist_stage_share(at, kind, ratio));
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

/* Beside them, what an update there reads and writes. */
static mist_expr copies_in_host(writer *at, enum mist_layer_kind kind)
{
    mist_expr w = of_parameters(
        at, kind,
        mist_stage_share_where(at, kind, MIST_IF_HOST_UPDATES, MIST_IF_WEIGHTS_AWAY));
    mist_expr g = of_parameters(
        at, kind,
        mist_stage_share_where(at, kind, MIST_IF_HOST_UPDATES, MIST_IF_GRADIENTS_AWAY));

    return add(
        at, mul(at, w, by_level(at, kind, 1, MIST_STAGE_WEIGHTS_0, MIST_STAGE_WEIGHTS_1)),
        mul(at, g,
            by_level(at, kind, 1, MIST_STAGE_GRADIENTS_0, MIST_STAGE_GRADIENTS_1)));
}

static mist_expr persistent(writer *at)
{
    mist_expr tokens = mul(at, at->n_micro_batches, at->value[MIST_STAGE_TOKENS]);
    mist_expr modules = sub(at, all(at, homes), all(at, homes_in_host));

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

/* Optimizer state behind its step, on its way out while the next one's is there. */
static mist_expr behind(writer *at, enum mist_layer_kind kind)
{
    return mul(at,
               of_parameters(at, kind,
                             mist_stage_share_where(at, kind, MIST_IF_STATE_AWAY,
                                                    MIST_IF_HOST_UPDATES)),
               state(at, kind));
}

/* Buffers of an optimizer step on the device. */
static mist_expr stepping(writer *at, enum mist_layer_kind kind)
{
    mist_expr s = behind(at, kind);
    mist_expr g =
        mul(at,
            of_parameters(at, kind,
                          mist_stage_share_where(at, kind, MIST_IF_GRADIENTS_AWAY,
                                                 MIST_IF_HOST_UPDATES)),
            by_level(at, kind, 1, MIST_STAGE_GRADIENTS_0, MIST_STAGE_GRADIENTS_1));

    return add(at, s, g);
}

/* ----------------------------------------------------------------------- activations */

static mist_expr n_kept_blocks(writer *at)
{
    return mist_stage_n_kept(at);
}

/* Where i is below a number of blocks, yes. */
static mist_expr if_below(writer *at, int i, mist_expr n, mist_expr yes, mist_expr no)
{
    return mist_expr_select_le(at->pool, n, num(at, i), no, yes);
}

/* Saved tensors of n blocks, the last of which n_lean are lean. */
static mist_expr saved_by(writer *at, mist_expr n, mist_expr n_lean)
{
    mist_expr less =
        sub(at, of(at, MIST_STAGE_SAVED, BLOCK), at->value[MIST_STAGE_SAVED_LEAN]);

    return sub(at, mul(at, n, of(at, MIST_STAGE_SAVED, BLOCK)), mul(at, n_lean, less));
}

/* What blocks of a micro-batch keep: their inputs and saved tensors. */
static mist_expr kept_by_blocks(writer *at)
{
    mist_expr inputs = mul(at, at->n_layers, at->value[MIST_STAGE_BOUNDARY]);

    return add(at, inputs, saved_by(at, n_kept_blocks(at), at->n_lean));
}

static mist_expr kept_by_head(writer *at)
{
    return at->is_last
               ? add(at, at->value[MIST_STAGE_BOUNDARY], of(at, MIST_STAGE_SAVED, HEAD))
               : num(at, 0);
}

/* What block i from the end keeps: 0 is the last one. */
static mist_expr kept_by_one(writer *at, int i)
{
    mist_expr saved = of(at, MIST_STAGE_SAVED, BLOCK);

    if (at->has_lean)
        saved = if_below(at, i, mist_stage_n_full(at), saved,
                         at->value[MIST_STAGE_SAVED_LEAN]);
    return add(at, at->value[MIST_STAGE_BOUNDARY],
               if_below(at, i, n_kept_blocks(at), saved, num(at, 0)));
}

/*
 * Blocks of the first micro-batch, with which memory is fullest, whose backward comes too
 * soon to swap in between (less than 3 passes). Forwards alone come in between: one where
 * a stable micro-batch has two passes (stage_model_exprs.c), hence another bound here.
 */
static mist_expr n_near(writer *at)
{
    if (at->is_last)
        return num(at, 1);
    mist_expr modules = add(at, at->n_layers, num(at, at->is_first));
    mist_expr between = mul(at, sub(at, at->in_flight, num(at, 1)), modules);

    return mist_expr_select_le(
        at->pool, at->in_flight, num(at, 1), num(at, 2),
        mist_expr_select_le(at->pool, between, num(at, 2), num(at, 1), num(at, 0)));
}

/* What the near blocks keep. */
static mist_expr kept_near(writer *at)
{
    mist_expr n = mist_expr_min(at->pool, n_near(at), at->n_layers);
    mist_expr n_saved = mist_expr_min(at->pool, n, n_kept_blocks(at));
    mist_expr n_lean = num(at, 0);

    if (at->has_lean)
        n_lean = max(at, n_lean, sub(at, n_saved, mist_stage_n_full(at)));
    return add(at, mul(at, n, at->value[MIST_STAGE_BOUNDARY]),
               saved_by(at, n_saved, n_lean));
}

/* Of what all micro-batches in flight keep, the part in the host. */
static mist_expr kept_away(writer *at)
{
    mist_expr blocks = mul(at, at->in_flight, kept_by_blocks(at));

    return mul(at, at->ratio[MIST_RATIO_KEPT], sub(at, blocks, kept_near(at)));
}

/* Of what a block keeps, the part that stays. */
static mist_expr staying(writer *at, mist_expr kept)
{
    return mul(at, sub(at, num(at, 1), at->ratio[MIST_RATIO_KEPT]), kept);
}

/* ---------------------------------------------------------------------------- device */

/* The next micro-batch's input, which has come while this one runs back. */
static mist_expr next_input(writer *at)
{
    if (at->is_first)
        return num(at, 0);
    return mist_expr_select_le(at->pool, at->n_micro_batches, at->in_flight, num(at, 0),
                               at->value[MIST_STAGE_BOUNDARY]);
}

/* Two, or one where there is one block and no pass of the next micro-batch is next to
 * one of this (or the ends' passes are in between: is_apart). */
static mist_expr up_to_two(writer *at, bool is_apart)
{
    mist_expr two = num(at, 2), few = mist_expr_min(at->pool, at->n_layers, two);

    if (is_apart)
        return few;
    return mist_expr_select_le(at->pool, at->n_micro_batches, num(at, 1), few, two);
}

static mist_expr two_brought(writer *at)
{
    return mul(at, up_to_two(at, at->is_first), brought(at, BLOCK));
}

/* Of blocks, around a backward. */
static mist_expr two_fresh(writer *at)
{
    mist_expr few = mist_expr_min(at->pool, at->n_layers, num(at, 2));
    mist_expr n =
        mist_stage_by_zero(at, 2, up_to_two(at, at->is_first || at->is_last), few);

    return mul(at, n, fresh(at, BLOCK));
}

/*
 * Gradients that are new around the first backwards: of two blocks at the last block (and
 * the head's, while they wait for their sum), of three when that block's activations are
 * gone. They wait under ZeRO-2; otherwise in the last micro-batch, when no other is in
 * flight.
 */
static mist_expr fresh_around(writer *at)
{
    mist_expr none = num(at, 0), one = num(at, 1);
    mist_expr third = add(at, fresh(at, BLOCK), sum_so_far(at, BLOCK));
    mist_expr others = mul(at, sub(at, at->in_flight, one), kept_by_blocks(at));
    mist_expr gone = mist_stage_by_zero(at, 2, none, staying(at, others));
    mist_expr later = sub(at, third, staying(at, kept_by_one(at, 0)));

    if (at->has_lean) { /* the block below the last may be the first that is lean */
        mist_expr more = if_below(
            at, 1, mist_stage_n_full(at), none,
            if_below(at, 1, n_kept_blocks(at), at->value[MIST_STAGE_REMADE], none));
        later = add(at, later, if_below(at, 0, mist_stage_n_full(at), more, none));
    }
    later = mist_expr_select_le(at->pool, num(at, 3), at->n_layers, later, none);
    if (at->is_last)
        later = max(at, later, add(at, fresh(at, HEAD), sum_so_far(at, HEAD)));
    later = max(at, none, sub(at, later, gone));
    return add(at, two_fresh(at), later);
}

/* Of the last block while it runs, if it does not keep all: its other saved tensors. */
static mist_expr again_at_top(writer *at)
{
    mist_expr some = num(at, 0);

    if (at->has_lean)
        some = if_below(at, 0, mist_stage_n_full(at), some, at->value[MIST_STAGE_REMADE]);
    return if_below(at, 0, n_kept_blocks(at), some, of(at, MIST_STAGE_SAVED, BLOCK));
}

static mist_expr scratch_backward(writer *at)
{
    return add(at, mul(at, num(at, 2), at->value[MIST_STAGE_BOUNDARY]),
               of(at, MIST_STAGE_SCRATCH_BACKWARD, BLOCK));
}

/* The last block's backward, with what all micro-batches keep. */
static mist_expr around_top(writer *at)
{
    mist_expr swapped = num(at, 0);

    if (at->is_last) /* the last block has not been swapped, the one before it has */
        swapped = mist_expr_select_le(at->pool, at->n_layers, num(at, 1), num(at, 0),
                                      kept_by_one(at, 1));
    else
        swapped = mist_expr_select_le(at->pool, at->in_flight, num(at, 1), num(at, 0),
                                      add(at, kept_by_one(at, 0), kept_by_one(at, 1)));
    mist_expr sum = add(at, add(at, again_at_top(at), scratch_backward(at)),
                        mul(at, at->ratio[MIST_RATIO_KEPT], swapped));
    /* the head's input and saved tensors are gone when the blocks' turn comes */
    sum = add(at, sub(at, sum, kept_by_head(at)), next_input(at));
    return add(at, add(at, sum, two_brought(at)), fresh_around(at));
}

/* The first block's backward, where that makes new what a checkpointed block saves, or
 * the embedding's gradients wait. */
static mist_expr around_bottom(writer *at)
{
    mist_expr u = at->value[MIST_STAGE_BOUNDARY];
    mist_expr all = of(at, MIST_STAGE_SAVED, BLOCK), none = num(at, 0);
    mist_expr some = all, rest = none; /* what a block keeps that is not checkpointed */
    if (at->has_lean) {
        some = if_below(at, 0, at->n_lean, at->value[MIST_STAGE_SAVED_LEAN], all);
        rest = if_below(at, 0, at->n_lean, at->value[MIST_STAGE_REMADE], none);
    }
    mist_expr again = if_below(at, 0, at->n_checkpointed, all, rest);
    mist_expr saved = /* where the first block keeps it */
        if_below(at, 0, at->n_checkpointed, none, some);
    mist_expr gone = sub(at, sub(at, kept_by_blocks(at), u), saved);
    mist_expr moved = add(at, brought(at, BLOCK), two_fresh(at));
    mist_expr sum = add(at, add(at, again, scratch_backward(at)), next_input(at));

    moved = add(at, moved, at->is_first ? fresh(at, EMBEDDING) : brought(at, BLOCK));
    moved = add(at, moved, sum_so_far(at, BLOCK));
    /* what this one and the last block of the next micro-batch swapped */
    mist_expr next = mist_expr_select_le(at->pool, at->in_flight, num(at, 1), num(at, 0),
                                         kept_by_one(at, 0));
    sum = add(at, sum,
              mul(at, at->ratio[MIST_RATIO_KEPT], add(at, add(at, u, saved), next)));
    sum = sub(at, sum, add(at, staying(at, gone), kept_by_head(at)));
    return add(at, sum, moved);
}

static mist_expr around_forward(writer *at)
{
    mist_expr sum = add(at, at->value[MIST_STAGE_BOUNDARY],
                        of(at, MIST_STAGE_SCRATCH_FORWARD, BLOCK));
    mist_expr moved = at->is_last ? add(at, brought(at, BLOCK),
                                        max(at, brought(at, HEAD), brought(at, BLOCK)))
                                  : two_brought(at);
    /* what it will keep and what the block before kept are there until they have left,
     * and what comes for the backward */
    mist_expr swapped =
        mist_expr_select_le(at->pool, n_near(at), num(at, 0),
                            mul(at, num(at, 3), kept_by_one(at, 0)), kept_by_one(at, 0));

    sum = add(at, sub(at, sum, kept_by_head(at)), again_at_top(at));
    return add(at, add(at, sum, moved), mul(at, at->ratio[MIST_RATIO_KEPT], swapped));
}

/* The head's turn: its weights and gradients, and those of the block below. */
static mist_expr around_head(writer *at)
{
    mist_expr backward = add(at, at->value[MIST_STAGE_BOUNDARY],
                             of(at, MIST_STAGE_SCRATCH_BACKWARD, HEAD));
    mist_expr own = add(at, brought(at, HEAD), fresh(at, HEAD));
    mist_expr below = add(at, brought(at, BLOCK), fresh(at, BLOCK));

    backward = add(at, add(at, backward, next_input(at)), below);
    return add(at, own, max(at, backward, of(at, MIST_STAGE_SCRATCH_FORWARD, HEAD)));
}

/* The optimizer step: in the first forward, of a module while the one before has not been
 * computed, or all in front. */
static mist_expr around_step(writer *at)
{
    mist_expr u = at->value[MIST_STAGE_BOUNDARY];
    mist_expr below =
        sub(at, staying(at, kept_by_blocks(at)), staying(at, kept_by_one(at, 0)));
    mist_expr step = add(at, stepping(at, BLOCK), behind(at, BLOCK));
    mist_expr block = add(at, step, two_brought(at));
    mist_expr apart = sub(at, below, staying(at, kept_by_one(at, 1)));
    mist_expr front = step;

    apart = add(at, max(at, num(at, 0), apart), add(at, u, block));
    if (at->is_last) {
        mist_expr head = add(at, stepping(at, HEAD), behind(at, BLOCK));
        mist_expr last =
            add(at, add(at, head, brought(at, HEAD)), add(at, brought(at, BLOCK), u));
        apart = max(at, apart, add(at, below, last));
        front = max(at, front, head);
    }
    if (at->is_first) {
        mist_expr second = add(at, stepping(at, BLOCK), brought(at, BLOCK));
        mist_expr embedding =
            max(at, stepping(at, EMBEDDING), add(at, second, behind(at, EMBEDDING)));
        return max(at, apart, add(at, embedding, brought(at, EMBEDDING)));
    }
    return mist_expr_select(at->pool, at->ratio[MIST_RATIO_WEIGHTS], apart, front);
}

static mist_expr device(writer *at)
{
    mist_expr kept = add(at, kept_by_blocks(at), kept_by_head(at));
    mist_expr here = sub(at, mul(at, at->in_flight, kept), kept_away(at));
    mist_expr most = max(at, around_forward(at), around_top(at));

    if (at->is_last)
        most = max(at, most, around_head(at));
    most = max(at, most, around_bottom(at));
    most = add(at, here, most);
    if (at->offloads)
        most = max(at, most, around_step(at));
    return add(at, persistent(at), most);
}

static mist_expr host(writer *at)
{
    mist_expr homes_and_copies = add(at, all(at, homes_in_host), all(at, copies_in_host));

    return add(at, homes_and_copies, kept_away(at));
}

void mist_stage_model_write_memory(struct mist_stage_writer *at,
                                   mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    outputs[MIST_STAGE_PEAK] = device(at);
    outputs[MIST_STAGE_HOST] = host(at);
}
