/*
 * mist-tune --target over random problems: what it proposes keeps the rules of the framework,
 * which are written here once more, apart from tables and search; it fits the device with
 * what the framework keeps beside the arena, which is counted here once more, too; and no
 * plan that keeps all these is faster.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/explain/explain.h" /* mist_beside_arena_find */
#include "sim/framework_args/framework_args.h"
#include "sim/model/framework.h"
#include "sim/plan/plan_fields.h"
#include "sim/replay/replay.h"
#include "tests/unit/parameter_counts.h"
#include "tests/unit/pick.h"
#include "traces/preset.h"
#include "tune/target.h"

#include <math.h>

enum { N_PROBLEMS = 750, N_BRUTE = 36, N_SHORT = 100 };

struct problem {
    struct mist_trace_set traces;
    struct mist_cost_model *cost_model;
    struct mist_model model; /* the framework's, as it is expressed */
    struct mist_job job;
    struct mist_space space; /* of these, or of ours */
    struct mist_stage_price *price;
    struct mist_thread_pool *pool;
    struct mist_validate_config config;
};

static struct mist_err err;
static atomic_int never;

/* --------------------------------------------------------------------------- the rules */

#define RULE(condition)                                                                  \
    if (!(condition))                                                                    \
    return #condition

/* Of all three. NULL: kept. */
static const char *find_broken(const struct mist_plan *plan)
{
    const struct mist_model *m = &plan->model;
    const struct mist_stage_plan *s = &plan->stages[0];
    int32_t pp = plan->n_stages, n_chunks = mist_plan_n_chunks(plan);

    for (int32_t i = 0; i < pp; i++)
        RULE(mist_plan_stages_are_same(s, &plan->stages[i]));
    RULE(m->n_layers % (pp * n_chunks) == 0);
    RULE(m->n_heads % s->tp == 0 && m->n_kv_heads % s->tp == 0);
    RULE(m->hidden % s->tp == 0 && m->ffn % s->tp == 0);
    RULE(s->cp < 2 || plan->job.seq_len % (2 * s->cp) == 0);
    RULE((int64_t)plan->n_micro_batches * s->micro_batch * s->dp ==
         plan->job.global_batch);
    RULE(s->n_lean == 0 && s->offload_weights == 0 && s->offload_gradients == 0);
    RULE(s->offload_optimizer == 0 && s->offload_activations == 0);
    RULE(!(s->n_checkpointed > 0 && plan->job.recomputes_attention));
    RULE(n_chunks == 1 || pp > 1);
    RULE(!s->is_sequence_parallel || plan->job.seq_len % (mist_stage_cp(s) * s->tp) == 0);
    RULE(plan->job.gradient_dtype == MIST_DTYPE_FP32 ||
         plan->job.dtype == MIST_DTYPE_BF16);
    RULE(!plan->reduces_each_micro_batch);
    return NULL;
}

/* Data parallelism is plain or shards the optimizer's state; the vocabulary is padded. */
static const char *find_broken_megatron(const struct mist_plan *plan)
{
    const struct mist_stage_plan *s = &plan->stages[0];

    RULE(plan->model.family != MIST_FAMILY_FALCON);
    RULE(s->zero < 2);
    RULE(plan->model.vocab % s->tp == 0);
    RULE(plan->pipeline == MIST_PIPELINE_1F1B ||
         plan->pipeline == MIST_PIPELINE_INTERLEAVED);
    RULE(plan->pipeline == MIST_PIPELINE_1F1B ||
         plan->n_micro_batches % plan->n_stages == 0);
    RULE(!s->is_sequence_parallel || s->tp > 1);
    /* --recompute-num-layers of every chunk */
    RULE(s->n_checkpointed == 0 || s->n_checkpointed == s->n_layers ||
         plan->pipeline == MIST_PIPELINE_1F1B);
    return NULL;
}

/* Only Megatron-LM recomputes some of the blocks. */
static bool is_all_or_none(const struct mist_stage_plan *s)
{
    return s->n_checkpointed == 0 || s->n_checkpointed == s->n_layers;
}

/* A pipeline asserts ZeRO below 2, AutoTP below 3; neither interleaves or cuts sequences, by
 * tensor-parallel ranks or others. */
