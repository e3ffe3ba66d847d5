/*
 * mist-sim: replays a plan on a cluster that was measured, or edited.
 *
 *     $ mist-sim plan.json --what-if kernel.attention=0.5x
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
#include "core/parse.h"
#include "sim/cost/trace_use.h"
#include "sim/explain/explain.h"
#include "sim/replay/replay.h"
#include "sim/sim_list.h"
#include "sim/sim_options.h"
#include "sim/sim_recorded.h"
#include "sim/sim_report.h"
#include "sim/what_if.h"
#include "traces/chrome_trace.h"
#include "traces/preset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct session {
    struct mist_sim_options options;
    struct mist_messages messages;
    enum mist_emit_kind kind;
    struct mist_plan plan;
    const char *plan_path;
    const char *cluster_path;
    struct mist_explanation explanation; /* --explain */
    bool has_warned;                     /* of what of the trace set is of no use */
    bool has_warned_of_links;            /* as edited */
};

/* ---------------------------------------------------------------------------- replay */

static enum mist_status apply_edits(const struct session *at, const char *sweep_edit,
                                    struct mist_trace_set *traces, double *rank_factor,
                                    struct mist_err *err)
{
    int n_ranks = mist_plan_n_ranks(&at->plan);
    enum mist_status status = MIST_OK;

    for (int i = 0; i < at->options.what_if.n && status == MIST_OK; i++)
        status = mist_what_if_apply(at->options.what_if.items[i], traces, rank_factor,
                                    n_ranks, err);
    if (status == MIST_OK && sweep_edit)
        status = mist_what_if_apply(sweep_edit, traces, rank_factor, n_ranks, err);
    return status;
}

/* What of the trace set the plan can't use; the replays of a sweep say it once. */
static void warn_of_traces(struct session *at, const struct mist_trace_set *traces)
{
    if (!at->has_warned) {
        mist_trace_use_warn(traces, at->plan.job.dtype, &at->messages);
        mist_trace_use_warn_plan(traces, &at->plan, at->plan_path, &at->messages);
    }
    at->has_warned = true;
}

/* A plan for more devices than there are would be priced, but by extrapolation alone; one
 * of no whole nodes by groups that are spread otherwise. */
static enum mist_status check_devices(const struct session *at,
                                      const struct mist_cluster *cluster,
                                      struct mist_err *err)
{
    int n_ranks = mist_plan_n_ranks(&at->plan), per_node = cluster->devices_per_node;

    if (n_ranks > per_node && n_ranks % per_node != 0)
        return mist_err_at(
            err, MIST_ERR_INPUT, at->plan_path, 0, 0,
            "the plan's %d ranks are no whole nodes of %d devices, as %.120s has; %d and "
            "%d are, or other nodes: --what-if cluster.devices_per_node=N",
            n_ranks, per_node, at->cluster_path, n_ranks - n_ranks % per_node,
            n_ranks - n_ranks % per_node + per_node);
    if (n_ranks <= (int64_t)cluster->nodes * per_node)
        return MIST_OK;
    return mist_err_at(
        err, MIST_ERR_INPUT, at->plan_path, 0, 0,
        "the plan needs %d ranks, %.120s has %d x %d devices; edit it with "
        "--what-if cluster.nodes=N or cluster.devices_per_node=N",
        n_ranks, at->cluster_path, cluster->nodes, cluster->devices_per_node);
}

/* All of a replay but the replay. */
static enum mist_status check_replay(const struct session *at,
                                     const struct mist_cost_model *model,
                                     const struct mist_replay_options *options,
                                     struct mist_err *err)
{
    enum mist_status status = mist_replay_check_memory(&at->plan, options, err);

    return status == MIST_OK ? mist_replay_check_prices(&at->plan, model, options, err)
                             : status;
}

/* The replay, and its explanation if that is asked for. */
static enum mist_status run_replay(struct session *at,
                                   const struct mist_cost_model *model,
                                   const struct mist_replay_options *options,
                                   struct mist_replay_result *out, struct mist_err *err)
{
    enum mist_status status = mist_replay_run(&at->plan, model, options, out, err);

