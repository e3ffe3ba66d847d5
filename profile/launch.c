/* Starting again under mpirun. See launch.h. */
#include "profile/launch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool mist_launch_is_launched(void)
{
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (getenv(names[i]))
            return true;
    return false;
}

enum mist_status mist_launch_ranks(int32_t n_ranks, int32_t n_processors, int argc,
                                   char **argv, const char *const *extra, int n_extra,
                                   struct mist_err *err)
{
    enum { N_OWN = 12 };
    char count[16], self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    char **command = calloc((size_t)(argc + n_extra + N_OWN), sizeof *command);
    int n = 0;

    if (!command)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    snprintf(count, sizeof count, "%d", (int)n_ranks);
    command[n++] = "mpirun";
    command[n++] = "--quiet"; /* our own messages say what went wrong */
    if (geteuid() == 0)
        command[n++] = "--allow-run-as-root";
    if (n_ranks > n_processors) {
        command[n++] = "--oversubscribe";
        command[n++] = "--bind-to";
        command[n++] = "none";
    }
    command[n++] = "-n";
    command[n++] = count;
    if (length > 0) {
        self[length] = '\0';
        command[n++] = self;
    } else {
        command[n++] = argv[0];
    }
    for (int i = 1; i < argc; i++)
        command[n++] = argv[i];
    for (int i = 0; i < n_extra; i++)
        command[n++] = (char *)(uintptr_t)extra[i]; /* execvp changes nothing */
    execvp(command[0], command);
    int code = errno;
    free(command);
    if (code == ENOENT)
        return mist_err_set(err, MIST_ERR_RUN,
                            "mpirun is not installed, which several ranks need; on "
                            "Debian: apt install openmpi-bin; or use --ranks 1");
    return mist_err_set(err, MIST_ERR_RUN, "mpirun can't be started: %s", strerror(code));
}
