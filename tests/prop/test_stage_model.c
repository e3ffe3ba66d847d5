/*
 * The closed form against the replay of the same plans: random models, pipelines, uneven
 * layers and knobs, kind by kind (nothing, tensor parallelism, ZeRO, offloading,
 * everything), in fp32 and bf16, on three made-up machines: two whose channels disturb
 * one another mildly and one where they share the cores; passes against the replay with
 * every schedule of the pipeline. Memory: test_stage_memory.c.
 *
 * MIST_SEED: which plans; MIST_PLANS: how many of each kind; MIST_WORST: prints the
 * worst.
 */
#include "tests/unit/closed_plan.h"
#include "tests/unit/expr_eval.h"
#include "tests/unit/test.h"

#include "sim/closed_form/stage_model.h"
#include "sim/closed_form/stage_model_internal.h" /* the bundle */
#include "sim/replay/replay.h"
#include "sim/schedule/pipeline_order.h"
#include "tests/prop/made_up_machines.h"
#include "tests/prop/stage_plans.h"
#include "tests/unit/plan_passes.h"
#include "tune/stage_price.h"

#include <math.h>

enum { N_PLANS = 100, MAX_PLANS = 2000, N_BATCH = 200 };

/* Which plans, and how far the iteration time by the closed form may be off: in the median
 * and at worst. */
struct bars {
    struct kind kind;
    double median_frac, worst_frac;
};

/* ------------------------------------------------------------------------- comparison */

struct sums {
    double iteration_frac[MAX_PLANS]; /* |closed - replay| / replay */
    double passes_frac[MAX_PLANS];    /* the same of the plan's passes */
    int32_t n_plans;
};

static int compare_doubles(const void *a_void, const void *b_void)
{
    double a = *(const double *)a_void, b = *(const double *)b_void;

    return (a > b) - (a < b);
}

static int n_plans_of_run(void)
{
    const char *text = getenv("MIST_PLANS");
    int n = text ? atoi(text) : N_PLANS;

    return n < 1 || n > MAX_PLANS ? N_PLANS : n;
}

/* One line per plan, for whoever looks for the worst ones. */
static void print_plan(const struct mist_plan *plan, const struct mist_prediction *closed,
                       const struct mist_replay_result *replay)
{
    printf("# %+.6f G %d b %d dp %d tp %d%s %s hidden %d seq %d:",
           closed->iteration_s / replay->iteration_s - 1, plan->n_micro_batches,
           plan->stages[0].micro_batch, plan->stages[0].dp, plan->stages[0].tp,
           plan->stages[0].is_sequence_parallel ? "s" : "",
           plan->job.dtype == MIST_DTYPE_BF16 ? "bf16" : "fp32", plan->model.hidden,
           plan->job.seq_len);
    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        printf(" [L %d C %d N %d Z %d w %g g %g o %g a %g%s t %.3g d %.3g]",
               stage->n_layers, stage->n_checkpointed, stage->n_lean, stage->zero,
               stage->offload_weights, stage->offload_gradients, stage->offload_optimizer,
               stage->offload_activations, stage->updates_on_host ? " on host" : "",
               closed->stable_s[i], closed->extra_s[i]);
    }
    printf("\n");
}

/* Relative difference of the iteration time by passes. */
static double compare_passes(const struct mist_cost_model *costs,
                             const struct mist_plan *plan, double replayed_s)
{
    const struct mist_space space = {.model = plan->model, .job = plan->job};
    struct mist_stage_price *price;
    struct mist_err err;
    double passes_s;

    must(mist_stage_price_new(costs, &space, 1, &price, &err), &err);
    must(mist_stage_price_plan(price, plan, &passes_s, &err), &err);
    mist_stage_price_free(price);
    return fabs(passes_s / replayed_s - 1);
}

/* Relative difference of the iteration times; the rest into sums (NULL: nowhere). */
static double compare(const struct mist_cost_model *costs, const struct mist_plan *plan,
                      struct sums *sums)
{
    struct mist_err err;
    struct mist_stage_model *model;
    struct mist_replay_result replay;
    struct mist_replay_options options = {.threads = 1, .skips_timeline = true};
    struct mist_prediction *closed = malloc(sizeof *closed);

