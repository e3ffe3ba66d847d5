/* Operators timed inside the passes of a micro-batch. See time_ops.h. */
#include "profile/time_ops.h"

#include "core/clock.h"
#include "profile/drift.h"

#include <stdlib.h>

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
    int32_t i_micro_batch;
    int32_t i_round;
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
    const struct mist_grid *grid = at->bench->grid;
    bool is_backward = program == MIST_PROGRAM_BACKWARD;
    struct mist_binding binding;

    mist_workbench_bind(at->bench, at->i_micro_batch, i_module, &binding);
    const int32_t *keys =
        grid->key_of_step[at->i_micro_batch][binding.layout->kind][is_backward];
    int32_t n = mist_binding_n_steps(binding.layout, program);
    double start_s = mist_clock_now_s();
    for (int32_t i = 0; i < n; i++) {
        struct mist_step_args args;
        mist_binding_resolve(&binding, program, i, &args);
        at->bench->operators->run_step(&args);
        double end_s = mist_clock_now_s();
        keep(at, keys[i], end_s - start_s);
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

/* AdamW over this rank's shard of a module, parameter by parameter, as the runtime does
 * it. */
static void run_adamw(struct ops_timer *at, const struct mist_bench_module *module,
                      int64_t n_shard, int64_t first)
{
    const struct mist_workbench *bench = at->bench;
    const struct mist_layer_layout *layout =
        mist_grid_layout(bench->grid, 0, module->kind);
    float *weights = (float *)(void *)module->weights;
    float *gradients = (float *)(void *)module->gradients;
    float *state = (float *)(void *)module->state;

    struct mist_adamw_args args = {.lr = 1e-4f,
                                   .beta1 = 0.9f,
                                   .beta2 = 0.95f,
                                   .epsilon = 1e-8f,
                                   .weight_decay = .1f,
                                   .t = at->i_round + 1};
    mist_binding_run_adamw(layout, weights, gradients, state, first, n_shard, &args,
                           bench->grid->config.n_threads, bench->operators);
}

/* Every module's optimizer step; which shard size comes in turn. */
static void run_optimizer(void *arg)
{
    struct ops_timer *at = arg;
    const struct mist_workbench *bench = at->bench;
    const struct mist_grid *grid = bench->grid;

    for (int32_t i = 0; i < bench->n_copies + 2; i++) {
        const struct mist_bench_module *module = &bench->modules[i];
        int32_t i_shards = (i + at->i_round) % MIST_GRID_N_SHARDS;
        int32_t n_shards = mist_grid_shards(i_shards);
        int64_t n_padded = mist_grid_padded_elements(grid, module->kind, n_shards);
        int64_t n_shard = n_padded / n_shards;
        double start_s = mist_clock_now_s();
        run_adamw(at, module, n_shard, n_shard * (bench->rank % n_shards));
        double middle_s = mist_clock_now_s();
        keep(at, grid->adamw_key[module->kind][i_shards], middle_s - start_s);
        middle_s = mist_clock_now_s();
        bench->operators->zero((float *)(void *)module->gradients, n_padded,
                               grid->config.n_threads);
        keep(at, grid->zero_key[module->kind][i_shards], mist_clock_now_s() - middle_s);
    }
}

/* ----------------------------------------------------------------------------- rounds */

static enum mist_status run_round(struct ops_timer *at, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int32_t n = at->bench->grid->config.n_micro_batches;

    at->drift.n_rounds += !at->is_warm_up;
    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        at->i_micro_batch = i;
        status = mist_workbench_run(at->bench, MIST_STREAM_COMPUTE, run_pass, at, err);
        mist_workbench_show_progress(at->bench);
    }
    if (status == MIST_OK)
        status =
            mist_workbench_run(at->bench, MIST_STREAM_COMPUTE, run_optimizer, at, err);
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

    for (int32_t i = 0; i < MIST_MAX_STEPS; i++) {
        const struct mist_layer_layout *layout =
            mist_grid_layout(grid, 0, MIST_LAYER_BLOCK);
        for (int k = 0; k < 2; k++) {
            int32_t key = grid->key_of_step[0][MIST_LAYER_BLOCK][k][i];
            if (i < (k ? layout->n_backward : layout->n_forward) && key >= 0)
                block_us += estimates[key].mean;
        }
    }
    for (int32_t i = 0; i < grid->n_keys; i++)
        if (estimates[i].mean >= least_share_frac * block_us &&
            estimates[i].half_width_frac > half_width_goal_frac)
            return false;
    return true;
}

static enum mist_status run_rounds(struct ops_timer *at, double budget_s,
                                   struct mist_estimate *estimates, struct mist_err *err)
{
    at->is_warm_up = true;
    enum mist_status status = run_round(at, err);
    at->is_warm_up = false;
    double begin_s = mist_clock_now_s();
    bool goes_on = true;

    while (goes_on && status == MIST_OK) {
        status = run_round(at, err);
        at->i_round++;
        make_estimates(at, estimates);
        double spent_s = mist_clock_now_s() - begin_s;
        double round_s = spent_s / at->i_round;
        goes_on = at->i_round < LEAST_ROUNDS ||
                  (spent_s + round_s < budget_s && !is_precise(at, estimates));
        if (status == MIST_OK)
            status = mist_workbench_any(at->bench, &goes_on, err);
    }
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
