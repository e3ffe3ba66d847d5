/*
 * What-if: edits against the same cluster typed in, and against closed forms: of one rank,
 * whose tasks run one after another, time is a sum over what can be made faster, each part
 * divided by its factor.
 */
#include "tests/unit/test.h"

#include "sim/replay/replay.h"
#include "sim/what_if.h"
#include "tests/unit/tiny_models.h"
#include "traces/preset.h"

#include <math.h>

#define NODES "2x8,nic=8x400Gb/s@5us"
#define LINKS ",link=400GB/s@4us,pcie=50GB/s@10us,host=300GB/s"
#define BASE  "h100-sxm:" NODES LINKS

static struct mist_err err;

static void near(double value, double expected, double frac, const char *what)
{
    if (!(fabs(value - expected) <= frac * fabs(expected)))
        fail_msg("%s: %.17g, expected %.17g", what, value, expected);
}

/* A plan that meets every way of a cluster of nodes of 8: all of its ranks copy, sum
 * within nodes, and gather and send between them. */
static void make_plan(struct mist_plan *plan, int32_t n_stages, int32_t dp, int32_t tp,
                      enum mist_framework_name framework)
{
    memset(plan, 0, sizeof *plan);
    plan->model = mist_small_model(MIST_FAMILY_GPT, 2 * n_stages, 512);
    plan->model.hidden = 512;
    plan->model.n_heads = plan->model.n_kv_heads = 8;
    plan->model.head_dim = 64;
    plan->model.ffn = 2048;
    plan->n_micro_batches = 4;
    plan->job = (struct mist_job){.global_batch = 8 * dp * plan->n_micro_batches,
                                  .seq_len = 32,
                                  .dtype = MIST_DTYPE_BF16,
                                  .gradient_dtype = MIST_DTYPE_FP32,
                                  .computes_on_gpu = true,
                                  .framework = framework};
    plan->n_stages = n_stages;
    for (int32_t i = 0; i < n_stages; i++)
        plan->stages[i] = (struct mist_stage_plan){
            .n_layers = 2,
            .n_nodes = dp * tp > 8 ? dp * tp / 8 : 1,
            .n_devices = dp * tp > 8 ? 8 : dp * tp,
            .micro_batch = 8,
            .dp = dp,
            .tp = tp,
            .zero = dp > 1 ? 2 : 0,
            .offload_activations = dp > 1 ? 0.5 : 0,
        };
    must(mist_plan_check(plan, &err), &err);
}

/* Replays a plan on a cluster, with edits (NULL at the end). */
static double iteration_s(const struct mist_plan *plan, const char *cluster,
                          const char *const *edits)
{
    double factors[2 * 64];
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct mist_what_if what_if;
    struct mist_replay_result result;
    struct mist_replay_options options = {
        .skips_timeline = true,
        .rank_factor = factors,
        .link_factor = factors + mist_plan_n_ranks(plan),
    };

    must(mist_trace_set_open(&traces, cluster, &err), &err);
    mist_what_if_init(&what_if, &traces, plan->job.framework, factors,
                      mist_plan_n_ranks(plan));
    for (int i = 0; edits && edits[i]; i++)
        must(mist_what_if_apply(&what_if, edits[i], &err), &err);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    mist_cost_model_set_speeds(model, &what_if.speeds);
    must(mist_replay_run(plan, model, &options, &result, &err), &err);
    double time_s = result.iteration_s;
    mist_replay_result_fini(&result);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    return time_s;
}

static double edited_s(const struct mist_plan *plan, const char *cluster,
                       const char *edit)
{
    return iteration_s(plan, cluster, (const char *const[]){edit, NULL});
}

/* Latencies go with rates. */
TEST(test_edits_are_other_clusters)
{
    static const struct {
        const char *edit, *cluster;
    } cases[] = {
        {"link.nic=200Gb/s", "h100-sxm:2x8,nic=8x200Gb/s@10us" LINKS},
        {"link.nic=25GB/s", "h100-sxm:2x8,nic=8x200Gb/s@10us" LINKS},
        {"link.node=200GB/s", "h100-sxm:2x8,nic=8x200Gb/s@10us" LINKS},
        {"link.node=0.5x", "h100-sxm:2x8,nic=8x200Gb/s@10us" LINKS},
        {"link.nic=4x", "h100-sxm:2x8,nic=8x1600Gb/s@1.25us" LINKS},
        {"link.device=200GB/s",
         "h100-sxm:" NODES ",link=200GB/s@8us,pcie=50GB/s@10us,host=300GB/s"},
        {"link.device=0.25x",
         "h100-sxm:" NODES ",link=100GB/s@16us,pcie=50GB/s@10us,host=300GB/s"},
        {"link.host=2x",
         "h100-sxm:" NODES ",link=400GB/s@4us,pcie=100GB/s@5us,host=600GB/s"},
        {"link.host=10GB/s",
         "h100-sxm:" NODES ",link=400GB/s@4us,pcie=10GB/s@50us,host=60GB/s"},
        {"link.all=2x",
         "h100-sxm:2x8,nic=8x800Gb/s@2.5us,link=800GB/s@2us,pcie=100GB/s@5us,host=600GB/"
         "s"},
        {"device.memory_rate=2TB/s", BASE ",memory-rate=2TB/s"},
        {"device=a100-80", "a100-80:" NODES},
        {"device=h200", "h200:" NODES},
        {"cluster.nodes=4", "h100-sxm:4x8,nic=8x400Gb/s@5us" LINKS},
    };
    struct mist_plan plan;

    make_plan(&plan, 2, 4, 2, MIST_FRAMEWORK_OURS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        near(edited_s(&plan, BASE, cases[i].edit),
             iteration_s(&plan, cases[i].cluster, NULL), 1e-9, cases[i].edit);
    }
}

