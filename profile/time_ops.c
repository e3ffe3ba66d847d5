/* Operators timed inside the passes of a micro-batch. See time_ops.h. */
#include "profile/time_ops.h"

#include "core/clock.h"
#include "core/memory.h"
#include "exec/runtime/runtime.h" /* threads of updates on the host */
#include "profile/drift.h"
#include "profile/skew.h"
#include "profile/time_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEAST_ROUNDS = 4,
    SPANS_PER_RUN = 512, /* of passes at once on a device with streams of its own */
    SPANS_PER_SHARD = 6,
    AGAIN_EVERY = 4, /* of the blocks, one in so many is recomputed in a pass, another is
                        lean: each block's backward mostly follows what it does without */
};

static const double half_width_goal_frac = 0.01;

/* Rows below this part of a block's time do not keep the rounds going. */
static const double least_share_frac = 0.002;

/* Between two messages of tensor parallelism, of which a block has four. */
static const double step_share_frac = 0.25;

/* Of the time of rounds, that of probes between them. */
static const double probe_frac = 0.2;

/* On a GPU, rounds take at least this part of the budget. */
static const double least_spent_frac = 0.2;

/* What a span of the stopwatch is of. */
struct noted {
    int32_t key;   /* -1: nothing that is kept */
    int32_t first; /* span with which the steps begin that go over into one another */
};

struct mist_time_ops {
    struct mist_workbench *bench;
    double budget_s, spent_s;     /* of time, in rounds */
    double unprobed_s;            /* in rounds since a probe */
    struct mist_samples *samples; /* [n_keys], us */
    struct mist_drift drift;
    struct noted *noted; /* [n_noted] of the run under way */
    size_t noted_capacity;
    int32_t n_noted;
    int32_t *rows; /* [n_keys] of bench->ops; NULL: there is none */
    int32_t i_variant, i_micro_batch;
    int32_t n_repeats; /* passes of a run */
    int32_t i_round;
    int32_t i_next_look;   /* round at which the precision is looked at again */
    bool is_warm;          /* a round was run that is not kept */
    bool is_warm_up;       /* the round at hand is that one */
    bool is_done;          /* all is known well enough, on all ranks */
    float *host;           /* of the device, for updates on the host; NULL: none */
    int64_t host_elements; /* of each of its arrays */
};

int32_t mist_time_ops_least_rounds(void)
{
    return LEAST_ROUNDS;
}

static enum mist_status keep(struct mist_time_ops *at, int32_t key, double time_us,
                             struct mist_err *err)
{
    if (mist_drift_add(&at->drift, key, time_us) &&
        mist_samples_add(&at->samples[key], time_us))
        return MIST_OK;
    return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
}

/* Begins the next span, of steps that go over into one another from span first on. */
static int32_t begin_span(struct mist_time_ops *at, int32_t key, int32_t first)
{
    int32_t id = at->n_noted++;

    at->noted[id] = (struct noted){key, first};
    mist_stopwatch_begin(&at->bench->watch, id, MIST_WORK_OF_DEVICE);
    return id;
}

/* Runs a body of at most n_spans spans and keeps their times. */
static enum mist_status run_and_keep(struct mist_time_ops *at, mist_stream_fn fn,
                                     int64_t n_spans, struct mist_err *err)
{
    const struct mist_stopwatch *watch = &at->bench->watch;

    if (!MIST_RESERVE(at->noted, at->noted_capacity, (size_t)n_spans))
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
    enum mist_status status =
        mist_workbench_run(at->bench, MIST_STREAM_COMPUTE, fn, at, n_spans, err);
    for (int32_t i = 0; i < at->n_noted && status == MIST_OK && !at->is_warm_up; i++) {
        double time_s = mist_stopwatch_time_since_s(watch, at->noted[i].first, i);
        if (at->noted[i].key >= 0 && time_s > 0)
            status = keep(at, at->noted[i].key, time_s * 1e6, err);
        if (at->rows && at->noted[i].key >= 0 && time_s > 0)
            mist_op_table_add_calls(at->bench->ops, at->rows[at->noted[i].key], 1,
                                    time_s);
    }
    for (size_t i = 0; i < watch->n_works && at->rows && !at->is_warm_up; i++) {
        const struct mist_span_work *work = &watch->works[i];
        if (at->noted[work->id].key >= 0)
            mist_op_table_add_kernel(at->bench->ops, at->rows[at->noted[work->id].key],
                                     work->name, work->end_s - work->start_s);
    }
    return status;
}

