/*
 * Transfers between neighbouring stages, and the exchange of a tied weight's gradient.
 * See schedule_internal.h.
 *
 * Both ends of a boundary hold the same tokens of a micro-batch, those of one
 * context-parallel place, cut by their own dp and, under sequence parallelism, tp, so each pair of ranks whose cuts overlap moves one
 * slice of rows. Where the sending stage has the same rows on several tensor-parallel
 * ranks, they take turns over the receivers. All ranks dispatch transfers in one global
 * order of (time, boundary, direction), so they meet in order; receives run ahead beside
 * the computation before them.
 */
#include "core/order.h"
#include "sim/schedule/schedule_internal.h"

#include "core/memory.h" /* mist_grow */

#include <stdlib.h>

/* [is_gradient][is_send] */
static const enum mist_task_kind transfer_kinds[2][2] = {
    {MIST_TASK_RECV_ACTIVATION, MIST_TASK_SEND_ACTIVATION},
    {MIST_TASK_RECV_GRADIENT, MIST_TASK_SEND_GRADIENT},
};

/* Between two stages, as ranks of one of them see it. */
struct boundary {
    const struct mist_plan *plan;
    struct mist_rank_mesh mine, theirs;
    bool is_send, is_tie;
};

static struct boundary boundary_of(const struct mist_plan *plan,
                                   const struct mist_rank_mesh *mesh, int32_t i_other,
                                   enum mist_task_kind kind)
{
    return (struct boundary){plan, *mesh, mist_rank_mesh_make(plan, i_other),
                             mist_task_kind_sends(kind), kind == MIST_TASK_TIE_GRADIENT};
}

static struct boundary other_side(const struct boundary *at)
{
    return (struct boundary){at->plan, at->theirs, at->mine, !at->is_send, at->is_tie};
}

int64_t mist_schedule_first_row(const struct mist_plan *plan,
                                const struct mist_rank_mesh *mesh, int32_t rank,
                                int64_t *n)
{
    const struct mist_stage_plan *stage = &plan->stages[mesh->i_stage];
    int64_t n_whole = mist_plan_rank_tokens(plan, mesh->i_stage);
    int64_t first = n_whole * mist_rank_mesh_at(mesh, MIST_AXIS_DP, rank);

    *n = n_whole;
    if (!stage->is_sequence_parallel)
        return first;
    *n /= stage->tp;
    return first + *n * mist_rank_mesh_at(mesh, MIST_AXIS_TP, rank);
}

/* Whether a rank sends its rows to a receiver of the other stage. */
static bool is_pair(const struct boundary *at, int32_t mine, int32_t theirs)
{
    const struct mist_rank_mesh *from = at->is_send ? &at->mine : &at->theirs;
    int32_t i_mine = mist_rank_mesh_at(&at->mine, MIST_AXIS_TP, mine);
    int32_t i_theirs = mist_rank_mesh_at(&at->theirs, MIST_AXIS_TP, theirs);
    int32_t tp = from->size[MIST_AXIS_TP];

    return at->plan->stages[from->i_stage].is_sequence_parallel ||
           i_mine % tp == i_theirs % tp;
}

/* A rank's slice after the one given (peer -1: the first), ascending by peer. */
static bool next_slice(const struct boundary *at, int32_t rank, struct mist_slice *slice)
{
    const struct mist_rank_mesh *theirs = &at->theirs;
    int64_t n, n_theirs, n_whole = mist_plan_rank_tokens(at->plan, theirs->i_stage);
    int64_t first = mist_schedule_first_row(at->plan, &at->mine, rank, &n);
    int32_t peer = slice->peer + 1, n_alike = theirs->stride[MIST_AXIS_DP];

    if (at->is_tie) {
        slice->peer = theirs->first_rank + rank - at->mine.first_rank;
        return peer == 0;
    }
    if (peer == 0)
        peer = theirs->first_rank + (int32_t)(first / n_whole) * n_alike;
    for (; peer < theirs->first_rank + theirs->n_ranks; peer++) {
        if (mist_rank_mesh_at(theirs, MIST_AXIS_CP, peer) !=
            mist_rank_mesh_at(&at->mine, MIST_AXIS_CP, rank))
            continue;
        int64_t start = mist_schedule_first_row(at->plan, theirs, peer, &n_theirs);
        int64_t end = start + n_theirs < first + n ? start + n_theirs : first + n;
        if (start >= first + n)
            return false;
        start = start > first ? start : first;
        if (start >= end || !is_pair(at, rank, peer))
            continue;
        *slice = (struct mist_slice){peer, start - first, end - start};
        return true;
    }
    return false;
}

int32_t mist_schedule_slices(const struct mist_plan *plan,
                             const struct mist_rank_mesh *mesh, int32_t rank,
                             int32_t i_other, enum mist_task_kind kind,
                             struct mist_slice *out)
{
    struct boundary at = boundary_of(plan, mesh, i_other, kind);
    int32_t n = 0;

