/* config.json of weights against the model of a plan. See hf_names.h. */
#include "exec/huggingface/hf_names.h"

#include "core/json.h"
#include "core/parse.h"
#include "core/path.h"
#include "sim/model/model_keys.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The model that a config.json describes beside the model of the plan. */
struct sides {
    const struct mist_json *root;
    const struct mist_model *theirs, *ours;
};

/* key: where it stands there. */
static enum mist_status compare_texts(const struct sides *at, const char *key,
                                      const char *name, const char *theirs,
                                      const char *ours, struct mist_err *err)
{
    if (strcmp(theirs, ours) == 0)
        return MIST_OK;
    return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                              "%s is %s, the plan's model has %s", name, theirs, ours);
}

static enum mist_status compare_int(const struct sides *at, const char *key,
                                    int32_t theirs, int32_t ours, struct mist_err *err)
{
    char a[16], b[16];

    snprintf(a, sizeof a, "%d", (int)theirs);
    snprintf(b, sizeof b, "%d", (int)ours);
    return compare_texts(at, key, key, a, b, err);
}

static enum mist_status compare_double(const struct sides *at, const char *key,
                                       const char *name, double theirs, double ours,
                                       struct mist_err *err)
{
    char a[MIST_FORMAT_BYTES], b[MIST_FORMAT_BYTES];

    return compare_texts(at, key, name, mist_format_double(a, sizeof a, theirs),
                         mist_format_double(b, sizeof b, ours), err);
}

/* --------------------------------------------------------------------------- compared */

static enum mist_status compare_key(const struct sides *at,
                                    const struct mist_model_key *key,
                                    struct mist_err *err)
{
    bool is_older = key->older && !mist_json_has(at->root, key->key);
    const char *name = is_older ? key->older : key->key;
    const void *theirs = (const char *)at->theirs + key->offset;
    const void *ours = (const char *)at->ours + key->offset;

    switch (key->type) {
    case MIST_KEY_SIZE:
        return compare_int(at, name, *(const int32_t *)theirs, *(const int32_t *)ours,
                           err);
    case MIST_KEY_NUMBER:
        return compare_double(at, name, name, *(const double *)theirs,
                              *(const double *)ours, err);
    case MIST_KEY_FLAG:
        break;
    }
    return compare_texts(at, name, name, *(const bool *)theirs ? "true" : "false",
                         *(const bool *)ours ? "true" : "false", err);
}

/* By the key of the scaling, older or newer. */
static enum mist_status compare_rope(const struct sides *at, struct mist_err *err)
{
    const struct mist_model *theirs = at->theirs, *ours = at->ours;
    const char *key =
        mist_json_has(at->root, "rope_parameters") ? "rope_parameters" : "rope_scaling";
    const double pairs[][2] = {
        {theirs->rope_factor, ours->rope_factor},
        {theirs->rope_low_frequency_factor, ours->rope_low_frequency_factor},
        {theirs->rope_high_frequency_factor, ours->rope_high_frequency_factor},
        {theirs->rope_original_positions, ours->rope_original_positions}};
    static const char *const names[] = {"factor", "low_freq_factor", "high_freq_factor",
                                        "original_max_position_embeddings"};
    char path[80], kinds[2][24];
    snprintf(kinds[0], sizeof kinds[0], "\"%s\"",
             mist_rope_scaling_words[theirs->rope_scaling]);
    snprintf(kinds[1], sizeof kinds[1], "\"%s\"",
             mist_rope_scaling_words[ours->rope_scaling]);
    enum mist_status status = compare_texts(at, key, key, kinds[0], kinds[1], err);

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs && status == MIST_OK; i++) {
        snprintf(path, sizeof path, "%s.%s", key, names[i]);
        status = compare_double(at, key, path, pairs[i][0], pairs[i][1], err);
    }
    return status;
}

/* The first key that asks for what a run does not compute. */
static enum mist_status refuse_unsupported(const struct sides *at, struct mist_err *err)
{
    const char *list = at->theirs->unsupported;
    char key[sizeof at->theirs->unsupported];

