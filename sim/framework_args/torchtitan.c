/*
 * Keys of torchtitan's TOML, v0.1 and the names of before and after (torchtitan/config). Its
 * models are Llama's; of those that are no preset of ours the tool is told.
 */
#include "sim/framework_args/arg_table.h"

#include <math.h>
#include <string.h>

enum own {
    MODEL = MIST_ARG_OWN, /* row of models[] */
    FLAVOR,
    LOCAL_BATCH, /* samples of a data-parallel rank and step, or between two sums */
    LARGE_BATCH, /* of all ranks; -1: that of one such */
    PIPE_BATCH,  /* micro-batch of a pipeline */
    PIPE_COUNT,  /* as before 2025: micro-batches of a data-parallel rank and step */
    REPLICATES,  /* data-parallel ranks that hold the same, and parts of what they hold */
    SHARDS,      /* -1: all that are left */
    RESHARDS,    /* whether weights are gathered again for the backward */
    SCHEDULE,    /* enum mist_pipeline_schedule */
    CHUNK_LAYERS,
    SELECTION, /* selective recomputation: 0: of operators, n: of every n-th block */
    ALL_ON_HOST,
    COMPILES,
    FLOAT8_GATHERS, /* FSDP casts weights of such products before it gathers them */
};

/* clang-format off */
enum { RESHARD_DEFAULT, RESHARD_ALWAYS, RESHARD_NEVER };

/* Our presets of its models. */
static const struct {
    const char *preset;
    int model, flavor;
} presets[] = {
    {"llama3-8b", 3, 8}, {"llama3-70b", 3, 70}, {"llama3-405b", 3, 405},
    {"llama2-7b", 2, 7}, {"llama2-13b", 2, 13}, {"llama2-70b", 2, 70},
};
enum { N_PRESETS = sizeof presets / sizeof *presets };

static const struct mist_arg_word
    models[] = {{"llama3", 3}, {"llama2", 2}, {NULL, 0}},
    converters[] = {{"", 0}, {"float8", 1}, {NULL, 0}},
    flavors[] = {{"7B", 7}, {"8B", 8}, {"13B", 13}, {"70B", 70}, {"405B", 405}, {NULL, 0}},
    reshards[] = {{"default", RESHARD_DEFAULT}, {"always", RESHARD_ALWAYS}, {"never", RESHARD_NEVER}, {NULL, 0}},
    schedules[] = {
        {"1F1B", MIST_PIPELINE_1F1B}, {"1f1b", MIST_PIPELINE_1F1B}, {"Interleaved1F1B", MIST_PIPELINE_INTERLEAVED},
        {"interleaved_1f1b", MIST_PIPELINE_INTERLEAVED}, {"ZBVZeroBubble", MIST_PIPELINE_ZB_V}, {NULL, 0}},
    modes[] = {
        {"none", MIST_RECOMPUTE_NONE}, {"selective", MIST_RECOMPUTE_SELECTIVE}, {"full", MIST_RECOMPUTE_FULL},
        {NULL, 0}},
    selections[] = {{"op", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"4", 4}, {"5", 5}, {"6", 6}, {"7", 7}, {"8", 8}, {NULL, 0}},
    formats[] = {{"float32", MIST_DTYPE_FP32}, {"bfloat16", MIST_DTYPE_BF16}, {NULL, 0}};

#define AUTOGRAD "the graph of the backward is made as eager PyTorch does"
#define STAGES "stages are cut evenly, but for layers that the ends have less"
#define EXPERTS "mixtures of experts are not priced"

