/* 1F1B orders written by hand, and the clock's rules over every small pipeline. */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "sim/pipeline_order.h"

#include <stdio.h>
#include <string.h>

static struct mist_pipeline_order make(int32_t n_stages, int32_t n)
{
    struct mist_pipeline_order order;
    struct mist_err err = {0};

    assert_int_equal(mist_pipeline_order_init(&order, n_stages, n, &err), MIST_OK);
    assert_int_equal(order.n_stages, n_stages);
    assert_int_equal(order.n_micro_batches, n);
    return order;
}

static const struct mist_slot *slots_of(const struct mist_pipeline_order *order,
                                        int32_t i_stage)
{
    return order->slots + i_stage * 2 * order->n_micro_batches;
}

/* "F0 F1 B0 .." */
static void print_order(const struct mist_slot *slots, int32_t n, char *out)
{
    for (int32_t i = 0; i < 2 * n; i++)
        out += sprintf(out, "%s%c%d", i ? " " : "", slots[i].is_backward ? 'B' : 'F',
                       (int)slots[i].micro_batch);
}

/* The definition: w forwards, then forward and backward in turn, then w backwards. */
static void print_definition(int32_t n_warm_up, int32_t n, char *out)
{
    int32_t f = 0, b = 0;

    *out = '\0';
    while (f < n_warm_up) {
        out += sprintf(out, "%sF%d", f ? " " : "", (int)f);
        f++;
    }
    while (f < n) {
        out += sprintf(out, "%sF%d B%d", f ? " " : "", (int)f, (int)b);
        f++;
        b++;
    }
    while (b < n) {
        out += sprintf(out, " B%d", (int)b);
        b++;
    }
}

static void test_by_hand(void **state)
{
    static const struct {
        int32_t n_stages, n, i_stage;
        const char *order;
    } cases[] = {
        {1, 1, 0, "F0 B0"},
        {1, 3, 0, "F0 B0 F1 B1 F2 B2"},
        {2, 1, 0, "F0 B0"},
        {2, 1, 1, "F0 B0"},
        {2, 2, 0, "F0 F1 B0 B1"},
        {2, 2, 1, "F0 B0 F1 B1"},
        {2, 4, 0, "F0 F1 B0 F2 B1 F3 B2 B3"},
        {3, 2, 0, "F0 F1 B0 B1"},
        {3, 4, 0, "F0 F1 F2 B0 F3 B1 B2 B3"},
        {3, 4, 1, "F0 F1 B0 F2 B1 F3 B2 B3"},
        {4, 4, 0, "F0 F1 F2 F3 B0 B1 B2 B3"},
        {4, 4, 1, "F0 F1 F2 B0 F3 B1 B2 B3"},
        {4, 4, 2, "F0 F1 B0 F2 B1 F3 B2 B3"},
        {4, 4, 3, "F0 B0 F1 B1 F2 B2 F3 B3"},
        {4, 6, 0, "F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5"},
        {4, 3, 0, "F0 F1 F2 B0 B1 B2"},
    };
    char text[256];

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mist_pipeline_order order = make(cases[i].n_stages, cases[i].n);
        print_order(slots_of(&order, cases[i].i_stage), cases[i].n, text);
        assert_string_equal(text, cases[i].order);
        mist_pipeline_order_fini(&order);
    }
}

/* Two stages, two micro-batches: every start and end, drawn by hand.
 *   stage 0  F0 F1 .  .  B0 B0 .  B1 B1
 *   stage 1  .  F0 B0 B0 F1 B1 B1 .  .      */
static void test_clock_by_hand(void **state)
{
    static const struct mist_slot expected[2][4] = {
        {{0, false, 0, 1}, {1, false, 1, 2}, {0, true, 4, 6}, {1, true, 7, 9}},
        {{0, false, 1, 2}, {0, true, 2, 4}, {1, false, 4, 5}, {1, true, 5, 7}},
    };
    struct mist_pipeline_order order = make(2, 2);

    (void)state;
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++) {
            const struct mist_slot *slot = &slots_of(&order, i)[k];
            assert_int_equal(slot->micro_batch, expected[i][k].micro_batch);
            assert_int_equal(slot->is_backward, expected[i][k].is_backward);
            assert_int_equal(slot->start, expected[i][k].start);
            assert_int_equal(slot->end, expected[i][k].end);
        }
    }
    mist_pipeline_order_fini(&order);
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* Finds the slot of a micro-batch; it must be there exactly once. */
static const struct mist_slot *find(const struct mist_pipeline_order *order,
                                    int32_t i_stage, int32_t micro_batch,
                                    bool is_backward)
{
    const struct mist_slot *found = NULL;

    for (int32_t i = 0; i < 2 * order->n_micro_batches; i++) {
        const struct mist_slot *slot = &slots_of(order, i_stage)[i];
        if (slot->micro_batch != micro_batch || slot->is_backward != is_backward)
            continue;
        assert_null(found);
        found = slot;
    }
    assert_non_null(found);
    return found;
}

/* A slot starts when the slot before it and what it waits for have ended, not later. */
static void check_start(const struct mist_pipeline_order *order, int32_t i_stage,
                        int32_t i)
{
    const struct mist_slot *slot = &slots_of(order, i_stage)[i], *on = NULL;
    int32_t start = i ? slot[-1].end : 0;

    if (!slot->is_backward && i_stage > 0)
        on = find(order, i_stage - 1, slot->micro_batch, false);
    if (slot->is_backward)
        on = find(order, least(i_stage + 1, order->n_stages - 1), slot->micro_batch,
                  i_stage < order->n_stages - 1);
    if (on && on->end > start)
        start = on->end;
    assert_int_equal(slot->start, start);
    assert_int_equal(slot->end, start + (slot->is_backward ? 2 : 1));
    int32_t at = i_stage * order->n_micro_batches + slot->micro_batch;
    assert_int_equal(slot->end,
                     (slot->is_backward ? order->end_backward : order->end_forward)[at]);
}

static void check_stage(const struct mist_pipeline_order *order, int32_t i_stage)
{
    int32_t n_stages = order->n_stages, n = order->n_micro_batches, live = 0, most = 0;
    char text[2048], expected[2048];

    print_order(slots_of(order, i_stage), n, text);
    print_definition(least(n_stages - 1 - i_stage, n), n, expected);
    assert_string_equal(text, expected);
    for (int32_t i = 0; i < 2 * n; i++) {
        check_start(order, i_stage, i);
        live += slots_of(order, i_stage)[i].is_backward ? -1 : 1;
        most = live > most ? live : most;
    }
    assert_int_equal(live, 0);
    assert_int_equal(mist_pipeline_in_flight(n_stages, i_stage, n), most);
    assert_int_equal(most, least(n_stages - i_stage, n));
}

static void test_rules(void **state)
{
    (void)state;
    for (int32_t n_stages = 1; n_stages <= 6; n_stages++) {
        for (int32_t n = 1; n <= 12; n++) {
            struct mist_pipeline_order order = make(n_stages, n);
            for (int32_t i = 0; i < n_stages; i++)
                check_stage(&order, i);
            /* equal stages: the ends of the pipeline cost S - 1 micro-batches */
            assert_int_equal(slots_of(&order, 0)[2 * n - 1].end, 3 * (n + n_stages - 1));
            mist_pipeline_order_fini(&order);
            assert_null(order.slots);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_clock_by_hand),
        cmocka_unit_test(test_rules),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
