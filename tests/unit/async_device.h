/*
 * A made-up device with streams and a memory of its own, as a backend for tests: bodies
 * of tasks run at once and only enqueue; kernels (the CPU's), copies and functions of the
 * host run later on the workers of a CPU device. Addresses of its memory are no addresses
 * of the host: whoever touches them, but through the device, ends with a fault. Include
 * after cmocka.h, in one file of a program.
 */
#ifndef MIST_TESTS_UNIT_ASYNC_DEVICE_H
#define MIST_TESTS_UNIT_ASYNC_DEVICE_H

#include "core/clock.h"
#include "exec/operators/cpu_kernels.h" /* struct mist_draw */
#include "exec/runtime/backend.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { ASYNC_SPANS = 1 << 14, ASYNC_WORKSPACE_BYTES = 16 << 20 };

/* Beyond what any processor calls an address. */
static const uintptr_t async_bias = (uintptr_t)1 << 60;

struct async_device {
    struct mist_device base;   /* first */
    struct mist_device *inner; /* owned; its workers are the streams */
    enum mist_stream current;
    int64_t span; /* of what is enqueued; -1: none */
    struct async_work *works;
    pthread_mutex_t mutex; /* guards the next */
    struct {
        double start_s, end_s;
    } spans[ASYNC_SPANS];
    char *workspace; /* of kernels: what a GPU's layout has is none of theirs */
    void *operators; /* the CPU's */
};

/* Something that a stream does. */
struct async_work {
    struct async_work *next;
    struct async_device *device;
    int64_t span;
    void (*run)(struct async_work *work);
    mist_stream_fn fn;
    void *arg, *to, *tally;
    const void *from;
    int64_t n, offset;
    enum mist_dtype dtype;
    int32_t n_spans;
    struct mist_step_args step;
    struct mist_adamw_span adamw_spans[MIST_MAX_PARAMS];
    struct mist_adamw_args adamw;
    struct mist_draw draw;
    char copy[MIST_DEVICE_MAX_CALL_BYTES];
};

static inline struct async_device *async_of(struct mist_device *device)
{
    return (struct async_device *)(void *)device;
}

/* The address behind one of the device, or an address of the host as it is. */
static inline void *async_real(const void *address)
{
    uintptr_t at = (uintptr_t)address;

    return (void *)(at >= async_bias ? at - async_bias : at);
}

static inline void *async_address(void *real)
{
    return real ? (void *)((uintptr_t)real + async_bias) : NULL;
}

/* ---------------------------------------------------------------------------- streams */

static inline void async_run_work(void *arg)
{
    struct async_work *work = arg;
    struct async_device *device = work->device;
    double start_s = mist_clock_now_s();

    if (mist_device_has_failed(&device->base))
        return;
    work->run(work);
    if (work->span < 0)
        return;
    pthread_mutex_lock(&device->mutex);
    if (device->spans[work->span].end_s <= 0)
        device->spans[work->span].start_s = start_s;
    device->spans[work->span].end_s = mist_clock_now_s();
    pthread_mutex_unlock(&device->mutex);
}

static inline struct async_work *async_work_new(struct async_device *device,
                                                void (*run)(struct async_work *))
{
    struct async_work *work = calloc(1, sizeof *work);

    if (!work)
        abort();
    work->device = device;
    work->run = run;
    work->span = device->span;
    work->next = device->works;
    device->works = work;
    return work;
}

static inline void async_enqueue(struct async_work *work)
{
    mist_device_submit(work->device->inner, work->device->current, async_run_work, work);
}

static inline void async_submit(struct mist_device *base, enum mist_stream stream,
                                mist_stream_fn fn, void *arg)
{
    if (mist_device_has_failed(base))
        return;
    async_of(base)->current = stream;
    fn(arg);
    async_of(base)->current = MIST_STREAM_COMPUTE;
}

static inline void async_reset_events(struct mist_device *base, int32_t n)
{
    mist_device_reset_events(async_of(base)->inner, n);
}

