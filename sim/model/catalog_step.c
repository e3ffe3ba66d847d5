/*
 * The steps that modules are declared with: tensors, parameters, norms, linear layers,
 * and communication between tensor-parallel ranks. See catalog_internal.h.
 */
#include "sim/model/catalog_internal.h"

#include <assert.h>
#include <string.h>

/* ------------------------------------------------------------------------- arithmetic */

int64_t mist_checked(bool *is_out_of_range, bool (*add)(int64_t, int64_t, int64_t *),
                     int64_t all, const int64_t *terms, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!add(all, terms[i], &all)) {
            *is_out_of_range = true;
            return 0;
        }
    return all;
}

int64_t mist_declare_share(struct mist_declaration *at, int64_t n)
{
    bool is_whole = n % at->tp == 0;

    at->is_out_of_range |= !is_whole;
    return is_whole ? n / at->tp : 1;
}

/* ---------------------------------------------------------------- tensors, parameters */

static int8_t append_tensor(struct mist_declaration *at, struct mist_tensor tensor)
{
    struct mist_layer_layout *layout = at->layout;

    assert(layout->n_tensors < MIST_MAX_TENSORS);
    layout->tensors[layout->n_tensors] = tensor;
    return (int8_t)layout->n_tensors++;
}

int8_t mist_declare_tensor(struct mist_declaration *at, const char *name,
                           enum mist_tensor_class tensor_class, int64_t elements)
{
    return append_tensor(
        at, (struct mist_tensor){name, tensor_class,
                                 .bytes = product(at, at->element_bytes, elements)});
}

int8_t mist_declare_tensor_4(struct mist_declaration *at, const char *name,
                             enum mist_tensor_class tensor_class, int64_t elements)
{
    return append_tensor(
        at, (struct mist_tensor){name, tensor_class, .bytes = product(at, 4, elements)});
}

int8_t mist_declare_whole(struct mist_declaration *at, const char *name, int8_t shard)
{
    if (at->variant != MIST_VARIANT_SEQUENCE)
        return shard;
    return mist_declare_tensor(at, name, MIST_TENSOR_SCRATCH,
                               product(at, at->rows, at->hidden));
}

int8_t mist_declare_param(struct mist_declaration *at, struct mist_param param)
{
    struct mist_layer_layout *layout = at->layout;

    assert(layout->n_params < MIST_MAX_PARAMS);
    if (!at->is_out_of_range) /* else tp may not divide the columns */
        param.n_elements = mist_param_local_elements(&param.shape, layout->shape.tp);
    layout->params[layout->n_params] = param;
    return (int8_t)layout->n_params++;
}

struct mist_param_shape mist_shape_cut(enum mist_split split, int64_t rows,
                                       int64_t columns)
{
    return (struct mist_param_shape){
        .rows = rows,
        .columns = columns,
        .split = split,
        .n_sections = 1,
        .section_rows = {rows},
        .section_unit = {1},
    };
}

static bool is_rms(const struct mist_declaration *at)
{
    return mist_family_traits(at->model->family)->has_rms_norm;
}

/* A norm over shards sees a rank's rows only: its whole gradient is partial. */
static int8_t norm_param(struct mist_declaration *at, const char *name,
                         enum mist_init init)
{
    return mist_declare_param(
        at, (struct mist_param){
                .name = name,
                .init = init,
                .is_norm = true,
                .shape = mist_shape_cut(MIST_SPLIT_NONE, at->hidden, 1),
                .partial_elements = at->variant == MIST_VARIANT_SEQUENCE ? at->hidden : 0,
            });
}

void mist_declare_norm_params(struct mist_declaration *at, struct mist_norm *norm,
                              const char *weight, const char *bias)
{
    bool has_offset = mist_family_traits(at->model->family)->has_offset_norms;

    norm->weight = norm_param(at, weight, has_offset ? MIST_INIT_ZEROS : MIST_INIT_ONES);
    norm->bias = is_rms(at) ? -1 : norm_param(at, bias, MIST_INIT_ZEROS);
}

struct mist_linear mist_declare_linear(struct mist_declaration *at, const char *name,
                                       struct mist_param weight, const char *bias,
                                       int64_t n_in, int64_t n_out)
{
    struct mist_linear linear = {
        .name = name,
        .bias = -1,
        .is_row_parallel = weight.shape.split == MIST_SPLIT_COLUMNS,
        .n_in = n_in,
        .n_out = n_out,
    };

    weight.decays = true;
    linear.weight = mist_declare_param(at, weight);
    if (!bias)
        return linear;
    struct mist_param added = {
        .name = bias, .init = MIST_INIT_ZEROS, .shape = weight.shape};
    added.shape.columns = 1;
    if (linear.is_row_parallel)
        added.shape.split = MIST_SPLIT_NONE;
    linear.bias = mist_declare_param(at, added);
    return linear;
}

/* ------------------------------------------------------------------------------ steps */

