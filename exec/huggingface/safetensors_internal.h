/* What reading safetensors shares: files and their tensors. Not for others. */
#ifndef MIST_EXEC_SAFETENSORS_INTERNAL_H
#define MIST_EXEC_SAFETENSORS_INTERNAL_H

#include "core/memory.h"
#include "exec/huggingface/safetensors.h"

#include <stddef.h>

/* How fp32 is got from a type. */
enum safetensors_conversion { FROM_NOTHING, FROM_F32, FROM_F16, FROM_BF16 };

struct safetensors_dtype {
    const char *name;
    int64_t size_bytes;
    enum safetensors_conversion conversion;
};

struct safetensors_file {
    char *path;         /* arena */
    unsigned char *map; /* NULL: not mapped */
    size_t map_bytes;
    const unsigned char *data;
    int64_t data_bytes;
    struct safetensors_file *next;
};

struct safetensors_entry {
    struct mist_safetensors_info info;
    const struct safetensors_dtype *dtype;
    const struct safetensors_file *file;
    int64_t begin, end; /* bytes of file->data */
};

struct mist_safetensors {
    struct mist_arena arena;
    struct safetensors_file *files; /* newest first */
    struct safetensors_entry *entries;
    size_t n, capacity;
};

/* Maps a file and adds its tensors to the set, checked against one another, in the order
 * of their data. */
enum mist_status safetensors_add_file(struct mist_safetensors *set, const char *path,
                                      struct mist_err *err);

#endif
