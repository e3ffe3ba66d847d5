/*
 * Orders written by hand and by a textbook, and the clock's rules over every small
 * pipeline: all slots once, none before what it waits for and none later than it may, the
 * closed forms of the papers for the whole time and for what is in flight.
 *
 * Orders are compared as text: "F1.0" is the forward of micro-batch 1 through chunk 0, B
 * a whole backward, I and W its halves; one chunk is left out ("F1").
 */
#include "tests/unit/test.h"

#include "sim/schedule/pipeline_order.h"

enum { MAX_STAGES = 8, MAX_CHUNKS = 4, MAX_BATCHES = 32, TEXT_SIZE = 8192, N_KINDS = 4 };

static const char letters[N_KINDS] = {'F', 'B', 'I', 'W'};

static bool is_split(enum mist_pipeline_schedule schedule)
{
    return schedule == MIST_PIPELINE_ZB_H1 || schedule == MIST_PIPELINE_ZB_H2 ||
           schedule == MIST_PIPELINE_ZB_V;
}

static struct mist_pipeline_order make(enum mist_pipeline_schedule schedule, int32_t p,
                                       int32_t v, int32_t g)
{
    struct mist_pipeline_order order;
    struct mist_err err = {0};

    if (mist_pipeline_order_init(&order, schedule, p, v, g, NULL, &err))
        fail_msg("%s", err.message);
    assert_int_equal(order.n_stages, p);
    assert_int_equal(order.n_chunks, v);
    assert_int_equal(order.n_micro_batches, g);
    assert_int_equal(order.n_slots, (is_split(schedule) ? 3 : 2) * g * v);
    return order;
}

static const struct mist_slot *slots_of(const struct mist_pipeline_order *order,
                                        int32_t i_stage)
{
    return order->slots + i_stage * order->n_slots;
}

/* Appends " F1.0" to a text that ends at out; returns its new end. */
static char *append(char *out, char letter, int32_t micro_batch, int32_t chunk, int32_t v)
{
    out += sprintf(out, " %c%d", letter, (int)micro_batch);
    return v > 1 ? out + sprintf(out, ".%d", (int)chunk) : out;
}

static void print_order(const struct mist_pipeline_order *order, int32_t i_stage,
                        bool has_weights, char *out)
{
    const struct mist_slot *slots = slots_of(order, i_stage);

    *out = '\0';
    for (int32_t i = 0; i < order->n_slots; i++) {
        if (has_weights || slots[i].kind != MIST_SLOT_BACKWARD_WEIGHT)
            out = append(out, letters[slots[i].kind], slots[i].micro_batch,
                         slots[i].chunk, order->n_chunks);
    }
}

/* ---------------------------------------------------------------------------- by hand */

