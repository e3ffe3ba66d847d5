/*
 * Checkpoints: the state of a training run on disk, to be continued under any plan.
 *
 * Tensors are stored as pieces of whole parameters (row-major, sim/model/param_shape.h), so a
 * reader with another data- or tensor-parallel size, another pipeline, ZeRO level or
 * offloading asks for the elements it needs and gets the bits that were written. A
 * tensor's name is "<module>/<parameter>/<kind>": "3/qkv.weight/moment1", module 0 the
 * embedding, 1 .. n_layers the blocks, n_layers + 1 the head. All are fp32; of a bf16 run
 * the weight is the fp32 master. A weight tied to the embedding is stored once, as
 * "0/wte/weight".
 *
 * A checkpoint is a folder DIR/step-00000100 with one file per rank and manifest.json.
 * It is written beside, as step-00000100.RUN.partial, by all ranks; every file is flushed
 * to the disk; rank 0 then adds the manifest, flushes it and the folder, renames the
 * folder and flushes DIR. Without a valid manifest there is no checkpoint, and under the
 * final name there is none that is not whole. Every byte is under a checksum
 * (XXH64), payloads in blocks of 1 MiB.
 *
 * RUN is a random number of the run (run_id, 16 hexadecimal digits). Each run writes in
 * folders of its own, and the number stands in every rank's file and in the manifest: so
 * files of two runs never make one checkpoint, nor load as one, whatever two jobs do to
 * one DIR at the same time. That they don't get there is the matter of the lock: the file
 * DIR/lock, locked by the system for as long as rank 0 lives.
 *
 * All hosts must see the same DIR (a shared file system). Files are little-endian.
 * Formats: 2; 1, which had no run ids, is read. Left out: compression, saving while
 * training goes on.
 *
 * A save, on every rank:
 *     mist_checkpoint_writer_open(&save, rank, &writer, err);
 *     mist_checkpoint_add_piece(writer, name, n_whole, spans, n_spans, data, err); ...
 *     mist_checkpoint_writer_close(writer, err);
 *     -- barrier; when all ranks succeeded, on rank 0: --
 *     mist_checkpoint_commit(&save, model, training, keep, warning, err);
 */
#ifndef MIST_EXEC_CHECKPOINT_H
#define MIST_EXEC_CHECKPOINT_H

#include "core/json.h"
#include "core/status.h"
#include "sim/model/model.h"
#include "sim/model/param_shape.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum mist_checkpoint_kind {
    MIST_CHECKPOINT_WEIGHT,
    MIST_CHECKPOINT_MOMENT1,
    MIST_CHECKPOINT_MOMENT2,
    MIST_CHECKPOINT_N_KINDS
};

/* That a parameter of the model takes in a checkpoint, in fp32. */
enum { MIST_CHECKPOINT_PARAM_BYTES = 4 * MIST_CHECKPOINT_N_KINDS };

#define MIST_CHECKPOINT_NAME_BYTES 128 /* a tensor's name and its '\0' */

/* Fills out with "<module>/<param>/<kind>" and returns it. */
char *mist_checkpoint_name(char out[MIST_CHECKPOINT_NAME_BYTES], int32_t module,
                           const char *param, enum mist_checkpoint_kind kind);

/* ---------------------------------------------------------------------------- writing */

/* A checkpoint that is being written; the same on all ranks. */
struct mist_checkpoint_save {
    const char *dir; /* borrowed */
    uint64_t run_id; /* mist_checkpoint_lock_run_id(); not 0 */
    int64_t step;    /* >= 0 */
    int32_t n_ranks;
};

struct mist_checkpoint_writer; /* one rank's file */

/*
 * Starts a rank's file in DIR/step-N.RUN.partial; folders are made as needed, what an
 * earlier attempt left under the same name is removed first; links are not followed. 0 <=
 * rank < n_ranks. *out is the caller's to close or abort. MIST_ERR_IO (also a name that is
 * too long), MIST_ERR_MEMORY.
 */
enum mist_status mist_checkpoint_writer_open(const struct mist_checkpoint_save *save,
                                             int32_t rank,
                                             struct mist_checkpoint_writer **out,
                                             struct mist_err *err) MIST_MUST_CHECK;

