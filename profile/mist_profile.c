/*
 * mist-profile: measures what this machine does, as a trace set.
 *
 *     $ mist-profile --quick -o traces/here
 *     mist-profile: gpt3-demo, sequences of 128, micro-batches 1,2,4,8, fp32 on 2 ranks
 *     of 1 thread: 60 operator shapes, 71 messages, 48 mixtures; about 71.3 s
 *     machine            AMD EPYC
 *     ranks              2
 *     GEMM               103 GFLOP/s
 *     ...
 *     written to         traces/here
 */
#include "core/atomic_file.h"
#include "core/embed.h"
#include "core/emit.h"
#include "core/hash.h"
#include "core/interrupt.h"
#include "core/message.h"
#include "core/options.h"
#include "core/parse.h"
#include "exec/comm/affinity.h"
#include "exec/comm/comm.h"
#include "exec/train/option_rows.h"
#include "profile/import.h"
#include "profile/launch.h"
#include "profile/output.h"
#include "profile/profile.h"
#include "profile/ranks.h"
#include "profile/summary.h"
#include "profile/time_links.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { DEFAULT_RANKS = 2, MAX_RANKS = 1024 };

static const int64_t gpu_far_bytes = 256 << 20; /* their caches grow to 128 MiB */

struct options {
    struct mist_common_options common;
    const char *model;
    int backend, dtype;
    int64_t seq_len, n_ranks, n_threads;
    struct mist_option_list micro_batches;
    int bind;      /* 0 auto, 1 none */
    int attention; /* enum mist_attention_choice */
    int64_t n_seconds;
    bool is_quick, allows_atomics;
    bool resumes, prints_kernels;
    const char *kernels_csv, *cluster;
    int import; /* enum mist_import_format */
};

/* In the order of enum dtype_choice. */
static const char *const dtype_words[] = {"auto", "fp32", "bf16", NULL};
enum dtype_choice { DTYPE_AUTO, DTYPE_FP32, DTYPE_BF16 };

#define ROW(...)    MIST_OPTION_ROW(struct options, __VA_ARGS__)
#define FLAG(...)   MIST_OPTION_ROW_FLAG(struct options, __VA_ARGS__)
#define TEXT(...)   MIST_OPTION_ROW_TEXT(struct options, __VA_ARGS__)
#define CHOICE(...) MIST_OPTION_ROW_CHOICE(struct options, __VA_ARGS__)

