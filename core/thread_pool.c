/* A pool of threads that runs loops over indices. See thread_pool.h. */
#include "core/thread_pool.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct mist_thread_pool {
    pthread_mutex_t mutex; /* guards everything below */
    pthread_cond_t work;   /* a loop has started, or the pool closes */
    pthread_cond_t done;   /* n_busy reached 0 */
    int n_workers;         /* started threads: the caller's is not among them */
    bool is_closing;
    uint64_t i_loop; /* counts loops, so that a worker joins each once */
    int n_busy;      /* workers that have not left the current loop */
    int64_t n, next; /* the current loop; next = first index not handed out */
    mist_thread_body *body;
    void *context;
    int64_t failed;          /* the lowest index that failed; -1: none */
    enum mist_status status; /* of that index */
    struct mist_err err;     /* of that index */
    pthread_t workers[];
};

/* Takes indices until none is left or one failed. Called and left with the mutex held. */
static void run_loop(struct mist_thread_pool *pool)
{
    while (pool->next < pool->n && pool->failed < 0) {
        int64_t i = pool->next++;
        struct mist_err err = {0};

        pthread_mutex_unlock(&pool->mutex);
        enum mist_status status = pool->body(pool->context, i, &err);
        pthread_mutex_lock(&pool->mutex);
        if (status && (pool->failed < 0 || i < pool->failed)) {
            pool->failed = i;
            pool->status = status;
            pool->err = err;
        }
    }
}

static void *run_worker(void *argument)
{
    struct mist_thread_pool *pool = argument;
    uint64_t i_loop = 0;

    pthread_mutex_lock(&pool->mutex);
    for (;;) {
        while (!pool->is_closing && pool->i_loop == i_loop)
            pthread_cond_wait(&pool->work, &pool->mutex);
        if (pool->is_closing)
            break;
        i_loop = pool->i_loop;
        run_loop(pool);
        if (--pool->n_busy == 0)
            pthread_cond_signal(&pool->done);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

enum mist_status mist_thread_pool_new(int n_threads, struct mist_thread_pool **out,
                                      struct mist_err *err)
{
    if (n_threads <= 0) {
        long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
        n_threads = n_processors > 0 && n_processors < 4096 ? (int)n_processors : 1;
    }
    struct mist_thread_pool *pool =
        calloc(1, sizeof *pool + (size_t)n_threads * sizeof *pool->workers);
    if (!pool)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for a pool of %d threads", n_threads);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, NULL);
    for (int i = 0; i < n_threads - 1; i++) {
        int code = pthread_create(&pool->workers[i], NULL, run_worker, pool);
        if (code != 0) {
            mist_thread_pool_free(pool);
            return mist_err_set(err, MIST_ERR_RUN, "can't start thread %d of %d: %s",
                                i + 2, n_threads, strerror(code));
        }
        pool->n_workers++;
    }
    *out = pool;
    return MIST_OK;
}

void mist_thread_pool_free(struct mist_thread_pool *pool)
{
    if (!pool)
        return;
    pthread_mutex_lock(&pool->mutex);
    pool->is_closing = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < pool->n_workers; i++)
        pthread_join(pool->workers[i], NULL);
    pthread_cond_destroy(&pool->done);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool);
}

enum mist_status mist_thread_pool_for(struct mist_thread_pool *pool, int64_t n,
                                      mist_thread_body *body, void *context,
                                      struct mist_err *err)
{
    pthread_mutex_lock(&pool->mutex);
    pool->n = n;
    pool->next = 0;
    pool->body = body;
    pool->context = context;
    pool->failed = -1;
    pool->status = MIST_OK;
    pool->n_busy = pool->n_workers;
    pool->i_loop++;
    if (pool->n_workers > 0)
        pthread_cond_broadcast(&pool->work);
    run_loop(pool);
    while (pool->n_busy > 0)
        pthread_cond_wait(&pool->done, &pool->mutex);
    enum mist_status status = pool->status;
    if (status && err)
        *err = pool->err;
    pthread_mutex_unlock(&pool->mutex);
    return status;
}
