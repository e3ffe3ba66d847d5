/*
 * Models and shapes for tests of the catalogue, and a second description of which
 * operands every (operator, phase) reads and writes.
 */
#ifndef MIST_TESTS_CATALOG_CASES_H
#define MIST_TESTS_CATALOG_CASES_H

#include "sim/model/catalog.h"
#include "tests/unit/tiny_models.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

enum {
    CASE_DEMO,
    CASE_GPT,
    CASE_LLAMA,
    CASE_NO_BIAS,
    CASE_TIED,
    CASE_FALCON_ONE_HEAD, /* multi-query: one norm */
    CASE_FALCON_GROUPED,  /* two norms */
    CASE_FALCON_ALL_HEADS,
    CASE_LLAMA_ONE_HEAD,
    CASE_QWEN2,   /* biases of q, k and v */
    CASE_MISTRAL, /* heads wider than hidden / n_heads */
    CASE_QWEN3,   /* norms of heads */
    CASE_NEOX,
    CASE_NEMOTRON,
    N_CASES
};

static inline struct mist_model case_model(int i)
{
    bool is_llama = i == CASE_LLAMA || i == CASE_LLAMA_ONE_HEAD;
    enum mist_family family = is_llama             ? MIST_FAMILY_LLAMA
                              : i == CASE_QWEN2    ? MIST_FAMILY_QWEN2
                              : i == CASE_MISTRAL  ? MIST_FAMILY_MISTRAL
                              : i == CASE_QWEN3    ? MIST_FAMILY_QWEN3
                              : i == CASE_NEOX     ? MIST_FAMILY_NEOX
                              : i == CASE_NEMOTRON ? MIST_FAMILY_NEMOTRON
                                                   : MIST_FAMILY_GPT;
    struct mist_model model = mist_tiny_model(family, 3);
    struct mist_err err = {0};

    if (i == CASE_DEMO)
        assert_int_equal(mist_model_load("gpt3-demo", &model, &err), MIST_OK);
    if (i == CASE_NO_BIAS)
        model.has_bias = false;
    if (i == CASE_TIED)
        model.ties_embeddings = true;
    if (i >= CASE_FALCON_ONE_HEAD && i <= CASE_FALCON_ALL_HEADS) {
        model.family = MIST_FAMILY_FALCON;
        model.max_seq = 0;
        model.rope_theta = 10000;
        model.has_bias = i == CASE_FALCON_ALL_HEADS;
        model.ffn = 40;
        model.n_kv_heads = i == CASE_FALCON_ONE_HEAD ? 1 : 4;
    }
    if (i == CASE_FALCON_GROUPED)
        model.n_kv_heads = 2;
    if (i == CASE_MISTRAL)
        model.head_dim = 10;
    if (i == CASE_LLAMA_ONE_HEAD) {
        model.n_kv_heads = 1;
        model.ffn = 36;
    }
    assert_int_equal(mist_model_check(&model, &err), MIST_OK);
    return model;
}

#define SHAPE(b, s, ranks, n_threads, cuts_sequences, splits, type)                      \
    {                                                                                    \
        .micro_batch = (b), .seq = (s), .tp = (ranks), .threads = (n_threads),           \
        .is_sequence_parallel = (cuts_sequences), .splits_backward = (splits),           \
        .dtype = (type)                                                                  \
    }
static const struct mist_layer_shape case_shapes[] = {
    SHAPE(1, 1, 1, 1, false, false, MIST_DTYPE_FP32),
    SHAPE(1, 16, 1, 1, false, false, MIST_DTYPE_FP32),
    SHAPE(2, 16, 1, 2, false, true, MIST_DTYPE_BF16),
    SHAPE(3, 33, 1, 2, false, false, MIST_DTYPE_FP32),
    SHAPE(4, 96, 1, 7, false, true, MIST_DTYPE_FP32),
    SHAPE(2, 16, 2, 1, false, false, MIST_DTYPE_FP32),
    SHAPE(1, 65, 2, 3, false, true, MIST_DTYPE_FP32),
    SHAPE(2, 33, 2, 3, true, false, MIST_DTYPE_FP32),
    SHAPE(2, 80, 2, 1, true, true, MIST_DTYPE_FP32),
    SHAPE(2, 80, 4, 2, false, false, MIST_DTYPE_BF16),
    SHAPE(1, 64, 4, 2, true, false, MIST_DTYPE_BF16),
    SHAPE(1, 64, 4, 2, true, true, MIST_DTYPE_BF16),
};
#undef SHAPE