    if (!list[0])
        return MIST_OK;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(list, ","), list);
    return mist_json_fail_key(at->root, key, MIST_ERR_INPUT, err,
                              "%s asks for what a run does not compute", key);
}

/* Elements of a head that RoPE turns. */
static int32_t turned(const struct mist_model *model)
{
    return model->rotary_dim > 0 ? model->rotary_dim : model->head_dim;
}

static enum mist_status compare(const struct sides *at, struct mist_err *err)
{
    const struct mist_model *theirs = at->theirs, *ours = at->ours;
    const struct mist_model_type *type = &mist_model_types[theirs->family];
    bool is_falcon = theirs->family == MIST_FAMILY_FALCON;
    bool is_nemotron = theirs->family == MIST_FAMILY_NEMOTRON;
    enum mist_status s = refuse_unsupported(at, err);

    if (s == MIST_OK && theirs->family != ours->family)
        return mist_json_fail_key(at->root, "model_type", MIST_ERR_INPUT, err,
                                  "is a %s model, the plan's is %s",
                                  mist_family_words[theirs->family],
                                  mist_family_words[ours->family]);
    for (const struct mist_model_key *key = type->keys; key->key && s == MIST_OK; key++)
        s = compare_key(at, key, err);
    if (s || (s = compare_int(at, is_falcon ? "num_kv_heads" : "num_key_value_heads",
                              theirs->n_kv_heads, ours->n_kv_heads, err)))
        return s;
    if (theirs->has_exact_gelu != ours->has_exact_gelu)
        return mist_json_fail_key(
            at->root, type->activation_key, MIST_ERR_INPUT, err,
            "%s asks for the %s form of GELU, the plan's model has the %s",
            type->activation_key, theirs->has_exact_gelu ? "exact" : "tanh",
            ours->has_exact_gelu ? "exact" : "tanh");
    if ((s = compare_int(at, is_nemotron ? "partial_rotary_factor" : "rotary_pct",
                         turned(theirs), turned(ours), err)))
        return s;
    return compare_rope(at, err);
}

/* ------------------------------------------------------------------------------ files */

const char *mist_hf_file_name(int i)
{
    static const char *const names[] = {"model.safetensors", "config.json",
                                        "model.safetensors.index.json", NULL};

    return names[i];
}

/* In the folder of the weights. NULL: out of memory. */
static char *config_path(struct mist_arena *arena, const char *weights)
{
    struct stat info;

    return stat(weights, &info) == 0 && S_ISDIR(info.st_mode)
               ? mist_path_join_in(arena, weights, "config.json")
               : mist_path_beside_in(arena, weights, "config.json");
}

static enum mist_status read_positions(const struct mist_json *root,
                                       const struct mist_model *model, int32_t *out,
                                       struct mist_err *err)
{
    int64_t n = 0;
    enum mist_status status = MIST_OK;

    if (!mist_family_traits(model->family)->has_positions)
        status = mist_json_get_int64(root, "max_position_embeddings", MIST_JSON_OPTIONAL,
                                     0, INT32_MAX, &n, err);
    *out = (int32_t)n;
    return status;
}

static enum mist_status check(const char *path, const struct mist_model *model,
                              struct mist_hf_config *out, struct mist_err *err)
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
    status = compare(&sides, err);
    if (status == MIST_OK)
        status = read_positions(&root, model, &out->n_positions, err);
    memcpy(out->dropout, theirs.dropout, sizeof out->dropout);
    mist_json_fini(&doc);
    return status;
}

enum mist_status mist_hf_check_config(const char *weights, const struct mist_model *model,
                                      struct mist_hf_config *out, struct mist_err *err)
{
    struct mist_arena arena;
    enum mist_status status = MIST_OK;

    mist_arena_init(&arena);
    const char *path = config_path(&arena, weights);
    *out = (struct mist_hf_config){.is_there = path && access(path, F_OK) == 0};
    if (!path)
        status = mist_err_memory(err, weights);
    else if (out->is_there)
        status = check(path, model, out, err);
    mist_arena_fini(&arena);
    return status;
}
