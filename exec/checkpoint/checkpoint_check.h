/* All checkpoints of a folder, looked through to the last byte: `mist-exec --verify`. */
#ifndef MIST_EXEC_CHECKPOINT_CHECK_H
#define MIST_EXEC_CHECKPOINT_CHECK_H

#include "core/status.h"

#include <stdbool.h>
#include <stdio.h>

/*
 * Prints for every checkpoint in dir, or for dir itself when it is one, whether it is
 * whole, and if not the first thing that is wrong with it. What was never finished, or is
 * being deleted, is no checkpoint.
 *
 * MIST_OK: all are whole. MIST_ERR_VERIFY: not all. MIST_ERR_INPUT: there is none.
 * MIST_ERR_IO (dir or stream), MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_checkpoint_check_folder(const char *dir,
                                                              bool as_json, FILE *stream,
                                                              struct mist_err *err);

#endif
