/* Operators timed inside the passes of a micro-batch. See time_ops.h. */
#include "profile/time_ops.h"

#include "core/clock.h"
#include "profile/drift.h"

#include <stdlib.h>
#include <string.h>

enum {
    LEAST_ROUNDS = 4,
    RECOMPUTE_EVERY = 4, /* of the blocks, one in so many is recomputed in a pass: each
                            block's backward mostly follows what it does without */
};

static const double half_width_goal_frac = 0.01;

/* Rows below this part of a block's time do not keep the rounds going. */
static const double least_share_frac = 0.002;

struct ops_timer {
    struct mist_workbench *bench;
    struct mist_samples *samples; /* [n_keys], us */
    struct mist_drift drift;
    int32_t i_variant, i_micro_batch;
    int32_t i_round;
    int32_t i_next_look; /* round at which the precision is looked at again */
    bool is_warm_up; /* nothing is kept */
};

int32_t mist_time_ops_least_rounds(void)
{
    return LEAST_ROUNDS;
}

static void keep(struct ops_timer *at, int32_t key, double time_s)
{
    struct mist_err err;

    if (at->is_warm_up || key < 0)
        return;
    if (mist_drift_add(&at->drift, key, time_s * 1e6) &&
        mist_samples_add(&at->samples[key], time_s * 1e6))
        return;
    mist_device_fail(at->bench->device,
                     mist_err_set(&err, MIST_ERR_MEMORY, "out of memory for timings"),
                     &err);
}

/* ----------------------------------------------------------------------------- passes */

static void time_program(struct ops_timer *at, int32_t i_module,
                         enum mist_program_kind program)
{
    bool is_backward = mist_program_is_backward(program);
    struct mist_binding binding;

    mist_workbench_bind(at->bench, at->i_variant, at->i_micro_batch, i_module, &binding);
    const int32_t *keys = mist_grid_keys(at->bench->grid, at->i_variant,
                                         at->i_micro_batch, binding.layout->kind)
                              ->of[is_backward];
    int32_t n = binding.layout->programs[program].n_steps;
    double start_s = mist_clock_now_s();
    for (int32_t i = 0; i < n; i++) {
        struct mist_step_args args;
        mist_binding_resolve(&binding, program, i, &args);
        if (keys[i] < 0) {
            mist_workbench_stand_in(at->bench, &args);
        } else {
            at->bench->operators->run_step(&args);
            double end_s = mist_clock_now_s();
            keep(at, keys[i], end_s - start_s);
        }
        start_s = mist_clock_now_s();
    }
}

/* One micro-batch through the whole stage. */
static void run_pass(void *arg)
{
    struct ops_timer *at = arg;
    int32_t n = at->bench->n_copies;

    for (int32_t i = 0; i <= n + 1; i++)
        time_program(at, i, MIST_PROGRAM_FORWARD);
    for (int32_t i = n + 1; i >= 0; i--) {
        if (i >= 1 && i <= n && (i + at->i_round) % RECOMPUTE_EVERY == 0)
            time_program(at, i, MIST_PROGRAM_RECOMPUTE);
        time_program(at, i, MIST_PROGRAM_BACKWARD);
    }
}

/* ------------------------------------------------------------------------- optimizer */

/* AdamW over this rank's shard of a slab, parameter by parameter, as the runtime does it.
 */
static void run_adamw(const struct ops_timer *at, const struct mist_bench_module *module,
                      const struct mist_grid_shard *shard, int64_t first)
{
    const struct mist_workbench *bench = at->bench;
    struct mist_binding_update update = {
        .layout = mist_grid_layout(bench->grid, shard->i_variant, 0, module->kind),
        .storage = NULL,
        .i_slab = 0,
        .first = first,
        .n = shard->n,
        .weights = module->weights,
        .gradients = (float *)(void *)module->gradients,
        .weights_first = 0,
        .gradients_first = 0,
        .state = (float *)(void *)module->state,
        .backend = bench->backend,
        .n_threads = bench->grid->config.n_threads,
    };
    struct mist_adamw_args args = {.lr = 1e-4f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .weight_decay = .1f,
                                   .gradient_scale = 1,
                                   .t = at->i_round + 1};

    mist_binding_run_adamw(&update, &args, bench->operators);
}

static double keep_since(struct ops_timer *at, int32_t key, double start_s)
{
    keep(at, key, mist_clock_now_s() - start_s);
    return mist_clock_now_s();
}

/* All that is done to a slab's gradients once per step or micro-batch. Sums go to the
 * message region. */
