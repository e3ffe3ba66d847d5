/*
 * What the expressions of a stage are made of: shares of what is offloaded, the pieces of
 * work on parameters and their rooms, and the bundle of overlapped work. See
 * stage_model_internal.h.
 *
 * The bundle of two channels, of x and y seconds alone and with slowdowns a and b, is
 *   x + y + min(x a, y b) (1 - 1/a - 1/b).
 * The exact one of three takes a third more operations than one that adds what each of two
 * disturbs the third; of four it takes four times as many, the tapes of offloading half as
 * many more in all, and the passes of random plans are no nearer to their replay for it, though
 * beside four that share the cores it is a quarter too low: within a pass copies disturb each
 * other more than where they run ahead.
 */
#include "sim/closed_form/stage_model_internal.h"

const enum mist_stage_value mist_stage_homes[MIST_N_QUANTITIES][2] = {
    [MIST_WEIGHTS] = {MIST_STAGE_WEIGHTS_0, MIST_STAGE_WEIGHTS_1},
    [MIST_GRADIENTS] = {MIST_STAGE_GRADIENTS_0, MIST_STAGE_GRADIENTS_1},
    [MIST_STATE] = {MIST_STAGE_STATE_0, MIST_STAGE_STATE_1},
};

mist_expr mist_stage_by_zero(struct mist_stage_writer *at, int level, mist_expr yes,
                             mist_expr no)
{
    return level <= at->zero ? yes : no;
}

mist_expr mist_stage_if_apart(struct mist_stage_writer *at, mist_expr yes, mist_expr no)
{
    mist_expr many =
        mist_expr_select_le(at->pool, at->n_micro_batches, num(at, 1), no, yes);

    return mist_stage_by_zero(at, 2, no, many);
}

mist_expr mist_stage_of(struct mist_stage_writer *at, enum mist_stage_value value,
                        enum mist_layer_kind kind)
{
    if ((kind == MIST_LAYER_EMBEDDING && !at->is_first) ||
        (kind == MIST_LAYER_HEAD && !at->is_last))
        return num(at, 0);
    return at->value[(int)value + (int)kind];
}

mist_expr mist_stage_sum(struct mist_stage_writer *at, const mist_expr *terms, size_t n)
{
    mist_expr sum = terms[0];

    for (size_t i = 1; i < n; i++)
        sum = add(at, sum, terms[i]);
    return sum;
}

mist_expr mist_stage_total(struct mist_stage_writer *at,
                           const mist_expr of_kind[MIST_N_LAYER_KINDS])
{
    mist_expr sum = mul(at, at->n_layers, of_kind[MIST_LAYER_BLOCK]);

    if (at->is_first)
        sum = add(at, sum, of_kind[MIST_LAYER_EMBEDDING]);
    return at->is_last ? add(at, sum, of_kind[MIST_LAYER_HEAD]) : sum;
}

mist_expr mist_stage_n_kept(struct mist_stage_writer *at)
{
    return sub(at, at->n_layers, at->n_checkpointed);
}

mist_expr mist_stage_n_full(struct mist_stage_writer *at)
{
    return sub(at, mist_stage_n_kept(at), at->n_lean);
}

/* ------------------------------------------------------------------------ offloading */

/* size where limit < ratio * total, else 0. */
static mist_expr step(struct mist_stage_writer *at, mist_expr limit, mist_expr wanted,
                      mist_expr size)
{
    return mist_expr_select_le(at->pool, wanted, limit, num(at, 0), size);
}

/* Of the embedding on the stage's device. */
static mist_expr of_embedding(struct mist_stage_writer *at, enum mist_stage_value value)
{
    return at->is_of_first ? at->value[(int)value + (int)MIST_LAYER_EMBEDDING]
                           : num(at, 0);
}

/* Elements of the ends' matrices that are offloaded: whole ones, as long as that comes
 * nearer to the ratio (choose_prefix() of module_storage.c). The first of each end is the
 * vocabulary's. Where it is tied, its gradients stay, and a head on the embedding's rank has
 * nothing that could leave. */
