/*
 * Arguments of other frameworks: published jobs are read as what they are, or refused by the
 * argument; random plans that a framework can express, by rules that are written here, go to
 * its arguments and back, and have the same price to the bit.
 */
#include "tests/unit/test.h"

#include "core/random.h"
#include "sim/cost/cost_model.h"
#include "sim/framework_args/framework_args.h"
#include "sim/replay/replay.h"
#include "tests/unit/pick.h"
#include "tests/unit/published_args.h"
#include "tests/unit/scratch_group.h"
#include "tests/unit/tiny_models.h"
#include "traces/preset.h"

static struct mist_err err;

/* --------------------------------------------------------------------------- published */

static enum mist_status read_published(const struct published *of, struct mist_plan *plan)
{
    struct mist_args args;
    struct mist_model model;
    const char *path = scratch_path(&scratch, "args");

    scratch_write(path, of->text);
    mist_args_init(&args, of->framework);
    args.n_devices = of->n_devices;
    args.node_devices = 8;
    if (of->framework == DEEPSPEED) { /* the JSON has neither */
        must(mist_model_load_preset("gpt3-1.3b", &model, &err), &err);
        mist_args_set_model(&args, &model);
        mist_args_set(&args, MIST_ARG_SEQ_LEN, 1024);
    }
    enum mist_status status = mist_args_load(&args, path, &err);
    return status == MIST_OK ? mist_args_make_plan(&args, plan, &err) : status;
}

static void check_published(const struct published *of, const struct mist_plan *plan)
{
    const struct mist_stage_plan *first = &plan->stages[0];

    assert_int_equal(plan->job.framework, of->framework);
    assert_int_equal(plan->n_stages, of->pp);
    assert_int_equal(plan->n_micro_batches, of->n_micro_batches);
    assert_int_equal(mist_plan_n_chunks(plan), of->chunks);
    assert_int_equal(plan->job.recomputes_attention, of->recompute == 1);
    for (int32_t i = 0; i < plan->n_stages; i++) {
        const struct mist_stage_plan *stage = &plan->stages[i];
        assert_int_equal(stage->tp, of->tp);
        assert_int_equal(stage->dp, of->dp);
        assert_int_equal(stage->micro_batch, of->micro_batch);
        assert_int_equal(stage->n_layers, plan->model.n_layers / of->pp);
        assert_int_equal(stage->n_checkpointed, of->recompute == 2   ? stage->n_layers
                                                : of->recompute == 3 ? stage->n_layers / 2
                                                                     : 0);
        assert_int_equal(stage->zero, of->zero);
    }
    assert_int_equal(first->is_sequence_parallel,
                     of->framework == TORCHTITAN && of->tp > 1);
}

TEST_WITH(test_published, set_up, tear_down)
{
    static struct mist_plan plan;
    size_t n = sizeof published / sizeof *published;

    assert_true(n >= 30);
    for (size_t i = 0; i < n; i++) {
        const struct published *of = &published[i];
        enum mist_status status = read_published(of, &plan);
        if (!of->refused) {
            if (status != MIST_OK)
                fail_msg("%s: %s", of->source, err.message);
            check_published(of, &plan);
            continue;
        }
        if (status != MIST_ERR_INPUT || !strstr(err.message, of->refused) ||
            err.line == 0)
            fail_msg("%s: expected %s to be refused: %s", of->source, of->refused,
                     status ? err.message : "it was read");
    }
}

/* What a script says beside its figures. */
TEST_WITH(test_megatron_model, set_up, tear_down)
{
    static struct mist_plan plan;

    must(read_published(&published[0], &plan), &err);
    assert_int_equal(plan.model.family, MIST_FAMILY_GPT);
    assert_int_equal(plan.model.vocab, 51200); /* 50257 padded to 128 times tp */
    assert_int_equal(plan.model.ffn, 4 * 12288);
    assert_true(plan.model.has_bias && plan.model.ties_embeddings);
    assert_int_equal(plan.job.attention, MIST_ATTENTION_FLASH);
    assert_false(plan.job.has_no_dropout);
    must(read_published(&published[1], &plan), &err);
    assert_int_equal(plan.job.attention, MIST_ATTENTION_FUSED);
}

#define TITAN_8B                                                                         \
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n"            \
    "local_batch_size = 4\n[parallelism]\npipeline_parallel_degree = 4\n"

#define PLAIN_AC "[activation_checkpoint]\nmode = \"none\"\n"

/* In a pipeline weights stay after the forward, and the ends may have fewer blocks. */
TEST_WITH(test_torchtitan_pipeline, set_up, tear_down)
{
    static const struct {
        const char *text;
        int layers[4];
        int zero;
    } cases[] = {
        {TITAN_8B, {8, 8, 8, 8}, 2},
        {TITAN_8B "fsdp_reshard_after_forward = \"always\"\n", {8, 8, 8, 8}, 3},
        {TITAN_8B "pipeline_parallel_first_stage_less_layers = 2\n"
                  "pipeline_parallel_last_stage_less_layers = 2\n" PLAIN_AC,
         {7, 9, 9, 7},
         2},
        {TITAN_8B "pipeline_parallel_first_stage_less_layers = 1\n"
                  "pipeline_parallel_last_stage_less_layers = 1\n" PLAIN_AC,
         {8, 9, 8, 7},
         2},
    };
    static struct mist_plan plan;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct published of = {
            .framework = TORCHTITAN, .text = cases[i].text, .n_devices = 8};
        must(read_published(&of, &plan), &err);
        assert_int_equal(plan.n_stages, 4);
        assert_int_equal(plan.n_micro_batches, 4);
        assert_int_equal(plan.stages[0].dp, 2);
        assert_int_equal(plan.stages[0].zero, cases[i].zero);
        for (int k = 0; k < 4; k++)
            assert_int_equal(plan.stages[k].n_layers, cases[i].layers[k]);
    }
}

/* ---------------------------------------------------------------------------- refusals */

static void refuse(enum mist_framework_name framework, const char *text, long line,
                   const char *part)
{
    static struct mist_plan plan;
    struct mist_args args;
    const char *path = scratch_path(&scratch, "args");

    scratch_write(path, text);
    mist_args_init(&args, framework);
    args.n_devices = args.node_devices = 8;
    enum mist_status status = mist_args_load(&args, path, &err);
    if (status == MIST_OK)
        status = mist_args_make_plan(&args, &plan, &err);
    if (status != MIST_ERR_INPUT || !strstr(err.message, part) || err.line != line ||
        strcmp(err.path, path) != 0)
        fail_msg("%s: expected '%s' in line %ld: %s:%ld: %s", text, part, line, err.path,
                 err.line, status ? err.message : "it was read");
}

