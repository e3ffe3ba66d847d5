/*
 * mist-exec: trains what a plan says, on the devices of this machine.
 *
 *     $ mpirun -n 2 mist-exec plan.json --iterations 30 --checkpoint run --save-every 10
 *     model       11.2 MFLOP per token (operators of forward and backward, ...)
 *     memory      largest rank: device arena 91.3 MiB planned, 91.3 MiB allocated, ...
 *     attention   cuDNN 9.19.0, deterministic backward
 *     products    cuBLASLt 13.1.0
 *     messages    NCCL 2.28.9
 *     graphs      not replayed: more than one rank
 *     training    steps 1 to 30, gradients clipped to norm 1
 *         step       loss  grad norm         lr   tokens/s    ms/step     MFU
 *            1     5.5581      3.871      0.001       2760      742.1  41.2 %
 *            2     5.1209      2.415      0.001       2919      701.5  43.6 %
 *     ...
 *     iteration, measured (median)   701 ms
 */
#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/interrupt.h"
#include "core/message.h"
#include "core/parse.h" /* sizes for people */
#include "exec/affinity.h"
#include "exec/checkpoint_check.h"
#include "exec/hf_config.h"
#include "exec/runtime.h" /* what can't be replayed */
#include "exec/train.h"
#include "exec/train_folder.h"
#include "exec/train_log.h"
#include "exec/train_options.h"
#include "exec/train_report.h"
#include "sim/replay.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct session {
    struct mist_exec_options options;
    struct mist_plan plan;
    struct mist_catalog *catalog;
    struct mist_comm *comm;
    struct mist_data *data;
    struct mist_train_claim claim;      /* of the folder of checkpoints */
    struct mist_checkpoint *checkpoint; /* to resume from */
    struct mist_hf *import;
    struct mist_backend_info devices; /* of the backend */
    struct mist_train_job job;
    struct mist_train_logger logger;
    struct mist_messages messages; /* rank 0 tells people */
    const char *plan_path;
    int stop_signal;  /* that ended the run; 0: none */
    bool is_finished; /* the checkpoint has all steps of the run */
    bool has_agreed;  /* that the job ends: no rank waits for another */
    bool is_silent;   /* another rank reports what went wrong */
};

static bool is_first(const struct session *at)
{
    return mist_comm_rank(at->comm) == 0;
}

/* ----------------------------------------------------------------------------- inputs */

/* Where to compute, and with how many threads of the host: none beside a GPU. */
static enum mist_status find_backend(struct session *at, struct mist_err *err)
{
    struct mist_train_job *job = &at->job;
    char note[256];
    enum mist_status status =
        mist_backend_find((enum mist_backend_choice)at->options.backend, &job->backend,
                          &at->devices, note, sizeof note, err);

    if (status != MIST_OK)
        return status;
    if (note[0])
        mist_message(&at->messages, "%s", note);
    if (at->options.attention == MIST_ATTENTION_CUDNN &&
        job->backend->operators == &mist_operators_cpu)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--attention cudnn needs a GPU, and this run is on the CPU");
    if (at->options.graphs == MIST_GRAPHS_ON &&
        job->backend->operators == &mist_operators_cpu)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--graphs on needs a GPU, and this run is on the CPU");
    if (job->backend->operators != &mist_operators_cpu)
        at->options.n_threads = 0;
    else if (at->options.n_threads == 0)
        at->options.n_threads = at->plan.job.threads > 0 ? at->plan.job.threads : 1;
    return MIST_OK;
}

/* That iterations can be replayed, if they are to be. */
static enum mist_status check_graphs(const struct session *at, struct mist_err *err)
{
    const struct mist_train_config config = {.is_serial = at->options.is_serial,
                                             .delay_seed =
                                                 (uint64_t)at->options.delay_seed};
    const char *obstacle =
        mist_runtime_graphs_obstacle(&config, mist_comm_n_ranks(at->comm));