    if (status != MIST_OK || !at->options.explains)
        return status;
    status = mist_explain(&at->plan, model, options->threads, out, &at->explanation, err);
    if (status != MIST_OK)
        mist_replay_result_fini(out);
    return status;
}

/*
 * Loads the trace set, applies all edits (and sweep_edit, NULL: none), replays. out NULL:
 * all but the replay.
 */
static enum mist_status replay(struct session *at, const char *sweep_edit,
                               struct mist_cluster *cluster,
                               struct mist_replay_result *out, struct mist_err *err)
{
    struct mist_trace_set traces;
    struct mist_cost_model *model = NULL;
    bool has_timeline =
        at->options.common.output || at->options.chrome || at->options.compare;
    size_t n_ranks = (size_t)mist_plan_n_ranks(&at->plan);
    double *rank_factor = malloc(n_ranks * sizeof *rank_factor);
    enum mist_status status = mist_trace_set_open(&traces, at->cluster_path, err);

    if (!rank_factor)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (size_t i = 0; rank_factor && i < n_ranks; i++)
        rank_factor[i] = 1;
    if (status == MIST_OK)
        warn_of_traces(at, &traces);
    if (status == MIST_OK)
        status = apply_edits(at, sweep_edit, &traces, rank_factor, err);
    if (status == MIST_OK)
        status = check_devices(at, &traces.cluster, err);
    if (status == MIST_OK && !at->has_warned_of_links) {
        mist_trace_use_warn_links(&traces, (int32_t)n_ranks, &at->messages);
        at->has_warned_of_links = true;
    }
    if (status == MIST_OK)
        status = mist_cost_model_new(&traces, &model, err);
    if (status == MIST_OK) {
        struct mist_replay_options options = {
            .n_iterations = (int32_t)at->options.n_iterations,
            .folding =
                at->options.is_unfolded ? MIST_REPLAY_FOLD_NEVER : MIST_REPLAY_FOLD_AUTO,
            .threads = (int32_t)at->options.n_threads,
            .jitter_frac = at->options.jitter_frac,
            .seed = (uint64_t)at->options.common.seed,
            .skips_timeline = !has_timeline && !at->options.explains,
            .only_stages = !has_timeline,
        };
        for (size_t i = 0; i < n_ranks; i++)
            if (rank_factor[i] != 1)
                options.rank_factor = rank_factor;
        *cluster = traces.cluster;
        status = out ? run_replay(at, model, &options, out, err)
                     : check_replay(at, model, &options, err);
    }
    mist_cost_model_free(model);
    mist_trace_set_fini(&traces);
    free(rank_factor);
    return status;
}

/* ---------------------------------------------------------------------------- output */

/* Host memory is one for all ranks of a node, which are placed in order. */
static void warn_of_host_memory(const struct session *at,
                                const struct mist_cluster *cluster,
                                const struct mist_replay_result *result)
{
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES];
    int32_t n_ranks = mist_plan_n_ranks(&at->plan);
    int64_t bytes = 0;

    for (int32_t rank = 0; rank < n_ranks; rank++) {
        int32_t i_stage = mist_plan_stage_of(&at->plan, rank);
        bytes += result->stages[i_stage].arena_bytes[MIST_ARENA_HOST];
        if (rank < n_ranks - 1 && (rank + 1) % cluster->devices_per_node != 0)
            continue;
        if (bytes > cluster->host_memory_bytes_per_node) {
            mist_format_bytes(needed, sizeof needed, bytes);
            mist_format_bytes(there, sizeof there, cluster->host_memory_bytes_per_node);
            mist_message(&at->messages, "node %d needs %s of host memory, there are %s",
                         (int)(rank / cluster->devices_per_node), needed, there);
        }
        bytes = 0;
    }
}

