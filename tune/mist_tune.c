/*
 * mist-tune: finds the fastest plan for a model on a cluster.
 *
 *     $ mist-tune --model gpt3-demo --cluster traces/this --global-batch 16 --seq-len 128
 *     Best plan
 *       iteration, by replay     689 ms
 *       its error bar, +-        12.1 ms
 *       ...
 *     Stages
 *       stage  layers  dp  tp  sp  b  ZeRO  checkpointed  lean  offloaded            t ...
 *           0       6   1   1   0  2     0             0     6  optimizer 50 %  80.1 ms
 *           1       6   1   1   0  2     0             0     0                  82.0 ms
 *     ...
 */
#include "core/atomic_file.h"
#include "core/clock.h"
#include "core/embed.h"
#include "core/interrupt.h"
#include "core/message.h"
#include "core/options.h"
#include "core/parse.h"
#include "core/progress.h"
#include "sim/cost/trace_use.h"
#include "sim/sim_job.h"
#include "traces/preset.h"
#include "tune/ablate.h"
#include "tune/alike.h"
#include "tune/no_plan.h"
#include "tune/plans_folder.h"
#include "tune/sample_plans.h"
#include "tune/search_log.h"
#include "tune/stage_price.h"
#include "tune/target.h"
#include "tune/tune_report.h"
#include "tune/validate.h"
#include "tune/verify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct options {
    struct mist_common_options common;
    const char *model, *cluster, *log, *pareto, *plans, *launch, *export, *slower;
    struct mist_option_list space, fixed, limited;
    bool is_uniform, is_thorough;
    int64_t global_batch, seq_len, device_memory_bytes, n_ranks, n_nodes,
        n_devices_per_node, n_threads, n_top, n_points, n_samples, n_verified,
        n_iterations;
    double glpk_time_s, verify_limit_s;
    int solver, dtype, gradient_dtype, target; /* enum mist_framework_name */
    bool explains, ablates;
};

/* In the order of enum mist_search_solver. */
static const char *const solvers[] = {"exact", "glpk", "both", NULL};

#define ROW(...)    MIST_OPTION_ROW(struct options, __VA_ARGS__)
#define CHOICE(...) MIST_OPTION_ROW_CHOICE(struct options, __VA_ARGS__)
#define REQUIRED(i_name, i_kind, i_group, i_value, i_help, i_min, i_max, i_member)       \
    {                                                                                    \
        .name = i_name, .kind = i_kind, .group = i_group, .value_name = i_value,         \
        .help = i_help, .min = i_min, .max = i_max, .is_required = true,                 \
        .offset = offsetof(struct options, i_member)                                     \
    }

