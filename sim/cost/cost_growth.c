/* What of a price goes with the tokens of a micro-batch. See mist_cost_find_growth(). */
#include "sim/cost/cost_internal.h"
#include "sim/model/framework.h"

#include <math.h>

/* A forward or backward, from its parts. Where it takes longer than its kernels and the skew,
 * the host of a framework is what it waits for, and no fewer tokens make that less. */
static enum mist_status
grow_computation(const struct mist_cost_model *model, const struct mist_plan *plan,
                 const struct mist_schedule *schedule, const struct mist_task *task,
                 const struct mist_cost *cost, struct mist_cost_growth *out,
                 struct mist_err *err)
{
    const struct mist_framework *framework = mist_framework_get(plan->job.framework);
    const struct mist_layer_layout *layout =
        &schedule->layouts[mist_schedule_layer_kind(&plan->model, task->layer)];
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);
    double skew_frac = mist_cost_skew_frac(model, plan, schedule->i_stage);
    double launch_s = mist_cost_model_launch_s(model);
    double tokens_s = 0, squares_s = 0, host_s = 0;
    struct mist_cost_split split;
    enum mist_status status =
        mist_cost_split(model, plan, schedule->layouts, task, cost, &split, err);

    if (status == MIST_OK && plan->job.framework != MIST_FRAMEWORK_OURS)
        status = mist_cost_framework_host_s(model, &plan->job, layout, task->program,
                                            task->part, &host_s, err);
    if (status != MIST_OK)
        return status;
    for (int i = 0; i < MIST_MAX_STEPS; i++)
        if (split.step_s[i] > 0)
            *(steps[i].op == MIST_OP_ATTENTION ? &squares_s : &tokens_s) +=
                split.step_s[i];
    *(framework->selective_frac > 0 ? &tokens_s : &squares_s) += split.repeated_s;
    double worked_s = tokens_s + squares_s + split.gradients_s;
    double factor = (cost->time_s - launch_s) / worked_s;
    if (worked_s > 0 && factor <= (1 + skew_frac) * (1 + 1e-9))
        *out = (struct mist_cost_growth){
            factor * tokens_s, factor * squares_s,
            host_s > 0 ? fmin(factor * host_s + launch_s, cost->time_s) : 0};
    return MIST_OK;
}

/* A message or copy, by what half of it costs. */
static enum mist_status
grow_bytes(const struct mist_cost_model *model, const struct mist_plan *plan,
           const struct mist_schedule *schedule, struct mist_group_shape shape,
           const struct mist_task *task, const struct mist_cost *cost,
           struct mist_cost_growth *out, struct mist_err *err)
{
    struct mist_task half = *task;
    struct mist_cost half_cost;

    half.bytes = task->bytes / 2;
    enum mist_status status = mist_cost_task(
        model, plan, schedule->i_stage, schedule->layouts, shape, &half, &half_cost, err);
    if (status == MIST_OK)
        out->tokens_s =
            fmin(fmax(0, 2 * (cost->time_s - half_cost.time_s)), cost->time_s);
    return status;
}

static bool moves_activations(enum mist_task_kind kind)
{
    return mist_task_kind_sort(kind) == MIST_SORT_TRANSFER ||
           kind == MIST_TASK_TP_ALL_REDUCE || kind == MIST_TASK_TP_REDUCE_SCATTER ||
           kind == MIST_TASK_TP_ALL_GATHER || kind == MIST_TASK_SWAP_IN_ACTIVATION ||
           kind == MIST_TASK_SWAP_OUT_ACTIVATION;
}

enum mist_status mist_cost_find_growth(
    const struct mist_cost_model *model, const struct mist_plan *plan,
    const struct mist_schedule *schedule, const struct mist_group_shape *shapes,
    const struct mist_cost *costs, struct mist_cost_growth *growths, struct mist_err *err)
{
    int32_t n_known = 0;
    enum mist_status status = MIST_OK;

    /* costs are numbered in the order in which they first occur */
    for (int32_t i = 0; i < schedule->n_tasks && status == MIST_OK; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->cost < n_known)
            continue;
        growths[n_known] = (struct mist_cost_growth){0};
        if (mist_task_kind_sort(task->kind) == MIST_SORT_PROGRAM && task->part >= 0)
            status = grow_computation(model, plan, schedule, task, &costs[n_known],
                                      &growths[n_known], err);
        else if (moves_activations(task->kind))
            status = grow_bytes(model, plan, schedule, shapes[n_known], task,
                                &costs[n_known], &growths[n_known], err);
        n_known++;
    }
    return status;
}
