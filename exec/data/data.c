/*
 * Streams of tokens as samples, in an order that is computed instead of stored.
 *
 * The order of the n windows in an epoch is a pseudo-random permutation: a Feistel
 * network over the smallest even number of bits that holds n, with the stateless hash of
 * core/random.h as round function, keyed by seed and epoch. Values of n or more are sent
 * through it again until one falls below n ("cycle walking"; Black and Rogaway, Ciphers
 * with arbitrary finite domains, 2002), which takes less than 4 rounds on average because
 * the domain is smaller than 4 n. Eight rounds: with four, the test of the spread over
 * places fails for small n.
 */
#include "exec/data/data.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/order.h"
#include "core/random.h"
#include "exec/data/data_file.h"

#include <fnmatch.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_TOKENS         4096 /* read at once where all or many are looked at */
#define FINGERPRINTED_BLOCKS 1024
#define MAX_BOUND            ((int64_t)1 << 31) /* of ids as int32 */

/* Files one behind the other. */
struct chain {
    struct mist_data_file *files; /* owned; [n_files] */
    int64_t *first;               /* owned; [n_files + 1] place of each file's token 0 */
    int32_t n_files;
    size_t capacity, first_capacity;
};

/* A part of a chain. */
struct stream {
    const struct chain *chain;
    int64_t first, n_tokens;
    const char *label; /* of what a message is about */
};

struct mist_data {
    struct chain chains[2]; /* of training; of validation, when it has its own files */
    struct stream training, validation; /* validation.chain = NULL: none */
    int64_t bound;                      /* of ids in samples */
    uint64_t fingerprint, validation_fingerprint;
};

/* ---------------------------------------------------------------------------- opening */

static void close_chain(struct chain *chain)
{
    for (int32_t i = 0; i < chain->n_files; i++)
        mist_data_file_close(&chain->files[i]);
    free(chain->files);
    free(chain->first);
}

/* is_text of every file must be that of *model (NULL: of the chain's first). */
static enum mist_status check_kind(const struct mist_data_file *model,
                                   const struct mist_data_file *file,
                                   struct mist_err *err)
{
    if (model->is_text == file->is_text)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_INPUT, file->path, 0, 0,
                       "is %s, but %.200s is %s; bytes and token ids don't mix",
                       file->is_text ? "text" : "a token file", model->path,
                       model->is_text ? "text" : "a token file");
}

/* model: of all files; NULL: the chain's first. */
static enum mist_status add_file(struct chain *chain, const char *name,
                                 const struct mist_data_file *model, struct mist_err *err)
{
    if (!MIST_RESERVE(chain->files, chain->capacity, chain->n_files + 1) ||
        !MIST_RESERVE(chain->first, chain->first_capacity, chain->n_files + 2))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for data");
    int32_t i = chain->n_files++;
    struct mist_data_file *file = &chain->files[i];
    enum mist_status status = mist_data_file_open(file, name, err);
    if (status == MIST_OK)
        status = check_kind(model ? model : chain->files, file, err);
    if (i == 0)
        chain->first[0] = 0;
    chain->first[i + 1] = chain->first[i] + file->n_tokens;
    return status;
}

MIST_COMPARATOR_OF(compare_paths, char *const, strcmp(*a, *b))

/* Of x.bin and x.idx, which are one file, the second, where the pattern fits both. */
static bool is_second(const char *pattern, const char *path)
{
    char other[4096];
    int n = (int)strlen(path) - 4;

    if (n < 0 || strcmp(path + n, ".idx") != 0)
        return false;
    snprintf(other, sizeof other, "%.*s.bin", n, path);
    return fnmatch(pattern, other, FNM_PATHNAME | FNM_PERIOD) == 0;
}

/* What a pattern stands for, by the bytes of their names, whatever the locale. n_prefix:
 * bytes of name that name a format. */
static enum mist_status add_pattern(struct chain *chain, const char *name,
                                    size_t n_prefix, const struct mist_data_file *model,
                                    struct mist_err *err)
{
    const char *pattern = name + n_prefix;
    glob_t found = {0};
    char whole[4096];
    int code = glob(pattern, GLOB_NOSORT, NULL, &found);
    enum mist_status status = MIST_OK;

    if (code == GLOB_NOSPACE)
        status = mist_err_memory(err, pattern);
    else if (code != 0)
        status = mist_err_at(err, MIST_ERR_IO, pattern, 0, 0,
                             "there is no file of such a name");
    if (found.gl_pathc > 0)
        qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_paths);
    for (size_t i = 0; i < found.gl_pathc && status == MIST_OK; i++) {
        if (is_second(pattern, found.gl_pathv[i]))
            continue;
        snprintf(whole, sizeof whole, "%.*s%s", (int)n_prefix, name, found.gl_pathv[i]);
        status = add_file(chain, whole, model, err);
    }
    globfree(&found);
    return status;
}

