/*
 * What the tasks of a schedule cost. See cost_model.h.
 *
 * Ranks are placed on nodes in order, devices_per_node each. The groups of a stage run the
 * same at once, and so do the pairs of ranks that exchange over a boundary between stages:
 * as many as touch one node share its links (mist_schedule_group_shape()).
 *
 * Computing costs what its rows say and the skew that was measured (struct
 * mist_trace_skew): with tensor parallelism that of ranks that wait for one another after
 * every few operators, else of ranks that do so once in a micro-batch, as those of a
 * pipeline or a data-parallel group do; on one rank what unusual runs cost. Left out: how
 * it grows with the number of ranks beyond those that were measured.
 */
#include "sim/cost/cost_internal.h"
#include "sim/model/framework.h"

#include <math.h> /* fmax */

/* Where a task is priced. */
struct place {
    const struct mist_cost_model *model;
    const struct mist_plan *plan;
    const struct mist_layer_layout *layouts; /* [MIST_N_LAYER_KINDS] */
    const struct mist_stage_plan *stage;
    enum mist_dtype dtype, gradient_dtype;
    struct mist_group_shape shape; /* of the task's group */
};

static enum mist_status price_message(const struct place *at,
                                      enum mist_link_operation operation,
                                      const struct mist_task *task, struct mist_cost *out,
                                      struct mist_err *err)
{
    return mist_framework_get(at->plan->job.framework)->sums_in_rings
               ? mist_cost_link_in_rings(at->model, operation, at->shape, task->bytes,
                                         out, err)
               : mist_cost_link(at->model, operation, at->shape, task->bytes, out, err);
}

/* Sums over data-parallel ranks; before, every rank looks for what is not finite. */
static enum mist_status price_reduction(const struct place *at,
                                        const struct mist_task *task,
                                        struct mist_cost *out, struct mist_err *err)
{
    bool scatters = at->stage->zero >= 1 && mist_stage_n_replicas(at->stage) > 1;
    enum mist_status status = price_message(
        at, scatters ? MIST_LINK_REDUCE_SCATTER : MIST_LINK_ALL_REDUCE, task, out, err);

    if (status != MIST_OK)
        return status;
    return mist_cost_add_elements(
        at->model, MIST_OP_GRADIENT_NORM, at->dtype, at->gradient_dtype,
        task->bytes / mist_dtype_gradient_bytes(at->gradient_dtype), out, err);
}

/* Where nothing says how fast copies are, the ids of a batch, some kilobytes, take what
 * their launch takes. */
static enum mist_status price_copy(const struct place *at, const struct mist_task *task,
                                   struct mist_cost *out, struct mist_err *err)
{
    *out = (struct mist_cost){0};
    if (task->kind == MIST_TASK_LOAD_BATCH && !mist_cost_model_prices_copies(at->model))
        return MIST_OK;
    return mist_cost_link(at->model,
                          task->stream == MIST_STREAM_HOST_TO_DEVICE
                              ? MIST_LINK_HOST_TO_DEVICE
                              : MIST_LINK_DEVICE_TO_HOST,
                          (struct mist_group_shape){1, 1, 1}, task->bytes, out, err);
}

/* How a tensor-parallel group of the stage lies on nodes: its first one. */
static struct mist_group_shape tensor_parallel_shape(const struct place *at)
{
    struct mist_rank_mesh mesh =
        mist_rank_mesh_make(at->plan, (int32_t)(at->stage - at->plan->stages));

    return mist_rank_mesh_shape(&mesh, MIST_GROUP_TP, mesh.first_rank,
                                at->model->traces->cluster.devices_per_node);
}

/* Between two ranks; where a framework sends each row once, in parts that the ranks of the
 * next stage gather, their sum: also of a gradient that goes whole, for the output of its
 * stage that was kept in parts. A tied gradient goes both ways at once. */
static enum mist_status price_transfer(const struct place *at,
                                       const struct mist_task *task,
                                       struct mist_cost *out, struct mist_err *err)
{
    const struct mist_framework *framework = mist_framework_get(at->plan->job.framework);
    bool scatters = framework->scatters_transfers && at->stage->tp > 1 &&
                    !at->stage->is_sequence_parallel &&
                    mist_task_kind_sort(task->kind) == MIST_SORT_TRANSFER;
    bool is_gradient =
        task->kind == MIST_TASK_SEND_GRADIENT || task->kind == MIST_TASK_RECV_GRADIENT;
    bool is_part = scatters && !(is_gradient && framework->sends_whole_gradients);
    struct mist_task part = *task;
    struct mist_cost gather = {0};

