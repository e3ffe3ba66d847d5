/* The result of a run. See train_log.h. */
#include "exec/train/train_log.h"

#include "core/emit.h"
#include "core/hash.h"

#include <math.h>

static void emit_validation(struct mist_emit *emit, const struct mist_train_job *job,
                            double loss)
{
    if (isnan(loss))
        return;
    mist_emit_double(emit, "validation_loss_last", "validation loss, last", loss,
                     MIST_HUMAN_NUMBER);
    mist_emit_int64(emit, "validation_samples", "samples of the validation",
                    job->n_validation_samples, MIST_HUMAN_NUMBER);
}

static void emit_steps(struct mist_emit *emit, const struct mist_train_report *report,
                       const struct mist_train_job *job)
{
    const struct mist_train_step *first = &report->first;
    const struct mist_train_step *last =
        mist_train_report_step(report, report->n_kept - 1);

    mist_emit_int64(emit, "first_step", "first step", first->step, MIST_HUMAN_NUMBER);
    mist_emit_int64(emit, "iterations", "iterations", report->n_iterations,
                    MIST_HUMAN_NUMBER);
    mist_emit_int64(emit, "skipped_steps", "skipped steps", report->n_skipped,
                    MIST_HUMAN_NUMBER);
    mist_emit_double(emit, "loss_first", "loss, first", first->loss, MIST_HUMAN_NUMBER);
    mist_emit_double(emit, "loss_last", "loss, last", last->loss, MIST_HUMAN_NUMBER);
    emit_validation(emit, job, last->validation_loss);
}

/* What probes between the steps say of the machine, and of the prediction at its level. */
static void emit_level(struct mist_emit *emit, const struct mist_train_report *report,
                       const struct mist_prediction *predicted)
{
    struct mist_probe_verdict verdict = mist_probe_judge(
        report->steady_s, report->level.time_s, report->probe_predicted_s, predicted);

    mist_emit_double(emit, "probe_s", "a probe, between steps", report->level.time_s,
                     MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "level_spread_frac", "nine in ten / one in ten of them - 1",
                     report->level.spread_frac, MIST_HUMAN_FRAC);
    if (verdict.level <= 0)
        return;
    mist_emit_double(emit, "level", "level, 1: as when profiled", verdict.level,
                     MIST_HUMAN_NUMBER);
    if (predicted->iteration_s <= 0)
        return;
    mist_emit_double(emit, "predicted_at_level_s", "iteration, predicted at that level",
                     verdict.predicted_s, MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "prediction_error_at_level_frac", "that / measured - 1",
                     verdict.prediction_error_frac, MIST_HUMAN_FRAC);
}

static void emit_speed(struct mist_emit *emit, const struct mist_train_report *report,
                       const struct mist_train_job *job,
                       const struct mist_train_logger *logger)
{
    const struct mist_prediction *predicted = &job->plan->predicted;

    mist_emit_double(emit, "start_s", "from start-up to the first step", report->start_s,
                     MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "iteration_s", "iteration, measured (mean)", report->steady_s,
                     MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "tokens_per_s", "tokens/s",
                     mist_train_log_tokens_per_s(logger, report->steady_s),
                     MIST_HUMAN_NUMBER);
    mist_emit_double(emit, "flop_per_token", "model FLOP per token",
                     logger->flop_per_token, MIST_HUMAN_COUNT);
    if (logger->peak.flop_per_s > 0)
        mist_emit_double(emit, "mfu_frac", "model FLOP utilisation",
                         mist_train_log_mfu(logger, report->steady_s), MIST_HUMAN_FRAC);
    if (predicted->iteration_s > 0) {
        mist_emit_double(emit, "predicted_iteration_s", "iteration, predicted",
                         predicted->iteration_s, MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "predicted_error_s", "its error bar, +-",
                         predicted->error_s, MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "prediction_error_frac", "predicted / measured - 1",
                         predicted->iteration_s / report->steady_s - 1, MIST_HUMAN_FRAC);
    }
    if (report->level.time_s > 0)
        emit_level(emit, report, predicted);
}

