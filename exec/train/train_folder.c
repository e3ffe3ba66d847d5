/* What ranks agree on about a folder of checkpoints. See train_folder.h. */
#include "exec/train/train_folder.h"

#include "core/clock.h"
#include "core/interrupt.h"
#include "core/parse.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A client of NFS may take what it knows of a folder for true for 60 s (acdirmax). */
static const double see_patience_s = 60;
static const double see_sleep_s = 0.02;

/* ------------------------------------------------------------------------------ claim */

struct claiming {
    const struct mist_comm *comm;
    const char *dir;
    double patience_s;
    const struct mist_messages *messages;
    struct mist_train_claim *claim;
    bool has_said; /* that it waits */
    struct mist_checkpoint_save trial;
};

static bool is_to_stop(void)
{
    return atomic_load(mist_interrupt_flag()) != 0;
}

/* Says it once. */
static bool wait_for_holder(void *context, const struct mist_err *holder)
{
    struct claiming *at = context;
    struct mist_err waits = *holder;

    mist_text_add(waits.message, sizeof waits.message, "; ", "waits up to %g s for it",
                  at->patience_s);
    if (!at->has_said)
        mist_message_err(at->messages, &waits);
    at->has_said = true;
    return !is_to_stop();
}

static enum mist_status lock(void *context, struct mist_err *err)
{
    struct claiming *at = context;
    struct mist_err warning;

    if (mist_comm_rank(at->comm) != 0)
        return MIST_OK;
    enum mist_status status = mist_checkpoint_lock(
        at->dir, at->patience_s, wait_for_holder, at, &at->claim->lock, &warning, err);
    if (status == MIST_OK && warning.message[0])
        mist_message_err(at->messages, &warning);
    if (status == MIST_OK)
        at->claim->run_id = mist_checkpoint_lock_run_id(at->claim->lock);
    return status;
}

static enum mist_status look_for_lock(void *context, struct mist_err *err)
{
    const struct claiming *at = context;
    double end_s = mist_clock_now_s() + fmin(see_patience_s, at->patience_s);
    char host[256] = "?", here[PATH_MAX];

    while (!mist_checkpoint_sees_lock(at->dir, at->claim->run_id)) {
        if (mist_clock_now_s() < end_s && !is_to_stop()) {
            mist_clock_sleep_s(see_sleep_s);
            continue;
        }
        gethostname(host, sizeof host - 1);
        if (at->dir[0] == '/' || !getcwd(here, sizeof here))
            here[0] = '\0';
        return mist_err_at(err, MIST_ERR_IO, at->dir, 0, 0,
                           "rank %d on %.64s%s%.160s does not see the folder that rank 0 "
                           "saves in: all ranks need the same, on a shared file system",
                           (int)mist_comm_rank(at->comm), host, here[0] ? ", in " : "",
                           here);
    }
    return MIST_OK;
}

static enum mist_status save_nothing(void *context, struct mist_err *err)
{
    const struct claiming *at = context;
    int32_t rank = mist_comm_rank(at->comm);
    struct mist_checkpoint_writer *writer;
    struct mist_err why;
    enum mist_status status =
        mist_checkpoint_writer_open(&at->trial, rank, &writer, &why);

    if (status == MIST_OK)
        status = mist_checkpoint_writer_close(writer, &why);
    return status == MIST_OK
               ? MIST_OK
               : mist_err_at(err, status, at->dir, 0, 0, "rank %d can't save there: %s",
                             (int)rank, why.message);
}

/* A save of nothing, of a step that never comes: what makes it fail would make the first
 * checkpoint fail, when it is late. */
static enum mist_status try_save(struct mist_comm *comm, struct claiming *at,
                                 struct mist_err *err)
{
    at->trial = (struct mist_checkpoint_save){at->dir, at->claim->run_id, INT64_MAX,
                                              mist_comm_n_ranks(comm)};
    enum mist_status status = mist_comm_work_together(comm, save_nothing, at, err);

    if (mist_comm_rank(comm) == 0)
        mist_checkpoint_discard(&at->trial);
    return status;
}

