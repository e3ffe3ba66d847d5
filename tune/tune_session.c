/* From options to a question that can be searched. See tune_session.h. */
#include "tune/tune_session.h"

#include "core/interrupt.h"
#include "sim/cost/trace_use.h"
#include "traces/preset.h"
#include "tune/alike.h"
#include "tune/no_plan.h"
#include "tune/target.h"

#include <string.h>

/* Whose plans are searched: --ablate compares ours with those of --target itself. */
static enum mist_framework_name target_of(const struct mist_tune_options *options)
{
    return options->ablates ? MIST_FRAMEWORK_OURS
                            : (enum mist_framework_name)options->target;
}

static enum mist_status load_job(struct mist_tune_session *at, struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;
    enum mist_status status =
        options->model ? mist_model_load(options->model, &at->model, err) : MIST_OK;

    if (status != MIST_OK)
        return status;
    if (!options->model)
        at->model = options->plan->model;
    at->job =
        (struct mist_job){.global_batch = options->global_batch,
                          .seq_len = (int32_t)options->seq_len,
                          .dtype = (enum mist_dtype)options->dtype,
                          .gradient_dtype = (enum mist_dtype)options->gradient_dtype};
    mist_target_set(target_of(options), &at->messages, &at->model, &at->job);
    if (at->job.gradient_dtype != MIST_DTYPE_FP32 &&
        at->job.gradient_dtype != at->job.dtype)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "--gradient-dtype is %s with --dtype %s; it needs --dtype %s",
                            mist_dtype_words[at->job.gradient_dtype],
                            mist_dtype_words[at->job.dtype],
                            mist_dtype_words[at->job.gradient_dtype]);
    if (at->model.max_seq > 0 && at->job.seq_len > at->model.max_seq)
        return mist_err_set(err, MIST_ERR_USAGE, "--seq-len is %d; %s has %d positions",
                            (int)at->job.seq_len, at->model.name, (int)at->model.max_seq);
    return MIST_OK;
}

