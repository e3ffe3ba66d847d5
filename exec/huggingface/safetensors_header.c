/* One safetensors file, mapped, and its header checked. See safetensors.h. */
#include "exec/huggingface/safetensors_internal.h"

#include "core/atomic_file.h" /* mist_file_map */
#include "core/json.h"
#include "core/order.h"

#include <stdlib.h>
#include <string.h>

#define MAX_HEADER_BYTES UINT64_C(100000000)

/* Types that may be in a file. */
static const struct safetensors_dtype dtypes[] = {
    {"F32", 4, FROM_F32},      {"BF16", 2, FROM_BF16},       {"F16", 2, FROM_F16},
    {"F64", 8, FROM_NOTHING},  {"I64", 8, FROM_NOTHING},     {"U64", 8, FROM_NOTHING},
    {"I32", 4, FROM_NOTHING},  {"U32", 4, FROM_NOTHING},     {"I16", 2, FROM_NOTHING},
    {"U16", 2, FROM_NOTHING},  {"I8", 1, FROM_NOTHING},      {"U8", 1, FROM_NOTHING},
    {"BOOL", 1, FROM_NOTHING}, {"F8_E4M3", 1, FROM_NOTHING}, {"F8_E5M2", 1, FROM_NOTHING},
};

static enum mist_status invalid(const char *path, const char *what, struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0, "not a safetensors file: %s",
                       what);
}

/* ------------------------------------------------------------------------- one tensor */

static enum mist_status read_dtype(const struct mist_json *tensor,
                                   struct safetensors_entry *entry, struct mist_err *err)
{
    const char *name = NULL;
    enum mist_status status =
        mist_json_get_string(tensor, "dtype", MIST_JSON_REQUIRED, &name, err);

    if (status)
        return status;
    for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        if (strcmp(dtypes[i].name, name) == 0) {
            entry->dtype = &dtypes[i];
            entry->info.dtype = dtypes[i].name;
            return MIST_OK;
        }
    return mist_json_fail_key(tensor, "dtype", MIST_ERR_INPUT, err,
                              "tensor %.100s has the unknown dtype \"%.40s\"",
                              entry->info.name, name);
}

static enum mist_status read_shape(const struct mist_json *tensor,
                                   struct safetensors_entry *entry, struct mist_err *err)
{
    struct mist_safetensors_info *info = &entry->info;
    struct mist_json shape;
    enum mist_status status =
        mist_json_get_array(tensor, "shape", MIST_JSON_REQUIRED, &shape, err);

    if (status)
        return status;
    size_t n = mist_json_size(&shape);
    if (n > MIST_SAFETENSORS_MAX_DIMS)
        return mist_json_fail(&shape, MIST_ERR_INPUT, err,
                              "tensor %.100s has %zu dimensions, expected at most %d",
                              info->name, n, MIST_SAFETENSORS_MAX_DIMS);
    info->n_dims = (int32_t)n;
    info->n_elements = 1;
    for (size_t i = 0; i < n && !status; i++) {
        struct mist_json size = mist_json_element(&shape, i);
        status = mist_json_as_int64(&size, 0, INT64_MAX, &info->shape[i], err);
        if (!status &&
            !mist_size_mul(info->n_elements, info->shape[i], &info->n_elements))
            status =
                mist_json_fail(&shape, MIST_ERR_INPUT, err,
                               "the shape of tensor %.100s does not fit", info->name);
    }
    return status;
}

static enum mist_status read_offsets(const struct mist_json *tensor,
                                     struct safetensors_entry *entry,
                                     struct mist_err *err)
{
    struct mist_json offsets;
    int64_t at[2] = {0, 0}, size_bytes;
    enum mist_status status =
        mist_json_get_array(tensor, "data_offsets", MIST_JSON_REQUIRED, &offsets, err);

    if (status)
        return status;
    if (mist_json_size(&offsets) != 2)
        return mist_json_fail(&offsets, MIST_ERR_INPUT, err,
                              "data_offsets: expected a begin and an end");
    for (size_t i = 0; i < 2; i++) {
        struct mist_json offset = mist_json_element(&offsets, i);
        status = mist_json_as_int64(&offset, 0, entry->file->data_bytes, &at[i], err);
        if (status)
            return status;
    }
    if (!mist_size_mul(entry->info.n_elements, entry->dtype->size_bytes, &size_bytes) ||
        at[0] > at[1] || at[1] - at[0] != size_bytes)
        return mist_json_fail(&offsets, MIST_ERR_INPUT, err,
                              "the data_offsets of tensor %.100s do not fit its shape",
                              entry->info.name);
    entry->begin = at[0];
    entry->end = at[1];
    return MIST_OK;
}