static inline void async_record(struct mist_device *base, enum mist_stream stream,
                                int32_t event)
{
    mist_device_record(async_of(base)->inner, stream, event);
}

static inline void async_wait(struct mist_device *base, enum mist_stream stream,
                              int32_t event)
{
    mist_device_wait(async_of(base)->inner, stream, event);
}

static inline void async_drain(struct mist_device *base)
{
    struct async_device *device = async_of(base);

    device->inner->ops->drain(device->inner);
    for (struct async_work *work = device->works, *next; work; work = next) {
        next = work->next;
        memset(work, 0xff, sizeof *work);
        free(work);
    }
    device->works = NULL;
}

/* ----------------------------------------------------------------------------- bodies */

static inline void async_run_copy(struct async_work *work)
{
    memcpy(work->to, work->from, (size_t)work->n);
}

static inline void async_copy(struct mist_device *base, void *to, const void *from,
                              int64_t bytes)
{
    struct async_work *work = async_work_new(async_of(base), async_run_copy);

    work->to = async_real(to);
    work->from = async_real(from);
    work->n = bytes;
    async_enqueue(work);
}

static inline void async_run_host(struct async_work *work)
{
    work->fn(work->arg);
}

/* No span knows of it: it is not the device that works. */
static inline void async_call_host(struct mist_device *base, mist_stream_fn fn, void *arg,
                                   size_t arg_bytes)
{
    struct async_work *work = async_work_new(async_of(base), async_run_host);

    work->fn = fn;
    work->arg = arg_bytes > 0 ? memcpy(work->copy, arg, arg_bytes) : arg;
    work->span = -1;
    async_enqueue(work);
}

static inline void async_fetch_results(struct mist_device *base)
{
    async_copy(base, base->host_results, base->results, base->result_bytes);
}

static inline void async_begin_span(struct mist_device *base, int64_t id)
{
    assert_in_range(id, 0, ASYNC_SPANS - 1);
    assert_int_equal(async_of(base)->span, -1); /* not nested */
    async_of(base)->span = id;
}

static inline void async_end_span(struct mist_device *base)
{
    assert_true(async_of(base)->span >= 0);
    async_of(base)->span = -1;
}

static inline enum mist_status async_start(struct mist_device *base, struct mist_err *err)
{
    (void)err;
    memset(async_of(base)->spans, 0, sizeof async_of(base)->spans);
    return MIST_OK;
}

/* So many collects from now on have lost what was recorded; how many there were. */
static int async_n_losses, async_n_collects;

static inline enum mist_status async_collect(struct mist_device *base, mist_span_fn *fn,
                                             void *context, enum mist_span_loss *loss,
                                             struct mist_err *err)
{
    struct async_device *device = async_of(base);

    (void)err;
    async_n_collects++;
    *loss = async_n_losses > 0 ? MIST_SPANS_CLOCK_SET : MIST_SPANS_WHOLE;
    async_n_losses -= async_n_losses > 0;
    for (int64_t i = 0; i < ASYNC_SPANS && *loss == MIST_SPANS_WHOLE; i++) {
        struct mist_span_work work = {i, "async", device->spans[i].start_s,
                                      device->spans[i].end_s};
        if (work.end_s > 0)
            fn(context, &work);
    }
    memset(device->spans, 0, sizeof device->spans);
    return MIST_OK;
}

/* ----------------------------------------------------------- from the host, when idle */

static inline enum mist_status async_transfer(struct mist_device *base, void *to,
                                              const void *from, int64_t bytes,
                                              const void *own, struct mist_err *err)
{
    (void)own, (void)err;
    assert_null(async_of(base)->works);
    if (from)
        memcpy(async_real(to), async_real(from), (size_t)bytes);
    else
        memset(async_real(to), 0, (size_t)bytes);
    return MIST_OK;
}

static inline int64_t async_used_bytes(struct mist_device *base)
{
    return base->arena_bytes[MIST_ARENA_DEVICE] + 12345;
}

