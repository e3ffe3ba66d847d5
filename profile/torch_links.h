/* NCCL's kernels and copies in traces of torch.profiler, as rows of links.csv. */
#ifndef MIST_PROFILE_TORCH_LINKS_H
#define MIST_PROFILE_TORCH_LINKS_H

#include "core/json.h"
#include "traces/trace_set.h"

enum mist_torch_link {
    MIST_TORCH_LINK_NONE,     /* no message between ranks, nor a copy */
    MIST_TORCH_LINK_NAMELESS, /* NCCL's, of a group or of a size that is not said */
    MIST_TORCH_LINK_OTHER,    /* NCCL's that links.csv has no rows for: another operation,
                                 ranks that are unequally many on their nodes */
    MIST_TORCH_LINK_ROW
};

/*
 * A kernel of NCCL's: what its args say of operation, bytes and group, all but the time.
 * Ranks of the job are placed node after node of cluster. MIST_ERR_INPUT: a group that does
 * not fit on it.
 */
MIST_MUST_CHECK enum mist_status
mist_torch_read_message(const char *kernel, const struct mist_json *args,
                        const struct mist_cluster *cluster, enum mist_torch_link *kind,
                        struct mist_link_row *row, struct mist_err *err);

/* A copy of pinned memory between host and device: all but its time. */
enum mist_torch_link mist_torch_read_copy(const char *name, const struct mist_json *args,
                                          struct mist_link_row *row);

#endif