static const struct mist_arg_row rows[] = {
    MIST_ROW_MODEL("model.name", MODEL, models), MIST_ROW_MODEL("model.flavor", FLAVOR, flavors),
    MIST_ROW_REFUSED("model.norm_type", "rmsnorm", "the profile has a kernel for each operator of a norm"),
    MIST_ROW_WORD("model.converters", MIST_ARG_FP8, converters, NAN),
    MIST_ROW_REFUSED("model.use_flex_attn", "false", "attention is flash attention"),
    MIST_ROW_LEFT("model.tokenizer_path"), MIST_ROW_LEFT("model.hf_assets_path"), MIST_ROW_LEFT("model.print_after_conversion"),
    MIST_ROW_LEFT("model.tokenizer_name"),
    /* batches */
    MIST_ROW_COUNT("training.local_batch_size", LOCAL_BATCH, 1, NAN),
    MIST_ROW_ALIAS("training.batch_size", MIST_ARG_COUNT, LOCAL_BATCH, 1, NULL),
    MIST_ROW_COUNT("training.global_batch_size", LARGE_BATCH, -1, -1),
    MIST_ROW_COUNT("training.seq_len", MIST_ARG_SEQ_LEN, 1, NAN),
    /* number formats */
    MIST_ROW_WORD("training.mixed_precision_param", MIST_ARG_DTYPE, formats, MIST_DTYPE_BF16),
    MIST_ROW_WORD("training.mixed_precision_reduce", MIST_ARG_GRADIENT_DTYPE, formats, MIST_DTYPE_FP32),
    MIST_ROW_REFUSED("training.dtype", "float32", "weights are kept in float32"),
    MIST_ROW_WORD("training.enable_cpu_offload", ALL_ON_HOST, mist_arg_bools, 0),
    MIST_ROW_WORD("training.compile", COMPILES, mist_arg_bools, NAN),
    MIST_ROW_ALIAS("training.enable_float8_linear", MIST_ARG_WORD, MIST_ARG_FP8, 0, mist_arg_bools),
    /* ranks, and their names of before */
    MIST_ROW_COUNT("parallelism.data_parallel_replicate_degree", REPLICATES, 1, 1),
    MIST_ROW_COUNT("parallelism.data_parallel_shard_degree", SHARDS, -1, -1),
    MIST_ROW_WORD("parallelism.fsdp_reshard_after_forward", RESHARDS, reshards, RESHARD_DEFAULT),
    MIST_ROW_COUNT("parallelism.tensor_parallel_degree", MIST_ARG_TP, 1, 1),
    MIST_ROW_COUNT("parallelism.pipeline_parallel_degree", MIST_ARG_PP, 1, 1),
    MIST_ROW_WORD("parallelism.pipeline_parallel_schedule", SCHEDULE, schedules, MIST_PIPELINE_1F1B),
    MIST_ROW_COUNT("parallelism.pipeline_parallel_microbatch_size", PIPE_BATCH, 1, NAN),
    MIST_ROW_COUNT("parallelism.pipeline_parallel_layers_per_stage", CHUNK_LAYERS, 1, NAN),
    MIST_ROW_COUNT("parallelism.pipeline_parallel_first_stage_less_layers", MIST_ARG_EMBEDDING_LAYERS, 0, NAN),
    MIST_ROW_COUNT("parallelism.pipeline_parallel_last_stage_less_layers", MIST_ARG_HEAD_LAYERS, 0, NAN),
    MIST_ROW_ALIAS("training.data_parallel_degree", MIST_ARG_COUNT, SHARDS, -1, NULL),
    MIST_ROW_ALIAS("training.data_parallel_shard_degree", MIST_ARG_COUNT, SHARDS, -1, NULL),
    MIST_ROW_ALIAS("training.data_parallel_replicate_degree", MIST_ARG_COUNT, REPLICATES, 1, NULL),
    MIST_ROW_ALIAS("training.tensor_parallel_degree", MIST_ARG_COUNT, MIST_ARG_TP, 1, NULL),
    MIST_ROW_ALIAS("training.sequence_parallel_degree", MIST_ARG_COUNT, MIST_ARG_TP, 1, NULL),
    MIST_ROW_ALIAS("training.pipeline_parallel_degree", MIST_ARG_COUNT, MIST_ARG_PP, 1, NULL),
    MIST_ROW_ALIAS("experimental.pipeline_parallel_degree", MIST_ARG_COUNT, MIST_ARG_PP, 1, NULL),
    MIST_ROW_ALIAS("experimental.pipeline_parallel_schedule", MIST_ARG_WORD, SCHEDULE, 0, schedules),
    MIST_ROW_ALIAS("experimental.pipeline_parallel_microbatches", MIST_ARG_COUNT, PIPE_COUNT, 1, NULL),
    MIST_ROW_REFUSED("parallelism.enable_async_tensor_parallel", "false", "products are not cut up to send parts of them"),
    MIST_ROW_REFUSED("experimental.enable_async_tensor_parallel", "false", "products are not cut up to send parts of them"),
    MIST_ROW_REFUSED("parallelism.disable_loss_parallel", "false", "the vocabulary is cut over tensor-parallel ranks"),
    MIST_ROW_REFUSED("parallelism.enable_compiled_autograd", "false", AUTOGRAD),
    MIST_ROW_REFUSED("experimental.enable_compiled_autograd", "false", AUTOGRAD),
    MIST_ROW_COUNT("parallelism.context_parallel_degree", MIST_ARG_CP, 1, 1), MIST_ROW_ALIAS("experimental.context_parallel_degree", MIST_ARG_COUNT, MIST_ARG_CP, 1, NULL),
    MIST_ROW_REFUSED("parallelism.expert_parallel_degree", "1", EXPERTS), MIST_ROW_REFUSED("parallelism.expert_tensor_parallel_degree", "1", EXPERTS),
    MIST_ROW_REFUSED("parallelism.pipeline_parallel_split_points", "", STAGES), MIST_ROW_REFUSED("experimental.pipeline_parallel_split_points", "", STAGES),
    MIST_ROW_REFUSED("parallelism.module_fqns_per_model_part", "", STAGES),
    MIST_ROW_LEFT("parallelism.context_parallel_rotate_method"), MIST_ROW_LEFT("experimental.context_parallel_rotate_method"),
    MIST_ROW_LEFT("experimental.custom_import"), MIST_ROW_LEFT("experimental.custom_args_module"),
    /* recomputation */
    MIST_ROW_WORD("activation_checkpoint.mode", MIST_ARG_RECOMPUTE, modes, NAN),
    MIST_ROW_WORD("activation_checkpoint.selective_ac_option", SELECTION, selections, 2),
    MIST_ROW_LEFT("activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns"), MIST_ROW_LEFT("activation_checkpoint.early_stop"),
    /* kernels, the optimizer */
    MIST_ROW_ALIAS("compile.enable", MIST_ARG_WORD, COMPILES, 0, mist_arg_bools), MIST_ROW_LEFT_AS("compile.components", "blocks and the loss"),
    MIST_ROW_REFUSED("compile.backend", "inductor", "the profile has the kernels of Inductor"),
    MIST_ROW_ALIAS("float8.enable_float8_linear", MIST_ARG_WORD, MIST_ARG_FP8, 0, mist_arg_bools),
    MIST_ROW_REFUSED("float8.recipe_name", "tensorwise", "scales are those of whole tensors"),
    MIST_ROW_WORD("float8.enable_fsdp_float8_all_gather", FLOAT8_GATHERS, mist_arg_bools, NAN),
    MIST_ROW_LEFT_AS("float8.*", "all products of blocks are cast as they are"),
    MIST_ROW_LEFT_AS("quantize.*", "no converter asks for it"),
    MIST_ROW_REFUSED("optimizer.name", "AdamW|Adam", "the optimizer is AdamW"),
    MIST_ROW_REFUSED("optimizer.implementation", "fused", "the profile has the fused AdamW"),
    MIST_ROW_REFUSED("optimizer.fused", "true", "the profile has the fused AdamW"),
    MIST_ROW_REFUSED("optimizer.early_step_in_backward", "false", "the step comes behind the backward"),
    MIST_ROW_LEFT("optimizer.lr"), MIST_ROW_LEFT("optimizer.eps"), MIST_ROW_LEFT("optimizer.beta1"), MIST_ROW_LEFT("optimizer.beta2"),
    MIST_ROW_LEFT("optimizer.weight_decay"),
    /* data, schedule of the learning rate, checkpoints, logs */
    MIST_ROW_LEFT("training.steps"), MIST_ROW_LEFT("training.max_norm"), MIST_ROW_LEFT("training.dataset*"), MIST_ROW_LEFT("training.seed"),
    MIST_ROW_LEFT("training.warmup_steps"), MIST_ROW_LEFT("training.gc_*"), MIST_ROW_LEFT("training.deterministic"),
    MIST_ROW_LEFT("training.checkpoint_*"), MIST_ROW_LEFT("training.debug_moe_force_load_balance"),
    MIST_ROW_LEFT("job.*"), MIST_ROW_LEFT("profiling.*"), MIST_ROW_LEFT("metrics.*"), MIST_ROW_LEFT("lr_scheduler.*"), MIST_ROW_LEFT("checkpoint.*"),
    MIST_ROW_LEFT("comm.*"), MIST_ROW_LEFT("validation.*"), MIST_ROW_LEFT("dataset.*"), MIST_ROW_LEFT("memory_estimation.*"), MIST_ROW_LEFT("debug.*"),
    MIST_ROW_REFUSED("fault_tolerance.enable", "false", "replicas that come and go"), MIST_ROW_LEFT("fault_tolerance.*"),
    {.name = NULL}};
