/*
 * Sizes of a transformer: names, checks, parameter counts. Presets are in
 * model_presets.c, config.json in model_config.c.
 *
 * Parameter counts are closed forms per family (see model.h), checked against published
 * totals (GPT-2 124M, Llama-7B, Llama-3-8B, Falcon-7B and 40B) in
 * tests/unit/test_model.c.
 */
#include "sim/model/model.h"

#include <math.h>   /* isfinite */
#include <stdio.h>  /* snprintf */
#include <string.h> /* strcmp, strchr, strlen */
#include <sys/stat.h>

const char *const mist_family_words[MIST_N_FAMILIES + 1] = {
    "gpt",   "llama", "falcon",   "mistral",  "qwen2",
    "qwen3", "gemma", "gpt_neox", "nemotron", NULL};
const char *const mist_dtype_words[MIST_N_DTYPES + 1] = {"fp32", "bf16", "fp16", NULL};
const char *const mist_dtype_run_words[MIST_N_RUN_DTYPES + 1] = {"fp32", "bf16", NULL};
const char *const mist_framework_words[MIST_N_FRAMEWORKS + 1] = {
    "ours",          "megatron",       "deepspeed",   "torchtitan", "torchtitan-compiled",
    "megatron-2021", "deepspeed-2021", "llm-foundry", NULL};
const char *const mist_attention_ways[MIST_N_ATTENTIONS + 1] = {
    "flash", "fused", "unfused", "flash1", "cudnn", NULL};
const char *const mist_rope_scaling_words[MIST_N_ROPE_SCALINGS + 1] = {
    "default", "linear", "llama3", NULL};

#define LLAMA .has_rms_norm = true, .has_gate = true, .has_free_heads = true
static const struct mist_family_traits traits[MIST_N_FAMILIES] = {
    [MIST_FAMILY_GPT] = {.has_positions = true, .may_have_bias = true},
    [MIST_FAMILY_LLAMA] = {LLAMA},
    [MIST_FAMILY_FALCON] = {.is_parallel = true, .may_have_bias = true},
    [MIST_FAMILY_MISTRAL] = {LLAMA},
    [MIST_FAMILY_QWEN2] = {LLAMA, .has_qkv_bias = true},
    [MIST_FAMILY_QWEN3] = {LLAMA, .has_qk_norm = true},
    [MIST_FAMILY_GEMMA] = {LLAMA, .gates_with_gelu = true, .has_offset_norms = true,
                           .scales_embeddings = true},
    [MIST_FAMILY_NEOX] = {.is_parallel = true,
                          .may_have_bias = true,
                          .may_turn_part = true},
    [MIST_FAMILY_NEMOTRON] = {.has_free_heads = true,
                              .has_offset_norms = true,
                              .squares_relu = true,
                              .may_turn_part = true},
};
#undef LLAMA

const struct mist_family_traits *mist_family_traits(enum mist_family family)
{
    return &traits[family];
}

enum mist_activation mist_model_activation(const struct mist_model *model)
{
    return traits[model->family].squares_relu ? MIST_ACTIVATION_SQUARED_RELU
           : model->has_exact_gelu            ? MIST_ACTIVATION_EXACT_GELU
                                              : MIST_ACTIVATION_GELU;
}

int32_t mist_dtype_weight_bytes(enum mist_dtype dtype)
{
    return dtype == MIST_DTYPE_FP32 ? 4 : 2;
}

int32_t mist_dtype_gradient_bytes(enum mist_dtype gradient_dtype)
{
    return gradient_dtype == MIST_DTYPE_FP32 ? 4 : 2;
}

int32_t mist_dtype_state_bytes(enum mist_dtype dtype)
{
    return dtype == MIST_DTYPE_FP32 ? 8 : 12;
}

static bool is_path(const char *spec)
{
    size_t length = strlen(spec);

    return strchr(spec, '/') || (length >= 5 && !strcmp(spec + length - 5, ".json"));
}

const char *mist_model_path(const char *spec)
{
    struct mist_model preset;

    return spec && (is_path(spec) ||
                    mist_model_load_preset(spec, &preset, NULL) != MIST_OK)
               ? spec
               : NULL;
}

const char *mist_model_file_name(int i)
{
    return i == 0 ? "config.json" : NULL;
}

enum mist_status mist_model_load(const char *spec, struct mist_model *out,
                                 struct mist_err *err)
{
    struct stat info;

