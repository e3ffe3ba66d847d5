/* Short real plans, as predicted and as measured. See checks.h. */
#define _GNU_SOURCE /* memfd_create */
#include "profile/checks.h"

#include "core/random.h"
#include "exec/runtime/probe.h"
#include "exec/train/train.h"
#include "profile/ranks.h"
#include "sim/replay/replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST_LAYERS = 12,
    FEW_LAYERS = 4,
    N_MICRO_BATCHES = 4,
    LEAST_ITERATIONS = 3,
    MOST_ITERATIONS = 50,
};

static const double deadline_s = 120; /* of waits for other ranks: as comm.h's */

struct checks {
    const struct mist_checks_config *config;
    struct mist_comm *comm;
    struct mist_trace_set *traces;  /* of rank 0 */
    struct mist_cost_model *prices; /* of rank 0; else NULL */
    int32_t n_layers;               /* which it has */
    struct mist_plan plan;          /* the one at hand */
    struct mist_data *data;         /* of its length */
};

static bool is_first(const struct checks *at)
{
    return mist_comm_rank(at->comm) == 0;
}

/* ------------------------------------------------------------------------------ plans */

/* The largest tensor-parallel size of the grid, which is measured at its smallest
 * micro-batch; 1: none. */
static int32_t largest_tp(const struct mist_grid *grid, bool is_sequence_parallel)
{
    int32_t most = 1;

    for (int32_t i = 0; i < grid->n_variants; i++) {
        const struct mist_grid_variant *variant = &grid->variants[i];
        if (variant->is_sequence_parallel == is_sequence_parallel && variant->tp > most &&
            mist_grid_has(grid, i, 0))
            most = variant->tp;
    }
    return most;
}

/* What the mechanism makes of the one stage, or of each of both. */
static bool use_mechanism(const struct mist_grid *grid, enum mist_mechanism mechanism,
                          struct mist_stage_plan *stage)
{
    bool is_sequence_parallel = mechanism == MIST_MECHANISM_SEQUENCE_PARALLEL;

    switch (mechanism) {
    case MIST_MECHANISM_COMPUTE:
        return stage->dp == 1;
    case MIST_MECHANISM_PIPELINE:
        return true;
    case MIST_MECHANISM_DATA_PARALLEL:
        return stage->dp > 1;
    case MIST_MECHANISM_ZERO3:
        stage->zero = 3;
        return stage->dp > 1;
    case MIST_MECHANISM_TENSOR_PARALLEL:
    case MIST_MECHANISM_SEQUENCE_PARALLEL:
        stage->tp = largest_tp(grid, is_sequence_parallel);
        stage->dp /= stage->tp;
        stage->is_sequence_parallel = is_sequence_parallel;
        return stage->tp > 1;
    case MIST_MECHANISM_OFFLOAD:
        stage->offload_weights = stage->offload_gradients = 0.5;
        stage->offload_optimizer = stage->offload_activations = 0.5;
        return true;
    case MIST_N_MECHANISMS:
        break;
    }
    return false;
}

/* The plan that checks a mechanism with a model of n_layers, without a prediction; false:
 * the ranks or the model have none. */
static bool make_plan(const struct mist_grid *grid, enum mist_mechanism mechanism,
                      int32_t n_layers, struct mist_plan *out)
{
    const struct mist_grid_config *config = &grid->config;
    bool is_pipeline = mechanism == MIST_MECHANISM_PIPELINE;
    int32_t n_stages = is_pipeline ? 2 : 1, n_ranks = config->n_ranks / n_stages;
    struct mist_stage_plan stage = {
        .micro_batch = config->micro_batches[0], .dp = n_ranks, .tp = 1};

    *out = (struct mist_plan){
        .model = config->model, .n_micro_batches = N_MICRO_BATCHES, .n_stages = n_stages};
    out->model.n_layers = n_layers;
    if (config->n_ranks % n_stages != 0 || n_layers % n_stages != 0 ||
        !use_mechanism(grid, mechanism, &stage))
        return false;
    stage.n_layers = n_layers / n_stages;
    mist_stage_mesh(n_ranks, config->n_ranks / config->n_nodes, &stage.n_nodes,
                    &stage.n_devices);
    for (int32_t i = 0; i < n_stages; i++)
        out->stages[i] = stage;
    out->job = (struct mist_job){
        .global_batch = (int64_t)N_MICRO_BATCHES * stage.micro_batch * stage.dp,
        .seq_len = config->seq_len,
        .dtype = config->dtype,
        .threads = config->n_threads,
        .computes_on_gpu = config->n_threads == 0,
    };
    return true;
}

