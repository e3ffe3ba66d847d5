/* exec/data: windows of a stream, their order, what is held out, and errors. The formats
 * are tested in test_data_file.c. */
#include "tests/unit/fault.h"

#include "tests/unit/test.h"

#include "tests/unit/scratch_group.h"

#include "exec/data/data.h"

#include <math.h>

enum { N_TEXT = 1003 };

static uint8_t text[N_TEXT];

/* A text in which every window of 2 or more bytes says where it is from, in two files. */
static struct mist_data *open_text(void)
{
    char first[160], second[160];
    const char *paths[] = {first, second};
    struct mist_data *data;
    FILE *stream;

    for (int i = 0; i < N_TEXT; i++)
        text[i] = (uint8_t)(i % 2 ? i / 256 : i);
    snprintf(first, sizeof first, "text:%s", scratch_path(&scratch, "b"));
    snprintf(second, sizeof second, "text:%s", scratch_path(&scratch, "a"));
    stream = fopen(first + strlen("text:"), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(text, 1, 500, stream), 500);
    assert_int_equal(fclose(stream), 0);
    stream = fopen(second + strlen("text:"), "wb");
    assert_non_null(stream);
    assert_int_equal(fwrite(text + 500, 1, N_TEXT - 500, stream), N_TEXT - 500);
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(mist_data_open(paths, 2, &data, NULL), MIST_OK);
    return data;
}

/* mist_data_batch where nothing can go wrong. */
static void read_batch(const struct mist_data *data, uint64_t seed, int step, int batch,
                       int seq_len, int first, int n, int32_t *tokens, int32_t *targets)
{
    struct mist_err err;

    assert_int_equal(mist_data_batch(data, seed, step * batch + first, seq_len, n, tokens,
                                     targets, &err),
                     MIST_OK);
}

/* The window that a sample is, found by comparing; -1: none. */
static int find_window(const int32_t *tokens, const int32_t *targets, int seq_len)
{
    for (int w = 0; w < (N_TEXT - 1) / seq_len; w++) {
        int n_equal = 0;
        for (int k = 0; k < seq_len; k++)
            n_equal += tokens[k] == text[w * seq_len + k] &&
                       targets[k] == text[w * seq_len + k + 1];
        if (n_equal == seq_len)
            return w;
    }
    return -1;
}

/* Every epoch has every window once; epochs and seeds have orders of their own. */
TEST(test_epochs)
{
    struct mist_data *data = open_text();

    assert_int_equal(mist_data_n_tokens(data), N_TEXT);
    for (int seq_len = 4; seq_len <= 1002; seq_len = seq_len * 2 + 1) {
        int n = (N_TEXT - 1) / seq_len;
        int n_fixed = 0, orders[4][N_TEXT]; /* of seed 1 epochs 0, 1, 2; of seed 2 */
        assert_int_equal(mist_data_check(data, 256, seq_len, NULL), MIST_OK);
        assert_int_equal(mist_data_n_samples(data, seq_len), n);
        for (int epoch = 0; epoch < 4; epoch++) {
            int n_seen[N_TEXT] = {0};
            for (int i = 0; i < n; i++) {
                int32_t tokens[N_TEXT], targets[N_TEXT];
                read_batch(data, epoch < 3 ? 1 : 2, (epoch % 3) * n + i, 1, seq_len, 0, 1,
                           tokens, targets);
                int w = find_window(tokens, targets, seq_len);
                assert_true(w >= 0);
                n_seen[w]++;
                orders[epoch][i] = w;
                n_fixed += w == i;
            }
            for (int w = 0; w < n; w++)
                assert_int_equal(n_seen[w], 1);
        }
        if (n < 50)
            continue;
        assert_true(n_fixed < n / 2); /* 4 expected over the four orders */
        for (int epoch = 1; epoch < 4; epoch++)
            assert_memory_not_equal(orders[epoch], orders[0], (size_t)n * sizeof(int));
    }
    mist_data_close(data);
}

