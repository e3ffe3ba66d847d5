/*
 * The template quantities of a stage: tasks of one module of each kind, priced one by one
 * (mist_cost_task()), and bytes of its layouts and storage. Nothing is offloaded where
 * copies have no price; who searches there leaves it out (mist_cost_model_check()).
 */
#include "sim/closed_form/stage_model_internal.h"

#include "core/memory.h" /* mist_align_up */
#include "sim/schedule/memory_planner.h"

#include <math.h>
#include <stdlib.h>

/* A stage of one block and what prices depend on. */
struct stage {
    const struct mist_cost_model *cost_model;
    struct mist_plan *plan;
    int32_t i_stage;
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
    struct mist_layer_layout split[MIST_N_LAYER_KINDS]; /* with the backward in two */
    const struct mist_layer_layout *programs;           /* either: what is priced */
    int32_t modules[MIST_N_LAYER_KINDS], n_modules;
    struct mist_module_storage
        here[MIST_N_LAYER_KINDS]; /* [n_modules], nothing in host */
    struct mist_module_storage away[MIST_N_LAYER_KINDS]; /* all of it there */
    struct mist_module_storage lean[MIST_N_LAYER_KINDS]; /* likewise, of lean blocks */
    struct mist_rank_mesh mesh;
    /* by group; nodes 0: not looked up yet */
    struct mist_group_shape shapes[MIST_GROUP_ALL + 1];
    bool has_copies, has_host; /* have a price, or are wanted */
    double *values;
    enum mist_status status; /* of the first price that failed */
    struct mist_err *err;
};

/* What a buffer takes of its arena. */
static double in_arena(int64_t size_bytes)
{
    return (double)mist_align_up(size_bytes, MIST_BUFFER_ALIGNMENT);
}

static const struct mist_stage_plan *plan_of(const struct stage *at)
{
    return &at->plan->stages[at->i_stage];
}

static int kind_of(const struct stage *at, int32_t i_module)
{
    return (int)mist_schedule_layer_kind(&at->plan->model, at->modules[i_module]);
}

/* 0 once a price has failed. */
static double price(struct stage *at, const struct mist_task *task)
{
    struct mist_cost cost;

    if (at->status != MIST_OK)
        return 0;
    struct mist_group_shape *shape = &at->shapes[task->group];
    if (shape->nodes == 0 || task->group == MIST_GROUP_PEER)
        *shape = mist_schedule_group_shape(
            at->plan, &at->mesh, at->mesh.first_rank, task->group, task->kind, task->peer,
            mist_cost_model_traces(at->cost_model)->cluster.devices_per_node);
    at->status = mist_cost_task(at->cost_model, at->plan, at->i_stage, at->programs,
                                *shape, task, &cost, at->err);
    return at->status == MIST_OK ? cost.time_s : 0;
}

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

/* start: MIST_STAGE_VALUES_NAMED: not wanted. */
static void price_program(struct stage *at, int32_t i_module, enum mist_program_kind kind,
                          enum mist_stage_value whole, enum mist_stage_value start)
{
    int k = kind_of(at, i_module);
    const struct mist_layer_layout *layout = &at->programs[k];
    const struct mist_program *program = &layout->programs[kind];
    const double *slow =
        mist_cost_model_interference(at->cost_model)
            ->slowdown[1 << MIST_STREAM_COMPUTE | 1 << MIST_STREAM_GPU_GPU];
    double alone_s[MIST_MAX_PARTS] = {0}, start_s = 0;

    for (int32_t p = 0; p < program->n_parts; p++) {
        struct mist_task task =
            mist_schedule_part_task(layout, kind, p, at->modules[i_module]);
        alone_s[p] = price(at, &task);
    }
    for (int32_t p = 0; p < program->n_parts && !program->parts[p].is_communication; p++)
        start_s += alone_s[p];
    at->values[(int)whole + k] = program_s(program, alone_s, slow);
    if (start != MIST_STAGE_VALUES_NAMED)
        at->values[(int)start + k] = start_s;
}

