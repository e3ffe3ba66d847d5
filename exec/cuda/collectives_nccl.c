/*
 * Collectives between GPUs by NCCL. See collectives_nccl.h.
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
#include "exec/cuda/collectives_nccl.h"

#include "core/clock.h"
#include "exec/cuda/context.h"

#include <nccl.h>

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { N_WATCHED = 512 };

/* A wait looks all the time at first, then sleeps between looks. */
static const double wait_spin_s = 100e-6;
static const double wait_sleep_s = 50e-6;

static_assert(NCCL_UNIQUE_ID_BYTES == MIST_COLLECTIVES_ID_BYTES,
              "ids are exchanged as they are");

/* An operation on the device. */
struct watch {
    cudaEvent_t begin, end; /* owned */
    const char *operation;
    int64_t bytes;
    int32_t peer;        /* -1: a group */
    double seen_begun_s; /* when it was first seen running; < 0: not yet */
};

struct nccl {
    struct mist_collectives base;
    struct mist_cuda_device *device; /* borrowed */
    int32_t rank, n_ranks;
    double deadline_s;
    enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err);
    void *context;             /* of exchange; borrowed */
    ncclComm_t world;          /* owned; NULL: no transfers */
    struct nccl_group *groups; /* owned; a list */
    bool has_failed;           /* all communicators are gone */
    struct mist_err failure;   /* why */
    struct watch *watches;     /* owned; [N_WATCHED], a ring */
    int64_t n_begun, n_ended;  /* operations given to the device; known to be done */
};

struct nccl_group {
    struct mist_collective_group base;
    struct nccl_group *next;
    ncclComm_t comm;  /* owned; NULL after a failure */
    int32_t n, index; /* members; which of them this rank is */
};

static struct nccl *nccl_of(struct mist_collectives *base)
{
    return (struct nccl *)(void *)base;
}

static struct nccl_group *group_of(struct mist_collective_group *base)
{
    return (struct nccl_group *)(void *)base;
}

/* -------------------------------------------------------------------------- failures */

/* Ends all communication, under way or to come. */
static void abort_all(struct nccl *at)
{
    for (struct nccl_group *group = at->groups; group; group = group->next) {
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
static enum mist_status fail(struct nccl *at, const char *operation, const char *what,
                             struct mist_err *err)
{
    enum mist_status status = mist_err_set(&at->failure, MIST_ERR_RUN, "%s: rank %ld: %s",
                                           operation, (long)at->rank, what);

    abort_all(at);
    if (err)
        *err = at->failure;
    return status;
}

static enum mist_status fail_nccl(struct nccl *at, const char *operation,
                                  ncclResult_t code, ncclComm_t comm,
                                  struct mist_err *err)
{
    char what[400], detail[300];

    copy_line(detail, sizeof detail, ncclGetLastError(comm));
    snprintf(what, sizeof what, "NCCL: %s%s%s", ncclGetErrorString(code),
             detail[0] ? ": " : "", detail);
    return fail(at, operation, what, err);
}

static enum mist_status fail_cuda(struct nccl *at, const char *operation,
                                  cudaError_t code, struct mist_err *err)
{
    char what[300];

    snprintf(what, sizeof what, "CUDA: %s", cudaGetErrorString(code));
    return fail(at, operation, what, err);
}

static enum mist_status check_failure(const struct nccl *at, const char *operation,
                                      struct mist_err *err)
{
    return at->has_failed ? mist_err_set(err, MIST_ERR_RUN,
                                         "%s: communication has failed before", operation)
                          : MIST_OK;
}

static bool has_device_failed(const struct nccl *at)
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
static enum mist_status settle(struct nccl *at, ncclComm_t comm, ncclResult_t code,
                               const char *operation, struct mist_err *err)
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
            return fail(at, operation, "gives up, since something else failed on it",
                        err);
        if (waited_s >= at->deadline_s) {
            snprintf(what, sizeof what, "has waited %g s for its peers", at->deadline_s);
            return fail(at, operation, what, err);
        }
        pause_wait(waited_s);
    }
    return code == ncclSuccess ? MIST_OK : fail_nccl(at, operation, code, comm, err);
}

