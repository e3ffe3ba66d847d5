/*
 * Keys of DeepSpeed's JSON, 0.3 to 0.17 (deepspeed/runtime/config.py, runtime/zero/config.py).
 * Model, sequence length, attention and dropout are the program's.
 */
#include "sim/framework_args/arg_table.h"

#include <math.h>

enum own {
    IS_BF16 = MIST_ARG_OWN,
    IS_FP16,
    MESSAGES, /* enum mist_dtype of gradients that are sent */
    OPTIMIZER_ON_HOST,
    OPTIMIZER_FRAC,
    WEIGHTS_ON_HOST,
    CUTS_INPUTS, /* kept inputs of blocks are cut over tensor-parallel ranks */
    INPUTS_ON_HOST,
    INTERVAL, /* blocks of which one input is kept */
};

/* clang-format off */
static const struct mist_arg_word
    places[] = {{"none", 0}, {"cpu", 1}, {NULL, 0}},
    formats[] = {
        {"fp32", MIST_DTYPE_FP32}, {"bf16", MIST_DTYPE_BF16}, {"bfp16", MIST_DTYPE_BF16}, {"fp16", MIST_DTYPE_FP16},
        {NULL, 0}};

#define BUCKETS "gradients and weights are sent module by module"
#define PARTS "tensor-parallel ranks send a part each to the next stage"
#define CUT "gradients are cut over ranks as they are summed, and weights gathered"
#define LENGTHS "a sequence's length changes while it trains"
#define COMPRESSED "other bytes are sent than those of gradients and weights"

