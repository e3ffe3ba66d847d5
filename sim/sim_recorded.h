/*
 * What mist-sim says of a job that was recorded elsewhere (--replay).
 */
#ifndef MIST_SIM_SIM_RECORDED_H
#define MIST_SIM_SIM_RECORDED_H

#include "core/emit.h"
#include "core/status.h"

/*
 * Replays the operations in path as they were, with the edits [n_edits]
 * (mist_recorded_edit()), and even, and adds times and causes to emit. n_most: as many
 * replicas and kinds of operations, the slowest first; 0: all. MIST_ERR_INPUT,
 * MIST_ERR_IO, MIST_ERR_USAGE (an edit), MIST_ERR_MEMORY.
 */
enum mist_status mist_sim_recorded_add(struct mist_emit *emit, const char *path,
                                       const char *const *edits, int n_edits, int n_most,
                                       struct mist_err *err) MIST_MUST_CHECK;

#endif
