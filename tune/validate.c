/* The loop around search, memory planning and replay. See validate.h. */
#include "tune/validate.h"

#include "core/hash.h"
#include "core/memory.h"
#include "core/parse.h" /* mist_format_bytes */
#include "tune/alike.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a search, one candidate for so many plans that are wanted. */
enum { CANDIDATES = 4 };

/* Searches with less freedom may price a fifth of what the first does, or so many. */
enum { FREE_CONFIGURATIONS = 500000 };

/* What the closed form may take too long, whatever the replays say: at least. */
#define LEAST_ERROR_FRAC 0.03

/* -------------------------------------------------------------------------- candidates */

/* A candidate of some search. */
struct pooled {
    struct mist_search_candidate of; /* its stages are in the arena of the pool */
    uint64_t hash;
};

/* A search with no more freedom than the first. */
struct question {
    unsigned groups;
    int64_t limit_bytes;
    double least_s; /* no answer is faster by the closed form */
    bool is_asked;
};

struct validation {
    const struct mist_validate_config *config;
    const struct mist_search_config *search;
    struct mist_validate_result result;
    struct question *questions; /* asked and still to ask, in this order */
    size_t n_questions, questions_capacity;
    struct pooled *pool; /* the first n_looked were looked at */
    size_t n_pool, n_looked, pool_capacity;
    struct mist_arena arena;
    struct mist_search_floors floors;
    double best_s; /* 1f1b of the fastest plan so far; INFINITY: none */
    /* How much longer than the replay the closed form took a plan to be at most, of the
     * replay. */
    double error_frac;
};

/* What searches with less freedom than the first have priced. */
static int64_t find_spent(const struct validation *at)
{
    return at->result.n_priced - at->result.search.n_priced;
}

/* What the closed form takes longer is no better than the best plan: as long as it costs
 * little, whatever the closed form may err; then, as far as it has erred. */
static double find_cutoff(const struct validation *at)
{
    double error_frac = find_spent(at) < FREE_CONFIGURATIONS
                            ? MIST_VALIDATE_SLACK_FRAC
                            : LEAST_ERROR_FRAC + 1.5 * at->error_frac;

    return (1 + error_frac) * at->best_s;
}

