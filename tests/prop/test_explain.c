/*
 * Explanations against naive ones: times against sums over every instant of a timeline and
 * over the prices of steps, memory against the buffers that live at every task, FLOP
 * against formulas and the tasks of all ranks; over random plans.
 */
#include "tests/prop/random_plan.h"

#include "core/memory.h"
#include "core/statistics.h"
#include "sim/explain/explain.h"
#include "sim/model/framework.h"
#include "sim/schedule/memory_planner.h"
#include "tests/prop/made_up_machines.h"
#include "tests/unit/flat_cluster.h"
#include "tests/unit/tiny_models.h"
#include "traces/preset.h"

#include <math.h>

enum { N_PLANS = 240 };

static struct mist_err err;

#define assert_close(a, b, scale) assert_near(a, b, 1e-9 * (scale))

static int n_plans_of_run(void)
{
    const char *text = getenv("MIST_PLANS");

    return text ? atoi(text) : N_PLANS;
}

/* ------------------------------------------------------------------------------- time */

/* What a task that is no computation counts as, by its words. */
static enum mist_time_class naive_class(const struct mist_timeline_row *row)
{
    const char *stream = mist_stream_name(row->stream);
    const char *kind = mist_task_kind_name(row->kind);

    if (strcmp(stream, "host_to_device") == 0)
        return MIST_TIME_COPIES_IN;
    if (strcmp(stream, "device_to_host") == 0)
        return MIST_TIME_COPIES_OUT;
    if (strcmp(stream, "host") == 0)
        return MIST_TIME_HOST;
    if (strstr(kind, "send_") || strstr(kind, "recv_"))
        return MIST_TIME_TRANSFERS;
    if (strncmp(kind, "cp_", 3) == 0)
        return MIST_TIME_CONTEXT;
    if (strstr(kind, "gather_parameter"))
        return MIST_TIME_PARAMETERS;
    return strstr(kind, "tp_") && !strstr(kind, "gradient") ? MIST_TIME_TENSOR
                                                            : MIST_TIME_GRADIENTS;
}

static bool is_computation(int time_class)
{
    return time_class < MIST_TIME_TENSOR;
}

/* Streams in order, where they take turns computation behind all that it waits for. */
static int naive_place(enum mist_stream stream, bool takes_turns)
{
    if (!takes_turns)
        return (int)stream;
    if (mist_stream_channel(stream) == MIST_STREAM_GPU_GPU)
        return (int)stream - MIST_N_STREAMS;
    return stream == MIST_STREAM_COMPUTE ? MIST_STREAM_HOST - 1 : (int)stream;
}

/* Every piece between two edges, every row. Computation goes to MIST_TIME_PRODUCTS. */
static void naive_times(const struct mist_timeline_row *rows, size_t n, bool takes_turns,
                        double begin_s, double end_s, double out[MIST_N_TIME_CLASSES])
{
    double *edges = malloc((2 * n + 2) * sizeof *edges);
    size_t n_edges = 0;

    assert_non_null(edges);
    memset(out, 0, MIST_N_TIME_CLASSES * sizeof *out);
    edges[n_edges++] = begin_s;
    edges[n_edges++] = end_s;
    for (size_t i = 0; i < n; i++) {
        edges[n_edges++] = rows[i].start_s;
        edges[n_edges++] = rows[i].end_s;
    }
    mist_sort_doubles(edges, n_edges);
    for (size_t k = 0; k + 1 < n_edges; k++) {
        double from_s = edges[k], to_s = edges[k + 1];
        const struct mist_timeline_row *first = NULL;
        if (from_s < begin_s || to_s > end_s || to_s <= from_s)
            continue;
        for (size_t i = 0; i < n; i++)
            if (rows[i].start_s <= from_s && rows[i].end_s >= to_s &&
                (!first || naive_place(rows[i].stream, takes_turns) <
                               naive_place(first->stream, takes_turns)))
                first = &rows[i];
        out[!first                                 ? MIST_TIME_BUBBLE
            : first->stream == MIST_STREAM_COMPUTE ? MIST_TIME_PRODUCTS
                                                   : naive_class(first)] += to_s - from_s;
    }
    free(edges);
}