    assert_non_null(closed);
    must(mist_stage_model_new(&plan->model, costs, &plan->job, 1, &model, &err), &err);
    closed_plan(model, plan, closed);
    must(mist_replay_run(plan, costs, &options, &replay, &err), &err);
    assert_true(replay.is_folded);
    double off_frac = fabs(closed->iteration_s / replay.iteration_s - 1);
    if (sums) {
        sums->passes_frac[sums->n_plans] =
            compare_passes(costs, plan, replay.iteration_s);
        sums->iteration_frac[sums->n_plans++] = off_frac;
    }
    if (getenv("MIST_PRINT"))
        print_plan(plan, closed, &replay);
    mist_replay_result_fini(&replay);
    mist_stage_model_free(model);
    free(closed);
    return off_frac;
}

static void sort_doubles(double *values, int32_t n)
{
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
}

static void report(const struct kind *kind, struct sums *sums)
{
    int32_t n = sums->n_plans;

    sort_doubles(sums->iteration_frac, n);
    sort_doubles(sums->passes_frac, n);
    print_message("%-8s iteration off by %.4f %.4f %.4f (median, nine of ten, worst), by "
                  "passes %.4f %.4f %.4f\n",
                  kind->name, sums->iteration_frac[n / 2],
                  sums->iteration_frac[n * 9 / 10], sums->iteration_frac[n - 1],
                  sums->passes_frac[n / 2], sums->passes_frac[n * 9 / 10],
                  sums->passes_frac[n - 1]);
}

static void check_kind(const struct bars *bars, const struct mist_cost_model *costs)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct sums *sums = calloc(1, sizeof *sums);
    struct mist_random random;
    int n = n_plans_of_run();

    assert_true(plan && sums);
    mist_random_init(&random, test_seed(20240607));
    for (int k = 0; k < n; k++) {
        random_plan(&random, &bars->kind, plan);
        compare(costs, plan, sums);
    }
    report(&bars->kind, sums);
    assert_true(sums->iteration_frac[n / 2] <= bars->median_frac);
    assert_true(sums->iteration_frac[n - 1] <= bars->worst_frac);
    assert_true(sums->passes_frac[n / 2] <= (bars->kind.offloads ? 0.036 : 0.01));
    assert_true(sums->passes_frac[n * 9 / 10] <= 0.1);
    free(plan);
    free(sums);
}

/* The worst plans have few micro-batches and stages whose copies outlast computation. */
static const struct bars all_bars[] = {
    {{"plain", false, false, false, false}, 0.02, 0.25},
    {{"tp", true, false, false, false}, 0.03, 0.25},
    {{"zero", false, true, false, false}, 0.025, 0.3},
    {{"offload", false, false, true, false}, 0.055, 0.48},
    {{"mixed", true, true, true, false}, 0.035, 0.35},
};

enum { N_KINDS = sizeof all_bars / sizeof *all_bars };

TEST(closed_form_follows_the_replay)
{
    for (int i = 0; i < N_MACHINES; i++) {
        struct mist_trace_set traces;
        struct mist_cost_model *costs = open_machine(&traces, &machines[i]);
        print_message("%s:\n", machines[i].name);
        for (size_t k = 0; k < N_KINDS; k++) {
            if (test_is_left_out())
                continue;
            const char *wanted = getenv("MIST_KIND");
            if (!wanted || strcmp(wanted, all_bars[k].kind.name) == 0)
                check_kind(&all_bars[k], costs);
        }
        close_machine(&traces, costs);
    }
}

/* Turns a plan into one with another schedule of the pipeline, which it allows then. */
static void set_schedule(struct mist_plan *plan, enum mist_pipeline_schedule schedule)
{
    plan->pipeline = schedule;
    plan->n_chunks = schedule == MIST_PIPELINE_INTERLEAVED ? 2 : 0;
    set_plan_passes(plan);
    plan->n_micro_batches =
        (plan->n_micro_batches + plan->n_stages - 1) / plan->n_stages * plan->n_stages;
    plan->job.global_batch =
        (int64_t)plan->n_micro_batches * plan->stages[0].micro_batch * plan->stages[0].dp;
    plan->model.n_layers = 0;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        plan->stages[i].n_layers += plan->stages[i].n_layers % 2;
        plan->model.n_layers += plan->stages[i].n_layers;
    }
    assert_int_equal(mist_plan_check(plan, NULL), MIST_OK);
}

