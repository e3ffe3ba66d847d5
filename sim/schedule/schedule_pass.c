/*
 * The computation of a pass, part by part. See schedule_internal.h.
 *
 * A program is one task, or several where tensor- or context-parallel ranks communicate inside it;
 * then computation and communication are tasks of their own that wait for one another as
 * the parts of the layout say. All computing parts of a program name all its buffers,
 * communication those of its operands.
 */
#include "sim/schedule/schedule_internal.h"

/* The program of a pass but for what is computed again. */
static enum mist_program_kind program_of(const struct mist_schedule_pass *pass)
{
    return mist_schedule_slot_program(pass->slot->kind);
}

/* What is computed again in front of that, for the first or the only pass that reads it;
 * MIST_N_PROGRAM_KINDS: nothing. */
static enum mist_program_kind again_of(const struct mist_schedule_builder *at,
                                       const struct mist_schedule_pass *pass)
{
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    enum mist_slot_kind slot = pass->slot->kind;

    if ((slot == MIST_SLOT_BACKWARD || slot == MIST_SLOT_BACKWARD_INPUT) &&
        mist_schedule_is_checkpointed(at->plan, at->out->i_stage, pass->layer))
        return MIST_PROGRAM_RECOMPUTE;
    if ((slot == MIST_SLOT_BACKWARD || slot == MIST_SLOT_BACKWARD_WEIGHT) &&
        storage->saved_bytes[MIST_SAVED_REMADE] > 0)
        return MIST_PROGRAM_REMAKE;
    return MIST_N_PROGRAM_KINDS;
}

/* Slabs, as bits, whose parameters and whose gradients a program reads or writes. */
static void program_slabs(const struct mist_schedule_builder *at, int32_t i_module,
                          enum mist_program_kind program, uint32_t *weights,
                          uint32_t *gradients)
{
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    const struct mist_layer_layout *layout =
        mist_schedule_layout_of(at, at->out->modules[i_module]);
    const struct mist_program *parts = &layout->programs[program];

    *weights = *gradients = 0;
    for (int32_t p = 0; p < parts->n_parts; p++)
        for (int32_t i = 0; i < parts->parts[p].n_steps; i++) {
            const struct mist_step *step =
                &mist_layer_layout_steps(layout, program)[parts->parts[p].first_step + i];
            for (int k = 0; k < 2; k++) {
                if (step->params[k] < 0)
                    continue;
                uint32_t bit = 1u << storage->param_slab[step->params[k]];
                if (step->phase != MIST_PHASE_BACKWARD_WEIGHT)
                    *weights |= bit;
                if (mist_op_adds_gradients(step->op, step->phase))
                    *gradients |= bit;
            }
        }
}

void mist_schedule_pass_slabs(const struct mist_schedule_builder *at,
                              const struct mist_schedule_pass *pass, uint32_t *weights,
                              uint32_t *gradients)
{
    enum mist_program_kind again = again_of(at, pass);

    program_slabs(at, pass->i_module, program_of(pass), weights, gradients);
    if (again == MIST_N_PROGRAM_KINDS)
        return;
    uint32_t more, none;
    program_slabs(at, pass->i_module, again, &more, &none);
    *weights |= more;
}

int32_t mist_schedule_gradient_slab(const struct mist_schedule_builder *at,
                                    int32_t i_module, int32_t i_slab)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);

    return mist_piece_joins_embedding(at->plan, slab)
               ? 0
               : i_module * MIST_MAX_SLABS + i_slab;
}

int32_t mist_schedule_gradients(const struct mist_schedule_builder *at, int32_t i_module,
                                int32_t i_slab, int32_t micro_batch)
{
    int32_t i = mist_schedule_gradient_slab(at, i_module, i_slab);
    int32_t fresh = at->fresh[mist_schedule_cell(at, i, micro_batch)];

    return fresh >= 0 ? fresh : at->slabs[i].home[MIST_GRADIENTS].buffer;
}

/* ------------------------------------------------------------------------------ roles */

/* What the tasks of one run of a program share. */
struct run {
    const struct mist_schedule_pass *pass;
    const struct mist_layer_layout *layout;
    enum mist_program_kind program;
    uint32_t weights, gradients; /* slabs */
    int32_t buffers[MIST_N_ROLES];
    uint8_t overwrites, zeroes;
    int64_t n_zeroed_elements;
};

/* Whether a program writes the saved tensors of a place. */
static bool writes_saved(enum mist_program_kind program, int place)
{
    return !mist_program_is_backward(program) &&
           (program != MIST_PROGRAM_REMAKE || place == MIST_SAVED_REMADE);
}

/* Buffers of saved activations: made by the program that writes them. Those that are made
 * again are gone behind the forward. */
