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

/*
 * What speaks for measuring again, in a sentence, or "" if nothing does. The machine
 * drifted by more than a tenth (quiet ones: 0.03 to 0.07), or the checks are off alike: the
 * mean of predicted / measured - 1 over three checks or more is a twentieth or more, and
 * more than three times as far from 0 as chance makes it (deviation / sqrt(n)), which is
 * what operators give that were timed while the machine was faster or slower than later.
 */
void mist_profile_find_doubt(const struct mist_trace_set *traces,
                             const struct mist_profile_report *report, char *text,
                             size_t size);

/* The best rates that were measured. */
struct mist_op_peak mist_profile_peak(const struct mist_cluster *cluster);

#endif