static mist_expr end_elements(struct mist_stage_writer *at, enum mist_layer_kind kind,
                              int i_ratio)
{
    mist_expr half = num(at, 0.5), ratio = at->ratio[i_ratio];
    bool stays =
        i_ratio == MIST_RATIO_GRADIENTS || (kind == MIST_LAYER_HEAD && at->is_of_first);
    mist_expr may_leave = stays ? at->value[MIST_STAGE_IS_UNTIED] : num(at, 1);
    mist_expr a = of_embedding(at, MIST_STAGE_MATRIX_A);
    mist_expr b = of_embedding(at, MIST_STAGE_MATRIX_B);
    mist_expr both = add(at, a, b);
    mist_expr wanted = mul(at, ratio, both);
    mist_expr first = step(at, mul(at, half, a), wanted, a);
    mist_expr second = step(at, add(at, a, mul(at, half, b)), wanted, b);

    if (!at->is_of_first)
        first = second = num(at, 0);
    if (kind == MIST_LAYER_EMBEDDING)
        return add(at, mul(at, may_leave, first), second);
    mist_expr before = add(at, first, second);
    mist_expr head = mist_stage_of(at, MIST_STAGE_MATRIX_A, MIST_LAYER_HEAD);
    wanted = mul(at, ratio, add(at, both, head));
    return step(at, add(at, before, mul(at, half, head)), wanted,
                mul(at, may_leave, head));
}

mist_expr mist_stage_if_cut(struct mist_stage_writer *at, int ratio, mist_expr size)
{
    mist_expr r = at->ratio[ratio], none = num(at, 0);

    if (!at->offloads)
        return none;
    return mist_expr_select_le(at->pool, num(at, 1), r, none,
                               mist_expr_select(at->pool, r, size, none));
}

/* Of blocks. The stage so far is off by half of the largest matrix at most, so one of them
 * may have all of that more. */
static mist_expr share_of_blocks(struct mist_stage_writer *at, int ratio)
{
    mist_expr all = at->value[MIST_STAGE_MATRIX_A + MIST_LAYER_BLOCK];
    mist_expr largest = at->value[MIST_STAGE_LARGEST + MIST_LAYER_BLOCK];

    if (at->n_in_row == 0)
        return at->ratio[ratio];
    mist_expr off = mist_expr_div(at->pool, largest, mul(at, num(at, at->n_in_row), all));
    mist_expr most = add(at, at->ratio[ratio], mist_stage_if_cut(at, ratio, off));
    return mist_expr_min(at->pool, num(at, 1), most);
}

/* Share (0 .. 1) of the matrices of a module kind that is offloaded at a ratio, of
 * weights, gradients or state. */
static mist_expr offloaded_share(struct mist_stage_writer *at, enum mist_layer_kind kind,
                                 int ratio)
{
    double none;

    if (mist_expr_is_const(at->pool, at->ratio[ratio], &none))
        return at->ratio[ratio];
    if (kind == MIST_LAYER_BLOCK)
        return share_of_blocks(at, ratio);
    mist_expr all = add(at, mist_stage_of(at, MIST_STAGE_MATRIX_A, kind),
                        mist_stage_of(at, MIST_STAGE_MATRIX_B, kind));
    return mist_expr_div(at->pool, end_elements(at, kind, ratio), all);
}

/* Of one condition. */
static mist_expr share_of(struct mist_stage_writer *at, enum mist_layer_kind kind,
                          uint32_t condition)
{
    switch (condition) {
    case MIST_IF_WEIGHTS_AWAY:
        return offloaded_share(at, kind, MIST_RATIO_WEIGHTS);
    case MIST_IF_GRADIENTS_AWAY:
        return offloaded_share(at, kind, MIST_RATIO_GRADIENTS);
    case MIST_IF_STATE_AWAY:
        return offloaded_share(at, kind, MIST_RATIO_STATE);
    default:
        return at->on_host ? offloaded_share(at, kind, MIST_RATIO_STATE) : num(at, 0);
    }
}

static bool is_number(const struct mist_stage_writer *at, mist_expr a, double value)
{
    double is;

    return mist_expr_is_const(at->pool, a, &is) && is == value;
}

