/*
 * NCCL for tests, without a GPU: the functions that exec/cuda/collectives_nccl.c calls,
 * for ranks that are threads of one process, and the events of CUDA that it watches its
 * operations with.
 *
 * An operation waits in its thread for the others and is done when the call returns; but
 * as with communicators that don't block, the calls answer "in progress" a few times
 * first, and calling anything else before that has ended is an error. Faults are set
 * before the threads start.
 */
#ifndef MIST_TESTS_EMULATION_NCCL_H
#define MIST_TESTS_EMULATION_NCCL_H

#include <nccl.h>

#include <stdbool.h>

struct mist_test_nccl {
    int n_polls;              /* how often calls are in progress */
    ncclResult_t id_error;    /* of ncclGetUniqueId() */
    ncclResult_t init_error;  /* at once */
    ncclResult_t init_result; /* what the start ends with */
    bool init_never_ends;     /* it stays in progress */
    ncclResult_t call_error;  /* of operations, at once */
    ncclResult_t call_result; /* what their start ends with */
    bool call_never_ends;     /* it stays in progress */
    bool end_never_ends;      /* ncclCommFinalize() stays in progress */
    int n_before_hang;        /* operations that work before one hangs on the device;
                                 < 0: none hangs */
    ncclResult_t async_error; /* of communicators that are at rest */
    cudaError_t event_error;  /* of cudaEventQuery() */
    int n_late;               /* how often an event that was recorded is not ready */
};

/* No faults, everything at once; and forgets what it counted. */
void mist_test_nccl_reset(void);

/* To be changed while no thread is in NCCL. */
struct mist_test_nccl *mist_test_nccl(void);

/* Since the last reset: made, ended in order, aborted, calls that NCCL forbids, events
 * that exist. */
struct mist_test_nccl_counts {
    int n_made, n_destroyed, n_aborted, n_misused, n_events;
};
struct mist_test_nccl_counts mist_test_nccl_counts(void);

#endif