static const struct mist_timeline_row *rows_of(const struct mist_timeline *timeline,
                                               int32_t rank, size_t *n)
{
    const struct mist_timeline_row *first = NULL;

    *n = 0;
    for (size_t i = 0; i < timeline->n_rows; i++)
        if (timeline->rows[i].rank == rank) {
            first = first ? first : &timeline->rows[i];
            ++*n;
        }
    assert_non_null(first);
    return first;
}

static void expect_times(const struct mist_plan *plan, bool takes_turns,
                         const struct mist_replay_result *replay,
                         const struct mist_explanation *explanation)
{
    double mean_s[MIST_N_TIME_CLASSES] = {0}, all = 0, groups[MIST_N_TIME_GROUPS];

    assert_true(explanation->iteration_s == replay->iteration_s);
    for (int32_t s = 0; s < plan->n_stages; s++) {
        const struct mist_explained_stage *stage = &explanation->stages[s];
        double naive[MIST_N_TIME_CLASSES], sum = 0, computation = 0;
        size_t n;
        assert_int_equal(mist_plan_stage_of(plan, stage->rank), s);
        const struct mist_timeline_row *rows =
            rows_of(&replay->timeline, stage->rank, &n);
        naive_times(rows, n, takes_turns, replay->begin_s,
                    replay->begin_s + replay->iteration_s, naive);
        for (int c = 0; c < MIST_N_TIME_CLASSES; c++) {
            assert_true(stage->time_s[c] >= 0);
            sum += stage->time_s[c];
            mean_s[c] += stage->time_s[c] * (double)mist_stage_n_ranks(&plan->stages[s]);
            if (is_computation(c))
                computation += stage->time_s[c];
            else
                assert_close(stage->time_s[c], naive[c], replay->iteration_s);
        }
        assert_close(computation, naive[MIST_TIME_PRODUCTS], replay->iteration_s);
        assert_close(sum, replay->iteration_s, replay->iteration_s);
    }
    for (int c = 0; c < MIST_N_TIME_CLASSES; c++)
        assert_close(explanation->mean_s[c], mean_s[c] / mist_plan_n_ranks(plan),
                     replay->iteration_s);
    mist_explanation_groups(explanation, groups);
    for (int g = 0; g < MIST_N_TIME_GROUPS; g++)
        all += groups[g];
    assert_close(all, replay->iteration_s, replay->iteration_s);
}

/* The timeline with one rank of each stage has the same rows of these. */
static void expect_only_stages(const struct mist_plan *plan,
                               const struct mist_cost_model *model,
                               const struct mist_replay_result *whole)
{
    const struct mist_replay_options options = {
        .threads = 1, .folding = MIST_REPLAY_FOLD_NEVER, .only_stages = true};
    struct mist_replay_result part;
    int32_t i_stage = -1;
    size_t n, n_all = 0;

    must(mist_replay_run(plan, model, &options, &part, &err), &err);
    assert_true(part.iteration_s == whole->iteration_s);
    for (size_t i = 0; i < part.timeline.n_rows; i += n) {
        int rank = part.timeline.rows[i].rank;
        size_t n_whole;
        const struct mist_timeline_row *rows = rows_of(&whole->timeline, rank, &n_whole);
        (void)rows_of(&part.timeline, rank, &n);
        assert_int_equal(n, n_whole);
        assert_int_equal(mist_plan_stage_of(plan, rank), ++i_stage);
        for (size_t k = 0; k < n; k++)
            assert_close(part.timeline.rows[i + k].start_s - part.begin_s,
                         rows[k].start_s - whole->begin_s, 1);
        n_all += n;
    }
    assert_int_equal(i_stage, plan->n_stages - 1);
    assert_int_equal(n_all, part.timeline.n_rows);
    mist_replay_result_fini(&part);
}

