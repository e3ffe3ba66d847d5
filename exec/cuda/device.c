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
 * wait, as exec/device.h says.
 *
 * What is submitted to the host stream runs on a thread of its own (worker.h), in its
 * order; the stream's part is to hand it over when its turn has come. Its bodies compute
 * themselves and call nothing of the device but mist_device_fail().
 *
 * device_start.c starts CUDA and allocates.
 */
#include "exec/cuda/context.h"

#include "core/clock.h"
#include "exec/cuda/device_start.h"
#include "exec/cuda/host_memory.h"
#include "exec/cuda/recorder.h"
#include "exec/cuda/worker.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double poll_period_s = 1e-3;

/* Functions of the host under way, in chunks, so that a call keeps its address. */
enum { CALLS_PER_CHUNK = 256 };

struct host_call {
    struct mist_device *device;
    mist_stream_fn fn;
    void *arg;
    struct mist_cuda_job job; /* that is handed over */
    int64_t n_jobs;           /* that are waited for */
};

struct call_chunk {
    struct call_chunk *next;
    struct host_call calls[CALLS_PER_CHUNK];
};

struct mist_cuda_call_pool {
    struct call_chunk *first, *current; /* chunks behind current are free */
    int n_used;                         /* of current */
};

static bool has_failed(struct mist_device *device)
{
    return atomic_load(&device->has_failed);
}

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
    device->calls->current = device->calls->first;
    device->calls->n_used = 0;
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

/* NULL: out of memory. */
static struct host_call *take_call(struct mist_cuda_call_pool *pool)
{
    if (pool->n_used == CALLS_PER_CHUNK) {
        struct call_chunk *next = pool->current->next;
        if (!next)
            next = calloc(1, sizeof *next);
        if (!next)
            return NULL;
        pool->current->next = next;
        pool->current = next;
        pool->n_used = 0;
    }
    return &pool->current->calls[pool->n_used++];
}

/* A function of the host in a stream; it gets its call. */
static void launch_call(struct mist_cuda_device *device, cudaStream_t stream,
                        cudaHostFn_t run, const struct host_call *values)
{
    struct host_call *call = take_call(device->calls);
    struct mist_err err;

    if (!call) {
        mist_device_fail(&device->base,
                         mist_err_set(&err, MIST_ERR_MEMORY, "out of memory"), &err);
        return;
    }
    *call = *values;
    mist_cuda_check(device, cudaLaunchHostFunc(stream, run, call), "cudaLaunchHostFunc");
}

static void run_host_call(void *arg)
{
    struct host_call *call = arg;

    if (!has_failed(call->device))
        call->fn(call->arg);
}

static void hand_over(void *arg)
{
    struct host_call *call = arg;

    call->job = (struct mist_cuda_job){.fn = run_host_call, .arg = call};
    mist_cuda_worker_put(mist_cuda_device_of(call->device)->worker, &call->job);
}

static void wait_for_jobs(void *arg)
{
    struct host_call *call = arg;

    mist_cuda_worker_wait(mist_cuda_device_of(call->device)->worker, call->n_jobs);
}

static void submit(struct mist_device *base, enum mist_stream stream, mist_stream_fn fn,
                   void *arg)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (has_failed(base))
        return;
    if (stream == MIST_STREAM_HOST) {
        device->n_jobs++;
        launch_call(device, device->streams[stream], hand_over,
                    &(struct host_call){.device = base, .fn = fn, .arg = arg});
        return;
    }
    device->current = stream;
    fn(arg);
    device->current = MIST_STREAM_COMPUTE;
    /* What a body did not look at itself. */
    cudaError_t code = cudaGetLastError();
    if (code != cudaErrorNotReady) /* the answer of a query */
        mist_cuda_check(device, code, "a launch");
}

static void record(struct mist_device *base, enum mist_stream stream, int32_t event)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (event >= device->n_events || has_failed(base))
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

    if (event >= device->n_events || has_failed(base))
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
        launch_call(
            device, device->streams[stream], wait_for_jobs,
            &(struct host_call){.device = base, .n_jobs = device->recorded[event] - 1});
}

static void wake(struct mist_device *device)
{
    if (mist_cuda_device_of(device)->worker)
        mist_cuda_worker_release(mist_cuda_device_of(device)->worker);
}

