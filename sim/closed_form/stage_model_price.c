/*
 * Reads the template quantities of a stage off schedules of three blocks (one
 * checkpointed) and two micro-batches, with each ZeRO level, with nothing and with
 * everything offloaded, and where that has a price updated on the host: then every task
 * kind and buffer occurs, at the ranks where it is. Nothing is offloaded where copies have
 * no price; who searches there leaves it out (mist_cost_model_check()).
 */
#include "sim/closed_form/stage_model_internal.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/schedule/memory_planner.h"

#include <math.h>
#include <stdlib.h>

enum { N_BLOCKS = 3, N_MICRO_BATCHES = 2 };

/* A schedule with prices, and what it was built with. */
struct sample {
    int zero;
    bool offloads, on_host;
    const struct mist_plan *plan;
    const struct mist_schedule *schedule;
    const struct mist_cost *costs;
    const struct mist_interference *interference;
};

/* -------------------------------------------------------------------------- programs */

/* Parts of a program on one of its two streams. */
struct queue {
    int32_t next;    /* part */
    double left_s;   /* of the part that runs, alone */
    bool is_running; /* part next has started */
};

static void advance(struct queue *queue, const struct mist_program *program,
                    bool is_communication)
{
    do
        queue->next++;
    while (queue->next < program->n_parts &&
           program->parts[queue->next].is_communication != is_communication);
    queue->is_running = false;
}

/* Starts the next part of a queue if nothing holds it up. */
static void start(struct queue *queue, const struct queue *other,
                  const struct mist_program *program, const double *alone_s)
{
    if (queue->is_running || queue->next >= program->n_parts ||
        program->parts[queue->next].waits_for >= other->next)
        return;
    queue->is_running = true;
    queue->left_s = alone_s[queue->next];
}

/* Time of a program whose parts take alone_s: computation and communication in their
 * orders, beside one another where they don't wait. */
static double program_s(const struct mist_program *program, const double *alone_s,
                        const double slow[MIST_N_CHANNELS])
{
    struct queue queues[2] = {{.next = -1}, {.next = -1}};
    double sum_s = 0;

    for (int i = 0; i < 2; i++)
        advance(&queues[i], program, i);
    for (;;) {
        double step_s = INFINITY;
        for (int i = 0; i < 2; i++)
            start(&queues[i], &queues[1 - i], program, alone_s);
        bool both = queues[0].is_running && queues[1].is_running;
        for (int i = 0; i < 2; i++)
            if (queues[i].is_running)
                step_s = fmin(step_s, queues[i].left_s * (both ? slow[i] : 1));
        if (isinf(step_s))
            return sum_s;
        sum_s += step_s;
        for (int i = 0; i < 2; i++) {
            if (!queues[i].is_running)
                continue;
            double rate = both ? slow[i] : 1;
            if (queues[i].left_s * rate <= step_s)
                advance(&queues[i], program, i);
            else
                queues[i].left_s -= step_s / rate;
        }
    }
}

static void read_program(const struct sample *at, int32_t layer, int32_t micro_batch,
                         enum mist_program_kind kind, double *whole_s, double *start_s)
{
    const struct mist_schedule *schedule = at->schedule;
    const struct mist_layer_layout *layout =
        &schedule->layouts[mist_schedule_layer_kind(&at->plan->model, layer)];
    const struct mist_program *program = &layout->programs[kind];
    const double *slow =
        at->interference->slowdown[1 << MIST_STREAM_COMPUTE | 1 << MIST_STREAM_GPU_GPU];
    double alone_s[MIST_MAX_PARTS] = {0};

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->layer == layer && task->micro_batch == micro_batch && task->part >= 0 &&
            task->program == kind)
            alone_s[task->part] = at->costs[task->cost].time_s;
    }
    *start_s = 0;
    for (int32_t p = 0; p < program->n_parts && !program->parts[p].is_communication; p++)
        *start_s += alone_s[p];
    *whole_s = program_s(program, alone_s, slow);
}

