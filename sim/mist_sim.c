/*
 * mist-sim: replays a plan on a cluster that was measured, or edited.
 *
 *     $ mist-sim plan.json
 *     iteration                    689 ms
 *     error bar, +-                12 ms
 *     tokens/s of a device         1486
 *     model FLOP utilisation (MFU) 38.2 %
 *     memory of a device           96 MiB
 *     ...
 */
#include "core/atomic_file.h"
#include "core/emit.h"
#include "core/interrupt.h"
#include "core/message.h"
#include "core/parse.h" /* sizes, for people */
#include "sim/explain/explain.h"
#include "sim/framework_args/framework_args.h"
#include "sim/recorded/recording.h"
#include "sim/replay/replay.h"
#include "sim/sim_list.h"
#include "sim/sim_recorded.h"
#include "sim/sim_report.h"
#include "sim/sim_run.h"
#include "sim/sim_study.h"
#include "sim/sim_uneven.h"
#include "sim/what_if.h"
#include "traces/chrome_trace.h"

#include <stdio.h>
#include <stdlib.h>

/* ---------------------------------------------------------------------------- output */

/* "; so it is with 3 nodes", or nothing where there is one. */
static const char *others(char *out, size_t n_out, int32_t n, const char *what)
{
    out[0] = '\0';
    if (n > 1)
        snprintf(out, n_out, "; so it is with %d %ss", (int)n, what);
    return out;
}

static void warn_of_host_memory(const struct mist_sim_run *at,
                                const struct mist_cluster *cluster,
                                const struct mist_replay_result *result)
{
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES], more[48];
    struct mist_sim_host_need need =
        mist_sim_report_host_need(&at->plan, cluster, result);

    if (need.n_short == 0)
        return;
    mist_format_bytes(needed, sizeof needed, need.bytes);
    mist_format_bytes(there, sizeof there, cluster->host_memory_bytes_per_node);
    mist_message(&at->messages, "node %d needs %s of host memory, there are %s%s",
                 (int)need.i_node, needed, there,
                 others(more, sizeof more, need.n_short, "node"));
}

/* Of the stages that lack something the one that lacks the most. */
struct short_stage {
    int32_t n, i_stage; /* how many do; which does the most */
    int64_t needed_bytes, there_bytes;
};

static void count_short(struct short_stage *of, int32_t i_stage, int64_t needed_bytes,
                        int64_t there_bytes)
{
    if (needed_bytes <= there_bytes)
        return;
    if (of->n++ == 0 || needed_bytes - there_bytes > of->needed_bytes - of->there_bytes)
        *of = (struct short_stage){of->n, i_stage, needed_bytes, there_bytes};
}

static void warn_of_memory(const struct mist_sim_run *at,
                           const struct mist_cluster *cluster,
                           const struct mist_replay_result *result)
{
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES], more[48];
    struct short_stage device = {0}, beside_arena = {0};

    warn_of_host_memory(at, cluster, result);
    for (int32_t i = 0; i < result->n_stages; i++) {
        struct mist_beside_arena beside =
            mist_beside_arena_find(&at->plan, cluster, &result->stages[i]);
        int64_t bytes = mist_sim_report_device_bytes(&at->plan, cluster, result, i);
        if (bytes > cluster->device_memory_bytes)
            count_short(&device, i, bytes, cluster->device_memory_bytes);
        else
            count_short(&beside_arena, i, beside.lost_bytes, beside.held_bytes);
    }
    mist_format_bytes(needed, sizeof needed, device.needed_bytes);
    mist_format_bytes(there, sizeof there, device.there_bytes);
    if (device.n > 0)
        mist_message(&at->messages, "stage %d needs %s of device memory, there are %s%s",
                     (int)device.i_stage, needed, there,
                     others(more, sizeof more, device.n, "stage"));
    mist_format_bytes(needed, sizeof needed, beside_arena.needed_bytes);
    mist_format_bytes(there, sizeof there, beside_arena.there_bytes);
    if (beside_arena.n > 0)
        mist_message(&at->messages,
                     "stage %d leaves %s of device memory to holes between what its "
                     "allocator gives out, usually %s: it may run out of memory, or "
                     "slow down while its allocator frees what it kept%s",
                     (int)beside_arena.i_stage, there, needed,
                     others(more, sizeof more, beside_arena.n, "stage"));
}