/* Elements of a tied weight of which the stage has both ends; 0: none. */
static int64_t tied_elements(const struct stage *at)
{
    bool is_alone = at->plan->n_stages == 1;

    return is_alone && at->plan->model.ties_embeddings ? at->here[0].slabs[0].n_elements
                                                       : 0;
}

/* What a first part takes longer that zeroes gradients: of the embedding, which adds rows
 * here and there. */
static void price_zeroing(struct stage *at)
{
    const struct mist_module_storage *storage = &at->here[0];
    struct mist_task task = mist_schedule_part_task(&at->layouts[MIST_LAYER_EMBEDDING],
                                                    MIST_PROGRAM_BACKWARD, 0, 0);
    double without_s = price(at, &task);

    for (int32_t s = 0; s < storage->n_slabs; s++)
        task.n_zeroed_elements += storage->slabs[s].n_elements;
    double all_s = price(at, &task);
    task.n_zeroed_elements -= tied_elements(at);
    double others_s = price(at, &task);
    at->values[MIST_STAGE_ZEROING + MIST_LAYER_EMBEDDING] = others_s - without_s;
    at->values[MIST_STAGE_TIE] = all_s - others_s;
}

/* Gradients of which each tensor-parallel rank saw a part. */
static void price_partial(struct stage *at, int32_t i_module)
{
    const struct mist_layer_layout *layout = &at->layouts[kind_of(at, i_module)];
    struct mist_task task = {.kind = MIST_TASK_TP_REDUCE_GRADIENT,
                             .stream = MIST_STREAM_GPU_GPU,
                             .group = MIST_GROUP_TP,
                             .part = -1};
    int64_t n = 0;

    for (int32_t i = 0; i < layout->n_params; i++)
        n += layout->params[i].partial_elements;
    task.bytes = mist_quantity_bytes(&at->plan->job, MIST_GRADIENTS, n);
    if (n > 0 && plan_of(at)->tp > 1)
        at->values[MIST_STAGE_REDUCE_PARTIAL + kind_of(at, i_module)] = price(at, &task);
}

static void price_modules(struct stage *at)
{
    for (int32_t m = 0; m < at->n_modules; m++) {
        price_program(at, m, MIST_PROGRAM_FORWARD, MIST_STAGE_FORWARD,
                      MIST_STAGE_FORWARD_START);
        price_program(at, m, MIST_PROGRAM_BACKWARD, MIST_STAGE_BACKWARD,
                      MIST_STAGE_BACKWARD_START);
        if (kind_of(at, m) == MIST_LAYER_BLOCK) {
            price_program(at, m, MIST_PROGRAM_RECOMPUTE, MIST_STAGE_RECOMPUTE,
                          MIST_STAGE_RECOMPUTE_START);
            price_program(at, m, MIST_PROGRAM_REMAKE, MIST_STAGE_REMAKE,
                          MIST_STAGE_VALUES_NAMED);
        }
        if (kind_of(at, m) == MIST_LAYER_EMBEDDING)
            price_zeroing(at);
        price_partial(at, m);
    }
    at->programs = at->split;
    for (int32_t m = 0; m < at->n_modules; m++) {
        price_program(at, m, MIST_PROGRAM_BACKWARD_INPUT, MIST_STAGE_BACKWARD_INPUT,
                      MIST_STAGE_BACKWARD_INPUT_START);
        price_program(at, m, MIST_PROGRAM_BACKWARD_WEIGHT, MIST_STAGE_BACKWARD_WEIGHT,
                      MIST_STAGE_BACKWARD_WEIGHT_START);
    }
    at->programs = at->layouts;
}

/* ---------------------------------------------------------------------------- pieces */

enum {
    FOR_RANKS = MIST_IF_HAS_RANKS | MIST_IF_SUMS_EACH | MIST_IF_SHARDS_WEIGHTS |
                MIST_IF_SHARDS_GRADIENTS | MIST_IF_SHARDS_STATE,
    FOR_HOST = MIST_IF_WEIGHTS_AWAY | MIST_IF_GRADIENTS_AWAY | MIST_IF_STATE_AWAY |
               MIST_IF_HOST_UPDATES
};