static void check_schedule(const struct kind *kind, const struct mist_cost_model *costs,
                           enum mist_pipeline_schedule schedule)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct mist_replay_options options = {.threads = 1, .skips_timeline = true};
    struct mist_replay_result replay;
    struct mist_random random;
    struct mist_err err;
    double *frac = malloc(MAX_PLANS * sizeof *frac);
    int n = (n_plans_of_run() + 5) / 6;

    assert_true(plan && frac);
    mist_random_init(&random, test_seed(20240607));
    for (int k = 0; k < n;) {
        random_plan(&random, kind, plan);
        if (plan->n_stages == 1)
            continue;
        set_schedule(plan, schedule);
        must(mist_replay_run(plan, costs, &options, &replay, &err), &err);
        frac[k++] = compare_passes(costs, plan, replay.iteration_s);
        mist_replay_result_fini(&replay);
    }
    sort_doubles(frac, n);
    print_message("%-8s %-12s by passes %.4f %.4f %.4f\n", kind->name,
                  mist_pipeline_words[schedule], frac[n / 2], frac[n * 9 / 10],
                  frac[n - 1]);
    assert_true(frac[n / 2] <= (kind->shards || kind->offloads ? 0.06 : 0.04));
    assert_true(frac[n - 1] <= (kind->offloads ? 0.5 : 0.25));
    free(plan);
    free(frac);
}

/* The passes of a plan against its replay, with the other schedules. */
TEST(passes_follow_every_schedule)
{
    for (int i = 0; i < N_MACHINES; i++) {
        struct mist_trace_set traces;
        struct mist_cost_model *costs = open_machine(&traces, &machines[i]);
        print_message("%s:\n", machines[i].name);
        for (size_t k = 0; k < N_KINDS; k++)
            for (int s = MIST_PIPELINE_1F1B + 1;
                 s < MIST_N_PIPELINES && !test_is_left_out(); s++)
                check_schedule(&all_bars[k].kind, costs, (enum mist_pipeline_schedule)s);
        close_machine(&traces, costs);
    }
}

/* Random plans for a machine. */
struct setting {
    struct mist_plan *plan;
    struct mist_random random;
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
};

static void set_up(struct setting *at, const struct machine *machine)
{
    struct mist_err err;

    at->plan = malloc(sizeof *at->plan);
    assert_non_null(at->plan);
    mist_random_init(&at->random, test_seed(20240607));
    make_machine(&at->traces, machine);
    must(mist_cost_model_new(&at->traces, &at->costs, &err), &err);
}

static void tear_down(struct setting *at)
{
    mist_cost_model_free(at->costs);
    mist_trace_set_fini(&at->traces);
    free(at->plan);
}

/* Passes of pipelines whose stages are all alike in something, with one schedule; few: as
 * many micro-batches as stages. */
static void check_alike(const char *name, enum mist_pipeline_schedule schedule,
                        void set(struct mist_stage_plan *stage), bool few,
                        double median_frac)
{
    struct setting at;
    struct mist_replay_options options = {.threads = 1, .skips_timeline = true};
    struct mist_err err;

    set_up(&at, &machines[1]);
    struct mist_plan *plan = at.plan;
    double off_frac[N_PLANS / 2];
    for (int n = 0; n < N_PLANS / 2;) {
        struct mist_replay_result replay;
        random_plan(&at.random, &all_bars[2].kind, plan);
        if (plan->n_stages == 1)
            continue;
        plan->n_micro_batches = few ? 1 : plan->n_micro_batches;
        set_schedule(plan, schedule);
        for (int32_t i = 0; i < plan->n_stages; i++)
            set(&plan->stages[i]);
        must(mist_replay_run(plan, at.costs, &options, &replay, &err), &err);
        off_frac[n++] = compare_passes(at.costs, plan, replay.iteration_s);
        mist_replay_result_fini(&replay);
    }
    sort_doubles(off_frac, N_PLANS / 2);
    print_message("%s, %s: by passes %.4f %.4f (median, nine of ten)\n",
                  mist_pipeline_words[schedule], name, off_frac[N_PLANS / 4],
                  off_frac[N_PLANS * 9 / 20]);
    assert_true(off_frac[N_PLANS / 4] <= median_frac);
    tear_down(&at);
}

