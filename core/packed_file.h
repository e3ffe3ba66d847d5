/*
 * A file that is read from its begin to its end: as it is or, where gzip wrote it, unpacked.
 */
#ifndef MIST_CORE_PACKED_FILE_H
#define MIST_CORE_PACKED_FILE_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

struct mist_packed_file {
    const char *path;        /* borrowed */
    struct gzFile_s *stream; /* NULL: closed */
    int64_t n_bytes;         /* on the disk, packed; 0: not known, as of a pipe */
};

/* MIST_ERR_IO, MIST_ERR_MEMORY: then file is closed. */
enum mist_status mist_packed_file_open(struct mist_packed_file *file, const char *path,
                                       struct mist_err *err) MIST_MUST_CHECK;

/* The next n bytes (1 .. 1 GiB) into buffer; *got < n: the file ended there. MIST_ERR_IO,
 * MIST_ERR_INPUT (damaged gzip), MIST_ERR_MEMORY; then *got is 0. */
enum mist_status mist_packed_file_read(struct mist_packed_file *file, char *buffer,
                                       size_t n, size_t *got,
                                       struct mist_err *err) MIST_MUST_CHECK;

/* How many of n_bytes have been read so far, roughly. */
int64_t mist_packed_file_done(const struct mist_packed_file *file);

/* A closed or zeroed file is left alone. */
void mist_packed_file_close(struct mist_packed_file *file);

#endif
