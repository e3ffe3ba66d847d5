/* Importer of timed matrix products. See import_gemm.h. */
#include "traces/import_gemm.h"

#include "core/csv.h"
#include "traces/trace_internal.h" /* judging rows */

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

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

/* m, n, k and what was measured; shape, phase and the amounts are set by the caller. */
static enum mist_status read_row(const struct mist_csv *csv, size_t i,
                                 struct mist_kernel_row *row, int64_t sizes[3],
                                 struct mist_err *err)
{
    const char *dtypes[MIST_TRACE_MAX_WORDS];
    int dtype = (int)row->dtype;
    enum mist_status status = MIST_OK;

    MIST_TRACE_FILL_WORDS(dtypes, MIST_N_TRACE_DTYPES, mist_trace_dtype_name,
                          enum mist_trace_dtype);
    for (int c = M; c <= K && status == MIST_OK; c++)
        status = mist_csv_get_int64(csv, i, (size_t)c, 1, SIZE_MAX_, &sizes[c - M], err);
    if (status == MIST_OK)
        status = mist_csv_get_double(csv, i, TIME, DBL_MIN, DBL_MAX, &row->time_us, err);
    if (status == MIST_OK && has_cell(csv, i, DTYPE))
        status = mist_csv_get_choice(csv, i, DTYPE, dtypes, &dtype, err);
    if (status == MIST_OK && has_cell(csv, i, DEVIATION))
        status =
            mist_csv_get_double(csv, i, DEVIATION, 0, DBL_MAX, &row->deviation_us, err);
    if (status == MIST_OK && has_cell(csv, i, REPETITIONS))
        status =
            mist_csv_get_int64(csv, i, REPETITIONS, 1, 1 << 30, &row->repetitions, err);
    row->dtype = (enum mist_trace_dtype)dtype;
    return status;
}

/* Two measurements of one product as one. */
static void merge(struct mist_kernel_row *into, const struct mist_kernel_row *row)
{
    double a = (double)into->repetitions, b = (double)row->repetitions, sum = a + b;
    double between = row->time_us - into->time_us;
    double squares =
        (a * pow(into->deviation_us, 2) + b * pow(row->deviation_us, 2)) / sum;

    into->deviation_us = sqrt(squares + a * b / (sum * sum) * between * between);
    into->time_us += between * b / sum;
    into->repetitions += row->repetitions;
}

/* n_before: rows of set that are not the table's. */
static enum mist_status add_row(struct mist_trace_set *set, size_t n_before,
                                const struct mist_kernel_row *row, struct mist_err *err)
{
    const struct mist_kernel_row *same =
        mist_trace_set_find_kernel(set, row->op, row->dtype, row->phase, &row->shape);
    enum mist_status status = mist_trace_judge_kernel(row, &set->cluster, err);

    if (status != MIST_OK)
        return status;
    if (!same || (size_t)(same - set->kernels) < n_before)
        return mist_trace_set_add_kernel(set, row, err);
    merge(&set->kernels[same - set->kernels], row);
    return MIST_OK;
}

/* The three linear layers that have this product. */
static enum mist_status add_product(struct mist_trace_set *set, size_t n_before,
                                    struct mist_kernel_row *row, const int64_t sizes[3],
                                    struct mist_err *err)
{
    int64_t m = sizes[0], n = sizes[1], k = sizes[2];
    const struct {
        enum mist_trace_phase phase;
        int64_t rows, n_in, n_out;
    } uses[] = {{MIST_TRACE_FORWARD, m, k, n},
                {MIST_TRACE_BACKWARD_INPUT, m, n, k},
                {MIST_TRACE_BACKWARD_WEIGHT, k, m, n}};
    int element = row->dtype == MIST_TRACE_FP32 || row->dtype == MIST_TRACE_TF32 ? 4
                  : row->dtype == MIST_TRACE_FP8                                 ? 1
                                                                                 : 2;
    enum mist_status status = MIST_OK;

    snprintf(row->op, sizeof row->op, "linear");
    row->flop = 2.0 * (double)m * (double)n * (double)k;
    row->bytes =
        element * ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n);
    for (int i = 0; i < 3 && status == MIST_OK; i++) {
        row->phase = uses[i].phase;
        row->shape = (struct mist_shape){.n_dims = 3,
                                         .dims = {{"rows", uses[i].rows},
                                                  {"n_in", uses[i].n_in},
                                                  {"n_out", uses[i].n_out}}};
        status = add_row(set, n_before, row, err);
    }
    return status;
}

enum mist_status mist_import_gemm_csv(struct mist_trace_set *set, const char *path,
                                      enum mist_trace_dtype dtype, size_t *n_added,
                                      struct mist_err *err)
{
    struct mist_csv *csv = NULL;
    size_t n_before = set->n_kernels;
    enum mist_status status = mist_csv_load(path, columns, N_COLUMNS, &csv, err);

    for (size_t i = 0; status == MIST_OK && i < mist_csv_n_rows(csv); i++) {
        struct mist_kernel_row row = {.dtype = dtype, .repetitions = 1};
        struct mist_err message = {0};
        int64_t sizes[3] = {0};
        status = read_row(csv, i, &row, sizes, err);
        if (status != MIST_OK)
            break;
        row.line = mist_csv_line(csv, i);
        status = add_product(set, n_before, &row, sizes, &message);
        if (status != MIST_OK)
            status = mist_err_at(err, status, path, mist_csv_line(csv, i), 0, "%s",
                                 message.message);
    }
    if (status == MIST_OK && mist_csv_n_rows(csv) == 0)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "the table has no product, expected one row at least");
    if (status == MIST_OK && n_added)
        *n_added = mist_csv_n_rows(csv);
    mist_csv_free(csv);
    return status;
}
