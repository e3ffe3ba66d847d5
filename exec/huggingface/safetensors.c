/* Sets of safetensors files, and their values as fp32. See safetensors.h. */
#include "exec/huggingface/safetensors.h"

#include "core/bf16.h"
#include "core/json.h"
#include "core/order.h"
#include "core/path.h"
#include "exec/huggingface/safetensors_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* -------------------------------------------------------------------- sets of files */

MIST_COMPARATOR_OF(compare_names, struct safetensors_entry,
                   strcmp(a->info.name, b->info.name))

/* Sorts all tensors by name; none may be there twice. */
static enum mist_status sort_names(struct mist_safetensors *set, const char *path,
                                   struct mist_err *err)
{
    if (set->n > INT32_MAX)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0, "too many tensors");
    if (set->n > 1)
        qsort(set->entries, set->n, sizeof *set->entries, compare_names);
    for (size_t i = 1; i < set->n; i++)
        if (compare_names(&set->entries[i - 1], &set->entries[i]) == 0)
            return mist_err_at(err, MIST_ERR_INPUT, set->entries[i].file->path, 0, 0,
                               "tensor %.100s is in another file, too",
                               set->entries[i].info.name);
    return MIST_OK;
}

/* NULL: none of this path. */
static const struct safetensors_file *find_file(const struct mist_safetensors *set,
                                                const char *path)
{
    const struct safetensors_file *file = set->files;

    while (file && strcmp(file->path, path) != 0)
        file = file->next;
    return file;
}

/* Opens every file that the index names, each once. */
static enum mist_status add_indexed_files(struct mist_safetensors *set, const char *path,
                                          const struct mist_json *map,
                                          struct mist_err *err)
{
    const char *tensor;
    json_t *value;

    json_object_foreach(map->value, tensor, value)
    {
        const char *name = NULL;
        enum mist_status status =
            mist_json_get_string(map, tensor, MIST_JSON_REQUIRED, &name, err);
        if (status)
            return status;
        if (!name[0] || name[0] == '.' || strchr(name, '/'))
            return mist_json_fail_key(map, tensor, MIST_ERR_INPUT, err,
                                      "\"%.100s\" is not the name of a file beside the "
                                      "index",
                                      name);
        char *file = mist_path_beside_in(&set->arena, path, name);
        if (!file)
            return mist_err_memory(err, path);
        if (!find_file(set, file) && (status = safetensors_add_file(set, file, err)))
            return status;
    }
    return MIST_OK;
}

/* Every tensor of the index is in its file, and no other is there. */
static enum mist_status match_index(struct mist_safetensors *set, const char *path,
                                    const struct mist_json *map, struct mist_err *err)
{
    for (size_t i = 0; i < set->n; i++)
        if (!json_object_get(map->value, set->entries[i].info.name))
            return mist_err_at(err, MIST_ERR_INPUT, set->entries[i].file->path, 0, 0,
                               "tensor %.100s is not in %s", set->entries[i].info.name,
                               path);
    const char *tensor;
    json_t *value;
    json_object_foreach(map->value, tensor, value)
    {
        int32_t i = mist_safetensors_find(set, tensor);
        const char *file = i < 0 ? "" : mist_path_name(set->entries[i].file->path);
        if (i < 0 || strcmp(file, json_string_value(value)) != 0)
            return mist_json_fail_key(map, tensor, MIST_ERR_INPUT, err,
                                      "tensor %.100s is not in %.100s", tensor,
                                      json_string_value(value));
    }
    return MIST_OK;
}

static enum mist_status open_index(struct mist_safetensors *set, const char *path,
                                   struct mist_err *err)
{
    struct mist_json_doc doc;
    struct mist_json root, map;
    enum mist_status status = mist_json_load(&doc, path, MIST_JSON_FOREIGN, err);

    if (status)
        return status;
    root = mist_json_root(&doc);
    if ((status = mist_json_as_object(&root, err)) ||
        (status =
             mist_json_get_object(&root, "weight_map", MIST_JSON_REQUIRED, &map, err)) ||
        (status = add_indexed_files(set, path, &map, err)) ||
        (status = sort_names(set, path, err)))
        goto out;
    status = match_index(set, path, &map, err);
out:
    mist_json_fini(&doc);
    return status;
}

