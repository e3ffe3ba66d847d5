/* The CUDA backend's operators: each step of the catalogue to its kernels. See
 * operators.h. */
#include "exec/cuda/operators.h"

#include "exec/cuda/attention_cudnn.h"
#include "exec/operators/paths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -------------------------------------------------------------------------- failures */

void mist_cuda_operators_fail(step_args at, enum mist_status status, const char *what)
{
    const struct mist_step *step = at->step;
    struct mist_err err;
    char shape[128];

    mist_err_set(&err, status, "%s %s, %s, %s: %s", mist_op_name(step->op),
                 mist_phase_words[step->phase], mist_dtype_words[at->dtype],
                 mist_op_shape_text(step->op, step->dims, shape, sizeof shape), what);
    mist_device_fail(&context_of(at)->device->base, status, &err);
}

/* Launches say at once what is wrong with them; what their kernels do wrong comes out
 * later, at whatever waits for them. */
static void check_launches(step_args at)
{
    cudaError_t code = cudaGetLastError(); /* nobody else is to report it */
    struct mist_err err;
    enum mist_status status = mist_cuda_status(code, "launch", &err);

    if (status != MIST_OK)
        mist_cuda_operators_fail(at, status, err.message);
}

/* The same outside of steps: what is "adamw". */
static void check_call(const struct mist_cuda_operators *context, const char *what)
{
    (void)mist_cuda_check(context->device, cudaGetLastError(), what);
}

bool mist_cuda_operators_has_workspace(step_args at, int64_t need_bytes)
{
    if (at->step->workspace_bytes >= need_bytes && (at->workspace || need_bytes == 0))
        return true;
    mist_cuda_operators_fail(at, MIST_ERR_RUN,
                             "the plan has too little workspace for the GPU's kernel");
    return false;
}

/* ------------------------------------------------------------------------ operators */

static void embedding(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    mist_cuda_stream stream = stream_of(context_of(at));
    int64_t first_token = at->i_tp * dims[2];
    bool is_forward = at->step->phase == MIST_PHASE_FORWARD;
    float scale = mist_step_embedding_scale(at);

    if (!is_forward && scale != 1) /* nobody reads them any more */
        mist_cuda_scale(stream, at->dtype, x[MIST_ARG_DW_DY], scale, dims[0] * dims[1]);
    if (is_forward)
        mist_cuda_embedding_forward(stream, at->dtype, x[MIST_ARG_OUT],
                                    x[MIST_ARG_EMBEDDING_TOKENS], at->params[0],
                                    at->params[1], dims[0], &at->chunks, dims[1],
                                    first_token, dims[2]);
    else
        mist_cuda_embedding_backward(stream, at->dtype, at->gradient_dtype,
                                     at->param_gradients[0], at->param_gradients[1],
                                     x[MIST_ARG_DW_X], x[MIST_ARG_DW_DY], dims[0],
                                     &at->chunks, dims[1], first_token, dims[2]);
    if (is_forward && scale != 1)
        mist_cuda_scale(stream, at->dtype, x[MIST_ARG_OUT], scale, dims[0] * dims[1]);
}

static void norm(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    mist_cuda_stream stream = stream_of(context_of(at));
    int64_t n_blocks = mist_catalog_norm_blocks(dims[0]);

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cuda_norm_forward(stream, at->dtype, mist_step_norm_kind(at),
                               x[MIST_ARG_OUT], NULL, x[MIST_ARG_NORM_STATS],
                               x[MIST_ARG_NORM_X], NULL, at->params[0], at->params[1],
                               (float)at->model->norm_epsilon, dims[0], dims[1]);
    else if (mist_cuda_operators_has_workspace(at, 2 * n_blocks * dims[1] *
                                                       (int64_t)sizeof(float)))
        mist_cuda_norm_backward(
            stream, at->dtype, at->gradient_dtype, mist_step_norm_kind(at),
            x[MIST_ARG_DX], at->param_gradients[0], at->param_gradients[1],
            x[MIST_ARG_DY], x[MIST_ARG_DNORM_RESIDUAL], x[MIST_ARG_DNORM_X],
            x[MIST_ARG_DNORM_STATS], at->params[0], dims[0], dims[1], at->workspace,
            at->overwrites_gradients);
}

