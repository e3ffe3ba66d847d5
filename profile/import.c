/* See import.h. */
#include "profile/import.h"

#include "core/emit.h"
#include "profile/import_torch.h"
#include "traces/import_gemm.h"
#include "traces/import_nccl.h"
#include "traces/import_nsys.h"
#include "traces/import_rows.h"
#include "traces/preset.h"

#include <math.h>
#include <stdio.h>

/* Of its peak that any device reaches with products that take so long at the peak. */
#define LITTLE_FRAC 0.01
#define LONG_US     10

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
    return mist_import_nccl_log(rows, path, &by_log, err);
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
    if (torch->n_other > 0)
        mist_message(messages,
                     "%zu of %zu messages left out: no sum, gather or scatter, or of a "
                     "group that has unequal numbers of ranks on its nodes",
                     torch->n_other, torch->n_messages);
}

/* Imports all files, with a list of what each of them added. */
static enum mist_status import_files(const struct mist_import *import,
                                     const struct mist_import_rows *rows,
                                     struct mist_import_torch_report *torch,
                                     struct mist_emit *emit, struct mist_err *err)
{
    const struct mist_trace_set *set = rows->set;
    enum mist_status status = MIST_OK;

    mist_emit_text(emit, "format", NULL, mist_import_formats[import->format]);
    mist_emit_text(emit, "cluster", "added to", import->cluster);
    mist_emit_text(emit, "output", "written to", import->output);
    mist_emit_list_begin(emit, "files", "Files");
    for (int i = 0; i < import->n_paths && status == MIST_OK; i++) {
        size_t n_kernels = set->n_kernels, n_links = set->n_links;
        status = import_file(import, import->paths[i], rows, torch, err);
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_text(emit, "file", NULL, import->paths[i]);
        mist_emit_integer(emit, "kernels_added", "rows of kernels.csv",
                          (int64_t)(set->n_kernels - n_kernels));
        mist_emit_integer(emit, "links_added", "rows of links.csv",
                          (int64_t)(set->n_links - n_links));
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
    return status;
}

/* The best that the added rows reach, by which a wrong unit shows; 0: there are none. */
struct best {
    double peak_frac;   /* of their format's peak, by products and attention */
    double at_peak_us;  /* the longest of them, at that peak */
    double bytes_per_s; /* of messages and copies: bytes over time */
};

static struct best best_of(const struct mist_import_rows *rows)
{
    const struct mist_trace_set *set = rows->set;
    struct best best = {0};

    for (size_t i = rows->n_kernels_before; i < set->n_kernels; i++) {
        const struct mist_kernel_row *row = &set->kernels[i];
        double peak = set->cluster.peak_flop_per_s[row->dtype];
        double at_peak_us = peak > 0 ? 1e6 * row->flop / peak : 0;
        best.peak_frac = fmax(best.peak_frac, at_peak_us / row->time_us);
        best.at_peak_us = fmax(best.at_peak_us, at_peak_us);
    }
    for (size_t i = rows->n_links_before; i < set->n_links; i++)
        best.bytes_per_s = fmax(best.bytes_per_s, (double)set->links[i].bytes /
                                                      (1e-6 * set->links[i].time_us));
    return best;
}

static void emit_sums(const struct mist_import *import,
                      const struct mist_import_rows *rows, struct best best,
                      const struct mist_import_torch_report *torch,
                      struct mist_emit *emit)
{
    mist_emit_integer(emit, "rows_added", "rows", (int64_t)mist_import_rows_count(rows));
    if (best.peak_frac > 0)
        mist_emit_number(emit, "peak_frac", "of the peak at most", best.peak_frac);
    if (best.bytes_per_s > 0)
        mist_emit_number(emit, "bytes_per_s", "of messages at most", best.bytes_per_s);
    if (torch->kernels_s > 0)
        mist_emit_number(emit, "imported_frac", "of the kernels' time",
                         torch->used_s / torch->kernels_s);
    if (import->format == MIST_IMPORT_TORCH_PROFILER)
        mist_emit_integer(emit, "messages_left_out", "messages left out",
                          (int64_t)(torch->n_nameless + torch->n_other));
}

static void say_rows(const struct mist_import *import,
                     const struct mist_import_rows *rows, struct best best,
                     const struct mist_messages *messages)
{
    size_t n = mist_import_rows_count(rows);

    mist_message(messages, "%zu row%s of %s%s%s%s", n, n == 1 ? "" : "s",
                 import->paths[0], import->n_paths > 1 ? " and others" : "",
                 import->output ? " added to " : " can be added",
                 import->output ? import->output : "");
    if (best.peak_frac > 0)
        mist_message(messages, "products reach %.2g %% of the peak at most%s",
                     100 * best.peak_frac,
                     best.peak_frac < LITTLE_FRAC && best.at_peak_us > LONG_US
                         ? ": are the times those of this cluster, "
                           "in microseconds?"
                         : "");
    if (best.bytes_per_s > 0)
        mist_message(messages, "messages reach %.3g GB/s at most (bytes over time)",
                     best.bytes_per_s * 1e-9);
}

enum mist_status mist_profile_import(const struct mist_import *import,
                                     const struct mist_messages *messages,
                                     struct mist_err *err)
{
    struct mist_import_torch_report torch = {0};
    struct mist_emit *emit = NULL;
    struct mist_trace_set set;
    enum mist_status status = mist_trace_set_open(&set, import->cluster, err);
    struct mist_import_rows rows = mist_import_rows_begin(&set);

    if (status == MIST_OK)
        status =
            mist_emit_begin(&emit, MIST_EMIT_JSON, import->as_json ? stdout : NULL, err);
    if (status == MIST_OK)
        status = import_files(import, &rows, &torch, emit, err);
    if (status == MIST_OK && import->output)
        status = mist_trace_set_save(&set, import->output, import->force, err);
    if (status == MIST_OK) {
        struct best best = best_of(&rows);
        emit_sums(import, &rows, best, &torch, emit);
        say_rows(import, &rows, best, messages);
        say_torch(&torch, messages);
        status = mist_emit_end(&emit, err);
    }
    mist_emit_free(emit);
    mist_trace_set_fini(&set);
    return status;
}
