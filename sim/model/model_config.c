/*
 * Models from a Hugging Face config.json, by the tables of model_keys.h.
 *
 * What can't stand in a table is here: heads of a Falcon, when a window counts, how much
 * of a head a GPT-NeoX turns, RoPE scaling. What asks for dropout is listed: it is 0.
 */
#include "core/json.h"
#include "core/parse.h" /* words */
#include "core/path.h"
#include "sim/model/model.h"
#include "sim/model/model_keys.h"

#include <math.h>   /* INFINITY */
#include <stdio.h>  /* snprintf */
#include <stdlib.h> /* free */
#include <string.h> /* strrchr */
#include <sys/stat.h>

/* A model while it is being read. */
struct reader {
    const struct mist_json *root;
    const struct mist_model_type *type;
    struct mist_model *model;
};

static void *member(struct mist_model *model, const struct mist_model_key *key)
{
    return (char *)model + key->offset;
}

static bool is_null(const struct mist_json *root, const char *key)
{
    return json_is_null(json_object_get(root->value, key));
}

/* ------------------------------------------------------------------------------- keys */

static enum mist_status read_size(const struct reader *at,
                                  const struct mist_model_key *key, const char *name,
                                  struct mist_err *err)
{
    int32_t *out = member(at->model, key);
    int32_t max = key->max > 0 ? key->max : at->model->n_heads;
    int64_t value = *out;
    enum mist_json_need need = key->is_optional ? MIST_JSON_OPTIONAL : MIST_JSON_REQUIRED;
    enum mist_status status = MIST_OK;

    if (key->is_optional && is_null(at->root, name))
        value = 0;
    else
        status = mist_json_get_int64(at->root, name, need, 1, max, &value, err);
    *out = (int32_t)value;
    return status;
}

static enum mist_status read_key(const struct reader *at,
                                 const struct mist_model_key *key, struct mist_err *err)
{
    bool is_older = key->older && !mist_json_has(at->root, key->key) &&
                    mist_json_has(at->root, key->older);
    const char *name = is_older ? key->older : key->key;
    void *out = member(at->model, key);

    switch (key->type) {
    case MIST_KEY_SIZE:
        return read_size(at, key, name, err);
    case MIST_KEY_NUMBER:
        return mist_json_get_double(at->root, name, MIST_JSON_OPTIONAL, 0, INFINITY, out,
                                    err);
    case MIST_KEY_FLAG:
        break;
    }
    return mist_json_get_bool(at->root, name, MIST_JSON_OPTIONAL, out, err);
}

static enum mist_status read_activation(const struct reader *at, struct mist_err *err)
{
    const char *key = at->type->activation_key, *word = at->type->default_activation;
    const struct mist_activation_word *known = at->type->activations;
    enum mist_status status =
        mist_json_get_string(at->root, key, MIST_JSON_OPTIONAL, &word, err);

    while (status == MIST_OK && known->word && strcmp(known->word, word) != 0)
        known++;
    if (status == MIST_OK && !known->word)
        return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                                  "%s: \"%.60s\" is not supported, expected %s", key,
                                  word, at->type->activations[0].word);
    at->model->has_exact_gelu = status == MIST_OK && known->is_exact;
    return status;
}

/* ------------------------------------------------------------------------------ rules */

/* Of all types: mixtures of experts, and what newer models have. */
static const struct mist_model_rule common_rules[] = {
    {"num_local_experts", MIST_RULE_REFUSED, MIST_KEY_SIZE, 0, "experts are not planned"},
    {"num_experts", MIST_RULE_REFUSED, MIST_KEY_SIZE, 0, "experts are not planned"},
    {"n_routed_experts", MIST_RULE_REFUSED, MIST_KEY_SIZE, 0, "experts are not planned"},
    {"attn_logit_softcapping", MIST_RULE_NOTED, MIST_KEY_NUMBER, 0, NULL},
    {"final_logit_softcapping", MIST_RULE_NOTED, MIST_KEY_NUMBER, 0, NULL},
    {"use_qk_norm", MIST_RULE_NOTED, MIST_KEY_FLAG, 0, NULL},
    {"qk_layernorm", MIST_RULE_NOTED, MIST_KEY_FLAG, 0, NULL},
    {"embedding_multiplier", MIST_RULE_NOTED, MIST_KEY_NUMBER, 1, NULL},
    {"residual_multiplier", MIST_RULE_NOTED, MIST_KEY_NUMBER, 1, NULL},
    {"logits_scaling", MIST_RULE_NOTED, MIST_KEY_NUMBER, 1, NULL},
    {"logit_scale", MIST_RULE_NOTED, MIST_KEY_NUMBER, 1, NULL},
    {"clip_qkv", MIST_RULE_NOTED, MIST_KEY_NUMBER, 0, NULL},
    {"dual_chunk_attention_config", MIST_RULE_NOTED, MIST_KEY_NUMBER, 0, NULL},
    {"quantization_config", MIST_RULE_NOTED, MIST_KEY_NUMBER, 0, NULL},
    {"attention_dropout", MIST_RULE_DROPOUT, MIST_KEY_NUMBER, 0, NULL},
    {"hidden_dropout", MIST_RULE_DROPOUT, MIST_KEY_NUMBER, 0, NULL},
    {NULL, MIST_RULE_NOTED, MIST_KEY_FLAG, 0, NULL},
};

