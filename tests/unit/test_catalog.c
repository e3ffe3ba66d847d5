/*
 * The catalogue against what is written down here a second time: which operands every
 * (operator, phase) reads and writes and how large they are, the parameter counts of
 * model.h, the FLOP and the saved bytes of a transformer, and the kernels' own workspace
 * sizes.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include "exec/cpu_kernels.h" /* workspace sizes */
#include "sim/catalog.h"
#include "tests/unit/tiny_models.h"

#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------ what to try */

enum { N_MODELS = 4 };

static struct mist_model get_model(int i)
{
    struct mist_model model;
    struct mist_err err = {0};

    if (i == 0) {
        assert_int_equal(mist_model_load("gpt3-demo", &model, &err), MIST_OK);
        return model;
    }
    model = mist_tiny_model(i == 2 ? MIST_FAMILY_LLAMA : MIST_FAMILY_GPT, 3);
    if (i == 3)
        model.has_bias = false;
    assert_int_equal(mist_model_check(&model, &err), MIST_OK);
    return model;
}

static const struct mist_layer_shape shapes[] = {
    {1, 1, 1, 1},  {1, 16, 1, 1}, {2, 16, 1, 2}, {3, 33, 1, 2},
    {4, 96, 1, 7}, {2, 16, 2, 1}, {1, 65, 2, 3},
};

/* Calls visit for every model, shape and kind of module. */
static void for_all(void (*visit)(const struct mist_catalog *,
                                  const struct mist_layer_layout *))
{
    struct mist_err err = {0};

    for (int i = 0; i < N_MODELS; i++) {
        struct mist_model model = get_model(i);
        struct mist_catalog *catalog;
        assert_int_equal(mist_catalog_new(&model, &catalog, &err), MIST_OK);
        for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
            for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
                struct mist_layer_layout layout;
                assert_int_equal(mist_layer_layout_make(catalog,
                                                        (enum mist_layer_kind)kind,
                                                        shapes[k], &layout, &err),
                                 MIST_OK);
                visit(catalog, &layout);
            }
        }
        mist_catalog_free(catalog);
    }
}

static int64_t align64(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* ------------------------------------------------------------------------- parameters */

static void check_parameters(const struct mist_catalog *catalog,
                             const struct mist_layer_layout *layout)
{
    const struct mist_model *m = &catalog->model;
    const int64_t expected[MIST_N_LAYER_KINDS] = {
        mist_model_n_embedding_parameters(m),
        mist_model_n_block_parameters(m),
        mist_model_n_head_parameters(m),
    };
    int64_t sum = 0, end = 0;

    for (int i = 0; i < layout->n_params; i++) {
        assert_true(layout->param_elements[i] > 0);
        assert_int_equal(layout->param_offset[i] % 16, 0);
        assert_true(layout->param_offset[i] >= end && layout->param_offset[i] < end + 16);
        end = layout->param_offset[i] + layout->param_elements[i];
        sum += layout->param_elements[i];
    }
    assert_true(layout->n_parameters >= end && layout->n_parameters < end + 16);
    if (layout->shape.tp == 1)
        assert_int_equal(sum, expected[layout->kind]);
}

static void test_parameters(void **state)
{
    (void)state;
    for_all(check_parameters);
}

/* All modules together: gpt3-demo counted by hand. */
static void test_whole_model(void **state)
{
    struct mist_model model = get_model(0);
    struct mist_catalog *catalog;
    struct mist_err err = {0};
    int64_t n[MIST_N_LAYER_KINDS] = {0};

    (void)state;
    assert_int_equal(mist_catalog_new(&model, &catalog, &err), MIST_OK);
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        struct mist_layer_layout layout;
        assert_int_equal(mist_layer_layout_make(catalog, (enum mist_layer_kind)kind,
                                                (struct mist_layer_shape){1, 64, 1, 1},
                                                &layout, &err),
                         MIST_OK);
        for (int i = 0; i < layout.n_params; i++)
            n[kind] += layout.param_elements[i];
    }
    assert_int_equal(n[0] + model.n_layers * n[1] + n[2],
                     mist_model_n_parameters(&model));
    assert_int_equal(n[0] + model.n_layers * n[1] + n[2],
                     (256 + 1024) * 256 + 12 * (12 * 256 * 256 + 13 * 256) + 512 +
                         256 * 256);
    mist_catalog_free(catalog);
}