static void time_shard(struct ops_timer *at, const struct mist_bench_module *module,
                       const struct mist_grid_shard *shard)
{
    const struct mist_workbench *bench = at->bench;
    const struct mist_operators *operators = bench->operators;
    int32_t n_threads = bench->grid->config.n_threads;
    int64_t first = shard->slab_first + shard->n * (bench->rank % shard->n_shards);
    float *gradients = (float *)(void *)module->gradients;
    float *sum = (float *)(void *)bench->message;
    struct mist_tally *tally = mist_device_results(bench->device);
    void *backend = bench->backend;
    double start_s = mist_clock_now_s();

    run_adamw(at, module, shard, first);
    start_s = keep_since(at, shard->adamw_key, start_s);
    for (int k = 0; k < (shard->n < shard->n_whole ? 2 : 1); k++) {
        int64_t n = k ? shard->n_whole : shard->n;
        const float *from = gradients + (k ? shard->slab_first : first);
        operators->sum_squares(backend, from, n, 0, tally, n_threads);
        start_s = keep_since(at, shard->norm_key[k], start_s);
        operators->add(backend, sum, from, n, n_threads);
        start_s = keep_since(at, shard->add_key[k], start_s);
    }
    operators->zero(backend, gradients + shard->slab_first, shard->n_whole, n_threads);
    keep_since(at, shard->zero_key, start_s);
}

/* All shards of one kind, in turn on its modules. */
static void run_shards(struct ops_timer *at, enum mist_layer_kind kind, int32_t i_first,
                       int32_t n_modules)
{
    struct mist_workbench *bench = at->bench;
    const struct mist_grid *grid = bench->grid;
    int32_t begin = 0, n = 0;

    for (int32_t i = grid->n_shards - 1; i >= 0; i--)
        if (grid->shards[i].kind == kind) { /* they stand together */
            begin = i;
            n++;
        }
    int32_t n_each = (n + n_modules - 1) / n_modules;
    for (int32_t i = 0; i < n_modules; i++)
        for (int32_t k = 0; k < n_each; k++) {
            struct mist_bench_module *module = &bench->modules[i_first + i];
            if (k > 0)
                memset(module->state, 0, (size_t)module->state_bytes);
            time_shard(
                at, module,
                &grid->shards[begin + ((at->i_round * n_modules + i) * n_each + k) % n]);
        }
}

static void run_optimizer(void *arg)
{
    struct ops_timer *at = arg;
    int32_t n = at->bench->n_copies;

    run_shards(at, MIST_LAYER_EMBEDDING, 0, 1);
    run_shards(at, MIST_LAYER_BLOCK, 1, n);
    run_shards(at, MIST_LAYER_HEAD, n + 1, 1);
    mist_workbench_clear(at->bench);
}

/* ----------------------------------------------------------------------------- rounds */

static enum mist_status run_round(struct ops_timer *at, struct mist_err *err)
{
    const struct mist_grid *grid = at->bench->grid;
    enum mist_status status = MIST_OK;

    at->drift.n_rounds += !at->is_warm_up;
    for (int32_t i = 0; i < grid->n_variants * grid->config.n_micro_batches; i++) {
        at->i_variant = i / grid->config.n_micro_batches;
        at->i_micro_batch = i % grid->config.n_micro_batches;
        if (status == MIST_OK && mist_grid_has(grid, at->i_variant, at->i_micro_batch))
            status =
                mist_workbench_run(at->bench, MIST_STREAM_COMPUTE, run_pass, at, err);
        mist_workbench_show_progress(at->bench);
    }
    if (status == MIST_OK)
        status =
            mist_workbench_run(at->bench, MIST_STREAM_COMPUTE, run_optimizer, at, err);
    return status;
}

/* The next round of an earlier session; false: there is none. */
static bool take_round(struct ops_timer *at, double *time_s)
{
    int64_t n_bytes;
    const char *bytes = mist_journal_take(at->bench->journal, MIST_JOURNAL_OPS, &n_bytes);
    struct mist_drift_run run;

    if (!bytes)
        return false;
    at->drift.n_rounds++;
    memcpy(time_s, bytes, sizeof *time_s);
    for (int64_t i = (int64_t)sizeof *time_s; i + (int64_t)sizeof run <= n_bytes;
         i += (int64_t)sizeof run) {
        memcpy(&run, bytes + i, sizeof run);
        if (run.key >= 0 && run.key < at->bench->grid->n_keys)
            keep(at, run.key, run.time_us * 1e-6);
    }
    return true;
}

/* Puts the runs from number first on into the journal. */
static enum mist_status note_round(struct ops_timer *at, size_t first, double time_s,
                                   struct mist_err *err)
{
    size_t n_bytes = (at->drift.n_runs - first) * sizeof *at->drift.runs;
    char *bytes = malloc(sizeof time_s + n_bytes);

    if (!bytes)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
    memcpy(bytes, &time_s, sizeof time_s);
    if (n_bytes > 0)
        memcpy(bytes + sizeof time_s, at->drift.runs + first, n_bytes);
    enum mist_status status =
        mist_journal_add(at->bench->journal, MIST_JOURNAL_OPS, bytes,
                         (int64_t)(sizeof time_s + n_bytes), err);
    free(bytes);
    return status;
}

static void make_estimates(const struct ops_timer *at, struct mist_estimate *estimates)
{
    for (int32_t i = 0; i < at->bench->grid->n_keys; i++)
        estimates[i] = mist_estimate_make(at->samples[i].values, at->samples[i].n);
}

