/*
 * One source of training data, mapped into memory: its format and its token ids.
 * Internal to exec/data.
 *
 * Files are mapped, never read whole, so what is opened costs address space and not time;
 * the operating system brings in the pages that samples touch and drops them again.
 * All numbers in all formats are little-endian. A file that shrinks while it is mapped
 * ends the process (SIGBUS): nothing that is mapped can be protected from that.
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

/* A file in memory, read-only. */
struct mist_data_map {
    const uint8_t *bytes; /* NULL when size_bytes = 0 */
    size_t size_bytes;
};

struct mist_data_file {
    char *path;               /* owned; the file that the tokens are in */
    struct mist_data_map map; /* owned; all of it */
    size_t header_bytes;      /* tokens start here */
    int64_t n_tokens;
    enum mist_token_type type; /* of what is stored */
    bool is_text;              /* bytes of a text: 256 ids whatever occurs in it */
};

/*
 * Maps the regular file at path; the caller ends it with mist_data_unmap. MIST_OK,
 * MIST_ERR_IO or MIST_ERR_MEMORY; after an error *map is empty.
 */
MIST_MUST_CHECK enum mist_status
mist_data_map(const char *path, struct mist_data_map *map, struct mist_err *err);
void mist_data_unmap(struct mist_data_map *map); /* a zeroed one is left alone */

/*
 * Opens what name stands for, see exec/data.h for the formats and how they are told
 * apart. *file is overwritten; the caller ends it with mist_data_file_close, whatever the
 * result. MIST_OK, MIST_ERR_IO, MIST_ERR_INPUT (not what its format demands) or
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_data_file_open(struct mist_data_file *file, const char *name, struct mist_err *err);
void mist_data_file_close(struct mist_data_file *file);

/*
 * Copies the ids of tokens first .. first + n - 1 to ids[n]. Returns n, or the number of
 * ids before the first one that is not in 0 .. bound - 1, bound <= 2^31; ids from there
 * on are undefined.
 */
int64_t mist_data_file_read(const struct mist_data_file *file, int64_t first, int64_t n,
                            int64_t bound, int32_t *ids);

/* How tokens first .. first + n - 1 are about to be read. */
enum mist_data_access {
    MIST_ACCESS_ONCE,       /* all of them, once and in order */
    MIST_ACCESS_SOON,       /* all of them, now */
    MIST_ACCESS_HERE_THERE, /* a few at a time, anywhere; how a file starts out */
};
void mist_data_file_advise(const struct mist_data_file *file, int64_t first, int64_t n,
                           enum mist_data_access access);

/* Token i as it is stored, negative ones included. */
int64_t mist_data_file_token(const struct mist_data_file *file, int64_t i);

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
 * Opens prefix.bin and holds prefix.idx against it (exec/data_megatron.c). Contract of
 * mist_data_file_open.
 */
MIST_MUST_CHECK enum mist_status mist_data_megatron_open(struct mist_data_file *file,
                                                         const char *prefix,
                                                         size_t n_prefix,
                                                         struct mist_err *err);

#endif
