/*
 * The memory of a stage: the most that lives at once, as formulas. See stage_model.h for
 * what they promise, stage_model_internal.h for the symbols.
 *
 * On the device live what outlives the iteration; what every micro-batch in flight keeps;
 * and around a pass its scratch, its rooms (schedule_piece.h) and those of the passes next
 * to it. Each function is one moment at which that may be the most: the forward or
 * backward of a module at one of the ends of the blocks (in between it is the same and
 * less is kept), or its optimizer step. Where blocks differ, because ratios act through
 * whole tensors, it takes the most that any of them has; what many blocks have together
 * is exact (stage_model_cuts.c). So no moment comes out too small.
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

/* ----------------------------------------------------------------------------- homes */

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

static mist_expr homes(writer *at, enum mist_layer_kind kind)
{
    return add(at, add(at, weights(at, kind), gradients(at, kind)), state(at, kind));
}

/* Of these, in the host. */
static mist_expr homes_in_host(writer *at, enum mist_layer_kind kind)
{
    mist_expr w = mist_stage_share_of_all(at, kind, MIST_IF_WEIGHTS_AWAY, 0);
    mist_expr g = mist_stage_share_of_all(at, kind, MIST_IF_GRADIENTS_AWAY, 0);
    mist_expr s = mist_stage_share_of_all(at, kind, MIST_IF_STATE_AWAY, 0);

    w = mul(at, w, weights(at, kind));
    g = mul(at, g, gradients(at, kind));
    return add(at, add(at, w, g), mul(at, s, state(at, kind)));
}

/* Beside them, what an update there reads and writes. */
static mist_expr copies_in_host(writer *at, enum mist_layer_kind kind)
{
    mist_expr w =
        mist_stage_share_of_all(at, kind, MIST_IF_HOST_UPDATES, MIST_IF_WEIGHTS_AWAY);
    mist_expr g =
        mist_stage_share_of_all(at, kind, MIST_IF_HOST_UPDATES, MIST_IF_GRADIENTS_AWAY);

    w = mul(at, w, by_level(at, kind, 1, MIST_STAGE_WEIGHTS_0, MIST_STAGE_WEIGHTS_1));
    return add(
        at, w,
        mul(at, g,
            by_level(at, kind, 1, MIST_STAGE_GRADIENTS_0, MIST_STAGE_GRADIENTS_1)));
}

/* Slabs more than one: each ratio below 1 cuts once through every module, its homes and
 * the rooms of a few; all that are 1 do so at the same place. */
static mist_expr cuts(writer *at)
{
    mist_expr none = num(at, 0), one = num(at, 1), n = none, most = none;
    mist_expr modules = add(at, at->n_layers, num(at, 4));

    for (int r = MIST_RATIO_WEIGHTS; r <= MIST_RATIO_STATE; r++) {
        mist_expr part = mist_expr_select_le(at->pool, one, at->ratio[r], none, one);
        n = add(at, n, mist_expr_select(at->pool, at->ratio[r], part, none));
        most = max(at, most, at->ratio[r]);
    }
    n = add(at, n, mist_expr_select_le(at->pool, one, most, one, none));
    return mul(at, n, mul(at, modules, at->value[MIST_STAGE_CUT]));
}

static mist_expr persistent(writer *at)
{
    mist_expr tokens = mul(at, at->n_micro_batches, at->value[MIST_STAGE_TOKENS]);
    mist_expr modules = sub(at, all(at, homes), all(at, homes_in_host));

    return add(at, add(at, modules, cuts(at)),
               add(at, at->value[MIST_STAGE_CONSTANT], tokens));
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
    return mist_expr_select_le(at->pool, at->n_layers, num(at, n),
                               mist_stage_rooms(at, BLOCK, until, 1),
                               mist_stage_rooms(at, BLOCK, until, 2));
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
    return rooms(at, kind, MIST_UNTIL_SUMMED);
}

/*
 * What others in flight keep, and behind the pass of a module its gradients that wait for
 * what is computed on their sum: with ZeRO-2 in every micro-batch, otherwise in the last
 * one, when nothing else is in flight.
 */
static mist_expr and_waiting(writer *at, mist_expr others, enum mist_layer_kind kind)
{
    mist_expr waiting = fresh(at, kind);
    mist_expr each =
        add(at, add(at, others, waiting), rooms(at, kind, MIST_UNTIL_SETTLED));

    return at->offloads ? mist_stage_by_zero(at, 2, each, max(at, others, waiting))
                        : each;
}

