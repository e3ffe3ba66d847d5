/*
 * The memory of a stage: the most that lives at once, as formulas. See stage_model.h for
 * what they promise, stage_model_internal.h for the symbols.
 *
 * On the device live what outlives the iteration; what every micro-batch in flight keeps;
 * and around a pass its scratch, its rooms (schedule_piece.h) and those of the passes next
 * to it. Each function is one moment at which that may be the most: the forward or
 * backward of a module at one of the ends of the blocks (in between it is the same and
 * less is kept), or its optimizer step. Ratios act through whole tensors: how far they may
 * be off (module_storage.h) counts, so that no moment comes out too small.
 */
#include "sim/closed_form/stage_model_internal.h"

#define EMBEDDING MIST_LAYER_EMBEDDING
#define BLOCK     MIST_LAYER_BLOCK
#define HEAD      MIST_LAYER_HEAD

typedef struct mist_stage_writer writer;

static mist_expr boundary(writer *at)
{
    return at->value[MIST_STAGE_BOUNDARY];
}

/* Where i is below a number of blocks, yes. */
static mist_expr if_below(writer *at, int i, mist_expr n, mist_expr yes, mist_expr no)
{
    return mist_expr_select_le(at->pool, n, num(at, i), no, yes);
}

/* ----------------------------------------------------------------------------- homes */

/* Sharded from a level of ZeRO on. */
static mist_expr by_level(writer *at, enum mist_layer_kind kind, int level,
                          enum mist_quantity quantity)
{
    const enum mist_stage_value *value = mist_stage_homes[quantity];

    return mist_stage_by_zero(at, level, of(at, value[1], kind), of(at, value[0], kind));
}

/* Sum over the modules of the stage. */
static mist_expr all(writer *at, mist_expr part(writer *at, enum mist_layer_kind kind))
{
    const mist_expr of_kind[] = {part(at, EMBEDDING), part(at, BLOCK), part(at, HEAD)};

    return mist_stage_total(at, of_kind);
}

static mist_expr weights(writer *at, enum mist_layer_kind kind)
{
    return by_level(at, kind, 3, MIST_WEIGHTS);
}

static mist_expr gradients(writer *at, enum mist_layer_kind kind)
{
    return by_level(at, kind, 2, MIST_GRADIENTS);
}

static mist_expr state(writer *at, enum mist_layer_kind kind)
{
    return by_level(at, kind, 1, MIST_STATE);
}

static mist_expr homes(writer *at, enum mist_layer_kind kind)
{
    return SUM(at, weights(at, kind), gradients(at, kind), state(at, kind));
}

/* Of these, in the host. */
static mist_expr homes_in_host(writer *at, enum mist_layer_kind kind)
{
    mist_expr w = mist_stage_share_of_all(at, kind, MIST_IF_WEIGHTS_AWAY, 0);
    mist_expr g = mist_stage_share_of_all(at, kind, MIST_IF_GRADIENTS_AWAY, 0);
    mist_expr s = mist_stage_share_of_all(at, kind, MIST_IF_STATE_AWAY, 0);

    return SUM(at, mul(at, w, weights(at, kind)), mul(at, g, gradients(at, kind)),
               mul(at, s, state(at, kind)));
}

/* Beside them, what an update there reads and writes. */
static mist_expr copies_in_host(writer *at, enum mist_layer_kind kind)
{
    mist_expr w =
        mist_stage_share_of_all(at, kind, MIST_IF_HOST_UPDATES, MIST_IF_WEIGHTS_AWAY);
    mist_expr g =
        mist_stage_share_of_all(at, kind, MIST_IF_HOST_UPDATES, MIST_IF_GRADIENTS_AWAY);

    w = mul(at, w, by_level(at, kind, 1, MIST_WEIGHTS));
    return add(at, w, mul(at, g, by_level(at, kind, 1, MIST_GRADIENTS)));
}

/* What may be on the device beyond the ratios. */
static mist_expr off_the_ratios(writer *at)
{
    mist_expr part = mist_expr_div(at->pool, of(at, MIST_STAGE_LARGEST, BLOCK),
                                   of(at, MIST_STAGE_ELEMENTS, BLOCK));
    mist_expr sum = SUM(at, mist_stage_if_cut(at, MIST_RATIO_WEIGHTS, weights(at, BLOCK)),
                        mist_stage_if_cut(at, MIST_RATIO_GRADIENTS, gradients(at, BLOCK)),
                        mist_stage_if_cut(at, MIST_RATIO_STATE, state(at, BLOCK)));

    return mul(at, sum, mul(at, part, num(at, 0.5)));
}

