/*
 * All pieces of a checkpoint, by tensor, and the search for an element.
 *
 * A tensor cut by columns is millions of short runs in few spans, so no run is listed: an
 * element is looked for in the spans, and since neighbours in one row are neighbours in
 * the next row as well, every span remembers where the search went on after it the last
 * time. The first look nearly always hits.
 */
#include "exec/checkpoint/checkpoint_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------- finding spans */

/* Elements that lie together from element p on; 0 when the cover does not hold p. */
static int64_t elements_at(const struct checkpoint_cover *cover, int64_t p,
                           int64_t *payload_first)
{
    const struct mist_param_span *span = &cover->span;
    int64_t run = 0, offset = p - span->global_first;

    if (offset < 0)
        return 0;
    if (offset >= span->length && span->n_runs > 1) {
        run = offset / span->global_stride;
        offset -= run * span->global_stride;
    }
    if (run >= span->n_runs || offset >= span->length)
        return 0;
    *payload_first = span->local_first + run * span->length + offset;
    return span->length - offset;
}

bool checkpoint_locate(struct checkpoint_tensor *tensor, int64_t first, int64_t n,
                       struct checkpoint_hit *hit)
{
    int32_t i = tensor->covers[tensor->last].next;

    for (int32_t k = 0; k < tensor->n_covers; k++) {
        int64_t n_here = elements_at(&tensor->covers[i], first, &hit->first);
        if (n_here > 0) {
            tensor->covers[tensor->last].next = i;
            tensor->last = i;
            hit->piece = tensor->covers[i].piece;
            hit->n = n_here < n ? n_here : n;
            return true;
        }
        i = i + 1 < tensor->n_covers ? i + 1 : 0;
    }
    return false;
}

bool checkpoint_overlap(const struct checkpoint_cover *cover, int64_t first, int64_t end,
                        int64_t *at, struct checkpoint_hit *hit)
{
    const struct mist_param_span *span = &cover->span;

    if (first < span->global_first)
        first = span->global_first;
    if (span->n_runs > 1) {
        int64_t run = (first - span->global_first) / span->global_stride;
        int64_t start = span->global_first + run * span->global_stride;
        if (first - start >= span->length) { /* behind a run: at the next one */
            if (run + 1 >= span->n_runs)
                return false;
            first = start + span->global_stride;
        }
    }
    hit->n = first < end ? elements_at(cover, first, &hit->first) : 0;
    if (hit->n > end - first)
        hit->n = end - first;
    hit->piece = cover->piece;
    *at = first;
    return hit->n > 0;
}

static int compare_tensors(const void *a, const void *b)
{
    return strcmp(((const struct checkpoint_tensor *)a)->name,
                  ((const struct checkpoint_tensor *)b)->name);
}

struct checkpoint_tensor *checkpoint_find(const struct mist_checkpoint *checkpoint,
                                          const char *name)
{
    const struct checkpoint_tensor key = {.name = name};

    if (checkpoint->n_tensors == 0)
        return NULL;
    return bsearch(&key, checkpoint->tensors, (size_t)checkpoint->n_tensors,
                   sizeof *checkpoint->tensors, compare_tensors);
}

/* --------------------------------------------------------------------------- building */

/* Lists the tensors of all files, sorted, each once; sizes must agree. */
static enum mist_status merge_tensors(struct mist_checkpoint *checkpoint,
                                      struct mist_err *err)
{
    struct checkpoint_tensor *all;
    size_t n = 0, n_kept = 0;

    for (int32_t t = 0; t < checkpoint->n_files; t++)
        n += (size_t)checkpoint->tables[t].n_tensors;
    if (n > INT32_MAX || !(all = mist_arena_alloc(&checkpoint->arena, n * sizeof *all)))
        return mist_err_memory(err, checkpoint->path);
    checkpoint->tensors = all;
    n = 0;
    for (int32_t t = 0; t < checkpoint->n_files; t++)
        for (int32_t i = 0; i < checkpoint->tables[t].n_tensors; i++, n++) {
            all[n].name = checkpoint->tables[t].tensors[i].name;
            all[n].n_elements = checkpoint->tables[t].tensors[i].whole_elements;
        }
    if (n > 1)
        qsort(all, n, sizeof *all, compare_tensors);
    for (size_t i = 0; i < n; i++) {
        if (n_kept == 0 || strcmp(all[n_kept - 1].name, all[i].name) != 0)
            all[n_kept++] = all[i];
        else if (all[n_kept - 1].n_elements != all[i].n_elements)
            return mist_err_at(err, MIST_ERR_INPUT, checkpoint->path, 0, 0,
                               "damaged: ranks disagree on the size of tensor %s",
                               all[i].name);
    }
    checkpoint->n_tensors = (int32_t)n_kept;
    return MIST_OK;
}

static void add_covers(struct checkpoint_tensor *tensor, struct checkpoint_piece *piece)
{
    for (int32_t i = 0; i < piece->n_spans; i++) {
        struct checkpoint_cover *cover = &tensor->covers[tensor->n_covers++];
        cover->span = piece->spans[i];
        cover->piece = piece;
        if (cover->span.n_runs > 1 && cover->span.global_stride == cover->span.length) {
            cover->span.length *= cover->span.n_runs;
            cover->span.n_runs = 1;
        }
    }
}

