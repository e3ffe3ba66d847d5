/*
 * Exact Pareto frontiers by sorting: in order of t a point is on the frontier when its d
 * is below every earlier one's. See pareto.h for what ties do.
 */
#include "tune/pareto.h"

#include "core/memory.h"
#include "core/order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK_POINTS = 512
}; /* merged at a time, so that the frontier turns away the rest */

MIST_COMPARATOR(compare_points, struct mist_pareto_point, t_s, d_s, payload, memory_bytes)

static size_t drop_nan(struct mist_pareto_point *points, size_t n)
{
    size_t n_kept = 0;
    for (size_t i = 0; i < n; i++)
        if (!isnan(points[i].t_s) && !isnan(points[i].d_s))
            points[n_kept++] = points[i];
    return n_kept;
}

/* True when a, whose t is not above b's, keeps b off a frontier. */
static bool point_covers(const struct mist_pareto_point *a,
                         const struct mist_pareto_point *b)
{
    if (a->t_s == b->t_s && a->d_s == b->d_s)
        return a->payload <= b->payload;
    return a->d_s <= b->d_s;
}

size_t mist_pareto_filter(struct mist_pareto_point *points, size_t n)
{
    size_t n_points = drop_nan(points, n), n_kept = 0;
    if (n_points == 0)
        return 0;
    qsort(points, n_points, sizeof *points, compare_points);
    for (size_t i = 0; i < n_points; i++) /* the last one kept has the least d so far */
        if (n_kept == 0 || !point_covers(&points[n_kept - 1], &points[i]))
            points[n_kept++] = points[i];
    return n_kept;
}

void mist_pareto_fini(struct mist_pareto_frontier *frontier)
{
    free(frontier->points);
    *frontier = (struct mist_pareto_frontier){0};
}

bool mist_pareto_covers(const struct mist_pareto_frontier *frontier,
                        const struct mist_pareto_point *point)
{
    const struct mist_pareto_point *points = frontier->points;
    MIST_BISECT(n_before, 0, frontier->n, i, points[i].t_s <= point->t_s);
    /* of these the last has the least d */
    return n_before > 0 && point_covers(&points[n_before - 1], point);
}

enum mist_status mist_pareto_merge(struct mist_pareto_frontier *frontier,
                                   const struct mist_pareto_point *block, size_t n_block,
                                   struct mist_err *err)
{
    for (size_t start = 0; start < n_block; start += BLOCK_POINTS) {
        size_t end = n_block - start < BLOCK_POINTS ? n_block : start + BLOCK_POINTS;
        size_t n_all = frontier->n;
        if (!MIST_RESERVE(frontier->points, frontier->capacity, n_all + (end - start)))
            return mist_err_set(err, MIST_ERR_MEMORY,
                                "no memory for a frontier of %zu points",
                                n_all + (end - start));
        for (size_t i = start; i < end; i++)
            if (!isnan(block[i].t_s) && !isnan(block[i].d_s) &&
                !mist_pareto_covers(frontier, &block[i]))
                frontier->points[n_all++] = block[i];
        if (n_all > frontier->n)
            frontier->n = mist_pareto_filter(frontier->points, n_all);
    }
    return MIST_OK;
}

/* --------------------------------------------------------------------------- sampling */

/* Index of the least weight_t t + weight_d d; of equal ones the first. */
static size_t find_least(const struct mist_pareto_point *points, size_t n,
                         double weight_t, double weight_d)
{
    size_t i_best = 0;
    double best = INFINITY;
    for (size_t i = 0; i < n; i++) {
        double value = weight_t * points[i].t_s + weight_d * points[i].d_s;
        if (value < best) {
            best = value;
            i_best = i;
        }
    }
    return i_best;
}

/*
 * The unkept point that best halves the widest gap between neighbours in keep (both ends
 * of the list count as gaps of no width), or n when every point is kept.
 */
static size_t find_gap_middle(const struct mist_pareto_point *points, const bool *keep,
                              size_t n, double weight_t)
{
    size_t i_middle = n, left = n;
    double widest = -1;
    for (size_t right = 0; right <= n; right++) {
        if (right < n && !keep[right])
            continue;
        size_t first = left == n ? 0 : left + 1;
        bool inside = left < n && right < n;
        double width = inside ? weight_t * fabs(points[right].t_s - points[left].t_s) +
                                    fabs(points[right].d_s - points[left].d_s)
                              : 0;
        double off_best = INFINITY;
        if (first < right && width > widest) {
            widest = width;
            i_middle = first;
            for (size_t i = first; inside && i < right; i++) {
                double part = weight_t * fabs(points[i].t_s - points[left].t_s) +
                              fabs(points[i].d_s - points[left].d_s);
                double off = fabs(part - width / 2);
                i_middle = off < off_best ? i : i_middle;
                off_best = off < off_best ? off : off_best;
            }
        }
        left = right;
    }
    return i_middle;
}

static void keep_point(bool *keep, size_t i, size_t *n_kept)
{
    *n_kept += !keep[i];
    keep[i] = true;
}

enum mist_status mist_pareto_sample(const struct mist_pareto_point *points, size_t n,
                                    size_t k, int64_t n_micro_batches,
                                    struct mist_pareto_point *out, size_t *n_out,
                                    struct mist_err *err)
{
    *n_out = 0;
    if (n <= k) {
        if (n > 0)
            memcpy(out, points, n * sizeof *out);
        *n_out = n;
        return MIST_OK;
    }
    if (k == 0)
        return MIST_OK;
    double weight_t = (double)(n_micro_batches - 1);
    if (k == 1) {
        out[0] = points[find_least(points, n, weight_t / 2, 0.5)];
        *n_out = 1;
        return MIST_OK;
    }
    bool *keep = calloc(n, sizeof *keep);
    if (!keep)
        return mist_err_set(err, MIST_ERR_MEMORY, "no memory to sample %zu points", n);
    size_t n_kept = 0;
    keep_point(keep, find_least(points, n, 1, 0), &n_kept);
    keep_point(keep, find_least(points, n, 0, 1), &n_kept);
    for (size_t j = 0; j < k && n_kept < k; j++) {
        double alpha = (double)j / (double)(k - 1);
        keep_point(keep, find_least(points, n, alpha * weight_t, 1 - alpha), &n_kept);
    }
    while (n_kept < k)
        keep_point(keep, find_gap_middle(points, keep, n, weight_t), &n_kept);
    for (size_t i = 0; i < n; i++)
        if (keep[i])
            out[(*n_out)++] = points[i];
    free(keep);
    return MIST_OK;
}
