/*
 * safetensors files, read and written.
 *
 * A file is the length of its header (8 bytes, little-endian), the header, a JSON object
 * {name: {"dtype", "shape", "data_offsets": [begin, end]}}, and the data. Source: the
 * format's description, github.com/huggingface/safetensors. Reading is as strict as the
 * reference: a header of at most 100,000,000 bytes, offsets within the file, neither
 * overlap nor hole, sizes that fit the shapes. A model may be cut into several files; a
 * model.safetensors.index.json then says which tensor is where.
 *
 * Values are handed out as fp32, from F32, F16 and BF16 (all exact). Tensors of other
 * types may be in a file and can't be read.
 */
#ifndef MIST_EXEC_SAFETENSORS_H
#define MIST_EXEC_SAFETENSORS_H

#include "core/status.h"
#include "sim/model/model.h" /* enum mist_dtype */

#include <stdbool.h>
#include <stdint.h>

enum { MIST_SAFETENSORS_MAX_DIMS = 8 };

struct mist_safetensors_info {
    const char *name;  /* valid until close */
    const char *dtype; /* "F32", as in the file */
    int32_t n_dims;
    int64_t shape[MIST_SAFETENSORS_MAX_DIMS];
    int64_t n_elements; /* product of shape; 1 without dimensions */
};

struct mist_safetensors; /* a file or a set of files, mapped for reading */

/*
 * path is a .safetensors file, an index (a name ending in .json), or a folder with
 * model.safetensors or model.safetensors.index.json. A tensor in two files, or in a file
 * but not in the index or the other way round, is an error. MIST_ERR_INPUT: damaged;
 * MIST_ERR_IO, MIST_ERR_MEMORY.
 */
enum mist_status mist_safetensors_open(const char *path, struct mist_safetensors **out,
                                       struct mist_err *err) MIST_MUST_CHECK;
void mist_safetensors_close(struct mist_safetensors *tensors); /* NULL is fine */

/* Tensors are sorted by name (strcmp). */
int32_t mist_safetensors_n(const struct mist_safetensors *tensors);
const struct mist_safetensors_info *
mist_safetensors_info(const struct mist_safetensors *tensors, int32_t i);
int32_t mist_safetensors_find(const struct mist_safetensors *tensors,
                              const char *name); /* -1: none */

/* True when its values can be had as fp32. */
bool mist_safetensors_is_float(const struct mist_safetensors *tensors, int32_t i);

/* The file it is in, for messages; valid until close. */
const char *mist_safetensors_path(const struct mist_safetensors *tensors, int32_t i);

/* Elements first .. first + n - 1 (within the tensor) of a tensor that is_float, as fp32;
 * out [n]. */
void mist_safetensors_read(const struct mist_safetensors *tensors, int32_t i,
                           int64_t first, int64_t n, float *out);

/* ---------------------------------------------------------------------------- writing */

/*
 * A file that is either whole or not there (core/atomic_file.h). Header and data are in
 * the order of infos, "__metadata__" says {"format": "pt"}, and the header is padded so
 * that data starts at a multiple of 8: the same input gives the same bytes.
 */
struct mist_safetensors_writer;

/*
 * infos [n]: names and shapes (n_dims, shape); their dtype and n_elements are not looked
 * at, all tensors are stored as dtype. MIST_ERR_USAGE: path exists and force is false;
 * MIST_ERR_INPUT: two of one name, or one that JSON would escape; MIST_ERR_RANGE: sizes
 * do not fit; MIST_ERR_IO, MIST_ERR_MEMORY.
 */
enum mist_status mist_safetensors_writer_open(const char *path, bool force,
                                              enum mist_dtype dtype,
                                              const struct mist_safetensors_info *infos,
                                              int32_t n,
                                              struct mist_safetensors_writer **out,
                                              struct mist_err *err) MIST_MUST_CHECK;

/* The next n elements, in the order of the header; bf16 rounds to nearest, ties to even.
 * Write errors show up at commit. */
void mist_safetensors_write(struct mist_safetensors_writer *writer, const float *values,
                            int64_t n);

/* Frees the writer either way. MIST_ERR_RANGE: not as many elements as announced;
 * MIST_ERR_IO, MIST_ERR_MEMORY, MIST_ERR_USAGE as mist_atomic_file_commit(). */
enum mist_status mist_safetensors_writer_commit(struct mist_safetensors_writer *writer,
                                                struct mist_err *err) MIST_MUST_CHECK;
void mist_safetensors_writer_abort(struct mist_safetensors_writer *writer);

#endif
