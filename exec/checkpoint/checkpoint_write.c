/*
 * One rank's file of a checkpoint, written front to back: header, payloads as they come,
 * then the table that was collected meanwhile. See checkpoint_internal.h for the format.
 */
#include "exec/checkpoint/checkpoint.h"

#include "core/atomic_file.h" /* mist_make_directory */
#include "exec/checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct bytes {
    unsigned char *data;
    size_t n, capacity;
};

struct mist_checkpoint_writer {
    char path[PATH_MAX];
    int fd; /* -1: not open */
    uint64_t header_sum;
    struct bytes tensors, pieces; /* parts of the table */
    uint32_t n_tensors, n_pieces;
    int64_t offset_bytes;                   /* written so far */
    int64_t n_block;                        /* elements in block */
    float block[CHECKPOINT_BLOCK_ELEMENTS]; /* of the payload, not written yet */
};

/* -------------------------------------------------------------------- growing a table */

static bool append(struct bytes *bytes, const void *data, size_t n)
{
    if (!MIST_RESERVE(bytes->data, bytes->capacity, bytes->n + n))
        return false;
    memcpy(bytes->data + bytes->n, data, n);
    bytes->n += n;
    return true;
}

static bool append_32(struct bytes *bytes, uint32_t value)
{
    return append(bytes, &value, sizeof value);
}

static bool append_64(struct bytes *bytes, int64_t value)
{
    return append(bytes, &value, sizeof value);
}

/* ---------------------------------------------------------------------------- opening */

static enum mist_status write_bytes(struct mist_checkpoint_writer *writer,
                                    const void *bytes, size_t n, struct mist_err *err)
{
    int code = mist_file_write_all(writer->fd, bytes, n);

    if (code)
        return mist_err_io(err, writer->path, "write", code);
    writer->offset_bytes += (int64_t)n;
    return MIST_OK;
}

static enum mist_status write_header(struct mist_checkpoint_writer *writer,
                                     const struct mist_checkpoint_save *save,
                                     int32_t rank, struct mist_err *err)
{
    unsigned char header[CHECKPOINT_HEADER_BYTES] = CHECKPOINT_MAGIC;
    uint32_t fields[4] = {CHECKPOINT_VERSION, (uint32_t)rank, (uint32_t)save->n_ranks, 0};

    memcpy(header + 8, fields, sizeof fields);
    memcpy(header + 24, &save->step, sizeof save->step);
    memcpy(header + 32, &save->run_id, sizeof save->run_id);
    writer->header_sum = mist_checkpoint_sum(header, sizeof header, 0);
    return write_bytes(writer, header, sizeof header, err);
}

static enum mist_status open_file(struct mist_checkpoint_writer *writer,
                                  const struct mist_checkpoint_save *save, int32_t rank,
                                  struct mist_err *err)
{
    char folder[PATH_MAX];

    checkpoint_partial_path(folder, save);
    checkpoint_rank_path(writer->path, folder, rank);
    if (!folder[0] || !writer->path[0])
        return mist_err_io(err, save->dir, "save", ENAMETOOLONG);
    enum mist_status status = mist_make_directory(folder, err);
    if (status)
        return status;
    int code = checkpoint_create_file(writer->path, &writer->fd);
    return code ? mist_err_io(err, writer->path, "create", code) : MIST_OK;
}

enum mist_status mist_checkpoint_writer_open(const struct mist_checkpoint_save *save,
                                             int32_t rank,
                                             struct mist_checkpoint_writer **out,
                                             struct mist_err *err)
{
    struct mist_checkpoint_writer *writer = malloc(sizeof *writer);
    enum mist_status status = MIST_OK;

    *out = NULL;
    if (!writer)
        return mist_err_memory(err, save->dir);
    memset(writer, 0, offsetof(struct mist_checkpoint_writer, block));
    writer->fd = -1;
    status = open_file(writer, save, rank, err);
    if (!status)
        status = write_header(writer, save, rank, err);
    if (status)
        mist_checkpoint_writer_abort(writer);
    else
        *out = writer;
    return status;
}

/* ----------------------------------------------------------------------------- pieces */

/* Writes the block and notes its sum. */
static enum mist_status end_block(struct mist_checkpoint_writer *writer,
                                  struct mist_err *err)
{
    size_t n = (size_t)writer->n_block * sizeof(float);

    if (n == 0)
        return MIST_OK;
    writer->n_block = 0;
    if (!append_64(&writer->pieces, (int64_t)mist_checkpoint_sum(writer->block, n, 0)))
        return mist_err_memory(err, writer->path);
    return write_bytes(writer, writer->block, n, err);
}

static enum mist_status add_run(struct mist_checkpoint_writer *writer, const float *data,
                                int64_t n, struct mist_err *err)
{
    while (n > 0) {
        int64_t room = CHECKPOINT_BLOCK_ELEMENTS - writer->n_block;
        int64_t part = n < room ? n : room;
        memcpy(writer->block + writer->n_block, data, (size_t)part * sizeof *data);
        writer->n_block += part;
        data += part;
        n -= part;
        if (part < room)
            break;
        enum mist_status status = end_block(writer, err);
        if (status)
            return status;
    }
    return MIST_OK;
}