/* Room for the next step of the program under way. */
static struct mist_step *append_step(struct mist_declaration *at)
{
    struct mist_layer_layout *layout = at->layout;
    int32_t n = mist_layer_layout_n_steps(layout, at->is_backward);

    assert(n < MIST_MAX_STEPS);
    ++*(at->is_backward ? &layout->n_backward
        : at->is_remake ? &layout->n_remake
                        : &layout->n_forward);
    return &(at->is_backward ? layout->backward : layout->forward)[n];
}

struct mist_step *mist_declare_step_of(struct mist_declaration *at, const char *name,
                                       enum mist_op op, enum mist_phase phase,
                                       const int64_t *dims, size_t n_dims)
{
    struct mist_layer_layout *layout = at->layout;
    struct mist_step *new = append_step(at);
    struct mist_op_use use = {.op = op,
                              .phase = phase,
                              .dims = dims,
                              .element_bytes = at->element_bytes,
                              .threads = layout->shape.threads};
    struct mist_work work = mist_op_use_work(&use);

    assert(n_dims <= MIST_MAX_DIMS);
    *new = (struct mist_step){
        .name = name,
        .op = op,
        .phase = phase,
        .params = {-1, -1},
        .n_dims = (int32_t)n_dims,
        .flop = work.flop,
        .bytes = work.bytes,
        .workspace_bytes = mist_op_use_workspace(&use),
    };
    memset(new->operands, -1, sizeof new->operands);
    memcpy(new->dims, dims, n_dims * sizeof *dims);
    at->is_out_of_range |= use.is_out_of_range;
    return new;
}

void mist_declare_more_bytes(struct mist_declaration *at, struct mist_step *step,
                             int64_t elements)
{
    step->bytes = sum(at, step->bytes, product(at, at->element_bytes, elements));
}

/* Communication has no phase of its own; the message is that of the whole tensor. */
static void communication(struct mist_declaration *at, enum mist_op op, int8_t to,
                          int8_t from, int8_t whole)
{
    struct mist_step *new = mist_declare_step(
        at, mist_op_name(op), op, MIST_PHASE_FORWARD, at->layout->tensors[whole].bytes);

    new->operands[MIST_ARG_OUT] = to;
    new->operands[MIST_ARG_TP_FROM] = from;
}

void mist_declare_gather(struct mist_declaration *at, int8_t whole, int8_t shard)
{
    if (whole != shard)
        communication(at, MIST_OP_TP_ALL_GATHER, whole, shard, whole);
}

void mist_declare_reduce(struct mist_declaration *at, int8_t shard, int8_t whole)
{
    if (at->variant == MIST_VARIANT_TENSOR)
        communication(at, MIST_OP_TP_ALL_REDUCE, shard, -1, shard);
    else if (at->variant == MIST_VARIANT_SEQUENCE)
        communication(at, MIST_OP_TP_REDUCE_SCATTER, shard, whole, whole);
}

void mist_declare_cp_gather(struct mist_declaration *at, int8_t whole, int8_t shard)
{
    communication(at, MIST_OP_CP_ALL_GATHER, whole, shard, whole);
}

void mist_declare_cp_reduce(struct mist_declaration *at, int8_t shard, int8_t whole)
{
    communication(at, MIST_OP_CP_REDUCE_SCATTER, shard, whole, whole);
}

static struct mist_step *norm_step(struct mist_declaration *at, const char *name,
                                   const struct mist_norm *norm, enum mist_op op,
                                   enum mist_phase phase)
{
    struct mist_step *new =
        mist_declare_step(at, name, op, phase, at->shard_rows, at->hidden);

    new->params[0] = norm->weight;
    new->params[1] = norm->bias;
    return new;
}

void mist_declare_norm_forward(struct mist_declaration *at, const char *name,
                               const struct mist_norm *norm)
{
    struct mist_step *new =
        norm_step(at, name, norm, is_rms(at) ? MIST_OP_RMS_NORM : MIST_OP_LAYER_NORM,
                  MIST_PHASE_FORWARD);

    new->operands[MIST_ARG_OUT] = norm->out;
    new->operands[MIST_ARG_NORM_STATS] = norm->stats;
    new->operands[MIST_ARG_NORM_X] = norm->x;
}

void mist_declare_norm_again(struct mist_declaration *at, const char *name,
                             const struct mist_norm *norm, int8_t stats)
{
    struct mist_norm again = *norm;

    again.stats = stats;
    mist_declare_norm_forward(at, name, &again);
}

void mist_declare_residual_norm_forward(struct mist_declaration *at, const char *name,
                                        const struct mist_norm *norm, int8_t a, int8_t b)
{
    struct mist_step *new =
        norm_step(at, name, norm,
                  is_rms(at) ? MIST_OP_RESIDUAL_RMS_NORM : MIST_OP_RESIDUAL_LAYER_NORM,
                  MIST_PHASE_FORWARD);

    new->operands[MIST_ARG_OUT] = norm->out;
    new->operands[MIST_ARG_RNORM_RESIDUAL] = norm->x;
    new->operands[MIST_ARG_RNORM_STATS] = norm->stats;
    new->operands[MIST_ARG_RNORM_A] = a;
    new->operands[MIST_ARG_RNORM_B] = b;
}