/* chain is zeroed before; close_chain ends it, whatever comes. */
static enum mist_status open_chain(struct chain *chain, const char *const *paths,
                                   int32_t n, const struct mist_data_file *model,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        size_t n_prefix = 0;
        status = mist_data_file_is_pattern(paths[i], &n_prefix)
                     ? add_pattern(chain, paths[i], n_prefix, model, err)
                     : add_file(chain, paths[i], model, err);
    }
    return status;
}

static enum mist_status open_streams(struct mist_data *data,
                                     const struct mist_data_config *config,
                                     struct mist_err *err)
{
    struct chain *chains = data->chains;
    enum mist_status status = open_chain(&chains[0], config->paths, config->n, NULL, err);

    if (status != MIST_OK)
        return status;
    int64_t n_tokens = chains[0].first[chains[0].n_files], n_held_out = 0;
    const char *label = chains[0].files[0].is_text ? "text" : "token stream";
    if (config->n_validation > 0) {
        status = open_chain(&chains[1], config->validation_paths, config->n_validation,
                            chains[0].files, err);
        if (status != MIST_OK)
            return status;
        data->validation = (struct stream){
            &chains[1], 0, chains[1].first[chains[1].n_files], "validation data"};
    } else if (config->validation_frac > 0) {
        n_held_out = (int64_t)((double)n_tokens * config->validation_frac);
        data->validation = (struct stream){&chains[0], n_tokens - n_held_out, n_held_out,
                                           "validation part of the data"};
    }
    if (n_held_out > 0)
        label = "training part of the data";
    data->training = (struct stream){&chains[0], 0, n_tokens - n_held_out, label};
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- reading */

/* The file that holds token number at of the chain. */
static int32_t find_file(const struct chain *chain, int64_t at)
{
    int32_t low = 0, high = chain->n_files - 1;

    while (low < high) { /* the first file that ends behind it */
        int32_t middle = low + (high - low) / 2;
        if (chain->first[middle + 1] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Where the tokens first .. first + n - 1 of a stream lie in one file: as many of them. */
struct part {
    const struct mist_data_file *file;
    int64_t first, n;
};

static struct part part_at(const struct stream *stream, int64_t first, int64_t n)
{
    const struct chain *chain = stream->chain;
    int32_t i = find_file(chain, stream->first + first);
    int64_t at = stream->first + first - chain->first[i];
    int64_t n_left = chain->files[i].n_tokens - at;

    return (struct part){&chain->files[i], at, n < n_left ? n : n_left};
}

/* Advice for tokens 0 .. n - 1 of the stream. */
static void advise_stream(const struct stream *stream, int64_t n,
                          enum mist_data_access access)
{
    for (int64_t at = 0; at < n;) {
        struct part part = part_at(stream, at, n - at);
        mist_data_file_advise(part.file, part.first, part.n, access);
        at += part.n;
    }
}

/* Tokens first .. first + n - 1 of the stream: as ids below bound or, ids NULL, as they are
 * stored. */
static enum mist_status read_stream(const struct stream *stream, int64_t first, int64_t n,
                                    int64_t bound, int32_t *ids, int64_t *stored,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int64_t at = 0; at < n && status == MIST_OK;) {
        struct part part = part_at(stream, first + at, n - at);
        if (ids)
            status =
                mist_data_file_read(part.file, part.first, part.n, bound, &ids[at], err);
        else
            status =
                mist_data_file_stored(part.file, part.first, part.n, &stored[at], err);
        at += part.n;
    }
    return status;
}

/* Whether some file's type can hold an id that is not below bound, or is negative. */
static bool can_exceed(const struct chain *chain, int64_t bound)
{
    for (int32_t i = 0; i < chain->n_files; i++) {
        enum mist_token_type type = chain->files[i].type;
        bool is_signed = type == MIST_TOKEN_INT8 || type == MIST_TOKEN_INT16 ||
                         type == MIST_TOKEN_INT32 || type == MIST_TOKEN_INT64;
        if (is_signed || mist_data_type_max(type) >= bound)
            return true;
    }
    return false;
}

/* 2^28 uint16 ids in the page cache take 0.1 to 0.15 s of one core, from a disk as long
 * as it takes to read 512 MiB. */
static enum mist_status check_ids(const struct stream *stream, int64_t bound,
                                  struct mist_err *err)
{
    int32_t ids[BLOCK_TOKENS];
    int64_t n = stream->n_tokens < MIST_DATA_CHECKED_TOKENS ? stream->n_tokens
                                                            : MIST_DATA_CHECKED_TOKENS;
    enum mist_status status = MIST_OK;

    if (!can_exceed(stream->chain, bound))
        return MIST_OK;
    advise_stream(stream, n, MIST_ACCESS_ONCE);
    for (int64_t at = 0; at < n && status == MIST_OK; at += BLOCK_TOKENS)
        status = read_stream(stream, at, n - at < BLOCK_TOKENS ? n - at : BLOCK_TOKENS,
                             bound, ids, NULL, err);
    advise_stream(stream, n, MIST_ACCESS_HERE_THERE);
    return status;
}

static enum mist_status check_length(const struct stream *stream, int64_t seq_len,
                                     struct mist_err *err)
{
    char others[48] = "";
    int32_t n_files = stream->chain->n_files;

    if (stream->n_tokens > seq_len)
        return MIST_OK;
    if (n_files > 1)
        snprintf(others, sizeof others, ", with that of %d more file%s,",
                 (int)n_files - 1, n_files > 2 ? "s" : "");
    return mist_err_at(err, MIST_ERR_INPUT, stream->chain->files[0].path, 0, 0,
                       "the %s%s has %lld tokens, one sample of %lld needs %lld",
                       stream->label, others, (long long)stream->n_tokens,
                       (long long)seq_len, (long long)seq_len + 1);
}

bool mist_data_is_text(const struct mist_data *data)
{
    return data->chains[0].files[0].is_text;
}

const char *mist_data_path(const struct mist_data *data, int32_t i)
{
    const struct chain *chain = data->chains;

    if (i >= chain->n_files)
        i -= chain++->n_files;
    return i < chain->n_files ? chain->files[i].path : NULL;
}

enum mist_status mist_data_check(struct mist_data *data, int64_t vocab, int64_t seq_len,
                                 struct mist_err *err)
{
    const struct stream *streams[] = {&data->training, &data->validation};

    if (mist_data_is_text(data) && vocab < MIST_DATA_VOCAB)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "text as bytes needs a vocabulary of %d, the model has %lld",
                            MIST_DATA_VOCAB, (long long)vocab);
    data->bound = vocab < MAX_BOUND ? vocab : MAX_BOUND;
    for (int i = 0; i < 2 && streams[i]->chain; i++) {
        enum mist_status status = check_length(streams[i], seq_len, err);
        if (status == MIST_OK)
            status = check_ids(streams[i], data->bound, err);
        if (status != MIST_OK)
            return status;
    }
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- figures */

int64_t mist_data_n_tokens(const struct mist_data *data)
{
    return data->training.n_tokens;
}

static int64_t n_windows(const struct stream *stream, int64_t seq_len)
{
    return stream->n_tokens > 0 ? (stream->n_tokens - 1) / seq_len : 0;
}

int64_t mist_data_n_samples(const struct mist_data *data, int64_t seq_len)
{
    return n_windows(&data->training, seq_len);
}

int64_t mist_data_n_validation_samples(const struct mist_data *data, int64_t seq_len)
{
    return n_windows(&data->validation, seq_len);
}

int64_t mist_data_n_batches(int64_t n_samples, int64_t global_batch)
{
    return n_samples / global_batch + (n_samples % global_batch > 0);
}

static enum mist_status find_fingerprint(const struct stream *stream, uint64_t *out,
                                         struct mist_err *err)
{
    int64_t n_blocks = (stream->n_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS;
    int64_t n_used = n_blocks < FINGERPRINTED_BLOCKS ? n_blocks : FINGERPRINTED_BLOCKS;
    int64_t values[BLOCK_TOKENS];
    struct mist_hash hash;
    enum mist_status status = MIST_OK;

    mist_hash_init(&hash);
    mist_hash_add_int64(&hash, stream->n_tokens);
    for (int64_t k = 0; k < n_used && status == MIST_OK; k++) {
        /* k n_blocks / n_used without its overflow */
        int64_t i_block = k * (n_blocks / n_used) + k * (n_blocks % n_used) / n_used;
        int64_t at = i_block * BLOCK_TOKENS, left = stream->n_tokens - at;
        int64_t n = left < BLOCK_TOKENS ? left : BLOCK_TOKENS;
        status = read_stream(stream, at, n, 0, NULL, values, err);
        for (int64_t i = 0; i < n && status == MIST_OK; i++)
            mist_hash_add_int64(&hash, values[i]);
    }
    *out = hash.value;
    return status;
}

enum mist_status mist_data_open_config(const struct mist_data_config *config,
                                       struct mist_data **out, struct mist_err *err)
{
    double frac = config->validation_frac;

    *out = NULL;
    if (!(frac >= 0 && frac < 1))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "the validation fraction is %g, expected 0 <= . < 1", frac);
    if (frac > 0 && config->n_validation > 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "validation is either files or a fraction, not both");
    struct mist_data *data = calloc(1, sizeof *data);
    if (!data)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for data");
    data->bound = MAX_BOUND;
    enum mist_status status = open_streams(data, config, err);
    if (status == MIST_OK)
        status = find_fingerprint(&data->training, &data->fingerprint, err);
    if (status == MIST_OK && data->validation.chain)
        status = find_fingerprint(&data->validation, &data->validation_fingerprint, err);
    if (status != MIST_OK) {
        mist_data_close(data);
        return status;
    }
    *out = data;
    return MIST_OK;
}

enum mist_status mist_data_open(const char *const *paths, int32_t n,
                                struct mist_data **out, struct mist_err *err)
{
    struct mist_data_config config = {.paths = paths, .n = n};

    return mist_data_open_config(&config, out, err);
}

void mist_data_close(struct mist_data *data)
{
    if (!data)
        return;
    close_chain(&data->chains[0]);
    close_chain(&data->chains[1]);
    free(data);
}

uint64_t mist_data_fingerprint(const struct mist_data *data)
{
    return data->fingerprint;
}

uint64_t mist_data_validation_fingerprint(const struct mist_data *data)
{
    return data->validation_fingerprint;
}

/* ---------------------------------------------------------------------------- samples */

/* One pass of the network over 2 n_half_bits bits: a bijection for every key. */
static uint64_t scramble(uint64_t value, int n_half_bits, uint64_t seed, uint64_t epoch)
{
    uint64_t mask = ((uint64_t)1 << n_half_bits) - 1;
    uint64_t left = value >> n_half_bits, right = value & mask;

    for (uint64_t round = 0; round < 8; round++) {
        uint64_t mixed = mist_random_at(seed, epoch, right << 4 | round);
        uint64_t next = left ^ (mixed & mask);
        left = right;
        right = next;
    }
    return left << n_half_bits | right;
}

/* Place number index (0 .. n-1) of the epoch's order of n windows. */
static uint64_t permute(uint64_t index, uint64_t n, uint64_t seed, uint64_t epoch)
{
    int n_half_bits = 1;

    while ((uint64_t)1 << 2 * n_half_bits < n)
        n_half_bits++;
    do
        index = scramble(index, n_half_bits, seed, epoch);
    while (index >= n);
    return index;
}

static enum mist_status read_window(const struct stream *stream, int64_t window,
                                    int64_t seq_len, int64_t bound, int32_t *tokens,
                                    int32_t *targets, struct mist_err *err)
{
    int64_t first = window * seq_len;
    enum mist_status status =
        read_stream(stream, first, seq_len, bound, tokens, NULL, err);

    if (status != MIST_OK)
        return status;
    memcpy(targets, tokens + 1, (size_t)(seq_len - 1) * sizeof *targets);
    return read_stream(stream, first + seq_len, 1, bound, targets + seq_len - 1, NULL,
                       err);
}

enum mist_status mist_data_batch(const struct mist_data *data, uint64_t seed,
                                 int64_t first_sample, int64_t seq_len, int64_t n_samples,
                                 int32_t *tokens, int32_t *targets, struct mist_err *err)
{
    uint64_t n = (uint64_t)n_windows(&data->training, seq_len);
    enum mist_status status = MIST_OK;

    for (int64_t i = 0; i < n_samples && status == MIST_OK; i++) {
        uint64_t sample = (uint64_t)first_sample + (uint64_t)i;
        uint64_t window = permute(sample % n, n, seed, sample / n);
        status = read_window(&data->training, (int64_t)window, seq_len, data->bound,
                             tokens + i * seq_len, targets + i * seq_len, err);
    }
    return status;
}

enum mist_status mist_data_validation_batch(const struct mist_data *data, int64_t i_batch,
                                            int64_t global_batch, int64_t seq_len,
                                            int64_t first_sample, int64_t n_samples,
                                            int32_t *tokens, int32_t *targets,
                                            struct mist_err *err)
{
    int64_t n = n_windows(&data->validation, seq_len);
    int64_t first = i_batch * global_batch + first_sample;
    enum mist_status status = MIST_OK;

    if (i_batch < 0 || i_batch >= mist_data_n_batches(n, global_batch))
        return mist_err_set(err, MIST_ERR_RANGE,
                            "validation batch %lld of %lld samples is asked for, there "
                            "are %lld samples",
                            (long long)i_batch, (long long)global_batch, (long long)n);
    for (int64_t i = 0; i < n_samples && status == MIST_OK; i++)
        if (first + i < n)
            status = read_window(&data->validation, first + i, seq_len, data->bound,
                                 tokens + i * seq_len, targets + i * seq_len, err);
        else
            for (int64_t k = i * seq_len; k < (i + 1) * seq_len; k++) {
                tokens[k] = 0;
                targets[k] = -1;
            }
    return status;
}
