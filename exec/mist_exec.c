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
 *     training    steps 1 to 30, 0.62 epochs of 198 k tokens, gradients clipped to norm 1
 *         step       loss  grad norm         lr   tokens/s    ms/step     MFU
 *            1     5.5581      3.871      0.001       2760      742.1  41.2 %
 *            2     5.1209      2.415      0.001       2919      701.5  43.6 %
 *     ...
 *     iteration, measured (mean)     701 ms
 */
#include "core/clock.h"
#include "core/interrupt.h"
#include "exec/comm/affinity.h"
#include "exec/train/session.h"

/* All ranks. Before anything is read there: a job before this one may still be saving. */
static enum mist_status claim_folder(struct mist_session *at, struct mist_err *err)
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

/* Of probes between steps, of a step's time. */
static const double probe_frac = 0.2;

static void fill_job(struct mist_session *at)
{
    const struct mist_exec_options *options = &at->options;
    struct mist_train_job *job = &at->job; /* progress and validation are known */
    int64_t n = options->settings.n_iterations - job->progress.n_steps;

    job->plan = &at->plan;
    job->data = at->data;
    job->settings = options->settings;
    job->checkpoint = at->checkpoint;
    job->import = at->import;
    job->save_every = options->save_every;
    job->saving = (struct mist_train_saving){options->checkpoint, (int32_t)options->keep,
                                             at->claim.run_id, at->claim.lock};
    job->messages = &at->messages;
    job->export_folder = options->export;
    job->config.stop_signal = mist_interrupt_flag();
    job->export_dtype = (enum mist_dtype)options->export_dtype;
    job->force = options->common.force;
    job->times_operators = options->prints_kernels || options->kernels_csv;
    if ((options->timeline || job->times_operators) && n > 0)
        job->config.n_timed_iterations =
            (int32_t)(options->n_timed < n ? options->n_timed : n);
    job->config.n_threads = (int32_t)options->n_threads;
    job->deadline_s = options->deadline_s;
    job->probe_frac = options->probes ? probe_frac : 0;
    job->config.is_serial = options->is_serial;
    job->config.delay_seed = (uint64_t)options->delay_seed;
    job->config.skips_nonfinite = options->on_nan == 1;
    job->allows_atomics = options->allows_atomics;
    job->attention = (enum mist_attention_choice)options->attention;
    job->config.graphs = (enum mist_graphs_choice)options->graphs;
}

/* Rank 0's log; the other ranks have none. */
static enum mist_status open_log(struct mist_session *at, struct mist_err *err)
{
    at->logger = (struct mist_train_logger){
        .job = &at->job,
        .stream = at->messages.stream,
        .log_every = at->options.log_every,
        .path = at->options.log,
        .board_folder = at->options.tensorboard,
        .goes_on = mist_session_goes_on(at),
        .force = at->options.common.force,
        .peak = mist_train_find_peak(&at->plan, at->plan_path, &at->messages),
    };
    struct mist_model_count count = {0};
    enum mist_status status =
        mist_model_count(&at->plan.model, at->plan.job.seq_len, &count, err);
    at->logger.flop_per_token = count.flop_per_token;
    return status == MIST_OK ? mist_train_log_init(&at->logger, err) : status;
}

/* Before threads are made that inherit it. */
static enum mist_status settle(struct mist_session *at, struct mist_err *err)
{
    struct mist_affinity affinity;
    char note[512];
    enum mist_status status =
        mist_affinity_settle(at->comm, at->job.config.n_threads, at->options.bind == 1,
                             &affinity, note, sizeof note, err);

    if (status != MIST_OK)
        return status;
    at->job.config.n_processors = affinity.n_processors;
    if (note[0])
        mist_message(&at->messages, "%s", note);
    return MIST_OK;
}

/* All ranks; which device this one computes on. */
static enum mist_status find_place(struct mist_session *at, struct mist_err *err)
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

