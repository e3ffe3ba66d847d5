/*
 * Folders of checkpoints: names, listing, flushing, removing.
 *
 * A folder is removed manifest first: from then on it is no checkpoint, whatever is still
 * in it. Only files with names of ours are removed, and no link is followed.
 */
#include "exec/checkpoint/checkpoint_internal.h"

#include "core/path.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUN_DIGITS = 16 };

/* ------------------------------------------------------------------------------ names */

/* A name that is too long is none, and not another's beginning. */
static void join(char path[PATH_MAX], const char *folder, const char *name)
{
    int n = snprintf(path, PATH_MAX, "%s/%s", folder, name);

    if (n < 0 || n >= PATH_MAX)
        path[0] = '\0';
}

void checkpoint_step_path(char path[PATH_MAX], const char *dir, int64_t step,
                          const char *suffix)
{
    char name[96];

    snprintf(name, sizeof name, "step-%08" PRId64 "%s", step, suffix);
    join(path, dir, name);
}

void checkpoint_rank_path(char path[PATH_MAX], const char *folder, int32_t rank)
{
    char name[32];

    snprintf(name, sizeof name, "rank-%05" PRId32 ".bin", rank);
    join(path, folder, name);
}

void checkpoint_manifest_path(char path[PATH_MAX], const char *folder)
{
    join(path, folder, "manifest.json");
}

bool mist_checkpoint_is_there(const char *path)
{
    char manifest[PATH_MAX];

    checkpoint_manifest_path(manifest, path);
    return access(manifest, F_OK) == 0;
}

/* prefix, a number of at least n_digits without needless zeros, suffix; -1: is
 * not that. */
static int64_t parse_numbered(const char *name, const char *prefix, int n_digits,
                              const char *suffix)
{
    char again[64];
    int64_t number = 0;
    size_t n_prefix = strlen(prefix);

    if (strncmp(name, prefix, n_prefix) != 0)
        return -1;
    for (const char *p = name + n_prefix; *p >= '0' && *p <= '9'; p++) {
        if (number > (INT64_MAX - 9) / 10)
            return -1;
        number = 10 * number + (*p - '0');
    }
    snprintf(again, sizeof again, "%s%0*" PRId64 "%s", prefix, n_digits, number, suffix);
    return strcmp(name, again) == 0 ? number : -1;
}

void checkpoint_partial_path(char path[PATH_MAX], const struct mist_checkpoint_save *save)
{
    char suffix[64];

    snprintf(suffix, sizeof suffix, ".%0*" PRIx64 ".partial", RUN_DIGITS, save->run_id);
    checkpoint_step_path(path, save->dir, save->step, suffix);
}

/* --------------------------------------------------------------------------- the disk */

int checkpoint_create_file(const char *path, int *fd)
{
    *fd = -1;
    if (unlink(path) != 0 && errno != ENOENT)
        return errno;
    *fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    return *fd < 0 ? errno : 0;
}

/* ---------------------------------------------------------------------------- removal */

/* An open folder, so that what is removed is in it whatever becomes of its name. */
struct folder {
    const char *path;
    int fd;
};

/* *fd -1: path is no folder; of a link the link is gone. */
static enum mist_status open_folder(struct folder *folder, const char *path,
                                    struct mist_err *err)
{
    struct stat info;

    *folder = (struct folder){
        path, open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)};
    if (folder->fd >= 0 || errno == ENOENT)
        return MIST_OK;
    if (errno != ELOOP && errno != ENOTDIR)
        return mist_err_io(err, path, "open the folder", errno);
    if (lstat(path, &info) == 0 && S_ISLNK(info.st_mode) && unlink(path) != 0 &&
        errno != ENOENT)
        return mist_err_io(err, path, "remove", errno);
    return MIST_OK;
}

static enum mist_status remove_file(const struct folder *folder, const char *name,
                                    struct mist_err *err)
{
    char path[PATH_MAX];

