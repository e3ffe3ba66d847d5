/*
 * The closed form against the replay of the same plans: random models, pipelines, uneven
 * layers, data parallelism, checkpointing and sharding, on two made-up machines, one
 * whose communication disturbs computation mildly and one where both share the cores.
 */
/* cmocka needs this order */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "core/random.h"
#include "sim/pipeline_order.h"
#include "sim/replay.h"
#include "sim/stage_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_PLANS = 150, MAX_STAGES = 4, N_BATCH = 200 };

/* A machine, as its trace set tells. */
struct machine {
    const char *name;
    double alpha_us, us_per_byte; /* of a link */
    double slow_compute, slow_transfer;
};

static const struct machine machines[] = {
    {"mild interference, fast links", 15, 1e-4, 1.05, 1.3},
    {"mild interference, slow links", 30, 2e-3, 1.15, 1.2},
    {"heavy interference, slow links", 30, 2e-3, 2.0, 2.0},
};

enum { N_MACHINES = sizeof machines / sizeof *machines };

static uint64_t seed_of_run(void)
{
    const char *text = getenv("MIST_SEED");

    return text ? strtoull(text, NULL, 10) : 20240607;
}

static int32_t between(struct mist_random *random, int32_t low, int32_t high)
{
    return low + (int32_t)mist_random_below(random, high - low + 1);
}

/* --------------------------------------------------------------------------- machines */

static void add_links(struct mist_trace_set *set, const struct machine *machine)
{
    static const enum mist_link_operation operations[] = {
        MIST_LINK_ALL_REDUCE, MIST_LINK_ALL_GATHER,     MIST_LINK_REDUCE_SCATTER,
        MIST_LINK_SEND_RECV,  MIST_LINK_HOST_TO_DEVICE, MIST_LINK_DEVICE_TO_HOST};

    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        for (int ranks = 1; ranks <= 4; ranks *= 2)
            for (int64_t bytes = 1024; bytes <= (int64_t)1 << 30; bytes *= 8) {
                double rounds = operations[i] == MIST_LINK_ALL_REDUCE ? 2. : 1.;
                double share = operations[i] <= MIST_LINK_REDUCE_SCATTER
                                   ? (double)(ranks - 1) / ranks
                                   : 1.;
                struct mist_link_row row = {
                    .operation = operations[i],
                    .nodes = 1,
                    .ranks_per_node = ranks,
                    .concurrent_groups = 1,
                    .bytes = bytes,
                    .time_us = rounds * (machine->alpha_us +
                                         share * (double)bytes * machine->us_per_byte),
                    .repetitions = 10,
                };
                assert_int_equal(mist_trace_set_add_link(set, &row, NULL), MIST_OK);
            }
}

/* What the bundle of two channels takes; the cost model finds the factors back. */
static void add_interference(struct mist_trace_set *set, const struct machine *machine)
{
    struct mist_interference truth;

    mist_interference_init(&truth);
    truth.slowdown[3][MIST_STREAM_COMPUTE] = machine->slow_compute;
    truth.slowdown[3][MIST_STREAM_GPU_GPU] = machine->slow_transfer;
    for (int i = 1; i <= 12; i++) {
        struct mist_interference_row row = {
            .channels = 3,
            .nodes = 1,
            .ranks_per_node = 2,
            .alone_us = {1000, 160. * i},
            .repetitions = 10,
        };
        row.together_us = mist_interference_bundle_s(&truth, row.alone_us);
        assert_int_equal(mist_trace_set_add_interference(set, &row, NULL), MIST_OK);
    }
}

static void make_machine(struct mist_trace_set *set, const struct machine *machine)
{
    mist_trace_set_init(set);
    set->cluster = (struct mist_cluster){
        .name = "made up",
        .backend = MIST_TRACE_DATASHEET,
        .nodes = 1,
        .devices_per_node = 64,
        .device_memory_bytes = (int64_t)1 << 36,
        .host_memory_bytes_per_node = (int64_t)1 << 38,
        .peak_flop_per_s = {[MIST_TRACE_FP32] = 2e11},
        .memory_bytes_per_s = 3e10,
        .launch_us = 3,
    };
    add_links(set, machine);
    add_interference(set, machine);
}

/* ------------------------------------------------------------------------------ plans */

