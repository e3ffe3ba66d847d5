/* Which candidates are looked at, and which plans are kept, in which order. See
 * validate.h. */
#include "core/memory.h"
#include "core/order.h"
#include "tune/alike.h"
#include "tune/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Candidates are replayed shortly if their passes take so much longer than the best's, at
 * most. Passes err less in the plans that searches bring: 4 % in 358 of GPT 6.7B on L4. */
#define NEAR_FRAC 0.05

/* A plan is large and a search looks at thousands: in its course so many times those that
 * are wanted in the end are kept. */
enum { N_KEPT = 8 };

static int compare_plans(const void *a_void, const void *b_void)
{
    const struct mist_validated *a = a_void, *b = b_void;

    double a_s = a->plan->predicted.iteration_s, b_s = b->plan->predicted.iteration_s;
    int n_a = mist_alike_n_techniques(a->plan), n_b = mist_alike_n_techniques(b->plan);

    if (a_s != b_s)
        return MIST_COMPARE(a_s, b_s);
    return n_a != n_b ? MIST_COMPARE(n_a, n_b)
                      : MIST_COMPARE_BY(a, b, closed_s, i_looked);
}

/* Whether two plans differ in memory techniques, layers and schedules alone. */
static bool is_same_kind(const struct mist_plan *a, const struct mist_plan *b)
{
    if (a->n_micro_batches != b->n_micro_batches || a->n_stages != b->n_stages)
        return false;
    for (int32_t i = 0; i < a->n_stages; i++) {
        const struct mist_stage_plan *x = &a->stages[i], *y = &b->stages[i];
        if (x->dp != y->dp || x->tp != y->tp || x->cp != y->cp ||
            x->is_sequence_parallel != y->is_sequence_parallel)
            return false;
    }
    return true;
}

void mist_validate_put_first(struct mist_validated *plans, size_t i)
{
    const struct mist_validated first = plans[i];

    memmove(plans + 1, plans, i * sizeof *plans);
    plans[0] = first;
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
    for (size_t i = 1, n_kinds = 1; i < n; i++)
        if (!is_had(plans, i)) {
            mist_validate_put_first(plans + n_kinds, i - n_kinds);
            n_kinds++;
        }
}

void mist_validate_keep(struct mist_validate_result *result, size_t n, double slower_frac)
{
    size_t half = (n + 1) / 2, i;

    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
    if (result->n_plans <= n)
        return;
    i = mist_alike_simplest(result->plans, result->n_plans, slower_frac);
    if (i >= half)
        mist_validate_put_first(result->plans + half - 1, i - half + 1);
    mist_validate_vary(result->plans + half, result->n_plans - half);
    while (result->n_plans > n)
        free(result->plans[--result->n_plans].plan);
    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
}

/* Of plans that were dropped the first n stay plans, and the fastest by the closed form. */
static void thin_out_dropped(struct mist_validate_result *result, size_t n)
{
    struct mist_validated *last = &result->dropped[result->n_dropped - 1];
    struct mist_validated *fastest = &result->dropped[result->i_fastest_dropped];
    struct mist_validated *slower = last->closed_s < fastest->closed_s ? fastest : last;

    if (slower == fastest)
        result->i_fastest_dropped = result->n_dropped - 1;
    if ((size_t)(slower - result->dropped) >= n) {
        free(slower->plan);
        slower->plan = NULL;
    }
}

enum mist_status mist_validate_add(const struct mist_validate_config *config,
                                   struct mist_validate_result *result,
                                   struct mist_validated *plan, struct mist_err *err)
{
    bool holds = plan->holds;
    struct mist_validated **list = holds ? &result->plans : &result->dropped;
    size_t *n = holds ? &result->n_plans : &result->n_dropped;
    size_t *capacity = holds ? &result->plans_capacity : &result->dropped_capacity;
    struct mist_validated *grown = mist_grow(*list, capacity, *n + 1, sizeof **list);

    if (!grown)
        return mist_err_memory(err, NULL);
    plan->i_looked = result->n_looked++;
    *list = grown;
    grown[(*n)++] = *plan;
    plan->plan = NULL;
    if (!holds && *n > 1)
        thin_out_dropped(result, config->n_best);
    if (holds && *n >= 2 * N_KEPT * config->n_best)
        mist_validate_keep(result, N_KEPT * config->n_best, config->slower_frac);
    return MIST_OK;
}

/* A candidate of a search by its passes. */
struct ranked {
    double passes_s; /* INFINITY: not priced */
    double short_s;  /* by a short replay; INFINITY: none */
    double
        scheduled_s; /* by passes with the best schedule; INFINITY: no better than others */
    size_t i;        /* its place by the closed form */
};

MIST_COMPARATOR(compare_ranked, struct ranked, passes_s, i)

struct ranking {
    const struct mist_validate_config *config;
    const struct mist_search_result *of;
    struct ranked *ranked;
    double best_s; /* of the fastest so far */
    enum { BY_PASSES, BY_REPLAY, BY_SCHEDULE } how;
};

/* Whether a candidate may be better than the best so far, if a schedule leaves no gap. */
static bool is_hopeful(const struct mist_search_candidate *of, double best_s)
{
    double most_s = 0;

    for (int32_t i = 0; i < of->n_stages; i++)
        most_s = fmax(most_s, of->stages[i].t_s);
    return of->n_stages > 1 && of->n_micro_batches * most_s <= best_s;
}

static enum mist_status price_one(void *context, int64_t i, struct mist_err *err)
{
    const struct ranking *at = context;
    const struct mist_validate_config *config = at->config;
    struct ranked *one = &at->ranked[i];
    const struct mist_search_candidate *candidate = &at->of->candidates[one->i];
    struct mist_plan *plan = malloc(sizeof *plan); /* large */
    enum mist_status status = MIST_OK;