static const struct mist_option option_table[] = {
    REQUIRED("model", MIST_OPTION_STRING, "Job", "NAME",
             "preset, or a Hugging Face config.json or folder", 0, 0, model),
    REQUIRED("global-batch", MIST_OPTION_INT64, "Job", "N", "samples per optimizer step",
             1, 1 << 24, global_batch),
    REQUIRED("seq-len", MIST_OPTION_INT64, "Job", "N", "tokens per sample", 1,
             MIST_MODEL_MAX_SEQ, seq_len),
    REQUIRED("cluster", MIST_OPTION_STRING, "Cluster", "CLUSTER",
             "trace set from mist-profile, or a preset such as "
             "h100-sxm:8x8,nic=8x400Gb/s (mist-sim --presets lists them)",
             0, 0, cluster),
    ROW("ranks", MIST_OPTION_INT64, "Cluster", "N",
        "devices to use; 0: all of the cluster", "0", 0, 1 << 20, n_ranks),
    ROW("nodes", MIST_OPTION_INT64, "Cluster", "N",
        "nodes; 0: as many as the trace set says", "0", 0, 1 << 20, n_nodes),
    ROW("devices-per-node", MIST_OPTION_INT64, "Cluster", "N",
        "devices of a node; 0: as many as the trace set says", "0", 0, 1 << 12,
        n_devices_per_node),
    ROW("device-memory", MIST_OPTION_BYTES, "Cluster", "BYTES",
        "memory of a device; 0: what the trace set says", "0", 0, 9e18,
        device_memory_bytes),
    ROW("threads", MIST_OPTION_INT64, "Cluster", "N",
        "compute threads of a device; 0: what the trace set says, else 1", "0", 0, 1024,
        n_threads),
    ROW("space", MIST_OPTION_LIST, "Search", "GROUP",
        "knobs to search: 3d, zero, ckpt, offload, imbalance, mesh, sequence, schedule, "
        "lean; default: all",
        NULL, 0, 0, space),
    ROW("fix", MIST_OPTION_LIST, "Search", "KNOB=VALUE",
        "plans with that value in every stage alone: pp, dp, tp, micro-batch, "
        "micro-batches, layers, sequence, zero, ckpt, lean, offload-weights (-gradients, "
        "-optimizer, -activations), update-on, schedule, chunks",
        NULL, 0, 0, fixed),
    ROW("max", MIST_OPTION_LIST, "Search", "KNOB=VALUE",
        "plans with at most that value in every stage", NULL, 0, 0, limited),
    {.name = "uniform",
     .kind = MIST_OPTION_FLAG,
     .group = "Search",
     .help = "plans whose stages are all alike",
     .offset = offsetof(struct options, is_uniform)},
    {.name = "thorough",
     .kind = MIST_OPTION_FLAG,
     .group = "Search",
     .help = "also plan what may fit although its memory is priced too high",
     .offset = offsetof(struct options, is_thorough)},
    ROW("prefer-simple", MIST_OPTION_STRING, "Search", "FRAC",
        "take the plan with the fewest techniques that is no slower than that, such as "
        "2%",
        NULL, 0, 0, slower),
    CHOICE("dtype", "Job", "TYPE",
           "of weights and activations; fp16 can be predicted, not run", "fp32",
           mist_dtype_words, dtype),
    CHOICE("gradient-dtype", "Job", "TYPE",
           "of gradients of weights as they are kept and sent (sums are fp32); bf16 and "
           "fp16 need the same --dtype",
           "fp32", mist_dtype_words, gradient_dtype),
    CHOICE("target", "Search", "NAME",
           "search what that framework can express, priced by its profile", "ours",
           mist_framework_words, target),
    CHOICE("solver", "Search", "WHICH", "across stages; both: exact, compared with GLPK",
           "exact", solvers, solver),
    ROW("glpk-time", MIST_OPTION_TIME_S, "Search", "TIME", "limit for GLPK, per case",
        "2s", 1e-3, 1e6, glpk_time_s),
    ROW("top", MIST_OPTION_INT64, "Search", "K", "best plans to replay and to rank", "16",
        1, 4096, n_top),
    ROW("frontier", MIST_OPTION_INT64, "Search", "N",
        "points of a frontier to keep; 0: all, which is exact", "0", 0, 1 << 20,
        n_points),
    ROW("verify", MIST_OPTION_INT64, "Verification", "K",
        "run the K best plans by mist-exec, and choose by what is measured", NULL, 1,
        MIST_VERIFY_MAX_PLANS, n_verified),
    ROW("verify-iterations", MIST_OPTION_INT64, "Verification", "N",
        "iterations of a run; every plan is run three times", "6", 2, 10000,
        n_iterations),
    ROW("verify-limit", MIST_OPTION_TIME_S, "Verification", "TIME",
        "end a run after that long; 0s: 60 s and 20 times what is predicted", "0s", 0,
        1e7, verify_limit_s),
    ROW("launch", MIST_OPTION_STRING, "Verification", "CMD",
        "how ranks are started, such as 'srun -n {ranks}'; default: by mpirun, on this "
        "machine",
        NULL, 0, 0, launch),
    ROW("explain", MIST_OPTION_FLAG, "Results", NULL,
        "where the best plan's time goes, and what is in memory at its peak", NULL, 0, 0,
        explains),
    ROW("ablate", MIST_OPTION_FLAG, "Results", NULL,
        "print the best plan as the groups of --space are added one by one, and end",
        NULL, 0, 0, ablates),
    ROW("log", MIST_OPTION_STRING, "Results", "FILE",
        "write every configuration and what became of it as CSV", NULL, 0, 0, log),
    ROW("pareto", MIST_OPTION_STRING, "Results", "FILE",
        "write the best plan's frontiers for mist-plot pareto", NULL, 0, 0, pareto),
    ROW("plans", MIST_OPTION_STRING, "Results", "DIR",
        "write the best plans, or those of --sample-plans, into a folder", NULL, 0, 0,
        plans),
    ROW("sample-plans", MIST_OPTION_INT64, "Results", "M",
        "into --plans: not the best plans but M from all over the space (see --seed)",
        "0", 0, 4096, n_samples),
    ROW("export", MIST_OPTION_STRING, "Results", "FILE",
        "write the best plan as arguments of --target", NULL, 0, 0, export),
    MIST_OPTION_ROW_OUTPUT(struct options, "where the best plan goes", NULL),
    MIST_OPTION_ROW_DRY_RUN(struct options),
    MIST_OPTION_ROW_FORCE(struct options),
    MIST_OPTION_ROW_JOBS(struct options),
    MIST_OPTION_ROW_JSON(struct options),
    MIST_OPTION_ROW_CSV(struct options),
    MIST_OPTION_ROW_NO_COLOR(struct options),
    MIST_OPTION_ROW_PROGRESS(struct options),
    MIST_OPTION_ROW_QUIET(struct options),
    MIST_OPTION_ROW_SEED(struct options),
    MIST_OPTION_ROW_VERBOSE(struct options),
};

