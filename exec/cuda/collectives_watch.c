/*
 * Waits, deadlines and failures of the collectives by NCCL.
 *
 * Communicators don't block: NCCL answers "in progress", and we ask again until the call
 * is done or the deadline comes. Every call is waited for in this way before the stream
 * gets anything else, since until then its kernel is not in the stream.
 *
 * What then happens on the device is watched through two events around each operation:
 * one that has begun and does not end waits for a peer that may never come. The pairs of
 * events are a ring, made at the start; when all are under way the dispatcher waits for
 * the oldest.
 */
#include "exec/cuda/collectives_nccl_internal.h"

#include "core/clock.h"

#include <stdlib.h>

/* A wait looks all the time at first, then sleeps between looks. */
static const double wait_spin_s = 100e-6;
static const double wait_sleep_s = 50e-6;

/* -------------------------------------------------------------------------- failures */

/* Ends all communication, under way or to come. */
static void abort_all(struct mist_cuda_nccl *at)
{
    for (struct mist_cuda_nccl_group *group = at->groups; group; group = group->next) {
        if (group->comm)
            ncclCommAbort(group->comm);
        group->comm = NULL;
    }
    if (at->world)
        ncclCommAbort(at->world);
    at->world = NULL;
    at->has_failed = true;
}

/* Copies a library's words, which may have several lines, into one. */
static void copy_line(char *to, size_t size_bytes, const char *text)
{
    size_t n = 0;

    for (; text && *text && n + 1 < size_bytes; text++)
        to[n++] = *text == '\n' || *text == '\r' ? ' ' : *text;
    to[n] = '\0';
}

/* Says what happened, and ends all. err may be NULL. */
enum mist_status mist_cuda_nccl_fail(struct mist_cuda_nccl *at, const char *operation,
                                     const char *what, struct mist_err *err)
{
    enum mist_status status = mist_err_set(&at->failure, MIST_ERR_RUN, "%s: rank %ld: %s",
                                           operation, (long)at->rank, what);

    abort_all(at);
    if (err)
        *err = at->failure;
    return status;
}

enum mist_status mist_cuda_nccl_fail_code(struct mist_cuda_nccl *at,
                                          const char *operation, ncclResult_t code,
                                          ncclComm_t comm, struct mist_err *err)
{
    char what[400], detail[300];

    copy_line(detail, sizeof detail, ncclGetLastError(comm));
    snprintf(what, sizeof what, "NCCL: %s%s%s", ncclGetErrorString(code),
             detail[0] ? ": " : "", detail);
    return mist_cuda_nccl_fail(at, operation, what, err);
}

enum mist_status mist_cuda_nccl_fail_cuda(struct mist_cuda_nccl *at,
                                          const char *operation, cudaError_t code,
                                          struct mist_err *err)
{
    char what[300];

    snprintf(what, sizeof what, "CUDA: %s", cudaGetErrorString(code));
    return mist_cuda_nccl_fail(at, operation, what, err);
}

enum mist_status mist_cuda_nccl_check(const struct mist_cuda_nccl *at,
                                      const char *operation, struct mist_err *err)
{
    return at->has_failed ? mist_err_set(err, MIST_ERR_RUN,
                                         "%s: communication has failed before", operation)
                          : MIST_OK;
}

static bool has_device_failed(const struct mist_cuda_nccl *at)
{
    return atomic_load(&at->device->base.has_failed);
}

/* ------------------------------------------------------------------------------ waits */

static void pause_wait(double waited_s)
{
    if (waited_s >= wait_spin_s)
        mist_clock_sleep_s(wait_sleep_s);
}

/*
 * Waits until what a call answered with code is done. On anything but success everything
 * ends, comm included if it is known to at.
 */
enum mist_status mist_cuda_nccl_settle(struct mist_cuda_nccl *at, ncclComm_t comm,
                                       ncclResult_t code, const char *operation,
                                       struct mist_err *err)
{
    double start_s = mist_clock_now_s();

    while (code == ncclInProgress) {
        ncclResult_t asked = ncclCommGetAsyncError(comm, &code);
        double waited_s = mist_clock_now_s() - start_s;
        char what[128];
        if (asked != ncclSuccess)
            code = asked;
        if (code != ncclInProgress)
            break;
        if (has_device_failed(at))
            return mist_cuda_nccl_fail(
                at, operation, "gives up, since something else failed on it", err);
        if (waited_s >= at->deadline_s) {
            snprintf(what, sizeof what, "has waited %g s for its peers", at->deadline_s);
            return mist_cuda_nccl_fail(at, operation, what, err);
        }
        pause_wait(waited_s);
    }
    return code == ncclSuccess ? MIST_OK
                               : mist_cuda_nccl_fail_code(at, operation, code, comm, err);
}

/* ------------------------------------------------------------ what runs on the device */

/* 1: event has been reached, 0: not yet, -1: *code is an error. */
static int query(cudaEvent_t event, cudaError_t *code)
{
    *code = cudaEventQuery(event);
    if (*code == cudaErrorNotReady) {
        (void)cudaGetLastError(); /* which would keep it, and is asked after kernels */
        return 0;
    }
    return *code == cudaSuccess ? 1 : -1;
}

/* Operations end in order: forgets those that have, and looks how long the next runs. */
static enum mist_status check_watches(struct mist_cuda_nccl *at, struct mist_err *err)
{
    cudaError_t code;
    int answer = 1;

