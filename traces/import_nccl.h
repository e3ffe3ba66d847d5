/*
 * Imports the standard output of nccl-tests (all_reduce_perf, all_gather_perf,
 * reduce_scatter_perf, sendrecv_perf) into link rows. The log's format is described in
 * import_nccl.c.
 *
 * nccl-tests prints a mean only, so deviation_us is 0 (not known). Rows whose check
 * failed (#wrong is not 0, or error is larger than the program itself allowed) are an
 * error: such times are worth nothing. So is a log of the processor's times (-C 1).
 */
#ifndef MIST_TRACES_IMPORT_NCCL_H
#define MIST_TRACES_IMPORT_NCCL_H

#include "core/status.h"
#include "traces/import_rows.h"

#include <stdbool.h>

/* What the log may not say. Zero-initialise for "take everything from the log". */
struct mist_import_nccl {
    bool has_operation;                 /* false: the log must name its program, or
                                           the file begin like it: all_reduce.log */
    enum mist_link_operation operation; /* must agree with the log where that names one */
    int nodes;             /* 0: distinct host names of the ranks of a group */
    int ranks_per_node;    /* 0: ranks of a group per host name (equal on all hosts) */
    int concurrent_groups; /* 0: groups of the log on the same hosts, or 1 where nodes
                              and ranks_per_node are given */
    int64_t repetitions;   /* 0: "iters:" of the log, or 1 where it does not say */
    bool in_place;         /* take the in-place instead of the out-of-place times */
};

/*
 * Adds the rows of the log at path to rows (0-byte rows are skipped); those of one message
 * become one row, of their mean.
 *
 * On failure the set may hold a part of the rows. MIST_ERR_INPUT with file:line (not an
 * nccl-tests log, no rows, a row the set had before, groups that the set's cluster has no
 * room for, what the log does not say and options did not either), MIST_ERR_IO or
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_import_nccl_log(const struct mist_import_rows *rows, const char *path,
                     const struct mist_import_nccl *options, struct mist_err *err);

#endif
