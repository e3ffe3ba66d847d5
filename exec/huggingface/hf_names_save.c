/*
 * Saving weights with their config.json, which is written by the tables of
 * sim/model/model_keys.h. See hf_names.h.
 *
 * max_position_embeddings is left to transformers: our models with RoPE have no such
 * limit.
 */
#include "exec/huggingface/hf_names.h"

#include "core/atomic_file.h" /* mist_make_directory */
#include "core/json.h"
#include "core/memory.h"
#include "core/path.h"
#include "exec/huggingface/hf_names_internal.h"
#include "sim/model/model_keys.h"

#include <math.h> /* nextafter */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TILE = 16 };

struct saver {
    const struct mist_model *model;
    struct mist_arena arena;             /* of what follows */
    struct hf_param *params;             /* [n_params], in the order of modules */
    struct mist_safetensors_info *infos; /* [n_infos], in the order of params */
    int32_t n_params, n_infos;
    int64_t n_largest; /* elements of the largest parameter */
    bool is_moving;
    float *values, *moved; /* [n_largest]; moved: as it is there, NULL when all is */
};

/* -------------------------------------------------------------------------- weights */

static enum mist_status plan_save(struct saver *saver, const char *path,
                                  struct mist_err *err)
{
    size_t n_modules = (size_t)saver->model->n_layers + 2;
    size_t n_most = n_modules * MIST_HF_MAX_PARAMS;

    if (!MIST_ARENA_ALLOC(&saver->arena, saver->params, n_most) ||
        !MIST_ARENA_ALLOC(&saver->arena, saver->infos, n_most * HF_MAX_SOURCES))
        return mist_err_memory(err, path);
    for (int32_t module = 0; module < (int32_t)n_modules; module++)
        saver->n_params +=
            hf_describe_module(saver->model, module, hf_prefix(saver->model),
                               saver->params + saver->n_params);
    for (int32_t i = 0; i < saver->n_params; i++) {
        const struct hf_param *param = &saver->params[i];
        int64_t n = param->param.rows * param->param.columns;
        for (int32_t k = 0; k < param->n_sources; k++)
            saver->infos[saver->n_infos++] = hf_source_info(param, k);
        if (n > saver->n_largest)
            saver->n_largest = n;
        saver->is_moving =
            saver->is_moving || param->is_transposed || param->of_heads != NULL;
    }
    saver->values = malloc((size_t)saver->n_largest * sizeof(float));
    if (saver->is_moving)
        saver->moved = malloc((size_t)saver->n_largest * sizeof(float));
    return saver->values && (saver->moved || !saver->is_moving)
               ? MIST_OK
               : mist_err_memory(err, path);
}

/* in [rows, columns], out [columns, rows]; by tiles. */
static void transpose(float *out, const float *in, int64_t rows, int64_t columns)
{
    for (int64_t row = 0; row < rows; row += TILE)
        for (int64_t column = 0; column < columns; column++)
            for (int64_t r = row; r < rows && r < row + TILE; r++)
                out[column * rows + r] = in[r * columns + column];
}

/* Rows to where they are there. */
static void move_rows(float *out, const float *in, const struct hf_param *param)
{
    int64_t columns = param->param.columns;

    for (int64_t row = 0; row < param->param.rows; row++)
        memcpy(out + hf_source_row(param, row) * columns, in + row * columns,
               (size_t)columns * sizeof *in);
}

/* Sources are rows one behind the other, just as they are written. */
static enum mist_status write_param(struct saver *saver, const struct hf_param *param,
                                    struct mist_safetensors_writer *writer,
                                    mist_hf_source source, void *context,
                                    struct mist_err *err)
{
    int64_t n = param->param.rows * param->param.columns;
    enum mist_status status = MIST_OK;

