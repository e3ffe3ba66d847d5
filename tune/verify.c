/* The best plans, run. See verify.h. */
#include "tune/verify.h"

#include "core/command.h"
#include "core/parse.h"
#include "core/path.h"
#include "core/random.h"
#include "tune/plan_label.h"
#include "tune/verify_run.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { N_SAMPLES = 16 }; /* of the training data at the most: a few batches are read */

/* ------------------------------------------------------------------------ the folder */

/* Makes the folder; out[PATH_MAX] is its path, "" after an error. It lies where temporary
 * files do, but a launcher may start ranks on other machines: then in the current folder,
 * which they have to see. */
static enum mist_status make_folder(const struct mist_verify_config *config, char *out,
                                    struct mist_err *err)
{
    char here[PATH_MAX];
    const char *parent = mist_path_temporary();

    if (config->launch)
        parent = getcwd(here, sizeof here) ? here : ".";
    errno = ENAMETOOLONG;
    if (snprintf(out, PATH_MAX, "%s/mist-verify-XXXXXX", parent) < PATH_MAX &&
        mkdtemp(out))
        return MIST_OK;
    out[0] = '\0';
    return mist_err_at(err, MIST_ERR_IO, parent, 0, 0,
                       "can't make a folder for the plans to verify: %s",
                       strerror(errno));
}

/* Writes tokens to train on: what they are is nothing to time. */
static enum mist_status write_tokens(const struct mist_plan *plan, uint64_t seed,
                                     const char *path, int n_bytes, struct mist_err *err)
{
    int64_t n_samples =
        plan->job.global_batch < N_SAMPLES ? plan->job.global_batch : N_SAMPLES;
    int64_t n = n_samples * plan->job.seq_len + 1; /* the last is a target alone */
    FILE *stream = fopen(path, "wbe");
    struct mist_random random;
    bool is_bad = stream == NULL;

    mist_random_init(&random, seed);
    for (int64_t i = 0; i < n && !is_bad; i++) {
        int64_t token = mist_random_below(&random, plan->model.vocab);
        for (int k = 0; k < n_bytes; k++) /* little-endian */
            is_bad = is_bad || putc((int)(token >> (8 * k) & 0xFF), stream) == EOF;
    }
    int code = errno;
    if (stream && fclose(stream) != 0 && !is_bad) {
        code = errno;
        is_bad = true;
    }
    return is_bad ? mist_err_at(err, MIST_ERR_IO, path, 0, 0, "can't write: %s",
                                strerror(code))
                  : MIST_OK;
}

/* -------------------------------------------------------------------------- the check */

/* GPUs that the driver tells of; 0: it tells nothing. */
static int count_gpus(void)
{
    DIR *stream = opendir("/proc/driver/nvidia/gpus");
    int n = 0;

    for (struct dirent *entry; stream && (entry = readdir(stream));)
        n += entry->d_name[0] != '.';
    if (stream)
        closedir(stream);
    return n;
}

/* That plans for the cluster can run on this machine. */
static enum mist_status check_machine(const struct mist_cluster *cluster, int32_t n_ranks,
                                      struct mist_err *err)
{
    static const char hint[] = "--launch 'CMD' says how ranks are started elsewhere";
    bool is_cpu = cluster->backend == MIST_TRACE_CPU;
    long n_here = is_cpu ? sysconf(_SC_NPROCESSORS_ONLN) : count_gpus();

    if (getenv("OMPI_COMM_WORLD_SIZE"))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--verify starts the ranks itself: start mist-tune alone, "
                            "not by mpirun");
    if (n_ranks > cluster->devices_per_node)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--verify runs plans on this machine, and %d ranks need more "
                            "than one node of %d devices; %s",
                            (int)n_ranks, cluster->devices_per_node, hint);
    if (!is_cpu && access("/proc/driver/nvidia/version", F_OK) != 0 &&
        access("/dev/nvidiactl", F_OK) != 0 && access("/dev/dxg", F_OK) != 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--verify runs plans on this machine, which has no NVIDIA "
                            "driver, and the cluster has GPUs; %s",
                            hint);
    if (n_here > 0 && n_ranks > n_here)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--verify runs plans on this machine, which has %ld %s for "
                            "%d ranks; %s",
                            n_here, is_cpu ? "processors" : "GPUs", (int)n_ranks, hint);
    return MIST_OK;
}

/* *out is the path of mist-exec, malloc'd. */
static enum mist_status find_mist_exec(char **out, struct mist_err *err)
{
    return mist_command_find_beside(
        "mist-exec", "--verify needs mist-exec beside mist-tune", out, err);
}

enum mist_status mist_verify_check(const struct mist_verify_config *config,
                                   int32_t n_ranks, struct mist_err *err)
{
    char folder[PATH_MAX] = "", *mist_exec = NULL;
    enum mist_status status = MIST_OK;

    if (config->cluster->backend == MIST_TRACE_DATASHEET)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--verify runs plans, and the trace set is of a data sheet: "
                            "nothing was measured that a run could be compared with");
    if (!config->launch)
        status = check_machine(config->cluster, n_ranks, err);
    if (status == MIST_OK)
        status = find_mist_exec(&mist_exec, err);
    if (status == MIST_OK)
        status = mist_verify_find_launcher(config, n_ranks, err);
    if (status == MIST_OK)
        status = make_folder(config, folder, err);
    if (folder[0])
        rmdir(folder);
    free(mist_exec);
    return status;
}

