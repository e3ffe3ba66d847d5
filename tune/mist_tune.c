/*
 * mist-tune: finds the fastest plan for a model on a cluster.
 *
 *     $ mist-tune --model gpt3-demo --cluster traces/this --global-batch 16 --seq-len 128
 *     Best plan
 *       iteration, by replay     689 ms
 *       its error bar, +-        12.1 ms
 *       ...
 *     Stages
 *       stage  layers  dp  tp  sp  b  ZeRO  checkpointed  lean  offloaded            t ...
 *           0       6   1   1   0  2     0             0     6  optimizer 50 %  80.1 ms
 *           1       6   1   1   0  2     0             0     0                  82.0 ms
 *     ...
 */
#include "core/clock.h"
#include "core/interrupt.h"
#include "core/progress.h"
#include "tune/ablate.h"
#include "tune/plans_folder.h"
#include "tune/sample_plans.h"
#include "tune/search_rows.h"
#include "tune/tune_files.h"
#include "tune/tune_options.h"
#include "tune/tune_report.h"
#include "tune/tune_session.h"
#include "tune/tune_sweep.h"
#include "tune/verify.h"

#include <stdlib.h>

struct tuning {
    struct mist_tune_options options;
    struct mist_plan retuned; /* of --retune */
    struct mist_messages messages;
    enum mist_emit_kind kind;
    FILE *stream; /* of results; NULL: nowhere */
    struct mist_tune_session session;
    struct mist_search_rows rows; /* for --log */
    struct mist_verify_config verify;
    struct mist_verify_result verified;
    struct mist_runners_up runners_up;
    struct mist_tune_sweep sweep;
    bool was_stopped; /* by a signal */
};

/* ---------------------------------------------------------------------- verification */

/* That plans can be run, if they are to be. */
static enum mist_status check_verify(struct tuning *at, struct mist_err *err)
{
    const struct mist_tune_options *options = &at->options;

    at->verify = (struct mist_verify_config){
        .n_plans = (size_t)options->n_verified,
        .n_iterations = options->n_iterations,
        .limit_s = options->verify_limit_s,
        .launch = options->launch,
        .seed = (uint64_t)options->common.seed,
        .cluster = &at->session.traces.cluster,
        .stop = mist_interrupt_flag(),
        .messages = &at->messages,
    };
    return options->n_verified == 0
               ? MIST_OK
               : mist_verify_check(&at->verify, at->session.space.n_ranks, err);
}

/* Runs the best plans of different kinds and makes the one that is chosen the first. */
static enum mist_status verify(struct tuning *at, struct mist_validate_result *result,
                               struct mist_err *err)
{
    const struct mist_tune_options *options = &at->options;
    struct mist_progress progress;

    mist_validate_vary(result->plans, result->n_plans);
    mist_interrupt_hold(); /* what runs is ended first */
    at->verify.progress = &progress;
    mist_progress_init(&progress, (enum mist_progress_mode)options->common.progress,
                       options->common.no_color, at->messages.stream, "verifying");
    enum mist_status status =
        mist_verify_run(&at->verify, result->plans, result->n_plans, &at->verified, err);
    mist_progress_fini(&progress);
    if (status == MIST_OK)
        mist_validate_put_first(result->plans, at->verified.choice.i_chosen);
    return status;
}

/* --------------------------------------------------------------------------- results */

/* What an interrupted search or verification leaves: its results so far. */
static void say_interrupted(const struct tuning *at)
{
    bool is_searched = at->verified.n_plans > 0;
    char saved[1024];

    mist_message(&at->messages, "interrupted: the best of what was %s is printed%s",
                 !is_searched                       ? "searched"
                 : at->verified.choice.n_rounds > 0 ? "measured"
                                                    : "predicted",
                 mist_tune_files_list(&at->options, saved, sizeof saved));
}

/* --sweep */
static enum mist_status sweep(struct tuning *at, const struct mist_positionals *given,
                              struct mist_err *err)
{
    const char *output = at->options.common.output;
    struct mist_tune_sweep *sweep = &at->sweep;
    enum mist_status status = mist_tune_sweep_init(sweep, &at->options, given, err);

