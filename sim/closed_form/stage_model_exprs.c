/*
 * The times of a stage: what the schedule puts beside what, as formulas. See
 * stage_model.h for t and d, stage_model_internal.h for the symbols.
 *
 * A pass of a module runs beside what the next one needs (gathers, swaps in) and what the
 * one before has left (sums, swaps out): the pieces of schedule_piece.h. Blocks are
 * alike, so three stand for all: the first, one in the middle, the last.
 */
#include "sim/closed_form/stage_model_internal.h"

#define EMBEDDING MIST_LAYER_EMBEDDING
#define BLOCK     MIST_LAYER_BLOCK
#define HEAD      MIST_LAYER_HEAD

typedef struct mist_stage_writer writer;

/* --------------------------------------------------------------------------- bundles */

typedef struct mist_stage_work work;

#define COMPUTE   MIST_STREAM_COMPUTE
#define GPU_GPU   MIST_STREAM_GPU_GPU
#define TO_DEVICE MIST_STREAM_HOST_TO_DEVICE
#define TO_HOST   MIST_STREAM_DEVICE_TO_HOST

/* Computation for so many seconds, and what runs beside it. */
static mist_expr bundle(writer *at, mist_expr compute, work beside)
{
    beside.seconds[COMPUTE] = compute;
    return mist_stage_bundle(at, beside.seconds);
}

/* Computation beside communication, nothing else. */
static mist_expr pair(writer *at, mist_expr compute, mist_expr gpu_gpu)
{
    work beside = mist_stage_no_work(at);

    beside.seconds[GPU_GPU] = gpu_gpu;
    return bundle(at, compute, beside);
}

/*
 * A pass of whole seconds that computes start seconds before it communicates; beside it
 * other work, more computation too, which comes behind. Its own communication waits for
 * what was dispatched before it.
 */
static mist_expr pass(writer *at, mist_expr whole, mist_expr start, work beside)
{
    mist_expr more = beside.seconds[COMPUTE];

    if (at->is_cut) {
        whole = add(at, sub(at, whole, start), pair(at, start, beside.seconds[GPU_GPU]));
        beside.seconds[GPU_GPU] = num(at, 0);
    }
    return bundle(at, add(at, whole, more), beside);
}

/* -------------------------------------------------------------------------- passes */

/* Modules of a stage, the blocks by where they are. */
enum position { AT_EMBEDDING, AT_BOTTOM, AT_MIDDLE, AT_TOP, AT_HEAD, N_POSITIONS };

/* A pass of one of them. */
struct visit {
    enum position position;
    bool is_backward;
};

/* Passes of a stable micro-batch in order; behind the last one comes the first again. The
 * embedding has no input to split a backward for. */
struct round {
    struct visit visits[2 * N_POSITIONS];
    int n;
};

static enum mist_layer_kind kind_of(struct visit visit)
{
    return visit.position == AT_EMBEDDING ? EMBEDDING
           : visit.position == AT_HEAD    ? HEAD
                                          : BLOCK;
}

static struct round round_of(const writer *at)
{
    struct round out = {.n = 0};

    for (int i = 0; i < 2 * N_POSITIONS; i++) {
        bool is_backward = i >= N_POSITIONS;
        int position = is_backward ? 2 * N_POSITIONS - 1 - i : i;
        bool has_embedding = at->is_first && !(is_backward && at->is_split);
        if ((position != AT_EMBEDDING || has_embedding) &&
            (position != AT_HEAD || at->is_last))
            out.visits[out.n++] = (struct visit){(enum position)position, is_backward};
    }
    return out;
}

/* Weights for a pass. Where the stage has both ends a tied head computes with the
 * embedding's. */
static work weights(writer *at, enum mist_layer_kind kind)
{
    const struct mist_stage_when when = {.moment = MIST_MOMENT_WEIGHTS,
                                         .conditions = MIST_IF_BRINGS};
    work out = mist_stage_pieces(at, kind, when);

    if (kind != HEAD || !at->is_first)
        return out;
    work tied = mist_stage_pieces(at, EMBEDDING, when);
    mist_expr is_tied = sub(at, num(at, 1), at->value[MIST_STAGE_IS_UNTIED]);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        tied.seconds[i] = mul(at, is_tied, tied.seconds[i]);
    return mist_stage_add_work(at, out, tied);
}

/* Whether the gradients of a module's weights, and what goes with them, are left to the second
 * part of a split backward; of the head all is in the first. */
static bool is_left_to_second(const writer *at, enum mist_layer_kind kind)
{
    return at->is_split && kind != HEAD;
}

/* What is dispatched before a pass for the one behind it: weights, unless it has just
 * worked with them, sums to add to, and what its block has kept (a checkpointed one where
 * is_kept is at most 0). The embedding's backward reads no weights; the head's forward
 * begins its gradients. Behind the last backward of all comes none. now: MIST_IF_FIRST,
 * MIST_IF_LAST of the first, the last micro-batch, 0 of a stable one. */
