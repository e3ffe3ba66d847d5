/*
 * The CUDA backend's operators: a step of the catalogue becomes launches into the stream
 * of the running task. See exec/operators/operators.h.
 *
 * Products of linear layers are cuBLASLt's (gemm.h); attention in bf16 is cuDNN's
 * (attention_cudnn.h) unless the device was opened for the own kernels; all else is a
 * kernel of kernels.h. prepare() makes the plans of attention and products, and fails
 * where cuDNN has none within the step's workspace; tune() finds the fastest products
 * (tuning.c).
 *
 * What fails, fails the device; the message names the operator and its shape.
 */
#ifndef MIST_EXEC_CUDA_OPERATORS_H
#define MIST_EXEC_CUDA_OPERATORS_H

#include "exec/cuda/context.h"
#include "exec/cuda/gemm.h"
#include "exec/cuda/kernels.h"
#include "exec/operators/cpu_kernels.h" /* struct mist_cpu_attention */
#include "exec/operators/operators.h"

#include <stdbool.h>

extern const struct mist_operators mist_operators_cuda;

/* ------------------------------------ what operators.c and operators_attention.c share */

struct mist_cuda_sdpa;

/* What open() of mist_operators_cuda gives. */
struct mist_cuda_operators {
    struct mist_cuda_device *device; /* borrowed */
    struct mist_cuda_gemm *gemm;
    struct mist_cuda_sdpa *sdpa;            /* NULL: attention is the own kernels' */
    struct mist_cuda_adamw_numbers *update; /* device memory */
};

typedef const struct mist_step_args *step_args;

static inline struct mist_cuda_operators *context_of(step_args at)
{
    return at->backend;
}

static inline mist_cuda_stream stream_of(const struct mist_cuda_operators *context)
{
    return mist_cuda_current_stream(context->device);
}

/* Fails the device with what happened to a step. */
void mist_cuda_operators_fail(step_args at, enum mist_status status, const char *what);

/* True if a step's planned workspace is enough; else the device has failed. */
bool mist_cuda_operators_has_workspace(step_args at, int64_t need_bytes);

/* A step of attention, of whole sequences or of a context-parallel rank's part. */
void mist_cuda_operators_attention(step_args at);
void mist_cuda_operators_attention_part(step_args at);

/* Opens cuDNN where the device's choice and dtype say so. MIST_ERR_RUN: it can't be had,
 * and how to do without. */
MIST_MUST_CHECK enum mist_status
mist_cuda_operators_open_attention(struct mist_cuda_operators *context,
                                   enum mist_dtype dtype, struct mist_err *err);

/* "cuDNN 9.19.0, deterministic backward" */
void mist_cuda_operators_describe_attention(const struct mist_cuda_operators *context,
                                            char *text, size_t size_bytes);

/* Builds cuDNN's plan of a step. MIST_ERR_RUN: there is none, and how to do without. */
MIST_MUST_CHECK enum mist_status mist_cuda_operators_plan_attention(step_args at,
                                                                    struct mist_err *err);

/*
 * Which products steps have, and where the algorithms are kept that were found fastest
 * for them: a file of the user's cache folder, which every process reads and adds to
 * (gemm_file.c has its format). tuning.c
 *
 * MIST_CUDA_ALGORITHMS names another file; empty: none is read or written, nothing is
 * timed, and cuBLASLt's own first choices do. Other algorithms give other last bits.
 */
/* $XDG_CACHE_HOME/mist/cublaslt.csv into path; false: there is no such place, or none is
 * wanted. */
bool mist_cuda_tuning_path(char *path, size_t path_bytes);

/* Announces the products of a step, at its shape. */
void mist_cuda_tuning_expect(struct mist_cuda_gemm *gemm,
                             const struct mist_step_args *args,
                             const struct mist_cuda_linear *at);

/* mist_cuda_gemm_tune() with that file, on the device's arena, whose contents
 * are lost. */
MIST_MUST_CHECK enum mist_status mist_cuda_tuning_run(struct mist_cuda_gemm *gemm,
                                                      struct mist_cuda_device *device,
                                                      struct mist_err *err);

#endif