    if (status == MIST_OK)
        status = mist_tune_files_check(&at->options, err);
    if (status == MIST_OK)
        status = mist_tune_sweep_check(sweep, &at->messages, err);
    if (status != MIST_OK || at->options.common.is_dry_run)
        return status;
    mist_interrupt_catch();
    status = mist_tune_sweep_run(sweep, &at->messages, err);
    at->was_stopped = sweep->was_stopped;
    mist_interrupt_hold(); /* table and file, or neither */
    if (status == MIST_OK && sweep->best && output)
        status = mist_plan_save(sweep->best, output, at->options.common.force, err);
    if (status == MIST_OK)
        status = mist_tune_sweep_print(sweep, at->kind, at->stream, err);
    if (status == MIST_OK && at->was_stopped)
        say_interrupted(at);
    return status == MIST_OK ? mist_tune_sweep_judge(sweep, err) : status;
}

/* --ablate */
static enum mist_status ablate(struct tuning *at, const struct mist_search_config *search,
                               struct mist_err *err)
{
    struct mist_ablation ablation;
    struct mist_emit *emit = NULL;
    enum mist_status status = mist_ablate(
        &at->session.config, search, &at->session.traces,
        (enum mist_framework_name)at->options.target, &at->messages, &ablation, err);

    bool has_none = status == MIST_ERR_NO_PLAN;

    mist_progress_fini(search->progress);
    at->was_stopped = atomic_load(mist_interrupt_flag()) != 0;
    if (status == MIST_OK || has_none)
        status = mist_emit_begin(&emit, at->kind, at->stream, err);
    if (status == MIST_OK) {
        mist_ablation_emit(emit, at->kind, &ablation);
        status = mist_emit_end(&emit, err);
    }
    return status == MIST_OK && has_none ? MIST_ERR_NO_PLAN : status;
}

/* Verifies, explains, writes and prints the plans of a search. */
static enum mist_status finish(struct tuning *at, struct mist_validate_result *result,
                               size_t n_alike, double search_s, struct mist_err *err)
{
    const struct mist_tune_session *session = &at->session;
    const struct mist_tune_options *options = &at->options;
    struct mist_speed speed;
    struct mist_bill bill = {0};
    struct mist_tune_report report = {
        .traces = &session->traces,
        .what_if = &options->what_if,
        .result = result,
        .n_alike = n_alike,
        .verified = options->n_verified > 0 ? &at->verified : NULL,
        .runners_up = &at->runners_up,
        .config = &session->config,
        .n_top = (size_t)options->n_top,
        .speed = &speed,
        .lengths = options->lengths,
        .bill = options->prices.n > 0 ? &bill : NULL,
        .search_s = search_s,
        .with_glpk = options->solver != MIST_SOLVER_EXACT,
        .has_constraints = session->constraints.n > 0,
        .kind = at->kind,
        .has_all = options->common.is_verbose,
        .explains = options->explains,
    };
    enum mist_status status = MIST_OK;

    if (options->n_verified > 0 && !result->was_stopped)
        status = verify(at, result, err);
    if (status == MIST_OK)
        status =
            mist_tune_session_bill(session, result->plans[0].plan, &speed, &bill, err);
    if (status == MIST_OK)
        status = mist_bill_check(&bill, options->budget, err);
    if (status == MIST_OK && !result->was_stopped && !at->verified.was_stopped)
        status = mist_runners_up_explain(&session->config, result, &at->runners_up, err);
    mist_interrupt_hold(); /* all files, or none */
    if (status == MIST_OK)
        status = mist_tune_files_save(session, result, &at->rows, err);
    if (status == MIST_OK)
        status = mist_tune_report_print(&report, at->stream, err);
    at->was_stopped = result->was_stopped || at->verified.was_stopped;
    if (status == MIST_OK && at->was_stopped)
        say_interrupted(at);
    return status;
}

static enum mist_status tune(struct tuning *at, struct mist_err *err)
{
    const struct mist_tune_options *options = &at->options;
    struct mist_validate_result result;
    struct mist_progress progress;
    struct mist_search_config search = mist_tune_session_config(
        &at->session, &progress, options->log ? &at->rows : NULL);
    double time_start_s = mist_clock_now_s();
    size_t n_alike = 0;
    enum mist_status status =
        options->log ? mist_search_rows_open(&at->rows, options->log, err) : MIST_OK;

    if (status != MIST_OK)
        return status;
    mist_progress_init(&progress, (enum mist_progress_mode)options->common.progress,
                       options->common.no_color, at->messages.stream, "searching");
    if (options->ablates)
        return ablate(at, &search, err);
    status = mist_tune_session_search(&at->session, &search, &result, &n_alike, err);
    mist_progress_fini(&progress);
    at->was_stopped = atomic_load(mist_interrupt_flag()) != 0;
    if (status == MIST_ERR_NO_PLAN && at->was_stopped)
        return mist_err_set(err, status,
                            "interrupted before a plan was found; nothing was saved");
    if (status != MIST_OK)
        return status;
    status = finish(at, &result, n_alike, mist_clock_now_s() - time_start_s, err);
    mist_validate_result_fini(&result);
    return status;
}

