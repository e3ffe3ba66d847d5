/*
 * The files that mist-tune writes.
 */
#ifndef MIST_TUNE_TUNE_FILES_H
#define MIST_TUNE_TUNE_FILES_H

#include "tune/search_rows.h"
#include "tune/tune_session.h"

/* A file that could not be written at the end is refused at the beginning: MIST_ERR_USAGE
 * (it exists, no --force) or MIST_ERR_IO. */
MIST_MUST_CHECK enum mist_status
mist_tune_files_check(const struct mist_tune_options *options, struct mist_err *err);

/* Writes all that are asked for. rows: of the search, closed then. */
MIST_MUST_CHECK enum mist_status
mist_tune_files_save(const struct mist_tune_session *at,
                     const struct mist_validate_result *result,
                     struct mist_search_rows *rows, struct mist_err *err);

/* " and saved: best.json, log.csv", in text [size], which is returned; "" without files. */
char *mist_tune_files_list(const struct mist_tune_options *options, char *text,
                           size_t size);

#endif
