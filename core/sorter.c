/* Sorting of more than memory holds. See sorter.h. */
#include "core/sorter.h"

#include "core/atomic_file.h"
#include "core/memory.h"
#include "core/path.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* A sorted part of the records. What is in memory of it is records first .. behind - 1. */
struct mist_sorter_run {
    size_t n;             /* records */
    size_t n_read;        /* of them, since the begin */
    size_t first, behind; /* indices into the sorter's records */
    size_t place, n_most; /* where they lie, and how many there is room for */
};

static enum mist_status fail_file(const char *verb, struct mist_err *err)
{
    return mist_err_io(err, mist_path_temporary(), verb, errno ? errno : EIO);
}

static enum mist_status open_file(struct mist_sorter *sorter, struct mist_err *err)
{
    char path[PATH_MAX];

    errno = ENAMETOOLONG;
    enum mist_status status =
        snprintf(path, sizeof path, "%s/mist-sort", mist_path_temporary()) < PATH_MAX
            ? mist_file_open_nameless(path, &sorter->file, err)
            : MIST_ERR_IO;
    return status == MIST_ERR_IO ? fail_file("make a temporary file", err) : status;
}

void mist_sorter_init(struct mist_sorter *sorter, size_t record_bytes, size_t most_bytes,
                      int (*compare)(const void *, const void *))
{
    *sorter = (struct mist_sorter){
        .record_bytes = record_bytes,
        .n_most = most_bytes > record_bytes ? most_bytes / record_bytes : 1,
        .compare = compare};
}

static char *record_at(const struct mist_sorter *sorter, size_t i)
{
    return sorter->records + i * sorter->record_bytes;
}

/* Makes room for n records. */
static enum mist_status reserve(struct mist_sorter *sorter, size_t n,
                                struct mist_err *err)
{
    if (n <= sorter->capacity)
        return MIST_OK;
    char *records =
        mist_grow(sorter->records, &sorter->capacity, n, sorter->record_bytes);
    if (!records)
        return mist_err_memory(err, NULL);
    sorter->records = records;
    return MIST_OK;
}

/* Sorts what was added; it is a run of its own. */
static enum mist_status end_run(struct mist_sorter *sorter, struct mist_err *err)
{
    if (!MIST_RESERVE(sorter->runs, sorter->runs_capacity, sorter->n_runs + 1))
        return mist_err_memory(err, NULL);
    if (sorter->n > 0)
        qsort(sorter->records, sorter->n, sorter->record_bytes, sorter->compare);
    sorter->runs[sorter->n_runs++] = (struct mist_sorter_run){.n = sorter->n};
    return MIST_OK;
}

/* Sorts what was added and writes it behind the other runs. */
static enum mist_status write_run(struct mist_sorter *sorter, struct mist_err *err)
{
    enum mist_status status = end_run(sorter, err);

    if (status == MIST_OK && !sorter->file)
        status = open_file(sorter, err);
    if (status != MIST_OK)
        return status;
    size_t n = fwrite(sorter->records, sorter->record_bytes, sorter->n, sorter->file);
    if (n < sorter->n || fflush(sorter->file) != 0)
        return fail_file("write a temporary file", err);
    sorter->n = 0;
    return MIST_OK;
}

enum mist_status mist_sorter_add(struct mist_sorter *sorter, const void *record,
                                 struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (sorter->n == sorter->n_most)
        status = write_run(sorter, err);
    if (status == MIST_OK)
        status = reserve(sorter, sorter->n + 1, err);
    if (status == MIST_OK)
        memcpy(record_at(sorter, sorter->n++), record, sorter->record_bytes);
    return status;
}

/* Reads on in run i, of which nothing is left in memory. */
static enum mist_status refill(struct mist_sorter *sorter, size_t i, struct mist_err *err)
{
    struct mist_sorter_run *run = &sorter->runs[i];
    size_t before = 0, n = run->n - run->n_read;

