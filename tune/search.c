/*
 * The search over cases. See search.h.
 *
 * Cases of one G are one batch: their different kinds of stages are priced once, then
 * every case is solved. Both loops run on the thread pool, each index writing to its own
 * place; the results are put together in order afterwards. What a batch may leave out
 * depends on the batches before it alone, so on no number of threads.
 */
#include "tune/search.h"

#include "core/order.h"
#include "sim/schedule/pipeline_order.h" /* mist_pipeline_in_flight_1f1b */
#include "tune/search_internal.h"
#include "tune/search_rows.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where plans may take so many times what they take at least, bounds on time leave out little,
 * and what the memory leaves is looked at first. */
#define NARROWED_FROM 1.5

struct batch {
    const struct mist_space *space;
    const struct mist_search_config *config;
    const struct mist_space_case *cases; /* [n_cases], of one G */
    int32_t n_cases;
    struct mist_search_bounds bounds; /* set where there is a slack */
    double cutoff_s;                  /* INFINITY: none */
    enum mist_search_memory finds;    /* not plans but how much of that they need */
    int64_t enough_bytes;             /* then: what no plan keeps to */
    bool narrows;                     /* first, to what is within the limit of memory */
    enum mist_status (*ask)(const struct mist_space *, const struct mist_search_config *,
                            struct mist_search_work *, struct mist_err *); /* of it */
    struct mist_search_work *works; /* [n_works] different kinds, sorted */
    size_t n_works;
    struct mist_search_solved *solved; /* [n_cases] */
};

static const char *const role_names[MIST_N_SEARCH_ROLES] = {
    [MIST_SEARCH_ONLY] = "only",
    [MIST_SEARCH_FIRST] = "first",
    [MIST_SEARCH_MIDDLE] = "middle",
    [MIST_SEARCH_LAST] = "last",
};

const char *mist_search_role_name(enum mist_search_role role)
{
    return role_names[role];
}

enum mist_search_role mist_search_stage_role(int32_t n_stages, int32_t i_stage)
{
    if (n_stages == 1)
        return MIST_SEARCH_ONLY;
    if (i_stage == 0)
        return MIST_SEARCH_FIRST;
    return i_stage == n_stages - 1 ? MIST_SEARCH_LAST : MIST_SEARCH_MIDDLE;
}

double mist_search_time_s(int32_t n_micro_batches, int32_t n_chunks, int32_t n_stages,
                          const struct mist_search_choice *stages)
{
    struct mist_pipeline_sum sum = {0};

    for (int32_t i = 0; i < n_stages; i++)
        mist_pipeline_sum_add(&sum, stages[i].t_s, n_chunks * stages[i].d_s);
    return mist_pipeline_sum_s(&sum, (int64_t)n_chunks * n_micro_batches) / n_chunks;
}

/* ------------------------------------------------------------------------------ kinds */

struct mist_search_kind mist_search_stage_kind(int32_t n_micro_batches, int32_t n_stages,
                                               int32_t i_stage, int32_t micro_batch,
                                               struct mist_space_shape shape)
{
    return (struct mist_search_kind){
        .role = mist_search_stage_role(n_stages, i_stage),
        .in_flight = mist_pipeline_in_flight_1f1b(n_stages, i_stage, n_micro_batches),
        .n_micro_batches = n_micro_batches,
        .micro_batch = micro_batch,
        .shape = shape,
        .n_alike = 1,
    };
}

static struct mist_search_work make_work(const struct batch *at,
                                         const struct mist_space_case *of,
                                         int32_t i_stage, int32_t i_shape)
{
    struct mist_space_shape shape = of->shapes[i_shape];
    struct mist_search_kind kind = mist_search_stage_kind(
        of->n_micro_batches, of->n_stages, i_stage, of->samples / shape.dp, shape);
    int64_t limit_bytes =
        mist_constraints_memory(at->config->constraints, of->n_stages, i_stage);

    kind.n_alike = mist_search_n_alike(at->space, of);
    return (struct mist_search_work){
        .kind = kind,
        .limit_bytes =
            limit_bytes < at->config->limit_bytes ? limit_bytes : at->config->limit_bytes,
        .layers_min = of->layers_min,
        .layers_max = of->layers_max,
        .first = of->layers_min,
        .last = of->layers_max,
        .held = of->layers_min - 1,
        .most_t_s = INFINITY,
        .finds_least = at->finds,
        .enough_bytes = at->enough_bytes,
    };
}