/* In a stage that takes the optimizer step apart: the first one, and where weights come
 * from the host. */
static mist_expr if_apart(writer *at, mist_expr apart, mist_expr otherwise)
{
    if (at->is_first)
        return apart;
    return mist_expr_select(at->pool, at->ratio[MIST_RATIO_WEIGHTS], apart, otherwise);
}

/* The others in flight, or, in the first micro-batch, the state that the step of a module
 * has left. */
static mist_expr or_stepped(writer *at, mist_expr others, enum mist_layer_kind kind)
{
    mist_expr left = rooms(at, kind, MIST_UNTIL_NEXT_STEPPED);

    return at->offloads ? if_apart(at, max(at, others, left), others) : others;
}

/* ----------------------------------------------------------------------- activations */

static mist_expr n_kept_blocks(writer *at)
{
    return sub(at, at->n_layers, at->n_checkpointed);
}

/* What block i from the end keeps, wherever it is: 0 is the last one. */
static mist_expr kept_by_one(writer *at, int i)
{
    mist_expr saved = of(at, MIST_STAGE_SAVED, BLOCK);

    return add(
        at, boundary(at),
        mist_expr_select_le(at->pool, n_kept_blocks(at), num(at, i), num(at, 0), saved));
}

/* What block i from the end saves while it runs, if it is checkpointed. */
static mist_expr again(writer *at, int i)
{
    return mist_expr_select_le(at->pool, n_kept_blocks(at), num(at, i),
                               of(at, MIST_STAGE_SAVED, BLOCK), num(at, 0));
}

/* What leaves of the last block and the one before it. */
static mist_expr last_two_swapped(writer *at)
{
    return add(at, at->swapped[0], at->swapped[1]);
}

/* What all blocks but the last keep, of which what leaves of the last two is there. */
static mist_expr kept_below_last(writer *at)
{
    mist_expr kept = add(at, sub(at, at->kept, kept_by_one(at, 0)), at->swapped[0]);

    return add(at, kept, add(at, at->swapped[1], at->swapped[2]));
}

static mist_expr others_in_flight(writer *at)
{
    return mul(at, sub(at, at->in_flight, num(at, 1)), at->kept);
}

/* The next micro-batch's input, which has come while this one runs back. */
static mist_expr next_input(writer *at)
{
    if (at->is_first)
        return num(at, 0);
    return mist_expr_select_le(at->pool, at->n_micro_batches, at->in_flight, num(at, 0),
                               boundary(at));
}

/* A block's backward, with the gradients of its output and input; or, where it is
 * checkpointed, its forward before that. */
static mist_expr scratch_backward(writer *at)
{
    mist_expr u = boundary(at);
    mist_expr back = add(at, add(at, u, u), of(at, MIST_STAGE_SCRATCH_BACKWARD, BLOCK));
    mist_expr forward = add(at, u, of(at, MIST_STAGE_SCRATCH_FORWARD, BLOCK));

    return mist_expr_select_le(at->pool, at->n_checkpointed, num(at, 0), back,
                               max(at, back, forward));
}

static mist_expr scratch_forward(writer *at, enum mist_layer_kind kind)
{
    return add(at, boundary(at), of(at, MIST_STAGE_SCRATCH_FORWARD, kind));
}

/* -------------------------------------------------------------------------- forwards */

/* What leaves of the last two blocks is still there, and what comes for the backward of
 * another micro-batch. */
static mist_expr forward_of_last(writer *at, mist_expr others)
{
    mist_expr sum = add(at, at->kept, add(at, last_two_swapped(at), again(at, 0)));

    sum = add(at, sum, add(at, scratch_forward(at, BLOCK), brought(at, BLOCK)));
    sum = add(at, sum,
              at->is_last ? add(at, brought(at, HEAD), fresh(at, HEAD))
                          : add(at, at->swapped[0], fresh(at, BLOCK)));
    others = or_stepped(at, others, BLOCK);
    return add(at, sum, at->is_last ? or_stepped(at, others, HEAD) : others);
}

static mist_expr forward_of_second_last(writer *at, mist_expr others)
{
    mist_expr sum = add(at, kept_below_last(at), again(at, 1));

    sum = add(at, sum, scratch_forward(at, BLOCK));
    sum = add(at, sum, of_two(at, MIST_UNTIL_PASSED, 1));
    return add(at, sum, or_stepped(at, others, BLOCK));
}

