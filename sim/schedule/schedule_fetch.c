/*
 * What a pass needs from elsewhere, and the optimizer step. See schedule_internal.h.
 *
 * Parameters that are cut over data-parallel ranks (ZeRO-3) or live in the host are put
 * together in a buffer that lives for the pass; neighbouring passes of one module share
 * it. An update on the device works on the home of its slab where that is on the device;
 * where it is in the host, on the buffer of the forward that follows. An update on the
 * host works on what is there, and its result comes to the device before the forward.
 */
#include "sim/schedule/schedule_internal.h"

static enum mist_dtype dtype_of(const struct mist_schedule_builder *at)
{
    return at->plan->job.dtype;
}

static int64_t weight_bytes(const struct mist_schedule_builder *at, int64_t elements)
{
    return elements * mist_dtype_weight_bytes(dtype_of(at));
}

/* Elements of a slab that this rank updates. */
static int64_t update_elements(const struct mist_schedule_builder *at,
                               const struct mist_slab *slab)
{
    return mist_schedule_shards(at, at->stage->shards_optimizer)
               ? mist_schedule_shard_elements(at, slab)
               : slab->n_elements;
}

/* ------------------------------------------------------------------------- persistent */

static int32_t add_home(struct mist_schedule_builder *at, bool is_offloaded,
                        enum mist_role role, int32_t layer, int32_t i_slab,
                        int64_t size_bytes)
{
    int32_t id =
        mist_schedule_add_buffer(at, is_offloaded ? MIST_ARENA_HOST : MIST_ARENA_DEVICE,
                                 role, layer, -1, size_bytes, true);

    if (id >= 0)
        at->out->buffers[id].slab = (int8_t)i_slab;
    return id;
}

/* What an update on the host reads and writes there beside the state. */
static void add_host_copies(struct mist_schedule_builder *at, int32_t i_module,
                            int32_t i_slab)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    int32_t layer = at->out->modules[i_module];
    int64_t n = update_elements(at, slab);

    state->host[0] = state->home[0];
    state->host[1] = state->home[1];
    if (!slab->offloads_weights)
        state->host[0] = add_home(at, true, (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab),
                                  layer, i_slab, weight_bytes(at, n));
    if (!slab->offloads_gradients)
        state->host[1] =
            add_home(at, true, (enum mist_role)(MIST_ROLE_GRADIENTS + i_slab), layer,
                     i_slab, mist_schedule_gradient_bytes(at, n));
}

static void add_module_homes(struct mist_schedule_builder *at, int32_t i_module)
{
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    int32_t layer = at->out->modules[i_module];

    for (int32_t s = 0; s < storage->n_slabs; s++) {
        const struct mist_slab *slab = &storage->slabs[s];
        struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, s);
        int64_t whole = slab->n_elements, shard = mist_schedule_shard_elements(at, slab);
        bool shards_weights = mist_schedule_shards(at, at->stage->shards_weights);
        bool shards_gradients = mist_schedule_shards(at, at->stage->shards_gradients);
        bool shards_state = mist_schedule_shards(at, at->stage->shards_optimizer);
        if (!slab->is_alias) {
            state->home[0] = add_home(at, slab->offloads_weights,
                                      (enum mist_role)(MIST_ROLE_WEIGHTS + s), layer, s,
                                      weight_bytes(at, shards_weights ? shard : whole));
            state->home[2] = add_home(at, slab->offloads_state, MIST_ROLE_STATE, layer, s,
                                      (shards_state ? shard : whole) *
                                          mist_dtype_state_bytes(dtype_of(at)));
        }
        state->home[1] =
            add_home(at, slab->offloads_gradients,
                     (enum mist_role)(MIST_ROLE_GRADIENTS + s), layer, s,
                     mist_schedule_gradient_bytes(
                         at, shards_gradients && !slab->is_alias ? shard : whole));
        if (!slab->offloads_weights && !shards_weights)
            state->weights = state->home[0];
        if (slab->updates_on_host)
            add_host_copies(at, i_module, s);
    }
}