/* ------------------------------------------------------------------------------- FLOP */

static bool is_linear(enum mist_op op)
{
    return op == MIST_OP_LINEAR || op == MIST_OP_LINEAR_BIAS;
}

static double sum_flop(const struct mist_concrete_step *steps, int32_t n, bool attention)
{
    double flop = 0;

    for (int32_t i = 0; i < n; i++)
        if (attention ? steps[i].op == MIST_OP_ATTENTION : is_linear(steps[i].op))
            flop += steps[i].flop;
    return flop;
}

/*
 * 6 FLOP per token and matrix weight, 2 of them forward; and causal attention, where
 * query i meets i + 1 (about s / 2) keys: 2 products forward, 5 backward (scores again,
 * dv, dp, dq, dk), each 2 head_dim FLOP per pair and head.
 */
static void check_flop(const struct mist_catalog *catalog,
                       const struct mist_layer_layout *layout)
{
    const struct mist_model *m = &catalog->model;
    double tokens = (double)layout->shape.micro_batch * layout->shape.seq;
    double h = m->hidden, q = m->n_heads * m->head_dim, kv = m->n_kv_heads * m->head_dim;
    double n_weights =
        h * (q + 2 * kv) + q * h + (m->family == MIST_FAMILY_LLAMA ? 3 : 2) * h * m->ffn;
    double n_pairs = tokens * layout->shape.seq / 2, pair_flop = 0, share = 1;

    if (layout->kind == MIST_LAYER_BLOCK)
        pair_flop = n_pairs * m->n_heads * 2 * m->head_dim;
    if (layout->kind == MIST_LAYER_EMBEDDING)
        n_weights = 0;
    if (layout->kind == MIST_LAYER_HEAD)
        n_weights = h * m->vocab;
    else
        share = layout->shape.tp;
    double forward = sum_flop(layout->forward, layout->n_forward, false);
    double backward = sum_flop(layout->backward, layout->n_backward, false);
    assert_true(forward + backward == 6 * tokens * n_weights / share);
    assert_true(forward ==
                (layout->kind == MIST_LAYER_HEAD ? 6 : 2) * tokens * n_weights / share);
    assert_true(sum_flop(layout->forward, layout->n_forward, true) ==
                2 * pair_flop / share);
    assert_true(sum_flop(layout->backward, layout->n_backward, true) ==
                5 * pair_flop / share);
}

static void test_flop(void **state)
{
    (void)state;
    for_all(check_flop);
}

/* ------------------------------------------------------------------------ saved bytes */

/* fp32 elements per token that a block keeps, in the order of its forward. */
static int64_t block_saved_bytes(const struct mist_model *m, struct mist_layer_shape at)
{
    int64_t tokens = (int64_t)at.micro_batch * at.seq, d = m->head_dim;
    int64_t heads = m->n_heads / at.tp, kv_heads = m->n_kv_heads / at.tp;
    int64_t f = m->ffn / at.tp, h = m->hidden, sum = 0;
    const int64_t widths[] = {
        h,
        2,                          /* norm and its statistics */
        (heads + 2 * kv_heads) * d, /* projections */
        heads * d,
        heads, /* attention and its log-sum-exp */
        h,
        h,
        2, /* residual, norm and its statistics */
        m->family == MIST_FAMILY_LLAMA ? 2 * f : f,
        f, /* around the activation */
    };

    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++)
        sum += align64(4 * tokens * widths[i]);
    return sum;
}

