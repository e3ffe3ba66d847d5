/*
 * What a pass needs from elsewhere, and the optimizer step. See schedule_internal.h.
 *
 * Parameters that are cut over data-parallel ranks (ZeRO-3) or live in the host are put
 * together in a buffer that lives for the pass; neighbouring passes of one module share
 * it. An update on the device works on the home of its slab where that is on the device;
 * where it is in the host, on the buffer of the forward that follows, or in front of all
 * forwards on one of its own. An update on the host works on what is there, and its result
 * comes to the device before the forward.
 */
#include "sim/schedule/schedule_internal.h"

/* ------------------------------------------------------------------------- persistent */

/* A place that lasts over iterations, for an extent of a slab. */
static struct mist_schedule_place add_lasting(struct mist_schedule_builder *at,
                                              enum mist_buffer_arena arena,
                                              int32_t i_module, int32_t i_slab,
                                              enum mist_quantity quantity,
                                              enum mist_extent extent)
{
    struct mist_schedule_place place;
    int64_t n = mist_schedule_elements(at, mist_schedule_plan_slab(at, i_module, i_slab),
                                       quantity, extent, &place.first);

    place.buffer =
        mist_schedule_add_buffer(at, arena, mist_schedule_quantity_role(quantity, i_slab),
                                 at->out->modules[i_module], -1,
                                 mist_schedule_quantity_bytes(at, quantity, n), true);
    if (place.buffer >= 0)
        at->out->buffers[place.buffer].slab = (int8_t)i_slab;
    return place;
}

static void add_homes(struct mist_schedule_builder *at, int32_t i_module, int32_t i_slab)
{
    static const enum mist_quantity order[] = {MIST_WEIGHTS, MIST_STATE, MIST_GRADIENTS};
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    const bool is_away[] = {slab->offloads_weights, slab->offloads_gradients,
                            slab->offloads_state};
    bool has_none = mist_piece_joins_embedding(at->plan, slab);

    for (int i = 0; i < MIST_N_QUANTITIES; i++) {
        enum mist_quantity q = order[i];
        if (slab->is_alias && (q != MIST_GRADIENTS || has_none))
            continue;
        state->home[q] = state->host[q] =
            add_lasting(at, is_away[q] ? MIST_ARENA_HOST : MIST_ARENA_DEVICE, i_module,
                        i_slab, q, MIST_EXTENT_HOME);
    }
    if (!is_away[MIST_WEIGHTS] && !mist_schedule_shards(at, at->stage->zero == 3))
        state->weights = state->home[MIST_WEIGHTS];
    for (int q = 0; q < MIST_N_QUANTITIES; q++)
        if (slab->updates_on_host && !is_away[q])
            state->host[q] = add_lasting(at, MIST_ARENA_HOST, i_module, i_slab,
                                         (enum mist_quantity)q, MIST_EXTENT_UPDATE);
}

/* Copies the iteration's token ids to the device, where the stage needs any. */
static void add_load(struct mist_schedule_builder *at)
{
    if (at->tokens < 0 && at->targets < 0)
        return;
    int32_t task = mist_schedule_add_task(at, MIST_TASK_LOAD_BATCH,
                                          MIST_STREAM_HOST_TO_DEVICE, -1, -1);
    mist_schedule_write(at, task, MIST_ROLE_TOKENS, at->tokens);
    mist_schedule_write(at, task, MIST_ROLE_TARGETS, at->targets);
    if (task >= 0 && !at->is_out_of_memory) {
        int32_t ids[2] = {at->tokens, at->targets};
        for (int i = 0; i < 2; i++)
            if (ids[i] >= 0)
                at->out->tasks[task].bytes += at->out->buffers[ids[i]].size_bytes;
        at->out->tasks[task].is_forward = true;
    }
}

