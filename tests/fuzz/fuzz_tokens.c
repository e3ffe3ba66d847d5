/*
 * exec/data: token files of every format, with their index where they have one. In what
 * is accepted every sample is within the vocabulary, and targets are the tokens one
 * further.
 *
 * The input: a byte for the format, one for the length of sequences, one for the part
 * that is held out; then the file and its index.
 */
#include "exec/data/data.h"
#include "tests/fuzz/fuzz.h"

/* What the file is called, and by which name it is opened. */
static const struct {
    const char *prefix, *file;
} names[] = {
    {"", "x"},      {"", "x.bin"},      {"", "x.u16"},        {"", "x.u32"},
    {"text:", "x"}, {"uint16:", "x"},   {"uint32:", "x.bin"}, {"llmc:", "x.bin"},
    {"", "y.bin"},  {"megatron:", "y"}, {"", "y.idx"},        {"megatron:", "y.bin"},
};
enum { N_NAMES = sizeof names / sizeof *names, MAX_SEQ = 16, BATCH = 4, MAX_STEPS = 8 };

static void check_sample(const int32_t *tokens, const int32_t *targets, int64_t seq_len,
                         int64_t vocab)
{
    for (int64_t i = 0; i < seq_len; i++) {
        FUZZ_CHECK(
            tokens[i] >= 0 && tokens[i] < vocab && targets[i] >= 0 && targets[i] < vocab,
            "token %d, target %d of %lld", tokens[i], targets[i], (long long)vocab);
        FUZZ_CHECK(i == 0 || tokens[i] == targets[i - 1], "target %d before token %d",
                   targets[i - 1], tokens[i]);
    }
}

static void read_all(struct mist_data *data, int64_t seq_len, int64_t vocab)
{
    int32_t tokens[BATCH * MAX_SEQ], targets[BATCH * MAX_SEQ];
    int64_t n_steps = mist_data_n_samples(data, seq_len) / BATCH + 1;
    int64_t n_held = mist_data_n_validation_samples(data, seq_len) / BATCH;
    struct mist_err err = {0};

    for (int64_t step = 0; step < n_steps && step < MAX_STEPS; step++) {
        fuzz_must(
            mist_data_batch(data, 7, step * BATCH, seq_len, BATCH, tokens, targets, &err),
            &err);
        for (int i = 0; i < BATCH; i++)
            check_sample(tokens + i * seq_len, targets + i * seq_len, seq_len, vocab);
    }
    for (int64_t i = 0; i < n_held && i < MAX_STEPS; i++) {
        fuzz_must(mist_data_validation_batch(data, i, BATCH, seq_len, 0, BATCH, tokens,
                                             targets, &err),
                  &err);
        for (int k = 0; k < BATCH; k++)
            check_sample(tokens + k * seq_len, targets + k * seq_len, seq_len, vocab);
    }
    (void)mist_data_fingerprint(data);
}

/* The smallest vocabulary that is accepted; 2^31: none. */
static int64_t needed(struct mist_data *data, int64_t seq_len)
{
    int64_t refused = 0, accepted = INT64_C(1) << 31;

    while (accepted - refused > 1) {
        int64_t vocab = refused + (accepted - refused) / 2;
        if (mist_data_check(data, vocab, seq_len, NULL) == MIST_OK)
            accepted = vocab;
        else
            refused = vocab;
    }
    return accepted;
}

