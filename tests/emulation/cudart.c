/*
 * A stand-in for the functions of the CUDA runtime that exec/cuda uses, on memory of the
 * host, with the streams of streams.c.
 *
 * Device memory is filled with 0xFF bytes, so that whoever takes it for zeros gets NaN.
 * The functions are declared by NVIDIA's header; without it this file is empty.
 */
#include "tests/emulation/cudart.h"

#if __has_include(<cuda_runtime_api.h>)

#include "tests/emulation/streams.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct mist_emulated_cuda initial = {.n_devices = 1,
                                                  .capability = 90,
                                                  .memory_bytes = (int64_t)1 << 30,
                                                  .max_locked_bytes = -1};

struct mist_emulated_cuda mist_emulated_cuda = {.n_devices = 1,
                                                .capability = 90,
                                                .memory_bytes = (int64_t)1 << 30,
                                                .max_locked_bytes = -1};

/* Of a thread, as in CUDA. */
static _Thread_local cudaError_t last; /* what cudaGetLastError() tells */
static _Thread_local int current_device;

/* Size of an allocation, in front of it; both parts keep the alignment of 256. */
union header {
    int64_t bytes;
    unsigned char padding[256];
};

void mist_emulated_cuda_reset(void)
{
    int64_t used_bytes = mist_emulated_cuda.used_bytes;
    int64_t locked_bytes = mist_emulated_cuda.locked_bytes;

    mist_emulated_cuda = initial;
    mist_emulated_cuda.used_bytes = used_bytes;
    mist_emulated_cuda.locked_bytes = locked_bytes;
    last = cudaSuccess;
}

static cudaError_t give(cudaError_t code)
{
    if (code != cudaSuccess)
        last = code;
    return code;
}

/* Begins every function: whether this call is to fail. */
static bool fails(const char *call)
{
    struct mist_emulated_cuda *at = &mist_emulated_cuda;

    mist_emulated_stream_enter(call);
    __atomic_fetch_add(&at->n_calls, 1, __ATOMIC_RELAXED);
    if (!at->fails || strcmp(at->fails, call) != 0 || --at->fails_in != 0)
        return false;
    last = (cudaError_t)at->fails_with;
    at->fails = NULL;
    return true;
}

/* --------------------------------------------------------------------------- errors */

static const struct {
    cudaError_t code;
    const char *name, *text;
} errors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorNoKernelImageForDevice, "cudaErrorNoKernelImageForDevice",
     "no kernel image is available for execution on the device"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "operation does not match the capture of the stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};
enum { N_ERRORS = sizeof errors / sizeof *errors };

const char *cudaGetErrorString(cudaError_t error)
{
    for (int i = 0; i < N_ERRORS; i++)
        if (errors[i].code == error)
            return errors[i].text;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error)
{
    for (int i = 0; i < N_ERRORS; i++)
        if (errors[i].code == error)
            return errors[i].name;
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t code = last;

    mist_emulated_stream_enter("cudaGetLastError");
    last = cudaSuccess;
    return code;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last;
}

static cudaError_t give_misuse(enum mist_emulated_misuse misuse)
{
    static const cudaError_t codes[] = {
        [MIST_EMULATED_FINE] = cudaSuccess,
        [MIST_EMULATED_NOT_WHILE_CAPTURING] = cudaErrorStreamCaptureUnsupported,
        [MIST_EMULATED_OUTSIDE_EVENT] = cudaErrorStreamCaptureIsolation,
        [MIST_EMULATED_CAPTURED_EVENT] = cudaErrorCapturedEvent,
        [MIST_EMULATED_UNJOINED] = cudaErrorStreamCaptureUnjoined,
        [MIST_EMULATED_INVALIDATED] = cudaErrorStreamCaptureInvalidated,
        [MIST_EMULATED_UNMATCHED] = cudaErrorStreamCaptureUnmatched,
    };

    return give(codes[misuse]);
}

/* What allocates, or waits for all, is refused while any stream captures. */
static bool fails_or_captures(const char *call)
{
    if (fails(call))
        return true;
    return mist_emulated_streams_capture() && give(cudaErrorStreamCaptureUnsupported);
}

/* -------------------------------------------------------------------------- devices */

