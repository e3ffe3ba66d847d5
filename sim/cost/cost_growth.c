/*
 * What a task costs on fewer tokens. See mist_cost_find_growth().
 *
 * The tasks are those of full samples; they are priced again in the layouts of samples of
 * half as many tokens, a quarter and so on. Between these, straight lines.
 */
#include "sim/cost/cost_internal.h"
#include "sim/model/framework.h"

#include <math.h>
#include <stdlib.h>

struct growing {
    const struct mist_cost_model *model;
    const struct mist_plan *plan;
    const struct mist_schedule *schedule;
    const struct mist_group_shape *shapes;
    struct mist_layer_layout *layouts; /* [MIST_N_LAYER_KINDS] at this point */
    struct mist_layer_layout *packed;  /* the same with full samples' tokens in sequences
                                          that are as short */
    double tokens_frac;                /* of a full sample, there */
    struct mist_err *err;
};

/* Attention's share of the price of a part of a program, with what only it is launched,
 * skewed and waited for. */
static enum mist_status find_attention(const struct growing *at,
                                       const struct mist_layer_layout *layouts,
                                       const struct mist_task *task,
                                       const struct mist_cost *cost, double *out_s)
{
    const struct mist_layer_layout *layout =
        &layouts[mist_schedule_layer_kind(&at->plan->model, task->layer)];
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);
    bool repeats_attention =
        mist_framework_get(at->plan->job.framework)->selective_frac == 0;
    double attention_s = 0, other_s = 0;
    struct mist_cost_split split;
    enum mist_status status =
        mist_cost_split(at->model, at->plan, at->layouts, task, cost, &split, at->err);

    if (status != MIST_OK)
        return status;
    for (int i = 0; i < MIST_MAX_STEPS; i++)
        if (split.step_s[i] > 0)
            *(mist_op_is_attention(steps[i].op) ? &attention_s : &other_s) +=
                split.step_s[i];
    *(repeats_attention ? &attention_s : &other_s) += split.repeated_s;
    double worked_s = attention_s + other_s + split.gradients_s;
    double launch_s = mist_cost_model_launch_s(at->model);
    *out_s = worked_s > 0 ? fmax(0, cost->time_s - launch_s) * attention_s / worked_s : 0;
    return MIST_OK;
}

static bool moves_activations(enum mist_task_kind kind)
{
    return mist_task_kind_sort(kind) == MIST_SORT_TRANSFER ||
           kind == MIST_TASK_TP_ALL_REDUCE || kind == MIST_TASK_TP_REDUCE_SCATTER ||
           kind == MIST_TASK_TP_ALL_GATHER || kind == MIST_TASK_CP_ALL_GATHER ||
           kind == MIST_TASK_CP_REDUCE_SCATTER || kind == MIST_TASK_SWAP_IN_ACTIVATION ||
           kind == MIST_TASK_SWAP_OUT_ACTIVATION;
}

/* The price of a task in some layouts, attention apart. full: with full samples. */
static enum mist_status price(const struct growing *at,
                              const struct mist_layer_layout *layouts,
                              const struct mist_task *task, const struct mist_cost *full,
                              double *other_s, double *attention_s)
{
    struct mist_cost cost = *full;
    enum mist_status status = MIST_OK;

    *attention_s = 0;
    if (at->tokens_frac < 1)
        status = mist_cost_task(at->model, at->plan, at->schedule->i_stage, layouts,
                                at->shapes[task->cost], task, &cost, at->err);
    if (status == MIST_OK && mist_task_kind_sort(task->kind) == MIST_SORT_PROGRAM)
        status = find_attention(at, layouts, task, &cost, attention_s);
    *other_s = cost.time_s - *attention_s;
    return status;
}

/* Adds a point to the growth of a task. */
static enum mist_status add_point(const struct growing *at, const struct mist_task *task,
                                  const struct mist_cost *full,
                                  struct mist_cost_growth *out)
{
    bool is_program =
        mist_task_kind_sort(task->kind) == MIST_SORT_PROGRAM && task->part >= 0;
    double frac = at->tokens_frac, other_s, single_s, packed_s = 0, unused_s;
    struct mist_task part = *task;

    if (!is_program && !moves_activations(task->kind))
        return MIST_OK;
    part.bytes = (int64_t)ceil((double)task->bytes * frac);
    enum mist_status status = price(at, at->layouts, &part, full, &other_s, &single_s);
    if (status == MIST_OK && single_s > 0)
        status = price(at, at->packed, &part, full, &unused_s, &packed_s);
    if (status != MIST_OK)
        return status;
    out->tokens_frac[out->n_points] = frac;
    out->other_s[out->n_points] = other_s;
    out->single_s[out->n_points] = single_s;
    out->packed_s[out->n_points++] = packed_s;
    return MIST_OK;
}

