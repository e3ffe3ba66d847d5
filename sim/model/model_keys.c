/* The tables of keys. See model_keys.h. */
#include "sim/model/model_keys.h"

/* clang-format off */
#define AT(member_) offsetof(struct mist_model, member_)
#define SIZE(key_, member_, max_)                                                        \
    {key_, NULL, MIST_KEY_SIZE, false, AT(member_), max_}
#define MAYBE_SIZE(key_, member_, max_)                                                  \
    {key_, NULL, MIST_KEY_SIZE, true, AT(member_), max_}
#define NUMBER(key_, member_)                                                            \
    {key_, NULL, MIST_KEY_NUMBER, true, AT(member_), 0}
#define FLAG(key_, member_)                                                              \
    {key_, NULL, MIST_KEY_FLAG, true, AT(member_), 0}
#define END {NULL, NULL, MIST_KEY_SIZE, false, 0, 0}

static const struct mist_model_key gpt2_keys[] = {
    {"n_positions", "n_ctx", MIST_KEY_SIZE, false, AT(max_seq), MIST_MODEL_MAX_SEQ},
    SIZE("n_embd", hidden, MIST_MODEL_MAX_HIDDEN),
    SIZE("n_layer", n_layers, MIST_MODEL_MAX_LAYERS),
    SIZE("n_head", n_heads, MIST_MODEL_MAX_HIDDEN),
    SIZE("vocab_size", vocab, MIST_MODEL_MAX_VOCAB),
    MAYBE_SIZE("n_inner", ffn, MIST_MODEL_MAX_FFN),
    NUMBER("layer_norm_epsilon", norm_epsilon),
    FLAG("tie_word_embeddings", ties_embeddings),
    END,
};

/* What all but GPT-2 say in the same words. */
#define COMMON                                                                           \
    SIZE("hidden_size", hidden, MIST_MODEL_MAX_HIDDEN),                                  \
    SIZE("num_hidden_layers", n_layers, MIST_MODEL_MAX_LAYERS),                          \
    SIZE("num_attention_heads", n_heads, MIST_MODEL_MAX_HIDDEN),                         \
    SIZE("vocab_size", vocab, MIST_MODEL_MAX_VOCAB),                                     \
    FLAG("tie_word_embeddings", ties_embeddings)
#define GATED                                                                            \
    COMMON,                                                                              \
    SIZE("intermediate_size", ffn, MIST_MODEL_MAX_FFN),                                  \
    NUMBER("rms_norm_eps", norm_epsilon),                                                \
    NUMBER("rope_theta", rope_theta)
#define WINDOW MAYBE_SIZE("sliding_window", window, MIST_MODEL_MAX_SEQ)

static const struct mist_model_key llama_keys[] = {
    GATED,
    MAYBE_SIZE("num_key_value_heads", n_kv_heads, 0),
    MAYBE_SIZE("head_dim", head_dim, MIST_MODEL_MAX_HIDDEN),
    END,
};
static const struct mist_model_key mistral_keys[] = { /* and Qwen2's */
    GATED, WINDOW,
    SIZE("num_key_value_heads", n_kv_heads, 0),
    MAYBE_SIZE("head_dim", head_dim, MIST_MODEL_MAX_HIDDEN),
    END,
};
static const struct mist_model_key qwen3_keys[] = {
    GATED, WINDOW,
    SIZE("num_key_value_heads", n_kv_heads, 0),
    SIZE("head_dim", head_dim, MIST_MODEL_MAX_HIDDEN),
    END,
};
static const struct mist_model_key gemma_keys[] = {
    GATED,
    SIZE("num_key_value_heads", n_kv_heads, 0),
    SIZE("head_dim", head_dim, MIST_MODEL_MAX_HIDDEN),
    END,
};
static const struct mist_model_key neox_keys[] = {
    COMMON,
    SIZE("intermediate_size", ffn, MIST_MODEL_MAX_FFN),
    NUMBER("layer_norm_eps", norm_epsilon),
    {"rotary_emb_base", "rope_theta", MIST_KEY_NUMBER, true, AT(rope_theta), 0},
    END,
};
static const struct mist_model_key nemotron_keys[] = {
    COMMON,
    SIZE("intermediate_size", ffn, MIST_MODEL_MAX_FFN),
    NUMBER("norm_eps", norm_epsilon),
    NUMBER("rope_theta", rope_theta),
    MAYBE_SIZE("num_key_value_heads", n_kv_heads, 0),
    MAYBE_SIZE("head_dim", head_dim, MIST_MODEL_MAX_HIDDEN),
    END,
};
static const struct mist_model_key falcon_keys[] = {
    COMMON,
    MAYBE_SIZE("ffn_hidden_size", ffn, MIST_MODEL_MAX_FFN),
    NUMBER("layer_norm_epsilon", norm_epsilon),
    NUMBER("rope_theta", rope_theta),
    FLAG("bias", has_bias),
    END,
};

#define REFUSED(key_, neutral_, why_)                                                    \
    {key_, MIST_RULE_REFUSED, MIST_KEY_FLAG, neutral_, why_}