static enum mist_status sample(struct tuning *at, struct mist_err *err)
{
    const struct mist_tune_options *options = &at->options;
    size_t n_wanted = (size_t)options->n_samples, n = 0;
    struct mist_validated *plans = calloc(n_wanted, sizeof *plans);

    if (!plans)
        return mist_err_memory(err, NULL);
    enum mist_status status = mist_sample_plans(
        &at->session.config, (uint64_t)options->common.seed, n_wanted, plans, &n, err);
    if (status == MIST_OK && n == 0)
        status = mist_err_set(err, MIST_ERR_NO_PLAN, "no plan that was drawn fits");
    if (status == MIST_OK)
        status =
            mist_plans_folder_save(options->plans, options->common.force, plans, n, err);
    if (status == MIST_OK && n < n_wanted)
        mist_message(&at->messages, "%zu of %zu plans were found", n, n_wanted);
    if (status == MIST_OK)
        status = mist_tune_report_print_sample(plans, n, at->kind, at->stream, err);
    for (size_t i = 0; i < n; i++)
        free(plans[i].plan);
    free(plans);
    return status;
}

/* ------------------------------------------------------------------------------ main */

/* --retune */
static enum mist_status take_plan(struct tuning *at, const struct mist_positionals *given,
                                  struct mist_err *err)
{
    if (!at->options.retune)
        return MIST_OK;
    enum mist_status status = mist_plan_load(at->options.retune, &at->retuned, err);
    return status == MIST_OK
               ? mist_tune_options_take_plan(&at->options, given, &at->retuned, err)
               : status;
}

static enum mist_status run(struct tuning *at, const struct mist_positionals *given,
                            struct mist_err *err)
{
    const struct mist_tune_options *options = &at->options;
    struct mist_tune_session *session = &at->session;

    enum mist_status status = take_plan(at, given, err);

    if (status == MIST_OK && options->sweep.n > 0)
        return sweep(at, given, err);
    if (status == MIST_OK)
        status = mist_tune_options_check(options, err);
    if (status == MIST_OK)
        status = mist_tune_files_check(options, err);
    if (status == MIST_OK)
        status = mist_tune_session_open(session, options, &at->messages, err);
    if (status == MIST_OK)
        status = check_verify(at, err);
    if (status == MIST_OK)
        status = mist_tune_session_check(session, err);
    if (status == MIST_OK && options->common.is_dry_run &&
        options->target != MIST_FRAMEWORK_OURS) {
        mist_message(&at->messages,
                     "the job can be tuned for %s; how many plans that "
                     "has is known once all were looked at",
                     mist_framework_words[options->target]);
        return MIST_OK;
    }
    if (status == MIST_OK && options->common.is_dry_run)
        return mist_tune_report_print_space(&session->space, session->config.limit_bytes,
                                            at->kind, at->stream, err);
    if (status == MIST_OK)
        status = mist_tune_session_price(session, err);
    if (status != MIST_OK)
        return status;
    if (options->n_samples > 0)
        return sample(at, err);
    mist_interrupt_catch();
    return tune(at, err);
}

int main(int argc, char **argv)
{
    static struct tuning at;
    struct mist_positionals positionals;
    struct mist_err err = {0};
    bool is_done = false;

    mist_interrupt_settle();
    enum mist_status status = mist_options_parse(&mist_tune_tool, argc, argv, &at.options,
                                                 &positionals, stdout, &is_done, &err);
    if (status == MIST_OK && is_done)
        return 0;
    at.messages =
        mist_messages_to_stderr(mist_tune_tool.name, at.options.common.is_quiet);
    at.kind = mist_emit_kind_of(at.options.common.as_json, at.options.common.as_csv);
    at.stream = mist_emit_stream(at.kind, at.options.common.is_quiet);
    if (status == MIST_OK)
        status = run(&at, &positionals, &err);
    if (status != MIST_OK)
        mist_err_print(&err, mist_tune_tool.name, stderr);
    (void)mist_search_rows_close(&at.rows, NULL); /* of a search that failed */
    mist_runners_up_fini(&at.runners_up);
    mist_tune_session_close(&at.session);
    mist_tune_sweep_fini(&at.sweep);
    if (at.was_stopped && (status == MIST_OK || status == MIST_ERR_NO_PLAN))
        return 128 + atomic_load(mist_interrupt_flag());
    return mist_exit_code(status);
}
