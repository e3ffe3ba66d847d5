/* The log of a run on disk. See log_file.h. */
#include "exec/train/log_file.h"

#include "core/atomic_file.h"
#include "core/parse.h" /* numbers that read back as the same */
#include "core/path.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char header[] =
    "step,loss,gradient_norm,lr,step_s,tokens_per_s,validation_loss,skipped\n";
static const char json_begin[] = "{\"step\": ";

enum { N_COLUMNS = 8 };

static bool is_regular(const char *path, bool *is_there)
{
    struct stat info;

    *is_there = stat(path, &info) == 0;
    return *is_there && S_ISREG(info.st_mode);
}

/* --------------------------------------------------------------------------- reading */

/* The step of a row of ours; 0: the line, which has n bytes, is none. */
static int64_t step_of(const char *line, size_t n, bool is_json)
{
    const char *digits = line + (is_json ? sizeof json_begin - 1 : 0), *at;
    int64_t step = 0, n_commas = 0;

    if (is_json && (strncmp(line, json_begin, sizeof json_begin - 1) != 0 ||
                    strcmp(line + n - 2, "}\n") != 0))
        return 0;
    for (at = digits; *at >= '0' && *at <= '9' && step < INT64_MAX / 20; at++)
        step = 10 * step + (*at - '0');
    if (at == digits || *at != ',')
        return 0;
    for (; *at; at++)
        n_commas += *at == ',';
    return n_commas == N_COLUMNS - 1 ? step : 0;
}

/* Lines up to the row of the last step that is done. */
static enum mist_status scan(FILE *stream, const char *path, int64_t n_steps_before,
                             struct mist_log_kept *out, struct mist_err *err)
{
    bool is_json = mist_path_ends(path, ".jsonl");
    enum mist_status status = MIST_OK;
    int64_t last = 0; /* kept step */
    bool is_over = false;
    size_t capacity = 0;
    char *line = NULL;
    ssize_t n;

    for (int64_t i = 1; (n = getline(&line, &capacity, stream)) > 0; i++) {
        int64_t step = 0;
        is_over = is_over || (last > 0 && last == n_steps_before);
        if (is_over || line[n - 1] != '\n') { /* done again, or cut off */
            out->n_dropped += line[n - 1] == '\n';
            continue;
        }
        if (is_json || i > 1) {
            step = step_of(line, (size_t)n, is_json);
            if (step <= last) {
                status = mist_err_at(err, MIST_ERR_INPUT, path, i, 0,
                                     "is no row of a log, or not of a later step than "
                                     "the row before");
                break;
            }
        } else if (strcmp(line, header) != 0) {
            status = mist_err_at(err, MIST_ERR_INPUT, path, 1, 0,
                                 "is no log of mist-exec, whose columns are %.*s",
                                 (int)(sizeof header - 2), header);
            break;
        }
        is_over = step > n_steps_before;
        out->n_dropped += is_over;
        if (is_over)
            continue;
        out->last_step = last = step;
        out->n_rows += step > 0;
        out->n_bytes += n;
    }
    free(line);
    if (status == MIST_OK && ferror(stream))
        status = mist_err_io(err, path, "read", errno);
    return status;
}

enum mist_status mist_log_file_scan(const char *path, int64_t n_steps_before,
                                    struct mist_log_kept *out, struct mist_err *err)
{
    bool is_there;

    *out = (struct mist_log_kept){0};
    if (!is_regular(path, &is_there))
        return MIST_OK;
    FILE *stream = fopen(path, "rb");
    if (!stream)
        return mist_err_io(err, path, "read", errno);
    enum mist_status status = scan(stream, path, n_steps_before, out, err);
    fclose(stream);
    return status;
}

/* --------------------------------------------------------------------------- writing */

/* Makes the file its own first n_bytes; a header where nothing is left. */
static enum mist_status replace(const char *path, int64_t n_bytes, bool is_json,
                                struct mist_err *err)
{
    struct mist_atomic_file file;
    FILE *old = NULL;
    char block[1 << 14];