    while (at->n_ended < at->n_begun && answer == 1) {
        struct mist_cuda_watch *watch = &at->watches[at->n_ended % MIST_CUDA_N_WATCHED];
        answer = query(watch->end, &code);
        if (answer == 0 && watch->seen_begun_s < 0) {
            int has_begun = query(watch->begin, &code);
            if (has_begun == 1)
                watch->seen_begun_s = mist_clock_now_s();
            answer = has_begun < 0 ? -1 : 0;
        } else if (answer == 0 &&
                   mist_clock_now_s() - watch->seen_begun_s >= at->deadline_s) {
            char what[160], peer[40] = "its group";
            if (watch->peer >= 0)
                snprintf(peer, sizeof peer, "rank %ld", (long)watch->peer);
            snprintf(what, sizeof what, "has waited %g s for %s, %lld bytes",
                     at->deadline_s, peer, (long long)watch->bytes);
            return mist_cuda_nccl_fail(at, watch->operation, what, err);
        }
        if (answer < 0)
            return mist_cuda_nccl_fail_cuda(at, watch->operation, code, err);
        at->n_ended += answer;
    }
    return MIST_OK;
}

static enum mist_status check_comm(struct mist_cuda_nccl *at, ncclComm_t comm,
                                   struct mist_err *err)
{
    ncclResult_t code = ncclSuccess, asked = ncclCommGetAsyncError(comm, &code);

    if (asked != ncclSuccess)
        code = asked;
    if (code == ncclSuccess || code == ncclInProgress)
        return MIST_OK;
    return mist_cuda_nccl_fail_code(at, "communication", code, comm, err);
}

enum mist_status mist_cuda_collectives_poll(struct mist_collectives *base,
                                            struct mist_err *err)
{
    struct mist_cuda_nccl *at = mist_cuda_nccl_of(base);
    enum mist_status status = MIST_OK;

    if (at->has_failed) {
        if (err)
            *err = at->failure;
        return MIST_ERR_RUN;
    }
    if (has_device_failed(at))
        return mist_cuda_nccl_fail(at, "communication",
                                   "gives up, since something else failed on it", err);
    for (struct mist_cuda_nccl_group *group = at->groups; group && status == MIST_OK;
         group = group->next)
        status = check_comm(at, group->comm, err);
    if (status == MIST_OK && at->world)
        status = check_comm(at, at->world, err);
    return status == MIST_OK ? check_watches(at, err) : status;
}

/* Before an operation: marks where it begins in the stream. */
enum mist_status mist_cuda_nccl_begin(struct mist_cuda_nccl *at, const char *operation,
                                      int32_t peer, int64_t bytes,
                                      struct mist_cuda_watch **out, struct mist_err *err)
{
    double start_s = mist_clock_now_s();
    enum mist_status status = mist_cuda_nccl_check(at, operation, err);

    while (status == MIST_OK && at->n_begun - at->n_ended >= MIST_CUDA_N_WATCHED) {
        status = mist_cuda_collectives_poll(&at->base, err);
        if (at->n_begun - at->n_ended >= MIST_CUDA_N_WATCHED)
            pause_wait(mist_clock_now_s() - start_s);
    }
    if (status != MIST_OK)
        return status;
    struct mist_cuda_watch *watch = &at->watches[at->n_begun % MIST_CUDA_N_WATCHED];
    watch->operation = operation;
    watch->peer = peer;
    watch->bytes = bytes;
    watch->seen_begun_s = -1;
    cudaError_t code =
        cudaEventRecord(watch->begin, mist_cuda_current_stream(at->device));
    *out = watch;
    return code == cudaSuccess ? MIST_OK
                               : mist_cuda_nccl_fail_cuda(at, operation, code, err);
}

/* After it: code is what the call answered. */
enum mist_status mist_cuda_nccl_end(struct mist_cuda_nccl *at,
                                    struct mist_cuda_watch *watch, ncclComm_t comm,
                                    ncclResult_t code, struct mist_err *err)
{
    enum mist_status status =
        mist_cuda_nccl_settle(at, comm, code, watch->operation, err);

    if (status != MIST_OK)
        return status;
    cudaError_t recorded =
        cudaEventRecord(watch->end, mist_cuda_current_stream(at->device));
    if (recorded != cudaSuccess)
        return mist_cuda_nccl_fail_cuda(at, watch->operation, recorded, err);
    at->n_begun++;
    return MIST_OK;
}

/* ------------------------------------------------------------------------- the ring */

enum mist_status mist_cuda_nccl_watch(struct mist_cuda_nccl *at, struct mist_err *err)
{
    cudaError_t code = cudaSetDevice(at->device->i_device);

    at->watches = calloc(MIST_CUDA_N_WATCHED, sizeof *at->watches);
    if (!at->watches)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    for (int i = 0; i < MIST_CUDA_N_WATCHED && code == cudaSuccess; i++) {
        code = cudaEventCreateWithFlags(&at->watches[i].begin, cudaEventDisableTiming);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&at->watches[i].end, cudaEventDisableTiming);
    }
    return code == cudaSuccess ? MIST_OK
                               : mist_cuda_nccl_fail_cuda(at, "communication", code, err);
}

void mist_cuda_nccl_unwatch(struct mist_cuda_nccl *at)
{
    for (int i = 0; i < MIST_CUDA_N_WATCHED && at->watches; i++) {
        if (at->watches[i].begin)
            cudaEventDestroy(at->watches[i].begin);
        if (at->watches[i].end)
            cudaEventDestroy(at->watches[i].end);
    }
    free(at->watches);
}
