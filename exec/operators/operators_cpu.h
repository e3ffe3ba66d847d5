/* Private to operators_cpu*.c. */
#ifndef MIST_EXEC_OPERATORS_CPU_H
#define MIST_EXEC_OPERATORS_CPU_H

#include "exec/operators/cpu_kernels.h"
#include "exec/operators/operators.h"

/* Where gradients are added to. */
static inline int mist_operators_cpu_how(enum mist_dtype gradient_dtype)
{
    return gradient_dtype == MIST_DTYPE_BF16 ? MIST_CPU_BF16_GRADIENTS : 0;
}

void mist_operators_cpu_run_step(const struct mist_step_args *at);

#endif
