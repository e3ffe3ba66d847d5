/* Writing safetensors files. See safetensors.h. */
#include "exec/huggingface/safetensors.h"

#include "core/atomic_file.h"
#include "core/bf16.h"
#include "core/memory.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && sizeof(float) == 4,
               "values are copied as they are: little-endian, floats of 4 bytes");

enum { CHUNK_ELEMENTS = 1 << 14 };

struct mist_safetensors_writer {
    struct mist_atomic_file file;
    enum mist_dtype dtype;
    int64_t n_elements, n_written;
    uint16_t chunk[CHUNK_ELEMENTS]; /* rounded, on their way to the file */
};

/* ----------------------------------------------------------------------------- header */

struct text {
    char *data;
    size_t n, capacity;
};

MIST_PRINTF(2, 3)
static bool append(struct text *text, const char *format, ...)
{
    char piece[512];
    va_list args;

    va_start(args, format);
    int n = vsnprintf(piece, sizeof piece, format, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof piece)
        return false;
    char *grown = mist_grow(text->data, &text->capacity, text->n + (size_t)n + 1, 1);
    if (!grown)
        return false;
    text->data = grown;
    memcpy(grown + text->n, piece, (size_t)n + 1);
    text->n += (size_t)n;
    return true;
}

/* Names that need no escapes in JSON and fit append(). */
static bool name_is_plain(const char *name)
{
    for (const char *p = name; *p; p++)
        if (*p < ' ' || *p > '~' || *p == '"' || *p == '\\')
            return false;
    return name[0] && strlen(name) < 200 && strcmp(name, "__metadata__") != 0;
}

static bool append_tensor(struct text *text, const struct mist_safetensors_info *info,
                          enum mist_dtype dtype, int64_t begin, int64_t end)
{
    bool ok = append(text, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", info->name,
                     dtype == MIST_DTYPE_FP32 ? "F32" : "BF16");

    for (int32_t i = 0; i < info->n_dims && ok; i++)
        ok = append(text, "%s%" PRId64, i > 0 ? "," : "", info->shape[i]);
    return ok &&
           append(text, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
}

/* Adds a tensor's elements to *n_elements; false when they do not fit. */
static bool add_elements(const struct mist_safetensors_info *info, int64_t *n_elements)
{
    int64_t n = 1;

    for (int32_t i = 0; i < info->n_dims; i++)
        if (info->shape[i] < 0 || !mist_size_mul(n, info->shape[i], &n))
            return false;
    return mist_size_add(*n_elements, n, n_elements) && *n_elements <= INT64_MAX / 4;
}

static enum mist_status make_header(struct text *text, const char *path,
                                    enum mist_dtype dtype,
                                    const struct mist_safetensors_info *infos, int32_t n,
                                    int64_t *n_elements, struct mist_err *err)
{
    int64_t size_bytes = dtype == MIST_DTYPE_FP32 ? 4 : 2;
    bool ok = append(text, "{\"__metadata__\":{\"format\":\"pt\"}");

    *n_elements = 0;
    for (int32_t i = 0; i < n && ok; i++) {
        int64_t begin = *n_elements;
        if (!name_is_plain(infos[i].name))
            return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                               "\"%.100s\" can't be the name of a tensor", infos[i].name);
        if (infos[i].n_dims > MIST_SAFETENSORS_MAX_DIMS ||
            !add_elements(&infos[i], n_elements))
            return mist_err_at(err, MIST_ERR_RANGE, path, 0, 0,
                               "the shape of tensor %s does not fit", infos[i].name);
        ok = append_tensor(text, &infos[i], dtype, begin * size_bytes,
                           *n_elements * size_bytes);
    }
    ok = ok && append(text, "}");
    while (ok && text->n % 8 != 0)
        ok = append(text, " ");
    return ok ? MIST_OK : mist_err_memory(err, path);
}

/* ---------------------------------------------------------------------------- writing */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum mist_status check_names(const char *path,
                                    const struct mist_safetensors_info *infos, int32_t n,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    const char **names = malloc((size_t)n * sizeof *names + 1);

    if (!names)
        return mist_err_memory(err, path);
    for (int32_t i = 0; i < n; i++)
        names[i] = infos[i].name;
    qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int32_t i = 1; i < n && !status; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                                 "two tensors of the name %.100s", names[i]);
    free(names);
    return status;
}

enum mist_status
mist_safetensors_writer_open(const char *path, bool force, enum mist_dtype dtype,
                             const struct mist_safetensors_info *infos, int32_t n,
                             struct mist_safetensors_writer **out, struct mist_err *err)
{
    struct text text = {0};
    struct mist_safetensors_writer *writer = calloc(1, sizeof *writer);
    enum mist_status status = check_names(path, infos, n, err);

    *out = NULL;
    if (!writer)
        status = mist_err_memory(err, path);
    if (status ||
        (status = make_header(&text, path, dtype, infos, n, &writer->n_elements, err)))
        goto out;
    writer->dtype = dtype;
    status = mist_atomic_file_open(&writer->file, path, force, err);
    if (status)
        goto out;
    uint64_t n_header = text.n;
    fwrite(&n_header, sizeof n_header, 1, writer->file.stream);
    fwrite(text.data, 1, text.n, writer->file.stream);
    *out = writer;
    writer = NULL;
out:
    free(text.data);
    free(writer);
    return status;
}

void mist_safetensors_write(struct mist_safetensors_writer *writer, const float *values,
                            int64_t n)
{
    writer->n_written += n;
    if (writer->dtype == MIST_DTYPE_FP32) {
        fwrite(values, sizeof *values, (size_t)n, writer->file.stream);
        return;
    }
    while (n > 0) {
        int64_t part = n < CHUNK_ELEMENTS ? n : CHUNK_ELEMENTS;
        for (int64_t i = 0; i < part; i++)
            writer->chunk[i] = mist_bf16_round(values[i]);
        fwrite(writer->chunk, sizeof *writer->chunk, (size_t)part, writer->file.stream);
        values += part;
        n -= part;
    }
}

enum mist_status mist_safetensors_writer_commit(struct mist_safetensors_writer *writer,
                                                struct mist_err *err)
{
    enum mist_status status;

    if (writer->n_written != writer->n_elements) {
        status = mist_err_at(err, MIST_ERR_RANGE, writer->file.path, 0, 0,
                             "%lld elements were written, the header says %lld",
                             (long long)writer->n_written, (long long)writer->n_elements);
        mist_atomic_file_abort(&writer->file);
    } else {
        status = mist_atomic_file_commit(&writer->file, err);
    }
    free(writer);
    return status;
}

void mist_safetensors_writer_abort(struct mist_safetensors_writer *writer)
{
    if (!writer)
        return;
    mist_atomic_file_abort(&writer->file);
    free(writer);
}
