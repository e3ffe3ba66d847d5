/*
 * Names and shapes of tensors. See hf_names.h; loading is in hf_names_load.c, saving in
 * hf_names_save.c.
 *
 * Source: the modules of transformers' modeling_*.py. GPT-2's linear layers are Conv1D,
 * whose weight is [in, out].
 */
#include "exec/huggingface/hf_names.h"

#include "exec/huggingface/hf_names_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---------------------------------------------------------------------------- names */

enum place { PLACE_EMBEDDING, PLACE_BLOCK, PLACE_HEAD };

/* Sizes of tensors: 1, hidden, query rows, key or value rows, all three, ... */
enum size { ONE, HIDDEN, HEAD, QUERY, KEY_VALUE, QKV, FFN, VOCAB, POSITIONS };

enum flags {
    TRANSPOSED = 1,
    LINEAR_BIAS = 2,   /* zeros there where our model has none */
    OPTIONAL_BIAS = 4, /* not there where our model has none */
    VOCABULARY = 8,    /* not there where it is the embedding's */
    GROUPED = 16,      /* rows stand by groups of heads */
    PART_TURNED = 512, /* rows of heads, of which the part that RoPE turns comes first */
    ONE_NORM = 32,     /* of a block with one norm, */
    TWO_NORMS = 64,    /* with two */
    QKV_BIAS = 128,    /* of families with biases of q, k and v alone, */
    QK_NORM = 256      /* with norms of heads */
};

struct row {
    enum place place;
    const char *name; /* ours */
    enum size columns;
    int flags;
    struct {
        const char *name;
        enum size rows;
    } sources[HF_MAX_SOURCES]; /* ends with a NULL */
};

static const struct row gpt_rows[] = {
    {PLACE_EMBEDDING, "wte", HIDDEN, 0, {{"wte.weight", VOCAB}}},
    {PLACE_EMBEDDING, "wpe", HIDDEN, 0, {{"wpe.weight", POSITIONS}}},
    {PLACE_BLOCK, "norm1.weight", ONE, 0, {{"ln_1.weight", HIDDEN}}},
    {PLACE_BLOCK, "norm1.bias", ONE, 0, {{"ln_1.bias", HIDDEN}}},
    {PLACE_BLOCK, "qkv.weight", HIDDEN, TRANSPOSED, {{"attn.c_attn.weight", QKV}}},
    {PLACE_BLOCK, "qkv.bias", ONE, LINEAR_BIAS, {{"attn.c_attn.bias", QKV}}},
    {PLACE_BLOCK, "proj.weight", QUERY, TRANSPOSED, {{"attn.c_proj.weight", HIDDEN}}},
    {PLACE_BLOCK, "proj.bias", ONE, LINEAR_BIAS, {{"attn.c_proj.bias", HIDDEN}}},
    {PLACE_BLOCK, "norm2.weight", ONE, 0, {{"ln_2.weight", HIDDEN}}},
    {PLACE_BLOCK, "norm2.bias", ONE, 0, {{"ln_2.bias", HIDDEN}}},
    {PLACE_BLOCK, "up.weight", HIDDEN, TRANSPOSED, {{"mlp.c_fc.weight", FFN}}},
    {PLACE_BLOCK, "up.bias", ONE, LINEAR_BIAS, {{"mlp.c_fc.bias", FFN}}},
    {PLACE_BLOCK, "down.weight", FFN, TRANSPOSED, {{"mlp.c_proj.weight", HIDDEN}}},
    {PLACE_BLOCK, "down.bias", ONE, LINEAR_BIAS, {{"mlp.c_proj.bias", HIDDEN}}},
    {PLACE_HEAD, "norm.weight", ONE, 0, {{"ln_f.weight", HIDDEN}}},
    {PLACE_HEAD, "norm.bias", ONE, 0, {{"ln_f.bias", HIDDEN}}},
    {PLACE_HEAD, "head.weight", HIDDEN, VOCABULARY, {{"lm_head.weight", VOCAB}}},
};

#define QKV_SOURCES(kind)                                                                \
    {                                                                                    \
        {"self_attn.q_proj" kind, QUERY}, {"self_attn.k_proj" kind, KEY_VALUE},          \
        {                                                                                \
            "self_attn.v_proj" kind, KEY_VALUE                                           \
        }                                                                                \
    }