/* All tasks at one point; costs are numbered in the order in which they first occur. */
static enum mist_status add_points(const struct growing *at,
                                   const struct mist_cost *costs,
                                   struct mist_cost_growth *growths)
{
    int32_t n_known = 0;
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < at->schedule->n_tasks && status == MIST_OK; i++) {
        const struct mist_task *task = &at->schedule->tasks[i];
        if (task->cost < n_known)
            continue;
        status = add_point(at, task, &costs[n_known], &growths[n_known]);
        n_known++;
    }
    return status;
}

/* Layouts of samples of so many tokens. */
static enum mist_status make_layouts(const struct growing *at, int32_t seq)
{
    enum mist_status status = MIST_OK;

    for (int k = 0; k < MIST_N_LAYER_KINDS && status == MIST_OK; k++) {
        struct mist_layer_shape shape = at->schedule->layouts[k].shape;
        double n_tokens = (double)shape.micro_batch * shape.seq;
        shape.seq = seq;
        status = mist_layer_layout_make(&at->plan->model, (enum mist_layer_kind)k, shape,
                                        &at->layouts[k], at->err);
        shape.micro_batch = (int32_t)ceil(n_tokens / seq);
        if (status == MIST_OK)
            status = mist_layer_layout_make(&at->plan->model, (enum mist_layer_kind)k,
                                            shape, &at->packed[k], at->err);
    }
    return status;
}

enum mist_status mist_cost_find_growth(
    const struct mist_cost_model *model, const struct mist_plan *plan,
    const struct mist_schedule *schedule, const struct mist_group_shape *shapes,
    const struct mist_cost *costs, struct mist_cost_growth *growths, struct mist_err *err)
{
    int32_t full = plan->job.seq_len, last = full + 1;
    const struct mist_stage_plan *stage = &plan->stages[schedule->i_stage];
    /* what cuts samples evenly */
    int32_t unit = stage->cp > 1 ? 2 * stage->cp * stage->tp : stage->tp;
    struct growing at = {
        .model = model,
        .plan = plan,
        .schedule = schedule,
        .shapes = shapes,
        .layouts = malloc(2 * MIST_N_LAYER_KINDS * sizeof *at.layouts),
        .err = err,
    };
    enum mist_status status = at.layouts ? MIST_OK : mist_err_memory(err, NULL);

    at.packed = at.layouts + MIST_N_LAYER_KINDS;
    for (int32_t c = 0; c < schedule->n_costs; c++)
        growths[c].n_points = 0;
    for (int j = 0; j < MIST_GROWTH_POINTS && status == MIST_OK; j++) {
        int32_t seq = j == 0 ? full : ((full >> j) + unit - 1) / unit * unit;
        if (seq >= last || seq == 0)
            break;
        last = seq;
        at.tokens_frac = (double)seq / full;
        status = make_layouts(&at, seq);
        if (status == MIST_OK)
            status = add_points(&at, costs, growths);
    }
    free(at.layouts);
    return status;
}

/* On straight lines between points, and on beyond the last: in tokens, or their square. */
static double between(const struct mist_cost_growth *growth, const double *value,
                      double tokens_frac, bool is_square)
{
    const double *at = growth->tokens_frac;
    int k = 1;

    if (growth->n_points < 2)
        return value[0];
    while (k < growth->n_points - 1 && at[k] > tokens_frac)
        k++;
    double high = at[k - 1], low = at[k], x = tokens_frac;
    if (is_square) {
        high *= high;
        low *= low;
        x *= x;
    }
    return value[k - 1] + (value[k] - value[k - 1]) * (high - x) / (high - low);
}

/* Samples with n sequences of a length (of a full sample's tokens) each, in the mean. */
static double attention_s(const struct mist_cost_growth *growth, double length, double n)
{
    double single_s = between(growth, growth->single_s, length, true);

    if (n <= 1)
        return n * single_s;
    double packed_s = between(growth, growth->packed_s, length, false);
    return single_s + (packed_s - single_s) * (n - 1) / (1 / length - 1);
}

double mist_cost_grow_s(const struct mist_cost_growth *growth, double tokens_frac,
                        double squares_frac)
{
    if (growth->n_points == 0)
        return 0;
    double length = growth->tokens_frac[growth->n_points - 1]; /* at least */
    if (tokens_frac > 0)
        length = fmax(length, squares_frac / tokens_frac);
    double other_s = fmax(0, between(growth, growth->other_s, tokens_frac, false));
    return (other_s - growth->other_s[0]) +
           (attention_s(growth, length, tokens_frac / length) - growth->single_s[0]);
}