static const struct mist_option option_table[] = {
    ROW("model", MIST_OPTION_STRING, model, "What", "MODEL", "gpt3-demo", 0, 0,
        "preset or config.json whose operators are timed"),
    ROW("seq-len", MIST_OPTION_INT64, seq_len, "What", "N", "128", 1, 1 << 24,
        "tokens per sample"),
    ROW("micro-batches", MIST_OPTION_LIST, micro_batches, "What", "LIST", "1,2,4,8", 0, 0,
        "samples per micro-batch that plans may use"),
    CHOICE("dtype", dtype, "What", "FORMAT", "auto", dtype_words,
           "number format of weights and activations: fp32, bf16, or auto: bf16 on a "
           "GPU, else fp32"),
    MIST_OPTION_ROW_ATTENTION(struct options, "What"),
    FLAG("allow-atomics", allows_atomics, "What",
         "GPU kernels as mist-exec --allow-atomics runs them"),
    FLAG("quick", is_quick, "What",
         "a minute: fewer repetitions, message sizes in steps of 4"),
    ROW("seconds", MIST_OPTION_INT64, n_seconds, "What", "N", NULL, 1, 1000000,
        "time to take, about: less gives fewer repetitions, to a least number; default: "
        "see --dry-run"),
    FLAG(
        "resume", resumes, "What",
        "go on with a session that was stopped (its journal is in DIR.partial), or begin "
        "where there is none"),
    MIST_OPTION_ROWS_KERNELS(struct options, "What", ", too"),
    MIST_OPTION_ROW_BACKEND(struct options, "Where"),
    ROW("ranks", MIST_OPTION_INT64, n_ranks, "Where", "N", NULL, 1, MAX_RANKS,
        "processes that run at once, started with mpirun; default: one for each GPU, "
        "else 2, or 1 on one processor"),
    ROW("threads", MIST_OPTION_INT64, n_threads, "Where", "N", "1", 1, 1024,
        "compute threads of each rank on the CPU"),
    MIST_OPTION_ROW_BIND(struct options, "Where"),
    CHOICE("import", import, "Import", "FORMAT", "none", mist_import_formats,
           "measure nothing: add the rows of every FILE to --cluster and write that to "
           "-o. FILE is a log of nccl-tests, a table of products m,n,k,time_us "
           "(gemm-csv), a trace of a rank (torch-profiler), or nsys stats --report "
           "cuda_gpu_trace --format csv (nsys)"),
    TEXT("cluster", cluster, "Import", "CLUSTER",
         "trace set or preset that the rows are added to (mist-sim --presets)"),
    {.name = "output",
     .letter = 'o',
     .kind = MIST_OPTION_STRING,
     .group = MIST_OPTION_GROUP_COMMON,
     .value_name = "DIR",
     .help = "folder of the trace set",
     .offset = offsetof(struct options, common.output)},
    MIST_OPTION_ROW_FORCE(struct options),
    MIST_OPTION_ROW_DRY_RUN(struct options),
    MIST_OPTION_ROW_JSON(struct options),
    MIST_OPTION_ROW_QUIET(struct options),
    MIST_OPTION_ROW_PROGRESS(struct options),
    MIST_OPTION_ROW_NO_COLOR(struct options),
};

static const char *const examples[] = {
    "mist-profile --quick -o traces/here",
    "mist-profile --model gpt3-125m --seq-len 512 --micro-batches 1,2 -o traces/125m",
    "mist-profile --dry-run    # what would be measured, and for how long",
    "mist-profile --import nccl-tests all_reduce.log --cluster h100-sxm:2x8 -o mine",
    "mist-profile --import torch-profiler rank*.json --cluster a100-80 -o mine",
    NULL};

extern const char mist_profile_manual[];
MIST_EMBED(mist_profile_manual, "profile/mist_profile.man");

static const struct mist_tool tool = {
    .name = "mist-profile",
    .purpose = "measures what operators, links and their mixtures cost on this machine",
    .examples = examples,
    .manual = mist_profile_manual,
    .signal_text =
        "stopped by signal n: Ctrl-C (SIGINT), SIGTERM, SIGHUP or SIGUSR1; --resume "
        "goes on, also "
        "after a second Ctrl-C, which ends the session at once",
    .options = option_table,
    .n_options = sizeof option_table / sizeof *option_table,
    .positional_name = "FILE",
    .positional_help = "what --import reads",
    .positional_max = -1,
};

/* What is known before anything is measured. */
struct setup {
    struct options options;
    struct mist_positionals files; /* to import */
    bool is_first;                 /* this rank */
    struct mist_messages messages; /* of the first rank */
    struct mist_machine machine;
    char note[256]; /* about the backend; "" none */
    struct mist_grid_config config;
    struct mist_grid grid;
    double flop_per_s, link_bytes_per_s; /* by short trials */
    struct mist_profile_plan plan;
    int stop_signal; /* that ended the session; 0: none */
};

/* ----------------------------------------------------------------------------- set-up */