/* Gradients of a tied weight of which the stage has both ends, under a condition. */
static mist_expr tied(writer *at,
                      mist_expr where(writer *at, mist_expr yes, mist_expr no))
{
    mist_expr none = num(at, 0);

    return at->is_first && at->is_last
               ? where(at, at->value[MIST_STAGE_TIED_GRADIENTS], none)
               : none;
}

/* Of a weight that another stage has, too, where ZeRO cuts other gradients. */
static mist_expr exchanged(writer *at, enum mist_stage_value size)
{
    mist_expr none = num(at, 0);

    return at->is_first != at->is_last ? mist_stage_by_zero(at, 2, at->value[size], none)
                                       : none;
}

static mist_expr persistent(writer *at)
{
    mist_expr tokens = mul(at, at->n_micro_batches, at->value[MIST_STAGE_TOKENS]);
    mist_expr modules = sub(at, all(at, homes), all(at, homes_in_host));

    mist_expr others =
        SUM(at, at->value[MIST_STAGE_CONSTANT], tokens, tied(at, mist_stage_if_apart),
            exchanged(at, MIST_STAGE_EXCHANGED_OTHERS));

    return SUM(at, modules, off_the_ratios(at), others);
}

/* ----------------------------------------------------------------------------- rooms */

/* Of one module. */
static mist_expr rooms(writer *at, enum mist_layer_kind kind, enum mist_until until)
{
    return mist_stage_rooms(at, kind, until, 1);
}

/* Of two blocks in a row, where the stage has more than n; of one otherwise. */
static mist_expr of_two(writer *at, enum mist_until until, int n)
{
    mist_expr one = mist_stage_rooms(at, BLOCK, until, 1);

    return if_below(at, n, at->n_layers, mist_stage_rooms(at, BLOCK, until, 2), one);
}

/* Weights that passes of a module compute with. */
static mist_expr brought(writer *at, enum mist_layer_kind kind)
{
    mist_expr own = rooms(at, kind, MIST_UNTIL_PASSED);

    if (kind != HEAD || !at->is_first)
        return own;
    /* a tied head on the embedding's rank computes with the embedding's */
    mist_expr is_tied = sub(at, num(at, 1), at->value[MIST_STAGE_IS_UNTIED]);
    return add(at, own, mul(at, is_tied, rooms(at, EMBEDDING, MIST_UNTIL_PASSED)));
}

/* A micro-batch's gradients of a module. */
static mist_expr fresh(writer *at, enum mist_layer_kind kind)
{
    mist_expr all = rooms(at, kind, MIST_UNTIL_SUMMED);

    return kind == BLOCK ? all : sub(at, all, exchanged(at, MIST_STAGE_EXCHANGED));
}

/* What of gradients for the next pass is there before it: where the sum so far comes from
 * the host to be added to, which is so without ZeRO-2, and not in the first micro-batch. */
static mist_expr if_summed_before(writer *at, mist_expr yes, mist_expr no)
{
    mist_expr later =
        mist_expr_select_le(at->pool, at->n_micro_batches, num(at, 1), no, yes);

    return at->offloads ? mist_stage_by_zero(at, 2, no, later) : no;
}

static mist_expr next_fresh(writer *at, enum mist_layer_kind kind)
{
    return if_summed_before(at, fresh(at, kind), num(at, 0));
}

/* Of a block and the next one, where the stage has more than n. */
static mist_expr two_fresh(writer *at, int n)
{
    return if_summed_before(at, of_two(at, MIST_UNTIL_SUMMED, n), fresh(at, BLOCK));
}

static mist_expr if_sharded(writer *at, mist_expr yes, mist_expr no)
{
    return mist_stage_by_zero(at, 2, yes, no);
}

/* What a backward of the head or of blocks has beside its own: gradients of a micro-batch
 * of a tied head, which the embedding's are added to. */
