/*
 * Scalars of a run as an event file of TensorBoard.
 *
 * An event file is a row of records: u64 length, u32 masked CRC-32C of the length, the
 * bytes, u32 masked CRC-32C of them, little-endian (TensorFlow, core/lib/io/record_writer
 * and core/lib/hash/crc32c: the mask turns the sum right by 15 bits and adds 0xa282ead8).
 * The bytes are a protocol buffer, event.proto's Event: 1 wall_time (double), 2 step, 3
 * file_version, 5 summary, 7 session_log; summary.proto's Summary: 1 value, of 1 tag and
 * 2 simple_value (float).
 *
 * Every process of a run begins a file of its own in the folder, with a mark (SessionLog
 * START) of the step that it begins with: TensorBoard drops what earlier files have from
 * there on, so steps that are done again after a crash show once.
 */
#ifndef MIST_EXEC_TENSORBOARD_H
#define MIST_EXEC_TENSORBOARD_H

#include "core/status.h"

#include <stdint.h>

struct mist_tensorboard {
    char *path; /* owned; of the file; NULL: closed */
    int fd;
    uint32_t crc_table[256];
};

struct mist_scalar {
    const char *tag;
    double value; /* not finite: left out */
};

enum { MIST_TENSORBOARD_MAX_SCALARS = 8, MIST_TENSORBOARD_MAX_TAG = 40 };

/* Begins a file in the folder, which is made as needed; first_step is the first one to
 * come. MIST_ERR_IO, MIST_ERR_MEMORY. After a failure board is closed. */
MIST_MUST_CHECK enum mist_status mist_tensorboard_open(struct mist_tensorboard *board,
                                                       const char *folder,
                                                       int64_t first_step,
                                                       struct mist_err *err);

/* Adds an event, at once; n <= MIST_TENSORBOARD_MAX_SCALARS, tags of at most
 * MIST_TENSORBOARD_MAX_TAG bytes. MIST_ERR_IO names the file. */
MIST_MUST_CHECK enum mist_status
mist_tensorboard_add(const struct mist_tensorboard *board, int64_t step,
                     const struct mist_scalar *scalars, int32_t n, struct mist_err *err);
void mist_tensorboard_close(struct mist_tensorboard *board); /* zeroed: nothing */

#endif