static const char *find_broken_deepspeed(const struct mist_plan *plan)
{
    const struct mist_stage_plan *s = &plan->stages[0];

    RULE(plan->pipeline == MIST_PIPELINE_1F1B);
    RULE(plan->n_stages == 1 || s->zero < 2);
    RULE(s->tp == 1 || s->zero < 3);
    RULE(s->cp < 2);
    RULE(!s->is_sequence_parallel);
    RULE(!plan->job.recomputes_attention);
    RULE(is_all_or_none(s));
    return NULL;
}

/* FSDP2 or replicas; tensor parallelism always cuts sequences, too. */
static const char *find_broken_torchtitan(const struct mist_plan *plan)
{
    const struct mist_stage_plan *s = &plan->stages[0];

    RULE(plan->model.family == MIST_FAMILY_LLAMA);
    RULE(s->zero != 1);
    RULE(s->dp > 1 || s->cp > 1 || s->zero == 0);
    RULE(s->cp < 2 || s->zero != 0); /* FSDP's ranks are those, too */
    RULE(s->is_sequence_parallel == (s->tp > 1));
    RULE(plan->job.seq_len % (s->cp > 1 ? 2 * s->cp * s->tp : s->tp) == 0);
    RULE(plan->pipeline != MIST_PIPELINE_ZB_H1);
    RULE(plan->job.attention == MIST_ATTENTION_FLASH);
    RULE(is_all_or_none(s));
    return NULL;
}

/* What of the rules of a problem's framework a plan breaks, also one that we run; NULL:
 * none. */
static const char *find_broken_of(const struct problem *at, const struct mist_plan *plan)
{
    struct mist_plan *theirs = malloc(sizeof *theirs);
    const char *broken;

    *theirs = *plan;
    if (plan->job.framework == MIST_FRAMEWORK_OURS) {
        theirs->model = at->model;
        theirs->job = at->job;
    }
    broken = find_broken(theirs);
    if (!broken)
        broken = at->job.framework == MIST_FRAMEWORK_MEGATRON
                     ? find_broken_megatron(theirs)
                 : at->job.framework == MIST_FRAMEWORK_DEEPSPEED
                     ? find_broken_deepspeed(theirs)
                     : find_broken_torchtitan(theirs);
    free(theirs);
    return broken;
}

/* ---------------------------------------------------------------------------- problems */

/* Of Llama's family mostly; torchtitan trains no other. */
static void draw_model(struct mist_random *random, struct mist_model *out)
{
    static const int kv_heads[] = {6, 3, 2};
    static const enum mist_family families[] = {MIST_FAMILY_LLAMA, MIST_FAMILY_LLAMA,
                                                MIST_FAMILY_LLAMA, MIST_FAMILY_LLAMA,
                                                MIST_FAMILY_GPT,   MIST_FAMILY_FALCON};
    enum mist_family family = families[pick(random, 0, 5)];

    *out = (struct mist_model){
        .name = "drawn",
        .family = family,
        .n_layers = pick(random, 1, 3) * pick(random, 1, 4),
        .hidden = 96,
        .n_heads = 6,
        .n_kv_heads = family == MIST_FAMILY_LLAMA ? kv_heads[pick(random, 0, 2)] : 6,
        .head_dim = 16,
        .ffn = 24 * pick(random, 8, 16),
        .vocab = pick(random, 500, 700),
        .max_seq = family == MIST_FAMILY_GPT ? 128 : 0,
        .has_bias = family == MIST_FAMILY_GPT && pick(random, 0, 1),
        .ties_embeddings = pick(random, 0, 1),
        .norm_epsilon = 1e-5,
        .rope_theta = family == MIST_FAMILY_GPT ? 0 : 1e4,
    };
}

/* Every third problem is one of ours: the framework's plans, as we run them. Memory is short
 * in all of DeepSpeed's, some of which have room for a bucket or two. In every fifth up to four
 * context-parallel ranks may share sequences. */