/* Of drawn times one iteration is one of many. */
static void say_one_counts(const struct mist_sim_run *at)
{
    if (at->options.jitter_frac > 0 && at->options.n_iterations <= 2)
        mist_message(&at->messages, "with jitter iterations differ, and one counts; "
                                    "--iterations 101 says how much they do");
}

/* The timeline of --compare, and what comparing takes of it. */
static enum mist_status load_measured(const struct mist_sim_run *at,
                                      struct mist_timeline *measured,
                                      struct mist_compare_side *side,
                                      struct mist_err *err)
{
    enum mist_status status = mist_timeline_load(measured, at->options.compare, err);

    if (status == MIST_OK)
        status = mist_compare_reduce(&at->plan, measured, side, err);
    if (status != MIST_OK)
        mist_err_locate(err, at->options.compare, 0);
    return status;
}

static enum mist_status add_comparison(struct mist_emit *emit,
                                       const struct mist_sim_run *at,
                                       const struct mist_replay_result *result,
                                       struct mist_err *err)
{
    struct mist_timeline measured = {0};
    struct mist_compare_side *sides = calloc(2, sizeof *sides);
    struct mist_compare_difference *differences = NULL;
    size_t n = 0;
    enum mist_status status =
        sides ? load_measured(at, &measured, &sides[1], err) : mist_err_memory(err, NULL);

    if (status == MIST_OK)
        status = mist_compare_tasks(&at->plan, &result->timeline, &measured,
                                    sides[1].n_iterations, &differences, &n, err);
    if (status == MIST_OK)
        status = mist_compare_check_whole(&at->plan, &result->timeline, &measured, err);
    mist_err_locate(err, at->options.compare, 0);
    if (status == MIST_OK)
        status = mist_compare_reduce(&at->plan, &result->timeline, &sides[0], err);
    if (status == MIST_OK) {
        sides[0].iteration_s = result->iteration_s;
        if (at->kind == MIST_EMIT_CSV) /* the first list is the table */
            mist_emit_number(emit, "measured_iteration_s", NULL, sides[1].iteration_s);
        else
            mist_sim_report_add_comparison(emit, &at->plan, &sides[0], &sides[1],
                                           result->error_s);
        mist_sim_report_add_differences(emit, differences, n, at->kind);
    }
    mist_timeline_fini(&measured);
    free(differences);
    free(sides);
    return status;
}

static enum mist_status write_files(const struct mist_sim_run *at,
                                    const struct mist_cluster *cluster,
                                    const struct mist_replay_result *result,
                                    struct mist_err *err)
{
    const struct mist_common_options *common = &at->options.common;
    enum mist_status status = MIST_OK;

    if (common->output)
        status =
            mist_timeline_save(&result->timeline, common->output, common->force, err);
    if (status == MIST_OK && at->options.chrome)
        status = mist_chrome_trace_save(&result->timeline, at->options.chrome,
                                        common->force, err);
    if (status == MIST_OK && at->options.save_plan)
        status = mist_plan_save(&at->plan, at->options.save_plan, common->force, err);
    if (status == MIST_OK && at->options.export)
        status =
            mist_sim_job_export(&at->plan, cluster->devices_per_node, at->options.export,
                                common->force, &at->messages, err);
    return status;
}

static enum mist_status begin(const struct mist_sim_run *at, struct mist_emit **emit,
                              struct mist_err *err)
{
    return mist_emit_begin(emit, at->kind,
                           mist_emit_stream(at->kind, at->options.common.is_quiet), err);
}

/* ------------------------------------------------------------------------------ runs */

