/* Opening a checkpoint, finding the newest, and reading tensors. See checkpoint.h. */
#include "exec/checkpoint/checkpoint.h"

#include "exec/checkpoint/checkpoint_internal.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------------------- opening */

void mist_checkpoint_close(struct mist_checkpoint *checkpoint)
{
    if (!checkpoint)
        return;
    for (int32_t i = 0; checkpoint->tables && i < checkpoint->n_files; i++)
        checkpoint_table_unmap(&checkpoint->tables[i]);
    mist_json_fini(&checkpoint->manifest);
    mist_arena_fini(&checkpoint->arena);
    free(checkpoint);
}

enum mist_status mist_checkpoint_open(const char *path, struct mist_checkpoint **out,
                                      struct mist_err *err)
{
    struct mist_checkpoint *checkpoint;
    enum mist_status status = checkpoint_open_manifest(path, &checkpoint, err);

    *out = NULL;
    if (!status)
        status = checkpoint_load_tables(checkpoint, checkpoint->n_files, err);
    if (!status)
        status = checkpoint_match_manifest(checkpoint, err);
    if (status)
        mist_checkpoint_close(checkpoint);
    else
        *out = checkpoint;
    return status;
}

int64_t mist_checkpoint_step(const struct mist_checkpoint *checkpoint)
{
    return checkpoint->step;
}

struct mist_json mist_checkpoint_training(const struct mist_checkpoint *checkpoint)
{
    return checkpoint->training;
}

/* ------------------------------------------------------------------------- the newest */

/* Opens and closes; memory running out is not the checkpoint's fault. */
static enum mist_status try_open(const char *path, struct mist_err *err)
{
    struct mist_checkpoint *checkpoint;
    enum mist_status status = mist_checkpoint_open(path, &checkpoint, err);

    if (!status)
        mist_checkpoint_close(checkpoint);
    return status;
}

/* An interrupted deletion leaves an old one without manifest: no loss, no warning. */
static enum mist_status try_entry(const struct checkpoint_entry *entry, bool *is_whole,
                                  struct mist_err *warning, struct mist_err *err)
{
    struct mist_err why = {0};

    *is_whole = false;
    if (entry->kind == ENTRY_PARTIAL ||
        (entry->kind == ENTRY_OLD && !mist_checkpoint_is_there(entry->path)))
        return MIST_OK;
    enum mist_status status = try_open(entry->path, &why);
    *is_whole = status == MIST_OK;
    if (status == MIST_ERR_MEMORY) {
        if (err)
            *err = why;
        return status;
    }
    if (status && warning && !warning->message[0])
        *warning = why;
    return MIST_OK;
}

/* The first entry from first on that is whole; *chosen = n when none is. */
static enum mist_status choose(const struct checkpoint_entry *entries, size_t first,
                               size_t n, size_t *chosen, struct mist_err *warning,
                               struct mist_err *err)
{
    bool is_whole = false;

    for (*chosen = first; *chosen < n; ++*chosen) {
        enum mist_status status = try_entry(&entries[*chosen], &is_whole, warning, err);
        if (status || is_whole)
            return status;
    }
    return MIST_OK;
}

enum mist_status mist_checkpoint_find(const char *dir, const char *than, char **path,
                                      struct mist_err *warning, struct mist_err *err)
{
    struct checkpoint_entry *entries = NULL;
    size_t n = 0, first = 0, chosen = 0;
    const char *found = dir;
    bool is_checkpoint = mist_checkpoint_is_there(dir);
    enum mist_status status = MIST_OK;

    *path = NULL;
    if (warning)
        *warning = (struct mist_err){0};
    if (is_checkpoint && !than) {
        status = try_open(dir, err);
    } else {
        if (!is_checkpoint)
            status = checkpoint_list(dir, &entries, &n, err);
        while (than && first < n && strcmp(entries[first++].path, than) != 0)
            continue;
        if (!status)
            status = choose(entries, first, n, &chosen, warning, err);
        if (!status && chosen == n)
            status =
                mist_err_at(err, MIST_ERR_INPUT, dir, 0, 0, "holds no whole checkpoint");
        else if (!status)
            found = entries[chosen].path;
    }
    if (!status && !(*path = strdup(found)))
        status = mist_err_memory(err, dir);
    checkpoint_list_free(entries, n);
    return status;
}

/* ---------------------------------------------------------------------------- tensors */

