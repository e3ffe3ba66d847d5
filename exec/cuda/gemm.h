/*
 * The matrix products of linear layers, in cuBLASLt.
 *
 * Tensors are row-major; cuBLASLt is told the same bytes as column-major matrices, that
 * is, their transposes:
 *     forward           y^T  = W^op x^T       (n_out x rows)  = op T, op N
 *     backward_input    dx^T = W^T  dy^T      (n_in x rows)   = op N, op N
 *     backward_weight   dW^T = x^T  dy        (n_in x n_out)  = op N, op T
 * fp32 is computed in full fp32 (no TF32). bf16 is multiplied as bf16 and accumulated in
 * fp32; activations come out as bf16, gradients of parameters as fp32 or bf16.
 *
 * What goes with a product (bias, GELU, column sums) is fused into it where cuBLASLt has
 * an algorithm for that, else a kernel of kernels.h does it; both round within the
 * tolerance of the format, but not to the same bits.
 *
 * Each product's descriptors and algorithm are made at its first use and kept. The
 * algorithm is the first of cuBLASLt's heuristics, unless mist_cuda_gemm_tune() has timed
 * the first few and found a better one; what it found can be kept in a file for a GPU
 * and a version of cuBLASLt. Two runs with the same algorithms give the same bits: sums
 * are not split over blocks (config.splits_sums: they may be, each part in fp32 in the
 * workspace, added in a fixed order). The choice depends on the alignment of the operands
 * up to 16 bytes only, so moving a tensor does not change it.
 *
 * Left out: batched products, TF32, fp8.
 */
#ifndef MIST_EXEC_CUDA_GEMM_H
#define MIST_EXEC_CUDA_GEMM_H

#include "core/status.h"
#include "exec/cuda/kernels.h"
#include "sim/model.h" /* enum mist_dtype */

#include <stdbool.h>
#include <stdint.h>

enum { MIST_CUDA_GEMM_WORKSPACE_BYTES = 32 << 20, MIST_CUDA_GEMM_MAX_CANDIDATES = 16 };

enum mist_cuda_gemm_kind {
    MIST_CUDA_GEMM_FORWARD,
    MIST_CUDA_GEMM_BACKWARD_INPUT,
    MIST_CUDA_GEMM_BACKWARD_WEIGHT,
    MIST_CUDA_N_GEMM_KINDS
};

/*
 * Seconds that launch(arg), which launches into stream, takes there; waits for it.
 * Negative: it could not be measured. mist_cuda_gemm_clock_events() is the one.
 */
typedef double mist_cuda_gemm_clock(void *context, mist_cuda_stream stream,
                                    void (*launch)(void *arg), void *arg);

struct mist_cuda_gemm_config {
    int64_t workspace_bytes; /* of each call's workspace */
    const char *device_name; /* for the file; borrowed during open */
    const char *path;        /* file of tuned algorithms; copied; NULL: none */
    bool splits_sums;        /* see above */
    int32_t n_processors;    /* multiprocessors to plan for, fewer than there are where
                                communication needs some; 0: all */
};

/* A linear layer's product: where it runs, and its shape. */
struct mist_cuda_linear {
    mist_cuda_stream stream;
    void *workspace; /* device memory, config.workspace_bytes, aligned to 256, of this
                        stream alone */
    enum mist_dtype dtype;          /* of activations and weights */
    enum mist_dtype gradient_dtype; /* of dW and dbias: fp32, or bf16 where dtype is */
    bool overwrites; /* gradients are written, not added to: whatever was in their
                        memory does not matter */
    int64_t rows, n_in, n_out; /* each >= 1 */
};

struct mist_cuda_gemm_counts {
    int64_t n_plans;     /* products met */
    int64_t n_hits;      /* calls that found their product's plan */
    int64_t n_fallbacks; /* calls for which a kernel of kernels.h did what goes with it */
};