static const char *const examples[] = {
    "mist-tune --model gpt3-demo --cluster traces --global-batch 16 --seq-len 128 "
    "-o plan.json",
    "mist-tune --model gpt3-demo --cluster traces --global-batch 16 --seq-len 128 "
    "--device-memory 96MiB --verify 4 -o plan.json",
    "mist-tune --model llama3-8b --cluster h100-sxm:8x8,nic=8x400Gb/s --dtype bf16 "
    "--global-batch 512 --seq-len 8192 -o plan.json",
    "mist-tune --target megatron --model llama3-8b --cluster h100-sxm:8x8,nic=8x400Gb/s "
    "--dtype bf16 --global-batch 512 --seq-len 8192 --export run.sh",
    NULL};

extern const char mist_tune_manual[];
MIST_EMBED(mist_tune_manual, "tune/mist_tune.man");

static const struct mist_tool tool = {
    .name = "mist-tune",
    .purpose = "finds the fastest plan that fits the device memory",
    .examples = examples,
    .options = option_table,
    .n_options = sizeof option_table / sizeof *option_table,
    .manual = mist_tune_manual,
    .exit_text =
        "  4  no plan fits\n  128+n  stopped by signal n: Ctrl-C (SIGINT), SIGTERM "
        "or SIGUSR1; the best plan so far\n         is written, but a second Ctrl-C ends "
        "the search at once\n",
};

struct session {
    struct options options;
    struct mist_messages messages;
    enum mist_emit_kind kind;
    struct mist_model model;
    struct mist_job job;
    struct mist_trace_set traces;
    struct mist_bounds bounds;
    struct mist_space space;
    struct mist_cost_model *cost_model;
    struct mist_stage_price *price;
    struct mist_thread_pool *pool;
    struct mist_validate_config config;
    struct mist_search_rows rows; /* for --log and --pareto */
    struct mist_verify_config verify;
    struct mist_verify_result verified;
    struct mist_runners_up runners_up;
    bool has_space, was_stopped; /* by a signal */
};

/* --------------------------------------------------------------------------- prepare */

static enum mist_status load_job(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    enum mist_status status = mist_model_load(options->model, &at->model, err);

    if (status != MIST_OK)
        return status;
    at->job =
        (struct mist_job){.global_batch = options->global_batch,
                          .seq_len = (int32_t)options->seq_len,
                          .dtype = (enum mist_dtype)options->dtype,
                          .gradient_dtype = (enum mist_dtype)options->gradient_dtype};
    mist_target_set((enum mist_framework_name)options->target, &at->messages, &at->model,
                    &at->job);
    if (at->job.gradient_dtype != MIST_DTYPE_FP32 &&
        at->job.gradient_dtype != at->job.dtype)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--gradient-dtype is %s with --dtype %s; it needs --dtype %s",
                            mist_dtype_name(at->job.gradient_dtype),
                            mist_dtype_name(at->job.dtype),
                            mist_dtype_name(at->job.gradient_dtype));
    if (at->model.max_seq > 0 && at->job.seq_len > at->model.max_seq)
        return mist_err_set(err, MIST_ERR_USAGE, "--seq-len is %d; %s has %d positions",
                            (int)at->job.seq_len, at->model.name, (int)at->model.max_seq);
    return MIST_OK;
}