static uint64_t hash_candidate(const struct mist_search_candidate *candidate)
{
    struct mist_hash hash;

    mist_hash_init(&hash);
    mist_hash_add_int64(&hash, candidate->n_micro_batches);
    for (int32_t i = 0; i < candidate->n_stages; i++) {
        const struct mist_search_choice *stage = &candidate->stages[i];
        mist_hash_add_int64(&hash, stage->n_layers);
        mist_hash_add_int64(&hash, stage->n_checkpointed);
        mist_hash_add_int64(&hash, stage->n_lean);
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

/* Takes a candidate into the pool, if it is not there. */
static enum mist_status pool_candidate(struct validation *at,
                                       const struct mist_search_candidate *candidate,
                                       struct mist_err *err)
{
    struct pooled pooled = {*candidate, hash_candidate(candidate)};
    size_t bytes = (size_t)candidate->n_stages * sizeof *candidate->stages;

    for (size_t i = 0; i < at->n_pool; i++)
        if (at->pool[i].hash == pooled.hash)
            return MIST_OK;
    struct mist_search_choice *stages = mist_arena_alloc(&at->arena, bytes);
    struct pooled *grown =
        mist_grow(at->pool, &at->pool_capacity, at->n_pool + 1, sizeof *grown);
    if (grown)
        at->pool = grown;
    if (!stages || !grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    pooled.of.stages = memcpy(stages, candidate->stages, bytes);
    grown[at->n_pool++] = pooled;
    return MIST_OK;
}

/* ---------------------------------------------------------------------------- questions */

/* A limit of six binary digits: the largest below the limit, or the least that is not. */
static int64_t round_limit(int64_t limit_bytes, bool is_below)
{
    int64_t unit = 1;

    if (limit_bytes == INT64_MAX)
        return limit_bytes;
    while (limit_bytes / unit >= 64)
        unit *= 2;
    return (limit_bytes + (is_below ? -1 : unit - 1)) / unit * unit;
}

static enum mist_status add_question(struct validation *at, unsigned groups,
                                     int64_t limit_bytes, double least_s,
                                     struct mist_err *err)
{
    for (size_t i = 0; i < at->n_questions; i++)
        if (at->questions[i].groups == groups &&
            at->questions[i].limit_bytes == limit_bytes)
            return MIST_OK;
    struct question *grown = mist_grow(at->questions, &at->questions_capacity,
                                       at->n_questions + 1, sizeof *grown);
    if (!grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    at->questions = grown;
    grown[at->n_questions++] = (struct question){groups, limit_bytes, least_s, false};
    return MIST_OK;
}

/* The groups of knobs that a candidate can't do without. */
static unsigned find_groups(const struct mist_search_candidate *of)
{
    const struct mist_search_choice *first = &of->stages[0];
    unsigned groups = 0;

    for (int32_t i = 0; i < of->n_stages; i++) {
        const struct mist_search_choice *at = &of->stages[i];
        bool is_sequence = at->shape.is_sequence_parallel;
        bool is_other = at->shape.dp != first->shape.dp ||
                        at->shape.tp != first->shape.tp ||
                        is_sequence != first->shape.is_sequence_parallel;
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            groups |= (unsigned)(at->offload[k] > 0) << MIST_SPACE_OFFLOAD;
        groups |= (unsigned)(at->zero > 0) << MIST_SPACE_ZERO |
                  (unsigned)(at->n_checkpointed > 0) << MIST_SPACE_CKPT |
                  (unsigned)(at->n_lean > 0) << MIST_SPACE_LEAN |
                  (unsigned)(at->n_layers != first->n_layers) << MIST_SPACE_IMBALANCE |
                  (unsigned)is_other << MIST_SPACE_MESH |
                  (unsigned)is_sequence << MIST_SPACE_SEQUENCE;
    }
    return groups;
}

/* Questions with a bit less freedom whose answer may be another one than the candidates
 * [n >= 1]: without a group of knobs that some of them needs, and with less memory than
 * the largest of them needs. */
static enum mist_status ask_for_less(struct validation *at, const struct question of,
                                     const struct mist_search_candidate *candidates,
                                     size_t n, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int64_t peak_bytes = 0;
    unsigned groups = 0;

    for (size_t i = 0; i < n; i++) {
        groups |= find_groups(&candidates[i]);
        for (int32_t s = 0; s < candidates[i].n_stages; s++)
            if (candidates[i].stages[s].peak_bytes > peak_bytes)
                peak_bytes = candidates[i].stages[s].peak_bytes;
    }
    double least_s = candidates[0].time_s;
    if (peak_bytes > 0)
        status = add_question(at, of.groups, round_limit(peak_bytes, true), least_s, err);
    for (int g = 0; g < MIST_N_SPACE_GROUPS && status == MIST_OK; g++)
        if (groups >> g & 1u)
            status =
                add_question(at, of.groups & ~(1u << g), of.limit_bytes, least_s, err);
    return status;
}

/*
 * Which of a search's candidates are looked at: half of n the best, then the best of every
 * case that is not among them, then the rest. order: room for all; returns how many.
 */
static size_t choose(const struct mist_search_result *of, size_t n, size_t *order)
{
    size_t n_all = of->n_candidates, n_chosen = 0;

    n = n < n_all ? n : n_all;
    for (int pass = 0; pass < 3; pass++)
        for (size_t i = 0; i < n_all && n_chosen < (pass == 0 ? (n + 1) / 2 : n); i++) {
            bool is_had = false;
            for (size_t k = 0; k < n_chosen; k++)
                is_had |= order[k] == i ||
                          (pass == 1 &&
                           of->candidates[order[k]].i_case == of->candidates[i].i_case);
            if (!is_had)
                order[n_chosen++] = i;
        }
    return n_chosen;
}

/* Takes the best few candidates of a search into the pool, and asks for less. */
static enum mist_status take(struct validation *at, struct question question, size_t n,
                             const struct mist_search_result *of, struct mist_err *err)
{
    size_t *order = malloc((of->n_candidates + 1) * sizeof *order);
    enum mist_status status = MIST_OK;

    if (!order)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    n = choose(of, n, order);
    for (size_t i = 0; i < n && status == MIST_OK; i++)
        status = pool_candidate(at, &of->candidates[order[i]], err);
    free(order);
    return n > 0 && status == MIST_OK
               ? ask_for_less(at, question, of->candidates, (n + 1) / 2, err)
               : status;
}

/* Searches, and takes what is best into the pool. */
static enum mist_status ask(struct validation *at, size_t i_question,
                            struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    const struct question question = at->questions[i_question];
    struct mist_search_config how = *at->search;
    struct mist_search_result result;
    struct mist_space part = {0};

    how.limit_bytes = question.limit_bytes;
    how.floors = &at->floors;
    how.n_best = (at->config->n_best + CANDIDATES - 1) / CANDIDATES;
    if (i_question > 0) {
        how.rows = NULL;
        how.solver = MIST_SOLVER_EXACT;
        how.progress = NULL;
        how.cutoff_s = isinf(at->best_s) ? 0 : find_cutoff(at);
    }
    enum mist_status status = MIST_OK;
    if (question.groups != space->groups)
        status = mist_space_init(&part, &space->model, &space->job, space->n_ranks,
                                 space->devices_per_node, question.groups, err);
    part.ratio_step = space->ratio_step;
    part.allows_host_updates = space->allows_host_updates;
    if (status == MIST_OK)
        status = mist_search_run(question.groups == space->groups ? space : &part, &how,
                                 &result, err);
    mist_space_fini(&part);
    if (status != MIST_OK)
        return status;
    at->result.n_searches++;
    at->result.n_priced += result.n_priced;
    status = take(at, question, i_question == 0 ? at->config->n_best : how.n_best,
                  &result, err);
    if (i_question == 0)
        at->result.search = result;
    else
        mist_search_result_fini(&result);
    return status;
}

/* ------------------------------------------------------------------------------- groups */

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
        if (plan->holds) {
            at->best_s = fmin(at->best_s, plan->plan->predicted.iteration_s);
            at->error_frac = fmax(at->error_frac,
                                  plan->closed_s / plan->plan->predicted.iteration_s - 1);
        }
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

/* The candidates that were not looked at, less those that are too slow even if the closed
 * form errs; after a stop one plan is enough. */
static void fill_group(struct validation *at, struct group *group)
{
    double cutoff_s = find_cutoff(at);

    for (group->n = 0; at->n_looked < at->n_pool; at->n_looked++) {
        const struct pooled *pooled = &at->pool[at->n_looked];
        if (is_over(at) && (at->result.n_plans > 0 || group->n > 0))
            return;
        if (pooled->of.time_s <= cutoff_s)
            group->candidates[group->n++] = &pooled->of;
    }
}

/* Looks at what is new in the pool. */
static enum mist_status look(struct validation *at, struct mist_err *err)
{
    size_t n = at->n_pool - at->n_looked + 1;
    struct group group = {
        .at = at,
        .candidates = malloc(n * sizeof *group.candidates),
        .out = calloc(n, sizeof *group.out),
    };
    enum mist_status status = MIST_OK;

    if (!group.candidates || !group.out)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    do {
        if (status != MIST_OK)
            break;
        fill_group(at, &group);
        if (group.n > 0)
            status = run_group(at, &group, err);
    } while (group.n > 0);
    free(group.candidates);
    free(group.out);
    return status;
}

/* Whether a question is still worth asking. As long as no plan holds, less memory alone
 * helps. */
static bool is_worth_asking(const struct validation *at, const struct question *of)
{
    if (of->is_asked)
        return false;
    if (at->result.n_plans == 0)
        return of->groups == at->questions[0].groups;
    return of->least_s <= find_cutoff(at) &&
           (find_spent(at) < FREE_CONFIGURATIONS ||
            find_spent(at) < 3 * at->result.search.n_priced);
}

/* The question whose answer may be the fastest; NULL: there is none. */
static struct question *find_question(const struct validation *at)
{
    struct question *best = NULL;

    for (size_t i = 0; i < at->n_questions; i++)
        if (is_worth_asking(at, &at->questions[i]) &&
            (!best || at->questions[i].least_s < best->least_s))
            best = &at->questions[i];
    return best;
}

static enum mist_status ask_all(struct validation *at, struct mist_err *err)
{
    enum mist_status status =
        add_question(at, at->config->space->groups,
                     round_limit(at->config->limit_bytes, false), 0, err);
    struct question *next = at->questions;

    while (status == MIST_OK && next) {
        next->is_asked = true;
        status = ask(at, (size_t)(next - at->questions), err);
        if (status == MIST_OK)
            status = look(at, err);
        next = is_over(at) ? NULL : find_question(at);
    }
    at->result.was_stopped = is_over(at);
    return status;
}

/* Groups of knobs that save memory and are off; "" when all are on. */
static const char *find_help(const struct mist_space *space, char *text, size_t size)
{
    static const enum mist_space_group savers[] = {MIST_SPACE_ZERO, MIST_SPACE_CKPT,
                                                   MIST_SPACE_LEAN, MIST_SPACE_OFFLOAD};
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

enum mist_status mist_validate_check_space(const struct mist_space *space,
                                           struct mist_err *err)
{
    if (space->n_cases > 0)
        return MIST_OK;
    return mist_err_set(
        err, MIST_ERR_NO_PLAN,
        "%lld samples and %d layers can't be spread over %d ranks, %d on a node, "
        "within the search space; what could help: ranks and a --global-batch with "
        "common factors",
        (long long)space->job.global_batch, (int)space->model.n_layers,
        (int)space->n_ranks, (int)space->devices_per_node);
}

static enum mist_status fail_no_plan(const struct validation *at, struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    const struct mist_validate_result *result = &at->result;
    char needs[MIST_FORMAT_BYTES], limit[MIST_FORMAT_BYTES], more[MIST_FORMAT_BYTES];
    char help[96];
    int64_t closest = result->search.closest_bytes;

    if (space->n_cases == 0)
        return mist_validate_check_space(space, err);
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

    int n_a = mist_alike_n_techniques(a->plan), n_b = mist_alike_n_techniques(b->plan);

    if (a_s != b_s)
        return a_s < b_s ? -1 : 1;
    if (n_a != n_b)
        return n_a < n_b ? -1 : 1;
    if (a->closed_s != b->closed_s)
        return a->closed_s < b->closed_s ? -1 : 1;
    return (a->i_looked > b->i_looked) - (a->i_looked < b->i_looked);
}

/* The plans with every pipeline schedule that might make one the best. */
static enum mist_status try_pipelines(void *context, int64_t begin, int64_t end,
                                      int i_thread, struct mist_err *err)
{
    struct validation *at = context;
    enum mist_status status = MIST_OK;

    (void)i_thread;
    for (int64_t i = begin; i < end && status == MIST_OK && !is_over(at); i++)
        status =
            mist_validate_pipelines(at->config, at->best_s, &at->result.plans[i], err);
    return status;
}

/* Whether two plans differ in memory techniques, layers and schedules alone. */
static bool is_same_kind(const struct mist_plan *a, const struct mist_plan *b)
{
    if (a->n_micro_batches != b->n_micro_batches || a->n_stages != b->n_stages)
        return false;
    for (int32_t i = 0; i < a->n_stages; i++) {
        const struct mist_stage_plan *x = &a->stages[i], *y = &b->stages[i];
        if (x->dp != y->dp || x->tp != y->tp ||
            x->is_sequence_parallel != y->is_sequence_parallel)
            return false;
    }
    return true;
}

/* Whether one of the plans before plan i is of its kind. */
static bool is_had(const struct mist_validated *plans, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (is_same_kind(plans[k].plan, plans[i].plan))
            return true;
    return false;
}

void mist_validate_vary(struct mist_validated *plans, size_t n)
{
    for (size_t i = 1, n_kinds = 1; i < n; i++) {
        const struct mist_validated plan = plans[i];
        if (is_had(plans, i))
            continue;
        memmove(plans + n_kinds + 1, plans + n_kinds, (i - n_kinds) * sizeof *plans);
        plans[n_kinds++] = plan;
    }
}

/* Drops plans until n are left: half of them the best, then the best of every kind, then
 * the rest. plans: sorted, before and after. */
static void keep_some(struct mist_validate_result *result, size_t n)
{
    size_t half = (n + 1) / 2;

    if (result->n_plans <= n)
        return;
    mist_validate_vary(result->plans + half, result->n_plans - half);
    while (result->n_plans > n)
        free(result->plans[--result->n_plans].plan);
    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
}

static enum mist_status finish_plans(struct validation *at, struct mist_err *err)
{
    struct mist_validate_result *result = &at->result;

    enum mist_status status = mist_thread_pool_for(
        at->search->pool, (int64_t)result->n_plans, 1, try_pipelines, at, err);
    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
    keep_some(result, at->config->n_best);
    return status;
}

enum mist_status mist_validate_run(const struct mist_validate_config *config,
                                   const struct mist_search_config *search,
                                   struct mist_validate_result *result,
                                   struct mist_err *err)
{
    struct validation at = {.config = config, .search = search, .best_s = INFINITY};

    mist_arena_init(&at.arena);
    enum mist_status status = ask_all(&at, err);

    if (status == MIST_OK && at.result.n_plans == 0)
        status = fail_no_plan(&at, err);
    if (status == MIST_OK)
        status = finish_plans(&at, err);
    free(at.pool);
    free(at.questions);
    mist_arena_fini(&at.arena);
    mist_search_floors_fini(&at.floors);
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