/* Ranks are placed in order, node after node, and only the last may have places left. */
static enum mist_status check_ranks(const struct mist_tune_options *options,
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

/* The trace set with as many nodes and devices as are asked for. A preset says so in its
 * name, which plans keep. */
static enum mist_status open_cluster(struct mist_tune_session *at, struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;
    struct mist_cluster *cluster = &at->traces.cluster;
    enum mist_status status = mist_trace_set_open(&at->traces, options->cluster, err);
    bool is_resized = options->n_nodes > 0 || options->n_devices_per_node > 0;

    if (strlen(options->cluster) < sizeof at->cluster)
        memcpy(at->cluster, options->cluster, strlen(options->cluster) + 1);
    if (status == MIST_OK && is_resized) {
        if (options->n_nodes > 0)
            cluster->nodes = (int)options->n_nodes;
        if (options->n_devices_per_node > 0)
            cluster->devices_per_node = (int)options->n_devices_per_node;
        cluster->probe_us = 0; /* that of other devices at once */
    }
    if (status != MIST_OK || !is_resized || mist_trace_set_is_folder(options->cluster))
        return status;
    if (!mist_preset_resized_name(at->cluster, sizeof at->cluster, options->cluster,
                                  cluster->nodes, cluster->devices_per_node))
        return mist_err_set(err, MIST_ERR_USAGE, "--cluster is too long for a plan");
    mist_trace_set_fini(&at->traces);
    return mist_trace_set_open(&at->traces, at->cluster, err);
}

static enum mist_status load_cluster(struct mist_tune_session *at, struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;
    struct mist_cluster *cluster = &at->traces.cluster;
    enum mist_status status = open_cluster(at, err);

    if (status != MIST_OK)
        return status;
    mist_trace_use_warn(&at->traces, at->job.dtype, &at->messages);
    at->config.fingerprint = mist_trace_set_fingerprint(&at->traces);
    if (options->device_memory_bytes > 0)
        cluster->device_memory_bytes = options->device_memory_bytes;
    mist_what_if_init(&at->what_if, &at->traces, at->job.framework, NULL, 0);
    status = mist_what_if_apply_all(&at->what_if, options->what_if.items,
                                    options->what_if.n, true, err);
    if (status == MIST_OK)
        status = check_ranks(options, cluster, err);
    if (status != MIST_OK)
        return status;
    at->job.computes_on_gpu = cluster->backend != MIST_TRACE_CPU;
    if (!at->job.computes_on_gpu)
        at->job.threads = options->n_threads > 0           ? (int32_t)options->n_threads
                          : cluster->device_threads > 1024 ? 1024
                          : cluster->device_threads > 0 ? (int32_t)cluster->device_threads
                                                        : 1;
    at->config.device_memory_bytes = cluster->device_memory_bytes;
    at->config.host_limit_bytes = cluster->host_memory_bytes_per_node;
    return mist_validate_limit(cluster, at->config.device_memory_bytes,
                               &at->config.limit_bytes, err);
}

/* Where the device is the host, there is nothing to move to it. */
static bool has_host_updates(const struct mist_tune_session *at)
{
    return at->traces.cluster.backend != MIST_TRACE_CPU &&
           mist_cost_model_prices_host(at->cost_model, at->job.dtype);
}

static enum mist_status make_space(struct mist_tune_session *at, struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;
    const struct mist_cluster *cluster = &at->traces.cluster;
    int64_t n_ranks = options->n_ranks > 0
                          ? options->n_ranks
                          : (int64_t)cluster->nodes * cluster->devices_per_node;
    unsigned groups = options->space.n > 0                        ? 0
                      : target_of(options) == MIST_FRAMEWORK_OURS ? MIST_SPACE_ALL
                                                                  : MIST_TARGET_GROUPS;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < options->space.n && status == MIST_OK; i++)
        status = mist_space_add_group(options->space.items[i], &groups, err);
    at->bounds = mist_bounds_none();
    at->bounds.is_uniform = options->is_uniform;
    for (int i = 0; i < options->fixed.n && status == MIST_OK; i++)
        status = mist_bounds_add(&at->bounds, options->fixed.items[i], true, err);
    for (int i = 0; i < options->limited.n && status == MIST_OK; i++)
        status = mist_bounds_add(&at->bounds, options->limited.items[i], false, err);
    at->config.slower_frac = options->slower_frac;
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
    status = mist_space_init(&at->space, &at->model, &at->job, (int32_t)n_ranks,
                             cluster->devices_per_node, groups, &at->bounds, err);
    at->space.allows_host_updates = status == MIST_OK &&
                                    mist_space_has(&at->space, MIST_SPACE_OFFLOAD) &&
                                    has_host_updates(at);
    return status == MIST_OK ? mist_space_check_bounds(&at->space, err) : status;
}

/* Plans that a search is to find. */
static size_t count_plans(const struct mist_tune_session *at)
{
    return (size_t)at->options->n_top *
           (at->lengths.is_given ? MIST_TUNE_LENGTHS_PLANS : 1);
}

enum mist_status mist_tune_session_price(struct mist_tune_session *at,
                                         struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;
    int32_t threads = at->job.threads;
    enum mist_status status =
        mist_stage_price_new(at->cost_model, &at->space, threads, &at->price, err);

    if (status == MIST_OK)
        status = mist_thread_pool_new((int)options->common.n_jobs, &at->pool, err);
    at->config.space = &at->space;
    at->config.cost_model = at->cost_model;
    at->config.trace_set = at->cluster;
    at->config.threads = threads;
    at->config.n_best = count_plans(at);
    at->config.is_thorough = options->is_thorough;
    at->config.price = at->price;
    at->config.constraints = &at->constraints;
    return status;
}