    if (unlinkat(folder->fd, name, 0) == 0 || errno == ENOENT)
        return MIST_OK;
    int code = errno;
    join(path, folder->path, name);
    return mist_err_io(err, path, "remove", code);
}

static enum mist_status remove_ranks(const struct folder *folder, int32_t first_rank,
                                     struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int fd = openat(folder->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);

    if (!list) {
        status = mist_err_io(err, folder->path, "read the folder", errno);
        if (fd >= 0)
            close(fd);
        return status;
    }
    for (struct dirent *entry; !status && (entry = readdir(list));)
        if (parse_numbered(entry->d_name, "rank-", 5, ".bin") >= first_rank)
            status = remove_file(folder, entry->d_name, err);
    closedir(list);
    return status;
}

enum mist_status checkpoint_remove_ranks(const char *path, int32_t first_rank,
                                         struct mist_err *err)
{
    struct folder folder;
    enum mist_status status = open_folder(&folder, path, err);

    if (folder.fd < 0)
        return status;
    status = remove_ranks(&folder, first_rank, err);
    close(folder.fd);
    return status;
}

enum mist_status checkpoint_remove(const char *path, struct mist_err *err)
{
    struct folder folder;
    enum mist_status status = open_folder(&folder, path, err);

    if (folder.fd < 0)
        return status;
    status = remove_file(&folder, "manifest.json", err);
    if (!status)
        status = remove_ranks(&folder, 0, err);
    if (!status && rmdir(path) != 0 && errno != ENOTEMPTY && errno != EEXIST)
        status = mist_err_io(err, path, "remove the folder", errno);
    close(folder.fd);
    return status;
}

/* ---------------------------------------------------------------------------- listing */

/* "step-00000100", ".old" or, of any run, ".RUN.partial"; before format 2 ".partial". */
static bool parse_entry(const char *name, struct checkpoint_entry *entry)
{
    char plain[64];
    size_t n = strcspn(name, ".");
    const char *end = name + n;

    if (n >= sizeof plain)
        return false;
    memcpy(plain, name, n);
    plain[n] = '\0';
    entry->step = parse_numbered(plain, "step-", 8, "");
    if (end[0] == '.' && strspn(end + 1, "0123456789abcdef") == RUN_DIGITS)
        end += 1 + RUN_DIGITS;
    entry->kind = !end[0]                    ? ENTRY_FINAL
                  : strcmp(end, ".old") == 0 ? ENTRY_OLD
                                             : ENTRY_PARTIAL;
    if (entry->kind == ENTRY_PARTIAL && strcmp(end, ".partial") != 0)
        return false;
    return entry->step >= 0 && (entry->kind == ENTRY_PARTIAL || end == name + n);
}

static int compare_entries(const void *a, const void *b)
{
    const struct checkpoint_entry *x = a, *y = b;

    if (x->step != y->step)
        return x->step > y->step ? -1 : 1;
    return (int)x->kind - (int)y->kind;
}

enum mist_status checkpoint_list(const char *dir, struct checkpoint_entry **out,
                                 size_t *n, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    size_t capacity = 0;
    DIR *folder = opendir(dir);

    *out = NULL;
    *n = 0;
    if (!folder)
        return mist_err_io(err, dir, "read the folder", errno);
    for (struct dirent *file; !status && (file = readdir(folder));) {
        struct checkpoint_entry entry = {0};
        if (!parse_entry(file->d_name, &entry))
            continue;
        entry.path = mist_path_join(dir, file->d_name);
        if (!entry.path || !MIST_APPEND(*out, capacity, *n, entry)) {
            free(entry.path);
            status = mist_err_memory(err, dir);
        }
    }
    closedir(folder);
    if (status) {
        checkpoint_list_free(*out, *n);
        *out = NULL;
        *n = 0;
    } else if (*n > 1) {
        qsort(*out, *n, sizeof **out, compare_entries);
    }
    return status;
}

void checkpoint_list_free(struct checkpoint_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(entries[i].path);
    free(entries);
}
