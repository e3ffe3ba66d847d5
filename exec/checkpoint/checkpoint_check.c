/*
 * Is every checkpoint of a folder whole? See checkpoint.h.
 *
 *     $ mist-exec --verify run
 *     Checkpoints
 *       checkpoint     step  run               ranks  size      whole  problem
 *       step-00000020    20  9c1e6c8ad2a41f03      2  90.4 MiB  yes    -
 *       step-00000010    10  9c1e6c8ad2a41f03      2  90.4 MiB  no     rank-00001.bin:
 * ...
 */
#include "exec/checkpoint/checkpoint.h"

#include "core/emit.h"
#include "core/path.h"
#include "exec/checkpoint/checkpoint_internal.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* What the manifest says, as far as it can be read. */
struct summary {
    bool is_known;
    int64_t step, bytes;
    int32_t n_ranks;
    uint64_t run_id;
};

static enum mist_status summarize(const char *path, struct summary *out,
                                  struct mist_err *err)
{
    struct mist_checkpoint *checkpoint;
    enum mist_status status = checkpoint_open_manifest(path, &checkpoint, err);

    *out = (struct summary){0};
    if (status == MIST_OK) {
        json_t *files = json_object_get(checkpoint->root.value, "files");
        *out = (struct summary){.is_known = true,
                                .step = checkpoint->step,
                                .n_ranks = checkpoint->n_files,
                                .run_id = checkpoint->run_id};
        for (size_t i = 0; i < json_array_size(files); i++)
            out->bytes += (int64_t)json_integer_value(
                json_object_get(json_array_get(files, i), "bytes"));
    }
    mist_checkpoint_close(checkpoint);
    return status == MIST_ERR_MEMORY ? status : MIST_OK;
}

/* A row of numbers that may not be known. */
static void emit_summary(struct mist_emit *emit, const struct summary *summary)
{
    char run[CHECKPOINT_SUM_DIGITS + 1] = "";

    snprintf(run, sizeof run, "%016" PRIx64, summary->run_id);
    if (!summary->is_known) {
        mist_emit_text(emit, "step", NULL, NULL);
        mist_emit_text(emit, "run", NULL, NULL);
        mist_emit_text(emit, "ranks", NULL, NULL);
        mist_emit_text(emit, "bytes", "size", NULL);
        return;
    }
    mist_emit_int64(emit, "step", NULL, summary->step, MIST_HUMAN_NUMBER);
    mist_emit_text(emit, "run", NULL, summary->run_id ? run : NULL);
    mist_emit_int64(emit, "ranks", NULL, summary->n_ranks, MIST_HUMAN_NUMBER);
    mist_emit_int64(emit, "bytes", "size", summary->bytes, MIST_HUMAN_BYTES);
}

struct tally {
    int64_t n, n_damaged;
};

/* One that a running job has deleted meanwhile is left out. */
static enum mist_status check_one(struct mist_emit *emit, const char *path,
                                  struct tally *tally, struct mist_err *err)
{
    char problem[sizeof err->path + sizeof err->message + 2];
    struct summary summary;
    struct mist_err why;
    enum mist_status status = summarize(path, &summary, err);

    if (status != MIST_OK)
        return status;
    status = mist_checkpoint_verify(path, &why);
    if (status == MIST_ERR_MEMORY) {
        if (err)
            *err = why;
        return status;
    }
    if (status != MIST_OK && access(path, F_OK) != 0)
        return MIST_OK;
    snprintf(problem, sizeof problem, "%s: %s", mist_path_name(why.path), why.message);
    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "checkpoint", NULL, mist_path_name(path));
    emit_summary(emit, &summary);
    mist_emit_bool(emit, "is_whole", "whole", status == MIST_OK);
    mist_emit_text(emit, "problem", NULL, status == MIST_OK ? NULL : problem);
    mist_emit_object_end(emit);
    tally->n++;
    tally->n_damaged += status != MIST_OK;
    return MIST_OK;
}

static enum mist_status check_all(struct mist_emit *emit, const char *dir,
                                  struct tally *tally, struct mist_err *err)
{
    struct checkpoint_entry *entries = NULL;
    size_t n = 0;
    enum mist_status status = MIST_OK;

    if (mist_checkpoint_is_there(dir))
        return check_one(emit, dir, tally, err);
    status = checkpoint_list(dir, &entries, &n, err);
    for (size_t i = 0; i < n && status == MIST_OK; i++) {
        /* what deletions leave is "old", and has none */
        if (entries[i].kind == ENTRY_FINAL ||
            (entries[i].kind == ENTRY_OLD && mist_checkpoint_is_there(entries[i].path)))
            status = check_one(emit, entries[i].path, tally, err);
    }
    checkpoint_list_free(entries, n);
    return status;
}

enum mist_status mist_checkpoint_check_folder(const char *dir, bool as_json, FILE *stream,
                                              struct mist_err *err)
{
    struct mist_emit *emit = NULL;
    struct tally tally = {0};
    enum mist_status status =
        mist_emit_begin(&emit, as_json ? MIST_EMIT_JSON : MIST_EMIT_TABLE, stream, err);

    if (status == MIST_OK) {
        mist_emit_list_begin(emit, "checkpoints", "Checkpoints");
        status = check_all(emit, dir, &tally, err);
        mist_emit_list_end(emit);
    }
    if (status == MIST_OK && tally.n == 0)
        status = mist_err_at(err, MIST_ERR_INPUT, dir, 0, 0, "holds no checkpoint");
    if (status == MIST_OK)
        status = mist_emit_end(&emit, err);
    mist_emit_free(emit);
    if (status == MIST_OK && tally.n_damaged > 0)
        status = mist_err_at(err, MIST_ERR_VERIFY, dir, 0, 0,
                             "%lld of %lld checkpoints are not whole",
                             (long long)tally.n_damaged, (long long)tally.n);
    return status;
}