/* Everything that is said of one replay. explanation NULL: none is asked for. */
static enum mist_status add_run(struct mist_sim_run *at,
                                const struct mist_cluster *cluster,
                                const struct mist_replay_result *result,
                                const struct mist_explanation *explanation,
                                struct mist_emit *emit, struct mist_err *err)
{
    enum { MOST_CAUSES = 12 }; /* for people */
    bool is_csv = at->kind == MIST_EMIT_CSV;
    bool is_study = at->options.what_if.n > 0 && !(explanation && is_csv);
    struct mist_speed speed;
    enum mist_status status =
        mist_sim_find_speed(at, cluster, result->iteration_s, &speed, err);

    if (status != MIST_OK)
        return status;
    if (explanation && is_csv)
        mist_explanation_emit(emit, at->kind, explanation);
    if (at->options.compare && is_csv)
        status = add_comparison(emit, at, result, err);
    if (at->options.finds_causes && is_csv) /* the first list is the table */
        mist_sim_uneven_add_causes(emit, &at->causes, 0);
    if (!is_study || !is_csv || at->options.finds_causes)
        mist_sim_report_add_result(emit, &at->plan, cluster, result, at->loads, &speed,
                                   at->kind != MIST_EMIT_TABLE ||
                                       at->options.common.is_verbose);
    if (at->options.finds_causes && !is_csv)
        mist_sim_uneven_add_causes(emit, &at->causes,
                                   at->kind == MIST_EMIT_TABLE ? MOST_CAUSES : 0);
    if (is_study && status == MIST_OK)
        status = mist_sim_study_what_if(at, cluster, result, emit, err);
    if (explanation && !is_csv)
        mist_explanation_emit(emit, at->kind, explanation);
    if (status == MIST_OK && at->options.compare && !is_csv)
        status = add_comparison(emit, at, result, err);
    return status;
}

static enum mist_status run_once(struct mist_sim_run *at, struct mist_err *err)
{
    const struct mist_sim_edits edits = {at->options.what_if.n,
                                         at->options.what_if.items};
    struct mist_explanation explained = {0},
                            *explanation = at->options.explains ? &explained : NULL;
    struct mist_cluster cluster;
    struct mist_replay_result result;
    struct mist_emit *emit = NULL;
    enum mist_status status =
        mist_sim_replay(at, edits, false, &cluster, &result, explanation, err);

    if (status != MIST_OK)
        return status;
    status = begin(at, &emit, err);
    if (status == MIST_OK)
        status = add_run(at, &cluster, &result, explanation, emit, err);
    if (status == MIST_OK)
        status = write_files(at, &cluster, &result, err);
    if (status == MIST_OK)
        status = mist_emit_end(&emit, err);
    if (status == MIST_OK) {
        warn_of_memory(at, &cluster, &result);
        say_one_counts(at);
    }
    mist_emit_free(emit);
    if (explanation)
        mist_explanation_fini(explanation);
    mist_replay_result_fini(&result);
    return status;
}

static bool is_study(const struct mist_sim_options *options)
{
    return options->sweep.n > 0 || options->finds_sensitivity;
}

/* What a study can't go with. */
static enum mist_status check_study(const struct mist_sim_options *options,
                                    struct mist_err *err)
{
    if (options->common.output || options->chrome || options->compare ||
        options->explains || options->finds_causes || options->save_plan ||
        options->export)
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "--%s: has no one timeline; leave --output, --chrome, "
            "--compare, --explain, --causes, --save-plan and --export out",
            options->finds_sensitivity ? "sensitivity" : "sweep");
    if (options->retunes && mist_sim_job_is_given(&options->job))
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "--retune plans again for the job of a PLAN; --save-plan FILE "
            "makes one of this job");
    for (int i = 0; i < options->what_if.n && options->retunes; i++)
        if (mist_what_if_is_of_rank(options->what_if.items[i]))
            return mist_err_set(err, MIST_ERR_USAGE,
                                "--retune: another plan has other ranks; leave "
                                "--what-if %s out",
                                options->what_if.items[i]);
    if (options->finds_sensitivity && options->sweep.n > 0)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sensitivity and --sweep are two studies");
    return MIST_OK;
}

