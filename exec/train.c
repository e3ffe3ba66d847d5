/* A training run on every rank of a plan. See train.h. */
#include "exec/train.h"

#include "core/clock.h"
#include "exec/gather.h"
#include "exec/runtime.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* One rank of a run. */
struct run {
    struct mist_comm *comm;
    const struct mist_train_job *job;
    const struct mist_plan *plan;
    struct mist_schedule *schedule;
    struct mist_device *device;
    struct mist_runtime *runtime;
    int32_t *tokens, *targets; /* [G, b, s] of this rank */
    bool has_embedding, has_head;
};

/* ------------------------------------------------------------------------------ parts */

static enum mist_status open_rank(struct run *run, struct mist_err *err)
{
    const struct mist_train_job *job = run->job;
    const struct mist_stage_plan *stage;
    enum mist_status status =
        mist_schedule_build(job->catalog, run->plan, mist_comm_rank(run->comm),
                            job->n_threads, &run->schedule, err);

    if (status != MIST_OK)
        return status;
    stage = &run->plan->stages[run->schedule->i_stage];
    run->has_embedding = run->schedule->i_stage == 0;
    run->has_head = run->schedule->i_stage == run->plan->n_stages - 1;
    size_t n_tokens = (size_t)run->plan->n_micro_batches * (size_t)stage->micro_batch *
                      (size_t)run->plan->job.seq_len;
    run->tokens = malloc(n_tokens * sizeof *run->tokens);
    run->targets = malloc(n_tokens * sizeof *run->targets);
    if (!run->tokens || !run->targets)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    struct mist_device_config device = {
        .arena_bytes = {run->schedule->arena_bytes[MIST_ARENA_DEVICE],
                        run->schedule->arena_bytes[MIST_ARENA_HOST]},
        .threads = job->n_threads,
    };
    status = mist_device_open_cpu(&device, &run->device, err);
    if (status != MIST_OK)
        return status;
    mist_comm_set_busy_probe(run->comm, mist_device_is_computing, run->device);
    struct mist_train_config config = {
        .adamw = job->adamw,
        .seed = job->seed,
        .n_threads = job->n_threads,
        .n_timed_iterations = job->n_timed_iterations,
        .is_serial = job->is_serial,
    };
    return mist_runtime_new(run->plan, run->schedule, run->device, run->comm,
                            &mist_operators_cpu, &config, job->n_iterations,
                            &run->runtime, err);
}

static void close_rank(struct run *run)
{
    mist_comm_set_busy_probe(run->comm, NULL, NULL);
    mist_runtime_free(run->runtime);
    mist_device_close(run->device);
    mist_schedule_free(run->schedule);
    free(run->tokens);
    free(run->targets);
}

/* Micro-batch k of all ranks of a stage is samples k M .. (k + 1) M - 1 of the step, M =
 * b dp. */
static void load_samples(struct run *run, int32_t i_iteration)
{
    const struct mist_job *job = &run->plan->job;
    const struct mist_stage_plan *stage = &run->plan->stages[run->schedule->i_stage];
    int64_t b = stage->micro_batch;

    if (!run->has_embedding && !run->has_head)
        return;
    for (int32_t k = 0; k < run->plan->n_micro_batches; k++) {
        int64_t first_sample = ((int64_t)k * stage->dp + run->schedule->i_dp) * b;
        int64_t at = k * b * job->seq_len;
        mist_data_batch(run->job->data, run->job->seed, i_iteration, job->global_batch,
                        job->seq_len, first_sample, b, run->tokens + at,
                        run->targets + at);
    }
}

/*
 * Ranks with a head send their sums of losses to rank 0, which adds them in rank order.
 */
static enum mist_status collect_loss(struct run *run, double *loss_sum,
                                     struct mist_err *err)
{
    const struct mist_plan *plan = run->plan;
    int32_t i_last = plan->n_stages - 1, tag = 2 * plan->n_micro_batches;
    int32_t first = mist_plan_first_rank(plan, i_last);

