/*
 * What the files that declare modules share: the declaration under way, and the steps it
 * is made of. See catalog.h.
 *
 * A declaration is written once for all variants. Where sequence parallelism cuts an
 * activation by rows, there are two tensors, the rank's shard and the whole; in the other
 * variants both are the same tensor. mist_declare_gather() and mist_declare_reduce() put
 * between them what the variant needs, which may be nothing.
 */
#ifndef MIST_SIM_CATALOG_INTERNAL_H
#define MIST_SIM_CATALOG_INTERNAL_H

#include "sim/model/catalog.h"

/* FLOP per element of what is no product. */
enum {
    MIST_FLOP_GELU = 12,
    MIST_FLOP_GELU_BACKWARD = 18,
    MIST_FLOP_CROSS_ENTROPY = 20, /* per logit, with its gradient */
};

/* The module being declared, and common expressions. */
struct mist_declaration {
    struct mist_expr_pool *pool;
    const struct mist_model *model;
    enum mist_layer_variant variant;
    struct mist_layer_template *layer;
    mist_expr b, s, tp, threads, element;
    mist_expr rows;       /* b * s */
    mist_expr shard_rows; /* of activations between modules: rows, or rows / tp */
    mist_expr hidden;
    mist_expr heads, kv_heads, ffn, vocab; /* of a tensor-parallel rank */
};

struct mist_norm {
    int8_t out, stats, x; /* tensors */
    int8_t weight, bias;  /* parameters; bias -1 for RMSNorm */
};

struct mist_linear {
    const char *name;
    int8_t weight, bias; /* parameters; bias -1 */
    bool is_row_parallel;
    mist_expr n_in, n_out; /* of a rank */
};

static inline mist_expr num(struct mist_declaration *at, double value)
{
    return mist_expr_const(at->pool, value);
}

static inline mist_expr add(struct mist_declaration *at, mist_expr a, mist_expr b)
{
    return mist_expr_add(at->pool, a, b);
}

static inline mist_expr mul(struct mist_declaration *at, mist_expr a, mist_expr b)
{
    return mist_expr_mul(at->pool, a, b);
}

static inline mist_expr mul3(struct mist_declaration *at, mist_expr a, mist_expr b,
                             mist_expr c)
{
    return mul(at, mul(at, a, b), c);
}

static inline mist_expr times(struct mist_declaration *at, double factor, mist_expr a)
{
    return mul(at, num(at, factor), a);
}

/* Bytes of n passes over elements of the run's number format. */
static inline mist_expr bytes_of(struct mist_declaration *at, double n,
                                 mist_expr elements)
{
    return mul(at, at->element, times(at, n, elements));
}

/* ---------------------------------------------------------------- tensors, parameters */

/* Elements of the run's number format, and of 4 bytes. Return the tensor's id. */
int8_t mist_declare_tensor(struct mist_declaration *at, const char *name,
                           enum mist_tensor_class tensor_class, mist_expr elements);
int8_t mist_declare_tensor_4(struct mist_declaration *at, const char *name,
                             enum mist_tensor_class tensor_class, mist_expr elements);

/* The whole of a shard [shard_rows, hidden]: scratch, or the shard where it is whole. */
int8_t mist_declare_whole(struct mist_declaration *at, const char *name, int8_t shard);

/* Returns the parameter's id; n_elements is that of a rank. */
int8_t mist_declare_param(struct mist_declaration *at, const char *name,
                          enum mist_init init, bool decays, struct mist_param_shape shape,
                          mist_expr n_elements);

struct mist_param_shape mist_shape_uncut(int64_t rows, int64_t columns);
struct mist_param_shape mist_shape_cut_rows(int64_t rows, int64_t columns);
struct mist_param_shape mist_shape_cut_columns(int64_t rows, int64_t columns);

/* Sets norm->weight and norm->bias. */
void mist_declare_norm_params(struct mist_declaration *at, struct mist_norm *norm,
                              const char *weight, const char *bias);

/* shape: of the whole weight. bias NULL: none. */
struct mist_linear mist_declare_linear(struct mist_declaration *at, const char *name,
                                       const char *weight, const char *bias,
                                       enum mist_init init, struct mist_param_shape shape,
                                       mist_expr n_in, mist_expr n_out);

