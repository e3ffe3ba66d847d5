/* What a run leaves, looked at before it begins and written after its end.
 * See session.h. */
#include "exec/train/session.h"

#include "core/atomic_file.h"
#include "core/parse.h" /* sizes for people */
#include "exec/checkpoint/checkpoint.h"
#include "exec/huggingface/hf_names.h" /* names of files */
#include "traces/trace_set.h"          /* likewise */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };

/* What a file system has left for this process; INT64_MAX: it does not say. */
static int64_t room_bytes(const char *folder)
{
    struct statvfs info;

    if (statvfs(folder, &info) != 0 || info.f_blocks == 0)
        return INT64_MAX;
    double n_blocks = (double)(geteuid() == 0 ? info.f_bfree : info.f_bavail);
    double bytes = n_blocks * (double)info.f_frsize;
    return bytes < 0x1p62 ? (int64_t)bytes : INT64_MAX;
}

/* The nearest folder above path, or itself, that is there, to be freed; NULL: no memory.
 * A link that leads nowhere is there. */
static char *find_above(const char *path)
{
    char *above = strdup(path);
    struct stat info;

    while (above && above[0] && lstat(above, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(above, '/');
        if (slash && slash > above)
            *slash = '\0';
        else
            above[slash && slash[1]] = '\0'; /* "/a": "/"; "a": "" */
    }
    return above;
}

/* A folder that is there or can be made: the nearest one above it that is there can be
 * written to, and its disk has room for the bytes that, as what says, "it takes".
 * MIST_ERR_IO; MIST_ERR_USAGE for "-". */
static enum mist_status check_folder(const char *path, const char *what, int64_t bytes,
                                     struct mist_err *err)
{
    char needed[MIST_FORMAT_BYTES], left[MIST_FORMAT_BYTES];
    struct stat info;
    enum mist_status status = mist_output_refuse_stdout(path, "folder", err);
    char *above = status == MIST_OK ? find_above(path) : NULL;

    if (!above)
        return status != MIST_OK ? status : mist_err_memory(err, NULL);
    const char *found = above[0] ? above : ".";
    int64_t room = room_bytes(found);
    if (stat(found, &info) != 0)
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "%s", strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "%.200s is no folder", found);
    else if (access(found, W_OK | X_OK) != 0)
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "can't write to %.200s: %s",
                             found, strerror(errno));
    else if (bytes > room)
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "%s %s, the disk has %s left",
                             what, mist_format_bytes(needed, sizeof needed, bytes),
                             mist_format_bytes(left, sizeof left, room));
    free(above);
    return status;
}

/* Of all parameters, each of so many bytes. */
static int64_t bytes_of_model(const struct mist_session *at, int64_t each_bytes)
{
    struct mist_model_count n; /* the plan was checked: it fits */

    return mist_model_count(&at->plan.model, at->plan.job.seq_len, &n, NULL) == MIST_OK
               ? n.n_parameters * each_bytes
               : 0;
}

/* How many checkpoints will have to be there at a time beside those that are: the last
 * --keep, and the new one before the oldest goes. Who keeps all has to make room meanwhile. */
static int64_t n_checkpoints_more(const struct mist_session *at)
{
    const char *dir = at->options.checkpoint;
    int64_t every = at->options.save_every, keep = at->options.keep, n_there = 0;
    int64_t done = at->job.progress.n_steps, last = at->options.settings.n_iterations;
    int64_t n_saves = every > 0 ? last / every - done / every + (last % every != 0) : 1;
    char *path = NULL, *next;

    while (n_there < keep &&
           mist_checkpoint_find(dir, path, &next, NULL, NULL) == MIST_OK) {
        n_there++;
        free(path);
        path = next;
    }
    free(path);
    int64_t n_kept = n_there + n_saves - 1 < keep ? n_there + n_saves - 1 : keep;
    return n_kept > n_there ? n_kept + 1 - n_there : 1;
}

/* The disk has room for the checkpoints to come. */
static enum mist_status check_room(const struct mist_session *at, struct mist_err *err)
{
    char what[128] = "a checkpoint takes";
    int64_t bytes = bytes_of_model(at, MIST_CHECKPOINT_PARAM_BYTES), n = 0;

    if (!at->is_finished)
        n = n_checkpoints_more(at);
    if (n > 1)
        snprintf(what, sizeof what, "%lld more checkpoints at a time (--keep %lld) take",
                 (long long)n, (long long)at->options.keep);
    if (__builtin_mul_overflow(bytes, n, &bytes))
        bytes = INT64_MAX;
    return check_folder(at->options.checkpoint, what, bytes, err);
}

/* The folder must not hold what this run would not replace: a later step than the ones it
 * goes on from would stay the newest, unless it is damaged. */
static enum mist_status check_checkpoints(const struct mist_session *at,
                                          struct mist_err *err)
{
    const char *dir = at->options.checkpoint;
    struct mist_checkpoint *newest = NULL;
    struct stat info;
    char *path = NULL;
    enum mist_status status = check_room(at, err);