static const struct mist_arg_row rows[] = {
    /* ranks and batches */
    MIST_ROW_COUNT("train_batch_size", MIST_ARG_GLOBAL_BATCH, 1, NAN),
    MIST_ROW_COUNT("train_micro_batch_size_per_gpu", MIST_ARG_MICRO_BATCH, 1, NAN),
    MIST_ROW_COUNT("gradient_accumulation_steps", MIST_ARG_ACCUMULATION, 1, NAN),
    MIST_ROW_COUNT("tensor_parallel.autotp_size", MIST_ARG_TP, 1, NAN),
    MIST_ROW_COUNT("pipeline.stages", MIST_ARG_PP, 1, NAN),
    MIST_ROW_REFUSED("pipeline.partition", "uniform", "stages are cut evenly"),
    MIST_ROW_COUNT("pipeline.activation_checkpoint_interval", INTERVAL, 0, NAN),
    MIST_ROW_LEFT("pipeline.seed_layers"),
    MIST_ROW_REFUSED("pipeline.pipe_partitioned", "true", PARTS), MIST_ROW_REFUSED("pipeline.grad_partitioned", "true", PARTS),
    MIST_ROW_REFUSED("sequence_parallel_size", "1", "sequences that are cut over ranks are not priced"),
    MIST_ROW_REFUSED("tensor_parallel.*", NULL, "autotp_size alone is"),
    /* number formats */
    MIST_ROW_WORD("bf16.enabled", IS_BF16, mist_arg_bools, NAN),
    MIST_ROW_ALIAS("bfloat16.enabled", MIST_ARG_WORD, IS_BF16, 0, mist_arg_bools),
    MIST_ROW_WORD("fp16.enabled", IS_FP16, mist_arg_bools, NAN),
    MIST_ROW_LEFT("fp16.*"), MIST_ROW_REFUSED("bf16.immediate_grad_update", "true", "not in the profile"),
    MIST_ROW_LEFT("bfloat16.loss_scale"), MIST_ROW_LEFT("bf16.loss_scale"),
    MIST_ROW_WORD("data_types.grad_accum_dtype", MIST_ARG_GRADIENT_DTYPE, formats, NAN),
    MIST_ROW_WORD("communication_data_type", MESSAGES, formats, NAN),
    MIST_ROW_REFUSED("fp32_allreduce", "false", "gradients are sent as they are kept"),
    MIST_ROW_REFUSED("amp.enabled", "false", "apex is not priced"), MIST_ROW_LEFT("amp.*"),
    MIST_ROW_REFUSED("torch_autocast.enabled", "false", "all is computed in one format"), MIST_ROW_LEFT("torch_autocast.*"),
    /* ZeRO */
    MIST_ROW_COUNT("zero_optimization.stage", MIST_ARG_ZERO, 0, 0),
    MIST_ROW_WORD("zero_optimization.overlap_comm", MIST_ARG_OVERLAPS, mist_arg_bools, NAN),
    MIST_ROW_WORD("zero_optimization.offload_optimizer.device", OPTIMIZER_ON_HOST, places, 0),
    MIST_ROW_ALIAS("zero_optimization.cpu_offload", MIST_ARG_WORD, OPTIMIZER_ON_HOST, 0, mist_arg_bools),
    MIST_ROW_REAL("zero_optimization.offload_optimizer.ratio", OPTIMIZER_FRAC, 1),
    MIST_ROW_WORD("zero_optimization.offload_param.device", WEIGHTS_ON_HOST, places, 0),
    MIST_ROW_ALIAS("zero_optimization.cpu_offload_params", MIST_ARG_WORD, WEIGHTS_ON_HOST, 0, mist_arg_bools),
    MIST_ROW_REFUSED("zero_optimization.offload_optimizer.super_offload", "false", "not in the profile"),
    MIST_ROW_LEFT_AS("zero_optimization.offload_optimizer.*", "how copies are made"),
    MIST_ROW_LEFT_AS("zero_optimization.offload_param.*", "how copies are made"),
    MIST_ROW_LEFT("zero_optimization.cpu_offload_use_pin_memory"),
    MIST_ROW_REFUSED("zero_optimization.zero_quantized_weights", "false", COMPRESSED),
    MIST_ROW_REFUSED("zero_optimization.zero_quantized_gradients", "false", COMPRESSED),
    MIST_ROW_REFUSED("zero_optimization.zero_quantized_nontrainable_weights", "false", COMPRESSED),
    MIST_ROW_REFUSED("zero_optimization.zero_hpz_partition_size", "1", "weights are cut over all of dp"),
    MIST_ROW_REFUSED("zero_optimization.mics_shard_size", "-1", "weights are cut over all of dp"),
    MIST_ROW_REFUSED("zero_optimization.mics_hierarchical_params_gather", "false", "weights are cut over all of dp"),
    MIST_ROW_REFUSED("zero_optimization.allgather_partitions", "true", CUT), MIST_ROW_LEFT_AS("zero_optimization.allgather_bucket_size", BUCKETS),
    MIST_ROW_REFUSED("zero_optimization.reduce_scatter", "true", CUT), MIST_ROW_REAL("zero_optimization.reduce_bucket_size", MIST_ARG_REDUCE_BUCKET, NAN),
    MIST_ROW_LEFT_AS("zero_optimization.contiguous_gradients", BUCKETS), MIST_ROW_LEFT_AS("zero_optimization.round_robin_gradients", BUCKETS),
    MIST_ROW_REAL("zero_optimization.sub_group_size", MIST_ARG_SUB_GROUP, NAN), MIST_ROW_LEFT_AS("zero_optimization.prefetch_bucket_size", BUCKETS),
    MIST_ROW_LEFT_AS("zero_optimization.stage3_*", BUCKETS), MIST_ROW_LEFT_AS("zero_optimization.max_*", BUCKETS),
    MIST_ROW_LEFT("zero_optimization.elastic_checkpoint"), MIST_ROW_LEFT("zero_optimization.load_from_fp32_weights"),
    MIST_ROW_LEFT("zero_optimization.gather_16bit_weights_on_model_save"), MIST_ROW_LEFT("zero_optimization.ignore_unused_parameters"),
    /* recomputation: whether, the program says, or mist-sim's --recompute */
    MIST_ROW_WORD("activation_checkpointing.partition_activations", CUTS_INPUTS, mist_arg_bools, 0),
    MIST_ROW_WORD("activation_checkpointing.cpu_checkpointing", INPUTS_ON_HOST, mist_arg_bools, 0),
    MIST_ROW_LEFT("activation_checkpointing.contiguous_memory_optimization"), MIST_ROW_LEFT("activation_checkpointing.number_checkpoints"),
    MIST_ROW_LEFT("activation_checkpointing.synchronize_checkpoint_boundary"), MIST_ROW_LEFT("activation_checkpointing.profile"),
    /* the optimizer */
    MIST_ROW_REFUSED("optimizer.type", "Adam|AdamW|adam|adamw|FusedAdam", "the optimizer is AdamW"),
    MIST_ROW_LEFT("optimizer.params.*"), MIST_ROW_LEFT("scheduler.*"), MIST_ROW_LEFT("gradient_clipping"),
    MIST_ROW_LEFT("prescale_gradients"), MIST_ROW_LEFT("gradient_predivide_factor"), MIST_ROW_LEFT("zero_allow_untested_optimizer"),
    MIST_ROW_LEFT("zero_force_ds_cpu_optimizer"), MIST_ROW_REFUSED("sparse_gradients", "false", "gradients are dense"),
    /* what makes another job of it */
    MIST_ROW_REFUSED("sparse_attention.*", NULL, "attention looks at all of a sequence"),
    MIST_ROW_REFUSED("curriculum_learning.enabled", "false", LENGTHS), MIST_ROW_LEFT("curriculum_learning.*"),
    MIST_ROW_REFUSED("data_efficiency.enabled", "false", LENGTHS), MIST_ROW_LEFT("data_efficiency.*"),
    MIST_ROW_REFUSED("progressive_layer_drop.enabled", "false", "all blocks run"), MIST_ROW_LEFT("progressive_layer_drop.*"),
    MIST_ROW_REFUSED("elasticity.enabled", "false", "the number of devices changes"), MIST_ROW_LEFT("elasticity.*"),
    MIST_ROW_REFUSED("autotuning.enabled", "false", "the autotuner chooses the rest"), MIST_ROW_LEFT("autotuning.*"),
    MIST_ROW_REFUSED("compression_training.*", NULL, "weights are not compressed"),
    MIST_ROW_REFUSED("quantize_training.*", NULL, "weights are not compressed"),
    MIST_ROW_REFUSED("eigenvalue.enabled", "false", "it computes more"), MIST_ROW_LEFT("eigenvalue.*"),
    MIST_ROW_REFUSED("hybrid_engine.enabled", "false", "it generates, too"), MIST_ROW_LEFT("hybrid_engine.*"),
    MIST_ROW_REFUSED("compile.*", NULL, "every operator is a kernel"),
    /* logs, checkpoints, disks that nothing is offloaded to */
    MIST_ROW_LEFT("steps_per_print"), MIST_ROW_LEFT("wall_clock_breakdown"), MIST_ROW_LEFT("dump_state"),
    MIST_ROW_LEFT("memory_breakdown"), MIST_ROW_LEFT("flops_profiler.*"), MIST_ROW_LEFT("comms_logger.*"), MIST_ROW_LEFT("tensorboard.*"),
    MIST_ROW_LEFT("wandb.*"), MIST_ROW_LEFT("csv_monitor.*"), MIST_ROW_LEFT("checkpoint.*"), MIST_ROW_LEFT("aio.*"),
    MIST_ROW_LEFT("seed"), MIST_ROW_LEFT("disable_allgather"), MIST_ROW_LEFT("local_rank"),
    {.name = NULL}};
