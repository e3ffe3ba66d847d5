/* Plans of other frameworks. See target.h. */
#include "tune/target.h"

#include "core/memory.h"
#include "core/order.h"
#include "core/parse.h"          /* mist_format_bytes */
#include "sim/explain/explain.h" /* mist_beside_arena_find */
#include "sim/framework_args/framework_args.h"
#include "sim/model/framework.h"
#include "tune/no_plan.h"

#include <math.h>
#include <stdlib.h>

/* How much slower by its passes than the fastest a plan may be to be replayed. */
#define PASSES_ERROR_FRAC 0.3

struct candidate {
    int32_t pp, tp, cp, dp, micro_batch, zero;
    int32_t recompute;    /* enum mist_args_recompute */
    int32_t n_recomputed; /* FULL: the first blocks of each stage; 0: all */
    bool is_sequence_parallel;
    int64_t kept_bytes; /* that its framework keeps at least, beside the arena */
    double time_s;      /* by its passes; INFINITY: no plan, or none of the framework's */
};

struct target {
    const struct mist_validate_config *config;
    struct mist_model model; /* the framework's: what is expressed */
    struct mist_job job;
    bool is_foreign;                   /* plans are ours, of another job than that */
    struct mist_space selective_space; /* selective recomputation is of the whole job */
    struct mist_stage_price *selective_price;
    const atomic_int *is_over;
    struct candidate *candidates; /* [n], sorted once they are priced */
    size_t n, capacity;
    int64_t closest_bytes;     /* least of what was left out for its weights and so on;
                                  INT64_MAX: nothing */
    struct mist_plan *scratch; /* for looks at what can be expressed */
    struct mist_err why;       /* the first of what can't */
    struct candidate *misfits; /* did not fit */
    size_t n_misfits, misfits_capacity;
    struct mist_validate_result *result;
};

void mist_target_set(enum mist_framework_name framework,
                     const struct mist_messages *messages, struct mist_model *model,
                     struct mist_job *job)
{
    int32_t vocab = model->vocab;

    job->framework = framework;
    job->attention = MIST_ATTENTION_FLASH;
    job->has_no_dropout =
        framework == MIST_FRAMEWORK_MEGATRON || framework == MIST_FRAMEWORK_DEEPSPEED;
    job->overlaps =
        framework == MIST_FRAMEWORK_MEGATRON || framework == MIST_FRAMEWORK_DEEPSPEED;
    double frac = mist_framework_get(framework)->fragmentation_frac;
    if (frac > 0)
        mist_message(
            messages,
            "%s: of the memory a part is left to what its allocator can't use, %.3g %% "
            "(%s)",
            mist_framework_words[framework], 100 * frac,
            mist_framework_get(framework)->fragmentation_source);
    if (framework == MIST_FRAMEWORK_MEGATRON)
        model->vocab = (vocab + 127) / 128 * 128;
    if (model->vocab != vocab)
        mist_message(messages, "%s pads the vocabulary of %d to %d",
                     mist_framework_words[framework], (int)vocab, (int)model->vocab);
}

/* ------------------------------------------------------------------------------- plans */

static bool is_expressed(const struct target *at, const struct mist_plan *plan,
                         struct mist_err *why)
{
    struct mist_args_beside beside;
    char *text = NULL;
    size_t n = 0;
    bool is = mist_args_express(plan, at->config->space->devices_per_node, &text, &n,
                                &beside, why) == MIST_OK;

    free(text);
    return is;
}

/* A plan of the framework becomes one of ours where these are searched. */
static void make_ours(const struct target *at, struct mist_plan *plan)
{
    if (!at->is_foreign)
        return;
    plan->model = at->config->space->model;
    plan->job = at->config->space->job;
}

/* False: there is no such plan, or the framework can't express it; why: the reason, where
 * that is no bound. */
static bool make_plan(const struct target *at, const struct candidate *of,
                      struct mist_plan *out, struct mist_err *why)
{
    const struct mist_space *space = at->config->space;
    const struct mist_job *job = &at->job;
    struct mist_args args;