/* Kinds that differ in layers_max only are the same. */
MIST_COMPARATOR(compare_works, struct mist_search_work, limit_bytes, kind.role,
                kind.in_flight, kind.n_alike, kind.micro_batch, kind.shape.dp,
                kind.shape.cp, kind.shape.tp, kind.shape.is_sequence_parallel, layers_min)

/* Whether the case may have a plan within the cutoff. */
static bool is_hopeful(const struct batch *at, int32_t i_case)
{
    return !at->bounds.case_s || at->bounds.case_s[i_case] <= at->cutoff_s;
}

/* What plans within the cutoff need of a kind. */
static void set_wanted(const struct batch *at, struct mist_search_work *work)
{
    const struct mist_search_least *least =
        mist_search_find_least(&at->bounds, work->kind.role, &work->kind.shape);

    work->most_t_s = at->cutoff_s / work->kind.n_micro_batches;
    work->is_wanted = least->is_wanted;
}

/* Stages whose knobs are chosen apart. */
static int32_t n_chosen(const struct mist_space *space, const struct mist_space_case *of)
{
    return of->n_stages / mist_search_n_alike(space, of);
}

/* Lists the different kinds of the batch, each with the most layers any case needs. */
static enum mist_status list_works(struct batch *at, struct mist_err *err)
{
    size_t n = 0;

    for (int32_t i = 0; i < at->n_cases; i++)
        n += (size_t)at->cases[i].n_stages * (size_t)at->cases[i].n_shapes;
    at->works = calloc(n, sizeof *at->works);
    if (!at->works)
        return mist_err_memory(err, NULL);
    n = 0;
    for (int32_t i = 0; i < at->n_cases; i++)
        for (int32_t s = 0; is_hopeful(at, i) && s < n_chosen(at->space, &at->cases[i]);
             s++)
            for (int32_t k = 0; k < at->cases[i].n_shapes; k++)
                if (mist_space_allows(&at->cases[i], s, k))
                    at->works[n++] = make_work(at, &at->cases[i], s, k);
    if (n == 0)
        return MIST_OK;
    qsort(at->works, n, sizeof *at->works, compare_works);
    at->n_works = 1;
    for (size_t i = 1; i < n; i++) {
        struct mist_search_work *last = &at->works[at->n_works - 1];
        if (compare_works(last, &at->works[i]) != 0)
            at->works[at->n_works++] = at->works[i];
        else if (last->layers_max < at->works[i].layers_max)
            last->last = last->layers_max = at->works[i].layers_max;
    }
    for (size_t i = 0; i < at->n_works && at->bounds.case_s && isfinite(at->cutoff_s);
         i++)
        set_wanted(at, &at->works[i]);
    return MIST_OK;
}

static bool is_over(const struct mist_search_config *config)
{
    return config->is_over && *config->is_over;
}

static enum mist_status fill_one(void *context, int64_t i, struct mist_err *err)
{
    struct batch *at = context;

    return mist_search_fill_work(at->space, at->config, &at->works[i], err);
}

/* ------------------------------------------------------------------------------ cases */

/* The kind of each stage and shape of a case; not allowed there: NULL. */
static enum mist_status find_works(const struct batch *at,
                                   const struct mist_space_case *of,
                                   struct mist_search_solved *out, struct mist_err *err)
{
    size_t n = (size_t)n_chosen(at->space, of) * (size_t)of->n_shapes;

    out->works = calloc(n, sizeof *out->works);
    if (!out->works)
        return mist_err_memory(err, NULL);
    for (size_t k = 0; k < n; k++) {
        int32_t i_stage = (int32_t)(k / (size_t)of->n_shapes);
        int32_t i_shape = (int32_t)(k % (size_t)of->n_shapes);
        struct mist_search_work key = make_work(at, of, i_stage, i_shape);
        if (mist_space_allows(of, i_stage, i_shape))
            out->works[k] =
                bsearch(&key, at->works, at->n_works, sizeof key, compare_works);
    }
    return MIST_OK;
}