#define TINY                                                                             \
    "--num-layers 4\n--hidden-size 64 --num-attention-heads 4 --seq-length 32\n"         \
    "--micro-batch-size 1 "

TEST_WITH(test_refusals, set_up, tear_down)
{
    refuse(MEGATRON, TINY "\n--no-such-flag 1", 4, "--no-such-flag is not known");
    refuse(MEGATRON, TINY "--context-parallel-size 2 --cp-comm-type a2a", 3,
           "--cp-comm-type a2a can't be expressed");
    refuse(MEGATRON, TINY "--swiglu", 3, "can't be expressed together");
    refuse(MEGATRON, TINY "--squared-relu", 3, "--squared-relu can't be expressed");
    refuse(MEGATRON, TINY "--squared-relu --position-embedding-type rope", 3,
           "Nemotron's blocks have no biases");
    refuse(MEGATRON,
           TINY "--squared-relu --position-embedding-type rope --disable-bias-linear "
                "--rotary-percent 1.5",
           3, "--rotary-percent is 1.5, expected more than 0 and 1 at most");
    refuse(MEGATRON,
           TINY "--swiglu --position-embedding-type rope --disable-bias-linear "
                "--normalization RMSNorm --rotary-percent 0.5",
           3, "heads are turned as a whole");
    refuse(
        MEGATRON, TINY "--micro-batch-size 2", 3,
        "--micro-batch-size 2 contradicts --micro-batch-size 1 of line 3; expected one");
    refuse(MEGATRON, TINY "--bf16\n--fp16", 4,
           "--fp16 contradicts --bf16 of line 3; expected one");
    refuse(DEEPSPEED, "{\"bf16\": {\"enabled\": true},\n\"fp16\": {\"enabled\": true}}",
           2, "fp16.enabled contradicts");
    refuse(MEGATRON, TINY "--sequence-parallel yes", 3, "expected no value");
    refuse(MEGATRON, TINY "--num-query-groups", 3, "expected a value");
    refuse(MEGATRON, TINY "--num-query-groups $N", 3, "'$N' can't be expressed");
    refuse(MEGATRON, TINY "--num-query-groups 2 .py", 3, "'2 .py' can't be expressed");
    refuse(MEGATRON,
           TINY "--recompute-granularity full --recompute-method uniform "
                "--recompute-num-layers 2",
           3, "--recompute-num-layers 2 can't be expressed");
    refuse(MEGATRON, TINY "--pipeline-model-parallel-size 3 --hidden-dropout 0", 3,
           "no multiple of");
    refuse(MEGATRON, TINY "--hidden-dropout 0", 3, "can't be expressed: both are 0");
    refuse(MEGATRON, "GPUS=8\nfor i in 1 2; do", 2, "'for' is no argument");
    refuse(MEGATRON, "--split '949", 1, "is not closed");
    refuse(MEGATRON, "--seq-length 32", 0,
           "layers is not said; expected --num-layers, or --model");
    refuse(MEGATRON, "--num-layers 2 --hidden-size 64", 0,
           "heads is not said; expected --num-attention-heads, or --model");
    refuse(DEEPSPEED, "{\"train_batch_size\": 8,\n\"no_such\": {\"key\": 1}}", 2,
           "no_such.key is not known");
    refuse(DEEPSPEED, "{\"zero_optimization\": {\n\"stage\": 4}}", 2, "expected 0 to 3");
    refuse(DEEPSPEED,
           "{\"zero_optimization\": {\"stage\": 3},\n\"pipeline\": "
           "{\"stages\": 2}}",
           1, "a pipeline goes with");
    refuse(DEEPSPEED, "{\"train_batch_size\": 8", 1, "");
    refuse(DEEPSPEED, "{\n\"fp16\": {\"enabled\": \"auto\"}}", 2,
           "fp16.enabled is auto: the program chooses, expected --dtype");
    refuse(DEEPSPEED,
           "{\"train_batch_size\": 8,\n\"train_micro_batch_size_per_gpu\": \"auto\"}", 2,
           "train_micro_batch_size_per_gpu is auto: the program chooses, expected "
           "--micro-batch");
    refuse(DEEPSPEED, "{\"zero_optimization\": {\n\"reduce_scatter\": false}}", 2,
           "reduce_scatter false can't be expressed");
    refuse(DEEPSPEED, "{\"pipeline\": {\n\"grad_partitioned\": false}}", 2,
           "grad_partitioned false can't be expressed");
    refuse(MEGATRON, "torchrun --nnodes 2\n--nproc_per_node 4 pretrain_gpt.py " TINY, 2,
           "4 devices of each node, but the cluster's have 8");
    refuse(TORCHTITAN,
           TITAN_8B "pipeline_parallel_schedule = \"ZBVZeroBubble\"\n"
                    "[activation_checkpoint]\nselective_ac_option = \"2\"\n",
           11, "selective_ac_option 2 can't be expressed here");
    refuse(DEEPSPEED, "{\"zero_optimization\": {\"stage\": \"auto\"}}", 1,
           "zero_optimization.stage: 'auto' can't be expressed");
    refuse(TORCHTITAN, "[training]\nseq_len = 1\n[training2]\nx = 1", 4,
           "training2.x is not known");
    refuse(TORCHTITAN,
           "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[parallelism]\n"
           "data_parallel_replicate_degree = 2\n"
           "data_parallel_shard_degree = 4\n",
           5, "data_parallel_replicate_degree 2 with 4 shards");
    refuse(TORCHTITAN,
           TITAN_8B "pipeline_parallel_first_stage_less_layers = 1\n"
                    "pipeline_parallel_last_stage_less_layers = 1\n",
           0, "selective_ac_option 2 can't be expressed here");
    refuse(TORCHTITAN, "[model\nname = 1", 1, "expected ']'");
    refuse(TORCHTITAN, "[model]\nname 1", 2, "expected '='");
    refuse(TORCHTITAN, "[model]\nname = \"a", 2, "is not closed");
    refuse(TORCHTITAN, "[job]\na = [1, 2", 2, "expected ',' or ']'");
    refuse(TORCHTITAN, "[job]\na = 1\na = 2", 3, "twice");
    refuse(TORCHTITAN, "[job]\na = 1 b", 2, "end of the line");
    refuse(TORCHTITAN, "[job]\na = \"\"\"x\"\"\"", 2, "several lines");
}

