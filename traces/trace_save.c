/*
 * Writes trace sets as a whole. See trace_set.h.
 *
 * All files are written into a temporary folder. One that stands for a folder that does
 * not exist yet is renamed to it. Otherwise the temporary folder lies inside the one that
 * is replaced, on the same file system whatever is mounted or linked where: the old files
 * move into it, cluster.json first, then the new ones out of it, cluster.json last, and
 * all of them back should one of these steps fail.
 */
#include "core/atomic_file.h"
#include "traces/trace_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define N_NAMES 100 /* temporary names tried before giving up */

/* ---- cluster.json ---- */

/* How many rows each table has, so that one that was cut between two is noticed. */
static json_t *rows_to_json(const struct mist_trace_set *set)
{
    json_t *rows = json_object();

    for (int i = 0; i < MIST_N_TRACE_TABLES; i++)
        if (json_object_set_new(rows, mist_trace_set_file_name(i),
                                json_integer((json_int_t)mist_trace_table_n_rows(
                                    (enum mist_trace_table)i, set))) != 0) {
            json_decref(rows);
            return NULL;
        }
    return rows;
}

/* The cluster as JSON, or NULL when out of memory. Keys in the README's order. */
static json_t *cluster_to_json(const struct mist_trace_set *set)
{
    const struct mist_cluster *cluster = &set->cluster;
    json_t *rates = json_object(), *libraries = json_object(), *rows = rows_to_json(set);
    int failed = 0;

    for (int i = 0; i < MIST_N_TRACE_DTYPES; i++)
        if (cluster->peak_flop_per_s[i] > 0)
            failed |= json_object_set_new(rates, mist_trace_dtype_words[i],
                                          mist_json_number(cluster->peak_flop_per_s[i]));
    for (int i = 0; i < cluster->n_libraries; i++)
        failed |= json_object_set_new(libraries, cluster->libraries[i].name,
                                      json_string(cluster->libraries[i].version));
    if (failed || !rates || !libraries || !rows) {
        json_decref(rates);
        json_decref(libraries);
        json_decref(rows);
        return NULL;
    }
    json_t *others = json_pack("{s:i, s:o, s:o, s:o}", "format", 1, "peak_flop_per_s",
                               rates, "libraries", libraries, "rows", rows);
    json_t *root =
        others ? mist_json_write_fields(mist_cluster_fields, cluster, others) : NULL;
    if (root && !mist_cluster_declares_links(cluster))
        json_object_del(root, "declared");
    json_decref(others);
    return root;
}

static enum mist_status check_texts(const struct mist_cluster *cluster,
                                    struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if ((status = mist_json_check_text("the cluster's name", cluster->name, err)) ||
        (status = mist_json_check_text("its date", cluster->date, err)) ||
        (status = mist_json_check_text("how_measured", cluster->how_measured, err)))
        return status;
    for (int i = 0; i < cluster->n_libraries && !status; i++)
        if (!(status = mist_json_check_text("a library's name",
                                            cluster->libraries[i].name, err)))
            status = mist_json_check_text("a library's version",
                                          cluster->libraries[i].version, err);
    return status;
}

static enum mist_status save_cluster(const struct mist_trace_set *set, const char *path,
                                     bool overwrite, struct mist_err *err)
{
    enum mist_status status = check_texts(&set->cluster, err);
    json_t *root = status ? NULL : cluster_to_json(set);

    if (!status && !root)
        status = mist_err_memory(err, NULL);
    if (status) {
        mist_err_locate(err, path, 0);
        return status;
    }
    status = mist_json_write_file(root, path, overwrite, err);
    json_decref(root);
    return status;
}

/* ---- the temporary folder ---- */

/* One save. */
struct save {
    const struct mist_trace_set *set;
    char folder[MIST_TRACE_PATH_BYTES];    /* the target, no '/' at the end */
    char temporary[MIST_TRACE_PATH_BYTES]; /* "": not made */
    bool is_new;                           /* the target does not exist */
    bool has_old[MIST_N_TRACE_FILES];
    bool has_new[MIST_N_TRACE_FILES];
};

/* Looks at the target: is it there, what is in it, may that be replaced. */
static enum mist_status look(struct save *at, const char *folder, bool overwrite,
                             struct mist_err *err)
{
    char path[MIST_TRACE_PATH_BYTES];
    struct stat info;
    size_t n = strlen(folder);