/*
 * Adds a piece of a tensor of whole_elements: span s is at data + s.local_first (floats),
 * its runs one behind the other. Pieces of replicas may overlap and then must hold the
 * same bits. n_spans 0 adds nothing. data and spans are borrowed during the call.
 *
 * MIST_ERR_RANGE: a span outside the tensor, or whole_elements other than before for the
 * same name; MIST_ERR_IO, MIST_ERR_MEMORY. After a failure the writer can only be
 * aborted.
 */
enum mist_status mist_checkpoint_add_piece(struct mist_checkpoint_writer *writer,
                                           const char *tensor, int64_t whole_elements,
                                           const struct mist_param_span *spans,
                                           int32_t n_spans, const float *data,
                                           struct mist_err *err) MIST_MUST_CHECK;

/* Ends the file and flushes it to the disk; frees the writer either way. MIST_ERR_IO,
 * MIST_ERR_MEMORY: the file is gone. */
enum mist_status mist_checkpoint_writer_close(struct mist_checkpoint_writer *writer,
                                              struct mist_err *err) MIST_MUST_CHECK;

/* Removes the file and frees the writer; NULL is fine. */
void mist_checkpoint_writer_abort(struct mist_checkpoint_writer *writer);

/*
 * Makes the files of all ranks a checkpoint, on one rank, after all have closed theirs.
 * Refuses (MIST_ERR_INPUT) files that are damaged, of another run, step or number of
 * ranks, or that leave a part of a tensor out. A checkpoint of the same step is replaced;
 * until the new one is in place it is kept as step-N.old, which readers know. training is
 * an object of the caller's, borrowed and stored as it is. MIST_ERR_IO, MIST_ERR_MEMORY.
 *
 * Then what is no longer needed is deleted: complete checkpoints but that one and the keep
 * - 1 others of the highest steps (keep 0: keeps all), .partial folders of any run, and
 * what interrupted deletions left. Damaged checkpoints and files that are not ours stay; of
 * a link the link goes alone. The checkpoint is whole whatever becomes of that: what could
 * not be deleted is told in warning, which is cleared at first and may be NULL.
 */
enum mist_status mist_checkpoint_commit(const struct mist_checkpoint_save *save,
                                        const struct mist_model *model,
                                        const json_t *training, int32_t keep,
                                        struct mist_err *warning,
                                        struct mist_err *err) MIST_MUST_CHECK;

/* Removes what ranks wrote for a save that failed: on a full disk it would be in the way.
 * What can't be removed stays until the next save. */
void mist_checkpoint_discard(const struct mist_checkpoint_save *save);

/* ---------------------------------------------------------------------------- locking */

struct mist_checkpoint_lock;

/* Told again and again, while another process holds the lock, by whom; false: don't wait
 * any longer. */
typedef bool mist_checkpoint_waits_fn(void *context, const struct mist_err *holder);

/*
 * Locks dir (which is made) by its file "lock" until mist_checkpoint_unlock() or the end
 * of this process, and draws a run id from the system's randomness. If another process
 * holds the lock, waits up to patience_s for it; waits may be NULL. What runs before left
 * unfinished is removed: the disk may be almost full of it. *out is the caller's to
 * unlock.
 *
 * MIST_ERR_IO: held by another, who is named; or can't be made. MIST_ERR_MEMORY. A file
 * system that can't lock is no error: warning, cleared at first, says so; the run id
 * still keeps files apart.
 */
enum mist_status mist_checkpoint_lock(const char *dir, double patience_s,
                                      mist_checkpoint_waits_fn *waits, void *context,
                                      struct mist_checkpoint_lock **out,
                                      struct mist_err *warning,
                                      struct mist_err *err) MIST_MUST_CHECK;
uint64_t mist_checkpoint_lock_run_id(const struct mist_checkpoint_lock *lock);

/* MIST_ERR_IO: the folder was removed or replaced since, or the lock's file was, so that
 * another process may hold a lock there as well. */
enum mist_status mist_checkpoint_check_lock(const struct mist_checkpoint_lock *lock,
                                            struct mist_err *err) MIST_MUST_CHECK;

/* Removes the lock's file, and the folder if the lock made it and it is empty; frees
 * lock. NULL is fine. */