static enum mist_status read_micro_batches(const struct mist_option_list *list,
                                           struct mist_grid_config *config,
                                           struct mist_err *err)
{
    if (list->n > MIST_GRID_MAX_MICRO_BATCHES)
        return mist_err_set(err, MIST_ERR_USAGE, "--micro-batches: %d sizes, at most %d",
                            list->n, MIST_GRID_MAX_MICRO_BATCHES);
    for (int i = 0; i < list->n; i++) {
        int64_t value = 0;
        if (mist_parse_int64(list->items[i], &value, NULL) != MIST_OK || value < 1 ||
            value > 1 << 20)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--micro-batches: '%s' is no number from 1 to %d",
                                list->items[i], 1 << 20);
        int32_t at = config->n_micro_batches++; /* insert in order */
        for (; at > 0 && config->micro_batches[at - 1] > value; at--)
            config->micro_batches[at] = config->micro_batches[at - 1];
        if (at > 0 && config->micro_batches[at - 1] == value)
            return mist_err_set(err, MIST_ERR_USAGE, "--micro-batches: %s comes twice",
                                list->items[i]);
        config->micro_batches[at] = (int32_t)value;
    }
    return MIST_OK;
}

/* Nothing that took long to measure is overwritten by chance. */
static enum mist_status check_output(const struct options *options, struct mist_err *err)
{
    const struct mist_common_options *common = &options->common;
    const struct mist_output table = {"kernels-csv", options->kernels_csv};
    const char *model = mist_model_path(options->model);
    const struct mist_files others[] = {
        {"--model", model, NULL},
        {"--model", model, mist_model_file_name},
        {"--output", common->output, mist_trace_set_file_name}};
    enum mist_status status =
        mist_outputs_check_apart(&table, 1, others, sizeof others / sizeof *others, err);

    if (status == MIST_OK)
        status = mist_output_check(options->kernels_csv, common->force, err);
    if (status != MIST_OK || !common->output)
        return status;
    status = mist_profile_check_output(common->output, common->force, err);
    if (status == MIST_OK && !options->resumes && !common->force &&
        mist_journal_exists(common->output))
        return mist_err_at(err, MIST_ERR_USAGE, common->output, 0, 0,
                           "a session was stopped here; --resume goes on with it, "
                           "--force starts anew");
    return status;
}

static enum mist_status set_up(struct setup *setup, int32_t n_nodes, int32_t n_ranks,
                               struct mist_err *err)
{
    const struct options *options = &setup->options;
    struct mist_grid_config *config = &setup->config;
    enum mist_status status = read_micro_batches(&options->micro_batches, config, err);

    if (status == MIST_OK && !options->common.output && !options->common.is_dry_run)
        status = mist_err_set(err, MIST_ERR_USAGE,
                              "--output: give a folder for the trace set, such as -o "
                              "traces/here");
    if (status == MIST_OK)
        status = mist_backend_check_attention(
            setup->machine.backend, (enum mist_attention_choice)options->attention, err);
    if (status == MIST_OK)
        status = mist_model_load(options->model, &config->model, err);
    if (status != MIST_OK)
        return status;
    config->seq_len = (int32_t)options->seq_len;
    config->n_nodes = n_nodes;
    config->n_ranks = n_ranks;
    bool has_gpus = mist_machine_has_gpus(&setup->machine);
    config->far_bytes = has_gpus ? gpu_far_bytes : 0;
    config->n_threads = has_gpus ? 0 : (int32_t)options->n_threads;
    config->dtype =
        options->dtype == DTYPE_BF16 || (options->dtype == DTYPE_AUTO && has_gpus)
            ? MIST_DTYPE_BF16
            : MIST_DTYPE_FP32;
    config->is_quick = options->is_quick;
    config->time_s = (double)options->n_seconds;
    config->allows_atomics = options->allows_atomics;
    config->attention = (enum mist_attention_choice)options->attention;
    status = mist_grid_make(config, &setup->grid, err);
    if (status == MIST_OK)
        status = check_output(options, err);
    return status;
}

/* What a rank reaches, for the estimate. */
static enum mist_status try_device(struct setup *setup, int32_t i_device,
                                   struct mist_err *err)
{
    return mist_time_host_flop_per_s(setup->machine.backend, i_device,
                                     setup->config.dtype, setup->config.n_threads,
                                     &setup->flop_per_s, err);
}

