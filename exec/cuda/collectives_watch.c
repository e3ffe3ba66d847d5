/*
 * Deadlines and failures of the collectives by NCCL.
 *
 * The watchdog, a thread, looks every few milliseconds
 * - how long the call of NCCL has taken that the dispatcher is in, if it is in one,
 * - how long the operations have run that the device is at, one of each queue,
 * - whether NCCL or the device has failed meanwhile.
 * It calls nothing of CUDA for that: a launch into a full stream may keep others out of
 * CUDA for as long as it blocks, which is just when the watchdog has to act. So what the
 * device has begun and ended it writes itself, in the order of each stream, into memory
 * of the host: a write costs no kernel, and the watchdog only reads.
 *
 * When something is wrong it fails the device and aborts all communicators, in two steps,
 * as ncclCommAbort() in a group allows: the calls tell the kernels and the dispatcher's
 * call to give up, and the end of the group frees the communicators. In between it waits
 * until the dispatcher has left NCCL. Freeing one communicator before all were told would
 * wait for the kernels of the others for ever.
 */
#include "exec/cuda/collectives_nccl_internal.h"

#include "core/clock.h"
#include "core/interrupt.h"
#include "exec/comm/comm_internal.h" /* its watchdog */

#include <stdlib.h>
#include <string.h>

static const double period_s = 5e-3;
static const double full_sleep_s = 50e-6;

/* ------------------------------------------------ failures; all with the mutex locked */

/* Copies a library's words, which may have several lines, into one. */
static void copy_line(char *to, size_t size_bytes, const char *text)
{
    size_t n = 0;

    for (; text && *text && n + 1 < size_bytes; text++)
        to[n++] = *text == '\n' || *text == '\r' ? ' ' : *text;
    to[n] = '\0';
}

static void fail(struct mist_cuda_nccl *at, const char *operation, const char *what)
{
    if (at->has_failed)
        return;
    at->has_failed = true;
    mist_device_fail(&at->device->base,
                     mist_err_set(&at->failure, MIST_ERR_RUN, "%s: rank %ld: %s",
                                  operation, (long)at->rank, what),
                     &at->failure);
    pthread_cond_broadcast(&at->changed);
}

static void fail_code(struct mist_cuda_nccl *at, const char *operation, ncclResult_t code)
{
    char what[400], detail[300];

    copy_line(detail, sizeof detail, ncclGetLastError(NULL));
    snprintf(what, sizeof what, "NCCL: %s%s%s", ncclGetErrorString(code),
             detail[0] ? ": " : "", detail);
    fail(at, operation, what);
}

/* waits: "has waited %g s for" */
static void fail_late(struct mist_cuda_nccl *at,
                      const struct mist_cuda_operation *operation, const char *waits)
{
    char what[200], peer[40] = "its group", bytes[40] = "";

    if (operation->peer >= 0)
        snprintf(peer, sizeof peer, "rank %ld", (long)operation->peer);
    if (operation->bytes > 0)
        snprintf(bytes, sizeof bytes, ", %lld bytes", (long long)operation->bytes);
    snprintf(what, sizeof what, "has waited %g s %s %s%s", at->deadline_s, waits, peer,
             bytes);
    fail(at, operation->name, what);
}

static enum mist_status give_failure(const struct mist_cuda_nccl *at,
                                     struct mist_err *err)
{
    if (at->has_failed && err)
        *err = at->failure;
    return at->has_failed ? MIST_ERR_RUN : MIST_OK;
}

/* ----------------------------------------------------------------------- the watchdog */

static void pause_watch(struct mist_cuda_nccl *at)
{
    mist_clock_wait_until(&at->changed, &at->mutex, mist_clock_now_s() + period_s);
}

static uint32_t n_ended_of(const struct mist_cuda_nccl *at, int i_queue)
{
    return __atomic_load_n(&at->marks[i_queue].n_ended, __ATOMIC_ACQUIRE);
}

/* Operations of a queue begin and end in order: at most one has begun and not ended. */
static void check_running(struct mist_cuda_nccl *at, int i_queue, double now_s)
{
    struct mist_cuda_queue *queue = &at->queues[i_queue];
    uint32_t n_ended = n_ended_of(at, i_queue);
    uint32_t n_begun = __atomic_load_n(&at->marks[i_queue].n_begun, __ATOMIC_ACQUIRE);

    if (n_begun == n_ended || n_ended != queue->n_ended_seen)
        queue->running_start_s = -1;
    queue->n_ended_seen = n_ended;
    if (n_begun == n_ended)
        return;
    if (queue->running_start_s < 0)
        queue->running_start_s = now_s;
    else if (now_s - queue->running_start_s >= at->deadline_s)
        fail_late(at, &queue->given[n_ended % MIST_CUDA_N_WATCHED], "for");
}