static mist_expr waiting_tied(writer *at)
{
    return tied(at, if_sharded);
}

/* ----------------------------------------------------------------------- activations */

/* What all blocks keep of one micro-batch, in both places. */
static mist_expr kept_in_all(writer *at)
{
    mist_expr saved = of(at, MIST_STAGE_SAVED, BLOCK);
    mist_expr less = sub(at, saved, at->value[MIST_STAGE_SAVED_LEAN]);
    mist_expr sum = mul(at, mist_stage_n_kept(at), saved);

    sum = sub(at, sum, mul(at, at->n_lean, less));
    return add(at, mul(at, at->n_layers, boundary(at)), sum);
}

/* On the device. */
static mist_expr kept(writer *at)
{
    mist_expr here = sub(at, num(at, 1), at->ratio[MIST_RATIO_KEPT]);
    mist_expr off = at->value[MIST_STAGE_KEPT_OFF];

    return add(at, mul(at, here, kept_in_all(at)),
               mist_stage_if_cut(at, MIST_RATIO_KEPT, off));
}

/* By what block i from the end keeps: all, the part of lean ones, or its input alone. */
static mist_expr by_kept(writer *at, int i, mist_expr all, mist_expr lean,
                         mist_expr input)
{
    mist_expr some = all;

    if (at->has_lean)
        some = if_below(at, i, mist_stage_n_full(at), all, lean);
    return if_below(at, i, mist_stage_n_kept(at), some, input);
}

/* What block i from the end keeps, wherever it is: 0 is the last one. */
static mist_expr kept_by_one(writer *at, int i)
{
    mist_expr none = num(at, 0), saved = of(at, MIST_STAGE_SAVED, BLOCK);
    mist_expr kept = add(at, boundary(at),
                         by_kept(at, i, saved, at->value[MIST_STAGE_SAVED_LEAN], none));

    return i > 0 ? if_below(at, i, at->n_layers, kept, none) : kept;
}

/* What of that leaves for the host. */
static mist_expr swapped(writer *at, int i)
{
    mist_expr all = kept_by_one(at, i), off = at->value[MIST_STAGE_KEPT_OFF];
    mist_expr share = mul(at, at->ratio[MIST_RATIO_KEPT], all);

    if (!at->offloads)
        return num(at, 0);
    share = add(at, share, mist_stage_if_cut(at, MIST_RATIO_KEPT, off));
    return mist_expr_min(at->pool, all, share);
}

/* At least, where a ratio cuts: a block may swap more than its neighbours. */
static mist_expr swapped_at_least(writer *at, int i)
{
    mist_expr off =
        mist_stage_if_cut(at, MIST_RATIO_KEPT, at->value[MIST_STAGE_KEPT_OFF]);
    mist_expr share = mul(at, at->ratio[MIST_RATIO_KEPT], kept_by_one(at, i));

    return max(at, num(at, 0), sub(at, share, off));
}

/* What it saves beside that while it runs. */
static mist_expr again(writer *at, int i)
{
    return by_kept(at, i, num(at, 0), at->value[MIST_STAGE_REMADE],
                   of(at, MIST_STAGE_SAVED, BLOCK));
}

/* What the first block has while it runs: input and all saved tensors. */
static mist_expr all_of_first(writer *at)
{
    mist_expr all = of(at, MIST_STAGE_SAVED, BLOCK), saved = all;

    if (at->has_lean) {
        saved = add(at, at->value[MIST_STAGE_SAVED_LEAN], at->value[MIST_STAGE_REMADE]);
        saved = if_below(at, 0, at->n_lean, saved, all);
        saved = if_below(at, 0, at->n_checkpointed, all, saved);
    }
    return add(at, boundary(at), saved);
}

/* What leaves of the last block and the one before it. */
static mist_expr last_two_swapped(writer *at)
{
    return add(at, swapped(at, 0), swapped(at, 1));
}

/* What all blocks but the last keep, of which what leaves of the last two is there. */
static mist_expr kept_below_last(writer *at)
{
    return SUM(at, sub(at, kept(at), kept_by_one(at, 0)), swapped(at, 0), swapped(at, 1),
               swapped(at, 2));
}

