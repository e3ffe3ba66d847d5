/* What blocks keep for their backward, and how long it moves. See stage_model_internal.h. */
#include "sim/closed_form/stage_model_internal.h"

typedef struct mist_stage_writer writer;

/*
 * Blocks of a stable micro-batch whose backward comes too soon to swap in between (less
 * than 3 passes, schedule_leave.c): the last ones of the stage. Behind the last block's
 * forward come a forward and a backward of every module for each other micro-batch in
 * flight, 2 between, and 2 more passes for each block further down.
 */
static mist_expr n_near(writer *at)
{
    if (at->is_last)
        return num(at, 1);
    mist_expr modules = add(at, at->n_layers, num(at, at->is_first));
    mist_expr between = mul(at, sub(at, at->in_flight, num(at, 1)), modules);

    return mist_expr_select_le(
        at->pool, at->in_flight, num(at, 1), num(at, 2),
        mist_expr_select_le(at->pool, between, num(at, 1), num(at, 1), num(at, 0)));
}

/* Blocks that swap what they keep: all of it, only the input. */
static mist_expr n_kept_swapped(writer *at)
{
    return max(at, num(at, 0), sub(at, mist_stage_n_kept(at), n_near(at)));
}

static mist_expr n_inputs_swapped(writer *at)
{
    mist_expr n = max(at, num(at, 0), sub(at, at->n_layers, n_near(at)));

    return mist_expr_min(at->pool, at->n_checkpointed, n);
}

/* Share of the blocks that are not checkpointed that is lean. */
static mist_expr lean_share(writer *at)
{
    mist_expr n = max(at, num(at, 1), mist_stage_n_kept(at));

    return at->has_lean ? mist_expr_div(at->pool, at->n_lean, n) : num(at, 0);
}

/* What such a block takes, in the mean: lean, or all. */
static mist_expr mean_kept(writer *at, enum mist_stage_value all,
                           enum mist_stage_value lean)
{
    mist_expr more = sub(at, at->value[lean], at->value[all]);

    return add(at, at->value[all], mul(at, lean_share(at), more));
}

mist_expr mist_stage_remake(writer *at)
{
    return mul(at, lean_share(at), of(at, MIST_STAGE_REMAKE, MIST_LAYER_BLOCK));
}

mist_expr mist_stage_mean_kept_out(struct mist_stage_writer *at)
{
    mist_expr out = mean_kept(at, MIST_STAGE_KEPT_OUT, MIST_STAGE_LEAN_OUT);
    mist_expr sum = add(at, mul(at, n_kept_swapped(at), out),
                        mul(at, n_inputs_swapped(at), at->value[MIST_STAGE_INPUT_OUT]));

    return mul(at, at->ratio[MIST_RATIO_KEPT],
               mist_expr_div(at->pool, sum, at->n_layers));
}

/* Seconds per block of n of which n_swapped swap. Of the last stage the passes beside which
 * blocks swap are only asked for those that do (leaves(), needs()). */
static mist_expr by_block(writer *at, mist_expr seconds, mist_expr n_swapped, mist_expr n)
{
    mist_expr all = mul(at, at->ratio[MIST_RATIO_KEPT], seconds);

    if (at->is_last)
        return all;
    return mul(at, all, mist_expr_div(at->pool, n_swapped, max(at, num(at, 1), n)));
}

static mist_expr by_sort(writer *at, mist_expr is_kept, mist_expr kept, mist_expr input)
{
    return mist_expr_select_le(
        at->pool, is_kept, num(at, 0),
        by_block(at, input, n_inputs_swapped(at), at->n_checkpointed),
        by_block(at, kept, n_kept_swapped(at), mist_stage_n_kept(at)));
}

mist_expr mist_stage_kept_out(struct mist_stage_writer *at, mist_expr is_kept)
{
    return by_sort(at, is_kept, mean_kept(at, MIST_STAGE_KEPT_OUT, MIST_STAGE_LEAN_OUT),
                   at->value[MIST_STAGE_INPUT_OUT]);
}

mist_expr mist_stage_kept_in(struct mist_stage_writer *at, mist_expr is_kept)
{
    return by_sort(at, is_kept, mean_kept(at, MIST_STAGE_KEPT_IN, MIST_STAGE_LEAN_IN),
                   at->value[MIST_STAGE_INPUT_IN]);
}
