/*
 * The plugin's one symbol: CUDA as a backend, and what it says of this machine.
 *
 * The probe asks the driver alone: it starts nothing on a GPU, since the recorder has to
 * be there before that. So the memory it tells is the GPU's whole; what CUDA takes of it
 * for itself is seen when a device is opened.
 */
#include "exec/cuda/attention_cudnn.h"
#include "exec/cuda/collectives_nccl.h"
#include "exec/cuda/context.h"
#include "exec/cuda/operators.h"
#include "exec/cuda/recorder_cupti.h" /* its version */
#include "exec/runtime/backend.h"

#include <cublasLt.h>
#include <nccl.h>
#include <stdio.h>
#include <string.h>

/* ------------------------------------------------------------------------- versions */

/* "580.65.06" out of the driver's own line, the first word that begins with a digit and
 * has a dot: "" where there is none. */
static void find_driver_version(char *version, size_t version_bytes)
{
    FILE *stream = fopen("/proc/driver/nvidia/version", "r");
    char line[256] = "";

    *version = '\0';
    if (!stream)
        return;
    if (!fgets(line, sizeof line, stream))
        line[0] = '\0';
    fclose(stream);
    for (char *at = line + strcspn(line, " \t"); *at; at += strcspn(at, " \t\n")) {
        at += strspn(at, " \t\n");
        size_t length = strcspn(at, " \t\n");
        if (*at >= '0' && *at <= '9' && memchr(at, '.', length)) {
            snprintf(version, version_bytes, "%.*s", (int)length, at);
            return;
        }
    }
}

static void describe_versions(char *text, size_t text_bytes)
{
    char driver[64], library[48] = "no cuDNN", profiler[32];
    int runtime = 0, of_driver = 0, nccl = 0;
    uint32_t cupti = 0;
    unsigned cublas = (unsigned)cublasLtGetVersion();
    unsigned cudnn = (unsigned)mist_cuda_sdpa_library_version(NULL);

    find_driver_version(driver, sizeof driver);
    (void)cudaRuntimeGetVersion(&runtime); /* 0 is an answer, too */
    (void)cudaDriverGetVersion(&of_driver);
    (void)ncclGetVersion(&nccl);
    (void)cuptiGetVersion(&cupti);
    mist_cuda_cupti_version(cupti, profiler, sizeof profiler);
    if (cudnn)
        snprintf(library, sizeof library, "cuDNN %u.%u.%u", cudnn / 10000,
                 cudnn / 100 % 100, cudnn % 100);
    snprintf(text, text_bytes,
             "driver %s (CUDA %d.%d), CUDA %d.%d, cuBLASLt %u.%u, %s, NCCL %d.%d.%d, "
             "CUPTI %s",
             *driver ? driver : "unknown", of_driver / 1000, of_driver % 1000 / 10,
             runtime / 1000, runtime % 1000 / 10, cublas / 10000, cublas / 100 % 100,
             library, nccl / 10000, nccl / 100 % 100, nccl % 100, profiler);
}

/* ---------------------------------------------------------------------------- probe */

static int attribute(enum cudaDeviceAttr which)
{
    int value = 0;

    if (cudaDeviceGetAttribute(&value, which, 0) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return value;
}

static enum mist_status find_ids(struct mist_backend_info *info, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < info->n_devices && status == MIST_OK; i++)
        status = mist_cuda_status(
            cudaDeviceGetPCIBusId(info->device_ids[i], MIST_BACKEND_ID_BYTES, i),
            "cudaDeviceGetPCIBusId", err);
    return status;
}

/* The first device speaks for all. */
static enum mist_status probe(struct mist_backend_info *out, struct mist_err *err)
{
    struct cudaDeviceProp properties;
    int n_devices = 0;
    enum mist_status status =
        mist_cuda_status(cudaGetDeviceCount(&n_devices), "looking for GPUs", err);

    if (status == MIST_OK && n_devices == 0)
        status = mist_cuda_status(cudaErrorNoDevice, "looking for GPUs", err);
    if (status == MIST_OK)
        status = mist_cuda_status(cudaGetDeviceProperties(&properties, 0),
                                  "asking the GPU for its properties", err);
    if (status != MIST_OK)
        return status;
    status = mist_cuda_check_capability(properties.name, properties.major,
                                        properties.minor, err);
    if (status != MIST_OK)
        return status;
    *out = (struct mist_backend_info){
        .n_devices =
            n_devices < MIST_BACKEND_MAX_DEVICES ? n_devices : MIST_BACKEND_MAX_DEVICES,
        .memory_bytes = (int64_t)properties.totalGlobalMem - MIST_CUDA_WORKSPACE_BYTES,
        .clock_hz = 1e3 * attribute(cudaDevAttrClockRate),
        .memory_bytes_per_s = 2e3 * attribute(cudaDevAttrMemoryClockRate) *
                              attribute(cudaDevAttrGlobalMemoryBusWidth) / 8,
        .n_processors = properties.multiProcessorCount,
    };
    snprintf(out->device_name, sizeof out->device_name, "%.120s", properties.name);
    describe_versions(out->versions, sizeof out->versions);
    return find_ids(out, err);
}

extern const struct mist_backend mist_backend_cuda;

__attribute__((visibility("default"))) const struct mist_backend mist_backend_cuda = {
    .version = MIST_BACKEND_VERSION,
    .name = "cuda",
    .operators = &mist_operators_cuda,
    .probe = probe,
    .open_device = mist_cuda_device_open,
    .open_collectives = mist_cuda_collectives_open,
};
