/*
 * Private to the collectives by NCCL: what collectives_nccl.c, the operations and the
 * communicators, and collectives_watch.c, the waits and the failures, share.
 */
#ifndef MIST_EXEC_CUDA_COLLECTIVES_NCCL_INTERNAL_H
#define MIST_EXEC_CUDA_COLLECTIVES_NCCL_INTERNAL_H

#include "exec/cuda/collectives_nccl.h"
#include "exec/cuda/context.h"

#include <nccl.h>

/* So many operations may be on the device before the dispatcher waits for the oldest. */
enum { MIST_CUDA_N_WATCHED = 512 };

/* An operation on the device. */
struct mist_cuda_watch {
    cudaEvent_t begin, end; /* owned */
    const char *operation;
    int64_t bytes;
    int32_t peer;        /* -1: a group */
    double seen_begun_s; /* when it was first seen running; < 0: not yet */
};

struct mist_cuda_nccl {
    struct mist_collectives base;
    struct mist_cuda_device *device; /* borrowed */
    int32_t rank, n_ranks;
    double deadline_s;
    enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err);
    void *context;                       /* of exchange; borrowed */
    ncclComm_t world;                    /* owned; NULL: no transfers */
    struct mist_cuda_nccl_group *groups; /* owned; a list */
    bool has_failed;                     /* all communicators are gone */
    struct mist_err failure;             /* why */
    struct mist_cuda_watch *watches;     /* owned; [MIST_CUDA_N_WATCHED], a ring */
    int64_t n_begun, n_ended; /* operations given to the device; known to be done */
};

struct mist_cuda_nccl_group {
    struct mist_collective_group base;
    struct mist_cuda_nccl_group *next;
    ncclComm_t comm;  /* owned; NULL after a failure */
    int32_t n, index; /* members; which of them this rank is */
};

static inline struct mist_cuda_nccl *mist_cuda_nccl_of(struct mist_collectives *base)
{
    return (struct mist_cuda_nccl *)(void *)base;
}

/*
 * Each says what happened in operation, aborts all communicators, under way or at rest,
 * and returns MIST_ERR_RUN: in our words, NCCL's or CUDA's. err may be NULL.
 */
enum mist_status mist_cuda_nccl_fail(struct mist_cuda_nccl *at, const char *operation,
                                     const char *what, struct mist_err *err);
enum mist_status mist_cuda_nccl_fail_code(struct mist_cuda_nccl *at,
                                          const char *operation, ncclResult_t code,
                                          ncclComm_t comm, struct mist_err *err);
enum mist_status mist_cuda_nccl_fail_cuda(struct mist_cuda_nccl *at,
                                          const char *operation, cudaError_t code,
                                          struct mist_err *err);

/* MIST_ERR_RUN if there was a failure before. */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_check(const struct mist_cuda_nccl *at,
                                                      const char *operation,
                                                      struct mist_err *err);

/*
 * Waits until what a call answered with code is done. On anything but success everything
 * ends, comm included if it is known to at.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_settle(struct mist_cuda_nccl *at,
                                                       ncclComm_t comm, ncclResult_t code,
                                                       const char *operation,
                                                       struct mist_err *err);

/* Around the call of an operation, which answered code: marks its begin and, once it is
 * in the stream, its end there. */
MIST_MUST_CHECK enum mist_status
mist_cuda_nccl_begin(struct mist_cuda_nccl *at, const char *operation, int32_t peer,
                     int64_t bytes, struct mist_cuda_watch **out, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_end(struct mist_cuda_nccl *at,
                                                    struct mist_cuda_watch *watch,
                                                    ncclComm_t comm, ncclResult_t code,
                                                    struct mist_err *err);

/* Makes the ring of watches, and frees it, also half made. */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_watch(struct mist_cuda_nccl *at,
                                                      struct mist_err *err);
void mist_cuda_nccl_unwatch(struct mist_cuda_nccl *at);

#endif
