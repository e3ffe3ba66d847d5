/*
 * What a pass leaves behind: activations and gradients on their way to the host, sums
 * over ranks, and what is computed on the sums. See schedule_internal.h.
 *
 * Gradients are summed over data-parallel ranks once per step, behind the last
 * micro-batch (its own sums first: over the tensor-parallel ranks where each saw a part,
 * with the head's where the embedding is tied), or after every micro-batch; then the sums
 * are added up. Work on a sum waits in a queue until the next pass has been computed, so
 * that the communication has something to run beside.
 */
#include "sim/schedule/schedule_internal.h"

#include <string.h>

enum { FEWEST_PASSES_TO_SWAP = 3 }; /* between forward and backward, to be worth a swap */

/* ------------------------------------------------------------------------ activations */

/* Waits for the tasks that ended the pass being swapped. */
static void wait_for_pass(struct mist_schedule_builder *at, int32_t task)
{
    mist_schedule_depend(at, task, at->swapping_after[0]);
    mist_schedule_depend(at, task, at->swapping_after[1]);
}

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
        at->input_out[boundary] =
            mist_schedule_add_copy(at, MIST_TASK_SWAP_OUT_ACTIVATION, true, pass->layer,
                                   k, at->activation[boundary], 0, host, 0, size, -1);
        wait_for_pass(at, at->input_out[boundary]);
    }
    if (storage->saved_bytes[1] > 0) {
        int64_t size = storage->saved_bytes[1];
        int32_t host = mist_schedule_add_buffer(
            at, MIST_ARENA_HOST, MIST_ROLE_SAVED_SWAPPED, pass->layer, k, size, false);
        at->swapped_host[cell] = host;
        at->swapped_out[cell] =
            mist_schedule_add_copy(at, MIST_TASK_SWAP_OUT_ACTIVATION, true, pass->layer,
                                   k, at->swapped[cell], 0, host, 0, size, -1);
        wait_for_pass(at, at->swapped_out[cell]);
    }
}

/* -------------------------------------------------------------------------- gradients */

/* Elements of a slab that this rank is responsible for once they are summed. */
static int64_t range_first(const struct mist_schedule_builder *at,
                           const struct mist_slab *slab)
{
    return mist_schedule_shards(at, at->stage->shards_optimizer)
               ? at->out->i_dp * mist_schedule_shard_elements(at, slab)
               : 0;
}

static int64_t range_elements(const struct mist_schedule_builder *at,
                              const struct mist_slab *slab)
{
    return mist_schedule_shards(at, at->stage->shards_optimizer)
               ? mist_schedule_shard_elements(at, slab)
               : slab->n_elements;
}

/* First element of the slab that the home of its gradients has. */
static int64_t home_first(const struct mist_schedule_builder *at,
                          const struct mist_slab *slab)
{
    return mist_schedule_shards(at, at->stage->shards_gradients) ? range_first(at, slab)
                                                                 : 0;
}

/* Swaps elements first .. first + n - 1 of gradients to their home in the host, or to
 * where the host applies them; the buffer begins with element buffer_first of
 * the slab. */
static void swap_out_gradients(struct mist_schedule_builder *at, int32_t i_module,
                               int32_t i_slab, int32_t micro_batch, int32_t buffer,
                               int64_t buffer_first, int64_t first, int64_t n,
                               int32_t after)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    struct mist_schedule_slab *state = mist_schedule_slab_of(at, i_module, i_slab);
    bool is_home = slab->offloads_gradients;
    int64_t to_first = is_home ? home_first(at, slab) : first;
    int32_t task = mist_schedule_add_copy(
        at, MIST_TASK_SWAP_OUT_GRADIENT, true, at->out->modules[i_module], micro_batch,
        buffer, mist_schedule_gradient_bytes(at, first - buffer_first),
        is_home ? state->home[1] : state->host[1],
        mist_schedule_gradient_bytes(at, first - to_first),
        mist_schedule_gradient_bytes(at, n), after);

    if (task >= 0)
        at->out->tasks[task].slab = (int8_t)i_slab;
    mist_schedule_depend(at, task, at->last_compute);
    state->written[1] = task;
}