static void init(struct problem *at, struct mist_random *random, int i)
{
    static const char *const clusters[] = {"a100-80:1x1", "a100-80:1x2", "a100-80:1x4",
                                           "a100-80:1x6", "a100-80:1x8", "a100-80:2x4"};
    static const int32_t n_devices[] = {1, 2, 4, 6, 8, 8};
    struct mist_job job = {.seq_len = pick(random, 60, 64), .computes_on_gpu = true};
    struct mist_bounds bounds = mist_bounds_none();
    struct mist_model model;
    int i_cluster = pick(random, 0, 5), n_buckets = i / 3 % 8 - 5;

    memset(at, 0, sizeof *at);
    draw_model(random, &model);
    if (n_buckets > 0) { /* whose weights are some of these, too */
        model.hidden *= 8;
        model.head_dim *= 8;
        model.ffn *= 8;
    }
    job.global_batch = pick(random, 1, 4) * pick(random, 1, 8);
    job.dtype = (enum mist_dtype)pick(random, 0, 1);
    job.gradient_dtype = pick(random, 0, 1) ? job.dtype : MIST_DTYPE_FP32;
    at->model = model;
    at->job = job;
    mist_target_set((enum mist_framework_name)(1 + i % 3), &(struct mist_messages){0},
                    &at->model, &at->job);
    if (i / 3 % 3 != 0) {
        model = at->model;
        job = at->job;
    }
    if (i % 5 == 4)
        must(mist_bounds_add(&bounds, "cp=4", false, &err), &err);
    must(mist_preset_parse(&at->traces, clusters[i_cluster], &err), &err);
    must(mist_cost_model_new(&at->traces, &at->cost_model, &err), &err);
    must(mist_space_init(&at->space, &model, &job, n_devices[i_cluster],
                         at->traces.cluster.devices_per_node, 1u << MIST_SPACE_CONTEXT,
                         &bounds, &err),
         &err);
    must(mist_stage_price_new(at->cost_model, &at->space, 0, &at->price, &err), &err);
    must(mist_thread_pool_new(1, &at->pool, &err), &err);
    at->config = (struct mist_validate_config){
        .space = &at->space,
        .cost_model = at->cost_model,
        .trace_set = clusters[i_cluster],
        .limit_bytes =
            i % 3 != 1 && pick(random, 0, 2) ? INT64_MAX : 1 << pick(random, 21, 26),
        .host_limit_bytes = INT64_MAX,
        .n_best = 1000,
        .price = at->price,
    };
    if (job.framework == MIST_FRAMEWORK_DEEPSPEED && n_buckets > 0)
        at->config.limit_bytes =
            64 * at->config.limit_bytes + (int64_t)(1.08 * 5e8 * 2 * n_buckets);
}

static void fini(struct problem *at)
{
    mist_stage_price_free(at->price);
    mist_space_fini(&at->space);
    mist_cost_model_free(at->cost_model);
    mist_thread_pool_free(at->pool);
    mist_trace_set_fini(&at->traces);
}

/* ---------------------------------------------------------------------------- the memory */

/* Parameters of a stage on a device; norms and biases are taken to be cut, too. */
static double count_stage(const struct mist_plan *plan, int32_t i_stage)
{
    const struct mist_model *m = &plan->model;
    const struct mist_stage_plan *s = &plan->stages[i_stage];
    double table = (double)m->vocab * m->hidden, n;

    n = (double)s->n_layers * (double)count_block_parameters(m);
    n += i_stage == 0 ? table : 0;
    if (i_stage == plan->n_stages - 1 && (plan->n_stages > 1 || !m->ties_embeddings))
        n += table;
    return n / s->tp + (i_stage == 0 ? (double)m->max_seq * m->hidden : 0);
}

/* Bytes beside an arena: DeepSpeed keeps two a parameter beside sums in fp32, unless ZeRO-2
 * cuts these, and has buckets for what it reduces, but in pipelines; of all that PyTorch's
 * allocator can't use 8 %. *doubt: as much more or less. */
static double count_beside(const struct mist_plan *plan, int32_t i_stage, double arena,
                           double *doubt)
{
    const struct mist_job *job = &plan->job;
    int32_t zero = plan->stages[i_stage].zero;
    bool is_deepspeed = job->framework == MIST_FRAMEWORK_DEEPSPEED;
    bool sums_fp32 = job->gradient_dtype == MIST_DTYPE_FP32;
    bool keeps_two = is_deepspeed && sums_fp32 && job->dtype == MIST_DTYPE_BF16;
    bool has_buckets =
        is_deepspeed && plan->n_stages == 1 && (zero >= 2 || (zero == 1 && !sums_fp32));
    double kept = keeps_two && zero < 2 ? 2 * count_stage(plan, i_stage) : 0;

    *doubt = 2 + 1.08 * 0.05 * kept;
    if (has_buckets)
        kept += 5e8 * (zero < 3 ? 2 : 1) * (job->dtype == MIST_DTYPE_FP32 ? 4 : 2);
    return job->framework == MIST_FRAMEWORK_OURS ? 0 : kept + 0.08 * (arena + kept);
}

