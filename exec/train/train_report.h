/* The result of a run on stdout, for people or as one JSON document. */
#ifndef MIST_EXEC_TRAIN_REPORT_H
#define MIST_EXEC_TRAIN_REPORT_H

#include "core/status.h"
#include "exec/train/train.h"
#include "exec/train/train_log.h"

#include <stdbool.h>
#include <stdio.h>

/* ops_peak: the table of operators is wanted, too; NULL: not. MIST_ERR_IO,
 * MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_train_report_print(
    const struct mist_train_report *report, const struct mist_train_job *job,
    const struct mist_train_logger *logger, const struct mist_op_peak *ops_peak,
    bool as_json, FILE *stream, struct mist_err *err);

#endif
