/*
 * manifest.json: what makes a folder of rank files a checkpoint.
 *
 *   {"format": 2, "checksum": "<16 digits>", "run": "<16 digits>", "step", "model": {..},
 *    "training": {..}, "files": [{"name", "bytes", "table_checksum"}],
 *    "tensors": [{"name", "elements"}]}
 *
 * Format 1 has no "run".
 *
 * The checksum is that of the whole text with its own digits taken as zeros, so a
 * manifest can be read by people but not edited.
 */
#include "exec/checkpoint/checkpoint_internal.h"

#include "core/atomic_file.h" /* mist_file_read_all */
#include "core/path.h"
#include "sim/plan/plan_fields.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECKSUM_ZEROS     "0000000000000000"
#define TEXT_BEFORE_FORMAT "{\n  \"format\": "
#define TEXT_AFTER_FORMAT  ",\n  \"checksum\": \"" /* the digits follow */
#define MAX_BYTES          ((size_t)1 << 30)

/* One digit between the two texts. */
#define DIGITS_FIRST (sizeof TEXT_BEFORE_FORMAT + sizeof TEXT_AFTER_FORMAT - 1)

#define OTHER(i_key)                                                                     \
    {                                                                                    \
        .key = i_key, .type = MIST_FIELD_OTHER                                           \
    }
static const struct mist_json_field fields[] = {
    OTHER("format"),
    OTHER("checksum"),
    MIST_JSON_KEYED(mist_checkpoint, "run", run_id, .type = MIST_FIELD_HEX64,
                    .is_optional = true), /* format 1 has none, which is 0 */
    MIST_JSON_FIELD(mist_checkpoint, step, .type = MIST_FIELD_WHOLE,
                    .limits = MIST_FIELD_FROM_0),
    OTHER("model"),
    OTHER("training"),
    OTHER("files"),
    OTHER("tensors"),
    OTHER(NULL),
};

static void format_sum(char out[CHECKPOINT_SUM_DIGITS + 1], uint64_t sum)
{
    snprintf(out, CHECKPOINT_SUM_DIGITS + 1, "%016" PRIx64, sum);
}

/* ------------------------------------------------------------------------------ model */

/* Text of a plain value, for messages. */
static void describe(const json_t *value, char *out, size_t size)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));

    snprintf(out, size, "%s", text ? text : "left out");
    free(text);
}

enum mist_status mist_checkpoint_check_model(const struct mist_checkpoint *checkpoint,
                                             const struct mist_model *model,
                                             struct mist_err *err)
{
    struct mist_json object;
    enum mist_status status = mist_json_get_object(&checkpoint->root, "model",
                                                   MIST_JSON_REQUIRED, &object, err);

    json_t *ours = mist_plan_model_json(model);
    if (!ours) /* it is compared key by key but for its name */
        status = mist_err_memory(err, checkpoint->path);
    for (const struct mist_json_field *f = mist_plan_model_fields + 1; f->key && !status;
         f++) {
        char here[80], there[80];
        const json_t *saved = json_object_get(object.value, f->key);
        const json_t *wanted = json_object_get(ours, f->key);
        if (saved == wanted || json_equal(saved, wanted)) /* both may be left out */
            continue;
        describe(wanted, here, sizeof here);
        describe(saved, there, sizeof there);
        status = mist_json_fail_key(&object, f->key, MIST_ERR_INPUT, err,
                                    "is of another model: its %s is %s, expected %s",
                                    f->key, there, here);
    }
    json_decref(ours);
    return status;
}

/* ---------------------------------------------------------------------------- writing */

static json_t *files_json(const struct mist_checkpoint *checkpoint)
{
    json_t *files = json_array();
    char sum[CHECKPOINT_SUM_DIGITS + 1];

    for (int32_t i = 0; i < checkpoint->n_files && files; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        format_sum(sum, table->sum);
        json_t *file =
            json_pack("{s:s, s:I, s:s}", "name", mist_path_name(table->path), "bytes",
                      (json_int_t)table->map_bytes, "table_checksum", sum);
        if (json_array_append_new(files, file) != 0) {
            json_decref(files);
            return NULL;
        }
    }
    return files;
}

