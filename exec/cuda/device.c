/*
 * The CUDA device: streams and events are CUDA's own.
 *
 * The body of a task runs at once, in the dispatcher's thread, and launches its work into
 * the task's stream. So the host runs ahead of the GPU, and an error of the GPU shows up
 * at a later call; the first of them stays (mist_device_fail) and nothing is launched
 * from then on.
 *
 * A stream of CUDA that waits for an event which nothing has recorded does not wait. As
 * that would be a race, it is refused here: the record has to be enqueued before the
 * wait, as exec/device/device.h says.
 *
 * How far the host may be ahead is bounded (MIST_CUDA_RUN_AHEAD): half as many tasks of a
 * stream end with a milestone, an event, and the host then waits for the milestone
 * before. A capture (graph.c) has no milestones: it launches nothing.
 *
 * What is submitted to the host stream runs on a thread of its own (worker.h), in its
 * order; the stream's part is to hand it over when its turn has come. Its bodies compute
 * themselves and call nothing of the device but mist_device_fail().
 *
 * device_start.c starts CUDA and allocates.
 */
#include "exec/cuda/context.h"

#include "exec/cuda/recorder.h"
#include "exec/cuda/worker.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#endif

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which device a thread of the host means is the thread's own matter. */
static bool use_device(struct mist_cuda_device *device)
{
    return mist_cuda_check(device, cudaSetDevice(device->i_device), "cudaSetDevice");
}

/* ------------------------------------------------------------------ streams, events */

static enum mist_status grow_events(struct mist_cuda_device *device, int32_t n_events,
                                    struct mist_err *err)
{
    size_t n = (size_t)n_events;

    if (n_events > device->event_capacity) {
        cudaEvent_t *events = realloc(device->events, n * sizeof *events);
        if (events)
            device->events = events;
        int64_t *recorded = realloc(device->recorded, n * sizeof *recorded);
        if (recorded)
            device->recorded = recorded;
        if (!events || !recorded)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %ld events",
                                (long)n_events);
        device->event_capacity = n_events;
    }
    for (; device->n_created < n_events; device->n_created++) {
        enum mist_status status =
            mist_cuda_status(cudaEventCreateWithFlags(&device->events[device->n_created],
                                                      cudaEventDisableTiming),
                             "cudaEventCreateWithFlags", err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}

static void reset_events(struct mist_device *base, int32_t n_events)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);
    struct mist_err err;

    device->n_events = 0;
    if (!use_device(device))
        return;
    enum mist_status status = grow_events(device, n_events, &err);
    if (status != MIST_OK) {
        mist_device_fail(base, status, &err);
        return;
    }
    device->n_events = n_events;
    if (n_events > 0)
        memset(device->recorded, 0, (size_t)n_events * sizeof *device->recorded);
}

static void drain(struct mist_device *base);

/* A function of the host in a stream. */
static void launch_call(struct mist_cuda_device *device, enum mist_stream stream,
                        mist_stream_fn fn, void *arg, size_t arg_bytes)
{
    struct mist_err err;

    if (device->is_capturing) { /* its argument is kept for one run */
        mist_device_fail(&device->base,
                         mist_err_set(&err, MIST_ERR_RUN,
                                      "a function of the host in the %s stream cannot be "
                                      "captured",
                                      mist_stream_name(stream)),
                         &err);
        return;
    }
    if (mist_cuda_host_calls_is_full(device->calls))
        drain(&device->base);
    if (mist_device_has_failed(&device->base))
        return;
    void *call = mist_cuda_host_calls_add(device->calls, fn, arg, arg_bytes);
    mist_cuda_check(
        device,
        cudaLaunchHostFunc(device->streams[stream], mist_cuda_host_calls_run, call),
        "cudaLaunchHostFunc");
}

/* Work of the host stream, and what another stream waits for of it. */
struct handed {
    struct mist_cuda_worker *worker;
    mist_stream_fn fn;
    void *arg;
    int64_t n_jobs;
};
static_assert(sizeof(struct handed) <= MIST_DEVICE_MAX_CALL_BYTES, "is copied");

static void hand_over(void *arg)
{
    const struct handed *at = arg;

    mist_cuda_worker_put(at->worker, at->fn, at->arg);
}

