/* A training run on every rank of a plan. See train.h. */
#include "exec/train/train.h"

#include "core/clock.h"
#include "exec/train/gather.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank of a run. */
struct run {
    struct mist_comm *comm;
    const struct mist_train_job *job;
    const struct mist_plan *plan;
    const struct mist_train_log *log;
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_collectives *collectives;
    struct mist_runtime *runtime;
    int32_t *tokens, *targets; /* [G, b, s / cp] of this rank */
    int32_t *whole;            /* [2, b, s] tokens and targets of a micro-batch */
    bool has_embedding, has_head;
    struct mist_train_progress progress;
    struct mist_adamw_args adamw;
    char last_warning[512];      /* about saving; the same is said once */
    int64_t n_skipped_last;      /* steps skipped since one was not */
    bool stops;                  /* a signal came: this step was the last */
    bool skips_validation;       /* the one due after it, or some of it */
    enum mist_status log_status; /* rank 0: of the log, which gets no more steps */
    struct mist_err log_err;
    double *begin_s;          /* [n_kept] when a step began after a pause; 0: no pause */
    struct mist_probe *probe; /* NULL: none */
    struct mist_samples probes_us; /* since the iterations that do not count */
    double fastest_s; /* of the steps so far: behind a slow one are no more probes than
                         behind others, as it is one step, too; 0: none yet */
};

/* ------------------------------------------------------------------------------ parts */

static enum mist_status open_device(struct run *run, struct mist_err *err)
{
    struct mist_device_config device = {
        .arena_bytes = {run->schedule->arena_bytes[MIST_ARENA_DEVICE],
                        run->schedule->arena_bytes[MIST_ARENA_HOST]},
        .result_bytes = mist_runtime_result_bytes(run->schedule),
        .threads = run->job->config.n_threads,
        .streams_take_turns = mist_device_takes_turns(run->job->config.n_threads,
                                                      run->job->config.n_processors),
        .i_device = run->job->i_device,
        .records = run->job->config.n_timed_iterations > 0,
        .allows_atomics = run->job->allows_atomics,
        .attention = run->job->attention,
    };
    const struct mist_backend *backend = run->job->backend;
    enum mist_status status = backend->open_device(&device, &run->device, err);

    if (status != MIST_OK)
        return status;
    mist_comm_set_pause(run->comm, mist_device_pause, run->device);
    return mist_backend_open_collectives(backend, run->comm, run->device,
                                         run->job->has_own_device, run->job->deadline_s,
                                         &run->collectives, err);
}

static enum mist_status open_runtime(struct run *run, struct mist_train_report *report,
                                     struct mist_err *err)
{
    const struct mist_train_job *job = run->job;
    struct mist_train_config config = job->config;
    struct mist_runtime_parts parts = {run->device, run->comm, run->collectives,
                                       job->backend->operators};

    config.seed = (uint64_t)job->settings.seed;
    config.n_steps_before = job->progress.n_steps;
    config.n_spans = report->n_kept;
    config.ops = job->times_operators ? &report->ops : NULL;
    enum mist_status status = mist_runtime_new(run->plan, run->schedule, &parts, &config,
                                               report->n_iterations, &run->runtime, err);

    if (status == MIST_OK && job->import)
        status = mist_train_import(run->runtime, job->import, err);
    if (status == MIST_OK && job->checkpoint)
        status = mist_train_load(run->runtime, job->checkpoint, err);
    return status;
}

/* Where the device copies samples from: always the same memory. */
static enum mist_status
alloc_samples(struct run *run, const struct mist_stage_plan *stage, struct mist_err *err)
{
    int64_t bytes = (int64_t)run->plan->n_micro_batches * stage->micro_batch *
                    run->plan->job.seq_len * (int64_t)sizeof *run->tokens;
    void *memory = NULL;

    bytes /= mist_stage_cp(stage);
    run->whole = malloc((size_t)(2 * stage->micro_batch) *
                        (size_t)run->plan->job.seq_len * sizeof *run->whole);
    if (!run->whole)
        return mist_err_memory(err, NULL);
    enum mist_status status = mist_device_alloc_host(run->device, bytes, &memory, err);

    run->tokens = memory;
    if (status == MIST_OK)
        status = mist_device_alloc_host(run->device, bytes, &memory, err);
    if (status == MIST_OK)
        run->targets = memory;
    return status;
}