cudaError_t cudaGetDeviceCount(int *count)
{
    if (fails("cudaGetDeviceCount"))
        return last;
    if (mist_emulated_cuda.n_devices == 0)
        return give(cudaErrorNoDevice);
    *count = mist_emulated_cuda.n_devices;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    if (fails("cudaSetDevice"))
        return last;
    if (device < 0 || device >= mist_emulated_cuda.n_devices)
        return give(cudaErrorInvalidDevice);
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    if (fails("cudaGetDeviceProperties"))
        return last;
    if (device < 0 || device >= mist_emulated_cuda.n_devices)
        return give(cudaErrorInvalidDevice);
    *out = (struct cudaDeviceProp){.name = "emulated",
                                   .major = mist_emulated_cuda.capability / 10,
                                   .minor = mist_emulated_cuda.capability % 10};
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    if (fails("cudaDeviceGetAttribute"))
        return last;
    if (device < 0 || device >= mist_emulated_cuda.n_devices)
        return give(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMultiProcessorCount:
        *value = 132;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
        *value = 9;
        return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
        *value = 0;
        return cudaSuccess;
    case cudaDevAttrClockRate:
        *value = 1980000;
        return cudaSuccess;
    default:
        return give(cudaErrorInvalidValue);
    }
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes)
{
    if (fails("cudaMemGetInfo"))
        return last;
    *total_bytes = (size_t)mist_emulated_cuda.memory_bytes;
    *free_bytes = *total_bytes - (size_t)mist_emulated_cuda.used_bytes;
    return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *out, const void *function)
{
    if (fails("cudaFuncGetAttributes"))
        return last;
    *out = (struct cudaFuncAttributes){.maxThreadsPerBlock = 1024};
    mist_emulation_load(function);
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    if (fails_or_captures("cudaDeviceSynchronize"))
        return last;
    mist_emulated_streams_synchronize();
    return cudaSuccess;
}

/* --------------------------------------------------------------------------- memory */

cudaError_t cudaMalloc(void **memory, size_t bytes)
{
    struct mist_emulated_cuda *at = &mist_emulated_cuda;
    void *whole;

    if (fails_or_captures("cudaMalloc"))
        return last;
    *memory = NULL;
    if (bytes == 0)
        return cudaSuccess;
    if ((int64_t)bytes > at->memory_bytes - at->used_bytes - at->hidden_bytes ||
        posix_memalign(&whole, 256, sizeof(union header) + bytes) != 0)
        return give(cudaErrorMemoryAllocation);
    union header *header = whole;
    header->bytes = (int64_t)bytes;
    at->used_bytes += (int64_t)bytes;
    *memory = memset(header + 1, 0xFF, bytes);
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory)
{
    if (fails_or_captures("cudaFree"))
        return last;
    if (!memory)
        return cudaSuccess;
    mist_emulated_streams_synchronize(); /* as the real one does */
    union header *header = (union header *)memory - 1;
    mist_emulated_cuda.used_bytes -= header->bytes;
    free(header);
    return cudaSuccess;
}

/* Sizes of what is registered are not kept by the caller; a short list does. */
enum { MAX_REGISTERED = 64 };
static struct {
    void *memory;
    size_t bytes;
} registered[MAX_REGISTERED];

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags)
{
    struct mist_emulated_cuda *at = &mist_emulated_cuda;
    int i = 0;

    (void)flags;
    if (fails_or_captures("cudaHostRegister"))
        return last;
    while (i < MAX_REGISTERED && registered[i].memory)
        i++;
    if (i == MAX_REGISTERED || (at->max_locked_bytes >= 0 &&
                                at->locked_bytes + (int64_t)bytes > at->max_locked_bytes))
        return give(cudaErrorMemoryAllocation);
    registered[i].memory = memory;
    registered[i].bytes = bytes;
    at->locked_bytes += (int64_t)bytes;
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory)
{
    if (fails("cudaHostUnregister"))
        return last;
    for (int i = 0; i < MAX_REGISTERED; i++)
        if (memory && registered[i].memory == memory) {
            mist_emulated_cuda.locked_bytes -= (int64_t)registered[i].bytes;
            registered[i].memory = NULL;
            return cudaSuccess;
        }
    return give(cudaErrorInvalidValue);
}

cudaError_t cudaHostAlloc(void **memory, size_t bytes, unsigned flags)
{
    (void)flags;
    if (fails("cudaHostAlloc"))
        return last;
    if (posix_memalign(memory, 4096, bytes) != 0)
        return give(cudaErrorMemoryAllocation);
    memset(*memory, 0xFF, bytes);
    return cudaSuccess;
}

cudaError_t cudaFreeHost(void *memory)
{
    if (fails("cudaFreeHost"))
        return last;
    free(memory);
    return cudaSuccess;
}

struct copy {
    void *to;
    const void *from; /* NULL: fill with value */
    size_t bytes;
    int value;
};

static void run_copy(void *arg)
{
    const struct copy *copy = arg;

    if (copy->from)
        memmove(copy->to, copy->from, copy->bytes);
    else
        memset(copy->to, copy->value, copy->bytes);
}

static void enqueue_copy(cudaStream_t stream, const struct copy *copy)
{
    if (copy->bytes > 0)
        mist_emulated_stream_run(stream, run_copy, copy, sizeof *copy);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    (void)kind;
    if (fails("cudaMemcpyAsync"))
        return last;
    if (bytes > 0 && (!to || !from))
        return give(cudaErrorInvalidValue);
    enqueue_copy(stream, &(struct copy){.to = to, .from = from, .bytes = bytes});
    return cudaSuccess;
}

/* As streams that don't wait for the default one see it: nothing of theirs is
 * waited for. */
cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    if (fails_or_captures("cudaMemcpy"))
        return last;
    return cudaMemcpyAsync(to, from, bytes, kind, NULL);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
    if (fails("cudaMemsetAsync"))
        return last;
    if (bytes > 0 && !to)
        return give(cudaErrorInvalidValue);
    enqueue_copy(stream, &(struct copy){.to = to, .bytes = bytes, .value = value});
    return cudaSuccess;
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
    if (fails_or_captures("cudaMemset"))
        return last;
    return cudaMemsetAsync(to, value, bytes, NULL);
}

/* -------------------------------------------------------------------------- streams */

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    if (fails("cudaDeviceGetStreamPriorityRange"))
        return last;
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags,
                                         int priority)
{
    (void)flags;
    if (fails("cudaStreamCreateWithPriority"))
        return last;
    *stream = mist_emulated_stream_new(priority);
    return cudaSuccess;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
    *priority = mist_emulated_stream_priority(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (fails("cudaStreamDestroy"))
        return last;
    mist_emulated_stream_free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    if (fails("cudaStreamSynchronize"))
        return last;
    return give_misuse(mist_emulated_stream_synchronize(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    if (fails("cudaStreamWaitEvent"))
        return last;
    return give_misuse(mist_emulated_event_wait(event, stream));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
    if (fails("cudaLaunchHostFunc"))
        return last;
    mist_emulated_cuda.n_launched_host_calls++;
    mist_emulated_stream_run_host(stream, fn, arg);
    return cudaSuccess;
}

/* --------------------------------------------------------------------------- graphs */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)mode;
    if (fails("cudaStreamBeginCapture"))
        return last;
    return give_misuse(mist_emulated_capture_begin(stream));
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    enum mist_emulated_misuse misuse = mist_emulated_capture_end(stream, graph);

    if (fails("cudaStreamEndCapture")) {
        if (*graph)
            mist_emulated_graph_free(*graph);
        *graph = NULL;
        return last;
    }
    return give_misuse(misuse);
}

/* What can be launched is the graph itself, held once more. */
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph,
                                 unsigned long long flags)
{
    (void)flags;
    if (fails_or_captures("cudaGraphInstantiate"))
        return last;
    mist_emulated_graph_hold(graph);
    *out = (cudaGraphExec_t)(void *)graph;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream)
{
    if (fails("cudaGraphLaunch"))
        return last;
    mist_emulated_cuda.n_launched_graphs++;
    mist_emulated_graph_run((cudaGraph_t)(void *)graph, stream);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    if (fails("cudaGraphDestroy"))
        return last;
    mist_emulated_graph_free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    bool has_failed = fails("cudaGraphExecDestroy"); /* work before it may have */

    mist_emulated_streams_synchronize(); /* the real one waits for launches, too */
    mist_emulated_graph_free((cudaGraph_t)(void *)graph);
    return has_failed ? last : cudaSuccess;
}

/* ------------------------------------------------------ a function of the driver */

struct write {
    uint32_t *to, value;
};

static void run_write(void *arg)
{
    const struct write *write = arg;

    __atomic_store_n(write->to, write->value, __ATOMIC_RELEASE);
}

static CUresult write_value(CUstream stream, CUdeviceptr to, cuuint32_t value,
                            unsigned flags)
{
    struct write write = {(uint32_t *)(uintptr_t)to, value};

    (void)flags;
    if (fails("cuStreamWriteValue32"))
        return CUDA_ERROR_INVALID_VALUE;
    if (!mist_emulated_cuda.loses_writes)
        mist_emulated_stream_run(stream, run_write, &write, sizeof write);
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **out,
                                             unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *result)
{
    CUresult (*function)(CUstream, CUdeviceptr, cuuint32_t, unsigned) = write_value;

    (void)flags;
    *out = NULL;
    if (fails("cudaGetDriverEntryPointByVersion"))
        return last;
    if (version < 11070 || strcmp(symbol, "cuStreamWriteValue32") != 0) {
        *result = cudaDriverEntryPointSymbolNotFound;
        return cudaSuccess;
    }
    *result = cudaDriverEntryPointSuccess;
    memcpy(out, &function, sizeof *out);
    return cudaSuccess;
}

/* ------------------------------------------------------------------------- events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags)
{
    (void)flags;
    if (fails("cudaEventCreateWithFlags"))
        return last;
    *event = mist_emulated_event_new();
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    if (fails("cudaEventDestroy"))
        return last;
    mist_emulated_event_free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    if (fails("cudaEventRecord"))
        return last;
    mist_emulated_event_record(event, stream);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    if (fails("cudaEventSynchronize"))
        return last;
    return give_misuse(mist_emulated_event_synchronize(event));
}

cudaError_t cudaEventElapsedTime(float *time_ms, cudaEvent_t start, cudaEvent_t end)
{
    if (fails("cudaEventElapsedTime"))
        return last;
    *time_ms = (float)(1e3 * (mist_emulated_event_time_s(end) -
                              mist_emulated_event_time_s(start)));
    return cudaSuccess;
}

#endif
