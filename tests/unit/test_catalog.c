/*
 * The catalogue against what is written down here a second time: which operands every
 * (operator, phase) reads and writes and how large they are, the parameter counts of
 * model.h, the FLOP and the saved bytes of a transformer, the communication of tensor
 * parallelism. Programs, parts and scratch are in test_layer_layout.c.
 */
#include "tests/unit/test.h"

#include "sim/model/catalog.h"
#include "tests/unit/catalog_cases.h"
#include "tests/unit/parameter_counts.h"

/* Rows of an activation between modules. */
static int64_t shard_rows(struct mist_layer_shape at)
{
    return (int64_t)at.micro_batch * at.seq / (at.is_sequence_parallel ? at.tp : 1);
}

static int64_t element_bytes(struct mist_layer_shape at)
{
    return at.dtype == MIST_DTYPE_FP32 ? 4 : 2;
}

/* Key-value heads of a rank. */
static int64_t local_kv_heads(const struct mist_model *m, struct mist_layer_shape at)
{
    return m->n_kv_heads == 1 ? 1 : m->n_kv_heads / at.tp;
}

static int64_t local_vocab(const struct mist_model *m, struct mist_layer_shape at)
{
    return (m->vocab + at.tp - 1) / at.tp;
}

static int64_t align64(int64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* ------------------------------------------------------------------------- parameters */

/* Elements of the whole parameter that some rank holds. */
static int64_t count_covered(const struct mist_param_shape *shape, int32_t tp)
{
    int64_t n_all = shape->rows * shape->columns, n = 0;
    char *is_covered = calloc((size_t)n_all, 1);

    assert_non_null(is_covered);
    for (int32_t i_tp = 0; i_tp < tp; i_tp++) {
        struct mist_param_span spans[MIST_MAX_SECTIONS];
        int32_t n_spans = mist_param_spans(shape, tp, i_tp, spans);
        for (int32_t i = 0; i < n_spans; i++)
            for (int64_t run = 0; run < spans[i].n_runs; run++)
                memset(is_covered + spans[i].global_first + run * spans[i].global_stride,
                       1, (size_t)spans[i].length);
    }
    for (int64_t i = 0; i < n_all; i++)
        n += is_covered[i];
    free(is_covered);
    return n;
}

/* Partial gradients: of norms over shards all, of a shared key-value head its rows. */
static void check_partial(const struct mist_model *m,
                          const struct mist_layer_layout *layout, int i)
{
    const char *name = layout->params[i].name;
    int64_t n = layout->params[i].n_elements, expected = 0;
    bool is_norm = strncmp(name, "norm", 4) == 0, is_qkv = strncmp(name, "qkv", 3) == 0;

    if (layout->shape.is_sequence_parallel && is_norm)
        expected = n;
    if (layout->shape.tp > 1 && strstr(name, "_norm")) /* of heads: a rank has its own */
        expected = n;
    if (layout->shape.tp > 1 && m->n_kv_heads == 1 && is_qkv)
        expected = 2 * m->head_dim * layout->params[i].shape.columns;
    assert_int_equal(layout->params[i].partial_elements, expected);
    if (expected > 0)
        assert_int_equal(layout->params[i].partial_first + expected, n);
}

static void check_parameters(const struct mist_model *m,
                             const struct mist_layer_layout *layout)
{
    const int64_t expected[MIST_N_LAYER_KINDS] = {
        count_embedding_parameters(m),
        count_block_parameters(m),
        count_head_parameters(m),
    };
    int64_t sum = 0, end = 0, unit = 64 / element_bytes(layout->shape);

    for (int i = 0; i < layout->n_params; i++) {
        bool is_head = strcmp(layout->params[i].name, "head.weight") == 0;
        assert_true(layout->params[i].n_elements > 0);
        assert_int_equal(
            layout->params[i].n_elements,
            mist_param_local_elements(&layout->params[i].shape, layout->shape.tp));
        assert_int_equal(layout->params[i].offset % unit, 0);
        assert_true(layout->params[i].offset >= end &&
                    layout->params[i].offset < end + unit);
        end = layout->params[i].offset + layout->params[i].n_elements;
        assert_int_equal(layout->params[i].is_tied, is_head && m->ties_embeddings);
        assert_int_equal(layout->params[i].is_vocabulary,
                         is_head || strcmp(layout->params[i].name, "wte") == 0);
        assert_int_equal(layout->params[i].is_norm,
                         strstr(layout->params[i].name, "norm") != NULL);
        if (!layout->params[i].is_tied)
            sum += count_covered(&layout->params[i].shape, layout->shape.tp);
        check_partial(m, layout, i);
    }
    assert_true(layout->n_parameters >= end && layout->n_parameters < end + unit);
    assert_int_equal(sum, expected[layout->kind]);
}

TEST(test_parameters)
{
    for_all(check_parameters);
}

/* All modules together: gpt3-demo counted by hand. */
TEST(test_whole_model)
{
    struct mist_model model = case_model(CASE_DEMO);
    struct mist_err err = {0};
    int64_t n[MIST_N_LAYER_KINDS] = {0};

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        struct mist_layer_layout layout;
        assert_int_equal(mist_layer_layout_make(
                             &model, (enum mist_layer_kind)kind,
                             (struct mist_layer_shape){
                                 .micro_batch = 1, .seq = 64, .tp = 1, .threads = 1},
                             &layout, &err),
                         MIST_OK);
        for (int i = 0; i < layout.n_params; i++)
            n[kind] += layout.params[i].n_elements;
    }
    assert_int_equal(n[0] + model.n_layers * n[1] + n[2], count_parameters(&model));
    assert_int_equal(n[0] + model.n_layers * n[1] + n[2],
                     (256 + 1024) * 256 + 12 * (12 * 256 * 256 + 13 * 256) + 512 +
                         256 * 256);
}

