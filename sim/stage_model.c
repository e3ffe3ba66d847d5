/* Prices shapes, compiles and evaluates the expressions. See stage_model.h. */
#include "sim/stage_model.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/pipeline_order.h"
#include "sim/stage_model_internal.h"

#include <math.h>
#include <stdio.h> /* snprintf */
#include <stdlib.h>
#include <string.h>

enum { N_ROLES = 4, ALIGNMENT = 64 };

struct mist_stage_model {
    const struct mist_catalog *catalog;       /* borrowed */
    const struct mist_cost_model *cost_model; /* borrowed */
    struct mist_job job;
    int32_t threads;
    struct mist_expr_pool pool;
    int32_t symbol_of_column[MIST_STAGE_N_COLUMNS]; /* symbol indices */
    int32_t symbol_of_value[MIST_STAGE_VALUES_USED];
    struct mist_tape *tapes[N_ROLES]; /* by is_first + 2 * is_last */
    size_t scratch_bytes;             /* of the largest tape */
};

/* ----------------------------------------------------------------------- construction */

static const char *const column_names[MIST_STAGE_N_COLUMNS] = {"L", "C", "Z", "P", "G"};

#define NAMES_BY_KIND(name) #name "_EMBEDDING", #name "_BLOCK", #name "_HEAD",
#define NAMES_ONCE(name)    #name,

static const char *const value_names[MIST_STAGE_VALUES_USED] = {
    MIST_STAGE_BY_KIND(NAMES_BY_KIND) MIST_STAGE_ONCE(NAMES_ONCE)};

static enum mist_status compile(struct mist_stage_model *model, struct mist_err *err)
{
    struct mist_expr_pool *pool = &model->pool;
    mist_expr columns[MIST_STAGE_N_COLUMNS], values[MIST_STAGE_VALUES_USED];
    bool is_uniform[MIST_STAGE_N_COLUMNS + MIST_STAGE_VALUES_USED] = {false};

    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++) {
        columns[i] = mist_expr_symbol(pool, column_names[i]);
        if (columns[i] != MIST_EXPR_ERROR)
            model->symbol_of_column[i] = mist_expr_symbol_index(pool, columns[i]);
    }
    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++) {
        values[i] = mist_expr_symbol(pool, value_names[i]);
        if (values[i] == MIST_EXPR_ERROR)
            continue;
        model->symbol_of_value[i] = mist_expr_symbol_index(pool, values[i]);
        is_uniform[model->symbol_of_value[i]] = true;
    }
    enum mist_status status = MIST_OK;
    for (int role = 0; role < N_ROLES && status == MIST_OK; role++) {
        mist_expr outputs[MIST_STAGE_N_OUTPUTS];
        mist_stage_model_write(pool, role & 1, role & 2, columns, values, outputs);
        status = mist_expr_pool_check(pool, err);
        if (status == MIST_OK)
            status = mist_tape_compile(pool, outputs, MIST_STAGE_N_OUTPUTS, is_uniform,
                                       &model->tapes[role], err);
        if (status != MIST_OK)
            return status;
        size_t size = mist_tape_scratch_bytes(model->tapes[role]);
        model->scratch_bytes = size > model->scratch_bytes ? size : model->scratch_bytes;
    }
    return status;
}

enum mist_status mist_stage_model_new(const struct mist_catalog *catalog,
                                      const struct mist_cost_model *cost_model,
                                      const struct mist_job *job, int32_t threads,
                                      struct mist_stage_model **out, struct mist_err *err)
{
    struct mist_stage_model *model = calloc(1, sizeof *model);

    if (!model)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    model->catalog = catalog;
    model->cost_model = cost_model;
    model->job = *job;
    model->threads = threads;
    mist_expr_pool_init(&model->pool);
    enum mist_status status = compile(model, err);
    if (status != MIST_OK) {
        mist_stage_model_free(model);
        return status;
    }
    *out = model;
    return MIST_OK;
}

void mist_stage_model_free(struct mist_stage_model *model)
{
    if (!model)
        return;
    for (int i = 0; i < N_ROLES; i++)
        mist_tape_free(model->tapes[i]);
    mist_expr_pool_fini(&model->pool);
    free(model);
}