static work needs(writer *at, struct visit before, struct visit visit, mist_expr is_kept,
                  uint32_t now)
{
    enum mist_layer_kind kind = kind_of(visit);
    bool is_there = visit.position == before.position && kind != EMBEDDING;
    bool is_over = now == MIST_IF_LAST && before.is_backward && !visit.is_backward;
    bool reads = !is_over && (kind != EMBEDDING || !visit.is_backward);
    bool begins = kind == HEAD ? !visit.is_backward : visit.is_backward;
    work out = mist_stage_no_work(at);

    if (reads && !is_there)
        out = weights(at, kind);
    if (visit.is_backward && kind == BLOCK && !(at->is_last && visit.position == AT_TOP))
        out.seconds[TO_DEVICE] =
            add(at, out.seconds[TO_DEVICE], mist_stage_kept_in(at, is_kept));
    if (!begins || is_left_to_second(at, kind))
        return out;
    return mist_stage_add_work(
        at, out,
        mist_stage_pieces(at, kind,
                          (struct mist_stage_when){.moment = MIST_MOMENT_GRADIENTS,
                                                   .conditions = now}));
}

/* Whether a module has gradients that leave the device. */
static mist_expr if_some_leave(writer *at, mist_expr yes, mist_expr no)
{
    return at->offloads
               ? mist_expr_select(at->pool, at->ratio[MIST_RATIO_GRADIENTS], yes, no)
               : no;
}

/* What a module's gradients of a micro-batch leave behind; which of them. */
static work sums_of(writer *at, enum mist_layer_kind kind, uint32_t now,
                    enum mist_stage_which which)
{
    struct mist_stage_when when = {
        .moment = MIST_MOMENT_SUM, .conditions = now, .which = which};
    work out = mist_stage_pieces(at, kind, when);
    mist_expr partial = of(at, MIST_STAGE_REDUCE_PARTIAL, kind), none = num(at, 0);
    mist_expr zeroing = of(at, MIST_STAGE_ZEROING, kind);

    when.moment = MIST_MOMENT_SETTLE;
    out = mist_stage_add_work(at, out, mist_stage_pieces(at, kind, when));
    if (now != MIST_IF_LAST)
        partial = mist_stage_by_zero(at, 2, partial, none);
    else if (which == MIST_STAGE_THAT_LEAVE)
        partial = mist_stage_by_zero(at, 2, partial, if_some_leave(at, partial, none));
    else if (which == MIST_STAGE_THAT_STAY)
        partial = mist_stage_by_zero(at, 2, none, if_some_leave(at, none, partial));
    out.seconds[GPU_GPU] = add(at, out.seconds[GPU_GPU], partial);
    if (which != MIST_STAGE_THAT_STAY)
        out.seconds[COMPUTE] =
            add(at, out.seconds[COMPUTE], mist_stage_by_zero(at, 2, zeroing, none));
    return out;
}

/* Those that follow the pass; a stage whose sums are behind puts off what stays. */
static work sums(writer *at, enum mist_layer_kind kind, uint32_t now)
{
    bool puts_off = now == MIST_IF_LAST && at->puts_off;

    return sums_of(at, kind, now, puts_off ? MIST_STAGE_THAT_LEAVE : MIST_STAGE_ALL);
}

/* Of a pass; of the last block nothing, where its backward follows. */
static work leaves(writer *at, struct visit visit, mist_expr is_kept, uint32_t now)
{
    bool sums_up = visit.is_backward && !is_left_to_second(at, kind_of(visit));
    work out = sums_up ? sums(at, kind_of(visit), now) : mist_stage_no_work(at);

    if (!visit.is_backward && kind_of(visit) == BLOCK &&
        !(at->is_last && visit.position == AT_TOP))
        out.seconds[TO_HOST] = mist_stage_kept_out(at, is_kept);
    return out;
}

/* Passes, as pass() has them. */
struct span {
    mist_expr whole, start;
    work beside;
};

static mist_expr seconds_of(writer *at, struct span span)
{
    return pass(at, span.whole, span.start, span.beside);
}

/* Of a pass and its neighbours, each at most 0 where its block is checkpointed. */
struct sorts {
    mist_expr before, own, after;
};

static struct sorts kept_sorts(writer *at)
{
    return (struct sorts){num(at, 1), num(at, 1), num(at, 1)};
}

/* A pass between two others. */
static struct span window(writer *at, struct visit before, struct visit visit,
                          struct visit after, struct sorts is_kept, uint32_t now)
{
    enum mist_layer_kind kind = kind_of(visit);
    work beside = mist_stage_add_work(at, leaves(at, before, is_kept.before, now),
                                      needs(at, visit, after, is_kept.after, now));
    mist_expr whole = of(at, MIST_STAGE_FORWARD, kind);
    mist_expr start = of(at, MIST_STAGE_FORWARD_START, kind), none = num(at, 0);

