/*
 * A rank's file, mapped, and its table read into memory.
 *
 * The table is under a checksum, but what is in it is checked all the same: a reader
 * never touches a byte outside the file whatever the file says.
 */
#include "exec/checkpoint/checkpoint_internal.h"

#include "core/atomic_file.h" /* mist_file_map */

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum mist_status damaged(const struct checkpoint_table *table, const char *what,
                                struct mist_err *err)
{
    return mist_err_at(err, MIST_ERR_INPUT, table->path, 0, 0, "damaged: %s", what);
}

/* ---------------------------------------------------------------------------- mapping */

static enum mist_status map_file(struct checkpoint_table *table, struct mist_err *err)
{
    if (access(table->path, F_OK) != 0 && errno == ENOENT)
        return mist_err_at(err, MIST_ERR_INPUT, table->path, 0, 0, "is missing");
    enum mist_status status =
        mist_file_map(table->path, CHECKPOINT_HEADER_BYTES + CHECKPOINT_FOOTER_BYTES,
                      &table->map, &table->map_bytes, err);
    return status || table->map ? status : damaged(table, "too short", err);
}

void checkpoint_table_unmap(struct checkpoint_table *table)
{
    if (table->map)
        munmap(table->map, table->map_bytes);
    table->map = NULL;
}

/* ---------------------------------------------------------------------------- reading */

/* Bytes of the table that are still to be read; is_short once more was asked for. */
struct cursor {
    const unsigned char *p;
    size_t n;
    bool is_short;
};

static void take(struct cursor *cursor, void *out, size_t n)
{
    if (cursor->n < n) {
        cursor->is_short = true;
        memset(out, 0, n);
        return;
    }
    memcpy(out, cursor->p, n);
    cursor->p += n;
    cursor->n -= n;
}

static uint32_t take_32(struct cursor *cursor)
{
    uint32_t value;

    take(cursor, &value, sizeof value);
    return value;
}

static int64_t take_64(struct cursor *cursor)
{
    int64_t value;

    take(cursor, &value, sizeof value);
    return value;
}

static enum mist_status read_header(struct checkpoint_table *table, struct mist_err *err)
{
    uint32_t fields[4];

    if (memcmp(table->map, CHECKPOINT_MAGIC, 8) != 0)
        return damaged(table, "not a file of a checkpoint", err);
    memcpy(fields, table->map + 8, sizeof fields);
    memcpy(&table->step, table->map + 24, sizeof table->step);
    memcpy(&table->run_id, table->map + 32, sizeof table->run_id);
    if (fields[0] < CHECKPOINT_OLDEST_VERSION || fields[0] > CHECKPOINT_VERSION)
        return mist_err_at(err, MIST_ERR_INPUT, table->path, 0, 0,
                           "has version %u, expected %d to %d", fields[0],
                           CHECKPOINT_OLDEST_VERSION, CHECKPOINT_VERSION);
    if (fields[2] < 1 || fields[2] > CHECKPOINT_MAX_RANKS || fields[1] >= fields[2])
        return damaged(table, "its rank", err);
    table->rank = (int32_t)fields[1];
    table->n_ranks = (int32_t)fields[2];
    return MIST_OK;
}

/* Finds the table by the footer and compares its sum. */
static enum mist_status find_table(struct checkpoint_table *table, struct cursor *out,
                                   struct mist_err *err)
{
    size_t end = table->map_bytes - CHECKPOINT_FOOTER_BYTES;
    const unsigned char *footer = table->map + end;
    uint64_t first, n;

    memcpy(&first, footer, sizeof first);
    memcpy(&n, footer + 8, sizeof n);
    memcpy(&table->sum, footer + 16, sizeof table->sum);
    if (memcmp(footer + 24, CHECKPOINT_END_MAGIC, 8) != 0)
        return damaged(table, "its end is missing", err);
    if (first < CHECKPOINT_HEADER_BYTES || first > end || n != end - first)
        return damaged(table, "the place of its table", err);
    uint64_t seed = mist_checkpoint_sum(table->map, CHECKPOINT_HEADER_BYTES, 0);
    if (mist_checkpoint_sum(table->map + first, n, seed) != table->sum)
        return damaged(table, "the checksum of its table differs", err);
    *out = (struct cursor){.p = table->map + first, .n = n};
    return MIST_OK;
}

static enum mist_status read_tensors(struct checkpoint_table *table,
                                     struct cursor *cursor, struct mist_arena *arena,
                                     struct mist_err *err)
{
    for (int32_t i = 0; i < table->n_tensors; i++) {
        struct checkpoint_tensor_ref *tensor = &table->tensors[i];
        char name[MIST_CHECKPOINT_NAME_BYTES] = {0};
        tensor->whole_elements = take_64(cursor);
        uint32_t n_name = take_32(cursor);
        if (cursor->is_short || n_name >= sizeof name)
            return damaged(table, "its table", err);
        take(cursor, name, n_name);
        if (cursor->is_short || !checkpoint_name_is_valid(name, n_name) ||
            tensor->whole_elements < 1)
            return damaged(table, "a tensor in its table", err);
        tensor->name = mist_arena_strdup(arena, name);
        if (!tensor->name)
            return mist_err_memory(err, table->path);
    }
    return MIST_OK;
}

/* Reads the spans of a piece and checks them against its elements. */
static enum mist_status read_spans(struct checkpoint_piece *piece, struct cursor *cursor,
                                   struct mist_err *err)
{
    const struct checkpoint_table *table = piece->table;
    int64_t whole = table->tensors[piece->tensor].whole_elements;
    int64_t n = 0;