/* What a process takes follows the number of devices (mist_preset_runtime_bytes()). */
TEST(test_edits_of_runtime_memory)
{
    static const struct {
        const char *cluster, *edit, *other;
    } cases[] = {
        {"a100-80:1x1", "cluster.nodes=2", "a100-80:2x1"},
        {"a100-80:1x1", "cluster.devices_per_node=8", "a100-80:1x8"},
        {"a100-80:2x1", "cluster.nodes=1", "a100-80:1x1"},
        {"a100-80:1x1", "device=h200", "h200:1x1"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_trace_set traces, other;
        struct mist_what_if what_if;
        double factors[2 * 8];
        must(mist_trace_set_open(&traces, cases[i].cluster, &err), &err);
        must(mist_trace_set_open(&other, cases[i].other, &err), &err);
        mist_what_if_init(&what_if, &traces, MIST_FRAMEWORK_OURS, factors, 8);
        must(mist_what_if_apply(&what_if, cases[i].edit, &err), &err);
        assert_int_equal(traces.cluster.runtime_memory_bytes,
                         other.cluster.runtime_memory_bytes);
        mist_trace_set_fini(&other);
        mist_trace_set_fini(&traces);
    }
}

/* What must differ, differs: the plan meets all ways. */
TEST(test_edits_reach_the_plan)
{
    static const char *const edits[] = {
        "link.node=0.1x",          "link.device=0.1x",   "link.host=0.01x",
        "device.memory_rate=0.5x", "device.peak=0.1x",   "launch=none",
        "interference=none",       "device=a100-80",     "kernel.loss=0.5x",
        "kernel.optimizer=0.5x",   "kernel.linear=0.1x", "rank.0=0.5x"};
    struct mist_plan plan;

    make_plan(&plan, 1, 8, 2, MIST_FRAMEWORK_OURS);
    double base_s = iteration_s(&plan, BASE, NULL);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        if (fabs(edited_s(&plan, BASE, edits[i]) / base_s - 1) < 1e-6)
            fail_msg("%s changes nothing", edits[i]);
}

static const char *const parts[] = {"kernel.products",    "kernel.attention",
                                    "kernel.elementwise", "kernel.loss",
                                    "kernel.optimizer",   "launch"};
enum { N_PARTS = sizeof parts / sizeof *parts };

/* What a part takes: half of it is saved by 2x. */
static double part_s(const struct mist_plan *plan, const char *cluster, const char *part)
{
    char edit[64];

    snprintf(edit, sizeof edit, "%s=2x", part);
    return 2 * (iteration_s(plan, cluster, NULL) - edited_s(plan, cluster, edit));
}

static void check_parts(const struct mist_plan *plan, const char *cluster)
{
    static const char *const factors[] = {"0.1x", "0.5x", "0.9x", "1.1x",
                                          "3x",   "10x",  "1000x"};
    double base_s = iteration_s(plan, cluster, NULL), sum_s = 0;
    char edit[64];

    for (int p = 0; p < N_PARTS; p++) {
        double of_s = part_s(plan, cluster, parts[p]);
        assert_true(of_s > 0);
        sum_s += of_s;
        for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
            snprintf(edit, sizeof edit, "%s=%s", parts[p], factors[i]);
            near(edited_s(plan, cluster, edit),
                 base_s - of_s + of_s / strtod(factors[i], NULL), 1e-9, edit);
        }
    }
    near(sum_s, base_s, 1e-9, "the sum of all parts");
    near(edited_s(plan, cluster, "launch=none"), base_s - part_s(plan, cluster, "launch"),
         1e-9, "no launches");
    near(edited_s(plan, cluster, "rank.0=0.5x"), 2 * base_s, 1e-9, "a slow rank");
    near(edited_s(plan, cluster, "rank.0.link=0.5x"), base_s, 1e-9, "who sends nothing");
    near(iteration_s(plan, cluster,
                     (const char *const[]){"kernel.all=4x", "launch=4x", NULL}),
         base_s / 4, 1e-9, "all of it");
    near(iteration_s(plan, cluster,
                     (const char *const[]){"kernel.all=2x", "kernel.all=0.5x", NULL}),
         base_s, 1e-12, "there and back");
}