/* clang-format on */

/* ------------------------------------------------------------------------ from the file */

/* The preset that model and flavor mean; NULL: none. */
static const char *find_preset(const struct mist_args *args)
{
    for (int i = 0; i < N_PRESETS; i++)
        if (presets[i].model == args->v[MODEL] && presets[i].flavor == args->v[FLAVOR])
            return presets[i].preset;
    return NULL;
}

static enum mist_status find_model(struct mist_args *args, struct mist_err *err)
{
    struct mist_model model;
    const char *preset = find_preset(args);

    if (preset) {
        enum mist_status status = mist_model_load_preset(preset, &model, err);
        if (status != MIST_OK)
            return status;
        if (!args->has_model)
            mist_args_set_model(args, &model);
        if (args->v[MIST_ARG_LAYERS] != model.n_layers ||
            args->v[MIST_ARG_HIDDEN] != model.hidden ||
            args->v[MIST_ARG_VOCAB] != model.vocab)
            return mist_args_fail(args, FLAVOR, err,
                                  "model.flavor is our %s, but --model says %s", preset,
                                  args->model.name);
    }
    if (!args->has_model)
        return mist_args_fail(
            args, FLAVOR, err,
            "model.name and model.flavor name no model that is known; "
            "expected llama2 7B, 13B or 70B, llama3 8B, 70B or 405B, or "
            "--model");
    if (args->v[MIST_ARG_FAMILY] == MIST_FAMILY_LLAMA)
        return MIST_OK;
    return mist_args_fail(args, MODEL, err, "torchtitan trains Llama's family, not %s's",
                          mist_family_words[(int)args->v[MIST_ARG_FAMILY]]);
}

