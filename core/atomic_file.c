/* Files that are either whole or not there. See atomic_file.h. */
#define _GNU_SOURCE /* realpath */
#include "core/atomic_file.h"

#include "core/memory.h"
#include "core/packed_file.h"
#include "core/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_NAMES    100 /* temporary names tried before giving up */
#define NAME_BYTES 48  /* what they have more than the target's */
enum { READ_BYTES = 64 * 1024 };

static void forget(struct mist_atomic_file *file)
{
    free(file->path);
    free(file->temporary);
    *file = (struct mist_atomic_file){0};
}

/* Where a target is written. */
enum way {
    BESIDE, /* a file beside it, which is renamed */
    DIRECTLY,
    TO_STDOUT /* it is a link to that */
};

static bool is_link(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
}

/* Whether a file is the one that standard output is. */
static bool is_stdout(const struct stat *info)
{
    struct stat out;

    return fstat(STDOUT_FILENO, &out) == 0 && out.st_dev == info->st_dev &&
           out.st_ino == info->st_ino;
}

/*
 * Refuses a target that may not be replaced; says how it is to be written.
 */
static enum mist_status check_target(const char *path, bool force, enum way *way,
                                     struct mist_err *err)
{
    struct stat info;

    *way = BESIDE;
    int code = stat(path, &info) != 0 ? errno : 0;
    if (code == ENOENT && is_link(path) && !force)
        return mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                           "is a link to nothing; --force replaces it");
    if (code)
        return code == ENOENT ? MIST_OK : mist_err_io(err, path, "write", code);
    if (S_ISDIR(info.st_mode))
        return mist_err_io(err, path, "write", EISDIR);
    if (!S_ISREG(info.st_mode))
        *way = DIRECTLY;
    else if (is_link(path) && is_stdout(&info))
        *way = TO_STDOUT;
    else if (!force)
        return mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                           "exists already; --force replaces it");
    return MIST_OK;
}

/*
 * Creates a file of a name that nobody uses beside path; -1 and errno on failure.
 */
static int open_temporary(const char *path, int flags, char *temporary, size_t size)
{
    int fd = -1;

    for (int i = 0; i < N_NAMES && fd < 0; i++) {
        snprintf(temporary, size, "%s.tmp.%ld.%d", path, (long)getpid(), i);
        fd = open(temporary, flags | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    return fd;
}

/* What a link is to, or path itself; to be freed. */
static char *resolve(const char *path)
{
    char *target = is_link(path) ? realpath(path, NULL) : NULL;

    return target ? target : strdup(path);
}

/* -1 and errno on failure. */
static int open_target(const struct mist_atomic_file *file, enum way way, size_t size)
{
    switch (way) {
    case TO_STDOUT: /* which goes on behind it */
        return fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0);
    case DIRECTLY:
        return open(file->path, O_WRONLY | O_CLOEXEC);
    default:
        return open_temporary(file->path, O_WRONLY, file->temporary, size);
    }
}

enum mist_status mist_atomic_file_open(struct mist_atomic_file *file, const char *path,
                                       bool force, struct mist_err *err)
{
    enum way way;

    *file = (struct mist_atomic_file){.force = force};
    enum mist_status status = check_target(path, force, &way, err);
    if (status)
        return status;
    file->path = way == BESIDE ? resolve(path) : strdup(path);
    size_t size = file->path ? strlen(file->path) + NAME_BYTES : 0;
    if (file->path && way == BESIDE)
        file->temporary = malloc(size);
    if (!file->path || (way == BESIDE && !file->temporary)) {
        forget(file);
        return mist_err_memory(err, path);
    }
    int fd = open_target(file, way, size);
    if (fd < 0) {
        int code = errno;
        forget(file);
        return mist_err_io(err, path, "create", code);
    }
    file->stream = fdopen(fd, "w");
    if (!file->stream) {
        int code = errno;
        close(fd);
        if (file->temporary)
            unlink(file->temporary);
        forget(file);
        return mist_err_io(err, path, "open", code);
    }
    return MIST_OK;
}

/* 0 or an errno. */
static int flush_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), code = 0;

    /* some file systems can't flush directories; they answer EINVAL */
    if (fd < 0 || (fsync(fd) != 0 && errno != EINVAL))
        code = errno;
    if (fd >= 0)
        close(fd);
    return code;
}

enum mist_status mist_folder_flush(const char *path, struct mist_err *err)
{
    int code = flush_folder(path);

    return code ? mist_err_io(err, path, "flush the folder", code) : MIST_OK;
}

/* Makes a rename durable; cuts path to its folder. */
static int flush_folder_of(char *path)
{
    char *slash = strrchr(path, '/');

    if (slash)
        slash[slash == path] = '\0'; /* "/a": "/" */
    return flush_folder(slash ? path : ".");
}