/* A memory that no device has: the unit is missing. */
static enum mist_status check_device_memory(const struct options *options,
                                            struct mist_err *err)
{
    if (options->device_memory_bytes == 0 || options->device_memory_bytes >= 1 << 20)
        return MIST_OK;
    return mist_err_set(
        err, MIST_ERR_USAGE,
        "--device-memory is %lld bytes, which can't be meant; a unit stands "
        "behind the number: %lldGiB",
        (long long)options->device_memory_bytes, (long long)options->device_memory_bytes);
}

/* Ranks are placed in order, node after node, and only the last may have places left. */
static enum mist_status check_ranks(const struct options *options,
                                    const struct mist_cluster *cluster,
                                    struct mist_err *err)
{
    int64_t n = options->n_ranks, per_node = cluster->devices_per_node;

    if (n > (int64_t)cluster->nodes * per_node)
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "--ranks is %lld; the cluster has %d x %d devices (see --nodes and "
            "--devices-per-node)",
            (long long)n, cluster->nodes, cluster->devices_per_node);
    if (n > per_node && n % per_node != 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--ranks is %lld, which are no whole nodes of %lld devices; "
                            "%lld and %lld are (see --devices-per-node)",
                            (long long)n, (long long)per_node,
                            (long long)(n - n % per_node),
                            (long long)(n - n % per_node + per_node));
    return MIST_OK;
}

static enum mist_status load_cluster(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    struct mist_cluster *cluster = &at->traces.cluster;
    enum mist_status status = mist_trace_set_open(&at->traces, options->cluster, err);

    if (status != MIST_OK)
        return status;
    mist_trace_use_warn(&at->traces, at->job.dtype, &at->messages);
    at->config.fingerprint = mist_trace_set_fingerprint(&at->traces);
    if (options->n_nodes > 0)
        cluster->nodes = (int)options->n_nodes;
    if (options->n_devices_per_node > 0)
        cluster->devices_per_node = (int)options->n_devices_per_node;
    if (options->n_nodes > 0 || options->n_devices_per_node > 0)
        cluster->probe_us = 0; /* that of other devices at once */
    status = check_ranks(options, cluster, err);
    if (status == MIST_OK)
        status = check_device_memory(options, err);
    if (status != MIST_OK)
        return status;
    at->job.computes_on_gpu = cluster->backend != MIST_TRACE_CPU;
    if (!at->job.computes_on_gpu)
        at->job.threads = options->n_threads > 0           ? (int32_t)options->n_threads
                          : cluster->device_threads > 1024 ? 1024
                          : cluster->device_threads > 0 ? (int32_t)cluster->device_threads
                                                        : 1;
    at->config.device_memory_bytes = options->device_memory_bytes > 0
                                         ? options->device_memory_bytes
                                         : cluster->device_memory_bytes;
    at->config.host_limit_bytes = cluster->host_memory_bytes_per_node;
    return mist_validate_limit(cluster, at->config.device_memory_bytes,
                               &at->config.limit_bytes, err);
}

/* Whether AdamW on the host was measured (mist_cost_model_prices_host()). Where the
 * device is the host, there is nothing to move to it. */
static bool has_host_updates(const struct session *at)
{
    enum mist_trace_dtype dtype = mist_cost_trace_dtype(at->job.dtype);

    return at->traces.cluster.backend != MIST_TRACE_CPU &&
           mist_trace_set_first_kernel(&at->traces, mist_op_name(MIST_OP_ADAMW_HOST),
                                       dtype, MIST_TRACE_OPTIMIZER);
}

