/*
 * The recorder's life cycle on CUPTI's activity API. See recorder.h.
 *
 * CUPTI asks for empty buffers in the thread that launches and brings full ones back in a
 * thread of its own, which parses them there, so that a launch never waits for parsing:
 * the two sides have a mutex each. Neither is held while CUPTI is told to flush, for it
 * brings buffers back in that call. Clocks: no timestamp callback is registered, since
 * with one CUPTI 12.6 to 13.0 gives kernels invalid times.
 */
#include "exec/cuda/recorder.h"

#include "core/clock.h"
#include "exec/cuda/recorder_cupti.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFER_BYTES = 4 << 20,        /* of a buffer, about 15000 launches */
    N_BUFFERS = 4,                 /* made in advance */
    MAX_BUFFERS = 64,              /* then CUPTI drops records, and says so */
    DEVICE_BUFFER_BYTES = 3200000, /* about 100000 kernels and copies in flight */
    N_DEVICE_BUFFERS = 3,          /* made in advance */
    N_CLOCK_READINGS = 32          /* of which the tightest counts */
};

struct mist_cuda_recorder {
    struct mist_cuda_records records;       /* guarded by shared.sink_mutex */
    bool is_recording;                      /* started once: CUPTI notes everything */
    CUptiResult span_result;                /* first failure of a push or pop */
    struct mist_cuda_clock_pair begin, end; /* of the period; of the last that ended */
    int64_t device_bytes;
};

/* CUPTI's callbacks carry no context, so what they use has to be global. */
static struct {
    pthread_mutex_t pool_mutex;      /* guards the pool */
    uint8_t *pool[MAX_BUFFERS];      /* owned; zeroed buffers of BUFFER_BYTES */
    int n_pool, n_made;              /* there; these and those that CUPTI has */
    pthread_mutex_t sink_mutex;      /* guards sink and what it says above */
    struct mist_cuda_recorder *sink; /* the open recorder, or NULL */
} shared = {.pool_mutex = PTHREAD_MUTEX_INITIALIZER,
            .sink_mutex = PTHREAD_MUTEX_INITIALIZER};

static enum mist_status cupti_error(CUptiResult result, const char *what,
                                    struct mist_err *err)
{
    const char *text = NULL;

    if (cuptiGetResultString(result, &text) != CUPTI_SUCCESS || !text)
        text = "unknown error";
    return mist_err_set(err, MIST_ERR_RUN, "CUPTI: %s failed with %d, %s%s", what,
                        (int)result, text,
                        result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
                            ? ": another profiler is attached to this process"
                            : "");
}

/* ---------------------------------------------------------------------------- buffers */

/* NULL: out of memory, or there are as many as may be. */
static uint8_t *take_buffer(void)
{
    uint8_t *buffer = NULL;

    pthread_mutex_lock(&shared.pool_mutex);
    if (shared.n_pool > 0) {
        buffer = shared.pool[--shared.n_pool];
    } else if (shared.n_made < MAX_BUFFERS) {
        buffer = aligned_alloc(64, BUFFER_BYTES);
        shared.n_made += buffer != NULL;
        if (buffer)
            memset(buffer, 0, BUFFER_BYTES);
    }
    pthread_mutex_unlock(&shared.pool_mutex);
    return buffer;
}

static void put_buffer(uint8_t *buffer)
{
    pthread_mutex_lock(&shared.pool_mutex);
    shared.pool[shared.n_pool++] = buffer;
    pthread_mutex_unlock(&shared.pool_mutex);
}

static void drop_buffer(uint8_t *buffer)
{
    pthread_mutex_lock(&shared.pool_mutex);
    shared.n_made--;
    pthread_mutex_unlock(&shared.pool_mutex);
    free(buffer);
}

static void free_pool(void)
{
    pthread_mutex_lock(&shared.pool_mutex);
    shared.n_made -= shared.n_pool;
    while (shared.n_pool > 0)
        free(shared.pool[--shared.n_pool]);
    pthread_mutex_unlock(&shared.pool_mutex);
}

static void CUPTIAPI on_request(uint8_t **buffer, size_t *n_bytes, size_t *max_records)
{
    *buffer = take_buffer();
    *n_bytes = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t n_bytes, size_t n_valid)
{
    (void)context;
    (void)stream;
    (void)n_bytes;
    if (!buffer)
        return;
    pthread_mutex_lock(&shared.sink_mutex);
    struct mist_cuda_recorder *recorder = shared.sink;
    if (recorder)
        mist_cuda_read_buffer(buffer, n_valid, cuptiActivityGetNextRecord,
                              &recorder->records);
    pthread_mutex_unlock(&shared.sink_mutex);
    if (!recorder) { /* comes after the close */
        drop_buffer(buffer);
        return;
    }
    memset(buffer, 0, BUFFER_BYTES);
    put_buffer(buffer);
}

