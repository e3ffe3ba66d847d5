/* The loop around search, memory planning and replay. See validate.h. */
#include "tune/validate.h"

#include "core/memory.h"
#include "tune/alike.h"
#include "tune/neighbours.h"
#include "tune/no_plan.h"
#include "tune/questions.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of a search, one candidate for so many plans that are wanted. */
enum { CANDIDATES = 4 };

/* What a search leaves out that has no plan yet: slower than its best by the closed form. */
#define FIRST_SLACK_FRAC 0.1

/* Searches with less freedom may price so many times what the first question does, twice that
 * where they are not narrowed, in so many searches; or so many configurations with its own, as
 * long as what is replayed has no more passes of a layer. */
enum {
    TIMES_FIRST = 2,
    TIMES_FIRST_NOT_IN_1F1B = 1,
    MOST_SEARCHES = 64,
    FREE_CONFIGURATIONS = 1 << 20,
    SEARCH_CONFIGURATIONS = 1 << 10, /* what a search costs beside what it prices */
    FREE_PASSES = 1 << 17,
    FREE_PASSES_BESIDE = 1 << 15 /* neighbours are looked at as long as it has no more */
};

/* Of a stage, where the gaps are to be small: the most that plans are tried with. */
enum { N_CHUNKS = 4 };

/* Plans that much faster than one that they are beside are worth a look at their neighbours. */
#define BETTER_FRAC 1e-4

/* What the closed form may take too long, whatever the replays say: at least. */
#define LEAST_ERROR_FRAC 0.03

/* -------------------------------------------------------------------------- candidates */

/* A candidate of some search. */
struct pooled {
    struct mist_search_candidate of; /* its stages are in the arena of the pool */
    uint64_t hash;
    double replayed_s; /* INFINITY: was not looked at, or does not hold */
    double hope_s;     /* by the closed form, in chunks if it was found so */
    /* the slowest plan that it is a neighbour of; INFINITY: a search found it */
    double beside_s;
    bool was_looked, is_explored; /* itself; its neighbours are in the pool */
};

struct validation {
    const struct mist_validate_config *config;
    const struct mist_search_config *search;
    struct mist_validate_result result;
    struct mist_questions questions;
    struct pooled *pool; /* the first n_looked were looked at */
    size_t n_pool, n_looked, pool_capacity;
    struct mist_arena arena;
    struct mist_search_floors floors;
    int64_t n_first;                        /* configurations, of the first question */
    int64_t n_spent[MIST_N_QUESTION_SORTS]; /* and of the others */
    int32_t n_asked[MIST_N_QUESTION_SORTS];
    int64_t n_passes;   /* of layers, in what was looked at */
    double best_s;      /* 1f1b of the fastest plan so far; INFINITY: none */
    double scheduled_s; /* with any schedule */
    /* How much longer than the replay the closed form took a plan to be at most, of the
     * replay. */
    double error_frac;
    double covered_s; /* what the first question was answered for: by the closed form */
    double beside_s;  /* of the plan whose neighbours are pooled; INFINITY: none's are */
};

static bool is_over(const struct validation *at)
{
    return at->search->is_over && *at->search->is_over;
}

/* What the closed form may take too long, as far as it has erred. */
static double find_error_frac(const struct validation *at)
{
    return LEAST_ERROR_FRAC + 1.5 * at->error_frac;
}

/* Whether so many configurations behind the first question, of which so many are free, cost
 * little so far, and another one would, too: as many as the first at most. */
static bool costs_little(const struct validation *at, int64_t n_spent, int64_t n_free)
{
    return at->n_first + n_spent < n_free && at->n_passes < FREE_PASSES;
}

/* What the closed form takes longer is no better than the best plan: as far as it may err,
 * and, as long as it costs little, whatever that is. */
static double find_cutoff(const struct validation *at)
{
    double error_frac = find_error_frac(at);

    if (costs_little(at, at->n_spent[MIST_QUESTION_1F1B], FREE_CONFIGURATIONS))
        error_frac = fmax(error_frac, MIST_VALIDATE_SLACK_FRAC);
    return (1 + error_frac + at->config->slower_frac) * at->best_s;
}