    for (int32_t i = 0; i < piece->n_spans; i++) {
        struct mist_param_span *span = &piece->spans[i];
        span->local_first = n;
        span->length = take_64(cursor);
        span->n_runs = take_64(cursor);
        span->global_first = take_64(cursor);
        span->global_stride = take_64(cursor);
        /* Valid: runs do not overlap, so length * n_runs is at most whole. */
        if (!checkpoint_span_is_valid(span, whole) ||
            !mist_size_add(n, span->length * span->n_runs, &n))
            return damaged(table, "a span in its table", err);
    }
    return n == piece->n_elements ? MIST_OK : damaged(table, "a piece in its table", err);
}

/* Reads a piece, whose payload must begin at *payload_end, which moves on. */
static enum mist_status read_piece(struct checkpoint_piece *piece, struct cursor *cursor,
                                   int64_t *payload_end, struct mist_arena *arena,
                                   struct mist_err *err)
{
    const struct checkpoint_table *table = piece->table;
    uint32_t tensor = take_32(cursor), n_spans = take_32(cursor);
    int64_t first = take_64(cursor);
    int64_t limit = (int64_t)table->map_bytes;

    piece->n_elements = take_64(cursor);
    if (cursor->is_short || tensor >= (uint32_t)table->n_tensors || n_spans < 1 ||
        n_spans > cursor->n / 32 || first != *payload_end || piece->n_elements < 1 ||
        piece->n_elements > (limit - first) / (int64_t)sizeof(float))
        return damaged(table, "a piece in its table", err);
    piece->tensor = (int32_t)tensor;
    piece->n_spans = (int32_t)n_spans;
    piece->payload = table->map + first;
    *payload_end = first + piece->n_elements * (int64_t)sizeof(float);
    piece->spans = mist_arena_alloc(arena, n_spans * sizeof *piece->spans);
    if (!piece->spans)
        return mist_err_memory(err, table->path);
    enum mist_status status = read_spans(piece, cursor, err);
    if (status)
        return status;
    size_t n_blocks = (size_t)checkpoint_n_blocks(piece->n_elements);
    if (n_blocks > cursor->n / sizeof *piece->block_sums)
        return damaged(table, "its table", err);
    piece->block_sums = mist_arena_alloc(arena, n_blocks * sizeof *piece->block_sums);
    piece->block_is_sound = mist_arena_alloc(arena, n_blocks);
    if (!piece->block_sums || !piece->block_is_sound)
        return mist_err_memory(err, table->path);
    take(cursor, piece->block_sums, n_blocks * sizeof *piece->block_sums);
    return MIST_OK;
}

static enum mist_status read_table(struct checkpoint_table *table, struct cursor *cursor,
                                   struct mist_arena *arena, struct mist_err *err)
{
    int64_t payload_end = CHECKPOINT_HEADER_BYTES;
    int64_t table_first = cursor->p - table->map;
    uint32_t n_tensors = take_32(cursor), n_pieces = take_32(cursor);

    /* The least that a tensor and a piece take bounds their numbers. */
    if (cursor->is_short || n_tensors > cursor->n / 13 || n_pieces > cursor->n / 64 ||
        n_tensors > INT32_MAX)
        return damaged(table, "its table", err);
    table->n_tensors = (int32_t)n_tensors;
    table->n_pieces = (int32_t)n_pieces;
    table->tensors = mist_arena_alloc(arena, n_tensors * sizeof *table->tensors);
    table->pieces = mist_arena_alloc(arena, n_pieces * sizeof *table->pieces);
    if (!table->tensors || !table->pieces)
        return mist_err_memory(err, table->path);
    enum mist_status status = read_tensors(table, cursor, arena, err);
    for (int32_t i = 0; i < table->n_pieces && !status; i++) {
        table->pieces[i].table = table;
        status = read_piece(&table->pieces[i], cursor, &payload_end, arena, err);
    }
    if (!status && (cursor->n > 0 || payload_end != table_first))
        status = damaged(table, "its table does not fill its place", err);
    return status;
}

enum mist_status checkpoint_table_open(struct checkpoint_table *table, const char *path,
                                       struct mist_arena *arena, struct mist_err *err)
{
    struct cursor cursor = {0};
    enum mist_status status;

    *table = (struct checkpoint_table){.path = mist_arena_strdup(arena, path)};
    if (!table->path)
        return mist_err_memory(err, path);
    if ((status = map_file(table, err)) || (status = read_header(table, err)) ||
        (status = find_table(table, &cursor, err)))
        return status;
    return read_table(table, &cursor, arena, err);
}

/* --------------------------------------------------------------------------- payloads */

enum mist_status checkpoint_piece_verify(struct checkpoint_piece *piece, int64_t first,
                                         int64_t n, struct mist_err *err)
{
    int64_t block = first / CHECKPOINT_BLOCK_ELEMENTS;
    int64_t last = (first + n - 1) / CHECKPOINT_BLOCK_ELEMENTS;

    for (; block <= last; block++) {
        if (piece->block_is_sound[block])
            continue;
        int64_t start = block * CHECKPOINT_BLOCK_ELEMENTS;
        int64_t n_here = piece->n_elements - start;
        if (n_here > CHECKPOINT_BLOCK_ELEMENTS)
            n_here = CHECKPOINT_BLOCK_ELEMENTS;
        uint64_t sum =
            mist_checkpoint_sum(piece->payload + start * (int64_t)sizeof(float),
                                (size_t)n_here * sizeof(float), 0);
        if (sum != piece->block_sums[block])
            return mist_err_at(err, MIST_ERR_INPUT, piece->table->path, 0, 0,
                               "damaged: the checksum of block %lld of %s differs",
                               (long long)block,
                               piece->table->tensors[piece->tensor].name);
        piece->block_is_sound[block] = 1;
    }
    return MIST_OK;
}
