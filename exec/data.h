/*
 * Training data: text as bytes, and which window of it every sample of a step reads.
 *
 * The token of a byte is its value, so the vocabulary is 256. With sequences of s tokens
 * the text is cut into windows w = 0 .. n-1, n = (n_tokens - 1) / s: window w reads
 * tokens w s .. w s + s - 1 and predicts the ones one further. Sample i of step k has the
 * number g = k global_batch + i; epoch g / n goes once through all windows in an order of
 * its own, a permutation that is computed and not stored (see data.c). So a sample
 * depends on seed, step and its number in the global batch alone, never on ranks,
 * micro-batches or accumulation.
 *
 * Left out: token files, packing of documents.
 */
#ifndef MIST_EXEC_DATA_H
#define MIST_EXEC_DATA_H

#include "core/status.h"

#include <stdint.h>

#define MIST_DATA_VOCAB 256

struct mist_data;

/*
 * All regular files (no symbolic links) of /usr/share/common-licenses in the order of
 * their names (bytes). *paths and its *n texts are owned by the caller
 * (mist_data_free_paths). MIST_OK, MIST_ERR_IO (no such folder, nothing in it) or
 * MIST_ERR_MEMORY. After an error *paths is NULL.
 */
MIST_MUST_CHECK enum mist_status mist_data_default_paths(char ***paths, int32_t *n,
                                                         struct mist_err *err);
void mist_data_free_paths(char **paths, int32_t n); /* NULL allowed */

/*
 * Reads the n >= 1 files at paths (borrowed) one behind the other. *out is owned by the
 * caller (mist_data_close). MIST_OK, MIST_ERR_IO, MIST_ERR_INPUT (larger than 4 GiB) or
 * MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_data_open(const char *const *paths, int32_t n,
                                                struct mist_data **out,
                                                struct mist_err *err);
void mist_data_close(struct mist_data *data); /* NULL allowed */

int64_t mist_data_n_tokens(const struct mist_data *data);

/* FNV-1a of all tokens: the same text, the same fingerprint. */
uint64_t mist_data_fingerprint(const struct mist_data *data);

/* MIST_OK if there is at least one window and the vocabulary holds every byte; otherwise
 * MIST_ERR_INPUT (a text that is too short: with the path of its first file).
 * seq_len >= 1. */
MIST_MUST_CHECK enum mist_status mist_data_check(const struct mist_data *data,
                                                 int64_t vocab, int64_t seq_len,
                                                 struct mist_err *err);

/*
 * Samples first_sample .. first_sample + n_samples - 1 of the 0 .. global_batch - 1 of
 * a step: tokens[n_samples, seq_len] and targets[n_samples, seq_len], both the caller's.
 * seq_len must have passed mist_data_check(). May be called from any thread.
 */
void mist_data_batch(const struct mist_data *data, uint64_t seed, int64_t step,
                     int64_t global_batch, int64_t seq_len, int64_t first_sample,
                     int64_t n_samples, int32_t *tokens, int32_t *targets);

#endif
