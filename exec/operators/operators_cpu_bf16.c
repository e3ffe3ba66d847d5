/* The CPU backend's operators in bf16. See operators.h. */
#include "exec/operators/cpu_bf16.h"

#define KERNEL(name) mist_cpu_bf16_##name
#define IS_BF16      true
#define BACKEND      at->backend,
#include "exec/operators/operators_cpu_steps.h"

void mist_operators_cpu_run_bf16(step_args at)
{
    run_kernel(at);
}
