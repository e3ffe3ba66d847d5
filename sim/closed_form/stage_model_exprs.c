/*
 * The times of a stage: what the schedule puts beside what, as formulas. See
 * stage_model.h for t and d, stage_model_internal.h for the symbols.
 *
 * A pass of a module runs beside what the next one needs (gathers, swaps in) and what the
 * one before has left (sums, swaps out). Blocks are alike, so a pass of a block meets
 * what blocks need and leave.
 */
#include "sim/closed_form/stage_model_internal.h"

#define EMBEDDING MIST_LAYER_EMBEDDING
#define BLOCK     MIST_LAYER_BLOCK
#define HEAD      MIST_LAYER_HEAD

typedef struct mist_stage_writer writer;

/* --------------------------------------------------------------------------- bundles */

/* What runs beside a pass. */
struct beside {
    mist_expr gpu_gpu, to_device, to_host;
};

static mist_expr bundle(writer *at, mist_expr compute, struct beside beside)
{
    const mist_expr alone[MIST_N_CHANNELS] = {compute, beside.gpu_gpu, beside.to_device,
                                              beside.to_host};

    return mist_stage_bundle(at, alone);
}

/* Computation beside communication, nothing else. */
static mist_expr pair(writer *at, mist_expr compute, mist_expr gpu_gpu)
{
    mist_expr none = num(at, 0);

    return bundle(at, compute, (struct beside){gpu_gpu, none, none});
}

/*
 * A pass of whole seconds that computes start seconds before it communicates, with more
 * computation behind: its own communication waits for what was dispatched before it.
 */
static mist_expr pass(writer *at, mist_expr whole, mist_expr start, mist_expr more,
                      struct beside beside)
{
    if (!at->is_cut)
        return bundle(at, add(at, whole, more), beside);
    whole = add(at, sub(at, whole, start), pair(at, start, beside.gpu_gpu));
    beside.gpu_gpu = num(at, 0);
    return bundle(at, add(at, whole, more), beside);
}

/* ---------------------------------------------------- what a module needs and leaves */

static mist_expr scaled(writer *at, enum mist_layer_kind kind, int ratio,
                        mist_expr seconds)
{
    return mul(at, mist_stage_share(at, kind, ratio), seconds);
}

/* Of a whole slab, or of a shard from a ZeRO level on. */
static mist_expr by_level(writer *at, enum mist_layer_kind kind, int level,
                          enum mist_stage_value whole, enum mist_stage_value shard)
{
    return mist_stage_by_zero(at, level, of(at, shard, kind), of(at, whole, kind));
}

static mist_expr gather_each(writer *at, enum mist_layer_kind kind)
{
    return mist_stage_by_zero(at, 3, of(at, MIST_STAGE_GATHER, kind), num(at, 0));
}

static mist_expr weights_in(writer *at, enum mist_layer_kind kind)
{
    return scaled(
        at, kind, MIST_RATIO_WEIGHTS,
        by_level(at, kind, 3, MIST_STAGE_WEIGHTS_IN_0, MIST_STAGE_WEIGHTS_IN_1));
}

static mist_expr gradients_in(writer *at, enum mist_layer_kind kind)
{
    return scaled(
        at, kind, MIST_RATIO_GRADIENTS,
        by_level(at, kind, 2, MIST_STAGE_GRADIENTS_IN_0, MIST_STAGE_GRADIENTS_IN_1));
}

static mist_expr gradients_out(writer *at, enum mist_layer_kind kind)
{
    return scaled(
        at, kind, MIST_RATIO_GRADIENTS,
        by_level(at, kind, 2, MIST_STAGE_GRADIENTS_OUT_0, MIST_STAGE_GRADIENTS_OUT_1));
}

/* Sum over ranks after each micro-batch. */
static mist_expr reduce_each(writer *at, enum mist_layer_kind kind)
{
    mist_expr both = add(at, of(at, MIST_STAGE_REDUCE_1, kind),
                         of(at, MIST_STAGE_REDUCE_PARTIAL, kind));

    return mist_stage_by_zero(at, 2, both, num(at, 0));
}

/* Computation that ZeRO-2 adds to a backward. */
static mist_expr accumulate(writer *at, enum mist_layer_kind kind)
{
    mist_expr both =
        add(at, of(at, MIST_STAGE_ACCUMULATE, kind), of(at, MIST_STAGE_ZEROING, kind));

    return mist_stage_by_zero(at, 2, both, num(at, 0));
}

