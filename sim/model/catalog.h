/*
 * The operator catalogue: what every module of a model computes, declared once.
 *
 * A module (embedding, block, head) is declared as tensors, parameters and two programs,
 * forward and backward, each a list of steps. A step names an operator, a phase, the
 * dimensions of this use, and its operand tensors. All of it is whole numbers for one
 * model, one shape and one number format; what does not fit them is MIST_ERR_RANGE. From
 * the declaration follow
 *   - memory: saved tensors live from forward to backward, scratch tensors inside one
 *     program; offsets of both are laid out here (mist_layer_layout), the executor uses
 *     the same offsets;
 *   - time: a step's (operator, phase, dimensions) is its cost key in kernels.csv;
 *   - the profile grid, FLOP counts and tensor-parallel communication;
 *   - execution: the executor walks the same steps and calls its kernel for each
 *     (operator, phase).
 * Adding an operator means one row in the operator table (catalog_op.c), and its use in a
 * program.
 *
 * Shapes are those of the kernels, row-major. Activations, weights and gradients of
 * activations have the element size of the run's number format, statistics and losses
 * are fp32, gradients of parameters as mist_dtype_gradient_bytes() says.
 *
 * Tensor parallelism (Shoeybi et al. 2019; sequence parallelism: Korthikanti et al. 2022)
 * is a variant of the declaration: column-parallel then row-parallel linear layers, a
 * vocabulary-parallel embedding, head and cross-entropy, and communication steps between
 * them. Context parallelism (Llama Team 2024, section 3.3.2) is one, too: ranks have parts of
 * each sequence, and attention gathers the keys and values of all. A program is cut into parts
 * at the steps that communicate; every part becomes a task of its own.
 */
#ifndef MIST_SIM_CATALOG_H
#define MIST_SIM_CATALOG_H

#include "core/status.h"
#include "sim/model/model.h"
#include "sim/model/param_shape.h"
#include "traces/trace_set.h" /* enum mist_phase */

#include <stdbool.h>
#include <stdint.h>

enum mist_layer_kind {
    MIST_LAYER_EMBEDDING,
    MIST_LAYER_BLOCK,
    MIST_LAYER_HEAD,
    MIST_N_LAYER_KINDS
};

enum mist_op {
    MIST_OP_EMBEDDING,
    MIST_OP_LAYER_NORM,
    MIST_OP_RMS_NORM,
    MIST_OP_RESIDUAL_LAYER_NORM, /* r = a + b; n = norm(r) */
    MIST_OP_RESIDUAL_RMS_NORM,
    MIST_OP_LINEAR,
    MIST_OP_LINEAR_BIAS,
    MIST_OP_LINEAR_GELU, /* forward: then gelu; backward_input: then back through the gelu
                            whose output was its input */
    MIST_OP_LINEAR_RESIDUAL, /* forward and backward_input: plus a tensor */
    MIST_OP_ATTENTION,
    MIST_OP_ROPE,
    MIST_OP_GELU, /* makes linear_gelu's output again; a part of its price, too */
    MIST_OP_SWIGLU,
    MIST_OP_RESIDUAL,
    MIST_OP_CROSS_ENTROPY,        /* of no program, as gelu */
    MIST_OP_LINEAR_CROSS_ENTROPY, /* logits, their losses and the gradients of both */
    MIST_OP_ADAMW,
    MIST_OP_ZERO,
    MIST_OP_CROSS_ENTROPY_STATS, /* of a slice of the vocabulary: per row max, sum, target
                                  */
    MIST_OP_CROSS_ENTROPY_PARALLEL, /* the loss from the statistics of all slices */
    MIST_OP_GRADIENT_NORM,          /* sum of squares; also finds what is not finite */
    MIST_OP_TP_ALL_REDUCE,          /* communication inside a module; no kernel */
    MIST_OP_TP_REDUCE_SCATTER,
    MIST_OP_TP_ALL_GATHER,
    MIST_OP_ADAMW_HOST, /* of no program: on the host's processors, beside a device */
    MIST_OP_HEAD_NORM,  /* an RMS norm of each head of queries and of keys, in place */
    /* Of a context-parallel rank's tokens, two chunks of a sequence (chunks.h): */
    MIST_OP_ATTENTION_PART, /* attention of its queries to the keys of all ranks */
    MIST_OP_KV_PACK,  /* keys and values out of qkv; backward: their gradients into it */
    MIST_OP_KV_ORDER, /* what ranks gathered, in the order of the sequence; backward:
                               from there to the order in which ranks sum it up */
    MIST_OP_CP_ALL_GATHER, /* communication, as above */
    MIST_OP_CP_REDUCE_SCATTER,
    MIST_N_OPS
};