static inline bool case_fits(const struct mist_model *m, struct mist_layer_shape at)
{
    return m->n_heads % at.tp == 0 && m->ffn % at.tp == 0 &&
           (m->n_kv_heads == 1 || m->n_kv_heads % at.tp == 0);
}

/* Calls visit for every model, shape and kind of module. */
static inline void for_all(void (*visit)(const struct mist_model *,
                                         const struct mist_layer_layout *))
{
    struct mist_err err = {0};
    static struct mist_layer_layout layout;

    for (int i = 0; i < N_CASES; i++) {
        struct mist_model model = case_model(i);
        for (size_t k = 0; k < sizeof case_shapes / sizeof case_shapes[0]; k++) {
            if (!case_fits(&model, case_shapes[k]))
                continue;
            for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
                assert_int_equal(mist_layer_layout_make(&model,
                                                        (enum mist_layer_kind)kind,
                                                        case_shapes[k], &layout, &err),
                                 MIST_OK);
                visit(&model, &layout);
            }
        }
    }
}

static inline bool is_linear(enum mist_op op)
{
    return op == MIST_OP_LINEAR || op == MIST_OP_LINEAR_BIAS ||
           op == MIST_OP_LINEAR_GELU || op == MIST_OP_LINEAR_RESIDUAL;
}

static inline bool is_communication(enum mist_op op)
{
    return op == MIST_OP_TP_ALL_REDUCE || op == MIST_OP_TP_REDUCE_SCATTER ||
           op == MIST_OP_TP_ALL_GATHER || op == MIST_OP_CP_ALL_GATHER ||
           op == MIST_OP_CP_REDUCE_SCATTER;
}

/* Operands of an operator in a phase, one letter each by index: r read, w written, u read
 * and written (in place or partly), d read and destroyed; capitals may be absent. NULL:
 * no such step. */
static inline const char *access_of(enum mist_op op, enum mist_phase phase)
{
    bool is_forward = phase == MIST_PHASE_FORWARD;

    if (phase == MIST_PHASE_BACKWARD_WEIGHT &&
        (op == MIST_OP_LINEAR_GELU || op == MIST_OP_LINEAR_RESIDUAL))
        return NULL; /* what is fused has no weight */
    if (phase == MIST_PHASE_BACKWARD_WEIGHT)
        return op == MIST_OP_EMBEDDING ? "dr" : is_linear(op) ? "rr" : NULL;
    switch (op) {
    case MIST_OP_EMBEDDING:
        return is_forward ? "wr" : NULL;
    case MIST_OP_LAYER_NORM:
    case MIST_OP_RMS_NORM:
        return is_forward ? "wwr" : "wrRrr";
    case MIST_OP_RESIDUAL_LAYER_NORM:
    case MIST_OP_RESIDUAL_RMS_NORM:
        return is_forward ? "wwwrr" : NULL;
    case MIST_OP_LINEAR:
    case MIST_OP_LINEAR_BIAS:
        return "wr";
    case MIST_OP_LINEAR_RESIDUAL:
        return "wrr";
    case MIST_OP_ATTENTION:
        return is_forward ? "wwr" : "wrrrr";
    case MIST_OP_ATTENTION_PART:
        return is_forward ? "wwrr" : "wwrrrrr";
    case MIST_OP_KV_PACK:
        return is_forward ? "wr" : "ur";
    case MIST_OP_KV_ORDER:
        return "wr";
    case MIST_OP_ROPE:
        return "ur";
    case MIST_OP_HEAD_NORM:
        return is_forward ? "uw" : "ur";
    case MIST_OP_LINEAR_GELU:
        return is_forward ? "wwr" : "wrr";
    case MIST_OP_GELU:
        return is_forward ? "wr" : NULL;
    case MIST_OP_SWIGLU:
        return is_forward ? "wr" : "wrr";
    case MIST_OP_RESIDUAL:
        return is_forward ? "wrr" : NULL;
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        return is_forward ? "wwrr" : NULL;
    case MIST_OP_CROSS_ENTROPY_STATS:
        return is_forward ? "wrr" : NULL;
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return is_forward ? "uwrr" : NULL;
    case MIST_OP_TP_ALL_REDUCE:
        return is_forward ? "u" : NULL;
    case MIST_OP_TP_REDUCE_SCATTER:
    case MIST_OP_CP_REDUCE_SCATTER:
        return is_forward ? "wd" : NULL;
    case MIST_OP_TP_ALL_GATHER:
    case MIST_OP_CP_ALL_GATHER:
        return is_forward ? "wr" : NULL;
    default:
        return NULL;
    }
}

#endif