/* Arguments of current releases: refused by name, or left, which is said. */
TEST_WITH(test_current_arguments, set_up, tear_down)
{
    static const struct {
        enum mist_framework_name framework;
        const char *text, *name;
        bool is_left;
    } cases[] = {
        {MEGATRON, TINY "--cp-comm-type all_gather", "--cp-comm-type all_gather", false},
        {MEGATRON, TINY "--cp-comm-type p2p", "--cp-comm-type", true},
        {MEGATRON, TINY "--expert-model-parallel-size 2", "--expert-model-parallel-size",
         false},
        {MEGATRON, TINY "--transformer-impl inference_optimized", "--transformer-impl",
         false},
        {MEGATRON, TINY "--decoder-first-pipeline-num-layers 1",
         "--decoder-first-pipeline-num-layers", false},
        {MEGATRON, TINY "--delay-wgrad-compute", "--delay-wgrad-compute", false},
        {MEGATRON, TINY "--cross-entropy-loss-fusion", "--cross-entropy-loss-fusion",
         false},
        {MEGATRON, TINY "--fine-grained-activation-offloading",
         "--fine-grained-activation-offloading", false},
        {MEGATRON, TINY "--softmax-type learnable", "--softmax-type learnable", false},
        {MEGATRON, TINY "--fp8-recipe blockwise", "--fp8-recipe", false},
        {MEGATRON, TINY "--fp8-param-gather", "--fp8-param-gather", false},
        {MEGATRON, TINY "--overlap-param-gather-with-optimizer-step",
         "--overlap-param-gather-with-optimizer-step", true},
        {MEGATRON, TINY "--ddp-pad-buckets-for-high-nccl-busbw",
         "--ddp-pad-buckets-for-high-nccl-busbw", true},
        {DEEPSPEED, "{\"zero_optimization\": {\"zero_quantized_weights\": true}}",
         "zero_quantized_weights true", false},
        {DEEPSPEED,
         "{\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": "
         "\"nvme\"}}}",
         "offload_param.device: 'nvme'", false},
        {DEEPSPEED, "{\"sequence_parallel_size\": 2}", "sequence_parallel_size 2", false},
        {DEEPSPEED, "{\"compile\": {\"deepcompile\": true}}", "compile.deepcompile",
         false},
        {TORCHTITAN, "[activation_checkpoint]\nmode = \"memory_budget\"",
         "activation_checkpoint.mode: 'memory_budget'", false},
        {TORCHTITAN, "[parallelism]\nenable_async_tensor_parallel = true",
         "enable_async_tensor_parallel true", false},
        {TORCHTITAN, "[parallelism]\nexpert_parallel_degree = 2",
         "expert_parallel_degree 2", false},
        {TORCHTITAN, "[parallelism]\npipeline_parallel_schedule = \"DualPipeV\"",
         "pipeline_parallel_schedule: 'DualPipeV'", false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path(&scratch, "args");
        struct mist_args args;
        scratch_write(path, cases[i].text);
        mist_args_init(&args, cases[i].framework);
        enum mist_status status = mist_args_load(&args, path, &err);
        const char *said = cases[i].is_left ? args.left : err.message;
        if (status != (cases[i].is_left ? MIST_OK : MIST_ERR_INPUT) ||
            !strstr(said, cases[i].name))
            fail_msg("%s: '%s'", cases[i].text, said);
    }
}

/* Floats of 8 bits in products, as frameworks ask for them. */
TEST_WITH(test_eight_bits, set_up, tear_down)
{
#define FP8_8B(model, more)                                                              \
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n" model                                \
    "[training]\nseq_len = 64\nlocal_batch_size = 4\ncompile = true\n" more
    static const struct {
        enum mist_framework_name framework;
        const char *text;
        bool is_there, has_note; /* of what is gathered in bf16 all the same */
    } cases[] = {
        {MEGATRON, TINY "--fp8-format hybrid --fp8-recipe delayed --fp8-margin 0", true,
         false},
        {MEGATRON, TINY "--fp8-format e4m3", true, false},
        {MEGATRON, TINY, false, false},
        {TORCHTITAN, FP8_8B("converters = [\"float8\"]\n", ""), true, false},
        {TORCHTITAN, FP8_8B("", "[float8]\nenable_float8_linear = true"), true, false},
        {TORCHTITAN, FP8_8B("", "[float8]\nenable_fsdp_float8_all_gather = true"), false,
         false},
        {TORCHTITAN,
         FP8_8B("converters = [\"float8\"]\n",
                "[float8]\nenable_fsdp_float8_all_gather = true"),
         true, true},
        {TORCHTITAN,
         FP8_8B("converters = [\"float8\"]\n",
                "[float8]\nenable_fsdp_float8_all_gather = false"),
         true, false},
        {TORCHTITAN, /* nothing is gathered */
         FP8_8B("converters = [\"float8\"]\n",
                "[float8]\nenable_fsdp_float8_all_gather = true\n[parallelism]\n"
                "data_parallel_replicate_degree = 8\ndata_parallel_shard_degree = 1"),
         true, false},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path(&scratch, "args");
        struct mist_args args;
        scratch_write(path, cases[i].text);
        mist_args_init(&args, cases[i].framework);
        args.n_devices = 8;
        must(mist_args_load(&args, path, &err), &err);
        assert_int_equal(args.v[MIST_ARG_FP8] == 1, cases[i].is_there);
        assert_int_equal(strstr(args.notes, "float8_all_gather: ") != NULL,
                         cases[i].has_note);
    }
}

/* What the tool's options say goes before the file, and is not contradicted. */
TEST_WITH(test_options_first, set_up, tear_down)
{
    static struct mist_plan plan;
    struct mist_args args;
    const char *path = scratch_path(&scratch, "args");

    scratch_write(path, TINY);
    mist_args_init(&args, MEGATRON);
    args.n_devices = args.node_devices = 8;
    mist_args_set(&args, MIST_ARG_DP, 2);
    mist_args_set(&args, MIST_ARG_RECOMPUTE, MIST_RECOMPUTE_FULL);
    must(mist_args_load(&args, path, &err), &err);
    must(mist_args_make_plan(&args, &plan, &err), &err);
    assert_int_equal(plan.stages[0].dp, 2);
    assert_int_equal(plan.stages[0].n_checkpointed, 4);
    mist_args_init(&args, MEGATRON);
    mist_args_set(&args, MIST_ARG_MICRO_BATCH, 2);
    assert_int_equal(mist_args_load(&args, path, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "contradicts the command line"));
}

/* A file that compiles is priced by the profile of Inductor's kernels, whatever it is called
 * with; one that says it does not contradicts that profile. */
TEST_WITH(test_compile, set_up, tear_down)
{
    static const struct {
        const char *text;
        enum mist_framework_name called, is; /* OURS: refused */
    } cases[] = {
        {"", TORCHTITAN, TORCHTITAN},
        {"", MIST_FRAMEWORK_TORCHTITAN_COMPILED, MIST_FRAMEWORK_TORCHTITAN_COMPILED},
        {"compile = true\n", TORCHTITAN, MIST_FRAMEWORK_TORCHTITAN_COMPILED},
        {"compile = false\n", TORCHTITAN, TORCHTITAN},
        {"compile = false\n", MIST_FRAMEWORK_TORCHTITAN_COMPILED, MIST_FRAMEWORK_OURS},
        {"[compile]\nenable = true\n", TORCHTITAN, MIST_FRAMEWORK_TORCHTITAN_COMPILED},
        {"[compile]\nenable = true\nbackend = \"aot_eager\"\n", TORCHTITAN,
         MIST_FRAMEWORK_OURS},
    };
    const char *path = scratch_path(&scratch, "args");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct mist_plan plan;
        struct mist_args args;
        char text[256];
        snprintf(text, sizeof text,
                 "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\n"
                 "seq_len = 2048\nlocal_batch_size = 1\n%s",
                 cases[i].text);
        scratch_write(path, text);
        mist_args_init(&args, cases[i].called);
        args.n_devices = args.node_devices = 8;
        enum mist_status status = mist_args_load(&args, path, &err);
        assert_int_equal(status, cases[i].is ? MIST_OK : MIST_ERR_INPUT);
        if (status != MIST_OK)
            continue;
        must(mist_args_make_plan(&args, &plan, &err), &err);
        assert_int_equal(plan.job.framework, cases[i].is);
    }
}

