/* Starting again under mpirun. See launch.h. */
#include "profile/launch.h"

#include "core/command.h"

#include <errno.h>
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
    char self[4096];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    struct mist_command command;

    self[length > 0 ? length : 0] = '\0';
    mist_command_init(&command);
    mist_command_add_mpirun(&command, n_ranks, n_processors);
    mist_command_add(&command, length > 0 ? self : argv[0]);
    for (int i = 1; i < argc; i++)
        mist_command_add(&command, argv[i]);
    for (int i = 0; i < n_extra; i++)
        mist_command_add(&command, extra[i]);
    enum mist_status status = mist_command_end(&command, err);
    if (status == MIST_OK) {
        execvp(command.words[0], command.words);
        status =
            errno == ENOENT
                ? mist_err_set(err, MIST_ERR_RUN,
                               "mpirun is not installed, which several ranks need; "
                               "on Debian: apt install openmpi-bin; or use --ranks 1")
                : mist_err_set(err, MIST_ERR_RUN, "mpirun can't be started: %s",
                               strerror(errno));
    }
    mist_command_fini(&command);
    return status;
}