/* Copies the iteration's token ids to the device, where the stage needs any. */
static void add_load(struct mist_schedule_builder *at)
{
    if (at->tokens < 0 && at->targets < 0)
        return;
    int32_t task = mist_schedule_add_task(at, MIST_TASK_LOAD_BATCH,
                                          MIST_STREAM_HOST_TO_DEVICE, -1, -1);
    mist_schedule_use(at, task, MIST_ROLE_TOKENS, at->tokens);
    mist_schedule_use(at, task, MIST_ROLE_TARGETS, at->targets);
    if (task >= 0 && !at->is_out_of_memory) {
        int32_t ids[2] = {at->tokens, at->targets};
        for (int i = 0; i < 2; i++)
            if (ids[i] >= 0)
                at->out->tasks[task].bytes += at->out->buffers[ids[i]].size_bytes;
        at->out->tasks[task].is_forward = true;
    }
    at->load_task = task;
}

void mist_schedule_add_persistent(struct mist_schedule_builder *at)
{
    int64_t batch_bytes = (int64_t)4 * at->plan->n_micro_batches *
                          at->stage->micro_batch * at->plan->job.seq_len;
    int32_t last = at->out->modules[at->out->n_modules - 1];
    int64_t constant_bytes = at->out->layouts[MIST_LAYER_BLOCK].constant_bytes;

    for (int32_t m = 0; m < at->out->n_modules; m++)
        add_module_homes(at, m);
    at->tokens = at->targets = at->constant = -1;
    if (at->out->modules[0] == 0)
        at->tokens = mist_schedule_add_buffer(at, MIST_ARENA_DEVICE, MIST_ROLE_TOKENS, -1,
                                              -1, batch_bytes, true);
    if (mist_schedule_kind_of(at, last) == MIST_LAYER_HEAD)
        at->targets = mist_schedule_add_buffer(at, MIST_ARENA_DEVICE, MIST_ROLE_TARGETS,
                                               -1, -1, batch_bytes, true);
    if (constant_bytes > 0)
        at->constant = mist_schedule_add_buffer(at, MIST_ARENA_DEVICE, MIST_ROLE_CONSTANT,
                                                -1, -1, constant_bytes, true);
    add_load(at);
}

/* ----------------------------------------------------------------------------- update */

bool mist_schedule_interleaves_update(const struct mist_schedule_builder *at)
{
    return at->out->i_stage == 0 || at->stage->offload_weights > 0;
}

static void mark_update(struct mist_schedule_builder *at, int32_t task)
{
    if (task >= 0)
        at->out->tasks[task].is_update = true;
}

/* Brings the weights of a slab that live in the host into a buffer on the device: all of
 * them or, under ZeRO-3, this rank's shard at its place. */
static void swap_in_weights(struct mist_schedule_builder *at, int32_t i_module,
                            int32_t i_slab, int32_t micro_batch, bool is_forward,
                            bool feeds_update)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    int32_t layer = at->out->modules[i_module];
    bool is_shard = mist_schedule_shards(at, at->stage->shards_weights);
    int64_t shard = mist_schedule_shard_elements(at, slab);
    int32_t task = mist_schedule_add_copy(
        at, MIST_TASK_SWAP_IN_WEIGHT, false, layer, micro_batch, state->home[0], 0,
        state->weights, is_shard ? weight_bytes(at, shard) * at->out->i_dp : 0,
        weight_bytes(at, is_shard ? shard : slab->n_elements), state->written[0]);

    if (task < 0)
        return;
    at->out->tasks[task].slab = (int8_t)i_slab;
    at->out->tasks[task].is_forward = is_forward;
    at->out->tasks[task].feeds_update = feeds_update;
    state->weights_ready = task;
}

/* Gathers a slab's weights over data-parallel ranks: in place, or under ZeRO-3 from homes
 * on the device. */