/* The next micro-batch's input, which has come while this one runs back. */
static mist_expr next_input(writer *at)
{
    if (at->is_first)
        return num(at, 0);
    return mist_expr_select_le(at->pool, at->n_micro_batches, at->in_flight, num(at, 0),
                               boundary(at));
}

static mist_expr scratch_forward(writer *at, enum mist_layer_kind kind)
{
    return add(at, boundary(at), of(at, MIST_STAGE_SCRATCH_FORWARD, kind));
}

/* A block's backward, with the gradients of its output and input; or what is computed
 * again before that. */
static mist_expr scratch_backward(writer *at, int i)
{
    mist_expr u = boundary(at);
    mist_expr back = SUM(at, u, u, of(at, MIST_STAGE_SCRATCH_BACKWARD, BLOCK));
    mist_expr most = max(at, back, scratch_forward(at, BLOCK));

    return by_kept(at, i, back, most, most);
}

/* ---------------------------------------------------------------------------- beside */

/* What all other micro-batches in flight keep. */
static mist_expr others(writer *at)
{
    return mul(at, sub(at, at->in_flight, num(at, 1)), kept(at));
}

/* The same, and behind a backward of kind its gradients, which wait for what is computed on
 * their sum, or leave for the host. */
static mist_expr others_and_waiting(writer *at, enum mist_layer_kind kind)
{
    return SUM(at, others(at), fresh(at, kind), rooms(at, kind, MIST_UNTIL_SETTLED));
}

/* In the first micro-batch, where the step is taken apart: the state that the step of a
 * module has left. */
static mist_expr stepped(writer *at, enum mist_layer_kind kind)
{
    return at->is_ahead ? num(at, 0) : rooms(at, kind, MIST_UNTIL_NEXT_STEPPED);
}

/* -------------------------------------------------------------------------- forwards */

/* Of the last block while it runs: the head's, whose step lets the block's leave, if it has
 * any there. A tied one on the embedding's rank has none. */
static mist_expr stepped_last(writer *at)
{
    mist_expr of_head = stepped(at, HEAD);

    if (at->is_first)
        of_head = mul(at, of_head, at->value[MIST_STAGE_IS_UNTIED]);
    return mist_expr_select(at->pool, of_head, of_head, stepped(at, BLOCK));
}

/* What leaves of the last two blocks is still there. Behind it comes the head; or in later
 * micro-batches the backward of another one, in the first its own or the next forward. */
static mist_expr forward_of_last(writer *at)
{
    mist_expr sum = SUM(at, kept(at), last_two_swapped(at), again(at, 0),
                        scratch_forward(at, BLOCK), brought(at, BLOCK));
    mist_expr first = stepped(at, BLOCK), later, fresh_next = next_fresh(at, BLOCK);

    if (at->is_last) {
        later = add(at, others(at), next_fresh(at, HEAD));
        return SUM(at, sum, brought(at, HEAD), max(at, later, stepped_last(at)));
    }
    later = SUM(at, others(at), swapped(at, 0), fresh_next);
    return add(at, sum,
               if_below(at, 1, at->in_flight, max(at, first, later),
                        max(at, first, fresh_next)));
}

static mist_expr forward_of_second_last(writer *at)
{
    return SUM(at, kept_below_last(at), again(at, 1), scratch_forward(at, BLOCK),
               of_two(at, MIST_UNTIL_PASSED, 1), max(at, others(at), stepped(at, BLOCK)));
}

/* Behind the backward of another micro-batch, whose last gradients wait. */
static mist_expr forward_of_first(writer *at)
{
    return SUM(at, all_of_first(at), scratch_forward(at, BLOCK),
               of_two(at, MIST_UNTIL_PASSED, 1), others_and_waiting(at, BLOCK));
}

/* The same of the embedding. */
static mist_expr forward_of_embedding(writer *at)
{
    return SUM(at, scratch_forward(at, EMBEDDING), of(at, MIST_STAGE_SAVED, EMBEDDING),
               brought(at, EMBEDDING), brought(at, BLOCK),
               max(at, others_and_waiting(at, EMBEDDING), stepped(at, BLOCK)));
}

/* The last block's, behind which it comes. */
static mist_expr forward_before_embedding(writer *at)
{
    mist_expr first = add(at, kept(at), stepped(at, BLOCK));
    mist_expr sum =
        SUM(at, last_two_swapped(at), again(at, 0), scratch_forward(at, BLOCK),
            brought(at, EMBEDDING), brought(at, BLOCK), max(at, others(at), first));

    return if_below(at, 1, at->in_flight, sum, num(at, 0));
}

