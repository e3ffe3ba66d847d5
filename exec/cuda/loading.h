/*
 * Whether the kernels can run on a GPU, and their loading before the first step.
 *
 * CUDA loads a kernel when it is launched for the first time. That would be in the first
 * step, where loading waits for the device, and the device may be waiting for another
 * rank that waits for this one. So every kernel that a launch names (mist_cuda_kernels)
 * is asked for its attributes, which loads it. CUDA_MODULE_LOADING=EAGER would load the
 * thousands of cuBLASLt and cuDNN, too: seconds, and hundreds of MiB of device memory.
 */
#ifndef MIST_EXEC_CUDA_LOADING_H
#define MIST_EXEC_CUDA_LOADING_H

#include "core/status.h"

/* Compute capability 8.0 is the least: bf16, and 99 KiB of shared memory a block.
 * MIST_ERR_RUN names the GPU. */
MIST_MUST_CHECK enum mist_status
mist_cuda_check_capability(const char *name, int major, int minor, struct mist_err *err);

/* On the current device. MIST_ERR_RUN: the plugin was not built for it, or CUDA's error;
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_cuda_load_kernels(struct mist_err *err);

#endif