void mist_checkpoint_unlock(struct mist_checkpoint_lock *lock);

/* True when the lock of run_id is what this process, perhaps on another host, finds in
 * dir. */
bool mist_checkpoint_sees_lock(const char *dir, uint64_t run_id);

/* ---------------------------------------------------------------------------- reading */

struct mist_checkpoint; /* open for reading; files are mapped; one thread at a time */

/*
 * Finds the whole checkpoint of the highest step in dir, or dir itself when it is one
 * (has a manifest). Whole: manifest, file sizes and tables are sound and leave no gap;
 * payloads are looked at when read. warning, cleared at first, names the newest one that
 * had to be passed over; it may be NULL. *path is malloc'd, the caller's to free.
 * MIST_ERR_INPUT: there is none; MIST_ERR_IO: dir can't be read; MIST_ERR_MEMORY.
 *
 * than  NULL, or a path that this has found in dir: what stands behind it is found, and
 *       MIST_ERR_INPUT comes, too, if dir is a checkpoint itself.
 */
enum mist_status mist_checkpoint_find(const char *dir, const char *than, char **path,
                                      struct mist_err *warning,
                                      struct mist_err *err) MIST_MUST_CHECK;

/* Whether a folder is a checkpoint (has a manifest), whole or not. */
bool mist_checkpoint_is_there(const char *path);

/* MIST_ERR_INPUT: damaged or no checkpoint; MIST_ERR_IO, MIST_ERR_MEMORY. */
enum mist_status mist_checkpoint_open(const char *path, struct mist_checkpoint **out,
                                      struct mist_err *err) MIST_MUST_CHECK;
void mist_checkpoint_close(struct mist_checkpoint *checkpoint); /* NULL is fine */

int64_t mist_checkpoint_step(const struct mist_checkpoint *checkpoint);

/* The caller's object of the commit, valid until close. */
struct mist_json mist_checkpoint_training(const struct mist_checkpoint *checkpoint);

/* MIST_ERR_INPUT, naming the first dimension that differs (the name may). */
enum mist_status mist_checkpoint_check_model(const struct mist_checkpoint *checkpoint,
                                             const struct mist_model *model,
                                             struct mist_err *err) MIST_MUST_CHECK;

/*
 * Copies a rank's part of a whole tensor, span s to local + s.local_first, out of whatever
 * pieces hold it; padding is left untouched. Checksums of the blocks touched are verified,
 * once per open checkpoint. MIST_ERR_INPUT: no such tensor, a span outside it, or damage.
 */
enum mist_status mist_checkpoint_read_spans(struct mist_checkpoint *checkpoint,
                                            const char *tensor,
                                            const struct mist_param_span *spans,
                                            int32_t n_spans, float *local,
                                            struct mist_err *err) MIST_MUST_CHECK;

/*
 * Reads the payloads of the ranks' files i_part, i_part + n_parts, ... and makes sure of
 * their checksums and that overlapping pieces agree: what n_parts processes check
 * together is everything. MIST_ERR_INPUT.
 */
enum mist_status mist_checkpoint_verify_part(struct mist_checkpoint *checkpoint,
                                             int32_t i_part, int32_t n_parts,
                                             struct mist_err *err) MIST_MUST_CHECK;

/* Everything mist_checkpoint_open() looks at, and every payload. MIST_ERR_INPUT,
 * MIST_ERR_IO, MIST_ERR_MEMORY. */
enum mist_status mist_checkpoint_verify(const char *path,
                                        struct mist_err *err) MIST_MUST_CHECK;

/*
 * `mist-exec --verify`: prints for every checkpoint in dir, or for dir itself when it is
 * one, whether it is whole to the last byte, and if not the first thing that is wrong
 * with it. What was never finished, or is being deleted, is no checkpoint.
 *
 * MIST_OK: all are whole. MIST_ERR_VERIFY: not all. MIST_ERR_INPUT: there is none.
 * MIST_ERR_IO (dir or stream), MIST_ERR_MEMORY. checkpoint_check.c
 */
MIST_MUST_CHECK enum mist_status mist_checkpoint_check_folder(const char *dir,
                                                              bool as_json, FILE *stream,
                                                              struct mist_err *err);

#endif
