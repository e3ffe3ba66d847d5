/*
 * Starts CUDA on a device and allocates its memory.
 *
 * The memory of both arenas is there from the beginning, and what the plan needs is
 * compared with what is free before it is asked for: a plan that does not fit says so in
 * one line, and by how much.
 */
#include "exec/cuda/context.h"

#include "core/memory.h"
#include "exec/cuda/recorder.h"

#include <stdio.h>

static const double gib = 0x1p30;

/* Starts CUDA on the device, where there is one; the recorder has to be there before. */
static enum mist_status start(struct mist_cuda_device *device, bool records,
                              struct mist_err *err)
{
    struct cudaDeviceProp properties;
    int n_devices = 0;
    enum mist_status status =
        mist_cuda_status(cudaGetDeviceCount(&n_devices), "looking for GPUs", err);

    if (status == MIST_OK && (device->i_device < 0 || device->i_device >= n_devices))
        status = mist_err_set(err, MIST_ERR_RANGE,
                              "there is no GPU %ld: this process sees %d of them",
                              (long)device->i_device, n_devices);
    if (status == MIST_OK && records)
        status = mist_cuda_recorder_open(&device->recorder, err);
    if (status == MIST_OK)
        status =
            mist_cuda_status(cudaSetDevice(device->i_device), "starting the GPU", err);
    if (status == MIST_OK)
        status = mist_cuda_status(cudaDeviceGetAttribute(&device->n_processors,
                                                         cudaDevAttrMultiProcessorCount,
                                                         device->i_device),
                                  "cudaDeviceGetAttribute", err);
    if (status == MIST_OK)
        status = mist_cuda_status(cudaGetDeviceProperties(&properties, device->i_device),
                                  "cudaGetDeviceProperties", err);
    if (status != MIST_OK)
        return status;
    snprintf(device->name, sizeof device->name, "%s", properties.name);
    status =
        mist_cuda_check_capability(device->name, properties.major, properties.minor, err);
    return status == MIST_OK ? mist_cuda_load_kernels(err) : status;
}

/* The sum of what will be asked for; a plan that does not fit is told by how much. */
static enum mist_status check_memory(const struct mist_cuda_device *device,
                                     struct mist_err *err)
{
    int64_t arena_bytes = device->base.arena_bytes[MIST_ARENA_DEVICE];
    int64_t own_bytes = MIST_CUDA_WORKSPACE_BYTES, others_bytes, needed_bytes;
    size_t free_bytes, total_bytes;

    if (device->recorder)
        own_bytes += mist_cuda_recorder_device_bytes(device->recorder);
    if (!mist_size_add(own_bytes, device->base.result_bytes, &others_bytes) ||
        !mist_size_add(arena_bytes, others_bytes, &needed_bytes))
        return mist_err_set(err, MIST_ERR_RANGE, "a device arena of %lld bytes",
                            (long long)arena_bytes);
    enum mist_status status = mist_cuda_status(cudaMemGetInfo(&free_bytes, &total_bytes),
                                               "cudaMemGetInfo", err);
    if (status != MIST_OK || needed_bytes <= (int64_t)free_bytes)
        return status;
    return mist_err_set(
        err, MIST_ERR_MEMORY,
        "GPU %ld has %.2f GiB free of %.2f GiB, and the plan needs %.2f GiB (and %.2f "
        "GiB "
        "for workspaces): %.2f GiB are missing; plan with a smaller memory limit, or end "
        "what else uses the GPU",
        (long)device->i_device, (double)free_bytes / gib, (double)total_bytes / gib,
        (double)arena_bytes / gib, (double)others_bytes / gib,
        (double)(needed_bytes - (int64_t)free_bytes) / gib);
}

/* Device memory that nothing was said of before may run out all the same. */
static enum mist_status allocate(struct mist_cuda_device *device, int64_t bytes,
                                 const char *what, void **out, struct mist_err *err)
{
    struct mist_err cause;

    *out = NULL;
    if (bytes == 0)
        return MIST_OK;
    enum mist_status status =
        mist_cuda_status(cudaMalloc(out, (size_t)bytes), "cudaMalloc", &cause);
    if (status == MIST_OK)
        return MIST_OK;
    *out = NULL;
    (void)cudaGetLastError();
    return mist_err_set(err, status, "%.2f GiB of GPU %ld for %s: %.300s",
                        (double)bytes / gib, (long)device->i_device, what, cause.message);
}

static enum mist_status allocate_all(struct mist_cuda_device *device,
                                     struct mist_err *err)
{
    struct mist_device *base = &device->base;
    int64_t host_bytes = base->arena_bytes[MIST_ARENA_HOST];
    enum mist_status status = check_memory(device, err);

    if (status == MIST_OK)
        status = allocate(device, base->arena_bytes[MIST_ARENA_DEVICE], "the plan",
                          &base->arenas[MIST_ARENA_DEVICE], err);
    if (status == MIST_OK)
        status = allocate(device, MIST_CUDA_WORKSPACE_BYTES, "products of matrices",
                          &device->workspaces[MIST_STREAM_COMPUTE], err);
    if (status == MIST_OK)
        status = allocate(device, base->result_bytes, "results", &base->results, err);
    if (status == MIST_OK && base->result_bytes > 0)
        status = mist_cuda_host_alloc(base->result_bytes, &base->host_results, err);
    if (status == MIST_OK && host_bytes > 0)
        status = mist_cuda_host_alloc(host_bytes, &base->arenas[MIST_ARENA_HOST], err);
    return status;
}

enum mist_status mist_cuda_device_start(struct mist_cuda_device *device, bool records,
                                        struct mist_err *err)
{
    enum mist_status status = start(device, records, err);

    return status == MIST_OK ? allocate_all(device, err) : status;
}