static enum mist_status open_rank(struct run *run, struct mist_train_report *report,
                                  struct mist_err *err)
{
    const struct mist_stage_plan *stage;
    enum mist_status status =
        mist_schedule_build(run->plan, mist_comm_rank(run->comm),
                            run->job->config.n_threads, &run->schedule, err);

    if (status != MIST_OK)
        return status;
    stage = &run->plan->stages[run->schedule->i_stage];
    run->has_embedding = run->schedule->i_stage == 0;
    run->has_head = run->schedule->i_stage == mist_plan_head_stage(run->plan);
    run->begin_s = calloc((size_t)report->n_kept + 1, sizeof *run->begin_s);
    if (!run->begin_s)
        return mist_err_memory(err, NULL);
    status = open_device(run, err);
    if (status == MIST_OK)
        status = alloc_samples(run, stage, err);
    return status == MIST_OK ? open_runtime(run, report, err) : status;
}

static void close_rank(struct run *run)
{
    mist_comm_set_pause(run->comm, NULL, NULL);
    mist_probe_close(run->probe);
    mist_runtime_free(run->runtime);
    mist_collectives_close(run->collectives);
    if (run->device) {
        mist_device_free_host(run->device, run->tokens);
        mist_device_free_host(run->device, run->targets);
    }
    mist_device_close(run->device);
    mist_schedule_free(run->schedule);
    mist_samples_fini(&run->probes_us);
    free(run->whole);
    free(run->begin_s);
}

/* --------------------------------------------------------------------------- samples */

enum source { SOURCE_TRAINING, SOURCE_VALIDATION };

/* This rank's tokens of b samples. */
static void take_chunks(const struct run *run, const int32_t *samples, int64_t b,
                        int32_t *out)
{
    const struct mist_chunks at = mist_schedule_chunks(run->plan, run->schedule);
    int64_t n = mist_chunks_n_tokens(&at), seq_len = run->plan->job.seq_len;

    for (int64_t i = 0; i < b; i++)
        for (int64_t k = 0; k < n; k += at.length)
            memcpy(out + i * n + k, samples + i * seq_len + mist_chunks_position(&at, k),
                   (size_t)at.length * sizeof *out);
}

/* Micro-batch k of all ranks of a stage is samples k M .. (k + 1) M - 1 of the global
 * batch, M = b dp. i_batch: of the validation; training goes on behind the samples taken. */
static enum mist_status load_samples(struct run *run, enum source source, int64_t i_batch,
                                     struct mist_err *err)
{
    const struct mist_job *job = &run->plan->job;
    const struct mist_stage_plan *stage = &run->plan->stages[run->schedule->i_stage];
    int64_t b = stage->micro_batch, n_whole = b * job->seq_len;
    int32_t *whole[2] = {run->whole, run->whole + n_whole};
    enum mist_status status = MIST_OK;

    if (!run->has_embedding && !run->has_head)
        return MIST_OK;
    for (int32_t k = 0; k < run->plan->n_micro_batches && status == MIST_OK; k++) {
        int64_t first = ((int64_t)k * stage->dp + run->schedule->at[MIST_AXIS_DP]) * b;
        int64_t at = k * (n_whole / mist_stage_cp(stage));
        if (source == SOURCE_TRAINING)
            status = mist_data_batch(run->job->data, (uint64_t)run->job->settings.seed,
                                     run->progress.n_samples + first, job->seq_len, b,
                                     whole[0], whole[1], err);
        else
            status = mist_data_validation_batch(run->job->data, i_batch,
                                                job->global_batch, job->seq_len, first, b,
                                                whole[0], whole[1], err);
        if (status != MIST_OK)
            break;
        take_chunks(run, whole[0], b, run->tokens + at);
        take_chunks(run, whole[1], b, run->targets + at);
    }
    return status;
}

