/*
 * A job planned again for another cluster, by mist-tune, which stands beside mist-sim: only
 * the tuner is linked with its solver.
 */
#ifndef MIST_SIM_SIM_RETUNE_H
#define MIST_SIM_SIM_RETUNE_H

#include "sim/sim_run.h"

/*
 * The iteration of the best plan for the job, devices and cluster of run->plan_path, with
 * edits (sim_run.h). *iteration_s is NAN where no plan fits. MIST_ERR_RUN: mist-tune failed,
 * with the last it said; MIST_ERR_IO: it is not there.
 */
MIST_MUST_CHECK enum mist_status mist_sim_retune(const struct mist_sim_run *run,
                                                 struct mist_sim_edits edits,
                                                 double *iteration_s,
                                                 struct mist_err *err);

#endif