/* The same of answers to a question: hardly any plan leaves smaller gaps than in chunks. */
static double find_cutoff_of(const struct validation *at, enum mist_question_sort sort)
{
    return sort == MIST_QUESTION_CHUNKS ? (1 + find_error_frac(at)) * at->scheduled_s
                                        : find_cutoff(at);
}

static struct mist_search_kind kind_of(const struct mist_search_candidate *of, int32_t i)
{
    const struct mist_search_choice *stage = &of->stages[i];

    return mist_search_stage_kind(of->n_micro_batches, of->n_stages, i,
                                  stage->micro_batch, stage->shape);
}

/* Whether a candidate is in the pool, with no less hope if it was not looked at. */
static bool is_pooled(struct validation *at,
                      const struct mist_search_candidate *candidate, uint64_t hash,
                      int32_t n_chunks)
{
    for (size_t i = 0; i < at->n_pool; i++)
        if (at->pool[i].hash == hash &&
            (at->pool[i].was_looked || n_chunks == 1 ||
             at->pool[i].hope_s <= mist_search_time_s(candidate->n_micro_batches,
                                                      n_chunks, candidate->n_stages,
                                                      candidate->stages))) {
            at->pool[i].beside_s = fmax(at->pool[i].beside_s, at->beside_s);
            return true;
        }
    return false;
}

/* Takes a candidate into the pool, if it is not there, with what the closed form itself says
 * of its time and memory, and of its time if its stages had n_chunks. */
static enum mist_status pool_chunked(struct validation *at,
                                     const struct mist_search_candidate *candidate,
                                     int32_t n_chunks, struct mist_err *err)
{
    struct pooled pooled = {.of = *candidate,
                            .hash = mist_validate_hash(candidate),
                            .replayed_s = INFINITY,
                            .beside_s = at->beside_s};
    size_t bytes = (size_t)candidate->n_stages * sizeof *candidate->stages;

    if (is_pooled(at, candidate, pooled.hash, n_chunks))
        return MIST_OK;
    struct mist_search_choice *stages = mist_arena_alloc(&at->arena, bytes);
    enum mist_status status = MIST_OK;
    if (!stages || !MIST_RESERVE(at->pool, at->pool_capacity, at->n_pool + 1))
        return mist_err_memory(err, NULL);
    pooled.of.stages = memcpy(stages, candidate->stages, bytes);
    for (int32_t i = 0; i < candidate->n_stages && status == MIST_OK; i++) {
        struct mist_search_kind kind = kind_of(candidate, i);
        status = mist_search_price_choice(at->search, &kind, &stages[i], err);
    }
    pooled.of.time_s =
        mist_search_time_s(candidate->n_micro_batches, 1, candidate->n_stages, stages);
    pooled.hope_s = mist_search_time_s(candidate->n_micro_batches, n_chunks,
                                       candidate->n_stages, stages);
    if (status == MIST_OK)
        at->pool[at->n_pool++] = pooled;
    return status;
}

static enum mist_status pool_candidate(void *context,
                                       const struct mist_search_candidate *candidate,
                                       struct mist_err *err)
{
    return pool_chunked(context, candidate, 1, err);
}

/* Takes the best few candidates of a search into the pool. */
static enum mist_status take(struct validation *at, struct mist_question *question,
                             size_t n, const struct mist_search_result *of,
                             struct mist_err *err)
{
    bool is_chunked = question->sort == MIST_QUESTION_CHUNKS;
    size_t *order = malloc((of->n_candidates + 1) * sizeof *order);
    size_t n_priced = CANDIDATES * n, n_scheduled = is_chunked ? n : (n + 3) / 4;