static void shard_lean(struct mist_stage_plan *stage)
{
    stage->zero = 3;
    stage->n_checkpointed = 0;
    stage->n_lean = stage->n_layers;
}

static void keep_in_host(struct mist_stage_plan *stage)
{
    stage->offload_activations = 1;
    stage->zero = stage->zero > 0;
    stage->n_checkpointed = stage->n_layers / 2;
    stage->n_lean = 0;
}

/* Split backwards of lean blocks whose weights are cut over ranks: second parts gather those
 * of norms again. */
TEST(second_parts_wait_for_weights)
{
    check_alike("lean blocks under ZeRO-3", MIST_PIPELINE_ZB_H2, shard_lean, false, 0.03);
}

/* What blocks keep comes back when it has left; in the last stage, when it has just left. */
TEST(first_parts_wait_for_what_is_kept)
{
    check_alike("all kept in the host", MIST_PIPELINE_ZB_2P, keep_in_host, false, 0.05);
}

/* In a pipeline with few micro-batches it comes while stages wait. */
TEST(what_is_kept_comes_meanwhile)
{
    check_alike("all kept in the host, few", MIST_PIPELINE_ZB_H1, keep_in_host, true,
                0.07);
    check_alike("all kept in the host, few", MIST_PIPELINE_1F1B, keep_in_host, true,
                0.05);
    check_alike("all kept in the host, few", MIST_PIPELINE_ZB_V, keep_in_host, true,
                0.06);
}

static void checkpoint_half(struct mist_stage_plan *stage)
{
    stage->zero = stage->zero > 0;
    stage->n_checkpointed = stage->n_layers / 2;
    stage->n_lean = 0;
}

static void checkpoint_none(struct mist_stage_plan *stage)
{
    stage->zero = stage->zero > 0;
    stage->n_checkpointed = stage->n_lean = 0;
}

/* Blocks are checkpointed from a stage's first chunk on, and the later chunks of the first stage
 * sum gradients on the way, as it does. */
TEST(chunks_do_what_their_stage_does)
{
    check_alike("half of the blocks checkpointed", MIST_PIPELINE_ZB_V, checkpoint_half,
                false, 0.045);
    check_alike("none checkpointed", MIST_PIPELINE_ZB_V, checkpoint_none, false, 0.03);
}

/* Short replays against whole ones: plans of all kinds, with every schedule and one to four
 * times as many micro-batches. */
static void check_short(const struct kind *kind, const struct mist_cost_model *costs,
                        uint64_t seed, double *frac, int n)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct mist_replay_options options = {.threads = 1, .skips_timeline = true};
    struct mist_replay_result replay;
    struct mist_random random;
    struct mist_err err;
    double short_s;

    assert_non_null(plan);
    mist_random_init(&random, seed);
    for (int k = 0; k < n; k++) {
        random_plan(&random, kind, plan);
        plan->n_micro_batches *= pick(&random, 1, 4);
        set_schedule(plan, plan->n_stages == 1 ? MIST_PIPELINE_1F1B
                                               : (enum mist_pipeline_schedule)pick(
                                                     &random, 0, MIST_N_PIPELINES - 1));
        must(mist_replay_run(plan, costs, &options, &replay, &err), &err);
        must(mist_replay_short(plan, costs, 1, &short_s, &err), &err);
        frac[k] = fabs(short_s / replay.iteration_s - 1);
        if (getenv("MIST_PRINT"))
            printf("# short %+.6f %s p %d G %d %s\n", short_s / replay.iteration_s - 1,
                   mist_pipeline_words[plan->pipeline], (int)plan->n_stages,
                   (int)plan->n_micro_batches, kind->name);
        mist_replay_result_fini(&replay);
    }
    free(plan);
}