static bool has_price(const struct stage *at, const struct mist_piece *piece)
{
    switch (piece->stream) {
    case MIST_STREAM_HOST:
        return at->has_host;
    case MIST_STREAM_HOST_TO_DEVICE:
    case MIST_STREAM_DEVICE_TO_HOST:
        return at->has_copies;
    default:
        return mist_stage_n_replicas(plan_of(at)) > 1 || !(piece->if_all & FOR_RANKS);
    }
}

/* One piece on the slabs of a module that it is for. */
static double price_piece(struct stage *at, const struct mist_piece *piece,
                          int32_t i_module)
{
    bool is_away = piece->if_all & FOR_HOST;
    const struct mist_module_storage *storage =
        is_away ? &at->away[i_module] : &at->here[i_module];
    double sum_s = 0;

    for (int32_t s = 0; s < storage->n_slabs; s++) {
        const struct mist_slab *slab = &storage->slabs[s];
        bool adds_up = slab->is_exchanged && (piece->if_all & MIST_IF_SUMS_EACH);
        if (slab->is_alias || adds_up || slab->offloads_state != is_away)
            continue;
        int64_t n =
            mist_piece_elements(slab, piece->quantity, piece->extent,
                                mist_piece_conditions(at->plan, at->i_stage, slab),
                                mist_stage_n_replicas(plan_of(at)));
        struct mist_task task = mist_piece_task(piece, &at->plan->job, n);
        sum_s += price(at, &task);
    }
    return sum_s;
}

static void price_pieces(struct stage *at, bool is_sharded)
{
    for (int i = 0; i < MIST_N_PIECES; i++)
        for (int32_t m = 0; m < at->n_modules && has_price(at, &mist_pieces[i]); m++)
            at->values[(int)mist_stage_piece(i, is_sharded) + kind_of(at, m)] =
                price_piece(at, &mist_pieces[i], m);
}

/* -------------------------------------------------------------------- once in a stage */

/* All transfers of a micro-batch of one kind, of the stage's first rank. */
static void price_transfers(struct stage *at, enum mist_task_kind kind,
                            enum mist_stage_value value)
{
    bool is_left = kind == MIST_TASK_RECV_ACTIVATION || kind == MIST_TASK_SEND_GRADIENT;
    bool is_send = mist_task_kind_sends(kind);

    if (at->i_stage == (is_left ? 0 : at->plan->n_stages - 1))
        return;
    struct mist_slice *slices =
        malloc((size_t)mist_plan_n_ranks(at->plan) * sizeof *slices);
    if (!slices)
        at->status = mist_err_memory(at->err, NULL);
    int32_t n = slices
                    ? mist_schedule_slices(at->plan, &at->mesh, at->mesh.first_rank,
                                           at->i_stage + (is_left ? -1 : 1), kind, slices)
                    : 0;
    for (int32_t i = 0; i < n; i++) {
        struct mist_task task = {
            .kind = kind,
            .stream = is_send ? MIST_STREAM_SEND : MIST_STREAM_RECEIVE,
            .group = MIST_GROUP_PEER,
            .peer = slices[i].peer,
            .bytes = slices[i].n_rows * mist_schedule_row_bytes(at->plan),
        };
        at->values[value] += price(at, &task);
    }
    free(slices);
}

/* A copy of some of what a block keeps. */
static double price_copy(struct stage *at, enum mist_stream stream, int64_t bytes)
{
    struct mist_task task = {.stream = stream, .bytes = bytes};

    return bytes > 0 && at->has_copies ? price(at, &task) : 0;
}

static void price_kept(struct stage *at, enum mist_stream stream,
                       enum mist_stage_value input, enum mist_stage_value kept,
                       enum mist_stage_value lean)
{
    int block = at->i_stage == 0;
    double input_s = price_copy(at, stream, at->layouts[MIST_LAYER_BLOCK].input_bytes);

    at->values[input] = input_s;
    at->values[kept] =
        input_s + price_copy(at, stream, at->away[block].saved_bytes[MIST_SAVED_SWAPPED]);
    at->values[lean] =
        input_s + price_copy(at, stream, at->lean[block].saved_bytes[MIST_SAVED_SWAPPED]);
}

