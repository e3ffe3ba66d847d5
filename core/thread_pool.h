/*
 * A pool of threads that runs loops over index ranges.
 *
 * The range is cut into chunks whose borders depend on the range and the chunk size
 * alone; which thread takes which chunk is left to chance. A loop body that writes only
 * to places that belong to its indices therefore gives the same result for every number
 * of threads. Left out: nesting (a body must not call mist_thread_pool_for on the same
 * pool), work stealing, affinity.
 */
#ifndef MIST_CORE_THREAD_POOL_H
#define MIST_CORE_THREAD_POOL_H

#include "core/status.h"

#include <stdint.h>

struct mist_thread_pool;

/*
 * Works on indices begin .. end-1. i_thread is 0 .. n_threads-1, for scratch space only.
 * A status other than MIST_OK stops the loop; err is never NULL.
 */
typedef enum mist_status mist_thread_body(void *context, int64_t begin, int64_t end,
                                          int i_thread, struct mist_err *err);

/*
 * n_threads 0: one per processor; 1: everything runs in the caller's thread. *out is
 * owned by the caller (mist_thread_pool_free). Returns MIST_OK, MIST_ERR_MEMORY or
 * MIST_ERR_RUN (no threads).
 */
enum mist_status mist_thread_pool_new(int n_threads, struct mist_thread_pool **out,
                                      struct mist_err *err) MIST_MUST_CHECK;
void mist_thread_pool_free(struct mist_thread_pool *pool); /* NULL allowed */

/*
 * Runs body over 0 .. n-1 in chunks of chunk indices (<= 0: n / 64, at least 1) and
 * returns when all is done. The caller's thread helps. When chunks fail, the status and
 * err are those of the lowest failing chunk, whatever the number of threads; chunks
 * behind it may not have run.
 */
enum mist_status mist_thread_pool_for(struct mist_thread_pool *pool, int64_t n,
                                      int64_t chunk, mist_thread_body *body,
                                      void *context,
                                      struct mist_err *err) MIST_MUST_CHECK;

#endif