static void wait_for_jobs(void *arg)
{
    const struct handed *at = arg;

    mist_cuda_worker_wait(at->worker, at->n_jobs);
}

/* What a stream had to do shows in the answer of who waited for it. */
static bool check_stream(struct mist_cuda_device *device, cudaError_t code,
                         enum mist_stream stream)
{
    char what[64];

    snprintf(what, sizeof what, "work of the %s stream", mist_stream_name(stream));
    return mist_cuda_check(device, code, what);
}

/* Behind a task: marks every so manieth, and waits for the one that was marked before. An
 * event that nothing has recorded is not waited for. */
static void bound_run_ahead(struct mist_cuda_device *device, enum mist_stream stream)
{
    const int64_t half = MIST_CUDA_RUN_AHEAD / 2;
    int64_t n = ++device->n_submitted[stream];
    const cudaEvent_t *milestones = device->milestones[stream];
    int now = (int)(n / half % 2);

    if (n % half == 0 &&
        mist_cuda_check(device, cudaEventRecord(milestones[now], device->streams[stream]),
                        "cudaEventRecord"))
        check_stream(device, cudaEventSynchronize(milestones[1 - now]), stream);
}

static void submit(struct mist_device *base, enum mist_stream stream, mist_stream_fn fn,
                   void *arg)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (mist_device_has_failed(base))
        return;
    if (stream == MIST_STREAM_HOST) {
        device->n_jobs += !device->is_capturing;
        launch_call(device, stream, hand_over,
                    &(struct handed){.worker = device->worker, .fn = fn, .arg = arg},
                    sizeof(struct handed));
        return;
    }
    device->current = stream;
    fn(arg);
    device->current = MIST_STREAM_COMPUTE;
    /* What a body did not look at itself. */
    if (mist_cuda_check(device, cudaGetLastError(), "a launch") && !device->is_capturing)
        bound_run_ahead(device, stream);
}

static void record(struct mist_device *base, enum mist_stream stream, int32_t event)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (event >= device->n_events || mist_device_has_failed(base))
        return;
    if (mist_cuda_check(device,
                        cudaEventRecord(device->events[event], device->streams[stream]),
                        "cudaEventRecord"))
        device->recorded[event] = stream == MIST_STREAM_HOST ? 1 + device->n_jobs : 1;
}

static void wait_for(struct mist_device *base, enum mist_stream stream, int32_t event)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);
    struct mist_err err;

    if (event >= device->n_events || mist_device_has_failed(base))
        return;
    if (device->recorded[event] == 0) {
        mist_device_fail(base,
                         mist_err_set(&err, MIST_ERR_RUN,
                                      "the %s stream is to wait for event %ld, which "
                                      "nothing before it records",
                                      mist_stream_name(stream), (long)event),
                         &err);
        return;
    }
    mist_cuda_check(
        device, cudaStreamWaitEvent(device->streams[stream], device->events[event], 0),
        "cudaStreamWaitEvent");
    /* by then the work has been handed over, so it ends whatever this holds up */
    if (device->recorded[event] > 1)
        launch_call(device, stream, wait_for_jobs,
                    &(struct handed){.worker = device->worker,
                                     .n_jobs = device->recorded[event] - 1},
                    sizeof(struct handed));
}

static void wake(struct mist_device *device)
{
    if (mist_cuda_device_of(device)->worker)
        mist_cuda_worker_release(mist_cuda_device_of(device)->worker);
}

static void drain(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    for (int i = 0; i < MIST_N_STREAMS; i++)
        check_stream(device, cudaStreamSynchronize(device->streams[i]),
                     (enum mist_stream)i);
    mist_cuda_worker_wait(device->worker, INT64_MAX);
}

/* -------------------------------------------------------- inside the body of a task */

static void copy(struct mist_device *base, void *to, const void *from, int64_t bytes)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (bytes > 0 && !mist_device_has_failed(base))
        mist_cuda_check(device,
                        cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault,
                                        mist_cuda_current_stream(device)),
                        "cudaMemcpyAsync");
}