/* Adds a key to a list of the model; one that has no room there is the model's fault. */
static enum mist_status add_key(const struct reader *at, const char *key, char *list,
                                size_t size, struct mist_err *err)
{
    size_t n = strlen(list);

    if ((size_t)snprintf(list + n, size - n, "%s%s", n > 0 ? ", " : "", key) < size - n)
        return MIST_OK;
    return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                              "%s is not supported, as little as %.40s", key, list);
}

/* What the model asks for and a run does not compute. */
static enum mist_status note(const struct reader *at, const char *key,
                             struct mist_err *err)
{
    return add_key(at, key, at->model->unsupported, sizeof at->model->unsupported, err);
}

/* Whether a value asks for what our blocks don't do: null and nothing never do. */
static bool asks(const json_t *value, double neutral)
{
    if (!value || json_is_null(value))
        return false;
    if (json_is_boolean(value))
        return json_is_true(value) != (neutral != 0);
    return !json_is_number(value) || json_number_value(value) != neutral;
}

static enum mist_status apply_rules(const struct reader *at,
                                    const struct mist_model_rule *rules,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (const struct mist_model_rule *rule = rules; rule->key && !status; rule++) {
        const json_t *value = json_object_get(at->root->value, rule->key);
        if (!asks(value, rule->neutral))
            continue;
        if (rule->kind == MIST_RULE_DROPOUT)
            status = add_key(at, rule->key, at->model->dropout, sizeof at->model->dropout,
                             err);
        else if (rule->kind == MIST_RULE_NOTED)
            status = note(at, rule->key, err);
        else
            status = mist_json_fail_key(at->root, rule->key, MIST_ERR_INPUT, err,
                                        "%s%s is not supported: %s", rule->key,
                                        json_is_true(value)    ? ": true"
                                        : json_is_false(value) ? ": false"
                                                               : "",
                                        rule->why);
    }
    return status;
}

/* ------------------------------------------------------------------------------- rope */

/* The words in a rope_scaling; model is left alone if there is no such kind. */
static enum mist_status read_scaling(const struct reader *at,
                                     const struct mist_json *rope, const char *key,
                                     struct mist_err *err)
{
    struct mist_model *m = at->model;
    const char *word = mist_rope_scaling_words[MIST_ROPE_DEFAULT];
    int64_t positions = 0;
    enum mist_status s;

    if ((s = mist_json_get_string(rope, "type", MIST_JSON_OPTIONAL, &word, err)) ||
        (s = mist_json_get_string(rope, "rope_type", MIST_JSON_OPTIONAL, &word, err)))
        return s;
    int kind = mist_word_find(mist_rope_scaling_words, word);
    if (kind < 0)
        return note(at, key, err);
    m->rope_scaling = (enum mist_rope_scaling)kind;
    if (kind != MIST_ROPE_DEFAULT)
        s = mist_json_get_double(rope, "factor", MIST_JSON_REQUIRED, 1, INFINITY,
                                 &m->rope_factor, err);
    if (kind != MIST_ROPE_LLAMA3 || s)
        return s;
    if ((s = mist_json_get_double(rope, "low_freq_factor", MIST_JSON_REQUIRED, 0,
                                  INFINITY, &m->rope_low_frequency_factor, err)) ||
        (s = mist_json_get_double(rope, "high_freq_factor", MIST_JSON_REQUIRED, 0,
                                  INFINITY, &m->rope_high_frequency_factor, err)) ||
        (s = mist_json_get_int64(rope, "original_max_position_embeddings",
                                 MIST_JSON_REQUIRED, 1, MIST_MODEL_MAX_SEQ, &positions,
                                 err)))
        return s;
    m->rope_original_positions = (int32_t)positions;
    return MIST_OK;
}

