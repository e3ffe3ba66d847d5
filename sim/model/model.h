/*
 * The transformer to train: its dimensions, from a preset or a Hugging Face config.json.
 *
 * A model is a sequence of modules: 0 = embedding, 1..n_layers = blocks, n_layers + 1 =
 * head (final norm, projection to the vocabulary, cross-entropy). What a module computes
 * is in catalog.h; here are only its sizes.
 *
 * What a config.json asks for and our blocks don't compute is kept by its key: such a
 * model can be planned, without the price of it, and is refused when it is to be trained.
 *
 * Left out: dropout (0), mixtures of experts.
 */
#ifndef MIST_SIM_MODEL_H
#define MIST_SIM_MODEL_H

#include "core/message.h"
#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

enum mist_family {
    MIST_FAMILY_GPT,     /* learned positions, LayerNorm, GELU */
    MIST_FAMILY_LLAMA,   /* RoPE, RMSNorm, SwiGLU, grouped-query attention */
    MIST_FAMILY_FALCON,  /* parallel block, LayerNorm, GELU, RoPE, multi-query */
    MIST_FAMILY_MISTRAL, /* Llama's blocks */
    MIST_FAMILY_QWEN2,   /* Llama's, with biases of q, k and v */
    MIST_FAMILY_QWEN3,   /* Llama's, with norms of the heads of q and k */
    MIST_FAMILY_GEMMA, /* Llama's, with GeGLU, 1 + the norms' weights, scaled embeddings */
    MIST_FAMILY_NEOX,  /* Falcon's with two norms; RoPE turns a part of each head */
    MIST_FAMILY_NEMOTRON, /* RoPE of a part, LayerNorm of 1 + its weights, squared ReLU,
                             grouped-query attention */
    MIST_N_FAMILIES
};

/* What all models of a family have in common. */
struct mist_family_traits {
    bool has_positions;  /* learned; else RoPE */
    bool has_rms_norm;   /* which has no bias; else LayerNorm */
    bool has_gate;       /* of the feed-forward layer: SwiGLU; else no gate, and GELU */
    bool is_parallel;    /* attention and feed-forward layer side by side */
    bool has_free_heads; /* n_heads * head_dim need not be hidden */
    bool may_have_bias;
    bool has_qkv_bias; /* without the other biases */
    bool has_qk_norm;
    bool gates_with_gelu;   /* GeGLU, the tanh form of GELU */
    bool squares_relu;      /* max(0, x)^2 instead of GELU */
    bool has_offset_norms;  /* of 1 + their weights */
    bool scales_embeddings; /* by the root of hidden */
    bool may_turn_part;     /* of a head, by RoPE (rotary_dim) */
};

/* How the frequencies of RoPE are changed for longer sequences. */
enum mist_rope_scaling {
    MIST_ROPE_DEFAULT,
    MIST_ROPE_LINEAR, /* positions / factor (Chen et al. 2023) */
    MIST_ROPE_LLAMA3, /* low frequencies / factor, a ramp up to the high ones */
    MIST_N_ROPE_SCALINGS
};

/* What a feed-forward layer without a gate has between its products. */
enum mist_activation {
    MIST_ACTIVATION_GELU,         /* the tanh form */
    MIST_ACTIVATION_EXACT_GELU,   /* by the error function */
    MIST_ACTIVATION_SQUARED_RELU, /* So et al. 2021 */
    MIST_N_ACTIVATIONS
};

enum { MIST_MODEL_DROPOUT_BYTES = 96 };

