/* What all devices share; the rest is handed to the backend. See device.h. */
#include "exec/device/device.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { HOST_ALIGNMENT = 4096 };

const char *const mist_attention_words[] = {"auto", "cudnn", "own", NULL};
const char *const mist_graphs_words[] = {"auto", "on", "off", NULL};

enum mist_status mist_device_check(const struct mist_device_config *config,
                                   struct mist_err *err)
{
    static const char *const names[MIST_N_ARENAS] = {"device", "host"};

    for (int i = 0; i < MIST_N_ARENAS; i++)
        if (config->arena_bytes[i] < 0)
            return mist_err_set(err, MIST_ERR_RANGE, "a %s arena of %lld bytes", names[i],
                                (long long)config->arena_bytes[i]);
    if (config->result_bytes < 0)
        return mist_err_set(err, MIST_ERR_RANGE, "%lld bytes of results",
                            (long long)config->result_bytes);
    return MIST_OK;
}

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
            mist_device_clear(device, device->results, device->result_bytes, &err);
        if (status != MIST_OK)
            mist_device_fail(device, status, &err);
    }
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

static enum mist_status failure_of(struct mist_device *device, bool forgets,
                                   struct mist_err *err)
{
    pthread_mutex_lock(&device->failure_mutex);
    enum mist_status status = device->failure;
    if (status != MIST_OK && err)
        *err = device->failure_err;
    if (forgets)
        device->failure = MIST_OK;
    pthread_mutex_unlock(&device->failure_mutex);
    return status;
}

enum mist_status mist_device_synchronize(struct mist_device *device, struct mist_err *err)
{
    device->ops->drain(device);
    return failure_of(device, false, err);
}

/* Nothing has run, so what failed has done no harm. */
enum mist_status mist_device_end_capture(struct mist_device *device, struct mist_err *err)
{
    device->ops->end_capture(device);
    enum mist_status status = failure_of(device, true, err);
    atomic_store(&device->has_failed, false);
    return status;
}

static void call_host(struct mist_device *device, mist_stream_fn fn, void *arg,
                      size_t arg_bytes)
{
    if (device->ops->call_host)
        device->ops->call_host(device, fn, arg, arg_bytes);
    else
        fn(arg);
}

void mist_device_call_host(struct mist_device *device, mist_stream_fn fn, void *arg)
{
    call_host(device, fn, arg, 0);
}

void mist_device_call_host_copy(struct mist_device *device, mist_stream_fn fn,
                                const void *arg, size_t arg_bytes)
{
    assert(arg_bytes > 0 && arg_bytes <= MIST_DEVICE_MAX_CALL_BYTES);
    call_host(device, fn, (void *)arg, arg_bytes);
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