/* Adds a micro-batch's sum to what there is; returns the task. */
static int32_t accumulate(struct mist_schedule_builder *at,
                          const struct mist_schedule_settling *entry)
{
    const struct mist_slab *slab =
        mist_schedule_plan_slab(at, entry->i_module, entry->i_slab);
    int64_t first = range_first(at, slab);
    int32_t task =
        mist_schedule_add_task(at, MIST_TASK_ACCUMULATE_GRADIENT, MIST_STREAM_COMPUTE,
                               at->out->modules[entry->i_module], entry->micro_batch);

    if (task < 0)
        return -1;
    at->out->tasks[task].slab = (int8_t)entry->i_slab;
    at->out->tasks[task].n_elements = range_elements(at, slab);
    at->out->tasks[task].from_offset_bytes = mist_schedule_gradient_bytes(at, first);
    at->out->tasks[task].to_offset_bytes =
        mist_schedule_gradient_bytes(at, first - entry->sum_first);
    mist_schedule_use(at, task, MIST_ROLE_INPUT, entry->gradients);
    mist_schedule_use(at, task, MIST_ROLE_OUTPUT, entry->sum);
    return task;
}

/* Sum of squares of this rank's shard of the finished gradients. */
static int32_t add_norm(struct mist_schedule_builder *at,
                        const struct mist_schedule_settling *entry, int32_t buffer,
                        int64_t buffer_first)
{
    const struct mist_slab *slab =
        mist_schedule_plan_slab(at, entry->i_module, entry->i_slab);
    int64_t shard = mist_schedule_shard_elements(at, slab);
    int32_t task =
        mist_schedule_add_task(at, MIST_TASK_GRADIENT_NORM, MIST_STREAM_COMPUTE,
                               at->out->modules[entry->i_module], entry->micro_batch);

    if (task < 0)
        return -1;
    at->out->tasks[task].slab = (int8_t)entry->i_slab;
    at->out->tasks[task].n_elements = shard;
    at->out->tasks[task].from_offset_bytes =
        mist_schedule_gradient_bytes(at, at->out->i_dp * shard - buffer_first);
    mist_schedule_use(at, task, (enum mist_role)(MIST_ROLE_GRADIENTS + entry->i_slab),
                      buffer);
    return task;
}

static void settle_one(struct mist_schedule_builder *at,
                       const struct mist_schedule_settling *entry)
{
    const struct mist_slab *slab =
        mist_schedule_plan_slab(at, entry->i_module, entry->i_slab);
    int32_t buffer = entry->gradients;
    int64_t buffer_first = entry->gradients_first;
    bool is_last = entry->micro_batch == at->plan->n_micro_batches - 1;

    if (entry->sum >= 0) {
        int32_t task = accumulate(at, entry);
        mist_schedule_depend(at, task, entry->after[0]);
        mist_schedule_depend(at, task, entry->after[1]);
        buffer = entry->sum;
        buffer_first = entry->sum_first;
    }
    if (is_last) {
        int32_t task = add_norm(at, entry, buffer, buffer_first);
        mist_schedule_depend(at, task, entry->after[0]);
    }
    if (slab->offloads_gradients || (slab->updates_on_host && is_last))
        swap_out_gradients(at, entry->i_module, entry->i_slab, entry->micro_batch, buffer,
                           buffer_first, range_first(at, slab), range_elements(at, slab),
                           entry->after[0]);
}

void mist_schedule_settle(struct mist_schedule_builder *at, int32_t n)
{
    n = n < 0 ? at->n_settling : n;
    for (int32_t i = 0; i < n; i++)
        settle_one(at, &at->settling[i]);
    at->n_settling -= n;
    memmove(at->settling, at->settling + n,
            (size_t)at->n_settling * sizeof *at->settling);
}

/* The sum over data-parallel ranks of a slab's gradients. *moved: the shard's sum is at
 * home now. */
static int32_t reduce(struct mist_schedule_builder *at, int32_t i_module, int32_t i_slab,
                      int32_t micro_batch, int32_t gradients, const int32_t after[2],
                      bool *moved)
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);

    int32_t task = mist_schedule_add_collective(
        at, MIST_TASK_REDUCE_GRADIENT, MIST_GROUP_DP, at->out->modules[i_module],
        micro_batch, mist_schedule_gradient_bytes(at, slab->n_elements), after[0]);
    mist_schedule_depend(at, task, after[1]);
    mist_schedule_use(at, task, (enum mist_role)(MIST_ROLE_GRADIENTS + i_slab),
                      gradients);
    if (task >= 0)
        at->out->tasks[task].slab = (int8_t)i_slab;
    if (mist_schedule_shards(at, at->stage->shards_gradients) && micro_batch == 0 &&
        !slab->offloads_gradients) {
        *moved = true;
        mist_schedule_use(at, task, MIST_ROLE_OUTPUT,
                          mist_schedule_slab_of(at, i_module, i_slab)->home[1]);
    }
    return task;
}

/* The sum so far, where a micro-batch's is to be added: brought from the host
 * if there. */
