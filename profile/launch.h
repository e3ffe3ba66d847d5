/*
 * Starts this program again as several ranks, under mpirun, with the bindings that
 * `mpirun -n N mist-exec` has: timing must happen as execution does.
 */
#ifndef MIST_PROFILE_LAUNCH_H
#define MIST_PROFILE_LAUNCH_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

/* True in a rank that mist_launch_ranks() started: the process that did says what signal
 * ended the session. */
bool mist_launch_is_own(void);

/* How the ranks ended. */
struct mist_launch_end {
    int code;        /* exit code of mpirun, which is that of a rank; 128 + n: signal n */
    int stop_signal; /* that came to this process first, and ended them; 0: none */
};

/*
 * Runs `mpirun -n n_ranks` of the same command line followed by the n_extra arguments, as
 * mist_command_add_mpirun() has it, and waits for its end.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGUSR1 to this process reach the ranks as SIGUSR1, which mpirun
 * forwards: they end behind the record of the journal that they are at, whenever that is.
 * (mpirun itself would kill them a second after SIGINT or SIGTERM.) Another SIGINT makes
 * mpirun end them within some seconds, as it does when this process is killed.
 * Signals are caught from here on, so this is for main() only.
 *
 * *end is filled on MIST_OK. MIST_ERR_RUN (no mpirun: the message says what to install) or
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_launch_ranks(int32_t n_ranks, int32_t n_processors,
                                                   int argc, char **argv,
                                                   const char *const *extra, int n_extra,
                                                   struct mist_launch_end *end,
                                                   struct mist_err *err);

#endif
