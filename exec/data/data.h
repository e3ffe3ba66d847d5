/*
 * Training data: streams of tokens from files, which window of a stream every sample of a
 * step reads, and what is held out for validation.
 *
 * Formats (numbers are little-endian):
 *
 *     format    told by                       prefix      tokens
 *     text      any other name                text:       its bytes; vocabulary 256
 *     flat      .u16, .u32                    uint16:     ids, nothing else in the file
 *               (nanoGPT's .bin is uint16)    uint32:
 *     llm.c     magic 20240520 or 20240801    llmc:       uint16 or uint32 ids behind a
 *                                                         header of 1024 bytes
 *     Megatron  .idx; .bin beside an .idx; x  megatron:   integer ids of x.bin, checked
 *               where only x.bin, x.idx are               against all of x.idx
 *
 * A prefix in front of a path names the format whatever the path looks like; ./uint16:x
 * is a file of that name. A .bin that none of these fits is refused, not guessed. A path
 * with *, ? or [ that is no file is a pattern as of glob(7): all files that it fits, in the
 * order of their names (bytes), of a Megatron .bin and .idx one. What is neither text nor
 * ids is refused (arrays of NumPy, Parquet tables, what is compressed, JSON lines). Several
 * files are one stream. Text goes with text only, ids with ids.
 *
 * With sequences of s tokens the training stream is cut into windows w = 0 .. n-1,
 * n = (n_tokens - 1) / s: window w reads tokens w s .. w s + s - 1 and predicts the ones
 * one further. Samples have numbers g = 0, 1, ... in the order in which the steps of a run
 * take them (as long as its global batch stays, sample i of step k has g = k global_batch +
 * i); epoch g / n goes once through all windows in an order of its own, a permutation that is computed and not
 * stored (see data.c). So a sample depends on the seed and its number in the run alone,
 * never on ranks, micro-batches or accumulation. The validation stream is either files of
 * its own or the last part of the stream, which training then never sees, not even as a
 * target; its windows come in their order.
 *
 * Left out: document boundaries (samples run across them and across files), weights of
 * several sources, big-endian files.
 */
#ifndef MIST_EXEC_DATA_H
#define MIST_EXEC_DATA_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

#define MIST_DATA_VOCAB 256 /* of text */

/* Ids of that many tokens of a stream are checked before the run, the others as samples
 * are read. */
#define MIST_DATA_CHECKED_TOKENS ((int64_t)1 << 28)

struct mist_data;

struct mist_data_config {
    const char *const *paths; /* borrowed; [n] of the training stream, in its order */
    int32_t n;                /* >= 1 */
    const char *const *validation_paths; /* borrowed; [n_validation] */
    int32_t n_validation;                /* 0: none */
    /* Of the stream at its end, 0 <= . < 1, if n_validation = 0. */
    double validation_frac;
};

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
 * Opens all files, which takes no time that grows with them (but for a Megatron .idx, of
 * which all is checked: 20 bytes for a sequence). *out is owned by the caller
 * (mist_data_close); the files must not shrink while it lives. MIST_OK, MIST_ERR_IO,
 * MIST_ERR_INPUT (a file is not what its format demands, or text and ids are mixed: with
 * its path), MIST_ERR_USAGE (validation_frac out of range, or files as well) or
 * MIST_ERR_MEMORY. After an error *out is NULL.
 */
MIST_MUST_CHECK enum mist_status
mist_data_open_config(const struct mist_data_config *config, struct mist_data **out,
                      struct mist_err *err);

/* The same for the n >= 1 files at paths, without validation. */
MIST_MUST_CHECK enum mist_status mist_data_open(const char *const *paths, int32_t n,
                                                struct mist_data **out,
                                                struct mist_err *err);
void mist_data_close(struct mist_data *data); /* NULL allowed */

/* Tokens of the training stream, without what is held out. */
int64_t mist_data_n_tokens(const struct mist_data *data);

/* Whether the data is text as bytes, not ids. */
bool mist_data_is_text(const struct mist_data *data);

/* Windows of the training stream (samples of an epoch) and of the validation stream; 0
 * where a stream is too short or there is none. seq_len >= 1. */
int64_t mist_data_n_samples(const struct mist_data *data, int64_t seq_len);
int64_t mist_data_n_validation_samples(const struct mist_data *data, int64_t seq_len);

/* File i = 0, 1, .. of those that the tokens are in, of validation, too; NULL: there are no
 * more. Valid until close. */
const char *mist_data_path(const struct mist_data *data, int32_t i);

/* How many batches of global_batch >= 1 samples n_samples are, the last with what is left. */
int64_t mist_data_n_batches(int64_t n_samples, int64_t global_batch);

/*
 * FNV-1a of the number of training tokens and of the tokens: the same ids, the same
 * fingerprint, whatever files and formats hold them. Of streams longer than 2^22 tokens
 * 1024 blocks of 4096, evenly spread, stand for all.
 */
uint64_t mist_data_fingerprint(const struct mist_data *data);

/* The same of the validation stream; 0: there is none. */
uint64_t mist_data_validation_fingerprint(const struct mist_data *data);

/*
 * MIST_OK if training and, where there is one, validation have at least one window, and
 * the vocabulary holds every byte of text or every id among the first
 * MIST_DATA_CHECKED_TOKENS of each stream; vocab <= 2^31 from then on bounds the ids in
 * samples. Otherwise MIST_ERR_INPUT: too short (with the path of the first file), or an
 * id out of bounds (with file and position). seq_len >= 1.
 */
MIST_MUST_CHECK enum mist_status mist_data_check(struct mist_data *data, int64_t vocab,
                                                 int64_t seq_len, struct mist_err *err);

/*
 * Samples first_sample .. first_sample + n_samples - 1 of a run, counted from 0 over all
 * its steps: tokens[n_samples, seq_len] and targets[n_samples, seq_len], both the caller's.
 * seq_len must have passed mist_data_check(). May be called from any thread. MIST_OK, or
 * MIST_ERR_INPUT: an id is not below the vocabulary that was checked (2^31 where none
 * was); then tokens and targets are undefined.
 */
MIST_MUST_CHECK enum mist_status mist_data_batch(const struct mist_data *data,
                                                 uint64_t seed, int64_t first_sample,
                                                 int64_t seq_len, int64_t n_samples,
                                                 int32_t *tokens, int32_t *targets,
                                                 struct mist_err *err);

/*
 * The same for samples first_sample .. first_sample + n_samples - 1 of the 0 .. global_batch
 * - 1 of batch i_batch of the validation stream: its sample i is window i_batch
 * global_batch + i. In the last batch those behind the last of the
 * mist_data_n_validation_samples() have tokens 0 and targets -1, which take no part in a
 * loss. MIST_ERR_RANGE when no window is in the batch.
 */
MIST_MUST_CHECK enum mist_status
mist_data_validation_batch(const struct mist_data *data, int64_t i_batch,
                           int64_t global_batch, int64_t seq_len, int64_t first_sample,
                           int64_t n_samples, int32_t *tokens, int32_t *targets,
                           struct mist_err *err);

#endif