/* The same of all cases that may have a plan. */
static enum mist_status list_solved(struct batch *at, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    at->solved = calloc((size_t)at->n_cases + 1, sizeof *at->solved);
    if (!at->solved)
        return mist_err_memory(err, NULL);
    for (int32_t i = 0; i < at->n_cases && status == MIST_OK; i++) {
        at->solved[i].can_be = is_hopeful(at, i);
        if (at->solved[i].can_be)
            status = find_works(at, &at->cases[i], &at->solved[i], err);
    }
    return status;
}

/* Of the kinds that may be needed. */
static enum mist_status ask_memory(void *context, int64_t i, struct mist_err *err)
{
    struct batch *at = context;

    return at->works[i].first < INT32_MAX && !is_over(at->config)
               ? at->ask(at->space, at->config, &at->works[i], err)
               : MIST_OK;
}

/* Leaves out the cases that can't hold all layers, and of the kinds what no other needs. */
static enum mist_status narrow_cases(struct batch *at, struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (size_t i = 0; i < at->n_works; i++)
        at->works[i].first = INT32_MAX;
    for (int32_t i = 0; i < at->n_cases && status == MIST_OK; i++)
        if (at->solved[i].can_be)
            status =
                mist_search_narrow_case(at->space, &at->cases[i], at->solved[i].works,
                                        &at->solved[i].can_be, err);
    return status;
}

/* To what the memory leaves. */
static enum mist_status narrow(struct batch *at, struct mist_err *err)
{
    struct mist_thread_pool *pool = at->config->pool;
    int64_t n = (int64_t)at->n_works;

    at->ask = mist_search_try_share;
    enum mist_status status = mist_thread_pool_for(pool, n, ask_memory, at, err);
    if (status == MIST_OK)
        status = narrow_cases(at, err);
    at->ask = mist_search_find_most;
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, n, ask_memory, at, err);
    return status == MIST_OK ? narrow_cases(at, err) : status;
}

static enum mist_status solve_one(void *context, int64_t i, struct mist_err *err)
{
    struct batch *at = context;
    const struct mist_space_case *of = &at->cases[i];
    struct mist_search_solved *out = &at->solved[i];

    if (is_over(at->config))
        return MIST_OK;
    out->glpk.bound_s = INFINITY;
    out->is_done = true;
    if (!out->can_be)
        return MIST_OK;
    return at->finds ? mist_search_closest_of(at->space, of, out->works,
                                              &out->closest_bytes, err)
                     : mist_search_solve_case(at->space, at->config, of, at->cutoff_s,
                                              out, err);
}

/* ----------------------------------------------------------------------------- result */

struct gather {
    struct mist_search_result result;
    size_t candidates_capacity;
    struct mist_search_closest closest;
};

static void gather_closest(struct gather *to, const struct mist_space_case *of,
                           const struct mist_search_solved *from)
{
    if (from->closest_bytes < to->closest.bytes)
        to->closest = (struct mist_search_closest){from->closest_bytes, of->n_stages,
                                                   of->n_micro_batches};
}

static enum mist_status gather_case(struct gather *to, const struct batch *at, int32_t i,
                                    struct mist_err *err)
{
    const struct mist_search_solved *from = &at->solved[i];
    struct mist_search_result *result = &to->result;
    int32_t i_case = (int32_t)(at->cases - at->space->cases) + i;
    size_t n = from->n_candidates;

    if (!from->is_done)
        return MIST_OK;
    if (at->finds && from->can_be)
        gather_closest(to, &at->cases[i], from);
    result->n_cases_done++;
    result->glpk.n_cases += from->glpk.n_cases;
    result->glpk.n_optimal += from->glpk.n_optimal;
    result->glpk.n_differ += from->glpk.n_differ;
    if (from->glpk.worst_frac > result->glpk.worst_frac)
        result->glpk.worst_frac = from->glpk.worst_frac;
    result->glpk.bound_s = fmin(result->glpk.bound_s, from->glpk.bound_s);
    if (n == 0)
        return MIST_OK;
    size_t bytes = n * (size_t)from->candidates[0].n_stages * sizeof *from->stages;
    struct mist_search_choice *stages = mist_arena_alloc(&result->arena, bytes);
    if (!stages || !MIST_RESERVE(result->candidates, to->candidates_capacity,
                                 result->n_candidates + n))
        return mist_err_memory(err, NULL);
    memcpy(stages, from->stages, bytes);
    for (size_t k = 0; k < n; k++) {
        struct mist_search_candidate *candidate =
            &result->candidates[result->n_candidates++];
        *candidate = from->candidates[k];
        candidate->i_case = i_case;
        candidate->stages = stages + k * (size_t)candidate->n_stages;
    }
    result->has_more = result->has_more || n == at->config->n_best;
    return MIST_OK;
}

