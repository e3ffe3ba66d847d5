/*
 * Framework profiles: what they keep in memory and what they take, against closed forms of
 * papers, prices put together by hand, and one layer that others measured.
 */
#include "tests/unit/test.h"
#include "tests/unit/tiny_models.h"

#include "sim/cost/cost_model.h"
#include "sim/explain/explain.h"
#include "sim/model/framework.h"
#include "traces/preset.h"

#include <math.h>

/* The 22B model of Korthikanti et al. 2022. */
static struct mist_model gpt(int32_t hidden, int32_t n_heads)
{
    return (struct mist_model){
        .name = "made up",
        .family = MIST_FAMILY_GPT,
        .n_layers = 4,
        .hidden = hidden,
        .n_heads = n_heads,
        .n_kv_heads = n_heads,
        .head_dim = hidden / n_heads,
        .ffn = 4 * hidden,
        .vocab = 51200,
        .max_seq = 4096,
        .has_bias = true,
        .norm_epsilon = 1e-5,
    };
}

static struct mist_model llama(void)
{
    struct mist_model model;
    struct mist_err err = {0};

    must(mist_model_load_preset("llama3-8b", &model, &err), &err);
    return model;
}

static bool is_torchtitan(int framework)
{
    return framework == MIST_FRAMEWORK_TORCHTITAN ||
           framework == MIST_FRAMEWORK_TORCHTITAN_COMPILED ||
           framework == MIST_FRAMEWORK_LLM_FOUNDRY;
}

/* One stage of one micro-batch of a framework. */
struct job {
    struct mist_plan plan;
    struct mist_layer_layout layouts[MIST_N_LAYER_KINDS];
};

static struct job *make_job(enum mist_framework_name framework,
                            enum mist_attention attention, struct mist_model model,
                            int32_t micro_batch, int32_t seq, int32_t tp, bool is_cut,
                            bool selects)
{
    struct job *job = calloc(1, sizeof *job);
    struct mist_err err = {0};

    assert_non_null(job);
    job->plan.model = model;
    job->plan.job = (struct mist_job){
        .global_batch = micro_batch,
        .seq_len = seq,
        .dtype = MIST_DTYPE_BF16,
        .gradient_dtype = MIST_DTYPE_FP32,
        .computes_on_gpu = true,
        .framework = framework,
        .attention = attention,
        .recomputes_attention = selects,
    };
    job->plan.n_micro_batches = job->plan.n_stages = 1;
    job->plan.stages[0] = mist_tiny_stage(model.n_layers, micro_batch, 1, tp);
    job->plan.stages[0].is_sequence_parallel = is_cut;
    must(mist_plan_check(&job->plan, &err), &err);
    for (int k = 0; k < MIST_N_LAYER_KINDS; k++)
        must(mist_layer_layout_make(&model, (enum mist_layer_kind)k,
                                    mist_schedule_shape(&job->plan, 0, 0),
                                    &job->layouts[k], &err),
             &err);
    return job;
}

/* --------------------------------------------------------------------------- memory */

/* Korthikanti et al. 2022, equations 2 to 6: bytes that a layer keeps. */
TEST(test_kept_activations)
{
    const double s = 2048, b = 4, h = 6144, a = 64, t = 8;
    const double scores = 5 * a * s / h;
    const struct {
        bool is_cut, selects;
        double bytes;
    } cases[] = {
        {false, false, s * b * h * (10 + 24 / t + scores / t)},
        {true, false, s * b * h / t * (34 + scores)},
        {false, true, s * b * h * (10 + 24 / t)},
        {true, true, s * b * h / t * 34},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job *job =
            make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED, gpt(6144, 64), 4,
                     2048, 8, cases[i].is_cut, cases[i].selects);
        const struct mist_layer_layout *block = &job->layouts[MIST_LAYER_BLOCK];
        near_to((double)(block->saved_bytes + block->input_bytes), cases[i].bytes, 0.005);
        /* scores that are not kept are there while attention runs */
        double scratch = (double)block->scratch_backward_bytes;
        assert_int_equal(cases[i].selects, scratch > s * b * h * scores / t);
        free(job);
    }
}

/* Without dropout two masks of a byte are not kept. */
TEST(test_no_dropout)
{
    const double s = 2048, b = 4, h = 6144, t = 8;
    struct job *job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FLASH,
                               gpt(6144, 64), 4, 2048, 8, true, false);
    struct mist_layer_layout *block = &job->layouts[MIST_LAYER_BLOCK];
    int64_t kept = block->saved_bytes;
    struct mist_err err = {0};

    job->plan.job.has_no_dropout = true;
    must(mist_plan_check(&job->plan, &err), &err);
    must(mist_layer_layout_make(&job->plan.model, MIST_LAYER_BLOCK,
                                mist_schedule_shape(&job->plan, 0, 0), block, &err),
         &err);
    near_to((double)(kept - block->saved_bytes), 2 * s * b * h / t, 1e-6);
    free(job);
}

/* Bytes per token that torchtitan keeps of a block of Llama 3 8B where it recomputes
 * selectively (selective_ac_option "op"): of products the first, third, fifth and seventh,
 * attention with a logarithm in fp32 for each head, and the input. With two
 * tensor-parallel ranks half of each, but all of what the seventh gives, and what is summed
 * and cut. */
TEST(test_kept_products)
{
    const double rows = 2 * 1024, q = 4096, v = 1024, gate = 14336, hidden = 4096;

    for (int32_t tp = 1; tp <= 2; tp++) {
        struct job *job = make_job(MIST_FRAMEWORK_TORCHTITAN, MIST_ATTENTION_FLASH,
                                   llama(), 2, 1024, tp, tp > 1, true);
        const struct mist_layer_layout *block = &job->layouts[MIST_LAYER_BLOCK];
        double cut = 2 * (q + v + gate + q) + 4 * 32 + (tp > 1 ? 2 * 2 * hidden : 0);
        near_to((double)block->saved_bytes, rows * (cut / tp + 2 * hidden), 1e-3);
        near_to((double)block->input_bytes, rows * 2 * hidden / tp, 0);
        free(job);
    }
}

/* Losses of others have the logits of a whole micro-batch in memory: of PyTorch gradient,
 * result and what it gives back, each in fp32, of a sliced vocabulary the log-softmax, zeros,
 * exp and their sum (loss_parallel); of Megatron-LM those of two bytes, in fp32,
 * and what is left of these when the maximum is gone, which is in their place in 2021. */