    n = is_chunked ? 0 : n;
    question->answer_s = question->hope_s;
    enum mist_status status =
        order
            ? mist_validate_choose(at->config, of, at->search->pool, at->best_s, n_priced,
                                   &n, &n_scheduled, order, &question->answer_s, err)
            : mist_err_memory(err, NULL);
    for (size_t i = 0; i < n + n_scheduled && status == MIST_OK; i++)
        status =
            pool_chunked(at, &of->candidates[order[i]], is_chunked ? N_CHUNKS : 1, err);
    if (status == MIST_OK)
        mist_question_note(question, of->candidates, order, is_chunked ? n_scheduled : n);
    free(order);
    return status;
}

/* A search has found all that is no slower by the closed form. */
static double find_covered(const struct mist_search_config *how,
                           const struct mist_search_result *result)
{
    if (how->cutoff_s > 0)
        return how->cutoff_s;
    return how->slack_frac == 0 || result->n_candidates == 0
               ? INFINITY
               : (1 + how->slack_frac) * result->candidates[0].time_s;
}

/* Whether what a search of less freedom finds is among what it has found. */
static bool is_exact(const struct mist_search_config *how,
                     const struct mist_search_result *result)
{
    return how->max_points == 0 && result->glpk.n_optimal == result->glpk.n_cases;
}

/* Searches, takes what is best into the pool, and notes in the question what it learnt. */
static enum mist_status ask(struct validation *at, size_t i_question,
                            struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    struct mist_question question = at->questions.all[i_question];
    struct mist_search_config how = *at->search;
    struct mist_search_result result;
    struct mist_space part = {0};
    bool is_first = at->result.n_searches == 0;

    how.limit_bytes = question.limit_bytes;
    how.floors = &at->floors;
    how.n_best = (at->config->n_best + CANDIDATES - 1) / CANDIDATES;
    if (is_first)
        how.slack_frac = fmin(how.slack_frac, FIRST_SLACK_FRAC);
    how.slack_frac += how.slack_frac > 0 ? at->config->slower_frac : 0;
    if (!is_first) {
        how.rows = NULL;
        how.solver = MIST_SOLVER_EXACT;
        how.progress = NULL;
        how.glpk_time_limit_s /= 8; /* there may be many */
    }
    if (isfinite(at->best_s) && how.slack_frac > 0) { /* replays say what is too slow */
        how.slack_frac = INFINITY;
        how.cutoff_s = find_cutoff_of(at, question.sort);
    }
    how.n_chunks = question.sort == MIST_QUESTION_CHUNKS ? N_CHUNKS : 1;
    if (question.sort == MIST_QUESTION_HOST)
        how.node_host_bytes = at->config->host_limit_bytes;
    enum mist_status status =
        is_first ? MIST_OK : mist_question_part(space, &question, &part, err);
    mist_questions_narrow(&at->questions, i_question,
                          how.cutoff_s > 0 ? how.cutoff_s : (double)INFINITY, &part);
    if (status == MIST_OK)
        status = mist_search_run(is_first ? space : &part, &how, &result, err);
    mist_space_fini(&part);
    if (status != MIST_OK)
        return status;
    at->result.n_searches++;
    at->n_asked[question.sort]++;
    int64_t n_spent = result.n_priced + SEARCH_CONFIGURATIONS;
    if (result.n_candidates > 0)
        question.least_s = result.candidates[0].time_s;
    if (i_question == 0) {
        at->n_first += n_spent;
        at->covered_s = find_covered(&how, &result);
    } else {
        at->n_spent[question.sort] += n_spent;
    }
    if (is_exact(&how, &result) && !is_over(at))
        status = mist_question_note_found(&question, &result, find_covered(&how, &result),
                                          &at->arena, err);
    if (status == MIST_OK)
        status = take(at, &question, i_question == 0 ? at->config->n_best : how.n_best,
                      &result, err);
    at->questions.all[i_question] = question;
    if (is_first)
        at->result.search = result;
    else
        mist_search_result_fini(&result);
    return status;
}

/* ------------------------------------------------------------------------------- groups */

