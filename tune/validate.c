/* Memory planning and replay of candidates, and the loop around the search. See
 * validate.h. */
#include "tune/validate.h"

#include "core/hash.h"
#include "core/parse.h" /* mist_format_bytes */
#include "sim/replay.h"
#include "tune/stage_price.h" /* mist_stage_price_mesh */

#include <stdlib.h>
#include <string.h>

enum mist_status mist_validate_limit(const struct mist_cluster *cluster,
                                     int64_t device_memory_bytes, int64_t *limit_bytes,
                                     struct mist_err *err)
{
    char memory[MIST_FORMAT_BYTES], runtime[MIST_FORMAT_BYTES];
    int64_t taken =
        cluster->backend == MIST_TRACE_CPU ? 0 : cluster->runtime_memory_bytes;

    *limit_bytes = INT64_MAX;
    if (device_memory_bytes == 0)
        return MIST_OK;
    if (device_memory_bytes <= taken)
        return mist_err_set(err, MIST_ERR_USAGE,
                            "of %s of device memory the runtime takes %s",
                            mist_format_bytes(memory, sizeof memory, device_memory_bytes),
                            mist_format_bytes(runtime, sizeof runtime, taken));
    *limit_bytes = device_memory_bytes - taken;
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- one plan
 */

void mist_validate_make_plan(const struct mist_validate_config *config,
                             const struct mist_search_candidate *candidate,
                             struct mist_plan *out)
{
    const struct mist_space *space = config->space;
    const char *trace_set = config->trace_set ? config->trace_set : "";

    *out = (struct mist_plan){
        .model = space->model,
        .job = space->job,
        .fingerprint =
            mist_plan_fingerprint(&space->model, &space->job, config->fingerprint),
        .device_memory_bytes = config->device_memory_bytes,
        .pipeline = MIST_PIPELINE_1F1B,
        .n_micro_batches = space->cases[candidate->i_case].n_micro_batches,
        .n_stages = candidate->n_stages,
    };
    if (strlen(trace_set) < sizeof out->trace_set)
        memcpy(out->trace_set, trace_set, strlen(trace_set));
    for (int32_t i = 0; i < candidate->n_stages; i++) {
        const struct mist_search_choice *choice = &candidate->stages[i];
        out->stages[i] = (struct mist_stage_plan){
            .n_layers = choice->n_layers,
            .micro_batch = choice->micro_batch,
            .dp = choice->dp,
            .tp = 1,
            .shards_optimizer = choice->zero > 0,
            .n_checkpointed = choice->n_checkpointed,
        };
        mist_stage_price_mesh(space, choice->dp, &out->stages[i].n_nodes,
                              &out->stages[i].n_devices);
        out->predicted.stable_s[i] = choice->t_s;
        out->predicted.extra_s[i] = choice->d_s;
    }
}

static void judge_memory(const struct mist_validate_config *config,
                         const int64_t *closed_bytes,
                         const int64_t (*arena_bytes)[MIST_N_ARENAS],
                         struct mist_validated *out)
{
    out->planned_bytes = -1;
    out->optimism_bytes = INT64_MIN;
    for (int32_t i = 0; i < out->plan->n_stages; i++) {
        int64_t planned = arena_bytes[i][MIST_ARENA_DEVICE];
        int64_t closed = closed_bytes ? closed_bytes[i] : planned;
        if (planned > out->planned_bytes) {
            out->planned_bytes = planned;
            out->closed_bytes = closed;
            out->i_stage = i;
        }
        if (planned - closed > out->optimism_bytes)
            out->optimism_bytes = planned - closed;
        out->plan->predicted.peak_bytes[i] = planned;
    }
    out->holds = out->planned_bytes <= config->limit_bytes;
}

enum mist_status mist_validate_plan(const struct mist_validate_config *config,
                                    const int64_t *closed_bytes,
                                    struct mist_validated *plan, struct mist_err *err)
{
    struct mist_replay_options options = {.threads = config->threads,
                                          .skips_timeline = true};
    struct mist_prediction *predicted = &plan->plan->predicted;
    struct mist_replay_result replay;
    int64_t(*arena_bytes)[MIST_N_ARENAS] =
        calloc((size_t)plan->plan->n_stages, sizeof *arena_bytes);

