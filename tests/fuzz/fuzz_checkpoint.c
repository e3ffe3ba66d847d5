/*
 * exec/checkpoint: a folder of a manifest and the files of up to two ranks. What passes
 * verification is read, saved by one rank, and read as the same bits.
 *
 * A fuzzer can't guess checksums. The first byte says whether they count; where they
 * don't, all are 0, "@0" and "@1" in the manifest stand for the sizes of the two files,
 * and the size of a table is what its place leaves. So every check behind them is
 * reached.
 */
#include "exec/checkpoint/checkpoint.h"
#include "exec/checkpoint/checkpoint_internal.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/whole_tensors.h"

#include <inttypes.h>
#include <sys/stat.h>

enum { MAX_FILES = 2, MAX_ELEMENTS = 1 << 12, HEADER_BYTES = 64, FOOTER_BYTES = 32 };

#define RUN_ID UINT64_C(0x5eed) /* of what is written here */

static bool sums_count;

uint64_t __real_mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed);
uint64_t __wrap_mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed);
uint64_t __wrap_mist_checkpoint_sum(const void *bytes, size_t n, uint64_t seed)
{
    return sums_count ? __real_mist_checkpoint_sum(bytes, n, seed) : 0;
}

static const struct mist_model model = {.name = "tiny",
                                        .family = MIST_FAMILY_GPT,
                                        .n_layers = 1,
                                        .hidden = 4,
                                        .n_heads = 2,
                                        .n_kv_heads = 2,
                                        .head_dim = 2,
                                        .ffn = 6,
                                        .vocab = 5,
                                        .max_seq = 8,
                                        .norm_epsilon = 1e-5};

/* --------------------------------------------------------------------------- reading */

/* All values of a tensor; false: refused. */
static bool read_tensor(struct mist_checkpoint *checkpoint, const char *name,
                        float *values)
{
    int64_t n = whole_n_elements(checkpoint, name);
    struct mist_err err = {0};
    enum mist_status status = whole_read(checkpoint, name, 0, n, values, &err);

    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    return status == MIST_OK;
}

static bool is_small(const struct mist_checkpoint *checkpoint)
{
    for (int32_t i = 0; i < whole_n_tensors(checkpoint); i++) {
        const char *name = whole_name(checkpoint, i);
        int64_t n = whole_n_elements(checkpoint, name);
        FUZZ_CHECK(n >= 1, "%s has %" PRId64 " elements", name, n);
        if (n > MAX_ELEMENTS)
            return false;
    }
    return true;
}

/* Reads every tensor; false: one was refused. */
static bool read_all(struct mist_checkpoint *checkpoint)
{
    static float values[MAX_ELEMENTS];
    struct mist_err err = {0};
    bool is_whole = true;

    if (mist_checkpoint_check_model(checkpoint, &model, &err) != MIST_OK)
        fuzz_check_refusal(MIST_ERR_INPUT, &err, true);
    for (int32_t i = 0; i < whole_n_tensors(checkpoint); i++)
        is_whole &= read_tensor(checkpoint, whole_name(checkpoint, i), values);
    return is_whole;
}

/* --------------------------------------------------------------------------- writing */

/* The checkpoint's tensors, or without one some numbers, as those of one rank of n_ranks:
 * rank 0 holds the even runs of 4, rank 1 the odd ones. */
static void write_rank(struct mist_checkpoint *checkpoint, const char *dir, int64_t step,
                       int32_t rank, int32_t n_ranks)
{
    static const char *const names[] = {"0/wte/weight", "1/qkv.weight/moment1"};
    const struct mist_checkpoint_save save = {dir, RUN_ID, step, n_ranks};
    float values[MAX_ELEMENTS];
    struct mist_checkpoint_writer *writer;
    struct mist_err err = {0};
    int32_t n_tensors = checkpoint ? whole_n_tensors(checkpoint) : 2;

    fuzz_must(mist_checkpoint_writer_open(&save, rank, &writer, &err), &err);
    for (int32_t i = 0; i < n_tensors; i++) {
        const char *name = checkpoint ? whole_name(checkpoint, i) : names[i];
        int64_t n = checkpoint ? whole_n_elements(checkpoint, name) : 16;
        struct mist_param_span whole = {.length = n, .n_runs = 1};
        struct mist_param_span half = {
            .global_first = 4 * rank, .length = 4, .n_runs = 2, .global_stride = 8};
        for (int64_t k = 0; !checkpoint && k < n; k++)
            values[k] = (float)(k + i);
        if (checkpoint)
            FUZZ_CHECK(read_tensor(checkpoint, name, values), "%s", name);
        fuzz_must(mist_checkpoint_add_piece(writer, name, n, n_ranks > 1 ? &half : &whole,
                                            1, values, &err),
                  &err);
    }
    fuzz_must(mist_checkpoint_writer_close(writer, &err), &err);
}

