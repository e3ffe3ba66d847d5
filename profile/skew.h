/*
 * Skew: how much longer computing takes than the rows of its operators say.
 *
 * A row is the mean of an operator's usual runs, on all ranks together. Training also pays
 * for the unusual ones (an interrupt, a neighbour's turn), which the rows leave out, and
 * where ranks wait for one another the slowest of them counts, not their mean. That is
 * measured on the same runs: all ranks go through the same operators, whose times are cut
 * into pieces of the same operators, as long as what lies between two messages of a plan.
 * With x_ri what piece i takes on rank r, all of its runs counted, and e_i what the rows say,
 *   frac = M_i(max_r x_ri / e_i) - 1, not below 0,
 * M being the mean of the middle three fifths, as the level of a run is
 * (exec/runtime/probe.h): the mean of all would say how many moments in which others had
 * the processors this session happened to meet.
 */
#ifndef MIST_PROFILE_SKEW_H
#define MIST_PROFILE_SKEW_H

#include "exec/comm/comm.h"
#include "profile/drift.h"
#include "traces/trace_set.h"

/*
 * Cuts the runs of a rank (pure): pieces[n], of such as take at least length_us by the
 * estimates, what they took over that; a last shorter one is left out. Room for
 * drift->n_runs. Returns n.
 */
int64_t mist_skew_cut(const struct mist_drift *drift,
                      const struct mist_estimate *estimates, double length_us,
                      double *pieces);

/*
 * All ranks call it, with the same estimates. pass_us, step_us: how long a micro-batch
 * takes, and what lies between two messages of tensor parallelism. Where ranks did not
 * keep the same runs all is 0. MIST_OK, MIST_ERR_MEMORY or an error of the communicator.
 */
MIST_MUST_CHECK enum mist_status
mist_skew_find(struct mist_comm *comm, const struct mist_drift *drift,
               const struct mist_estimate *estimates, double pass_us, double step_us,
               struct mist_trace_skew *out, struct mist_err *err);

#endif