const char *mist_op_name(enum mist_op op); /* "linear_bias": the word in kernels.csv */

/* Blockings of kernels that decide the size of their workspace. */
enum {
    MIST_CATALOG_NORM_BLOCK_ROWS = 32,  /* whose gradients a CPU sums up apart */
    MIST_CATALOG_NORM_GPU_ROWS = 8,     /* the same of a GPU, at least */
    MIST_CATALOG_NORM_GPU_BLOCKS = 512, /* and so many blocks at most: some for each
                                           multiprocessor of a large GPU */
    MIST_CATALOG_QUERY_BLOCK = 64,      /* of attention on a CPU, and of keys */
    MIST_CATALOG_KEY_TILE = 256,
    /* linear_cross_entropy has the logits of so many rows at once, on a GPU and on a CPU;
     * its workspace is as large, and tells the kernels. The weight's gradient is read and
     * written each time: 8 bytes against 2 FLOP per row and element. So 4096 rows are
     * 1024 FLOP per byte, where GPUs do 150 to 300 in the time of one, CPUs 10. */
    MIST_CATALOG_LOSS_ROWS_GPU = 4096,
    MIST_CATALOG_LOSS_ROWS_CPU = 1024,
    /* What attention's backward gets on a GPU at most for dS and for the dK and dV of
     * query heads; for one group of query heads 4 times that. */
    MIST_CATALOG_ATTENTION_BYTES = 1 << 30,
};

/* Blocks of rows that the backward of a norm makes on a GPU. */
static inline int64_t mist_catalog_norm_blocks(int64_t rows)
{
    int64_t n = (rows + MIST_CATALOG_NORM_GPU_ROWS - 1) / MIST_CATALOG_NORM_GPU_ROWS;

    return n < MIST_CATALOG_NORM_GPU_BLOCKS ? n : (int64_t)MIST_CATALOG_NORM_GPU_BLOCKS;
}

enum {
    MIST_MAX_DIMS = 6,
    MIST_MAX_OPERANDS = 7,
    MIST_MAX_STEPS = 48,
    MIST_MAX_TENSORS = 48,
    MIST_MAX_PARAMS = 16,
    MIST_MAX_PARTS = 24,
};

/* What the index of mist_step.operands means, by operator and phase;
 * -1 where there is none. */