/* ----------------------------------------------------------------------------- passes */

static void time_program(struct mist_time_ops *at, int32_t i_module,
                         enum mist_program_kind program)
{
    bool is_backward = mist_program_is_backward(program);
    struct mist_binding binding;

    mist_workbench_bind(at->bench, at->i_variant, at->i_micro_batch, i_module, &binding);
    const int32_t *keys = mist_grid_keys(at->bench->grid, at->i_variant,
                                         at->i_micro_batch, binding.layout->kind)
                              ->of[is_backward];
    const struct mist_program *steps = &binding.layout->programs[program];
    int32_t begin = steps->parts[0].first_step, first = at->n_noted;
    for (int32_t i = begin; i < begin + steps->n_steps; i++) {
        struct mist_step_args args;
        int32_t id = begin_span(at, keys[i], first);
        mist_binding_resolve(&binding, program, i, &args);
        if (keys[i] < 0)
            mist_workbench_stand_in(at->bench, &args);
        else
            at->bench->operators->run_step(&args);
        mist_stopwatch_end(&at->bench->watch, id);
    }
}

/* One micro-batch through the whole stage. */
static void run_pass(struct mist_time_ops *at, int32_t i_pass)
{
    int32_t n = at->bench->n_copies;

    for (int32_t i = 0; i <= n + 1; i++)
        time_program(at, i, MIST_PROGRAM_FORWARD);
    for (int32_t i = n + 1; i >= 0; i--) {
        if (i >= 1 && i <= n && (i + i_pass) % AGAIN_EVERY == 0)
            time_program(at, i, MIST_PROGRAM_RECOMPUTE);
        if (i >= 1 && i <= n && (i + i_pass) % AGAIN_EVERY == 1)
            time_program(at, i, MIST_PROGRAM_REMAKE);
        time_program(at, i, MIST_PROGRAM_BACKWARD);
    }
}

static void run_passes(void *arg)
{
    struct mist_time_ops *at = arg;

    at->n_noted = 0;
    for (int32_t i = 0; i < at->n_repeats; i++)
        run_pass(at, at->i_round * at->n_repeats + i);
}

/* Spans of a pass, at most: every block's forward may come twice. */
static int32_t n_spans_of_pass(const struct mist_time_ops *at)
{
    int32_t n = 0;

    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        const struct mist_layer_layout *layout =
            mist_grid_layout(at->bench->grid, at->i_variant, at->i_micro_batch,
                             (enum mist_layer_kind)kind);
        n += (kind == MIST_LAYER_BLOCK ? at->bench->n_copies : 1) *
             (2 * layout->n_forward + layout->n_backward);
    }
    return n;
}

/* ------------------------------------------------------------------------- optimizer */

static struct mist_adamw_args step_of(const struct mist_time_ops *at)
{
    return (struct mist_adamw_args){.lr = 1e-4f,
                                    .beta1 = 0.9f,
                                    .beta2 = 0.95f,
                                    .epsilon = 1e-8f,
                                    .weight_decay = .1f,
                                    .gradient_scale = 1,
                                    .t = at->i_round + 1};
}

/* AdamW over this rank's shard of a slab, parameter by parameter, as the runtime
 * does it. */
static void run_adamw(const struct mist_time_ops *at,
                      const struct mist_bench_module *module,
                      const struct mist_grid_shard *shard, int64_t first)
{
    const struct mist_workbench *bench = at->bench;
    bool is_bf16 = bench->grid->config.dtype == MIST_DTYPE_BF16;
    struct mist_binding_update update = {
        .layout = mist_grid_layout(bench->grid, shard->i_variant, 0, module->kind),
        .storage = NULL,
        .i_slab = 0,
        .first = first,
        .n = shard->n,
        .weights = is_bf16 ? bench->updated : module->weights,
        .gradients = (float *)(void *)module->gradients,
        .weights_first = is_bf16 ? first : 0,
        .gradients_first = 0,
        .state = (float *)(void *)module->state,
        .backend = bench->backend,
        .n_threads = bench->grid->config.n_threads,
    };
    struct mist_adamw_args args = step_of(at);

    mist_binding_run_adamw(&update, &args, bench->operators);
}

