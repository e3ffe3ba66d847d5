/*
 * The lock of a folder of checkpoints: one job at a time.
 *
 * flock() on the file "lock", held open for as long as rank 0 lives: the kernel lets go
 * of it when the process is gone, however it went, so nothing has to be cleaned up by
 * hand. The text in the file (run id, process, host, time) is for people and for the
 * other ranks, which look whether their "lock" has the same run id. What works on which
 * file system stands in README.md.
 *
 * The file is removed while it is still locked, so whoever has locked a file looks
 * whether that is still the one with the name. So does a run before it writes: who removes
 * or moves the folder of a run that is alive takes its lock away, and the next job finds
 * nothing that is locked.
 */
#include "exec/checkpoint/checkpoint.h"

#include "core/atomic_file.h" /* mist_make_directory */
#include "core/clock.h"
#include "core/path.h"
#include "exec/checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const double wait_sleep_s = 0.05; /* between two looks at a lock that is held */

struct mist_checkpoint_lock {
    char *dir, *path; /* owned */
    int fd;
    uint64_t run_id;
    bool has_made_dir;
};

/* ------------------------------------------------------------------------------- text */

enum { TEXT_BYTES = 512 };

/* What is written there: "run 0123456789abcdef, process 12 on host, since 2026-..". */
static void describe(uint64_t run_id, char text[TEXT_BYTES])
{
    char host[256] = "?", since[64] = "?";
    time_t now = time(NULL);
    struct tm utc;

    gethostname(host, sizeof host - 1);
    if (gmtime_r(&now, &utc))
        strftime(since, sizeof since, "%Y-%m-%d %H:%M:%S UTC", &utc);
    snprintf(text, TEXT_BYTES, "run %016" PRIx64 ", process %ld on %s, since %s\n",
             run_id, (long)getpid(), host, since);
}

