/*
 * mist-profile --import: what others measured, into a trace set. The set is what --cluster
 * names, a folder or a preset, with the rows of one file added; so presets become measured
 * row by row.
 */
#ifndef MIST_PROFILE_IMPORT_H
#define MIST_PROFILE_IMPORT_H

#include "core/status.h"
#include "traces/trace_set.h"

#include <stddef.h>

enum mist_import_format {
    MIST_IMPORT_NONE,
    MIST_IMPORT_NCCL_TESTS, /* traces/import_nccl.h */
    MIST_IMPORT_GEMM_CSV    /* traces/import_gemm.h */
};

/* Their words, in that order; ended by NULL. */
extern const char *const mist_import_formats[];

/*
 * cluster   a folder or a preset (mist_trace_set_open()).
 * path      of the file to import.
 * dtype     of products that don't say theirs.
 * output    folder that the set is written to; NULL: none, everything is checked.
 * force     an existing set there is replaced.
 * n_added   out, on MIST_OK: rows of the file that were used.
 */
MIST_MUST_CHECK enum mist_status
mist_profile_import(enum mist_import_format format, const char *cluster, const char *path,
                    enum mist_trace_dtype dtype, const char *output, bool force,
                    size_t *n_added, struct mist_err *err);

#endif
