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
 * What goes with a product (bias, GELU, column sums) is fused into it as an epilogue.
 * Where cuBLASLt refuses that, when it is asked for an algorithm or when the product is
 * launched, or where it was found slower, a simpler product and a kernel of kernels.h do
 * it, from then on; both round within the tolerance of the format, but not to the same
 * bits. A launch counts as refused if cuBLASLt answers NOT_SUPPORTED, INVALID_VALUE or
 * ARCH_MISMATCH: it looks at its arguments before it launches anything, so nothing has
 * been written. All other codes (INTERNAL_ERROR, EXECUTION_FAILED) are errors, since part
 * of the work may be in the stream.
 *
 * Each product's descriptors and algorithm are made at its first use and kept. The
 * algorithm is the first of cuBLASLt's heuristics, unless mist_cuda_gemm_tune() has timed
 * the first few and found a better one. Two runs with the same algorithms give the same
 * bits: sums are not split over blocks. The choice depends on the least alignment of the
 * operands up to 16 bytes only, so moving a tensor does not change it.
 *
 * Left out: batched products, TF32, fp8.
 */
#ifndef MIST_EXEC_CUDA_GEMM_H
#define MIST_EXEC_CUDA_GEMM_H

#include "core/status.h"
#include "exec/cuda/kernels.h"
#include "sim/model/model.h" /* enum mist_dtype */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_cuda_gemm_product {
    MIST_CUDA_FORWARD,
    MIST_CUDA_FORWARD_BIAS,
    MIST_CUDA_FORWARD_GELU,
    MIST_CUDA_FORWARD_BIAS_GELU,
    MIST_CUDA_BACKWARD_INPUT,
    MIST_CUDA_BACKWARD_INPUT_GELU,
    MIST_CUDA_BACKWARD_WEIGHT,
    MIST_CUDA_BACKWARD_WEIGHT_BIAS,
    MIST_CUDA_N_GEMM_PRODUCTS
};

/* A linear layer's product: where it runs, and its shape. */
struct mist_cuda_linear {
    mist_cuda_stream stream;
    void *workspace;                /* device memory, of open(), aligned to 256, of this
                        stream alone */
    enum mist_dtype dtype;          /* of activations and weights */
    enum mist_dtype gradient_dtype; /* of dW and dbias: fp32, or bf16 where dtype is */
    bool overwrites; /* gradients are written, not added to: whatever was in their
                        memory does not matter */
    int64_t rows, n_in, n_out;       /* each >= 1 */
    enum mist_activation activation; /* of before, below: a kernel does all but the tanh
                                        form of GELU, which an epilogue has */
    const void *residual; /* what forward() and backward_input() add to their result,
                                  as large; NULL: nothing */
};

/*
 * One rank's products, for one thread at a time; made with the device as the current one,
 * each with a workspace of workspace_bytes. *out is owned by the caller (mist_cuda_gemm_close). MIST_OK, MIST_ERR_RUN (no cuBLASLt
 * here) or MIST_ERR_MEMORY.
 */
struct mist_cuda_gemm;
MIST_MUST_CHECK enum mist_status mist_cuda_gemm_open(int64_t workspace_bytes,
                                                     struct mist_cuda_gemm **out,
                                                     struct mist_err *err);
void mist_cuda_gemm_close(struct mist_cuda_gemm *gemm); /* NULL allowed */

/* MIST_OK or the first thing that went wrong in any call; it stays, and later calls
 * launch nothing. */
MIST_MUST_CHECK enum mist_status mist_cuda_gemm_status(const struct mist_cuda_gemm *gemm,
                                                       struct mist_err *err);

/* Announces a product on operands aligned to 16 bytes, so that its first call finds all
 * it needs, and tuning knows of it. */
void mist_cuda_gemm_expect(struct mist_cuda_gemm *gemm, const struct mist_cuda_linear *at,
                           enum mist_cuda_gemm_product product);

/*
 * y[rows, n_out] = x[rows, n_in] W^T + bias + at->residual. W [n_out, n_in]; bias [n_out]
 * or NULL. With before (else NULL) then GELU, and no residual: before[rows, n_out] = x W^T
 * + bias; y = gelu(before).
 */
void mist_cuda_gemm_forward(struct mist_cuda_gemm *gemm,
                            const struct mist_cuda_linear *at, void *y, void *before,
                            const void *x, const void *weight, const void *bias);

/*
 * dx[rows, n_in] = dy[rows, n_out] W + at->residual. With before (else NULL) back through
 * the GELU whose output was this layer's input, and no residual: dx = (dy W)
 * gelu'(before), before[rows, n_in] being that GELU's input.
 */
void mist_cuda_gemm_backward_input(struct mist_cuda_gemm *gemm,
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

/* Of the products that were asked for or announced; those with an epilogue are fused,
 * refused (by cuBLASLt) or slower (fused than not). */
struct mist_cuda_gemm_counts {
    int64_t n_products, n_plain, n_fused, n_refused, n_slower;
    int64_t n_timed;     /* of them: chosen by time, now or by an earlier process */
    int64_t n_fallbacks; /* calls in which a kernel did an epilogue that was refused */
};
struct mist_cuda_gemm_counts mist_cuda_gemm_counts(const struct mist_cuda_gemm *gemm);

/* A line for the user, cut off at size: "cuBLASLt 13.1.0: 14 products, 5 plain, 7 fused,
 * 2 not fused (BGRADB refused, GELU_AUX_BIAS slower); 14 chosen by time". */
void mist_cuda_gemm_describe(const struct mist_cuda_gemm *gemm, char *text, size_t size);

/* -------------------------------------------------------------------- choices by time */

/* Both in seconds. */
struct mist_cuda_gemm_clock {
    void *context;
    double (*now)(void *context);
    /* That launch(arg), which launches into stream, takes there; waits for it. Negative:
     * it could not be measured. */
    double (*time)(void *context, mist_cuda_stream stream, void (*launch)(void *arg),
                   void *arg);
};
extern const struct mist_cuda_gemm_clock mist_cuda_gemm_clock_events; /* of CUDA */

struct mist_cuda_gemm_tuning {
    const char *path;        /* the file of choices; NULL: nothing is timed */
    const char *device_name; /* choices are a GPU's and a version's of cuBLASLt */
    void *memory;            /* of the device, aligned to 256; zeroed in the end */
    int64_t memory_bytes;
    double budget_s; /* for all products, but for the last one's algorithm under way */
    const struct mist_cuda_gemm_clock *clock;
};

/*
 * Chooses algorithms for all products that were announced: those that the file remembers,
 * for the others the fastest of the heuristics' first on operands in tuning->memory, the
 * product with the most FLOP first, each with a share of the time by its FLOP. What has
 * an epilogue is timed fused and not, with its kernel, and the faster way kept. The
 * choices go into the file, of those for which there was no time or memory as well, so
 * that the next process has the same bits; other processes wait meanwhile, and then read
 * them.
 *
 * A file that can't be used is no error: describe() says what became of it, and without
 * one to write nothing is timed, as the next process would choose otherwise. It waits for
 * the stream: to be called outside of iterations. MIST_OK, MIST_ERR_MEMORY, MIST_ERR_RUN
 * (the device) or what mist_cuda_gemm_status() says. gemm_tune.c
 */
MIST_MUST_CHECK enum mist_status
mist_cuda_gemm_tune(struct mist_cuda_gemm *gemm, mist_cuda_stream stream, void *workspace,
                    const struct mist_cuda_gemm_tuning *tuning, struct mist_err *err);

#endif
