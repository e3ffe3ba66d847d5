/*
 * The CUDA recorder against CUPTI's own structs, without a GPU: buffers composed of them
 * become timelines that are saved and loaded, and the life cycle runs on an imitation of
 * CUPTI. Skipped without CUPTI's headers. The sources are included, so that the
 * imitation's functions stand in for the library's.
 */
/* clang-format off */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
/* clang-format on */

#include <stdio.h>

#if __has_include(<cupti.h>)
#include "core/random.h"
#include "exec/cuda/recorder.c"
#include "exec/cuda/recorder_cupti.c"
#include "exec/cuda/recorder_match.c"
#include "tests/unit/scratch.h"
#include "traces/timeline.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <string.h>

#define NS0 UINT64_C(1795270089955996324) /* a time of day */

static uint64_t seed_of_run(void)
{
    const char *text = getenv("MIST_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : 20240607;

    printf("# MIST_SEED=%" PRIu64 "\n", seed);
    return seed;
}

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

#define APPEND(record)                                                                   \
    memset(&record, 0x5a, sizeof record),                                                \
        record.kind = kind, record.correlationId = call, record.start = start_ns,        \
        record.end = end_ns, append(buffer, &record, sizeof record)
    if (kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
        APPEND(kernel);
    else if (kind == CUPTI_ACTIVITY_KIND_MEMCPY)
        APPEND(copy);
    else if (kind == CUPTI_ACTIVITY_KIND_MEMCPY2)
        APPEND(peer);
    else
        APPEND(fill);
#undef APPEND
}

static const CUpti_ActivityKind work_kinds[] = {
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
    CUPTI_ACTIVITY_KIND_MEMSET, CUPTI_ACTIVITY_KIND_MEMCPY2};

/* What is of no interest stays out; a record that breaks off is counted. */
static void test_translate(void **unused)
{
    static struct bytes buffer;
    struct mist_cuda_matcher matcher;
    const struct mist_cuda_interval *intervals;
    mist_cuda_next_fn *next = next_of_library();
    CUpti_ActivityName name = {.kind = CUPTI_ACTIVITY_KIND_NAME};
    int64_t n_broken = 0;
    size_t n;

    (void)unused;
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
    mist_cuda_matcher_init(&matcher);
    assert_int_equal(
        mist_cuda_read_buffer(buffer.bytes, buffer.n, next, &matcher, &n_broken, NULL),
        MIST_OK);
    assert_int_equal(n_broken, 0);
    assert_int_equal(mist_cuda_matcher_take(&matcher, &intervals, &n, NULL), MIST_OK);
    assert_int_equal(n, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(intervals[i].id, INT64_C(1) << (20 * i / 2));
        assert_int_equal(intervals[i].start_ns, NS0 + i);
        assert_int_equal(intervals[i].end_ns, NS0 + 10 * i);
        assert_int_equal(intervals[i].n_kernels, 1);
    }
    uint32_t nonsense[6] = {777};
    append(&buffer, nonsense, sizeof nonsense);
    assert_int_equal(
        mist_cuda_read_buffer(buffer.bytes, buffer.n, next, &matcher, &n_broken, NULL),
        MIST_OK);
    assert_int_equal(n_broken, 1);
    mist_cuda_matcher_fini(&matcher);
}

/* Tasks on four streams, each of some kernels and copies, as records of several buffers
 * in any order, become a timeline that loads as it was saved. */
enum { N_TASKS = 200, N_BYTES = 5 };

static uint32_t compose_task(struct bytes *buffers, struct mist_random *random,
                             int64_t task, uint32_t call, uint64_t start_ns,
                             uint64_t end_ns)
{
    int64_t n_works = 1 + mist_random_below(random, 5);
    uint64_t length_ns = (end_ns - start_ns) / (uint64_t)n_works;

    for (int64_t i = 0; i < n_works; i++, call++) {
        uint64_t from_ns = start_ns + (uint64_t)i * length_ns;
        struct bytes *calls = &buffers[mist_random_below(random, N_BYTES)];
        append_external(calls, MIST_CUDA_SPAN_KIND, call, (uint64_t)task);
        append_call(calls, CUPTI_ACTIVITY_KIND_RUNTIME, call);
        append_work(&buffers[mist_random_below(random, N_BYTES)],
                    work_kinds[mist_random_below(random, 4)], call, from_ns,
                    i + 1 == n_works ? end_ns : from_ns + length_ns / 2);
    }
    append_work(&buffers[mist_random_below(random, N_BYTES)], work_kinds[0], call,
                start_ns - 500, end_ns + 500); /* of no span */
    return call + 1;
}

static void read_all(struct bytes *buffers, struct mist_cuda_matcher *matcher)
{
    int64_t n_broken = 0;
    mist_cuda_next_fn *next = next_of_library();

    for (int i = 0; i < N_BYTES; i++)
        assert_int_equal(mist_cuda_read_buffer(buffers[i].bytes, buffers[i].n, next,
                                               matcher, &n_broken, NULL),
                         MIST_OK);
    assert_int_equal(n_broken, 0);
}

static void check_same_rows(const struct mist_timeline *a, const struct mist_timeline *b)
{
    assert_int_equal(a->n_rows, b->n_rows);
    for (size_t i = 0; i < a->n_rows; i++) {
        assert_int_equal(a->rows[i].task, b->rows[i].task);
        assert_int_equal(a->rows[i].stream, b->rows[i].stream);
        assert_true(a->rows[i].start_s == b->rows[i].start_s);
        assert_true(a->rows[i].end_s == b->rows[i].end_s);
    }
}

static void test_timeline(void **unused)
{
    static struct bytes buffers[N_BYTES];
    struct mist_cuda_clock_pair a = {NS0, 100}, b = {NS0 + 1000000000, 101};
    struct mist_cuda_clock clock;
    struct mist_cuda_matcher matcher;
    struct mist_timeline measured, loaded;
    const struct mist_cuda_interval *intervals;
    struct mist_random random;
    struct scratch scratch;
    struct mist_err err = {0};
    size_t n;
    uint32_t call = UINT32_MAX - 50; /* wraps around */

    (void)unused;
    mist_random_init(&random, seed_of_run());
    for (int64_t task = 0; task < N_TASKS; task++)
        call = compose_task(buffers, &random, task, call,
                            NS0 + 1000 + 250000 * (uint64_t)task,
                            NS0 + 1000 + 250000 * (uint64_t)task + 999999);
    mist_cuda_matcher_init(&matcher);
    mist_timeline_init(&measured);
    read_all(buffers, &matcher);
    assert_int_equal(mist_cuda_matcher_take(&matcher, &intervals, &n, &err), MIST_OK);
    assert_int_equal(n, N_TASKS);
    assert_int_equal(mist_cuda_clock_through(&a, &b, &clock, &err), MIST_OK);
    for (size_t i = 0; i < n; i++) {
        struct mist_cuda_span span = mist_cuda_clock_span(&clock, &intervals[i]);
        struct mist_timeline_row row = {.stream = (enum mist_stream)(i % 4),
                                        .kind = MIST_TASK_FORWARD,
                                        .layer = -1,
                                        .micro_batch = -1,
                                        .task = span.id,
                                        .start_s = span.start_s,
                                        .end_s = span.end_s};
        double expected_s = 100 + 1e-6 + 250e-6 * (double)i;
        assert_int_equal(span.id, i);
        assert_true(fabs(span.start_s - expected_s) < 1e-12 + 1e-13 * 100);
        assert_true(fabs(span.end_s - expected_s - 999999e-9) < 1e-12 + 1e-13 * 100);
        assert_int_equal(mist_timeline_add(&measured, &row, &err), MIST_OK);
    }
    scratch_init(&scratch);
    scratch_path(&scratch, "timeline.csv");
    assert_int_equal(mist_timeline_save(&measured, scratch.path, false, &err), MIST_OK);
    assert_int_equal(mist_timeline_load(&loaded, scratch.path, &err), MIST_OK);
    check_same_rows(&measured, &loaded);
    scratch_fini(&scratch);
    mist_timeline_fini(&measured);
    mist_timeline_fini(&loaded);
    mist_cuda_matcher_fini(&matcher);
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
    int n_held, n_requests;
    size_t n_dropped;
    bool is_incomplete; /* work without times keeps a buffer until a forced flush */
    int64_t offset_ns;  /* of the time of day, changed when it is set */
} fake;

static uint64_t fake_now_ns(void)
{
    return NS0 + (uint64_t)(int64_t)(1e9 * mist_clock_now_s()) + (uint64_t)fake.offset_ns;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = fake_now_ns();
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
    fake.ids[fake.n_ids++] = id;
    return fake.push_result;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind,
                                                  uint64_t *id)
{
    assert_int_equal(kind, MIST_CUDA_SPAN_KIND);
    assert_true(fake.n_ids > 0);
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
    double now_s = mist_clock_now_s();
    uint64_t now_ns = fake_now_ns();

    fake.call++;
    for (int i = 0; i < fake.n_ids; i++) {
        record.n = 0;
        append_external(&record, MIST_CUDA_SPAN_KIND, fake.call, fake.ids[i]);
        fake_append(&record);
    }
    record.n = 0;
    append_call(&record, CUPTI_ACTIVITY_KIND_RUNTIME, fake.call);
    fake_append(&record);
    record.n = 0;
    append_work(&record, work_kinds[fake.call % 4], fake.call,
                now_ns + (uint64_t)(int64_t)(1e9 * (start_s - now_s)),
                now_ns + (uint64_t)(int64_t)(1e9 * (end_s - now_s)));
    fake_append(&record);
}

struct collected {
    struct mist_cuda_span spans[256];
    size_t n;
};

static void collect_span(void *context, const struct mist_cuda_span *span)
{
    struct collected *collected = context;

    collected->spans[collected->n++] = *span;
}

static void collect_times(void *context, int64_t id, double start_s, double end_s)
{
    struct mist_cuda_span span = {id, start_s, end_s, 0, 0};

    collect_span(context, &span);
}

static struct mist_cuda_recorder *open_fake(void)
{
    struct mist_cuda_recorder *recorder = NULL;

    memset(&fake, 0, sizeof fake);
    fake.push_result = CUPTI_SUCCESS;
    assert_int_equal(mist_cuda_recorder_open(&recorder, NULL), MIST_OK);
    return recorder;
}

/* Nothing is enabled and no buffer is out any more. */
static void close_fake(struct mist_cuda_recorder *recorder)
{
    mist_cuda_recorder_close(recorder);
    assert_int_equal(fake.n_held, 0);
    for (int i = 0; i < CUPTI_ACTIVITY_KIND_COUNT; i++)
        assert_false(fake.is_enabled[i]);
    assert_true(!state.sink && !state.pool && state.n_pool == 0);
}

static void test_record(void **unused)
{
    struct mist_cuda_recorder *recorder = open_fake();
    struct mist_err err = {0};

    (void)unused;
    assert_true(fake.is_enabled[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL]);
    assert_false(fake.is_enabled[CUPTI_ACTIVITY_KIND_KERNEL]);
    assert_int_equal(mist_cuda_recorder_device_bytes(recorder), 3000);
    for (int round = 0; round < 3; round++) { /* the same ids again */
        struct collected collected = {.n = 0};
        double origin_s = mist_clock_now_s();
        for (int id = 99; id >= 0; id--) {
            double start_s = origin_s + 0.01 * id;
            mist_cuda_recorder_begin(recorder, id);
            for (int k = 0; k < id % 4; k++)
                fake_launch(start_s + 1e-3 * k, start_s + 1e-3 * k + 5e-4);
            mist_cuda_recorder_end(recorder);
            fake_launch(0.5 * start_s, 2 * start_s); /* of no span */
        }
        if (round < 2)
            assert_int_equal(mist_cuda_recorder_collect_spans(recorder, collect_span,
                                                              &collected, &err),
                             MIST_OK);
        else
            assert_int_equal(
                mist_cuda_recorder_collect(recorder, collect_times, &collected, &err),
                MIST_OK);
        assert_int_equal(collected.n, 75); /* every fourth has no work */
        for (size_t i = 0; i < 75; i++) {
            const struct mist_cuda_span *span = &collected.spans[i];
            int n = (int)span->id % 4;
            double start_s = origin_s + 0.01 * (double)span->id;
            assert_int_equal(span->id, 4 * (i / 3) + i % 3 + 1);
            assert_true(fabs(span->start_s - start_s) < 1e-3);
            assert_true(fabs(span->end_s - start_s - 1e-3 * n + 5e-4) < 1e-3);
            if (round < 2) {
                assert_int_equal(span->n_kernels, n);
                assert_true(fabs(span->busy_s - 5e-4 * n) < 1e-5);
            }
        }
    }
    assert_true(fake.n_requests > 10);
    close_fake(recorder);
}

/* Every loss is told once, and the spans are there all the same. */
static void test_losses(void **unused)
{
    struct mist_cuda_recorder *recorder = open_fake();
    struct collected collected = {.n = 0};
    struct mist_err err = {0};
    double now_s = mist_clock_now_s();

    (void)unused;
    mist_cuda_recorder_begin(recorder, 5);
    fake_launch(now_s, now_s + 1e-3);
    mist_cuda_recorder_end(recorder);
    fake.n_dropped = 17;
    assert_int_equal(
        mist_cuda_recorder_collect_spans(recorder, collect_span, &collected, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, " 17 were dropped"));
    assert_int_equal(collected.n, 1);
    assert_int_equal(
        mist_cuda_recorder_collect_spans(recorder, collect_span, &collected, &err),
        MIST_OK);
    assert_int_equal(collected.n, 1);
    assert_int_equal(mist_cuda_recorder_losses(recorder).n_dropped, 17);

    mist_cuda_recorder_begin(recorder, 6);
    fake_launch(now_s, now_s - 1);
    mist_cuda_recorder_end(recorder);
    fake.is_incomplete = true;
    assert_int_equal(
        mist_cuda_recorder_collect_spans(recorder, collect_span, &collected, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, " 1 have no times"));
    assert_int_equal(collected.n, 1);

    fake.push_result = CUPTI_ERROR_UNKNOWN;
    mist_cuda_recorder_begin(recorder, 6);
    mist_cuda_recorder_end(recorder);
    assert_int_equal(
        mist_cuda_recorder_collect_spans(recorder, collect_span, &collected, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "marking a span"));

    fake.offset_ns = INT64_C(-7200000000000); /* the time of day is set */
    assert_int_equal(
        mist_cuda_recorder_collect_spans(recorder, collect_span, &collected, &err),
        MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "time of day"));
    assert_int_equal(
        mist_cuda_recorder_collect_spans(recorder, collect_span, &collected, &err),
        MIST_OK);
    close_fake(recorder);
}