TEST(test_times_are_those_of_the_timeline)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    uint64_t seed = test_seed(1401);

    assert_non_null(plan);
    for (int i = 0; i < n_plans_of_run(); i++) {
        const struct mist_replay_options options = {
            .threads = 1,
            .folding = i % 2 ? MIST_REPLAY_FOLD_AUTO : MIST_REPLAY_FOLD_NEVER};
        struct mist_random random;
        struct mist_trace_set traces;
        struct mist_cost_model *model;
        struct mist_replay_result replay;
        struct mist_explanation explanation;
        mist_random_init(&random, seed + (uint64_t)i);
        while (!draw_plan(&random, plan))
            ;
        make_machine(&traces, &machines[i % N_MACHINES]);
        must(mist_cost_model_new(&traces, &model, &err), &err);
        must(mist_replay_run(plan, model, &options, &replay, &err), &err);
        must(mist_explain(plan, model, 1, &replay, &explanation, &err), &err);
        expect_times(plan, traces.cluster.streams_take_turns, &replay, &explanation);
        if (i % 2 == 0)
            expect_only_stages(plan, model, &replay);
        mist_explanation_fini(&explanation);
        mist_replay_result_fini(&replay);
        mist_cost_model_free(model);
        mist_trace_set_fini(&traces);
    }
    free(plan);
}

/* -------------------------------------------------------------------------- operators */

static enum mist_time_class naive_op_class(const struct mist_step *step)
{
    const char *name = mist_op_name(step->op);

    if (strstr(name, "cross_entropy") || strcmp(name, "embedding") == 0)
        return MIST_TIME_LOSS;
    if (strncmp(name, "linear", 6) == 0)
        return MIST_TIME_PRODUCTS;
    return strncmp(name, "attention", 9) == 0 ? MIST_TIME_ATTENTION
                                              : MIST_TIME_ELEMENTWISE;
}

/* Prices of all computation of a rank, step by step; what is not a step's is the price's
 * rest. Undisturbed, that is the time it takes. */
static void naive_operators(const struct mist_plan *plan,
                            const struct mist_cost_model *model,
                            const struct mist_schedule *schedule,
                            double out[MIST_N_TIME_CLASSES])
{
    struct mist_cost *costs = calloc((size_t)schedule->n_costs + 1, sizeof *costs);

    assert_non_null(costs);
    memset(out, 0, MIST_N_TIME_CLASSES * sizeof *out);
    must(mist_cost_schedule(model, plan, schedule, costs, &err), &err);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        double launch_s = mist_cost_model_launch_s(model), rest_s;
        if (task->stream != MIST_STREAM_COMPUTE)
            continue;
        rest_s = costs[task->cost].time_s - launch_s;
        out[MIST_TIME_WAITING] += launch_s;
        if (task->part >= 0) {
            const struct mist_layer_layout *layout =
                &schedule->layouts[mist_schedule_layer_kind(&plan->model, task->layer)];
            const struct mist_part *part =
                &layout->programs[task->program].parts[task->part];
            bool is_again =
                task->kind == MIST_TASK_RECOMPUTE || task->program == MIST_PROGRAM_REMAKE;
            for (int k = 0; k < part->n_steps; k++) {
                const struct mist_step *step =
                    mist_layer_layout_steps(layout, task->program) + part->first_step + k;
                struct mist_cost cost;
                must(mist_cost_op(model, step->op, step->phase, plan->job.dtype,
                                  step->dims, (double)step->flop, (double)step->bytes,
                                  &cost, &err),
                     &err);
                out[is_again ? MIST_TIME_RECOMPUTATION : naive_op_class(step)] +=
                    cost.time_s;
                rest_s -= cost.time_s;
            }
        }
        out[MIST_TIME_OPTIMIZER] += rest_s; /* zeroes, norms, sums, AdamW */
    }
    free(costs);
}