/* What is done to a shard of gradients, and to the whole, when a micro-batch ends: what
 * came from other ranks (here zeros) is added to gradients that no near cache holds, and
 * their squares are summed at once. */
static void time_sums(struct mist_time_ops *at, const struct mist_bench_module *module,
                      const struct mist_grid_shard *shard)
{
    struct mist_workbench *bench = at->bench;
    const struct mist_operators *operators = bench->operators;
    int32_t n_threads = bench->grid->config.n_threads;
    float *gradients = (float *)(void *)module->gradients + shard->slab_first;
    const float *came = (const float *)(const void *)bench->message;
    struct mist_tally *tally = mist_device_results(bench->device);

    for (int k = 0; k < (shard->n < shard->n_whole ? 2 : 1); k++) {
        int64_t n = k ? shard->n_whole : shard->n;
        float *to = gradients + (k ? 0 : shard->n * (bench->rank % shard->n_shards));
        int32_t id = begin_span(at, shard->add_key[k], at->n_noted);
        operators->add(bench->backend, MIST_DTYPE_FP32, to, came, n, n_threads);
        mist_stopwatch_end(&bench->watch, id);
        id = begin_span(at, shard->norm_key[k], at->n_noted);
        operators->sum_squares(bench->backend, MIST_DTYPE_FP32, to, n, 0, tally,
                               n_threads);
        mist_stopwatch_end(&bench->watch, id);
    }
}

/* What is done once per step. */
static void time_update(struct mist_time_ops *at, const struct mist_bench_module *module,
                        const struct mist_grid_shard *shard)
{
    struct mist_workbench *bench = at->bench;
    int64_t first = shard->slab_first + shard->n * (bench->rank % shard->n_shards);
    struct mist_adamw_args args = step_of(at);

    mist_operators_prepare_update(bench->operators, bench->backend, &args);
    int32_t id = begin_span(at, shard->adamw_key, at->n_noted);
    run_adamw(at, module, shard, first);
    mist_stopwatch_end(&bench->watch, id);
    id = begin_span(at, shard->zero_key, at->n_noted);
    bench->operators->zero(bench->backend, MIST_DTYPE_FP32,
                           (float *)(void *)module->gradients + shard->slab_first,
                           shard->n_whole, bench->grid->config.n_threads);
    mist_stopwatch_end(&bench->watch, id);
}

/* All shards of one kind, in turn on its modules: sums or updates. */
static void run_shards(struct mist_time_ops *at, enum mist_layer_kind kind,
                       int32_t i_first, int32_t n_modules, bool is_update)
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
            const struct mist_bench_module *module = &bench->modules[i_first + i];
            const struct mist_grid_shard *shard =
                &grid->shards[begin + ((at->i_round * n_modules + i) * n_each + k) % n];
            if (is_update && k > 0)
                mist_workbench_clear_state(bench, i_first + i);
            if (is_update)
                time_update(at, module, shard);
            else
                time_sums(at, module, shard);
        }
}

static void run_optimizer(void *arg)
{
    struct mist_time_ops *at = arg;
    int32_t n = at->bench->n_copies;

    at->n_noted = 0;
    for (int is_update = 0; is_update < 2; is_update++) {
        run_shards(at, MIST_LAYER_EMBEDDING, 0, 1, is_update);
        run_shards(at, MIST_LAYER_BLOCK, 1, n, is_update);
        run_shards(at, MIST_LAYER_HEAD, n + 1, 1, is_update);
    }
    mist_workbench_clear(at->bench);
}

/* Arrays for the largest update on the host: parameters, moments, masters, gradients. */
enum { N_HOST_ARRAYS = 5 };

static enum mist_status alloc_host(struct mist_time_ops *at, struct mist_err *err)
{
    const struct mist_grid *grid = at->bench->grid;
    void *memory = NULL;

    for (int32_t i = 0; i < grid->n_shards; i++)
        if (grid->shards[i].host_key >= 0 && grid->shards[i].n > at->host_elements)
            at->host_elements = grid->shards[i].n;
    if (at->host_elements == 0)
        return MIST_OK;
    enum mist_status status = mist_device_alloc_host(
        at->bench->device, at->host_elements * N_HOST_ARRAYS * (int64_t)sizeof *at->host,
        &memory, err);
    at->host = memory;
    return status;
}

