/*
 * Collectives in memory of the host, by the communicator (comm.h): "mpi" where that is the
 * device's memory, "staged" through memory beside it where it is not.
 *
 * "mpi" does its work before a call returns, so calls must come from a thread that works
 * on the stream, in its order: the body of a task of the CPU backend.
 *
 * "staged" gives the stream three things and returns: a copy to the staging memory, a
 * function of the host that does the same work there, and a copy back. One staging memory
 * serves all calls, and needs no events to guard it: all calls come from bodies of one
 * stream (is_one_by_one), whose work goes in the order in which it was given. Several
 * would not do, as a device runs functions of the host one at a time: one that waits for
 * a transfer would keep out the collective that the sender waits in, and the reverse on
 * its side. So the first copy of a call begins when the last copy of the call before it
 * has ended, and what is in between is alone with the memory. A device whose copies
 * overtake each other in one stream would not be a device (mist_device_copy). What the
 * function is to do is in a record, which the device keeps until it has run
 * (mist_device_call_host_copy). A failed call fails the device from inside the function
 * and cancels the communication; the calls behind it do nothing.
 *
 * A communicator adds up shards of equal size. An all_reduce may have any number of
 * elements: the last ones, fewer than the group has members, go over separately, one to
 * a member, with zeros for the missing ones, which nobody reads. Sums go in the order of
 * the ranks either way, on any device.
 *
 * Left out: cutting a message so that its copies overlap its communication.
 */
#include "exec/comm/collectives.h"

#include <stdlib.h>
#include <string.h>

struct host {
    struct mist_collectives base;
    struct mist_collectives_ops ops; /* base.ops */
    struct mist_comm *comm;          /* borrowed */
    struct mist_device *device;      /* borrowed; NULL: its memory is the host's */
    struct host_group *groups;       /* owned; a list */
    char *staging;                   /* owned; staging_bytes; NULL without device */
    int64_t staging_bytes;           /* the largest of all groups and transfers */
    bool has_work;                   /* something may use the staging memory */
};

struct host_group {
    struct mist_collective_group base;
    struct host_group *next;
    struct mist_comm_group *comm_group; /* owned by the communicator */
    int64_t max_bytes;
    float *rest; /* [members]; behind this struct: the last elements of an all_reduce */
};

/* The argument of a function of the host. */
struct record {
    struct host *at;
    struct mist_communication what;
};
_Static_assert(sizeof(struct record) <= MIST_DEVICE_MAX_CALL_BYTES, "is copied");

/* --------------------------------------------------------------------- communication */

static enum mist_status all_reduce_any(const struct host_group *group,
                                       enum mist_dtype dtype, void *buffer, int64_t n,
                                       struct mist_err *err)
{
    int32_t size = mist_comm_group_size(group->comm_group);
    int64_t n_rest = n % size, element_bytes = mist_dtype_weight_bytes(dtype);
    char *rest = (char *)buffer + (n - n_rest) * element_bytes;
    enum mist_status status =
        mist_comm_all_reduce(group->comm_group, dtype, buffer, n - n_rest, err);

    if (status != MIST_OK || n_rest == 0)
        return status;
    memset(group->rest, 0, (size_t)(size * element_bytes));
    memcpy(group->rest, rest, (size_t)(n_rest * element_bytes));
    status = mist_comm_all_reduce(group->comm_group, dtype, group->rest, size, err);
    if (status == MIST_OK)
        memcpy(rest, group->rest, (size_t)(n_rest * element_bytes));
    return status;
}

static enum mist_status communicate(const struct host *at,
                                    const struct mist_communication *what,
                                    struct mist_err *err)
{
    const struct host_group *group = (const struct host_group *)what->group;

    switch (what->kind) {
    case MIST_COMMUNICATION_ALL_REDUCE:
        return all_reduce_any(group, what->dtype, what->whole, what->n, err);
    case MIST_COMMUNICATION_REDUCE_SCATTER:
        return mist_comm_reduce_scatter(group->comm_group, what->dtype, what->whole,
                                        what->shard, what->n, err);
    case MIST_COMMUNICATION_ALL_GATHER:
        return mist_comm_all_gather(group->comm_group, what->shard, what->whole, what->n,
                                    err);
    case MIST_COMMUNICATION_SEND:
        return mist_comm_send(at->comm, what->peer, what->tag, what->whole, what->n, err);
    case MIST_COMMUNICATION_RECV:
        break;
    }
    return mist_comm_recv(at->comm, what->peer, what->tag, what->whole, what->n, err);
}