static json_t *tensors_json(const struct mist_checkpoint *checkpoint)
{
    json_t *tensors = json_array();

    for (int32_t i = 0; i < checkpoint->n_tensors && tensors; i++) {
        const struct checkpoint_tensor *tensor = &checkpoint->tensors[i];
        json_t *object = json_pack("{s:s, s:I}", "name", tensor->name, "elements",
                                   (json_int_t)tensor->n_elements);
        if (json_array_append_new(tensors, object) != 0) {
            json_decref(tensors);
            return NULL;
        }
    }
    return tensors;
}

static json_t *manifest_json(const struct mist_checkpoint *checkpoint,
                             const struct mist_model *model, const json_t *training)
{
    json_t *shared = (json_t *)training; /* counts its users */
    json_t *others = json_object(), *root = NULL;

    if (json_object_set_new(others, "format", json_integer(CHECKPOINT_VERSION)) == 0 &&
        json_object_set_new(others, "checksum", json_string(CHECKSUM_ZEROS)) == 0 &&
        json_object_set_new(others, "model", mist_plan_model_json(model)) == 0 &&
        json_object_set(others, "training", shared) == 0 &&
        json_object_set_new(others, "files", files_json(checkpoint)) == 0 &&
        json_object_set_new(others, "tensors", tensors_json(checkpoint)) == 0)
        root = mist_json_write_fields(fields, checkpoint, others);
    json_decref(others);
    return root;
}

/* Out of memory, Jansson's dumper may leave parts out and call it success. */
static bool reads_back(const json_t *root, const char *text)
{
    struct mist_json_doc again;

    if (mist_json_load_text(&again, "", text, strlen(text), MIST_JSON_FOREIGN, NULL) !=
        MIST_OK)
        return false;
    bool is_same = json_equal(again.root, root);
    mist_json_fini(&again);
    return is_same;
}

/* The text with its checksum in place, n bytes, malloc'd; NULL: out of memory. */
static char *manifest_text(const json_t *root, size_t *n)
{
    char sum[CHECKPOINT_SUM_DIGITS + 1];
    char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17));

    if (!text || !reads_back(root, text)) {
        free(text);
        return NULL;
    }
    *n = strlen(text);
    text[(*n)++] = '\n'; /* in the place of the '\0' */
    format_sum(sum, mist_checkpoint_sum(text, *n, 0));
    memcpy(text + DIGITS_FIRST, sum, CHECKPOINT_SUM_DIGITS);
    return text;
}

static enum mist_status write_text(const char *path, const char *text, size_t n,
                                   struct mist_err *err)
{
    int fd = -1;
    int code = checkpoint_create_file(path, &fd);

    if (!code)
        code = mist_file_write_all(fd, text, n);
    if (!code && fsync(fd) != 0)
        code = errno;
    if (fd >= 0 && close(fd) != 0 && !code)
        code = errno;
    return code ? mist_err_io(err, path, "write", code) : MIST_OK;
}

enum mist_status checkpoint_write_manifest(const struct mist_checkpoint *checkpoint,
                                           const struct mist_model *model,
                                           const json_t *training, struct mist_err *err)
{
    json_t *root = manifest_json(checkpoint, model, training);
    size_t n = 0;
    char *text = root ? manifest_text(root, &n) : NULL;
    char path[PATH_MAX];

    checkpoint_manifest_path(path, checkpoint->path);
    enum mist_status status =
        text ? write_text(path, text, n, err) : mist_err_memory(err, checkpoint->path);

    json_decref(root);
    free(text);
    return status;
}

/* ---------------------------------------------------------------------------- reading */