static const int32_t *tokens_of(const struct run *run)
{
    return run->has_embedding ? run->tokens : NULL;
}

static const int32_t *targets_of(const struct run *run)
{
    return run->has_head ? run->targets : NULL;
}

static double tokens_of_step(const struct run *run)
{
    return (double)run->plan->job.global_batch * (double)run->plan->job.seq_len;
}

/* ----------------------------------------------------------------------------- steps */

/* How the gradients of a step will be applied. */
static void set_update(struct run *run, const struct mist_step_result *result,
                       struct mist_train_step *step)
{
    double clip_norm = run->job->settings.clip_norm, norm = result->gradient_norm;
    struct mist_adamw_args args = run->adamw;

    step->lr = mist_train_settings_lr(&run->job->settings, step->step - 1);
    step->gradient_norm = result->is_finite ? norm : NAN;
    step->is_skipped = !result->is_finite;
    args.lr = (float)step->lr;
    args.gradient_scale = 1;
    if (clip_norm > 0 && norm > clip_norm)
        args.gradient_scale = (float)(clip_norm / norm);
    args.t = (int32_t)run->progress.n_updates + 1;
    run->progress.n_updates += result->is_finite;
    run->progress.n_skipped += !result->is_finite;
    run->n_skipped_last = result->is_finite ? 0 : run->n_skipped_last + 1;
    mist_runtime_set_update(run->runtime, &args, step->is_skipped);
}

static enum mist_status do_step(struct run *run, struct mist_train_step *step,
                                struct mist_err *err)
{
    double start_s = mist_clock_now_s();
    struct mist_step_result result;
    enum mist_status status = load_samples(run, SOURCE_TRAINING, 0, err);

    if (status == MIST_OK)
        status = mist_runtime_step(run->runtime, tokens_of(run), targets_of(run), &result,
                                   err);
    if (status != MIST_OK)
        return status;
    if (result.graphs && run->log->note && mist_comm_rank(run->comm) == 0)
        run->log->note(run->log->context, "graphs", result.graphs);
    set_update(run, &result, step);
    run->progress.n_steps = step->step;
    run->progress.n_samples += run->plan->job.global_batch;
    run->stops = result.stops;
    step->loss = result.loss_sum / tokens_of_step(run);
    step->step_s = mist_clock_now_s() - start_s;
    return MIST_OK;
}

/* *loss: NaN where a signal came before the last batch. */
static enum mist_status validate(struct run *run, double *loss, struct mist_err *err)
{
    int64_t n_samples = run->job->n_validation_samples, seq_len = run->plan->job.seq_len;
    int64_t n = mist_data_n_batches(n_samples, run->plan->job.global_batch);
    double sum = 0;
    enum mist_status status = mist_runtime_apply(run->runtime, err);

    for (int64_t i = 0; i < n && status == MIST_OK && !run->stops; i++) {
        struct mist_step_result result = {.loss_sum = 0};
        status = load_samples(run, SOURCE_VALIDATION, i, err);
        if (status == MIST_OK)
            status = mist_runtime_evaluate(run->runtime, tokens_of(run), targets_of(run),
                                           &result, err);
        sum += result.loss_sum;
        run->stops = result.stops;
        run->skips_validation = result.stops && i + 1 < n;
    }
    if (!run->skips_validation)
        *loss = isfinite(sum) ? sum / ((double)n_samples * (double)seq_len) : INFINITY;
    return status;
}

/* Each reason once: the path may be of another step every time. */
static void warn_once(struct run *run, const struct mist_err *warning)
{
    if (!warning->message[0] || strcmp(warning->message, run->last_warning) == 0)
        return;
    snprintf(run->last_warning, sizeof run->last_warning, "%s", warning->message);
    if (run->job->messages)
        mist_message_err(run->job->messages, warning);
}

static enum mist_status save(struct run *run, struct mist_err *err)
{
    const struct mist_train_job *job = run->job;
    struct mist_err warning = {0};
    json_t *training = NULL;
    enum mist_status status = mist_runtime_apply(run->runtime, err);

