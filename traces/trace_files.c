/*
 * Trace sets from folders: cluster.json and the tables. See trace_set.h and, for the
 * formats, traces/README.md. Writing: trace_save.c.
 */
#include "traces/trace_internal.h"

#include <errno.h>
#include <float.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

static const char *const FILE_NAMES[MIST_N_TRACE_FILES] = {
    [MIST_TRACE_TABLE_KERNELS] = "kernels.csv",
    [MIST_TRACE_TABLE_LINKS] = "links.csv",
    [MIST_TRACE_TABLE_INTERFERENCE] = "interference.csv",
    [MIST_TRACE_TABLE_CHECKS] = "checks.csv",
    [MIST_TRACE_FILE_CLUSTER] = "cluster.json",
};

/* ---- paths ---- */

const char *mist_trace_set_file_name(int file)
{
    return file < MIST_N_TRACE_FILES ? FILE_NAMES[file] : NULL;
}

enum mist_status mist_trace_file_path(const char *folder, int file,
                                      char path[MIST_TRACE_PATH_BYTES],
                                      struct mist_err *err)
{
    int n = snprintf(path, MIST_TRACE_PATH_BYTES, "%s/%s", folder, FILE_NAMES[file]);

    if (n >= 0 && n < MIST_TRACE_PATH_BYTES)
        return MIST_OK;
    return mist_err_at(err, MIST_ERR_IO, folder, 0, 0, "the path is too long");
}

/* ---- cluster.json ---- */

static enum mist_status read_rates(const struct mist_json *root,
                                   struct mist_cluster *cluster, struct mist_err *err)
{
    struct mist_json rates;
    enum mist_status status =
        mist_json_get_object(root, "peak_flop_per_s", MIST_JSON_REQUIRED, &rates, err);

    if (status == MIST_OK)
        status = mist_json_check_keys(&rates, mist_trace_dtype_words, err);
    for (int i = 0; i < MIST_N_TRACE_DTYPES && status == MIST_OK; i++)
        status =
            mist_json_get_double(&rates, mist_trace_dtype_words[i], MIST_JSON_OPTIONAL, 0,
                                 DBL_MAX, &cluster->peak_flop_per_s[i], err);
    return status;
}

static enum mist_status read_libraries(const struct mist_json *root,
                                       struct mist_cluster *cluster, struct mist_err *err)
{
    struct mist_json libraries;
    const char *name;
    json_t *value;
    enum mist_status status =
        mist_json_get_object(root, "libraries", MIST_JSON_OPTIONAL, &libraries, err);

    if (status != MIST_OK || !libraries.value)
        return status;
    json_object_foreach(libraries.value, name, value)
    {
        int i = cluster->n_libraries;
        if (i == MIST_TRACE_MAX_LIBRARIES)
            return mist_json_fail(&libraries, MIST_ERR_INPUT, err,
                                  "has more than %d members", MIST_TRACE_MAX_LIBRARIES);
        if (strlen(name) >= MIST_TRACE_NAME_MAX || !name[0])
            return mist_json_fail_key(&libraries, name, MIST_ERR_INPUT, err,
                                      "has a name of %zu bytes, expected 1 .. %d",
                                      strlen(name), MIST_TRACE_NAME_MAX - 1);
        memcpy(cluster->libraries[i].name, name, strlen(name) + 1);
        status =
            mist_json_get_chars(&libraries, name, MIST_JSON_REQUIRED,
                                cluster->libraries[i].version, MIST_TRACE_NAME_MAX, err);
        if (status != MIST_OK)
            return status;
        cluster->n_libraries++;
    }
    return MIST_OK;
}

/* "rows": how many each table has; -1 where it doesn't say. */
static enum mist_status read_n_rows(const struct mist_json *root,
                                    int64_t n_rows[MIST_N_TRACE_TABLES],
                                    struct mist_err *err)
{
    const char *names[MIST_N_TRACE_TABLES + 1] = {NULL};
    struct mist_json rows;
    enum mist_status status =
        mist_json_get_object(root, "rows", MIST_JSON_OPTIONAL, &rows, err);

    for (int i = 0; i < MIST_N_TRACE_TABLES; i++) {
        n_rows[i] = -1;
        names[i] = FILE_NAMES[i];
    }
    if (status != MIST_OK || !rows.value)
        return status;
    status = mist_json_check_keys(&rows, names, err);
    for (int i = 0; i < MIST_N_TRACE_TABLES && status == MIST_OK; i++)
        status = mist_json_get_int64(&rows, names[i], MIST_JSON_OPTIONAL, 0, INT64_MAX,
                                     &n_rows[i], err);
    return status;
}

static enum mist_status load_cluster(const char *folder, struct mist_cluster *cluster,
                                     int64_t n_rows[MIST_N_TRACE_TABLES],
                                     struct mist_err *err)
{
    char path[MIST_TRACE_PATH_BYTES];
    struct mist_json_doc doc = {0};
    struct mist_err message = {0};
    enum mist_status status =
        mist_trace_file_path(folder, MIST_TRACE_FILE_CLUSTER, path, err);

    if (status == MIST_OK)
        status = mist_json_load(&doc, path, MIST_JSON_OWN, err);
    if (status != MIST_OK)
        return status;
    struct mist_json root = mist_json_root(&doc);
    status = mist_json_read_fields(&root, mist_cluster_fields, cluster, err);
    if (status == MIST_OK)
        status = read_rates(&root, cluster, err);
    if (status == MIST_OK)
        status = read_libraries(&root, cluster, err);
    if (status == MIST_OK)
        status = read_n_rows(&root, n_rows, err);
    if (status == MIST_OK && mist_cluster_check(cluster, &message) != MIST_OK)
        status = mist_json_fail(&root, MIST_ERR_INPUT, err, "%s", message.message);
    mist_json_fini(&doc);
    return status;
}

/* Reads a table into set; one that does not exist has no rows, which is fine unless
 * cluster.json says that it has. */
static enum mist_status load_table(int table, const char *folder, int64_t n_rows,
                                   struct mist_trace_set *set, struct mist_err *err)
{
    char path[MIST_TRACE_PATH_BYTES];
    enum mist_status status = mist_trace_file_path(folder, table, path, err);

    if (status != MIST_OK)
        return status;
    if (access(path, F_OK) != 0 && errno == ENOENT) {
        if (n_rows <= 0)
            return MIST_OK;
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "the file is not there, expected %" PRId64
                           " rows as \"rows\" of cluster.json says",
                           n_rows);
    }
    if (table == MIST_TRACE_TABLE_KERNELS)
        set->has_kernels = true;
    return mist_trace_table_load((enum mist_trace_table)table, path, n_rows, set, err);
}

enum mist_status mist_trace_set_load(struct mist_trace_set *set, const char *folder,
                                     struct mist_err *err)
{
    mist_trace_set_init(set);
    int64_t n_rows[MIST_N_TRACE_TABLES];
    enum mist_status status = load_cluster(folder, &set->cluster, n_rows, err);

    for (int i = 0; i < MIST_N_TRACE_TABLES && status == MIST_OK; i++)
        status = load_table(i, folder, n_rows[i], set, err);
    if (status == MIST_OK) {
        set->folder = strdup(folder);
        if (!set->folder)
            status = mist_err_memory(err, NULL);
    }
    if (status != MIST_OK)
        mist_trace_set_fini(set);
    return status;
}