/* A run that was ended early, also a quiet one: how to go on. */
static void say_stopped(const struct mist_session *at,
                        const struct mist_train_report *report)
{
    struct mist_messages to = mist_messages_to_stderr(mist_exec_tool.name, false);
    const char *folder = at->options.checkpoint;

    mist_message(
        &to, "%s: stopped after step %lld of %lld%s; %s%s%s",
        report->stop_signal ? mist_interrupt_name(report->stop_signal) : "the log failed",
        (long long)report->stopped_after, (long long)at->job.settings.n_iterations,
        report->skips_validation ? ", without its validation" : "",
        folder ? "it is saved in " : "nothing is saved without --checkpoint DIR",
        folder ? folder : "", folder ? ", --resume auto goes on" : "");
}

static enum mist_status train(struct mist_session *at, struct mist_err *err)
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
    if (report.stopped_after > 0) {
        /* of a log that failed its own message says all, if nothing is saved */
        if (mist_session_is_first(at) && (at->stop_signal || at->options.checkpoint))
            say_stopped(at, &report);
    } else if (status == MIST_OK && mist_session_is_first(at)) {
        status = mist_session_save_results(at, &report, err);
    }
    mist_train_report_fini(&report);
    return status;
}

/* Rank 0 alone looks and prints. */
static enum mist_status verify(void *context, struct mist_err *err)
{
    const struct mist_session *at = context;

    if (!mist_session_is_first(at))
        return MIST_OK;
    return mist_checkpoint_check_folder(at->options.verify, at->options.common.as_json,
                                        stdout, err);
}

/* parsed: of the command line, which is wrong for all ranks alike. */
static enum mist_status run(struct mist_session *at, enum mist_status parsed,
                            struct mist_err *err)
{
    struct mist_err unread;
    enum mist_status status =
        mist_comm_open(&at->comm, parsed == MIST_OK ? err : &unread);

    if (status != MIST_OK)
        return parsed == MIST_OK ? status : parsed;
    at->messages = mist_messages_to_stderr(
        mist_exec_tool.name, at->options.common.is_quiet || !mist_session_is_first(at));
    if (parsed == MIST_OK && at->options.verify)
        return mist_comm_work_together(at->comm, verify, at, err);
    status = parsed == MIST_OK ? mist_session_prepare(at, err) : parsed;
    if (status == MIST_OK && mist_session_is_first(at))
        status = mist_session_check_apart(at, err);
    status = mist_comm_agree(at->comm, status, err);
    if (status == MIST_OK)
        status = mist_session_agree_on_start(at, err);
    if (status != MIST_OK)
        return status;
    status = claim_folder(at, err);
    if (status == MIST_OK)
        status = mist_session_open_start(at, err);
    if (status == MIST_OK)
        fill_job(at);
    if (status == MIST_OK && mist_session_is_first(at))
        status = open_log(at, err);
    if (status == MIST_OK && mist_session_is_first(at))
        status = mist_session_check_outputs(at, err);
    status = mist_comm_agree(at->comm, status, err);
    if (status == MIST_OK)
        status = mist_session_agree_on_run(at, err);
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
    static struct mist_session at;
    struct mist_positionals positionals;
    struct mist_err err = {0};
    bool is_done = false;
    at.job.begun_s = mist_clock_now_s();
    mist_interrupt_settle();
    enum mist_status status =
        mist_exec_options_parse(argc, argv, &at.options, &positionals, &is_done, &err);

    if (status == MIST_OK && is_done)
        return 0;
    if (status == MIST_OK && !at.options.verify) {
        at.plan_path = positionals.items[0];
        mist_interrupt_catch();
        mist_interrupt_catch_pipe();
    }
    status = run(&at, status, &err);
    int code = at.stop_signal ? 128 + at.stop_signal : mist_exit_code(status);
    if (status != MIST_OK) {
        /* What all ranks know only one says, and all leave instead of being killed. */
        int32_t first = at.comm ? mist_comm_agreed_rank(at.comm) : -1;
        if (first < 0 || first == mist_comm_rank(at.comm))
            mist_err_print(&err, mist_exec_tool.name, stderr);
        mist_train_release(&at.claim);
        if (at.comm && mist_comm_n_ranks(at.comm) > 1 && first < 0)
            mist_comm_abort(at.comm, code);
    }
    mist_train_log_fini(&at.logger);
    mist_train_release(&at.claim);
    mist_checkpoint_close(at.checkpoint);
    mist_hf_close(at.import);
    mist_data_close(at.data);
    mist_comm_close(at.comm);
    return code;
}