/* What the file leaves to the program, the tool's options say; nothing else does. */
TEST_WITH(test_auto, set_up, tear_down)
{
    static const struct {
        const char *text;
        int said, dtype; /* -1: refused */
        const char *why;
    } cases[] = {
        {"{\"fp16\": {\"enabled\": \"auto\"}}", MIST_DTYPE_FP16, MIST_DTYPE_FP16, NULL},
        {"{\"fp16\": {\"enabled\": \"auto\"}}", MIST_DTYPE_FP32, MIST_DTYPE_FP32, NULL},
        {"{\"bf16\": {\"enabled\": \"auto\"}, \"fp16\": {\"enabled\": \"auto\"}}",
         MIST_DTYPE_BF16, MIST_DTYPE_BF16, NULL},
        {"{\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": \"auto\"}}", -1,
         MIST_DTYPE_BF16, NULL},
        {"{\"bf16\": {\"enabled\": true}}", MIST_DTYPE_FP16, -1,
         "bf16.enabled means dtype bf16 here, but the command line or another argument "
         "says fp16"},
        {"{\"fp16\": {\"enabled\": false}}", MIST_DTYPE_BF16, -1,
         "fp16.enabled means dtype fp32 here, but the command line or another argument "
         "says bf16"},
        {"{}", MIST_DTYPE_FP16, -1,
         "what is left out means dtype fp32 here, but the command line or another "
         "argument says fp16"},
        {"{}", -1, MIST_DTYPE_FP32, NULL},
    };
    const char *path = scratch_path(&scratch, "args");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_args args;
        scratch_write(path, cases[i].text);
        mist_args_init(&args, DEEPSPEED);
        if (cases[i].said >= 0)
            mist_args_set(&args, MIST_ARG_DTYPE, cases[i].said);
        enum mist_status status = mist_args_load(&args, path, &err);
        assert_int_equal(status, cases[i].dtype < 0 ? MIST_ERR_INPUT : MIST_OK);
        if (status == MIST_OK)
            assert_int_equal((int)args.v[MIST_ARG_DTYPE], cases[i].dtype);
        else
            assert_string_equal(err.message, cases[i].why);
    }
}

/* Pieces of gradients: as said; transformers' own where that is to choose. */
TEST_WITH(test_pieces, set_up, tear_down)
{
    static const struct {
        const char *text;
        int64_t bucket, group;
    } cases[] = {
        {"{\"reduce_bucket_size\": 5e8, \"sub_group_size\": 1e12}", 500000000,
         INT64_C(1000000000000)},
        {"{\"reduce_bucket_size\": \"auto\", \"sub_group_size\": 0}", 32 * 32, 1},
        {"{\"stage\": 0}", 0, 0},
    };
    const char *path = scratch_path(&scratch, "args");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mist_args args;
        struct mist_plan plan;
        struct mist_model model = mist_small_model(MIST_FAMILY_GPT, 2, 64);
        char text[200];
        snprintf(text, sizeof text,
                 "{\"train_batch_size\": 8, \"zero_optimization\": %s}", cases[i].text);
        scratch_write(path, text);
        mist_args_init(&args, DEEPSPEED);
        mist_args_set_model(&args, &model);
        mist_args_set(&args, MIST_ARG_SEQ_LEN, model.max_seq);
        args.n_devices = args.node_devices = 8;
        must(mist_args_load(&args, path, &err), &err);
        must(mist_args_make_plan(&args, &plan, &err), &err);
        assert_int_equal(plan.job.reduce_bucket, cases[i].bucket);
        assert_int_equal(plan.job.sub_group, cases[i].group);
    }
}

/* What a few arguments mean together, and what is meant where they are left out: as in the
 * frameworks' own sources (DeepSpeed's _set_batch_related_parameters() and get_data_types(),
 * Megatron-LM's validate_args(), torchtitan's job_config.py). */