/* Share (0 .. 1) of a module kind's matrices for which all of some conditions hold and none of
 * others. What is in the host of one quantity is part of what is there of another with a
 * higher ratio. */
static mist_expr share_where(struct mist_stage_writer *at, enum mist_layer_kind kind,
                             uint32_t if_all, uint32_t if_none)
{
    mist_expr most = num(at, 1), least = num(at, 0);

    for (uint32_t bit = MIST_IF_WEIGHTS_AWAY; bit <= MIST_IF_HOST_UPDATES; bit <<= 1) {
        if (if_all & bit)
            most = mist_expr_min(at->pool, most, share_of(at, kind, bit));
        if (if_none & bit)
            least = max(at, least, share_of(at, kind, bit));
    }
    mist_expr share = sub(at, most, least);
    return is_number(at, most, 1) || is_number(at, least, 0) ? share
                                                             : max(at, num(at, 0), share);
}

enum {
    AWAY = MIST_IF_WEIGHTS_AWAY | MIST_IF_GRADIENTS_AWAY | MIST_IF_STATE_AWAY |
           MIST_IF_HOST_UPDATES
};

mist_expr mist_stage_share_of_all(struct mist_stage_writer *at, enum mist_layer_kind kind,
                                  uint32_t if_all, uint32_t if_none)
{
    mist_expr share = share_where(at, kind, if_all, if_none);

    if (is_number(at, share, 0) || is_number(at, share, 1))
        return share;
    mist_expr matrices = add(at, mist_stage_of(at, MIST_STAGE_MATRIX_A, kind),
                             mist_stage_of(at, MIST_STAGE_MATRIX_B, kind));
    mist_expr part =
        mist_expr_div(at->pool, matrices, mist_stage_of(at, MIST_STAGE_ELEMENTS, kind));
    if (if_all & AWAY)
        return mul(at, share, part);
    /* what is no matrix is never away */
    return sub(at, num(at, 1), mul(at, sub(at, num(at, 1), share), part));
}

/* ---------------------------------------------------------------------------- pieces */

enum { OF_THE_MOMENT = MIST_IF_STEPS | MIST_IF_BRINGS | MIST_IF_FIRST | MIST_IF_LAST };

/* The least ZeRO level with all of some conditions, of those that a stage has. */
static int level_of(uint32_t conditions)
{
    return conditions & MIST_IF_SHARDS_WEIGHTS                           ? 3
           : conditions & (MIST_IF_SHARDS_GRADIENTS | MIST_IF_SUMS_EACH) ? 2
           : conditions & MIST_IF_SHARDS_STATE                           ? 1
                                                                         : 0;
}

/* The least one with any of them. */
static int first_level_of(uint32_t conditions)
{
    return conditions & MIST_IF_SHARDS_STATE                             ? 1
           : conditions & (MIST_IF_SHARDS_GRADIENTS | MIST_IF_SUMS_EACH) ? 2
           : conditions & MIST_IF_SHARDS_WEIGHTS                         ? 3
                                                                         : 4;
}

/* The ZeRO level from which on an extent of a quantity is a shard; 4: never. */
static int sharding_level(enum mist_quantity quantity, enum mist_extent extent)
{
    static const int of_home[MIST_N_QUANTITIES] = {
        [MIST_WEIGHTS] = 3, [MIST_GRADIENTS] = 2, [MIST_STATE] = 1};

    return extent == MIST_EXTENT_HOME     ? of_home[quantity]
           : extent == MIST_EXTENT_UPDATE ? 1
                                          : 4;
}

/* Of what is there under conditions: a share of the whole, or of a shard from a ZeRO level
 * on. */
static mist_expr where(struct mist_stage_writer *at, uint32_t if_all, uint32_t if_none,
                       int sharded, mist_expr share, mist_expr whole, mist_expr shard)
{
    int from = level_of(if_all), to = first_level_of(if_none);

    if (is_number(at, share, 0) || from >= to)
        return num(at, 0);
    mist_expr size = sharded <= from ? shard
                     : sharded >= to ? whole
                                     : mist_stage_by_zero(at, sharded, shard, whole);
    if (to < 4)
        size = mist_stage_by_zero(at, to, num(at, 0), size);
    if (from > 0)
        size = mist_stage_by_zero(at, from, size, num(at, 0));
    return mul(at, share, size);
}