static enum mist_status gather_work(struct gather *to,
                                    const struct mist_search_work *work,
                                    struct mist_search_rows *rows, struct mist_err *err)
{
    struct mist_search_result *result = &to->result;

    result->n_priced += work->n_priced;
    result->n_fitting += work->n_fitting;
    result->n_frontier += (int64_t)work->n_options;
    return work->rows ? mist_search_rows_add(rows, work->rows, work->n_rows, err)
                      : MIST_OK;
}

static int compare_candidates(const void *a_void, const void *b_void)
{
    const struct mist_search_candidate *a = a_void, *b = b_void;

    /* candidates of a case stand in one piece of memory, best first */
    return MIST_COMPARE_BY(a, b, time_s, i_case, stages);
}

static void free_batch(struct batch *at)
{
    for (size_t i = 0; i < at->n_works; i++)
        mist_search_fini_work(&at->works[i]);
    for (int32_t i = 0; at->solved && i < at->n_cases; i++) {
        free(at->solved[i].works);
        free(at->solved[i].candidates);
        free(at->solved[i].stages);
    }
    free(at->works);
    free(at->solved);
    at->works = NULL;
    at->solved = NULL;
    at->n_works = 0;
}

static enum mist_status run_batch(struct batch *at, struct gather *to,
                                  struct mist_err *err)
{
    struct mist_thread_pool *pool = at->config->pool;

    if (at->bounds.case_s)
        mist_search_bounds_set(&at->bounds, at->cutoff_s);
    enum mist_status status = list_works(at, err);
    if (status == MIST_OK)
        status = list_solved(at, err);
    if (status == MIST_OK && at->narrows)
        status = narrow(at, err);
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, (int64_t)at->n_works, fill_one, at, err);
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, at->n_cases, solve_one, at, err);
    for (size_t i = 0; i < at->n_works && status == MIST_OK; i++)
        status = gather_work(to, &at->works[i], at->config->rows, err);
    for (int32_t i = 0; i < at->n_cases && status == MIST_OK; i++)
        status = gather_case(to, at, i, err);
    free_batch(at);
    return status;
}

/* ----------------------------------------------------------------------------- bounds */

/* The time of the best candidate so far. */
static double find_best(const struct mist_search_result *result)
{
    double best_s = INFINITY;

    for (size_t i = 0; i < result->n_candidates; i++)
        best_s = fmin(best_s, result->candidates[i].time_s);
    return best_s;
}

/* Slower plans are not wanted if there is one of best_s. */
static double find_cutoff(const struct mist_search_config *config, double best_s)
{
    double cutoff_s = (1 + config->slack_frac) * best_s;

    return config->cutoff_s > 0 ? fmin(cutoff_s, config->cutoff_s) : cutoff_s;
}

/*
 * The best plan of a part of the space, groups of it and ratios in halves: a bound for
 * the rest. *best_s is lowered to its time.
 */
static enum mist_status search_part(const struct mist_space *space, unsigned groups,
                                    const struct mist_search_config *config,
                                    struct gather *to, double *best_s,
                                    struct mist_err *err)
{
    struct mist_search_config how = *config;
    struct mist_search_result result;
    struct mist_space part;

    how.n_best = 1;
    how.slack_frac = 1e-6;
    how.cutoff_s = 0;
    how.rows = NULL;
    how.solver = MIST_SOLVER_EXACT;
    how.progress = NULL;
    enum mist_status status = mist_space_part(&part, space, groups, &space->bounds, err);
    part.ratio_step =
        space->ratio_step > MIST_RATIO_ONE / 2 ? space->ratio_step : MIST_RATIO_ONE / 2;
    if (status == MIST_OK)
        status = mist_search_run(&part, &how, &result, err);
    mist_space_fini(&part);
    if (status != MIST_OK)
        return status;
    *best_s = fmin(*best_s, find_best(&result));
    to->result.n_priced += result.n_priced;
    to->result.n_fitting += result.n_fitting;
    mist_search_result_fini(&result);
    return MIST_OK;
}