/* By the data sheet, and by rows (and what they are made of). */
TEST(test_one_rank_is_a_sum)
{
    struct mist_plan plan;

    make_plan(&plan, 1, 1, 1, MIST_FRAMEWORK_OURS);
    check_parts(&plan, "h100-sxm:1x1,pcie=900TB/s@1ns");
    plan.job.dtype = MIST_DTYPE_FP32;
    plan.job.computes_on_gpu = false;
    must(mist_plan_check(&plan, &err), &err);
    check_parts(&plan, "tests/data/cli/traces");
}

/* Of measured kernels, and of the data sheet but for what they take to start. */
TEST(test_devices_scale_their_kernels)
{
    static const char *const edits[] = {"device.peak=2x", "device.memory_rate=2x", NULL};
    struct mist_plan plan;

    make_plan(&plan, 1, 1, 1, MIST_FRAMEWORK_OURS);
    plan.job.dtype = MIST_DTYPE_FP32;
    plan.job.computes_on_gpu = false;
    near(iteration_s(&plan, "tests/data/cli/traces", edits),
         edited_s(&plan, "tests/data/cli/traces", "kernel.all=2x"), 1e-9, "measured");
    plan.job.computes_on_gpu = true;
    plan.job.dtype = MIST_DTYPE_BF16;
    double faster_s = iteration_s(&plan, "h100-sxm:1x1", edits);
    assert_true(faster_s < iteration_s(&plan, "h100-sxm:1x1", NULL));
    assert_true(faster_s > edited_s(&plan, "h100-sxm:1x1", "kernel.all=2x"));
}

/* Without its host, what the kernels of another framework take is a sum, too. */
static void check_frameworks_parts(const struct mist_plan *plan)
{
    const char *edits[] = {"framework.dispatch=none", "launch=none", NULL, NULL};
    double base_s = iteration_s(plan, "h100-sxm:1x1,pcie=900TB/s@1ns", edits), sum_s = 0;
    char edit[64];

    for (int p = 0; p < N_PARTS - 1; p++) {
        snprintf(edit, sizeof edit, "%s=2x", parts[p]);
        edits[2] = edit;
        double twice_s = iteration_s(plan, "h100-sxm:1x1,pcie=900TB/s@1ns", edits);
        sum_s += 2 * (base_s - twice_s);
    }
    near(sum_s, base_s, 1e-6, "all but the copy of a batch");
}

/* Bytes that other frameworks move, of Megatron's profile: by factor and by number. */
TEST(test_costs_of_frameworks)
{
    static const char *const cases[][2] = {
        {"framework.optimizer=2x", "framework.optimizer=23"},
        {"framework.gradient=2x", "framework.gradient=3"},
        {"framework.loss=2x", "framework.loss=30"}};
    const char *edits[] = {"framework.dispatch=none", NULL, NULL};
    struct mist_plan plan;

    make_plan(&plan, 1, 1, 1, MIST_FRAMEWORK_MEGATRON);
    double base_s = iteration_s(&plan, "h100-sxm:1x1", edits);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        edits[1] = cases[i][0];
        double twice_s = iteration_s(&plan, "h100-sxm:1x1", edits);
        edits[1] = cases[i][1];
        assert_true(twice_s < base_s * (1 - 1e-6));
        near(iteration_s(&plan, "h100-sxm:1x1", edits), twice_s, 1e-12, edits[1]);
    }
}

/* Small kernels of another framework wait for its host, then for themselves. */
TEST(test_hosts_of_frameworks)
{
    struct mist_plan plan;

    make_plan(&plan, 1, 1, 1, MIST_FRAMEWORK_DEEPSPEED);
    double base_s = iteration_s(&plan, "h100-sxm:1x1", NULL);
    double twice_s = edited_s(&plan, "h100-sxm:1x1", "framework.dispatch=2x");
    double none_s = edited_s(&plan, "h100-sxm:1x1", "framework.dispatch=none");

    assert_true(none_s < twice_s && twice_s < base_s);
    near(edited_s(&plan, "h100-sxm:1x1", "framework.dispatch=25us"), twice_s, 1e-12,
         "half of 50 us");
    check_frameworks_parts(&plan);
    near(edited_s(&plan, "h100-sxm:1x1", "framework.dispatch=0.000001x"),
         base_s + (base_s - twice_s) * 2 * (1e6 - 1), 1e-2, "a host that is all");
}

TEST_MAIN(NULL, NULL)
