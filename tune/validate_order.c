/* In which order plans are kept, and which. See validate.h. */
#include "tune/alike.h"
#include "tune/validate.h"

#include <stdlib.h>
#include <string.h>

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
