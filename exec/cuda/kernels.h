/*
 * The CUDA backend's own kernels, as functions that launch them into a stream.
 *
 * Each is the twin of a CPU kernel: shapes, aliasing, "+=" and formulas are those of
 * exec/operators/cpu_kernels.h (fp32) and exec/operators/cpu_bf16.h (bf16), which say more. Here dtype
 * chooses between the two: tensors of activations and weights are void *, fp32 or bf16
 * (the upper half of an fp32, rounded to nearest, ties to even, once per stored result);
 * gradients of parameters are as gradient_dtype says; statistics, losses, tables and
 * optimizer state are fp32 always; computation is in fp32.
 *
 * All pointers are device memory, aligned to 16 bytes where they begin a tensor; rows are
 * dense. Nothing is allocated and nothing waits. Sums have one order: the same launch
 * gives the same bits every time. A launch that fails is seen by the caller through
 * cudaGetLastError().
 *
 * The header is C and needs no CUDA header. Sources are .cu files that also compile as
 * plain C++ for the emulator of tests/emulation (see launch.cuh).
 */
#ifndef MIST_EXEC_CUDA_KERNELS_H
#define MIST_EXEC_CUDA_KERNELS_H

#include "exec/operators/operators.h"

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct CUstream_st *mist_cuda_stream; /* a cudaStream_t; NULL: the default one */

/* Every kernel that a launch names (launch.cuh), for those who load them (loading.c). */
struct mist_cuda_kernel {
    const void *function; /* as cudaFuncGetAttributes() takes it */
    const struct mist_cuda_kernel *next;
};
#ifndef __cplusplus
extern const struct mist_cuda_kernel *mist_cuda_kernels; /* the first; NULL: none */
#endif

struct mist_cpu_attention; /* exec/operators/cpu_kernels.h */
struct mist_cpu_attention_part;
struct mist_chunks; /* sim/model/chunks.h */

/* ------------------------------------------------- embedding: kernels_embedding.cu */

void mist_cuda_embedding_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                 void *out, const int32_t *tokens, const void *wte,
                                 const void *wpe, int64_t rows,
                                 const struct mist_chunks *chunks, int64_t h,
                                 int64_t first_token, int64_t n_local);
/* += the sum of all rows of a token, or a position, rounded as gradients are. */
void mist_cuda_embedding_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  enum mist_dtype gradient_dtype, void *dwte, void *dwpe,
                                  const int32_t *tokens, const void *d_out, int64_t rows,
                                  const struct mist_chunks *chunks, int64_t h,
                                  int64_t first_token, int64_t n_local);

/* ----------------------------------- norm: kernels_norm.cu, kernels_norm_backward.cu */

void mist_cuda_norm_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                            enum mist_cpu_norm_kind kind, void *out, void *residual,
                            float *stats, const void *a, const void *b,
                            const void *weight, const void *bias, float eps, int64_t rows,
                            int64_t h);
/* workspace: [2, mist_catalog_norm_blocks(rows), h] floats, what the catalogue plans:
 * sums over blocks of rows, then over the blocks in their order. overwrites: dweight and
 * dbias are not added to. */
void mist_cuda_norm_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                             enum mist_dtype gradient_dtype, enum mist_cpu_norm_kind kind,
                             void *dx, void *dweight, void *dbias, const void *d_out,
                             const void *d_residual, const void *x, const float *stats,
                             const void *weight, int64_t rows, int64_t h, void *workspace,
                             bool overwrites);

/* ------------------------------------------- norms of heads: kernels_head_norm.cu */

/* As mist_cpu_head_norm_forward() and _backward(); head_dim at most
 * MIST_CUDA_MAX_NORMED_HEAD. workspace: [2, mist_catalog_norm_blocks(rows), head_dim]
 * floats. */
enum { MIST_CUDA_MAX_NORMED_HEAD = 256 };
void mist_cuda_head_norm_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                 void *qkv, void *kept, const void *q_weight,
                                 const void *k_weight, float eps, int64_t rows,
                                 int64_t heads_q, int64_t heads_k, int64_t head_dim);
void mist_cuda_head_norm_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  enum mist_dtype gradient_dtype, void *d_qkv,
                                  void *d_q_weight, void *d_k_weight, const void *kept,
                                  const void *q_weight, const void *k_weight, float eps,
                                  int64_t rows, int64_t heads_q, int64_t heads_k,
                                  int64_t head_dim, void *workspace, bool overwrites);

/* ---------------------------------------------- elementwise: kernels_elementwise.cu */

void mist_cuda_activation_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  enum mist_activation kind, void *out, const void *x,
                                  int64_t n);
void mist_cuda_activation_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                   enum mist_activation kind, void *dx, const void *d_out,
                                   const void *x, int64_t n);
/* is_geglu: with gelu by tanh instead of silu */
void mist_cuda_swiglu_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                              bool is_geglu, void *out, const void *gate_up, int64_t rows,
                              int64_t f);
void mist_cuda_swiglu_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                               bool is_geglu, void *d_gate_up, const void *d_out,
                               const void *gate_up, int64_t rows, int64_t f);
/* x *= factor */
void mist_cuda_scale(mist_cuda_stream stream, enum mist_dtype dtype, void *x,
                     float factor, int64_t n);
/* out = a + b */
void mist_cuda_add(mist_cuda_stream stream, enum mist_dtype dtype, void *out,
                   const void *a, const void *b, int64_t n);
/* x[rows, n_columns] += bias[n_columns], row by row */
void mist_cuda_add_bias(mist_cuda_stream stream, enum mist_dtype dtype, void *x,
                        const void *bias, int64_t rows, int64_t n_columns);