/* clang-format on */

/* ------------------------------------------------------------------------ from the file */

/* That of weights. With "auto" the program chooses: the command line says it. */
static enum mist_status find_dtype(struct mist_args *args, struct mist_err *err)
{
    bool is_bf16 = args->v[IS_BF16] == 1, is_fp16 = args->v[IS_FP16] == 1;
    enum mist_dtype dtype = is_bf16   ? MIST_DTYPE_BF16
                            : is_fp16 ? MIST_DTYPE_FP16
                                      : MIST_DTYPE_FP32;

    if (is_bf16 && is_fp16)
        return mist_args_fail(args, IS_FP16, err,
                              "fp16.enabled contradicts bf16.enabled");
    for (int arg = IS_BF16; arg <= IS_FP16 && !is_bf16 && !is_fp16; arg++)
        if (args->line[arg] && mist_args_is_open(args, arg))
            return !mist_args_is_open(args, MIST_ARG_DTYPE)
                       ? MIST_OK
                       : mist_args_fail(args, arg, err,
                                        "%s is auto: the program chooses, expected "
                                        "--dtype",
                                        args->name[arg]);
    return mist_args_derive(args, MIST_ARG_DTYPE, dtype, is_bf16 ? IS_BF16 : IS_FP16,
                            err);
}