static void random_model(struct mist_random *random, struct mist_model *out)
{
    bool is_llama = between(random, 0, 1);
    int32_t heads = 2 * between(random, 1, 6);

    *out = (struct mist_model){
        .name = "random",
        .family = is_llama ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT,
        .hidden = 32 * heads,
        .n_heads = heads,
        .n_kv_heads = is_llama ? heads / 2 : heads,
        .head_dim = 32,
        .ffn = 32 * heads * (is_llama ? 3 : 4),
        .vocab = between(random, 200, 4000),
        .max_seq = is_llama ? 0 : 256,
        .has_bias = !is_llama,
        .norm_epsilon = 1e-5,
        .rope_theta = is_llama ? 10000 : 0,
    };
}

/* Layers within two of even, as far as a stage keeps one. */
static void random_plan(struct mist_random *random, struct mist_plan *out)
{
    int32_t dp = 1 << between(random, 0, 2), layers = between(random, 1, 5);
    int32_t samples = 4 << between(random, 0, 2);

    *out = (struct mist_plan){0};
    random_model(random, &out->model);
    out->n_micro_batches = between(random, 1, 16);
    out->n_stages = between(random, 1, MAX_STAGES);
    out->job = (struct mist_job){
        .global_batch = (int64_t)out->n_micro_batches * samples,
        .seq_len = 64 * between(random, 1, 4),
    };
    for (int32_t i = 0; i < out->n_stages; i++) {
        int32_t n = layers + between(random, -1, 1);
        n = n < 1 ? 1 : n;
        out->stages[i] = (struct mist_stage_plan){
            .n_layers = n,
            .n_nodes = 1,
            .n_devices = dp,
            .micro_batch = samples / dp,
            .dp = dp,
            .tp = 1,
            .n_checkpointed = between(random, 0, 2) == 0 ? 0 : between(random, 0, n),
            .shards_optimizer = between(random, 0, 1),
        };
        out->model.n_layers += n;
    }
    assert_int_equal(mist_plan_check(out, NULL), MIST_OK);
}

/* ------------------------------------------------------------------------- comparison */

struct sums {
    double iteration_frac[N_PLANS];           /* |closed - replay| / replay */
    double live_ratio[N_PLANS * MAX_STAGES];  /* closed form / largest live sum */
    double arena_ratio[N_PLANS * MAX_STAGES]; /* closed form / planned arena */
    int32_t n_plans, n_stages, n_below;
};

static int compare_doubles(const void *a_void, const void *b_void)
{
    double a = *(const double *)a_void, b = *(const double *)b_void;

    return (a > b) - (a < b);
}

static void expect_ok(enum mist_status status, const struct mist_err *err)
{
    if (status != MIST_OK)
        fail_msg("%s", err->message);
}

static void compare(const struct mist_cost_model *costs, const struct mist_plan *plan,
                    struct sums *sums)
{
    struct mist_err err;
    struct mist_catalog *catalog;
    struct mist_stage_model *model;
    struct mist_replay_result replay;
    struct mist_prediction *closed = malloc(sizeof *closed);

    assert_non_null(closed);
    expect_ok(mist_catalog_new(&plan->model, &catalog, &err), &err);
    expect_ok(mist_stage_model_new(catalog, costs, &plan->job, 1, &model, &err), &err);
    expect_ok(mist_stage_model_plan(model, plan, closed, &err), &err);
    expect_ok(mist_replay_run(catalog, plan, costs, NULL, &replay, &err), &err);
    assert_true(replay.is_folded);
    sums->iteration_frac[sums->n_plans++] =
        fabs(closed->iteration_s / replay.iteration_s - 1);
    for (int32_t i = 0; i < plan->n_stages; i++) {
        double peak = (double)closed->peak_bytes[i];
        double arena = (double)replay.stages[i].arena_bytes[MIST_ARENA_DEVICE];
        sums->live_ratio[sums->n_stages] = peak / (double)replay.stages[i].peak_bytes;
        sums->n_below += peak < arena;
        sums->arena_ratio[sums->n_stages++] = peak / arena;
    }
    mist_replay_result_fini(&replay);
    mist_stage_model_free(model);
    mist_catalog_free(catalog);
    free(closed);
}