/* Older files say rope_scaling, newer ones rope_parameters, with the base in it. */
static enum mist_status read_rope(const struct reader *at, struct mist_err *err)
{
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 2 && status == MIST_OK; i++) {
        struct mist_json rope;
        if (!mist_json_has(at->root, keys[i])) /* or null */
            continue;
        status = mist_json_get_object(at->root, keys[i], MIST_JSON_REQUIRED, &rope, err);
        if (status == MIST_OK)
            status = read_scaling(at, &rope, keys[i], err);
        if (status == MIST_OK)
            status = mist_json_get_double(&rope, "rope_theta", MIST_JSON_OPTIONAL, 0,
                                          INFINITY, &at->model->rope_theta, err);
    }
    return status;
}

/* How much of a head is turned: a quarter where a GPT-NeoX does not say it, half where a
 * Nemotron doesn't. The newest files say it among rope_parameters. */
static enum mist_status read_rotary(const struct reader *at, struct mist_err *err)
{
    struct mist_model *m = at->model;
    bool is_neox = m->family == MIST_FAMILY_NEOX;
    const char *key = is_neox && !mist_json_has(at->root, "partial_rotary_factor")
                          ? "rotary_pct"
                          : "partial_rotary_factor";
    struct mist_json rope = {0};
    double part = is_neox ? 0.25 : m->family == MIST_FAMILY_NEMOTRON ? 0.5 : 1;
    enum mist_status status =
        mist_json_get_double(at->root, key, MIST_JSON_OPTIONAL, 0, 1, &part, err);

    if (status == MIST_OK && mist_json_has(at->root, "rope_parameters"))
        status = mist_json_get_object(at->root, "rope_parameters", MIST_JSON_REQUIRED,
                                      &rope, err);
    if (status == MIST_OK && rope.value &&
        mist_json_has(&rope, "partial_rotary_factor")) {
        key = "partial_rotary_factor";
        status = mist_json_get_double(&rope, key, MIST_JSON_REQUIRED, 0, 1, &part, err);
    }
    if (status != MIST_OK || part == 1)
        return status;
    if (!mist_family_traits(m->family)->may_turn_part)
        return note(at, key, err);
    m->rotary_dim = (int32_t)(m->head_dim * part);
    if (m->rotary_dim == 0 || m->rotary_dim % 2 != 0)
        return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                                  "%s: %d of %d elements of a head, expected an even "
                                  "number",
                                  key, m->rotary_dim, m->head_dim);
    return MIST_OK;
}

/* -------------------------------------------------------------------------- dimensions */

/* Width of a head when the config does not give it: hidden / heads, which must be whole. */
static enum mist_status derive_head_dim(const struct reader *at, struct mist_err *err)
{
    struct mist_model *m = at->model;
    const char *key =
        mist_model_key_of(at->type, offsetof(struct mist_model, n_heads))->key;

    if (m->hidden % m->n_heads != 0)
        return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                                  "%s: %d does not divide the hidden size %d", key,
                                  m->n_heads, m->hidden);
    m->head_dim = m->hidden / m->n_heads;
    return MIST_OK;
}

/*
 * Heads of keys and values, and the norms that come with them. Two orders of a Falcon
 * block are known: one norm (7B, multi-query) and one norm for each branch (40B, 180B:
 * the "new decoder architecture", grouped-query). Mixtures of the two (11B) are refused,
 * because mist_model_n_block_norms() tells the orders apart by the heads.
 */
static enum mist_status read_falcon_heads(const struct reader *at, struct mist_err *err)
{
    struct mist_model *m = at->model;
    bool is_new = false, is_multi_query = true;
    int64_t n_kv_heads = m->n_heads, n_norms = 1;
    enum mist_status s;

