/*
 * What the tasks of a schedule cost. See cost_model.h.
 *
 * Ranks are placed on nodes in order, devices_per_node each. The ranks of one
 * data-parallel group of a stage stand tp apart; the stage's tp groups run at once.
 */
#include "sim/cost_internal.h"

#include <stdlib.h>

/* Where a task is priced. */
struct place {
    const struct mist_cost_model *model;
    const struct mist_plan *plan;
    const struct mist_schedule *schedule;
    const struct mist_stage_plan *stage;
    enum mist_dtype dtype;
};

static int32_t node_of(const struct place *at, int32_t rank)
{
    return rank / at->model->traces->cluster.devices_per_node;
}

/* Nodes that a stage's data-parallel group spans, and ranks on each (the most). */
static void group_shape(const struct place *at, int32_t *nodes, int32_t *ranks_per_node)
{
    int32_t first =
        mist_plan_first_rank(at->plan, at->schedule->i_stage) + at->schedule->i_tp;
    int32_t last = first + (at->stage->dp - 1) * at->stage->tp;

    *nodes = node_of(at, last) - node_of(at, first) + 1;
    *ranks_per_node = (at->stage->dp + *nodes - 1) / *nodes;
}

static enum mist_status price_collective(const struct place *at,
                                         enum mist_link_operation operation,
                                         const struct mist_task *task,
                                         struct mist_cost *out, struct mist_err *err)
{
    int32_t nodes, ranks_per_node;

    group_shape(at, &nodes, &ranks_per_node);
    return mist_cost_link(at->model, operation, nodes, ranks_per_node, at->stage->tp,
                          task->bytes, out, err);
}

static enum mist_status price_transfer(const struct place *at,
                                       const struct mist_task *task,
                                       struct mist_cost *out, struct mist_err *err)
{
    bool crosses = node_of(at, at->schedule->rank) != node_of(at, task->peer);

    return mist_cost_link(at->model, MIST_LINK_SEND_RECV, crosses ? 2 : 1,
                          crosses ? 1 : 2, 1, task->bytes, out, err);
}

static enum mist_status price_optimizer(const struct place *at,
                                        const struct mist_task *task,
                                        struct mist_cost *out, struct mist_err *err)
{
    const struct mist_buffer *buffers = at->schedule->buffers;
    int64_t padded = buffers[task->buffers[MIST_ROLE_GRADIENTS]].size_bytes /
                     mist_dtype_gradient_bytes(at->dtype);
    int64_t shard = buffers[task->buffers[MIST_ROLE_STATE]].size_bytes /
                    mist_dtype_state_bytes(at->dtype);

    return mist_cost_optimizer(at->model, shard, padded, at->dtype, out, err);
}

static enum mist_status price_program(const struct place *at,
                                      const struct mist_task *task, struct mist_cost *out,
                                      struct mist_err *err)
{
    const struct mist_layer_layout *layout =
        &at->schedule->layouts[mist_schedule_layer_kind(&at->plan->model, task->layer)];

    if (task->kind == MIST_TASK_BACKWARD)
        return mist_cost_program(at->model, layout->backward, layout->n_backward,
                                 at->dtype, out, err);
    return mist_cost_program(at->model, layout->forward,
                             task->kind == MIST_TASK_RECOMPUTE ? layout->n_recompute
                                                               : layout->n_forward,
                             at->dtype, out, err);
}

static enum mist_status price_copy(const struct place *at, const struct mist_task *task,
                                   struct mist_cost *out, struct mist_err *err)
{
    return mist_cost_link(at->model,
                          task->stream == MIST_STREAM_HOST_TO_DEVICE
                              ? MIST_LINK_HOST_TO_DEVICE
                              : MIST_LINK_DEVICE_TO_HOST,
                          1, 1, 1, task->bytes, out, err);
}

static enum mist_status price_task(const struct place *at, const struct mist_task *task,
                                   struct mist_cost *out, struct mist_err *err)
{
    switch (task->kind) {
    case MIST_TASK_FORWARD:
    case MIST_TASK_RECOMPUTE:
    case MIST_TASK_BACKWARD:
        return price_program(at, task, out, err);
    case MIST_TASK_OPTIMIZER:
        return price_optimizer(at, task, out, err);
    case MIST_TASK_SEND_ACTIVATION:
    case MIST_TASK_RECV_ACTIVATION:
    case MIST_TASK_SEND_GRADIENT:
    case MIST_TASK_RECV_GRADIENT:
        return price_transfer(at, task, out, err);
    case MIST_TASK_REDUCE_GRADIENT:
        return price_collective(at,
                                at->stage->shards_optimizer ? MIST_LINK_REDUCE_SCATTER
                                                            : MIST_LINK_ALL_REDUCE,
                                task, out, err);
    case MIST_TASK_GATHER_PARAMETER:
        return price_collective(at, MIST_LINK_ALL_GATHER, task, out, err);
    default:
        break;
    }
    if (task->stream == MIST_STREAM_HOST_TO_DEVICE ||
        task->stream == MIST_STREAM_DEVICE_TO_HOST)
        return price_copy(at, task, out, err);
    return mist_err_set(err, MIST_ERR_INPUT, "task %s has no price",
                        mist_task_kind_name(task->kind));
}

enum mist_status mist_cost_schedule(const struct mist_cost_model *model,
                                    const struct mist_plan *plan,
                                    const struct mist_schedule *schedule,
                                    struct mist_cost *costs, struct mist_err *err)
{
    struct place at = {model, plan, schedule, &plan->stages[schedule->i_stage],
                       plan->job.dtype};
    int32_t n_priced = 0;

    /* costs are numbered in the order in which they first occur */
    for (int32_t i = 0; i < schedule->n_tasks && n_priced < schedule->n_costs; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->cost < n_priced)
            continue;
        enum mist_status status = price_task(&at, task, &costs[task->cost], err);
        if (status != MIST_OK)
            return status;
        costs[task->cost].time_s += mist_cost_model_launch_s(model);
        n_priced++;
    }
    return MIST_OK;
}
