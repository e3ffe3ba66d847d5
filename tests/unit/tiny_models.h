/* Models small enough for tests that look at everything, and stages of theirs. */
#ifndef MIST_TESTS_TINY_MODELS_H
#define MIST_TESTS_TINY_MODELS_H

#include "sim/plan/plan.h"

/*
 * GPT with biases, a kind of Llama with grouped queries, GPT-NeoX or Nemotron that turn a part
 * of each head; odd vocabulary and feed-forward width. Falcon is left to its tests.
 */
static inline struct mist_model mist_tiny_model(enum mist_family family, int32_t n_layers)
{
    struct mist_model model = {
        .name = "tiny-gpt",
        .family = family,
        .n_layers = n_layers,
        .hidden = 24,
        .n_heads = 4,
        .n_kv_heads = 4,
        .head_dim = 6,
        .ffn = 38,
        .vocab = 61,
        .max_seq = 96,
        .has_bias = true,
        .norm_epsilon = 1e-5,
    };

    if (mist_family_traits(family)->has_gate) {
        model.name[5] = 'l';
        model.n_kv_heads = 2;
        model.max_seq = 0;
        model.has_bias = false;
        model.rope_theta = 10000;
    }
    if (family == MIST_FAMILY_NEOX) {
        model.max_seq = 0;
        model.rope_theta = 10000;
        model.rotary_dim = 2;
        model.has_exact_gelu = true;
    }
    if (family == MIST_FAMILY_NEMOTRON) {
        model.n_kv_heads = 2;
        model.max_seq = 0;
        model.has_bias = false;
        model.rope_theta = 10000;
        model.rotary_dim = 2;
    }
    return model;
}

/* Of round sizes, in the form of GPT or of Llama. */
static inline struct mist_model mist_small_model(enum mist_family family,
                                                 int32_t n_layers, int32_t vocab)
{
    bool is_gpt = family == MIST_FAMILY_GPT;

    return (struct mist_model){
        .name = "small",
        .family = family,
        .n_layers = n_layers,
        .hidden = 32,
        .n_heads = 2,
        .n_kv_heads = 2,
        .head_dim = 16,
        .ffn = 64,
        .vocab = vocab,
        .max_seq = is_gpt ? 32 : 0,
        .has_bias = is_gpt,
        .norm_epsilon = 1e-5,
        .rope_theta = is_gpt ? 0 : 10000,
    };
}

/* A stage on one node, without memory optimisations. */
static inline struct mist_stage_plan
mist_tiny_stage(int32_t n_layers, int32_t micro_batch, int32_t dp, int32_t tp)
{
    return (struct mist_stage_plan){.n_layers = n_layers,
                                    .n_nodes = 1,
                                    .n_devices = dp * tp,
                                    .micro_batch = micro_batch,
                                    .dp = dp,
                                    .tp = tp};
}

#endif
