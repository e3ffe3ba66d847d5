/*
 * A profiling session: everything of a grid is timed on all ranks and becomes a trace
 * set. What has been measured goes to a journal, from which a stopped session goes on.
 */
#ifndef MIST_PROFILE_PROFILE_H
#define MIST_PROFILE_PROFILE_H

#include "core/message.h"
#include "core/progress.h"
#include "exec/runtime/probe.h"
#include "profile/grid.h"
#include "profile/machine.h"
#include "profile/time_host.h"
#include "profile/time_interference.h"
#include "profile/time_ops.h"

/* What a session will do, known before it begins. */
struct mist_profile_plan {
    int32_t n_copies;     /* blocks of the stage */
    int64_t memory_bytes; /* of each rank */
    int32_t n_mixtures;
    double ops_s, links_s, interference_s; /* of time that each part may take */
    double checks_s;              /* the same of short real plans (checks.h); 0: none */
    int64_t limit_bytes;          /* of a rank's device memory that arenas may take */
    struct mist_probe_work probe; /* what one probe does */
    double probe_s;               /* of probes at one time */
    double expected_s;            /* of all, with what comes before and after */
};

/*
 * flop_per_s: about what a rank reaches (mist_time_host_flop_per_s). link_bytes_per_s:
 * between nodes (mist_time_links_try); 0: one node, or not known. MIST_OK or
 * MIST_ERR_INPUT: the model is too large for this machine.
 */
MIST_MUST_CHECK enum mist_status
mist_profile_plan(const struct mist_grid *grid, const struct mist_machine *machine,
                  double flop_per_s, double link_bytes_per_s,
                  struct mist_profile_plan *out, struct mist_err *err);

/* How the session went, beside the trace set. */
struct mist_profile_report {
    struct mist_time_ops_report ops;
    int32_t n_rounds_interference;
    int64_t n_runs, n_outliers; /* of operators and messages */
    int32_t n_wide;             /* operator rows not known to 1 % */
    double widest_frac;         /* half-width of the 95 % interval of the worst of them */
    int32_t n_repeated;         /* runs whose recording was lost */
    double drift_frac; /* how rounds, probes and ranks differ as a whole (drift.h): the
                          larger of what rounds of operators and what probes say */
    double probe_us;   /* of a probe; mean of all times it was probed, and ranks */
    int32_t n_probes;  /* such times */
    struct mist_host_costs host;
    double time_s;
};

/* What a session works with; all borrowed. */
struct mist_profile_config {
    const struct mist_grid *grid;
    const struct mist_machine *machine;
    const struct mist_profile_plan *plan; /* rank 0's counts */
    struct mist_comm *comm;
    struct mist_journal *journal;         /* NULL: none */
    const struct mist_messages *messages; /* rank 0 tells people; NULL: nothing */
    struct mist_progress *progress;       /* NULL: none, as on ranks but 0 */
    struct mist_op_table *ops; /* initialised; gets, on rank 0, the operators of all ranks
                                  with their kernels, but not those of the rounds of an
                                  earlier session; NULL: not wanted */
};

/* Times everything, and checks it by real plans. All ranks call it; traces (initialised
 * by the caller) is filled on rank 0 only, report everywhere. */
MIST_MUST_CHECK enum mist_status
mist_profile_run(const struct mist_profile_config *config, struct mist_trace_set *traces,
                 struct mist_profile_report *report, struct mist_err *err);

#endif