/* As cudaStreamSynchronize(), with a look at the poll every now and then. */
static cudaError_t wait_polling(struct mist_cuda_device *device, cudaStream_t stream)
{
    double next_poll_s = mist_clock_now_s() + poll_period_s;
    struct mist_err err;
    cudaError_t code;

    while ((code = cudaStreamQuery(stream)) == cudaErrorNotReady) {
        if (mist_clock_now_s() >= next_poll_s) {
            enum mist_status status = device->poll(device->poll_context, &err);
            if (status != MIST_OK)
                mist_device_fail(&device->base, status, &err);
            next_poll_s = mist_clock_now_s() + poll_period_s;
        }
        sched_yield();
    }
    return code;
}

static void drain(struct mist_device *base)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    for (int i = 0; i < MIST_N_STREAMS; i++) {
        char what[64];
        snprintf(what, sizeof what, "work of the %s stream",
                 mist_stream_name((enum mist_stream)i));
        cudaError_t code = device->poll ? wait_polling(device, device->streams[i])
                                        : cudaStreamSynchronize(device->streams[i]);
        mist_cuda_check(device, code, what);
    }
    mist_cuda_worker_wait(device->worker, INT64_MAX);
    (void)cudaGetLastError(); /* "not ready" is no error of the next launch */
}

/*
 * The host's processors are free while the GPU computes, so who waits for another rank
 * need not sleep for its sake. (It may be a function in a stream that asks, and such a
 * one may not ask CUDA.)
 */
static bool is_computing(const struct mist_device *device)
{
    (void)device;
    return false;
}

/* -------------------------------------------------------- inside the body of a task */

static void copy(struct mist_device *base, void *to, const void *from, int64_t bytes)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (bytes > 0 && !has_failed(base))
        mist_cuda_check(device,
                        cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault,
                                        mist_cuda_current_stream(device)),
                        "cudaMemcpyAsync");
}

static void call_host(struct mist_device *base, mist_stream_fn fn, void *arg)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (!has_failed(base))
        launch_call(device, mist_cuda_current_stream(device), run_host_call,
                    &(struct host_call){.device = base, .fn = fn, .arg = arg});
}

static void fetch_results(struct mist_device *base)
{
    copy(base, base->host_results, base->results, base->result_bytes);
}

static void begin_span(struct mist_device *device, int64_t id)
{
    mist_cuda_recorder_begin(mist_cuda_device_of(device)->recorder, id);
}

static void end_span(struct mist_device *device)
{
    mist_cuda_recorder_end(mist_cuda_device_of(device)->recorder);
}

/* ------------------------------------------------------ from the host, streams idle */

static enum mist_status collect_spans(struct mist_device *device, mist_span_fn *fn,
                                      void *context, struct mist_err *err)
{
    return mist_cuda_recorder_collect(mist_cuda_device_of(device)->recorder, fn, context,
                                      err);
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

/* The copies of cudaMemcpy() are not ordered with streams that don't wait for the default
 * one; those of the compute stream are. */
static enum mist_status finish(const struct mist_cuda_device *device, cudaError_t code,
                               const char *what, struct mist_err *err)
{
    if (code == cudaSuccess)
        code = cudaStreamSynchronize(device->streams[MIST_STREAM_COMPUTE]);
    return mist_cuda_status(code, what, err);
}

static enum mist_status clear(struct mist_device *base, void *to, int64_t bytes,
                              struct mist_err *err)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (bytes == 0)
        return MIST_OK;
    if (is_in_host_arena(base, to)) {
        memset(to, 0, (size_t)bytes);
        return MIST_OK;
    }
    cudaError_t code = cudaSetDevice(device->i_device);
    if (code == cudaSuccess)
        code =
            cudaMemsetAsync(to, 0, (size_t)bytes, device->streams[MIST_STREAM_COMPUTE]);
    return finish(device, code, "clearing device memory", err);
}

static enum mist_status transfer(struct mist_device *base, void *to, const void *from,
                                 int64_t bytes, const void *own, const char *what,
                                 struct mist_err *err)
{
    struct mist_cuda_device *device = mist_cuda_device_of(base);

    if (bytes == 0)
        return MIST_OK;
    if (is_in_host_arena(base, own)) {
        memcpy(to, from, (size_t)bytes);
        return MIST_OK;
    }
    cudaError_t code = cudaSetDevice(device->i_device);
    if (code == cudaSuccess)
        code = cudaMemcpyAsync(to, from, (size_t)bytes, cudaMemcpyDefault,
                               device->streams[MIST_STREAM_COMPUTE]);
    return finish(device, code, what, err);
}

static enum mist_status write_memory(struct mist_device *device, void *to,
                                     const void *from, int64_t bytes,
                                     struct mist_err *err)
{
    return transfer(device, to, from, bytes, to, "writing device memory", err);
}