static enum mist_status make_space(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    const struct mist_cluster *cluster = &at->traces.cluster;
    int64_t n_ranks = options->n_ranks > 0
                          ? options->n_ranks
                          : (int64_t)cluster->nodes * cluster->devices_per_node;
    unsigned groups = options->space.n > 0                     ? 0
                      : options->target == MIST_FRAMEWORK_OURS ? MIST_SPACE_ALL
                                                               : MIST_TARGET_GROUPS;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < options->space.n && status == MIST_OK; i++)
        status = mist_space_add_group(options->space.items[i], &groups, err);
    at->bounds = mist_bounds_none();
    at->bounds.is_uniform = options->is_uniform;
    for (int i = 0; i < options->fixed.n && status == MIST_OK; i++)
        status = mist_bounds_fix(&at->bounds, options->fixed.items[i], err);
    for (int i = 0; i < options->limited.n && status == MIST_OK; i++)
        status = mist_bounds_limit(&at->bounds, options->limited.items[i], err);
    if (status == MIST_OK && options->slower &&
        (mist_parse_frac(options->slower, &at->config.slower_frac, NULL) != MIST_OK ||
         at->config.slower_frac >= 1))
        status = mist_err_set(err, MIST_ERR_USAGE,
                              "--prefer-simple is '%s'; expected a part such as 2%% or "
                              "0.02",
                              options->slower);
    if (cluster->host_memory_bytes_per_node == 0 ||
        (options->space.n == 0 && !mist_cost_model_prices_copies(at->cost_model)))
        groups &= ~(1u << MIST_SPACE_OFFLOAD); /* said by say_limits() */
    if (status == MIST_OK && n_ranks > 1 << 20)
        status = mist_err_set(err, MIST_ERR_USAGE, "%lld ranks; at most %d can be tuned",
                              (long long)n_ranks, 1 << 20);
    if (status != MIST_OK)
        return status;
    status = mist_cost_model_check(at->cost_model, at->job.dtype, (int32_t)n_ranks,
                                   groups & 1u << MIST_SPACE_OFFLOAD, err);
    if (status != MIST_OK)
        return status;
    at->has_space = true;
    status = mist_space_init_within(&at->space, &at->model, &at->job, (int32_t)n_ranks,
                                    cluster->devices_per_node, groups, &at->bounds, err);
    at->space.allows_host_updates = status == MIST_OK &&
                                    mist_space_has(&at->space, MIST_SPACE_OFFLOAD) &&
                                    has_host_updates(at);
    return status == MIST_OK ? mist_space_check_bounds(&at->space, err) : status;
}

static enum mist_status make_prices(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    int32_t threads = at->job.threads;
    enum mist_status status =
        mist_stage_price_new(at->cost_model, &at->space, threads, &at->price, err);

    if (status == MIST_OK)
        status = mist_thread_pool_new((int)options->common.n_jobs, &at->pool, err);
    at->config.space = &at->space;
    at->config.cost_model = at->cost_model;
    at->config.trace_set = options->cluster;
    at->config.threads = threads;
    at->config.n_best = (size_t)options->n_top;
    at->config.is_thorough = options->is_thorough;
    at->config.price = at->price;
    return status;
}

static enum mist_status check_output(const char *path, bool force, struct mist_err *err)
{
    struct mist_atomic_file file;
    enum mist_status status = mist_atomic_file_open(&file, path, force, err);

    if (status == MIST_OK)
        mist_atomic_file_abort(&file);
    return status;
}

/* A file that could not be written at the end is refused at the beginning. */
static enum mist_status check_outputs(const struct options *options, struct mist_err *err)
{
    const char *paths[] = {options->common.output, options->log, options->pareto,
                           options->export};
    bool has_output = false;
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < sizeof paths / sizeof *paths && status == MIST_OK; i++)
        if (paths[i]) {
            has_output = true;
            status = check_output(paths[i], options->common.force, err);
        }
    if (status != MIST_OK)
        return status;
    if (options->is_uniform && (options->log || options->pareto))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--uniform prices all stages together, so there is nothing "
                            "of each for --log and --pareto");
    if (options->n_samples > 0 && !options->plans)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sample-plans needs a folder to write to: --plans DIR");
    if (options->ablates && (has_output || options->plans || options->n_samples > 0 ||
                             options->n_verified > 0 || options->explains ||
                             options->target != MIST_FRAMEWORK_OURS))
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "--ablate looks for a plan of every space of ours, so there is "
            "nothing for --output, --log, --pareto, --plans, --sample-plans, --verify, "
            "--explain and --target");
    if (options->n_samples > 0 && has_output)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sample-plans searches for no best plan, so there is "
                            "nothing for --output, --log and --pareto");
    if (!options->plans)
        return MIST_OK;
    return mist_plans_folder_check(options->plans, options->common.force, err);
}

/* What goes with --target: it has a space and a search of its own, and we don't run it. */
static enum mist_status check_target(const struct options *options, struct mist_err *err)
{
    bool has_target = options->target != MIST_FRAMEWORK_OURS;

    if (!has_target && options->export)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--export writes the arguments of --target, which is not "
                            "given");
    if (has_target && (options->space.n > 0 || options->log || options->pareto ||
                       options->n_verified > 0 || options->n_samples > 0 ||
                       options->solver != MIST_SOLVER_EXACT))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--target has a search of its own; leave --space, --solver, "
                            "--log, --pareto, --verify and --sample-plans out");
    return MIST_OK;
}

