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
#include "exec/cuda/host_calls.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { N_CALLS = 1024 };

struct host_call {
    struct mist_cuda_host_calls *calls;
    mist_stream_fn fn;
    void *arg;
    bool is_pending; /* has not run; under the mutex */
    _Alignas(max_align_t) char copy[MIST_DEVICE_MAX_CALL_BYTES];
};

struct mist_cuda_host_calls {
    struct mist_device *device; /* borrowed */
    int64_t n;                  /* ever added */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the next two */
    pthread_cond_t changed;
    struct host_call *running; /* what the thread is to run, or runs; NULL: nothing */
    bool is_closing;
    struct host_call ring[N_CALLS];
};

static void *serve(void *context)
{
    struct mist_cuda_host_calls *calls = context;

    pthread_mutex_lock(&calls->mutex);
    for (;;) {
        while (!calls->running && !calls->is_closing)
            pthread_cond_wait(&calls->changed, &calls->mutex);
        struct host_call *call = calls->running;
        if (!call)
            break;
        pthread_mutex_unlock(&calls->mutex);
        if (!mist_device_has_failed(calls->device))
            call->fn(call->arg);
        pthread_mutex_lock(&calls->mutex);
        calls->running = NULL;
        call->is_pending = false;
        pthread_cond_broadcast(&calls->changed);
    }
    pthread_mutex_unlock(&calls->mutex);
    return NULL;
}

void mist_cuda_host_calls_run(void *arg)
{
    struct host_call *call = arg;
    struct mist_cuda_host_calls *calls = call->calls;

    pthread_mutex_lock(&calls->mutex);
    while (calls->running) /* of another stream */
        pthread_cond_wait(&calls->changed, &calls->mutex);
    calls->running = call;
    pthread_cond_broadcast(&calls->changed);
    while (call->is_pending)
        pthread_cond_wait(&calls->changed, &calls->mutex);
    pthread_mutex_unlock(&calls->mutex);
}

bool mist_cuda_host_calls_is_full(struct mist_cuda_host_calls *calls)
{
    pthread_mutex_lock(&calls->mutex);
    bool is_full = calls->ring[calls->n % N_CALLS].is_pending;
    pthread_mutex_unlock(&calls->mutex);
    return is_full;
}

void *mist_cuda_host_calls_add(struct mist_cuda_host_calls *calls, mist_stream_fn fn,
                               void *arg, size_t arg_bytes)
{
    struct host_call *call = &calls->ring[calls->n++ % N_CALLS];

    call->calls = calls;
    call->fn = fn;
    call->arg = arg_bytes > 0 ? memcpy(call->copy, arg, arg_bytes) : arg;
    call->is_pending = true; /* nobody else has it yet */
    return call;
}

/* The process's signals are for its other threads. */
enum mist_status mist_cuda_host_calls_new(struct mist_device *device,
                                          struct mist_cuda_host_calls **out,
                                          struct mist_err *err)
{
    struct mist_cuda_host_calls *calls = calloc(1, sizeof *calls);
    sigset_t all, before;

    *out = NULL;
    if (!calls)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a device");
    calls->device = device;
    pthread_mutex_init(&calls->mutex, NULL); /* these can't fail under Linux */
    pthread_cond_init(&calls->changed, NULL);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&calls->thread, NULL, serve, calls);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (code == 0) {
        *out = calls;
        return MIST_OK;
    }
    free(calls);
    return mist_err_set(err, MIST_ERR_MEMORY, "no thread for a device: %s",
                        strerror(code));
}

void mist_cuda_host_calls_free(struct mist_cuda_host_calls *calls)
{
    if (!calls)
        return;
    pthread_mutex_lock(&calls->mutex);
    calls->is_closing = true;
    pthread_cond_broadcast(&calls->changed);
    pthread_mutex_unlock(&calls->mutex);
    pthread_join(calls->thread, NULL);
    pthread_cond_destroy(&calls->changed);
    pthread_mutex_destroy(&calls->mutex);
    free(calls);
}