    if (visit.is_backward && at->is_split) {
        whole = of(at, MIST_STAGE_BACKWARD_INPUT, kind);
        start = of(at, MIST_STAGE_BACKWARD_INPUT_START, kind);
    } else if (visit.is_backward) {
        whole = of(at, MIST_STAGE_BACKWARD, kind);
        start = of(at, MIST_STAGE_BACKWARD_START, kind);
    }
    if (visit.is_backward && kind == BLOCK) {
        mist_expr remade = at->is_split ? none : mist_stage_remake(at);
        mist_expr again = add(at, whole, of(at, MIST_STAGE_RECOMPUTE, kind));
        whole = mist_expr_select_le(at->pool, is_kept.own, none, again,
                                    add(at, whole, remade));
        start = mist_expr_select_le(at->pool, is_kept.own, none,
                                    of(at, MIST_STAGE_RECOMPUTE_START, kind),
                                    add(at, start, remade));
    }
    return (struct span){whole, start, beside};
}

/* Forward or backward passes of a micro-batch, all or some of them, or both. */
struct passes {
    mist_expr seconds; /* each beside what goes with it */
    struct span all;   /* as if they were one, beside all of that */
};

static struct passes no_passes(writer *at)
{
    mist_expr none = num(at, 0);

    return (struct passes){none, {none, none, mist_stage_no_work(at)}};
}

/* Passes, and others behind them. */
static struct passes join(writer *at, struct passes a, struct passes b)
{
    return (struct passes){
        add(at, a.seconds, b.seconds),
        {add(at, a.all.whole, b.all.whole), add(at, a.all.start, b.all.start),
         mist_stage_add_work(at, a.all.beside, b.all.beside)},
    };
}

/* And n such passes more. */
static void add_passes(writer *at, struct passes *sum, mist_expr n, struct span span)
{
    struct passes more = {mul(at, n, seconds_of(at, span)),
                          {mul(at, n, span.whole), mul(at, n, span.start), span.beside}};

    for (int i = 0; i < MIST_N_STREAMS; i++)
        more.all.beside.seconds[i] = mul(at, n, span.beside.seconds[i]);
    *sum = join(at, *sum, more);
}

/* 1 where n is above 0, else 0. */
static mist_expr if_any(writer *at, mist_expr n)
{
    return mist_expr_select_le(at->pool, n, num(at, 0), num(at, 0), num(at, 1));
}

/*
 * Passes of the blocks in the middle: all but two, of which the last is kept if any is, and
 * the first checkpointed if any is (-1 of them in a stage of one block, which the sum takes
 * for what two have of one). Forwards differ by what the block before has left. Backwards
 * bring what the next one needs, of the same sort but for one, the lowest kept block's: the
 * last block's, which computes the same, stands for that one.
 */
static void add_middle(writer *at, struct passes *sum, struct visit before,
                       struct visit visit, struct visit after, uint32_t now)
{
    mist_expr one = num(at, 1), none = num(at, 0);
    mist_expr kept = mist_stage_n_kept(at), again = at->n_checkpointed;
    mist_expr n = sub(at, at->n_layers, num(at, 2)), m = none;
    struct sorts all = kept_sorts(at), others = {none, none, none};

    if (visit.is_backward) {
        mist_expr has_no_kept = sub(at, one, if_any(at, kept));
        mist_expr has_none_again = sub(at, one, if_any(at, again));
        n = sub(at, sub(at, kept, if_any(at, kept)), has_none_again);
        m = sub(at, sub(at, again, if_any(at, again)), has_no_kept);
    } else if (at->offloads) {
        m = mist_expr_min(at->pool, again, n);
        n = sub(at, n, m);
    }
    add_passes(at, sum, n, window(at, before, visit, after, all, now));
    add_passes(at, sum, m, window(at, before, visit, after, others, now));
}

static struct passes passes(writer *at, bool is_backward, uint32_t now)
{
    struct round round = round_of(at);
    struct passes sum = no_passes(at);
    mist_expr one = num(at, 1), has_kept = if_any(at, mist_stage_n_kept(at));
    mist_expr all_kept = sub(at, one, if_any(at, at->n_checkpointed));

    for (int i = 0; i < round.n; i++) {
        struct visit before = round.visits[(i + round.n - 1) % round.n];
        struct visit visit = round.visits[i];
        struct visit after = round.visits[(i + 1) % round.n];
        struct sorts is_kept = {has_kept, all_kept, has_kept};
        uint32_t bit = 1u << visit.position << (is_backward ? N_POSITIONS : 0);
        if (visit.is_backward != is_backward || (at->which && !(at->which & bit)))
            continue;
        if (visit.position == AT_TOP && is_backward)
            is_kept = (struct sorts){has_kept, has_kept, all_kept};
        else if (visit.position == AT_TOP)
            is_kept.before = sub(at, mist_stage_n_kept(at), one);
        if (visit.position == AT_MIDDLE)
            add_middle(at, &sum, before, visit, after, now);
        else
            add_passes(at, &sum, one, window(at, before, visit, after, is_kept, now));
    }
    return sum;
}

