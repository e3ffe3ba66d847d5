/* The numbers of a session that a person looks at first. */
#ifndef MIST_PROFILE_SUMMARY_H
#define MIST_PROFILE_SUMMARY_H

#include "core/emit.h"
#include "exec/operators/op_table.h"
#include "profile/profile.h"

/* Adds rates, costs and how well they are known to a document under way. MIST_OK or an
 * error of the interference fit, which leaves its rows out. */
MIST_MUST_CHECK enum mist_status
mist_profile_emit_summary(struct mist_emit *emit, const struct mist_trace_set *traces,
                          const struct mist_profile_report *report, struct mist_err *err);

/* The best rates that were measured. */
struct mist_op_peak mist_profile_peak(const struct mist_cluster *cluster);

#endif
