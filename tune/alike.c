/* Which plans predictions can't tell apart. See alike.h. */
#include "tune/alike.h"

#include "sim/plan/mechanism.h"
#include "tune/plan_label.h"

#include <limits.h>
#include <math.h>

int mist_alike_n_techniques(const struct mist_plan *plan)
{
    char text[MIST_PLAN_LABEL_BYTES];
    int n = 1;

    for (const char *at = mist_plan_label(plan, text); *at; at++)
        n += *at == ' ';
    return n;
}

int mist_alike_n_eighths(const struct mist_plan *plan)
{
    bool is_in_eighths[MIST_N_OFFLOADS] = {false};
    int n = 0;

    for (int32_t i = 0; i < plan->n_stages; i++)
        for (int k = 0; k < MIST_N_OFFLOADS; k++)
            if (fmod(plan->stages[i].offload_frac[k], 0.25) != 0)
                is_in_eighths[k] = true;
    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        n += is_in_eighths[k];
    return n;
}

static double own_square(const struct mist_trace_set *traces,
                         const struct mist_plan *plan)
{
    double time_s = plan->predicted.iteration_s, half_s = plan->predicted.error_s / 2;
    double shared_frac =
        hypot(traces->cluster.drift_frac,
              mist_mechanism_doubt_frac(traces, mist_plan_mechanisms(plan)));
    double shared_s = shared_frac * time_s;

    return fmax(0, half_s * half_s - shared_s * shared_s);
}

double mist_alike_bar_s(const struct mist_trace_set *traces, const struct mist_plan *a,
                        const struct mist_plan *b)
{
    unsigned different = mist_plan_mechanisms(a) ^ mist_plan_mechanisms(b);
    double least_s = fmin(a->predicted.iteration_s, b->predicted.iteration_s);
    double doubt_s =
        different ? mist_mechanism_doubt_frac(traces, different) * least_s : 0;

    return 2 * sqrt(own_square(traces, a) + own_square(traces, b) + doubt_s * doubt_s);
}

static bool is_alike(const struct mist_trace_set *traces, double slower_frac,
                     const struct mist_plan *fastest, const struct mist_plan *plan)
{
    double fastest_s = fastest->predicted.iteration_s;
    double more_s = plan->predicted.iteration_s - fastest_s;

    return more_s <= slower_frac * fastest_s ||
           (traces && traces->n_checks > 0 &&
            more_s <= mist_alike_bar_s(traces, fastest, plan));
}

/* The one with the fewest techniques of the plans that are alike; *n_alike: how many are. */
static size_t find_fewest(const struct mist_trace_set *traces, double slower_frac,
                          const struct mist_validated *plans, size_t n, size_t *n_alike)
{
    int least = mist_alike_n_techniques(plans[0].plan);
    size_t i_best = 0;

    *n_alike = 1;
    for (size_t i = 1; i < n; i++) {
        const struct mist_plan *plan = plans[i].plan;
        if (!is_alike(traces, slower_frac, plans[0].plan, plan))
            continue;
        ++*n_alike;
        if (mist_alike_n_techniques(plan) < least) {
            least = mist_alike_n_techniques(plan);
            i_best = i;
        }
    }
    return i_best;
}

/* The place of the plan that is chosen; *n_alike as above. */
static size_t find_simplest(const struct mist_trace_set *traces, double slower_frac,
                            const struct mist_validated *plans, size_t n, size_t *n_alike)
{
    size_t i_best = find_fewest(traces, slower_frac, plans, n, n_alike);
    bool counts = slower_frac > 0 || (traces && traces->n_checks > 0);
    int most = counts ? mist_alike_n_techniques(plans[i_best].plan) : INT_MAX;
    int least = mist_alike_n_eighths(plans[i_best].plan);

    slower_frac = fmax(slower_frac, MIST_ALIKE_EIGHTHS_FRAC);
    for (size_t i = 0; i < n; i++) {
        const struct mist_plan *plan = plans[i].plan;
        if (mist_alike_n_techniques(plan) <= most && mist_alike_n_eighths(plan) < least &&
            is_alike(traces, slower_frac, plans[0].plan, plan)) {
            least = mist_alike_n_eighths(plan);
            i_best = i;
        }
    }
    return i_best;
}

size_t mist_alike_simplest(const struct mist_validated *plans, size_t n,
                           double slower_frac)
{
    size_t n_alike;

    return find_simplest(NULL, slower_frac, plans, n, &n_alike);
}

size_t mist_alike_prefer(const struct mist_trace_set *traces, double slower_frac,
                         struct mist_validated *plans, size_t n)
{
    size_t n_alike, i_best = find_simplest(traces, slower_frac, plans, n, &n_alike);

    mist_validate_put_first(plans, i_best);
    return n_alike;
}
