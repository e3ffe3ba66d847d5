/* Each step of the catalogue to its CPU kernel. See operators.h. */
#include "exec/operators/operators_cpu.h"

#include "exec/device/device.h"

typedef const struct mist_step_args *step_args;

static bool is_bf16(step_args at)
{
    return at->dtype == MIST_DTYPE_BF16;
}

/* How a step leaves gradients of parameters; is_first: of those that add to them. */
static int how_of(step_args at, bool is_first)
{
    int how = mist_operators_cpu_how(at->gradient_dtype);

    return at->overwrites_gradients && is_first ? how | MIST_CPU_OVERWRITES : how;
}

static void embedding(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;

    int64_t first_token = at->i_tp * dims[2];
    bool is_forward = at->step->phase == MIST_PHASE_FORWARD;
    float scale = mist_step_embedding_scale(at);

    if (!is_forward && scale != 1) /* nobody reads them any more */
        mist_cpu_scale(is_bf16(at), x[MIST_ARG_DW_DY], scale, dims[0] * dims[1],
                       at->n_threads);
    if (is_forward)
        mist_cpu_embedding_slice_forward(is_bf16(at), x[MIST_ARG_OUT],
                                         x[MIST_ARG_EMBEDDING_TOKENS], at->params[0],
                                         at->params[1], dims[0], &at->chunks, dims[1],
                                         first_token, dims[2], at->n_threads);
    else
        mist_cpu_embedding_slice_backward(
            is_bf16(at), at->param_gradients[0], at->param_gradients[1], x[MIST_ARG_DW_X],
            x[MIST_ARG_DW_DY], dims[0], &at->chunks, dims[1], first_token, dims[2],
            at->workspace, at->n_threads, how_of(at, false));
    if (is_forward && scale != 1)
        mist_cpu_scale(is_bf16(at), x[MIST_ARG_OUT], scale, dims[0] * dims[1],
                       at->n_threads);
}

static void norm(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    float epsilon = (float)at->model->norm_epsilon;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_norm_forward(is_bf16(at), mist_step_norm_kind(at), x[MIST_ARG_OUT], NULL,
                              x[MIST_ARG_NORM_STATS], x[MIST_ARG_NORM_X], NULL,
                              at->params[0], at->params[1], epsilon, dims[0], dims[1],
                              at->workspace, at->n_threads);
    else
        mist_cpu_norm_backward(
            is_bf16(at), mist_step_norm_kind(at), x[MIST_ARG_DX], at->param_gradients[0],
            at->param_gradients[1], x[MIST_ARG_DY], x[MIST_ARG_DNORM_RESIDUAL],
            x[MIST_ARG_DNORM_X], x[MIST_ARG_DNORM_STATS], at->params[0], dims[0], dims[1],
            at->workspace, at->n_threads, how_of(at, true));
}

static void residual_norm(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;

    mist_cpu_norm_forward(is_bf16(at), mist_step_norm_kind(at), x[MIST_ARG_OUT],
                          x[MIST_ARG_RNORM_RESIDUAL], x[MIST_ARG_RNORM_STATS],
                          x[MIST_ARG_RNORM_A], x[MIST_ARG_RNORM_B], at->params[0],
                          at->params[1], (float)at->model->norm_epsilon, dims[0], dims[1],
                          at->workspace, at->n_threads);
}

/* ------------------------------------------------- products, of a layer or of its part */

static void forward(step_args at, void *y, const void *x, const void *bias,
                    const void *residual, int64_t rows, int64_t n_in, int64_t n_out)
{
    mist_cpu_linear_forward(at->backend, y, x, at->params[0], bias, residual, rows, n_in,
                            n_out, at->n_threads);
}

static void backward_input(step_args at, void *dx, const void *dy, const void *residual,
                           int64_t rows, int64_t n_in, int64_t n_out)
{
    mist_cpu_linear_backward_input(at->backend, dx, dy, at->params[0], residual, rows,
                                   n_in, n_out, at->n_threads);
}

static void backward_weight(step_args at, void *dbias, const void *dy, const void *x,
                            int64_t rows, int64_t n_in, int64_t n_out, int how)
{
    mist_cpu_linear_backward_weight(at->backend, at->param_gradients[0], dbias, dy, x,
                                    rows, n_in, n_out, at->n_threads, how);
}

static void linear(step_args at)
{
    int64_t rows = at->step->dims[0], n_in = at->step->dims[1], n_out = at->step->dims[2];
    void *const *x = at->operands;

    switch (at->step->phase) {
    case MIST_PHASE_FORWARD:
        forward(at, x[MIST_ARG_OUT], x[MIST_ARG_LINEAR_X], at->params[1],
                x[MIST_ARG_LINEAR_RESIDUAL], rows, n_in, n_out);
        break;
    case MIST_PHASE_BACKWARD_INPUT:
        backward_input(at, x[MIST_ARG_DX], x[MIST_ARG_DY], x[MIST_ARG_LINEAR_RESIDUAL],
                       rows, n_in, n_out);
        break;
    default:
        backward_weight(at, at->param_gradients[1], x[MIST_ARG_DW_DY], x[MIST_ARG_DW_X],
                        rows, n_in, n_out, how_of(at, true));
    }
}

