/*
 * The CUDA recorder against CUPTI's own structs, without a GPU: buffers composed of them
 * become work of spans, and the life cycle runs on an imitation of CUPTI. Skipped without
 * CUPTI's headers. The sources are included, so that the imitation's functions stand in
 * for the library's.
 */
#include "tests/unit/test.h"

#if __has_include(<cupti.h>)
#include "exec/cuda/recorder.c"
#include "exec/cuda/recorder_cupti.c"
#include "exec/cuda/recorder_match.c"

#include <dlfcn.h>

#define NS0 UINT64_C(1795270089955996324) /* a time of day */

/* ----------------------------------------------------- buffers of CUPTI's own structs */

/* Steps through a buffer by the sizes of the structs: a second implementation. */
static CUptiResult step(uint8_t *buffer, size_t n_bytes, CUpti_Activity **record)
{
    size_t at = 0, size = 0;

    for (uint8_t *previous = (uint8_t *)*record;; previous = NULL) {
        CUpti_ActivityKind kind = CUPTI_ACTIVITY_KIND_INVALID;
        if (previous)
            at = (size_t)(previous - buffer);
        if (n_bytes - at < 8)
            return CUPTI_ERROR_MAX_LIMIT_REACHED;
        memcpy(&kind, buffer + at, sizeof kind);
        size = kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION
                   ? sizeof(CUpti_ActivityExternalCorrelation)
               : kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL ? sizeof(kernel_record)
               : kind == CUPTI_ACTIVITY_KIND_MEMCPY            ? sizeof(memcpy_record)
               : kind == CUPTI_ACTIVITY_KIND_MEMCPY2           ? sizeof(peer_copy_record)
               : kind == CUPTI_ACTIVITY_KIND_MEMSET            ? sizeof(memset_record)
               : kind == CUPTI_ACTIVITY_KIND_RUNTIME || kind == CUPTI_ACTIVITY_KIND_DRIVER
                   ? sizeof(CUpti_ActivityAPI)
               : kind == CUPTI_ACTIVITY_KIND_NAME ? sizeof(CUpti_ActivityName)
                                                  : 0;
        if (size == 0)
            return CUPTI_ERROR_INVALID_KIND;
        if (!previous) {
            *record = (CUpti_Activity *)(void *)(buffer + at);
            return CUPTI_SUCCESS;
        }
        at += size;
    }
}

/* cuptiActivityGetNextRecord of the library, which needs no driver; else the own. */
static mist_cuda_next_fn *next_of_library(void)
{
    const char *const names[] = {"libcupti.so.13", "libcupti.so.12",
                                 "/usr/local/cuda/lib64/libcupti.so",
                                 "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so"};
    mist_cuda_next_fn *next = NULL;

    for (size_t i = 0; i < sizeof names / sizeof *names && !next; i++) {
        void *library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
        uint32_t version = 0;
        CUptiResult (*get_version)(uint32_t *) = NULL;
        if (!library)
            continue;
        *(void **)(&get_version) = dlsym(library, "cuptiGetVersion");
        if (get_version && get_version(&version) == CUPTI_SUCCESS &&
            version == CUPTI_API_VERSION)
            *(void **)(&next) = dlsym(library, "cuptiActivityGetNextRecord");
    }
    printf("# records are stepped through by %s\n", next ? "libcupti" : "the test");
    return next ? next : step;
}

/* A buffer that is being composed. */
struct bytes {
    _Alignas(8) uint8_t bytes[1 << 16];
    size_t n;
};

static void append(struct bytes *buffer, const void *record, size_t size)
{
    assert_true(buffer->n + size <= sizeof buffer->bytes);
    memcpy(buffer->bytes + buffer->n, record, size);
    buffer->n += size;
}

static void append_external(struct bytes *buffer, CUpti_ExternalCorrelationKind kind,
                            uint32_t call, uint64_t id)
{
    CUpti_ActivityExternalCorrelation record = {
        .kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION,
        .externalKind = kind,
        .externalId = id,
        .correlationId = call};

    append(buffer, &record, sizeof record);
}

static void append_call(struct bytes *buffer, CUpti_ActivityKind kind, uint32_t call)
{
    CUpti_ActivityAPI record = {
        .kind = kind, .cbid = 211, .start = 1, .end = 2, .correlationId = call};

    append(buffer, &record, sizeof record);
}

