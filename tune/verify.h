/*
 * The best plans, run for a few iterations by mist-exec: predicted beside measured, and
 * the choice by measurement (verify_choice.h).
 *
 * The plans are written into a folder of their own, with tokens drawn at random, which
 * fit any vocabulary, and every run is
 *
 *     LAUNCHER mist-exec FOLDER/plan_001.json -q --json --iterations N ...
 *
 * with the mist-exec beside the running program. The launcher is Open MPI's mpirun for
 * plans of several ranks, none for one rank, or what the user says. mist-exec's median
 * over the iterations of a run is the time of the plan in that round, at the level that its
 * probes tell.
 *
 * A run ends at the latest after limit_s, or 60 s and 20 times what its iterations are
 * predicted to take. A plan whose run fails is left out from there on. A signal ends the
 * run under way and the verification; the rounds that are whole count.
 */
#ifndef MIST_TUNE_VERIFY_H
#define MIST_TUNE_VERIFY_H

#include "core/message.h"
#include "core/progress.h"
#include "traces/trace_set.h"
#include "tune/validate.h"
#include "tune/verify_choice.h"

#include <stdatomic.h>

enum { MIST_VERIFY_MAX_PLANS = 64 };

struct mist_verify_config {
    size_t n_plans;       /* 1 .. MIST_VERIFY_MAX_PLANS, of those that there are */
    int64_t n_iterations; /* of a run */
    double limit_s;       /* of a run; 0: see above */
    const char *launch;   /* the launcher, as mist_command_add_launcher() takes it; NULL:
                             plans run on this machine */
    uint64_t seed;        /* of the tokens */
    const struct mist_cluster *cluster; /* what the plans are for */
    const atomic_int *stop;             /* ends it when not 0 */
    const struct mist_messages *messages;
    struct mist_progress *progress; /* counts runs */
};

struct mist_verify_result {
    struct mist_verified plans[MIST_VERIFY_MAX_PLANS];
    size_t n_plans;
    struct mist_verify_choice choice;
    bool was_stopped;
};

/*
 * Whether plans of n_ranks ranks can be run, as far as that is known before there are
 * any. MIST_ERR_USAGE: the cluster is not this machine and no launcher was given, or
 * there is no such launcher; MIST_ERR_RUN: no mpirun; MIST_ERR_IO: no mist-exec, or no
 * place for the folder; MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status
mist_verify_check(const struct mist_verify_config *config, int32_t n_ranks,
                  struct mist_err *err);

/*
 * Runs the first of plans[n], n >= 1, which are in the order of prediction. out borrows
 * the plans. MIST_OK, also when it was stopped; MIST_ERR_RUN: no plan could be run;
 * MIST_ERR_IO, MIST_ERR_MEMORY.
 */
MIST_MUST_CHECK enum mist_status mist_verify_run(const struct mist_verify_config *config,
                                                 const struct mist_validated *plans,
                                                 size_t n, struct mist_verify_result *out,
                                                 struct mist_err *err);

#endif
