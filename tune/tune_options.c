/* Options of mist-tune. See tune_options.h. */
#include "tune/tune_options.h"

#include "core/embed.h"
#include "core/parse.h" /* mist_check_memory_bytes */
#include "sim/replay/packing.h"
#include "tune/search.h" /* enum mist_search_solver */
#include "tune/verify.h"

#include <stddef.h>
#include <string.h>

/* In the order of enum mist_search_solver. */
static const char *const solvers[] = {"exact", "glpk", "both", NULL};

/* In the order of enum mist_tune_objective. */
static const char *const objectives[] = {"time", "cost", NULL};

/* As mist_framework_words; what Megatron-LM was in 2021 is no target. */
static const char *const target_choices[] = {
    "ours", "megatron", "deepspeed", "torchtitan", "torchtitan-compiled", NULL};

#define ROW(...)    MIST_OPTION_ROW(struct mist_tune_options, __VA_ARGS__)
#define FLAG(...)   MIST_OPTION_ROW_FLAG(struct mist_tune_options, __VA_ARGS__)
#define TEXT(...)   MIST_OPTION_ROW_TEXT(struct mist_tune_options, __VA_ARGS__)
#define LIST(...)   MIST_OPTION_ROW_LIST(struct mist_tune_options, __VA_ARGS__)
#define CHOICE(...) MIST_OPTION_ROW_CHOICE(struct mist_tune_options, __VA_ARGS__)
#define CHOICE_WITH(...)                                                                 \
    MIST_OPTION_ROW_CHOICE_WITH(struct mist_tune_options, __VA_ARGS__)
#define WITH(...) MIST_OPTION_ROW_WITH(struct mist_tune_options, __VA_ARGS__)
#define REQUIRED(i_name, i_kind, i_member, i_group, i_value, i_min, i_max, i_unless,     \
                 i_help)                                                                 \
    {                                                                                    \
        MIST_OPTION_FIELDS_(struct mist_tune_options, i_name, i_kind, i_member, i_group, \
                            i_value, NULL, i_min, i_max, i_help),                        \
            .is_required = true, .unless = i_unless                                      \
    }