struct mist_model {
    char name[64];
    enum mist_family family;
    int32_t n_layers;   /* blocks */
    int32_t hidden;     /* width of the residual stream */
    int32_t n_heads;    /* query heads */
    int32_t n_kv_heads; /* key and value heads; divides n_heads */
    int32_t head_dim;   /* where heads are not free n_heads * head_dim is hidden */
    int32_t ffn;        /* width of the feed-forward layer */
    int32_t vocab;      /* rows of the embedding as the model defines it */
    int32_t max_seq;    /* learned positions; 0 when there are none */
    bool has_bias; /* biases in the linear layers of the blocks (never in the head) */
    bool ties_embeddings; /* head shares the embedding's weight */
    double norm_epsilon;  /* added to the variance, in (0, 1) */
    double rope_theta;    /* base of the RoPE frequencies; 0 without RoPE */
    enum mist_rope_scaling rope_scaling;
    double rope_factor; /* 0 by default; the rest: of llama3 alone */
    double rope_low_frequency_factor, rope_high_frequency_factor;
    int32_t rope_original_positions; /* those of the pre-training */
    int32_t rotary_dim;  /* elements of a head that RoPE turns, even; 0: all */
    int32_t window;      /* keys that a query sees at most; 0: all before it */
    bool has_exact_gelu; /* by the error function; else its tanh form */
    char unsupported
        [128]; /* keys of a config.json that ask for something else, by commas */
    /* Keys of a config.json that ask for dropout, by commas: we train and price without.
     * Not in plans. */
    char dropout[MIST_MODEL_DROPOUT_BYTES];
};

/*
 * Limits of mist_model_check(). Together they keep every size of a model, at 16 bytes a
 * parameter, below 2^63.
 */
enum {
    MIST_MODEL_MAX_LAYERS = 1 << 13,
    MIST_MODEL_MAX_HIDDEN = 1 << 20,
    MIST_MODEL_MAX_FFN = 1 << 22,
    MIST_MODEL_MAX_VOCAB = 1 << 24,
    MIST_MODEL_MAX_SEQ = 1 << 26,
};

/* Number format of the training run: weights, gradients and activations. The first
 * MIST_N_RUN_DTYPES can be run; fp16, with loss scaling, is predicted. */
enum mist_dtype { MIST_DTYPE_FP32, MIST_DTYPE_BF16, MIST_DTYPE_FP16, MIST_N_DTYPES };
enum { MIST_N_RUN_DTYPES = MIST_DTYPE_FP16 };

/* Whose programs train: how other frameworks do it is in framework.h. */
enum mist_framework_name {
    MIST_FRAMEWORK_OURS,
    MIST_FRAMEWORK_MEGATRON,
    MIST_FRAMEWORK_DEEPSPEED,
    MIST_FRAMEWORK_TORCHTITAN,
    MIST_FRAMEWORK_TORCHTITAN_COMPILED, /* training.compile */
    MIST_FRAMEWORK_MEGATRON_2021,
    MIST_FRAMEWORK_DEEPSPEED_2021,
    MIST_FRAMEWORK_LLM_FOUNDRY, /* whose arguments are not read */
    MIST_N_FRAMEWORKS
};

/* How attention is computed: in one kernel, without scores in memory, or by matrix products
 * with kernels for softmax and dropout between them: one for scale, mask and softmax, or
 * one for each. One kernel is ours or, of other frameworks, FlashAttention-2 (FLASH), that
 * of 2022, also Triton's (FLASH1), or cuDNN's. */
enum mist_attention {
    MIST_ATTENTION_FLASH,
    MIST_ATTENTION_FUSED,
    MIST_ATTENTION_UNFUSED,
    MIST_ATTENTION_FLASH1,
    MIST_ATTENTION_FLASH_CUDNN,
    MIST_N_ATTENTIONS
};

/* "gpt", "llama", "falcon", ..; "fp32", "bf16", "fp16": all of them in the order of their
 * values, then NULL. */
extern const char *const mist_family_words[], *const mist_dtype_words[];
extern const char *const mist_framework_words[], *const mist_attention_ways[];
extern const char *const mist_rope_scaling_words[]; /* "default", "linear", "llama3" */

const struct mist_family_traits *mist_family_traits(enum mist_family family);

/* Of a model whose feed-forward layer has no gate. */
enum mist_activation mist_model_activation(const struct mist_model *model);

/* The first MIST_N_RUN_DTYPES of mist_dtype_words, then NULL. */
extern const char *const mist_dtype_run_words[];

/*
 * Bytes per parameter of the weights computed with, of their gradients (by the format of
 * those), and of the optimizer's state (AdamW: two fp32 moments, and with two-byte weights
 * also their fp32 master copy): fp32 4 + 4 + 8 = 16; bf16 and fp16 2 + 4 + 12 = 18, or 16
 * where gradients have two bytes, too (they are added up over micro-batches and ranks, so
 * they are fp32 unless the job says otherwise).
 */