TEST_WITH(test_defaults, set_up, tear_down)
{
#define DS_BATCH(more) "{\"train_batch_size\": 64" more "}"
#define TITAN_AC(more) TITAN_8B "[activation_checkpoint]\n" more
#define TITAN_OLD                                                                        \
    "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[training]\nseq_len = 64\n"            \
    "batch_size = 8\n[experimental]\npipeline_parallel_degree = 4\n"
#define PIPE                                                                             \
    "--num-layers 8 --hidden-size 64 --num-attention-heads 4 --seq-length 32 "           \
    "--micro-batch-size 1 --global-batch-size 16 --pipeline-model-parallel-size 4 "
#define CHUNKS PIPE "--num-layers-per-virtual-pipeline-stage 1 "
    static const struct {
        enum mist_framework_name framework;
        const char *text;
        int micro_batch, n_micro_batches, n_checkpointed; /* of the first stage */
        enum mist_dtype gradients;
        bool is_selective, overlaps;
        double offload_optimizer;
    } cases[] = {
        {DEEPSPEED, DS_BATCH(), 8, 1, 0, MIST_DTYPE_FP32, false, false, 0},
        {DEEPSPEED, DS_BATCH(", \"gradient_accumulation_steps\": 2"), 4, 2, 0,
         MIST_DTYPE_FP32, false, false, 0},
        {DEEPSPEED,
         DS_BATCH(", \"gradient_accumulation_steps\": null, \"zero_optimization\": "
                  "{\"stage\": 1, \"offload_optimizer\": null}"),
         8, 1, 0, MIST_DTYPE_FP32, false, false, 0},
        {DEEPSPEED, DS_BATCH(", \"train_micro_batch_size_per_gpu\": 2"), 2, 4, 0,
         MIST_DTYPE_FP32, false, false, 0},
        {DEEPSPEED, DS_BATCH(", \"bf16\": {\"enabled\": true}"), 8, 1, 0, MIST_DTYPE_FP32,
         false, false, 0},
        {DEEPSPEED,
         DS_BATCH(", \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
                  "{\"stage\": 2, \"offload_optimizer\": "
                  "{\"device\": \"cpu\", \"ratio\": 0.25}}"),
         8, 1, 0, MIST_DTYPE_BF16, false, false, 1},
        {DEEPSPEED,
         DS_BATCH(", \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
                  "{\"stage\": 3, \"offload_optimizer\": "
                  "{\"device\": \"cpu\", \"ratio\": 0.25}}"),
         8, 1, 0, MIST_DTYPE_BF16, false, true, 0.25},
        {DEEPSPEED, DS_BATCH(", \"fp16\": {\"enabled\": true}"), 8, 1, 0, MIST_DTYPE_FP16,
         false, false, 0},
        {MEGATRON, PIPE, 1, 8, 0, MIST_DTYPE_FP32, false, false, 0},
        {MEGATRON, PIPE "--overlap-p2p-communication", 1, 8, 0, MIST_DTYPE_FP32, false,
         false, 0},
        {MEGATRON, CHUNKS, 1, 8, 0, MIST_DTYPE_FP32, false, true, 0},
        {MEGATRON, CHUNKS "--overlap-p2p-communication", 1, 8, 0, MIST_DTYPE_FP32, false,
         true, 0},
        {MEGATRON, CHUNKS "--no-overlap-p2p-communication", 1, 8, 0, MIST_DTYPE_FP32,
         false, false, 0},
        {MIST_FRAMEWORK_MEGATRON_2021, CHUNKS, 1, 8, 0, MIST_DTYPE_FP32, false, false, 0},
        {MEGATRON, PIPE "\\\r\n --bf16 \\\r\n--grad-reduce-in-bf16\r\n", 1, 8, 0,
         MIST_DTYPE_BF16, false, false, 0},
        {TORCHTITAN, TITAN_8B, 1, 4, 4, MIST_DTYPE_FP32, false, false, 0},
        {TORCHTITAN, TITAN_AC("mode = \"selective\"\n"), 1, 4, 4, MIST_DTYPE_FP32, false,
         false, 0},
        {TORCHTITAN, TITAN_AC("selective_ac_option = \"3\"\n"), 1, 4, 2, MIST_DTYPE_FP32,
         false, false, 0},
        {TORCHTITAN, TITAN_AC("selective_ac_option = \"op\"\n"), 1, 4, 0, MIST_DTYPE_FP32,
         true, false, 0},
        {TORCHTITAN, TITAN_AC("mode = \"none\"\n"), 1, 4, 0, MIST_DTYPE_FP32, false,
         false, 0},
        {TORCHTITAN, TITAN_AC("mode = \"full\"\n"), 1, 4, 8, MIST_DTYPE_FP32, false,
         false, 0},
        {TORCHTITAN, TITAN_OLD, 2, 4, 4, MIST_DTYPE_FP32, false, false, 0},
        {TORCHTITAN, TITAN_OLD "pipeline_parallel_microbatches = 8\n", 1, 8, 4,
         MIST_DTYPE_FP32, false, false, 0},
    };
    static struct mist_plan plan;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = scratch_path(&scratch, "args");
        struct mist_model model;
        struct mist_args args;
        scratch_write(path, cases[i].text);
        mist_args_init(&args, cases[i].framework);
        args.n_devices = args.node_devices = 8;
        if (cases[i].framework == DEEPSPEED) {
            must(mist_model_load_preset("gpt3-demo", &model, &err), &err);
            mist_args_set_model(&args, &model);
            mist_args_set(&args, MIST_ARG_SEQ_LEN, 64);
        }
        must(mist_args_load(&args, path, &err), &err);
        must(mist_args_make_plan(&args, &plan, &err), &err);
        const struct mist_stage_plan *stage = &plan.stages[0];
        if (stage->micro_batch != cases[i].micro_batch ||
            plan.n_micro_batches != cases[i].n_micro_batches ||
            stage->n_checkpointed != cases[i].n_checkpointed ||
            plan.job.gradient_dtype != cases[i].gradients ||
            plan.job.recomputes_attention != cases[i].is_selective ||
            mist_plan_overlaps(&plan) != cases[i].overlaps ||
            stage->offload_optimizer != cases[i].offload_optimizer)
            fail_msg(
                "%s: b %d G %d checkpointed %d gradients %s selective %d overlaps %d "
                "offloads %g",
                cases[i].text, (int)stage->micro_batch, (int)plan.n_micro_batches,
                (int)stage->n_checkpointed, mist_dtype_words[plan.job.gradient_dtype],
                plan.job.recomputes_attention, mist_plan_overlaps(&plan),
                stage->offload_optimizer);
    }
}

/* ------------------------------------------------------------------------- round trips */

static int power(struct mist_random *random, int most)
{
    return 1 << pick(random, 0, most);
}

static void draw_model(struct mist_random *random, enum mist_framework_name framework,
                       int n_layers, struct mist_model *out)
{
    bool has_rope = framework == TORCHTITAN || pick(random, 0, 1);
    bool is_nemotron = framework == MEGATRON && has_rope && pick(random, 0, 1);

    *out = (struct mist_model){
        .name = "drawn",
        .family = is_nemotron ? MIST_FAMILY_NEMOTRON
                  : has_rope  ? MIST_FAMILY_LLAMA
                              : MIST_FAMILY_GPT,
        .n_layers = n_layers,
        .hidden = 512,
        .n_heads = 8,
        .n_kv_heads = has_rope ? power(random, 1) * 4 : 8,
        .head_dim = 64,
        .ffn = 256 * pick(random, 4, 8),
        .vocab = 128 * pick(random, 8, 9),
        .max_seq = has_rope ? 0 : 256 * pick(random, 1, 2),
        .has_bias = !has_rope && pick(random, 0, 1),
        .ties_embeddings = pick(random, 0, 1),
        .norm_epsilon = pick(random, 0, 1) ? 1e-5 : 1e-6,
        .rope_theta = has_rope ? (pick(random, 0, 1) ? 1e4 : 5e5) : 0,
        .rotary_dim = is_nemotron ? 16 * pick(random, 0, 3) : 0,
    };
}

