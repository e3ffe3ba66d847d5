/*
 * exec/data: every format, written here byte by byte and read back; what is refused, and
 * with which words; and 2000 damaged files, which are refused or read within bounds.
 */
#include "tests/unit/test.h"

#include "tests/unit/scratch_group.h"

#include "core/random.h"
#include "exec/data/data.h"

#include <sys/stat.h>

enum { MAX_TOKENS = 4096, MAX_BYTES = 1 << 16 };

/* ---------------------------------------------------------------------------- writing */

/* A file in the making. */
struct bytes {
    uint8_t at[MAX_BYTES];
    size_t n;
};

/* The n_bytes low bytes of value, lowest first. */
static void put(struct bytes *bytes, int64_t value, int n_bytes)
{
    assert_true(bytes->n + (size_t)n_bytes <= sizeof bytes->at);
    for (int i = 0; i < n_bytes; i++)
        bytes->at[bytes->n++] = (uint8_t)((uint64_t)value >> (8 * i));
}

static void save(const struct bytes *bytes, const char *name)
{
    FILE *stream = fopen(scratch_path(&scratch, name), "wb");

    assert_non_null(stream);
    assert_int_equal(fwrite(bytes->at, 1, bytes->n, stream), bytes->n);
    assert_int_equal(fclose(stream), 0);
}

static void put_tokens(struct bytes *bytes, const int64_t *tokens, int n, int n_bytes)
{
    for (int i = 0; i < n; i++)
        put(bytes, tokens[i], n_bytes);
}

static void save_flat(const char *name, const int64_t *tokens, int n, int n_bytes)
{
    struct bytes bytes = {.n = 0};

    put_tokens(&bytes, tokens, n, n_bytes);
    save(&bytes, name);
}

static void put_llmc(struct bytes *bytes, const int64_t *tokens, int n, bool is_wide)
{
    put(bytes, is_wide ? 20240801 : 20240520, 4);
    put(bytes, is_wide ? 7 : 1, 4);
    put(bytes, n, 4);
    while (bytes->n < 1024)
        put(bytes, 0, 1);
    put_tokens(bytes, tokens, n, is_wide ? 4 : 2);
}

/* numpy's names in Megatron's order; bytes of each. */
static const int code_bytes[] = {0, 1, 1, 2, 4, 8, 8, 4, 2};

/* The index of sequences of the given lengths, of which each is a document. */
static void put_index(struct bytes *bytes, int code, const int *lengths, int n)
{
    int64_t offset = 0;

    memcpy(bytes->at, "MMIDIDX\0\0", 9);
    bytes->n = 9;
    put(bytes, 1, 8);
    put(bytes, code, 1);
    put(bytes, n, 8);
    put(bytes, n + 1, 8);
    for (int i = 0; i < n; i++)
        put(bytes, lengths[i], 4);
    for (int i = 0; i < n; i++) {
        put(bytes, offset, 8);
        offset += (int64_t)lengths[i] * code_bytes[code];
    }
    for (int i = 0; i <= n; i++)
        put(bytes, i, 8);
}

/* ---------------------------------------------------------------------------- reading */

/* Opens name (with a prefix before the folder, "" for none). */
static enum mist_status open_one(const char *prefix, const char *name,
                                 struct mist_data **data, struct mist_err *err)
{
    char full[160];
    const char *path = full;

    snprintf(full, sizeof full, "%s%s", prefix, scratch_path(&scratch, name));
    return mist_data_open(&path, 1, data, err);
}

/* The stream is exactly these tokens: one window as long as it goes. */
static void check_stream(struct mist_data *data, const int64_t *tokens, int n)
{
    int32_t inputs[MAX_TOKENS], targets[MAX_TOKENS];
    struct mist_err err;

    assert_int_equal(mist_data_n_tokens(data), n);
    assert_int_equal(mist_data_n_samples(data, n - 1), 1);
    assert_int_equal(mist_data_batch(data, 1, 0, n - 1, 1, inputs, targets, &err),
                     MIST_OK);
    for (int i = 0; i < n - 1; i++) {
        assert_int_equal(inputs[i], tokens[i]);
        assert_int_equal(targets[i], tokens[i + 1]);
    }
    mist_data_close(data);
}

static void check_file(const char *prefix, const char *name, const int64_t *tokens, int n)
{
    struct mist_data *data;
    struct mist_err err;

    if (open_one(prefix, name, &data, &err) != MIST_OK)
        fail_msg("%s%s: %s", prefix, name, err.message);
    check_stream(data, tokens, n);
}