TEST(test_held_logits)
{
    const double rows = 2 * 1024, vocab = 128256;
    const struct {
        enum mist_framework_name framework;
        int32_t tp;
        double bytes;
    } cases[] = {
        {MIST_FRAMEWORK_TORCHTITAN, 1, 3 * 4},
        {MIST_FRAMEWORK_TORCHTITAN, 2, 4 * 4},
        {MIST_FRAMEWORK_TORCHTITAN_COMPILED, 8, 4 * 4},
        {MIST_FRAMEWORK_LLM_FOUNDRY, 1, 4},
        {MIST_FRAMEWORK_MEGATRON, 1, 2 + 4 + 4},
        {MIST_FRAMEWORK_MEGATRON, 8, 2 + 4 + 4},
        {MIST_FRAMEWORK_MEGATRON_2021, 1, 2 + 4},
        {MIST_FRAMEWORK_MEGATRON_2021, 8, 2 + 4},
        {MIST_FRAMEWORK_DEEPSPEED, 8, 2 + 4 + 4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job *job = make_job(cases[i].framework, MIST_ATTENTION_FLASH, llama(), 2,
                                   1024, cases[i].tp, false, false);
        near_to((double)job->layouts[MIST_LAYER_HEAD].scratch_forward_bytes,
                rows * (vocab / cases[i].tp * cases[i].bytes + 2 * 4096), 0.01);
        free(job);
    }
}

/* llm-foundry, scripts/train/benchmarking/README.md: micro-batches of 2,048 tokens that ran
 * on A100 of 40 GB, beside 1.5 GiB of a process. With torchtitan's loss they would not. */
TEST(test_fits)
{
    static const struct {
        int32_t n_layers, hidden, n_heads, micro_batch, dp;
    } rows[] = {{12, 768, 12, 26, 8}, {24, 1024, 16, 18, 16}, {24, 1536, 16, 12, 16}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (int ran = 0; ran < 2; ran++) {
            struct mist_model model = gpt(rows[i].hidden, rows[i].n_heads);
            model.n_layers = rows[i].n_layers;
            model.vocab = 50368;
            model.has_bias = false;
            model.ties_embeddings = true;
            struct job *job = make_job(
                ran ? MIST_FRAMEWORK_LLM_FOUNDRY : MIST_FRAMEWORK_TORCHTITAN,
                MIST_ATTENTION_FLASH1, model, rows[i].micro_batch, 2048, 1, false, false);
            struct mist_stage_plan *stage = &job->plan.stages[0];
            struct mist_schedule *schedule;
            struct mist_err err = {0};
            stage->dp = stage->n_devices = rows[i].dp;
            stage->zero = 3;
            job->plan.job.global_batch *= rows[i].dp;
            must(mist_plan_check(&job->plan, &err), &err);
            must(mist_schedule_build(&job->plan, 0, 1, &schedule, &err), &err);
            double gib = (double)schedule->arena_bytes[MIST_ARENA_DEVICE] / (1 << 30);
            assert_int_equal(gib + 1.5 < 40, ran);
            mist_schedule_free(schedule);
            free(job);
        }
}

static int64_t arena_bytes(const struct mist_plan *plan, int32_t i_stage)
{
    struct mist_schedule *schedule;
    struct mist_err err = {0};

    must(mist_schedule_build(plan, 2 * i_stage, 1, &schedule, &err), &err);
    int64_t bytes = schedule->arena_bytes[MIST_ARENA_DEVICE];
    mist_schedule_free(schedule);
    return bytes;
}

static struct mist_model bloom(void)
{
    struct mist_model model = gpt(14336, 64);

    model.n_layers = 5;
    model.vocab = 250880;
    model.max_seq = 2048;
    model.ties_embeddings = true;
    return model;
}

/* 70 blocks on 12 stages, of which the ends have one block less; 8 replicas of 4 ranks. */
static void spread_bloom(struct mist_plan *plan)
{
    plan->model.n_layers = 70;
    plan->n_stages = 12;
    plan->n_micro_batches = 128;
    plan->job.global_batch = 2048;
    for (int32_t i = 0; i < plan->n_stages; i++) {
        struct mist_stage_plan *stage = &plan->stages[i];
        *stage = plan->stages[0];
        stage->n_layers = i == 0 || i == 11 ? 5 : 6;
        stage->n_checkpointed = stage->n_layers;
        stage->dp = 8;
        stage->n_nodes = 4;
        stage->n_devices = 8;
        stage->zero = 1;
    }
}

/* What a Llama keeps that transformers computes, operator by operator: Llama 2 7B on 8 A800
 * with DeepSpeed's ZeRO-2, a sample of 4,096 tokens, takes 44.8 GiB without and 23.5 with
 * checkpoints (gist.github.com/chenyaofo/d4cd6a20ab4b95cb3a49491747e2139a). By its sources
 * that is 45.5 bytes of a token's element in each block but one, less the 2 of its input. */
TEST(test_eager_memory)
{
    const double rows = 4096, hidden = 4096, ffn = 11008, n_layers = 32;
    const double norm = 4 + 2 + 2; /* fp32, in front of the weights, result */
    const double attention = 2 + 2 + 2 + 2, gate = 4 * 2 * ffn / hidden;
    double gib[2];

    for (int i = 0; i < 2; i++) {
        struct mist_err err = {0};
        struct mist_model model;
        must(mist_model_load_preset("llama2-7b", &model, &err), &err);
        struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FLASH, model,
                                   1, (int32_t)rows, 1, false, false);
        struct mist_stage_plan *stage = &job->plan.stages[0];
        struct mist_schedule *schedule;
        stage->dp = stage->n_devices = 8;
        stage->zero = 2;
        stage->n_checkpointed = i ? stage->n_layers : 0;
        job->plan.job.global_batch *= 8;
        job->plan.job.has_no_dropout = true;
        must(mist_plan_check(&job->plan, &err), &err);
        must(mist_schedule_build(&job->plan, 0, 1, &schedule, &err), &err);
        gib[i] = (double)schedule->arena_bytes[MIST_ARENA_DEVICE] / (1 << 30);
        mist_schedule_free(schedule);
        free(job);
    }
    print_message("# checkpoints save %.1f GiB, 21.3 were saved\n", gib[0] - gib[1]);
    near_to(gib[0] - gib[1],
            (n_layers - 1) * (2 * norm + attention + gate - 2) * rows * hidden /
                (1 << 30),
            0.02);
    near_to(gib[0] - gib[1], 44.8 - 23.5, 0.05);
}

/* What nvidia-smi shows, GiB: FlagPerf's Llama 2 7B on 8 A800 and H800 (training/nvidia/
 * llama2_7b-deepspeed) with ZeRO-3 in fp16, and BLOOM's plan on 384 A100 (BigScience, tr11-176B-ml/
 * chronicles-prequel.md), sums in fp32. */
TEST(test_deepspeed_holds)
{
    const double bucket = 10000000, gib = 1 << 30;
    struct mist_trace_set set;
    struct mist_model model;
    struct mist_err err = {0};

    must(mist_model_load_preset("llama2-7b", &model, &err), &err);
    must(mist_preset_parse(&set, "a800:1x8", &err), &err);
    struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FLASH, model, 1,
                               4096, 1, false, false);
    struct mist_stage_plan *stage = &job->plan.stages[0];
    stage->dp = stage->n_devices = 8;
    stage->zero = 3;
    job->plan.job.global_batch = 8;
    job->plan.job.dtype = job->plan.job.gradient_dtype = MIST_DTYPE_FP16;
    job->plan.job.has_no_dropout = job->plan.job.overlaps = true;
    job->plan.job.reduce_bucket = (int64_t)bucket;
    must(mist_plan_check(&job->plan, &err), &err);
    const struct mist_replay_stage needs = {
        .n_parameters = 6738415616,
        .arena_bytes = {[MIST_ARENA_DEVICE] = arena_bytes(&job->plan, 0)}};
    const struct mist_cluster *cluster = &set.cluster;
    struct mist_beside_arena usual = mist_beside_arena_find(&job->plan, cluster, &needs);
    double all = (double)(needs.arena_bytes[MIST_ARENA_DEVICE] + usual.kept_bytes +
                          usual.held_bytes + usual.runtime_bytes);
    print_message("# Llama 2 7B, ZeRO-3: %.1f GiB, 57 and 59 were shown\n", all / gib);
    near_to(all / gib, 58, 0.13);
    near_to((double)usual.kept_bytes, 2 * bucket, 1e-9);

    /* pieces of a step: six bytes of what a rank updates, of a group at the most */
    job->plan.job.sub_group = 100000000;
    struct mist_beside_arena less = mist_beside_arena_find(&job->plan, cluster, &needs);
    near_to((double)(usual.held_bytes - less.held_bytes),
            6 * ((double)needs.n_parameters / 8 - 1e8), 1e-9);
    /* unless told otherwise, a bucket is half a billion; ZeRO-2 fills one as it sends another */
    job->plan.job.reduce_bucket = 0;
    less = mist_beside_arena_find(&job->plan, cluster, &needs);
    near_to((double)less.kept_bytes, 2 * 5e8, 1e-9);
    stage->zero = 2;
    less = mist_beside_arena_find(&job->plan, cluster, &needs);
    near_to((double)less.kept_bytes, 2 * 2 * 5e8, 1e-9);
    free(job);

    job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FUSED, bloom(), 2, 2048, 4,
                   false, false);
    spread_bloom(&job->plan);
    must(mist_plan_check(&job->plan, &err), &err);
    const struct mist_replay_stage first = {
        .n_parameters = (250880 * INT64_C(14336) + 5 * 12 * INT64_C(14336) * 14336) / 4,
        .arena_bytes = {[MIST_ARENA_DEVICE] = arena_bytes(&job->plan, 0)}};
    usual = mist_beside_arena_find(&job->plan, cluster, &first);
    all = (double)(first.arena_bytes[MIST_ARENA_DEVICE] + usual.kept_bytes +
                   usual.held_bytes + usual.runtime_bytes);
    print_message("# BLOOM 176B: %.1f GiB, 59 were shown\n", all / gib);
    near_to(all / gib, 59, 0.1);
    near_to((double)usual.kept_bytes, 2 * (double)first.n_parameters, 1e-9);
    free(job);
    mist_trace_set_fini(&set);
}

/* torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3: GiB that PyTorch
 * reserved for Llama 3.1 8B with FSDP on 8 and 128 GPUs, 2 samples of 8,192 tokens each. */