static struct passes whole_backwards(writer *at, uint32_t now)
{
    return passes(at, true, now);
}

/* The first parts of split backwards. */
static struct passes input_backwards(writer *at, uint32_t now)
{
    at->is_split = true;
    struct passes out = passes(at, true, now);
    at->is_split = false;
    return out;
}

/* The second one of a module, beside the sums that another has left. */
static struct span second_part(writer *at, enum mist_layer_kind kind, work left,
                               uint32_t now)
{
    const struct mist_stage_when begins = {.moment = MIST_MOMENT_GRADIENTS,
                                           .conditions = now};
    work beside = mist_stage_add_work(at, left, mist_stage_pieces(at, kind, begins));

    return (struct span){of(at, MIST_STAGE_BACKWARD_WEIGHT, kind),
                         of(at, MIST_STAGE_BACKWARD_WEIGHT_START, kind), beside};
}

/* Of a lean block, which makes again what it did not keep: with the weights of its norms, which
 * never leave for the host but may be cut over ranks. */
static struct span second_part_of_lean(writer *at, work left, uint32_t now)
{
    const struct mist_stage_when norms = {.moment = MIST_MOMENT_WEIGHTS,
                                          .conditions = MIST_IF_BRINGS,
                                          .none = MIST_IF_WEIGHTS_AWAY};
    mist_expr remade = of(at, MIST_STAGE_REMAKE, BLOCK);
    struct span out = second_part(at, BLOCK, left, now);

    out.whole = add(at, out.whole, remade);
    out.start = add(at, out.start, remade);
    out.beside = mist_stage_add_work(at, out.beside, mist_stage_pieces(at, BLOCK, norms));
    return out;
}

/* The second parts: what the last of them leaves is beside a forward. */
static struct passes weight_backwards(writer *at, uint32_t now)
{
    struct passes out = no_passes(at);
    mist_expr one = num(at, 1), rest = sub(at, at->n_layers, one);
    mist_expr n_lean = at->has_lean ? sub(at, at->n_lean, one) : num(at, 0);
    work none = mist_stage_no_work(at), summed = sums(at, BLOCK, now);

    add_passes(at, &out, one,
               at->has_lean ? second_part_of_lean(at, none, now)
                            : second_part(at, BLOCK, none, now));
    add_passes(at, &out, n_lean, second_part_of_lean(at, summed, now));
    add_passes(at, &out, sub(at, rest, n_lean), second_part(at, BLOCK, summed, now));
    if (at->is_first)
        add_passes(at, &out, one, second_part(at, EMBEDDING, summed, now));
    return out;
}

static struct passes split_backwards(writer *at, uint32_t now)
{
    return join(at, input_backwards(at, now), weight_backwards(at, now));
}

/* All backward passes of a micro-batch. */
typedef struct passes all_backwards(writer *at, uint32_t now);

/* What gradients that come from the host, and go there, make those of a module longer, in the
 * mean. */
static mist_expr lost_to_gradients(writer *at, all_backwards *backwards)
{
    const mist_expr ratio = at->ratio[MIST_RATIO_GRADIENTS];
    mist_expr n = add(at, at->n_layers, num(at, at->is_first + at->is_last));
    mist_expr with = backwards(at, 0).seconds;

    at->ratio[MIST_RATIO_GRADIENTS] = num(at, 0);
    mist_expr without = backwards(at, 0).seconds;
    at->ratio[MIST_RATIO_GRADIENTS] = ratio;
    return mist_expr_div(at->pool, sub(at, with, without), n);
}

/* What passes take longer each beside its own copies and messages than all beside all of
 * those. */
static mist_expr lost(writer *at, struct passes of)
{
    return max(at, num(at, 0), sub(at, of.seconds, seconds_of(at, of.all)));
}

/* Passes of a micro-batch; which of them (bits; 0: all), and second parts of backwards. */
static mist_expr lost_by_pass(writer *at, all_backwards *backwards, uint32_t which)
{
    at->which = which;
    struct passes both = join(at, passes(at, false, 0), backwards(at, 0));
    at->which = 0;
    return lost(at, both);
}

/* Forwards and second parts of backwards, where no first parts are in between: in the last stage
 * these follow each forward, and each has those to itself. */
static mist_expr lost_between_first_parts(writer *at)
{
    struct passes forwards = passes(at, false, 0), seconds = weight_backwards(at, 0);

    return at->is_last ? add(at, lost(at, forwards), lost(at, seconds))
                       : lost(at, join(at, forwards, seconds));
}

