/*
 * Profiles of frameworks. See framework.h.
 *
 * Kernels and bytes were counted by the sources of the frameworks:
 *   megatron   Megatron-LM of 2022 (v3.0; Korthikanti et al., "Reducing Activation
 *              Recomputation"): bias with GELU and bias with dropout and residual fused,
 *              fused LayerNorm and softmax, cross-entropy of a sliced vocabulary in fp32.
 *              Its backward overlaps sums over tensor-parallel ranks with the gradients of
 *              weights (their section 6)
 *   megatron-2021 Megatron-LM v2, until the middle of 2021: nothing overlaps; gradients of
 *              two bytes and their fp32 copies stay until the next iteration's take
 *              their place (param.main_grad and param.grad hold them: "max allocated" of
 *              all ranks in BigScience's logs is 22 bytes a parameter beside activations).
 *              The loss works in place (mpu/cross_entropy.py), where megatron's copies the
 *              logits in fp32 (core/tensor_parallel/cross_entropy.py, until 2024), as
 *              BigScience's Megatron-DeepSpeed does (clone())
 *   deepspeed  Megatron-DeepSpeed of 2022: the same kernels, nothing overlaps; its pipeline
 *              sends activations and their gradients in parts (runtime/pipe/engine.py,
 *              is_pipe_partitioned, is_grad_partitioned); sums in fp32 are copies of a
 *              micro-batch's gradients, 2 + 4, added, 4 + 4 + 4 (runtime/bf16_optimizer.py,
 *              update_hp_grads). Its loss is Megatron's, and so is what it moves: a copy in
 *              fp32 6, another 8, the largest 4, less it 8, exp 8, their sum 4, by it 8,
 *              and back 8 + 6. Neither tensor parallelism nor a pipeline: Llama's
 *              blocks are those of transformers 4.34 (modeling_llama.py), with products of
 *              their own for queries, keys, values, gate and up, an RMS norm of single
 *              operators as torchtitan's, SiLU and its product with up; its logits go to
 *              fp32 6, without their last row 8, through log_softmax 8, and back 4 + 12 +
 *              12 + 6, which are 4 fewer
 *   deepspeed-2021 DeepSpeed 0.3 to 0.5.2, until October 2021: gradients of activations go
 *              whole (is_grad_partitioned is False there)
 *   torchtitan PyTorch's FSDP, eager: every element-wise operation a kernel of its own, but
 *              flash attention, fused LayerNorm and AdamW. RMS norms go to fp32 and back
 *              (torchtitan/models/norms.py): x.float(), pow, mean, a product, type_as and
 *              the weights move 6 + 8 + 4 + 8 + 6 + 4 bytes, their backward 92, and the
 *              sum of both ways 6. "Selective" keeps attention and every second product
 *              (selective_ac_option "op"); checkpoints are not re-entrant and stop when
 *              all that the backward reads is there (torch.utils.checkpoint, early stop,
 *              since PyTorch 2.1)
 *   torchtitan-compiled the same with each block and the loss compiled by Inductor
 *              (training.compile): one kernel for a norm, forward and of its input's
 *              gradient, which adds that of the residual (reads 6 bytes, writes 2) beside
 *              one of its weights' gradients (reads 4); one for SwiGLU and each way back
 *              (6; 6 + 4). RoPE stays as it is: its complex numbers are not compiled.
 *              Losses read logits twice (2 + 2 bytes), and their gradient reads and writes
 *              them. Nothing is kept for the backward that is inside of a kernel
 *   llm-foundry the same FSDP, eager, of MPT with Composer: the loss is FlashAttention's
 *              cross-entropy, which works on logits in two bytes (models/mpt,
 *              modeling_mpt.py: loss_fn 'fused_crossentropy'), reads them, and for their
 *              gradient reads and writes them, 2 + 2 + 2 + 2 with the statistics' second
 *              look; then two metrics, LanguageCrossEntropy and LanguagePerplexity, each
 *              in fp32, by a copy (2 + 4) and a log-softmax (4 + 4), when activations and
 *              gradients of the micro-batch are gone
 * A pass that reads an array of two bytes per element and writes one counts 4.
 */
