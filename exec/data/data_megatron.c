/*
 * Token files of Megatron-LM: prefix.bin holds the ids of all sequences one behind the
 * other, prefix.idx says how many there are and where.
 *
 *     offset  bytes   prefix.idx
 *     0       9       "MMIDIDX\0\0"
 *     9       8       version, 1
 *     17      1       type code of the ids in prefix.bin
 *     18      8       S, number of sequences
 *     26      8       D, number of document marks
 *     34      4 S     int32 length of each sequence, in tokens
 *     .       8 S     int64 offset of each sequence in prefix.bin, in bytes
 *     .       8 D     int64 marks: 0, and behind the last sequence of each document
 *     .       S       int8 modes, in multimodal sets only
 *
 * Source: Megatron-LM, megatron/core/datasets/indexed_dataset.py, _IndexWriter. Its
 * writer puts sequences without gaps and from the front, so with an index that passes the
 * checks prefix.bin as a whole is the stream of tokens, and the index is not needed any
 * more. The checks read all of it: 20 bytes for a sequence.
 *
 * Left out: document boundaries (samples run across them), multimodal sets, indices with
 * gaps or another order.
 */
#include "exec/data/data_file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC         "MMIDIDX\0" /* and the end of the string: 9 bytes */
#define HEADER_BYTES  34
#define LENGTH_BYTES  4
#define POINTER_BYTES 8

/* By code. Floats hold no ids. */
static const struct {
    const char *name; /* NULL: no such code */
    int type;         /* -1: none that we read */
} types[] = {
    {NULL, -1},
    {"uint8", MIST_TOKEN_UINT8},
    {"int8", MIST_TOKEN_INT8},
    {"int16", MIST_TOKEN_INT16},
    {"int32", MIST_TOKEN_INT32},
    {"int64", MIST_TOKEN_INT64},
    {"float64", -1},
    {"float32", -1},
    {"uint16", MIST_TOKEN_UINT16},
};

struct index {
    const char *path;
    const uint8_t *lengths, *pointers, *documents; /* in what was read */
    uint64_t n_sequences, n_documents;
    enum mist_token_type type;
};

static enum mist_status read_type(struct index *index, uint8_t code, struct mist_err *err)
{
    if (code >= sizeof types / sizeof *types || !types[code].name)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "type code %d of the tokens is none of 1 to 8", code);
    if (types[code].type < 0)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "type code %d of the tokens is %s, expected integers", code,
                           types[code].name);
    index->type = (enum mist_token_type)types[code].type;
    return MIST_OK;
}

/* Header and size: after this every array lies inside the n_bytes. */
static enum mist_status read_header(struct index *index, const uint8_t *bytes,
                                    size_t n_bytes, struct mist_err *err)
{
    if (n_bytes < HEADER_BYTES)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "has %zu bytes, the header of a Megatron index has %d",
                           n_bytes, HEADER_BYTES);
    if (memcmp(bytes, MAGIC, sizeof MAGIC) != 0)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "is no Megatron index: it does not begin with MMIDIDX");
    uint64_t version = mist_data_load_uint64(bytes + 9);
    if (version != 1)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "is a Megatron index of version %" PRIu64
                           ", expected 1 (little-endian)",
                           version);
    enum mist_status status = read_type(index, bytes[17], err);
    if (status != MIST_OK)
        return status;
    uint64_t s = index->n_sequences = mist_data_load_uint64(bytes + 18);
    uint64_t d = index->n_documents = mist_data_load_uint64(bytes + 26);
    size_t left = n_bytes - HEADER_BYTES;
    bool fits = s <= left / (LENGTH_BYTES + POINTER_BYTES) && d <= left / POINTER_BYTES;
    uint64_t needed = fits ? (LENGTH_BYTES + POINTER_BYTES) * s + POINTER_BYTES * d : 0;
    if (fits && needed + s == left && s > 0)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "is the index of a multimodal set, expected text alone");
    if (!fits || needed != left)
        return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                           "%zu bytes do not hold %" PRIu64 " sequences and %" PRIu64
                           " document marks",
                           n_bytes, s, d);
    index->lengths = bytes + HEADER_BYTES;
    index->pointers = index->lengths + LENGTH_BYTES * s;
    index->documents = index->pointers + POINTER_BYTES * s;
    return MIST_OK;
}

