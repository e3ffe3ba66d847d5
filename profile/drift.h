/*
 * Drift: how much faster or slower the whole machine is at one time, or on one rank, than
 * on the average over a session.
 *
 * Rows of a trace set are known to 1 % or better because they are means of many runs. A
 * neighbour on the machine, a clock rate or a busy core changes all runs of some seconds
 * alike, which no number of them averages out; an iteration later meets another such
 * time. So every round of operators gets a level: the time of all of its runs, over the
 * time of the same runs at the rows' means. Rows weigh by their share of the time, and
 * what differs from round to round (which blocks are recomputed) cancels. The outliers
 * that the means leave out are left out here, too: they are short. So are rounds that met
 * a burst, far from all others (core/statistics.h): one of thirteen that takes three times
 * as long would make the deviation a half, and every bar as wide as its prediction, where
 * the median over iterations, which a run goes by, leaves such times out as well.
 *
 *   drift_frac^2 = mean over ranks of the variance over rounds
 *                + variance over ranks of the mean over rounds
 *
 * Probes (time_probe.h) have levels, too, which go into the same formula. Left out: what
 * changes more slowly than a session takes.
 */
#ifndef MIST_PROFILE_DRIFT_H
#define MIST_PROFILE_DRIFT_H

#include "core/statistics.h"

#include <stdbool.h>
#include <stdint.h>

/* What the rounds of one rank ran. Zero at first. */
struct mist_drift {
    int32_t n_rounds;            /* begun; counted by the caller */
    struct mist_drift_run *runs; /* owned; in the order they came */
    size_t n_runs, capacity;
};

struct mist_drift_run {
    double time_us;
    int32_t round, key;
};

void mist_drift_fini(struct mist_drift *drift);

/* One run of a key, in the round n_rounds - 1. False: no memory. */
bool mist_drift_add(struct mist_drift *drift, int32_t key, double time_us);

/* levels[n_rounds] against the estimates of all keys; 1 for a round without any run.
 * False: no memory. */
bool mist_drift_levels(const struct mist_drift *drift,
                       const struct mist_estimate *estimates, double *levels);

/* drift_frac of levels[n_ranks][n_rounds], both >= 1; sorts those of each rank. A variance
 * of one is 0. */
double mist_drift_frac(double *levels, int32_t n_ranks, int32_t n_rounds);

#endif