#include "sim/model/framework.h"

/* clang-format off */
#define FORWARD(n, b)  [MIST_PHASE_FORWARD] = {n, b}
#define BACKWARD(n, b) [MIST_PHASE_BACKWARD_INPUT] = {n, b}
#define WEIGHT(n, b)   [MIST_PHASE_BACKWARD_WEIGHT] = {n, b}

/* Backward of a norm: with the sum of both ways to its input (6 bytes), and the dropout (5)
 * and the bias (2) that its block adds before. The gradient of each of these three small
 * parameters is added by a kernel of its own (model/distributed.py, main_grad.add_; without
 * Megatron-LM's DDP autograd does so), as are those of products' biases. */
#define MEGATRON_OPS                                                                     \
    [MIST_OP_EMBEDDING]              = {FORWARD(8, 20), WEIGHT(6, 2)},                   \
    [MIST_OP_LAYER_NORM]             = {FORWARD(1, 4), BACKWARD(10, 23)},                \
    [MIST_OP_RESIDUAL_LAYER_NORM]    = {FORWARD(2, 11)},                                 \
    [MIST_OP_LINEAR]                 = {FORWARD(1, 0), BACKWARD(1, 0), WEIGHT(2, 0)},    \
    [MIST_OP_LINEAR_BIAS]            = {FORWARD(2, 4), BACKWARD(2, 2), WEIGHT(2, 0)},    \
    [MIST_OP_LINEAR_GELU]            = {FORWARD(2, 4), BACKWARD(4, 8)},                  \
    [MIST_OP_LINEAR_RESIDUAL]        = {FORWARD(2, 7), BACKWARD(2, 6)},                  \
    [MIST_OP_HEAD_NORM]              = {FORWARD(2, 8), BACKWARD(10, 38)},                \
    [MIST_OP_RESIDUAL]               = {FORWARD(1, 7)},                                  \
    [MIST_OP_LINEAR_CROSS_ENTROPY]   = {FORWARD(26, 0)},                                 \
    [MIST_OP_CROSS_ENTROPY_STATS]    = {FORWARD(8, 34)},                                 \
    [MIST_OP_CROSS_ENTROPY_PARALLEL] = {FORWARD(10, 26)}

#define FUSED_LLAMA_OPS                                                                  \
    [MIST_OP_RMS_NORM]               = {FORWARD(1, 4), BACKWARD(6, 16)},                 \
    [MIST_OP_RESIDUAL_RMS_NORM]      = {FORWARD(2, 10)},                                 \
    [MIST_OP_SWIGLU]                 = {FORWARD(1, 6), BACKWARD(1, 10)}

/* RoPE is one kernel for queries and one for keys (apply_rope_fusion, of Transformer Engine);
 * behind them their gradients and those of values are put together. */
static const struct mist_framework_op megatron_ops[MIST_N_OPS][MIST_N_PHASES] = {
    MEGATRON_OPS,
    FUSED_LLAMA_OPS,
    [MIST_OP_ROPE]                   = {FORWARD(2, 4), BACKWARD(3, 8)},
};

static const struct mist_framework_op deepspeed_ops[MIST_N_OPS][MIST_N_PHASES] = {
    MEGATRON_OPS,
    FUSED_LLAMA_OPS,
    [MIST_OP_ROPE]                   = {FORWARD(6, 20), BACKWARD(6, 20)},
};

/* Of single operators, as the Llamas of torchtitan and of transformers are. */
#define EAGER_LLAMA_OPS                                                                  \
    [MIST_OP_RMS_NORM]               = {FORWARD(8, 36), BACKWARD(17, 98)},               \
    [MIST_OP_RESIDUAL_RMS_NORM]      = {FORWARD(9, 42)},                                 \
    [MIST_OP_SWIGLU]                 = {FORWARD(2, 10), BACKWARD(3, 18)}

