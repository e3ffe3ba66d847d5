/*
 * Communication of a schedule's tasks: the calls, handed to the implementation.
 *
 * What all implementations refuse alike is refused here; what depends on the group, such
 * as its size, is theirs to check. collectives_host.c and
 * cuda/collectives_nccl.c are the implementations.
 */
#include "exec/comm/collectives.h"

#include <stddef.h>

const char *const mist_communication_names[] = {"all_reduce", "reduce_scatter",
                                                "all_gather", "send", "recv"};

void mist_collectives_close(struct mist_collectives *at)
{
    if (at)
        at->ops->close(at);
}

enum mist_status mist_collectives_group(struct mist_collectives *at, const int32_t *ranks,
                                        int32_t n, int32_t tag_space, int64_t max_bytes,
                                        struct mist_collective_group **out,
                                        struct mist_err *err)
{
    *out = NULL;
    if (n < 1 || max_bytes < 0)
        return mist_err_set(err, MIST_ERR_RANGE, "a group of %ld ranks for %lld bytes",
                            (long)n, (long long)max_bytes);
    return at->ops->group(at, ranks, n, tag_space, max_bytes, out, err);
}

enum mist_status mist_collectives_reserve(struct mist_collectives *at,
                                          int64_t transfer_bytes, struct mist_err *err)
{
    if (transfer_bytes < 0)
        return mist_err_set(err, MIST_ERR_RANGE, "transfers of %lld bytes",
                            (long long)transfer_bytes);
    return at->ops->reserve(at, transfer_bytes, err);
}

static enum mist_status run(struct mist_collectives *at,
                            const struct mist_communication *what, struct mist_err *err)
{
    const char *name = mist_communication_names[what->kind];
    bool is_sum = what->group && what->kind != MIST_COMMUNICATION_ALL_GATHER;
    int64_t most = is_sum ? INT64_MAX / (int64_t)sizeof(float) : INT64_MAX;

    if (what->n < 0 || what->n > most)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: %lld %s", name, (long long)what->n,
                            is_sum ? "elements" : "bytes");
    if (is_sum && what->dtype != MIST_DTYPE_FP32 && what->dtype != MIST_DTYPE_BF16)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: no sums of number format %d", name,
                            (int)what->dtype);
    return at->ops->run(at, what, err);
}

enum mist_status mist_collective_all_reduce(struct mist_collective_group *group,
                                            enum mist_dtype dtype, void *buffer,
                                            int64_t n, struct mist_err *err)
{
    const struct mist_communication what = {.kind = MIST_COMMUNICATION_ALL_REDUCE,
                                            .dtype = dtype,
                                            .group = group,
                                            .n = n,
                                            .whole = buffer};

    return run(group->owner, &what, err);
}

enum mist_status mist_collective_reduce_scatter(struct mist_collective_group *group,
                                                enum mist_dtype dtype, const void *whole,
                                                void *shard, int64_t n,
                                                struct mist_err *err)
{
    const struct mist_communication what = {.kind = MIST_COMMUNICATION_REDUCE_SCATTER,
                                            .dtype = dtype,
                                            .group = group,
                                            .n = n,
                                            .whole = (void *)(uintptr_t)whole,
                                            .shard = shard};

    return run(group->owner, &what, err);
}

enum mist_status mist_collective_all_gather(struct mist_collective_group *group,
                                            const void *shard, void *whole,
                                            int64_t shard_bytes, struct mist_err *err)
{
    const struct mist_communication what = {.kind = MIST_COMMUNICATION_ALL_GATHER,
                                            .group = group,
                                            .n = shard_bytes,
                                            .whole = whole,
                                            .shard = (void *)(uintptr_t)shard};

    return run(group->owner, &what, err);
}

enum mist_status mist_collectives_send(struct mist_collectives *at, int32_t peer,
                                       int32_t tag, const void *ptr, int64_t bytes,
                                       struct mist_err *err)
{
    const struct mist_communication what = {.kind = MIST_COMMUNICATION_SEND,
                                            .n = bytes,
                                            .whole = (void *)(uintptr_t)ptr,
                                            .peer = peer,
                                            .tag = tag};

    return run(at, &what, err);
}

enum mist_status mist_collectives_recv(struct mist_collectives *at, int32_t peer,
                                       int32_t tag, void *ptr, int64_t bytes,
                                       struct mist_err *err)
{
    const struct mist_communication what = {.kind = MIST_COMMUNICATION_RECV,
                                            .n = bytes,
                                            .whole = ptr,
                                            .peer = peer,
                                            .tag = tag};

    return run(at, &what, err);
}