    if (n_bytes > 0) {
        old = fopen(path, "rb");
        if (!old)
            return mist_err_io(err, path, "read", errno);
    }
    enum mist_status status = mist_atomic_file_open(&file, path, true, err);
    if (status == MIST_OK && n_bytes == 0 && !is_json)
        fputs(header, file.stream);
    while (status == MIST_OK && n_bytes > 0) {
        size_t n = n_bytes < (int64_t)sizeof block ? (size_t)n_bytes : sizeof block;
        if (fread(block, 1, n, old) != n)
            status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "can't read all of it");
        else
            fwrite(block, 1, n, file.stream); /* commit looks for errors */
        n_bytes -= (int64_t)n;
    }
    if (old)
        fclose(old);
    if (status == MIST_OK)
        return mist_atomic_file_commit(&file, err);
    mist_atomic_file_abort(&file);
    return status;
}

static enum mist_status write_all(const struct mist_log_file *log, const char *text,
                                  size_t n, struct mist_err *err)
{
    errno = mist_file_write_all(log->fd, text, n);
    return errno ? mist_err_io(err, log->path, "write", errno) : MIST_OK;
}

enum mist_status mist_log_file_open(struct mist_log_file *log, const char *path,
                                    const struct mist_log_kept *kept, bool force,
                                    struct mist_err *err)
{
    int64_t n_bytes = kept ? kept->n_bytes : 0;
    struct stat info;
    bool is_there, is_file = is_regular(path, &is_there);
    enum mist_status status = MIST_OK;

    *log = (struct mist_log_file){
        .path = path, .fd = -1, .is_json = mist_path_ends(path, ".jsonl")};
    if (is_file && !kept && !force)
        return mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                           "exists already; --force replaces it");
    if (!is_there ||
        (is_file && (stat(path, &info) != 0 || n_bytes == 0 || n_bytes != info.st_size)))
        status = replace(path, n_bytes, log->is_json, err);
    if (status != MIST_OK)
        return status;
    log->fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    if (log->fd < 0)
        return mist_err_io(err, path, "open", errno);
    if (is_there && !is_file && !log->is_json)
        status = write_all(log, header, sizeof header - 1, err);
    if (status != MIST_OK)
        mist_log_file_close(log);
    return status;
}

/* A number behind a comma, in JSON with its key. */
static void add_number(const struct mist_log_file *log, const char *key, double value,
                       char *text, size_t size)
{
    char number[MIST_FORMAT_BYTES] = "";

    if (isfinite(value))
        mist_format_double(number, sizeof number, value);
    if (log->is_json)
        mist_text_add(text, size, ", ", "\"%s\": %s", key, number[0] ? number : "null");
    else
        mist_text_add(text, size, ",", "%s", number);
}

enum mist_status mist_log_file_add(const struct mist_log_file *log,
                                   const struct mist_train_step *step,
                                   double tokens_per_s, struct mist_err *err)
{
    char text[1024];

    snprintf(text, sizeof text, "%s%lld", log->is_json ? json_begin : "",
             (long long)step->step);
    add_number(log, "loss", step->loss, text, sizeof text);
    add_number(log, "gradient_norm", step->gradient_norm, text, sizeof text);
    add_number(log, "lr", step->lr, text, sizeof text);
    add_number(log, "step_s", step->step_s, text, sizeof text);
    add_number(log, "tokens_per_s", tokens_per_s, text, sizeof text);
    add_number(log, "validation_loss", step->validation_loss, text, sizeof text);
    add_number(log, "skipped", step->is_skipped, text, sizeof text);
    strcat(text, log->is_json ? "}\n" : "\n");
    return write_all(log, text, strlen(text), err);
}

enum mist_status mist_log_file_sync(const struct mist_log_file *log, struct mist_err *err)
{
    /* a pipe can't be flushed, and some file systems don't */
    if (fsync(log->fd) != 0 && errno != EINVAL && errno != EROFS && errno != ENOTSUP)
        return mist_err_io(err, log->path, "flush", errno);
    return MIST_OK;
}

void mist_log_file_close(struct mist_log_file *log)
{
    if (log->path && log->fd >= 0)
        close(log->fd);
    log->fd = -1;
}