    for (size_t k = 0; k < i; k++)
        before += sorter->runs[k].n;
    n = n < run->n_most ? n : run->n_most;
    off_t at = (off_t)((before + run->n_read) * sorter->record_bytes);
    if (fseeko(sorter->file, at, SEEK_SET) != 0 ||
        fread(record_at(sorter, run->place), sorter->record_bytes, n, sorter->file) < n)
        return fail_file("read a temporary file", err);
    run->first = run->place;
    run->behind = run->place + n;
    run->n_read += n;
    return MIST_OK;
}

/* Whether the next record of run a comes before that of b. */
static bool is_before(const struct mist_sorter *sorter, size_t a, size_t b)
{
    return sorter->compare(record_at(sorter, sorter->runs[a].first),
                           record_at(sorter, sorter->runs[b].first)) < 0;
}

/* Moves entry i of the heap down to where it belongs. */
static void sink(struct mist_sorter *sorter, size_t i)
{
    for (size_t least = i;; i = least) {
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < sorter->n_heap; k++)
            if (is_before(sorter, sorter->heap[k], sorter->heap[least]))
                least = k;
        if (least == i)
            return;
        size_t moved = sorter->heap[i];
        sorter->heap[i] = sorter->heap[least];
        sorter->heap[least] = moved;
    }
}

/* No more is added: the last run ends, and the memory of one is shared out among all. */
static enum mist_status end_adding(struct mist_sorter *sorter, struct mist_err *err)
{
    enum mist_status status =
        sorter->file ? write_run(sorter, err) : end_run(sorter, err);

    if (status == MIST_OK)
        status = reserve(sorter, sorter->n_runs, err);
    sorter->heap = malloc(sorter->n_runs * sizeof *sorter->heap);
    if (status == MIST_OK && !sorter->heap)
        status = mist_err_memory(err, NULL);
    for (size_t i = 0; i < sorter->n_runs && status == MIST_OK; i++) {
        sorter->runs[i].n_most = sorter->capacity / sorter->n_runs;
        sorter->runs[i].place = i * sorter->runs[i].n_most;
    }
    return status;
}

enum mist_status mist_sorter_begin(struct mist_sorter *sorter, struct mist_err *err)
{
    enum mist_status status = sorter->heap ? MIST_OK : end_adding(sorter, err);

    sorter->n_heap = 0;
    for (size_t i = 0; i < sorter->n_runs && status == MIST_OK; i++) {
        struct mist_sorter_run *run = &sorter->runs[i];
        run->n_read = 0;
        if (sorter->file)
            status = refill(sorter, i, err);
        else
            *run = (struct mist_sorter_run){run->n, run->n, 0, run->n, 0, run->n};
        if (run->n > 0)
            sorter->heap[sorter->n_heap++] = i;
    }
    for (size_t i = sorter->n_heap / 2; i-- > 0 && status == MIST_OK;)
        sink(sorter, i);
    return status;
}

enum mist_status mist_sorter_next(struct mist_sorter *sorter, void *record,
                                  bool *is_there, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    *is_there = sorter->n_heap > 0;
    if (!*is_there)
        return MIST_OK;
    size_t i = sorter->heap[0];
    struct mist_sorter_run *run = &sorter->runs[i];
    memcpy(record, record_at(sorter, run->first++), sorter->record_bytes);
    if (run->first == run->behind && run->n_read < run->n)
        status = refill(sorter, i, err);
    if (run->first == run->behind)
        sorter->heap[0] = sorter->heap[--sorter->n_heap];
    if (status == MIST_OK)
        sink(sorter, 0);
    return status;
}

void mist_sorter_fini(struct mist_sorter *sorter)
{
    if (sorter->file)
        fclose(sorter->file);
    free(sorter->records);
    free(sorter->runs);
    free(sorter->heap);
    *sorter = (struct mist_sorter){0};
}