    part.bytes = is_part ? task->bytes / at->stage->tp : task->bytes;
    enum mist_status status = price_message(at, MIST_LINK_SEND_RECV, &part, out, err);
    if (status == MIST_OK && scatters && !mist_task_kind_sends(task->kind))
        status = mist_cost_link(at->model, MIST_LINK_ALL_GATHER,
                                tensor_parallel_shape(at), task->bytes, &gather, err);
    mist_cost_add(out, &gather);
    return status;
}

/* Device time of the product that reads what a part of a block's program gathers, or makes
 * what it scatters; 0: there is none. */
static enum mist_status find_product(const struct place *at, const struct mist_task *task,
                                     double *out_s, struct mist_err *err)
{
    const struct mist_layer_layout *layout =
        &at->layouts[mist_schedule_layer_kind(&at->plan->model, task->layer)];
    const struct mist_program *program = &layout->programs[task->program];
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);
    bool is_behind = task->kind == MIST_TASK_TP_ALL_GATHER;
    int32_t i_part = task->part + (is_behind ? 1 : -1);
    struct mist_cost_split split = {0};
    enum mist_status status = MIST_OK;

    *out_s = 0;
    if (layout->kind != MIST_LAYER_BLOCK || i_part < 0 || i_part >= program->n_parts ||
        program->parts[i_part].is_communication)
        return MIST_OK;
    const struct mist_part *part = &program->parts[i_part];
    status = mist_cost_framework_split(at->model, &at->plan->job, layout, task->program,
                                       i_part, &split, err);
    for (int32_t k = 0; k < part->n_steps && *out_s == 0; k++) {
        int32_t i = part->first_step + (is_behind ? k : part->n_steps - 1 - k);
        if (mist_op_is_product(steps[i].op))
            *out_s = split.step_s[i];
    }
    return status;
}

/*
 * What is left of a message of tensor-parallel ranks that goes on beside the parts of a
 * product. Of tp parts of what is gathered a rank has one, and computes with each while the
 * next one comes; what is scattered goes in SPLITS parts, the last when all are computed
 * (Transformer Engine, module/base.py: ring_exchange and pipeline). Left out: what products
 * lose as they are cut, and to the processors that send.
 */
static enum mist_status hide_message(const struct place *at, const struct mist_task *task,
                                     struct mist_cost *cost, struct mist_err *err)
{
    enum { SPLITS = 4 };
    bool gathers = task->kind == MIST_TASK_TP_ALL_GATHER;
    double first_frac = 1.0 / (gathers ? at->stage->tp : SPLITS), product_s;
    enum mist_status status = find_product(at, task, &product_s, err);

    if (status != MIST_OK || product_s == 0 || cost->time_s <= 0)
        return status;
    double least_s = gathers ? 0 : cost->time_s * first_frac;
    double left_s = fmax(least_s, cost->time_s - product_s * (1 - first_frac));
    mist_cost_scale(cost, left_s / cost->time_s);
    return MIST_OK;
}

static enum mist_status price_tensor_parallel(const struct place *at,
                                              enum mist_link_operation operation,
                                              const struct mist_task *task,
                                              struct mist_cost *out, struct mist_err *err)
{
    enum mist_status status = price_message(at, operation, task, out, err);

    return status == MIST_OK && at->plan->job.cuts_products && task->part >= 0
               ? hide_message(at, task, out, err)
               : status;
}

/* Device time of the attention of a task's program; 0: there is none. */
static enum mist_status find_attention(const struct place *at,
                                       const struct mist_task *task, double *out_s,
                                       struct mist_err *err)
{
    const struct mist_layer_layout *layout =
        &at->layouts[mist_schedule_layer_kind(&at->plan->model, task->layer)];
    const struct mist_program *program = &layout->programs[task->program];
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);

    *out_s = 0;
    for (int32_t p = 0; p < program->n_parts; p++)
        for (int32_t i = 0; i < program->parts[p].n_steps; i++) {
            struct mist_cost_split split = {0};
            int32_t i_step = program->parts[p].first_step + i;
            if (steps[i_step].op != MIST_OP_ATTENTION_PART)
                continue;
            enum mist_status status = mist_cost_framework_split(
                at->model, &at->plan->job, layout, task->program, p, &split, err);
            if (status != MIST_OK)
                return status;
            *out_s = split.step_s[i_step];
        }
    return MIST_OK;
}

/*
 * Keys and values, or their gradients, of context-parallel ranks. Where they go around in a
 * ring, each part beside attention to the one before, what is left of them is what attention
 * to all parts but one is shorter; in a backward both go at once, and each has half of it
 * (Transformer Engine, attention.py: AttnFuncWithCPAndKVP2P).
 */
