/* 1F1B and its logical clock. See pipeline_order.h. */
#include "sim/pipeline_order.h"

#include <stdlib.h>

enum { FORWARD_TICKS = 1, BACKWARD_TICKS = 2 };

int32_t mist_pipeline_in_flight(int32_t n_stages, int32_t i_stage,
                                int32_t n_micro_batches)
{
    int32_t n = n_stages - i_stage;

    return n < n_micro_batches ? n : n_micro_batches;
}

static void order_stage(struct mist_slot *slots, int32_t n_warm_up, int32_t n)
{
    int32_t n_forward = 0, n_backward = 0;

    for (int32_t i = 0; i < 2 * n; i++) {
        bool is_backward = n_forward == n || n_forward > n_backward + n_warm_up;
        slots[i] = (struct mist_slot){
            .is_backward = is_backward,
            .micro_batch = is_backward ? n_backward++ : n_forward++,
        };
    }
}

/* Tick at which the slot may start as far as its neighbours go;
 * -1 when that is not known yet. */
static int32_t earliest(const struct mist_pipeline_order *order, int32_t i_stage,
                        const struct mist_slot *slot)
{
    int32_t n = order->n_micro_batches;
    bool is_last = i_stage == order->n_stages - 1;

    if (!slot->is_backward)
        return i_stage == 0 ? 0
                            : order->end_forward[(i_stage - 1) * n + slot->micro_batch];
    if (is_last)
        return order->end_forward[i_stage * n + slot->micro_batch];
    return order->end_backward[(i_stage + 1) * n + slot->micro_batch];
}

/* Runs as many slots of a stage as the others allow; returns how many. */
static int32_t advance(struct mist_pipeline_order *order, int32_t i_stage, int32_t *next,
                       int32_t *clock)
{
    int32_t n = order->n_micro_batches, n_done = 0;

    for (; *next < 2 * n; ++*next, n_done++) {
        struct mist_slot *slot =
            &order->slots[(size_t)i_stage * 2 * (size_t)n + (size_t)*next];
        int32_t ready = earliest(order, i_stage, slot);
        if (ready < 0)
            break;
        slot->start = ready > *clock ? ready : *clock;
        slot->end = slot->start + (slot->is_backward ? BACKWARD_TICKS : FORWARD_TICKS);
        *clock = slot->end;
        (slot->is_backward ? order->end_backward
                           : order->end_forward)[i_stage * n + slot->micro_batch] =
            slot->end;
    }
    return n_done;
}

static void run_clock(struct mist_pipeline_order *order, int32_t *next, int32_t *clock)
{
    int64_t n_left = (int64_t)order->n_stages * 2 * order->n_micro_batches;

    /* every sweep advances: 1F1B has no cyclic wait */
    for (int32_t n_done = 1; n_left > 0 && n_done > 0; n_left -= n_done) {
        n_done = 0;
        for (int32_t i = 0; i < order->n_stages; i++)
            n_done += advance(order, i, &next[i], &clock[i]);
        for (int32_t i = order->n_stages - 1; i >= 0; i--)
            n_done += advance(order, i, &next[i], &clock[i]);
    }
}

enum mist_status mist_pipeline_order_init(struct mist_pipeline_order *out,
                                          int32_t n_stages, int32_t n_micro_batches,
                                          struct mist_err *err)
{
    size_t n = (size_t)n_stages * (size_t)n_micro_batches;
    int32_t *next = calloc((size_t)n_stages, sizeof *next);
    int32_t *clock = calloc((size_t)n_stages, sizeof *clock);
    enum mist_status status = MIST_OK;

    *out = (struct mist_pipeline_order){
        .n_stages = n_stages,
        .n_micro_batches = n_micro_batches,
        .slots = calloc(2 * n, sizeof *out->slots),
        .end_forward = malloc(n * sizeof *out->end_forward),
        .end_backward = malloc(n * sizeof *out->end_backward),
    };
    if (!next || !clock || !out->slots || !out->end_forward || !out->end_backward) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    for (size_t i = 0; i < n; i++)
        out->end_forward[i] = out->end_backward[i] = -1;
    for (int32_t i = 0; i < n_stages; i++)
        order_stage(out->slots + (size_t)i * 2 * (size_t)n_micro_batches,
                    mist_pipeline_in_flight(n_stages, i, n_micro_batches) - 1,
                    n_micro_batches);
    run_clock(out, next, clock);
out:
    free(next);
    free(clock);
    return status;
}

void mist_pipeline_order_fini(struct mist_pipeline_order *order)
{
    free(order->slots);
    free(order->end_forward);
    free(order->end_backward);
    *order = (struct mist_pipeline_order){0};
}
