/* Reading safetensors files and sets of them. See safetensors.h. */
#include "exec/safetensors.h"

#include "core/json.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_HEADER_BYTES UINT64_C(100000000)

/* Types that may be in a file, and how fp32 is got from them. */
enum conversion { FROM_NOTHING, FROM_F32, FROM_F16, FROM_BF16 };

static const struct dtype {
    const char *name;
    int64_t size_bytes;
    enum conversion conversion;
} dtypes[] = {
    {"F32", 4, FROM_F32},      {"BF16", 2, FROM_BF16},       {"F16", 2, FROM_F16},
    {"F64", 8, FROM_NOTHING},  {"I64", 8, FROM_NOTHING},     {"U64", 8, FROM_NOTHING},
    {"I32", 4, FROM_NOTHING},  {"U32", 4, FROM_NOTHING},     {"I16", 2, FROM_NOTHING},
    {"U16", 2, FROM_NOTHING},  {"I8", 1, FROM_NOTHING},      {"U8", 1, FROM_NOTHING},
    {"BOOL", 1, FROM_NOTHING}, {"F8_E4M3", 1, FROM_NOTHING}, {"F8_E5M2", 1, FROM_NOTHING},
};

struct file {
    char *path;         /* arena */
    unsigned char *map; /* NULL: not mapped */
    size_t map_bytes;
    const unsigned char *data;
    int64_t data_bytes;
    struct file *next;
};

struct entry {
    struct mist_safetensors_info info;
    const struct dtype *dtype;
    const struct file *file;
    int64_t begin, end; /* bytes of file->data */
};

struct mist_safetensors {
    struct mist_arena arena;
    struct file *files; /* newest first */
    struct entry *entries;
    size_t n, capacity;
};

static enum mist_status out_of_memory(const char *path, struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory");
}

static enum mist_status invalid(const char *path, const char *what, struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0, "not a safetensors file: %s",
                       what);
}

/* ------------------------------------------------------------------------- one tensor */

static enum mist_status read_dtype(const struct mist_json *tensor, struct entry *entry,
                                   struct mist_err *err)
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

static enum mist_status read_shape(const struct mist_json *tensor, struct entry *entry,
                                   struct mist_err *err)
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

static enum mist_status read_offsets(const struct mist_json *tensor, struct entry *entry,
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

static enum mist_status add_tensor(struct mist_safetensors *set, const struct file *file,
                                   const struct mist_json *root, const char *name,
                                   struct mist_err *err)
{
    struct entry entry = {.file = file,
                          .info.name = mist_arena_strdup(&set->arena, name)};
    struct entry *grown =
        mist_grow(set->entries, &set->capacity, set->n + 1, sizeof *set->entries);
    struct mist_json tensor;
    enum mist_status s;

    if (grown)
        set->entries = grown;
    if (!grown || !entry.info.name)
        return out_of_memory(file->path, err);
    if ((s = mist_json_get_object(root, name, MIST_JSON_REQUIRED, &tensor, err)) ||
        (s = read_dtype(&tensor, &entry, err)) ||
        (s = read_shape(&tensor, &entry, err)) ||
        (s = read_offsets(&tensor, &entry, err)))
        return s;
    set->entries[set->n++] = entry;
    return MIST_OK;
}

/* --------------------------------------------------------------------------- one file */

static enum mist_status map_file(struct file *file, struct mist_err *err)
{
    struct stat info;
    enum mist_status status = MIST_OK;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || fstat(fd, &info) != 0) {
        status = mist_err_at(err, MIST_ERR_IO, file->path, 0, 0, "can't open: %s",
                             strerror(errno));
    } else if (!S_ISREG(info.st_mode) || info.st_size < 8) {
        status = invalid(file->path, "too short", err);
    } else {
        void *map = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            status = mist_err_at(err, MIST_ERR_IO, file->path, 0, 0, "can't map: %s",
                                 strerror(errno));
        } else {
            file->map = map;
            file->map_bytes = (size_t)info.st_size;
        }
    }
    if (fd >= 0)
        close(fd);
    return status;
}

