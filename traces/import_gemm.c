/* Importer of timed matrix products. See import_gemm.h. */
#include "traces/import_gemm.h"

#include "core/csv.h"
#include "traces/trace_internal.h" /* words */

#include <float.h>

enum { M, N, K, TIME, DTYPE, DEVIATION, REPETITIONS, N_COLUMNS };

static const struct mist_csv_column columns[N_COLUMNS] = {
    [M] = {"m", MIST_CSV_REQUIRED},
    [N] = {"n", MIST_CSV_REQUIRED},
    [K] = {"k", MIST_CSV_REQUIRED},
    [TIME] = {"time_us", MIST_CSV_REQUIRED},
    [DTYPE] = {"dtype", MIST_CSV_OPTIONAL},
    [DEVIATION] = {"deviation_us", MIST_CSV_OPTIONAL},
    [REPETITIONS] = {"repetitions", MIST_CSV_OPTIONAL},
};

/* Sizes up to 2^40 and below keep FLOP exact in a double, and are beyond any device. */
#define SIZE_MAX_ ((int64_t)1 << 40)

static bool has_cell(const struct mist_csv *csv, size_t i, int column)
{
    return mist_csv_text(csv, i, (size_t)column)[0] != '\0';
}

/* m, n, k and what was measured. */
static enum mist_status read_row(const struct mist_csv *csv, size_t i,
                                 struct mist_kernel_row *row, int64_t sizes[3],
                                 struct mist_err *err)
{
    int dtype = (int)row->dtype;
    enum mist_status status = MIST_OK;

    for (int c = M; c <= K && status == MIST_OK; c++)
        status = mist_csv_get_int64(csv, i, (size_t)c, 1, SIZE_MAX_, &sizes[c - M], err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i, TIME, DBL_MIN, DBL_MAX, &row->time_us, err);
    if (status == MIST_OK && has_cell(csv, i, DTYPE))
        status = mist_csv_get_choice(csv, i, DTYPE, mist_trace_dtype_words, &dtype, err);
    if (status == MIST_OK && has_cell(csv, i, DEVIATION))
        status =
            mist_csv_get_double(csv, i, DEVIATION, 0, DBL_MAX, &row->deviation_us, err);
    if (status == MIST_OK && has_cell(csv, i, REPETITIONS))
        status =
            mist_csv_get_int64(csv, i, REPETITIONS, 1, 1 << 30, &row->repetitions, err);
    row->dtype = (enum mist_trace_dtype)dtype;
    return status;
}

enum mist_status mist_import_gemm_csv(const struct mist_import_rows *rows,
                                      const char *path, enum mist_trace_dtype dtype,
                                      struct mist_err *err)
{
    struct mist_csv *csv = NULL;
    enum mist_status status = mist_csv_load(path, columns, N_COLUMNS, &csv, err);

    for (size_t i = 0; status == MIST_OK && i < mist_csv_n_rows(csv); i++) {
        struct mist_kernel_row row = {.dtype = dtype, .repetitions = 1};
        int64_t sizes[3] = {0};
        status = read_row(csv, i, &row, sizes, err);
        if (status != MIST_OK)
            break;
        row.line = mist_csv_line(csv, i);
        status =
            mist_import_rows_add_product(rows, &row, sizes[0], sizes[1], sizes[2], err);
        status = mist_csv_locate(csv, i, status, err);
    }
    if (status == MIST_OK && mist_csv_n_rows(csv) == 0)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "the table has no product, expected one row at least");
    mist_csv_free(csv);
    return status;
}