enum mist_status mist_train_claim(struct mist_comm *comm, const char *dir,
                                  double patience_s, const struct mist_messages *messages,
                                  struct mist_train_claim *out, struct mist_err *err)
{
    struct claiming at = {comm, dir, patience_s, messages, out, false, {0}};
    struct mist_err why = {0};

    *out = (struct mist_train_claim){0};
    enum mist_status status = mist_comm_work_together(comm, lock, &at, &why);
    if (status == MIST_OK)
        status =
            mist_comm_broadcast_bytes(comm, 0, &out->run_id, sizeof out->run_id, &why);
    if (status == MIST_OK)
        status = mist_comm_work_together(comm, look_for_lock, &at, &why);
    if (status == MIST_OK)
        status = try_save(comm, &at, &why);
    if (status != MIST_OK)
        mist_train_release(out);
    if (status != MIST_OK && err)
        *err = why;
    return status;
}

void mist_train_release(struct mist_train_claim *claim)
{
    mist_checkpoint_unlock(claim->lock);
    *claim = (struct mist_train_claim){0};
}

/* ----------------------------------------------------------- the newest that is whole */

struct finding {
    const struct mist_comm *comm;
    char path[PATH_MAX]; /* "": none yet */
    struct mist_checkpoint *checkpoint;
};

/* Rank 0 looks for the newest, or the one behind the last, by what is quick to check. */
static enum mist_status find_next(struct finding *at, const char *dir,
                                  const struct mist_messages *messages,
                                  struct mist_err *err)
{
    struct mist_err warning;
    char *path = NULL;
    enum mist_status status =
        mist_checkpoint_find(dir, at->path[0] ? at->path : NULL, &path, &warning, err);

    if (warning.message[0])
        mist_message_err(messages, &warning);
    if (status == MIST_ERR_INPUT && !at->path[0] && !warning.message[0] &&
        !mist_checkpoint_is_there(dir))
        return MIST_OK;
    if (status == MIST_OK && strlen(path) >= sizeof at->path)
        status = mist_err_at(err, MIST_ERR_INPUT, dir, 0, 0, "its path is too long");
    if (status == MIST_OK)
        snprintf(at->path, sizeof at->path, "%s", path);
    free(path);
    return status;
}

static enum mist_status open_and_verify(void *context, struct mist_err *err)
{
    struct finding *at = context;
    enum mist_status status = mist_checkpoint_open(at->path, &at->checkpoint, err);

    if (status == MIST_OK)
        status = mist_checkpoint_verify_part(at->checkpoint, mist_comm_rank(at->comm),
                                             mist_comm_n_ranks(at->comm), err);
    return status;
}

static enum mist_status find(struct mist_comm *comm, struct finding *at, const char *dir,
                             const struct mist_messages *messages, struct mist_err *err)
{
    for (;;) {
        enum mist_status status = MIST_OK;
        if (mist_comm_rank(comm) == 0)
            status = find_next(at, dir, messages, err);
        status = mist_comm_agree(comm, status, err);
        if (status == MIST_OK)
            status = mist_comm_broadcast_bytes(comm, 0, at->path, sizeof at->path, err);
        if (status != MIST_OK || !at->path[0])
            return status;
        status = mist_comm_work_together(comm, open_and_verify, at, err);
        if (status != MIST_ERR_INPUT || strcmp(at->path, dir) == 0)
            return status;
        mist_checkpoint_close(at->checkpoint);
        at->checkpoint = NULL;
        if (mist_comm_rank(comm) == 0)
            mist_message_err(messages, err);
    }
}

enum mist_status mist_train_find(struct mist_comm *comm, const char *dir,
                                 const struct mist_messages *messages, char **path,
                                 struct mist_checkpoint **out, struct mist_err *err)
{
    struct finding at = {.comm = comm};
    struct mist_err why = {0};
    enum mist_status status = find(comm, &at, dir, messages, &why);

    *path = NULL;
    *out = NULL;
    if (status == MIST_OK && at.path[0]) {
        *path = strdup(at.path);
        if (!*path)
            status = mist_err_memory(&why, NULL);
    }
    if (status == MIST_OK) {
        *out = at.checkpoint;
    } else {
        mist_checkpoint_close(at.checkpoint);
        if (err)
            *err = why;
    }
    return status;
}
