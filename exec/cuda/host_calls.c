/*
 * Functions of the host in a stream.
 *
 * CUDA forbids them to call CUDA, and they communicate by MPI, which calls CUDA on its
 * own account where it was built for it, to ask of every buffer whose memory it is (Open
 * MPI, MPICH, and UCX below either, with a switch each). So what goes into the stream
 * only hands the function to a thread, where all is allowed, and waits for it.
 *
 * Arguments are kept in a ring. A place is free again once its function has run.
 */

#include "exec/cuda/worker.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { N_CALLS = 1024 };

struct host_call {
    struct mist_cuda_worker *worker;
    mist_stream_fn fn;
    void *arg;
    atomic_bool is_pending; /* has not run */
    _Alignas(max_align_t) char copy[MIST_DEVICE_MAX_CALL_BYTES];
};

struct mist_cuda_host_calls {
    struct mist_cuda_worker *worker; /* owned */
    int64_t n;                       /* ever added */
    struct host_call ring[N_CALLS];
};

void mist_cuda_host_calls_run(void *arg)
{
    struct host_call *call = arg;

    mist_cuda_worker_wait(call->worker,
                          mist_cuda_worker_put(call->worker, call->fn, call->arg));
    atomic_store(&call->is_pending, false);
}

bool mist_cuda_host_calls_is_full(struct mist_cuda_host_calls *calls)
{
    return atomic_load(&calls->ring[calls->n % N_CALLS].is_pending);
}

void *mist_cuda_host_calls_add(struct mist_cuda_host_calls *calls, mist_stream_fn fn,
                               void *arg, size_t arg_bytes)
{
    struct host_call *call = &calls->ring[calls->n++ % N_CALLS];

    call->worker = calls->worker;
    call->fn = fn;
    call->arg = arg_bytes > 0 ? memcpy(call->copy, arg, arg_bytes) : arg;
    atomic_store(&call->is_pending, true);
    return call;
}

enum mist_status mist_cuda_host_calls_new(struct mist_device *device,
                                          struct mist_cuda_host_calls **out,
                                          struct mist_err *err)
{
    struct mist_cuda_host_calls *calls = calloc(1, sizeof *calls);

    *out = NULL;
    if (!calls)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a device");
    enum mist_status status = mist_cuda_worker_open(device, &calls->worker, err);
    if (status == MIST_OK)
        *out = calls;
    else
        free(calls);
    return status;
}

void mist_cuda_host_calls_free(struct mist_cuda_host_calls *calls)
{
    if (!calls)
        return;
    mist_cuda_worker_close(calls->worker);
    free(calls);
}