static void residual_norm(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;

    mist_cuda_norm_forward(stream_of(context_of(at)), at->dtype, mist_step_norm_kind(at),
                           x[MIST_ARG_OUT], x[MIST_ARG_RNORM_RESIDUAL],
                           x[MIST_ARG_RNORM_STATS], x[MIST_ARG_RNORM_A],
                           x[MIST_ARG_RNORM_B], at->params[0], at->params[1],
                           (float)at->model->norm_epsilon, dims[0], dims[1]);
}

/* Where and what a step's products are; false: the device has failed. */
static bool linear_shape(step_args at, struct mist_cuda_linear *out)
{
    struct mist_cuda_operators *context = context_of(at);
    const struct mist_cuda_device *device = context->device;
    const int64_t *dims = at->step->dims;

    *out = (struct mist_cuda_linear){.stream = stream_of(context),
                                     .workspace = device->workspaces[device->current],
                                     .dtype = at->dtype,
                                     .gradient_dtype = at->gradient_dtype,
                                     .overwrites = at->overwrites_gradients,
                                     .rows = dims[0],
                                     .n_in = dims[1],
                                     .n_out = dims[2]};
    if (!out->workspace)
        mist_cuda_operators_fail(at, MIST_ERR_RUN, "its stream has no workspace");
    return out->workspace;
}

/* Fails the device with what went wrong in a product. */
static void check_products(step_args at)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_err err;
    enum mist_status status = mist_cuda_gemm_status(context->gemm, &err);

    if (status != MIST_OK)
        mist_device_fail(&context->device->base, status, &err);
}

static void linear(step_args at)
{
    struct mist_cuda_operators *context = context_of(at);
    bool has_gelu = at->step->op == MIST_OP_LINEAR_GELU;
    void *const *x = at->operands;
    struct mist_cuda_linear shape;

    if (!linear_shape(at, &shape))
        return;
    shape.residual = has_gelu ? NULL : x[MIST_ARG_LINEAR_RESIDUAL];
    shape.activation = has_gelu ? mist_model_activation(at->model) : MIST_ACTIVATION_GELU;
    switch (at->step->phase) {
    case MIST_PHASE_FORWARD:
        mist_cuda_gemm_forward(context->gemm, &shape, x[MIST_ARG_OUT],
                               has_gelu ? x[MIST_ARG_LINEAR_GELU_BEFORE] : NULL,
                               x[has_gelu ? MIST_ARG_LINEAR_GELU_X : MIST_ARG_LINEAR_X],
                               at->params[0], at->params[1]);
        break;
    case MIST_PHASE_BACKWARD_INPUT: /* the bias gradient of the layer before a GELU goes
                                       with its weight's */
        mist_cuda_gemm_backward_input(context->gemm, &shape, x[MIST_ARG_DX],
                                      x[MIST_ARG_DY], at->params[0],
                                      has_gelu ? x[MIST_ARG_DUNARY_X] : NULL);
        break;
    default:
        mist_cuda_gemm_backward_weight(context->gemm, &shape, at->param_gradients[0],
                                       at->param_gradients[1], x[MIST_ARG_DW_DY],
                                       x[MIST_ARG_DW_X]);
    }
    check_products(at);
}

static void rope(step_args at)
{
    struct mist_cpu_attention shape = mist_step_heads(at);

    mist_cuda_rope(stream_of(context_of(at)), at->dtype, at->operands[MIST_ARG_OUT],
                   at->operands[MIST_ARG_ROPE_TABLE], &shape,
                   at->step->phase != MIST_PHASE_FORWARD);
}

static void kv_pack(step_args at)
{
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    void *const *x = at->operands;

    (at->step->phase == MIST_PHASE_FORWARD ? mist_cuda_kv_pack : mist_cuda_kv_unpack)(
        stream_of(context_of(at)), at->dtype, x[MIST_ARG_OUT], x[MIST_ARG_KV_FROM],
        &part);
}