static enum mist_status make_plan(struct setup *setup, struct mist_err *err)
{
    return mist_profile_plan(&setup->grid, &setup->machine, setup->flop_per_s,
                             setup->link_bytes_per_s, &setup->plan, err);
}

/* ----------------------------------------------------------------------------- output */

/* "1,2,4,8" */
static char *micro_batches_text(const struct mist_grid_config *config, char *out,
                                size_t size)
{
    out[0] = '\0';
    for (int32_t i = 0; i < config->n_micro_batches; i++)
        mist_text_add(out, size, ",", "%d", (int)config->micro_batches[i]);
    return out;
}

static void announce(const struct setup *setup)
{
    const struct mist_grid_config *config = &setup->config;
    char time[MIST_FORMAT_BYTES], sizes[256], where[160];

    if (setup->note[0])
        mist_message(&setup->messages, "%s", setup->note);
    if (setup->options.resumes && !mist_journal_exists(setup->options.common.output))
        mist_message(
            &setup->messages,
            "%s: nothing to resume: no session was stopped here, one begins anew",
            setup->options.common.output);
    if (config->n_threads > 0)
        snprintf(where, sizeof where, "%d thread%s", (int)config->n_threads,
                 config->n_threads == 1 ? "" : "s");
    else
        snprintf(where, sizeof where, "%s", mist_machine_device_name(&setup->machine));
    mist_message(&setup->messages,
                 "%s, sequences of %d, micro-batches %s, %s on %d rank%s of %s: %d "
                 "operator shapes, %d messages, %d mixtures; about %s",
                 config->model.name, (int)config->seq_len,
                 micro_batches_text(config, sizes, sizeof sizes),
                 mist_dtype_words[config->dtype], (int)config->n_ranks,
                 config->n_ranks == 1 ? "" : "s", where, (int)setup->grid.n_keys,
                 (int)setup->grid.n_messages, (int)setup->plan.n_mixtures,
                 mist_format_time_s(time, sizeof time, setup->plan.expected_s));
}

static void emit_job(struct mist_emit *emit, const struct setup *setup)
{
    const struct mist_grid_config *config = &setup->config;
    char sizes[256];

    mist_emit_text(emit, "machine", NULL, mist_machine_device_name(&setup->machine));
    mist_emit_text(emit, "backend", NULL, setup->machine.backend->name);
    mist_emit_text(emit, "dtype", "number format", mist_dtype_words[config->dtype]);
    mist_emit_text(emit, "model", NULL, config->model.name);
    mist_emit_integer(emit, "seq_len", "tokens per sample", config->seq_len);
    mist_emit_text(emit, "micro_batches", "micro-batches",
                   micro_batches_text(config, sizes, sizeof sizes));
    mist_emit_integer(emit, "nodes", NULL, config->n_nodes);
    mist_emit_integer(emit, "ranks", NULL, config->n_ranks);
    mist_emit_integer(emit, "tensor_parallel", "tensor parallelism up to",
                      setup->grid.variants[setup->grid.n_variants - 1].tp);
    if (config->n_threads > 0)
        mist_emit_integer(emit, "threads", "threads per rank", config->n_threads);
    mist_emit_integer(emit, "operator_shapes", "operator shapes", setup->grid.n_keys);
    mist_emit_integer(emit, "messages", "messages and copies", setup->grid.n_messages);
    mist_emit_integer(emit, "mixtures", "mixtures of channels", setup->plan.n_mixtures);
}

static enum mist_status begin_document(const struct setup *setup, struct mist_emit **emit,
                                       struct mist_err *err)
{
    return mist_emit_begin(
        emit, setup->options.common.as_json ? MIST_EMIT_JSON : MIST_EMIT_TABLE, stdout,
        err);
}

