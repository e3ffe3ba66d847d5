/*
 * Collectives through memory of the host, for devices whose ranks can't reach each other.
 *
 * A call gives the stream three things and returns: a copy to the staging memory, a
 * function of the host that does the communication there (collectives_mpi.c), and a copy
 * back. The sums are made by the same code as on the host, so they have the same bits.
 *
 * One staging memory serves all calls, and needs no events to guard it: all calls come
 * from bodies of one stream, whose work goes in the order in which it was given. So the
 * first copy of a call begins when the last copy of the call before it has ended, and
 * what is in between is alone with the memory. A device whose copies overtake each other
 * in one stream would not be a device (mist_device_copy).
 *
 * What a function of the host is to do is in a record, which the device keeps until it
 * has run (mist_device_call_host_copy).
 *
 * A failed call fails the device from inside the function and cancels the communication;
 * the calls behind it do nothing.
 *
 * Left out: cutting a message so that its copies overlap its communication.
 */
#include "exec/comm/collectives.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct staged {
    struct mist_collectives base;
    struct mist_comm *comm;        /* borrowed */
    struct mist_device *device;    /* borrowed */
    struct mist_collectives *host; /* owned; works on the staging memory */
    struct staged_group *groups;   /* owned; a list */
    char *staging;                 /* owned; staging_bytes */
    int64_t staging_bytes;         /* the largest of all groups and transfers */
    bool has_work;                 /* something may use the staging memory */
};

struct staged_group {
    struct mist_collective_group base;
    struct staged_group *next;
    struct mist_collective_group *host; /* owned by staged.host */
    int64_t max_bytes;
    int32_t n, index; /* members; which of them this rank is */
};

enum operation { ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, SEND, RECV };

/* One communication in the staging memory. */
struct staged_record {
    struct staged *at;
    struct staged_group *group; /* NULL: a message */
    enum operation operation;
    enum mist_dtype dtype; /* of sums */
    int64_t n;             /* elements of a sum; else bytes, of the shard in a gather */
    int32_t peer, tag;     /* of a message */
};

/* ---------------------------------------------------------------- in the host's turn */

static enum mist_status communicate(const struct staged_record *record,
                                    struct mist_err *err)
{
    const struct staged_group *group = record->group;
    struct mist_collectives *host = record->at->host;
    char *staging = record->at->staging;

    switch (record->operation) {
    case ALL_REDUCE:
        return mist_collective_all_reduce(group->host, record->dtype, staging, record->n,
                                          err);
    case REDUCE_SCATTER:
        return mist_collective_reduce_scatter(
            group->host, record->dtype, staging,
            staging + record->n / group->n * group->index *
                          mist_dtype_weight_bytes(record->dtype),
            record->n, err);
    case ALL_GATHER:
        return mist_collective_all_gather(group->host, staging + record->n * group->index,
                                          staging, record->n, err);
    case SEND:
        return mist_collectives_send(host, record->peer, record->tag, staging, record->n,
                                     err);
    case RECV:
        return mist_collectives_recv(host, record->peer, record->tag, staging, record->n,
                                     err);
    }
    return mist_err_set(err, MIST_ERR_RUN, "no such communication");
}

static void run_record(void *arg)
{
    const struct staged_record *record = arg;
    struct staged *at = record->at;
    struct mist_err err = {0};

    if (!mist_device_has_failed(at->device)) {
        enum mist_status status = communicate(record, &err);
        if (status != MIST_OK) {
            mist_device_fail(at->device, status, &err);
            mist_comm_cancel(at->comm); /* what never comes is not waited for */
        }
    }
}

/* ---------------------------------------------------------- in the dispatcher's turn */

/* Bytes that go to the staging memory before a communication and come back after it. */
struct staged_copies {
    const void *from;
    int64_t from_offset_bytes, from_bytes;
    void *to;
    int64_t to_offset_bytes, to_bytes;
};

