/* A job that was recorded elsewhere, in any of the formats that are read. */
#ifndef MIST_SIM_RECORDED_RECORDING_H
#define MIST_SIM_RECORDED_RECORDING_H

#include "core/progress.h"
#include "sim/recorded/operators_file.h"

/*
 * Reads what names [n_names] mean: a table of operations (operators_file.h), or traces of
 * torch.profiler (torch_job.h): files, patterns such as rank*.json, folders (their *.json
 * and *.json.gz). What a single file begins with says which it is. Of a table, table is
 * opened (else its path is NULL, and there is nothing to close); of traces job is filled
 * and lies in the arena, as names do. progress may be NULL. MIST_ERR_INPUT, MIST_ERR_IO,
 * MIST_ERR_MEMORY.
 */
enum mist_status
mist_recorded_read(const char *const *names, int n_names, struct mist_operations *table,
                   struct mist_recorded_job *job, struct mist_progress *progress,
                   struct mist_arena *arena, struct mist_err *err) MIST_MUST_CHECK;

/* Whether a name is a file that begins as a timeline of ours does, which needs its plan
 * (sim/sim_timeline.h); a folder, a pattern or a pipe is none. MIST_ERR_IO, MIST_ERR_INPUT
 * (damaged gzip), MIST_ERR_MEMORY. */
enum mist_status mist_recorded_find_timeline(const char *name, bool *is_timeline,
                                             struct mist_err *err) MIST_MUST_CHECK;

#endif
