/*
 * The search of mist-tune --target: the fastest plans that another framework can express.
 *
 * Their stages are all alike, so plans are few, and every one is looked at: stages, tp, dp,
 * micro-batch, ZeRO, recomputation, sequence parallelism. Of each that its framework can
 * express (sim/framework_args: its arguments, read back, give the same plan) the passes are
 * priced; in the order of these prices plans are planned and replayed until there are as
 * many as are wanted, and those are tried with the other pipeline schedules that can be
 * expressed. A plan fits with what its framework needs beside the arena by mist-sim's count
 * (mist_beside_arena_find()). What can't fit is left out by its weights, gradients and
 * optimizer state with what is needed beside these, or because a plan that needs no more did
 * not fit.
 *
 * Left out: offloading; stages of different sizes; tensor parallelism across nodes.
 */
#ifndef MIST_TUNE_TARGET_H
#define MIST_TUNE_TARGET_H

#include "core/message.h"
#include "tune/validate.h"

/* The groups of knobs (tune/space.h) that are searched, which bounds may speak of. */
#define MIST_TARGET_GROUPS                                                               \
    (1u << MIST_SPACE_ZERO | 1u << MIST_SPACE_CKPT | 1u << MIST_SPACE_SEQUENCE |         \
     1u << MIST_SPACE_SCHEDULE | 1u << MIST_SPACE_CONTEXT)

/*
 * Makes a job and a model those of the framework: its name, flash attention, no dropout,
 * overlapping; Megatron-LM pads the vocabulary to a multiple of 128, which is said. Of ours
 * nothing is changed.
 */
void mist_target_set(enum mist_framework_name framework,
                     const struct mist_messages *messages, struct mist_model *model,
                     struct mist_job *job);

/*
 * Searches. config->space holds the model and the job as above, its cases are not looked at.
 * With a job of ours in it, the plans that the framework can express are searched as ours:
 * priced as we run them, within our memory.
 * is_over as in struct mist_search_config. result as of mist_validate_run(): plans by
 * replayed time, closed_s of their own schedule by its passes; its search counts plans.
 * MIST_ERR_NO_PLAN: none can be expressed and fits.
 */
MIST_MUST_CHECK enum mist_status
mist_target_run(const struct mist_validate_config *config,
                enum mist_framework_name framework, struct mist_thread_pool *pool,
                const atomic_int *is_over, struct mist_validate_result *result,
                struct mist_err *err);

#endif