static void warn_of_memory(const struct session *at, const struct mist_cluster *cluster,
                           const struct mist_replay_result *result)
{
    char needed[MIST_FORMAT_BYTES], there[MIST_FORMAT_BYTES];

    warn_of_host_memory(at, cluster, result);
    for (int32_t i = 0; i < result->n_stages; i++) {
        int64_t bytes = mist_sim_report_device_bytes(
            &at->plan, cluster, result->stages[i].arena_bytes[MIST_ARENA_DEVICE]);
        if (bytes <= cluster->device_memory_bytes)
            continue;
        mist_format_bytes(needed, sizeof needed, bytes);
        mist_format_bytes(there, sizeof there, cluster->device_memory_bytes);
        mist_message(&at->messages, "stage %d needs %s of device memory, there are %s",
                     (int)i, needed, there);
    }
}

static enum mist_status add_comparison(struct mist_emit *emit, const struct session *at,
                                       const struct mist_replay_result *result,
                                       struct mist_err *err)
{
    struct mist_timeline measured;
    struct mist_compare_side *sides = calloc(2, sizeof *sides);
    enum mist_status status = mist_timeline_load(&measured, at->options.compare, err);

    if (!sides)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status == MIST_OK)
        status = mist_compare_reduce(&at->plan, &measured, &sides[1], err);
    if (status == MIST_OK)
        status = mist_compare_check_whole(&at->plan, &result->timeline, &measured, err);
    mist_err_locate(err, at->options.compare, 0);
    if (status == MIST_OK)
        status = mist_compare_reduce(&at->plan, &result->timeline, &sides[0], err);
    if (status == MIST_OK) {
        sides[0].iteration_s = result->iteration_s;
        mist_sim_report_add_comparison(emit, &at->plan, &sides[0], &sides[1],
                                       result->error_s);
    }
    mist_timeline_fini(&measured);
    free(sides);
    return status;
}

static enum mist_status write_files(const struct session *at,
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

static enum mist_status begin(const struct session *at, struct mist_emit **emit,
                              struct mist_err *err)
{
    return mist_emit_begin(emit, at->kind, stdout, err);
}

/* ------------------------------------------------------------------------------ runs */

static enum mist_status run_once(struct session *at, struct mist_err *err)
{
    struct mist_cluster cluster;
    struct mist_replay_result result;
    struct mist_emit *emit = NULL;
    struct mist_speed speed;
    enum mist_status status = replay(at, NULL, &cluster, &result, err);

    if (status != MIST_OK)
        return status;
    status = mist_speed_find(&at->plan, &cluster, result.iteration_s, &speed, err);
    if (status == MIST_OK)
        status = begin(at, &emit, err);
    if (status == MIST_OK && at->options.explains && at->kind == MIST_EMIT_CSV)
        mist_explanation_emit(emit, at->kind, &at->explanation, &cluster);
    if (status == MIST_OK)
        mist_sim_report_add_result(emit, &at->plan, &cluster, &result, &speed,
                                   at->kind != MIST_EMIT_TABLE ||
                                       at->options.common.is_verbose);
    if (status == MIST_OK && at->options.explains && at->kind != MIST_EMIT_CSV)
        mist_explanation_emit(emit, at->kind, &at->explanation, &cluster);
    if (status == MIST_OK && at->options.compare)
        status = add_comparison(emit, at, &result, err);
    if (status == MIST_OK)
        status = write_files(at, &cluster, &result, err);
    if (status == MIST_OK)
        status = mist_emit_end(&emit, err);
    if (status == MIST_OK)
        warn_of_memory(at, &cluster, &result);
    mist_emit_free(emit);
    mist_explanation_fini(&at->explanation);
    mist_replay_result_fini(&result);
    return status;
}

/* emit NULL: all but the replay. */
static enum mist_status sweep_row(struct session *at, struct mist_emit *emit,
                                  const char *name, const char *value,
                                  struct mist_err *err)
{
    struct mist_cluster cluster;
    struct mist_replay_result result;
    char edit[1032]; /* both come from one text of 512 */

    snprintf(edit, sizeof edit, "%s=%s", name, value);
    enum mist_status status = replay(at, edit, &cluster, emit ? &result : NULL, err);
    if (status != MIST_OK || !emit)
        return status;
    mist_emit_object_begin(emit, NULL, NULL);
    mist_emit_text(emit, "value", name, value);
    mist_emit_double(emit, "iteration_s", "iteration", result.iteration_s,
                     MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "error_s", "+-", result.error_s, MIST_HUMAN_TIME_S);
    mist_emit_double(emit, "tokens_per_s", "tokens/s",
                     (double)at->plan.job.global_batch * (double)at->plan.job.seq_len /
                         result.iteration_s,
                     MIST_HUMAN_NUMBER);
    mist_emit_object_end(emit);
    mist_replay_result_fini(&result);
    return MIST_OK;
}

/* "NAME=V1:V2" in text[size], cut behind the name. *values: behind the '='. */
static enum mist_status split_sweep(const struct mist_sim_options *options, char *text,
                                    size_t size, char **values, struct mist_err *err)
{
    size_t n = strlen(options->sweep);
    const char *equals = strchr(options->sweep, '=');

    if (options->common.output || options->chrome || options->compare ||
        options->explains || options->save_plan || options->export)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sweep: has no one timeline; leave --output, --chrome, "
                            "--compare, --explain, --save-plan and --export out");
    if (n >= size || !equals || equals == options->sweep || !equals[1] ||
        equals[1] == ':' || strstr(equals, "::") || options->sweep[n - 1] == ':')
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--sweep %.100s: expected NAME=V1:V2:.., such as "
                            "link.all=0.5x:1x:2x",
                            options->sweep);
    memcpy(text, options->sweep, n + 1);
    *values = text + (equals - options->sweep);
    *(*values)++ = '\0';
    return MIST_OK;
}