/* ------------------------------------------------------------------------- the rounds */

struct verification {
    const struct mist_verify_config *config;
    struct mist_verify_result *out;
    char folder[PATH_MAX]; /* "": there is none */
    /* Owned; NULL: not yet. */
    char *mist_exec;
    char *tokens, *plans[MIST_VERIFY_MAX_PLANS]; /* in the folder */
};

/* Removes the folder with all that is in it. */
static void clean_up(struct verification *at)
{
    for (size_t i = 0; i < at->out->n_plans; i++)
        if (at->plans[i]) {
            unlink(at->plans[i]);
            free(at->plans[i]);
        }
    if (at->tokens)
        unlink(at->tokens);
    if (at->folder[0])
        rmdir(at->folder);
    free(at->tokens);
    free(at->mist_exec);
}

static enum mist_status save_plans(struct verification *at, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    char name[48];

    for (size_t i = 0; i < at->out->n_plans && status == MIST_OK; i++) {
        snprintf(name, sizeof name, "plan_%03zu.json", i + 1);
        at->plans[i] = mist_path_join(at->folder, name);
        if (!at->plans[i])
            return mist_err_memory(err, NULL);
        status = mist_plan_save(at->out->plans[i].plan, at->plans[i], false, err);
    }
    return status;
}

static enum mist_status prepare(struct verification *at, struct mist_err *err)
{
    const struct mist_plan *first = at->out->plans[0].plan;
    bool is_short = first->model.vocab <= 1 << 16;
    enum mist_status status = find_mist_exec(&at->mist_exec, err);

    if (status == MIST_OK)
        status = make_folder(at->config, at->folder, err);
    if (status == MIST_OK)
        status = save_plans(at, err);
    if (status != MIST_OK)
        return status;
    at->tokens = mist_path_join(at->folder, is_short ? "tokens.u16" : "tokens.u32");
    if (!at->tokens)
        return mist_err_memory(err, NULL);
    return write_tokens(first, at->config->seed, at->tokens, is_short ? 2 : 4, err);
}

/* Says that a plan is left out. */
static void say_failure(const struct verification *at, const struct mist_verified *plan)
{
    char label[MIST_PLAN_LABEL_BYTES], time[MIST_FORMAT_BYTES];

    mist_progress_fini(at->config->progress); /* it goes on behind the message */
    mist_format_time_s(time, sizeof time, plan->plan->predicted.iteration_s);
    mist_message(at->config->messages, "%s, predicted %s, is left out: %s",
                 mist_plan_label(plan->plan, label), time, plan->failure);
}

static enum mist_status run_once(struct verification *at, size_t i, struct mist_err *err)
{
    const struct mist_verify_place place = {at->config, at->mist_exec, at->tokens};
    struct mist_verified *plan = &at->out->plans[i];
    enum mist_verify_outcome outcome = MIST_VERIFY_STOPPED;
    enum mist_status status =
        mist_verify_run_plan(&place, at->plans[i], plan, &outcome, err);

    if (status != MIST_OK)
        return status;
    at->out->was_stopped = outcome == MIST_VERIFY_STOPPED;
    if (outcome == MIST_VERIFY_FAILED)
        say_failure(at, plan);
    return MIST_OK;
}

static enum mist_status run_rounds(struct verification *at, struct mist_err *err)
{
    struct mist_verify_result *out = at->out;
    int64_t n_done = 0, n_runs = (int64_t)out->n_plans * MIST_VERIFY_ROUNDS;
    enum mist_status status = MIST_OK;

    for (int round = 0; round < MIST_VERIFY_ROUNDS; round++)
        for (size_t i = 0; i < out->n_plans; i++) {
            if (status == MIST_OK && !out->was_stopped && !out->plans[i].failure[0])
                status = run_once(at, i, err);
            mist_progress_update(at->config->progress, ++n_done, n_runs);
        }
    return status;
}

enum mist_status mist_verify_run(const struct mist_verify_config *config,
                                 const struct mist_validated *plans, size_t n,
                                 struct mist_verify_result *out, struct mist_err *err)
{
    struct verification at = {.config = config, .out = out};

    *out =
        (struct mist_verify_result){.n_plans = n < config->n_plans ? n : config->n_plans};
    for (size_t i = 0; i < out->n_plans; i++)
        out->plans[i] = (struct mist_verified){.plan = plans[i].plan};
    enum mist_status status = prepare(&at, err);
    if (status == MIST_OK)
        status = run_rounds(&at, err);
    if (status == MIST_OK && !mist_verify_choose(out->plans, out->n_plans, &out->choice))
        status = mist_err_set(err, MIST_ERR_RUN,
                              "--verify: none of the plans can be run; the first: %s",
                              out->plans[0].failure);
    clean_up(&at);
    return status;
}
