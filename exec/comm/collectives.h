/*
 * Communication of a schedule's tasks: collectives in groups of ranks and transfers
 * between two, on memory of the device: in the order of the gpu_gpu stream the ones, of
 * the send and the receive stream the others.
 *
 * Called inside bodies of tasks on those streams. Three implementations: "mpi" works on
 * memory of the host (comm.h); "staged" goes through memory of the host, for devices
 * whose ranks can't reach each other (ranks that share one device); "nccl" is the CUDA
 * backend's. With the first two, sums go in the order of the ranks, and so have the same
 * bits on any device.
 *
 * Everything but the calls inside bodies is for all ranks at once, in the same order.
 */
#ifndef MIST_EXEC_COLLECTIVES_H
#define MIST_EXEC_COLLECTIVES_H

#include "core/status.h"
#include "exec/comm/comm.h"
#include "exec/device/device.h"
#include "sim/model/model.h" /* enum mist_dtype */

#include <stddef.h>
#include <stdint.h>

struct mist_collectives;
struct mist_collective_group;

/* What ranks do together: a sum or a gather in a group, or a message of one to another. */
enum mist_communication_kind {
    MIST_COMMUNICATION_ALL_REDUCE,
    MIST_COMMUNICATION_REDUCE_SCATTER,
    MIST_COMMUNICATION_ALL_GATHER,
    MIST_COMMUNICATION_SEND,
    MIST_COMMUNICATION_RECV
};
extern const char *const mist_communication_names[]; /* "all_reduce", ...; by kind */

struct mist_communication {
    enum mist_communication_kind kind;
    enum mist_dtype dtype;               /* of sums */
    struct mist_collective_group *group; /* NULL: a message */
    int64_t n;         /* elements of a sum; else bytes, of the shard in a gather */
    void *whole;       /* also a message's */
    void *shard;       /* NULL: there is none */
    int32_t peer, tag; /* of a message */
};

/* Of the whole, among n_members. */
static inline int64_t mist_communication_bytes(const struct mist_communication *what,
                                               int32_t n_members)
{
    if (what->kind == MIST_COMMUNICATION_ALL_GATHER)
        return what->n * n_members;
    return what->group ? what->n * mist_dtype_weight_bytes(what->dtype) : what->n;
}

struct mist_collectives_ops {
    const char *name;
    /* It does one thing at a time: all must be in the stream of collectives, in the
     * order in which all ranks dispatch both. */
    bool is_one_by_one;
    /* what carries the messages, in words for people; NULL: MPI */
    void (*describe)(const struct mist_collectives *at, char *text, size_t size_bytes);
    void (*close)(struct mist_collectives *at);
    enum mist_status (*group)(struct mist_collectives *at, const int32_t *ranks,
                              int32_t n, int32_t tag_space, int64_t max_bytes,
                              struct mist_collective_group **out, struct mist_err *err);
    enum mist_status (*reserve)(struct mist_collectives *at, int64_t transfer_bytes,
                                struct mist_err *err);
    enum mist_status (*run)(struct mist_collectives *at,
                            const struct mist_communication *what, struct mist_err *err);
};

/* An implementation's own structs begin with these. */
struct mist_collectives {
    const struct mist_collectives_ops *ops;
};
struct mist_collective_group {
    struct mist_collectives *owner;
};

/* "mpi", or with a device, whose memory the host can't use, "staged". comm and device are
 * borrowed for its life. */
MIST_MUST_CHECK enum mist_status mist_collectives_open_host(struct mist_comm *comm,
                                                            struct mist_device *device,
                                                            struct mist_collectives **out,
                                                            struct mist_err *err);

/* NULL allowed. */
void mist_collectives_close(struct mist_collectives *at);

/* The stream of the device for what has a stream in the schedule. */
static inline enum mist_stream mist_collectives_stream(const struct mist_collectives *at,
                                                       enum mist_stream stream)
{
    return at->ops->is_one_by_one ? mist_stream_channel(stream) : stream;
}

/*
 * A group of n >= 2 different ranks, this one among them, as mist_comm_group(): all
 * members give the same list and tag_space. Its calls have whole buffers of at most
 * max_bytes; what that needs is allocated here. Owned by at.
 */
MIST_MUST_CHECK enum mist_status
mist_collectives_group(struct mist_collectives *at, const int32_t *ranks, int32_t n,
                       int32_t tag_space, int64_t max_bytes,
                       struct mist_collective_group **out, struct mist_err *err);

/* Transfers will have at most transfer_bytes. */
MIST_MUST_CHECK enum mist_status mist_collectives_reserve(struct mist_collectives *at,
                                                          int64_t transfer_bytes,
                                                          struct mist_err *err);

/*
 * Inside bodies of tasks; buffers may be used again when the stream gets there. n
 * elements of dtype (n a multiple of the group's size; bf16 sums are rounded once, at the
 * end, with mpi and staged).
 *
 * all_reduce      buffer[n]: the sum over the members, everywhere
 * reduce_scatter  whole[n] -> shard[n / size]: the own shard's sum; shard is that shard
 *                 of whole or apart from it; the rest of whole is undefined then
 * all_gather      shard[shard_bytes] -> whole[size * shard_bytes]; shard is its place in
 *                 whole or apart from it
 * send, recv      a message; both sides give the same tag and bytes; messages between two
 *                 ranks arrive in the order of their tags' use; those with an even tag
 *                 and those with an odd one don't wait for one another
 */
MIST_MUST_CHECK enum mist_status
mist_collective_all_reduce(struct mist_collective_group *group, enum mist_dtype dtype,
                           void *buffer, int64_t n, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_collective_reduce_scatter(struct mist_collective_group *group, enum mist_dtype dtype,
                               const void *whole, void *shard, int64_t n,
                               struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_collective_all_gather(struct mist_collective_group *group, const void *shard,
                           void *whole, int64_t shard_bytes, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_collectives_send(struct mist_collectives *at,
                                                       int32_t peer, int32_t tag,
                                                       const void *ptr, int64_t bytes,
                                                       struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_collectives_recv(struct mist_collectives *at,
                                                       int32_t peer, int32_t tag,
                                                       void *ptr, int64_t bytes,
                                                       struct mist_err *err);

#endif