    if (at->options.graphs != MIST_GRAPHS_ON || !obstacle)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_USAGE, "--graphs on can't be had: %s", obstacle);
}

static enum mist_status check_ranks(const struct session *at, struct mist_err *err)
{
    int32_t needed = mist_plan_n_ranks(&at->plan), n = mist_comm_n_ranks(at->comm);

    if (needed == n)
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_USAGE,
                        "the plan needs %d rank%s and %d %s started; use: mpirun -n %d "
                        "mist-exec %s",
                        (int)needed, needed == 1 ? "" : "s", (int)n,
                        n == 1 ? "was" : "were", (int)needed, at->plan_path);
}

/* That every stage keeps to the memory that the plan was made for. */
static enum mist_status check_memory(const struct session *at, struct mist_err *err)
{
    char needed[MIST_FORMAT_BYTES], allowed[MIST_FORMAT_BYTES];
    int64_t limit = at->plan.device_memory_bytes;
    int64_t(*arenas)[MIST_N_ARENAS] = calloc((size_t)at->plan.n_stages, sizeof *arenas);
    enum mist_status status;

    if (!arenas)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    status = mist_replay_memory(at->catalog, &at->plan, (int32_t)at->options.n_threads,
                                arenas, err);
    for (int32_t i = 0; i < at->plan.n_stages && status == MIST_OK && limit > 0; i++) {
        int64_t bytes = arenas[i][MIST_ARENA_DEVICE];
        if (bytes > limit)
            status = mist_err_set(
                err, MIST_ERR_NO_PLAN,
                "stage %d needs %s (%lld bytes) on the device, the plan allows %s (%lld)",
                (int)i, mist_format_bytes(needed, sizeof needed, bytes), (long long)bytes,
                mist_format_bytes(allowed, sizeof allowed, limit), (long long)limit);
    }
    free(arenas);
    return status;
}

static enum mist_status open_data(struct session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    struct mist_data_config config = {
        .paths = options->data.items,
        .n = options->data.n,
        .validation_paths = options->validation_data.items,
        .n_validation = options->validation_data.n,
        .validation_frac = options->validation_frac,
    };
    char **paths = NULL;
    int32_t n = 0;
    enum mist_status status = MIST_OK;

    if (config.n == 0) {
        status = mist_data_default_paths(&paths, &n, err);
        config.paths = (const char *const *)paths;
        config.n = n;
    }
    if (status == MIST_OK)
        status = mist_data_open_config(&config, &at->data, err);
    mist_data_free_paths(paths, n);
    if (status == MIST_OK && mist_data_is_text(at->data) &&
        at->plan.model.vocab != MIST_DATA_VOCAB)
        status = mist_err_set(err, MIST_ERR_INPUT,
                              "text is read as bytes, a vocabulary of %d, and the model "
                              "has one of %lld: make a token file of it (README.md, "
                              "\"Token files\") and give that by --data",
                              MIST_DATA_VOCAB, (long long)at->plan.model.vocab);
    if (status == MIST_OK)
        status =
            mist_data_check(at->data, at->plan.model.vocab, at->plan.job.seq_len, err);
    if (status == MIST_ERR_INPUT)
        mist_err_locate(err, at->plan_path, 0); /* what is wrong with no text */
    return status;
}

/* How many batches a validation has. */
static enum mist_status plan_validation(struct session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    const struct mist_job *job = &at->plan.job;
    int64_t n_samples = mist_data_n_validation_samples(at->data, job->seq_len);
    int64_t n = n_samples / job->global_batch, wanted = options->n_validation_batches;

    if (options->validation_data.n == 0 && options->validation_frac <= 0)
        return MIST_OK;
    if (n == 0)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "the validation data has %lld samples of %d tokens, a global "
                            "batch has %lld",
                            (long long)n_samples, (int)job->seq_len,
                            (long long)job->global_batch);
    if (wanted > n)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "--validation-batches %lld: the validation data has %lld of "
                            "%lld samples",
                            (long long)wanted, (long long)n,
                            (long long)job->global_batch);
    at->job.n_validation_batches = wanted > 0 ? wanted : n < 8 ? n : 8;
    at->job.validate_every = options->validate_every;
    return MIST_OK;
}

