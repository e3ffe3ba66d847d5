/*
 * A training run: every rank of a plan, from the data to the last step, and what was
 * measured.
 *
 * Each rank builds its schedule, opens its device with exactly the planned arenas and
 * walks the schedule once per iteration. Losses travel to rank 0 in small messages after
 * each iteration, which holds nobody up; times stay on their ranks until the end.
 */
#ifndef MIST_EXEC_TRAIN_H
#define MIST_EXEC_TRAIN_H

#include "core/status.h"
#include "exec/comm.h"
#include "exec/data.h"
#include "exec/operators.h"
#include "sim/catalog.h"
#include "sim/plan.h"
#include "traces/timeline.h"

#include <stdint.h>

struct mist_train_job {
    const struct mist_plan *plan;       /* checked, supported by the schedule */
    const struct mist_catalog *catalog; /* of plan->model */
    const struct mist_data *data;       /* checked against model and sequence length */
    struct mist_adamw_args adamw;
    uint64_t seed;
    int32_t n_iterations;       /* >= 1 */
    int32_t n_timed_iterations; /* <= n_iterations: last ones, in the timeline */
    int32_t n_threads;          /* of each rank's compute stream */
    bool is_serial;             /* one task at a time */
};

/* What rank 0 knows after each iteration. */
struct mist_train_step {
    int32_t i_iteration;
    double loss;      /* mean over the tokens of the step */
    double elapsed_s; /* of this iteration, as rank 0 saw it */
};
typedef void (*mist_train_log_fn)(void *context, const struct mist_train_step *step);

struct mist_train_report { /* complete on rank 0 only */
    int32_t n_iterations, n_ranks;
    double *losses;      /* owned; [n_iterations] */
    double *iteration_s; /* owned; [n_iterations]: from end to end of the last rank */
    double steady_s; /* median of iteration_s without the first two (or what there is) */
    int64_t *planned_bytes;   /* owned; [n_ranks] device arena of the plan */
    int64_t *allocated_bytes; /* owned; [n_ranks] device arena of the run */
    int64_t *resident_bytes;  /* owned; [n_ranks] largest resident set of the process */
    uint64_t
        parameters_fingerprint; /* of all parameters after the run, in module order */
    struct mist_timeline
        timeline; /* of all ranks; time 0 = start of the first kept iteration */
};

/*
 * Runs the job on all ranks of comm; plan's ranks = comm's ranks. log (NULL: none) is
 * called on rank 0. report is initialised whatever the result; mist_train_report_fini
 * frees it. MIST_OK, MIST_ERR_MEMORY, MIST_ERR_RUN (also a loss that is not finite),
 * MIST_ERR_INPUT.
 */
MIST_MUST_CHECK enum mist_status mist_train_run(struct mist_comm *comm,
                                                const struct mist_train_job *job,
                                                mist_train_log_fn log, void *context,
                                                struct mist_train_report *report,
                                                struct mist_err *err);
void mist_train_report_fini(struct mist_train_report *report);

#endif