/* Options that do not go together. */
static enum mist_status check_options(const struct mist_sim_options *options,
                                      struct mist_err *err)
{
    int n_tables = options->explains + options->finds_causes + (options->compare != NULL);

    if (options->common.as_csv && n_tables > 1)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--csv is one table; ask for one of --explain, --causes and "
                            "--compare, or for --json");
    return is_study(options) ? check_study(options, err) : MIST_OK;
}

/* --sweep or --sensitivity. */
static enum mist_status run_study(struct mist_sim_run *at, struct mist_err *err)
{
    const struct mist_sim_options *options = &at->options;
    struct mist_emit *emit = NULL;
    enum mist_status status = begin(at, &emit, err);

    if (status == MIST_OK)
        status = options->finds_sensitivity ? mist_sim_study_sensitivity(at, emit, err)
                                            : mist_sim_study_sweep(at, emit, err);
    if (status == MIST_OK)
        status = mist_emit_end(&emit, err);
    mist_emit_free(emit);
    return status;
}

static enum mist_status check_outputs(const struct mist_sim_run *at, struct mist_err *err)
{
    const struct mist_sim_options *options = &at->options;
    const char *model = mist_model_path(options->job.model);
    const struct mist_output outputs[] = {{"output", options->common.output},
                                          {"chrome", options->chrome},
                                          {"save-plan", options->save_plan},
                                          {"export", options->export}};
    const struct mist_files inputs[] = {
        {"PLAN", at->given.n > 0 ? at->given.items[0] : NULL, NULL},
        {"the trace set", at->cluster_path, mist_trace_set_file_name},
        {"--model", model, NULL},
        {"--model", model, mist_model_file_name},
        {"--from-args", options->job.from_args, NULL},
        {"--lengths", options->lengths, NULL},
        {"--compare", options->compare, NULL}};
    const size_t n = sizeof outputs / sizeof *outputs;
    enum mist_status status =
        mist_outputs_check_apart(outputs, n, inputs, sizeof inputs / sizeof *inputs, err);

    return status == MIST_OK ? mist_outputs_check(outputs, n, options->common.force, err)
                             : status;
}

/* Whether the timeline of --compare can be read, and is of the plan's ranks and layers. */
static enum mist_status check_measured(const struct mist_sim_run *at,
                                       struct mist_err *err)
{
    struct mist_timeline measured = {0};
    struct mist_compare_side *side = calloc(1, sizeof *side);
    enum mist_status status =
        side ? load_measured(at, &measured, side, err) : mist_err_memory(err, NULL);

    mist_timeline_fini(&measured);
    free(side);
    return status;
}

/* Everything but the replay. */
static enum mist_status dry_run(struct mist_sim_run *at, struct mist_err *err)
{
    const struct mist_sim_edits edits = {at->options.what_if.n,
                                         at->options.what_if.items};
    struct mist_cluster cluster;
    struct mist_explanation unused;
    enum mist_status status =
        mist_replay_check(&at->plan, (int32_t)at->options.n_threads, err);

    if (status == MIST_OK && at->options.sweep.n > 0)
        status = mist_sim_study_sweep(at, NULL, err);
    else if (status == MIST_OK)
        status = mist_sim_replay(at, edits, false, &cluster, NULL,
                                 at->options.explains ? &unused : NULL, err);
    if (status == MIST_OK && at->options.compare)
        status = check_measured(at, err);
    if (status == MIST_OK)
        mist_message(&at->messages, "%s can be replayed", at->plan_path);
    return status;
}

/* Of use whatever is done. */
#define ANYWHERE " csv json quiet verbose force dry-run progress seed"

/* --presets or --list. */
static enum mist_status list(const struct mist_sim_run *at, struct mist_err *err)
{
    bool lists_presets = at->options.lists_presets;
    struct mist_emit *emit = NULL;