TEST(test_operators_take_their_prices)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    uint64_t seed = test_seed(1402);
    int n_compared = 0;

    assert_non_null(plan);
    for (int i = 0; i < n_plans_of_run(); i++) {
        struct mist_random random;
        struct mist_trace_set traces;
        struct mist_cost_model *model;
        struct mist_explanation explanation;
        mist_random_init(&random, seed + (uint64_t)i);
        while (!draw_plan(&random, plan))
            ;
        for (int32_t s = 0; s < plan->n_stages; s++)
            plan->stages[s].updates_on_host = false; /* has no price here */
        flat_cluster_init(&traces, 64);
        traces.cluster.launch_us = 2;
        must(mist_cost_model_new(&traces, &model, &err), &err);
        must(mist_explain_plan(plan, model, 1, &explanation, &err), &err);
        for (int32_t s = 0; s < plan->n_stages; s++) {
            const struct mist_explained_stage *stage = &explanation.stages[s];
            struct mist_schedule *schedule;
            double naive[MIST_N_TIME_CLASSES], all_s = 0, own_s = 0;
            must(mist_schedule_build(plan, stage->rank, 1, &schedule, &err), &err);
            naive_operators(plan, model, schedule, naive);
            mist_schedule_free(schedule);
            for (int c = 0; is_computation(c); c++) {
                all_s += naive[c];
                own_s += stage->time_s[c];
            }
            if (fabs(all_s - own_s) > 1e-9 * all_s)
                continue; /* the iteration began before its window */
            n_compared++;
            for (int c = 0; is_computation(c); c++)
                assert_close(stage->time_s[c], naive[c], all_s);
        }
        mist_explanation_fini(&explanation);
        mist_cost_model_free(model);
        mist_trace_set_fini(&traces);
    }
    print_message("# %d stages compared\n", n_compared);
    assert_true(n_compared > n_plans_of_run() / 2);
    free(plan);
}

/* A price and its parts, of every task of a job of another framework. */
static void expect_splits(const struct mist_plan *plan,
                          const struct mist_cost_model *model)
{
    struct mist_schedule *schedule;
    double repeated_s = 0;

    must(mist_schedule_build(plan, 0, 0, &schedule, &err), &err);
    struct mist_cost *costs = calloc((size_t)schedule->n_costs + 1, sizeof *costs);
    assert_non_null(costs);
    must(mist_cost_schedule(model, plan, schedule, costs, &err), &err);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        struct mist_cost_split split;
        if (task->stream != MIST_STREAM_COMPUTE)
            continue;
        must(mist_cost_split(model, plan, schedule->layouts, task, &costs[task->cost],
                             &split, &err),
             &err);
        double sum = split.repeated_s + split.gradients_s + split.waiting_s;
        for (int k = 0; k < MIST_MAX_STEPS; k++)
            sum += split.step_s[k];
        assert_close(sum, costs[task->cost].time_s, costs[task->cost].time_s);
        repeated_s += split.repeated_s;
    }
    assert_true((repeated_s > 0) == plan->job.recomputes_attention);
    free(costs);
    mist_schedule_free(schedule);
}

TEST(test_prices_of_frameworks_split)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_trace_set traces;
    struct mist_cost_model *model;

    assert_non_null(plan);
    must(mist_trace_set_open(&traces, "a100-80:1x8", &err), &err);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    must(mist_model_load("gpt3-1.3b", &plan->model, &err), &err);
    plan->n_stages = 1;
    plan->n_micro_batches = 2;
    plan->stages[0] = mist_tiny_stage(plan->model.n_layers, 2, 1, 2);
    for (int framework = 1; framework < MIST_N_FRAMEWORKS; framework++)
        for (int again = 0; again < 2; again++)
            for (int seq = 64; seq <= 2048; seq *= 32) { /* bound by the host, and not */
                plan->job = (struct mist_job){
                    .global_batch = 4,
                    .seq_len = seq,
                    .dtype = MIST_DTYPE_BF16,
                    .computes_on_gpu = true,
                    .framework = (enum mist_framework_name)framework,
                    .attention = mist_framework_get((enum mist_framework_name)framework)
                                     ->attention,
                    .recomputes_attention = again,
                };
                must(mist_plan_check(plan, &err), &err);
                expect_splits(plan, model);
            }
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    free(plan);
}

