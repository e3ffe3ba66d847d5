/* The loop around search, memory planning and replay. See validate.h. */
#include "tune/validate.h"

#include "core/hash.h"
#include "core/parse.h" /* mist_format_bytes */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --------------------------------------------------------------------- which, in turn */

struct looked {
    uint64_t hash;
    bool holds;
};

struct validation {
    const struct mist_validate_config *config;
    struct mist_search_config *search;
    struct mist_validate_result result;
    struct looked *seen; /* the plans looked at, in this order */
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
        mist_hash_add_int64(&hash, stage->shape.dp);
        mist_hash_add_int64(&hash, stage->shape.tp);
        mist_hash_add_int64(&hash, stage->shape.is_sequence_parallel);
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            mist_hash_add_int64(&hash, stage->offload[k]);
        mist_hash_add_int64(&hash, stage->updates_on_host);
    }
    return hash.value;
}

/* NULL: not yet. */
static const struct looked *find_seen(const struct validation *at, uint64_t hash)
{
    for (size_t i = 0; i < at->n_seen; i++)
        if (at->seen[i].hash == hash)
            return &at->seen[i];
    return NULL;
}

static enum mist_status see(struct validation *at,
                            const struct mist_search_candidate *candidate, bool holds,
                            struct mist_err *err)
{
    struct looked *grown =
        mist_grow(at->seen, &at->seen_capacity, at->n_seen + 1, sizeof *at->seen);

    if (!grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    at->seen = grown;
    at->seen[at->n_seen++] = (struct looked){hash_candidate(candidate), holds};
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

/* ----------------------------------------------------------------------------- groups */

/* Candidates that are validated together, one index each. */
struct group {
    const struct validation *at;
    const struct mist_search_candidate **candidates; /* [n] */
    struct mist_validated *out;                      /* [n] */
    size_t n;
};

static enum mist_status validate_one(const struct mist_validate_config *config,
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
        mist_validate_make_plan(config, candidate, out->plan);
        status = mist_validate_plan(config, closed_bytes, out, err);
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
        status =
            validate_one(group->at->config, group->candidates[i], &group->out[i], err);
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
        status = see(at, group->candidates[i], plan->holds, err);
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

/* One round over the candidates of one search. */
struct round {
    const struct mist_search_result *search;
    size_t *order; /* [n_candidates] */
    size_t next;   /* in order */
    size_t n_held; /* of those passed so far, in this round or an earlier one */
    size_t n_dropped;
};

/* The next candidates that were not looked at, as many as are still wanted; after a stop
 * one plan is enough. */
static void fill_group(const struct validation *at, struct round *round,
                       struct group *group)
{
    size_t wanted = is_over(at) ? 1 : at->config->n_best;
    bool has_plan = at->result.n_plans > 0;

    group->n = 0;
    while (round->next < round->search->n_candidates &&
           round->n_held + group->n < wanted && !(is_over(at) && has_plan)) {
        const struct mist_search_candidate *candidate =
            &round->search->candidates[round->order[round->next++]];
        const struct looked *seen = find_seen(at, hash_candidate(candidate));
        if (!seen)
            group->candidates[group->n++] = candidate;
        else if (seen->holds)
            round->n_held++;
    }
}

/*
 * Looks at the candidates in order until n_best of them hold. Gives up after dropping
 * four times as many, as the closed form is then off by more than a few plans.
 */
static enum mist_status run_round(struct validation *at,
                                  const struct mist_search_result *search,
                                  struct mist_err *err)
{
    size_t n_best = at->config->n_best;
    struct round round = {
        .search = search,
        .order = malloc((search->n_candidates + 1) * sizeof *round.order),
    };
    struct group group = {
        .at = at,
        .candidates = malloc(n_best * sizeof *group.candidates),
        .out = malloc(n_best * sizeof *group.out),
    };
    enum mist_status status = MIST_OK;

    if (!round.order || !group.candidates || !group.out)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status == MIST_OK)
        status = make_order(at, search, round.order, err);
    do {
        size_t n_plans = at->result.n_plans;
        if (status != MIST_OK)
            break;
        fill_group(at, &round, &group);
        memset(group.out, 0, n_best * sizeof *group.out);
        if (group.n > 0)
            status = run_group(at, &group, err);
        round.n_held += at->result.n_plans - n_plans;
        round.n_dropped += group.n - (at->result.n_plans - n_plans);
    } while (group.n > 0 && round.n_dropped < 4 * n_best);
    free(round.order);
    free(group.candidates);
    free(group.out);
    return status;
}

/* ------------------------------------------------------------------------------- loop */

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
        struct mist_search_rows *rows = at->search->rows;
        at->search->limit_bytes = at->config->limit_bytes - at->margin_bytes;
        at->search->rows = is_first ? rows : NULL;
        status = mist_search_run(at->config->space, at->search,
                                 is_first ? &result->search : &search, err);
        at->search->rows = rows;
        if (status != MIST_OK)
            return status;
        result->n_rounds++;
        status = run_round(at, is_first ? &result->search : &search, err);
        if (!is_first)
            mist_search_result_fini(&search);
        goes_on = raise_margin(at, dropped_before) && !is_over(at);
    }
    result->was_stopped = is_over(at);
    return status;
}

