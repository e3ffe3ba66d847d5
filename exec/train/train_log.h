/*
 * What a run says while it goes on: a line per step for people, rows on disk for machines
 * (log_file.h, tensorboard.h). A step's row is on disk when its line is printed.
 */
#ifndef MIST_EXEC_TRAIN_LOG_H
#define MIST_EXEC_TRAIN_LOG_H

#include "core/status.h"
#include "exec/train/log_file.h"
#include "exec/train/tensorboard.h"
#include "exec/train/train.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * What a device can do at most, in the plan's number format. Model FLOP utilisation (MFU;
 * Chowdhery et al. 2022, appendix B) is the rate of the FLOP that the model needs, of
 * that:
 *
 *     MFU = FLOP per token * tokens/s / (ranks * peak of a device)
 *
 * FLOP per token are those of mist_model_count().
 */
struct mist_train_peak {
    double flop_per_s, bytes_per_s; /* of its memory; 0: not known */
    bool is_measured; /* FLOP/s: the fastest linear layer of the trace set; otherwise what
                         its cluster.json says */
};

/* From the trace set that the plan (read from plan_path) was made for. That one can't be
 * read or is no longer what it was is said; that there is none is not. train_flop.c */
struct mist_train_peak mist_train_find_peak(const struct mist_plan *plan,
                                            const char *plan_path,
                                            const struct mist_messages *messages);

struct mist_train_logger {
    const struct mist_train_job *job; /* borrowed */
    FILE *stream;                     /* for people; borrowed; NULL: nothing is said */
    int64_t log_every;                /* steps */
    const char *path;                 /* of the log; NULL: none */
    const char *board_folder;         /* of TensorBoard; NULL: none */
    bool goes_on; /* the log may be there: it is of an attempt before this one */
    bool force;   /* another one may be replaced */
    double flop_per_token;
    struct mist_train_peak peak;
    struct mist_log_kept kept; /* owned, as what follows */
    struct mist_log_file file;
    struct mist_tensorboard board;
};

/*
 * Sets up the owned members and reads the log that a run goes on with; the caller has
 * filled the others. Nothing is written before mist_train_log_begin(). MIST_ERR_INPUT (a
 * file, but not such a log), MIST_ERR_USAGE (of another run), MIST_ERR_IO,
 * MIST_ERR_MEMORY. mist_train_log_fini() whatever the result.
 */
MIST_MUST_CHECK enum mist_status mist_train_log_init(struct mist_train_logger *logger,
                                                     struct mist_err *err);
void mist_train_log_fini(struct mist_train_logger *logger);

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

/* The result of a run on a stream, for people or as one JSON document. ops_peak: the table
 * of operators is wanted, too; NULL: not. MIST_ERR_IO, MIST_ERR_MEMORY. train_report.c */
MIST_MUST_CHECK enum mist_status mist_train_report_print(
    const struct mist_train_report *report, const struct mist_train_job *job,
    const struct mist_train_logger *logger, const struct mist_op_peak *ops_peak,
    bool as_json, FILE *stream, struct mist_err *err);

#endif
