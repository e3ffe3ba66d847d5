/*
 * Orders of slots and their logical clock. See pipeline_order.h.
 *
 * All three orders are one: some forwards in front, then one forward and one backward in
 * turn, then what remains. They differ in how many go in front (n_warm_up), in which
 * micro-batch and chunk the n-th of a kind is (slot_of), and in whether a backward is one
 * slot or two.
 */
#include "sim/schedule/pipeline_order.h"

#include <stdlib.h>

static int32_t least(int64_t a, int64_t b)
{
    return (int32_t)(a < b ? a : b);
}

/* Forwards in front of stage i_stage's first backward, but for the one right
 * before it. */
static int32_t n_warm_up(enum mist_pipeline_schedule schedule, int32_t n_stages,
                         int32_t n_chunks, int32_t i_stage, int32_t n_micro_batches)
{
    int64_t n_behind = n_stages - 1 - i_stage;

    if (schedule == MIST_PIPELINE_INTERLEAVED)
        n_behind = 2 * n_behind + (int64_t)(n_chunks - 1) * n_stages;
    return least(n_behind, (int64_t)n_micro_batches * n_chunks);
}

int32_t mist_pipeline_in_flight(enum mist_pipeline_schedule schedule, int32_t n_stages,
                                int32_t n_chunks, int32_t i_stage,
                                int32_t n_micro_batches)
{
    /* zb_h1: i_stage weight gradients late, on top of the 1f1b's n_stages - i_stage */
    if (schedule == MIST_PIPELINE_ZB_H1)
        return least(n_stages, n_micro_batches);
    return least(n_warm_up(schedule, n_stages, n_chunks, i_stage, n_micro_batches) +
                     (int64_t)1,
                 (int64_t)n_micro_batches * n_chunks);
}

/* ----------------------------------------------------------------------------- orders */

/* An order that is being filled. */
struct filling {
    const struct mist_pipeline_order *order;
    struct mist_slot *next;
};

/* Adds the i-th slot of a kind: p micro-batches through one chunk, through the next
 * chunk, and so on, then the next p micro-batches. */
static void add_slot(struct filling *at, enum mist_slot_kind kind, int32_t i)
{
    int32_t p = at->order->n_stages, v = at->order->n_chunks;
    int32_t chunk = i / p % v;

    *at->next++ = (struct mist_slot){
        .micro_batch = i / (p * v) * p + i % p, /* one chunk: i */
        .chunk = kind == MIST_SLOT_FORWARD ? chunk : v - 1 - chunk,
        .kind = kind,
    };
}

/* n: forwards of the stage. n_late: how many input gradients a weight gradient comes
 * after its own; -1: backwards are whole. */
static void order_stage(struct filling *at, int32_t n, int32_t n_in_front, int32_t n_late)
{
    bool is_split = n_late >= 0;
    int32_t n_forward = 0, n_weight = 0;

    while (n_forward < n_in_front)
        add_slot(at, MIST_SLOT_FORWARD, n_forward++);
    for (int32_t i = 0; i < n; i++) {
        if (n_forward < n)
            add_slot(at, MIST_SLOT_FORWARD, n_forward++);
        add_slot(at, is_split ? MIST_SLOT_BACKWARD_INPUT : MIST_SLOT_BACKWARD, i);
        if (is_split && i >= n_late)
            add_slot(at, MIST_SLOT_BACKWARD_WEIGHT, n_weight++);
    }
    while (is_split && n_weight < n)
        add_slot(at, MIST_SLOT_BACKWARD_WEIGHT, n_weight++);
}

/* ------------------------------------------------------------------------------ clock */

static int32_t n_ticks(enum mist_slot_kind kind)
{
    return kind == MIST_SLOT_BACKWARD ? 2 : 1;
}

/* Tick at which the slot may start as far as its neighbours go;
 * -1 when that is not known yet. */
static int32_t earliest(const struct mist_pipeline_order *order, int32_t i_virtual,
                        const struct mist_slot *slot)
{
    size_t n = (size_t)order->n_micro_batches;
    size_t at = (size_t)i_virtual * n + (size_t)slot->micro_batch;
    bool is_last = i_virtual == order->n_chunks * order->n_stages - 1;

    if (slot->kind == MIST_SLOT_BACKWARD_WEIGHT)
        return 0;
    if (slot->kind == MIST_SLOT_FORWARD)
        return i_virtual == 0 ? 0 : order->end_forward[at - n];
    return is_last ? order->end_forward[at] : order->end_backward[at + n];
}

