/* What operators.c and operators_attention.c share. */
#ifndef MIST_EXEC_CUDA_OPERATORS_INTERNAL_H
#define MIST_EXEC_CUDA_OPERATORS_INTERNAL_H

#include "exec/cuda/context.h"
#include "exec/cuda/kernels.h"
#include "exec/cuda/operators.h"
#include "exec/operators/cpu_kernels.h" /* struct mist_cpu_attention */

#include <stdbool.h>

struct mist_cuda_gemm;
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

/* Of a step on packed heads. */
static inline struct mist_cpu_attention mist_cuda_operators_shape(step_args at)
{
    const int64_t *dims = at->step->dims;

    return (struct mist_cpu_attention){dims[0], dims[1], dims[2], dims[3], dims[4]};
}

/* Fails the device with what happened to a step. */
void mist_cuda_operators_fail(step_args at, enum mist_status status, const char *what);

/* True if a step's planned workspace is enough; else the device has failed. */
bool mist_cuda_operators_has_workspace(step_args at, int64_t need_bytes);

/* A step of attention. */
void mist_cuda_operators_attention(step_args at);

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

#endif
