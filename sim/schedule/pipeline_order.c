/*
 * Orders of slots and their logical clock. See pipeline_order.h.
 *
 * All orders that are rules are one: some forwards in front, then one forward and one backward in turn,
 * then what remains. A schedule is a row that says how many go in front, of which chunk
 * the n-th of a kind is (each chunk counts its own micro-batches), and how much later
 * than its input gradient a weight gradient comes. A turn whose chunk has no micro-batch
 * left passes.
 */
#include "sim/schedule/pipeline_order.h"

#include "core/memory.h"
#include "core/order.h"
#include "sim/schedule/pipeline_auto.h"

#include <stdlib.h>
#include <string.h> /* memset */

/* ---------------------------------------------------------------------- the schedules */

/* A stage: i of p stages, of v chunks each. */
struct place {
    int32_t p, v, i;
};

struct rule {
    /* forwards in front of the one right before the first backward, beside p for each
     * chunk but one: for each stage behind, for each stage before */
    int32_t per_behind, per_before;
    /* how many input gradients a weight gradient comes after its own, for each stage
     * before: while forwards come, and behind them */
    int32_t late, late_at_end;
    int32_t (*chunk_of)(const struct place *at, bool is_forward, int32_t n);
};

/* p micro-batches through one chunk, then through the next; backwards from the last. */
static int32_t in_groups(const struct place *at, bool is_forward, int32_t n)
{
    int32_t chunk = n / at->p % at->v;

    return is_forward ? chunk : at->v - 1 - chunk;
}

/* Alone on the way to the last stage and back, in turn else. */
static int32_t in_a_v(const struct place *at, bool is_forward, int32_t n)
{
    int32_t way_back = at->p - at->i;

    if (!is_forward)
        return n < way_back || (n - way_back) % 2 == 1;
    if (n < 2 * way_back - 1)
        return 0;
    n -= 2 * way_back - 1;
    if (n < 2 * at->i)
        return n % 2 == 0;
    n -= 2 * at->i;
    return n < way_back || (n - way_back) % 2 == 1;
}

static const struct rule rules[MIST_N_PIPELINES] = {
    [MIST_PIPELINE_1F1B] = {1, 0, 0, 0, in_groups},
    [MIST_PIPELINE_INTERLEAVED] = {2, 0, 0, 0, in_groups},
    [MIST_PIPELINE_ZB_H1] = {1, 0, 1, 1, in_groups},
    [MIST_PIPELINE_ZB_H2] = {2, 0, 2, 2, in_groups},
    [MIST_PIPELINE_ZB_V] = {1, 1, 0, 2, in_a_v},
};

static int64_t n_in_front(const struct rule *rule, const struct place *at)
{
    return (int64_t)(at->v - 1) * at->p + rule->per_behind * (at->p - 1 - at->i) +
           rule->per_before * at->i;
}

int32_t mist_pipeline_in_flight(const struct mist_pipeline_order *order, int32_t i_stage)
{
    const struct mist_slot *slots =
        order->slots + (size_t)i_stage * (size_t)order->n_slots;
    int32_t n = 0, most = 0;

    for (int32_t i = 0; i < order->n_slots; i++) {
        n += slots[i].kind == MIST_SLOT_FORWARD;
        most = n > most ? n : most;
        n -= slots[i].kind == MIST_SLOT_BACKWARD ||
             slots[i].kind == MIST_SLOT_BACKWARD_WEIGHT;
    }
    return most;
}

int32_t mist_pipeline_in_flight_1f1b(int32_t n_stages, int32_t i_stage,
                                     int32_t n_micro_batches)
{
    int32_t n = n_stages - i_stage;

    return n < n_micro_batches ? n : n_micro_batches;
}

/* ----------------------------------------------------------------------------- orders */

/* Slots of one kind, so far. */
struct series {
    enum mist_slot_kind kind;
    int32_t n_turns, n;
    int32_t *n_of_chunk; /* [v] turns of each */
};

/* A stage's order that is being filled. */
struct filling {
    struct place at;
    const struct rule *rule;
    int32_t n_micro_batches;
    struct mist_slot *next;
};

/* The next turn of a kind. False: nothing is left of its chunk. */
static bool take_turn(struct filling *at, struct series *of)
{
    bool is_forward = of->kind == MIST_SLOT_FORWARD;
    int32_t chunk = at->rule->chunk_of(&at->at, is_forward, of->n_turns++);
    int32_t micro_batch = of->n_of_chunk[chunk]++;

    if (micro_batch >= at->n_micro_batches)
        return false;
    of->n++;
    *at->next++ =
        (struct mist_slot){.micro_batch = micro_batch, .chunk = chunk, .kind = of->kind};
    return true;
}