    while (n > 1 && folder[n - 1] == '/')
        n--;
    if (n == 0 || n >= sizeof at->folder)
        return mist_err_at(err, MIST_ERR_IO, folder, 0, 0, "is no path of a folder");
    memcpy(at->folder, folder, n);
    at->folder[n] = '\0';
    at->is_new = stat(at->folder, &info) != 0;
    if (at->is_new)
        return errno == ENOENT ? MIST_OK
                               : mist_err_io(err, folder, "make the directory", errno);
    if (!S_ISDIR(info.st_mode)) {
        errno = ENOTDIR;
        return mist_err_io(err, folder, "make the directory", errno);
    }
    for (int i = 0; i < MIST_N_TRACE_FILES; i++) {
        enum mist_status status = mist_trace_file_path(at->folder, i, path, err);
        if (status != MIST_OK)
            return status;
        at->has_old[i] = lstat(path, &info) == 0;
        if (at->has_old[i] && !overwrite)
            return mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                               "the file exists; --force replaces the trace set");
        if (at->has_old[i] && S_ISDIR(info.st_mode)) {
            errno = EISDIR;
            return mist_err_io(err, path, "replace", errno);
        }
    }
    return MIST_OK;
}

/* The folder that holds the target. */
static void find_parent(const struct save *at, char parent[MIST_TRACE_PATH_BYTES])
{
    const char *slash = strrchr(at->folder, '/');
    size_t n = slash ? (size_t)(slash - at->folder) + (slash == at->folder) : 1;

    memcpy(parent, slash ? at->folder : ".", n);
    parent[n] = '\0';
}

static enum mist_status make_temporary(struct save *at, struct mist_err *err)
{
    char parent[MIST_TRACE_PATH_BYTES];

    find_parent(at, parent);
    enum mist_status status = at->is_new ? mist_make_directory(parent, err) : MIST_OK;
    if (status != MIST_OK)
        return status;
    for (int i = 0; i < N_NAMES; i++) {
        int n = snprintf(at->temporary, sizeof at->temporary, "%s%s.tmp.%ld.%d",
                         at->folder, at->is_new ? "" : "/traces", (long)getpid(), i);
        if (n < 0 || (size_t)n >= sizeof at->temporary)
            errno = ENAMETOOLONG;
        else if (mkdir(at->temporary, 0777) == 0)
            return MIST_OK;
        if (errno != EEXIST)
            break;
    }
    at->temporary[0] = '\0';
    return mist_err_io(err, at->folder, "write into the directory of", errno);
}

static enum mist_status fill_temporary(struct save *at, struct mist_err *err)
{
    char path[MIST_TRACE_PATH_BYTES];
    enum mist_status status = MIST_OK;

    for (int i = 0; i < MIST_N_TRACE_FILES && status == MIST_OK; i++) {
        status = mist_trace_file_path(at->temporary, i, path, err);
        if (status != MIST_OK || !at->has_new[i])
            continue;
        if (i == MIST_TRACE_FILE_CLUSTER)
            status = save_cluster(at->set, path, false, err);
        else
            status = mist_trace_table_save((enum mist_trace_table)i, path, at->set, false,
                                           err);
    }
    return status;
}

/* ---- changing places ---- */

/* The place of a file that is moved out of the way. */
static enum mist_status old_path(const struct save *at, int file,
                                 char path[MIST_TRACE_PATH_BYTES], struct mist_err *err)
{
    enum mist_status status = mist_trace_file_path(at->temporary, file, path, err);
    size_t n = status == MIST_OK ? strlen(path) : 0;

    if (status == MIST_OK && n + sizeof ".old" > MIST_TRACE_PATH_BYTES)
        return mist_err_at(err, MIST_ERR_IO, path, 0, 0, "the path is too long");
    if (status == MIST_OK)
        memcpy(path + n, ".old", sizeof ".old");
    return status;
}

/* Moves one file of the old set or of the new one, if it has it, out of the target into
 * the temporary folder or the other way. */