TEST(test_by_hand)
{
    static const struct {
        enum mist_pipeline_schedule schedule;
        int32_t p, v, g, i_stage;
        const char *order;
    } cases[] = {
        {MIST_PIPELINE_1F1B, 1, 1, 1, 0, " F0 B0"},
        {MIST_PIPELINE_1F1B, 1, 1, 3, 0, " F0 B0 F1 B1 F2 B2"},
        {MIST_PIPELINE_1F1B, 2, 1, 1, 0, " F0 B0"},
        {MIST_PIPELINE_1F1B, 2, 1, 2, 0, " F0 F1 B0 B1"},
        {MIST_PIPELINE_1F1B, 2, 1, 2, 1, " F0 B0 F1 B1"},
        {MIST_PIPELINE_1F1B, 3, 1, 2, 0, " F0 F1 B0 B1"},
        {MIST_PIPELINE_1F1B, 3, 1, 4, 1, " F0 F1 B0 F2 B1 F3 B2 B3"},
        {MIST_PIPELINE_1F1B, 4, 1, 6, 0, " F0 F1 F2 F3 B0 F4 B1 F5 B2 B3 B4 B5"},
        {MIST_PIPELINE_1F1B, 4, 1, 4, 2, " F0 F1 B0 F2 B1 F3 B2 B3"},
        {MIST_PIPELINE_1F1B, 4, 1, 4, 3, " F0 B0 F1 B1 F2 B2 F3 B3"},
        {MIST_PIPELINE_1F1B, 4, 1, 3, 0, " F0 F1 F2 B0 B1 B2"},
        {MIST_PIPELINE_INTERLEAVED, 2, 2, 2, 0,
         " F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0"},
        {MIST_PIPELINE_INTERLEAVED, 2, 2, 2, 1,
         " F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0"},
        {MIST_PIPELINE_INTERLEAVED, 2, 2, 4, 0,
         " F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0"
         " B2.1 B3.1 B2.0 B3.0"},
        {MIST_PIPELINE_INTERLEAVED, 2, 2, 4, 1,
         " F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1"
         " B2.0 B3.0"},
        {MIST_PIPELINE_ZB_H1, 1, 1, 2, 0, " F0 I0 W0 F1 I1 W1"},
        {MIST_PIPELINE_ZB_H1, 2, 1, 3, 0, " F0 F1 I0 W0 F2 I1 W1 I2 W2"},
        {MIST_PIPELINE_ZB_H1, 2, 1, 3, 1, " F0 I0 F1 I1 W0 F2 I2 W1 W2"},
        {MIST_PIPELINE_ZB_H1, 3, 1, 2, 2, " F0 I0 F1 I1 W0 W1"},
        {MIST_PIPELINE_ZB_H1, 3, 1, 4, 1, " F0 F1 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3"},
        {MIST_PIPELINE_ZB_H2, 2, 1, 4, 0, " F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3"},
        {MIST_PIPELINE_ZB_H2, 2, 1, 4, 1, " F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3"},
        {MIST_PIPELINE_ZB_V, 2, 2, 1, 0, " F0.0 F0.1 I0.1 W0.1 I0.0 W0.0"},
        {MIST_PIPELINE_ZB_V, 2, 2, 1, 1, " F0.0 F0.1 I0.1 I0.0 W0.1 W0.0"},
        {MIST_PIPELINE_ZB_V, 2, 2, 3, 0,
         " F0.0 F1.0 F2.0 F0.1 I0.1 W0.1 F1.1 I1.1 W1.1 I0.0 W0.0 F2.1 I2.1 W2.1"
         " I1.0 W1.0 I2.0 W2.0"},
        {MIST_PIPELINE_ZB_V, 2, 2, 3, 1,
         " F0.0 F0.1 F1.0 F1.1 I0.1 W0.1 F2.0 I0.0 W0.0 F2.1 I1.1 I1.0 I2.1 W1.1 I2.0"
         " W1.0 W2.1 W2.0"},
    };
    char text[TEXT_SIZE];

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mist_pipeline_order order =
            make(cases[i].schedule, cases[i].p, cases[i].v, cases[i].g);
        print_order(&order, cases[i].i_stage, true, text);
        assert_string_equal(text, cases[i].order);
        mist_pipeline_order_fini(&order);
    }
}

/* Two stages: every start and end, drawn by hand.
 *   1f1b, stage 0   F0 F1 .  .  B0 B0 .  B1 B1
 *         stage 1   .  F0 B0 B0 F1 B1 B1 .  .
 *   zb_h1, stage 0  F0 F1 .  I0 W0 I1 W1
 *          stage 1  .  F0 I0 F1 I1 W0 W1
 *   zb_v,  stage 0  F0.0 .    .    F0.1 I0.1 W0.1 .    I0.0 W0.0
 *          stage 1  .    F0.0 F0.1 .    .    I0.1 I0.0 W0.1 W0.0     */
TEST(test_clock_by_hand)
{
    static const int32_t whole[2][4][2] = {
        {{0, 1}, {1, 2}, {4, 6}, {7, 9}},
        {{1, 2}, {2, 4}, {4, 5}, {5, 7}},
    };
    static const int32_t split[2][6][2] = {
        {{0, 1}, {1, 2}, {3, 4}, {4, 5}, {5, 6}, {6, 7}},
        {{1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}, {6, 7}},
    };
    static const int32_t folded[2][6][2] = {
        {{0, 1}, {3, 4}, {4, 5}, {5, 6}, {7, 8}, {8, 9}},
        {{1, 2}, {2, 3}, {5, 6}, {6, 7}, {7, 8}, {8, 9}},
    };
    struct mist_pipeline_order a = make(MIST_PIPELINE_1F1B, 2, 1, 2);
    struct mist_pipeline_order c = make(MIST_PIPELINE_ZB_V, 2, 2, 1);
    struct mist_pipeline_order b = make(MIST_PIPELINE_ZB_H1, 2, 1, 2);

    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 4; k++) {
            assert_int_equal(slots_of(&a, i)[k].start, whole[i][k][0]);
            assert_int_equal(slots_of(&a, i)[k].end, whole[i][k][1]);
        }
        for (int k = 0; k < 6; k++) {
            assert_int_equal(slots_of(&b, i)[k].start, split[i][k][0]);
            assert_int_equal(slots_of(&b, i)[k].end, split[i][k][1]);
            assert_int_equal(slots_of(&c, i)[k].start, folded[i][k][0]);
            assert_int_equal(slots_of(&c, i)[k].end, folded[i][k][1]);
        }
    }
    mist_pipeline_order_fini(&a);
    mist_pipeline_order_fini(&b);
    mist_pipeline_order_fini(&c);
}