/* ------------------------------------------------------------------------------- FLOP */

/* Of what goes with a product, or with three. */
static double side_flop(const struct mist_step *step)
{
    const int64_t *d = step->dims;

    if (step->op == MIST_OP_LINEAR_CROSS_ENTROPY)
        return 20.0 * (double)(d[0] * d[2]);
    if (step->op == MIST_OP_LINEAR_RESIDUAL)
        return (double)(d[0] * d[step->phase == MIST_PHASE_FORWARD ? 2 : 1]);
    if (step->op != MIST_OP_LINEAR_GELU)
        return 0;
    return step->phase == MIST_PHASE_FORWARD ? 12.0 * (double)(d[0] * d[2])
                                             : 18.0 * (double)(d[0] * d[1]);
}

static double sum_flop(const struct mist_step *steps, int32_t n, bool attention)
{
    double flop = 0;

    for (int32_t i = 0; i < n; i++)
        if (attention
                ? steps[i].op == MIST_OP_ATTENTION
                : is_linear(steps[i].op) || steps[i].op == MIST_OP_LINEAR_CROSS_ENTROPY)
            flop += (double)steps[i].flop - side_flop(&steps[i]);
    return flop;
}

/*
 * 6 FLOP per token and matrix weight, 2 of them forward; and causal attention, where
 * query i meets i + 1 (about s / 2) keys: 2 products forward, 5 backward (scores again,
 * dv, dp, dq, dk), each 2 head_dim FLOP per pair and head.
 */
static void check_flop(const struct mist_model *m, const struct mist_layer_layout *layout)
{
    double tokens = (double)layout->shape.micro_batch * layout->shape.seq;
    double h = m->hidden, tp = layout->shape.tp, q = m->n_heads * m->head_dim / tp;
    double kv = (double)local_kv_heads(m, layout->shape) * m->head_dim;
    double n_weights =
        h * (q + 2 * kv) + q * h +
        (mist_family_traits(m->family)->has_gate ? 3 : 2) * h * m->ffn / tp;
    double n_pairs = tokens * layout->shape.seq / 2, pair_flop = 0;

    if (layout->kind == MIST_LAYER_BLOCK)
        pair_flop = n_pairs * 2 * q;
    if (layout->kind == MIST_LAYER_EMBEDDING)
        n_weights = 0;
    if (layout->kind == MIST_LAYER_HEAD)
        n_weights = h * (double)local_vocab(m, layout->shape);
    double forward = sum_flop(layout->forward, layout->n_forward, false);
    double backward = sum_flop(layout->backward, layout->n_backward, false);
    assert_true(forward + backward == 6 * tokens * n_weights);
    assert_true(forward ==
                (layout->kind == MIST_LAYER_HEAD ? 6 : 2) * tokens * n_weights);
    assert_true(sum_flop(layout->forward, layout->n_forward, true) == 2 * pair_flop);
    assert_true(sum_flop(layout->backward, layout->n_backward, true) == 5 * pair_flop);
}

TEST(test_flop)
{
    for_all(check_flop);
}

/* ------------------------------------------------------------------------ saved bytes */

/* What a block keeps per token, in the order of its forward. */
static int64_t block_saved_bytes(const struct mist_model *m, struct mist_layer_shape at)
{
    int64_t tokens = (int64_t)at.micro_batch * at.seq, shard = shard_rows(at);
    int64_t d = m->head_dim, heads = m->n_heads / at.tp, f = m->ffn / at.tp, sum = 0;
    bool is_gated = mist_family_traits(m->family)->has_gate;
    bool is_parallel = mist_family_traits(m->family)->is_parallel;
    bool has_norm2 = mist_model_n_block_norms(m) == 2;
    int64_t e = element_bytes(at), h = m->hidden;
    const int64_t sizes[] = {
        shard * h * e, /* norm, its statistics */
        shard * 2 * 4,
        tokens * (heads + 2 * local_kv_heads(m, at)) * d * e, /* projections */
        tokens * heads * d * e, /* attention, its log-sum-exp */
        tokens * heads * 4,
        m->family == MIST_FAMILY_QWEN3 /* q and k in front of their norms */
            ? tokens * (heads + local_kv_heads(m, at)) * d * e
            : 0,
        is_parallel ? 0 : shard * h * e, /* residual */
        has_norm2 ? shard * h * e : 0,
        has_norm2 ? shard * 2 * 4 : 0,
        tokens * (is_gated ? 2 * f : f) * e, /* around the activation */
        tokens * f * e,
    };

    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        sum += align64(sizes[i]);
    return sum;
}