enum {
    MIST_ARG_OUT = 0, /* every forward: what is written; in place for rope */
    MIST_ARG_EMBEDDING_TOKENS = 1,
    MIST_ARG_NORM_STATS = 1, /* layer_norm, rms_norm forward */
    MIST_ARG_NORM_X = 2,
    MIST_ARG_RNORM_RESIDUAL = 1, /* residual_*_norm forward */
    MIST_ARG_RNORM_STATS = 2,
    MIST_ARG_RNORM_A = 3,
    MIST_ARG_RNORM_B = 4,
    MIST_ARG_LINEAR_X = 1,           /* forward */
    MIST_ARG_LINEAR_RESIDUAL = 2,    /* backward_input, too */
    MIST_ARG_LINEAR_GELU_BEFORE = 1, /* forward: what gelu is taken of, written, too */
    MIST_ARG_LINEAR_GELU_X = 2,
    MIST_ARG_ATTENTION_LSE = 1, /* forward */
    MIST_ARG_ATTENTION_QKV = 2,
    MIST_ARG_PART_KV = 3, /* attention_part forward: of all tokens, [b, s, 2 kv_heads,
                             head_dim]; the rest as attention */
    MIST_ARG_KV_FROM = 1, /* kv_pack, kv_order, both ways: operand 0 is written of it */
    MIST_ARG_ROPE_TABLE = 1,  /* forward and backward, in place on operand 0 */
    MIST_ARG_HEAD_NORM_X = 1, /* likewise; forward: written, what q and k were before */
    MIST_ARG_UNARY_X = 1,     /* gelu, swiglu forward */
    MIST_ARG_RESIDUAL_A = 1,
    MIST_ARG_RESIDUAL_B = 2,
    MIST_ARG_LOSS_LOSSES = 1, /* linear_cross_entropy: operand 0 is the gradient of x */
    MIST_ARG_LOSS_TARGETS = 2,
    MIST_ARG_LOSS_X = 3,
    MIST_ARG_STATS_LOGITS = 1, /* cross_entropy_stats: operand 0 is the statistics */
    MIST_ARG_STATS_TARGETS = 2,
    MIST_ARG_LOSS_STATS = 3, /* cross_entropy_parallel: of all slices; losses and targets
                                as above; operand 0 is the logits, in place */
    MIST_ARG_TP_FROM =
        1,           /* tp_ and cp_reduce_scatter: operand 0 is this rank's shard, 1 the
                                whole (overwritten); _all_gather: 0 the whole, 1 the
                                shard; tp_all_reduce: in place on 0 */
    MIST_ARG_DX = 0, /* every backward_input: the gradient that is written */
    MIST_ARG_DY = 1, /* every other backward_input: the gradient that is read */
    MIST_ARG_DNORM_RESIDUAL = 2, /* layer_norm, rms_norm backward_input */
    MIST_ARG_DNORM_X = 3,
    MIST_ARG_DNORM_STATS = 4,
    MIST_ARG_DATTENTION_QKV = 2,
    MIST_ARG_DATTENTION_OUT = 3,
    MIST_ARG_DATTENTION_LSE = 4,
    MIST_ARG_DPART_DKV =
        1, /* attention_part backward_input: operand 0 is written where queries
                               are, this is written whole; the rest is read */
    MIST_ARG_DPART_DY = 2,
    MIST_ARG_DPART_QKV = 3,
    MIST_ARG_DPART_KV = 4,
    MIST_ARG_DPART_OUT = 5,
    MIST_ARG_DPART_LSE = 6,
    MIST_ARG_DUNARY_X =
        2,              /* swiglu, linear_gelu backward_input: the activation's input */
    MIST_ARG_DW_DY = 0, /* backward_weight of linear and embedding */
    MIST_ARG_DW_X = 1,  /* linear: its input; embedding: the tokens */
};

/*
 * Names of the dimensions of an operator, in the order of the cost key; NULL-terminated.
 */
const char *const *mist_op_dims(enum mist_op op);

/* FLOP, and bytes that are read and written at least; INT64_MAX: it is more. */
struct mist_work {
    int64_t flop, bytes;
};

/* Work of an operator by its dimensions alone, with weights and activations in a number
 * format; all dims >= 0. Steps that have operands beyond the usual ones move more. */
struct mist_work mist_op_work(enum mist_op op, enum mist_phase phase,
                              const int64_t dims[MIST_MAX_DIMS], enum mist_dtype dtype);

/* What passes over an array of gradients (adamw, adamw_host, zero, gradient_norm, and
 * residual, which adds two): its phase, and its work on fp32 elements. */
enum mist_phase mist_op_gradient_phase(enum mist_op op);
struct mist_work mist_op_gradient_work(enum mist_op op, int64_t elements);

