/*
 * exec/log_file: the log that a run goes on with, CSV or JSON lines (first byte), after
 * so many steps (second byte). The row that is added to what was kept is read again with
 * it.
 */
#include "exec/train/log_file.h"
#include "tests/fuzz/fuzz.h"

static void add_row(const char *path, const struct mist_log_kept *kept, int64_t step)
{
    struct mist_train_step row = {.step = step, .loss = 2.5, .step_s = 0.25};
    struct mist_log_file log;
    struct mist_err err = {0};

    fuzz_must(mist_log_file_open(&log, path, kept, true, &err), &err);
    fuzz_must(mist_log_file_add(&log, &row, 1e6, &err), &err);
    mist_log_file_close(&log);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct fuzz_bytes input = {bytes, n};
    bool is_json = fuzz_take(&input) % 2 == 1;
    int64_t n_steps = fuzz_take(&input) % 16;
    struct mist_log_kept kept, again;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    if (input.n == 0)
        return 0;
    fuzz_write(fuzz_path(path, is_json ? "log.jsonl" : "log.csv"), input);
    enum mist_status status = mist_log_file_scan(path, n_steps, &kept, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
        return 0;
    }
    FUZZ_CHECK(kept.n_bytes >= 0 && kept.n_bytes <= (int64_t)input.n &&
                   kept.n_rows <= n_steps,
               "%lld bytes, %lld rows", (long long)kept.n_bytes, (long long)kept.n_rows);
    add_row(path, &kept, n_steps + 1);
    fuzz_must(mist_log_file_scan(path, n_steps + 1, &again, &err), &err);
    FUZZ_CHECK(again.n_rows == kept.n_rows + 1 && again.n_dropped == 0,
               "%lld rows, then %lld and %lld more", (long long)kept.n_rows,
               (long long)again.n_rows, (long long)again.n_dropped);
    return 0;
}

void fuzz_write_seeds(void)
{
    for (int is_json = 0; is_json < 2; is_json++) {
        struct fuzz_buffer buffer = {0};
        struct mist_log_kept kept;
        struct mist_err err = {0};
        char path[FUZZ_PATH_BYTES];
        fuzz_path(path, is_json ? "seed.jsonl" : "seed.csv");
        fuzz_write(path, (struct fuzz_bytes){NULL, 0});
        for (int64_t step = 1; step <= 4; step++) {
            fuzz_must(mist_log_file_scan(path, step - 1, &kept, &err), &err);
            add_row(path, &kept, step);
        }
        fuzz_add_text(&buffer, is_json ? "13" : "03"); /* '3' % 16: 3 steps are done */
        fuzz_add_file(&buffer, path);
        fuzz_seed(is_json ? "json" : "csv", &buffer);
    }
}