static void gather_weights(struct mist_schedule_builder *at, int32_t i_module,
                           int32_t i_slab, int32_t micro_batch, int32_t after)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    int32_t task = mist_schedule_add_collective(
        at, MIST_TASK_GATHER_PARAMETER, MIST_GROUP_DP, at->out->modules[i_module],
        micro_batch, weight_bytes(at, slab->n_elements), after);

    if (task < 0)
        return;
    at->out->tasks[task].slab = (int8_t)i_slab;
    mist_schedule_use(at, task, (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab),
                      state->weights);
    if (mist_schedule_shards(at, at->stage->shards_weights) && !slab->offloads_weights)
        mist_schedule_use(at, task, MIST_ROLE_INPUT, state->home[0]);
    state->weights_ready = task;
}

static void new_working_weights(struct mist_schedule_builder *at, int32_t i_module,
                                int32_t i_slab, int32_t micro_batch)
{
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);

    state->weights = mist_schedule_add_buffer(
        at, MIST_ARENA_DEVICE, (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab),
        at->out->modules[i_module], micro_batch,
        weight_bytes(at, mist_schedule_plan_slab(at, i_module, i_slab)->n_elements),
        false);
}

/* Swaps in what an optimizer step reads besides weights: kind, home, bytes. Returns the
 * buffer on the device. */
static int32_t swap_in_whole(struct mist_schedule_builder *at, enum mist_task_kind kind,
                             enum mist_role role, int32_t i_module, int32_t i_slab,
                             int32_t home, int64_t from_offset_bytes, int64_t bytes,
                             int32_t *ready)
{
    int32_t layer = at->out->modules[i_module];
    int32_t buffer =
        mist_schedule_add_buffer(at, MIST_ARENA_DEVICE, role, layer, -1, bytes, false);

    *ready = mist_schedule_add_copy(at, kind, false, layer, -1, home, from_offset_bytes,
                                    buffer, 0, bytes, -1);
    if (*ready >= 0)
        at->out->tasks[*ready].slab = (int8_t)i_slab;
    mark_update(at, *ready);
    return buffer;
}

/* Swaps what the optimizer step wrote out again, after another task. */
static int32_t swap_out_whole(struct mist_schedule_builder *at, enum mist_task_kind kind,
                              int32_t i_module, int32_t i_slab, int32_t from,
                              int64_t from_offset_bytes, int32_t home, int64_t bytes,
                              int32_t after)
{
    int32_t task = mist_schedule_add_copy(at, kind, true, at->out->modules[i_module], -1,
                                          from, from_offset_bytes, home, 0, bytes, after);

    if (task >= 0)
        at->out->tasks[task].slab = (int8_t)i_slab;
    mark_update(at, task);
    return task;
}

/* Whether the ranks of a stage update parts of weights that all of them keep whole. */
static bool gathers_update(const struct mist_schedule_builder *at)
{
    return mist_schedule_shards(at, at->stage->shards_optimizer) &&
           !mist_schedule_shards(at, at->stage->shards_weights);
}

/* The task of an optimizer step: this rank's part of a slab, or all of it. */
static int32_t add_step(struct mist_schedule_builder *at, enum mist_stream stream,
                        int32_t i_module, int32_t i_slab, int32_t weights,
                        int32_t gradients, int32_t moments)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    int32_t task = mist_schedule_add_task(at, MIST_TASK_OPTIMIZER, stream,
                                          at->out->modules[i_module], -1);

    mist_schedule_use(at, task, (enum mist_role)(MIST_ROLE_WEIGHTS + i_slab), weights);
    mist_schedule_use(at, task, (enum mist_role)(MIST_ROLE_GRADIENTS + i_slab),
                      gradients);
    mist_schedule_use(at, task, MIST_ROLE_STATE, moments);
    mark_update(at, task);
    if (task < 0)
        return -1;
    at->out->tasks[task].slab = (int8_t)i_slab;
    at->out->tasks[task].n_elements = update_elements(at, slab);
    return task;
}

/* The optimizer step of a slab on the device, with what it swaps in. Weights that live in
 * the host are there already. */