/* The gradient of a tied weight: of the head on the same rank, or exchanged. */
static void price_tie(struct stage *at)
{
    bool is_alone = at->plan->n_stages == 1, is_first = at->i_stage == 0;
    bool is_last = at->i_stage == at->plan->n_stages - 1;
    int32_t m = is_last ? at->n_modules - 1 : 0;
    const struct mist_layer_layout *layout = &at->layouts[kind_of(at, m)];
    struct mist_task task = {.kind = MIST_TASK_TIE_GRADIENT, .part = -1};

    for (int32_t i = 0; i < layout->n_params; i++)
        if (is_last ? layout->params[i].is_tied : layout->params[i].is_vocabulary)
            task.n_elements = at->here[m].slabs[at->here[m].param_slab[i]].n_elements;
    if (!at->plan->model.ties_embeddings || !(is_first || is_last))
        return;
    task.stream = is_alone ? MIST_STREAM_COMPUTE : MIST_STREAM_GPU_GPU;
    if (!is_alone) {
        task.group = MIST_GROUP_PEER;
        struct mist_slice slice;
        mist_schedule_slices(at->plan, &at->mesh, at->mesh.first_rank,
                             is_first ? at->plan->n_stages - 1 : 0, task.kind, &slice);
        task.peer = slice.peer;
        task.bytes = mist_quantity_bytes(&at->plan->job, MIST_GRADIENTS, task.n_elements);
    }
    at->values[MIST_STAGE_TIE] += price(at, &task);
}

/* Gradients of a weight that another stage has, too, and their sum over ranks where others
 * are summed after every micro-batch. */
static void price_exchanged(struct stage *at)
{
    int64_t n = 0;
    double *values = at->values;

    for (int32_t m = 0; m < at->n_modules; m++)
        for (int32_t s = 0; s < at->here[m].n_slabs; s++)
            n += at->here[m].slabs[s].is_exchanged ? at->here[m].slabs[s].n_elements : 0;
    for (int i = 0; i < MIST_N_PIECES && n > 0 && mist_stage_n_replicas(plan_of(at)) > 1;
         i++) {
        const struct mist_piece *piece = &mist_pieces[i];
        struct mist_task task = mist_piece_task(piece, &at->plan->job, n);
        if (piece->kind == MIST_TASK_REDUCE_GRADIENT &&
            !(piece->if_all & MIST_IF_SUMS_EACH))
            values[MIST_STAGE_EXCHANGED_SUM] = price(at, &task);
    }
    values[MIST_STAGE_EXCHANGED] =
        in_arena(mist_quantity_bytes(&at->plan->job, MIST_GRADIENTS, n));
    values[MIST_STAGE_EXCHANGED_OTHERS] =
        values[MIST_STAGE_EXCHANGED] -
        in_arena(mist_quantity_bytes(&at->plan->job, MIST_GRADIENTS,
                                     n / mist_stage_n_replicas(plan_of(at))));
}

static void price_once(struct stage *at)
{
    struct mist_task exchange = {.kind = MIST_TASK_REDUCE_NORM,
                                 .stream = MIST_STREAM_GPU_GPU,
                                 .group = MIST_GROUP_ALL,
                                 .bytes = MIST_NORM_EXCHANGE_BYTES};

    price_transfers(at, MIST_TASK_RECV_ACTIVATION, MIST_STAGE_RECV_ACTIVATION);
    price_transfers(at, MIST_TASK_SEND_ACTIVATION, MIST_STAGE_SEND_ACTIVATION);
    price_transfers(at, MIST_TASK_RECV_GRADIENT, MIST_STAGE_RECV_GRADIENT);
    price_transfers(at, MIST_TASK_SEND_GRADIENT, MIST_STAGE_SEND_GRADIENT);
    price_kept(at, MIST_STREAM_HOST_TO_DEVICE, MIST_STAGE_INPUT_IN, MIST_STAGE_KEPT_IN,
               MIST_STAGE_LEAN_IN);
    price_kept(at, MIST_STREAM_DEVICE_TO_HOST, MIST_STAGE_INPUT_OUT, MIST_STAGE_KEPT_OUT,
               MIST_STAGE_LEAN_OUT);
    price_tie(at);
    if (mist_plan_n_ranks(at->plan) > 1)
        at->values[MIST_STAGE_EXCHANGE] = price(at, &exchange);
}