/* Behind the backward of another micro-batch, whose last gradients wait. */
static mist_expr forward_of_first(writer *at, mist_expr others)
{
    mist_expr sum = add(at, boundary(at), of(at, MIST_STAGE_SAVED, BLOCK));

    sum = add(at, sum, scratch_forward(at, BLOCK));
    sum = add(at, sum, of_two(at, MIST_UNTIL_PASSED, 1));
    return add(at, sum, and_waiting(at, others, BLOCK));
}

/* The same of the embedding; or a block's, behind which it comes. */
static mist_expr forward_of_embedding(writer *at, mist_expr others)
{
    mist_expr stepped = or_stepped(at, others, EMBEDDING);
    mist_expr own =
        add(at, scratch_forward(at, EMBEDDING), of(at, MIST_STAGE_SAVED, EMBEDDING));
    mist_expr last =
        add(at, scratch_forward(at, BLOCK), add(at, last_two_swapped(at), again(at, 0)));

    own = add(at, own, and_waiting(at, or_stepped(at, stepped, BLOCK), EMBEDDING));
    return add(at, add(at, brought(at, EMBEDDING), brought(at, BLOCK)),
               max(at, own, add(at, last, others)));
}

/* ------------------------------------------------------------------------- backwards */

/* The head's forward and backward. The room of the next micro-batch's input, which has
 * come when its own turn comes, is not one of those that this one leaves. */
static mist_expr around_head(writer *at, mist_expr others)
{
    mist_expr own = add(at, at->kept, add(at, at->swapped[0], boundary(at)));
    mist_expr back = add(at, boundary(at), of(at, MIST_STAGE_SCRATCH_BACKWARD, HEAD));

    own = add(at, own, of(at, MIST_STAGE_SAVED, HEAD));
    own = add(at, own, add(at, brought(at, HEAD), fresh(at, HEAD)));
    own = add(at, own, next_input(at));
    back = add(at, back, add(at, brought(at, BLOCK), fresh(at, BLOCK)));
    own = add(at, own, max(at, of(at, MIST_STAGE_SCRATCH_FORWARD, HEAD), back));
    return add(at, own, or_stepped(at, others, HEAD));
}

/* With what leaves of the forward before it. */
static mist_expr backward_of_last(writer *at, mist_expr others)
{
    mist_expr one = num(at, 1), none = num(at, 0);
    mist_expr sum = add(at, at->kept, add(at, last_two_swapped(at), again(at, 0)));
    mist_expr alone = or_stepped(at, none, BLOCK);

    sum = add(at, sum, add(at, scratch_backward(at), next_input(at)));
    sum = add(at, sum, of_two(at, MIST_UNTIL_PASSED, 1));
    sum = add(at, sum, of_two(at, MIST_UNTIL_SUMMED, 1));
    if (at->is_first)
        sum = add(
            at, sum,
            mist_expr_select_le(at->pool, at->n_layers, one, fresh(at, EMBEDDING), none));
    if (at->is_last)
        return add(at, sum, and_waiting(at, others, HEAD));
    return add(at, sum,
               mist_expr_select_le(at->pool, at->in_flight, one, alone,
                                   add(at, others, at->swapped[0])));
}

static mist_expr backward_of_second_last(writer *at, mist_expr others)
{
    mist_expr sum = add(at, kept_below_last(at), again(at, 1));

    sum = add(at, sum, add(at, scratch_backward(at), next_input(at)));
    sum = add(at, sum, of_two(at, MIST_UNTIL_PASSED, 2));
    sum = add(at, sum, of_two(at, MIST_UNTIL_SUMMED, 2));
    sum = add(at, sum, and_waiting(at, others, BLOCK));
    return mist_expr_select_le(at->pool, at->n_layers, num(at, 1), num(at, 0), sum);
}

/* What comes for another micro-batch's backward. */
static mist_expr for_another(writer *at)
{
    return add(at, at->swapped[0], add(at, brought(at, BLOCK), fresh(at, BLOCK)));
}

/* Then comes the embedding's, or another micro-batch's backward or forward. */
static mist_expr backward_of_first(writer *at, mist_expr others)
{
    mist_expr one = num(at, 1);
    mist_expr sum = add(at, boundary(at), of(at, MIST_STAGE_SAVED, BLOCK));

    sum = add(at, sum, add(at, scratch_backward(at), next_input(at)));
    sum = add(at, sum, add(at, brought(at, BLOCK), fresh(at, BLOCK)));
    sum = add(at, sum,
              at->is_first ? fresh(at, EMBEDDING)
                           : mist_expr_select_le(at->pool, at->in_flight, one,
                                                 brought(at, BLOCK), for_another(at)));
    return add(at, sum,
               mist_expr_select_le(at->pool, at->n_layers, one, others,
                                   and_waiting(at, others, BLOCK)));
}