static void call_host(struct mist_device *base, mist_stream_fn fn, void *arg,
                      size_t arg_bytes)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    launch_call(device, device->current, fn, arg, arg_bytes);
}

static void fetch_results(struct mist_device *base)
{
    copy(base, base->host_results, base->results, base->result_bytes);
}

static enum mist_status start_spans(struct mist_device *device, struct mist_err *err)
{
    return mist_cuda_recorder_start(mist_cuda_device_of(device)->recorder, err);
}

static void begin_span(struct mist_device *device, int64_t id)
{
    mist_cuda_recorder_begin(mist_cuda_device_of(device)->recorder, id);
}

static void end_span(struct mist_device *device)
{
    mist_cuda_recorder_end(mist_cuda_device_of(device)->recorder);
}

/* Named ranges for a profiler that looks on, such as Nsight Systems, by NVTX: headers
 * alone, nothing to link. Without a profiler a range is a call through a pointer that is
 * NULL; without the headers it is nothing. */
static void begin_range(struct mist_device *device, const char *name, int64_t value)
{
    (void)device, (void)name, (void)value;
#ifdef NVTX_VERSION
    nvtxEventAttributes_t event = {.version = NVTX_VERSION,
                                   .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                   .payloadType = NVTX_PAYLOAD_TYPE_INT64,
                                   .messageType = NVTX_MESSAGE_TYPE_ASCII};

    event.payload.llValue = value;
    event.message.ascii = name;
    (void)nvtxRangePushEx(&event);
#endif
}

static void end_range(struct mist_device *device)
{
    (void)device;
#ifdef NVTX_VERSION
    (void)nvtxRangePop();
#endif
}

/* ------------------------------------------------------ from the host, streams idle */

static enum mist_status collect_spans(struct mist_device *device, mist_span_fn *fn,
                                      void *context, enum mist_span_loss *loss,
                                      struct mist_err *err)
{
    return mist_cuda_recorder_collect(mist_cuda_device_of(device)->recorder, fn, context,
                                      loss, err);
}

static int64_t used_bytes(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);
    size_t free_bytes, total_bytes;

    if (!use_device(device) ||
        !mist_cuda_check(device, cudaMemGetInfo(&free_bytes, &total_bytes),
                         "cudaMemGetInfo"))
        return -1;
    return (int64_t)(total_bytes - free_bytes);
}

static bool is_in_host_arena(const struct mist_device *device, const void *address)
{
    const char *first = device->arenas[MIST_ARENA_HOST];
    const char *at = address;

    return first && at >= first && at < first + device->arena_bytes[MIST_ARENA_HOST];
}

/* In the compute stream, since cudaMemcpy() is not ordered with streams that don't wait for
 * the default one. */
static enum mist_status transfer(struct mist_device *base, void *to, const void *from,
                                 int64_t bytes, const void *own, struct mist_err *err)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);
    cudaStream_t stream = device->streams[MIST_STREAM_COMPUTE];
    size_t n = (size_t)bytes;

    if (bytes == 0)
        return MIST_OK;
    if (is_in_host_arena(base, own)) {
        (void)(from ? memcpy(to, from, n) : memset(to, 0, n));
        return MIST_OK;
    }
    cudaError_t code = cudaSetDevice(device->i_device);
    if (code == cudaSuccess)
        code = from ? cudaMemcpyAsync(to, from, n, cudaMemcpyDefault, stream)
                    : cudaMemsetAsync(to, 0, n, stream);
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(stream);
    return mist_cuda_status(code,
                            own == from ? "reading device memory"
                            : from      ? "writing device memory"
                                        : "clearing device memory",
                            err);
}

/* -------------------------------------------------------------------------- closing */