static void kv_order(step_args at)
{
    struct mist_cpu_attention_part part = mist_step_attention_part(at);
    void *const *x = at->operands;

    (at->step->phase == MIST_PHASE_FORWARD ? mist_cuda_kv_order : mist_cuda_kv_disorder)(
        stream_of(context_of(at)), at->dtype, x[MIST_ARG_OUT], x[MIST_ARG_KV_FROM],
        &part);
}

static void head_norm(step_args at)
{
    const int64_t *d = at->step->dims; /* batch, seq, heads, kv_heads, head_dim */
    void *const *x = at->operands;
    mist_cuda_stream stream = stream_of(context_of(at));
    float epsilon = (float)at->model->norm_epsilon;
    int64_t bytes =
        2 * mist_catalog_norm_blocks(d[0] * d[1]) * d[4] * (int64_t)sizeof(float);

    if (d[4] > MIST_CUDA_MAX_NORMED_HEAD)
        mist_cuda_operators_fail(at, MIST_ERR_RUN,
                                 "norms of heads are at most 256 wide on a GPU");
    else if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cuda_head_norm_forward(stream, at->dtype, x[MIST_ARG_OUT],
                                    x[MIST_ARG_HEAD_NORM_X], at->params[0], at->params[1],
                                    epsilon, d[0] * d[1], d[2], d[3], d[4]);
    else if (mist_cuda_operators_has_workspace(at, bytes))
        mist_cuda_head_norm_backward(
            stream, at->dtype, at->gradient_dtype, x[MIST_ARG_DX], at->param_gradients[0],
            at->param_gradients[1], x[MIST_ARG_HEAD_NORM_X], at->params[0], at->params[1],
            epsilon, d[0] * d[1], d[2], d[3], d[4], at->workspace,
            at->overwrites_gradients);
}

static void gelu(step_args at)
{
    mist_cuda_activation_forward(
        stream_of(context_of(at)), at->dtype, mist_model_activation(at->model),
        at->operands[MIST_ARG_OUT], at->operands[MIST_ARG_UNARY_X], at->step->dims[0]);
}

static void swiglu(step_args at)
{
    const int64_t *dims = at->step->dims;
    void *const *x = at->operands;
    bool is_geglu = mist_family_traits(at->model->family)->gates_with_gelu;
    mist_cuda_stream stream = stream_of(context_of(at));

    if (at->step->phase == MIST_PHASE_FORWARD)
        mist_cuda_swiglu_forward(stream, at->dtype, is_geglu, x[MIST_ARG_OUT],
                                 x[MIST_ARG_UNARY_X], dims[0], dims[1]);
    else
        mist_cuda_swiglu_backward(stream, at->dtype, is_geglu, x[MIST_ARG_DX],
                                  x[MIST_ARG_DY], x[MIST_ARG_DUNARY_X], dims[0], dims[1]);
}

static void residual(step_args at)
{
    mist_cuda_add(stream_of(context_of(at)), at->dtype, at->operands[MIST_ARG_OUT],
                  at->operands[MIST_ARG_RESIDUAL_A], at->operands[MIST_ARG_RESIDUAL_B],
                  at->step->dims[0]);
}

/* Rows first .. first + shape->rows - 1; their logits are in the step's workspace. */
static void loss_of_rows(step_args at, const struct mist_cuda_linear *shape,
                         int64_t first)
{
    struct mist_cuda_gemm *gemm = context_of(at)->gemm;
    int64_t offset = first * shape->n_in * mist_dtype_weight_bytes(at->dtype);
    void *x = (char *)at->operands[MIST_ARG_LOSS_X] + offset;
    void *dx = (char *)at->operands[MIST_ARG_OUT] + offset;
    float *losses = at->operands[MIST_ARG_LOSS_LOSSES];
    const int32_t *targets = at->operands[MIST_ARG_LOSS_TARGETS];

    mist_cuda_gemm_forward(gemm, shape, at->workspace, NULL, x, at->params[0], NULL);
    mist_cuda_cross_entropy(shape->stream, at->dtype, at->workspace, losses + first,
                            targets + first, shape->rows, shape->n_out, at->model->vocab,
                            at->loss_scale);
    if (at->only_loss)
        return;
    mist_cuda_gemm_backward_input(gemm, shape, dx, at->workspace, at->params[0], NULL);
    mist_cuda_gemm_backward_weight(gemm, shape, at->param_gradients[0], NULL,
                                   at->workspace, x);
}

