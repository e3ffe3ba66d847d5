/*
 * mist-exec: trains what a plan says, on the devices of this machine.
 *
 *     $ mpirun -n 2 mist-exec plan.json --iterations 30
 *     iteration       loss   ms/iter   tokens/s
 *             0     5.5581     742.1       2760
 *             1     5.1209     701.5       2919
 *     ...
 *     iteration (median)   predicted 689 ms +- 12 ms, measured 701 ms (-1.7 %)
 */
#include "core/csv.h"
#include "core/emit.h"
#include "core/hash.h"
#include "core/options.h"
#include "core/parse.h"
#include "exec/train.h"
#include "sim/replay.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct mist_common_options common;
    struct mist_option_list data;
    int64_t n_iterations, n_timed, n_threads;
    double lr, beta1, beta2, epsilon, weight_decay, deadline_s;
    bool is_serial;
    const char *timeline, *log_csv;
};

#define ROW(...) MIST_OPTION_ROW(struct options, __VA_ARGS__)

static const struct mist_option option_table[] = {
    ROW("data", MIST_OPTION_LIST, "Training", "FILE",
        "text to train on, as bytes; repeatable; default: this system's licence texts",
        NULL, 0, 0, data),
    ROW("iterations", MIST_OPTION_INT64, "Training", "N", "optimizer steps", "30", 1, 1e9,
        n_iterations),
    ROW("lr", MIST_OPTION_DOUBLE, "Training", "RATE", "learning rate", "0.001", 0, 1e3,
        lr),
    ROW("beta1", MIST_OPTION_DOUBLE, "Training", "B", "AdamW: decay of the first moment",
        "0.9", 0, 0.9999999, beta1),
    ROW("beta2", MIST_OPTION_DOUBLE, "Training", "B", "AdamW: decay of the second moment",
        "0.95", 0, 0.9999999, beta2),
    ROW("epsilon", MIST_OPTION_DOUBLE, "Training", "E", "AdamW: added to the denominator",
        "1e-8", 0, 1, epsilon),
    ROW("weight-decay", MIST_OPTION_DOUBLE, "Training", "W", "AdamW: decay of matrices",
        "0.1", 0, 1e3, weight_decay),
    ROW("threads", MIST_OPTION_INT64, "Execution", "N",
        "compute threads of each rank; 0: what the plan says, else 1", "0", 0, 1024,
        n_threads),
    ROW("serial", MIST_OPTION_FLAG, "Execution", NULL,
        "one task at a time on each rank; same losses, bit for bit", NULL, 0, 0,
        is_serial),
    ROW("deadline", MIST_OPTION_TIME_S, "Execution", "TIME",
        "how long a rank waits for another before the job ends", "120s", 0.001, 1e6,
        deadline_s),
    ROW("timeline", MIST_OPTION_STRING, "Results", "FILE",
        "write the measured tasks of the last iterations as CSV", NULL, 0, 0, timeline),
    ROW("timed-iterations", MIST_OPTION_INT64, "Results", "N",
        "iterations in the timeline", "3", 1, 1000, n_timed),
    ROW("log-csv", MIST_OPTION_STRING, "Results", "FILE",
        "write iteration, loss and time as CSV", NULL, 0, 0, log_csv),
    MIST_OPTION_ROW_DRY_RUN(struct options),
    MIST_OPTION_ROW_FORCE(struct options),
    MIST_OPTION_ROW_JSON(struct options),
    MIST_OPTION_ROW_QUIET(struct options),
    MIST_OPTION_ROW_SEED(struct options),
};

static const char *const examples[] = {
    "mist-exec plan.json", "mpirun -n 2 mist-exec plan.json --iterations 100",
    "mpirun -n 2 mist-exec plan.json --data book.txt --timeline measured.csv", NULL};

static const struct mist_tool tool = {
    .name = "mist-exec",
    .purpose = "trains what a plan says, one process per device",
    .examples = examples,
    .options = option_table,
    .n_options = sizeof option_table / sizeof *option_table,
    .positional_name = "PLAN",
    .positional_help = "plan.json from mist-tune",
    .positional_min = 1,
    .positional_max = 1,
};

struct session {
    struct options options;
    struct mist_plan plan;
    struct mist_catalog *catalog;
    struct mist_comm *comm;
    struct mist_data *data;
    const char *plan_path;
    bool has_agreed; /* that the job ends: no rank waits for another */
    bool is_silent;  /* another rank reports what went wrong */
};

/* ---------------------------------------------------------------------------- checks */

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

static enum mist_status open_data(struct session *at, struct mist_err *err)
{
    const struct mist_option_list *list = &at->options.data;
    char **paths = NULL;
    int32_t n = 0;
    enum mist_status status;