/* One update on the host, in memory that the device copies from; us. */
static double time_host_update(const struct mist_time_ops *at, int64_t n,
                               int32_t n_threads)
{
    enum mist_dtype dtype = at->bench->grid->config.dtype;
    int64_t step = at->host_elements;
    struct mist_adamw_args args = step_of(at);
    struct mist_adamw_span span = {.p = at->host,
                                   .m = at->host + step,
                                   .v = at->host + 2 * step,
                                   .master = at->host + 3 * step,
                                   .g = at->host + 4 * step,
                                   .n = n,
                                   .decays = true};
    double begin_s = mist_clock_now_s();

    mist_operators_cpu.adamw(NULL, dtype, &span, 1, &args, n_threads);
    return (mist_clock_now_s() - begin_s) * 1e6;
}

/* Updates on the host of all shards, on all ranks at once, as in a run. */
static enum mist_status run_host_updates(struct mist_time_ops *at, struct mist_err *err)
{
    const struct mist_workbench *bench = at->bench;
    const struct mist_grid *grid = bench->grid;
    int32_t n_threads =
        mist_runtime_host_threads(grid->config.n_threads, bench->place.n_processors);
    enum mist_status status = mist_comm_barrier(bench->comm, err);

    for (int32_t i = 0; i < grid->n_shards && status == MIST_OK; i++) {
        double time_us = time_host_update(at, grid->shards[i].n, n_threads);
        if (!at->is_warm_up)
            status = keep(at, grid->shards[i].host_key, time_us, err);
        if (!at->is_warm_up && at->rows)
            mist_op_table_add_calls(bench->ops, at->rows[grid->shards[i].host_key], 1,
                                    time_us * 1e-6);
    }
    return status;
}

/* ----------------------------------------------------------------------------- rounds */

/* Passes of the variant and micro-batch at hand. */
static enum mist_status run_passes_of_cell(struct mist_time_ops *at, struct mist_err *err)
{
    int32_t n_spans = n_spans_of_pass(at);

    at->n_repeats = mist_grid_n_passes(at->bench->grid, at->i_micro_batch);
    if (!mist_workbench_is_on_host(at->bench) && at->n_repeats < SPANS_PER_RUN / n_spans)
        at->n_repeats = SPANS_PER_RUN / n_spans;
    return run_and_keep(at, run_passes, (int64_t)at->n_repeats * n_spans, err);
}

static enum mist_status run_round(struct mist_time_ops *at, struct mist_err *err)
{
    const struct mist_grid *grid = at->bench->grid;
    enum mist_status status = MIST_OK;

    at->drift.n_rounds += !at->is_warm_up;
    for (int32_t i = 0; i < grid->n_variants * grid->config.n_micro_batches; i++) {
        at->i_variant = i / grid->config.n_micro_batches;
        at->i_micro_batch = i % grid->config.n_micro_batches;
        if (status == MIST_OK && mist_grid_has(grid, at->i_variant, at->i_micro_batch))
            status = run_passes_of_cell(at, err);
        mist_workbench_show_progress(at->bench);
    }
    if (status == MIST_OK)
        status = run_and_keep(
            at, run_optimizer,
            SPANS_PER_SHARD * (int64_t)(grid->n_shards + at->bench->n_copies + 2), err);
    if (status == MIST_OK && at->host)
        status = run_host_updates(at, err);
    return status;
}

/* The next round of an earlier session; *is_there false: there is none. */
static enum mist_status take_round(struct mist_time_ops *at, double *time_s,
                                   bool *is_there, struct mist_err *err)
{
    int64_t n_bytes;
    const char *bytes = mist_journal_take(at->bench->journal, MIST_JOURNAL_OPS, &n_bytes);
    struct mist_drift_run run;
    enum mist_status status = MIST_OK;

    *is_there = bytes != NULL;
    if (!bytes)
        return MIST_OK;
    at->drift.n_rounds++;
    memcpy(time_s, bytes, sizeof *time_s);
    for (int64_t i = (int64_t)sizeof *time_s; i + (int64_t)sizeof run <= n_bytes;
         i += (int64_t)sizeof run) {
        memcpy(&run, bytes + i, sizeof run);
        if (status == MIST_OK && run.key >= 0 && run.key < at->bench->grid->n_keys)
            status = keep(at, run.key, run.time_us, err);
    }
    return status;
}