/* True when the rows that matter are known well enough on this rank. */
static bool is_precise(const struct ops_timer *at, const struct mist_estimate *estimates)
{
    const struct mist_grid *grid = at->bench->grid;
    double block_us = 0;

    const struct mist_layer_layout *layout =
        mist_grid_layout(grid, 0, 0, MIST_LAYER_BLOCK);
    const struct mist_grid_step_keys *keys = mist_grid_keys(grid, 0, 0, MIST_LAYER_BLOCK);
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < (k ? layout->n_backward : layout->n_forward); i++)
            block_us += estimates[keys->of[k][i]].mean;
    for (int32_t i = 0; i < grid->n_keys; i++)
        if (estimates[i].mean >= least_share_frac * block_us &&
            estimates[i].half_width_frac > half_width_goal_frac)
            return false;
    return true;
}

/*
 * Whether another round is to be made: the same answer on all ranks. Estimates take time
 * in proportion to all rounds so far, so they are made when there are an eighth more.
 */
static enum mist_status ask_whether_to_go_on(struct ops_timer *at, double spent_s,
                                             double budget_s,
                                             struct mist_estimate *estimates,
                                             bool *goes_on, struct mist_err *err)
{
    double round_s = at->i_round > 0 ? spent_s / at->i_round : 0;

    *goes_on = at->i_round < LEAST_ROUNDS || spent_s + round_s < budget_s;
    if (at->i_round >= LEAST_ROUNDS && at->i_round >= at->i_next_look) {
        make_estimates(at, estimates);
        *goes_on = *goes_on && !is_precise(at, estimates);
        at->i_next_look = at->i_round + at->i_round / 8 + 1;
    }
    return mist_workbench_any(at->bench, goes_on, err);
}

/* Goes on from the rounds of an earlier session. */
static enum mist_status run_rounds(struct ops_timer *at, double budget_s,
                                   struct mist_estimate *estimates, struct mist_err *err)
{
    double spent_s = 0, time_s = 0;
    bool goes_on = true, is_warm = false;
    enum mist_status status = MIST_OK;

    while (take_round(at, &time_s)) {
        at->i_round++;
        spent_s += time_s;
    }
    if (at->i_round > 0)
        status = ask_whether_to_go_on(at, spent_s, budget_s, estimates, &goes_on, err);
    double begin_s = mist_clock_now_s();
    while (goes_on && status == MIST_OK) {
        size_t n_before = at->drift.n_runs;
        at->is_warm_up = !is_warm;
        status = run_round(at, err);
        at->is_warm_up = false;
        if (!is_warm) {
            is_warm = true;
            begin_s = mist_clock_now_s();
            continue;
        }
        /* with what was done since the round before */
        time_s = mist_clock_now_s() - begin_s;
        begin_s += time_s;
        if (status == MIST_OK)
            status = note_round(at, n_before, time_s, err);
        at->i_round++;
        spent_s += time_s;
        if (status == MIST_OK)
            status =
                ask_whether_to_go_on(at, spent_s, budget_s, estimates, &goes_on, err);
    }
    make_estimates(at, estimates);
    memset(at->bench->message, 0, (size_t)at->bench->message_bytes);
    return status;
}

/* The drift over all ranks, which made equally many rounds; the same everywhere. */
static enum mist_status find_drift(const struct ops_timer *at,
                                   const struct mist_estimate *estimates,
                                   double *drift_frac, struct mist_err *err)
{
    int32_t n_ranks = at->bench->n_ranks, n_rounds = at->drift.n_rounds;
    double *levels = malloc((size_t)n_rounds * sizeof *levels);
    int64_t *sizes = calloc((size_t)n_ranks, sizeof *sizes);
    char *all = NULL;
    enum mist_status status = MIST_ERR_MEMORY;

    *drift_frac = 0;
    if (!levels || !sizes || !mist_drift_levels(&at->drift, estimates, levels)) {
        mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    status = mist_comm_gather_bytes(at->bench->comm, levels,
                                    n_rounds * (int64_t)sizeof *levels, &all, sizes, err);
    if (status == MIST_OK && all)
        *drift_frac = mist_drift_frac((const double *)(void *)all, n_ranks, n_rounds);
    if (status == MIST_OK)
        status = mist_workbench_max(at->bench, drift_frac, err);
out:
    free(all);
    free(sizes);
    free(levels);
    return status;
}

enum mist_status mist_time_ops(struct mist_workbench *bench, double budget_s,
                               struct mist_estimate *estimates, int32_t *n_rounds,
                               double *drift_frac, struct mist_err *err)
{
    int32_t n = bench->grid->n_keys;
    struct ops_timer at = {.bench = bench,
                           .samples = calloc((size_t)n, sizeof *at.samples)};

    if (!at.samples)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    enum mist_status status = run_rounds(&at, budget_s, estimates, err);
    *n_rounds = at.i_round;
    for (int32_t i = 0; i < n; i++)
        mist_samples_fini(&at.samples[i]);
    free(at.samples);
    if (status == MIST_OK)
        status = mist_workbench_pool(bench, estimates, n, err);
    if (status == MIST_OK)
        status = find_drift(&at, estimates, drift_frac, err);
    mist_drift_fini(&at.drift);
    return status;
}
