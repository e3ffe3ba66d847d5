/*
 * Transfers between neighbouring stages, and the exchange of a tied weight's gradient.
 * See schedule_internal.h.
 *
 * Both ends of a boundary hold the same tokens of a micro-batch, cut by their own dp and,
 * under sequence parallelism, tp, so each pair of ranks whose cuts overlap moves one
 * slice of rows. Where the sending stage has the same rows on several tensor-parallel
 * ranks, they take turns over the receivers. All ranks dispatch transfers in one global
 * order of (time, boundary, direction), so they meet in order; receives run ahead beside
 * the computation before them.
 */
#include "sim/schedule/schedule_internal.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>

/* [is_gradient][is_send] */
static const enum mist_task_kind transfer_kinds[2][2] = {
    {MIST_TASK_RECV_ACTIVATION, MIST_TASK_SEND_ACTIVATION},
    {MIST_TASK_RECV_GRADIENT, MIST_TASK_SEND_GRADIENT},
};

/* Rows of a micro-batch that a rank of a stage holds. */
struct rows {
    int64_t first, n;
};

static struct rows rows_of(const struct mist_plan *plan, int32_t i_stage, int32_t i_dp,
                           int32_t i_tp)
{
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    int64_t n = (int64_t)stage->micro_batch * plan->job.seq_len;

    if (!stage->is_sequence_parallel)
        return (struct rows){i_dp * n, n};
    return (struct rows){i_dp * n + i_tp * (n / stage->tp), n / stage->tp};
}

/* Whether a rank sends its rows to a receiver of the other stage. */
static bool is_pair(const struct mist_stage_plan *sender, int32_t sender_i_tp,
                    int32_t receiver_i_tp)
{
    return sender->is_sequence_parallel || sender_i_tp == receiver_i_tp % sender->tp;
}

static void add_listed(struct mist_schedule_builder *at,
                       const struct mist_schedule_transfer *transfer)
{
    void *grown = mist_grow(at->transfers, &at->transfers_capacity,
                            (size_t)at->n_transfers + 1, sizeof *at->transfers);

    if (!grown) {
        at->is_out_of_memory = true;
        return;
    }
    at->transfers = grown;
    at->transfers[at->n_transfers++] = *transfer;
}

int32_t mist_schedule_slices(const struct mist_plan *plan, int32_t i_stage, int32_t i_dp,
                             int32_t i_tp, enum mist_task_kind kind,
                             struct mist_slice *out)
{
    bool is_upstream =
        kind == MIST_TASK_SEND_ACTIVATION || kind == MIST_TASK_RECV_GRADIENT;
    bool is_send = kind == MIST_TASK_SEND_ACTIVATION || kind == MIST_TASK_SEND_GRADIENT;
    int32_t i_other = (i_stage + (is_upstream ? 1 : plan->n_stages - 1)) % plan->n_stages;
    const struct mist_stage_plan *stage = &plan->stages[i_stage];
    const struct mist_stage_plan *other = &plan->stages[i_other];
    struct rows mine = rows_of(plan, i_stage, i_dp, i_tp);
    int64_t n_theirs = (int64_t)other->micro_batch * plan->job.seq_len; /* of a j_dp */
    int32_t first_j = (int32_t)(mine.first / n_theirs) * other->tp;
    int32_t last_j = (int32_t)((mine.first + mine.n - 1) / n_theirs + 1) * other->tp;
    int32_t n = 0;

    for (int32_t j = first_j; j < last_j; j++) {
        int32_t j_tp = j % other->tp;
        struct rows theirs = rows_of(plan, i_other, j / other->tp, j_tp);
        int64_t start = mine.first > theirs.first ? mine.first : theirs.first;
        int64_t end = mine.first + mine.n;
        if (end > theirs.first + theirs.n)
            end = theirs.first + theirs.n;
        if (start < end &&
            (is_send ? is_pair(stage, i_tp, j_tp) : is_pair(other, j_tp, i_tp)))
            out[n++] = (struct mist_slice){
                .peer = mist_plan_first_rank(plan, i_other) + j,
                .first_row = start - mine.first,
                .n_rows = end - start,
            };
    }
    return n;
}

