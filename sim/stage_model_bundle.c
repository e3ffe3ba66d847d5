/*
 * What the expressions of a stage are made of: short forms, shares of what is offloaded,
 * and the bundle of overlapped work. See stage_model_internal.h.
 *
 * The bundle runs all channels until one finishes, then the rest, and so on: with x_c =
 * r_c s_c (seconds alone times slowdown in this set), the first part takes T = min x_c,
 * leaves r_c - T / s_c, and is followed by the bundle of the set without the one that has
 * finished. Two channels: c + g + min(c sc, g sg) (1 - 1/sc - 1/sg). Where channels have
 * no work, they finish after 0 seconds.
 */
#include "sim/stage_model_internal.h"

mist_expr mist_stage_num(struct mist_stage_writer *at, double value)
{
    return mist_expr_const(at->pool, value);
}

mist_expr mist_stage_add(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_add(at->pool, a, b);
}

mist_expr mist_stage_sub(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_sub(at->pool, a, b);
}

mist_expr mist_stage_mul(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_mul(at->pool, a, b);
}

mist_expr mist_stage_max(struct mist_stage_writer *at, mist_expr a, mist_expr b)
{
    return mist_expr_max(at->pool, a, b);
}

mist_expr mist_stage_by_zero(struct mist_stage_writer *at, int level, mist_expr yes,
                             mist_expr no)
{
    return mist_expr_select_le(at->pool, mist_stage_num(at, level), at->zero, yes, no);
}

mist_expr mist_stage_of(struct mist_stage_writer *at, enum mist_stage_value value,
                        enum mist_layer_kind kind)
{
    if ((kind == MIST_LAYER_EMBEDDING && !at->is_first) ||
        (kind == MIST_LAYER_HEAD && !at->is_last))
        return mist_stage_num(at, 0);
    return at->value[(int)value + (int)kind];
}

mist_expr mist_stage_all(struct mist_stage_writer *at, mist_stage_part *part)
{
    mist_expr sum = mist_stage_mul(at, at->n_layers, part(at, MIST_LAYER_BLOCK));

    if (at->is_first)
        sum = mist_stage_add(at, sum, part(at, MIST_LAYER_EMBEDDING));
    if (at->is_last)
        sum = mist_stage_add(at, sum, part(at, MIST_LAYER_HEAD));
    return sum;
}

/* -------------------------------------------------------------------------- offloading
 */

/* size where limit < ratio * total, else 0. */
static mist_expr step(struct mist_stage_writer *at, mist_expr limit, mist_expr wanted,
                      mist_expr size)
{
    return mist_expr_select_le(at->pool, wanted, limit, mist_stage_num(at, 0), size);
}

/* Elements of the ends' matrices that are offloaded: whole ones, as long as that comes
 * nearer to the ratio (choose_prefix() of module_storage.c). */
static mist_expr end_elements(struct mist_stage_writer *at, enum mist_layer_kind kind,
                              mist_expr ratio)
{
    mist_expr half = mist_stage_num(at, 0.5), zero = mist_stage_num(at, 0);
    mist_expr a = mist_stage_of(at, MIST_STAGE_MATRIX_A, MIST_LAYER_EMBEDDING);
    mist_expr b = mist_stage_of(at, MIST_STAGE_MATRIX_B, MIST_LAYER_EMBEDDING);
    mist_expr both = mist_stage_add(at, a, b);
    mist_expr wanted = mist_stage_mul(at, ratio, both);
    mist_expr first = step(at, mist_stage_mul(at, half, a), wanted, a);
    mist_expr second =
        step(at, mist_stage_add(at, a, mist_stage_mul(at, half, b)), wanted, b);
    mist_expr before = at->is_first ? mist_stage_add(at, first, second) : zero;

    if (kind == MIST_LAYER_EMBEDDING)
        return before;
    mist_expr head = mist_stage_of(at, MIST_STAGE_MATRIX_A, MIST_LAYER_HEAD);
    wanted = mist_stage_mul(at, ratio, mist_stage_add(at, both, head));
    return step(at, mist_stage_add(at, before, mist_stage_mul(at, half, head)), wanted,
                head);
}