static const struct mist_framework_op transformers_ops[MIST_N_OPS][MIST_N_PHASES] = {
    MEGATRON_OPS,
    EAGER_LLAMA_OPS,
    [MIST_OP_ROPE]                   = {FORWARD(6, 20), BACKWARD(6, 20)},
};

/* Of torchtitan, compiled or not. */
#define TORCHTITAN_OPS                                                                   \
    [MIST_OP_EMBEDDING]              = {FORWARD(2, 4), WEIGHT(3, 2)},                    \
    [MIST_OP_LINEAR]                 = {FORWARD(1, 0), BACKWARD(1, 0), WEIGHT(2, 0)},    \
    [MIST_OP_LINEAR_BIAS]            = {FORWARD(1, 0), BACKWARD(2, 2), WEIGHT(2, 0)},    \
    [MIST_OP_LINEAR_GELU]            = {FORWARD(2, 4), BACKWARD(2, 6)},                  \
    [MIST_OP_ATTENTION]              = {FORWARD(1, 0), BACKWARD(3, 0)},                  \
    [MIST_OP_ROPE]                   = {FORWARD(6, 20), BACKWARD(6, 20)},                \
    [MIST_OP_RESIDUAL]               = {FORWARD(1, 6)},                                  \
    [MIST_OP_CROSS_ENTROPY_STATS]    = {FORWARD(5, 18)},                                 \
    [MIST_OP_CROSS_ENTROPY_PARALLEL] = {FORWARD(5, 18)}

static const struct mist_framework_op torchtitan_ops[MIST_N_OPS][MIST_N_PHASES] = {
    TORCHTITAN_OPS,
    [MIST_OP_LAYER_NORM]             = {FORWARD(1, 4), BACKWARD(4, 19)},
    [MIST_OP_RESIDUAL_LAYER_NORM]    = {FORWARD(2, 10)},
    [MIST_OP_LINEAR_RESIDUAL]        = {FORWARD(2, 6), BACKWARD(2, 6)},
    [MIST_OP_HEAD_NORM]              = {FORWARD(2, 8), BACKWARD(8, 38)},
    EAGER_LLAMA_OPS,
    [MIST_OP_LINEAR_CROSS_ENTROPY]   = {FORWARD(10, 0)}, /* logit_bytes */
};

static const struct mist_framework_op compiled_ops[MIST_N_OPS][MIST_N_PHASES] = {
    TORCHTITAN_OPS,
    [MIST_OP_LAYER_NORM]             = {FORWARD(1, 4), BACKWARD(2, 12)},
    [MIST_OP_RMS_NORM]               = {FORWARD(1, 4), BACKWARD(2, 12)},
    [MIST_OP_RESIDUAL_LAYER_NORM]    = {FORWARD(1, 8)},
    [MIST_OP_RESIDUAL_RMS_NORM]      = {FORWARD(1, 8)},
    [MIST_OP_LINEAR_RESIDUAL]        = {FORWARD(2, 6), BACKWARD(1, 0)},
    [MIST_OP_HEAD_NORM]              = {FORWARD(2, 4), BACKWARD(4, 10)},
    [MIST_OP_SWIGLU]                 = {FORWARD(1, 6), BACKWARD(1, 10)},
    [MIST_OP_LINEAR_CROSS_ENTROPY]   = {FORWARD(6, 0)}, /* logit_bytes */
};

/* Of PyTorch's allocator. GMLake (ASPLOS 2024) measured 15 % of holes in the mean where
 * blocks are recomputed and offloaded; little is moved in these plans. While there is
 * memory it also keeps what it may use again, with which BigScience's logs, of Megatron-LM
 * and DeepSpeed, say 17 to 22 % more reserved than allocated. torchtitan lets segments grow
 * (expandable_segments), and keeps little. */
