/*
 * Trace sets from folders: cluster.json and the tables. See trace_set.h and, for the
 * formats, traces/README.md. Writing: trace_save.c.
 */
#include "core/json.h"
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

/* Copies a string member into a fixed field; an absent optional one leaves it. */
static enum mist_status read_string(const struct mist_json *object, const char *key,
                                    enum mist_json_need need, char *out, size_t size,
                                    struct mist_err *err)
{
    const char *text = NULL;
    enum mist_status status = mist_json_get_string(object, key, need, &text, err);

    if (status != MIST_OK || !text)
        return status;
    if (strlen(text) >= size)
        return mist_json_fail_key(object, key, MIST_ERR_INPUT, err,
                                  "is too long, expected fewer than %zu bytes", size);
    memcpy(out, text, strlen(text) + 1);
    return MIST_OK;
}

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
        status = read_string(&libraries, name, MIST_JSON_REQUIRED,
                             cluster->libraries[i].version, MIST_TRACE_NAME_MAX, err);
        if (status != MIST_OK)
            return status;
        cluster->n_libraries++;
    }
    return MIST_OK;
}

static enum mist_status read_words(const struct mist_json *root,
                                   struct mist_cluster *cluster, struct mist_err *err)
{
    int backend = 0;
    enum mist_status status = read_string(root, "name", MIST_JSON_REQUIRED, cluster->name,
                                          sizeof cluster->name, err);

    if (status == MIST_OK)
        status = mist_json_get_choice(root, "backend", MIST_JSON_REQUIRED,
                                      mist_trace_backend_words, &backend, err);
    if (status != MIST_OK)
        return status;
    cluster->backend = (enum mist_trace_backend)backend;
    status = read_string(root, "date", MIST_JSON_OPTIONAL, cluster->date,
                         sizeof cluster->date, err);
    if (status == MIST_OK)
        status = read_string(root, "how_measured", MIST_JSON_OPTIONAL,
                             cluster->how_measured, sizeof cluster->how_measured, err);
    return status;
}

/* An object that may be left out (out->value NULL then), with these keys and no others. */
static enum mist_status read_object(const struct mist_json *parent, const char *key,
                                    const char *const *keys, struct mist_json *out,
                                    struct mist_err *err)
{
    enum mist_status status =
        mist_json_get_object(parent, key, MIST_JSON_OPTIONAL, out, err);

    return status == MIST_OK && out->value ? mist_json_check_keys(out, keys, err)
                                           : status;
}

/* Numbers of 0 to max behind keys, ended by NULL; values: where they go. */
static enum mist_status read_doubles(const struct mist_json *object,
                                     const char *const *keys, double max,
                                     double *const *values, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int i = 0; keys[i] && status == MIST_OK; i++)
        status = mist_json_get_double(object, keys[i], MIST_JSON_REQUIRED, 0, max,
                                      values[i], err);
    return status;
}

static enum mist_status read_skew(const struct mist_json *root,
                                  struct mist_trace_skew *skew, struct mist_err *err)
{
    static const char *const keys[] = {"alone_frac", "pass_frac", "step_frac", NULL};
    double *const values[] = {&skew->alone_frac, &skew->pass_frac, &skew->step_frac};
    struct mist_json object;
    enum mist_status status = read_object(root, "skew", keys, &object, err);

    if (status != MIST_OK || !object.value)
        return status;
    return read_doubles(&object, keys, DBL_MAX, values, err);
}

static enum mist_status read_curve(const struct mist_json *root,
                                   struct mist_trace_curve *curve, struct mist_err *err)
{
    static const char *const keys[] = {"processors", "product_frac", "memory_frac",
                                       "residual_frac", NULL};
    double *const values[] = {&curve->product_frac, &curve->memory_frac,
                              &curve->residual_frac};
    struct mist_json object;
    int64_t processors = 0;
    enum mist_status status = read_object(root, "curve", keys, &object, err);

    if (status != MIST_OK || !object.value)
        return status;
    status = mist_json_get_int64(&object, keys[0], MIST_JSON_REQUIRED, 1, INT_MAX,
                                 &processors, err);
    curve->processors = (int)processors;
    return status == MIST_OK ? read_doubles(&object, keys + 1, 1, values, err) : status;
}

static enum mist_status read_link(const struct mist_json *declared, const char *key,
                                  struct mist_declared_link *link, struct mist_err *err)
{
    static const char *const keys[] = {"bytes_per_s", "latency_us", NULL};
    double *const values[] = {&link->bytes_per_s, &link->latency_us};
    struct mist_json object;
    enum mist_status status = read_object(declared, key, keys, &object, err);

    if (status != MIST_OK || !object.value)
        return status;
    return read_doubles(&object, keys, DBL_MAX, values, err);
}