    if (list->n > 0) {
        status = mist_data_open(list->items, list->n, &at->data, err);
    } else {
        status = mist_data_default_paths(&paths, &n, err);
        if (status == MIST_OK)
            status = mist_data_open((const char *const *)paths, n, &at->data, err);
        mist_data_free_paths(paths, n);
    }
    if (status == MIST_OK)
        status =
            mist_data_check(at->data, at->plan.model.vocab, at->plan.job.seq_len, err);
    if (status == MIST_ERR_INPUT)
        mist_err_locate(err, at->plan_path, 0); /* what is wrong with no text */
    return status;
}

/* Everything that can be refused is refused here, before anything is allocated. */
static enum mist_status prepare(struct session *at, struct mist_err *err)
{
    enum mist_status status = mist_schedule_load_plan(at->plan_path, &at->plan, err);

    if (status == MIST_OK && at->options.n_threads == 0)
        at->options.n_threads = mist_plan_n_threads(&at->plan);
    if (status == MIST_OK)
        status = mist_catalog_new(&at->plan.model, &at->catalog, err);
    if (status == MIST_OK)
        status = check_ranks(at, err);
    if (status == MIST_OK)
        status = open_data(at, err);
    if (status == MIST_OK)
        status = mist_replay_check(at->catalog, &at->plan, (int32_t)at->options.n_threads,
                                   err);
    return status;
}

/* ---------------------------------------------------------------------------- output */

static void log_step(void *context, const struct mist_train_step *step)
{
    const struct session *at = context;
    const struct mist_job *job = &at->plan.job;
    double tokens = (double)job->global_batch * (double)job->seq_len;

    if (at->options.common.is_quiet)
        return;
    if (step->i_iteration == 0)
        fprintf(stderr, "iteration       loss   ms/iter   tokens/s\n");
    fprintf(stderr, "%9d %10.4f %9.1f %10.0f\n", (int)step->i_iteration, step->loss,
            step->elapsed_s * 1e3, tokens / step->elapsed_s);
}

static enum mist_status write_log(const char *path, bool force,
                                  const struct mist_train_report *report,
                                  struct mist_err *err)
{
    static const char *const names[] = {"iteration", "loss", "iteration_s"};
    struct mist_csv_writer writer;
    enum mist_status status = mist_csv_writer_open(&writer, path, force, names, 3, err);

    if (status != MIST_OK)
        return status;
    for (int32_t i = 0; i < report->n_iterations; i++) {
        mist_csv_add_int64(&writer, i);
        mist_csv_add_double(&writer, report->losses[i]);
        mist_csv_add_double(&writer, report->iteration_s[i]);
        mist_csv_end_row(&writer);
    }
    return mist_csv_writer_commit(&writer, err);
}

static void emit_ranks(struct mist_emit *emit, const struct mist_train_report *report)
{
    mist_emit_list_begin(emit, "ranks", "Memory by rank");
    for (int32_t i = 0; i < report->n_ranks; i++) {
        mist_emit_object_begin(emit, NULL, NULL);
        mist_emit_int64(emit, "rank", "rank", i, MIST_HUMAN_NUMBER);
        mist_emit_int64(emit, "planned_bytes", "arena planned", report->planned_bytes[i],
                        MIST_HUMAN_BYTES);
        mist_emit_int64(emit, "allocated_bytes", "arena allocated",
                        report->allocated_bytes[i], MIST_HUMAN_BYTES);
        mist_emit_int64(emit, "resident_bytes", "process", report->resident_bytes[i],
                        MIST_HUMAN_BYTES);
        mist_emit_object_end(emit);
    }
    mist_emit_list_end(emit);
}

static void emit_losses(struct mist_emit *emit, const struct mist_train_report *report)
{
    mist_emit_list_begin(emit, "losses", NULL);
    for (int32_t i = 0; i < report->n_iterations; i++)
        mist_emit_double(emit, NULL, NULL, report->losses[i], MIST_HUMAN_NUMBER);
    mist_emit_list_end(emit);
}

static enum mist_status print_report(const struct session *at,
                                     const struct mist_train_report *report,
                                     struct mist_err *err)
{
    const struct mist_prediction *predicted = &at->plan.predicted;
    struct mist_hash hash = {report->parameters_fingerprint};
    char text[MIST_HASH_TEXT_BYTES];
    struct mist_emit *emit;
    bool as_json = at->options.common.as_json;
    enum mist_status status =
        mist_emit_begin(&emit, as_json ? MIST_EMIT_JSON : MIST_EMIT_TABLE, stdout, err);