/* The group that the next smaller part of the space lacks; MIST_N_SPACE_GROUPS: none. The
 * smallest has one shape and equal layers for all stages. */
static unsigned find_freest(const struct mist_space *space)
{
    return mist_space_may_differ(space) ? MIST_SPACE_MESH
           : !mist_space_is_even(space) ? MIST_SPACE_IMBALANCE
                                        : MIST_N_SPACE_GROUPS;
}

/* The next smaller part of the space, which looks at a smaller one itself. */
static enum mist_status search_parts(const struct mist_space *space,
                                     const struct mist_search_config *config,
                                     struct gather *to, double *best_s,
                                     struct mist_err *err)
{
    unsigned group = find_freest(space);

    if (group == MIST_N_SPACE_GROUPS)
        return MIST_OK;
    return search_part(space, space->groups & ~(1u << group), config, to, best_s, err);
}

static enum mist_status bound_batches(struct batch *batches, int32_t n, struct gather *to,
                                      struct mist_err *err)
{
    enum mist_status status = MIST_OK;

    for (int32_t i = 0; i < n && status == MIST_OK; i++) {
        struct mist_search_bounds *bounds = &batches[i].bounds;
        *bounds = (struct mist_search_bounds){
            .space = batches[i].space,
            .config = batches[i].config,
            .cases = batches[i].cases,
            .n_cases = batches[i].n_cases,
        };
        status = mist_search_bounds_init(bounds, err);
        for (size_t k = 0; k < bounds->n_leasts; k++)
            to->result.n_priced += bounds->leasts[k].n_priced;
    }
    return status;
}

/* The most promising batch first, as it is a bound for the others. */
MIST_COMPARATOR(compare_batches, struct batch, bounds.least_s, cases)

/* ------------------------------------------------------------------------------ whole */

/* Batches of the cases, one per G; NULL: out of memory. */
static struct batch *make_batches(const struct mist_space *space,
                                  const struct mist_search_config *config, int32_t *n)
{
    struct batch *batches = calloc((size_t)space->n_cases + 1, sizeof *batches);

    *n = 0;
    for (int32_t i = 0; i < space->n_cases && batches;) {
        struct batch *batch = &batches[(*n)++];
        int32_t g = space->cases[i].n_micro_batches;
        *batch = (struct batch){.space = space,
                                .config = config,
                                .cases = &space->cases[i],
                                .cutoff_s = INFINITY};
        for (; i < space->n_cases && space->cases[i].n_micro_batches == g; i++)
            batch->n_cases++;
    }
    return batches;
}

static enum mist_status run_batches(struct batch *batches, int32_t n, double best_s,
                                    struct gather *to, struct mist_err *err)
{
    enum mist_status status = MIST_OK;
    int32_t n_done = 0;

    for (int32_t i = 0; i < n && status == MIST_OK && !is_over(batches[i].config); i++) {
        const struct mist_search_config *config = batches[i].config;
        if (config->slack_frac > 0)
            batches[i].cutoff_s =
                find_cutoff(config, fmin(best_s, find_best(&to->result)));
        batches[i].narrows =
            config->limit_bytes < INT64_MAX &&
            batches[i].cutoff_s > NARROWED_FROM * batches[i].bounds.least_s;
        status = run_batch(&batches[i], to, err);
        n_done += batches[i].n_cases;
        if (config->progress) {
            config->progress->label = "searching";
            mist_progress_update(config->progress, n_done, batches[i].space->n_cases);
        }
    }
    return status;
}

/* Sorts, and drops what turned out to be slower than the slack allows. */
static void sort_candidates(const struct mist_search_config *config,
                            struct mist_search_result *result)
{
    if (result->n_candidates == 0)
        return;
    qsort(result->candidates, result->n_candidates, sizeof *result->candidates,
          compare_candidates);
    double cutoff_s = find_cutoff(config, result->candidates[0].time_s);
    while (config->slack_frac > 0 && result->n_candidates > 0 &&
           result->candidates[result->n_candidates - 1].time_s > cutoff_s)
        result->n_candidates--;
}

static enum mist_status search(const struct mist_space *space,
                               const struct mist_search_config *config,
                               struct mist_search_result *result, struct mist_err *err)
{
    struct gather to = {.result = {.glpk = {.bound_s = INFINITY}}};
    bool has_slack = config->slack_frac > 0;
    double best_s = INFINITY;
    int32_t n = 0;
    struct batch *batches = make_batches(space, config, &n);
    enum mist_status status = batches ? MIST_OK : mist_err_memory(err, NULL);