/* The format that a manifest begins with; -1: it is none. */
static int find_format(const char *text, size_t n)
{
    size_t n_before = strlen(TEXT_BEFORE_FORMAT);

    if (n < DIGITS_FIRST + CHECKPOINT_SUM_DIGITS ||
        memcmp(text, TEXT_BEFORE_FORMAT, n_before) != 0 || text[n_before] < '0' ||
        text[n_before] > '9' ||
        memcmp(text + n_before + 1, TEXT_AFTER_FORMAT, strlen(TEXT_AFTER_FORMAT)) != 0)
        return -1;
    return text[n_before] - '0';
}

/* Compares the checksum with the text, which is then like one of format 1. */
static enum mist_status check_text(const char *path, char *text, size_t n, int *format,
                                   struct mist_err *err)
{
    size_t first = DIGITS_FIRST;
    char sum[CHECKPOINT_SUM_DIGITS + 1], saved[CHECKPOINT_SUM_DIGITS + 1] = "";

    *format = find_format(text, n);
    if (*format < 0)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "damaged: not the manifest of a checkpoint");
    if (*format < CHECKPOINT_OLDEST_VERSION || *format > CHECKPOINT_VERSION)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "is of format %d, expected %d to %d", *format,
                           CHECKPOINT_OLDEST_VERSION, CHECKPOINT_VERSION);
    memcpy(saved, text + first, CHECKPOINT_SUM_DIGITS);
    memcpy(text + first, CHECKSUM_ZEROS, CHECKPOINT_SUM_DIGITS);
    format_sum(sum, mist_checkpoint_sum(text, n, 0));
    if (strcmp(sum, saved) != 0)
        return mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                           "damaged: its checksum differs");
    text[strlen(TEXT_BEFORE_FORMAT)] = '1'; /* the one format that core/json.h knows */
    return MIST_OK;
}

static enum mist_status check_file(const struct mist_checkpoint *checkpoint, int32_t rank,
                                   const struct mist_json *file, struct mist_err *err)
{
    static const char *const keys[] = {"name", "bytes", "table_checksum", NULL};
    const char *name = NULL;
    char path[PATH_MAX];
    int64_t size_bytes = 0;
    struct stat info;
    enum mist_status status = mist_json_as_object(file, err);

    if (status || (status = mist_json_check_keys(file, keys, err)) ||
        (status = mist_json_get_string(file, "name", MIST_JSON_REQUIRED, &name, err)) ||
        (status = mist_json_get_int64(file, "bytes", MIST_JSON_REQUIRED, 0, INT64_MAX,
                                      &size_bytes, err)))
        return status;
    checkpoint_rank_path(path, checkpoint->path, rank);
    if (strcmp(mist_path_name(path), name) != 0)
        status = mist_json_fail(file, MIST_ERR_INPUT, err,
                                "file %d has the name of another", rank);
    else if (stat(path, &info) != 0)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0, "can't be looked at: %s",
                             strerror(errno));
    else if (info.st_size != size_bytes)
        status = mist_err_at(err, MIST_ERR_INPUT, path, 0, 0,
                             "damaged: has %lld bytes, expected %lld",
                             (long long)info.st_size, (long long)size_bytes);
    return status;
}

static enum mist_status check_manifest(struct mist_checkpoint *checkpoint,
                                       struct mist_err *err)
{
    const struct mist_json *root = &checkpoint->root;
    struct mist_json files, other;
    enum mist_status s;

    if ((s = mist_json_read_fields(root, fields, checkpoint, err)) ||
        (s = mist_json_get_object(root, "model", MIST_JSON_REQUIRED, &other, err)) ||
        (s = mist_json_get_array(root, "tensors", MIST_JSON_REQUIRED, &other, err)) ||
        (s = mist_json_get_object(root, "training", MIST_JSON_REQUIRED,
                                  &checkpoint->training, err)) ||
        (s = mist_json_get_array(root, "files", MIST_JSON_REQUIRED, &files, err)))
        return s;
    size_t n = mist_json_size(&files);
    if (n < 1 || n > CHECKPOINT_MAX_RANKS)
        return mist_json_fail(&files, MIST_ERR_INPUT, err,
                              "files: %zu of them, expected 1 to %d", n,
                              CHECKPOINT_MAX_RANKS);
    checkpoint->n_files = (int32_t)n;
    for (size_t i = 0; i < n && !s; i++) {
        struct mist_json file = mist_json_element(&files, i);
        s = check_file(checkpoint, (int32_t)i, &file, err);
    }
    return s;
}