static void check_saved(const struct mist_catalog *catalog,
                        const struct mist_layer_layout *layout)
{
    const struct mist_model *m = &catalog->model;
    int64_t tokens = (int64_t)layout->shape.micro_batch * layout->shape.seq;
    int64_t head = align64(8 * tokens) + align64(4 * tokens) +
                   align64(4 * tokens * m->hidden); /* stats, losses, gradient */
    const int64_t expected[MIST_N_LAYER_KINDS] = {0, block_saved_bytes(m, layout->shape),
                                                  head};
    bool is_block = layout->kind == MIST_LAYER_BLOCK;
    int64_t end = 0;

    assert_int_equal(layout->saved_bytes, expected[layout->kind]);
    for (int i = 0; i < layout->n_tensors; i++) {
        if (layout->tensor_class[i] != MIST_TENSOR_SAVED)
            continue;
        assert_int_equal(layout->offset_forward[i], end);
        assert_int_equal(layout->offset_backward[i], end);
        end = align64(end + layout->tensor_bytes[i]);
    }
    assert_int_equal(end, layout->saved_bytes);
    if (layout->kind != MIST_LAYER_EMBEDDING)
        assert_int_equal(layout->input_bytes, 4 * tokens * m->hidden);
    if (layout->kind != MIST_LAYER_HEAD)
        assert_int_equal(layout->output_bytes, 4 * tokens * m->hidden);
    assert_int_equal(layout->constant_bytes, is_block && m->family == MIST_FAMILY_LLAMA
                                                 ? 4 * layout->shape.seq * m->head_dim
                                                 : 0);
}

static void test_saved_bytes(void **state)
{
    (void)state;
    for_all(check_saved);
}

/* --------------------------------------------------------------------------- operands */

/* Operands of an operator in a phase, one letter each by index: r read, w written, u read
 * and written (in place or partly); capitals may be absent. Sizes are checked apart. */
static const char *access_of(enum mist_op op, enum mist_phase phase)
{
    bool is_forward = phase == MIST_PHASE_FORWARD;

    if (phase == MIST_PHASE_BACKWARD_WEIGHT)
        return op == MIST_OP_EMBEDDING || is_linear(op) ? "rr" : NULL;
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
    case MIST_OP_ATTENTION:
        return is_forward ? "wwr" : "wrrrr";
    case MIST_OP_ROPE:
        return "ur";
    case MIST_OP_GELU:
    case MIST_OP_SWIGLU:
        return is_forward ? "wr" : "wrr";
    case MIST_OP_RESIDUAL:
        return is_forward ? "wrr" : NULL;
    case MIST_OP_CROSS_ENTROPY:
        return is_forward ? "uwr" : NULL;
    case MIST_OP_TP_ALL_REDUCE:
        return "u";
    default:
        return NULL;
    }
}