/* Of slabs for which more conditions hold. */
static mist_expr seconds_where(struct mist_stage_writer *at, int i,
                               enum mist_layer_kind kind, uint32_t all, uint32_t none)
{
    const struct mist_piece *piece = &mist_pieces[i];
    bool is_sum = piece->kind == MIST_TASK_REDUCE_GRADIENT; /* scattered with ZeRO-1 */
    int sharded = is_sum ? 1 : sharding_level(piece->quantity, piece->extent);
    mist_expr share = share_where(at, kind, piece->if_all | all, piece->if_none | none);

    return where(at, piece->if_all, piece->if_none, sharded, share,
                 of(at, mist_stage_piece(i, false), kind),
                 of(at, mist_stage_piece(i, true), kind));
}

static mist_expr piece_seconds(struct mist_stage_writer *at, int i,
                               enum mist_layer_kind kind, struct mist_stage_when when)
{
    mist_expr all = seconds_where(at, i, kind, 0, when.none), none = num(at, 0);

    if (when.which == MIST_STAGE_THAT_LEAVE)
        return mist_stage_by_zero(at, 2, all,
                                  seconds_where(at, i, kind, MIST_IF_GRADIENTS_AWAY, 0));
    if (when.which == MIST_STAGE_THAT_STAY)
        return mist_stage_by_zero(at, 2, none,
                                  seconds_where(at, i, kind, 0, MIST_IF_GRADIENTS_AWAY));
    return all;
}

static mist_expr room_bytes(struct mist_stage_writer *at, const struct mist_room *room,
                            enum mist_layer_kind kind)
{
    const enum mist_stage_value *value = mist_stage_homes[room->quantity];
    mist_expr share = mist_stage_share_of_all(at, kind, room->if_all, room->if_none);

    return where(at, room->if_all, room->if_none,
                 sharding_level(room->quantity, room->extent), share,
                 of(at, value[0], kind), of(at, value[1], kind));
}

/* A step that is taken apart has weights in the room of the pass. */
static bool is_made(const struct mist_stage_writer *at, const struct mist_room *room)
{
    return at->is_ahead || !(room->if_none & MIST_IF_BRINGS);
}

mist_expr mist_stage_rooms(struct mist_stage_writer *at, enum mist_layer_kind kind,
                           enum mist_until until, int n)
{
    mist_expr sum = num(at, 0);

    at->n_in_row = n;
    for (int i = 0; i < MIST_N_ROOMS; i++)
        if (mist_rooms[i].until == until && is_made(at, &mist_rooms[i]))
            sum = add(at, sum, room_bytes(at, &mist_rooms[i], kind));
    at->n_in_row = 0;
    return mul(at, num(at, n), sum);
}

static bool is_due(const struct mist_piece *piece, uint32_t conditions)
{
    return (piece->if_all & OF_THE_MOMENT & ~conditions) == 0 &&
           (piece->if_none & OF_THE_MOMENT & conditions) == 0;
}

struct mist_stage_work mist_stage_no_work(struct mist_stage_writer *at)
{
    struct mist_stage_work out;

    for (int i = 0; i < MIST_N_STREAMS; i++)
        out.seconds[i] = num(at, 0);
    return out;
}

struct mist_stage_work mist_stage_add_work(struct mist_stage_writer *at,
                                           struct mist_stage_work a,
                                           struct mist_stage_work b)
{
    for (int i = 0; i < MIST_N_STREAMS; i++)
        a.seconds[i] = add(at, a.seconds[i], b.seconds[i]);
    return a;
}

struct mist_stage_work mist_stage_pieces(struct mist_stage_writer *at,
                                         enum mist_layer_kind kind,
                                         struct mist_stage_when when)
{
    struct mist_stage_work out = mist_stage_no_work(at);