static enum mist_status print_plan(const struct setup *setup, struct mist_err *err)
{
    const struct mist_profile_plan *plan = &setup->plan;
    struct mist_emit *emit;
    enum mist_status status = begin_document(setup, &emit, err);

    if (status != MIST_OK)
        return status;
    emit_job(emit, setup);
    mist_emit_integer(emit, "blocks", "blocks in the stage", plan->n_copies);
    mist_emit_integer(emit, "memory_bytes", "memory per rank", plan->memory_bytes);
    mist_emit_number(emit, "operators_s", "for operators, up to", plan->ops_s);
    mist_emit_number(emit, "links_s", "for messages", plan->links_s);
    mist_emit_number(emit, "interference_s", "for mixtures", plan->interference_s);
    mist_emit_number(emit, "checks_s", "for plans to check by", plan->checks_s);
    mist_emit_number(emit, "expected_s", "in all, about", plan->expected_s);
    return mist_emit_end(&emit, err);
}

static enum mist_status print_summary(const struct setup *setup,
                                      const struct mist_trace_set *traces,
                                      const struct mist_profile_report *report,
                                      const struct mist_op_table *ops,
                                      struct mist_err *err)
{
    struct mist_emit *emit;
    enum mist_status status = begin_document(setup, &emit, err);

    if (status != MIST_OK)
        return status;
    emit_job(emit, setup);
    status = mist_profile_emit_summary(emit, traces, report, err);
    mist_emit_text(emit, "output", "written to", setup->options.common.output);
    if (status == MIST_OK && setup->options.prints_kernels) {
        struct mist_op_peak peak = mist_profile_peak(&traces->cluster);
        status = mist_op_table_emit(
            ops, &peak, "Operators and their kernels", emit,
            setup->options.common.as_json ? MIST_EMIT_JSON : MIST_EMIT_TABLE, err);
    }
    if (status != MIST_OK) {
        mist_emit_free(emit);
        return status;
    }
    return mist_emit_end(&emit, err);
}

static void say_doubt(const struct setup *setup, const struct mist_trace_set *traces,
                      const struct mist_profile_report *report)
{
    char text[256];

    mist_profile_find_doubt(traces, report, text, sizeof text);
    if (text[0])
        mist_message(&setup->messages, "%s", text);
}

/* ----------------------------------------------------------------------------- import */

/* Options that say what is measured, and where: nothing is. */
static enum mist_status check_import_options(const struct options *options,
                                             const struct mist_positionals *positionals,
                                             struct mist_err *err)
{
    for (size_t i = 0; i < tool.n_options; i++) {
        const struct mist_option *option = &option_table[i];
        bool is_dtype = strcmp(option->name, "dtype") == 0;
        if (!positionals->is_given[i] ||
            (is_dtype && options->import == MIST_IMPORT_GEMM_CSV) ||
            (strcmp(option->group, "What") != 0 && strcmp(option->group, "Where") != 0))
            continue;
        return mist_err_set(err, MIST_ERR_USAGE, "--%s: --import %s does not use it%s",
                            option->name, mist_import_formats[options->import],
                            is_dtype ? ", only --import gemm-csv does"
                                     : ", as it measures nothing");
    }
    return MIST_OK;
}

/* Whether nothing is measured. */
static bool imports(const struct setup *setup)
{
    return setup->options.import != MIST_IMPORT_NONE || setup->options.cluster ||
           setup->files.n > 0;
}

/* What others measured, in files: the first rank alone reads and writes. */
static enum mist_status import(void *context, struct mist_err *err)
{
    const struct setup *setup = context;
    const struct options *options = &setup->options;
    const struct mist_positionals *positionals = &setup->files;
    const struct mist_common_options *common = &options->common;
    int n = positionals->n;

