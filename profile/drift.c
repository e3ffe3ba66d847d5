/* Rounds, their levels and how these vary. See drift.h. */
#include "profile/drift.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>

void mist_drift_fini(struct mist_drift *drift)
{
    free(drift->runs);
    *drift = (struct mist_drift){0};
}

bool mist_drift_add(struct mist_drift *drift, int32_t key, double time_us)
{
    return MIST_APPEND(drift->runs, drift->capacity, drift->n_runs,
                       (struct mist_drift_run){time_us, drift->n_rounds - 1, key});
}

bool mist_drift_levels(const struct mist_drift *drift,
                       const struct mist_estimate *estimates, double *levels)
{
    double *expected_us = calloc((size_t)drift->n_rounds + 1, sizeof *expected_us);

    if (!expected_us)
        return false;
    for (int32_t i = 0; i < drift->n_rounds; i++)
        levels[i] = 0;
    for (size_t i = 0; i < drift->n_runs; i++) {
        const struct mist_drift_run *run = &drift->runs[i];
        const struct mist_estimate *estimate = &estimates[run->key];
        if (run->time_us < estimate->low || run->time_us > estimate->high)
            continue;
        levels[run->round] += run->time_us;
        expected_us[run->round] += estimate->mean;
    }
    for (int32_t i = 0; i < drift->n_rounds; i++)
        levels[i] = expected_us[i] > 0 ? levels[i] / expected_us[i] : 1;
    free(expected_us);
    return true;
}

double mist_drift_frac(double *levels, int32_t n_ranks, int32_t n_rounds)
{
    double within = 0, sum = 0, squares = 0;

    for (int32_t r = 0; r < n_ranks; r++) {
        struct mist_estimate rank =
            mist_estimate_make(levels + (size_t)r * (size_t)n_rounds, (size_t)n_rounds);
        double apart = rank.mean - 1; /* around 1, so that squares lose nothing */
        within += rank.deviation * rank.deviation;
        sum += apart;
        squares += apart * apart;
    }
    double between =
        n_ranks > 1 ? fmax(0, squares - sum * sum / n_ranks) / (n_ranks - 1) : 0;
    return sqrt(within / n_ranks + between);
}