static enum mist_status run_sweep(struct session *at, struct mist_err *err)
{
    char text[512], *values = NULL;
    struct mist_emit *emit = NULL;
    enum mist_status status = split_sweep(&at->options, text, sizeof text, &values, err);

    if (status != MIST_OK)
        return status;
    if (!at->options.common.is_dry_run) {
        status = begin(at, &emit, err);
        if (status != MIST_OK)
            return status;
        mist_emit_list_begin(emit, "sweep", NULL);
    }
    for (char *state, *value = strtok_r(values, ":", &state); value && status == MIST_OK;
         value = strtok_r(NULL, ":", &state))
        status = sweep_row(at, emit, text, value, err);
    if (status == MIST_OK && emit) {
        mist_emit_list_end(emit);
        status = mist_emit_end(&emit, err);
    }
    mist_emit_free(emit);
    return status;
}

/* A file that could not be written at the end is refused at the beginning. */
static enum mist_status check_outputs(const struct mist_sim_options *options,
                                      struct mist_err *err)
{
    const char *paths[] = {options->common.output, options->chrome, options->save_plan,
                           options->export};
    const char *names[] = {"output", "chrome", "save-plan", "export"};

    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct mist_atomic_file file;
        if (!paths[i])
            continue;
        for (size_t k = 0; k < i; k++)
            if (paths[k] && strcmp(paths[k], paths[i]) == 0)
                return mist_err_set(err, MIST_ERR_USAGE, "--%s and --%s are both %.200s",
                                    names[k], names[i], paths[i]);
        enum mist_status status =
            mist_atomic_file_open(&file, paths[i], options->common.force, err);
        if (status != MIST_OK)
            return status;
        mist_atomic_file_abort(&file);
    }
    return MIST_OK;
}

/* Everything but the replay. */
static enum mist_status dry_run(struct session *at, struct mist_err *err)
{
    struct mist_cluster cluster;
    enum mist_status status =
        mist_replay_check(&at->plan, (int32_t)at->options.n_threads, err);

    if (status == MIST_OK && at->options.sweep)
        status = run_sweep(at, err);
    else if (status == MIST_OK)
        status = replay(at, NULL, &cluster, NULL, err);
    if (status == MIST_OK)
        mist_message(&at->messages, "%s can be replayed", at->plan_path);
    return status;
}