TEST(test_measured_memory)
{
    static const struct {
        int32_t dp;
        double gib;
    } rows[] = {{8, 82.4}, {128, 67.0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct job *job = make_job(MIST_FRAMEWORK_TORCHTITAN, MIST_ATTENTION_FLASH,
                                   llama(), 2, 8192, 1, false, true);
        struct mist_stage_plan *stage = &job->plan.stages[0];
        struct mist_schedule *schedule;
        struct mist_err err = {0};
        stage->dp = stage->n_devices = rows[i].dp;
        stage->zero = 3;
        job->plan.job.global_batch *= rows[i].dp;
        must(mist_plan_check(&job->plan, &err), &err);
        must(mist_schedule_build(&job->plan, 0, 1, &schedule, &err), &err);
        double gib = (double)schedule->arena_bytes[MIST_ARENA_DEVICE] / (1 << 30) *
                     (1 + mist_framework_get(MIST_FRAMEWORK_TORCHTITAN)->held_frac);
        print_message("# Llama 3.1 8B, %d GPUs: %.1f GiB, %.1f were reserved\n",
                      (int)rows[i].dp, gib, rows[i].gib);
        near_to(gib, rows[i].gib, 0.08);
        mist_schedule_free(schedule);
        free(job);
    }
}

/* ------------------------------------------------------------------------------ time */

static void open_a100(struct mist_trace_set *set, struct mist_cost_model **model)
{
    struct mist_err err = {0};

    must(mist_preset_parse(set, "a100-80", &err), &err);
    must(mist_cost_model_new(set, model, &err), &err);
}

/* Parts of a program one after the other, without communication and without launches of
 * tasks; or with both. */
static double layer_s(const struct mist_cost_model *model, const struct job *job,
                      enum mist_layer_kind kind, enum mist_program_kind program,
                      bool communicates)
{
    const struct mist_layer_layout *layer = &job->layouts[kind];
    const struct mist_group_shape group = {1, job->plan.stages[0].tp, 1};
    int32_t i_layer = kind == MIST_LAYER_HEAD ? job->plan.model.n_layers + 1 : 1;
    double sum_s = 0;

    for (int32_t i = 0; i < layer->programs[program].n_parts; i++) {
        struct mist_task task = mist_schedule_part_task(layer, program, i, i_layer);
        struct mist_cost cost;
        struct mist_err err = {0};
        must(
            mist_cost_task(model, &job->plan, 0, job->layouts, group, &task, &cost, &err),
            &err);
        if (communicates)
            sum_s += cost.time_s;
        else if (!layer->programs[program].parts[i].is_communication)
            sum_s += cost.time_s - mist_cost_model_launch_s(model);
    }
    return sum_s;
}

static double program_s(const struct mist_cost_model *model, const struct job *job,
                        enum mist_program_kind program, bool communicates)
{
    return layer_s(model, job, MIST_LAYER_BLOCK, program, communicates);
}

/* Kernels of an array pass, and a product beside which it reads. */
static double pass_s(const struct mist_cluster *cluster, double n_kernels, double bytes)
{
    return n_kernels * 5e-6 +
           bytes / (cluster->curve.memory_frac * cluster->memory_bytes_per_s);
}

static double product_s(const struct mist_cost_model *model, int64_t rows, int64_t n_in,
                        int64_t n_out, double bytes)
{
    const int64_t dims[MIST_MAX_DIMS] = {rows, n_in, n_out};
    struct mist_cost cost;
    struct mist_err err = {0};

    must(mist_cost_op(model, MIST_OP_LINEAR, MIST_PHASE_FORWARD, MIST_DTYPE_BF16, dims,
                      2.0 * (double)rows * (double)n_in * (double)n_out, bytes, &cost,
                      &err),
         &err);
    return cost.time_s;
}

/* What a product takes less at the peak of 8 bits: the same curve, twice as fast. */
static double eight_bit_gain_s(const struct mist_cluster *cluster,
                               const struct mist_cost_model *model, int64_t rows,
                               int64_t n_in, int64_t n_out)
{
    const double start_s = 5e-6;
    double s = product_s(model, rows, n_in, n_out, 0) - start_s;

    return s * (1 - cluster->peak_flop_per_s[MIST_TRACE_BF16] /
                        cluster->peak_flop_per_s[MIST_TRACE_FP8]);
}

static double flash_s(const struct mist_cost_model *model, enum mist_phase phase,
                      const int64_t dims[MIST_MAX_DIMS])
{
    struct mist_work work = mist_op_work(MIST_OP_ATTENTION, phase, dims, MIST_DTYPE_BF16);
    struct mist_cost cost;
    struct mist_err err = {0};

    must(mist_cost_op(model, MIST_OP_ATTENTION, phase, MIST_DTYPE_BF16, dims,
                      (double)work.flop, (double)work.bytes, &cost, &err),
         &err);
    return cost.time_s;
}

/* Attention by single kernels is what it is made of; recomputing it adds its forward. */
TEST(test_attention)
{
    const int64_t b = 8, s = 1024, a = 16, d = 128, rows = b * s * a;
    const int64_t dims[MIST_MAX_DIMS] = {b, s, a, a, d};
    const double scores = (double)(rows * s), result = (double)(rows * d);
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double forward_s[MIST_N_ATTENTIONS], backward_s[MIST_N_ATTENTIONS], again_s = 0;

    open_a100(&set, &model);
    for (int i = 0; i <= MIST_ATTENTION_UNFUSED; i++) {
        struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, (enum mist_attention)i,
                                   gpt(2048, 16), 8, 1024, 1, false, false);
        forward_s[i] = program_s(model, job, MIST_PROGRAM_FORWARD, false);
        backward_s[i] = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
        free(job);
    }
    double to_s =
        product_s(model, rows, d, s, 4 * result) + pass_s(&set.cluster, 1, 2 * scores);
    double from_s = product_s(model, rows, s, d, 2 * (scores + result)) +
                    pass_s(&set.cluster, 1, 2 * result);
    /* bytes that memory moves while the softmax has its 108 processors work on a score */
    const double softmax = 0.82 * 2039e9 / (108 * 2.95e9);
    double fused_s =
        to_s + from_s + pass_s(&set.cluster, 3, (softmax + 5) * scores + 4 * result);
    near_to(forward_s[MIST_ATTENTION_FUSED] - forward_s[MIST_ATTENTION_FLASH],
            fused_s - flash_s(model, MIST_PHASE_FORWARD, dims), 1e-6);
    near_to(forward_s[MIST_ATTENTION_UNFUSED] - forward_s[MIST_ATTENTION_FUSED],
            pass_s(&set.cluster, 4, (37 - softmax) * scores), 1e-6);
    double fused_backward_s =
        to_s + 3 * from_s + pass_s(&set.cluster, 3, (softmax + 5) * scores + 12 * result);
    near_to(backward_s[MIST_ATTENTION_FUSED] - backward_s[MIST_ATTENTION_FLASH],
            fused_backward_s - flash_s(model, MIST_PHASE_BACKWARD_INPUT, dims), 1e-6);
    struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FUSED,
                               gpt(2048, 16), 8, 1024, 1, false, true);
    again_s = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
    near_to(again_s - backward_s[MIST_ATTENTION_FUSED], fused_s, 1e-6);
    free(job);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Attention of one kernel, forward and backward, in TFLOP/s. */
