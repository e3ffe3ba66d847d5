/*
 * Models from a Hugging Face config.json: gpt2, llama, falcon.
 *
 * Keys and defaults are those of transformers' GPT2Config, LlamaConfig and FalconConfig;
 * sizes have no default here although transformers gives them some (a config without
 * hidden_size is a mistake, not a wish for the 7B model). What would compute something
 * else than our blocks is refused by name. RoPE scaling and dropout are ignored: they
 * change no shape.
 */
#include "core/json.h"
#include "sim/model/model.h"

#include <math.h>   /* INFINITY */
#include <stdio.h>  /* snprintf */
#include <string.h> /* strrchr */

/* A required size, 1 .. max. */
static enum mist_status get_size(const struct mist_json *root, const char *key,
                                 int32_t max, int32_t *out, struct mist_err *err)
{
    int64_t value = 0;
    enum mist_status status =
        mist_json_get_int64(root, key, MIST_JSON_REQUIRED, 1, max, &value, err);

    if (!status)
        *out = (int32_t)value;
    return status;
}

/* An optional size; out keeps its value when the key is missing or null. */
static enum mist_status get_optional_size(const struct mist_json *root, const char *key,
                                          int32_t max, int32_t *out, struct mist_err *err)
{
    return mist_json_has(root, key) ? get_size(root, key, max, out, err) : MIST_OK;
}

static enum mist_status get_optional_double(const struct mist_json *root, const char *key,
                                            double *out, struct mist_err *err)
{
    return mist_json_get_double(root, key, MIST_JSON_OPTIONAL, 0, INFINITY, out, err);
}

/* Refuses a flag that our blocks can't follow; missing means accepted. */
static enum mist_status require_flag(const struct mist_json *root, const char *key,
                                     bool accepted, const char *why, struct mist_err *err)
{
    bool value = accepted;
    enum mist_status status =
        mist_json_get_bool(root, key, MIST_JSON_OPTIONAL, &value, err);

    if (status || value == accepted)
        return status;
    return mist_json_fail_key(root, key, MIST_ERR_INPUT, err,
                              "%s: %s is not supported: %s", key,
                              value ? "true" : "false", why);
}

/* Refuses an activation function that does not begin with the accepted word. */
static enum mist_status require_activation(const struct mist_json *root, const char *key,
                                           const char *accepted, struct mist_err *err)
{
    const char *name = accepted;
    enum mist_status status =
        mist_json_get_string(root, key, MIST_JSON_OPTIONAL, &name, err);

    if (status || !strncmp(name, accepted, strlen(accepted)))
        return status;
    return mist_json_fail_key(root, key, MIST_ERR_INPUT, err,
                              "%s: \"%.60s\" is not supported, expected %s", key, name,
                              accepted);
}

/*
 * Width of a head when the config does not give it: hidden / heads, which must be whole.
 */
static enum mist_status derive_head_dim(const struct mist_json *root,
                                        const char *heads_key, struct mist_model *m,
                                        struct mist_err *err)
{
    if (m->hidden % m->n_heads != 0)
        return mist_json_fail_key(root, heads_key, MIST_ERR_INPUT, err,
                                  "%s: %d does not divide the hidden size %d", heads_key,
                                  m->n_heads, m->hidden);
    m->head_dim = m->hidden / m->n_heads;
    return MIST_OK;
}

/* ------------------------------------------------------------------------- families */

static enum mist_status read_gpt2(const struct mist_json *root, struct mist_model *m,
                                  struct mist_err *err)
{
    enum mist_status s;
    const char *positions = mist_json_has(root, "n_positions") ? "n_positions" : "n_ctx";

    m->family = MIST_FAMILY_GPT;
    m->has_bias = true;
    m->ties_embeddings = true;
    m->norm_epsilon = 1e-5;
    if (!mist_json_has(root, positions))
        return mist_json_fail(root, MIST_ERR_INPUT, err,
                              "missing key \"n_positions\" (or \"n_ctx\")");
    if ((s = get_size(root, "n_embd", MIST_MODEL_MAX_HIDDEN, &m->hidden, err)) ||
        (s = get_size(root, "n_layer", MIST_MODEL_MAX_LAYERS, &m->n_layers, err)) ||
        (s = get_size(root, "n_head", MIST_MODEL_MAX_HIDDEN, &m->n_heads, err)) ||
        (s = get_size(root, positions, MIST_MODEL_MAX_SEQ, &m->max_seq, err)) ||
        (s = get_size(root, "vocab_size", MIST_MODEL_MAX_VOCAB, &m->vocab, err)) ||
        (s = derive_head_dim(root, "n_head", m, err)))
        return s;
    m->n_kv_heads = m->n_heads;
    m->ffn = 4 * m->hidden;
    if ((s = get_optional_size(root, "n_inner", MIST_MODEL_MAX_FFN, &m->ffn, err)) ||
        (s = get_optional_double(root, "layer_norm_epsilon", &m->norm_epsilon, err)) ||
        (s = require_activation(root, "activation_function", "gelu", err)))
        return s;
    return mist_json_get_bool(root, "tie_word_embeddings", MIST_JSON_OPTIONAL,
                              &m->ties_embeddings, err);
}