static void linear_gelu(step_args at)
{
    int64_t rows = at->step->dims[0], n_in = at->step->dims[1], n_out = at->step->dims[2];
    void *const *x = at->operands;

    if (at->step->phase == MIST_PHASE_FORWARD) {
        forward(at, x[MIST_ARG_LINEAR_GELU_BEFORE], x[MIST_ARG_LINEAR_GELU_X],
                at->params[1], NULL, rows, n_in, n_out);
        mist_cpu_activation_forward(is_bf16(at), mist_model_activation(at->model),
                                    x[MIST_ARG_OUT], x[MIST_ARG_LINEAR_GELU_BEFORE],
                                    rows * n_out, at->n_threads);
    } else {
        backward_input(at, x[MIST_ARG_DX], x[MIST_ARG_DY], NULL, rows, n_in, n_out);
        mist_cpu_activation_backward(is_bf16(at), mist_model_activation(at->model),
                                     x[MIST_ARG_DX], x[MIST_ARG_DX], x[MIST_ARG_DUNARY_X],
                                     rows * n_in, at->n_threads);
    }
}

static void gelu(step_args at)
{
    mist_cpu_activation_forward(
        is_bf16(at), mist_model_activation(at->model), at->operands[MIST_ARG_OUT],
        at->operands[MIST_ARG_UNARY_X], at->step->dims[0], at->n_threads);
}

static void attention(step_args at)
{
    struct mist_cpu_attention shape = mist_step_heads(at);
    void *const *x = at->operands;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_attention_forward(at->backend, x[MIST_ARG_OUT],
                                   x[MIST_ARG_ATTENTION_LSE], x[MIST_ARG_ATTENTION_QKV],
                                   &shape, at->workspace, at->n_threads);
    else
        mist_cpu_attention_backward(
            at->backend, x[MIST_ARG_DX], x[MIST_ARG_DY], x[MIST_ARG_DATTENTION_QKV],
            x[MIST_ARG_DATTENTION_OUT], x[MIST_ARG_DATTENTION_LSE], &shape, at->workspace,
            at->n_threads);
}

static void attention_part(step_args at)
{
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    void *const *x = at->operands;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_attention_part_forward(at->backend, x[MIST_ARG_OUT],
                                        x[MIST_ARG_ATTENTION_LSE],
                                        x[MIST_ARG_ATTENTION_QKV], x[MIST_ARG_PART_KV],
                                        &part, at->workspace, at->n_threads);
    else
        mist_cpu_attention_part_backward(
            at->backend, x[MIST_ARG_DX], x[MIST_ARG_DPART_DKV], x[MIST_ARG_DPART_DY],
            x[MIST_ARG_DPART_QKV], x[MIST_ARG_DPART_KV], x[MIST_ARG_DPART_OUT],
            x[MIST_ARG_DPART_LSE], &part, at->workspace, at->n_threads);
}

static void kv_pack(step_args at)
{
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    void *const *x = at->operands;

    (at->step->phase == MIST_PHASE_FORWARD ? mist_cpu_kv_pack : mist_cpu_kv_unpack)(
        is_bf16(at), x[MIST_ARG_OUT], x[MIST_ARG_KV_FROM], &part, at->n_threads);
}

static void kv_order(step_args at)
{
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    void *const *x = at->operands;

    (at->step->phase == MIST_PHASE_FORWARD ? mist_cpu_kv_order : mist_cpu_kv_disorder)(
        is_bf16(at), x[MIST_ARG_OUT], x[MIST_ARG_KV_FROM], &part, at->n_threads);
}

static void rope(step_args at)
{
    struct mist_cpu_attention shape = mist_step_heads(at);

    mist_cpu_rope(is_bf16(at), at->operands[MIST_ARG_OUT],
                  at->operands[MIST_ARG_ROPE_TABLE], &shape,
                  at->step->phase != MIST_PHASE_FORWARD, at->n_threads);
}

static void head_norm(step_args at)
{
    struct mist_cpu_attention shape = mist_step_heads(at);
    void *const *x = at->operands;
    float epsilon = (float)at->model->norm_epsilon;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_head_norm_forward(is_bf16(at), x[MIST_ARG_OUT], x[MIST_ARG_HEAD_NORM_X],
                                   at->params[0], at->params[1], epsilon, &shape,
                                   at->workspace, at->n_threads);
    else
        mist_cpu_head_norm_backward(is_bf16(at), x[MIST_ARG_DX], at->param_gradients[0],
                                    at->param_gradients[1], x[MIST_ARG_HEAD_NORM_X],
                                    at->params[0], at->params[1], epsilon, &shape,
                                    at->workspace, at->n_threads, how_of(at, true));
}