/* ---------------------------------------------------------------------------- pricing */

static bool is_communication(enum mist_task_kind kind)
{
    return kind >= MIST_TASK_SEND_ACTIVATION && kind <= MIST_TASK_RECV_GRADIENT;
}

/* Where the seconds of a task kind go; -1: nowhere. */
static int value_of_task(enum mist_task_kind kind, bool is_sharded)
{
    switch (kind) {
    case MIST_TASK_FORWARD:
        return MIST_STAGE_FORWARD;
    case MIST_TASK_RECOMPUTE:
        return MIST_STAGE_RECOMPUTE;
    case MIST_TASK_BACKWARD:
        return MIST_STAGE_BACKWARD;
    case MIST_TASK_OPTIMIZER:
        return is_sharded ? MIST_STAGE_OPTIMIZER_1 : MIST_STAGE_OPTIMIZER_0;
    case MIST_TASK_REDUCE_GRADIENT:
        return is_sharded ? MIST_STAGE_REDUCE_1 : MIST_STAGE_REDUCE_0;
    case MIST_TASK_GATHER_PARAMETER:
        return MIST_STAGE_GATHER;
    case MIST_TASK_SEND_ACTIVATION:
        return MIST_STAGE_SEND_ACTIVATION;
    case MIST_TASK_RECV_ACTIVATION:
        return MIST_STAGE_RECV_ACTIVATION;
    case MIST_TASK_SEND_GRADIENT:
        return MIST_STAGE_SEND_GRADIENT;
    case MIST_TASK_RECV_GRADIENT:
        return MIST_STAGE_RECV_GRADIENT;
    default:
        return -1;
    }
}

/* Seconds of one schedule's tasks; transfers add up their slices of micro-batch 0. */
static void read_times(const struct mist_plan *plan, const struct mist_schedule *schedule,
                       const struct mist_cost *costs, double *values)
{
    bool is_sharded = plan->stages[schedule->i_stage].shards_optimizer;

    for (int i = MIST_STAGE_RECV_ACTIVATION; i <= MIST_STAGE_SEND_GRADIENT; i++)
        values[i] = 0;
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        int value = value_of_task(task->kind, is_sharded);
        if (value < 0)
            continue;
        if (!is_communication(task->kind))
            values[value + (int)mist_schedule_layer_kind(&plan->model, task->layer)] =
                costs[task->cost].time_s;
        else if (task->micro_batch == 0)
            values[value] += costs[task->cost].time_s;
    }
}

/* Bytes of one schedule's buffers that outlive the iteration, and of its layouts. */
static void read_bytes(const struct mist_plan *plan, const struct mist_schedule *schedule,
                       double *values)
{
    bool is_sharded = plan->stages[schedule->i_stage].shards_optimizer;
    int persistent = is_sharded ? MIST_STAGE_PERSISTENT_1 : MIST_STAGE_PERSISTENT_0;
    bool is_seen[MIST_N_ROLES][MIST_N_LAYER_KINDS] = {{false}};

    for (int k = 0; k < MIST_N_LAYER_KINDS; k++)
        values[persistent + k] = 0;
    values[MIST_STAGE_TOKENS] = values[MIST_STAGE_CONSTANT] = 0;
    for (int32_t i = 0; i < schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &schedule->buffers[i];
        double size = (double)mist_align_up(buffer->size_bytes, ALIGNMENT);
        if (!buffer->is_persistent)
            continue;
        if (buffer->role == MIST_ROLE_TOKENS || buffer->role == MIST_ROLE_TARGETS) {
            values[MIST_STAGE_TOKENS] +=
                (double)buffer->size_bytes / plan->n_micro_batches;
        } else if (buffer->role == MIST_ROLE_CONSTANT) {
            values[MIST_STAGE_CONSTANT] = size;
        } else {
            enum mist_layer_kind kind =
                mist_schedule_layer_kind(&plan->model, buffer->layer);
            if (!is_seen[buffer->role][kind])
                values[persistent + (int)kind] += size;
            is_seen[buffer->role][kind] = true;
        }
    }
    for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
        const struct mist_layer_layout *layout = &schedule->layouts[k];
        values[MIST_STAGE_SAVED + k] = (double)layout->saved_bytes;
        values[MIST_STAGE_SCRATCH_FORWARD + k] = (double)layout->scratch_forward_bytes;
        values[MIST_STAGE_SCRATCH_BACKWARD + k] = (double)layout->scratch_backward_bytes;
    }
    values[MIST_STAGE_BOUNDARY] =
        (double)mist_align_up(schedule->layouts[MIST_LAYER_BLOCK].input_bytes, ALIGNMENT);
}

