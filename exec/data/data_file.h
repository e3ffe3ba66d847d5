/*
 * One source of training data: its format and its token ids. Internal to exec/data.
 *
 * Files stay open and are read where samples are, never whole, so what is opened costs no
 * time; the operating system keeps the pages that samples touch, and drops them again.
 * They are not mapped into memory: a file that shrinks, or a disk that fails, then is an
 * error with a name and no SIGBUS. All numbers in all formats are little-endian.
 */
#ifndef MIST_EXEC_DATA_FILE_H
#define MIST_EXEC_DATA_FILE_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum mist_token_type {
    MIST_TOKEN_UINT8,
    MIST_TOKEN_INT8,
    MIST_TOKEN_UINT16,
    MIST_TOKEN_INT16,
    MIST_TOKEN_UINT32,
    MIST_TOKEN_INT32,
    MIST_TOKEN_INT64,
    MIST_N_TOKEN_TYPES,
};

/* An open file. */
struct mist_data_source {
    const char *path; /* borrowed; NULL: closed */
    int fd;
    size_t size_bytes; /* when it was opened */
};

struct mist_data_file {
    char *path;                     /* owned; the file that the tokens are in */
    struct mist_data_source source; /* owned */
    size_t header_bytes;            /* tokens start here */
    int64_t n_tokens;
    enum mist_token_type type; /* of what is stored */
    bool is_text;              /* bytes of a text: 256 ids whatever occurs in it */
};

/*
 * Opens the regular file at path, which is borrowed until the end; the caller ends it
 * with mist_data_source_close. MIST_OK or MIST_ERR_IO; after an error *source is closed.
 */
MIST_MUST_CHECK enum mist_status mist_data_source_open(struct mist_data_source *source,
                                                       const char *path,
                                                       struct mist_err *err);
void mist_data_source_close(struct mist_data_source *source); /* zeroed: nothing */

/* Bytes first .. first + n - 1. MIST_ERR_IO, also when the file no longer has them. */
MIST_MUST_CHECK enum mist_status
mist_data_source_read(const struct mist_data_source *source, size_t first, size_t n,
                      uint8_t *bytes, struct mist_err *err);

/* Whether name is a pattern: has *, ? or [, and no file is called so. *n_prefix: bytes
 * before its path that name a format. */
bool mist_data_file_is_pattern(const char *name, size_t *n_prefix);

/*
 * Opens what name stands for, see exec/data/data.h for the formats and how they are told
 * apart. *file is overwritten; the caller ends it with mist_data_file_close, whatever the
 * result. MIST_OK, MIST_ERR_IO, MIST_ERR_INPUT (not what its format demands) or
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_data_file_open(struct mist_data_file *file, const char *name, struct mist_err *err);
void mist_data_file_close(struct mist_data_file *file);

/*
 * Reads the ids of tokens first .. first + n - 1 to ids[n]. MIST_ERR_INPUT: one is not in
 * 0 .. bound - 1, bound <= 2^31; MIST_ERR_IO. After an error ids are undefined.
 */
MIST_MUST_CHECK enum mist_status mist_data_file_read(const struct mist_data_file *file,
                                                     int64_t first, int64_t n,
                                                     int64_t bound, int32_t *ids,
                                                     struct mist_err *err);

/* The same as they are stored, negative ones included. MIST_ERR_IO. */
MIST_MUST_CHECK enum mist_status mist_data_file_stored(const struct mist_data_file *file,
                                                       int64_t first, int64_t n,
                                                       int64_t *values,
                                                       struct mist_err *err);

/* How tokens first .. first + n - 1 are about to be read. */
enum mist_data_access {
    MIST_ACCESS_ONCE,       /* all of them, once and in order */
    MIST_ACCESS_HERE_THERE, /* a few at a time, anywhere; how a file starts out */
};
void mist_data_file_advise(const struct mist_data_file *file, int64_t first, int64_t n,
                           enum mist_data_access access);

/* The largest id a file of this type can hold. */
int64_t mist_data_type_max(enum mist_token_type type);
int64_t mist_data_type_bytes(enum mist_token_type type);

/* Little-endian numbers at any address. */
static inline uint32_t mist_data_load_uint32(const uint8_t *bytes)
{
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
           (uint32_t)bytes[3] << 24;
}

static inline uint64_t mist_data_load_uint64(const uint8_t *bytes)
{
    return mist_data_load_uint32(bytes) | (uint64_t)mist_data_load_uint32(bytes + 4)
                                              << 32;
}

/*
 * MIST_ERR_INPUT if the open file is of a format that is neither text nor ids (compressed,
 * a table, an archive; exec/data/data_foreign.c), as its first bytes say or, of what would be
 * read as text, its name (.jsonl) or bytes that no text has. MIST_ERR_IO.
 */
MIST_MUST_CHECK enum mist_status
mist_data_file_refuse_foreign(const struct mist_data_file *file, bool is_text,
                              struct mist_err *err);

/*
 * Opens prefix.bin and holds prefix.idx against it (exec/data/data_megatron.c). Contract of
 * mist_data_file_open.
 */
MIST_MUST_CHECK enum mist_status mist_data_megatron_open(struct mist_data_file *file,
                                                         const char *prefix,
                                                         size_t n_prefix,
                                                         struct mist_err *err);

#endif
