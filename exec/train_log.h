/*
 * What a run says while it goes on: a line per step for people, a table for machines.
 *
 * The table (--log-csv) has a row per step: step, loss, gradient_norm, lr, step_s,
 * tokens_per_s, validation_loss (empty without a validation after this step), skipped (1:
 * not applied). Numbers that are not finite are empty. The file is written whole, in
 * front of every checkpoint and at the end, so it is never behind the newest checkpoint.
 * A resumed run takes over the rows up to its checkpoint from the file, if there is one,
 * and drops later ones: after it, the file is that of a run that was never interrupted
 * (but for the times).
 */
#ifndef MIST_EXEC_TRAIN_LOG_H
#define MIST_EXEC_TRAIN_LOG_H

#include "core/status.h"
#include "exec/train.h"
#include "exec/train_flop.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mist_train_logger {
    const struct mist_train_job *job; /* borrowed */
    FILE *stream;                     /* for people; borrowed; NULL: nothing is said */
    int64_t log_every;                /* steps */
    const char *csv_path;             /* NULL: no table */
    bool force;                       /* the table may be replaced */
    double flop_per_token;
    struct mist_train_peak peak;
    struct mist_train_step *rows; /* owned; of the table */
    size_t n_rows, capacity;
    bool is_written; /* the table, once: it is ours */
};

/*
 * Sets up the four owned members and reads the rows that a resumed run takes over; the
 * caller has filled the others. MIST_ERR_INPUT (a table, but not of such a run),
 * MIST_ERR_IO, MIST_ERR_MEMORY. mist_train_log_fini() whatever the result.
 */
MIST_MUST_CHECK enum mist_status mist_train_log_init(struct mist_train_logger *logger,
                                                     struct mist_err *err);
void mist_train_log_fini(struct mist_train_logger *logger); /* zeroed: nothing */

/* The calls of struct mist_train_log; context is the logger. */
MIST_MUST_CHECK enum mist_status
mist_train_log_begin(void *context, const struct mist_train_memory *memory,
                     const struct mist_paths *paths, struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_train_log_step(void *context,
                                                     const struct mist_train_step *step,
                                                     struct mist_err *err);
void mist_train_log_note(void *context, const char *name, const char *text);

/* Model FLOP utilisation at that many seconds a step; 0: the peak is not known. */
double mist_train_log_mfu(const struct mist_train_logger *logger, double step_s);

/* "tokens of a step" / step_s */
double mist_train_log_tokens_per_s(const struct mist_train_logger *logger, double step_s);

#endif
