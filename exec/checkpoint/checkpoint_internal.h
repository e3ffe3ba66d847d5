/*
 * What the files of the checkpoint module share: the format of a rank's file, its table
 * in memory, and the index of tensors over all files. Not for others.
 *
 * A rank's file, everything little-endian, nothing between the parts:
 *   header   64 bytes: magic, u32 version, u32 rank, u32 n_ranks, u32 0, i64 step, u64
 *            run id (version 1: 0), zeros
 *   payload  floats of all pieces, one behind the other
 *   table    u32 n_tensors, u32 n_pieces;
 *            per tensor i64 whole elements, u32 length of its name, the name;
 *            per piece  u32 tensor, u32 n_spans, i64 first byte of its payload, i64
 *            elements; per span i64 length, n_runs, global_first, global_stride (where it
 *            is in the payload follows); u64 sum of every block of BLOCK_ELEMENTS
 *   footer   i64 first byte and i64 bytes of the table, u64 sum of the table (seed: the
 *            sum of the header), magic
 */
#ifndef MIST_EXEC_CHECKPOINT_INTERNAL_H
#define MIST_EXEC_CHECKPOINT_INTERNAL_H

#include "core/memory.h"
#include "exec/checkpoint/checkpoint.h"

#include <limits.h> /* PATH_MAX */
#include <stdbool.h>
#include <stddef.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(float) == 4,
               "values are copied as they are: little-endian, floats of 4 bytes");

#define CHECKPOINT_MAGIC     "MISTCKPT"
#define CHECKPOINT_END_MAGIC "MISTCEND"

enum {
    CHECKPOINT_VERSION = 2,
    CHECKPOINT_OLDEST_VERSION = 1,
    CHECKPOINT_HEADER_BYTES = 64,
    CHECKPOINT_FOOTER_BYTES = 32,
    CHECKPOINT_BLOCK_ELEMENTS = 1 << 18, /* 1 MiB */
    CHECKPOINT_SUM_DIGITS = 16,
    CHECKPOINT_MAX_RANKS = 1 << 20,
};

/* Elements of a piece, all spans together, and blocks they fill. */
static inline int64_t checkpoint_n_blocks(int64_t n_elements)
{
    return (n_elements + CHECKPOINT_BLOCK_ELEMENTS - 1) / CHECKPOINT_BLOCK_ELEMENTS;
}

/* ----------------------------------------------------------------- checkpoint_sum.c */

/* XXH64, near the speed of memory (core/hash.h goes byte by byte). Against damage, not
 * against forgery. Texts of checksums are 16 lower-case hexadecimal digits. */
uint64_t mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed);

/* ---------------------------------------------------------------- checkpoint_span.c */

/* True when the span has runs, they do not overlap and lie in 0 .. whole - 1. */
bool checkpoint_span_is_valid(const struct mist_param_span *span, int64_t whole);

/* True for 1 .. MIST_CHECKPOINT_NAME_BYTES - 1 letters, digits, '/', '.', '_', '-'. */
bool checkpoint_name_is_valid(const char *name, size_t n);

/* --------------------------------------------------------------- checkpoint_folder.c */

/* The names of a checkpoint's folder and files; "" where they are too long. suffix is ""
 * or ".old". */
void checkpoint_step_path(char path[PATH_MAX], const char *dir, int64_t step,
                          const char *suffix);
void checkpoint_partial_path(char path[PATH_MAX],
                             const struct mist_checkpoint_save *save);
void checkpoint_rank_path(char path[PATH_MAX], const char *folder, int32_t rank);
void checkpoint_manifest_path(char path[PATH_MAX], const char *folder);

/* Creates a file that nothing else has open, in the place of one that may be there; links
 * are not followed. Returns 0 or errno. */
int checkpoint_create_file(const char *path, int *fd);

/* Removes a checkpoint's folder, manifest first; foreign files in it stay, and with them
 * the folder. Of a link the link alone; of another kind of file nothing. */
enum mist_status checkpoint_remove(const char *path, struct mist_err *err);

/* Removes the rank files of first_rank and more from a folder. */
enum mist_status checkpoint_remove_ranks(const char *path, int32_t first_rank,
                                         struct mist_err *err);

enum checkpoint_entry_kind { ENTRY_FINAL, ENTRY_OLD, ENTRY_PARTIAL };

/* An entry of dir that is a checkpoint's folder, whole or not. */
struct checkpoint_entry {
    int64_t step;
    char *path; /* owned */
    enum checkpoint_entry_kind kind;
};

/* Fills *out (malloc'd) with the entries, highest steps first, of one step in the order
 * of kind. MIST_ERR_IO, MIST_ERR_MEMORY. */
