/*
 * Puts records in order, more of them than memory should hold.
 *
 * Records of one size are added and sorted in runs of most_bytes. As soon as there is more
 * than one, runs go to a nameless file in $TMPDIR (or /tmp), and reading merges them. What
 * fits into one run touches no disk. Reading may begin again as often as one likes.
 */
#ifndef MIST_CORE_SORTER_H
#define MIST_CORE_SORTER_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct mist_sorter_run;

struct mist_sorter {
    size_t record_bytes;
    size_t n_most; /* records of a run */
    int (*compare)(const void *, const void *);
    /* [capacity] the run that is filled; later what was read of all runs */
    char *records;
    size_t n, capacity;
    FILE *file; /* of sorted runs; NULL: none yet */
    struct mist_sorter_run *runs;
    size_t n_runs, runs_capacity;
    size_t *heap; /* [n_heap] runs that have a record left, the least first */
    size_t n_heap;
};

/* compare: as of qsort(); records that it calls equal come in any order. most_bytes is
 * about what memory holds, and at least a record. */
void mist_sorter_init(struct mist_sorter *sorter, size_t record_bytes, size_t most_bytes,
                      int (*compare)(const void *, const void *));

/* Adds a copy; not after mist_sorter_begin(). MIST_ERR_MEMORY, MIST_ERR_IO. */
enum mist_status mist_sorter_add(struct mist_sorter *sorter, const void *record,
                                 struct mist_err *err) MIST_MUST_CHECK;

/* Goes before the first record. MIST_ERR_MEMORY, MIST_ERR_IO. */
enum mist_status mist_sorter_begin(struct mist_sorter *sorter,
                                   struct mist_err *err) MIST_MUST_CHECK;

/* The next record, into record [record_bytes]; *is_there false: there are no more.
 * MIST_ERR_IO. */
enum mist_status mist_sorter_next(struct mist_sorter *sorter, void *record,
                                  bool *is_there, struct mist_err *err) MIST_MUST_CHECK;

/* A zeroed sorter is left alone. */
void mist_sorter_fini(struct mist_sorter *sorter);

#endif