/* In the host's turn. */
static void run_record(void *arg)
{
    const struct record *record = arg;
    struct host *at = record->at;
    struct mist_err err = {0};

    if (!mist_device_has_failed(at->device)) {
        enum mist_status status = communicate(at, &record->what, &err);
        if (status != MIST_OK) {
            mist_device_fail(at->device, status, &err);
            mist_comm_cancel(at->comm); /* what never comes is not waited for */
        }
    }
}

/* In the dispatcher's turn: the record with the staging memory for its addresses. Where a
 * shard lies in the whole, it lies in the staging memory. */
static enum mist_status stage(struct host *at, const struct mist_communication *what,
                              struct mist_err *err)
{
    const struct host_group *group = (const struct host_group *)what->group;
    const char *name = mist_communication_names[what->kind];
    struct record record = {at, *what};
    int32_t n = group ? mist_comm_group_size(group->comm_group) : 1;
    int64_t whole_bytes = mist_communication_bytes(what, n);
    int64_t shard_bytes = whole_bytes / n;
    int64_t max_bytes = group ? group->max_bytes : at->staging_bytes;
    bool gives_shard = what->kind == MIST_COMMUNICATION_ALL_GATHER;
    bool gets_shard = what->kind == MIST_COMMUNICATION_REDUCE_SCATTER;

    if (whole_bytes > max_bytes)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "%s: %lld bytes are more than the %lld that were reserved",
                            name, (long long)whole_bytes, (long long)max_bytes);
    if (gets_shard && what->n % n != 0)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: %lld elements over %ld ranks", name,
                            (long long)what->n, (long)n);
    record.what.whole = at->staging;
    if (group)
        record.what.shard =
            at->staging + mist_comm_group_index(group->comm_group) * shard_bytes;
    at->has_work = true;
    if (what->kind != MIST_COMMUNICATION_RECV && whole_bytes > 0)
        mist_device_copy(at->device, gives_shard ? record.what.shard : record.what.whole,
                         gives_shard ? what->shard : what->whole,
                         gives_shard ? shard_bytes : whole_bytes);
    mist_device_call_host_copy(at->device, run_record, &record, sizeof record);
    if (what->kind != MIST_COMMUNICATION_SEND && whole_bytes > 0)
        mist_device_copy(at->device, gets_shard ? what->shard : what->whole,
                         gets_shard ? record.what.shard : record.what.whole,
                         gets_shard ? shard_bytes : whole_bytes);
    return MIST_OK;
}

static enum mist_status run(struct mist_collectives *base,
                            const struct mist_communication *what, struct mist_err *err)
{
    struct host *at = (struct host *)base;

    return at->device ? stage(at, what, err) : communicate(at, what, err);
}

/* ------------------------------------------------------------------- opening, closing */

/* Makes the staging memory larger. What is under way may still use it. */
static enum mist_status reserve(struct mist_collectives *base, int64_t bytes,
                                struct mist_err *err)
{
    struct host *at = (struct host *)base;
    void *staging;

    if (!at->device || bytes <= at->staging_bytes)
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
    struct host *at = (struct host *)base;
    struct host_group *group = calloc(1, sizeof *group + (size_t)n * sizeof *group->rest);
    int64_t rest_bytes = n * (int64_t)sizeof *group->rest;

    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    *group = (struct host_group){.base = {base},
                                 .next = at->groups,
                                 .max_bytes = max_bytes,
                                 .rest = (float *)(void *)(group + 1)};
    enum mist_status status =
        mist_comm_group(at->comm, ranks, n, tag_space, &group->comm_group, err);
    if (status == MIST_OK)
        status = mist_comm_reserve(
            at->comm, max_bytes > rest_bytes ? max_bytes : rest_bytes, n, err);
    if (status == MIST_OK)
        status = reserve(base, max_bytes, err);
    if (status != MIST_OK) {
        free(group);
        return status;
    }
    at->groups = group;
    *out = &group->base;
    return MIST_OK;
}

static void close_host(struct mist_collectives *base)
{
    struct host *at = (struct host *)base;

    for (struct host_group *group = at->groups, *next; group; group = next) {
        next = group->next;
        free(group);
    }
    if (at->device)
        mist_device_free_host(at->device, at->staging);
    free(at);
}

static const struct mist_collectives_ops host_ops = {
    .close = close_host,
    .group = make_group,
    .reserve = reserve,
    .run = run,
};

enum mist_status mist_collectives_open_host(struct mist_comm *comm,
                                            struct mist_device *device,
                                            struct mist_collectives **out,
                                            struct mist_err *err)
{
    struct host *at = malloc(sizeof *at);

    *out = NULL;
    if (!at)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    *at = (struct host){
        .base.ops = &at->ops, .ops = host_ops, .comm = comm, .device = device};
    at->ops.name = device ? "staged" : "mpi";
    at->ops.is_one_by_one = device != NULL;
    *out = &at->base;
    return MIST_OK;
}
