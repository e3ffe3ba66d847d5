/* A profiling session. See profile.h. */
#include "profile/profile.h"

#include "core/clock.h"
#include "core/memory.h"
#include "core/parse.h"
#include "profile/checks.h"
#include "profile/ranks.h"
#include "profile/time_links.h"
#include "profile/time_ops.h"
#include "profile/time_probe.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Seconds for each part: quick, and at leisure. */
static const double ops_budget_s[2] = {150, 28};
static const double links_budget_s[2] = {60, 10};
static const double interference_budget_s[2] = {90, 15};
static const double checks_budget_s[2] = {40, 14};
static const double probe_budget_s = 0.2; /* at one time */
static const double probe_frac = 0.2;     /* of an iteration, between those of a check */

/* Operators, messages and mixtures take turns, so that none of them has the machine at
 * another time than the others; probes stand before, between and after. */
enum { N_TURNS = 6, N_PROBES = 2 * N_TURNS + 1 };
static const double set_up_s = 4;      /* MPI, first parameters, launch cost */
static const double gpu_set_up_s = 15; /* and CUDA's libraries, plans of every shape */

/* An optimizer step moves about so much memory; for the estimate only. */
static const double guessed_bytes_per_s = 5e9, bytes_per_parameter = 32;

/* Of a GPU's memory, what arenas may take: the rest is for its libraries and the
 * communicators of all groups that are measured. */
static const double gpu_arena_frac = 0.8;

/* Rows that are known worse than this are counted in the report. */
static const double wide_frac = 0.01;

/* ------------------------------------------------------------------------------- plan */

/* Seconds of one round of mist_time_ops. */
static double guess_round_s(const struct mist_grid *grid,
                            const struct mist_machine *machine, int32_t n_copies,
                            double flop_per_s)
{
    double bytes_per_s =
        fmax(guessed_bytes_per_s, machine->devices.memory_bytes_per_s / 2);
    double time_s = 0;

    for (int32_t v = 0; v < grid->n_variants; v++)
        for (int32_t i = 0; i < grid->config.n_micro_batches; i++)
            time_s += mist_grid_n_passes(grid, i) *
                      mist_grid_pass_flop(grid, v, i, n_copies) / flop_per_s;
    for (int kind = 0; kind < MIST_N_LAYER_KINDS; kind++) {
        double n = (double)mist_grid_padded_elements(grid, (enum mist_layer_kind)kind, 1);
        time_s += n * (kind == MIST_LAYER_BLOCK ? n_copies : 1) * bytes_per_parameter /
                  bytes_per_s;
    }
    return time_s;
}

static int32_t n_node_ranks(const struct mist_grid_config *config)
{
    return config->n_ranks / config->n_nodes;
}

enum mist_status mist_profile_plan(const struct mist_grid *grid,
                                   const struct mist_machine *machine, double flop_per_s,
                                   double link_bytes_per_s, struct mist_profile_plan *out,
                                   struct mist_err *err)
{
    const struct mist_grid_config *config = &grid->config;
    bool is_quick = config->is_quick;
    struct mist_mixture mixtures[MIST_MIXTURES_MAX];
    bool has_gpus = mist_machine_has_gpus(machine);
    int64_t limit_bytes = mist_machine_device_bytes(machine, n_node_ranks(config));
    char need[MIST_FORMAT_BYTES], have[MIST_FORMAT_BYTES];

    *out = (struct mist_profile_plan){0};
    if (has_gpus)
        limit_bytes = (int64_t)(gpu_arena_frac * (double)limit_bytes);
    out->n_copies = mist_workbench_n_copies(grid, limit_bytes);
    if (out->n_copies == 0)
        return mist_err_set(
            err, MIST_ERR_INPUT,
            "one block of %s with embedding and head at micro-batch %d needs %s on each "
            "of %d ranks, this machine has %s for each",
            config->model.name, (int)config->micro_batches[config->n_micro_batches - 1],
            mist_format_bytes(need, sizeof need, mist_workbench_bytes(grid, 1)),
            (int)n_node_ranks(config), mist_format_bytes(have, sizeof have, limit_bytes));
    out->memory_bytes = mist_workbench_bytes(grid, out->n_copies);
    out->n_mixtures = mist_mixtures_make(config->n_ranks, is_quick, mixtures);
    double round_s = guess_round_s(grid, machine, out->n_copies, flop_per_s);
    double begin_s =
        (has_gpus ? gpu_set_up_s : set_up_s) + round_s + N_PROBES * probe_budget_s;
    double usual_s = ops_budget_s[is_quick] + links_budget_s[is_quick] +
                     interference_budget_s[is_quick] + checks_budget_s[is_quick];
    double share = config->time_s > 0 ? fmax(0, (config->time_s - begin_s) / usual_s) : 1;
    out->ops_s =
        fmax(share * ops_budget_s[is_quick], mist_time_ops_least_rounds() * round_s);
    out->links_s = fmax(share * links_budget_s[is_quick],
                        mist_time_links_least_s(grid, link_bytes_per_s));
    out->interference_s = share * interference_budget_s[is_quick];
    out->checks_s = share * checks_budget_s[is_quick];
    if (out->checks_s < MIST_CHECKS_LEAST_S)
        out->checks_s = 0;
    out->limit_bytes = limit_bytes;
    out->probe = mist_probe_usual_work(config->n_threads);
    out->probe_s = probe_budget_s;
    out->expected_s =
        begin_s + out->ops_s + out->links_s + out->interference_s + out->checks_s;
    return MIST_OK;
}

