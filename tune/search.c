/*
 * The search over cases. See search.h.
 *
 * Cases of one G are one batch: their different kinds of stages are priced once, then
 * every case is solved. Both loops run on the thread pool, each index writing to its own
 * place; the results are put together in order afterwards.
 */
#include "tune/search.h"

#include "sim/pipeline_order.h" /* mist_pipeline_in_flight */
#include "tune/search_internal.h"

#include <stdlib.h>
#include <string.h>

struct batch {
    const struct mist_space *space;
    const struct mist_search_config *config;
    const struct mist_space_case *cases; /* [n_cases], of one G */
    int32_t n_cases;
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

/* The operations of mist_inter_stage_time(), in its order. */
double mist_search_time_s(int32_t n_micro_batches, int32_t n_stages,
                          const struct mist_search_choice *stages)
{
    double c_s = 0, t_most_s = 0;

    for (int32_t i = 0; i < n_stages; i++) {
        c_s = stages[i].t_s + (c_s > stages[i].d_s ? c_s : stages[i].d_s);
        t_most_s = stages[i].t_s > t_most_s ? stages[i].t_s : t_most_s;
    }
    return (double)(n_micro_batches - 1) * t_most_s + c_s;
}

/* ------------------------------------------------------------------------------ kinds */

static struct mist_search_work make_work(const struct mist_space_case *of,
                                         int32_t i_stage, int32_t i_dp)
{
    int32_t dp = of->dps[i_dp];

    return (struct mist_search_work){
        .kind = {.role = mist_search_stage_role(of->n_stages, i_stage),
                 .in_flight =
                     mist_pipeline_in_flight(of->n_stages, i_stage, of->n_micro_batches),
                 .n_micro_batches = of->n_micro_batches,
                 .micro_batch = of->samples / dp,
                 .dp = dp},
        .layers_min = of->layers_min,
        .layers_max = of->layers_max,
    };
}

/* Kinds that differ in layers_max only are the same. */
static int compare_works(const void *a_void, const void *b_void)
{
    const struct mist_search_work *a = a_void, *b = b_void;
    const int32_t keys[][2] = {
        {(int32_t)a->kind.role, (int32_t)b->kind.role},
        {a->kind.in_flight, b->kind.in_flight},
        {a->kind.micro_batch, b->kind.micro_batch},
        {a->kind.dp, b->kind.dp},
        {a->layers_min, b->layers_min},
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    return 0;
}

/* Lists the different kinds of the batch, each with the most layers any case needs. */
static enum mist_status list_works(struct batch *at, struct mist_err *err)
{
    size_t n = 0;

    for (int32_t i = 0; i < at->n_cases; i++)
        n += (size_t)at->cases[i].n_stages * (size_t)at->cases[i].n_dps;
    at->works = calloc(n, sizeof *at->works);
    if (!at->works)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    for (int32_t i = 0; i < at->n_cases; i++)
        for (int32_t s = 0; s < at->cases[i].n_stages; s++)
            for (int32_t k = 0; k < at->cases[i].n_dps; k++)
                at->works[at->n_works++] = make_work(&at->cases[i], s, k);
    qsort(at->works, n, sizeof *at->works, compare_works);
    at->n_works = 1;
    for (size_t i = 1; i < n; i++) {
        struct mist_search_work *last = &at->works[at->n_works - 1];
        if (compare_works(last, &at->works[i]) != 0)
            at->works[at->n_works++] = at->works[i];
        else if (last->layers_max < at->works[i].layers_max)
            last->layers_max = at->works[i].layers_max;
    }
    return MIST_OK;
}

static bool is_over(const struct mist_search_config *config)
{
    return config->is_over && *config->is_over;
}

static enum mist_status fill_works(void *context, int64_t begin, int64_t end,
                                   int i_thread, struct mist_err *err)
{
    struct batch *at = context;
    enum mist_status status = MIST_OK;

    (void)i_thread;
    for (int64_t i = begin; i < end && status == MIST_OK; i++)
        status = mist_search_fill_work(at->space, at->config, &at->works[i], err);
    return status;
}

/* ------------------------------------------------------------------------------ cases */

static enum mist_status solve_cases(void *context, int64_t begin, int64_t end,
                                    int i_thread, struct mist_err *err)
{
    struct batch *at = context;
    enum mist_status status = MIST_OK;

    (void)i_thread;
    for (int64_t i = begin; i < end && status == MIST_OK; i++) {
        const struct mist_space_case *of = &at->cases[i];
        struct mist_search_solved *out = &at->solved[i];
        size_t n = (size_t)of->n_stages * (size_t)of->n_dps;
        if (is_over(at->config))
            return MIST_OK;
        out->works = calloc(n, sizeof *out->works);
        if (!out->works)
            return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
        for (size_t k = 0; k < n; k++) {
            struct mist_search_work key = make_work(of, (int32_t)(k / (size_t)of->n_dps),
                                                    (int32_t)(k % (size_t)of->n_dps));
            out->works[k] =
                bsearch(&key, at->works, at->n_works, sizeof key, compare_works);
        }
        status =
            mist_search_find_closest(at->space, of, out->works, &out->closest_bytes, err);
        if (status == MIST_OK && out->closest_bytes <= at->config->limit_bytes)
            status = mist_search_solve_case(at->space, at->config, of, out, err);
        out->is_done = true;
    }
    return status;
}

/* ----------------------------------------------------------------------------- result */

struct gather {
    struct mist_search_result result;
    size_t candidates_capacity, rows_capacity;
};

static enum mist_status gather_case(struct gather *to, int32_t i_case,
                                    const struct mist_search_solved *from, size_t n_best,
                                    struct mist_err *err)
{
    struct mist_search_result *result = &to->result;
    size_t n = from->n_candidates;

    if (!from->is_done)
        return MIST_OK;
    result->n_cases_done++;
    if (from->closest_bytes < result->closest_bytes)
        result->closest_bytes = from->closest_bytes;
    result->glpk.n_cases += from->glpk.n_cases;
    result->glpk.n_optimal += from->glpk.n_optimal;
    result->glpk.n_differ += from->glpk.n_differ;
    if (from->glpk.worst_frac > result->glpk.worst_frac)
        result->glpk.worst_frac = from->glpk.worst_frac;
    if (n == 0)
        return MIST_OK;
    size_t bytes = n * (size_t)from->candidates[0].n_stages * sizeof *from->stages;
    struct mist_search_choice *stages = mist_arena_alloc(&result->arena, bytes);
    void *grown = mist_grow(result->candidates, &to->candidates_capacity,
                            result->n_candidates + n, sizeof *result->candidates);
    if (grown)
        result->candidates = grown;
    if (!stages || !grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    memcpy(stages, from->stages, bytes);
    for (size_t i = 0; i < n; i++) {
        struct mist_search_candidate *candidate =
            &result->candidates[result->n_candidates++];
        *candidate = from->candidates[i];
        candidate->i_case = i_case;
        candidate->stages = stages + i * (size_t)candidate->n_stages;
    }
    result->has_more = result->has_more || n == n_best;
    return MIST_OK;
}

static enum mist_status
gather_work(struct gather *to, const struct mist_search_work *work, struct mist_err *err)
{
    struct mist_search_result *result = &to->result;

    result->n_priced += work->n_priced;
    result->n_fitting += work->n_fitting;
    result->n_frontier += (int64_t)work->n_options;
    if (!work->rows)
        return MIST_OK;
    void *grown =
        mist_grow(result->rows, &to->rows_capacity,
                  result->n_rows + (size_t)work->n_priced, sizeof *result->rows);
    if (!grown)
        return mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    result->rows = grown;
    memcpy(result->rows + result->n_rows, work->rows,
           (size_t)work->n_priced * sizeof *work->rows);
    result->n_rows += (size_t)work->n_priced;
    return MIST_OK;
}

static int compare_candidates(const void *a_void, const void *b_void)
{
    const struct mist_search_candidate *a = a_void, *b = b_void;

    if (a->rank_s != b->rank_s)
        return a->rank_s < b->rank_s ? -1 : 1;
    if (a->i_case != b->i_case)
        return a->i_case < b->i_case ? -1 : 1;
    /* candidates of a case stand in one piece of memory, best first */
    return (a->stages > b->stages) - (a->stages < b->stages);
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
}

static enum mist_status run_batch(struct batch *at, struct gather *to,
                                  struct mist_err *err)
{
    struct mist_thread_pool *pool = at->config->pool;
    enum mist_status status = list_works(at, err);

    at->solved = calloc((size_t)at->n_cases, sizeof *at->solved);
    if (status == MIST_OK && !at->solved)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory");
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, (int64_t)at->n_works, 1, fill_works, at, err);
    if (status == MIST_OK)
        status = mist_thread_pool_for(pool, at->n_cases, 1, solve_cases, at, err);
    for (size_t i = 0; i < at->n_works && status == MIST_OK; i++)
        status = gather_work(to, &at->works[i], err);
    for (int32_t i = 0; i < at->n_cases && status == MIST_OK; i++)
        status = gather_case(to, (int32_t)(at->cases - at->space->cases) + i,
                             &at->solved[i], at->config->n_best, err);
    free_batch(at);
    return status;
}

enum mist_status mist_search_run(const struct mist_space *space,
                                 const struct mist_search_config *config,
                                 struct mist_search_result *result, struct mist_err *err)
{
    struct gather to = {.result = {.closest_bytes = INT64_MAX}};
    enum mist_status status = MIST_OK;
    int32_t i = 0;

    mist_arena_init(&to.result.arena);
    while (i < space->n_cases && status == MIST_OK && !is_over(config)) {
        struct batch batch = {
            .space = space, .config = config, .cases = &space->cases[i]};
        int32_t g = space->cases[i].n_micro_batches;
        for (; i < space->n_cases && space->cases[i].n_micro_batches == g; i++)
            batch.n_cases++;
        status = run_batch(&batch, &to, err);
        if (config->progress)
            mist_progress_update(config->progress, i, space->n_cases);
    }
    if (status != MIST_OK) {
        mist_search_result_fini(&to.result);
        return status;
    }
    if (to.result.n_candidates > 0)
        qsort(to.result.candidates, to.result.n_candidates, sizeof *to.result.candidates,
              compare_candidates);
    *result = to.result;
    return MIST_OK;
}

void mist_search_result_fini(struct mist_search_result *result)
{
    free(result->candidates);
    free(result->rows);
    mist_arena_fini(&result->arena);
    *result = (struct mist_search_result){0};
}
