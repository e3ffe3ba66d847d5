/* traces/timeline: a timeline that loads is saved, loads, and is saved as the
 * same file. */
#include "tests/fuzz/fuzz.h"
#include "traces/timeline.h"

static void check_round_trip(const struct mist_timeline *timeline)
{
    char once[FUZZ_PATH_BYTES], twice[FUZZ_PATH_BYTES];
    struct mist_timeline again;
    struct mist_err err = {0};

    fuzz_must(mist_timeline_save(timeline, fuzz_path(once, "once.csv"), true, &err),
              &err);
    fuzz_must(mist_timeline_load(&again, once, &err), &err);
    FUZZ_CHECK(again.n_rows == timeline->n_rows, "%zu rows, then %zu", timeline->n_rows,
               again.n_rows);
    for (size_t i = 0; i < again.n_rows; i++)
        FUZZ_CHECK(again.rows[i].start_s == timeline->rows[i].start_s &&
                       again.rows[i].end_s == timeline->rows[i].end_s,
                   "row %zu", i);
    fuzz_must(mist_timeline_save(&again, fuzz_path(twice, "twice.csv"), true, &err),
              &err);
    FUZZ_CHECK(fuzz_same_files(once, twice), "another file");
    mist_timeline_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_timeline timeline;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "in.csv"), (struct fuzz_bytes){bytes, n});
    enum mist_status status = n > 0 ? mist_timeline_load(&timeline, path, &err) : 0;
    if (n == 0)
        return 0;
    if (status == MIST_OK) {
        double start_s, end_s;
        mist_timeline_span(&timeline, &start_s, &end_s);
        FUZZ_CHECK(timeline.n_rows > 0 && 0 <= start_s && start_s <= end_s, "%g .. %g",
                   start_s, end_s);
        check_round_trip(&timeline);
    } else {
        fuzz_check_refusal(status, &err, true);
        FUZZ_CHECK(!timeline.rows, "rows are left");
    }
    mist_timeline_fini(&timeline);
    return 0;
}

void fuzz_write_seeds(void)
{
    struct fuzz_buffer buffer = {0};

    fuzz_add_file(&buffer, "tests/data/cli/timeline.csv");
    fuzz_seed("timeline", &buffer);
    fuzz_seed_text("small",
                   "rank,stream,kind,layer,micro_batch,iteration,task,start_s,end_s,"
                   "bytes,device_live_bytes\n"
                   "0,host,load_batch,-1,0,0,0,0,0.5,4096,0\n"
                   "1,gpu_gpu,recv_activation,2,0,0,1,0.25,1e3,64,1000000\n");
}
