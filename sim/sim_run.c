/* One replay of mist-sim. See sim_run.h. */
#include "sim/sim_run.h"

#include "sim/cost/trace_use.h"
#include "sim/what_if.h"
#include "traces/preset.h"

#include <stdlib.h>

/* Without --lengths, and with it: the first does not count. */
enum { USUAL_ITERATIONS = 2, DRAWN_ITERATIONS = 101 };

enum mist_status mist_sim_run_draw(struct mist_sim_run *run, struct mist_err *err)
{
    struct mist_sim_options *options = &run->options;
    struct mist_lengths lengths = {0};

    if (options->n_iterations == 0)
        options->n_iterations = options->lengths ? DRAWN_ITERATIONS : USUAL_ITERATIONS;
    if (!options->lengths)
        return MIST_OK;
    enum mist_status status = mist_lengths_read(options->lengths, &lengths, err);
    if (status != MIST_OK)
        return status;
    run->loads = malloc(sizeof *run->loads);
    status = run->loads ? mist_loads_make(&run->plan, &lengths,
                                          (enum mist_packing)options->packing,
                                          (uint64_t)options->common.seed,
                                          (int32_t)options->n_iterations, run->loads, err)
                        : mist_err_memory(err, NULL);
    mist_lengths_fini(&lengths);
    if (status != MIST_OK) {
        free(run->loads);
        run->loads = NULL;
    }
    return status;
}

void mist_sim_run_fini(struct mist_sim_run *run)
{
    if (run->loads)
        mist_loads_fini(run->loads);
    free(run->loads);
    run->loads = NULL;
    mist_replay_causes_fini(&run->causes);
}

/* What of the trace set the plan can't use; the replays of a study say it once. */
static void warn_of_traces(struct mist_sim_run *run, const struct mist_trace_set *traces)
{
    if (!run->has_warned) {
        mist_trace_use_warn(traces, run->plan.job.dtype, &run->messages);
        if (!run->options.cluster || mist_trace_set_is_folder(run->options.cluster))
            mist_trace_use_warn_plan(traces, &run->plan, run->plan_path, &run->messages);
    }
    run->has_warned = true;
}

/* A plan for more devices than there are would be priced, but by extrapolation alone; one
 * of no whole nodes by groups that are spread otherwise. */
static enum mist_status check_devices(const struct mist_sim_run *run,
                                      const struct mist_cluster *cluster,
                                      struct mist_err *err)
{
    int n_ranks = mist_plan_n_ranks(&run->plan), per_node = cluster->devices_per_node;

    if (n_ranks > per_node && n_ranks % per_node != 0)
        return mist_err_at(
            err, MIST_ERR_INPUT, run->plan_path, 0, 0,
            "the plan's %d ranks are no whole nodes of %d devices, as %.120s has; %d and "
            "%d are, or other nodes: --what-if cluster.devices_per_node=N",
            n_ranks, per_node, run->cluster_path, n_ranks - n_ranks % per_node,
            n_ranks - n_ranks % per_node + per_node);
    if (n_ranks <= (int64_t)cluster->nodes * per_node)
        return MIST_OK;
    return mist_err_at(
        err, MIST_ERR_INPUT, run->plan_path, 0, 0,
        "the plan needs %d ranks, %.120s has %d x %d devices; edit it with "
        "--what-if cluster.nodes=N or cluster.devices_per_node=N",
        n_ranks, run->cluster_path, cluster->nodes, cluster->devices_per_node);
}

/* All of a replay but the replay. */
static enum mist_status check_replay(const struct mist_sim_run *run,
                                     const struct mist_cost_model *model,
                                     const struct mist_replay_options *options,
                                     struct mist_err *err)
{
    enum mist_status status = mist_replay_check_memory(&run->plan, options, err);

    return status == MIST_OK ? mist_replay_check_prices(&run->plan, model, options, err)
                             : status;
}

static enum mist_status find_causes(struct mist_sim_run *run,
                                    const struct mist_cost_model *model,
                                    const struct mist_replay_options *options,
                                    struct mist_err *err)
{
    struct mist_progress progress;

    mist_progress_init(&progress, (enum mist_progress_mode)run->options.common.progress,
                       false, run->messages.stream, "replaying");
    enum mist_status status =
        mist_replay_find_causes(&run->plan, model, options, &progress, &run->causes, err);
    mist_progress_fini(&progress);
    return status;
}