#define PYTORCH                                                                          \
    .fragmentation_frac = 0.08,                                                          \
    .fragmentation_source = "estimate: half of GMLake's mean, ASPLOS 2024"
#define CACHES                                                                           \
    PYTORCH, .held_frac = 0.2, .held_source = "reserved in BigScience's logs: 17 to 22 %"

/* Of each operand the largest value is looked for, 2, then it is cast, 2 + 1, and where a
 * product wants it the other way around, copied, 1 + 1. */
#define CASTS_TORCHAO                                                                    \
    .casts = {[MIST_PHASE_FORWARD]         = {.input = 5, .weight = 5},                  \
              [MIST_PHASE_BACKWARD_INPUT]  = {.weight = 2, .gradient = 5},               \
              [MIST_PHASE_BACKWARD_WEIGHT] = {.input = 2, .gradient = 2}},               \
    .cast_source = "torchao, float8: scales of whole tensors as they are"
/* Cast both ways by one kernel, 2 + 1 + 1; with scales of the tensor as it is after a look
 * for the largest, 2. Megatron-LM casts weights once for all micro-batches. */
#define CASTS_ENGINE(look_, weight_)                                                     \
    .casts = {[MIST_PHASE_FORWARD]        = {.input = look_ + 4, .weight = weight_},     \
              [MIST_PHASE_BACKWARD_INPUT] = {.gradient = look_ + 4}},                    \
    .cast_source = "Transformer Engine, cast_transpose"

#define MEGATRON                                                                         \
    CACHES, .casts_logits = true,                                                        \
    .attention = MIST_ATTENTION_FUSED, .has_dropout = true, .repeats_all = true,         \
    .scatters_transfers = true, .blocks_transfers = true, .dispatch_us = 10,             \
    .hides_keys = true,                                                                  \
    .optimizer_bytes = 46, .scaling_bytes = 8, .accumulate_bytes = 6,                    \
    .logit_bytes = 60, .copy_bytes = 4, .ops = megatron_ops,                             \
    .source = "kernels counted in Megatron-LM v3.0",                                     \
    .dispatch_source = "an eager operator of PyTorch, estimate",                         \
    .optimizer_source = "Adam 28, copy to two bytes 6, zeroes 4, clipping 8",            \
    .scaling_source = "unscale_and_check_inf, in place in fp32",                         \
    .logit_source = "a copy, fp32, softmax in single kernels, and back",                 \
    .residual_frac = 0.11, .residual_source = "estimate: the curve's"

#define DEEPSPEED                                                                        \
    CACHES, .casts_logits = true,                                                        \
    .attention = MIST_ATTENTION_FUSED, .takes_turns = true, .has_dropout = true,         \
    .repeats_all = true, .scatters_transfers = true, .overlaps_zero3 = true,             \
    .dispatch_us = 50,                                                                   \
    .optimizer_bytes = 34, .scaling_bytes = 10, .accumulate_bytes = 6,                   \
    .fp32_sum_factor = 3, .logit_bytes = 60, .logit_held_bytes = 10, .copy_bytes = 4,    \
    .ops = deepspeed_ops, .alone_ops = transformers_ops, .sum_bytes = 6,                 \
    .source = "kernels counted in Megatron-DeepSpeed of 2022, transformers 4.34",        \
    .dispatch_source = "vTrain's runs of hidden size 2048",                              \
    .optimizer_source = "Adam 28, copy to two bytes 6",                                  \
    .scaling_source = "a look for overflow 2, unscale_and_clip 8",                       \
    .copy_source = "FP16_Optimizer flattens gradients in fp32",                          \
    .keeps_two_bytes = true, .flat_bytes = 6, .sub_group_elements = 1000000000,          \
    .bucket_elements = 500000000,                                                        \
    .kept_source = "bf16_optimizer.py, update_hp_grads; zero/config.py, reduce_bucket_size", \
    .flat_source = "zero/stage3.py, stage_1_and_2.py: flatten(gradients).to(fp32), 2 + 4", \
    .logit_source = "a copy, fp32, softmax in single kernels, and back",                 \
    .residual_frac = 0.14,                                                               \
    .residual_source = "vTrain's runs of hidden size 2048"