/* Candidates that are validated together, one index each. */
struct group {
    const struct validation *at;
    struct pooled **pooled;     /* [n] borrowed */
    struct mist_validated *out; /* [n] */
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
        mist_err_memory(err, NULL);
    }
    free(closed_bytes);
    return status;
}

static enum mist_status validate_pooled(void *context, int64_t i, struct mist_err *err)
{
    struct group *group = context;

    return validate_one(group->at->config, &group->pooled[i]->of, &group->out[i], err);
}

/* The plans with every pipeline schedule that might make one the best. */
static enum mist_status try_pipelines(void *context, int64_t i, struct mist_err *err)
{
    struct group *group = context;
    const struct validation *at = group->at;

    return group->out[i].holds && !is_over(at)
               ? mist_validate_pipelines(at->config, at->best_s, &group->out[i], err)
               : MIST_OK;
}

/* What the plan of a candidate says of others. */
static void learn(struct validation *at, struct pooled *pooled,
                  const struct mist_validated *plan)
{
    double time_s = plan->plan->predicted.iteration_s;

    if (plan->holds) {
        pooled->replayed_s = time_s;
        at->best_s = fmin(at->best_s, time_s);
        at->error_frac = fmax(at->error_frac, plan->closed_s / time_s - 1);
    }
}

/* Passes of a layer in what was looked at of a plan. */
static int64_t count_passes(const struct validation *at, const struct mist_validated *of)
{
    int64_t n_replayed = 0;

    for (int i = 0; i < MIST_N_PIPELINES; i++)
        n_replayed += of->pipelines[i].tried == MIST_TRIED_REPLAYED;
    return (n_replayed > 0 ? n_replayed : 1) * of->plan->n_micro_batches *
           at->config->space->model.n_layers;
}

/* Validates a group and sorts its plans into the two lists. */
static enum mist_status run_group(struct validation *at, struct group *group,
                                  struct mist_err *err)
{
    struct mist_validate_result *result = &at->result;
    struct mist_thread_pool *pool = at->search->pool;
    int64_t n = (int64_t)group->n;
    enum mist_status status = mist_thread_pool_for(pool, n, validate_pooled, group, err);

    for (size_t i = 0; i < group->n && status == MIST_OK; i++)
        learn(at, group->pooled[i], &group->out[i]);
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, n, try_pipelines, group, err);
    for (size_t i = 0; i < group->n && status == MIST_OK; i++) {
        struct mist_validated *plan = &group->out[i];
        at->n_passes += count_passes(at, plan);
        if (plan->holds) {
            at->scheduled_s = fmin(at->scheduled_s, plan->plan->predicted.iteration_s);
            group->pooled[i]->replayed_s = plan->plan->predicted.iteration_s;
        }
        status = mist_validate_add(at->config, result, plan, err);
    }
    for (size_t i = 0; i < group->n; i++)
        free(group->out[i].plan);
    if (at->search->progress) {
        at->search->progress->label = "replaying";
        mist_progress_update(at->search->progress, (int64_t)result->n_looked, 0);
    }
    return status;
}

/* The candidates that were not looked at, less those that are too slow even if the closed
 * form errs; after a stop one plan is enough. */
static void fill_group(struct validation *at, struct group *group)
{
    double cutoff_s = find_cutoff(at);

    for (group->n = 0; at->n_looked < at->n_pool; at->n_looked++) {
        struct pooled *pooled = &at->pool[at->n_looked];
        if (is_over(at) && (at->result.n_plans > 0 || group->n > 0))
            return;
        pooled->was_looked = pooled->hope_s <= cutoff_s;
        if (pooled->was_looked)
            group->pooled[group->n++] = pooled;
    }
}

/* Looks at what is new in the pool. */
static enum mist_status look(struct validation *at, struct mist_err *err)
{
    size_t n = at->n_pool - at->n_looked + 1;
    struct group group = {
        .at = at,
        .pooled = malloc(n * sizeof *group.pooled),
        .out = calloc(n, sizeof *group.out),
    };
    enum mist_status status = MIST_OK;