static void test_open_fails(void **unused)
{
    struct mist_cuda_recorder *recorder = open_fake(), *second = NULL;
    struct mist_err err = {0};

    (void)unused;
    assert_int_equal(mist_cuda_recorder_open(&second, &err), MIST_ERR_RUN);
    assert_non_null(strstr(err.message, "already"));
    close_fake(recorder);
    for (int i = 0; i < N_KINDS; i++) {
        fake.refused_kind = kinds[i];
        fake.refusal = CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
        assert_int_equal(mist_cuda_recorder_open(&second, &err), MIST_ERR_RUN);
        assert_non_null(strstr(err.message, "another profiler"));
        assert_null(second);
        close_fake(NULL);
    }
    close_fake(open_fake()); /* and again */
}

/* A buffer that CUPTI keeps over the close is freed when it comes. */
static void test_late_buffer(void **unused)
{
    struct mist_cuda_recorder *recorder = open_fake();
    uint8_t *buffer = NULL;
    size_t n_bytes, max_records;

    (void)unused;
    fake.request(&buffer, &n_bytes, &max_records);
    assert_non_null(buffer);
    close_fake(recorder);
    fake.complete(NULL, 0, buffer, n_bytes, 0);
    assert_true(state.n_pool == 0);
}

#else

static void skip_test(void **unused)
{
    (void)unused;
    printf("# no CUPTI headers here\n");
    skip();
}
#define test_translate   skip_test
#define test_timeline    skip_test
#define test_record      skip_test
#define test_losses      skip_test
#define test_open_fails  skip_test
#define test_late_buffer skip_test

#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_translate),  cmocka_unit_test(test_timeline),
        cmocka_unit_test(test_record),     cmocka_unit_test(test_losses),
        cmocka_unit_test(test_open_fails), cmocka_unit_test(test_late_buffer),
    };

    return cmocka_run_group_tests_name("cuda_recorder_cupti", tests, NULL, NULL);
}