/*
 * Blocks of a stable micro-batch whose backward comes too soon to swap in between (less
 * than 3 passes, schedule_leave.c): the last ones of the stage. Behind the last block's
 * forward come a forward and a backward of every module for each other micro-batch in
 * flight, 2 between, and 2 more passes for each block further down. The first micro-batch
 * has half of that behind it: stage_model_memory.c counts its blocks.
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
    mist_expr n_kept = sub(at, at->n_layers, at->n_checkpointed);

    return max(at, num(at, 0), sub(at, n_kept, n_near(at)));
}

static mist_expr n_inputs_swapped(writer *at)
{
    mist_expr n = max(at, num(at, 0), sub(at, at->n_layers, n_near(at)));

    return mist_expr_min(at->pool, at->n_checkpointed, n);
}

/* Swapping out what a block keeps, in the mean over kept and checkpointed ones: beside
 * the next block. */
static mist_expr kept_out(writer *at)
{
    mist_expr sum = add(at, mul(at, n_kept_swapped(at), at->value[MIST_STAGE_KEPT_OUT]),
                        mul(at, n_inputs_swapped(at), at->value[MIST_STAGE_INPUT_OUT]));

    return mul(at, at->ratio[MIST_RATIO_KEPT],
               mist_expr_div(at->pool, sum, at->n_layers));
}

/* Seconds per block of n that swap n_swapped. */
static mist_expr mean_in(writer *at, enum mist_stage_value seconds, mist_expr n_swapped,
                         mist_expr n)
{
    mist_expr share = mist_expr_div(at->pool, n_swapped, max(at, num(at, 1), n));

    return mul(at, mul(at, at->ratio[MIST_RATIO_KEPT], at->value[seconds]), share);
}

static struct beside needs(writer *at, enum mist_layer_kind kind)
{
    return (struct beside){gather_each(at, kind), weights_in(at, kind), num(at, 0)};
}

/* ------------------------------------------------------------------- stable: forward */

static mist_expr forward(writer *at, enum mist_layer_kind kind, struct beside beside)
{
    return pass(at, of(at, MIST_STAGE_FORWARD, kind),
                of(at, MIST_STAGE_FORWARD_START, kind), num(at, 0), beside);
}

/* A block in front of another. */
static mist_expr forward_block(writer *at)
{
    struct beside beside = needs(at, BLOCK);

    beside.to_host = kept_out(at);
    return forward(at, BLOCK, beside);
}

/* The last block: its weights serve its backward, too, or the head comes. */
static mist_expr forward_top(writer *at)
{
    struct beside beside = {num(at, 0), num(at, 0), num(at, 0)};

    if (at->is_last)
        beside = needs(at, HEAD);
    beside.to_host = kept_out(at);
    return forward(at, BLOCK, beside);
}

static mist_expr forward_all(writer *at)
{
    mist_expr n = sub(at, at->n_layers, num(at, 1));
    mist_expr sum = add(at, mul(at, n, forward_block(at)), forward_top(at));

    if (at->is_first) { /* the embedding's backward was the pass before */
        struct beside beside = needs(at, BLOCK);
        beside.gpu_gpu = add(at, beside.gpu_gpu, reduce_each(at, EMBEDDING));
        beside.to_host = gradients_out(at, EMBEDDING);
        sum = add(at, sum, forward(at, EMBEDDING, beside));
    }
    if (at->is_last) {
        struct beside beside = {num(at, 0), gradients_in(at, HEAD), num(at, 0)};
        sum = add(at, sum, forward(at, HEAD, beside));
    }
    return sum;
}

/* ------------------------------------------------------------------ stable: backward */

/* A block's backward: sums and swaps out behind the pass before it, what that kept, and
 * recomputation. */
static mist_expr backward_block(writer *at, mist_expr reduced, mist_expr out,
                                mist_expr kept_in, bool is_checkpointed)
{
    struct beside beside = needs(at, BLOCK);
    mist_expr whole = of(at, MIST_STAGE_BACKWARD, BLOCK);
    mist_expr start = of(at, MIST_STAGE_BACKWARD_START, BLOCK);

    if (is_checkpointed) {
        whole = add(at, whole, of(at, MIST_STAGE_RECOMPUTE, BLOCK));
        start = of(at, MIST_STAGE_RECOMPUTE_START, BLOCK);
    }
    beside.gpu_gpu = add(at, beside.gpu_gpu, reduced);
    beside.to_device =
        add(at, add(at, beside.to_device, gradients_in(at, BLOCK)), kept_in);
    beside.to_host = out;
    return pass(at, whole, start, accumulate(at, BLOCK), beside);
}

