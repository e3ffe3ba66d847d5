/*
 * What decides the losses of a run beside plan and data: seed, learning rate, optimizer,
 * length. A checkpoint stores them, and a resumed run goes on with them unless the
 * command line says otherwise. One table drives the file, the comparison and which
 * options were given.
 */
#ifndef MIST_EXEC_TRAIN_SETTINGS_H
#define MIST_EXEC_TRAIN_SETTINGS_H

#include "core/json.h"
#include "core/message.h"
#include "core/options.h"
#include "core/status.h"
#include "exec/data/data.h"
#include "exec/operators/operators.h"
#include "sim/plan/plan.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct mist_train_settings {
    int64_t seed;           /* of initial parameters and of the order of the data */
    int64_t n_iterations;   /* steps of the whole run, resumed parts included */
    double lr;              /* peak of the learning rate */
    double lr_min;          /* 0 .. lr */
    int64_t warm_up_steps;  /* 0: none */
    int64_t lr_decay_steps; /* counted from step 0; 0: constant after the warm-up */
    bool lr_decays_to_last; /* nobody said where: to n_iterations, also of a run that is
                               made longer later */
    double beta1, beta2, epsilon, weight_decay;
    double clip_norm; /* 0: off */
};

enum { MIST_TRAIN_N_SETTINGS = 11 }; /* members that have an option */

/* How far a run has come. */
struct mist_train_progress {
    int64_t n_steps;   /* done */
    int64_t n_updates; /* of the optimizer */
    int64_t n_skipped; /* steps that were not applied */
    int64_t n_samples; /* of the training data, taken by the steps done */
};

/* Which settings the command line gave; tool has a row for every one. */
void mist_train_settings_find_given(const struct mist_tool *tool,
                                    const struct mist_positionals *positionals,
                                    bool is_given[MIST_TRAIN_N_SETTINGS]);

/* Settles what depends on other settings (the end of the decay) and checks that they go
 * together: MIST_ERR_USAGE names the options. */
MIST_MUST_CHECK enum mist_status
mist_train_settings_resolve(struct mist_train_settings *settings,
                            const bool is_given[MIST_TRAIN_N_SETTINGS],
                            struct mist_err *err);

/* Learning rate of step i = 0, 1, ...: linear warm-up from 0 to lr (step i of it has lr
 * (i + 1) / warm_up_steps), then constant, or down a half cosine to lr_min at
 * lr_decay_steps (Loshchilov and Hutter 2017, one cycle), then lr_min. */
double mist_train_settings_lr(const struct mist_train_settings *settings, int64_t i);

struct mist_adamw_args
mist_train_settings_adamw(const struct mist_train_settings *settings);

/* The "training" object of a checkpoint; the caller's to free (json_decref), NULL: out of
 * memory. */
json_t *mist_train_settings_to_json(const struct mist_train_settings *settings,
                                    const struct mist_train_progress *progress,
                                    const struct mist_plan *plan,
                                    const struct mist_data *data);

/*
 * Takes over what a checkpoint says where is_given is false, and fills progress. What
 * differs is said in messages, a line each. Other data, another global batch or sequence
 * length would change which samples make up the steps to come: MIST_ERR_INPUT, unless
 * force. Then the run goes on behind the samples it has taken, whatever its batches were,
 * so that none comes twice in an epoch or is left out; of other data or windows of
 * another length that many are counted off. MIST_ERR_INPUT: damaged.
 */
MIST_MUST_CHECK enum mist_status mist_train_settings_take_over(
    const struct mist_json *training, const struct mist_plan *plan,
    const struct mist_data *data, bool force, const bool is_given[MIST_TRAIN_N_SETTINGS],
    struct mist_train_settings *settings, struct mist_train_progress *progress,
    const struct mist_messages *messages, struct mist_err *err);

#endif