static void closed_form_follows_the_replay(void **state)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct sums *sums = malloc(sizeof *sums);
    static double all[N_MACHINES * N_PLANS];
    uint64_t seed = seed_of_run();

    (void)state;
    assert_true(plan && sums);
    print_message("seed %llu\n", (unsigned long long)seed);
    for (int i = 0; i < N_MACHINES; i++) {
        struct mist_random random;
        struct mist_trace_set traces;
        struct mist_cost_model *costs;
        struct mist_err err;
        memset(sums, 0, sizeof *sums);
        mist_random_init(&random, seed + (uint64_t)i);
        make_machine(&traces, &machines[i]);
        expect_ok(mist_cost_model_new(&traces, &costs, &err), &err);
        for (int k = 0; k < N_PLANS; k++) {
            random_plan(&random, plan);
            compare(costs, plan, sums);
        }
        qsort(sums->iteration_frac, N_PLANS, sizeof(double), compare_doubles);
        qsort(sums->live_ratio, (size_t)sums->n_stages, sizeof(double), compare_doubles);
        qsort(sums->arena_ratio, (size_t)sums->n_stages, sizeof(double), compare_doubles);
        int32_t last = sums->n_stages - 1;
        print_message("%s: iteration time off by %.4f in the median, %.4f in nine of "
                      "ten, %.4f at worst; memory over live %.4f to %.4f, over arena "
                      "%.4f %.4f %.4f (min median max), below it %d of %d\n",
                      machines[i].name, sums->iteration_frac[N_PLANS / 2],
                      sums->iteration_frac[N_PLANS * 9 / 10],
                      sums->iteration_frac[N_PLANS - 1], sums->live_ratio[0],
                      sums->live_ratio[last], sums->arena_ratio[0],
                      sums->arena_ratio[last / 2], sums->arena_ratio[last],
                      (int)sums->n_below, (int)sums->n_stages);
        assert_true(sums->iteration_frac[N_PLANS / 2] <= 0.03);
        memcpy(all + (size_t)i * N_PLANS, sums->iteration_frac,
               sizeof sums->iteration_frac);
        assert_true(sums->live_ratio[0] >= 1);
        assert_true(sums->live_ratio[last] <= 1.01);
        assert_true(sums->arena_ratio[last] <= 1.01);
        mist_cost_model_free(costs);
        mist_trace_set_fini(&traces);
    }
    qsort(all, N_MACHINES * N_PLANS, sizeof *all, compare_doubles);
    print_message("all machines: off by %.4f in the median\n",
                  all[N_MACHINES * N_PLANS / 2]);
    assert_true(all[N_MACHINES * N_PLANS / 2] <= 0.03);
    free(plan);
    free(sums);
}

/* Equal stages without data parallelism: what a pipeline's transfers cost, alone. */
static void transfers_are_waited_for(void **state)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct sums *sums = calloc(1, sizeof *sums);
    struct mist_random random;
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
    struct mist_err err;

    (void)state;
    assert_true(plan && sums);
    mist_random_init(&random, seed_of_run());
    make_machine(&traces, &machines[2]);
    expect_ok(mist_cost_model_new(&traces, &costs, &err), &err);
    while (sums->n_plans < N_PLANS) {
        random_plan(&random, plan);
        int32_t layers = plan->stages[0].n_layers, samples = plan->stages[0].micro_batch;
        samples *= plan->stages[0].dp;
        for (int32_t i = 0; i < plan->n_stages; i++) {
            plan->stages[i].n_layers = layers;
            plan->stages[i].n_checkpointed = 0;
            plan->stages[i].dp = plan->stages[i].n_devices = 1;
            plan->stages[i].micro_batch = samples;
        }
        plan->model.n_layers = layers * plan->n_stages;
        plan->model.vocab = 64;
        if (plan->n_stages > 1)
            compare(costs, plan, sums);
    }
    qsort(sums->iteration_frac, N_PLANS, sizeof(double), compare_doubles);
    print_message("equal stages, dp 1: off by %.4f in the median, %.4f in nine of ten\n",
                  sums->iteration_frac[N_PLANS / 2],
                  sums->iteration_frac[N_PLANS * 9 / 10]);
    assert_true(sums->iteration_frac[N_PLANS / 2] <= 0.015);
    mist_cost_model_free(costs);
    mist_trace_set_fini(&traces);
    free(plan);
    free(sums);
}

/* One rank: nothing overlaps, so G t + d is the whole truth. */
static void one_stage_is_exact(void **state)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct mist_prediction *closed = malloc(sizeof *closed);
    struct mist_random random;
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
    struct mist_err err;
    double worst = 0;

    (void)state;
    assert_true(plan && closed);
    mist_random_init(&random, seed_of_run());
    make_machine(&traces, &machines[0]);
    expect_ok(mist_cost_model_new(&traces, &costs, &err), &err);
    for (int n_done = 0; n_done < 40;) {
        struct mist_catalog *catalog;
        struct mist_stage_model *model;
        struct mist_replay_result replay;
        random_plan(&random, plan);
        if (plan->n_stages > 1 || plan->stages[0].dp > 1)
            continue;
        expect_ok(mist_catalog_new(&plan->model, &catalog, &err), &err);
        expect_ok(mist_stage_model_new(catalog, costs, &plan->job, 1, &model, &err),
                  &err);
        expect_ok(mist_stage_model_plan(model, plan, closed, &err), &err);
        expect_ok(mist_replay_run(catalog, plan, costs, NULL, &replay, &err), &err);
        worst = fmax(worst, fabs(closed->iteration_s / replay.iteration_s - 1));
        mist_replay_result_fini(&replay);
        mist_stage_model_free(model);
        mist_catalog_free(catalog);
        n_done++;
    }
    print_message("one rank: off by %.2g at worst\n", worst);
    assert_true(worst < 1e-9);
    mist_cost_model_free(costs);
    mist_trace_set_fini(&traces);
    free(plan);
    free(closed);
}