static void check_saved(const struct mist_model *m,
                        const struct mist_layer_layout *layout)
{
    int64_t tokens = (int64_t)layout->shape.micro_batch * layout->shape.seq;
    int64_t shard = shard_rows(layout->shape), e = element_bytes(layout->shape);
    int64_t head = align64(8 * shard) + align64(4 * tokens) +
                   align64(e * shard * m->hidden); /* stats, losses, gradient */
    const int64_t expected[MIST_N_LAYER_KINDS] = {0, block_saved_bytes(m, layout->shape),
                                                  head};
    bool has_rope = layout->kind == MIST_LAYER_BLOCK && m->family != MIST_FAMILY_GPT;
    int64_t end = 0;

    assert_int_equal(layout->saved_bytes, expected[layout->kind]);
    for (int i = 0; i < layout->n_tensors; i++) {
        if (layout->tensors[i].tensor_class != MIST_TENSOR_SAVED)
            continue;
        assert_int_equal(layout->tensors[i].offset_forward, end);
        assert_int_equal(layout->tensors[i].offset_backward, end);
        end = align64(end + layout->tensors[i].bytes);
    }
    assert_int_equal(end, layout->saved_bytes);
    if (layout->kind != MIST_LAYER_EMBEDDING)
        assert_int_equal(layout->input_bytes, e * shard * m->hidden);
    if (layout->kind != MIST_LAYER_HEAD)
        assert_int_equal(layout->output_bytes, e * shard * m->hidden);
    assert_int_equal(layout->constant_bytes,
                     has_rope ? 4 * layout->shape.seq * m->head_dim : 0);
}

TEST(test_saved_bytes)
{
    for_all(check_saved);
}

/* --------------------------------------------------------------------------- operands */

/* Elements of operand k, from the kernels' contracts (exec/operators/cpu_kernels.h). */
static int64_t operand_elements(const struct mist_step *step, int k)
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
    case MIST_OP_LINEAR_RESIDUAL: /* result, residual; what is multiplied */
        return d[0] * d[is_forward == (k != 1) ? 2 : 1];
    case MIST_OP_LINEAR_GELU:
        if (is_forward) /* out, before; x */
            return d[0] * d[k <= MIST_ARG_LINEAR_GELU_BEFORE ? 2 : 1];
        return d[0] * d[k == MIST_ARG_DY ? 2 : 1];
    case MIST_OP_ATTENTION: /* batch, seq, heads, kv_heads, head_dim */
        if (k == (is_forward ? MIST_ARG_ATTENTION_LSE : MIST_ARG_DATTENTION_LSE))
            return d[0] * d[1] * d[2];
        if (k == MIST_ARG_ATTENTION_QKV || (!is_forward && k == MIST_ARG_DX))
            return d[0] * d[1] * (d[2] + 2 * d[3]) * d[4];
        return d[0] * d[1] * d[2] * d[4];
    case MIST_OP_ROPE:
        return k == 0 ? d[0] * d[1] * (d[2] + 2 * d[3]) * d[4] : d[1] * d[4];
    case MIST_OP_HEAD_NORM:
        return d[0] * d[1] * (d[2] + (k == 0 ? 2 : 1) * d[3]) * d[4];
    case MIST_OP_GELU: /* elements */
    case MIST_OP_RESIDUAL:
        return d[0];
    case MIST_OP_SWIGLU: /* rows, width */
        if (is_forward)
            return d[0] * d[1] * (k == 0 ? 1 : 2);
        return d[0] * d[1] * (k == MIST_ARG_DY ? 1 : 2);
    case MIST_OP_LINEAR_CROSS_ENTROPY: /* rows, hidden, vocab */
        return k == 0 || k == MIST_ARG_LOSS_X ? d[0] * d[1] : d[0];
    case MIST_OP_CROSS_ENTROPY_PARALLEL: /* rows, vocab, tp */
        return k == 0 ? d[0] * d[1] : k == MIST_ARG_LOSS_STATS ? 3 * d[0] * d[2] : d[0];
    case MIST_OP_CROSS_ENTROPY_STATS:
        return k == 0 ? 3 * d[0] : k == MIST_ARG_STATS_LOGITS ? d[0] * d[1] : d[0];
    default:
        return -1;
    }
}

/* Statistics, losses, ids and the RoPE table: 4 bytes each in every number format. */
static bool is_side_operand(const struct mist_step *step, int k)
{
    bool is_forward = step->phase == MIST_PHASE_FORWARD;

    switch (step->op) {
    case MIST_OP_EMBEDDING:
        return k == 1;
    case MIST_OP_LAYER_NORM:
    case MIST_OP_RMS_NORM:
        return k == (is_forward ? MIST_ARG_NORM_STATS : MIST_ARG_DNORM_STATS);
    case MIST_OP_RESIDUAL_LAYER_NORM:
    case MIST_OP_RESIDUAL_RMS_NORM:
        return k == MIST_ARG_RNORM_STATS;
    case MIST_OP_ATTENTION:
        return k == (is_forward ? MIST_ARG_ATTENTION_LSE : MIST_ARG_DATTENTION_LSE);
    case MIST_OP_ROPE:
        return k == MIST_ARG_ROPE_TABLE;
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        return k == MIST_ARG_LOSS_LOSSES || k == MIST_ARG_LOSS_TARGETS;
    case MIST_OP_CROSS_ENTROPY_PARALLEL:
        return k > 0;
    case MIST_OP_CROSS_ENTROPY_STATS:
        return k != MIST_ARG_STATS_LOGITS;
    default:
        return false;
    }
}