/* Sequences lie one behind the other and fill the bin_bytes of the other file. */
static enum mist_status check_sequences(const struct index *index, uint64_t bin_bytes,
                                        struct mist_err *err)
{
    uint64_t token_bytes = (uint64_t)mist_data_type_bytes(index->type), end = 0;

    for (uint64_t i = 0; i < index->n_sequences; i++) {
        uint32_t length = mist_data_load_uint32(index->lengths + LENGTH_BYTES * i);
        uint64_t pointer = mist_data_load_uint64(index->pointers + POINTER_BYTES * i);
        if (length > INT32_MAX)
            return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                               "sequence %" PRIu64 " has a negative length", i);
        if (pointer != end)
            return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                               "sequence %" PRIu64 " starts at byte %" PRIu64
                               ", the ones before it end at %" PRIu64,
                               i, pointer, end);
        if (length * token_bytes > bin_bytes - end)
            return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                               "sequence %" PRIu64 " ends at byte %" PRIu64
                               " of a .bin that has %" PRIu64,
                               i, end + length * token_bytes, bin_bytes);
        end += length * token_bytes;
    }
    if (end == bin_bytes)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                       "its sequences have %" PRIu64 " bytes, the .bin has %" PRIu64, end,
                       bin_bytes);
}

static enum mist_status check_documents(const struct index *index, struct mist_err *err)
{
    uint64_t previous = 0;

    for (uint64_t i = 0; i < index->n_documents; i++) {
        uint64_t mark = mist_data_load_uint64(index->documents + POINTER_BYTES * i);
        if (mark < previous || mark > index->n_sequences)
            return mist_err_at(err, MIST_ERR_INPUT, index->path, 0, 0,
                               "document mark %" PRIu64 " is %" PRIu64
                               ", expected %" PRIu64 " to %" PRIu64,
                               i, mark, previous, index->n_sequences);
        previous = mark;
    }
    return MIST_OK;
}

static enum mist_status check_index(const struct mist_data_source *source,
                                    uint64_t bin_bytes, enum mist_token_type *type,
                                    struct mist_err *err)
{
    struct index index = {.path = source->path};
    uint8_t *bytes = malloc(source->size_bytes + 1);

    if (!bytes)
        return mist_err_memory(err, source->path);
    enum mist_status status =
        mist_data_source_read(source, 0, source->size_bytes, bytes, err);
    if (status == MIST_OK)
        status = read_header(&index, bytes, source->size_bytes, err);

    if (status == MIST_OK)
        status = check_sequences(&index, bin_bytes, err);
    if (status == MIST_OK)
        status = check_documents(&index, err);
    free(bytes);
    *type = index.type;
    return status;
}

enum mist_status mist_data_megatron_open(struct mist_data_file *file, const char *prefix,
                                         size_t n_prefix, struct mist_err *err)
{
    struct mist_data_source source = {0};
    char *path = malloc(n_prefix + sizeof ".idx");
    enum mist_status status;

    *file = (struct mist_data_file){.path = malloc(n_prefix + sizeof ".bin")};
    if (!path || !file->path) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for file names");
        goto out;
    }
    memcpy(path, prefix, n_prefix);
    memcpy(path + n_prefix, ".idx", sizeof ".idx");
    memcpy(file->path, prefix, n_prefix);
    memcpy(file->path + n_prefix, ".bin", sizeof ".bin");
    status = mist_data_source_open(&source, path, err);
    if (status == MIST_OK)
        status = mist_data_source_open(&file->source, file->path, err);
    if (status == MIST_OK)
        status = check_index(&source, file->source.size_bytes, &file->type, err);
    if (status == MIST_OK)
        file->n_tokens =
            (int64_t)file->source.size_bytes / mist_data_type_bytes(file->type);
out:
    mist_data_source_close(&source);
    free(path);
    return status;
}