static void bring_sum(struct mist_schedule_builder *at,
                      struct mist_schedule_settling *entry)
{
    const struct mist_slab *slab =
        mist_schedule_plan_slab(at, entry->i_module, entry->i_slab);
    struct mist_schedule_slab *state =
        mist_schedule_slab_of(at, entry->i_module, entry->i_slab);
    int32_t layer = at->out->modules[entry->i_module];
    int64_t first = range_first(at, slab), n = range_elements(at, slab);

    entry->sum = state->home[1];
    entry->sum_first = home_first(at, slab);
    if (!slab->offloads_gradients)
        return;
    entry->sum = mist_schedule_add_buffer(
        at, MIST_ARENA_DEVICE, (enum mist_role)(MIST_ROLE_GRADIENTS + entry->i_slab),
        layer, entry->micro_batch, mist_schedule_gradient_bytes(at, n), false);
    entry->sum_first = first;
    entry->after[1] = mist_schedule_add_copy(
        at, MIST_TASK_SWAP_IN_GRADIENT, false, layer, entry->micro_batch, state->home[1],
        mist_schedule_gradient_bytes(at, first - home_first(at, slab)), entry->sum, 0,
        mist_schedule_gradient_bytes(at, n), state->written[1]);
    if (entry->after[1] >= 0)
        at->out->tasks[entry->after[1]].slab = (int8_t)entry->i_slab;
}

/* What follows when a slab's gradients of a micro-batch are complete on this rank. */
static void leave_slab(struct mist_schedule_builder *at, int32_t i_module, int32_t i_slab,
                       int32_t micro_batch, const int32_t after[2])
{
    const struct mist_slab *slab = mist_schedule_plan_slab(at, i_module, i_slab);
    bool is_last = micro_batch == at->plan->n_micro_batches - 1;
    bool reduces_each = mist_schedule_reduces_each(at), moved = false;
    struct mist_schedule_settling entry = {
        .i_module = i_module,
        .i_slab = i_slab,
        .micro_batch = micro_batch,
        .gradients = mist_schedule_gradients(at, i_module, i_slab, micro_batch),
        .sum = -1,
        /* where nothing is reduced: what completed them, communication if any */
        .after = {after[1] >= 0 ? after[1] : after[0], -1},
    };

    if (at->stage->dp > 1 && (is_last || reduces_each))
        entry.after[0] =
            reduce(at, i_module, i_slab, micro_batch, entry.gradients, after, &moved);
    if (moved) {
        entry.gradients = mist_schedule_slab_of(at, i_module, i_slab)->home[1];
        entry.gradients_first = home_first(at, slab);
    }
    if (reduces_each && micro_batch > 0)
        bring_sum(at, &entry);
    if (entry.sum >= 0 || is_last) {
        if (at->n_settling == MIST_SCHEDULE_MAX_SETTLING)
            mist_schedule_settle(at, 1);
        at->settling[at->n_settling++] = entry;
    } else if (slab->offloads_gradients) {
        swap_out_gradients(at, i_module, i_slab, micro_batch, entry.gradients, 0,
                           reduces_each ? range_first(at, slab) : 0,
                           reduces_each ? range_elements(at, slab) : slab->n_elements,
                           entry.after[0]);
    }
}

/* Sums over the tensor-parallel ranks gradients of which each saw a part. */
static int32_t reduce_partial(struct mist_schedule_builder *at, int32_t i_module,
                              int32_t micro_batch)
{
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    int32_t layer = at->out->modules[i_module];
    const struct mist_layer_layout *layout = mist_schedule_layout_of(at, layer);
    int64_t elements = 0;

    for (int32_t i = 0; i < layout->n_params; i++)
        elements += layout->param_partial_elements[i];
    if (at->stage->tp == 1 || elements == 0)
        return -1;
    int32_t task = mist_schedule_add_collective(
        at, MIST_TASK_TP_REDUCE_GRADIENT, MIST_GROUP_TP, layer, micro_batch,
        mist_schedule_gradient_bytes(at, elements), at->last_compute);
    for (int32_t s = 0; s < storage->n_slabs; s++)
        if (!storage->slabs[s].is_alias)
            mist_schedule_use(at, task, (enum mist_role)(MIST_ROLE_GRADIENTS + s),
                              mist_schedule_gradients(at, i_module, s, micro_batch));
    return task;
}