/* That plans can be run, if they are to be. */
static enum mist_status check_verify(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;

    at->verify = (struct mist_verify_config){
        .n_plans = (size_t)options->n_verified,
        .n_iterations = options->n_iterations,
        .limit_s = options->verify_limit_s,
        .launch = options->launch,
        .seed = (uint64_t)options->common.seed,
        .cluster = &at->traces.cluster,
        .stop = mist_interrupt_flag(),
        .messages = &at->messages,
    };
    if (options->n_verified == 0 && options->launch)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--launch says how --verify K runs plans, which is not "
                            "asked for");
    if (options->n_verified == 0)
        return MIST_OK;
    if (at->job.dtype == MIST_DTYPE_FP16)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--verify runs plans, which mist-exec does in fp32 and bf16, "
                            "not in --dtype fp16");
    if (options->n_samples > 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sample-plans searches for no best plan, so there is "
                            "nothing to --verify");
    return mist_verify_check(&at->verify, at->space.n_ranks, err);
}

/* --------------------------------------------------------------------------- results */

static enum mist_status save_results(struct session *at,
                                     const struct mist_validate_result *result,
                                     struct mist_err *err)
{
    const struct options *options = &at->options;
    const struct mist_plan *best = result->plans[0].plan;
    bool force = options->common.force;
    enum mist_status status = MIST_OK;

    if (options->common.output)
        status = mist_plan_save(best, options->common.output, force, err);
    if (status == MIST_OK && options->export)
        status = mist_sim_job_export(best, at->space.devices_per_node, options->export,
                                     force, &at->messages, err);
    if (status == MIST_OK && options->plans)
        status = mist_plans_folder_save(options->plans, force, result->plans,
                                        result->n_plans, err);
    if (status == MIST_OK && options->log)
        status = mist_search_log_save(&at->rows, at->config.limit_bytes, best,
                                      options->log, force, err);
    if (status == MIST_OK && options->pareto)
        status =
            mist_search_log_save_pareto(&at->rows, best, options->pareto, force, err);
    return status == MIST_OK ? mist_search_rows_close(&at->rows, err) : status;
}

/* What an interrupted search or verification leaves: its results so far. */
static void say_interrupted(const struct session *at)
{
    bool is_searched = at->verified.n_plans > 0;
    const struct options *options = &at->options;
    const char *paths[] = {options->common.output, options->plans, options->log,
                           options->pareto};
    char saved[1024] = "";
    size_t n = 0;

    for (size_t i = 0; i < sizeof paths / sizeof *paths && n < sizeof saved; i++)
        if (paths[i])
            n += (size_t)snprintf(saved + n, sizeof saved - n, "%s%s",
                                  n == 0 ? " and saved: " : ", ", paths[i]);
    mist_message(&at->messages, "interrupted: the best of what was %s is printed%s",
                 !is_searched                       ? "searched"
                 : at->verified.choice.n_rounds > 0 ? "measured"
                                                    : "predicted",
                 saved);
}

static bool has_option(const struct mist_option_list *list, const char *item)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i], item) == 0)
            return true;
    return false;
}

static void say_limits(const struct session *at)
{
    if (at->config.host_limit_bytes == 0 &&
        (at->options.space.n == 0 || has_option(&at->options.space, "offload")))
        mist_message(&at->messages,
                     "the trace set says nothing of host memory: nothing is offloaded");
    else if (at->options.space.n == 0 && !mist_cost_model_prices_copies(at->cost_model))
        mist_message(&at->messages, "the trace set says nothing of copies between device "
                                    "and host: nothing is offloaded");
    else if (mist_space_has(&at->space, MIST_SPACE_OFFLOAD) &&
             at->traces.cluster.backend != MIST_TRACE_CPU &&
             !at->space.allows_host_updates)
        mist_message(&at->messages, "the trace set has no adamw_host: optimizer state is "
                                    "not updated on the host");
    if (mist_space_has(&at->space, MIST_SPACE_MESH) &&
        at->space.n_ranks > MIST_SPACE_MAX_MESH_RANKS)
        mist_message(&at->messages,
                     "%d ranks: only meshes of equal size are searched (different ones "
                     "up to %d ranks)",
                     (int)at->space.n_ranks, MIST_SPACE_MAX_MESH_RANKS);
    mist_trace_use_warn_links(&at->traces, at->space.n_ranks, &at->messages);
    mist_model_warn(&at->model, at->job.seq_len, &at->messages);
}

