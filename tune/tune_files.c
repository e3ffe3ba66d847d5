/* Checks and writes of mist-tune's files. See tune_files.h. */
#include "tune/tune_files.h"

#include "core/atomic_file.h"
#include "core/parse.h"
#include "sim/sim_job.h"
#include "tune/plans_folder.h"
#include "tune/search_log.h"

#include <stdio.h>

enum mist_status mist_tune_files_check(const struct mist_tune_options *options,
                                       struct mist_err *err)
{
    const struct mist_output outputs[] = {{"output", options->common.output},
                                          {"log", options->log},
                                          {"pareto", options->pareto},
                                          {"export", options->export}};
    enum mist_status status = mist_outputs_check(
        outputs, sizeof outputs / sizeof *outputs, options->common.force, err);

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
