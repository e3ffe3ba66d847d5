/* Event files of TensorBoard. See tensorboard.h. */
#include "exec/train/tensorboard.h"

#include "core/atomic_file.h" /* folders */

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Bytes of a message under way. */
struct buffer {
    uint8_t bytes[1024]; /* the largest event: 8 scalars with tags of 40 bytes take 500 */
    size_t n;
};

/* --------------------------------------------------------------------------- CRC-32C */

/* Castagnoli's polynomial, bits reversed. */
static void make_table(uint32_t table[256])
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t rest = i;
        for (int bit = 0; bit < 8; bit++)
            rest = rest >> 1 ^ (rest & 1 ? 0x82f63b78u : 0);
        table[i] = rest;
    }
}

static uint32_t masked_crc(const uint32_t table[256], const uint8_t *bytes, size_t n)
{
    uint32_t crc = 0xffffffffu;

    for (size_t i = 0; i < n; i++)
        crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 255];
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* --------------------------------------------------------------------------- messages */

static void put_fixed(struct buffer *out, uint64_t value, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        out->bytes[out->n++] = (uint8_t)(value >> 8 * i);
}

static void put_varint(struct buffer *out, uint64_t value)
{
    for (; value > 127; value >>= 7)
        out->bytes[out->n++] = (uint8_t)(value | 128);
    out->bytes[out->n++] = (uint8_t)value;
}

enum wire_type { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

static void put_key(struct buffer *out, int field, enum wire_type type)
{
    put_varint(out, (uint64_t)(field << 3 | (int)type));
}

static void put_bytes(struct buffer *out, int field, const void *bytes, size_t n)
{
    put_key(out, field, BYTES);
    put_varint(out, n);
    memcpy(out->bytes + out->n, bytes, n);
    out->n += n;
}

/* An event up to what it says. */
static void begin_event(struct buffer *out, int64_t step)
{
    struct timespec now;
    uint64_t bits;

    clock_gettime(CLOCK_REALTIME, &now);
    double wall_s = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    memcpy(&bits, &wall_s, sizeof bits);
    out->n = 0;
    put_key(out, 1, FIXED64);
    put_fixed(out, bits, 8);
    put_key(out, 2, VARINT);
    put_varint(out, (uint64_t)step);
}

static void put_scalar(struct buffer *summary, const struct mist_scalar *scalar)
{
    struct buffer value = {.n = 0};
    float number = (float)scalar->value;
    uint32_t bits;

    memcpy(&bits, &number, sizeof bits);
    put_bytes(&value, 1, scalar->tag, strlen(scalar->tag));
    put_key(&value, 2, FIXED32);
    put_fixed(&value, bits, 4);
    put_bytes(summary, 1, value.bytes, value.n);
}

/* ------------------------------------------------------------------------------ files */

static enum mist_status write_event(const struct mist_tensorboard *board,
                                    const struct buffer *event, struct mist_err *err)
{
    struct buffer record = {.n = 0};

    put_fixed(&record, event->n, 8);
    put_fixed(&record, masked_crc(board->crc_table, record.bytes, 8), 4);
    memcpy(record.bytes + record.n, event->bytes, event->n);
    record.n += event->n;
    put_fixed(&record, masked_crc(board->crc_table, event->bytes, event->n), 4);
    int code = mist_file_write_all(board->fd, record.bytes, record.n);
    if (code)
        return mist_err_io(err, board->path, "write", code);
    return MIST_OK;
}

/* The version of the format, and where this process begins. */
static enum mist_status write_begin(const struct mist_tensorboard *board,
                                    int64_t first_step, struct mist_err *err)
{
    static const char version[] = "brain.Event:2";
    static const uint8_t start[] = {1 << 3 | VARINT, 1}; /* SessionLog: status START */
    struct buffer event;

    begin_event(&event, 0);
    put_bytes(&event, 3, version, sizeof version - 1);
    enum mist_status status = write_event(board, &event, err);
    begin_event(&event, first_step);
    put_bytes(&event, 7, start, sizeof start);
    return status == MIST_OK ? write_event(board, &event, err) : status;
}

enum mist_status mist_tensorboard_open(struct mist_tensorboard *board, const char *folder,
                                       int64_t first_step, struct mist_err *err)
{
    char host[256] = "";
    size_t size = strlen(folder) + sizeof host + 80;
    enum mist_status status = mist_make_directory(folder, err);

    *board = (struct mist_tensorboard){.path = malloc(size), .fd = -1};
    if (!board->path)
        return mist_err_memory(err, NULL);
    make_table(board->crc_table);
    gethostname(host, sizeof host - 1);
    /* readers look for "tfevents" and sort by the time */
    snprintf(board->path, size, "%s/events.out.tfevents.%010lld.%s.%ld", folder,
             (long long)time(NULL), host[0] ? host : "host", (long)getpid());
    if (status == MIST_OK)
        board->fd = open(board->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (status == MIST_OK && board->fd < 0)
        status = mist_err_io(err, board->path, "open", errno);
    if (status == MIST_OK)
        status = write_begin(board, first_step, err);
    if (status != MIST_OK)
        mist_tensorboard_close(board);
    return status;
}

enum mist_status mist_tensorboard_add(const struct mist_tensorboard *board, int64_t step,
                                      const struct mist_scalar *scalars, int32_t n,
                                      struct mist_err *err)
{
    struct buffer event, summary = {.n = 0};

    for (int32_t i = 0; i < n; i++)
        if (isfinite(scalars[i].value))
            put_scalar(&summary, &scalars[i]);
    begin_event(&event, step);
    put_bytes(&event, 5, summary.bytes, summary.n);
    return write_event(board, &event, err);
}

void mist_tensorboard_close(struct mist_tensorboard *board)
{
    if (board->path && board->fd >= 0)
        close(board->fd);
    free(board->path);
    *board = (struct mist_tensorboard){.fd = -1};
}
