/*
 * What the expressions of a stage are made of: shares of what is offloaded, and the
 * bundle of overlapped work. See stage_model_internal.h.
 *
 * The bundle of two channels, of x and y seconds alone and with slowdowns a and b, is
 *   x + y + min(x a, y b) (1 - 1/a - 1/b).
 * The exact one of four (interference.h) takes 150 operations and leaves a tape with less
 * than a quarter of the speed; against the replay of random plans it is nearer by up to
 * one and a half percent in the median where copies are slow, and by nothing elsewhere.
 */
#include "sim/closed_form/stage_model_internal.h"

mist_expr mist_stage_by_zero(struct mist_stage_writer *at, int level, mist_expr yes,
                             mist_expr no)
{
    return mist_expr_select_le(at->pool, num(at, level), at->zero, yes, no);
}

mist_expr mist_stage_of(struct mist_stage_writer *at, enum mist_stage_value value,
                        enum mist_layer_kind kind)
{
    if ((kind == MIST_LAYER_EMBEDDING && !at->is_first) ||
        (kind == MIST_LAYER_HEAD && !at->is_last))
        return num(at, 0);
    return at->value[(int)value + (int)kind];
}

mist_expr mist_stage_all(struct mist_stage_writer *at, mist_stage_part *part)
{
    mist_expr sum = mul(at, at->n_layers, part(at, MIST_LAYER_BLOCK));

    if (at->is_first)
        sum = add(at, sum, part(at, MIST_LAYER_EMBEDDING));
    if (at->is_last)
        sum = add(at, sum, part(at, MIST_LAYER_HEAD));
    return sum;
}

/* ------------------------------------------------------------------------ offloading */

/* size where limit < ratio * total, else 0. */
static mist_expr step(struct mist_stage_writer *at, mist_expr limit, mist_expr wanted,
                      mist_expr size)
{
    return mist_expr_select_le(at->pool, wanted, limit, num(at, 0), size);
}

/* Elements of the ends' matrices that are offloaded: whole ones, as long as that comes
 * nearer to the ratio (choose_prefix() of module_storage.c). */
static mist_expr end_elements(struct mist_stage_writer *at, enum mist_layer_kind kind,
                              mist_expr ratio)
{
    mist_expr half = num(at, 0.5), zero = num(at, 0);
    mist_expr a = mist_stage_of(at, MIST_STAGE_MATRIX_A, MIST_LAYER_EMBEDDING);
    mist_expr b = mist_stage_of(at, MIST_STAGE_MATRIX_B, MIST_LAYER_EMBEDDING);
    mist_expr both = add(at, a, b);
    mist_expr wanted = mul(at, ratio, both);
    mist_expr first = step(at, mul(at, half, a), wanted, a);
    mist_expr second = step(at, add(at, a, mul(at, half, b)), wanted, b);
    mist_expr before = at->is_first ? add(at, first, second) : zero;

    if (kind == MIST_LAYER_EMBEDDING)
        return before;
    mist_expr head = mist_stage_of(at, MIST_STAGE_MATRIX_A, MIST_LAYER_HEAD);
    wanted = mul(at, ratio, add(at, both, head));
    return step(at, add(at, before, mul(at, half, head)), wanted, head);
}

mist_expr mist_stage_share(struct mist_stage_writer *at, enum mist_layer_kind kind,
                           int ratio)
{
    double none;

    if (kind == MIST_LAYER_BLOCK || mist_expr_is_const(at->pool, at->ratio[ratio], &none))
        return at->ratio[ratio];
    mist_expr all = add(at, mist_stage_of(at, MIST_STAGE_MATRIX_A, kind),
                        mist_stage_of(at, MIST_STAGE_MATRIX_B, kind));
    mist_expr share =
        mist_expr_div(at->pool, end_elements(at, kind, at->ratio[ratio]), all);
    return ratio == MIST_RATIO_GRADIENTS ? mul(at, share, at->value[MIST_STAGE_IS_UNTIED])
                                         : share;
}

/* The share of a module's matrices that the host updates. */
static mist_expr updated_on_host(struct mist_stage_writer *at, enum mist_layer_kind kind)
{
    return mul(at, at->on_host, mist_stage_share(at, kind, MIST_RATIO_STATE));
}

mist_expr mist_stage_host_only(struct mist_stage_writer *at, enum mist_layer_kind kind,
                               int ratio)
{
    double none;

    if (mist_expr_is_const(at->pool, at->on_host, &none))
        return num(at, 0);
    return max(at, num(at, 0),
               sub(at, updated_on_host(at, kind), mist_stage_share(at, kind, ratio)));
}

mist_expr mist_stage_device_only(struct mist_stage_writer *at, enum mist_layer_kind kind,
                                 int ratio)
{
    mist_expr all = mist_stage_share(at, kind, ratio);
    double none;

    if (mist_expr_is_const(at->pool, at->on_host, &none))
        return all;
    return max(at, num(at, 0), sub(at, all, updated_on_host(at, kind)));
}

/* ---------------------------------------------------------------------------- bundle */

/* Channels that are left, with their seconds alone. */
struct rest {
    int n;
    int channels[MIST_N_CHANNELS];
    mist_expr alone[MIST_N_CHANNELS];
};

static const double *slowdown_of(const struct mist_stage_writer *at,
                                 const struct rest *rest)
{
    unsigned set = 0;

    for (int i = 0; i < rest->n; i++)
        set |= 1u << rest->channels[i];
    return at->interference->slowdown[set];
}

static mist_expr pair(struct mist_stage_writer *at, const struct rest *rest)
{
    const double *slow = slowdown_of(at, rest);
    double a = slow[rest->channels[0]], b = slow[rest->channels[1]];
    mist_expr x = mul(at, rest->alone[0], num(at, a));
    mist_expr y = mul(at, rest->alone[1], num(at, b));
    mist_expr loss = mul(at, mist_expr_min(at->pool, x, y), num(at, 1 - 1 / a - 1 / b));

    return add(at, add(at, rest->alone[0], rest->alone[1]), loss);
}

/* What channel i loses beside the first, and the first beside it. */
static mist_expr lost(struct mist_stage_writer *at, const struct rest *rest, int i)
{
    struct rest two = {
        2, {rest->channels[0], rest->channels[i]}, {rest->alone[0], rest->alone[i]}};

    return sub(at, pair(at, &two), max(at, rest->alone[0], rest->alone[i]));
}

static mist_expr bundle(struct mist_stage_writer *at, const struct rest *rest)
{
    mist_expr longest = num(at, 0), sum = num(at, 0);

    if (rest->n == 2)
        return pair(at, rest);
    for (int i = 0; i < rest->n; i++)
        longest = i == 0 ? rest->alone[0] : max(at, longest, rest->alone[i]);
    for (int i = 1; i < rest->n; i++)
        sum = add(at, sum, lost(at, rest, i));
    return add(at, longest, sum);
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