    if (mist_comm_rank(run->comm) != 0)
        return run->has_head && run->schedule->i_tp == 0
                   ? mist_comm_send(run->comm, 0, tag, loss_sum, sizeof *loss_sum, err)
                   : MIST_OK;
    double total = run->has_head ? *loss_sum : 0;
    for (int32_t i = 0; i < plan->stages[i_last].dp; i++) {
        int32_t rank = first + i * plan->stages[i_last].tp;
        double theirs = 0;
        if (rank == 0)
            continue;
        enum mist_status status =
            mist_comm_recv(run->comm, rank, tag, &theirs, sizeof theirs, err);
        if (status != MIST_OK)
            return status;
        total += theirs;
    }
    *loss_sum = total;
    return MIST_OK;
}

static enum mist_status iterate(struct run *run, int32_t i_iteration,
                                mist_train_log_fn log, void *context,
                                struct mist_train_report *report, struct mist_err *err)
{
    double loss_sum, start_s = mist_clock_now_s();

    load_samples(run, i_iteration);
    enum mist_status status =
        mist_runtime_step(run->runtime, run->has_embedding ? run->tokens : NULL,
                          run->has_head ? run->targets : NULL, &loss_sum, err);
    if (status == MIST_OK)
        status = collect_loss(run, &loss_sum, err);
    if (status != MIST_OK || mist_comm_rank(run->comm) != 0)
        return status;
    struct mist_train_step step = {
        .i_iteration = i_iteration,
        .loss = loss_sum /
                ((double)run->plan->job.global_batch * (double)run->plan->job.seq_len),
        .elapsed_s = mist_clock_now_s() - start_s,
    };
    report->losses[i_iteration] = step.loss;
    if (log)
        log(context, &step);
    if (!isfinite(step.loss))
        return mist_err_set(err, MIST_ERR_RUN,
                            "the loss of iteration %d is not finite; lower --lr, or run "
                            "with --serial to rule out a race",
                            (int)i_iteration);
    return MIST_OK;
}

/* ----------------------------------------------------------------------------- public */

static enum mist_status init_report(struct mist_train_report *report,
                                    const struct mist_train_job *job, int32_t n_ranks,
                                    struct mist_err *err)
{
    size_t n = (size_t)job->n_iterations, ranks = (size_t)n_ranks;

    *report = (struct mist_train_report){
        .n_iterations = job->n_iterations,
        .n_ranks = n_ranks,
        .losses = calloc(n, sizeof *report->losses),
        .iteration_s = calloc(n, sizeof *report->iteration_s),
        .planned_bytes = calloc(ranks, sizeof *report->planned_bytes),
        .allocated_bytes = calloc(ranks, sizeof *report->allocated_bytes),
        .resident_bytes = calloc(ranks, sizeof *report->resident_bytes),
    };
    mist_timeline_init(&report->timeline);
    if (!report->losses || !report->iteration_s || !report->planned_bytes ||
        !report->allocated_bytes || !report->resident_bytes)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    return MIST_OK;
}

void mist_train_report_fini(struct mist_train_report *report)
{
    free(report->losses);
    free(report->iteration_s);
    free(report->planned_bytes);
    free(report->allocated_bytes);
    free(report->resident_bytes);
    mist_timeline_fini(&report->timeline);
    *report = (struct mist_train_report){0};
}

enum mist_status mist_train_run(struct mist_comm *comm, const struct mist_train_job *job,
                                mist_train_log_fn log, void *context,
                                struct mist_train_report *report, struct mist_err *err)
{
    struct run run = {.comm = comm, .job = job, .plan = job->plan};
    enum mist_status status = init_report(report, job, mist_comm_n_ranks(comm), err);

    if (status != MIST_OK)
        return status;
    status = open_rank(&run, err);
    if (status == MIST_OK)
        status = mist_comm_barrier(comm, err);
    for (int32_t i = 0; i < job->n_iterations && status == MIST_OK; i++)
        status = iterate(&run, i, log, context, report, err);
    if (status == MIST_OK)
        status = mist_runtime_finish(run.runtime, err);
    if (status == MIST_OK)
        status = mist_gather_report(
            comm, job, run.schedule, run.runtime,
            mist_device_arena_bytes(run.device, MIST_ARENA_DEVICE), report, err);
    close_rank(&run);
    return status;
}