static void close_device(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    /* Nothing of this can be mended: errors were reported by the last synchronize. */
    (void)cudaSetDevice(device->i_device);
    for (int i = 0; i < MIST_N_STREAMS; i++)
        if (device->streams[i])
            (void)cudaStreamSynchronize(device->streams[i]);
    mist_cuda_recorder_close(device->recorder);
    mist_cuda_graph_close(base);
    mist_cuda_worker_close(device->worker); /* failures up to here wake it */
    for (int32_t i = 0; i < device->n_created; i++)
        (void)cudaEventDestroy(device->events[i]);
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        for (int k = 0; k < 2; k++)
            if (device->milestones[i][k])
                (void)cudaEventDestroy(device->milestones[i][k]);
        if (device->streams[i])
            (void)cudaStreamDestroy(device->streams[i]);
        (void)cudaFree(device->workspaces[i]);
    }
    (void)cudaFree(base->results);
    (void)cudaFree(base->arenas[MIST_ARENA_DEVICE]);
    mist_cuda_host_free(base->host_results);
    mist_cuda_host_free(base->arenas[MIST_ARENA_HOST]);
    mist_cuda_host_calls_free(device->calls);
    free((void *)device->events);
    free(device->recorded);
    mist_device_fini(base);
    free(device);
}

static const struct mist_device_ops cuda_ops = {
    .name = "cuda",
    .close = close_device,
    .reset_events = reset_events,
    .submit = submit,
    .record = record,
    .wait = wait_for,
    .wake = wake,
    .drain = drain,
    .copy = copy,
    .call_host = call_host,
    .fetch_results = fetch_results,
    .begin_capture = mist_cuda_graph_begin,
    .end_capture = mist_cuda_graph_end,
    .replay = mist_cuda_graph_replay,
    .drop_capture = mist_cuda_graph_drop,
    .transfer = transfer,
    .begin_range = begin_range,
    .end_range = end_range,
    .used_bytes = used_bytes,
    .alloc_host = mist_cuda_host_alloc,
    .free_host = mist_cuda_host_free,
    .start_spans = start_spans,
    .begin_span = begin_span,
    .end_span = end_span,
    .collect_spans = collect_spans,
};

/* -------------------------------------------------------------------------- opening */

/* What others wait for goes before what only this rank needs. */
static enum mist_status make_streams(struct mist_cuda_device *device,
                                     struct mist_err *err)
{
    int least = 0, greatest = 0;
    enum mist_status status =
        mist_cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                         "cudaDeviceGetStreamPriorityRange", err);

    for (int i = 0; i < MIST_N_STREAMS && status == MIST_OK; i++) {
        enum mist_stream channel = mist_stream_channel((enum mist_stream)i);
        int priority = channel == MIST_STREAM_GPU_GPU ? greatest : least;
        status =
            mist_cuda_status(cudaStreamCreateWithPriority(
                                 &device->streams[i], cudaStreamNonBlocking, priority),
                             "cudaStreamCreateWithPriority", err);
        for (int k = 0; k < 2 && status == MIST_OK; k++)
            status = mist_cuda_status(
                cudaEventCreateWithFlags(&device->milestones[i][k],
                                         cudaEventDisableTiming | cudaEventBlockingSync),
                "cudaEventCreateWithFlags", err);
    }
    return status;
}

static enum mist_status clear_all(struct mist_cuda_device *device, struct mist_err *err)
{
    struct mist_device *base = &device->base;
    enum mist_status status = mist_device_clear(
        base, base->arenas[MIST_ARENA_DEVICE], base->arena_bytes[MIST_ARENA_DEVICE], err);

    return status == MIST_OK
               ? mist_device_clear(base, base->results, base->result_bytes, err)
               : status;
}

enum mist_status mist_cuda_device_open(const struct mist_device_config *config,
                                       struct mist_device **out, struct mist_err *err)
{
    enum mist_status status = mist_device_check(config, err);

    *out = NULL;
    if (status != MIST_OK)
        return status;
    struct mist_cuda_device *device = calloc(1, sizeof *device);
    if (!device)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a device");
    mist_device_init(&device->base, &cuda_ops, config);
    device->i_device = config->i_device;
    device->current = MIST_STREAM_COMPUTE;
    if ((status = mist_cuda_host_calls_new(&device->base, &device->calls, err)) ||
        (status = mist_cuda_worker_open(&device->base, &device->worker, err)) ||
        (status = mist_cuda_device_start(device, config->records, err)) ||
        (status = make_streams(device, err)) || (status = clear_all(device, err))) {
        mist_device_close(&device->base);
        return status;
    }
    *out = &device->base;
    return MIST_OK;
}
