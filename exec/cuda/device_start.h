/* The first half of opening a device; only for device.c. */
#ifndef MIST_EXEC_CUDA_DEVICE_START_H
#define MIST_EXEC_CUDA_DEVICE_START_H

#include "exec/cuda/context.h"

/*
 * From the device's number and sizes: the recorder if it records, CUDA itself, both
 * arenas, results and workspaces; of these only those of the host are zeroed. What was
 * made before a failure stays in device for the caller to free. MIST_OK, MIST_ERR_RANGE,
 * MIST_ERR_MEMORY or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_device_start(struct mist_cuda_device *device,
                                                        bool records,
                                                        struct mist_err *err);

#endif