static enum mist_status read_manifest(struct mist_checkpoint *checkpoint,
                                      struct mist_err *err)
{
    char path[PATH_MAX], *text = NULL;
    size_t n = 0;
    int format = 0;

    checkpoint_manifest_path(path, checkpoint->path);
    enum mist_status status = mist_file_read_all(path, MAX_BYTES, &text, &n, err);
    if (!status)
        status = check_text(path, text, n, &format, err);
    if (!status)
        status =
            mist_json_load_text(&checkpoint->manifest, path, text, n, MIST_JSON_OWN, err);
    free(text);
    if (status)
        return status;
    checkpoint->root = mist_json_root(&checkpoint->manifest);
    return check_manifest(checkpoint, err);
}

struct mist_checkpoint *checkpoint_new(const char *path, struct mist_err *err)
{
    struct mist_checkpoint *checkpoint = calloc(1, sizeof *checkpoint);

    if (checkpoint)
        checkpoint->path = mist_arena_strdup(&checkpoint->arena, path);
    if (checkpoint && checkpoint->path)
        return checkpoint;
    mist_checkpoint_close(checkpoint);
    mist_err_memory(err, path);
    return NULL;
}

enum mist_status checkpoint_open_manifest(const char *path, struct mist_checkpoint **out,
                                          struct mist_err *err)
{
    struct mist_checkpoint *checkpoint = checkpoint_new(path, err);
    enum mist_status status =
        checkpoint ? read_manifest(checkpoint, err) : MIST_ERR_MEMORY;

    *out = status ? NULL : checkpoint;
    if (status)
        mist_checkpoint_close(checkpoint);
    return status;
}

static enum mist_status match_files(const struct mist_checkpoint *checkpoint,
                                    struct mist_err *err)
{
    json_t *files = json_object_get(checkpoint->root.value, "files");

    for (int32_t i = 0; i < checkpoint->n_files; i++) {
        const struct checkpoint_table *table = &checkpoint->tables[i];
        json_t *file = json_array_get(files, (size_t)i);
        const char *saved = json_string_value(json_object_get(file, "table_checksum"));
        json_int_t size_bytes = json_integer_value(json_object_get(file, "bytes"));
        char sum[CHECKPOINT_SUM_DIGITS + 1];
        format_sum(sum, table->sum);
        if (!saved || strcmp(sum, saved) != 0 ||
            size_bytes != (json_int_t)table->map_bytes)
            return mist_err_at(err, MIST_ERR_INPUT, table->path, 0, 0,
                               "damaged: is not the file that the manifest lists");
    }
    return MIST_OK;
}

enum mist_status checkpoint_match_manifest(const struct mist_checkpoint *checkpoint,
                                           struct mist_err *err)
{
    json_t *tensors = json_object_get(checkpoint->root.value, "tensors");
    enum mist_status status = match_files(checkpoint, err);
    bool same = json_array_size(tensors) == (size_t)checkpoint->n_tensors;

    for (int32_t i = 0; i < checkpoint->n_tensors && same && !status; i++) {
        json_t *listed = json_array_get(tensors, (size_t)i);
        const char *name = json_string_value(json_object_get(listed, "name"));
        json_int_t n = json_integer_value(json_object_get(listed, "elements"));
        same = name && strcmp(name, checkpoint->tensors[i].name) == 0 &&
               n == checkpoint->tensors[i].n_elements;
    }
    if (!status && !same)
        status = mist_err_at(err, MIST_ERR_INPUT, checkpoint->path, 0, 0,
                             "damaged: the manifest lists other tensors than the files");
    return status;
}