/* --resume auto: go on where this run's checkpoints are, if there are any. */
static bool resumes_auto(const struct mist_exec_options *options)
{
    return options->resume && strcmp(options->resume, "auto") == 0;
}

/* The checkpoint to go on from; *path is the caller's to free. NULL: a new run begins. */
static enum mist_status find_start(struct session *at, char **path, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    bool is_auto = resumes_auto(options);
    const char *dir = is_auto ? options->checkpoint : options->resume;

    *path = NULL;
    if (!dir)
        return MIST_OK;
    enum mist_status status =
        mist_train_find(at->comm, dir, &at->messages, path, &at->checkpoint, err);
    if (is_auto && status == MIST_ERR_IO && access(dir, F_OK) != 0)
        return MIST_OK; /* a dry run makes no folder */
    if (status == MIST_OK && !*path && !is_auto)
        status = mist_err_at(err, MIST_ERR_INPUT, dir, 0, 0, "holds no checkpoint");
    return status;
}

/* The checkpoint to go on from, and the settings it brings along. */
static enum mist_status open_checkpoint(struct session *at, const char *path,
                                        struct mist_err *err)
{
    struct mist_exec_options *options = &at->options;
    int64_t *n_done = &at->job.progress.n_steps;
    enum mist_status status =
        mist_checkpoint_check_model(at->checkpoint, &at->plan.model, err);

    if (status == MIST_OK) {
        mist_message(&at->messages, "goes on from %s", path);
        struct mist_json training = mist_checkpoint_training(at->checkpoint);
        status = mist_train_settings_take_over(
            &training, &at->plan, at->data, options->common.force, options->is_given,
            &options->settings, &at->job.progress, &at->messages, err);
    }
    at->is_finished = status == MIST_OK && *n_done >= options->settings.n_iterations;
    if (at->is_finished)
        mist_message(&at->messages, "the run is finished: %lld of %lld steps are done",
                     (long long)*n_done, (long long)options->settings.n_iterations);
    return status;
}

/* Weights to begin with, of the very model of the plan. */
static enum mist_status open_import(struct session *at, struct mist_err *err)
{
    const char *path = at->options.import;
    bool has_config = true;
    enum mist_status status =
        mist_hf_check_config(path, &at->plan.model, &has_config, err);

    if (status == MIST_OK)
        status = mist_hf_load(path, &at->plan.model, &at->import, err);
    if (status == MIST_OK && !has_config)
        mist_message(&at->messages,
                     "%s: no config.json: whether heads, epsilon, activation and "
                     "positions are those of the plan is not known",
                     path);
    return status;
}

static enum mist_status open_start(struct session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    char *path = NULL;
    enum mist_status status = find_start(at, &path, err);

    if (status == MIST_OK && path)
        status = open_checkpoint(at, path, err);
    else if (status == MIST_OK && options->import)
        status = open_import(at, err);
    free(path);
    if (status == MIST_OK)
        status =
            mist_train_settings_resolve(&at->options.settings, options->is_given, err);
    return status;
}

/* What a rank can tell by itself; with open_start(), everything that can be refused is
 * refused before anything is allocated. */
static enum mist_status prepare(struct session *at, struct mist_err *err)
{
    enum mist_status status = mist_plan_load(at->plan_path, &at->plan, err);

    if (status == MIST_OK)
        status = check_graphs(at, err);
    if (status == MIST_OK)
        status = find_backend(at, err);
    if (status == MIST_OK)
        status = mist_catalog_new(&at->plan.model, &at->catalog, err);
    if (status == MIST_OK)
        status = check_ranks(at, err);
    if (status == MIST_OK)
        status = check_memory(at, err);
    if (status == MIST_OK)
        status = open_data(at, err);
    if (status == MIST_OK)
        status = plan_validation(at, err);
    if (status == MIST_OK)
        status = mist_replay_check(at->catalog, &at->plan, (int32_t)at->options.n_threads,
                                   err);
    return status;
}

