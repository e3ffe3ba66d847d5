/*
 * The CPU backend's operators: each step of the catalogue to its kernel. See operators.h.
 */
#include "exec/operators.h"

#include "exec/cpu_bf16.h"
#include "exec/cpu_kernels.h"
#include "exec/operators_cpu.h"

#include <math.h>
#include <string.h>

typedef const struct mist_step_args *step_args;

static void embedding(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;

    int64_t first_token = at->i_tp * dims[2];

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_embedding_slice_forward(x[MIST_ARG_OUT], x[MIST_ARG_EMBEDDING_TOKENS],
                                         at->params[0], at->params[1], dims[0], at->seq,
                                         dims[1], first_token, dims[2], at->n_threads);
    else
        mist_cpu_embedding_slice_backward(at->param_gradients[0], at->param_gradients[1],
                                          x[MIST_ARG_DW_X], x[MIST_ARG_DW_DY], dims[0],
                                          at->seq, dims[1], first_token, dims[2],
                                          at->n_threads);
}

static void norm(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    float epsilon = (float)at->model->norm_epsilon;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_norm_forward(mist_step_norm(at), x[MIST_ARG_OUT], x[MIST_ARG_NORM_STATS],
                              x[MIST_ARG_NORM_X], at->params[0], at->params[1], epsilon,
                              dims[0], dims[1], at->n_threads);
    else
        mist_cpu_norm_backward(mist_step_norm(at), x[MIST_ARG_DX], at->param_gradients[0],
                               at->param_gradients[1], x[MIST_ARG_DY],
                               x[MIST_ARG_DNORM_RESIDUAL], x[MIST_ARG_DNORM_X],
                               x[MIST_ARG_DNORM_STATS], at->params[0], dims[0], dims[1],
                               at->workspace, at->n_threads);
}

static void residual_norm(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;

    mist_cpu_residual_norm_forward(
        mist_step_norm(at), x[MIST_ARG_OUT], x[MIST_ARG_RNORM_RESIDUAL],
        x[MIST_ARG_RNORM_STATS], x[MIST_ARG_RNORM_A], x[MIST_ARG_RNORM_B], at->params[0],
        at->params[1], (float)at->model->norm_epsilon, dims[0], dims[1], at->n_threads);
}

static void linear(step_args at)
{
    int64_t rows = at->step->dims[0], n_in = at->step->dims[1], n_out = at->step->dims[2];
    void *const *x = at->operands;

    switch (at->step->phase) {
    case MIST_PHASE_FORWARD:
        mist_cpu_linear_forward(x[MIST_ARG_OUT], x[MIST_ARG_LINEAR_X], at->params[0],
                                at->params[1], rows, n_in, n_out, 0, at->n_threads);
        break;
    case MIST_PHASE_BACKWARD_INPUT:
        mist_cpu_linear_backward_input(x[MIST_ARG_DX], x[MIST_ARG_DY], at->params[0],
                                       rows, n_in, n_out, 0, at->n_threads);
        break;
    default:
        mist_cpu_linear_backward_weight(at->param_gradients[0], at->param_gradients[1],
                                        x[MIST_ARG_DW_DY], x[MIST_ARG_DW_X], rows, n_in,
                                        n_out, at->n_threads);
    }
}

static void attention(step_args at)
{
    struct mist_cpu_attention shape = mist_step_attention(at);
    void *const *x = at->operands;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_attention_forward(x[MIST_ARG_OUT], x[MIST_ARG_ATTENTION_LSE],
                                   x[MIST_ARG_ATTENTION_QKV], &shape, at->workspace,
                                   at->n_threads);
    else
        mist_cpu_attention_backward(
            x[MIST_ARG_DX], x[MIST_ARG_DY], x[MIST_ARG_DATTENTION_QKV],
            x[MIST_ARG_DATTENTION_OUT], x[MIST_ARG_DATTENTION_LSE], &shape, at->workspace,
            at->n_threads);
}

static void rope(step_args at)
{
    struct mist_cpu_attention shape = mist_step_attention(at);
    void *const *x = at->operands;

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cpu_rope_forward(x[MIST_ARG_OUT], x[MIST_ARG_ROPE_TABLE], &shape,
                              at->n_threads);
    else
        mist_cpu_rope_backward(x[MIST_ARG_DX], x[MIST_ARG_ROPE_TABLE], &shape,
                               at->n_threads);
}

static void activation(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    bool is_forward = at->step->phase == MIST_PHASE_FORWARD;

    if (at->step->op == MIST_OP_GELU && is_forward)
        mist_cpu_gelu_forward(x[MIST_ARG_OUT], x[MIST_ARG_UNARY_X], dims[0],
                              at->n_threads);
    else if (at->step->op == MIST_OP_GELU)
        mist_cpu_gelu_backward(x[MIST_ARG_DX], x[MIST_ARG_DY], x[MIST_ARG_DUNARY_X],
                               dims[0], at->n_threads);
    else if (is_forward)
        mist_cpu_swiglu_forward(x[MIST_ARG_OUT], x[MIST_ARG_UNARY_X], dims[0], dims[1],
                                at->n_threads);
    else
        mist_cpu_swiglu_backward(x[MIST_ARG_DX], x[MIST_ARG_DY], x[MIST_ARG_DUNARY_X],
                                 dims[0], dims[1], at->n_threads);
}

