/*
 * Bubbles of pipelines as published: Qi et al. 2023 (arXiv 2401.10241) profiled forward,
 * input gradient, weight gradient and transfer of a stage, and computed how much of an
 * iteration every schedule is idle. Ours, replayed pass by pass from the same four times,
 * are the same to the four digits that are printed.
 *
 * The published interleaved pipelines are faster than any can be: in their calculation
 * (interleave.py of the authors' repository), where a micro-batch goes on from the last
 * stage to the next chunk on the first one, or back, only the first of every p waits for
 * it. A second, naive calculation here does both: without that it is ours, with it theirs.
 *
 * ZB-H2 and ZB-2p are published for stages that update parameters before the norm of all
 * gradients is known, each behind its own last slot: an iteration is as long as the stage
 * takes that takes longest. Ours waits for the norm; with that both are idle for the way
 * of a forward to the last stage, which is less than any order can be.
 */
#include "tests/unit/test.h"

#include "core/atomic_file.h"
#include "core/csv.h"
#include "sim/closed_form/pass_replay.h"
#include "tests/unit/reference_path.h"

#include <math.h>

enum { STAGES, MICRO, SCHEDULE, TF, TB, TW, TCOMM, BUBBLE, LAYERS, HEADS, HIDDEN, SEQ };

static const struct mist_csv_column columns[] = {
    [STAGES] = {"stages_gpus", MIST_CSV_REQUIRED},
    [MICRO] = {"num_microbatches", MIST_CSV_REQUIRED},
    [SCHEDULE] = {"schedule", MIST_CSV_REQUIRED},
    [TF] = {"TF_ms", MIST_CSV_REQUIRED},
    [TB] = {"TB_ms", MIST_CSV_REQUIRED},
    [TW] = {"TW_ms", MIST_CSV_REQUIRED},
    [TCOMM] = {"Tcomm_ms", MIST_CSV_REQUIRED},
    [BUBBLE] = {"paper_bubble_rate_theory", MIST_CSV_REQUIRED},
    [LAYERS] = {"layers", MIST_CSV_REQUIRED},
    [HEADS] = {"heads", MIST_CSV_REQUIRED},
    [HIDDEN] = {"hidden", MIST_CSV_REQUIRED},
    [SEQ] = {"seq", MIST_CSV_REQUIRED},
    {"model", MIST_CSV_OPTIONAL},
    {"micro_batch", MIST_CSV_OPTIONAL},
    {"measured_samples_per_gpu_s", MIST_CSV_OPTIONAL},
    {"derived_iter_s", MIST_CSV_OPTIONAL},
    {"measured_mem_GB", MIST_CSV_OPTIONAL},
};

/* A row of the table. */
struct published {
    int32_t n_stages, n_micro, n_layers;
    double forward_s, input_s, weight_s, transfer_s, bubble_frac;
    double freed_frac; /* of what a forward keeps, by the input gradient */
};

static double number(const struct mist_csv *csv, size_t i_row, size_t i_column)
{
    double value;
    struct mist_err err = {0};

    must(mist_csv_get_double(csv, i_row, i_column, 0, 1e9, &value, &err), &err);
    return value;
}

/* Seconds of an iteration of n_chunks chunks of a stage; behind_s follows the last slot
 * of one of them. */
static double replay_s(enum mist_pipeline_schedule schedule, int32_t n_chunks,
                       const struct published *row, int32_t i_behind, double behind_s)
{
    struct mist_pipeline_order order;
    struct mist_interference interference;
    struct mist_err err = {0};
    int32_t n = row->n_stages * n_chunks;
    struct mist_pass_times *times = calloc((size_t)n, sizeof *times);
    struct mist_pipeline_pass *passes = calloc((size_t)n, sizeof *passes);
    double iteration_s, chunk_frac = 1.0 / n_chunks;

    assert_true(times && passes);
    for (int32_t i = 0; i < n; i++)
        times[i] = (struct mist_pass_times){
            .forward_s = row->forward_s * chunk_frac,
            .backward_s = (row->input_s + row->weight_s) * chunk_frac,
            .input_s = row->input_s * chunk_frac,
            .weight_s = row->weight_s * chunk_frac,
            .send_forward_s = i < n - 1 ? row->transfer_s : 0,
            .send_backward_s = i > 0 ? row->transfer_s : 0,
            .behind_s = i == i_behind ? behind_s : 0,
            .n_layers = 1,
        };
    for (int32_t i = 0; i < row->n_stages; i++)
        passes[i] = (struct mist_pipeline_pass){
            .forward_us = (int32_t)lround(1e6 * row->forward_s),
            .input_us = (int32_t)lround(1e6 * row->input_s),
            .weight_us = (int32_t)lround(1e6 * row->weight_s),
            .transfer_us = (int32_t)lround(1e6 * row->transfer_s),
            .freed_frac = row->freed_frac,
        };
    mist_interference_init(&interference);
    must(mist_pipeline_order_init(&order, schedule, row->n_stages, n_chunks, row->n_micro,
                                  passes, &err),
         &err);
    must(mist_pass_replay(&order, &interference, times, &iteration_s, &err), &err);
    mist_pipeline_order_fini(&order);
    free(times);
    free(passes);
    return iteration_s;
}