/* One of the operators that do the same as another, one after the other. */
struct mist_op_part {
    enum mist_op op;
    enum mist_phase phase;
    int64_t dims[MIST_MAX_DIMS]; /* 0 beyond those of op */
    double time_frac;            /* of its time; 0: all */
};
enum { MIST_MAX_OP_PARTS = 4 };

/*
 * What an operator is made of: linear_gelu is linear_bias and gelu, linear_residual is
 * linear_bias and residual, linear_bias is linear (the bias costs nothing beside it),
 * linear_cross_entropy is linear's three products and cross_entropy, head_norm is rms_norm
 * of as many rows as there are heads, attention_part an equal part of attention, kv_pack and
 * kv_order residual with two thirds of its passes. A cluster whose
 * kernels.csv has the parts alone is priced by them. Returns how many there are, 0 if it
 * is one piece. dims: all >= 1.
 */
int32_t mist_op_parts(enum mist_op op, enum mist_phase phase,
                      const int64_t dims[MIST_MAX_DIMS],
                      struct mist_op_part parts[MIST_MAX_OP_PARTS]);

/* Whether a step adds to the gradients of its parameters. */
bool mist_op_adds_gradients(enum mist_op op, enum mist_phase phase);

/* Whether an operator is ever run in a phase; rows of others are of no use. */
bool mist_op_has_phase(enum mist_op op, enum mist_phase phase);

/* Whether it is a matrix product, with what is fused with it. */
bool mist_op_is_product(enum mist_op op);

/* Attention of whole sequences, or of a context-parallel rank's part of the queries. */
bool mist_op_is_attention(enum mist_op op);

/* Whether it is MIST_OP_TP_* or MIST_OP_CP_*: communication, which no kernel does. */
bool mist_op_is_communication(enum mist_op op);

/* Whether an operator writes losses, MIST_ARG_LOSS_LOSSES, one for each of
 * dims[0] rows. */
bool mist_op_has_losses(enum mist_op op);

enum mist_tensor_class {
    MIST_TENSOR_INPUT,       /* activation from the module before; kept until backward */
    MIST_TENSOR_OUTPUT,      /* activation for the next module */
    MIST_TENSOR_SAVED,       /* written in forward, read in backward */
    MIST_TENSOR_SCRATCH,     /* lives inside one program */
    MIST_TENSOR_GRAD_OUTPUT, /* gradient of the output, arrives from the next module */
    MIST_TENSOR_GRAD_INPUT,  /* gradient of the input, leaves for the module before */
    MIST_TENSOR_TOKENS,      /* int32 [b * s] of the micro-batch: input ids */
    MIST_TENSOR_TARGETS,     /* int32 [b * s]: ids to predict */
    MIST_TENSOR_CONSTANT, /* the same for all modules and micro-batches: the RoPE table */
};

struct mist_tensor {
    const char *name;
    enum mist_tensor_class tensor_class;
    int64_t bytes;
    bool is_remade;          /* SAVED: MIST_PROGRAM_REMAKE can make it again */
    int64_t offset_forward;  /* SAVED: in the saved buffer; SCRATCH: in the program's
                                scratch */
    int64_t offset_backward; /* the same in the backward program */
};

enum mist_init {
    MIST_INIT_NORMAL,
    MIST_INIT_NORMAL_RESIDUAL,
    MIST_INIT_ONES,
    MIST_INIT_ZEROS
};

struct mist_param {
    const char *name;    /* "qkv.weight" */
    enum mist_init init; /* NORMAL: std 0.02; RESIDUAL: std 0.02 / sqrt(2 n_layers) */
    bool decays;         /* weight decay applies */
    bool is_norm;        /* scale or shift of a norm: a vector too small to matter */
    /* A row for each word: the embedding's table, the head's weight. */
    bool is_vocabulary;
    bool is_tied; /* the head's weight when it is the embedding's (same shape and cut) */
    struct mist_param_shape shape; /* of the whole parameter, and how it is cut */
    int64_t n_elements;            /* per tensor-parallel rank */
    int64_t offset;                /* elements, in the flat array of the module's */
    /* Consecutive local elements whose gradient on a rank lacks what the other
     * tensor-parallel ranks saw: to be summed over them once per reduction. 0 elements:
     * none. */
    int64_t partial_first, partial_elements;
};