static void bind_saved(struct mist_schedule_builder *at, struct run *run)
{
    const struct mist_schedule_pass *pass = run->pass;
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    int32_t k = pass->slot->micro_batch;
    size_t cell = mist_schedule_cell(at, pass->i_module, k);

    for (int place = 0; place < MIST_N_SAVED_PLACES; place++) {
        int32_t *buffer = &at->saved[place][cell];
        if (writes_saved(run->program, place))
            *buffer = storage->saved_bytes[place] == 0
                          ? -1
                          : mist_schedule_add_buffer(
                                at, MIST_ARENA_DEVICE, mist_saved_role(place),
                                pass->layer, k, storage->saved_bytes[place], false);
        run->buffers[mist_saved_role(place)] = *buffer;
        if (run->program == MIST_PROGRAM_FORWARD && place == MIST_SAVED_REMADE)
            *buffer = -1;
    }
}

/* Scratch lives for one program; between the halves of a backward it is kept. */
static void bind_scratch(struct mist_schedule_builder *at, struct run *run)
{
    const struct mist_schedule_pass *pass = run->pass;
    size_t cell = mist_schedule_cell(at, pass->i_module, pass->slot->micro_batch);
    int64_t size = mist_program_is_backward(run->program)
                       ? run->layout->scratch_backward_bytes
                       : run->layout->scratch_forward_bytes;
    int32_t buffer = -1;

    if (run->program == MIST_PROGRAM_BACKWARD_WEIGHT)
        buffer = at->deferred[cell];
    if (buffer < 0 && size > 0)
        buffer =
            mist_schedule_add_buffer(at, MIST_ARENA_DEVICE, MIST_ROLE_SCRATCH,
                                     pass->layer, pass->slot->micro_batch, size, false);
    if (run->program == MIST_PROGRAM_BACKWARD_INPUT)
        at->deferred[cell] = buffer;
    run->buffers[MIST_ROLE_SCRATCH] = buffer;
}

/*
 * What becomes of what a slab's gradients hold before a micro-batch: its first one
 * overwrites. The embedding's adds rows here and there, to zeros or to what a tied head
 * has left. Padding of a new buffer is zeroed, too: sums over ranks look through all of it.
 */
static void begin_gradients(struct mist_schedule_builder *at, struct run *run, int32_t s)
{
    const struct mist_schedule_pass *pass = run->pass;
    const struct mist_slab *slab = mist_schedule_plan_slab(at, pass->i_module, s);
    int32_t k = pass->slot->micro_batch;
    int32_t i = mist_schedule_gradient_slab(at, pass->i_module, s);
    struct mist_schedule_slab *state = &at->slabs[i];
    size_t cell = mist_schedule_cell(at, i, k);
    bool is_first = at->is_touched[cell] < 0, is_new = at->fresh[cell] >= 0;
    bool scatters = run->layout->kind == MIST_LAYER_EMBEDDING;

    at->is_touched[cell] = 1;
    if (state->gradients_begin < 0 ||
        (mist_piece_conditions(at->plan, at->out->i_stage, slab) & MIST_IF_SUMS_EACH))
        state->gradients_begin = k;
    if (state->gradients_begin != k)
        return;
    if (!scatters)
        run->overwrites |= (uint8_t)(1u << s);
    if (is_first && (scatters || is_new))
        run->zeroes |= (uint8_t)(1u << s);
    if (is_first && scatters)
        run->n_zeroed_elements += slab->n_elements;
}

static void bind_params(struct mist_schedule_builder *at, struct run *run)
{
    const struct mist_schedule_pass *pass = run->pass;
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    int32_t k = pass->slot->micro_batch;

    for (int32_t s = 0; s < storage->n_slabs; s++) {
        struct mist_schedule_slab *state = mist_schedule_slab_of(at, pass->i_module, s);
        if ((run->weights >> s & 1) && storage->slabs[s].is_alias) {
            run->buffers[MIST_ROLE_TIED_WEIGHTS] =
                mist_schedule_slab_of(at, 0, 0)->weights.buffer;
        } else if (run->weights >> s & 1) {
            run->buffers[MIST_ROLE_WEIGHTS + s] = state->weights.buffer;
        }
        if (!(run->gradients >> s & 1))
            continue;
        run->buffers[MIST_ROLE_GRADIENTS + s] =
            mist_schedule_gradients(at, pass->i_module, s, k);
        begin_gradients(at, run, s);
    }
}

