/* Which candidates are looked at, and which plans are kept, in which order. See
 * validate.h. */
#include "core/memory.h"
#include "tune/alike.h"
#include "tune/validate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum mist_status mist_validate_add(struct mist_validate_result *result,
                                   struct mist_validated *plan, struct mist_err *err)
{
    bool holds = plan->holds;
    struct mist_validated **list = holds ? &result->plans : &result->dropped;
    size_t *n = holds ? &result->n_plans : &result->n_dropped;
    size_t *capacity = holds ? &result->plans_capacity : &result->dropped_capacity;
    struct mist_validated *grown = mist_grow(*list, capacity, *n + 1, sizeof **list);

    if (!grown)
        return mist_err_memory(err, NULL);
    plan->i_looked = result->n_plans + result->n_dropped;
    *list = grown;
    grown[(*n)++] = *plan;
    plan->plan = NULL;
    return MIST_OK;
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

void mist_validate_keep(struct mist_validate_result *result, size_t n, double slower_frac)
{
    size_t half = (n + 1) / 2, i;

    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
    if (result->n_plans <= n)
        return;
    i = mist_alike_simplest(result->plans, result->n_plans, slower_frac);
    if (i >= half) {
        const struct mist_validated simplest = result->plans[i];
        memmove(result->plans + half, result->plans + half - 1,
                (i - half + 1) * sizeof *result->plans);
        result->plans[half - 1] = simplest;
    }
    mist_validate_vary(result->plans + half, result->n_plans - half);
    while (result->n_plans > n)
        free(result->plans[--result->n_plans].plan);
    qsort(result->plans, result->n_plans, sizeof *result->plans, compare_plans);
}

/* A candidate of a search by its passes. */
struct ranked {
    double passes_s; /* INFINITY: not priced */
    size_t i;        /* its place by the closed form */
};

static int compare_ranked(const void *a_void, const void *b_void)
{
    const struct ranked *a = a_void, *b = b_void;

    if (a->passes_s != b->passes_s)
        return a->passes_s < b->passes_s ? -1 : 1;
    return (a->i > b->i) - (a->i < b->i);
}

/* Sorts the candidates by their passes, of which the n best are priced. out: room for all. */
static enum mist_status rank(const struct mist_validate_config *config,
                             const struct mist_search_result *of, size_t n,
                             struct ranked *out, struct mist_err *err)
{
    struct mist_plan *plan = malloc(sizeof *plan); /* large */
    enum mist_status status = MIST_OK;

    if (!plan)
        return mist_err_memory(err, NULL);
    for (size_t i = 0; i < of->n_candidates; i++)
        out[i] = (struct ranked){INFINITY, i};
    for (size_t i = 0; i < n && i < of->n_candidates && status == MIST_OK; i++) {
        mist_validate_make_plan(config, &of->candidates[i], plan);
        status = mist_stage_price_plan(config->price, plan, &out[i].passes_s, err);
    }
    free(plan);
    if (of->n_candidates > 0)
        qsort(out, of->n_candidates, sizeof *out, compare_ranked);
    return status;
}

/* As mist_validate_choose(), of candidates by their passes; returns how many. */
static size_t choose(const struct mist_search_result *of, const struct ranked *ranked,
                     size_t n, size_t *order)
{
    size_t n_all = of->n_candidates, n_chosen = 0;

    n = n < n_all ? n : n_all;
    for (int pass = 0; pass < 3; pass++)
        for (size_t r = 0; r < n_all && n_chosen < (pass == 0 ? (n + 1) / 2 : n); r++) {
            size_t i = ranked[r].i;
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

enum mist_status mist_validate_choose(const struct mist_validate_config *config,
                                      const struct mist_search_result *of,
                                      size_t n_priced, size_t *n, size_t *order,
                                      double *passes_s, struct mist_err *err)
{
    struct ranked *ranked = malloc((of->n_candidates + 1) * sizeof *ranked);
    enum mist_status status =
        ranked ? rank(config, of, n_priced, ranked, err) : mist_err_memory(err, NULL);

    *n = status == MIST_OK ? choose(of, ranked, *n, order) : 0;
    if (*n > 0)
        *passes_s = ranked[0].passes_s;
    free(ranked);
    return status;
}
