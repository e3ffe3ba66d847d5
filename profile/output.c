/* Where the trace set will go. See output.h. */
#include "profile/output.h"

#include "core/atomic_file.h"
#include "traces/trace_set.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Refuses a folder that could not be made or written to. */
static enum mist_status check_folder(const char *folder, struct mist_err *err)
{
    char path[4096]; /* the folder, or the first one above it that is there */
    struct stat info;
    int n = snprintf(path, sizeof path, "%s", folder);

    if (n <= 0 || (size_t)n >= sizeof path)
        return mist_err_at(err, MIST_ERR_IO, folder, 0, 0, "is no path of a folder");
    while (stat(path, &info) != 0 && errno == ENOENT && strcmp(path, ".") != 0) {
        char *end = path + strlen(path);
        while (end > path + 1 && end[-1] == '/')
            *--end = '\0';
        char *slash = strrchr(path, '/');
        if (!slash)
            snprintf(path, sizeof path, ".");
        else
            slash[slash == path] = '\0';
    }
    if (stat(path, &info) == 0) {
        errno = S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
        if (errno == 0 && access(path, W_OK | X_OK) == 0)
            return MIST_OK;
    }
    return mist_err_at(err, MIST_ERR_IO, folder, 0, 0, "can't be written to: %s",
                       strerror(errno));
}

enum mist_status mist_profile_check_output(const char *folder, bool force,
                                           struct mist_err *err)
{
    const char *name;
    char path[4096];
    struct stat info;
    enum mist_status status = mist_output_refuse_stdout(folder, "folder", err);

    if (status != MIST_OK)
        return status;
    for (int i = 0; (name = mist_trace_set_file_name(i)) && !force; i++) {
        int n = snprintf(path, sizeof path, "%s/%s", folder, name);
        if (n > 0 && (size_t)n < sizeof path && stat(path, &info) == 0)
            return mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                               "exists; --force replaces the trace set");
    }
    return check_folder(folder, err);
}
