/*
 * Automatic orders over random pipelines: every slot once and none before what it waits
 * for has come, never more kept than promised, and no gap where all passes take as long.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/schedule/pipeline_order.h"
#include "tests/unit/pick.h"

enum { MAX_STAGES = 9, MAX_BATCHES = 40 };

struct pipeline {
    enum mist_pipeline_schedule schedule;
    int32_t p, g;
    struct mist_pipeline_pass passes[MAX_STAGES];
    struct mist_pipeline_order order;
};

static void make(struct pipeline *at, enum mist_pipeline_schedule schedule)
{
    struct mist_err err = {0};

    at->schedule = schedule;
    must(
        mist_pipeline_order_init(&at->order, schedule, at->p, 1, at->g, at->passes, &err),
        &err);
}

static const struct mist_slot *slots_of(const struct pipeline *at, int32_t i)
{
    return at->order.slots + i * at->order.n_slots;
}

static int32_t takes_us(const struct mist_pipeline_pass *pass, enum mist_slot_kind kind)
{
    return kind == MIST_SLOT_FORWARD          ? pass->forward_us
           : kind == MIST_SLOT_BACKWARD_INPUT ? pass->input_us
                                              : pass->weight_us;
}

/* ------------------------------------------------------------------------------ rules */

/* When the input of a slot has come. */
static int32_t comes_us(const struct pipeline *at, int32_t i,
                        const struct mist_slot *slot)
{
    const struct mist_pipeline_order *order = &at->order;
    int32_t k = slot->micro_batch, own = i * at->g + k;

    switch (slot->kind) {
    case MIST_SLOT_FORWARD:
        return i == 0 ? 0
                      : order->end_forward[own - at->g] + at->passes[i - 1].transfer_us;
    case MIST_SLOT_BACKWARD_INPUT:
        return i == at->p - 1
                   ? order->end_forward[own]
                   : order->end_backward[own + at->g] + at->passes[i + 1].transfer_us;
    default:
        return order->end_backward[own];
    }
}

/* Slots in turn, each micro-batch once, as long as the passes, ends as noted. */
static void check_slots(const struct pipeline *at, int32_t i)
{
    int32_t n[MIST_SLOT_BACKWARD_WEIGHT + 1] = {0}, clock_us = 0;

    assert_int_equal(at->order.n_slots, 3 * at->g);
    for (int32_t k = 0; k < at->order.n_slots; k++) {
        const struct mist_slot *slot = &slots_of(at, i)[k];
        int32_t own = i * at->g + slot->micro_batch, ready_us = comes_us(at, i, slot);
        assert_int_equal(slot->chunk, 0);
        assert_int_equal(slot->micro_batch, n[slot->kind]++);
        assert_int_equal(slot->start, ready_us > clock_us ? ready_us : clock_us);
        clock_us = slot->end;
        assert_int_equal(slot->end - slot->start, takes_us(&at->passes[i], slot->kind));
        if (slot->kind == MIST_SLOT_FORWARD)
            assert_int_equal(slot->end, at->order.end_forward[own]);
        if (slot->kind == MIST_SLOT_BACKWARD_INPUT)
            assert_int_equal(slot->end, at->order.end_backward[own]);
        assert_true(slot->kind != MIST_SLOT_BACKWARD_WEIGHT ||
                    slot->micro_batch < n[MIST_SLOT_BACKWARD_INPUT]);
    }
    assert_int_equal(n[MIST_SLOT_FORWARD], at->g);
    assert_int_equal(n[MIST_SLOT_BACKWARD_INPUT], at->g);
    assert_int_equal(n[MIST_SLOT_BACKWARD_WEIGHT], at->g);
}

/* Activations, in parts where input gradients free some of them. */
static void check_kept(const struct pipeline *at, int32_t i)
{
    double freed = at->passes[i].freed_frac, kept = 0;
    double most = (at->schedule == MIST_PIPELINE_ZB_1P ? 1 : 2) * at->p + 1e-3;

    for (int32_t k = 0; k < at->order.n_slots; k++) {
        enum mist_slot_kind kind = slots_of(at, i)[k].kind;
        kept += kind == MIST_SLOT_FORWARD          ? 1
                : kind == MIST_SLOT_BACKWARD_INPUT ? -freed
                                                   : freed - 1;
        assert_true(kept <= most);
    }
    if (freed == 0)
        assert_true(mist_pipeline_in_flight(&at->order, i) <= most);
}

