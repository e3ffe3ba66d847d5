/* The text that training reads when no data is named: its paths. See data.h. */
#include "exec/data/data.h"

#include "core/memory.h"
#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_FOLDER "/usr/share/common-licenses"

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

void mist_data_free_paths(char **paths, int32_t n)
{
    for (int32_t i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
}

/* Adds the regular files of an open folder. */
static enum mist_status add_files(DIR *folder, char ***paths, int32_t *n,
                                  struct mist_err *err)
{
    size_t capacity = 0;

    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        char *path = mist_path_join(DEFAULT_FOLDER, entry->d_name);
        if (path && (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))) {
            free(path);
            continue;
        }
        char **grown =
            path ? mist_grow(*paths, &capacity, (size_t)*n + 1, sizeof **paths) : NULL;
        if (!grown) {
            free(path);
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for file names");
        }
        *paths = grown;
        grown[(*n)++] = path;
    }
    return MIST_OK;
}

enum mist_status mist_data_default_paths(char ***paths, int32_t *n, struct mist_err *err)
{
    DIR *folder = opendir(DEFAULT_FOLDER);
    enum mist_status status;

    *paths = NULL;
    *n = 0;
    if (!folder)
        return mist_err_at(
            err, errno == ENOMEM ? MIST_ERR_MEMORY : MIST_ERR_IO, DEFAULT_FOLDER, 0, 0,
            "can't read the default training text: %s; name text files", strerror(errno));
    status = add_files(folder, paths, n, err);
    closedir(folder);
    if (status == MIST_OK && *n == 0)
        status = mist_err_at(err, MIST_ERR_IO, DEFAULT_FOLDER, 0, 0,
                             "no file in the default training text; name text files");
    if (status != MIST_OK) {
        mist_data_free_paths(*paths, *n);
        *paths = NULL;
        *n = 0;
        return status;
    }
    qsort(*paths, (size_t)*n, sizeof **paths, compare_paths);
    return MIST_OK;
}