/* ------------------------------------------------------------------------- a textbook */

/* One stage as a textbook runs it: two queues of chunks, and each chunk counts its own
 * micro-batches. */
struct textbook {
    int32_t v, g;
    int32_t n_forward[MAX_CHUNKS], n_backward[MAX_CHUNKS];
    int32_t forwards[MAX_BATCHES * MAX_CHUNKS], backwards[MAX_BATCHES * MAX_CHUNKS];
    char *out;
};

static void fill_queues(struct textbook *at, int32_t p, int32_t g)
{
    int32_t n = 0;

    for (int32_t group = 0; group < g; group += p) {
        for (int32_t chunk = 0; chunk < at->v; chunk++) {
            for (int32_t i = 0; i < p && group + i < g; i++, n++) {
                at->forwards[n] = chunk;
                at->backwards[n] = at->v - 1 - chunk;
            }
        }
    }
}

/* ZB-V by its phases, for 2 p - 1 micro-batches or more; those beyond g are left out. */
static void run_phase(struct textbook *at, int32_t n, const char *steps)
{
    for (int32_t k = 0; k < n; k++)
        for (const char *step = steps; *step; step += 2) {
            int32_t chunk = step[1] - '0';
            int32_t *count =
                step[0] == 'F' ? &at->n_forward[chunk] : &at->n_backward[chunk];
            if (*count < at->g)
                at->out = append(at->out, step[0], *count, chunk, 2);
            ++*count;
        }
}

static void print_v(int32_t p, int32_t g, int32_t i, char *out)
{
    struct textbook at = {.g = g, .out = out};
    int32_t n = g > 2 * p - 1 ? g : 2 * p - 1, n_full = n - (2 * p - 1 - i);

    run_phase(&at, 2 * (p - i) - 1, "F0");
    run_phase(&at, i, "F1F0");
    run_phase(&at, p - i, "F1I1");
    run_phase(&at, n_full, "F0I0F1I1");
    run_phase(&at, p - 1 - i, "I0F1I1");
    run_phase(&at, i, "I0I1");
    run_phase(&at, p - i, "I0");
    for (int chunk = 0; chunk < 2; chunk++) {
        assert_int_equal(at.n_forward[chunk], n);
        assert_int_equal(at.n_backward[chunk], n);
    }
}

static void run_forward(struct textbook *at, int32_t k)
{
    int32_t chunk = at->forwards[k];

    at->out = append(at->out, 'F', at->n_forward[chunk]++, chunk, at->v);
}

static void run_backward(struct textbook *at, int32_t k, char letter)
{
    int32_t chunk = at->backwards[k];

    at->out = append(at->out, letter, at->n_backward[chunk]++, chunk, at->v);
}

/* Warm-up, steady state, cool-down (without weight gradients). */
static void print_textbook(enum mist_pipeline_schedule schedule, int32_t p, int32_t v,
                           int32_t g, int32_t i_stage, char *out)
{
    bool is_interleaved = schedule == MIST_PIPELINE_INTERLEAVED;
    char letter = is_split(schedule) ? 'I' : 'B';
    struct textbook at = {.v = v, .out = out};
    int32_t n = g * v, n_warm = p - i_stage - 1;

    if (schedule == MIST_PIPELINE_ZB_V) {
        print_v(p, g, i_stage, out);
        return;
    }
    if (is_interleaved)
        n_warm = n_warm * 2 + (v - 1) * p;
    if (schedule == MIST_PIPELINE_ZB_H2)
        n_warm *= 2;
    if (n_warm > n)
        n_warm = n;
    fill_queues(&at, p, g);
    for (int32_t k = 0; k < n_warm; k++)
        run_forward(&at, k);
    for (int32_t k = 0; k < n - n_warm; k++) {
        run_forward(&at, n_warm + k);
        run_backward(&at, k, letter);
    }
    for (int32_t k = n - n_warm; k < n; k++)
        run_backward(&at, k, letter);
}

