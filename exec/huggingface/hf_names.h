/*
 * Weights to and from Hugging Face models: GPT-2, Llama, Mistral, Qwen 2 and 3,
 * Gemma, GPT-NeoX and Falcon.
 *
 * Our whole parameters (sim/model/param_shape.h: row-major, [out, in]) by module are
 *   0, embedding         wte, wpe (GPT)
 *   1 .. n_layers        norm1.weight, norm1.bias (LayerNorm), qkv.weight, qkv.bias (rows:
 *                        all q heads, all k heads, all v heads), proj.*, norm2.*, up.*
 *                        (SwiGLU: gate rows, then up rows), down.*; linear biases when
 *                        has_bias
 *   n_layers + 1, head   norm.weight, norm.bias (LayerNorm), head.weight (unless tied)
 * and their names there are in hf_names.c. GPT-2 stores linear layers transposed ([in,
 * out], its Conv1D); Llama stores q, k, v, gate and up apart; GPT-NeoX and Falcon store
 * each key-value head behind its query heads. All are rearranged on the way. RoPE turns
 * halves of a head, as Hugging Face's Llama does, so q and k stay as they are there; where
 * a part of a head is turned (GPT-NeoX), the elements of q and k heads trade places, which
 * no product of the two sees. Meta's original files turn neighbours: they are not read.
 *
 * A GPT model without linear biases (has_bias false) is saved with biases of zero, which
 * GPT-2 needs, and zero biases are accepted when it is loaded. Tokenizers are left alone: bos and eos tokens of the saved
 * config.json are null.
 */
#ifndef MIST_EXEC_HF_NAMES_H
#define MIST_EXEC_HF_NAMES_H

#include "core/status.h"
#include "sim/model/model.h"
#include "sim/model/param_shape.h"

#include <stdbool.h>
#include <stdint.h>

/* ------------------------------------------------------------------------- our side */

struct mist_hf_param {
    int32_t module;
    char name[32];         /* "qkv.weight" */
    int64_t rows, columns; /* of the whole parameter; a vector has one column */
};

/* The parameters of a module in the order above; a tied head.weight is not among them.
 * Returns how many, at most MIST_HF_MAX_PARAMS. */
enum { MIST_HF_MAX_PARAMS = 12 };
int32_t mist_hf_params(const struct mist_model *model, int32_t module,
                       struct mist_hf_param out[MIST_HF_MAX_PARAMS]);

/* ---------------------------------------------------------------------------- loading */

struct mist_hf; /* weights of a model, open for reading */

/* The name of file i of those that mist_hf_load() begins with in a folder, or that
 * mist_hf_save() writes; NULL: there are no more. */
const char *mist_hf_file_name(int i);

/*
 * path as mist_safetensors_open(). All tensors of model must be there, with their shapes
 * and as F32, F16 or BF16, and no others: MIST_ERR_INPUT names what is wrong. Buffers
 * that older versions saved (attn.bias, attn.masked_bias, rotary_emb.inv_freq) are passed
 * over, and so is the lm_head.weight of a tied model when it equals the embedding.
 * model must have passed mist_model_check(); it is copied. MIST_ERR_IO, MIST_ERR_MEMORY.
 */
enum mist_status mist_hf_load(const char *path, const struct mist_model *model,
                              struct mist_hf **out, struct mist_err *err) MIST_MUST_CHECK;
void mist_hf_close(struct mist_hf *hf); /* NULL is fine */

/*
 * A rank's part of a whole parameter: span s goes to local + s.local_first; padding is left
 * untouched. A tied model's head.weight is its embedding. MIST_ERR_INPUT: no such
 * parameter, outside it, or values that are not finite, by the name of their tensor.
 */
enum mist_status mist_hf_read_spans(const struct mist_hf *hf, int32_t module,
                                    const char *param,
                                    const struct mist_param_span *spans, int32_t n_spans,
                                    float *local, struct mist_err *err) MIST_MUST_CHECK;

/* ----------------------------------------------------------------------------- saving */

/* Fills out with the n elements of a whole parameter; any failure ends the save. */
typedef enum mist_status (*mist_hf_source)(void *context, int32_t module,
                                           const char *param, int64_t n, float *out,
                                           struct mist_err *err);

/*
 * Writes folder/model.safetensors (one file, F32 or BF16) and folder/config.json; the
 * folder is made as needed. source is asked once for every parameter, in the order of
 * modules; one parameter is in memory at a time, twice where it is transposed. The same
 * weights give the same bytes. n_positions: how long sequences may be as far as anybody
 * knows, for models with RoPE, which don't say it themselves; 0: not said. MIST_ERR_USAGE:
 * a file exists and force is false; MIST_ERR_IO, MIST_ERR_MEMORY, what source returns.
 */
enum mist_status mist_hf_save(const char *folder, const struct mist_model *model,
                              int32_t n_positions, enum mist_dtype dtype, bool force,
                              mist_hf_source source, void *context,
                              struct mist_err *err) MIST_MUST_CHECK;

/* ------------------------------------------------------------------------ config.json */

/* What there is beside weights. */
struct mist_hf_config {
    bool is_there;       /* a config.json */
    int32_t n_positions; /* its max_position_embeddings; 0: not said, or learned ones */
    char dropout[MIST_MODEL_DROPOUT_BYTES]; /* its keys that ask for it, by commas */
};

/*
 * Whether the config.json of weights describes what a run computes: tensors of the right
 * shapes say nothing of heads, epsilons, activations or frequencies. It is read as a model
 * for planning is (sim/model/model_keys.h), and what stands in those tables is compared
 * with the plan's model: sizes, heads, epsilon, activation, frequencies and their scaling,
 * tying, windows. What asks for another computation than ours is refused by its key. What
 * asks for dropout, which belongs to a training run and not to its weights, is listed.
 *
 * weights: a folder with a config.json, or a file beside one. model must have passed
 * mist_model_check(). Without a config.json there is nothing to check. MIST_ERR_INPUT names
 * file, line, key, what was found and what was expected; MIST_ERR_IO, MIST_ERR_MEMORY.
 * hf_config.c
 */
enum mist_status mist_hf_check_config(const char *weights, const struct mist_model *model,
                                      struct mist_hf_config *out,
                                      struct mist_err *err) MIST_MUST_CHECK;

#endif
