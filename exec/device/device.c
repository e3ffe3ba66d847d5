/* What all devices share; the rest is handed to the backend. See device.h. */
#include "exec/device/device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_ALIGNMENT = 4096 };

const char *const mist_attention_words[] = {"auto", "cudnn", "own", NULL};
const char *const mist_graphs_words[] = {"auto", "on", "off", NULL};

void mist_device_init(struct mist_device *device, const struct mist_device_ops *ops,
                      const struct mist_device_config *config)
{
    device->ops = ops;
    memcpy(device->arena_bytes, config->arena_bytes, sizeof device->arena_bytes);
    device->result_bytes = config->result_bytes;
    device->allows_atomics = config->allows_atomics;
    device->attention = config->attention;
    device->records = config->records && ops->begin_span;
    atomic_init(&device->has_failed, false);
    pthread_mutex_init(&device->failure_mutex, NULL); /* can't fail on Linux */
}

void mist_device_fini(struct mist_device *device)
{
    pthread_mutex_destroy(&device->failure_mutex);
}

void mist_device_close(struct mist_device *device)
{
    if (device)
        device->ops->close(device);
}

void *mist_device_arena(const struct mist_device *device, enum mist_buffer_arena arena)
{
    return device->arenas[arena];
}

int64_t mist_device_arena_bytes(const struct mist_device *device,
                                enum mist_buffer_arena arena)
{
    return device->arenas[arena] ? device->arena_bytes[arena] : 0;
}

bool mist_device_is_addressable(const struct mist_device *device,
                                enum mist_buffer_arena arena)
{
    return device->ops->is_host || arena == MIST_ARENA_HOST;
}

bool mist_device_pause(void *device, double waited_s)
{
    struct mist_device *at = device;

    return at->ops->pause && at->ops->pause(at, waited_s);
}

void mist_device_reset_events(struct mist_device *device, int32_t n_events)
{
    struct mist_err err;

    device->ops->reset_events(device, n_events);
    if (device->result_bytes > 0) {
        enum mist_status status =
            device->ops->clear(device, device->results, device->result_bytes, &err);
        if (status != MIST_OK)
            mist_device_fail(device, status, &err);
    }
}

void mist_device_submit(struct mist_device *device, enum mist_stream stream,
                        mist_stream_fn fn, void *arg)
{
    device->ops->submit(device, stream, fn, arg);
}

void mist_device_record(struct mist_device *device, enum mist_stream stream,
                        int32_t event)
{
    device->ops->record(device, stream, event);
}

void mist_device_wait(struct mist_device *device, enum mist_stream stream, int32_t event)
{
    device->ops->wait(device, stream, event);
}

void mist_device_fail(struct mist_device *device, enum mist_status status,
                      const struct mist_err *err)
{
    pthread_mutex_lock(&device->failure_mutex);
    if (device->failure == MIST_OK) {
        device->failure = status;
        if (err)
            device->failure_err = *err;
        else
            mist_err_set(&device->failure_err, status, "a task failed");
    }
    pthread_mutex_unlock(&device->failure_mutex);
    atomic_store(&device->has_failed, true);
    if (device->ops->wake)
        device->ops->wake(device);
}

enum mist_status mist_device_synchronize(struct mist_device *device, struct mist_err *err)
{
    enum mist_status status;

    device->ops->drain(device);
    pthread_mutex_lock(&device->failure_mutex);
    status = device->failure;
    if (status != MIST_OK && err)
        *err = device->failure_err;
    pthread_mutex_unlock(&device->failure_mutex);
    return status;
}

bool mist_device_can_capture(const struct mist_device *device)
{
    return device->ops->begin_capture != NULL;
}

void mist_device_begin_capture(struct mist_device *device)
{
    device->ops->begin_capture(device);
}

/* Nothing has run, so what failed has done no harm. */
enum mist_status mist_device_end_capture(struct mist_device *device, struct mist_err *err)
{
    device->ops->end_capture(device);
    pthread_mutex_lock(&device->failure_mutex);
    enum mist_status status = device->failure;
    if (status != MIST_OK && err)
        *err = device->failure_err;
    device->failure = MIST_OK;
    pthread_mutex_unlock(&device->failure_mutex);
    atomic_store(&device->has_failed, false);
    return status;
}

