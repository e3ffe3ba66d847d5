/*
 * The steps that modules are declared with: tensors, parameters, norms, linear layers,
 * and communication between tensor-parallel ranks. See catalog_internal.h.
 *
 * Bytes of a step are those it must move at least: every operand and a linear layer's
 * weight once, twice where it is read and written; statistics are left out as small.
 * Workspaces are those of the CPU's kernels by threads, and with none those of a GPU's.
 */
#include "sim/model/catalog_internal.h"

#include <assert.h>
#include <string.h>

/* ---------------------------------------------------------------- tensors, parameters */

static int8_t append_tensor(struct mist_declaration *at, struct mist_tensor tensor)
{
    struct mist_layer_template *layer = at->layer;

    assert(layer->n_tensors < MIST_MAX_TENSORS);
    layer->tensors[layer->n_tensors] = tensor;
    return (int8_t)layer->n_tensors++;
}

int8_t mist_declare_tensor(struct mist_declaration *at, const char *name,
                           enum mist_tensor_class tensor_class, mist_expr elements)
{
    return append_tensor(
        at, (struct mist_tensor){name, tensor_class, bytes_of(at, 1, elements)});
}

int8_t mist_declare_tensor_4(struct mist_declaration *at, const char *name,
                             enum mist_tensor_class tensor_class, mist_expr elements)
{
    return append_tensor(
        at, (struct mist_tensor){name, tensor_class, times(at, 4, elements)});
}

int8_t mist_declare_whole(struct mist_declaration *at, const char *name, int8_t shard)
{
    if (at->variant != MIST_VARIANT_SEQUENCE)
        return shard;
    return mist_declare_tensor(at, name, MIST_TENSOR_SCRATCH,
                               mul(at, at->rows, at->hidden));
}

int8_t mist_declare_param(struct mist_declaration *at, const char *name,
                          enum mist_init init, bool decays, struct mist_param_shape shape,
                          mist_expr n_elements)
{
    struct mist_layer_template *layer = at->layer;

    assert(layer->n_params < MIST_MAX_PARAMS);
    layer->params[layer->n_params] = (struct mist_param){
        .name = name,
        .init = init,
        .decays = decays,
        .n_elements = n_elements,
        .shape = shape,
        .partial_first = num(at, 0),
        .partial_elements = num(at, 0),
    };
    return (int8_t)layer->n_params++;
}

struct mist_param_shape mist_shape_uncut(int64_t rows, int64_t columns)
{
    return (struct mist_param_shape){
        .rows = rows,
        .columns = columns,
        .split = MIST_SPLIT_NONE,
        .n_sections = 1,
        .section_rows = {rows},
        .section_unit = {1},
    };
}

struct mist_param_shape mist_shape_cut_rows(int64_t rows, int64_t columns)
{
    struct mist_param_shape shape = mist_shape_uncut(rows, columns);

    shape.split = MIST_SPLIT_ROWS;
    return shape;
}

struct mist_param_shape mist_shape_cut_columns(int64_t rows, int64_t columns)
{
    struct mist_param_shape shape = mist_shape_uncut(rows, columns);

    shape.split = MIST_SPLIT_COLUMNS;
    return shape;
}

static bool is_rms(const struct mist_declaration *at)
{
    return at->model->family == MIST_FAMILY_LLAMA;
}

/* A norm over shards sees a rank's rows only: its whole gradient is partial. */
static int8_t norm_param(struct mist_declaration *at, const char *name,
                         enum mist_init init)
{
    int8_t id = mist_declare_param(at, name, init, false,
                                   mist_shape_uncut(at->model->hidden, 1), at->hidden);

    if (at->variant == MIST_VARIANT_SEQUENCE)
        at->layer->params[id].partial_elements = at->hidden;
    return id;
}

void mist_declare_norm_params(struct mist_declaration *at, struct mist_norm *norm,
                              const char *weight, const char *bias)
{
    norm->weight = norm_param(at, weight, MIST_INIT_ONES);
    norm->bias = is_rms(at) ? -1 : norm_param(at, bias, MIST_INIT_ZEROS);
}

