/*
 * Looks, before any time is spent on measuring, whether a trace set can be written at the
 * end. Makes nothing, so an interrupted session leaves nothing behind.
 */
#ifndef MIST_PROFILE_OUTPUT_H
#define MIST_PROFILE_OUTPUT_H

#include "core/status.h"

#include <stdbool.h>

/*
 * MIST_OK; MIST_ERR_USAGE: one of the files is there, and not force, or folder is "-", by
 * which one means stdout; MIST_ERR_IO: folder can't be made where it is to be, or can't be
 * written to.
 */
MIST_MUST_CHECK enum mist_status mist_profile_check_output(const char *folder, bool force,
                                                           struct mist_err *err);

#endif