TEST(short_replays_follow_whole_ones)
{
    int n = n_plans_of_run() + 10, n_all = 0; /* 1,000 in all, usually */
    double *frac = malloc((size_t)n * N_MACHINES * N_KINDS * sizeof *frac);

    assert_non_null(frac);
    for (int i = 0; i < N_MACHINES; i++) {
        struct mist_trace_set traces;
        struct mist_cost_model *costs = open_machine(&traces, &machines[i]);
        for (size_t k = 0; k < N_KINDS; k++) {
            if (test_is_left_out())
                continue;
            check_short(&all_bars[k].kind, costs, test_seed(20240607) + (uint64_t)n_all,
                        frac + n_all, n);
            n_all += n;
        }
        close_machine(&traces, costs);
    }
    if (n_all == 0) {
        free(frac);
        skip();
    }
    sort_doubles(frac, n_all);
    print_message("%d short replays off by %.4f %.4f %.4f %.4f (median, nine of ten, 95 "
                  "of 100, worst)\n",
                  n_all, frac[n_all / 2], frac[n_all * 9 / 10], frac[n_all * 95 / 100],
                  frac[n_all - 1]);
    assert_true(frac[n_all / 2] <= 0.0005);
    assert_true(frac[n_all * 95 / 100] <= 0.01);
    assert_true(frac[n_all - 1] <= 0.15);
    free(frac);
}

/* Equal stages: what a pipeline's transfers cost; within a node, or between nodes of dp
 * ranks, which share the links. */
static void check_transfers(int32_t dp, bool has_nodes)
{
    struct mist_plan *plan = malloc(sizeof *plan);
    struct mist_random random;
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
    struct mist_err err;
    double off_frac[N_PLANS];
    int32_t n = 0;

    assert_non_null(plan);
    mist_random_init(&random, test_seed(20240607));
    make_machine(&traces, &machines[2]);
    traces.cluster.devices_per_node = has_nodes ? dp : 64;
    must(mist_cost_model_new(&traces, &costs, &err), &err);
    while (n < N_PLANS) {
        random_plan(&random, &all_bars[0].kind, plan);
        int32_t layers = plan->stages[0].n_layers, samples = plan->stages[0].micro_batch;
        samples *= plan->stages[0].dp;
        for (int32_t i = 0; i < plan->n_stages; i++) {
            plan->stages[i].n_layers = layers;
            plan->stages[i].n_checkpointed = plan->stages[i].n_lean = 0;
            plan->stages[i].dp = plan->stages[i].n_devices = dp;
            plan->stages[i].micro_batch = samples / dp;
        }
        plan->model.n_layers = layers * plan->n_stages;
        plan->model.vocab = 64;
        if (plan->n_stages > 1)
            off_frac[n++] = compare(costs, plan, NULL);
    }
    sort_doubles(off_frac, n);
    print_message(
        "equal stages, dp %d%s: off by %.4f in the median, %.4f in nine of ten\n",
        (int)dp, has_nodes ? ", a node each" : "", off_frac[n / 2], off_frac[n * 9 / 10]);
    assert_true(off_frac[n / 2] <= (dp > 1 ? 0.05 : 0.02));
    mist_cost_model_free(costs);
    mist_trace_set_fini(&traces);
    free(plan);
}

TEST(transfers_are_waited_for)
{
    check_transfers(1, false);
    check_transfers(4, false);
    check_transfers(4, true);
}

/* With one micro-batch ZeRO-1 and ZeRO-2 send the same at the same times: gradients that a
 * sum reads must not hold up the next pass, which wants room for its own. */
TEST(first_sums_overlap)
{
    struct setting at;
    struct mist_replay_options options = {.threads = 1, .skips_timeline = true};
    struct mist_err err;

    set_up(&at, &machines[1]);
    struct mist_plan *plan = at.plan;
    for (int n = 0; n < 20;) {
        double time_s[2];
        random_plan(&at.random, &all_bars[2].kind, plan);
        if (plan->n_stages > 1 || plan->stages[0].dp == 1)
            continue;
        plan->n_micro_batches = 1;
        plan->job.global_batch = plan->stages[0].micro_batch * plan->stages[0].dp;
        for (int z = 0; z < 2; z++) {
            struct mist_replay_result replay;
            plan->stages[0].zero = 1 + z;
            must(mist_replay_run(plan, at.costs, &options, &replay, &err), &err);
            time_s[z] = replay.iteration_s;
            mist_replay_result_fini(&replay);
        }
        assert_true(time_s[1] <= 1.01 * time_s[0]);
        n++;
    }
    tear_down(&at);
}