/* Elements of operand k, from the kernels' contracts (exec/cpu_kernels.h). */
static int64_t operand_elements(const struct mist_concrete_step *step, int k)
{
    const int64_t *d = step->dims;
    bool is_forward = step->phase == MIST_PHASE_FORWARD;

    switch (step->op) {
    case MIST_OP_EMBEDDING: /* rows, hidden, vocab */
        return k == 0 ? d[0] * d[1] : d[0];
    case MIST_OP_LAYER_NORM: /* rows, hidden */
    case MIST_OP_RMS_NORM:
        return k == (is_forward ? MIST_ARG_NORM_STATS : MIST_ARG_DNORM_STATS)
                   ? 2 * d[0]
                   : d[0] * d[1];
    case MIST_OP_RESIDUAL_LAYER_NORM:
    case MIST_OP_RESIDUAL_RMS_NORM:
        return k == MIST_ARG_RNORM_STATS ? 2 * d[0] : d[0] * d[1];
    case MIST_OP_LINEAR: /* rows, n_in, n_out */
    case MIST_OP_LINEAR_BIAS:
        if (step->phase == MIST_PHASE_FORWARD ||
            step->phase == MIST_PHASE_BACKWARD_WEIGHT)
            return d[0] * d[k == 0 ? 2 : 1];
        return d[0] * d[k == 0 ? 1 : 2];
    case MIST_OP_ATTENTION: /* batch, seq, heads, kv_heads, head_dim */
        if (k == (is_forward ? MIST_ARG_ATTENTION_LSE : MIST_ARG_DATTENTION_LSE))
            return d[0] * d[1] * d[2];
        if (k == MIST_ARG_ATTENTION_QKV || (!is_forward && k == MIST_ARG_DX))
            return d[0] * d[1] * (d[2] + 2 * d[3]) * d[4];
        return d[0] * d[1] * d[2] * d[4];
    case MIST_OP_ROPE:
        return k == 0 ? d[0] * d[1] * (d[2] + 2 * d[3]) * d[4] : d[1] * d[4];
    case MIST_OP_GELU: /* elements */
    case MIST_OP_RESIDUAL:
    case MIST_OP_TP_ALL_REDUCE:
        return d[0];
    case MIST_OP_SWIGLU: /* rows, width */
        if (is_forward)
            return d[0] * d[1] * (k == 0 ? 1 : 2);
        return d[0] * d[1] * (k == MIST_ARG_DY ? 1 : 2);
    case MIST_OP_CROSS_ENTROPY: /* rows, vocab */
        return k == 0 ? d[0] * d[1] : d[0];
    default:
        return -1;
    }
}

/* Elements of parameter k (weight, bias); 0: the operator has none. */
static int64_t param_elements(const struct mist_concrete_step *step,
                              const struct mist_model *m, int k)
{
    const int64_t *d = step->dims;

    switch (step->op) {
    case MIST_OP_EMBEDDING:
        return k == 0 ? d[2] * d[1] : (int64_t)m->max_seq * d[1];
    case MIST_OP_LAYER_NORM:
    case MIST_OP_RESIDUAL_LAYER_NORM:
        return d[1];
    case MIST_OP_RMS_NORM:
    case MIST_OP_RESIDUAL_RMS_NORM:
        return k == 0 ? d[1] : 0;
    case MIST_OP_LINEAR:
        return k == 0 ? d[1] * d[2] : 0;
    case MIST_OP_LINEAR_BIAS:
        return k == 0 ? d[1] * d[2] : d[2];
    default:
        return 0;
    }
}

/*
 * Bytes that a step must move: each operand once, twice where it is read and written; of
 * the parameters a linear layer's weight, and of the embedding's tables the rows in use
 * (their gradients are read and written). Of packed projections RoPE turns q and k.
 */
static double least_bytes(const struct mist_concrete_step *step)
{
    const char *access = access_of(step->op, step->phase);
    double n = 0;

    for (int k = 0; access[k]; k++)
        if (step->operands[k] >= 0)
            n += (access[k] == 'u' ? 2.0 : 1.0) * (double)operand_elements(step, k);
    if (is_linear(step->op))
        n += (double)(step->dims[1] * step->dims[2]);
    if (step->op == MIST_OP_EMBEDDING)
        for (int k = 0; k < 2; k++)
            if (step->params[k] >= 0)
                n += (step->phase == MIST_PHASE_FORWARD ? 1.0 : 2.0) *
                     (double)(step->dims[0] * step->dims[1]);
    if (step->op == MIST_OP_ROPE)
        n -=
            2.0 * (double)(step->dims[0] * step->dims[1] * step->dims[3] * step->dims[4]);
    return 4 * n;
}