    if (status == MIST_OK && mist_comm_rank(run->comm) == 0) {
        training = mist_train_settings_to_json(&job->settings, &run->progress, run->plan,
                                               job->data);
        if (!training)
            status = mist_err_memory(err, NULL);
    }
    if (status == MIST_OK)
        status =
            mist_train_save(run->runtime, run->comm, &job->saving, run->progress.n_steps,
                            &run->plan->model, training, &warning, err);
    warn_once(run, &warning);
    json_decref(training);
    return status;
}

static bool is_due(int64_t every, int64_t step, int64_t last)
{
    return step == last || (every > 0 && step % every == 0);
}

/* A log that fails is no reason to lose steps: the run ends behind a checkpoint. */
static void log_step(struct run *run, const struct mist_train_step *step)
{
    if (!run->log->step || mist_comm_rank(run->comm) != 0 || run->log_status != MIST_OK)
        return;
    run->log_status = run->log->step(run->log->context, step, &run->log_err);
    if (run->log_status != MIST_OK)
        mist_runtime_stop(run->runtime);
}

/* Whether a signal came to a rank while all were saving: the next step may take long. */
static enum mist_status ask_to_stop(struct run *run, struct mist_err *err)
{
    const atomic_int *signal = run->job->config.stop_signal;
    int64_t stops =
        run->stops || run->log_status != MIST_OK || (signal && atomic_load(signal) != 0);
    enum mist_status status =
        mist_comm_all_reduce_i64(run->comm, MIST_COMM_MAX, &stops, 1, err);

    run->stops = stops != 0;
    return status;
}

/* Skipped steps leave the weights as they are: when no batch of many suits them, none will. */
static enum mist_status check_progress(const struct run *run, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    if (run->n_skipped_last < MIST_TRAIN_MAX_SKIPPED)
        return MIST_OK;
    status =
        mist_err_set(err, MIST_ERR_RUN,
                     "none of the last %d steps, to step %lld, was finite, so that "
                     "skipping them does not help; begin with a lower --lr, or go on "
                     "from an earlier checkpoint with one",
                     (int)MIST_TRAIN_MAX_SKIPPED, (long long)run->progress.n_steps);
    return mist_comm_agree(run->comm, status, err);
}

/* A step and what has to be done after it. *has_paused: of the step before, and
 * of this. */
static enum mist_status iterate(struct run *run, struct mist_train_step *step,
                                double *begin_s, bool *has_paused, struct mist_err *err)
{
    const struct mist_train_job *job = run->job;
    int64_t last = job->settings.n_iterations;
    bool validates =
        job->n_validation_samples > 0 && is_due(job->validate_every, step->step, last);
    bool saves = false;
    /* one iteration before the first that is timed, if there is one */
    int64_t first = job->progress.n_steps + 1,
            before = last - job->config.n_timed_iterations;
    bool warms = job->config.n_timed_iterations > 0 && mist_device_records(run->device) &&
                 step->step == (before > first ? before : first);
    enum mist_status status = warms ? mist_device_start_spans(run->device, err) : MIST_OK;

    *begin_s = *has_paused || warms ? mist_clock_now_s() : 0;
    if (status == MIST_OK)
        status = do_step(run, step, err);
    run->skips_validation = validates && run->stops;
    if (status == MIST_OK && validates && !run->stops)
        status = validate(run, &step->validation_loss, err);
    if (step->step == last && !run->skips_validation)
        run->stops = false; /* all is done */
    saves = job->saving.dir && (run->stops || is_due(job->save_every, step->step, last));
    step->is_saved_next = saves || run->stops || step->step == last;
    if (status == MIST_OK)
        log_step(run, step);
    if (status == MIST_OK)
        status = check_progress(run, err);
    if (status == MIST_OK && saves)
        status = save(run, err);
    if (status == MIST_OK && saves && step->step < last)
        status = ask_to_stop(run, err);
    *has_paused = validates || saves;
    return status;
}

/* ----------------------------------------------------------------------------- public */

static enum mist_status init_report(struct mist_train_report *report,
                                    const struct mist_train_job *job, int32_t n_ranks,
                                    struct mist_err *err)
{
    int64_t left = job->settings.n_iterations - job->progress.n_steps;
    int64_t n = left > 0 ? left : 0;
    int64_t most = job->n_kept > 0 ? job->n_kept : MIST_TRAIN_MAX_KEPT;
    int64_t n_kept = n < most ? n : most;