/* Where computation stands still meanwhile, what goes on is communication: of a framework
 * whose streams take turns computation takes its prices, sums between tensor-parallel ranks
 * theirs, whatever else is due then. */
TEST(test_turns)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    const struct mist_replay_options options = {.threads = 1};
    struct mist_replay_result replay;
    struct mist_explanation explanation;
    struct mist_schedule *schedule;
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    double prices_s = 0, explained_s = 0, sums_s = 0;

    assert_non_null(plan);
    must(mist_trace_set_open(&traces, "a100-80:1x8,link=1GB/s", &err), &err);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    must(mist_model_load("gpt3-1.3b", &plan->model, &err), &err);
    plan->n_stages = 1;
    plan->n_micro_batches = 2;
    plan->stages[0] = mist_tiny_stage(plan->model.n_layers, 2, 1, 8);
    plan->job = (struct mist_job){.global_batch = 4,
                                  .seq_len = 2048,
                                  .dtype = MIST_DTYPE_BF16,
                                  .computes_on_gpu = true,
                                  .framework = MIST_FRAMEWORK_MEGATRON_2021,
                                  .attention = MIST_ATTENTION_FUSED};
    must(mist_plan_check(plan, &err), &err);
    must(mist_replay_run(plan, model, &options, &replay, &err), &err);
    must(mist_explain(plan, model, 1, &replay, &explanation, &err), &err);
    must(mist_schedule_build(plan, 0, 1, &schedule, &err), &err);
    struct mist_cost *costs = calloc((size_t)schedule->n_costs + 1, sizeof *costs);
    assert_non_null(costs);
    must(mist_cost_schedule(model, plan, schedule, costs, &err), &err);
    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        const struct mist_task *task = &schedule->tasks[i];
        if (task->stream == MIST_STREAM_COMPUTE)
            prices_s += costs[task->cost].time_s;
        else if (task->kind == MIST_TASK_TP_ALL_REDUCE)
            sums_s += costs[task->cost].time_s;
    }
    for (int c = 0; c < MIST_TIME_TENSOR; c++)
        explained_s += explanation.mean_s[c];
    assert_close(explained_s / prices_s, 1, 1e6); /* 0.1 % */
    assert_close(explanation.mean_s[MIST_TIME_TENSOR] / sums_s, 1, 1e7);
    free(costs);
    mist_schedule_free(schedule);
    mist_explanation_fini(&explanation);
    mist_replay_result_fini(&replay);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    free(plan);
}

/* ----------------------------------------------------------------------------- memory */