static int64_t operand_bytes(const struct mist_layer_layout *layout,
                             const struct mist_step *step, int k)
{
    if (is_communication(step->op)) { /* dims: bytes of the whole */
        bool is_shard = step->op == MIST_OP_TP_REDUCE_SCATTER ? k == 0 : k == 1;
        return step->op != MIST_OP_TP_ALL_REDUCE && is_shard
                   ? step->dims[0] / layout->shape.tp
                   : step->dims[0];
    }
    return (is_side_operand(step, k) ? 4 : element_bytes(layout->shape)) *
           operand_elements(step, k);
}

/* Elements of parameter k (weight, bias); 0: the operator has none. */
static int64_t param_elements(const struct mist_step *step, const struct mist_model *m,
                              int k)
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
    case MIST_OP_HEAD_NORM:
        return d[4];
    case MIST_OP_LINEAR:
    case MIST_OP_LINEAR_CROSS_ENTROPY:
        return k == 0 ? d[1] * d[2] : 0;
    case MIST_OP_LINEAR_BIAS:
        return k == 0 ? d[1] * d[2] : d[2];
    case MIST_OP_LINEAR_GELU:
    case MIST_OP_LINEAR_RESIDUAL:
        return k == 0 ? d[1] * d[2] : m->has_bias ? d[2] : 0;
    default:
        return 0;
    }
}

/*
 * Bytes that a step must move: each operand once, twice where it is read and written; of
 * the parameters a linear layer's weight, and of the embedding's tables the rows in use
 * (their gradients are read and written). Of packed projections RoPE and norms of heads touch q and k.
 * Logits are written and read by three products, and read and written by the loss between
 * them; x and the weight are read by two products each, and the weight is one's result.
 */
static double least_bytes(const struct mist_layer_layout *layout,
                          const struct mist_step *step)
{
    const char *access = access_of(step->op, step->phase);
    double e = (double)element_bytes(layout->shape), n = 0;

    for (int k = 0; access[k]; k++)
        if (step->operands[k] >= 0)
            n += (access[k] == 'u' ? 2.0 : 1.0) * (double)operand_bytes(layout, step, k);
    if (is_linear(step->op))
        n += e * (double)(step->dims[1] * step->dims[2]);
    if (step->op == MIST_OP_LINEAR_CROSS_ENTROPY)
        n += e *
             (double)(5 * step->dims[0] * step->dims[2] +
                      3 * step->dims[1] * step->dims[2] + step->dims[0] * step->dims[1]);
    if (step->op == MIST_OP_EMBEDDING)
        for (int k = 0; k < 2; k++)
            if (step->params[k] >= 0)
                n += e * (step->phase == MIST_PHASE_FORWARD ? 1.0 : 2.0) *
                     (double)(step->dims[0] * step->dims[1]);
    if (step->op == MIST_OP_ROPE || step->op == MIST_OP_HEAD_NORM)
        n -= 2.0 * e *
             (double)(step->dims[0] * step->dims[1] * step->dims[3] * step->dims[4]);
    return n;
}

/* The declaration leaves out what is small. */
static void check_bytes(const struct mist_layer_layout *layout,
                        const struct mist_step *step)
{
    const char *access = access_of(step->op, step->phase);
    double small = 0;

    if (is_communication(step->op)) {
        assert_true(step->flop == 0 && step->bytes == step->dims[0]);
        return;
    }
    for (int k = 0; access[k]; k++)
        if (is_side_operand(step, k))
            small += (double)operand_bytes(layout, step, k);
    double least = least_bytes(layout, step), bytes = (double)step->bytes;
    if (bytes > least || bytes < least - small)
        fail_msg("%s %s moves %.0f bytes, expected %.0f - %.0f", step->name,
                 mist_phase_words[step->phase], bytes, least - small, least);
}

static void check_params_of(const struct mist_model *m,
                            const struct mist_layer_layout *layout,
                            const struct mist_step *step)
{
    for (int k = 0; k < 2; k++) {
        int64_t n = param_elements(step, m, k);
        int8_t id = step->params[k];
        assert_true(id >= -1 && id < layout->n_params);
        assert_int_equal(id >= 0, n > 0);
        if (id >= 0)
            assert_int_equal(layout->params[id].n_elements, n);
    }
}

static void check_operands(const struct mist_model *m,
                           const struct mist_layer_layout *layout,
                           const struct mist_step *step)
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
        if (layout->tensors[id].bytes != operand_bytes(layout, step, k))
            fail_msg("%s %s: operand %d has %lld bytes, expected %lld", step->name,
                     mist_phase_words[step->phase], k,
                     (long long)layout->tensors[id].bytes,
                     (long long)operand_bytes(layout, step, k));
        for (int j = 0; j < k; j++)
            assert_int_not_equal(step->operands[j], id);
    }
    check_params_of(m, layout, step);
    check_bytes(layout, step);
}