/* The sorted order is only where searches begin; equal starts: in the order of ranks. */
static int compare_covers(const void *a, const void *b)
{
    const struct checkpoint_cover *x = a, *y = b;

    if (x->span.global_first != y->span.global_first)
        return x->span.global_first < y->span.global_first ? -1 : 1;
    if (x->piece->table->rank != y->piece->table->rank)
        return x->piece->table->rank < y->piece->table->rank ? -1 : 1;
    if (x->piece->payload != y->piece->payload)
        return x->piece->payload < y->piece->payload ? -1 : 1;
    return (x->span.local_first > y->span.local_first) -
           (x->span.local_first < y->span.local_first);
}

/* Counts the covers of all tensors, or adds them. */
static void visit_pieces(struct mist_checkpoint *checkpoint, bool adds)
{
    for (int32_t t = 0; t < checkpoint->n_files; t++) {
        struct checkpoint_table *table = &checkpoint->tables[t];
        for (int32_t i = 0; i < table->n_pieces; i++) {
            struct checkpoint_piece *piece = &table->pieces[i];
            struct checkpoint_tensor *tensor =
                checkpoint_find(checkpoint, table->tensors[piece->tensor].name);
            if (adds)
                add_covers(tensor, piece);
            else
                tensor->n_covers += piece->n_spans;
        }
    }
}

static enum mist_status collect_covers(struct mist_checkpoint *checkpoint,
                                       struct mist_err *err)
{
    visit_pieces(checkpoint, false);
    for (int32_t i = 0; i < checkpoint->n_tensors; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        tensor->covers = mist_arena_alloc(&checkpoint->arena, (size_t)tensor->n_covers *
                                                                  sizeof *tensor->covers);
        if (!tensor->covers)
            return mist_err_memory(err, checkpoint->path);
        tensor->n_covers = 0;
    }
    visit_pieces(checkpoint, true);
    for (int32_t i = 0; i < checkpoint->n_tensors; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        if (tensor->n_covers > 1)
            qsort(tensor->covers, (size_t)tensor->n_covers, sizeof *tensor->covers,
                  compare_covers);
        for (int32_t k = 0; k < tensor->n_covers; k++)
            tensor->covers[k].next = k + 1 < tensor->n_covers ? k + 1 : 0;
    }
    return MIST_OK;
}

static enum mist_status check_coverage(struct mist_checkpoint *checkpoint,
                                       struct mist_err *err)
{
    struct checkpoint_hit hit;

    for (int32_t i = 0; i < checkpoint->n_tensors; i++) {
        struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        for (int64_t p = 0; p < tensor->n_elements; p += hit.n)
            if (tensor->n_covers == 0 ||
                !checkpoint_locate(tensor, p, tensor->n_elements - p, &hit))
                return mist_err_at(err, MIST_ERR_INPUT, checkpoint->path, 0, 0,
                                   "element %lld of tensor %s is in no rank's file",
                                   (long long)p, tensor->name);
    }
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- loading */

static enum mist_status load_table(struct mist_checkpoint *checkpoint, int32_t rank,
                                   struct mist_err *err)
{
    struct checkpoint_table *table = &checkpoint->tables[rank];
    char path[PATH_MAX];

    checkpoint_rank_path(path, checkpoint->path, rank);
    enum mist_status status = checkpoint_table_open(table, path, &checkpoint->arena, err);
    if (status)
        return status;
    if (table->rank != rank || table->n_ranks != checkpoint->n_files ||
        table->step != checkpoint->step)
        return mist_err_at(err, MIST_ERR_INPUT, table->path, 0, 0,
                           "is of step %lld, rank %d of %d, expected step %lld, rank %d "
                           "of %d",
                           (long long)table->step, table->rank, table->n_ranks,
                           (long long)checkpoint->step, rank, checkpoint->n_files);
    if (table->run_id != checkpoint->run_id)
        return mist_err_at(err, MIST_ERR_INPUT, table->path, 0, 0,
                           "is of run %016" PRIx64 ", expected run %016" PRIx64
                           ": two jobs have written to one folder",
                           table->run_id, checkpoint->run_id);
    return MIST_OK;
}

enum mist_status checkpoint_load_tables(struct mist_checkpoint *checkpoint,
                                        int32_t n_files, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    checkpoint->tables = mist_arena_alloc(&checkpoint->arena,
                                          (size_t)n_files * sizeof *checkpoint->tables);
    if (!checkpoint->tables)
        return mist_err_memory(err, checkpoint->path);
    checkpoint->n_files = n_files;
    for (int32_t rank = 0; rank < n_files && !status; rank++)
        status = load_table(checkpoint, rank, err);
    if (status || (status = merge_tensors(checkpoint, err)) ||
        (status = collect_covers(checkpoint, err)))
        return status;
    return check_coverage(checkpoint, err);
}
