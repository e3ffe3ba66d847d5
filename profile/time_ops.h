/*
 * Times the operators in context: whole passes of a micro-batch through a stage, step by
 * step, through the calls that a run makes, on the compute stream of all ranks at once
 * (in a run the neighbours compute, too, and share the memory).
 *
 * A round is one pass of every tensor-parallel variant at every micro-batch size, and for
 * every module the optimizer's work on a shard, beside a GPU also that of the host's
 * processors. Communication inside a module is not
 * timed. Rounds go on until the mean of every row that matters is known to 1 % either way
 * (95 % interval), or the time is over. They can be run some at a time, with other parts of
 * a session between them. Slow changes of the machine so meet all rows alike. A step's time reaches from the end of the step before to its own end, so the
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

struct mist_time_ops;

/* Rounds that shall take budget_s altogether. *out is to be closed whatever the result,
 * before bench. MIST_OK or MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_time_ops_open(struct mist_workbench *bench,
                                                    double budget_s,
                                                    struct mist_time_ops **out,
                                                    struct mist_err *err);
void mist_time_ops_close(struct mist_time_ops *at); /* NULL allowed */

/*
 * Goes on until share (0 to 1, the same on all ranks) of the budget is gone.
 * estimates[grid->n_keys]: times in us so far, pooled over the ranks, the same everywhere.
 * All ranks must call it. MIST_OK, MIST_ERR_MEMORY or an error of device or communicator.
 */
MIST_MUST_CHECK enum mist_status mist_time_ops_run(struct mist_time_ops *at, double share,
                                                   struct mist_estimate *estimates,
                                                   struct mist_err *err);

/* Of all rounds, whose estimates these are. All ranks must call it, once. MIST_OK,
 * MIST_ERR_MEMORY or MIST_ERR_RUN. */
MIST_MUST_CHECK enum mist_status
mist_time_ops_report(const struct mist_time_ops *at,
                     const struct mist_estimate *estimates,
                     struct mist_time_ops_report *out, struct mist_err *err);

#endif