/* Weight gradients come in the order of input gradients, and as soon as those are ahead
 * by more than: zb_h1: the stages before; zb_h2: twice as many; zb_v: none while forwards come, and then twice
 * as many. What remains comes at the end. */
static void check_weights(const struct mist_pipeline_order *order,
                          enum mist_pipeline_schedule schedule, int32_t i_stage)
{
    const struct mist_slot *slots = slots_of(order, i_stage);
    const struct mist_slot *inputs[MAX_BATCHES * MAX_CHUNKS];
    int32_t n_forwards = 0, n_inputs = 0, n_weights = 0;
    int32_t n = order->n_micro_batches * order->n_chunks;

    for (int32_t i = 0; i < order->n_slots; i++) {
        bool may_wait =
            n_inputs < n && (i == 0 || slots[i - 1].kind != MIST_SLOT_FORWARD);
        bool is_v = schedule == MIST_PIPELINE_ZB_V;
        int32_t most = schedule == MIST_PIPELINE_ZB_H1 ? i_stage
                       : is_v && n_forwards < n        ? 0
                                                       : 2 * i_stage;
        if (slots[i].kind == MIST_SLOT_BACKWARD_WEIGHT) {
            assert_true(n_weights < n_inputs);
            assert_int_equal(slots[i].micro_batch, inputs[n_weights]->micro_batch);
            assert_int_equal(slots[i].chunk, inputs[n_weights]->chunk);
            n_weights++;
            /* not sooner */
            assert_true(!may_wait || n_inputs - n_weights >= most);
            continue;
        }
        if (may_wait) /* not later */
            assert_true(n_inputs - n_weights <= most);
        n_forwards += slots[i].kind == MIST_SLOT_FORWARD;
        if (slots[i].kind == MIST_SLOT_BACKWARD_INPUT)
            inputs[n_inputs++] = &slots[i];
    }
    assert_int_equal(n_weights, n);
}

/* -------------------------------------------------------------------------- the rules */

/* The way of a sample: down the stages for every chunk, in a V down and back up. */
static int32_t virtual_of(const struct mist_pipeline_order *order, int32_t i_stage,
                          int32_t chunk)
{
    bool is_back = order->schedule == MIST_PIPELINE_ZB_V && chunk == 1;

    return is_back ? 2 * order->n_stages - 1 - i_stage
                   : chunk * order->n_stages + i_stage;
}

/* Where the slots are: by virtual stage, micro-batch and kind. */
struct index {
    const struct mist_slot *slots[MAX_STAGES * MAX_CHUNKS][MAX_BATCHES][N_KINDS];
};

/* Every slot is found once. */
static void fill_index(const struct mist_pipeline_order *order, bool splits,
                       struct index *out)
{
    memset(out, 0, sizeof *out);
    for (int32_t i = 0; i < order->n_stages; i++) {
        for (int32_t k = 0; k < order->n_slots; k++) {
            const struct mist_slot *slot = &slots_of(order, i)[k];
            assert_in_range(slot->chunk, 0, order->n_chunks - 1);
            assert_in_range(slot->micro_batch, 0, order->n_micro_batches - 1);
            assert_true((slot->kind == MIST_SLOT_FORWARD) |
                        ((slot->kind == MIST_SLOT_BACKWARD) ^ splits));
            int32_t virtual = virtual_of(order, i, slot->chunk);
            assert_null(out->slots[virtual][slot->micro_batch][slot->kind]);
            out->slots[virtual][slot->micro_batch][slot->kind] = slot;
        }
    }
}

/* A slot starts when the slot before it and what it waits for have ended, not later; and
 * that a weight gradient comes behind its input gradient goes without saying. */
