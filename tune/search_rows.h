/*
 * The rows of a search on their way to the log: in a file without a name, since a large
 * search has more of them than fit into memory, and which of them the best plan runs is
 * known at the end alone. They come in the order of the search, which no number of
 * threads changes.
 *
 * Left out: rows of other processes; the file holds structs as they are.
 */
#ifndef MIST_TUNE_SEARCH_ROWS_H
#define MIST_TUNE_SEARCH_ROWS_H

#include "core/status.h"
#include "tune/search.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct mist_search_rows {
    FILE *file;       /* owned; NULL: closed */
    const char *path; /* borrowed; what the rows are for */
    int64_t n;
};

/* No rows yet, on the disk of path. MIST_ERR_IO, MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_search_rows_open(struct mist_search_rows *rows,
                                                       const char *path,
                                                       struct mist_err *err);

/* Adds items [n]. MIST_ERR_IO. */
MIST_MUST_CHECK enum mist_status mist_search_rows_add(struct mist_search_rows *rows,
                                                      const struct mist_search_row *items,
                                                      size_t n, struct mist_err *err);

/* Calls fn for each row, in order; as often as wanted. MIST_ERR_IO. */
MIST_MUST_CHECK enum mist_status
mist_search_rows_each(struct mist_search_rows *rows,
                      void (*fn)(void *context, const struct mist_search_row *row),
                      void *context, struct mist_err *err);

/* Forgets the rows; closed or zeroed rows are left alone. MIST_ERR_IO. */
enum mist_status mist_search_rows_close(struct mist_search_rows *rows,
                                        struct mist_err *err);

#endif
