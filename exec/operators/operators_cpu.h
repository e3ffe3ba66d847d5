/* What the two number formats of the CPU's operators share. Private
 * to operators_cpu*.c. */
#ifndef MIST_EXEC_OPERATORS_CPU_H
#define MIST_EXEC_OPERATORS_CPU_H

#include "exec/operators/cpu_kernels.h"
#include "exec/operators/operators.h"

static inline struct mist_cpu_attention
mist_step_attention(const struct mist_step_args *at)
{
    const int64_t *dims = at->step->dims;

    return (struct mist_cpu_attention){dims[0], dims[1], dims[2], dims[3], dims[4]};
}

static inline enum mist_cpu_norm_kind mist_step_norm(const struct mist_step_args *at)
{
    bool is_rms =
        at->step->op == MIST_OP_RMS_NORM || at->step->op == MIST_OP_RESIDUAL_RMS_NORM;

    return is_rms ? MIST_CPU_NORM_RMS : MIST_CPU_NORM_LAYER;
}

/* Where gradients are added to. */
static inline int mist_operators_cpu_how(enum mist_dtype gradient_dtype)
{
    return gradient_dtype == MIST_DTYPE_BF16 ? MIST_CPU_BF16_GRADIENTS : 0;
}

/* run_step for activations and weights in bf16. */
void mist_operators_cpu_run_bf16(const struct mist_step_args *at);

#endif