/* Runs as many slots of a stage as the others allow; returns how many. */
static int32_t advance(struct mist_pipeline_order *order, int32_t i_stage, int32_t *next,
                       int32_t *clock)
{
    struct mist_slot *slots = order->slots + (size_t)i_stage * (size_t)order->n_slots;
    int32_t first = *next;

    for (; *next < order->n_slots; ++*next) {
        struct mist_slot *slot = &slots[*next];
        int32_t i_virtual = slot->chunk * order->n_stages + i_stage;
        int32_t ready = earliest(order, i_virtual, slot);
        size_t at = (size_t)i_virtual * (size_t)order->n_micro_batches +
                    (size_t)slot->micro_batch;
        if (ready < 0)
            break;
        slot->start = ready > *clock ? ready : *clock;
        slot->end = *clock = slot->start + n_ticks(slot->kind);
        if (slot->kind == MIST_SLOT_FORWARD)
            order->end_forward[at] = slot->end;
        else if (slot->kind != MIST_SLOT_BACKWARD_WEIGHT)
            order->end_backward[at] = slot->end;
    }
    return *next - first;
}

/* False: the slots wait for each other in a ring. */
static bool run_clock(struct mist_pipeline_order *order, int32_t *next, int32_t *clock)
{
    int64_t n_left = (int64_t)order->n_stages * order->n_slots;

    /* up and down, the ways that forwards and backwards go */
    for (int32_t n_done = 1; n_left > 0 && n_done > 0; n_left -= n_done) {
        n_done = 0;
        for (int32_t i = 0; i < order->n_stages; i++)
            n_done += advance(order, i, &next[i], &clock[i]);
        for (int32_t i = order->n_stages - 1; i >= 0; i--)
            n_done += advance(order, i, &next[i], &clock[i]);
    }
    return n_left == 0;
}

/* ------------------------------------------------------------------------- life cycle */

static enum mist_status check_numbers(enum mist_pipeline_schedule schedule, int32_t p,
                                      int32_t v, int32_t g, struct mist_err *err)
{
    bool is_interleaved = schedule == MIST_PIPELINE_INTERLEAVED;

    if ((!is_interleaved && v > 1) || (is_interleaved && g % p != 0))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "no %s pipeline has %d stages of %d chunks and %d "
                            "micro-batches",
                            mist_pipeline_name(schedule), p, v, g);
    /* a stage has at most 3 G v slots, and the clock ends at 3 (G v + p - 1) at most */
    if (3 * ((int64_t)g + p) * v > INT32_MAX)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "a pipeline of %d stages of %d chunks and %d micro-batches "
                            "has too many slots",
                            p, v, g);
    return MIST_OK;
}

/* Storage for an order, its ends all unknown. */
static enum mist_status allocate(struct mist_pipeline_order *order, struct mist_err *err)
{
    size_t n_slots = (size_t)order->n_stages * (size_t)order->n_slots;
    size_t n_ends = (size_t)order->n_stages * (size_t)order->n_chunks *
                    (size_t)order->n_micro_batches;

    order->slots = calloc(n_slots, sizeof *order->slots);
    order->end_forward = malloc(n_ends * sizeof *order->end_forward);
    order->end_backward = malloc(n_ends * sizeof *order->end_backward);
    if (!order->slots || !order->end_forward || !order->end_backward)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < n_ends; i++)
        order->end_forward[i] = order->end_backward[i] = -1;
    return MIST_OK;
}

static enum mist_status time_slots(struct mist_pipeline_order *order,
                                   enum mist_pipeline_schedule schedule,
                                   struct mist_err *err)
{
    int32_t *next = calloc((size_t)order->n_stages, sizeof *next);
    int32_t *clock = calloc((size_t)order->n_stages, sizeof *clock);
    enum mist_status status = MIST_OK;

    if (!next || !clock)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    else if (!run_clock(order, next, clock))
        status = mist_err_set(err, MIST_ERR_INPUT,
                              "the %s pipeline of %d stages of %d chunks and %d "
                              "micro-batches waits for itself",
                              mist_pipeline_name(schedule), order->n_stages,
                              order->n_chunks, order->n_micro_batches);
    free(next);
    free(clock);
    return status;
}

enum mist_status mist_pipeline_order_init(struct mist_pipeline_order *out,
                                          enum mist_pipeline_schedule schedule,
                                          int32_t n_stages, int32_t n_chunks,
                                          int32_t n_micro_batches, struct mist_err *err)
{
    bool is_split = schedule == MIST_PIPELINE_ZB_H1;
    enum mist_status status;

    *out = (struct mist_pipeline_order){
        .n_stages = n_stages, .n_chunks = n_chunks, .n_micro_batches = n_micro_batches};
    status = check_numbers(schedule, n_stages, n_chunks, n_micro_batches, err);
    if (status)
        return status;
    int32_t n = n_micro_batches * n_chunks;
    out->n_slots = (is_split ? 3 : 2) * n;
    if ((status = allocate(out, err)))
        return status;
    for (int32_t i = 0; i < n_stages; i++) {
        struct filling at = {out, out->slots + (size_t)i * (size_t)out->n_slots};
        order_stage(&at, n, n_warm_up(schedule, n_stages, n_chunks, i, n_micro_batches),
                    is_split ? i : -1);
    }
    return time_slots(out, schedule, err);
}

void mist_pipeline_order_fini(struct mist_pipeline_order *order)
{
    free(order->slots);
    free(order->end_forward);
    free(order->end_backward);
    *order = (struct mist_pipeline_order){0};
}
