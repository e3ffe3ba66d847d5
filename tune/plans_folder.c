/* Plans in a folder, numbered. See plans_folder.h. */
#include "tune/plans_folder.h"

#include "core/atomic_file.h"
#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 48 };

/* plan_001.json for 1. */
static const char *name_plan(size_t number, char *name)
{
    snprintf(name, NAME_BYTES, "plan_%03zu.json", number);
    return name;
}

/* The number of a name that name_plan() makes; 0: it makes no such name. */
static size_t number_of(const char *name)
{
    char again[NAME_BYTES];
    uintmax_t number;

    if (strncmp(name, "plan_", 5) != 0)
        return 0;
    number = strtoumax(name + 5, NULL, 10);
    return number < SIZE_MAX && strcmp(name, name_plan((size_t)number, again)) == 0
               ? (size_t)number
               : 0;
}

bool mist_plans_folder_has_name(const char *name)
{
    return number_of(name) > 0;
}

/* Cuts the last part of a path off; "" when there is no other. */
static void cut_last(char *path)
{
    size_t n = strlen(path);

    while (n > 0 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    path[n] = '\0';
}

static bool exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

/* The lowest number above last that a plan of the folder has; 0: none. A folder that is
 * missing has none. */
static enum mist_status find_plan(const char *folder, size_t last, size_t *out,
                                  struct mist_err *err)
{
    DIR *stream = opendir(folder);

    *out = 0;
    if (!stream)
        return errno == ENOENT ? MIST_OK
                               : mist_err_at(err, MIST_ERR_IO, folder, 0, 0,
                                             "can't read: %s", strerror(errno));
    for (struct dirent *entry; (entry = readdir(stream));) {
        size_t number = number_of(entry->d_name);
        if (number > last && (*out == 0 || number < *out))
            *out = number;
    }
    closedir(stream);
    return MIST_OK;
}

static enum mist_status refuse_plans(const char *folder, struct mist_err *err)
{
    size_t number;
    char name[NAME_BYTES];
    enum mist_status status = find_plan(folder, 0, &number, err);

    if (status != MIST_OK || number == 0)
        return status;
    char *path = mist_path_join(folder, name_plan(number, name));
    if (!path)
        return mist_err_memory(err, NULL);
    status = mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                         "exists already; --force replaces it");
    free(path);
    return status;
}

/* Removes the plans with numbers above last. */
static enum mist_status remove_plans(const char *folder, size_t last,
                                     struct mist_err *err)
{
    char name[NAME_BYTES];
    enum mist_status status = find_plan(folder, last, &last, err);

    while (status == MIST_OK && last > 0) {
        char *path = mist_path_join(folder, name_plan(last, name));
        if (!path)
            return mist_err_memory(err, NULL);
        if (unlink(path) != 0)
            status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "can't remove: %s",
                                 strerror(errno));
        free(path);
        if (status == MIST_OK)
            status = find_plan(folder, last, &last, err);
    }
    return status;
}

/* Opens the first plan for writing, and leaves it. */
static enum mist_status try_first(const char *folder, struct mist_err *err)
{
    char name[NAME_BYTES];
    char *path = mist_path_join(folder, name_plan(1, name));

    if (!path)
        return mist_err_memory(err, NULL);
    enum mist_status status = mist_output_check(path, true, err);
    free(path);
    return status;
}

/* Folders that are missing are made for a moment: nothing else tells whether they can be
 * made. */
enum mist_status mist_plans_folder_check(const char *folder, bool force,
                                         struct mist_err *err)
{
    enum mist_status status = force ? MIST_OK : refuse_plans(folder, err);
    char *made = mist_path_join(folder, "");

    if (!made || status != MIST_OK) {
        free(made);
        return status != MIST_OK ? status : mist_err_memory(err, NULL);
    }
    while (made[0] && !exists(made))
        cut_last(made);
    size_t n_kept = strlen(made);
    status = mist_make_directory(folder, err);
    if (status == MIST_OK)
        status = try_first(folder, err);
    snprintf(made, strlen(folder) + 2, "%s/", folder);
    for (; strlen(made) > n_kept; cut_last(made))
        rmdir(made); /* fails for what was not made */
    free(made);
    return status;
}

enum mist_status mist_plans_folder_save(const char *folder, bool force,
                                        const struct mist_validated *plans, size_t n,
                                        struct mist_err *err)
{
    enum mist_status status = mist_make_directory(folder, err);
    char name[NAME_BYTES];

    for (size_t i = 0; i < n && status == MIST_OK; i++) {
        char *path = mist_path_join(folder, name_plan(i + 1, name));
        status = path ? mist_plan_save(plans[i].plan, path, force, err)
                      : mist_err_memory(err, NULL);
        free(path);
    }
    return status == MIST_OK && force ? remove_plans(folder, n, err) : status;
}