/* --------------------------------------------------------------- what runs on the device
 */

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
static enum mist_status check_watches(struct nccl *at, struct mist_err *err)
{
    cudaError_t code;
    int answer = 1;

    while (at->n_ended < at->n_begun && answer == 1) {
        struct watch *watch = &at->watches[at->n_ended % N_WATCHED];
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
            return fail(at, watch->operation, what, err);
        }
        if (answer < 0)
            return fail_cuda(at, watch->operation, code, err);
        at->n_ended += answer;
    }
    return MIST_OK;
}

static enum mist_status check_comm(struct nccl *at, ncclComm_t comm, struct mist_err *err)
{
    ncclResult_t code = ncclSuccess, asked = ncclCommGetAsyncError(comm, &code);

    if (asked != ncclSuccess)
        code = asked;
    if (code == ncclSuccess || code == ncclInProgress)
        return MIST_OK;
    return fail_nccl(at, "communication", code, comm, err);
}

enum mist_status mist_cuda_collectives_poll(struct mist_collectives *base,
                                            struct mist_err *err)
{
    struct nccl *at = nccl_of(base);
    enum mist_status status = MIST_OK;

    if (at->has_failed) {
        if (err)
            *err = at->failure;
        return MIST_ERR_RUN;
    }
    if (has_device_failed(at))
        return fail(at, "communication", "gives up, since something else failed on it",
                    err);
    for (struct nccl_group *group = at->groups; group && status == MIST_OK;
         group = group->next)
        status = check_comm(at, group->comm, err);
    if (status == MIST_OK && at->world)
        status = check_comm(at, at->world, err);
    return status == MIST_OK ? check_watches(at, err) : status;
}

static enum mist_status poll_device(void *context, struct mist_err *err)
{
    struct nccl *at = context;

    return mist_cuda_collectives_poll(&at->base, err);
}

/* Before an operation: marks where it begins in the stream. */
static enum mist_status begin(struct nccl *at, const char *operation, int32_t peer,
                              int64_t bytes, struct watch **out, struct mist_err *err)
{
    double start_s = mist_clock_now_s();
    enum mist_status status = check_failure(at, operation, err);

    while (status == MIST_OK && at->n_begun - at->n_ended >= N_WATCHED) {
        status = mist_cuda_collectives_poll(&at->base, err);
        if (at->n_begun - at->n_ended >= N_WATCHED)
            pause_wait(mist_clock_now_s() - start_s);
    }
    if (status != MIST_OK)
        return status;
    struct watch *watch = &at->watches[at->n_begun % N_WATCHED];
    watch->operation = operation;
    watch->peer = peer;
    watch->bytes = bytes;
    watch->seen_begun_s = -1;
    cudaError_t code =
        cudaEventRecord(watch->begin, mist_cuda_current_stream(at->device));
    *out = watch;
    return code == cudaSuccess ? MIST_OK : fail_cuda(at, operation, code, err);
}

/* After it: code is what the call answered. */
static enum mist_status end(struct nccl *at, struct watch *watch, ncclComm_t comm,
                            ncclResult_t code, struct mist_err *err)
{
    enum mist_status status = settle(at, comm, code, watch->operation, err);

    if (status != MIST_OK)
        return status;
    cudaError_t recorded =
        cudaEventRecord(watch->end, mist_cuda_current_stream(at->device));
    if (recorded != cudaSuccess)
        return fail_cuda(at, watch->operation, recorded, err);
    at->n_begun++;
    return MIST_OK;
}

/* ------------------------------------------------------------------------- operations */

static ncclDataType_t type_of(enum mist_dtype dtype)
{
    return dtype == MIST_DTYPE_BF16 ? ncclBfloat16 : ncclFloat32;
}