/* Any slice of a global batch is what the whole has there, across steps and epochs, and
 * the number of a sample counts on through the steps. */
TEST(test_slices)
{
    enum { SEQ = 7, GLOBAL = 60 };
    struct mist_data *data = open_text();
    static int32_t tokens[GLOBAL * SEQ], targets[GLOBAL * SEQ];

    for (int step = 0; step < 10; step++) {
        read_batch(data, 9, step, GLOBAL, SEQ, 0, GLOBAL, tokens, targets);
        for (int n = 1; n <= GLOBAL; n *= 2) {
            for (int first = 0; first + n <= GLOBAL; first += n) {
                int32_t part[GLOBAL * SEQ], part_targets[GLOBAL * SEQ];
                size_t n_bytes = (size_t)(n * SEQ) * sizeof *part;
                read_batch(data, 9, step, GLOBAL, SEQ, first, n, part, part_targets);
                assert_memory_equal(part, tokens + first * SEQ, n_bytes);
                assert_memory_equal(part_targets, targets + first * SEQ, n_bytes);
                read_batch(data, 9, 0, GLOBAL, SEQ, step * GLOBAL + first, n, part,
                           part_targets);
                assert_memory_equal(part, tokens + first * SEQ, n_bytes);
            }
        }
    }
    mist_data_close(data);
}

/* Window 0 comes about equally often at every place: chi-square over the seeds. */
TEST(test_spread)
{
    enum { SEQ = 100, N = 10, SEEDS = 4000 };
    struct mist_data *data = open_text();
    int counts[N][N] = {{0}};
    double chi2 = 0;

    for (int seed = 0; seed < SEEDS; seed++) {
        int32_t tokens[N * SEQ], targets[N * SEQ];
        read_batch(data, (uint64_t)seed, 0, N, SEQ, 0, N, tokens, targets);
        for (int i = 0; i < N; i++)
            counts[i][find_window(tokens + i * SEQ, targets + i * SEQ, SEQ)]++;
    }
    for (int i = 0; i < N * N; i++) {
        double off = counts[i / N][i % N] - (double)SEEDS / N;
        chi2 += off * off / ((double)SEEDS / N);
    }
    print_message("chi2 %.1f over 81 degrees of freedom\n", chi2);
    assert_true(chi2 < 81 + 5 * 13); /* five deviations */
    mist_data_close(data);
}

/* ------------------------------------------------------------------------ validation */

/* uint16 tokens first, first + 1, ... in a file of the scratch folder. */
static const char *write_count(const char *name, int first, int n)
{
    const char *path = scratch_path(&scratch, name);
    FILE *stream = fopen(path, "wb");

    assert_non_null(stream);
    for (int i = first; i < first + n; i++) {
        assert_true(fputc(i & 255, stream) != EOF);
        assert_true(fputc(i >> 8, stream) != EOF);
    }
    assert_int_equal(fclose(stream), 0);
    return path;
}

/* Counts in n_seen[token] what samples 0 .. n-1 look at, targets included. */
static void count_samples(const struct mist_data *data, bool is_validation, int n,
                          int seq_len, int *n_seen)
{
    int32_t tokens[64], targets[64];

    for (int i = 0; i < n; i++) {
        if (is_validation)
            assert_int_equal(mist_data_validation_batch(data, i, 1, seq_len, 0, 1, tokens,
                                                        targets, NULL),
                             MIST_OK);
        else
            read_batch(data, 5, i, 1, seq_len, 0, 1, tokens, targets);
        n_seen[tokens[0]]++;
        for (int k = 0; k < seq_len; k++) {
            assert_int_equal(targets[k], tokens[0] + k + 1);
            n_seen[targets[k]]++;
        }
    }
}

/* In a stream of which every token is its own place, nothing that training sees in three
 * epochs is in a validation sample, whatever fraction is held out. */