static void expect_room(const struct problem *at, const struct mist_validated *of)
{
    double arena = (double)of->planned_bytes, doubt;
    double beside = count_beside(of->plan, of->i_stage, arena, &doubt);

    if (!(fabs(beside - (double)of->beside_bytes) <= doubt))
        fail_msg("%s, stage %d: %.0f bytes beside an arena of %.0f, by the test %.0f",
                 mist_framework_words[of->plan->job.framework], (int)of->i_stage,
                 (double)of->beside_bytes, arena, beside);
    assert_true(of->planned_bytes + of->beside_bytes <= at->config.limit_bytes);
    for (int32_t i = 0; i < of->plan->n_stages; i++) {
        arena = (double)of->plan->predicted.peak_bytes[i];
        beside = count_beside(of->plan, i, arena, &doubt);
        assert_true(arena + beside <= (double)at->config.limit_bytes + doubt);
    }
}

/* By what mist-sim says of a replay: no stage is short of memory, or of room for holes. */
static void expect_silence(const struct problem *at, const struct mist_plan *plan)
{
    struct mist_cluster cluster = at->traces.cluster;
    struct mist_replay_result replay;

    if (at->config.limit_bytes == INT64_MAX)
        return;
    cluster.device_memory_bytes = at->config.limit_bytes + cluster.runtime_memory_bytes;
    must(mist_replay_run(plan, at->cost_model, NULL, &replay, &err), &err);
    for (int32_t i = 0; i < replay.n_stages; i++) {
        const struct mist_replay_stage *stage = &replay.stages[i];
        struct mist_beside_arena beside = mist_beside_arena_find(plan, &cluster, stage);
        assert_true(stage->arena_bytes[MIST_ARENA_DEVICE] + beside.kept_bytes +
                        beside.held_bytes + beside.runtime_bytes <=
                    cluster.device_memory_bytes);
        assert_true(beside.lost_bytes <= beside.held_bytes);
    }
    mist_replay_result_fini(&replay);
}

/* --------------------------------------------------------------------------- the rules */

TEST(test_rules)
{
    struct mist_random random;
    int n_solved[MIST_N_FRAMEWORKS] = {0}, n_plans = 0, n_pipelines = 0,
        n_interleaved = 0, n_parts = 0, n_kept = 0, n_contexts = 0;
    int n_run = 0;

    mist_random_init(&random, test_seed(31));
    for (int i = 0; i < N_PROBLEMS; i++) {
        struct mist_validate_result result;
        struct problem at;
        init(&at, &random, i);
        if (test_is_left_out()) {
            fini(&at);
            continue;
        }
        n_run++;
        enum mist_status status =
            mist_target_run(&at.config, at.job.framework, at.pool, &never, &result, &err);
        if (status != MIST_ERR_NO_PLAN)
            must(status, &err);
        for (size_t k = 0; status == MIST_OK && k < result.n_plans; k++) {
            const struct mist_plan *plan = result.plans[k].plan;
            const char *broken = find_broken_of(&at, plan);
            if (broken)
                fail_msg("%s, problem %d, plan %zu: not %s",
                         mist_framework_words[at.job.framework], i, k, broken);
            assert_int_equal(plan->job.framework, at.space.job.framework);
            assert_int_equal(mist_plan_n_ranks(plan), at.space.n_ranks);
            expect_room(&at, &result.plans[k]);
            n_plans++;
            n_kept += at.config.limit_bytes < INT64_MAX &&
                      (double)result.plans[k].beside_bytes >
                          0.09 * (double)result.plans[k].planned_bytes;
            n_pipelines += plan->n_stages > 1;
            n_interleaved += mist_plan_n_chunks(plan) > 1;
            n_parts += !is_all_or_none(&plan->stages[0]);
            n_contexts += plan->stages[0].cp > 1;
        }
        if (status == MIST_OK) {
            expect_silence(&at, result.plans[0].plan);
            n_solved[at.job.framework]++;
            mist_validate_result_fini(&result);
        }
        fini(&at);
    }
    print_message(
        "# %d plans, %d of them pipelines, %d interleaved, %d recompute a part, %d share "
        "sequences; %d are limited and keep something beside their arena\n",
        n_plans, n_pipelines, n_interleaved, n_parts, n_contexts, n_kept);
    if (n_run < N_PROBLEMS)
        return;
    for (int k = 1; k <= MIST_FRAMEWORK_TORCHTITAN; k++)
        assert_true(n_solved[k] > 40);
    assert_true(n_pipelines > 500 && n_interleaved > 50 && n_parts > 200);
    assert_true(n_kept > 50);
    assert_true(n_contexts > 100);
}