/* How a module is spread over tensor-parallel ranks. */
enum mist_layer_variant {
    MIST_VARIANT_PLAIN,    /* tp 1: no communication */
    MIST_VARIANT_TENSOR,   /* activations between modules are whole on every rank */
    MIST_VARIANT_SEQUENCE, /* they are cut over the tensor-parallel ranks, by rows */
    MIST_N_VARIANTS
};

/* What is fixed for the modules of a stage. */
struct mist_layer_shape {
    int32_t micro_batch, seq, tp;
    int32_t cp;      /* ranks that share out the seq tokens, 2 cp chunks; 0: 1 */
    int32_t threads; /* host threads that compute; 0: the device computes itself */
    bool is_sequence_parallel; /* tp > 1; tp divides micro_batch * seq / cp */
    bool splits_backward;      /* weight gradients are a program of their own */
    enum mist_dtype dtype;
    /* Of other frameworks (framework.h): scores in memory, which a backward that
     * recomputes attention makes again; masks of dropout; recomputation of all steps. */
    enum mist_attention attention;
    bool recomputes_attention, has_dropout, repeats_all;
    bool keeps_products; /* what recomputes_attention means: every second product and
                            attention are kept, the rest is made again */
    bool is_alone;       /* by the framework's alone_ops, where it has such */
    bool is_eager;       /* norms and gates of Llama's family keep what their single
                            operators give each other */
    int32_t logit_bytes; /* that the loss holds per logit; 0: ours */
};

static inline int32_t mist_layer_shape_cp(const struct mist_layer_shape *shape)
{
    return shape->cp > 1 ? shape->cp : 1;
}

/* Tokens per sample that a rank has. */
static inline int32_t mist_layer_shape_tokens(const struct mist_layer_shape *shape)
{
    return shape->seq / mist_layer_shape_cp(shape);
}

/* The programs of a module that a task can run. */
enum mist_program_kind {
    MIST_PROGRAM_FORWARD,
    MIST_PROGRAM_RECOMPUTE,      /* leading forward steps that write all saved tensors */
    MIST_PROGRAM_EVALUATE,       /* forward up to the loss: no gradient is computed, also
                                    not by the step of the loss */
    MIST_PROGRAM_REMAKE,         /* steps of its own, behind the forward's, that write
                                    those saved tensors again that follow cheaply from
                                    others; only weight gradients read them */
    MIST_PROGRAM_BACKWARD,       /* whole; empty if the shape splits_backward */
    MIST_PROGRAM_BACKWARD_INPUT, /* its two halves, if it does; either may be empty. The
                                    second reads the first's scratch, and d_out */
    MIST_PROGRAM_BACKWARD_WEIGHT,
    MIST_N_PROGRAM_KINDS
};

/* Consecutive steps of a program that become one task. */
struct mist_part {
    int16_t first_step, n_steps; /* in mist_layer_layout_steps() */
    bool is_communication;       /* one step, of an MIST_OP_TP_* or MIST_OP_CP_* */
    int8_t waits_for; /* latest earlier part of the other sort (communication or not) in
                         this program that this part must not overtake; -1 none. Parts of
                         the same sort run in their order; a communication's operands
                         keep their place in the scratch until a part waits for it */
};

struct mist_program {
    int32_t n_steps, n_parts;
    struct mist_part parts[MIST_MAX_PARTS];
};