/* Refused with this status, about a file that ends in about, in words with these. */
static void check_refused(const char *prefix, const char *name, enum mist_status status,
                          const char *about, const char *words)
{
    struct mist_data *data;
    struct mist_err err;

    assert_int_equal(open_one(prefix, name, &data, &err), status);
    assert_null(data);
    size_t n = strlen(err.path), n_about = strlen(about);
    assert_true(n > n_about);
    assert_string_equal(err.path + n - n_about, about);
    if (!strstr(err.message, words))
        fail_msg("%s, expected: %s", err.message, words);
}

static void fill_tokens(int64_t *tokens, int n, int64_t bound)
{
    struct mist_random random;

    mist_random_init(&random, 1);
    for (int i = 0; i < n; i++)
        tokens[i] = mist_random_below(&random, bound);
    tokens[0] = bound - 1;
}

/* ---------------------------------------------------------------------------- formats */

TEST(test_flat)
{
    int64_t tokens[1001];

    fill_tokens(tokens, 1001, 65536);
    save_flat("a.u16", tokens, 1001, 2);
    save_flat("a", tokens, 1001, 2);
    save_flat("a.bin", tokens, 1001, 2); /* as nanoGPT has it */
    check_file("", "a.u16", tokens, 1001);
    check_file("uint16:", "a.u16", tokens, 1001);
    check_file("uint16:", "a", tokens, 1001);
    check_file("uint16:", "a.bin", tokens, 1001);
    check_refused("", "a.bin", MIST_ERR_INPUT, "/a.bin", "uint16:");
    check_refused("llmc:", "a.bin", MIST_ERR_INPUT, "/a.bin", "no header of llm.c");
    check_refused("uint32:", "a.u16", MIST_ERR_INPUT, "/a.u16",
                  "2002 bytes, which is no multiple of the 4");
    fill_tokens(tokens, 1001, INT32_MAX);
    save_flat("a.u32", tokens, 1001, 4);
    check_file("", "a.u32", tokens, 1001);
    check_file("uint32:", "a.u32", tokens, 1001);
    save_flat("odd.u16", tokens, 33, 1);
    check_refused("", "odd.u16", MIST_ERR_INPUT, "/odd.u16", "has 33 bytes");
}

TEST(test_text)
{
    int64_t tokens[300];

    for (int i = 0; i < 300; i++)
        tokens[i] = 255 - i % 255;
    save_flat("text.md", tokens, 300, 1);
    check_file("", "text.md", tokens, 300);
    save_flat("text,with,commas", tokens, 300, 1);
    check_file("", "text,with,commas", tokens, 300);
    tokens[299] = 0;
    save_flat("text.md", tokens, 300, 1);
    check_refused("", "text.md", MIST_ERR_INPUT, "/text.md",
                  "no text (it has bytes of 0)");
    check_file("text:", "text.md", tokens, 300);
    save_flat("text.bin", tokens, 300, 1);
    check_file("text:", "text.bin", tokens, 300);
    check_refused("", "no.txt", MIST_ERR_IO, "/no.txt", "No such file");
    check_refused("", ".", MIST_ERR_IO, "/.", "is a folder, expected a file");
    assert_int_equal(mkfifo(scratch_path(&scratch, "pipe"), 0600), 0);
    check_refused("", "pipe", MIST_ERR_IO, "/pipe", "is no regular file");
}

/* What people have, by the first bytes that each tool writes. text: insists; no prefix makes
 * ids of them. */