#define NOTED(key_, neutral_) {key_, MIST_RULE_NOTED, MIST_KEY_FLAG, neutral_, NULL}
#define NO_DROPOUT(key_) {key_, MIST_RULE_DROPOUT, MIST_KEY_NUMBER, 0, NULL}
#define NO_MORE {NULL, MIST_RULE_NOTED, MIST_KEY_FLAG, 0, NULL}

static const struct mist_model_rule gpt2_rules[] = {
    NOTED("scale_attn_weights", true),
    NOTED("scale_attn_by_inverse_layer_idx", false),
    NOTED("add_cross_attention", false),
    NO_DROPOUT("resid_pdrop"),
    NO_DROPOUT("embd_pdrop"),
    NO_DROPOUT("attn_pdrop"),
    NO_MORE,
};
static const struct mist_model_rule llama_rules[] = {
    NOTED("attention_bias", false),
    NOTED("mlp_bias", false),
    NO_MORE,
};
static const struct mist_model_rule bias_rules[] = {
    NOTED("attention_bias", false),
    NO_MORE,
};
static const struct mist_model_rule no_rules[] = {NO_MORE};
static const struct mist_model_rule neox_rules[] = {
    NOTED("use_parallel_residual", true),
    NOTED("attention_bias", true),
    NO_MORE,
};
static const struct mist_model_rule falcon_rules[] = {
    REFUSED("alibi", false, "falcon is read with RoPE only (falcon-rw models use ALiBi)"),
    REFUSED("parallel_attn", true,
            "falcon blocks run attention and feed-forward side by side"),
    NO_MORE,
};

static const struct mist_activation_word gelus[] = {
    {"gelu_new", false},  {"gelu", true},        {"gelu_pytorch_tanh", false},
    {"gelu_fast", false}, {"gelu_python", true}, {NULL, false},
};
static const struct mist_activation_word silus[] = {
    {"silu", false}, {"swish", false}, {NULL, false}};
static const struct mist_activation_word squared_relus[] = {{"relu2", false},
                                                             {NULL, false}};
/* transformers computes Gemma's "gelu" as the tanh form, too: all its weights want that */
static const struct mist_activation_word gemma_gelus[] = {
    {"gelu_pytorch_tanh", false}, {"gelu", false}, {NULL, false}};

#define RMS(theta_, ties_, window_)                                                      \
    {.norm_epsilon = 1e-6, .rope_theta = theta_, .ties_embeddings = ties_,               \
     .window = window_}

const struct mist_model_type mist_model_types[MIST_N_FAMILIES] = {
    [MIST_FAMILY_GPT] = {
        "gpt2", "GPT2LMHeadModel", gpt2_keys, gpt2_rules, "activation_function", gelus,
        "gelu_new",
        {.norm_epsilon = 1e-5, .has_bias = true, .ties_embeddings = true}},
    [MIST_FAMILY_LLAMA] = {
        "llama", "LlamaForCausalLM", llama_keys, llama_rules, "hidden_act", silus, "silu",
        RMS(1e4, false, 0)},
    [MIST_FAMILY_MISTRAL] = {
        "mistral", "MistralForCausalLM", mistral_keys, no_rules, "hidden_act", silus,
        "silu", RMS(1e4, false, 4096)},
    [MIST_FAMILY_QWEN2] = {
        "qwen2", "Qwen2ForCausalLM", mistral_keys, no_rules, "hidden_act", silus, "silu",
        RMS(1e4, false, 4096)},
    [MIST_FAMILY_QWEN3] = {
        "qwen3", "Qwen3ForCausalLM", qwen3_keys, bias_rules, "hidden_act", silus, "silu",
        RMS(1e4, false, 4096)},
    [MIST_FAMILY_GEMMA] = {
        "gemma", "GemmaForCausalLM", gemma_keys, bias_rules, "hidden_act", gemma_gelus,
        "gelu_pytorch_tanh", RMS(1e4, true, 0)},
    [MIST_FAMILY_NEOX] = {
        "gpt_neox", "GPTNeoXForCausalLM", neox_keys, neox_rules, "hidden_act", gelus,
        "gelu", {.norm_epsilon = 1e-5, .rope_theta = 1e4, .has_bias = true}},
    [MIST_FAMILY_NEMOTRON] = {
        "nemotron", "NemotronForCausalLM", nemotron_keys, llama_rules, "hidden_act",
        squared_relus, "relu2", {.norm_epsilon = 1e-5, .rope_theta = 1e4}},
    [MIST_FAMILY_FALCON] = {
        "falcon", "FalconForCausalLM", falcon_keys, falcon_rules, "activation", gelus,
        "gelu", {.norm_epsilon = 1e-5, .rope_theta = 1e4, .ties_embeddings = true}},
};
/* clang-format on */

const struct mist_model_key *mist_model_key_of(const struct mist_model_type *type,
                                               size_t offset)
{
    for (const struct mist_model_key *key = type->keys; key->key; key++)
        if (key->offset == offset)
            return key;
    return NULL;
}