/* The declaration leaves out what is small: statistics, ids, the RoPE table. */
static void check_bytes(const struct mist_concrete_step *step)
{
    const int64_t *d = step->dims;
    double small = 0;

    if (step->op == MIST_OP_ATTENTION)
        small = 4.0 * (double)(d[0] * d[1] * d[2]);
    else if (step->op == MIST_OP_ROPE)
        small = 4.0 * (double)(d[1] * d[4]);
    else if (step->op != MIST_OP_GELU && step->op != MIST_OP_RESIDUAL &&
             step->op != MIST_OP_TP_ALL_REDUCE && step->op != MIST_OP_SWIGLU)
        small = 8.0 * (double)d[0];
    if (step->op == MIST_OP_TP_ALL_REDUCE) /* the message: communication, not memory */
        small = 4.0 * (double)d[0];
    double least = least_bytes(step);
    if (step->bytes > least || step->bytes < least - small)
        fail_msg("%s %s moves %.0f bytes, expected %.0f - %.0f", step->name,
                 mist_phase_name(step->phase), step->bytes, least - small, least);
}

static void check_params_of(const struct mist_catalog *catalog,
                            const struct mist_layer_layout *layout,
                            const struct mist_concrete_step *step)
{
    for (int k = 0; k < 2; k++) {
        int64_t n = param_elements(step, &catalog->model, k);
        int8_t id = step->params[k];
        assert_true(id >= -1 && id < layout->n_params);
        assert_int_equal(id >= 0, n > 0);
        if (id >= 0)
            assert_int_equal(layout->param_elements[id], n);
    }
}

/* Whether the same tensor may be operands j and k of the step
 * (cpu_kernels.h: "may alias"). */
static bool may_alias(const struct mist_concrete_step *step, int j, int k)
{
    return step->op == MIST_OP_GELU && step->phase == MIST_PHASE_BACKWARD_INPUT &&
           j == MIST_ARG_DX && k == MIST_ARG_DY;
}

static void check_operands(const struct mist_catalog *catalog,
                           const struct mist_layer_layout *layout,
                           const struct mist_concrete_step *step)
{
    const char *access = access_of(step->op, step->phase);

    assert_non_null(access);
    for (int k = 0; k < MIST_MAX_OPERANDS; k++) {
        int8_t id = step->operands[k];
        if (k >= (int)strlen(access)) {
            assert_int_equal(id, -1);
            continue;
        }
        assert_true(id < layout->n_tensors);
        assert_true(id >= 0 || (id == -1 && access[k] == 'R'));
        if (id < 0)
            continue;
        if (layout->tensor_bytes[id] != 4 * operand_elements(step, k))
            fail_msg("%s %s: operand %d has %lld bytes, expected %lld", step->name,
                     mist_phase_name(step->phase), k, (long long)layout->tensor_bytes[id],
                     4 * (long long)operand_elements(step, k));
        for (int j = 0; j < k; j++)
            assert_true(step->operands[j] != id || may_alias(step, j, k));
    }
    check_params_of(catalog, layout, step);
    check_bytes(step);
}

/* Every parameter gets its gradient from one step of the two programs. */
static void check_gradients(const struct mist_layer_layout *layout)
{
    int n_written[MIST_MAX_PARAMS] = {0};

    for (int i = 0; i < layout->n_forward + layout->n_backward; i++) {
        const struct mist_concrete_step *step =
            i < layout->n_forward ? &layout->forward[i]
                                  : &layout->backward[i - layout->n_forward];
        bool is_norm = step->op == MIST_OP_LAYER_NORM || step->op == MIST_OP_RMS_NORM;
        if (step->phase == MIST_PHASE_BACKWARD_WEIGHT ||
            (is_norm && step->phase == MIST_PHASE_BACKWARD_INPUT))
            for (int k = 0; k < 2; k++)
                if (step->params[k] >= 0)
                    n_written[step->params[k]]++;
    }
    for (int i = 0; i < layout->n_params; i++)
        assert_int_equal(n_written[i], 1);
}

