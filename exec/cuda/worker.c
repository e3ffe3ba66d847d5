/* The host stream's thread. See worker.h. */
#include "exec/cuda/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct mist_cuda_worker {
    pthread_t thread;
    pthread_mutex_t mutex; /* guards the rest */
    pthread_cond_t has_job, has_run;
    struct mist_cuda_job *first, **last;
    int64_t n_run; /* ever */
    bool is_running, is_released, ends;
};

static void *work(void *arg)
{
    struct mist_cuda_worker *worker = arg;

    pthread_mutex_lock(&worker->mutex);
    for (;;) {
        while (!worker->first && !worker->ends)
            pthread_cond_wait(&worker->has_job, &worker->mutex);
        struct mist_cuda_job *job = worker->first;
        if (!job)
            break;
        worker->first = job->next;
        if (!worker->first)
            worker->last = &worker->first;
        worker->is_running = true;
        pthread_mutex_unlock(&worker->mutex);
        job->fn(job->arg);
        pthread_mutex_lock(&worker->mutex);
        worker->is_running = false;
        worker->n_run++;
        pthread_cond_broadcast(&worker->has_run);
    }
    pthread_mutex_unlock(&worker->mutex);
    return NULL;
}

enum mist_status mist_cuda_worker_open(struct mist_cuda_worker **out,
                                       struct mist_err *err)
{
    struct mist_cuda_worker *worker = calloc(1, sizeof *worker);

    if (!worker)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a stream");
    worker->last = &worker->first;
    pthread_mutex_init(&worker->mutex, NULL); /* none of the three can fail on Linux */
    pthread_cond_init(&worker->has_job, NULL);
    pthread_cond_init(&worker->has_run, NULL);
    int code = pthread_create(&worker->thread, NULL, work, worker);
    if (code != 0) {
        free(worker);
        return mist_err_set(err, MIST_ERR_RUN,
                            "can't start the thread of the host stream: %s",
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
    free(worker);
}

void mist_cuda_worker_put(struct mist_cuda_worker *worker, struct mist_cuda_job *job)
{
    pthread_mutex_lock(&worker->mutex);
    job->next = NULL;
    *worker->last = job;
    worker->last = &job->next;
    pthread_cond_signal(&worker->has_job);
    pthread_mutex_unlock(&worker->mutex);
}

/* With the mutex. */
static bool has_run(const struct mist_cuda_worker *worker, int64_t n)
{
    if (n == INT64_MAX)
        return !worker->first && !worker->is_running;
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