struct mist_step {
    const char *name; /* "qkv", for breakdowns */
    enum mist_op op;
    enum mist_phase phase;
    bool adds_bias_once;     /* forward of a row-parallel layer or of the embedding, whose
                                outputs are summed over the tensor-parallel ranks: params[1]
                                is added by rank 0 alone */
    bool adds_residual_once; /* linear_residual: the same of the residual, where all ranks
                                have it whole */
    int8_t operands[MIST_MAX_OPERANDS]; /* tensor ids by MIST_ARG_*; -1 none */
    int8_t params[2];                   /* parameter ids: weight, bias; -1 none */
    int32_t n_dims;
    int64_t dims[MIST_MAX_DIMS]; /* as mist_op_dims(op) */
    int64_t flop;
    int64_t bytes;            /* read and written, at least */
    int64_t workspace_bytes;  /* kernel workspace beyond its operands; 0 none */
    int64_t workspace_offset; /* in the scratch area of the program */
};

struct mist_layer_layout {
    enum mist_layer_kind kind;
    struct mist_layer_shape shape;
    int32_t n_tensors, n_params, n_forward, n_backward;
    int32_t n_remake; /* steps of MIST_PROGRAM_REMAKE, in forward from n_forward on */
    struct mist_program programs[MIST_N_PROGRAM_KINDS];
    struct mist_tensor tensors[MIST_MAX_TENSORS];
    struct mist_param params[MIST_MAX_PARAMS];
    int64_t n_parameters; /* elements of the flat parameter array, without padding */
    int64_t input_bytes, output_bytes; /* boundary activations (0 for the ends) */
    int64_t constant_bytes;            /* of the constant tensor; 0 none */
    int64_t saved_bytes;               /* saved buffer, aligned to 64 */
    int64_t scratch_forward_bytes, scratch_backward_bytes;
    struct mist_step forward[MIST_MAX_STEPS], backward[MIST_MAX_STEPS];
};

/* Whether a program's steps are those of layout->backward (else ->forward). */
static inline bool mist_program_is_backward(enum mist_program_kind program)
{
    return program >= MIST_PROGRAM_BACKWARD;
}

static inline const struct mist_step *
mist_layer_layout_steps(const struct mist_layer_layout *layout,
                        enum mist_program_kind program)
{
    return mist_program_is_backward(program) ? layout->backward : layout->forward;
}

/* How many there are in one of the two arrays. */
static inline int32_t mist_layer_layout_n_steps(const struct mist_layer_layout *layout,
                                                bool is_backward)
{
    return is_backward ? layout->n_backward : layout->n_forward + layout->n_remake;
}

/*
 * Declares a module of a model (checked) at a shape, and lays it out: scratch is packed
 * first-fit over step lifetimes, every offset 64-aligned. MIST_ERR_RANGE: tp does not
 * divide what it cuts, or a size is above 2^53 bytes.
 */
MIST_MUST_CHECK enum mist_status mist_layer_layout_make(const struct mist_model *model,
                                                        enum mist_layer_kind kind,
                                                        struct mist_layer_shape shape,
                                                        struct mist_layer_layout *out,
                                                        struct mist_err *err);

/* FLOP of forward and backward. */
double mist_layer_layout_flop(const struct mist_layer_layout *layout);

/* FLOP of a step's products, all pairs of tokens for attention; of other steps 0. */
double mist_step_product_flop(const struct mist_step *step);

/* What a whole model consists of, and what a token takes. */
struct mist_model_count {
    int64_t n_parameters; /* a tied table counts once */
    double flop_per_token;
};

/*
 * FLOP are those that a model needs per token of sequences of this length, as PaLM,
 * Megatron-LM and torchtitan count them: 6 for every weight that a token is multiplied with
 * (tables that are looked up apart), 12 for every pair of tokens and element of a layer's
 * heads (causal masks are not taken off); nothing for recomputation and the optimizer.
 * MIST_OK or MIST_ERR_RANGE.
 */
MIST_MUST_CHECK enum mist_status mist_model_count(const struct mist_model *model,
                                                  int32_t seq,
                                                  struct mist_model_count *out,
                                                  struct mist_err *err);

/* Canonical shape text of a step, "rows=512;n_in=256;n_out=768". Returns out. */
char *mist_op_shape_text(enum mist_op op, const int64_t dims[MIST_MAX_DIMS], char *out,
                         size_t size);

#endif