static bool has_option(const struct mist_option_list *list, const char *item)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->items[i], item) == 0)
            return true;
    return false;
}

static void say_limits(const struct mist_tune_session *at)
{
    if (at->config.host_limit_bytes == 0 &&
        (at->options->space.n == 0 || has_option(&at->options->space, "offload")))
        mist_message(&at->messages,
                     "the trace set says nothing of host memory: nothing is offloaded");
    else if (at->options->space.n == 0 && !mist_cost_model_prices_copies(at->cost_model))
        mist_message(&at->messages, "the trace set says nothing of copies between device "
                                    "and host: nothing is offloaded");
    else if (mist_space_has(&at->space, MIST_SPACE_OFFLOAD) &&
             at->traces.cluster.backend != MIST_TRACE_CPU &&
             !at->space.allows_host_updates)
        mist_message(&at->messages,
                     "the trace set has no adamw_host%s: optimizer state is not updated "
                     "on the host",
                     mist_trace_set_is_folder(at->options->cluster)
                         ? ""
                         : ", nor the preset host-adamw=RATE");
    if (mist_space_has(&at->space, MIST_SPACE_MESH) &&
        at->space.n_ranks > MIST_SPACE_MAX_MESH_RANKS)
        mist_message(&at->messages,
                     "%d ranks: only meshes of equal size are searched (different ones "
                     "up to %d ranks)",
                     (int)at->space.n_ranks, MIST_SPACE_MAX_MESH_RANKS);
    mist_trace_use_warn_links(&at->traces, at->space.n_ranks, &at->messages);
    mist_model_warn(&at->model, at->job.seq_len, &at->messages);
}

static enum mist_status read_lengths(struct mist_tune_session *at, struct mist_err *err)
{
    const struct mist_tune_options *options = at->options;

    if (!options->lengths)
        return MIST_OK;
    at->lengths.packing = (enum mist_packing)options->packing;
    at->lengths.seed = (uint64_t)options->common.seed;
    at->lengths.is_given = true;
    return mist_lengths_read(options->lengths, &at->lengths.of, err);
}

/* The constraints, and the limit of memory that is one of them. */
static enum mist_status read_constraints(struct mist_tune_session *at,
                                         struct mist_err *err)
{
    const struct mist_option_list *list = &at->options->constraints;
    enum mist_status status = MIST_OK;

    for (int i = 0; i < list->n && status == MIST_OK; i++)
        status = mist_constraints_add(&at->constraints, list->items[i], err);
    for (int i = 0; i < at->constraints.n && status == MIST_OK; i++)
        if (at->options->is_uniform &&
            mist_constraint_is_of_memory(&at->constraints.of[i]))
            status =
                mist_err_set(err, MIST_ERR_USAGE,
                             "--constraint '%.120s' is about one stage; with --uniform "
                             "all are priced together",
                             at->constraints.of[i].text);
    int64_t limit_bytes = at->constraints.memory_bytes;
    if (limit_bytes > 0 && limit_bytes < at->config.limit_bytes)
        at->config.limit_bytes = limit_bytes;
    return status;
}

enum mist_status mist_tune_session_open(struct mist_tune_session *at,
                                        const struct mist_tune_options *options,
                                        const struct mist_messages *messages,
                                        struct mist_err *err)
{
    *at = (struct mist_tune_session){.options = options, .messages = *messages};
    mist_trace_set_init(&at->traces);
    enum mist_status status = load_job(at, err);

    if (status == MIST_OK)
        status = load_cluster(at, err);
    if (status == MIST_OK)
        status =
            mist_bill_price(&options->prices, options->cluster, &at->hour_price, err);
    if (status == MIST_OK)
        status = mist_cost_model_new(&at->traces, &at->cost_model, err);
    if (status != MIST_OK)
        return status;
    mist_cost_model_set_speeds(at->cost_model, &at->what_if.speeds);
    status = read_constraints(at, err);
    if (status == MIST_OK)
        status = read_lengths(at, err);
    return status == MIST_OK ? make_space(at, err) : status;
}