/* What every kept step was, for machines only. */
static void emit_lists(struct mist_emit *emit, const struct mist_train_report *report)
{
    if (report->n_kept < report->n_iterations)
        mist_emit_int64(emit, "lists_first_step", NULL,
                        mist_train_report_step(report, 0)->step, MIST_HUMAN_NUMBER);
    mist_emit_list_begin(emit, "losses", NULL);
    for (int32_t i = 0; i < report->n_kept; i++)
        mist_emit_double(emit, NULL, NULL, mist_train_report_step(report, i)->loss,
                         MIST_HUMAN_NUMBER);
    mist_emit_list_end(emit);
    mist_emit_list_begin(emit, "gradient_norms", NULL);
    for (int32_t i = 0; i < report->n_kept; i++)
        mist_emit_double(emit, NULL, NULL,
                         mist_train_report_step(report, i)->gradient_norm,
                         MIST_HUMAN_NUMBER);
    mist_emit_list_end(emit);
    mist_emit_list_begin(emit, "validations", NULL);
    for (int32_t i = 0; i < report->n_kept; i++) {
        const struct mist_train_step *step = mist_train_report_step(report, i);
        if (isnan(step->validation_loss))
            continue;
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_int64(emit, "step", NULL, step->step, MIST_HUMAN_NUMBER);
        mist_emit_double(emit, "loss", NULL, step->validation_loss, MIST_HUMAN_NUMBER);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

static void emit_paths(struct mist_emit *emit, const struct mist_paths *paths)
{
    mist_emit_object_begin(emit, "paths", NULL);
    mist_emit_text(emit, "attention", NULL, paths->attention);
    mist_emit_text(emit, "products", NULL, paths->products);
    mist_emit_text(emit, "collectives", NULL, paths->collectives);
    mist_emit_int64(emit, "product_fallbacks", NULL, paths->n_fallbacks,
                    MIST_HUMAN_NUMBER);
    if (paths->graphs[0])
        mist_emit_text(emit, "graphs", NULL, paths->graphs);
    mist_emit_object_end(emit);
}

static void emit_ranks(struct mist_emit *emit, const struct mist_train_report *report)
{
    mist_emit_list_begin(emit, "ranks", "Memory by rank");
    for (int32_t i = 0; i < report->n_ranks; i++) {
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_int64(emit, "rank", "rank", i, MIST_HUMAN_NUMBER);
        mist_emit_int64(emit, "planned_bytes", "arena planned",
                        report->memory[i].planned_bytes, MIST_HUMAN_BYTES);
        mist_emit_int64(emit, "allocated_bytes", "arena allocated",
                        report->memory[i].allocated_bytes, MIST_HUMAN_BYTES);
        mist_emit_int64(emit, "resident_bytes", "process",
                        report->memory[i].resident_bytes, MIST_HUMAN_BYTES);
        if (report->memory[i].used_bytes >= 0)
            mist_emit_int64(emit, "device_used_bytes", "device in use",
                            report->memory[i].used_bytes, MIST_HUMAN_BYTES);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

enum mist_status mist_train_report_print(const struct mist_train_report *report,
                                         const struct mist_train_job *job,
                                         const struct mist_train_logger *logger,
                                         const struct mist_op_peak *ops_peak,
                                         bool as_json, FILE *stream, struct mist_err *err)
{
    enum mist_emit_kind kind = as_json ? MIST_EMIT_JSON : MIST_EMIT_TABLE;
    struct mist_hash hash = {report->parameters_fingerprint};
    char text[MIST_HASH_TEXT_BYTES];
    struct mist_emit *emit;
    enum mist_status status = mist_emit_begin(&emit, kind, stream, err);

    if (status != MIST_OK)
        return status;
    if (report->n_iterations > 0) {
        emit_steps(emit, report, job);
        emit_speed(emit, report, job, logger);
    } else {
        mist_emit_int64(emit, "steps_done", "steps done before", job->progress.n_steps,
                        MIST_HUMAN_NUMBER);
        mist_emit_int64(emit, "iterations", "iterations", 0, MIST_HUMAN_NUMBER);
        emit_validation(emit, job, report->validation_loss);
    }
    mist_emit_text(emit, "parameters_fingerprint", "fingerprint of the parameters",
                   mist_hash_format(&hash, text));
    if (as_json) {
        emit_lists(emit, report);
        emit_paths(emit, &report->paths);
    }
    emit_ranks(emit, report);
    if (ops_peak) {
        char title[96];
        snprintf(title, sizeof title, "Operators and their kernels in the last %d steps",
                 (int)job->config.n_timed_iterations);
        status = mist_op_table_emit(&report->ops, ops_peak, title, emit, kind, err);
    }
    if (status == MIST_OK)
        return mist_emit_end(&emit, err);
    mist_emit_free(emit);
    return status;
}