    mist_arena_init(&to.result.arena);
    if (status == MIST_OK && has_slack && !is_over(config)) {
        status = bound_batches(batches, n, &to, err);
        qsort(batches, (size_t)n, sizeof *batches, compare_batches);
    }
    if (status == MIST_OK && has_slack && config->cutoff_s == 0 && !is_over(config))
        status = search_parts(space, config, &to, &best_s, err);
    if (status == MIST_OK)
        status = run_batches(batches, n, best_s, &to, err);
    for (int32_t i = 0; i < n; i++)
        mist_search_bounds_fini(&batches[i].bounds);
    free(batches);
    if (status != MIST_OK) {
        mist_search_result_fini(&to.result);
        return status;
    }
    sort_candidates(config, &to.result);
    *result = to.result;
    return MIST_OK;
}

enum mist_status mist_search_run(const struct mist_space *space,
                                 const struct mist_search_config *config,
                                 struct mist_search_result *result, struct mist_err *err)
{
    struct mist_search_config own = *config;
    struct mist_search_floors floors = {0};

    own.floors = config->floors ? config->floors : &floors;
    own.n_chunks = config->n_chunks > 0 ? config->n_chunks : 1;
    enum mist_status status = search(space, &own, result, err);
    mist_search_floors_fini(&floors);
    return status;
}

/* As mist_search_find_closest(), exactly if it needs less than that of to, which it becomes
 * then. A part of the space first, which bounds the rest. */
static enum mist_status find_closer(const struct mist_space *space,
                                    const struct mist_search_config *config,
                                    enum mist_search_memory memory, struct gather *to,
                                    struct mist_err *err)
{
    struct mist_search_config own = {.limit_bytes = config->limit_bytes,
                                     .host_limit_bytes = config->host_limit_bytes,
                                     .n_chunks = 1,
                                     .price = config->price,
                                     .price_context = config->price_context,
                                     .pool = config->pool,
                                     .is_over = config->is_over};
    bool is_host = memory == MIST_SEARCH_HOST_MEMORY;
    int64_t *limit_bytes = is_host ? &own.host_limit_bytes : &own.limit_bytes;
    int64_t enough_bytes = *limit_bytes;
    unsigned group = find_freest(space);
    enum mist_status status = MIST_OK;
    struct mist_space part = {0};
    int32_t n = 0;

    if (group < MIST_N_SPACE_GROUPS)
        status = mist_space_part(&part, space, space->groups & ~(1u << group),
                                 &space->bounds, err);
    if (status == MIST_OK && group < MIST_N_SPACE_GROUPS)
        status = find_closer(&part, config, memory, to, err);
    mist_space_fini(&part);
    struct batch *batches = make_batches(space, &own, &n);
    if (status == MIST_OK && !batches)
        status = mist_err_memory(err, NULL);
    /* the smallest micro-batches first, which need the least */
    for (int32_t i = n; i-- > 0 && status == MIST_OK && !is_over(config);) {
        if (to->closest.bytes < INT64_MAX && to->closest.bytes <= enough_bytes)
            break;
        *limit_bytes = to->closest.bytes - 1;
        batches[i].finds = memory;
        batches[i].narrows = to->closest.bytes < INT64_MAX;
        batches[i].enough_bytes = enough_bytes;
        status = run_batch(&batches[i], to, err);
    }
    free(batches);
    return status;
}

enum mist_status mist_search_find_closest(const struct mist_space *space,
                                          const struct mist_search_config *config,
                                          enum mist_search_memory memory,
                                          struct mist_search_closest *out,
                                          struct mist_err *err)
{
    struct gather found = {.closest = {.bytes = INT64_MAX}};
    enum mist_status status = find_closer(space, config, memory, &found, err);

    *out = found.closest;
    return status;
}

double mist_search_gap_frac(const struct mist_search_result *result)
{
    return result->n_candidates == 0
               ? (double)NAN
               : fmax(0, 1 - result->glpk.bound_s / result->candidates[0].time_s);
}

void mist_search_result_fini(struct mist_search_result *result)
{
    free(result->candidates);
    mist_arena_fini(&result->arena);
    *result = (struct mist_search_result){0};
}