/* From the first slot of all to the last. */
static int64_t end_us(const struct mist_pipeline_order *order)
{
    int32_t end = 0;

    for (int32_t i = 0; i < order->n_stages; i++) {
        int32_t own = order->slots[(i + 1) * order->n_slots - 1].end;
        end = own > end ? own : end;
    }
    return end;
}

static void check_same(const struct pipeline *at)
{
    struct pipeline again = *at;
    size_t n = (size_t)at->p * (size_t)at->order.n_slots;

    make(&again, at->schedule);
    assert_memory_equal(again.order.slots, at->order.slots, n * sizeof *at->order.slots);
    mist_pipeline_order_fini(&again.order);
}

static void draw(struct mist_random *random, struct pipeline *at)
{
    bool is_even = pick(random, 0, 1);
    int slowest = pick(random, 1, 60);

    at->p = pick(random, 1, MAX_STAGES);
    at->g = pick(random, 1, MAX_BATCHES);
    for (int32_t i = 0; i < at->p; i++) {
        at->passes[i] = (struct mist_pipeline_pass){
            pick(random, 1, slowest), pick(random, 1, slowest), pick(random, 1, slowest),
            pick(random, 0, 2) * pick(random, 0, 9), pick(random, 0, 8) / 8.0};
        if (is_even)
            at->passes[i] = at->passes[0];
    }
}

/* One stage has nothing to keep weight gradients for. */
static void check_single(const struct pipeline *at)
{
    for (int32_t k = 0; k < at->order.n_slots; k++)
        assert_int_equal(slots_of(at, 0)[k].micro_batch, k / 3);
}

TEST(test_random)
{
    struct mist_random random;
    struct pipeline at;

    mist_random_init(&random, test_seed(71));
    for (int n = 0; n < 3000; n++) {
        draw(&random, &at);
        make(&at, pick(&random, 0, 1) ? MIST_PIPELINE_ZB_1P : MIST_PIPELINE_ZB_2P);
        for (int32_t i = 0; i < at.p; i++) {
            check_slots(&at, i);
            check_kept(&at, i);
        }
        check_same(&at);
        if (at.p == 1)
            check_single(&at);
        mist_pipeline_order_fini(&at.order);
    }
}

/* ------------------------------------------------------------------------ closed forms */

/* Passes of one length: zb_2p leaves no gap on any stage, zb_1p is as idle as zb_h1. */
TEST(test_no_gap)
{
    for (int32_t p = 1; p <= MAX_STAGES; p++)
        for (int32_t g = 2 * p; g <= MAX_BATCHES; g += 3) {
            struct pipeline at = {.p = p, .g = g};
            for (int32_t i = 0; i < p; i++)
                at.passes[i] = (struct mist_pipeline_pass){10, 10, 10, 0, 0};
            make(&at, MIST_PIPELINE_ZB_2P);
            for (int32_t i = 0; i < p; i++) {
                const struct mist_slot *slots = slots_of(&at, i);
                assert_int_equal(slots[0].start, 10 * i);
                assert_int_equal(slots[3 * g - 1].end, 10 * (i + 3 * g));
            }
            mist_pipeline_order_fini(&at.order);
            make(&at, MIST_PIPELINE_ZB_1P);
            assert_int_equal(end_us(&at.order), 10 * (3 * g + p - 1));
            mist_pipeline_order_fini(&at.order);
        }
}

/* Times that the clock can't hold as they are. */
TEST(test_long_passes)
{
    struct pipeline at = {.p = 4, .g = 1000};
    int32_t most = MIST_PLAN_MAX_PASS_US;

    for (int32_t i = 0; i < at.p; i++)
        at.passes[i] = (struct mist_pipeline_pass){most, i ? most : 1, most, most / 3, 0};
    make(&at, MIST_PIPELINE_ZB_2P);
    for (int32_t i = 0; i < at.p; i++)
        for (int32_t k = 0; k < at.order.n_slots; k++) {
            const struct mist_slot *slot = &slots_of(&at, i)[k];
            assert_true(slot->start >= (k ? slot[-1].end : 0) && slot->end > slot->start);
        }
    mist_pipeline_order_fini(&at.order);
}

TEST_MAIN(NULL, NULL)