/* ----------------------------------------------------------------------------- bytes */

/* Homes of a module's slabs but for an alias. */
static void add_homes(struct stage *at, int32_t i_module, bool is_sharded)
{
    const struct mist_module_storage *storage = &at->here[i_module];

    for (int32_t s = 0; s < storage->n_slabs; s++) {
        const struct mist_slab *slab = &storage->slabs[s];
        uint32_t conditions = mist_piece_conditions(at->plan, at->i_stage, slab);
        for (int q = 0; q < MIST_N_QUANTITIES; q++) {
            int64_t n =
                mist_piece_elements(slab, (enum mist_quantity)q, MIST_EXTENT_UPDATE,
                                    conditions, mist_stage_n_replicas(plan_of(at)));
            if (!slab->is_alias)
                at->values[(int)mist_stage_homes[q][is_sharded] +
                           kind_of(at, i_module)] +=
                    in_arena(
                        mist_quantity_bytes(&at->plan->job, (enum mist_quantity)q, n));
        }
    }
}

/* Elements of a module and of its matrices: the first, and all others (in the embedding:
 * the second) together. */
static void read_matrices(struct stage *at, int kind)
{
    const struct mist_layer_layout *layout = &at->layouts[kind];
    double *first = &at->values[MIST_STAGE_MATRIX_A + kind];
    double *others = &at->values[MIST_STAGE_MATRIX_B + kind];

    for (int32_t i = 0; i < layout->n_params; i++) {
        double n = (double)layout->params[i].n_elements;
        at->values[MIST_STAGE_ELEMENTS + kind] += n;
        at->values[MIST_STAGE_LARGEST + kind] =
            fmax(n, at->values[MIST_STAGE_LARGEST + kind]);
        if (!layout->params[i].is_norm)
            *(kind == MIST_LAYER_BLOCK || *first == 0 ? first : others) += n;
    }
}

static void read_layouts(struct stage *at)
{
    const struct mist_plan *plan = at->plan;
    double ids = in_arena((int64_t)4 * mist_plan_rank_tokens(plan, at->i_stage));
    double *values = at->values;

    for (int k = 0; k < MIST_N_LAYER_KINDS; k++) {
        const struct mist_layer_layout *layout = &at->layouts[k];
        values[MIST_STAGE_SAVED + k] = in_arena(layout->saved_bytes);
        values[MIST_STAGE_SCRATCH_FORWARD + k] = in_arena(layout->scratch_forward_bytes);
        values[MIST_STAGE_SCRATCH_BACKWARD + k] =
            in_arena(layout->scratch_backward_bytes);
        read_matrices(at, k);
    }
    const struct mist_module_storage *lean = &at->lean[at->i_stage == 0];
    values[MIST_STAGE_SAVED_LEAN] = in_arena(lean->saved_bytes[MIST_SAVED_SWAPPED]);
    values[MIST_STAGE_REMADE] = in_arena(lean->saved_bytes[MIST_SAVED_REMADE]);
    values[MIST_STAGE_KEPT_OFF] =
        in_arena(mist_storage_most_off(&at->layouts[MIST_LAYER_BLOCK]));
    values[MIST_STAGE_BOUNDARY] = in_arena(at->layouts[MIST_LAYER_BLOCK].input_bytes);
    values[MIST_STAGE_CONSTANT] = in_arena(at->layouts[MIST_LAYER_BLOCK].constant_bytes);
    values[MIST_STAGE_TOKENS] =
        ids * ((at->i_stage == 0) + (at->i_stage == plan->n_stages - 1));
    values[MIST_STAGE_TIED_GRADIENTS] =
        in_arena(mist_quantity_bytes(&plan->job, MIST_GRADIENTS, tied_elements(at)));
    values[MIST_STAGE_IS_UNTIED] = !plan->model.ties_embeddings;
}

