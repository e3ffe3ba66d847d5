/*
 * Text as training samples, in an order that is computed instead of stored.
 *
 * The order of the n windows in an epoch is a pseudo-random permutation: a Feistel
 * network over the smallest even number of bits that holds n, with the stateless hash of
 * core/random.h as round function, keyed by seed and epoch. Values of n or more are sent
 * through it again until one falls below n ("cycle walking"; Black and Rogaway, Ciphers
 * with arbitrary finite domains, 2002), which takes less than 4 rounds on average because
 * the domain is smaller than 4 n. Eight rounds: with four, the test of the spread over
 * places fails for small n.
 */
#include "exec/data.h"

#include "core/atomic_file.h" /* mist_file_read_all */
#include "core/hash.h"
#include "core/memory.h"
#include "core/random.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define DEFAULT_FOLDER "/usr/share/common-licenses"
#define MAX_BYTES      ((size_t)1 << 32)

struct mist_data {
    uint8_t *tokens; /* owned */
    int64_t n_tokens;
    char *first_path; /* owned; for messages */
    int32_t n_paths;
};

/* ---------------------------------------------------------------------- default data */

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* folder/name, malloc'd; NULL when out of memory. */
static char *join_path(const char *folder, const char *name)
{
    size_t n_folder = strlen(folder), n_name = strlen(name);
    char *path = malloc(n_folder + n_name + 2);

    if (!path)
        return NULL;
    memcpy(path, folder, n_folder);
    path[n_folder] = '/';
    memcpy(path + n_folder + 1, name, n_name + 1);
    return path;
}

void mist_data_free_paths(char **paths, int32_t n)
{
    for (int32_t i = 0; paths && i < n; i++)
        free(paths[i]);
    free(paths);
}

/* Adds the regular files of an open folder. */
static enum mist_status add_files(DIR *folder, char ***paths, int32_t *n,
                                  struct mist_err *err)
{
    size_t capacity = 0;

    for (struct dirent *entry; (entry = readdir(folder));) {
        struct stat info;
        char *path = join_path(DEFAULT_FOLDER, entry->d_name);
        if (path && (lstat(path, &info) != 0 || !S_ISREG(info.st_mode))) {
            free(path);
            continue;
        }
        char **grown =
            path ? mist_grow(*paths, &capacity, (size_t)*n + 1, sizeof **paths) : NULL;
        if (!grown) {
            free(path);
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for file names");
        }
        *paths = grown;
        grown[(*n)++] = path;
    }
    return MIST_OK;
}

enum mist_status mist_data_default_paths(char ***paths, int32_t *n, struct mist_err *err)
{
    DIR *folder = opendir(DEFAULT_FOLDER);
    enum mist_status status;

    *paths = NULL;
    *n = 0;
    if (!folder)
        return mist_err_at(
            err, errno == ENOMEM ? MIST_ERR_MEMORY : MIST_ERR_IO, DEFAULT_FOLDER, 0, 0,
            "can't read the default training text: %s; name text files", strerror(errno));
    status = add_files(folder, paths, n, err);
    closedir(folder);
    if (status == MIST_OK && *n == 0)
        status = mist_err_at(err, MIST_ERR_IO, DEFAULT_FOLDER, 0, 0,
                             "no file in the default training text; name text files");
    if (status != MIST_OK) {
        mist_data_free_paths(*paths, *n);
        *paths = NULL;
        *n = 0;
        return status;
    }
    qsort(*paths, (size_t)*n, sizeof **paths, compare_paths);
    return MIST_OK;
}

/* ---------------------------------------------------------------------- opening */

static enum mist_status append_file(struct mist_data *data, const char *path,
                                    struct mist_err *err)
{
    size_t n_old = (size_t)data->n_tokens, n_new;
    char *text;
    enum mist_status status =
        mist_file_read_all(path, MAX_BYTES - n_old, &text, &n_new, err);

    if (status != MIST_OK)
        return status;
    uint8_t *grown = realloc(data->tokens, n_old + n_new + 1);
    if (!grown) {
        free(text);
        return mist_err_at(err, MIST_ERR_MEMORY, path, 0, 0, "out of memory for text");
    }
    memcpy(grown + n_old, text, n_new);
    free(text);
    data->tokens = grown;
    data->n_tokens += (int64_t)n_new;
    return MIST_OK;
}

enum mist_status mist_data_open(const char *const *paths, int32_t n,
                                struct mist_data **out, struct mist_err *err)
{
    struct mist_data *data = calloc(1, sizeof *data);
    enum mist_status status = MIST_OK;

    *out = NULL;
    if (data)
        data->first_path = strdup(paths[0]);
    if (!data || !data->first_path) {
        mist_data_close(data);
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for text");
    }
    data->n_paths = n;
    for (int32_t i = 0; i < n && status == MIST_OK; i++)
        status = append_file(data, paths[i], err);
    if (status != MIST_OK) {
        mist_data_close(data);
        return status;
    }
    *out = data;
    return MIST_OK;
}

void mist_data_close(struct mist_data *data)
{
    if (!data)
        return;
    free(data->tokens);
    free(data->first_path);
    free(data);
}

int64_t mist_data_n_tokens(const struct mist_data *data)
{
    return data->n_tokens;
}

uint64_t mist_data_fingerprint(const struct mist_data *data)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    if (data->n_tokens > 0)
        mist_hash_add_bytes(&hash, data->tokens, (size_t)data->n_tokens);
    return hash.value;
}

enum mist_status mist_data_check(const struct mist_data *data, int64_t vocab,
                                 int64_t seq_len, struct mist_err *err)
{
    if (vocab < MIST_DATA_VOCAB)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "text as bytes needs a vocabulary of %d, the model has %lld",
                            MIST_DATA_VOCAB, (long long)vocab);
    if (data->n_tokens > seq_len)
        return MIST_OK;
    char others[48] = "";
    if (data->n_paths > 1)
        snprintf(others, sizeof others, ", with that of %d more file%s,",
                 (int)data->n_paths - 1, data->n_paths > 2 ? "s" : "");
    return mist_err_at(err, MIST_ERR_INPUT, data->first_path, 0, 0,
                       "the text%s has %lld tokens, one sample of %lld needs %lld",
                       others, (long long)data->n_tokens, (long long)seq_len,
                       (long long)seq_len + 1);
}

/* ---------------------------------------------------------------------- sampling */

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

void mist_data_batch(const struct mist_data *data, uint64_t seed, int64_t step,
                     int64_t global_batch, int64_t seq_len, int64_t first_sample,
                     int64_t n_samples, int32_t *tokens, int32_t *targets)
{
    uint64_t n_windows = (uint64_t)((data->n_tokens - 1) / seq_len);

    for (int64_t i = 0; i < n_samples; i++) {
        uint64_t sample = (uint64_t)step * (uint64_t)global_batch +
                          (uint64_t)first_sample + (uint64_t)i;
        uint64_t window =
            permute(sample % n_windows, n_windows, seed, sample / n_windows);
        const uint8_t *text = data->tokens + window * (uint64_t)seq_len;
        for (int64_t k = 0; k < seq_len; k++) {
            tokens[i * seq_len + k] = text[k];
            targets[i * seq_len + k] = text[k + 1];
        }
    }
}
