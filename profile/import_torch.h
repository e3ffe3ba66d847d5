/*
 * Imports what torch.profiler exports (export_chrome_trace(), record_shapes=True) into
 * rows of a trace set: products, attention, norms and GELU by the shapes of the operators
 * that launched their kernels, NCCL's sums, gathers and scatters by bytes and group, copies
 * from and to pinned memory by bytes.
 *
 * A kernel belongs to the operator on whose thread and in whose time it was launched. So
 * this needs no ids that versions of PyTorch write in different ways. An operator's row is
 * the sum of its kernels, the mean over all its uses of one shape. Of a message the shortest
 * of all ranks and repetitions counts: the others waited for a rank that came late. Its
 * group is taken to run at once with as many like it as the nodes have room for, as groups
 * of a job do.
 *
 * Left out: what CUDA graphs launched (nothing says which operator that was), attention
 * that is not causal or has a window, transfers between two ranks, groups that the trace does not name
 * (PyTorch before 2.3), operators that are fused in another way than ours.
 */
#ifndef MIST_PROFILE_IMPORT_TORCH_H
#define MIST_PROFILE_IMPORT_TORCH_H

#include "core/status.h"
#include "traces/import_rows.h"

#include <stddef.h>

/* What became of the traces so far; zero to begin with. */
struct mist_import_torch_report {
    double kernels_s;  /* of all kernels but NCCL's */
    double used_s;     /* of those that are in rows */
    size_t n_messages; /* of NCCL */
    size_t n_nameless; /* of them, whose group is not known */
    size_t n_other;    /* of them, that links.csv has no rows for */
};

/*
 * Adds the trace at path, of one rank, to rows and to report. Its devices are those of the
 * set's cluster: ranks are placed node after node.
 *
 * On failure the set may hold a part of the rows. MIST_ERR_INPUT with file:line (no trace,
 * cut, nothing that can be used, a time that can't be true), MIST_ERR_IO or
 * MIST_ERR_MEMORY. Needs some bytes per event.
 */
MIST_MUST_CHECK enum mist_status
mist_import_torch(const struct mist_import_rows *rows, const char *path,
                  struct mist_import_torch_report *report, struct mist_err *err);

#endif
