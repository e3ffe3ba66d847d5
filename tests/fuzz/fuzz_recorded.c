/* sim/recorded: what is read can be replayed, and gives back a time of every step. */
#include "sim/recorded/recorded_costs.h"
#include "sim/recorded/recorded_study.h"
#include "sim/recorded/recording.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>

/* Of a recording replayed unchanged. */
struct times {
    double recorded_s, replayed_s;
    int64_t n_contradictions;
};

static enum mist_status replay(const char *name, struct times *out,
                               struct mist_arena *arena, struct mist_err *err)
{
    struct mist_operations table;
    struct mist_recorded_job job;
    struct mist_recorded_study study;
    struct mist_recorded_costs costs;
    enum mist_status status =
        mist_recorded_read(&name, 1, &table, &job, NULL, arena, err);

    if (status != MIST_OK)
        return status;
    if (!table.path) {
        fuzz_must(mist_recorded_costs_begin(&costs, &job, NULL, 0, arena, err), err);
        fuzz_must(mist_recorded_costs_add(&costs, &job, err), err);
        fuzz_must(mist_recorded_costs_end(&costs, err), err);
        *out = (struct times){costs.recorded_s, costs.replayed_s, job.n_contradictions};
        return MIST_OK;
    }
    status = mist_recorded_study(&table, NULL, 0, &study, NULL, arena, err);
    mist_operations_close(&table);
    if (status != MIST_OK)
        return status;
    FUZZ_CHECK(isfinite(study.even_s), "%g", study.even_s);
    *out = (struct times){study.recorded_s, study.unchanged_s, study.n_contradictions};
    return MIST_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_arena arena;
    struct mist_err err = {0};
    struct times times;
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "ops.csv"),
               (struct fuzz_bytes){n > 0 ? bytes : (const uint8_t *)"", n});
    mist_arena_init(&arena);
    enum mist_status status = replay(path, &times, &arena, &err);
    if (status != MIST_OK) {
        fuzz_check_refusal(status, &err, true);
    } else {
        double error_s = times.replayed_s - times.recorded_s;
        FUZZ_CHECK(isfinite(times.recorded_s) && isfinite(times.replayed_s), "%g, %g",
                   times.recorded_s, times.replayed_s);
        FUZZ_CHECK(times.n_contradictions > 0 ||
                       fabs(error_s) <= 1e-6 * (1 + fabs(times.recorded_s)),
                   "%g is not %g", times.replayed_s, times.recorded_s);
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