static void check_comm(struct mist_cuda_nccl *at, ncclComm_t comm)
{
    ncclResult_t code = ncclSuccess, asked = ncclCommGetAsyncError(comm, &code);

    if (asked != ncclSuccess)
        code = asked;
    if (code != ncclSuccess && code != ncclInProgress)
        fail_code(at, "communication", code);
}

static void look(struct mist_cuda_nccl *at)
{
    double now_s = mist_clock_now_s();

    /* a call under way may be making one */
    for (struct mist_cuda_nccl_group *group = at->groups; group && !at->call.name;
         group = group->next)
        if (group->comm)
            check_comm(at, group->comm);
    if (mist_device_has_failed(&at->device->base))
        fail(at, "communication", "gives up, since something else failed on it");
    if (at->call.name && now_s - at->call_start_s >= at->deadline_s)
        fail_late(at, &at->call, "to start with");
    for (int i = 0; i < MIST_CUDA_N_QUEUES; i++)
        check_running(at, i, now_s);
}

/* Where not even this ends, only the end of the process helps. */
static void abort_all(struct mist_cuda_nccl *at)
{
    struct mist_comm_watchdog *last_resort =
        mist_comm_watch(at->failure.message, at->deadline_s);

    ncclGroupStart();
    for (;;) {
        for (struct mist_cuda_nccl_group *group = at->groups; group;
             group = group->next) {
            ncclComm_t comm = __atomic_load_n(&group->comm, __ATOMIC_ACQUIRE);
            if (comm && !group->is_aborted)
                ncclCommAbort(comm);
            group->is_aborted = comm != NULL;
        }
        if (!at->call.name)
            break;
        pause_watch(at); /* the call may be about to make one */
    }
    pthread_mutex_unlock(&at->mutex);
    (void)cudaSetDevice(at->device->i_device); /* this thread's, where NCCL frees */
    ncclGroupEnd();
    mist_comm_unwatch(last_resort);
    pthread_mutex_lock(&at->mutex);
}

static void *watch(void *context)
{
    struct mist_cuda_nccl *at = context;

    pthread_mutex_lock(&at->mutex);
    while (!at->is_closing && !at->has_failed) {
        pause_watch(at);
        look(at);
    }
    if (at->has_failed)
        abort_all(at);
    pthread_mutex_unlock(&at->mutex);
    return NULL;
}

/* ----------------------------------------------------------------- in the dispatcher */

enum mist_status mist_cuda_nccl_check(struct mist_cuda_nccl *at, struct mist_err *err)
{
    pthread_mutex_lock(&at->mutex);
    enum mist_status status = give_failure(at, err);
    pthread_mutex_unlock(&at->mutex);
    return status;
}

enum mist_status mist_cuda_nccl_fail(struct mist_cuda_nccl *at, const char *operation,
                                     const char *what, struct mist_err *err)
{
    pthread_mutex_lock(&at->mutex);
    fail(at, operation, what);
    enum mist_status status = give_failure(at, err);
    pthread_mutex_unlock(&at->mutex);
    return status;
}

static void start_call(struct mist_cuda_nccl *at,
                       const struct mist_cuda_operation *operation)
{
    at->call = *operation;
    at->call_start_s = mist_clock_now_s();
}

enum mist_status mist_cuda_nccl_enter(struct mist_cuda_nccl *at, const char *operation,
                                      struct mist_err *err)
{
    pthread_mutex_lock(&at->mutex);
    enum mist_status status = give_failure(at, err);
    if (status == MIST_OK)
        start_call(at, &(struct mist_cuda_operation){.name = operation, .peer = -1});
    pthread_mutex_unlock(&at->mutex);
    return status;
}

enum mist_status mist_cuda_nccl_leave(struct mist_cuda_nccl *at, ncclResult_t code,
                                      struct mist_err *err)
{
    pthread_mutex_lock(&at->mutex);
    if (code != ncclSuccess)
        fail_code(at, at->call.name, code);
    at->call.name = NULL;
    pthread_cond_broadcast(&at->changed);
    enum mist_status status = give_failure(at, err);
    pthread_mutex_unlock(&at->mutex);
    return status;
}

/* Behind what the current stream has: as many of the queue have begun, or ended. */
static enum mist_status write_mark(struct mist_cuda_nccl *at, int i_queue, uint32_t *mark,
                                   struct mist_err *err)
{
    CUresult code =
        at->write_mark(mist_cuda_current_stream(at->device), (CUdeviceptr)(uintptr_t)mark,
                       at->queues[i_queue].n_given, 0);
    struct mist_err cause;