static void read_programs(const struct sample *at, double *values)
{
    static const struct {
        enum mist_program_kind program;
        enum mist_stage_value whole, start;
    } programs[] = {
        {MIST_PROGRAM_FORWARD, MIST_STAGE_FORWARD, MIST_STAGE_FORWARD_START},
        {MIST_PROGRAM_RECOMPUTE, MIST_STAGE_RECOMPUTE, MIST_STAGE_RECOMPUTE_START},
        {MIST_PROGRAM_BACKWARD, MIST_STAGE_BACKWARD, MIST_STAGE_BACKWARD_START},
    };

    for (int32_t m = 0; m < at->schedule->n_modules; m++) {
        int32_t layer = at->schedule->modules[m];
        int kind = (int)mist_schedule_layer_kind(&at->plan->model, layer);
        for (int i = 0; i < 3; i++) {
            double whole_s, start_s;
            read_program(at, layer, 1, programs[i].program, &whole_s, &start_s);
            if (whole_s == 0)
                continue; /* recomputation of a block that is kept */
            values[(int)programs[i].whole + kind] = whole_s;
            values[(int)programs[i].start + kind] = start_s;
        }
    }
}

/* Zeroing of new gradients: what the first backward takes longer than the second. */
static void read_zeroing(const struct sample *at, double *values)
{
    for (int32_t m = 0; m < at->schedule->n_modules; m++) {
        int32_t layer = at->schedule->modules[m];
        int kind = (int)mist_schedule_layer_kind(&at->plan->model, layer);
        double first_s, second_s, start_s;
        read_program(at, layer, 0, MIST_PROGRAM_BACKWARD, &first_s, &start_s);
        read_program(at, layer, 1, MIST_PROGRAM_BACKWARD, &second_s, &start_s);
        values[MIST_STAGE_ZEROING + kind] = first_s - second_s;
    }
}

/* ----------------------------------------------------------------------------- tasks */

/* Which tasks of which sample make a value: kind, micro-batch, ZeRO
 * levels, offloading. */
struct source {
    enum mist_stage_value value;
    enum mist_task_kind kind;
    int micro_batch; /* -1: none */
    int zero;
    bool offloads, on_host;
};

static const struct source sources[] = {
    {MIST_STAGE_UPDATE_0, MIST_TASK_OPTIMIZER, -1, 0, false, false},
    {MIST_STAGE_UPDATE_1, MIST_TASK_OPTIMIZER, -1, 1, false, false},
    {MIST_STAGE_UPDATE_2, MIST_TASK_OPTIMIZER, -1, 2, false, false},
    {MIST_STAGE_UPDATE_HOST_0, MIST_TASK_OPTIMIZER, -1, 0, true, true},
    {MIST_STAGE_UPDATE_HOST_1, MIST_TASK_OPTIMIZER, -1, 1, true, true},
    {MIST_STAGE_REDUCE_0, MIST_TASK_REDUCE_GRADIENT, 1, 0, false, false},
    {MIST_STAGE_REDUCE_1, MIST_TASK_REDUCE_GRADIENT, 1, 1, false, false},
    {MIST_STAGE_REDUCE_PARTIAL, MIST_TASK_TP_REDUCE_GRADIENT, 1, 0, false, false},
    {MIST_STAGE_GATHER, MIST_TASK_GATHER_PARAMETER, -1, 1, false, false},
    {MIST_STAGE_ACCUMULATE, MIST_TASK_ACCUMULATE_GRADIENT, 1, 2, false, false},
    {MIST_STAGE_NORM, MIST_TASK_GRADIENT_NORM, 1, 0, false, false},
    {MIST_STAGE_WEIGHTS_IN_0, MIST_TASK_SWAP_IN_WEIGHT, 0, 0, true, false},
    {MIST_STAGE_WEIGHTS_IN_1, MIST_TASK_SWAP_IN_WEIGHT, 0, 3, true, false},
    {MIST_STAGE_WEIGHTS_OUT_0, MIST_TASK_SWAP_OUT_WEIGHT, -1, 0, true, false},
    {MIST_STAGE_WEIGHTS_OUT_1, MIST_TASK_SWAP_OUT_WEIGHT, -1, 3, true, false},
    {MIST_STAGE_GRADIENTS_IN_0, MIST_TASK_SWAP_IN_GRADIENT, 1, 0, true, false},
    {MIST_STAGE_GRADIENTS_IN_1, MIST_TASK_SWAP_IN_GRADIENT, 1, 2, true, false},
    {MIST_STAGE_GRADIENTS_OUT_0, MIST_TASK_SWAP_OUT_GRADIENT, 0, 0, true, false},
    {MIST_STAGE_GRADIENTS_OUT_1, MIST_TASK_SWAP_OUT_GRADIENT, 0, 2, true, false},
    {MIST_STAGE_STATE_IN_0, MIST_TASK_SWAP_IN_OPTIMIZER, -1, 0, true, false},
    {MIST_STAGE_STATE_IN_1, MIST_TASK_SWAP_IN_OPTIMIZER, -1, 1, true, false},
    {MIST_STAGE_STATE_OUT_0, MIST_TASK_SWAP_OUT_OPTIMIZER, -1, 0, true, false},
    {MIST_STAGE_STATE_OUT_1, MIST_TASK_SWAP_OUT_OPTIMIZER, -1, 1, true, false},
};