    if (status == MIST_OK && stat(dir, &info) == 0 &&
        mist_checkpoint_find(dir, NULL, &path, NULL, NULL) == MIST_OK &&
        mist_checkpoint_open(path, &newest, NULL) == MIST_OK) {
        if (!at->checkpoint)
            status = mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                                 "is of another run: go on from it by --resume, or name "
                                 "another folder");
        else if (!at->is_newest &&
                 mist_checkpoint_step(newest) > at->job.progress.n_steps)
            status = mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                                 "is later than the step %lld to go on from: remove it, "
                                 "or name another folder",
                                 (long long)at->job.progress.n_steps);
    }
    mist_checkpoint_close(newest);
    free(path);
    return status;
}

static void name_export(const char *folder, char weights[PATH_BYTES],
                        char config[PATH_BYTES])
{
    snprintf(weights, PATH_BYTES, "%s/model.safetensors", folder);
    snprintf(config, PATH_BYTES, "%s/config.json", folder);
}

/*
 * Weights that are there are not replaced, but a finished run is done with them. The
 * config.json is written last: of a run that is resumed, weights without one are what an
 * attempt before left half-written.
 */
static enum mist_status check_export(struct mist_session *at, struct mist_err *err)
{
    const char *folder = at->options.export;
    char weights[PATH_BYTES], config[PATH_BYTES];
    int64_t each_bytes = at->options.export_dtype == MIST_DTYPE_FP32 ? 4 : 2;
    enum mist_status status = MIST_OK;

    name_export(folder, weights, config);
    bool has_weights = access(weights, F_OK) == 0, is_whole = access(config, F_OK) == 0;
    if (at->checkpoint && has_weights && !is_whole)
        at->job.force = true;
    if (at->is_finished && !at->job.force && (has_weights || is_whole)) {
        at->job.export_folder = NULL;
        mist_message(&at->messages, "%s is there: not written again without --force",
                     config);
        return MIST_OK;
    }
    status =
        check_folder(folder, "the export takes", bytes_of_model(at, each_bytes), err);
    if (status != MIST_OK || access(folder, F_OK) != 0)
        return status;
    status = mist_output_check(weights, at->job.force, err);
    return status == MIST_OK ? mist_output_check(config, at->job.force, err) : status;
}

enum mist_status mist_session_check_apart(const struct mist_session *at,
                                          struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    char weights[PATH_BYTES], config[PATH_BYTES];

    if (options->export)
        name_export(options->export, weights, config);
    const struct mist_output outputs[] = {{"timeline", options->timeline},
                                          {"log", options->log},
                                          {"kernels-csv", options->kernels_csv},
                                          {"export", options->export ? weights : NULL},
                                          {"export", options->export ? config : NULL}};
    const struct mist_files inputs[] = {
        {"PLAN", at->plan_path, NULL},
        {"the trace set", at->plan.trace_set, mist_trace_set_file_name},
        {"--import", options->import, NULL},
        {"--import", options->import, mist_hf_file_name}};
    const size_t n = sizeof outputs / sizeof *outputs;
    enum mist_status status =
        mist_outputs_check_apart(outputs, n, inputs, sizeof inputs / sizeof *inputs, err);

    struct mist_files data = {.what = "the data"};
    for (int32_t i = 0; status == MIST_OK && (data.path = mist_data_path(at->data, i));
         i++)
        status = mist_outputs_check_apart(outputs, n, &data, 1, err);
    return status;
}

enum mist_status mist_session_check_outputs(struct mist_session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    bool force = options->common.force;
    enum mist_status status = MIST_OK;

    if (!at->is_finished) /* else nothing is timed */
        status = mist_output_check(options->timeline, force, err);
    if (status == MIST_OK && !at->is_finished)
        status = mist_output_check(options->kernels_csv, force, err);
    if (status == MIST_OK)
        status = mist_output_check(options->log, force || mist_session_goes_on(at), err);
    if (status == MIST_OK && options->tensorboard)
        status = check_folder(options->tensorboard, NULL, 0, err);
    if (status == MIST_OK && options->export)
        status = check_export(at, err);
    if (status == MIST_OK && options->checkpoint)
        status = check_checkpoints(at, err);
    return status;
}

/* Timed iterations of which there are no times. */
static void warn_of_losses(const struct mist_session *at,
                           const struct mist_train_report *report)
{
    const struct mist_train_job *job = &at->job;
    int64_t first = job->settings.n_iterations - job->config.n_timed_iterations + 1;

    for (int32_t i = 0; i < job->config.n_timed_iterations; i++)
        if (report->losses[i] != MIST_SPANS_WHOLE)
            mist_message(&at->messages, "step %lld was not timed: %s meanwhile",
                         (long long)(first + i),
                         mist_span_loss_text((enum mist_span_loss)report->losses[i]));
}

enum mist_status mist_session_save_results(const struct mist_session *at,
                                           const struct mist_train_report *report,
                                           struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    const struct mist_train_peak *known = &at->logger.peak;
    struct mist_op_peak peak = {known->flop_per_s, known->bytes_per_s};
    enum mist_status status = MIST_OK;

    warn_of_losses(at, report);
    if (options->timeline && !at->is_finished)
        status = mist_timeline_save(&report->timeline, options->timeline,
                                    options->common.force, err);
    if (status == MIST_OK && options->kernels_csv && !at->is_finished)
        status = mist_op_table_save(&report->ops, &peak, options->kernels_csv,
                                    options->common.force, err);
    if (status != MIST_OK)
        return status;
    return mist_train_report_print(report, &at->job, &at->logger,
                                   options->prints_kernels && !at->is_finished ? &peak
                                                                               : NULL,
                                   options->common.as_json, stdout, err);
}
