/* See import.h. */
#include "profile/import.h"

#include "profile/import_torch.h"
#include "traces/import_gemm.h"
#include "traces/import_nccl.h"
#include "traces/import_nsys.h"
#include "traces/import_rows.h"
#include "traces/preset.h"

const char *const mist_import_formats[] = {"none",           "nccl-tests", "gemm-csv",
                                           "torch-profiler", "nsys",       NULL};

static enum mist_status import_file(const struct mist_import *import, const char *path,
                                    const struct mist_import_rows *rows,
                                    struct mist_import_torch_report *torch,
                                    struct mist_err *err)
{
    const struct mist_import_nccl by_log = {0};

    switch (import->format) {
    case MIST_IMPORT_GEMM_CSV:
        return mist_import_gemm_csv(rows, path, import->dtype, err);
    case MIST_IMPORT_TORCH_PROFILER:
        return mist_import_torch(rows, path, torch, err);
    case MIST_IMPORT_NSYS:
        return mist_import_nsys(rows, path, err);
    case MIST_IMPORT_NCCL_TESTS:
    case MIST_IMPORT_NONE:
        break;
    }
    return mist_import_nccl_log(rows->set, path, &by_log, NULL, err);
}

static void say_torch(const struct mist_import_torch_report *torch,
                      const struct mist_messages *messages)
{
    if (torch->kernels_s > 0)
        mist_message(messages,
                     "%.0f %% of the kernels' time is in rows; the rest is of operators "
                     "that are not imported",
                     100 * torch->used_s / torch->kernels_s);
    if (torch->n_nameless > 0)
        mist_message(messages,
                     "%zu of %zu messages left out: the trace does not say their group",
                     torch->n_nameless, torch->n_messages);
}

enum mist_status mist_profile_import(const struct mist_import *import,
                                     const struct mist_messages *messages,
                                     struct mist_err *err)
{
    struct mist_import_torch_report torch = {0};
    struct mist_trace_set set;
    enum mist_status status = mist_trace_set_open(&set, import->cluster, err);
    struct mist_import_rows rows = mist_import_rows_begin(&set);

    for (int i = 0; i < import->n_paths && status == MIST_OK; i++)
        status = import_file(import, import->paths[i], &rows, &torch, err);
    if (status == MIST_OK && import->output)
        status = mist_trace_set_save(&set, import->output, import->force, err);
    if (status == MIST_OK) {
        size_t n = mist_import_rows_count(&rows);
        mist_message(messages, "%zu row%s of %s%s%s%s", n, n == 1 ? "" : "s",
                     import->paths[0], import->n_paths > 1 ? " and others" : "",
                     import->output ? " added to " : " can be added",
                     import->output ? import->output : "");
        say_torch(&torch, messages);
    }
    mist_trace_set_fini(&set);
    return status;
}