mist_expr mist_stage_share(struct mist_stage_writer *at, enum mist_layer_kind kind,
                           int ratio)
{
    double none;

    if (kind == MIST_LAYER_BLOCK || mist_expr_is_const(at->pool, at->ratio[ratio], &none))
        return at->ratio[ratio];
    mist_expr all = mist_stage_add(at, mist_stage_of(at, MIST_STAGE_MATRIX_A, kind),
                                   mist_stage_of(at, MIST_STAGE_MATRIX_B, kind));
    mist_expr share =
        mist_expr_div(at->pool, end_elements(at, kind, at->ratio[ratio]), all);
    return ratio == MIST_RATIO_GRADIENTS
               ? mist_stage_mul(at, share, at->value[MIST_STAGE_IS_UNTIED])
               : share;
}

/* ------------------------------------------------------------------------------ bundle
 */

/* Channels that are left, with their seconds alone. */
struct rest {
    int n;
    int channels[MIST_N_STREAMS];
    mist_expr alone[MIST_N_STREAMS];
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
    mist_expr x = mist_stage_mul(at, rest->alone[0], mist_stage_num(at, a));
    mist_expr y = mist_stage_mul(at, rest->alone[1], mist_stage_num(at, b));
    mist_expr loss = mist_stage_mul(at, mist_expr_min(at->pool, x, y),
                                    mist_stage_num(at, 1 - 1 / a - 1 / b));

    return mist_stage_add(at, mist_stage_add(at, rest->alone[0], rest->alone[1]), loss);
}

static struct rest without(const struct rest *rest, int i)
{
    struct rest out = *rest;

    out.n--;
    for (int k = i; k < out.n; k++) {
        out.channels[k] = rest->channels[k + 1];
        out.alone[k] = rest->alone[k + 1];
    }
    return out;
}

static mist_expr bundle(struct mist_stage_writer *at, const struct rest *rest)
{
    const double *slow = slowdown_of(at, rest);
    mist_expr x[MIST_N_STREAMS], first = MIST_EXPR_ERROR, after = MIST_EXPR_ERROR;
    struct rest left = *rest;

    if (rest->n == 0)
        return mist_stage_num(at, 0);
    if (rest->n == 1)
        return rest->alone[0];
    if (rest->n == 2)
        return pair(at, rest);
    for (int i = 0; i < rest->n; i++) {
        x[i] = mist_stage_mul(at, rest->alone[i],
                              mist_stage_num(at, slow[rest->channels[i]]));
        first = i == 0 ? x[i] : mist_expr_min(at->pool, first, x[i]);
    }
    for (int i = 0; i < rest->n; i++) {
        mist_expr done =
            mist_stage_mul(at, first, mist_stage_num(at, 1 / slow[rest->channels[i]]));
        left.alone[i] = mist_stage_sub(at, rest->alone[i], done);
    }
    for (int i = rest->n - 1; i >= 0; i--) {
        struct rest others = without(&left, i);
        mist_expr time = bundle(at, &others);
        after = i == rest->n - 1
                    ? time
                    : mist_expr_select_le(at->pool, x[i], first, time, after);
    }
    return mist_stage_add(at, first, after);
}

mist_expr mist_stage_bundle(struct mist_stage_writer *at,
                            const mist_expr isolated[MIST_N_STREAMS])
{
    struct rest rest = {0};
    double value;

    for (int c = 0; c < MIST_N_STREAMS; c++) {
        if (mist_expr_is_const(at->pool, isolated[c], &value) && value == 0)
            continue;
        rest.channels[rest.n] = c;
        rest.alone[rest.n++] = isolated[c];
    }
    return bundle(at, &rest);
}
