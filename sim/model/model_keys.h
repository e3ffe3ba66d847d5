/*
 * The keys of a Hugging Face config.json, by model_type: what model_config.c reads, and the
 * executor compares and writes (exec/huggingface).
 *
 * Names and defaults are those of transformers' configuration classes. Sizes have no
 * default here although transformers gives them some: a config without hidden_size is a
 * mistake, not a wish for the 7B model.
 */
#ifndef MIST_SIM_MODEL_KEYS_H
#define MIST_SIM_MODEL_KEYS_H

#include "sim/model/model.h"

#include <stddef.h>

enum mist_key_type { MIST_KEY_SIZE, MIST_KEY_NUMBER, MIST_KEY_FLAG };

/* A key that a dimension of the model stands in. */
struct mist_model_key {
    const char *key;   /* NULL ends a table */
    const char *older; /* is read where key is missing; NULL: none */
    enum mist_key_type type;
    bool is_optional; /* a size that is missing is the default, null is 0 */
    size_t offset;    /* in struct mist_model */
    int32_t max;      /* of a size; 0: as many as query heads */
};

/* What becomes of a key that asks for another computation than our blocks do. */
enum mist_rule_kind {
    MIST_RULE_REFUSED, /* it changes dimensions */
    MIST_RULE_NOTED,   /* only numbers: it is listed in mist_model.unsupported */
    MIST_RULE_DROPOUT, /* is listed in mist_model.dropout; written, as transformers' default is
                          another */
};

struct mist_model_rule {
    const char *key; /* NULL ends a table */
    enum mist_rule_kind kind;
    enum mist_key_type type;
    double neutral;  /* the value that asks for nothing else (a flag: 0 or 1) */
    const char *why; /* of what is refused */
};

struct mist_activation_word {
    const char *word; /* NULL ends a table */
    bool is_exact;    /* GELU by the error function */
};

struct mist_model_type {
    const char *name, *architecture; /* "llama", "LlamaForCausalLM" */
    const struct mist_model_key *keys;
    const struct mist_model_rule *rules;
    const char *activation_key;
    const struct mist_activation_word *activations; /* all that are accepted */
    const char *default_activation;
    struct mist_model defaults; /* of what may be missing */
};

/* By family. */
extern const struct mist_model_type mist_model_types[MIST_N_FAMILIES];

/* The key of a type that stands for a member of struct mist_model, given by its offset;
 * NULL: it has none. */
const struct mist_model_key *mist_model_key_of(const struct mist_model_type *type,
                                               size_t offset);

#endif
