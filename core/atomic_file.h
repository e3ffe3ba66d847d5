/*
 * Files that are either whole or not there.
 *
 * Writing goes to a temporary file beside the target; commit flushes it to the disk,
 * renames it over the target and flushes the directory. Whoever looks sees the old file
 * or the new one. A symbolic link is followed. A target that is no regular file (/dev/null, a
 * pipe), or is a link to what standard output is (/dev/stdout), is written directly. Left
 * out: keeping the mode of a replaced file.
 */
#ifndef MIST_CORE_ATOMIC_FILE_H
#define MIST_CORE_ATOMIC_FILE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>

struct mist_atomic_file {
    FILE *stream;    /* write here; NULL when closed */
    char *path;      /* the target, without links */
    char *temporary; /* what stream writes; NULL when it is the target itself */
    bool force;      /* may replace an existing target */
};

/*
 * Opens file for writing. Returns MIST_OK; MIST_ERR_USAGE when path exists and force is
 * false (the message says --force); MIST_ERR_IO or MIST_ERR_MEMORY. After a failure file
 * is closed.
 */
enum mist_status mist_atomic_file_open(struct mist_atomic_file *file, const char *path,
                                       bool force, struct mist_err *err) MIST_MUST_CHECK;

/*
 * Makes what was written the target, or removes it and returns MIST_ERR_IO (also for
 * writes that failed earlier). Closes file either way.
 */
enum mist_status mist_atomic_file_commit(struct mist_atomic_file *file,
                                         struct mist_err *err) MIST_MUST_CHECK;

/* Removes what was written and closes file. A closed or zeroed file is left alone. */
void mist_atomic_file_abort(struct mist_atomic_file *file);

/* MIST_ERR_USAGE for "-", by which one means stdout: what ("file", "folder") is expected. */
enum mist_status mist_output_refuse_stdout(const char *path, const char *what,
                                           struct mist_err *err) MIST_MUST_CHECK;

/* Whether a file can be written (NULL: none is to be), so that it is not refused behind the
 * work; nothing is left of the trial. Errors as mist_atomic_file_open(), and
 * MIST_ERR_USAGE for "-", by which one means stdout. */
enum mist_status mist_output_check(const char *path, bool force,
                                   struct mist_err *err) MIST_MUST_CHECK;

/* What a tool is to write. */
struct mist_output {
    const char *option; /* "timeline" */
    const char *path;   /* NULL: not given */
};

/* MIST_ERR_USAGE: two are one file, by whatever names and links. */
enum mist_status mist_outputs_check_names(const struct mist_output *outputs, size_t n,
                                          struct mist_err *err) MIST_MUST_CHECK;

/* What a tool reads, or writes into a folder. name: NULL where path is a file; where it is a
 * folder, what file i = 0, 1, .. in it is called, NULL behind the last. */
struct mist_files {
    const char *what; /* "PLAN", "--compare" */
    const char *path; /* NULL: not given */
    const char *(*name)(int i);
};

/* MIST_ERR_USAGE: an output, --force or not, is one of those files, by whatever names and
 * links, or would become one of a folder's. */
enum mist_status mist_outputs_check_apart(const struct mist_output *outputs, size_t n,
                                          const struct mist_files *files, size_t n_files,
                                          struct mist_err *err) MIST_MUST_CHECK;

/* Both of all of them. */
enum mist_status mist_outputs_check(const struct mist_output *outputs, size_t n,
                                    bool force, struct mist_err *err) MIST_MUST_CHECK;

/*
 * Opens a file without a name to write and to read, on the disk of path (which may be
 * there or not): what it holds is gone when it is closed. *out is the caller's to close.
 * MIST_ERR_IO with errno, MIST_ERR_MEMORY.
 */
enum mist_status mist_file_open_nameless(const char *path, FILE **out,
                                         struct mist_err *err) MIST_MUST_CHECK;

/*
 * Reads a whole file of at most max_bytes, as it is or, where gzip wrote it, unpacked. *text is malloc'd (the caller frees it) and
 * has a '\0' behind its *n bytes. MIST_ERR_IO: can't be read. MIST_ERR_INPUT: too long,
 * or damaged gzip.
 * MIST_ERR_MEMORY.
 */
enum mist_status mist_file_read_all(const char *path, size_t max_bytes, char **text,
                                    size_t *n, struct mist_err *err) MIST_MUST_CHECK;

/*
 * Maps a file to read, for munmap(*map, *n); *map NULL: it is no regular file, or has fewer
 * than least_bytes (> 0). MIST_ERR_IO, MIST_ERR_MEMORY: it can't be opened or mapped.
 */
enum mist_status mist_file_map(const char *path, size_t least_bytes, unsigned char **map,
                               size_t *n, struct mist_err *err) MIST_MUST_CHECK;

/* Writes all n bytes to fd, however many calls it takes; 0 or an errno. */
int mist_file_write_all(int fd, const void *bytes, size_t n) MIST_MUST_CHECK;

/* Flushes the entries of a folder to the disk, as where files were renamed. MIST_ERR_IO. */
enum mist_status mist_folder_flush(const char *path,
                                   struct mist_err *err) MIST_MUST_CHECK;

/* Makes a directory and the ones above it; one that exists is fine.
 * MIST_ERR_IO, MIST_ERR_MEMORY, and MIST_ERR_USAGE for "-", by which one means stdout. */
enum mist_status mist_make_directory(const char *path,
                                     struct mist_err *err) MIST_MUST_CHECK;

#endif