struct mist_linear mist_declare_linear(struct mist_declaration *at, const char *name,
                                       const char *weight, const char *bias,
                                       enum mist_init init, struct mist_param_shape shape,
                                       mist_expr n_in, mist_expr n_out)
{
    struct mist_linear linear = {
        .name = name,
        .bias = -1,
        .is_row_parallel = shape.split == MIST_SPLIT_COLUMNS,
        .n_in = n_in,
        .n_out = n_out,
    };

    linear.weight =
        mist_declare_param(at, weight, init, true, shape, mul(at, n_in, n_out));
    shape.columns = 1;
    if (linear.is_row_parallel)
        shape.split = MIST_SPLIT_NONE;
    if (bias)
        linear.bias = mist_declare_param(at, bias, MIST_INIT_ZEROS, false, shape, n_out);
    return linear;
}

/* ------------------------------------------------------------------------------ steps */

struct mist_step *mist_declare_step(struct mist_declaration *at,
                                    struct mist_program *program, const char *name,
                                    enum mist_op op, enum mist_phase phase)
{
    assert(program->n_steps < MIST_MAX_STEPS);
    struct mist_step *new = &program->steps[program->n_steps++];

    new->name = name;
    new->op = op;
    new->phase = phase;
    memset(new->operands, -1, sizeof new->operands);
    memset(new->params, -1, sizeof new->params);
    for (int i = 0; i < MIST_MAX_DIMS; i++)
        new->dims[i] = num(at, 0);
    new->flop = num(at, 0);
    new->bytes = num(at, 0);
    new->workspace_bytes = num(at, 0);
    return new;
}

/* Communication has no phase of its own; the message is that of the whole tensor. */
static void communication(struct mist_declaration *at, struct mist_program *program,
                          enum mist_op op, int8_t to, int8_t from, int8_t whole)
{
    struct mist_step *new =
        mist_declare_step(at, program, mist_op_name(op), op, MIST_PHASE_FORWARD);

    new->operands[MIST_ARG_OUT] = to;
    new->operands[MIST_ARG_TP_FROM] = from;
    new->dims[0] = at->layer->tensors[whole].bytes;
    new->bytes = new->dims[0];
}

void mist_declare_gather(struct mist_declaration *at, struct mist_program *program,
                         int8_t whole, int8_t shard)
{
    if (whole != shard)
        communication(at, program, MIST_OP_TP_ALL_GATHER, whole, shard, whole);
}

void mist_declare_reduce(struct mist_declaration *at, struct mist_program *program,
                         int8_t shard, int8_t whole)
{
    if (at->variant == MIST_VARIANT_TENSOR)
        communication(at, program, MIST_OP_TP_ALL_REDUCE, shard, -1, shard);
    else if (at->variant == MIST_VARIANT_SEQUENCE)
        communication(at, program, MIST_OP_TP_REDUCE_SCATTER, shard, whole, whole);
}

mist_expr mist_declare_if_bf16(struct mist_declaration *at, mist_expr bytes)
{
    mist_expr is_bf16 = add(at, num(at, 2), times(at, -0.5, at->element));

    return mul(at, is_bf16, bytes);
}

mist_expr mist_declare_if_gpu(struct mist_declaration *at, mist_expr bytes)
{
    mist_expr is_gpu = mist_expr_max(at->pool, num(at, 0),
                                     add(at, num(at, 1), times(at, -1, at->threads)));

    return mul(at, is_gpu, bytes);
}

/* Rows of the hidden size that bf16 kernels hold in fp32: once, and per thread. */
static mist_expr bf16_rows(struct mist_declaration *at, double n_once,
                           double n_per_thread)
{
    mist_expr n = add(at, num(at, n_once), times(at, n_per_thread, at->threads));

    return mist_declare_if_bf16(at, times(at, 4, mul(at, at->hidden, n)));
}

static void norm_common(struct mist_declaration *at, struct mist_step *new,
                        const struct mist_norm *norm, double flop_per_element,
                        double n_passes)
{
    mist_expr elements = mul(at, at->shard_rows, at->hidden);

    new->dims[0] = at->shard_rows;
    new->dims[1] = at->hidden;
    new->params[0] = norm->weight;
    new->params[1] = norm->bias;
    new->flop = times(at, flop_per_element, elements);
    new->bytes = bytes_of(at, n_passes, elements);
}

