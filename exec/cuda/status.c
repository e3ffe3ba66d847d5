/* CUDA's error codes as Mist's: what failed, CUDA's words, and what can be done. */
#include "exec/cuda/context.h"

/* What a user can do about it; "" where the name says all there is. */
static const char *advice_on(cudaError_t code)
{
    switch (code) {
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
        return "; the NVIDIA driver is missing or older than this CUDA needs: install or "
               "update it (nvidia-smi shows its version)";
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
        return "; the driver in the kernel and its libraries differ: reboot, or start "
               "the "
               "container with the host's driver";
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
        return "; nvidia-smi lists the GPUs, CUDA_VISIBLE_DEVICES hides some of them";
    case cudaErrorDevicesUnavailable:
        return "; another process has the GPU for itself";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return "; libmist_cuda.so was not built for this GPU's architecture";
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
        return "; CUDA_LAUNCH_BLOCKING=1 or compute-sanitizer tell which kernel";
    default:
        return "";
    }
}

enum mist_status mist_cuda_status(cudaError_t code, const char *what,
                                  struct mist_err *err)
{
    if (code == cudaSuccess)
        return MIST_OK;
    return mist_err_set(
        err, code == cudaErrorMemoryAllocation ? MIST_ERR_MEMORY : MIST_ERR_RUN,
        "%s: %s (%s)%s", what, cudaGetErrorString(code), cudaGetErrorName(code),
        advice_on(code));
}

bool mist_cuda_check(struct mist_cuda_device *device, cudaError_t code, const char *what)
{
    struct mist_err err;
    enum mist_status status = mist_cuda_status(code, what, &err);

    if (status != MIST_OK)
        mist_device_fail(&device->base, status, &err);
    return status == MIST_OK;
}