static enum mist_status find_data_parallel(struct mist_args *args, struct mist_err *err)
{
    double replicates = args->v[REPLICATES], shards = args->v[SHARDS];
    double per =
        args->v[MIST_ARG_TP] * args->v[MIST_ARG_CP] * args->v[MIST_ARG_PP] * replicates;
    bool is_kept = args->v[RESHARDS] == RESHARD_NEVER ||
                   (args->v[RESHARDS] == RESHARD_DEFAULT && args->v[MIST_ARG_PP] > 1);

    if (shards == 0)
        return mist_args_fail(args, SHARDS, err, "%s is 0, expected -1, or 1 or more",
                              args->name[SHARDS]);
    if (shards < 0)
        shards = mist_args_is_open(args, MIST_ARG_DP) ? args->n_devices / per
                                                      : args->v[MIST_ARG_DP] / replicates;
    if (shards != floor(shards) || shards < 1)
        return mist_args_fail(args, SHARDS, err,
                              "%d devices are no whole number of times %g, the degrees "
                              "that are said",
                              (int)args->n_devices, per);
    if (shards > 1 && replicates > 1)
        return mist_args_fail(args, REPLICATES, err,
                              "%s %g with %g shards can't be expressed: weights are cut "
                              "over all of dp",
                              args->name[REPLICATES], replicates, shards);
    enum mist_status status =
        mist_args_derive(args, MIST_ARG_DP, shards * replicates, SHARDS, err);
    return status == MIST_OK ? mist_args_derive(args, MIST_ARG_ZERO,
                                                shards * args->v[MIST_ARG_CP] == 1 ? 0
                                                : is_kept                          ? 2
                                                                                   : 3,
                                                RESHARDS, err)
                             : status;
}

