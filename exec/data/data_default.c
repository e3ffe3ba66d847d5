/* The text that training reads when no data is named: its paths. See data.h. */
#include "exec/data/data.h"

#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_FOLDER "/usr/share/common-licenses"

/* By their bytes, whatever the locale. */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_regular(const struct dirent *entry)
{
    char path[sizeof DEFAULT_FOLDER + sizeof entry->d_name];
    struct stat info;

    snprintf(path, sizeof path, "%s/%s", DEFAULT_FOLDER, entry->d_name);
    return lstat(path, &info) == 0 && S_ISREG(info.st_mode);
}

void mist_data_free_paths(char **paths, int32_t n)
{
    for (int32_t i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
}

enum mist_status mist_data_default_paths(char ***paths, int32_t *n, struct mist_err *err)
{
    struct dirent **entries = NULL;
    int n_entries = scandir(DEFAULT_FOLDER, &entries, is_regular, compare_names);
    enum mist_status status = MIST_OK;

    *paths = NULL;
    *n = 0;
    if (n_entries < 0)
        return mist_err_at(
            err, errno == ENOMEM ? MIST_ERR_MEMORY : MIST_ERR_IO, DEFAULT_FOLDER, 0, 0,
            "can't read the default training text: %s; name text files", strerror(errno));
    if (n_entries == 0)
        status = mist_err_at(err, MIST_ERR_IO, DEFAULT_FOLDER, 0, 0,
                             "no file in the default training text; name text files");
    else if (!(*paths = calloc((size_t)n_entries, sizeof **paths)))
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for file names");
    for (int i = 0; i < n_entries; i++) {
        if (status == MIST_OK &&
            !((*paths)[(*n)++] = mist_path_join(DEFAULT_FOLDER, entries[i]->d_name)))
            status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for file names");
        free(entries[i]);
    }
    free(entries);
    if (status == MIST_OK)
        return MIST_OK;
    mist_data_free_paths(*paths, *n);
    *paths = NULL;
    *n = 0;
    return status;
}
