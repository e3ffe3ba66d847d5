/*
 * Brings what the ranks measured to rank 0: iteration ends, memory, parameters, task
 * times.
 */
#ifndef MIST_EXEC_GATHER_H
#define MIST_EXEC_GATHER_H

#include "exec/runtime/runtime.h"
#include "exec/train/train.h"

/* Memory of this rank. */
struct mist_train_memory mist_gather_memory(const struct mist_schedule *schedule,
                                            struct mist_device *device);

/*
 * Fills everything of the report but the steps. All ranks call it, streams idle, after
 * the last update. begin_s: [n_kept] when an iteration began that followed a pause
 * (validation, a checkpoint), iteration i at i % n_kept; 0: none did.
 */
MIST_MUST_CHECK enum mist_status
mist_gather_report(struct mist_comm *comm, const struct mist_train_job *job,
                   const struct mist_schedule *schedule,
                   const struct mist_runtime *runtime, const double *begin_s,
                   struct mist_device *device, struct mist_train_report *report,
                   struct mist_err *err);

#endif