static double idle_frac(const struct published *row, double iteration_s)
{
    return 1 -
           row->n_micro * (row->forward_s + row->input_s + row->weight_s) / iteration_s;
}

static double replay_bubble(enum mist_pipeline_schedule schedule, int32_t n_chunks,
                            const struct published *row)
{
    return idle_frac(row, replay_s(schedule, n_chunks, row, 0, 0));
}

/* The same where no stage waits for the others between iterations: the longest that any
 * of them takes from its own first slot to its last. */
static double own_bubble(enum mist_pipeline_schedule schedule,
                         const struct published *row)
{
    const double late_s = 1e3; /* after everything else */
    double longest_s = 0;

    for (int32_t i = 0; i < row->n_stages; i++)
        longest_s = fmax(longest_s, replay_s(schedule, 1, row, i, late_s) - late_s -
                                        i * (row->forward_s + row->transfer_s));
    return idle_frac(row, longest_s);
}

/* A forward keeps 34 h + 5 a s bytes of a token and block (Korthikanti et al. 2022), of
 * which weight gradients read 32 h (section 3.2 of Qi et al.). */
static struct published read_row(const struct mist_csv *csv, size_t i)
{
    double hidden = number(csv, i, HIDDEN);
    double kept = 34 * hidden + 5 * number(csv, i, HEADS) * number(csv, i, SEQ);

    return (struct published){
        .n_stages = (int32_t)number(csv, i, STAGES),
        .n_micro = (int32_t)number(csv, i, MICRO),
        .n_layers = (int32_t)number(csv, i, LAYERS),
        .forward_s = 1e-3 * number(csv, i, TF),
        .input_s = 1e-3 * number(csv, i, TB),
        .weight_s = 1e-3 * number(csv, i, TW),
        .transfer_s = 1e-3 * number(csv, i, TCOMM),
        .bubble_frac = number(csv, i, BUBBLE),
        .freed_frac = 1 - 32 * hidden / kept,
    };
}

/* ----------------------------------------------------------------- naive interleaving */

struct naive {
    const struct published *row;
    int32_t n_chunks;
    bool is_strict; /* whoever goes on to the next chunk waits for it */
    /* [virtual stage][micro-batch] when it has ended, 0: not yet */
    double *forward_s, *backward_s;
};

static double *cell_of(const struct naive *at, double *ends_s, int32_t i_virtual,
                       int32_t micro_batch)
{
    return &ends_s[i_virtual * at->row->n_micro + micro_batch];
}

/* Whether turn k of a stage is a forward, and which of its kind: 2 (p - 1 - i) + (v - 1) p
 * forwards, then one backward after each. */
static bool is_forward_turn(const struct naive *at, int32_t i_stage, int32_t k,
                            int32_t *i_turn)
{
    int32_t p = at->row->n_stages, n = at->row->n_micro * at->n_chunks;
    int32_t n_front = 2 * (p - 1 - i_stage) + (at->n_chunks - 1) * p;

    n_front = n_front < n ? n_front : n;
    if (k < n_front || k >= 2 * n - n_front) {
        *i_turn = k < n_front ? k : k - n;
        return k < n_front;
    }
    *i_turn = (k - n_front) / 2 + ((k - n_front) % 2 == 0 ? n_front : 0);
    return (k - n_front) % 2 == 0;
}

/* Runs turn k of a stage; false: what it waits for is not there. */
static bool run_turn(struct naive *at, int32_t i_stage, int32_t k, double *clock_s)
{
    const struct published *row = at->row;
    int32_t p = row->n_stages, v = at->n_chunks, i_turn;
    bool is_forward = is_forward_turn(at, i_stage, k, &i_turn);
    int32_t micro_batch = i_turn / (p * v) * p + i_turn % p;
    int32_t chunk = is_forward ? i_turn / p % v : v - 1 - i_turn / p % v;
    int32_t i_virtual = chunk * p + i_stage, end = is_forward ? 0 : p * v - 1;
    int32_t i_before = is_forward ? i_virtual - 1 : i_virtual + 1;
    bool goes_on = i_stage == (is_forward ? 0 : p - 1) && i_virtual != end;
    double *ends_s = is_forward ? at->forward_s : at->backward_s, ready_s = 0;

    if (i_virtual != end) {
        double before_s = *cell_of(at, ends_s, i_before, micro_batch);
        if (before_s == 0)
            return false;
        if (!goes_on || at->is_strict || micro_batch % p == 0)
            ready_s = before_s + row->transfer_s;
    }
    *clock_s = fmax(*clock_s, ready_s) +
               (is_forward ? row->forward_s : row->input_s + row->weight_s) / v;
    *cell_of(at, ends_s, i_virtual, micro_batch) = *clock_s;
    return true;
}

