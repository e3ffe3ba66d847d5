/* config.json of weights against the model of a plan. See hf_config.h. */
#include "exec/huggingface/hf_config.h"

#include "core/json.h"
#include "core/parse.h"
#include "core/path.h"

#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The model that a config.json describes beside the model of the plan. */
struct sides {
    const struct mist_json *root;
    const struct mist_model *theirs, *ours;
};

static enum mist_status compare_int(const struct sides *at, const char *key,
                                    int64_t theirs, int64_t ours, struct mist_err *err)
{
    if (theirs == ours)
        return MIST_OK;
    return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                              "%s is %lld, the plan's model has %lld", key,
                              (long long)theirs, (long long)ours);
}

static enum mist_status compare_double(const struct sides *at, const char *key,
                                       double theirs, double ours, struct mist_err *err)
{
    char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];

    if (theirs == ours)
        return MIST_OK;
    return mist_json_fail_key(
        at->root, key, MIST_ERR_INPUT, err, "%s is %s, the plan's model has %s", key,
        mist_format_double(a, sizeof a, theirs), mist_format_double(b, sizeof b, ours));
}

static enum mist_status compare_tying(const struct sides *at, struct mist_err *err)
{
    bool ties = at->theirs->ties_embeddings;

    if (ties == at->ours->ties_embeddings)
        return MIST_OK;
    return mist_json_fail_key(at->root, "tie_word_embeddings", MIST_ERR_INPUT, err,
                              "tie_word_embeddings is %s, the plan's model has %s",
                              ties ? "true" : "false", ties ? "false" : "true");
}

/* A key that must have this value where it is there. */
static enum mist_status require_bool(const struct sides *at, const char *key, bool wanted,
                                     struct mist_err *err)
{
    bool value = wanted;
    enum mist_status status =
        mist_json_get_bool(at->root, key, MIST_JSON_OPTIONAL, &value, err);

    if (status != MIST_OK || value == wanted)
        return status;
    return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                              "%s is %s, a run computes with %s", key,
                              value ? "true" : "false", wanted ? "true" : "false");
}

/* One of the words, the first of which stands for a missing key. */
static enum mist_status require_word(const struct mist_json *object, const char *key,
                                     const char *const *wanted, struct mist_err *err)
{
    const char *word = wanted[0];
    enum mist_status status =
        mist_json_get_string(object, key, MIST_JSON_OPTIONAL, &word, err);

    for (int i = 0; status == MIST_OK && wanted[i]; i++)
        if (strcmp(word, wanted[i]) == 0)
            return MIST_OK;
    if (status != MIST_OK)
        return status;
    return mist_json_fail_key(object, key, MIST_ERR_INPUT, err,
                              "%s is \"%.60s\", a run computes with \"%s\"", key, word,
                              wanted[0]);
}

/* ------------------------------------------------------------------------- families */

static enum mist_status check_gpt2(const struct sides *at, struct mist_err *err)
{
    /* all are the same function: x sigmoid(1.595769 (x + 0.044715 x^3)) */
    static const char *const activations[] = {"gelu_new", "gelu_pytorch_tanh",
                                              "gelu_fast", NULL};
    const struct mist_model *theirs = at->theirs, *ours = at->ours;
    const char *positions =
        mist_json_has(at->root, "n_positions") ? "n_positions" : "n_ctx";
    enum mist_status s;

    if ((s = compare_int(at, "n_layer", theirs->n_layers, ours->n_layers, err)) ||
        (s = compare_int(at, "n_embd", theirs->hidden, ours->hidden, err)) ||
        (s = compare_int(at, "n_head", theirs->n_heads, ours->n_heads, err)) ||
        (s = compare_int(at, "n_inner", theirs->ffn, ours->ffn, err)) ||
        (s = compare_int(at, "vocab_size", theirs->vocab, ours->vocab, err)) ||
        (s = compare_int(at, positions, theirs->max_seq, ours->max_seq, err)) ||
        (s = compare_double(at, "layer_norm_epsilon", theirs->norm_epsilon,
                            ours->norm_epsilon, err)) ||
        (s = require_word(at->root, "activation_function", activations, err)) ||
        (s = require_bool(at, "scale_attn_weights", true, err)) ||
        (s = require_bool(at, "scale_attn_by_inverse_layer_idx", false, err)) ||
        (s = require_bool(at, "add_cross_attention", false, err)))
        return s;
    return compare_tying(at, err);
}