/* ------------------------------------------------------------------------- backwards */

/* The head's forward and backward. */
static mist_expr around_head(writer *at)
{
    mist_expr back = SUM(at, boundary(at), of(at, MIST_STAGE_SCRATCH_BACKWARD, HEAD),
                         next_input(at), brought(at, BLOCK), next_fresh(at, BLOCK));

    return SUM(at, kept(at), swapped(at, 0), boundary(at), of(at, MIST_STAGE_SAVED, HEAD),
               brought(at, HEAD), fresh(at, HEAD), waiting_tied(at),
               max(at, of(at, MIST_STAGE_SCRATCH_FORWARD, HEAD), back),
               max(at, others(at), stepped(at, HEAD)));
}

/* Behind the head's; or behind a forward, of which something leaves, or the backward of
 * another micro-batch, which keeps nothing any more but gradients that wait. */
static mist_expr backward_of_last(writer *at)
{
    mist_expr sum = SUM(at, kept(at), last_two_swapped(at), again(at, 0),
                        scratch_backward(at, 0), next_input(at), waiting_tied(at),
                        of_two(at, MIST_UNTIL_PASSED, 1), two_fresh(at, 1));
    mist_expr next = next_fresh(at, EMBEDDING), none = num(at, 0);

    if (at->is_first)
        sum = add(at, sum, if_below(at, 1, at->n_layers, none, next));
    if (at->is_last)
        return add(at, sum, others_and_waiting(at, HEAD));
    mist_expr behind = others_and_waiting(at, at->is_first ? EMBEDDING : BLOCK);
    behind = max(at, add(at, others(at), swapped(at, 0)), sub(at, behind, kept(at)));
    return add(at, sum, if_below(at, 1, at->in_flight, behind, stepped(at, BLOCK)));
}

static mist_expr backward_of_second_last(writer *at)
{
    mist_expr sum =
        SUM(at, kept_below_last(at), again(at, 1), scratch_backward(at, 1),
            next_input(at), waiting_tied(at), of_two(at, MIST_UNTIL_PASSED, 2),
            two_fresh(at, 2), others_and_waiting(at, BLOCK));

    return if_below(at, 1, at->n_layers, sum, num(at, 0));
}

/* What comes for another micro-batch's backward. */
static mist_expr for_another(writer *at)
{
    return SUM(at, swapped(at, 0), brought(at, BLOCK), next_fresh(at, BLOCK));
}

/* Then comes the embedding's, or another micro-batch's backward or forward. */
static mist_expr backward_of_first(writer *at)
{
    mist_expr u = boundary(at);
    mist_expr back = SUM(at, u, u, of(at, MIST_STAGE_SCRATCH_BACKWARD, BLOCK));
    mist_expr n_again = add(at, at->n_checkpointed, at->n_lean);
    mist_expr next = at->is_first
                         ? next_fresh(at, EMBEDDING)
                         : mist_expr_select_le(at->pool, at->in_flight, num(at, 1),
                                               num(at, 0), for_another(at));

    return SUM(at,
               if_below(at, 0, n_again, max(at, back, scratch_forward(at, BLOCK)), back),
               all_of_first(at), next_input(at), waiting_tied(at), brought(at, BLOCK),
               fresh(at, BLOCK), next,
               if_below(at, 1, at->n_layers, others_and_waiting(at, BLOCK), others(at)));
}

static mist_expr backward_of_embedding(writer *at)
{
    mist_expr next = brought(at, EMBEDDING);

    next = mist_expr_select_le(at->pool, at->in_flight, num(at, 1), next,
                               max(at, next, for_another(at)));
    return SUM(at, boundary(at), of(at, MIST_STAGE_SAVED, EMBEDDING),
               of(at, MIST_STAGE_SCRATCH_BACKWARD, EMBEDDING), next, fresh(at, EMBEDDING),
               others_and_waiting(at, BLOCK));
}

/* ----------------------------------------------------------------------------- steps */

