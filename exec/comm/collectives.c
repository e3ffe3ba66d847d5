/*
 * Communication of a schedule's tasks: the calls, handed to the implementation.
 *
 * What all implementations refuse alike is refused here; what depends on the group, such
 * as its size, is theirs to check. collectives_host.c and
 * cuda/collectives_nccl.c are the implementations.
 */
#include "exec/comm/collectives.h"

#include <stddef.h>

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

static enum mist_status check_elements(enum mist_dtype dtype, int64_t n,
                                       const char *operation, struct mist_err *err)
{
    if (n < 0 || n > INT64_MAX / (int64_t)sizeof(float))
        return mist_err_set(err, MIST_ERR_RANGE, "%s: %lld elements", operation,
                            (long long)n);
    if (dtype != MIST_DTYPE_FP32 && dtype != MIST_DTYPE_BF16)
        return mist_err_set(err, MIST_ERR_RANGE, "%s: no sums of number format %d",
                            operation, (int)dtype);
    return MIST_OK;
}

enum mist_status mist_collective_all_reduce(struct mist_collective_group *group,
                                            enum mist_dtype dtype, void *buffer,
                                            int64_t n, struct mist_err *err)
{
    enum mist_status status = check_elements(dtype, n, "all_reduce", err);

    return status == MIST_OK ? group->ops->all_reduce(group, dtype, buffer, n, err)
                             : status;
}

enum mist_status mist_collective_reduce_scatter(struct mist_collective_group *group,
                                                enum mist_dtype dtype, const void *whole,
                                                void *shard, int64_t n,
                                                struct mist_err *err)
{
    enum mist_status status = check_elements(dtype, n, "reduce_scatter", err);

    return status == MIST_OK
               ? group->ops->reduce_scatter(group, dtype, whole, shard, n, err)
               : status;
}

static enum mist_status check_bytes(int64_t bytes, const char *operation,
                                    struct mist_err *err)
{
    return bytes >= 0 ? MIST_OK
                      : mist_err_set(err, MIST_ERR_RANGE, "%s: %lld bytes", operation,
                                     (long long)bytes);
}

enum mist_status mist_collective_all_gather(struct mist_collective_group *group,
                                            const void *shard, void *whole,
                                            int64_t shard_bytes, struct mist_err *err)
{
    enum mist_status status = check_bytes(shard_bytes, "all_gather", err);

    return status == MIST_OK
               ? group->ops->all_gather(group, shard, whole, shard_bytes, err)
               : status;
}

enum mist_status mist_collectives_send(struct mist_collectives *at, int32_t peer,
                                       int32_t tag, const void *ptr, int64_t bytes,
                                       struct mist_err *err)
{
    enum mist_status status = check_bytes(bytes, "send", err);

    return status == MIST_OK ? at->ops->send(at, peer, tag, ptr, bytes, err) : status;
}

enum mist_status mist_collectives_recv(struct mist_collectives *at, int32_t peer,
                                       int32_t tag, void *ptr, int64_t bytes,
                                       struct mist_err *err)
{
    enum mist_status status = check_bytes(bytes, "recv", err);

    return status == MIST_OK ? at->ops->recv(at, peer, tag, ptr, bytes, err) : status;
}
