/* Runs mist-tune. See sim_retune.h. */
#include "sim/sim_retune.h"

#include "core/capture.h"
#include "core/command.h"

#include <math.h>
#include <stdlib.h>

enum { TAIL_BYTES = 400, EXIT_NO_PLAN = 4 };

static void add_option(struct mist_command *command, const char *name, const char *value)
{
    mist_command_add(command, name);
    mist_command_add(command, value);
}

static enum mist_status make_command(const struct mist_sim_run *run,
                                     struct mist_sim_edits edits, const char *mist_tune,
                                     struct mist_command *command, struct mist_err *err)
{
    const struct mist_sim_options *options = &run->options;
    char n_threads[24];

    mist_command_add(command, mist_tune);
    add_option(command, "--retune", run->plan_path);
    if (options->cluster)
        add_option(command, "--cluster", options->cluster);
    if (options->framework > 0)
        add_option(command, "--target", mist_framework_words[options->framework - 1]);
    snprintf(n_threads, sizeof n_threads, "%lld", (long long)options->n_threads);
    add_option(command, "--threads", n_threads);
    for (int i = 0; i < edits.n; i++)
        add_option(command, "--what-if", edits.items[i]);
    mist_command_add(command, "--json");
    mist_command_add(command, "--quiet");
    add_option(command, "--progress", "never");
    return mist_command_end(command, err);
}

static enum mist_status run_mist_tune(char *const *words, double *iteration_s,
                                      struct mist_err *err)
{
    struct mist_capture capture;
    char how[160], tail[TAIL_BYTES];
    enum mist_status status = mist_capture_open(&capture, err);

    *iteration_s = NAN;
    if (status == MIST_OK) {
        const struct mist_process_result result =
            mist_capture_run(&capture, words, 0, NULL);
        bool has_exited = result.end == MIST_PROCESS_EXITED;
        if (has_exited && result.number == 0)
            status = mist_capture_read(&capture, "best", "iteration_s", 0, 1e15,
                                       iteration_s, err);
        else if (!has_exited || result.number != EXIT_NO_PLAN)
            status =
                mist_err_set(err, MIST_ERR_RUN, "--retune: mist-tune %s: %s",
                             mist_capture_describe(&result, 0, how, sizeof how),
                             mist_process_read_tail(capture.errors, tail, sizeof tail));
    }
    mist_capture_close(&capture);
    return status;
}

enum mist_status mist_sim_retune(const struct mist_sim_run *run,
                                 struct mist_sim_edits edits, double *iteration_s,
                                 struct mist_err *err)
{
    struct mist_command command;
    char *mist_tune = NULL;
    enum mist_status status = mist_command_find_beside(
        "mist-tune", "--retune needs mist-tune beside mist-sim", &mist_tune, err);

    mist_command_init(&command);
    if (status == MIST_OK)
        status = make_command(run, edits, mist_tune, &command, err);
    if (status == MIST_OK)
        status = run_mist_tune(command.words, iteration_s, err);
    mist_command_fini(&command);
    free(mist_tune);
    return status;
}