enum {
    BOTTOM = 1u << AT_EMBEDDING | 1u << AT_BOTTOM,
    BELOW_TOP = BOTTOM | 1u << AT_MIDDLE,
    BACK = N_POSITIONS, /* bits of backward passes are behind those of forwards */
    FAR_FROM_PEAK = BELOW_TOP | BELOW_TOP << BACK,
    TURN = BOTTOM | BOTTOM << BACK /* where backwards end and forwards begin */
};

/*
 * What weights win by running ahead below the last block, where blocks above have left their
 * rooms: not those that are summed meanwhile. Where blocks keep something in the host, that
 * comes and leaves pass by pass, and weights are in line with it but where backwards end and
 * forwards begin, unless that is in the last block, too.
 */
static mist_expr won_by_weights(writer *at, all_backwards *backwards)
{
    if (!at->offloads)
        return num(at, 0);
    mist_expr far = mist_expr_select(at->pool, at->ratio[MIST_RATIO_KEPT], num(at, 0),
                                     lost_by_pass(at, backwards, FAR_FROM_PEAK));
    mist_expr turn = lost_by_pass(at, backwards, TURN);
    mist_expr won =
        mist_expr_select_le(at->pool, at->n_layers, num(at, 1), far, max(at, far, turn));
    return mist_stage_by_zero(at, 2, num(at, 0), won);
}

/* What gradients that leave win by running a pass ahead, or behind, into the forwards, for
 * which they have room, as far as all that a micro-batch takes on any stream fits beside the
 * rest; where the second parts of backwards are in between, which want no weights, as far as
 * that. What is summed over ranks meanwhile has not; nor do kept activations, whose rooms the
 * next pass but one wants: first parts of backwards wait for theirs until forwards' copies have
 * left. */
static mist_expr won_by_gradients(writer *at, all_backwards *backwards)
{
    if (!at->offloads)
        return num(at, 0);
    mist_expr won = lost_by_pass(at, backwards, 0);
    if (backwards != split_backwards)
        won = mist_expr_min(at->pool, won, lost_to_gradients(at, backwards));
    else
        won = mist_expr_select(at->pool, at->ratio[MIST_RATIO_KEPT],
                               mist_expr_min(at->pool, won, lost_between_first_parts(at)),
                               won);
    return mist_stage_by_zero(at, 2, num(at, 0), won);
}

/* What all backward passes are shorter than each beside its own copies. */
struct won {
    mist_expr stable;
    mist_expr first; /* in the first micro-batch, whose weights wait for the step */
};

static struct won won_ahead(writer *at, all_backwards *backwards)
{
    mist_expr by_gradients = won_by_gradients(at, backwards);

    return (struct won){max(at, won_by_weights(at, backwards), by_gradients),
                        by_gradients};
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

/* -------------------------------------------------------------- extra: first forward */

/* The optimizer step of a module. brings: with its weights for the forward (MIST_IF_BRINGS).
 * only: what the host's updates ask for (MIST_IF_HOST_UPDATES). */
static work step_of(writer *at, enum mist_layer_kind kind, uint32_t brings, uint32_t only)
{
    struct mist_stage_when when = {.moment = MIST_MOMENT_WEIGHTS,
                                   .conditions = MIST_IF_STEPS | MIST_IF_FIRST | brings,
                                   .only = only};
    work out = mist_stage_pieces(at, kind, when);

    when.moment = MIST_MOMENT_STEPPED;
    return mist_stage_add_work(at, out, mist_stage_pieces(at, kind, when));
}

/* Of the step taken apart, by stream. */
static mist_expr apart(writer *at, enum mist_layer_kind kind, enum mist_stream stream)
{
    return step_of(at, kind, MIST_IF_BRINGS, 0).seconds[stream];
}

/* Of the steps in front of all forwards. */
static mist_expr in_front(writer *at, enum mist_layer_kind kind, enum mist_stream stream)
{
    return step_of(at, kind, 0, 0).seconds[stream];
}

/* Of all modules. */
static mist_expr all(writer *at,
                     mist_expr part(writer *at, enum mist_layer_kind kind,
                                    enum mist_stream stream),
                     enum mist_stream stream)
{
    const mist_expr of_kind[] = {part(at, EMBEDDING, stream), part(at, BLOCK, stream),
                                 part(at, HEAD, stream)};

    return mist_stage_total(at, of_kind);
}

/* The step of a module on the host, and the way of its weights to the device. */
static mist_expr host_step(writer *at, enum mist_layer_kind kind)
{
    return in_front(at, kind, MIST_STREAM_HOST);
}

static mist_expr from_host(writer *at, enum mist_layer_kind kind, enum mist_stream stream)
{
    return step_of(at, kind, 0, MIST_IF_HOST_UPDATES).seconds[stream];
}

/*
 * A forward of kind beside the gather of the module after it and the step of the module
 * after that (next, then: kinds).
 */
static mist_expr forward_and_step(writer *at, enum mist_layer_kind kind,
                                  enum mist_layer_kind next, int then)
{
    work beside = mist_stage_no_work(at);
    mist_expr start = of(at, MIST_STAGE_FORWARD_START, kind);
    mist_expr whole = of(at, MIST_STAGE_FORWARD, kind);