    if (!is_path(spec) && mist_model_load_preset(spec, out, err) == MIST_OK)
        return MIST_OK;
    return is_path(spec) || (stat(spec, &info) == 0 && S_ISDIR(info.st_mode))
               ? mist_model_load_config(spec, out, err)
               : MIST_ERR_INPUT;
}

/* ------------------------------------------------------------------------------ check */

static enum mist_status check_range(const char *what, int32_t value, int32_t low,
                                    int32_t high, struct mist_err *err)
{
    if (value < low || value > high)
        return mist_err_set(err, MIST_ERR_INPUT, "model: %s is %d, expected %d to %d",
                            what, value, low, high);
    return MIST_OK;
}

static enum mist_status check_sizes(const struct mist_model *m, struct mist_err *err)
{
    const struct {
        const char *what;
        int32_t value, low, high;
    } sizes[] = {
        {"n_layers", m->n_layers, 1, MIST_MODEL_MAX_LAYERS},
        {"hidden", m->hidden, 1, MIST_MODEL_MAX_HIDDEN},
        {"n_heads", m->n_heads, 1, MIST_MODEL_MAX_HIDDEN},
        {"n_kv_heads", m->n_kv_heads, 1, m->n_heads},
        {"head_dim", m->head_dim, 1, MIST_MODEL_MAX_HIDDEN},
        {"ffn", m->ffn, 1, MIST_MODEL_MAX_FFN},
        {"vocab", m->vocab, 1, MIST_MODEL_MAX_VOCAB},
        {"max_seq", m->max_seq, 0, MIST_MODEL_MAX_SEQ},
        {"rope_original_positions", m->rope_original_positions, 0, MIST_MODEL_MAX_SEQ},
        {"rotary_dim", m->rotary_dim, 0, m->head_dim},
        {"window", m->window, 0, MIST_MODEL_MAX_SEQ},
    };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        enum mist_status status =
            check_range(sizes[i].what, sizes[i].value, sizes[i].low, sizes[i].high, err);
        if (status)
            return status;
    }
    return MIST_OK;
}

static enum mist_status check_heads(const struct mist_model *m, struct mist_err *err)
{
    int64_t width = (int64_t)m->n_heads * m->head_dim;
    bool is_free = traits[m->family].has_free_heads;

    if (is_free ? width > MIST_MODEL_MAX_HIDDEN : width != m->hidden)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: n_heads %d times head_dim %d is %lld, expected %s %d",
                            m->n_heads, m->head_dim, (long long)width,
                            is_free ? "at most" : "hidden",
                            is_free ? (int)MIST_MODEL_MAX_HIDDEN : m->hidden);
    if (m->n_heads % m->n_kv_heads != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: n_kv_heads %d does not divide n_heads %d",
                            m->n_kv_heads, m->n_heads);
    return MIST_OK;
}

static enum mist_status check_positions(const struct mist_model *m, struct mist_err *err)
{
    bool is_learned = traits[m->family].has_positions;
    const char *family = mist_family_words[m->family];

    if (is_learned && m->max_seq < 1)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: max_seq is %d, expected the number of learned "
                            "positions of a %s model",
                            m->max_seq, family);
    if (!is_learned && m->max_seq != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: max_seq is %d, expected 0: a %s model has no learned "
                            "positions",
                            m->max_seq, family);
    if (!isfinite(m->rope_theta) ||
        (is_learned ? m->rope_theta != 0 : m->rope_theta <= 0))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: rope_theta is %g, expected %s in a %s model",
                            m->rope_theta, is_learned ? "0" : "more than 0", family);
    return MIST_OK;
}

/* A head that is turned, and what its frequencies are changed by. */
static enum mist_status check_rope(const struct mist_model *m, struct mist_err *err)
{
    double factor = m->rope_factor, low = m->rope_low_frequency_factor,
           high = m->rope_high_frequency_factor;
    bool has_ramp = m->rope_scaling == MIST_ROPE_LLAMA3;
    bool is_changed = m->rope_scaling != MIST_ROPE_DEFAULT;