/* Start of a module's first, or end of its last task of a kind. */
static double edge_s(const struct mist_timeline *timeline, enum mist_task_kind kind,
                     int layer, bool is_end)
{
    double edge = is_end ? 0 : INFINITY;

    for (size_t i = 0; i < timeline->n_rows; i++) {
        const struct mist_timeline_row *row = &timeline->rows[i];
        if (row->kind == kind && row->layer == layer)
            edge = is_end ? fmax(edge, row->end_s) : fmin(edge, row->start_s);
    }
    return edge;
}

/* Optimizer state for a block does not wait until that of the one before has left: it has
 * room of its own, though norms, whose state stays, are stepped in between. */
TEST(state_moves_both_ways)
{
    struct setting at;
    struct mist_replay_options options = {.threads = 1};
    struct mist_err err;

    set_up(&at, &machines[1]);
    struct mist_plan *plan = at.plan;
    for (int n = 0; n < 10;) {
        struct mist_replay_result replay;
        random_plan(&at.random, &all_bars[0].kind, plan);
        if (plan->n_stages > 1 || plan->stages[0].n_layers < 3)
            continue;
        plan->stages[0].offload_optimizer = 1;
        must(mist_replay_run(plan, at.costs, &options, &replay, &err), &err);
        for (int layer = 1; layer + 1 <= plan->stages[0].n_layers; layer++) {
            double in_s =
                edge_s(&replay.timeline, MIST_TASK_SWAP_IN_OPTIMIZER, layer + 1, false);
            double out_s =
                edge_s(&replay.timeline, MIST_TASK_SWAP_OUT_OPTIMIZER, layer, true);
            assert_true(fabs(in_s - out_s) > 1e-9 * out_s);
        }
        mist_replay_result_fini(&replay);
        n++;
    }
    tear_down(&at);
}

/* One rank, nothing moved: nothing overlaps but the loading of the batch, which disturbs
 * nobody on this machine, so G t + d is the whole truth. */
TEST(one_stage_is_exact)
{
    struct setting at;
    struct machine machine = machines[0];
    double worst = 0;

    machine.slow_compute = machine.slow_copy = 1;
    set_up(&at, &machine);
    struct mist_plan *plan = at.plan;
    for (int n_done = 0; n_done < 40;) {
        random_plan(&at.random, &all_bars[0].kind, plan);
        if (plan->n_stages > 1 || plan->stages[0].dp > 1)
            continue;
        worst = fmax(worst, compare(at.costs, plan, NULL));
        n_done++;
    }
    print_message("one rank: off by %.2g at worst\n", worst);
    assert_true(worst < 1e-9);
    tear_down(&at);
}

/* One rank whose weights, or what blocks keep, are all in the host, so that no ratio is off by
 * part of a tensor: copies are waited for pass by pass, those of a tied head and of the
 * embedding too, and blocks of both sorts have their own. */
TEST(one_stage_waits_for_copies)
{
    struct setting at;

    set_up(&at, &machines[1]);
    struct mist_plan *plan = at.plan;
    for (int what = 0; what < 3; what++) {
        static const char *const names[] = {"weights", "weights, tied",
                                            "kept activations"};
        double off_frac[N_PLANS];
        for (int n = 0; n < N_PLANS;) {
            random_plan(&at.random, &all_bars[0].kind, plan);
            if (plan->n_stages > 1 || plan->stages[0].dp > 1 || plan->n_micro_batches < 4)
                continue;
            plan->model.ties_embeddings = what == 1;
            plan->stages[0].offload_weights = what < 2;
            plan->stages[0].offload_activations = what == 2;
            if (plan->stages[0].n_lean > 0) /* all, as means are not exact */
                plan->stages[0].n_lean =
                    plan->stages[0].n_layers - plan->stages[0].n_checkpointed;
            off_frac[n++] = compare(at.costs, plan, NULL);
        }
        sort_doubles(off_frac, N_PLANS);
        print_message("one rank, %s in the host: off by %.4f %.4f %.4f (median, nine of "
                      "ten, worst)\n",
                      names[what], off_frac[N_PLANS / 2], off_frac[N_PLANS * 9 / 10],
                      off_frac[N_PLANS - 1]);
        assert_true(off_frac[N_PLANS / 2] <= 0.02);
        assert_true(off_frac[N_PLANS * 9 / 10] <= 0.08);
    }
    tear_down(&at);
}

