/*
 * Imports timed matrix products into rows of kernels.csv. A table with a header row:
 *
 *     m,n,k,time_us                        out [m, n] = a [m, k] * b [k, n]
 *     dtype,deviation_us,repetitions       optional; without: the caller's, 0, 1
 *
 * Each product becomes rows of linear layers (mist_import_rows_add_product). Left out: that
 * transposed operands differ by some per cent.
 */
#ifndef MIST_TRACES_IMPORT_GEMM_H
#define MIST_TRACES_IMPORT_GEMM_H

#include "core/status.h"
#include "traces/import_rows.h"

/*
 * Adds the products of the table at path to rows. dtype: of rows that don't say theirs.
 *
 * On failure the set may hold a part of the rows. MIST_ERR_INPUT with file:line (no table,
 * no product, a time that can't be true), MIST_ERR_IO or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_import_gemm_csv(const struct mist_import_rows *rows,
                                                      const char *path,
                                                      enum mist_trace_dtype dtype,
                                                      struct mist_err *err);

#endif