static double attention_rate(const char *preset, enum mist_attention attention,
                             int32_t seq, int32_t head_dim)
{
    const int32_t n_heads = 2048 / head_dim, b = 16384 / seq;
    const int64_t dims[MIST_MAX_DIMS] = {b, seq, n_heads, n_heads, head_dim};
    const enum mist_attention ways[] = {MIST_ATTENTION_FLASH_CUDNN, attention};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_model of = gpt(n_heads * head_dim, n_heads);
    struct mist_err err = {0};
    double s[2], flop = 0, ours_s = 0;

    of.max_seq = seq;
    must(mist_preset_parse(&set, preset, &err), &err);
    must(mist_cost_model_new(&set, &model, &err), &err);
    for (int i = 0; i < 2; i++) {
        struct job *job =
            make_job(MIST_FRAMEWORK_TORCHTITAN, ways[i], of, b, seq, 1, false, false);
        s[i] = program_s(model, job, MIST_PROGRAM_FORWARD, false) +
               program_s(model, job, MIST_PROGRAM_BACKWARD, false);
        free(job);
    }
    for (int i = 0; i < 2; i++) {
        enum mist_phase phase = i ? MIST_PHASE_BACKWARD_INPUT : MIST_PHASE_FORWARD;
        ours_s += flash_s(model, phase, dims);
        flop +=
            (double)mist_op_work(MIST_OP_ATTENTION, phase, dims, MIST_DTYPE_BF16).flop;
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
    return flop / (ours_s + s[1] - s[0]) / 1e12;
}

/* The benchmark of FlashAttention's authors, causal, 16,384 tokens, hidden 2,048, TFLOP/s
 * (github.com/Dao-AILab/flash-attention, assets/flash2_*_fwd_bwd_benchmark.png). */
TEST(test_attention_rates)
{
    static const struct {
        const char *preset;
        enum mist_attention attention;
        int32_t head_dim;
        double measured[6]; /* at 512, 1,024, .. */
    } rows[] = {
        {"a100-80", MIST_ATTENTION_FLASH1, 64, {58, 70, 77, 87, 92, 97}},
        {"a100-80", MIST_ATTENTION_FLASH1, 128, {55, 62, 69, 76, 80, 83}},
        {"a100-80", MIST_ATTENTION_FLASH, 64, {88, 119, 140, 156, 165, 171}},
        {"a100-80", MIST_ATTENTION_FLASH, 128, {99, 133, 155, 173, 182, 189}},
        {"h100-sxm", MIST_ATTENTION_FLASH, 64, {141, 192, 232, 257, 273, 284}},
        {"h100-sxm", MIST_ATTENTION_FLASH, 128, {163, 221, 265, 294, 308, 328}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double sum = 0;
        for (int k = 0; k < 6; k++) {
            double rate = attention_rate(rows[i].preset, rows[i].attention, 512 << k,
                                         rows[i].head_dim);
            near_to(rate, rows[i].measured[k], 0.25);
            sum += rate / rows[i].measured[k] / 6;
        }
        print_message("# %s %s, heads of %d: %.3f of what was measured\n", rows[i].preset,
                      mist_attention_ways[rows[i].attention], (int)rows[i].head_dim, sum);
        near_to(sum, 1, 0.12);
    }
}

/* Heads take the next larger kernel there is (FlashAttention 1: fmha_api.cpp, run_fmha_fwd,
 * 32, 64, 128; 2: flash_api.cpp, HEADDIM_SWITCH, also 96 and from 160 to 256), and as long as
 * heads that fill it. */
TEST(test_head_sizes)
{
    static const struct {
        enum mist_attention attention;
        int32_t head_dim, kernel;
    } cases[] = {
        {MIST_ATTENTION_FLASH1, 80, 128},  {MIST_ATTENTION_FLASH1, 40, 64},
        {MIST_ATTENTION_FLASH1, 128, 128}, {MIST_ATTENTION_FLASH, 80, 96},
        {MIST_ATTENTION_FLASH, 112, 128},  {MIST_ATTENTION_FLASH, 200, 224},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        double rate =
            attention_rate("a100-80", cases[i].attention, 8192, cases[i].head_dim);
        double full =
            attention_rate("a100-80", cases[i].attention, 8192, cases[i].kernel);
        near_to(rate / full, (double)cases[i].head_dim / cases[i].kernel, 0.01);
    }
}

/* In fp16 gradients are scaled back before an optimizer step. */
TEST(test_loss_scaling)
{
    for (int f = 1; f < MIST_N_FRAMEWORKS; f++) {
        const struct mist_framework *of = mist_framework_get((enum mist_framework_name)f);
        near_to(mist_framework_optimizer_bytes(of, MIST_DTYPE_BF16, MIST_DTYPE_FP32),
                of->optimizer_bytes, 0);
        near_to(mist_framework_optimizer_bytes(of, MIST_DTYPE_FP16, MIST_DTYPE_FP32),
                of->optimizer_bytes + of->scaling_bytes, 0);
        /* the copy reads two bytes and writes four */
        near_to(mist_framework_optimizer_bytes(of, MIST_DTYPE_BF16, MIST_DTYPE_BF16),
                of->optimizer_bytes + (is_torchtitan(f) ? 0 : 6), 0);
        assert_true(of->scaling_bytes >= 8); /* fp32, read and written */
    }
    /* its README: 20 bytes a parameter with fp16 gradients, 18 with fp32 ones */
    assert_int_equal(
        mist_dtype_weight_bytes(MIST_DTYPE_FP16) +
            mist_dtype_gradient_bytes(MIST_DTYPE_FP16) +
            mist_dtype_state_bytes(MIST_DTYPE_FP16) +
            mist_framework_copy_bytes(MIST_FRAMEWORK_MEGATRON, MIST_DTYPE_FP16),
        20);
    assert_int_equal(mist_framework_copy_bytes(MIST_FRAMEWORK_MEGATRON, MIST_DTYPE_FP32),
                     0);
    assert_int_equal(mist_framework_copy_bytes(MIST_FRAMEWORK_OURS, MIST_DTYPE_BF16), 0);
    /* in 2021 from one iteration to the next, with the gradients themselves */
    const enum mist_framework_name old = MIST_FRAMEWORK_MEGATRON_2021;
    assert_int_equal(
        mist_framework_kept_bytes(old, MIST_DTYPE_FP16, MIST_DTYPE_FP16, false), 6);
    assert_int_equal(mist_framework_copy_bytes(old, MIST_DTYPE_FP16), 0);
    assert_int_equal(
        mist_framework_kept_bytes(old, MIST_DTYPE_FP16, MIST_DTYPE_FP32, false), 0);
    assert_int_equal(mist_framework_kept_bytes(MIST_FRAMEWORK_MEGATRON, MIST_DTYPE_FP16,
                                               MIST_DTYPE_FP16, false),
                     0);
}

/* The device arena of a job of so many samples, gradients of two bytes, ZeRO-1 over dp. */
static double find_arena(enum mist_framework_name framework, int32_t samples, int32_t dp)
{
    struct mist_model model = gpt(1024, 16);
    struct mist_schedule *schedule;
    struct mist_err err = {0};

    model.n_layers = 8;
    struct job *job =
        make_job(framework, MIST_ATTENTION_FLASH, model, samples, 128, 1, false, false);
    job->plan.job.gradient_dtype = MIST_DTYPE_BF16;
    job->plan.job.global_batch = (int64_t)samples * dp;
    job->plan.stages[0].dp = job->plan.stages[0].n_devices = dp;
    job->plan.stages[0].zero = dp > 1;
    must(mist_plan_check(&job->plan, &err), &err);
    must(mist_schedule_build(&job->plan, 0, 1, &schedule, &err), &err);
    double bytes = (double)schedule->arena_bytes[MIST_ARENA_DEVICE];
    mist_schedule_free(schedule);
    free(job);
    return bytes;
}

/* Megatron-LM's README: 20 bytes a parameter with fp16 gradients, 4 + 16 / dp where the
 * optimizer is sharded; its optimizer frees the fp32 copy before the next forward, so it
 * takes no room beside activations. DeepSpeed's does the same: of BigScience's log of its
 * 52B, ranks of stages without ends report 20.1 bytes a parameter. */
TEST(test_gradient_copy)
{
    const double h = 1024, n = (2 * 51200 + 4096) * h + 8 * (12 * h * h + 13 * h) + 2 * h;

    for (int32_t dp = 1; dp <= 4; dp *= 4) {
        near_to(find_arena(MIST_FRAMEWORK_MEGATRON, 1, dp), (4 + 16.0 / dp) * n, 0.03);
        near_to(find_arena(MIST_FRAMEWORK_DEEPSPEED, 1, dp), (4 + 16.0 / dp) * n, 0.03);
        assert_true(find_arena(MIST_FRAMEWORK_TORCHTITAN, 1, dp) <
                    (4 + 14.0 / dp) * n + 12.0 * 128 * 51200);
        near_to(find_arena(MIST_FRAMEWORK_MEGATRON, 64, dp),
                find_arena(MIST_FRAMEWORK_DEEPSPEED, 64, dp), 0);
    }
}

/* A fused softmax that a shape does not have falls back to single kernels. */
TEST(test_fall_back)
{
    assert_int_equal(mist_framework_attention_at(MIST_ATTENTION_FUSED, 4096, 16),
                     MIST_ATTENTION_FUSED);
    assert_int_equal(mist_framework_attention_at(MIST_ATTENTION_FUSED, 8192, 16),
                     MIST_ATTENTION_UNFUSED);
    assert_int_equal(mist_framework_attention_at(MIST_ATTENTION_FUSED, 1022, 16),
                     MIST_ATTENTION_UNFUSED);
    assert_int_equal(mist_framework_attention_at(MIST_ATTENTION_FUSED, 1024, 6),
                     MIST_ATTENTION_UNFUSED);
    assert_int_equal(mist_framework_attention_at(MIST_ATTENTION_FLASH, 8192, 16),
                     MIST_ATTENTION_FLASH);
}

/* Small kernels cost their launches: 1 norm, 2 qkv and its bias, 5 attention, 2 proj, 1
 * norm, 2 up, 2 down; backward 10 + 10 of the norms, 3 + 1, 4 + 2 and twice 2 + 2 of the
 * products, 7 attention. Of these 45, 7 add gradients of small parameters: 2 of each norm,
 * and biases of proj, up and down. */
TEST(test_launches)
{
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FUSED, gpt(64, 4),
                               1, 32, 1, false, false);
    double dispatch_s = mist_framework_get(MIST_FRAMEWORK_DEEPSPEED)->dispatch_us * 1e-6;

    open_a100(&set, &model);
    near_to(program_s(model, job, MIST_PROGRAM_FORWARD, false), 15 * dispatch_s, 1e-9);
    near_to(program_s(model, job, MIST_PROGRAM_BACKWARD, false), 45 * dispatch_s, 1e-9);
    /* recomputation of the whole block is its forward */
    near_to(program_s(model, job, MIST_PROGRAM_RECOMPUTE, false), 15 * dispatch_s, 1e-9);
    free(job);
    /* a host that waits for its kernels adds its time to theirs */
    job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FUSED, gpt(6144, 64), 4, 1024,
                   1, false, false);
    double device_s = program_s(model, job, MIST_PROGRAM_FORWARD, false);
    assert_true(device_s > 15 * dispatch_s);
    job->plan.job.blocks_launches = true;
    near_to(program_s(model, job, MIST_PROGRAM_FORWARD, false) - device_s,
            15 * dispatch_s, 1e-9);
    free(job);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* DeepSpeed's sums in fp32 are a copy of a micro-batch's gradients and its sum, 18 bytes for
 * each of 12 hidden^2 weights; those in two bytes 6. */
TEST(test_sums)
{
    const double n_weights = 12.0 * 2048 * 2048;
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FUSED,
                               gpt(2048, 16), 8, 1024, 1, false, false);

    open_a100(&set, &model);
    double fp32_s = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
    job->plan.job.gradient_dtype = MIST_DTYPE_BF16;
    near_to(fp32_s - program_s(model, job, MIST_PROGRAM_BACKWARD, false),
            (18 - 6) * n_weights / (0.82 * 2039e9), 1e-6);
    free(job);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* What is cut among ranks by sequence parallelism are two norms, 4 bytes an element, and two
 * sums with residual, bias and dropout, 7: a product whose result is summed over ranks leaves
 * its bias to them (RowParallelLinear, skip_bias_add). */
TEST(test_bias_behind)
{
    const double elements = 4.0 * 2048 * 6144;
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double forward_s[2];

    open_a100(&set, &model);
    for (int i = 0; i < 2; i++) {
        struct job *job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED,
                                   gpt(6144, 64), 4, 2048, 8, i == 1, false);
        forward_s[i] = program_s(model, job, MIST_PROGRAM_FORWARD, false);
        free(job);
    }
    near_to(forward_s[0] - forward_s[1],
            7.0 / 8 * elements * 2 * (4 + 7) / (0.82 * 2039e9), 1e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* PyTorch's checkpoints that are not re-entrant stop when all that the backward reads is
 * there: without the last product, its residual and what is behind. Its RMS norm is made
 * of operators, in fp32. */
TEST(test_eager)
{
    const int64_t rows = 8 * 1024, hidden = 2048, ffn = 4 * hidden;
    const double steps[] = {2 + 4, 4 + 4, 4, 4 + 4,
                            4 + 2, 2 + 2}; /* to fp32, pow, mean,
                                      times 1 / root, to bf16, times the weights */
    const struct mist_framework_op *norm =
        &mist_framework_get(MIST_FRAMEWORK_TORCHTITAN)
             ->ops[MIST_OP_RMS_NORM][MIST_PHASE_FORWARD];
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double sum = 0;

    for (size_t i = 0; i < sizeof steps / sizeof *steps; i++)
        sum += steps[i];
    near_to(norm->bytes, sum, 0);
    open_a100(&set, &model);
    struct job *job = make_job(MIST_FRAMEWORK_TORCHTITAN, MIST_ATTENTION_FLASH,
                               gpt(2048, 16), 8, 1024, 1, false, false);
    near_to(program_s(model, job, MIST_PROGRAM_FORWARD, false) -
                program_s(model, job, MIST_PROGRAM_RECOMPUTE, false),
            product_s(model, rows, ffn, hidden,
                      2.0 * (double)(rows * (ffn + hidden) + ffn * hidden)) +
                pass_s(&set.cluster, 1, 6.0 * (double)(rows * hidden)),
            1e-6);
    free(job);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Queries, keys, values, gate and up are products of their own in torchtitan's Llama; the
 * gradients of their inputs are summed up in pairs, by reads of 4 bytes and writes of 2. */
TEST(test_products_apart)
{
    const int64_t rows = 2048, hidden = 4096;
    const int64_t parts[] = {4096, 1024, 1024, 14336, 14336}, fused[] = {6144, 28672};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double apart_s = 0, more_s;

    open_a100(&set, &model);
    for (size_t i = 0; i < 5; i++)
        apart_s +=
            product_s(model, rows, hidden, parts[i],
                      2.0 * (double)(rows * (hidden + parts[i]) + hidden * parts[i]));
    for (size_t i = 0; i < 2; i++)
        apart_s -=
            product_s(model, rows, hidden, fused[i],
                      2.0 * (double)(rows * (hidden + fused[i]) + hidden * fused[i]));
    struct job *job = make_job(MIST_FRAMEWORK_TORCHTITAN, MIST_ATTENTION_FLASH, llama(),
                               1, 2048, 1, false, false);
    double time_s = program_s(model, job, MIST_PROGRAM_FORWARD, false);
    more_s = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
    for (int k = 0; k < job->layouts[MIST_LAYER_BLOCK].n_params; k++)
        job->layouts[MIST_LAYER_BLOCK].params[k].shape.n_sections = 0;
    near_to(time_s - program_s(model, job, MIST_PROGRAM_FORWARD, false), apart_s, 1e-6);
    more_s -= program_s(model, job, MIST_PROGRAM_BACKWARD, false);
    assert_true(more_s > pass_s(&set.cluster, 3, 3 * 6.0 * (double)(rows * hidden)));
    free(job);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Inductor makes one kernel of a norm's eight and of SwiGLU's two, that read and write
 * their ends alone: 36 - 4 and 10 - 6 bytes of an element less. */
TEST(test_compiled)
{
    const double rows = 2048, hidden = 4096, ffn = 14336;
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double time_s[2];

    open_a100(&set, &model);
    for (int i = 0; i < 2; i++) {
        struct job *job =
            make_job(i ? MIST_FRAMEWORK_TORCHTITAN_COMPILED : MIST_FRAMEWORK_TORCHTITAN,
                     MIST_ATTENTION_FLASH, llama(), 1, 2048, 1, false, false);
        time_s[i] = program_s(model, job, MIST_PROGRAM_FORWARD, false);
        free(job);
    }
    near_to(time_s[0] - time_s[1],
            pass_s(&set.cluster, 2 * 7 + 1,
                   2 * (36 - 4) * rows * hidden + (10 - 6) * rows * ffn),
            1e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Collectives of data-parallel ranks have a stream of their own in torchtitan and Megatron-LM,
 * where there are tensor-parallel ones, and nowhere else. */
TEST(test_separate_groups)
{
    for (int f = 0; f < MIST_N_FRAMEWORKS; f++)
        for (int32_t tp = 1; tp <= 2; tp++) {
            struct job *job = make_job((enum mist_framework_name)f, MIST_ATTENTION_FLASH,
                                       gpt(512, 4), 2, 64, tp, false, false);
            struct mist_stage_plan *stage = &job->plan.stages[0];
            struct mist_schedule *schedule;
            struct mist_err err = {0};
            bool is_apart = (is_torchtitan(f) || f == MIST_FRAMEWORK_MEGATRON) && tp > 1;
            int n = 0;
            stage->dp = 2;
            stage->n_devices = 2 * tp;
            stage->zero = 3;
            job->plan.job.global_batch *= 2;
            must(mist_plan_check(&job->plan, &err), &err);
            must(mist_schedule_build(&job->plan, 0, 1, &schedule, &err), &err);
            for (int32_t i = 0; i < schedule->n_tasks; i++) {
                const struct mist_task *task = &schedule->tasks[i];
                bool is_shard = task->group == MIST_GROUP_DP;
                assert_int_equal(task->stream == MIST_STREAM_SHARDS,
                                 is_shard && is_apart);
                n += is_shard;
            }
            assert_true(n > 8); /* a gather and a sum of each block */
            mist_schedule_free(schedule);
            free(job);
        }
}

/* Megatron-LM turns queries and keys by a kernel each, which reads and writes two bytes, and
 * puts gradients together behind them; DeepSpeed's are single operators, 20 bytes. */
TEST(test_rope)
{
    const double elements = 2.0 * 4096 * (32 + 8) * 128;
    const double n_weights = 4096.0 * (6144 + 4096 + 28672 + 14336) / 2;
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double time_s[2][2];

    open_a100(&set, &model);
    for (int i = 0; i < 2; i++) {
        struct job *job =
            make_job(i ? MIST_FRAMEWORK_DEEPSPEED : MIST_FRAMEWORK_MEGATRON,
                     MIST_ATTENTION_FLASH, llama(), 4, 4096, 2, true, false);
        time_s[i][0] = program_s(model, job, MIST_PROGRAM_FORWARD, false);
        job->plan.job.gradient_dtype = MIST_DTYPE_BF16;
        time_s[i][1] = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
        free(job);
    }
    near_to(time_s[1][0] - time_s[0][0], pass_s(&set.cluster, 6 - 2, (20 - 4) * elements),
            1e-6);
    /* and DeepSpeed's products don't add to gradients, of 2 bytes */
    near_to(time_s[1][1] - time_s[0][1],
            pass_s(&set.cluster, 6 - 3 + 4, (20 - 8) * elements + 6 * n_weights), 1e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Of a message beside the parts of a product (Transformer Engine's userbuffers) nothing is
 * left of what is gathered, or what the product is too short for, and a quarter of what is
 * scattered. */
TEST(test_cut_products)
{
    static const char *const presets[] = {"a100-80:1x8,link=450GB/s",
                                          "a100-80:1x8,link=2GB/s"};

    for (int p = 0; p < 2; p++) {
        struct mist_trace_set set;
        struct mist_cost_model *model;
        struct mist_err err = {0};
        double left_s[2][2] = {{0}}; /* gathers, scatters */
        must(mist_preset_parse(&set, presets[p], &err), &err);
        must(mist_cost_model_new(&set, &model, &err), &err);
        for (int cuts = 0; cuts < 2; cuts++) {
            struct job *job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FLASH,
                                       gpt(6144, 64), 4, 2048, 8, true, false);
            const struct mist_layer_layout *layer = &job->layouts[MIST_LAYER_BLOCK];
            job->plan.job.cuts_products = cuts;
            for (int i = 0; i < layer->programs[MIST_PROGRAM_FORWARD].n_parts; i++) {
                struct mist_task task =
                    mist_schedule_part_task(layer, MIST_PROGRAM_FORWARD, i, 1);
                struct mist_cost cost;
                if (task.group != MIST_GROUP_TP)
                    continue;
                must(mist_cost_task(model, &job->plan, 0, job->layouts,
                                    (struct mist_group_shape){1, 8, 1}, &task, &cost,
                                    &err),
                     &err);
                left_s[cuts][task.kind == MIST_TASK_TP_REDUCE_SCATTER] +=
                    cost.time_s - mist_cost_model_launch_s(model);
            }
            free(job);
        }
        const double rows = 4 * 2048, share = 7.0 / 8;
        double qkv_s = product_s(model, 4 * 2048, 6144, 3 * 6144 / 8, 0) +
                       pass_s(&set.cluster, 1, 4 * rows * 3 * 6144 / 8);
        double up_s = product_s(model, 4 * 2048, 6144, 4 * 6144 / 8, 0) +
                      pass_s(&set.cluster, 1, 4 * rows * 4 * 6144 / 8);
        assert_true(left_s[0][0] > 0);
        if (p == 0) {
            assert_true(fabs(left_s[1][0]) < 1e-12);
            near_to(left_s[1][1], left_s[0][1] / 4, 1e-9);
        } else {
            near_to(left_s[0][0] - left_s[1][0], share * (qkv_s + up_s), 1e-3);
            assert_true(left_s[1][1] > left_s[0][1] / 4);
        }
        mist_cost_model_free(model);
        mist_trace_set_fini(&set);
    }
}

/*
 * Korthikanti et al. 2022, table 4: a layer of the 22B model, 8 tensor-parallel A100: 7.7
 * ms forward, 7.2 with sequence parallelism; recomputing attention adds 1.3 ms to the
 * backward.
 */
TEST(test_measured_layer)
{
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double forward_s[2], backward_s[2];

    open_a100(&set, &model);
    for (int i = 0; i < 2; i++) {
        struct job *job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED,
                                   gpt(6144, 64), 4, 2048, 8, i == 1, i == 1);
        forward_s[i] = program_s(model, job, MIST_PROGRAM_FORWARD, true);
        free(job);
        job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED, gpt(6144, 64), 4,
                       2048, 8, false, i == 1);
        backward_s[i] = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
        free(job);
    }
    print_message("# forward %.2f, %.2f ms; attention again %.2f ms\n",
                  forward_s[0] * 1e3, forward_s[1] * 1e3,
                  (backward_s[1] - backward_s[0]) * 1e3);
    near_to(forward_s[0], 7.7e-3, 0.1);
    near_to(forward_s[1], 7.2e-3, 0.1);
    near_to(backward_s[1] - backward_s[0], 1.3e-3, 0.25);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* What two samples of 1,024 tokens more take outside of the blocks: vTrain's runs of one
 * device a replica and 50,257 logits (data/ground_truth_single.csv: of each width the runs
 * of 2 and of 4 samples, whose times are once + n (ends + layers * block) within 0.02 %).
 * Most of it are products with rows of an odd number of logits. */
TEST(test_measured_loss)
{
    static const struct {
        int32_t hidden;
        double ends_s[2];
    } rows[] = {{1024, {10.66e-3, 19.44e-3}}, {2048, {18.73e-3, 35.65e-3}}};
    struct mist_trace_set set;
    struct mist_cost_model *model;

    open_a100(&set, &model);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mist_model of = gpt(rows[i].hidden, 16);
        double loss_s[2];
        of.vocab = 50257;
        for (int k = 0; k < 2; k++) {
            struct job *job = make_job(MIST_FRAMEWORK_DEEPSPEED, MIST_ATTENTION_FUSED, of,
                                       k ? 4 : 2, 1024, 1, false, false);
            job->plan.job.dtype = MIST_DTYPE_FP16;
            job->plan.job.has_fp16_loss = true;
            loss_s[k] =
                layer_s(model, job, MIST_LAYER_HEAD, MIST_PROGRAM_FORWARD, false) +
                layer_s(model, job, MIST_LAYER_HEAD, MIST_PROGRAM_BACKWARD, false);
            free(job);
        }
        print_message("# hidden %d: %.2f ms, %.2f were measured\n", (int)rows[i].hidden,
                      1e3 * (loss_s[1] - loss_s[0]),
                      1e3 * (rows[i].ends_s[1] - rows[i].ends_s[0]));
        near_to(loss_s[1] - loss_s[0], rows[i].ends_s[1] - rows[i].ends_s[0], 0.2);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Where a framework steps apart, the only stage has the optimizer step in front of all passes and
 * sums gradients behind them. That takes longer by what is beside passes otherwise, but for how
 * much this slows them down. */
TEST(test_steps_apart)
{
    const struct mist_replay_options options = {.threads = 0};
    double iteration_s[2], beside_s[2] = {0, 0};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_err err = {0};

    open_a100(&set, &model);
    for (int is_apart = 0; is_apart < 2; is_apart++) {
        struct job *job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED,
                                   gpt(1024, 16), 1, 256, 1, false, false);
        double first_pass_s = INFINITY, last_pass_s = 0;
        struct mist_replay_result replay;

        job->plan.stages[0].dp = job->plan.stages[0].n_devices = 2;
        job->plan.job.global_batch = 4;
        job->plan.n_micro_batches = 2;
        job->plan.job.steps_apart = is_apart;
        must(mist_plan_check(&job->plan, &err), &err);
        must(mist_replay_run(&job->plan, model, &options, &replay, &err), &err);
        iteration_s[is_apart] = replay.iteration_s;
        for (size_t i = 0; i < replay.timeline.n_rows; i++) {
            const struct mist_timeline_row *row = &replay.timeline.rows[i];
            if (row->kind == MIST_TASK_FORWARD)
                first_pass_s = fmin(first_pass_s, row->start_s);
            if (row->kind == MIST_TASK_BACKWARD)
                last_pass_s = fmax(last_pass_s, row->end_s);
        }
        for (size_t i = 0; i < replay.timeline.n_rows; i++) {
            const struct mist_timeline_row *row = &replay.timeline.rows[i];
            double end_s = fmin(row->end_s, last_pass_s);
            if (row->kind == MIST_TASK_REDUCE_GRADIENT)
                beside_s[is_apart] += fmax(0, end_s - row->start_s);
            if (row->kind == MIST_TASK_OPTIMIZER && is_apart)
                assert_true(row->end_s <= first_pass_s);
        }
        assert_int_equal(beside_s[is_apart] > 0, !is_apart);
        mist_replay_result_fini(&replay);
        free(job);
    }
    double longer_s = iteration_s[1] - iteration_s[0];
    assert_true(longer_s > 0.3 * beside_s[0] && longer_s < beside_s[0]);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Megatron-LM with --overlap-grad-reduce, an interleaved pipeline: on every stage the optimizer
 * step comes before all passes, as it is called once; the sums of a chunk go on beside the
 * backward of the next (schedules.py, grad_sync_func); and no pass waits for them, as norms of
 * gradients are behind (clip_grad_norm in optimizer.step). Ours looks at them in between. */
TEST(test_sums_of_chunks)
{
    for (int is_ours = 0; is_ours < 2; is_ours++)
        for (int32_t i_stage = 0; i_stage < 2; i_stage++) {
            struct job *job =
                make_job(is_ours ? MIST_FRAMEWORK_OURS : MIST_FRAMEWORK_MEGATRON,
                         MIST_ATTENTION_FLASH, llama(), 1, 256, 1, false, false);
            struct mist_plan *plan = &job->plan;
            int32_t n_sums = 0, n_sums_before = 0, n_norms_before = 0, last_pass = -1,
                    n_steps_behind = 0, first_pass = -1;
            struct mist_schedule *schedule;
            struct mist_err err = {0};

            plan->model.n_layers = 4;
            plan->stages[0].n_layers = 2;
            plan->stages[0].dp = plan->stages[0].n_devices = 2;
            plan->stages[0].zero = 1;
            plan->stages[1] = plan->stages[0];
            plan->n_stages = plan->n_chunks = 2;
            plan->pipeline = MIST_PIPELINE_INTERLEAVED;
            plan->n_micro_batches = 4;
            plan->job.global_batch = 8;
            must(mist_plan_check(plan, &err), &err);
            must(mist_schedule_build(plan, 2 * i_stage, 1, &schedule, &err), &err);
            for (int32_t i = 0; i < schedule->n_tasks; i++) {
                enum mist_task_kind kind = schedule->tasks[i].kind;
                if (kind == MIST_TASK_BACKWARD)
                    last_pass = i;
                if (kind == MIST_TASK_FORWARD && first_pass < 0)
                    first_pass = i;
            }
            for (int32_t i = 0; i < schedule->n_tasks; i++) {
                enum mist_task_kind kind = schedule->tasks[i].kind;
                n_sums += kind == MIST_TASK_REDUCE_GRADIENT;
                n_sums_before += kind == MIST_TASK_REDUCE_GRADIENT && i < last_pass;
                n_norms_before += kind == MIST_TASK_GRADIENT_NORM && i < last_pass;
                n_steps_behind += kind == MIST_TASK_OPTIMIZER && i > first_pass;
            }
            /* of each module but the last one's, but ours puts a later stage's off */
            assert_int_equal(n_sums_before, is_ours && i_stage > 0 ? 0 : n_sums - 1);
            assert_int_equal(n_norms_before > 0, is_ours && i_stage == 0);
            assert_int_equal(n_steps_behind > 0, is_ours && i_stage == 0);
            mist_schedule_free(schedule);
            free(job);
        }
}

/* Keys, values and their gradients of context-parallel ranks of Megatron-LM go around in a
 * ring: of cp parts of attention, cp - 1 hide a message each, in a backward one that is gathered
 * and one that is scattered. Ours gathers in front of attention. */
TEST(test_keys_in_a_ring)
{
    const int64_t seq = 8192, dims[MIST_MAX_DIMS] = {1, seq, 32, 8, 128};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_err err = {0};
    static const enum mist_program_kind programs[] = {MIST_PROGRAM_FORWARD,
                                                      MIST_PROGRAM_BACKWARD};
    int n_seen = 0, n_left = 0;

    must(mist_preset_parse(&set, "a100-80:8x1,nic=1x200Gb/s", &err), &err);
    must(mist_cost_model_new(&set, &model, &err), &err);
    for (int k = 0; k < 6; k++) {
        bool is_ours = k % 2;
        int32_t cp = 2 << k / 2;
        struct job *job =
            make_job(is_ours ? MIST_FRAMEWORK_OURS : MIST_FRAMEWORK_MEGATRON,
                     MIST_ATTENTION_FLASH, llama(), 1, (int32_t)seq, 1, false, false);
        struct mist_layer_layout *block = &job->layouts[MIST_LAYER_BLOCK];
        struct mist_group_shape group = {cp, 1, 1};
        job->plan.stages[0].cp = job->plan.stages[0].n_nodes = cp;
        must(mist_plan_check(&job->plan, &err), &err);
        must(mist_layer_layout_make(&job->plan.model, MIST_LAYER_BLOCK,
                                    mist_schedule_shape(&job->plan, 0, 0), block, &err),
             &err);
        for (int back = 0; back < 2; back++)
            for (int i = 0; i < block->programs[programs[back]].n_parts; i++) {
                struct mist_task task =
                    mist_schedule_part_task(block, programs[back], i, 1);
                struct mist_cost message, cost;
                bool scatters = task.kind == MIST_TASK_CP_REDUCE_SCATTER;
                if (task.kind != MIST_TASK_CP_ALL_GATHER && !scatters)
                    continue;
                must(mist_cost_link(model,
                                    scatters ? MIST_LINK_REDUCE_SCATTER
                                             : MIST_LINK_ALL_GATHER,
                                    group, task.bytes, &message, &err),
                     &err);
                double attention_s = flash_s(
                    model, back ? MIST_PHASE_BACKWARD_INPUT : MIST_PHASE_FORWARD, dims);
                double beside_s = attention_s / cp * (cp - 1) / cp / (1 + back);
                must(mist_cost_task(model, &job->plan, 0, job->layouts, group, &task,
                                    &cost, &err),
                     &err);
                double left_s =
                    is_ours ? message.time_s : fmax(0, message.time_s - beside_s);
                near_to(cost.time_s - mist_cost_model_launch_s(model), left_s, 1e-9);
                n_seen++;
                n_left += !is_ours && left_s > 0;
            }
        free(job);
    }
    assert_int_equal(n_seen, 6 * 3);
    assert_in_range(n_left, 3, 8); /* of 9 */
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* The loss on logits in two bytes (fp16_lm_cross_entropy), as Megatron-LM's
 * cross_entropy.py counts: a copy 4, the largest 2, less it 4, exp 4, their sum 2, by it 4,
 * and back 4; logits and their copy are held. In fp32 60 are moved and 10 held. Transformer
 * Engine's (cross_entropy.py) reads logits for their statistics and once more, and writes
 * gradients in their place. */
TEST(test_losses_in_two_bytes)
{
    const double rows = 4 * 1024, moved[] = {60, 24, 6}, held[] = {10, 4, 2};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_err err = {0};

    open_a100(&set, &model);
    for (int32_t tp = 1; tp <= 2; tp++) {
        double head_s[3], bytes[3];
        for (int k = 0; k < 3; k++) {
            struct job *job = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED,
                                       gpt(2048, 16), 4, 1024, tp, false, false);
            struct mist_layer_layout *head = &job->layouts[MIST_LAYER_HEAD];
            job->plan.job.dtype = job->plan.job.gradient_dtype = MIST_DTYPE_FP16;
            job->plan.job.has_fp16_loss = k == 1;
            job->plan.job.has_fused_loss = k == 2;
            must(mist_plan_check(&job->plan, &err), &err);
            must(mist_layer_layout_make(&job->plan.model, MIST_LAYER_HEAD,
                                        mist_schedule_shape(&job->plan, 0, 0), head,
                                        &err),
                 &err);
            head_s[k] =
                layer_s(model, job, MIST_LAYER_HEAD, MIST_PROGRAM_FORWARD, false) +
                layer_s(model, job, MIST_LAYER_HEAD, MIST_PROGRAM_BACKWARD, false);
            bytes[k] = (double)head->scratch_forward_bytes;
            free(job);
        }
        double logits = rows * 51200 / tp;
        for (int k = 1; k < 3; k++) {
            /* kernels: 23 beside products, 18 of a slice; 3 of the fused one */
            double n_fewer = k < 2 ? 0 : tp == 1 ? 23 - 3 : 18 - 3;
            near_to(head_s[0] - head_s[k],
                    pass_s(&set.cluster, n_fewer, (moved[0] - moved[k]) * logits), 0.01);
            near_to(bytes[0] - bytes[k], (held[0] - held[k]) * logits, 0.01);
        }
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* A block's forward in floats of 8 bits: its products by hand at their peak, and casts: of an
 * input the largest value, 2, and 2 + 1, with Transformer Engine a second time, the other way
 * around, 1. */
TEST(test_eight_bits)
{
    static const struct {
        enum mist_framework_name framework;
        double input, weight;
        bool is_apart; /* queries, keys, values, gate and up */
    } cases[] = {{MIST_FRAMEWORK_TORCHTITAN_COMPILED, 5, 5, true},
                 {MIST_FRAMEWORK_MEGATRON, 6, 0, false},
                 {MIST_FRAMEWORK_LLM_FOUNDRY, 4, 4, true}};
    const double rows = 8192, h = 4096, kv = 1024, f = 14336;
    const struct {
        double n_in, parts[3];
    } products[] = {{h, {h, kv, kv}}, {h, {h}}, {h, {f, f}}, {f, {h}}};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_err err = {0};

    must(mist_preset_parse(&set, "h100-sxm:1x8", &err), &err);
    must(mist_cost_model_new(&set, &model, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job *job = make_job(cases[i].framework, MIST_ATTENTION_FLASH, llama(), 1,
                                   (int32_t)rows, 1, false, false);
        double wide_s = program_s(model, job, MIST_PROGRAM_FORWARD, false);
        double expected_s = 0;
        job->plan.job.has_fp8_products = true;
        must(mist_plan_check(&job->plan, &err), &err);
        double narrow_s = program_s(model, job, MIST_PROGRAM_FORWARD, false);
        for (size_t k = 0; k < sizeof products / sizeof *products; k++) {
            double n_out = 0;
            for (int p = 0; p < 3; p++)
                n_out += products[k].parts[p];
            for (int p = 0; p < 3 && products[k].parts[p] > 0; p++) {
                double n = cases[i].is_apart ? products[k].parts[p] : n_out;
                if (p == 0 || cases[i].is_apart)
                    expected_s += eight_bit_gain_s(&set.cluster, model, (int64_t)rows,
                                                   (int64_t)products[k].n_in, (int64_t)n);
            }
            expected_s -=
                pass_s(&set.cluster, 1, cases[i].input * rows * products[k].n_in);
            if (cases[i].weight > 0)
                expected_s -=
                    pass_s(&set.cluster, 1, cases[i].weight * products[k].n_in * n_out);
        }
        near_to(wide_s - narrow_s, expected_s, 1e-6);
        assert_true(narrow_s < 0.8 * wide_s);
        job->plan.job.framework =
            MIST_FRAMEWORK_DEEPSPEED; /* whose casts nobody counted */
        assert_int_equal(mist_plan_check(&job->plan, &err), MIST_ERR_INPUT);
        free(job);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Sums of eight H100, whose NVSwitch could make them: in its data sheet's rate by NCCL's
 * choice, in rings where the order of sums is fixed, as ours are. */
TEST(test_sums_in_rings)
{
    const double bytes = 256 << 20;
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_err err = {0};
    struct mist_task task = {.kind = MIST_TASK_TP_ALL_REDUCE,
                             .stream = MIST_STREAM_GPU_GPU,
                             .group = MIST_GROUP_TP,
                             .part = -1,
                             .bytes = (int64_t)bytes};

    must(mist_preset_parse(&set, "h100-sxm", &err), &err);
    must(mist_cost_model_new(&set, &model, &err), &err);
    const struct mist_trace_declared *declared = &set.cluster.declared;
    for (int i = 0; i < 2; i++) {
        struct mist_cost cost;
        struct job *job =
            make_job(i ? MIST_FRAMEWORK_MEGATRON : MIST_FRAMEWORK_OURS,
                     MIST_ATTENTION_FLASH, gpt(6144, 64), 4, 2048, 8, false, false);
        must(mist_cost_task(model, &job->plan, 0, job->layouts,
                            (struct mist_group_shape){1, 8, 1}, &task, &cost, &err),
             &err);
        double moving_s = i ? bytes / declared->switch_bytes_per_s
                            : 2 * 7 / 8.0 * bytes / declared->device.bytes_per_s;
        near_to(cost.time_s - mist_cost_model_launch_s(model),
                15e-6 + 2 * 7 * declared->device.latency_us * 1e-6 + moving_s, 1e-9);
        free(job);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Megatron's and DeepSpeed's ranks send a part each, which the next stage gathers, but of
 * gradients DeepSpeed's of 2021; with sequence parallelism there are parts anyway. */
TEST(test_transfers)
{
    const int64_t bytes = 8 << 20;
    const struct mist_group_shape across = {2, 1, 1}, inside = {1, 8, 1};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_cost part, whole, gather, cost;
    struct mist_err err = {0};
    struct mist_task task = {.kind = MIST_TASK_SEND_ACTIVATION,
                             .stream = MIST_STREAM_GPU_GPU,
                             .group = MIST_GROUP_PEER,
                             .part = -1,
                             .bytes = bytes};

    open_a100(&set, &model);
    must(mist_cost_link(model, MIST_LINK_SEND_RECV, across, bytes / 8, &part, &err),
         &err);
    must(mist_cost_link(model, MIST_LINK_SEND_RECV, across, bytes, &whole, &err), &err);
    must(mist_cost_link(model, MIST_LINK_ALL_GATHER, inside, bytes, &gather, &err), &err);
    double launch_s = mist_cost_model_launch_s(model);
    for (int i = 0; i < 24; i++) {
        static const enum mist_framework_name frameworks[] = {
            MIST_FRAMEWORK_MEGATRON, MIST_FRAMEWORK_DEEPSPEED,
            MIST_FRAMEWORK_DEEPSPEED_2021};
        static const enum mist_task_kind kinds[] = {
            MIST_TASK_SEND_ACTIVATION, MIST_TASK_RECV_ACTIVATION, MIST_TASK_SEND_GRADIENT,
            MIST_TASK_RECV_GRADIENT};
        bool is_cut = i / 4 % 2 == 1, receives = i % 2 == 1;
        bool is_whole = is_cut || (i / 8 == 2 && i % 4 >= 2);
        struct job *job = make_job(frameworks[i / 8], MIST_ATTENTION_FUSED, gpt(6144, 64),
                                   4, 2048, 8, is_cut, false);
        task.kind = kinds[i % 4];
        must(mist_cost_task(model, &job->plan, 0, job->layouts, across, &task, &cost,
                            &err),
             &err);
        near_to(cost.time_s - launch_s,
                (is_whole ? whole.time_s : part.time_s) +
                    (receives && !is_cut ? gather.time_s : 0),
                1e-9);
        free(job);
    }
    /* ranks of two nodes gather between these */
    struct job *wide = make_job(MIST_FRAMEWORK_MEGATRON, MIST_ATTENTION_FUSED,
                                gpt(6144, 64), 4, 2048, 16, false, false);
    task.kind = MIST_TASK_RECV_ACTIVATION;
    must(mist_cost_link(model, MIST_LINK_SEND_RECV, across, bytes / 16, &part, &err),
         &err);
    must(mist_cost_link(model, MIST_LINK_ALL_GATHER, (struct mist_group_shape){2, 8, 1},
                        bytes, &gather, &err),
         &err);
    must(mist_cost_task(model, &wide->plan, 0, wide->layouts, across, &task, &cost, &err),
         &err);
    near_to(cost.time_s - launch_s, part.time_s + gather.time_s, 1e-9);
    free(wide);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Every constant has a source; ours has none. */
TEST(test_constants)
{
    struct mist_framework_constant constant;

    for (int f = 0; f < MIST_N_FRAMEWORKS; f++) {
        const struct mist_framework *of = mist_framework_get((enum mist_framework_name)f);
        int n = 0;
        for (; mist_framework_constant(of, n, &constant); n++) {
            assert_true(constant.value > 0);
            assert_true(strlen(constant.source) > 3);
        }
        assert_int_equal(n > 0, f != MIST_FRAMEWORK_OURS);
    }
}

/* Where memory is slow, a fused softmax moves what it reads below the diagonal and whole
 * rows that it writes: 3 bytes a score, backward 4. */
TEST(test_softmax_of_slow_memory)
{
    const double scores = 8.0 * 1024 * 1024 * 16;
    const double bytes[2] = {3, 4};
    struct mist_trace_set set;
    struct mist_cost_model *model;
    struct mist_err err = {0};

    must(mist_preset_parse(&set, "l4", &err), &err);
    must(mist_cost_model_new(&set, &model, &err), &err);
    for (int i = 0; i < 2; i++) {
        double time_s[2];
        for (int k = 0; k < 2; k++) {
            struct job *job = make_job(MIST_FRAMEWORK_MEGATRON,
                                       k ? MIST_ATTENTION_UNFUSED : MIST_ATTENTION_FUSED,
                                       gpt(2048, 16), 8, 1024, 1, false, false);
            time_s[k] = program_s(
                model, job, i ? MIST_PROGRAM_BACKWARD : MIST_PROGRAM_FORWARD, false);
            free(job);
        }
        near_to(time_s[1] - time_s[0],
                pass_s(&set.cluster, 4, ((i ? 41 : 37) - bytes[i]) * scores), 1e-6);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Megatron's products add to gradients themselves (wgrad_gemm_accum_fp32, _fp16); in 2021
 * each of the four took a pass of its own, 6 bytes an element. */
TEST(test_gradients_added)
{
    const double n_weights = 12.0 * 6144 * 6144 / 8;
    struct mist_trace_set set;
    struct mist_cost_model *model;
    double time_s[3];

    open_a100(&set, &model);
    for (int i = 0; i < 3; i++) {
        struct job *job =
            make_job(i == 2 ? MIST_FRAMEWORK_MEGATRON_2021 : MIST_FRAMEWORK_MEGATRON,
                     MIST_ATTENTION_FUSED, gpt(6144, 64), 4, 2048, 8, false, false);
        job->plan.job.gradient_dtype = i ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32;
        time_s[i] = program_s(model, job, MIST_PROGRAM_BACKWARD, false);
        free(job);
    }
    near_to(time_s[1], time_s[0], 1e-9);
    near_to(time_s[2] - time_s[1], pass_s(&set.cluster, 4, 6 * n_weights), 1e-6);
    mist_cost_model_free(model);
    mist_trace_set_fini(&set);
}

/* Autograd runs a checkpointed block again when the gradient has come from the next stage;
 * ours does so while it waits for it. */
TEST(test_late_recomputation)
{
    for (int f = 0; f < MIST_N_FRAMEWORKS; f++) {
        struct job *job = make_job((enum mist_framework_name)f, MIST_ATTENTION_FLASH,
                                   gpt(512, 4), 2, 64, 1, false, false);
        struct mist_schedule *schedule;
        struct mist_err err = {0};
        bool waits = false;
        job->plan.n_stages = 2;
        job->plan.stages[0].n_layers = job->plan.stages[0].n_checkpointed = 2;
        job->plan.stages[1] = job->plan.stages[0];
        must(mist_plan_check(&job->plan, &err), &err);
        must(mist_schedule_build(&job->plan, 0, 1, &schedule, &err), &err);
        for (int32_t i = 0; i < schedule->n_tasks; i++)
            for (int32_t k = 0; k < schedule->tasks[i].n_deps; k++)
                waits |= schedule->tasks[i].kind == MIST_TASK_RECOMPUTE &&
                         schedule->tasks[schedule->deps[schedule->tasks[i].dep_first + k]]
                                 .kind == MIST_TASK_RECV_GRADIENT;
        assert_int_equal(waits, f != MIST_FRAMEWORK_OURS);
        mist_schedule_free(schedule);
        free(job);
    }
}

TEST_MAIN(NULL, NULL)
