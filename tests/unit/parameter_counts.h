/* How many parameters a model has, by the formulas of its family; what the catalogue declares
 * is compared with them. */
#ifndef MIST_TESTS_PARAMETER_COUNTS_H
#define MIST_TESTS_PARAMETER_COUNTS_H

#include "sim/model/model.h"

/* Parameters of one norm: RMSNorm has a weight, LayerNorm a weight and a bias. */
static inline int64_t count_norm_parameters(const struct mist_model *model)
{
    return (int64_t)model->hidden *
           (mist_family_traits(model->family)->has_rms_norm ? 1 : 2);
}

/*
 * Parameters by module, in elements, unsharded; the model must have passed
 * mist_model_check(). With q = heads * head_dim and kv = kv_heads * head_dim a block has
 *   attention  h (q + 2 kv) + q h
 *   ffn        2 h f, or 3 h f with a gate
 *   biases     q + 2 kv + h + f + h, when has_bias; q + 2 kv in Qwen 2
 *   heads      2 head_dim, the norms of q and k in Qwen 3
 *   norms      h each (RMSNorm) or 2 h each (LayerNorm)
 * the embedding (V + positions) h, the head its norm and, unless tied, V h.
 */
static inline int64_t count_embedding_parameters(const struct mist_model *model)
{
    return ((int64_t)model->vocab + model->max_seq) * model->hidden;
}

static inline int64_t count_block_parameters(const struct mist_model *model)
{
    int64_t h = model->hidden;
    int64_t q = (int64_t)model->n_heads * model->head_dim;
    int64_t kv = (int64_t)model->n_kv_heads * model->head_dim;
    const struct mist_family_traits *traits = mist_family_traits(model->family);
    int64_t n_ffn_matrices = traits->has_gate ? 3 : 2;
    int64_t n = h * (q + 2 * kv) + q * h + n_ffn_matrices * h * model->ffn;

    if (model->has_bias)
        n += (q + 2 * kv) + h + model->ffn + h;
    if (traits->has_qkv_bias)
        n += q + 2 * kv;
    if (traits->has_qk_norm)
        n += 2 * (int64_t)model->head_dim;
    return n + mist_model_n_block_norms(model) * count_norm_parameters(model);
}

static inline int64_t count_head_parameters(const struct mist_model *model)
{
    int64_t projection = (int64_t)model->vocab * model->hidden;

    return count_norm_parameters(model) + (model->ties_embeddings ? 0 : projection);
}

/* Of the whole model, exactly as trained; a tied weight counts once. */
static inline int64_t count_parameters(const struct mist_model *model)
{
    return count_embedding_parameters(model) +
           model->n_layers * count_block_parameters(model) + count_head_parameters(model);
}

#endif
