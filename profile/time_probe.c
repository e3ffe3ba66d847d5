/* Probes all over a session. See time_probe.h. */
#include "profile/time_probe.h"

#include "profile/drift.h"

#include <stdlib.h>
#include <string.h>

static const double deadline_s = 120; /* of waits for other ranks: as comm.h's */

enum mist_status mist_time_probe_open(struct mist_workbench *bench,
                                      const struct mist_probe_work *work,
                                      double duration_s, struct mist_time_probe *out,
                                      struct mist_err *err)
{
    const struct mist_grid_config *at = &bench->grid->config;
    const struct mist_probe_config config = {.backend = bench->place.backend,
                                             .i_device = bench->place.i_device,
                                             .has_own_device = bench->place.is_alone,
                                             .dtype = at->dtype,
                                             .n_threads = at->n_threads,
                                             .deadline_s = deadline_s,
                                             .work = *work};

    *out = (struct mist_time_probe){.duration_s = duration_s};
    bench->probes = out;
    return mist_probe_open(bench->comm, &config, &out->probe, err);
}

void mist_time_probe_close(struct mist_workbench *bench, struct mist_time_probe *probes)
{
    bench->probes = NULL;
    mist_probe_close(probes->probe);
    mist_samples_fini(&probes->times_us);
    mist_samples_fini(&probes->means_us);
    *probes = (struct mist_time_probe){0};
}

/* Probes now: what they took is added to the times and to the journal. */
static enum mist_status run(struct mist_workbench *bench, struct mist_err *err)
{
    struct mist_time_probe *at = bench->probes;
    size_t before = at->times_us.n;
    enum mist_status status =
        mist_probe_run(at->probe, at->duration_s, &at->times_us, err);

    mist_comm_set_pause(bench->comm, mist_device_pause, bench->device);
    if (status != MIST_OK)
        return status;
    return mist_journal_add(
        bench->journal, MIST_JOURNAL_PROBES, at->times_us.values + before,
        (int64_t)((at->times_us.n - before) * sizeof *at->times_us.values), err);
}

static bool take_over(struct mist_samples *times_us, const char *bytes, int64_t n_bytes)
{
    double time_us;

    for (; n_bytes > 0; n_bytes -= (int64_t)sizeof time_us, bytes += sizeof time_us) {
        memcpy(&time_us, bytes, sizeof time_us);
        if (!mist_samples_add(times_us, time_us))
            return false;
    }
    return true;
}

enum mist_status mist_time_probe(struct mist_workbench *bench, struct mist_err *err)
{
    struct mist_time_probe *at = bench->probes;
    int64_t n_bytes;
    bool has_room = true;
    enum mist_status status = MIST_OK;

    if (!at)
        return MIST_OK;
    size_t before = at->times_us.n;
    const char *bytes = mist_journal_take(bench->journal, MIST_JOURNAL_PROBES, &n_bytes);
    if (bytes && n_bytes > 0 && n_bytes % (int64_t)sizeof(double) == 0)
        has_room = take_over(&at->times_us, bytes, n_bytes);
    else
        status = run(bench, err);
    if (status == MIST_OK && has_room) {
        struct mist_estimate now =
            mist_estimate_make(at->times_us.values + before, at->times_us.n - before);
        has_room = mist_samples_add(&at->means_us, now.mean);
    }
    if (status == MIST_OK && !has_room)
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
    mist_workbench_show_progress(bench);
    return status;
}

/* Of means_us[n_ranks][n_times], which become levels: times over their mean, in which a few
 * at which the machine did something else altogether do not count. */
static enum mist_status find_drift(double *means_us, int32_t n_ranks, int32_t n_times,
                                   double *drift_frac, struct mist_err *err)
{
    size_t n = (size_t)n_ranks * (size_t)n_times;
    double *sorted = malloc(n * sizeof *sorted);

    if (!sorted)
        return mist_err_memory(err, NULL);
    memcpy(sorted, means_us, n * sizeof *sorted);
    double mean_us = mist_estimate_make(sorted, n).mean;
    free(sorted);
    for (size_t i = 0; i < n; i++)
        means_us[i] /= mean_us;
    *drift_frac = mist_drift_frac(means_us, n_ranks, n_times);
    return MIST_OK;
}

enum mist_status mist_time_probe_find(struct mist_workbench *bench, double *probe_us,
                                      double *drift_frac, struct mist_err *err)
{
    struct mist_time_probe *at = bench->probes;
    char *all = NULL;

    *probe_us = *drift_frac = 0;
    if (!at || at->means_us.n == 0)
        return MIST_OK;
    double sum_us = mist_shortest_half_mean(at->times_us.values, at->times_us.n);
    enum mist_status status =
        mist_comm_all_reduce_f64(bench->comm, MIST_COMM_SUM, &sum_us, 1, err);
    if (status == MIST_OK)
        status = mist_comm_gather_bytes(
            bench->comm, at->means_us.values,
            (int64_t)(at->means_us.n * sizeof *at->means_us.values), &all, NULL, err);
    if (status == MIST_OK && all)
        status = find_drift((double *)(void *)all, bench->n_ranks,
                            (int32_t)at->means_us.n, drift_frac, err);
    if (status == MIST_OK)
        status = mist_comm_broadcast_bytes(bench->comm, 0, drift_frac, sizeof *drift_frac,
                                           err);
    *probe_us = sum_us / bench->n_ranks;
    free(all);
    return status;
}