#define FSDP                                                                             \
    PYTORCH, .held_frac = 0.08,                                                          \
    .held_source = "estimate: half of GMLake's mean, ASPLOS 2024",                       \
    .attention = MIST_ATTENTION_FLASH, .selective_frac = 0.5, .separates_groups = true,  \
    .dispatch_us = 10, .optimizer_bytes = 28, .scaling_bytes = 8,                        \
    .accumulate_bytes = 4,                                                               \
    .dispatch_source = "an eager operator of PyTorch, estimate",                         \
    .optimizer_source = "fused AdamW",                                                   \
    .scaling_source = "GradScaler, in place in fp32",                                    \
    .residual_frac = 0.13,                                                               \
    .residual_source = "llm-foundry's runs of MPT on A100, H100"

/* Of a vocabulary that tensor-parallel ranks share the backward makes zeros, exp of the
 * log-softmax, and their sum, all in fp32, while the log-softmax is there: 4 each
 * (torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward). */
#define LOSS_PARALLEL "PyTorch's loss_parallel: log-softmax, zeros, exp, their sum"

static const struct mist_framework frameworks[MIST_N_FRAMEWORKS] = {
    [MIST_FRAMEWORK_OURS] = {.sums_in_rings = true, .source = "the catalogue"},
    [MIST_FRAMEWORK_MEGATRON] = {
        MEGATRON, CASTS_ENGINE(2, 0), .overlaps_interleaved = true, .fuses_gradients = true,
        .separates_groups = true, .can_step_apart = true, .can_cut_products = true, .can_fuse_loss = true,
        .logit_held_bytes = 10,
        .copy_source = "its README: 20 bytes a parameter with fp16 gradients"},
    [MIST_FRAMEWORK_MEGATRON_2021] = {
        MEGATRON, .takes_turns = true, .keeps_gradients = true, .logit_held_bytes = 6,
        .copy_source = "Float16OptimizerWithFloat16Params, kept for an iteration",
        .kept_source = "Float16OptimizerWithFloat16Params, kept for an iteration"},
    [MIST_FRAMEWORK_DEEPSPEED] = {DEEPSPEED},
    [MIST_FRAMEWORK_DEEPSPEED_2021] = {DEEPSPEED, .sends_whole_gradients = true},
    [MIST_FRAMEWORK_TORCHTITAN] = {
        FSDP, .is_eager = true, .sum_bytes = 6, .logit_bytes = 36, .logit_held_bytes = 12, .sliced_held_bytes = 16,
        .sliced_source = LOSS_PARALLEL, .ops = torchtitan_ops,
        .source = "kernels counted in torchtitan v0.1, PyTorch 2.6",
        .logit_source = "fp32, log-softmax, and back"},
    [MIST_FRAMEWORK_TORCHTITAN_COMPILED] = {
        FSDP, CASTS_TORCHAO, .sum_bytes = 4, .logit_bytes = 8, .logit_held_bytes = 12, .sliced_held_bytes = 16,
        .sliced_source = LOSS_PARALLEL, .ops = compiled_ops,
        .source = "kernels of torchtitan v0.1 as Inductor fuses them, PyTorch 2.6",
        .logit_source = "two passes of reductions; the gradient"},
    [MIST_FRAMEWORK_LLM_FOUNDRY] = {
        FSDP, CASTS_ENGINE(0, 4), .is_eager = true, .sum_bytes = 6, .logit_bytes = 36, .logit_held_bytes = 4,
        .ops = torchtitan_ops, .source = "kernels counted in llm-foundry and Composer of 2023",
        .logit_source = "a fused loss in two bytes, 8; two metrics, 14 each"},
};