/* Why a write failed, which stdio forgets: one byte more, into a file that is given up, fails
 * likewise. */
static int cause_of_failure(const struct mist_atomic_file *file)
{
    errno = 0;
    bool fails = file->temporary && write(fileno(file->stream), "", 1) < 0;
    return fails && errno ? errno : EIO;
}

/* Everything up to the rename; 0 or the errno of the first step that failed. */
static int finish_stream(struct mist_atomic_file *file)
{
    int code = ferror(file->stream) ? cause_of_failure(file) : 0;

    errno = 0;
    if (fflush(file->stream) != 0)
        code = errno ? errno : EIO;
    if (!code && file->temporary && fsync(fileno(file->stream)) != 0)
        code = errno;
    if (fclose(file->stream) != 0 && !code)
        code = errno;
    file->stream = NULL;
    return code;
}

enum mist_status mist_atomic_file_commit(struct mist_atomic_file *file,
                                         struct mist_err *err)
{
    enum way way;
    int code = finish_stream(file);
    enum mist_status status =
        code ? mist_err_io(err, file->path, "write", code) : MIST_OK;

    if (!file->temporary)
        goto out;
    if (!status) /* somebody may have made the target in the meantime */
        status = check_target(file->path, file->force, &way, err);
    if (!status && rename(file->temporary, file->path) != 0)
        status = mist_err_io(err, file->path, "rename to", errno);
    if (status)
        unlink(file->temporary);
    else if ((code = flush_folder_of(file->temporary)) != 0) /* needed no longer */
        status = mist_err_io(err, file->path, "flush the directory of", code);
out:
    forget(file);
    return status;
}

void mist_atomic_file_abort(struct mist_atomic_file *file)
{
    if (!file->stream)
        return;
    fclose(file->stream);
    if (file->temporary)
        unlink(file->temporary);
    forget(file);
}

/* The folder that a file is or will be in, and its name there; false: no such folder. */
static bool find_folder(const char *path, struct stat *folder, const char **name)
{
    const char *slash = strrchr(path, '/');
    char *copy = slash ? strndup(path, (size_t)(slash - path) + 1) : NULL;

    *name = slash ? slash + 1 : path;
    bool is_found = (!slash || copy) && stat(copy ? copy : ".", folder) == 0;
    free(copy);
    return is_found;
}

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Whether two paths are one file, by whatever names and links. */
static bool are_one_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    const char *name_a, *name_b;

    if (stat(a, &of_a) == 0 && stat(b, &of_b) == 0)
        return S_ISREG(of_a.st_mode) && is_same(&of_a, &of_b);
    return find_folder(a, &of_a, &name_a) && find_folder(b, &of_b, &name_b) &&
           strcmp(name_a, name_b) == 0 && is_same(&of_a, &of_b);
}

enum mist_status mist_output_refuse_stdout(const char *path, const char *what,
                                           struct mist_err *err)
{
    return strcmp(path, "-") != 0
               ? MIST_OK
               : mist_err_set(err, MIST_ERR_USAGE,
                              "-: is no name for stdout here; expected a %s (./- if it "
                              "is called so)",
                              what);
}

enum mist_status mist_output_check(const char *path, bool force, struct mist_err *err)
{
    struct mist_atomic_file file = {0};
    enum mist_status status =
        path ? mist_output_refuse_stdout(path, "file", err) : MIST_OK;

    if (status == MIST_OK && path)
        status = mist_atomic_file_open(&file, path, force, err);

    mist_atomic_file_abort(&file);
    return status;
}

enum mist_status mist_outputs_check_names(const struct mist_output *outputs, size_t n,
                                          struct mist_err *err)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i && outputs[i].path; k++)
            if (outputs[k].path && are_one_file(outputs[k].path, outputs[i].path))
                return mist_err_set(err, MIST_ERR_USAGE, "--%s and --%s are both %.200s",
                                    outputs[k].option, outputs[i].option,
                                    outputs[i].path);
    return MIST_OK;
}

static enum mist_status check_apart(const struct mist_output *output, const char *path,
                                    const char *what, struct mist_err *err)
{
    return are_one_file(output->path, path)
               ? mist_err_set(err, MIST_ERR_USAGE,
                              "--%s and %s are both %.200s; name another file",
                              output->option, what, output->path)
               : MIST_OK;
}

/* Of one output, with all files of a folder. */
static enum mist_status check_folder(const struct mist_output *output,
                                     const struct mist_files *of, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    const char *name;

    for (int i = 0; status == MIST_OK && (name = of->name(i)); i++) {
        char *path = mist_path_join(of->path, name);
        status =
            path ? check_apart(output, path, of->what, err) : mist_err_memory(err, NULL);
        free(path);
    }
    return status;
}