void mist_declare_norm_forward(struct mist_declaration *at, struct mist_program *program,
                               const char *name, const struct mist_norm *norm)
{
    struct mist_step *new = mist_declare_step(
        at, program, name, is_rms(at) ? MIST_OP_RMS_NORM : MIST_OP_LAYER_NORM,
        MIST_PHASE_FORWARD);

    norm_common(at, new, norm, 8, 2);
    new->workspace_bytes = bf16_rows(at, 2, 2);
    new->operands[MIST_ARG_OUT] = norm->out;
    new->operands[MIST_ARG_NORM_STATS] = norm->stats;
    new->operands[MIST_ARG_NORM_X] = norm->x;
}

void mist_declare_residual_norm_forward(struct mist_declaration *at,
                                        struct mist_program *program, const char *name,
                                        const struct mist_norm *norm, int8_t a, int8_t b)
{
    struct mist_step *new = mist_declare_step(at, program, name,
                                              is_rms(at) ? MIST_OP_RESIDUAL_RMS_NORM
                                                         : MIST_OP_RESIDUAL_LAYER_NORM,
                                              MIST_PHASE_FORWARD);

    norm_common(at, new, norm, 9, 4);
    new->workspace_bytes = bf16_rows(at, 2, 2);
    new->operands[MIST_ARG_OUT] = norm->out;
    new->operands[MIST_ARG_RNORM_RESIDUAL] = norm->x;
    new->operands[MIST_ARG_RNORM_STATS] = norm->stats;
    new->operands[MIST_ARG_RNORM_A] = a;
    new->operands[MIST_ARG_RNORM_B] = b;
}

/* Blocks of rows whose gradients are summed up apart, as mist_catalog_norm_blocks(). */
static mist_expr norm_blocks(struct mist_declaration *at)
{
    mist_expr is_cpu = mist_expr_min(at->pool, num(at, 1), at->threads);
    mist_expr of_cpu =
        mist_expr_ceil(at->pool, mist_expr_div(at->pool, at->shard_rows,
                                               num(at, MIST_CATALOG_NORM_BLOCK_ROWS)));
    mist_expr of_gpu =
        mist_expr_ceil(at->pool, mist_expr_div(at->pool, at->shard_rows,
                                               num(at, MIST_CATALOG_NORM_GPU_ROWS)));

    of_gpu = mist_expr_min(at->pool, of_gpu, num(at, MIST_CATALOG_NORM_GPU_BLOCKS));
    return add(at, mul(at, is_cpu, of_cpu), mist_declare_if_gpu(at, of_gpu));
}

void mist_declare_norm_backward(struct mist_declaration *at, struct mist_program *program,
                                const char *name, const struct mist_norm *norm, int8_t dx,
                                int8_t dy, int8_t d_residual)
{
    struct mist_step *new = mist_declare_step(
        at, program, name, is_rms(at) ? MIST_OP_RMS_NORM : MIST_OP_LAYER_NORM,
        MIST_PHASE_BACKWARD_INPUT);
    norm_common(at, new, norm, 14, d_residual >= 0 ? 4 : 3);
    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    new->operands[MIST_ARG_DNORM_RESIDUAL] = d_residual;
    new->operands[MIST_ARG_DNORM_X] = norm->x;
    new->operands[MIST_ARG_DNORM_STATS] = norm->stats;
    new->workspace_bytes = add(
        at, times(at, 2.0 * 4 * at->model->hidden, norm_blocks(at)), bf16_rows(at, 1, 3));
}

void mist_declare_residual(struct mist_declaration *at, struct mist_program *program,
                           mist_expr rows, int8_t out, int8_t a, int8_t b)
{
    struct mist_step *new =
        mist_declare_step(at, program, "residual", MIST_OP_RESIDUAL, MIST_PHASE_FORWARD);

    new->dims[0] = mul(at, rows, at->hidden);
    new->operands[MIST_ARG_OUT] = out;
    new->operands[MIST_ARG_RESIDUAL_A] = a;
    new->operands[MIST_ARG_RESIDUAL_B] = b;
    new->flop = new->dims[0];
    new->bytes = bytes_of(at, 3, new->dims[0]);
}

static struct mist_step *linear_step(struct mist_declaration *at,
                                     struct mist_program *program,
                                     const struct mist_linear *linear,
                                     enum mist_phase phase)
{
    struct mist_step *new = mist_declare_step(
        at, program, linear->name,
        linear->bias >= 0 ? MIST_OP_LINEAR_BIAS : MIST_OP_LINEAR, phase);
    mist_expr in = mul(at, at->rows, linear->n_in);
    mist_expr out = mul(at, at->rows, linear->n_out);
    mist_expr weight = mul(at, linear->n_in, linear->n_out);

