/*
 * One run of mist-exec on one rank: what was asked for, what was opened for it, and what
 * is checked before anything is allocated or after the last step. mist_exec.c walks
 * through it; the ranks agree between the steps, so functions that talk to the others say
 * so.
 *
 * All return what they found wrong: MIST_ERR_USAGE, MIST_ERR_INPUT, MIST_ERR_IO,
 * MIST_ERR_NO_PLAN (memory), MIST_ERR_MEMORY. What a session has opened, main() closes.
 */
#ifndef MIST_EXEC_SESSION_H
#define MIST_EXEC_SESSION_H

#include "core/message.h"
#include "core/status.h"
#include "exec/comm/comm.h"
#include "exec/data/data.h"
#include "exec/runtime/backend.h"
#include "exec/train/train.h"
#include "exec/train/train_folder.h"
#include "exec/train/train_log.h"
#include "exec/train/train_options.h"
#include "sim/model/catalog.h"
#include "sim/plan/plan.h"

#include <stdbool.h>

struct mist_session {
    struct mist_exec_options options;
    struct mist_plan plan;
    struct mist_comm *comm;
    struct mist_data *data;
    struct mist_train_claim claim;      /* of the folder of checkpoints */
    struct mist_checkpoint *checkpoint; /* to resume from */
    bool is_newest; /* of those in --checkpoint that are whole: later ones are damaged */
    struct mist_hf *import;
    struct mist_backend_info devices; /* of the backend */
    struct mist_train_job job;
    struct mist_train_logger logger;
    struct mist_messages messages; /* rank 0 tells people */
    const char *plan_path;
    int stop_signal;  /* that ended the run; 0: none */
    bool is_finished; /* the checkpoint has all steps of the run */
};

/* Whether this is rank 0, which talks to people and writes what the run leaves. */
static inline bool mist_session_is_first(const struct mist_session *at)
{
    return mist_comm_rank(at->comm) == 0;
}

/* Whether there may be a log of an attempt before this one. */
bool mist_session_goes_on(const struct mist_session *at);

/* Plan, backend, memory and data: what a rank can tell by itself. With
 * mist_session_open_start(), what can be refused is refused before anything
 * is allocated. */
MIST_MUST_CHECK enum mist_status mist_session_prepare(struct mist_session *at,
                                                      struct mist_err *err);

/* All ranks: that they have the same plan, and the same way to begin. MIST_ERR_INPUT on
 * all of them; MIST_ERR_RUN. session_agree.c */
MIST_MUST_CHECK enum mist_status
mist_session_agree_on_start(const struct mist_session *at, struct mist_err *err);

/* All ranks, when job is filled: that data, settings and what is done beside the steps
 * are the same, MIST_ERR_INPUT; and the export is left out where rank 0 has found it
 * done. MIST_ERR_RUN. session_agree.c */
MIST_MUST_CHECK enum mist_status mist_session_agree_on_run(struct mist_session *at,
                                                           struct mist_err *err);

/* All ranks, with what prepare() left: the checkpoint or the weights to begin with, and
 * the settings that follow. */
MIST_MUST_CHECK enum mist_status mist_session_open_start(struct mist_session *at,
                                                         struct mist_err *err);

/* Rank 0, with what prepare() left: no output is what the run reads. MIST_ERR_USAGE. */
MIST_MUST_CHECK enum mist_status mist_session_check_apart(const struct mist_session *at,
                                                          struct mist_err *err);

/* Rank 0: what could not be written at the end is refused at the beginning. */
MIST_MUST_CHECK enum mist_status mist_session_check_outputs(struct mist_session *at,
                                                            struct mist_err *err);

/* Rank 0, after the last step: timeline, table of kernels, report. */
MIST_MUST_CHECK enum mist_status
mist_session_save_results(const struct mist_session *at,
                          const struct mist_train_report *report, struct mist_err *err);

#endif