/* ------------------------------------------------------------------------- brute force */

/* The fastest of all plans of 1F1B that keep the rules and fit, by replay; INFINITY: none. */
static double find_fastest(const struct problem *at)
{
    const struct mist_space *space = &at->space;
    struct mist_plan *plan = calloc(1, sizeof *plan);
    double best_s = INFINITY;
    int n = space->n_ranks, n_recomputed = space->model.n_layers + 2;

    /* pp, tp, b, ZeRO, recomputation (selective, or so many blocks), sequences, cp, as the
     * digits of a number */
    int most_cp = space->bounds.of[MIST_KNOB_CP].max == 4 ? 4 : 1;
    int sizes[] = {n, n, 32, 4, n_recomputed, 2, most_cp};
    int n_all = n * n * 32 * 4 * n_recomputed * 2 * most_cp;
    for (int code = 0; code < n_all; code++) {
        int digit[7], rest = code;
        for (int k = 0; k < 7; k++, rest /= sizes[k - 1])
            digit[k] = rest % sizes[k];
        int pp = digit[0] + 1, tp = digit[1] + 1, b = digit[2] + 1, cp = digit[6] + 1,
            dp = n / (pp * cp * tp);
        if (n % (pp * cp * tp) != 0 || tp > space->devices_per_node ||
            space->model.n_layers % pp != 0 ||
            digit[4] - 1 > space->model.n_layers / pp ||
            space->job.global_batch % (b * dp) != 0)
            continue;
        *plan = (struct mist_plan){.model = space->model, .job = space->job};
        plan->job.recomputes_attention =
            digit[4] == 0 && space->job.framework == MIST_FRAMEWORK_TORCHTITAN;
        plan->n_stages = pp;
        plan->n_micro_batches = (int32_t)(space->job.global_batch / (b * dp));
        for (int i = 0; i < pp; i++) {
            struct mist_stage_plan *s = &plan->stages[i];
            *s = (struct mist_stage_plan){.n_layers = space->model.n_layers / pp,
                                          .micro_batch = b,
                                          .dp = dp,
                                          .tp = tp,
                                          .cp = cp > 1 ? cp : 0,
                                          .is_sequence_parallel = digit[5]};
            s->n_checkpointed = digit[4] > 0 ? digit[4] - 1 : 0;
            s->zero = digit[3];
            mist_stage_mesh(dp * cp * tp, space->devices_per_node, &s->n_nodes,
                            &s->n_devices);
        }
        struct mist_validated of = {.plan = plan};
        if (mist_plan_check(plan, NULL) != MIST_OK || find_broken_of(at, plan))
            continue;
        must(mist_validate_plan(&at->config, NULL, &of, &err), &err);
        if (of.holds)
            best_s = fmin(best_s, plan->predicted.iteration_s);
    }
    free(plan);
    return best_s;
}

/* Behind the others N_SHORT of DeepSpeed's, half of them with room for buckets. */
TEST(test_best)
{
    struct mist_random random;
    int n_solved = 0, n_run = 0;

    mist_random_init(&random, test_seed(31) + 1);
    for (int i = 0; i < N_BRUTE + N_SHORT; i++) {
        struct mist_validate_result result;
        struct problem at;
        init(&at, &random, i < N_BRUTE ? i : i % 2 ? 22 : 13);
        if (test_is_left_out()) {
            fini(&at);
            continue;
        }
        n_run++;
        enum mist_status status =
            mist_target_run(&at.config, at.job.framework, at.pool, &never, &result, &err);
        double best_s = find_fastest(&at);
        assert_int_equal(status, isinf(best_s) ? MIST_ERR_NO_PLAN : MIST_OK);
        if (status == MIST_OK) {
            double found_s = result.plans[0].plan->predicted.iteration_s;
            if (!(found_s <= best_s))
                fail_msg("problem %d: %g s, brute force %g s", i, found_s, best_s);
            n_solved++;
            mist_validate_result_fini(&result);
        }
        fini(&at);
    }
    assert_true(n_solved >= n_run / 3);
}

TEST_MAIN(NULL, NULL)
