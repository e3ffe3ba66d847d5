/*
 * Groups of ranks: sums and gathers, built out of messages.
 *
 * A sum goes in pieces of each shard: while the contributions to one piece are added up,
 * those to the next are on their way, in the other lane and the other half of the
 * workspace. Every owner adds in the order of the group, whoever's message came first.
 */
#include "exec/comm_internal.h"

#include <stdlib.h>
#include <string.h>

/* Both sides of a message cut it alike, so this is no knob. */
#define SUM_PIECE_BYTES ((int64_t)1 << 20)

static int64_t min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

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
        malloc(sizeof *group + (size_t)n * sizeof *group->ranks);
    if (!group)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for a group");
    *group = (struct mist_comm_group){
        .comm = comm, .next = comm->groups, .tag = tag_space, .n = n, .index = index};
    memcpy(group->ranks, ranks, (size_t)n * sizeof *ranks);
    comm->groups = group;
    *out = group;
    return MIST_OK;
}

/* One piece that every member sends to and gets from every other. */
struct exchange {
    const char *operation;
    char *send;              /* what member 0 gets */
    int64_t send_step_bytes; /* to what the next member gets; 0: all get the same */
    char *recv;              /* where member 0's goes */
    int64_t recv_step_bytes; /* to where the next member's goes */
    bool has_no_gap;         /* recv has no place for this rank's own */
    int64_t bytes;           /* of the piece */
};