static mist_expr backward_of_embedding(writer *at, mist_expr others)
{
    mist_expr sum = add(at, boundary(at), of(at, MIST_STAGE_SAVED, EMBEDDING));
    mist_expr next = brought(at, EMBEDDING);

    sum = add(at, sum, of(at, MIST_STAGE_SCRATCH_BACKWARD, EMBEDDING));
    next = mist_expr_select_le(at->pool, at->in_flight, num(at, 1), next,
                               max(at, next, for_another(at)));
    sum = add(at, sum, add(at, next, fresh(at, EMBEDDING)));
    return add(at, sum, and_waiting(at, others, BLOCK));
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

/* Steps taken apart: each in front of the forward of the module before, which computes
 * next on what the first micro-batch has kept so far. */
static mist_expr steps_apart(writer *at)
{
    mist_expr none = num(at, 0), u = boundary(at);
    mist_expr far_below = sub(at, kept_below_last(at), kept_by_one(at, 1));
    mist_expr below = sub(at, kept_below_last(at), at->swapped[2]);
    mist_expr most = add(at, max(at, none, far_below), of_two(at, MIST_UNTIL_PASSED, 1));

    most = add(at, add(at, most, u), step_of(at, BLOCK, BLOCK));
    if (at->is_last) {
        mist_expr head = add(at, max(at, none, below), brought(at, HEAD));
        head = add(at, add(at, head, u),
                   add(at, brought(at, BLOCK), step_of(at, HEAD, BLOCK)));
        most = max(at, most, head);
    }
    if (at->is_first) {
        mist_expr own = add(at, rooms(at, EMBEDDING, MIST_UNTIL_STEPPED),
                            rooms(at, EMBEDDING, MIST_UNTIL_NEXT_STEPPED));
        mist_expr next = add(at, brought(at, BLOCK), step_of(at, BLOCK, EMBEDDING));
        most = max(at, most, add(at, brought(at, EMBEDDING), max(at, own, next)));
    }
    return most;
}

/* All steps in front of the first forward. */
static mist_expr steps_in_front(writer *at)
{
    mist_expr most = step_of(at, BLOCK, BLOCK);

    return at->is_last ? max(at, most, step_of(at, HEAD, BLOCK)) : most;
}

/* ----------------------------------------------------------------------------- whole */

static mist_expr device(writer *at)
{
    mist_expr others = others_in_flight(at);
    mist_expr most = max(at, backward_of_last(at, others), forward_of_last(at, others));

    most = max(at, most, backward_of_second_last(at, others));
    most = max(at, most, backward_of_first(at, others));
    most = max(at, most, forward_of_second_last(at, others));
    if (at->is_last)
        most = max(at, most, around_head(at, others));
    if (at->is_first) {
        most = max(at, most, forward_of_embedding(at, others));
        most = max(at, most, backward_of_embedding(at, others));
    } else {
        most = max(at, most, forward_of_first(at, others));
    }
    if (at->offloads)
        most = max(at, most, if_apart(at, steps_apart(at), steps_in_front(at)));
    return add(at, persistent(at), most);
}

/* Of what all micro-batches in flight keep, the part in the host. The last blocks of the
 * one whose backward is next have not left (schedule_leave.c). */
static mist_expr kept_in_host(writer *at)
{
    mist_expr all_of_one =
        add(at, mul(at, at->n_layers, boundary(at)),
            mul(at, n_kept_blocks(at), of(at, MIST_STAGE_SAVED, BLOCK)));
    mist_expr away = mul(at, at->in_flight, sub(at, all_of_one, at->kept));
    mist_expr near = at->is_last
                         ? at->swapped[0]
                         : mist_expr_select_le(at->pool, at->in_flight, num(at, 1),
                                               last_two_swapped(at), num(at, 0));

    return at->offloads ? max(at, num(at, 0), sub(at, away, near)) : num(at, 0);
}

static mist_expr host(writer *at)
{
    mist_expr homes_and_copies = add(at, all(at, homes_in_host), all(at, copies_in_host));

    return add(at, homes_and_copies, kept_in_host(at));
}

void mist_stage_model_write_memory(struct mist_stage_writer *at,
                                   mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    outputs[MIST_STAGE_PEAK] = device(at);
    outputs[MIST_STAGE_HOST] = host(at);
}
