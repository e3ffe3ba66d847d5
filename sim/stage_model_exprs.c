/*
 * The expressions of a stage: what schedule_build.c makes of the knobs, as formulas. See
 * stage_model.h for t, d and peak, stage_model_internal.h for the symbols.
 */
#include "sim/stage_model_internal.h"

/* What the formulas share. A by-kind quantity is value[NAME + kind]. */
struct writer {
    struct mist_expr_pool *pool;
    bool is_first, is_last;
    mist_expr n_layers, n_checkpointed, shards, in_flight, n_micro_batches;
    const mist_expr *value;
};

static mist_expr num(struct writer *at, double value)
{
    return mist_expr_const(at->pool, value);
}

static mist_expr add(struct writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_add(at->pool, a, b);
}

static mist_expr sub(struct writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_sub(at->pool, a, b);
}

static mist_expr mul(struct writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_mul(at->pool, a, b);
}

static mist_expr max(struct writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_max(at->pool, a, b);
}

static mist_expr block(struct writer *at, enum mist_stage_value first)
{
    return at->value[(int)first + MIST_LAYER_BLOCK];
}

/* Of the embedding and of the head, 0 in a stage without. */
static mist_expr embedding(struct writer *at, enum mist_stage_value first)
{
    return at->is_first ? at->value[(int)first + MIST_LAYER_EMBEDDING] : num(at, 0);
}

static mist_expr head(struct writer *at, enum mist_stage_value first)
{
    return at->is_last ? at->value[(int)first + MIST_LAYER_HEAD] : num(at, 0);
}

/* Sum over the modules of the stage. */
static mist_expr all(struct writer *at, enum mist_stage_value first)
{
    return add(at, mul(at, at->n_layers, block(at, first)),
               add(at, embedding(at, first), head(at, first)));
}

/* Time of computation c and communication g that start together. */
static mist_expr bundle(struct writer *at, mist_expr c, mist_expr g)
{
    mist_expr slow_c = at->value[MIST_STAGE_SLOW_COMPUTE];
    mist_expr slow_g = at->value[MIST_STAGE_SLOW_TRANSFER];
    mist_expr together = mist_expr_min(at->pool, mul(at, c, slow_c), mul(at, g, slow_g));
    mist_expr loss =
        sub(at, sub(at, num(at, 1), mist_expr_div(at->pool, num(at, 1), slow_c)),
            mist_expr_div(at->pool, num(at, 1), slow_g));

    return add(at, add(at, c, g), mul(at, together, loss));
}

/* ------------------------------------------------------------------------------- time */

static mist_expr computation(struct writer *at)
{
    return add(at, add(at, all(at, MIST_STAGE_FORWARD), all(at, MIST_STAGE_BACKWARD)),
               mul(at, at->n_checkpointed, block(at, MIST_STAGE_RECOMPUTE)));
}

/* One way of every round trip: the mean of there and back, over both boundaries. */
static mist_expr one_way(struct writer *at)
{
    mist_expr left = add(at, at->value[MIST_STAGE_RECV_ACTIVATION],
                         at->value[MIST_STAGE_SEND_GRADIENT]);
    mist_expr right = add(at, at->value[MIST_STAGE_SEND_ACTIVATION],
                          at->value[MIST_STAGE_RECV_GRADIENT]);

    return mul(
        at, num(at, 0.5),
        add(at, at->is_first ? num(at, 0) : left, at->is_last ? num(at, 0) : right));
}

static mist_expr stable(struct writer *at)
{
    mist_expr way = one_way(at);

    return add(at, bundle(at, computation(at), way), way);
}

/* Of the two values with and without sharded state the one that holds. */
static mist_expr by_shards(struct writer *at, mist_expr without, mist_expr with)
{
    return mist_expr_select(at->pool, at->shards, with, without);
}

/* The first module: the embedding where there is one. */
static mist_expr first_module(struct writer *at, enum mist_stage_value first)
{
    return at->is_first ? embedding(at, first) : block(at, first);
}

/* Seconds by which one kind of task (optimizer, reduction) differs with Z. */
static mist_expr update(struct writer *at,
                        mist_expr (*part)(struct writer *, enum mist_stage_value))
{
    return by_shards(at, part(at, MIST_STAGE_OPTIMIZER_0),
                     part(at, MIST_STAGE_OPTIMIZER_1));
}

static mist_expr reduction(struct writer *at,
                           mist_expr (*part)(struct writer *, enum mist_stage_value))
{
    return by_shards(at, part(at, MIST_STAGE_REDUCE_0), part(at, MIST_STAGE_REDUCE_1));
}

static mist_expr gather(struct writer *at,
                        mist_expr (*part)(struct writer *, enum mist_stage_value))
{
    return mul(at, at->shards, part(at, MIST_STAGE_GATHER));
}

/*
 * The first stage: each optimizer step runs in front of the forward of the module before,
 * each gather beside them. With modules 1 .. n: u1 | u2 beside g1 | f1 u3 beside g2 | ...
 * | f(n-1) beside g(n) | f(n). Without the forwards, which t has.
 */