static int compare_places(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

/* Entries first .. are all of a file: they must fill its data. */
static enum mist_status check_places(struct mist_safetensors *set, size_t first,
                                     const struct file *file, struct mist_err *err)
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

static enum mist_status read_tensors(struct mist_safetensors *set, struct file *file,
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

static enum mist_status read_header(struct mist_safetensors *set, struct file *file,
                                    struct mist_err *err)
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

static enum mist_status add_file(struct mist_safetensors *set, const char *path,
                                 struct mist_err *err)
{
    struct file *file = mist_arena_alloc(&set->arena, sizeof *file);
    enum mist_status status;

    if (!file || !(file->path = mist_arena_strdup(&set->arena, path)))
        return out_of_memory(path, err);
    file->next = set->files;
    set->files = file;
    status = map_file(file, err);
    return status ? status : read_header(set, file, err);
}

/* ------------------------------------------------------------------------ sets of files
 */

static int compare_names(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->info.name,
                  ((const struct entry *)b)->info.name);
}

/* Sorts all tensors by name; none may be there twice. */
static enum mist_status sort_names(struct mist_safetensors *set, const char *path,
                                   struct mist_err *err)
{
    if (set->n > INT32_MAX)
        return invalid(path, "too many tensors", err);
    if (set->n > 1)
        qsort(set->entries, set->n, sizeof *set->entries, compare_names);
    for (size_t i = 1; i < set->n; i++)
        if (compare_names(&set->entries[i - 1], &set->entries[i]) == 0)
            return mist_err_at(err, MIST_ERR_INPUT, set->entries[i].file->path, 0, 0,
                               "tensor %.100s is in another file, too",
                               set->entries[i].info.name);
    return MIST_OK;
}

/* folder/name in the arena; NULL: out of memory. */
static char *join(struct mist_arena *arena, const char *folder, size_t n_folder,
                  const char *name)
{
    size_t n_name = strlen(name);
    char *path = mist_arena_alloc(arena, n_folder + n_name + 2);

    if (!path)
        return NULL;
    memcpy(path, folder, n_folder);
    path[n_folder] = '/';
    memcpy(path + n_folder + 1, name, n_name + 1);
    return path;
}

static char *beside(struct mist_arena *arena, const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return slash ? join(arena, path, (size_t)(slash - path), name)
                 : mist_arena_strdup(arena, name);
}

static const struct file *find_file(const struct mist_safetensors *set, const char *path)
{
    const struct file *file = set->files;

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
        char *file = beside(&set->arena, path, name);
        if (!file)
            return out_of_memory(path, err);
        if (!find_file(set, file) && (status = add_file(set, file, err)))
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
        const char *slash = i < 0 ? NULL : strrchr(set->entries[i].file->path, '/');
        const char *file = i < 0 ? "" : slash ? slash + 1 : set->entries[i].file->path;
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
    char *file = join(&set->arena, path, strlen(path), "model.safetensors");
    char *index = join(&set->arena, path, strlen(path), "model.safetensors.index.json");

    *out = path;
    if (!file || !index)
        return out_of_memory(path, err);
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
        return out_of_memory(path, err);
    enum mist_status status = choose_path(set, path, &chosen, err);
    size_t n = strlen(chosen);
    if (!status && n >= 5 && strcmp(chosen + n - 5, ".json") == 0) {
        status = open_index(set, chosen, err);
    } else if (!status) {
        status = add_file(set, chosen, err);
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
    for (struct file *file = tensors->files; file; file = file->next)
        if (file->map)
            munmap(file->map, file->map_bytes);
    free(tensors->entries);
    mist_arena_fini(&tensors->arena);
    free(tensors);
}

/* ----------------------------------------------------------------------------- looking
 */

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
    struct entry key = {.info.name = name};

    if (tensors->n == 0)
        return -1;
    const struct entry *found = bsearch(&key, tensors->entries, tensors->n,
                                        sizeof *tensors->entries, compare_names);
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

/* ------------------------------------------------------------------------------ values
 */

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
    const struct entry *entry = &tensors->entries[i];
    const unsigned char *p =
        entry->file->data + entry->begin + first * entry->dtype->size_bytes;

    switch (entry->dtype->conversion) {
    case FROM_F32:
        memcpy(out, p, (size_t)n * sizeof *out);
        break;
    case FROM_BF16:
        for (int64_t k = 0; k < n; k++)
            out[k] = from_bits((uint32_t)load_16(p + 2 * k) << 16);
        break;
    case FROM_F16:
        for (int64_t k = 0; k < n; k++)
            out[k] = from_f16(load_16(p + 2 * k));
        break;
    case FROM_NOTHING:
        break; /* excluded by contract */
    }
}