static enum mist_status find_formats(struct mist_args *args, struct mist_err *err)
{
    enum mist_status status = find_dtype(args, err);

    if (status != MIST_OK)
        return status;
    if (mist_args_is_open(args, MIST_ARG_GRADIENT_DTYPE)) {
        bool is_fp32 =
            args->v[MIST_ARG_DTYPE] == MIST_DTYPE_BF16 && args->v[MIST_ARG_ZERO] == 0;
        args->v[MIST_ARG_GRADIENT_DTYPE] =
            is_fp32 ? MIST_DTYPE_FP32 : args->v[MIST_ARG_DTYPE];
    }
    if (mist_args_is_open(args, MESSAGES) ||
        args->v[MESSAGES] == args->v[MIST_ARG_GRADIENT_DTYPE])
        return MIST_OK;
    return mist_args_fail(
        args, MESSAGES, err,
        "communication_data_type can't be expressed: gradients are sent "
        "as they are kept, in %s",
        mist_dtype_words[(int)args->v[MIST_ARG_GRADIENT_DTYPE]]);
}

/* A global batch alone is one micro-batch of each rank. */
static enum mist_status find_batches(struct mist_args *args, struct mist_err *err)
{
    bool is_alone = !mist_args_is_open(args, MIST_ARG_GLOBAL_BATCH) &&
                    mist_args_is_open(args, MIST_ARG_MICRO_BATCH) &&
                    mist_args_is_open(args, MIST_ARG_ACCUMULATION);

    if (is_alone && args->line[MIST_ARG_MICRO_BATCH])
        return mist_args_fail(args, MIST_ARG_MICRO_BATCH, err,
                              "%s is auto: the program chooses, expected --micro-batch",
                              args->name[MIST_ARG_MICRO_BATCH]);
    if (is_alone)
        args->v[MIST_ARG_ACCUMULATION] = 1;
    return MIST_OK;
}

/* "auto" is transformers' to choose (integrations/deepspeed.py); groups of 0 are of a tensor
 * each. */
static void find_pieces(struct mist_args *args)
{
    double hidden = args->v[MIST_ARG_HIDDEN];

    if (args->line[MIST_ARG_REDUCE_BUCKET] &&
        mist_args_is_open(args, MIST_ARG_REDUCE_BUCKET))
        args->v[MIST_ARG_REDUCE_BUCKET] = hidden * hidden;
    if (args->v[MIST_ARG_SUB_GROUP] == 0)
        args->v[MIST_ARG_SUB_GROUP] = 1;
}

static enum mist_status find_offloads(struct mist_args *args, struct mist_err *err)
{
    double zero = args->v[MIST_ARG_ZERO];
    double optimizer_frac =
        zero == 3 ? args->v[OPTIMIZER_FRAC] : 1; /* below 3 no ratio */
    bool is_full = mist_args_or(args, MIST_ARG_RECOMPUTE, 0) == MIST_RECOMPUTE_FULL;

    if (args->v[OPTIMIZER_ON_HOST] != 0 && zero < 1)
        return mist_args_fail(args, OPTIMIZER_ON_HOST, err,
                              "offload_optimizer needs zero_optimization.stage 1 to 3");
    if (args->v[OPTIMIZER_ON_HOST] != 0) { /* gradients follow the state they are for */
        args->v[MIST_ARG_OFFLOAD_OPTIMIZER] = args->v[MIST_ARG_OFFLOAD_GRADIENTS] =
            optimizer_frac;
        args->v[MIST_ARG_UPDATES_ON_HOST] = optimizer_frac > 0;
    }
    if (args->v[WEIGHTS_ON_HOST] != 0 && zero != 3)
        return mist_args_fail(args, WEIGHTS_ON_HOST, err,
                              "offload_param needs zero_optimization.stage 3");
    args->v[MIST_ARG_OFFLOAD_WEIGHTS] = args->v[WEIGHTS_ON_HOST];
    if (args->v[CUTS_INPUTS] != 0 && mist_args_or(args, MIST_ARG_TP, 1) > 1)
        return mist_args_fail(args, CUTS_INPUTS, err,
                              "activation_checkpointing.partition_activations can't be "
                              "expressed: inputs of blocks are kept whole");
    if (args->v[INPUTS_ON_HOST] != 0 && !is_full)
        return mist_args_fail(args, INPUTS_ON_HOST, err,
                              "activation_checkpointing.cpu_checkpointing needs full "
                              "recomputation (--recompute full)");
    args->v[MIST_ARG_OFFLOAD_ACTIVATIONS] = args->v[INPUTS_ON_HOST];
    return MIST_OK;
}

