/*
 * Pareto frontiers of stage configurations: what the search inside a stage keeps.
 *
 * A point is one configuration of a stage: t (time of a stable micro-batch) and d (extra
 * time of the first and last micro-batch); both are minimised. A point is dropped when another one is nowhere worse and somewhere better;
 * of points that are equal in both the one with the lowest payload
 * stays, so the result depends on the set of points alone, not on their order or on how
 * they were cut into blocks.
 *
 * Frontiers are exact. Thinning one out is a separate step (mist_pareto_sample).
 */
#ifndef MIST_TUNE_PARETO_H
#define MIST_TUNE_PARETO_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mist_pareto_point {
    double t_s;           /* stable micro-batch, seconds */
    double d_s;           /* extra time of first and last micro-batch, seconds */
    int64_t memory_bytes; /* carried along */
    int64_t payload;      /* the caller's name for the configuration */
};

struct mist_pareto_frontier {
    struct mist_pareto_point *points; /* sorted by t, d falling; owned */
    size_t n;
    size_t capacity;
};

/* A zeroed frontier is empty; fini frees it and leaves it empty. */
void mist_pareto_fini(struct mist_pareto_frontier *frontier);

/*
 * Filters points[0 .. n) in place to the non-dominated ones, sorted by t, and returns how
 * many they are. Points whose t or d is NaN are dropped. O(n log n).
 */
size_t mist_pareto_filter(struct mist_pareto_point *points, size_t n);

/*
 * Merges a block of points (any order, not necessarily a frontier) into the frontier.
 *
 * block   borrowed, unchanged; may be NULL when n_block is 0. Points with NaN are
 *         dropped.
 *
 * Dominated points are turned away by a binary search each, so blocks that bring little
 * cost little. Returns MIST_OK or MIST_ERR_MEMORY; the frontier is then one of the points
 * merged so far.
 */
enum mist_status mist_pareto_merge(struct mist_pareto_frontier *frontier,
                                   const struct mist_pareto_point *block, size_t n_block,
                                   struct mist_err *err) MIST_MUST_CHECK;

/*
 * True when the frontier would turn the point away: a point on it is at least as good in
 * both t and d, and is better in one or has a payload that is not higher. With a lower
 * bound of t and d over a block and payload INT64_MAX: true means that the whole block
 * can be skipped.
 */
bool mist_pareto_covers(const struct mist_pareto_frontier *frontier,
                        const struct mist_pareto_point *point);

/*
 * Thins a frontier out to at most k points, sorted as they came.
 *
 * points            borrowed, [n], a frontier (sorted, no point dominated), all finite.
 * n_micro_batches   G >= 1.
 * out               [min(n, k)], must not overlap points; *n_out = min(n, k).
 *
 * Always kept, for k >= 2: the point of least t and the point of least d. Then, in this
 * order until there are k: the minima of alpha (G - 1) t + (1 - alpha) d for alpha =
 * j / (k - 1) (equal values: the earlier point), and, as many alphas share a minimum and
 * points above the convex hull are nobody's minimum, the points that best halve the
 * widest gap left, width being (G - 1) |delta t| + |delta d|. k = 1 keeps the minimum for
 * alpha = 1/2; k = 0 nothing.
 *
 * Returns MIST_OK or MIST_ERR_MEMORY. O(k n).
 */
enum mist_status mist_pareto_sample(const struct mist_pareto_point *points, size_t n,
                                    size_t k, int64_t n_micro_batches,
                                    struct mist_pareto_point *out, size_t *n_out,
                                    struct mist_err *err) MIST_MUST_CHECK;

#endif
