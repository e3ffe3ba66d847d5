/*
 * Pipelines that ran elsewhere, pass by pass: what each forward and backward took is known,
 * and what one transfer did; when everything happened follows from the order alone. It
 * comes out within 2 % of what was measured. The order that was recorded is ours, too.
 *
 *   pp8_16_microbatches.csv        1F1B, 8 stages, 19 iterations behind the first, which
 *                                  starts things up. A transfer takes what the first
 *                                  micro-batch waited for it, on the way down.
 *   pp4_interleaved_rtx4090.csv    4 stages of 4 chunks, one iteration. A transfer takes
 *                                  3.5 ms, as its source says.
 */
#include "tests/unit/test.h"

#include "core/csv.h"
#include "core/memory.h"
#include "sim/engine/event_engine.h"
#include "sim/schedule/pipeline_order.h"
#include "tests/unit/reference_path.h"

#include <math.h>

enum { MAX_STAGES = 8, MAX_SLOTS = 64, MAX_TASKS = 3 * MAX_SLOTS, N_ITERATIONS = 20 };

/* A slot of a stage as it ran. */
struct pass {
    int32_t chunk, micro_batch;
    bool is_forward;
    double start_s, end_s;
};

/* An iteration as it ran. */
struct run {
    int32_t n_stages, n_chunks, n_micro;
    int32_t n_slots[MAX_STAGES];
    struct pass passes[MAX_STAGES][MAX_SLOTS]; /* by their start */
    double iteration_s, transfer_s;
};

static double number(const struct mist_csv *csv, size_t i_row, size_t i_column)
{
    double value;
    struct mist_err err = {0};

    must(mist_csv_get_double(csv, i_row, i_column, 0, 1e12, &value, &err), &err);
    return value;
}

static int compare_passes(const void *a_, const void *b_)
{
    const struct pass *a = a_, *b = b_;

    return (a->start_s > b->start_s) - (a->start_s < b->start_s);
}

static void add_pass(struct run *run, int32_t i_stage, struct pass pass)
{
    assert_in_range(i_stage, 0, MAX_STAGES - 1);
    assert_true(run->n_slots[i_stage] < MAX_SLOTS);
    run->passes[i_stage][run->n_slots[i_stage]++] = pass;
}

/* ------------------------------------------------------------------------------ replay */

/* Of a stage: its slots in their order, then its transfers as all stages order them. */
struct program {
    struct mist_event_program shared;
    struct mist_event_device device;
    uint8_t channel[MAX_TASKS];
    int32_t dep_offset[MAX_TASKS + 1], dep[MAX_TASKS], lane[MAX_TASKS];
    int32_t waits_for[MAX_TASKS]; /* -1: nothing */
    double work_s[MAX_TASKS];
    int32_t groups[4];
};

/* To the next stage and from the one before; back to it, and from the next. Each has a
 * stream, since none waits for another. */
enum { FORWARD_OUT, FORWARD_IN, BACK_OUT, BACK_IN, N_LANES };
static const enum mist_stream streams[N_LANES] = {MIST_STREAM_SEND, MIST_STREAM_RECEIVE,
                                                  MIST_STREAM_DEVICE_TO_HOST,
                                                  MIST_STREAM_HOST_TO_DEVICE};

static int32_t add_task(struct program *to, enum mist_stream channel, double work_s,
                        int32_t lane, int32_t waits_for)
{
    int32_t i = to->shared.n_tasks++;

    assert_true(i < MAX_TASKS);
    to->channel[i] = (uint8_t)channel;
    to->work_s[i] = work_s;
    to->lane[i] = lane;
    to->waits_for[i] = waits_for;
    return i;
}

/* The slot of a stage that does a pass. */
static int32_t find_slot(const struct mist_pipeline_order *order, int32_t i_virtual,
                         int32_t micro_batch, bool is_forward)
{
    int32_t p = order->n_stages, k = 0;
    const struct mist_slot *slots = order->slots + i_virtual % p * order->n_slots;

    while (slots[k].chunk != i_virtual / p || slots[k].micro_batch != micro_batch ||
           (slots[k].kind == MIST_SLOT_FORWARD) != is_forward)
        k++;
    return k;
}

/* What a slot makes for another stage, sent and received. */
static void add_transfer(struct program *programs, const struct run *run,
                         const struct mist_pipeline_order *order, int32_t i_stage,
                         int32_t i_slot)
{
    const struct mist_slot *slot = &order->slots[i_stage * order->n_slots + i_slot];
    bool is_forward = slot->kind == MIST_SLOT_FORWARD;
    int32_t p = order->n_stages, i_virtual = slot->chunk * p + i_stage;
    int32_t to = is_forward ? i_virtual + 1 : i_virtual - 1;
    int32_t out = is_forward ? FORWARD_OUT : BACK_OUT;
    int32_t in = is_forward ? FORWARD_IN : BACK_IN;

    if (to < 0 || to == p * order->n_chunks)
        return;
    add_task(&programs[i_stage], streams[out], run->transfer_s, out, i_slot);
    programs[to % p].waits_for[find_slot(order, to, slot->micro_batch, is_forward)] =
        add_task(&programs[to % p], streams[in], run->transfer_s, in, -1);
}

