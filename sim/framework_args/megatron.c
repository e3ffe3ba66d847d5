/*
 * Arguments of Megatron-LM's pretrain_gpt.py, from the releases with --checkpoint-activations
 * (2020) to core 0.15 (megatron/training/arguments.py), and of torchrun in front of it.
 */
#include "sim/framework_args/arg_table.h"
#include "sim/model/framework.h"

#include <math.h>

enum own {
    POSITIONS = MIST_ARG_OWN, /* 1: RoPE */
    MAX_POSITIONS,            /* that GPT's learn */
    NORM,                     /* 1: RMSNorm */
    SWIGLU,
    SQUARED_RELU,
    ROTARY_PART, /* of a head */
    USES_GROUPS, /* grouped-query attention, of so many groups: */
    GROUPS,
    TOKENIZER,    /* its vocabulary; what follows below 0 */
    PAD_MULTIPLE, /* the vocabulary is padded to that times tp */
    CHUNK_LAYERS, /* blocks of a chunk of an interleaved pipeline */
    BACKEND,      /* enum mist_attention */
    USES_FLASH,
    IMPLEMENTATION, /* enum mist_attention that goes with it */
    PLAIN_SOFTMAX,
    FUSES_LOSS,
    HIDDEN_DROPOUT,
    ATTENTION_DROPOUT,
    GRANULARITY, /* enum mist_args_recompute */
    METHOD,      /* 1: block */
    METHOD_LAYERS,
    OFFLOADS, /* the optimizer, of which a fraction: */
    OFFLOAD_FRAC,
    SUMS_BESIDE, /* gradients are summed beside the last backward */
    GATHERS_BESIDE,
};

/* clang-format off */
enum { FROM_VOCAB_SIZE = -1, ONE_MORE = -2 };
static const struct mist_arg_word
    positions[] = {{"learned_absolute", 0}, {"rope", 1}, {NULL, 0}},
    norms[] = {{"LayerNorm", 0}, {"RMSNorm", 1}, {NULL, 0}},
    eight_bits[] = {{"hybrid", 1}, {"e4m3", 1}, {NULL, 0}},
    tokenizers[] = {
        {"GPT2BPETokenizer", 50257}, {"Llama2Tokenizer", 32000},
        {"SentencePieceTokenizer", FROM_VOCAB_SIZE}, {"GPTSentencePieceTokenizer", FROM_VOCAB_SIZE},
        {"HuggingFaceTokenizer", FROM_VOCAB_SIZE}, {"TikTokenizer", FROM_VOCAB_SIZE},
        {"Llama3Tokenizer", FROM_VOCAB_SIZE}, {"SFTTokenizer", FROM_VOCAB_SIZE},
        {"NullTokenizer", ONE_MORE}, {NULL, 0}},
    backends[] = {
        {"flash", MIST_ATTENTION_FLASH}, {"auto", MIST_ATTENTION_FLASH}, {"fused", MIST_ATTENTION_FLASH},
        {"local", MIST_ATTENTION_FUSED}, {"unfused", MIST_ATTENTION_FUSED}, {NULL, 0}},
    implementations[] = {
        {"local", MIST_ATTENTION_FUSED}, {"transformer_engine", MIST_ATTENTION_FLASH}, {NULL, 0}},
    granularities[] = {{"selective", MIST_RECOMPUTE_SELECTIVE}, {"full", MIST_RECOMPUTE_FULL}, {NULL, 0}},
    losses[] = {{"native", 0}, {"te", 1}, {NULL, 0}},
    methods[] = {{"uniform", 0}, {"block", 1}, {NULL, 0}};

#define EXPERTS "mixtures of experts are not priced"
#define CONTEXT "keys and values of context-parallel ranks go around in a ring"
#define EIGHT_BITS "products of all blocks have floats of 8 bits, and nothing else has"
#define FUSED "the profile counts Megatron-LM's fused kernels"
#define OTHER_BLOCK "it makes other blocks than those of GPT and Llama"
#define STAGES "stages are cut evenly, or with embedding and loss as a block each"