/* ------------------------------------------------------------------------------ steps */

/* Appends a step without operands; the caller fills what is special. */
struct mist_step *mist_declare_step(struct mist_declaration *at,
                                    struct mist_program *program, const char *name,
                                    enum mist_op op, enum mist_phase phase);

/* The shards of all ranks to the whole; nothing where both are the same tensor. */
void mist_declare_gather(struct mist_declaration *at, struct mist_program *program,
                         int8_t whole, int8_t shard);

/* The sum over the ranks of what each has in whole, in shard: nothing, all-reduce or
 * reduce-scatter by variant. */
void mist_declare_reduce(struct mist_declaration *at, struct mist_program *program,
                         int8_t shard, int8_t whole);

void mist_declare_norm_forward(struct mist_declaration *at, struct mist_program *program,
                               const char *name, const struct mist_norm *norm);

/* norm->x = a + b, norm->out = norm(norm->x) */
void mist_declare_residual_norm_forward(struct mist_declaration *at,
                                        struct mist_program *program, const char *name,
                                        const struct mist_norm *norm, int8_t a, int8_t b);

/* dx = d_residual (-1: none) + gradient through the norm of dy */
void mist_declare_norm_backward(struct mist_declaration *at, struct mist_program *program,
                                const char *name, const struct mist_norm *norm, int8_t dx,
                                int8_t dy, int8_t d_residual);

/* out = a + b, each [rows, hidden]; also used on gradients */
void mist_declare_residual(struct mist_declaration *at, struct mist_program *program,
                           mist_expr rows, int8_t out, int8_t a, int8_t b);

/* y = x W^T + bias + residual; dx = dy W + residual (-1: none); dW += dy^T x. Where y is
 * a rank's part of a sum, a residual is, too, if it is scratch; else all ranks
 * have it. */
void mist_declare_linear_forward(struct mist_declaration *at,
                                 struct mist_program *program,
                                 const struct mist_linear *linear, int8_t y, int8_t x,
                                 int8_t residual);
void mist_declare_linear_input(struct mist_declaration *at, struct mist_program *program,
                               const struct mist_linear *linear, int8_t dx, int8_t dy,
                               int8_t residual);
void mist_declare_linear_weight(struct mist_declaration *at, struct mist_program *program,
                                const struct mist_linear *linear, int8_t dy, int8_t x);

/* y = gelu(before), before = x W^T + bias; dx = (dy W) gelu'(before), where the layer's
 * input was gelu(before). The weight gradient is that of any linear layer. */
void mist_declare_linear_gelu_forward(struct mist_declaration *at,
                                      struct mist_program *program,
                                      const struct mist_linear *linear, int8_t y,
                                      int8_t before, int8_t x);
void mist_declare_linear_gelu_input(struct mist_declaration *at,
                                    struct mist_program *program,
                                    const struct mist_linear *linear, int8_t dx,
                                    int8_t dy, int8_t before);

/* ---------------------------------------------------------------------------- modules */

void mist_declare_embedding(struct mist_declaration *at);
void mist_declare_block(struct mist_declaration *at);
void mist_declare_head(struct mist_declaration *at);

/* ------------------------------------------------------------------------------ parts */

bool mist_op_is_communication(enum mist_op op);

/* Cuts steps first .. first + n - 1 into parts. */
void mist_program_cut(const struct mist_concrete_step *steps, int32_t first, int32_t n,
                      struct mist_concrete_program *out);

/* Cuts the layout's forward and backward steps into its programs; with splits_backward
 * the backward steps are put into their new order first. */
void mist_layout_cut_programs(struct mist_layer_layout *layout);

/*
 * The last step of the array (n_steps in all) that runs before a communication part has
 * surely ended.
 */
int32_t mist_program_communication_end(const struct mist_concrete_program *program,
                                       int32_t i_part, int32_t n_steps);

/* bytes where no thread of the host computes, else 0. */
mist_expr mist_declare_if_gpu(struct mist_declaration *at, mist_expr bytes);

/* bytes where the run's number format is bf16, else 0. */
mist_expr mist_declare_if_bf16(struct mist_declaration *at, mist_expr bytes);

#endif
