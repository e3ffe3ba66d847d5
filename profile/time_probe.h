/*
 * Probes all over a session: the level of the machine while it is measured.
 *
 * A few probes (exec/runtime/probe.h) run before, between and after the turns of a session and
 * between rounds of operators. What all of them say is what later runs compare their own probes
 * with. How they vary is how the
 * machine's level changes over a session. Each time goes to the journal.
 */
#ifndef MIST_PROFILE_TIME_PROBE_H
#define MIST_PROFILE_TIME_PROBE_H

#include "exec/runtime/probe.h"
#include "profile/workbench.h"

/* Probes of a session; zero at first, and then no probe ever runs. */
struct mist_time_probe {
    struct mist_probe *probe;     /* owned */
    double duration_s;            /* of probes at one time */
    struct mist_samples times_us; /* this rank's, all */
    struct mist_samples means_us; /* the same, of each time that it was probed */
};

/*
 * Opens probes for bench, whose bench->probes they become, duration_s (>= 0) at a time. All
 * ranks must call it; out is to be closed whatever the result. MIST_OK or an error of
 * mist_probe_open().
 */
MIST_MUST_CHECK enum mist_status mist_time_probe_open(struct mist_workbench *bench,
                                                      const struct mist_probe_work *work,
                                                      double duration_s,
                                                      struct mist_time_probe *out,
                                                      struct mist_err *err);
void mist_time_probe_close(struct mist_workbench *bench, struct mist_time_probe *probes);

/* Probes now, or takes what the journal has of an earlier session. All ranks must call
 * it. MIST_OK, MIST_ERR_MEMORY or an error of probes or journal. */
MIST_MUST_CHECK enum mist_status mist_time_probe(struct mist_workbench *bench,
                                                 struct mist_err *err);

/*
 * probe_us: what a probe takes while nothing else runs, as the rows of operators do, which leave
 * out what is unlike the rest: the mean over ranks of the mean of each one's shortest half
 * (statistics.h). drift_frac: how means of times and ranks differ (drift.h). The same everywhere,
 * 0 where nothing was probed. All ranks must call it. MIST_OK, MIST_ERR_MEMORY or MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_time_probe_find(struct mist_workbench *bench,
                                                      double *probe_us,
                                                      double *drift_frac,
                                                      struct mist_err *err);

#endif
