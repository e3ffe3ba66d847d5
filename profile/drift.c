/* Rounds, their levels and how these vary. See drift.h. */
#include "profile/drift.h"

#include "core/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void mist_drift_fini(struct mist_drift *drift)
{
    free(drift->total_us);
    free(drift->n_runs);
    *drift = (struct mist_drift){0};
}

bool mist_drift_begin_round(struct mist_drift *drift)
{
    size_t n_keys = (size_t)drift->n_keys, n = (size_t)drift->n_rounds;
    double *total_us =
        mist_grow(drift->total_us, &drift->total_capacity, n + 1, sizeof *total_us);

    if (!total_us)
        return false;
    drift->total_us = total_us;
    int64_t *n_runs =
        mist_grow(drift->n_runs, &drift->runs_capacity, (n + 1) * n_keys, sizeof *n_runs);
    if (!n_runs)
        return false;
    drift->n_runs = n_runs;
    total_us[n] = 0;
    memset(n_runs + n * n_keys, 0, n_keys * sizeof *n_runs);
    drift->n_rounds++;
    return true;
}

void mist_drift_add(struct mist_drift *drift, int32_t key, double time_us)
{
    size_t round = (size_t)drift->n_rounds - 1;

    drift->total_us[round] += time_us;
    drift->n_runs[round * (size_t)drift->n_keys + (size_t)key]++;
}

void mist_drift_levels(const struct mist_drift *drift,
                       const struct mist_estimate *estimates, double *levels)
{
    for (int32_t i = 0; i < drift->n_rounds; i++) {
        const int64_t *n_runs = drift->n_runs + (size_t)i * (size_t)drift->n_keys;
        double expected_us = 0;
        for (int32_t k = 0; k < drift->n_keys; k++)
            expected_us += (double)n_runs[k] * estimates[k].mean;
        levels[i] = expected_us > 0 ? drift->total_us[i] / expected_us : 1;
    }
}

/* Mean and variance of values[n]; the variance of one value is 0. */
static double variance(const double *values, int32_t n, double *mean)
{
    double sum = 0, squares = 0;

    for (int32_t i = 0; i < n; i++)
        sum += values[i];
    *mean = sum / n;
    for (int32_t i = 0; i < n; i++)
        squares += (values[i] - *mean) * (values[i] - *mean);
    return n > 1 ? squares / (n - 1) : 0;
}

double mist_drift_frac(const double *levels, int32_t n_ranks, int32_t n_rounds)
{
    double within = 0, sum = 0, squares = 0;

    for (int32_t r = 0; r < n_ranks; r++) {
        double mean;
        within += variance(levels + (size_t)r * (size_t)n_rounds, n_rounds, &mean);
        sum += mean - 1; /* around 1, so that squares lose nothing */
        squares += (mean - 1) * (mean - 1);
    }
    double between =
        n_ranks > 1 ? fmax(0, squares - sum * sum / n_ranks) / (n_ranks - 1) : 0;
    return sqrt(within / n_ranks + between);
}