/* What the last block's backward has more than others: the head is behind it, or a pass
 * of another micro-batch. */
static mist_expr backward_top(writer *at, mist_expr kept_in, bool is_checkpointed)
{
    mist_expr other = backward_block(at, reduce_each(at, BLOCK), gradients_out(at, BLOCK),
                                     kept_in, is_checkpointed);
    mist_expr top = other;

    if (at->is_last)
        top = backward_block(at, reduce_each(at, HEAD), gradients_out(at, HEAD), kept_in,
                             is_checkpointed);
    else if (at->is_first) /* the embedding has the last block's */
        top = backward_block(at, num(at, 0), num(at, 0), kept_in, is_checkpointed);
    return sub(at, top, other);
}

static mist_expr backward_end(writer *at, enum mist_layer_kind kind, struct beside beside)
{
    return pass(at, of(at, MIST_STAGE_BACKWARD, kind),
                of(at, MIST_STAGE_BACKWARD_START, kind), accumulate(at, kind), beside);
}

static mist_expr backward_all(writer *at)
{
    mist_expr n_kept = sub(at, at->n_layers, at->n_checkpointed);
    mist_expr kept_in = mean_in(at, MIST_STAGE_KEPT_IN, n_kept_swapped(at), n_kept);
    mist_expr input_in =
        mean_in(at, MIST_STAGE_INPUT_IN, n_inputs_swapped(at), at->n_checkpointed);
    mist_expr reduced = reduce_each(at, BLOCK), out = gradients_out(at, BLOCK);
    mist_expr kept = backward_block(at, reduced, out, kept_in, false);
    mist_expr again = backward_block(at, reduced, out, input_in, true);
    mist_expr top = mist_expr_select_le(at->pool, n_kept, num(at, 0),
                                        backward_top(at, input_in, true),
                                        backward_top(at, kept_in, false));
    mist_expr sum = add(at, mul(at, n_kept, kept), mul(at, at->n_checkpointed, again));

    sum = add(at, sum, top);
    if (at->is_first) {
        struct beside beside = needs(at, EMBEDDING);
        beside.gpu_gpu = add(at, beside.gpu_gpu, reduce_each(at, BLOCK));
        beside.to_host = gradients_out(at, BLOCK);
        sum = add(at, sum, backward_end(at, EMBEDDING, beside));
    }
    if (at->is_last) {
        struct beside beside = needs(at, BLOCK);
        beside.to_device = add(at, beside.to_device, gradients_in(at, BLOCK));
        sum = add(at, sum, backward_end(at, HEAD, beside));
    }
    return sum;
}

/* One way of every round trip: the mean of there and back, over both boundaries. */
static mist_expr one_way(writer *at)
{
    mist_expr left = add(at, at->value[MIST_STAGE_RECV_ACTIVATION],
                         at->value[MIST_STAGE_SEND_GRADIENT]);
    mist_expr right = add(at, at->value[MIST_STAGE_SEND_ACTIVATION],
                          at->value[MIST_STAGE_RECV_GRADIENT]);

    return mul(
        at, num(at, 0.5),
        add(at, at->is_first ? num(at, 0) : left, at->is_last ? num(at, 0) : right));
}

static mist_expr stable(writer *at)
{
    mist_expr way = one_way(at);
    mist_expr work = add(at, forward_all(at), backward_all(at));

    return add(at, pair(at, work, way), way);
}

/* -------------------------------------------------------------- extra: first forward */

static bool updates_on_host(const writer *at)
{
    double none;

    return !mist_expr_is_const(at->pool, at->on_host, &none);
}

/* The optimizer step of a module on the device, of what the host does not update. */
static mist_expr update(writer *at, enum mist_layer_kind kind)
{
    mist_expr shard = mist_stage_by_zero(at, 2, of(at, MIST_STAGE_UPDATE_2, kind),
                                         of(at, MIST_STAGE_UPDATE_1, kind));
    mist_expr all = mist_stage_by_zero(at, 1, shard, of(at, MIST_STAGE_UPDATE_0, kind));

    if (!updates_on_host(at))
        return all;
    mist_expr share = mul(at, at->on_host, mist_stage_share(at, kind, MIST_RATIO_STATE));
    return sub(at, all, mul(at, share, all));
}