/* By when the slots end on the clock that all stages share. */
static void add_transfers(struct program *programs, const struct run *run,
                          const struct mist_pipeline_order *order)
{
    int32_t next[MAX_STAGES] = {0}, n_left = order->n_stages * order->n_slots;

    for (; n_left > 0; n_left--) {
        int32_t first = 0, end = INT32_MAX;
        for (int32_t i = 0; i < order->n_stages; i++)
            if (next[i] < order->n_slots &&
                order->slots[i * order->n_slots + next[i]].end < end) {
                first = i;
                end = order->slots[i * order->n_slots + next[i]].end;
            }
        add_transfer(programs, run, order, first, next[first]++);
    }
}

static void finish_program(struct program *at)
{
    struct mist_event_program *shared = &at->shared;

    for (int32_t i = 0; i < shared->n_tasks; i++) {
        at->dep_offset[i + 1] = at->dep_offset[i];
        if (at->waits_for[i] >= 0)
            at->dep[at->dep_offset[i + 1]++] = at->waits_for[i];
    }
    shared->n_lanes = N_LANES;
    shared->channel = at->channel;
    shared->dep_offset = at->dep_offset;
    shared->dep = at->dep;
    shared->lane = at->lane;
    at->device.work_s = at->work_s;
    at->device.group = at->groups;
}

/* The stages' programs; that they ran in this order is checked, too. */
static void make_programs(const struct run *run, const struct mist_pipeline_order *order,
                          struct program *programs)
{
    int32_t p = run->n_stages;

    for (int32_t i = 0; i < p; i++) {
        const int32_t groups[] = {i, (i + p - 1) % p, p + i, p + (i + 1) % p};
        memcpy(programs[i].groups, groups, sizeof groups);
        programs[i].device.program = i;
        assert_int_equal(run->n_slots[i], order->n_slots);
        for (int32_t k = 0; k < order->n_slots; k++) {
            const struct mist_slot *slot = &order->slots[i * order->n_slots + k];
            const struct pass *pass = &run->passes[i][k];
            assert_int_equal(pass->chunk, slot->chunk);
            assert_int_equal(pass->micro_batch, slot->micro_batch);
            assert_int_equal(pass->is_forward, slot->kind == MIST_SLOT_FORWARD);
            add_task(&programs[i], MIST_STREAM_COMPUTE, pass->end_s - pass->start_s, -1,
                     -1);
        }
    }
    add_transfers(programs, run, order);
    for (int32_t i = 0; i < p; i++)
        finish_program(&programs[i]);
}

static double replay(struct run *run, enum mist_pipeline_schedule schedule)
{
    static struct program programs[MAX_STAGES];
    struct mist_event_program shared[MAX_STAGES];
    struct mist_event_device devices[MAX_STAGES];
    struct mist_pipeline_order order;
    struct mist_event_engine *engine;
    struct mist_event_result result;
    struct mist_arena arena;
    struct mist_err err = {0};

    for (int32_t i = 0; i < run->n_stages; i++)
        qsort(run->passes[i], (size_t)run->n_slots[i], sizeof *run->passes[i],
              compare_passes);
    must(mist_pipeline_order_init(&order, schedule, run->n_stages, run->n_chunks,
                                  run->n_micro, NULL, &err),
         &err);
    memset(programs, 0, sizeof programs);
    make_programs(run, &order, programs);
    mist_pipeline_order_fini(&order);
    for (int32_t i = 0; i < run->n_stages; i++) {
        shared[i] = programs[i].shared;
        devices[i] = programs[i].device;
    }
    const struct mist_event_graph graph = {.n_programs = run->n_stages,
                                           .n_devices = run->n_stages,
                                           .n_groups = 2 * run->n_stages,
                                           .n_iterations = 1,
                                           .program = shared,
                                           .device = devices};
    mist_arena_init(&arena);
    must(mist_event_engine_prepare(&engine, &graph, &arena, &err), &err);
    must(mist_event_engine_run(engine, &result, &err), &err);
    double iteration_s = result.makespan_s;
    mist_arena_fini(&arena);
    return iteration_s;
}

static void check(const char *name, struct run *run, enum mist_pipeline_schedule schedule,
                  double *worst_frac)
{
    double error_frac = replay(run, schedule) / run->iteration_s - 1;

    if (fabs(error_frac) > 0.02)
        fail_msg("%s: %+.2f %%, measured %.4g s", name, 100 * error_frac,
                 run->iteration_s);
    if (fabs(error_frac) > fabs(*worst_frac))
        *worst_frac = error_frac;
}

/* -------------------------------------------------------------------------------- runs */