/* Every parameter gets its gradient from one step of the two programs. */
static void check_gradients(const struct mist_layer_layout *layout)
{
    int n_written[MIST_MAX_PARAMS] = {0};

    for (int i = 0; i < layout->n_forward + layout->n_backward; i++) {
        const struct mist_step *step = i < layout->n_forward
                                           ? &layout->forward[i]
                                           : &layout->backward[i - layout->n_forward];
        bool is_norm = step->op == MIST_OP_LAYER_NORM || step->op == MIST_OP_RMS_NORM ||
                       step->op == MIST_OP_HEAD_NORM;
        bool adds = step->phase == MIST_PHASE_BACKWARD_WEIGHT ||
                    step->op == MIST_OP_LINEAR_CROSS_ENTROPY ||
                    (is_norm && step->phase == MIST_PHASE_BACKWARD_INPUT);
        assert_int_equal(mist_op_adds_gradients(step->op, step->phase), adds);
        if (adds)
            for (int k = 0; k < 2; k++)
                if (step->params[k] >= 0)
                    n_written[step->params[k]]++;
    }
    for (int i = 0; i < layout->n_params; i++)
        assert_int_equal(n_written[i], 1);
}

static void check_all_operands(const struct mist_model *m,
                               const struct mist_layer_layout *layout)
{
    for (int i = 0; i < mist_layer_layout_n_steps(layout, false); i++)
        check_operands(m, layout, &layout->forward[i]);
    for (int i = 0; i < layout->n_backward; i++) {
        check_operands(m, layout, &layout->backward[i]);
        /* communication has no phase of its own */
        assert_true(layout->backward[i].phase != MIST_PHASE_FORWARD ||
                    is_communication(layout->backward[i].op));
    }
    check_gradients(layout);
}

TEST(test_operands)
{
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
    enum mist_tensor_class class = layout->tensors[id].tensor_class;

    if (access == 'w') { /* nothing is computed in vain */
        assert_false(seen->is_waiting[id]);
    } else {
        assert_true(seen->is_written[id] || comes_from_outside(class, is_backward));
        seen->is_read[id] = true;
        seen->is_waiting[id] = false;
    }
    if (access == 'd')
        seen->is_written[id] = false;
    if (access == 'w' || access == 'u') {
        assert_true(may_be_written(class, is_backward));
        seen->is_written[id] = seen->is_waiting[id] = true;
    }
}

/* Runs the first n steps; a read of what was never written is a failure. */
static void walk(const struct mist_layer_layout *layout, bool is_backward, int32_t n,
                 struct seen *seen)
{
    const struct mist_step *steps = is_backward ? layout->backward : layout->forward;

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
        if (layout->tensors[i].tensor_class == class && !written[i])
            return false;
    return true;
}

static bool writes_saved(const struct mist_layer_layout *layout,
                         const struct mist_step *step)
{
    const char *access = access_of(step->op, step->phase);

    for (int k = 0; access[k]; k++)
        if ((access[k] == 'w' || access[k] == 'u') &&
            layout->tensors[step->operands[k]].tensor_class == MIST_TENSOR_SAVED)
            return true;
    return false;
}

static void check_no_waste(const struct mist_layer_layout *layout,
                           const struct seen *seen, bool is_backward)
{
    for (int i = 0; i < layout->n_tensors; i++) {
        enum mist_tensor_class class = layout->tensors[i].tensor_class;
        if (class == MIST_TENSOR_SCRATCH)
            assert_false(seen->is_waiting[i]);
        /* losses are kept for the report, 4 bytes a token */
        if (class == MIST_TENSOR_SAVED && is_backward)
            assert_true(seen->is_read[i] ||
                        (layout->kind == MIST_LAYER_HEAD &&
                         layout->tensors[i].bytes ==
                             4 * layout->shape.micro_batch * layout->shape.seq));
        if (class == MIST_TENSOR_GRAD_OUTPUT && is_backward)
            assert_true(seen->is_read[i]);
    }
}

static void check_order(const struct mist_model *m,
                        const struct mist_layer_layout *layout)
{
    struct seen seen;
    int32_t n = 0;

    (void)m;
    walk(layout, false, layout->n_forward, &seen);
    check_no_waste(layout, &seen, false);
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_OUTPUT));
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_SAVED));
    walk(layout, true, layout->n_backward, &seen);
    check_no_waste(layout, &seen, true);
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_GRAD_INPUT));
    /* recomputation: the shortest beginning behind which nothing saved changes, and no
     * output */
    for (int32_t i = 0; i < layout->n_forward; i++)
        if (writes_saved(layout, &layout->forward[i]))
            n = i + 1;
    walk(layout, false, n, &seen);
    assert_true(writes_all(layout, seen.is_written, MIST_TENSOR_SAVED));
    assert_int_equal(layout->programs[MIST_PROGRAM_RECOMPUTE].n_steps, n);
    for (int i = 0; i < layout->n_tensors && layout->kind == MIST_LAYER_BLOCK; i++)
        assert_false(layout->tensors[i].tensor_class == MIST_TENSOR_OUTPUT &&
                     seen.is_written[i]);
}

TEST(test_order)
{
    for_all(check_order);
}

/* --------------------------------------------------------------------------- remaking */

/* Whether a step of the backward is there for weight gradients alone: one of them, or a
 * gather of what only they read. */
static bool is_for_weights(const struct mist_layer_layout *layout, int32_t i_step)
{
    const struct mist_step *step = &layout->backward[i_step];

    if (step->op != MIST_OP_TP_ALL_GATHER)
        return step->phase == MIST_PHASE_BACKWARD_WEIGHT;
    for (int32_t i = 0; i < layout->n_backward; i++)
        for (int k = 0; k < MIST_MAX_OPERANDS && i != i_step; k++)
            if (layout->backward[i].operands[k] == step->operands[MIST_ARG_OUT] &&
                layout->backward[i].phase != MIST_PHASE_BACKWARD_WEIGHT)
                return false;
    return true;
}