/* One kernel for scale, mask and softmax, in two bytes (scaled_upper_triang_masked_softmax.h:
 * it reads what is below the diagonal and writes whole rows, 1 + 2 bytes, backward 2 + 2);
 * or one for each, and for copies to fp32 and back: 6 + 8 + 9 + 8 + 6 bytes, 6 + 12 + 9 +
 * 8 + 6 backward. Then dropout, 5. Copies: of the result; backward of queries, keys and
 * values. */
static const struct mist_framework_attention attentions[][2] = {
    [MIST_ATTENTION_FUSED]   = {{2, 1, 3, 3, 5, 4}, {4, 1, 3, 4, 5, 12}},
    [MIST_ATTENTION_UNFUSED] = {{2, 1, 7, 0, 37 + 5, 4}, {4, 1, 7, 0, 41 + 5, 12}},
};
/* clang-format on */

const struct mist_framework *mist_framework_get(enum mist_framework_name name)
{
    return &frameworks[name];
}

double mist_framework_loss_bytes(double bytes, int n_casts, bool has_fp16_loss)
{
    enum { CAST_BYTES = 2 + 4 };

    return has_fp16_loss ? (bytes - n_casts * CAST_BYTES) / 2 : bytes;
}

/* Transformer Engine's cross_entropy.py: statistics of rows, 2; losses from them; gradients in
 * the place of logits, 2 + 2. With a whole vocabulary there are three products, too. */
struct mist_framework_op mist_framework_fused_loss(enum mist_op op)
{
    return op == MIST_OP_CROSS_ENTROPY_STATS      ? (struct mist_framework_op){1, 2}
           : op == MIST_OP_CROSS_ENTROPY_PARALLEL ? (struct mist_framework_op){2, 4}
                                                  : (struct mist_framework_op){3 + 3, 6};
}

int32_t mist_framework_logit_held_bytes(const struct mist_framework *framework,
                                        bool is_sliced, bool has_fp16_loss,
                                        bool has_fused_loss)
{
    int32_t held = is_sliced && framework->sliced_held_bytes > 0
                       ? framework->sliced_held_bytes
                       : framework->logit_held_bytes;

    if (has_fused_loss)
        return 2;
    /* logits, their copy in fp32, and what is made of it */
    return has_fp16_loss ? 2 + (held - 2 - 4) / 2 : held;
}

bool mist_framework_overlaps(const struct mist_framework *framework, bool is_interleaved,
                             bool shards_weights)
{
    return (framework->overlaps_interleaved && is_interleaved) ||
           (framework->overlaps_zero3 && shards_weights);
}

enum mist_attention mist_framework_attention_at(enum mist_attention attention,
                                                int64_t seq, int64_t n_heads_of_batch)
{
    bool is_supported =
        seq > 16 && seq <= 4096 && seq % 4 == 0 && n_heads_of_batch % 4 == 0;

    return attention == MIST_ATTENTION_FUSED && !is_supported ? MIST_ATTENTION_UNFUSED
                                                              : attention;
}

const struct mist_framework_attention *
mist_framework_attention(enum mist_attention attention, enum mist_phase phase)
{
    bool is_one_kernel =
        attention != MIST_ATTENTION_FUSED && attention != MIST_ATTENTION_UNFUSED;

    return is_one_kernel ? NULL : &attentions[attention][phase != MIST_PHASE_FORWARD];
}

int32_t mist_framework_copy_bytes(enum mist_framework_name name,
                                  enum mist_dtype gradient_dtype)
{
    const struct mist_framework *of = &frameworks[name];

    return gradient_dtype == MIST_DTYPE_FP32 || of->keeps_gradients ? 0 : of->copy_bytes;
}

int32_t mist_framework_kept_bytes(enum mist_framework_name name, enum mist_dtype dtype,
                                  enum mist_dtype gradient_dtype, bool shards_gradients)
{
    const struct mist_framework *of = &frameworks[name];