int32_t mist_dtype_weight_bytes(enum mist_dtype dtype);
int32_t mist_dtype_gradient_bytes(enum mist_dtype gradient_dtype);
int32_t mist_dtype_state_bytes(enum mist_dtype dtype);

/*
 * Presets, in the order of the table in model_presets.c, where every row says its source:
 * gpt3-demo, gpt3-125m .. gpt3-175b, gpt2 .. gpt2-xl, llama-1.3b .. llama3-405b,
 * falcon-1.3b .. falcon-40b.
 *
 * Names: a size that the Mist paper and a published model share belongs to the published
 * one (llama-7b, llama-13b, falcon-7b: published vocabulary). The paper's rows,
 * vocabulary 50304, are llama-6.7b, llama-13b-mist and falcon-6.7b. gpt3-1.3b .. gpt3-22b
 * are the paper's (no biases); the other gpt3 rows are Brown et al.'s (biases). All gpt3
 * heads are untied. Returns the name of preset 0, 1, .., static; NULL behind the last.
 */
const char *mist_model_preset_name(int32_t i_preset);

/*
 * Loads a preset. Aliases (gpt3-2.6b, gpt3-7b, llama-2.6b, llama-405b, falcon-2.6b) are
 * accepted; out->name is the preset's. MIST_ERR_INPUT: no such preset (the message lists
 * them).
 */
MIST_MUST_CHECK enum mist_status
mist_model_load_preset(const char *name, struct mist_model *out, struct mist_err *err);

/*
 * Reads a Hugging Face config.json by the tables in model_keys.h (model_type gpt2, llama,
 * mistral, qwen2, qwen3, gemma, gpt_neox, falcon). Foreign keys are ignored and missing
 * ones named. What would need other dimensions (experts, ALiBi, sequential Falcon blocks,
 * other activations) is refused; what changes numbers alone is listed in
 * out->unsupported. out->name is the file's name without .json or, when that is "config",
 * its folder's.
 *
 * out is filled on MIST_OK, untouched otherwise; it has passed mist_model_check().
 * MIST_ERR_IO: unreadable; MIST_ERR_INPUT: err has path and, where known, line and
 * column.
 */
MIST_MUST_CHECK enum mist_status
mist_model_load_config(const char *path, struct mist_model *out, struct mist_err *err);

/* What mist_model_load() reads: spec, or NULL where that is a preset, or NULL. */
const char *mist_model_path(const char *spec);

/* The name of file i that it reads in a folder, "config.json"; NULL behind the last. */
const char *mist_model_file_name(int i);

/* spec is a preset's name or the path of a config.json (ends in .json) or of a folder with
 * one. A name without '/' is that of a preset first. */
MIST_MUST_CHECK enum mist_status mist_model_load(const char *spec, struct mist_model *out,
                                                 struct mist_err *err);

/*
 * Checks the dimensions against one another and against the limits above: heads times
 * their width is hidden, kv heads divide heads, learned positions or RoPE as the family
 * has them. MIST_ERR_INPUT names the dimension, its value and the bound.
 */
MIST_MUST_CHECK enum mist_status mist_model_check(const struct mist_model *model,
                                                  struct mist_err *err);

/*
 * What of the model, trained on sequences of this length, the executor does not compute:
 * keys of its config.json, with commas between. Returns out, empty where there is nothing.
 */
enum { MIST_MODEL_OBSTACLES_BYTES = 256 };
const char *mist_model_obstacles(const struct mist_model *model, int32_t seq,
                                 char out[MIST_MODEL_OBSTACLES_BYTES]);

/* Says so on stderr, if there is anything: it is in no price either. */
void mist_model_warn(const struct mist_model *model, int32_t seq,
                     const struct mist_messages *messages);

/*
 * Radians per position by which RoPE turns elements j and j + head_dim / 2 of a head (0 <=
 * j < head_dim / 2); 0 for those behind rotary_dim / 2. Sources: rope.c.
 */
double mist_model_rope_frequency(const struct mist_model *model, int32_t j);

/*
 * Norms in front of a block's attention and feed-forward layers: 2, but 1 in a parallel
 * Falcon block, which feeds both from one norm; Falcon's grouped-query variant (40B; 1 <
 * kv heads < heads) has 2 again, as GPT-NeoX. The final norm is not counted.
 */
int32_t mist_model_n_block_norms(const struct mist_model *model);

#endif