/* The step of a module on the host, the way of its gradients there and of its weights
 * back. */
static mist_expr host_step(writer *at, enum mist_layer_kind kind)
{
    mist_expr share = mul(at, at->on_host, mist_stage_share(at, kind, MIST_RATIO_STATE));

    return mul(at, share,
               by_level(at, kind, 1, MIST_STAGE_UPDATE_HOST_0, MIST_STAGE_UPDATE_HOST_1));
}

static mist_expr host_in(writer *at, enum mist_layer_kind kind)
{
    return mul(at, mist_stage_host_only(at, kind, MIST_RATIO_WEIGHTS),
               by_level(at, kind, 1, MIST_STAGE_WEIGHTS_IN_0, MIST_STAGE_WEIGHTS_IN_1));
}

static mist_expr host_out(writer *at, enum mist_layer_kind kind)
{
    return mul(
        at, mist_stage_host_only(at, kind, MIST_RATIO_GRADIENTS),
        by_level(at, kind, 1, MIST_STAGE_GRADIENTS_OUT_0, MIST_STAGE_GRADIENTS_OUT_1));
}

/* The gather behind it; under ZeRO-3 that of the forward. */
static mist_expr gather(writer *at, enum mist_layer_kind kind)
{
    return mist_stage_by_zero(at, 1, of(at, MIST_STAGE_GATHER, kind), num(at, 0));
}

/* Only what belongs to the step. */
static mist_expr gather_updated(writer *at, enum mist_layer_kind kind)
{
    return sub(at, gather(at, kind), gather_each(at, kind));
}

static mist_expr state_in(writer *at, enum mist_layer_kind kind)
{
    return mul(at, mist_stage_device_only(at, kind, MIST_RATIO_STATE),
               by_level(at, kind, 1, MIST_STAGE_STATE_IN_0, MIST_STAGE_STATE_IN_1));
}

static mist_expr state_out(writer *at, enum mist_layer_kind kind)
{
    return mul(at, mist_stage_device_only(at, kind, MIST_RATIO_STATE),
               by_level(at, kind, 1, MIST_STAGE_STATE_OUT_0, MIST_STAGE_STATE_OUT_1));
}

/* What the step swaps in, but for weights. */
static mist_expr step_in(writer *at, enum mist_layer_kind kind)
{
    mist_expr gradients =
        mul(at, mist_stage_device_only(at, kind, MIST_RATIO_GRADIENTS),
            by_level(at, kind, 1, MIST_STAGE_GRADIENTS_IN_0, MIST_STAGE_GRADIENTS_IN_1));

    return add(at, gradients, state_in(at, kind));
}

/* Weights in the host that the host updates are new there, unless other ranks' parts are
 * gathered on the device. */
static mist_expr step_out(writer *at, enum mist_layer_kind kind)
{
    mist_expr all = mist_stage_share(at, kind, MIST_RATIO_WEIGHTS);
    mist_expr some = mist_stage_device_only(at, kind, MIST_RATIO_WEIGHTS);
    mist_expr share =
        mist_stage_by_zero(at, 3, some, mist_stage_by_zero(at, 1, all, some));
    mist_expr weights =
        mul(at, share,
            by_level(at, kind, 3, MIST_STAGE_WEIGHTS_OUT_0, MIST_STAGE_WEIGHTS_OUT_1));

    return add(at, weights, state_out(at, kind));
}

/*
 * A forward of kind beside the gather of the module after it and the step of the module
 * after that (next, then: kinds).
 */
static mist_expr forward_and_step(writer *at, enum mist_layer_kind kind,
                                  enum mist_layer_kind next, int then)
{
    struct beside beside = {gather(at, next), num(at, 0),
                            kind == BLOCK ? kept_out(at) : num(at, 0)};
    mist_expr start = of(at, MIST_STAGE_FORWARD_START, kind);
    mist_expr whole = of(at, MIST_STAGE_FORWARD, kind);
    mist_expr more = num(at, 0);