    if (at->plan_path || (lists_presets && at->options.lists_words))
        return mist_err_set(err, MIST_ERR_USAGE, "--%s and takes no %s",
                            lists_presets ? "presets lists presets" : "list lists words",
                            at->plan_path ? "PLAN" : "--list");
    const char *no_use = mist_options_find_other(
        &mist_sim_tool, &at->given,
        lists_presets ? "presets" ANYWHERE : "list cluster framework" ANYWHERE);
    if (no_use)
        return mist_err_set(err, MIST_ERR_USAGE, "--%s has no use for --%s; leave it out",
                            lists_presets ? "presets" : "list", no_use);
    enum mist_framework_name framework = (enum mist_framework_name)(
        at->options.framework > 1 ? at->options.framework - 1 : 0);
    if (framework > 0 && !mist_args_row(framework, 0, &(struct mist_args_row){0}))
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--list --framework: arguments of %s are not read; its jobs "
                            "are said by options or a plan",
                            mist_framework_words[framework]);
    enum mist_status status = begin(at, &emit, err);

    if (status == MIST_OK) {
        if (lists_presets)
            mist_sim_report_add_presets(emit);
        else if (at->options.cluster)
            status = mist_sim_list_add_links(emit, at->options.cluster, err);
        else if (framework > 0)
            mist_sim_job_list(emit, framework);
        else
            mist_sim_list_add(emit);
        if (status == MIST_OK)
            status = mist_emit_end(&emit, err);
    }
    mist_emit_free(emit);
    return status;
}

/* --replay. */
static enum mist_status run_recorded(struct mist_sim_run *at, struct mist_err *err)
{
    const struct mist_sim_options *options = &at->options;
    struct mist_emit *emit = NULL;
    struct mist_progress progress;
    bool is_timeline = false;
    enum mist_status status =
        options->replay.n == 1
            ? mist_recorded_find_timeline(options->replay.items[0], &is_timeline, err)
            : MIST_OK;
    const char *no_use =
        mist_options_find_other(&mist_sim_tool, &at->given, "replay what-if" ANYWHERE);

    if (status != MIST_OK)
        return status;
    if (at->plan_path && !is_timeline)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--replay: a recording has no use for PLAN (a pattern of "
                            "files stands in quotes); leave it out");
    if (no_use)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--replay: a recording has no use for --%s; leave it out",
                            no_use);
    if (is_timeline && !at->plan_path)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--replay: %s is a timeline of a plan; name this PLAN, too",
                            options->replay.items[0]);
    if (is_timeline)
        status = mist_plan_load(at->plan_path, &at->plan, err);
    if (status == MIST_OK)
        status = begin(at, &emit, err);
    mist_progress_init(&progress, (enum mist_progress_mode)options->common.progress,
                       false, stderr, "reading");
    if (status == MIST_OK)
        status = mist_sim_recorded_add(emit, at->kind, options->replay.items,
                                       options->replay.n, is_timeline ? &at->plan : NULL,
                                       options->what_if.items, options->what_if.n,
                                       &progress, err);
    mist_progress_fini(&progress);
    if (status == MIST_OK && !options->common.is_dry_run)
        status = mist_emit_end(&emit, err);
    else if (status == MIST_OK)
        mist_message(&at->messages, "%s can be replayed", options->replay.items[0]);
    mist_emit_free(emit);
    return status;
}

/* The plan of the file, or that of the job that the options say. */
static enum mist_status load_plan(struct mist_sim_run *at, struct mist_err *err)
{
    struct mist_sim_options *options = &at->options;
    struct mist_sim_job_options *job = &options->job;

