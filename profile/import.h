/*
 * mist-profile --import: what others measured, into a trace set. The set is what --cluster
 * names, a folder or a preset, with the rows of files added; so presets become measured
 * row by row.
 */
#ifndef MIST_PROFILE_IMPORT_H
#define MIST_PROFILE_IMPORT_H

#include "core/message.h"
#include "core/status.h"
#include "traces/trace_set.h"

enum mist_import_format {
    MIST_IMPORT_NONE,
    MIST_IMPORT_NCCL_TESTS,     /* traces/import_nccl.h */
    MIST_IMPORT_GEMM_CSV,       /* traces/import_gemm.h */
    MIST_IMPORT_TORCH_PROFILER, /* profile/import_torch.h */
    MIST_IMPORT_NSYS            /* traces/import_nsys.h */
};

/* Their words, in that order; ended by NULL. */
extern const char *const mist_import_formats[];

struct mist_import {
    enum mist_import_format format; /* not NONE */
    const char *cluster;            /* a folder or a preset (mist_trace_set_open()) */
    char *const *paths;             /* n_paths > 0 files */
    int n_paths;
    enum mist_trace_dtype dtype; /* of products of a table that don't say theirs */
    const char *output; /* folder that the set is written to; NULL: all is only checked */
    bool force;         /* an existing set there is replaced */
    bool as_json;       /* one document on stdout: the rows of each file, and of all */
};

/* messages: hear how many rows there are, and what was left out. Rows that the set had are
 * never replaced. */
MIST_MUST_CHECK enum mist_status mist_profile_import(const struct mist_import *import,
                                                     const struct mist_messages *messages,
                                                     struct mist_err *err);

#endif