static int64_t round_up(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The content of a buffer, but for kept activations in full. */
static enum mist_content naive_content(const struct mist_schedule *schedule,
                                       const struct mist_buffer *buffer)
{
    enum mist_role role = buffer->role;

    if (role >= MIST_ROLE_GRADIENTS)
        return MIST_CONTENT_GRADIENTS;
    if (role >= MIST_ROLE_WEIGHTS || role == MIST_ROLE_TIED_WEIGHTS)
        return MIST_CONTENT_WEIGHTS;
    if (role == MIST_ROLE_STATE)
        return MIST_CONTENT_OPTIMIZER;
    if (role == MIST_ROLE_SCRATCH) {
        bool has[MIST_N_TASK_KINDS] = {false}; /* passes of its module while it lives */
        for (int32_t i = buffer->first_task; i <= buffer->last_task; i++)
            if (schedule->tasks[i].layer == buffer->layer &&
                schedule->tasks[i].micro_batch == buffer->micro_batch)
                has[schedule->tasks[i].kind] = true;
        return has[MIST_TASK_BACKWARD_INPUT] && has[MIST_TASK_BACKWARD_WEIGHT]
                   ? MIST_CONTENT_ACTIVATIONS
                   : MIST_CONTENT_WORKSPACES;
    }
    return role == MIST_ROLE_TOKENS || role == MIST_ROLE_TARGETS ||
                   role == MIST_ROLE_CONSTANT
               ? MIST_CONTENT_IDS
               : MIST_CONTENT_ACTIVATIONS;
}

/* At every task the buffers that live then; of the first at which most does, what they
 * hold. Returns that most. */
static int64_t naive_memory(const struct mist_schedule *schedule,
                            enum mist_buffer_arena arena, int64_t out[MIST_N_CONTENTS])
{
    int64_t most = -1;

    for (int32_t i = 0; i < schedule->n_tasks; i++) {
        int64_t live = 0, here[MIST_N_CONTENTS] = {0};
        for (int32_t b = 0; b < schedule->n_buffers; b++) {
            const struct mist_buffer *buffer = &schedule->buffers[b];
            if (buffer->arena != arena || buffer->first_task > i || buffer->last_task < i)
                continue;
            live += round_up(buffer->size_bytes);
            here[naive_content(schedule, buffer)] += buffer->size_bytes;
        }
        if (live > most) {
            most = live;
            memcpy(out, here, sizeof here);
        }
    }
    return most;
}

static void expect_arena(const struct mist_plan *plan,
                         const struct mist_schedule *schedule,
                         enum mist_buffer_arena arena)
{
    int64_t naive[MIST_N_CONTENTS], own[MIST_N_CONTENTS] = {0}, all = 0;
    int64_t most = naive_memory(schedule, arena, naive);
    struct mist_explained_memory memory;

    must(mist_explain_memory(plan, schedule, arena, &memory, &err), &err);
    for (int32_t i = 0; i < memory.n_parts; i++) {
        const struct mist_memory_part *part = &memory.parts[i];
        assert_true(part->bytes > 0);
        assert_true(i == 0 || part->content >= part[-1].content);
        for (int32_t k = 0; k < i; k++)
            assert_true(memory.parts[k].content != part->content ||
                        strcmp(memory.parts[k].tensor, part->tensor) != 0);
        own[part->content] += part->bytes;
        all += part->bytes;
    }
    assert_int_equal(all, schedule->arena_bytes[arena]);
    assert_int_equal(memory.arena_bytes, schedule->arena_bytes[arena]);
    for (int c = 0; c < MIST_N_CONTENTS; c++)
        if (c != MIST_CONTENT_ACTIVATIONS && c != MIST_CONTENT_HOLES)
            assert_int_equal(own[c], naive[c]);
    /* kept tensors are rounded inside of their buffers */
    assert_true(own[MIST_CONTENT_ACTIVATIONS] <= naive[MIST_CONTENT_ACTIVATIONS]);
    assert_true(own[MIST_CONTENT_HOLES] >= schedule->arena_bytes[arena] - most);
    mist_explained_memory_fini(&memory);
}

TEST(test_memory_is_that_of_live_buffers)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    uint64_t seed = test_seed(1403);

    assert_non_null(plan);
    for (int i = 0; i < n_plans_of_run(); i++) {
        struct mist_random random;
        mist_random_init(&random, seed + (uint64_t)i);
        while (!draw_plan(&random, plan))
            ;
        for (int32_t s = 0; s < plan->n_stages; s++) {
            struct mist_schedule *schedule;
            must(mist_schedule_build(plan, mist_plan_first_rank(plan, s), 1, &schedule,
                                     &err),
                 &err);
            for (int k = 0; k < MIST_N_ARENAS; k++)
                expect_arena(plan, schedule, (enum mist_buffer_arena)k);
            mist_schedule_free(schedule);
        }
    }
    free(plan);
}