static inline void async_close(struct mist_device *base)
{
    struct async_device *device = async_of(base);

    async_drain(base);
    mist_device_close(device->inner);
    mist_device_fini(base);
    free(async_real(base->results));
    free(base->host_results);
    free(device->workspace);
    pthread_mutex_destroy(&device->mutex);
    free(device);
}

#define ASYNC_OPS                                                                        \
    .name = "async", .close = async_close, .reset_events = async_reset_events,           \
    .submit = async_submit, .record = async_record, .wait = async_wait,                  \
    .drain = async_drain, .copy = async_copy, .call_host = async_call_host,              \
    .fetch_results = async_fetch_results, .transfer = async_transfer

static const struct mist_device_ops async_plain_ops = {ASYNC_OPS};
static const struct mist_device_ops async_recording_ops = {
    ASYNC_OPS,
    .start_spans = async_start,
    .begin_span = async_begin_span,
    .end_span = async_end_span,
    .collect_spans = async_collect,
    .used_bytes = async_used_bytes,
};

static inline enum mist_status async_open(const struct mist_device_config *config,
                                          bool records, struct mist_device **out,
                                          struct mist_err *err)
{
    struct async_device *device = calloc(1, sizeof *device);
    struct mist_device_config inner = *config;

    if (!device)
        abort();
    inner.threads = 1;
    inner.result_bytes = 0;
    *out = &device->base;
    mist_device_init(&device->base, records ? &async_recording_ops : &async_plain_ops,
                     config);
    pthread_mutex_init(&device->mutex, NULL);
    device->span = -1;
    device->workspace = malloc(ASYNC_WORKSPACE_BYTES);
    device->base.results = async_address(calloc(1, (size_t)config->result_bytes + 1));
    device->base.host_results = calloc(1, (size_t)config->result_bytes + 1);
    enum mist_status status = mist_device_open_cpu(&inner, &device->inner, err);
    if (status != MIST_OK)
        return status;
    device->base.arenas[MIST_ARENA_DEVICE] =
        async_address(mist_device_arena(device->inner, MIST_ARENA_DEVICE));
    device->base.arenas[MIST_ARENA_HOST] =
        mist_device_arena(device->inner, MIST_ARENA_HOST);
    return MIST_OK;
}

static inline enum mist_status async_open_plain(const struct mist_device_config *config,
                                                struct mist_device **out,
                                                struct mist_err *err)
{
    return async_open(config, false, out, err);
}

static inline enum mist_status
async_open_recording(const struct mist_device_config *config, struct mist_device **out,
                     struct mist_err *err)
{
    return async_open(config, config->records, out, err);
}

/* -------------------------------------------------------------------------- operators */

static inline enum mist_status async_operators_open(struct mist_device *device,
                                                    enum mist_dtype dtype,
                                                    int32_t n_threads, void **out,
                                                    struct mist_err *err)
{
    *out = device;
    assert_int_equal(n_threads, 0);
    return mist_operators_cpu.open(async_of(device)->inner, dtype, 1,
                                   &async_of(device)->operators, err);
}

static inline void async_operators_close(void *backend)
{
    struct async_device *device = backend;

    if (device)
        mist_operators_cpu.close(device->operators);
}

static inline void async_run_kernel(struct async_work *work)
{
    mist_operators_cpu.run_step(&work->step);
}

static inline void async_step(const struct mist_step_args *args)
{
    struct async_device *device = args->backend;
    struct async_work *work = async_work_new(device, async_run_kernel);
    struct mist_step_args *step = &work->step;

    *step = *args;
    step->backend = device->operators;
    step->n_threads = 1;
    step->workspace = device->workspace;
    for (int i = 0; i < MIST_MAX_OPERANDS; i++)
        step->operands[i] = async_real(step->operands[i]);
    for (int i = 0; i < 2; i++) {
        step->params[i] = async_real(step->params[i]);
        step->param_gradients[i] = async_real(step->param_gradients[i]);
    }
    async_enqueue(work);
}