    mist_args_init(&args, job->framework);
    mist_args_set_model(&args, &at->model);
    args.node_devices = space->devices_per_node;
    mist_args_set(&args, MIST_ARG_TP, of->tp);
    mist_args_set(&args, MIST_ARG_CP, of->cp);
    mist_args_set(&args, MIST_ARG_PP, of->pp);
    mist_args_set(&args, MIST_ARG_DP, of->dp);
    mist_args_set(&args, MIST_ARG_MICRO_BATCH, of->micro_batch);
    mist_args_set(&args, MIST_ARG_GLOBAL_BATCH, (double)job->global_batch);
    mist_args_set(&args, MIST_ARG_SEQ_LEN, job->seq_len);
    mist_args_set(&args, MIST_ARG_ZERO, of->zero);
    mist_args_set(&args, MIST_ARG_RECOMPUTE, of->recompute);
    if (of->n_recomputed > 0)
        mist_args_set(&args, MIST_ARG_RECOMPUTE_LAYERS, of->n_recomputed);
    mist_args_set(&args, MIST_ARG_SEQUENCE_PARALLEL, of->is_sequence_parallel);
    mist_args_set(&args, MIST_ARG_DTYPE, job->dtype);
    mist_args_set(&args, MIST_ARG_GRADIENT_DTYPE, job->gradient_dtype);
    mist_args_set(&args, MIST_ARG_ATTENTION, job->attention);
    mist_args_set(&args, MIST_ARG_NO_DROPOUT, job->has_no_dropout);
    mist_args_set(&args, MIST_ARG_OVERLAPS, job->overlaps);
    if (mist_args_make_plan(&args, out, why) != MIST_OK)
        return false;
    mist_validate_set_allowed_pipeline(space, out);
    if (!mist_bounds_allow(&space->bounds, out) || !is_expressed(at, out, why))
        return false;
    make_ours(at, out);
    out->job.threads = job->threads;
    out->job.computes_on_gpu = job->computes_on_gpu;
    mist_validate_set_cluster(at->config, out);
    return true;
}

static bool can_be_made(struct target *at, const struct candidate *of)
{
    return make_plan(at, of, at->scratch, at->why.message[0] == '\0' ? &at->why : NULL);
}

/* ----------------------------------------------------------------------------- listing */

/* Bytes that a rank has at least: weights, gradients and optimizer state of its blocks, and
 * what its framework needs beside an arena of these. */
static int64_t find_least(const struct target *at, struct candidate *of)
{
    const struct mist_space *space = at->config->space;
    const struct mist_model *m = &space->model;
    const struct mist_job *job = &space->job;
    double heads = 2.0 * m->n_heads + 2.0 * m->n_kv_heads;
    double n_ffn = mist_family_traits(m->family)->has_gate ? 3 : 2;
    double block = m->hidden * (heads * m->head_dim + n_ffn * m->ffn);
    double n = floor((double)m->n_layers / of->pp) * block / of->tp;
    double weights = mist_dtype_weight_bytes(job->dtype);
    double gradients = mist_dtype_gradient_bytes(job->gradient_dtype);
    double state = mist_dtype_state_bytes(job->dtype);

    struct mist_replay_stage stage = {.n_parameters = (int64_t)n};
    int32_t n_replicas = of->dp * of->cp;

    stage.arena_bytes[MIST_ARENA_DEVICE] =
        (int64_t)(n * (weights / (of->zero >= 3 ? n_replicas : 1) +
                       gradients / (of->zero >= 2 ? n_replicas : 1) +
                       state / (of->zero >= 1 ? n_replicas : 1)));
    at->scratch->job = *job;
    at->scratch->n_stages = of->pp;
    at->scratch->stages[0] = (struct mist_stage_plan){
        .dp = of->dp, .tp = of->tp, .cp = of->cp, .zero = of->zero};
    const struct mist_beside_arena beside = mist_beside_arena_find(
        at->scratch, mist_cost_model_cluster(at->config->cost_model), &stage);
    of->kept_bytes = beside.kept_bytes;
    return stage.arena_bytes[MIST_ARENA_DEVICE] + mist_beside_arena_least(&beside);
}

static enum mist_status add_candidate(struct target *at, struct candidate *of,
                                      struct mist_err *err)
{
    int64_t bytes = find_least(at, of);