    for (struct mist_slice slice = {.peer = -1}; next_slice(&at, rank, &slice);)
        out[n++] = slice;
    return n;
}

/* Pairs over a boundary that exchange through the links of a node at once. */
static int32_t n_at_once(const struct boundary *at, int32_t node, int32_t per_node)
{
    const struct boundary back = other_side(at);
    int32_t rank, n_here = 0, n_elsewhere = 0;
    int32_t end = mist_rank_mesh_on_node(&at->mine, node, per_node, &rank);

    for (; rank < end; rank++) {
        bool has_any = false;
        for (struct mist_slice to = {.peer = -1}; next_slice(at, rank, &to);) {
            struct mist_slice from = {.peer = -1}; /* the first on this node */
            if (to.peer / per_node == node)
                continue;
            has_any = true;
            while (next_slice(&back, to.peer, &from) && from.peer / per_node != node)
                ;
            n_elsewhere += from.peer == rank;
        }
        n_here += has_any;
    }
    return n_here < n_elsewhere ? n_here : n_elsewhere;
}

struct mist_group_shape mist_schedule_group_shape(const struct mist_plan *plan,
                                                  const struct mist_rank_mesh *mesh,
                                                  int32_t rank, enum mist_group group,
                                                  enum mist_task_kind kind, int32_t peer,
                                                  int32_t per_node)
{
    if (group != MIST_GROUP_PEER)
        return mist_rank_mesh_shape(mesh, group, rank, per_node);
    if (rank / per_node == peer / per_node)
        return (struct mist_group_shape){1, 2, 1};
    const struct boundary here =
        boundary_of(plan, mesh, mist_plan_stage_of(plan, peer), kind);
    const struct boundary there = other_side(&here);
    int32_t n = n_at_once(&here, rank / per_node, per_node);
    int32_t n_there = n_at_once(&there, peer / per_node, per_node);
    return (struct mist_group_shape){2, 1, n > n_there ? n : n_there};
}

static void add_listed(struct mist_schedule_builder *at,
                       const struct mist_schedule_transfer *transfer)
{
    if (!MIST_APPEND(at->transfers, at->transfers_capacity, at->n_transfers, *transfer))
        at->is_out_of_memory = true;
}

int64_t mist_schedule_row_bytes(const struct mist_plan *plan)
{
    return (int64_t)plan->model.hidden * mist_dtype_weight_bytes(plan->job.dtype);
}

/* Slices of one transfer in rank order. */
static int compare_transfers(const void *a_void, const void *b_void)
{
    const struct mist_schedule_transfer *a = a_void, *b = b_void;

    int order = mist_pipeline_compare_transfers(&a->of, &b->of);

    return order != 0 ? order : MIST_COMPARE(a->peer, b->peer);
}

/* The slab, and its module, of a tied weight that another stage has, too. */
static int32_t find_exchanged(const struct mist_schedule_builder *at, int32_t *i_module)
{
    int32_t s = 0;

    *i_module = at->out->i_stage == 0 ? 0 : at->out->n_modules - 1;
    while (!at->out->storage[*i_module].slabs[s].is_exchanged)
        s++;
    return s;
}

/* The exchange of a tied weight's gradient: when the embedding's is complete. */
static void list_ties(struct mist_schedule_builder *at)
{
    int32_t i_last = mist_plan_head_stage(at->plan), i_stage = at->out->i_stage;
    struct mist_slice slice;
    int32_t i_module;

    if (!mist_schedule_has_tied_stages(at->plan) || (i_stage > 0 && i_stage < i_last))
        return;
    int32_t s = find_exchanged(at, &i_module);
    bool sums_each =
        mist_piece_conditions(at->plan, i_stage, &at->out->storage[i_module].slabs[s]) &
        MIST_IF_SUMS_EACH;
    mist_schedule_slices(at->plan, &at->out->mesh, at->out->rank,
                         i_stage == 0 ? i_last : 0, MIST_TASK_TIE_GRADIENT, &slice);
    for (int32_t i = 0; i < at->order.n_slots; i++) {
        const struct mist_slot *slot = &at->order.slots[i]; /* of stage 0 */
        bool completes =
            slot->kind == MIST_SLOT_BACKWARD || slot->kind == MIST_SLOT_BACKWARD_WEIGHT;
        if (!completes || slot->chunk != 0 ||
            (!sums_each && slot->micro_batch != at->plan->n_micro_batches - 1))
            continue;
        struct mist_schedule_transfer tie = {
            .of = {.time = slot->end,
                   .boundary = at->n_chunks * at->plan->n_stages,
                   .micro_batch = slot->micro_batch},
            .is_tie = true,
            .is_send = i_stage == 0,
            .peer = slice.peer,
        };
        add_listed(at, &tie);
    }
}

/* The transfers of all micro-batches over one boundary in one direction, if it is between
 * this stage and another. end_slot: when each is ready. */