/* Bytes of the outputs of a block's norms and of its activation. */
static int64_t remade_bytes(const struct mist_model *m, struct mist_layer_shape at)
{
    int64_t e = element_bytes(at), tokens = (int64_t)at.micro_batch * at.seq;

    return mist_model_n_block_norms(m) * align64(shard_rows(at) * m->hidden * e) +
           align64(tokens * (m->ffn / at.tp) * e);
}

/* What is made again: norms' outputs and the activation's, of what stays, for weight
 * gradients alone. */
static void check_remake(const struct mist_model *m,
                         const struct mist_layer_layout *layout)
{
    const struct mist_program *program = &layout->programs[MIST_PROGRAM_REMAKE];
    bool is_block = layout->kind == MIST_LAYER_BLOCK;
    bool is_written[MIST_MAX_TENSORS] = {false};
    int64_t bytes = 0;

    assert_int_equal(program->n_parts, is_block);
    assert_int_equal(program->n_steps, layout->n_remake);
    assert_int_equal(layout->n_remake, is_block ? mist_model_n_block_norms(m) + 1 : 0);
    for (int32_t i = layout->n_forward; i < layout->n_forward + layout->n_remake; i++) {
        const struct mist_step *step = &layout->forward[i];
        const char *access = access_of(step->op, step->phase);
        assert_true(program->parts[0].first_step <= i && !is_linear(step->op));
        for (int k = 0; access[k]; k++) {
            const struct mist_tensor *tensor = &layout->tensors[step->operands[k]];
            if (access[k] == 'r')
                assert_true(
                    tensor->tensor_class == MIST_TENSOR_INPUT ||
                    (tensor->tensor_class == MIST_TENSOR_SAVED && !tensor->is_remade));
            else
                assert_true(tensor->tensor_class == MIST_TENSOR_SCRATCH ||
                            tensor->is_remade);
            is_written[step->operands[k]] |= access[k] == 'w';
        }
    }
    for (int i = 0; i < layout->n_tensors; i++) {
        if (!layout->tensors[i].is_remade)
            continue;
        assert_true(is_written[i]);
        bytes += align64(layout->tensors[i].bytes);
        for (int32_t k = 0; k < layout->n_backward; k++)
            assert_true(!memchr(layout->backward[k].operands, i, MIST_MAX_OPERANDS) ||
                        is_for_weights(layout, k));
    }
    assert_int_equal(bytes, is_block ? remade_bytes(m, layout->shape) : 0);
}

TEST(test_remake)
{
    for_all(check_remake);
}

/* ---------------------------------------------------------------------- communication */

struct expected_communication {
    int model;
    bool is_sequence_parallel, is_backward;
    enum mist_layer_kind kind;
    const char *ops; /* r all-reduce, s reduce-scatter, g all-gather: in order */
};

/* Forward g..s of attention and feed-forward, backward with the gathers for weights. */
static const struct expected_communication expected_communication[] = {
    {CASE_GPT, false, false, MIST_LAYER_BLOCK, "rr"},
    {CASE_GPT, false, true, MIST_LAYER_BLOCK, "rr"},
    {CASE_GPT, true, false, MIST_LAYER_BLOCK, "gsgs"},
    {CASE_GPT, true, true, MIST_LAYER_BLOCK, "ggsggs"},
    {CASE_LLAMA, true, true, MIST_LAYER_BLOCK, "ggsggs"},
    {CASE_GPT, false, false, MIST_LAYER_EMBEDDING, "r"},
    {CASE_GPT, false, true, MIST_LAYER_EMBEDDING, ""},
    {CASE_GPT, true, false, MIST_LAYER_EMBEDDING, "s"},
    {CASE_GPT, true, true, MIST_LAYER_EMBEDDING, "g"},
    {CASE_GPT, false, false, MIST_LAYER_HEAD, "gr"},
    {CASE_GPT, true, false, MIST_LAYER_HEAD, "ggs"},
    {CASE_GPT, true, true, MIST_LAYER_HEAD, ""},
    {CASE_FALCON_ONE_HEAD, false, false, MIST_LAYER_BLOCK, "r"},
    {CASE_FALCON_ONE_HEAD, false, true, MIST_LAYER_BLOCK, "r"},
    {CASE_FALCON_ONE_HEAD, true, false, MIST_LAYER_BLOCK, "gs"},
    {CASE_FALCON_ONE_HEAD, true, true, MIST_LAYER_BLOCK, "ggs"},
    {CASE_FALCON_GROUPED, false, false, MIST_LAYER_BLOCK, "r"},
    {CASE_FALCON_GROUPED, false, true, MIST_LAYER_BLOCK, "rr"},
    {CASE_FALCON_GROUPED, true, false, MIST_LAYER_BLOCK, "ggs"},
    {CASE_FALCON_GROUPED, true, true, MIST_LAYER_BLOCK, "ggsgs"},
};