    if (status != MIST_OK)
        return status;
    mist_emit_int64(emit, "iterations", "iterations", report->n_iterations,
                    MIST_HUMAN_NUMBER);
    mist_emit_double(emit, "loss_first", "loss, first", report->losses[0],
                     MIST_HUMAN_NUMBER);
    mist_emit_double(emit, "loss_last", "loss, last",
                     report->losses[report->n_iterations - 1], MIST_HUMAN_NUMBER);
    mist_emit_double(emit, "iteration_s", "iteration, measured (median)",
                     report->steady_s, MIST_HUMAN_TIME_S);
    if (predicted->iteration_s > 0) {
        mist_emit_double(emit, "predicted_iteration_s", "iteration, predicted",
                         predicted->iteration_s, MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "predicted_error_s", "its error bar, +-",
                         predicted->error_s, MIST_HUMAN_TIME_S);
        mist_emit_double(emit, "prediction_error_frac", "predicted / measured - 1",
                         predicted->iteration_s / report->steady_s - 1, MIST_HUMAN_FRAC);
    }
    mist_emit_text(emit, "parameters_fingerprint", "fingerprint of the parameters",
                   mist_hash_format(&hash, text));
    if (as_json)
        emit_losses(emit, report);
    emit_ranks(emit, report);
    return mist_emit_end(&emit, err);
}

static enum mist_status write_results(const struct session *at,
                                      const struct mist_train_report *report,
                                      struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    bool force = at->options.common.force;

    if (mist_comm_rank(at->comm) != 0)
        return MIST_OK;
    if (at->options.timeline)
        status = mist_timeline_save(&report->timeline, at->options.timeline, force, err);
    if (status == MIST_OK && at->options.log_csv)
        status = write_log(at->options.log_csv, force, report, err);
    if (status == MIST_OK)
        status = print_report(at, report, err);
    return status;
}

/* ------------------------------------------------------------------------------ main */

static enum mist_status train(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    struct mist_train_report report;
    struct mist_train_job job = {
        .plan = &at->plan,
        .catalog = at->catalog,
        .data = at->data,
        .adamw = {.lr = (float)options->lr,
                  .beta1 = (float)options->beta1,
                  .beta2 = (float)options->beta2,
                  .epsilon = (float)options->epsilon,
                  .weight_decay = (float)options->weight_decay},
        .seed = (uint64_t)options->common.seed,
        .n_iterations = (int32_t)options->n_iterations,
        .n_timed_iterations = options->timeline ? (int32_t)options->n_timed : 0,
        .n_threads = (int32_t)options->n_threads,
        .is_serial = options->is_serial,
    };

    if (job.n_timed_iterations > job.n_iterations)
        job.n_timed_iterations = job.n_iterations;
    mist_comm_set_deadline(at->comm, options->deadline_s);
    enum mist_status status = mist_train_run(at->comm, &job, log_step, at, &report, err);
    if (status == MIST_OK)
        status = write_results(at, &report, err);
    mist_train_report_fini(&report);
    return status;
}

/* A file that could not be written at the end is refused at the beginning. */
static enum mist_status check_outputs(const struct options *options, struct mist_err *err)
{
    const char *paths[] = {options->timeline, options->log_csv};

    if (paths[0] && paths[1] && strcmp(paths[0], paths[1]) == 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--timeline and --log-csv are both %.200s", paths[0]);
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct mist_atomic_file file;
        if (!paths[i])
            continue;
        enum mist_status status =
            mist_atomic_file_open(&file, paths[i], options->common.force, err);
        if (status != MIST_OK)
            return status;
        mist_atomic_file_abort(&file);
    }
    return MIST_OK;
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

static enum mist_status run(struct session *at, struct mist_err *err)
{
    enum mist_status status = mist_comm_open(&at->comm, err);

    if (status != MIST_OK)
        return status;
    status = prepare(at, err);
    if (status == MIST_OK && mist_comm_rank(at->comm) == 0)
        status = check_outputs(&at->options, err);
    status = agree(at, status, err);
    if (status == MIST_OK && at->options.common.is_dry_run) {
        if (mist_comm_rank(at->comm) == 0)
            fprintf(stderr, "mist-exec: %s can be run\n", at->plan_path);
        return MIST_OK;
    }
    return status == MIST_OK ? train(at, err) : status;
}

int main(int argc, char **argv)
{
    static struct session at;
    struct mist_positionals positionals;
    struct mist_err err = {0};
    bool is_done = false;
    enum mist_status status = mist_options_parse(&tool, argc, argv, &at.options,
                                                 &positionals, stdout, &is_done, &err);

    if (status == MIST_OK && is_done)
        return 0;
    if (status == MIST_OK) {
        at.plan_path = positionals.items[0];
        status = run(&at, &err);
    }
    int code = mist_exit_code(status);
    if (status != MIST_OK) {
        if (!at.is_silent)
            mist_err_print(&err, tool.name, stderr);
        if (at.comm && mist_comm_n_ranks(at.comm) > 1 && !at.has_agreed)
            mist_comm_abort(at.comm, code);
    }
    mist_data_close(at.data);
    mist_catalog_free(at.catalog);
    mist_comm_close(at.comm);
    return code;
}