    new->dims[0] = at->rows;
    new->dims[1] = linear->n_in;
    new->dims[2] = linear->n_out;
    new->params[0] = linear->weight;
    new->params[1] = linear->bias;
    new->flop = times(at, 2, mul3(at, at->rows, linear->n_in, linear->n_out));
    new->bytes = bytes_of(at, 1, add(at, add(at, in, out), weight));
    return new;
}

/* Makes a linear step one that adds a tensor to the elements of its output. */
static void add_residual(struct mist_declaration *at, struct mist_step *step,
                         mist_expr elements, int8_t residual)
{
    if (residual < 0)
        return;
    step->op = MIST_OP_LINEAR_RESIDUAL;
    step->flop = add(at, step->flop, elements);
    step->bytes = add(at, step->bytes, bytes_of(at, 1, elements));
    step->operands[MIST_ARG_LINEAR_RESIDUAL] = residual;
}

void mist_declare_linear_forward(struct mist_declaration *at,
                                 struct mist_program *program,
                                 const struct mist_linear *linear, int8_t y, int8_t x,
                                 int8_t residual)
{
    struct mist_step *new = linear_step(at, program, linear, MIST_PHASE_FORWARD);
    bool is_part = at->variant != MIST_VARIANT_PLAIN && linear->is_row_parallel;

    new->operands[MIST_ARG_OUT] = y;
    new->operands[MIST_ARG_LINEAR_X] = x;
    new->adds_bias_once = is_part && linear->bias >= 0;
    add_residual(at, new, mul(at, at->rows, linear->n_out), residual);
    new->adds_residual_once =
        is_part &&residual >= 0 &&
        at->layer->tensors[residual].tensor_class != MIST_TENSOR_SCRATCH;
}

void mist_declare_linear_input(struct mist_declaration *at, struct mist_program *program,
                               const struct mist_linear *linear, int8_t dx, int8_t dy,
                               int8_t residual)
{
    struct mist_step *new = linear_step(at, program, linear, MIST_PHASE_BACKWARD_INPUT);

    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    add_residual(at, new, mul(at, at->rows, linear->n_in), residual);
}

void mist_declare_linear_weight(struct mist_declaration *at, struct mist_program *program,
                                const struct mist_linear *linear, int8_t dy, int8_t x)
{
    struct mist_step *new = linear_step(at, program, linear, MIST_PHASE_BACKWARD_WEIGHT);

    new->operands[MIST_ARG_DW_DY] = dy;
    new->operands[MIST_ARG_DW_X] = x;
}

/* Makes a linear step one that also runs the elements of its output through gelu, or back
 * through it: of what the two would read and write, the product's result is written once
 * and not read again. */
static void fuse_gelu(struct mist_declaration *at, struct mist_step *step,
                      mist_expr elements, double flop_per_element)
{
    step->op = MIST_OP_LINEAR_GELU;
    step->flop = add(at, step->flop, times(at, flop_per_element, elements));
    step->bytes = add(at, step->bytes, bytes_of(at, 1, elements));
}

void mist_declare_linear_gelu_forward(struct mist_declaration *at,
                                      struct mist_program *program,
                                      const struct mist_linear *linear, int8_t y,
                                      int8_t before, int8_t x)
{
    struct mist_step *new = linear_step(at, program, linear, MIST_PHASE_FORWARD);

    fuse_gelu(at, new, mul(at, at->rows, linear->n_out), MIST_FLOP_GELU);
    new->operands[MIST_ARG_OUT] = y;
    new->operands[MIST_ARG_LINEAR_GELU_BEFORE] = before;
    new->operands[MIST_ARG_LINEAR_GELU_X] = x;
}

void mist_declare_linear_gelu_input(struct mist_declaration *at,
                                    struct mist_program *program,
                                    const struct mist_linear *linear, int8_t dx,
                                    int8_t dy, int8_t before)
{
    struct mist_step *new = linear_step(at, program, linear, MIST_PHASE_BACKWARD_INPUT);

    fuse_gelu(at, new, mul(at, at->rows, linear->n_in), MIST_FLOP_GELU_BACKWARD);
    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    new->operands[MIST_ARG_DUNARY_X] = before;
}