static void commit(const char *dir, int64_t step, int32_t n_ranks, const json_t *training)
{
    const struct mist_checkpoint_save save = {dir, RUN_ID, step, n_ranks};
    struct mist_err err = {0};

    fuzz_must(mist_checkpoint_commit(&save, &model, training, 1, NULL, &err), &err);
}

static void compare(struct mist_checkpoint *a, struct mist_checkpoint *b)
{
    static float x[MAX_ELEMENTS], y[MAX_ELEMENTS];

    FUZZ_CHECK(whole_n_tensors(a) == whole_n_tensors(b), "tensors are lost");
    for (int32_t i = 0; i < whole_n_tensors(a); i++) {
        const char *name = whole_name(a, i);
        int64_t n = whole_n_elements(a, name);
        FUZZ_CHECK(whole_n_elements(b, name) == n, "%s", name);
        FUZZ_CHECK(read_tensor(a, name, x) && read_tensor(b, name, y) &&
                       memcmp(x, y, (size_t)n * sizeof *x) == 0,
                   "%s has other bits", name);
    }
}

static void check_round_trip(struct mist_checkpoint *checkpoint)
{
    char dir[FUZZ_PATH_BYTES], *path = NULL;
    int64_t step = mist_checkpoint_step(checkpoint);
    struct mist_json training = mist_checkpoint_training(checkpoint);
    struct mist_checkpoint *again;
    struct mist_err err = {0}, warning;

    fuzz_path(dir, "out");
    write_rank(checkpoint, dir, step, 0, 1);
    commit(dir, step, 1, training.value);
    fuzz_must(mist_checkpoint_find(dir, NULL, &path, &warning, &err), &err);
    fuzz_must(mist_checkpoint_verify(path, &err), &err);
    fuzz_must(mist_checkpoint_open(path, &again, &err), &err);
    FUZZ_CHECK(mist_checkpoint_step(again) == step, "another step");
    FUZZ_CHECK(json_equal(mist_checkpoint_training(again).value, training.value),
               "another training state");
    compare(checkpoint, again);
    mist_checkpoint_close(again);
    free(path);
}

/* ---------------------------------------------------------------------------- inputs */

/* Writes the manifest with "@0" and "@1" replaced. */
static void write_manifest(const char *path, struct fuzz_bytes text,
                           const struct fuzz_bytes *files)
{
    struct fuzz_buffer out = {0};

    for (size_t i = 0; i < text.n; i++) {
        unsigned file =
            text.bytes[i] == '@' && i + 1 < text.n ? text.bytes[i + 1] - '0' : MAX_FILES;
        if (sums_count || file >= MAX_FILES) {
            fuzz_add(&out, text.bytes + i, 1);
            continue;
        }
        char digits[24];
        snprintf(digits, sizeof digits, "%zu", files[file].n);
        fuzz_add_text(&out, digits);
        i++;
    }
    fuzz_write(path, (struct fuzz_bytes){out.bytes ? out.bytes : text.bytes, out.n});
    free(out.bytes);
}