TEST(test_foreign)
{
    static const struct {
        const char *name, *head, *words;
    } cases[] = {
        {"ids.npy", "\x93NUMPY\x01 v {'descr': '<u2', 'fortran_order': False}", "NumPy"},
        {"t.parquet", "PAR1\x15\x04\x15\x10", "Parquet"},
        {"t.arrow", "ARROW1  \xff\xff\xff\xff", "Arrow"},
        {"t.h5", "\x89HDF\r\n\x1a\n\x01\x02", "HDF5"},
        {"t.npz", "PK\x03\x04\x14\x01", "zip"},
        {"book.txt.zst", "\x28\xb5\x2f\xfd\x24\x06", "zstd"},
        {"book.txt.xz", "\xfd\x37zXZ\x01", "xz"},
        {"book.txt.gz", "\x1f\x8b\x08\x08", "gzip"},
        {"lines.jsonl", "{\"text\": \"once\"}\n", "JSON lines"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t tokens[64];
        int n = (int)strlen(cases[i].head);
        char about[32];
        for (int k = 0; k < n; k++)
            tokens[k] = (uint8_t)cases[i].head[k];
        save_flat(cases[i].name, tokens, n, 1);
        snprintf(about, sizeof about, "/%s", cases[i].name);
        check_refused("", cases[i].name, MIST_ERR_INPUT, about, cases[i].words);
        check_file("text:", cases[i].name, tokens, n);
        if (cases[i].head[0] != '{')
            check_refused("uint16:", cases[i].name, MIST_ERR_INPUT, about,
                          "expected plain text or a token file");
    }
}

TEST(test_llmc)
{
    int64_t tokens[700];
    struct bytes bytes = {.n = 0};

    fill_tokens(tokens, 700, 50257);
    put_llmc(&bytes, tokens, 700, false);
    save(&bytes, "gpt.bin");
    check_file("", "gpt.bin", tokens, 700);
    check_file("llmc:", "gpt.bin", tokens, 700);
    save(&bytes, "gpt.tokens"); /* the magic is enough */
    check_file("", "gpt.tokens", tokens, 700);
    bytes.n -= 1;
    save(&bytes, "cut.bin");
    check_refused("", "cut.bin", MIST_ERR_INPUT, "/cut.bin", "says 700 tokens");
    bytes.n = 1023;
    save(&bytes, "cut.bin");
    check_refused("", "cut.bin", MIST_ERR_INPUT, "/cut.bin", "has 1023 bytes");
    bytes.n = 1024 + 1400;
    put(&bytes, 0, 2);
    save(&bytes, "long.bin");
    check_refused("", "long.bin", MIST_ERR_INPUT, "/long.bin", "says 700 tokens");
    bytes.n = 1024 + 1400;
    bytes.at[4] = 2;
    save(&bytes, "version.bin");
    check_refused("", "version.bin", MIST_ERR_INPUT, "/version.bin",
                  "version 2 of the llm.c header 20240520, expected 1");
    bytes.at[4] = 1;
    bytes.at[11] = 0x80;
    save(&bytes, "negative.bin");
    check_refused("", "negative.bin", MIST_ERR_INPUT, "/negative.bin", "says -");
    bytes.n = 0;
    put(&bytes, 0x88d83401, 4); /* 20240520 is 0x0134d888 */
    save(&bytes, "big.bin");
    check_refused("", "big.bin", MIST_ERR_INPUT, "/big.bin", "big-endian");
    fill_tokens(tokens, 700, 128256);
    bytes.n = 0;
    put_llmc(&bytes, tokens, 700, true);
    save(&bytes, "llama.bin");
    check_file("", "llama.bin", tokens, 700);
}

/* A set of three sequences in two documents, uint16, as Python's struct packs it. */
TEST(test_megatron_golden)
{
    static const uint8_t index[94] = {
        0x4d, 0x4d, 0x49, 0x44, 0x49, 0x44, 0x58, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 8, 3,
        0,    0,    0,    0,    0,    0,    0,    3, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0,
        1,    0,    0,    0,    2,    0,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0,
        0,    0,    0,    0,    0,    8,    0,    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
        0,    0,    2,    0,    0,    0,    0,    0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0};
    const int64_t tokens[] = {1, 2, 3, 40000, 7, 8};
    struct bytes bytes = {.n = sizeof index};

    memcpy(bytes.at, index, sizeof index);
    save(&bytes, "golden.idx");
    save_flat("golden.bin", tokens, 6, 2);
    check_file("", "golden.idx", tokens, 6);
}

/* What is read of a set, sequence by sequence where the index says, by stdio. */
static int read_naively(const char *name, int64_t *tokens)
{
    char path[160];
    uint8_t header[34];
    int n = 0;

    snprintf(path, sizeof path, "%s.idx", scratch_path(&scratch, name));
    FILE *idx = fopen(path, "rb");
    snprintf(path, sizeof path, "%s.bin", scratch_path(&scratch, name));
    FILE *bin = fopen(path, "rb");
    assert_true(idx && bin && fread(header, 1, 34, idx) == 34);
    int n_sequences = header[18] + 256 * header[19], n_bytes = code_bytes[header[17]];
    for (int i = 0; i < n_sequences; i++) {
        int32_t length;
        int64_t offset;
        assert_int_equal(fseek(idx, 34 + 4L * i, SEEK_SET), 0);
        assert_int_equal(fread(&length, sizeof length, 1, idx), 1);
        assert_int_equal(fseek(idx, 34 + 4L * n_sequences + 8L * i, SEEK_SET), 0);
        assert_int_equal(fread(&offset, sizeof offset, 1, idx), 1);
        assert_int_equal(fseek(bin, (long)offset, SEEK_SET), 0);
        for (int k = 0; k < length; k++) {
            tokens[n] = 0;
            assert_int_equal(fread(&tokens[n++], (size_t)n_bytes, 1, bin), 1);
        }
    }
    fclose(idx);
    fclose(bin);
    return n;
}

/* Every integer type, named by prefix, either file, with and without a prefix. */
TEST(test_megatron)
{
    static const int lengths[] = {5, 1, 0, 300, 17, 0};
    int64_t tokens[323], naive[323];

    for (int code = 1; code <= 8; code++) {
        struct bytes bytes = {.n = 0};
        int n_bytes = code_bytes[code];
        bool is_float = code == 6 || code == 7;
        fill_tokens(tokens, 323, n_bytes == 1 ? 128 : n_bytes == 2 ? 32768 : 100000);
        if (code == 8)
            tokens[9] = 65535;
        put_index(&bytes, code, lengths, 6);
        save(&bytes, "set.idx");
        save_flat("set.bin", tokens, 323, n_bytes);
        if (is_float) {
            check_refused("", "set", MIST_ERR_INPUT, "/set.idx", "float");
            continue;
        }
        assert_int_equal(read_naively("set", naive), 323);
        check_file("", "set", naive, 323);
        check_file("", "set.bin", naive, 323);
        check_file("", "set.idx", naive, 323);
        check_file("megatron:", "set", naive, 323);
        check_file("megatron:", "set.bin", naive, 323);
        check_file("megatron:", "s?t.bin", naive, 323);
        check_file("", "set.*", naive, 323); /* two files of one set */
    }
    assert_int_equal(remove(scratch_path(&scratch, "set.idx")), 0);
    check_refused("", "set", MIST_ERR_IO, "/set.idx", "No such file");
    check_refused("", "set.idx", MIST_ERR_IO, "/set.idx", "No such file");
    check_refused("megatron:", "set.bin", MIST_ERR_IO, "/set.idx", "No such file");
    check_refused("", "set.bin", MIST_ERR_INPUT, "/set.bin", ".idx beside it");
}

/* One byte of a good index is another, and the words say which number is wrong. */
TEST(test_megatron_damage)
{
    static const int lengths[] = {5, 1, 4};
    /* offsets of 3 sequences: header 34, lengths 34, pointers 46, documents 70,
     * end 102 */
    static const struct {
        int at, value;
        const char *words;
    } cases[] = {
        {0, 'm', "MMIDIDX"},
        {8, 1, "MMIDIDX"},
        {9, 2, "version 2"},
        {16, 1, "version 72057594037927937"},
        {17, 0, "type code 0"},
        {17, 9, "type code 9"},
        {17, 255, "type code 255"},
        {17, 7, "float32"},
        {17, 4, "starts at byte 10, the ones before it end at 20"},
        {18, 4, "do not hold 4 sequences"},
        {25, 255, "do not hold"},
        {25, 0x40, "do not hold"},
        {26, 5, "5 document marks"},
        {33, 0x20, "do not hold"},
        {34, 4, "sequence 1 starts at byte 10, the ones before it end at 8"},
        {37, 0x80, "sequence 0 has a negative length"},
        {42, 5, "sequence 2 ends at byte 22 of a .bin that has 20"},
        {42, 3, "its sequences have 18 bytes, the .bin has 20"},
        {46, 2, "sequence 0 starts at byte 2"},
        {69, 0x80, "sequence 2 starts at byte"},
        {78, 4, "document mark 1 is 4, expected 0 to 3"},
        {86, 0, "document mark 2 is 0, expected 1 to 3"},
        {101, 0x80, "document mark 3"},
    };
    int64_t tokens[11];
    struct bytes good = {.n = 0};

    fill_tokens(tokens, 11, 60000);
    save_flat("bad.bin", tokens, 10, 2);
    put_index(&good, 8, lengths, 3);
    assert_int_equal(good.n, 102);
    save(&good, "bad.idx");
    check_file("", "bad", tokens, 10);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes bytes = good;
        bytes.at[cases[i].at] = (uint8_t)cases[i].value;
        save(&bytes, "bad.idx");
        check_refused("", "bad", MIST_ERR_INPUT, "/bad.idx", cases[i].words);
    }
    struct bytes bytes = good;
    put(&bytes, 0, 3);
    save(&bytes, "bad.idx");
    check_refused("", "bad", MIST_ERR_INPUT, "/bad.idx", "multimodal");
    for (bytes.n = 0; bytes.n < 102; bytes.n++) {
        save(&bytes, "bad.idx");
        check_refused("", "bad", MIST_ERR_INPUT, "/bad.idx", "bytes");
    }
    save(&good, "bad.idx");
    save_flat("bad.bin", tokens, 11, 2);
    check_refused("", "bad", MIST_ERR_INPUT, "/bad.idx",
                  "have 20 bytes, the .bin has 22");
    save_flat("bad.bin", tokens, 9, 2);
    check_refused("", "bad", MIST_ERR_INPUT, "/bad.idx", "of a .bin that has 18");
}

