/*
 * Private to the collectives by NCCL: what collectives_nccl.c, the operations and the
 * communicators, and collectives_watch.c, the deadlines and the failures, share.
 */
#ifndef MIST_EXEC_CUDA_COLLECTIVES_NCCL_INTERNAL_H
#define MIST_EXEC_CUDA_COLLECTIVES_NCCL_INTERNAL_H

#include "exec/cuda/collectives_nccl.h"
#include "exec/cuda/context.h"

#include <cuda.h>
#include <nccl.h>
#include <pthread.h>

/* So many operations of a queue may be on the device before the dispatcher waits for the
 * oldest. */
enum { MIST_CUDA_N_WATCHED = 512 };

/* Operations of a queue, which has a stream of its own, begin and end on the device in the
 * order in which it gets them. */
enum mist_cuda_queue_kind {
    MIST_CUDA_COLLECTIVES,
    MIST_CUDA_SENDS,
    MIST_CUDA_RECEIVES,
    MIST_CUDA_N_QUEUES
};

/* Communicators for transfers, by the lowest bit of the tag. */
enum { MIST_CUDA_N_WORLDS = 2 };

/* Blocks of one operation, at most: NCCL's default. */
enum { MIST_CUDA_MAX_BLOCKS = 32 };

/* Something that waits for peers: a call of NCCL, or an operation on the device. */
struct mist_cuda_operation {
    const char *name; /* NULL: none */
    enum mist_cuda_queue_kind queue;
    int32_t peer; /* -1: a group */
    int64_t bytes;
};

/* What the device writes behind what it has done: how many operations, modulo 2^32. */
struct mist_cuda_marks {
    uint32_t n_begun, n_ended;
};

/* What the device was given, under the mutex. */
struct mist_cuda_queue {
    struct mist_cuda_operation given[MIST_CUDA_N_WATCHED]; /* a ring */
    uint32_t n_given;                                      /* ever, modulo 2^32 */
    uint32_t n_ended_seen;  /* by the watchdog, when it last changed, */
    double running_start_s; /* since when the next operation runs; < 0: it does not */
};

struct mist_cuda_nccl_group {
    struct mist_collective_group base;
    struct mist_cuda_nccl_group *next;
    ncclComm_t comm;  /* owned; NULL: not made yet, or aborted */
    int32_t n, index; /* members; which of them this rank is */
    bool is_aborted;  /* under the mutex */
};

struct mist_cuda_nccl {
    struct mist_collectives base;
    struct mist_cuda_device *device; /* borrowed */
    int32_t rank, n_ranks;
    double deadline_s;
    enum mist_status (*exchange)(void *context, const int32_t *ranks, int32_t n, void *id,
                                 struct mist_err *err);
    void *context; /* of exchange; borrowed */
    /* of groups; NULL: no transfers */
    struct mist_cuda_nccl_group *worlds[MIST_CUDA_N_WORLDS];

    struct mist_cuda_marks *marks; /* owned; [MIST_CUDA_N_QUEUES] in locked memory */
    CUresult (*write_mark)(CUstream, CUdeviceptr, cuuint32_t, unsigned);

    pthread_t watchdog;
    bool has_watchdog;
    pthread_mutex_t mutex; /* guards all below */
    pthread_cond_t changed;
    struct mist_cuda_nccl_group *groups; /* owned; a list */
    struct mist_cuda_operation call;     /* of the dispatcher, under way */
    double call_start_s;
    struct mist_cuda_queue queues[MIST_CUDA_N_QUEUES];
    bool is_closing, has_failed;
    struct mist_err failure; /* why */
};

static inline struct mist_cuda_nccl *mist_cuda_nccl_of(struct mist_collectives *base)
{
    return (struct mist_cuda_nccl *)(void *)base;
}

/* MIST_ERR_RUN with the reason if there was a failure before. */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_check(struct mist_cuda_nccl *at,
                                                      struct mist_err *err);

/* Says what happened in operation, ends everything, and returns MIST_ERR_RUN with the
 * first failure. */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_fail(struct mist_cuda_nccl *at,
                                                     const char *operation,
                                                     const char *what,
                                                     struct mist_err *err);

/*
 * Around every call of NCCL that may wait: from enter, if that gives MIST_OK, to leave
 * the watchdog looks at the clock, and communicators stay where they are. leave gets what
 * NCCL answered and gives MIST_OK or the failure.
 */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_enter(struct mist_cuda_nccl *at,
                                                      const char *operation,
                                                      struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_cuda_nccl_leave(struct mist_cuda_nccl *at, ncclResult_t code, struct mist_err *err);

/* The same around an operation of the current stream, which is watched on the device,
 * too, until it has ended there. */
MIST_MUST_CHECK enum mist_status
mist_cuda_nccl_begin(struct mist_cuda_nccl *at,
                     const struct mist_cuda_operation *operation, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_cuda_nccl_end(struct mist_cuda_nccl *at, ncclResult_t code, struct mist_err *err);

/* A group that the watchdog looks after with the others from now on. */
void mist_cuda_nccl_add(struct mist_cuda_nccl *at, struct mist_cuda_nccl_group *group);

/* Starts the watchdog, and ends it and frees what it used, also half made. */
MIST_MUST_CHECK enum mist_status mist_cuda_nccl_watch(struct mist_cuda_nccl *at,
                                                      struct mist_err *err);
void mist_cuda_nccl_unwatch(struct mist_cuda_nccl *at);

#endif