/* Puts the runs from number first on into the journal. */
static enum mist_status note_round(struct mist_time_ops *at, size_t first, double time_s,
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

static void make_estimates(const struct mist_time_ops *at,
                           struct mist_estimate *estimates)
{
    for (int32_t i = 0; i < at->bench->grid->n_keys; i++)
        estimates[i] = mist_estimate_make(at->samples[i].values, at->samples[i].n);
}

/* True when the rows that matter are known well enough on this rank. */
static bool is_precise(const struct mist_time_ops *at,
                       const struct mist_estimate *estimates)
{
    const struct mist_grid *grid = at->bench->grid;
    double least_us = least_share_frac * mist_grid_block_us(at->bench->grid, estimates);

    for (int32_t i = 0; i < grid->n_keys; i++)
        if (estimates[i].mean >= least_us &&
            estimates[i].half_width_frac > half_width_goal_frac)
            return false;
    return true;
}

/*
 * Whether another round is to be made until share of the budget is gone: the same answer on
 * all ranks. Estimates take time in proportion to all rounds so far, so they are made when
 * there are an eighth more.
 */
static enum mist_status ask_whether_to_go_on(struct mist_time_ops *at, double share,
                                             struct mist_estimate *estimates,
                                             bool *goes_on, struct mist_err *err)
{
    double round_s = at->i_round > 0 ? at->spent_s / at->i_round : 0;
    bool is_needed = at->i_round < ceil(share * LEAST_ROUNDS);

    if (at->i_round >= LEAST_ROUNDS && at->i_round >= at->i_next_look) {
        make_estimates(at, estimates);
        bool is_young = !mist_workbench_is_on_host(at->bench) &&
                        at->spent_s < least_spent_frac * at->budget_s;
        bool is_wanting = is_young || !is_precise(at, estimates);
        enum mist_status status = mist_workbench_any(at->bench, &is_wanting, err);
        if (status != MIST_OK)
            return status;
        at->is_done = !is_wanting;
        at->i_next_look = at->i_round + at->i_round / 8 + 1;
    }
    *goes_on =
        is_needed || (!at->is_done && at->spent_s + round_s < share * at->budget_s);
    return mist_workbench_any(at->bench, goes_on, err);
}

/* Probes, so that the level is of the time in which operators were measured, unless they would
 * take more than their part of it. */
static enum mist_status probe(struct mist_time_ops *at, double round_s,
                              struct mist_err *err)
{
    const struct mist_time_probe *probes = at->bench->probes;
    bool is_due;

    at->unprobed_s += round_s;
    is_due = probes && at->unprobed_s * probe_frac >= probes->duration_s;
    enum mist_status status = mist_workbench_any(at->bench, &is_due, err);
    if (status != MIST_OK || !is_due)
        return status;
    at->unprobed_s = 0;
    return mist_time_probe(at->bench, err);
}

/* A round, measured and noted, with what was done since the one before. */
static enum mist_status run_noted_round(struct mist_time_ops *at, double *begin_s,
                                        double *time_s, struct mist_err *err)
{
    size_t n_before = at->drift.n_runs;
    enum mist_status status = run_round(at, err);

    *time_s = mist_clock_now_s() - *begin_s;
    *begin_s += *time_s;
    return status == MIST_OK ? note_round(at, n_before, *time_s, err) : status;
}

static enum mist_status warm_up(struct mist_time_ops *at, struct mist_err *err)
{
    at->is_warm_up = true;
    enum mist_status status = run_round(at, err);
    at->is_warm_up = false;
    at->is_warm = true;
    return status;
}

/* Rounds until share of the budget is gone; those of an earlier session come first. */
static enum mist_status run_rounds(struct mist_time_ops *at, double share,
                                   struct mist_estimate *estimates, struct mist_err *err)
{
    double begin_s = mist_clock_now_s(), time_s = 0;
    bool goes_on, is_there;
    enum mist_status status = ask_whether_to_go_on(at, share, estimates, &goes_on, err);

    while (status == MIST_OK && goes_on) {
        status = take_round(at, &time_s, &is_there, err);
        if (status == MIST_OK && !is_there && !at->is_warm) {
            status = warm_up(at, err);
            begin_s = mist_clock_now_s();
        }
        if (status == MIST_OK && !is_there)
            status = run_noted_round(at, &begin_s, &time_s, err);
        at->i_round++;
        at->spent_s += time_s;
        if (status == MIST_OK)
            status = probe(at, time_s, err);
        if (status == MIST_OK)
            status = ask_whether_to_go_on(at, share, estimates, &goes_on, err);
    }
    return status;
}

/* The drift over all ranks, which made equally many rounds; the same everywhere. */
static enum mist_status find_drift(const struct mist_time_ops *at,
                                   const struct mist_estimate *estimates,
                                   double *drift_frac, struct mist_err *err)
{
    int32_t n_ranks = at->bench->n_ranks, n_rounds = at->drift.n_rounds;
    double *levels = malloc((size_t)n_rounds * sizeof *levels);
    char *all = NULL;
    enum mist_status status = MIST_ERR_MEMORY;

    *drift_frac = 0;
    if (!levels || !mist_drift_levels(&at->drift, estimates, levels)) {
        mist_err_memory(err, NULL);
        goto out;
    }
    status = mist_comm_gather_bytes(at->bench->comm, levels,
                                    n_rounds * (int64_t)sizeof *levels, &all, NULL, err);
    if (status == MIST_OK && all)
        *drift_frac = mist_drift_frac((double *)(void *)all, n_ranks, n_rounds);
    if (status == MIST_OK)
        status = mist_workbench_max(at->bench, drift_frac, err);
out:
    free(all);
    free(levels);
    return status;
}

/* The rows of the table that people get, one for each key. */
static enum mist_status make_rows(struct mist_time_ops *at, struct mist_err *err)
{
    const struct mist_grid *grid = at->bench->grid;

    if (!at->bench->ops)
        return MIST_OK;
    if (!MIST_CALLOC(at->rows, grid->n_keys))
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < grid->n_keys; i++) {
        const struct mist_grid_key *key = &grid->keys[i];
        at->rows[i] = mist_op_table_op(at->bench->ops, key->op, key->phase, key->dims,
                                       key->flop, key->bytes);
    }
    return MIST_OK;
}

