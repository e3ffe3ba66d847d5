/*
 * The state of a run out of its ranks and into them: checkpoints (exec/checkpoint/checkpoint.h) and
 * the weights of Hugging Face models (exec/huggingface/hf_names.h).
 *
 * Everything goes by pieces of whole parameters (exec/runtime/state.h), so what was written under
 * one plan is read under any other. In all of these the streams are idle and
 * mist_runtime_apply() has left nothing to apply.
 */
#ifndef MIST_EXEC_TRAIN_STATE_H
#define MIST_EXEC_TRAIN_STATE_H

#include "core/status.h"
#include "exec/checkpoint/checkpoint.h"
#include "exec/comm/comm.h"
#include "exec/huggingface/hf_names.h"
#include "exec/runtime/runtime.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Where checkpoints go. */
struct mist_train_saving {
    const char *dir;                         /* NULL: nowhere */
    int32_t keep;                            /* of them; 0: all */
    uint64_t run_id;                         /* of mist_train_claim() */
    const struct mist_checkpoint_lock *lock; /* the same, on rank 0; NULL: none is held */
};

/*
 * Every rank writes what it owns; when all have done so, rank 0 makes it the checkpoint
 * of step. Before each of the two rank 0 looks whether its lock is still that of the
 * folder (MIST_ERR_IO). training is rank 0's; warning is cleared at first and filled there, see
 * mist_checkpoint_commit(). No deadline runs while a rank writes. All ranks get the
 * failure of one, and the job can only end; the checkpoints before it are what they were.
 * MIST_ERR_IO, MIST_ERR_MEMORY, MIST_ERR_RUN.
 */
MIST_MUST_CHECK enum mist_status
mist_train_save(const struct mist_runtime *runtime, struct mist_comm *comm,
                const struct mist_train_saving *saving, int64_t step,
                const struct mist_model *model, const json_t *training,
                struct mist_err *warning, struct mist_err *err);

/* Weights and moments of this rank. MIST_ERR_INPUT (damaged), MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_train_load(const struct mist_runtime *runtime,
                                                 struct mist_checkpoint *checkpoint,
                                                 struct mist_err *err);

/* The weights alone; the moments stay. MIST_ERR_INPUT, MIST_ERR_MEMORY. */
MIST_MUST_CHECK enum mist_status mist_train_import(const struct mist_runtime *runtime,
                                                   const struct mist_hf *hf,
                                                   struct mist_err *err);

/*
 * Brings the weights to rank 0, one parameter at a time, which writes them as
 * mist_hf_save() does; all ranks call it. After a failure on rank 0 the job can only end.
 */
MIST_MUST_CHECK enum mist_status
mist_train_export(const struct mist_runtime *runtime, struct mist_comm *comm,
                  const struct mist_model *model, int32_t n_positions, const char *folder,
                  enum mist_dtype dtype, bool force, struct mist_err *err);

#endif