/* Sum over the slabs of one module of each kind. */
static void read_source(const struct sample *at, const struct source *source,
                        double *values)
{
    int32_t layer_of[MIST_N_LAYER_KINDS] = {-1, -1, -1};

    for (int32_t i = 0; i < at->schedule->n_tasks; i++) {
        const struct mist_task *task = &at->schedule->tasks[i];
        if (task->kind != source->kind || task->micro_batch != source->micro_batch ||
            (task->stream == MIST_STREAM_HOST) != source->on_host)
            continue;
        int kind = (int)mist_schedule_layer_kind(&at->plan->model, task->layer);
        /* the weights of a module come back in the backward */
        bool is_again = task->kind == MIST_TASK_SWAP_IN_WEIGHT && !task->is_forward;
        if (is_again || (layer_of[kind] >= 0 && layer_of[kind] != task->layer))
            continue;
        layer_of[kind] = task->layer;
        values[(int)source->value + kind] += at->costs[task->cost].time_s;
    }
}

static void read_once(const struct sample *at, double *values)
{
    int32_t first_block = at->schedule->modules[0] == 0 ? 1 : at->schedule->modules[0];

    for (int32_t i = 0; i < at->schedule->n_tasks; i++) {
        const struct mist_task *task = &at->schedule->tasks[i];
        double time_s = at->costs[task->cost].time_s;
        bool is_input = task->layer == first_block;
        bool is_kept = task->layer == first_block + 1;
        if (task->kind == MIST_TASK_REDUCE_NORM && !at->offloads)
            values[MIST_STAGE_EXCHANGE] = time_s;
        else if (task->kind == MIST_TASK_TIE_GRADIENT && !at->offloads)
            values[MIST_STAGE_TIE] = time_s;
        if (task->micro_batch != 0)
            continue;
        switch (task->kind) {
        case MIST_TASK_SEND_ACTIVATION:
        case MIST_TASK_RECV_ACTIVATION:
        case MIST_TASK_SEND_GRADIENT:
        case MIST_TASK_RECV_GRADIENT: {
            int value =
                task->kind == MIST_TASK_SEND_ACTIVATION   ? MIST_STAGE_SEND_ACTIVATION
                : task->kind == MIST_TASK_RECV_ACTIVATION ? MIST_STAGE_RECV_ACTIVATION
                : task->kind == MIST_TASK_SEND_GRADIENT   ? MIST_STAGE_SEND_GRADIENT
                                                          : MIST_STAGE_RECV_GRADIENT;
            if (!at->offloads)
                values[value] += time_s;
            break;
        }
        case MIST_TASK_SWAP_IN_ACTIVATION:
            values[MIST_STAGE_INPUT_IN] += is_input ? time_s : 0;
            values[MIST_STAGE_KEPT_IN] += is_kept ? time_s : 0;
            break;
        case MIST_TASK_SWAP_OUT_ACTIVATION:
            values[MIST_STAGE_INPUT_OUT] += is_input ? time_s : 0;
            values[MIST_STAGE_KEPT_OUT] += is_kept ? time_s : 0;
            break;
        default:
            break;
        }
    }
}