/* ---------------------------------------------------------------------------- outputs */

static enum mist_status check_file(const char *path, bool force, struct mist_err *err)
{
    struct mist_atomic_file file;
    enum mist_status status =
        path ? mist_atomic_file_open(&file, path, force, err) : MIST_OK;

    if (path && status == MIST_OK)
        mist_atomic_file_abort(&file);
    return status;
}

/* A folder that is there or can be made: the nearest one above it that is there can be
 * written to. */
static enum mist_status check_folder(const char *path, struct mist_err *err)
{
    char *above = strdup(path);
    struct stat info;
    enum mist_status status = MIST_OK;

    if (!above)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    while (above[0] && stat(above, &info) != 0 && errno == ENOENT) {
        char *slash = strrchr(above, '/');
        if (slash && slash > above)
            *slash = '\0';
        else
            above[slash && slash[1]] = '\0'; /* "/a": "/"; "a": "" */
    }
    const char *found = above[0] ? above : ".";
    if (stat(found, &info) != 0)
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "%s", strerror(errno));
    else if (!S_ISDIR(info.st_mode))
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "%.200s is no folder", found);
    else if (access(found, W_OK | X_OK) != 0)
        status = mist_err_at(err, MIST_ERR_IO, path, 0, 0, "can't write to %.200s: %s",
                             found, strerror(errno));
    free(above);
    return status;
}

/* The folder must not hold what this run would not replace: a later step than the ones it
 * goes on from would stay the newest. */
static enum mist_status check_checkpoints(const struct session *at, struct mist_err *err)
{
    const char *dir = at->options.checkpoint;
    struct mist_checkpoint *newest = NULL;
    struct stat info;
    char *path = NULL;
    enum mist_status status = MIST_OK;

    if (stat(dir, &info) == 0 &&
        mist_checkpoint_find_newest(dir, &path, NULL, NULL) == MIST_OK &&
        mist_checkpoint_open(path, &newest, NULL) == MIST_OK) {
        if (!at->checkpoint)
            status = mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                                 "is of another run: go on from it by --resume, or name "
                                 "another folder");
        else if (mist_checkpoint_step(newest) > at->job.progress.n_steps)
            status = mist_err_at(err, MIST_ERR_USAGE, path, 0, 0,
                                 "is later than the step %lld to go on from: remove it, "
                                 "or name another folder",
                                 (long long)at->job.progress.n_steps);
    }
    mist_checkpoint_close(newest);
    free(path);
    return status;
}

/* All ranks. Before anything is read there: a job before this one may still be saving. */
static enum mist_status claim_folder(struct session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;

    if (!options->checkpoint || options->common.is_dry_run)
        return MIST_OK;
    enum mist_status status =
        mist_train_claim(at->comm, options->checkpoint, options->deadline_s,
                         &at->messages, &at->claim, err);
    if (status != MIST_OK) /* a signal ends the wait for another job */
        at->stop_signal = atomic_load(mist_interrupt_flag());
    return status;
}

/*
 * Weights that are there are not replaced, but a finished run is done with them. The
 * config.json is written last: of a run that is resumed, weights without one are what an
 * attempt before left half-written.
 */
static enum mist_status check_export(struct session *at, struct mist_err *err)
{
    const char *folder = at->options.export;
    char weights[4096], config[4096];
    enum mist_status status = check_folder(folder, err);

    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    snprintf(config, sizeof config, "%s/config.json", folder);
    bool has_weights = access(weights, F_OK) == 0, is_whole = access(config, F_OK) == 0;
    if (status != MIST_OK || at->job.force || (!has_weights && !is_whole))
        return status;
    if (at->checkpoint && !is_whole) {
        at->job.force = true;
        return MIST_OK;
    }
    if (!at->is_finished)
        return mist_err_at(err, MIST_ERR_USAGE, has_weights ? weights : config, 0, 0,
                           "exists already; --force replaces it");
    at->job.export_folder = NULL;
    mist_message(&at->messages, "%s is there: not written again without --force", config);
    return MIST_OK;
}