static void check_all_operands(const struct mist_catalog *catalog,
                               const struct mist_layer_layout *layout)
{
    for (int i = 0; i < layout->n_forward; i++)
        check_operands(catalog, layout, &layout->forward[i]);
    for (int i = 0; i < layout->n_backward; i++) {
        check_operands(catalog, layout, &layout->backward[i]);
        /* the all-reduce has no phase of its own */
        assert_true(layout->backward[i].phase != MIST_PHASE_FORWARD ||
                    layout->backward[i].op == MIST_OP_TP_ALL_REDUCE);
    }
    check_gradients(layout);
}

static void test_operands(void **state)
{
    (void)state;
    for_all(check_all_operands);
}

/* ----------------------------------------------------------------- order of the steps */

/* What a program may read without writing it first, and what it may write. */
static bool comes_from_outside(enum mist_tensor_class class, bool is_backward)
{
    switch (class) {
    case MIST_TENSOR_INPUT:
    case MIST_TENSOR_TOKENS:
    case MIST_TENSOR_TARGETS:
    case MIST_TENSOR_CONSTANT:
        return true;
    case MIST_TENSOR_SAVED:
    case MIST_TENSOR_GRAD_OUTPUT:
        return is_backward;
    default:
        return false;
    }
}

static bool may_be_written(enum mist_tensor_class class, bool is_backward)
{
    return class == MIST_TENSOR_SCRATCH ||
           class == (is_backward ? MIST_TENSOR_GRAD_INPUT : MIST_TENSOR_OUTPUT) ||
           (class == MIST_TENSOR_SAVED && !is_backward);
}

/* What a walk over a program has seen of each tensor. */
struct seen {
    bool is_written[MIST_MAX_TENSORS], is_read[MIST_MAX_TENSORS];
    bool is_waiting[MIST_MAX_TENSORS]; /* written, and not read since */
};

static void see(struct seen *seen, const struct mist_layer_layout *layout, int8_t id,
                char access, bool is_backward)
{
    enum mist_tensor_class class = layout->tensor_class[id];

    if (access == 'w') { /* nothing is computed in vain */
        assert_false(seen->is_waiting[id]);
    } else {
        assert_true(seen->is_written[id] || comes_from_outside(class, is_backward));
        seen->is_read[id] = true;
        seen->is_waiting[id] = false;
    }
    if (access == 'w' || access == 'u') {
        assert_true(may_be_written(class, is_backward));
        seen->is_written[id] = seen->is_waiting[id] = true;
    }
}

/* Runs the first n steps; a read of what was never written is a failure. */
static void walk(const struct mist_layer_layout *layout, bool is_backward, int32_t n,
                 struct seen *seen)
{
    const struct mist_concrete_step *steps =
        is_backward ? layout->backward : layout->forward;

    *seen = (struct seen){0};
    for (int32_t i = 0; i < n; i++) {
        const char *access = access_of(steps[i].op, steps[i].phase);
        for (int pass = 0; pass < 2; pass++) /* reads come before writes */
            for (int k = 0; access[k]; k++)
                if (steps[i].operands[k] >= 0 && (access[k] == 'w') == pass)
                    see(seen, layout, steps[i].operands[k], access[k], is_backward);
    }
}

static bool writes_all(const struct mist_layer_layout *layout, const bool *written,
                       enum mist_tensor_class class)
{
    for (int i = 0; i < layout->n_tensors; i++)
        if (layout->tensor_class[i] == class && !written[i])
            return false;
    return true;
}