    if (!arena_bytes)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    enum mist_status status = mist_plan_check(plan->plan, err);
    if (status == MIST_OK)
        status = mist_replay_memory(config->catalog, plan->plan, config->threads,
                                    arena_bytes, err);
    if (status == MIST_OK)
        judge_memory(config, closed_bytes, (const int64_t(*)[MIST_N_ARENAS])arena_bytes,
                     plan);
    free(arena_bytes);
    if (status != MIST_OK || !plan->holds)
        return status;
    status = mist_replay_run(config->catalog, plan->plan, config->cost_model, &options,
                             &replay, err);
    if (status != MIST_OK)
        return status;
    predicted->iteration_s = replay.iteration_s;
    predicted->error_s = replay.error_s;
    predicted->extrapolated_frac = replay.extrapolated_frac;
    mist_replay_result_fini(&replay);
    return MIST_OK;
}

/* ----------------------------------------------------------------------- which, in turn
 */

struct validation {
    const struct mist_validate_config *config;
    struct mist_search_config *search;
    struct mist_validate_result result;
    uint64_t *seen; /* fingerprints of the plans looked at */
    size_t n_seen, seen_capacity;
    int64_t margin_bytes; /* the search's limit is below the real one by this */
};

static uint64_t hash_candidate(const struct mist_search_candidate *candidate)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_int64(&hash, candidate->i_case);
    for (int32_t i = 0; i < candidate->n_stages; i++) {
        const struct mist_search_choice *stage = &candidate->stages[i];
        mist_hash_add_int64(&hash, stage->n_layers);
        mist_hash_add_int64(&hash, stage->n_checkpointed);
        mist_hash_add_int64(&hash, stage->zero);
        mist_hash_add_int64(&hash, stage->dp);
    }
    return hash.value;
}

static bool was_seen(const struct validation *at, uint64_t hash)
{
    for (size_t i = 0; i < at->n_seen; i++)
        if (at->seen[i] == hash)
            return true;
    return false;
}

static enum mist_status see(struct validation *at, uint64_t hash, struct mist_err *err)
{
    uint64_t *grown =
        mist_grow(at->seen, &at->seen_capacity, at->n_seen + 1, sizeof *at->seen);

    if (!grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    at->seen = grown;
    at->seen[at->n_seen++] = hash;
    return MIST_OK;
}

/*
 * The order to look in: half of n_best overall, then the best of every case that is not
 * among them, then the rest. order: [n_candidates].
 */
static enum mist_status make_order(const struct validation *at,
                                   const struct mist_search_result *search, size_t *order,
                                   struct mist_err *err)
{
    size_t n = search->n_candidates, n_ordered = 0, half = (at->config->n_best + 1) / 2;
    bool *has_case = calloc((size_t)at->config->space->n_cases + 1, sizeof *has_case);
    bool *is_taken = calloc(n + 1, sizeof *is_taken);
    enum mist_status status = MIST_OK;

    if (!has_case || !is_taken) {
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        goto out;
    }
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < n; i++) {
            bool *of_case = &has_case[search->candidates[i].i_case];
            if (is_taken[i] || (pass == 0 && i >= half) || (pass == 1 && *of_case))
                continue;
            is_taken[i] = *of_case = true;
            order[n_ordered++] = i;
        }
out:
    free(has_case);
    free(is_taken);
    return status;
}

/* ------------------------------------------------------------------------------ groups
 */

/* Candidates that are validated together, one index each. */
struct group {
    const struct validation *at;
    const struct mist_search_candidate **candidates; /* [n] */
    struct mist_validated *out;                      /* [n] */
    size_t n;
};

static enum mist_status validate_one(const struct validation *at,
                                     const struct mist_search_candidate *candidate,
                                     struct mist_validated *out, struct mist_err *err)
{
    int64_t *closed_bytes = malloc((size_t)candidate->n_stages * sizeof *closed_bytes);
    enum mist_status status = MIST_ERR_MEMORY;