/* What a buffer takes of its arena. */
static double in_arena(int64_t size_bytes)
{
    return (double)mist_align_up(size_bytes, MIST_BUFFER_ALIGNMENT);
}

/* ----------------------------------------------------------------------------- bytes */

/* Buffers that outlive the iteration; those of one module of each kind, in values from
 * weights, gradients and state on. */
static void read_homes(const struct sample *at, const int values_of[3], double *values)
{
    int32_t layer_of[MIST_N_LAYER_KINDS] = {-1, -1, -1};

    for (int32_t i = 0; i < at->schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &at->schedule->buffers[i];
        if (!buffer->is_persistent || buffer->layer < 0)
            continue;
        int kind = (int)mist_schedule_layer_kind(&at->plan->model, buffer->layer);
        int what = buffer->role == MIST_ROLE_STATE            ? 2
                   : (int)buffer->role >= MIST_ROLE_GRADIENTS ? 1
                                                              : 0;
        if (values_of[what] < 0 ||
            (layer_of[kind] >= 0 && layer_of[kind] != buffer->layer))
            continue;
        layer_of[kind] = buffer->layer;
        values[values_of[what] + kind] += in_arena(buffer->size_bytes);
    }
}

static void read_ids(const struct sample *at, double *values)
{
    for (int32_t i = 0; i < at->schedule->n_buffers; i++) {
        const struct mist_buffer *buffer = &at->schedule->buffers[i];
        if (buffer->role == MIST_ROLE_TOKENS || buffer->role == MIST_ROLE_TARGETS)
            values[MIST_STAGE_TOKENS] += in_arena(buffer->size_bytes / N_MICRO_BATCHES);
        else if (buffer->role == MIST_ROLE_CONSTANT)
            values[MIST_STAGE_CONSTANT] = in_arena(buffer->size_bytes);
    }
}

/* Elements of a module and of its matrices: the first, and all others (in the embedding:
 * the second) together. */
static void read_matrices(const struct sample *at, int kind, double *values)
{
    const struct mist_layer_layout *layout = &at->schedule->layouts[kind];
    int first = MIST_STAGE_MATRIX_A + kind, others = MIST_STAGE_MATRIX_B + kind;

    for (int32_t i = 0; i < layout->n_params; i++) {
        double n = (double)layout->params[i].n_elements;
        values[MIST_STAGE_ELEMENTS + kind] += n;
        if (layout->params[i].is_norm)
            continue;
        values[kind == MIST_LAYER_BLOCK || values[first] == 0 ? first : others] += n;
    }
}

static void read_layouts(const struct sample *at, double *values)
{
    for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
        const struct mist_layer_layout *layout = &at->schedule->layouts[k];
        values[MIST_STAGE_SAVED + k] = in_arena(layout->saved_bytes);
        values[MIST_STAGE_SCRATCH_FORWARD + k] = in_arena(layout->scratch_forward_bytes);
        values[MIST_STAGE_SCRATCH_BACKWARD + k] =
            in_arena(layout->scratch_backward_bytes);
        read_matrices(at, k, values);
    }
    values[MIST_STAGE_BOUNDARY] =
        in_arena(at->schedule->layouts[MIST_LAYER_BLOCK].input_bytes);
    values[MIST_STAGE_IS_UNTIED] = !at->plan->model.ties_embeddings;
    values[MIST_STAGE_IS_DP] = at->plan->stages[at->schedule->i_stage].dp > 1;
}

/* --------------------------------------------------------------------------- samples */

