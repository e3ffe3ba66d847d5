/*
 * From rank files to a checkpoint, and the end of old ones.
 *
 * The order is the point: the manifest is on the disk before the folder gets its name,
 * the name before anything old is removed. A folder can't be renamed over another, so a
 * checkpoint of the same step steps aside first; whoever is interrupted in between leaves
 * it as step-N.old, which readers accept.
 */
#include "exec/checkpoint/checkpoint.h"

#include "core/atomic_file.h" /* mist_folder_flush */
#include "core/path.h"
#include "exec/checkpoint/checkpoint_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static enum mist_status move(const char *from, const char *to, struct mist_err *err)
{
    if (rename(from, to) == 0)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_IO, to, 0, 0, "can't get the name of %s: %s", from,
                       strerror(errno));
}

/* Checks the rank files in a folder and adds the manifest. */
static enum mist_status complete_folder(const char *folder,
                                        const struct mist_checkpoint_save *save,
                                        const struct mist_model *model,
                                        const json_t *training, struct mist_err *err)
{
    struct mist_checkpoint *checkpoint = checkpoint_new(folder, err);
    enum mist_status status;

    if (!checkpoint)
        return MIST_ERR_MEMORY;
    checkpoint->step = save->step;
    checkpoint->run_id = save->run_id;
    if (!(status = checkpoint_load_tables(checkpoint, save->n_ranks, err)) &&
        !(status = checkpoint_remove_ranks(folder, save->n_ranks, err)) &&
        !(status = checkpoint_write_manifest(checkpoint, model, training, err)))
        status = mist_folder_flush(folder, err);
    mist_checkpoint_close(checkpoint);
    return status;
}

/* Also a link that leads nowhere. */
static bool is_taken(const char *path)
{
    struct stat info;

    return lstat(path, &info) == 0;
}

/* Gives the folder its name; what had it before becomes old. */
static enum mist_status swap_in(const char *partial, const char *final, const char *old,
                                struct mist_err *err)
{
    bool replaces = is_taken(final);
    enum mist_status status = MIST_OK;

    if (replaces) {
        if (is_taken(old))
            status = checkpoint_remove(old, err);
        if (!status)
            status = move(final, old, err);
        if (status)
            return status;
    }
    status = move(partial, final, err);
    if (status && replaces && rename(old, final) != 0)
        return status; /* readers accept old */
    return status;
}

/* Flushes the entries of dir and its own, which may be new. */
static enum mist_status flush_names(const char *dir, struct mist_err *err)
{
    enum mist_status status = mist_folder_flush(dir, err);
    char *above = mist_path_join(dir, "..");

    if (!above)
        status = status ? status : mist_err_memory(err, dir);
    else if (!status)
        status = mist_folder_flush(above, err);
    free(above);
    return status;
}

/* --------------------------------------------------------------------------- old ones */

enum state { STATE_COMPLETE, STATE_DAMAGED, STATE_NO_MANIFEST };

/* By manifest and file sizes alone. */
static enum mist_status look_at(const char *path, enum state *out, struct mist_err *err)
{
    struct mist_checkpoint *checkpoint = NULL;
    enum mist_status status = MIST_OK;

    *out = STATE_NO_MANIFEST;
    if (mist_checkpoint_is_there(path)) {
        status = checkpoint_open_manifest(path, &checkpoint, err);
        *out = status ? STATE_DAMAGED : STATE_COMPLETE;
    }
    mist_checkpoint_close(checkpoint);
    return status == MIST_ERR_MEMORY ? status : MIST_OK;
}

/* A folder that is renamed first is no checkpoint from one moment to the next: only
 * damage leaves one under its final name without a manifest. */
static enum mist_status
delete_entry(const char *dir, const struct checkpoint_entry *entry, struct mist_err *err)
{
    char old[PATH_MAX];

    checkpoint_step_path(old, dir, entry->step, ".old");
    bool is_moved = entry->kind == ENTRY_FINAL && rename(entry->path, old) == 0;
    return checkpoint_remove(is_moved ? old : entry->path, err);
}

/* Goes on after a failure and returns the first. */
static enum mist_status prune(const char *dir, int64_t step, int32_t keep,
                              struct mist_err *err)
{
    struct checkpoint_entry *entries = NULL;
    size_t n = 0;
    int64_t whole_step = -1; /* of the complete one seen last */
    int32_t n_others = 0;    /* complete ones of other steps */
    struct mist_err why;
    enum mist_status first = checkpoint_list(dir, &entries, &n, err);

    for (size_t i = 0; i < n; i++) {
        const struct checkpoint_entry *entry = &entries[i];
        enum state state = STATE_NO_MANIFEST;
        enum mist_status status = MIST_OK;
        if (entry->step == step && entry->kind == ENTRY_FINAL)
            continue;
        if (entry->kind != ENTRY_PARTIAL)
            status = look_at(entry->path, &state, &why);
        /* An old one is needed only where the one that replaced it is not whole. */
        bool is_spare = entry->step == step || entry->step == whole_step;
        if (!status && state == STATE_COMPLETE && !is_spare) {
            whole_step = entry->step;
            n_others++;
        }
        if (!status && state != STATE_DAMAGED &&
            (state == STATE_NO_MANIFEST || is_spare || (keep > 0 && n_others >= keep)))
            status = delete_entry(dir, entry, &why);
        if (status && !first) {
            first = status;
            if (err)
                *err = why;
        }
    }
    checkpoint_list_free(entries, n);
    return first;
}

/* ----------------------------------------------------------------------------- public */

enum mist_status mist_checkpoint_commit(const struct mist_checkpoint_save *save,
                                        const struct mist_model *model,
                                        const json_t *training, int32_t keep,
                                        struct mist_err *warning, struct mist_err *err)
{
    const char *dir = save->dir;
    char partial[PATH_MAX], final[PATH_MAX], old[PATH_MAX];
    struct mist_err left = {0};
    enum mist_status status;

    if (warning)
        *warning = left;
    checkpoint_partial_path(partial, save);
    checkpoint_step_path(final, dir, save->step, "");
    checkpoint_step_path(old, dir, save->step, ".old");
    if ((status = complete_folder(partial, save, model, training, err)) ||
        (status = swap_in(partial, final, old, err)) || (status = flush_names(dir, err)))
        return status;
    if (prune(dir, save->step, keep, &left) != MIST_OK && warning)
        *warning = left;
    return MIST_OK;
}

void mist_checkpoint_discard(const struct mist_checkpoint_save *save)
{
    char partial[PATH_MAX];

    checkpoint_partial_path(partial, save);
    (void)!checkpoint_remove(partial, NULL); /* what stays the next save removes */
}