    if (traits[m->family].has_positions && (is_changed || m->rotary_dim > 0))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: a %s model has no RoPE to be scaled or cut",
                            mist_family_words[m->family]);
    if (!traits[m->family].has_positions && (m->head_dim % 2 || m->rotary_dim % 2))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: %s is %d, expected an even number for RoPE",
                            m->head_dim % 2 ? "head_dim" : "rotary_dim",
                            m->head_dim % 2 ? m->head_dim : m->rotary_dim);
    if (m->rotary_dim > 0 && !traits[m->family].may_turn_part)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: rotary_dim is %d, expected 0: a %s model turns whole "
                            "heads",
                            m->rotary_dim, mist_family_words[m->family]);
    if ((unsigned)m->rope_scaling >= MIST_N_ROPE_SCALINGS)
        return mist_err_set(err, MIST_ERR_INPUT, "model: rope_scaling %d is unknown",
                            (int)m->rope_scaling);
    if (!isfinite(factor) || (is_changed ? factor < 1 : factor != 0))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: rope_factor is %g, expected %s with rope_scaling %s",
                            factor, is_changed ? "1 or more" : "0",
                            mist_rope_scaling_words[m->rope_scaling]);
    if (has_ramp ? !(low > 0 && low < high && isfinite(high)) : low != 0 || high != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: rope_low_frequency_factor is %g and "
                            "rope_high_frequency_factor %g, expected %s",
                            low, high, has_ramp ? "more than 0 and more than that" : "0");
    if (has_ramp != (m->rope_original_positions > 0))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: rope_original_positions is %d, expected %s",
                            m->rope_original_positions, has_ramp ? "1 or more" : "0");
    return MIST_OK;
}

static enum mist_status check_family(const struct mist_model *m, struct mist_err *err)
{
    bool is_gpt = m->family == MIST_FAMILY_GPT;
    enum mist_status status = check_positions(m, err);

    if (status == MIST_OK)
        status = check_rope(m, err);
    if (status != MIST_OK)
        return status;
    if (is_gpt && m->n_kv_heads != m->n_heads)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: n_kv_heads is %d, expected n_heads %d in a gpt model",
                            m->n_kv_heads, m->n_heads);
    if (m->has_bias && !traits[m->family].may_have_bias)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: has_bias is true, expected false in a %s model",
                            mist_family_words[m->family]);
    if (m->has_exact_gelu &&
        (traits[m->family].has_gate || traits[m->family].squares_relu))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: has_exact_gelu is true, and a %s model has no GELU",
                            mist_family_words[m->family]);
    return MIST_OK;
}

/* Whether it ends within its size. */
static bool is_text(const char *text, size_t size)
{
    return memchr(text, 0, size) != NULL;
}

enum mist_status mist_model_check(const struct mist_model *model, struct mist_err *err)
{
    enum mist_status status;

    if ((unsigned)model->family >= MIST_N_FAMILIES)
        return mist_err_set(err, MIST_ERR_INPUT, "model: family %d is unknown",
                            (int)model->family);
    if (!is_text(model->name, sizeof model->name) || !model->name[0])
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: name is empty or longer than %zu characters",
                            sizeof model->name - 1);
    if (!is_text(model->unsupported, sizeof model->unsupported))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: unsupported is longer than %zu characters",
                            sizeof model->unsupported - 1);
    if ((status = check_sizes(model, err)) || (status = check_heads(model, err)) ||
        (status = check_family(model, err)))
        return status;
    if (!(model->norm_epsilon > 0 && model->norm_epsilon < 1))
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: norm_epsilon is %g, expected more than 0 and less "
                            "than 1",
                            model->norm_epsilon);
    return MIST_OK;
}

const char *mist_model_obstacles(const struct mist_model *model, int32_t seq,
                                 char out[MIST_MODEL_OBSTACLES_BYTES])
{
    bool has_window = model->window > 0 && model->window < seq;

    snprintf(out, MIST_MODEL_OBSTACLES_BYTES, "%s%s%s",
             has_window ? "sliding_window" : "",
             has_window && model->unsupported[0] ? ", " : "", model->unsupported);
    return out;
}

void mist_model_warn(const struct mist_model *model, int32_t seq,
                     const struct mist_messages *messages)
{
    char obstacles[MIST_MODEL_OBSTACLES_BYTES];

    if (mist_model_obstacles(model, seq, obstacles)[0])
        mist_message(messages, "%s: not in the prices, and refused by mist-exec: %s",
                     model->name, obstacles);
    if (model->dropout[0])
        mist_message(
            messages,
            "%s: its dropout (%s) is left out of our plans and of --target (the masks "
            "of others: mist-sim --framework megatron)",
            model->name, model->dropout);
}

int32_t mist_model_n_block_norms(const struct mist_model *model)
{
    bool is_grouped = model->n_kv_heads > 1 && model->n_kv_heads < model->n_heads;

    return model->family == MIST_FAMILY_FALCON && !is_grouped ? 1 : 2;
}
