/*
 * Runs a fuzz target without a fuzzer, as an ordinary test: on its seeds,
 * on all that was ever found, and on damaged copies of these. A find ends the program, as
 * it does under the fuzzer; "about to run" names the input.
 *
 *     build/tests/fuzz/csv                    the test (from the root of the project)
 *     build/tests/fuzz/csv FILE ...           those inputs
 */
#include "core/random.h"
#include "tests/fuzz/fuzz.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_DAMAGED = 500 }; /* copies of each input */

static int n_run; /* inputs so far, for TAP */

/* From the heap, with nothing behind it, so that reading too far is noticed. */
static void run_bytes(const uint8_t *bytes, size_t n)
{
    uint8_t *copy = malloc(n > 0 ? n : 1);

    FUZZ_CHECK(copy, "out of memory");
    if (n > 0)
        memcpy(copy, bytes, n);
    LLVMFuzzerTestOneInput(copy, n);
    free(copy);
}

/* Cut short, a byte changed, a part of it missing. */
static void run_damaged(const struct fuzz_buffer *input, struct mist_random *random)
{
    for (int i = 0; i < N_DAMAGED && input->n > 0; i++) {
        struct fuzz_buffer copy = {0};
        size_t at = (size_t)mist_random_below(random, (int64_t)input->n);
        size_t n_left = input->n - at;
        fuzz_add(&copy, input->bytes, i % 3 == 0 ? at : input->n);
        if (i % 3 == 1)
            copy.bytes[at] = (uint8_t)mist_random_below(random, 256);
        if (i % 3 == 2) {
            size_t n_gone = 1 + (size_t)mist_random_below(random, (int64_t)n_left);
            memmove(copy.bytes + at, copy.bytes + at + n_gone, n_left - n_gone);
            copy.n -= n_gone;
        }
        run_bytes(copy.bytes, copy.n);
        free(copy.bytes);
    }
}

static void run_file(const char *path, bool damages)
{
    struct fuzz_buffer input = {0};
    struct mist_random random;

    printf("# about to run %s\n", path);
    fflush(stdout);
    fuzz_add_file(&input, path);
    run_bytes(input.bytes, input.n);
    mist_random_init(&random, 1);
    if (damages)
        run_damaged(&input, &random);
    free(input.bytes);
    printf("ok %d - %s\n", ++n_run, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* A folder that is not there is empty. */
static void run_folder(const char *folder)
{
    struct dirent **entries = NULL;
    int n = scandir(folder, &entries, is_visible, alphasort);
    char path[1024];

    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, entries[i]->d_name);
        run_file(path, true);
        free(entries[i]);
    }
    free(entries);
}

static void run_seeds(void)
{
    char seeds[FUZZ_PATH_BYTES];

    fuzz_path(seeds, "seeds");
    FUZZ_CHECK(mkdir(seeds, 0777) == 0, "%s: %s", seeds, strerror(errno));
    fuzz_make_seeds(seeds);
    run_folder(seeds);
    FUZZ_CHECK(n_run > 0, "the target has no seeds");
}

int main(int argc, char **argv)
{
    if (argc > 1) {
        for (int i = 1; i < argc; i++)
            run_file(argv[i], false);
        return 0;
    }
    printf("# seed 1\n");
    run_seeds();
    run_folder("tests/fuzz/finds/" FUZZ_TARGET);
    printf("1..%d\n", n_run);
    return 0;
}