static enum mist_status all_reduce(struct mist_collective_group *base,
                                   enum mist_dtype dtype, void *buffer, int64_t n,
                                   struct mist_err *err)
{
    struct nccl_group *group = group_of(base);
    struct nccl *at = nccl_of(base->owner);
    struct watch *watch;

    if (n == 0)
        return check_failure(at, "all_reduce", err);
    enum mist_status status =
        begin(at, "all_reduce", -1, n * mist_dtype_weight_bytes(dtype), &watch, err);
    if (status != MIST_OK)
        return status;
    ncclResult_t code = ncclAllReduce(buffer, buffer, (size_t)n, type_of(dtype), ncclSum,
                                      group->comm, mist_cuda_current_stream(at->device));
    return end(at, watch, group->comm, code, err);
}

static enum mist_status reduce_scatter(struct mist_collective_group *base,
                                       enum mist_dtype dtype, const void *whole,
                                       void *shard, int64_t n, struct mist_err *err)
{
    struct nccl_group *group = group_of(base);
    struct nccl *at = nccl_of(base->owner);
    struct watch *watch;

    if (n % group->n != 0)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "reduce_scatter: %lld elements over %ld ranks", (long long)n,
                            (long)group->n);
    if (n == 0)
        return check_failure(at, "reduce_scatter", err);
    enum mist_status status =
        begin(at, "reduce_scatter", -1, n * mist_dtype_weight_bytes(dtype), &watch, err);
    if (status != MIST_OK)
        return status;
    ncclResult_t code =
        ncclReduceScatter(whole, shard, (size_t)(n / group->n), type_of(dtype), ncclSum,
                          group->comm, mist_cuda_current_stream(at->device));
    return end(at, watch, group->comm, code, err);
}

static enum mist_status all_gather(struct mist_collective_group *base, const void *shard,
                                   void *whole, int64_t shard_bytes, struct mist_err *err)
{
    struct nccl_group *group = group_of(base);
    struct nccl *at = nccl_of(base->owner);
    struct watch *watch;

    if (shard_bytes == 0)
        return check_failure(at, "all_gather", err);
    enum mist_status status =
        begin(at, "all_gather", -1, group->n * shard_bytes, &watch, err);
    if (status != MIST_OK)
        return status;
    ncclResult_t code = ncclAllGather(shard, whole, (size_t)shard_bytes, ncclUint8,
                                      group->comm, mist_cuda_current_stream(at->device));
    return end(at, watch, group->comm, code, err);
}

static enum mist_status check_peer(struct nccl *at, const char *operation, int32_t peer,
                                   struct mist_err *err)
{
    if (peer < 0 || peer >= at->n_ranks || peer == at->rank)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: rank %ld has no peer %ld",
                            operation, (long)at->rank, (long)peer);
    if (!at->world && !at->has_failed)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: no transfers were reserved",
                            operation);
    return check_failure(at, operation, err);
}

/* One message, of which recv is where it goes to or NULL; an empty one stays at home. */
static enum mist_status transfer(struct nccl *at, const char *operation, int32_t peer,
                                 const void *send, void *recv, int64_t bytes,
                                 struct mist_err *err)
{
    enum mist_status status = check_peer(at, operation, peer, err);
    struct watch *watch;

    if (status != MIST_OK || bytes == 0)
        return status;
    status = begin(at, operation, peer, bytes, &watch, err);
    if (status != MIST_OK)
        return status;
    cudaStream_t stream = mist_cuda_current_stream(at->device);
    ncclResult_t code =
        recv ? ncclRecv(recv, (size_t)bytes, ncclUint8, peer, at->world, stream)
             : ncclSend(send, (size_t)bytes, ncclUint8, peer, at->world, stream);
    return end(at, watch, at->world, code, err);
}