static void read_sample(const struct sample *at, double *values)
{
    static const int homes[4][3] = {
        {MIST_STAGE_WEIGHTS_0, MIST_STAGE_GRADIENTS_0, MIST_STAGE_STATE_0},
        {-1, -1, MIST_STAGE_STATE_1},
        {-1, MIST_STAGE_GRADIENTS_1, -1},
        {MIST_STAGE_WEIGHTS_1, -1, -1},
    };

    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++)
        if (sources[i].zero == at->zero && sources[i].offloads == at->offloads &&
            sources[i].on_host == at->on_host)
            read_source(at, &sources[i], values);
    if (at->on_host)
        return;
    if (!at->offloads)
        read_homes(at, homes[at->zero], values);
    if (at->zero > 0)
        return;
    read_once(at, values);
    if (at->offloads)
        return;
    read_zeroing(at, values);
    read_programs(at, values);
    read_ids(at, values);
    read_layouts(at, values);
}

static enum mist_status take_sample(const struct mist_cost_model *cost_model,
                                    int32_t threads, const struct mist_plan *plan,
                                    int32_t i_stage, struct sample *at, double *values,
                                    struct mist_err *err)
{
    struct mist_schedule *schedule;
    enum mist_status status = mist_schedule_build(
        plan, mist_plan_first_rank(plan, i_stage), threads, &schedule, err);

    if (status != MIST_OK)
        return status;
    struct mist_cost *costs = calloc((size_t)schedule->n_costs + 1, sizeof *costs);
    status = costs ? mist_cost_schedule(cost_model, plan, schedule, costs, err)
                   : mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status == MIST_OK) {
        at->plan = plan;
        at->schedule = schedule;
        at->costs = costs;
        at->interference = mist_cost_model_interference(cost_model);
        read_sample(at, values);
    }
    free(costs);
    mist_schedule_free(schedule);
    return status;
}

static void set_knobs(struct mist_stage_plan *stage, int zero, bool offloads,
                      bool on_host)
{
    stage->updates_on_host = on_host;
    stage->shards_optimizer = zero >= 1;
    stage->shards_gradients = zero >= 2;
    stage->shards_weights = zero >= 3;
    stage->offload_weights = stage->offload_gradients = stage->offload_optimizer =
        stage->offload_activations = offloads ? 1 : 0;
}

enum mist_status mist_stage_model_price(const struct mist_cost_model *cost_model,
                                        int32_t threads, struct mist_plan *plan,
                                        int32_t i_stage, struct mist_stage_values *out,
                                        struct mist_err *err)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    struct mist_stage_values values = {
        .shape = {i_stage == 0, i_stage == plan->n_stages - 1, stage->micro_batch,
                  stage->dp, stage->tp, stage->n_nodes, stage->n_devices,
                  stage->is_sequence_parallel},
    };
    /* who asks for what has no price gets to know it */
    bool has_host = stage->updates_on_host ||
                    mist_cost_model_prices_host(cost_model, plan->job.dtype);
    bool has_copies = mist_cost_model_prices_copies(cost_model);
    enum mist_status status = MIST_OK;

    plan->pipeline = MIST_PIPELINE_1F1B;
    plan->n_chunks = 0;
    plan->reduces_each_micro_batch = false;
    plan->n_micro_batches = N_MICRO_BATCHES;
    plan->job.global_batch = (int64_t)N_MICRO_BATCHES * stage->micro_batch * stage->dp;
    plan->model.n_layers = N_BLOCKS * plan->n_stages;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        set_knobs(&plan->stages[i], 0, false, false);
        plan->stages[i].n_layers = N_BLOCKS;
        plan->stages[i].n_checkpointed = 1;
    }
    for (int i = 0; i < (has_host ? 10 : 8) && status == MIST_OK; i++) {
        bool on_host = i >= 8;
        struct sample sample = {.zero = on_host ? i - 8 : i / 2,
                                .offloads = on_host || i % 2,
                                .on_host = on_host};
        if (sample.offloads && !has_copies)
            continue;
        set_knobs(&plan->stages[i_stage], sample.zero, sample.offloads, on_host);
        status =
            take_sample(cost_model, threads, plan, i_stage, &sample, values.values, err);
    }
    if (status == MIST_OK)
        *out = values;
    return status;
}
