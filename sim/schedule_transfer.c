/*
 * Transfers between neighbouring stages. See schedule_internal.h.
 *
 * Both ends of a boundary hold the same samples of a micro-batch, cut by their own dp, so
 * each pair of ranks whose cuts overlap moves one slice. All ranks dispatch transfers in
 * one global order of (time, boundary, direction), so they meet in order; receives run
 * ahead beside the computation before them.
 */
#include "sim/schedule_internal.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>

/* Adds the transfers of one micro-batch over one boundary in one direction,
 * this rank's ends. */
static void list_slices(struct mist_schedule_builder *at, int32_t boundary,
                        bool is_gradient, int32_t micro_batch, int32_t time)
{
    int32_t i_stage = at->out->i_stage;
    int32_t i_other = boundary == i_stage ? boundary + 1 : boundary;
    const struct mist_stage_plan *other = &at->plan->stages[i_other];
    int64_t mine = (int64_t)at->out->i_dp * at->stage->micro_batch;

    for (int32_t i = 0; i < other->dp; i++) {
        int64_t theirs = (int64_t)i * other->micro_batch;
        int64_t start = mine > theirs ? mine : theirs;
        int64_t end = mine + at->stage->micro_batch;
        if (end > theirs + other->micro_batch)
            end = theirs + other->micro_batch;
        if (start >= end)
            continue;
        void *grown = mist_grow(at->transfers, &at->transfers_capacity,
                                (size_t)at->n_transfers + 1, sizeof *at->transfers);
        if (!grown) {
            at->is_out_of_memory = true;
            return;
        }
        at->transfers = grown;
        at->transfers[at->n_transfers++] = (struct mist_schedule_transfer){
            .time = time,
            .boundary = boundary,
            .is_gradient = is_gradient,
            .is_send = is_gradient == (boundary != i_stage),
            .micro_batch = micro_batch,
            .peer = mist_plan_first_rank(at->plan, i_other) + i * other->tp,
            .offset_samples = start - mine,
            .n_samples = end - start,
        };
    }
}

/*
 * One order for all ranks: by time, then boundary, then direction; slices in rank order.
 */
static int compare_transfers(const void *a_void, const void *b_void)
{
    const struct mist_schedule_transfer *a = a_void, *b = b_void;

    if (a->time != b->time)
        return a->time < b->time ? -1 : 1;
    if (a->boundary != b->boundary)
        return a->boundary < b->boundary ? -1 : 1;
    if (a->is_gradient != b->is_gradient)
        return a->is_gradient ? 1 : -1;
    if (a->micro_batch != b->micro_batch)
        return a->micro_batch < b->micro_batch ? -1 : 1;
    return (a->peer > b->peer) - (a->peer < b->peer);
}

void mist_schedule_list_transfers(struct mist_schedule_builder *at)
{
    int32_t n = at->plan->n_micro_batches, i_stage = at->out->i_stage;

    for (int32_t boundary = i_stage - 1; boundary <= i_stage; boundary++) {
        if (boundary < 0 || boundary >= at->plan->n_stages - 1)
            continue;
        for (int32_t i = 0; i < n; i++) {
            list_slices(at, boundary, false, i, at->order.end_forward[boundary * n + i]);
            list_slices(at, boundary, true, i,
                        at->order.end_backward[(boundary + 1) * n + i]);
        }
    }
    if (at->n_transfers > 0)
        qsort(at->transfers, (size_t)at->n_transfers, sizeof *at->transfers,
              compare_transfers);
}

static void add_transfer(struct mist_schedule_builder *at,
                         const struct mist_schedule_transfer *transfer)
{
    static const enum mist_task_kind kinds[2][2] = {
        {MIST_TASK_RECV_ACTIVATION, MIST_TASK_SEND_ACTIVATION},
        {MIST_TASK_RECV_GRADIENT, MIST_TASK_SEND_GRADIENT},
    };
    /* the module behind the boundary: its input is what crosses */
    int32_t layer = transfer->boundary == at->out->i_stage ? at->last + 1 : at->first;
    int32_t k = transfer->micro_batch;
    int32_t buffer = transfer->is_gradient
                         ? mist_schedule_activation_gradient(at, layer, k)
                         : mist_schedule_activation(at, layer, k);
    int64_t sample_bytes =
        at->out->layouts[MIST_LAYER_BLOCK].input_bytes / at->stage->micro_batch;
    int32_t task =
        mist_schedule_add_task(at, kinds[transfer->is_gradient][transfer->is_send],
                               MIST_STREAM_GPU_GPU, layer, k);

    if (task < 0)
        return;
    struct mist_task *added = &at->out->tasks[task];
    added->group = MIST_GROUP_PEER;
    added->peer = transfer->peer;
    added->tag = 2 * k + transfer->is_gradient;
    added->bytes = transfer->n_samples * sample_bytes;
    added->slice_offset_bytes = transfer->offset_samples * sample_bytes;
    mist_schedule_use(at, task, transfer->is_send ? MIST_ROLE_INPUT : MIST_ROLE_OUTPUT,
                      buffer);
    if (!transfer->is_send) {
        at->produced_by[transfer->is_gradient * at->plan->n_micro_batches + k] = task;
        return;
    }
    mist_schedule_depend(
        at, task, at->made_by[transfer->is_gradient * at->plan->n_micro_batches + k]);
}

/* Dispatches the transfers with a logical time before the given one. */
void mist_schedule_add_transfers_before(struct mist_schedule_builder *at, int32_t time)
{
    while (at->next_transfer < at->n_transfers &&
           at->transfers[at->next_transfer].time < time)
        add_transfer(at, &at->transfers[at->next_transfer++]);
}