/* What a pipeline makes of the samples of a data-parallel rank: micro-batches of one, with the
 * names of before 2025 as many as there are stages. */
static double find_micro_batch(const struct mist_args *args, double local)
{
    const char *name = args->name[MIST_ARG_PP];
    bool is_old = name && strncmp(name, "parallelism.", strlen("parallelism.")) != 0;
    double n = mist_args_or(args, PIPE_COUNT, is_old ? args->v[MIST_ARG_PP] : local);

    return mist_args_or(args, PIPE_BATCH, local / n);
}

static enum mist_status find_batches(struct mist_args *args, struct mist_err *err)
{
    bool is_pipeline = args->v[MIST_ARG_PP] > 1;
    double local = mist_args_or(args, LOCAL_BATCH, 8), dp = args->v[MIST_ARG_DP];
    double micro = is_pipeline ? find_micro_batch(args, local) : local;
    double large = args->v[LARGE_BATCH] > 0 ? args->v[LARGE_BATCH] : local * dp;

    if (args->v[LARGE_BATCH] == 0)
        return mist_args_fail(
            args, LARGE_BATCH, err,
            "training.global_batch_size is 0, expected -1, or 1 or more");
    if (is_pipeline && large != local * dp)
        return mist_args_fail(
            args, LARGE_BATCH, err,
            "training.global_batch_size %g of %g each of dp %g can't be "
            "expressed: a pipeline runs empty once a step",
            large, local, dp);
    enum mist_status status = mist_args_derive(
        args, MIST_ARG_MICRO_BATCH, micro, is_pipeline ? PIPE_BATCH : LOCAL_BATCH, err);
    return status == MIST_OK
               ? mist_args_derive(args, MIST_ARG_GLOBAL_BATCH, large, LARGE_BATCH, err)
               : status;
}

static enum mist_status find_pipeline(struct mist_args *args, struct mist_err *err)
{
    double pp = args->v[MIST_ARG_PP], layers = args->v[MIST_ARG_LAYERS];
    double ends = mist_args_or(args, MIST_ARG_EMBEDDING_LAYERS, 0) +
                  mist_args_or(args, MIST_ARG_HEAD_LAYERS, 0);
    double per = mist_args_or(args, CHUNK_LAYERS, layers / pp / 2);

    if (pp == 1)
        args->v[SCHEDULE] = MIST_PIPELINE_1F1B;
    if (fmod(layers + ends, pp) != 0 && ends == 0)
        return mist_args_fail(args, MIST_ARG_PP, err,
                              "%g layers are not cut evenly into %g stages", layers, pp);
    if (args->v[SCHEDULE] != MIST_PIPELINE_INTERLEAVED)
        return mist_args_derive(args, MIST_ARG_PIPELINE, args->v[SCHEDULE], SCHEDULE,
                                err);
    if (fmod(layers / pp, per) != 0)
        return mist_args_fail(args, CHUNK_LAYERS, err,
                              "chunks of %g layers do not fill stages of %g", per,
                              layers / pp);
    enum mist_status status =
        mist_args_derive(args, MIST_ARG_CHUNKS, layers / pp / per, CHUNK_LAYERS, err);
    return status == MIST_OK ? mist_args_derive(args, MIST_ARG_PIPELINE,
                                                args->v[SCHEDULE], SCHEDULE, err)
                             : status;
}

/* Selective recomputation of every n-th block, which is the usual one, computes these again
 * as a whole. */