enum mist_status mist_outputs_check_apart(const struct mist_output *outputs, size_t n,
                                          const struct mist_files *files, size_t n_files,
                                          struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < n && status == MIST_OK; i++)
        for (size_t k = 0; k < n_files && outputs[i].path && status == MIST_OK; k++)
            if (files[k].path)
                status = files[k].name ? check_folder(&outputs[i], &files[k], err)
                                       : check_apart(&outputs[i], files[k].path,
                                                     files[k].what, err);
    return status;
}

enum mist_status mist_outputs_check(const struct mist_output *outputs, size_t n,
                                    bool force, struct mist_err *err)
{
    enum mist_status status = mist_outputs_check_names(outputs, n, err);

    for (size_t i = 0; i < n && status == MIST_OK; i++)
        status = mist_output_check(outputs[i].path, force, err);
    return status;
}

enum mist_status mist_file_open_nameless(const char *path, FILE **out,
                                         struct mist_err *err)
{
    struct stat info;
    bool is_device = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    size_t size = strlen(path) + NAME_BYTES;
    char *temporary = malloc(size);
    int fd = -1, code = 0;

    *out = NULL;
    if (!temporary)
        return mist_err_memory(err, path);
    if (is_device) /* nothing is kept beside those */
        *out = tmpfile();
    else if ((fd = open_temporary(path, O_RDWR, temporary, size)) >= 0)
        *out = fdopen(fd, "w+");
    if (!*out)
        code = errno;
    if (fd >= 0 && unlink(temporary) != 0 && !code)
        code = errno;
    free(temporary);
    if (!code)
        return MIST_OK;
    if (*out)
        fclose(*out);
    else if (fd >= 0)
        close(fd);
    *out = NULL;
    errno = code;
    return mist_err_io(err, path, "create", code);
}

enum mist_status mist_file_read_all(const char *path, size_t max_bytes, char **text,
                                    size_t *n, struct mist_err *err)
{
    struct mist_packed_file file;
    char *buffer = NULL;
    size_t capacity = 0, used = 0, got = READ_BYTES;
    enum mist_status status = mist_packed_file_open(&file, path, err);

    while (status == MIST_OK && got == READ_BYTES) {
        if (!MIST_RESERVE(buffer, capacity, used + READ_BYTES + 1)) {
            status = mist_err_memory(err, path);
            goto out;
        }
        status = mist_packed_file_read(&file, buffer + used, READ_BYTES, &got, err);
        used += got;
        if (status == MIST_OK && used > max_bytes)
            status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                                 "is longer than the %zu bytes that are read", max_bytes);
    }
    if (status != MIST_OK)
        goto out;
    buffer[used] = '\0';
    *text = buffer;
    *n = used;
    buffer = NULL;
out:
    free(buffer);
    mist_packed_file_close(&file);
    return status;
}

static int make_one(const char *path)
{
    struct stat info;

    if (mkdir(path, 0777) == 0)
        return 0;
    int code = errno;
    if (stat(path, &info) == 0)
        return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
    return code == EEXIST ? errno : code; /* a link that leads nowhere */
}

enum mist_status mist_make_directory(const char *path, struct mist_err *err)
{
    enum mist_status status = mist_output_refuse_stdout(path, "folder", err);
    char *copy = status == MIST_OK ? strdup(path) : NULL;
    int code = 0;

    if (!copy)
        return status != MIST_OK ? status : mist_err_memory(err, path);
    for (char *slash = *copy ? strchr(copy + 1, '/') : NULL; slash && !code;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        code = make_one(copy);
        *slash = '/';
    }
    if (!code)
        code = make_one(copy);
    free(copy);
    return code ? mist_err_io(err, path, "make the directory", code) : MIST_OK;
}

enum mist_status mist_file_map(const char *path, size_t least_bytes, unsigned char **map,
                               size_t *n, struct mist_err *err)
{
    struct stat info;
    enum mist_status status = MIST_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC);

    *map = NULL;
    *n = 0;
    if (fd < 0 || fstat(fd, &info) != 0) {
        status = mist_err_io(err, path, "open", errno);
    } else if (S_ISREG(info.st_mode) && info.st_size >= (off_t)least_bytes) {
        void *all = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (all == MAP_FAILED) {
            status = mist_err_io(err, path, "map", errno);
        } else {
            *map = all;
            *n = (size_t)info.st_size;
        }
    }
    if (fd >= 0)
        close(fd);
    return status;
}

int mist_file_write_all(int fd, const void *bytes, size_t n)
{
    const unsigned char *p = bytes;

    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return done < 0 ? errno : EIO;
        p += done;
        n -= (size_t)done;
    }
    return 0;
}