static const struct mist_option option_table[] = {
    TEXT("retune", retune, "Job", "PLAN",
         "the job, devices and cluster of a plan, as far as options don't say them"),
    REQUIRED("model", MIST_OPTION_STRING, model, "Job", "NAME", 0, 0, "sweep retune",
             "preset, or a Hugging Face config.json or folder"),
    REQUIRED("global-batch", MIST_OPTION_INT64, global_batch, "Job", "N", 1, 1 << 24,
             "sweep retune", "samples per optimizer step"),
    REQUIRED("seq-len", MIST_OPTION_INT64, seq_len, "Job", "N", 1, MIST_MODEL_MAX_SEQ,
             "sweep retune", "tokens per sample"),
    REQUIRED("cluster", MIST_OPTION_STRING, cluster, "Cluster", "CLUSTER", 0, 0, "retune",
             "trace set from mist-profile, or a preset such as "
             "h100-sxm:8x8,nic=8x400Gb/s (mist-sim --presets lists them)"),
    LIST("what-if", what_if, "Cluster", "NAME=VALUE",
         "plan for another cluster, as mist-sim --what-if has it: link.nic=400Gb/s, "
         "kernel.attention=2x, device=h200; mist-sim --list has all names"),
    ROW("ranks", MIST_OPTION_INT64, n_ranks, "Cluster", "N", "0", 0, 1 << 20,
        "devices to use; 0: all of the cluster"),
    ROW("nodes", MIST_OPTION_INT64, n_nodes, "Cluster", "N", "0", 0, 1 << 20,
        "nodes; 0: as many as the trace set says"),
    ROW("devices-per-node", MIST_OPTION_INT64, n_devices_per_node, "Cluster", "N", "0", 0,
        1 << 12, "devices of a node; 0: as many as the trace set says"),
    ROW("device-memory", MIST_OPTION_BYTES, device_memory_bytes, "Cluster", "BYTES", "0",
        0, 9e18, "memory of a device; 0: what the trace set says"),
    ROW("threads", MIST_OPTION_INT64, n_threads, "Cluster", "N", "0", 0, 1024,
        "compute threads of a device; 0: what the trace set says, else 1"),
    LIST("space", space, "Search", "GROUP",
         "knobs to search: 3d, zero, ckpt, offload, imbalance, mesh, sequence, schedule, "
         "lean, context; default: all"),
    LIST("fix", fixed, "Search", "KNOB=VALUE",
         "plans with that value in every stage alone: pp, dp, tp, cp, micro-batch, "
         "micro-batches, layers, sequence, zero, ckpt, lean, offload-weights "
         "(-gradients, -optimizer, -activations), update-on, schedule, chunks"),
    LIST("max", limited, "Search", "KNOB=VALUE",
         "plans with at most that value in every stage"),
    LIST("constraint", constraints, "Search", "SUM<=SUM",
         "plans that keep to it, such as 'stages <= 8', 'layers[0] + 2 <= layers[-1]', "
         "'sum(tp) = 8' or 'memory[0] <= 16GiB'; of stages, micro-batches and, of a "
         "stage, layers, devices, dp, tp, cp, micro-batch, memory; with <=, >= or ="),
    FLAG("uniform", is_uniform, "Search", "plans whose stages are all alike"),
    FLAG("thorough", is_thorough, "Search",
         "search twice as long, and look in large spaces, too, at what is beside the "
         "best"),
    ROW("prefer-simple", MIST_OPTION_FRAC, slower_frac, "Search", "FRAC", "0", 0, 0.99,
        "take the plan with the fewest techniques that is no slower than that, such as "
        "2%"),
    CHOICE("dtype", dtype, "Job", "TYPE", "fp32", mist_dtype_words,
           "of weights and activations; fp16 can be predicted, not run"),
    CHOICE("gradient-dtype", gradient_dtype, "Job", "TYPE", "fp32", mist_dtype_words,
           "of gradients of weights as they are kept and sent (sums are fp32); bf16 and "
           "fp16 need the same --dtype"),
    TEXT("lengths", lengths, "Job", "LENGTHS",
         "sequences are not all as long as samples: take the plan that is fastest with "
         "lognormal:median=N,sigma=X, or a file of lengths in tokens, one a line or "
         "length,count"),
    CHOICE_WITH("lengths", "packing", packing, "Job", "RULE", "none", mist_packing_names,
                "how they fill samples; none: each is one; pad: each is as long as the "
                "longest of its micro-batch; first-fit, sorted: several make a sample, "
                "in order or the longest first"),
    CHOICE("target", target, "Search", "NAME", "ours", target_choices,
           "search what that framework can express, priced by its profile"),
    CHOICE("solver", solver, "Search", "WHICH", "exact", solvers,
           "across stages; both: exact, compared with GLPK"),
    WITH("solver constraint", "glpk-time", MIST_OPTION_TIME_S, glpk_time_s, "Search",
         "TIME", "2s", 1e-3, 1e6, "limit for GLPK, per case"),
    ROW("top", MIST_OPTION_INT64, n_top, "Search", "K", "16", 1, 4096,
        "best plans to replay and to rank"),
    ROW("frontier", MIST_OPTION_INT64, n_points, "Search", "N", "0", 0, 1 << 20,
        "points of a frontier to keep; 0: all, which is exact"),
    ROW("verify", MIST_OPTION_INT64, n_verified, "Verification", "K", NULL, 1,
        MIST_VERIFY_MAX_PLANS,
        "run the K best plans by mist-exec, and choose by what is measured"),
    WITH("verify", "verify-iterations", MIST_OPTION_INT64, n_iterations, "Verification",
         "N", "6", 2, 10000, "iterations of a run; every plan is run three times"),
    WITH("verify", "verify-limit", MIST_OPTION_TIME_S, verify_limit_s, "Verification",
         "TIME", "0s", 0, 1e7,
         "end a run after that long; 0s: 60 s and 20 times what is predicted"),
    WITH("verify", "launch", MIST_OPTION_STRING, launch, "Verification", "CMD", NULL, 0,
         0,
         "how ranks are started, such as 'srun -n {ranks}'; default: by mpirun, on this "
         "machine"),
    FLAG("explain", explains, "Results",
         "where the best plan's time goes, and what is in memory at its peak"),
    FLAG("ablate", ablates, "Results",
         "print the best plan as the groups of --space are added one by one, and end; "
         "with --target beginning at the best plan of that framework"),
    LIST("sweep", sweep, "How many to rent", "NAME=V1:V2:..",
         "the best plan for each value of nodes, devices-per-node, ranks, memory, batch, "
         "seq-len, model or device (of a preset); of several: for all combinations"),
    LIST("price-per-device-hour", prices, "How many to rent", "PRICE",
         "print what the training costs; h100-sxm=2.5: price of that device"),
    WITH("sweep price-per-device-hour", "train-tokens", MIST_OPTION_DOUBLE, n_tokens,
         "How many to rent", "N", "1e9", 1, 1e18, "tokens of the whole training"),
    CHOICE("objective", objective, "How many to rent", "WHICH", "time", objectives,
           "the best point of --sweep is that where the training takes the least time, "
           "or costs the least"),
    WITH("price-per-device-hour", "budget", MIST_OPTION_DOUBLE, budget,
         "How many to rent", "COST", "0", 0, 1e18,
         "what the training may cost at the most; 0: any"),
    TEXT("log", log, "Results", "FILE",
         "write every configuration of the first search and what became of it as CSV"),
    TEXT("pareto", pareto, "Results", "FILE",
         "write the best plan's frontiers for mist-plot pareto"),
    TEXT("plans", plans, "Results", "DIR",
         "write the best plans, or those of --sample-plans, into a folder"),
    WITH("plans", "sample-plans", MIST_OPTION_INT64, n_samples, "Results", "M", "0", 0,
         4096,
         "into --plans: not the best plans but M from all over the space (see --seed)"),
    TEXT("export", export, "Results", "FILE",
         "write the best plan as arguments of --target"),
    MIST_OPTION_ROW_OUTPUT(struct mist_tune_options, "where the best plan goes", NULL),
    MIST_OPTION_ROW_DRY_RUN(struct mist_tune_options),
    MIST_OPTION_ROW_FORCE(struct mist_tune_options),
    MIST_OPTION_ROW_JOBS(struct mist_tune_options),
    MIST_OPTION_ROW_JSON(struct mist_tune_options),
    MIST_OPTION_ROW_CSV(struct mist_tune_options),
    MIST_OPTION_ROW_NO_COLOR(struct mist_tune_options),
    MIST_OPTION_ROW_PROGRESS(struct mist_tune_options),
    MIST_OPTION_ROW_QUIET(struct mist_tune_options),
    MIST_OPTION_ROW_SEED(struct mist_tune_options),
    MIST_OPTION_ROW_VERBOSE(struct mist_tune_options),
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
    "mist-tune --model llama3-8b --cluster h100-sxm:8,nic=8x400Gb/s --dtype bf16 "
    "--global-batch 512 --seq-len 8192 --sweep nodes=1:2:4:8 --price-per-device-hour 2.5",
    "mist-tune --retune plan.json --what-if link.all=2x",
    NULL};