    if (bytes > at->config->limit_bytes) {
        if (bytes < at->closest_bytes && can_be_made(at, of))
            at->closest_bytes = bytes;
        return MIST_OK;
    }
    return MIST_APPEND(at->candidates, at->capacity, at->n, *of)
               ? MIST_OK
               : mist_err_memory(err, NULL);
}

/* All ways to recompute; but for Megatron-LM all blocks are recomputed, or none. */
static enum mist_status list_recomputations(struct target *at, struct candidate of,
                                            struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    bool has_parts = at->job.framework == MIST_FRAMEWORK_MEGATRON;
    bool keeps_scores =
        !at->is_foreign && (at->job.attention != MIST_ATTENTION_FLASH ||
                            mist_framework_get(at->job.framework)->selective_frac > 0);
    enum mist_status status = MIST_OK;

    for (int r = 0; r <= MIST_RECOMPUTE_FULL && status == MIST_OK; r++) {
        of.recompute = r;
        if (r != MIST_RECOMPUTE_SELECTIVE || keeps_scores)
            status = add_candidate(at, &of, err);
    }
    while (has_parts && ++of.n_recomputed < space->model.n_layers / of.pp && !status)
        status = add_candidate(at, &of, err);
    return status;
}

/* All of one shape. */
static enum mist_status list_shape(struct target *at, struct candidate of,
                                   struct mist_err *err)
{
    int64_t samples = at->config->space->job.global_batch / of.dp;
    enum mist_status status = MIST_OK;

    for (int64_t b = 1; b <= samples && b <= INT32_MAX; b++)
        for (int sp = 0; samples % b == 0 && sp < (of.tp > 1 ? 2 : 1); sp++)
            for (int zero = 0; zero <= (of.dp * of.cp > 1 ? 3 : 0) && !status; zero++) {
                of.micro_batch = (int32_t)b;
                of.is_sequence_parallel = sp;
                of.zero = zero;
                status = list_recomputations(at, of, err);
            }
    return status;
}

/* With what is left cut over samples and, where that is searched, sequences. */
static enum mist_status list_cuts(struct target *at, int32_t pp, int32_t tp,
                                  struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    int32_t n = space->n_ranks / pp / tp;
    enum mist_status status = MIST_OK;

    for (int32_t cp = 1; cp <= n && !status; cp++) {
        struct candidate of = {
            .pp = pp, .tp = tp, .cp = cp, .dp = n / cp, .time_s = INFINITY};
        if (n % cp == 0 && mist_space_may_cut(space, cp) &&
            space->job.global_batch % of.dp == 0)
            status = list_shape(at, of, err);
    }
    return status;
}

static enum mist_status list_all(struct target *at, struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    enum mist_status status = MIST_OK;

    for (int32_t pp = 1; pp <= space->n_ranks && pp <= space->model.n_layers; pp++)
        for (int32_t tp = 1;
             tp <= space->devices_per_node && pp <= MIST_MAX_STAGES && !status; tp++)
            if (space->model.n_layers % pp == 0 && space->n_ranks % (pp * tp) == 0)
                status = list_cuts(at, pp, tp, err);
    return status;
}

/* ----------------------------------------------------------------------------- pricing */

static enum mist_status price_one(void *context, int64_t i, struct mist_err *err)
{
    struct target *at = context;
    struct candidate *of = &at->candidates[i];
    enum mist_status status = MIST_OK;

    if (atomic_load(at->is_over))
        return MIST_OK;
    struct mist_plan *plan = malloc(sizeof *plan); /* large */
    if (!plan)
        return mist_err_memory(err, NULL);
    if (make_plan(at, of, plan, NULL))
        status = mist_stage_price_plan(
            plan->job.recomputes_attention ? at->selective_price : at->config->price,
            plan, &of->time_s, err);
    if (!(of->time_s >= 0)) /* what can't be priced */
        of->time_s = INFINITY;
    free(plan);
    return status;
}

/* By time; what is as fast, by what is simpler. */
MIST_COMPARATOR(compare_candidates, struct candidate, time_s, recompute, n_recomputed,
                zero, pp, tp, cp, micro_batch, is_sequence_parallel)

/* -------------------------------------------------------------------------- validation */