static enum mist_status read_llama(const struct mist_json *root, struct mist_model *m,
                                   struct mist_err *err)
{
    const char *no_bias = "linear layers of llama blocks have no bias";
    enum mist_status s;

    m->family = MIST_FAMILY_LLAMA;
    m->norm_epsilon = 1e-6;
    m->rope_theta = 1e4;
    if ((s = get_size(root, "hidden_size", MIST_MODEL_MAX_HIDDEN, &m->hidden, err)) ||
        (s = get_size(root, "intermediate_size", MIST_MODEL_MAX_FFN, &m->ffn, err)) ||
        (s = get_size(root, "num_hidden_layers", MIST_MODEL_MAX_LAYERS, &m->n_layers,
                      err)) ||
        (s = get_size(root, "num_attention_heads", MIST_MODEL_MAX_HIDDEN, &m->n_heads,
                      err)) ||
        (s = get_size(root, "vocab_size", MIST_MODEL_MAX_VOCAB, &m->vocab, err)))
        return s;
    m->n_kv_heads = m->n_heads;
    if ((s = get_optional_size(root, "num_key_value_heads", m->n_heads, &m->n_kv_heads,
                               err)) ||
        (s = get_optional_size(root, "head_dim", MIST_MODEL_MAX_HIDDEN, &m->head_dim,
                               err)) ||
        (m->head_dim == 0 &&
         (s = derive_head_dim(root, "num_attention_heads", m, err))) ||
        (s = get_optional_double(root, "rms_norm_eps", &m->norm_epsilon, err)) ||
        (s = get_optional_double(root, "rope_theta", &m->rope_theta, err)) ||
        (s = require_flag(root, "attention_bias", false, no_bias, err)) ||
        (s = require_flag(root, "mlp_bias", false, no_bias, err)) ||
        (s = require_activation(root, "hidden_act", "silu", err)))
        return s;
    return mist_json_get_bool(root, "tie_word_embeddings", MIST_JSON_OPTIONAL,
                              &m->ties_embeddings, err);
}

/*
 * Heads of keys and values, and the norms that come with them. Two orders of a Falcon
 * block are known: one norm (7B, multi-query) and one norm for each branch (40B, 180B:
 * the "new decoder architecture", grouped-query). Mixtures of the two (11B) are refused,
 * because mist_model_n_block_norms() tells the orders apart by the heads.
 */
static enum mist_status read_falcon_heads(const struct mist_json *root,
                                          struct mist_model *m, struct mist_err *err)
{
    bool is_new = false;
    bool is_multi_query = true;
    int32_t n_norms;
    enum mist_status s;

    if ((s = mist_json_get_bool(root, "new_decoder_architecture", MIST_JSON_OPTIONAL,
                                &is_new, err)) ||
        (s = mist_json_get_bool(root, "multi_query", MIST_JSON_OPTIONAL, &is_multi_query,
                                err)))
        return s;
    m->n_kv_heads = is_new || !is_multi_query ? m->n_heads : 1;
    n_norms = is_new ? 2 : 1;
    if (is_new &&
        ((s = get_optional_size(root, "num_kv_heads", m->n_heads, &m->n_kv_heads, err)) ||
         (s = get_optional_size(root, "num_ln_in_parallel_attn", 2, &n_norms, err))))
        return s;
    if (n_norms != mist_model_n_block_norms(m))
        return mist_json_fail_key(
            root, "new_decoder_architecture", MIST_ERR_INPUT, err,
            "falcon with %d norms in a block and %d of %d heads for "
            "keys and values is not supported",
            n_norms, m->n_kv_heads, m->n_heads);
    return MIST_OK;
}

static enum mist_status read_falcon(const struct mist_json *root, struct mist_model *m,
                                    struct mist_err *err)
{
    enum mist_status s;