/* ------------------------------------------------------------------------------- rows */

/* The word for the number format, as cost_model.c looks rows up. */
static enum mist_trace_dtype trace_dtype(const struct mist_grid *grid)
{
    return grid->config.dtype == MIST_DTYPE_BF16 ? MIST_TRACE_BF16 : MIST_TRACE_FP32;
}

static enum mist_status add_kernels(const struct mist_grid *grid,
                                    const struct mist_estimate *steps,
                                    struct mist_trace_set *traces, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < grid->n_keys && status == MIST_OK; i++) {
        const struct mist_grid_key *key = &grid->keys[i];
        struct mist_kernel_row row = {.dtype = trace_dtype(grid),
                                      .phase = key->phase,
                                      .time_us = steps[i].mean,
                                      .deviation_us = steps[i].deviation,
                                      .repetitions = steps[i].n,
                                      .flop = key->flop,
                                      .bytes = key->bytes};
        char shape[MIST_SHAPE_TEXT_MAX];
        if (steps[i].n == 0) /* fewer rounds than shard sizes: never for LEAST_ROUNDS */
            continue;
        snprintf(row.op, sizeof row.op, "%s", mist_op_name(key->op));
        status = mist_shape_parse(
            mist_op_shape_text(key->op, key->dims, shape, sizeof shape), &row.shape, err);
        if (status == MIST_OK)
            status = mist_trace_set_add_kernel(traces, &row, err);
    }
    return status;
}

static enum mist_status add_links(const struct mist_grid *grid,
                                  const struct mist_estimate *links,
                                  struct mist_trace_set *traces, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < grid->n_messages && status == MIST_OK; i++) {
        const struct mist_grid_message *message = &grid->messages[i];
        const struct mist_group_shape *shape = &grid->shapes[message->i_shape];
        struct mist_link_row row = {.operation = message->operation,
                                    .nodes = shape->nodes,
                                    .ranks_per_node = shape->ranks_per_node,
                                    .concurrent_groups = shape->concurrent_groups,
                                    .bytes = message->bytes,
                                    .time_us = links[i].mean,
                                    .deviation_us = links[i].deviation,
                                    .repetitions = links[i].n};
        status = mist_trace_set_add_link(traces, &row, err);
    }
    return status;
}

static void describe_session(const struct mist_grid *grid,
                             const struct mist_machine *machine,
                             const struct mist_profile_report *report, char *out,
                             size_t size)
{
    const struct mist_grid_config *config = &grid->config;
    char each[128] = "", sheet[128] = "";

    if (config->n_threads > 0)
        snprintf(each, sizeof each, " of %d threads", (int)config->n_threads);
    if (machine->devices.memory_bytes_per_s > 0)
        snprintf(sheet, sizeof sheet,
                 "; the device says of itself: %d processors at %.2f GHz, memory %.2f "
                 "TB/s",
                 (int)machine->devices.n_processors, machine->devices.clock_hz * 1e-9,
                 machine->devices.memory_bytes_per_s * 1e-12);
    snprintf(out, size,
             "mist-profile %s: %s, sequences of %d, %s, %d ranks%s at once on %d "
             "processors each, tensor parallelism up to %d, operators in passes of a "
             "stage, mean without far outliers; handing over between streams takes %.1f "
             "us%s",
             config->is_quick ? "--quick" : "in full", config->model.name,
             (int)config->seq_len, mist_dtype_words[config->dtype], (int)config->n_ranks,
             each, (int)machine->n_rank_processors,
             (int)grid->variants[grid->n_variants - 1].tp, report->host.hand_over_us,
             sheet);
}

static void fill_cluster(const struct mist_grid *grid, const struct mist_machine *machine,
                         const struct mist_estimate *steps,
                         const struct mist_profile_report *report,
                         struct mist_cluster *out)
{
    double best = 0;

