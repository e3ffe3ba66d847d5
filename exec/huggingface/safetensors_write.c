/* Writing safetensors files. See safetensors.h. */
#include "exec/huggingface/safetensors.h"

#include "core/atomic_file.h"
#include "core/bf16.h"
#include "core/memory.h"
#include "core/order.h"

#include <inttypes.h>
#include <stdio.h>
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

/* Names that need no escapes in JSON, and of a length that is no mistake. */
static bool name_is_plain(const char *name)
{
    for (const char *p = name; *p; p++)
        if (*p < ' ' || *p > '~' || *p == '"' || *p == '\\')
            return false;
    return name[0] && strlen(name) < 200 && strcmp(name, "__metadata__") != 0;
}

static void put_tensor(FILE *out, const struct mist_safetensors_info *info,
                       enum mist_dtype dtype, int64_t begin, int64_t end)
{
    fprintf(out, ",\"%s\":{\"dtype\":\"%s\",\"shape\":[", info->name,
            dtype == MIST_DTYPE_FP32 ? "F32" : "BF16");
    for (int32_t i = 0; i < info->n_dims; i++)
        fprintf(out, "%s%" PRId64, i > 0 ? "," : "", info->shape[i]);
    fprintf(out, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", begin, end);
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

static enum mist_status make_header(FILE *out, const char *path, enum mist_dtype dtype,
                                    const struct mist_safetensors_info *infos, int32_t n,
                                    int64_t *n_elements, struct mist_err *err)
{
    int64_t size_bytes = dtype == MIST_DTYPE_FP32 ? 4 : 2;

    *n_elements = 0;
    fputs("{\"__metadata__\":{\"format\":\"pt\"}", out);
    for (int32_t i = 0; i < n; i++) {
        int64_t begin = *n_elements;
        if (!name_is_plain(infos[i].name))
            return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                               "\"%.100s\" can't be the name of a tensor", infos[i].name);
        if (infos[i].n_dims > MIST_SAFETENSORS_MAX_DIMS ||
            !add_elements(&infos[i], n_elements))
            return mist_err_at(err, MIST_ERR_RANGE, path, 0, 0,
                               "the shape of tensor %s does not fit", infos[i].name);
        put_tensor(out, &infos[i], dtype, begin * size_bytes, *n_elements * size_bytes);
    }
    fputc('}', out);
    while (ftell(out) % 8 != 0 && !ferror(out))
        fputc(' ', out);
    return ferror(out) ? mist_err_memory(err, path) : MIST_OK;
}

/* ---------------------------------------------------------------------------- writing */

MIST_COMPARATOR_OF(compare_names, char *const, strcmp(*a, *b))

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
    char *text = NULL;
    size_t n_text = 0;
    FILE *header = open_memstream(&text, &n_text);
    struct mist_safetensors_writer *writer = calloc(1, sizeof *writer);
    enum mist_status status = check_names(path, infos, n, err);

    *out = NULL;
    if (!writer || !header)
        status = mist_err_memory(err, path);
    if (!status)
        status = make_header(header, path, dtype, infos, n, &writer->n_elements, err);
    bool is_short = header && ferror(header);
    if (header && (fclose(header) != 0 || !text || is_short) && !status)
        status = mist_err_memory(err, path);
    if (status)
        goto out;
    writer->dtype = dtype;
    status = mist_atomic_file_open(&writer->file, path, force, err);
    if (status)
        goto out;
    uint64_t n_header = n_text;
    fwrite(&n_header, sizeof n_header, 1, writer->file.stream);
    fwrite(text, 1, n_text, writer->file.stream);
    *out = writer;
    writer = NULL;
out:
    free(text);
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
