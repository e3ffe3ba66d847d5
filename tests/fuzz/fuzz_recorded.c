/* sim/recorded: what is read can be replayed, and gives back a time of every step. */
#include "sim/recorded/recorded_costs.h"
#include "sim/recorded/recorded_study.h"
#include "sim/recorded/recording.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

/* Recorded and replayed unchanged. */
static void replay(const struct mist_recorded_job *job, double times_s[2],
                   struct mist_arena *arena)
{
    struct mist_recorded_study study;
    struct mist_recorded_costs costs;
    struct mist_err err = {0};

    if (job->is_by_rank) {
        fuzz_must(mist_recorded_find_costs(job, &costs, arena, &err), &err);
        times_s[0] = costs.recorded_s;
        times_s[1] = costs.replayed_s;
        return;
    }
    fuzz_must(mist_recorded_study(job, &study, arena, &err), &err);
    FUZZ_CHECK(isfinite(study.even_s), "%g", study.even_s);
    times_s[0] = study.recorded_s;
    times_s[1] = study.unchanged_s;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_recorded_job job;
    struct mist_arena arena;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];
    const char *name = path;
    double times_s[2];

    fuzz_write(fuzz_path(path, "ops.csv"),
               (struct fuzz_bytes){n > 0 ? bytes : (const uint8_t *)"", n});
    mist_arena_init(&arena);
    enum mist_status status = mist_recorded_read(&name, 1, &job, NULL, &arena, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
    } else {
        replay(&job, times_s, &arena);
        FUZZ_CHECK(isfinite(times_s[0]) && isfinite(times_s[1]), "%g, %g", times_s[0],
                   times_s[1]);
        FUZZ_CHECK(job.n_contradictions > 0 ||
                       fabs(times_s[1] - times_s[0]) <= 1e-6 * (1 + fabs(times_s[0])),
                   "%g is not %g", times_s[1], times_s[0]);
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
    fuzz_seed_text(
        "profiler",
        "{\"traceEvents\":[\n"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaLaunchKernel\",\"tid\":9,"
        "\"ts\":10,\"dur\":5,\"args\":{\"correlation\":1}},\n"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaStreamWaitEvent\",\"tid\":"
        "9,"
        "\"ts\":16,\"dur\":1,\"args\":{\"correlation\":2}},\n"
        "{\"ph\":\"X\",\"cat\":\"cuda_runtime\",\"name\":\"cudaMemcpyAsync\",\"tid\":9,"
        "\"ts\":18,\"dur\":40,\"args\":{\"correlation\":3}},\n"
        "{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":\"gemm\",\"ts\":17,\"dur\":20,"
        "\"args\":{\"correlation\":1,\"stream\":7}},\n"
        "{\"ph\":\"X\",\"cat\":\"gpu_memcpy\",\"name\":\"Memcpy DtoH\",\"ts\":38,"
        "\"dur\":9,\"args\":{\"correlation\":3,\"stream\":8}},\n"
        "{\"ph\":\"X\",\"cat\":\"cuda_sync\",\"name\":\"Stream Wait Event\",\"ts\":16,"
        "\"dur\":1,\"args\":{\"correlation\":2,\"stream\":8,\"wait_on_stream\":7,"
        "\"wait_on_cuda_event_record_corr_id\":1}}]}\n");
}