/* Adds the head's gradient to that of the embedding of the same rank. */
static void add_tie(struct mist_schedule_builder *at, int32_t i_module,
                    int32_t micro_batch)
{
    int32_t head = at->out->n_modules - 1;
    const struct mist_module_storage *storage = &at->out->storage[head];

    for (int32_t s = 0; s < storage->n_slabs && i_module == 0; s++) {
        if (!storage->slabs[s].is_alias)
            continue;
        int32_t task = mist_schedule_add_task(at, MIST_TASK_TIE_GRADIENT,
                                              MIST_STREAM_COMPUTE, 0, micro_batch);
        mist_schedule_use(at, task, MIST_ROLE_INPUT,
                          mist_schedule_slab_of(at, head, s)->home[1]);
        mist_schedule_use(at, task, MIST_ROLE_OUTPUT,
                          mist_schedule_gradients(at, 0, 0, micro_batch));
        if (task < 0)
            return;
        at->out->tasks[task].slab = 0;
        at->out->tasks[task].n_elements = storage->slabs[s].n_elements;
        mist_schedule_slab_of(at, head, s)->gradients_begin = -1;
    }
}

/* Whether a slab is a tied weight that another stage has, too. */
static bool is_exchanged(const struct mist_schedule_builder *at, int32_t i_module,
                         int32_t i_slab)
{
    enum mist_layer_kind kind = mist_schedule_kind_of(at, at->out->modules[i_module]);
    const struct mist_layer_layout *layout = &at->out->layouts[kind];
    const struct mist_module_storage *storage = &at->out->storage[i_module];

    if (!mist_schedule_has_tied_stages(at->plan))
        return false;
    if (kind == MIST_LAYER_EMBEDDING)
        return i_slab == 0;
    for (int32_t i = 0; i < layout->n_params; i++)
        if (layout->param_is_tied[i] && storage->param_slab[i] == i_slab)
            return true;
    return false;
}

/* All slabs of a module whose gradients of a micro-batch are complete. */
static void leave_module(struct mist_schedule_builder *at, int32_t i_module,
                         int32_t micro_batch)
{
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    bool is_summed =
        micro_batch == at->plan->n_micro_batches - 1 || mist_schedule_reduces_each(at);

    if (is_summed)
        add_tie(at, i_module, micro_batch);
    int32_t after[2] = {at->last_compute,
                        is_summed ? reduce_partial(at, i_module, micro_batch) : -1};
    for (int32_t s = 0; s < storage->n_slabs; s++)
        if (!storage->slabs[s].is_alias && !is_exchanged(at, i_module, s))
            leave_slab(at, i_module, s, micro_batch, after);
}

void mist_schedule_leave_tied(struct mist_schedule_builder *at, int32_t micro_batch,
                              int32_t after)
{
    int32_t i_module = at->out->i_stage == 0 ? 0 : at->out->n_modules - 1;
    const int32_t waits[2] = {after, -1};

    for (int32_t s = 0; s < at->out->storage[i_module].n_slabs; s++)
        if (is_exchanged(at, i_module, s))
            leave_slab(at, i_module, s, micro_batch, waits);
}

/*
 * Where the reduction goes. The first stage has no pause behind its micro-batches: there
 * it is taken apart by module and runs beside the last backward. A later stage pauses
 * after its last gradient has left: there the whole reduction comes behind the last
 * transfer and does not stand in the way of the pipeline, unless gradients are not to
 * stay on the device that long.
 */
static bool interleaves_reduction(const struct mist_schedule_builder *at)
{
    return at->out->i_stage == 0 || at->stage->offload_gradients > 0 ||
           mist_schedule_reduces_each(at);
}

void mist_schedule_leave(struct mist_schedule_builder *at, int32_t i_pass)
{
    const struct mist_schedule_pass *pass = &at->passes[i_pass];
    int32_t k = pass->slot->micro_batch;

    if (pass->slot->kind == MIST_SLOT_FORWARD &&
        at->backward_pass[mist_schedule_cell(at, pass->i_module, k)] - i_pass >
            FEWEST_PASSES_TO_SWAP) {
        at->swapping_pass = i_pass;
        at->swapping_after[0] = at->last_compute;
        at->swapping_after[1] = at->unawaited;
    }
    if (!pass->completes_gradients)
        return;
    at->gradient_task[mist_schedule_cell(at, pass->i_module, k)] = at->last_compute;
    if (interleaves_reduction(at))
        leave_module(at, pass->i_module, k);
}

void mist_schedule_reduce_rest(struct mist_schedule_builder *at)
{
    if (interleaves_reduction(at)) {
        mist_schedule_settle(at, -1);
        return;
    }
    for (int32_t m = at->out->n_modules - 1; m >= 0; m--) {
        int32_t n_before = at->n_settling;
        leave_module(at, m, at->plan->n_micro_batches - 1);
        mist_schedule_settle(at, n_before < at->n_settling ? n_before : at->n_settling);
    }
    mist_schedule_settle(at, -1);
}