    *report = (struct mist_train_report){
        .n_iterations = (int32_t)n,
        .n_kept = (int32_t)n_kept,
        .n_ranks = n_ranks,
        .validation_loss = NAN,
        .steps = calloc((size_t)n_kept + 1, sizeof *report->steps),
        .iteration_s = calloc((size_t)n_kept + 1, sizeof *report->iteration_s),
        .memory = calloc((size_t)n_ranks, sizeof *report->memory),
        .losses =
            calloc((size_t)job->config.n_timed_iterations + 1, sizeof *report->losses),
    };
    mist_timeline_init(&report->timeline);
    mist_op_table_init(&report->ops);
    if (!report->steps || !report->iteration_s || !report->memory || !report->losses)
        return mist_err_memory(err, NULL);
    return MIST_OK;
}

void mist_train_report_fini(struct mist_train_report *report)
{
    free(report->steps);
    free(report->iteration_s);
    free(report->memory);
    free(report->losses);
    mist_op_table_fini(&report->ops);
    mist_timeline_fini(&report->timeline);
    *report = (struct mist_train_report){0};
}

static enum mist_status find_paths(const struct run *run, struct mist_paths *out,
                                   struct mist_err *err)
{
    struct mist_paths mine;

    mist_runtime_describe(run->runtime, run->job->i_device, run->job->has_own_device,
                          &mine);
    return mist_paths_gather(run->comm, &mine, out, err);
}

/* Everything of the ranks is there: says how large it is, and which way it goes. */
static enum mist_status begin(struct run *run, struct mist_err *err)
{
    struct mist_paths paths;
    struct mist_train_memory memory = mist_gather_memory(run->schedule, run->device);
    int64_t sizes[] = {memory.planned_bytes, memory.allocated_bytes,
                       memory.resident_bytes, memory.used_bytes};
    enum mist_status status =
        mist_comm_all_reduce_i64(run->comm, MIST_COMM_MAX, sizes, 4, err);
    memory = (struct mist_train_memory){sizes[0], sizes[1], sizes[2], sizes[3]};
    if (status == MIST_OK)
        status = find_paths(run, &paths, err);
    if (status == MIST_OK && run->log->begin && mist_comm_rank(run->comm) == 0)
        status = run->log->begin(run->log->context, &memory, &paths, err);
    return status;
}

static enum mist_status end(struct run *run, struct mist_train_report *report,
                            struct mist_err *err)
{
    const struct mist_train_job *job = run->job;
    enum mist_status status = mist_runtime_apply(run->runtime, err);

    report->n_skipped = run->progress.n_skipped;
    if (status == MIST_OK && run->probe)
        status = mist_probe_find_level(run->comm, &run->probes_us, &report->level, err);
    if (status == MIST_OK)
        status = find_paths(run, &report->paths, err);
    if (status == MIST_OK)
        status = mist_gather_report(run->comm, job, run->schedule, run->runtime,
                                    run->begin_s, run->device, report, err);
    if (status == MIST_OK && job->export_folder)
        status = mist_train_export(run->runtime, run->comm, &run->plan->model,
                                   job->n_positions, job->export_folder,
                                   job->export_dtype, job->force, err);
    return status;
}

/* The run ends early: by which signal, on all ranks; 0: its log has failed. */
static enum mist_status stop(const struct run *run, struct mist_train_report *report,
                             struct mist_err *err)
{
    int64_t number = atomic_load(run->job->config.stop_signal);
    enum mist_status status =
        mist_comm_all_reduce_i64(run->comm, MIST_COMM_MAX, &number, 1, err);

    report->stopped_after = run->progress.n_steps;
    report->stop_signal = (int)number;
    report->skips_validation = run->skips_validation;
    return status;
}