/* Prices stage i_stage of a plan of two blocks per stage, one of them checkpointed. */
static enum mist_status price(const struct mist_stage_model *model,
                              const struct mist_plan *plan, int32_t i_stage,
                              double *values, struct mist_err *err)
{
    struct mist_schedule *schedule;
    enum mist_status status =
        mist_schedule_build(model->catalog, plan, mist_plan_first_rank(plan, i_stage),
                            model->threads, &schedule, err);

    if (status != MIST_OK)
        return status;
    struct mist_cost *costs = calloc((size_t)schedule->n_costs + 1, sizeof *costs);
    status = costs ? mist_cost_schedule(model->cost_model, plan, schedule, costs, err)
                   : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status == MIST_OK) {
        read_times(plan, schedule, costs, values);
        read_bytes(plan, schedule, values);
    }
    free(costs);
    mist_schedule_free(schedule);
    return status;
}

/*
 * Makes every stage of a plan two blocks deep (one kept, one checkpointed) and the plan
 * two micro-batches long, and prices stage i_stage without and with sharding: every task
 * kind and buffer then occurs, at the ranks where it is.
 */
static enum mist_status price_both(const struct mist_stage_model *model,
                                   struct mist_plan *plan, int32_t i_stage,
                                   struct mist_stage_values *out, struct mist_err *err)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    const struct mist_interference *interference =
        mist_cost_model_interference(model->cost_model);
    const double *slowdown =
        interference->slowdown[1 << MIST_STREAM_COMPUTE | 1 << MIST_STREAM_GPU_GPU];
    struct mist_stage_values values = {
        .shape = {i_stage == 0, i_stage == plan->n_stages - 1, stage->micro_batch,
                  stage->dp, stage->tp, stage->n_nodes, stage->n_devices},
    };
    enum mist_status status = MIST_OK;

    plan->n_micro_batches = 2;
    plan->job.global_batch = (int64_t)2 * stage->micro_batch * stage->dp;
    plan->model.n_layers = 2 * plan->n_stages;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        plan->stages[i].n_layers = 2;
        plan->stages[i].n_checkpointed = 1;
    }
    for (int z = 0; z <= 1 && status == MIST_OK; z++) {
        plan->stages[i_stage].shards_optimizer = z;
        status = price(model, plan, i_stage, values.values, err);
    }
    values.values[MIST_STAGE_SLOW_COMPUTE] = slowdown[MIST_STREAM_COMPUTE];
    values.values[MIST_STAGE_SLOW_TRANSFER] = slowdown[MIST_STREAM_GPU_GPU];
    if (status == MIST_OK)
        *out = values;
    return status;
}

enum mist_status mist_stage_model_prepare(const struct mist_stage_model *model,
                                          const struct mist_stage_shape *shape,
                                          struct mist_stage_values *out,
                                          struct mist_err *err)
{
    struct mist_plan *plan = calloc(1, sizeof *plan); /* large: not on the stack */

    if (!plan)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    plan->model = model->catalog->model;
    plan->job = model->job;
    plan->n_stages = 1 + !shape->is_first + !shape->is_last;
    for (int32_t i = 0; i < plan->n_stages; i++)
        plan->stages[i] = (struct mist_stage_plan){
            .n_nodes = shape->n_nodes,
            .n_devices = shape->n_devices,
            .micro_batch = shape->micro_batch,
            .dp = shape->dp,
            .tp = shape->tp,
        };
    enum mist_status status = price_both(model, plan, shape->is_first ? 0 : 1, out, err);
    free(plan);
    return status;
}