/* Whether there may be a log of an attempt before this one. */
static bool goes_on(const struct session *at)
{
    return at->checkpoint || resumes_auto(&at->options);
}

/* What could not be written at the end is refused at the beginning. */
static enum mist_status check_outputs(struct session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    bool force = options->common.force;
    enum mist_status status = MIST_OK;

    if (!at->is_finished) /* else nothing is timed */
        status = check_file(options->timeline, force, err);
    if (status == MIST_OK && !at->is_finished)
        status = check_file(options->kernels_csv, force, err);
    if (status == MIST_OK)
        status = check_file(options->log, force || goes_on(at), err);
    if (status == MIST_OK && options->tensorboard)
        status = check_folder(options->tensorboard, err);
    if (status == MIST_OK && options->export)
        status = check_export(at, err);
    if (status == MIST_OK && options->checkpoint)
        status = check_checkpoints(at, err);
    return status;
}

/* ------------------------------------------------------------------------------- run */

static void fill_job(struct session *at)
{
    const struct mist_exec_options *options = &at->options;
    struct mist_train_job *job = &at->job; /* progress and validation are known */
    int64_t n = options->settings.n_iterations - job->progress.n_steps;

    job->plan = &at->plan;
    job->catalog = at->catalog;
    job->data = at->data;
    job->settings = options->settings;
    job->checkpoint = at->checkpoint;
    job->import = at->import;
    job->save_every = options->save_every;
    job->saving = (struct mist_train_saving){options->checkpoint, (int32_t)options->keep,
                                             at->claim.run_id};
    job->messages = &at->messages;
    job->export_folder = options->export;
    job->stop_signal = mist_interrupt_flag();
    job->export_dtype = (enum mist_dtype)options->export_dtype;
    job->force = options->common.force;
    job->times_operators = options->prints_kernels || options->kernels_csv;
    if ((options->timeline || job->times_operators) && n > 0)
        job->n_timed_iterations = (int32_t)(options->n_timed < n ? options->n_timed : n);
    job->n_threads = (int32_t)options->n_threads;
    job->deadline_s = options->deadline_s;
    job->is_serial = options->is_serial;
    job->delay_seed = (uint64_t)options->delay_seed;
    job->skips_nonfinite = options->on_nan == 1;
    job->allows_atomics = options->allows_atomics;
    job->attention = (enum mist_attention_choice)options->attention;
    job->graphs = (enum mist_graphs_choice)options->graphs;
}

/* Rank 0's log; the other ranks have none. */
static enum mist_status open_log(struct session *at, struct mist_err *err)
{
    at->logger = (struct mist_train_logger){
        .job = &at->job,
        .stream = at->messages.stream,
        .log_every = at->options.log_every,
        .path = at->options.log,
        .board_folder = at->options.tensorboard,
        .goes_on = goes_on(at),
        .force = at->options.common.force,
        .peak = mist_train_find_peak(&at->plan, at->plan_path, &at->messages),
    };
    enum mist_status status = mist_train_flop_per_token(at->catalog, &at->plan,
                                                        &at->logger.flop_per_token, err);
    return status == MIST_OK ? mist_train_log_init(&at->logger, err) : status;
}

/* Before threads are made that inherit it. */
static enum mist_status settle(struct session *at, struct mist_err *err)
{
    struct mist_affinity affinity;
    char note[512];
    enum mist_status status =
        mist_affinity_settle(at->comm, at->job.n_threads, at->options.bind == 1,
                             &affinity, note, sizeof note, err);

    if (status != MIST_OK)
        return status;
    at->job.n_processors = affinity.n_processors;
    if (note[0])
        mist_message(&at->messages, "%s", note);
    return MIST_OK;
}

