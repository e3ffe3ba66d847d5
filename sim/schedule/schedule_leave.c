/*
 * What a pass leaves behind: activations and gradients on their way to the host, sums
 * over ranks, and what is computed on the sums. See schedule_internal.h.
 *
 * Gradients are summed over data-parallel ranks once per step, behind the last
 * micro-batch (its own sums first: over the tensor-parallel ranks where each saw a part,
 * with the head's where the embedding is tied), or after every micro-batch; then the sums
 * are added up. Work on a sum, and gradients for the host, wait in a queue until the next
 * pass has been computed, so that what moves has something to run beside.
 */
#include "sim/schedule/schedule_internal.h"

#include <string.h>

enum { FEWEST_PASSES_TO_SWAP = 3 }; /* between forward and backward, to be worth a swap */

/* ------------------------------------------------------------------------ activations */

/*
 * Swaps out what a forward keeps. It is dispatched when the next pass has been, though it
 * waits for its own alone: so its room is not given to that next pass, which would then
 * wait for the copy instead of running beside it.
 */
void mist_schedule_swap_out(struct mist_schedule_builder *at)
{
    if (at->swapping_pass < 0)
        return;
    int32_t i_pass = at->swapping_pass;
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    const struct mist_module_storage *storage = &at->out->storage[pass->i_module];
    int32_t k = pass->slot->micro_batch;
    size_t cell = mist_schedule_cell(at, pass->i_module, k);

    at->swapping_pass = -1;
    if (storage->swaps_input) {
        int64_t size = mist_schedule_layout_of(at, pass->layer)->input_bytes;
        size_t boundary = mist_schedule_boundary(at, pass->slot->chunk, pass->layer, k);
        int32_t host = mist_schedule_add_buffer(at, MIST_ARENA_HOST, MIST_ROLE_INPUT,
                                                pass->layer, k, size, false);
        at->input_host[boundary] = host;
        mist_schedule_add_copy(at, MIST_TASK_SWAP_OUT_ACTIVATION, true, pass->layer, k,
                               at->activation[boundary], 0, host, 0, size);
    }
    if (storage->saved_bytes[MIST_SAVED_SWAPPED] > 0) {
        int64_t size = storage->saved_bytes[MIST_SAVED_SWAPPED];
        int32_t host = mist_schedule_add_buffer(
            at, MIST_ARENA_HOST, MIST_ROLE_SAVED_SWAPPED, pass->layer, k, size, false);
        at->swapped_host[cell] = host;
        mist_schedule_add_copy(at, MIST_TASK_SWAP_OUT_ACTIVATION, true, pass->layer, k,
                               at->saved[MIST_SAVED_SWAPPED][cell], 0, host, 0, size);
    }
}

/* -------------------------------------------------------------------------- gradients */

/* Others look at the norm of all gradients when all are there, and until then compute on.
 * What stays at home has nothing else to settle. */
static bool has_norm_behind(const struct mist_schedule_builder *at,
                            const struct mist_schedule_work *work)
{
    const uint32_t leaves_or_adds_up =
        MIST_IF_SUMS_EACH | MIST_IF_GRADIENTS_AWAY | MIST_IF_HOST_UPDATES;

    return at->plan->job.framework != MIST_FRAMEWORK_OURS &&
           !(work->conditions & leaves_or_adds_up);
}

/* The norms that were left for the end. */
static void add_norms(struct mist_schedule_builder *at)
{
    for (int32_t i = at->out->n_modules * MIST_MAX_SLABS - 1; i >= 0; i--) {
        if (at->slabs[i].summed < 0)
            continue;
        struct mist_schedule_work work = mist_schedule_work_on(
            at, i / MIST_MAX_SLABS, i % MIST_MAX_SLABS, at->slabs[i].summed);
        mist_schedule_add_pieces(at, MIST_MOMENT_SETTLE, &work);
    }
}

void mist_schedule_settle(struct mist_schedule_builder *at, int32_t n)
{
    n = n < 0 ? at->n_settling : n;
    for (int32_t i = 0; i < n; i++) {
        struct mist_schedule_work *work = &at->settling[i];
        if (has_norm_behind(at, work)) {
            mist_schedule_slab_of(at, work->i_module, work->i_slab)->summed =
                work->micro_batch;
            continue;
        }
        mist_schedule_add_pieces(at, MIST_MOMENT_SETTLE, work);
        mist_schedule_hold(at, work->held);
    }
    at->n_settling -= n;
    memmove(at->settling, at->settling + n,
            (size_t)at->n_settling * sizeof *at->settling);
}

/* What follows when a slab's gradients of a micro-batch are complete on this rank. */
static void leave_slab(struct mist_schedule_builder *at, int32_t i_module, int32_t i_slab,
                       int32_t micro_batch)
{
    struct mist_schedule_work work =
        mist_schedule_work_on(at, i_module, i_slab, micro_batch);
    struct mist_schedule_place *places = work.places[MIST_GRADIENTS];
    int32_t fresh = at->fresh[mist_schedule_cell(at, i_module * MIST_MAX_SLABS + i_slab,
                                                 micro_batch)];
    bool sums_each = work.conditions & MIST_IF_SUMS_EACH;
    bool adds_up = sums_each && micro_batch > 0;

    if (fresh >= 0)
        places[MIST_PLACE_WORK] = (struct mist_schedule_place){fresh, 0};
    mist_schedule_add_pieces(at, MIST_MOMENT_SUM, &work);
    if (!adds_up)
        places[MIST_PLACE_SUM] = places[MIST_PLACE_WORK];
    if (!sums_each && !(work.conditions & (MIST_IF_LAST | MIST_IF_GRADIENTS_AWAY)))
        return;
    /* the next pass must not wait for the room that the sum, or the way to the host, still
     * reads */
    work.held = fresh;
    if (at->n_settling == MIST_SCHEDULE_MAX_SETTLING)
        mist_schedule_settle(at, 1);
    at->settling[at->n_settling++] = work;
}

