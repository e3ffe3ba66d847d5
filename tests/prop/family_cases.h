/*
 * The models of test_families.c: config.json, tensors as transformers' modules have them,
 * and the naive model of the same.
 */
#ifndef MIST_TESTS_PROP_FAMILY_CASES_H
#define MIST_TESTS_PROP_FAMILY_CASES_H

#include "tests/unit/naive_model.h"
#include "tests/unit/test.h"

enum { SEQ = 9, BATCH = 2, LAYERS = 2, VOCAB = 37 };

/* ---------------------------------------------------------------------------- tensors */

/* What a tensor there holds of the naive model's, and in what order. */
enum part { WHOLE, Q_ROWS, K_ROWS, V_ROWS, GATE_ROWS, UP_ROWS, TRANSPOSED, BY_GROUPS };

struct row {
    const char *name; /* behind the prefix and the layer; NULL ends a list */
    enum naive_tensor to;
    enum part part;
};

#define LAYER_NORM(name, to)                                                             \
    {name ".weight", NAIVE_##to##_W, WHOLE},                                             \
    {                                                                                    \
        name ".bias", NAIVE_##to##_B, WHOLE                                              \
    }
#define LINEAR(name, to, part)                                                           \
    {name ".weight", NAIVE_##to##_W, part},                                              \
    {                                                                                    \
        name ".bias", NAIVE_##to##_B, part                                               \
    }

static const struct row gpt2_rows[] = {
    {"wte.weight", NAIVE_WTE, WHOLE},
    {"wpe.weight", NAIVE_WPE, WHOLE},
    LAYER_NORM("ln_1", NORM1),
    {"attn.c_attn.weight", NAIVE_QKV_W, TRANSPOSED},
    {"attn.c_attn.bias", NAIVE_QKV_B, WHOLE},
    {"attn.c_proj.weight", NAIVE_PROJ_W, TRANSPOSED},
    {"attn.c_proj.bias", NAIVE_PROJ_B, WHOLE},
    LAYER_NORM("ln_2", NORM2),
    {"mlp.c_fc.weight", NAIVE_FC1_W, TRANSPOSED},
    {"mlp.c_fc.bias", NAIVE_FC1_B, WHOLE},
    {"mlp.c_proj.weight", NAIVE_FC2_W, TRANSPOSED},
    {"mlp.c_proj.bias", NAIVE_FC2_B, WHOLE},
    LAYER_NORM("ln_f", FINAL),
    {NULL, NAIVE_WTE, WHOLE},
};

#define LLAMA_ROWS                                                                       \
    {"embed_tokens.weight", NAIVE_WTE, WHOLE},                                           \
        {"input_layernorm.weight", NAIVE_NORM1_W, WHOLE},                                \
        {"self_attn.q_proj.weight", NAIVE_QKV_W, Q_ROWS},                                \
        {"self_attn.k_proj.weight", NAIVE_QKV_W, K_ROWS},                                \
        {"self_attn.v_proj.weight", NAIVE_QKV_W, V_ROWS},                                \
        {"self_attn.o_proj.weight", NAIVE_PROJ_W, WHOLE},                                \
        {"post_attention_layernorm.weight", NAIVE_NORM2_W, WHOLE},                       \
        {"mlp.gate_proj.weight", NAIVE_FC1_W, GATE_ROWS},                                \
        {"mlp.up_proj.weight", NAIVE_FC1_W, UP_ROWS},                                    \
        {"mlp.down_proj.weight", NAIVE_FC2_W, WHOLE},                                    \
    {                                                                                    \
        "norm.weight", NAIVE_FINAL_W, WHOLE                                              \
    }

static const struct row llama_rows[] = {
    LLAMA_ROWS,
    {"lm_head.weight", NAIVE_HEAD_W, WHOLE},
    {NULL, NAIVE_WTE, WHOLE},
};
static const struct row qwen2_rows[] = {
    LLAMA_ROWS,
    {"self_attn.q_proj.bias", NAIVE_QKV_B, Q_ROWS},
    {"self_attn.k_proj.bias", NAIVE_QKV_B, K_ROWS},
    {"self_attn.v_proj.bias", NAIVE_QKV_B, V_ROWS},
    {NULL, NAIVE_WTE, WHOLE},
};
static const struct row qwen3_rows[] = {
    LLAMA_ROWS,
    {"self_attn.q_norm.weight", NAIVE_Q_NORM_W, WHOLE},
    {"self_attn.k_norm.weight", NAIVE_K_NORM_W, WHOLE},
    {"lm_head.weight", NAIVE_HEAD_W, WHOLE},
    {NULL, NAIVE_WTE, WHOLE},
};
static const struct row neox_rows[] = {
    {"embed_in.weight", NAIVE_WTE, WHOLE},
    LAYER_NORM("input_layernorm", NORM1),
    LAYER_NORM("post_attention_layernorm", NORM2),
    LINEAR("attention.query_key_value", QKV, BY_GROUPS),
    LINEAR("attention.dense", PROJ, WHOLE),
    LINEAR("mlp.dense_h_to_4h", FC1, WHOLE),
    LINEAR("mlp.dense_4h_to_h", FC2, WHOLE),
    LAYER_NORM("final_layer_norm", FINAL),
    {"embed_out.weight", NAIVE_HEAD_W, WHOLE},
    {NULL, NAIVE_WTE, WHOLE},
};
static const struct row nemotron_rows[] = {
    {"embed_tokens.weight", NAIVE_WTE, WHOLE},
    LAYER_NORM("input_layernorm", NORM1),
    {"self_attn.q_proj.weight", NAIVE_QKV_W, Q_ROWS},
    {"self_attn.k_proj.weight", NAIVE_QKV_W, K_ROWS},
    {"self_attn.v_proj.weight", NAIVE_QKV_W, V_ROWS},
    {"self_attn.o_proj.weight", NAIVE_PROJ_W, WHOLE},
    LAYER_NORM("post_attention_layernorm", NORM2),
    {"mlp.up_proj.weight", NAIVE_FC1_W, WHOLE},
    {"mlp.down_proj.weight", NAIVE_FC2_W, WHOLE},
    LAYER_NORM("norm", FINAL),
    {"lm_head.weight", NAIVE_HEAD_W, WHOLE},
    {NULL, NAIVE_WTE, WHOLE},
};
/* Tied; one norm, or one for each branch. */
#define FALCON_ROWS                                                                      \
    {"word_embeddings.weight", NAIVE_WTE, WHOLE},                                        \
        LINEAR("self_attention.query_key_value", QKV, BY_GROUPS),                        \
        LINEAR("self_attention.dense", PROJ, WHOLE),                                     \
        LINEAR("mlp.dense_h_to_4h", FC1, WHOLE),                                         \
        LINEAR("mlp.dense_4h_to_h", FC2, WHOLE), LAYER_NORM("ln_f", FINAL)
static const struct row falcon_rows[] = {
    FALCON_ROWS,
    LAYER_NORM("input_layernorm", NORM1),
    {NULL, NAIVE_WTE, WHOLE},
};
static const struct row new_falcon_rows[] = {
    FALCON_ROWS,
    LAYER_NORM("ln_attn", NORM1),
    LAYER_NORM("ln_mlp", NORM2),
    {NULL, NAIVE_WTE, WHOLE},
};

/* ------------------------------------------------------------------------------ cases */

struct family_case {
    const char *name, *config, *prefix, *layers;
    const struct row *rows;
    struct naive_config naive;
};

/* Of the Llama 3.1 case, filled by main(). */
static double ramp[4];
static const double fourths[] = {0.25, 0.25 / 21.544346900318837,
                                 0.25 / 464.15888336127789}; /* 10000^(-j/3) / 4 */

#define LLAMA_SIZES                                                                      \
    "\"hidden_size\":24,\"intermediate_size\":20,\"num_hidden_layers\":2,"               \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"vocab_size\":37,"             \
    "\"rms_norm_eps\":1e-5"
#define RAMP                                                                             \
    "\"factor\":8.0,\"low_freq_factor\":0.5,\"high_freq_factor\":2.0,"                   \
    "\"original_max_position_embeddings\":16"
#define FALCON_SIZES                                                                     \
    "\"model_type\":\"falcon\",\"hidden_size\":24,\"ffn_hidden_size\":20,"               \
    "\"num_hidden_layers\":2,\"num_attention_heads\":6,\"vocab_size\":37"
#define NEOX_SIZES                                                                       \
    "\"model_type\":\"gpt_neox\",\"hidden_size\":24,\"intermediate_size\":20,"           \
    "\"num_hidden_layers\":2,\"num_attention_heads\":3,\"vocab_size\":37"
#define NEMOTRON_SIZES                                                                   \
    "\"model_type\":\"nemotron\",\"hidden_size\":24,\"intermediate_size\":20,"           \
    "\"num_hidden_layers\":2,\"num_attention_heads\":4,\"num_key_value_heads\":2,"       \
    "\"vocab_size\":37"
/* What differs between the naive models: the last are members of struct naive_variant. */
#define CONFIG(family, heads, kv_heads, has_bias, ties_embeddings, theta, ...)           \
    {                                                                                    \
        NAIVE_##family, LAYERS, 24, heads, kv_heads, 20, VOCAB, SEQ, has_bias,           \
            ties_embeddings, 1e-5, theta,                                                \
        {                                                                                \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define AS_LLAMA(theta, ...) CONFIG(LLAMA, 4, 2, 0, 0, theta, __VA_ARGS__)

static const struct family_case cases[] = {
    {"GPT-2, erf",
     "\"model_type\":\"gpt2\",\"n_positions\":9,\"n_embd\":24,\"n_layer\":2,\"n_head\":4,"
     "\"n_inner\":20,\"vocab_size\":37,\"activation_function\":\"gelu\"",
     "transformer.", "h", gpt2_rows, CONFIG(GPT, 4, 4, 1, 1, 0, .has_exact_gelu = 1)},
    {"Llama 3.1",
     "\"model_type\":\"llama\"," LLAMA_SIZES ",\"head_dim\":8,\"rope_theta\":50.0,"
     "\"rope_scaling\":{\"rope_type\":\"llama3\"," RAMP "}",
     "model.", "layers", llama_rows, AS_LLAMA(50, 0, 0, 0, 8, 0, ramp, 0, 0, 0)},
    {"Llama 3.1, newer keys",
     "\"model_type\":\"llama\"," LLAMA_SIZES ",\"head_dim\":8,"
     "\"rope_parameters\":{\"rope_type\":\"llama3\",\"rope_theta\":50.0," RAMP "}",
     "model.", "layers", llama_rows, AS_LLAMA(50, 0, 0, 0, 8, 0, ramp, 0, 0, 0)},
    {"Llama, linear",
     "\"model_type\":\"llama\"," LLAMA_SIZES ","
     "\"rope_scaling\":{\"type\":\"linear\",\"factor\":4.0}",
     "model.", "layers", llama_rows, AS_LLAMA(10000, 0, 0, 0, 0, 0, fourths, 0, 0, 0)},
    {"Mistral",
     "\"model_type\":\"mistral\"," LLAMA_SIZES ",\"head_dim\":10,"
     "\"sliding_window\":null,\"rope_theta\":1000.0",
     "model.", "layers", llama_rows, AS_LLAMA(1000, 0, 0, 0, 10, 0, NULL, 0, 0, 0)},
    {"Mistral, a window that is wide enough",
     "\"model_type\":\"mistral\"," LLAMA_SIZES ",\"sliding_window\":9", "model.",
     "layers", llama_rows, AS_LLAMA(10000, 0, 0, 0, 0, 0, NULL, 0, 0, 0)},
    {"Gemma",
     "\"model_type\":\"gemma\"," LLAMA_SIZES ",\"head_dim\":10,"
     "\"hidden_act\":\"gelu_pytorch_tanh\"",
     "model.", "layers", llama_rows,
     CONFIG(LLAMA, 4, 2, 0, 1, 10000, .head_dim = 10, .is_gemma = 1)},
    {"Qwen 3", "\"model_type\":\"qwen3\"," LLAMA_SIZES ",\"head_dim\":10", "model.",
     "layers", qwen3_rows, AS_LLAMA(10000, 0, 0, 0, 10, 0, NULL, 1, 0, 0)},
    {"Qwen 2",
     "\"model_type\":\"qwen2\"," LLAMA_SIZES ",\"tie_word_embeddings\":true,"
     "\"use_sliding_window\":false,\"sliding_window\":4,\"rope_theta\":100.0",
     "model.", "layers", qwen2_rows, CONFIG(LLAMA, 4, 2, 0, 1, 100, .has_qkv_bias = 1)},
    {"GPT-NeoX", NEOX_SIZES ",\"rotary_pct\":0.5,\"rotary_emb_base\":100", "gpt_neox.",
     "layers", neox_rows,
     CONFIG(FALCON, 3, 3, 1, 0, 100, .has_exact_gelu = 1, .has_two_norms = 1,
            .rotary_dim = 4)},
    {"GPT-NeoX, a quarter, tanh", NEOX_SIZES ",\"hidden_act\":\"gelu_new\"", "gpt_neox.",
     "layers", neox_rows,
     CONFIG(FALCON, 3, 3, 1, 0, 10000, .has_two_norms = 1, .rotary_dim = 2)},
    {"Nemotron", NEMOTRON_SIZES ",\"head_dim\":8", "model.", "layers", nemotron_rows,
     CONFIG(GPT, 4, 2, 0, 0, 10000, .head_dim = 8, .rotary_dim = 4, .is_nemotron = 1)},
    {"Nemotron, whole heads",
     NEMOTRON_SIZES ",\"partial_rotary_factor\":1.0,\"hidden_act\":\"relu2\"", "model.",
     "layers", nemotron_rows, CONFIG(GPT, 4, 2, 0, 0, 10000, .is_nemotron = 1)},
    {"Falcon, one key", FALCON_SIZES, "transformer.", "h", falcon_rows,
     CONFIG(FALCON, 6, 1, 0, 1, 10000, .has_exact_gelu = 1)},
    {"Falcon, all heads", FALCON_SIZES ",\"multi_query\":false,\"bias\":true",
     "transformer.", "h", falcon_rows,
     CONFIG(FALCON, 6, 6, 1, 1, 10000, .has_exact_gelu = 1)},
    {"Falcon, groups",
     FALCON_SIZES ",\"new_decoder_architecture\":true,"
                  "\"num_kv_heads\":2",
     "transformer.", "h", new_falcon_rows,
     CONFIG(FALCON, 6, 2, 0, 1, 10000, .has_exact_gelu = 1)},
};
enum { N_FAMILY_CASES = sizeof cases / sizeof *cases };

/* Llama 3.1's frequencies by wave lengths, as transformers computes them. */
static inline void fill_ramp(void)
{
    const double factor = 8, low = 0.5, high = 2, original = 16;

    for (int j = 0; j < 4; j++) {
        double frequency = 1 / pow(50, 2.0 * j / 8);
        double wave = 2 * acos(-1.0) / frequency;
        double smooth = (original / wave - low) / (high - low);
        ramp[j] = wave < original / high ? frequency
                  : wave > original / low
                      ? frequency / factor
                      : (1 - smooth) * frequency / factor + smooth * frequency;
    }
    /* one that stays, one between, one that is slowed down */
    assert_true(ramp[0] == 1 && ramp[3] < ramp[2] && ramp[1] < 0.37 && ramp[1] > 0.05);
}

#endif
