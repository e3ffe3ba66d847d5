/* sim/recorded: what is read can be replayed, and gives back a time of every step. */
#include "sim/recorded/operators_file.h"
#include "sim/recorded/recorded_study.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_recorded_job job;
    struct mist_recorded_study study;
    struct mist_arena arena;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "ops.csv"),
               (struct fuzz_bytes){n > 0 ? bytes : (const uint8_t *)"", n});
    mist_arena_init(&arena);
    enum mist_status status = mist_recorded_read_operators(path, &job, &arena, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
    } else {
        fuzz_must(mist_recorded_study(&job, &study, &arena, &err), &err);
        FUZZ_CHECK(isfinite(study.recorded_s) && isfinite(study.unchanged_s) &&
                       isfinite(study.even_s),
                   "%g, %g, %g", study.recorded_s, study.unchanged_s, study.even_s);
        FUZZ_CHECK(job.n_contradictions > 0 ||
                       fabs(study.unchanged_s - study.recorded_s) <=
                           1e-6 * (1 + fabs(study.recorded_s)),
                   "%g is not %g", study.unchanged_s, study.recorded_s);
    }
    mist_arena_fini(&arena);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text(
        "two_stages",
        "step,dp_rank,stage,optype,mb_id,seq_id,model_chunk,stream,start_us,dur_us\n"
        "7,0,0,forward-compute,0,0,0,compute,100,10\n"
        "7,0,0,forward-send,0,0,-1,pp-comm,110,5\n"
        "7,0,1,forward-recv,0,0,-1,pp-comm,100,15\n"
        "7,0,1,forward-compute,0,0,0,compute,117,20\n"
        "7,0,1,backward-compute,0,0,0,compute,137,40\n"
        "7,0,1,optimizer-clip-main-grad,-1,0,0,dp-comm,177,5\n"
        "7,0,0,optimizer-clip-main-grad,-1,0,0,dp-comm,180,5\n");
}