static mist_expr first_forward(struct writer *at)
{
    mist_expr u = update(at, block), g = gather(at, block);
    mist_expr f = block(at, MIST_STAGE_FORWARD), one = num(at, 1);
    mist_expr embedding_f = embedding(at, MIST_STAGE_FORWARD);
    mist_expr n = at->n_layers;
    mist_expr sum = add(at, update(at, embedding), bundle(at, u, gather(at, embedding)));

    if (at->is_last) { /* the head is one more step behind the blocks */
        mist_expr head_u = update(at, head), head_g = gather(at, head);
        mist_expr only =
            add(at, bundle(at, add(at, embedding_f, head_u), g), bundle(at, f, head_g));
        mist_expr more =
            add(at, bundle(at, add(at, embedding_f, u), g),
                add(at, mul(at, sub(at, n, num(at, 2)), bundle(at, add(at, f, u), g)),
                    add(at, bundle(at, add(at, f, head_u), g), bundle(at, f, head_g))));
        sum = add(at, sum, mist_expr_select_le(at->pool, n, one, only, more));
    } else {
        mist_expr only = bundle(at, embedding_f, g);
        mist_expr more =
            add(at, bundle(at, add(at, embedding_f, u), g),
                add(at, mul(at, sub(at, n, num(at, 2)), bundle(at, add(at, f, u), g)),
                    bundle(at, f, g)));
        sum = add(at, sum, mist_expr_select_le(at->pool, n, one, only, more));
        f = num(at, 0);
        n = sub(at, n, one);
        return sub(at, sum,
                   add(at, embedding_f, mul(at, n, block(at, MIST_STAGE_FORWARD))));
    }
    return sub(at, sum, add(at, embedding_f, mul(at, n, f)));
}

/* The first stage's last backward: reductions beside it, the first module's behind. */
static mist_expr last_backward(struct writer *at)
{
    mist_expr top =
        at->is_last ? head(at, MIST_STAGE_BACKWARD) : block(at, MIST_STAGE_BACKWARD);
    mist_expr beside =
        sub(at,
            add(at, all(at, MIST_STAGE_BACKWARD),
                mul(at, at->n_checkpointed, block(at, MIST_STAGE_RECOMPUTE))),
            top);
    mist_expr last = reduction(at, first_module);
    mist_expr before = sub(at, reduction(at, all), last);

    return add(at, sub(at, bundle(at, beside, before), beside), last);
}

/*
 * Later stages update everything before their first input comes and reduce everything
 * after their last gradient has left: u1 | u2 .. un beside g1 .. g(n-1) | gn.
 */
static mist_expr later(struct writer *at)
{
    mist_expr u1 = update(at, first_module);
    mist_expr gn = at->is_last ? gather(at, head) : gather(at, block);
    mist_expr steps = add(
        at, u1, bundle(at, sub(at, update(at, all), u1), sub(at, gather(at, all), gn)));

    return add(at, reduction(at, all), add(at, steps, gn));
}

static mist_expr extra(struct writer *at)
{
    return at->is_first ? add(at, first_forward(at), last_backward(at)) : later(at);
}

/* ----------------------------------------------------------------------------- memory */

static mist_expr persistent(struct writer *at)
{
    mist_expr tokens = mul(at, at->n_micro_batches, at->value[MIST_STAGE_TOKENS]);
    mist_expr modules =
        mist_expr_select(at->pool, at->shards, all(at, MIST_STAGE_PERSISTENT_1),
                         all(at, MIST_STAGE_PERSISTENT_0));

    return add(at, add(at, modules, at->value[MIST_STAGE_CONSTANT]), tokens);
}

static mist_expr peak(struct writer *at)
{
    mist_expr u = at->value[MIST_STAGE_BOUNDARY];
    mist_expr n_kept = sub(at, at->n_layers, at->n_checkpointed);
    mist_expr saved = block(at, MIST_STAGE_SAVED);
    /* kept by each micro-batch in flight */
    mist_expr kept = add(at, mul(at, add(at, at->n_layers, num(at, at->is_last)), u),
                         add(at, mul(at, n_kept, saved), head(at, MIST_STAGE_SAVED)));
    /* a checkpointed block's saved tensors while it runs */
    mist_expr again =
        mist_expr_select_le(at->pool, n_kept, num(at, 0), saved, num(at, 0));
    mist_expr backward =
        add(at, again,
            add(at, mul(at, num(at, 2), u), block(at, MIST_STAGE_SCRATCH_BACKWARD)));
    mist_expr forward = add(at, again, add(at, u, block(at, MIST_STAGE_SCRATCH_FORWARD)));
    mist_expr most;

    if (at->is_last) { /* its input and saved tensors are gone when the blocks' turn comes
                        */
        backward = sub(at, backward, add(at, u, head(at, MIST_STAGE_SAVED)));
        backward = max(at, backward, add(at, u, head(at, MIST_STAGE_SCRATCH_BACKWARD)));
        forward = sub(at, forward, add(at, u, head(at, MIST_STAGE_SAVED)));
        forward = max(at, forward, head(at, MIST_STAGE_SCRATCH_FORWARD));
    }
    if (!at->is_first) /* the next micro-batch's input has come while this one runs back
                        */
        backward = add(at, backward,
                       mist_expr_select_le(at->pool, at->n_micro_batches, at->in_flight,
                                           num(at, 0), u));
    most = max(at, forward, backward);
    return add(at, add(at, persistent(at), mul(at, at->in_flight, kept)), most);
}

void mist_stage_model_write(struct mist_expr_pool *pool, bool is_first, bool is_last,
                            const mist_expr *columns, const mist_expr *values,
                            mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    struct writer at = {
        .pool = pool,
        .is_first = is_first,
        .is_last = is_last,
        .n_layers = columns[MIST_STAGE_LAYERS],
        .n_checkpointed = columns[MIST_STAGE_CHECKPOINTED],
        .shards = columns[MIST_STAGE_SHARDS],
        .in_flight = columns[MIST_STAGE_IN_FLIGHT],
        .n_micro_batches = columns[MIST_STAGE_MICRO_BATCHES],
        .value = values,
    };

    outputs[MIST_STAGE_STABLE] = stable(&at);
    outputs[MIST_STAGE_EXTRA] = extra(&at);
    outputs[MIST_STAGE_PEAK] = peak(&at);
}