static void enqueue(struct staged *at, const struct staged_record *what,
                    const struct staged_copies *copies)
{
    struct staged_record record = *what;

    record.at = at;
    at->has_work = true;
    if (copies->from_bytes > 0)
        mist_device_copy(at->device, at->staging + copies->from_offset_bytes,
                         copies->from, copies->from_bytes);
    mist_device_call_host_copy(at->device, run_record, &record, sizeof record);
    if (copies->to_bytes > 0)
        mist_device_copy(at->device, copies->to, at->staging + copies->to_offset_bytes,
                         copies->to_bytes);
}

static enum mist_status check_size(int64_t bytes, int64_t max_bytes,
                                   const char *operation, struct mist_err *err)
{
    return bytes <= max_bytes
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_RANGE,
                              "%s: %lld bytes are more than the %lld that were reserved",
                              operation, (long long)bytes, (long long)max_bytes);
}

static enum mist_status all_reduce(struct mist_collective_group *base,
                                   enum mist_dtype dtype, void *buffer, int64_t n,
                                   struct mist_err *err)
{
    struct staged_group *group = (struct staged_group *)base;
    int64_t bytes = n * mist_dtype_weight_bytes(dtype);
    enum mist_status status = check_size(bytes, group->max_bytes, "all_reduce", err);

    if (status != MIST_OK)
        return status;
    enqueue((struct staged *)base->owner,
            &(struct staged_record){
                .group = group, .operation = ALL_REDUCE, .dtype = dtype, .n = n},
            &(struct staged_copies){
                .from = buffer, .from_bytes = bytes, .to = buffer, .to_bytes = bytes});
    return MIST_OK;
}

static enum mist_status reduce_scatter(struct mist_collective_group *base,
                                       enum mist_dtype dtype, const void *whole,
                                       void *shard, int64_t n, struct mist_err *err)
{
    struct staged_group *group = (struct staged_group *)base;
    int64_t bytes = n * mist_dtype_weight_bytes(dtype), shard_bytes = bytes / group->n;
    enum mist_status status = check_size(bytes, group->max_bytes, "reduce_scatter", err);

    if (status == MIST_OK && n % group->n != 0)
        status = mist_err_set(err, MIST_ERR_RANGE,
                              "reduce_scatter: %lld elements over %ld "
                              "ranks",
                              (long long)n, (long)group->n);
    if (status != MIST_OK)
        return status;
    enqueue((struct staged *)base->owner,
            &(struct staged_record){
                .group = group, .operation = REDUCE_SCATTER, .dtype = dtype, .n = n},
            &(struct staged_copies){.from = whole,
                                    .from_bytes = bytes,
                                    .to = shard,
                                    .to_offset_bytes = group->index * shard_bytes,
                                    .to_bytes = shard_bytes});
    return MIST_OK;
}

static enum mist_status all_gather(struct mist_collective_group *base, const void *shard,
                                   void *whole, int64_t shard_bytes, struct mist_err *err)
{
    struct staged_group *group = (struct staged_group *)base;
    enum mist_status status =
        check_size(shard_bytes, group->max_bytes / group->n, "all_gather", err);

    if (status != MIST_OK)
        return status;
    enqueue((struct staged *)base->owner,
            &(struct staged_record){
                .group = group, .operation = ALL_GATHER, .n = shard_bytes},
            &(struct staged_copies){.from = shard,
                                    .from_offset_bytes = group->index * shard_bytes,
                                    .from_bytes = shard_bytes,
                                    .to = whole,
                                    .to_bytes = group->n * shard_bytes});
    return MIST_OK;
}

static enum mist_status send_message(struct mist_collectives *base, int32_t peer,
                                     int32_t tag, const void *ptr, int64_t bytes,
                                     struct mist_err *err)
{
    struct staged *at = (struct staged *)base;
    enum mist_status status = check_size(bytes, at->staging_bytes, "send", err);

    if (status != MIST_OK)
        return status;
    enqueue(
        at,
        &(struct staged_record){.operation = SEND, .n = bytes, .peer = peer, .tag = tag},
        &(struct staged_copies){.from = ptr, .from_bytes = bytes});
    return MIST_OK;
}