static void linear_cross_entropy(step_args at)
{
    struct mist_cuda_linear shape;

    if (!linear_shape(at, &shape) ||
        !mist_cuda_operators_has_workspace(at, shape.n_out *
                                                   mist_dtype_weight_bytes(at->dtype)))
        return;
    for (int64_t first = 0; first < at->step->dims[0]; first += shape.rows) {
        shape.rows = mist_step_loss_rows(at, first);
        loss_of_rows(at, &shape, first);
        shape.overwrites = false;
    }
    check_products(at);
}

static void cross_entropy_stats(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cuda_cross_entropy_stats(
        stream_of(context_of(at)), at->dtype, at->operands[MIST_ARG_OUT],
        at->operands[MIST_ARG_STATS_LOGITS], at->operands[MIST_ARG_STATS_TARGETS],
        dims[0], dims[1], mist_step_n_valid(at), at->i_tp * dims[1]);
}

static void cross_entropy_parallel(step_args at)
{
    const int64_t *dims = at->step->dims;

    mist_cuda_cross_entropy_parallel(
        stream_of(context_of(at)), at->dtype, at->operands[MIST_ARG_OUT],
        at->operands[MIST_ARG_LOSS_LOSSES], at->operands[MIST_ARG_LOSS_TARGETS],
        at->operands[MIST_ARG_LOSS_STATS], dims[0], dims[1], mist_step_n_valid(at),
        at->i_tp * dims[1], dims[2], at->loss_scale);
}

