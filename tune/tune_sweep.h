/*
 * --sweep: the best plan for each value of an option, or each combination of the values of
 * several: how many devices to rent, of which kind, at what batch. Every point is searched
 * as a run of its own would be, with these options in place of what the command line has.
 */
#ifndef MIST_TUNE_TUNE_SWEEP_H
#define MIST_TUNE_TUNE_SWEEP_H

#include "core/emit.h"
#include "core/sweep.h"
#include "sim/explain/explain.h"
#include "tune/bill.h"
#include "tune/plan_label.h"
#include "tune/tune_session.h"

struct mist_tune_sweep_row {
    bool has_plan; /* else only n_devices and why are set */
    int32_t n_devices;
    double iteration_s, error_s; /* of the best plan, by replay */
    struct mist_speed speed;
    int64_t peak_bytes;
    char label[MIST_PLAN_LABEL_BYTES];
    struct mist_bill bill;
    char why[512]; /* there is no plan */
};

struct mist_tune_sweep {
    struct mist_sweep of;
    struct mist_tune_options *options; /* borrowed; set to the point that is looked at */
    const char *cluster;               /* of the options, for --sweep device */
    char device_cluster[1024];         /* with another device */
    struct mist_tune_sweep_row *rows;  /* owned; [n_rows], by point */
    int64_t n_rows;                    /* all points unless stopped */
    int64_t i_best;                    /* by --objective within --budget; -1: none */
    struct mist_plan *best;            /* owned; its plan; NULL: none */
    bool was_stopped;                  /* by a signal; the last row is the best so far */
};

/*
 * Reads --sweep. sweep is freed by mist_tune_sweep_fini, also after a failure.
 * MIST_ERR_USAGE: unknown names, or options that contradict it; positionals: which options
 * were given.
 */
MIST_MUST_CHECK enum mist_status
mist_tune_sweep_init(struct mist_tune_sweep *sweep, struct mist_tune_options *options,
                     const struct mist_positionals *positionals, struct mist_err *err);
void mist_tune_sweep_fini(struct mist_tune_sweep *sweep);

/* Opens all points, so that what is wrong with one is known before the first search, and
 * says what there is to say of them, once. Errors of mist_tune_session_open(). */
MIST_MUST_CHECK enum mist_status
mist_tune_sweep_check(struct mist_tune_sweep *sweep, const struct mist_messages *messages,
                      struct mist_err *err);

/* Searches all points. No plan at some of them is no error. */
MIST_MUST_CHECK enum mist_status mist_tune_sweep_run(struct mist_tune_sweep *sweep,
                                                     const struct mist_messages *messages,
                                                     struct mist_err *err);

/* Prints the table. */
MIST_MUST_CHECK enum mist_status
mist_tune_sweep_print(const struct mist_tune_sweep *sweep, enum mist_emit_kind kind,
                      FILE *stream, struct mist_err *err);

/* MIST_OK, or MIST_ERR_NO_PLAN: no point has a plan, or none is within --budget. */
MIST_MUST_CHECK enum mist_status
mist_tune_sweep_judge(const struct mist_tune_sweep *sweep, struct mist_err *err);

#endif