/* Packed heads as in struct mist_cpu_attention; table fp32; is_backward turns back. */
void mist_cuda_rope(mist_cuda_stream stream, enum mist_dtype dtype, void *qkv,
                    const float *table, const struct mist_cpu_attention *shape,
                    int is_backward);
/* out[n_columns] += (overwrites: =) column sums of x[rows, n_columns]: the gradient of a
 * bias, rounded once where out is bf16. */
void mist_cuda_column_sum(mist_cuda_stream stream, enum mist_dtype dtype,
                          enum mist_dtype out_dtype, void *out, const void *x,
                          int64_t rows, int64_t n_columns, bool overwrites);

/* ----------------------------------------------------------- loss: kernels_loss.cu */

void mist_cuda_cross_entropy(mist_cuda_stream stream, enum mist_dtype dtype, void *logits,
                             float *losses, const int32_t *targets, int64_t rows,
                             int64_t vocab, int64_t n_valid_vocab, float scale);
void mist_cuda_cross_entropy_stats(mist_cuda_stream stream, enum mist_dtype dtype,
                                   float *stats, const void *logits,
                                   const int32_t *targets, int64_t rows, int64_t n_local,
                                   int64_t n_valid_local, int64_t first_token);
void mist_cuda_cross_entropy_parallel(mist_cuda_stream stream, enum mist_dtype dtype,
                                      void *logits, float *losses, const int32_t *targets,
                                      const float *all_stats, int64_t rows,
                                      int64_t n_local, int64_t n_valid_local,
                                      int64_t first_token, int64_t tp, float scale);

/* -------------------------------------------------- optimizer: kernels_optimizer.cu */

/* What AdamW's kernel works with: device memory, which changes from step to step. */
struct mist_cuda_adamw_numbers {
    float lr, beta1, beta2, eps, weight_decay, scale;
    float fresh1, fresh2, inverse1, inverse2;
};
void mist_cuda_adamw_prepare(mist_cuda_stream stream,
                             struct mist_cuda_adamw_numbers *numbers,
                             const struct mist_adamw_args *args);

/* AdamW on all spans in one launch; n_spans <= MIST_MAX_PARAMS. */
void mist_cuda_adamw(mist_cuda_stream stream, enum mist_dtype dtype,
                     const struct mist_adamw_span *spans, int32_t n_spans,
                     const struct mist_cuda_adamw_numbers *numbers);

/* The draws of mist_cpu_draw(), bit by bit: kernels_draw.cu */
void mist_cuda_draw(mist_cuda_stream stream, enum mist_dtype dtype, void *x,
                    const struct mist_draw *draw);

/* What goes into a tally, as the functions of struct mist_operators; the tally is device
 * memory. The square sums are those of the CPU, bit by bit. */
void mist_cuda_sum_squares(mist_cuda_stream stream, enum mist_dtype dtype, const void *x,
                           int64_t n, int64_t index_offset, struct mist_tally *tally);
void mist_cuda_find_nonfinite(mist_cuda_stream stream, enum mist_dtype dtype,
                              const void *x, int64_t n, struct mist_tally *tally);
/* In double, in a fixed order. */
void mist_cuda_sum_losses(mist_cuda_stream stream, const float *losses, int64_t n,
                          struct mist_tally *tally);

/* ------------------------------------------------- attention: kernels_attention.cu */

/*
 * Causal attention over packed projections (struct mist_cpu_attention), tiled, with
 * online softmax; in the backward every sum has one order. The path in fp32, and what
 * cuDNN's is compared with. head_dim <= 256.
 * workspace of backward: [b, heads, s] floats.
 */
void mist_cuda_attention_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                 void *out, float *lse, const void *qkv,
                                 const struct mist_cpu_attention *shape);
void mist_cuda_attention_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                  void *dqkv, const void *d_out, const void *qkv,
                                  const void *out, const float *lse,
                                  const struct mist_cpu_attention *shape,
                                  void *workspace);

/* Of a context-parallel rank (struct mist_cpu_attention_part); likewise. workspace of backward:
 * [b, heads, s / n] floats. */
void mist_cuda_attention_part_forward(mist_cuda_stream stream, enum mist_dtype dtype,
                                      void *out, float *lse, const void *qkv,
                                      const void *kv,
                                      const struct mist_cpu_attention_part *part);
void mist_cuda_attention_part_backward(mist_cuda_stream stream, enum mist_dtype dtype,
                                       void *dqkv, void *dkv, const void *d_out,
                                       const void *qkv, const void *kv, const void *out,
                                       const float *lse,
                                       const struct mist_cpu_attention_part *part,
                                       void *workspace);

/* ---------------------------------- keys and values of ranks: kernels_context.cu */

/* As mist_cpu_kv_*(). */
void mist_cuda_kv_pack(mist_cuda_stream stream, enum mist_dtype dtype, void *kv,
                       const void *qkv, const struct mist_cpu_attention_part *part);
void mist_cuda_kv_unpack(mist_cuda_stream stream, enum mist_dtype dtype, void *dqkv,
                         const void *dkv, const struct mist_cpu_attention_part *part);
void mist_cuda_kv_order(mist_cuda_stream stream, enum mist_dtype dtype, void *kv,
                        const void *ranks, const struct mist_cpu_attention_part *part);
void mist_cuda_kv_disorder(mist_cuda_stream stream, enum mist_dtype dtype, void *ranks,
                           const void *kv, const struct mist_cpu_attention_part *part);

#ifdef __cplusplus
}
#endif

#endif