void mist_device_replay(struct mist_device *device)
{
    device->ops->replay(device);
}

void mist_device_drop_capture(struct mist_device *device)
{
    device->ops->drop_capture(device);
}

void mist_device_copy(struct mist_device *device, void *to, const void *from,
                      int64_t bytes)
{
    device->ops->copy(device, to, from, bytes);
}

void mist_device_call_host(struct mist_device *device, mist_stream_fn fn, void *arg)
{
    device->ops->call_host(device, fn, arg, 0);
}

void mist_device_call_host_copy(struct mist_device *device, mist_stream_fn fn,
                                const void *arg, size_t arg_bytes)
{
    assert(arg_bytes > 0 && arg_bytes <= MIST_DEVICE_MAX_CALL_BYTES);
    device->ops->call_host(device, fn, (void *)arg, arg_bytes);
}

void mist_device_fetch_results(struct mist_device *device)
{
    device->ops->fetch_results(device);
}

void *mist_device_results(const struct mist_device *device)
{
    return device->results;
}

const void *mist_device_host_results(const struct mist_device *device)
{
    return device->host_results;
}

bool mist_device_records(const struct mist_device *device)
{
    return device->records;
}

void mist_device_begin_span(struct mist_device *device, int64_t id)
{
    device->ops->begin_span(device, id);
}

void mist_device_end_span(struct mist_device *device)
{
    device->ops->end_span(device);
}

void mist_device_begin_range(struct mist_device *device, const char *name, int64_t value)
{
    if (device->ops->begin_range)
        device->ops->begin_range(device, name, value);
}

void mist_device_end_range(struct mist_device *device)
{
    if (device->ops->end_range)
        device->ops->end_range(device);
}

enum mist_status mist_device_start_spans(struct mist_device *device, struct mist_err *err)
{
    return device->ops->start_spans(device, err);
}

enum mist_status mist_device_collect_spans(struct mist_device *device, mist_span_fn *fn,
                                           void *context, enum mist_span_loss *loss,
                                           struct mist_err *err)
{
    return device->ops->collect_spans(device, fn, context, loss, err);
}

const char *mist_span_loss_text(enum mist_span_loss loss)
{
    static const char *const texts[] = {
        [MIST_SPANS_WHOLE] = "nothing is missing",
        [MIST_SPANS_CLOCK_SET] = "the time of day was set",
        [MIST_SPANS_INCOMPLETE] = "the profiler lost records",
        [MIST_SPANS_TOO_MANY] = "there were more launches than are kept",
    };

    return texts[loss];
}

enum mist_status mist_device_alloc_host(struct mist_device *device, int64_t bytes,
                                        void **out, struct mist_err *err)
{
    if (device->ops->alloc_host)
        return device->ops->alloc_host(bytes, out, err);
    if (posix_memalign(out, HOST_ALIGNMENT, (size_t)bytes) != 0) {
        *out = NULL;
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for %lld bytes beside the device",
                            (long long)bytes);
    }
    memset(*out, 0, (size_t)bytes);
    return MIST_OK;
}

void mist_device_free_host(struct mist_device *device, void *memory)
{
    if (device->ops->free_host)
        device->ops->free_host(memory);
    else
        free(memory);
}

int64_t mist_device_used_bytes(struct mist_device *device)
{
    return device->ops->used_bytes ? device->ops->used_bytes(device) : -1;
}

enum mist_status mist_device_clear(struct mist_device *device, void *to, int64_t bytes,
                                   struct mist_err *err)
{
    return device->ops->clear(device, to, bytes, err);
}

enum mist_status mist_device_write(struct mist_device *device, void *to, const void *from,
                                   int64_t bytes, struct mist_err *err)
{
    return device->ops->write(device, to, from, bytes, err);
}

enum mist_status mist_device_read(struct mist_device *device, void *to, const void *from,
                                  int64_t bytes, struct mist_err *err)
{
    return device->ops->read(device, to, from, bytes, err);
}