    if (then >= 0) {
        beside = step_of(at, (enum mist_layer_kind)then, MIST_IF_BRINGS, 0);
        whole = add(at, whole, beside.seconds[COMPUTE]);
        start = add(at, start, beside.seconds[COMPUTE]);
        beside.seconds[COMPUTE] = num(at, 0);
    }
    beside.seconds[GPU_GPU] = apart(at, next, GPU_GPU);
    if (kind == BLOCK)
        beside.seconds[TO_HOST] =
            add(at, beside.seconds[TO_HOST], mist_stage_mean_kept_out(at));
    return pass(at, whole, start, beside);
}

static enum mist_layer_kind first_kind(const writer *at)
{
    return at->is_first ? EMBEDDING : BLOCK;
}

/* The second step, of a module behind first, with no forward to run beside. */
static mist_expr second_step(writer *at, enum mist_layer_kind first,
                             enum mist_layer_kind kind)
{
    work beside = mist_stage_no_work(at);

    beside.seconds[GPU_GPU] = apart(at, first, GPU_GPU);
    beside.seconds[TO_DEVICE] = apart(at, kind, TO_DEVICE);
    beside.seconds[TO_HOST] = apart(at, first, TO_HOST);
    return bundle(at, apart(at, kind, COMPUTE), beside);
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
    mist_expr many, one, above; /* the middle of many blocks, of one; the last forwards */
    mist_expr below =
        add(at, apart(at, first_kind(at), TO_DEVICE), apart(at, first_kind(at), COMPUTE));

    if (at->is_first) {
        below = add(at, below, second_step(at, EMBEDDING, BLOCK));
        many = forward_and_step(at, EMBEDDING, BLOCK, BLOCK);
        one = forward_and_step(at, EMBEDDING, BLOCK, head);
    } else {
        many = second_step(at, BLOCK, BLOCK);
        one = at->is_last ? second_step(at, BLOCK, HEAD)
                          : pair(at, none, apart(at, BLOCK, GPU_GPU));
    }
    many = add(at, many, forward_and_step(at, BLOCK, BLOCK, head));
    many =
        add(at, many,
            mul(at, sub(at, n, num(at, 2)), forward_and_step(at, BLOCK, BLOCK, BLOCK)));
    if (at->is_last)
        above = add(at, forward_and_step(at, BLOCK, HEAD, -1),
                    of(at, MIST_STAGE_FORWARD, HEAD));
    else
        above = add(at, of(at, MIST_STAGE_FORWARD, BLOCK), mist_stage_mean_kept_out(at));
    return SUM(at, below, above, mist_expr_select_le(at->pool, n, num(at, 1), one, many));
}

/* What the first micro-batch begins with, on the device. */
struct beginning {
    mist_expr span; /* the first forward with its steps, or all steps in front of it */
    mist_expr gathered; /* the last module's weights */
    mist_expr computed; /* forwards that span leaves out */
};

/* Whether the host has steps beside the device; where both share the processors, nothing is. */
static bool steps_beside(const writer *at)
{
    return at->on_host && !at->interference->shares_processors;
}

static mist_expr all_on_host(writer *at)
{
    return all(at, in_front, MIST_STREAM_HOST);
}

/* What the device takes, and the host where nothing is beside. */
static mist_expr without_waits(writer *at, struct beginning begins)
{
    return at->on_host && !steps_beside(at) ? add(at, begins.span, all_on_host(at))
                                            : begins.span;
}

/* With the chain of steps on the host beside: the first of them comes before, and the last
 * module waits for all. */
static mist_expr beside_host(writer *at, struct beginning begins)
{
    enum mist_layer_kind first = first_kind(at), last = at->is_last ? HEAD : BLOCK;

    if (!steps_beside(at))
        return without_waits(at, begins);
    mist_expr steps = all_on_host(at);
    mist_expr tail = add(at, begins.gathered, of(at, MIST_STAGE_FORWARD, last));
    mist_expr chain = max(at, add(at, steps, from_host(at, last, TO_DEVICE)),
                          add(at, host_step(at, first), all(at, from_host, TO_DEVICE)));
    return max(at, add(at, begins.span, host_step(at, first)),
               sub(at, add(at, chain, tail), begins.computed));
}

/* All steps in front of the first forward: u1 | u2 .. un beside g1 .. g(n-1) | gn. */
static struct beginning steps_in_front(writer *at)
{
    enum mist_layer_kind first = first_kind(at), last = at->is_last ? HEAD : BLOCK;
    mist_expr in = in_front(at, first, TO_DEVICE), u1 = in_front(at, first, COMPUTE);
    mist_expr gn = in_front(at, last, GPU_GPU), out = in_front(at, last, TO_HOST);
    work beside = mist_stage_no_work(at);