    *out = (struct mist_validated){.closed_s = candidate->time_s};
    out->plan = malloc(sizeof *out->plan);
    if (closed_bytes && out->plan) {
        for (int32_t i = 0; i < candidate->n_stages; i++)
            closed_bytes[i] = candidate->stages[i].peak_bytes;
        mist_validate_make_plan(at->config, candidate, out->plan);
        status = mist_validate_plan(at->config, closed_bytes, out, err);
    } else {
        mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    free(closed_bytes);
    return status;
}

static enum mist_status validate_some(void *context, int64_t begin, int64_t end,
                                      int i_thread, struct mist_err *err)
{
    struct group *group = context;
    enum mist_status status = MIST_OK;

    (void)i_thread;
    for (int64_t i = begin; i < end && status == MIST_OK; i++)
        status = validate_one(group->at, group->candidates[i], &group->out[i], err);
    return status;
}

static bool append(struct mist_validated **list, size_t *n, size_t *capacity,
                   struct mist_validated *item)
{
    struct mist_validated *grown = mist_grow(*list, capacity, *n + 1, sizeof **list);

    if (!grown)
        return false;
    *list = grown;
    grown[(*n)++] = *item;
    item->plan = NULL; /* the list owns it */
    return true;
}

/* Validates a group and sorts its plans into the two lists. */
static enum mist_status run_group(struct validation *at, struct group *group,
                                  struct mist_err *err)
{
    struct mist_validate_result *result = &at->result;
    enum mist_status status = mist_thread_pool_for(at->search->pool, (int64_t)group->n, 1,
                                                   validate_some, group, err);

    for (size_t i = 0; i < group->n && status == MIST_OK; i++) {
        struct mist_validated *plan = &group->out[i];
        plan->i_looked = result->n_plans + result->n_dropped;
        bool is_kept = plan->holds ? append(&result->plans, &result->n_plans,
                                            &result->plans_capacity, plan)
                                   : append(&result->dropped, &result->n_dropped,
                                            &result->dropped_capacity, plan);
        if (!is_kept)
            status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < group->n; i++)
        free(group->out[i].plan);
    if (at->search->progress)
        mist_progress_update(at->search->progress, (int64_t)result->n_plans,
                             (int64_t)at->config->n_best);
    return status;
}

static bool is_over(const struct validation *at)
{
    return at->search->is_over && *at->search->is_over;
}

/* How many plans are still wanted; after a stop the first is enough. */
static size_t count_wanted(const struct validation *at)
{
    size_t wanted = is_over(at) ? 1 : at->config->n_best;

    return wanted > at->result.n_plans ? wanted - at->result.n_plans : 0;
}

/*
 * Looks at the candidates in order until enough hold. A round gives up after dropping
 * most_dropped, as the closed form is then off by more than a few plans.
 */
static enum mist_status run_round(struct validation *at,
                                  const struct mist_search_result *search,
                                  struct mist_err *err)
{
    size_t n_best = at->config->n_best, next = 0, most_dropped = 4 * n_best;
    size_t dropped_before = at->result.n_dropped;
    size_t *order = malloc((search->n_candidates + 1) * sizeof *order);
    struct group group = {
        .at = at,
        .candidates = malloc(n_best * sizeof *group.candidates),
        .out = malloc(n_best * sizeof *group.out),
    };
    enum mist_status status = MIST_OK;

    if (!order || !group.candidates || !group.out)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status == MIST_OK)
        status = make_order(at, search, order, err);
    while (status == MIST_OK && next < search->n_candidates && count_wanted(at) > 0 &&
           at->result.n_dropped - dropped_before < most_dropped) {
        size_t wanted = count_wanted(at);
        for (group.n = 0;
             group.n < wanted && next < search->n_candidates && status == MIST_OK;
             next++) {
            const struct mist_search_candidate *candidate =
                &search->candidates[order[next]];
            uint64_t hash = hash_candidate(candidate);
            if (was_seen(at, hash))
                continue;
            status = see(at, hash, err);
            group.candidates[group.n++] = candidate;
        }
        memset(group.out, 0, n_best * sizeof *group.out);
        if (status == MIST_OK && group.n > 0)
            status = run_group(at, &group, err);
    }
    free(order);
    free(group.candidates);
    free(group.out);
    return status;
}

/* -------------------------------------------------------------------------------- loop
 */

/* The margin after a round that dropped plans; false: none was dropped. */
static bool raise_margin(struct validation *at, size_t first_dropped)
{
    bool is_raised = false;

    for (size_t i = first_dropped; i < at->result.n_dropped; i++)
        if (at->result.dropped[i].optimism_bytes > at->margin_bytes) {
            at->margin_bytes = at->result.dropped[i].optimism_bytes;
            is_raised = true;
        }
    return is_raised && at->margin_bytes < at->config->limit_bytes;
}

