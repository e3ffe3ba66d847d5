/* The table of names, shared by loading (hf_names.c) and saving (hf_names_save.c). */
#ifndef MIST_EXEC_HF_NAMES_INTERNAL_H
#define MIST_EXEC_HF_NAMES_INTERNAL_H

#include "exec/huggingface/hf_names.h"
#include "exec/huggingface/safetensors.h"

enum { HF_MAX_SOURCES = 3, HF_NAME_BYTES = 128 };

/* One of the tensors there whose rows, one behind the other, are a parameter here. */
struct hf_source {
    char name[HF_NAME_BYTES];
    int64_t rows;
};

struct hf_param {
    struct mist_hf_param param;
    bool is_vector;     /* one dimension there */
    bool is_transposed; /* [columns, rows] there */
    bool is_absent;     /* a linear bias that our model has not */
    /* Rows are those of heads and stand in another order there; else NULL. */
    const struct mist_model *of_heads;
    bool is_grouped; /* that of groups */
    int32_t n_sources;
    struct hf_source sources[HF_MAX_SOURCES];
};

/*
 * Where a row of ours is there, of all sources one behind the other. By groups of heads: for each
 * key-value head its query heads, then itself, then its value head; and the part of a head that
 * RoPE turns comes first there, while here the halves of all pairs are half a head apart.
 */
int64_t hf_source_row(const struct hf_param *param, int64_t row);

/* What stands before names of a family but the head's, and the head's. */
const char *hf_prefix(const struct mist_model *model);
const char *hf_head_name(const struct mist_model *model);

/* Shape of a source there. */
struct mist_safetensors_info hf_source_info(const struct hf_param *param, int32_t i);

/*
 * The parameters of a module, absent biases included, a tied head left out. prefix stands
 * before every name but the head's ("transformer.", "model.", ""). Returns how many; they
 * point to the model.
 */
int32_t hf_describe_module(const struct mist_model *model, int32_t module,
                           const char *prefix, struct hf_param out[MIST_HF_MAX_PARAMS]);

#endif