void mist_tune_session_close(struct mist_tune_session *at)
{
    if (!at->options)
        return;
    mist_thread_pool_free(at->pool);
    mist_stage_price_free(at->price);
    mist_cost_model_free(at->cost_model);
    if (at->has_space)
        mist_space_fini(&at->space);
    mist_trace_set_fini(&at->traces);
    mist_lengths_fini(&at->lengths.of);
}

enum mist_status mist_tune_session_check(const struct mist_tune_session *at,
                                         struct mist_err *err)
{
    enum mist_status status = mist_no_plan_check_space(&at->space, err);

    if (status == MIST_OK)
        say_limits(at);
    return status;
}

struct mist_search_config mist_tune_session_config(const struct mist_tune_session *at,
                                                   struct mist_progress *progress,
                                                   struct mist_search_rows *rows)
{
    const struct mist_tune_options *options = at->options;

    return (struct mist_search_config){
        .n_best = count_plans(at),
        .host_limit_bytes = at->config.host_limit_bytes / at->space.devices_per_node,
        .slack_frac = MIST_VALIDATE_SLACK_FRAC,
        .constraints = &at->constraints,
        .max_points = (size_t)options->n_points,
        .solver = (enum mist_search_solver)options->solver,
        .glpk_time_limit_s = options->glpk_time_s,
        .price = mist_stage_price_block,
        .price_context = at->price,
        .rows = rows,
        .pool = at->pool,
        .progress = progress,
        .is_over = mist_interrupt_flag(),
    };
}

enum mist_status mist_tune_session_search(const struct mist_tune_session *at,
                                          const struct mist_search_config *search,
                                          struct mist_validate_result *result,
                                          size_t *n_alike, struct mist_err *err)
{
    enum mist_status status =
        at->options->target == MIST_FRAMEWORK_OURS
            ? mist_validate_run(&at->config, search, result, err)
            : mist_target_run(&at->config, (enum mist_framework_name)at->options->target,
                              at->pool, search->is_over, result, err);

    if (status == MIST_ERR_NO_PLAN && at->constraints.n > 0 &&
        !(search->is_over && atomic_load(search->is_over)))
        status = mist_no_plan_explain_constraints(&at->config, search, err);
    if (status == MIST_OK && at->lengths.is_given) {
        if (at->options->target == MIST_FRAMEWORK_OURS)
            status = mist_tune_lengths_search(&at->config, search, result, err);
        if (status == MIST_OK)
            status = mist_tune_lengths_choose(&at->lengths, &at->config, at->pool,
                                              (size_t)at->options->n_top, result, err);
        if (status != MIST_OK)
            mist_validate_result_fini(result);
    }
    if (status == MIST_OK)
        *n_alike = mist_alike_prefer(&at->traces, at->config.slower_frac, result->plans,
                                     result->n_plans);
    return status;
}

enum mist_status mist_tune_session_bill(const struct mist_tune_session *at,
                                        const struct mist_plan *plan,
                                        struct mist_speed *speed, struct mist_bill *bill,
                                        struct mist_err *err)
{
    struct mist_loads loads = {0};
    bool has_loads = at->lengths.is_given;
    enum mist_status status =
        has_loads ? mist_tune_lengths_draw(&at->lengths, plan, &loads, err) : MIST_OK;

    if (status == MIST_OK)
        status = mist_speed_find(plan, mist_cost_model_cluster(at->cost_model),
                                 has_loads ? &loads : NULL, plan->predicted.iteration_s,
                                 speed, err);
    mist_loads_fini(&loads);
    if (status == MIST_OK)
        *bill = mist_bill_make(at->options->n_tokens, speed->tokens_per_s,
                               at->space.n_ranks, at->hour_price);
    return status;
}