/* ------------------------------------------------------------------------------- data */

/* Random ids as a token file in memory; its descriptor, or -1. */
static int write_tokens(int64_t n, int64_t vocab)
{
    int fd = memfd_create("tokens", MFD_CLOEXEC);
    uint32_t *ids = malloc((size_t)n * sizeof *ids);
    size_t bytes = (size_t)n * sizeof *ids, done = 0;
    ssize_t written = 0;

    for (int64_t i = 0; ids && i < n; i++)
        ids[i] = (uint32_t)(mist_random_at(1, 0, (uint64_t)i) % (uint64_t)vocab);
    for (; ids && fd >= 0 && written >= 0 && done < bytes; done += (size_t)written)
        written = write(fd, (const char *)ids + done, bytes - done);
    free(ids);
    if (done == bytes)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Two global batches of the plan. */
static enum mist_status open_data(struct checks *at, struct mist_err *err)
{
    const struct mist_plan *plan = &at->plan;
    int64_t n = 2 * plan->job.global_batch * plan->job.seq_len + 1;
    int fd = write_tokens(n, plan->model.vocab);
    char path[64];
    const char *paths[] = {path};

    if (fd < 0)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for tokens");
    snprintf(path, sizeof path, "uint32:/proc/self/fd/%d", fd);
    enum mist_status status = mist_data_open(paths, 1, &at->data, err);
    close(fd);
    if (status == MIST_OK)
        status = mist_data_check(at->data, plan->model.vocab, plan->job.seq_len, err);
    return status;
}

/* ------------------------------------------------------------------------------- runs */

/* Whether the arenas of the plan fit. */
static enum mist_status check_memory(const struct checks *at, struct mist_err *err)
{
    const struct mist_plan *plan = &at->plan;
    int64_t arenas[2][MIST_N_ARENAS]; /* make_plan() gives no more stages */
    enum mist_status status = mist_replay_memory(plan, plan->job.threads, arenas, err);

    for (int32_t i = 0; i < plan->n_stages && status == MIST_OK; i++)
        if (arenas[i][MIST_ARENA_DEVICE] + arenas[i][MIST_ARENA_HOST] >
            at->config->limit_bytes)
            status = mist_err_set(err, MIST_ERR_NO_PLAN, "it does not fit");
    return status;
}

/* Rank 0: what the plan will take, in the plan. */
static enum mist_status predict(struct checks *at, struct mist_err *err)
{
    struct mist_replay_options options = {.threads = at->plan.job.threads,
                                          .skips_timeline = true};
    struct mist_replay_result replay;
    enum mist_status status = mist_plan_check(&at->plan, err);

    if (status == MIST_OK)
        status = check_memory(at, err);
    if (status == MIST_OK)
        status = mist_replay_run(&at->plan, at->prices, &options, &replay, err);
    if (status != MIST_OK)
        return status;
    mist_replay_predict(&replay, &at->traces->cluster, &at->plan.predicted);
    mist_replay_result_fini(&replay);
    return MIST_OK;
}

static void say_missing(const struct checks *at, enum mist_mechanism mechanism,
                        const struct mist_err *why)
{
    if (at->config->messages)
        mist_message(at->config->messages, "no check of %s: %s",
                     mist_mechanism_words[mechanism], why->message);
}

/* How many iterations there is time for, the same on all ranks; 0: the plan can't be
 * run, which is said. */
static enum mist_status decide(struct checks *at, enum mist_mechanism mechanism,
                               double budget_s, int32_t *n, struct mist_err *err)
{
    const struct mist_cluster *cluster = &at->traces->cluster;
    struct mist_err why = {0};
    double told[] = {0, 0, 0}; /* iterations, the prediction, the probe's */

    if (is_first(at) && predict(at, &why) == MIST_OK) {
        double iteration_s = at->plan.predicted.iteration_s;
        if (at->config->probe_frac > 0)
            iteration_s += fmax(at->config->probe_frac * iteration_s,
                                MIST_PROBE_LEAST * cluster->probe_us * 1e-6);
        double wanted = floor(budget_s / iteration_s) - MIST_TRAIN_MOST_WARM;
        told[0] = fmin(fmax(wanted, LEAST_ITERATIONS), MOST_ITERATIONS);
        told[1] = at->plan.predicted.iteration_s;
        told[2] = cluster->probe_us * 1e-6;
    }
    enum mist_status status =
        mist_comm_broadcast_bytes(at->comm, 0, told, sizeof told, err);
    *n = (int32_t)told[0];
    at->plan.predicted.iteration_s = told[1];
    at->plan.predicted.probe_s = told[2];
    if (*n == 0 && is_first(at))
        say_missing(at, mechanism, &why);
    return status;
}

static struct mist_train_job make_job(const struct checks *at, int32_t n)
{
    const struct mist_grid_config *grid = &at->config->grid->config;
    const struct mist_bench_place *place = &at->config->place;

    return (struct mist_train_job){
        .backend = place->backend,
        .i_device = place->i_device,
        .has_own_device = place->is_alone,
        .plan = &at->plan,
        .data = at->data,
        .settings = {.seed = 1,
                     .n_iterations = MIST_TRAIN_MOST_WARM + n,
                     .lr = 1e-3,
                     .beta1 = 0.9,
                     .beta2 = 0.95,
                     .epsilon = 1e-8,
                     .weight_decay = 0.1,
                     .clip_norm = 1},
        .config = {.n_threads = grid->n_threads, .n_processors = place->n_processors},
        .deadline_s = deadline_s,
        .probe_frac = at->config->probe_frac,
        .allows_atomics = grid->allows_atomics,
        .attention = grid->attention,
    };
}

static struct mist_check_row make_row(const struct checks *at,
                                      enum mist_mechanism mechanism,
                                      const struct mist_train_report *report)
{
    const struct mist_prediction *predicted = &at->plan.predicted;
    const struct mist_probe_verdict verdict = mist_probe_judge(
        report->steady_s, report->level.time_s, report->probe_predicted_s, predicted);
    double longer = verdict.level > 0 ? verdict.longer : 1;
    int32_t n = report->n_iterations - MIST_TRAIN_MOST_WARM;
    struct mist_estimate estimate =
        mist_estimate_make(report->iteration_s + MIST_TRAIN_MOST_WARM, (size_t)n);

    return (struct mist_check_row){
        .mechanism = mechanism,
        .predicted_us = predicted->iteration_s * longer * 1e6,
        .bar_us = predicted->error_s * longer * 1e6,
        .measured_us = report->steady_s * 1e6,
        .deviation_us = estimate.deviation * 1e6,
        .repetitions = n,
    };
}

/* Runs the plan; row is rank 0's. */
static enum mist_status run_plan(struct checks *at, enum mist_mechanism mechanism,
                                 int32_t n, struct mist_check_row *row,
                                 struct mist_err *err)
{
    static const struct mist_train_log no_log = {0};
    struct mist_train_report report;
    enum mist_status status = open_data(at, err);

    if (status == MIST_OK) {
        struct mist_train_job job = make_job(at, n);
        status = mist_train_run(at->comm, &job, &no_log, &report, err);
        if (status == MIST_OK && is_first(at))
            *row = make_row(at, mechanism, &report);
        mist_train_report_fini(&report);
    }
    mist_data_close(at->data);
    at->data = NULL;
    return status;
}

/* What is off beyond reason, as where ranks hardly ever ran at once, is left out and said. */
static enum mist_status add_row(struct checks *at, const struct mist_check_row *row,
                                struct mist_err *err)
{
    struct mist_err why = {0};
    enum mist_status status = mist_trace_set_add_check(at->traces, row, &why);

    if (status == MIST_ERR_INPUT) {
        say_missing(at, row->mechanism, &why);
        return MIST_OK;
    }
    if (status != MIST_OK)
        *err = why;
    return status;
}

/* One check, or what an earlier session found. */
static enum mist_status check(struct checks *at, enum mist_mechanism mechanism,
                              double budget_s, struct mist_err *err)
{
    struct mist_check_row row = {.mechanism = mechanism};
    int64_t n_bytes = 0;
    int32_t n = 0;
    enum mist_status status = MIST_OK;
    const char *bytes =
        mist_journal_take(at->config->journal, MIST_JOURNAL_CHECKS, &n_bytes);
    bool is_known = bytes && n_bytes == (int64_t)sizeof row;

    if (is_known)
        memcpy(&row, bytes, sizeof row);
    else
        status = decide(at, mechanism, budget_s, &n, err);
    if (status == MIST_OK && n > 0)
        status = run_plan(at, mechanism, n, &row, err);
    if (status == MIST_OK && !is_known)
        status = mist_journal_add(at->config->journal, MIST_JOURNAL_CHECKS, &row,
                                  sizeof row, err);
    if (status == MIST_OK && is_first(at) && row.repetitions > 0)
        status = add_row(at, &row, err);
    return status;
}

/* Whether every plan of the session's model with so many blocks fits. The same on all
 * ranks. */
static enum mist_status try_layers(struct checks *at, int32_t n_layers, bool *fits,
                                   struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    at->n_layers = n_layers;
    *fits = true;
    for (int m = 0; m < MIST_N_MECHANISMS && status == MIST_OK; m++) {
        if (!make_plan(at->config->grid, (enum mist_mechanism)m, n_layers, &at->plan))
            continue;
        status = check_memory(at, err);
        *fits = *fits && status == MIST_OK;
        if (status == MIST_ERR_NO_PLAN)
            status = MIST_OK;
    }
    return status;
}

/* As many blocks as there may be, and as fit; where even a few don't, some checks can't
 * be made. */
static enum mist_status choose_layers(struct checks *at, struct mist_err *err)
{
    int32_t n = at->config->grid->config.model.n_layers;
    bool fits = false;
    enum mist_status status = MIST_OK;

    for (n = n < MOST_LAYERS ? n : MOST_LAYERS; status == MIST_OK; n /= 2) {
        status = try_layers(at, n, &fits, err);
        if (fits || n <= FEW_LAYERS)
            break;
    }
    return status;
}

static enum mist_status check_all(struct checks *at, struct mist_err *err)
{
    const struct mist_checks_config *config = at->config;
    int32_t n = 0;
    enum mist_status status = choose_layers(at, err);

    if (status == MIST_OK && is_first(at))
        status = mist_cost_model_new(at->traces, &at->prices, err);
    status = mist_comm_agree(at->comm, status, err);
    for (int m = 0; m < MIST_N_MECHANISMS; m++)
        n += make_plan(config->grid, (enum mist_mechanism)m, at->n_layers, &at->plan);
    for (int m = 0; m < MIST_N_MECHANISMS && status == MIST_OK; m++)
        if (make_plan(config->grid, (enum mist_mechanism)m, at->n_layers, &at->plan))
            status = check(at, (enum mist_mechanism)m, config->budget_s / n, err);
    mist_cost_model_free(at->prices);
    return status;
}

enum mist_status mist_checks_run(const struct mist_checks_config *config,
                                 struct mist_comm *comm, struct mist_trace_set *traces,
                                 struct mist_err *err)
{
    struct checks *at = calloc(1, sizeof *at); /* a plan is large */

    if (!at)
        return mist_err_memory(err, NULL);
    at->config = config;
    at->comm = comm;
    at->traces = traces;
    enum mist_status status = check_all(at, err);
    free(at);
    return status;
}