    if (then >= 0) {
        enum mist_layer_kind stepping = (enum mist_layer_kind)then;
        more = update(at, stepping);
        beside.to_device =
            add(at, add(at, weights_in(at, stepping), host_in(at, stepping)),
                step_in(at, stepping));
        beside.to_host = add(at, beside.to_host, step_out(at, stepping));
    }
    return at->is_cut
               ? pass(at, add(at, whole, more), add(at, start, more), num(at, 0), beside)
               : bundle(at, add(at, whole, more), beside);
}

/* The first step with nothing beside it, from what it swaps in on. */
static mist_expr lone_step(writer *at, enum mist_layer_kind kind)
{
    mist_expr in =
        add(at, weights_in(at, kind), add(at, step_in(at, kind), host_in(at, kind)));

    return add(at, in, update(at, kind));
}

static enum mist_layer_kind first_kind(const writer *at)
{
    return at->is_first ? EMBEDDING : BLOCK;
}

/* The second step, of a module behind first, with no forward to run beside. */
static mist_expr second_step(writer *at, enum mist_layer_kind first,
                             enum mist_layer_kind kind)
{
    struct beside beside = {
        gather(at, first),
        add(at, add(at, weights_in(at, kind), host_in(at, kind)), step_in(at, kind)),
        step_out(at, first),
    };

    return bundle(at, update(at, kind), beside);
}

/*
 * The optimizer step taken apart: with modules 1 .. n, u1 | u2 beside g1 | f1 u3 beside
 * g2 | ... | f(n-1) beside g(n) | f(n), forwards included. Stages of one block have less
 * in the middle.
 */
static mist_expr first_forward(writer *at)
{
    mist_expr n = at->n_layers, none = num(at, 0);
    int head = at->is_last ? (int)HEAD : -1;
    mist_expr below = lone_step(at, first_kind(at));
    mist_expr many, one, above; /* the middle of many blocks, of one; the last forwards */

    if (at->is_first) {
        below = add(at, below, second_step(at, EMBEDDING, BLOCK));
        many = forward_and_step(at, EMBEDDING, BLOCK, BLOCK);
        one = forward_and_step(at, EMBEDDING, BLOCK, head);
    } else {
        many = second_step(at, BLOCK, BLOCK);
        one = at->is_last ? second_step(at, BLOCK, HEAD)
                          : pair(at, none, gather(at, BLOCK));
    }
    many = add(at, many, forward_and_step(at, BLOCK, BLOCK, head));
    many =
        add(at, many,
            mul(at, sub(at, n, num(at, 2)), forward_and_step(at, BLOCK, BLOCK, BLOCK)));
    if (at->is_last)
        above = add(at, forward_and_step(at, BLOCK, HEAD, -1),
                    of(at, MIST_STAGE_FORWARD, HEAD));
    else
        above = add(at, of(at, MIST_STAGE_FORWARD, BLOCK), kept_out(at));
    return add(at, add(at, below, above),
               mist_expr_select_le(at->pool, n, num(at, 1), one, many));
}

/*
 * The first forward, or what is in front of it (span), with the chain of steps on the
 * host beside: the first of them comes before, and the last module waits for all.
 * gathered: the last module's weights, in time; computed: forwards that span leaves out.
 * Where host and device share the processors, nothing is beside.
 */
static mist_expr beside_host(writer *at, mist_expr span, mist_expr gathered,
                             mist_expr computed)
{
    enum mist_layer_kind first = first_kind(at), last = at->is_last ? HEAD : BLOCK;
    mist_expr steps, tail;

    if (!updates_on_host(at))
        return span;
    steps = mist_stage_all(at, host_step);
    if (at->interference->shares_processors)
        return add(at, span, steps);
    tail = add(at, gathered, of(at, MIST_STAGE_FORWARD, last));
    mist_expr chain = max(at, add(at, steps, host_in(at, last)),
                          add(at, host_step(at, first), mist_stage_all(at, host_in)));
    return max(at, add(at, span, host_step(at, first)),
               sub(at, add(at, chain, tail), computed));
}

