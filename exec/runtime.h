/*
 * The runtime: walks one rank's schedule on a device, iteration after iteration.
 *
 * It knows nothing of parallelism: a task names its kind, its buffers and what it waits
 * for; the runtime submits its body to its stream, in dispatch order. The gradients of
 * iteration k are applied at the start of iteration k + 1 (is_update tasks), so the first
 * iteration leaves the updates out and mist_runtime_finish() applies the last ones.
 */
#ifndef MIST_EXEC_RUNTIME_H
#define MIST_EXEC_RUNTIME_H

#include "core/status.h"
#include "exec/comm.h"
#include "exec/device.h"
#include "exec/operators.h"
#include "sim/plan.h"
#include "sim/schedule.h"
#include "traces/timeline.h"

#include <stdint.h>

struct mist_train_config {
    struct mist_adamw_args adamw; /* t is ignored: the runtime counts */
    uint64_t seed;                /* of the initial parameters */
    int32_t n_threads;            /* of the compute stream */
    int32_t n_timed_iterations;   /* last ones, whose task times are kept; 0: none */
    bool is_serial;               /* one task at a time, to tell races from mistakes */
};

struct mist_runtime;

/*
 * plan, schedule, device, comm and operators are borrowed for the runtime's life; the
 * device's arenas have at least schedule->arena_bytes. Fills the initial parameters.
 * n_iterations is the length of the run.
 */
MIST_MUST_CHECK enum mist_status
mist_runtime_new(const struct mist_plan *plan, const struct mist_schedule *schedule,
                 struct mist_device *device, struct mist_comm *comm,
                 const struct mist_operators *operators,
                 const struct mist_train_config *config, int32_t n_iterations,
                 struct mist_runtime **out, struct mist_err *err);
void mist_runtime_free(struct mist_runtime *runtime);

/*
 * Runs one iteration and returns when every stream of this rank is idle.
 * tokens, targets   [n_micro_batches, micro_batch, seq_len] of this rank, borrowed during
 * the call; NULL where the stage has no embedding (no head). loss_sum          sum of the
 * losses of this rank's tokens; 0 on a rank without head. Allocates nothing.
 */
MIST_MUST_CHECK enum mist_status
mist_runtime_step(struct mist_runtime *runtime, const int32_t *tokens,
                  const int32_t *targets, double *loss_sum, struct mist_err *err);

/* Applies the gradients of the last iteration;
 * the parameters are then those after the run. */
MIST_MUST_CHECK enum mist_status mist_runtime_finish(struct mist_runtime *runtime,
                                                     struct mist_err *err);

/* Flat parameters of a module of this stage; *n elements of the layout (without padding).
 * Streams idle. */
const float *mist_runtime_parameters(const struct mist_runtime *runtime, int32_t layer,
                                     int64_t *n);

/*
 * When iteration i of the run began and ended on this rank (clock of mist_clock_now_s).
 */
void mist_runtime_span(const struct mist_runtime *runtime, int32_t i_iteration,
                       double *start_s, double *end_s);

/* Appends the kept iterations' tasks as they were measured;
 * live: [n_tasks] from mist_memory_live. */
MIST_MUST_CHECK enum mist_status mist_runtime_timeline(const struct mist_runtime *runtime,
                                                       const int64_t *live_bytes,
                                                       struct mist_timeline *out,
                                                       struct mist_err *err);

#endif