static void bind_activations(struct mist_schedule_builder *at, struct run *run)
{
    const struct mist_schedule_pass *pass = run->pass;
    int32_t k = pass->slot->micro_batch, c = pass->slot->chunk, layer = pass->layer;
    enum mist_layer_kind kind = run->layout->kind;
    bool is_weight = run->program == MIST_PROGRAM_BACKWARD_WEIGHT;
    bool is_backward = mist_program_is_backward(run->program);
    /* ours computes again while the gradient is still on its way, PyTorch's autograd when
     * it is there */
    bool repeats_late = at->plan->job.framework != MIST_FRAMEWORK_OURS;

    if (kind == MIST_LAYER_EMBEDDING) {
        run->buffers[MIST_ROLE_TOKENS] = at->tokens;
    } else {
        run->buffers[MIST_ROLE_INPUT] = mist_schedule_activation(at, c, layer, k);
    }
    if (kind == MIST_LAYER_HEAD)
        run->buffers[MIST_ROLE_TARGETS] = at->targets;
    if (kind == MIST_LAYER_BLOCK)
        run->buffers[MIST_ROLE_CONSTANT] = at->constant;
    if (run->program == MIST_PROGRAM_FORWARD && kind != MIST_LAYER_HEAD)
        run->buffers[MIST_ROLE_OUTPUT] = mist_schedule_activation(at, c, layer + 1, k);
    if (run->program != MIST_PROGRAM_FORWARD && kind != MIST_LAYER_HEAD &&
        (is_backward || repeats_late))
        run->buffers[MIST_ROLE_GRAD_OUTPUT] =
            mist_schedule_activation_gradient(at, c, layer + 1, k);
    if (is_backward && kind != MIST_LAYER_EMBEDDING && !is_weight)
        run->buffers[MIST_ROLE_GRAD_INPUT] =
            mist_schedule_activation_gradient(at, c, layer, k);
}

static void bind(struct mist_schedule_builder *at, struct run *run)
{
    for (int i = 0; i < MIST_N_ROLES; i++)
        run->buffers[i] = -1;
    bind_activations(at, run);
    bind_saved(at, run);
    bind_scratch(at, run);
    bind_params(at, run);
}

/* ------------------------------------------------------------------------------ parts */

static enum mist_task_kind kind_of_part(const struct mist_layer_layout *layout,
                                        enum mist_program_kind program,
                                        const struct mist_part *part)
{
    if (part->is_communication) {
        switch (mist_layer_layout_steps(layout, program)[part->first_step].op) {
        case MIST_OP_TP_ALL_REDUCE:
            return MIST_TASK_TP_ALL_REDUCE;
        case MIST_OP_TP_REDUCE_SCATTER:
            return MIST_TASK_TP_REDUCE_SCATTER;
        case MIST_OP_CP_ALL_GATHER:
            return MIST_TASK_CP_ALL_GATHER;
        case MIST_OP_CP_REDUCE_SCATTER:
            return MIST_TASK_CP_REDUCE_SCATTER;
        default:
            return MIST_TASK_TP_ALL_GATHER;
        }
    }
    switch (program) {
    case MIST_PROGRAM_RECOMPUTE:
    case MIST_PROGRAM_REMAKE:
        return MIST_TASK_RECOMPUTE;
    case MIST_PROGRAM_BACKWARD:
        return MIST_TASK_BACKWARD;
    case MIST_PROGRAM_BACKWARD_INPUT:
        return MIST_TASK_BACKWARD_INPUT;
    case MIST_PROGRAM_BACKWARD_WEIGHT:
        return MIST_TASK_BACKWARD_WEIGHT;
    default:
        return MIST_TASK_FORWARD;
    }
}

struct mist_task mist_schedule_part_task(const struct mist_layer_layout *layout,
                                         enum mist_program_kind program, int32_t part,
                                         int32_t layer)
{
    const struct mist_part *of = &layout->programs[program].parts[part];
    const struct mist_step *step =
        &mist_layer_layout_steps(layout, program)[of->first_step];
    bool talks = of->is_communication;
    bool is_cp =
        step->op == MIST_OP_CP_ALL_GATHER || step->op == MIST_OP_CP_REDUCE_SCATTER;

    return (struct mist_task){
        .kind = kind_of_part(layout, program, of),
        .stream = talks ? MIST_STREAM_GPU_GPU : MIST_STREAM_COMPUTE,
        .group = !talks  ? MIST_GROUP_NONE
                 : is_cp ? MIST_GROUP_CP
                         : MIST_GROUP_TP,
        .layer = layer,
        .program = program,
        .part = (int8_t)part,
        .peer = -1,
        .bytes = talks ? step->dims[0] : 0,
    };
}

static enum mist_role role_of(const struct mist_module_storage *storage,
                              const struct mist_layer_layout *layout, int32_t tensor)
{
    switch (layout->tensors[tensor].tensor_class) {
    case MIST_TENSOR_INPUT:
        return MIST_ROLE_INPUT;
    case MIST_TENSOR_OUTPUT:
        return MIST_ROLE_OUTPUT;
    case MIST_TENSOR_SAVED:
        return mist_saved_role(storage->saved_place[tensor]);
    case MIST_TENSOR_GRAD_OUTPUT:
        return MIST_ROLE_GRAD_OUTPUT;
    case MIST_TENSOR_GRAD_INPUT:
        return MIST_ROLE_GRAD_INPUT;
    case MIST_TENSOR_TOKENS:
        return MIST_ROLE_TOKENS;
    case MIST_TENSOR_TARGETS:
        return MIST_ROLE_TARGETS;
    case MIST_TENSOR_CONSTANT:
        return MIST_ROLE_CONSTANT;
    case MIST_TENSOR_SCRATCH:
        break;
    }
    return MIST_ROLE_SCRATCH;
}