/* What the framework leaves open in the memory of a stage. */
static void draw_memory(struct mist_random *random, enum mist_framework_name framework,
                        int pp, struct mist_stage_plan *stage)
{
    bool has_dp = stage->dp > 1, offloads = pick(random, 0, 3) == 0;
    int zero = pick(random, 0, framework == MEGATRON ? 1 : 3);

    if (framework == DEEPSPEED && pp > 1)
        zero = zero > 1 ? 1 : zero;
    if (framework == DEEPSPEED && stage->tp > 1 && zero > 2)
        zero = 2;
    if (framework == TORCHTITAN)
        zero = !has_dp || zero < 2 ? 0 : zero;
    stage->zero = zero;
    if (!offloads)
        return;
    if (framework == MEGATRON)
        stage->offload_optimizer = pick(random, 1, 10) / 10.0;
    if (framework == DEEPSPEED && zero > 0)
        stage->offload_optimizer = stage->offload_gradients =
            zero == 3 ? pick(random, 1, 8) / 8.0 : 1;
    if (framework == DEEPSPEED && zero == 3)
        stage->offload_weights = pick(random, 0, 1);
    if (framework == TORCHTITAN)
        stage->offload_optimizer = stage->offload_gradients = stage->offload_weights = 1;
    stage->updates_on_host = stage->offload_optimizer > 0;
}

static void draw_recomputation(struct mist_random *random,
                               enum mist_framework_name framework, int chunks,
                               struct mist_plan *plan)
{
    int n = plan->stages[0].n_layers, kind = pick(random, 0, 3);

    if (kind == 1 && framework != DEEPSPEED)
        plan->job.recomputes_attention = true;
    if (kind == 2)
        plan->stages[0].n_checkpointed = n;
    if (kind == 3 && framework == MEGATRON && chunks == 1)
        plan->stages[0].n_checkpointed = pick(random, 1, n);
    if (kind == 3 && framework == TORCHTITAN && chunks == 1)
        plan->stages[0].n_checkpointed = n / pick(random, 1, n);
    if (kind == 2 && framework == DEEPSPEED)
        plan->stages[0].offload_activations = pick(random, 0, 1);
}

static void draw_job(struct mist_random *random, enum mist_framework_name framework,
                     struct mist_job *job)
{
    job->framework = framework;
    job->seq_len = 256;
    job->computes_on_gpu = true;
    job->dtype = pick(random, 0, 3) ? MIST_DTYPE_BF16 : MIST_DTYPE_FP32;
    job->gradient_dtype = job->dtype == MIST_DTYPE_BF16 && pick(random, 0, 1)
                              ? MIST_DTYPE_BF16
                              : MIST_DTYPE_FP32;
    job->attention = framework == TORCHTITAN ? MIST_ATTENTION_FLASH
                                             : (enum mist_attention)pick(random, 0, 2);
    job->has_no_dropout = framework != TORCHTITAN && pick(random, 0, 1);
    job->overlaps = framework != TORCHTITAN && pick(random, 0, 1);
    if (framework == DEEPSPEED && job->overlaps) {
        job->reduce_bucket = 12345678;
        job->sub_group = INT64_C(1000000000000);
    }
}

/* A plan that the framework can express; false: it is none. */
static bool draw_plan(struct mist_random *random, enum mist_framework_name framework,
                      struct mist_plan *plan)
{
    int pp = power(random, 2), tp = power(random, 2), dp = power(random, 1);
    int chunks = pp > 1 && framework != DEEPSPEED && pick(random, 0, 2) == 0 ? 2 : 1;
    int per = chunks * pick(random, 1, 3), b = power(random, 1);
    struct mist_stage_plan *stage = &plan->stages[0];

    memset(plan, 0, sizeof *plan);
    draw_model(random, framework, pp * per, &plan->model);
    draw_job(random, framework, &plan->job);
    plan->pipeline = chunks > 1 ? MIST_PIPELINE_INTERLEAVED : MIST_PIPELINE_1F1B;
    if (chunks > 1 && framework == TORCHTITAN && pick(random, 0, 1))
        plan->pipeline = MIST_PIPELINE_ZB_V;
    plan->n_chunks = plan->pipeline == MIST_PIPELINE_INTERLEAVED ? chunks : 0;
    plan->n_stages = pp;
    plan->n_micro_batches = pp * pick(random, 1, 2);
    plan->job.global_batch = (int64_t)plan->n_micro_batches * b * dp;
    *stage = (struct mist_stage_plan){
        .n_layers = per,
        .n_nodes = 1,
        .n_devices = dp * tp,
        .micro_batch = b,
        .dp = dp,
        .tp = tp,
        .is_sequence_parallel = tp > 1 && (framework == TORCHTITAN ||
                                           (framework == MEGATRON && pick(random, 0, 1))),
    };
    draw_memory(random, framework, pp, stage);
    draw_recomputation(random, framework, chunks, plan);
    for (int i = 1; i < pp; i++)
        plan->stages[i] = *stage;
    return mist_plan_n_ranks(plan) <= 16 && mist_plan_check(plan, NULL) == MIST_OK;
}

/* Writes, reads from the file, as mist-sim would; *again is on a cluster like plan. */
static void go_round(const struct mist_plan *plan, struct mist_plan *again)
{
    struct mist_args args;
    struct mist_args_beside beside;
    const char *path = scratch_path(&scratch, "args");

    must(mist_args_save(plan, 8, path, true, &beside, &err), &err);
    mist_args_init(&args, plan->job.framework);
    args.n_devices = mist_plan_n_ranks(plan);
    args.node_devices = 8;
    if (beside.model)
        mist_args_set_model(&args, &plan->model);
    if (beside.seq_len)
        mist_args_set(&args, MIST_ARG_SEQ_LEN, plan->job.seq_len);
    if (beside.attention) {
        mist_args_set(&args, MIST_ARG_ATTENTION, plan->job.attention);
        mist_args_set(&args, MIST_ARG_NO_DROPOUT, plan->job.has_no_dropout);
    }
    must(mist_args_load(&args, path, &err), &err);
    must(mist_args_make_plan(&args, again, &err), &err);
    again->job.computes_on_gpu = true;
}