    if (param->is_absent)
        memset(saver->values, 0, (size_t)n * sizeof *saver->values);
    else
        status = source(context, param->param.module, param->param.name, n, saver->values,
                        err);
    if (status)
        return status;
    bool is_moved = param->is_transposed || param->of_heads;
    if (param->is_transposed)
        transpose(saver->moved, saver->values, param->param.rows, param->param.columns);
    else if (param->of_heads)
        move_rows(saver->moved, saver->values, param);
    mist_safetensors_write(writer, is_moved ? saver->moved : saver->values, n);
    return MIST_OK;
}

static enum mist_status write_weights(struct saver *saver, const char *path,
                                      enum mist_dtype dtype, bool force,
                                      mist_hf_source source, void *context,
                                      struct mist_err *err)
{
    struct mist_safetensors_writer *writer;
    enum mist_status status = plan_save(saver, path, err);

    if (!status)
        status = mist_safetensors_writer_open(path, force, dtype, saver->infos,
                                              saver->n_infos, &writer, err);
    if (status)
        return status;
    for (int32_t i = 0; i < saver->n_params && !status; i++)
        status = write_param(saver, &saver->params[i], writer, source, context, err);
    if (!status)
        return mist_safetensors_writer_commit(writer, err);
    mist_safetensors_writer_abort(writer);
    return status;
}

/* ---------------------------------------------------------------------- config.json */

/* A dimension as its key has it; a size of 0 is none. */
static json_t *dimension(const struct mist_model *model, const struct mist_model_key *key)
{
    const void *at = (const char *)model + key->offset;

    switch (key->type) {
    case MIST_KEY_SIZE:
        return *(const int32_t *)at > 0 ? json_integer(*(const int32_t *)at)
                                        : json_null();
    case MIST_KEY_NUMBER:
        return json_real(*(const double *)at);
    case MIST_KEY_FLAG:
        break;
    }
    return json_boolean(*(const bool *)at);
}

static const char *activation_word(const struct mist_model_type *type, bool is_exact)
{
    const struct mist_activation_word *known = type->activations;

    while (known->is_exact != is_exact)
        known++;
    return known->word;
}

static json_t *rope_scaling(const struct mist_model *m)
{
    json_t *rope =
        json_pack("{s:s, s:f}", "rope_type", mist_rope_scaling_words[m->rope_scaling],
                  "factor", m->rope_factor);

    if (m->rope_scaling != MIST_ROPE_LLAMA3)
        return rope;
    json_t *ramp =
        json_pack("{s:f, s:f, s:i}", "low_freq_factor", m->rope_low_frequency_factor,
                  "high_freq_factor", m->rope_high_frequency_factor,
                  "original_max_position_embeddings", (int)m->rope_original_positions);
    int code = json_object_update(rope, ramp); /* of NULL: an error, too */
    json_decref(ramp);
    if (code == 0)
        return rope;
    json_decref(rope);
    return NULL;
}

/* The part of a head that is turned, from which the number of elements comes back. */
static double rotary_part(const struct mist_model *m)
{
    double part = m->rotary_dim > 0 ? (double)m->rotary_dim / m->head_dim : 1;

    while ((int32_t)(m->head_dim * part) < m->rotary_dim)
        part = nextafter(part, 1);
    return part;
}

/* What no table has, by family; NULL: out of memory. */
static json_t *family_config(const struct mist_model *m)
{
    bool is_grouped = mist_model_n_block_norms(m) == 2;

    switch (m->family) {
    case MIST_FAMILY_QWEN2:
    case MIST_FAMILY_QWEN3:
        return json_pack("{s:b}", "use_sliding_window", m->window > 0);
    case MIST_FAMILY_NEOX:
        return json_pack("{s:f}", "rotary_pct", rotary_part(m));
    case MIST_FAMILY_NEMOTRON:
        return json_pack("{s:f}", "partial_rotary_factor", rotary_part(m));
    case MIST_FAMILY_FALCON:
        return json_pack("{s:b, s:b, s:i}", "new_decoder_architecture", is_grouped,
                         "multi_query", m->n_kv_heads == 1, "num_kv_heads",
                         (int)m->n_kv_heads);
    default:
        return json_object();
    }
}