    if (!setup->is_first)
        return MIST_OK;
    if (options->import == MIST_IMPORT_NONE)
        return mist_err_set(err, MIST_ERR_USAGE,
                            n > 0 ? "unexpected argument '%.200s': nothing is read "
                                    "without --import FORMAT"
                                  : "--cluster names what --import adds to%s",
                            n > 0 ? positionals->items[0] : "");
    if (n == 0 || !options->cluster || (!common->output && !common->is_dry_run))
        return mist_err_set(err, MIST_ERR_USAGE, "--import %s needs %s",
                            mist_import_formats[options->import],
                            n == 0              ? "the FILE to read"
                            : !options->cluster ? "--cluster, what the rows are added to"
                                                : "-o, the folder to write");
    enum mist_status status = check_import_options(options, positionals, err);
    const struct mist_files set = {"--output", common->output, mist_trace_set_file_name};
    for (int i = 0; i < n && status == MIST_OK; i++)
        status = mist_outputs_check_apart(
            &(struct mist_output){"import", positionals->items[i]}, 1, &set, 1, err);
    if (status == MIST_OK && common->output)
        status = mist_profile_check_output(common->output, common->force, err);
    if (status != MIST_OK)
        return status;
    const struct mist_import import = {
        .format = (enum mist_import_format)options->import,
        .cluster = options->cluster,
        .paths = positionals->items,
        .n_paths = n,
        .dtype = options->dtype == DTYPE_FP32 ? MIST_TRACE_FP32 : MIST_TRACE_BF16,
        .output = common->is_dry_run ? NULL : common->output,
        .force = common->force,
        .as_json = common->as_json};
    return mist_profile_import(&import, &setup->messages, err);
}

/* -------------------------------------------------------------------------------- run */

static enum mist_status open_journal(const struct setup *setup, struct mist_comm *comm,
                                     struct mist_journal **out, struct mist_err *err)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_text(&hash, MIST_VERSION);
    mist_hash_add_text(&hash, setup->config.model.name);
    mist_hash_add_int64(&hash, (int64_t)mist_grid_fingerprint(&setup->grid));
    return mist_journal_open(comm, setup->options.common.output, hash.value,
                             setup->options.resumes, out, err);
}

static enum mist_status measure(struct setup *setup, struct mist_comm *comm,
                                struct mist_err *err)
{
    const struct mist_common_options *common = &setup->options.common;
    bool is_first = setup->is_first;
    struct mist_progress progress;
    struct mist_trace_set traces;
    struct mist_profile_report report;
    struct mist_journal *journal = NULL;
    struct mist_op_table ops;
    const char *csv = setup->options.kernels_csv;

    mist_interrupt_catch();
    announce(setup);
    mist_progress_init(&progress, (enum mist_progress_mode)common->progress,
                       common->no_color, setup->messages.stream, "measuring, seconds");
    mist_trace_set_init(&traces);
    mist_op_table_init(&ops);
    enum mist_status status = open_journal(setup, comm, &journal, err);
    if (status == MIST_OK)
        mist_journal_set_stop(journal, mist_interrupt_flag());
    const struct mist_profile_config config = {
        .grid = &setup->grid,
        .machine = &setup->machine,
        .plan = &setup->plan,
        .comm = comm,
        .journal = journal,
        .messages = &setup->messages,
        .progress = is_first ? &progress : NULL,
        .ops = setup->options.prints_kernels || csv ? &ops : NULL};
    if (status == MIST_OK)
        status = mist_profile_run(&config, &traces, &report, err);
    mist_progress_fini(&progress);
    setup->stop_signal = mist_journal_stopped(journal);
    mist_interrupt_hold(); /* all files, or none */
    if (status == MIST_OK && is_first)
        status = mist_trace_set_save(&traces, common->output, common->force, err);
    if (status == MIST_OK && is_first)
        status = print_summary(setup, &traces, &report, &ops, err);
    if (status == MIST_OK && is_first)
        say_doubt(setup, &traces, &report);
    if (status == MIST_OK && is_first && csv) {
        struct mist_op_peak peak = mist_profile_peak(&traces.cluster);
        status = mist_op_table_save(&ops, &peak, csv, common->force, err);
    }
    mist_journal_close(journal, status == MIST_OK);
    mist_op_table_fini(&ops);
    mist_trace_set_fini(&traces);
    return status;
}