static void check_start(const struct mist_pipeline_order *order,
                        const struct index *index, int32_t i_stage, int32_t k)
{
    static const int32_t ticks[N_KINDS] = {1, 2, 1, 1};
    const struct mist_slot *slot = &slots_of(order, i_stage)[k], *on = NULL;
    int32_t virtual = virtual_of(order, i_stage, slot->chunk), m = slot->micro_batch;
    int32_t start = k ? slot[-1].end : 0, *end = NULL;
    bool is_last = virtual == order->n_stages * order->n_chunks - 1;

    if (slot->kind == MIST_SLOT_FORWARD) {
        on = virtual > 0 ? index->slots[virtual - 1][m][MIST_SLOT_FORWARD] : NULL;
        end = order->end_forward;
    } else if (slot->kind != MIST_SLOT_BACKWARD_WEIGHT) {
        on = is_last ? index->slots[virtual][m][MIST_SLOT_FORWARD]
                     : index->slots[virtual + 1][m][slot->kind];
        end = order->end_backward;
        assert_true(index->slots[virtual][m][MIST_SLOT_FORWARD]->end <= slot->start);
    } else {
        assert_true(index->slots[virtual][m][MIST_SLOT_BACKWARD_INPUT]->end <=
                    slot->start);
    }
    if (on && on->end > start)
        start = on->end;
    assert_int_equal(slot->start, start);
    assert_int_equal(slot->end, start + ticks[slot->kind]);
    if (end)
        assert_int_equal(slot->end, end[virtual * order->n_micro_batches + m]);
}

/* The most activations that the order keeps, counted slot by slot. */
static int32_t count_in_flight(const struct mist_pipeline_order *order, int32_t i_stage)
{
    int32_t live = 0, most = 0;

    for (int32_t k = 0; k < order->n_slots; k++) {
        enum mist_slot_kind kind = slots_of(order, i_stage)[k].kind;
        if (kind == MIST_SLOT_FORWARD)
            live++;
        else if (kind != MIST_SLOT_BACKWARD_INPUT)
            live--;
        most = live > most ? live : most;
    }
    assert_int_equal(live, 0);
    return most;
}

static int32_t last_tick(const struct mist_pipeline_order *order)
{
    int32_t last = 0;

    for (int32_t i = 0; i < order->n_stages; i++) {
        int32_t end = slots_of(order, i)[order->n_slots - 1].end;
        last = end > last ? end : last;
    }
    return last;
}

/* Work of a stage and bubble. forward = input = weight gradient = 1 tick: the bubble is
 * (p - 1) (1 + 2) of Narayanan et al., on chunks where interleaved, and
 * (p - 1) (1 + 1 - 1) of Qi et al., which needs micro-batches to fill it with; in a V the
 * way to the last stage, as 1 = 1 = 1 leaves no gap, and for zb_h2 as well. */
static int32_t closed_form(enum mist_pipeline_schedule schedule, int32_t p, int32_t v,
                           int32_t g)
{
    if (schedule == MIST_PIPELINE_ZB_V && g >= p)
        return 6 * g + (p - 1) + (g < 2 * p - 1 ? 2 * p - 1 - g : 0);
    if (schedule == MIST_PIPELINE_ZB_V) /* 4 p on the way; one more F I, or I W, of each
                                           chunk for each further micro-batch */
        return 4 * p + 4 * (g - 1) + 1;
    if (schedule == MIST_PIPELINE_ZB_H2) /* two more micro-batches fill one tick */
        return 3 * g + (g < 2 * p - 2 ? 2 * p - 2 - g / 2 : p - 1);
    if (schedule != MIST_PIPELINE_ZB_H1)
        return 3 * g * v + 3 * (p - 1);
    if (g >= p)
        return 3 * g + (p - 1);
    return 2 * p + 2 * g -
           1; /* the way of the last micro-batch and its weight gradient */
}

