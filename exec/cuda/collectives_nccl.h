/*
 * Collectives between GPUs by NCCL: ranks that have a device each.
 *
 * Results of all_gather, send and recv have the same bits as with any other collectives.
 * Sums go in NCCL's order, which depends on the number of elements, on the algorithm that
 * NCCL picks and on the topology; and bf16 sums may be rounded on the way, not once at
 * the end. All members get the same bits, and the same job on the same machine gets them
 * again, unless the device allows atomics or NCCL_NVLS_ENABLE is set: then NVLink switches
 * may add, in any order. NCCL_ALGO=Ring fixes the order further.
 *
 * Used by one thread, the dispatcher. Communicators block: a call waits for peers when a
 * communicator is made or ended and when two ranks meet for the first time, and it waits
 * for the device when its stream is full. Another thread, the watchdog, ends what takes
 * too long (collectives_watch.c).
 */
#ifndef MIST_EXEC_CUDA_COLLECTIVES_NCCL_H
#define MIST_EXEC_CUDA_COLLECTIVES_NCCL_H

#include "exec/runtime/backend.h"

/*
 * open_collectives of struct mist_backend: this rank of n_ranks with a device that this
 * backend opened, which is borrowed as context is. deadline_s (> 0): how long it may take
 * to make or end a communicator, to start an operation, and for one to run on the device,
 * which includes its wait for the peers.
 *
 * A group makes a communicator of its members, all groups for one stream;
 * mist_collectives_reserve() two of all ranks for transfers, which may be in two others,
 * unless transfer_bytes is 0, which must be so on all ranks or on none. Of their tags
 * messages have the lowest bit alone, which picks the communicator: what two ranks send
 * each other with one must be received in the order in which it was sent.
 *
 * What NCCL or CUDA says, a deadline that has come, and a failure of the device end all
 * communication, under way and to come: the device fails with the reason, its streams get
 * idle, and every later call gives MIST_ERR_RUN with that reason. Where not even that
 * works within another deadline, the process ends.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_collectives_open(
    struct mist_device *device, int32_t rank, int32_t n_ranks, double deadline_s,
    enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err),
    void *context, struct mist_collectives **out, struct mist_err *err);

#endif