/* Runs the best plans of different kinds and makes the one that is chosen the first. */
static enum mist_status verify(struct session *at, struct mist_validate_result *result,
                               struct mist_err *err)
{
    const struct options *options = &at->options;
    struct mist_progress progress;

    mist_validate_vary(result->plans, result->n_plans);
    mist_interrupt_hold(); /* what runs is ended first */
    at->verify.progress = &progress;
    mist_progress_init(&progress, (enum mist_progress_mode)options->common.progress,
                       options->common.no_color, at->messages.stream, "verifying");
    enum mist_status status =
        mist_verify_run(&at->verify, result->plans, result->n_plans, &at->verified, err);
    mist_progress_fini(&progress);
    if (status != MIST_OK)
        return status;
    size_t i_chosen = at->verified.choice.i_chosen;
    const struct mist_validated chosen = result->plans[i_chosen];
    memmove(result->plans + 1, result->plans, i_chosen * sizeof *result->plans);
    result->plans[0] = chosen;
    return MIST_OK;
}

/* --ablate */
static enum mist_status
ablate(struct session *at, const struct mist_search_config *search, struct mist_err *err)
{
    struct mist_ablation ablation;
    struct mist_emit *emit = NULL;
    enum mist_status status = mist_ablate(&at->config, search, &ablation, err);

    mist_progress_fini(search->progress);
    at->was_stopped = atomic_load(mist_interrupt_flag()) != 0;
    if (status == MIST_OK)
        status = mist_emit_begin(&emit, at->kind, stdout, err);
    if (status == MIST_OK) {
        mist_ablation_emit(emit, at->kind, &ablation);
        status = mist_emit_end(&emit, err);
    }
    return status;
}

static enum mist_status tune(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    struct mist_validate_result result;
    struct mist_progress progress;
    struct mist_search_config search = {
        .n_best = (size_t)options->n_top,
        .host_limit_bytes = at->config.host_limit_bytes / at->space.devices_per_node,
        .slack_frac = MIST_VALIDATE_SLACK_FRAC,
        .max_points = (size_t)options->n_points,
        .solver = (enum mist_search_solver)options->solver,
        .glpk_time_limit_s = options->glpk_time_s,
        .price = mist_stage_price_block,
        .price_context = at->price,
        .pool = at->pool,
        .progress = &progress,
        .is_over = mist_interrupt_flag(),
    };
    double time_start_s = mist_clock_now_s();
    const char *table = options->log ? options->log : options->pareto;
    enum mist_status status =
        table ? mist_search_rows_open(&at->rows, table, err) : MIST_OK;

    if (status != MIST_OK)
        return status;
    search.rows = table ? &at->rows : NULL;
    mist_progress_init(&progress, (enum mist_progress_mode)options->common.progress,
                       options->common.no_color, at->messages.stream, "searching");
    if (options->ablates)
        return ablate(at, &search, err);
    status =
        options->target == MIST_FRAMEWORK_OURS
            ? mist_validate_run(&at->config, &search, &result, err)
            : mist_target_run(&at->config, at->pool, mist_interrupt_flag(), &result, err);
    mist_progress_fini(&progress);
    at->was_stopped = atomic_load(mist_interrupt_flag()) != 0;
    if (status == MIST_ERR_NO_PLAN && at->was_stopped)
        return mist_err_set(err, status,
                            "interrupted before a plan was found; nothing was saved");
    if (status != MIST_OK)
        return status;
    struct mist_tune_report report = {
        .space = &at->space,
        .traces = &at->traces,
        .result = &result,
        .n_alike = mist_alike_prefer(&at->traces, at->config.slower_frac, result.plans,
                                     result.n_plans),
        .slower_frac = at->config.slower_frac,
        .verified = options->n_verified > 0 ? &at->verified : NULL,
        .runners_up = &at->runners_up,
        .limit_bytes = at->config.limit_bytes,
        .n_top = (size_t)options->n_top,
        .search_s = mist_clock_now_s() - time_start_s,
        .with_glpk = options->solver != MIST_SOLVER_EXACT,
        .kind = at->kind,
        .has_all = options->common.is_verbose,
        .explains = options->explains,
    };
    if (options->n_verified > 0 && !result.was_stopped)
        status = verify(at, &result, err);
    if (status == MIST_OK && !result.was_stopped && !at->verified.was_stopped)
        status = mist_runners_up_explain(&at->config, &result, &at->runners_up, err);
    mist_interrupt_hold(); /* all files, or none */
    if (status == MIST_OK)
        status = save_results(at, &result, err);
    if (status == MIST_OK)
        status = mist_tune_report_print(&report, stdout, err);
    at->was_stopped = result.was_stopped || at->verified.was_stopped;
    if (status == MIST_OK && at->was_stopped)
        say_interrupted(at);
    mist_validate_result_fini(&result);
    return status;
}

