/*
 * Times the operators in context: whole passes of a micro-batch through a stage, step by
 * step, through the calls that a run makes, on the compute stream of all ranks at once
 * (in a run the neighbours compute, too, and share the memory).
 *
 * A round is one pass of every tensor-parallel variant at every micro-batch size, and for
 * every module the optimizer's work on a shard, beside a GPU also that of the host's
 * processors. Communication inside a module is not
 * timed. Rounds go on until the mean of every row that matters is known to 1 % either way
 * (95 % interval), or the time is over. Slow changes of the machine so meet all rows
 * alike. A step's time reaches from the end of the step before to its own end, so the
 * steps of a program add up to the program. Every round goes to the journal.
 *
 * On a GPU several passes go out in one piece, so that launching runs ahead as in a run,
 * and rounds go on for a part of the time even when all is known: its clock settles.
 */
#ifndef MIST_PROFILE_TIME_OPS_H
#define MIST_PROFILE_TIME_OPS_H

#include "profile/workbench.h"

/* Number of rounds that is made whatever the time. */
int32_t mist_time_ops_least_rounds(void);

/* How rounds went; the same everywhere. */
struct mist_time_ops_report {
    int32_t n_rounds;            /* that were made */
    double drift_frac;           /* how they and the ranks differ as a whole (drift.h) */
    struct mist_trace_skew skew; /* how much longer than the rows they took (skew.h) */
};

/*
 * estimates[grid->n_keys]: times in us, pooled over the ranks, the same everywhere. All
 * ranks must call it. MIST_OK, MIST_ERR_MEMORY or an error of device or communicator.
 */
MIST_MUST_CHECK enum mist_status mist_time_ops(struct mist_workbench *bench,
                                               double budget_s,
                                               struct mist_estimate *estimates,
                                               struct mist_time_ops_report *report,
                                               struct mist_err *err);

#endif