static enum mist_status recv_message(struct mist_collectives *base, int32_t peer,
                                     int32_t tag, void *ptr, int64_t bytes,
                                     struct mist_err *err)
{
    struct staged *at = (struct staged *)base;
    enum mist_status status = check_size(bytes, at->staging_bytes, "recv", err);

    if (status != MIST_OK)
        return status;
    enqueue(
        at,
        &(struct staged_record){.operation = RECV, .n = bytes, .peer = peer, .tag = tag},
        &(struct staged_copies){.to = ptr, .to_bytes = bytes});
    return MIST_OK;
}

/* ------------------------------------------------------------------- opening, closing */

/* Makes the staging memory larger. What is under way may still use it. */
static enum mist_status grow_staging(struct staged *at, int64_t bytes,
                                     struct mist_err *err)
{
    void *staging;

    if (bytes <= at->staging_bytes)
        return MIST_OK;
    if (at->has_work) {
        enum mist_status end = mist_device_synchronize(at->device, err);
        if (end != MIST_OK)
            return end;
    }
    enum mist_status status = mist_device_alloc_host(at->device, bytes, &staging, err);
    if (status != MIST_OK)
        return status;
    mist_device_free_host(at->device, at->staging);
    at->staging = staging;
    at->staging_bytes = bytes;
    return MIST_OK;
}

static enum mist_status make_group(struct mist_collectives *base, const int32_t *ranks,
                                   int32_t n, int32_t tag_space, int64_t max_bytes,
                                   struct mist_collective_group **out,
                                   struct mist_err *err)
{
    struct staged *at = (struct staged *)base;
    struct staged_group *group = calloc(1, sizeof *group);
    enum mist_status status;

    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    *group =
        (struct staged_group){.base = {base->ops, base}, .max_bytes = max_bytes, .n = n};
    for (int32_t i = 0; i < n; i++)
        if (ranks[i] == mist_comm_rank(at->comm))
            group->index = i;
    status = mist_collectives_group(at->host, ranks, n, tag_space, max_bytes,
                                    &group->host, err);
    if (status == MIST_OK)
        status = grow_staging(at, max_bytes, err);
    if (status != MIST_OK) {
        free(group);
        return status;
    }
    group->next = at->groups;
    at->groups = group;
    *out = &group->base;
    return MIST_OK;
}

static enum mist_status reserve(struct mist_collectives *base, int64_t transfer_bytes,
                                struct mist_err *err)
{
    struct staged *at = (struct staged *)base;
    enum mist_status status = mist_collectives_reserve(at->host, transfer_bytes, err);

    return status == MIST_OK ? grow_staging(at, transfer_bytes, err) : status;
}

static void close_staged(struct mist_collectives *base)
{
    struct staged *at = (struct staged *)base;

    for (struct staged_group *group = at->groups, *next; group; group = next) {
        next = group->next;
        free(group);
    }
    mist_collectives_close(at->host);
    mist_device_free_host(at->device, at->staging);
    free(at);
}

static const struct mist_collectives_ops staged_ops = {
    .name = "staged",
    .close = close_staged,
    .group = make_group,
    .reserve = reserve,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .send = send_message,
    .recv = recv_message,
};

enum mist_status mist_collectives_open_staged(struct mist_comm *comm,
                                              struct mist_device *device,
                                              struct mist_collectives **out,
                                              struct mist_err *err)
{
    struct staged *at = calloc(1, sizeof *at);
    struct mist_collectives *host = NULL;

    *out = NULL;
    if (!at)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    at->base.ops = &staged_ops;
    at->comm = comm;
    at->device = device;
    enum mist_status status = mist_collectives_open_mpi(comm, NULL, &host, err);
    at->host = host;
    if (status != MIST_OK) {
        close_staged(&at->base);
        return status;
    }
    *out = &at->base;
    return MIST_OK;
}