static enum mist_status find_recomputation(struct mist_args *args, struct mist_err *err)
{
    bool is_told = !args->line[MIST_ARG_RECOMPUTE] && !args->line[SELECTION] &&
                   !mist_args_is_open(args, MIST_ARG_RECOMPUTE);
    double pp = args->v[MIST_ARG_PP], n = args->v[SELECTION];
    double ends = mist_args_or(args, MIST_ARG_EMBEDDING_LAYERS, 0) +
                  mist_args_or(args, MIST_ARG_HEAD_LAYERS, 0);
    bool is_cut = mist_args_or(args, MIST_ARG_CHUNKS, 1) > 1 ||
                  args->v[MIST_ARG_PIPELINE] == MIST_PIPELINE_ZB_V;

    args->v[MIST_ARG_RECOMPUTE] =
        mist_args_or(args, MIST_ARG_RECOMPUTE, MIST_RECOMPUTE_SELECTIVE);
    if (args->v[MIST_ARG_RECOMPUTE] != MIST_RECOMPUTE_SELECTIVE || n == 0 || is_told)
        return MIST_OK;
    if ((is_cut || ends > 0) && n > 1)
        return mist_args_fail(args, SELECTION, err,
                              "selective_ac_option %g can't be expressed here: the same "
                              "number of blocks of each stage is computed again, its "
                              "first",
                              n);
    args->v[MIST_ARG_RECOMPUTE] = MIST_RECOMPUTE_FULL;
    args->v[MIST_ARG_RECOMPUTE_LAYERS] = floor(args->v[MIST_ARG_LAYERS] / pp / n);
    return MIST_OK;
}

/* A file that compiles makes a job of torchtitan one of the other profile. */
static enum mist_status find_profile(struct mist_args *args, struct mist_err *err)
{
    bool compiles = mist_args_or(args, COMPILES, 0) != 0;

    if (mist_args_is_open(args, COMPILES))
        return MIST_OK;
    if (!compiles && args->framework == MIST_FRAMEWORK_TORCHTITAN_COMPILED)
        return mist_args_fail(args, COMPILES, err,
                              "%s is false, but the framework is torchtitan-compiled",
                              args->name[COMPILES]);
    args->framework =
        compiles ? MIST_FRAMEWORK_TORCHTITAN_COMPILED : MIST_FRAMEWORK_TORCHTITAN;
    return MIST_OK;
}

static void note_gathers(struct mist_args *args)
{
    if (mist_args_or(args, MIST_ARG_FP8, 0) != 0 &&
        mist_args_or(args, FLOAT8_GATHERS, 0) != 0 && args->v[MIST_ARG_ZERO] > 0)
        snprintf(args->notes, sizeof args->notes,
                 "%s: weights are priced as if they were gathered in bf16, twice as many "
                 "bytes",
                 args->name[FLOAT8_GATHERS]);
}

static enum mist_status find_rest(struct mist_args *args, struct mist_err *err)
{
    double tp = args->v[MIST_ARG_TP], cp = args->v[MIST_ARG_CP];

    /* ParallelDims.seq_len_divisor */
    if (fmod(args->v[MIST_ARG_SEQ_LEN], cp > 1 ? 2 * cp * tp : tp) > 0)
        return mist_args_fail(
            args, cp > 1 ? MIST_ARG_CP : MIST_ARG_TP, err,
            "tensor_parallel_degree %g%s does not divide training.seq_len %g", tp,
            cp > 1 ? " times twice context_parallel_degree" : "",
            args->v[MIST_ARG_SEQ_LEN]);
    if (args->v[ALL_ON_HOST] != 0) {
        args->v[MIST_ARG_OFFLOAD_WEIGHTS] = args->v[MIST_ARG_OFFLOAD_GRADIENTS] =
            args->v[MIST_ARG_OFFLOAD_OPTIMIZER] = 1;
        args->v[MIST_ARG_UPDATES_ON_HOST] = 1;
    }
    note_gathers(args);
    return mist_args_derive(args, MIST_ARG_SEQUENCE_PARALLEL, tp > 1, MIST_ARG_TP, err);
}