/* The step of a module behind that of another. */
static mist_expr step_of(writer *at, enum mist_layer_kind kind,
                         enum mist_layer_kind before)
{
    mist_expr state_of_both = kind == BLOCK && before == BLOCK
                                  ? of_two(at, MIST_UNTIL_NEXT_STEPPED, 1)
                                  : add(at, rooms(at, kind, MIST_UNTIL_NEXT_STEPPED),
                                        rooms(at, before, MIST_UNTIL_NEXT_STEPPED));

    return add(at, state_of_both, rooms(at, kind, MIST_UNTIL_STEPPED));
}

/* Steps taken apart, of the first stage: each in front of the forward of the module before,
 * which computes next on what the first micro-batch has kept so far. */
static mist_expr steps_apart(writer *at)
{
    mist_expr none = num(at, 0), u = boundary(at);
    mist_expr far_below = sub(at, kept_below_last(at), kept_by_one(at, 1));
    mist_expr below = sub(at, kept_below_last(at), swapped(at, 2));
    mist_expr most = SUM(at, max(at, none, far_below), of_two(at, MIST_UNTIL_PASSED, 1),
                         u, step_of(at, BLOCK, BLOCK));

    if (at->is_last)
        most = max(at, most,
                   SUM(at, max(at, none, below), brought(at, HEAD), u, brought(at, BLOCK),
                       step_of(at, HEAD, BLOCK)));
    mist_expr own = add(at, rooms(at, EMBEDDING, MIST_UNTIL_STEPPED),
                        rooms(at, EMBEDDING, MIST_UNTIL_NEXT_STEPPED));
    mist_expr next = add(at, brought(at, BLOCK), step_of(at, BLOCK, EMBEDDING));
    return max(at, most, add(at, brought(at, EMBEDDING), max(at, own, next)));
}

/* All steps in front of the first forward. */
static mist_expr steps_in_front(writer *at)
{
    mist_expr most = step_of(at, BLOCK, BLOCK);

    return at->is_last ? max(at, most, step_of(at, HEAD, BLOCK)) : most;
}

/* Another framework's copy of the gradients, behind the last backward; of a single rank
 * beside it. */
static mist_expr step_with_copy(writer *at)
{
    mist_expr copy = mul(at, all(at, state), num(at, at->copy_frac));

    return at->is_first && at->is_last ? add(at, copy, backward_of_embedding(at)) : copy;
}

/* ----------------------------------------------------------------------------- whole */

static mist_expr device(writer *at)
{
    mist_expr most = max(at, backward_of_last(at), forward_of_last(at));

    most = max(at, most, backward_of_second_last(at));
    most = max(at, most, backward_of_first(at));
    most = max(at, most, forward_of_second_last(at));
    if (at->is_last)
        most = max(at, most, around_head(at));
    if (at->is_first) {
        most = max(at, most, forward_of_embedding(at));
        if (!at->is_last)
            most = max(at, most, forward_before_embedding(at));
        most = max(at, most, backward_of_embedding(at));
    } else {
        most = max(at, most, forward_of_first(at));
    }
    if (at->offloads)
        most = max(at, most, at->is_ahead ? steps_in_front(at) : steps_apart(at));
    if (at->copy_frac > 0)
        most = max(at, most, step_with_copy(at));
    return add(at, persistent(at), most);
}

/* Of what all micro-batches in flight keep, the part in the host. What leaves of the last two
 * blocks of one is on the device: of the one whose backward is next it has not left
 * (schedule_leave.c) or is back. */
static mist_expr kept_in_host(writer *at)
{
    mist_expr away =
        mul(at, at->in_flight, mul(at, at->ratio[MIST_RATIO_KEPT], kept_in_all(at)));
    mist_expr near = swapped_at_least(at, 0);

    if (!at->offloads)
        return num(at, 0);
    if (!at->is_last)
        near = add(at, near, swapped_at_least(at, 1));
    return max(at, num(at, 0), sub(at, away, near));
}

static mist_expr host(writer *at)
{
    return SUM(at, all(at, homes_in_host), all(at, copies_in_host), kept_in_host(at));
}

void mist_stage_model_write_memory(struct mist_stage_writer *at,
                                   mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    outputs[MIST_STAGE_PEAK] = device(at);
    outputs[MIST_STAGE_HOST] = host(at);
}