static void run_step(step_args at)
{
    static void (*const kernels[MIST_N_OPS])(step_args) = {
        [MIST_OP_EMBEDDING] = embedding,
        [MIST_OP_LAYER_NORM] = norm,
        [MIST_OP_RMS_NORM] = norm,
        [MIST_OP_RESIDUAL_LAYER_NORM] = residual_norm,
        [MIST_OP_RESIDUAL_RMS_NORM] = residual_norm,
        [MIST_OP_LINEAR] = linear,
        [MIST_OP_LINEAR_BIAS] = linear,
        [MIST_OP_LINEAR_GELU] = linear,
        [MIST_OP_LINEAR_RESIDUAL] = linear,
        [MIST_OP_ATTENTION] = mist_cuda_operators_attention,
        [MIST_OP_ATTENTION_PART] = mist_cuda_operators_attention_part,
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

    if (!kernels[at->step->op]) /* no kernel of a program (communication) */
        return;
    struct mist_device *device = &context_of(at)->device->base;
    mist_device_begin_range(device, mist_op_name(at->step->op), at->step->dims[0]);
    kernels[at->step->op](at);
    mist_device_end_range(device);
    check_launches(at);
}

/* ---------------------------------------------------------------- outside of programs */

static void prepare_update(void *backend, const struct mist_adamw_args *args)
{
    const struct mist_cuda_operators *context = backend;

    mist_cuda_adamw_prepare(stream_of(context), context->update, args);
    check_call(backend, "the numbers of adamw");
}

static void adamw(void *backend, enum mist_dtype dtype,
                  const struct mist_adamw_span *spans, int32_t n_spans,
                  const struct mist_adamw_args *args, int32_t n_threads)
{
    const struct mist_cuda_operators *context = backend;

    (void)args; /* as prepared */
    (void)n_threads;
    mist_cuda_adamw(stream_of(context), dtype, spans, n_spans, context->update);
    check_call(backend, "adamw");
}

static void draw(void *backend, enum mist_dtype dtype, void *x,
                 const struct mist_draw *what, int32_t n_threads)
{
    (void)n_threads;
    mist_cuda_draw(stream_of(backend), dtype, x, what);
    check_call(backend, "drawing parameters");
}

static void add(void *backend, enum mist_dtype dtype, void *sum, const void *x, int64_t n,
                int32_t n_threads)
{
    (void)n_threads;
    mist_cuda_add(stream_of(backend), dtype, sum, sum, x, n);
    check_call(backend, "adding gradients");
}

static void zero(void *backend, enum mist_dtype dtype, void *x, int64_t n,
                 int32_t n_threads)
{
    const struct mist_cuda_operators *context = backend;
    size_t bytes = (size_t)(n * mist_dtype_gradient_bytes(dtype));

    (void)n_threads;
    if (n > 0)
        (void)mist_cuda_check(
            context->device,
            cudaMemsetAsync(x, 0, bytes, mist_cuda_current_stream(context->device)),
            "cudaMemsetAsync");
}

static void sum_squares(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                        int64_t index_offset, struct mist_tally *tally, int32_t n_threads)
{
    (void)n_threads;
    mist_cuda_sum_squares(stream_of(backend), dtype, x, n, index_offset, tally);
    check_call(backend, "the gradient norm");
}

static void find_nonfinite(void *backend, enum mist_dtype dtype, const void *x, int64_t n,
                           struct mist_tally *tally, int32_t n_threads)
{
    (void)n_threads;
    mist_cuda_find_nonfinite(stream_of(backend), dtype, x, n, tally);
    check_call(backend, "the search for what is not finite");
}

static void sum_losses(void *backend, const float *losses, int64_t n,
                       struct mist_tally *tally)
{
    mist_cuda_sum_losses(stream_of(backend), losses, n, tally);
    check_call(backend, "the sum of losses");
}

static enum mist_status prepare(step_args at, struct mist_err *err)
{
    struct mist_cuda_operators *context = context_of(at);
    struct mist_cuda_linear shape;

    if (mist_op_is_attention(at->step->op))
        return mist_cuda_operators_plan_attention(at, err);
    if (linear_shape(at, &shape))
        mist_cuda_tuning_expect(context->gemm, at, &shape);
    return mist_cuda_gemm_status(context->gemm, err);
}

static enum mist_status tune(void *backend, struct mist_err *err)
{
    struct mist_cuda_operators *context = backend;

    return mist_cuda_tuning_run(context->gemm, context->device, err);
}

static void close_backend(void *backend)
{
    struct mist_cuda_operators *context = backend;

    if (!context)
        return;
    mist_cuda_gemm_close(context->gemm);
    mist_cuda_sdpa_close(context->sdpa);
    (void)cudaFree(context->update);
    free(context);
}

static enum mist_status open_backend(struct mist_device *device, enum mist_dtype dtype,
                                     int32_t n_threads, void **out, struct mist_err *err)
{
    struct mist_cuda_operators *context = calloc(1, sizeof *context);
    enum mist_status status;

    (void)n_threads;
    *out = NULL;
    if (!context)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory for the GPU's operators");
    context->device = mist_cuda_device_of(device);
    status = mist_cuda_gemm_open(MIST_CUDA_WORKSPACE_BYTES, &context->gemm, err);
    if (status == MIST_OK)
        status = mist_cuda_status(
            cudaMalloc((void **)&context->update, sizeof *context->update), "cudaMalloc",
            err);
    if (status == MIST_OK)
        status = mist_cuda_operators_open_attention(context, dtype, err);
    if (status == MIST_OK)
        *out = context;
    else
        close_backend(context);
    return status;
}

static void describe(const void *backend, int32_t n_threads, struct mist_paths *out)
{
    const struct mist_cuda_operators *context = backend;

    (void)n_threads;
    mist_cuda_operators_describe_attention(context, out->attention,
                                           sizeof out->attention);
    mist_cuda_gemm_describe(context->gemm, out->products, sizeof out->products);
    out->n_fallbacks = mist_cuda_gemm_counts(context->gemm).n_fallbacks;
}

const struct mist_operators mist_operators_cuda = {
    .name = "cuda",
    .open = open_backend,
    .close = close_backend,
    .prepare = prepare,
    .tune = tune,
    .describe = describe,
    .run_step = run_step,
    .prepare_update = prepare_update,
    .adamw = adamw,
    .draw = draw,
    .add = add,
    .zero = zero,
    .sum_squares = sum_squares,
    .find_nonfinite = find_nonfinite,
    .sum_losses = sum_losses,
};