    if (mist_sim_job_is_given(job)) {
        if (at->plan_path)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "PLAN says the job; leave the options of a job without a "
                                "plan out");
        if (!options->cluster)
            return mist_err_set(err, MIST_ERR_USAGE,
                                "a job without a plan needs --cluster");
        job->framework = options->framework > 0
                             ? (enum mist_framework_name)(options->framework - 1)
                             : MIST_FRAMEWORK_OURS;
        job->attention = options->attention;
        job->recompute = options->recompute;
        at->plan_path = job->from_args ? job->from_args : "the job";
        return mist_sim_job_make(job, options->cluster, options->common.is_verbose,
                                 &at->messages, &at->plan, err);
    }
    if (!at->plan_path)
        return mist_err_set(err, MIST_ERR_USAGE, "PLAN is missing; --help says more");
    enum mist_status status = mist_plan_load(at->plan_path, &at->plan, err);
    if (options->framework - 1 == (int)at->plan.job.framework)
        options->framework = 0; /* what the plan has, with the plan's attention */
    return status == MIST_OK ? mist_sim_choose_framework(options, &at->plan, err)
                             : status;
}

/* Where neither options nor arguments said which: two generations of Megatron-LM differ by
 * up to a factor of three over long sequences. DeepSpeed's JSON never says. */
static void say_attention(const struct mist_sim_run *at)
{
    const struct mist_sim_options *options = &at->options;

    if (options->attention > 0)
        return;
    if (options->framework - 1 == MIST_FRAMEWORK_DEEPSPEED)
        mist_message(&at->messages,
                     "attention is the fused softmax of Megatron-DeepSpeed of 2022; "
                     "--attention flash is what it and transformers usually have now");
    if (options->framework - 1 == MIST_FRAMEWORK_MEGATRON && !options->job.from_args)
        mist_message(&at->messages,
                     "attention is the fused softmax of Megatron-LM without Transformer "
                     "Engine; --attention flash is what newer versions usually have");
}

static enum mist_status run(struct mist_sim_run *at, struct mist_err *err)
{
    if (at->options.replay.n > 0)
        return run_recorded(at, err);
    if (at->options.lists_presets || at->options.lists_words)
        return list(at, err);
    enum mist_status status = load_plan(at, err);

    if (status == MIST_OK && at->options.export)
        status = mist_sim_job_export(&at->plan, 0, NULL, false, &at->messages, err);
    if (status != MIST_OK)
        return status;
    if (at->options.n_threads == 0)
        at->options.n_threads = mist_plan_n_threads(&at->plan);
    at->cluster_path = at->options.cluster ? at->options.cluster : at->plan.trace_set;
    if (!at->cluster_path[0])
        return mist_err_set(err, MIST_ERR_USAGE,
                            "%s names no trace set; give one with --cluster",
                            at->plan_path);
    status = check_options(&at->options, err);
    if (status == MIST_OK)
        status = check_outputs(at, err);
    if (status == MIST_OK)
        status = mist_sim_run_draw(at, err);
    if (status != MIST_OK)
        return status;
    mist_model_warn(&at->plan.model, at->plan.job.seq_len, &at->messages);
    say_attention(at);
    if (at->options.common.is_dry_run)
        return dry_run(at, err);
    return is_study(&at->options) ? run_study(at, err) : run_once(at, err);
}

int main(int argc, char **argv)
{
    static struct mist_sim_run at;
    struct mist_err err = {0};
    bool is_done = false;

    mist_interrupt_settle();
    enum mist_status status = mist_options_parse(&mist_sim_tool, argc, argv, &at.options,
                                                 &at.given, stdout, &is_done, &err);

    if (status == MIST_OK && is_done)
        return 0;
    if (status == MIST_OK) {
        at.messages =
            mist_messages_to_stderr(mist_sim_tool.name, at.options.common.is_quiet);
        at.kind = mist_emit_kind_of(at.options.common.as_json, at.options.common.as_csv);
        at.plan_path = at.given.n > 0 ? at.given.items[0] : NULL;
        status = run(&at, &err);
        mist_sim_run_fini(&at);
    }
    if (status != MIST_OK)
        mist_err_print(&err, mist_sim_tool.name, stderr);
    return mist_exit_code(status);
}
