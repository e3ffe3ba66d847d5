/* What a run begins with. See session.h. */
#include "exec/train/session.h"

#include "core/parse.h" /* sizes for people */
#include "exec/huggingface/hf_names.h"
#include "exec/runtime/runtime.h" /* what can't be replayed */
#include "sim/replay/replay.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --resume auto: go on where this run's checkpoints are, if there are any. */
static bool resumes_auto(const struct mist_session *at)
{
    return at->options.resume && strcmp(at->options.resume, "auto") == 0;
}

bool mist_session_goes_on(const struct mist_session *at)
{
    return at->checkpoint || resumes_auto(at);
}

/* Where to compute, and with how many threads of the host: none beside a GPU. */
static enum mist_status find_backend(struct mist_session *at, struct mist_err *err)
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
    if (at->options.graphs == MIST_GRAPHS_ON &&
        job->backend->operators == &mist_operators_cpu)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--graphs on needs a GPU, and this run is on the CPU");
    if (job->backend->operators != &mist_operators_cpu && at->options.n_threads > 0)
        mist_message(&at->messages, "--threads %lld has no effect: a GPU computes",
                     (long long)at->options.n_threads);
    if (job->backend->operators != &mist_operators_cpu)
        at->options.n_threads = 0;
    else if (at->options.n_threads == 0)
        at->options.n_threads = at->plan.job.threads > 0 ? at->plan.job.threads : 1;
    return mist_backend_check_attention(
        job->backend, (enum mist_attention_choice)at->options.attention, err);
}

/* That iterations can be replayed, if they are to be. */
static enum mist_status check_graphs(const struct mist_session *at, struct mist_err *err)
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

static enum mist_status check_ranks(const struct mist_session *at, struct mist_err *err)
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
static enum mist_status check_memory(const struct mist_session *at, struct mist_err *err)
{
    char needed[MIST_FORMAT_BYTES], allowed[MIST_FORMAT_BYTES];
    int64_t limit = at->plan.device_memory_bytes;
    int64_t(*arenas)[MIST_N_ARENAS] = calloc((size_t)at->plan.n_stages, sizeof *arenas);
    enum mist_status status;

    if (!arenas)
        return mist_err_memory(err, NULL);
    status = mist_replay_memory(&at->plan, (int32_t)at->options.n_threads, arenas, err);
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

static enum mist_status open_data(struct mist_session *at, struct mist_err *err)
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

/* How many samples a validation has: of whole batches, or all. */
static enum mist_status plan_validation(struct mist_session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    const struct mist_job *job = &at->plan.job;
    int64_t n_samples = mist_data_n_validation_samples(at->data, job->seq_len);
    int64_t batch = job->global_batch, wanted = options->n_validation_batches;
    int64_t n = mist_data_n_batches(n_samples, batch);

    if (options->validation_data.n == 0 && options->validation_frac <= 0)
        return MIST_OK;
    if (wanted > n)
        return mist_err_set(err, MIST_ERR_INPUT,
                            "--validation-batches %lld: the validation data has %lld "
                            "samples, %lld batch%s of %lld",
                            (long long)wanted, (long long)n_samples, (long long)n,
                            n == 1 ? "" : "es", (long long)batch);
    if (wanted == 0)
        wanted = n < 8 ? n : 8;
    at->job.n_validation_samples = wanted < n ? wanted * batch : n_samples;
    at->job.validate_every = options->validate_every;
    return MIST_OK;
}

/* Whether both are there, and one. */
static bool is_same_folder(const char *a, const char *b)
{
    struct stat info[2];

    return a && b && stat(a, &info[0]) == 0 && stat(b, &info[1]) == 0 &&
           info[0].st_dev == info[1].st_dev && info[0].st_ino == info[1].st_ino;
}

/* The checkpoint to go on from; *path is the caller's to free. NULL: a new run begins. */
static enum mist_status find_start(struct mist_session *at, char **path,
                                   struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    bool is_auto = resumes_auto(at);
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
    at->is_newest = *path && strcmp(*path, dir) != 0 && /* nor asked for by its name */
                    is_same_folder(dir, options->checkpoint);
    return status;
}

/* The checkpoint to go on from, and the settings it brings along. */
static enum mist_status open_checkpoint(struct mist_session *at, const char *path,
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
static enum mist_status open_import(struct mist_session *at, struct mist_err *err)
{
    const char *path = at->options.import;
    struct mist_hf_config config;
    enum mist_status status = mist_hf_check_config(path, &at->plan.model, &config, err);

    if (status == MIST_OK)
        status = mist_hf_load(path, &at->plan.model, &at->import, err);
    if (status == MIST_OK && !config.is_there)
        mist_message(&at->messages,
                     "%s: no config.json: whether heads, epsilon, activation and "
                     "positions are those of the plan is not known",
                     path);
    if (status == MIST_OK && config.dropout[0])
        mist_message(&at->messages,
                     "%s: config.json asks for dropout (%s): runs have none", path,
                     config.dropout);
    return status;
}

/* How long sequences of the export may be: as long as these, or as long as of the weights
 * that the run began with, also where it goes on from a checkpoint. */
static int32_t find_positions(const struct mist_session *at)
{
    struct mist_hf_config config = {.n_positions = 0};
    int32_t seq_len = at->plan.job.seq_len;

    if (at->options.import && mist_hf_check_config(at->options.import, &at->plan.model,
                                                   &config, NULL) != MIST_OK)
        return seq_len;
    return seq_len > config.n_positions ? seq_len : config.n_positions;
}

enum mist_status mist_session_open_start(struct mist_session *at, struct mist_err *err)
{
    const struct mist_exec_options *options = &at->options;
    char *path = NULL;
    enum mist_status status = find_start(at, &path, err);

    if (status == MIST_OK && path)
        status = open_checkpoint(at, path, err);
    else if (status == MIST_OK && options->import)
        status = open_import(at, err);
    free(path);
    at->job.n_positions = find_positions(at);
    if (status == MIST_OK)
        status =
            mist_train_settings_resolve(&at->options.settings, options->is_given, err);
    return status;
}

enum mist_status mist_session_prepare(struct mist_session *at, struct mist_err *err)
{
    enum mist_status status;

    if ((status = mist_plan_load(at->plan_path, &at->plan, err)) ||
        (status = mist_plan_check_ours(&at->plan, at->plan_path, err)) ||
        (status = check_graphs(at, err)) || (status = find_backend(at, err)) ||
        (status = check_ranks(at, err)) || (status = check_memory(at, err)) ||
        (status = open_data(at, err)) || (status = plan_validation(at, err)))
        return status;
    return mist_replay_check(&at->plan, (int32_t)at->options.n_threads, err);
}
