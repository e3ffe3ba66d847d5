/* Rows of importers. See import_rows.h. */
#include "traces/import_rows.h"

#include "traces/trace_internal.h" /* checking and judging rows */

#include <math.h>
#include <stdio.h>

struct mist_import_rows mist_import_rows_begin(struct mist_trace_set *set)
{
    return (struct mist_import_rows){set, set->n_kernels, set->n_links};
}

size_t mist_import_rows_count(const struct mist_import_rows *rows)
{
    return rows->set->n_kernels - rows->n_kernels_before + rows->set->n_links -
           rows->n_links_before;
}

/* Two samples, each a mean, a deviation and a number, as one. */
static void merge(double *mean, double *deviation, int64_t *n, double other_mean,
                  double other_deviation, int64_t other_n)
{
    double a = (double)*n, b = (double)other_n, sum = a + b;
    double between = other_mean - *mean;
    double squares = (a * pow(*deviation, 2) + b * pow(other_deviation, 2)) / sum;

    *deviation = sqrt(squares + a * b / (sum * sum) * between * between);
    *mean += between * b / sum;
    *n += other_n;
}

enum mist_status mist_import_rows_add_kernel(const struct mist_import_rows *rows,
                                             const struct mist_kernel_row *row,
                                             struct mist_err *err)
{
    struct mist_trace_set *set = rows->set;
    const struct mist_kernel_row *same =
        mist_trace_set_find_kernel(set, row->op, row->dtype, row->phase, &row->shape);
    enum mist_status status = mist_trace_check_row(MIST_TRACE_TABLE_KERNELS, row, err);

    if (status == MIST_OK)
        status = mist_trace_judge_kernel(row, &set->cluster, err);
    if (status != MIST_OK)
        return status;
    if (!same || (size_t)(same - set->kernels) < rows->n_kernels_before)
        return mist_trace_set_add_kernel(set, row, err);
    struct mist_kernel_row *into = &set->kernels[same - set->kernels];
    merge(&into->time_us, &into->deviation_us, &into->repetitions, row->time_us,
          row->deviation_us, row->repetitions);
    return MIST_OK;
}

enum mist_status mist_import_rows_add_product(const struct mist_import_rows *rows,
                                              const struct mist_kernel_row *row,
                                              int64_t m, int64_t n, int64_t k,
                                              struct mist_err *err)
{
    const struct {
        enum mist_phase phase;
        int64_t rows, n_in, n_out;
    } uses[] = {{MIST_PHASE_FORWARD, m, k, n},
                {MIST_PHASE_BACKWARD_INPUT, m, n, k},
                {MIST_PHASE_BACKWARD_WEIGHT, k, m, n}};
    struct mist_kernel_row use = *row;
    int element = row->dtype == MIST_TRACE_FP32 || row->dtype == MIST_TRACE_TF32 ? 4
                  : row->dtype == MIST_TRACE_FP8                                 ? 1
                                                                                 : 2;
    enum mist_status status = MIST_OK;

    snprintf(use.op, sizeof use.op, "linear");
    use.flop = 2.0 * (double)m * (double)n * (double)k;
    use.bytes =
        element * ((double)m * (double)k + (double)k * (double)n + (double)m * (double)n);
    for (int i = 0; i < 3 && status == MIST_OK; i++) {
        use.phase = uses[i].phase;
        use.shape = (struct mist_shape){.n_dims = 3,
                                        .dims = {{"rows", uses[i].rows},
                                                 {"n_in", uses[i].n_in},
                                                 {"n_out", uses[i].n_out}}};
        status = mist_import_rows_add_kernel(rows, &use, err);
    }
    return status;
}

enum mist_status mist_import_rows_add_link(const struct mist_import_rows *rows,
                                           const struct mist_link_row *row,
                                           enum mist_import_keep keep,
                                           struct mist_err *err)
{
    struct mist_trace_set *set = rows->set;
    const struct mist_link_row *same = mist_trace_set_find_link(set, row);
    enum mist_status status = mist_trace_check_row(MIST_TRACE_TABLE_LINKS, row, err);

    if (status == MIST_OK)
        status = mist_trace_judge_link(row, &set->cluster, err);
    if (status != MIST_OK)
        return status;
    if (!same || (size_t)(same - set->links) < rows->n_links_before)
        return mist_trace_set_add_link(set, row, err);
    struct mist_link_row *into = &set->links[same - set->links];
    if (keep == MIST_IMPORT_MEAN) {
        merge(&into->time_us, &into->deviation_us, &into->repetitions, row->time_us,
              row->deviation_us, row->repetitions);
    } else {
        into->time_us = fmin(into->time_us, row->time_us);
        into->repetitions += row->repetitions;
    }
    return MIST_OK;
}