static enum mist_status price_context_parallel(const struct place *at,
                                               enum mist_link_operation operation,
                                               const struct mist_task *task,
                                               struct mist_cost *out,
                                               struct mist_err *err)
{
    double cp = mist_stage_cp(at->stage), attention_s;
    enum mist_status status = price_message(at, operation, task, out, err);

    if (status != MIST_OK || out->time_s <= 0 ||
        !mist_framework_get(at->plan->job.framework)->hides_keys)
        return status;
    status = find_attention(at, task, &attention_s, err);
    if (mist_program_is_backward(task->program))
        attention_s /= 2;
    double left_s = fmax(0, out->time_s - attention_s * (1 - 1 / cp));
    mist_cost_scale(out, left_s / out->time_s);
    return status;
}

static enum mist_status price_communication(const struct place *at,
                                            const struct mist_task *task,
                                            struct mist_cost *out, struct mist_err *err)
{
    if (task->group == MIST_GROUP_PEER)
        return price_transfer(at, task, out, err);
    switch (task->kind) {
    case MIST_TASK_REDUCE_GRADIENT:
        return price_reduction(at, task, out, err);
    case MIST_TASK_GATHER_PARAMETER:
        return price_message(at, MIST_LINK_ALL_GATHER, task, out, err);
    case MIST_TASK_TP_ALL_GATHER:
        return price_tensor_parallel(at, MIST_LINK_ALL_GATHER, task, out, err);
    case MIST_TASK_TP_REDUCE_SCATTER:
        return price_tensor_parallel(at, MIST_LINK_REDUCE_SCATTER, task, out, err);
    case MIST_TASK_CP_ALL_GATHER:
        return price_context_parallel(at, MIST_LINK_ALL_GATHER, task, out, err);
    case MIST_TASK_CP_REDUCE_SCATTER:
        return price_context_parallel(at, MIST_LINK_REDUCE_SCATTER, task, out, err);
    default: /* tp_all_reduce, tp_reduce_gradient, reduce_norm */
        return price_message(at, MIST_LINK_ALL_REDUCE, task, out, err);
    }
}

/* ------------------------------------------------------------------------ computation */

enum mist_op mist_cost_gradient_op(enum mist_task_kind kind)
{
    return kind == MIST_TASK_OPTIMIZER       ? MIST_OP_ADAMW
           : kind == MIST_TASK_GRADIENT_NORM ? MIST_OP_GRADIENT_NORM
                                             : MIST_OP_RESIDUAL;
}

/* A part of a program. */
static enum mist_status price_part(const struct place *at, const struct mist_task *task,
                                   struct mist_cost *out, struct mist_err *err)
{
    const struct mist_layer_layout *layout =
        &at->layouts[mist_schedule_layer_kind(&at->plan->model, task->layer)];
    const struct mist_part *part = &layout->programs[task->program].parts[task->part];
    const struct mist_job *job = &at->plan->job;
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);

    if (job->framework != MIST_FRAMEWORK_OURS)
        return mist_cost_framework_part(at->model, job, layout, task->program, task->part,
                                        out, err);
    return mist_cost_program(at->model, steps + part->first_step, part->n_steps,
                             at->dtype, out, err);
}

static enum mist_status price_computation(const struct place *at,
                                          const struct mist_task *task,
                                          struct mist_cost *out, struct mist_err *err)
{
    enum mist_op op = mist_cost_gradient_op(task->kind);
    int64_t n_elements = op == MIST_OP_ADAMW
                             ? mist_cost_framework_update_elements(
                                   at->model, &at->plan->job, task->n_elements)
                             : task->n_elements;
    enum mist_status status = MIST_OK;

    *out = (struct mist_cost){0};
    if (task->part >= 0)
        status = price_part(at, task, out, err);
    else
        status = mist_cost_add_elements(at->model, op, at->dtype, at->gradient_dtype,
                                        n_elements, out, err);
    return status != MIST_OK ? status
                             : mist_cost_add_elements(at->model, MIST_OP_ZERO, at->dtype,
                                                      at->gradient_dtype,
                                                      task->n_zeroed_elements, out, err);
}

/* The optimizer step on the host. No data sheet of a device knows its memory. */
static enum mist_status price_host(const struct place *at, const struct mist_task *task,
                                   struct mist_cost *out, struct mist_err *err)
{
    bool is_device = mist_cost_model_interference(at->model)->shares_processors;