static void list_boundary(struct mist_schedule_builder *at, int32_t i_boundary,
                          bool is_gradient, const int32_t *end_slot)
{
    int32_t i_before = mist_plan_stage_of_virtual(at->plan, i_boundary);
    int32_t i_behind = mist_plan_stage_of_virtual(at->plan, i_boundary + 1);
    bool is_upstream = i_before == at->out->i_stage, is_send = is_upstream != is_gradient;
    struct mist_slice slice = {.peer = -1};

    if (i_before == i_behind || (!is_upstream && i_behind != at->out->i_stage))
        return;
    struct boundary boundary =
        boundary_of(at->plan, &at->out->mesh, is_upstream ? i_behind : i_before,
                    transfer_kinds[is_gradient][is_send]);

    while (next_slice(&boundary, at->out->rank, &slice))
        for (int32_t i = 0; i < at->plan->n_micro_batches; i++)
            add_listed(at, &(struct mist_schedule_transfer){
                               .of = {end_slot[i], i_boundary, i, is_gradient},
                               .is_send = is_send,
                               .is_upstream = is_upstream,
                               .peer = slice.peer,
                               .first_row = slice.first_row,
                               .n_rows = slice.n_rows,
                           });
}

void mist_schedule_list_transfers(struct mist_schedule_builder *at)
{
    int32_t n = at->plan->n_micro_batches, n_stages = at->plan->n_stages;

    for (int32_t i = 0; i < n_stages * at->n_chunks - 1; i++) {
        list_boundary(at, i, false, &at->order.end_forward[i * n]);
        list_boundary(at, i, true, &at->order.end_backward[(i + 1) * n]);
    }
    list_ties(at);
    if (at->n_transfers > 0)
        qsort(at->transfers, (size_t)at->n_transfers, sizeof *at->transfers,
              compare_transfers);
}

/* Of what one rank sends on to the next at the same time, the lowest bits of the tags
 * differ: they are those of the virtual stages that send. */
static void set_peer(struct mist_schedule_builder *at, int32_t task,
                     const struct mist_schedule_transfer *transfer)
{
    int32_t i_from = transfer->of.boundary + transfer->of.is_gradient;

    at->out->tasks[task].group = MIST_GROUP_PEER;
    at->out->tasks[task].peer = transfer->peer;
    at->out->tasks[task].tag = 2 * (transfer->of.boundary * at->plan->n_micro_batches +
                                    transfer->of.micro_batch) +
                               i_from % 2;
}

/* Each holder of a tied weight gets the other's gradient and adds it. */
static void add_tie(struct mist_schedule_builder *at,
                    const struct mist_schedule_transfer *tie)
{
    int32_t i_module, s = find_exchanged(at, &i_module), k = tie->of.micro_batch;
    const struct mist_module_storage *storage = &at->out->storage[i_module];
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
    bool is_upstream = transfer->is_upstream;
    int32_t chunk = (transfer->of.boundary + !is_upstream) / at->plan->n_stages;
    int32_t k = transfer->of.micro_batch;
    /* the module behind the boundary: its input is what crosses */
    int32_t layer = is_upstream ? at->chunk_last[chunk] + 1 : at->chunk_first[chunk];
    int32_t buffer = transfer->of.is_gradient
                         ? mist_schedule_activation_gradient(at, chunk, layer, k)
                         : mist_schedule_activation(at, chunk, layer, k);
    int64_t row_bytes = mist_schedule_row_bytes(at->plan);
    int32_t task = mist_schedule_add_task(
        at, transfer_kinds[transfer->of.is_gradient][transfer->is_send],
        transfer->is_send ? MIST_STREAM_SEND : MIST_STREAM_RECEIVE, layer, k);

    if (task < 0)
        return;
    at->last_transfer = task;
    struct mist_task *added = &at->out->tasks[task];
    set_peer(at, task, transfer);
    added->bytes = transfer->n_rows * row_bytes;
    *(transfer->is_send ? &added->from_offset_bytes : &added->to_offset_bytes) =
        transfer->first_row * row_bytes;
    added->is_forward = !transfer->of.is_gradient;
    if (transfer->is_send)
        mist_schedule_read(at, task, MIST_ROLE_INPUT, buffer);
    else
        mist_schedule_write(at, task, MIST_ROLE_OUTPUT, buffer);
}

/* A slot has two ticks at most, so behind an exchange that falls into it no transfer is
 * due either. */
static bool is_due(const struct mist_schedule_transfer *transfer,
                   const struct mist_slot *slot)
{
    return !slot || (transfer->is_tie ? transfer->of.time <= slot->start
                                      : transfer->of.time < slot->end);
}

void mist_schedule_add_due_transfers(struct mist_schedule_builder *at,
                                     const struct mist_slot *slot)
{
    while (at->next_transfer < at->n_transfers &&
           is_due(&at->transfers[at->next_transfer], slot)) {
        const struct mist_schedule_transfer *transfer =
            &at->transfers[at->next_transfer++];
        if (transfer->is_tie)
            add_tie(at, transfer);
        else
            add_transfer(at, transfer);
    }
}
