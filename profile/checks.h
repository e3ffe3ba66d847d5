/*
 * Checks: short plans that the executor really runs once everything has been measured,
 * one for each mechanism (sim/plan/mechanism.h) that the ranks and the model allow, beside
 * what the trace set predicts for them.
 *
 * A check's model has twelve blocks of the session's, or as many as it has and as fit;
 * its micro-batches are the smallest of the session; all ranks take part, with data
 * parallelism where the mechanism does not need them all. Predicted and measured are
 * compared at the level of the machine that probes before and after the run find. A
 * mechanism that has no price, or whose plan does not fit, is left out and said.
 */
#ifndef MIST_PROFILE_CHECKS_H
#define MIST_PROFILE_CHECKS_H

#include "core/message.h"
#include "profile/workbench.h"

/* A session with less time for them than this has none. */
#define MIST_CHECKS_LEAST_S 2.0

struct mist_checks_config {
    const struct mist_grid *grid;         /* borrowed */
    struct mist_bench_place place;        /* of this rank */
    int64_t limit_bytes;                  /* of device memory, for a rank */
    double budget_s, probe_frac;          /* of all; mist_train_job's */
    struct mist_journal *journal;         /* borrowed; NULL: none */
    const struct mist_messages *messages; /* borrowed; NULL: nothing is said */
};

/*
 * Runs all, and adds their rows to traces, which on rank 0 has everything else (the other
 * ranks' is not looked at). All ranks must call it, with no device open. MIST_OK,
 * MIST_ERR_MEMORY, MIST_ERR_RUN, or an error of device, communicator or journal.
 */
MIST_MUST_CHECK enum mist_status mist_checks_run(const struct mist_checks_config *config,
                                                 struct mist_comm *comm,
                                                 struct mist_trace_set *traces,
                                                 struct mist_err *err);

#endif
