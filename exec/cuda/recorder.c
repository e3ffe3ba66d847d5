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
#include "core/memory.h"
#include "exec/cuda/recorder_cupti.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUFFER_BYTES = 4 << 20,        /* of a buffer, about 15000 launches */
    N_BUFFERS = 4,                 /* made in advance; more when they run out */
    DEVICE_BUFFER_BYTES = 3200000, /* about 100000 kernels and copies in flight */
    N_DEVICE_BUFFERS = 3,          /* made in advance */
    N_CLOCK_READINGS = 32          /* of which the tightest counts */
};

struct mist_cuda_recorder {
    struct mist_cuda_matcher matcher; /* guarded by state.sink_mutex */
    struct mist_cuda_losses losses;   /* guarded by it; as of the last collect */
    struct mist_cuda_losses told;     /* what earlier collects returned */
    int64_t n_broken, n_dropped;      /* the first guarded by it */
    enum mist_status sink_status;     /* guarded by it: of adding to the matcher */
    atomic_int span_result;           /* first failure of a push or pop */
    struct mist_cuda_clock_pair last_pair;
    int64_t device_bytes;
};

/* CUPTI's callbacks carry no context, so what they use has to be global. */
static struct {
    pthread_mutex_t pool_mutex; /* guards the pool */
    uint8_t **pool;             /* owned; zeroed buffers of BUFFER_BYTES */
    size_t n_pool, capacity;
    pthread_mutex_t sink_mutex;      /* guards sink and what it says above */
    struct mist_cuda_recorder *sink; /* the open recorder, or NULL */
} state = {.pool_mutex = PTHREAD_MUTEX_INITIALIZER,
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

static uint8_t *new_buffer(void)
{
    uint8_t *buffer = aligned_alloc(64, BUFFER_BYTES);

    if (buffer)
        memset(buffer, 0, BUFFER_BYTES);
    return buffer;
}

static void put_buffer(uint8_t *buffer)
{
    pthread_mutex_lock(&state.pool_mutex);
    uint8_t **grown =
        mist_grow(state.pool, &state.capacity, state.n_pool + 1, sizeof *state.pool);
    if (grown) {
        state.pool = grown;
        state.pool[state.n_pool++] = buffer;
    }
    pthread_mutex_unlock(&state.pool_mutex);
    if (!grown)
        free(buffer);
}

static void free_pool(void)
{
    pthread_mutex_lock(&state.pool_mutex);
    while (state.n_pool > 0)
        free(state.pool[--state.n_pool]);
    free(state.pool);
    state.pool = NULL;
    state.capacity = 0;
    pthread_mutex_unlock(&state.pool_mutex);
}

/* Without a buffer CUPTI drops records, and counts them. */
static void CUPTIAPI on_request(uint8_t **buffer, size_t *n_bytes, size_t *max_records)
{
    *buffer = NULL;
    pthread_mutex_lock(&state.pool_mutex);
    if (state.n_pool > 0)
        *buffer = state.pool[--state.n_pool];
    pthread_mutex_unlock(&state.pool_mutex);
    if (!*buffer)
        *buffer = new_buffer();
    *n_bytes = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0; /* as many as fit */
}

static void CUPTIAPI on_complete(CUcontext context, uint32_t stream, uint8_t *buffer,
                                 size_t n_bytes, size_t n_valid)
{
    bool is_open;

    (void)context;
    (void)stream;
    (void)n_bytes;
    if (!buffer)
        return;
    pthread_mutex_lock(&state.sink_mutex);
    struct mist_cuda_recorder *recorder = state.sink;
    is_open = recorder != NULL;
    if (is_open) {
        enum mist_status status =
            mist_cuda_read_buffer(buffer, n_valid, cuptiActivityGetNextRecord,
                                  &recorder->matcher, &recorder->n_broken, NULL);
        if (recorder->sink_status == MIST_OK)
            recorder->sink_status = status;
    }
    pthread_mutex_unlock(&state.sink_mutex);
    if (!is_open) { /* comes after the close */
        free(buffer);
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

static void disable_kinds(int n)
{
    while (n > 0)
        (void)cuptiActivityDisable(kinds[--n]);
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

static enum mist_status enable(struct mist_cuda_recorder *recorder, struct mist_err *err)
{
    set_attributes(recorder);
    CUptiResult result = cuptiActivityRegisterCallbacks(on_request, on_complete);
    if (result != CUPTI_SUCCESS)
        return cupti_error(result, "cuptiActivityRegisterCallbacks", err);
    for (int i = 0; i < N_KINDS; i++) {
        result = cuptiActivityEnable(kinds[i]);
        if (result != CUPTI_SUCCESS) {
            disable_kinds(i);
            return cupti_error(result, "cuptiActivityEnable", err);
        }
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
    pthread_mutex_lock(&state.sink_mutex);
    bool is_free = !state.sink;
    if (is_free)
        state.sink = recorder;
    pthread_mutex_unlock(&state.sink_mutex);
    return is_free;
}

static void release(struct mist_cuda_recorder *recorder)
{
    pthread_mutex_lock(&state.sink_mutex);
    state.sink = NULL;
    pthread_mutex_unlock(&state.sink_mutex);
    free_pool();
    mist_cuda_matcher_fini(&recorder->matcher);
    free(recorder);
}

enum mist_status mist_cuda_recorder_open(struct mist_cuda_recorder **out,
                                         struct mist_err *err)
{
    struct mist_cuda_recorder *recorder = calloc(1, sizeof *recorder);
    enum mist_status status = MIST_OK;

    if (!recorder)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    mist_cuda_matcher_init(&recorder->matcher);
    atomic_init(&recorder->span_result, CUPTI_SUCCESS);
    if (!claim_sink(recorder)) {
        free(recorder);
        return mist_err_set(err, MIST_ERR_RUN,
                            "this process records a device already, and CUPTI can "
                            "record for one only");
    }
    for (int i = 0; i < N_BUFFERS && status == MIST_OK; i++) {
        uint8_t *buffer = new_buffer();
        if (buffer)
            put_buffer(buffer);
        else
            status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    if (status == MIST_OK)
        status = read_clocks(&recorder->last_pair, err);
    if (status == MIST_OK)
        status = enable(recorder, err);
    if (status != MIST_OK) {
        release(recorder);
        return status;
    }
    *out = recorder;
    return MIST_OK;
}

/* A buffer that CUPTI keeps in spite of the flush stays its own until it is completed. */
void mist_cuda_recorder_close(struct mist_cuda_recorder *recorder)
{
    if (!recorder)
        return;
    /* first, because CUPTI 13.0 may hang when kernels are disabled with records pending
     */
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    disable_kinds(N_KINDS);
    (void)cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    release(recorder);
}

int64_t mist_cuda_recorder_device_bytes(const struct mist_cuda_recorder *recorder)
{
    return recorder->device_bytes;
}

/* ------------------------------------------------------------------------------ spans */

static void note_span(struct mist_cuda_recorder *recorder, CUptiResult result)
{
    int none = CUPTI_SUCCESS;

    if (result != CUPTI_SUCCESS)
        atomic_compare_exchange_strong(&recorder->span_result, &none, (int)result);
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

/* ---------------------------------------------------------------------------- collect */

/* Has CUPTI bring all its buffers: first those that are complete, then the rest. With
 * idle streams nothing is left for the second; a record that it brings counts as untimed
 * if its times are missing. */
static enum mist_status flush(struct mist_cuda_recorder *recorder, struct mist_err *err)
{
    size_t n_dropped = 0;
    int span_result = atomic_exchange(&recorder->span_result, CUPTI_SUCCESS);
    CUptiResult result = cuptiActivityFlushAll(0);

    if (result == CUPTI_SUCCESS)
        result = cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (result != CUPTI_SUCCESS)
        return cupti_error(result, "cuptiActivityFlushAll", err);
    if (span_result != CUPTI_SUCCESS)
        return cupti_error((CUptiResult)span_result, "marking a span", err);
    result = cuptiActivityGetNumDroppedRecords(NULL, 0, &n_dropped);
    if (result != CUPTI_SUCCESS)
        return cupti_error(result, "cuptiActivityGetNumDroppedRecords", err);
    recorder->n_dropped += (int64_t)n_dropped;
    return MIST_OK;
}

static enum mist_status take(struct mist_cuda_recorder *recorder,
                             const struct mist_cuda_interval **intervals, size_t *n,
                             struct mist_err *err)
{
    pthread_mutex_lock(&state.sink_mutex);
    enum mist_status status = recorder->sink_status;
    recorder->sink_status = MIST_OK;
    if (status != MIST_OK)
        mist_err_set(err, status, "out of memory for the device's records");
    else
        status = mist_cuda_matcher_take(&recorder->matcher, intervals, n, err);
    recorder->losses = recorder->matcher.losses;
    recorder->losses.n_broken = recorder->n_broken;
    recorder->losses.n_dropped = recorder->n_dropped;
    pthread_mutex_unlock(&state.sink_mutex);
    return status;
}

/* Told once. */
static enum mist_status tell_losses(struct mist_cuda_recorder *recorder,
                                    struct mist_err *err)
{
    struct mist_cuda_losses now = recorder->losses, told = recorder->told;
    long long n_dropped = now.n_dropped - told.n_dropped;
    long long n_untimed = now.n_untimed - told.n_untimed;
    long long n_late = now.n_late - told.n_late;
    long long n_broken = now.n_broken - told.n_broken;

    recorder->told = now;
    if (n_dropped == 0 && n_untimed == 0 && n_late == 0 && n_broken == 0)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_RUN,
                        "the recording is incomplete: of the device's records %lld were "
                        "dropped, %lld have no times, %lld came too late, and %lld "
                        "buffers broke off; record fewer iterations at a time",
                        n_dropped, n_untimed, n_late, n_broken);
}

enum mist_status mist_cuda_recorder_collect_spans(struct mist_cuda_recorder *recorder,
                                                  mist_cuda_span_fn *fn, void *context,
                                                  struct mist_err *err)
{
    struct mist_cuda_clock_pair pair;
    struct mist_cuda_clock clock;
    const struct mist_cuda_interval *intervals = NULL;
    size_t n = 0;
    enum mist_status status = flush(recorder, err);

    if (status == MIST_OK)
        status = read_clocks(&pair, err);
    if (status != MIST_OK)
        return status;
    status = take(recorder, &intervals, &n, err);
    enum mist_status clocks = mist_cuda_clock_through(&recorder->last_pair, &pair, &clock,
                                                      status == MIST_OK ? err : NULL);
    recorder->last_pair = pair;
    if (status == MIST_OK)
        status = clocks;
    if (status != MIST_OK)
        return status;
    for (size_t i = 0; i < n; i++) {
        struct mist_cuda_span span = mist_cuda_clock_span(&clock, &intervals[i]);
        fn(context, &span);
    }
    return tell_losses(recorder, err);
}

struct narrow {
    mist_span_fn *fn;
    void *context;
};

static void call_narrow(void *context, const struct mist_cuda_span *span)
{
    const struct narrow *narrow = context;

    narrow->fn(narrow->context, span->id, span->start_s, span->end_s);
}

enum mist_status mist_cuda_recorder_collect(struct mist_cuda_recorder *recorder,
                                            mist_span_fn *fn, void *context,
                                            struct mist_err *err)
{
    struct narrow narrow = {fn, context};

    return mist_cuda_recorder_collect_spans(recorder, call_narrow, &narrow, err);
}

struct mist_cuda_losses
mist_cuda_recorder_losses(const struct mist_cuda_recorder *recorder)
{
    return recorder->losses;
}