/* The first line of a lock's file; "" if there is none. */
static void read_text(int fd, char text[TEXT_BYTES])
{
    ssize_t n = pread(fd, text, TEXT_BYTES - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static enum mist_status write_text(const struct mist_checkpoint_lock *lock,
                                   struct mist_err *err)
{
    char text[TEXT_BYTES];

    describe(lock->run_id, text);
    if (ftruncate(lock->fd, 0) != 0)
        return mist_err_io(err, lock->path, "write", errno);
    int code = mist_file_write_all(lock->fd, text, strlen(text));
    if (!code && fsync(lock->fd) != 0) /* other hosts read it */
        code = errno;
    return code ? mist_err_io(err, lock->path, "write", code) : MIST_OK;
}

/* ---------------------------------------------------------------------------- locking */

static enum mist_status open_file(struct mist_checkpoint_lock *lock, struct mist_err *err)
{
    struct stat info;

    lock->fd =
        open(lock->path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666);
    if (lock->fd < 0)
        return mist_err_io(err, lock->path, "create", errno);
    if (fstat(lock->fd, &info) == 0 && S_ISREG(info.st_mode))
        return MIST_OK;
    close(lock->fd);
    lock->fd = -1;
    return mist_err_at(err, MIST_ERR_IO, lock->path, 0, 0, "is no file");
}

static bool has_its_name(const struct mist_checkpoint_lock *lock)
{
    struct stat opened, named;

    return fstat(lock->fd, &opened) == 0 && lstat(lock->path, &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

static bool cant_lock_here(int code)
{
    return code == ENOSYS || code == EOPNOTSUPP || code == ENOLCK || code == EINVAL;
}

enum attempt { ATTEMPT_LOCKED, ATTEMPT_HELD, ATTEMPT_AGAIN, ATTEMPT_FAILED };

/* Opens and locks the file; unless it is locked then, it is closed. */
static enum attempt attempt(struct mist_checkpoint_lock *lock, struct mist_err *warning,
                            struct mist_err *err)
{
    char text[TEXT_BYTES];

    if (open_file(lock, err))
        return ATTEMPT_FAILED;
    int code = flock(lock->fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    if (cant_lock_here(code)) {
        mist_err_at(warning, MIST_ERR_IO, lock->path, 0, 0,
                    "this file system can't lock files (%s): make sure that no other "
                    "job saves here",
                    strerror(code));
        return ATTEMPT_LOCKED;
    }
    if (!code && has_its_name(lock))
        return ATTEMPT_LOCKED;
    if (code == EWOULDBLOCK) {
        read_text(lock->fd, text);
        mist_err_at(err, MIST_ERR_IO, lock->path, 0, 0,
                    "another job saves its checkpoints here: %s",
                    text[0] ? text : "it has not said who it is");
    } else if (code) {
        mist_err_io(err, lock->path, "lock", code);
    }
    close(lock->fd);
    lock->fd = -1;
    return code == EWOULDBLOCK          ? ATTEMPT_HELD
           : code == EINTR || code == 0 ? ATTEMPT_AGAIN
                                        : ATTEMPT_FAILED;
}

static enum mist_status take(struct mist_checkpoint_lock *lock, double patience_s,
                             mist_checkpoint_waits_fn *waits, void *context,
                             struct mist_err *warning, struct mist_err *err)
{
    double end_s = mist_clock_now_s() + patience_s;
    struct mist_err why = {0};
    enum attempt result;

    while ((result = attempt(lock, warning, &why)) == ATTEMPT_HELD ||
           result == ATTEMPT_AGAIN) {
        if (result == ATTEMPT_AGAIN)
            continue;
        if (mist_clock_now_s() >= end_s || (waits && !waits(context, &why)))
            break;
        mist_clock_sleep_s(wait_sleep_s);
    }
    if (result == ATTEMPT_LOCKED)
        return MIST_OK;
    if (err)
        *err = why;
    return MIST_ERR_IO;
}

static enum mist_status draw_run_id(uint64_t *run_id, struct mist_err *err)
{
    do {
        if (getrandom(run_id, sizeof *run_id, 0) != (ssize_t)sizeof *run_id)
            return mist_err_set(err, MIST_ERR_RUN, "the system has no random number: %s",
                                strerror(errno));
    } while (*run_id == 0);
    return MIST_OK;
}

/* What stays is tried again behind a save, which tells why. */
static void remove_unfinished(const char *dir)
{
    struct checkpoint_entry *entries = NULL;
    size_t n = 0;

    if (checkpoint_list(dir, &entries, &n, NULL) != MIST_OK)
        return;
    for (size_t i = 0; i < n; i++)
        if (entries[i].kind == ENTRY_PARTIAL)
            (void)!checkpoint_remove(entries[i].path, NULL);
    checkpoint_list_free(entries, n);
}

enum mist_status mist_checkpoint_lock(const char *dir, double patience_s,
                                      mist_checkpoint_waits_fn *waits, void *context,
                                      struct mist_checkpoint_lock **out,
                                      struct mist_err *warning, struct mist_err *err)
{
    struct mist_checkpoint_lock *lock = calloc(1, sizeof *lock);
    enum mist_status status = MIST_ERR_MEMORY;

    *out = NULL;
    if (warning)
        *warning = (struct mist_err){0};
    if (lock) {
        lock->fd = -1;
        lock->dir = strdup(dir);
        lock->path = mist_path_join(dir, "lock");
    }
    if (!lock || !lock->dir || !lock->path) {
        mist_err_memory(err, dir);
        goto out;
    }
    lock->has_made_dir = access(dir, F_OK) != 0;
    if ((status = draw_run_id(&lock->run_id, err)) ||
        (status = mist_make_directory(dir, err)) ||
        (status = take(lock, patience_s, waits, context, warning, err)))
        goto out;
    status = write_text(lock, err);
    if (status == MIST_OK)
        remove_unfinished(dir);
out:
    if (status == MIST_OK)
        *out = lock;
    else
        mist_checkpoint_unlock(lock);
    return status;
}

uint64_t mist_checkpoint_lock_run_id(const struct mist_checkpoint_lock *lock)
{
    return lock->run_id;
}

enum mist_status mist_checkpoint_check_lock(const struct mist_checkpoint_lock *lock,
                                            struct mist_err *err)
{
    if (has_its_name(lock))
        return MIST_OK;
    return mist_err_at(
        err, MIST_ERR_IO, lock->path, 0, 0,
        "is no longer this run's: the folder was removed or replaced under "
        "the run; nothing is saved there, another job may have it");
}

void mist_checkpoint_unlock(struct mist_checkpoint_lock *lock)
{
    if (!lock)
        return;
    bool is_ours = lock->fd < 0 || has_its_name(lock); /* the folder */
    if (lock->fd >= 0 && is_ours)
        unlink(lock->path);
    if (lock->has_made_dir && is_ours)
        rmdir(lock->dir); /* it stays if anything is in it */
    if (lock->fd >= 0)
        close(lock->fd);
    free(lock->dir);
    free(lock->path);
    free(lock);
}

bool mist_checkpoint_sees_lock(const char *dir, uint64_t run_id)
{
    char text[TEXT_BYTES] = "", expected[64];
    /* opening a folder makes a client of NFS ask whether it has changed */
    int folder = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int fd = folder < 0
                 ? -1
                 : openat(folder, "lock", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

    if (fd >= 0)
        read_text(fd, text);
    snprintf(expected, sizeof expected, "run %016" PRIx64 ",", run_id);
    if (fd >= 0)
        close(fd);
    if (folder >= 0)
        close(folder);
    return strncmp(text, expected, strlen(expected)) == 0;
}
