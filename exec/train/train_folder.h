/*
 * The folder of checkpoints that the ranks of a run share: that no other job writes
 * there, that all ranks see the same one, and which of its checkpoints all go on from.
 *
 * All functions are called by all ranks of comm, and have the same result on all of them:
 * that of the first rank that failed, with its message; all may go on afterwards. Only
 * rank 0 says anything in messages. No
 * deadline runs while a rank waits for a disk. Where that can't be had (MIST_ERR_RUN,
 * MIST_ERR_MEMORY) the job can only end.
 */
#ifndef MIST_EXEC_TRAIN_FOLDER_H
#define MIST_EXEC_TRAIN_FOLDER_H

#include "core/message.h"
#include "core/status.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/comm/comm.h"

#include <stdint.h>

struct mist_train_claim {
    struct mist_checkpoint_lock *lock; /* owned; on rank 0 */
    uint64_t run_id;
};

/*
 * Rank 0 locks dir, which is made if needed (see mist_checkpoint_lock()), waiting up to
 * patience_s or until a signal asks to stop (core/interrupt.h); then every rank makes
 * sure that it sees the same folder and can save there, of which nothing is left.
 * MIST_ERR_IO: in use, or not the same on all ranks: the message names one that is
 * elsewhere, and its host; or a rank can't save there. MIST_ERR_MEMORY, MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_train_claim(struct mist_comm *comm, const char *dir,
                                                  double patience_s,
                                                  const struct mist_messages *messages,
                                                  struct mist_train_claim *out,
                                                  struct mist_err *err);

/* Any rank, whether it has claimed or not. */
void mist_train_release(struct mist_train_claim *claim);

/*
 * Opens the newest checkpoint in dir, or dir itself, of which every byte is sound: the
 * ranks share the reading. What has to be passed over is said in messages. *path is
 * malloc'd, *out open; both are the caller's, and NULL if there is no checkpoint at all.
 * MIST_ERR_INPUT: all are damaged; MIST_ERR_IO: dir can't be read; MIST_ERR_MEMORY,
 * MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status mist_train_find(struct mist_comm *comm, const char *dir,
                                                 const struct mist_messages *messages,
                                                 char **path,
                                                 struct mist_checkpoint **out,
                                                 struct mist_err *err);

#endif
