/*
 * Makes a CPU device one whose memory the host may not touch, and counts what goes to and
 * fro; writing may be refused. Include after cmocka.h.
 */
#ifndef MIST_TESTS_UNIT_REMOTE_DEVICE_H
#define MIST_TESTS_UNIT_REMOTE_DEVICE_H

#include "exec/device/device.h"

struct remote_device {
    struct mist_device *device;        /* borrowed */
    const struct mist_device_ops *ops; /* its own */
    int n_reads, n_writes;
    bool refuses_writes;
};

static struct remote_device *remote_device; /* the one that is set */
static struct mist_device_ops remote_device_ops;

static inline enum mist_status remote_device_transfer(struct mist_device *device,
                                                      void *to, const void *from,
                                                      int64_t bytes, const void *own,
                                                      struct mist_err *err)
{
    remote_device->n_reads += own == from;
    remote_device->n_writes += from && own == to;
    if (from && own == to && remote_device->refuses_writes)
        return mist_err_set(err, MIST_ERR_IO, "this memory is read-only");
    return remote_device->ops->transfer(device, to, from, bytes, own, err);
}

/* remote must stay where it is until remote_device_unset(). */
static inline void remote_device_set(struct remote_device *remote,
                                     struct mist_device *device)
{
    *remote = (struct remote_device){.device = device, .ops = device->ops};
    remote_device = remote;
    remote_device_ops = *device->ops;
    remote_device_ops.is_host = false;
    remote_device_ops.transfer = remote_device_transfer;
    device->ops = &remote_device_ops;
}

static inline void remote_device_unset(struct remote_device *remote)
{
    remote->device->ops = remote->ops;
    remote_device = NULL;
}

#endif