    if (!group.pooled || !group.out)
        status = mist_err_memory(err, NULL);
    do {
        if (status != MIST_OK)
            break;
        fill_group(at, &group);
        if (group.n > 0)
            status = run_group(at, &group, err);
    } while (group.n > 0);
    free(group.pooled);
    free(group.out);
    return status;
}

/* Whether another question of a sort may be asked. */
static bool may_cost(const struct validation *at, enum mist_question_sort sort)
{
    int64_t n_spent = at->n_spent[sort];
    int64_t n_free =
        sort == MIST_QUESTION_CHUNKS ? FREE_CONFIGURATIONS / 8 : FREE_CONFIGURATIONS;
    int64_t times = (sort == MIST_QUESTION_1F1B ? TIMES_FIRST : TIMES_FIRST_NOT_IN_1F1B) *
                    (at->config->is_thorough ? 2 : 1);

    return costs_little(at, n_spent, n_free) ||
           (at->n_asked[sort] < MOST_SEARCHES && n_spent < times * at->n_first);
}

/* Whether a question is still worth asking. As long as no plan holds, less memory of a device
 * alone helps, which it rarely does where the host's is lacking. */
static bool is_worth_asking(const struct validation *at, const struct mist_question *of)
{
    if (of->is_asked)
        return false;
    if (at->result.n_plans > 0)
        return may_cost(at, of->sort) && of->least_s <= find_cutoff_of(at, of->sort);
    return mist_question_is_whole(&at->questions, of) &&
           of->sort != MIST_QUESTION_CHUNKS &&
           (of->sort != MIST_QUESTION_HOST || may_cost(at, of->sort));
}

/* The question that promises the fastest answer; NULL: there is none. */
static struct mist_question *find_question(const struct validation *at)
{
    struct mist_question *best = NULL;

    for (size_t i = 0; i < at->questions.n; i++)
        if (is_worth_asking(at, &at->questions.all[i]) &&
            (!best || at->questions.all[i].hope_s < best->hope_s))
            best = &at->questions.all[i];
    return best;
}

/* Asks a question, looks at what is new, and adds the questions that follow from it. */
static enum mist_status answer(struct validation *at, size_t i, struct mist_err *err)
{
    at->questions.all[i].is_asked = true;
    enum mist_status status = ask(at, i, err);
    if (status == MIST_OK)
        status = look(at, err);
    if (status == MIST_OK)
        status = mist_questions_follow(&at->questions, i, at->config, &at->result, err);
    at->questions.all[0].is_asked = isinf(at->best_s) || find_cutoff(at) <= at->covered_s;
    return status;
}

static enum mist_status answer_all(struct validation *at, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    struct mist_question *next;

    while (status == MIST_OK && !is_over(at) && (next = find_question(at)))
        status = answer(at, (size_t)(next - at->questions.all), err);
    return status;
}

/* Where the closed form holds no plan to be within the limits: looks at the one that needs
 * the least of a memory. Its arena says how much of that is lacking, or none is. */
static enum mist_status look_at_closest(struct validation *at,
                                        enum mist_search_memory memory,
                                        struct mist_search_closest *closest,
                                        struct mist_err *err)
{
    const struct mist_space *space = at->config->space;
    struct mist_search_config how = *at->search;
    struct mist_bounds bounds = space->bounds;
    struct mist_search_result found;
    struct mist_space part = {0};

    how.limit_bytes = at->config->limit_bytes;
    how.rows = NULL;
    how.solver = MIST_SOLVER_EXACT;
    enum mist_status status = mist_search_find_closest(space, &how, memory, closest, err);
    if (status != MIST_OK || closest->bytes == INT64_MAX)
        return status;
    bounds.of[MIST_KNOB_PP] =
        (struct mist_knob_range){closest->n_stages, closest->n_stages};
    bounds.of[MIST_KNOB_MICRO_BATCHES] =
        (struct mist_knob_range){closest->n_micro_batches, closest->n_micro_batches};
    *(memory == MIST_SEARCH_HOST_MEMORY ? &how.host_limit_bytes : &how.limit_bytes) =
        closest->bytes;
    how.n_best = 1;
    how.slack_frac = 0;
    status = mist_space_part(&part, space, space->groups, &bounds, err);
    if (status == MIST_OK)
        status = mist_search_run(&part, &how, &found, err);
    mist_space_fini(&part);
    if (status != MIST_OK)
        return status;
    if (found.n_candidates > 0)
        status = pool_candidate(at, &found.candidates[0], err);
    mist_search_result_fini(&found);
    return status == MIST_OK ? look(at, err) : status;
}