void mist_schedule_add_persistent(struct mist_schedule_builder *at)
{
    int64_t batch_bytes = (int64_t)4 * at->plan->n_micro_batches *
                          mist_plan_rank_tokens(at->plan, at->out->i_stage);
    int32_t last = at->out->modules[at->out->n_modules - 1];
    int64_t constant_bytes = at->out->layouts[MIST_LAYER_BLOCK].constant_bytes;

    for (int32_t m = 0; m < at->out->n_modules; m++)
        for (int32_t i = 0; i < at->out->storage[m].n_slabs; i++)
            add_homes(at, m, i);
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

void mist_schedule_swap_out_state(struct mist_schedule_builder *at)
{
    if (at->stepped.i_module >= 0)
        mist_schedule_add_pieces(at, MIST_MOMENT_STEPPED, &at->stepped);
    at->stepped.i_module = -1;
}

void mist_schedule_add_all_updates(struct mist_schedule_builder *at)
{
    int32_t leaving = -1; /* weights that may still be on their way to the host */

    for (int32_t m = 0; m < at->out->n_modules; m++)
        for (int32_t s = 0; s < at->out->storage[m].n_slabs; s++) {
            const struct mist_slab *slab = mist_schedule_plan_slab(at, m, s);
            struct mist_schedule_work work = mist_schedule_work_on(at, m, s, -1);
            work.conditions |= MIST_IF_STEPS;
            if (slab->is_alias)
                continue;
            mist_schedule_add_pieces(at, MIST_MOMENT_WEIGHTS, &work);
            if (!slab->offloads_weights)
                continue;
            mist_schedule_hold(at, leaving); /* the step has had other room */
            leaving = work.places[MIST_WEIGHTS][MIST_PLACE_WORK].buffer;
        }
    mist_schedule_swap_out_state(at);
}

/* ------------------------------------------------------------------------------ fetch */

static bool is_resident(const struct mist_schedule_builder *at,
                        const struct mist_slab *slab)
{
    return !slab->offloads_weights && !mist_schedule_shards(at, at->stage->zero == 3);
}

/* The weights of one slab, ready to compute with; updated first if asked. */
static void fetch_weights(struct mist_schedule_builder *at, int32_t i_module,
                          int32_t i_slab, int32_t micro_batch, bool is_forward,
                          bool updates)
{
    struct mist_schedule_work work =
        mist_schedule_work_on(at, i_module, i_slab, micro_batch);

    work.is_forward = is_forward;
    work.conditions |= MIST_IF_BRINGS | (updates ? MIST_IF_STEPS : 0);
    mist_schedule_add_pieces(at, MIST_MOMENT_WEIGHTS, &work);
    mist_schedule_slab_of(at, i_module, i_slab)->weights =
        work.places[MIST_WEIGHTS][MIST_PLACE_WORK];
}

/* Room for gradients of a micro-batch that do not begin at home; those so far that live
 * in the host are brought there, to add to. */
static void fetch_gradients(struct mist_schedule_builder *at, int32_t i_module,
                            int32_t i_slab, int32_t micro_batch)
{
    int32_t i = mist_schedule_gradient_slab(at, i_module, i_slab);
    size_t cell = mist_schedule_cell(at, i, micro_batch);
    struct mist_schedule_work work =
        mist_schedule_work_on(at, i / MIST_MAX_SLABS, i % MIST_MAX_SLABS, micro_batch);
    const struct mist_schedule_place *places = work.places[MIST_GRADIENTS];

    if (at->fresh[cell] >= 0)
        return;
    mist_schedule_add_pieces(at, MIST_MOMENT_GRADIENTS, &work);
    if (places[MIST_PLACE_WORK].buffer != places[MIST_PLACE_HOME].buffer)
        at->fresh[cell] = places[MIST_PLACE_WORK].buffer;
}

/* Kept activations that went to the host. */
static void fetch_activations(struct mist_schedule_builder *at,
                              const struct mist_schedule_pass *pass)
{
    int32_t k = pass->slot->micro_batch, chunk = pass->slot->chunk;
    size_t cell = mist_schedule_cell(at, pass->i_module, k);
    size_t boundary = mist_schedule_boundary(at, chunk, pass->layer, k);
    const struct mist_layer_layout *layout = mist_schedule_layout_of(at, pass->layer);

    if (at->input_host[boundary] >= 0) {
        at->activation[boundary] = -1; /* a new one */
        int32_t to = mist_schedule_activation(at, chunk, pass->layer, k);
        mist_schedule_add_copy(at, MIST_TASK_SWAP_IN_ACTIVATION, false, pass->layer, k,
                               at->input_host[boundary], 0, to, 0, layout->input_bytes);
        at->input_host[boundary] = -1;
    }
    if (at->swapped_host[cell] >= 0) {
        int64_t size = at->out->storage[pass->i_module].saved_bytes[MIST_SAVED_SWAPPED];
        int32_t to = mist_schedule_add_buffer(
            at, MIST_ARENA_DEVICE, MIST_ROLE_SAVED_SWAPPED, pass->layer, k, size, false);
        at->saved[MIST_SAVED_SWAPPED][cell] = to;
        mist_schedule_add_copy(at, MIST_TASK_SWAP_IN_ACTIVATION, false, pass->layer, k,
                               at->swapped_host[cell], 0, to, 0, size);
        at->swapped_host[cell] = -1;
    }
}

/* Whether the buffer that the pass before worked with serves this one, too. */
static bool has_weights(int32_t i_pass, const struct mist_schedule_slab *slab)
{
    return slab->weights_pass >= 0 && slab->weights_pass == i_pass - 1;
}

/* Whether weights for a pass may be there for a forward as well: among it and the passes
 * of the same module right behind it. They come when only the loss is computed, too. */
static bool serves_forward(const struct mist_schedule_builder *at, int32_t i_pass)
{
    int32_t i_module = at->passes[i_pass].i_module;

    for (; i_pass < at->n_passes && at->passes[i_pass].i_module == i_module; i_pass++)
        if (at->passes[i_pass].slot->kind == MIST_SLOT_FORWARD)
            return true;
    return false;
}

/* Fetches the weights of a slab for a pass, unless they are there. */
static void fetch_slab(struct mist_schedule_builder *at, int32_t i_pass, int32_t i_module,
                       int32_t i_slab, bool updates)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    bool is_there = is_resident(at, mist_schedule_plan_slab(at, i_module, i_slab)) ||
                    has_weights(i_pass, state);

    if (updates || !is_there)
        fetch_weights(at, i_module, i_slab, pass->slot->micro_batch,
                      serves_forward(at, i_pass), updates);
    state->weights_pass = i_pass;
}

void mist_schedule_fetch(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    bool is_forward = pass->slot->kind == MIST_SLOT_FORWARD;
    bool updates = is_forward && pass->slot->micro_batch == 0 &&
                   !mist_schedule_steps_in_front(&at->plan->job, at->out->i_stage);
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

/* Whether gradients of a module are still to leave for the host. */
static bool are_leaving(const struct mist_schedule_builder *at, int32_t i_module)
{
    for (int32_t i = 0; i < at->n_settling; i++)
        if (at->settling[i].i_module == i_module &&
            !(at->settling[i].conditions & MIST_IF_SUMS_EACH))
            return true;
    return false;
}

void mist_schedule_fetch_gradients(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    uint32_t weights, gradients;

    if (are_leaving(at, pass->i_module))
        mist_schedule_settle(at, -1);
    mist_schedule_pass_slabs(at, pass, &weights, &gradients);
    for (int32_t s = 0; s < storage->n_slabs; s++)
        if (gradients >> s & 1)
            fetch_gradients(at, pass->i_module, s, pass->slot->micro_batch);
}