static void check_no_waste(const struct mist_layer_layout *layout,
                           const struct seen *seen, bool is_backward)
{
    for (int i = 0; i < layout->n_tensors; i++) {
        enum mist_tensor_class class = layout->tensor_class[i];
        if (class == MIST_TENSOR_SCRATCH)
            assert_false(seen->is_waiting[i]);
        /* losses are kept for the report, 4 bytes a token */
        if (class == MIST_TENSOR_SAVED && is_backward)
            assert_true(seen->is_read[i] ||
                        (layout->kind == MIST_LAYER_HEAD &&
                         layout->tensor_bytes[i] ==
                             4 * layout->shape.micro_batch * layout->shape.seq));
        if (class == MIST_TENSOR_GRAD_OUTPUT && is_backward)
            assert_true(seen->is_read[i]);
    }
}

static void check_order(const struct mist_catalog *catalog,
                        const struct mist_layer_layout *layout)
{
    struct seen seen;
    int32_t n = 0;

    (void)catalog;
    walk(layout, false, layout->n_forward, &seen);
    check_no_waste(layout, &seen, false);
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_OUTPUT));
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_SAVED));
    walk(layout, true, layout->n_backward, &seen);
    check_no_waste(layout, &seen, true);
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_GRAD_INPUT));
    /* recomputation: the shortest beginning that writes all that is saved, no output */
    for (;; n++) {
        walk(layout, false, n, &seen);
        if (writes_all(layout, seen.is_written, MIST_TENSOR_SAVED))
            break;
    }
    assert_int_equal(layout->n_recompute, n);
    for (int i = 0; i < layout->n_tensors && layout->kind == MIST_LAYER_BLOCK; i++)
        assert_false(layout->tensor_class[i] == MIST_TENSOR_OUTPUT && seen.is_written[i]);
}

static void test_order(void **state)
{
    (void)state;
    for_all(check_order);
}

/* ---------------------------------------------------------------------------- scratch */

struct range {
    int64_t start, end;  /* bytes */
    int32_t first, last; /* steps */
};

static int list_ranges(const struct mist_layer_layout *layout, bool is_backward,
                       struct range *out)
{
    const struct mist_concrete_step *steps =
        is_backward ? layout->backward : layout->forward;
    const int64_t *offsets =
        is_backward ? layout->offset_backward : layout->offset_forward;
    int32_t n_steps = is_backward ? layout->n_backward : layout->n_forward;
    int n = 0;

    for (int id = 0; id < layout->n_tensors; id++) {
        struct range range = {offsets[id], offsets[id] + layout->tensor_bytes[id], -1,
                              -1};
        for (int32_t i = 0; i < n_steps; i++)
            if (memchr(steps[i].operands, id, MIST_MAX_OPERANDS)) {
                range.first = range.first < 0 ? i : range.first;
                range.last = i;
            }
        if (layout->tensor_class[id] == MIST_TENSOR_SCRATCH && range.first >= 0)
            out[n++] = range;
    }
    for (int32_t i = 0; i < n_steps; i++)
        if (steps[i].workspace_bytes > 0)
            out[n++] = (struct range){
                steps[i].workspace_offset,
                steps[i].workspace_offset + steps[i].workspace_bytes, i, i};
    return n;
}

static void check_scratch(const struct mist_catalog *catalog,
                          const struct mist_layer_layout *layout)
{
    struct range ranges[MIST_MAX_TENSORS + MIST_MAX_STEPS];

    (void)catalog;
    for (int b = 0; b < 2; b++) {
        int n = list_ranges(layout, b, ranges);
        int64_t size = b ? layout->scratch_backward_bytes : layout->scratch_forward_bytes;
        int64_t end = 0;
        for (int i = 0; i < n; i++) {
            assert_true(ranges[i].start >= 0 && ranges[i].start % 64 == 0);
            assert_true(ranges[i].end <= size);
            end = ranges[i].end > end ? ranges[i].end : end;
            for (int k = 0; k < i; k++)
                assert_true(ranges[i].first > ranges[k].last ||
                            ranges[k].first > ranges[i].last ||
                            ranges[i].start >= ranges[k].end ||
                            ranges[k].start >= ranges[i].end);
        }
        assert_int_equal(size, align64(end));
    }
}