/* ------------------------------------------------------------------------------- open */

/* External correlation records come with those of API calls only, of the runtime or,
 * where a library calls it directly, of the driver. KIND_KERNEL would serialise. */
static const CUpti_ActivityKind kinds[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
    CUPTI_ACTIVITY_KIND_RUNTIME,
    CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMCPY2,
    CUPTI_ACTIVITY_KIND_MEMSET,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Frequent calls that launch nothing. */
static const CUpti_CallbackId quiet_runtime[] = {
    CUPTI_RUNTIME_TRACE_CBID_cudaGetLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaPeekAtLastError_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaSetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaGetDevice_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaDeviceGetAttribute_v5000,
    CUPTI_RUNTIME_TRACE_CBID_cudaPointerGetAttributes_v4000,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncGetAttributes_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaFuncSetAttribute_v9000,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreate_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventCreateWithFlags_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventDestroy_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventRecord_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventRecordWithFlags_v11010,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaEventSynchronize_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamQuery_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamWaitEvent_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamSynchronize_v3020,
    CUPTI_RUNTIME_TRACE_CBID_cudaStreamIsCapturing_v10000,
};
static const CUpti_CallbackId quiet_driver[] = {
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetCurrent,
    CUPTI_DRIVER_TRACE_CBID_cuCtxSetCurrent,
    CUPTI_DRIVER_TRACE_CBID_cuCtxGetDevice,
    CUPTI_DRIVER_TRACE_CBID_cuCtxPushCurrent_v2,
    CUPTI_DRIVER_TRACE_CBID_cuCtxPopCurrent_v2,
    CUPTI_DRIVER_TRACE_CBID_cuDevicePrimaryCtxGetState,
    CUPTI_DRIVER_TRACE_CBID_cuDeviceGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuPointerGetAttributes,
    CUPTI_DRIVER_TRACE_CBID_cuFuncGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuFuncSetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelSetAttribute,
    CUPTI_DRIVER_TRACE_CBID_cuKernelGetFunction,
    CUPTI_DRIVER_TRACE_CBID_cuEventRecord,
    CUPTI_DRIVER_TRACE_CBID_cuEventRecordWithFlags,
    CUPTI_DRIVER_TRACE_CBID_cuEventQuery,
    CUPTI_DRIVER_TRACE_CBID_cuStreamWaitEvent,
    CUPTI_DRIVER_TRACE_CBID_cuStreamWriteValue32_v2,
    CUPTI_DRIVER_TRACE_CBID_cuStreamIsCapturing,
    CUPTI_DRIVER_TRACE_CBID_cuTensorMapEncodeTiled,
};

/* A wish: what CUPTI holds against it costs speed only. */
static void wish_size(CUpti_ActivityAttribute attribute, size_t value)
{
    size_t n_bytes = sizeof value;

    (void)cuptiActivitySetAttribute(attribute, &n_bytes, &value);
}

/* Sizes as they are in force afterwards. */
static size_t size_of(CUpti_ActivityAttribute attribute)
{
    size_t value = 0, n_bytes = sizeof value;

    if (cuptiActivityGetAttribute(attribute, &n_bytes, &value) != CUPTI_SUCCESS)
        return 0;
    return value;
}

static void set_attributes(struct mist_cuda_recorder *recorder)
{
    uint8_t is_zeroed = 1;
    size_t n_bytes = sizeof is_zeroed;

    wish_size(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE, DEVICE_BUFFER_BYTES);
    wish_size(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE, N_DEVICE_BUFFERS);
    (void)cuptiActivitySetAttribute(CUPTI_ACTIVITY_ATTR_ZEROED_OUT_ACTIVITY_BUFFER,
                                    &n_bytes, &is_zeroed);
    recorder->device_bytes =
        (int64_t)(size_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE) *
                  size_of(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_PRE_ALLOCATE_VALUE));
}

/* Both clocks at once: the tightest bracket of several, its middle. */
static enum mist_status read_clocks(struct mist_cuda_clock_pair *out,
                                    struct mist_err *err)
{
    double tightest_s = 0;

