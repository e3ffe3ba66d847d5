/* See context.h. */
#include "exec/cuda/context.h"
#include "exec/cuda/kernels.h"

#include <cuda_runtime_api.h>

enum { MIN_CAPABILITY_MAJOR = 8 };

enum mist_status mist_cuda_check_capability(const char *name, int major, int minor,
                                            struct mist_err *err)
{
    if (major >= MIN_CAPABILITY_MAJOR)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_RUN,
                        "%.200s has compute capability %d.%d; %d.0 or newer is needed",
                        name, major, minor, (int)MIN_CAPABILITY_MAJOR);
}

enum mist_status mist_cuda_load_kernels(struct mist_err *err)
{
    const struct mist_cuda_kernel *kernel = mist_cuda_kernels;
    struct cudaFuncAttributes attributes;
    cudaError_t code = cudaSuccess;

    for (; kernel && code == cudaSuccess; kernel = kernel->next)
        code = cudaFuncGetAttributes(&attributes, kernel->function);
    if (code != cudaSuccess)
        (void)cudaGetLastError(); /* so that nobody else reports it */
    if (code == cudaErrorNoKernelImageForDevice || code == cudaErrorUnsupportedPtxVersion)
        return mist_err_set(err, MIST_ERR_RUN,
                            "the CUDA plugin has no kernels for this GPU and driver: "
                            "build it with CUDA_ARCHS=\"...\" of the GPU's compute "
                            "capability (%s)",
                            cudaGetErrorName(code));
    return mist_cuda_status(code, "loading kernels", err);
}