    for (int32_t i = 0; i < grid->n_keys; i++)
        if (steps[i].n > 0)
            best = fmax(best, grid->keys[i].flop / (steps[i].mean * 1e-6));
    mist_machine_describe(machine, grid->config.n_nodes, n_node_ranks(&grid->config),
                          out);
    out->device_threads = grid->config.n_threads;
    out->peak_flop_per_s[trace_dtype(grid)] = best;
    out->memory_bytes_per_s = report->host.memory_bytes_per_s;
    out->launch_us = report->host.launch_us;
    out->runtime_memory_bytes = report->host.runtime_memory_bytes;
    out->drift_frac = report->drift_frac;
    out->skew = report->ops.skew;
    out->streams_take_turns =
        mist_device_takes_turns(grid->config.n_threads, machine->n_rank_processors);
    out->probe_us = report->probe_us;
    describe_session(grid, machine, report, out->how_measured, sizeof out->how_measured);
}

/* ---------------------------------------------------------------------------- session */

/* Results of a session before they become rows. */
struct session {
    struct mist_workbench bench;
    struct mist_time_probe probes;
    struct mist_time_ops *time_ops;
    struct mist_time_links *time_links;
    struct mist_time_interference *time_interference;
    struct mist_estimate *steps, *links;
    struct mist_mixture mixtures[MIST_MIXTURES_MAX];
    int32_t n_mixtures;
};

static enum mist_status open_parts(struct session *session,
                                   const struct mist_profile_plan *plan,
                                   struct mist_err *err)
{
    struct mist_workbench *bench = &session->bench;
    enum mist_status status =
        mist_time_ops_open(bench, plan->ops_s, &session->time_ops, err);

    if (status == MIST_OK)
        status = mist_time_links_open(bench, plan->links_s, &session->time_links, err);
    if (status == MIST_OK)
        status = mist_time_interference_open(bench, plan->interference_s,
                                             session->mixtures, session->n_mixtures,
                                             &session->time_interference, err);
    return status;
}

static void close_parts(struct session *session)
{
    mist_time_ops_close(session->time_ops);
    mist_time_links_close(session->time_links);
    mist_time_interference_close(session->time_interference);
}

/* Of the turns one: each part until share of its budget is gone. */
static enum mist_status take_turn(struct session *session, double share,
                                  struct mist_err *err)
{
    struct mist_workbench *bench = &session->bench;
    enum mist_status status =
        mist_time_ops_run(session->time_ops, share, session->steps, err);

    if (status == MIST_OK)
        status = mist_time_probe(bench, err);
    if (status == MIST_OK)
        status = mist_time_links_run(session->time_links, share, err);
    if (status == MIST_OK)
        status = mist_time_interference_run(session->time_interference, session->steps,
                                            share, err);
    return status == MIST_OK ? mist_time_probe(bench, err) : status;
}

static enum mist_status run_turns(struct session *session,
                                  struct mist_profile_report *report,
                                  struct mist_err *err)
{
    enum mist_status status = mist_time_probe(&session->bench, err);

    for (int i = 1; i <= N_TURNS && status == MIST_OK; i++)
        status = take_turn(session, (double)i / N_TURNS, err);
    if (status == MIST_OK)
        status =
            mist_time_ops_report(session->time_ops, session->steps, &report->ops, err);
    if (status == MIST_OK)
        status = mist_time_links_find(session->time_links, session->links, err);
    if (status == MIST_OK)
        status =
            mist_time_interference_find(session->time_interference, session->mixtures,
                                        &report->n_rounds_interference, err);
    return status;
}

/* The level is what both see that know of it; which of them sees more of a change depends
 * on when it comes. */
static enum mist_status find_level(struct mist_workbench *bench,
                                   struct mist_profile_report *report,
                                   struct mist_err *err)
{
    double drift_frac;
    enum mist_status status =
        mist_time_probe_find(bench, &report->probe_us, &drift_frac, err);

    report->n_probes = (int32_t)bench->probes->means_us.n;
    report->drift_frac = fmax(report->ops.drift_frac, drift_frac);
    return status;
}

/* Probes are gone when it is measured what memory a run needs. */
static enum mist_status run_parts(struct session *session,
                                  const struct mist_profile_plan *plan,
                                  struct mist_profile_report *report,
                                  struct mist_err *err)
{
    struct mist_workbench *bench = &session->bench;
    enum mist_status status =
        mist_time_probe_open(bench, &plan->probe, plan->probe_s, &session->probes, err);

    if (status == MIST_OK)
        status = open_parts(session, plan, err);
    if (status == MIST_OK)
        status = run_turns(session, report, err);
    close_parts(session);
    if (status == MIST_OK)
        status = find_level(bench, report, err);
    mist_time_probe_close(bench, &session->probes);
    return status == MIST_OK ? mist_time_host(bench, &report->host, err) : status;
}

