/* traces/import_nsys: rows that are imported pass what the files of a set must pass. */
#include "tests/fuzz/fuzz.h"
#include "traces/import_nsys.h"
#include "traces/preset.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct mist_trace_set set;
    struct mist_err err = {0};
    char path[FUZZ_PATH_BYTES];

    fuzz_write(fuzz_path(path, "report.csv"),
               (struct fuzz_bytes){n > 0 ? bytes : (const uint8_t *)"", n});
    fuzz_must(mist_preset_parse(&set, "h100-sxm", &err), &err);
    struct mist_import_rows rows = mist_import_rows_begin(&set);
    enum mist_status status = mist_import_nsys(&rows, path, &err);
    if (status != MIST_OK)
        fuzz_check_refusal(status, &err, true);
    for (size_t i = 0; i < set.n_links; i++) {
        const struct mist_link_row *row = &set.links[i];
        FUZZ_CHECK(row->bytes >= 50000 && row->time_us > 0 && row->repetitions > 0 &&
                       row->nodes == 1 && row->ranks_per_node == 1,
                   "row %zu", i);
        FUZZ_CHECK(mist_trace_set_find_link(&set, row) == row, "row %zu is not found", i);
    }
    mist_trace_set_fini(&set);
    return 0;
}

void fuzz_write_seeds(void)
{
    fuzz_seed_text(
        "copies",
        "Processing [x.sqlite] with [cuda_gpu_trace.py]...\n"
        "Start (ns),Duration (ns),CorrId,Bytes (MB),SrcMemKd,DstMemKd,Strm,Name\n"
        "100,400000,7,8.389,Pinned,Device,7,[CUDA memcpy HtoD]\n"
        "600,500000,8,8.389,Device,Pinned,7,[CUDA memcpy Device-to-Host]\n"
        "900,3200,9,,,,7,\"gemm(double *, int)\"\n");
}