/* Of a run without end the later ones count. */
static void forget_some(struct mist_samples *probes_us)
{
    enum { MOST = 1 << 20 };

    if (probes_us->n < MOST)
        return;
    probes_us->n = MOST / 2;
    memmove(probes_us->values, probes_us->values + MOST / 2,
            MOST / 2 * sizeof *probes_us->values);
}

/* What the machine's level is, for about duration_s. */
static enum mist_status probe(struct run *run, double duration_s, struct mist_err *err)
{
    forget_some(&run->probes_us);
    enum mist_status status =
        mist_probe_run(run->probe, duration_s, &run->probes_us, err);

    mist_comm_set_pause(run->comm, mist_device_pause, run->device);
    return status;
}

/* While nothing else of the run is there: it can't be that there is no room for probes. */
static enum mist_status open_probe(struct run *run, struct mist_train_report *report,
                                   struct mist_err *err)
{
    const struct mist_train_job *job = run->job;
    const struct mist_probe_config config = {
        .backend = job->backend,
        .i_device = job->i_device,
        .has_own_device = job->has_own_device,
        .dtype = run->plan->job.dtype,
        .n_threads = job->config.n_threads,
        .deadline_s = job->deadline_s,
        .work = mist_probe_usual_work(job->config.n_threads)};

    if (job->config.n_threads == mist_plan_n_threads(run->plan))
        report->probe_predicted_s = run->plan->predicted.probe_s;
    if (report->probe_predicted_s <= 0 && job->messages && mist_comm_rank(run->comm) == 0)
        mist_message(job->messages,
                     "the plan was predicted without a probe of as many ranks and "
                     "threads: --probe can't tell the machine's level");
    return mist_probe_open(run->comm, &config, &run->probe, err);
}

enum mist_status mist_train_run(struct mist_comm *comm, const struct mist_train_job *job,
                                const struct mist_train_log *log,
                                struct mist_train_report *report, struct mist_err *err)
{
    struct run run = {
        .comm = comm,
        .job = job,
        .plan = job->plan,
        .log = log,
        .progress = job->progress,
        .adamw = mist_train_settings_adamw(&job->settings),
    };
    bool has_paused = false;
    enum mist_status status = init_report(report, job, mist_comm_n_ranks(comm), err);

    if (status != MIST_OK)
        return status;
    bool probes = job->probe_frac > 0 && report->n_iterations > 0;
    double probe_start_s = mist_clock_now_s();
    if (probes)
        status = open_probe(&run, report, err);
    double probed_s = mist_clock_now_s() - probe_start_s;
    if (status == MIST_OK)
        status = open_rank(&run, report, err);
    if (status == MIST_OK)
        status = begin(&run, err);
    report->start_s = job->begun_s > 0 ? mist_clock_now_s() - job->begun_s - probed_s : 0;
    if (status == MIST_OK && probes)
        status = probe(&run, 0, err);
    has_paused = probes;
    for (int32_t i = 0; i < report->n_iterations && status == MIST_OK && !run.stops;
         i++) {
        int32_t place = i % report->n_kept;
        struct mist_train_step *step = &report->steps[place];
        *step = (struct mist_train_step){.step = job->progress.n_steps + i + 1,
                                         .validation_loss = NAN};
        status = iterate(&run, step, &run.begin_s[place], &has_paused, err);
        if (run.fastest_s == 0 || step->step_s < run.fastest_s)
            run.fastest_s = step->step_s;
        if (i + 1 == mist_train_n_warm(report->n_iterations))
            run.probes_us.n = 0;
        if (status == MIST_OK && probes && !run.stops)
            status = probe(&run, job->probe_frac * run.fastest_s, err);
        has_paused |= probes;
        if (i == 0)
            report->first = *step;
    }
    if (status == MIST_OK && report->n_iterations == 0 && job->n_validation_samples > 0) {
        status = validate(&run, &report->validation_loss, err);
        run.stops = run.skips_validation;
    }
    if (status == MIST_OK)
        status = run.stops ? stop(&run, report, err) : end(&run, report, err);
    if (status == MIST_OK && run.log_status != MIST_OK && err)
        *err = run.log_err;
    if (status == MIST_OK)
        status = mist_comm_agree(comm, run.log_status, err);
    close_rank(&run);
    return status;
}
