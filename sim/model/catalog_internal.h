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

#include "core/memory.h" /* mist_size_mul, mist_size_add */
#include "sim/model/catalog.h"

/* ------------------------------------------------------------------------- arithmetic */

/* The product or sum of terms >= 0, begun with 1 or 0. Where that does not fit 63 bits it is
 * 0 and sets *is_out_of_range, which nothing clears. */
int64_t mist_checked(bool *is_out_of_range, bool (*add)(int64_t, int64_t, int64_t *),
                     int64_t all, const int64_t *terms, size_t n);

#define MIST_TERMS(...)                                                                  \
    (const int64_t[]){__VA_ARGS__},                                                      \
        sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

/* The same in whatever notes that a number was out of range. */
#define product(at, ...)                                                                 \
    mist_checked(&(at)->is_out_of_range, mist_size_mul, 1, MIST_TERMS(__VA_ARGS__))
#define sum(at, ...)                                                                     \
    mist_checked(&(at)->is_out_of_range, mist_size_add, 0, MIST_TERMS(__VA_ARGS__))

static inline int64_t mist_divide_up(int64_t a, int64_t b)
{
    return a / b + (a % b != 0);
}

/* -------------------------------------------------------------------------- operators */

/* An operator somewhere: what its work and its workspace follow from. */
struct mist_op_use {
    enum mist_op op;
    enum mist_phase phase;
    const int64_t *dims;
    int64_t element_bytes; /* of weights and activations */
    int64_t threads;       /* as in struct mist_layer_shape */
    bool is_out_of_range;
};

struct mist_work mist_op_use_work(struct mist_op_use *use);

/* Kernel workspace beyond operands: that of the CPU's kernels by threads, and with none
 * that of a GPU's. */
int64_t mist_op_use_workspace(struct mist_op_use *use);

/* Tensors that an operator writes: its first operands. */
int mist_op_n_written(enum mist_op op, enum mist_phase phase);

/* ------------------------------------------------------------------------ declaration */

/* The module being declared, and common numbers. */
struct mist_declaration {
    const struct mist_model *model;
    enum mist_layer_variant variant;
    struct mist_layer_layout *layout;
    bool is_backward; /* steps go to the backward program */
    bool is_remake;   /* ... to MIST_PROGRAM_REMAKE, when the forward is declared */
    bool is_out_of_range;
    int64_t b, s, tp, element_bytes;
    int64_t cp;
    int64_t rows;       /* b * s / cp */
    int64_t shard_rows; /* of activations between modules: rows, or rows / tp */
    int64_t hidden;
    int64_t vocab; /* of a tensor-parallel rank, padded */
};

struct mist_norm {
    int8_t out, stats, x; /* tensors */
    int8_t weight, bias;  /* parameters; bias -1 for RMSNorm */
};

struct mist_linear {
    const char *name;
    int8_t weight, bias; /* parameters; bias -1 */
    bool is_row_parallel;
    int64_t n_in, n_out; /* of a rank */
};

/* n / tp; where that is not whole, 1, and what is declared is out of range. */
int64_t mist_declare_share(struct mist_declaration *at, int64_t n);

/* ---------------------------------------------------------------- tensors, parameters */

/* Elements of the run's number format, and of 4 bytes. Return the tensor's id. */
int8_t mist_declare_tensor(struct mist_declaration *at, const char *name,
                           enum mist_tensor_class tensor_class, int64_t elements);
int8_t mist_declare_tensor_4(struct mist_declaration *at, const char *name,
                             enum mist_tensor_class tensor_class, int64_t elements);

/* The whole of a shard [shard_rows, hidden]: scratch, or the shard where it is whole. */
int8_t mist_declare_whole(struct mist_declaration *at, const char *name, int8_t shard);

/* name, init, attributes and shape are param's; the rest is found. Returns the
 * parameter's id. */
int8_t mist_declare_param(struct mist_declaration *at, struct mist_param param);

struct mist_param_shape mist_shape_cut(enum mist_split split, int64_t rows,
                                       int64_t columns);

/* Sets norm->weight and norm->bias. */
void mist_declare_norm_params(struct mist_declaration *at, struct mist_norm *norm,
                              const char *weight, const char *bias);