/* Of the vocabulary that the data asks for, and of one that is a token too small. */
static void look(struct mist_data *data, int64_t seq_len)
{
    int64_t vocab = needed(data, seq_len);
    struct mist_err err = {0};

    FUZZ_CHECK(mist_data_n_tokens(data) >= 0, "%lld tokens",
               (long long)mist_data_n_tokens(data));
    if (vocab > 1) {
        enum mist_status status = mist_data_check(data, vocab - 1, seq_len, &err);
        FUZZ_CHECK(status != MIST_OK, "an id of %lld", (long long)vocab - 1);
        fuzz_check_refusal(status, &err, false); /* text: about no file */
    }
    enum mist_status status = mist_data_check(data, vocab, seq_len, &err);
    if (status == MIST_OK)
        read_all(data, seq_len, vocab);
    else
        fuzz_check_refusal(status, &err, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n}, parts[2];
    unsigned kind = fuzz_take(&input) % N_NAMES,
             seq_len = 1 + fuzz_take(&input) % MAX_SEQ;
    double held_out = fuzz_take(&input) % 4 * 0.2;
    bool is_pair = names[kind].file[0] == 'y';
    char file[FUZZ_PATH_BYTES], index[FUZZ_PATH_BYTES], name[FUZZ_PATH_BYTES + 16];
    const char *paths[] = {name};
    struct mist_data_config config = {
        .paths = paths, .n = 1, .validation_frac = held_out};
    struct mist_data *data = NULL;
    struct mist_err err = {0};

    fuzz_split(input, parts, is_pair ? 2 : 1);
    if (!parts[0].bytes || (is_pair && !parts[1].bytes))
        return 0;
    fuzz_path(file, names[kind].file);
    snprintf(name, sizeof name, "%s%s", names[kind].prefix, file);
    fuzz_write(is_pair ? fuzz_path(file, "y.bin") : file, parts[0]);
    if (is_pair)
        fuzz_write(fuzz_path(index, "y.idx"), parts[1]);
    enum mist_status status = mist_data_open_config(&config, &data, &err);
    if (status == MIST_OK) {
        look(data, seq_len);
    } else {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!data, "out was touched");
    }
    mist_data_close(data);
    return 0;
}

/* ---- seeds ---- */

static void add_numbers(struct fuzz_buffer *buffer, size_t n_bytes, const int64_t *values,
                        size_t n)
{
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_bytes; k++) {
            uint8_t byte = (uint8_t)((uint64_t)values[i] >> (8 * k));
            fuzz_add(buffer, &byte, 1);
        }
}

static const int64_t ids[] = {1, 5, 2, 9, 0, 300, 44, 45, 46, 47, 48, 2};
enum { N_IDS = sizeof ids / sizeof *ids };

static void seed_llmc(void)
{
    int64_t header[256] = {20240520, 1, N_IDS};
    struct fuzz_buffer buffer = {0};

    fuzz_add_text(&buffer, "100"); /* '1' % N_NAMES: x.bin */
    add_numbers(&buffer, 4, header, 256);
    add_numbers(&buffer, 2, ids, N_IDS);
    fuzz_seed("llmc16", &buffer);
    header[0] = 20240801;
    header[1] = 7;
    fuzz_add_text(&buffer, "112");
    add_numbers(&buffer, 4, header, 256);
    add_numbers(&buffer, 4, ids, N_IDS);
    fuzz_seed("llmc32", &buffer);
}

static void seed_megatron(void)
{
    static const int64_t one[] = {1}, counts[] = {2, 3}, lengths[] = {8, 4};
    static const int64_t pointers[] = {0, 16}, marks[] = {0, 1, 2};
    struct fuzz_buffer buffer = {0};

    fuzz_add_text(&buffer, "801"); /* '8' % N_NAMES: y.bin */
    add_numbers(&buffer, 2, ids, N_IDS);
    fuzz_add_text(&buffer, FUZZ_NEXT);
    fuzz_add(&buffer, "MMIDIDX\0", 9);
    add_numbers(&buffer, 8, one, 1);
    fuzz_add(&buffer, "\x08", 1);
    add_numbers(&buffer, 8, counts, 2);
    add_numbers(&buffer, 4, lengths, 2);
    add_numbers(&buffer, 8, pointers, 2);
    add_numbers(&buffer, 8, marks, 3);
    fuzz_seed("megatron", &buffer);
}

void fuzz_write_seeds(void)
{
    struct fuzz_buffer buffer = {0};

    fuzz_seed_text("text", "003To be read, a text needs nothing but its bytes.\n");
    fuzz_add_text(&buffer, "231");
    add_numbers(&buffer, 2, ids, N_IDS);
    fuzz_seed("uint16", &buffer);
    fuzz_add_text(&buffer, "630");
    add_numbers(&buffer, 4, ids, N_IDS);
    fuzz_seed("uint32", &buffer);
    seed_llmc();
    seed_megatron();
}
