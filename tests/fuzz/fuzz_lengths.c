/* sim/replay/lengths: files and distributions, and what is drawn from them. The first byte
 * says which of the two the rest is. */
#include "sim/replay/lengths.h"
#include "tests/fuzz/fuzz.h"

/* Lengths of a file are those that are there; of a distribution, some. */
static void check_draws(const struct mist_lengths *lengths, uint64_t seed)
{
    for (uint64_t i = 0; i < 50; i++) {
        int32_t length = mist_lengths_draw(lengths, seed, i);
        bool is_there = lengths->median > 0;
        for (size_t k = 0; k < lengths->n && !is_there; k++)
            is_there = lengths->lengths[k] == length;
        FUZZ_CHECK(length >= 1 && is_there, "%d", (int)length);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    struct mist_lengths lengths;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];
    bool is_file = fuzz_take(&input) % 2 == 0;
    char *text = fuzz_text(input);

    fuzz_write(fuzz_path(path, "lengths"), input);
    if (!is_file && strncmp(text, "lognormal:", 10) != 0) {
        free(text);
        return 0; /* a path */
    }
    enum mist_status status = mist_lengths_read(is_file ? path : text, &lengths, &err);
    if (status == MIST_OK) {
        int64_t before = 0;
        for (size_t i = 0; i < lengths.n; i++) {
            FUZZ_CHECK(lengths.counts[i] > before, "%zu", i);
            before = lengths.counts[i];
        }
        FUZZ_CHECK((lengths.median > 0) == !is_file, "%g", lengths.median);
        check_draws(&lengths, n);
        mist_lengths_fini(&lengths);
    } else {
        fuzz_check_refusal(status, &err, is_file);
    }
    free(text);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text("one_a_line", "0length\n100\n2048\n7\n");
    fuzz_seed_text("counts", "0length,count\n100,3\n2048,0\n7,12\n");
    fuzz_seed_text("wrong", "0100\nmany\n");
    fuzz_seed_text("distribution", "1lognormal:median=600,sigma=1.2");
}
