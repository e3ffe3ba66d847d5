/* Means without far outliers. See statistics.h. */
#include "core/statistics.h"

#include "core/memory.h"
#include "core/order.h"

#include <math.h>
#include <stdlib.h>

static const double fence_ranges = 3;       /* interquartile ranges beyond a quartile */
static const double least_fence_frac = .05; /* of the median: clocks have a resolution */
static const double normal_95 = 1.96; /* half-width of a 95 % interval, deviations */

bool mist_samples_add(struct mist_samples *samples, double value)
{
    return MIST_APPEND(samples->values, samples->capacity, samples->n, value);
}

void mist_samples_fini(struct mist_samples *samples)
{
    free(samples->values);
    *samples = (struct mist_samples){0};
}

MIST_COMPARATOR_OF(compare, double, MIST_COMPARE(*a, *b))

void mist_sort_doubles(double *values, size_t n)
{
    if (n > 0)
        qsort(values, n, sizeof *values, compare);
}

double mist_quantile(const double *sorted, size_t n, double frac)
{
    double position = frac * (double)(n - 1);
    size_t below = (size_t)position;
    double weight = position - (double)below;

    if (below + 1 >= n)
        return sorted[n - 1];
    return sorted[below] + weight * (sorted[below + 1] - sorted[below]);
}

static double half_width(const struct mist_estimate *estimate)
{
    if (estimate->n < 2 || estimate->mean <= 0)
        return 1;
    return normal_95 * estimate->deviation / sqrt((double)estimate->n) / estimate->mean;
}

struct mist_estimate mist_estimate_make(double *values, size_t n)
{
    struct mist_estimate out = {.half_width_frac = 1};
    double sum = 0, squares = 0;

    if (n == 0)
        return out;
    mist_sort_doubles(values, n);
    double q1 = mist_quantile(values, n, 0.25), q3 = mist_quantile(values, n, 0.75);
    double reach = fence_ranges * (q3 - q1);
    out.median = mist_quantile(values, n, 0.5);
    double low = fmin(q1 - reach, out.median * (1 - least_fence_frac));
    double high = fmax(q3 + reach, out.median * (1 + least_fence_frac));
    out.low = low;
    out.high = high;
    for (size_t i = 0; i < n; i++)
        if (values[i] >= low && values[i] <= high) {
            sum += values[i];
            out.n++;
        }
    out.n_outliers = (int64_t)n - out.n;
    out.mean = sum / (double)out.n;
    for (size_t i = 0; i < n; i++)
        if (values[i] >= low && values[i] <= high)
            squares += (values[i] - out.mean) * (values[i] - out.mean);
    out.deviation = out.n > 1 ? sqrt(squares / (double)(out.n - 1)) : 0;
    out.half_width_frac = half_width(&out);
    return out;
}

double mist_middle_mean(double *values, size_t n)
{
    size_t n_off = n / 5; /* at each end */
    double sum = 0;

    mist_sort_doubles(values, n);
    for (size_t i = n_off; i < n - n_off; i++)
        sum += values[i];
    return n > 0 ? sum / (double)(n - 2 * n_off) : 0;
}

double mist_shortest_half_mean(double *values, size_t n)
{
    size_t n_half = (n + 1) / 2, first = 0;
    double sum = 0;

    mist_sort_doubles(values, n);
    for (size_t i = 1; i + n_half <= n; i++)
        if (values[i + n_half - 1] - values[i] <
            values[first + n_half - 1] - values[first])
            first = i;
    for (size_t i = first; i < first + n_half; i++)
        sum += values[i];
    return n > 0 ? sum / (double)n_half : 0;
}

struct mist_estimate mist_estimate_pool(const struct mist_estimate *parts, size_t n)
{
    struct mist_estimate out = {.half_width_frac = 1};
    double n_used = 0, variance = 0;

    for (size_t i = 0; i < n; i++) {
        if (parts[i].n == 0)
            continue;
        out.low = n_used > 0 ? fmin(out.low, parts[i].low) : parts[i].low;
        out.high = n_used > 0 ? fmax(out.high, parts[i].high) : parts[i].high;
        n_used++;
        out.mean += parts[i].mean;
        out.median += parts[i].median;
        out.n += parts[i].n;
        out.n_outliers += parts[i].n_outliers;
    }
    if (n_used == 0)
        return out;
    out.mean /= n_used;
    out.median /= n_used;
    for (size_t i = 0; i < n; i++) {
        double apart = parts[i].mean - out.mean;
        if (parts[i].n > 0)
            variance += parts[i].deviation * parts[i].deviation + apart * apart;
    }
    out.deviation = sqrt(variance / n_used);
    out.half_width_frac = half_width(&out);
    return out;
}