static void check_communication(const struct expected_communication *expected)
{
    struct mist_model model = case_model(expected->model);
    struct mist_layer_shape shape = {.micro_batch = 2,
                                     .seq = 16,
                                     .tp = 2,
                                     .threads = 1,
                                     .is_sequence_parallel =
                                         expected->is_sequence_parallel,
                                     .dtype = MIST_DTYPE_BF16};
    static struct mist_layer_layout layout;
    struct mist_err err = {0};
    char ops[MIST_MAX_STEPS + 1] = "";
    size_t n = 0;

    assert_int_equal(mist_layer_layout_make(&model, expected->kind, shape, &layout, &err),
                     MIST_OK);
    const struct mist_step *steps =
        expected->is_backward ? layout.backward : layout.forward;
    int32_t n_steps = expected->is_backward ? layout.n_backward : layout.n_forward;
    for (int32_t i = 0; i < n_steps; i++) {
        int64_t whole = 2LL * 32 * model.hidden;
        if (!is_communication(steps[i].op))
            continue;
        ops[n++] = steps[i].op == MIST_OP_TP_ALL_REDUCE       ? 'r'
                   : steps[i].op == MIST_OP_TP_REDUCE_SCATTER ? 's'
                                                              : 'g';
        if (expected->kind == MIST_LAYER_HEAD && steps[i].dims[0] != whole)
            whole = 4LL * 32 * 3 * 2; /* the loss's statistics */
        assert_int_equal(steps[i].dims[0], whole);
    }
    assert_string_equal(ops, expected->ops);
}

TEST(test_communication)
{
    for (size_t i = 0;
         i < sizeof expected_communication / sizeof expected_communication[0]; i++)
        check_communication(&expected_communication[i]);
}

/* Where ranks sum outputs, a bias, the positions or a residual are added once. */
static void check_once(const struct mist_model *m, const struct mist_layer_layout *layout)
{
    (void)m;
    for (int32_t i = 0; i < layout->n_forward; i++) {
        const struct mist_step *step = &layout->forward[i];
        bool is_summed = strcmp(step->name, "proj") == 0 ||
                         strcmp(step->name, "down") == 0 ||
                         strcmp(step->name, "embedding") == 0;
        assert_int_equal(step->adds_bias_once,
                         is_summed && step->params[1] >= 0 && layout->shape.tp > 1);
        /* what is no residual yet is a rank's own part of a sum */
        assert_int_equal(
            step->adds_residual_once,
            step->op == MIST_OP_LINEAR_RESIDUAL && layout->shape.tp > 1 &&
                layout->tensors[step->operands[MIST_ARG_LINEAR_RESIDUAL]].tensor_class !=
                    MIST_TENSOR_SCRATCH);
    }
    for (int32_t i = 0; i < layout->n_backward; i++)
        assert_false(layout->backward[i].adds_bias_once ||
                     layout->backward[i].adds_residual_once);
}

TEST(test_once)
{
    for_all(check_once);
}

/* ----------------------------------------------------------------------------- passes */

/* No pass over a tensor adds alone, but where residuals are cut and products are not: at
 * the end of a block. */
static void check_passes(const struct mist_model *m,
                         const struct mist_layer_layout *layout)
{
    int32_t n_sums = 0, n_fused = 0;

    (void)m;
    for (int32_t i = 0; i < layout->n_forward + layout->n_backward; i++) {
        const struct mist_step *step = i < layout->n_forward
                                           ? &layout->forward[i]
                                           : &layout->backward[i - layout->n_forward];
        n_sums += step->op == MIST_OP_RESIDUAL;
        n_fused += step->op == MIST_OP_LINEAR_RESIDUAL;
    }
    assert_int_equal(n_sums, layout->kind == MIST_LAYER_BLOCK &&
                                 layout->shape.is_sequence_parallel);
    if (layout->kind == MIST_LAYER_BLOCK && !layout->shape.is_sequence_parallel)
        assert_true(n_fused >= 2);
}

TEST(test_passes)
{
    for_all(check_passes);
}

/* ------------------------------------------------------------------------------ parts */

/* Elements that the parts of a step move, but the step itself does not. */
static double saved_elements(const struct mist_step *step)
{
    const int64_t *d = step->dims;

    if (step->op == MIST_OP_LINEAR_RESIDUAL) /* the sum's product */
        return 2.0 * (double)(d[0] * d[step->phase == MIST_PHASE_FORWARD ? 2 : 1]);
    if (step->op == MIST_OP_HEAD_NORM && step->phase == MIST_PHASE_FORWARD)
        return -(double)(d[0] * d[1] * (d[2] + d[3]) * d[4]); /* what it keeps */
    if (step->op != MIST_OP_LINEAR_GELU)
        return 0;
    /* what goes through gelu is not read; back through it, neither written nor read */
    return step->phase == MIST_PHASE_FORWARD ? (double)(d[0] * d[2])
                                             : 2.0 * (double)(d[0] * d[1]);
}