    m->family = MIST_FAMILY_FALCON;
    m->ties_embeddings = true;
    m->norm_epsilon = 1e-5;
    m->rope_theta = 1e4;
    if ((s = require_flag(root, "alibi", false,
                          "falcon is read with RoPE only (falcon-rw models use ALiBi)",
                          err)) ||
        (s = require_flag(root, "parallel_attn", true,
                          "falcon blocks run attention and feed-forward side by side",
                          err)) ||
        (s = get_size(root, "hidden_size", MIST_MODEL_MAX_HIDDEN, &m->hidden, err)) ||
        (s = get_size(root, "num_hidden_layers", MIST_MODEL_MAX_LAYERS, &m->n_layers,
                      err)) ||
        (s = get_size(root, "num_attention_heads", MIST_MODEL_MAX_HIDDEN, &m->n_heads,
                      err)) ||
        (s = get_size(root, "vocab_size", MIST_MODEL_MAX_VOCAB, &m->vocab, err)) ||
        (s = derive_head_dim(root, "num_attention_heads", m, err)) ||
        (s = read_falcon_heads(root, m, err)))
        return s;
    m->ffn = 4 * m->hidden;
    if ((s = get_optional_size(root, "ffn_hidden_size", MIST_MODEL_MAX_FFN, &m->ffn,
                               err)) ||
        (s = get_optional_double(root, "layer_norm_epsilon", &m->norm_epsilon, err)) ||
        (s = get_optional_double(root, "rope_theta", &m->rope_theta, err)) ||
        (s = mist_json_get_bool(root, "bias", MIST_JSON_OPTIONAL, &m->has_bias, err)) ||
        (s = require_activation(root, "activation", "gelu", err)))
        return s;
    return mist_json_get_bool(root, "tie_word_embeddings", MIST_JSON_OPTIONAL,
                              &m->ties_embeddings, err);
}

/* --------------------------------------------------------------------------- the file */

static const struct {
    const char *model_type;
    enum mist_status (*read)(const struct mist_json *, struct mist_model *,
                             struct mist_err *);
} readers[] = {{"gpt2", read_gpt2}, {"llama", read_llama}, {"falcon", read_falcon}};

/* "x/llama-7b/config.json" is llama-7b, "x/tiny.json" is tiny, "config.json" its type. */
static void name_model(const char *path, const char *model_type, struct mist_model *m)
{
    const char *slash = strrchr(path, '/');
    const char *start = slash ? slash + 1 : path;
    size_t length = strlen(start);

    if (length > 5 && !strcmp(start + length - 5, ".json"))
        length -= 5;
    if (length == 6 && !strncmp(start, "config", 6)) {
        const char *end = slash;
        start = end;
        while (start && start > path && start[-1] != '/')
            start--;
        length = start ? (size_t)(end - start) : 0;
    }
    if (length == 0 || start[0] == '.') {
        start = model_type;
        length = strlen(model_type);
    }
    snprintf(m->name, sizeof m->name, "%.*s",
             (int)(length < sizeof m->name ? length : sizeof m->name - 1), start);
}

static enum mist_status read_model(const struct mist_json *root, const char *path,
                                   struct mist_model *m, struct mist_err *err)
{
    const char *model_type = NULL;
    enum mist_status status = mist_json_as_object(root, err);

    if (!status)
        status = mist_json_get_string(root, "model_type", MIST_JSON_REQUIRED, &model_type,
                                      err);
    if (status)
        return status;
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (strcmp(model_type, readers[i].model_type) != 0)
            continue;
        name_model(path, model_type, m);
        status = readers[i].read(root, m, err);
        if (!status)
            status = mist_model_check(m, err);
        if (status)
            mist_err_locate(err, path, 0);
        return status;
    }
    return mist_json_fail_key(
        root, "model_type", MIST_ERR_INPUT, err,
        "model_type: \"%.60s\" is not supported, expected gpt2, llama "
        "or falcon",
        model_type);
}

enum mist_status mist_model_load_config(const char *path, struct mist_model *out,
                                        struct mist_err *err)
{
    struct mist_json_doc doc;
    struct mist_model model = {0};
    enum mist_status status = mist_json_load(&doc, path, MIST_JSON_FOREIGN, err);

    if (status)
        return status;
    struct mist_json root = mist_json_root(&doc);
    status = read_model(&root, path, &model, err);
    mist_json_fini(&doc);
    if (!status)
        *out = model;
    return status;
}
