/*
 * NCCL for tests, without a GPU: the functions that exec/cuda/collectives_nccl.c calls,
 * for ranks that are threads of one process.
 *
 * An operation waits in its thread for the others and is done when the call returns.
 * ncclCommAbort() in a group only tells the calls under way to give up; the end of the
 * group frees the communicators, and who is still inside one then, or uses it later, is
 * counted as misuse. Faults are set while no thread is in NCCL.
 */
#ifndef MIST_TESTS_EMULATION_NCCL_H
#define MIST_TESTS_EMULATION_NCCL_H

#include <nccl.h>

#include <stdbool.h>

/* A call that does not return until its communicator is aborted. */
enum mist_test_nccl_block {
    MIST_TEST_NCCL_NOTHING,
    MIST_TEST_NCCL_INIT,
    MIST_TEST_NCCL_CALL,
    MIST_TEST_NCCL_END,
    MIST_TEST_NCCL_DESTROY /* whatever is aborted */
};

struct mist_test_nccl {
    ncclResult_t id_error;    /* of ncclGetUniqueId() */
    ncclResult_t init_error;  /* at once, without a communicator */
    ncclResult_t init_result; /* of a communicator that is there, but no good */
    ncclResult_t call_error;  /* of operations */
    ncclResult_t async_error; /* of communicators that are at rest */
    enum mist_test_nccl_block blocks;
    int n_before_hang; /* operations that work before one hangs on the device; < 0: none
                          hangs */
};

/* No faults; and forgets what it counted. */
void mist_test_nccl_reset(void);

struct mist_test_nccl *mist_test_nccl(void);

/* Returns once a communicator has been told to give up: as a launch into a full stream
 * does, behind an operation that hangs on the device. */
void mist_test_nccl_wait_for_abort(void);

/* Since the last reset: made, ended in order, aborted, calls that NCCL forbids; and how
 * many calls of CUDA there had ever been when the first was told to give up. And of the
 * latest communicator the blocks that an operation may take, and whether NVLink switches
 * may add. */
struct mist_test_nccl_counts {
    int n_made, n_destroyed, n_aborted, n_misused, max_blocks;
    long long n_cuda_calls;
    bool has_nvls;
};
struct mist_test_nccl_counts mist_test_nccl_counts(void);

#endif
