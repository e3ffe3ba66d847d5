/*
 * Saving GPT-2 and Llama weights with their config.json. See hf_names.h.
 *
 * config.json has the keys that sim/model/model_config.c reads and those whose defaults in
 * transformers would mean another computation. max_position_embeddings of a Llama is left
 * to transformers: our model has no such limit.
 */
#include "exec/huggingface/hf_names.h"

#include "core/atomic_file.h" /* mist_make_directory */
#include "core/json.h"
#include "core/memory.h"
#include "exec/huggingface/hf_names_internal.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TILE = 16 };

struct saver {
    const struct mist_model *model;
    const char *prefix;                  /* static */
    struct mist_arena arena;             /* of what follows */
    struct hf_param *params;             /* [n_params], in the order of modules */
    struct mist_safetensors_info *infos; /* [n_infos], in the order of params */
    int32_t n_params, n_infos;
    int64_t n_largest; /* elements of the largest parameter */
    bool is_transposing;
    float *values, *transposed; /* [n_largest]; transposed: NULL when nothing is */
};

/* -------------------------------------------------------------------------- weights */

static enum mist_status plan_save(struct saver *saver, const char *path,
                                  struct mist_err *err)
{
    size_t n_modules = (size_t)saver->model->n_layers + 2;
    size_t n_most = n_modules * MIST_HF_MAX_PARAMS;

    saver->params = mist_arena_alloc(&saver->arena, n_most * sizeof *saver->params);
    saver->infos =
        mist_arena_alloc(&saver->arena, n_most * HF_MAX_SOURCES * sizeof *saver->infos);
    if (!saver->params || !saver->infos)
        return mist_err_memory(err, path);
    for (int32_t module = 0; module < (int32_t)n_modules; module++)
        saver->n_params += hf_describe_module(saver->model, module, saver->prefix,
                                              saver->params + saver->n_params);
    for (int32_t i = 0; i < saver->n_params; i++) {
        const struct hf_param *param = &saver->params[i];
        int64_t n = param->param.rows * param->param.columns;
        for (int32_t k = 0; k < param->n_sources; k++)
            saver->infos[saver->n_infos++] = hf_source_info(param, k);
        if (n > saver->n_largest)
            saver->n_largest = n;
        saver->is_transposing = saver->is_transposing || param->is_transposed;
    }
    saver->values = malloc((size_t)saver->n_largest * sizeof(float));
    if (saver->is_transposing)
        saver->transposed = malloc((size_t)saver->n_largest * sizeof(float));
    return saver->values && (saver->transposed || !saver->is_transposing)
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
    if (param->is_transposed)
        transpose(saver->transposed, saver->values, param->param.rows,
                  param->param.columns);
    mist_safetensors_write(writer,
                           param->is_transposed ? saver->transposed : saver->values, n);
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

static json_t *gpt2_config(const struct mist_model *m)
{
    return json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:f, s:f}",
        "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "vocab_size", m->vocab,
        "n_positions", m->max_seq, "n_embd", m->hidden, "n_layer", m->n_layers, "n_head",
        m->n_heads, "n_inner", m->ffn, "activation_function", "gelu_new",
        "layer_norm_epsilon", m->norm_epsilon, "resid_pdrop", 0.0, "embd_pdrop", 0.0,
        "attn_pdrop", 0.0);
}

static json_t *llama_config(const struct mist_model *m)
{
    return json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:s, s:f, s:f, s:b, "
        "s:b}",
        "architectures", "LlamaForCausalLM", "model_type", "llama", "vocab_size",
        m->vocab, "hidden_size", m->hidden, "intermediate_size", m->ffn,
        "num_hidden_layers", m->n_layers, "num_attention_heads", m->n_heads,
        "num_key_value_heads", m->n_kv_heads, "head_dim", m->head_dim, "hidden_act",
        "silu", "rms_norm_eps", m->norm_epsilon, "rope_theta", m->rope_theta,
        "attention_bias", 0, "mlp_bias", 0);
}

static enum mist_status write_config(const char *path, const struct mist_model *model,
                                     enum mist_dtype dtype, bool force,
                                     struct mist_err *err)
{
    json_t *config =
        model->family == MIST_FAMILY_GPT ? gpt2_config(model) : llama_config(model);
    const char *dtype_name = dtype == MIST_DTYPE_FP32 ? "float32" : "bfloat16";
    enum mist_status status = MIST_OK;

    if (!config ||
        json_object_set_new(config, "tie_word_embeddings",
                            json_boolean(model->ties_embeddings)) != 0 ||
        json_object_set_new(config, "bos_token_id", json_null()) != 0 ||
        json_object_set_new(config, "eos_token_id", json_null()) != 0 ||
        json_object_set_new(config, "torch_dtype", json_string(dtype_name)) != 0)
        status = mist_err_memory(err, path);
    else
        status = mist_json_write_file(config, path, force, err);
    json_decref(config);
    return status;
}

/* --------------------------------------------------------------------------- saving */

enum mist_status mist_hf_save(const char *folder, const struct mist_model *model,
                              enum mist_dtype dtype, bool force, mist_hf_source source,
                              void *context, struct mist_err *err)
{
    struct saver saver = {.model = model,
                          .prefix = model->family == MIST_FAMILY_GPT ? "transformer."
                                                                     : "model."};
    size_t n = strlen(folder) + 32;
    char *weights = malloc(n), *config = malloc(n);
    enum mist_status status = hf_check_family(model, folder, err);

    mist_arena_init(&saver.arena);
    if (!weights || !config)
        status = mist_err_memory(err, folder);
    if (status || (status = mist_make_directory(folder, err)))
        goto out;
    snprintf(weights, n, "%s/model.safetensors", folder);
    snprintf(config, n, "%s/config.json", folder);
    if (!force && access(config, F_OK) == 0)
        status = mist_err_at(err, MIST_ERR_USAGE, config, 0, 0,
                             "exists already; --force replaces it");
    if (!status)
        status = write_weights(&saver, weights, dtype, force, source, context, err);
    if (!status)
        status = write_config(config, model, dtype, force, err);
out:
    free(saver.values);
    free(saver.transposed);
    mist_arena_fini(&saver.arena);
    free(weights);
    free(config);
    return status;
}
