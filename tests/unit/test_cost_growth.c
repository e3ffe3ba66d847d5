/*
 * What tasks cost on fewer tokens: against plans of that sequence length, and messages of as
 * many bytes less.
 */
#include "tests/unit/test.h"

#include "sim/replay/replay.h"
#include "tests/unit/small_job.h"

#include <math.h>

enum { SEQ_LEN = 1024 };

static struct mist_err err;

static void start(struct small_job *at, int32_t tp)
{
    struct mist_stage_plan stage = mist_tiny_stage(3, 4, 1, tp);

    stage.n_checkpointed = 1;
    small_job_start(at, SEQ_LEN, 1, stage);
}

static double replay_s(const struct small_job *at, const struct mist_plan *plan,
                       const struct mist_loads *loads)
{
    const struct mist_replay_options options = {.loads = loads, .skips_timeline = true};
    struct mist_replay_result result;

    must(mist_replay_run(plan, at->model, &options, &result, &err), &err);
    double time_s = result.iteration_s;
    mist_replay_result_fini(&result);
    return time_s;
}

/* An iteration of samples that all hold one sequence of so many tokens. */
static double equal_s(const struct small_job *at, int32_t length)
{
    const struct mist_lengths lengths = {.median = length};
    struct mist_loads loads;

    must(mist_loads_make(&at->plan, &lengths, MIST_PACKING_NONE, 1, 2, &loads, &err),
         &err);
    double time_s = replay_s(at, &at->plan, &loads);
    mist_loads_fini(&loads);
    return time_s;
}

/* What it takes to load the tokens of an iteration, which is the same for all loads. */
static double load_s(const struct small_job *at, const struct mist_plan *plan)
{
    struct mist_schedule *schedule;
    double time_s = 0;

    must(mist_schedule_build(plan, 0, 0, &schedule, &err), &err);
    struct mist_cost *costs = calloc((size_t)schedule->n_costs, sizeof *costs);
    must(mist_cost_schedule(at->model, plan, schedule, costs, &err), &err);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (schedule->tasks[i].kind == MIST_TASK_LOAD_BATCH)
            time_s += costs[schedule->tasks[i].cost].time_s;
    free(costs);
    mist_schedule_free(schedule);
    return time_s;
}

/* Samples of half the tokens cost what a plan of half the sequence length does, whoever
 * trains; full ones what the plan does, to the bit; between two, something between (0.5 %
 * off where tasks wait for a host, which attention and the rest share out; there shorter ones
 * may also take longer, as what overlaps with messages gets another share). */
TEST(equal_lengths_are_another_plan)
{
    const enum mist_framework_name frameworks[] = {
        MIST_FRAMEWORK_OURS, MIST_FRAMEWORK_MEGATRON, MIST_FRAMEWORK_DEEPSPEED};

    for (int i = 0; i < 6; i++) {
        struct small_job at;
        double before_s = INFINITY;
        start(&at, 1 + i % 2);
        at.plan.job.framework = frameworks[i / 2];
        assert_true(equal_s(&at, SEQ_LEN) == replay_s(&at, &at.plan, NULL));
        for (int32_t length = SEQ_LEN; length >= SEQ_LEN / 128; length /= 2) {
            struct mist_plan *plan = malloc(sizeof *plan);
            *plan = at.plan;
            plan->job.seq_len = length;
            double drawn_s = equal_s(&at, length);
            double plain_s = replay_s(&at, plan, NULL);
            double more_s = load_s(&at, &at.plan) - load_s(&at, plan); /* at most */
            if (drawn_s < plain_s * (1 - 1e-9) || drawn_s > plain_s * (1 + 1e-9) + more_s)
                fail_msg("%d: %d tokens: %.12g s, a plan of that length %.12g s", i,
                         (int)length, drawn_s, plain_s);
            double between_s = equal_s(&at, length * 4 / 3);
            if (length < SEQ_LEN && (between_s < 0.995 * fmin(drawn_s, before_s) ||
                                     between_s > 1.005 * fmax(drawn_s, before_s)))
                fail_msg("%d: %d tokens: %.12g s, not within %.12g and %.12g", i,
                         (int)length * 4 / 3, between_s, drawn_s, before_s);
            before_s = drawn_s;
            free(plan);
        }
        small_job_stop(&at);
    }
}

/* Two sequences in a sample: attention is that of twice as many samples of half the length,
 * and nearly all else (but what has a row for each position) sees the same tokens. */
TEST(attention_is_within_sequences)
{
    struct small_job at;
    struct mist_loads loads;
    const struct mist_lengths lengths = {.median = SEQ_LEN / 2};

    start(&at, 1);
    must(mist_loads_make(&at.plan, &lengths, MIST_PACKING_FIRST_FIT, 1, 2, &loads, &err),
         &err);
    double packed_s = replay_s(&at, &at.plan, &loads);
    double full_s = replay_s(&at, &at.plan, NULL);
    mist_loads_fini(&loads);
    at.plan.job.seq_len /= 2;
    at.plan.job.global_batch *= 2;
    at.plan.stages[0].micro_batch *= 2;
    must(mist_plan_check(&at.plan, &err), &err);
    double short_s = replay_s(&at, &at.plan, NULL);
    if (!(fabs(packed_s - short_s) < 0.4 * (full_s - short_s)))
        fail_msg("packed %.12g s, short %.12g s, full %.12g s", packed_s, short_s,
                 full_s);
    small_job_stop(&at);
}

/* Messages of tensor-parallel ranks have as many bytes less as there are tokens less. */
TEST(messages_follow_their_bytes)
{
    struct small_job at;
    struct mist_schedule *schedule;
    int n_messages = 0;

    start(&at, 2);
    must(mist_schedule_build(&at.plan, 0, 0, &schedule, &err), &err);
    size_t n = (size_t)schedule->n_costs;
    struct mist_cost *costs = calloc(n, sizeof *costs);
    struct mist_cost_growth *growths = calloc(n, sizeof *growths);
    struct mist_group_shape *shapes = calloc(n, sizeof *shapes);
    for (size_t i = 0; i < n; i++)
        shapes[i] = (struct mist_group_shape){1, 2, 1};
    must(mist_cost_schedule(at.model, &at.plan, schedule, costs, &err), &err);
    must(
        mist_cost_find_growth(at.model, &at.plan, schedule, shapes, costs, growths, &err),
        &err);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        const struct mist_cost_growth *growth = &growths[task->cost];
        struct mist_cost whole, less;
        if (task->kind == MIST_TASK_OPTIMIZER || task->kind == MIST_TASK_REDUCE_NORM)
            assert_int_equal(growth->n_points, 0);
        if (task->kind != MIST_TASK_TP_ALL_REDUCE)
            continue;
        must(mist_cost_link(at.model, MIST_LINK_ALL_REDUCE, shapes[0], task->bytes,
                            &whole, &err),
             &err);
        for (int k = 0; k < MIST_GROWTH_POINTS; k++) {
            must(mist_cost_link(at.model, MIST_LINK_ALL_REDUCE, shapes[0],
                                task->bytes >> k, &less, &err),
                 &err);
            double less_s = mist_cost_grow_s(growth, 1.0 / (1 << k), 1.0 / (1 << 2 * k));
            assert_true(fabs(less_s - (less.time_s - whole.time_s)) <
                        1e-9 * whole.time_s);
        }
        n_messages++;
    }
    assert_true(n_messages > 0);
    free(costs);
    free(growths);
    free(shapes);
    mist_schedule_free(schedule);
    small_job_stop(&at);
}

TEST_MAIN(NULL, NULL)
