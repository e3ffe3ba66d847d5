/* Runs the slots of all stages and the transfers between them. See pass_replay.h. */
#include "sim/closed_form/pass_replay.h"

#include "core/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a stage has done so far. */
struct stage {
    int32_t next;              /* slot */
    double computed_s;         /* its computation has ended */
    double sent_s, received_s; /* its transfers have */
    double on_host_s;          /* steps of its chunks so far */
    double left_s;             /* of sums behind its last slot so far */
    double complete_s;         /* first gradients to be put off are; 0: not yet */
};

struct run {
    const struct mist_pipeline_order *order;
    const struct mist_pass_times *times;
    double stretch; /* of a transfer beside computation */
    double lost;    /* seconds of computation beside one second of it */
    struct stage *stages;
    double *held_s;  /* [virtual stage] end of the first forward at the earliest */
    double *input_s; /* [virtual stage][micro-batch] of a forward; infinite: not there */
    double *gradient_s; /* of a backward */
    double *forward_s;  /* end of a forward, of a backward */
    double *backward_s;
    struct mist_pipeline_transfer *transfers; /* in order */
    size_t n_transfers;
};

static size_t cell_of(const struct run *at, int32_t i_virtual, int32_t micro_batch)
{
    return (size_t)i_virtual * (size_t)at->order->n_micro_batches + (size_t)micro_batch;
}

static int32_t stage_of(const struct mist_pipeline_order *order, int32_t i_virtual)
{
    return mist_pipeline_stage(order->schedule, order->n_stages, i_virtual);
}

/* Whether a virtual stage and the next one are on one stage. */
static bool hands_on(const struct mist_pipeline_order *order, int32_t i_virtual)
{
    return stage_of(order, i_virtual) == stage_of(order, i_virtual + 1);
}

/* -------------------------------------------------------------------------- transfers */

MIST_COMPARATOR_OF(compare_transfers, struct mist_pipeline_transfer,
                   mist_pipeline_compare_transfers(a, b))

static void list_transfers(struct run *at)
{
    const struct mist_pipeline_order *order = at->order;
    struct mist_pipeline_transfer *next = at->transfers;

    for (int32_t i = 0; i < order->n_chunks * order->n_stages - 1; i++)
        for (int32_t k = 0; k < order->n_micro_batches && !hands_on(order, i); k++) {
            int32_t forward = order->end_forward[cell_of(at, i, k)];
            int32_t backward = order->end_backward[cell_of(at, i + 1, k)];
            *next++ = (struct mist_pipeline_transfer){forward, i, k, false};
            *next++ = (struct mist_pipeline_transfer){backward, i, k, true};
        }
    at->n_transfers = (size_t)(next - at->transfers);
    qsort(at->transfers, at->n_transfers, sizeof *at->transfers, compare_transfers);
}

/* ------------------------------------------------------------------------------ slots */

static double slot_s(const struct mist_pass_times *times, const struct mist_slot *slot,
                     int32_t n_micro_batches)
{
    bool takes_step = slot->micro_batch == 0 && !times->is_ahead;
    bool sums = slot->micro_batch == n_micro_batches - 1;

    switch (slot->kind) {
    case MIST_SLOT_FORWARD:
        return times->forward_s + (takes_step ? times->first_s : 0);
    case MIST_SLOT_BACKWARD:
        return times->backward_s + (sums ? times->last_s : 0);
    case MIST_SLOT_BACKWARD_INPUT:
        return times->input_s;
    default:
        return times->weight_s + (sums ? times->last_weight_s : 0);
    }
}

/* Whether a slot leaves sums of gradients. */
static bool leaves_sums(const struct mist_slot *slot)
{
    return slot->kind == MIST_SLOT_BACKWARD || slot->kind == MIST_SLOT_BACKWARD_WEIGHT;
}

/* Whether it is the last one that adds to gradients. */
static bool completes(const struct run *at, const struct mist_slot *slot)
{
    return leaves_sums(slot) && slot->micro_batch == at->order->n_micro_batches - 1;
}

/*
 * Where a slot does not follow on what a stable micro-batch has it follow on: what the weights
 * of its first pass make the slot before longer, unless the chunk turns round and its last
 * pass had them. The embedding's come in any case, and so do all with the optimizer step.
 */
static double brings_s(const struct run *at, const struct mist_slot *before,
                       const struct mist_slot *slot, int32_t i_virtual)
{
    bool is_forward = slot->kind == MIST_SLOT_FORWARD;
    bool turns = before->chunk == slot->chunk &&
                 before->kind != MIST_SLOT_BACKWARD_WEIGHT &&
                 (before->kind == MIST_SLOT_FORWARD) != is_forward;

    return turns || (is_forward && i_virtual == 0)
               ? 0
               : at->times[i_virtual].brings_s[before->kind];
}