/* --presets or --list. */
static enum mist_status list(const struct session *at, struct mist_err *err)
{
    bool lists_presets = at->options.lists_presets;
    struct mist_emit *emit = NULL;

    if (at->plan_path || (lists_presets && at->options.lists_words))
        return mist_err_set(err, MIST_ERR_USAGE, "--%s and takes no %s",
                            lists_presets ? "presets lists presets" : "list lists words",
                            at->plan_path ? "PLAN" : "--list");
    enum mist_status status = begin(at, &emit, err);

    if (status == MIST_OK) {
        if (lists_presets)
            mist_sim_report_add_presets(emit);
        else if (at->options.framework > 1)
            mist_sim_job_list(emit,
                              (enum mist_framework_name)(at->options.framework - 1));
        else
            mist_sim_list_add(emit);
        status = mist_emit_end(&emit, err);
    }
    mist_emit_free(emit);
    return status;
}

/* --replay. */
static enum mist_status run_recorded(struct session *at, struct mist_err *err)
{
    const struct mist_sim_options *options = &at->options;
    bool is_for_machines = options->common.as_json || options->common.as_csv;
    struct mist_emit *emit = NULL;

    if (at->plan_path || mist_sim_job_is_given(&options->job) || options->cluster ||
        options->sweep || options->compare || options->chrome || options->explains ||
        options->export || options->save_plan || options->common.output)
        return mist_err_set(
            err, MIST_ERR_USAGE,
            "--replay: a recording has no PLAN or job, --cluster, --sweep, "
            "--compare, --explain and no files to write; leave it out");
    enum mist_status status = begin(at, &emit, err);
    if (status == MIST_OK)
        status = mist_sim_recorded_add(emit, options->replay, options->what_if.items,
                                       options->what_if.n, is_for_machines ? 0 : 5, err);
    if (status == MIST_OK && !options->common.is_dry_run)
        status = mist_emit_end(&emit, err);
    else if (status == MIST_OK)
        mist_message(&at->messages, "%s can be replayed", options->replay);
    mist_emit_free(emit);
    return status;
}

/* The plan of the file, or that of the job that the options say. */
static enum mist_status load_plan(struct session *at, struct mist_err *err)
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
        return mist_sim_job_make(job, options->cluster, &at->messages, &at->plan, err);
    }
    if (!at->plan_path)
        return mist_err_set(err, MIST_ERR_USAGE, "PLAN is missing; --help says more");
    enum mist_status status = mist_plan_load(at->plan_path, &at->plan, err);
    return status == MIST_OK ? mist_sim_choose_framework(options, &at->plan, err)
                             : status;
}

static enum mist_status run(struct session *at, struct mist_err *err)
{
    if (at->options.replay)
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
    status = check_outputs(&at->options, err);
    if (status != MIST_OK)
        return status;
    mist_model_warn(&at->plan.model, at->plan.job.seq_len, &at->messages);
    if (at->options.common.is_dry_run)
        return dry_run(at, err);
    return at->options.sweep ? run_sweep(at, err) : run_once(at, err);
}

int main(int argc, char **argv)
{
    static struct session at;
    struct mist_positionals positionals;
    struct mist_err err = {0};
    bool is_done = false;

    mist_interrupt_ignore_file_size();
    enum mist_status status = mist_options_parse(&mist_sim_tool, argc, argv, &at.options,
                                                 &positionals, stdout, &is_done, &err);

    if (status == MIST_OK && is_done)
        return 0;
    if (status == MIST_OK) {
        at.messages =
            mist_messages_to_stderr(mist_sim_tool.name, at.options.common.is_quiet);
        at.kind = mist_emit_kind_of(at.options.common.as_json, at.options.common.as_csv);
        at.plan_path = positionals.n > 0 ? positionals.items[0] : NULL;
        status = run(&at, &err);
    }
    if (status != MIST_OK)
        mist_err_print(&err, mist_sim_tool.name, stderr);
    return mist_exit_code(status);
}