/* Llama, and the families that are made like it. */
static const struct row llama_rows[] = {
    {PLACE_EMBEDDING, "wte", HIDDEN, 0, {{"embed_tokens.weight", VOCAB}}},
    {PLACE_BLOCK, "norm1.weight", ONE, 0, {{"input_layernorm.weight", HIDDEN}}},
    {PLACE_BLOCK, "qkv.weight", HIDDEN, 0, QKV_SOURCES(".weight")},
    {PLACE_BLOCK, "proj.weight", QUERY, 0, {{"self_attn.o_proj.weight", HIDDEN}}},
    {PLACE_BLOCK, "norm2.weight", ONE, 0, {{"post_attention_layernorm.weight", HIDDEN}}},
    {PLACE_BLOCK,
     "up.weight",
     HIDDEN,
     0,
     {{"mlp.gate_proj.weight", FFN}, {"mlp.up_proj.weight", FFN}}},
    {PLACE_BLOCK, "down.weight", FFN, 0, {{"mlp.down_proj.weight", HIDDEN}}},
    {PLACE_HEAD, "norm.weight", ONE, 0, {{"norm.weight", HIDDEN}}},
    {PLACE_HEAD, "head.weight", HIDDEN, VOCABULARY, {{"lm_head.weight", VOCAB}}},
    {PLACE_BLOCK, "qkv.bias", ONE, QKV_BIAS, QKV_SOURCES(".bias")},
    {PLACE_BLOCK, "q_norm.weight", ONE, QK_NORM, {{"self_attn.q_norm.weight", HEAD}}},
    {PLACE_BLOCK, "k_norm.weight", ONE, QK_NORM, {{"self_attn.k_norm.weight", HEAD}}},
};

#define ROW(place, ours, columns, flags, theirs, rows)                                   \
    {                                                                                    \
        place, ours, columns, flags,                                                     \
        {                                                                                \
            {                                                                            \
                theirs, rows                                                             \
            }                                                                            \
        }                                                                                \
    }
/* A linear layer of Falcon or GPT-NeoX, which differ in when there is a bias. */
#define LAYER(ours, columns, flags, bias, theirs, rows)                                  \
    ROW(PLACE_BLOCK, ours ".weight", columns, flags, theirs ".weight", rows),            \
        ROW(PLACE_BLOCK, ours ".bias", ONE, (flags) | (bias), theirs ".bias", rows)
#define NORM(place, ours, flags, theirs)                                                 \
    ROW(place, ours ".weight", ONE, flags, theirs ".weight", HIDDEN),                    \
        ROW(place, ours ".bias", ONE, flags, theirs ".bias", HIDDEN)

static const struct row neox_rows[] = {
    {PLACE_EMBEDDING, "wte", HIDDEN, 0, {{"embed_in.weight", VOCAB}}},
    NORM(PLACE_BLOCK, "norm1", 0, "input_layernorm"),
    LAYER("qkv", HIDDEN, GROUPED, LINEAR_BIAS, "attention.query_key_value", QKV),
    LAYER("proj", QUERY, 0, LINEAR_BIAS, "attention.dense", HIDDEN),
    NORM(PLACE_BLOCK, "norm2", 0, "post_attention_layernorm"),
    LAYER("up", HIDDEN, 0, LINEAR_BIAS, "mlp.dense_h_to_4h", FFN),
    LAYER("down", FFN, 0, LINEAR_BIAS, "mlp.dense_4h_to_h", HIDDEN),
    NORM(PLACE_HEAD, "norm", 0, "final_layer_norm"),
    {PLACE_HEAD, "head.weight", HIDDEN, VOCABULARY, {{"embed_out.weight", VOCAB}}},
};

static const struct row nemotron_rows[] = {
    {PLACE_EMBEDDING, "wte", HIDDEN, 0, {{"embed_tokens.weight", VOCAB}}},
    NORM(PLACE_BLOCK, "norm1", 0, "input_layernorm"),
    {PLACE_BLOCK, "qkv.weight", HIDDEN, PART_TURNED, QKV_SOURCES(".weight")},
    {PLACE_BLOCK, "proj.weight", QUERY, 0, {{"self_attn.o_proj.weight", HIDDEN}}},
    NORM(PLACE_BLOCK, "norm2", 0, "post_attention_layernorm"),
    {PLACE_BLOCK, "up.weight", HIDDEN, 0, {{"mlp.up_proj.weight", FFN}}},
    {PLACE_BLOCK, "down.weight", FFN, 0, {{"mlp.down_proj.weight", HIDDEN}}},
    NORM(PLACE_HEAD, "norm", 0, "norm"),
    {PLACE_HEAD, "head.weight", HIDDEN, VOCABULARY, {{"lm_head.weight", VOCAB}}},
};