/* Mean of the waits of the first micro-batch between stages. */
static double first_wait_s(const struct run *run)
{
    double sum_s = 0;

    for (int32_t i = 1; i < run->n_stages; i++)
        sum_s += run->passes[i][0].start_s - run->passes[i - 1][0].end_s;
    return fmax(sum_s / (run->n_stages - 1), 0);
}

TEST(test_1f1b)
{
    enum { ITERATION, STAGE, PASS, MICRO, START, END, TOTAL };
    static const struct mist_csv_column columns[] = {
        {"iter", MIST_CSV_REQUIRED},
        {"pp_rank", MIST_CSV_REQUIRED},
        {"op", MIST_CSV_REQUIRED},
        {"idx", MIST_CSV_REQUIRED},
        {"start_ms", MIST_CSV_REQUIRED},
        {"end_ms", MIST_CSV_REQUIRED},
        {"iter_total_ms", MIST_CSV_REQUIRED},
        {"dur_ms", MIST_CSV_OPTIONAL},
        {"mem_GB", MIST_CSV_OPTIONAL},
    };
    static struct run runs[N_ITERATIONS];
    struct mist_csv *csv;
    struct mist_err err = {0};
    char path[REFERENCE_PATH_BYTES];
    double worst_frac = 0;

    if (!find_reference("pipeline_timings/pp8_16_microbatches.csv", path))
        skip();
    must(mist_csv_load(path, columns, sizeof columns / sizeof *columns, &csv, &err),
         &err);
    for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
        struct run *run = &runs[(int32_t)number(csv, i, ITERATION) - 1];
        run->n_stages = 8;
        run->n_chunks = 1;
        run->n_micro = 16;
        run->iteration_s = fmax(run->iteration_s, 1e-3 * number(csv, i, TOTAL));
        add_pass(run, (int32_t)number(csv, i, STAGE),
                 (struct pass){
                     .micro_batch = (int32_t)number(csv, i, MICRO),
                     .is_forward = strcmp(mist_csv_text(csv, i, PASS), "fwd") == 0,
                     .start_s = 1e-3 * number(csv, i, START),
                     .end_s = 1e-3 * number(csv, i, END),
                 });
    }
    mist_csv_free(csv);
    for (int i = 1; i < N_ITERATIONS; i++) {
        runs[i].transfer_s = first_wait_s(&runs[i]);
        check("1F1B", &runs[i], MIST_PIPELINE_1F1B, &worst_frac);
    }
    print_message("%d iterations, at worst %+.2f %%\n", N_ITERATIONS - 1,
                  100 * worst_frac);
}

/* What the arguments of a traced pass say: {"iteration": 10, "microbatch": 0, ...}. */
static int32_t argument(const char *text, const char *name)
{
    const char *at = strstr(text, name);

    assert_non_null(at);
    return (int32_t)strtol(at + strlen(name) + 2, NULL, 10);
}

TEST(test_interleaved)
{
    enum { STAGE, PASS, START, DURATION, ARGS };
    static const struct mist_csv_column columns[] = {
        {"stage", MIST_CSV_REQUIRED},    {"op", MIST_CSV_REQUIRED},
        {"start_us", MIST_CSV_REQUIRED}, {"dur_us", MIST_CSV_REQUIRED},
        {"args", MIST_CSV_REQUIRED},     {"iter", MIST_CSV_OPTIONAL},
    };
    static struct run run = {
        .n_stages = 4, .n_chunks = 4, .n_micro = 8, .transfer_s = 3.5e-3};
    struct mist_csv *csv;
    struct mist_err err = {0};
    char path[REFERENCE_PATH_BYTES];
    double begin_s = INFINITY, end_s = 0, worst_frac = 0;

    if (!find_reference("pipeline_timings/pp4_interleaved_rtx4090.csv", path))
        skip();
    must(mist_csv_load(path, columns, sizeof columns / sizeof *columns, &csv, &err),
         &err);
    for (size_t i = 0; i < mist_csv_n_rows(csv); i++) {
        const char *args = mist_csv_text(csv, i, ARGS);
        double start_s = 1e-6 * number(csv, i, START);
        struct pass pass = {
            .chunk = argument(args, "model_chunk"),
            .micro_batch = argument(args, "microbatch"),
            .is_forward = strcmp(mist_csv_text(csv, i, PASS), "forward") == 0,
            .start_s = start_s,
            .end_s = start_s + 1e-6 * number(csv, i, DURATION),
        };
        begin_s = fmin(begin_s, pass.start_s);
        end_s = fmax(end_s, pass.end_s);
        add_pass(&run, (int32_t)number(csv, i, STAGE), pass);
    }
    mist_csv_free(csv);
    run.iteration_s = end_s - begin_s;
    check("interleaved", &run, MIST_PIPELINE_INTERLEAVED, &worst_frac);
    print_message("one iteration, %+.2f %%\n", 100 * worst_frac);
}

TEST_MAIN(NULL, NULL)