/* Sums over the tensor-parallel ranks gradients of which each saw a part. */
static void reduce_partial(struct mist_schedule_builder *at, int32_t i_module,
                           int32_t micro_batch)
{
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    int32_t layer = at->out->modules[i_module];
    const struct mist_layer_layout *layout = mist_schedule_layout_of(at, layer);
    int64_t elements = 0;

    for (int32_t i = 0; i < layout->n_params; i++)
        elements += layout->params[i].partial_elements;
    if (at->stage->tp == 1 || elements == 0)
        return;
    int32_t task = mist_schedule_add_collective(
        at, MIST_TASK_TP_REDUCE_GRADIENT, MIST_GROUP_TP, layer, micro_batch,
        mist_schedule_gradient_bytes(at, elements));
    for (int32_t s = 0; s < storage->n_slabs; s++)
        if (!storage->slabs[s].is_alias)
            mist_schedule_write(at, task, (enum mist_role)(MIST_ROLE_GRADIENTS + s),
                                mist_schedule_gradients(at, i_module, s, micro_batch));
}

/* Adds the head's gradient to that of the embedding of the same rank, unless it is there. */
static void add_tie(struct mist_schedule_builder *at, int32_t i_module,
                    int32_t micro_batch)
{
    int32_t head = at->out->n_modules - 1;
    const struct mist_module_storage *storage = &at->out->storage[head];

    for (int32_t s = 0; s < storage->n_slabs && i_module == 0; s++) {
        if (!storage->slabs[s].is_alias ||
            mist_piece_joins_embedding(at->plan, &storage->slabs[s]))
            continue;
        int32_t task = mist_schedule_add_task(at, MIST_TASK_TIE_GRADIENT,
                                              MIST_STREAM_COMPUTE, 0, micro_batch);
        mist_schedule_read(at, task, MIST_ROLE_INPUT,
                           mist_schedule_gradients(at, head, s, micro_batch));
        mist_schedule_write(at, task, MIST_ROLE_OUTPUT,
                            mist_schedule_gradients(at, 0, 0, micro_batch));
        if (task < 0)
            return;
        at->out->tasks[task].slab = 0;
        at->out->tasks[task].n_elements = storage->slabs[s].n_elements;
    }
}

/* Slabs by what becomes of gradients that are summed once per step: those that leave the
 * device are summed before they do, of others the sum can be put off. */
enum which { ALL, THAT_LEAVE, THAT_STAY };

static bool has_leaving(const struct mist_module_storage *storage)
{
    bool has = false;

    for (int32_t s = 0; s < storage->n_slabs; s++)
        has = has || storage->slabs[s].offloads_gradients;
    return has;
}

/* Slabs of a module whose gradients of a micro-batch are complete; those that leave first,
 * if there are any. */
static void leave_module(struct mist_schedule_builder *at, int32_t i_module,
                         int32_t micro_batch, enum which which)
{
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    bool is_summed =
        micro_batch == at->plan->n_micro_batches - 1 || mist_schedule_reduces_each(at);

    if (which == THAT_LEAVE && !has_leaving(storage))
        return;
    if (is_summed && !(which == THAT_STAY && has_leaving(storage))) {
        add_tie(at, i_module, micro_batch);
        reduce_partial(at, i_module, micro_batch);
    }
    for (int32_t s = 0; s < storage->n_slabs; s++) {
        const struct mist_slab *slab = &storage->slabs[s];
        bool is_meant = which == ALL || slab->offloads_gradients == (which == THAT_LEAVE);
        if (is_meant && !slab->is_alias && !slab->is_exchanged)
            leave_slab(at, i_module, s, micro_batch);
    }
}

void mist_schedule_leave_tied(struct mist_schedule_builder *at, int32_t micro_batch)
{
    int32_t i_module = at->out->i_stage == 0 ? 0 : at->out->n_modules - 1;

    for (int32_t s = 0; s < at->out->storage[i_module].n_slabs; s++)
        if (at->out->storage[i_module].slabs[s].is_exchanged)
            leave_slab(at, i_module, s, micro_batch);
}

/* Whether sums are put off until behind the last pass, where they can be. */
static bool puts_off(const struct mist_schedule_builder *at)
{
    return mist_schedule_sums_behind(&at->plan->job, at->out->i_stage) &&
           !mist_schedule_reduces_each(at);
}

void mist_schedule_leave(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    int32_t k = pass->slot->micro_batch;

    if (pass->slot->kind == MIST_SLOT_FORWARD &&
        at->backward_pass[mist_schedule_cell(at, pass->i_module, k)] - i_pass >
            FEWEST_PASSES_TO_SWAP)
        at->swapping_pass = i_pass;
    if (!pass->completes_gradients)
        return;
    leave_module(at, pass->i_module, k, puts_off(at) ? THAT_LEAVE : ALL);
}

void mist_schedule_reduce_rest(struct mist_schedule_builder *at)
{
    bool is_behind = puts_off(at);

    if (is_behind) /* the first stage has no transfer behind its last pass */
        at->collectives_behind =
            at->out->i_stage > 0 ? at->last_transfer : at->last_compute;
    for (int32_t m = at->out->n_modules - 1; is_behind && m >= 0; m--) {
        int32_t n_before = at->n_settling;
        leave_module(at, m, at->plan->n_micro_batches - 1, THAT_STAY);
        mist_schedule_settle(at, n_before < at->n_settling ? n_before : at->n_settling);
    }
    mist_schedule_settle(at, -1);
    add_norms(at);
}