/* counts: room, [3][v]. */
static void order_stage(struct filling *at, bool is_split, int32_t *counts)
{
    int32_t n = at->n_micro_batches * at->at.v, i = at->at.i;
    struct series forward = {.kind = MIST_SLOT_FORWARD, .n_of_chunk = counts};
    struct series backward = {.kind = is_split ? MIST_SLOT_BACKWARD_INPUT
                                               : MIST_SLOT_BACKWARD,
                              .n_of_chunk = counts + at->at.v};
    struct series weight = {.kind = MIST_SLOT_BACKWARD_WEIGHT,
                            .n_of_chunk = counts + 2 * at->at.v};

    memset(counts, 0, 3 * (size_t)at->at.v * sizeof *counts);
    for (int64_t left = n_in_front(at->rule, &at->at); left > 0 && forward.n < n; left--)
        take_turn(at, &forward);
    while (backward.n < n) {
        if (forward.n < n)
            take_turn(at, &forward);
        take_turn(at, &backward);
        int32_t late = i * (forward.n < n ? at->rule->late : at->rule->late_at_end);
        while (is_split && weight.n + late < backward.n)
            take_turn(at, &weight);
    }
    while (is_split && weight.n < n)
        take_turn(at, &weight);
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
        int32_t i_virtual =
            mist_pipeline_virtual(order->schedule, order->n_stages, i_stage, slot->chunk);
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
    const struct mist_pipeline_kind *kind = &mist_pipeline_kinds[schedule];

    if ((kind->n_chunks > 0 && v != kind->n_chunks) ||
        (kind->groups_micro_batches && g % p != 0))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "no %s pipeline has %d stages of %d chunks and %d "
                            "micro-batches",
                            mist_pipeline_words[schedule], p, v, g);
    /* a stage has at most 3 G v slots, and the clock ends at 3 (G + p) v at most */
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

    if (!MIST_CALLOC(order->slots, n_slots) || !MIST_MALLOC(order->end_forward, n_ends) ||
        !MIST_MALLOC(order->end_backward, n_ends))
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < n_ends; i++)
        order->end_forward[i] = order->end_backward[i] = -1;
    return MIST_OK;
}

static enum mist_status fill_by_rule(struct mist_pipeline_order *order,
                                     struct mist_err *err)
{
    bool is_split = mist_pipeline_kinds[order->schedule].splits_backward;
    int32_t *counts = malloc(3 * (size_t)order->n_chunks * sizeof *counts);

    if (!counts)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < order->n_stages; i++) {
        struct filling at = {
            .at = {order->n_stages, order->n_chunks, i},
            .rule = &rules[order->schedule],
            .n_micro_batches = order->n_micro_batches,
            .next = order->slots + (size_t)i * (size_t)order->n_slots,
        };
        order_stage(&at, is_split, counts);
    }
    free(counts);
    return MIST_OK;
}

static enum mist_status time_slots(struct mist_pipeline_order *order,
                                   struct mist_err *err)
{
    int32_t *next = calloc((size_t)order->n_stages, sizeof *next);
    int32_t *clock = calloc((size_t)order->n_stages, sizeof *clock);
    enum mist_status status = MIST_OK;

    if (!next || !clock)
        status = mist_err_memory(err, NULL);
    else if (!run_clock(order, next, clock))
        status = mist_err_set(err, MIST_ERR_INPUT,
                              "the %s pipeline of %d stages of %d chunks and %d "
                              "micro-batches waits for itself",
                              mist_pipeline_words[order->schedule], order->n_stages,
                              order->n_chunks, order->n_micro_batches);
    free(next);
    free(clock);
    return status;
}

enum mist_status mist_pipeline_order_init(struct mist_pipeline_order *out,
                                          enum mist_pipeline_schedule schedule,
                                          int32_t n_stages, int32_t n_chunks,
                                          int32_t n_micro_batches,
                                          const struct mist_pipeline_pass *passes,
                                          struct mist_err *err)
{
    bool is_auto = mist_pipeline_kinds[schedule].n_kept_per_stage > 0;
    enum mist_status status;

    *out = (struct mist_pipeline_order){.schedule = schedule,
                                        .n_stages = n_stages,
                                        .n_chunks = n_chunks,
                                        .n_micro_batches = n_micro_batches};
    if ((status = check_numbers(schedule, n_stages, n_chunks, n_micro_batches, err)))
        return status;
    out->n_slots = (mist_pipeline_kinds[schedule].splits_backward ? 3 : 2) *
                   n_micro_batches * n_chunks;
    if ((status = allocate(out, err)))
        return status;
    if (is_auto)
        return mist_pipeline_auto_fill(out, passes, err);
    status = fill_by_rule(out, err);
    return status ? status : time_slots(out, err);
}

void mist_pipeline_order_fini(struct mist_pipeline_order *order)
{
    free(order->slots);
    free(order->end_forward);
    free(order->end_backward);
    *order = (struct mist_pipeline_order){0};
}

int mist_pipeline_compare_transfers(const struct mist_pipeline_transfer *a,
                                    const struct mist_pipeline_transfer *b)
{
    return MIST_COMPARE_BY(a, b, time, boundary, is_gradient, micro_batch);
}