    for (int i = 0; i < MIST_N_PIECES; i++) {
        const struct mist_piece *piece = &mist_pieces[i];
        mist_expr *sum = &out.seconds[piece->stream];
        if (piece->moment != when.moment || (piece->if_all & when.only) != when.only ||
            !is_due(piece, when.conditions))
            continue;
        *sum = add(at, *sum, piece_seconds(at, i, kind, when));
    }
    return out;
}

/* ---------------------------------------------------------------------------- bundle */

/* Channels that are left, with their seconds alone. */
struct rest {
    int n;
    int channels[MIST_N_CHANNELS];
    mist_expr alone[MIST_N_CHANNELS];
};

/* Channels i and j beside one another, and nothing else. */
static mist_expr two_of(struct mist_stage_writer *at, const struct rest *rest, int i,
                        int j)
{
    const double *slow =
        at->interference->slowdown[1u << rest->channels[i] | 1u << rest->channels[j]];
    double a = slow[rest->channels[i]], b = slow[rest->channels[j]];
    mist_expr x = mul(at, rest->alone[i], num(at, a));
    mist_expr y = mul(at, rest->alone[j], num(at, b));
    mist_expr loss = mul(at, mist_expr_min(at->pool, x, y), num(at, 1 - 1 / a - 1 / b));

    return add(at, add(at, rest->alone[i], rest->alone[j]), loss);
}

/* Of three: as much as all of them run until one ends, and then what the two that are left take
 * beside one another. Whichever ends, any other two take less. */
static mist_expr three(struct mist_stage_writer *at, const struct rest *rest)
{
    const unsigned set =
        1u << rest->channels[0] | 1u << rest->channels[1] | 1u << rest->channels[2];
    const double *slow = at->interference->slowdown[set];
    struct rest left = *rest;
    mist_expr ends[3];

    for (int i = 0; i < 3; i++)
        ends[i] = mul(at, rest->alone[i], num(at, slow[rest->channels[i]]));
    mist_expr first =
        mist_expr_min(at->pool, ends[0], mist_expr_min(at->pool, ends[1], ends[2]));
    for (int i = 0; i < 3; i++)
        left.alone[i] =
            sub(at, rest->alone[i], mul(at, first, num(at, 1 / slow[rest->channels[i]])));
    mist_expr longest = max(at, two_of(at, &left, 0, 1), two_of(at, &left, 0, 2));
    return add(at, first, max(at, longest, two_of(at, &left, 1, 2)));
}

/* Of four: computation is disturbed by each of the others; the last two, the copies of both
 * directions, by one another as well. */
static mist_expr four(struct mist_stage_writer *at, const struct rest *rest)
{
    mist_expr longest = two_of(at, rest, 2, 3), lost = num(at, 0);

    longest = max(at, longest, max(at, rest->alone[0], rest->alone[1]));
    for (int i = 1; i < 4; i++)
        lost =
            add(at, lost,
                sub(at, two_of(at, rest, 0, i), max(at, rest->alone[0], rest->alone[i])));
    return add(at, longest, lost);
}

static mist_expr bundle(struct mist_stage_writer *at, const struct rest *rest)
{
    switch (rest->n) {
    case 0:
        return num(at, 0);
    case 1:
        return rest->alone[0];
    case 2:
        return two_of(at, rest, 0, 1);
    case 3:
        return three(at, rest);
    default:
        return four(at, rest);
    }
}

mist_expr mist_stage_bundle(struct mist_stage_writer *at,
                            const mist_expr isolated[MIST_N_CHANNELS])
{
    struct rest rest = {0};
    double value;

    if (at->interference->takes_turns) {
        mist_expr sum = num(at, 0);
        for (int c = 0; c < MIST_N_CHANNELS; c++)
            sum = add(at, sum, isolated[c]);
        return sum;
    }

    for (int c = 0; c < MIST_N_CHANNELS; c++) {
        if (mist_expr_is_const(at->pool, isolated[c], &value) && value == 0)
            continue;
        rest.channels[rest.n] = c;
        rest.alone[rest.n++] = isolated[c];
    }
    return bundle(at, &rest);
}
