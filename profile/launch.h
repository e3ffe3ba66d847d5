/*
 * Starts this program again as several ranks, under mpirun, with the bindings that
 * `mpirun -n N mist-exec` has: timing must happen as execution does.
 */
#ifndef MIST_PROFILE_LAUNCH_H
#define MIST_PROFILE_LAUNCH_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

/* True in a process that mpirun or srun started. */
bool mist_launch_is_launched(void);

/*
 * Replaces this process by `mpirun -n n_ranks` of the same command line followed by the
 * n_extra arguments, as mist_command_add_mpirun() has it; exit code and signals are then
 * mpirun's. Returns only with an error: MIST_ERR_RUN (no mpirun: the message says what to
 * install) or MIST_ERR_MEMORY.
 */
enum mist_status mist_launch_ranks(int32_t n_ranks, int32_t n_processors, int argc,
                                   char **argv, const char *const *extra, int n_extra,
                                   struct mist_err *err);

#endif
