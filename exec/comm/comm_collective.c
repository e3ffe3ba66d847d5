/*
 * Groups of ranks, the exchange between all members that every collective is made of,
 * and the gathers. The sums are in comm_sum.c.
 */
#include "exec/comm/comm_internal.h"

#include <stdlib.h>
#include <string.h>

int32_t mist_comm_group_size(const struct mist_comm_group *group)
{
    return group->n;
}

int32_t mist_comm_group_index(const struct mist_comm_group *group)
{
    return group->index;
}

static enum mist_status check_members(const struct mist_comm *comm, const int32_t *ranks,
                                      int32_t n, int32_t *index, struct mist_err *err)
{
    *index = -1;
    for (int32_t i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->n_ranks)
            return mist_err_set(err, MIST_ERR_INPUT, "a group with rank %ld of %ld ranks",
                                (long)ranks[i], (long)comm->n_ranks);
        for (int32_t k = 0; k < i; k++)
            if (ranks[k] == ranks[i])
                return mist_err_set(err, MIST_ERR_INPUT, "rank %ld is in a group twice",
                                    (long)ranks[i]);
        if (ranks[i] == comm->rank)
            *index = i;
    }
    if (*index < 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "rank %ld is not in the group it is to make",
                            (long)comm->rank);
    return MIST_OK;
}

enum mist_status mist_comm_group(struct mist_comm *comm, const int32_t *ranks, int32_t n,
                                 int32_t tag_space, struct mist_comm_group **out,
                                 struct mist_err *err)
{
    int32_t index;
    enum mist_status status = check_members(comm, ranks, n, &index, err);

    *out = NULL;
    if (status != MIST_OK)
        return status;
    if (tag_space < 0 || tag_space > comm->max_tag)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "tag space %ld of a group: MPI has tags up to %ld",
                            (long)tag_space, (long)comm->max_tag);
    struct mist_comm_group *group =
        malloc(sizeof *group + (size_t)n * (sizeof *group->parts + sizeof *group->ranks));
    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    const char **parts = (const char **)(void *)(group + 1);
    int32_t *members = (int32_t *)(void *)(parts + n);
    *group = (struct mist_comm_group){.comm = comm,
                                      .next = comm->groups,
                                      .space = MIST_COMM_SPACE_GROUP,
                                      .tag = tag_space,
                                      .n = n,
                                      .index = index,
                                      .parts = parts,
                                      .ranks = members};
    memcpy(members, ranks, (size_t)n * sizeof *ranks);
    group->is_on_node = comm->window != NULL;
    for (int32_t i = 0; i < n; i++)
        group->is_on_node &= comm->window && comm->node_ranks[ranks[i]] >= 0;
    comm->groups = group;
    *out = group;
    return MIST_OK;
}

enum mist_status mist_comm_start_exchange(const struct mist_comm_group *group, int lane,
                                          const struct mist_comm_exchange *exchange,
                                          struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t k = 1; k < group->n && status == MIST_OK; k++) {
        int32_t from = (group->index + group->n - k) % group->n;
        int32_t place = from - (exchange->has_no_gap && from > group->index);
        struct mist_comm_message message = {.space = group->space,
                                            .peer = group->ranks[from],
                                            .tag = group->tag,
                                            .ptr = exchange->recv +
                                                   place * exchange->recv_step_bytes,
                                            .bytes = exchange->bytes};
        status = mist_comm_start_message(group->comm, lane, exchange->operation, &message,
                                         err);
    }
    for (int32_t k = 1; k < group->n && status == MIST_OK; k++) {
        int32_t to = (group->index + k) % group->n;
        struct mist_comm_message message = {.space = group->space,
                                            .is_send = true,
                                            .peer = group->ranks[to],
                                            .tag = group->tag,
                                            .ptr = exchange->send +
                                                   to * exchange->send_step_bytes,
                                            .bytes = exchange->bytes};
        status = mist_comm_start_message(group->comm, lane, exchange->operation, &message,
                                         err);
    }
    return status;
}

/* Through the window, which holds the shard. */
static enum mist_status read_shards(const struct mist_comm_group *group,
                                    const struct mist_comm_exchange *exchange,
                                    struct mist_err *err)
{
    enum mist_status status = mist_comm_window_give(group, exchange, err);

    for (int32_t k = 1; k < group->n && status == MIST_OK; k++) {
        int32_t from = (group->index + group->n - k) % group->n;
        const char *shard;
        status = mist_comm_window_look(group, exchange, from, &shard, err);
        if (status == MIST_OK)
            memcpy(exchange->recv + from * exchange->recv_step_bytes, shard,
                   (size_t)exchange->bytes);
    }
    if (status == MIST_OK)
        mist_comm_window_end(group);
    return status;
}

enum mist_status mist_comm_gather_shards(const struct mist_comm_group *group,
                                         char *buffer, int64_t shard_bytes,
                                         const char *operation, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (shard_bytes < 0)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: shards of %lld bytes", operation,
                            (long long)shard_bytes);
    if (group->n == 1)
        return MIST_OK;
    for (int64_t begin = 0; begin < shard_bytes && status == MIST_OK;
         begin += MIST_COMM_MAX_MESSAGE_BYTES) {
        struct mist_comm_exchange exchange = {
            .operation = operation,
            .send = buffer + group->index * shard_bytes + begin,
            .recv = buffer + begin,
            .recv_step_bytes = shard_bytes,
            .bytes = mist_comm_min(shard_bytes - begin, MIST_COMM_MAX_MESSAGE_BYTES),
        };
        if (mist_comm_window_holds(group, shard_bytes)) {
            status = read_shards(group, &exchange, err);
            continue;
        }
        status = mist_comm_start_exchange(group, 0, &exchange, err);
        if (status == MIST_OK)
            status = mist_comm_wait_lane(group->comm, 0, operation, err);
    }
    return status;
}

enum mist_status mist_comm_all_gather(struct mist_comm_group *group, const void *shard,
                                      void *whole, int64_t shard_bytes,
                                      struct mist_err *err)
{
    char *own = (char *)whole + group->index * shard_bytes;

    if (shard_bytes > 0 && shard != own)
        memcpy(own, shard, (size_t)shard_bytes);
    return mist_comm_gather_shards(group, whole, shard_bytes, "all_gather", err);
}