/* Idle share of an interleaved iteration. */
static double naive_bubble(const struct published *row, int32_t n_chunks, bool is_strict)
{
    size_t n = (size_t)(row->n_stages * n_chunks * row->n_micro);
    struct naive at = {.row = row,
                       .n_chunks = n_chunks,
                       .is_strict = is_strict,
                       .forward_s = calloc(n, sizeof(double)),
                       .backward_s = calloc(n, sizeof(double))};
    int32_t *next = calloc((size_t)row->n_stages, sizeof *next), n_turns, n_done;
    double *clock_s = calloc((size_t)row->n_stages, sizeof *clock_s), end_s = 0;

    assert_true(at.forward_s && at.backward_s && next && clock_s);
    n_turns = 2 * row->n_micro * n_chunks;
    do {
        n_done = 0;
        for (int32_t i = 0; i < row->n_stages; i++)
            while (next[i] < n_turns && run_turn(&at, i, next[i], &clock_s[i])) {
                next[i]++;
                n_done++;
            }
    } while (n_done > 0);
    for (int32_t i = 0; i < row->n_stages; i++) {
        assert_int_equal(next[i], n_turns);
        end_s = fmax(end_s, clock_s[i]);
    }
    free(at.forward_s);
    free(at.backward_s);
    free(next);
    free(clock_s);
    return 1 - row->n_micro * (row->forward_s + row->input_s + row->weight_s) / end_s;
}

/* --------------------------------------------------------------------------- the table */

static void check(const char *name, const struct published *row, double bubble_frac)
{
    if (fabs(bubble_frac - row->bubble_frac) >
        0.6e-4) /* half a digit, and rounded times */
        fail_msg("%s: p %d, m %d: %.5f, published %.4f", name, row->n_stages,
                 row->n_micro, bubble_frac, row->bubble_frac);
}

/* Where all stages wait for each other, none is idle for less than the way of a forward
 * to the last one; zb_2p for no more, zb_h2 for hardly more. */
static void check_waiting(enum mist_pipeline_schedule schedule,
                          const struct published *row)
{
    double compute_s = row->n_micro * (row->forward_s + row->input_s + row->weight_s);
    double way_s = (row->n_stages - 1) * (row->forward_s + row->transfer_s);
    double more = replay_bubble(schedule, 1, row) - idle_frac(row, compute_s + way_s);

    assert_true(more > -1e-9);
    if (schedule == MIST_PIPELINE_ZB_2P)
        assert_true(more < 0.5e-4);
    if (schedule == MIST_PIPELINE_ZB_H2)
        assert_true(more < 6e-4);
}

static void check_row(const char *name, const struct published *row)
{
    static const struct {
        const char *name;
        enum mist_pipeline_schedule schedule;
        bool waits; /* all stages between iterations */
    } others[] = {
        {"1F1B", MIST_PIPELINE_1F1B, true},    {"ZB-H1", MIST_PIPELINE_ZB_H1, true},
        {"ZB-1p", MIST_PIPELINE_ZB_1P, true},  {"ZB-H2", MIST_PIPELINE_ZB_H2, false},
        {"ZB-2p", MIST_PIPELINE_ZB_2P, false},
    };

    if (strcmp(name, "1F1B-I") == 0) { /* a layer a chunk; the ends have one less */
        int32_t n_chunks = (row->n_layers + 2) / row->n_stages;
        double ours = replay_bubble(MIST_PIPELINE_INTERLEAVED, n_chunks, row);
        assert_true(fabs(ours - naive_bubble(row, n_chunks, true)) < 1e-9);
        check(name, row, naive_bubble(row, n_chunks, false));
        return;
    }
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i].name) == 0) {
            check_waiting(others[i].schedule, row);
            check(name, row,
                  others[i].waits ? replay_bubble(others[i].schedule, 1, row)
                                  : own_bubble(others[i].schedule, row));
            return;
        }
    fail_msg("no schedule %s", name);
}

/* The table without the lines that say where it is from; the caller frees. */
static char *read_table(const char *path, size_t *n)
{
    struct mist_err err = {0};
    char *text;

    must(mist_file_read_all(path, 1 << 20, &text, n, &err), &err);
    while (*text == '#') {
        size_t cut = strcspn(text, "\n") + 1;
        *n -= cut;
        memmove(text, text + cut, *n + 1);
    }
    return text;
}

TEST(test_bubbles)
{
    struct mist_csv *csv;
    struct mist_err err = {0};
    char path[REFERENCE_PATH_BYTES];
    size_t n;
    int n_checked = 0;

    if (!find_reference("pipeline_timings/zero_bubble_tables.csv", path))
        skip();
    char *text = read_table(path, &n);
    must(mist_csv_load_text(path, text, n, columns, sizeof columns / sizeof *columns,
                            &csv, &err),
         &err);
    for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
        if (!*mist_csv_text(csv, i, BUBBLE))
            continue;
        struct published row = read_row(csv, i);
        check_row(mist_csv_text(csv, i, SCHEDULE), &row);
        n_checked++;
    }
    print_message("%d rates of six schedules\n", n_checked);
    assert_int_equal(n_checked, 72);
    mist_csv_free(csv);
    free(text);
}

TEST_MAIN(NULL, NULL)
