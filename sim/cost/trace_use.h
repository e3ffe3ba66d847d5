/*
 * What of a trace set a job can't use, said once when the set is loaded. None of it is an
 * error: a set may have been measured by a newer program, or for other jobs, too. But
 * operators without a row are priced by what a data sheet says, so that a misspelt word
 * would cost accuracy without a word.
 */
#ifndef MIST_SIM_TRACE_USE_H
#define MIST_SIM_TRACE_USE_H

#include "core/message.h"
#include "sim/plan/plan.h"
#include "traces/trace_set.h"

/*
 * Says, with file and line: operators that the catalogue does not have, or not in that
 * phase; number formats that no job computes in; that no row is of dtype, or that rows of
 * another format stand in for it; that the device is several times as fast in bf16.
 * O(rows).
 */
void mist_trace_use_warn(const struct mist_trace_set *set, enum mist_dtype dtype,
                         const struct mist_messages *messages);

/* Says that messages of n_ranks ranks will be priced by rows of groups inside of a node,
 * as nothing was measured, and nothing is declared, of the way between nodes. O(rows). */
void mist_trace_use_warn_links(const struct mist_trace_set *set, int32_t n_ranks,
                               const struct mist_messages *messages);

/* Says that plan (read from plan_path) was tuned for another model, job or trace set; a
 * plan without a fingerprint says nothing. */
void mist_trace_use_warn_plan(const struct mist_trace_set *set,
                              const struct mist_plan *plan, const char *plan_path,
                              const struct mist_messages *messages);

#endif