/* Where ranks run is decided as mist-exec does it, before they make threads. */
static enum mist_status settle(struct setup *setup, struct mist_comm *comm,
                               struct mist_err *err)
{
    const struct options *options = &setup->options;
    bool has_gpus = mist_machine_has_gpus(&setup->machine);
    struct mist_affinity affinity;
    char note[512];
    enum mist_status status =
        mist_affinity_settle(comm, has_gpus ? 0 : (int32_t)options->n_threads,
                             options->bind == 1, &affinity, note, sizeof note, err);

    if (status != MIST_OK)
        return status;
    setup->machine.n_rank_processors = affinity.n_processors;
    if (note[0])
        mist_message(&setup->messages, "%s", note);
    return MIST_OK;
}

/* The part of a rank: everything, with the communicator open. */
static enum mist_status run_rank(struct setup *setup, struct mist_comm *comm,
                                 struct mist_err *err)
{
    int32_t n_ranks = mist_comm_n_ranks(comm), n_nodes = 1;

    if (setup->options.n_ranks > 0 && setup->options.n_ranks != n_ranks)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--ranks %d, but mpirun started %d; leave --ranks out",
                            (int)setup->options.n_ranks, (int)n_ranks);
    struct mist_backend_place place = {0};
    enum mist_status status = mist_ranks_check_nodes(comm, &n_nodes, err);
    if (status == MIST_OK)
        status =
            mist_ranks_check_devices(comm, mist_machine_has_gpus(&setup->machine), err);
    if (status == MIST_OK)
        status = mist_backend_pick_device(&setup->machine.devices, comm, &place, err);
    if (status != MIST_OK)
        return status;
    setup->machine.n_node_devices = place.n_node_devices;
    if (place.note[0])
        mist_message(&setup->messages, "%s: all communicate through the host's memory",
                     place.note);
    if (status == MIST_OK)
        status = mist_comm_agree(comm, set_up(setup, n_nodes, n_ranks, err), err);
    if (status == MIST_OK)
        status = settle(setup, comm, err);
    if (status == MIST_OK)
        status = mist_comm_agree(comm, try_device(setup, place.i_device, err), err);
    if (status == MIST_OK)
        status = mist_time_links_try(comm, &setup->link_bytes_per_s, err);
    if (status == MIST_OK)
        status = mist_comm_agree(comm, make_plan(setup, err), err);
    if (status == MIST_OK && setup->options.common.is_dry_run)
        return mist_comm_rank(comm) == 0 ? print_plan(setup, err) : MIST_OK;
    return status == MIST_OK ? measure(setup, comm, err) : status;
}

static int finish(const struct mist_err *err, enum mist_status status)
{
    if (status != MIST_OK)
        mist_err_print(err, tool.name, stderr);
    return mist_exit_code(status);
}

/* One rank in place, also to import, or one of those that mpirun started. begun: what
 * came of what went before. */
static int run_here(struct setup *setup, enum mist_status begun, struct mist_err *err)
{
    struct mist_comm *comm;
    struct mist_err unopened;
    enum mist_status status = mist_comm_open(&comm, &unopened);

    if (status != MIST_OK)
        return begun == MIST_OK ? finish(&unopened, status) : finish(err, begun);
    setup->is_first = mist_comm_rank(comm) == 0;
    setup->messages = mist_messages_to_stderr(tool.name, setup->options.common.is_quiet ||
                                                             !setup->is_first);
    status = mist_comm_agree(comm, begun, err);
    if (status == MIST_OK)
        status = imports(setup) ? mist_comm_work_together(comm, import, setup, err)
                                : run_rank(setup, comm, err);
    bool is_agreed = mist_comm_agreed_rank(comm) >= 0;
    bool says = setup->is_first || (status == MIST_ERR_RUN && !is_agreed);
    bool is_alike = setup->stop_signal && (!setup->is_first || mist_launch_is_own());
    int code = says && !is_alike ? finish(err, status) : mist_exit_code(status);
    if (setup->stop_signal)
        code = 128 + setup->stop_signal;
    else if (!is_agreed && (status == MIST_ERR_RUN || status == MIST_ERR_MEMORY))
        mist_comm_abort(comm, code); /* the others may wait for this rank */
    mist_comm_close(comm);
    return code;
}