/* A loss in two bytes is read, and written again; it needs fp16. */
TEST_WITH(test_fp16_loss, set_up, tear_down)
{
    static const struct {
        const char *text;
        bool is_there;
    } cases[] = {{TINY "--fp16 --fp16-lm-cross-entropy", true}, {TINY "--fp16", false}};
    const char *path = scratch_path(&scratch, "args");

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct mist_plan plan, again;
        struct mist_args args;
        scratch_write(path, cases[i].text);
        mist_args_init(&args, MEGATRON);
        args.n_devices = args.node_devices = 8;
        must(mist_args_load(&args, path, &err), &err);
        must(mist_args_make_plan(&args, &plan, &err), &err);
        assert_int_equal(plan.job.has_fp16_loss, cases[i].is_there);
        go_round(&plan, &again);
        assert_int_equal(again.job.has_fp16_loss, cases[i].is_there);
    }
    refuse(MEGATRON, TINY "--bf16\n--fp16-lm-cross-entropy", 4, "fp16");
}

/* Products that are cut up, which need sequence parallelism, and a fused loss are read, and
 * written again. */
TEST_WITH(test_cut_products, set_up, tear_down)
{
    static struct mist_plan plan, again;
    const char *path = scratch_path(&scratch, "args");
    struct mist_args args;

    scratch_write(path, TINY "--tensor-model-parallel-size 2 --sequence-parallel "
                             "--tp-comm-overlap --cross-entropy-loss-fusion "
                             "--cross-entropy-fusion-impl te");
    mist_args_init(&args, MEGATRON);
    args.n_devices = args.node_devices = 8;
    must(mist_args_load(&args, path, &err), &err);
    must(mist_args_make_plan(&args, &plan, &err), &err);
    assert_true(plan.job.cuts_products && plan.job.has_fused_loss);
    go_round(&plan, &again);
    assert_true(again.job.cuts_products && again.job.has_fused_loss);
    refuse(MEGATRON, TINY "--tensor-model-parallel-size 2\n--tp-comm-overlap", 4,
           "sequence-parallel");
    plan.job.framework = MIST_FRAMEWORK_TORCHTITAN;
    assert_int_equal(mist_plan_check(&plan, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "fused_loss is true"));
    plan.job.has_fused_loss = false;
    assert_int_equal(mist_plan_check(&plan, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "steps_apart is true"));
    plan.job.steps_apart = false;
    assert_int_equal(mist_plan_check(&plan, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "tp_overlap is true"));
}

/* What Megatron-LM does by default: it sums gradients behind all passes. */
TEST_WITH(test_steps_apart, set_up, tear_down)
{
    static const char *const more[] = {"",
                                       "--overlap-grad-reduce --overlap-param-gather"};
    static struct mist_plan plans[2], again;
    const char *path = scratch_path(&scratch, "args");
    struct mist_args args;

    for (int i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "%s --global-batch-size 32 --use-distributed-optimizer --bf16 %s", TINY,
                 more[i]);
        scratch_write(path, text);
        mist_args_init(&args, MEGATRON);
        args.n_devices = args.node_devices = 8;
        must(mist_args_load(&args, path, &err), &err);
        must(mist_args_make_plan(&args, &plans[i], &err), &err);
        assert_int_equal(plans[i].job.steps_apart, i == 0);
        assert_int_equal(plans[i].stages[0].dp, 8);
        go_round(&plans[i], &again);
        assert_int_equal(again.job.steps_apart, i == 0);
    }
}

/* Time and arenas; 0: no price (offloaded state that nobody measured). */
static double price(const struct mist_plan *plan, const struct mist_cost_model *model,
                    int64_t *bytes)
{
    struct mist_replay_options options = {.skips_timeline = true};
    struct mist_replay_result result;

    *bytes = 0;
    if (mist_replay_run(plan, model, &options, &result, &err) != MIST_OK)
        return 0;
    double time_s = result.iteration_s;
    for (int32_t i = 0; i < result.n_stages; i++)
        *bytes += result.stages[i].arena_bytes[0] + result.stages[i].arena_bytes[1];
    mist_replay_result_fini(&result);
    return time_s;
}

TEST_WITH(test_round_trips, set_up, tear_down)
{
    static const char *const knobs[] = {"pp", "tp", "chunks", "offloads", "full"};
    static struct mist_plan plan, again;
    struct mist_trace_set traces;
    struct mist_cost_model *model;
    struct mist_random random;
    int n_of[MIST_N_FRAMEWORKS] = {0}, n_with[5] = {0}, n_priced = 0;

    must(mist_preset_parse(&traces, "a100-80:2x8", &err), &err);
    must(mist_cost_model_new(&traces, &model, &err), &err);
    mist_random_init(&random, test_seed(21));
    for (int i = 0; i < 600; i++) {
        enum mist_framework_name of =
            (enum mist_framework_name)(1 + i % (MIST_FRAMEWORK_LLM_FOUNDRY - 1));
        int64_t bytes, bytes_again;
        if (!draw_plan(&random,
                       of == MIST_FRAMEWORK_MEGATRON_2021         ? MEGATRON
                       : of == MIST_FRAMEWORK_DEEPSPEED_2021      ? DEEPSPEED
                       : of == MIST_FRAMEWORK_TORCHTITAN_COMPILED ? TORCHTITAN
                                                                  : of,
                       &plan))
            continue;
        plan.job.framework = of;
        plan.job.overlaps = plan.job.overlaps && of != MIST_FRAMEWORK_MEGATRON_2021;
        go_round(&plan, &again);
        double time_s = price(&plan, model, &bytes);
        double time_again_s = price(&again, model, &bytes_again);
        assert_memory_equal(&time_s, &time_again_s, sizeof time_s);
        assert_int_equal(bytes, bytes_again);
        n_of[of]++;
        n_priced += time_s > 0;
        n_with[0] += plan.n_stages > 1;
        n_with[1] += plan.stages[0].tp > 1;
        n_with[2] += mist_plan_n_chunks(&plan) > 1;
        n_with[3] += plan.stages[0].offload_optimizer > 0;
        n_with[4] += plan.stages[0].n_checkpointed > 0;
    }
    print_message("# %d, %d, %d and %d plans, %d with a price\n", n_of[1], n_of[2],
                  n_of[3], n_of[4], n_priced);
    for (int k = 1; k < MIST_FRAMEWORK_LLM_FOUNDRY; k++)
        assert_true(n_of[k] > 50);
    for (int k = 0; k < 5; k++)
        if (n_with[k] < 20)
            fail_msg("%d plans with %s", n_with[k], knobs[k]);
    assert_true(n_priced > 200);
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
}