/* Adds what the tables say; false: out of memory. */
static bool add_keys(json_t *config, const struct mist_model *m,
                     const struct mist_model_type *type)
{
    bool ok = true;

    for (const struct mist_model_key *key = type->keys; key->key; key++)
        ok = ok && json_object_set_new(config, key->key, dimension(m, key)) == 0;
    for (const struct mist_model_rule *rule = type->rules; rule->key && ok; rule++) {
        json_t *neutral = rule->type == MIST_KEY_FLAG ? json_boolean(rule->neutral != 0)
                                                      : json_real(rule->neutral);
        ok = json_object_set_new(config, rule->key, neutral) == 0;
    }
    return ok && json_object_set_new(
                     config, type->activation_key,
                     json_string(activation_word(type, m->has_exact_gelu))) == 0;
}

/* NULL: out of memory. */
static json_t *config_json(const struct mist_model *m, int32_t n_positions,
                           enum mist_dtype dtype)
{
    const struct mist_model_type *type = &mist_model_types[m->family];
    json_t *config = json_pack("{s:[s], s:s}", "architectures", type->architecture,
                               "model_type", type->name);
    json_t *more = family_config(m);
    bool says_positions =
        n_positions > 0 && !mist_family_traits(m->family)->has_positions;
    bool is_scaled = m->rope_scaling != MIST_ROPE_DEFAULT;
    bool ok = config && more && add_keys(config, m, type) &&
              json_object_update(config, more) == 0 &&
              (!says_positions || json_object_set_new(config, "max_position_embeddings",
                                                      json_integer(n_positions)) == 0) &&
              (!is_scaled ||
               json_object_set_new(config, "rope_scaling", rope_scaling(m)) == 0) &&
              json_object_set_new(config, "bos_token_id", json_null()) == 0 &&
              json_object_set_new(config, "eos_token_id", json_null()) == 0 &&
              json_object_set_new(
                  config, "torch_dtype",
                  json_string(dtype == MIST_DTYPE_FP32 ? "float32" : "bfloat16")) == 0;

    json_decref(more);
    if (ok)
        return config;
    json_decref(config);
    return NULL;
}

static enum mist_status write_config(const char *path, const struct mist_model *model,
                                     int32_t n_positions, enum mist_dtype dtype,
                                     bool force, struct mist_err *err)
{
    json_t *config = config_json(model, n_positions, dtype);
    enum mist_status status = config ? mist_json_write_file(config, path, force, err)
                                     : mist_err_memory(err, path);

    json_decref(config);
    return status;
}

/* --------------------------------------------------------------------------- saving */

enum mist_status mist_hf_save(const char *folder, const struct mist_model *model,
                              int32_t n_positions, enum mist_dtype dtype, bool force,
                              mist_hf_source source, void *context, struct mist_err *err)
{
    struct saver saver = {.model = model};
    enum mist_status status = MIST_OK;

    mist_arena_init(&saver.arena);
    char *weights = mist_path_join_in(&saver.arena, folder, "model.safetensors");
    char *config = mist_path_join_in(&saver.arena, folder, "config.json");
    if (!weights || !config)
        status = mist_err_memory(err, folder);
    if (status || (status = mist_make_directory(folder, err)))
        goto out;
    if (!force && access(config, F_OK) == 0)
        status = mist_err_at(err, MIST_ERR_USAGE, config, 0, 0,
                             "exists already; --force replaces it");
    if (!status)
        status = write_weights(&saver, weights, dtype, force, source, context, err);
    if (!status)
        status = write_config(config, model, n_positions, dtype, force, err);
out:
    free(saver.values);
    free(saver.moved);
    mist_arena_fini(&saver.arena);
    return status;
}