static enum mist_status finish(struct mist_args *args, struct mist_err *err)
{
    double zero = args->v[MIST_ARG_ZERO];
    enum mist_status status = MIST_OK;

    if (zero > 3)
        return mist_args_fail(args, MIST_ARG_ZERO, err,
                              "zero_optimization.stage is %g, expected 0 to 3", zero);
    if (mist_args_or(args, MIST_ARG_PP, 1) > 1 && zero > 1)
        return mist_args_fail(args, MIST_ARG_ZERO, err,
                              "a pipeline goes with zero_optimization.stage 0 or 1");
    if (mist_args_or(args, MIST_ARG_TP, 1) > 1 && zero > 2)
        return mist_args_fail(
            args, MIST_ARG_ZERO, err,
            "tensor parallelism goes with zero_optimization.stage 0 to 2");
    if (mist_args_or(args, INTERVAL, 0) > 1)
        return mist_args_fail(args, INTERVAL, err,
                              "pipeline.activation_checkpoint_interval %g can't be "
                              "expressed: the input of every block is kept, expected 1",
                              args->v[INTERVAL]);
    if (!mist_args_is_open(args, INTERVAL))
        status = mist_args_derive(args, MIST_ARG_RECOMPUTE,
                                  args->v[INTERVAL] * MIST_RECOMPUTE_FULL, INTERVAL, err);
    if (fmod(mist_args_or(args, MIST_ARG_LAYERS, 0),
             mist_args_or(args, MIST_ARG_PP, 1)) != 0)
        return mist_args_fail(args, MIST_ARG_PP, err,
                              "pipeline.stages %g do not divide the model's %g blocks",
                              args->v[MIST_ARG_PP], args->v[MIST_ARG_LAYERS]);
    if (status == MIST_OK)
        status = find_batches(args, err);
    if (status == MIST_OK)
        status = find_formats(args, err);
    find_pieces(args);
    return status == MIST_OK ? find_offloads(args, err) : status;
}

/* -------------------------------------------------------------------------- to the file */

static void begin(struct mist_args *args, const struct mist_plan *plan,
                  struct mist_args_beside *beside)
{
    (void)plan;
    *beside =
        (struct mist_args_beside){.model = true, .seq_len = true, .attention = true};
    if (args->v[MIST_ARG_DTYPE] == MIST_DTYPE_BF16)
        args->v[IS_BF16] = 1;
    if (args->v[MIST_ARG_DTYPE] == MIST_DTYPE_FP16)
        args->v[IS_FP16] = 1;
    args->v[INTERVAL] = args->v[MIST_ARG_RECOMPUTE] == MIST_RECOMPUTE_FULL;
    args->v[OPTIMIZER_ON_HOST] = args->v[MIST_ARG_OFFLOAD_OPTIMIZER] > 0;
    args->v[OPTIMIZER_FRAC] =
        args->v[OPTIMIZER_ON_HOST] != 0 ? args->v[MIST_ARG_OFFLOAD_OPTIMIZER] : NAN;
    args->v[WEIGHTS_ON_HOST] = args->v[MIST_ARG_OFFLOAD_WEIGHTS] > 0;
    args->v[INPUTS_ON_HOST] = args->v[MIST_ARG_OFFLOAD_ACTIVATIONS] > 0;
}

const struct mist_args_framework mist_args_deepspeed = {
    .rows = rows,
    .read = mist_arg_list_read_json,
    .write = mist_arg_list_write_json,
    .rules = {finish},
    .begin = begin,
};