/* -------------------------------------------------------------------- not expressible */

struct change {
    enum mist_framework_name framework;
    void (*change)(struct mist_plan *plan);
    const char *names;
};

static void make_lean(struct mist_plan *plan)
{
    plan->stages[1].n_lean = 1;
}
static void make_uneven(struct mist_plan *plan)
{
    plan->stages[0].n_layers++;
    plan->stages[1].n_layers--;
    plan->stages[0].n_checkpointed = plan->stages[1].n_checkpointed = 0;
}
static void make_zero_3(struct mist_plan *plan)
{
    for (int i = 0; i < 2; i++)
        plan->stages[i].zero = 3;
}
static void share_sequences(struct mist_plan *plan)
{
    for (int i = 0; i < 2; i++) {
        struct mist_stage_plan *stage = &plan->stages[i];
        stage->cp = 2;
        mist_stage_mesh(2 * stage->dp * stage->tp, 2, &stage->n_nodes, &stage->n_devices);
    }
}
static void make_zero_1(struct mist_plan *plan)
{
    for (int i = 0; i < 2; i++)
        plan->stages[i].zero = 1;
}
static void offload_half(struct mist_plan *plan)
{
    for (int i = 0; i < 2; i++)
        plan->stages[i].offload_weights = 0.5;
}
static void make_zb_h1(struct mist_plan *plan)
{
    plan->pipeline = MIST_PIPELINE_ZB_H1;
}
static void select_attention(struct mist_plan *plan)
{
    plan->job.recomputes_attention = true;
}
static void make_sequence_parallel(struct mist_plan *plan)
{
    plan->stages[0].is_sequence_parallel = plan->stages[1].is_sequence_parallel = true;
}
static void reduce_each(struct mist_plan *plan)
{
    plan->reduces_each_micro_batch = true;
}
static void make_falcon(struct mist_plan *plan)
{
    plan->model.family = MIST_FAMILY_FALCON;
    plan->model.has_bias = false;
    plan->model.max_seq = 0;
    plan->model.rope_theta = 1e4;
}
/* Of grouped queries, which the GPT that it would be can't have. */
static void make_mistral(struct mist_plan *plan)
{
    plan->model.family = MIST_FAMILY_MISTRAL;
}
static void cut_vocabulary(struct mist_plan *plan)
{
    plan->model.vocab = 1025;
}

TEST_WITH(test_inexpressible, set_up, tear_down)
{
    static const struct change changes[] = {
        {MEGATRON, make_lean, "stage 1: lean_layers is 1"},
        {DEEPSPEED, make_lean, "lean_layers"},
        {MEGATRON, make_uneven, "layers"},
        {DEEPSPEED, make_uneven, "layers"},
        {MEGATRON, make_zero_3, "zero is 3, it would be 0"},
        {DEEPSPEED, make_zero_3, "zero_optimization.stage"},
        {DEEPSPEED, share_sequences, "cp is 2, it would be 1"},
        {TORCHTITAN, make_zero_1, "zero is 1"},
        {MEGATRON, offload_half, "offload_weights_frac"},
        {DEEPSPEED, offload_half, "offload_param"},
        {MEGATRON, make_zb_h1, "pipeline is zb_h1, it would be 1f1b"},
        {TORCHTITAN, make_zb_h1, "pipeline is zb_h1"},
        {DEEPSPEED, select_attention, "recompute_attention"},
        {DEEPSPEED, make_sequence_parallel, "sequence_parallel"},
        {MEGATRON, reduce_each, "reduces_each_micro_batch"},
        {MEGATRON, make_falcon, "family is falcon"},
        {MEGATRON, make_mistral, "family is mistral, it would be gpt"},
        {TORCHTITAN, make_falcon, "torchtitan trains Llama's family"},
        {MEGATRON, cut_vocabulary, "vocab is 1025, it would be 1026"},
    };
    static struct mist_plan plan;
    struct mist_random random;
    struct mist_args_beside beside;
    char *text;
    size_t n;

    mist_random_init(&random, 5);
    for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
        do /* two stages, tp and dp above 1, some blocks recomputed in none */
            while (!draw_plan(&random, changes[i].framework, &plan))
                ;
        while (plan.n_stages != 2 || plan.stages[0].tp < 2 || plan.stages[0].dp < 2 ||
               plan.stages[0].n_layers < 2 || plan.stages[0].n_checkpointed > 0 ||
               mist_plan_n_chunks(&plan) > 1 || plan.stages[0].zero ||
               plan.stages[0].offload_optimizer > 0 || plan.job.recomputes_attention ||
               (changes[i].change == make_falcon && plan.model.n_kv_heads != 8) ||
               (changes[i].change == make_mistral &&
                plan.model.n_kv_heads == plan.model.n_heads));
        changes[i].change(&plan);
        must(mist_plan_check(&plan, &err), &err);
        if (mist_args_express(&plan, 8, &text, &n, &beside, &err) != MIST_ERR_INPUT ||
            !strstr(err.message, changes[i].names))
            fail_msg("%zu: expected '%s': %s", i, changes[i].names, err.message);
        assert_null(text);
    }
}

/* ------------------------------------------------------------------------------ tables */

/* No row hides a later one, and refused rows say why. */
TEST(test_tables)
{
    for (int k = 1; k < MIST_FRAMEWORK_LLM_FOUNDRY; k++) {
        struct mist_args_row a, b;
        int n = 0;
        for (; mist_args_row((enum mist_framework_name)k, n, &b); n++) {
            if (strcmp(b.use, "refused") == 0)
                assert_true(strlen(b.note) > 0);
            assert_non_null(b.says);
            for (int i = 0; i < n; i++) {
                assert_true(mist_args_row((enum mist_framework_name)k, i, &a));
                size_t length = strlen(a.name);
                bool is_pattern = a.name[length - 1] == '*';
                if (strcmp(a.name, b.name) == 0 ||
                    (is_pattern && strncmp(a.name, b.name, length - 1) == 0))
                    fail_msg("%s hides %s", a.name, b.name);
            }
        }
        assert_true(n > 50);
    }
    struct mist_args_row none;
    assert_false(mist_args_row(MIST_FRAMEWORK_OURS, 0, &none));
    assert_false(mist_args_row(MIST_FRAMEWORK_LLM_FOUNDRY, 0, &none));
}

TEST_MAIN(NULL, NULL)
