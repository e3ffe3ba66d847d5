/*
 * Functions of the host in a stream (mist_device_call_host): their arguments, kept until
 * they have run, and the thread that runs them. Used by device.c.
 */
#ifndef MIST_EXEC_CUDA_HOST_CALLS_H
#define MIST_EXEC_CUDA_HOST_CALLS_H

#include "exec/device/device.h"

struct mist_cuda_host_calls;

/* device is borrowed; once it has failed functions are left out. *out is the caller's
 * (mist_cuda_host_calls_free, when streams are idle; NULL allowed). MIST_OK,
 * MIST_ERR_MEMORY or MIST_ERR_RUN (no thread). */
MIST_MUST_CHECK enum mist_status
mist_cuda_host_calls_new(struct mist_device *device, struct mist_cuda_host_calls **out,
                         struct mist_err *err);
void mist_cuda_host_calls_free(struct mist_cuda_host_calls *calls);

/* So many are under way that the next has no place before streams have been idle. */
bool mist_cuda_host_calls_is_full(struct mist_cuda_host_calls *calls);

/* Keeps one, and a copy of arg[arg_bytes] unless that is 0. What it returns is the
 * argument of mist_cuda_host_calls_run(), which goes into the stream. */
void *mist_cuda_host_calls_add(struct mist_cuda_host_calls *calls, mist_stream_fn fn,
                               void *arg, size_t arg_bytes);
void mist_cuda_host_calls_run(void *arg);

#endif