static void step_on_device(struct mist_schedule_builder *at, int32_t i_module,
                           int32_t i_slab)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    bool shards_state = mist_schedule_shards(at, at->stage->shards_optimizer);
    bool shards_gradients = mist_schedule_shards(at, at->stage->shards_gradients);
    int64_t n = update_elements(at, slab);
    int64_t state_bytes = n * mist_dtype_state_bytes(dtype_of(at));
    int32_t gradients = state->home[1], moments = state->home[2];
    int32_t ready[2] = {-1, -1};

    if (slab->offloads_gradients)
        gradients =
            swap_in_whole(at, MIST_TASK_SWAP_IN_GRADIENT,
                          (enum mist_role)(MIST_ROLE_GRADIENTS + i_slab), i_module,
                          i_slab, state->home[1],
                          shards_state && !shards_gradients
                              ? mist_schedule_gradient_bytes(at, n) * at->out->i_dp
                              : 0,
                          mist_schedule_gradient_bytes(at, n), &ready[0]);
    if (slab->offloads_state)
        moments =
            swap_in_whole(at, MIST_TASK_SWAP_IN_OPTIMIZER, MIST_ROLE_STATE, i_module,
                          i_slab, state->home[2], 0, state_bytes, &ready[1]);
    int32_t task = add_step(at, MIST_STREAM_COMPUTE, i_module, i_slab,
                            slab->offloads_weights ? state->weights : state->home[0],
                            gradients, moments);
    mist_schedule_depend(at, task, ready[0]);
    mist_schedule_depend(at, task, ready[1]);
    if (slab->offloads_weights)
        mist_schedule_depend(at, task, state->weights_ready);
    if (task < 0 || at->is_out_of_memory)
        return;
    at->out->tasks[task].slab = (int8_t)i_slab;
    at->out->tasks[task].n_elements = n;
    mist_schedule_swap_out_state(
        at); /* of the step before: its room was not this one's */
    if (slab->offloads_state)
        at->stepped =
            (struct mist_schedule_stepped){i_module, i_slab, moments, task, state_bytes};
    state->weights_ready = task;
}

/*
 * The optimizer step of a slab on the host. Its gradients have been there since the last
 * sum (schedule_leave.c), and those on the device are zeroed when they are added to. The
 * weights come from there: all that live there (swap_in_weights()), or this rank's part.
 */
static void step_on_host(struct mist_schedule_builder *at, int32_t i_module,
                         int32_t i_slab)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    int32_t task = add_step(at, MIST_STREAM_HOST, i_module, i_slab, state->host[0],
                            state->host[1], state->home[2]);

    state->written[0] = task;
    if (slab->offloads_weights || task < 0)
        return;
    int64_t bytes = weight_bytes(at, at->out->tasks[task].n_elements);
    state->weights_ready = mist_schedule_add_copy(
        at, MIST_TASK_SWAP_IN_WEIGHT, false, at->out->modules[i_module], -1,
        state->host[0], 0, state->home[0], gathers_update(at) ? bytes * at->out->i_dp : 0,
        bytes, task);
    if (state->weights_ready >= 0)
        at->out->tasks[state->weights_ready].slab = (int8_t)i_slab;
    mark_update(at, state->weights_ready);
}

/* What follows a step: the other ranks' parts of the weights, and the way to their home
 * in the host for those that are not new there. */
static void end_update(struct mist_schedule_builder *at, int32_t i_module, int32_t i_slab)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    bool shards_weights = mist_schedule_shards(at, at->stage->shards_weights);
    int64_t shard = mist_schedule_shard_elements(at, slab);
    bool is_gathered = gathers_update(at);

    if (is_gathered) {
        gather_weights(at, i_module, i_slab, -1, state->weights_ready);
        mark_update(at, state->weights_ready);
    }
    if (slab->offloads_weights && (is_gathered || !slab->updates_on_host))
        state->written[0] = swap_out_whole(
            at, MIST_TASK_SWAP_OUT_WEIGHT, i_module, i_slab, state->weights,
            shards_weights ? weight_bytes(at, shard) * at->out->i_dp : 0, state->home[0],
            weight_bytes(at, shards_weights ? shard : slab->n_elements),
            state->weights_ready);
}

