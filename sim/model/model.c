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
#include <string.h> /* strcmp, strchr, strlen */

const char *const mist_family_words[MIST_N_FAMILIES + 1] = {"gpt", "llama", "falcon",
                                                            NULL};
const char *const mist_dtype_words[MIST_N_DTYPES + 1] = {"fp32", "bf16", "fp16", NULL};
const char *const mist_dtype_run_words[MIST_N_RUN_DTYPES + 1] = {"fp32", "bf16", NULL};
const char *const mist_framework_words[MIST_N_FRAMEWORKS + 1] = {
    "ours", "megatron", "deepspeed", "torchtitan", NULL};
const char *const mist_attention_ways[MIST_N_ATTENTIONS + 1] = {
    "flash", "fused", "unfused", "flash1", "cudnn", NULL};

const char *mist_family_name(enum mist_family family)
{
    return mist_family_words[family];
}

const char *mist_dtype_name(enum mist_dtype dtype)
{
    return mist_dtype_words[dtype];
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

enum mist_status mist_model_load(const char *spec, struct mist_model *out,
                                 struct mist_err *err)
{
    size_t length = strlen(spec);
    bool is_path =
        strchr(spec, '/') || (length >= 5 && !strcmp(spec + length - 5, ".json"));

    return is_path ? mist_model_load_config(spec, out, err)
                   : mist_model_load_preset(spec, out, err);
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
    if ((int64_t)m->n_heads * m->head_dim != m->hidden)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "model: n_heads %d times head_dim %d is %lld, expected hidden %d", m->n_heads,
            m->head_dim, (long long)((int64_t)m->n_heads * m->head_dim), m->hidden);
    if (m->n_heads % m->n_kv_heads != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: n_kv_heads %d does not divide n_heads %d",
                            m->n_kv_heads, m->n_heads);
    return MIST_OK;
}

static enum mist_status check_family(const struct mist_model *m, struct mist_err *err)
{
    bool is_gpt = m->family == MIST_FAMILY_GPT;

    if (is_gpt && m->max_seq < 1)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: max_seq is %d, expected the number of learned "
                            "positions of a gpt model",
                            m->max_seq);
    if (is_gpt && m->n_kv_heads != m->n_heads)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: n_kv_heads is %d, expected n_heads %d in a gpt model",
                            m->n_kv_heads, m->n_heads);
    if (!is_gpt && m->max_seq != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: max_seq is %d, expected 0: a %s model has no learned "
                            "positions",
                            m->max_seq, mist_family_name(m->family));
    if (!is_gpt && m->head_dim % 2 != 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: head_dim is %d, expected an even number for RoPE",
                            m->head_dim);
    if (m->family == MIST_FAMILY_LLAMA && m->has_bias)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: has_bias is true, expected false in a llama model");
    if (!isfinite(m->rope_theta) || (is_gpt ? m->rope_theta != 0 : m->rope_theta <= 0))
        return mist_err_set(
            err, MIST_ERR_INPUT, "model: rope_theta is %g, expected %s in a %s model",
            m->rope_theta, is_gpt ? "0" : "more than 0", mist_family_name(m->family));
    return MIST_OK;
}

enum mist_status mist_model_check(const struct mist_model *model, struct mist_err *err)
{
    enum mist_status status;

    if ((unsigned)model->family >= MIST_N_FAMILIES)
        return mist_err_set(err, MIST_ERR_INPUT, "model: family %d is unknown",
                            (int)model->family);
    if (!memchr(model->name, 0, sizeof model->name) || !model->name[0])
        return mist_err_set(err, MIST_ERR_INPUT,
                            "model: name is empty or longer than %zu characters",
                            sizeof model->name - 1);
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

int32_t mist_model_n_block_norms(const struct mist_model *model)
{
    bool is_grouped = model->n_kv_heads > 1 && model->n_kv_heads < model->n_heads;

    return model->family == MIST_FAMILY_FALCON && !is_grouped ? 1 : 2;
}