static void test_scratch(void **state)
{
    (void)state;
    for_all(check_scratch);
}

static void check_workspace(const struct mist_catalog *catalog,
                            const struct mist_layer_layout *layout)
{
    (void)catalog;
    for (int i = 0; i < layout->n_forward + layout->n_backward; i++) {
        const struct mist_concrete_step *step =
            i < layout->n_forward ? &layout->forward[i]
                                  : &layout->backward[i - layout->n_forward];
        const int64_t *d = step->dims;
        struct mist_cpu_attention shape = {d[0], d[1], d[2], d[3], d[4]};
        bool is_forward = step->phase == MIST_PHASE_FORWARD;
        int threads = layout->shape.threads;
        size_t need = 0;
        if (step->op == MIST_OP_ATTENTION && is_forward)
            need = mist_cpu_attention_forward_workspace_bytes(&shape, threads);
        else if (step->op == MIST_OP_ATTENTION)
            need = mist_cpu_attention_backward_workspace_bytes(&shape, threads);
        else if ((step->op == MIST_OP_LAYER_NORM || step->op == MIST_OP_RMS_NORM) &&
                 !is_forward)
            need = mist_cpu_norm_backward_workspace_bytes(d[0], d[1]);
        assert_int_equal(step->workspace_bytes, need);
    }
}

static void test_workspace(void **state)
{
    (void)state;
    for_all(check_workspace);
}

/* ---------------------------------------------------------------------- names, errors */

static void test_names(void **state)
{
    char text[80], cut[12];
    const int64_t dims[MIST_MAX_DIMS] = {512, 256, 768};

    (void)state;
    assert_string_equal(mist_op_shape_text(MIST_OP_LINEAR_BIAS, dims, text, sizeof text),
                        "rows=512;n_in=256;n_out=768");
    assert_string_equal(mist_op_shape_text(MIST_OP_LINEAR_BIAS, dims, cut, sizeof cut),
                        "rows=512;n_");
    for (int i = 0; i < MIST_N_OPS; i++) {
        assert_true(mist_op_name((enum mist_op)i)[0]);
        assert_non_null(mist_op_dims((enum mist_op)i)[0]);
        for (int k = 0; k < i; k++)
            assert_string_not_equal(mist_op_name((enum mist_op)i),
                                    mist_op_name((enum mist_op)k));
    }
    for (int i = 0; i < MIST_N_PHASES; i++)
        assert_true(mist_phase_name((enum mist_phase)i)[0]);
}

static void test_refused(void **state)
{
    struct mist_model falcon, tied = get_model(1), demo = get_model(0);
    struct mist_catalog *catalog = NULL;
    struct mist_layer_layout layout;
    struct mist_err err = {0};

    (void)state;
    assert_int_equal(mist_model_load("falcon-7b", &falcon, &err), MIST_OK);
    assert_int_equal(mist_catalog_new(&falcon, &catalog, &err), MIST_ERR_INPUT);
    tied.ties_embeddings = true;
    assert_int_equal(mist_catalog_new(&tied, &catalog, &err), MIST_ERR_INPUT);
    assert_null(catalog);
    /* 4 heads over 3 ranks: no whole number of anything */
    assert_int_equal(mist_catalog_new(&demo, &catalog, &err), MIST_OK);
    assert_int_equal(mist_layer_layout_make(catalog, MIST_LAYER_BLOCK,
                                            (struct mist_layer_shape){1, 16, 3, 1},
                                            &layout, &err),
                     MIST_ERR_RANGE);
    mist_catalog_free(catalog);
    mist_catalog_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parameters), cmocka_unit_test(test_whole_model),
        cmocka_unit_test(test_flop),       cmocka_unit_test(test_saved_bytes),
        cmocka_unit_test(test_operands),   cmocka_unit_test(test_order),
        cmocka_unit_test(test_scratch),    cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_names),      cmocka_unit_test(test_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
