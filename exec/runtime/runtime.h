/*
 * The runtime: walks one rank's schedule on a device, iteration after iteration.
 *
 * It knows nothing of parallelism: a task names its kind, its buffers and what it waits
 * for; the runtime submits its body to its stream, in dispatch order. The gradients of an
 * iteration are applied at the start of the next one (is_update tasks), or by
 * mist_runtime_apply(), after which the parameters are what they would be without that
 * overlap: that is where runs end, checkpoints are taken and validation happens.
 */
#ifndef MIST_EXEC_RUNTIME_H
#define MIST_EXEC_RUNTIME_H

#include "core/status.h"
#include "exec/comm/collectives.h"
#include "exec/comm/comm.h"
#include "exec/device/device.h"
#include "exec/operators/op_table.h"
#include "exec/operators/operators.h"
#include "exec/operators/paths.h"
#include "exec/runtime/state.h"
#include "sim/plan/plan.h"
#include "sim/schedule/schedule.h"
#include "traces/timeline.h"

#include <stdatomic.h>
#include <stdint.h>

struct mist_train_config {
    uint64_t seed;          /* of the initial parameters */
    int64_t n_steps_before; /* of the run, done by others: counts in messages */
    int32_t n_threads;      /* of the compute stream; 0: a device of its own */
    int32_t n_processors; /* that the rank may use while no stream runs; 0 counts as 1 */
    int32_t n_timed_iterations; /* last ones, whose task times are kept; 0: none */
    int32_t n_spans;            /* last ones, of which is kept when they ran; 0: all */
    struct mist_op_table *ops;  /* borrowed; gets the operators of those; NULL: none */
    bool is_serial;             /* one task at a time, to tell races from mistakes */
    uint64_t delay_seed; /* 0: none; else tasks start after random delays, which must not
                            change a bit */
    enum mist_graphs_choice graphs; /* ON: an error where they are impossible */
    const atomic_int *stop_signal;  /* not 0: the run is to end; NULL: never */
    bool skips_nonfinite; /* an iteration with a loss or gradient that is not finite is
                             not applied; otherwise it is an error */
};

/* What an iteration found, the same on all ranks. */
struct mist_step_result {
    double loss_sum;      /* of all tokens of the step */
    double gradient_norm; /* L2, of the mean loss's gradient, all parameters */
    bool is_finite;       /* loss and gradients */
    bool stops;           /* some rank's stop_signal was not 0, or it was told to stop */
    char where[200];      /* what was not finite on this rank; "" nothing */
    const char *graphs;   /* what was found out about replaying in this iteration, as in
                             struct mist_paths; NULL: nothing */
};

/* What a runtime works with; all borrowed for its life. */
struct mist_runtime_parts {
    struct mist_device *device; /* just opened: arenas of at least schedule->arena_bytes,
                                   zero; results of mist_runtime_result_bytes() */
    struct mist_comm *comm;
    struct mist_collectives *collectives; /* of this device */
    const struct mist_operators *operators;
};

/* Threads of updates on the host: those of the compute stream or, beside a device of its
 * own (n_threads 0), one for each of the rank's processors. */
static inline int32_t mist_runtime_host_threads(int32_t n_threads, int32_t n_processors)
{
    return n_threads > 0 ? n_threads : n_processors > 1 ? n_processors : 1;
}

/* Why iterations can't be replayed: "more than one rank"; NULL: they can, on a device
 * that can capture. */
const char *mist_runtime_graphs_obstacle(const struct mist_train_config *config,
                                         int32_t n_ranks);

/* What tasks leave for the host in an iteration. */
int64_t mist_runtime_result_bytes(const struct mist_schedule *schedule);

struct mist_runtime;

/*
 * plan and schedule are borrowed for the runtime's life. Fills the initial parameters.
 * n_iterations is the length of the run.
 */
MIST_MUST_CHECK enum mist_status
mist_runtime_new(const struct mist_plan *plan, const struct mist_schedule *schedule,
                 const struct mist_runtime_parts *parts,
                 const struct mist_train_config *config, int32_t n_iterations,
                 struct mist_runtime **out, struct mist_err *err);
void mist_runtime_free(struct mist_runtime *runtime);

/* Who does this rank's work, and what carries its messages. is_alone: no other rank
 * computes on device i_device, which is this rank's. */
void mist_runtime_describe(const struct mist_runtime *runtime, int32_t i_device,
                           bool is_alone, struct mist_paths *out);

/* How the gradients of the latest iteration are applied, by the next one or by apply();
 * args->t counts from 1. is_skipped: not at all, they are dropped. */
void mist_runtime_set_update(struct mist_runtime *runtime,
                             const struct mist_adamw_args *args, bool is_skipped);

/* From the next walk on this rank tells all to stop, as by stop_signal. */
void mist_runtime_stop(struct mist_runtime *runtime);

/*
 * Runs one iteration and returns when every stream of this rank is idle.
 * tokens, targets   [n_micro_batches, micro_batch, seq_len] of this rank, borrowed during
 * the call; NULL where the stage has no embedding (no head). Allocates nothing.
 */
MIST_MUST_CHECK enum mist_status mist_runtime_step(struct mist_runtime *runtime,
                                                   const int32_t *tokens,
                                                   const int32_t *targets,
                                                   struct mist_step_result *result,
                                                   struct mist_err *err);

/* Applies the gradients of the latest iteration, if they have not been. */
MIST_MUST_CHECK enum mist_status mist_runtime_apply(struct mist_runtime *runtime,
                                                    struct mist_err *err);

/* The loss alone, as mist_runtime_step() but without gradients, of which nothing is said;
 * nothing may be left to apply. */
MIST_MUST_CHECK enum mist_status mist_runtime_evaluate(struct mist_runtime *runtime,
                                                       const int32_t *tokens,
                                                       const int32_t *targets,
                                                       struct mist_step_result *result,
                                                       struct mist_err *err);

/* mist_state_read() and mist_state_write() of this rank; nothing left to apply. Whoever
 * writes bf16 weights writes both, WEIGHT (the master) and what it rounds to,
 * COMPUTE_WEIGHT. */
MIST_MUST_CHECK enum mist_status
mist_runtime_read_state(const struct mist_runtime *runtime,
                        const struct mist_state_choice *choice, mist_state_read_fn *fn,
                        void *context, struct mist_err *err);
MIST_MUST_CHECK enum mist_status
mist_runtime_write_state(const struct mist_runtime *runtime, enum mist_state_kind kind,
                         mist_state_write_fn *fn, void *context, struct mist_err *err);

/*
 * When iteration i of the run began and ended on this rank (clock of mist_clock_now_s); it
 * is one of the last n_spans that were done.
 */
void mist_runtime_span(const struct mist_runtime *runtime, int32_t i_iteration,
                       double *start_s, double *end_s);

/* Of each kept iteration, an enum mist_span_loss: [n_timed_iterations]. */
void mist_runtime_losses(const struct mist_runtime *runtime, int64_t *losses);

/* Appends the tasks of those kept iterations whose losses[] are 0, as they were measured;
 * live_bytes: [n_tasks] from mist_memory_live. */
MIST_MUST_CHECK enum mist_status mist_runtime_timeline(const struct mist_runtime *runtime,
                                                       const int64_t *losses,
                                                       const int64_t *live_bytes,
                                                       struct mist_timeline *out,
                                                       struct mist_err *err);

#endif