    /* the driver's codes are the runtime's, which has words for them */
    if (mist_cuda_status((cudaError_t)code, "cuStreamWriteValue32", &cause) == MIST_OK)
        return MIST_OK;
    return mist_cuda_nccl_fail(at, "communication", cause.message, err);
}

enum mist_status mist_cuda_nccl_begin(struct mist_cuda_nccl *at,
                                      const struct mist_cuda_operation *operation,
                                      struct mist_err *err)
{
    int i_queue = (int)operation->queue;
    struct mist_cuda_queue *queue = &at->queues[i_queue];
    enum mist_status status;
    bool is_full;

    for (;;) {
        pthread_mutex_lock(&at->mutex);
        status = give_failure(at, err);
        is_full = queue->n_given - n_ended_of(at, i_queue) >= MIST_CUDA_N_WATCHED;
        if (status == MIST_OK && !is_full) {
            start_call(at, operation);
            queue->given[queue->n_given++ % MIST_CUDA_N_WATCHED] = at->call;
        }
        pthread_mutex_unlock(&at->mutex);
        if (status != MIST_OK || !is_full)
            break;
        mist_clock_sleep_s(full_sleep_s);
    }
    if (status != MIST_OK ||
        write_mark(at, i_queue, &at->marks[i_queue].n_begun, err) == MIST_OK)
        return status;
    return mist_cuda_nccl_leave(at, ncclSuccess, err);
}

enum mist_status mist_cuda_nccl_end(struct mist_cuda_nccl *at, ncclResult_t code,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int i_queue = (int)at->call.queue;

    if (code == ncclSuccess)
        status = write_mark(at, i_queue, &at->marks[i_queue].n_ended, err);
    enum mist_status left = mist_cuda_nccl_leave(at, code, err);
    return status == MIST_OK ? left : status;
}

void mist_cuda_nccl_add(struct mist_cuda_nccl *at, struct mist_cuda_nccl_group *group)
{
    pthread_mutex_lock(&at->mutex);
    group->next = at->groups;
    at->groups = group;
    pthread_mutex_unlock(&at->mutex);
}

/* ---------------------------------------------------------------------- start and end */

static enum mist_status make_marks(struct mist_cuda_nccl *at, struct mist_err *err)
{
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *symbol = NULL, *marks = NULL;
    size_t n_bytes = MIST_CUDA_N_QUEUES * sizeof *at->marks;
    cudaError_t code = cudaSetDevice(at->device->i_device);

    if (code == cudaSuccess) /* as of CUDA 12.0, without asking the driver to allow it */
        code = cudaGetDriverEntryPointByVersion("cuStreamWriteValue32", &symbol, 12000,
                                                cudaEnableDefault, &found);
    if (code == cudaSuccess && !symbol)
        return mist_err_set(err, MIST_ERR_RUN,
                            "the NVIDIA driver has no cuStreamWriteValue32: update it");
    if (code == cudaSuccess)
        code = cudaHostAlloc(&marks, n_bytes, cudaHostAllocMapped);
    if (code != cudaSuccess)
        return mist_cuda_status(code, "memory for the state of collectives", err);
    memcpy(&at->write_mark, &symbol, sizeof at->write_mark);
    at->marks = memset(marks, 0, n_bytes);
    for (int i = 0; i < MIST_CUDA_N_QUEUES; i++)
        at->queues[i].running_start_s = -1;
    return MIST_OK;
}

static enum mist_status start_watchdog(struct mist_cuda_nccl *at, struct mist_err *err)
{
    pthread_mutex_init(&at->mutex, NULL); /* can't fail under Linux */
    mist_clock_init_condition(&at->changed);
    at->has_watchdog = mist_interrupt_start_thread(&at->watchdog, watch, at) == 0;
    return at->has_watchdog ? MIST_OK
                            : mist_err_set(err, MIST_ERR_MEMORY,
                                           "no thread to watch over collectives");
}

enum mist_status mist_cuda_nccl_watch(struct mist_cuda_nccl *at, struct mist_err *err)
{
    enum mist_status status = make_marks(at, err);

    return status == MIST_OK ? start_watchdog(at, err) : status;
}

void mist_cuda_nccl_unwatch(struct mist_cuda_nccl *at)
{
    if (at->has_watchdog) {
        pthread_mutex_lock(&at->mutex);
        at->is_closing = true;
        pthread_cond_broadcast(&at->changed);
        pthread_mutex_unlock(&at->mutex);
        pthread_join(at->watchdog, NULL);
        pthread_cond_destroy(&at->changed);
        pthread_mutex_destroy(&at->mutex);
    }
    (void)cudaFreeHost(at->marks);
}