static const struct mist_arg_row rows[] = {
    /* torchrun */
    {.name = "--nproc_per_node", .kind = MIST_ARG_COUNT, .arg = MIST_ARG_NODE_DEVICES, .min = 1, .absent = NAN,
     .is_launcher = true},
    {.name = "--nnodes", .kind = MIST_ARG_COUNT, .arg = MIST_ARG_NODES, .min = 1, .absent = NAN, .is_launcher = true},
    MIST_ROW_ALIAS("--nproc-per-node", MIST_ARG_COUNT, MIST_ARG_NODE_DEVICES, 1, NULL),
    MIST_ROW_LEFT("--node_rank"), MIST_ROW_LEFT("--node-rank"),
    MIST_ROW_LEFT("--master*"), MIST_ROW_LEFT("--rdzv*"), MIST_ROW_LEFT("--standalone"), MIST_ROW_LEFT("--max_restarts"),
    /* ranks */
    MIST_ROW_COUNT("--tensor-model-parallel-size", MIST_ARG_TP, 1, 1),
    MIST_ROW_ALIAS("--model-parallel-size", MIST_ARG_COUNT, MIST_ARG_TP, 1, NULL),
    MIST_ROW_COUNT("--pipeline-model-parallel-size", MIST_ARG_PP, 1, 1),
    MIST_ROW_COUNT("--num-layers-per-virtual-pipeline-stage", CHUNK_LAYERS, 1, NAN),
    MIST_ROW_ALIAS("--num-virtual-stages-per-pipeline-rank", MIST_ARG_COUNT, MIST_ARG_CHUNKS, 1, NULL),
    MIST_ROW_FLAG("--account-for-embedding-in-pipeline-split", MIST_ARG_EMBEDDING_LAYERS, 1, 0),
    MIST_ROW_FLAG("--account-for-loss-in-pipeline-split", MIST_ARG_HEAD_LAYERS, 1, 0),
    MIST_ROW_FLAG("--sequence-parallel", MIST_ARG_SEQUENCE_PARALLEL, 1, 0),
    MIST_ROW_FLAG("--use-distributed-optimizer", MIST_ARG_ZERO, 1, 0),
    MIST_ROW_COUNT("--context-parallel-size", MIST_ARG_CP, 1, 1),
    MIST_ROW_REFUSED("--cp-comm-type", "p2p", CONTEXT),
    MIST_ROW_REFUSED("--hierarchical-context-parallel-sizes", NULL, CONTEXT),
    MIST_ROW_REFUSED("--decoder-first-pipeline-num-layers", NULL, STAGES),
    MIST_ROW_REFUSED("--decoder-last-pipeline-num-layers", NULL, STAGES),
    MIST_ROW_REFUSED("--pipeline-model-parallel-layout", NULL, STAGES),
    MIST_ROW_REFUSED("--pipeline-model-parallel-split-rank", NULL, "models with an encoder are not priced"),
    MIST_ROW_REFUSED("--microbatch-group-size-per-virtual-pipeline-stage", NULL, "groups are of as many as there are stages"),
    MIST_ROW_REFUSED("--use-tp-pp-dp-mapping", NULL, "ranks are numbered tensor parallel first, pipeline last"),
    MIST_ROW_REFUSED("--standalone-embedding-stage", NULL, STAGES),
    MIST_ROW_REFUSED("--use-custom-fsdp", NULL, "its units are not those of the profile"),
    MIST_ROW_REFUSED("--use-megatron-fsdp", NULL, "its units are not those of the profile"),
    MIST_ROW_REFUSED("--use-torch-fsdp2", NULL, "the profile has Megatron-LM's own data parallelism"),
    MIST_ROW_REFUSED("--data-parallel-sharding-strategy", "no_shard", "it belongs to Megatron-FSDP"),
    MIST_ROW_REFUSED("--num-distributed-optimizer-instances", "1", "the optimizer is sharded over all of dp"),
    MIST_ROW_FLAG("--tp-comm-overlap", MIST_ARG_CUTS_PRODUCTS, 1, NAN),
    MIST_ROW_FLAG("--overlap-grad-reduce", SUMS_BESIDE, 1, 0),
    MIST_ROW_FLAG("--overlap-param-gather", GATHERS_BESIDE, 1, 0),
    MIST_ROW_REFUSED("--defer-embedding-wgrad-compute", NULL, "not in the profile"),
    /* batches */
    MIST_ROW_COUNT("--micro-batch-size", MIST_ARG_MICRO_BATCH, 1, NAN),
    MIST_ROW_ALIAS("--batch-size", MIST_ARG_COUNT, MIST_ARG_MICRO_BATCH, 1, NULL),
    MIST_ROW_COUNT("--global-batch-size", MIST_ARG_GLOBAL_BATCH, 1, NAN),
    MIST_ROW_LEFT_AS("--rampup-batch-size", "the price is that of the full batch"),
    MIST_ROW_COUNT("--seq-length", MIST_ARG_SEQ_LEN, 1, NAN),
    /* the model */
    MIST_ROW_COUNT("--num-layers", MIST_ARG_LAYERS, 1, NAN),
    MIST_ROW_COUNT("--hidden-size", MIST_ARG_HIDDEN, 1, NAN),
    MIST_ROW_COUNT("--num-attention-heads", MIST_ARG_HEADS, 1, NAN),
    MIST_ROW_FLAG("--group-query-attention", USES_GROUPS, 1, 0),
    MIST_ROW_COUNT("--num-query-groups", GROUPS, 1, NAN),
    MIST_ROW_COUNT("--kv-channels", MIST_ARG_HEAD_DIM, 1, NAN),
    MIST_ROW_COUNT("--ffn-hidden-size", MIST_ARG_FFN, 1, NAN),
    MIST_ROW_WORD("--position-embedding-type", POSITIONS, positions, NAN),
    MIST_ROW_ALIAS("--use-rotary-position-embeddings", MIST_ARG_FLAG, POSITIONS, 1, NULL),
    MIST_ROW_COUNT("--max-position-embeddings", MAX_POSITIONS, 1, NAN),
    MIST_ROW_REAL("--rotary-base", MIST_ARG_ROPE_THETA, NAN),
    MIST_ROW_REAL("--rotary-percent", ROTARY_PART, 1),
    MIST_ROW_REFUSED("--rotary-interleaved", NULL, "pairs of RoPE are halves apart"),
    MIST_ROW_LEFT_AS("--no-position-embedding", "of RoPE"), MIST_ROW_LEFT("--rope-scaling-factor"),
    MIST_ROW_LEFT_AS("--use-rope-scaling", "it changes no shape"), MIST_ROW_LEFT("--rotary-seq-len-interpolation-factor"),
    MIST_ROW_WORD("--normalization", NORM, norms, 0),
    MIST_ROW_REAL("--norm-epsilon", MIST_ARG_EPSILON, 1e-5),
    MIST_ROW_ALIAS("--layernorm-epsilon", MIST_ARG_REAL, MIST_ARG_EPSILON, 0, NULL),
    MIST_ROW_LEFT_AS("--apply-layernorm-1p", "another start of the same norm"),
    MIST_ROW_FLAG("--swiglu", SWIGLU, 1, 0),
    MIST_ROW_FLAG("--squared-relu", SQUARED_RELU, 1, 0),
    MIST_ROW_FLAG("--disable-bias-linear", MIST_ARG_HAS_BIAS, 0, 1),
    MIST_ROW_FLAG("--untie-embeddings-and-output-weights", MIST_ARG_TIES, 0, 1),
    MIST_ROW_MODEL("--tokenizer-type", TOKENIZER, tokenizers),
    MIST_ROW_COUNT("--vocab-size", MIST_ARG_VOCAB, 1, NAN),
    MIST_ROW_COUNT("--make-vocab-size-divisible-by", PAD_MULTIPLE, 1, 128),
    MIST_ROW_REFUSED("--padded-vocab-size", NULL, "--vocab-size and --make-vocab-size-divisible-by say it"),
    MIST_ROW_REFUSED("--add-qkv-bias", NULL, OTHER_BLOCK), MIST_ROW_REFUSED("--qk-layernorm", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--geglu", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--quick-geglu", NULL, OTHER_BLOCK), MIST_ROW_REFUSED("--openai-gelu", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--onnx-safe", NULL, OTHER_BLOCK), MIST_ROW_REFUSED("--spec", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--multi-latent-attention", NULL, OTHER_BLOCK), MIST_ROW_REFUSED("--mtp-num-layers", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--window-size", NULL, "attention looks at all of a sequence"),
    MIST_ROW_REFUSED("--window-attn-skip-freq", NULL, "attention looks at all of a sequence"),
    MIST_ROW_REFUSED("--softmax-type", "vanilla", OTHER_BLOCK), MIST_ROW_REFUSED("--linear-attention-*", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--apply-residual-connection-post-layernorm", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--retro-*", NULL, "retrieval is not priced"),
    MIST_ROW_REFUSED("--hybrid-*", NULL, OTHER_BLOCK), MIST_ROW_REFUSED("--is-hybrid-model", NULL, OTHER_BLOCK),
    MIST_ROW_REFUSED("--num-experts", NULL, EXPERTS), MIST_ROW_REFUSED("--moe-*", NULL, EXPERTS),
    MIST_ROW_REFUSED("--expert-model-parallel-size", "1", EXPERTS),
    MIST_ROW_REFUSED("--expert-tensor-parallel-size", "1", EXPERTS),
    /* dropout and kernels */
    MIST_ROW_REAL("--hidden-dropout", HIDDEN_DROPOUT, 0.1),
    MIST_ROW_REAL("--attention-dropout", ATTENTION_DROPOUT, 0.1),
    MIST_ROW_WORD("--transformer-impl", IMPLEMENTATION, implementations, NAN),
    MIST_ROW_FLAG("--use-flash-attn", USES_FLASH, 1, 0),
    MIST_ROW_WORD("--attention-backend", BACKEND, backends, NAN),
    MIST_ROW_FLAG("--no-masked-softmax-fusion", PLAIN_SOFTMAX, 1, 0),
    MIST_ROW_REFUSED("--no-bias-gelu-fusion", NULL, FUSED), MIST_ROW_REFUSED("--no-bias-swiglu-fusion", NULL, FUSED),
    MIST_ROW_REFUSED("--no-bias-dropout-fusion", NULL, FUSED), MIST_ROW_REFUSED("--no-persist-layer-norm", NULL, FUSED),
    MIST_ROW_REFUSED("--no-gradient-accumulation-fusion", NULL, FUSED),
    MIST_ROW_REFUSED("--no-async-tensor-model-parallel-allreduce", NULL, "the profile overlaps them"),
    MIST_ROW_REFUSED("--no-rope-fusion", NULL, "RoPE is priced as one kernel"),
    MIST_ROW_FLAG("--cross-entropy-loss-fusion", FUSES_LOSS, 1, 0),
    MIST_ROW_WORD("--cross-entropy-fusion-impl", MIST_ARG_FUSED_LOSS, losses, NAN),
    MIST_ROW_FLAG("--fp16-lm-cross-entropy", MIST_ARG_FP16_LOSS, 1, NAN),
    MIST_ROW_REFUSED("--enable-cuda-graph", NULL, "every launch has its price"),
    MIST_ROW_REFUSED("--cuda-graph-impl", "none", "every launch has its price"),
    MIST_ROW_REFUSED("--external-cuda-graph", NULL, "every launch has its price"),
    /* recomputation */
    MIST_ROW_WORD("--recompute-granularity", GRANULARITY, granularities, 0),
    MIST_ROW_ALIAS("--recompute-activations", MIST_ARG_FLAG, GRANULARITY, MIST_RECOMPUTE_SELECTIVE, NULL),
    MIST_ROW_ALIAS("--checkpoint-activations", MIST_ARG_FLAG, GRANULARITY, MIST_RECOMPUTE_FULL, NULL),
    MIST_ROW_WORD("--recompute-method", METHOD, methods, NAN),
    MIST_ROW_ALIAS("--activations-checkpoint-method", MIST_ARG_WORD, METHOD, 0, methods),
    MIST_ROW_COUNT("--recompute-num-layers", METHOD_LAYERS, 1, NAN),
    MIST_ROW_ALIAS("--checkpoint-num-layers", MIST_ARG_COUNT, METHOD_LAYERS, 1, NULL),
    MIST_ROW_ALIAS("--activations-checkpoint-num-layers", MIST_ARG_COUNT, METHOD_LAYERS, 1, NULL),
    MIST_ROW_REFUSED("--recompute-modules", "core_attn", "selective recomputation is that of attention"),
    MIST_ROW_REFUSED("--distribute-saved-activations", NULL, "inputs of blocks are kept whole"),
    MIST_ROW_REFUSED("--distribute-checkpointed-activations", NULL, "inputs of blocks are kept whole"),
    MIST_ROW_REFUSED("--cpu-offloading*", NULL, "offloaded activations are a fraction, not a number of layers"),
    /* number formats, optimizer */
    MIST_ROW_FLAG("--bf16", MIST_ARG_DTYPE, MIST_DTYPE_BF16, NAN),
    MIST_ROW_FLAG("--fp16", MIST_ARG_DTYPE, MIST_DTYPE_FP16, NAN),
    MIST_ROW_FLAG("--grad-reduce-in-bf16", MIST_ARG_GRADIENT_DTYPE, MIST_DTYPE_BF16, NAN),
    MIST_ROW_ALIAS("--accumulate-allreduce-grads-in-fp32", MIST_ARG_FLAG, MIST_ARG_GRADIENT_DTYPE, MIST_DTYPE_FP32, NULL),
    MIST_ROW_FLAG("--optimizer-cpu-offload", OFFLOADS, 1, 0),
    MIST_ROW_REAL("--optimizer-offload-fraction", OFFLOAD_FRAC, 1),
    MIST_ROW_LEFT_AS("--use-precision-aware-optimizer", "its formats are said apart"),
    MIST_ROW_REFUSED("--overlap-cpu-optimizer-d2h-h2d", NULL, "not in the profile"),
    MIST_ROW_REFUSED("--exp-avg-dtype", "fp32", "the optimizer's state is fp32"),
    MIST_ROW_REFUSED("--exp-avg-sq-dtype", "fp32", "the optimizer's state is fp32"),
    MIST_ROW_REFUSED("--main-params-dtype", "fp32", "the optimizer's state is fp32"),
    MIST_ROW_REFUSED("--main-grads-dtype", "fp32", "--grad-reduce-in-bf16 says it"),
    MIST_ROW_REFUSED("--optimizer", "adam", "the optimizer is Adam"),
    MIST_ROW_REFUSED("--cpu-optimizer", NULL, "it belongs to DeepSpeed"),
    MIST_ROW_WORD("--fp8-format", MIST_ARG_FP8, eight_bits, NAN),
    MIST_ROW_REFUSED("--fp8-recipe", "delayed|tensorwise", "scales are those of whole tensors"),
    MIST_ROW_LEFT("--fp8-margin"), MIST_ROW_LEFT("--fp8-interval"), MIST_ROW_LEFT("--fp8-amax-history-len"),
    MIST_ROW_LEFT("--fp8-amax-compute-algo"),
    MIST_ROW_REFUSED("--fp8-*", NULL, EIGHT_BITS), MIST_ROW_REFUSED("--fp4-*", NULL, EIGHT_BITS),
    MIST_ROW_REFUSED("--first-last-layers-bf16", NULL, EIGHT_BITS),
    MIST_ROW_REFUSED("--deepspeed*", NULL, "its JSON is read by --framework deepspeed"),
    MIST_ROW_REFUSED("--zero-stage", NULL, "the JSON of DeepSpeed says it"),
    MIST_ROW_REFUSED("--use-legacy-models", NULL, "not in the profile"),
    MIST_ROW_REFUSED("--delay-wgrad-compute", NULL, "weights' gradients follow those of activations"),
    MIST_ROW_REFUSED("--fine-grained-activation-offloading", NULL, "offloaded activations are a fraction of all"),
    MIST_ROW_REFUSED("--batch-invariant-mode", NULL, "its kernels are not those of the profile"),
    MIST_ROW_REFUSED("--use-sharp", NULL, "links are priced as they are without"),
    MIST_ROW_REFUSED("--use-nccl-ub", NULL, "links are priced as they are without"),
    MIST_ROW_REFUSED("--yaml-cfg", NULL, "a command line is read"),
    /* what the profile does whether it is said or not */
    MIST_ROW_LEFT_AS("--overlap-param-gather-with-optimizer-step", "the profile gathers weights beside the first forward"),
    MIST_ROW_FLAG("--no-overlap-p2p-communication", MIST_ARG_OVERLAPS, 0, NAN),
    MIST_ROW_ALIAS("--overlap-p2p-communication", MIST_ARG_FLAG, MIST_ARG_OVERLAPS, 1, NULL),
    MIST_ROW_LEFT_AS("--no-contiguous-buffers-in-local-ddp", "buffers are not priced"),
    MIST_ROW_LEFT_AS("--ddp-bucket-size", "gradients are summed module by module"),
    MIST_ROW_LEFT_AS("--ddp-num-buckets", "gradients are summed module by module"),
    MIST_ROW_LEFT_AS("--ddp-average-in-collective", "as many bytes"),
    MIST_ROW_LEFT("--ddp-pad-buckets-for-high-nccl-busbw"), MIST_ROW_LEFT("--high-priority-stream-groups"),
    MIST_ROW_LEFT("--nccl-communicator-config-path"), MIST_ROW_LEFT("--tp-comm-bootstrap-backend"),
    MIST_ROW_LEFT_AS("--DDP-impl", "both sum gradients beside the last backward"),
    MIST_ROW_LEFT("--use-mcore-models"), MIST_ROW_LEFT("--use-cpu-initialization"), MIST_ROW_LEFT("--distributed-backend"),
    MIST_ROW_LEFT("--distributed-timeout-minutes"), MIST_ROW_LEFT("--attention-softmax-in-fp32"),
    MIST_ROW_LEFT("--apply-query-key-layer-scaling"), MIST_ROW_LEFT("--no-query-key-layer-scaling"),
    MIST_ROW_LEFT("--calculate-per-token-loss"), MIST_ROW_LEFT("--no-check-for-nan-in-loss-and-grad"),
    MIST_ROW_LEFT("--check-for-nan-in-loss-and-grad"),
    /* data, schedule of the learning rate, checkpoints, logs */
    MIST_ROW_LEFT("--data-path"), MIST_ROW_LEFT("--data-cache-path"), MIST_ROW_LEFT("--data-impl"), MIST_ROW_LEFT("--mock-data"),
    MIST_ROW_LEFT("--data-args-path"), MIST_ROW_LEFT("--train-data-path"), MIST_ROW_LEFT("--valid-data-path"),
    MIST_ROW_LEFT("--vocab-file"), MIST_ROW_LEFT("--merge-file"), MIST_ROW_LEFT("--split"), MIST_ROW_LEFT("--num-workers"),
    MIST_ROW_LEFT("--tokenizer-model"), MIST_ROW_LEFT("--tiktoken-*"), MIST_ROW_LEFT("--no-create-attention-mask-in-dataloader"),
    MIST_ROW_LEFT("--no-mmap-bin-files"), MIST_ROW_LEFT("--reset-position-ids"), MIST_ROW_LEFT("--eod-mask-loss"),
    MIST_ROW_REFUSED("--reset-attention-mask", NULL, "attention looks at all of a sequence"),
    MIST_ROW_LEFT("--train-iters"), MIST_ROW_LEFT("--train-samples"), MIST_ROW_LEFT("--train-tokens"), MIST_ROW_LEFT("--seed"),
    MIST_ROW_LEFT("--lr"), MIST_ROW_LEFT("--lr-*"), MIST_ROW_LEFT("--min-lr"), MIST_ROW_LEFT("--decoupled-*"),
    MIST_ROW_REFUSED("--use-checkpoint-args", NULL, "the model is in a checkpoint"),
    MIST_ROW_LEFT("--override-*"), MIST_ROW_LEFT("--use-checkpoint-*"), MIST_ROW_LEFT("--weight-decay*"),
    MIST_ROW_LEFT("--start-weight-decay"), MIST_ROW_LEFT("--end-weight-decay"), MIST_ROW_LEFT("--adam-*"),
    MIST_ROW_LEFT("--clip-grad"), MIST_ROW_LEFT("--init-method*"), MIST_ROW_LEFT("--loss-scale*"),
    MIST_ROW_LEFT("--initial-loss-scale"), MIST_ROW_LEFT("--min-loss-scale"), MIST_ROW_LEFT("--hysteresis"),
    MIST_ROW_LEFT("--save"), MIST_ROW_LEFT("--save-interval"), MIST_ROW_LEFT("--load"), MIST_ROW_LEFT("--no-load-*"),
    MIST_ROW_LEFT("--no-save-*"), MIST_ROW_LEFT("--finetune"), MIST_ROW_LEFT("--ckpt-*"), MIST_ROW_LEFT("--dist-ckpt-*"),
    MIST_ROW_LEFT("--async-save"), MIST_ROW_LEFT("--use-dist-ckpt"), MIST_ROW_LEFT("--auto-detect-ckpt-format"),
    MIST_ROW_LEFT("--exit-*"), MIST_ROW_LEFT("--log-*"), MIST_ROW_LEFT("--eval-*"), MIST_ROW_LEFT("--tensorboard-*"),
    MIST_ROW_LEFT("--wandb-*"), MIST_ROW_LEFT("--profile*"), MIST_ROW_LEFT("--use-pytorch-profiler"), MIST_ROW_LEFT("--timing-*"),
    MIST_ROW_LEFT("--manual-gc*"), MIST_ROW_LEFT("--empty-unused-memory-level"), MIST_ROW_LEFT("--no-data-sharding"),
    MIST_ROW_LEFT("--logging-level"), MIST_ROW_LEFT("--local-rank"),
    {.name = NULL}};
/* clang-format on */

/* ------------------------------------------------------------------------ from the file */

/* Those whose blocks arguments can say. */
static const enum mist_family families[] = {MIST_FAMILY_GPT, MIST_FAMILY_LLAMA,
                                            MIST_FAMILY_NEMOTRON};
enum { N_FAMILIES = sizeof families / sizeof *families };

static const struct mist_family_traits *traits_of(const struct mist_args *args)
{
    return mist_family_traits((enum mist_family)args->v[MIST_ARG_FAMILY]);
}

static enum mist_status check_rope_family(struct mist_args *args, enum mist_family family,
                                          struct mist_err *err)
{
    double part = args->v[ROTARY_PART];

    if (args->v[MIST_ARG_HAS_BIAS] != 0)
        return mist_args_fail(args, args->line[SWIGLU] ? SWIGLU : SQUARED_RELU, err,
                              "no --disable-bias-linear can't be expressed: %s blocks "
                              "have no biases",
                              family == MIST_FAMILY_LLAMA ? "Llama's" : "Nemotron's");
    if (part != 1 && !mist_family_traits(family)->may_turn_part)
        return mist_args_fail(args, ROTARY_PART, err,
                              "--rotary-percent %g can't be expressed: heads are turned "
                              "as a whole",
                              part);
    if (!(part > 0 && part <= 1))
        return mist_args_fail(
            args, ROTARY_PART, err,
            "--rotary-percent is %g, expected more than 0 and 1 at most", part);
    return MIST_OK;
}

/* The family whose blocks have what is said; MIST_N_FAMILIES: none has. */
static enum mist_family match_family(bool has_rope, bool is_rms, bool is_swiglu,
                                     bool squares_relu)
{
    for (int i = 0; i < N_FAMILIES; i++) {
        const struct mist_family_traits *of = mist_family_traits(families[i]);
        if (has_rope != of->has_positions && is_rms == of->has_rms_norm &&
            is_swiglu == of->has_gate && squares_relu == of->squares_relu)
            return families[i];
    }
    return MIST_N_FAMILIES;
}

/* GPT: learned positions, LayerNorm, GELU. Llama: RoPE, RMSNorm, SwiGLU. Nemotron: RoPE,
 * LayerNorm, squared ReLU. The last two have no biases. */
static enum mist_status find_family(struct mist_args *args, struct mist_err *err)
{
    bool has_rope = mist_args_or(args, POSITIONS, 0) != 0;
    bool is_rms = args->v[NORM] != 0, is_swiglu = args->v[SWIGLU] != 0;
    bool squares_relu = args->v[SQUARED_RELU] != 0;
    enum mist_family found = match_family(has_rope, is_rms, is_swiglu, squares_relu);
    int blamed = args->line[SWIGLU]         ? SWIGLU
                 : args->line[SQUARED_RELU] ? SQUARED_RELU
                 : args->line[NORM]         ? NORM
                                            : POSITIONS;

    if (args->has_model && !args->line[POSITIONS] && !args->line[NORM] &&
        !args->line[SWIGLU] && !args->line[SQUARED_RELU])
        return MIST_OK;
    if (found == MIST_N_FAMILIES)
        return mist_args_fail(
            args, blamed, err,
            "--position-embedding-type %s, --normalization %s and %s can't be expressed "
            "together: blocks are GPT's (learned_absolute, LayerNorm, GELU), Llama's "
            "(rope, RMSNorm, --swiglu) or Nemotron's (rope, LayerNorm, --squared-relu)",
            positions[has_rope].word, norms[is_rms].word,
            is_swiglu      ? "--swiglu"
            : squares_relu ? "--squared-relu"
                           : "neither --swiglu nor --squared-relu");
    enum mist_status status = has_rope ? check_rope_family(args, found, err) : MIST_OK;
    return status == MIST_OK ? mist_args_derive(args, MIST_ARG_FAMILY, found, blamed, err)
                             : status;
}

/* What Megatron-LM derives where it is not said. */
static enum mist_status fill_sizes(struct mist_args *args, struct mist_err *err)
{
    bool is_llama = args->v[MIST_ARG_FAMILY] == MIST_FAMILY_LLAMA;
    bool has_rope = !traits_of(args)->has_positions;
    double hidden = args->v[MIST_ARG_HIDDEN], heads = args->v[MIST_ARG_HEADS];
    double groups = args->v[USES_GROUPS] != 0 ? mist_args_or(args, GROUPS, 1) : heads;

    if (mist_args_is_open(args, MIST_ARG_HEAD_DIM))
        args->v[MIST_ARG_HEAD_DIM] = floor(hidden / heads);
    if (mist_args_is_open(args, MIST_ARG_FFN))
        args->v[MIST_ARG_FFN] =
            is_llama ? floor(4 * hidden * 2 / 3 / 64) * 64 : 4 * hidden;
    if (has_rope && mist_args_is_open(args, MIST_ARG_ROPE_THETA))
        args->v[MIST_ARG_ROPE_THETA] = 10000;
    if (!has_rope && !args->has_model)
        args->v[MIST_ARG_ROPE_THETA] = 0;
    if (has_rope && args->v[ROTARY_PART] < 1)
        args->v[MIST_ARG_ROTARY] =
            floor(args->v[ROTARY_PART] * args->v[MIST_ARG_HEAD_DIM]);
    double most =
        mist_args_or(args, MAX_POSITIONS,
                     mist_args_or(args, MIST_ARG_MAX_SEQ, args->v[MIST_ARG_SEQ_LEN]));
    enum mist_status status =
        mist_args_derive(args, MIST_ARG_MAX_SEQ, has_rope ? 0 : most, MAX_POSITIONS, err);
    if (status != MIST_OK || (args->has_model && !args->line[USES_GROUPS]))
        return status;
    return mist_args_derive(args, MIST_ARG_KV_HEADS, groups, USES_GROUPS, err);
}

/* Rows of the embedding: padded, so that all ranks have as many. */
static enum mist_status pad_vocabulary(struct mist_args *args, struct mist_err *err)
{
    double multiple = args->v[PAD_MULTIPLE] * args->v[MIST_ARG_TP];
    double tokenizer = mist_args_or(args, TOKENIZER, 50257);

    if (mist_args_is_open(args, MIST_ARG_VOCAB)) {
        if (tokenizer < 0)
            return mist_args_fail(args, TOKENIZER, err,
                                  "the tokenizer's vocabulary is not said; expected "
                                  "--vocab-size");
        args->v[MIST_ARG_VOCAB] = tokenizer;
    } else if (tokenizer == ONE_MORE && args->line[MIST_ARG_VOCAB])
        args->v[MIST_ARG_VOCAB] += 1; /* the end of a document */
    args->v[MIST_ARG_VOCAB] = ceil(args->v[MIST_ARG_VOCAB] / multiple) * multiple;
    return MIST_OK;
}

/* The profile drops either of hidden units and attention or none. */
static enum mist_status find_dropout(struct mist_args *args, struct mist_err *err)
{
    bool drops = args->v[HIDDEN_DROPOUT] > 0;

    if (drops != (args->v[ATTENTION_DROPOUT] > 0))
        return mist_args_fail(
            args, args->line[HIDDEN_DROPOUT] ? HIDDEN_DROPOUT : ATTENTION_DROPOUT, err,
            "--hidden-dropout %g and --attention-dropout %g can't be expressed: both are "
            "0, or none is",
            args->v[HIDDEN_DROPOUT], args->v[ATTENTION_DROPOUT]);
    return mist_args_derive(args, MIST_ARG_NO_DROPOUT, !drops, HIDDEN_DROPOUT, err);
}

/* The first of what says it; with nothing said, the kernels of the profile. */
static enum mist_status find_attention(struct mist_args *args, struct mist_err *err)
{
    double attention = MIST_ATTENTION_FUSED;
    int from = PLAIN_SOFTMAX;

    if (!mist_args_is_open(args, BACKEND))
        attention = args->v[from = BACKEND];
    else if (args->v[USES_FLASH] != 0)
        attention = MIST_ATTENTION_FLASH, from = USES_FLASH;
    else if (!mist_args_is_open(args, IMPLEMENTATION))
        attention = args->v[from = IMPLEMENTATION];
    else if (args->v[PLAIN_SOFTMAX] == 0 && !mist_args_is_open(args, MIST_ARG_ATTENTION))
        return MIST_OK; /* as the command line says */
    else if (!args->notes[0])
        snprintf(args->notes, sizeof args->notes,
                 "no --transformer-impl: attention as without Transformer Engine, "
                 "usual today");
    if (attention != MIST_ATTENTION_FLASH && args->v[PLAIN_SOFTMAX] != 0)
        attention = MIST_ATTENTION_UNFUSED;
    return mist_args_derive(args, MIST_ARG_ATTENTION, attention, from, err);
}

static enum mist_status find_recomputation(struct mist_args *args, struct mist_err *err)
{
    double n = mist_args_or(args, METHOD_LAYERS, 1);
    double chunks = mist_args_or(args, MIST_ARG_CHUNKS, 1);
    bool is_block = mist_args_or(args, METHOD, 0) != 0;

    if (!mist_args_is_open(args, METHOD) && args->v[GRANULARITY] == 0)
        args->v[GRANULARITY] = MIST_RECOMPUTE_FULL;
    if (args->v[GRANULARITY] == 0 && args->line[GRANULARITY] == 0 &&
        !mist_args_is_open(args, MIST_ARG_RECOMPUTE))
        return MIST_OK; /* as the command line says */
    if (args->v[GRANULARITY] == MIST_RECOMPUTE_FULL && !is_block && n != 1)
        return mist_args_fail(args, METHOD_LAYERS, err,
                              "%s %g can't be expressed: the input of every block is "
                              "kept, expected 1",
                              args->name[METHOD_LAYERS], n);
    if (args->v[GRANULARITY] == MIST_RECOMPUTE_FULL && is_block) {
        double all = args->v[MIST_ARG_LAYERS] / (args->v[MIST_ARG_PP] * chunks);
        if (chunks > 1 && n < all)
            return mist_args_fail(args, METHOD_LAYERS, err,
                                  "%s %g of %g blocks of each chunk can't be expressed: "
                                  "the first blocks of a stage are",
                                  args->name[METHOD_LAYERS], n, all);
        if (chunks == 1)
            args->v[MIST_ARG_RECOMPUTE_LAYERS] = n;
    }
    return mist_args_derive(args, MIST_ARG_RECOMPUTE, args->v[GRANULARITY], GRANULARITY,
                            err);
}

static enum mist_status find_pipeline(struct mist_args *args, struct mist_err *err)
{
    double layers = args->v[MIST_ARG_LAYERS], pp = args->v[MIST_ARG_PP];

    if (args->v[MIST_ARG_TP] == 1)
        args->v[MIST_ARG_SEQUENCE_PARALLEL] = 0;
    if (args->v[MIST_ARG_SEQUENCE_PARALLEL] != 0 &&
        fmod(args->v[MIST_ARG_SEQ_LEN], args->v[MIST_ARG_CP] * args->v[MIST_ARG_TP]) > 0)
        return mist_args_fail(args, MIST_ARG_SEQUENCE_PARALLEL, err,
                              "--sequence-parallel cuts --seq-length %g, which "
                              "--tensor-model-parallel-size %g%s does not divide",
                              args->v[MIST_ARG_SEQ_LEN], args->v[MIST_ARG_TP],
                              args->v[MIST_ARG_CP] > 1 ? " times --context-parallel-size"
                                                       : "");
    if (mist_args_or(args, MIST_ARG_CUTS_PRODUCTS, 0) != 0 &&
        args->v[MIST_ARG_SEQUENCE_PARALLEL] == 0)
        return mist_args_fail(args, MIST_ARG_CUTS_PRODUCTS, err,
                              "--tp-comm-overlap needs --sequence-parallel over 2 ranks "
                              "or more");
    if (!mist_args_is_open(args, CHUNK_LAYERS)) {
        double chunks = layers / pp / args->v[CHUNK_LAYERS];
        if (chunks != floor(chunks))
            return mist_args_fail(args, CHUNK_LAYERS, err,
                                  "chunks of %g blocks do not fill stages of %g",
                                  args->v[CHUNK_LAYERS], layers / pp);
        enum mist_status status =
            mist_args_derive(args, MIST_ARG_CHUNKS, chunks, CHUNK_LAYERS, err);
        if (status != MIST_OK)
            return status;
    }
    double ends = args->v[MIST_ARG_EMBEDDING_LAYERS] + args->v[MIST_ARG_HEAD_LAYERS];
    if (fmod(layers + ends, pp) > 0)
        return mist_args_fail(args, MIST_ARG_PP, err,
                              "--num-layers %g%s is no multiple of "
                              "--pipeline-model-parallel-size %g",
                              layers, ends > 0 ? " with the ends" : "", pp);
    return MIST_OK;
}

/* Gradients are summed in fp32 with bf16, and as they are with fp16. */
static enum mist_status find_formats(struct mist_args *args, struct mist_err *err)
{
    bool is_fp16 = args->v[MIST_ARG_DTYPE] == MIST_DTYPE_FP16;

    if (mist_args_is_open(args, MIST_ARG_DTYPE))
        args->v[MIST_ARG_DTYPE] = MIST_DTYPE_FP32;
    if (mist_args_is_open(args, MIST_ARG_GRADIENT_DTYPE))
        args->v[MIST_ARG_GRADIENT_DTYPE] = is_fp16 ? MIST_DTYPE_FP16 : MIST_DTYPE_FP32;
    if (mist_args_or(args, MIST_ARG_FP16_LOSS, 0) != 0 && !is_fp16)
        return mist_args_fail(
            args, MIST_ARG_FP16_LOSS, err,
            "--fp16-lm-cross-entropy can't be expressed without --fp16");
    if (args->v[FUSES_LOSS] != 0 && mist_args_or(args, MIST_ARG_FUSED_LOSS, 0) == 0)
        return mist_args_fail(args, FUSES_LOSS, err,
                              "--cross-entropy-loss-fusion can't be expressed but with "
                              "--cross-entropy-fusion-impl te: the profile has other "
                              "losses of single kernels");
    if (args->v[FUSES_LOSS] == 0)
        args->v[MIST_ARG_FUSED_LOSS] = NAN;
    return MIST_OK;
}

static enum mist_status find_optimizer(struct mist_args *args, struct mist_err *err)
{
    (void)err;
    if (args->v[OFFLOADS] != 0) {
        args->v[MIST_ARG_OFFLOAD_OPTIMIZER] = args->v[OFFLOAD_FRAC];
        args->v[MIST_ARG_UPDATES_ON_HOST] = args->v[OFFLOAD_FRAC] > 0;
    }
    if (mist_framework_get(args->framework)->can_step_apart)
        args->v[MIST_ARG_STEPS_APART] = args->v[SUMS_BESIDE] == 0;
    return MIST_OK;
}

/* -------------------------------------------------------------------------- to the file */

static void begin_model(struct mist_args *args)
{
    const struct mist_family_traits *of = traits_of(args);
    double vocab = args->v[MIST_ARG_VOCAB], multiple = 128;
    bool is_said = false; /* another family is told from what is read back, GPT's */

    for (int i = 0; i < N_FAMILIES; i++)
        is_said |= (int)args->v[MIST_ARG_FAMILY] == (int)families[i];
    args->v[POSITIONS] = is_said && !of->has_positions;
    args->v[NORM] = is_said && of->has_rms_norm;
    args->v[SWIGLU] = is_said && of->has_gate;
    args->v[SQUARED_RELU] = is_said && of->squares_relu;
    if (args->v[MIST_ARG_ROTARY] > 0)
        args->v[ROTARY_PART] = args->v[MIST_ARG_ROTARY] / args->v[MIST_ARG_HEAD_DIM];
    args->v[MAX_POSITIONS] =
        args->v[args->v[MIST_ARG_MAX_SEQ] > 0 ? MIST_ARG_MAX_SEQ : MIST_ARG_SEQ_LEN];
    if (args->v[POSITIONS] == 0)
        args->v[MIST_ARG_ROPE_THETA] = NAN;
    args->v[USES_GROUPS] = args->v[MIST_ARG_KV_HEADS] != args->v[MIST_ARG_HEADS];
    args->v[GROUPS] = args->v[USES_GROUPS] != 0 ? args->v[MIST_ARG_KV_HEADS] : NAN;
    while (multiple > 1 && fmod(vocab, multiple * args->v[MIST_ARG_TP]) != 0)
        multiple /= 2;
    args->v[PAD_MULTIPLE] = multiple;
}

static void begin_recomputation(struct mist_args *args)
{
    bool is_part = !mist_args_is_open(args, MIST_ARG_RECOMPUTE_LAYERS);

    args->v[GRANULARITY] = args->v[MIST_ARG_RECOMPUTE];
    if (args->v[GRANULARITY] != MIST_RECOMPUTE_FULL)
        return;
    args->v[METHOD] = is_part;
    args->v[METHOD_LAYERS] = is_part ? args->v[MIST_ARG_RECOMPUTE_LAYERS] : 1;
}

static void begin(struct mist_args *args, const struct mist_plan *plan,
                  struct mist_args_beside *beside)
{
    double attention = args->v[MIST_ARG_ATTENTION];
    double n = mist_plan_n_ranks(plan);
    bool fills_nodes = args->node_devices > 0 && n > args->node_devices &&
                       fmod(n, args->node_devices) == 0;

    (void)beside;
    args->v[MIST_ARG_NODE_DEVICES] = fills_nodes ? args->node_devices : n;
    args->v[MIST_ARG_NODES] = fills_nodes ? n / args->node_devices : 1;
    begin_model(args);
    begin_recomputation(args);
    if (plan->pipeline != MIST_PIPELINE_INTERLEAVED ||
        args->framework == MIST_FRAMEWORK_MEGATRON_2021)
        args->v[MIST_ARG_OVERLAPS] = NAN;
    if (args->v[MIST_ARG_CHUNKS] > 1)
        args->v[CHUNK_LAYERS] =
            args->v[MIST_ARG_LAYERS] / (args->v[MIST_ARG_PP] * args->v[MIST_ARG_CHUNKS]);
    args->v[FUSES_LOSS] = mist_args_or(args, MIST_ARG_FUSED_LOSS, 0);
    args->v[SUMS_BESIDE] = mist_framework_get(args->framework)->can_step_apart &&
                           args->v[MIST_ARG_STEPS_APART] == 0;
    args->v[GATHERS_BESIDE] = args->v[SUMS_BESIDE] != 0 && args->v[MIST_ARG_ZERO] == 1;
    args->v[PLAIN_SOFTMAX] = attention == MIST_ATTENTION_UNFUSED;
    args->v[BACKEND] =
        attention == MIST_ATTENTION_FLASH ? MIST_ATTENTION_FLASH : MIST_ATTENTION_FUSED;
    args->v[HIDDEN_DROPOUT] = args->v[ATTENTION_DROPOUT] =
        args->v[MIST_ARG_NO_DROPOUT] != 0 ? 0 : 0.1;
    if (args->v[MIST_ARG_GRADIENT_DTYPE] == MIST_DTYPE_FP32)
        args->v[MIST_ARG_GRADIENT_DTYPE] = NAN;
    args->v[OFFLOADS] = args->v[MIST_ARG_OFFLOAD_OPTIMIZER] > 0;
    args->v[OFFLOAD_FRAC] =
        args->v[OFFLOADS] != 0 ? args->v[MIST_ARG_OFFLOAD_OPTIMIZER] : NAN;
}

const struct mist_args_framework mist_args_megatron = {
    .rows = rows,
    .read = mist_arg_list_read_words,
    .write = mist_arg_list_write_words,
    .rules = {find_family, fill_sizes, pad_vocabulary, find_pipeline, find_dropout,
              find_attention, find_recomputation, find_formats, find_optimizer},
    .begin = begin,
};