void mist_schedule_swap_out_state(struct mist_schedule_builder *at)
{
    const struct mist_schedule_stepped *stepped = &at->stepped;

    if (stepped->buffer >= 0)
        swap_out_whole(
            at, MIST_TASK_SWAP_OUT_OPTIMIZER, stepped->i_module, stepped->i_slab,
            stepped->buffer, 0,
            mist_schedule_slab_of(at, stepped->i_module, stepped->i_slab)->home[2],
            stepped->size_bytes, stepped->after);
    at->stepped = (struct mist_schedule_stepped){.i_module = -1, .buffer = -1};
}

/* The update of a slab whose weights don't live in the host. */
static void update_in_front(struct mist_schedule_builder *at, int32_t i_module,
                            int32_t i_slab)
{
    if (mist_schedule_plan_slab(at, i_module, i_slab)->updates_on_host)
        step_on_host(at, i_module, i_slab);
    else
        step_on_device(at, i_module, i_slab);
    end_update(at, i_module, i_slab);
}

void mist_schedule_add_all_updates(struct mist_schedule_builder *at)
{
    for (int32_t m = 0; m < at->out->n_modules; m++)
        for (int32_t s = 0; s < at->out->storage[m].n_slabs; s++)
            if (!mist_schedule_plan_slab(at, m, s)->is_alias)
                update_in_front(at, m, s);
    mist_schedule_swap_out_state(at);
}

/* ------------------------------------------------------------------------------ fetch */

static bool is_resident(const struct mist_schedule_builder *at,
                        const struct mist_slab *slab)
{
    return !slab->offloads_weights &&
           !mist_schedule_shards(at, at->stage->shards_weights);
}

/* The weights of one slab, ready to compute with; updated first if asked. */
static void fetch_weights(struct mist_schedule_builder *at, int32_t i_module,
                          int32_t i_slab, int32_t micro_batch, bool is_forward,
                          bool updates)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    bool is_gathered = mist_schedule_shards(at, at->stage->shards_weights);
    bool on_host = updates && slab->updates_on_host;

    if (!is_resident(at, slab))
        new_working_weights(at, i_module, i_slab, micro_batch);
    if (on_host)
        step_on_host(at, i_module, i_slab);
    if (slab->offloads_weights)
        swap_in_weights(at, i_module, i_slab, micro_batch, is_forward,
                        updates && (!on_host || gathers_update(at)));
    if (updates && !on_host)
        step_on_device(at, i_module, i_slab);
    if (updates)
        end_update(at, i_module, i_slab);
    if (!is_gathered)
        return;
    gather_weights(at, i_module, i_slab, micro_batch, state->weights_ready);
    if (state->weights_ready >= 0)
        at->out->tasks[state->weights_ready].is_forward = is_forward;
}

/* Gradients so far that live in the host, to add to. */
static void fetch_gradients(struct mist_schedule_builder *at, int32_t i_module,
                            int32_t i_slab, int32_t micro_batch)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    int32_t layer = at->out->modules[i_module];
    size_t cell = mist_schedule_cell(at, i_module * MIST_MAX_SLABS + i_slab, micro_batch);
    bool reduces_each = mist_schedule_reduces_each(at) && !slab->is_alias;
    bool starts_at_home =
        !slab->offloads_gradients &&
        (!reduces_each ||
         (micro_batch == 0 && !mist_schedule_shards(at, at->stage->shards_gradients)));

    state->gradients_ready = -1;
    if (starts_at_home || at->fresh[cell] >= 0)
        return;
    at->fresh[cell] = mist_schedule_add_buffer(
        at, MIST_ARENA_DEVICE, (enum mist_role)(MIST_ROLE_GRADIENTS + i_slab), layer,
        micro_batch, mist_schedule_gradient_bytes(at, slab->n_elements), false);
    if (reduces_each || micro_batch == 0)
        return; /* is overwritten: see mist_schedule_compute() */
    int32_t task = mist_schedule_add_copy(
        at, MIST_TASK_SWAP_IN_GRADIENT, false, layer, micro_batch, state->home[1], 0,
        at->fresh[cell], 0, mist_schedule_gradient_bytes(at, slab->n_elements),
        state->written[1]);
    if (task >= 0)
        at->out->tasks[task].slab = (int8_t)i_slab;
    state->gradients_ready = task;
}