/* -------------------------------------------------------------------------- to the file */

/* Whatever the model is called, its dimensions are a preset's or not. */
static void begin_model(struct mist_args *args, const struct mist_plan *plan,
                        struct mist_args_beside *beside)
{
    uint64_t own = mist_plan_fingerprint(&plan->model, &plan->job, 0);
    struct mist_model model;

    beside->model = true;
    for (int i = 0; i < N_PRESETS; i++)
        if (mist_model_load_preset(presets[i].preset, &model, NULL) == MIST_OK &&
            mist_plan_fingerprint(&model, &plan->job, 0) == own) {
            args->v[MODEL] = presets[i].model;
            args->v[FLAVOR] = presets[i].flavor;
            beside->model = false;
        }
}

static void begin_batches(struct mist_args *args)
{
    bool is_pipeline = args->v[MIST_ARG_PP] > 1;
    double micro = args->v[MIST_ARG_MICRO_BATCH], dp = args->v[MIST_ARG_DP];

    args->v[PIPE_BATCH] = is_pipeline ? micro : NAN;
    args->v[LOCAL_BATCH] = is_pipeline ? args->v[MIST_ARG_GLOBAL_BATCH] / dp : micro;
    args->v[LARGE_BATCH] = args->v[MIST_ARG_GLOBAL_BATCH];
}

static void begin_recomputation(struct mist_args *args)
{
    double n = args->v[MIST_ARG_RECOMPUTE_LAYERS];
    bool is_part = args->v[MIST_ARG_RECOMPUTE] == MIST_RECOMPUTE_FULL && n > 0;

    if (is_part)
        args->v[MIST_ARG_RECOMPUTE] = MIST_RECOMPUTE_SELECTIVE;
    args->v[SELECTION] = is_part
                             ? floor(args->v[MIST_ARG_LAYERS] / args->v[MIST_ARG_PP] / n)
                         : args->v[MIST_ARG_RECOMPUTE] == MIST_RECOMPUTE_SELECTIVE ? 0
                                                                                   : NAN;
}

static void begin(struct mist_args *args, const struct mist_plan *plan,
                  struct mist_args_beside *beside)
{
    bool is_sharded = args->v[MIST_ARG_ZERO] > 0;

    begin_model(args, plan, beside);
    args->v[REPLICATES] = is_sharded ? 1 : args->v[MIST_ARG_DP];
    args->v[SHARDS] = is_sharded ? args->v[MIST_ARG_DP] : 1;
    args->v[RESHARDS] = !is_sharded                   ? RESHARD_DEFAULT
                        : args->v[MIST_ARG_ZERO] == 3 ? RESHARD_ALWAYS
                                                      : RESHARD_NEVER;
    args->v[SCHEDULE] = args->v[MIST_ARG_PIPELINE];
    if (args->v[MIST_ARG_PIPELINE] == MIST_PIPELINE_INTERLEAVED)
        args->v[CHUNK_LAYERS] =
            args->v[MIST_ARG_LAYERS] / (args->v[MIST_ARG_PP] * args->v[MIST_ARG_CHUNKS]);
    if (args->v[MIST_ARG_PP] == 1)
        args->v[MIST_ARG_EMBEDDING_LAYERS] = args->v[MIST_ARG_HEAD_LAYERS] = NAN;
    args->v[ALL_ON_HOST] = args->v[MIST_ARG_OFFLOAD_WEIGHTS] > 0;
    if (plan->job.framework == MIST_FRAMEWORK_TORCHTITAN_COMPILED)
        args->v[COMPILES] = 1;
    begin_recomputation(args);
    begin_batches(args);
}

const struct mist_args_framework mist_args_torchtitan = {
    .rows = rows,
    .read = mist_arg_list_read_toml,
    .write = mist_arg_list_write_toml,
    .rules = {find_profile, find_model, find_data_parallel, find_batches, find_pipeline,
              find_recomputation, find_rest},
    .begin = begin,
};