/* Fields beside the ones that are read hold what would be seen if they were. */
static void append_work(struct bytes *buffer, CUpti_ActivityKind kind, uint32_t call,
                        uint64_t start_ns, uint64_t end_ns)
{
    kernel_record kernel;
    memcpy_record copy;
    peer_copy_record peer;
    memset_record fill;

#define SET(record)                                                                      \
    memset(&record, 0x5a, sizeof record),                                                \
        record.kind = kind, record.correlationId = call, record.start = start_ns,        \
        record.end = end_ns
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        SET(kernel);
        kernel.name = call % 2 ? "_Z4evenIfEvPT_" : "odd";
        append(buffer, &kernel, sizeof kernel);
    } else if (kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        SET(copy);
        copy.copyKind = CUPTI_ACTIVITY_MEMCPY_KIND_HTOD;
        append(buffer, &copy, sizeof copy);
    } else if (kind == CUPTI_ACTIVITY_KIND_MEMCPY2) {
        SET(peer);
        append(buffer, &peer, sizeof peer);
    } else {
        SET(fill);
        append(buffer, &fill, sizeof fill);
    }
#undef SET
}

static const CUpti_ActivityKind work_kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY2};

/* What is of no interest stays out; a record that breaks off is counted. */
TEST(test_translate)
{
    static const char *const names[] = {"_Z4evenIfEvPT_", "copy host to device", "fill",
                                        "copy between devices"};
    static struct bytes buffer;
    struct mist_cuda_records records = {0};
    mist_cuda_next_fn *next = next_of_library();
    CUpti_ActivityName name = {.kind = CUPTI_ACTIVITY_KIND_NAME};

    buffer.n = 0;
    for (uint32_t i = 0; i < 4; i++) {
        append_external(&buffer, MIST_CUDA_SPAN_KIND, i + 1, UINT64_C(1) << (20 * i / 2));
        append_external(&buffer, CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM1, i + 1, 99);
        append_call(&buffer,
                    i % 2 ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME,
                    i + 1);
        append(&buffer, &name, sizeof name);
        append_work(&buffer, work_kinds[i], i + 1, NS0 + i, NS0 + 10 * i);
    }
    mist_cuda_records_clear(&records);
    mist_cuda_read_buffer(buffer.bytes, buffer.n, next, &records);
    assert_int_equal(mist_cuda_records_join(&records), 4);
    assert_int_equal(records.n_lost, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const struct mist_cuda_work *work = &records.works[i];
        assert_int_equal(work->id, INT64_C(1) << (20 * i / 2));
        assert_int_equal(work->start_ns, NS0 + i);
        assert_int_equal(work->end_ns, NS0 + 10 * i);
        assert_string_equal(records.names[work->name], names[i]);
    }
    uint32_t nonsense[6] = {777};
    append(&buffer, nonsense, sizeof nonsense);
    mist_cuda_read_buffer(buffer.bytes, buffer.n, next, &records);
    assert_int_equal(records.n_lost, 1);
    mist_cuda_records_clear(&records);
}

/* ---------------------------------------------------------- an imitation of CUPTI */

/*
 * Launches of one thread. A call gets a record of every pushed id and its own; its work
 * is noted at once, or kept back until the next launch to land in another buffer.
 * Buffers hold few records, so that many are asked for and brought back.
 */
static struct {
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    bool is_enabled[CUPTI_ACTIVITY_KIND_COUNT];
    CUpti_ActivityKind refused_kind; /* enabling it fails */
    CUptiResult refusal, push_result;
    uint64_t ids[4];
    int n_ids;
    uint32_t call;
    uint8_t *buffer; /* that CUPTI has */
    size_t n_bytes, capacity;
    int n_held, n_requests, n_calls; /* of CUPTI */
    size_t n_dropped;
    bool is_incomplete; /* work without times keeps a buffer until a forced flush */
    int64_t offset_ns;  /* of the time of day, changed when it is set */
} fake;

