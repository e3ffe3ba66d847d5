/*
 * The log of a run on disk: one row for each step, handed to the system as soon as the
 * step is done, so that a crash of the run loses none.
 *
 * A name that ends with .jsonl gets JSON lines, any other CSV with a header. Columns, or
 * keys: step, loss, gradient_norm, lr, step_s, tokens_per_s, validation_loss (none
 * without a validation after this step), skipped (1: not applied). Numbers that are not
 * finite are empty in CSV, null in JSON.
 *
 * A run that goes on from a checkpoint does the steps behind it again. Their rows, and a
 * last line that a crash cut off, are cut from the file, through an atomic replacement,
 * before the first row is added. Rows are flushed to the disk before every checkpoint, so
 * the log is never behind it, not even after a loss of power.
 */
#ifndef MIST_EXEC_LOG_FILE_H
#define MIST_EXEC_LOG_FILE_H

#include "core/status.h"
#include "exec/train/train.h"

#include <stdbool.h>
#include <stdint.h>

struct mist_log_file {
    const char *path; /* borrowed */
    int fd;           /* -1: closed */
    bool is_json;
};

/* What a run that goes on finds. */
struct mist_log_kept {
    int64_t n_bytes;   /* of the file that stay */
    int64_t n_rows;    /* in them */
    int64_t last_step; /* of the last of these; 0: there is none */
    int64_t n_dropped; /* rows behind them */
};

/*
 * Reads the log that a run of n_steps_before done steps goes on with; no file there (or
 * none that is regular) keeps nothing. MIST_OK; MIST_ERR_INPUT: not such a log;
 * MIST_ERR_IO; MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_log_file_scan(const char *path,
                                                    int64_t n_steps_before,
                                                    struct mist_log_kept *out,
                                                    struct mist_err *err);

/*
 * Opens path, whose first kept->n_bytes stay. kept NULL: a new file, which replaces one
 * that is there if force says so, else MIST_ERR_USAGE. path is borrowed until the end.
 * MIST_ERR_IO, MIST_ERR_MEMORY. After a failure log is closed.
 */
MIST_MUST_CHECK enum mist_status mist_log_file_open(struct mist_log_file *log,
                                                    const char *path,
                                                    const struct mist_log_kept *kept,
                                                    bool force, struct mist_err *err);

/* Adds a row; allocates nothing. MIST_ERR_IO names the file, as does sync(), which
 * flushes all rows to the disk. */
MIST_MUST_CHECK enum mist_status mist_log_file_add(const struct mist_log_file *log,
                                                   const struct mist_train_step *step,
                                                   double tokens_per_s,
                                                   struct mist_err *err);
MIST_MUST_CHECK enum mist_status mist_log_file_sync(const struct mist_log_file *log,
                                                    struct mist_err *err);
void mist_log_file_close(struct mist_log_file *log); /* a closed one is left alone */

#endif