/* Parts do the work of the whole, which is one of them in the end. */
static void check_parts_of(const struct mist_layer_layout *layout,
                           const struct mist_step *step)
{
    struct mist_op_part parts[MIST_MAX_OP_PARTS], none[MIST_MAX_OP_PARTS];
    int32_t n = mist_op_parts(step->op, step->phase, step->dims, parts);
    double flop = 0, bytes = 0;

    assert_int_equal(
        n > 0, step->op == MIST_OP_LINEAR_BIAS || step->op == MIST_OP_LINEAR_GELU ||
                   step->op == MIST_OP_LINEAR_RESIDUAL || step->op == MIST_OP_HEAD_NORM ||
                   step->op == MIST_OP_LINEAR_CROSS_ENTROPY);
    for (int32_t i = 0; i < n; i++) {
        const char *const *names = mist_op_dims(parts[i].op);
        int n_dims = 0;
        assert_true(parts[i].op != step->op);
        while (names[n_dims])
            assert_true(parts[i].dims[n_dims++] > 0);
        for (; n_dims < MIST_MAX_DIMS; n_dims++)
            assert_int_equal(parts[i].dims[n_dims], 0);
        if (parts[i].op == MIST_OP_LINEAR)
            assert_int_equal(
                mist_op_parts(parts[i].op, parts[i].phase, parts[i].dims, none), 0);
        struct mist_work work =
            mist_op_work(parts[i].op, parts[i].phase, parts[i].dims, layout->shape.dtype);
        flop += (double)work.flop;
        bytes += (double)work.bytes;
    }
    if (n == 0)
        return;
    assert_true(flop == (double)step->flop);
    assert_true(bytes - (double)element_bytes(layout->shape) * saved_elements(step) ==
                (double)step->bytes);
}

static void check_parts(const struct mist_model *m,
                        const struct mist_layer_layout *layout)
{
    (void)m;
    for (int i = 0; i < layout->n_forward; i++)
        check_parts_of(layout, &layout->forward[i]);
    for (int i = 0; i < layout->n_backward; i++)
        check_parts_of(layout, &layout->backward[i]);
}

TEST(test_parts)
{
    for_all(check_parts);
}

/* ---------------------------------------------------------------------- names, errors */

TEST(test_names)
{
    char text[80], cut[12];
    const int64_t dims[MIST_MAX_DIMS] = {512, 256, 768};

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
        assert_true(mist_phase_words[i][0]);
}

/* Work is exact up to 2^63, and above it not said. */
TEST(test_work)
{
    const int64_t fits[MIST_MAX_DIMS] = {1 << 20, 1 << 20, (1 << 20) + 1};
    const int64_t beyond[MIST_MAX_DIMS] = {1 << 21, 1 << 20, 1 << 21};
    struct mist_work work =
        mist_op_work(MIST_OP_LINEAR, MIST_PHASE_FORWARD, fits, MIST_DTYPE_BF16);

    assert_int_equal(work.flop, (int64_t)2305845208236949504);
    assert_int_equal(work.bytes, 2 * (((int64_t)3 << 40) + (1 << 21)));
    work = mist_op_work(MIST_OP_LINEAR, MIST_PHASE_FORWARD, beyond, MIST_DTYPE_BF16);
    assert_int_equal(work.flop, INT64_MAX);
    assert_int_equal(work.bytes, INT64_MAX);
    /* AdamW reads and writes p, m, v and reads g; a norm reads g; a sum reads two */
    work = mist_op_gradient_work(MIST_OP_ADAMW, 1000);
    assert_int_equal(work.bytes, 28 * 1000);
    work = mist_op_gradient_work(MIST_OP_GRADIENT_NORM, 1000);
    assert_int_equal(work.bytes, 4 * 1000);
    work = mist_op_gradient_work(MIST_OP_RESIDUAL, 1000);
    assert_int_equal(work.bytes, 12 * 1000);
}

/* A shape that some dimension of the model does not divide by tp, or that is too large. */
static void check_refused(int model_case, enum mist_layer_kind kind,
                          struct mist_layer_shape shape)
{
    struct mist_model model = case_model(model_case);
    static struct mist_layer_layout layout;
    struct mist_err err = {0};

    assert_int_equal(mist_layer_layout_make(&model, kind, shape, &layout, &err),
                     MIST_ERR_RANGE);
}

TEST(test_refused)
{
    check_refused(
        CASE_DEMO, MIST_LAYER_BLOCK,
        (struct mist_layer_shape){.micro_batch = 1, .seq = 16, .tp = 3, .threads = 1});
    /* two key-value heads over 4 ranks, 17 rows over 2 */
    check_refused(
        CASE_FALCON_GROUPED, MIST_LAYER_BLOCK,
        (struct mist_layer_shape){.micro_batch = 1, .seq = 16, .tp = 4, .threads = 1});
    check_refused(CASE_GPT, MIST_LAYER_BLOCK,
                  (struct mist_layer_shape){.micro_batch = 1,
                                            .seq = 17,
                                            .tp = 2,
                                            .threads = 1,
                                            .is_sequence_parallel = true});
    /* products above 2^63; sizes above 2^53, FLOP of attention above 2^63 alone */
    check_refused(CASE_DEMO, MIST_LAYER_BLOCK,
                  (struct mist_layer_shape){
                      .micro_batch = INT32_MAX, .seq = INT32_MAX, .tp = 1, .threads = 1});
    check_refused(CASE_DEMO, MIST_LAYER_EMBEDDING,
                  (struct mist_layer_shape){
                      .micro_batch = 1 << 23, .seq = 1 << 23, .tp = 1, .threads = 1});
    check_refused(
        CASE_DEMO, MIST_LAYER_BLOCK,
        (struct mist_layer_shape){.micro_batch = 1 << 11, .seq = 1 << 27, .tp = 1});
}

TEST_MAIN(NULL, NULL)