static enum mist_status read_memory(struct mist_device *device, void *to,
                                    const void *from, int64_t bytes, struct mist_err *err)
{
    return transfer(device, to, from, bytes, from, "reading device memory", err);
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
    mist_cuda_worker_close(device->worker);
    mist_cuda_recorder_close(device->recorder);
    for (int32_t i = 0; i < device->n_created; i++)
        (void)cudaEventDestroy(device->events[i]);
    for (int i = 0; i < MIST_N_STREAMS; i++) {
        if (device->streams[i])
            (void)cudaStreamDestroy(device->streams[i]);
        (void)cudaFree(device->workspaces[i]);
    }
    (void)cudaFree(base->results);
    (void)cudaFree(base->arenas[MIST_ARENA_DEVICE]);
    mist_cuda_host_free(base->host_results);
    mist_cuda_host_free(base->arenas[MIST_ARENA_HOST]);
    if (device->calls)
        for (struct call_chunk *chunk = device->calls->first, *next; chunk;
             chunk = next) {
            next = chunk->next;
            free(chunk);
        }
    free(device->calls);
    free((void *)device->events);
    free(device->recorded);
    mist_device_fini(base);
    free(device);
}

static const struct mist_device_ops plain_ops = {
    .name = "cuda",
    .close = close_device,
    .is_computing = is_computing,
    .reset_events = reset_events,
    .submit = submit,
    .record = record,
    .wait = wait_for,
    .wake = wake,
    .drain = drain,
    .copy = copy,
    .call_host = call_host,
    .fetch_results = fetch_results,
    .clear = clear,
    .write = write_memory,
    .read = read_memory,
    .used_bytes = used_bytes,
    .alloc_host = mist_cuda_host_alloc,
    .free_host = mist_cuda_host_free,
};

static const struct mist_device_ops recording_ops = {
    .name = "cuda",
    .close = close_device,
    .is_computing = is_computing,
    .reset_events = reset_events,
    .submit = submit,
    .record = record,
    .wait = wait_for,
    .wake = wake,
    .drain = drain,
    .copy = copy,
    .call_host = call_host,
    .fetch_results = fetch_results,
    .clear = clear,
    .write = write_memory,
    .read = read_memory,
    .used_bytes = used_bytes,
    .alloc_host = mist_cuda_host_alloc,
    .free_host = mist_cuda_host_free,
    .begin_span = begin_span,
    .end_span = end_span,
    .collect_spans = collect_spans,
};

/* -------------------------------------------------------------------------- opening */

static enum mist_status make_streams(struct mist_cuda_device *device,
                                     struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int i = 0; i < MIST_N_STREAMS && status == MIST_OK; i++)
        status = mist_cuda_status(
            cudaStreamCreateWithFlags(&device->streams[i], cudaStreamNonBlocking),
            "cudaStreamCreateWithFlags", err);
    if (status == MIST_OK)
        status = clear(&device->base, device->base.arenas[MIST_ARENA_DEVICE],
                       device->base.arena_bytes[MIST_ARENA_DEVICE], err);
    if (status == MIST_OK)
        status =
            clear(&device->base, device->base.results, device->base.result_bytes, err);
    return status;
}

enum mist_status mist_cuda_device_open(const struct mist_device_config *config,
                                       struct mist_device **out, struct mist_err *err)
{
    enum mist_status status = mist_cuda_device_check(config, err);

    *out = NULL;
    if (status != MIST_OK)
        return status;
    struct mist_cuda_device *device = calloc(1, sizeof *device);
    struct mist_cuda_call_pool *calls = calloc(1, sizeof *calls);
    struct call_chunk *chunk = calloc(1, sizeof *chunk);
    if (!device || !calls || !chunk) {
        free(device);
        free(calls);
        free(chunk);
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a device");
    }
    mist_device_init(&device->base, config->records ? &recording_ops : &plain_ops,
                     config);
    *calls = (struct mist_cuda_call_pool){.first = chunk, .current = chunk};
    device->calls = calls;
    device->i_device = config->i_device;
    device->current = MIST_STREAM_COMPUTE;
    status = mist_cuda_worker_open(&device->worker, err);
    if (status == MIST_OK)
        status = mist_cuda_device_start(device, config->records, err);
    if (status == MIST_OK)
        status = make_streams(device, err);
    if (status != MIST_OK) {
        mist_device_close(&device->base);
        return status;
    }
    *out = &device->base;
    return MIST_OK;
}
