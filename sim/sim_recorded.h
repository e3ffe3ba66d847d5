/*
 * What mist-sim says of a job that was recorded elsewhere (--replay).
 */
#ifndef MIST_SIM_SIM_RECORDED_H
#define MIST_SIM_SIM_RECORDED_H

#include "core/emit.h"
#include "core/progress.h"
#include "core/status.h"
#include "sim/plan/plan.h"

/*
 * Replays what names [n_names] mean (mist_recorded_read()) as it was and with the edits
 * [n_edits] (mist_recorded_edit()), a table of operations also even, and adds times and
 * causes to emit, which is of the kind; people see of replicas, ranks and kinds of
 * operations those that cost most. plan: NULL, or that of the timeline names[0]
 * (mist_sim_timeline_open()). progress may be NULL. MIST_ERR_INPUT, MIST_ERR_IO,
 * MIST_ERR_USAGE (an edit), MIST_ERR_MEMORY, of a timeline also what
 * mist_sim_timeline_open() returns.
 */
enum mist_status mist_sim_recorded_add(struct mist_emit *emit, enum mist_emit_kind kind,
                                       const char *const *names, int n_names,
                                       const struct mist_plan *plan,
                                       const char *const *edits, int n_edits,
                                       struct mist_progress *progress,
                                       struct mist_err *err) MIST_MUST_CHECK;

#endif