void mist_declare_norm_backward(struct mist_declaration *at, const char *name,
                                const struct mist_norm *norm, int8_t dx, int8_t dy,
                                int8_t d_residual)
{
    struct mist_step *new =
        norm_step(at, name, norm, is_rms(at) ? MIST_OP_RMS_NORM : MIST_OP_LAYER_NORM,
                  MIST_PHASE_BACKWARD_INPUT);

    if (d_residual >= 0)
        mist_declare_more_bytes(at, new, product(at, at->shard_rows, at->hidden));
    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    new->operands[MIST_ARG_DNORM_RESIDUAL] = d_residual;
    new->operands[MIST_ARG_DNORM_X] = norm->x;
    new->operands[MIST_ARG_DNORM_STATS] = norm->stats;
}

void mist_declare_residual(struct mist_declaration *at, int8_t out, int8_t a, int8_t b)
{
    struct mist_step *new =
        mist_declare_step(at, "residual", MIST_OP_RESIDUAL, MIST_PHASE_FORWARD,
                          product(at, at->shard_rows, at->hidden));

    new->operands[MIST_ARG_OUT] = out;
    new->operands[MIST_ARG_RESIDUAL_A] = a;
    new->operands[MIST_ARG_RESIDUAL_B] = b;
}

static struct mist_step *linear_step(struct mist_declaration *at,
                                     const struct mist_linear *linear, enum mist_op op,
                                     enum mist_phase phase)
{
    struct mist_step *new = mist_declare_step(at, linear->name, op, phase, at->rows,
                                              linear->n_in, linear->n_out);

    new->params[0] = linear->weight;
    new->params[1] = linear->bias;
    return new;
}

/* residual: -1 none. */
static enum mist_op linear_op(const struct mist_linear *linear, int8_t residual)
{
    return residual >= 0       ? MIST_OP_LINEAR_RESIDUAL
           : linear->bias >= 0 ? MIST_OP_LINEAR_BIAS
                               : MIST_OP_LINEAR;
}

void mist_declare_linear_forward(struct mist_declaration *at,
                                 const struct mist_linear *linear, int8_t y, int8_t x,
                                 int8_t residual)
{
    struct mist_step *new =
        linear_step(at, linear, linear_op(linear, residual), MIST_PHASE_FORWARD);
    bool is_part = at->variant != MIST_VARIANT_PLAIN && linear->is_row_parallel;

    new->operands[MIST_ARG_OUT] = y;
    new->operands[MIST_ARG_LINEAR_X] = x;
    new->operands[MIST_ARG_LINEAR_RESIDUAL] = residual;
    new->adds_bias_once = is_part && linear->bias >= 0;
    new->adds_residual_once =
        is_part &&residual >= 0 &&
        at->layout->tensors[residual].tensor_class != MIST_TENSOR_SCRATCH;
}

void mist_declare_linear_input(struct mist_declaration *at,
                               const struct mist_linear *linear, int8_t dx, int8_t dy,
                               int8_t residual)
{
    struct mist_step *new =
        linear_step(at, linear, linear_op(linear, residual), MIST_PHASE_BACKWARD_INPUT);

    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    new->operands[MIST_ARG_LINEAR_RESIDUAL] = residual;
}

void mist_declare_linear_weight(struct mist_declaration *at,
                                const struct mist_linear *linear, int8_t dy, int8_t x)
{
    struct mist_step *new =
        linear_step(at, linear, linear_op(linear, -1), MIST_PHASE_BACKWARD_WEIGHT);

    new->operands[MIST_ARG_DW_DY] = dy;
    new->operands[MIST_ARG_DW_X] = x;
}

void mist_declare_linear_gelu_forward(struct mist_declaration *at,
                                      const struct mist_linear *linear, int8_t y,
                                      int8_t before, int8_t x)
{
    struct mist_step *new =
        linear_step(at, linear, MIST_OP_LINEAR_GELU, MIST_PHASE_FORWARD);

    new->operands[MIST_ARG_OUT] = y;
    new->operands[MIST_ARG_LINEAR_GELU_BEFORE] = before;
    new->operands[MIST_ARG_LINEAR_GELU_X] = x;
}

void mist_declare_linear_gelu_input(struct mist_declaration *at,
                                    const struct mist_linear *linear, int8_t dx,
                                    int8_t dy, int8_t before)
{
    struct mist_step *new =
        linear_step(at, linear, MIST_OP_LINEAR_GELU, MIST_PHASE_BACKWARD_INPUT);

    new->operands[MIST_ARG_DX] = dx;
    new->operands[MIST_ARG_DY] = dy;
    new->operands[MIST_ARG_DUNARY_X] = before;
}
