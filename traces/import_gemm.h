/*
 * Imports timed matrix products into rows of kernels.csv. A table with a header row:
 *
 *     m,n,k,time_us                        out [m, n] = a [m, k] * b [k, n]
 *     dtype,deviation_us,repetitions       optional; without: the caller's, 0, 1
 *
 * A product is one whatever it is for: each row becomes the forward of a linear layer
 * (rows m, n_in k, n_out n), the gradient of an input (rows m, n_in n, n_out k) and that
 * of a weight (n_in m, n_out n, rows k). Left out: that transposed operands differ by some
 * per cent.
 */
#ifndef MIST_TRACES_IMPORT_GEMM_H
#define MIST_TRACES_IMPORT_GEMM_H

#include "core/status.h"
#include "traces/trace_set.h"

#include <stddef.h>

/*
 * Adds the products of the table at path to set. A product that the table has more than
 * once becomes one row, of the mean of its times. Rows that set had before are an error.
 *
 * dtype     of rows that don't say theirs.
 * n_added   out, on MIST_OK: products; may be NULL.
 *
 * On failure set may hold a part of the rows. MIST_ERR_INPUT with file:line (no table, no
 * product, a time that can't be true), MIST_ERR_IO or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_import_gemm_csv(struct mist_trace_set *set, const char *path,
                     enum mist_trace_dtype dtype, size_t *n_added, struct mist_err *err);

#endif
