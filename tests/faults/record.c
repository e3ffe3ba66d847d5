/*
 * The log of what a tool does to the files below a folder, for the replay of power cuts.
 *
 * A call and its record happen under a lock of the log, so that the records of several
 * processes stand in the order of what they did. Files go by their inode: a
 * folder may be renamed while a file in it is open.
 */
#define _GNU_SOURCE
#include "tests/faults/inject.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

static int log_fd = -1;

void record_open(const char *log)
{
    log_fd = (int)syscall(SYS_openat, AT_FDCWD, log,
                          O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
}

int record_is_open(void)
{
    return log_fd >= 0;
}

void record_begin(void)
{
    if (log_fd >= 0)
        flock(log_fd, LOCK_EX);
}

void record_end(void)
{
    if (log_fd >= 0)
        flock(log_fd, LOCK_UN);
}

static void put(struct record *record, const char *path, const char *path_to,
                const void *bytes, size_t n_bytes)
{
    record->n_path = (uint32_t)strlen(path);
    record->n_path_to = (uint32_t)strlen(path_to);
    record->n_bytes = (uint32_t)n_bytes;
    struct iovec parts[4] = {{record, sizeof *record},
                             {(void *)(uintptr_t)path, record->n_path},
                             {(void *)(uintptr_t)path_to, record->n_path_to},
                             {(void *)(uintptr_t)bytes, n_bytes}};
    if (writev(log_fd, parts, 4) !=
        (ssize_t)(sizeof *record + record->n_path + record->n_path_to + n_bytes))
        abort();
}

void record_path(enum record_kind kind, const char *path, const char *path_to,
                 uint64_t inode)
{
    struct record record = {.kind = kind, .inode = inode};

    if (log_fd >= 0)
        put(&record, path, path_to ? path_to : "", NULL, 0);
}

void record_inode(enum record_kind kind, int fd, int64_t offset, const void *bytes,
                  size_t n_bytes)
{
    struct record record = {.kind = kind, .offset = offset};
    struct stat info;

    if (log_fd < 0 || fstat(fd, &info) != 0)
        return;
    record.inode = info.st_ino;
    put(&record, "", "", bytes, n_bytes);
}