/* weight: as for mist_declare_param(). bias NULL: none. */
struct mist_linear mist_declare_linear(struct mist_declaration *at, const char *name,
                                       struct mist_param weight, const char *bias,
                                       int64_t n_in, int64_t n_out);

/* ------------------------------------------------------------------------------ steps */

/* Appends a step with these dimensions, without operands; the caller fills what is
 * special. */
#define mist_declare_step(at, name, op, phase, ...)                                      \
    mist_declare_step_of(at, name, op, phase, MIST_TERMS(__VA_ARGS__))
struct mist_step *mist_declare_step_of(struct mist_declaration *at, const char *name,
                                       enum mist_op op, enum mist_phase phase,
                                       const int64_t *dims, size_t n_dims);

/* The step reads or writes so many elements of the run's number format more. */
void mist_declare_more_bytes(struct mist_declaration *at, struct mist_step *step,
                             int64_t elements);

/* The shards of all ranks to the whole; nothing where both are the same tensor. */
void mist_declare_gather(struct mist_declaration *at, int8_t whole, int8_t shard);

/* The sum over the ranks of what each has in whole, in shard: nothing, all-reduce or
 * reduce-scatter by variant. */
void mist_declare_reduce(struct mist_declaration *at, int8_t shard, int8_t whole);

/* The same over context-parallel ranks: all ranks' shards, and the sum of what they have. */
void mist_declare_cp_gather(struct mist_declaration *at, int8_t whole, int8_t shard);
void mist_declare_cp_reduce(struct mist_declaration *at, int8_t shard, int8_t whole);

void mist_declare_norm_forward(struct mist_declaration *at, const char *name,
                               const struct mist_norm *norm);

/* norm->x = a + b, norm->out = norm(norm->x) */
void mist_declare_residual_norm_forward(struct mist_declaration *at, const char *name,
                                        const struct mist_norm *norm, int8_t a, int8_t b);

/* dx = d_residual (-1: none) + gradient through the norm of dy */
void mist_declare_norm_backward(struct mist_declaration *at, const char *name,
                                const struct mist_norm *norm, int8_t dx, int8_t dy,
                                int8_t d_residual);

/* norm->out again from norm->x. Its statistics, which are kept, come out once more, in a
 * scratch tensor. */
void mist_declare_norm_again(struct mist_declaration *at, const char *name,
                             const struct mist_norm *norm, int8_t stats);

/* out = a + b, each [shard_rows, hidden] */
void mist_declare_residual(struct mist_declaration *at, int8_t out, int8_t a, int8_t b);

/* y = x W^T + bias + residual; dx = dy W + residual (-1: none); dW += dy^T x. Where y is
 * a rank's part of a sum, a residual is, too, if it is scratch; else all ranks
 * have it. */
void mist_declare_linear_forward(struct mist_declaration *at,
                                 const struct mist_linear *linear, int8_t y, int8_t x,
                                 int8_t residual);
void mist_declare_linear_input(struct mist_declaration *at,
                               const struct mist_linear *linear, int8_t dx, int8_t dy,
                               int8_t residual);
void mist_declare_linear_weight(struct mist_declaration *at,
                                const struct mist_linear *linear, int8_t dy, int8_t x);

/* y = gelu(before), before = x W^T + bias; dx = (dy W) gelu'(before), where the layer's
 * input was gelu(before). The weight gradient is that of any linear layer. */
void mist_declare_linear_gelu_forward(struct mist_declaration *at,
                                      const struct mist_linear *linear, int8_t y,
                                      int8_t before, int8_t x);
void mist_declare_linear_gelu_input(struct mist_declaration *at,
                                    const struct mist_linear *linear, int8_t dx,
                                    int8_t dy, int8_t before);

/* ---------------------------------------------------------------------------- modules */

/* Declares a module's tensors, parameters and steps in at->layout. */
void mist_declare_module(struct mist_declaration *at, enum mist_layer_kind kind);

void mist_declare_block(struct mist_declaration *at);

/* ------------------------------------------------------------------------------ parts */

/* Cuts the layout's forward and backward steps into its programs; with splits_backward
 * the backward steps are put into their new order first. */
void mist_layout_cut_programs(struct mist_layer_layout *layout);

/*
 * The last step of the array (n_steps in all) that runs before a communication part has
 * surely ended.
 */
int32_t mist_program_communication_end(const struct mist_program *program, int32_t i_part,
                                       int32_t n_steps);

#endif