static void swiglu(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    bool is_geglu = mist_family_traits(at->model->family)->gates_with_gelu;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_swiglu_forward(is_bf16(at), is_geglu, x[MIST_ARG_OUT],
                                x[MIST_ARG_UNARY_X], dims[0], dims[1], at->n_threads);
    else
        mist_cpu_swiglu_backward(is_bf16(at), is_geglu, x[MIST_ARG_DX], x[MIST_ARG_DY],
                                 x[MIST_ARG_DUNARY_X], dims[0], dims[1], at->n_threads);
}

static void residual(step_args at)
{
    mist_cpu_add_forward(
        is_bf16(at), at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_RESIDUAL_A],
        at->operands[MIST_ARG_RESIDUAL_B], at->step->dims[0], at->n_threads);
}

/* Rows first .. first + n - 1; their logits are in the workspace. */
static void loss_of_rows(step_args at, int64_t first, int64_t n)
{
    int64_t hidden = at->step->dims[1], vocab = at->step->dims[2];
    int64_t offset = first * hidden * mist_dtype_weight_bytes(at->dtype);
    void *x = (char *)at->operands[MIST_ARG_LOSS_X] + offset;
    void *dx = (char *)at->operands[MIST_ARG_OUT] + offset;
    float *losses = at->operands[MIST_ARG_LOSS_LOSSES];
    const int32_t *targets = at->operands[MIST_ARG_LOSS_TARGETS];

    forward(at, at->workspace, x, NULL, NULL, n, hidden, vocab);
    mist_cpu_cross_entropy(is_bf16(at), at->workspace, losses + first, targets + first, n,
                           vocab, at->model->vocab, at->loss_scale, at->n_threads);
    if (at->only_loss)
        return;
    backward_input(at, dx, at->workspace, NULL, n, hidden, vocab);
    backward_weight(at, NULL, at->workspace, x, n, hidden, vocab, how_of(at, first == 0));
}

static void linear_cross_entropy(step_args at)
{
    int64_t most = mist_step_loss_rows(at, 0);

    for (int64_t first = 0; first < at->step->dims[0]; first += most)
        loss_of_rows(at, first, mist_step_loss_rows(at, first));
}

static void cross_entropy_stats(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cpu_cross_entropy_stats(
        is_bf16(at), at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_STATS_LOGITS],
        at->operands[MIST_ARG_STATS_TARGETS], dims[0], dims[1], mist_step_n_valid(at),
        at->i_tp * dims[1], at->n_threads);
}

static void cross_entropy_parallel(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cpu_cross_entropy_parallel(
        is_bf16(at), at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_LOSS_LOSSES],
        at->operands[MIST_ARG_LOSS_TARGETS], at->operands[MIST_ARG_LOSS_STATS], dims[0],
        dims[1], mist_step_n_valid(at), at->i_tp * dims[1], dims[2], at->loss_scale,
        at->n_threads);
}

void mist_operators_cpu_run_step(step_args at)
{
    static void (*const kernels[MIST_N_OPS])(step_args) = {
        [MIST_OP_EMBEDDING] = embedding,
        [MIST_OP_LAYER_NORM] = norm,
        [MIST_OP_RMS_NORM] = norm,
        [MIST_OP_RESIDUAL_LAYER_NORM] = residual_norm,
        [MIST_OP_RESIDUAL_RMS_NORM] = residual_norm,
        [MIST_OP_LINEAR] = linear,
        [MIST_OP_LINEAR_BIAS] = linear,
        [MIST_OP_LINEAR_GELU] = linear_gelu,
        [MIST_OP_LINEAR_RESIDUAL] = linear,
        [MIST_OP_ATTENTION] = attention,
        [MIST_OP_ATTENTION_PART] = attention_part,
        [MIST_OP_KV_PACK] = kv_pack,
        [MIST_OP_KV_ORDER] = kv_order,
        [MIST_OP_ROPE] = rope,
        [MIST_OP_HEAD_NORM] = head_norm,
        [MIST_OP_GELU] = gelu,
        [MIST_OP_SWIGLU] = swiglu,
        [MIST_OP_RESIDUAL] = residual,
        [MIST_OP_LINEAR_CROSS_ENTROPY] = linear_cross_entropy,
        [MIST_OP_CROSS_ENTROPY_STATS] = cross_entropy_stats,
        [MIST_OP_CROSS_ENTROPY_PARALLEL] = cross_entropy_parallel,
    };

    mist_device_give_turn();
    if (kernels[at->step->op]) /* the rest is no kernel of a program (communication) */
        kernels[at->step->op](at);
}