TEST(test_held_out)
{
    enum { N = 3000, SEQ = 16 };
    const char *path = write_count("held.u16", 0, N);
    static int n_trained[N], n_validated[N];

    for (int percent = 0; percent < 100; percent += 7) {
        struct mist_data_config config = {&path, 1, NULL, 0, percent / 100.0};
        struct mist_data *data;
        assert_int_equal(mist_data_open_config(&config, &data, NULL), MIST_OK);
        int n_held = (int)(N * (percent / 100.0)), n_left = N - n_held;
        int n = n_left > 0 ? (n_left - 1) / SEQ : 0;
        int n_validation = n_held > 0 ? (n_held - 1) / SEQ : 0;
        assert_int_equal(mist_data_n_tokens(data), n_left);
        assert_int_equal(mist_data_n_samples(data, SEQ), n);
        assert_int_equal(mist_data_n_validation_samples(data, SEQ), n_validation);
        assert_int_equal(mist_data_check(data, N, SEQ, NULL), MIST_OK);
        memset(n_trained, 0, sizeof n_trained);
        memset(n_validated, 0, sizeof n_validated);
        count_samples(data, false, 3 * n, SEQ, n_trained);
        count_samples(data, true, n_validation, SEQ, n_validated);
        for (int i = 0; i < N; i++) {
            assert_false(n_trained[i] && n_validated[i]);
            assert_int_equal(n_trained[i] > 0, i <= n * SEQ);
            assert_int_equal(n_validated[i] > 0, n_validation > 0 && i >= n_left &&
                                                     i <= n_left + n_validation * SEQ);
        }
        mist_data_close(data);
    }
}