enum mist_status mist_time_ops_open(struct mist_workbench *bench, double budget_s,
                                    struct mist_time_ops **out, struct mist_err *err)
{
    struct mist_time_ops *at = *out = calloc(1, sizeof *at);

    if (!at || !MIST_CALLOC(at->samples, bench->grid->n_keys))
        return mist_err_memory(err, NULL);
    at->bench = bench;
    at->budget_s = budget_s;
    enum mist_status status = make_rows(at, err);
    return status == MIST_OK ? alloc_host(at, err) : status;
}

void mist_time_ops_close(struct mist_time_ops *at)
{
    if (!at)
        return;
    for (int32_t i = 0; i < at->bench->grid->n_keys && at->samples; i++)
        mist_samples_fini(&at->samples[i]);
    mist_device_free_host(at->bench->device, at->host);
    mist_drift_fini(&at->drift);
    free(at->samples);
    free(at->noted);
    free(at->rows);
    free(at);
}

enum mist_status mist_time_ops_run(struct mist_time_ops *at, double share,
                                   struct mist_estimate *estimates, struct mist_err *err)
{
    at->bench->watch.keeps_works = at->bench->ops != NULL;
    enum mist_status status = run_rounds(at, share, estimates, err);
    at->bench->watch.keeps_works = false;
    if (status != MIST_OK)
        return status;
    make_estimates(at, estimates);
    return mist_workbench_pool(at->bench, estimates, at->bench->grid->n_keys, err);
}

enum mist_status mist_time_ops_report(const struct mist_time_ops *at,
                                      const struct mist_estimate *estimates,
                                      struct mist_time_ops_report *out,
                                      struct mist_err *err)
{
    struct mist_workbench *bench = at->bench;
    double one_us = mist_grid_block_us(at->bench->grid, estimates);

    *out = (struct mist_time_ops_report){.n_rounds = at->i_round};
    enum mist_status status = find_drift(at, estimates, &out->drift_frac, err);
    if (status == MIST_OK)
        status =
            mist_skew_find(bench->comm, &at->drift, estimates, one_us * bench->n_copies,
                           one_us * step_share_frac, &out->skew, err);
    if (status == MIST_OK && bench->ops)
        status = mist_op_table_gather(bench->ops, bench->comm, err);
    return status;
}