static void count_runs(const struct mist_grid *grid, const struct session *session,
                       struct mist_profile_report *report)
{
    for (int32_t i = 0; i < grid->n_keys + grid->n_messages; i++) {
        bool is_step = i < grid->n_keys;
        const struct mist_estimate *at =
            is_step ? &session->steps[i] : &session->links[i - grid->n_keys];
        report->n_runs += at->n + at->n_outliers;
        report->n_outliers += at->n_outliers;
        if (!is_step || at->n == 0)
            continue;
        report->n_wide += at->half_width_frac > wide_frac;
        report->widest_frac = fmax(report->widest_frac, at->half_width_frac);
    }
}

static enum mist_status fill_traces(const struct mist_profile_config *config,
                                    const struct session *session,
                                    const struct mist_profile_report *report,
                                    struct mist_trace_set *traces, struct mist_err *err)
{
    const struct mist_grid *grid = config->grid;
    enum mist_status status;

    fill_cluster(grid, config->machine, session->steps, report, &traces->cluster);
    status = mist_cluster_check(&traces->cluster, err);
    if (status == MIST_OK)
        status = add_kernels(grid, session->steps, traces, err);
    if (status == MIST_OK)
        status = add_links(grid, session->links, traces, err);
    if (status == MIST_OK)
        status = mist_mixtures_add_rows(session->mixtures, session->n_mixtures,
                                        &grid->config, config->messages, traces, err);
    return status;
}

/* Everything but the checks, which need the device for themselves. plan: the same on all
 * ranks. */
static enum mist_status measure(const struct mist_profile_config *config,
                                const struct mist_profile_plan *plan,
                                const struct mist_bench_place *place,
                                struct session *session,
                                struct mist_profile_report *report, struct mist_err *err)
{
    const struct mist_grid *grid = config->grid;
    struct mist_workbench *bench = &session->bench;
    double start_s = mist_clock_now_s();
    enum mist_status status =
        mist_workbench_open(grid, plan->n_copies, config->comm, place, bench, err);

    bench->journal = config->journal;
    bench->ops = config->ops;
    bench->progress = config->progress;
    bench->time_start_s = start_s;
    bench->expected_s = plan->expected_s;
    session->n_mixtures = mist_mixtures_make(grid->config.n_ranks, grid->config.is_quick,
                                             session->mixtures);
    if (status == MIST_OK)
        status = run_parts(session, plan, report, err);
    count_runs(grid, session, report);
    report->n_repeated = bench->n_repeated;
    mist_workbench_close(bench);
    return status;
}

/* Rank 0's traces become rows, then all ranks run plans. */
static enum mist_status conclude(const struct mist_profile_config *config,
                                 const struct mist_profile_plan *plan,
                                 const struct mist_bench_place *place,
                                 const struct session *session,
                                 const struct mist_profile_report *report,
                                 struct mist_trace_set *traces, struct mist_err *err)
{
    const struct mist_checks_config checks = {.grid = config->grid,
                                              .place = *place,
                                              .limit_bytes = plan->limit_bytes,
                                              .budget_s = plan->checks_s,
                                              .probe_frac =
                                                  plan->probe_s > 0 ? probe_frac : 0,
                                              .journal = config->journal,
                                              .messages = config->messages};
    enum mist_status status = MIST_OK;

    if (mist_comm_rank(config->comm) == 0)
        status = fill_traces(config, session, report, traces, err);
    status = mist_comm_agree(config->comm, status, err);
    if (status == MIST_OK && plan->checks_s > 0)
        status = mist_checks_run(&checks, config->comm, traces, err);
    return status;
}

enum mist_status mist_profile_run(const struct mist_profile_config *config,
                                  struct mist_trace_set *traces,
                                  struct mist_profile_report *report,
                                  struct mist_err *err)
{
    const struct mist_grid *grid = config->grid;
    const struct mist_machine *machine = config->machine;
    struct session *session = calloc(1, sizeof *session);
    double start_s = mist_clock_now_s();
    struct mist_profile_plan plan = *config->plan;
    struct mist_backend_place at = {0};
    enum mist_status status =
        mist_backend_pick_device(&machine->devices, config->comm, &at, err);
    struct mist_bench_place place = {.backend = machine->backend,
                                     .i_device = at.i_device,
                                     .is_alone = at.n_sharing == 1,
                                     .n_sharing = at.n_sharing,
                                     .n_processors = machine->n_rank_processors};

    *report = (struct mist_profile_report){0};
    if (status == MIST_OK && (!session || !MIST_CALLOC(session->steps, grid->n_keys) ||
                              !MIST_CALLOC(session->links, grid->n_messages)))
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = mist_comm_broadcast_bytes(config->comm, 0, &plan, sizeof plan, err);
    if (status == MIST_OK)
        status = measure(config, &plan, &place, session, report, err);
    if (status == MIST_OK)
        status = conclude(config, &plan, &place, session, report, traces, err);
    report->time_s = mist_clock_now_s() - start_s;
    if (session) {
        free(session->steps);
        free(session->links);
    }
    free(session);
    return status;
}
