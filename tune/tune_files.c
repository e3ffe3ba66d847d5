/* Checks and writes of mist-tune's files. See tune_files.h. */
#include "tune/tune_files.h"

#include "core/atomic_file.h"
#include "core/parse.h"
#include "core/path.h"
#include "sim/sim_job.h"
#include "tune/plans_folder.h"
#include "tune/search_log.h"

#include <stdio.h>
#include <stdlib.h>

/* Not the plan that is tuned again is replaced, or removed, among those of --plans. */
static enum mist_status check_plans(const struct mist_tune_options *options,
                                    struct mist_err *err)
{
    const char *name = options->retune ? mist_path_name(options->retune) : "";

    if (!mist_plans_folder_has_name(name))
        return MIST_OK;
    char *path = mist_path_join(options->plans, name);
    if (!path)
        return mist_err_memory(err, NULL);
    enum mist_status status = mist_outputs_check_apart(
        &(struct mist_output){"plans", path}, 1,
        &(struct mist_files){"--retune", options->retune, NULL}, 1, err);
    free(path);
    return status;
}

enum mist_status mist_tune_files_check(const struct mist_tune_options *options,
                                       struct mist_err *err)
{
    const struct mist_output outputs[] = {{"output", options->common.output},
                                          {"log", options->log},
                                          {"pareto", options->pareto},
                                          {"export", options->export}};
    const char *model = mist_model_path(options->model);
    const struct mist_files inputs[] = {
        {"--retune", options->retune, NULL},
        {"the trace set", options->cluster, mist_trace_set_file_name},
        {"--model", model, NULL},
        {"--model", model, mist_model_file_name},
        {"--lengths", options->lengths, NULL}};
    const size_t n = sizeof outputs / sizeof *outputs;
    enum mist_status status =
        mist_outputs_check_apart(outputs, n, inputs, sizeof inputs / sizeof *inputs, err);

    if (status == MIST_OK)
        status = mist_outputs_check(outputs, n, options->common.force, err);

    if (status == MIST_OK && options->plans)
        status = check_plans(options, err);
    if (status != MIST_OK || !options->plans)
        return status;
    return mist_plans_folder_check(options->plans, options->common.force, err);
}

enum mist_status mist_tune_files_save(const struct mist_tune_session *at,
                                      const struct mist_validate_result *result,
                                      struct mist_search_rows *rows, struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;
    const struct mist_plan *best = result->plans[0].plan;
    struct mist_search_config search = mist_tune_session_config(at, NULL, NULL);
    bool force = options->common.force;
    enum mist_status status = MIST_OK;

    search.limit_bytes = at->config.limit_bytes;
    if (options->common.output)
        status = mist_plan_save(best, options->common.output, force, err);
    if (status == MIST_OK && options->export)
        status = mist_sim_job_export(best, at->space.devices_per_node, options->export,
                                     force, &at->messages, err);
    if (status == MIST_OK && options->plans)
        status = mist_plans_folder_save(options->plans, force, result->plans,
                                        result->n_plans, err);
    if (status == MIST_OK && options->log)
        status = mist_search_log_save(rows, &search, best, options->log, force, err);
    if (status == MIST_OK && options->pareto)
        status = mist_search_log_save_pareto(&at->space, &search, best, options->pareto,
                                             force, err);
    return status == MIST_OK ? mist_search_rows_close(rows, err) : status;
}

char *mist_tune_files_list(const struct mist_tune_options *options, char *text,
                           size_t size)
{
    const char *paths[] = {options->common.output, options->export, options->plans,
                           options->log, options->pareto};

    text[0] = '\0';
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (paths[i])
            mist_text_add(text, size, ", ", "%s%s",
                          text[0] ? "" : " and saved: ", paths[i]);
    return text;
}
