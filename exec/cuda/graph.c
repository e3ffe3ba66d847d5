/*
 * What the streams get, captured as a graph of CUDA and launched into the compute stream.
 *
 * The capture begins in the compute stream. The others take part from their wait for an
 * event of it on, and are joined by its wait for the last of each. The mode is
 * thread-local: what other threads of the process do is no concern of a capture.
 */
#include "exec/cuda/context.h"

/* Stream to waits for what stream from has got. */
static void order(struct mist_cuda_device *device, int from, int to)
{
    cudaEvent_t event = device->capture_events[from];

    if (mist_cuda_check(device, cudaEventRecord(event, device->streams[from]),
                        "cudaEventRecord"))
        mist_cuda_check(device, cudaStreamWaitEvent(device->streams[to], event, 0),
                        "cudaStreamWaitEvent");
}

static void make_events(struct mist_cuda_device *device)
{
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (!device->capture_events[i])
            mist_cuda_check(device,
                            cudaEventCreateWithFlags(&device->capture_events[i],
                                                     cudaEventDisableTiming),
                            "cudaEventCreateWithFlags");
}

void mist_cuda_graph_begin(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);
    cudaStream_t first = device->streams[MIST_STREAM_COMPUTE];

    mist_cuda_graph_drop(base);
    make_events(device);
    if (mist_device_has_failed(base) ||
        !mist_cuda_check(device,
                         cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal),
                         "cudaStreamBeginCapture"))
        return;
    device->is_capturing = true;
    for (int i = 0; i < MIST_N_STREAMS && !mist_device_has_failed(base); i++)
        if (i != MIST_STREAM_COMPUTE)
            order(device, MIST_STREAM_COMPUTE, i);
}

/* Ends the capture for all streams, whatever went wrong in it. */
static void end_capture(struct mist_cuda_device *device)
{
    struct mist_device *base = &device->base;
    cudaGraph_t graph = NULL;

    for (int i = 0; i < MIST_N_STREAMS && !mist_device_has_failed(base); i++)
        if (i != MIST_STREAM_COMPUTE)
            order(device, i, MIST_STREAM_COMPUTE);
    device->is_capturing = false;
    cudaError_t code = cudaStreamEndCapture(device->streams[MIST_STREAM_COMPUTE], &graph);
    if (mist_cuda_check(device, code, "cudaStreamEndCapture") &&
        !mist_device_has_failed(base))
        mist_cuda_check(device, cudaGraphInstantiate(&device->graph, graph, 0),
                        "cudaGraphInstantiate");
    if (graph)
        mist_cuda_check(device, cudaGraphDestroy(graph), "cudaGraphDestroy");
}

void mist_cuda_graph_end(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (device->is_capturing)
        end_capture(device);
    if (!mist_device_has_failed(base))
        return;
    mist_cuda_graph_drop(base);
    (void)cudaGetLastError(); /* the next launch is not to blame */
}

void mist_cuda_graph_replay(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (!mist_device_has_failed(base))
        mist_cuda_check(
            device, cudaGraphLaunch(device->graph, device->streams[MIST_STREAM_COMPUTE]),
            "cudaGraphLaunch");
}

void mist_cuda_graph_drop(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (device->graph)
        mist_cuda_check(device, cudaGraphExecDestroy(device->graph),
                        "cudaGraphExecDestroy");
    device->graph = NULL;
}

void mist_cuda_graph_close(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    mist_cuda_graph_drop(base);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (device->capture_events[i])
            (void)cudaEventDestroy(device->capture_events[i]);
}
