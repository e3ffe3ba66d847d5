/* Importer of copies from reports of Nsight Systems. See import_nsys.h. */
#include "traces/import_nsys.h"

#include "core/atomic_file.h"
#include "core/csv.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_BYTES_MAX ((size_t)1 << 30)
#define LEAST_MB         0.05
#define MOST_MB          1e9

enum { DURATION, SIZE, SOURCE, TARGET, NAME };

/* Of the versions from 2021 to 2025; those that are not used must be known, too. */
static const struct mist_csv_column columns[] = {
    [DURATION] = {"Duration (ns)", MIST_CSV_REQUIRED},
    [SIZE] = {"Bytes (MB)", MIST_CSV_REQUIRED}, /* 1e6 bytes, three decimals */
    [SOURCE] = {"SrcMemKd", MIST_CSV_REQUIRED},
    [TARGET] = {"DstMemKd", MIST_CSV_REQUIRED},
    [NAME] = {"Name", MIST_CSV_REQUIRED},
    {"Start (ns)", MIST_CSV_REQUIRED},
    {"CorrId", MIST_CSV_OPTIONAL},
    {"GrdX", MIST_CSV_OPTIONAL},
    {"GrdY", MIST_CSV_OPTIONAL},
    {"GrdZ", MIST_CSV_OPTIONAL},
    {"BlkX", MIST_CSV_OPTIONAL},
    {"BlkY", MIST_CSV_OPTIONAL},
    {"BlkZ", MIST_CSV_OPTIONAL},
    {"Reg/Trd", MIST_CSV_OPTIONAL},
    {"StcSMem (MB)", MIST_CSV_OPTIONAL},
    {"DymSMem (MB)", MIST_CSV_OPTIONAL},
    {"Throughput (MBps)", MIST_CSV_OPTIONAL},
    {"Throughput (MB/s)", MIST_CSV_OPTIONAL},
    {"Device", MIST_CSV_OPTIONAL},
    {"Ctx", MIST_CSV_OPTIONAL},
    {"GreenCtx", MIST_CSV_OPTIONAL},
    {"Strm", MIST_CSV_OPTIONAL},
};

/*
 * The header's line, with blank lines in front of it for those that nsys prints before, so
 * that messages name the file's lines; NULL: there is none. Text in front of it is lost.
 */
static char *find_table(char *text)
{
    size_t n_lines = 0;

    for (char *line = text; line; n_lines++) {
        if (strncmp(line, "Start (ns),", strlen("Start (ns),")) == 0) {
            memset(line - n_lines, '\n', n_lines);
            return line - n_lines;
        }
        line = strchr(line, '\n');
        line = line ? line + 1 : NULL;
    }
    return NULL;
}

/* "[CUDA memcpy HtoD]", or "[CUDA memcpy Host-to-Device]"; false: of neither direction. */
static bool read_direction(const char *name, enum mist_link_operation *out)
{
    if (strstr(name, "HtoD") || strstr(name, "Host-to-Device"))
        *out = MIST_LINK_HOST_TO_DEVICE;
    else if (strstr(name, "DtoH") || strstr(name, "Device-to-Host"))
        *out = MIST_LINK_DEVICE_TO_HOST;
    else
        return false;
    return true;
}

/* Adds row i if it is a copy that counts, and counts it. */
static enum mist_status add_row(const struct mist_import_rows *rows,
                                const struct mist_csv *csv, size_t i, size_t *n_copies,
                                struct mist_err *err)
{
    struct mist_link_row row = {
        .nodes = 1, .ranks_per_node = 1, .concurrent_groups = 1, .repetitions = 1};
    double size_mb, duration_ns;

    if (strncmp(mist_csv_text(csv, i, NAME), "[CUDA memcpy ", 13) != 0 ||
        !read_direction(mist_csv_text(csv, i, NAME), &row.operation))
        return MIST_OK;
    bool is_up = row.operation == MIST_LINK_HOST_TO_DEVICE;
    if (strcmp(mist_csv_text(csv, i, is_up ? SOURCE : TARGET), "Pinned") != 0)
        return MIST_OK;
    enum mist_status status =
        mist_csv_get_double(csv, i, SIZE, 0, MOST_MB, &size_mb, err);
    if (status == MIST_OK)
        status =
            mist_csv_get_double(csv, i, DURATION, DBL_MIN, DBL_MAX, &duration_ns, err);
    if (status != MIST_OK || size_mb < LEAST_MB)
        return status;
    row.bytes = (int64_t)floor(size_mb * 1e6 + 0.5);
    row.time_us = duration_ns * 1e-3;
    status = mist_import_rows_add_link(rows, &row, MIST_IMPORT_MEAN, err);
    *n_copies += status == MIST_OK;
    return mist_csv_locate(csv, i, status, err);
}

static enum mist_status add_rows(const struct mist_import_rows *rows,
                                 const struct mist_csv *csv, struct mist_err *err)
{
    size_t n_copies = 0;
    enum mist_status status = MIST_OK;

    for (size_t i = 0; status == MIST_OK && i < mist_csv_n_rows(csv); i++)
        status = add_row(rows, csv, i, &n_copies, err);
    if (status == MIST_OK && n_copies == 0)
        return mist_err_at(err, MIST_ERR_INPUT, mist_csv_path(csv), 0, 0,
                           "has no copy of 50 kB or more from or to pinned memory of the "
                           "host; kernels have no shapes here: import what "
                           "torch.profiler recorded of them");
    return status;
}

enum mist_status mist_import_nsys(const struct mist_import_rows *rows, const char *path,
                                  struct mist_err *err)
{
    struct mist_csv *csv = NULL;
    char *text = NULL, *table;
    size_t n = 0;
    enum mist_status status = mist_file_read_all(path, REPORT_BYTES_MAX, &text, &n, err);

    if (status != MIST_OK)
        return status;
    table = find_table(text);
    if (!table)
        status =
            mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                        "has no line that begins with \"Start (ns),\", expected what "
                        "nsys stats --report cuda_gpu_trace --format csv prints "
                        "(sums by kernel say nothing of shapes)");
    else
        status = mist_csv_load_text(path, table, n - (size_t)(table - text), columns,
                                    sizeof columns / sizeof *columns, &csv, err);
    if (status == MIST_OK)
        status = add_rows(rows, csv, err);
    mist_csv_free(csv);
    free(text);
    return status;
}