/* Samples whose activations the first stage keeps at once. */
static int64_t count_kept(const struct target *at, const struct candidate *of)
{
    int64_t n = at->config->space->job.global_batch / of->dp / of->micro_batch;

    return of->micro_batch * (n < of->pp ? n : (int64_t)of->pp);
}

/* Whether what it keeps is kept by another one, too. */
static bool recomputes_no_less(const struct candidate *of, const struct candidate *other)
{
    return other->recompute == MIST_RECOMPUTE_NONE ||
           (of->recompute == MIST_RECOMPUTE_FULL && of->n_recomputed == 0) ||
           (of->recompute == other->recompute && other->n_recomputed > 0 &&
            of->n_recomputed >= other->n_recomputed) ||
           (of->recompute == other->recompute &&
            of->recompute == MIST_RECOMPUTE_SELECTIVE);
}

/* Whether a plan needs no less than one that did not fit. */
static bool is_misfit(const struct target *at, const struct candidate *of)
{
    for (size_t i = 0; i < at->n_misfits; i++) {
        const struct candidate *other = &at->misfits[i];
        if (other->pp == of->pp && other->tp == of->tp && other->cp == of->cp &&
            other->is_sequence_parallel >= of->is_sequence_parallel &&
            other->zero >= of->zero && recomputes_no_less(other, of) &&
            other->micro_batch <= of->micro_batch &&
            other->kept_bytes <= of->kept_bytes &&
            count_kept(at, other) <= count_kept(at, of))
            return true;
    }
    return false;
}

static enum mist_status look_at(struct target *at, const struct candidate *of,
                                struct mist_err *err)
{
    struct mist_validated plan = {.plan = malloc(sizeof *plan.plan),
                                  .closed_s = of->time_s};
    enum mist_status status = MIST_OK;

    if (!plan.plan)
        return mist_err_memory(err, NULL);
    if (make_plan(at, of, plan.plan, NULL))
        status = mist_validate_plan(at->config, NULL, &plan, err);
    if (status == MIST_OK && !plan.holds &&
        MIST_RESERVE(at->misfits, at->misfits_capacity, at->n_misfits + 1))
        at->misfits[at->n_misfits++] = *of;
    if (status == MIST_OK)
        status = mist_validate_add(at->config, at->result, &plan, err);
    free(plan.plan);
    return status;
}

/* The plan with the schedule of another; *best becomes that if it can be expressed, holds and
 * is faster. */
static enum mist_status try_pipeline(const struct target *at,
                                     const struct mist_plan *scheduled,
                                     struct mist_validated *best, struct mist_err *err)
{
    struct mist_validated other = *best;
    enum mist_status status = MIST_OK;

    other.plan = malloc(sizeof *other.plan);
    if (!other.plan)
        return mist_err_memory(err, NULL);
    *other.plan = *scheduled;
    other.plan->model = at->model;
    other.plan->job = at->job;
    other.plan->job.recomputes_attention = best->plan->job.recomputes_attention;
    other.holds = is_expressed(at, other.plan, NULL);
    other.plan->model = best->plan->model;
    other.plan->job = best->plan->job;
    if (other.holds)
        status = mist_validate_plan(at->config, NULL, &other, err);
    if (status == MIST_OK && other.holds &&
        other.plan->predicted.iteration_s < best->plan->predicted.iteration_s) {
        struct mist_plan *slower = best->plan;
        *best = other;
        other.plan = slower;
    }
    free(other.plan);
    return status;
}

static enum mist_status try_pipelines(struct target *at, struct mist_validated *plan,
                                      struct mist_err *err)
{
    struct mist_plan *scheduled = malloc(sizeof *scheduled);
    enum mist_status status = MIST_OK;

    if (!scheduled)
        return mist_err_memory(err, NULL);
    *scheduled = *plan->plan;
    bool is_more = mist_validate_set_pipeline(scheduled, MIST_PIPELINE_1F1B, 0);
    while (is_more && status == MIST_OK &&
           mist_validate_next_pipeline(at->config->space, scheduled))
        status = try_pipeline(at, scheduled, plan, err);
    free(scheduled);
    /* what the report compares with closed_s */
    plan->pipelines[MIST_PIPELINE_1F1B].time_s = plan->plan->predicted.iteration_s;
    if (plan->plan->pipeline != MIST_PIPELINE_1F1B)
        plan->closed_s = plan->plan->predicted.iteration_s;
    return status;
}