    for (int i = 0; i < N_CLOCK_READINGS; i++) {
        uint64_t cupti_ns = 0;
        double before_s = mist_clock_now_s();
        CUptiResult result = cuptiGetTimestamp(&cupti_ns);
        double after_s = mist_clock_now_s();
        if (result != CUPTI_SUCCESS)
            return cupti_error(result, "cuptiGetTimestamp", err);
        if (i == 0 || after_s - before_s < tightest_s) {
            tightest_s = after_s - before_s;
            *out = (struct mist_cuda_clock_pair){cupti_ns,
                                                 before_s + 0.5 * (after_s - before_s)};
        }
    }
    return MIST_OK;
}

/* The first kind makes no record without the others, but CUPTI is attached,
 * or refuses. */
static enum mist_status attach(struct mist_cuda_recorder *recorder, struct mist_err *err)
{
    set_attributes(recorder);
    CUptiResult result = cuptiActivityRegisterCallbacks(on_request, on_complete);
    if (result != CUPTI_SUCCESS)
        return cupti_error(result, "cuptiActivityRegisterCallbacks", err);
    result = cuptiActivityEnable(kinds[0]);
    return result == CUPTI_SUCCESS ? MIST_OK
                                   : cupti_error(result, "cuptiActivityEnable", err);
}

static enum mist_status enable(struct mist_err *err)
{
    uint8_t *buffers[N_BUFFERS];

    for (int i = 0; i < N_BUFFERS; i++)
        buffers[i] = take_buffer();
    for (int i = 0; i < N_BUFFERS; i++)
        if (buffers[i])
            put_buffer(buffers[i]);
    for (int i = 1; i < N_KINDS; i++) {
        CUptiResult result = cuptiActivityEnable(kinds[i]);
        if (result != CUPTI_SUCCESS)
            return cupti_error(result, "cuptiActivityEnable", err);
    }
    /* after the kinds, which override it; only to have fewer records */
    for (size_t i = 0; i < sizeof quiet_runtime / sizeof *quiet_runtime; i++)
        (void)cuptiActivityEnableRuntimeApi(quiet_runtime[i], 0);
    for (size_t i = 0; i < sizeof quiet_driver / sizeof *quiet_driver; i++)
        (void)cuptiActivityEnableDriverApi(quiet_driver[i], 0);
    return MIST_OK;
}

/* Only one at a time: false when another is open. */
static bool claim_sink(struct mist_cuda_recorder *recorder)
{
    pthread_mutex_lock(&shared.sink_mutex);
    bool is_free = !shared.sink;
    if (is_free)
        shared.sink = recorder;
    pthread_mutex_unlock(&shared.sink_mutex);
    return is_free;
}

enum mist_status mist_cuda_recorder_open(struct mist_cuda_recorder **out,
                                         struct mist_err *err)
{
    struct mist_cuda_recorder *recorder = calloc(1, sizeof *recorder);

    if (!recorder)
        return mist_err_memory(err, NULL);
    mist_cuda_records_clear(&recorder->records);
    if (!claim_sink(recorder)) {
        free(recorder);
        return mist_err_set(err, MIST_ERR_RUN,
                            "this process records a device already, and CUPTI can "
                            "record for one only");
    }
    enum mist_status status = attach(recorder, err);
    if (status == MIST_OK)
        *out = recorder;
    else
        mist_cuda_recorder_close(recorder);
    return status;
}

/* A buffer that CUPTI keeps in spite of the flush stays its own until it is completed. */
void mist_cuda_recorder_close(struct mist_cuda_recorder *recorder)
{
    if (!recorder)
        return;
    /* first, because CUPTI 13.0 may hang when kernels are disabled with
     * records pending */
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    for (int i = recorder->is_recording ? N_KINDS : 1; i > 0;)
        (void)cuptiActivityDisable(kinds[--i]);
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    pthread_mutex_lock(&shared.sink_mutex);
    shared.sink = NULL;
    pthread_mutex_unlock(&shared.sink_mutex);
    free_pool();
    mist_cuda_records_clear(&recorder->records);
    free(recorder);
}

int64_t mist_cuda_recorder_device_bytes(const struct mist_cuda_recorder *recorder)
{
    return recorder->device_bytes;
}

/* ---------------------------------------------------------------------------- periods */