/* The footer's second number, bytes of the table, becomes what the first one leaves. */
static void write_rank_file(const char *path, struct fuzz_bytes file)
{
    uint8_t *copy;
    int64_t end = (int64_t)file.n - FOOTER_BYTES, first;

    if (sums_count || end < HEADER_BYTES) {
        fuzz_write(path, file);
        return;
    }
    copy = malloc(file.n);
    FUZZ_CHECK(copy, "out of memory");
    memcpy(copy, file.bytes, file.n);
    memcpy(&first, copy + end, sizeof first);
    if (first >= 0 && first <= end) {
        int64_t n = end - first;
        memcpy(copy + end + 8, &n, sizeof n);
        memset(copy + end + 16, 0, 8);
    }
    fuzz_write(path, (struct fuzz_bytes){copy, file.n});
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n}, parts[1 + MAX_FILES];
    char folder[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES];
    struct mist_checkpoint *checkpoint = NULL;
    struct mist_err err = {0};

    sums_count = fuzz_take(&input) % 2 == 1;
    fuzz_split(input, parts, 1 + MAX_FILES);
    if (!parts[0].bytes || !parts[1].bytes)
        return 0;
    mkdir(fuzz_path(folder, "in"), 0777);
    write_manifest(fuzz_path(path, "in/manifest.json"), parts[0], parts + 1);
    write_rank_file(fuzz_path(path, "in/rank-00000.bin"), parts[1]);
    write_rank_file(fuzz_path(path, "in/rank-00001.bin"), parts[2]);
    enum mist_status status = mist_checkpoint_open(folder, &checkpoint, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!checkpoint, "out was touched");
        return 0;
    }
    if (is_small(checkpoint)) {
        bool is_whole = read_all(checkpoint);
        status = mist_checkpoint_verify(folder, &err);
        if (status != MIST_OK)
            fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(status != MIST_OK || is_whole, "verified, but can't be read");
        if (status == MIST_OK)
            check_round_trip(checkpoint);
    }
    mist_checkpoint_close(checkpoint);
    return 0;
}

/* ----------------------------------------------------------------------------- seeds */

/* The manifest with every size written as "@i". */
static void add_manifest(struct fuzz_buffer *buffer, const char *path,
                         const char *const *rank_paths, int32_t n_ranks)
{
    struct fuzz_buffer text = {0};

    fuzz_add_file(&text, path);
    fuzz_add(&text, "", 1);
    const char *rest = (const char *)text.bytes;
    for (int32_t i = 0; i < n_ranks && !sums_count; i++) {
        static const char key[] = "\"bytes\": ";
        struct stat info;
        const char *at = strstr(rest, key);
        char size[24], marker[] = {'@', (char)('0' + i), '\0'};
        FUZZ_CHECK(at && stat(rank_paths[i], &info) == 0, "%s", rank_paths[i]);
        at += strlen(key);
        snprintf(size, sizeof size, "%lld", (long long)info.st_size);
        FUZZ_CHECK(strncmp(at, size, strlen(size)) == 0, "the size of file %d", i);
        fuzz_add(buffer, rest, (size_t)(at - rest));
        fuzz_add_text(buffer, marker);
        rest = at + strlen(size);
    }
    fuzz_add_text(buffer, rest);
    free(text.bytes);
}

static void seed(const char *name, bool counts, int32_t n_ranks)
{
    struct fuzz_buffer buffer = {0};
    char dir[FUZZ_PATH_BYTES], path[FUZZ_PATH_BYTES], ranks[MAX_FILES][FUZZ_PATH_BYTES];
    const char *const rank_paths[] = {ranks[0], ranks[1]};
    json_t *training = json_pack("{s:i, s:f}", "seed", 1, "lr", 0.5);

    sums_count = counts;
    fuzz_path(dir, name);
    for (int32_t rank = 0; rank < n_ranks; rank++)
        write_rank(NULL, dir, 7, rank, n_ranks);
    commit(dir, 7, n_ranks, training);
    json_decref(training);
    snprintf(path, sizeof path, "%.200s/step-00000007/manifest.json", dir);
    for (int32_t rank = 0; rank < n_ranks; rank++)
        snprintf(ranks[rank], sizeof ranks[rank], "%.200s/step-00000007/rank-%05d.bin",
                 dir, rank);
    fuzz_add_text(&buffer, counts ? "1" : "0");
    add_manifest(&buffer, path, rank_paths, n_ranks);
    for (int32_t rank = 0; rank < n_ranks; rank++) {
        fuzz_add_text(&buffer, FUZZ_NEXT);
        fuzz_add_file(&buffer, ranks[rank]);
    }
    fuzz_seed(name, &buffer);
}

void fuzz_write_seeds(void)
{
    seed("one", false, 1);
    seed("two", false, 2);
    seed("sums", true, 2);
}