static enum mist_status move(const struct save *at, int file, bool is_old, bool is_out,
                             struct mist_err *err)
{
    char there[MIST_TRACE_PATH_BYTES], away[MIST_TRACE_PATH_BYTES];
    enum mist_status status = mist_trace_file_path(at->folder, file, there, err);

    if (status == MIST_OK)
        status = is_old ? old_path(at, file, away, err)
                        : mist_trace_file_path(at->temporary, file, away, err);
    if (status != MIST_OK || !(is_old ? at->has_old : at->has_new)[file])
        return status;
    if (rename(is_out ? there : away, is_out ? away : there) != 0)
        return mist_err_io(err, there, is_out ? "replace" : "rename to", errno);
    return MIST_OK;
}

/* The old files out, the new ones in; or, when that fails, everything as it was. */
static enum mist_status replace_files(struct save *at, struct mist_err *err)
{
    int n_out = 0, n_in = 0;
    enum mist_status status = MIST_OK, back = MIST_OK;
    struct mist_err ignored; /* the first error is the one to tell */

    for (; n_out < MIST_N_TRACE_FILES && status == MIST_OK; n_out += status == MIST_OK)
        status = move(at, MIST_N_TRACE_FILES - 1 - n_out, true, true, err);
    for (; n_in < MIST_N_TRACE_FILES && status == MIST_OK; n_in += status == MIST_OK)
        status = move(at, n_in, false, false, err);
    if (status == MIST_OK)
        status = mist_folder_flush(at->folder, err);
    if (status == MIST_OK)
        return MIST_OK;
    while (n_in > 0 && back == MIST_OK)
        back = move(at, --n_in, false, true, &ignored);
    while (n_out > 0 && back == MIST_OK)
        back = move(at, MIST_N_TRACE_FILES - n_out--, true, false, &ignored);
    if (back != MIST_OK) {
        status =
            mist_err_at(err, MIST_ERR_IO, at->folder, 0, 0,
                        "can't be replaced; what was there lies in %s", at->temporary);
        at->temporary[0] = '\0'; /* is not removed */
    }
    return status;
}

/* A folder that was not there before. */
static enum mist_status rename_folder(struct save *at, struct mist_err *err)
{
    char parent[MIST_TRACE_PATH_BYTES];

    if (rename(at->temporary, at->folder) != 0)
        return mist_err_io(err, at->folder, "rename to", errno);
    find_parent(at, parent);
    enum mist_status status = mist_folder_flush(parent, err);
    if (status != MIST_OK && rename(at->folder, at->temporary) == 0)
        return status;
    at->temporary[0] = '\0';
    return status;
}

/* Removes what is left; what can't be removed stays, under its temporary name. */
static void remove_temporary(const struct save *at)
{
    char path[MIST_TRACE_PATH_BYTES];
    struct mist_err ignored;

    if (!at->temporary[0])
        return;
    for (int i = 0; i < MIST_N_TRACE_FILES; i++) {
        if (mist_trace_file_path(at->temporary, i, path, &ignored) == MIST_OK)
            unlink(path);
        if (old_path(at, i, path, &ignored) == MIST_OK)
            unlink(path);
    }
    rmdir(at->temporary);
}

enum mist_status mist_trace_set_save(const struct mist_trace_set *set, const char *folder,
                                     bool overwrite, struct mist_err *err)
{
    struct save *at = calloc(1, sizeof *at);

    if (!at)
        return mist_err_memory(err, NULL);
    at->set = set;
    at->has_new[MIST_TRACE_TABLE_KERNELS] = set->has_kernels;
    at->has_new[MIST_TRACE_TABLE_LINKS] = set->n_links > 0;
    at->has_new[MIST_TRACE_TABLE_INTERFERENCE] = set->n_interferences > 0;
    at->has_new[MIST_TRACE_TABLE_CHECKS] = set->n_checks > 0;
    at->has_new[MIST_TRACE_FILE_CLUSTER] = true;
    enum mist_status status = mist_cluster_check(&set->cluster, err);
    if (status == MIST_OK)
        status = look(at, folder, overwrite, err);
    if (status == MIST_OK)
        status = make_temporary(at, err);
    if (status == MIST_OK)
        status = fill_temporary(at, err);
    if (status == MIST_OK)
        status = at->is_new ? rename_folder(at, err) : replace_files(at, err);
    remove_temporary(at);
    free(at);
    return status;
}
