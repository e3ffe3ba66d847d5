/*
 * Collectives on memory of the host, over MPI (comm.h).
 *
 * The calls do their work before they return, so they must come from a thread that works
 * on the stream, in its order: the body of a task of the CPU backend, or a function of
 * the host that a device calls (collectives_staged.c).
 *
 * A communicator adds up shards of equal size. An all_reduce may have any number of
 * elements: the last ones, fewer than the group has members, go over separately, one to
 * a member, with zeros for the missing ones, which nobody reads. Sums go in the order of
 * the ranks either way.
 */
#include "exec/comm/collectives.h"

#include <stdlib.h>
#include <string.h>

struct mpi {
    struct mist_collectives base;
    struct mist_comm *comm;   /* borrowed */
    struct mpi_group *groups; /* owned; a list */
};

struct mpi_group {
    struct mist_collective_group base;
    struct mpi_group *next;
    struct mist_comm_group *comm_group; /* owned by the communicator */
    float *rest; /* [members]; behind this struct: the last elements of an all_reduce */
};

static void close_mpi(struct mist_collectives *base)
{
    struct mpi *at = (struct mpi *)base;

    for (struct mpi_group *group = at->groups, *next; group; group = next) {
        next = group->next;
        free(group);
    }
    free(at);
}

static enum mist_status make_group(struct mist_collectives *base, const int32_t *ranks,
                                   int32_t n, int32_t tag_space, int64_t max_bytes,
                                   struct mist_collective_group **out,
                                   struct mist_err *err)
{
    struct mpi *at = (struct mpi *)base;
    struct mpi_group *group = calloc(1, sizeof *group + (size_t)n * sizeof *group->rest);
    int64_t rest_bytes = n * (int64_t)sizeof *group->rest;
    enum mist_status status = MIST_OK;

    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    group->base.ops = base->ops;
    group->base.owner = base;
    group->rest = (float *)(void *)(group + 1);
    status = mist_comm_group(at->comm, ranks, n, tag_space, &group->comm_group, err);
    if (status == MIST_OK)
        status = mist_comm_reserve(
            at->comm, max_bytes > rest_bytes ? max_bytes : rest_bytes, n, err);
    if (status != MIST_OK) {
        free(group);
        return status;
    }
    group->next = at->groups;
    at->groups = group;
    *out = &group->base;
    return MIST_OK;
}

/* Messages go from where they are to where they belong. */
static enum mist_status reserve(struct mist_collectives *base, int64_t transfer_bytes,
                                struct mist_err *err)
{
    (void)base, (void)transfer_bytes, (void)err;
    return MIST_OK;
}

static enum mist_status all_reduce(struct mist_collective_group *base,
                                   enum mist_dtype dtype, void *buffer, int64_t n,
                                   struct mist_err *err)
{
    struct mpi_group *group = (struct mpi_group *)base;
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

static enum mist_status reduce_scatter(struct mist_collective_group *base,
                                       enum mist_dtype dtype, const void *whole,
                                       void *shard, int64_t n, struct mist_err *err)
{
    return mist_comm_reduce_scatter(((struct mpi_group *)base)->comm_group, dtype, whole,
                                    shard, n, err);
}

static enum mist_status all_gather(struct mist_collective_group *base, const void *shard,
                                   void *whole, int64_t shard_bytes, struct mist_err *err)
{
    return mist_comm_all_gather(((struct mpi_group *)base)->comm_group, shard, whole,
                                shard_bytes, err);
}

static enum mist_status send_message(struct mist_collectives *base, int32_t peer,
                                     int32_t tag, const void *ptr, int64_t bytes,
                                     struct mist_err *err)
{
    return mist_comm_send(((struct mpi *)base)->comm, peer, tag, ptr, bytes, err);
}

static enum mist_status recv_message(struct mist_collectives *base, int32_t peer,
                                     int32_t tag, void *ptr, int64_t bytes,
                                     struct mist_err *err)
{
    return mist_comm_recv(((struct mpi *)base)->comm, peer, tag, ptr, bytes, err);
}

static const struct mist_collectives_ops mpi_ops = {
    .name = "mpi",
    .close = close_mpi,
    .group = make_group,
    .reserve = reserve,
    .all_reduce = all_reduce,
    .reduce_scatter = reduce_scatter,
    .all_gather = all_gather,
    .send = send_message,
    .recv = recv_message,
};

enum mist_status mist_collectives_open_mpi(struct mist_comm *comm,
                                           struct mist_device *device,
                                           struct mist_collectives **out,
                                           struct mist_err *err)
{
    if (device && !device->ops->is_host)
        return mist_collectives_open_staged(comm, device, out, err);
    struct mpi *at = malloc(sizeof *at);
    *out = NULL;
    if (!at)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for collectives");
    *at = (struct mpi){.base.ops = &mpi_ops, .comm = comm};
    *out = &at->base;
    return MIST_OK;
}