static void residual(step_args at)
{
    mist_cpu_add_forward(at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_RESIDUAL_A],
                         at->operands[MIST_ARG_RESIDUAL_B], at->step->dims[0],
                         at->n_threads);
}

static void cross_entropy(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cpu_cross_entropy(at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_LOSS_LOSSES],
                           at->operands[MIST_ARG_LOSS_TARGETS], dims[0], dims[1],
                           at->model->vocab, at->loss_scale, at->n_threads);
}

static void cross_entropy_stats(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cpu_cross_entropy_stats(
        at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_STATS_LOGITS],
        at->operands[MIST_ARG_STATS_TARGETS], dims[0], dims[1], mist_step_n_valid(at),
        at->i_tp * dims[1], at->n_threads);
}

static void cross_entropy_parallel(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cpu_cross_entropy_parallel(
        at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_LOSS_LOSSES],
        at->operands[MIST_ARG_LOSS_TARGETS], at->operands[MIST_ARG_LOSS_STATS], dims[0],
        dims[1], mist_step_n_valid(at), at->i_tp * dims[1], dims[2], at->loss_scale,
        at->n_threads);
}

static void run_step(step_args at)
{
    if (at->dtype == MIST_DTYPE_BF16) {
        mist_operators_cpu_run_bf16(at);
        return;
    }
    static void (*const kernels[MIST_N_OPS])(step_args) = {
        [MIST_OP_EMBEDDING] = embedding,
        [MIST_OP_LAYER_NORM] = norm,
        [MIST_OP_RMS_NORM] = norm,
        [MIST_OP_RESIDUAL_LAYER_NORM] = residual_norm,
        [MIST_OP_RESIDUAL_RMS_NORM] = residual_norm,
        [MIST_OP_LINEAR] = linear,
        [MIST_OP_LINEAR_BIAS] = linear,
        [MIST_OP_ATTENTION] = attention,
        [MIST_OP_ROPE] = rope,
        [MIST_OP_GELU] = activation,
        [MIST_OP_SWIGLU] = activation,
        [MIST_OP_RESIDUAL] = residual,
        [MIST_OP_CROSS_ENTROPY] = cross_entropy,
        [MIST_OP_CROSS_ENTROPY_STATS] = cross_entropy_stats,
        [MIST_OP_CROSS_ENTROPY_PARALLEL] = cross_entropy_parallel,
    };

    if (kernels[at->step->op]) /* the rest is no kernel of a program (communication) */
        kernels[at->step->op](at);
}

static void adamw(enum mist_dtype dtype, void *p, float *m, float *v, float *master,
                  const float *g, int64_t n, const struct mist_adamw_args *args,
                  int32_t n_threads)
{
    struct mist_cpu_adamw config = {
        .lr = args->lr,
        .beta1 = args->beta1,
        .beta2 = args->beta2,
        .eps = args->epsilon,
        .weight_decay = args->weight_decay,
        .correction1 = (float)(1 - pow((double)args->beta1, args->t)),
        .correction2 = (float)(1 - pow((double)args->beta2, args->t)),
        .grad_scale = args->gradient_scale,
    };

    if (dtype == MIST_DTYPE_BF16)
        mist_cpu_bf16_adamw_step(p, master, m, v, g, n, &config, n_threads);
    else
        mist_cpu_adamw_step(p, m, v, g, n, &config, n_threads);
}

static void add(float *sum, const float *x, int64_t n, int32_t n_threads)
{
    mist_cpu_add_forward(sum, sum, x, n, n_threads);
}

static void sum_squares(const float *x, int64_t n, struct mist_square_sum *out,
                        int32_t n_threads)
{
    struct mist_cpu_sum sum;

    mist_cpu_sum_squares_exact(x, n, &sum, n_threads);
    *out = (struct mist_square_sum){sum.coarse, sum.fine, sum.n_nonfinite,
                                    sum.first_nonfinite};
}

static int64_t find_nonfinite(const float *x, int64_t n, int32_t n_threads)
{
    return mist_cpu_find_nonfinite(x, n, n_threads);
}

static void zero(float *x, int64_t n, int32_t n_threads)
{
    mist_cpu_zero(x, n, n_threads);
}

static void copy(void *to, const void *from, int64_t size_bytes)
{
    memcpy(to, from, (size_t)size_bytes);
}

static enum mist_status open_backend(enum mist_dtype dtype, int32_t n_threads, void **out,
                                     struct mist_err *err)
{
    struct mist_cpu_bf16 *context = NULL;
    enum mist_status status =
        dtype == MIST_DTYPE_BF16 ? mist_cpu_bf16_new(&context, n_threads, err) : MIST_OK;

    *out = context;
    return status;
}

static void close_backend(void *backend)
{
    mist_cpu_bf16_free(backend);
}

static void fill_rope(float *table, int32_t seq, int32_t head_dim, double theta)
{
    mist_cpu_rope_fill(table, seq, head_dim, theta);
}

const struct mist_operators mist_operators_cpu = {
    .name = "cpu",
    .open = open_backend,
    .close = close_backend,
    .run_step = run_step,
    .adamw = adamw,
    .add = add,
    .sum_squares = sum_squares,
    .square_sum_value = mist_cpu_sum_value,
    .find_nonfinite = find_nonfinite,
    .zero = zero,
    .copy = copy,
    .fill_rope = fill_rope,
};