/* All ranks; which device this one computes on. */
static enum mist_status find_place(struct session *at, struct mist_err *err)
{
    struct mist_backend_place place;
    enum mist_status status =
        mist_backend_pick_device(&at->devices, at->comm, &place, err);

    if (status != MIST_OK)
        return status;
    at->job.i_device = place.i_device;
    at->job.has_own_device = place.n_sharing == 1;
    if (place.note[0])
        mist_message(&at->messages, "%s: all communicate through the host's memory",
                     place.note);
    return MIST_OK;
}

/* Timed iterations of which there are no times. */
static void warn_of_losses(const struct session *at,
                           const struct mist_train_report *report)
{
    const struct mist_train_job *job = &at->job;
    int64_t first = job->settings.n_iterations - job->n_timed_iterations + 1;

    for (int32_t i = 0; i < job->n_timed_iterations; i++)
        if (report->losses[i] != MIST_SPANS_WHOLE)
            mist_message(&at->messages, "step %lld was not timed: %s meanwhile",
                         (long long)(first + i),
                         mist_span_loss_text((enum mist_span_loss)report->losses[i]));
}

static enum mist_status save_results(const struct session *at,
                                     const struct mist_train_report *report,
                                     struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    const struct mist_train_peak *known = &at->logger.peak;
    struct mist_op_peak peak = {known->flop_per_s, known->bytes_per_s};
    enum mist_status status = MIST_OK;

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

/* A run that a signal ended, also a quiet one: how to go on. */
static void say_stopped(const struct session *at, const struct mist_train_report *report)
{
    struct mist_messages to = mist_messages_to_stderr(mist_exec_tool.name, false);
    const char *folder = at->options.checkpoint;

    mist_message(&to, "%s: stopped after step %lld of %lld; %s%s%s",
                 mist_interrupt_name(report->stop_signal),
                 (long long)report->stopped_after,
                 (long long)at->job.settings.n_iterations,
                 folder ? "it is saved in " : "nothing is saved without --checkpoint DIR",
                 folder ? folder : "", folder ? ", --resume auto goes on" : "");
}

static enum mist_status train(struct session *at, struct mist_err *err)
{
    const struct mist_train_log log = {mist_train_log_begin, mist_train_log_step,
                                       &at->logger, mist_train_log_note};
    struct mist_train_report report;

    mist_comm_set_deadline(at->comm, at->options.deadline_s);
    enum mist_status status = find_place(at, err);
    if (status != MIST_OK)
        return status;
    status = mist_train_run(at->comm, &at->job, &log, &report, err);
    if (status == MIST_OK && report.paths.n_fallbacks > 0)
        mist_message(&at->messages, "%lld products took a slower way than planned",
                     (long long)report.paths.n_fallbacks);
    at->stop_signal = report.stop_signal;
    if (at->stop_signal) {
        if (is_first(at))
            say_stopped(at, &report);
    } else if (status == MIST_OK && is_first(at)) {
        warn_of_losses(at, &report);
        status = save_results(at, &report, err);
    }
    mist_train_report_fini(&report);
    return status;
}

/*
 * Every rank learns whether one of them can't go on. What is wrong is wrong on all of
 * them most of the time, so only the first one says it, and all leave instead of being
 * killed.
 */
static enum mist_status agree(struct session *at, enum mist_status status,
                              struct mist_err *err)
{
    int32_t rank = mist_comm_rank(at->comm), n = mist_comm_n_ranks(at->comm);
    double first = status == MIST_OK ? n : rank; /* the first rank that can't */
    struct mist_err lost;

    if (n == 1)
        return status;
    if (mist_comm_all_reduce_f64(at->comm, MIST_COMM_MIN, &first, 1, &lost) != MIST_OK) {
        if (status != MIST_OK)
            return status; /* the cause, not that nobody could be told */
        *err = lost;
        return MIST_ERR_RUN;
    }
    if (first >= n)
        return MIST_OK;
    at->is_silent = rank != (int32_t)first;
    if (mist_comm_broadcast_bytes(at->comm, (int32_t)first, &status, sizeof status,
                                  &lost) != MIST_OK)
        status = MIST_ERR_RUN;
    at->has_agreed = true;
    return status;
}

/* All ranks read the same data, and do at the end what rank 0 found to be done. */
static enum mist_status agree_on_files(struct session *at, struct mist_err *err)
{
    struct mist_train_job *job = &at->job;
    int64_t data = (int64_t)(mist_data_fingerprint(at->data) >> 1);
    bool exports = job->export_folder != NULL || !is_first(at);
    int64_t least[] = {data, -data, exports}; /* of all ranks */
    enum mist_status status =
        mist_comm_all_reduce_i64(at->comm, MIST_COMM_MIN, least, 3, err);

    if (status != MIST_OK)
        return status;
    if (least[2] == 0)
        job->export_folder = NULL;
    if (least[0] == -least[1])
        return MIST_OK;
    at->has_agreed = true;
    at->is_silent = !is_first(at);
    return mist_err_set(err, MIST_ERR_INPUT,
                        "the ranks read different data; all nodes must see the same "
                        "files");
}

static enum mist_status run(struct session *at, struct mist_err *err)
{
    enum mist_status status = mist_comm_open(&at->comm, err);

    if (status != MIST_OK)
        return status;
    at->messages = mist_messages_to_stderr(mist_exec_tool.name,
                                           at->options.common.is_quiet || !is_first(at));
    status = prepare(at, err);
    if (status == MIST_OK && is_first(at) && at->options.checkpoint)
        status = check_folder(at->options.checkpoint, err);
    status = agree(at, status, err);
    if (at->has_agreed)
        return status;
    if (status == MIST_OK)
        status = claim_folder(at, err);
    if (status == MIST_OK)
        status = open_start(at, err);
    if (status == MIST_OK)
        fill_job(at);
    if (status == MIST_OK && is_first(at))
        status = open_log(at, err);
    if (status == MIST_OK && is_first(at))
        status = check_outputs(at, err);
    status = agree(at, status, err);
    if (status == MIST_OK)
        status = agree_on_files(at, err);
    if (status == MIST_OK && at->options.common.is_dry_run) {
        mist_message(&at->messages, "%s can be run", at->plan_path);
        return MIST_OK;
    }
    if (status == MIST_OK)
        status = settle(at, err);
    return status == MIST_OK ? train(at, err) : status;
}

int main(int argc, char **argv)
{
    static struct session at;
    struct mist_positionals positionals;
    struct mist_err err = {0};
    bool is_done = false;
    at.job.begun_s = mist_clock_now_s();
    mist_interrupt_ignore_file_size();
    enum mist_status status =
        mist_exec_options_parse(argc, argv, &at.options, &positionals, &is_done, &err);

    if (status == MIST_OK && is_done)
        return 0;
    if (status == MIST_OK && at.options.verify) {
        status = mist_checkpoint_check_folder(at.options.verify,
                                              at.options.common.as_json, stdout, &err);
    } else if (status == MIST_OK) {
        at.plan_path = positionals.items[0];
        mist_interrupt_catch();
        status = run(&at, &err);
    }
    int code = at.stop_signal ? 128 + at.stop_signal : mist_exit_code(status);
    if (status != MIST_OK) {
        if (!at.is_silent)
            mist_err_print(&err, mist_exec_tool.name, stderr);
        mist_train_release(&at.claim);
        if (at.comm && mist_comm_n_ranks(at.comm) > 1 && !at.has_agreed)
            mist_comm_abort(at.comm, code);
    }
    mist_train_log_fini(&at.logger);
    mist_train_release(&at.claim);
    mist_checkpoint_close(at.checkpoint);
    mist_hf_close(at.import);
    mist_data_close(at.data);
    mist_catalog_free(at.catalog);
    mist_comm_close(at.comm);
    return code;
}