/* The time of day at a time of mist_clock_now_s(). */
static uint64_t fake_ns_at(double time_s)
{
    return NS0 + (uint64_t)(int64_t)(1e9 * time_s) + (uint64_t)fake.offset_ns;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = fake_ns_at(mist_clock_now_s());
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_SUCCESS ? "none" : "refused";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute attribute, size_t *n_bytes,
                                      void *value)
{
    (void)attribute, (void)n_bytes, (void)value;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetAttribute(CUpti_ActivityAttribute attribute, size_t *n_bytes,
                                      void *value)
{
    size_t size = attribute == CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_SIZE ? 1000 : 3;

    assert_int_equal(*n_bytes, sizeof size);
    memcpy(value, &size, sizeof size);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    fake.request = request;
    fake.complete = complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    if (kind == fake.refused_kind)
        return fake.refusal;
    fake.is_enabled[kind] = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind)
{
    fake.is_enabled[kind] = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableRuntimeApi(CUpti_CallbackId cbid, uint8_t enable)
{
    assert_true(fake.is_enabled[CUPTI_ACTIVITY_KIND_RUNTIME] && !enable);
    assert_int_not_equal(cbid, CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnableDriverApi(CUpti_CallbackId cbid, uint8_t enable)
{
    assert_true(fake.is_enabled[CUPTI_ACTIVITY_KIND_DRIVER] && !enable);
    assert_int_not_equal(cbid, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                   uint64_t id)
{
    assert_int_equal(kind, MIST_CUDA_SPAN_KIND);
    fake.n_calls++;
    fake.ids[fake.n_ids++] = id;
    return fake.push_result;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t *id)
{
    assert_int_equal(kind, MIST_CUDA_SPAN_KIND);
    assert_true(fake.n_ids > 0);
    fake.n_calls++;
    *id = fake.ids[--fake.n_ids];
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t n_bytes,
                                       CUpti_Activity **record)
{
    return step(buffer, n_bytes, record);
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream,
                                              size_t *n_dropped)
{
    assert_true(!context && !stream);
    *n_dropped = fake.n_dropped;
    fake.n_dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag)
{
    uint8_t *buffer = fake.buffer;

    fake.n_calls++;
    if (buffer && (flag == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED || !fake.is_incomplete)) {
        fake.buffer = NULL;
        fake.n_held--;
        fake.complete(NULL, 0, buffer, fake.capacity, fake.n_bytes);
    }
    return CUPTI_SUCCESS;
}

/* Room for a record in a zeroed buffer. */
static void fake_append(const struct bytes *record)
{
    if (fake.buffer && fake.n_bytes + record->n > 2000)
        assert_int_equal(cuptiActivityFlushAll(0), CUPTI_SUCCESS);
    if (!fake.buffer) {
        size_t max_records = 1;
        fake.request(&fake.buffer, &fake.capacity, &max_records);
        assert_true(fake.buffer && fake.capacity >= 1 << 20 && max_records == 0);
        assert_int_equal((uintptr_t)fake.buffer % 8, 0);
        for (size_t i = 0; i < 4096; i++)
            assert_int_equal(fake.buffer[i], 0);
        fake.n_requests++;
        fake.n_held++;
        fake.n_bytes = 0;
    }
    memcpy(fake.buffer + fake.n_bytes, record->bytes, record->n);
    fake.n_bytes += record->n;
}

/* A kernel that ran from .. to, on the clock of mist_clock_now_s(). */
static void fake_launch(double start_s, double end_s)
{
    static struct bytes record;

    fake.call++;
    if (!fake.is_enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL])
        return;
    for (int i = 0; i < fake.n_ids; i++) {
        record.n = 0;
        append_external(&record, MIST_CUDA_SPAN_KIND, fake.call, fake.ids[i]);
        fake_append(&record);
    }
    record.n = 0;
    append_call(&record, CUPTI_ACTIVITY_KIND_RUNTIME, fake.call);
    fake_append(&record);
    record.n = 0;
    append_work(&record, work_kinds[fake.call % 4], fake.call, fake_ns_at(start_s),
                fake_ns_at(end_s));
    fake_append(&record);
}

struct collected {
    struct mist_span_work works[512];
    size_t n;
};

static void collect_work(void *context, const struct mist_span_work *work)
{
    struct collected *collected = context;

    collected->works[collected->n++] = *work;
}

static enum mist_span_loss collect(struct mist_cuda_recorder *recorder,
                                   struct collected *collected)
{
    enum mist_span_loss loss = MIST_SPANS_WHOLE;

    collected->n = 0;
    assert_int_equal(
        mist_cuda_recorder_collect(recorder, collect_work, collected, &loss, NULL),
        MIST_OK);
    assert_true(loss == MIST_SPANS_WHOLE || collected->n == 0);
    return loss;
}

static struct mist_cuda_recorder *open_fake(void)
{
    struct mist_cuda_recorder *recorder = NULL;

    memset(&fake, 0, sizeof fake);
    fake.push_result = CUPTI_SUCCESS;
    assert_int_equal(mist_cuda_recorder_open(&recorder, NULL), MIST_OK);
    return recorder;
}

static struct mist_cuda_recorder *start_fake(void)
{
    struct mist_cuda_recorder *recorder = open_fake();

    assert_int_equal(mist_cuda_recorder_start(recorder, NULL), MIST_OK);
    return recorder;
}

/* Nothing is enabled and no buffer is out any more. */
static void close_fake(struct mist_cuda_recorder *recorder)
{
    mist_cuda_recorder_close(recorder);
    assert_int_equal(fake.n_held, 0);
    for (int i = 0; i < CUPTI_ACTIVITY_KIND_COUNT; i++)
        assert_false(fake.is_enabled[i]);
    assert_true(!shared.sink && shared.n_pool == 0);
}

/* Spans of 0 to 3 works, in no order of time, and works of no span between them. */
static void launch_spans(struct mist_cuda_recorder *recorder, double origin_s)
{
    for (int id = 99; id >= 0; id--) {
        double start_s = origin_s + 0.01 * id;
        mist_cuda_recorder_begin(recorder, id);
        for (int k = 0; k < id % 4; k++)
            fake_launch(start_s + 1e-3 * k, start_s + 1e-3 * k + 5e-4);
        mist_cuda_recorder_end(recorder);
        fake_launch(start_s, 2 * start_s);
    }
}

TEST(test_record)
{
    struct mist_cuda_recorder *recorder = open_fake();
    struct collected collected;
    int n_launches = 0;

    assert_int_equal(mist_cuda_recorder_device_bytes(recorder), 3000);
    for (int kind = 0; kind < CUPTI_ACTIVITY_KIND_COUNT; kind++) /* only attached */
        assert_int_equal(fake.is_enabled[kind],
                         kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION);
    fake_launch(1, 2);
    assert_int_equal(fake.n_requests + fake.n_calls, 0);
    assert_int_equal(shared.n_made, 0);
    for (int round = 0; round < 4; round++) { /* the same ids again */
        if (round != 1)
            assert_int_equal(mist_cuda_recorder_start(recorder, NULL), MIST_OK);
        assert_true(fake.is_enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]);
        assert_false(fake.is_enabled[CUPTI_ACTIVITY_KIND_KERNEL]);
        double origin_s = mist_clock_now_s();
        fake.n_calls = 0;
        launch_spans(recorder, origin_s);
        n_launches = fake.n_requests;
        assert_int_equal(collect(recorder, &collected), MIST_SPANS_WHOLE);
        /* two calls for a span, and two flushes beside those of full buffers */
        assert_true(fake.n_calls <= 2 * 100 + 2 + fake.n_requests);
        assert_int_equal(collected.n, 25 * (1 + 2 + 3));
        for (size_t i = 0, id = 1, k = 0; i < collected.n; i++, k++) {
            const struct mist_span_work *work = &collected.works[i];
            if (k == id % 4)
                k = 0, id += id % 4 == 3 ? 2 : 1;
            double start_s = origin_s + 0.01 * (double)id + 1e-3 * (double)k;
            assert_int_equal(work->id, id);
            assert_true(fabs(work->start_s - start_s) < 1e-3);
            assert_true(fabs(work->end_s - work->start_s - 5e-4) < 1e-6);
            assert_true(strlen(work->name) > 2);
        }
        fake_launch(mist_clock_now_s(), mist_clock_now_s()); /* between periods */
    }
    assert_true(n_launches > 10);
    close_fake(recorder);
}

static void launch_one(struct mist_cuda_recorder *recorder)
{
    double now_s = mist_clock_now_s();

    mist_cuda_recorder_begin(recorder, 5);
    fake_launch(now_s, now_s + 1e-3);
    mist_cuda_recorder_end(recorder);
}

/* Each costs its period, and the next one is whole. */
TEST(test_losses)
{
    struct mist_cuda_recorder *recorder = start_fake();
    struct collected collected;
    struct mist_err err = {0};
    double now_s = mist_clock_now_s();

    for (int i = 0; i < 6; i++) {
        launch_one(recorder);
        if (i == 0)
            fake.n_dropped = 17;
        if (i == 1) { /* without times, in a buffer that CUPTI would keep */
            mist_cuda_recorder_begin(recorder, 6);
            fake_launch(now_s, now_s - 1);
            mist_cuda_recorder_end(recorder);
            fake.is_incomplete = true;
        }
        if (i == 2) /* of a period that is over */
            fake_launch(now_s - 10, now_s);
        if (i == 3 || i == 4) /* the time of day is set, back and forth */
            fake.offset_ns = i == 3 ? INT64_C(-7200000000000) : 0;
        if (i == 5) {
            recorder->records.max_launches = 1;
            launch_one(recorder);
        }
        assert_int_equal(collect(recorder, &collected), i < 3   ? MIST_SPANS_INCOMPLETE
                                                        : i < 5 ? MIST_SPANS_CLOCK_SET
                                                                : MIST_SPANS_TOO_MANY);
        launch_one(recorder);
        assert_int_equal(collect(recorder, &collected), MIST_SPANS_WHOLE);
        assert_int_equal(collected.n, 1);
    }
    fake.push_result = CUPTI_ERROR_UNKNOWN;
    launch_one(recorder);
    enum mist_span_loss loss;
    assert_int_equal(
        mist_cuda_recorder_collect(recorder, collect_work, &collected, &loss, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "marking a span"));
    close_fake(recorder);
}

/* As CUPTI's header lists them: one number a release, and from CUDA 13 on CUDA's. */
TEST(test_version)
{
    static const struct {
        uint32_t version;
        const char *says;
    } cases[] = {{26, "API 26"}, {130000, "13.0"}, {130001, "13.0"}, {130200, "13.2"}};
    char text[16];

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mist_cuda_cupti_version(cases[i].version, text, sizeof text);
        assert_string_equal(text, cases[i].says);
    }
}

TEST(test_open_fails)
{
    struct mist_cuda_recorder *recorder = open_fake(), *second = NULL;
    struct mist_err err = {0};

    assert_int_equal(mist_cuda_recorder_open(&second, &err), MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "already"));
    close_fake(recorder);
    memset(&fake, 0, sizeof fake);
    for (int i = 0; i < N_KINDS; i++) { /* the first at once, the others at the start */
        fake.refused_kind = kinds[i];
        fake.refusal = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        enum mist_status status = mist_cuda_recorder_open(&second, &err);
        if (i > 0) {
            assert_int_equal(status, MIST_OK);
            status = mist_cuda_recorder_start(second, &err);
        }
        assert_int_equal(status, MIST_ERR_RUN);
        assert_non_null(strstr(err.message, "another profiler"));
        close_fake(i > 0 ? second : NULL);
    }
    close_fake(open_fake()); /* and again */
}

/* There are only so many buffers; one that CUPTI keeps over the close is freed when it
 * comes. */
TEST(test_buffers)
{
    struct mist_cuda_recorder *recorder = start_fake();
    uint8_t *buffers[MAX_BUFFERS + 1] = {NULL};
    size_t n_bytes = 1, max_records;

    assert_int_equal(shared.n_made, N_BUFFERS);
    for (int i = 0; i <= MAX_BUFFERS; i++) {
        fake.request(&buffers[i], &n_bytes, &max_records);
        assert_int_equal(buffers[i] != NULL && n_bytes > 0, i < MAX_BUFFERS);
    }
    fake.complete(NULL, 0, buffers[1], n_bytes, 0);
    close_fake(recorder);
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (i != 1)
            fake.complete(NULL, 0, buffers[i], n_bytes, 0);
    assert_true(shared.n_pool == 0 && shared.n_made == 0);
}

TEST_MAIN(NULL, NULL)

#else

TEST_MAIN_SKIPPED("no CUPTI headers here")

#endif