static enum mist_status replay_plan(struct mist_sim_run *run,
                                    const struct mist_cost_model *model,
                                    const struct mist_replay_options *options,
                                    bool is_study, struct mist_replay_result *out,
                                    struct mist_explanation *explanation,
                                    struct mist_err *err)
{
    if (!out)
        return check_replay(run, model, options, err);
    enum mist_status status = mist_replay_run(&run->plan, model, options, out, err);
    if (status != MIST_OK)
        return status;
    if (!is_study && run->options.finds_causes)
        status = find_causes(run, model, options, err);
    if (status == MIST_OK && explanation)
        status = mist_explain(&run->plan, model, options->threads, out, explanation, err);
    if (status != MIST_OK)
        mist_replay_result_fini(out);
    return status;
}

static struct mist_replay_options replay_options(const struct mist_sim_run *run,
                                                 const struct mist_what_if *what_if,
                                                 bool is_study, bool explains)
{
    const struct mist_sim_options *options = &run->options;
    bool has_timeline =
        !is_study && (options->common.output || options->chrome || options->compare);
    struct mist_replay_options out = {
        .n_iterations = (int32_t)options->n_iterations,
        .folding = options->is_unfolded ? MIST_REPLAY_FOLD_NEVER : MIST_REPLAY_FOLD_AUTO,
        .threads = (int32_t)options->n_threads,
        .loads = run->loads,
        .jitter_frac = options->jitter_frac,
        .seed = (uint64_t)options->common.seed,
        .skips_timeline = !has_timeline && !explains,
        .only_stages = !has_timeline,
    };

    for (int32_t i = 0; i < mist_plan_n_ranks(&run->plan); i++) {
        if (what_if->rank_factor[i] != 1)
            out.rank_factor = what_if->rank_factor;
        if (what_if->link_factor[i] != 1)
            out.link_factor = what_if->link_factor;
    }
    return out;
}

/* Once the trace set is loaded. */
static enum mist_status
replay_edited(struct mist_sim_run *run, struct mist_what_if *what_if,
              struct mist_sim_edits edits, bool is_study, struct mist_cluster *cluster,
              struct mist_replay_result *out, struct mist_explanation *explanation,
              struct mist_err *err)
{
    struct mist_cost_model *model = NULL;
    enum mist_status status =
        mist_what_if_apply_all(what_if, edits.items, edits.n, false, err);

    if (status == MIST_OK)
        status = check_devices(run, &what_if->traces->cluster, err);
    if (status == MIST_OK && !run->has_warned_of_links) {
        mist_trace_use_warn_links(what_if->traces, mist_plan_n_ranks(&run->plan),
                                  &run->messages);
        run->has_warned_of_links = true;
    }
    if (status == MIST_OK)
        status = mist_cost_model_new(what_if->traces, &model, err);
    if (status == MIST_OK) {
        struct mist_replay_options options =
            replay_options(run, what_if, is_study, explanation != NULL);
        mist_cost_model_set_speeds(model, &what_if->speeds);
        *cluster = *mist_cost_model_cluster(model);
        status = replay_plan(run, model, &options, is_study, out, explanation, err);
    }
    mist_cost_model_free(model);
    return status;
}

enum mist_status mist_sim_replay(struct mist_sim_run *run, struct mist_sim_edits edits,
                                 bool is_study, struct mist_cluster *cluster,
                                 struct mist_replay_result *out,
                                 struct mist_explanation *explanation,
                                 struct mist_err *err)
{
    int n_ranks = mist_plan_n_ranks(&run->plan);
    double *factors = malloc(2 * (size_t)n_ranks * sizeof *factors);
    struct mist_trace_set traces;
    struct mist_what_if what_if;
    enum mist_status status = mist_trace_set_open(&traces, run->cluster_path, err);

    if (!factors)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK) {
        warn_of_traces(run, &traces);
        mist_what_if_init(&what_if, &traces, run->plan.job.framework, factors, n_ranks);
        status =
            replay_edited(run, &what_if, edits, is_study, cluster, out, explanation, err);
    }
    mist_trace_set_fini(&traces);
    free(factors);
    return status;
}

enum mist_status mist_sim_find_speed(struct mist_sim_run *run,
                                     const struct mist_cluster *cluster,
                                     double iteration_s, struct mist_speed *out,
                                     struct mist_err *err)
{
    enum mist_status status =
        mist_speed_find(&run->plan, cluster, run->loads, iteration_s, out, err);

    if (status == MIST_OK && out->model_frac > 1 && !run->has_warned_of_peak &&
        !run->options.finds_sensitivity) { /* which prints none */
        mist_message(&run->messages,
                     "MFU is above 100 %%: operators are faster than the peak rate of a "
                     "device; --what-if device.peak=2x raises both");
        run->has_warned_of_peak = true;
    }
    return status;
}