static enum mist_status read_declared(const struct mist_json *root,
                                      struct mist_trace_declared *out,
                                      struct mist_err *err)
{
    static const char *const keys[] = {"device",
                                       "node",
                                       "host",
                                       "ring_bytes_per_s",
                                       "host_node_bytes_per_s",
                                       "adapters",
                                       "switch_bytes_per_s",
                                       "compute_slowdown",
                                       "message_slowdown",
                                       "residual_frac",
                                       NULL};
    const struct {
        const char *key;
        double *out;
    } numbers[] = {{"switch_bytes_per_s", &out->switch_bytes_per_s},
                   {"ring_bytes_per_s", &out->ring_bytes_per_s},
                   {"host_node_bytes_per_s", &out->host_node_bytes_per_s},
                   {"compute_slowdown", &out->compute_slowdown},
                   {"message_slowdown", &out->message_slowdown}};
    struct mist_declared_link *const links[] = {&out->device, &out->node, &out->host};
    struct mist_json object;
    int64_t adapters = 0;
    enum mist_status status = read_object(root, "declared", keys, &object, err);

    if (status != MIST_OK || !object.value)
        return status;
    for (int i = 0; i < 3 && status == MIST_OK; i++)
        status = read_link(&object, keys[i], links[i], err);
    if (status == MIST_OK)
        status = mist_json_get_int64(&object, "adapters", MIST_JSON_OPTIONAL, 0, INT_MAX,
                                     &adapters, err);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && status == MIST_OK; i++)
        status = mist_json_get_double(&object, numbers[i].key, MIST_JSON_OPTIONAL, 0,
                                      DBL_MAX, numbers[i].out, err);
    if (status == MIST_OK)
        status = mist_json_get_double(&object, "residual_frac", MIST_JSON_REQUIRED, 0, 1,
                                      &out->residual_frac, err);
    out->adapters = (int)adapters;
    return status;
}

static enum mist_status read_numbers(const struct mist_json *root,
                                     struct mist_cluster *cluster, struct mist_err *err)
{
    int64_t nodes = 0, devices = 0, threads = 0;
    const struct {
        const char *key;
        enum mist_json_need need;
        int64_t min, max;
        int64_t *out;
    } integers[] = {
        {"nodes", MIST_JSON_REQUIRED, 1, INT_MAX, &nodes},
        {"devices_per_node", MIST_JSON_REQUIRED, 1, INT_MAX, &devices},
        {"device_memory_bytes", MIST_JSON_REQUIRED, 1, INT64_MAX,
         &cluster->device_memory_bytes},
        {"host_memory_bytes_per_node", MIST_JSON_OPTIONAL, 0, INT64_MAX,
         &cluster->host_memory_bytes_per_node},
        {"device_threads", MIST_JSON_OPTIONAL, 0, INT_MAX, &threads},
        {"runtime_memory_bytes", MIST_JSON_OPTIONAL, 0, INT64_MAX,
         &cluster->runtime_memory_bytes},
    };
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < sizeof integers / sizeof *integers && status == MIST_OK; i++)
        status =
            mist_json_get_int64(root, integers[i].key, integers[i].need, integers[i].min,
                                integers[i].max, integers[i].out, err);
    if (status == MIST_OK)
        status = mist_json_get_double(root, "memory_bytes_per_s", MIST_JSON_REQUIRED, 0,
                                      DBL_MAX, &cluster->memory_bytes_per_s, err);
    if (status == MIST_OK)
        status = mist_json_get_double(root, "launch_us", MIST_JSON_OPTIONAL, 0, DBL_MAX,
                                      &cluster->launch_us, err);
    if (status == MIST_OK)
        status = mist_json_get_double(root, "drift_frac", MIST_JSON_OPTIONAL, 0, DBL_MAX,
                                      &cluster->drift_frac, err);
    if (status == MIST_OK)
        status = read_skew(root, &cluster->skew, err);
    if (status == MIST_OK)
        status = mist_json_get_bool(root, "streams_take_turns", MIST_JSON_OPTIONAL,
                                    &cluster->streams_take_turns, err);
    if (status == MIST_OK)
        status = mist_json_get_double(root, "probe_us", MIST_JSON_OPTIONAL, 0, DBL_MAX,
                                      &cluster->probe_us, err);
    cluster->nodes = (int)nodes;
    cluster->devices_per_node = (int)devices;
    cluster->device_threads = (int)threads;
    return status;
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
    static const char *const keys[] = {"format",
                                       "name",
                                       "backend",
                                       "date",
                                       "how_measured",
                                       "nodes",
                                       "devices_per_node",
                                       "device_memory_bytes",
                                       "host_memory_bytes_per_node",
                                       "device_threads",
                                       "peak_flop_per_s",
                                       "memory_bytes_per_s",
                                       "launch_us",
                                       "runtime_memory_bytes",
                                       "interruption_frac", /* of old sets: not read */
                                       "drift_frac",
                                       "skew",
                                       "streams_take_turns",
                                       "probe_us",
                                       "curve",
                                       "declared",
                                       "libraries",
                                       "rows",
                                       NULL};
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
    status = mist_json_check_keys(&root, keys, err);
    if (status == MIST_OK)
        status = read_words(&root, cluster, err);
    if (status == MIST_OK)
        status = read_numbers(&root, cluster, err);
    if (status == MIST_OK)
        status = read_rates(&root, cluster, err);
    if (status == MIST_OK)
        status = read_curve(&root, &cluster->curve, err);
    if (status == MIST_OK)
        status = read_declared(&root, &cluster->declared, err);
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
            status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    if (status != MIST_OK)
        mist_trace_set_fini(set);
    return status;
}