static enum mist_status send_message(struct mist_collectives *base, int32_t peer,
                                     int32_t tag, const void *ptr, int64_t bytes,
                                     struct mist_err *err)
{
    (void)tag;
    return transfer(nccl_of(base), "send", peer, ptr, NULL, bytes, err);
}

static enum mist_status recv_message(struct mist_collectives *base, int32_t peer,
                                     int32_t tag, void *ptr, int64_t bytes,
                                     struct mist_err *err)
{
    (void)tag;
    return transfer(nccl_of(base), "recv", peer, NULL, ptr, bytes, err);
}

/* ----------------------------------------------------------------------- communicators
 */

/* The id that ranks[0] makes, on all of them. All zero: it could not make one. */
static enum mist_status share_id(struct nccl *at, const int32_t *ranks, int32_t n,
                                 bool is_first, ncclUniqueId *id, struct mist_err *err)
{
    static const ncclUniqueId none;
    ncclResult_t code = ncclSuccess;
    enum mist_status status = MIST_OK;

    *id = none;
    if (is_first)
        code = ncclGetUniqueId(id);
    if (code != ncclSuccess)
        *id = none;
    if (n > 1)
        status = at->exchange(at->context, ranks, n, id, err);
    if (code != ncclSuccess)
        return fail_nccl(at, "communicator", code, NULL, err);
    if (status == MIST_OK && memcmp(id, &none, sizeof none) == 0)
        return fail(at, "communicator", "the first rank of its group has no id", err);
    return status;
}

static enum mist_status make_comm(struct nccl *at, const int32_t *ranks, int32_t n,
                                  int32_t index, ncclComm_t *out, struct mist_err *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclUniqueId id;
    enum mist_status status = check_failure(at, "communicator", err);

    if (status == MIST_OK)
        status = share_id(at, ranks, n, index == 0, &id, err);
    if (status != MIST_OK)
        return status;
    cudaError_t chosen = cudaSetDevice(at->device->i_device);
    if (chosen != cudaSuccess)
        return fail_cuda(at, "communicator", chosen, err);
    config.blocking = 0;
    ncclResult_t code = ncclCommInitRankConfig(&comm, n, id, index, &config);
    status = settle(at, comm, code, "communicator", err);
    if (status != MIST_OK && comm)
        ncclCommAbort(comm);
    if (status == MIST_OK)
        *out = comm;
    return status;
}

static enum mist_status make_group(struct mist_collectives *base, const int32_t *ranks,
                                   int32_t n, int32_t tag_space, int64_t max_bytes,
                                   struct mist_collective_group **out,
                                   struct mist_err *err)
{
    struct nccl *at = nccl_of(base);
    int32_t index = -1;

    (void)tag_space, (void)max_bytes; /* NCCL has memory of its own */
    for (int32_t i = 0; i < n; i++)
        if (ranks[i] == at->rank)
            index = i;
    if (index < 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "rank %ld is not in the group it is to make", (long)at->rank);
    struct nccl_group *group = malloc(sizeof *group);
    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    *group = (struct nccl_group){
        .base = {base->ops, base}, .next = at->groups, .n = n, .index = index};
    enum mist_status status = make_comm(at, ranks, n, index, &group->comm, err);
    if (status != MIST_OK) {
        free(group);
        return status;
    }
    at->groups = group;
    *out = &group->base;
    return MIST_OK;
}

static enum mist_status reserve(struct mist_collectives *base, int64_t transfer_bytes,
                                struct mist_err *err)
{
    struct nccl *at = nccl_of(base);

    if (transfer_bytes == 0 || at->n_ranks == 1 || at->world)
        return check_failure(at, "communicator", err);
    int32_t *ranks = malloc((size_t)at->n_ranks * sizeof *ranks);
    if (!ranks)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for %ld ranks",
                            (long)at->n_ranks);
    for (int32_t i = 0; i < at->n_ranks; i++)
        ranks[i] = i;
    enum mist_status status =
        make_comm(at, ranks, at->n_ranks, at->rank, &at->world, err);
    free(ranks);
    return status;
}

