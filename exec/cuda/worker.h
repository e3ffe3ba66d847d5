/*
 * A thread that runs functions of the host one after the other: the host stream's, and
 * that of functions in other streams (host_calls.h).
 *
 * CUDA runs functions of the host one at a time, whatever their streams. One that
 * computes for long would hold up all others, so the stream only hands its work over, and
 * a stream that waits for it has a function that waits here.
 */
#ifndef MIST_EXEC_CUDA_WORKER_H
#define MIST_EXEC_CUDA_WORKER_H

#include "exec/device/device.h"

#include <stdint.h>

struct mist_cuda_worker;

/* Starts the thread. device is borrowed; it fails where memory runs out, and once it has
 * failed nothing is run. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN (no thread). */
MIST_MUST_CHECK enum mist_status mist_cuda_worker_open(struct mist_device *device,
                                                       struct mist_cuda_worker **out,
                                                       struct mist_err *err);
/* Ends it behind its last job; NULL allowed. */
void mist_cuda_worker_close(struct mist_cuda_worker *worker);

/* From any thread: fn(arg) behind the jobs that there are. Returns how many there have
 * been with it; 0: out of memory, and the device has failed. */
int64_t mist_cuda_worker_put(struct mist_cuda_worker *worker, mist_stream_fn fn,
                             void *arg);

/* Waits until n jobs, ever, have run, or nobody is to wait any more; INT64_MAX: until
 * there are none left, whatever happened. */
void mist_cuda_worker_wait(struct mist_cuda_worker *worker, int64_t n);

/* From now on nobody waits for a number of jobs. */
void mist_cuda_worker_release(struct mist_cuda_worker *worker);

#endif