static enum mist_status run_rounds(struct validation *at, struct mist_err *err)
{
    struct mist_validate_result *result = &at->result;
    enum mist_status status = MIST_OK;
    bool goes_on = true;

    while (goes_on && status == MIST_OK && result->n_rounds < MIST_VALIDATE_MAX_ROUNDS) {
        struct mist_search_result search;
        size_t dropped_before = result->n_dropped;
        bool is_first = result->n_rounds == 0;
        bool keeps_rows = at->search->keeps_rows;
        at->search->limit_bytes = at->config->limit_bytes - at->margin_bytes;
        at->search->keeps_rows = keeps_rows && is_first;
        status = mist_search_run(at->config->space, at->search,
                                 is_first ? &result->search : &search, err);
        at->search->keeps_rows = keeps_rows;
        if (status != MIST_OK)
            return status;
        result->n_rounds++;
        status = run_round(at, is_first ? &result->search : &search, err);
        if (!is_first)
            mist_search_result_fini(&search);
        goes_on = raise_margin(at, dropped_before) && count_wanted(at) > 0;
    }
    result->was_stopped = is_over(at);
    return status;
}

static enum mist_status fail_no_plan(const struct validation *at, struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    const struct mist_validate_result *result = &at->result;
    char needs[MIST_FORMAT_BYTES], limit[MIST_FORMAT_BYTES], more[MIST_FORMAT_BYTES];
    int64_t closest = result->search.closest_bytes;

    if (space->n_cases == 0)
        return mist_err_set(
            err, MIST_ERR_NO_PLAN,
            "%lld samples and %d layers can't be spread over %d ranks, %d on a node, "
            "within the search space",
            (long long)space->job.global_batch, (int)space->model.n_layers,
            (int)space->n_ranks, (int)space->devices_per_node);
    if (result->was_stopped)
        return mist_err_set(err, MIST_ERR_NO_PLAN, "stopped before a plan was found");
    for (size_t i = 0; i < result->n_dropped; i++)
        if (i == 0 || result->dropped[i].planned_bytes < closest)
            closest = result->dropped[i].planned_bytes;
    if (closest == INT64_MAX)
        return mist_err_set(err, MIST_ERR_NO_PLAN, "no plan can be priced");
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "no plan fits the device memory: the closest needs %s, limit %s (%s too much)",
        mist_format_bytes(needs, sizeof needs, closest),
        mist_format_bytes(limit, sizeof limit, at->config->limit_bytes),
        mist_format_bytes(more, sizeof more, closest - at->config->limit_bytes));
}

static int compare_plans(const void *a_void, const void *b_void)
{
    const struct mist_validated *a = a_void, *b = b_void;
    double a_s = a->plan->predicted.iteration_s, b_s = b->plan->predicted.iteration_s;

    if (a_s != b_s)
        return a_s < b_s ? -1 : 1;
    if (a->closed_s != b->closed_s)
        return a->closed_s < b->closed_s ? -1 : 1;
    return (a->i_looked > b->i_looked) - (a->i_looked < b->i_looked);
}

enum mist_status mist_validate_run(const struct mist_validate_config *config,
                                   struct mist_search_config *search,
                                   struct mist_validate_result *result,
                                   struct mist_err *err)
{
    struct validation at = {.config = config, .search = search};
    enum mist_status status = run_rounds(&at, err);

    if (status == MIST_OK && at.result.n_plans == 0)
        status = fail_no_plan(&at, err);
    free(at.seen);
    if (status != MIST_OK) {
        mist_validate_result_fini(&at.result);
        return status;
    }
    qsort(at.result.plans, at.result.n_plans, sizeof *at.result.plans, compare_plans);
    *result = at.result;
    return MIST_OK;
}

void mist_validate_result_fini(struct mist_validate_result *result)
{
    for (size_t i = 0; i < result->n_plans; i++)
        free(result->plans[i].plan);
    for (size_t i = 0; i < result->n_dropped; i++)
        free(result->dropped[i].plan);
    free(result->plans);
    free(result->dropped);
    mist_search_result_fini(&result->search);
    *result = (struct mist_validate_result){0};
}