extern const char mist_tune_manual[];
MIST_EMBED(mist_tune_manual, "tune/mist_tune.man");

const struct mist_tool mist_tune_tool = {
    .name = "mist-tune",
    .purpose = "finds the fastest plan that fits the device memory",
    .examples = examples,
    .options = option_table,
    .n_options = sizeof option_table / sizeof *option_table,
    .manual = mist_tune_manual,
    .exit_texts = {[4] = "no plan fits"},
    .signal_text =
        "stopped by signal n: Ctrl-C (SIGINT), SIGTERM, SIGHUP or SIGUSR1; the best "
        "plan so far is written, but a second Ctrl-C ends the search at once",
};

/* Whether options or edits say which devices there are, not the plan. */
static bool says_devices(const struct mist_tune_options *options)
{
    static const char *const axes[] = {"nodes=", "devices-per-node=", "ranks="};
    bool is_found =
        options->n_ranks > 0 || options->n_nodes > 0 || options->n_devices_per_node > 0;

    for (int i = 0; i < options->what_if.n; i++)
        is_found = is_found || strncmp(options->what_if.items[i], "cluster.", 8) == 0;
    for (int i = 0; i < options->sweep.n; i++)
        for (size_t k = 0; k < sizeof axes / sizeof *axes; k++)
            is_found = is_found ||
                       strncmp(options->sweep.items[i], axes[k], strlen(axes[k])) == 0;
    return is_found;
}

/* The limit that a plan was made for is of the devices that it was made for. */
static bool keeps_memory(const struct mist_tune_options *options)
{
    bool is_kept = !options->cluster && options->device_memory_bytes == 0;

    for (int i = 0; i < options->what_if.n; i++)
        is_kept = is_kept && strncmp(options->what_if.items[i], "device=", 7) != 0;
    return is_kept;
}

enum mist_status mist_tune_options_take_plan(struct mist_tune_options *options,
                                             const struct mist_positionals *given,
                                             const struct mist_plan *plan,
                                             struct mist_err *err)
{
    const struct {
        const char *name;
        int *choice, of_plan;
    } choices[] = {
        {"dtype", &options->dtype, (int)plan->job.dtype},
        {"gradient-dtype", &options->gradient_dtype, (int)plan->job.gradient_dtype},
        {"target", &options->target, (int)plan->job.framework},
    };