/* Kept activations that went to the host. */
static void fetch_activations(struct mist_schedule_builder *at,
                              const struct mist_schedule_pass *pass)
{
    int32_t k = pass->slot->micro_batch, chunk = pass->slot->chunk;
    size_t cell = mist_schedule_cell(at, pass->i_module, k);
    size_t boundary = mist_schedule_boundary(at, chunk, pass->layer, k);
    const struct mist_layer_layout *layout = mist_schedule_layout_of(at, pass->layer);

    if (at->input_host[boundary] >= 0 && at->input_ready[boundary] < 0) {
        at->activation[boundary] = -1; /* a new one */
        int32_t to = mist_schedule_activation(at, chunk, pass->layer, k);
        at->input_ready[boundary] =
            mist_schedule_add_copy(at, MIST_TASK_SWAP_IN_ACTIVATION, false, pass->layer,
                                   k, at->input_host[boundary], 0, to, 0,
                                   layout->input_bytes, at->input_out[boundary]);
    }
    if (at->swapped_host[cell] >= 0 && at->swapped_ready[cell] < 0) {
        int64_t size = at->out->storage[pass->i_module].saved_bytes[1];
        at->swapped[cell] = mist_schedule_add_buffer(
            at, MIST_ARENA_DEVICE, MIST_ROLE_SAVED_SWAPPED, pass->layer, k, size, false);
        at->swapped_ready[cell] = mist_schedule_add_copy(
            at, MIST_TASK_SWAP_IN_ACTIVATION, false, pass->layer, k,
            at->swapped_host[cell], 0, at->swapped[cell], 0, size, at->swapped_out[cell]);
    }
}

/* Whether the buffer that the pass before worked with serves this one, too. What was
 * brought for a backward does not come when only the loss is computed. */
static bool has_weights(const struct mist_schedule_builder *at, int32_t i_pass,
                        const struct mist_schedule_slab *slab)
{
    return slab->weights_pass >= 0 && slab->weights_pass == i_pass - 1 &&
           (at->passes[i_pass].slot->kind != MIST_SLOT_FORWARD ||
            at->passes[i_pass - 1].slot->kind == MIST_SLOT_FORWARD);
}

/* Fetches the weights of a slab for a pass, unless they are there. */
static void fetch_slab(struct mist_schedule_builder *at, int32_t i_pass, int32_t i_module,
                       int32_t i_slab, bool updates)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    bool is_there = is_resident(at, mist_schedule_plan_slab(at, i_module, i_slab)) ||
                    has_weights(at, i_pass, state);

    if (updates || !is_there)
        fetch_weights(at, i_module, i_slab, pass->slot->micro_batch,
                      pass->slot->kind == MIST_SLOT_FORWARD, updates);
    state->weights_pass = i_pass;
}

void mist_schedule_fetch(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    bool is_forward = pass->slot->kind == MIST_SLOT_FORWARD;
    bool updates = is_forward && pass->slot->micro_batch == 0 &&
                   mist_schedule_interleaves_update(at);
    uint32_t weights, gradients;

    mist_schedule_pass_slabs(at, pass, &weights, &gradients);
    for (int32_t s = 0; s < storage->n_slabs; s++) {
        bool is_needed = updates || (weights >> s & 1);
        if (is_needed && storage->slabs[s].is_alias) /* the embedding's "wte" */
            fetch_slab(at, i_pass, 0, 0, false);
        else if (is_needed)
            fetch_slab(at, i_pass, pass->i_module, s, updates);
    }
    if (!is_forward)
        fetch_activations(at, pass);
}

void mist_schedule_fetch_gradients(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    uint32_t weights, gradients;

    mist_schedule_pass_slabs(at, pass, &weights, &gradients);
    for (int32_t s = 0; s < storage->n_slabs; s++)
        if (gradients >> s & 1)
            fetch_gradients(at, pass->i_module, s, pass->slot->micro_batch);
}