/* All steps in front of the first forward: u1 | u2 .. un beside g1 .. g(n-1) | gn. */
static mist_expr steps_in_front(writer *at)
{
    enum mist_layer_kind first = first_kind(at), last = at->is_last ? HEAD : BLOCK;
    mist_expr u1 = update(at, first), gn = gather_updated(at, last);
    struct beside beside = {
        sub(at, mist_stage_all(at, gather_updated), gn),
        sub(at, mist_stage_all(at, step_in), step_in(at, first)),
        sub(at, mist_stage_all(at, step_out), step_out(at, last)),
    };
    mist_expr steps = sub(at, mist_stage_all(at, update), u1);
    mist_expr time = bundle(at, steps, beside);
    mist_expr in = add(at, step_in(at, first), host_in(at, first));

    return beside_host(at, add(at, add(at, in, u1), add(at, time, gn)), gn,
                       forward_all(at));
}

/* -------------------------------------------------------------- extra: last backward */

static mist_expr reduce(writer *at, enum mist_layer_kind kind)
{
    mist_expr sum = mist_stage_by_zero(at, 1, of(at, MIST_STAGE_REDUCE_1, kind),
                                       of(at, MIST_STAGE_REDUCE_0, kind));

    return add(at, sum, of(at, MIST_STAGE_REDUCE_PARTIAL, kind));
}

/* Only what t does not have. */
static mist_expr reduce_once(writer *at, enum mist_layer_kind kind)
{
    return mist_stage_by_zero(at, 2, num(at, 0), reduce(at, kind));
}

static mist_expr norm(writer *at, enum mist_layer_kind kind)
{
    return of(at, MIST_STAGE_NORM, kind);
}

/* Sums taken apart: beside the backward, the first module's behind. */
static mist_expr last_backward(writer *at)
{
    enum mist_layer_kind first = first_kind(at);
    mist_expr top = of(at, MIST_STAGE_BACKWARD, at->is_last ? HEAD : BLOCK);
    mist_expr computed = mul(at, at->n_layers, of(at, MIST_STAGE_BACKWARD, BLOCK));
    mist_expr again = mul(at, at->n_checkpointed, of(at, MIST_STAGE_RECOMPUTE, BLOCK));
    mist_expr ends = add(at, of(at, MIST_STAGE_BACKWARD, EMBEDDING),
                         of(at, MIST_STAGE_BACKWARD, HEAD));
    mist_expr beside = sub(at, add(at, add(at, computed, ends), again), top);
    struct beside before = {
        sub(at, mist_stage_all(at, reduce_once), reduce_once(at, first)), num(at, 0),
        sub(at, mist_stage_all(at, host_out), host_out(at, first))};
    mist_expr behind = add(at, gradients_out(at, first), host_out(at, first));

    return add(at, sub(at, bundle(at, beside, before), beside),
               add(at, reduce(at, first), behind));
}

/* Sums all behind the last backward, and what leaves for the host beside them. */
static mist_expr reduce_behind(writer *at)
{
    struct beside beside = {mist_stage_all(at, reduce_once), num(at, 0),
                            mist_stage_all(at, host_out)};

    return bundle(at, num(at, 0), beside);
}

static mist_expr by_offloading(writer *at, int ratio, mist_expr yes, mist_expr no)
{
    if (!at->offloads)
        return no;
    return mist_expr_select(at->pool, at->ratio[ratio], yes, no);
}

/* What the first micro-batch zeroes; in t where each does. */
static mist_expr zero_once(writer *at)
{
    return mist_stage_by_zero(at, 2, num(at, 0), of(at, MIST_STAGE_ZEROING, EMBEDDING));
}

static mist_expr extra(writer *at)
{
    mist_expr apart = sub(at,
                          beside_host(at, first_forward(at),
                                      gather(at, at->is_last ? HEAD : BLOCK), num(at, 0)),
                          forward_all(at));
    mist_expr beside = last_backward(at);
    mist_expr rest =
        add(at, mist_stage_all(at, norm),
            add(at, at->value[MIST_STAGE_EXCHANGE], at->value[MIST_STAGE_TIE]));

    if (at->is_first)
        rest = add(at, rest, zero_once(at));

    if (!at->is_first) {
        mist_expr behind = mist_stage_by_zero(at, 2, beside, reduce_behind(at));
        apart = by_offloading(at, MIST_RATIO_WEIGHTS, apart, steps_in_front(at));
        beside = by_offloading(at, MIST_RATIO_GRADIENTS, beside, behind);
    }
    return add(at, add(at, apart, beside), rest);
}

void mist_stage_model_write_time(struct mist_stage_writer *at,
                                 mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    outputs[MIST_STAGE_STABLE] = stable(at);
    outputs[MIST_STAGE_EXTRA] = extra(at);
}