/* ----------------------------------------------------------------------------- whole */

static void set_knobs(struct mist_stage_plan *stage, bool is_sharded, bool is_away)
{
    stage->updates_on_host = false;
    stage->zero = is_sharded ? 3 : 0;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        stage->offload_frac[k] = is_away;
}

static void make_layouts(struct stage *at, int32_t threads, bool splits,
                         struct mist_layer_layout *out)
{
    struct mist_layer_shape shape = mist_schedule_shape(at->plan, at->i_stage, threads);

    shape.splits_backward = splits;
    for (int k = 0; k < MIST_N_LAYER_KINDS && at->status == MIST_OK; k++)
        at->status = mist_layer_layout_make(&at->plan->model, (enum mist_layer_kind)k,
                                            shape, &out[k], at->err);
}

/* Makes the plan one of one block per stage, and what follows from it. */
static void make_stage(struct stage *at, int32_t threads)
{
    struct mist_plan *plan = at->plan;
    struct mist_stage_plan *stage = &plan->stages[at->i_stage];
    int32_t first, last;

    plan->pipeline = MIST_PIPELINE_1F1B;
    plan->n_chunks = 0;
    plan->reduces_each_micro_batch = false;
    plan->n_micro_batches = 1;
    plan->job.global_batch = (int64_t)stage->micro_batch * stage->dp;
    plan->model.n_layers = plan->n_stages;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        plan->stages[i].n_layers = 1;
        plan->stages[i].n_checkpointed = plan->stages[i].n_lean = 0;
        set_knobs(&plan->stages[i], false, false);
    }
    mist_schedule_chunk_layers(plan, at->i_stage, 0, &first, &last);
    while (first <= last)
        at->modules[at->n_modules++] = first++;
    make_layouts(at, threads, false, at->layouts);
    make_layouts(at, threads, true, at->split);
    if (at->status != MIST_OK)
        return;
    mist_storage_make(plan, at->i_stage, at->programs, at->modules, at->n_modules,
                      at->here);
    set_knobs(stage, false, true);
    mist_storage_make(plan, at->i_stage, at->programs, at->modules, at->n_modules,
                      at->away);
    stage->n_lean = 1;
    mist_storage_make(plan, at->i_stage, at->programs, at->modules, at->n_modules,
                      at->lean);
    stage->n_lean = 0;
    at->mesh = mist_rank_mesh_make(plan, at->i_stage);
}

static void price_stage(struct stage *at)
{
    for (int is_sharded = 0; is_sharded < 2; is_sharded++) {
        set_knobs(&at->plan->stages[at->i_stage], is_sharded, false);
        price_pieces(at, is_sharded);
        for (int32_t m = 0; m < at->n_modules; m++)
            add_homes(at, m, is_sharded);
    }
    price_exchanged(at);
    set_knobs(&at->plan->stages[at->i_stage], false, false);
    price_modules(at);
    price_once(at);
    read_layouts(at);
}

enum mist_status mist_stage_model_price(const struct mist_cost_model *cost_model,
                                        int32_t threads, struct mist_plan *plan,
                                        int32_t i_stage, struct mist_stage_values *out,
                                        struct mist_err *err)
{
    struct mist_stage_values values = {0};
    struct stage *at = calloc(1, sizeof *at); /* layouts are large */

    if (!at)
        return mist_err_memory(err, NULL);
    *at = (struct stage){
        .cost_model = cost_model,
        .plan = plan,
        .i_stage = i_stage,
        .has_copies = mist_cost_model_prices_copies(cost_model),
        .has_host = mist_cost_model_prices_host(cost_model, plan->job.dtype),
        .values = values.values,
        .err = err,
        .programs = at->layouts,
    };
    make_stage(at, threads);
    if (at->status == MIST_OK)
        price_stage(at);
    enum mist_status status = at->status;
    free(at);
    if (status == MIST_OK)
        *out = values;
    return status;
}