/* One block of 64-byte tensors that are kept: tensor by tensor. */
TEST(test_kept_tensors_by_hand)
{
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_schedule *schedule;
    struct mist_explained_memory memory;
    int64_t qkv = 0, f1 = 0;

    assert_non_null(plan);
    must(mist_model_load("gpt3-125m", &plan->model, &err), &err);
    plan->n_stages = plan->n_micro_batches = 1;
    plan->job =
        (struct mist_job){.global_batch = 2, .seq_len = 256, .dtype = MIST_DTYPE_BF16};
    plan->stages[0] = mist_tiny_stage(plan->model.n_layers, 2, 1, 1);
    must(mist_plan_check(plan, &err), &err);
    must(mist_schedule_build(plan, 0, 1, &schedule, &err), &err);
    must(mist_explain_memory(plan, schedule, MIST_ARENA_DEVICE, &memory, &err), &err);
    for (int32_t i = 0; i < memory.n_parts; i++) {
        if (strcmp(memory.parts[i].tensor, "qkv") == 0)
            qkv = memory.parts[i].bytes;
        if (strcmp(memory.parts[i].tensor, "f1") == 0)
            f1 = memory.parts[i].bytes;
    }
    /* all blocks keep theirs when the head computes: 512 tokens, 3 and 4 times 768, bf16 */
    assert_int_equal(qkv, 12 * 512 * 3 * 768 * 2);
    assert_int_equal(f1, 12 * 512 * 4 * 768 * 2);
    mist_explained_memory_fini(&memory);
    mist_schedule_free(schedule);
    free(plan);
}

/* ------------------------------------------------------------------------------- FLOP */

TEST(test_model_flop)
{
    static const struct {
        const char *name;
        double layers, weights, width, vocab; /* weights: of the matrices of a block */
    } cases[] = {
        {"gpt3-175b", 96, 12. * 12288 * 12288, 12288, 0},
        {"llama3-8b", 32, 4096. * (4096 + 2 * 1024 + 4096) + 3. * 4096 * 14336, 4096,
         128256},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_model model;
        struct mist_model_count count;
        must(mist_model_load(cases[i].name, &model, &err), &err);
        double vocab = cases[i].vocab > 0 ? cases[i].vocab : model.vocab;
        must(mist_model_count(&model, 2048, &count, &err), &err);
        assert_close(count.flop_per_token,
                     6 * (cases[i].layers * cases[i].weights + vocab * cases[i].width) +
                         12 * cases[i].layers * 2048 * cases[i].width,
                     count.flop_per_token);
    }
}

/* 2 rows * inputs * outputs, 4 batch * seq^2 * heads * width of a head, or a part of it. */
static double naive_flop(const struct mist_step *step)
{
    const int64_t *d = step->dims;
    const char *name = mist_op_name(step->op);

    if (strncmp(name, "linear", 6) == 0)
        return 2.0 * (double)(d[0] * d[1] * d[2]);
    bool is_part = strcmp(name, "attention_part") == 0; /* of d[5] */
    return is_part || strcmp(name, "attention") == 0
               ? 4.0 * (double)(d[0] * d[1] * d[1] * d[2] * d[4] / (is_part ? d[5] : 1))
               : 0;
}

TEST(test_recomputed_flop)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    uint64_t seed = test_seed(1404);

    assert_non_null(plan);
    for (int i = 0; i < n_plans_of_run(); i++) {
        struct mist_random random;
        double own, naive = 0;
        mist_random_init(&random, seed + (uint64_t)i);
        while (!draw_plan(&random, plan))
            ;
        for (int32_t r = 0; r < mist_plan_n_ranks(plan); r++) {
            struct mist_schedule *schedule;
            must(mist_schedule_build(plan, r, 1, &schedule, &err), &err);
            for (int32_t k = 0; k < schedule->n_tasks; k++) {
                const struct mist_task *task = &schedule->tasks[k];
                if (task->kind != MIST_TASK_RECOMPUTE || task->part < 0)
                    continue;
                const struct mist_layer_layout *layout =
                    &schedule
                         ->layouts[mist_schedule_layer_kind(&plan->model, task->layer)];
                const struct mist_part *part =
                    &layout->programs[task->program].parts[task->part];
                for (int s = 0; s < part->n_steps; s++)
                    naive += naive_flop(&mist_layer_layout_steps(
                        layout, task->program)[part->first_step + s]);
            }
            mist_schedule_free(schedule);
        }
        must(mist_recomputed_flop(plan, &own, &err), &err);
        assert_close(own, naive, fmax(own, naive));
    }
    free(plan);
}

TEST_MAIN(NULL, NULL)
