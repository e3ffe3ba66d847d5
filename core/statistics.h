/*
 * What a set of repeated timings says: the mean that a run pays, and how sure it is.
 *
 * The executor pays the mean of what happens, not the minimum and not the median: the sum
 * over the steps of an iteration is the sum of their means. So the estimate is the mean,
 * with what does not belong to the operator (an interrupt, another process on the core)
 * left out: values beyond the outer fences of Tukey 1977, 3 interquartile ranges below
 * the first or above the third quartile, and at least 5 % of the median away. How many
 * were left out is part of the estimate.
 */
#ifndef MIST_CORE_STATISTICS_H
#define MIST_CORE_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Timings of one thing, in the order they came or sorted. */
struct mist_samples {
    double *values; /* owned */
    size_t n, capacity;
};

bool mist_samples_add(struct mist_samples *samples, double value); /* false: no memory */
void mist_samples_fini(struct mist_samples *samples);

struct mist_estimate {
    double mean;            /* of what was kept */
    double median;          /* of all runs; pooled: the ranks' mean of it */
    double deviation;       /* standard deviation of a single run; 0 for one run */
    double half_width_frac; /* of the 95 % interval of the mean, over the mean; 1 when
                               there are fewer than two runs */
    double low, high;       /* the fences: runs from low to high were kept */
    int64_t n;              /* kept */
    int64_t n_outliers;     /* left out */
};

/* Estimate from n values (sorted by this call); all zero and half_width_frac 1 for
 * n 0. */
struct mist_estimate mist_estimate_make(double *values, size_t n);

/*
 * The mean of the middle three fifths of n values (sorted by this call); 0 for none. For what
 * is timed now and then: a disturbance that is rare and long counts for about the part of the
 * time that it takes, one that happens to be met for no more than any.
 */
double mist_middle_mean(double *values, size_t n);

/*
 * The mean of the half of n values (sorted by this call; of an odd number the larger half) that
 * lie closest together, of several such the lowest; 0 for none. Where the undisturbed ones are
 * half of all, and look more alike than any others, it is theirs (the "shorth" of Andrews et al.
 * 1972).
 */
double mist_shortest_half_mean(double *values, size_t n);

/* Ascending; none is NAN. */
void mist_sort_doubles(double *values, size_t n);

/* The value below which a part of n >= 1 sorted ones lies, straight between neighbours: 0
 * gives the first, 1 the last. */
double mist_quantile(const double *sorted, size_t n, double frac);

/*
 * One estimate from the same thing's estimates on n >= 1 ranks: every rank weighs the
 * same in the mean, the deviation is that of all runs together, the fences hold what any
 * rank kept. Parts without runs are ignored.
 */
struct mist_estimate mist_estimate_pool(const struct mist_estimate *parts, size_t n);

#endif