/* And the sums beside its first pass, which a forward has with it. */
static double sums_s(const struct run *at, const struct mist_slot *before,
                     const struct mist_slot *slot, int32_t i_virtual)
{
    bool has_sums = before && leaves_sums(before),
         counts = slot->kind == MIST_SLOT_FORWARD;

    return (has_sums - counts) * at->times[i_virtual].sums_s[slot->kind];
}

/* Begins a slot of a stage, whose input is there then. */
static void begin(const struct run *at, struct stage *stage, const struct mist_slot *slot,
                  int32_t i_virtual, double ready_s)
{
    const struct mist_slot *before = stage->next > 0 ? slot - 1 : NULL;
    bool steps = slot->kind == MIST_SLOT_FORWARD && slot->micro_batch == 0 &&
                 !at->times[i_virtual].is_ahead;
    bool follows = slot->kind != MIST_SLOT_BACKWARD_WEIGHT && !steps;

    stage->computed_s += stage->left_s * at->lost;
    stage->left_s = 0;
    if (before && follows)
        stage->computed_s += brings_s(at, before, slot, i_virtual);
    double idle_s = fmax(0, ready_s - stage->computed_s);
    stage->computed_s += idle_s - fmin(idle_s, at->times[i_virtual].waits_s[slot->kind]);
    if (follows)
        stage->computed_s += sums_s(at, before, slot, i_virtual);
}

/* Runs the slots of a stage as far as their inputs have come. */
static void advance(struct run *at, int32_t i_stage)
{
    const struct mist_pipeline_order *order = at->order;
    const struct mist_slot *slots =
        order->slots + (size_t)i_stage * (size_t)order->n_slots;
    struct stage *stage = &at->stages[i_stage];

    for (; stage->next < order->n_slots; stage->next++) {
        const struct mist_slot *slot = &slots[stage->next];
        int32_t i_virtual =
            mist_pipeline_virtual(order->schedule, order->n_stages, i_stage, slot->chunk);
        bool is_last = i_virtual == order->n_chunks * order->n_stages - 1;
        size_t cell = cell_of(at, i_virtual, slot->micro_batch);
        bool is_forward = slot->kind == MIST_SLOT_FORWARD;
        double ready_s = slot->kind == MIST_SLOT_BACKWARD_WEIGHT ? 0
                         : is_forward                            ? at->input_s[cell]
                                                                 : at->gradient_s[cell];
        if (isinf(ready_s))
            return;
        begin(at, stage, slot, i_virtual, ready_s);
        if (stage->complete_s == 0 && completes(at, slot))
            stage->complete_s = stage->computed_s + at->times[i_virtual].weight_s /
                                                        at->times[i_virtual].n_layers;
        stage->computed_s += slot_s(&at->times[i_virtual], slot, order->n_micro_batches);
        if (completes(at, slot))
            stage->left_s = at->times[i_virtual].left_s;
        if (is_forward && slot->micro_batch == 0)
            stage->computed_s = fmax(stage->computed_s, at->held_s[i_virtual]);
        if (is_forward)
            at->forward_s[cell] = stage->computed_s;
        else if (slot->kind != MIST_SLOT_BACKWARD_WEIGHT)
            at->backward_s[cell] = stage->computed_s;
        if (is_forward && is_last)
            at->gradient_s[cell] = stage->computed_s; /* the loss */
        else if (is_forward && hands_on(order, i_virtual))
            at->input_s[cell + (size_t)order->n_micro_batches] = stage->computed_s;
        else if (!is_forward && slot->kind != MIST_SLOT_BACKWARD_WEIGHT &&
                 i_virtual > 0 && hands_on(order, i_virtual - 1))
            at->gradient_s[cell - (size_t)order->n_micro_batches] = stage->computed_s;
    }
}

/* Moves one output or gradient to the neighbour. */
static void move(struct run *at, const struct mist_pipeline_transfer *transfer)
{
    int32_t i = transfer->boundary, k = transfer->micro_batch;
    int32_t from = transfer->is_gradient ? i + 1 : i;
    int32_t to = transfer->is_gradient ? i : i + 1;
    const struct mist_pass_times *times = &at->times[from];
    int32_t i_from = stage_of(at->order, from), i_to = stage_of(at->order, to);
    struct stage *stages[2] = {&at->stages[i_from], &at->stages[i_to]};
    double alone_s =
        transfer->is_gradient ? times->send_backward_s : times->send_forward_s;

    advance(at, i_from);
    advance(at, i_to);
    double ready_s =
        (transfer->is_gradient ? at->backward_s : at->forward_s)[cell_of(at, from, k)];
    double start_s = fmax(ready_s, fmax(stages[0]->sent_s, stages[1]->received_s));
    bool is_beside = start_s < stages[0]->computed_s || start_s < stages[1]->computed_s;
    double end_s = start_s + alone_s * (is_beside ? at->stretch : 1);
    stages[0]->sent_s = stages[1]->received_s = end_s;
    for (int e = 0; e < 2; e++)
        if (start_s < stages[e]->computed_s)
            stages[e]->computed_s += (end_s - start_s) * at->lost;
    (transfer->is_gradient ? at->gradient_s : at->input_s)[cell_of(at, to, k)] = end_s;
}