static enum mist_status sample(struct session *at, struct mist_err *err)
{
    const struct options *options = &at->options;
    size_t n_wanted = (size_t)options->n_samples, n = 0;
    struct mist_validated *plans = calloc(n_wanted, sizeof *plans);

    if (!plans)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    enum mist_status status = mist_sample_plans(
        &at->config, (uint64_t)options->common.seed, n_wanted, plans, &n, err);
    if (status == MIST_OK && n == 0)
        status = mist_err_set(err, MIST_ERR_NO_PLAN, "no plan that was drawn fits");
    if (status == MIST_OK)
        status =
            mist_plans_folder_save(options->plans, options->common.force, plans, n, err);
    if (status == MIST_OK && n < n_wanted)
        mist_message(&at->messages, "%zu of %zu plans were found", n, n_wanted);
    if (status == MIST_OK)
        status = mist_tune_report_print_sample(plans, n, at->kind, stdout, err);
    for (size_t i = 0; i < n; i++)
        free(plans[i].plan);
    free(plans);
    return status;
}

/* ------------------------------------------------------------------------------ main */

static enum mist_status run(struct session *at, struct mist_err *err)
{
    enum mist_status status = load_job(at, err);

    if (status == MIST_OK)
        status = load_cluster(at, err);
    if (status == MIST_OK)
        status = mist_cost_model_new(&at->traces, &at->cost_model, err);
    if (status == MIST_OK)
        status = make_space(at, err);
    if (status == MIST_OK)
        status = check_target(&at->options, err);
    if (status == MIST_OK)
        status = check_outputs(&at->options, err);
    if (status == MIST_OK)
        status = check_verify(at, err);
    if (status == MIST_OK)
        status = mist_no_plan_check_space(&at->space, err);
    if (status == MIST_OK)
        say_limits(at);
    if (status == MIST_OK && at->options.common.is_dry_run &&
        at->options.target != MIST_FRAMEWORK_OURS)
        return MIST_OK; /* its plans are counted by looking at them */
    if (status == MIST_OK && at->options.common.is_dry_run)
        return mist_tune_report_print_space(&at->space, at->config.limit_bytes, at->kind,
                                            stdout, err);
    if (status == MIST_OK)
        status = make_prices(at, err);
    if (status != MIST_OK)
        return status;
    if (at->options.n_samples > 0)
        return sample(at, err);
    mist_interrupt_catch();
    return tune(at, err);
}

static void fini(struct session *at)
{
    (void)mist_search_rows_close(&at->rows, NULL); /* of a search that failed */
    mist_thread_pool_free(at->pool);
    mist_runners_up_fini(&at->runners_up);
    mist_stage_price_free(at->price);
    mist_cost_model_free(at->cost_model);
    if (at->has_space)
        mist_space_fini(&at->space);
    mist_trace_set_fini(&at->traces);
}

int main(int argc, char **argv)
{
    static struct session at;
    struct mist_positionals positionals;
    struct mist_err err = {0};
    bool is_done = false;

    mist_interrupt_ignore_file_size();
    mist_trace_set_init(&at.traces);
    enum mist_status status = mist_options_parse(&tool, argc, argv, &at.options,
                                                 &positionals, stdout, &is_done, &err);
    if (status == MIST_OK && is_done)
        return 0;
    at.messages = mist_messages_to_stderr(tool.name, at.options.common.is_quiet);
    at.kind = mist_emit_kind_of(at.options.common.as_json, at.options.common.as_csv);
    if (status == MIST_OK)
        status = run(&at, &err);
    if (status != MIST_OK)
        mist_err_print(&err, tool.name, stderr);
    bool was_stopped = at.was_stopped;
    fini(&at);
    if (was_stopped && (status == MIST_OK || status == MIST_ERR_NO_PLAN))
        return 128 + atomic_load(mist_interrupt_flag());
    return mist_exit_code(status);
}