static inline void async_run_adamw(struct async_work *work)
{
    mist_operators_cpu.adamw(work->device->operators, work->dtype, work->adamw_spans,
                             work->n_spans, &work->adamw, 1);
}

static inline void async_adamw(void *backend, enum mist_dtype dtype,
                               const struct mist_adamw_span *spans, int32_t n_spans,
                               const struct mist_adamw_args *args, int32_t n_threads)
{
    struct async_work *work = async_work_new(backend, async_run_adamw);

    (void)n_threads;
    work->dtype = dtype;
    work->n_spans = n_spans;
    work->adamw = *args;
    for (int32_t i = 0; i < n_spans; i++) {
        struct mist_adamw_span *span = &work->adamw_spans[i];
        *span = spans[i];
        span->p = async_real(span->p);
        span->m = async_real(span->m);
        span->v = async_real(span->v);
        span->master = async_real(span->master);
        span->g = async_real(span->g);
    }
    async_enqueue(work);
}

static inline void async_run_draw(struct async_work *work)
{
    mist_operators_cpu.draw(work->device->operators, work->dtype, work->to, &work->draw,
                            1);
}

static inline void async_draw(void *backend, enum mist_dtype dtype, void *x,
                              const struct mist_draw *draw, int32_t n_threads)
{
    struct async_work *work = async_work_new(backend, async_run_draw);

    (void)n_threads;
    work->dtype = dtype;
    work->to = async_real(x);
    work->draw = *draw;
    async_enqueue(work);
}

static inline void async_run_add(struct async_work *work)
{
    mist_operators_cpu.add(work->device->operators, work->dtype, work->to, work->from,
                           work->n, 1);
}

static inline void async_run_zero(struct async_work *work)
{
    mist_operators_cpu.zero(work->device->operators, work->dtype, work->to, work->n, 1);
}

static inline void async_run_squares(struct async_work *work)
{
    mist_operators_cpu.sum_squares(work->device->operators, work->dtype, work->from,
                                   work->n, work->offset, work->tally, 1);
}

static inline void async_enqueue_on(void *backend, void (*run)(struct async_work *),
                                    enum mist_dtype dtype, void *to, const void *from,
                                    int64_t n, int64_t offset, void *tally)
{
    struct async_work *work = async_work_new(backend, run);

    work->dtype = dtype;
    work->to = async_real(to);
    work->from = async_real(from);
    work->n = n;
    work->offset = offset;
    work->tally = async_real(tally);
    async_enqueue(work);
}

static inline void async_add(void *backend, enum mist_dtype dtype, void *sum,
                             const void *x, int64_t n, int32_t n_threads)
{
    (void)n_threads;
    async_enqueue_on(backend, async_run_add, dtype, sum, x, n, 0, NULL);
}

static inline void async_zero(void *backend, enum mist_dtype dtype, void *x, int64_t n,
                              int32_t n_threads)
{
    (void)n_threads;
    async_enqueue_on(backend, async_run_zero, dtype, x, NULL, n, 0, NULL);
}

static inline void async_squares(void *backend, enum mist_dtype dtype, const void *x,
                                 int64_t n, int64_t offset, struct mist_tally *tally,
                                 int32_t n_threads)
{
    (void)n_threads;
    async_enqueue_on(backend, async_run_squares, dtype, NULL, x, n, offset, tally);
}

/* What the profiler does not call is not there. */
static const struct mist_operators async_operators = {
    .name = "async",
    .open = async_operators_open,
    .close = async_operators_close,
    .run_step = async_step,
    .adamw = async_adamw,
    .draw = async_draw,
    .add = async_add,
    .zero = async_zero,
    .sum_squares = async_squares,
};

static const struct mist_backend async_backend = {.version = MIST_BACKEND_VERSION,
                                                  .name = "async",
                                                  .operators = &async_operators,
                                                  .open_device = async_open_plain};
static const struct mist_backend async_recording_backend = {
    .version = MIST_BACKEND_VERSION,
    .name = "async",
    .operators = &async_operators,
    .open_device = async_open_recording};

#endif
