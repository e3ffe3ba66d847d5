/* See import.h. */
#include "profile/import.h"

#include "traces/import_gemm.h"
#include "traces/import_nccl.h"
#include "traces/preset.h"

const char *const mist_import_formats[] = {"none", "nccl-tests", "gemm-csv", NULL};

enum mist_status mist_profile_import(enum mist_import_format format, const char *cluster,
                                     const char *path, enum mist_trace_dtype dtype,
                                     const char *output, bool force, size_t *n_added,
                                     struct mist_err *err)
{
    const struct mist_import_nccl by_log = {0};
    struct mist_trace_set set;
    enum mist_status status = mist_trace_set_open(&set, cluster, err);

    if (status == MIST_OK)
        status = format == MIST_IMPORT_GEMM_CSV
                     ? mist_import_gemm_csv(&set, path, dtype, n_added, err)
                     : mist_import_nccl_log(&set, path, &by_log, n_added, err);
    if (status == MIST_OK && output)
        status = mist_trace_set_save(&set, output, force, err);
    mist_trace_set_fini(&set);
    return status;
}