/* What of a folder is to be opened; *out is in the arena. */
static enum mist_status choose_path(struct mist_safetensors *set, const char *path,
                                    const char **out, struct mist_err *err)
{
    struct stat info;
    char *file = mist_path_join_in(&set->arena, path, "model.safetensors");
    char *index = mist_path_join_in(&set->arena, path, "model.safetensors.index.json");

    *out = path;
    if (!file || !index)
        return mist_err_memory(err, path);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode))
        return MIST_OK;
    if (access(file, F_OK) != 0 && access(index, F_OK) != 0)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "holds neither model.safetensors nor "
                           "model.safetensors.index.json");
    *out = access(file, F_OK) == 0 ? file : index;
    return MIST_OK;
}

enum mist_status mist_safetensors_open(const char *path, struct mist_safetensors **out,
                                       struct mist_err *err)
{
    struct mist_safetensors *set = calloc(1, sizeof *set);
    const char *chosen = path;

    *out = NULL;
    if (!set)
        return mist_err_memory(err, path);
    enum mist_status status = choose_path(set, path, &chosen, err);
    if (!status && mist_path_ends(chosen, ".json")) {
        status = open_index(set, chosen, err);
    } else if (!status) {
        status = safetensors_add_file(set, chosen, err);
        if (!status)
            status = sort_names(set, chosen, err);
    }
    if (status)
        mist_safetensors_close(set);
    else
        *out = set;
    return status;
}

void mist_safetensors_close(struct mist_safetensors *tensors)
{
    if (!tensors)
        return;
    for (struct safetensors_file *file = tensors->files; file; file = file->next)
        if (file->map)
            munmap(file->map, file->map_bytes);
    free(tensors->entries);
    mist_arena_fini(&tensors->arena);
    free(tensors);
}

/* -------------------------------------------------------------------------- looking */

int32_t mist_safetensors_n(const struct mist_safetensors *tensors)
{
    return (int32_t)tensors->n;
}

const struct mist_safetensors_info *
mist_safetensors_info(const struct mist_safetensors *tensors, int32_t i)
{
    return &tensors->entries[i].info;
}

int32_t mist_safetensors_find(const struct mist_safetensors *tensors, const char *name)
{
    struct safetensors_entry key = {.info.name = name};

    if (tensors->n == 0)
        return -1;
    const struct safetensors_entry *found = bsearch(
        &key, tensors->entries, tensors->n, sizeof *tensors->entries, compare_names);
    return found ? (int32_t)(found - tensors->entries) : -1;
}

bool mist_safetensors_is_float(const struct mist_safetensors *tensors, int32_t i)
{
    return tensors->entries[i].dtype->conversion != FROM_NOTHING;
}

const char *mist_safetensors_path(const struct mist_safetensors *tensors, int32_t i)
{
    return tensors->entries[i].file->path;
}

/* --------------------------------------------------------------------------- values */

static float from_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t load_16(const unsigned char *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* IEEE 754 binary16: sign 1, exponent 5 (bias 15), fraction 10. */
static float from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half >> 10 & 31, fraction = half & 1023u;

    if (exponent == 31)
        return from_bits(sign | 0x7f800000 | fraction << 13);
    if (exponent > 0)
        return from_bits(sign | (exponent + 112) << 23 | fraction << 13);
    float value = (float)fraction * 0x1p-24f; /* subnormal or zero */
    return sign ? -value : value;
}

void mist_safetensors_read(const struct mist_safetensors *tensors, int32_t i,
                           int64_t first, int64_t n, float *out)
{
    const struct safetensors_entry *entry = &tensors->entries[i];
    const unsigned char *p =
        entry->file->data + entry->begin + first * entry->dtype->size_bytes;

    switch (entry->dtype->conversion) {
    case FROM_F32:
        memcpy(out, p, (size_t)n * sizeof *out);
        break;
    case FROM_BF16:
        for (int64_t k = 0; k < n; k++)
            out[k] = mist_bf16_value(load_16(p + 2 * k));
        break;
    case FROM_F16:
        for (int64_t k = 0; k < n; k++)
            out[k] = from_f16(load_16(p + 2 * k));
        break;
    case FROM_NOTHING:
        break; /* excluded by contract */
    }
}