static const struct row falcon_rows[] = {
    {PLACE_EMBEDDING, "wte", HIDDEN, 0, {{"word_embeddings.weight", VOCAB}}},
    NORM(PLACE_BLOCK, "norm1", ONE_NORM, "input_layernorm"),
    NORM(PLACE_BLOCK, "norm1", TWO_NORMS, "ln_attn"),
    LAYER("qkv", HIDDEN, GROUPED, OPTIONAL_BIAS, "self_attention.query_key_value", QKV),
    LAYER("proj", QUERY, 0, OPTIONAL_BIAS, "self_attention.dense", HIDDEN),
    NORM(PLACE_BLOCK, "norm2", TWO_NORMS, "ln_mlp"),
    LAYER("up", HIDDEN, 0, OPTIONAL_BIAS, "mlp.dense_h_to_4h", FFN),
    LAYER("down", FFN, 0, OPTIONAL_BIAS, "mlp.dense_4h_to_h", HIDDEN),
    NORM(PLACE_HEAD, "norm", 0, "ln_f"),
    {PLACE_HEAD, "head.weight", HIDDEN, VOCABULARY, {{"lm_head.weight", VOCAB}}},
};

/* How a family's tensors are called. */
static const struct naming {
    const struct row *rows;
    size_t n_rows;
    const char *prefix, *layers, *head;
} namings[MIST_N_FAMILIES] = {
#define ROWS(rows) rows, sizeof(rows) / sizeof *(rows)
    [MIST_FAMILY_GPT] = {ROWS(gpt_rows), "transformer.", "h", "lm_head.weight"},
    [MIST_FAMILY_LLAMA] = {ROWS(llama_rows), "model.", "layers", "lm_head.weight"},
    [MIST_FAMILY_FALCON] = {ROWS(falcon_rows), "transformer.", "h", "lm_head.weight"},
    [MIST_FAMILY_MISTRAL] = {ROWS(llama_rows), "model.", "layers", "lm_head.weight"},
    [MIST_FAMILY_QWEN2] = {ROWS(llama_rows), "model.", "layers", "lm_head.weight"},
    [MIST_FAMILY_QWEN3] = {ROWS(llama_rows), "model.", "layers", "lm_head.weight"},
    [MIST_FAMILY_GEMMA] = {ROWS(llama_rows), "model.", "layers", "lm_head.weight"},
    [MIST_FAMILY_NEOX] = {ROWS(neox_rows), "gpt_neox.", "layers", "embed_out.weight"},
    [MIST_FAMILY_NEMOTRON] = {ROWS(nemotron_rows), "model.", "layers", "lm_head.weight"},
#undef ROWS
};

const char *hf_prefix(const struct mist_model *model)
{
    return namings[model->family].prefix;
}

const char *hf_head_name(const struct mist_model *model)
{
    return namings[model->family].head;
}

static int64_t size_of(const struct mist_model *model, enum size size)
{
    int64_t q = (int64_t)model->n_heads * model->head_dim;
    int64_t kv = (int64_t)model->n_kv_heads * model->head_dim;

    switch (size) {
    case ONE:
        return 1;
    case HIDDEN:
        return model->hidden;
    case HEAD:
        return model->head_dim;
    case QUERY:
        return q;
    case KEY_VALUE:
        return kv;
    case QKV:
        return q + 2 * kv;
    case FFN:
        return model->ffn;
    case VOCAB:
        return model->vocab;
    case POSITIONS:
        break;
    }
    return model->max_seq;
}

/* "transformer.h.3.ln_1.weight" */
static void format_name(char out[HF_NAME_BYTES], const struct mist_model *model,
                        int32_t module, const char *prefix, const char *name)
{
    const char *layers = namings[model->family].layers;

    if (strcmp(name, hf_head_name(model)) == 0)
        snprintf(out, HF_NAME_BYTES, "%s", name);
    else if (module == 0 || module == model->n_layers + 1)
        snprintf(out, HF_NAME_BYTES, "%s%s", prefix, name);
    else
        snprintf(out, HF_NAME_BYTES, "%s%s.%" PRId32 ".%s", prefix, layers, module - 1,
                 name);
}

