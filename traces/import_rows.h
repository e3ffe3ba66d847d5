/*
 * What importers share: measurements that become rows of a trace set. Several of one key
 * become one row; a row that the set had before stays what it is, and one of its key is an
 * error.
 */
#ifndef MIST_TRACES_IMPORT_ROWS_H
#define MIST_TRACES_IMPORT_ROWS_H

#include "core/status.h"
#include "traces/trace_set.h"

#include <stddef.h>

struct mist_import_rows {
    struct mist_trace_set *set;              /* borrowed */
    size_t n_kernels_before, n_links_before; /* of the set */
};

/* Rows of set so far are those it had before. */
struct mist_import_rows mist_import_rows_begin(struct mist_trace_set *set);

/* Rows that were added since. */
size_t mist_import_rows_count(const struct mist_import_rows *rows);

/* Adds a time of an operator; rows of one key get the mean, with the deviation of all.
 * MIST_ERR_INPUT: a row from before, or a time that can't be true; MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status
mist_import_rows_add_kernel(const struct mist_import_rows *rows,
                            const struct mist_kernel_row *row, struct mist_err *err);

/*
 * Adds a product out [m, n] = a [m, k] * b [k, n]. It is one whatever it is for: the
 * forward of a linear layer (rows m, n_in k, n_out n), the gradient of an input (rows m,
 * n_in n, n_out k) and that of a weight (n_in m, n_out n, rows k). row: dtype and what was
 * measured.
 */
MIST_MUST_CHECK enum mist_status
mist_import_rows_add_product(const struct mist_import_rows *rows,
                             const struct mist_kernel_row *row, int64_t m, int64_t n,
                             int64_t k, struct mist_err *err);

/* How times of one message become one. */
enum mist_import_keep {
    MIST_IMPORT_MEAN,
    MIST_IMPORT_SHORTEST /* the others waited for a rank that came late */
};

/* Adds a time of a message or a copy. */
MIST_MUST_CHECK enum mist_status
mist_import_rows_add_link(const struct mist_import_rows *rows,
                          const struct mist_link_row *row, enum mist_import_keep keep,
                          struct mist_err *err);

#endif