enum mist_status checkpoint_list(const char *dir, struct checkpoint_entry **out,
                                 size_t *n, struct mist_err *err);
void checkpoint_list_free(struct checkpoint_entry *entries, size_t n);

/* ---------------------------------------------------------------- checkpoint_table.c */

/* One rank's file, mapped, and its table; all but the map is in an arena. */
struct checkpoint_tensor_ref {
    const char *name;
    int64_t whole_elements;
};

struct checkpoint_piece {
    int32_t tensor; /* of its table */
    int32_t n_spans;
    struct mist_param_span *spans; /* local_first: in the piece's payload */
    int64_t n_elements;
    const unsigned char *payload;
    uint64_t *block_sums;
    uint8_t *block_is_sound; /* [n_blocks]; verified already */
    const struct checkpoint_table *table;
};

struct checkpoint_table {
    char *path;
    unsigned char *map; /* NULL: not mapped */
    size_t map_bytes;
    int32_t rank, n_ranks;
    int64_t step;
    uint64_t run_id;
    uint64_t sum;
    int32_t n_tensors, n_pieces;
    struct checkpoint_tensor_ref *tensors;
    struct checkpoint_piece *pieces;
};

/* Maps the file and reads its table; path is copied to the arena. MIST_ERR_INPUT: damaged
 * or not there. The caller unmaps, also after a failure. */
enum mist_status checkpoint_table_open(struct checkpoint_table *table, const char *path,
                                       struct mist_arena *arena, struct mist_err *err);
void checkpoint_table_unmap(struct checkpoint_table *table);

/* Verifies the blocks that hold elements first .. first + n - 1 of a piece, n >= 1. */
enum mist_status checkpoint_piece_verify(struct checkpoint_piece *piece, int64_t first,
                                         int64_t n, struct mist_err *err);

/* ---------------------------------------------------------------- checkpoint_index.c */

/* A span of a piece, as a place to read from. */
struct checkpoint_cover {
    struct mist_param_span span; /* local_first: in the piece's payload */
    struct checkpoint_piece *piece;
    int32_t next; /* where the elements behind this one's run were found the last time */
};

struct checkpoint_tensor {
    const char *name;
    int64_t n_elements;
    int32_t n_covers, last; /* last: cover that was hit last */
    struct checkpoint_cover *covers;
};

/* A contiguous part of a tensor, found in a piece. */
struct checkpoint_hit {
    struct checkpoint_piece *piece;
    int64_t first; /* in the piece's payload */
    int64_t n;
};

struct mist_checkpoint {
    struct mist_arena arena;
    char *path; /* arena */
    int64_t step;
    uint64_t run_id; /* 0: format 1 */
    int32_t n_files, n_tensors;
    struct checkpoint_table *tables;   /* [n_files], arena */
    struct checkpoint_tensor *tensors; /* sorted by name, arena */
    struct mist_json_doc manifest;
    struct mist_json root, training; /* of manifest */
};

/* Opens the tables of n_files ranks in checkpoint->path, all of its run and step, merges
 * them by name and makes sure that every tensor is covered. */
enum mist_status checkpoint_load_tables(struct mist_checkpoint *checkpoint,
                                        int32_t n_files, struct mist_err *err);
struct checkpoint_tensor *checkpoint_find(const struct mist_checkpoint *checkpoint,
                                          const char *name); /* NULL: none */

/* The longest run of elements from first on that one piece holds, at most n; false when
 * no piece has first. */
bool checkpoint_locate(struct checkpoint_tensor *tensor, int64_t first, int64_t n,
                       struct checkpoint_hit *hit);

/* The next elements of first .. end - 1 that a cover holds together, from *at on; false:
 * none. */
bool checkpoint_overlap(const struct checkpoint_cover *cover, int64_t first, int64_t end,
                        int64_t *at, struct checkpoint_hit *hit);

/* ------------------------------------------------------------- checkpoint_manifest.c */

/* Writes checkpoint->path/manifest.json and flushes it. */
enum mist_status checkpoint_write_manifest(const struct mist_checkpoint *checkpoint,
                                           const struct mist_model *model,
                                           const json_t *training, struct mist_err *err);

/* One of which nothing but the path is known; NULL: out of memory. */
struct mist_checkpoint *checkpoint_new(const char *path, struct mist_err *err);

/* A checkpoint with its step, n_files, manifest, root and training, whose files are all
 * there with their sizes; tables are not loaded. Errors as of mist_checkpoint_open(). */
enum mist_status checkpoint_open_manifest(const char *path, struct mist_checkpoint **out,
                                          struct mist_err *err);

/* Compares the tables (loaded) with the manifest. */
enum mist_status checkpoint_match_manifest(const struct mist_checkpoint *checkpoint,
                                           struct mist_err *err);

#endif