/* A batch of configurations of one shape against the same one by one, as a plan. */
TEST(batches_equal_single_calls)
{
    struct mist_random random;
    struct mist_trace_set traces;
    struct mist_cost_model *costs;
    struct mist_stage_model *model;
    struct mist_stage_values values;
    struct mist_err err;
    struct mist_plan *plan = calloc(1, sizeof *plan);
    struct mist_prediction *closed = malloc(sizeof *closed);
    static double columns[MIST_STAGE_N_COLUMNS][N_BATCH], t[N_BATCH], d[N_BATCH],
        peak[N_BATCH];
    struct mist_tape_input inputs[MIST_STAGE_N_COLUMNS];

    assert_true(plan && closed);
    mist_random_init(&random, test_seed(20240607));
    make_machine(&traces, &machines[2]);
    must(mist_cost_model_new(&traces, &costs, &err), &err);
    random_model(&random, false, &plan->model);
    plan->job = (struct mist_job){.seq_len = 128};
    must(mist_stage_model_new(&plan->model, costs, &plan->job, 1, &model, &err), &err);
    struct mist_stage_shape shape = {
        .micro_batch = 2, .dp = 2, .tp = 1, .n_nodes = 1, .n_devices = 2};
    must(mist_stage_model_prepare(model, &shape, &values, &err), &err);
    int32_t g = pick(&random, 1, 9);
    for (int i = 0; i < N_BATCH; i++) {
        int32_t n_layers = pick(&random, 1, 9);
        columns[MIST_STAGE_LAYERS][i] = n_layers;
        int32_t n_again = pick(&random, 0, n_layers);
        columns[MIST_STAGE_CHECKPOINTED][i] = n_again;
        columns[MIST_STAGE_LEAN][i] = i % 3 ? pick(&random, 0, n_layers - n_again) : 0;
        columns[MIST_STAGE_ZERO][i] = pick(&random, 0, 3);
        for (int k = MIST_STAGE_OFFLOAD_WEIGHTS; k <= MIST_STAGE_OFFLOAD_ACTIVATIONS; k++)
            columns[k][i] = i % 2 ? random_ratio(&random, false) : 0;
        columns[MIST_STAGE_UPDATE_ON_HOST][i] =
            columns[MIST_STAGE_OFFLOAD_OPTIMIZER][i] > 0 && pick(&random, 0, 1);
    }
    for (int i = 0; i < MIST_STAGE_IN_FLIGHT; i++)
        inputs[i] = (struct mist_tape_input){columns[i], 0};
    inputs[MIST_STAGE_IN_FLIGHT].value = mist_pipeline_in_flight_1f1b(3, 1, g);
    inputs[MIST_STAGE_MICRO_BATCHES].value = g;
    double *const outputs[MIST_STAGE_N_OUTPUTS] = {
        [MIST_STAGE_STABLE] = t, [MIST_STAGE_EXTRA] = d, [MIST_STAGE_PEAK] = peak};
    must(mist_stage_model_eval(model, &values, inputs, N_BATCH, outputs, &err), &err);
    plan->n_stages = 3;
    for (int i = 0; i < N_BATCH; i++) {
        plan->n_micro_batches = g;
        plan->job.global_batch = (int64_t)4 * g;
        plan->model.n_layers = 2 + (int32_t)columns[MIST_STAGE_LAYERS][i];
        for (int k = 0; k < 3; k++)
            plan->stages[k] = mist_tiny_stage(1, 2, 2, 1);
        plan->stages[1].n_layers = (int32_t)columns[MIST_STAGE_LAYERS][i];
        plan->stages[1].n_checkpointed = (int32_t)columns[MIST_STAGE_CHECKPOINTED][i];
        plan->stages[1].n_lean = (int32_t)columns[MIST_STAGE_LEAN][i];
        plan->stages[1].zero = (int32_t)columns[MIST_STAGE_ZERO][i];
        plan->stages[1].offload_weights = columns[MIST_STAGE_OFFLOAD_WEIGHTS][i];
        plan->stages[1].offload_gradients = columns[MIST_STAGE_OFFLOAD_GRADIENTS][i];
        plan->stages[1].offload_optimizer = columns[MIST_STAGE_OFFLOAD_OPTIMIZER][i];
        plan->stages[1].offload_activations = columns[MIST_STAGE_OFFLOAD_ACTIVATIONS][i];
        plan->stages[1].updates_on_host = columns[MIST_STAGE_UPDATE_ON_HOST][i] > 0;
        must(mist_plan_check(plan, &err), &err);
        closed_plan(model, plan, closed);
        assert_true(closed->stable_s[1] == t[i]);
        assert_true(closed->extra_s[1] == d[i]);
        assert_true((double)closed->peak_bytes[1] == ceil(peak[i]));
    }
    mist_stage_model_free(model);
    mist_cost_model_free(costs);
    mist_trace_set_fini(&traces);
    free(plan);
    free(closed);
}

