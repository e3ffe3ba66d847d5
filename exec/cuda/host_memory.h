/*
 * Memory of the host that the GPU copies from and to at full speed: locked in place and
 * known to CUDA.
 */
#ifndef MIST_EXEC_CUDA_HOST_MEMORY_H
#define MIST_EXEC_CUDA_HOST_MEMORY_H

#include "core/status.h"

#include <stdint.h>

/*
 * bytes (> 0) of zeros, aligned to 4096 at least. *out is owned by the caller
 * (mist_cuda_host_free); NULL after a failure. MIST_ERR_MEMORY: there is not that much,
 * or it can't be locked; MIST_ERR_RUN: CUDA failed otherwise.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_host_alloc(int64_t bytes, void **out,
                                                      struct mist_err *err);
void mist_cuda_host_free(void *memory); /* NULL allowed */

#endif