/* With the mutex of the sink. */
static void begin_period(struct mist_cuda_recorder *recorder,
                         const struct mist_cuda_clock_pair *begin)
{
    recorder->begin = *begin;
    mist_cuda_records_begin(&recorder->records, recorder->end.cupti_ns, begin->cupti_ns);
}

enum mist_status mist_cuda_recorder_start(struct mist_cuda_recorder *recorder,
                                          struct mist_err *err)
{
    struct mist_cuda_clock_pair now;
    bool is_first = !recorder->is_recording;

    recorder->is_recording = true; /* some kinds at least */
    enum mist_status status = is_first ? enable(err) : MIST_OK;
    if (status == MIST_OK)
        status = read_clocks(&now, err);
    if (status != MIST_OK)
        return status;
    pthread_mutex_lock(&shared.sink_mutex);
    begin_period(recorder, &now);
    pthread_mutex_unlock(&shared.sink_mutex);
    return MIST_OK;
}

static void note_span(struct mist_cuda_recorder *recorder, CUptiResult result)
{
    if (recorder->span_result == CUPTI_SUCCESS)
        recorder->span_result = result;
}

void mist_cuda_recorder_begin(struct mist_cuda_recorder *recorder, int64_t id)
{
    note_span(recorder,
              cuptiActivityPushExternalCorrelationId(MIST_CUDA_SPAN_KIND, (uint64_t)id));
}

void mist_cuda_recorder_end(struct mist_cuda_recorder *recorder)
{
    uint64_t id;

    note_span(recorder, cuptiActivityPopExternalCorrelationId(MIST_CUDA_SPAN_KIND, &id));
}

/* Has CUPTI bring all its buffers: first those that are complete, then the rest. With
 * idle streams nothing is left for the second; a record that it brings counts as lost if
 * its times are missing. */
static enum mist_status flush(struct mist_cuda_recorder *recorder, size_t *n_dropped,
                              struct mist_err *err)
{
    CUptiResult span_result = recorder->span_result;
    CUptiResult result = cuptiActivityFlushAll(0);

    recorder->span_result = CUPTI_SUCCESS;
    if (result == CUPTI_SUCCESS)
        result = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (result != CUPTI_SUCCESS)
        return cupti_error(result, "cuptiActivityFlushAll", err);
    if (span_result != CUPTI_SUCCESS)
        return cupti_error(span_result, "marking a span", err);
    result = cuptiActivityGetNumDroppedRecords(NULL, 0, n_dropped);
    return result == CUPTI_SUCCESS
               ? MIST_OK
               : cupti_error(result, "cuptiActivityGetNumDroppedRecords", err);
}

/* Hands out the period's work, n of it. */
static void tell(const struct mist_cuda_records *records, size_t n,
                 const struct mist_cuda_clock *clock, mist_span_fn *fn, void *context)
{
    for (size_t i = 0; i < n; i++) {
        const struct mist_cuda_work *work = &records->works[i];
        struct mist_span_work out = {.id = work->id,
                                     .name = work->name > 0 ? records->names[work->name]
                                                            : "other kernels",
                                     .start_s = mist_cuda_clock_at(clock, work->start_ns),
                                     .end_s = mist_cuda_clock_at(clock, work->end_ns)};
        fn(context, &out);
    }
}

enum mist_status mist_cuda_recorder_collect(struct mist_cuda_recorder *recorder,
                                            mist_span_fn *fn, void *context,
                                            enum mist_span_loss *loss,
                                            struct mist_err *err)
{
    struct mist_cuda_records *records = &recorder->records;
    struct mist_cuda_clock clock;
    size_t n_dropped = 0;
    enum mist_status status = flush(recorder, &n_dropped, err);

    if (status == MIST_OK)
        status = read_clocks(&recorder->end, err);
    if (status != MIST_OK)
        return status;
    pthread_mutex_lock(&shared.sink_mutex);
    size_t n = mist_cuda_records_join(records);
    *loss = !mist_cuda_clock_through(&recorder->begin, &recorder->end, &clock)
                ? MIST_SPANS_CLOCK_SET
            : records->has_no_room                 ? MIST_SPANS_TOO_MANY
            : records->n_lost > 0 || n_dropped > 0 ? MIST_SPANS_INCOMPLETE
                                                   : MIST_SPANS_WHOLE;
    if (*loss == MIST_SPANS_WHOLE)
        tell(records, n, &clock, fn, context);
    begin_period(recorder, &recorder->end);
    pthread_mutex_unlock(&shared.sink_mutex);
    return MIST_OK;
}
