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
    mist_samples_fini(&probes->means_us);
    *probes = (struct mist_time_probe){0};
}

static enum mist_status run(struct mist_workbench *bench, double *mean_us,
                            struct mist_err *err)
{
    struct mist_time_probe *at = bench->probes;
    struct mist_probe_times times;
    enum mist_status status = mist_probe_run(at->probe, at->duration_s, &times, err);

    mist_comm_set_pause(bench->comm, mist_device_pause, bench->device);
    if (status != MIST_OK)
        return status;
    *mean_us = times.own_us.mean;
    return mist_journal_add(bench->journal, MIST_JOURNAL_PROBES, mean_us, sizeof *mean_us,
                            err);
}

enum mist_status mist_time_probe(struct mist_workbench *bench, struct mist_err *err)
{
    double mean_us = 0;
    int64_t n_bytes;
    enum mist_status status = MIST_OK;

    if (!bench->probes)
        return MIST_OK;
    const char *bytes = mist_journal_take(bench->journal, MIST_JOURNAL_PROBES, &n_bytes);
    if (bytes && n_bytes == (int64_t)sizeof mean_us)
        memcpy(&mean_us, bytes, sizeof mean_us);
    else
        status = run(bench, &mean_us, err);
    if (status == MIST_OK && !mist_samples_add(&bench->probes->means_us, mean_us))
        status = mist_err_set(err, MIST_ERR_MEMORY, "out of memory for timings");
    mist_workbench_show_progress(bench);
    return status;
}

/* Of means_us[n_ranks][n_times]; makes levels of them. A few times at which the machine
 * did something else altogether are no level: they are left out of the mean. */
static enum mist_status judge(double *means_us, int32_t n_ranks, int32_t n_times,
                              double *probe_us, double *drift_frac, struct mist_err *err)
{
    size_t n = (size_t)n_ranks * (size_t)n_times;
    double *sorted = malloc(n * sizeof *sorted);

    if (!sorted)
        return mist_err_memory(err, NULL);
    memcpy(sorted, means_us, n * sizeof *sorted);
    *probe_us = mist_estimate_make(sorted, n).mean;
    free(sorted);
    for (size_t i = 0; i < n; i++)
        means_us[i] /= *probe_us;
    *drift_frac = mist_drift_frac(means_us, n_ranks, n_times);
    return MIST_OK;
}

enum mist_status mist_time_probe_find(struct mist_workbench *bench, double *probe_us,
                                      double *drift_frac, struct mist_err *err)
{
    const struct mist_time_probe *at = bench->probes;
    double found[2] = {0, 0};

    *probe_us = *drift_frac = 0;
    if (!at || at->means_us.n == 0)
        return MIST_OK;
    char *all;
    enum mist_status status = mist_comm_gather_bytes(
        bench->comm, at->means_us.values,
        (int64_t)(at->means_us.n * sizeof *at->means_us.values), &all, NULL, err);
    if (status == MIST_OK && all)
        status = judge((double *)(void *)all, bench->n_ranks, (int32_t)at->means_us.n,
                       &found[0], &found[1], err);
    if (status == MIST_OK)
        status = mist_comm_broadcast_bytes(bench->comm, 0, found, sizeof found, err);
    *probe_us = found[0];
    *drift_frac = found[1];
    free(all);
    return status;
}