static enum mist_status ask_all(struct validation *at, struct mist_err *err)
{
    enum mist_status status = mist_questions_init(&at->questions, at->config, err);

    if (status == MIST_OK)
        status = answer(at, 0, err);
    if (status == MIST_OK)
        status = answer_all(at, err);
    if (status == MIST_OK && !is_over(at) && at->config->space->n_cases > 0 &&
        at->result.n_plans == 0 && at->result.search.n_candidates == 0) {
        status = look_at_closest(at, MIST_SEARCH_DEVICE_MEMORY, &at->result.closest, err);
        at->result.closest_host.bytes = INT64_MAX;
        if (status == MIST_OK && !is_over(at) && at->result.n_plans == 0 &&
            at->config->host_limit_bytes < INT64_MAX &&
            mist_space_offloads(at->config->space))
            status = look_at_closest(at, MIST_SEARCH_HOST_MEMORY,
                                     &at->result.closest_host, err);
        if (status == MIST_OK)
            status = answer_all(at, err);
    }
    return status;
}

/* The fastest plan, faster than one that it is beside, whose neighbours were not looked at;
 * NULL: there is none. */
static struct pooled *find_unexplored(const struct validation *at)
{
    struct pooled *best = NULL;

    for (size_t i = 0; i < at->n_pool; i++) {
        struct pooled *one = &at->pool[i];
        if (!one->is_explored && one->replayed_s < (1 - BETTER_FRAC) * one->beside_s &&
            (!best || one->replayed_s < best->replayed_s))
            best = one;
    }
    return best;
}

/* Looks at the neighbours of plans, the fastest first, and at theirs as long as they are faster,
 * until nothing new comes, or enough was replayed. */
static enum mist_status explore(struct validation *at, struct mist_err *err)
{
    int64_t before = at->n_passes, most = FREE_PASSES_BESIDE;
    enum mist_status status = MIST_OK;
    struct pooled *next;

    if (at->config->is_thorough)
        most = before + (before > FREE_PASSES ? before : (int64_t)FREE_PASSES);
    while (status == MIST_OK && !is_over(at) && at->n_passes < most &&
           (next = find_unexplored(at))) {
        const struct mist_search_candidate of = next->of;
        next->is_explored = true;
        at->beside_s = next->replayed_s;
        status = mist_neighbours_list(at->config->space, &of, pool_candidate, at, err);
        at->beside_s = INFINITY;
        if (status == MIST_OK)
            status = look(at, err);
    }
    return status;
}

enum mist_status mist_validate_run(const struct mist_validate_config *config,
                                   const struct mist_search_config *search,
                                   struct mist_validate_result *result,
                                   struct mist_err *err)
{
    struct validation at = {.config = config,
                            .search = search,
                            .best_s = INFINITY,
                            .scheduled_s = INFINITY,
                            .beside_s = INFINITY};

    mist_arena_init(&at.arena);
    enum mist_status status = ask_all(&at, err);
    if (status == MIST_OK && at.result.n_plans > 0)
        status = explore(&at, err);
    at.result.was_stopped = is_over(&at);
    if (status == MIST_OK && at.result.n_plans == 0)
        status = mist_no_plan_explain(config, &at.result, err);
    if (status == MIST_OK)
        mist_validate_keep(&at.result, config->n_best, config->slower_frac);
    free(at.pool);
    free(at.questions.all);
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