/* Computation beside a communication does not wait for it, so what only computation uses
 * must not begin its life there. */
static void name_buffers(struct mist_schedule_builder *at, const struct run *run,
                         const struct mist_part *part, int32_t task)
{
    const struct mist_module_storage *storage = &at->out->storage[run->pass->i_module];
    const struct mist_step *step =
        &mist_layer_layout_steps(run->layout, run->program)[part->first_step];

    for (int i = 0; i < MIST_N_ROLES && !part->is_communication; i++)
        mist_schedule_read(at, task, (enum mist_role)i, run->buffers[i]);
    for (int k = 0; k < MIST_MAX_OPERANDS && part->is_communication; k++) {
        if (step->operands[k] < 0)
            continue;
        enum mist_role role = role_of(storage, run->layout, step->operands[k]);
        mist_schedule_read(at, task, role, run->buffers[role]);
    }
}

/* Those behind the program wait for what its parts write. Among themselves these wait as
 * the layout says. */
static void note_writers(struct mist_schedule_builder *at, enum mist_program_kind program,
                         int32_t task)
{
    bool is_backward = mist_program_is_backward(program);

    for (int i = 0; i < MIST_N_ROLES; i++) {
        bool writes = i == (is_backward ? MIST_ROLE_GRAD_INPUT : MIST_ROLE_OUTPUT);
        if (i >= MIST_ROLE_SAVED && i <= MIST_ROLE_SAVED_REMADE)
            writes = writes_saved(program, i - MIST_ROLE_SAVED);
        /* the head's forward adds to gradients, too */
        if (writes || i == MIST_ROLE_SCRATCH || i >= MIST_ROLE_GRADIENTS)
            mist_schedule_wrote(at, task, at->out->tasks[task].buffers[i]);
    }
}

static int32_t add_part(struct mist_schedule_builder *at, const struct run *run,
                        int32_t p)
{
    const struct mist_part *part = &run->layout->programs[run->program].parts[p];
    int32_t layer = run->pass->layer, k = run->pass->slot->micro_batch;
    struct mist_task like = mist_schedule_part_task(run->layout, run->program, p, layer);
    int32_t task = part->is_communication
                       ? mist_schedule_add_collective(at, like.kind, like.group, layer, k,
                                                      like.bytes)
                       : mist_schedule_add_task(at, like.kind, like.stream, layer, k);

    if (task < 0)
        return -1;
    struct mist_task *added = &at->out->tasks[task];
    added->program = run->program;
    added->part = (int8_t)p;
    added->is_forward =
        run->program == MIST_PROGRAM_FORWARD &&
        part->first_step < run->layout->programs[MIST_PROGRAM_EVALUATE].n_steps;
    name_buffers(at, run, part, task);
    return task;
}

/* All parts of a program. */
static void run_program(struct mist_schedule_builder *at,
                        const struct mist_schedule_pass *pass,
                        enum mist_program_kind program)
{
    struct run run = {
        .pass = pass,
        .layout = mist_schedule_layout_of(at, pass->layer),
        .program = program,
    };
    const struct mist_program *parts = &run.layout->programs[program];
    int32_t tasks[MIST_MAX_PARTS], n_computed = 0;

    program_slabs(at, pass->i_module, program, &run.weights, &run.gradients);
    bind(at, &run);
    for (int32_t p = 0; p < parts->n_parts; p++) {
        const struct mist_part *part = &parts->parts[p];
        int32_t task = tasks[p] = add_part(at, &run, p);
        if (task < 0)
            return;
        if (part->waits_for >= 0)
            mist_schedule_depend(at, task, tasks[part->waits_for]);
        if (part->is_communication)
            continue;
        at->out->tasks[task].overwrites = run.overwrites;
        if (n_computed++ > 0)
            continue;
        at->out->tasks[task].zeroes = run.zeroes;
        at->out->tasks[task].n_zeroed_elements = run.n_zeroed_elements;
    }
    for (int32_t p = 0; p < parts->n_parts; p++)
        note_writers(at, program, tasks[p]);
}

void mist_schedule_compute(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];

    enum mist_program_kind again = again_of(at, pass);

    if (again != MIST_N_PROGRAM_KINDS)
        run_program(at, pass, again);
    run_program(at, pass, program_of(pass));
}