static void describe(const struct row *row, const struct mist_model *model,
                     int32_t module, const char *prefix, struct hf_param *out)
{
    *out = (struct hf_param){
        .param = {.module = module, .columns = size_of(model, row->columns)},
        .is_vector = row->columns == ONE,
        .is_transposed = row->flags & TRANSPOSED,
        .is_absent = (row->flags & LINEAR_BIAS) && !model->has_bias,
        .of_heads = row->flags & (GROUPED | PART_TURNED) ? model : NULL,
        .is_grouped = row->flags & GROUPED};
    snprintf(out->param.name, sizeof out->param.name, "%s", row->name);
    while (out->n_sources < HF_MAX_SOURCES && row->sources[out->n_sources].name) {
        struct hf_source *source = &out->sources[out->n_sources];
        format_name(source->name, model, module, prefix,
                    row->sources[out->n_sources].name);
        source->rows = size_of(model, row->sources[out->n_sources].rows);
        out->param.rows += source->rows;
        out->n_sources++;
    }
}

/* Whether the file of a model has it. */
static bool is_there(const struct row *row, const struct mist_model *model)
{
    const struct mist_family_traits *traits = mist_family_traits(model->family);
    bool has_two_norms = mist_model_n_block_norms(model) == 2;

    return !((row->flags & VOCABULARY) && model->ties_embeddings) &&
           !((row->flags & OPTIONAL_BIAS) && !model->has_bias) &&
           !((row->flags & QKV_BIAS) && !traits->has_qkv_bias) &&
           !((row->flags & QK_NORM) && !traits->has_qk_norm) &&
           !((row->flags & ONE_NORM) && has_two_norms) &&
           !((row->flags & TWO_NORMS) && !has_two_norms);
}

int32_t hf_describe_module(const struct mist_model *model, int32_t module,
                           const char *prefix, struct hf_param out[MIST_HF_MAX_PARAMS])
{
    const struct naming *naming = &namings[model->family];
    enum place place = module == 0                 ? PLACE_EMBEDDING
                       : module <= model->n_layers ? PLACE_BLOCK
                                                   : PLACE_HEAD;
    int32_t n = 0;

    for (size_t i = 0; i < naming->n_rows; i++)
        if (naming->rows[i].place == place && is_there(&naming->rows[i], model))
            describe(&naming->rows[i], model, module, prefix, &out[n++]);
    return n;
}

/* An element of a head there: r of those that are turned are followed by their partners,
 * then by those that are not. */
static int64_t element_of_head(const struct mist_model *model, int64_t i)
{
    int64_t half = model->head_dim / 2, k = i % half, is_partner = i >= half;
    int64_t r = model->rotary_dim > 0 ? model->rotary_dim / 2 : half;

    return k < r ? is_partner * r + k : 2 * r + is_partner * (half - r) + (k - r);
}

int64_t hf_source_row(const struct hf_param *param, int64_t row)
{
    const struct mist_model *model = param->of_heads;

    if (!model)
        return row;
    int64_t n_queries = model->n_heads / model->n_kv_heads; /* of a group */
    int64_t d = model->head_dim, head = row / d, i = row % d, group, place;
    if (head < model->n_heads + model->n_kv_heads) /* no value head */
        i = element_of_head(model, i);
    if (!param->is_grouped)
        return head * d + i;
    if (head < model->n_heads) {
        group = head / n_queries;
        place = head % n_queries;
    } else {
        group = (head - model->n_heads) % model->n_kv_heads;
        place = n_queries + (head - model->n_heads) / model->n_kv_heads;
    }
    return (group * (n_queries + 2) + place) * d + i;
}

int32_t mist_hf_params(const struct mist_model *model, int32_t module,
                       struct mist_hf_param out[MIST_HF_MAX_PARAMS])
{
    struct hf_param params[MIST_HF_MAX_PARAMS];
    int32_t n = hf_describe_module(model, module, "", params);
    int32_t n_out = 0;

    for (int32_t i = 0; i < n; i++)
        if (!params[i].is_absent)
            out[n_out++] = params[i].param;
    return n_out;
}

struct mist_safetensors_info hf_source_info(const struct hf_param *param, int32_t i)
{
    const struct hf_source *source = &param->sources[i];
    struct mist_safetensors_info info = {.name = source->name,
                                         .n_dims = param->is_vector ? 1 : 2};

    info.shape[param->is_transposed ? 1 : 0] = source->rows;
    if (!param->is_vector)
        info.shape[param->is_transposed ? 0 : 1] = param->param.columns;
    info.n_elements = source->rows * param->param.columns;
    return info;
}