int32_t mist_schedule_tied_peer(const struct mist_plan *plan, int32_t i_stage,
                                int32_t i_dp, int32_t i_tp)
{
    return mist_plan_first_rank(plan, i_stage == 0 ? plan->n_stages - 1 : 0) +
           i_dp * plan->stages[i_stage].tp + i_tp;
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

/* The exchange of a tied weight's gradient: when the embedding's is complete. */
static void list_ties(struct mist_schedule_builder *at)
{
    int32_t i_last = at->plan->n_stages - 1, i_stage = at->out->i_stage;
    bool reduces_each = mist_schedule_reduces_each(at);

    if (!mist_schedule_has_tied_stages(at->plan) || (i_stage > 0 && i_stage < i_last))
        return;
    for (int32_t i = 0; i < at->order.n_slots; i++) {
        const struct mist_slot *slot = &at->order.slots[i]; /* of stage 0 */
        bool completes =
            slot->kind == MIST_SLOT_BACKWARD || slot->kind == MIST_SLOT_BACKWARD_WEIGHT;
        if (!completes || slot->chunk != 0 ||
            (!reduces_each && slot->micro_batch != at->plan->n_micro_batches - 1))
            continue;
        struct mist_schedule_transfer tie = {
            .time = slot->end,
            .boundary = at->n_chunks * at->plan->n_stages,
            .is_tie = true,
            .is_send = i_stage == 0,
            .micro_batch = slot->micro_batch,
            .peer =
                mist_schedule_tied_peer(at->plan, i_stage, at->out->i_dp, at->out->i_tp),
        };
        add_listed(at, &tie);
    }
}

/* The transfers of all micro-batches over one boundary in one direction. end_slot: when
 * each is ready. slices: room. */
static void list_boundary(struct mist_schedule_builder *at, int32_t boundary,
                          bool is_gradient, const int32_t *end_slot,
                          struct mist_slice *slices)
{
    bool is_upstream = boundary % at->plan->n_stages == at->out->i_stage;
    bool is_send = is_upstream != is_gradient;
    int32_t n =
        mist_schedule_slices(at->plan, at->out->i_stage, at->out->i_dp, at->out->i_tp,
                             transfer_kinds[is_gradient][is_send], slices);

    for (int32_t i = 0; i < at->plan->n_micro_batches; i++)
        for (int32_t k = 0; k < n; k++)
            add_listed(at, &(struct mist_schedule_transfer){
                               .time = end_slot[i],
                               .boundary = boundary,
                               .is_gradient = is_gradient,
                               .is_send = is_send,
                               .micro_batch = i,
                               .peer = slices[k].peer,
                               .first_row = slices[k].first_row,
                               .n_rows = slices[k].n_rows,
                           });
}

void mist_schedule_list_transfers(struct mist_schedule_builder *at)
{
    int32_t n = at->plan->n_micro_batches, n_stages = at->plan->n_stages;
    struct mist_slice *slices =
        malloc((size_t)mist_plan_n_ranks(at->plan) * sizeof *slices);

    at->is_out_of_memory |= !slices;
    for (int32_t i = 0; slices && n_stages > 1 && i < n_stages * at->n_chunks - 1; i++) {
        if (i % n_stages != at->out->i_stage && (i + 1) % n_stages != at->out->i_stage)
            continue;
        list_boundary(at, i, false, &at->order.end_forward[i * n], slices);
        list_boundary(at, i, true, &at->order.end_backward[(i + 1) * n], slices);
    }
    free(slices);
    list_ties(at);
    if (at->n_transfers > 0)
        qsort(at->transfers, (size_t)at->n_transfers, sizeof *at->transfers,
              compare_transfers);
}

static void set_peer(struct mist_schedule_builder *at, int32_t task,
                     const struct mist_schedule_transfer *transfer)
{
    at->out->tasks[task].group = MIST_GROUP_PEER;
    at->out->tasks[task].peer = transfer->peer;
    at->out->tasks[task].tag =
        2 * (transfer->boundary * at->plan->n_micro_batches + transfer->micro_batch) +
        transfer->is_gradient;
}

/* Each holder of a tied weight gets the other's gradient and adds it. */
static void add_tie(struct mist_schedule_builder *at,
                    const struct mist_schedule_transfer *tie)
{
    int32_t i_module = at->out->i_stage == 0 ? 0 : at->out->n_modules - 1;
    const struct mist_layer_layout *layout =
        mist_schedule_layout_of(at, at->out->modules[i_module]);
    const struct mist_module_storage *storage = &at->out->storage[i_module];
    int32_t s = 0, k = tie->micro_batch;

    for (int32_t i = 0; i < layout->n_params && i_module > 0; i++)
        if (layout->params[i].is_tied)
            s = storage->param_slab[i];
    int32_t task = mist_schedule_add_task(at, MIST_TASK_TIE_GRADIENT, MIST_STREAM_GPU_GPU,
                                          at->out->modules[i_module], k);
    if (task < 0)
        return;
    set_peer(at, task, tie);
    at->out->tasks[task].slab = (int8_t)s;
    at->out->tasks[task].n_elements = storage->slabs[s].n_elements;
    at->out->tasks[task].bytes =
        mist_schedule_gradient_bytes(at, storage->slabs[s].n_elements);
    mist_schedule_write(at, task, MIST_ROLE_OUTPUT,
                        mist_schedule_gradients(at, i_module, s, k));
    mist_schedule_leave_tied(at, k);
}

static void add_transfer(struct mist_schedule_builder *at,
                         const struct mist_schedule_transfer *transfer)
{
    bool is_upstream = transfer->boundary % at->plan->n_stages == at->out->i_stage;
    int32_t chunk = (transfer->boundary + !is_upstream) / at->plan->n_stages;
    int32_t k = transfer->micro_batch;
    /* the module behind the boundary: its input is what crosses */
    int32_t layer = is_upstream ? at->chunk_last[chunk] + 1 : at->chunk_first[chunk];
    int32_t buffer = transfer->is_gradient
                         ? mist_schedule_activation_gradient(at, chunk, layer, k)
                         : mist_schedule_activation(at, chunk, layer, k);
    int64_t row_bytes =
        (int64_t)at->plan->model.hidden * mist_dtype_weight_bytes(at->plan->job.dtype);
    int32_t task = mist_schedule_add_task(
        at, transfer_kinds[transfer->is_gradient][transfer->is_send], MIST_STREAM_GPU_GPU,
        layer, k);

    if (task < 0)
        return;
    struct mist_task *added = &at->out->tasks[task];
    set_peer(at, task, transfer);
    added->bytes = transfer->n_rows * row_bytes;
    *(transfer->is_send ? &added->from_offset_bytes : &added->to_offset_bytes) =
        transfer->first_row * row_bytes;
    added->is_forward = !transfer->is_gradient;
    if (transfer->is_send)
        mist_schedule_read(at, task, MIST_ROLE_INPUT, buffer);
    else
        mist_schedule_write(at, task, MIST_ROLE_OUTPUT, buffer);
}

void mist_schedule_add_transfers_before(struct mist_schedule_builder *at,
                                        int64_t numerator, int64_t denominator)
{
    while (at->next_transfer < at->n_transfers &&
           at->transfers[at->next_transfer].time * denominator < numerator) {
        const struct mist_schedule_transfer *transfer =
            &at->transfers[at->next_transfer++];
        if (transfer->is_tie)
            add_tie(at, transfer);
        else
            add_transfer(at, transfer);
    }
}