static enum mist_status add_tensor(struct mist_safetensors *set,
                                   const struct safetensors_file *file,
                                   const struct mist_json *root, const char *name,
                                   struct mist_err *err)
{
    struct safetensors_entry entry = {.file = file,
                                      .info.name = mist_arena_strdup(&set->arena, name)};
    struct mist_json tensor;
    enum mist_status s;

    if (!entry.info.name)
        return mist_err_memory(err, file->path);
    if ((s = mist_json_get_object(root, name, MIST_JSON_REQUIRED, &tensor, err)) ||
        (s = read_dtype(&tensor, &entry, err)) ||
        (s = read_shape(&tensor, &entry, err)) ||
        (s = read_offsets(&tensor, &entry, err)))
        return s;
    return MIST_APPEND(set->entries, set->capacity, set->n, entry)
               ? MIST_OK
               : mist_err_memory(err, file->path);
}

/* --------------------------------------------------------------------------- one file */

MIST_COMPARATOR(compare_places, struct safetensors_entry, begin, end)

/* Entries first .. are all of a file: they must fill its data. */
static enum mist_status check_places(struct mist_safetensors *set, size_t first,
                                     const struct safetensors_file *file,
                                     struct mist_err *err)
{
    int64_t end = 0;

    if (set->n - first > 1)
        qsort(set->entries + first, set->n - first, sizeof *set->entries, compare_places);
    for (size_t i = first; i < set->n; i++) {
        if (set->entries[i].begin != end)
            return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                               "not a safetensors file: the data of tensor %.100s %s",
                               set->entries[i].info.name,
                               set->entries[i].begin < end ? "overlaps another's"
                                                           : "leaves a hole before it");
        end = set->entries[i].end;
    }
    return end == file->data_bytes ? MIST_OK
                                   : invalid(file->path, "data of no tensor", err);
}

static enum mist_status read_tensors(struct mist_safetensors *set,
                                     struct safetensors_file *file,
                                     const struct mist_json *root, struct mist_err *err)
{
    size_t first = set->n;
    enum mist_status status = mist_json_as_object(root, err);
    const char *name;
    json_t *value;

    if (status)
        return status;
    json_object_foreach(root->value, name, value)
    {
        struct mist_json metadata;
        if (strcmp(name, "__metadata__") == 0)
            status = mist_json_get_object(root, name, MIST_JSON_REQUIRED, &metadata, err);
        else
            status = add_tensor(set, file, root, name, err);
        if (status)
            return status;
    }
    return check_places(set, first, file, err);
}

static enum mist_status read_header(struct mist_safetensors *set,
                                    struct safetensors_file *file, struct mist_err *err)
{
    struct mist_json_doc doc;
    uint64_t n = 0;

    for (int i = 7; i >= 0; i--)
        n = n << 8 | file->map[i];
    if (n > MAX_HEADER_BYTES)
        return invalid(file->path, "its header is longer than 100000000 bytes", err);
    if (n > file->map_bytes - 8)
        return invalid(file->path, "it ends within its header", err);
    if (n < 2 || file->map[8] != '{')
        return invalid(file->path, "its header does not begin with {", err);
    file->data = file->map + 8 + n;
    file->data_bytes = (int64_t)(file->map_bytes - 8 - n);
    enum mist_status status = mist_json_load_text(
        &doc, file->path, (const char *)file->map + 8, n, MIST_JSON_FOREIGN, err);
    if (status)
        return status;
    struct mist_json root = mist_json_root(&doc);
    status = read_tensors(set, file, &root, err);
    mist_json_fini(&doc);
    return status;
}

enum mist_status safetensors_add_file(struct mist_safetensors *set, const char *path,
                                      struct mist_err *err)
{
    struct safetensors_file *file = mist_arena_alloc(&set->arena, sizeof *file);
    enum mist_status status;

    if (!file || !(file->path = mist_arena_strdup(&set->arena, path)))
        return mist_err_memory(err, path);
    file->next = set->files;
    set->files = file;
    status = mist_file_map(path, 8, &file->map, &file->map_bytes, err);
    if (!status && !file->map)
        status = invalid(path, "too short", err);
    return status ? status : read_header(set, file, err);
}