static void check_pipeline(enum mist_pipeline_schedule schedule, int32_t p, int32_t v,
                           int32_t g, struct index *index)
{
    struct mist_pipeline_order order = make(schedule, p, v, g);
    char text[TEXT_SIZE], expected[TEXT_SIZE];

    fill_index(&order, is_split(schedule), index);
    for (int32_t i = 0; i < p; i++) {
        print_order(&order, i, false, text);
        print_textbook(schedule, p, v, g, i, expected);
        assert_string_equal(text, expected);
        if (is_split(schedule))
            check_weights(&order, schedule, i);
        for (int32_t k = 0; k < order.n_slots; k++)
            check_start(&order, index, i, k);
        int32_t most = count_in_flight(&order, i);
        assert_int_equal(mist_pipeline_in_flight(&order, i), most);
        int32_t first = mist_pipeline_in_flight_1f1b(p, 0, g);
        if (schedule == MIST_PIPELINE_1F1B)
            assert_int_equal(mist_pipeline_in_flight_1f1b(p, i, g), most);
        if (schedule == MIST_PIPELINE_ZB_H1)
            assert_int_equal(most, first);
        if (schedule == MIST_PIPELINE_ZB_H2)
            assert_int_equal(most, g < 2 * p - 1 ? g : 2 * p - 1);
        if (schedule == MIST_PIPELINE_ZB_V && g < 2 * p - 1)
            assert_true(most <= 2 * first);
        if (schedule == MIST_PIPELINE_ZB_V && g >= 2 * p - 1)
            assert_int_equal(most, 2 * first);
        if ((schedule == MIST_PIPELINE_ZB_V || schedule == MIST_PIPELINE_ZB_H2) &&
            g >= 2 * p - 1) { /* no gap */
            const struct mist_slot *slots = slots_of(&order, i);
            assert_int_equal(slots[0].start, i);
            assert_int_equal(slots[order.n_slots - 1].end, 3 * g * v + i);
        }
    }
    assert_int_equal(last_tick(&order), closed_form(schedule, p, v, g));
    if (p == MAX_STAGES && g == MAX_BATCHES)
        print_message("%-11s p %d v %d G %d: %3d ticks, bubble %d (%.1f %% of work)\n",
                      mist_pipeline_words[schedule], p, v, g, last_tick(&order),
                      last_tick(&order) - 3 * g * v,
                      100.0 * (last_tick(&order) - 3 * g * v) / (3 * g * v));
    mist_pipeline_order_fini(&order);
    assert_null(order.slots);
}

TEST(test_rules)
{
    struct index *index = malloc(sizeof *index);

    assert_non_null(index);
    for (int32_t p = 1; p <= MAX_STAGES; p++) {
        for (int32_t g = 1; g <= MAX_BATCHES; g++) {
            check_pipeline(MIST_PIPELINE_1F1B, p, 1, g, index);
            check_pipeline(MIST_PIPELINE_ZB_H1, p, 1, g, index);
            check_pipeline(MIST_PIPELINE_ZB_H2, p, 1, g, index);
            check_pipeline(MIST_PIPELINE_ZB_V, p, 2, g, index);
            for (int32_t v = 1; v <= MAX_CHUNKS && g % p == 0; v++)
                check_pipeline(MIST_PIPELINE_INTERLEAVED, p, v, g, index);
        }
    }
    free(index);
}

TEST(test_refusals)
{
    static const struct {
        enum mist_pipeline_schedule schedule;
        int32_t p, v, g;
        enum mist_status status;
        const char *message;
    } cases[] = {
        {MIST_PIPELINE_1F1B, 2, 2, 4, MIST_ERR_INPUT, "no 1f1b pipeline has 2 stages of"},
        {MIST_PIPELINE_ZB_H1, 2, 3, 4, MIST_ERR_INPUT, "3 chunks"},
        {MIST_PIPELINE_ZB_V, 2, 1, 4, MIST_ERR_INPUT, "of 1 chunks"},
        {MIST_PIPELINE_INTERLEAVED, 4, 2, 6, MIST_ERR_INPUT,
         "no interleaved pipeline has 4"},
        {MIST_PIPELINE_1F1B, 2, 1, INT32_MAX, MIST_ERR_RANGE, "too many slots"},
        {MIST_PIPELINE_INTERLEAVED, 2, INT32_MAX, 2, MIST_ERR_RANGE, "too many slots"},
    };
    struct mist_pipeline_order order;
    struct mist_err err;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(mist_pipeline_order_init(&order, cases[i].schedule, cases[i].p,
                                                  cases[i].v, cases[i].g, NULL, &err),
                         cases[i].status);
        assert_non_null(strstr(err.message, cases[i].message));
        mist_pipeline_order_fini(&order);
    }
}

TEST_MAIN(NULL, NULL)