MIST_COMPARATOR(compare_plans, struct mist_validated, plan->predicted.iteration_s,
                i_looked)

static enum mist_status validate_all(struct target *at, struct mist_err *err)
{
    struct mist_validate_result *result = at->result;
    enum mist_status status = MIST_OK;
    double cutoff_s = INFINITY;

    for (size_t i = 0; i < at->n && status == MIST_OK; i++) {
        const struct candidate *of = &at->candidates[i];
        if (isinf(of->time_s) || of->time_s > cutoff_s ||
            result->n_plans == at->config->n_best ||
            (atomic_load(at->is_over) && result->n_plans > 0))
            break;
        if (!is_misfit(at, of))
            status = look_at(at, of, err);
        if (status == MIST_OK && result->n_plans == 1)
            cutoff_s = (1 + PASSES_ERROR_FRAC) *
                       fmax(of->time_s, result->plans[0].plan->predicted.iteration_s);
    }
    for (size_t i = 0; i < result->n_plans && status == MIST_OK; i++)
        status = try_pipelines(at, &result->plans[i], err);
    if (status == MIST_OK && result->n_plans > 0)
        qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
    return status;
}

static enum mist_status fail_no_plan(struct target *at, struct mist_err *err)
{
    const struct mist_validate_result *result = at->result;
    struct mist_no_plan_target of = {
        .name = mist_framework_words[at->job.framework],
        .closest_bytes = at->closest_bytes,
        .why = at->why.message,
    };

    for (size_t i = 0; i < result->n_dropped; i++) {
        const struct mist_validated *dropped = &result->dropped[i];
        int64_t bytes = dropped->planned_bytes + dropped->beside_bytes;
        of.is_planned = of.is_planned || bytes <= of.closest_bytes;
        of.closest_bytes = bytes < of.closest_bytes ? bytes : of.closest_bytes;
    }
    for (size_t i = 0; i < at->n && of.closest_bytes == INT64_MAX; i++)
        if (can_be_made(at, &at->candidates[i]) || at->why.message[0] != '\0')
            break; /* why not */
    return mist_no_plan_explain_target(at->config, &of, err);
}

enum mist_status mist_target_run(const struct mist_validate_config *config,
                                 enum mist_framework_name framework,
                                 struct mist_thread_pool *pool, const atomic_int *is_over,
                                 struct mist_validate_result *result,
                                 struct mist_err *err)
{
    struct target at = {.config = config,
                        .model = config->space->model,
                        .job = config->space->job,
                        .is_foreign = config->space->job.framework != framework,
                        .selective_space = *config->space,
                        .is_over = is_over,
                        .closest_bytes = INT64_MAX,
                        .result = result};

    *result = (struct mist_validate_result){0};
    if (at.is_foreign)
        mist_target_set(framework, &(struct mist_messages){0}, &at.model, &at.job);
    at.selective_space.job.recomputes_attention = true;
    enum mist_status status =
        mist_stage_price_new(config->cost_model, &at.selective_space, config->threads,
                             &at.selective_price, err);
    at.scratch = malloc(sizeof *at.scratch);
    if (status == MIST_OK && !at.scratch)
        status = mist_err_memory(err, NULL);
    if (status == MIST_OK)
        status = list_all(&at, err);
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, (int64_t)at.n, price_one, &at, err);
    if (status == MIST_OK && at.n > 0)
        qsort(at.candidates, at.n, sizeof *at.candidates, compare_candidates);
    if (status == MIST_OK)
        status = validate_all(&at, err);
    result->n_searches = 1;
    result->was_stopped = atomic_load(is_over) != 0;
    result->search.n_priced = (int64_t)at.n;
    if (status == MIST_OK && result->n_plans == 0)
        status = fail_no_plan(&at, err);
    mist_stage_price_free(at.selective_price);
    free(at.scratch);
    free(at.candidates);
    free(at.misfits);
    if (status != MIST_OK)
        mist_validate_result_fini(result);
    return status;
}