/* Groups of knobs that save memory and are off; "" when all are on. */
static const char *find_help(const struct mist_space *space, char *text, size_t size)
{
    static const enum mist_space_group savers[] = {MIST_SPACE_ZERO, MIST_SPACE_CKPT,
                                                   MIST_SPACE_OFFLOAD};
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < sizeof savers / sizeof *savers; i++)
        if (!mist_space_has(space, savers[i]) && used < size)
            used +=
                (size_t)snprintf(text + used, size - used, "%s%s", used > 0 ? ", " : "",
                                 mist_space_group_name(savers[i]));
    if (used > 0 && used < size)
        snprintf(text + used, size - used, " in --space, ");
    return text;
}

static enum mist_status fail_no_plan(const struct validation *at, struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    const struct mist_validate_result *result = &at->result;
    char needs[MIST_FORMAT_BYTES], limit[MIST_FORMAT_BYTES], more[MIST_FORMAT_BYTES];
    char help[96];
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
    if (closest <= at->config->limit_bytes)
        return mist_err_set(
            err, MIST_ERR_NO_PLAN, "no plan fits the host memory of a node, %s",
            mist_format_bytes(limit, sizeof limit, at->config->host_limit_bytes));
    if (closest == INT64_MAX)
        return mist_err_set(err, MIST_ERR_NO_PLAN, "no plan can be priced");
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "no plan fits the device memory: the closest needs %s, limit %s (%s too much); "
        "what could help: %smore devices, shorter sequences",
        mist_format_bytes(needs, sizeof needs, closest),
        mist_format_bytes(limit, sizeof limit, at->config->limit_bytes),
        mist_format_bytes(more, sizeof more, closest - at->config->limit_bytes),
        find_help(space, help, sizeof help));
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

/* The best plans with every pipeline schedule. */
static enum mist_status try_pipelines(void *context, int64_t begin, int64_t end,
                                      int i_thread, struct mist_err *err)
{
    struct validation *at = context;
    enum mist_status status = MIST_OK;

    (void)i_thread;
    for (int64_t i = begin; i < end && status == MIST_OK && !is_over(at); i++)
        status = mist_validate_pipelines(at->config, &at->result.plans[i], err);
    return status;
}

static enum mist_status finish_plans(struct validation *at, struct mist_err *err)
{
    struct mist_validate_result *result = &at->result;

    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
    while (result->n_plans > at->config->n_best) /* several rounds may have found more */
        free(result->plans[--result->n_plans].plan);
    enum mist_status status = mist_thread_pool_for(
        at->search->pool, (int64_t)result->n_plans, 1, try_pipelines, at, err);
    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
    return status;
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
    if (status == MIST_OK)
        status = finish_plans(&at, err);
    free(at.seen);
    if (status != MIST_OK) {
        mist_validate_result_fini(&at.result);
        return status;
    }
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
