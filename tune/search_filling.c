/* Prices blocks of configurations, merges them into frontiers. See search_filling.h. */
#include "tune/search_filling.h"

#include <math.h>

/* The rows from the first one on. */
static struct mist_search_columns from_row(struct mist_search_columns columns,
                                           size_t first)
{
    columns.n -= first;
    columns.capacity -= first;
    for (int i = 0; i < MIST_SEARCH_N_COLUMNS; i++)
        columns.all[i] += first;
    return columns;
}

enum mist_status mist_search_price_columns(struct mist_search_filling *at,
                                           struct mist_search_columns *columns,
                                           size_t first)
{
    struct mist_search_columns block = from_row(*columns, first);

    at->work->n_priced += (int64_t)block.n;
    if (block.n == 0)
        return MIST_OK;
    return mist_search_price_kind(at->config, &at->work->kind, &block, at->err);
}

bool mist_search_is_price(double t_s, double d_s, double peak_bytes)
{
    return isfinite(t_s) && isfinite(d_s) && t_s >= 0 && peak_bytes >= 0 &&
           peak_bytes < 0x1p62;
}

bool mist_search_is_priced(const struct mist_search_columns *from, size_t i)
{
    return mist_search_is_price(from->t_s[i], from->d_s[i], from->peak_bytes[i]) &&
           from->host_bytes[i] >= 0 && from->host_bytes[i] < 0x1p62;
}

/* Of a limit: where the least is looked for, what is above that so far is not. */
static int64_t sink(const struct mist_search_work *work, enum mist_search_memory memory,
                    int32_t n_layers, int64_t limit_bytes)
{
    if (work->finds_least != memory)
        return limit_bytes;
    int64_t least_bytes = work->least_bytes[n_layers];
    return least_bytes <= work->enough_bytes ? -1
           : least_bytes <= limit_bytes      ? least_bytes - 1
                                             : limit_bytes;
}

int64_t mist_search_device_limit(const struct mist_search_filling *at, int32_t n_layers)
{
    return sink(at->work, MIST_SEARCH_DEVICE_MEMORY, n_layers, at->work->limit_bytes);
}

int64_t mist_search_host_limit(const struct mist_search_filling *at, int32_t n_layers)
{
    int64_t n = mist_space_n_devices(&at->work->kind.shape);
    int64_t limit_bytes =
        at->config->node_host_bytes == 0
            ? at->config->host_limit_bytes
            : at->config->node_host_bytes /
                  (n < at->space->devices_per_node ? n : at->space->devices_per_node);

    return sink(at->work, MIST_SEARCH_HOST_MEMORY, n_layers, limit_bytes);
}

bool mist_search_is_held(const struct mist_search_filling *at,
                         const struct mist_search_columns *from, size_t i)
{
    return ceil(from->host_bytes[i]) <=
           (double)mist_search_host_limit(at, (int32_t)from->n_layers[i]);
}

/* Whether the device holds what a priced row takes of it. */
static bool is_within(const struct mist_search_filling *at,
                      const struct mist_search_columns *from, size_t i)
{
    return ceil(from->peak_bytes[i]) <=
           (double)mist_search_device_limit(at, (int32_t)from->n_layers[i]);
}

bool mist_search_fits(const struct mist_search_filling *at,
                      const struct mist_search_columns *from, size_t i)
{
    return is_within(at, from, i) && mist_search_is_held(at, from, i);
}

bool mist_search_is_fast(const struct mist_search_work *work, double t_s, double d_s)
{
    return t_s + d_s / work->kind.n_micro_batches <= work->most_t_s;
}

bool mist_search_is_open(const struct mist_search_filling *at, size_t i)
{
    if (!mist_search_is_priced(&at->base, i))
        return false;
    if (at->work->finds_least)
        return true;
    if (mist_search_fits(at, &at->base, i))
        return false;
    struct mist_pareto_point point = mist_search_make_point(&at->base, i);
    point.payload = INT64_MAX;
    return mist_search_is_fast(at->work, point.t_s, point.d_s) &&
           !mist_pareto_covers(&at->frontiers[(int32_t)at->base.n_layers[i]], &point);
}

bool mist_search_offloads(const struct mist_search_filling *at,
                          const struct mist_search_knobs *knobs)
{
    bool is_more = false;

    for (int k = 0; k < MIST_N_OFFLOADS; k++)
        is_more = is_more || knobs->offload[k] > at->ratios[k].min;
    return is_more;
}

struct mist_pareto_point mist_search_make_point(const struct mist_search_columns *from,
                                                size_t i)
{
    struct mist_search_knobs knobs = mist_search_get_row(from, i);

    return (struct mist_pareto_point){
        .t_s = from->t_s[i],
        .d_s = from->d_s[i],
        .memory_bytes = (int64_t)ceil(from->peak_bytes[i]),
        .payload = mist_search_pack_knobs(&knobs),
    };
}

/* Takes the priced rows first .. end, all of one number of layers, into its least memory. */
static void merge_least(const struct mist_search_filling *at,
                        const struct mist_search_columns *from, size_t first, size_t end)
{
    struct mist_search_work *work = at->work;
    const double *bytes = work->finds_least == MIST_SEARCH_HOST_MEMORY ? from->host_bytes
                                                                       : from->peak_bytes;

    for (size_t i = first; i < end; i++) {
        if (!mist_search_is_priced(from, i))
            continue;
        work->has_prices = true;
        if (mist_search_fits(at, from, i))
            work->least_bytes[(int32_t)from->n_layers[i]] = (int64_t)ceil(bytes[i]);
    }
}

/* Takes the priced rows first .. end, all of one number of layers, into its frontier. */
static enum mist_status merge_run(struct mist_search_filling *at,
                                  const struct mist_search_columns *from, size_t first,
                                  size_t end)
{
    struct mist_search_work *work = at->work;
    int32_t n_layers = (int32_t)from->n_layers[first];
    enum mist_status status = MIST_OK;
    size_t n = 0;

    for (size_t i = first; i < end && status == MIST_OK; i++) {
        if (!mist_search_is_priced(from, i) || !mist_search_fits(at, from, i))
            continue;
        work->n_fitting++;
        if (mist_search_is_fast(work, from->t_s[i], from->d_s[i]))
            at->points[n++] = mist_search_make_point(from, i);
        if (n == MIST_SEARCH_BLOCK || i + 1 == end) {
            status = mist_pareto_merge(&at->frontiers[n_layers], at->points, n, at->err);
            n = 0;
        }
    }
    return n == 0 || status != MIST_OK
               ? status
               : mist_pareto_merge(&at->frontiers[n_layers], at->points, n, at->err);
}

enum mist_status mist_search_merge_columns(struct mist_search_filling *at,
                                           const struct mist_search_columns *from,
                                           size_t first)
{
    enum mist_status status = MIST_OK;

    for (size_t end; first < from->n && status == MIST_OK; first = end) {
        for (end = first + 1;
             end < from->n && from->n_layers[end] == from->n_layers[first];)
            end++;
        if (at->work->finds_least)
            merge_least(at, from, first, end);
        else
            status = merge_run(at, from, first, end);
    }
    return status;
}