/* Token formats are one stream, whatever their widths, empty files among them; text is
 * refused among them. */
TEST(test_mixed)
{
    static const int lengths[] = {40, 60};
    char names[5][128];
    const char *paths[5];
    int64_t tokens[400];
    struct bytes bytes = {.n = 0};
    struct mist_data *data, *same;
    struct mist_err err;

    fill_tokens(tokens, 400, 50000);
    save_flat("m1.u16", tokens, 100, 2);
    save_flat("m2.u32", tokens, 0, 4);
    save_flat("m3.u32", tokens + 100, 100, 4);
    put_llmc(&bytes, tokens + 200, 100, false);
    save(&bytes, "m4.bin");
    put_index(&bytes, 4, lengths, 2);
    save(&bytes, "m5.idx");
    save_flat("m5.bin", tokens + 300, 100, 4);
    for (int i = 0; i < 5; i++) {
        static const char *const all[] = {"m1.u16", "m2.u32", "m3.u32", "m4.bin", "m5"};
        snprintf(names[i], sizeof names[i], "%s", scratch_path(&scratch, all[i]));
        paths[i] = names[i];
    }
    assert_int_equal(mist_data_open(paths, 5, &data, &err), MIST_OK);
    save_flat("all.u32", tokens, 400, 4);
    assert_int_equal(open_one("", "all.u32", &same, &err), MIST_OK);
    assert_true(mist_data_fingerprint(data) == mist_data_fingerprint(same));
    mist_data_close(same);
    for (int seq_len = 1; seq_len < 40; seq_len++) { /* windows across files */
        int n = (int)mist_data_n_samples(data, seq_len), n_seen[400] = {0};
        assert_int_equal(n, 399 / seq_len);
        for (int i = 0; i < n; i++) {
            int32_t inputs[40], targets[40];
            int w = 0;
            assert_int_equal(
                mist_data_batch(data, 4, i, seq_len, 1, inputs, targets, &err), MIST_OK);
            for (bool is_same = false; !is_same && w < n; w += !is_same) {
                is_same = !n_seen[w];
                for (int k = 0; k < seq_len; k++)
                    is_same = is_same && inputs[k] == tokens[w * seq_len + k] &&
                              targets[k] == tokens[w * seq_len + k + 1];
            }
            assert_true(w < n);
            n_seen[w]++;
        }
    }
    check_stream(data, tokens, 400);
    scratch_write(scratch_path(&scratch, "m.txt"), "text");
    snprintf(names[2], sizeof names[2], "%s", scratch_path(&scratch, "m.txt"));
    assert_int_equal(mist_data_open(paths, 5, &data, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, names[2]);
    assert_non_null(strstr(err.message, "is text"));
    assert_int_equal(mist_data_open(paths + 2, 3, &data, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, names[3]);
    struct mist_data_config config = {paths + 3, 2, paths + 2, 1, 0};
    assert_int_equal(mist_data_open_config(&config, &data, &err), MIST_ERR_INPUT);
    assert_string_equal(err.path, names[2]);
    assert_null(data);
}

/* Ids that no model has: found before the run, with file and place, in every type. */
TEST(test_vocabulary)
{
    static const int length = 50;
    static const int codes[] = {4, 5, 3, 2}; /* int32, int64, int16, int8 */
    int64_t tokens[50];
    struct bytes bytes = {.n = 0};
    struct mist_data *data;
    struct mist_err err;
    int32_t inputs[50], targets[50];

    fill_tokens(tokens, 50, 100);
    save_flat("v.u16", tokens, 50, 2);
    assert_int_equal(open_one("", "v.u16", &data, &err), MIST_OK);
    assert_int_equal(mist_data_check(data, 100, 49, &err), MIST_OK);
    assert_int_equal(mist_data_check(data, 100, 50, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "has 50 tokens, one sample of 50 needs 51"));
    assert_int_equal(mist_data_check(data, 99, 49, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "token 0 (from 0) is 99, expected 0 to 98"));
    mist_data_close(data);
    tokens[33] = 0xffffffff;
    save_flat("v.u32", tokens, 50, 4);
    assert_int_equal(open_one("", "v.u32", &data, &err), MIST_OK);
    assert_int_equal(mist_data_batch(data, 1, 0, 49, 1, inputs, targets, &err),
                     MIST_ERR_INPUT); /* unchecked, but no int32 */
    assert_int_equal(mist_data_check(data, (int64_t)1 << 40, 9, &err), MIST_ERR_INPUT);
    assert_non_null(strstr(err.message, "token 33 (from 0) is 4294967295"));
    mist_data_close(data);
    for (int i = 0; i < 4; i++) {
        tokens[33] = -7;
        bytes.n = 0;
        put_index(&bytes, codes[i], &length, 1);
        save(&bytes, "v.idx");
        save_flat("v.bin", tokens, 50, code_bytes[codes[i]]);
        assert_int_equal(open_one("", "v", &data, &err), MIST_OK);
        assert_int_equal(mist_data_check(data, 1000000, 9, &err), MIST_ERR_INPUT);
        assert_non_null(strstr(err.message, "token 33 (from 0) is -7"));
        mist_data_close(data);
    }
}

/* ---------------------------------------------------------------------------- damage */

/* Whatever opens reads within bounds, or says that an id is out of them. */
static bool read_damaged(const char *name)
{
    enum { SEQ = 7, VOCAB = 50000 };
    struct mist_data *data;
    struct mist_err err = {.path = ""};
    bool is_good = true;

    if (open_one("", name, &data, &err) != MIST_OK) {
        assert_null(data);
        assert_true(err.path[0] != '\0' && err.message[0] != '\0');
        return false;
    }
    if (mist_data_check(data, VOCAB, SEQ, &err) != MIST_OK)
        is_good = false;
    (void)mist_data_fingerprint(data);
    for (int i = 0; i < mist_data_n_samples(data, SEQ); i++) {
        int32_t inputs[SEQ], targets[SEQ];
        enum mist_status status =
            mist_data_batch(data, 2, i, SEQ, 1, inputs, targets, &err);
        assert_true(status == MIST_OK || (status == MIST_ERR_INPUT && !is_good));
        for (int k = 0; status == MIST_OK && k < SEQ; k++) {
            assert_in_range(inputs[k], 0, VOCAB - 1);
            assert_in_range(targets[k], 0, VOCAB - 1);
        }
    }
    mist_data_close(data);
    return is_good;
}

TEST(test_fuzz)
{
    static const int lengths[] = {30, 0, 25, 1, 44};
    int64_t tokens[100];
    int n_good = 0, n_refused = 0;
    struct mist_random random;

    mist_random_init(&random, test_seed(1));
    fill_tokens(tokens, 100, 50000);
    for (int i = 0; i < 2000; i++) {
        struct bytes bytes = {.n = 0};
        bool is_index = i % 2;
        if (is_index) {
            static const int codes[] = {8, 4, 5};
            int code = codes[i / 2 % 3];
            put_index(&bytes, code, lengths, 5);
            save_flat("fuzz.bin", tokens, 100, code_bytes[code]);
        } else {
            put_llmc(&bytes, tokens, 100, i / 2 % 2);
            remove(scratch_path(&scratch, "fuzz.idx"));
        }
        size_t n_hit = is_index || i % 4 ? bytes.n : 16; /* often the header's start */
        for (int64_t k = mist_random_below(&random, 4); k >= 0; k--)
            bytes.at[mist_random_below(&random, (int64_t)n_hit)] ^=
                (uint8_t)(1 << mist_random_below(&random, 8));
        if (i % 16 >= 14)
            bytes.n = (size_t)mist_random_below(&random, (int64_t)bytes.n);
        save(&bytes, is_index ? "fuzz.idx" : "fuzz.bin");
        bool is_good = read_damaged(is_index ? "fuzz.idx" : "fuzz.bin");
        n_good += is_good;
        n_refused += !is_good;
    }
    print_message("%d refused, %d read\n", n_refused, n_good);
    assert_true(n_refused > 500 && n_good > 100);
}

TEST_MAIN(set_up, tear_down)