/* A batch of configurations of one shape against the same one by one, as a plan. */
static void batches_equal_single_calls(void **state)
{
    struct mist_random random;
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
    struct mist_catalog *catalog;
    struct mist_stage_model *model;
    struct mist_stage_values values;
    struct mist_err err;
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_prediction *closed = malloc(sizeof *closed);
    static double columns[MIST_STAGE_N_COLUMNS][N_BATCH], t[N_BATCH], d[N_BATCH],
        peak[N_BATCH];
    struct mist_tape_input inputs[MIST_STAGE_N_COLUMNS];

    (void)state;
    assert_true(plan && closed);
    mist_random_init(&random, seed_of_run());
    make_machine(&traces, &machines[2]);
    expect_ok(mist_cost_model_new(&traces, &costs, &err), &err);
    random_model(&random, &plan->model);
    plan->job = (struct mist_job){.seq_len = 128};
    expect_ok(mist_catalog_new(&plan->model, &catalog, &err), &err);
    expect_ok(mist_stage_model_new(catalog, costs, &plan->job, 1, &model, &err), &err);
    struct mist_stage_shape shape = {false, false, 2, 2, 1, 1, 2};
    expect_ok(mist_stage_model_prepare(model, &shape, &values, &err), &err);
    void *scratch =
        aligned_alloc(64, (mist_stage_model_scratch_bytes(model) + 63) / 64 * 64);
    for (int i = 0; i < N_BATCH; i++) {
        int32_t n_layers = between(&random, 1, 9), g = between(&random, 1, 9);
        columns[MIST_STAGE_LAYERS][i] = n_layers;
        columns[MIST_STAGE_CHECKPOINTED][i] = between(&random, 0, n_layers);
        columns[MIST_STAGE_SHARDS][i] = between(&random, 0, 1);
        columns[MIST_STAGE_IN_FLIGHT][i] = mist_pipeline_in_flight(3, 1, g);
        columns[MIST_STAGE_MICRO_BATCHES][i] = g;
    }
    for (int i = 0; i < MIST_STAGE_N_COLUMNS; i++)
        inputs[i] = (struct mist_tape_input){columns[i], 0};
    mist_stage_model_eval(model, &values, inputs, N_BATCH, t, d, peak, scratch);
    plan->n_stages = 3;
    for (int i = 0; i < N_BATCH; i++) {
        plan->n_micro_batches = (int32_t)columns[MIST_STAGE_MICRO_BATCHES][i];
        plan->job.global_batch = (int64_t)4 * plan->n_micro_batches;
        plan->model.n_layers = 2 + (int32_t)columns[MIST_STAGE_LAYERS][i];
        for (int k = 0; k < 3; k++)
            plan->stages[k] = (struct mist_stage_plan){.n_layers = 1,
                                                       .n_nodes = 1,
                                                       .n_devices = 2,
                                                       .micro_batch = 2,
                                                       .dp = 2,
                                                       .tp = 1};
        plan->stages[1].n_layers = (int32_t)columns[MIST_STAGE_LAYERS][i];
        plan->stages[1].n_checkpointed = (int32_t)columns[MIST_STAGE_CHECKPOINTED][i];
        plan->stages[1].shards_optimizer = columns[MIST_STAGE_SHARDS][i] > 0;
        expect_ok(mist_plan_check(plan, &err), &err);
        expect_ok(mist_stage_model_plan(model, plan, closed, &err), &err);
        assert_true(closed->stable_s[1] == t[i]);
        assert_true(closed->extra_s[1] == d[i]);
        assert_true((double)closed->peak_bytes[1] == ceil(peak[i]));
    }
    free(scratch);
    mist_stage_model_free(model);
    mist_catalog_free(catalog);
    mist_cost_model_free(costs);
    mist_trace_set_fini(&traces);
    free(plan);
    free(closed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(closed_form_follows_the_replay),
        cmocka_unit_test(transfers_are_waited_for),
        cmocka_unit_test(one_stage_is_exact),
        cmocka_unit_test(batches_equal_single_calls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
