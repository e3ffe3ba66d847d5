/* Recordings of any format. See recording.h. */
#include "sim/recorded/recording.h"

#include "core/packed_file.h"
#include "core/path.h"
#include "sim/recorded/torch_job.h"

#include <dirent.h>
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct files {
    char **items; /* in the arena; the array is owned */
    size_t n, capacity;
    struct mist_arena *arena;
    struct mist_err *err;
};

static enum mist_status add_file(struct files *files, const char *path)
{
    if (!MIST_RESERVE(files->items, files->capacity, files->n + 1))
        return mist_err_memory(files->err, path);
    files->items[files->n] = mist_arena_strdup(files->arena, path);
    return files->items[files->n++] ? MIST_OK : mist_err_memory(files->err, path);
}

static int is_trace(const struct dirent *entry)
{
    return mist_path_ends(entry->d_name, ".json") ||
           mist_path_ends(entry->d_name, ".json.gz");
}

static int compare_entries(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static enum mist_status add_folder(struct files *files, const char *folder)
{
    struct dirent **entries = NULL;
    enum mist_status status = MIST_OK;
    char path[PATH_MAX];
    int n = scandir(folder, &entries, is_trace, compare_entries);

    if (n < 0)
        return mist_err_io(files->err, folder, "read", errno);
    if (n == 0)
        status = mist_err_at(files->err, MIST_ERR_INPUT, folder, 0, 0,
                             "has no traces, expected files *.json or *.json.gz");
    for (int i = 0; i < n; i++) {
        int n_bytes = snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        if (status == MIST_OK)
            status = n_bytes < (int)sizeof path
                         ? add_file(files, path)
                         : mist_err_io(files->err, folder, "read", ENAMETOOLONG);
        free(entries[i]);
    }
    free(entries);
    return status;
}

static enum mist_status add_pattern(struct files *files, const char *pattern)
{
    enum mist_status status = MIST_OK;
    glob_t found = {0};
    int code = glob(pattern, 0, NULL, &found);

    if (code != 0)
        status = code == GLOB_NOSPACE ? mist_err_memory(files->err, pattern)
                                      : mist_err_at(files->err, MIST_ERR_INPUT, pattern,
                                                    0, 0, "there are no such files");
    for (size_t i = 0; i < found.gl_pathc && status == MIST_OK; i++)
        status = add_file(files, found.gl_pathv[i]);
    globfree(&found);
    return status;
}

enum sort { ONE_FILE, FOLDER, PATTERN, PIPE };

/* What a name means. */
static enum sort find_sort(const char *name)
{
    struct stat info;

    if (stat(name, &info) != 0)
        return strpbrk(name, "*?[") ? PATTERN : ONE_FILE;
    return S_ISDIR(info.st_mode) ? FOLDER : S_ISFIFO(info.st_mode) ? PIPE : ONE_FILE;
}

static enum mist_status add_name(struct files *files, const char *name)
{
    switch (find_sort(name)) {
    case FOLDER:
        return add_folder(files, name);
    case PATTERN:
        return add_pattern(files, name);
    case PIPE:
        return mist_err_at(files->err, MIST_ERR_IO, name, 0, 0,
                           "is a pipe, expected a file: its begin is looked at, and then "
                           "all of it");
    case ONE_FILE:
        break;
    }
    return add_file(files, name);
}

enum { BEGIN_BYTES = 256 };

/* The first bytes of a file that may be packed. */
static enum mist_status read_begin(const char *path, char begin[BEGIN_BYTES],
                                   struct mist_err *err)
{
    struct mist_packed_file file;
    size_t n = 0;
    enum mist_status status = mist_packed_file_open(&file, path, err);

    if (status == MIST_OK)
        status = mist_packed_file_read(&file, begin, BEGIN_BYTES - 1, &n, err);
    mist_packed_file_close(&file);
    begin[n] = '\0';
    return status;
}

enum mist_status mist_recorded_find_timeline(const char *name, bool *is_timeline,
                                             struct mist_err *err)
{
    char begin[BEGIN_BYTES];

    *is_timeline = false;
    if (find_sort(name) != ONE_FILE)
        return MIST_OK;
    enum mist_status status = read_begin(name, begin, err);
    *is_timeline = status == MIST_OK && strstr(begin, "device_live_bytes");
    return status;
}

enum mist_status mist_recorded_read(const char *const *names, int n_names,
                                    struct mist_operations *table,
                                    struct mist_recorded_job *job,
                                    struct mist_progress *progress,
                                    struct mist_arena *arena, struct mist_err *err)
{
    struct files files = {.arena = arena, .err = err};
    enum mist_status status = MIST_OK;
    char begin[BEGIN_BYTES] = "{";

    *table = (struct mist_operations){0};
    for (int i = 0; i < n_names && status == MIST_OK; i++)
        status = add_name(&files, names[i]);
    if (status == MIST_OK && files.n == 1)
        status = read_begin(files.items[0], begin, err);
    if (status == MIST_OK && begin[strspn(begin, " \t\r\n")] != '{')
        status = mist_operations_open(table, files.items[0], progress, err);
    else if (status == MIST_OK)
        status = mist_recorded_read_torch((const char *const *)files.items, (int)files.n,
                                          job, progress, arena, err);
    free(files.items);
    return status;
}