    *out = (struct mist_cost){0};
    if (!mist_cost_model_prices_host(at->model, at->dtype))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "cluster %s has no %s adamw_host in kernels.csv, which an "
                            "update on the host needs: mist-profile measures it; of a "
                            "preset host-adamw=RATE says how many parameters a node's "
                            "processors update in a second",
                            at->model->traces->cluster.name, mist_dtype_words[at->dtype]);
    return mist_cost_add_elements(
        at->model, is_device ? MIST_OP_ADAMW : MIST_OP_ADAMW_HOST, at->dtype,
        at->gradient_dtype, task->n_elements, out, err);
}

/* What rows don't say: that ranks wait for the slowest, and unusual runs. */
static void add_skew(const struct place *at, struct mist_cost *cost)
{
    const struct mist_trace_skew *skew = &at->model->traces->cluster.skew;
    double frac = at->stage->tp > 1                 ? skew->step_frac
                  : mist_plan_n_ranks(at->plan) > 1 ? skew->pass_frac
                                                    : skew->alone_frac;

    mist_cost_scale(cost, 1 + frac);
}

static void add_launch(const struct place *at, struct mist_cost *cost)
{
    double launch_s = mist_cost_model_launch_s(at->model);
    bool is_preset = at->model->traces->cluster.backend == MIST_TRACE_DATASHEET;
    struct mist_cost launch = {.time_s = launch_s,
                               .extrapolated_s = is_preset ? launch_s : 0,
                               .preset_s = is_preset ? launch_s : 0};

    mist_cost_add(cost, &launch);
}

static enum mist_status price_stream(const struct place *at, const struct mist_task *task,
                                     struct mist_cost *out, struct mist_err *err)
{
    switch (task->stream) {
    case MIST_STREAM_COMPUTE:
        return price_computation(at, task, out, err);
    case MIST_STREAM_GPU_GPU:
    case MIST_STREAM_SHARDS:
    case MIST_STREAM_SEND:
    case MIST_STREAM_RECEIVE:
        return price_communication(at, task, out, err);
    case MIST_STREAM_HOST:
        return price_host(at, task, out, err);
    default:
        return price_copy(at, task, out, err);
    }
}

static enum mist_status price_task(const struct place *at, const struct mist_task *task,
                                   struct mist_cost *out, struct mist_err *err)
{
    enum mist_status status = price_stream(at, task, out, err);

    if (status != MIST_OK)
        return status;
    if (task->stream == MIST_STREAM_COMPUTE)
        add_skew(at, out);
    if (task->stream != MIST_STREAM_HOST)
        add_launch(at, out);
    return MIST_OK;
}

enum mist_status mist_cost_task(const struct mist_cost_model *model,
                                const struct mist_plan *plan, int32_t i_stage,
                                const struct mist_layer_layout *layouts,
                                struct mist_group_shape shape,
                                const struct mist_task *task, struct mist_cost *out,
                                struct mist_err *err)
{
    const struct place at = {
        .model = model,
        .plan = plan,
        .layouts = layouts,
        .stage = &plan->stages[i_stage],
        .dtype = plan->job.dtype,
        .gradient_dtype = plan->job.gradient_dtype,
        .shape = shape,
    };

    return price_task(&at, task, out, err);
}

enum mist_status mist_cost_schedule_at(const struct mist_cost_model *model,
                                       const struct mist_plan *plan,
                                       const struct mist_schedule *schedule,
                                       const struct mist_group_shape *shapes,
                                       struct mist_cost *costs, struct mist_err *err)
{
    int32_t n_priced = 0;

    /* costs are numbered in the order in which they first occur */
    for (int32_t i = 0; i < schedule->n_tasks && n_priced < schedule->n_costs; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        struct mist_group_shape shape = {0};
        if (task->cost < n_priced)
            continue;
        if (task->group != MIST_GROUP_NONE)
            shape =
                shapes
                    ? shapes[task->cost]
                    : mist_schedule_group_shape(plan, &schedule->mesh, schedule->rank,
                                                task->group, task->kind, task->peer,
                                                model->traces->cluster.devices_per_node);
        enum mist_status status =
            mist_cost_task(model, plan, schedule->i_stage, schedule->layouts, shape, task,
                           &costs[task->cost], err);
        if (status != MIST_OK)
            return status;
        n_priced++;
    }
    return MIST_OK;
}

enum mist_status mist_cost_schedule(const struct mist_cost_model *model,
                                    const struct mist_plan *plan,
                                    const struct mist_schedule *schedule,
                                    struct mist_cost *costs, struct mist_err *err)
{
    return mist_cost_schedule_at(model, plan, schedule, NULL, costs, err);
}