/* -------------------------------------------------------------------- opening, closing
 */

static enum mist_status begin_end(struct nccl *at, ncclComm_t comm)
{
    ncclResult_t code = ncclCommFinalize(comm);

    return code == ncclSuccess || code == ncclInProgress
               ? MIST_OK
               : fail_nccl(at, "end", code, comm, NULL);
}

/* All begin to end before one is waited for, so that ranks need not agree on an order. */
static enum mist_status finalize_all(struct nccl *at)
{
    enum mist_status status = MIST_OK;

    for (struct nccl_group *group = at->groups; group && status == MIST_OK;
         group = group->next)
        status = begin_end(at, group->comm);
    if (at->world && status == MIST_OK)
        status = begin_end(at, at->world);
    for (struct nccl_group *group = at->groups; group && status == MIST_OK;
         group = group->next)
        status = settle(at, group->comm, ncclInProgress, "end", NULL);
    if (at->world && status == MIST_OK)
        status = settle(at, at->world, ncclInProgress, "end", NULL);
    return status;
}

static void end_comms(struct nccl *at)
{
    if (!at->has_failed && mist_cuda_collectives_poll(&at->base, NULL) != MIST_OK)
        return; /* it has aborted them */
    if (at->has_failed || finalize_all(at) != MIST_OK)
        return;
    for (struct nccl_group *group = at->groups; group; group = group->next)
        ncclCommDestroy(group->comm);
    if (at->world)
        ncclCommDestroy(at->world);
}

static void close_nccl(struct mist_collectives *base)
{
    struct nccl *at = nccl_of(base);

    end_comms(at);
    if (at->device->poll_context == at)
        at->device->poll = NULL;
    for (struct nccl_group *group = at->groups, *next; group; group = next) {
        next = group->next;
        free(group);
    }
    for (int i = 0; i < N_WATCHED && at->watches; i++) {
        if (at->watches[i].begin)
            cudaEventDestroy(at->watches[i].begin);
        if (at->watches[i].end)
            cudaEventDestroy(at->watches[i].end);
    }
    free(at->watches);
    free(at);
}

static const struct mist_collectives_ops nccl_ops = {
    .name = "nccl",
    .close = close_nccl,
    .group = make_group,
    .reserve = reserve,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .send = send_message,
    .recv = recv_message,
};

static enum mist_status make_watches(struct nccl *at, struct mist_err *err)
{
    cudaError_t code = cudaSetDevice(at->device->i_device);

    at->watches = calloc(N_WATCHED, sizeof *at->watches);
    if (!at->watches)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    for (int i = 0; i < N_WATCHED && code == cudaSuccess; i++) {
        code = cudaEventCreateWithFlags(&at->watches[i].begin, cudaEventDisableTiming);
        if (code == cudaSuccess)
            code = cudaEventCreateWithFlags(&at->watches[i].end, cudaEventDisableTiming);
    }
    return code == cudaSuccess ? MIST_OK : fail_cuda(at, "communication", code, err);
}

enum mist_status mist_cuda_collectives_open(
    struct mist_device *device, int32_t rank, int32_t n_ranks, double deadline_s,
    enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err),
    void *context, struct mist_collectives **out, struct mist_err *err)
{
    struct nccl *at = malloc(sizeof *at);

    *out = NULL;
    if (!at)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    *at = (struct nccl){.base.ops = &nccl_ops,
                        .device = mist_cuda_device_of(device),
                        .rank = rank,
                        .n_ranks = n_ranks,
                        .deadline_s = deadline_s,
                        .exchange = exchange,
                        .context = context};
    enum mist_status status = make_watches(at, err);
    if (status != MIST_OK) {
        close_nccl(&at->base);
        return status;
    }
    at->device->poll = poll_device;
    at->device->poll_context = at;
    *out = &at->base;
    return MIST_OK;
}