    options->plan = plan;
    for (size_t i = 0; i < sizeof choices / sizeof *choices; i++)
        if (!mist_options_is_given(&mist_tune_tool, given, choices[i].name))
            *choices[i].choice = choices[i].of_plan;
    if (options->global_batch == 0)
        options->global_batch = plan->job.global_batch;
    if (options->seq_len == 0)
        options->seq_len = plan->job.seq_len;
    if (options->n_threads == 0)
        options->n_threads = mist_plan_n_threads(plan);
    if (!says_devices(options))
        options->n_ranks = mist_plan_n_ranks(plan);
    if (keeps_memory(options))
        options->device_memory_bytes = plan->device_memory_bytes;
    if (!options->cluster)
        options->cluster = plan->trace_set;
    return options->cluster[0] ? MIST_OK
                               : mist_err_set(err, MIST_ERR_USAGE,
                                              "%s names no trace set; give one with "
                                              "--cluster",
                                              options->retune);
}

/* What --sweep or something else gives at last. */
static enum mist_status check_required(const struct mist_tune_options *options,
                                       struct mist_err *err)
{
    const char *missing = !options->model && !options->plan ? "model NAME"
                          : options->global_batch < 1       ? "global-batch N"
                          : options->seq_len < 1            ? "seq-len N"
                                                            : NULL;

    return missing ? mist_err_set(err, MIST_ERR_USAGE, "--%s is required, or in --sweep",
                                  missing)
                   : MIST_OK;
}

/* What doesn't go together. */
static enum mist_status check_pairs(const struct mist_tune_options *of,
                                    struct mist_err *err)
{
    bool has_target = of->target != MIST_FRAMEWORK_OURS, samples = of->n_samples > 0;
    bool verifies = of->n_verified > 0, has_logs = of->log || of->pareto;
    bool has_output = of->common.output || has_logs || of->export;
    const struct {
        bool is_wrong;
        const char *message;
    } rules[] = {
        {of->prices.n == 0 && of->objective == MIST_OBJECTIVE_COST,
         "--objective cost needs --price-per-device-hour"},
        {of->budget > 0 && (of->ablates || samples),
         "--budget is for a best plan; leave --ablate and --sample-plans out"},
        /* --target has a space and a search of its own, and we don't run it */
        {!has_target && of->export,
         "--export writes the arguments of --target, which is not given"},
        {has_target && !of->ablates &&
             (of->space.n > 0 || has_logs || verifies || samples ||
              of->solver != MIST_SOLVER_EXACT),
         "--target has a search of its own; leave --space, --solver, --log, --pareto, "
         "--verify and --sample-plans out"},
        {of->constraints.n > 0 && (has_target || samples),
         "--constraint is for the search of our own plans; leave --target and "
         "--sample-plans out"},
        {of->is_uniform && has_logs, "--uniform prices all stages together, so there is "
                                     "nothing of each for --log and "
                                     "--pareto"},
        {of->ablates && (has_output || of->plans || samples || verifies || of->explains),
         "--ablate looks for a plan of every space, so there is nothing for --output, "
         "--log, --pareto, --plans, --sample-plans, --verify and --explain"},
        {samples && has_output,
         "--sample-plans searches for no best plan, so there is nothing for --output, "
         "--log and --pareto"},
        {verifies && of->dtype == MIST_DTYPE_FP16,
         "--verify runs plans, which mist-exec does in fp32 and bf16, not in --dtype "
         "fp16"},
        {verifies && samples,
         "--sample-plans searches for no best plan, so there is nothing to --verify"},
        {verifies && of->what_if.n > 0,
         "--verify runs plans on the cluster that there is; leave --what-if out"},
        /* sequences are drawn for one best plan, and replayed */
        {of->lengths && (of->ablates || samples || verifies),
         "--lengths is for a best plan by replay, and runs have full samples; leave "
         "--ablate, --sample-plans and --verify out"},
    };

    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if (rules[i].is_wrong)
            return mist_err_set(err, MIST_ERR_USAGE, "%s", rules[i].message);
    return MIST_OK;
}

/* A memory that no device has: the unit is missing. */
static enum mist_status check_device_memory(const struct mist_tune_options *options,
                                            struct mist_err *err)
{
    return options->device_memory_bytes == 0
               ? MIST_OK
               : mist_check_memory_bytes("--device-memory", options->device_memory_bytes,
                                         MIST_ERR_USAGE, err);
}

enum mist_status mist_tune_options_check(const struct mist_tune_options *options,
                                         struct mist_err *err)
{
    enum mist_status status = check_required(options, err);

    if (status == MIST_OK)
        status = check_pairs(options, err);
    return status == MIST_OK ? check_device_memory(options, err) : status;
}
