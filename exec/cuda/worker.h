/*
 * A thread that runs functions of the host one after the other: the host stream's, and
 * that of functions in other streams (below).
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

/* ------------------------------------------------------------------------------------
 * Functions of the host in a stream (mist_device_call_host): their arguments, kept until
 * they have run, and the thread that runs them. host_calls.c
 */

struct mist_cuda_host_calls;

/* device is borrowed; once it has failed functions are left out. *out is the caller's
 * (mist_cuda_host_calls_free, when streams are idle; NULL allowed). MIST_OK,
 * MIST_ERR_MEMORY or MIST_ERR_RUN (no thread). */
MIST_MUST_CHECK enum mist_status
mist_cuda_host_calls_new(struct mist_device *device, struct mist_cuda_host_calls **out,
                         struct mist_err *err);
void mist_cuda_host_calls_free(struct mist_cuda_host_calls *calls);

/* So many are under way that the next has no place before streams have been idle. */
bool mist_cuda_host_calls_is_full(struct mist_cuda_host_calls *calls);

/* Keeps one, and a copy of arg[arg_bytes] unless that is 0. What it returns is the
 * argument of mist_cuda_host_calls_run(), which goes into the stream. */
void *mist_cuda_host_calls_add(struct mist_cuda_host_calls *calls, mist_stream_fn fn,
                               void *arg, size_t arg_bytes);
void mist_cuda_host_calls_run(void *arg);

#endif