/* Computation and communication beside one another. */
static double bundle_s(const struct run *at, double compute_s, double moved_s)
{
    double both_s = fmin(compute_s / (1 - at->lost), moved_s * at->stretch);

    return compute_s + moved_s + both_s * (at->lost - 1 / at->stretch);
}

/* When a stage has done all that it does by itself. Later stages sum what they put off behind
 * their last transfer, beside the second parts that are left, as it is complete. */
static double ends_s(const struct run *at, int32_t i_stage)
{
    const struct mist_pipeline_order *order = at->order;
    const struct stage *stage = &at->stages[i_stage];
    const struct mist_pass_times *times = NULL;
    double moved_s = fmax(stage->sent_s, stage->received_s), behind_s = 0;

    for (int32_t c = order->n_chunks - 1; c >= 0; c--) {
        times = &at->times[mist_pipeline_virtual(order->schedule, order->n_stages,
                                                 i_stage, c)];
        behind_s += times->behind_s;
    }
    double start_s = fmax(moved_s, stage->complete_s);
    if (i_stage == 0 || !times->is_ahead || start_s >= stage->computed_s)
        return fmax(stage->computed_s, moved_s) + behind_s + stage->left_s;
    double rest_s = stage->computed_s - start_s;
    return stage->left_s + fmax(start_s + bundle_s(at, rest_s, behind_s),
                                stage->computed_s + times->behind_s / times->n_layers);
}

static double run(struct run *at)
{
    const struct mist_pipeline_order *order = at->order;
    double end_s = 0;

    for (int32_t k = 0; k < order->n_micro_batches; k++)
        at->input_s[k] = 0;
    for (int32_t i = 0; i < order->n_chunks * order->n_stages; i++) {
        struct stage *stage = &at->stages[stage_of(order, i)];
        stage->computed_s += at->times[i].is_ahead ? at->times[i].first_s : 0;
        at->held_s[i] = stage->on_host_s + at->times[i].held_s;
        stage->on_host_s += at->times[i].host_s;
    }
    for (size_t i = 0; i < at->n_transfers; i++)
        move(at, &at->transfers[i]);
    for (int32_t i = 0; i < order->n_stages; i++) {
        advance(at, i);
        end_s = fmax(end_s, ends_s(at, i));
    }
    return end_s + at->times[0].exchange_s;
}

enum mist_status mist_pass_replay(const struct mist_pipeline_order *order,
                                  const struct mist_interference *interference,
                                  const struct mist_pass_times *times,
                                  double *iteration_s, struct mist_err *err)
{
    const double *slow =
        interference->slowdown[1 << MIST_STREAM_COMPUTE | 1 << MIST_STREAM_GPU_GPU];
    size_t n = (size_t)order->n_chunks * (size_t)order->n_stages *
               (size_t)order->n_micro_batches;
    bool turns = interference->takes_turns;
    struct run at = {
        .order = order,
        .times = times,
        .stretch = turns ? 1 : slow[MIST_STREAM_GPU_GPU],
        .lost = turns ? 1 : 1 - 1 / slow[MIST_STREAM_COMPUTE],
        .stages = calloc((size_t)order->n_stages, sizeof *at.stages),
        .held_s =
            malloc((size_t)order->n_chunks * (size_t)order->n_stages * sizeof *at.held_s),
        .input_s = malloc(4 * n * sizeof *at.input_s),
        .transfers = malloc((2 * n + 1) * sizeof *at.transfers),
    };
    enum mist_status status = MIST_OK;

    if (at.stages && at.held_s && at.input_s && at.transfers) {
        at.gradient_s = at.input_s + n;
        at.forward_s = at.gradient_s + n;
        at.backward_s = at.forward_s + n;
        for (size_t i = 0; i < 4 * n; i++)
            at.input_s[i] = INFINITY;
        list_transfers(&at);
        *iteration_s = run(&at);
    } else {
        status = mist_err_memory(err, NULL);
    }
    free(at.stages);
    free(at.held_s);
    free(at.input_s);
    free(at.transfers);
    return status;
}