    beside.seconds[GPU_GPU] = sub(at, all(at, in_front, GPU_GPU), gn);
    beside.seconds[TO_DEVICE] = sub(at, all(at, in_front, TO_DEVICE), in);
    beside.seconds[TO_HOST] = sub(at, all(at, in_front, TO_HOST), out);
    mist_expr steps = sub(at, all(at, in_front, COMPUTE), u1);
    mist_expr time = bundle(at, steps, beside);

    return (struct beginning){add(at, add(at, in, u1), add(at, time, gn)), gn,
                              passes(at, false, 0).seconds};
}

/* -------------------------------------------------------------- extra: last backward */

/* Of sums taken apart, each beside the next pass, the first module's: behind the last one. */
static mist_expr sums_of_first(writer *at)
{
    work behind = sums(at, first_kind(at), MIST_IF_LAST);

    return SUM(at, behind.seconds[GPU_GPU], behind.seconds[TO_HOST],
               behind.seconds[COMPUTE]);
}

static mist_expr left(writer *at, enum mist_layer_kind kind, enum mist_stream stream)
{
    return sums_of(at, kind, MIST_IF_LAST, MIST_STAGE_THAT_STAY).seconds[stream];
}

/* Sums behind the last backward, and what leaves for the host beside them. */
static mist_expr reduce_behind(writer *at)
{
    work beside = mist_stage_no_work(at);

    beside.seconds[GPU_GPU] = all(at, left, GPU_GPU);
    beside.seconds[TO_HOST] = all(at, left, TO_HOST);
    return bundle(at, all(at, left, COMPUTE), beside);
}

/* What the first micro-batch zeroes; in t where each does. */
static mist_expr zero_once(writer *at)
{
    return mist_stage_by_zero(at, 2, num(at, 0), of(at, MIST_STAGE_ZEROING, EMBEDDING));
}

/* The optimizer step, before or in the first forward. */
static struct beginning beginning(writer *at)
{
    if (at->is_ahead)
        return steps_in_front(at);
    return (struct beginning){first_forward(at),
                              apart(at, at->is_last ? HEAD : BLOCK, GPU_GPU), num(at, 0)};
}

/* What it adds to the forwards. */
static mist_expr longer_by(writer *at, mist_expr begun)
{
    return at->is_ahead ? begun : sub(at, begun, passes(at, false, 0).seconds);
}

/* What the first micro-batch's backward takes less, as it finds no gradients in the host to
 * add to: of each block what it is of one in the middle. */
static mist_expr less_at_first(writer *at)
{
    const struct visit before = {AT_TOP, true}, visit = {AT_MIDDLE, true};
    const struct visit after = {AT_BOTTOM, true};
    mist_expr less = sub(
        at, seconds_of(at, window(at, before, visit, after, kept_sorts(at), 0)),
        seconds_of(at, window(at, before, visit, after, kept_sorts(at), MIST_IF_FIRST)));

    return if_some_leave(at, mul(at, at->n_layers, less), num(at, 0));
}

/* Sums in the last micro-batch's backward. */
static mist_expr last(writer *at, all_backwards *backwards)
{
    return sub(at, backwards(at, MIST_IF_LAST).seconds, backwards(at, 0).seconds);
}

/* Of tied gradients, where they are summed once. */
static mist_expr tied(writer *at)
{
    mist_expr tie = at->value[MIST_STAGE_TIE];

    if (at->is_first && at->is_last)
        tie = mist_stage_if_apart(at, tie, num(at, 0));
    return add(
        at, tie,
        mist_stage_by_zero(at, 2, at->value[MIST_STAGE_EXCHANGED_SUM], num(at, 0)));
}

/* What is put off until all backwards have been, or done once. */
static mist_expr put_off(writer *at)
{
    return at->puts_off ? reduce_behind(at) : zero_once(at);
}

/* ---------------------------------------------------------------------- other orders */

/* What a pass takes longer beside more. */
static mist_expr longer_with(writer *at, struct span span, work more)
{
    mist_expr without = seconds_of(at, span);

    span.beside = mist_stage_add_work(at, span.beside, more);
    return sub(at, seconds_of(at, span), without);
}

/* The last block's forward or the first one's backward, where the next pass is not of the same
 * block. */
static mist_expr brings_weights(writer *at, bool is_backward)
{
    const struct visit before = {AT_MIDDLE, is_backward};
    const struct visit visit = {is_backward ? AT_BOTTOM : AT_TOP, is_backward};
    const struct visit after = {visit.position, !is_backward};

    return longer_with(at, window(at, before, visit, after, kept_sorts(at), 0),
                       weights(at, BLOCK));
}

/* The second part behind which a forward follows: a lean first block has what is cut over
 * ranks. */
static mist_expr brings_behind_weight(writer *at)
{
    const struct mist_stage_when away = {.moment = MIST_MOMENT_WEIGHTS,
                                         .conditions = MIST_IF_BRINGS,
                                         .only = MIST_IF_WEIGHTS_AWAY};
    struct span last = second_part(at, first_kind(at), sums(at, BLOCK, 0), 0);
    mist_expr all = longer_with(at, last, weights(at, BLOCK));

    if (!at->has_lean || at->is_first)
        return all;
    return mist_expr_select(at->pool, at->n_checkpointed, all,
                            longer_with(at, last, mist_stage_pieces(at, BLOCK, away)));
}

/* The first pass of forwards or backwards beside the sums that a backward has left. */
static mist_expr longer_beside_sums(writer *at, bool is_backward)
{
    struct round round = round_of(at);
    int i = 0;

    while (round.visits[i].is_backward != is_backward)
        i++;
    const struct visit before = {AT_MIDDLE, false}; /* which leaves no sums */
    struct span first =
        window(at, before, round.visits[i], round.visits[i + 1], kept_sorts(at), 0);
    return longer_with(at, first, sums(at, first_kind(at), 0));
}

/* What backwards take longer because blocks keep something in the host. */
static mist_expr lost_to_kept(writer *at, all_backwards *backwards)
{
    const mist_expr ratio = at->ratio[MIST_RATIO_KEPT];
    mist_expr with = backwards(at, 0).seconds;

    at->ratio[MIST_RATIO_KEPT] = num(at, 0);
    mist_expr without = backwards(at, 0).seconds;
    at->ratio[MIST_RATIO_KEPT] = ratio;
    return sub(at, with, without);
}

void mist_stage_model_write_time(struct mist_stage_writer *at,
                                 mist_expr outputs[MIST_STAGE_N_OUTPUTS])
{
    mist_expr forwards = passes(at, false, 0).seconds;
    struct won won = won_ahead(at, whole_backwards);
    mist_expr backwards = sub(at, whole_backwards(at, 0).seconds, won.stable);
    mist_expr last_sums = last(at, whole_backwards);
    mist_expr not_won = sub(at, won.stable, won.first);
    struct beginning begins = beginning(at);

    outputs[MIST_STAGE_STABLE] = SUM(at, forwards, backwards, one_way(at));
    outputs[MIST_STAGE_FIRST] = add(at, longer_by(at, beside_host(at, begins)), not_won);
    outputs[MIST_STAGE_FIRST_UNHELD] =
        add(at, longer_by(at, without_waits(at, begins)), not_won);
    outputs[MIST_STAGE_ON_HOST] = steps_beside(at) ? all_on_host(at) : num(at, 0);
    outputs[MIST_STAGE_LEFT] = sums_of_first(at);
    mist_expr tie = tied(at), rest = put_off(at);
    outputs[MIST_STAGE_BEHIND] = add(at, tie, rest);
    mist_expr behind = SUM(at, at->value[MIST_STAGE_EXCHANGE], tie, rest);
    outputs[MIST_STAGE_EXTRA] =
        add(at, outputs[MIST_STAGE_FIRST],
            add(at, last_sums, add(at, outputs[MIST_STAGE_LEFT], behind)));
    outputs[MIST_STAGE_FORWARDS] = forwards;
    outputs[MIST_STAGE_BACKWARDS] = backwards;
    outputs[MIST_STAGE_LAST] = sub(at, last_sums, less_at_first(at));
    outputs[MIST_STAGE_BACKWARDS_INPUT] = input_backwards(at, 0).seconds;
    outputs[MIST_STAGE_BACKWARDS_WEIGHT] =
        sub(at, weight_backwards(at, 0).seconds, won_ahead(at, split_backwards).stable);
    outputs[MIST_STAGE_LAST_WEIGHT] = last(at, split_backwards);
    outputs[MIST_STAGE_BRINGS_FORWARD] = brings_weights(at, false);
    outputs[MIST_STAGE_BRINGS_BACKWARD] = brings_weights(at, true);
    outputs[MIST_STAGE_BRINGS_WEIGHT] = brings_behind_weight(at);
    outputs[MIST_STAGE_SUMS_FORWARD] = longer_beside_sums(at, false);
    outputs[MIST_STAGE_SUMS_BACKWARD] = longer_beside_sums(at, true);
    outputs[MIST_STAGE_WAITS_BACKWARD] = lost_to_kept(at, whole_backwards);
    outputs[MIST_STAGE_WAITS_INPUT] = lost_to_kept(at, input_backwards);
    at->is_split = true;
    outputs[MIST_STAGE_SUMS_INPUT] = longer_beside_sums(at, true);
    at->is_split = false;
}