/*
 * One rank's products, for one thread at a time; made with the device as the current one.
 * A file at config->path is read if it is there and of this GPU and version. *out is
 * owned by the caller (mist_cuda_gemm_close). MIST_OK; MIST_ERR_RUN (no cuBLASLt here),
 * MIST_ERR_MEMORY, MIST_ERR_INPUT or MIST_ERR_IO (the file).
 */
struct mist_cuda_gemm;
MIST_MUST_CHECK enum mist_status
mist_cuda_gemm_open(const struct mist_cuda_gemm_config *config,
                    struct mist_cuda_gemm **out, struct mist_err *err);
void mist_cuda_gemm_close(struct mist_cuda_gemm *gemm); /* NULL allowed */

/* MIST_OK or the first thing that went wrong in any call; it stays, and later calls
 * launch nothing. */
MIST_MUST_CHECK enum mist_status mist_cuda_gemm_status(const struct mist_cuda_gemm *gemm,
                                                       struct mist_err *err);
struct mist_cuda_gemm_counts mist_cuda_gemm_counts(const struct mist_cuda_gemm *gemm);

/* y[rows, n_out] = x[rows, n_in] W^T + bias. W [n_out, n_in]; bias [n_out] or NULL. */
void mist_cuda_gemm_forward(struct mist_cuda_gemm *gemm,
                            const struct mist_cuda_linear *at, void *y, const void *x,
                            const void *weight, const void *bias);

/* The same, then GELU: before[rows, n_out] = x W^T + bias; y = gelu(before). */
void mist_cuda_gemm_forward_gelu(struct mist_cuda_gemm *gemm,
                                 const struct mist_cuda_linear *at, void *y, void *before,
                                 const void *x, const void *weight, const void *bias);

/* dx[rows, n_in] = dy[rows, n_out] W */
void mist_cuda_gemm_backward_input(struct mist_cuda_gemm *gemm,
                                   const struct mist_cuda_linear *at, void *dx,
                                   const void *dy, const void *weight);

/*
 * The same, then back through the GELU whose output was this layer's input:
 * dx = (dy W) gelu'(before), before[rows, n_in] being that GELU's input.
 */
void mist_cuda_gemm_backward_input_gelu(struct mist_cuda_gemm *gemm,
                                        const struct mist_cuda_linear *at, void *dx,
                                        const void *dy, const void *weight,
                                        const void *before);

/*
 * dW[n_out, n_in] += dy^T x; dbias[n_out] += column sums of dy (NULL: none). With
 * at->overwrites: =. Each dW is computed in fp32 and rounded once; sums that are added to
 * a bf16 dbias may be rounded before, too.
 */
void mist_cuda_gemm_backward_weight(struct mist_cuda_gemm *gemm,
                                    const struct mist_cuda_linear *at, void *dweight,
                                    void *dbias, const void *dy, const void *x);

/*
 * Times the first few algorithms of a product (with the bias or bias gradient, without
 * GELU) and remembers the fastest; of a bias gradient also whether to fuse it. To be
 * called outside of iterations: it waits. scratch: device memory of
 * mist_cuda_gemm_tune_bytes(), aligned to 256, overwritten; what is in it when it begins
 * is what is multiplied (zeros run faster than numbers). Does nothing for a product that
 * has been tuned. MIST_OK or what mist_cuda_gemm_status() says.
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_gemm_tune(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                    enum mist_cuda_gemm_kind kind, bool has_bias,
                    mist_cuda_gemm_clock *clock, void *clock_context, void *scratch,
                    struct mist_err *err);
int64_t mist_cuda_gemm_tune_bytes(const struct mist_cuda_linear *at);

/* Writes what has been tuned to config.path (nothing without one). */
MIST_MUST_CHECK enum mist_status mist_cuda_gemm_save(const struct mist_cuda_gemm *gemm,
                                                     struct mist_err *err);

/* With events of CUDA, the mean of a few launches after one to warm up. context: unused.
 */
double mist_cuda_gemm_clock_events(void *context, mist_cuda_stream stream,
                                   void (*launch)(void *arg), void *arg);

#endif