    if ((s = mist_json_get_bool(at->root, "new_decoder_architecture", MIST_JSON_OPTIONAL,
                                &is_new, err)) ||
        (s = mist_json_get_bool(at->root, "multi_query", MIST_JSON_OPTIONAL,
                                &is_multi_query, err)))
        return s;
    if (is_new) {
        n_norms = 2;
        if ((s = mist_json_get_int64(at->root, "num_kv_heads", MIST_JSON_OPTIONAL, 1,
                                     m->n_heads, &n_kv_heads, err)) ||
            (s = mist_json_get_int64(at->root, "num_ln_in_parallel_attn",
                                     MIST_JSON_OPTIONAL, 1, 2, &n_norms, err)))
            return s;
    } else if (is_multi_query) {
        n_kv_heads = 1;
    }
    m->n_kv_heads = (int32_t)n_kv_heads;
    if (n_norms != mist_model_n_block_norms(m))
        return mist_json_fail_key(
            at->root, "new_decoder_architecture", MIST_ERR_INPUT, err,
            "falcon with %d norms in a block and %d of %d heads for "
            "keys and values is not supported",
            (int)n_norms, m->n_kv_heads, m->n_heads);
    return MIST_OK;
}

/* A Qwen's window counts only if it is asked for. */
static enum mist_status read_qwen_window(const struct reader *at, struct mist_err *err)
{
    bool is_used = false;
    enum mist_status status = mist_json_get_bool(at->root, "use_sliding_window",
                                                 MIST_JSON_OPTIONAL, &is_used, err);

    if (!is_used)
        at->model->window = 0;
    return status;
}

static enum mist_status derive(const struct reader *at, struct mist_err *err)
{
    struct mist_model *m = at->model;
    enum mist_status status = MIST_OK;

    if (m->ffn == 0)
        m->ffn = 4 * m->hidden;
    if (m->family == MIST_FAMILY_FALCON)
        status = read_falcon_heads(at, err);
    else if (m->n_kv_heads == 0)
        m->n_kv_heads = m->n_heads;
    if (m->family == MIST_FAMILY_QWEN2 || m->family == MIST_FAMILY_QWEN3)
        status = read_qwen_window(at, err);
    if (status == MIST_OK && m->head_dim == 0)
        status = derive_head_dim(at, err);
    return status;
}

/* What changes dimensions is refused before sizes are looked for. */
static enum mist_status read_dimensions(const struct reader *at, struct mist_err *err)
{
    enum mist_status s;

    if ((s = apply_rules(at, at->type->rules, err)) ||
        (s = apply_rules(at, common_rules, err)))
        return s;
    for (const struct mist_model_key *key = at->type->keys; key->key && !s; key++)
        s = read_key(at, key, err);
    if (s || (s = derive(at, err)) || (s = read_activation(at, err)) ||
        mist_family_traits(at->model->family)->has_positions)
        return s;
    if ((s = read_rotary(at, err)))
        return s;
    return read_rope(at, err);
}

/* --------------------------------------------------------------------------- the file */

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
        while (end && end > path && end[-1] == '/') /* "x/llama-7b//config.json" */
            end--;
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

static enum mist_status refuse_type(const struct mist_json *root, const char *model_type,
                                    struct mist_err *err)
{
    char list[200] = "";

    for (int i = 0; i < MIST_N_FAMILIES; i++)
        mist_text_add(list, sizeof list, ", ", "%s", mist_model_types[i].name);
    return mist_json_fail_key(
        root, "model_type", MIST_ERR_INPUT, err,
        "model_type: \"%.60s\" is not supported, expected one of %s", model_type, list);
}

static enum mist_status read_model(const struct mist_json *root, const char *path,
                                   struct mist_model *m, struct mist_err *err)
{
    const char *model_type = NULL;
    int family = 0;
    enum mist_status status = mist_json_as_object(root, err);

    if (!status)
        status = mist_json_get_string(root, "model_type", MIST_JSON_REQUIRED, &model_type,
                                      err);
    if (status)
        return status;
    while (family < MIST_N_FAMILIES &&
           strcmp(model_type, mist_model_types[family].name) != 0)
        family++;
    if (family == MIST_N_FAMILIES)
        return refuse_type(root, model_type, err);
    const struct reader at = {root, &mist_model_types[family], m};
    *m = at.type->defaults;
    m->family = (enum mist_family)family;
    name_model(path, model_type, m);
    status = read_dimensions(&at, err);
    if (!status)
        status = mist_model_check(m, err);
    if (status)
        mist_err_locate(err, path, 0);
    return status;
}

static enum mist_status load_file(const char *path, struct mist_model *out,
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

enum mist_status mist_model_load_config(const char *path, struct mist_model *out,
                                        struct mist_err *err)
{
    struct stat info;
    bool is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    char *inside = is_folder ? mist_path_join(path, mist_model_file_name(0)) : NULL;
    enum mist_status status = is_folder && !inside
                                  ? mist_err_memory(err, path)
                                  : load_file(is_folder ? inside : path, out, err);

    free(inside);
    return status;
}