/* The elements must be within the tensor. */
static enum mist_status read_range(const struct mist_checkpoint *checkpoint,
                                   struct checkpoint_tensor *tensor, int64_t first,
                                   int64_t n, float *out, struct mist_err *err)
{
    struct checkpoint_hit hit;

    for (; n > 0; first += hit.n, out += hit.n, n -= hit.n) {
        if (!checkpoint_locate(tensor, first, n, &hit))
            return mist_err_at(err, MIST_ERR_INPUT, checkpoint->path, 0, 0,
                               "element %lld of tensor %s is in no rank's file",
                               (long long)first, tensor->name);
        enum mist_status status =
            checkpoint_piece_verify(hit.piece, hit.first, hit.n, err);
        if (status)
            return status;
        memcpy(out, hit.piece->payload + hit.first * (int64_t)sizeof *out,
               (size_t)hit.n * sizeof *out);
    }
    return MIST_OK;
}

enum mist_status mist_checkpoint_read_spans(struct mist_checkpoint *checkpoint,
                                            const char *tensor,
                                            const struct mist_param_span *spans,
                                            int32_t n_spans, float *local,
                                            struct mist_err *err)
{
    struct checkpoint_tensor *found = checkpoint_find(checkpoint, tensor);
    enum mist_status status = MIST_OK;

    if (!found)
        return mist_err_at(err, MIST_ERR_INPUT, checkpoint->path, 0, 0,
                           "has no tensor %s", tensor);
    for (int32_t i = 0; i < n_spans && !status; i++) {
        const struct mist_param_span *span = &spans[i];
        if (!checkpoint_span_is_valid(span, found->n_elements))
            return mist_err_at(err, MIST_ERR_INPUT, checkpoint->path, 0, 0,
                               "span %d is not within the %lld elements of tensor %s", i,
                               (long long)found->n_elements, tensor);
        for (int64_t run = 0; run < span->n_runs && !status; run++)
            status = read_range(
                checkpoint, found, span->global_first + run * span->global_stride,
                span->length, local + span->local_first + run * span->length, err);
    }
    return status;
}

/* ----------------------------------------------------------------------- verification */

/* Compares elements global_first .. end - 1 of a piece, which are at own, with those of
 * all pieces that hold some of them: a reader may get them from any. */
static enum mist_status compare_run(struct checkpoint_tensor *tensor,
                                    const struct checkpoint_piece *piece,
                                    int64_t global_first, int64_t end,
                                    const unsigned char *own, struct mist_err *err)
{
    struct checkpoint_hit hit;
    int64_t at;

    for (int32_t i = 0; i < tensor->n_covers && tensor->covers[i].span.global_first < end;
         i++)
        for (int64_t p = global_first;
             checkpoint_overlap(&tensor->covers[i], p, end, &at, &hit); p = at + hit.n) {
            const unsigned char *mine =
                own + (at - global_first) * (int64_t)sizeof(float);
            const unsigned char *other =
                hit.piece->payload + hit.first * (int64_t)sizeof(float);
            if (mine == other)
                continue;
            enum mist_status status =
                checkpoint_piece_verify(hit.piece, hit.first, hit.n, err);
            if (status)
                return status;
            if (memcmp(mine, other, (size_t)hit.n * sizeof(float)) != 0)
                return mist_err_at(err, MIST_ERR_INPUT, piece->table->path, 0, 0,
                                   "holds other bits of tensor %s than another rank, "
                                   "near element %lld",
                                   tensor->name, (long long)at);
        }
    return MIST_OK;
}

static enum mist_status verify_piece(struct mist_checkpoint *checkpoint,
                                     struct checkpoint_piece *piece, struct mist_err *err)
{
    const char *name = piece->table->tensors[piece->tensor].name;
    struct checkpoint_tensor *tensor = checkpoint_find(checkpoint, name);
    enum mist_status status = checkpoint_piece_verify(piece, 0, piece->n_elements, err);

    for (int32_t i = 0; i < piece->n_spans && !status; i++) {
        const struct mist_param_span *span = &piece->spans[i];
        for (int64_t run = 0; run < span->n_runs && !status; run++) {
            int64_t first = span->global_first + run * span->global_stride;
            int64_t local = span->local_first + run * span->length;
            status = compare_run(tensor, piece, first, first + span->length,
                                 piece->payload + local * (int64_t)sizeof(float), err);
        }
    }
    return status;
}

enum mist_status mist_checkpoint_verify_part(struct mist_checkpoint *checkpoint,
                                             int32_t i_part, int32_t n_parts,
                                             struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int64_t t = i_part; t < checkpoint->n_files && !status; t += n_parts)
        for (int32_t i = 0; i < checkpoint->tables[t].n_pieces && !status; i++)
            status = verify_piece(checkpoint, &checkpoint->tables[t].pieces[i], err);
    return status;
}

enum mist_status mist_checkpoint_verify(const char *path, struct mist_err *err)
{
    struct mist_checkpoint *checkpoint;
    enum mist_status status = mist_checkpoint_open(path, &checkpoint, err);

    if (status)
        return status;
    status = mist_checkpoint_verify_part(checkpoint, 0, 1, err);
    mist_checkpoint_close(checkpoint);
    return status;
}