/* What the session ended with, as far as the ranks have not said it: they know the signal
 * only that was passed on to them. */
static int end_session(const struct setup *setup, const struct mist_launch_end *end)
{
    struct mist_err err = {0};
    int n =
        end->stop_signal ? end->stop_signal : end->code - 128; /* of the ranks alone */

    if (end->code == 0 || !mist_interrupt_name(n))
        return end->code;
    if (mist_journal_exists(setup->options.common.output))
        (void)finish(&err, mist_journal_describe_stop(n, &err));
    return 128 + n;
}

/* Checks everything here, where messages are clean, and starts the ranks. */
static int start_ranks(struct setup *setup, int argc, char **argv, struct mist_err *err)
{
    const struct mist_common_options *common = &setup->options.common;
    int32_t n_ranks = (int32_t)setup->options.n_ranks;
    bool shows = common->progress == MIST_PROGRESS_ALWAYS ||
                 (common->progress == MIST_PROGRESS_AUTO && isatty(STDERR_FILENO));
    /* their stderr is a pipe to mpirun; whether it is a terminal is known here */
    const char *const extra[] = {shows ? "--progress=always" : "--progress=never"};
    struct mist_launch_end end = {0};
    enum mist_status status = set_up(setup, 1, n_ranks, err);

    if (status == MIST_OK && common->is_dry_run)
        status = try_device(setup, 0, err);
    else
        setup->flop_per_s = 1e12; /* only whether all fits is looked at */
    if (status == MIST_OK)
        status = make_plan(setup, err);
    if (status == MIST_OK && common->is_dry_run)
        return finish(err, print_plan(setup, err));
    if (status == MIST_OK)
        status = mist_launch_ranks(n_ranks, setup->machine.n_processors, argc, argv,
                                   extra, 1, &end, err);
    return status == MIST_OK ? end_session(setup, &end) : finish(err, status);
}

static int32_t default_ranks(const struct mist_machine *machine)
{
    if (mist_machine_has_gpus(machine))
        return machine->devices.n_devices;
    return machine->n_processors < DEFAULT_RANKS ? machine->n_processors : DEFAULT_RANKS;
}

int main(int argc, char **argv)
{
    static struct setup setup;
    struct mist_err err = {0};
    bool is_done = false;
    int code;

    mist_interrupt_settle();
    enum mist_status status =
        mist_options_parse(&tool, argc, argv, &setup.options, &setup.files,
                           mist_comm_launched_stdout(), &is_done, &err);
    if (is_done)
        return finish(&err, status);
    bool is_here = mist_comm_launched_rank() || imports(&setup);
    if (status == MIST_OK && !imports(&setup))
        status = mist_machine_read((enum mist_backend_choice)setup.options.backend,
                                   &setup.machine, setup.note, sizeof setup.note, &err);
    if (status == MIST_OK && !is_here && setup.options.n_ranks == 0)
        setup.options.n_ranks = default_ranks(&setup.machine);
    if (status != MIST_OK || is_here || setup.options.n_ranks == 1)
        code = run_here(&setup, status, &err);
    else
        code = start_ranks(&setup, argc, argv, &err);
    mist_grid_fini(&setup.grid);
    return code;
}