/* ------------------------------------------------------------------------- evaluation */

size_t mist_stage_model_scratch_bytes(const struct mist_stage_model *model)
{
    return model->scratch_bytes;
}

void mist_stage_model_eval(const struct mist_stage_model *model,
                           const struct mist_stage_values *values,
                           const struct mist_tape_input *columns, size_t n, double *t_s,
                           double *d_s, double *peak_bytes, void *scratch)
{
    struct mist_tape_input inputs[MIST_STAGE_N_COLUMNS + MIST_STAGE_VALUES_USED];
    double *outputs[MIST_STAGE_N_OUTPUTS] = {t_s, d_s, peak_bytes};
    int role = values->shape.is_first + 2 * values->shape.is_last;

    for (int i = 0; i < MIST_STAGE_VALUES_USED; i++)
        inputs[model->symbol_of_value[i]] =
            (struct mist_tape_input){NULL, values->values[i]};
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        inputs[model->symbol_of_column[i]] = columns[i];
    mist_tape_eval(model->tapes[role], inputs, n, outputs, scratch);
}

double mist_stage_model_iteration_s(int32_t n_stages, int32_t n_micro_batches,
                                    const double *t_s, const double *d_s)
{
    double most_s = 0, sum_s = 0, extra_s = 0;

    for (int32_t i = 0; i < n_stages; i++) {
        extra_s = fmax(extra_s, d_s[i] - sum_s);
        sum_s += t_s[i];
        most_s = fmax(most_s, t_s[i]);
    }
    return (n_micro_batches - 1) * most_s + sum_s + extra_s;
}

/* One stage; plan is a copy of original that pricing may change. */
static enum mist_status predict_stage(const struct mist_stage_model *model,
                                      const struct mist_plan *original,
                                      struct mist_plan *plan, int32_t i, void *scratch,
                                      struct mist_prediction *out, struct mist_err *err)
{
    const struct mist_stage_plan *stage = &original->stages[i];
    struct mist_stage_values values;
    struct mist_tape_input columns[MIST_STAGE_N_COLUMNS] = {
        [MIST_STAGE_LAYERS] = {NULL, stage->n_layers},
        [MIST_STAGE_CHECKPOINTED] = {NULL, stage->n_checkpointed},
        [MIST_STAGE_SHARDS] = {NULL, stage->shards_optimizer},
        [MIST_STAGE_IN_FLIGHT] = {NULL,
                                  mist_pipeline_in_flight(original->n_stages, i,
                                                          original->n_micro_batches)},
        [MIST_STAGE_MICRO_BATCHES] = {NULL, original->n_micro_batches},
    };
    double peak_bytes;

    *plan = *original;
    enum mist_status status = price_both(model, plan, i, &values, err);
    if (status != MIST_OK)
        return status;
    mist_stage_model_eval(model, &values, columns, 1, &out->stable_s[i], &out->extra_s[i],
                          &peak_bytes, scratch);
    out->peak_bytes[i] = (int64_t)ceil(peak_bytes);
    return MIST_OK;
}

enum mist_status mist_stage_model_plan(const struct mist_stage_model *model,
                                       const struct mist_plan *plan,
                                       struct mist_prediction *out, struct mist_err *err)
{
    struct mist_plan *copy = malloc(sizeof *copy);
    struct mist_prediction *prediction = calloc(1, sizeof *prediction);
    size_t size = (model->scratch_bytes + ALIGNMENT) / ALIGNMENT * ALIGNMENT;
    void *scratch = aligned_alloc(ALIGNMENT, size);
    enum mist_status status = mist_schedule_supports(plan, err);

    if (status == MIST_OK && (!copy || !prediction || !scratch))
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++)
        status = predict_stage(model, plan, copy, i, scratch, prediction, err);
    if (status == MIST_OK) {
        prediction->iteration_s =
            mist_stage_model_iteration_s(plan->n_stages, plan->n_micro_batches,
                                         prediction->stable_s, prediction->extra_s);
        *out = *prediction;
    }
    free(copy);
    free(prediction);
    free(scratch);
    return status;
}