/* The bundle of the expressions on the channels of a set, and the exact one. */
static void bundle_both(const struct mist_interference *interference, unsigned set,
                        const double *alone_s, double *near_s, double *exact_s)
{
    struct mist_expr_pool pool;
    struct mist_stage_writer at = {.pool = &pool, .interference = interference};
    double of_set_s[MIST_N_CHANNELS];
    mist_expr alone[MIST_N_CHANNELS];

    mist_expr_pool_init(&pool);
    for (int c = 0; c < MIST_N_CHANNELS; c++) {
        mist_expr symbol = mist_expr_symbol(&pool, c);
        of_set_s[c] = set >> c & 1 ? alone_s[c] : 0;
        alone[c] = set >> c & 1 ? symbol : mist_expr_const(&pool, 0);
    }
    *near_s = expr_eval(&pool, mist_stage_bundle(&at, alone), of_set_s);
    *exact_s = mist_interference_bundle_s(interference, of_set_s);
    mist_expr_pool_fini(&pool);
}

/* Two channels: exact. More: never below the longest, and how far off is known. */
TEST(bundles_are_near_the_exact_ones)
{
    static const double most_frac[N_MACHINES] = {0.05, 0.05, 0.26}; /* in the median */
    struct mist_random random;

    mist_random_init(&random, test_seed(20240607));
    for (int i = 0; i < N_MACHINES; i++) {
        struct mist_trace_set traces;
        struct mist_cost_model *costs;
        struct mist_err err;
        double off_frac[N_BATCH];
        int32_t n = 0;
        make_machine(&traces, &machines[i]);
        must(mist_cost_model_new(&traces, &costs, &err), &err);
        for (int k = 0; k < 16 * N_BATCH; k++) {
            unsigned set = (unsigned)pick(&random, 1, 15);
            int n_channels = __builtin_popcount(set);
            double alone_s[MIST_N_CHANNELS], near_s, exact_s, longest_s = 0;
            for (int c = 0; c < MIST_N_CHANNELS; c++) {
                alone_s[c] = pick(&random, 1, 1000) * 1e-3;
                longest_s = fmax(longest_s, set >> c & 1 ? alone_s[c] : 0);
            }
            bundle_both(mist_cost_model_interference(costs), set, alone_s, &near_s,
                        &exact_s);
            assert_true(near_s >= longest_s * (1 - 1e-12));
            if (n_channels <= 3)
                assert_true(fabs(near_s - exact_s) <= 1e-12 * exact_s);
            else if (n < N_BATCH)
                off_frac[n++] = fabs(near_s / exact_s - 1);
        }
        sort_doubles(off_frac, n);
        print_message("%s: bundles of four off by %.4f %.4f (median, worst)\n",
                      machines[i].name, off_frac[n / 2], off_frac[n - 1]);
        assert_true(off_frac[n / 2] <= most_frac[i]);
        mist_cost_model_free(costs);
        mist_trace_set_fini(&traces);
    }
}

TEST_MAIN(NULL, NULL)