/* Older files say rope_scaling, newer ones rope_parameters, with the base in it. */
static enum mist_status check_rope(const struct sides *at, struct mist_err *err)
{
    static const char *const kinds[] = {"default", NULL};
    static const char *const keys[] = {"rope_scaling", "rope_parameters"};
    double theta = at->theirs->rope_theta;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < 2 && status == MIST_OK; i++) {
        struct mist_json rope;
        if (!mist_json_has(at->root, keys[i])) /* or null */
            continue;
        status = mist_json_get_object(at->root, keys[i], MIST_JSON_REQUIRED, &rope, err);
        if (status == MIST_OK)
            status = require_word(&rope, "rope_type", kinds, err);
        if (status == MIST_OK)
            status = require_word(&rope, "type", kinds, err);
        if (status == MIST_OK)
            status = mist_json_get_double(&rope, "rope_theta", MIST_JSON_OPTIONAL, 0,
                                          INFINITY, &theta, err);
    }
    return status == MIST_OK
               ? compare_double(at, "rope_theta", theta, at->ours->rope_theta, err)
               : status;
}

static enum mist_status check_llama(const struct sides *at, struct mist_err *err)
{
    static const char *const activations[] = {"silu", "swish", NULL};
    const struct mist_model *theirs = at->theirs, *ours = at->ours;
    enum mist_status s;

    if ((s = compare_int(at, "num_hidden_layers", theirs->n_layers, ours->n_layers,
                         err)) ||
        (s = compare_int(at, "hidden_size", theirs->hidden, ours->hidden, err)) ||
        (s = compare_int(at, "num_attention_heads", theirs->n_heads, ours->n_heads,
                         err)) ||
        (s = compare_int(at, "num_key_value_heads", theirs->n_kv_heads, ours->n_kv_heads,
                         err)) ||
        (s = compare_int(at, "head_dim", theirs->head_dim, ours->head_dim, err)) ||
        (s = compare_int(at, "intermediate_size", theirs->ffn, ours->ffn, err)) ||
        (s = compare_int(at, "vocab_size", theirs->vocab, ours->vocab, err)) ||
        (s = compare_double(at, "rms_norm_eps", theirs->norm_epsilon, ours->norm_epsilon,
                            err)) ||
        (s = require_word(at->root, "hidden_act", activations, err)) ||
        (s = check_rope(at, err)))
        return s;
    return compare_tying(at, err);
}

/* ------------------------------------------------------------------------------ files */

/* In the folder of the weights. NULL: out of memory. */
static char *config_path(struct mist_arena *arena, const char *weights)
{
    struct stat info;

    return stat(weights, &info) == 0 && S_ISDIR(info.st_mode)
               ? mist_path_join_in(arena, weights, "config.json")
               : mist_path_beside_in(arena, weights, "config.json");
}

static enum mist_status check(const char *path, const struct mist_model *model,
                              struct mist_err *err)
{
    struct mist_model theirs;
    struct mist_json_doc doc;
    enum mist_status status = mist_model_load_config(path, &theirs, err);

    if (status == MIST_OK)
        status = mist_json_load(&doc, path, MIST_JSON_FOREIGN, err);
    if (status != MIST_OK)
        return status;
    struct mist_json root = mist_json_root(&doc);
    struct sides sides = {&root, &theirs, model};
    if (theirs.family != model->family)
        status = mist_json_fail_key(
            &root, "model_type", MIST_ERR_INPUT, err, "is a %s model, the plan's is %s",
            mist_family_name(theirs.family), mist_family_name(model->family));
    else if (model->family == MIST_FAMILY_GPT)
        status = check_gpt2(&sides, err);
    else
        status = check_llama(&sides, err);
    mist_json_fini(&doc);
    return status;
}

enum mist_status mist_hf_check_config(const char *weights, const struct mist_model *model,
                                      bool *is_there, struct mist_err *err)
{
    struct mist_arena arena;
    enum mist_status status = MIST_OK;

    mist_arena_init(&arena);
    const char *path = config_path(&arena, weights);
    *is_there = path && access(path, F_OK) == 0;
    if (!path)
        status = mist_err_memory(err, weights);
    else if (*is_there)
        status = check(path, model, err);
    mist_arena_fini(&arena);
    return status;
}
