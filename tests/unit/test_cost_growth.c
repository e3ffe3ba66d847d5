/*
 * What of a price goes with the tokens of a micro-batch: against operators priced one by
 * one, and messages of half the bytes.
 */
#include "tests/unit/test.h"

#include "sim/cost/cost_model.h"
#include "sim/replay/replay.h"
#include "tests/unit/tiny_models.h"
#include "traces/preset.h"

#include <math.h>

static struct mist_err err;

struct fixture {
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct mist_plan plan;
};

static void start(struct fixture *at, int32_t tp)
{
    memset(at, 0, sizeof *at);
    must(mist_preset_parse(&at->traces, "a100-80:1x8", &err), &err);
    must(mist_cost_model_new(&at->traces, &at->model, &err), &err);
    at->plan.model = mist_small_model(MIST_FAMILY_GPT, 3, 512);
    at->plan.model.max_seq = 512;
    at->plan.job = (struct mist_job){.global_batch = 12,
                                     .seq_len = 512,
                                     .dtype = MIST_DTYPE_BF16,
                                     .computes_on_gpu = true};
    at->plan.n_micro_batches = 3;
    at->plan.n_stages = 1;
    at->plan.stages[0] = (struct mist_stage_plan){.n_layers = 3,
                                                  .n_nodes = 1,
                                                  .n_devices = tp,
                                                  .micro_batch = 4,
                                                  .dp = 1,
                                                  .tp = tp,
                                                  .n_checkpointed = 1};
    must(mist_plan_check(&at->plan, &err), &err);
}

static void stop(struct fixture *at)
{
    mist_cost_model_free(at->model);
    mist_trace_set_fini(&at->traces);
}

/* Steps of a forward or backward task: attention apart from the rest. */
static void add_steps(const struct fixture *at, const struct mist_schedule *schedule,
                      const struct mist_task *task, double *attention_s, double *other_s)
{
    const struct mist_layer_layout *layout =
        &schedule->layouts[mist_schedule_layer_kind(&at->plan.model, task->layer)];
    const struct mist_part *part = &layout->programs[task->program].parts[task->part];
    const struct mist_step *steps = mist_layer_layout_steps(layout, task->program);

    for (int32_t i = part->first_step; i < part->first_step + part->n_steps; i++) {
        struct mist_cost cost;
        if (mist_op_is_communication(steps[i].op))
            continue;
        must(mist_cost_op(at->model, steps[i].op, steps[i].phase, at->plan.job.dtype,
                          steps[i].dims, (double)steps[i].flop, (double)steps[i].bytes,
                          &cost, &err),
             &err);
        *(steps[i].op == MIST_OP_ATTENTION ? attention_s : other_s) += cost.time_s;
    }
}

/* One rank, so tasks follow one another: of samples of half the length all goes down with
 * tokens, and attention once more. */
static void one_rank_follows_its_operators(void **state)
{
    struct fixture at;
    struct mist_schedule *schedule;
    struct mist_replay_result result;
    double attention_s = 0, other_s = 0, plain_s = 0;

    start(&at, 1);
    must(mist_schedule_build(&at.plan, 0, 0, &schedule, &err), &err);
    for (int32_t i = 0; i < schedule->n_tasks; i++)
        if (mist_task_kind_sort(schedule->tasks[i].kind) == MIST_SORT_PROGRAM)
            add_steps(&at, schedule, &schedule->tasks[i], &attention_s, &other_s);
    mist_schedule_free(schedule);
    assert_true(attention_s > 0 && other_s > attention_s);
    for (int32_t length = 512; length > 0; length /= 2) {
        const struct mist_lengths lengths = {.median = length};
        const struct mist_replay_options plain = {.skips_timeline = true};
        struct mist_replay_options options = plain;
        struct mist_loads loads;
        must(mist_loads_make(&at.plan, &lengths, MIST_PACKING_NONE, 1, 2, &loads, &err),
             &err);
        options.loads = &loads;
        if (length == 512) {
            must(mist_replay_run(&at.plan, at.model, &plain, &result, &err), &err);
            plain_s = result.iteration_s;
            mist_replay_result_fini(&result);
        }
        must(mist_replay_run(&at.plan, at.model, &options, &result, &err), &err);
        double x = length / 512.0;
        double want_s = plain_s - other_s * (1 - x) - attention_s * (1 - x * x);
        if (!(fabs(result.iteration_s - want_s) <= 1e-9 * plain_s))
            fail_msg("%d tokens: %.17g s, expected %.17g", (int)length,
                     result.iteration_s, want_s);
        if (length == 512) /* to the bit */
            assert_true(result.iteration_s == plain_s);
        mist_replay_result_fini(&result);
        mist_loads_fini(&loads);
    }
    stop(&at);
}

/* Of tensor-parallel ranks, messages go with tokens as far as half of one is faster. */
static void messages_follow_their_bytes(void **state)
{
    struct fixture at;
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
        struct mist_cost whole, half;
        if (task->kind == MIST_TASK_OPTIMIZER || task->kind == MIST_TASK_REDUCE_NORM)
            assert_true(growth->tokens_s == 0 && growth->squares_s == 0);
        if (task->kind != MIST_TASK_TP_ALL_REDUCE)
            continue;
        must(mist_cost_link(at.model, MIST_LINK_ALL_REDUCE, shapes[0], task->bytes,
                            &whole, &err),
             &err);
        must(mist_cost_link(at.model, MIST_LINK_ALL_REDUCE, shapes[0], task->bytes / 2,
                            &half, &err),
             &err);
        assert_true(fabs(growth->tokens_s - 2 * (whole.time_s - half.time_s)) <
                    1e-9 * whole.time_s);
        assert_true(growth->squares_s == 0);
        n_messages++;
    }
    assert_true(n_messages > 0);
    free(costs);
    free(growths);
    free(shapes);
    mist_schedule_free(schedule);
    stop(&at);
}

/* A framework's host launches as many kernels for few tokens: then nothing is faster. */
static void a_host_takes_as_long_for_less(void **state)
{
    struct fixture at;
    struct mist_replay_result result;
    double before_s = 0, least_s = 0;

    start(&at, 1);
    at.plan.job.framework = MIST_FRAMEWORK_DEEPSPEED;
    at.plan.job.seq_len = at.plan.model.max_seq = 1 << 14;
    for (int32_t length = 1; length <= 1 << 14; length *= 2) {
        const struct mist_lengths lengths = {.median = length};
        struct mist_replay_options options = {.skips_timeline = true};
        struct mist_loads loads;
        must(mist_loads_make(&at.plan, &lengths, MIST_PACKING_NONE, 1, 2, &loads, &err),
             &err);
        options.loads = &loads;
        must(mist_replay_run(&at.plan, at.model, &options, &result, &err), &err);
        assert_true(result.iteration_s >= before_s);
        before_s = result.iteration_s;
        if (length == 1)
            least_s = before_s;
        if (length == 2) /* both wait for the host */
            assert_true(before_s == least_s);
        mist_replay_result_fini(&result);
        mist_loads_fini(&loads);
    }
    assert_true(before_s > 1.2 * least_s);
    stop(&at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_rank_follows_its_operators),
        cmocka_unit_test(messages_follow_their_bytes),
        cmocka_unit_test(a_host_takes_as_long_for_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
