/*
 * A pool of threads that runs loops over indices.
 *
 * Which thread takes which index is left to chance. A loop body that writes only to places
 * that belong to its index therefore gives the same result for every number of threads.
 * Left out: nesting (a body must not call mist_thread_pool_for on the same pool), work
 * stealing, affinity, chunks: bodies take longer than handing out an index.
 */
#ifndef MIST_CORE_THREAD_POOL_H
#define MIST_CORE_THREAD_POOL_H

#include "core/status.h"

#include <stdint.h>

struct mist_thread_pool;

/* Works on index i. A status other than MIST_OK stops the loop; err is never NULL. */
typedef enum mist_status mist_thread_body(void *context, int64_t i, struct mist_err *err);

/*
 * n_threads 0: one per processor; 1: everything runs in the caller's thread. *out is
 * owned by the caller (mist_thread_pool_free). Returns MIST_OK, MIST_ERR_MEMORY or
 * MIST_ERR_RUN (no threads).
 */
enum mist_status mist_thread_pool_new(int n_threads, struct mist_thread_pool **out,
                                      struct mist_err *err) MIST_MUST_CHECK;
void mist_thread_pool_free(struct mist_thread_pool *pool); /* NULL allowed */

/*
 * Runs body for 0 .. n-1 and returns when all is done. The caller's thread helps. When some
 * fail, the status and err are those of the lowest that does, whatever the number of
 * threads; those behind it may not have run.
 */
enum mist_status mist_thread_pool_for(struct mist_thread_pool *pool, int64_t n,
                                      mist_thread_body *body, void *context,
                                      struct mist_err *err) MIST_MUST_CHECK;

#endif