    if (of->keeps_two_bytes)
        return gradient_dtype == MIST_DTYPE_FP32 && dtype != MIST_DTYPE_FP32 &&
                       !shards_gradients
                   ? mist_dtype_gradient_bytes(dtype)
                   : 0;
    return gradient_dtype == MIST_DTYPE_FP32 || !of->keeps_gradients
               ? 0
               : mist_dtype_gradient_bytes(gradient_dtype) + of->copy_bytes;
}

double mist_framework_optimizer_bytes(const struct mist_framework *framework,
                                      enum mist_dtype dtype,
                                      enum mist_dtype gradient_dtype)
{
    bool copies = gradient_dtype != MIST_DTYPE_FP32 && framework->copy_bytes > 0;

    return framework->optimizer_bytes +
           (dtype == MIST_DTYPE_FP16 ? framework->scaling_bytes : 0) +
           (copies ? (double)mist_dtype_gradient_bytes(gradient_dtype) +
                         framework->copy_bytes
                   : 0);
}

/* Per element of an operand (0: input, 1: weight, 2: gradient), forward and backward. */
static double cast_bytes(const struct mist_framework *framework, int operand)
{
    double sum = 0;

    for (int phase = 0; phase < MIST_N_PHASES; phase++) {
        const struct mist_framework_casts *of = &framework->casts[phase];
        const double bytes[] = {of->input, of->weight, of->gradient};
        sum += bytes[operand];
    }
    return sum;
}

bool mist_framework_constant(const struct mist_framework *framework, int i,
                             struct mist_framework_constant *out)
{
    const struct mist_framework_constant constants[] = {
        {"host, a launch", framework->dispatch_us * 1e-6, MIST_IN_S,
         framework->dispatch_source},
        {"optimizer step, a parameter", framework->optimizer_bytes, MIST_IN_BYTES,
         framework->optimizer_source},
        {"loss scaling in fp16, a parameter", framework->scaling_bytes, MIST_IN_BYTES,
         framework->scaling_source},
        {"copy of two-byte gradients, a parameter", framework->copy_bytes, MIST_IN_BYTES,
         framework->copy_source},
        {"gradients in one piece, a parameter of a step", framework->flat_bytes,
         MIST_IN_BYTES, framework->flat_source},
        {"bucket of gradients with ZeRO, unless said",
         2.0 * (double)framework->bucket_elements, MIST_IN_BYTES, framework->kept_source},
        {"memory of the loss, a logit", framework->logit_held_bytes, MIST_IN_BYTES,
         framework->logit_source},
        {"the same of a vocabulary that ranks share", framework->sliced_held_bytes,
         MIST_IN_BYTES, framework->sliced_source},
        {"casts to 8 bits, an input of a product", cast_bytes(framework, 0),
         MIST_IN_BYTES, framework->cast_source},
        {"casts to 8 bits, a weight", cast_bytes(framework, 1), MIST_IN_BYTES,
         framework->cast_source},
        {"casts to 8 bits, a result's gradient", cast_bytes(framework, 2), MIST_IN_BYTES,
         framework->cast_source},
        {"gradient of a micro-batch, a parameter", framework->accumulate_bytes,
         MIST_IN_BYTES, framework->source},
        {"the same where sums are fp32, a parameter",
         framework->fp32_sum_factor * framework->accumulate_bytes, MIST_IN_BYTES,
         framework->source},
        {"loss, a logit", framework->logit_bytes, MIST_IN_BYTES, framework->logit_source},
        {"memory held beyond what is allocated", framework->held_frac, MIST_AS_FRAC,
         framework->held_source},
        {"doubt", framework->residual_frac, MIST_AS_FRAC, framework->residual_source},
    };

    for (size_t k = 0; k < sizeof constants / sizeof *constants && framework->ops; k++)
        if (constants[k].value > 0 && i-- == 0) {
            *out = constants[k];
            return true;
        }
    return false;
}
