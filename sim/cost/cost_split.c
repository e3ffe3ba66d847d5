/* A task of computation taken apart. See mist_cost_split() in cost_model.h. */
#include "sim/cost/cost_internal.h"

#include <math.h> /* fmax */

static enum mist_status split_steps(const struct mist_cost_model *model,
                                    const struct mist_plan *plan,
                                    const struct mist_layer_layout *layout,
                                    const struct mist_task *task,
                                    struct mist_cost_split *out, struct mist_err *err)
{
    const struct mist_part *part = &layout->programs[task->program].parts[task->part];
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);
    enum mist_status status = MIST_OK;

    if (plan->job.framework != MIST_FRAMEWORK_OURS)
        return mist_cost_framework_split(model, &plan->job, layout, task->program,
                                         task->part, out, err);
    for (int32_t i = part->first_step; i < part->first_step + part->n_steps; i++) {
        struct mist_cost cost = {0};
        status = mist_cost_program(model, &steps[i], 1, plan->job.dtype, &cost, err);
        if (status != MIST_OK)
            return status;
        out->step_s[i] = cost.time_s;
    }
    return MIST_OK;
}

enum mist_status mist_cost_split(const struct mist_cost_model *model,
                                 const struct mist_plan *plan,
                                 const struct mist_layer_layout *layouts,
                                 const struct mist_task *task,
                                 const struct mist_cost *cost,
                                 struct mist_cost_split *out, struct mist_err *err)
{
    struct mist_cost zeroes = {0};
    enum mist_status status = mist_cost_add_elements(
        model, MIST_OP_ZERO, plan->job.dtype, plan->job.gradient_dtype,
        task->n_zeroed_elements, &zeroes, err);

    *out = (struct mist_cost_split){.gradients_s = zeroes.time_s};
    if (status != MIST_OK)
        return status;
    if (task->part < 0) {
        out->waiting_s = fmin(cost->time_s, mist_cost_model_launch_s(model));
        out->gradients_s = cost->time_s - out->waiting_s;
        return MIST_OK;
    }
    status = split_steps(model, plan,
                         &layouts[mist_schedule_layer_kind(&plan->model, task->layer)],
                         task, out, err);
    double known_s = out->gradients_s + out->repeated_s;
    for (int i = 0; i < MIST_MAX_STEPS; i++)
        known_s += out->step_s[i];
    out->waiting_s = fmax(0, cost->time_s - known_s);
    return status;
}