    if (!plan)
        return mist_err_memory(err, NULL);
    mist_validate_make_plan(config, candidate, plan);
    switch (at->how) {
    case BY_PASSES:
        status = mist_stage_price_plan(config->price, plan, &one->passes_s, err);
        break;
    case BY_REPLAY:
        status = mist_stage_price_replay(
            config->price, plan, mist_validate_hash(candidate), &one->short_s, err);
        break;
    case BY_SCHEDULE:
        one->scheduled_s = one->passes_s;
        if (is_hopeful(candidate, at->best_s))
            status = mist_validate_price_pipelines(config, plan, &one->scheduled_s, err);
        break;
    }
    free(plan);
    return status;
}

/* Sorts the candidates by their passes, of which the n best are priced, also with every
 * schedule, and if asked to replays those near the best shortly. out: room for all. */
static enum mist_status rank(const struct mist_validate_config *config,
                             const struct mist_search_result *of, bool replays,
                             double best_s, size_t n, struct mist_thread_pool *pool,
                             struct ranked *out, struct mist_err *err)
{
    struct ranking at = {.config = config, .of = of, .ranked = out, .how = BY_PASSES};
    size_t n_all = of->n_candidates, n_near = 0;

    if (n_all == 0)
        return MIST_OK;
    n = n < n_all ? n : n_all;
    for (size_t i = 0; i < n_all; i++)
        out[i] = (struct ranked){INFINITY, INFINITY, INFINITY, i};
    enum mist_status status = mist_thread_pool_for(pool, (int64_t)n, price_one, &at, err);
    qsort(out, n, sizeof *out, compare_ranked);
    while (n_near < n && out[n_near].passes_s <= (1 + NEAR_FRAC) * out[0].passes_s)
        n_near++;
    at.how = BY_REPLAY;
    if (status == MIST_OK && replays)
        status = mist_thread_pool_for(pool, (int64_t)n_near, price_one, &at, err);
    at.how = BY_SCHEDULE;
    at.best_s = fmin(best_s, out[0].passes_s);
    if (status == MIST_OK && mist_space_has(config->space, MIST_SPACE_SCHEDULE))
        status = mist_thread_pool_for(pool, (int64_t)n, price_one, &at, err);
    return status;
}

/* The best by short replays of n >= 1. */
static const struct ranked *find_shortest(const struct ranked *ranked, size_t n)
{
    const struct ranked *best = ranked;

    for (size_t r = 1; r < n; r++)
        best = ranked[r].short_s < best->short_s ? &ranked[r] : best;
    return best;
}

static bool is_chosen(const size_t *order, size_t n, size_t i)
{
    for (size_t k = 0; k < n; k++)
        if (order[k] == i)
            return true;
    return false;
}

/* As mist_validate_choose(), of ranked candidates in 1F1B; returns how many. */
static size_t choose(const struct mist_search_result *of, const struct ranked *ranked,
                     size_t n, size_t *order)
{
    size_t n_all = of->n_candidates, n_chosen = 0;

    n = n < n_all ? n : n_all;
    if (n > 0)
        order[n_chosen++] = find_shortest(ranked, n_all)->i;
    for (int pass = 0; pass < 3; pass++)
        for (size_t r = 0; r < n_all && n_chosen < (pass == 0 ? (n + 1) / 2 : n); r++) {
            size_t i = ranked[r].i;
            bool is_had = is_chosen(order, n_chosen, i);
            for (size_t k = 0; k < n_chosen && pass == 1; k++)
                is_had |= of->candidates[order[k]].i_case == of->candidates[i].i_case;
            if (!is_had)
                order[n_chosen++] = i;
        }
    return n_chosen;
}

MIST_COMPARATOR(compare_scheduled, struct ranked, scheduled_s, passes_s, i)

/* Adds the n best by schedules behind the n_chosen, unless they are there; returns how many
 * it adds. Sorts. */
static size_t choose_scheduled(struct ranked *ranked, size_t n_all, size_t n,
                               size_t *order, size_t n_chosen)
{
    size_t n_added = 0;

    qsort(ranked, n_all, sizeof *ranked, compare_scheduled);
    for (size_t r = 0; r < n && r < n_all && isfinite(ranked[r].scheduled_s); r++)
        if (!is_chosen(order, n_chosen, ranked[r].i))
            order[n_chosen + n_added++] = ranked[r].i;
    return n_added;
}

enum mist_status mist_validate_choose(const struct mist_validate_config *config,
                                      const struct mist_search_result *of,
                                      struct mist_thread_pool *pool, double best_s,
                                      size_t n_priced, size_t *n, size_t *n_scheduled,
                                      size_t *order, double *short_s,
                                      struct mist_err *err)
{
    struct ranked *ranked = malloc((of->n_candidates + 1) * sizeof *ranked);
    enum mist_status status =
        ranked ? rank(config, of, *n > 0, best_s, n_priced, pool, ranked, err)
               : mist_err_memory(err, NULL);
    size_t n_scheduled_wanted = *n_scheduled;

    *n_scheduled = 0;
    *n = status == MIST_OK ? choose(of, ranked, *n, order) : 0;
    if (*n > 0)
        *short_s = find_shortest(ranked, of->n_candidates)->short_s;
    if (status == MIST_OK)
        *n_scheduled =
            choose_scheduled(ranked, of->n_candidates, n_scheduled_wanted, order, *n);
    free(ranked);
    return status;
}
