/* A thread for functions of the host. See worker.h. Jobs wait in a ring that doubles when
 * it is full: after the first iterations it never is. */
#include "exec/cuda/worker.h"

#include "core/interrupt.h"

#include <stdlib.h>
#include <string.h>

struct job {
    mist_stream_fn fn;
    void *arg;
};

struct mist_cuda_worker {
    struct mist_device *device; /* borrowed */
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t has_job, has_run;
    struct job *jobs; /* owned; [capacity], job i of all at i % capacity */
    int64_t capacity, n_put, n_taken, n_run;
    bool is_released, ends;
};

static void *work(void *arg)
{
    struct mist_cuda_worker *worker = arg;

    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (worker->n_taken == worker->n_put && !worker->ends)
            pthread_cond_wait(&worker->has_job, &worker->mutex);
        if (worker->n_taken == worker->n_put)
            break;
        struct job job = worker->jobs[worker->n_taken++ % worker->capacity];
        pthread_mutex_unlock(&worker->mutex);
        if (!mist_device_has_failed(worker->device))
            job.fn(job.arg);
        pthread_mutex_lock(&worker->mutex);
        worker->n_run++;
        pthread_cond_broadcast(&worker->has_run);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

enum mist_status mist_cuda_worker_open(struct mist_device *device,
                                       struct mist_cuda_worker **out,
                                       struct mist_err *err)
{
    struct mist_cuda_worker *worker = calloc(1, sizeof *worker);

    if (!worker)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a stream");
    worker->device = device;
    pthread_mutex_init(&worker->mutex, NULL); /* none of the three can fail on Linux */
    pthread_cond_init(&worker->has_job, NULL);
    pthread_cond_init(&worker->has_run, NULL);
    int code = mist_interrupt_start_thread(&worker->thread, work, worker);
    if (code != 0) {
        free(worker);
        return mist_err_set(err, MIST_ERR_RUN, "can't start the thread of a stream: %s",
                            strerror(code));
    }
    *out = worker;
    return MIST_OK;
}

void mist_cuda_worker_close(struct mist_cuda_worker *worker)
{
    if (!worker)
        return;
    pthread_mutex_lock(&worker->mutex);
    worker->ends = true;
    pthread_cond_signal(&worker->has_job);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
    pthread_cond_destroy(&worker->has_run);
    pthread_cond_destroy(&worker->has_job);
    pthread_mutex_destroy(&worker->mutex);
    free(worker->jobs);
    free(worker);
}

/* With the mutex; false: out of memory. */
static bool make_room(struct mist_cuda_worker *worker)
{
    int64_t grown = worker->capacity ? 2 * worker->capacity : 256;
    struct job *jobs;

    if (worker->n_put - worker->n_taken < worker->capacity)
        return true;
    jobs = malloc((size_t)grown * sizeof *jobs);
    if (!jobs)
        return false;
    for (int64_t i = worker->n_taken; i < worker->n_put; i++)
        jobs[i % grown] = worker->jobs[i % worker->capacity];
    free(worker->jobs);
    worker->jobs = jobs;
    worker->capacity = grown;
    return true;
}

int64_t mist_cuda_worker_put(struct mist_cuda_worker *worker, mist_stream_fn fn,
                             void *arg)
{
    struct mist_err err;

    pthread_mutex_lock(&worker->mutex);
    bool has_room = make_room(worker);
    if (has_room)
        worker->jobs[worker->n_put++ % worker->capacity] = (struct job){fn, arg};
    int64_t n = has_room ? worker->n_put : 0;
    pthread_cond_signal(&worker->has_job);
    pthread_mutex_unlock(&worker->mutex);
    if (!has_room)
        mist_device_fail(
            worker->device,
            mist_err_set(&err, MIST_ERR_MEMORY, "out of memory for the host stream"),
            &err);
    return n;
}

/* With the mutex. */
static bool has_run(const struct mist_cuda_worker *worker, int64_t n)
{
    if (n == INT64_MAX)
        return worker->n_run == worker->n_put;
    return worker->n_run >= n || worker->is_released;
}

void mist_cuda_worker_wait(struct mist_cuda_worker *worker, int64_t n)
{
    pthread_mutex_lock(&worker->mutex);
    while (!has_run(worker, n))
        pthread_cond_wait(&worker->has_run, &worker->mutex);
    pthread_mutex_unlock(&worker->mutex);
}

void mist_cuda_worker_release(struct mist_cuda_worker *worker)
{
    pthread_mutex_lock(&worker->mutex);
    worker->is_released = true;
    pthread_cond_broadcast(&worker->has_run);
    pthread_mutex_unlock(&worker->mutex);
}
