/*
 * Studies of mist-sim: a plan replayed under several edits (what_if.h), each beside the
 * baseline, the plan on the cluster as it is.
 *
 *   --what-if      each edit alone, and all of them together
 *   --sweep        every combination of the values of one edit or several; --what-if
 *                  holds for all of them, and for the baseline
 *   --sensitivity  whatever could be 10 % faster, or more, and 10 % slower; likewise; with
 *                  --retune the best plan for each that is faster, too
 *
 * An edit that changes no price, time or size of the plan is refused with the reason; one
 * that only makes faster what is hidden beside something else is not.
 */
#ifndef MIST_SIM_SIM_STUDY_H
#define MIST_SIM_SIM_STUDY_H

#include "sim/sim_run.h"

/*
 * Adds a list of what the edits of --what-if change; cluster and result are those of all
 * edits together. Errors of mist_sim_replay(); MIST_ERR_USAGE: an edit that changes
 * nothing.
 */
MIST_MUST_CHECK enum mist_status
mist_sim_study_what_if(struct mist_sim_run *run, const struct mist_cluster *cluster,
                       const struct mist_replay_result *result, struct mist_emit *emit,
                       struct mist_err *err);

/* Adds a list of all combinations; emit NULL: checks that they can be replayed. Errors as
 * above, and MIST_ERR_USAGE: a sweep is malformed. */
MIST_MUST_CHECK enum mist_status mist_sim_study_sweep(struct mist_sim_run *run,
                                                      struct mist_emit *emit,
                                                      struct mist_err *err);

/* Adds a list of what would help, the most first. Errors of mist_sim_replay() and
 * mist_sim_retune(). */
MIST_MUST_CHECK enum mist_status mist_sim_study_sensitivity(struct mist_sim_run *run,
                                                            struct mist_emit *emit,
                                                            struct mist_err *err);

#endif