/* The number of a tensor in this file's table; adds it when it is new. */
static enum mist_status find_tensor(struct mist_checkpoint_writer *writer,
                                    const char *name, int64_t whole_elements,
                                    uint32_t *out, struct mist_err *err)
{
    const unsigned char *p = writer->tensors.data;
    uint32_t n_name = (uint32_t)strlen(name), n;
    int64_t elements;

    for (*out = 0; *out < writer->n_tensors; ++*out, p += 12 + n) {
        memcpy(&elements, p, sizeof elements);
        memcpy(&n, p + 8, sizeof n);
        if (n != n_name || memcmp(p + 12, name, n) != 0)
            continue;
        if (elements == whole_elements)
            return MIST_OK;
        return mist_err_at(err, MIST_ERR_RANGE, writer->path, 0, 0,
                           "tensor %s has %lld elements, but had %lld before", name,
                           (long long)whole_elements, (long long)elements);
    }
    if (!append_64(&writer->tensors, whole_elements) ||
        !append_32(&writer->tensors, n_name) || !append(&writer->tensors, name, n_name))
        return mist_err_memory(err, writer->path);
    writer->n_tensors++;
    return MIST_OK;
}

static enum mist_status check_spans(const struct mist_checkpoint_writer *writer,
                                    const char *tensor, int64_t whole,
                                    const struct mist_param_span *spans, int32_t n_spans,
                                    int64_t *n_elements, struct mist_err *err)
{
    *n_elements = 0;
    if (!checkpoint_name_is_valid(tensor, strlen(tensor)))
        return mist_err_at(err, MIST_ERR_RANGE, writer->path, 0, 0,
                           "\"%.*s\" can't be a tensor's name",
                           MIST_CHECKPOINT_NAME_BYTES, tensor);
    for (int32_t i = 0; i < n_spans; i++) {
        const struct mist_param_span *span = &spans[i];
        if (span->local_first < 0 || !checkpoint_span_is_valid(span, whole))
            return mist_err_at(err, MIST_ERR_RANGE, writer->path, 0, 0,
                               "span %d of tensor %s is not within its %lld elements", i,
                               tensor, (long long)whole);
        *n_elements += span->length * span->n_runs;
    }
    return MIST_OK;
}

static bool append_piece(struct mist_checkpoint_writer *writer, uint32_t i_tensor,
                         int64_t n_elements, const struct mist_param_span *spans,
                         int32_t n_spans)
{
    struct bytes *pieces = &writer->pieces;
    bool ok = append_32(pieces, i_tensor) && append_32(pieces, (uint32_t)n_spans) &&
              append_64(pieces, writer->offset_bytes) && append_64(pieces, n_elements);

    for (int32_t i = 0; i < n_spans && ok; i++)
        ok = append_64(pieces, spans[i].length) && append_64(pieces, spans[i].n_runs) &&
             append_64(pieces, spans[i].global_first) &&
             append_64(pieces, spans[i].n_runs > 1 ? spans[i].global_stride : 0);
    return ok;
}

enum mist_status mist_checkpoint_add_piece(struct mist_checkpoint_writer *writer,
                                           const char *tensor, int64_t whole_elements,
                                           const struct mist_param_span *spans,
                                           int32_t n_spans, const float *data,
                                           struct mist_err *err)
{
    uint32_t i_tensor = 0;
    int64_t n_elements;
    enum mist_status status =
        check_spans(writer, tensor, whole_elements, spans, n_spans, &n_elements, err);

    if (status || n_spans <= 0)
        return status;
    status = find_tensor(writer, tensor, whole_elements, &i_tensor, err);
    if (status)
        return status;
    if (!append_piece(writer, i_tensor, n_elements, spans, n_spans))
        return mist_err_memory(err, writer->path);
    writer->n_pieces++;
    for (int32_t i = 0; i < n_spans; i++)
        for (int64_t run = 0; run < spans[i].n_runs && !status; run++)
            status = add_run(writer, data + spans[i].local_first + run * spans[i].length,
                             spans[i].length, err);
    return status ? status : end_block(writer, err);
}

/* ---------------------------------------------------------------------------- closing */

static enum mist_status write_table(struct mist_checkpoint_writer *writer,
                                    struct mist_err *err)
{
    struct bytes table = {0};
    int64_t offset_bytes = writer->offset_bytes;
    enum mist_status status = MIST_OK;

    if (!append_32(&table, writer->n_tensors) || !append_32(&table, writer->n_pieces) ||
        (writer->n_tensors > 0 &&
         !append(&table, writer->tensors.data, writer->tensors.n)) ||
        (writer->n_pieces > 0 &&
         !append(&table, writer->pieces.data, writer->pieces.n))) {
        status = mist_err_memory(err, writer->path);
        goto out;
    }
    int64_t table_bytes = (int64_t)table.n;
    int64_t sum = (int64_t)mist_checkpoint_sum(table.data, table.n, writer->header_sum);
    if (!append_64(&table, offset_bytes) || !append_64(&table, table_bytes) ||
        !append_64(&table, sum) || !append(&table, CHECKPOINT_END_MAGIC, 8))
        status = mist_err_memory(err, writer->path);
    else
        status = write_bytes(writer, table.data, table.n, err);
out:
    free(table.data);
    return status;
}

static void free_writer(struct mist_checkpoint_writer *writer)
{
    free(writer->tensors.data);
    free(writer->pieces.data);
    free(writer);
}

enum mist_status mist_checkpoint_writer_close(struct mist_checkpoint_writer *writer,
                                              struct mist_err *err)
{
    enum mist_status status = write_table(writer, err);

    if (!status && fsync(writer->fd) != 0)
        status = mist_err_io(err, writer->path, "flush", errno);
    if (close(writer->fd) != 0 && !status)
        status = mist_err_io(err, writer->path, "close", errno);
    if (status)
        unlink(writer->path);
    free_writer(writer);
    return status;
}

void mist_checkpoint_writer_abort(struct mist_checkpoint_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0) {
        close(writer->fd);
        unlink(writer->path);
    }
    free_writer(writer);
}
