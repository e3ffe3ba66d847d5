/*
 * Imports what `nsys stats --report cuda_gpu_trace --format csv` prints into link rows:
 * copies between pinned host memory and the device, each with its bytes and its time.
 *
 * Kernels stand there by name alone, without shapes, and so do NCCL's: what they take says
 * nothing of another shape, and nothing is imported of them. torch.profiler knows their
 * shapes (profile/import_torch.h). Left out, too: copies of pageable memory, which no run
 * of ours makes, and copies of less than 50 kB, whose size the report rounds by more than
 * 1 %.
 */
#ifndef MIST_TRACES_IMPORT_NSYS_H
#define MIST_TRACES_IMPORT_NSYS_H

#include "core/status.h"
#include "traces/import_rows.h"

/*
 * Adds the copies of the report at path to rows; those of one size become one row, of
 * their mean. Lines before the header, as nsys prints them, are passed over.
 *
 * On failure the set may hold a part of the rows. MIST_ERR_INPUT with file:line (another
 * report, no copy, a time that can't be true), MIST_ERR_IO or MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_import_nsys(const struct mist_import_rows *rows,
                                                  const char *path, struct mist_err *err);

#endif
