/* The choice among plans that were run. See verify_choice.h. */
#include "tune/verify_choice.h"

#include <math.h>

/* Median and half the range of values[1 <= n <= MIST_VERIFY_ROUNDS]. */
static double find_middle(const double *values, int n, double *spread)
{
    double sorted[MIST_VERIFY_ROUNDS] = {0};

    for (int i = 0; i < n; i++) {
        int j = i;
        for (; j > 0 && sorted[j - 1] > values[i]; j--)
            sorted[j] = sorted[j - 1];
        sorted[j] = values[i];
    }
    *spread = (sorted[n - 1] - sorted[0]) / 2;
    return (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
}

/* By how much b is ahead of a, round by round. */
static double compare(const struct mist_verified *a, const struct mist_verified *b,
                      int n_rounds, double *spread)
{
    double differences[MIST_VERIFY_ROUNDS];

    for (int i = 0; i < n_rounds; i++)
        differences[i] = a->times_s[i] - b->times_s[i];
    return find_middle(differences, n_rounds, spread);
}

static bool has_run(const struct mist_verified *plan)
{
    return plan->failure[0] == '\0';
}

/* Brings the times of all plans to the mean of their levels, where all are known. */
static void bring_to_level(struct mist_verified *plans, size_t n, int n_rounds)
{
    double sum = 0;
    int n_levels = 0;

    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < n_rounds && has_run(&plans[i]); k++, n_levels++) {
            if (plans[i].levels[k] <= 0)
                return;
            sum += plans[i].levels[k];
        }
    for (size_t i = 0; i < n; i++)
        for (int k = 0; k < n_rounds && has_run(&plans[i]); k++) {
            double level = sum / n_levels;
            const struct mist_prediction *predicted = &plans[i].plan->predicted;
            plans[i].times_s[k] *= mist_prediction_longer(predicted, level) /
                                   mist_prediction_longer(predicted, plans[i].levels[k]);
            plans[i].levels[k] = level;
        }
}

/* Fills what was measured; false: all plans failed. */
static bool measure(struct mist_verified *plans, size_t n, size_t *first, int *n_rounds)
{
    bool has_any = false;

    *n_rounds = MIST_VERIFY_ROUNDS;
    for (size_t i = 0; i < n; i++)
        if (has_run(&plans[i])) {
            *first = has_any ? *first : i;
            has_any = true;
            if (plans[i].n_rounds < *n_rounds)
                *n_rounds = plans[i].n_rounds;
        }
    bring_to_level(plans, n, *n_rounds);
    for (size_t i = 0; i < n; i++) {
        struct mist_verified *plan = &plans[i];
        plan->measured_s = plan->spread_s = NAN;
        if (has_run(plan) && *n_rounds > 0)
            plan->measured_s = find_middle(plan->times_s, *n_rounds, &plan->spread_s);
    }
    return has_any;
}

bool mist_verify_choose(struct mist_verified *plans, size_t n,
                        struct mist_verify_choice *out)
{
    size_t first = 0, fastest, chosen;
    int n_rounds;
    double spread;

    if (!measure(plans, n, &first, &n_rounds))
        return false;
    fastest = first;
    for (size_t i = first; i < n && n_rounds > 0; i++)
        if (plans[i].measured_s < plans[fastest].measured_s)
            fastest = i;
    for (chosen = first; chosen != fastest; chosen++)
        if (has_run(&plans[chosen]) &&
            compare(&plans[chosen], &plans[fastest], n_rounds, &spread) <= spread)
            break;
    *out = (struct mist_verify_choice){.i_chosen = chosen,
                                       .i_fastest = fastest,
                                       .n_rounds = n_rounds,
                                       .i_other = chosen == fastest ? first : fastest,
                                       .ahead_s = NAN,
                                       .ahead_spread_s = NAN};
    if (out->i_other != chosen)
        out->ahead_s =
            compare(&plans[out->i_other], &plans[chosen], n_rounds, &out->ahead_spread_s);
    return true;
}