/* Files for validation: in order, sliced like a batch, and behind their end padding. */
TEST(test_validation_files)
{
    enum { SEQ = 10, BATCH = 4 };
    char train[128], first[128], second[128];
    const char *path = train, *validation[] = {first, second};
    struct mist_data_config config = {&path, 1, validation, 2, 0};
    struct mist_data *data;
    struct mist_err err;
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];

    snprintf(train, sizeof train, "%s", write_count("train.u16", 0, 500));
    snprintf(first, sizeof first, "%s", write_count("v1.u16", 1000, 55));
    snprintf(second, sizeof second, "%s", write_count("v2.u16", 1055, 76));
    assert_int_equal(mist_data_open_config(&config, &data, NULL), MIST_OK);
    assert_int_equal(mist_data_n_tokens(data), 500);
    assert_int_equal(mist_data_check(data, 1130, SEQ, &err), MIST_ERR_INPUT);
    assert_int_equal(mist_data_check(data, 1131, SEQ, &err), MIST_OK);
    assert_int_equal(mist_data_n_validation_samples(data, SEQ), 13);
    for (int i = 0; i < 3 * BATCH; i += 2) {
        assert_int_equal(mist_data_validation_batch(data, i / BATCH, BATCH, SEQ,
                                                    i % BATCH, 2, tokens, targets, &err),
                         MIST_OK);
        for (int k = 0; k < 2 * SEQ; k++) {
            assert_int_equal(tokens[k], 1000 + i * SEQ + k);
            assert_int_equal(targets[k], tokens[k] + 1);
        }
    }
    assert_int_equal(
        mist_data_validation_batch(data, 3, BATCH, SEQ, 0, 4, tokens, targets, &err),
        MIST_OK);
    for (int k = 0; k < BATCH * SEQ; k++) {
        assert_int_equal(tokens[k], k < SEQ ? 1120 + k : 0);
        assert_int_equal(targets[k], k < SEQ ? 1121 + k : -1);
    }
    for (int i = -1; i < 5; i += 5)
        assert_int_equal(
            mist_data_validation_batch(data, i, BATCH, SEQ, 0, 1, tokens, targets, &err),
            MIST_ERR_RANGE);
    assert_non_null(strstr(err.message, "batch 4 of 4 samples"));
    for (int n = 0; n < 3 * BATCH;
         n++) { /* the batches in which sample n - 1 is the last */
        int n_counted = 0;
        for (int i = 0; i < n; i += BATCH)
            n_counted++;
        assert_int_equal(mist_data_n_batches(n, BATCH), n_counted);
    }
    assert_int_equal(mist_data_n_batches(INT64_MAX, 2), (INT64_C(1) << 62));
    /* A vocabulary that only training fits, a sequence that only training holds. */
    assert_int_equal(mist_data_check(data, 1131, 130, &err), MIST_OK);
    assert_int_equal(mist_data_check(data, 1131, 131, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, first);
    assert_int_equal(mist_data_check(data, 1100, SEQ, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, second);
    assert_non_null(strstr(err.message, "token 45 (from 0) is 1100"));
    mist_data_close(data);
    config.validation_frac = 0.1;
    assert_int_equal(mist_data_open_config(&config, &data, &err), MIST_ERR_USAGE);
    assert_null(data);
    config.n_validation = 0;
    for (int i = 0; i < 4; i++) {
        config.validation_frac = (double[]){-0.1, 1, 7, (double)NAN}[i];
        assert_int_equal(mist_data_open_config(&config, &data, &err), MIST_ERR_USAGE);
        assert_null(data);
    }
}

/* A file of zeros that takes no room, but for one uint16 1000. */
static const char *write_sparse(const char *name, int64_t n_tokens, int64_t place)
{
    const char *path = scratch_path(&scratch, name);
    FILE *stream = fopen(path, "wb");

    assert_non_null(stream);
    bool is_sparse = ftruncate(fileno(stream), 2 * n_tokens) == 0;
    if (is_sparse) {
        assert_int_equal(fseeko(stream, 2 * place, SEEK_SET), 0);
        assert_int_equal(fwrite("\xe8\x03", 1, 2, stream), 2);
    }
    assert_int_equal(fclose(stream), 0);
    if (!is_sparse) {
        print_message("no sparse file of %lld tokens in %s\n", (long long)n_tokens,
                      scratch.folder);
        skip();
    }
    return path;
}

/* 100 GB open, are fingerprinted and sampled like little. */
TEST(test_huge)
{
    enum { SEQ = 1024 };
    const int64_t n_tokens = (int64_t)50e9;
    const char *path = write_sparse("huge.u16", n_tokens, n_tokens - 1);
    static int32_t tokens[SEQ], targets[SEQ];
    struct mist_data *data;

    assert_int_equal(mist_data_open(&path, 1, &data, NULL), MIST_OK);
    assert_int_equal(mist_data_n_tokens(data), n_tokens);
    assert_int_equal(mist_data_n_samples(data, SEQ), (n_tokens - 1) / SEQ);
    assert_true(mist_data_fingerprint(data) != 0);
    for (int i = 0; i < 100; i++)
        read_batch(data, 1, i, 1, SEQ, 0, 1, tokens, targets);
    mist_data_close(data);
    assert_int_equal(remove(path), 0);
}

/* The last id that is looked at before the run, and the first one that only the samples
 * that hold it show to be too large. */
TEST(test_unchecked)
{
    enum { SEQ = 1 << 20 };
    const int64_t n_checked = MIST_DATA_CHECKED_TOKENS, n_tokens = n_checked + SEQ + 1;
    int32_t *tokens = malloc(2 * SEQ * sizeof *tokens), *targets = tokens + SEQ;
    struct mist_data *data;
    struct mist_err err;
    char expected[64];

    assert_non_null(tokens);
    const char *path = write_sparse("long.u16", n_tokens, n_checked - 1);
    assert_int_equal(mist_data_open(&path, 1, &data, NULL), MIST_OK);
    assert_int_equal(mist_data_check(data, 1001, SEQ, &err), MIST_OK);
    assert_int_equal(mist_data_check(data, 1000, SEQ, &err), MIST_ERR_INPUT);
    snprintf(expected, sizeof expected, "token %lld (from 0) is 1000",
             (long long)n_checked - 1);
    assert_non_null(strstr(err.message, expected));
    mist_data_close(data);

    path = write_sparse("long.u16", n_tokens, n_checked);
    assert_int_equal(mist_data_open(&path, 1, &data, NULL), MIST_OK);
    assert_int_equal(mist_data_check(data, 1, SEQ, &err), MIST_OK);
    assert_int_equal(mist_data_check(data, 1000, SEQ, &err), MIST_OK);
    snprintf(expected, sizeof expected, "token %lld (from 0) is 1000",
             (long long)n_checked);
    int n = (int)mist_data_n_samples(data, SEQ), n_refused = 0;
    for (int i = 0; i < n; i++) {
        if (mist_data_batch(data, 3, i, SEQ, 1, tokens, targets, &err) == MIST_OK)
            continue;
        assert_string_equal(err.path, path);
        assert_non_null(strstr(err.message, expected));
        n_refused++;
    }
    assert_int_equal(n_refused, 2); /* the first token of a window, a target before */
    mist_data_close(data);
    assert_int_equal(remove(path), 0);
    free(tokens);
}

TEST(test_errors)
{
    struct mist_data *data = open_text(), *none;
    struct mist_err err;
    const char *missing = "/nowhere/at/all";

    assert_int_equal(mist_data_check(data, 255, 4, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "256"));
    assert_int_equal(mist_data_check(data, 256, N_TEXT - 1, &err), MIST_OK);
    assert_int_equal(mist_data_check(data, 256, N_TEXT, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "1003 tokens"));
    assert_true(err.path[0] != '\0');
    assert_int_equal(mist_data_open(&missing, 1, &none, &err), MIST_ERR_IO);
    assert_string_equal(err.path, missing);
    assert_null(none);
    uint64_t fingerprint = mist_data_fingerprint(data);
    mist_data_close(data);
    data = open_text();
    assert_true(mist_data_fingerprint(data) == fingerprint);
    mist_data_close(data);
    mist_data_close(NULL);
}

/* Needs the folder of licence texts that Debian has. */
TEST(test_default)
{
    char **paths;
    int32_t n;
    struct mist_err err;
    struct mist_data *data;
    enum mist_status status = mist_data_default_paths(&paths, &n, &err);

    if (status == MIST_ERR_IO) {
        assert_non_null(strstr(err.message, "default training text"));
        skip();
    }
    assert_int_equal(status, MIST_OK);
    assert_true(n > 0);
    for (int32_t i = 0; i < n; i++) {
        char target[8];
        assert_int_equal(readlink(paths[i], target, sizeof target), -1);
        assert_true(i == 0 || strcmp(paths[i - 1], paths[i]) < 0);
    }
    assert_int_equal(mist_data_open((const char *const *)paths, n, &data, &err), MIST_OK);
    print_message("%ld files, %ld tokens\n", (long)n, (long)mist_data_n_tokens(data));
    mist_data_free_paths(paths, n);
    mist_data_close(data);
}

/* Whatever allocation fails: an error, and nothing is left behind. */
TEST(test_faults)
{
    char path[160];
    const char *paths[] = {path, path};
    int n_failed = 0;

    mist_data_close(open_text());
    snprintf(path, sizeof path, "text:%s", scratch_path(&scratch, "a"));
    for (long k = 1;; k++) {
        struct mist_data *data = NULL;
        char **found = NULL;
        int32_t n = 0;
        long n_live = fault_n_live();
        fault_arm(FAULT_MALLOC, k);
        enum mist_status status = mist_data_open(paths, 2, &data, NULL);
        if (status == MIST_OK)
            status = mist_data_default_paths(&found, &n, NULL);
        bool has_fired = fault_disarm();
        mist_data_close(data);
        mist_data_free_paths(found, n);
        assert_int_equal(fault_n_live(), n_live);
        if (!has_fired)
            break;
        /* stdio gets by without its buffer */
        assert_true(status == MIST_ERR_MEMORY || status == MIST_OK);
        n_failed += status != MIST_OK;
    }
    assert_true(n_failed >= 7);
}

TEST_MAIN(set_up, tear_down)