static enum mist_status start_exchange(struct mist_comm_group *group, int lane,
                                       const struct exchange *exchange,
                                       struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t k = 1; k < group->n && status == MIST_OK; k++) {
        int32_t from = (group->index + group->n - k) % group->n;
        int32_t place = from - (exchange->has_no_gap && from > group->index);
        struct mist_comm_message message = {.space = MIST_COMM_SPACE_GROUP,
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
        struct mist_comm_message message = {.space = MIST_COMM_SPACE_GROUP,
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

/* ------------------------------------------------------------------------------ sums */

static int64_t sum_piece_bytes(int64_t shard_bytes)
{
    return min_i64(shard_bytes, SUM_PIECE_BYTES);
}

int64_t mist_comm_workspace_bytes(int64_t max_message_bytes, int32_t max_group_size)
{
    if (max_group_size < 2 || max_message_bytes <= 0)
        return 0;
    int64_t shard_bytes = (max_message_bytes - 1) / max_group_size + 1;
    return MIST_N_COMM_LANES * (max_group_size - 1) * sum_piece_bytes(shard_bytes);
}

enum mist_status mist_comm_reserve(struct mist_comm *comm, int64_t max_message_bytes,
                                   int32_t max_group_size, struct mist_err *err)
{
    int64_t need_bytes = mist_comm_workspace_bytes(max_message_bytes, max_group_size);

    if (need_bytes <= comm->workspace_bytes)
        return MIST_OK;
    void *workspace;
    if (posix_memalign(&workspace, 4096, (size_t)need_bytes) != 0)
        return mist_err_set(err, MIST_ERR_MEMORY,
                            "out of memory for %lld bytes of messages",
                            (long long)need_bytes);
    memset(workspace, 0, (size_t)need_bytes); /* touches the pages now */
    free(comm->workspace);
    comm->workspace = workspace;
    comm->workspace_bytes = need_bytes;
    return MIST_OK;
}

/*
 * own[n] becomes x_0 + x_1 + ... in member order, where x_index is own and the others are
 * staged[n_members - 1, n] in member order (overwritten). Blocks stay in the first-level
 * cache.
 */
static void sum_in_order(float *restrict own, float *restrict staged, int64_t n,
                         int32_t n_members, int32_t index)
{
    enum { BLOCK = 2048 };

    for (int64_t begin = 0; begin < n; begin += BLOCK) {
        int64_t count = min_i64(BLOCK, n - begin);
        float *x = own + begin, *sum = staged + begin;
        if (index == 0)
            for (int64_t i = 0; i < count; i++)
                sum[i] = x[i] + sum[i];
        for (int32_t member = index == 0 ? 2 : 1; member < n_members; member++) {
            const float *other =
                member == index ? x : staged + (member - (member > index)) * n + begin;
            for (int64_t i = 0; i < count; i++)
                sum[i] += other[i];
        }
        memcpy(x, sum, (size_t)count * sizeof *x);
    }
}

static enum mist_status check_sum(const struct mist_comm_group *group, int64_t n,
                                  const char *operation, struct mist_err *err)
{
    if (n < 0 || n % group->n != 0)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: %lld elements over %ld ranks",
                            operation, (long long)n, (long)group->n);
    if (mist_comm_workspace_bytes(n * (int64_t)sizeof(float), group->n) >
        group->comm->workspace_bytes)
        return mist_err_set(err, MIST_ERR_RANGE,
                            "%s: %lld bytes over %ld ranks are more than was reserved",
                            operation, (long long)(n * (int64_t)sizeof(float)),
                            (long)group->n);
    return MIST_OK;
}

static enum mist_status reduce_scatter(struct mist_comm_group *group, float *buffer,
                                       int64_t n, const char *operation,
                                       struct mist_err *err)
{
    int64_t shard = n / group->n;
    int64_t piece =
        sum_piece_bytes(shard * (int64_t)sizeof(float)) / (int64_t)sizeof(float);
    int64_t n_pieces = piece > 0 ? (shard + piece - 1) / piece : 0;
    enum mist_status status = check_sum(group, n, operation, err);

    if (group->n == 1)
        return status;
    /* Step i starts piece i and finishes piece i - 1. */
    for (int64_t i = 0; i <= n_pieces && status == MIST_OK && n_pieces > 0; i++) {
        int lane = (int)(i % MIST_N_COMM_LANES);
        float *staged[MIST_N_COMM_LANES];
        for (int k = 0; k < MIST_N_COMM_LANES; k++)
            staged[k] =
                (float *)(void *)group->comm->workspace + k * (group->n - 1) * piece;
        if (i < n_pieces) {
            int64_t bytes = min_i64(piece, shard - i * piece) * (int64_t)sizeof(float);
            struct exchange exchange = {
                .operation = operation,
                .send = (char *)(buffer + i * piece),
                .send_step_bytes = shard * (int64_t)sizeof(float),
                .recv = (char *)staged[lane],
                .recv_step_bytes = bytes,
                .has_no_gap = true,
                .bytes = bytes,
            };
            status = start_exchange(group, lane, &exchange, err);
        }
        if (i > 0 && status == MIST_OK) {
            int64_t begin = (i - 1) * piece;
            status = mist_comm_wait_lane(group->comm, !lane, operation, err);
            if (status == MIST_OK)
                sum_in_order(buffer + group->index * shard + begin, staged[!lane],
                             min_i64(piece, shard - begin), group->n, group->index);
        }
    }
    return status;
}

static enum mist_status all_gather(struct mist_comm_group *group, char *buffer,
                                   int64_t shard_bytes, const char *operation,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (shard_bytes < 0)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: shards of %lld bytes", operation,
                            (long long)shard_bytes);
    if (group->n == 1)
        return MIST_OK;
    for (int64_t begin = 0; begin < shard_bytes && status == MIST_OK;
         begin += MIST_COMM_MAX_MESSAGE_BYTES) {
        struct exchange exchange = {
            .operation = operation,
            .send = buffer + group->index * shard_bytes + begin,
            .recv = buffer + begin,
            .recv_step_bytes = shard_bytes,
            .bytes = min_i64(shard_bytes - begin, MIST_COMM_MAX_MESSAGE_BYTES),
        };
        status = start_exchange(group, 0, &exchange, err);
        if (status == MIST_OK)
            status = mist_comm_wait_lane(group->comm, 0, operation, err);
    }
    return status;
}

enum mist_status mist_comm_reduce_scatter_sum_f32(struct mist_comm_group *group,
                                                  float *buffer, int64_t n,
                                                  struct mist_err *err)
{
    return reduce_scatter(group, buffer, n, "reduce_scatter", err);
}

enum mist_status mist_comm_all_gather(struct mist_comm_group *group, void *buffer,
                                      int64_t shard_bytes, struct mist_err *err)
{
    return all_gather(group, buffer, shard_bytes, "all_gather", err);
}

enum mist_status mist_comm_all_reduce_sum_f32(struct mist_comm_group *group,
                                              float *buffer, int64_t n,
                                              struct mist_err *err)
{
    enum mist_status status = reduce_scatter(group, buffer, n, "all_reduce", err);

    if (status != MIST_OK)
        return status;
    return all_gather(group, (char *)buffer, n / group->n * (int64_t)sizeof(float),
                      "all_reduce", err);
}
